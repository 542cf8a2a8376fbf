//! Which slots of an entry point live in memory instead of a Cranelift variable.
//!
//! A variable seems to cost nothing where it is neither read nor written, but its value is an argument at each join in
//! its live range, and it competes for a register all along. Many long live ranges cost time quadratic in the program's
//! size: in Cranelift's SSA construction, in its passes and in its register allocator, which would spill most of them
//! in the end. So a slot whose *reach* (the length of its live range in code) is long for its number of accesses gets a
//! word of the function's frame from the start, where only accesses cost anything.
//!
//! The reach of all slots in variables together is at most [`REACH_PER_ACCESS_MAX`] times the number of accesses, and
//! the walk that measures a slot's reach stops where it exceeds this; both are linear in the program. No slot of a
//! program shorter than twice that number exceeds it.
//!
//! A slot that very many blocks write ([`WRITERS_MAX`]; a table's action, for example) is in memory too: its values
//! would be one bundle of the register allocator, and building a bundle takes time quadratic in its values.
//!
//! Everything that is written in a long block without a branch ([`STRAIGHT_MAX`]) is also kept in memory. Cranelift
//! computes pure values where they are first used, not in program order; in a long block that makes thousands of them
//! live at once. Stores keep their order, and the stored value is computed before the store.
//!
//! Slots that are never live between blocks ([`Where::Block`]) need neither: the translator remembers their values.
//! (This also saves memory: Cranelift keeps a table of all blocks for each variable.)
//!
//! Header pointers ([`crate::flow`]) are numbered as slots after the program's own. Clean fields have no value in a
//! variable; reading one reads its header's pointer, or its validity where no pointer is carried.
//!
//! Staged code ([`crate::stage`]) keeps all slots in variables and stack slots, which its rows can save. An entry point
//! for which that would cost too much ([`may_stage`]) runs to completion, whatever the strategy.
//!
//! The measure is an estimate: translation reads more than the operations say, for example where a deparser ends. It
//! affects speed, never correctness. Tests: `tests/packets.rs` with every choice forced, `tests/scale.rs`, and
//! generated programs in crate `difftest`.

use crate::flow::{Facts, Flow, ProgramFacts};
use crate::stage::plan::Plan;
use crate::value::Class;
use crate::{MemorySlots, Optimisation, Options};
use ir::{BitSet, Fate, HeaderId, Op, Program, SlotId, SlotKind, Terminator};

/// Most reach of a variable for each of its accesses.
pub const REACH_PER_ACCESS_MAX: u64 = 256;
/// Most blocks that write a variable.
pub const WRITERS_MAX: usize = 1024;
/// Most operations of a block whose writes may be in variables.
pub const STRAIGHT_MAX: u64 = 512;

/// Most variables times blocks: Cranelift keeps a table of all blocks for each variable.
const VARIABLE_BLOCKS_MAX: usize = 4_000_000;

/// [`VARIABLE_BLOCKS_MAX`] for staged code, which can put less into memory.
const STAGED_VARIABLE_BLOCKS_MAX: usize = 16_000_000;

/// Most slots and pointers with long live ranges in staged code, times the blocks that they may be live in. Time and
/// memory for translation grow with this product.
const STAGED_CARRIED_MAX: usize = 2_000_000;

/// Whether an entry point is small enough for staged code, which has all slots in variables.
pub(crate) fn may_stage(program: &Program, facts: &ProgramFacts, flow: &Flow, options: &Options) -> bool {
    let nodes = flow.graph.nodes.len();
    let all = nodes * (program.slots.len() + program.headers.len());
    if all <= STAGED_CARRIED_MAX {
        return true;
    }
    if all > STAGED_VARIABLE_BLOCKS_MAX {
        return false;
    }
    let mut survey = Survey::new(program, facts, flow, options);
    (0..nodes).for_each(|n| survey.node(n));
    nodes * survey.place().iter().count() <= STAGED_CARRIED_MAX
}

/// Where a slot is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Where {
    /// In a Cranelift variable.
    Variable,
    /// In the frame.
    Memory,
    /// Only within a block: each block that reads it has written it before.
    Block,
}

/// Where the slots and header pointers of an entry point are kept.
pub(crate) struct Placement {
    in_memory: BitSet,
    /// Slots that are live between blocks.
    between_blocks: BitSet,
    slots: usize,
}

