//! Packages of unknown architectures: the values that blocks get, what they compute, and the values that they return.

mod common;

use base::Bits;
use common::lower;
use interp::{Host, Interp};
use ir::{EntryKind, Fate};
use std::sync::Arc;

/// The environment of the blocks: provides values in order, and records the values it is given.
#[derive(Default)]
struct Outside {
    gives: Vec<u128>,
    seen: Vec<String>,
}

impl Host for Outside {
    fn now_us(&mut self) -> u64 {
        0
    }

    fn random(&mut self, low: u64, _: u64) -> u64 {
        low
    }

    fn unresolved(&mut self, callee: &str, args: &[Bits], widths: &[u32]) -> Vec<Bits> {
        let args: Vec<String> = args.iter().map(|a| a.to_biguint().to_string()).collect();
        self.seen.push(format!("{callee}({})", args.join(" ")));
        widths.iter().map(|w| Bits::new(*w, if self.gives.is_empty() { 0 } else { self.gives.remove(0) })).collect()
    }
}

/// Runs the blocks on a frame; the environment provides the values `gives` in order.
fn run(text: &str, frame: &[u8], gives: &[u128]) -> Vec<String> {
    let interp = Interp::new(Arc::new(lower(&format!("#include <core.p4>\n{text}"))));
    let mut record = vec![0; interp.layout().words()];
    let mut host = Outside { gives: gives.to_vec(), seen: Vec::new() };
    let outcome = interp.run(EntryKind::Ingress, frame, 0, &mut record, &mut host, None);
    assert!(matches!(outcome.fate, interp::Fate::Drop(_)), "{:?}", outcome.fate);
    host.seen
}

#[test]
fn parameters_are_given_and_taken_by_direction() {
    let text = "control c(in bit<8> a, out bit<8> b, inout bit<8> d) { apply { d = d + a; b = d; } }
                control C(in bit<8> a, out bit<8> b, inout bit<8> d);
                package top(C c);
                top(c()) main;";
    let expected = ["top.c arguments()", "top.c results(7 7)"];
    assert_eq!(run(text, &[], &[3, 4]), expected);
}

#[test]
fn a_parser_reads_the_frame_and_tells_its_error() {
    let text = "header H { bit<8> x; }
                parser p(packet_in b, out H h, out bit<8> n) {
                    state start { n = 1; b.extract(h); transition select(h.x) { 1: accept; } }
                }
                parser P(packet_in b, out H h, out bit<8> n);
                package top(P p);
                top(p()) main;";
    let no_match = 2;
    let too_short = 1;
    assert_eq!(run(text, &[1], &[])[1], "top.p results(0 1 1 1)");
    assert_eq!(run(text, &[9], &[])[1], format!("top.p results({no_match} 1 9 1)"));
    assert_eq!(run(text, &[], &[])[1], format!("top.p results({too_short} 0 0 1)"));
}

#[test]
fn a_deparser_writes_the_frame_and_blocks_share_nothing() {
    let text = "header H { bit<8> x; }
                struct S { H h; }
                control c(inout S s) { apply { s.h.setValid(); s.h.x = 5; } }
                control d(in S s, packet_out b) { apply { b.emit(s.h); } }
                control C(inout S s); control D(in S s, packet_out b);
                package top(C c, D d);
                top(c(), d()) main;";
    // The environment passes on the header; the deparser's own copy has other values.
    let seen = run(text, &[0xaa], &[0, 0, 1, 9]);
    assert_eq!(seen, ["top.c arguments()", "top.c results(1 5)", "top.d arguments()", "top.d results()"]);
}

#[test]
fn packages_in_packages_give_their_blocks_in_order() {
    let text = "control a() { apply { } }
                control b() { apply { } }
                control C();
                package Pipe(C x, C y);
                package Top(Pipe p, C z);
                Pipe(a(), b()) pipe;
                control last() { apply { } }
                Top(pipe, last()) main;";
    let seen = run(text, &[], &[]);
    let results: Vec<&String> = seen.iter().filter(|s| s.contains("results")).collect();
    assert_eq!(results, ["Top.a results()", "Top.b results()", "Top.last results()"]);
}

#[test]
fn values_from_outside_keep_the_rules_of_headers() {
    let text = "header H { bit<8> x; }
                header_union U { H a; H b; }
                control c(inout H h, inout U u, inout H[2] s) { apply { } }
                control C(inout H h, inout U u, inout H[2] s);
                package top(C c);
                top(c()) main;";
    // An invalid header with a value, a union with two members, a stack with `nextIndex` 7.
    let gives = [0, 0x11, 1, 0x22, 1, 0x33, 1, 0x44, 0, 0x55, 7];
    assert_eq!(run(text, &[], &gives)[1], "top.c results(0 0 1 34 0 0 1 68 0 0 2)");
}

#[test]
fn externs_see_their_arguments_and_give_results() {
    let text = "extern bit<8> f(in bit<8> a, inout bit<8> b, out bit<8> c);
                extern Box<T> { Box(bit<8> n); T swap(in T x); }
                control c(out bit<8> r, out bit<8> q) {
                    Box<bit<8>>(4) box;
                    apply { bit<8> v = 2; bit<8> w; r = f(1, v, w); q = v ++ w == 16w0x0605 ? box.swap(w) : 0; }
                }
                control C(out bit<8> r, out bit<8> q);
                package top(C c);
                top(c()) main;";
    let seen = run(text, &[], &[6, 5, 4, 3]);
    assert_eq!(seen, ["top.c arguments()", "f(1 2)", "Box(c.box).swap(5)", "top.c results(4 3)"]);
}

#[test]
fn objects_of_the_outside_are_called_there() {
    let text = "extern Log { void say(in bit<8> x); }
                control c(Log log, in bit<8> x) { apply { log.say(x); } }
                control C(Log log, in bit<8> x);
                package top(C c);
                top(c()) main;";
    assert_eq!(run(text, &[], &[7])[1], "Log(c.log).say(7)");
}

#[test]
fn tables_and_exit_work_as_everywhere() {
    let text = "control c(inout bit<8> x) {
                    action set(bit<8> v) { x = v; }
                    table t { key = { x : exact; } actions = { set; NoAction; } default_action = NoAction;
                              const entries = { 1 : set(10); 2 : set(20); } }
                    apply { if (t.apply().hit) { exit; } x = 0xff; }
                }
                control C(inout bit<8> x);
                package top(C c);
                top(c()) main;";
    assert_eq!(run(text, &[], &[2])[1], "top.c results(20)");
    assert_eq!(run(text, &[], &[3])[1], "top.c results(255)");
}

#[test]
fn the_optimiser_may_not_guess_what_the_outside_does() {
    let program = lower(
        "#include <core.p4>
         extern bit<8> f();
         control c(out bit<8> r) { apply { r = f() + f(); } }
         control C(out bit<8> r); package top(C c); top(c()) main;",
    );
    let calls: Vec<&str> = program.unresolved().collect();
    assert_eq!(calls, ["top.c arguments", "f", "f", "top.c results"]);
    let ends =
        program.stages.iter().flat_map(|s| &s.blocks).any(|b| matches!(b.term, ir::Terminator::Finish(Fate::Drop(_))));
    assert!(ends);
}
