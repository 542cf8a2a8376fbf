//! Uses and definitions of operations, and the control-flow graph: the facts that passes and engines share.
//!
//! [`Op::dst`], [`Op::for_each_def`], [`Op::for_each_use`] and [`Op::is_removable`] are exhaustive matches over [`Op`],
//! so a new operation begins here. [`Cfg`] holds successors, predecessors and a reverse post-order of one stage.
//! Everything takes time linear in the stage.
//!
//! Tests: at the end of the file.

use crate::op::{Fate, Op, Operand, Terminator};
use crate::program::{Program, Stage};
use base::Bits;
use base::ids::{BlockId, HeaderId, SlotId};

impl Operand {
    /// The width of the slot or constant.
    pub fn width(&self, program: &Program) -> u32 {
        match self {
            Operand::Slot(s) => program.width(*s),
            Operand::Const(c) => c.width(),
        }
    }

    /// The slot, if it is one.
    pub fn slot(&self) -> Option<SlotId> {
        match self {
            Operand::Slot(s) => Some(*s),
            Operand::Const(_) => None,
        }
    }

    /// The constant, if it is one.
    pub fn constant(&self) -> Option<&Bits> {
        match self {
            Operand::Slot(_) => None,
            Operand::Const(c) => Some(c),
        }
    }

    /// A constant of this width.
    pub fn new_const(width: u32, value: u128) -> Operand {
        Operand::Const(Bits::new(width, value))
    }
}

impl From<SlotId> for Operand {
    fn from(slot: SlotId) -> Operand {
        Operand::Slot(slot)
    }
}

impl From<Bits> for Operand {
    fn from(bits: Bits) -> Operand {
        Operand::Const(bits)
    }
}

impl From<&Bits> for Operand {
    fn from(bits: &Bits) -> Operand {
        Operand::Const(bits.clone())
    }
}

impl From<&Operand> for Operand {
    fn from(operand: &Operand) -> Operand {
        operand.clone()
    }
}

/// Calls `f` for every slot of a header: validity, then fields in wire order, a varbit's length after the varbit.
pub fn for_each_header_slot(program: &Program, header: HeaderId, mut f: impl FnMut(SlotId)) {
    let header = &program.headers[header.index()];
    f(header.valid);
    for field in &header.fields {
        f(field.slot);
        field.varbit_length.into_iter().for_each(&mut f);
    }
}

impl Op {
    /// The single destination slot of an operation. `None` for operations without one and for those with several
    /// ([`Op::Apply`] and the header operations); [`Op::for_each_def`] visits all.
    pub fn dst(&self) -> Option<SlotId> {
        match self {
            Op::Mov { dst, .. }
            | Op::Bin { dst, .. }
            | Op::Un { dst, .. }
            | Op::Cast { dst, .. }
            | Op::Concat { dst, .. }
            | Op::Slice { dst, .. }
            | Op::SetSlice { dst, .. }
            | Op::Select { dst, .. }
            | Op::HasBits { dst, .. }
            | Op::Lookahead { dst, .. }
            | Op::Consumed { dst }
            | Op::ActionParam { dst, .. }
            | Op::Meter { dst, .. }
            | Op::MeterDirect { dst, .. }
            | Op::RegisterRead { dst, .. }
            | Op::RegisterUpdate { dst, .. }
            | Op::Hash { dst, .. }
            | Op::AddEntry { dst, .. }
            | Op::Random { dst, .. } => Some(*dst),
            Op::SetValid { .. }
            | Op::SetInvalid { .. }
            | Op::Extract { .. }
            | Op::Advance { .. }
            | Op::Emit { .. }
            | Op::Truncate { .. }
            | Op::Apply { .. }
            | Op::Count { .. }
            | Op::CountDirect { .. }
            | Op::RestartTimer { .. }
            | Op::RegisterWrite { .. }
            | Op::Digest { .. }
            | Op::Log { .. }
            | Op::Assert { .. }
            | Op::Unresolved { .. }
            | Op::Charge { .. }
            | Op::Mark(_) => None,
        }
    }

    /// Calls `f` for every slot that is written (completely or, by [`Op::SetSlice`], in part).
    pub fn for_each_def(&self, program: &Program, mut f: impl FnMut(SlotId)) {
        match self {
            Op::SetValid { header } => f(program.headers[header.index()].valid),
            Op::SetInvalid { header } | Op::Extract { header, .. } => for_each_header_slot(program, *header, f),
            Op::Apply { hit, action, entry, data, .. } => [*hit, *action, *entry, *data].into_iter().for_each(f),
            Op::Unresolved { results, .. } => results.iter().copied().for_each(f),
            _ => self.dst().into_iter().for_each(&mut f),
        }
    }

