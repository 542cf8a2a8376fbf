//! Limits on the work that a small program can cause: each of these programs took minutes, gigabytes, or never ended.
//! No test measures time: without its limit, one does not end or uses up all memory.

use base::Severity;
use frontend::{Compiled, Input, Options, Until, compile};
use std::path::Path;

fn run(text: &str) -> Compiled {
    compile(Input::Text { name: "limits.p4", text }, &Options::default(), Until::Ir).unwrap()
}

/// The codes of the errors.
fn errors(compiled: &Compiled) -> Vec<&'static str> {
    compiled.diagnostics.iter().filter(|d| d.severity == Severity::Error).map(|d| d.code).collect()
}

/// A program with these types, declarations and statements of its ingress control.
fn program(types: &str, declarations: &str, apply: &str) -> String {
    format!(
        "#include <core.p4>
#include <v1model.p4>
{types}
header h_t {{ bit<8> a; }}
header v_t {{ bit<8> v; }}
struct headers_t {{ h_t h; v_t[1000] s; }}
struct meta_t {{ bit<8> m; bit<32> w; }}
parser P(packet_in b, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{
    state start {{ b.extract(hdr.h); transition accept; }}
}}
control V(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{ {declarations} apply {{ {apply} }} }}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{ apply {{ }} }}
control C(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control D(packet_out b, in headers_t hdr) {{ apply {{ b.emit(hdr.h); }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"
    )
}

/// A struct of 2^(n + 1) fields, `big_t`, in n lines.
fn doubled(n: u32) -> String {
    let mut text = "struct s0_t { bit<8> x; bit<8> y; }\n".to_string();
    (1..=n).for_each(|i| text += &format!("struct s{i}_t {{ s{}_t a; s{}_t b; }}\n", i - 1, i - 1));
    text + &format!("typedef s{n}_t big_t;\n")
}

/// Checks that a program is refused as too large, at a span whose text contains `at`.
fn too_large(text: &str, at: &str) {
    let compiled = run(text);
    assert_eq!(errors(&compiled), ["E0611"], "{}", compiled.render(false));
    let found = compiled.diagnostics.iter().find(|d| d.code == "E0611").unwrap();
    let place = compiled.sources.text(found.span).unwrap_or_default();
    assert!(place.contains(at), "the place is `{place}`");
    assert!(found.help.is_some());
    assert!(compiled.raw.is_none());
}

#[test]
fn a_thousand_assignments_of_a_struct_of_65536_fields_are_refused_at_the_assignment() {
    too_large(&program(&doubled(15), "big_t x; big_t y;", &"x = y;\n".repeat(1000)), "x = y");
}

#[test]
fn a_thousand_comparisons_of_a_struct_of_65536_fields_are_refused() {
    too_large(&program(&doubled(15), "big_t x; big_t y;", &"if (x == y) { meta.m = 1; }\n".repeat(1000)), "x == y");
}

#[test]
fn a_thousand_inlined_calls_with_a_large_struct_are_refused() {
    let declarations = "big_t x; big_t y; action f(inout big_t p, in big_t q) { p = q; }";
    too_large(&program(&doubled(15), declarations, &"f(x, y);\n".repeat(1000)), "p = q");
}

/// A program of a few thousand operations took 40 ms per packet.
#[test]
fn a_thousand_products_of_wide_values_are_refused() {
    too_large(&program("", "bit<16384> a = (bit<16384>)meta.m;", &"a = a * (a + 1);\n".repeat(1000)), "a * (a + 1)");
}

#[test]
fn indices_of_indices_that_multiply_are_refused() {
    let index = "t[meta.m][meta.m][meta.m].v";
    let types = "struct e_t { bit<8> v; }";
    too_large(&program(types, "e_t[40][40][40] t;", &format!("{index} = {index} + 1;\n").repeat(20)), "t[meta.m]");
}

#[test]
fn headers_known_to_be_valid_are_not_copied_at_each_branch_without_end() {
    let valid: String = (0..1000).map(|i| format!("hdr.s[{i}].setValid();\n")).collect();
    let branches = "if (meta.m == 1) { meta.w = meta.w + 1; }\n".repeat(30_000);
    too_large(&program("", "", &(valid + &branches)), "meta.");
}

#[test]
fn statements_that_become_no_operation_are_counted_each_time_they_are_inlined() {
    let mut declarations = format!("action a0() {{ {} }}\n", "{ }".repeat(2000));
    (1..=5).for_each(|i| declarations += &format!("action a{i}() {{ {} }}\n", format!("a{}(); ", i - 1).repeat(9)));
    let compiled = run(&program("", &declarations, "a5();"));
    assert_eq!(errors(&compiled), ["E0611"], "{}", compiled.render(false));
}

#[test]
fn a_name_of_megabytes_is_refused_and_not_echoed() {
    let compiled = run(&format!("const bit<8> x = {};", "a".repeat(5_000_000)));
    assert_eq!(errors(&compiled).first(), Some(&"E0007"));
    assert!(compiled.render(false).len() < 10_000);
}

#[test]
fn only_regular_files_are_included() {
    let folder = tempfile::tempdir().unwrap();
    let main = folder.path().join("main.p4");
    let with = |include: &str| {
        std::fs::write(&main, format!("#include \"{include}\"\n")).unwrap();
        let compiled = compile(Input::File(&main), &Options::default(), Until::Syntax).unwrap();
        (errors(&compiled), compiled.render(false))
    };
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    let fifo = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for not_a_file in ["/dev/zero", "folder", "fifo"] {
        let (codes, text) = with(not_a_file);
        assert!(codes == ["E0010"] && text.contains("not a regular file"), "{not_a_file}: {text}");
    }
    std::fs::write(folder.path().join("part.p4"), "const bit<8> x = 1;").unwrap();
    assert_eq!(with("part.p4").0, [""; 0]);
    let long = std::fs::File::create(folder.path().join("long.p4")).unwrap();
    long.set_len(1 << 40).unwrap();
    let (codes, text) = with("long.p4");
    assert!(codes == ["E0010"] && text.contains("longer than"), "{text}");
}

/// The process that compiles a controller's program may read files that the controller may not.
#[test]
fn a_program_sent_as_text_reads_no_file_of_the_machine() {
    const SECRET: &str = "const bit<8> secret_of_this_machine = 1;";
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for dir in ["allowed", "allowed/sub", "elsewhere"] {
        std::fs::create_dir(folder.path().join(dir)).unwrap();
    }
    std::fs::write(path("elsewhere/secret.p4"), SECRET).unwrap();
    std::fs::write(path("allowed/part.p4"), "const bit<8> part = 1;").unwrap();
    let compile_text = |include: &str, use_it: &str| {
        let options = Options { include_dirs: vec![path("allowed")], ..Options::default() };
        // The sender also chooses the name: an absolute one must not make a folder readable.
        let name = path("elsewhere/device_config.p4");
        let text = format!("{include}\n{use_it}");
        compile(Input::Text { name: &name, text: &text }, &options, Until::Types).unwrap()
    };
    let refused = |name: &str| {
        for include in [format!("#include \"{name}\""), format!("#include <{name}>")] {
            let compiled = compile_text(&include, "");
            let shown = compiled.render(false);
            assert_eq!(errors(&compiled), ["E0001"], "{include}: {shown}");
            // Neither the content of a file nor another file's name as a suggestion.
            for word in ["secret_of_this_machine", "root:", "did you mean"] {
                assert!(!shown.contains(word), "{include}: {shown}");
            }
            // The program itself is the only file that was read.
            assert_eq!(compiled.sources.files().count(), 1, "{include}");
        }
    };
    assert!(Path::new("/etc/passwd").exists() && Path::new("/proc/self/environ").exists());
    refused("/etc/passwd");
    refused("/etc/passwdd");
    refused("/proc/self/environ");
    refused("/proc/self/cmdline");
    refused("/dev/zero");
    refused("../x");
    refused("../elsewhere/secret.p4");
    refused("sub/../../elsewhere/secret.p4");
    refused("secret.p4");
    refused("secrets.p4");
    refused(&path("elsewhere/secret.p4"));
    refused(&path("allowed/../elsewhere/secret.p4"));
    // Files below an include directory may be read.
    let compiled = compile_text("#include \"part.p4\"", "const bit<8> whole = part;");
    assert!(errors(&compiled).is_empty(), "{}", compiled.render(false));
}

#[test]
fn a_program_that_never_ends_is_read_up_to_the_limit() {
    let refused = compile(Input::File(Path::new("/dev/zero")), &Options::default(), Until::Syntax);
    assert!(refused.err().is_some_and(|error| error.to_string().contains("longer than")));
}

/// `sluice check` ended with exit code 2 and no location: only code generation knew the limit.
#[test]
fn a_value_wider_than_the_switch_computes_with_is_refused_where_it_is_declared_or_made() {
    let refused = |text: &str, at: &str| {
        let compiled = run(text);
        assert_eq!(errors(&compiled), ["E0605"], "{}", compiled.render(false));
        let found = compiled.diagnostics.iter().find(|d| d.code == "E0605").unwrap();
        let place = compiled.sources.text(found.span).unwrap_or_default();
        assert!(place.contains(at), "the place is `{place}`");
        assert!(found.message.contains("65536"), "{}", found.message);
    };
    let header = "header wide_t { bit<8> small; bit<65544> large; }";
    refused(&program(header, "wide_t w;", "w.setValid(); w.large = 1; meta.m = w.large[7:0];"), "large");
    refused(&program("", "bit<65537> w = 1;", "meta.m = w[7:0];"), "w");
    let made = "bit<40000> a = 1; bit<40000> b = 2; if ((a ++ b) == (b ++ a)) { meta.m = 1; }";
    refused(&program("", "", made), "++");
    assert_eq!(
        errors(&run(&program(
            "header wide_t { bit<65536> large; }",
            "wide_t w;",
            "w.setValid(); w.large = 1; meta.m = w.large[7:0];"
        ))),
        [""; 0]
    );
}
