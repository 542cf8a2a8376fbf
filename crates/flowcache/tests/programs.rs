//! Paths of programs whose own tables decide: the examples, generated ones, and small ones. Against the interpreter, counters included.
//! `SLUICE_ROUNDS` runs more.

mod common;

use abi::PipelineState;
use base::Bits;
use base::entry::{ActionCall, CounterValue, EntryAction, KeyMatch, MatchKind, TableEntry};
use common::{Outcome, PORT, compile, left_out, matches, rewritten, rounds};
use flowcache::path::Step;
use flowcache::trace::{Entries, Fate, Place, Traced, Tracer, Untraceable};
use interp::{Interp, SeededHost};
use ir::{CounterUnit, EntryKind, ExternId, ExternKind, Intrinsic, Program, ReplicationPoint, TableId};
use random::Random;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A program with entries.
struct Switch {
    program: Arc<Program>,
    interp: Interp,
    tracer: Tracer,
    entries: Entries,
}

fn bits(width: u32, random: &mut Random) -> Bits {
    match random.below(3) {
        0 => Bits::new(width.min(128), random.below(8).into()).resize_u(width),
        1 => Bits::from_bytes_be(width, &[0x0a, 0, 0, random.below(3) as u8]),
        _ => Bits::from_bytes_be(width, &(0..width.div_ceil(8)).map(|_| random.next_u64() as u8).collect::<Vec<_>>()),
    }
}

/// An entry whose key is near some value.
fn entry(program: &Program, table: TableId, seen: &[Vec<Bits>], random: &mut Random) -> Option<TableEntry> {
    let of = &program.tables[table.index()];
    let near = (!seen.is_empty() && !random.one_in(4)).then(|| random.pick(seen).clone());
    let keys = of.keys.iter().enumerate().map(|(i, key)| {
        let value = near.as_ref().map_or_else(|| bits(key.width, random), |near| near[i].clone());
        match key.kind {
            MatchKind::Exact => KeyMatch::Exact(value),
            MatchKind::Lpm => {
                let prefix_len = random.range(0, key.width);
                let rest = u64::from(key.width - prefix_len);
                KeyMatch::Lpm { value: value.lshr(rest).shl(rest), prefix_len }
            }
            MatchKind::Ternary => {
                let mask = if random.one_in(2) { Bits::ones(key.width) } else { bits(key.width, random) };
                KeyMatch::Ternary { value: value.and(&mask), mask }
            }
            MatchKind::Range => {
                let other = bits(key.width, random);
                let (low, high) = if value.ule(&other) { (value, other) } else { (other, value) };
                KeyMatch::Range { low, high }
            }
            MatchKind::Optional => KeyMatch::Optional((!random.one_in(3)).then_some(value)),
        }
    });
    let key = keys.collect();
    let usable: Vec<usize> = (0..of.actions.len()).filter(|i| !of.actions[*i].default_only).collect();
    let at = *(!usable.is_empty()).then(|| random.pick(&usable))?;
    let params = &program.actions[of.actions[at].action.index()].params;
    let args = params.iter().map(|(_, width)| bits(*width, random)).collect();
    let action = EntryAction::Call(ActionCall { action: at as u32, args });
    let priority = if of.keys.iter().any(|key| key.kind.needs_priority()) { random.range(1, 50) as i32 } else { 0 };
    Some(TableEntry { key, priority, action, idle_timeout_ns: 0 })
}

impl Switch {
    fn new(program: Program) -> Switch {
        let program = Arc::new(program);
        let interp = Interp::new(Arc::clone(&program));
        let entries = Entries::new(&program);
        Switch { tracer: Tracer::new(Arc::clone(&program)), interp, entries, program }
    }

    fn tables(&self) -> impl Iterator<Item = TableId> + use<> {
        (0..self.program.tables.len()).map(TableId::from_index)
    }

    /// Adds random entries; keys are often some that packets have had.
    fn fill(&mut self, seen: &BTreeMap<String, Vec<Vec<Bits>>>, random: &mut Random) {
        for table in self.tables() {
            let of = &self.program.tables[table.index()];
            if of.keys.is_empty() || of.const_entries || of.implementation.is_some() {
                continue;
            }
            let seen = seen.get(&of.name).map(Vec::as_slice).unwrap_or_default();
            for _ in 0..random.below(8) {
                if let Some(entry) = entry(&self.program, table, seen, random) {
                    // One that is there already stays.
                    let _ = self.interp.state().insert(table, &entry);
                }
            }
        }
        self.read();
    }