    /// Calls `f` for every operand, in the order of the fields' declaration. Slots that are not operands (handles,
    /// varbit lengths, a partial destination, the slots of an emitted header) are left out.
    pub fn for_each_operand<'a>(&'a self, mut f: impl FnMut(&'a Operand)) {
        match self {
            Op::Mov { src: a, .. }
            | Op::Un { a, .. }
            | Op::Cast { a, .. }
            | Op::Slice { a, .. }
            | Op::SetSlice { a, .. }
            | Op::HasBits { bits: a, .. }
            | Op::Extract { varbit_bits: Some(a), .. }
            | Op::Advance { bits: a }
            | Op::Truncate { bytes: a }
            | Op::RegisterRead { index: a, .. }
            | Op::Assert { cond: a, .. } => f(a),
            Op::Bin { a, b, .. }
            | Op::Concat { hi: a, lo: b, .. }
            | Op::RegisterWrite { index: a, src: b, .. }
            | Op::RegisterUpdate { index: a, src: b, .. }
            | Op::Random { low: a, high: b, .. } => [a, b].into_iter().for_each(f),
            Op::Select { cond, then, other, .. } => [cond, then, other].into_iter().for_each(f),
            Op::Apply { keys, selector, .. } => keys.iter().chain(selector).for_each(f),
            Op::AddEntry { keys, args, expire, .. } => keys.iter().chain(args).chain([expire]).for_each(f),
            Op::RestartTimer { hit, expire, .. } => [hit].into_iter().chain(expire).for_each(f),
            Op::Count { index: a, bytes, .. } | Op::CountDirect { hit: a, bytes, .. } => {
                [a].into_iter().chain(bytes).for_each(f);
            }
            Op::Meter { index: a, before, bytes, .. } | Op::MeterDirect { hit: a, before, bytes, .. } => {
                [a].into_iter().chain(before).chain(bytes).for_each(f);
            }
            Op::Hash { base, max, data, .. } => {
                f(base);
                max.iter().chain(data).for_each(f);
            }
            Op::Digest { data: operands, .. }
            | Op::Log { args: operands, .. }
            | Op::Unresolved { args: operands, .. } => operands.iter().for_each(f),
            Op::SetValid { .. }
            | Op::SetInvalid { .. }
            | Op::Extract { varbit_bits: None, .. }
            | Op::Lookahead { .. }
            | Op::Consumed { .. }
            | Op::Emit { .. }
            | Op::ActionParam { .. }
            | Op::Charge { .. }
            | Op::Mark(_) => {}
        }
    }

    /// As [`Op::for_each_operand`], with mutable operands. The width of an operand must not change.
    pub fn for_each_operand_mut(&mut self, mut f: impl FnMut(&mut Operand)) {
        match self {
            Op::Mov { src: a, .. }
            | Op::Un { a, .. }
            | Op::Cast { a, .. }
            | Op::Slice { a, .. }
            | Op::SetSlice { a, .. }
            | Op::HasBits { bits: a, .. }
            | Op::Extract { varbit_bits: Some(a), .. }
            | Op::Advance { bits: a }
            | Op::Truncate { bytes: a }
            | Op::RegisterRead { index: a, .. }
            | Op::Assert { cond: a, .. } => f(a),
            Op::Bin { a, b, .. }
            | Op::Concat { hi: a, lo: b, .. }
            | Op::RegisterWrite { index: a, src: b, .. }
            | Op::RegisterUpdate { index: a, src: b, .. }
            | Op::Random { low: a, high: b, .. } => [a, b].into_iter().for_each(f),
            Op::Select { cond, then, other, .. } => [cond, then, other].into_iter().for_each(f),
            Op::Apply { keys, selector, .. } => keys.iter_mut().chain(selector).for_each(f),
            Op::AddEntry { keys, args, expire, .. } => keys.iter_mut().chain(args).chain([expire]).for_each(f),
            Op::RestartTimer { hit, expire, .. } => [hit].into_iter().chain(expire).for_each(f),
            Op::Count { index: a, bytes, .. } | Op::CountDirect { hit: a, bytes, .. } => {
                [a].into_iter().chain(bytes).for_each(f);
            }
            Op::Meter { index: a, before, bytes, .. } | Op::MeterDirect { hit: a, before, bytes, .. } => {
                [a].into_iter().chain(before).chain(bytes).for_each(f);
            }
            Op::Hash { base, max, data, .. } => {
                f(base);
                max.iter_mut().chain(data).for_each(f);
            }
            Op::Digest { data: operands, .. }
            | Op::Log { args: operands, .. }
            | Op::Unresolved { args: operands, .. } => operands.iter_mut().for_each(f),
            Op::SetValid { .. }
            | Op::SetInvalid { .. }
            | Op::Extract { varbit_bits: None, .. }
            | Op::Lookahead { .. }
            | Op::Consumed { .. }
            | Op::Emit { .. }
            | Op::ActionParam { .. }
            | Op::Charge { .. }
            | Op::Mark(_) => {}
        }
    }

