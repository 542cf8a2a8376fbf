//! Decodes a stage of the IR into the code of one header action.

use super::{Block, End, Inst, Value, keeps_low_bits};
use crate::key::low;
use base::ids::{BlockId, SlotId, StageId, TableId};
use ir::layout::{RecordLayout, words_of};
use ir::{Op, Operand, Program, Stage, Terminator};
use std::collections::HashMap;

/// Maximum number of blocks of an action.
const BLOCKS_MAX: usize = 4096;

/// The blocks of a stage that are reachable if the table selects one action.
#[derive(Debug)]
pub struct Part<'a> {
    /// The action's position in the table.
    pub action: u32,
    /// The blocks; the first one is the entry.
    pub blocks: Vec<&'a ir::Block>,
    /// Successors of each block, as indices into `blocks`.
    pub successors: Vec<Vec<u32>>,
    /// Indices of blocks in `blocks`.
    places: HashMap<BlockId, u32>,
    /// Slots whose values follow from the table's lookup result.
    known: HashMap<SlotId, u64>,
}

impl Part<'_> {
    /// The successor of a block, if it does not depend on the record.
    pub fn decided(&self, block: &ir::Block) -> Option<BlockId> {
        let known = |operand: &Operand| match operand {
            Operand::Slot(slot) => self.known.get(slot).copied(),
            Operand::Const(bits) => bits.to_u64(),
        };
        match &block.term {
            Terminator::Jump(to) => Some(*to),
            Terminator::Branch { cond, then, other } => Some(if known(cond)? != 0 { *then } else { *other }),
            Terminator::Switch { on, cases, default } => {
                let on = known(on)?;
                let case = cases.iter().find(|(case, _)| case.to_u64() == Some(on));
                Some(case.map_or(*default, |(_, to)| *to))
            }
            Terminator::Next | Terminator::Finish(_) => None,
        }
    }

    /// The value of a slot, if it follows from the table's lookup result.
    pub fn answer(&self, slot: SlotId) -> Option<u64> {
        self.known.get(&slot).copied()
    }
}

/// Collects the blocks that are reachable when `table` selects `action`.
///
/// # Errors
/// If a block contains an operation that header actions do not support, or there are too many blocks.
pub fn reachable(program: &Program, stage: StageId, table: TableId, action: u32) -> Result<Part<'_>, String> {
    let stage = program.stages.get(stage.index()).ok_or("has no stage")?;
    let mut part = Part {
        action,
        blocks: Vec::new(),
        successors: Vec::new(),
        places: HashMap::new(),
        known: known(stage, table, action),
    };
    let mut waiting = vec![Stage::START];
    let mut ids = Vec::new();
    while let Some(id) = waiting.pop() {
        if part.places.contains_key(&id) {
            continue;
        }
        let block = stage.blocks.get(id.index()).ok_or("goes to a block that there is not")?;
        if part.blocks.len() == BLOCKS_MAX {
            return Err(format!("has more than {BLOCKS_MAX} blocks"));
        }
        part.places.insert(id, part.blocks.len() as u32);
        part.blocks.push(block);
        check(program, block, table)?;
        let to = match part.decided(block) {
            Some(to) => vec![to],
            None => targets(&block.term),
        };
        waiting.extend(to.iter().rev());
        ids.push(to);
    }
    part.successors = ids.iter().map(|to| to.iter().map(|id| part.places[id]).collect()).collect();
    Ok(part)
}

fn targets(term: &Terminator) -> Vec<BlockId> {
    match term {
        Terminator::Jump(to) => vec![*to],
        Terminator::Branch { then, other, .. } => vec![*then, *other],
        Terminator::Switch { cases, default, .. } => cases.iter().map(|(_, to)| *to).chain([*default]).collect(),
        Terminator::Next | Terminator::Finish(_) => Vec::new(),
    }
}

