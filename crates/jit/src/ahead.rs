//! Prefetches the cells of large registers.
//!
//! Which cell of a register a packet wants, a hash of its fields says, mostly: an address that nobody can know sooner, in
//! megabytes. Run to completion waits for it packet by packet; and packets cannot wait for one another there, as they do at
//! tables ([`crate::stage`]), for what they do to a register must happen in their order, on whatever paths they come to it.
//!
//! So the packets of a batch go through twice. The first time each prefetches its cells where it comes to read them, goes on without
//! what they hold as far as that is not needed to know the path, and leaves no trace: nothing is counted or written
//! ([`Translator::is_ahead`]), and variables are set anew when it comes again. The second time everything is done, in order. What is
//! parsed, looked up and hashed twice costs less than a line from memory.
//!
//! The first time round is only a guess. A register may change in between, and with it the path: then another cell's
//! line is there than the one that is wanted, and nothing is wrong.
//!
//! Cells that several workers lock are in another worker's cache half of the time, which is as far away as memory: those are prefetched
//! from [`LOCKED_BYTES_MIN`] on, and taken away from that worker at once.
//!
//! Not for entries whose packets wait for tables; not in loops, parsers and deparsers, and not behind meters and chance, whose
//! answers would be spent.
//!
//! Tests: `tests/staged.rs`; with `JIT_STAGED=1` all entries that read registers and are not taken apart.

use crate::flow::Flow;
use crate::locks::lock_rank;
use crate::translate::Translator;
use crate::{Error, Options, Strategy};
use abi::{Bindings, ExternBinding, PacketDesc};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Value};
use ir::{EntryPoint, ExternId, HashAlgorithm, Inst, Op, Operand, Program, SlotId, StageKind};
use std::collections::{BTreeMap, BTreeSet};

/// What packets go through the first time.
#[derive(Clone, Debug)]
pub(crate) struct Ahead {
    /// In ascending order, each with the operation before which a packet stops.
    pub nodes: Vec<(usize, Option<usize>)>,
    /// The large registers.
    registers: Vec<ExternId>,
}

impl Ahead {
    /// `None` if there is nothing to prefetch.
    pub fn new(
        program: &Program,
        entry: &EntryPoint,
        flow: &Flow,
        bindings: &Bindings,
        options: &Options,
    ) -> Option<Ahead> {
        let registers = large_registers(program, entry, bindings, options.strategy);
        if registers.is_empty() {
            return None;
        }
        let graph = &flow.graph;
        let mut stops = BTreeMap::new();
        let mut reads = Vec::new();
        // By node: slots whose values depend on cells that are only prefetched.
        let mut arriving: Vec<Option<BTreeSet<SlotId>>> = vec![None; graph.nodes.len()];
        arriving[0] = Some(BTreeSet::new());
        // Edges that lead backwards lead to heads of loops, where packets stop.
        for n in 0..graph.nodes.len() {
            let Some(mut unknown) = arriving[n].take() else { continue };
            let node = &graph.nodes[n];
            let kind = program.stages[entry.stages[node.position].index()].kind;
            let block = graph.block(program, n);
            let may_prefetch = kind == StageKind::Control;
            let mut stop = (node.is_loop_head || kind == StageKind::Deparser).then_some(0);
            let insts = block.insts.iter().enumerate().take_while(|_| stop.is_none());
            for (i, inst) in insts.take_while(|(_, inst)| !spends(&inst.op)) {
                let mut needs = false;
                inst.op.for_each_use(program, |slot| needs |= unknown.contains(&slot));
                if is_read(inst, &registers) {
                    if !may_prefetch {
                        stop = Some(i);
                        break;
                    }
                    if !needs && !reads.contains(&n) {
                        reads.push(n);
                    }
                    needs = true;
                }
                inst.op.for_each_def(program, |slot| match needs {
                    true => _ = unknown.insert(slot),
                    false => _ = unknown.remove(&slot),
                });
            }
            stop = stop.or_else(|| block.insts.iter().position(|inst| spends(&inst.op)));
            let needs = block.term.operand().and_then(Operand::slot).is_some_and(|slot| unknown.contains(&slot));
            stop = stop.or(needs.then_some(block.insts.len()));
            stops.insert(n, stop);
            for &s in node.succs.iter().filter(|_| stop.is_none()) {
                arriving[s].get_or_insert_default().extend(&unknown);
            }
        }
        // Packets that are on no path to a read need not go on.
        let mut leads = vec![false; graph.nodes.len()];
        reads.iter().for_each(|&n| leads[n] = true);
        loop {
            let more: Vec<usize> = (stops.iter())
                .filter(|&(&n, stop)| stop.is_none() && !leads[n] && graph.nodes[n].succs.iter().any(|&s| leads[s]))
                .map(|(&n, _)| n)
                .collect();
            if more.is_empty() {
                break;
            }
            more.into_iter().for_each(|n| leads[n] = true);
        }
        let is_entered = |n: usize| {
            let mut before = stops.iter().filter(|&(&p, stop)| stop.is_none() && leads[p]);
            n == 0 || before.any(|(&p, _)| graph.nodes[p].succs.contains(&n))
        };
        let nodes = stops.iter().filter(|&(&n, _)| is_entered(n));
        let nodes = nodes.map(|(&n, &stop)| (n, if leads[n] { stop } else { Some(0) })).collect();
        (!reads.is_empty()).then_some(Ahead { nodes, registers })
    }
}

