//! Staged code: batches of packets on different paths, against the interpreter, which runs one packet after the other;
//! and lookups that must not be split. (All other tests of this crate run on staged code with `JIT_STAGED=1`.)

mod common;

use abi::PipelineState;
use base::Bits;
use base::ids::ExternId;
use common::random::Random;
use common::{Both, Outcome, options};
use frontend::{Input, Until};
use ir::{EntryKind, ExternKind, HashAlgorithm, Op, Program};
use jit::{Options, Strategy};

fn staged(chunk: u32) -> Options {
    Options { strategy: Strategy::Staged, chunk, ..options() }
}

/// Without copies for hot paths, which have phases of their own.
fn without_copies(options: Options) -> Options {
    Options { hot_paths: 0, ..options }
}

/// Runs batches on compiled code and their packets one by one on the interpreter; all outcomes must be equal.
fn check_batches(both: &Both, packets: &[Vec<u8>]) -> Vec<Outcome> {
    let mut all = Vec::new();
    for batch in packets.chunks(abi::BATCH_MAX) {
        let got = both.run_batch(EntryKind::Ingress, batch, &|_| {});
        let want: Vec<Outcome> = batch.iter().map(|p| both.run_one_interpreted(EntryKind::Ingress, p)).collect();
        for ((got, want), packet) in got.iter().zip(&want).zip(batch) {
            let text = || format!("on {packet:02x?}\n{}", ir::print(&both.program));
            assert_eq!((&got.fate, &got.packet, got.consumed), (&want.fate, &want.packet, want.consumed), "{}", text());
            assert_eq!(got.slots, want.slots, "{}", text());
        }
        // The messages of a batch are distinguished only by their order.
        let digests: Vec<_> = want.iter().flat_map(|o| o.digests.clone()).collect();
        let logs: Vec<_> = want.iter().flat_map(|o| o.logs.clone()).collect();
        assert_eq!(got[0].digests, digests, "{}", ir::print(&both.program));
        assert_eq!(got[0].logs, logs);
        all.extend(got);
    }
    let state = both.interp.state();
    for (e, ext) in both.program.externs.iter().enumerate() {
        let id = ExternId::from_index(e);
        match ext.kind {
            ExternKind::Counter { direct: None, .. } => {
                for (i, cell) in both.runtime.counter(e).iter().enumerate() {
                    let want = state.counter(id, i as u64).expect("a cell");
                    assert_eq!(*cell, [want.packets, want.bytes], "cell {i} of `{}`", ext.name);
                }
            }
            ExternKind::Register { width, .. } => {
                let words = width.div_ceil(64) as usize;
                for (i, cell) in both.runtime.register(e).chunks(words).enumerate() {
                    let got = common::runtime::bits_of_words(width, cell);
                    assert_eq!(got, state.register(id, i as u64).expect("a cell"), "cell {i} of `{}`", ext.name);
                }
            }
            _ => {}
        }
    }
    all
}