    /// Takes the entries over from the interpreter.
    fn read(&mut self) {
        let state = self.interp.state();
        for table in self.tables() {
            let entries = state.entries(table).into_iter().map(|read| read.entry).collect();
            self.entries.set(&self.program, table, entries, state.default_action(table));
        }
    }

    /// What the interpreter makes of a frame, as the engine takes it along; and keys that were looked up.
    fn run(&self, frame: &[u8], seen: Option<&mut BTreeMap<String, Vec<Vec<Bits>>>>) -> Outcome {
        let (interp, host, program) = (&self.interp, &mut SeededHost::new(1), &self.program);
        let mut record = vec![0; interp.layout().words()];
        let set = |record: &mut Vec<u64>, which, value: u64| {
            if let Some(slot) = program.intrinsic(which) {
                interp.layout().set_word(record, slot, value);
            }
        };
        set(&mut record, Intrinsic::PacketLength, frame.len() as u64);
        set(&mut record, Intrinsic::IngressPort, PORT.into());
        set(&mut record, Intrinsic::InstanceType, program.instance_types.normal);
        let mut trace = interp::Trace::default();
        let first = interp.run(EntryKind::Ingress, frame, 0, &mut record, host, Some(&mut trace));
        if let Some(seen) = seen {
            for step in trace.steps {
                let interp::Event::Apply { table, keys, .. } = step.event else { continue };
                seen.entry(table).or_default().push(keys.into_iter().map(|(_, value)| value).collect());
            }
        }
        match first.fate {
            interp::Fate::Drop(_) => return Outcome::Dropped,
            interp::Fate::Send(port) => return Outcome::Sent(port as u32, first.packet),
            interp::Fate::Replicate(ReplicationPoint::IngressEnd) => {}
            interp::Fate::Multicast(_)
            | interp::Fate::Replicate(_)
            | interp::Fate::Again { .. }
            | interp::Fate::Endless
            | interp::Fate::NoRoom => {
                return Outcome::Lost;
            }
        }
        let get = |which| program.intrinsic(which).map_or(0, |slot| interp.layout().get_word(&record, slot));
        if get(Intrinsic::CloneFlag) != 0 {
            return Outcome::Lost;
        }
        if get(Intrinsic::DropFlag) != 0 {
            return Outcome::Dropped;
        }
        if get(Intrinsic::ResubmitFlag) != 0 || get(Intrinsic::MulticastGroup) != 0 {
            return Outcome::Lost;
        }
        let to = get(Intrinsic::EgressSpec);
        if program.drop_port == Some(to) {
            return Outcome::Dropped;
        }
        set(&mut record, Intrinsic::EgressPort, to);
        set(&mut record, Intrinsic::InstanceType, program.instance_types.normal);
        set(&mut record, Intrinsic::EgressRid, 0);
        for which in [Intrinsic::EgressTimestamp, Intrinsic::EnqueueTimestamp, Intrinsic::EnqueueDepth] {
            set(&mut record, which, 77);
        }
        let second = interp.run(EntryKind::Egress, &first.packet, first.consumed, &mut record, host, None);
        match second.fate {
            interp::Fate::Drop(_) => Outcome::Dropped,
            interp::Fate::Send(port) => Outcome::Sent(port as u32, second.packet),
            interp::Fate::Multicast(_)
            | interp::Fate::Replicate(_)
            | interp::Fate::Again { .. }
            | interp::Fate::Endless
            | interp::Fate::NoRoom => Outcome::Lost,
        }
    }

    fn trace(&mut self, frame: &[u8]) -> Result<Traced<()>, Untraceable> {
        self.tracer.trace_program(frame, PORT, &mut self.entries)
    }

    /// Counters' cells: those of arrays among the first, and all entries' own but the default ones'.
    fn counters(&self) -> BTreeMap<(ExternId, Place2), CounterValue> {
        let (state, mut all) = (self.interp.state(), BTreeMap::new());
        for (i, of) in self.program.externs.iter().enumerate() {
            let id = ExternId::from_index(i);
            match of.kind {
                ExternKind::Counter { size, direct: None, .. } => {
                    for index in 0..size.min(64) {
                        all.insert((id, Place2::Index(index)), state.counter(id, index).expect("it is there"));
                    }
                }
                ExternKind::Counter { direct: Some(table), .. } => {
                    for (at, read) in state.entries(table).iter().enumerate() {
                        let value = state.direct_counter(id, &read.entry.key, read.entry.priority);
                        all.insert((id, Place2::Entry(at as u64 + 1)), value.expect("it is there"));
                    }
                }
                _ => {}
            }
        }
        all
    }

