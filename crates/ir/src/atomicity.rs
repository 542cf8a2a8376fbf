//! Atomicity: how packets of several workers update registers without interfering.
//!
//! A register is *updated* if packets read it and packets write it. What a packet does to cells of updated registers in
//! one run of an entry point is atomic: no other packet sees or changes these cells in between. (P4_16 requires that
//! inside `@atomic`; bmv2 does it for each action.)
//!
//! - **Locks.** If a packet accesses at most one cell of each updated register, each cell has a lock. The protocol is
//!   strict two-phase locking (Eswaran, Gray, Lorie and Traiger, "The notions of consistency and predicate locks in a
//!   database system", CACM 1976): a packet acquires a cell's lock before its first access. Once it can acquire no
//!   further lock, it releases each after the last access of the cell.
//! - **No deadlock.** Locks are ranked by register, and every path of every entry point acquires them in ascending
//!   order.
//! - **Turns.** In all other programs, and if a register has so few cells that packets would often wait for each other,
//!   workers take turns, one batch each.
//! - **Steps.** If all that packets do to a register is one [`Op::RegisterUpdate`] behind which no path accesses an updated
//!   register or writes another one, that is one atomic instruction, whatever the number of cells. It is as if the packet
//!   acquired the cell's lock last and released it at once, so a packet that holds other locks keeps them until then.
//! - Registers that packets only read, or only write in one machine access, need neither. A packet that holds locks keeps
//!   them until it has written such a register.
//! - A peek ([`Op::RegisterRead`]) is an atomic step by itself and acquires no lock.
//!
//! The decision is made once per program ([`Atomicity::new`]). [`Acquisitions`] gives, for any code of the program,
//! where locks are acquired and which are held. It also serves specialised code, whose paths are a subset of the
//! program's.
//!
//! The time is linear in the program for each locked register. Tests: at the end of the file.

use crate::flow::Cfg;
use crate::op::{CastKind, Op, Operand, Terminator, Update};
use crate::program::{EntryPoint, ExternKind, Program, Stage};
use base::Bits;
use base::ids::{BlockId, ExternId, SlotId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How a register is shared by the packets of several workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Packets never write it: nothing to do.
    OnlyRead,
    /// Packets never read it, and a cell is written in one access: nothing to do.
    OnlyWritten,
    /// A cell is read and changed by one atomic instruction ([`Op::RegisterUpdate`]), behind which the packet accesses no
    /// other cell: nothing to do.
    Stepped,
    /// Each cell has a lock.
    Locked {
        /// The lock's rank: packets acquire locks in ascending order.
        rank: u32,
    },
    /// Turns: there are fewer than [`LOCKED_CELLS_MIN`] cells.
    FewCells,
    /// Turns: a packet may access several cells.
    SeveralCells,
    /// Turns: some paths access it before the named registers, others after them, so there is no lock order.
    Order(Vec<ExternId>),
}

/// How each register of a program is shared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Atomicity {
    registers: BTreeMap<ExternId, Sharing>,
}

/// Smallest number of cells of a register with locks; below, workers take turns. Two workers process batches of 64
/// packets at the same time: with this many cells, at most one packet in sixteen finds its cell in use. With fewer, the
/// cells' cache lines move between processors all the time.
pub const LOCKED_CELLS_MIN: u64 = 1024;

/// Bits that are read or written in one access.
const WORD_BITS: u32 = 64;

