//! How the packets of several workers keep their updates of registers apart.
//!
//! A register is *updated* if packets read it and packets write it. What a packet does to the cells of updated registers
//! in one run of an entry is one step: no other packet sees or changes these cells in between. (P4_16 asks for that
//! inside `@atomic`; bmv2 does it for each action.)
//!
//! - **Locks.** Where packets come to at most one cell of each updated register, each cell has a lock. The rule is strict
//!   two-phase locking (Eswaran, Gray, Lorie and Traiger, "The notions of consistency and predicate locks in a database
//!   system", CACM 1976): a packet acquires a cell's lock before its first access and releases all of them behind the last.
//! - **No deadlock.** Locks have ranks by register, and every path of every entry acquires them in ascending order.
//! - **Turns.** In all other programs, and where there are so few cells that packets would often wait for one another,
//!   workers take turns, a batch each.
//! - A register that packets only read, or only write in one machine access, needs nothing.
//!
//! The decision is made once per program ([`Atomicity::new`]). Code for it, also specialised code whose paths are some of
//! the program's, asks [`Acquisitions`] where locks are acquired and which are held.
//!
//! Everything is linear in the program for each register that is locked. Tests: at the end of the file.

use crate::flow::Cfg;
use crate::op::{Op, Operand, Terminator};
use crate::program::{EntryPoint, ExternKind, Program, Stage};
use base::ids::{BlockId, ExternId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How packets of several workers are kept apart at one register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Packets write nothing to it: nothing is to be done.
    OnlyRead,
    /// Packets read nothing of it, and a cell is written in one access: nothing is to be done.
    OnlyWritten,
    /// Each cell has a lock.
    Locked {
        /// Its place in the order in which packets acquire locks.
        rank: u32,
    },
    /// Turns: there are fewer than [`LOCKED_CELLS_MIN`] cells.
    FewCells,
    /// Turns: a packet may come to several cells.
    SeveralCells,
    /// Turns: some paths come to it before the registers named, some behind them.
    Order(Vec<ExternId>),
}

/// The decision for a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Atomicity {
    registers: BTreeMap<ExternId, Sharing>,
}

/// Cells of a register below which workers take turns. Two workers run batches of 64 packets at the same time: of so many
/// cells, one in sixteen packets at most finds its own in use; below, the cells' cache lines go back and forth all the time.
pub const LOCKED_CELLS_MIN: u64 = 1024;

/// Bits that are read and written in one access.
const WORD_BITS: u32 = 64;

impl Atomicity {
    /// Decides for a verified program.
    pub fn new(program: &Program) -> Atomicity {
        let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
        for inst in program.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts) {
            match &inst.op {
                Op::RegisterRead { register, .. } => _ = read.insert(*register),
                Op::RegisterWrite { register, .. } => _ = written.insert(*register),
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
        let numbers: BTreeMap<ExternId, usize> = updated.iter().enumerate().map(|(i, (r, _))| (*r, i)).collect();
        let mut found = Found { followers: vec![BTreeSet::new(); updated.len()], several: BTreeSet::new() };
        for entry in program.entries.iter().filter(|_| !updated.is_empty()) {
            walk(program, entry, &|register| numbers.get(&register).copied(), &mut |step| found.note(step));
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

    /// Whether workers take turns, a batch each. Then nothing is locked.
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

    /// All registers of the program.
    pub fn registers(&self) -> impl Iterator<Item = (ExternId, &Sharing)> {
        self.registers.iter().map(|(register, sharing)| (*register, sharing))
    }
}

/// What an access of a locked register has to do about its lock first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquire {
    /// Acquire it: the packet does not hold it.
    Always,
    /// Acquire it if the packet does not hold it.
    IfFree,
    /// Nothing: the packet holds it.
    Held,
}

/// Where the packets of one entry acquire and release locks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acquisitions {
    accesses: BTreeMap<Access, Acquire>,
    /// Blocks from whose start packets can come to an access: what they hold they keep.
    growing: BTreeSet<(usize, BlockId)>,
}

/// An operation of an entry: the position of its stage, its block, its place there.
type Access = (usize, BlockId, usize);

impl Acquisitions {
    /// Those of an entry. `rank_of` gives the rank of a register's lock.
    ///
    /// # Errors
    /// A path would acquire a lock while it holds one of a higher rank, which may not be waited for; gives that register. It does
    /// not happen to the program that the ranks were made for, nor to one that has some of its paths.
    pub fn new(
        program: &Program,
        entry: &EntryPoint,
        rank_of: &dyn Fn(ExternId) -> Option<u32>,
    ) -> Result<Acquisitions, ExternId> {
        let mut accesses = BTreeMap::new();
        let mut wrong = None;
        walk(program, entry, &|register| rank_of(register).map(|rank| rank as usize), &mut |step| {
            if step.acquire != Acquire::Held && step.held.iter().any(|held| *held > step.lock) {
                wrong.get_or_insert(step.register);
            }
            accesses.insert(step.access, step.acquire);
        });
        match wrong {
            Some(register) => Err(register),
            None => Ok(Acquisitions { growing: growing(program, entry, &accesses), accesses }),
        }
    }

