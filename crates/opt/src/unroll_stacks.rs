//! Parser loops over header stacks, unrolled: a copy of their states for each element.
//!
//! Needs: a well-formed program. Guarantees: same behaviour. Where a loop of a parser counts a stack's `nextIndex`, the
//! blocks are copied for each value of it, so that the element that is extracted, `last` and the bounds are known.
//!
//! ```text
//! b1: %0 = ult s.$next, 32w2                          b1: branch has_bits ... (s.$next is 0)
//!     branch %0, b2, b9                                   extract s[0]; s.$next = mov 32w1
//! b2: switch s.$next, 32w0 -> b3, default -> b4    =>     branch s[0].more, b2, b8
//! b3: extract s[0]; s.$next = mov 32w1; jump b5       b2: extract s[1]; s.$next = mov 32w2
//! b4: extract s[1]; s.$next = mov 32w2; jump b5           branch s[1].more, b9, b8
//! b5: (select of the last element), b1, b8
//! ```
//!
//! Copying blocks for the values of a variable is polyvariant specialisation (Jones, Gomard, Sestoft, "Partial
//! evaluation and automatic program generation", 1993, chapter 4). Which values are told apart ends where nothing in
//! the stage asks for them any more, so states behind the loop are not copied.
//!
//! **Bounds.** [`EXAMINED_MAX`] operations are looked at, and [`KEPT_MAX`] may come out; a stage that needs more stays
//! as it is. So does one of which a loop remains. Copies keep what loops are charged with; `small_charges` takes away
//! what does not matter.
//!
//! Tests: `tests/files/unroll_stacks.ir`, `tests/properties.rs`.

use base::Bits;
use base::ids::{BlockId, SlotId, StageId};
use ir::{BinOp, BitSet, Block, Cfg, Inst, Op, Operand, Program, SlotKind, Stage, StageKind, Terminator};
use std::collections::{BTreeSet, HashMap};

/// Operations of all copies of a stage, and values that are carried to them: some tens of milliseconds.
const EXAMINED_MAX: usize = 1 << 20;
/// A value that is carried to a copy counts as so many operations: it is kept until the end.
const CARRIED_WEIGHT: usize = 8;
/// Operations, terminators and cases of a stage that is unrolled: the passes behind and code generation take time by
/// the size of the program. Chosen, not measured.
const KEPT_MAX: usize = 1 << 13;

/// Runs the pass; whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let mut unrolled: HashMap<StageId, Vec<Block>> = HashMap::new();
    for (s, stage) in program.stages.iter().enumerate() {
        let cfg = Cfg::new(stage);
        if !cfg.loop_heads().contains(&true) {
            continue;
        }
        if stage.kind == StageKind::Parser
            && let Some(blocks) = Unrolling::new(program, stage, &cfg).run()
        {
            unrolled.insert(StageId::from_index(s), blocks);
        }
    }
    let changed = !unrolled.is_empty();
    unrolled.into_iter().for_each(|(stage, blocks)| program.stages[stage.index()].blocks = blocks);
    changed
}

/// A block, and the value of each counter at its start as far as it is known and asked for.
type State = (BlockId, Vec<Option<Bits>>);

struct Unrolling<'p> {
    program: &'p Program,
    stage: &'p Stage,
    /// `nextIndex` of the stacks that loops count (or another part of the packet's headers that they set to constants
    /// and compare).
    counters: Vec<SlotId>,
    /// By block and counter: whether the value at its start may be asked for in the stage.
    live: Vec<Vec<bool>>,
    /// Temporaries that are read in another block than the one that assigns them.
    crossing: BitSet,
    /// The copies: by state, where it is in `blocks`; those that have no content yet.
    numbers: HashMap<State, BlockId>,
    worklist: Vec<State>,
    /// See [`EXAMINED_MAX`].
    examined: usize,
}

/// How much a block is: its operations, and where it leads.
fn size(insts: &[Inst], term: &Terminator) -> usize {
    let cases = if let Terminator::Switch { cases, .. } = term { cases.len() } else { 0 };
    insts.len() + 1 + cases
}

