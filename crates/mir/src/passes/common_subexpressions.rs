//! Dominator-based common subexpression elimination, including redundant loads and lookups.
//!
//! A walk of the dominator tree keeps the expressions computed by dominating blocks (Briggs, Cooper, Simpson: "Value
//! numbering", Software Practice and Experience 1997, section 4.1, dominator-based). An instruction that reads memory
//! has, for each region that it reads, a *version*: the last instruction that may have written there, or the block at
//! which several versions join (as in memory SSA, with one chain per region). The same load with the same versions has
//! the same value.
//!
//! A store to a region changes its version. Earlier loads from the same base at other bytes, or from other stack slots,
//! stay valid, and the stored value is recorded as the result of a load (store-to-load forwarding).
//!
//! Other threads may write to shared regions at any time. Two loads without an atomic operation or a writing call
//! between them may be merged: the execution in which the other thread writes after both is allowed.
//!
//! Needs: a well-formed function. Guarantees: no instruction without effects repeats a dominating one with the same
//! versions.
//!
//! ```text
//! v1 = load.i32 be4 frame v0+12             v1 = load.i32 be4 frame v0+12
//! store be2 record v2, v3                   store be2 record v2, v3
//! v4 = load.i32 be4 frame v0+12    =>       v5 = add.i32 v1, v1
//! v5 = add.i32 v1, v4
//! ```
//!
//! Tests: `tests/passes/common_subexpressions.mir`.

use crate::cfg::Cfg;
use crate::dominators::Dominators;
use crate::function::{Function, Module, Replacements};
use crate::op::{Access, Address, Op};
use crate::types::{Block, Effects, Region, Regions, Slot, Type, Value};
use std::collections::HashMap;

/// Largest number of recent loads and stores that are checked for overlap with each store.
const RECENT_MAX: usize = 32;

/// By region: its version.
type Versions = [u32; Region::ALL.len()];

/// The operation of an instruction, as a hash key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Expression {
    op: Op,
    ty: Type,
    /// The versions of the regions that it reads; 0 for others.
    versions: Versions,
}

/// A range of bytes in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Location {
    root: Root,
    offset: i64,
    bytes: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Root {
    Value(Value),
    Slot(Slot),
}

impl Location {
    /// Whether two ranges may overlap.
    fn meets(self, other: Location) -> bool {
        match (self.root, other.root) {
            (Root::Slot(a), Root::Slot(b)) if a != b => false,
            (a, b) if a == b => self.offset < other.offset + other.bytes && other.offset < self.offset + self.bytes,
            _ => true,
        }
    }
}

/// A value known to be in memory.
#[derive(Clone, Debug)]
struct Recent {
    access: Access,
    address: Address,
    ty: Type,
    location: Location,
    value: Value,
}

/// A block on the current path in the dominator tree.
struct Visit {
    block: Block,
    /// Index of the next child to visit.
    next: usize,
    /// The expressions that this block added.
    added: Vec<Expression>,
    /// The memory contents known at its end.
    recent: Vec<Recent>,
}

struct Walk<'m> {
    module: &'m Module,
    known: HashMap<Expression, Value>,
    replacements: Replacements,
    /// By value: the slot and offset, if the value is an address of a stack slot.
    slots: Vec<Option<(Slot, i32)>>,
    versions: Versions,
    recent: Vec<Recent>,
    added: Vec<Expression>,
}