    /// Calls `f` for every slot that the operation names, so that slots can be renumbered. The slots of a named header
    /// are left out.
    pub fn for_each_slot_mut(&mut self, mut f: impl FnMut(&mut SlotId)) {
        self.for_each_operand_mut(|operand| {
            if let Operand::Slot(slot) = operand {
                f(slot);
            }
        });
        match self {
            Op::Mov { dst, .. }
            | Op::Bin { dst, .. }
            | Op::Un { dst, .. }
            | Op::Cast { dst, .. }
            | Op::Concat { dst, .. }
            | Op::Slice { dst, .. }
            | Op::SetSlice { dst, .. }
            | Op::Select { dst, .. }
            | Op::HasBits { dst, .. }
            | Op::Lookahead { dst, .. }
            | Op::Consumed { dst }
            | Op::Meter { dst, .. }
            | Op::RegisterRead { dst, .. }
            | Op::RegisterUpdate { dst, .. }
            | Op::AddEntry { dst, .. }
            | Op::Random { dst, .. } => f(dst),
            Op::ActionParam { dst, data: handle, .. } | Op::MeterDirect { dst, entry: handle, .. } => {
                [dst, handle].into_iter().for_each(f);
            }
            Op::Hash { dst, varbits, .. } => {
                f(dst);
                varbits.iter_mut().for_each(|(_, length)| f(length));
            }
            Op::Apply { hit, action, entry, data, .. } => [hit, action, entry, data].into_iter().for_each(f),
            Op::CountDirect { entry, .. } | Op::RestartTimer { entry, .. } => f(entry),
            Op::Unresolved { results, .. } => results.iter_mut().for_each(f),
            Op::SetValid { .. }
            | Op::SetInvalid { .. }
            | Op::Extract { .. }
            | Op::Advance { .. }
            | Op::Emit { .. }
            | Op::Truncate { .. }
            | Op::Count { .. }
            | Op::RegisterWrite { .. }
            | Op::Digest { .. }
            | Op::Log { .. }
            | Op::Assert { .. }
            | Op::Charge { .. }
            | Op::Mark(_) => {}
        }
    }

    /// Calls `f` for every slot that is read other than through an operand: the kept part of a partial destination,
    /// handles, varbit lengths, all slots of an emitted header.
    pub fn for_each_fixed_use(&self, program: &Program, mut f: impl FnMut(SlotId)) {
        match self {
            Op::SetSlice { dst, .. } => f(*dst),
            Op::Emit { header } => for_each_header_slot(program, *header, f),
            Op::ActionParam { data, .. } => f(*data),
            Op::CountDirect { entry, .. } | Op::MeterDirect { entry, .. } | Op::RestartTimer { entry, .. } => f(*entry),
            Op::Hash { varbits, .. } => varbits.iter().for_each(|(_, length)| f(*length)),
            _ => {}
        }
    }

    /// Calls `f` for every slot that is read in any manner. A slot may be visited more than once.
    pub fn for_each_use(&self, program: &Program, mut f: impl FnMut(SlotId)) {
        self.for_each_operand(|o| o.slot().into_iter().for_each(&mut f));
        self.for_each_fixed_use(program, f);
    }

    /// Whether the operation has no effect except writing its destinations, so that it is dead code when all of them
    /// are dead.
    ///
    /// `Apply` is not removable: it may restart idle timers. `Meter` changes the bucket, `Random` the generator's
    /// state. `RegisterRead` is removable because a read is not observable.
    pub fn is_removable(&self) -> bool {
        match self {
            Op::Mov { .. }
            | Op::Bin { .. }
            | Op::Un { .. }
            | Op::Cast { .. }
            | Op::Concat { .. }
            | Op::Slice { .. }
            | Op::SetSlice { .. }
            | Op::Select { .. }
            | Op::SetValid { .. }
            | Op::SetInvalid { .. }
            | Op::HasBits { .. }
            | Op::Lookahead { .. }
            | Op::Consumed { .. }
            | Op::ActionParam { .. }
            | Op::RegisterRead { .. } => true,
            Op::Hash { algorithm, .. } => *algorithm != crate::op::HashAlgorithm::Random,
            Op::Extract { .. }
            | Op::Advance { .. }
            | Op::Emit { .. }
            | Op::Truncate { .. }
            | Op::Apply { .. }
            | Op::Count { .. }
            | Op::CountDirect { .. }
            | Op::Meter { .. }
            | Op::MeterDirect { .. }
            | Op::AddEntry { .. }
            | Op::RestartTimer { .. }
            | Op::RegisterWrite { .. }
            | Op::RegisterUpdate { .. }
            | Op::Random { .. }
            | Op::Digest { .. }
            | Op::Log { .. }
            | Op::Assert { .. }
            | Op::Unresolved { .. }
            | Op::Charge { .. }
            | Op::Mark(_) => false,
        }
    }