/// The lookup result, for slots that nothing else writes.
fn known(stage: &Stage, table: TableId, action: u32) -> HashMap<SlotId, u64> {
    let mut known = HashMap::new();
    let insts = || stage.blocks.iter().flat_map(|block| &block.insts);
    for inst in insts() {
        if let Op::Apply { table: this, hit, action: chosen, .. } = &inst.op
            && *this == table
        {
            known.insert(*hit, 1);
            known.insert(*chosen, u64::from(action));
        }
    }
    let mut writes: HashMap<SlotId, usize> = HashMap::new();
    for inst in insts() {
        match &inst.op {
            Op::Apply { hit, action, .. } => {
                [hit, action].into_iter().for_each(|slot| *writes.entry(*slot).or_insert(0) += 1)
            }
            op => {
                if let Some(dst) = destination(op) {
                    *writes.entry(dst).or_insert(0) += 1;
                }
            }
        }
    }
    known.retain(|slot, _| writes.get(slot) == Some(&1));
    known
}

/// The slot that an operation writes, for operations that pass [`check`].
pub fn destination(op: &Op) -> Option<SlotId> {
    match op {
        Op::Mov { dst, .. }
        | Op::Bin { dst, .. }
        | Op::Un { dst, .. }
        | Op::Cast { dst, .. }
        | Op::Concat { dst, .. }
        | Op::Slice { dst, .. }
        | Op::SetSlice { dst, .. }
        | Op::Select { dst, .. }
        | Op::ActionParam { dst, .. } => Some(*dst),
        _ => None,
    }
}

fn check(program: &Program, block: &ir::Block, table: TableId) -> Result<(), String> {
    for inst in &block.insts {
        let what = match &inst.op {
            Op::Apply { table: this, .. } if *this == table => continue,
            Op::ActionParam { table: this, dst, .. } if *this == table && program.width(*dst) <= 128 => continue,
            Op::SetValid { .. } | Op::SetInvalid { .. } | Op::Mark(_) | Op::Log { .. } => continue,
            Op::Charge { .. } => continue,
            op if destination(op).is_some() && !matches!(op, Op::ActionParam { .. }) => continue,
            Op::Apply { .. } => "applies a table",
            Op::ActionParam { .. } => "has a parameter of more than 128 bits",
            Op::Hash { .. } => "computes a hash",
            Op::Random { .. } => "takes a random number",
            Op::Count { .. } | Op::CountDirect { .. } | Op::Meter { .. } | Op::MeterDirect { .. } => "counts or meters",
            Op::RegisterRead { .. } | Op::RegisterWrite { .. } | Op::RegisterUpdate { .. } => "uses a register",
            Op::Emit { .. } | Op::Truncate { .. } => "deparses",
            Op::HasBits { .. }
            | Op::Extract { .. }
            | Op::Advance { .. }
            | Op::Lookahead { .. }
            | Op::Consumed { .. } => "parses",
            Op::Unresolved { callee, .. } => return Err(format!("calls `{callee}`")),
            _ => "does what needs more than the packet's headers",
        };
        return Err(format!("{what}, which a header action cannot do"));
    }
    match block.term {
        Terminator::Finish(_) => Err("ends the packet's processing, which a header action cannot do".to_string()),
        _ => Ok(()),
    }
}

/// Decodes a block that passed the check.
pub fn block(program: &Program, record: &RecordLayout, part: &Part<'_>, block: &ir::Block) -> Block {
    let decoder = Decoder { program, record, part };
    let insts = block.insts.iter().flat_map(|inst| decoder.inst(&inst.op)).collect();
    let place = |id: &BlockId| part.places[id];
    let end = match (part.decided(block), &block.term) {
        (Some(to), _) => End::Jump(place(&to)),
        (None, Terminator::Branch { cond, then, other }) => {
            End::Branch { cond: decoder.value(cond), then: place(then), other: place(other) }
        }
        (None, Terminator::Switch { on, cases, default }) if decoder.width(on) <= 64 => End::Switch {
            on: decoder.value(on),
            cases: cases.iter().map(|(case, to)| (case.to_u64().unwrap_or(0), place(to))).collect(),
            default: place(default),
        },
        (None, Terminator::Switch { on, cases, default }) => End::WideSwitch {
            on: on.clone(),
            cases: cases.iter().map(|(case, to)| (case.clone(), place(to))).collect(),
            default: place(default),
        },
        _ => End::Done,
    };
    let charges = block.insts.iter().map(|inst| if let Op::Charge { steps } = inst.op { u64::from(steps) } else { 0 });
    Block { insts, charge: charges.sum(), end }
}