/// Runs the pass.
pub(super) fn run(module: &Module, function: &mut Function) -> bool {
    let cfg = Cfg::new(function);
    let dominators = Dominators::new(function, &cfg);
    let memory = MemoryVersions::new(module, function, &cfg);
    let mut walk = Walk {
        module,
        known: HashMap::new(),
        replacements: Replacements::new(function),
        slots: vec![None; function.values.len()],
        versions: [0; Region::ALL.len()],
        recent: Vec::new(),
        added: Vec::new(),
    };
    let mut changed = false;
    let mut path: Vec<Visit> = Vec::new();
    let mut next = Some(function.entry());
    loop {
        if let Some(block) = next.take() {
            // If the immediate dominator is the only predecessor, its knowledge of memory still holds.
            walk.recent = match (cfg.predecessors(block), path.last()) {
                ([(from, _)], Some(parent)) if *from == parent.block => parent.recent.clone(),
                _ => Vec::new(),
            };
            walk.versions = memory.starts[block.index()];
            changed |= walk.block(function, block, &memory);
            let (added, recent) = (std::mem::take(&mut walk.added), std::mem::take(&mut walk.recent));
            path.push(Visit { block, next: 0, added, recent });
        }
        let Some(visit) = path.last_mut() else { break };
        match dominators.children(visit.block).get(visit.next) {
            Some(child) => {
                visit.next += 1;
                next = Some(*child);
            }
            None => {
                for expression in path.pop().expect("there is a last").added {
                    walk.known.remove(&expression);
                }
            }
        }
    }
    function.replace(&walk.replacements);
    changed
}

impl Walk<'_> {
    /// Processes a block. Returns whether an instruction was removed.
    fn block(&mut self, function: &mut Function, block: Block, memory: &MemoryVersions) -> bool {
        let mut changed = false;
        let values = std::mem::take(&mut function.values);
        let mut id = memory.first_write[block.index()];
        function.block_mut(block).insts.retain_mut(|inst| {
            inst.op.operands_mut(|value| *value = self.replacements.of(*value));
            let effects = inst.op.effects(|callee| self.module.effects_of(callee));
            if let (Op::StackAddress(slot, offset), Some(result)) = (&inst.op, inst.result) {
                self.slots[result.index()] = Some((*slot, *offset));
            }
            if !effects.writes.is_empty() {
                id += 1;
                self.write(&inst.op, effects, id, &values);
                return true;
            }
            let Some(result) = inst.result.filter(|_| effects.is_removable()) else { return true };
            let ty = values[result.index()];
            let expression = self.expression(inst.op.clone(), ty, effects);
            match self.known.get(&expression) {
                Some(&value) => {
                    self.replacements.add(result, value);
                    changed = true;
                    false
                }
                None => {
                    self.know(expression, result);
                    if let Op::Load(access, address) = inst.op {
                        self.remember(access, address, ty, result);
                    }
                    true
                }
            }
        });
        function.values = values;
        let terminator = &mut function.block_mut(block).terminator;
        terminator.operands_mut(|value| *value = self.replacements.of(*value));
        changed
    }

    fn know(&mut self, expression: Expression, value: Value) {
        if self.known.insert(expression.clone(), value).is_none() {
            self.added.push(expression);
        }
    }

    fn expression(&self, mut op: Op, ty: Type, effects: Effects) -> Expression {
        match &mut op {
            Op::Binary(binary, a, b) if binary.is_commutative() => (*a, *b) = (*a.min(b), *a.max(b)),
            // The regions that a load names do not change its result.
            Op::Load(access, address) => {
                access.regions = Regions::NONE;
                if let Some((slot, offset)) = self.slots[address.base.index()] {
                    // All addresses of a slot get the same base, an id that no value of the function has.
                    *address = Address { base: Value(u32::MAX - slot.0), offset: address.offset.wrapping_add(offset) };
                }
            }
            _ => {}
        }
        let mut versions = [0; Region::ALL.len()];
        for region in effects.reads.without(Regions::CONSTANT).iter() {
            versions[region as usize] = self.versions[region as usize];
        }
        Expression { op, ty, versions }
    }

    fn location(&self, access: Access, address: Address) -> Location {
        let bytes = access.bytes.into();
        match self.slots[address.base.index()] {
            Some((slot, offset)) => {
                Location { root: Root::Slot(slot), offset: i64::from(offset) + i64::from(address.offset), bytes }
            }
            None => Location { root: Root::Value(address.base), offset: address.offset.into(), bytes },
        }
    }

    fn remember(&mut self, access: Access, address: Address, ty: Type, value: Value) {
        if self.recent.len() == RECENT_MAX {
            self.recent.remove(0);
        }
        let location = self.location(access, address);
        self.recent.push(Recent { access, address, ty, location, value });
    }

    /// Processes an instruction that may write.
    fn write(&mut self, op: &Op, effects: Effects, id: u32, values: &[Type]) {
        for region in effects.writes.iter() {
            self.versions[region as usize] = id;
        }
        let stored = match op {
            Op::Store(access, address, value) => Some((*access, *address, *value)),
            _ => None,
        };
        let written = stored.map(|(access, address, _)| self.location(access, address));
        let stays = |recent: &Recent| {
            let meets = recent.access.regions.meets(effects.writes);
            !meets || written.is_some_and(|written| !recent.location.meets(written))
        };
        self.recent.retain(stays);
        // Records what stays valid under the versions from here on.
        for i in 0..self.recent.len() {
            let Recent { access, address, ty, value, .. } = self.recent[i];
            if access.regions.meets(effects.writes) {
                self.know_load(access, address, ty, value);
            }
        }
        if let Some((access, address, value)) = stored {
            let ty = values[value.index()];
            if ty.bits() == 8 * u32::from(access.bytes) {
                self.know_load(access, address, ty, value);
                self.remember(access, address, ty, value);
            }
        }
    }

    fn know_load(&mut self, access: Access, address: Address, ty: Type, value: Value) {
        let effects = Effects { reads: access.regions, ..Effects::PURE };
        let expression = self.expression(Op::Load(access, address), ty, effects);
        self.know(expression, value);
    }
}

