//! Passes keep behaviour: generated programs and packets through the interpreter before and after.
//!
//! Every pass alone and all of them together. A packet that is handed to the replication engine goes on as the engine
//! would have it: at egress with its record, and parsed again with the preserved slots alone. At the end all counters
//! and registers are compared.

use abi::PipelineState;
use interp::{Fate, Interp, Outcome, SeededHost};
use ir::{EntryKind, ExternKind, Program, ReplicationPoint, SlotId};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

/// A program with what a worker would keep beside it.
struct Engine {
    interp: Interp,
    host: SeededHost,
}

/// What a packet did at one entry: outcome and, where it was handed over, what the engine may look at.
#[derive(PartialEq, Debug)]
struct Step {
    entry: EntryKind,
    outcome: Outcome,
    kept: HashMap<String, base::Bits>,
}

impl Engine {
    fn new(program: Program) -> Engine {
        Engine { interp: Interp::new(Arc::new(program)), host: SeededHost::new(7) }
    }

    fn kept_slots(&self) -> Vec<SlotId> {
        let program = self.interp.program();
        let intrinsics = program.intrinsics.iter().map(|(_, slot)| *slot);
        intrinsics.chain(program.field_lists.iter().flat_map(|(_, slots)| slots.clone())).collect()
    }

    /// One packet through ingress and wherever it is handed over to.
    fn packet(&mut self, bytes: &[u8], port: u64) -> Vec<Step> {
        let program = self.interp.program().clone();
        let layout = self.interp.layout().clone();
        let mut record = vec![0; layout.words()];
        let ingress_port = program.intrinsic(ir::Intrinsic::IngressPort).expect("generated programs have it");
        layout.set_word(&mut record, ingress_port, port);
        let mut steps = vec![self.step(EntryKind::Ingress, bytes, 0, &mut record)];
        if steps[0].outcome.fate != Fate::Replicate(ReplicationPoint::IngressEnd) {
            return steps;
        }
        let consumed = steps[0].outcome.consumed;
        for kind in [EntryKind::Egress, EntryKind::Reingress, EntryKind::CloneIngress] {
            if program.entry(kind).is_none() {
                continue;
            }
            let mut copy = record.clone();
            if kind != EntryKind::Egress {
                copy.fill(0);
                for slot in self.kept_slots() {
                    layout.set(&mut copy, slot, &layout.get(&record, slot));
                }
            }
            layout.set_word(&mut copy, ingress_port, port + 1);
            steps.push(self.step(kind, bytes, consumed, &mut copy));
        }
        steps
    }

    fn step(&mut self, entry: EntryKind, bytes: &[u8], consumed: u32, record: &mut [u64]) -> Step {
        let outcome = self.interp.run(entry, bytes, consumed, record, &mut self.host, None);
        let mut kept = HashMap::new();
        if let Fate::Replicate(_) = outcome.fate {
            for slot in self.kept_slots() {
                let name = self.interp.program().slots[slot.index()].name.clone();
                kept.insert(name, self.interp.layout().get(record, slot));
            }
        }
        Step { entry, outcome, kept }
    }

    /// All counters and registers.
    fn state(&self) -> Vec<String> {
        let program = self.interp.program();
        let state = self.interp.state();
        let mut lines = Vec::new();
        for (id, ext) in program.externs.iter().enumerate() {
            let id = ir::ExternId::from_index(id);
            match &ext.kind {
                ExternKind::Counter { size, direct: None, .. } => {
                    lines.extend((0..*size).map(|i| format!("{} {i} {:?}", ext.name, state.counter(id, i))));
                }
                ExternKind::Counter { direct: Some(table), .. } => {
                    for read in state.entries(*table) {
                        let value = state.direct_counter(id, &read.entry.key, read.entry.priority);
                        lines.push(format!("{} {:?} {value:?}", ext.name, read.entry.key));
                    }
                }
                ExternKind::Register { size, .. } => {
                    lines.extend((0..*size).map(|i| format!("{} {i} {:?}", ext.name, state.register(id, i))));
                }
                _ => {}
            }
        }
        lines
    }
}

/// Runs packets through both programs; the text says where they part.
fn compare(before: &Program, after: &Program, packets: &[Vec<u8>], what: &str) -> Result<(), TestCaseError> {
    let (mut raw, mut new) = (Engine::new(before.clone()), Engine::new(after.clone()));
    for (i, packet) in packets.iter().enumerate() {
        let (expected, found) = (raw.packet(packet, i as u64), new.packet(packet, i as u64));
        prop_assert_eq!(
            expected,
            found,
            "{}: packet {:02x?}\n{}\nbecame\n{}",
            what,
            packet,
            ir::print(before),
            ir::print(after)
        );
    }
    prop_assert_eq!(raw.state(), new.state(), "{}:\n{}\nbecame\n{}", what, ir::print(before), ir::print(after));
    Ok(())
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..1500)
}

/// Packets in which small numbers are common, as in the generated programs.
fn packets() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(0xff), any::<u8>()];
    vec(vec(byte, 0..80), 1..6)
}