impl Atomicity {
    /// Decides for a verified program.
    pub fn new(program: &Program) -> Atomicity {
        let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
        for inst in program.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts) {
            match &inst.op {
                Op::RegisterRead { register, .. } => _ = read.insert(*register),
                Op::RegisterWrite { register, .. } => _ = written.insert(*register),
                Op::RegisterUpdate { register, .. } => {
                    read.insert(*register);
                    written.insert(*register);
                }
                _ => {}
            }
        }
        let mut registers = BTreeMap::new();
        let mut updated = Vec::new();
        for (i, ext) in program.externs.iter().enumerate() {
            let ExternKind::Register { width, size, .. } = ext.kind else { continue };
            let register = ExternId::from_index(i);
            match (read.contains(&register), written.contains(&register)) {
                (_, false) => _ = registers.insert(register, Sharing::OnlyRead),
                (false, true) if width <= WORD_BITS => _ = registers.insert(register, Sharing::OnlyWritten),
                _ => updated.push((register, size)),
            }
        }
        let all: BTreeSet<ExternId> = updated.iter().map(|(register, _)| *register).collect();
        let stepped = stepped(program, &all);
        updated.retain(|(register, _)| !stepped.contains(register));
        registers.extend(stepped.iter().map(|register| (*register, Sharing::Stepped)));
        let places: BTreeMap<ExternId, usize> = updated.iter().enumerate().map(|(i, (r, _))| (*r, i)).collect();
        let mut found = Found { followers: vec![BTreeSet::new(); updated.len()], several: BTreeSet::new() };
        let numbered = numbered(program, &|register| places.contains_key(&register));
        for entry in program.entries.iter().filter(|_| !updated.is_empty()) {
            walk(program, entry, &|register| places.get(&register).copied(), &numbered, &mut |step| found.note(step));
        }
        for (rank, together) in components(&found.followers).into_iter().enumerate() {
            for &number in &together {
                let (register, size) = updated[number];
                let others: Vec<ExternId> = together.iter().filter(|n| **n != number).map(|n| updated[*n].0).collect();
                let sharing = match (size, others.is_empty(), found.several.contains(&number)) {
                    (..LOCKED_CELLS_MIN, ..) => Sharing::FewCells,
                    (_, _, true) => Sharing::SeveralCells,
                    (_, false, false) => Sharing::Order(others),
                    (_, true, false) => Sharing::Locked { rank: rank as u32 },
                };
                registers.insert(register, sharing);
            }
        }
        Atomicity { registers }
    }

    /// Whether workers take turns, one batch each. Then nothing is locked.
    pub fn takes_turns(&self) -> bool {
        let mut all = self.registers.values();
        all.any(|sharing| matches!(sharing, Sharing::FewCells | Sharing::SeveralCells | Sharing::Order(_)))
    }

    /// The rank of a register's locks, if packets lock its cells.
    pub fn rank(&self, register: ExternId) -> Option<u32> {
        match self.registers.get(&register)? {
            Sharing::Locked { rank } if !self.takes_turns() => Some(*rank),
            _ => None,
        }
    }

    /// Whether packets change cells of a register by atomic instructions.
    pub fn is_stepped(&self, register: ExternId) -> bool {
        self.registers.get(&register) == Some(&Sharing::Stepped)
    }

    /// All registers of the program.
    pub fn registers(&self) -> impl Iterator<Item = (ExternId, &Sharing)> {
        self.registers.iter().map(|(register, sharing)| (*register, sharing))
    }
}

/// What must be done about the lock before an access to a locked register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquire {
    /// Acquire it: the packet never holds it here.
    Always,
    /// Acquire it unless the packet holds it.
    IfFree,
    /// Nothing: the packet holds it.
    Held,
}

/// Where packets acquire and release locks in one entry point.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acquisitions {
    accesses: BTreeMap<Access, Acquire>,
    /// Accesses that packets reach without holding any lock.
    alone: BTreeSet<Access>,
    /// Blocks in the growing phase: an access, or a change of a register without locks, can be reached from their start.
    growing: BTreeSet<(usize, BlockId)>,
    releases: Releases,
}

/// Where locks are released: as soon as no lock can be acquired any more (so the protocol stays two-phase) and no access of
/// the register can follow. Registers are in ascending order of their locks' ranks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Releases {
    at_start: BTreeMap<(usize, BlockId), Vec<ExternId>>,
    after: BTreeMap<Access, Vec<ExternId>>,
    /// By block: the registers whose locks may be held somewhere in it.
    held: BTreeMap<(usize, BlockId), BTreeSet<ExternId>>,
}

/// An operation of an entry point: the position of its stage, its block, its index in the block.
type Access = (usize, BlockId, usize);

