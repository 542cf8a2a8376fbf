//! Tables that packets write: sequences of packets, control-plane changes and passing time, on all engines.
//!
//! Packets arrive in batches, so staged code processes many at a time; each must still find what the packets before
//! it left.

use abi::PipelineState;
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::{ExternId, TableId};
use datapath::{EngineKind, Local, Without};
use frontend::{Input, Options, Until};
use std::fmt::Debug;
use std::sync::Arc;

const PROGRAM: &str = r#"
#include <core.p4>
#include <v1model.p4>
#include <add_on_miss.p4>
header h_t { bit<8> op; bit<16> flow; bit<8> expire; bit<16> value; bit<8> status; bit<16> seen; bit<16> again; bit<16> wide; }
struct headers_t { h_t h; }
struct meta_t { bit<48> key; bit<16> found; }
struct hit_t { bit<16> value; bit<8> generation; }
struct one_t { bit<16> value; }
parser P(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.h); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    direct_counter(CounterType.packets) seen_count;
    action hit(bit<16> value, bit<8> generation) {
        meta.found = value ^ (bit<16>)generation;
        if (hdr.h.op == 1) {
            restart_expire_timer();
        } else if (hdr.h.op == 2) {
            set_entry_expire_time(hdr.h.expire);
        } else if (hdr.h.op == 3) {
            hdr.h.status[1:1] = replace_entry("hit", (hit_t){ hdr.h.value, generation + 1 }, hdr.h.expire);
        } else if (hdr.h.op == 5) {
            set_entry_expire_time(2);
        }
    }
    action miss() {
        // The key is the one that was looked up.
        meta.key = 7;
        meta.found = 0xffff;
        if (hdr.h.op != 4) {
            hdr.h.status[0:0] = add_entry("hit", (hit_t){ hdr.h.value, 0 }, hdr.h.expire);
        }
    }
    @expire_time_ms(50, 400, 3000, 0) @notify_expired
    table near {
        key = { meta.key : exact; }
        actions = { hit; @defaultonly miss; }
        const default_action = miss();
        add_on_miss = true;
        pna_idle_timeout = PNA_IdleTimeout_t.AUTO_DELETE;
        counters = seen_count;
        size = 40;
    }
    action wide_hit(bit<16> value) { hdr.h.wide = value; }
    action wide_miss() {
        hdr.h.status[2:2] = add_entry_if(hdr.h.op != 4, "wide_hit", { hdr.h.value }, hdr.h.expire & 1);
    }
    @expire_time_ms(200, 700)
    table wide {
        key = { hdr.h.flow : exact; hdr.h.flow ++ hdr.h.flow ++ 96w1 : exact @name("padded"); hdr.h.op : exact; }
        actions = { wide_hit; wide_miss; }
        default_action = wide_miss();
        add_on_miss = true;
        pna_idle_timeout = PNA_IdleTimeout_t.NOTIFY_CONTROL;
        size = 60;
    }
    action kept(bit<16> value) { hdr.h.again = hdr.h.again ^ value; }
    action keep() { hdr.h.status[3:3] = add_entry("kept", (one_t){ hdr.h.flow }, 0); }
    table plain {
        key = { hdr.h.flow[3:0] : exact @name("low"); }
        actions = { kept; @defaultonly keep; }
        default_action = keep();
        add_on_miss = true;
        size = 11;
    }
    apply {
        sm.egress_spec = 1;
        meta.key = 16w7 ++ hdr.h.flow ++ hdr.h.flow;
        near.apply();
        hdr.h.seen = meta.found;
        meta.key = 16w7 ++ hdr.h.flow ++ hdr.h.flow;
        near.apply();
        hdr.h.again = meta.found;
        wide.apply();
        plain.apply();
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"#;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

struct Engine {
    name: &'static str,
    local: Local,
}

impl Engine {
    fn state(&self) -> &Arc<dyn PipelineState> {
        self.local.pipeline().state()
    }
}

fn engines() -> Vec<Engine> {
    let input = Input::Text { name: "add_on_miss", text: PROGRAM };
    let compiled = frontend::compile(input, &Options::default(), Until::Ir).expect("a thread");
    assert!(!compiled.failed(), "{}", compiled.render(false));
    let raw = Arc::new(compiled.raw.expect("IR"));
    let optimised = Arc::new(compiled.optimised.expect("IR"));
    let text = ir::print(&raw);
    assert_eq!(ir::parse(&text, base::FileId(0)).map(|p| ir::print(&p)), Ok(text), "the text form");
    let made = [
        ("raw", &raw, EngineKind::Interpreter, Without::default()),
        ("interp", &optimised, EngineKind::Interpreter, Without::default()),
        ("jit", &optimised, EngineKind::Machine, Without::default()),
        ("jit without all", &raw, EngineKind::Machine, Without::all()),
        ("staged", &optimised, EngineKind::Staged, Without::default()),
        ("mir", &optimised, EngineKind::Mir, Without::default()),
        ("mir-interp", &raw, EngineKind::MirInterpreter, Without::default()),
    ];
    let engine = |(name, program, kind, without): (&'static str, &Arc<ir::Program>, EngineKind, Without)| {
        let pipeline =
            datapath::load_with(Arc::clone(program), kind, 1, &without.code()).expect("a program that loads");
        Engine { name, local: Local::new(Arc::new(pipeline)) }
    };
    made.into_iter().map(engine).collect()
}

/// Applies `ask` to all engines and asserts that the results agree.
fn all<R: PartialEq + Debug>(engines: &mut [Engine], step: usize, mut ask: impl FnMut(&mut Engine) -> R) -> R {
    let mut first: Option<(&'static str, R)> = None;
    for engine in engines {
        let answer = ask(engine);
        match &first {
            None => first = Some((engine.name, answer)),
            Some((other, expected)) => assert_eq!(&answer, expected, "step {step}: {} and {other}", engine.name),
        }
    }
    first.expect("engines").1
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let mut engines = engines();
    let program = Arc::clone(engines[0].local.pipeline().program());
    let table =
        |name: &str| TableId::from_index(program.tables.iter().position(|t| t.name.ends_with(name)).expect("a table"));
    let tables = ["near", "wide", "plain"].map(table);
    let counter = program.externs.iter().position(|e| e.name.ends_with("seen_count")).map(ExternId::from_index);
    let counter = counter.expect("a counter");
    let near_key = |flow: u64| vec![KeyMatch::Exact(Bits::new(48, u128::from(7 << 32 | flow << 16 | flow)))];
    let mut expired = 0;
    for step in 0..250 {
        match random.below(10) {
            0..5 => {
                let most = if random.below(2) == 0 { 4 } else { 64 };
                let count = 1 + random.below(most);
                let frames: Vec<Vec<u8>> = (0..count)
                    .map(|_| {
                        let (flow, value) = (random.below(50) as u8, random.below(1 << 16) as u16);
                        let [high, low] = value.to_be_bytes();
                        let (op, expire) = (random.below(6) as u8, random.below(5) as u8);
                        vec![op, 0, flow, expire, high, low, 0, 0, 0, 0, 0, 0, 0, 0xaa, 0xbb]
                    })
                    .collect();
                let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
                all(&mut engines, step, |e| {
                    let sent = e.local.receive_batch(1, &frames).expect("short frames");
                    sent.into_iter().map(|s| (s.port, s.bytes)).collect::<Vec<_>>()
                });
            }
            5 => {
                let key = near_key(random.below(50));
                let _ = all(&mut engines, step, |e| e.state().delete(tables[0], &key, 0));
            }
            6 => {
                let args = vec![Bits::new(16, random.below(1 << 16).into()), Bits::new(8, 9)];
                let idle_timeout_ns = random.below(4) * 300_000_000;
                let action = EntryAction::Call(ActionCall { action: 0, args });
                let entry = TableEntry { key: near_key(random.below(50)), priority: 0, action, idle_timeout_ns };
                let modifies = random.below(2) == 0;
                let _ = all(&mut engines, step, |e| match modifies {
                    true => e.state().modify(tables[0], &entry),
                    false => e.state().insert(tables[0], &entry),
                });
            }
            _ => {
                let us = 1 << random.below(22);
                let told = all(&mut engines, step, |e| {
                    e.local.advance_us(us);
                    let mut told: Vec<String> =
                        e.state().take_expired().into_iter().map(|told| format!("{told:?}")).collect();
                    told.sort_unstable();
                    told
                });
                expired += told.len();
            }
        }
        // The fast state's clock lags slightly; here entries that are due expire on all engines.
        let told = all(&mut engines, step, |e| {
            e.local.advance_us(0);
            e.state().take_expired().len()
        });
        expired += told;
        for t in tables {
            all(&mut engines, step, |e| {
                let mut entries: Vec<String> = e.state().entries(t).iter().map(|e| format!("{e:?}")).collect();
                entries.sort_unstable();
                (e.state().len(t), e.state().dynamic_counts(t), entries)
            });
        }
        for flow in 0..50 {
            let _ = all(&mut engines, step, |e| e.state().direct_counter(counter, &near_key(flow), 0));
        }
    }
    assert!(expired > 0, "entries end");
}

#[test]
fn engines_agree_on_what_packets_write() {
    let rounds = std::env::var("DYNAMIC_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    for seed in 1..=rounds {
        run(seed);
    }
}

/// The bug: of a burst of one flow, whose packets all replace the flow's entry, only the first few did.
#[test]
fn a_burst_of_one_flow_replaces_its_entry_with_each_packet() {
    let mut engines = engines();
    for step in 0..20u8 {
        let frames: Vec<Vec<u8>> =
            (0..64).map(|i| vec![3, 0, 5, 3, step, i, 0, 0, 0, 0, 0, 0, 0, 0xaa, 0xbb]).collect();
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let sent = all(&mut engines, step.into(), |e| {
            let sent = e.local.receive_batch(1, &frames).expect("short frames");
            sent.into_iter().map(|s| s.bytes).collect::<Vec<_>>()
        });
        let refused = sent.iter().filter(|frame| frame[6] & 2 != 0).count();
        assert_eq!(refused, 0, "step {step}");
    }
}