    fn compare(&self, frame: &[u8], path: &Traced<()>) {
        let mut counters = self.counters();
        let expected = self.run(frame, None);
        let got = match path.fate {
            Fate::Drop(_) => Outcome::Dropped,
            Fate::Send(port) => Outcome::Sent(port, rewritten(&path.rewrite, frame)),
        };
        assert!(
            got == expected,
            "of {frame:02x?}\nbecomes {got:02x?}\nand not {expected:02x?}\npath {path:?}\n{}",
            ir::print(&self.program)
        );
        for counted in &path.counted {
            let ExternKind::Counter { unit, .. } = self.program.externs[counted.counter.index()].kind else { continue };
            let place = match counted.at {
                Place::Index(index) => Place2::Index(index),
                Place::Entry(entry) => Place2::Entry(entry),
            };
            if let Some(cell) = counters.get_mut(&(counted.counter, place)) {
                cell.packets += u64::from(unit != CounterUnit::Bytes);
                cell.bytes += if unit == CounterUnit::Packets { 0 } else { counted.bytes.of(frame.len() as u32) };
            }
        }
        assert_eq!(counters, self.counters(), "of {frame:02x?}\n{path:?}");
    }

    /// As `Subject::check`.
    fn check(&self, frame: &[u8], path: &Traced<()>, random: &mut Random, others: u32) -> u32 {
        assert!(matches(&path.pattern, frame));
        self.compare(frame, path);
        let mut seen = 0;
        for _ in 0..others {
            let other = common::other(&path.pattern, frame, random);
            if matches(&path.pattern, &other) {
                seen += 1;
                self.compare(&other, path);
            }
        }
        seen
    }
}

/// A counter's cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place2 {
    Index(u64),
    Entry(u64),
}

/// Counts of what a test did.
#[derive(Default, Debug)]
struct Totals {
    traced: u32,
    sent: u32,
    others: u32,
    steps: usize,
    refused: BTreeMap<String, u32>,
}

fn round(switch: &mut Switch, frames: &[Vec<u8>], random: &mut Random, totals: &mut Totals) {
    // What an entry makes of a packet is the key of the next table.
    for _ in 0..3 {
        let mut seen = BTreeMap::new();
        for frame in frames {
            switch.run(frame, Some(&mut seen));
        }
        switch.fill(&seen, random);
    }
    for frame in frames {
        match switch.trace(frame) {
            Ok(path) => {
                totals.traced += 1;
                totals.steps += path.rewrite.steps.len();
                totals.sent += u32::from(!path.is_dropped());
                totals.others += switch.check(frame, &path, random, 8);
            }
            Err(why) => {
                let text: String = why.to_string().chars().filter(|c| !c.is_ascii_digit()).collect();
                *totals.refused.entry(text).or_insert(0) += 1;
            }
        }
    }
}

#[test]
fn paths_of_generated_programs_do_what_the_programs_do() {
    let mut totals = Totals::default();
    for seed in 0..rounds(16) {
        let mut random = Random::stream(seed, 11);
        let source = p4gen::program(seed, 2 + (seed % 4) as u32).source;
        let programs = compile(&source);
        let frames: Vec<Vec<u8>> = (0..10).map(|_| common::few_bytes(&mut random, 160)).collect();
        for mut program in programs {
            left_out(&mut program, random.one_in(8));
            round(&mut Switch::new(program), &frames, &mut random, &mut totals);
        }
    }
    println!("{totals:#?}");
    assert!(totals.traced > 100 && totals.sent > 50 && totals.others > 500, "{totals:?}");
}

/// The packets that an STF script sends.
fn packets(script: &str) -> Vec<Vec<u8>> {
    let hex = |line: &str| {
        let digits: Vec<u8> = line.split_whitespace().skip(2).flat_map(str::bytes).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>()
    };
    script.lines().filter(|line| line.starts_with("packet ")).filter_map(hex).collect()
}