impl Acquisitions {
    /// Computes them for an entry point. `rank_of` gives the rank of a register's lock.
    ///
    /// The register whose lock some path would acquire while it holds one of a higher rank, which could deadlock. This
    /// does not happen for the program for which the ranks were computed, nor for one whose paths are a subset of its
    /// paths.
    pub fn new(
        program: &Program,
        entry: &EntryPoint,
        rank_of: &dyn Fn(ExternId) -> Option<u32>,
    ) -> Result<Acquisitions, ExternId> {
        let mut accesses = BTreeMap::new();
        let mut alone = BTreeSet::new();
        let mut wrong = None;
        // The ranks were assigned, so no path accesses several cells of a register: indices need no numbers.
        let numbered = BTreeSet::new();
        walk(program, entry, &|register| rank_of(register).map(|rank| rank as usize), &numbered, &mut |step| {
            if step.acquire != Acquire::Held && step.held.iter().any(|held| *held > step.lock) {
                wrong.get_or_insert(step.register);
            }
            accesses.insert(step.access, step.acquire);
            if step.acquire == Acquire::Always && step.held.is_empty() {
                alone.insert(step.access);
            }
        });
        match wrong {
            Some(register) => Err(register),
            None => {
                let whole = Whole::new(program, entry);
                let growing =
                    whole.reaching(&|access| accesses.contains_key(&access) || whole.is_step(access, rank_of));
                let releases = Releases::new(program, entry, &accesses, rank_of);
                Ok(Acquisitions { growing, releases, accesses, alone })
            }
        }
    }

    /// What operation `inst` of a block must do first, in the stage at `position` of the entry point; `None` if it
    /// accesses no locked register.
    pub fn at(&self, position: usize, block: BlockId, inst: usize) -> Option<Acquire> {
        self.accesses.get(&(position, block, inst)).copied()
    }

    /// Whether packets hold no lock when they reach the access `inst` of a block.
    pub fn is_alone(&self, position: usize, block: BlockId, inst: usize) -> bool {
        self.alone.contains(&(position, block, inst))
    }

    /// Whether an access, or a change of a register without locks, can be reached from the start of a block.
    pub fn is_growing(&self, position: usize, block: BlockId) -> bool {
        self.growing.contains(&(position, block))
    }

    /// The registers whose locks are released at the start of a block, by packets that hold them.
    pub fn released_at_start(&self, position: usize, block: BlockId) -> &[ExternId] {
        self.releases.at_start.get(&(position, block)).map_or(&[], Vec::as_slice)
    }

    /// The registers whose locks are released right after the access or change `inst` of a block, by packets that hold them.
    pub fn released_after(&self, position: usize, block: BlockId, inst: usize) -> &[ExternId] {
        self.releases.after.get(&(position, block, inst)).map_or(&[], Vec::as_slice)
    }

    /// The registers whose locks may be held somewhere in a block, its very start included: what a packet releases if it ends in the middle.
    pub fn held_in(&self, position: usize, block: BlockId) -> impl Iterator<Item = ExternId> {
        self.releases.held.get(&(position, block)).into_iter().flatten().copied()
    }

    /// Whether the entry point acquires no locks.
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }
}

/// The control flow graphs of an entry point's stages, as one.
struct Whole<'p> {
    stages: Vec<&'p Stage>,
    cfgs: Vec<Cfg>,
}

impl<'p> Whole<'p> {
    fn new(program: &'p Program, entry: &EntryPoint) -> Whole<'p> {
        let stages: Vec<&Stage> = entry.stages.iter().map(|stage| &program.stages[stage.index()]).collect();
        let cfgs = stages.iter().map(|stage| Cfg::new(stage)).collect();
        Whole { stages, cfgs }
    }

    fn block(&self, (position, block): (usize, BlockId)) -> &'p crate::program::Block {
        &self.stages[position].blocks[block.index()]
    }

