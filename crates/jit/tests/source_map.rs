//! The locations of code: ranges are adjacent from the first byte to the last, and tables, actions and parser states
//! have some.

mod common;

use abi::Bindings;
use common::Both;
use frontend::{Input, Options, Until};
use ir::EntryKind;
use std::collections::BTreeMap;

const PROGRAM: &str = r#"
#include <v1model.p4>
header h_t { bit<8> kind; bit<8> value; }
struct headers_t { h_t first; h_t second; }
struct meta_t {}
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.first); transition select(h.first.kind) { 1: second; default: accept; } }
    state second { p.extract(h.second); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply {} }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    action forward(bit<9> port) { s.egress_spec = port; h.first.value = h.first.value + 1; }
    action reject() { mark_to_drop(s); }
    table t { key = { h.first.value: exact; } actions = { forward; reject; } default_action = reject(); }
    apply { t.apply(); }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers_t h, inout meta_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"#;

fn both() -> Both {
    let input = Input::Text { name: "located.p4", text: PROGRAM };
    let compiled = frontend::compile(input, &Options::default(), Until::Ir).expect("a text needs no file");
    let program = compiled.optimised.clone().unwrap_or_else(|| panic!("{}", compiled.render(false)));
    Both::with_options(program, &jit::Options { perf_map: false, keep_text: true, ..common::options() })
}

#[test]
fn locations_cover_the_code_and_name_parts_of_the_program() {
    let both = both();
    let (_, size) = both.pipeline.code_range(EntryKind::Ingress).expect("the entry is there");
    let locations = both.pipeline.locations(EntryKind::Ingress);
    assert_eq!(locations.first().map(|p| p.start), Some(0));
    assert_eq!(locations.last().map(|p| p.end as usize), Some(size));
    assert!(locations.iter().all(|p| p.start < p.end), "{locations:?}");
    assert!(locations.windows(2).all(|w| w[0].end == w[1].start), "{locations:?}");
    let mut bytes: BTreeMap<&str, usize> = BTreeMap::new();
    for (from, to, region) in both.pipeline.regions(EntryKind::Ingress) {
        *bytes.entry(region).or_default() += to - from;
    }
    for region in ["table:I.t", "action:I.forward", "state:P.start", "deparser:D", jit::LOOP] {
        assert!(bytes.contains_key(region), "no code of {region}: {bytes:?}");
    }
    assert!(bytes["table:I.t"] > bytes["action:I.forward"], "{bytes:?}");
}

#[test]
fn watched_code_stores_call_sites_and_maps_its_bytes() {
    let logging = PROGRAM.replace("mark_to_drop(s);", "mark_to_drop(s); log_msg(\"{}\", {h.first.value});");
    let input = Input::Text { name: "located.p4", text: &logging };
    let compiled = frontend::compile(input, &Options::default(), Until::Ir).expect("a text needs no file");
    let program = compiled.optimised.clone().unwrap_or_else(|| panic!("{}", compiled.render(false)));
    let both = Both::with_options(program.clone(), &jit::Options { watched: true, ..common::options() });
    let outcomes = both.check(&[vec![1, 2, 3, 4], vec![0, 9]]);
    assert!(outcomes.iter().all(|o| o.logs.len() == 1), "{outcomes:?}");
    let call_sites = both.runtime.call_sites.lock().expect("not poisoned").clone();
    assert_eq!(call_sites.len(), 2);
    for call_site in call_sites {
        // A program counter outside of the code, as in a called function.
        assert_eq!(both.pipeline.region_at(0, call_site), Some("action:I.reject"));
        assert_eq!(both.pipeline.region_at(0, call_site + (1 << 40)), None, "other code's");
    }
    assert_eq!(both.runtime.place.load(std::sync::atomic::Ordering::Relaxed), 0, "it has ended");
    let (start, size) = both.pipeline.code_range(EntryKind::Ingress).expect("the entry is there");
    for (from, to, region) in both.pipeline.regions(EntryKind::Ingress) {
        assert_eq!(both.pipeline.region_at(start + from, 7), Some(region));
        assert_eq!(both.pipeline.region_at(start + to - 1, 7), Some(region));
    }
    assert_eq!(both.pipeline.region_at(start + size, 0), None);

    let unwatched = Both::with_options(program, &common::options());
    unwatched.check(&[vec![1, 2, 3, 4]]);
    assert_eq!(*unwatched.runtime.call_sites.lock().expect("not poisoned"), [0], "nobody watches");
}

#[test]
fn listings_have_comments_with_the_program() {
    let both = both();
    let bindings = Bindings { tables: both.runtime.bindings().tables, externs: Vec::new() };
    let calls = common::runtime::calls();
    let listings = jit::listing(&both.program, &bindings, &calls, &common::options()).expect("it can be compiled");
    let line = |span: base::Span| Some(PROGRAM.get(span.start as usize..span.end as usize)?.to_string());
    for listing in &listings {
        for text in [listing.clif(&line), listing.asm(&line)] {
            if listing.kind == EntryKind::Ingress && cfg!(target_arch = "x86_64") {
                assert!(text.contains("; table:I.t  t.apply()"), "{text}");
                assert!(text.contains("; action:I.forward"), "{text}");
                assert!(text.contains("; state:P.start  p.extract(h.first)"), "{text}");
            }
            let code = text.lines().filter(|l| !l.starts_with(';')).count();
            assert!(code > 10, "{text}");
        }
    }
}

#[test]
fn the_map_for_perf_names_disjoint_parts_of_the_code() {
    let program = (*both().program).clone();
    let both = Both::with_options(program, &jit::Options { perf_map: true, ..common::options() });
    let (start, size) = both.pipeline.code_range(EntryKind::Ingress).expect("the entry is there");
    let path = format!("/tmp/perf-{}.map", std::process::id());
    let map = std::fs::read_to_string(&path).expect("the map was written");
    let hex = |text: &str| usize::from_str_radix(text, 16).expect("a hexadecimal number");
    let mut ranges: Vec<(usize, usize, &str)> = Vec::new();
    for line in map.lines() {
        let (at, rest) = line.split_once(' ').expect("start, size, name");
        let (bytes, name) = rest.split_once(' ').expect("start, size, name");
        let (at, bytes) = (hex(at), hex(bytes));
        if (start..start + size).contains(&at) {
            ranges.push((at, at + bytes, name));
        }
    }
    ranges.sort();
    assert_eq!(ranges.first().map(|r| r.0), Some(start));
    assert_eq!(ranges.last().map(|r| r.1), Some(start + size));
    assert!(ranges.windows(2).all(|w| w[0].1 == w[1].0), "{ranges:?}");
    for part in ["/ingress/table:I.t", "/ingress/action:I.forward"] {
        assert!(ranges.iter().any(|r| r.2.starts_with("sluice/") && r.2.ends_with(part)), "{part}: {ranges:?}");
    }
    // The map is for profilers of this process; there is none.
    let _ = std::fs::remove_file(path);
}