    /// Whether the result depends on the operands alone: not on the packet, the cursor, tables, state or random
    /// numbers.
    pub fn is_arithmetic(&self) -> bool {
        matches!(
            self,
            Op::Mov { .. }
                | Op::Bin { .. }
                | Op::Un { .. }
                | Op::Cast { .. }
                | Op::Concat { .. }
                | Op::Slice { .. }
                | Op::SetSlice { .. }
                | Op::Select { .. }
        )
    }
}

impl Terminator {
    /// Calls `f` for every successor, in order. A block that is named twice is visited twice.
    pub fn for_each_target(&self, mut f: impl FnMut(BlockId)) {
        match self {
            Terminator::Jump(to) => f(*to),
            Terminator::Branch { then, other, .. } => [*then, *other].into_iter().for_each(f),
            Terminator::Switch { cases, default, .. } => {
                cases.iter().for_each(|(_, to)| f(*to));
                f(*default);
            }
            Terminator::Next | Terminator::Finish(_) => {}
        }
    }

    /// As [`Terminator::for_each_target`], with mutable targets.
    pub fn for_each_target_mut(&mut self, mut f: impl FnMut(&mut BlockId)) {
        match self {
            Terminator::Jump(to) => f(to),
            Terminator::Branch { then, other, .. } => [then, other].into_iter().for_each(f),
            Terminator::Switch { cases, default, .. } => {
                cases.iter_mut().for_each(|(_, to)| f(to));
                f(default);
            }
            Terminator::Next | Terminator::Finish(_) => {}
        }
    }

    /// The operand it reads.
    pub fn operand(&self) -> Option<&Operand> {
        match self {
            Terminator::Branch { cond: o, .. }
            | Terminator::Switch { on: o, .. }
            | Terminator::Finish(Fate::Send(o) | Fate::Multicast(o)) => Some(o),
            Terminator::Jump(_)
            | Terminator::Next
            | Terminator::Finish(Fate::Drop(_) | Fate::Replicate(_) | Fate::Again { .. }) => None,
        }
    }

    /// As [`Terminator::operand`], mutable.
    pub fn operand_mut(&mut self) -> Option<&mut Operand> {
        match self {
            Terminator::Branch { cond: o, .. }
            | Terminator::Switch { on: o, .. }
            | Terminator::Finish(Fate::Send(o) | Fate::Multicast(o)) => Some(o),
            Terminator::Jump(_)
            | Terminator::Next
            | Terminator::Finish(Fate::Drop(_) | Fate::Replicate(_) | Fate::Again { .. }) => None,
        }
    }
}

/// The control-flow graph of one stage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cfg {
    /// Predecessors by block, each once, in reverse post-order; reachable blocks only.
    pub preds: Vec<Vec<BlockId>>,
    /// Successors by block, each once, in the order of the terminator.
    pub succs: Vec<Vec<BlockId>>,
    /// Blocks that can be reached from the start, in reverse post-order.
    pub rpo: Vec<BlockId>,
    /// Position in `rpo` by block; `None` for blocks that cannot be reached.
    pub rpo_index: Vec<Option<u32>>,
}

impl Cfg {
    /// By block: whether it is the head of a loop, that is, whether an edge leads to it from itself or from a later
    /// block in reverse post-order.
    pub fn loop_heads(&self) -> Vec<bool> {
        let mut heads = vec![false; self.rpo_index.len()];
        for &from in &self.rpo {
            for to in &self.succs[from.index()] {
                heads[to.index()] |= self.rpo_index[to.index()] <= self.rpo_index[from.index()];
            }
        }
        heads
    }