#[test]
fn generated_programs() {
    let seeds = std::env::var("JIT_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(300);
    let first = std::env::var("JIT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let (mut cut, mut phases_max, mut kinds) = (0, 0, [0; 3]);
    for seed in first..first + seeds {
        let mut random = Random::new(seed);
        let len = 200 + random.below(400) as usize;
        let program = ir::generate::generate(&random.bytes(len));
        // Random numbers differ between the two engines, and the tests' runtime has none.
        let ops = || program.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts).map(|i| &i.op);
        let by_chance = |op: &Op| matches!(op, Op::Random { .. } | Op::Hash { algorithm: HashAlgorithm::Random, .. });
        if ops().any(by_chance) {
            continue;
        }
        let mut options = staged([1, 3, 8, 32, 64][random.below(5) as usize]);
        options.hot_paths = random.below(3) as usize;
        let both = Both::with_options(program, &options);
        let packets: Vec<Vec<u8>> = (0..70)
            .map(|_| {
                let len = 1 + random.below(90) as usize;
                let few = random.chance(60);
                random.bytes(len).into_iter().map(|b| if few { b & 1 } else { b }).collect()
            })
            .collect();
        let outcomes = check_batches(&both, &packets);
        let phases = both.pipeline.phases(EntryKind::Ingress).expect("an ingress");
        cut += usize::from(phases > 1);
        phases_max = phases.max(phases_max);
        if phases > 1 {
            for outcome in outcomes {
                kinds[match outcome.fate {
                    interp::Fate::Send(_) => 0,
                    interp::Fate::Replicate(_) => 1,
                    _ => 2,
                }] += 1;
            }
        }
    }
    println!("{cut} of {seeds} programs are cut, at most {phases_max} phases, fates {kinds:?}");
    if seeds < 200 {
        return;
    }
    assert!(cut as u64 > seeds / 10, "only {cut} of {seeds} programs were cut");
    assert!(phases_max > 2 && kinds.iter().all(|&k| k > 0), "{phases_max} phases, fates {kinds:?}");
}

const PROGRAM: &str = r#"
#include <core.p4>
#include <v1model.p4>
header h_t { bit<16> a; bit<16> b; bit<32> c; bit<8> d; }
struct headers { h_t h; h_t inner; }
struct meta { bit<16> x; bit<16> y; }
parser P(packet_in p, out headers hdr, inout meta m, inout standard_metadata_t s) {
    state start { p.extract(hdr.h); transition select(hdr.h.d) { 1: more; default: accept; } }
    state more { p.extract(hdr.inner); transition accept; }
}
control V(inout headers hdr, inout meta m) { apply {} }
control I(inout headers hdr, inout meta m, inout standard_metadata_t s) {
    register<bit<32>>(4) counts;
    counter(4, CounterType.packets_and_bytes) seen;
    action set(bit<16> v) { m.x = v; }
    action send(bit<9> port) { s.egress_spec = port; }
    action drop() { mark_to_drop(s); exit; }
    table t1 {
        key = { hdr.h.a: exact; hdr.h.c: exact; } actions = { set; drop; } default_action = set(3);
        const entries = { (1, 0): set(7); (0, 1): drop(); (0, 0): set(1); }
    }
    table t2 {
        key = { hdr.h.b: exact; hdr.h.c: exact; } actions = { send; drop; } default_action = send(5);
        const entries = { (1, 0): send(2); (0, 1): drop(); }
    }
    table t3 {
        key = { m.x: ternary; hdr.inner.a: ternary; } actions = { send; NoAction; } default_action = NoAction();
        const entries = { (7, _): send(6); (1, 1): send(4); }
    }
    apply {
        BODY
    }
}
control E(inout headers hdr, inout meta m, inout standard_metadata_t s) { apply {} }
control C(inout headers hdr, inout meta m) { apply {} }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr.h); p.emit(hdr.inner); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"#;

/// [`PROGRAM`] with the body of an ingress control.
fn program(body: &str) -> Program {
    let text = PROGRAM.replace("BODY", body);
    let compiled =
        frontend::compile(Input::Text { name: "test.p4", text: &text }, &frontend::Options::default(), Until::Ir)
            .expect("text needs no files");
    assert!(!compiled.failed(), "{}", compiled.render(false));
    compiled.optimised.expect("a whole program")
}

/// Runs random packets through [`program`], staged; returns the number of phases.
fn phases(body: &str) -> usize {
    let [phases, copied] = [without_copies(staged(32)), staged(32)].map(|options| phases_with(body, &options));
    // Copies are made only if they can have all the cuts.
    assert!(copied >= phases, "{phases} phases without copies, {copied} with");
    phases
}

fn phases_with(body: &str, options: &Options) -> usize {
    let both = Both::with_options(program(body), options);
    let mut random = Random::new(5);
    let packets: Vec<Vec<u8>> = (0..320)
        .map(|_| {
            let len = [9, 9, 12, 18, 30, 4][random.below(6) as usize];
            random.bytes(len).into_iter().map(|b| b & 1).collect()
        })
        .collect();
    let outcomes = check_batches(&both, &packets);
    assert!(outcomes.iter().any(|o| o.fate != outcomes[0].fate), "all packets go the same way");
    let phases = both.pipeline.phases(EntryKind::Ingress).expect("an ingress");
    let plain = Both::with_options(program(body), &Options { strategy: Strategy::RunToCompletion, ..options.clone() });
    assert_eq!(plain.pipeline.phases(EntryKind::Ingress), Some(1));
    phases
}

#[test]
fn lookups_that_do_not_depend_on_one_another_share_a_phase() {
    assert_eq!(phases("t1.apply(); t2.apply();"), 2);
    // t1's entries say what t3 looks up.
    assert_eq!(phases("t1.apply(); t2.apply(); t3.apply();"), 3);
    // t2 is begun ahead for all packets, and is also reached without t1.
    assert_eq!(phases("if (hdr.inner.isValid()) { t1.apply(); hdr.inner.a = m.x; } t2.apply();"), 3);
    assert_eq!(phases("hdr.h.b = hdr.h.b + 1; t2.apply(); hdr.h.c = hdr.h.c + 1; t1.apply();"), 3);
    // t3 is begun ahead where its header is valid, and looked up at its apply where it is not.
    assert_eq!(phases("t1.apply(); if (hdr.h.c == 1) { m.x = 1; t3.apply(); }"), 2);
}