/// Whether it reads one of the registers, and which cell is not always the same.
fn is_read(inst: &Inst, registers: &[ExternId]) -> bool {
    matches!(&inst.op, Op::RegisterRead { register, index, .. } if index.slot().is_some() && registers.contains(register))
}

/// Whether asking twice gives another answer.
fn spends(op: &Op) -> bool {
    match op {
        Op::Meter { .. } | Op::MeterDirect { .. } | Op::Random { .. } | Op::Unresolved { .. } | Op::AddEntry { .. } => {
            true
        }
        Op::Hash { algorithm, .. } => *algorithm == HashAlgorithm::Random,
        _ => false,
    }
}

/// Bytes of a locked register in use up to which its cells are not prefetched: eight cache lines for each packet of a batch. With
/// fewer, more than an eighth of the lines would be in another worker's cache again before they are used.
const LOCKED_BYTES_MIN: u64 = 8 * 64 * abi::BATCH_MAX as u64;

/// Bytes of a register in use up to which [`Strategy::Auto`] does not prefetch its cells.
pub fn prefetched_bytes_min(is_locked: bool) -> u64 {
    if is_locked { LOCKED_BYTES_MIN } else { crate::PREFETCHED_BYTES_MIN }
}

/// The registers that the strategy wants prefetched.
fn large_registers(program: &Program, entry: &EntryPoint, bindings: &Bindings, strategy: Strategy) -> Vec<ExternId> {
    let mut registers = Vec::new();
    for stage in &entry.stages {
        for inst in program.stages[stage.index()].blocks.iter().flat_map(|b| &b.insts) {
            if let Op::RegisterRead { register, .. } = inst.op
                && !registers.contains(&register)
            {
                registers.push(register);
            }
        }
    }
    let is_large = |register: &ExternId| match bindings.externs.get(register.index()) {
        Some(&ExternBinding::Register { footprint_bytes, lock_rank, .. }) => {
            footprint_bytes > prefetched_bytes_min(lock_rank.is_some())
        }
        _ => false,
    };
    match strategy {
        Strategy::RunToCompletion => registers.clear(),
        Strategy::Staged => {}
        Strategy::Auto => registers.retain(is_large),
    }
    registers
}

impl Translator<'_, '_> {
    /// Whether packets come for the first time, and nothing may be left of it.
    pub fn is_ahead(&self) -> bool {
        self.ahead
    }

    /// The loop over the packets from `first` to `end` that only prefetches what they will want.
    pub fn loop_ahead(&mut self, ahead: &Ahead, first: Value, end: Value) -> Result<(), Error> {
        let (packet, next_packet) = (self.packet, self.next_packet);
        let [head, body, done] = [(); 3].map(|()| self.b.create_block());
        self.packet = self.b.append_block_param(head, I64);
        self.next_packet = self.b.create_block();
        self.b.ins().jump(head, &[first.into()]);
        self.b.switch_to_block(head);
        let over = self.icmp(IntCC::Equal, self.packet, end);
        self.b.ins().brif(over, done, &[], body, &[]);
        self.b.seal_block(body);
        self.b.seal_block(done);
        self.b.switch_to_block(body);
        self.ahead = true;
        self.start_packet();
        self.run(None, &ahead.nodes)?;
        self.ahead = false;
        self.b.seal_block(self.next_packet);
        self.b.switch_to_block(self.next_packet);
        self.locate_outside();
        let next = self.add_imm(self.packet, size_of::<PacketDesc>() as u64);
        self.b.ins().jump(head, &[next.into()]);
        self.b.seal_block(head);
        self.b.switch_to_block(done);
        (self.packet, self.next_packet) = (packet, next_packet);
        Ok(())
    }

    /// Prefetches the cell of a read, the first time round; whether it was one to prefetch. Then what is read is not known.
    pub fn prefetch_cell(&mut self, register: ExternId, dst: SlotId, index: &Operand) -> Result<bool, Error> {
        let is_wanted = self.plan.ahead.as_ref().is_some_and(|ahead| ahead.registers.contains(&register));
        if !self.is_ahead() || !is_wanted || index.slot().is_none() {
            return Ok(false);
        }
        // Beyond the last cell too: nothing is read.
        let (cell, ..) = self.register_cell(register, index)?;
        match lock_rank(self.bindings, register) {
            Some(_) => self.prefetch_to_write(cell),
            None => self.prefetch(cell),
        }
        let zero = self.zero(self.program.width(dst));
        self.write_slot(dst, &zero);
        Ok(true)
    }
}
