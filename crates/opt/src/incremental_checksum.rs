//! A checksum that was computed before is brought up to date for the fields that changed, instead of summed again.
//!
//! Needs: nothing; best after all else, when operands are what they will be. Guarantees: same behaviour, bit by bit.
//!
//! Where every way to an Internet checksum passes an earlier one over the same fields (`update_checksum` after
//! `verify_checksum`), the later one is what RFC 1624, equation 3, makes of the earlier one: `~(~c + ~m + m')` for each
//! field that changed from `m` to `m'`. `c` is what the earlier operation *computed*. The checksum that the packet came
//! with would do only if it were right, and P4 sums anew whatever came; so where nothing was computed before, nothing is
//! done here. Fields that did not change cancel out, and with them most of the loads and additions.
//!
//! The equation gives the sum modulo 65,535 and never the sum zero, so 0x0000 where summing anew gives 0xffff for fields
//! that are all zero. Therefore some field must be known not to be zero (an IPv4 header's length, which programs compare with
//! 5). If no field changed, the result is the earlier one, and nothing needs to be known.
//!
//! ```text
//! c = hash csum16 … (…, ttl, …)               c = hash csum16 … (…, ttl, …)
//!                                             $sum0 = mov c
//!                                             $sum0.7 = mov ttl
//! ttl = sub ttl, 8w1                     =>   ttl = sub ttl, 8w1
//!                                             %1 = not $sum0
//!                                             %2 = not $sum0.7
//! sum = hash csum16 … (…, ttl, …)             sum = hash csum16 … (%1, %2, 8w0xff, ttl, 8w0)
//! ```
//!
//! Whether every way passes the earlier one is seldom plain dominance: programs sum under a condition, and ask for the same
//! again before they change the packet. `Proof` follows what branches tell: of the ways to a place, those are left out on
//! which a slot cannot have the value that it is known to have there. Loops behind the earlier sum, and ways in that begin
//! with a record between the two, are not looked through.
//!
//! Tests: `tests/files/incremental_checksum.ir`, `tests/properties.rs`; random programs in crate `difftest`.

use crate::graph::{Node, NodeId, ROOT, StartValue};
use crate::ssa::{Def, InstValues, Ssa, ValueId, WORK_PER_ACCESS_MAX};
use base::Bits;
use base::ids::SlotId;
use ir::{HashAlgorithm, Inst, Op, Operand, Program, Slot, SlotKind, Terminator, UnOp};
use std::collections::HashMap;

/// Bits that code adds at once; what a sum costs is counted in such words.
const WORD: u32 = 32;
/// Widest field that may have changed.
const CHANGED_BITS_MAX: u32 = 32;
/// Most places at which a proof looks.
const STEPS_MAX: u32 = 1000;
/// Most phis of what a branch depends on that are followed.
const PHIS_MAX: usize = 4;

/// An Internet checksum of some operands and nothing else.
struct Sum {
    node: NodeId,
    inst: usize,
    dst: SlotId,
    data: Vec<Operand>,
}

/// A field that differs.
struct Change {
    operand: usize,
    /// First bit in the string that is summed.
    start: u32,
    was: Operand,
    now: Operand,
}

/// What is to be done with the later of two sums.
struct Plan {
    earlier: usize,
    later: usize,
    changes: Vec<Change>,
}

/// Runs the pass; whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let is_sum = |op: &Op| summed(program, op).is_some();
    if program.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts).filter(|i| is_sum(&i.op)).count() < 2 {
        return false;
    }
    let ssa = Ssa::new(program, WORK_PER_ACCESS_MAX);
    let sums = sums(program, &ssa);
    let mut view = View::new(program, &ssa);
    let plans: Vec<Plan> = (0..sums.len()).filter_map(|later| plan(&mut view, &sums, later)).collect();
    let changed = !plans.is_empty();
    let places: Vec<_> = sums.iter().map(|s| ssa.graph.nodes[s.node]).collect();
    rewrite(program, &sums, &places, plans);
    changed
}

/// The destination and the operands of an operation that is a checksum of these alone.
fn summed<'p>(program: &Program, op: &'p Op) -> Option<(SlotId, &'p [Operand])> {
    let Op::Hash { algorithm: HashAlgorithm::Csum16, dst, base, max: None, data, varbits, payload: false } = op else {
        return None;
    };
    let starts_at_zero = matches!(base, Operand::Const(c) if c.is_zero());
    (starts_at_zero && varbits.is_empty() && program.width(*dst) == 16).then_some((*dst, data))
}