    /// Whether an operation changes a register without locks.
    fn is_step(&self, (position, block, inst): Access, rank_of: &dyn Fn(ExternId) -> Option<u32>) -> bool {
        let op = &self.block((position, block)).insts[inst].op;
        matches!(op, Op::RegisterUpdate { register, .. } | Op::RegisterWrite { register, .. } if rank_of(*register).is_none())
    }

    /// All reachable blocks, stage by stage in reverse post-order.
    fn blocks(&self) -> impl Iterator<Item = (usize, BlockId)> {
        let of = |(position, cfg): (usize, &'_ Cfg)| cfg.rpo.iter().map(|b| (position, *b)).collect::<Vec<_>>();
        self.cfgs.iter().enumerate().flat_map(of).collect::<Vec<_>>().into_iter()
    }

    fn before(&self, (position, block): (usize, BlockId)) -> Vec<(usize, BlockId)> {
        let mut before: Vec<_> = self.cfgs[position].preds[block.index()].iter().map(|b| (position, *b)).collect();
        if block == Stage::START && position > 0 {
            let leaves = |b: &&BlockId| matches!(self.block((position - 1, **b)).term, Terminator::Next);
            before.extend(self.cfgs[position - 1].rpo.iter().filter(leaves).map(|b| (position - 1, *b)));
        }
        before
    }

    fn after(&self, (position, block): (usize, BlockId)) -> Vec<(usize, BlockId)> {
        let mut after: Vec<_> = self.cfgs[position].succs[block.index()].iter().map(|b| (position, *b)).collect();
        let next = matches!(self.block((position, block)).term, Terminator::Next) && position + 1 < self.stages.len();
        after.extend(next.then_some((position + 1, Stage::START)));
        after
    }

    /// The blocks from whose start an operation of some kind can be reached.
    fn reaching(&self, is_it: &dyn Fn(Access) -> bool) -> BTreeSet<(usize, BlockId)> {
        let has_it = |(position, block): &(usize, BlockId)| {
            (0..self.block((*position, *block)).insts.len()).any(|i| is_it((*position, *block, i)))
        };
        let mut reaching: BTreeSet<_> = self.blocks().filter(has_it).collect();
        let mut waiting: Vec<_> = reaching.iter().copied().collect();
        while let Some(block) = waiting.pop() {
            waiting.extend(self.before(block).into_iter().filter(|b| reaching.insert(*b)));
        }
        reaching
    }
}

/// The registers of `updated`, all those that packets read and write, of which packets do nothing but steps.
fn stepped(program: &Program, updated: &BTreeSet<ExternId>) -> BTreeSet<ExternId> {
    let (mut stepped, mut others) = (BTreeSet::new(), BTreeSet::new());
    for inst in program.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts) {
        match inst.op {
            Op::RegisterUpdate { register, update, .. } => {
                let ExternKind::Register { width, .. } = program.externs[register.index()].kind else { continue };
                let wraps = update != Update::Add || [8, 16, 32, 64].contains(&width);
                if wraps && width <= WORD_BITS { &mut stepped } else { &mut others }.insert(register);
            }
            Op::RegisterRead { register, peek: false, .. } | Op::RegisterWrite { register, .. } => {
                others.insert(register);
            }
            _ => {}
        }
    }
    stepped.retain(|register| !others.contains(register));
    if stepped.is_empty() {
        return stepped;
    }
    for entry in &program.entries {
        let whole = Whole::new(program, entry);
        let op = |(position, block, inst): Access| &whole.block((position, block)).insts[inst].op;
        let is_access = |access| {
            // Also of a register that packets only write: others see both changes or none.
            accessed(op(access)).is_some_and(|(register, _)| updated.contains(&register))
                || matches!(op(access), Op::RegisterWrite { .. })
        };
        let accessing = whole.reaching(&is_access);
        for place in whole.blocks() {
            let mut follows = whole.after(place).iter().any(|b| accessing.contains(b));
            for inst in (0..whole.block(place).insts.len()).rev() {
                let access = (place.0, place.1, inst);
                match op(access) {
                    Op::RegisterUpdate { register, .. } if follows => _ = stepped.remove(register),
                    _ => {}
                }
                follows |= is_access(access);
            }
        }
    }
    stepped
}