impl<'p> Unrolling<'p> {
    fn new(program: &'p Program, stage: &'p Stage, cfg: &Cfg) -> Unrolling<'p> {
        let mut counters = counters(program, stage, cfg);
        if counters.len() * stage.blocks.len() > EXAMINED_MAX {
            counters.clear();
        }
        let live = live(program, stage, cfg, &counters);
        let crossing = crossing(program, stage);
        Unrolling {
            program,
            stage,
            counters,
            live,
            crossing,
            numbers: HashMap::new(),
            worklist: Vec::new(),
            examined: 0,
        }
    }

    /// The stage's blocks without loops; `None` if that cannot be, or would be too much.
    fn run(mut self) -> Option<Vec<Block>> {
        if self.counters.is_empty() {
            return None;
        }
        let mut kept = 0;
        let mut blocks: Vec<Block> = Vec::new();
        self.number(Stage::START, &HashMap::new());
        let mut next = 0;
        while let Some(state) = self.worklist.get(next).cloned() {
            next += 1;
            let old = &self.stage.blocks[state.0.index()];
            self.examined += size(&old.insts, &old.term);
            if self.examined > EXAMINED_MAX {
                return None;
            }
            let block = self.copy(&state);
            kept += size(&block.insts, &block.term);
            if self.examined > EXAMINED_MAX || kept > KEPT_MAX {
                return None;
            }
            blocks.push(block);
        }
        let unrolled = Stage { blocks, ..self.stage.clone() };
        let has_loop = Cfg::new(&unrolled).loop_heads().contains(&true);
        (!has_loop).then_some(unrolled.blocks)
    }

    /// The number of a block's copy for what is known when it begins.
    fn number(&mut self, block: BlockId, known: &HashMap<SlotId, Bits>) -> BlockId {
        let value = |(counter, live): (&SlotId, &bool)| known.get(counter).filter(|_| *live).cloned();
        let values = self.counters.iter().zip(&self.live[block.index()]).map(value).collect();
        self.examined += 1 + self.counters.len();
        let (next, state) = (BlockId::from_index(self.numbers.len()), (block, values));
        *self.numbers.entry(state).or_insert_with_key(|state| {
            self.examined += CARRIED_WEIGHT * state.1.len();
            self.worklist.push(state.clone());
            next
        })
    }

    /// A block with what is known written into it, as far as that leaves operations out.
    fn copy(&mut self, (block, values): &State) -> Block {
        let old = &self.stage.blocks[block.index()];
        let counters = self.counters.iter().copied().zip(values.iter().cloned());
        let mut known: HashMap<SlotId, Bits> = counters.filter_map(|(s, value)| Some((s, value?))).collect();
        // What is a copy of which slot, and the other way round.
        let mut copies: HashMap<SlotId, SlotId> = HashMap::new();
        let mut copied: HashMap<SlotId, Vec<SlotId>> = HashMap::new();
        let mut insts: Vec<Inst> = Vec::with_capacity(old.insts.len());
        for inst in &old.insts {
            let mut op = inst.op.clone();
            op.for_each_operand_mut(|operand| {
                if let Some(source) = operand.slot().and_then(|s| copies.get(&s)) {
                    *operand = (*source).into();
                }
            });
            let value = |operand: &Operand| match operand {
                Operand::Const(c) => Some(c.clone()),
                Operand::Slot(s) => known.get(s).cloned(),
            };
            let dst = op.arithmetic_dst();
            let result = dst.and_then(|dst| op.evaluate(self.program.width(dst), value));
            if let (Some(dst), Some(result)) = (dst, &result) {
                op = Op::Mov { dst, src: result.into() };
            } else if let Op::Select { dst, cond, then, other } = &op
                && let Some(cond) = value(cond)
            {
                op = Op::Mov { dst: *dst, src: if cond.is_true() { then } else { other }.clone() };
            }
            op.for_each_def(self.program, |s| {
                known.remove(&s);
                copies.remove(&s);
                copied.remove(&s).into_iter().flatten().for_each(|copy| _ = copies.remove(&copy));
            });
            known.extend(dst.zip(result));
            if let Op::Mov { dst, src: Operand::Slot(source) } = op
                && dst != source
            {
                copies.insert(dst, source);
                copied.entry(source).or_default().push(dst);
            }
            insts.push(Inst { op, ..inst.clone() });
        }
        let term = self.terminator(&old.term, &mut known);
        self.drop_unread(&mut insts, &term);
        Block { label: old.label.clone(), insts, term, span: old.span }
    }

    /// A terminator that leads to copies; one that is decided is a jump.
    fn terminator(&mut self, old: &Terminator, known: &mut HashMap<SlotId, Bits>) -> Terminator {
        let value = |operand: &Operand| match operand {
            Operand::Const(c) => Some(c.clone()),
            Operand::Slot(s) => known.get(s).cloned(),
        };
        match old {
            Terminator::Branch { cond, then, other } => match value(cond) {
                Some(cond) => Terminator::Jump(self.number(if cond.is_true() { *then } else { *other }, known)),
                None => {
                    let (then, other) = (self.number(*then, known), self.number(*other, known));
                    Terminator::Branch { cond: cond.clone(), then, other }
                }
            },
            Terminator::Switch { on, cases, default } => match value(on) {
                Some(value) => {
                    let case = cases.iter().find(|(case, _)| *case == value);
                    Terminator::Jump(self.number(case.map_or(*default, |(_, to)| *to), known))
                }
                None => {
                    let counter = on.slot().filter(|s| self.counters.contains(s));
                    let mut copies = Vec::with_capacity(cases.len());
                    for (case, to) in cases {
                        known.extend(counter.map(|counter| (counter, case.clone())));
                        copies.push((case.clone(), self.number(*to, known)));
                    }
                    counter.iter().for_each(|counter| _ = known.remove(counter));
                    let default = self.number(*default, known);
                    Terminator::Switch { on: on.clone(), cases: copies, default }
                }
            },
            Terminator::Jump(to) => Terminator::Jump(self.number(*to, known)),
            Terminator::Next | Terminator::Finish(_) => old.clone(),
        }
    }

    /// Leaves out what only assigns temporaries that nobody reads.
    fn drop_unread(&self, insts: &mut Vec<Inst>, term: &Terminator) {
        let program = self.program;
        let mut read = self.crossing.clone();
        let note = |read: &mut BitSet, slot: SlotId| read.insert(slot.index());
        term.operand().and_then(Operand::slot).into_iter().for_each(|s| note(&mut read, s));
        let mut kept = Vec::with_capacity(insts.len());
        for inst in insts.drain(..).rev() {
            let is_needed = |s: SlotId| program.slots[s.index()].kind != SlotKind::Temp || read.contains(s.index());
            if inst.op.arithmetic_dst().is_none_or(is_needed) {
                inst.op.for_each_use(program, |s| note(&mut read, s));
                kept.push(inst);
            }
        }
        kept.reverse();
        *insts = kept;
    }
}