#[test]
fn a_plan_assigns_tables_and_actions_to_phases() {
    let of = |body: &str, strategy| {
        let options = Options { strategy, keep_text: true, ..without_copies(options()) };
        let both = Both::with_options(program(body), &options);
        let name = |table: ir::TableId| both.program.tables[table.index()].name.trim_start_matches("I.").to_string();
        let stages = both.pipeline.stages(EntryKind::Ingress).expect("an ingress");
        let phase = |phase: &jit::Phase| {
            let begun: Vec<String> = phase.begun_with.iter().copied().map(name).collect();
            (phase.waits_for.map_or(String::new(), name), begun.join(" "))
        };
        let phases: Vec<_> = stages.phases.iter().map(phase).collect();
        let not_staged: Vec<_> = stages.not_staged.iter().map(|(table, why)| (name(*table), *why)).collect();
        (phases, not_staged, stages.clone())
    };
    let at = |table: &str, begun: &str| (table.to_string(), begun.to_string());

    let (phases, not_staged, stages) = of("t1.apply(); t2.apply(); t3.apply();", Strategy::Staged);
    assert_eq!((phases, not_staged), (vec![at("", ""), at("t1", "t2"), at("t3", "")], vec![]));
    let runs = |phase: usize, part: &str| stages.phases[phase].runs.iter().any(|p| p == part);
    assert!(runs(0, "state:P.start") && !runs(0, "table:I.t1") && !runs(1, "state:P.start"));
    // t2 is begun with t1 and finished where the packet reaches it; the first actions run before t3.
    assert!(runs(1, "action:I.set") && runs(1, "table:I.t2") && !runs(1, "table:I.t3") && !runs(2, "action:I.set"));
    // Starting packets have no row; rows of waiting ones hold the descriptor's address and more.
    assert!(stages.phases[0].row_bytes == 0 && stages.phases[1..].iter().all(|p| p.row_bytes > 8), "{stages:?}");

    let (phases, not_staged, _) = of("t1.apply(); t3.apply();", Strategy::Auto);
    assert_eq!(phases, [at("", "")]);
    let small =
        |why: &jit::NotStaged| matches!(why, jit::NotStaged::NotSelected(bytes) if *bytes <= jit::CUT_BYTES_MIN);
    assert!(not_staged.len() == 2 && not_staged.iter().all(|(_, why)| small(why)), "{not_staged:?}");

    let update = "bit<32> n; counts.read(n, 1); counts.write(1, n + hdr.h.c);";
    let (phases, not_staged, _) = of(&format!("{{ {update} }} t1.apply(); {{ {update} }}"), Strategy::Staged);
    assert_eq!((phases, not_staged), (vec![at("", "")], vec![("t1".to_string(), jit::NotStaged::NotPossible)]));
}

#[test]
fn ordered_effects_stay_in_one_phase() {
    let update = "bit<32> n; counts.read(n, (bit<32>)m.x & 3); counts.write((bit<32>)m.x & 3, (n << 1) + hdr.h.c + 1);";
    // All of it after one lookup, which every packet reaches from the start, in order.
    assert_eq!(phases(&format!("t1.apply(); {update}")), 2);
    // All of it before the first lookup.
    assert_eq!(phases(&format!("{{ {update} }} t1.apply();")), 2);
    // On both sides of the lookup: it is not split.
    assert_eq!(phases(&format!("{{ {update} }} t1.apply(); {{ {update} }}")), 1);
    // Packets that bypass the lookup would overtake those that wait.
    assert_eq!(phases(&format!("if (hdr.h.d == 0) {{ t1.apply(); }} {update}")), 1);
    // One of the lookups can be split, the other cannot.
    assert_eq!(phases(&format!("t1.apply(); {{ {update} }} t3.apply(); {{ {update} }}")), 2);
    // Sums do not depend on order.
    assert_eq!(phases("seen.count(1); t1.apply(); seen.count((bit<32>)m.x & 3); t3.apply(); seen.count(2);"), 3);
    let log = "log_msg(\"{}\", {m.x});";
    assert_eq!(phases(&format!("t1.apply(); {log} t3.apply();")), 3);
    // The receiver of messages restores their order.
    assert_eq!(phases(&format!("{log} t1.apply(); {log}")), 2);
}

#[test]
fn hot_paths_wait_by_themselves() {
    // Without the inner header, with it, and packets that are too short.
    assert_eq!(phases_with("t1.apply(); t2.apply();", &staged(32)), 4);
    assert_eq!(
        phases_with("t1.apply(); hdr.h.d = hdr.h.d + 1; t2.apply(); hdr.inner.setInvalid(); t3.apply();", &staged(8)),
        7
    );
    // The updates must be in the packets' order, and copies would have their own phases: no copies are made.
    let update = "counts.write((bit<32>)m.x & 3, hdr.h.c);";
    assert_eq!(phases_with(&format!("t1.apply(); {update}"), &staged(32)), 2);
}

#[test]
fn lookups_in_a_loop_are_not_split() {
    assert_eq!(phases("for (bit<8> i in 8w0 .. 8w2) { m.x = m.x + 1; t3.apply(); } t1.apply();"), 2);
}