/// The memory versions at the start of each block.
struct MemoryVersions {
    starts: Vec<Versions>,
    /// By block: the version before its first write.
    first_write: Vec<u32>,
}

impl MemoryVersions {
    fn new(module: &Module, function: &Function, cfg: &Cfg) -> MemoryVersions {
        let blocks = function.blocks.len();
        // 0 is the function's start; the next `blocks` numbers belong to joins at the start of blocks.
        let mut next = blocks as u32;
        let mut first_write = vec![0; blocks];
        // By block and region: the version of the last write.
        let mut last_write = vec![[None; Region::ALL.len()]; blocks];
        for &block in cfg.reverse_postorder() {
            first_write[block.index()] = next;
            for inst in &function.block(block).insts {
                let writes = inst.op.effects(|callee| module.effects_of(callee)).writes;
                next += u32::from(!writes.is_empty());
                writes.iter().for_each(|region| last_write[block.index()][region as usize] = Some(next));
            }
        }
        let mut starts = vec![[0; Region::ALL.len()]; blocks];
        let mut ends: Vec<Option<Versions>> = vec![None; blocks];
        // By block and region: how often the version at the start has changed.
        let mut changes = vec![[0u8; Region::ALL.len()]; blocks];
        let mut changed = true;
        while changed {
            changed = false;
            for &block in cfg.reverse_postorder() {
                let joined = block.0 + 1;
                for region in 0..Region::ALL.len() {
                    // Edges from blocks that have not been visited yet are ignored (the optimistic assumption).
                    let mut versions = cfg
                        .predecessors(block)
                        .iter()
                        .filter_map(|(from, _)| ends[from.index()].map(|end| end[region]));
                    let first = versions.next().unwrap_or(0);
                    let version = if versions.all(|version| version == first) { first } else { joined };
                    let start = &mut starts[block.index()][region];
                    // A version that keeps changing becomes a new one here, which is always correct.
                    let version = if changes[block.index()][region] > 2 { joined } else { version };
                    if *start != version {
                        *start = version;
                        changes[block.index()][region] += 1;
                        changed = true;
                    }
                }
                let mut end = starts[block.index()];
                for (version, last) in end.iter_mut().zip(last_write[block.index()]) {
                    *version = last.unwrap_or(*version);
                }
                if ends[block.index()] != Some(end) {
                    ends[block.index()] = Some(end);
                    changed = true;
                }
            }
        }
        MemoryVersions { starts, first_write }
    }
}