    /// What operation `inst` of a block has to do, in the stage at a position of the entry.
    pub fn at(&self, position: usize, block: BlockId, inst: usize) -> Option<Acquire> {
        self.accesses.get(&(position, block, inst)).copied()
    }

    /// Whether packets can come to an access from the start of a block. If not, they release what they hold there.
    pub fn is_growing(&self, position: usize, block: BlockId) -> bool {
        self.growing.contains(&(position, block))
    }

    /// Whether the entry acquires none.
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }
}

/// The blocks from whose start an access can be reached.
fn growing(program: &Program, entry: &EntryPoint, accesses: &BTreeMap<Access, Acquire>) -> BTreeSet<(usize, BlockId)> {
    let mut growing: BTreeSet<(usize, BlockId)> =
        accesses.keys().map(|(position, block, _)| (*position, *block)).collect();
    let mut waiting: Vec<(usize, BlockId)> = growing.iter().copied().collect();
    let cfgs: BTreeMap<usize, Cfg> = match growing.last() {
        Some((last, _)) => (0..=*last).map(|p| (p, Cfg::new(&program.stages[entry.stages[p].index()]))).collect(),
        None => BTreeMap::new(),
    };
    while let Some((position, block)) = waiting.pop() {
        let mut before: Vec<(usize, BlockId)> =
            cfgs[&position].preds[block.index()].iter().map(|b| (position, *b)).collect();
        if block == Stage::START && position > 0 {
            let stage = &program.stages[entry.stages[position - 1].index()];
            let leaves = |b: &&BlockId| matches!(stage.blocks[b.index()].term, Terminator::Next);
            before.extend(cfgs[&(position - 1)].rpo.iter().filter(leaves).map(|b| (position - 1, *b)));
        }
        waiting.extend(before.into_iter().filter(|b| growing.insert(*b)));
    }
    growing
}

/// A lock that a packet may hold.
#[derive(Clone, PartialEq, Debug)]
struct Held {
    /// The index for which it was acquired; `None` if that may no longer be told.
    index: Option<Operand>,
    /// Whether it is held on all paths.
    surely: bool,
}

/// By lock.
type Locks = BTreeMap<usize, Held>;

/// An access, and the locks that may be held before it.
struct Step {
    access: Access,
    register: ExternId,
    lock: usize,
    acquire: Acquire,
    /// Whether it may be another cell than the one whose lock may be held.
    other_cell: bool,
    /// The other locks.
    held: Vec<usize>,
}

