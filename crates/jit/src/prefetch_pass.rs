//! Prefetches the cells of large registers in a pass over the batch ahead of the actual one.
//!
//! Which cell of a register a packet accesses is mostly a hash of its fields: an address that cannot be known earlier,
//! in megabytes of memory. Run-to-completion code waits for it packet by packet. Packets cannot wait for one another
//! there as they do at tables ([`crate::stage`]), because their accesses of a register must happen in their order,
//! whatever paths lead to it.
//!
//! So the packets of a batch go through the code twice. In the first pass each packet prefetches its cells where it
//! reaches the reads, goes on without their values as far as the path does not depend on them, and has no effects:
//! nothing is counted or written ([`Translator::is_prefetch_pass`]), and variables are set anew in the second pass. The
//! second pass does everything, in order. Parsing, lookups and hashes made twice cost less than one cache line from
//! memory.
//!
//! The first pass is only a hint. A register may change in between, and with it the path; then the wrong cell's line
//! has been prefetched, which does no harm.
//!
//! Cells that several workers lock are in another worker's cache half of the time, as far away as memory. Those are
//! prefetched from [`LOCKED_BYTES_MIN`] on, for writing, so that the other worker gives the line up at once. Peeks prefetch for reading,
//! so that both workers keep the line.
//!
//! Not for entry points whose packets wait for tables; not in loops, parsers and deparsers; and not after meters and
//! random numbers, whose state the first pass would use up.
//!
//! Tests: `tests/staged.rs`; with `JIT_STAGED=1` all entry points that read registers and are not cut.

use crate::flow::Flow;
use crate::locks::is_shared;
use crate::translate::Translator;
use crate::{Error, Options, Strategy};
use abi::{Bindings, ExternBinding, PacketDesc};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Value};
use ir::{EntryPoint, ExternId, HashAlgorithm, Inst, Op, Operand, Program, SlotId, StageKind};
use std::collections::{BTreeMap, BTreeSet};

/// What packets run in the first pass.
#[derive(Clone, Debug)]
pub(crate) struct PrefetchPass {
    /// Nodes in ascending order, each with the operation before which a packet stops.
    pub nodes: Vec<(usize, Option<usize>)>,
    /// The large registers.
    registers: Vec<ExternId>,
}

impl PrefetchPass {
    /// The first pass of an entry point; `None` if there is nothing to prefetch.
    pub fn new(
        program: &Program,
        entry: &EntryPoint,
        flow: &Flow,
        bindings: &Bindings,
        options: &Options,
    ) -> Option<PrefetchPass> {
        let registers = large_registers(program, entry, bindings, options.strategy);
        if registers.is_empty() {
            return None;
        }
        let graph = &flow.graph;
        let mut stops = BTreeMap::new();
        let mut reads = Vec::new();
        // By node: slots whose values depend on cells that are only prefetched, so that they are unknown.
        let mut arriving: Vec<Option<BTreeSet<SlotId>>> = vec![None; graph.nodes.len()];
        arriving[0] = Some(BTreeSet::new());
        // Back edges lead to loop heads, where packets stop.
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
        // Packets that can reach no read stop.
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
        (!reads.is_empty()).then_some(PrefetchPass { nodes, registers })
    }
}

/// Whether an operation reads one of the registers at an index that is no constant.
fn is_read(inst: &Inst, registers: &[ExternId]) -> bool {
    matches!(
        &inst.op,
        Op::RegisterRead { register, index, .. } | Op::RegisterUpdate { register, index, .. }
            if index.slot().is_some() && registers.contains(register)
    )
}

/// Whether an operation changes state that later packets see, so that it must not run twice.
fn spends(op: &Op) -> bool {
    match op {
        Op::Meter { .. } | Op::MeterDirect { .. } | Op::Random { .. } | Op::Unresolved { .. } | Op::AddEntry { .. } => {
            true
        }
        Op::Hash { algorithm, .. } => *algorithm == HashAlgorithm::Random,
        _ => false,
    }
}

/// Bytes of a locked register in use from which its cells are prefetched: eight cache lines for each packet of a batch.
/// With fewer, more than an eighth of the lines would be in another worker's cache again before they are used.
const LOCKED_BYTES_MIN: u64 = 8 * 64 * abi::BATCH_MAX as u64;

/// Bytes of a register in use from which [`Strategy::Auto`] prefetches its cells.
pub fn prefetched_bytes_min(is_locked: bool) -> u64 {
    if is_locked { LOCKED_BYTES_MIN } else { crate::PREFETCHED_BYTES_MIN }
}

/// The registers that the strategy prefetches.
fn large_registers(program: &Program, entry: &EntryPoint, bindings: &Bindings, strategy: Strategy) -> Vec<ExternId> {
    let mut registers = Vec::new();
    for stage in &entry.stages {
        for inst in program.stages[stage.index()].blocks.iter().flat_map(|b| &b.insts) {
            if let Op::RegisterRead { register, .. } | Op::RegisterUpdate { register, .. } = inst.op
                && !registers.contains(&register)
            {
                registers.push(register);
            }
        }
    }
    let is_large = |register: &ExternId| match bindings.externs.get(register.index()) {
        Some(&ExternBinding::Register { footprint_bytes, .. }) => {
            footprint_bytes > prefetched_bytes_min(is_shared(bindings, *register))
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
    /// Whether this is the first pass, which must have no effects.
    pub fn is_prefetch_pass(&self) -> bool {
        self.prefetch_pass
    }

    /// Generates the loop over the packets from `first` to `end` that only prefetches their cells.
    pub fn prefetch_loop(&mut self, prefetch_pass: &PrefetchPass, first: Value, end: Value) -> Result<(), Error> {
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
        self.prefetch_pass = true;
        self.start_packet();
        self.run(None, &prefetch_pass.nodes)?;
        self.prefetch_pass = false;
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

    /// In the first pass, prefetches the cell of a read and returns true; the value read is then unknown. Returns false
    /// if the read is none of these.
    pub fn prefetch_cell(
        &mut self,
        register: ExternId,
        dst: SlotId,
        index: &Operand,
        peek: bool,
    ) -> Result<bool, Error> {
        let is_wanted =
            self.plan.prefetch_pass.as_ref().is_some_and(|prefetch_pass| prefetch_pass.registers.contains(&register));
        if !self.is_prefetch_pass() || !is_wanted || index.slot().is_none() {
            return Ok(false);
        }
        // An index beyond the last cell is prefetched too: nothing is read.
        let (cell, ..) = self.register_cell(register, index)?;
        match is_shared(self.bindings, register) && !peek {
            true => self.prefetch_to_write(cell),
            false => self.prefetch(cell),
        }
        let zero = self.zero(self.program.width(dst));
        self.write_slot(dst, &zero);
        Ok(true)
    }
}