fn sums(program: &Program, ssa: &Ssa) -> Vec<Sum> {
    let mut sums = Vec::new();
    for &node in &ssa.graph.rpo {
        let Some(block) = ssa.graph.block(program, node) else { continue };
        for (inst, i) in block.insts.iter().enumerate() {
            if let Some((dst, data)) = summed(program, &i.op) {
                sums.push(Sum { node, inst, dst, data: data.to_vec() });
            }
        }
    }
    sums
}

/// What the sum `later` becomes: by the last of the sums before it by which something is won.
fn plan(view: &mut View<'_>, sums: &[Sum], later: usize) -> Option<Plan> {
    let to = &sums[later];
    (0..later).rev().find_map(|earlier| {
        let from = &sums[earlier];
        let changes = view.changes(from, to)?;
        let bits: u32 = to.data.iter().map(|o| o.width(view.program)).sum();
        let is_less = 1 + 2 * (changes.len() as u32) < bits.div_ceil(WORD);
        let is_sound = is_less
            && !view.loops_behind(from.node)
            && (changes.is_empty() || view.is_never_zero(from, to))
            && Proof::new(view, from.node).passed_before(to.node, to.inst, from.inst);
        is_sound.then_some(Plan { earlier, later, changes })
    })
}

fn rewrite(program: &mut Program, sums: &[Sum], places: &[Node], plans: Vec<Plan>) {
    let mut names = Names { sums: 0, temps: program.slots.len() };
    // The slots that hold an earlier sum, and the old values of its operands.
    let mut kept: HashMap<usize, SlotId> = HashMap::new();
    let mut old: HashMap<(usize, usize), Operand> = HashMap::new();
    // What comes before and after instructions, and in place of them.
    let mut after: HashMap<usize, Vec<Op>> = HashMap::new();
    let mut instead: HashMap<usize, Vec<Op>> = HashMap::new();
    for Plan { earlier, later, changes } in plans {
        let copies = after.entry(earlier).or_default();
        let from = sums[earlier].dst;
        let sum = *kept.entry(earlier).or_insert_with(|| {
            let slot = names.kept(program, 16, None);
            copies.push(Op::Mov { dst: slot, src: Operand::Slot(from) });
            slot
        });
        let dst = sums[later].dst;
        if changes.is_empty() {
            instead.insert(later, vec![Op::Mov { dst, src: Operand::Slot(sum) }]);
            continue;
        }
        let mut ops = Vec::new();
        let mut not = |program: &mut Program, names: &mut Names, a: Operand| match a {
            Operand::Const(c) => Operand::Const(c.not()),
            Operand::Slot(_) => {
                let dst = names.temp(program, a.width(program));
                ops.push(Op::Un { op: UnOp::Not, dst, a });
                Operand::Slot(dst)
            }
        };
        let mut data = vec![not(program, &mut names, Operand::Slot(sum))];
        for Change { operand, start, was, now } in changes {
            let width = now.width(program);
            let was = old.entry((earlier, operand)).or_insert_with(|| match was {
                Operand::Const(_) => was,
                Operand::Slot(_) => {
                    let slot = names.kept(program, width, Some(operand));
                    copies.push(Op::Mov { dst: slot, src: was });
                    Operand::Slot(slot)
                }
            });
            let was = not(program, &mut names, was.clone());
            // Each stands in its words as it does among all operands. The complement of nothing is ones.
            let (before, behind) = (start % 16, (16 - (start + width) % 16) % 16);
            for (value, ones) in [(was, true), (now, false)] {
                let pad = |bits: u32| (bits > 0).then(|| Operand::Const(fill(bits, ones)));
                data.extend(pad(before));
                data.push(value);
                data.extend(pad(behind));
            }
        }
        let (algorithm, base) = (HashAlgorithm::Csum16, Operand::Const(Bits::zero(16)));
        ops.push(Op::Hash { algorithm, dst, base, max: None, data, varbits: Vec::new(), payload: false });
        instead.insert(later, ops);
    }
    // From the end, so that positions stay.
    let mut at: Vec<usize> = (0..sums.len()).collect();
    at.sort_by_key(|i| std::cmp::Reverse(sums[*i].inst));
    for i in at {
        let Node::Block(stage, block) = places[i] else { continue };
        let insts = &mut program.stages[stage.index()].blocks[block.index()].insts;
        let span = insts[sums[i].inst].span;
        let new = |op: Op| Inst { op, span };
        let position = sums[i].inst;
        insts.splice(position + 1..position + 1, after.remove(&i).into_iter().flatten().map(new));
        if let Some(ops) = instead.remove(&i) {
            insts.splice(position..=position, ops.into_iter().map(new));
        }
    }
}