impl Placement {
    pub fn new(program: &Program, facts: &ProgramFacts, flow: &Flow, plan: &Plan, options: &Options) -> Placement {
        let slots = program.slots.len();
        let all = slots + program.headers.len();
        let nowhere_else = Placement { in_memory: BitSet::new(all), between_blocks: BitSet::full(all), slots };
        if plan.is_staged() || !options.has(Optimisation::RegisterSlots) {
            return nowhere_else;
        }
        let mut survey = Survey::new(program, facts, flow, options);
        (0..flow.graph.nodes.len()).for_each(|n| survey.node(n));
        let between_blocks = survey.between_blocks();
        let mut in_memory = match options.memory_slots {
            MemorySlots::EveryOther => {
                let mut half = BitSet::new(all);
                (0..all).step_by(2).for_each(|key| half.insert(key));
                half
            }
            MemorySlots::Never => BitSet::new(all),
            MemorySlots::Auto => {
                let accesses = survey.accesses.clone();
                let mut in_memory = survey.place();
                let most = VARIABLE_BLOCKS_MAX / flow.graph.nodes.len().max(1);
                let is_variable = |&s: &usize| !in_memory.contains(s) && between_blocks.contains(s);
                let mut variables: Vec<usize> = (0..slots).filter(is_variable).collect();
                if variables.len() > most {
                    // Keep those that are accessed most.
                    variables.sort_by_key(|&s| std::cmp::Reverse(accesses[s]));
                    variables[most..].iter().for_each(|&s| in_memory.insert(s));
                }
                in_memory
            }
        };
        // Wide slots have stack slots of their own.
        for s in (0..slots).filter(|&s| matches!(Class::of(program.slots[s].width), Class::Words(_))) {
            in_memory.remove(s);
        }
        Placement { in_memory, between_blocks, slots }
    }

    /// Where a slot is kept.
    pub fn slot(&self, slot: SlotId) -> Where {
        match slot.index() {
            s if self.in_memory.contains(s) => Where::Memory,
            s if self.between_blocks.contains(s) => Where::Variable,
            _ => Where::Block,
        }
    }

    /// Whether the pointer to a header is in memory.
    pub fn pointer(&self, header: HeaderId) -> bool {
        self.in_memory.contains(self.slots + header.index())
    }
}

/// The approximate code size of an operation, in plain operations; a join counts as one too.
fn weight(op: &Op) -> u64 {
    match op {
        Op::Emit { .. } => 8,
        Op::Apply { .. } | Op::AddEntry { .. } => 16,
        Op::Count { .. } | Op::CountDirect { .. } | Op::RegisterRead { .. } | Op::RegisterWrite { .. } => 4,
        Op::RegisterUpdate { .. } => 8,
        _ => 1,
    }
}

/// An upward-exposed read of a key in a node, or its last write there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct At {
    key: u32,
    node: u32,
    position: u64,
}

/// Accesses of an entry point's slots and header pointers, the *keys*.
struct Survey<'a> {
    program: &'a Program,
    facts: &'a ProgramFacts,
    flow: &'a Flow,
    /// By header: whether the code carries its pointer.
    carries: Vec<bool>,
    /// By key.
    accesses: Vec<u64>,
    reach: Vec<u64>,
    /// By key: one plus the last node that accessed it, and the position there.
    touched: Vec<(u32, u64)>,
    /// By key: one plus the index of its last entry in `writes`.
    written: Vec<u32>,
    /// Upward-exposed reads (not preceded by a write in the same block), and last writes.
    reads: Vec<At>,
    writes: Vec<At>,
    /// By node.
    length: Vec<u64>,
    node: u32,
    position: u64,
    in_memory: BitSet,
}

