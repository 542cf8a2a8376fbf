//! Passes keep behaviour: generated programs and packets through the interpreter before and after.
//!
//! Every pass alone and all of them together. A packet that is handed to the replication engine goes on as the engine
//! would have it: at egress with its record, and parsed again with the preserved slots alone. At the end all counters
//! and registers are compared.

use abi::PipelineState;
use interp::{Fate, Interp, Outcome, SeededHost};
use ir::{BinOp, EntryKind, ExternKind, Inst, Op, Operand, Program, ReplicationPoint, SlotId};
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
        prop_assert!(report.size.1 <= report.size.0, "the program has grown: {}", report);
        compare(&before, &after, &packets, "all passes")?;
    }
}

#[test]
fn packets_that_peek_do_the_same() {
    let (mut state, mut made) = (0x9e37_79b9_7f4a_7c15_u64, 0);
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    for _ in 0..2000 {
        let choices: Vec<u8> = (0..600).map(|_| byte()).collect();
        let mut before = ir::generate::generate(&choices);
        for ext in &mut before.externs {
            if let ExternKind::Register { size, .. } = &mut ext.kind {
                *size = ir::atomicity::LOCKED_CELLS_MIN;
            }
        }
        let Some(after) = opt::peeks(&before, &opt::Options::default()) else { continue };
        made += 1;
        let text = ir::print(&after);
        let again = ir::parse(&text, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}\n{text}"));
        assert_eq!(ir::print(&again), text);
        let packets: Vec<Vec<u8>> =
            (0..20).map(|_| (0..usize::from(byte() % 80)).map(|_| byte() % 4).collect()).collect();
        compare(&before, &after, &packets, "peeks").unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(made > 20, "{made} programs have peeks");
}

#[test]
fn updates_in_one_step_do_the_same() {
    let (mut state, mut made) = (0x2545_f491_4f6c_dd1d_u64, 0);
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    for _ in 0..2000 {
        let choices: Vec<u8> = (0..600).map(|_| byte()).collect();
        let mut before = ir::generate::generate(&choices);
        // Behind each read, the cell is written: what was read, and something.
        let blocks = before.stages.iter_mut().flat_map(|stage| &mut stage.blocks);
        for block in blocks {
            let mut insts = Vec::new();
            for inst in std::mem::take(&mut block.insts) {
                let (op, span) = (inst.op.clone(), inst.span);
                insts.push(inst);
                let Op::RegisterRead { register, dst, index, .. } = op else { continue };
                let width = before.slots[dst.index()].width;
                let temp = ir::SlotId::from_index(before.slots.len());
                before.slots.push(ir::Slot { name: format!("sum.{}", temp.index()), width, kind: ir::SlotKind::Temp });
                let ops = [BinOp::Add, BinOp::Sub, BinOp::Or, BinOp::And, BinOp::Xor];
                let op = ops[usize::from(byte()) % ops.len()];
                let other = Operand::new_const(width, byte().into());
                insts.push(Inst { op: Op::Bin { op, dst: temp, a: dst.into(), b: other.clone() }, span });
                let src = if byte() % 8 == 0 { other } else { temp.into() };
                if index.slot() != Some(dst) {
                    insts.push(Inst { op: Op::RegisterWrite { register, index, src }, span });
                }
            }
            block.insts = insts;
        }
        assert_eq!(ir::verify(&before), []);
        let Some(after) = opt::updates(&before, &opt::Options::default()) else { continue };
        made += 1;
        let text = ir::print(&after);
        let again = ir::parse(&text, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}\n{text}"));
        assert_eq!(ir::print(&again), text);
        let packets: Vec<Vec<u8>> =
            (0..20).map(|_| (0..usize::from(byte() % 80)).map(|_| byte() % 4).collect()).collect();
        compare(&before, &after, &packets, "updates").unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(made > 20, "{made} programs have updates");
}