#[test]
fn automatic_cuts_depend_on_the_size_of_tables() {
    let phases = |bytes: [u64; 2]| {
        let options = without_copies(Options { strategy: Strategy::Auto, ..options() });
        let applied = program("t1.apply(); t3.apply();");
        let change = |runtime: &mut common::runtime::Runtime| {
            let mut bindings = runtime.bindings().tables;
            for (binding, table) in bindings.iter_mut().zip(&applied.tables) {
                binding.footprint_bytes = bytes[usize::from(table.name.ends_with("t3"))];
            }
            runtime.replaced = bindings.into_iter().map(Some).collect();
        };
        let both = Both::with_runtime(applied.clone(), &options, change);
        both.pipeline.phases(EntryKind::Ingress).expect("an ingress")
    };
    assert_eq!(phases([0, 0]), 1);
    assert_eq!(phases([jit::CACHED_BYTES_MAX / 2, jit::CACHED_BYTES_MAX / 2]), 1);
    assert_eq!(phases([jit::CACHED_BYTES_MAX, jit::CUT_BYTES_MIN]), 2);
    assert_eq!(phases([jit::CACHED_BYTES_MAX, jit::CACHED_BYTES_MAX]), 3);
}

#[test]
fn cells_of_registers_are_prefetched() {
    let asks = |body: &str| {
        let body = format!("{body} s.egress_spec = (bit<9>)(n ^ hdr.h.c) & 3;");
        phases_with(&body, &staged(32));
        let both = Both::with_options(program(&body), &staged(32));
        both.pipeline.has_prefetch_pass(EntryKind::Ingress)
    };
    let update = "bit<32> n; counts.read(n, (bit<32>)hdr.h.a & 3); counts.write((bit<32>)hdr.h.a & 3, n + hdr.h.c);";
    // Tables on the path, counters, writes of the same register, messages: nothing is done twice. Packets that end
    // there prefetch nothing.
    let way = "seen.count(1); t1.apply(); counts.write(2, hdr.h.c + 1); log_msg(\"{}\", {hdr.h.c});
        if (hdr.h.d == 1) { mark_to_drop(s); exit; }";
    // On both of two paths, so that packets cannot wait for t1.
    let either = format!("if (hdr.h.b == 0) {{ {way} }} {update}");
    assert!(asks(&either));
    // The second cell is known with the first one; an index beyond the last cell has none.
    let twice = "if (hdr.h.b == 0) { t1.apply(); } bit<32> n; bit<32> k; counts.read(n, hdr.h.c << 3); counts.read(k, (bit<32>)hdr.h.a); counts.write(1, n + k + 1);";
    assert!(asks(twice));
    // A cell with a constant index need not be prefetched.
    assert!(!asks("bit<32> n; counts.read(n, 2); counts.write(2, n + 1);"));
    // Reads after a table for which packets wait are not prefetched.
    assert!(!asks(&format!("t1.apply(); {update}")));
}

#[test]
fn large_registers_are_prefetched() {
    let asks = |bytes: u64| {
        let read = program("bit<32> n; counts.read(n, (bit<32>)hdr.h.a & 3); hdr.h.c = n;");
        let change = |runtime: &mut common::runtime::Runtime| runtime.register_bytes = bytes;
        let both = Both::with_runtime(read, &Options { strategy: Strategy::Auto, ..options() }, change);
        both.pipeline.has_prefetch_pass(EntryKind::Ingress)
    };
    assert!(!asks(0) && !asks(jit::PREFETCHED_BYTES_MIN));
    assert!(asks(jit::PREFETCHED_BYTES_MIN + 1));
}

#[test]
fn wide_values_wait_too() {
    let value = Bits::ones(130);
    assert_eq!(common::runtime::words_of_bits(&value).len(), 3);
    let text = PROGRAM
        .replace("bit<16> x;", "bit<16> x; bit<200> wide; bit<100> pair;")
        .replace("BODY", "m.wide = (bit<200>)hdr.h.c << 150; m.pair = (bit<100>)hdr.h.a << 70; t1.apply(); t3.apply(); hdr.h.b = m.wide[165:150] ^ m.pair[85:70];");
    let compiled =
        frontend::compile(Input::Text { name: "test.p4", text: &text }, &frontend::Options::default(), Until::Ir)
            .expect("text needs no files");
    let program = compiled.optimised.expect("a whole program");
    for (options, phases) in [(without_copies(staged(8)), 3), (staged(8), 7)] {
        let both = Both::with_options(program.clone(), &options);
        assert_eq!(both.pipeline.phases(EntryKind::Ingress), Some(phases));
        let mut random = Random::new(6);
        let packets: Vec<Vec<u8>> = (0..64).map(|_| random.bytes(20)).collect();
        check_batches(&both, &packets);
    }
}
