//! Locks of register cells, for programs that run on several workers. `ir::atomicity` says which locks there are and
//! when packets acquire them.
//!
//! A packet's locks are variables: the address of the lock that it holds, or 0. A packet releases them where
//! [`Acquisitions`] says, or with its fate. Packets that wait for a table hold none: all accesses of locked registers are
//! in one phase of staged code (`stage/plan.rs`).
//!
//! Acquiring is one exchange; if the lock is taken, a cold call waits for it, and the exchange is tried again there: the
//! common path has no loop, which register allocation would spill around. Releasing is a plain store, since x86-64 does
//! not reorder stores with earlier loads and stores (Intel SDM volume 3A, 9.2.2). Where a cell and its lock are one word,
//! the last write of the cell releases the lock with the same store. Other processors use their own instructions.
//!
//! Tests: `crates/datapath/tests/shared_cells.rs`.

use crate::translate::Translator;
use abi::{Bindings, ExternBinding, register_cell_bytes};
use cranelift_codegen::ir::types::I8;
use cranelift_codegen::ir::{self as clif, AtomicRmwOp, InstBuilder, Value};
use cranelift_frontend::Variable;
use ir::{Acquire, Acquisitions, EntryPoint, ExternId, Program};
use std::collections::{BTreeMap, HashSet};

/// The locks of an entry point.
#[derive(Default)]
pub(crate) struct Locks {
    acquisitions: Acquisitions,
    /// The variable of the held lock, by rank.
    held: BTreeMap<u32, Variable>,
    /// Values of these variables that are addresses of held locks, not 0.
    addresses: HashSet<Value>,
}

/// Whether cells of a register are changed by several workers, which lock them or change them by atomic instructions.
pub(crate) fn is_shared(bindings: &Bindings, register: ExternId) -> bool {
    matches!(
        bindings.externs.get(register.index()),
        Some(ExternBinding::Register { lock_rank: Some(_), .. } | ExternBinding::Register { is_stepped: true, .. })
    )
}

/// The rank of the locks of a register's cells, if they have locks.
pub(crate) fn lock_rank(bindings: &Bindings, register: ExternId) -> Option<u32> {
    match bindings.externs.get(register.index()) {
        Some(&ExternBinding::Register { lock_rank, .. }) => lock_rank,
        _ => None,
    }
}

impl Locks {
    /// The locks of an entry point; `declare` makes a variable.
    ///
    /// # Errors
    /// The name of a register whose lock would be acquired out of order.
    pub fn new(
        program: &Program,
        entry: &EntryPoint,
        bindings: &Bindings,
        mut declare: impl FnMut() -> Variable,
    ) -> Result<Locks, String> {
        let rank = |register| lock_rank(bindings, register);
        let ranks: Vec<u32> = (0..program.externs.len()).filter_map(|i| rank(ExternId::from_index(i))).collect();
        if ranks.is_empty() {
            return Ok(Locks::default());
        }
        let acquisitions = Acquisitions::new(program, entry, &rank)
            .map_err(|register| program.externs[register.index()].name.clone())?;
        let mut held = BTreeMap::new();
        if !acquisitions.is_empty() {
            for rank in ranks {
                held.entry(rank).or_insert_with(&mut declare);
            }
        }
        Ok(Locks { acquisitions, held, addresses: HashSet::new() })
    }
}

impl Translator<'_, '_> {
    /// Where packets start, or continue after a table that they waited for: no lock is held.
    pub fn reset_held_locks(&mut self) {
        for var in self.locks.held.values().copied().collect::<Vec<Variable>>() {
            let none = self.iconst(0);
            self.b.def_var(var, none);
        }
    }

    /// Whether the current operation acquires a lock that later operations rely on, or releases one.
    pub fn acquires_or_releases(&self) -> bool {
        let node = &self.flow.graph.nodes[self.program_point.0];
        let acquire = self.locks.acquisitions.at(node.position, node.block, self.program_point.1);
        acquire.is_some_and(|acquire| acquire != Acquire::Held) || !self.released_now().is_empty()
    }

    /// The registers whose locks are released after the current operation.
    fn released_now(&self) -> &[ExternId] {
        let node = &self.flow.graph.nodes[self.program_point.0];
        self.locks.acquisitions.released_after(node.position, node.block, self.program_point.1)
    }

    fn held_lock(&self, register: ExternId) -> Option<Variable> {
        self.locks.held.get(&lock_rank(self.bindings, register)?).copied()
    }