impl Releases {
    fn new(
        program: &Program,
        entry: &EntryPoint,
        accesses: &BTreeMap<Access, Acquire>,
        rank_of: &dyn Fn(ExternId) -> Option<u32>,
    ) -> Releases {
        let whole = Whole::new(program, entry);
        let register_at = |access: Access| {
            accesses.contains_key(&access).then_some(())?;
            let (position, block, inst) = access;
            accessed(&whole.block((position, block)).insts[inst].op).map(|(register, _)| register)
        };
        let acquires = |access: Access| match accesses.get(&access) {
            Some(acquire) => *acquire != Acquire::Held,
            None => whole.is_step(access, rank_of),
        };
        let mut registers: Vec<ExternId> = accesses.keys().filter_map(|access| register_at(*access)).collect();
        registers.sort_unstable_by_key(|register| (rank_of(*register), *register));
        registers.dedup();
        let growing = whole.reaching(&acquires);
        let used: BTreeMap<ExternId, BTreeSet<(usize, BlockId)>> = (registers.iter())
            .map(|register| (*register, whole.reaching(&|access| register_at(access) == Some(*register))))
            .collect();
        // Which locks may be held at the end of each block, and what is released on the way there.
        let mut releases = Releases::default();
        let mut at_end: BTreeMap<(usize, BlockId), BTreeSet<ExternId>> = BTreeMap::new();
        let mut waiting: BTreeSet<(usize, BlockId)> = whole.blocks().collect();
        while let Some(place) = waiting.pop_first() {
            let (position, block) = place;
            let mut held: BTreeSet<ExternId> =
                whole.before(place).iter().filter_map(|b| at_end.get(b)).flatten().copied().collect();
            let mut somewhere = held.clone();
            let release = |held: &mut BTreeSet<ExternId>, is_needed: &dyn Fn(ExternId) -> bool| {
                let free: Vec<ExternId> =
                    registers.iter().copied().filter(|r| held.contains(r) && !is_needed(*r)).collect();
                free.iter().for_each(|register| _ = held.remove(register));
                free
            };
            let free = match growing.contains(&place) {
                true => Vec::new(),
                false => release(&mut held, &|register| used[&register].contains(&place)),
            };
            releases.at_start.insert(place, free);
            let insts = whole.block(place).insts.len();
            let after = whole.after(place);
            let grows_after = after.iter().any(|b| growing.contains(b));
            // Indices of the last acquisition, and of each register's last access.
            let last = (0..insts).rev().find(|i| acquires((position, block, *i)));
            let mut last_of: BTreeMap<ExternId, usize> = BTreeMap::new();
            let all: Vec<(Option<ExternId>, usize)> = (0..insts)
                .map(|i| (register_at((position, block, i)), i))
                .filter(|(register, i)| register.is_some() || acquires((position, block, *i)))
                .collect();
            all.iter().for_each(|(register, i)| _ = register.map(|register| last_of.insert(register, *i)));
            for (register, inst) in all {
                held.extend(register);
                somewhere.extend(register);
                if grows_after || last.is_some_and(|last| inst < last) {
                    continue;
                }
                let free = release(&mut held, &|register| {
                    last_of.get(&register).is_some_and(|last| inst < *last)
                        || after.iter().any(|b| used[&register].contains(b))
                });
                releases.after.insert((position, block, inst), free);
            }
            releases.held.insert(place, somewhere);
            if at_end.get(&place) != Some(&held) {
                at_end.insert(place, held);
                waiting.extend(after);
            }
        }
        releases.at_start.retain(|_, all| !all.is_empty());
        releases.after.retain(|_, all| !all.is_empty());
        releases.held.retain(|_, all| !all.is_empty());
        releases
    }
}

/// A lock that a packet may hold.
#[derive(Clone, PartialEq, Debug)]
struct Held {
    /// The index for which it was acquired; `None` if it may be one of several.
    index: Option<Number>,
    /// Whether it is held on all paths.
    surely: bool,
}

