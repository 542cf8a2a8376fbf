//! Path splitting (tail duplication): copies of blocks, specialised for what is known of a packet on each path.
//!
//! Where a stage ends, all its paths join, and what each of them knows is lost: after a parser, that the packet is an
//! ARP packet; after a control, that it was dropped. The next stage tests it again. This pass propagates known values
//! (headers' validity, conditions, and slots that are compared with constants) along the paths of an entry point's
//! graph. Where paths with different knowledge meet, each gets a copy of the blocks that follow. Branches on known
//! values become jumps, a copy in which a header is never valid has no code for it, and dropped packets go directly to
//! their end.
//!
//! ```text
//! parser:   ipv4 -> next              control: branch ipv4.$valid, a, b
//!           arp  -> next        =>    ipv4 -> a -> deparser for ipv4
//!                                     arp  -> b -> deparser for arp
//! ```
//!
//! **Bounds.** No lookup is copied: paths to the same `apply` join before it. (Hot paths out of the parser are the
//! exception, see [`crate::hot`]: they never join each other, and may have copies of lookups, if these are few and the
//! last ones.) All other copies are weighed by [`weight`]. Where several copies of the same code would together be too
//! heavy ([`JOINT_WEIGHT_MAX`], [`TOTAL_WEIGHT_MAX`]), paths join, and what only one of them knows is dropped; knowing
//! less is always correct. Where packets come to a lock because what they have read without it did not suffice
//! (`opt/src/peeks.rs`), all paths join: that code is for few packets, so it is not copied and weighs nothing in the
//! choices before it. Nothing is known at loop heads. Entry points of more than [`NODES_MAX`] blocks or with too
//! many known values ([`KNOWN_MAX`]) are left as they are. When comparing paths has taken too many steps
//! ([`STEPS_MAX`]), all further paths join; so the time is linear in the size of the entry point.
//!
//! Tests: `tests/packets.rs`, `tests/stf/v1model/what_branches_say.stf`; crate `difftest`.

use crate::flow::{Graph, Node};
use crate::hot;
use base::Bits;
use ir::{
    BinOp, BitSet, EntryKind, EntryPoint, ExternId, Inst, Intrinsic, Op, Operand, Program, SlotId, SlotKind, StageId,
    StageKind, Terminator, UnOp,
};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most blocks of an entry point that is split.
const NODES_MAX: usize = 400;
/// Most weight of the blocks that two copies have in common.
const JOINT_WEIGHT_MAX: u32 = 150;
/// Budget for comparing paths: operations and known values that are looked at, for each operation and block of the
/// entry point. It suffices to compare the paths that leave a parser of some hundred states. Chosen; `fabric.p4` and
/// `switch_p4_16.p4` compile as fast with a quarter.
const STEPS_MAX: usize = 400;
/// Most values that may be known at the starts of all blocks together, since they are propagated from block to block.
/// Chosen: the largest of the programs that were tried has 33,408 (a stack of 128 elements), `switch_p4_16.p4` 30,683.
const KNOWN_MAX: usize = 50_000;
/// Weight of a lookup on a hot path.
const HOT_LOOKUP_WEIGHT: u32 = 25;
/// [`JOINT_WEIGHT_MAX`] on hot paths.
const HOT_JOINT_WEIGHT_MAX: u32 = 180;
/// Most weight of all copies of an entry point.
const TOTAL_WEIGHT_MAX: u32 = 600;
/// Most weight of all copies on one hot path.
const HOT_TOTAL_WEIGHT_MAX: u32 = 1200;

/// Known values of slots: the path state.
pub(crate) type Known = BTreeMap<SlotId, Bits>;

/// The estimated code size of an operation; `None` if it must not be copied.
fn weight(op: &Op) -> Option<u32> {
    match op {
        Op::Apply { .. } => None,
        Op::Emit { .. } => Some(12),
        Op::Hash { .. } => Some(25),
        Op::Digest { .. } | Op::Log { .. } | Op::RegisterRead { .. } | Op::RegisterWrite { .. } => Some(12),
        Op::RegisterUpdate { .. } => Some(24),
        Op::AddEntry { .. } => Some(25),
        Op::Count { .. } | Op::CountDirect { .. } | Op::Meter { .. } | Op::MeterDirect { .. } => Some(12),
        _ => Some(1),
    }
}

/// Returns a graph equivalent to `base`, the graph of `entry`, with paths split.
///
/// Up to `hot` paths out of the parser keep their state to the end, through lookups too; see [`crate::hot`].
pub(crate) fn split(program: &Program, entry: &EntryPoint, base: Graph, hot: usize) -> Graph {
    if base.nodes.len() > NODES_MAX {
        return base;
    }
    let splitter = Splitter::new(program, base, hot);
    if splitter.live.iter().map(|live| live.iter().count()).sum::<usize>() > KNOWN_MAX {
        return splitter.base;
    }
    splitter.run(entry)
}