proptest! {
    #[test]
    fn every_pass_alone_keeps_behaviour(choices in choices(), packets in packets()) {
        let before = ir::generate::generate(&choices);
        for pass in opt::pass_names() {
            let mut after = before.clone();
            let changed = opt::run_pass(&mut after, pass).expect("a pass of that name");
            prop_assert_eq!(changed, after != before, "{} does not tell whether it changed something", pass);
            if changed {
                compare(&before, &after, &packets, pass)?;
            }
        }
    }

    #[test]
    fn constants_are_propagated_as_far_as_slots_are_followed(choices in choices(), packets in packets()) {
        let before = ir::generate::generate(&choices);
        for work_per_access_max in [0, 1, 3] {
            let mut after = before.clone();
            if opt::run_const_prop(&mut after, work_per_access_max) {
                compare(&before, &after, &packets, "const_prop with little work")?;
            }
        }
    }

    #[test]
    fn all_passes_together_keep_behaviour(choices in choices(), packets in packets()) {
        let before = ir::generate::generate(&choices);
        let mut after = before.clone();
        let report = opt::optimise(&mut after, &opt::Options::default());
        // A sum that is brought up to date is more instructions, and less work.
        let sums = report.passes.iter().filter(|pass| pass.name == "incremental_checksum");
        let added: i64 = sums.map(|pass| -pass.removed).sum();
        prop_assert!(report.size.1 as i64 <= report.size.0 as i64 + added, "the program has grown: {}", report);
        compare(&before, &after, &packets, "all passes")?;
    }

    #[test]
    fn sums_are_brought_up_to_date(changes in vec(0..CHANGES.len(), 0..4), way in 0..4usize, packets in headers()) {
        let before = summing(&changes, way);
        let mut after = before.clone();
        let changed = opt::run_pass(&mut after, "incremental_checksum").expect("a pass of that name");
        prop_assert_eq!(changed, after != before);
        compare(&before, &after, &packets, "incremental_checksum")?;
        let mut all = before.clone();
        opt::optimise(&mut all, &opt::Options::default());
        compare(&before, &all, &packets, "all passes")?;
    }
}

/// Ways to change a header, or not to.
const CHANGES: [&str; 8] = [
    "ip.ttl = sub ip.ttl, 8w1",
    "ip.ttl = mov 8w0",
    "ip.ecn = mov 2w3",
    "ip.id = mov port",
    "ip.len = add ip.len, 16w65535",
    "ip.id = mov 16w0",
    "ip.ttl = add ip.ttl, 8w1",
    "ip.other = mov ip.src",
];

/// A program that sums a header, changes it, and sums it again if what was asked before the first sum holds; with `way` 0 it
/// asks nothing of the packet's bytes, with 3 it sums again without having asked.
fn summing(changes: &[usize], way: usize) -> Program {
    let fields = [
        ("ihl", 4),
        ("flag", 4),
        ("ds", 6),
        ("ecn", 2),
        ("len", 16),
        ("id", 16),
        ("ttl", 8),
        ("other", 8),
        ("src", 8),
        ("dst", 56),
    ];
    let mut text = String::from(
        "program \"test\"\ndrops end\nslot port: 16 metadata\nslot wrong: 1 metadata\nslot routed: 1 metadata\n",
    );
    fields.iter().for_each(|(name, width)| text += &format!("slot ip.{name}: {width} field ip\n"));
    text += "slot ip.sum: 16 field ip\nslot ip.$valid: 1 valid ip\nslot %0: 1 temp\nslot %1: 16 temp\nslot %2: 1 temp\nslot %3: 1 temp\n";
    text += "header ip valid ip.$valid {\n";
    fields.iter().for_each(|(name, _)| text += &format!("  {name} = ip.{name}\n"));
    text += "  sum = ip.sum\n}\nintrinsic ingress_port = port\nentry ingress (P, I, C, D)\n";
    let list: Vec<String> = fields.iter().map(|(name, _)| format!("ip.{name}")).collect();
    let sum = format!("hash csum16 base 16w0 data ({})", list.join(", "));
    let asked = ["eq port, port", "eq ip.ihl, 4w5", "ult ip.ihl, 4w5", "eq ip.ihl, 4w5"][way];
    let again = ["eq port, port", "eq ip.ihl, 4w5", "ult ip.ihl, 4w5", "ult ip.ihl, 4w6"][way];
    let changes: Vec<String> = changes.iter().map(|c| format!("  {}\n", CHANGES[*c])).collect();
    text += &format!(
        "stage parser P {{\nb0:\n  %0 = has_bits 16w144\n  branch %0, b1, b2\nb1:\n  extract ip\n  next\nb2:\n  drop end\n}}\n\
         stage control I {{\nb0:\n  %2 = {asked}\n  branch %2, b1, b2\nb1:\n  %1 = {sum}\n  wrong = ne %1, ip.sum\n  jump b2\nb2:\n\
         \x20 %3 = {again}\n  branch %3, b3, b4\nb3:\n{}  routed = mov 1w1\n  jump b4\nb4:\n  next\n}}\n\
         stage control C {{\nb0:\n  branch routed, b1, b2\nb1:\n  ip.sum = {sum}\n  next\nb2:\n  next\n}}\n\
         stage deparser D {{\nb0:\n  emit ip\n  send port\n}}\n",
        changes.concat()
    );
    ir::parse(&text, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}\n{text}"))
}

/// Headers whose length is 5 most often, and whose other bytes are the corners of one's complement.
fn headers() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let byte = prop_oneof![3 => Just(0u8), 2 => Just(0xff), 1 => any::<u8>()];
    let first = prop_oneof![Just(0x50u8), Just(0x5f), Just(0), any::<u8>()];
    let header = (first, vec(byte, 18)).prop_map(|(first, rest)| [vec![first], rest].concat());
    vec(header, 1..6)
}

/// The property above would hold for a pass that does nothing.
#[test]
fn sums_are_brought_up_to_date_where_that_is_right() {
    let runs = |changes: &[usize], way| opt::run_pass(&mut summing(changes, way), "incremental_checksum") == Some(true);
    assert!(runs(&[0], 1));
    assert!(runs(&[], 1));
    assert!(!runs(&[0], 0), "all fields may be zero");
    assert!(!runs(&[0], 2), "the length may be zero");
    assert!(!runs(&[0], 3), "some packets were not summed");
}
