//! `p4lib`: the folder's files are embedded in the compiler, and a program that arrives as text may include them.

use frontend::{Input, Options, Until};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The diagnostics of a program that is given as text.
fn messages(text: &str) -> String {
    let input = Input::Text { name: "test.p4", text };
    frontend::compile(input, &Options::default(), Until::Ir).expect("there is no file to read").render(false)
}

#[test]
fn the_folder_is_what_is_embedded() {
    let folder = std::fs::read_dir(root().join("p4lib")).expect("p4lib/").map(|e| e.expect("a readable folder").path());
    let folder: BTreeMap<String, String> = folder
        .map(|path| {
            let name = path.file_name().expect("it is a file").to_string_lossy();
            (format!("p4lib/{name}"), std::fs::read_to_string(&path).expect("a readable file"))
        })
        .collect();
    let listed = sema::EMBEDDED.iter().filter(|name| name.starts_with("p4lib/"));
    let embedded: BTreeMap<String, String> =
        listed.map(|name| (name.to_string(), sema::embedded(name).expect("it is listed").to_string())).collect();
    assert_eq!(folder.keys().collect::<Vec<_>>(), embedded.keys().collect::<Vec<_>>());
    assert_eq!(folder, embedded);
}

#[test]
fn each_file_can_be_included_alone() {
    for name in sema::EMBEDDED.iter().filter(|name| name.starts_with("p4lib/")) {
        let architecture = match *name {
            "p4lib/psa.p4" | "p4lib/internet_checksum.p4" => "psa",
            "p4lib/pna.p4" => "pna",
            _ => "v1model",
        };
        let said = messages(&format!(
            "#include <core.p4>\n#include <{architecture}.p4>\n#include <p4lib/headers.p4>\nstruct metadata_t {{ }}\n\
             struct headers_t {{ ethernet_t ethernet; ipv4_t ipv4; }}\n#include <{name}>\n#include <{name}>\n"
        ));
        assert!(!said.contains("error") && !said.contains("warning"), "{name}: {said}");
    }
}

#[test]
fn the_program_of_the_page_compiles() {
    let page = std::fs::read_to_string(root().join("docs/p4lib.md")).expect("the page");
    let program = page.split("```p4\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a program");
    assert_eq!(messages(program), "");
    // Its rule about includes: these files use the program's own types.
    let early = program.replace("#include <p4lib/nat.p4>\n", "#include <p4lib/nat.p4>\n#include <p4lib/v1model.p4>\n");
    assert!(messages(&early).contains("there is no type `metadata_t`"), "{}", messages(&early));
}