/// The `nextIndex` of stacks that a loop of a stage assigns and compares.
fn counters(program: &Program, stage: &Stage, cfg: &Cfg) -> Vec<SlotId> {
    let in_loop = cfg.blocks_in_loops();
    let (mut assigned, mut compared) = (BTreeSet::new(), BTreeSet::new());
    for b in cfg.rpo.iter().filter(|b| in_loop[b.index()]) {
        let block = &stage.blocks[b.index()];
        for inst in &block.insts {
            match &inst.op {
                Op::Mov { dst, src: Operand::Const(_) } => _ = assigned.insert(*dst),
                Op::Bin { op: BinOp::Eq | BinOp::Ult, a: Operand::Slot(s), b: Operand::Const(_), .. } => {
                    compared.insert(*s);
                }
                _ => {}
            }
        }
        if let Terminator::Switch { on: Operand::Slot(s), .. } = &block.term {
            compared.insert(*s);
        }
    }
    let is_part = |s: &&SlotId| program.slots[s.index()].kind == SlotKind::HeaderPart;
    assigned.intersection(&compared).filter(is_part).copied().collect()
}

/// By block and counter: whether the value at the block's start may be read in the stage.
fn live(program: &Program, stage: &Stage, cfg: &Cfg, counters: &[SlotId]) -> Vec<Vec<bool>> {
    let places: HashMap<SlotId, usize> = counters.iter().copied().zip(0..).collect();
    let place = |slot: SlotId| places.get(&slot).copied();
    // Read before it is assigned, and assigned.
    let mut local = vec![vec![(false, false); counters.len()]; stage.blocks.len()];
    for b in &cfg.rpo {
        let (block, local) = (&stage.blocks[b.index()], &mut local[b.index()]);
        let read = |local: &mut Vec<(bool, bool)>, slot: SlotId| {
            if let Some(c) = place(slot) {
                local[c].0 |= !local[c].1;
            }
        };
        for inst in &block.insts {
            inst.op.for_each_use(program, |s| read(local, s));
            inst.op.for_each_def(program, |s| place(s).into_iter().for_each(|c| local[c].1 = true));
        }
        block.term.operand().and_then(Operand::slot).into_iter().for_each(|s| read(local, s));
    }
    let mut live = vec![vec![false; counters.len()]; stage.blocks.len()];
    loop {
        let mut changed = false;
        for b in cfg.rpo.iter().rev() {
            for c in 0..counters.len() {
                let (read, assigned) = local[b.index()][c];
                let now = read || !assigned && cfg.succs[b.index()].iter().any(|to| live[to.index()][c]);
                changed |= now != live[b.index()][c];
                live[b.index()][c] = now;
            }
        }
        if !changed {
            return live;
        }
    }
}

/// Temporaries that a block reads which does not assign them before.
fn crossing(program: &Program, stage: &Stage) -> BitSet {
    let mut crossing = BitSet::new(program.slots.len());
    for block in &stage.blocks {
        let mut assigned = BitSet::new(program.slots.len());
        let read = |crossing: &mut BitSet, assigned: &BitSet, s: SlotId| {
            if !assigned.contains(s.index()) {
                crossing.insert(s.index());
            }
        };
        for inst in &block.insts {
            inst.op.for_each_use(program, |s| read(&mut crossing, &assigned, s));
            inst.op.for_each_def(program, |s| assigned.insert(s.index()));
        }
        block.term.operand().and_then(Operand::slot).into_iter().for_each(|s| read(&mut crossing, &assigned, s));
    }
    crossing
}
