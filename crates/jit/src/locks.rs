//! Locks of register cells, for programs that run on several workers. `ir::atomicity` says which locks there are and
//! when packets acquire them.
//!
//! A packet's locks are variables: the address of the lock that it holds, or 0. A packet releases them where no access
//! of a locked register can follow, or with its fate. Packets that wait for a table hold none: all accesses of locked
//! registers are in one phase of staged code (`stage/plan.rs`).
//!
//! Acquiring is one compare-and-exchange; if the lock is taken, a call waits for it. Releasing is a plain store, since
//! x86-64 does not reorder stores with earlier loads and stores (Intel SDM volume 3A, 9.2.2). Other processors use
//! their own instructions.
//!
//! Tests: `crates/datapath/tests/shared_cells.rs`.

use crate::flow::Graph;
use crate::translate::Translator;
use abi::{Bindings, ExternBinding, register_cell_bytes};
use cranelift_codegen::ir::types::I8;
use cranelift_codegen::ir::{self as clif, InstBuilder, Value};
use cranelift_frontend::Variable;
use ir::{Acquire, Acquisitions, EntryPoint, ExternId, Program};
use std::collections::{BTreeMap, BTreeSet};

/// The locks of an entry point.
#[derive(Default)]
pub(crate) struct Locks {
    acquisitions: Acquisitions,
    /// The variable of the held lock, by rank.
    held: BTreeMap<u32, Variable>,
    /// Nodes from which no access can be reached, but which follow nodes from which some can: here locks are released.
    last: BTreeSet<usize>,
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
        graph: &Graph,
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
        let mut locks = Locks { acquisitions, held, last: BTreeSet::new() };
        let is_growing = |n: &usize| locks.is_growing(graph, *n);
        let followers = (0..graph.nodes.len()).filter(is_growing).flat_map(|n| &graph.nodes[n].succs);
        locks.last = followers.copied().filter(|n| !is_growing(n)).collect();
        Ok(locks)
    }

    fn is_growing(&self, graph: &Graph, node: usize) -> bool {
        let node = &graph.nodes[node];
        self.acquisitions.is_growing(node.position, node.block)
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

    /// Whether the current operation acquires a lock that later operations rely on.
    pub fn acquires(&self) -> bool {
        let node = &self.flow.graph.nodes[self.program_point.0];
        let acquire = self.locks.acquisitions.at(node.position, node.block, self.program_point.1);
        acquire.is_some_and(|acquire| acquire != Acquire::Held)
    }

    /// Before an access of a register: acquires the lock of the cell at `cell`, unless the packet holds it.
    pub fn acquire(&mut self, register: ExternId, cell: Value, width: u32) {
        if self.is_prefetch_pass() {
            return;
        }
        let node = &self.flow.graph.nodes[self.program_point.0];
        let Some(acquire) = self.locks.acquisitions.at(node.position, node.block, self.program_point.1) else { return };
        let rank = lock_rank(self.bindings, register);
        let Some(&held) = rank.and_then(|rank| self.locks.held.get(&rank)) else { return };
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
        self.b.def_var(held, at);
        if let Some(done) = done {
            self.b.ins().jump(done, &[]);
            self.b.seal_block(done);
            self.b.switch_to_block(done);
        }
    }

    fn take_lock(&mut self, at: Value) {
        let [attempt, wait, taken] = [(); 3].map(|()| self.b.create_block());
        self.b.ins().jump(attempt, &[]);
        self.b.switch_to_block(attempt);
        let (free, held) = (self.b.ins().iconst(I8, 0), self.b.ins().iconst(I8, 1));
        let before = self.b.ins().atomic_cas(self.flags.state, at, free, held);
        self.b.ins().brif(before, wait, &[], taken, &[]);
        self.b.seal_block(wait);
        self.b.set_cold_block(wait);
        self.b.switch_to_block(wait);
        let ctx = self.context();
        self.call_on_cold_path(self.runtime.wait_for_lock as usize, &[ctx, at], None);
        self.b.ins().jump(attempt, &[]);
        self.b.seal_block(attempt);
        self.b.seal_block(taken);
        self.b.switch_to_block(taken);
    }

    /// At the start of a node: releases the packet's locks, if it comes from an access and no more can follow.
    pub fn release_at_start(&mut self) {
        if self.locks.last.contains(&self.node) {
            self.release();
        }
    }

    /// With the packet's fate, or where it waits: releases its locks.
    pub fn release_at_end(&mut self) {
        // Elsewhere they were released at the start of the node.
        if self.is_growing() {
            self.release();
        }
    }

    fn is_growing(&self) -> bool {
        self.locks.is_growing(&self.flow.graph, self.node)
    }

    fn release(&mut self) {
        if self.is_prefetch_pass() {
            return;
        }
        for var in self.locks.held.values().copied().collect::<Vec<Variable>>() {
            let held = self.b.use_var(var);
            if self.as_constant(held) == Some(0) {
                continue;
            }
            let (free, next) = (self.b.create_block(), self.b.create_block());
            self.b.ins().brif(held, free, &[], next, &[]);
            self.b.seal_block(free);
            self.b.switch_to_block(free);
            let zero = self.b.ins().iconst(I8, 0);
            self.free_lock(zero, held);
            self.b.ins().jump(next, &[]);
            self.b.seal_block(next);
            self.b.switch_to_block(next);
            let none = self.iconst(0);
            self.b.def_var(var, none);
        }
    }

    fn free_lock(&mut self, zero: Value, at: Value) -> clif::Inst {
        if cfg!(target_arch = "x86_64") {
            self.b.ins().store(self.flags.state, zero, at, 0)
        } else {
            self.b.ins().atomic_store(self.flags.state, zero, at)
        }
    }
}