#[test]
fn paths_of_the_examples_do_what_they_do() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut all = Totals::default();
    let mut names: Vec<_> =
        std::fs::read_dir(folder).expect("it is there").map(|f| f.expect("a file").path()).collect();
    names.sort();
    for name in names.iter().filter(|name| name.is_dir()) {
        let Some(stem) = name.file_name().and_then(|stem| stem.to_str()) else { continue };
        let Ok(text) = std::fs::read_to_string(name.join(format!("{stem}.p4"))) else { continue };
        let Ok(programs) = std::panic::catch_unwind(|| compile(&text)) else {
            println!("{stem}: does not compile alone");
            continue;
        };
        let script = std::fs::read_to_string(name.join(format!("{stem}.stf"))).unwrap_or_default();
        let scripted = packets(&script);
        let mut totals = Totals::default();
        for (i, mut program) in programs.into_iter().enumerate() {
            if program.entry(EntryKind::Ingress).is_none() || program.openflow.is_some() {
                continue;
            }
            left_out(&mut program, false);
            for seed in 0..rounds(2) {
                let mut random = Random::stream(seed, 20 + i as u64);
                let scripted = |random: &mut Random| match scripted.is_empty() {
                    true => common::packet(random),
                    false => random.pick(&scripted).clone(),
                };
                let frames: Vec<Vec<u8>> = (0..12)
                    .map(|_| if random.one_in(4) { common::packet(&mut random) } else { scripted(&mut random) })
                    .collect();
                round(&mut Switch::new(program.clone()), &frames, &mut random, &mut totals);
            }
        }
        println!("{stem}: {totals:?}");
        all.traced += totals.traced;
        all.sent += totals.sent;
        all.others += totals.others;
    }
    assert!(all.traced > 500 && all.sent > 200 && all.others > 3000, "{all:?}");
}

const ROUTER: &str = r#"
#include <core.p4>
#include <v1model.p4>
header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> tos; bit<16> len; bit<16> id; bit<3> flags; bit<13> offset;
    bit<8> ttl; bit<8> protocol; bit<16> sum; bit<32> src; bit<32> dst;
}
struct headers { ethernet_t ethernet; ipv4_t ipv4; }
struct meta { }
parser P(packet_in p, out headers h, inout meta m, inout standard_metadata_t s) {
    state start { p.extract(h.ethernet); transition select(h.ethernet.type) { 0x800: ipv4; default: accept; } }
    state ipv4 { p.extract(h.ipv4); transition accept; }
}
control V(inout headers h, inout meta m) { apply { verify_checksum(h.ipv4.isValid(), { h.ipv4.version, h.ipv4.ihl, h.ipv4.tos,
    h.ipv4.len, h.ipv4.id, h.ipv4.flags, h.ipv4.offset, h.ipv4.ttl, h.ipv4.protocol, h.ipv4.src, h.ipv4.dst },
    h.ipv4.sum, HashAlgorithm.csum16); } }
control I(inout headers h, inout meta m, inout standard_metadata_t s) {
    counter(16, CounterType.packets_and_bytes) sent;
    action drop() { mark_to_drop(s); }
    action route(bit<48> dst, bit<48> src, bit<9> port) {
        h.ethernet.dst = dst; h.ethernet.src = src; h.ipv4.ttl = h.ipv4.ttl - 1; s.egress_spec = port; sent.count((bit<32>)port);
    }
    table routes { key = { h.ipv4.dst: lpm; } actions = { route; drop; } default_action = drop(); }
    apply { if (h.ipv4.isValid() && h.ipv4.ttl > 1) { routes.apply(); } else { drop(); } }
}
control E(inout headers h, inout meta m, inout standard_metadata_t s) { apply { } }
control C(inout headers h, inout meta m) { apply { update_checksum(h.ipv4.isValid(), { h.ipv4.version, h.ipv4.ihl, h.ipv4.tos,
    h.ipv4.len, h.ipv4.id, h.ipv4.flags, h.ipv4.offset, h.ipv4.ttl, h.ipv4.protocol, h.ipv4.src, h.ipv4.dst },
    h.ipv4.sum, HashAlgorithm.csum16); } }
