//! Prefetches the cells of large registers.
//!
//! Which cell of a register a packet wants, a hash of its fields says, mostly: an address that nobody can know sooner, in
//! megabytes. Run to completion waits for it packet by packet; and packets cannot wait for one another there, as they do at
//! tables ([`crate::stage`]), for what they do to a register must happen in their order, on whatever paths they come to it.
//!
//! So the packets of a batch go through twice. The first time each goes as far as the first read of a large register, asks
//! for the cell, and leaves no trace: nothing is counted or written ([`Translator::is_ahead`]), and variables are set anew
//! when it comes again. The second time everything is done, in order. What is parsed, looked up and hashed twice costs less
//! than a line from memory.
//!
//! The first time round is only a guess. A register may change in between, and with it the path: then another cell's
//! line is there than the one that is wanted, and nothing is wrong.
//!
//! Not for entries whose packets wait for tables; not in loops, parsers and deparsers, and not behind meters and chance, whose
//! answers would be spent.
//!
//! Tests: `tests/staged.rs`; with `JIT_STAGED=1` all entries that read registers and are not taken apart.

use crate::flow::Flow;
use crate::stage::plan::Spot;
use crate::translate::Translator;
use crate::{Error, Options, Strategy};
use abi::{Bindings, ExternBinding, PacketDesc};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Value};
use ir::{EntryPoint, ExternId, HashAlgorithm, Inst, Op, Program, StageKind};
use std::collections::BTreeMap;

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
        let mut stack = vec![0];
        while let Some(n) = stack.pop() {
            if stops.contains_key(&n) {
                continue;
            }
            let node = &graph.nodes[n];
            let kind = program.stages[entry.stages[node.position].index()].kind;
            let insts = &graph.block(program, n).insts;
            let stop = match node.is_loop_head || kind == StageKind::Deparser {
                true => Some(0),
                false => insts.iter().position(|inst| is_read(inst, &registers) || spends(&inst.op)),
            };
            stops.insert(n, stop);
            match stop {
                None => stack.extend(&node.succs),
                Some(at) if kind == StageKind::Control && insts.get(at).is_some_and(|i| is_read(i, &registers)) => {
                    reads.push(n);
                }
                Some(_) => {}
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
        Op::Meter { .. } | Op::MeterDirect { .. } | Op::Random { .. } | Op::Unresolved { .. } | Op::AddEntry { .. } => true,
        Op::Hash { algorithm, .. } => *algorithm == HashAlgorithm::Random,
        _ => false,
    }
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
    let bytes = |register: &ExternId| match bindings.externs.get(register.index()) {
        Some(&ExternBinding::Register { footprint_bytes, .. }) => footprint_bytes,
        _ => 0,
    };
    match strategy {
        Strategy::RunToCompletion => registers.clear(),
        Strategy::Staged => {}
        Strategy::Auto => registers.retain(|r| bytes(r) > crate::PREFETCHED_BYTES_MIN),
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

    /// The packet has come to where it stops: prefetches the cells that are read from there on in this node, as far as it
    /// is known which, and goes on with the next packet.
    pub fn prefetch_ahead(&mut self, (node, at): Spot, ahead: &Ahead) -> Result<(), Error> {
        let insts = &self.flow.graph.block(self.program, node).insts;
        let mut assigned = Vec::new();
        for inst in &insts[at..] {
            if let Op::RegisterRead { register, index, .. } = &inst.op
                && is_read(inst, &ahead.registers)
                && index.slot().is_some_and(|slot| !assigned.contains(&slot))
            {
                // Beyond the last cell too: nothing is read.
                let (cell, ..) = self.register_cell(*register, index)?;
                self.prefetch(cell);
            }
            inst.op.for_each_def(self.program, |slot| assigned.push(slot));
        }
        self.b.ins().jump(self.next_packet, &[]);
        Ok(())
    }
}
