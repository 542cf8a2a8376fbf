//! The two rules that hold along paths: temporaries are assigned before they are read, and parsers ask for room.

use crate::flow::Cfg;
use crate::op::{BinOp, Op, Operand, Terminator};
use crate::program::{Program, SlotKind, Stage};
use base::ids::{BlockId, SlotId};
use std::collections::{HashMap, HashSet, VecDeque};

/// Called with block, instruction (`None`: terminator), code, message.
type Report<'a> = dyn FnMut(usize, Option<usize>, &'static str, String) + 'a;

/// Every temporary is assigned before it is read on every path from the stage's start.
///
/// Most temporaries live within one block, so only those read before they are assigned in some block (the *exposed*
/// ones) get a bit in the sets that flow between blocks.
pub(super) fn temporaries(program: &Program, stage: &Stage, cfg: &Cfg, report: &mut Report<'_>) {
    let is_temp = |s: SlotId| program.slots[s.index()].kind == SlotKind::Temp;
    let mut exposed: HashMap<SlotId, usize> = HashMap::new();
    for b in &cfg.rpo {
        let mut defined = HashSet::new();
        walk(program, stage, *b, &mut |_, slot, is_def| {
            if !is_temp(slot) {
                return;
            }
            if is_def {
                defined.insert(slot);
            } else if !defined.contains(&slot) {
                let number = exposed.len();
                exposed.entry(slot).or_insert(number);
            }
        });
    }
    if exposed.is_empty() {
        return;
    }
    let words = exposed.len().div_ceil(64);
    let mut defs = vec![Vec::new(); stage.blocks.len()];
    for b in &cfg.rpo {
        let set = &mut defs[b.index()];
        set.resize(words, 0u64);
        walk(program, stage, *b, &mut |_, slot, is_def| {
            if let (true, Some(i)) = (is_def, exposed.get(&slot)) {
                set[i / 64] |= 1 << (i % 64);
            }
        });
    }
    let assigned = assigned_at_entry(cfg, &defs, words);
    for b in &cfg.rpo {
        let mut set = assigned[b.index()].clone();
        walk(program, stage, *b, &mut |inst, slot, is_def| {
            let Some(i) = exposed.get(&slot) else { return };
            let bit = 1 << (i % 64);
            if !is_def && set[i / 64] & bit == 0 {
                let name = &program.slots[slot.index()].name;
                let message = format!("the temporary `{name}` is read, but not assigned on every path to here");
                report(b.index(), inst, "E0730", message);
            }
            set[i / 64] |= bit;
        });
    }
}

/// By block: what all paths to it assign. Starts from everything and takes away until nothing changes.
fn assigned_at_entry(cfg: &Cfg, defs: &[Vec<u64>], words: usize) -> Vec<Vec<u64>> {
    let mut at_entry = vec![vec![u64::MAX; words]; defs.len()];
    at_entry[Stage::START.index()] = vec![0; words];
    let mut work: VecDeque<BlockId> = cfg.rpo.iter().copied().collect();
    let mut queued = vec![true; defs.len()];
    while let Some(b) = work.pop_front() {
        queued[b.index()] = false;
        let out: Vec<u64> = at_entry[b.index()].iter().zip(&defs[b.index()]).map(|(a, d)| a | d).collect();
        for to in &cfg.succs[b.index()] {
            let mut changed = false;
            for (word, out) in at_entry[to.index()].iter_mut().zip(&out) {
                changed |= *word & !out != 0;
                *word &= out;
            }
            if changed && !std::mem::replace(&mut queued[to.index()], true) {
                work.push_back(*to);
            }
        }
    }
    at_entry
}

/// Calls `f(instruction, slot, is_def)` for all uses and definitions of a block in order.
fn walk(program: &Program, stage: &Stage, block: BlockId, f: &mut dyn FnMut(Option<usize>, SlotId, bool)) {
    let block = &stage.blocks[block.index()];
    for (i, inst) in block.insts.iter().enumerate() {
        inst.op.for_each_use(program, |s| f(Some(i), s, false));
        inst.op.for_each_def(program, |s| f(Some(i), s, true));
    }
    if let Some(Operand::Slot(s)) = block.term.operand() {
        f(None, *s, false);
    }
}

/// What is known about the packet behind the cursor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Room {
    /// So many bits are there for sure; `TRUSTED` after a `has_bits` whose amount is known at run time only.
    bits: u64,
    /// If the slot is 1, that many bits are there.
    if_set: Vec<(SlotId, u64)>,
}

const TRUSTED: u64 = u64::MAX;

/// Rounds of a loop after which it is taken to have used up everything.
const ROUNDS_MAX: u32 = 8;

impl Room {
    fn meet(&mut self, other: &Room) -> bool {
        let before = self.clone();
        self.bits = self.bits.min(other.bits);
        self.if_set.retain_mut(|(slot, bits)| match other.if_set.iter().find(|(s, _)| s == slot) {
            Some((_, theirs)) => {
                *bits = (*bits).min(*theirs);
                true
            }
            None => false,
        });
        *self != before
    }

