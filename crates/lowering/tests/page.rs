//! The example in `mir`'s crate documentation is what the compiler makes of this program.

use abi::table::{KeyLayout, LookupBatchFn, LookupFn};
use abi::{Bindings, EngineKind, EntryHeader, EntryLayout, EntryParts, TableBinding, TableHandle};
use base::entry::MatchKind;
use frontend::{Input, Options, Until};
use std::ptr;

const PROGRAM: &str = "\
#include <core.p4>
#include <v1model.p4>

header ipv4_t { bit<64> front; bit<8> ttl; bit<56> middle; bit<32> dst; }
struct headers { ipv4_t ipv4; }
struct meta {}

parser P(packet_in packet, out headers hdr, inout meta m, inout standard_metadata_t std) {
    state start { packet.extract(hdr.ipv4); transition accept; }
}
control Verify(inout headers hdr, inout meta m) { apply {} }
control In(inout headers hdr, inout meta m, inout standard_metadata_t std) {
    action send(bit<9> port) { std.egress_spec = port; hdr.ipv4.ttl = hdr.ipv4.ttl - 1; }
    action drop() { mark_to_drop(std); }
    table routes {
        key = { hdr.ipv4.dst: lpm; }
        actions = { send; drop; }
        default_action = drop();
    }
    apply { if (hdr.ipv4.ttl > 1) routes.apply(); }
}
control Out(inout headers hdr, inout meta m, inout standard_metadata_t std) { apply {} }
control Compute(inout headers hdr, inout meta m) { apply {} }
control Deparse(packet_out packet, in headers hdr) { apply { packet.emit(hdr.ipv4); } }
V1Switch(P(), Verify(), In(), Out(), Compute(), Deparse()) main;
";

extern "C" fn lookup(_: *const TableHandle, _: *const u8) -> *const EntryHeader {
    ptr::null()
}

extern "C" fn lookup_batch(_: *const TableHandle, _: *const u8, _: u32, _: *mut *const EntryHeader) {}

/// Bindings for the program's only table, at a fixed address.
fn bindings() -> Bindings {
    let routes = TableBinding {
        handle: ptr::without_provenance(0x1000),
        key: KeyLayout::new([(32, MatchKind::Lpm)]),
        engine: EngineKind::Opaque,
        exact: None,
        lookup: lookup as LookupFn,
        lookup_batch: lookup_batch as LookupBatchFn,
        select: None,
        entry: EntryLayout::new(&[vec![9], vec![]], EntryParts::default()),
        dynamic: None,
        footprint_bytes: 0,
    };
    Bindings { tables: vec![routes], externs: Vec::new() }
}

/// The fenced texts in `mir`'s crate documentation, without comment marks.
fn texts() -> Vec<String> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../mir/src/lib.rs")).expect("a file");
    let lines =
        page.lines().map_while(|line| line.strip_prefix("//!")).map(|line| line.strip_prefix(' ').unwrap_or(line));
    let page: Vec<&str> = lines.collect();
    let blocks = page.split(|line| line.starts_with("```"));
    blocks.skip(1).step_by(2).map(|lines| lines.join("\n") + "\n").collect()
}

/// A text with single spaces.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<&str>>().join(" ")
}

#[test]
fn its_example_is_what_the_compiler_makes() {
    let input = Input::Text { name: "page.p4", text: PROGRAM };
    let compiled = frontend::compile(input, &Options::default(), Until::Ir).expect("a text");
    assert!(!compiled.failed(), "{}", compiled.render(false));
    let program = compiled.optimised.expect("it has a `main`");
    let options = lowering::Options::default();
    let mut lowered = lowering::lower(&program, &bindings(), &datapath::calls::CALLS, &options).expect("it is lowered");
    let ingress = |module: &mir::Module| mir::print_function(module, &module.functions[0]);
    let before = ingress(&lowered.module);
    mir::passes::optimise(&mut lowered.module, &[]);
    let after = ingress(&lowered.module);
    let printed = mir::print(&lowered.module);
    assert_eq!(mir::parse(&printed).map(|module| mir::print(&module)), Ok(printed), "what is printed is read");
    let texts = texts();
    let [p4, as_lowered, optimised, machine] = &texts[..] else { panic!("{} texts", texts.len()) };
    for line in p4.lines() {
        assert!(squeezed(PROGRAM).contains(&squeezed(line)), "the program has no `{line}`");
    }
    assert!(before.contains(as_lowered), "the page has\n{as_lowered}\nand not a part of\n{before}");
    assert!(after.contains(optimised), "the page has\n{optimised}\nand not a part of\n{after}");
    if cfg!(target_arch = "x86_64") {
        let code = &codegen::assembly(&lowered.module, &codegen::Options::default()).expect("code")[0];
        assert!(code.contains(machine), "the page has\n{machine}\nand not a part of\n{code}");
    }
}