impl<'a> Survey<'a> {
    fn new(program: &'a Program, facts: &'a ProgramFacts, flow: &'a Flow, options: &Options) -> Survey<'a> {
        let mut carries = vec![false; program.headers.len()];
        flow.carried_headers(options.carried_headers_max).for_each(|h| carries[h.index()] = true);
        let keys = program.slots.len() + program.headers.len();
        Survey {
            program,
            facts,
            flow,
            carries,
            accesses: vec![0; keys],
            reach: vec![0; keys],
            touched: vec![(0, 0); keys],
            written: vec![0; keys],
            reads: Vec::new(),
            writes: Vec::new(),
            length: Vec::with_capacity(flow.graph.nodes.len()),
            node: 0,
            position: 0,
            in_memory: BitSet::new(keys),
        }
    }

    /// Records the accesses of a node's block.
    fn node(&mut self, n: usize) {
        let (program, facts, flow) = (self.program, self.facts, self.flow);
        let node = &flow.graph.nodes[n];
        let block = &program.stages[node.stage.index()].blocks[node.block.index()];
        (self.node, self.position) = (n as u32, 0);
        let mut at = flow.at[n].clone();
        for inst in &block.insts {
            self.op(&at, &inst.op);
            flow.step(program, facts, node.position, &inst.op, &mut at);
        }
        match &block.term {
            Terminator::Finish(fate @ (Fate::Replicate(_) | Fate::Again { .. })) => {
                let slots = facts.spilled_for(fate).into_iter().flat_map(BitSet::iter);
                slots.for_each(|s| self.read(&at, SlotId::from_index(s)));
            }
            term => term.operand().and_then(|o| o.slot()).into_iter().for_each(|s| self.read(&at, s)),
        }
        for &succ in &node.succs {
            for slot in flow.turning_dirty(program, facts, &at, &flow.at[succ]) {
                self.read(&at, slot);
                self.write(slot.index());
            }
        }
        self.length.push(self.position + 1);
        if self.position > STRAIGHT_MAX {
            for inst in &block.insts {
                inst.op.for_each_def(program, |s| self.in_memory.insert(s.index()));
            }
        }
    }

    fn op(&mut self, at: &Facts, op: &Op) {
        let program = self.program;
        op.for_each_use(program, |s| self.read(at, s));
        self.position += weight(op);
        if let Op::Extract { header, .. } | Op::SetInvalid { header } = op {
            self.write(program.slots.len() + header.index());
        }
        op.for_each_def(program, |s| {
            // Lazily loaded fields are not written by an extraction; see `flow`.
            let is_lazy =
                matches!(op, Op::Extract { .. } | Op::SetInvalid { .. }) && self.facts.lazy_field(s).is_some();
            if !is_lazy {
                self.write(s.index());
            }
        });
    }

    /// A read of a slot, or of the pointer or validity through which a clean field is loaded.
    fn read(&mut self, at: &Facts, slot: SlotId) {
        let key = match self.facts.lazy_field(slot) {
            Some((header, _)) if !self.flow.is_dirty(self.facts, at, slot) => match self.carries[header.index()] {
                true => self.program.slots.len() + header.index(),
                false => self.facts.headers[header.index()].valid.index(),
            },
            _ => slot.index(),
        };
        let (touched_in, touched_at) = self.touched[key];
        self.accesses[key] += 1;
        let from = if touched_in == self.node + 1 {
            touched_at
        } else {
            self.reads.push(At { key: key as u32, node: self.node, position: self.position });
            0
        };
        self.reach[key] += self.position - from;
        self.touched[key] = (self.node + 1, self.position);
    }

    fn write(&mut self, key: usize) {
        let at = At { key: key as u32, node: self.node, position: self.position };
        self.accesses[key] += 1;
        self.touched[key] = (self.node + 1, self.position);
        match (self.written[key] as usize).checked_sub(1).map(|i| &mut self.writes[i]) {
            Some(last) if last.node == at.node => *last = at,
            _ => {
                self.writes.push(at);
                self.written[key] = self.writes.len() as u32;
            }
        }
    }

    /// The slots with upward-exposed reads. This is no estimate: beyond an operation's own slots, translation reads
    /// only those of headers and those that replication points spill.
    fn between_blocks(&self) -> BitSet {
        let mut between = BitSet::new(self.program.slots.len());
        for (s, slot) in self.program.slots.iter().enumerate() {
            if !matches!(slot.kind, SlotKind::Temp | SlotKind::Local | SlotKind::Metadata) {
                between.insert(s);
            }
        }
        self.reads
            .iter()
            .filter(|r| (r.key as usize) < self.program.slots.len())
            .for_each(|r| between.insert(r.key as usize));
        between
    }

    /// Measures the reach of each key, up to the limit.
    fn place(mut self) -> BitSet {
        let nodes = &self.flow.graph.nodes;
        let mut preds: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
        for (n, node) in nodes.iter().enumerate() {
            node.succs.iter().for_each(|&s| preds[s].push(n as u32));
        }
        self.reads.sort_unstable();
        self.writes.sort_unstable();
        // By node: the last key that is live at its start; the last key written in it, and where.
        let mut needed = vec![u32::MAX; nodes.len()];
        let mut written = vec![(u32::MAX, 0u64); nodes.len()];
        let mut writes = self.writes.iter().peekable();
        let mut work: Vec<u32> = Vec::new();
        for reads in self.reads.chunk_by(|a, b| a.key == b.key) {
            let key = reads[0].key;
            let reach_max = REACH_PER_ACCESS_MAX * self.accesses[key as usize];
            let mut reach = self.reach[key as usize];
            let mut writers = 0;
            while let Some(write) = writes.next_if(|w| w.key <= key) {
                writers += usize::from(write.key == key);
                written[write.node as usize] = (write.key, write.position);
            }
            work.clear();
            work.extend(reads.iter().map(|r| r.node));
            reads.iter().for_each(|r| needed[r.node as usize] = key);
            while let Some(node) = work.pop() {
                if self.is_clean(key as usize, node as usize) {
                    continue;
                }
                for &pred in &preds[node as usize] {
                    let length = self.length[pred as usize];
                    let is_written = written[pred as usize].0 == key;
                    if is_written {
                        reach += length - written[pred as usize].1;
                    } else if std::mem::replace(&mut needed[pred as usize], key) != key {
                        reach += length;
                        work.push(pred);
                    } else {
                        reach += 1;
                    }
                }
                if reach > reach_max {
                    break;
                }
            }
            if reach > reach_max || writers > WRITERS_MAX {
                self.in_memory.insert(key as usize);
            }
        }
        self.in_memory
    }

    /// Whether a key is a clean field at a node's start, which has no value in a variable.
    fn is_clean(&self, key: usize, node: usize) -> bool {
        self.program.slots.get(key).is_some_and(|slot| matches!(slot.kind, SlotKind::Field(_))) && {
            let slot = SlotId::from_index(key);
            self.facts.lazy_field(slot).is_some() && !self.flow.is_dirty(self.facts, &self.flow.at[node], slot)
        }
    }
}