fn fill(bits: u32, ones: bool) -> Bits {
    let zero = Bits::zero(bits);
    if ones { zero.not() } else { zero }
}

/// Slots that no other has the name of.
struct Names {
    sums: usize,
    temps: usize,
}

impl Names {
    /// A slot that is good across stages: a sum, or one of its operands.
    fn kept(&mut self, program: &mut Program, width: u32, operand: Option<usize>) -> SlotId {
        if operand.is_none() {
            let is_taken = |name: &str| program.slots.iter().any(|s| s.name == name);
            self.sums = (self.sums..).find(|n| !is_taken(&format!("$sum{n}"))).expect("not all are taken");
        }
        let name = match operand {
            None => format!("$sum{}", self.sums),
            Some(operand) => format!("$sum{}.{operand}", self.sums),
        };
        add_slot(program, name, width, SlotKind::Local)
    }

    fn temp(&mut self, program: &mut Program, width: u32) -> SlotId {
        let is_taken = |name: &str| program.slots.iter().any(|s| s.name == name);
        self.temps = (self.temps..).find(|n| !is_taken(&format!("%{n}"))).expect("not all are taken");
        add_slot(program, format!("%{}", self.temps), width, SlotKind::Temp)
    }
}

fn add_slot(program: &mut Program, name: String, width: u32, kind: SlotKind) -> SlotId {
    program.slots.push(Slot { name, width, kind });
    SlotId::from_index(program.slots.len() - 1)
}

/// Values, and what is known of them where.
struct View<'a> {
    program: &'a Program,
    ssa: &'a Ssa,
    /// By value: the first of those that are the same, as far as found out.
    same: Vec<Option<ValueId>>,
    /// By value: the instruction that makes it.
    made_by: HashMap<ValueId, (NodeId, usize)>,
    /// By value: the phi that it is.
    phis: HashMap<ValueId, (NodeId, usize)>,
}