    /// By block: whether it lies on a cycle (strongly connected components, Kosaraju's algorithm).
    pub fn blocks_in_loops(&self) -> Vec<bool> {
        let mut in_loop = vec![false; self.rpo_index.len()];
        let mut seen = vec![false; self.rpo_index.len()];
        for &root in &self.rpo {
            if std::mem::replace(&mut seen[root.index()], true) {
                continue;
            }
            let mut component = vec![root];
            let mut next = 0;
            while let Some(&block) = component.get(next) {
                next += 1;
                let unseen = |from: &&BlockId| !std::mem::replace(&mut seen[from.index()], true);
                component.extend(self.preds[block.index()].iter().filter(unseen));
            }
            if component.len() > 1 || self.succs[root.index()].contains(&root) {
                component.iter().for_each(|block| in_loop[block.index()] = true);
            }
        }
        in_loop
    }

    /// Builds the graph of a stage, whose block ids must be in range.
    pub fn new(stage: &Stage) -> Cfg {
        let n = stage.blocks.len();
        let mut succs: Vec<Vec<BlockId>> = Vec::with_capacity(n);
        // `seen[b] == i + 1` if block `i` already has the successor `b`; this avoids a set per block.
        let mut seen = vec![0u32; n];
        for (i, block) in stage.blocks.iter().enumerate() {
            let mut list = Vec::new();
            block.term.for_each_target(|to| {
                if std::mem::replace(&mut seen[to.index()], i as u32 + 1) != i as u32 + 1 {
                    list.push(to);
                }
            });
            succs.push(list);
        }
        let rpo = reverse_post_order(&succs);
        let mut rpo_index = vec![None; n];
        let mut preds = vec![Vec::new(); n];
        for (i, &b) in rpo.iter().enumerate() {
            rpo_index[b.index()] = Some(i as u32);
            for &to in &succs[b.index()] {
                preds[to.index()].push(b);
            }
        }
        Cfg { preds, succs, rpo, rpo_index }
    }

    /// Whether a block can be reached from the start.
    pub fn is_reachable(&self, block: BlockId) -> bool {
        self.rpo_index[block.index()].is_some()
    }
}

/// Depth-first search with an explicit stack: programs have tens of thousands of blocks.
fn reverse_post_order(succs: &[Vec<BlockId>]) -> Vec<BlockId> {
    let mut order = Vec::with_capacity(succs.len());
    let mut visited = vec![false; succs.len()];
    if succs.is_empty() {
        return order;
    }
    visited[Stage::START.index()] = true;
    let mut stack = vec![(Stage::START, 0usize)];
    while let Some((block, next)) = stack.last_mut() {
        match succs[block.index()].get(*next) {
            Some(&to) => {
                *next += 1;
                if !std::mem::replace(&mut visited[to.index()], true) {
                    stack.push((to, 0));
                }
            }
            None => {
                order.push(*block);
                stack.pop();
            }
        }
    }
    order.reverse();
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{Builder, FieldWidth};
    use crate::program::StageKind;

    #[test]
    fn reverse_post_order_puts_the_head_of_a_loop_before_its_body_and_leaves_out_the_dead() {
        let mut b = Builder::new("t");
        let x = b.metadata("x", 1);
        b.begin_stage("s", StageKind::Control);
        let [head, body, out, dead] = ["head", "body", "out", "dead"].map(|l| b.block(l));
        b.jump(head);
        b.switch_to(head);
        b.branch(x, body, out);
        b.switch_to(body);
        b.branch(x, head, head);
        b.switch_to(out);
        b.next_stage();
        b.switch_to(dead);
        b.jump(out);
        b.end_stage();
        let cfg = Cfg::new(&b.finish().stages[0]);
        assert_eq!(cfg.rpo, [BlockId(0), head, out, body]);
        assert_eq!(cfg.preds[head.index()], [BlockId(0), body]);
        assert_eq!(cfg.preds[out.index()], [head]);
        assert_eq!(cfg.succs[body.index()], [head]);
        assert!(!cfg.is_reachable(dead));
    }

    #[test]
    fn header_operations_define_and_use_all_slots_of_the_header() {
        let mut b = Builder::new("t");
        let h = b.header("h", &[("a", FieldWidth::Fixed(8)), ("v", FieldWidth::Varbit(16))]);
        let program = b.finish();
        let collect = |op: Op| {
            let (mut defs, mut uses) = (Vec::new(), Vec::new());
            op.for_each_def(&program, |s| defs.push(s.0));
            op.for_each_use(&program, |s| uses.push(s.0));
            (defs, uses)
        };
        assert_eq!(collect(Op::SetInvalid { header: h }), (vec![3, 0, 1, 2], vec![]));
        assert_eq!(collect(Op::SetValid { header: h }), (vec![3], vec![]));
        assert_eq!(collect(Op::Emit { header: h }), (vec![], vec![3, 0, 1, 2]));
    }
}