struct Decoder<'a> {
    program: &'a Program,
    record: &'a RecordLayout,
    part: &'a Part<'a>,
}

impl Decoder<'_> {
    fn width(&self, operand: &Operand) -> u32 {
        match operand {
            Operand::Slot(slot) => self.program.width(*slot),
            Operand::Const(bits) => bits.width(),
        }
    }

    fn word(&self, slot: SlotId) -> u32 {
        self.record.offset(slot) as u32
    }

    /// Decodes an operand of at most 64 bits.
    fn value(&self, operand: &Operand) -> Value {
        match operand {
            Operand::Slot(slot) => self.part.answer(*slot).map_or(Value::Word(self.word(*slot)), Value::Const),
            Operand::Const(bits) => Value::Const(bits.to_u64().unwrap_or(0)),
        }
    }

    fn set(&self, slot: SlotId, value: u64) -> Inst {
        Inst::Mov { dst: self.word(slot), src: Value::Const(value) }
    }

    fn inst(&self, op: &Op) -> Vec<Inst> {
        let zero = |slot: SlotId| Inst::Zero { from: self.word(slot), words: words_of(self.program.width(slot)) };
        match op {
            Op::Apply { hit, action, entry, data, .. } => {
                let chosen = u64::from(self.part.action);
                return vec![self.set(*hit, 1), self.set(*action, chosen), self.set(*entry, 0), self.set(*data, 0)];
            }
            Op::SetValid { header } => return vec![self.set(self.program.headers[header.index()].valid, 1)],
            Op::SetInvalid { header } => {
                let header = &self.program.headers[header.index()];
                let fields = header.fields.iter().flat_map(|field| [Some(field.slot), field.varbit_length]);
                return fields.flatten().chain([header.valid]).map(zero).collect();
            }
            Op::ActionParam { dst, param, .. } => {
                let width = self.program.width(*dst);
                let param = *param as usize;
                return vec![Inst::Param { dst: self.word(*dst), words: words_of(width), param, width }];
            }
            _ => {}
        }
        let Some(slot) = destination(op) else { return Vec::new() };
        let width = self.program.width(slot);
        let mut widest = width;
        op.for_each_operand(|operand| widest = widest.max(self.width(operand)));
        if widest > 64 {
            return vec![Inst::Wide { op: Box::new(op.clone()), dst: slot, width }];
        }
        let dst = self.word(slot);
        let inst = match op {
            Op::Mov { src, .. } => Inst::Mov { dst, src: self.value(src) },
            Op::Bin { op, a, b, .. } => {
                Inst::Bin { op: *op, dst, a: self.value(a), b: self.value(b), width: self.width(a) }
            }
            Op::Un { op, a, .. } => Inst::Un { op: *op, dst, a: self.value(a), width },
            Op::Cast { kind, a, .. } if keeps_low_bits(*kind) => {
                Inst::Extract { dst, a: self.value(a), shift: 0, mask: low(width) }
            }
            Op::Cast { a, .. } => Inst::Sext { dst, a: self.value(a), from: self.width(a), to: width },
            Op::Concat { hi, lo, .. } => {
                Inst::Concat { dst, hi: self.value(hi), lo: self.value(lo), shift: self.width(lo) }
            }
            Op::Slice { a, hi, lo, .. } => Inst::Extract { dst, a: self.value(a), shift: *lo, mask: low(hi - lo + 1) },
            Op::SetSlice { hi, lo, a, .. } => {
                Inst::SetSlice { dst, a: self.value(a), shift: *lo, mask: low(hi - lo + 1) << lo }
            }
            Op::Select { cond, then, other, .. } => {
                Inst::Select { dst, cond: self.value(cond), then: self.value(then), other: self.value(other) }
            }
            _ => return Vec::new(),
        };
        vec![inst]
    }
}