impl<'a> View<'a> {
    fn new(program: &'a Program, ssa: &'a Ssa) -> View<'a> {
        let (mut made_by, mut phis) = (HashMap::new(), HashMap::new());
        for (node, values) in ssa.nodes.iter().enumerate() {
            for (i, inst) in values.insts.iter().enumerate() {
                inst.writes.iter().for_each(|w| _ = made_by.insert(w.value, (node, i)));
            }
            values.phis.iter().enumerate().for_each(|(i, phi)| _ = phis.insert(phi.value, (node, i)));
        }
        View { program, ssa, same: vec![None; ssa.values.len()], made_by, phis }
    }

    /// The value that a value is, through copies, through branches that tell of it, and through phis of one value.
    fn origin(&mut self, value: ValueId) -> ValueId {
        if let Some(same) = self.same[value] {
            return same;
        }
        // Until it is known better; what a loop leads back to stays apart.
        self.same[value] = Some(value);
        let ssa = self.ssa;
        let origin = match &ssa.values[value].def {
            Def::Known(_) => ssa.values[value].told_of.map(|v| self.origin(v)),
            Def::Phi => self.phis.get(&value).copied().and_then(|(node, i)| {
                let args = &ssa.nodes[node].phis[i].args;
                let mut origins = args.iter().map(|&arg| ssa.values.get(arg).map(|_| self.origin(arg)));
                let first = origins.next().flatten()?;
                origins.all(|o| o == Some(first)).then_some(first)
            }),
            Def::Inst => Some(ssa.values[value].root).filter(|root| *root != value).map(|root| self.origin(root)),
            Def::Start(_) => None,
        };
        let origin = origin.unwrap_or(value);
        self.same[value] = Some(origin);
        origin
    }

    /// What branches on every way to a node have told.
    fn facts(&mut self, mut node: NodeId) -> Vec<(ValueId, &'a Bits)> {
        let ssa = self.ssa;
        let mut facts = Vec::new();
        loop {
            for &value in &ssa.nodes[node].known {
                if let (Def::Known(known), Some(of)) = (&ssa.values[value].def, ssa.values[value].told_of) {
                    facts.push((self.origin(of), known));
                }
            }
            if node == ROOT {
                return facts;
            }
            node = ssa.idom[node];
        }
    }

    /// The fields in which the operands of two sums differ. `None` if they are not sums of the same.
    fn changes(&mut self, from: &Sum, to: &Sum) -> Option<Vec<Change>> {
        if from.data.len() != to.data.len() {
            return None;
        }
        let mut start = 0;
        let mut changes = Vec::new();
        for (operand, (was, now)) in from.data.iter().zip(&to.data).enumerate() {
            let width = was.width(self.program);
            if width != now.width(self.program) {
                return None;
            }
            if !self.is_same(from, was, to, now) {
                if width > CHANGED_BITS_MAX {
                    return None;
                }
                changes.push(Change { operand, start, was: was.clone(), now: now.clone() });
            }
            start += width;
        }
        Some(changes)
    }

    fn is_same(&mut self, from: &Sum, was: &Operand, to: &Sum, now: &Operand) -> bool {
        match (was, now) {
            (Operand::Const(a), Operand::Const(b)) => a == b,
            (Operand::Slot(a), Operand::Slot(b)) => {
                let (a, b) = (self.read(from, *a), self.read(to, *b));
                self.origin(a) == self.origin(b)
            }
            _ => false,
        }
    }

    fn read(&self, sum: &Sum, slot: SlotId) -> ValueId {
        value_of(&self.ssa.nodes[sum.node].insts[sum.inst], slot)
    }

    /// Whether what is summed by `to`, which `from` comes before, has a bit that is known to be set.
    fn is_never_zero(&mut self, from: &Sum, to: &Sum) -> bool {
        let mut facts = self.facts(to.node);
        facts.extend(self.facts(from.node));
        to.data.iter().any(|operand| match operand {
            Operand::Const(c) => !c.is_zero(),
            Operand::Slot(slot) => {
                let value = self.read(to, *slot);
                let value = self.origin(value);
                facts.iter().any(|(known, bits)| *known == value && !bits.is_zero())
            }
        })
    }

    /// Whether there is a loop at or behind a node: what is one value could have been different things then.
    fn loops_behind(&self, node: NodeId) -> bool {
        let graph = &self.ssa.graph;
        let at = |n: NodeId| graph.rpo_index[n];
        graph.rpo.iter().filter(|n| at(**n) >= at(node)).any(|&n| graph.succs[n].iter().any(|&to| at(to) <= at(n)))
    }

    fn dominates(&self, a: NodeId, mut b: NodeId) -> bool {
        while self.ssa.graph.rpo_index[b] > self.ssa.graph.rpo_index[a] {
            b = self.ssa.idom[b];
        }
        a == b
    }

    /// The value of an operand of the node's code, as far as it follows from what is known of the values it is made of.
    fn evaluate(&mut self, node: NodeId, value: ValueId, facts: &[(ValueId, &Bits)]) -> Option<Bits> {
        let origin = self.origin(value);
        if let Some((_, bits)) = facts.iter().find(|(v, _)| *v == origin) {
            return Some((*bits).clone());
        }
        let &(made_in, i) = self.made_by.get(&value)?;
        if made_in != node {
            return None;
        }
        let ssa = self.ssa;
        let op = &ssa.graph.block(self.program, node)?.insts[i].op;
        let uses = &ssa.nodes[node].insts[i];
        op.evaluate(self.program.width(op.dst()?), |operand| match operand {
            Operand::Const(c) => Some(c.clone()),
            Operand::Slot(slot) => self.evaluate(node, value_of(uses, *slot), facts),
        })
    }

    /// The number that a value always is, as far as its definition tells.
    fn constant(&self, value: ValueId) -> Option<Bits> {
        let info = self.ssa.values.get(value)?;
        match &info.def {
            Def::Known(known) => Some(known.clone()),
            Def::Start(StartValue::Zero) => Some(Bits::zero(self.program.width(info.slot))),
            Def::Start(StartValue::Unknown) | Def::Phi => None,
            Def::Inst => {
                let &(node, i) = self.made_by.get(&info.root)?;
                match &self.ssa.graph.block(self.program, node)?.insts[i].op {
                    Op::Mov { src: Operand::Const(c), .. } => Some(c.clone()),
                    _ => None,
                }
            }
        }
    }

    /// The phis that an operand of the node's code is made of.
    fn phis_in(&mut self, node: NodeId, value: ValueId, phis: &mut Vec<ValueId>) {
        let origin = self.origin(value);
        if self.phis.contains_key(&origin) {
            phis.push(origin);
        } else if let Some(&(made_in, i)) = self.made_by.get(&value)
            && made_in == node
            && phis.len() < PHIS_MAX
        {
            let ssa = self.ssa;
            ssa.nodes[node].insts[i].uses.iter().for_each(|u| self.phis_in(node, u.value, phis));
        }
    }

    /// The branch that is the only way to a node: where, on what, and what that is on this way.
    fn guard(&self, node: NodeId) -> Option<Guard> {
        let [before] = self.ssa.graph.preds[node][..] else { return None };
        let (Node::Block(_, to), block) = (self.ssa.graph.nodes[node], self.ssa.graph.block(self.program, before)?)
        else {
            return None;
        };
        match (&block.term, self.ssa.nodes[before].term) {
            (Terminator::Branch { then, other, .. }, Some(on)) if then != other => {
                Some(Guard { before, on: on.value, way: *then == to })
            }
            _ => None,
        }
    }
}