    /// Before an access of a register: acquires the lock of the cell at `cell`, unless the packet holds it.
    pub fn acquire(&mut self, register: ExternId, cell: Value, width: u32) {
        if self.is_prefetch_pass() {
            return;
        }
        let node = &self.flow.graph.nodes[self.program_point.0];
        let Some(acquire) = self.locks.acquisitions.at(node.position, node.block, self.program_point.1) else { return };
        let Some(held) = self.held_lock(register) else { return };
        let done = match acquire {
            Acquire::Held => return,
            Acquire::Always => None,
            Acquire::IfFree => {
                let (take, done) = (self.b.create_block(), self.b.create_block());
                let is_held = self.b.use_var(held);
                self.b.ins().brif(is_held, done, &[], take, &[]);
                self.b.seal_block(take);
                self.b.switch_to_block(take);
                Some(done)
            }
        };
        let at = self.add_imm(cell, u64::from(register_cell_bytes(width)));
        self.take_lock(at);
        self.locks.addresses.insert(at);
        self.b.def_var(held, at);
        if let Some(done) = done {
            self.b.ins().jump(done, &[]);
            self.b.seal_block(done);
            self.b.switch_to_block(done);
        }
    }

    fn take_lock(&mut self, at: Value) {
        let [wait, taken] = [(); 2].map(|()| self.b.create_block());
        self.attempt(at, wait, taken);
        self.b.set_cold_block(wait);
        self.b.switch_to_block(wait);
        let ctx = self.context();
        self.call_on_cold_path(self.runtime.wait_for_lock as usize, &[ctx, at], None);
        self.attempt(at, wait, taken);
        self.b.seal_block(wait);
        self.b.seal_block(taken);
        self.b.switch_to_block(taken);
    }

    /// Tries to acquire a lock.
    fn attempt(&mut self, at: Value, wait: clif::Block, taken: clif::Block) {
        let held = self.b.ins().iconst(I8, 1);
        let before = self.b.ins().atomic_rmw(I8, self.flags.state, AtomicRmwOp::Xchg, at, held);
        self.b.ins().brif(before, wait, &[], taken, &[]);
    }

    /// Whether the lock of the cell at `cell`, which the packet holds and is about to write, can be released by that
    /// store, which then writes the cell and its lock as one word. If so, the lock is no longer held.
    pub fn is_released_by_store(&mut self, register: ExternId, width: u32) -> bool {
        let is_one_word = cfg!(target_arch = "x86_64") && register_cell_bytes(width) < 8;
        let Some(held) = self.held_lock(register).filter(|_| is_one_word && self.released_now().contains(&register))
        else {
            return false;
        };
        let none = self.iconst(0);
        self.b.def_var(held, none);
        true
    }

    /// After an access of a cell in range, which the packet has locked: releases its lock, if it is no longer needed.
    pub fn release_accessed(&mut self, register: ExternId) {
        if self.released_now().contains(&register) {
            self.release(&[register]);
        }
    }

    /// After an access of a register, in range or not: releases the other locks that are no longer needed.
    pub fn release_others(&mut self, register: ExternId) {
        let others: Vec<ExternId> = self.released_now().iter().copied().filter(|other| *other != register).collect();
        self.release(&others);
    }

    /// At the start of a node: releases the locks that are not needed on this path.
    pub fn release_at_start(&mut self) {
        let node = &self.flow.graph.nodes[self.node];
        let released = self.locks.acquisitions.released_at_start(node.position, node.block).to_vec();
        self.release(&released);
    }

    /// With the packet's fate: releases its locks.
    pub fn release_at_end(&mut self) {
        let node = &self.flow.graph.nodes[self.node];
        self.release(&self.locks.acquisitions.held_in(node.position, node.block).collect::<Vec<ExternId>>());
    }

    fn release(&mut self, registers: &[ExternId]) {
        if self.is_prefetch_pass() {
            return;
        }
        for &register in registers {
            let Some(var) = self.held_lock(register) else { continue };
            let held = self.b.use_var(var);
            if self.as_constant(held) == Some(0) {
                continue;
            }
            if self.locks.addresses.contains(&held) {
                self.free_lock(held);
            } else {
                let (free, next) = (self.b.create_block(), self.b.create_block());
                self.b.ins().brif(held, free, &[], next, &[]);
                self.b.seal_block(free);
                self.b.switch_to_block(free);
                self.free_lock(held);
                self.b.ins().jump(next, &[]);
                self.b.seal_block(next);
                self.b.switch_to_block(next);
            }
            let none = self.iconst(0);
            self.b.def_var(var, none);
        }
    }

    fn free_lock(&mut self, at: Value) -> clif::Inst {
        let zero = self.b.ins().iconst(I8, 0);
        if cfg!(target_arch = "x86_64") {
            self.b.ins().store(self.flags.state, zero, at, 0)
        } else {
            self.b.ins().atomic_store(self.flags.state, zero, at)
        }
    }
}
