//! An entry point as one function: the packet loop, stages, terminators and fates.
//!
//! The function `fn(ctx, batch)` iterates over the batch's descriptors. For each packet, all stages of the entry point
//! follow one another in the same body. Blocks are lowered in reverse postorder, so all predecessors of a block are
//! known when it is lowered, except for back edges to loop heads.
//!
//! At [`EntryKind::Ingress`] slots are zero except intrinsics, which come from the descriptor and the batch. All other
//! entry points load every slot from the packet's record, which the replication engine has filled.

use crate::build::{At, Lowering, Shared, Vars};
use crate::emission::Deparser;
use crate::error::Error;
use crate::locks::Locks;
use crate::ssa::{Place, Ssa};
use crate::value::{Val, const_words};
use abi::{Batch, FateCode, PacketDesc};
use ir::layout::{RecordLayout, words_of};
use ir::{
    Again, AtReingress, BlockId, Cfg, EntryKind, EntryPoint, Fate, Intrinsic, Operand, Program, ReplicationPoint,
    SlotId, Stage, StageKind, Terminator,
};
use mir::{Block, Condition, Edge, Function, Region, Type, Value};
use std::collections::HashMap;
use std::mem::offset_of;

/// The number by which descriptors denote a replication point.
fn point_number(point: ReplicationPoint) -> u32 {
    match point {
        ReplicationPoint::IngressEnd => 0,
        ReplicationPoint::EgressEnd => 1,
        ReplicationPoint::DeparseEnd => 2,
        ReplicationPoint::FrameEnd => 3,
    }
}

/// Which slots an entry point touches; all of them if it writes a record.
fn touched(program: &Program, entry: &EntryPoint) -> Vec<bool> {
    let mut touched = vec![false; program.slots.len()];
    let mut touch = |slot: SlotId| touched[slot.index()] = true;
    let mut fills_record = false;
    for block in entry.stages.iter().flat_map(|stage| &program.stages[stage.index()].blocks) {
        for inst in &block.insts {
            inst.op.for_each_use(program, &mut touch);
            inst.op.for_each_def(program, &mut touch);
            if let ir::Op::Emit { header } | ir::Op::SetValid { header } = &inst.op {
                ir::flow::for_each_header_slot(program, *header, &mut touch);
            }
        }
        block.term.operand().and_then(Operand::slot).into_iter().for_each(&mut touch);
        fills_record |= matches!(block.term, Terminator::Finish(Fate::Replicate(_) | Fate::Again { .. }));
    }
    if fills_record { vec![true; touched.len()] } else { touched }
}