control D(packet_out p, in headers h) { apply { p.emit(h.ethernet); p.emit(h.ipv4); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"#;

#[test]
fn a_router_writes_two_addresses_the_ttl_and_a_checksum() {
    for program in compile(ROUTER) {
        let mut switch = Switch::new(program);
        let table = switch.program.table_named("I.routes").expect("it is there");
        for (prefix_len, port) in [(8, 1), (24, 2), (30, 3)] {
            let value = Bits::new(32, 0x0a00_0000);
            let args = vec![Bits::new(48, 0x0200_0000_0001), Bits::new(48, 0x0200_0000_0002), Bits::new(9, port)];
            let entry = TableEntry {
                key: vec![KeyMatch::Lpm { value, prefix_len }],
                priority: 0,
                action: EntryAction::Call(ActionCall { action: 0, args }),
                idle_timeout_ns: 0,
            };
            switch.interp.state().insert(table, &entry).expect("it fits");
        }
        switch.read();
        let frame = common::tcp(64);
        let path = switch.trace(&frame).expect("it is traced");
        println!("{path:?}");
        assert_eq!(path.fate, Fate::Send(3));
        // Of the TTL, what says that it is above 1; of the address, the longest prefix.
        assert_eq!((path.pattern.mask[22] & 0xe0, &path.pattern.mask[30..]), (0xc0, &[0xff, 0xff, 0xff, 0xfc][..]));
        assert!(path.rewrite.steps.len() <= 7, "{:?}", path.rewrite.steps);
        assert!(matches!(&path.rewrite.steps[0], Step::Bytes { at: 0, bytes } if bytes.len() == 12));
        assert!(switch.check(&frame, &path, &mut Random::new(3), 400) > 100);
    }
}

/// A v1model program whose ingress is this, over one header.
fn over_one_header(fields: &str, ingress: &str) -> String {
    format!(
        "#include <core.p4>
#include <v1model.p4>
header h_t {{ {fields} }}
struct headers {{ h_t h; }}
struct meta {{ }}
parser P(packet_in p, out headers h, inout meta m, inout standard_metadata_t s) {{
    state start {{ p.extract(h.h); transition accept; }}
}}
control V(inout headers h, inout meta m) {{ apply {{ }} }}
control I(inout headers h, inout meta m, inout standard_metadata_t s) {{ apply {{ {ingress} }} }}
control E(inout headers h, inout meta m, inout standard_metadata_t s) {{ apply {{ }} }}
control C(inout headers h, inout meta m) {{ apply {{ }} }}
control D(packet_out p, in headers h) {{ apply {{ p.emit(h.h); }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;"
    )
}

#[test]
fn a_comparison_of_the_length_bounds_it() {
    let text =
        over_one_header("bit<8> x;", "if (s.packet_length > 100) { s.egress_spec = 1; } else { s.egress_spec = 2; }");
    for program in compile(&text) {
        let mut switch = Switch::new(program);
        for (bytes, bounds, port) in [(60, (1, 100), 2), (100, (1, 100), 2), (101, (101, u32::MAX), 1)] {
            let path = switch.trace(&vec![0; bytes]).expect("it is traced");
            assert_eq!((path.pattern.shortest, path.pattern.longest), bounds);
            assert_eq!((path.fate, path.pattern.mask.len()), (Fate::Send(port), 0));
            switch.check(&vec![0; bytes], &path, &mut Random::new(1), 50);
        }
    }
}

#[test]
fn one_bit_says_that_something_is_not_zero() {
    let text = over_one_header("bit<16> x; bit<16> y;", "if (h.h.x != 0) { h.h.y = h.h.y + h.h.x; }");
    for program in compile(&text) {
        let mut switch = Switch::new(program);
        let path = switch.trace(&[0x12, 0x34, 0, 0]).expect("it is traced");
        assert_eq!(&*path.pattern.mask, [0x10]);
        switch.check(&[0x12, 0x34, 0, 0], &path, &mut Random::new(1), 50);
        let path = switch.trace(&[0, 0, 5, 5]).expect("it is traced");
        assert_eq!(&*path.pattern.mask, [0xff, 0xff]);
    }
}

#[test]
fn times_decide_about_no_path() {
    let text = over_one_header("bit<8> x;", "if (s.ingress_global_timestamp > 100) { s.egress_spec = 1; }");
    for program in compile(&text) {
        let why = Switch::new(program).trace(&[0; 60]).expect_err("it reads the time");
        assert_eq!(why.to_string(), "it reads `ingress_timestamp`, which differs from packet to packet");
    }
}