/// By lock: what is known if it may be held.
type Locks = BTreeMap<usize, Held>;

/// The dataflow state at the start of a block.
#[derive(Clone, PartialEq, Debug, Default)]
struct Known {
    locks: Locks,
    /// Value numbers of the slots that determine indices. Slots without one have the value that they had at the start
    /// of the entry point.
    values: BTreeMap<SlotId, Number>,
}

/// An access, and the locks that may be held before it.
struct Step {
    access: Access,
    register: ExternId,
    lock: usize,
    acquire: Acquire,
    /// Whether the lock that may be held may be that of another cell.
    other_cell: bool,
    /// The other locks that may be held.
    held: Vec<usize>,
}

#[derive(Default)]
struct Found {
    /// By lock: the locks that are acquired while it may be held.
    followers: Vec<BTreeSet<usize>>,
    /// Registers of which a packet may access several cells.
    several: BTreeSet<usize>,
}

impl Found {
    fn note(&mut self, step: Step) {
        if step.acquire != Acquire::Held {
            step.held.iter().for_each(|held| _ = self.followers[*held].insert(step.lock));
        }
        if step.other_cell {
            self.several.insert(step.lock);
        }
    }
}

/// Computes which locks packets hold at each access of an entry point, and calls `give` for every reachable access.
/// Indices are compared by the value numbers of the slots in `numbered`.
fn walk(
    program: &Program,
    entry: &EntryPoint,
    lock_of: &dyn Fn(ExternId) -> Option<usize>,
    numbered: &BTreeSet<SlotId>,
    give: &mut dyn FnMut(Step),
) {
    let stages: Vec<&Stage> = entry.stages.iter().map(|stage| &program.stages[stage.index()]).collect();
    let cfgs: Vec<Cfg> = stages.iter().map(|stage| Cfg::new(stage)).collect();
    let heads: Vec<Vec<bool>> = cfgs.iter().map(Cfg::loop_heads).collect();
    let mut before: Vec<Vec<Option<Known>>> = stages.iter().map(|stage| vec![None; stage.blocks.len()]).collect();
    let Some(first) = before.first_mut().and_then(|blocks| blocks.first_mut()) else { return };
    *first = Some(Known::default());
    let mut numbers = Numbers { program, numbered, all: HashMap::new() };
    // In reverse post-order: without loops, each block is visited once, after all its predecessors.
    let place = |position: usize, block: BlockId| Some((position, cfgs.get(position)?.rpo_index[block.index()]?));
    let mut waiting: BTreeSet<(usize, u32)> = place(0, Stage::START).into_iter().collect();
    while let Some((position, order)) = waiting.pop_first() {
        let block = cfgs[position].rpo[order as usize];
        let Some(mut known) = before[position][block.index()].clone() else { continue };
        let code = &stages[position].blocks[block.index()];
        for (i, inst) in code.insts.iter().enumerate() {
            numbers.apply(&inst.op, (position, block, i), lock_of, &mut known);
        }
        let mut reach = |position: usize, block: BlockId| {
            let Some(place) = place(position, block) else { return };
            let there = &mut before[position][block.index()];
            if numbers.merge(there, &known, (position, block), heads[position][block.index()]) {
                waiting.insert(place);
            }
        };
        code.term.for_each_target(|to| reach(position, to));
        if matches!(code.term, Terminator::Next) {
            reach(position + 1, Stage::START);
        }
    }
    for (position, cfg) in cfgs.iter().enumerate() {
        for &block in &cfg.rpo {
            let Some(mut known) = before[position][block.index()].clone() else { continue };
            for (i, inst) in stages[position].blocks[block.index()].insts.iter().enumerate() {
                if let Some((register, index)) = accessed(&inst.op)
                    && let Some(lock) = lock_of(register)
                {
                    let index = numbers.of(index, &known);
                    let held = known.locks.get(&lock);
                    give(Step {
                        access: (position, block, i),
                        register,
                        lock,
                        acquire: match held {
                            None => Acquire::Always,
                            Some(held) if held.surely => Acquire::Held,
                            Some(_) => Acquire::IfFree,
                        },
                        other_cell: held.is_some_and(|held| held.index != Some(index)),
                        held: known.locks.keys().copied().filter(|other| *other != lock).collect(),
                    });
                }
                numbers.apply(&inst.op, (position, block, i), lock_of, &mut known);
            }
        }
    }
}