impl<'a> Lowering<'a> {
    /// With `definitions_max`, slots are SSA variables, up to that number of definitions; without, they are kept in
    /// memory.
    pub fn new(shared: Shared<'a>, entry: &'a EntryPoint, definitions_max: Option<usize>) -> Lowering<'a> {
        let Shared { program, bindings, headers, calls, sites } = shared;
        let mut function = Function::new(entry.kind.name(), &[Type::I64, Type::I64], None);
        let (start, batch) = (function.entry(), function.params()[1]);
        let mut ssa = Ssa::new(definitions_max);
        let mut var = || ssa.declare(Type::I64);
        let vars = Vars { data: var(), len: var(), cursor: var(), truncate: var(), emitted: var(), spent: var() };
        let frame = function.add_slot(0, 16);
        let mut lowering = Lowering {
            program,
            bindings,
            headers,
            entry,
            calls,
            sites,
            record: RecordLayout::new(program),
            in_memory: definitions_max.is_none(),
            ctx: function.params()[0],
            now_us: batch,
            packet: batch,
            entry_len: batch,
            function,
            ssa,
            vars,
            places: vec![None; program.slots.len()],
            block: start,
            constants: HashMap::new(),
            next_packet: start,
            current: (0, Stage::START, 0),
            span: base::Span::default(),
            frame,
            buffers: [None; 5],
            locks: Locks::default(),
            deparser: Deparser::default(),
        };
        lowering.place_slots();
        lowering
    }

    /// Assigns each slot a variable or memory in the frame.
    fn place_slots(&mut self) {
        let mut bytes = 0;
        for (i, _) in touched(self.program, self.entry).into_iter().enumerate().filter(|(_, touched)| *touched) {
            let width = self.program.slots[i].width;
            self.places[i] = Some(match Self::class(width) {
                Some(ty) if !self.in_memory => Place::Var(self.ssa.declare(ty)),
                _ => {
                    let at = bytes;
                    bytes += 8 * words_of(width).max(1);
                    Place::Memory(at)
                }
            });
        }
        self.function.slots[self.frame.index()].bytes = bytes;
    }

    /// Lowers the whole entry point.
    pub fn entry(&mut self) -> Result<(), Error> {
        let (program, entry, bindings) = (self.program, self.entry, self.bindings);
        self.locks = Locks::new(program, entry, bindings, || self.ssa.declare(Type::I64))?;
        let batch = self.function.params()[1];
        self.ssa.seal(self.block);
        let count = self.load_le(Region::Descriptor, 4, batch, offset_of!(Batch, count) as u32);
        self.now_us = self.load_le(Region::Descriptor, 8, batch, offset_of!(Batch, now_us) as u32);
        let first = self.add_imm(batch, offset_of!(Batch, packets) as u64);
        let bytes = self.bin_imm(mir::Binary::Mul, count, size_of::<PacketDesc>() as u128);
        let end = self.add(first, bytes);
        let [head, exit, next_packet] = [(); 3].map(|()| self.new_block());
        self.next_packet = next_packet;
        self.packet = self.function.add_param(head, Type::I64);
        let none = self.compare(Condition::Eq, first, end);
        self.end(mir::Terminator::Branch(none, Edge::cold(exit), Edge::new(head, vec![first])));

        self.switch_to_open(head);
        self.start_packet();
        self.stages()?;

        self.switch_to(next_packet);
        let next = self.add_imm(self.packet, size_of::<PacketDesc>() as u64);
        let over = self.compare(Condition::Eq, next, end);
        self.end(mir::Terminator::Branch(over, Edge::new(exit, Vec::new()), Edge::new(head, vec![next])));
        self.ssa.seal(head);
        self.switch_to(exit);
        self.end(mir::Terminator::Return(None));
        self.ssa.finish(&mut self.function);
        Ok(())
    }

    /// The finished function.
    ///
    /// # Errors
    /// [`Error::Limit`] if its stack slots or its instructions exceed the limits.
    pub fn finish(self) -> Result<Function, Error> {
        let name = self.entry.kind.name();
        let check = |what: &str, found: u64, max: u64| match found <= max {
            true => Ok(()),
            false => Err(Error::Limit { what: format!("{what} of entry `{name}`"), found, max }),
        };
        let bytes = self.function.slots.iter().map(|slot| u64::from(slot.bytes)).sum();
        check("stack bytes", bytes, crate::STACK_BYTES_MAX.into())?;
        check("instructions", self.function.instructions() as u64, crate::INSTRUCTIONS_MAX as u64)?;
        Ok(self.function)
    }

    /// Initialises all variables and slots for a packet.
    fn start_packet(&mut self) {
        let data = self.load_desc(offset_of!(PacketDesc, data), 8);
        let len = self.load_desc(offset_of!(PacketDesc, len), 4);
        let zero = self.word(0);
        let cursor = match self.entry.kind {
            EntryKind::Ingress => zero,
            _ => self.load_desc(offset_of!(PacketDesc, consumed), 4),
        };
        self.entry_len = len;
        let Vars { data: data_var, len: len_var, cursor: cursor_var, truncate, emitted, spent } = self.vars;
        for (var, value) in
            [(data_var, data), (len_var, len), (cursor_var, cursor), (truncate, zero), (emitted, zero), (spent, zero)]
        {
            self.write_var(var, value);
        }
        self.init_locks();
        let record = match self.entry.kind {
            EntryKind::Ingress => None,
            _ => Some(self.load_desc(offset_of!(PacketDesc, record), 8)),
        };
        for slot in (0..self.places.len()).map(SlotId::from_index) {
            if self.places[slot.index()].is_none() {
                continue;
            }
            let width = self.program.width(slot);
            let val = match record {
                Some(base) => {
                    let offset = 8 * self.record.offset(slot) as u32;
                    self.load_val(Region::Record, width, At { base, offset })
                }
                None => self.zero_val(width),
            };
            self.write_slot(slot, &val);
        }
        if self.entry.kind == EntryKind::Ingress {
            self.set_intrinsics();
        }
    }

    /// Sets the intrinsics of a received packet.
    fn set_intrinsics(&mut self) {
        for &(which, slot) in &self.program.intrinsics {
            let value = match which {
                _ if self.places[slot.index()].is_none() => continue,
                Intrinsic::IngressPort => self.load_desc(offset_of!(PacketDesc, ingress_port), 4),
                Intrinsic::PacketLength => self.entry_len,
                Intrinsic::IngressTimestamp => self.load_desc(offset_of!(PacketDesc, timestamp_us), 8),
                Intrinsic::InstanceType => self.word(self.program.instance_types.normal),
                _ => continue,
            };
            self.write_number(slot, value);
        }
    }

    fn stages(&mut self) -> Result<(), Error> {
        let entry = self.entry;
        let mut first = self.new_block();
        self.jump(first, Vec::new());
        for (position, stage) in entry.stages.iter().enumerate() {
            let stage = &self.program.stages[stage.index()];
            self.switch_to(first);
            match self.stage(position, stage)? {
                Some(next) => first = next,
                None => break,
            }
        }
        Ok(())
    }

    /// Lowers a stage. Returns the block in which the next stage begins, or `None` if no path leads there.
    fn stage(&mut self, position: usize, stage: &Stage) -> Result<Option<Block>, Error> {
        match stage.kind {
            StageKind::Parser => {
                let zero = self.word(0);
                self.write_var(self.vars.cursor, zero);
            }
            StageKind::Deparser => self.enter_deparser(stage),
            StageKind::Control => {}
        }
        let cfg = Cfg::new(stage);
        let heads = cfg.loop_heads();
        let blocks: HashMap<BlockId, Block> = cfg.rpo.iter().map(|block| (*block, self.new_block())).collect();
        self.jump(blocks[&Stage::START], Vec::new());
        // The block in which all paths to the next stage meet.
        let mut end = None;
        for &id in &cfg.rpo {
            let code = &stage.blocks[id.index()];
            match heads[id.index()] {
                true => self.switch_to_open(blocks[&id]),
                false => self.switch_to(blocks[&id]),
            }
            self.current = (position, id, 0);
            self.release_at_start();
            for (i, inst) in code.insts.iter().enumerate() {
                (self.current, self.span) = ((position, id, i), inst.span);
                self.op(inst)?;
            }
            self.terminator(stage.kind, &code.term, &blocks, &mut end)?;
        }
        for &id in cfg.rpo.iter().filter(|id| heads[id.index()]) {
            self.ssa.seal(blocks[&id]);
        }
        let Some(end) = end else { return Ok(None) };
        self.switch_to(end);
        self.current = (position + 1, Stage::START, 0);
        self.leave_stage(stage.kind)?;
        let next = self.new_block();
        self.jump(next, Vec::new());
        Ok(Some(next))
    }

    /// Charges loop steps; a packet that exceeds [`ir::STEPS_MAX`] is dropped, so that no program blocks a worker.
    pub fn charge(&mut self, steps: u32) {
        let spent = self.read_var(self.vars.spent);
        let spent = self.add_imm(spent, steps.into());
        self.write_var(self.vars.spent, spent);
        let over = self.compare_imm(Condition::Ugt, spent, ir::STEPS_MAX);
        self.branch_cold_if(over, |l| l.finish_packet(FateCode::Endless, 0));
    }

    fn terminator(
        &mut self,
        kind: StageKind,
        term: &Terminator,
        blocks: &HashMap<BlockId, Block>,
        end: &mut Option<Block>,
    ) -> Result<(), Error> {
        match term {
            Terminator::Jump(to) => self.jump(blocks[to], Vec::new()),
            Terminator::Branch { cond, then, other } => {
                let cond = self.read_word(cond);
                let truth = self.truth(cond);
                self.branch(truth, blocks[then], blocks[other]);
            }
            Terminator::Switch { on, cases, default } => {
                let cases: Vec<_> = cases.iter().map(|(value, to)| (value, blocks[to])).collect();
                self.switch(on, &cases, blocks[default]);
            }
            Terminator::Next => {
                let end = match *end {
                    Some(end) => end,
                    None => *end.insert(self.new_block()),
                };
                self.jump(end, Vec::new());
            }
            Terminator::Finish(Fate::Drop(reason)) => self.finish_packet(FateCode::Drop, *reason),
            Terminator::Finish(Fate::Send(to)) => self.leave_for(FateCode::Send, to, kind)?,
            Terminator::Finish(Fate::Multicast(group)) => self.leave_for(FateCode::Multicast, group, kind)?,
            Terminator::Finish(Fate::Replicate(point)) => {
                self.leave_stage(kind)?;
                self.fill_record();
                self.finish_packet(FateCode::Replicate, point_number(*point));
            }
            Terminator::Finish(Fate::Again { why, list }) => {
                self.leave_stage(kind)?;
                self.begin_again(*why, *list);
                self.fill_record();
                self.finish_packet(FateCode::Again, 0);
            }
        }
        Ok(())
    }

    /// Ends the packet: it is sent to a port or a multicast group.
    fn leave_for(&mut self, fate: FateCode, to: &Operand, kind: StageKind) -> Result<(), Error> {
        let to = self.read_word(to);
        self.leave_stage(kind)?;
        self.store_desc(offset_of!(PacketDesc, egress_port), 4, to);
        self.finish_packet(fate, 0);
        Ok(())
    }

    fn switch(&mut self, on: &Operand, cases: &[(&base::Bits, Block)], default: Block) {
        let val = self.read(on);
        if let Val::Word(word) = val {
            let edge = |(value, to): &(&base::Bits, Block)| (const_words(value)[0], Edge::new(*to, Vec::new()));
            let cases = cases.iter().map(edge).collect();
            return self.end(mir::Terminator::Switch(word, cases, Edge::new(default, Vec::new())));
        }
        let words = self.words_of_val(&val);
        for (value, to) in cases {
            let value: Vec<Value> = const_words(value).into_iter().map(|word| self.word(word)).collect();
            let difference = self.difference(&words, &value);
            let same = self.compare_imm(Condition::Eq, difference, 0);
            let other = self.new_block();
            self.branch(same, *to, other);
            self.switch_to(other);
        }
        self.jump(default, Vec::new());
    }

    /// Adds the steps that the packet has spent beyond [`ir::cost::FREE_STEPS`] to the batch's sum.
    fn add_spent(&mut self) {
        let (batch, at) = (self.function.params()[1], offset_of!(Batch, spent) as u32);
        let (spent, spared) = (self.read_var(self.vars.spent), self.word(ir::cost::FREE_STEPS));
        let is_more = self.compare(Condition::Ugt, spent, spared);
        let counted = self.select(is_more, spent, spared);
        let counted = self.bin(mir::Binary::Sub, counted, spared);
        let before = self.load_le(Region::Descriptor, 4, batch, at);
        let sum = self.add(before, counted);
        self.store_le(Region::Descriptor, 4, batch, at, sum);
    }

    /// Writes the packet's fate and continues with the next packet.
    pub fn finish_packet(&mut self, fate: FateCode, arg: u32) {
        self.release_at_end();
        if ir::cost::is_charged(self.program, self.entry) {
            self.add_spent();
        }
        let cursor = self.read_var(self.vars.cursor);
        let (fate, arg) = (self.word(u64::from(fate as u32)), self.word(arg.into()));
        self.store_desc(offset_of!(PacketDesc, consumed), 4, cursor);
        self.store_desc(offset_of!(PacketDesc, fate), 4, fate);
        self.store_desc(offset_of!(PacketDesc, fate_arg), 4, arg);
        self.jump(self.next_packet, Vec::new());
    }

    /// Sets all slots to their values at `Reingress`.
    fn begin_again(&mut self, why: Again, list: Option<u64>) {
        let values = self.program.at_reingress(why, list);
        for slot in (0..self.places.len()).map(SlotId::from_index) {
            let number = match values.get(&slot) {
                Some(AtReingress::Kept) => continue,
                None => self.word(0),
                Some(AtReingress::IngressPort) => self.load_desc(offset_of!(PacketDesc, ingress_port), 4),
                Some(AtReingress::Timestamp) => self.load_desc(offset_of!(PacketDesc, timestamp_us), 8),
                Some(AtReingress::Length) => self.load_desc(offset_of!(PacketDesc, len), 4),
                Some(AtReingress::Number(number)) => self.word(*number),
            };
            self.write_number(slot, number);
        }
    }

    /// Stores all slots to the record.
    fn fill_record(&mut self) {
        let base = self.load_desc(offset_of!(PacketDesc, record), 8);
        for slot in (0..self.places.len()).map(SlotId::from_index) {
            let val = self.read_slot(slot);
            let offset = 8 * self.record.offset(slot) as u32;
            self.store_val(Region::Record, &val, At { base, offset });
        }
    }
}