/// By node: whether it reads a cell with its lock, of a register that packets also read without.
fn behind_peeks(program: &Program, graph: &Graph) -> Vec<bool> {
    let insts = |n: usize| graph.block(program, n).insts.iter();
    let read = |inst: &Inst, peeked: bool| match inst.op {
        Op::RegisterRead { register, peek, .. } if peek == peeked => Some(register),
        _ => None,
    };
    let peeked: BTreeSet<ExternId> =
        (0..graph.nodes.len()).flat_map(insts).filter_map(|inst| read(inst, true)).collect();
    let is_read = |inst: &Inst| read(inst, false).is_some_and(|register| peeked.contains(&register));
    (0..graph.nodes.len()).map(|n| insts(n).any(is_read)).collect()
}

/// Value numbering of comparisons: by result, the result of an earlier equal comparison, and whether it is the
/// negation.
type EqualComparisons = BTreeMap<SlotId, (Operand, bool)>;

struct Splitter<'p> {
    program: &'p Program,
    base: Graph,
    /// Slots whose values are propagated.
    tracked: BitSet,
    /// By node: tracked slots that are live at its start.
    live: Vec<BitSet>,
    /// By node: tracked slots that it reads.
    reads: Vec<BitSet>,
    /// By node: its weight; `None` if it has a lookup.
    weights: Vec<Option<u32>>,
    /// By node: whether packets acquire a lock there that they have tried to do without.
    behind_peeks: Vec<bool>,
    /// By node: whether it writes headers.
    emits: Vec<bool>,
    /// By node: whether it writes headers or copies parts of them, so that its weight is less where some of them are
    /// invalid.
    moves_headers: Vec<bool>,
    /// By node: its weight on hot paths.
    hot_weights: Vec<u32>,
    /// Equal comparisons in an earlier stage that all packets have come through.
    equal_comparisons: EqualComparisons,
    /// The steps that are left of [`STEPS_MAX`].
    steps: Cell<usize>,
    /// Most hot paths out of the parser.
    hot: usize,
}

/// The nodes that a path can reach.
struct Reached {
    nodes: BitSet,
    /// By node; `None` for a lookup. Nodes without an entry were not visited, and must not be copied.
    weights: BTreeMap<usize, Option<u32>>,
}

/// A path to a node: its state, and the copies that it comes from.
pub(crate) struct Path {
    pub known: Known,
    pub from: Vec<usize>,
    /// The hot path out of the parser that it continues, from 1; 0 for none.
    pub hot: usize,
    /// On a hot path: header fields that were assigned since they were extracted, so that the frame does not hold their
    /// values.
    pub changed: BitSet,
}

impl Reached {
    /// Adds what another path reaches. The joined path may reach more nodes, since less is known on it; the weights are
    /// an estimate.
    fn join(&mut self, other: Reached) {
        self.nodes.union(&other.nodes);
        for (node, weight) in other.weights {
            let here = self.weights.entry(node).or_insert(weight);
            *here = here.zip(weight).map(|(a, b)| a.max(b));
        }
    }

    fn weight(&self, node: usize) -> Option<u32> {
        self.weights.get(&node).copied().flatten()
    }
}

impl Path {
    /// Whether two paths have the same state, so that they share code.
    fn is_like(&self, other: &Path) -> bool {
        self.known == other.known && self.changed == other.changed
    }

    /// Joins another path: keeps only what holds on both.
    fn join(&mut self, other: Path) {
        self.known.retain(|s, v| other.known.get(s) == Some(v));
        self.changed.union(&other.changed);
        self.from.extend(other.from);
    }
}