/// The register that an operation accesses, and the index of the cell.
fn accessed(op: &Op) -> Option<(ExternId, &Operand)> {
    match op {
        Op::RegisterRead { register, index, peek: false, .. }
        | Op::RegisterWrite { register, index, .. }
        | Op::RegisterUpdate { register, index, .. } => Some((*register, index)),
        _ => None,
    }
}

/// Slots from which the indices of locked registers are computed.
fn numbered(program: &Program, is_locked: &dyn Fn(ExternId) -> bool) -> BTreeSet<SlotId> {
    let ops = || program.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts).map(|inst| &inst.op);
    let indices = ops().filter_map(accessed).filter(|(register, _)| is_locked(*register));
    let mut slots: BTreeSet<SlotId> = indices.filter_map(|(_, index)| index.slot()).collect();
    let mut count = 0;
    while count != slots.len() {
        count = slots.len();
        for op in ops().filter(|op| op.is_arithmetic()) {
            if op.dst().is_some_and(|dst| slots.contains(&dst)) {
                op.for_each_use(program, |slot| _ = slots.insert(slot));
            }
        }
    }
    slots
}

/// A value number: on a packet's path from one loop head to the next, equal numbers mean equal values (Aho, Lam, Sethi
/// and Ullman, "Compilers", 6.1.2).
type Number = u32;

/// A value that has a number.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Expression {
    Constant(u64),
    /// A constant that does not fit 64 bits.
    Wide(Bits),
    /// A slot at the start of the entry point.
    Start(SlotId),
    /// A slot at a join of paths on which it has different values.
    Join(usize, BlockId, SlotId),
    /// The result of an operation that is not arithmetic.
    Assigned(Access, SlotId),
    /// The result of an arithmetic operation. `widths` begins with the result's.
    Computed {
        op: String,
        operands: Vec<Number>,
        widths: Vec<u32>,
    },
}

struct Numbers<'p> {
    program: &'p Program,
    numbered: &'p BTreeSet<SlotId>,
    all: HashMap<Expression, Number>,
}