#[derive(Default)]
struct Found {
    /// By lock: those that are acquired while it may be held.
    followers: Vec<BTreeSet<usize>>,
    /// Registers of which a packet may come to several cells.
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

/// Finds out which locks packets hold at each access of an entry, and gives all accesses that packets can come to.
fn walk(
    program: &Program,
    entry: &EntryPoint,
    lock_of: &dyn Fn(ExternId) -> Option<usize>,
    give: &mut dyn FnMut(Step),
) {
    let stages: Vec<&Stage> = entry.stages.iter().map(|stage| &program.stages[stage.index()]).collect();
    let orders: Vec<Vec<BlockId>> = stages.iter().map(|stage| Cfg::new(stage).rpo).collect();
    let mut before: Vec<Vec<Option<Locks>>> = stages.iter().map(|stage| vec![None; stage.blocks.len()]).collect();
    let Some(first) = before.first_mut().and_then(|blocks| blocks.first_mut()) else { return };
    *first = Some(Locks::new());
    let mut waiting: VecDeque<(usize, BlockId)> = VecDeque::from([(0, Stage::START)]);
    while let Some((position, block)) = waiting.pop_front() {
        let Some(mut locks) = before[position][block.index()].clone() else { continue };
        let code = &stages[position].blocks[block.index()];
        for inst in &code.insts {
            apply(program, &inst.op, lock_of, &mut locks);
        }
        let mut reach = |position: usize, block: BlockId| {
            let Some(there) = before.get_mut(position).and_then(|blocks| blocks.get_mut(block.index())) else { return };
            if merge(there, &locks) && !waiting.contains(&(position, block)) {
                waiting.push_back((position, block));
            }
        };
        code.term.for_each_target(|to| reach(position, to));
        if matches!(code.term, Terminator::Next) {
            reach(position + 1, Stage::START);
        }
    }
    for (position, order) in orders.iter().enumerate() {
        for &block in order {
            let Some(mut locks) = before[position][block.index()].clone() else { continue };
            for (i, inst) in stages[position].blocks[block.index()].insts.iter().enumerate() {
                if let Some((register, index)) = accessed(&inst.op)
                    && let Some(lock) = lock_of(register)
                {
                    let held = locks.get(&lock);
                    give(Step {
                        access: (position, block, i),
                        register,
                        lock,
                        acquire: match held {
                            None => Acquire::Always,
                            Some(held) if held.surely => Acquire::Held,
                            Some(_) => Acquire::IfFree,
                        },
                        other_cell: held.is_some_and(|held| held.index.as_ref() != Some(index)),
                        held: locks.keys().copied().filter(|other| *other != lock).collect(),
                    });
                }
                apply(program, &inst.op, lock_of, &mut locks);
            }
        }
    }
}

/// The register that an operation accesses, and which cell.
fn accessed(op: &Op) -> Option<(ExternId, &Operand)> {
    match op {
        Op::RegisterRead { register, index, .. } | Op::RegisterWrite { register, index, .. } => {
            Some((*register, index))
        }
        _ => None,
    }
}

fn apply(program: &Program, op: &Op, lock_of: &dyn Fn(ExternId) -> Option<usize>, locks: &mut Locks) {
    if let Some((register, index)) = accessed(op)
        && let Some(lock) = lock_of(register)
    {
        let held = locks.entry(lock).or_insert_with(|| Held { index: Some(index.clone()), surely: true });
        held.surely = true;
        if held.index.as_ref() != Some(index) {
            held.index = None;
        }
    }
    if !locks.is_empty() {
        op.for_each_def(program, |slot| {
            for held in locks.values_mut().filter(|held| held.index.as_ref().and_then(Operand::slot) == Some(slot)) {
                held.index = None;
            }
        });
    }
}

/// Adds what holds on another path; whether that changed anything.
fn merge(there: &mut Option<Locks>, here: &Locks) -> bool {
    let Some(there) = there else {
        *there = Some(here.clone());
        return true;
    };
    let mut changed = false;
    for (lock, held) in here {
        match there.get_mut(lock) {
            None => {
                there.insert(*lock, Held { surely: false, ..held.clone() });
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
    for (_, before) in there.iter_mut().filter(|(lock, before)| before.surely && !here.contains_key(lock)) {
        before.surely = false;
        changed = true;
    }
    changed
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

/// Adds the nodes that can be reached and have not been seen, each behind all that are reached from it.
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