    fn when_set(&self, slot: SlotId) -> u64 {
        self.if_set.iter().find(|(s, _)| *s == slot).map_or(0, |(_, bits)| *bits)
    }

    fn consume(&mut self, amount: u64) {
        let take = |bits: &mut u64| {
            if *bits != TRUSTED {
                *bits = bits.saturating_sub(amount);
            }
        };
        take(&mut self.bits);
        self.if_set.iter_mut().for_each(|(_, bits)| take(bits));
    }

    /// The effect of an operation, and the bits it wants (`TRUSTED`: an amount known at run time only).
    fn step(&mut self, program: &Program, op: &Op) -> u64 {
        let amount = |o: &Operand| o.constant().map_or(TRUSTED, |c| c.to_u64().unwrap_or(TRUSTED - 1));
        let mut wanted = 0;
        let mut learned = None;
        match op {
            Op::HasBits { dst, bits } => {
                // Whole bytes are there or not.
                let bits = amount(bits);
                learned = Some((*dst, if bits == TRUSTED { TRUSTED } else { bits.div_ceil(8).saturating_mul(8) }));
            }
            Op::Mov { dst, src: Operand::Slot(s) } => learned = Some((*dst, self.when_set(*s))),
            Op::Bin { op: BinOp::And, dst, a, b } => {
                let known = [a, b].into_iter().filter_map(|o| o.slot()).map(|s| self.when_set(s)).max();
                learned = known.map(|bits| (*dst, bits));
            }
            Op::Lookahead { dst, offset } => wanted = u64::from(*offset) + u64::from(program.width(*dst)),
            Op::Extract { header, varbit_bits } => {
                let fields = &program.headers[header.index()].fields;
                let fixed = fields.iter().filter(|f| f.varbit_length.is_none());
                let fixed: u64 = fixed.map(|f| u64::from(program.width(f.slot))).sum();
                wanted = fixed.saturating_add(varbit_bits.as_ref().map_or(0, amount));
            }
            Op::Advance { bits } => wanted = amount(bits),
            _ => {}
        }
        op.for_each_def(program, |s| self.if_set.retain(|(slot, _)| *slot != s));
        if let Some((slot, bits)) = learned.filter(|(_, bits)| *bits > 0) {
            self.if_set.push((slot, bits));
        }
        wanted
    }

    /// Moves the cursor if the operation does.
    fn advance(&mut self, op: &Op, wanted: u64) {
        if matches!(op, Op::Extract { .. } | Op::Advance { .. }) {
            if wanted == TRUSTED {
                *self = Room::default();
            } else {
                self.consume(wanted);
            }
        }
    }
}

/// Nothing is taken from the packet that no `has_bits` has vouched for.
pub(super) fn room(program: &Program, stage: &Stage, cfg: &Cfg, report: &mut Report<'_>) {
    let mut at_entry: Vec<Option<Room>> = vec![None; stage.blocks.len()];
    let mut rounds = vec![0u32; stage.blocks.len()];
    at_entry[Stage::START.index()] = Some(Room::default());
    let mut work = VecDeque::from([Stage::START]);
    while let Some(b) = work.pop_front() {
        let Some(mut room) = at_entry[b.index()].clone() else { continue };
        let block = &stage.blocks[b.index()];
        for inst in &block.insts {
            let wanted = room.step(program, &inst.op);
            room.advance(&inst.op, wanted);
        }
        for to in &cfg.succs[b.index()] {
            let mut room = room.clone();
            if let Terminator::Branch { cond: Operand::Slot(s), then, other } = &block.term
                && then == to
                && then != other
            {
                room.bits = room.bits.max(room.when_set(*s));
            }
            let changed = match &mut at_entry[to.index()] {
                Some(known) => known.meet(&room),
                unknown => {
                    *unknown = Some(room);
                    true
                }
            };
            if changed {
                if cfg.rpo_index[to.index()] <= cfg.rpo_index[b.index()] {
                    rounds[to.index()] += 1;
                    if rounds[to.index()] > ROUNDS_MAX {
                        at_entry[to.index()] = Some(Room::default());
                    }
                }
                work.push_back(*to);
            }
        }
    }
    for b in &cfg.rpo {
        let Some(mut room) = at_entry[b.index()].clone() else { continue };
        for (i, inst) in stage.blocks[b.index()].insts.iter().enumerate() {
            let wanted = room.step(program, &inst.op);
            if wanted > room.bits {
                let message = if wanted == TRUSTED {
                    "takes an amount of bits that no `has_bits` asked for".to_string()
                } else {
                    format!("takes {wanted} bits, but only {} are known to be there", room.bits)
                };
                report(b.index(), Some(i), "E0731", message);
            }
            room.advance(&inst.op, wanted);
        }
    }
}