impl Numbers<'_> {
    fn number(&mut self, value: Expression) -> Number {
        let next = self.all.len() as Number;
        *self.all.entry(value).or_insert(next)
    }

    fn of_slot(&mut self, slot: SlotId, known: &Known) -> Number {
        known.values.get(&slot).copied().unwrap_or_else(|| self.number(Expression::Start(slot)))
    }

    fn of(&mut self, operand: &Operand, known: &Known) -> Number {
        match operand {
            Operand::Slot(slot) => self.of_slot(*slot, known),
            Operand::Const(bits) => {
                self.number(bits.to_u64().map_or_else(|| Expression::Wide(bits.clone()), Expression::Constant))
            }
        }
    }

    /// The value number that an operation assigns to a slot.
    fn assigned(&mut self, op: &Op, access: Access, slot: SlotId, known: &Known) -> Number {
        match op {
            // The same value, in another width.
            Op::Mov { src, .. } | Op::Cast { kind: CastKind::Zext, a: src, .. } => self.of(src, known),
            Op::SetSlice { .. } => self.number(Expression::Assigned(access, slot)),
            _ if op.is_arithmetic() => {
                let mut widths = vec![self.program.width(slot)];
                op.for_each_operand(|operand| widths.push(operand.width(self.program)));
                let mut operands = Vec::new();
                op.for_each_operand(|operand| operands.push(self.of(operand, known)));
                // What is left identifies the operation.
                let mut bare = op.clone();
                bare.for_each_operand_mut(|operand| *operand = Operand::Slot(SlotId(0)));
                bare.for_each_slot_mut(|slot| *slot = SlotId(0));
                self.number(Expression::Computed { op: format!("{bare:?}"), operands, widths })
            }
            _ => self.number(Expression::Assigned(access, slot)),
        }
    }

    fn apply(&mut self, op: &Op, access: Access, lock_of: &dyn Fn(ExternId) -> Option<usize>, known: &mut Known) {
        if let Some((register, index)) = accessed(op)
            && let Some(lock) = lock_of(register)
        {
            let index = self.of(index, known);
            let held = known.locks.entry(lock).or_insert(Held { index: Some(index), surely: true });
            held.surely = true;
            if held.index != Some(index) {
                held.index = None;
            }
        }
        let mut assigned = Vec::new();
        op.for_each_def(self.program, |slot| assigned.push(slot));
        for slot in assigned.into_iter().filter(|slot| self.numbered.contains(slot)) {
            let value = self.assigned(op, access, slot, known);
            known.values.insert(slot, value);
        }
    }

    /// Joins the state of another path into that of a block. Returns whether that changed anything.
    fn merge(
        &mut self,
        there: &mut Option<Known>,
        here: &Known,
        (position, block): (usize, BlockId),
        is_loop_head: bool,
    ) -> bool {
        let mut here = here.clone();
        if is_loop_head {
            // In the next iteration a number may stand for another value.
            here.locks.values_mut().for_each(|held| held.index = None);
        }
        let Some(there) = there else {
            *there = Some(here);
            return true;
        };
        let mut changed = false;
        for (lock, held) in &here.locks {
            match there.locks.get_mut(lock) {
                None => {
                    there.locks.insert(*lock, Held { surely: false, ..held.clone() });
                    changed = true;
                }
                Some(before) => {
                    if before.surely && !held.surely {
                        before.surely = false;
                        changed = true;
                    }
                    if before.index.is_some() && before.index != held.index {
                        before.index = None;
                        changed = true;
                    }
                }
            }
        }
        for (_, before) in
            there.locks.iter_mut().filter(|(lock, before)| before.surely && !here.locks.contains_key(lock))
        {
            before.surely = false;
            changed = true;
        }
        let slots: BTreeSet<SlotId> = there.values.keys().chain(here.values.keys()).copied().collect();
        for slot in slots {
            let (before, other) = (self.of_slot(slot, there), self.of_slot(slot, &here));
            let join = self.number(Expression::Join(position, block, slot));
            if before != other && before != join {
                there.values.insert(slot, join);
                changed = true;
            }
        }
        changed
    }
}

/// The strongly connected components of a graph, each before those that can be reached from it (Kosaraju's algorithm).
fn components(successors: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut predecessors = vec![BTreeSet::new(); successors.len()];
    for (from, to) in successors.iter().enumerate().flat_map(|(from, all)| all.iter().map(move |to| (from, *to))) {
        predecessors[to].insert(from);
    }
    let mut finished = Vec::new();
    let mut seen = vec![false; successors.len()];
    for root in 0..successors.len() {
        search(root, successors, &mut seen, &mut finished);
    }
    seen.fill(false);
    let mut all = Vec::new();
    for &root in finished.iter().rev() {
        let mut component = Vec::new();
        search(root, &predecessors, &mut seen, &mut component);
        if !component.is_empty() {
            component.sort_unstable();
            all.push(component);
        }
    }
    all
}

/// Depth-first search: appends the nodes that can be reached and have not been seen, in post-order.
fn search(root: usize, successors: &[BTreeSet<usize>], seen: &mut [bool], finished: &mut Vec<usize>) {
    if std::mem::replace(&mut seen[root], true) {
        return;
    }
    let mut path = vec![(root, successors[root].iter())];
    while let Some((node, next)) = path.last_mut() {
        match next.find(|to| !seen[**to]) {
            Some(&to) => {
                seen[to] = true;
                path.push((to, successors[to].iter()));
            }
            None => {
                finished.push(*node);
                path.pop();
            }
        }
    }
}
