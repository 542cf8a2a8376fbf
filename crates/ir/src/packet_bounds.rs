//! Packet bounds analysis: how many bits after the cursor are known to be present, because `has_bits` has established
//! it on all paths.
//!
//! The verifier refuses extractions beyond the known bits; the optimiser removes checks whose result is known.
//! Conditions are tracked only if they reach their branch unchanged, by `mov`, or by `and`. Amounts known only at run
//! time are not checked: `has_bits` of one gives [`PacketBounds::TRUSTED`] bits, which cover any one extraction.
//!
//! The number of bits that a slot's value 1 implies is tracked within a block and, for slots that some block reads
//! before it writes them, across blocks.
//!
//! A forward dataflow analysis of one stage. Loops that consume known bits are widened to zero after a few iterations.
//!
//! Tests: `tests/verify.rs`, and the pass `length_checks` of `opt`.

use crate::flow::Cfg;
use crate::op::{BinOp, Op, Operand, Terminator};
use crate::program::{Program, Stage};
use base::ids::SlotId;
use std::collections::{HashSet, VecDeque};

/// The known state of the packet after the cursor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PacketBounds {
    /// Number of bits that are certainly present; [`PacketBounds::TRUSTED`] after a `has_bits` whose amount is known at
    /// run time only.
    pub bits: u64,
    /// If the slot is 1, this many bits are present.
    if_set: Vec<(SlotId, u64)>,
}

/// Iterations of a loop after which it is assumed to consume all known bits.
const ROUNDS_MAX: u32 = 8;

impl PacketBounds {
    /// More than any constant: an amount that is known at run time only.
    pub const TRUSTED: u64 = u64::MAX;

    fn meet(&mut self, other: &PacketBounds) -> bool {
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
            if *bits != PacketBounds::TRUSTED {
                *bits = bits.saturating_sub(amount);
            }
        };
        take(&mut self.bits);
        self.if_set.iter_mut().for_each(|(_, bits)| take(bits));
    }

    /// Updates the state by an operation's results, and returns the number of bits that it reads
    /// ([`PacketBounds::TRUSTED`] if known at run time only).
    pub fn step(&mut self, program: &Program, op: &Op) -> u64 {
        let amount = |o: &Operand| {
            o.constant().map_or(PacketBounds::TRUSTED, |c| c.to_u64().unwrap_or(PacketBounds::TRUSTED - 1))
        };
        let mut wanted = 0;
        let mut learned = None;
        match op {
            Op::HasBits { dst, bits } => {
                // Packets consist of whole bytes.
                let bits = amount(bits);
                learned = Some((
                    *dst,
                    if bits == PacketBounds::TRUSTED {
                        PacketBounds::TRUSTED
                    } else {
                        bits.div_ceil(8).saturating_mul(8)
                    },
                ));
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

    /// Moves the cursor if the operation does; `wanted` is what [`PacketBounds::step`] returned.
    pub fn advance(&mut self, op: &Op, wanted: u64) {
        if matches!(op, Op::Extract { .. } | Op::Advance { .. }) {
            if wanted == PacketBounds::TRUSTED {
                *self = PacketBounds::default();
            } else {
                self.consume(wanted);
            }
        }
    }
}

/// By block: the state at its start; `None` for unreachable blocks.
pub fn bounds_at_entry(program: &Program, stage: &Stage, cfg: &Cfg) -> Vec<Option<PacketBounds>> {
    let mut at_entry: Vec<Option<PacketBounds>> = vec![None; stage.blocks.len()];
    let mut rounds = vec![0u32; stage.blocks.len()];
    at_entry[Stage::START.index()] = Some(PacketBounds::default());
    let exposed = exposed(program, stage, cfg);
    let mut work = VecDeque::from([Stage::START]);
    while let Some(b) = work.pop_front() {
        let Some(mut bounds) = at_entry[b.index()].clone() else { continue };
        let block = &stage.blocks[b.index()];
        for inst in &block.insts {
            let wanted = bounds.step(program, &inst.op);
            bounds.advance(&inst.op, wanted);
        }
        let when_set = block.term.operand().and_then(Operand::slot).map_or(0, |s| bounds.when_set(s));
        for to in &cfg.succs[b.index()] {
            let mut bounds = PacketBounds {
                bits: bounds.bits,
                if_set: bounds.if_set.iter().filter(|(s, _)| exposed.contains(s)).copied().collect(),
            };
            if let Terminator::Branch { cond: Operand::Slot(_), then, other } = &block.term
                && then == to
                && then != other
            {
                bounds.bits = bounds.bits.max(when_set);
            }
            let changed = match &mut at_entry[to.index()] {
                Some(known) => known.meet(&bounds),
                unknown => {
                    *unknown = Some(bounds);
                    true
                }
            };
            if changed {
                if cfg.rpo_index[to.index()] <= cfg.rpo_index[b.index()] {
                    rounds[to.index()] += 1;
                    if rounds[to.index()] > ROUNDS_MAX {
                        at_entry[to.index()] = Some(PacketBounds::default());
                    }
                }
                work.push_back(*to);
            }
        }
    }
    at_entry
}

/// The slots that some block reads before it writes them.
fn exposed(program: &Program, stage: &Stage, cfg: &Cfg) -> HashSet<SlotId> {
    let mut exposed = HashSet::new();
    for b in &cfg.rpo {
        let block = &stage.blocks[b.index()];
        let mut written = HashSet::new();
        for inst in &block.insts {
            inst.op.for_each_use(program, |s| {
                if !written.contains(&s) {
                    exposed.insert(s);
                }
            });
            inst.op.for_each_def(program, |s| _ = written.insert(s));
        }
        exposed.extend(block.term.operand().and_then(Operand::slot).filter(|s| !written.contains(s)));
    }
    exposed
}