impl<'p> Splitter<'p> {
    fn new(program: &'p Program, base: Graph, hot: usize) -> Splitter<'p> {
        let weigh = |n: usize| -> Option<u32> {
            base.block(program, n).insts.iter().map(|i| weight(&i.op)).sum::<Option<u32>>().map(|w| w + 1)
        };
        let weights = (0..base.nodes.len()).map(weigh).collect();
        let behind_peeks = behind_peeks(program, &base);
        let emits = |n: usize| base.block(program, n).insts.iter().any(|i| matches!(i.op, Op::Emit { .. }));
        let emits = (0..base.nodes.len()).map(emits).collect();
        let moves = |n: usize| {
            let moves = |op: &Op| match op {
                Op::Emit { .. } => true,
                Op::Mov { src: Operand::Slot(s), .. } => {
                    matches!(program.slots[s.index()].kind, SlotKind::Field(_) | SlotKind::Valid(_))
                }
                _ => false,
            };
            base.block(program, n).insts.iter().any(|i| moves(&i.op))
        };
        let moves_headers = (0..base.nodes.len()).map(moves).collect();
        let weigh_hot = |n: usize| -> u32 {
            let insts = &base.block(program, n).insts;
            insts.iter().map(|i| weight(&i.op).unwrap_or(HOT_LOOKUP_WEIGHT)).sum::<u32>() + 1
        };
        let hot_weights = (0..base.nodes.len()).map(weigh_hot).collect();
        let operations = |n: usize| base.block(program, n).insts.len() + 1;
        let operations = (0..base.nodes.len()).map(operations).sum::<usize>();
        let steps = Cell::new(STEPS_MAX * (1 + hot) * operations);
        let tracked = BitSet::new(program.slots.len());
        let (live, reads) = (Vec::new(), Vec::new());
        let equal_comparisons = number_comparisons(program, &base);
        let mut splitter = Splitter {
            program,
            tracked,
            live,
            reads,
            weights,
            behind_peeks,
            emits,
            moves_headers,
            hot_weights,
            equal_comparisons,
            steps,
            hot,
            base,
        };
        splitter.find_tracked();
        splitter.find_live();
        splitter.reads = (0..splitter.base.nodes.len()).map(|n| splitter.reads_of(n)).collect();
        splitter
    }

    fn insts(&self, node: usize) -> &[Inst] {
        &self.base.block(self.program, node).insts
    }

    /// Finds the slots to track: validity, and the slots that branches depend on, directly or through what
    /// [`Splitter::step`] can evaluate.
    fn find_tracked(&mut self) {
        let track = |tracked: &mut BitSet, operand: &Operand, program: &Program| match operand {
            Operand::Slot(s) if program.width(*s) <= 64 && !tracked.contains(s.index()) => {
                tracked.insert(s.index());
                true
            }
            _ => false,
        };
        for header in &self.program.headers {
            self.tracked.insert(header.valid.index());
        }
        for n in 0..self.base.nodes.len() {
            if let Some(operand) = self.base.block(self.program, n).term.operand() {
                track(&mut self.tracked, operand, self.program);
            }
        }
        loop {
            let mut changed = false;
            // Backwards, since operands are defined before their uses.
            for n in (0..self.base.nodes.len()).rev() {
                for inst in self.base.block(self.program, n).insts.iter().rev() {
                    for operand in evaluated(&inst.op, &self.equal_comparisons, |s| self.tracked.contains(s.index())) {
                        changed |= track(&mut self.tracked, operand, self.program);
                    }
                }
            }
            if !changed {
                return;
            }
        }
    }

    fn find_live(&mut self) {
        self.live = vec![BitSet::new(self.program.slots.len()); self.base.nodes.len()];
        loop {
            let mut changed = false;
            for n in (0..self.base.nodes.len()).rev() {
                let mut set = BitSet::new(self.program.slots.len());
                for &s in &self.base.nodes[n].succs {
                    set.union(&self.live[s]);
                }
                let block = self.base.block(self.program, n);
                let read = |set: &mut BitSet, operand: &Operand| match operand.slot() {
                    Some(s) if self.tracked.contains(s.index()) => set.insert(s.index()),
                    _ => {}
                };
                block.term.operand().into_iter().for_each(|o| read(&mut set, o));
                for inst in block.insts.iter().rev() {
                    let operands = evaluated(&inst.op, &self.equal_comparisons, |s| set.contains(s.index()));
                    inst.op.for_each_def(self.program, |s| set.remove(s.index()));
                    operands.into_iter().for_each(|o| read(&mut set, o));
                    if let Op::Emit { header } = &inst.op {
                        set.insert(self.program.headers[header.index()].valid.index());
                    }
                }
                changed |= self.live[n].union(&set);
            }
            if !changed {
                return;
            }
        }
    }

    /// The tracked slots that a node reads.
    fn reads_of(&self, node: usize) -> BitSet {
        let mut set = BitSet::new(self.program.slots.len());
        let mut read = |slot: SlotId| {
            if self.tracked.contains(slot.index()) {
                set.insert(slot.index());
            }
        };
        let block = self.base.block(self.program, node);
        block.term.operand().and_then(|o| o.slot()).into_iter().for_each(&mut read);
        for inst in &block.insts {
            let operands = evaluated(&inst.op, &self.equal_comparisons, |s| self.tracked.contains(s.index()));
            operands.into_iter().filter_map(|o| o.slot()).for_each(&mut read);
            if let Op::Emit { header } = &inst.op {
                read(self.program.headers[header.index()].valid);
            }
        }
        set
    }

    fn value(&self, known: &Known, operand: &Operand) -> Option<Bits> {
        match operand {
            Operand::Const(c) => Some(c.clone()),
            Operand::Slot(s) => known.get(s).cloned(),
        }
    }

    /// The transfer function of an operation.
    fn step(&self, known: &mut Known, op: &Op) {
        let flag = |b: bool| Bits::from_bool(b);
        let result = match op {
            Op::Mov { dst, src } => self.value(known, src).map(|v| (*dst, v)),
            Op::Un { op: UnOp::Not, dst, a } if self.program.width(*dst) == 1 => {
                self.value(known, a).map(|v| (*dst, flag(v.is_zero())))
            }
            Op::Bin { op, dst, a, b } => {
                let (a, b) = (self.value(known, a), self.value(known, b));
                let zero = |v: &Option<Bits>| v.as_ref().is_some_and(Bits::is_zero);
                let one = |v: &Option<Bits>| v.as_ref().is_some_and(|v| !v.is_zero());
                let is_flag = self.program.width(*dst) == 1;
                let value = match op {
                    BinOp::Eq => a.zip(b).map(|(a, b)| a == b),
                    BinOp::Ne => a.zip(b).map(|(a, b)| a != b),
                    BinOp::And if is_flag && (zero(&a) || zero(&b)) => Some(false),
                    BinOp::And if is_flag && one(&a) && one(&b) => Some(true),
                    BinOp::Or if is_flag && (one(&a) || one(&b)) => Some(true),
                    BinOp::Or if is_flag && zero(&a) && zero(&b) => Some(false),
                    _ => None,
                };
                let twin = || {
                    let (of, is_opposite) = self.equal_comparisons.get(dst)?;
                    Some(self.value(known, of)?.is_true() != *is_opposite)
                };
                value.or_else(twin).map(|v| (*dst, flag(v)))
            }
            _ => None,
        };
        op.for_each_def(self.program, |s| _ = known.remove(&s));
        match op {
            Op::Extract { header, .. } | Op::SetValid { header } => {
                known.insert(self.program.headers[header.index()].valid, flag(true));
            }
            Op::SetInvalid { header } => ir::flow::for_each_header_slot(self.program, *header, |s| {
                known.insert(s, Bits::zero(self.program.width(s)));
            }),
            _ => {}
        }
        known.extend(result.filter(|(dst, _)| self.tracked.contains(dst.index())));
    }

    /// Learns from a branch: `slot`, last assigned in the first `end` of `insts`, has `value` at the end of `insts`.
    /// Operands of its definition that follow from that are learnt too.
    fn learn(&self, known: &mut Known, insts: &[Inst], end: usize, slot: SlotId, value: &Bits) {
        if self.tracked.contains(slot.index()) {
            known.insert(slot, value.clone());
        }
        let assigns = |inst: &Inst, s: SlotId| {
            let mut found = false;
            inst.op.for_each_def(self.program, |d| found |= d == s);
            found
        };
        let Some(at) = insts[..end].iter().rposition(|i| assigns(i, slot)) else { return };
        let unchanged = |s: SlotId| s != slot && !insts[at..].iter().any(|i| assigns(i, s));
        let is_flag = value.width() == 1;
        let is = is_flag && value.is_true();
        let mut more: Vec<(SlotId, Bits)> = Vec::new();
        match &insts[at].op {
            Op::Mov { src: Operand::Slot(s), .. } => more.push((*s, value.clone())),
            Op::Concat { hi, lo, .. } => {
                let below = lo.width(self.program);
                let parts = [(hi, value.slice(value.width() - 1, below)), (lo, value.slice(below - 1, 0))];
                more.extend(parts.into_iter().filter_map(|(part, value)| Some((part.slot()?, value))));
            }
            Op::Un { op: UnOp::Not, a: Operand::Slot(s), .. } => more.push((*s, value.not())),
            Op::Bin { op: BinOp::Eq, a, b, .. } if is => more.extend(compared(a, b)),
            Op::Bin { op: BinOp::Ne, a, b, .. } if is_flag && !is => more.extend(compared(a, b)),
            Op::Bin { op: BinOp::And, a, b, .. } if is => {
                more.extend([a, b].into_iter().filter_map(|o| Some((o.slot()?, value.clone()))));
            }
            Op::Bin { op: BinOp::Or, a, b, .. } if is_flag && !is => {
                more.extend([a, b].into_iter().filter_map(|o| Some((o.slot()?, value.clone()))));
            }
            // If one operand is known not to decide the result, the other does.
            Op::Bin { op: BinOp::And | BinOp::Or, a, b, .. } if is_flag => {
                let is_other = |o: &Operand| {
                    o.slot().is_some_and(|s| unchanged(s) && known.get(&s).is_some_and(|v| v.is_true() != is))
                };
                let decides = [(a, b), (b, a)].into_iter().find(|(_, other)| is_other(other));
                more.extend(decides.and_then(|(one, _)| Some((one.slot()?, value.clone()))));
            }
            _ => {}
        }
        for (s, value) in more.into_iter().filter(|(s, _)| unchanged(*s)) {
            self.learn(known, insts, at, s, &value);
        }
    }

    /// Adds the fields that a node assigns to `changed`, since the frame does not hold their new values.
    fn add_changed(&self, node: usize, changed: &mut BitSet) {
        for inst in self.insts(node) {
            let is_extracted = matches!(inst.op, Op::Extract { .. });
            inst.op.for_each_def(self.program, |slot| {
                let is_field = matches!(self.program.slots[slot.index()].kind, SlotKind::Field(_));
                match is_extracted {
                    true => changed.remove(slot.index()),
                    false if is_field => changed.insert(slot.index()),
                    false => {}
                }
            });
        }
    }

    /// The edges out of a node at whose start `known` holds: the successor and the state on the edge. One edge if the
    /// terminator is decided.
    fn paths_out(&self, node: usize, known: &Known) -> Vec<(usize, Known)> {
        let mut known = known.clone();
        let insts = self.insts(node);
        insts.iter().for_each(|inst| self.step(&mut known, &inst.op));
        let term = &self.base.block(self.program, node).term;
        let target = |to: ir::BlockId| self.base.target(node, to);
        let mut paths: Vec<(usize, Known)> = Vec::new();
        match term {
            Terminator::Branch { cond, then, other } => match self.value(&known, cond) {
                Some(value) => paths.push((target(if value.is_true() { *then } else { *other }), known)),
                None => {
                    for (to, value) in [(then, true), (other, false)] {
                        let mut known = known.clone();
                        if let (Some(slot), true) = (cond.slot(), then != other) {
                            self.learn(&mut known, insts, insts.len(), slot, &Bits::from_bool(value));
                        }
                        paths.push((target(*to), known));
                    }
                }
            },
            Terminator::Switch { on, cases, default } => match self.value(&known, on) {
                Some(value) => {
                    let to = cases.iter().find(|(case, _)| *case == value).map_or(default, |(_, to)| to);
                    paths.push((target(*to), known));
                }
                None => {
                    for (value, to) in cases {
                        let mut known = known.clone();
                        if let (Some(slot), true) = (on.slot(), default != to) {
                            self.learn(&mut known, insts, insts.len(), slot, value);
                        }
                        paths.push((target(*to), known));
                    }
                    paths.push((target(*default), known));
                }
            },
            Terminator::Jump(to) => paths.push((target(*to), known)),
            Terminator::Next => paths.extend(self.base.nodes[node].succs.first().map(|&s| (s, known))),
            Terminator::Finish(_) => {}
        }
        for (to, known) in &mut paths {
            let live = &self.live[*to];
            known.retain(|s, _| live.contains(s.index()));
            if self.base.nodes[*to].is_loop_head {
                known.clear();
            }
        }
        paths
    }

    /// The weight of a node at whose start `known` holds; `None` if it must not be copied. Operations on a header that
    /// is known to be invalid weigh nothing.
    fn weight(&self, node: usize, known: &Known, is_hot: bool) -> Option<u32> {
        let weight = if is_hot { Some(self.hot_weights[node]) } else { self.weights[node] };
        if !self.moves_headers[node] {
            return weight;
        }
        let mut known = known.clone();
        let is_invalid = |known: &Known, valid: SlotId| known.get(&valid).is_some_and(Bits::is_zero);
        let mut saved = 0;
        for inst in self.insts(node) {
            let is_no_code = match &inst.op {
                Op::Emit { header } => is_invalid(&known, self.program.headers[header.index()].valid),
                Op::Mov { src: Operand::Slot(src), .. } => match self.program.slots[src.index()].kind {
                    SlotKind::Field(header) => is_invalid(&known, self.program.headers[header.index()].valid),
                    _ => known.contains_key(src),
                },
                _ => false,
            };
            saved += if is_no_code { self::weight(&inst.op).unwrap_or(0) } else { 0 };
            self.step(&mut known, &inst.op);
        }
        weight.map(|weight| weight - saved)
    }

    /// The nodes before `until` that are reachable from `node` if `known` holds at its start, up to and including the
    /// first lookups, with their weights. (Code after lookups is shared, or is examined where paths meet again.) All
    /// nodes, if the step budget is spent.
    fn reach(&self, node: usize, until: usize, known: &Known, is_hot: bool) -> Reached {
        let mut reached = Reached { nodes: BitSet::new(self.base.nodes.len()), weights: BTreeMap::new() };
        // What holds on all paths to a node so far.
        let mut at: BTreeMap<usize, Known> = BTreeMap::new();
        let mut stack = vec![(node, known.clone())];
        while let Some((n, known)) = stack.pop() {
            let known = match at.get_mut(&n) {
                None => known,
                Some(before) => {
                    let count = before.len();
                    before.retain(|s, v| known.get(s) == Some(v));
                    if before.len() == count {
                        continue;
                    }
                    before.clone()
                }
            };
            reached.nodes.insert(n);
            let work = 1 + 2 * self.insts(n).len() + known.len();
            self.steps.set(self.steps.get().saturating_sub(work));
            if self.steps.get() == 0 {
                reached.nodes = BitSet::full(self.base.nodes.len());
                return reached;
            }
            let weight = self.weight(n, &known, is_hot);
            if weight.is_some() {
                let out = self.paths_out(n, &known);
                self.steps.set(self.steps.get().saturating_sub(out.iter().map(|(_, known)| known.len()).sum()));
                stack.extend(out.into_iter().filter(|(to, _)| *to < until && !self.behind_peeks[*to]));
            }
            reached.weights.insert(n, weight);
            at.insert(n, known);
        }
        reached
    }

    /// Joins the paths that have arrived at a node until the copies that they need are light enough. `budget` is the
    /// weight that is left for all copies. Only nodes before `until` count.
    fn group(&self, node: usize, until: usize, arrived: Vec<Path>, budget: u32) -> Vec<Path> {
        if arrived.len() <= 1 {
            return arrived;
        }
        if self.steps.get() == 0 {
            return join_all(arrived);
        }
        let is_hot = arrived[0].hot > 0;
        let most = if is_hot { HOT_JOINT_WEIGHT_MAX } else { JOINT_WEIGHT_MAX };
        // (path, what it reaches)
        let mut kept: Vec<(Path, Reached)> = Vec::new();
        for mut path in without_equals(arrived) {
            let reached = self.reach(node, until, &path.known, is_hot);
            if until == self.base.nodes.len() && reached.nodes.iter().all(|n| reached.weight(n).is_some()) {
                // State that no node up to the end reads does not distinguish paths.
                path.known.retain(|s, _| reached.nodes.iter().any(|n| self.reads[n].contains(s.index())));
            }
            if is_hot && !reached.nodes.iter().any(|n| self.emits[n]) {
                path.changed = BitSet::new(self.program.slots.len());
            }
            if let Some((same, _)) = kept.iter_mut().find(|(k, _)| k.is_like(&path)) {
                same.from.extend(path.from);
                continue;
            }
            let is_shared = |n: &usize| kept.iter().any(|(_, other)| other.nodes.contains(*n));
            let shared = reached.nodes.iter().filter(is_shared);
            let joint = shared.map(|n| reached.weight(n)).try_fold(0, |sum: u32, weight| Some(sum + weight?));
            match joint {
                _ if kept.is_empty() => kept.push((path, reached)),
                Some(weight) if weight <= most.min(budget) => kept.push((path, reached)),
                _ => {
                    let agree = |k: &Known| k.iter().filter(|(s, v)| path.known.get(s) == Some(v)).count();
                    // Preferably join with a path that reaches the same lookup, not with one that is about to end.
                    let meets = |other: &Reached| {
                        reached.nodes.iter().any(|n| self.weights[n].is_none() && other.nodes.contains(n))
                    };
                    let fit = |i: usize| (meets(&kept[i].1), agree(&kept[i].0.known));
                    let best = (0..kept.len()).max_by_key(|&i| fit(i)).expect("there is one");
                    let (mut into, mut into_reached) = kept.swap_remove(best);
                    into.join(path);
                    into_reached.join(reached);
                    // The joined path may now equal another one.
                    match kept.iter_mut().find(|(other, _)| other.is_like(&into)) {
                        Some((same, _)) => same.from.extend(into.from),
                        None => kept.push((into, into_reached)),
                    }
                    // Joined paths may reach more lookups; none may be reached twice.
                    kept = if is_hot { kept } else { self.without_joint_lookups(node, until, kept) };
                }
            }
        }
        kept.into_iter().map(|(path, _)| path).collect()
    }

    /// Joins all paths if two of them reach the same lookup.
    fn without_joint_lookups(&self, node: usize, until: usize, paths: Vec<(Path, Reached)>) -> Vec<(Path, Reached)> {
        let mut lookups = BitSet::new(self.base.nodes.len());
        let mut twice = false;
        for (_, reached) in &paths {
            for n in reached.nodes.iter().filter(|n| self.weights[*n].is_none()) {
                twice |= lookups.contains(n);
                lookups.insert(n);
            }
        }
        if !twice {
            return paths;
        }
        let all = join_all(paths.into_iter().map(|(path, _)| path).collect());
        all.into_iter()
            .map(|path| {
                let reached = self.reach(node, until, &path.known, false);
                (path, reached)
            })
            .collect()
    }

    /// The first node of the stage after the first parser.
    fn after_parser(&self, entry: &EntryPoint) -> Option<usize> {
        let is_parser = |s: &StageId| self.program.stages[s.index()].kind == StageKind::Parser;
        let parser = entry.stages.iter().position(is_parser)?;
        self.base.nodes.iter().position(|n| n.position == parser + 1)
    }

    fn run(self, entry: &EntryPoint) -> Graph {
        let count = self.base.nodes.len();
        let mut arrived: Vec<Vec<Path>> = (0..count).map(|_| Vec::new()).collect();
        let mut first = Known::new();
        if entry.kind == EntryKind::Ingress && !self.base.nodes[0].is_loop_head {
            for s in self.live[0].iter().map(SlotId::from_index) {
                let width = self.program.width(s);
                let intrinsic = self.program.intrinsics.iter().find(|(_, i)| *i == s);
                if let Some(value) = intrinsic.map_or(Some(0), |(i, _)| value_at_ingress(*i, self.program)) {
                    first.insert(s, Bits::new(width, value.into()));
                }
            }
        }
        arrived[0].push(Path {
            known: first,
            from: Vec::new(),
            hot: 0,
            changed: BitSet::new(self.program.slots.len()),
        });
        let mut nodes: Vec<Node> = Vec::new();
        // Copies of loop heads, by hot path: the targets of back edges.
        let mut heads: Vec<Vec<Option<usize>>> = vec![vec![None; 1 + self.hot]; count];
        let mut back: Vec<(usize, usize, usize)> = Vec::new();
        let mut budgets = vec![HOT_TOTAL_WEIGHT_MAX; 1 + self.hot];
        budgets[0] = TOTAL_WEIGHT_MAX;
        let after_parser = self.after_parser(entry);
        for n in 0..count {
            let mut all = std::mem::take(&mut arrived[n]);
            if Some(n) == after_parser {
                hot::choose(self.program, &mut all, self.hot);
            }
            // Within the parser, hot paths need not join for what comes after it.
            let until = after_parser.filter(|b| self.hot > 0 && n < *b).unwrap_or(count);
            let mut paths = Vec::new();
            for (hot, budget) in budgets.iter_mut().enumerate() {
                let these: Vec<Path> = all.extract_if(.., |w| w.hot == hot).collect();
                let these = match self.behind_peeks[n] {
                    true if !these.is_empty() => join_all(these),
                    _ => self.group(n, until, these, *budget),
                };
                // The heaviest one replaces the original, so it adds nothing.
                let weights = these.iter().map(|path| self.weight(n, &path.known, hot > 0).unwrap_or(0));
                let (sum, most) =
                    weights.fold((0, 0), |(sum, most): (u32, u32), w| (sum.saturating_add(w), most.max(w)));
                *budget = budget.saturating_sub(sum - most);
                paths.extend(these);
            }
            for Path { known, from, hot, mut changed } in paths {
                let id = nodes.len();
                let base = &self.base.nodes[n];
                for f in from {
                    nodes[f].link(base.block, id);
                }
                if base.is_loop_head {
                    heads[n][hot] = Some(id);
                }
                nodes.push(Node {
                    position: base.position,
                    stage: base.stage,
                    block: base.block,
                    succs: Vec::new(),
                    targets: BTreeMap::new(),
                    preds: 0,
                    is_loop_head: base.is_loop_head,
                    decided: false,
                    known: known.clone(),
                    hot,
                });
                if hot > 0 {
                    self.add_changed(n, &mut changed);
                }
                let paths = self.paths_out(n, &known);
                let is_choice = matches!(
                    self.base.block(self.program, n).term,
                    Terminator::Branch { .. } | Terminator::Switch { .. }
                );
                nodes[id].decided = is_choice && paths.len() == 1;
                // Several cases of a switch may have the same target: keep what holds for all of them.
                let mut by_target: Vec<(usize, Known)> = Vec::new();
                for (to, known) in paths {
                    match by_target.iter_mut().find(|(t, _)| *t == to) {
                        Some((_, all)) => all.retain(|s, v| known.get(s) == Some(v)),
                        None => by_target.push((to, known)),
                    }
                }
                for (to, known) in by_target {
                    match heads[to][hot] {
                        Some(_) if to <= n => back.push((id, to, hot)),
                        // The loop is entered other than at its head: the graph is left as it is.
                        None if to <= n => return self.base,
                        _ => arrived[to].push(Path { known, from: vec![id], hot, changed: changed.clone() }),
                    }
                }
            }
        }
        for (from, to, hot) in back {
            let head = heads[to][hot].expect("heads of loops come before what leads back to them");
            nodes[from].link(self.base.nodes[to].block, head);
        }
        for n in 0..nodes.len() {
            for s in nodes[n].succs.clone() {
                nodes[s].preds += 1;
            }
        }
        Graph { nodes, first: Vec::new() }
    }
}

/// The value of an intrinsic for every packet that starts at [`EntryKind::Ingress`]; `None` if it depends on the
/// packet.
pub(crate) fn value_at_ingress(intrinsic: Intrinsic, program: &Program) -> Option<u64> {
    match intrinsic {
        Intrinsic::IngressPort | Intrinsic::PacketLength | Intrinsic::IngressTimestamp => None,
        Intrinsic::InstanceType => Some(program.instance_types.normal),
        Intrinsic::EgressTimestamp
        | Intrinsic::EnqueueTimestamp
        | Intrinsic::EnqueueDepth
        | Intrinsic::DequeueDelta
        | Intrinsic::DequeueDepth
        | Intrinsic::EgressSpec
        | Intrinsic::EgressPort
        | Intrinsic::MulticastGroup
        | Intrinsic::EgressRid
        | Intrinsic::DropFlag
        | Intrinsic::ClonePort
        | Intrinsic::ClassOfService
        | Intrinsic::CloneFlag
        | Intrinsic::CloneSession
        | Intrinsic::CloneFieldList
        | Intrinsic::ResubmitFlag
        | Intrinsic::ResubmitFieldList
        | Intrinsic::RecirculateFlag
        | Intrinsic::RecirculateFieldList
        | Intrinsic::ParserError => Some(0),
    }
}

/// Merges paths that have the same state and the same changed fields.
fn without_equals(paths: Vec<Path>) -> Vec<Path> {
    let mut places: HashMap<Known, usize> = HashMap::new();
    let mut different: Vec<Path> = Vec::with_capacity(paths.len());
    for path in paths {
        match places.get(&path.known).map(|place| &mut different[*place]).filter(|same| same.changed == path.changed) {
            Some(same) => same.from.extend(path.from),
            None => {
                places.insert(path.known.clone(), different.len());
                different.push(path);
            }
        }
    }
    different
}

/// Joins all paths into one, which keeps what holds on all of them.
fn join_all(paths: Vec<Path>) -> Vec<Path> {
    let joined = paths.into_iter().reduce(|mut all, path| {
        all.join(path);
        all
    });
    joined.into_iter().collect()
}

/// The slot and the constant of a comparison between the two.
fn compared(a: &Operand, b: &Operand) -> Option<(SlotId, Bits)> {
    match (a, b) {
        (Operand::Slot(s), Operand::Const(c)) | (Operand::Const(c), Operand::Slot(s)) => Some((*s, c.clone())),
        _ => None,
    }
}

/// Finds comparisons of a field with a constant that repeat one in the first block of an earlier stage: parsers,
/// checksums and controls often test the same.
fn number_comparisons(program: &Program, base: &Graph) -> EqualComparisons {
    let comparison = |op: &Op| match op {
        Op::Bin { op: op @ (BinOp::Eq | BinOp::Ne), dst, a, b } => {
            compared(a, b).map(|(slot, number)| (*dst, slot, number, *op == BinOp::Eq))
        }
        _ => None,
    };
    // By slot: how often it is assigned, and the last stage position at which it is.
    let mut assigned: BTreeMap<SlotId, (u32, usize)> = BTreeMap::new();
    for (n, node) in base.nodes.iter().enumerate() {
        for inst in &base.block(program, n).insts {
            inst.op.for_each_def(program, |s| {
                let (count, last) = assigned.entry(s).or_default();
                (*count, *last) = (*count + 1, (*last).max(node.position));
            });
        }
    }
    let is_single = |s: SlotId| assigned.get(&s).is_some_and(|(count, _)| *count == 1);
    let mut made: Vec<(usize, SlotId, SlotId, Bits, bool)> = Vec::new();
    let mut equal_comparisons = EqualComparisons::new();
    for (n, node) in base.nodes.iter().enumerate() {
        for inst in &base.block(program, n).insts {
            let Some((dst, slot, number, is_eq)) = comparison(&inst.op).filter(|c| is_single(c.0)) else { continue };
            let same =
                made.iter().find(|(position, _, s, c, _)| *position < node.position && (*s, c) == (slot, &number));
            if let Some((_, of, .., was_eq)) = same {
                equal_comparisons.insert(dst, (Operand::Slot(*of), is_eq != *was_eq));
            } else if base.first.get(node.position) == Some(&n)
                && assigned.get(&slot).is_none_or(|(_, last)| *last < node.position)
            {
                made.push((node.position, dst, slot, number, is_eq));
            }
        }
    }
    equal_comparisons
}

/// The operands of an operation that can be evaluated, if its result is wanted.
fn evaluated<'a>(
    op: &'a Op,
    equal_comparisons: &'a EqualComparisons,
    wanted: impl Fn(SlotId) -> bool,
) -> Vec<&'a Operand> {
    match op {
        Op::Bin { op: BinOp::Eq | BinOp::Ne, dst, a, b } if wanted(*dst) => {
            [a, b].into_iter().chain(equal_comparisons.get(dst).map(|(of, _)| of)).collect()
        }
        Op::Mov { dst, src } if wanted(*dst) => vec![src],
        Op::Un { op: UnOp::Not, dst, a } if wanted(*dst) => vec![a],
        Op::Concat { dst, hi, lo } if wanted(*dst) => vec![hi, lo],
        Op::Bin { op: BinOp::And | BinOp::Or, dst, a, b } if wanted(*dst) => vec![a, b],
        _ => Vec::new(),
    }
}