/// A branch that went one way.
#[derive(Clone, Copy)]
struct Guard {
    before: NodeId,
    on: ValueId,
    way: bool,
}

/// Why a phi cannot be every number.
#[derive(Clone, Copy)]
enum Told<'a> {
    /// It is this one.
    Is(&'a Bits),
    /// It is one with which a branch goes the way that it went.
    By(Guard),
}

fn value_of(values: &InstValues, slot: SlotId) -> ValueId {
    values.uses.iter().find(|u| u.slot == slot).expect("the view has every read").value
}

/// Whether a packet has passed a node.
struct Proof<'v, 'a> {
    view: &'v mut View<'a>,
    goal: NodeId,
    guard: Option<Guard>,
    known: HashMap<NodeId, bool>,
    steps: u32,
}

impl<'v, 'a> Proof<'v, 'a> {
    fn new(view: &'v mut View<'a>, goal: NodeId) -> Proof<'v, 'a> {
        let guard = view.guard(goal);
        Proof { view, goal, guard, known: HashMap::new(), steps: 0 }
    }

    /// Whether instruction `first` of the goal runs before instruction `inst` of a node.
    fn passed_before(&mut self, node: NodeId, inst: usize, first: usize) -> bool {
        if node == self.goal { first < inst } else { self.passed(node) }
    }

    /// Whether whoever is at a node's end has passed the goal.
    fn passed(&mut self, node: NodeId) -> bool {
        if let Some(&known) = self.known.get(&node) {
            return known;
        }
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return false;
        }
        self.known.insert(node, false);
        let passed = self.prove(node);
        self.known.insert(node, passed);
        passed
    }

    fn prove(&mut self, node: NodeId) -> bool {
        let ssa = self.view.ssa;
        // Nobody comes to the goal from behind it: there are no loops.
        if ssa.graph.rpo_index[node] < ssa.graph.rpo_index[self.goal] {
            return false;
        }
        if self.view.dominates(self.goal, node) {
            return true;
        }
        let facts = self.view.facts(node);
        if let Some(Guard { before, on, way }) = self.guard
            && self.view.dominates(before, node)
            && self.view.evaluate(before, on, &facts).is_some_and(|c| c.is_true() == way)
        {
            return true;
        }
        if facts.iter().any(|(value, bits)| self.ways_passed(*value, *value, Told::Is(bits))) {
            return true;
        }
        let mut at = node;
        while at != ROOT {
            if let Some(guard) = self.view.guard(at) {
                let mut phis = Vec::new();
                self.view.phis_in(guard.before, guard.on, &mut phis);
                if phis.into_iter().any(|phi| self.ways_passed(phi, phi, Told::By(guard))) {
                    return true;
                }
            }
            at = ssa.idom[at];
        }
        let preds = &ssa.graph.preds[node];
        let is_start = matches!(ssa.graph.nodes[node], Node::Start(_) | Node::Root);
        !is_start && !preds.is_empty() && preds.iter().all(|p| self.passed(*p))
    }

    /// Whether all ways on which `phi`, as far as it is `part`, can be what was told have passed the goal.
    fn ways_passed(&mut self, phi: ValueId, part: ValueId, told: Told<'_>) -> bool {
        self.steps += 1;
        let Some(&(node, i)) = self.view.phis.get(&part) else { return false };
        if self.steps > STEPS_MAX {
            return false;
        }
        let ssa = self.view.ssa;
        let args = &ssa.nodes[node].phis[i].args;
        ssa.graph.preds[node].iter().zip(args).all(|(&pred, &arg)| {
            let is_possible = self.view.constant(arg).is_none_or(|number| match told {
                Told::Is(wanted) => number == *wanted,
                Told::By(Guard { before, on, way }) => {
                    self.view.evaluate(before, on, &[(phi, &number)]).is_none_or(|c| c.is_true() == way)
                }
            });
            !is_possible || self.passed(pred) || self.ways_passed(phi, arg, told)
        })
    }
}
