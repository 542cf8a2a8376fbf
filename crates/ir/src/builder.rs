//! Construction of programs: unique names, blocks filled through a cursor, temporaries on demand.
//!
//! The builder keeps a *current block* of a *current stage*, and a *current span* that every instruction gets. Code
//! emitted after a terminator goes into a fresh unreachable block, so callers need not check whether an `exit` or
//! `return` came before; the optimiser removes it. Widths and kinds are checked by the verifier.
//!
//! **Budget.** A builder may have a budget ([`Builder::set_budget`]). Each instruction, block and slot costs one unit;
//! each further 64 bits of a slot or constant beyond the first 64 cost one more; and so do each [`UNIT_STEPS`] steps of
//! an instruction's running time ([`crate::cost`]), so that a small program cannot be slow. Callers charge for whatever
//! else grows with the program. Once the budget is spent nothing is added any more, except blocks, which callers need
//! as distinct targets. [`Builder::overrun`] returns where that happened; the program is useless then.
//!
//! **Loops** get their charges when the program is finished ([`crate::cost::charge_loops`]).
//!
//! Panics are bugs of the caller: code emitted outside a stage, a block without a terminator.
//!
//! Tests: at the end of the file.

use crate::op::{BinOp, CastKind, Fate, Inst, Op, Operand, Terminator, UnOp};
use crate::program::{
    Action, Block, EntryKind, EntryPoint, Extern, Field, Header, Intrinsic, Program, Slot, SlotKind, Stage, StageKind,
    Table,
};
use base::ids::{ActionId, BlockId, ExternId, HeaderId, SlotId, StageId, TableId};
use base::{Bits, Span};
use std::collections::{HashMap, HashSet};

/// The width of a header field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldWidth {
    /// This many bits.
    Fixed(u32),
    /// A varbit of at most this many bits.
    Varbit(u32),
}

/// Builds one program.
#[derive(Debug, Default)]
pub struct Builder {
    program: Program,
    /// Slot names in use, and the last suffix tried for each.
    slot_names: HashMap<String, u32>,
    header_names: HashSet<String>,
    stage: Option<OpenStage>,
    span: Option<Span>,
    temps: u32,
    budget: Option<Budget>,
}

/// Bits of a slot or constant per unit of the budget.
const UNIT_BITS: usize = 64;
/// Steps of an instruction per unit of the budget.
const UNIT_STEPS: u64 = 8;

/// Units of the budget that an instruction costs.
pub fn units(program: &Program, op: &Op) -> usize {
    let mut units = 1 + (crate::cost::steps(program, op) / UNIT_STEPS) as usize;
    op.for_each_operand(|o| units += o.constant().map_or(0, |c| c.width() as usize / UNIT_BITS));
    units
}

/// The rest of the budget.
#[derive(Debug)]
struct Budget {
    left: usize,
    /// The current span when the budget ran out.
    overrun: Option<Span>,
    /// By width: the one slot that stands for all slots requested after that.
    stand_ins: HashMap<u32, SlotId>,
}

#[derive(Debug)]
struct OpenStage {
    id: StageId,
    current: BlockId,
    /// By block: whether it still lacks its terminator.
    open: Vec<bool>,
}

// Declarations.
impl Builder {
    /// An empty program.
    pub fn new(name: impl Into<String>) -> Builder {
        Builder { program: Program { name: name.into(), ..Program::default() }, ..Builder::default() }
    }

    /// Limits the program from now on to `units`: instructions, blocks, slots, and what callers
    /// [`charge`](Builder::charge).
    pub fn set_budget(&mut self, units: usize) {
        self.budget = Some(Budget { left: units, overrun: None, stand_ins: HashMap::new() });
    }

    /// The span that was current when the budget ran out; `None` if it has not.
    pub fn overrun(&self) -> Option<Span> {
        self.budget.as_ref()?.overrun
    }

    /// Takes units from the budget. Returns whether enough were left.
    pub fn charge(&mut self, units: usize) -> bool {
        let span = self.span();
        let Some(budget) = &mut self.budget else { return true };
        if budget.overrun.is_some() {
            return false;
        }
        match budget.left.checked_sub(units) {
            Some(left) => budget.left = left,
            None => budget.overrun = Some(span),
        }
        budget.overrun.is_none()
    }

    /// The program as built so far.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Mutable access, to set what has no method here (`drop_port`, `errors`, entries of tables, …).
    pub fn program_mut(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Adds a slot. If the name is taken, the suffix `#2`, `#3`, … is appended.
    pub fn slot(&mut self, name: impl Into<String>, width: u32, kind: SlotKind) -> SlotId {
        let mut name = name.into();
        if !self.charge(1 + width as usize / UNIT_BITS)
            && let Some(budget) = &self.budget
            && let Some(stand_in) = budget.stand_ins.get(&width)
        {
            return *stand_in;
        }
        if self.slot_names.contains_key(&name) {
            let stem = name.clone();
            let mut number = self.slot_names[&stem];
            while self.slot_names.contains_key(&name) {
                number += 1;
                name = format!("{stem}#{number}");
            }
            self.slot_names.insert(stem, number);
        }
        self.slot_names.insert(name.clone(), 1);
        self.program.slots.push(Slot { name, width, kind });
        let id = SlotId::from_index(self.program.slots.len() - 1);
        if let Some(Budget { overrun: Some(_), stand_ins, .. }) = &mut self.budget {
            stand_ins.insert(width, id);
        }
        id
    }

    /// Adds a metadata slot.
    pub fn metadata(&mut self, name: impl Into<String>, width: u32) -> SlotId {
        self.slot(name, width, SlotKind::Metadata)
    }

    /// Adds a local variable.
    pub fn local(&mut self, name: impl Into<String>, width: u32) -> SlotId {
        self.slot(name, width, SlotKind::Local)
    }

    /// Adds a temporary, `%0`, `%1`, …; it must be assigned before it is read on every path of its stage.
    pub fn temp(&mut self, width: u32) -> SlotId {
        let number = self.temps;
        self.temps += 1;
        self.slot(format!("%{number}"), width, SlotKind::Temp)
    }

    /// Adds a header with its slots `name.field`, `name.field.$length` for a varbit, and `name.$valid`.
    pub fn header(&mut self, name: impl Into<String>, fields: &[(&str, FieldWidth)]) -> HeaderId {
        let name = name.into();
        assert!(self.header_names.insert(name.clone()), "two headers `{name}`");
        let id = HeaderId::from_index(self.program.headers.len());
        let fields = fields
            .iter()
            .map(|&(field, width)| {
                let (bits, varbit) = match width {
                    FieldWidth::Fixed(bits) => (bits, false),
                    FieldWidth::Varbit(bits) => (bits, true),
                };
                let slot = self.slot(format!("{name}.{field}"), bits, SlotKind::Field(id));
                let varbit_length =
                    varbit.then(|| self.slot(format!("{name}.{field}.$length"), 32, SlotKind::VarbitLength(id)));
                Field { name: field.to_string(), slot, varbit_length }
            })
            .collect();
        let valid = self.slot(format!("{name}.$valid"), 1, SlotKind::Valid(id));
        self.program.headers.push(Header { name, fields, valid });
        id
    }

    /// Adds an action.
    pub fn action(&mut self, action: Action) -> ActionId {
        self.program.actions.push(action);
        ActionId::from_index(self.program.actions.len() - 1)
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) -> TableId {
        self.program.tables.push(table);
        TableId::from_index(self.program.tables.len() - 1)
    }

    /// Adds an extern instance.
    pub fn extern_instance(&mut self, instance: Extern) -> ExternId {
        self.program.externs.push(instance);
        ExternId::from_index(self.program.externs.len() - 1)
    }

    /// The index of a drop reason, added if it is new.
    pub fn drop_reason(&mut self, name: &str) -> u32 {
        intern(&mut self.program.drops, name)
    }

    /// The index of an `error` member, added if it is new.
    pub fn error(&mut self, name: &str) -> u32 {
        intern(&mut self.program.errors, name)
    }

    /// Declares that a slot is an intrinsic of the runtime.
    pub fn intrinsic(&mut self, which: Intrinsic, slot: SlotId) {
        self.program.intrinsics.push((which, slot));
    }

    /// Adds an entry point with its stages.
    pub fn entry(&mut self, kind: EntryKind, stages: &[StageId]) {
        self.program.entries.push(EntryPoint { kind, stages: stages.to_vec() });
    }

    /// Charges the program's loops and returns it. No stage may be open.
    pub fn finish(mut self) -> Program {
        assert!(self.stage.is_none(), "a stage is still open");
        if self.overrun().is_none() {
            crate::cost::charge_loops(&mut self.program);
        }
        self.program
    }
}

fn intern(names: &mut Vec<String>, name: &str) -> u32 {
    let at = names.iter().position(|n| n == name).unwrap_or_else(|| {
        names.push(name.to_string());
        names.len() - 1
    });
    at as u32
}

// Stages and blocks.
impl Builder {
    /// Opens a stage; its block 0 is the current one.
    pub fn begin_stage(&mut self, name: impl Into<String>, kind: StageKind) -> StageId {
        assert!(self.stage.is_none(), "a stage is still open");
        let id = StageId::from_index(self.program.stages.len());
        self.program.stages.push(Stage { name: name.into(), kind, blocks: Vec::new() });
        self.stage = Some(OpenStage { id, current: Stage::START, open: Vec::new() });
        self.block("");
        id
    }

    /// Closes the stage. Every block must have its terminator.
    pub fn end_stage(&mut self) {
        let stage = self.stage.take().expect("a stage is open");
        let blocks = &self.program.stages[stage.id.index()];
        for (i, open) in stage.open.iter().enumerate() {
            assert!(!open, "block {i} `{}` of stage `{}` has no terminator", blocks.blocks[i].label, blocks.name);
        }
    }

    /// Adds an empty block to the open stage. The current block does not change.
    pub fn block(&mut self, label: impl Into<String>) -> BlockId {
        self.charge(1);
        let stage = self.stage.as_mut().expect("a stage is open");
        let blocks = &mut self.program.stages[stage.id.index()].blocks;
        blocks.push(Block { label: label.into(), insts: Vec::new(), term: Terminator::Next, span: Span::NONE });
        stage.open.push(true);
        BlockId::from_index(blocks.len() - 1)
    }

    /// Makes a block of the open stage the current one.
    pub fn switch_to(&mut self, block: BlockId) {
        self.open_stage().current = block;
    }

    /// The current block.
    pub fn current(&self) -> BlockId {
        self.stage.as_ref().expect("a stage is open").current
    }

    /// The open stage.
    pub fn current_stage(&self) -> StageId {
        self.stage.as_ref().expect("a stage is open").id
    }

    /// Whether the current block has a terminator.
    pub fn is_terminated(&self) -> bool {
        let stage = self.stage.as_ref().expect("a stage is open");
        !stage.open[stage.current.index()]
    }

    fn open_stage(&mut self) -> &mut OpenStage {
        self.stage.as_mut().expect("a stage is open")
    }

    /// The block to append to: the current one or, if that is terminated, a fresh one.
    fn writable(&mut self) -> &mut Block {
        if self.is_terminated() {
            let dead = self.block("");
            self.switch_to(dead);
        }
        let stage = self.stage.as_ref().expect("a stage is open");
        &mut self.program.stages[stage.id.index()].blocks[stage.current.index()]
    }
}

// Code.
impl Builder {
    /// Sets the span of instructions emitted from now on and returns the previous one.
    pub fn set_span(&mut self, span: Span) -> Span {
        self.span.replace(span).unwrap_or(Span::NONE)
    }

    /// The current span.
    pub fn span(&self) -> Span {
        self.span.unwrap_or(Span::NONE)
    }

    /// Appends an operation to the current block.
    pub fn emit(&mut self, op: Op) {
        if !self.charge(units(&self.program, &op)) {
            return;
        }
        let span = self.span();
        self.writable().insts.push(Inst { op, span });
    }

    /// Ends the current block.
    pub fn terminate(&mut self, term: Terminator) {
        let span = self.span();
        let block = self.writable();
        block.term = term;
        block.span = span;
        let stage = self.open_stage();
        stage.open[stage.current.index()] = false;
    }

    /// Ends the current block with a jump.
    pub fn jump(&mut self, to: BlockId) {
        self.terminate(Terminator::Jump(to));
    }

    /// Ends the current block with a jump unless it is terminated already (by `exit` or `return`).
    pub fn fall_through(&mut self, to: BlockId) {
        if !self.is_terminated() {
            self.jump(to);
        }
    }

    /// Ends the current block with a branch.
    pub fn branch(&mut self, cond: impl Into<Operand>, then: BlockId, other: BlockId) {
        self.terminate(Terminator::Branch { cond: cond.into(), then, other });
    }

    /// Ends the current block with a switch.
    pub fn switch(&mut self, on: impl Into<Operand>, cases: Vec<(Bits, BlockId)>, default: BlockId) {
        self.terminate(Terminator::Switch { on: on.into(), cases, default });
    }

    /// Ends the current block and the stage (`next`).
    pub fn next_stage(&mut self) {
        self.terminate(Terminator::Next);
    }

    /// Ends the current block with the packet's fate.
    pub fn fate(&mut self, fate: Fate) {
        self.terminate(Terminator::Finish(fate));
    }

    /// `dst = src`.
    pub fn mov(&mut self, dst: SlotId, src: impl Into<Operand>) {
        self.emit(Op::Mov { dst, src: src.into() });
    }

    /// `dst = value`, a constant of the slot's width.
    pub fn set(&mut self, dst: SlotId, value: u128) {
        let width = self.program.width(dst);
        self.mov(dst, Bits::new(width, value));
    }

    /// A temporary with `a op b`.
    pub fn bin(&mut self, op: BinOp, a: impl Into<Operand>, b: impl Into<Operand>) -> SlotId {
        let (a, b) = (a.into(), b.into());
        let width = if op.is_comparison() { 1 } else { a.width(&self.program) };
        let dst = self.temp(width);
        self.emit(Op::Bin { op, dst, a, b });
        dst
    }

    /// A temporary with `op a`.
    pub fn un(&mut self, op: UnOp, a: impl Into<Operand>) -> SlotId {
        let a = a.into();
        let dst = self.temp(a.width(&self.program));
        self.emit(Op::Un { op, dst, a });
        dst
    }

    /// A temporary with `a` cast to `width`.
    pub fn cast(&mut self, kind: CastKind, width: u32, a: impl Into<Operand>) -> SlotId {
        let dst = self.temp(width);
        self.emit(Op::Cast { kind, dst, a: a.into() });
        dst
    }

    /// `a` as an unsigned number of `width` bits: itself, a constant, or a temporary with the cast.
    pub fn resize_u(&mut self, width: u32, a: impl Into<Operand>) -> Operand {
        let a = a.into();
        let from = a.width(&self.program);
        match a {
            _ if from == width => a,
            Operand::Const(c) => Operand::Const(c.resize_u(width)),
            _ => self.cast(if from < width { CastKind::Zext } else { CastKind::Trunc }, width, a).into(),
        }
    }

    /// A temporary with `hi ++ lo`.
    pub fn concat(&mut self, hi: impl Into<Operand>, lo: impl Into<Operand>) -> SlotId {
        let (hi, lo) = (hi.into(), lo.into());
        let dst = self.temp(hi.width(&self.program) + lo.width(&self.program));
        self.emit(Op::Concat { dst, hi, lo });
        dst
    }

    /// A temporary with `a[hi:lo]`.
    pub fn slice(&mut self, a: impl Into<Operand>, hi: u32, lo: u32) -> SlotId {
        let dst = self.temp(hi - lo + 1);
        self.emit(Op::Slice { dst, a: a.into(), hi, lo });
        dst
    }

    /// A temporary with `cond ? then : other`.
    pub fn select(&mut self, cond: impl Into<Operand>, then: impl Into<Operand>, other: impl Into<Operand>) -> SlotId {
        let then = then.into();
        let dst = self.temp(then.width(&self.program));
        self.emit(Op::Select { dst, cond: cond.into(), then, other: other.into() });
        dst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_behind_a_terminator_lands_in_an_unreachable_block() {
        let mut b = Builder::new("t");
        let x = b.metadata("x", 8);
        b.begin_stage("s", StageKind::Control);
        b.next_stage();
        b.set(x, 1);
        assert_eq!(b.current(), BlockId(1));
        b.next_stage();
        b.end_stage();
        let program = b.finish();
        assert!(program.stages[0].blocks[0].insts.is_empty());
        assert_eq!(program.stages[0].blocks[1].insts.len(), 1);
        assert!(!crate::flow::Cfg::new(&program.stages[0]).is_reachable(BlockId(1)));
    }

    #[test]
    #[should_panic(expected = "block 1 `later` of stage `s` has no terminator")]
    fn a_block_without_terminator_is_a_bug() {
        let mut b = Builder::new("t");
        b.begin_stage("s", StageKind::Control);
        let later = b.block("later");
        b.jump(later);
        b.end_stage();
    }

    #[test]
    fn nothing_is_made_beyond_the_budget_and_the_place_is_known() {
        let mut b = Builder::new("t");
        b.set_budget(4);
        b.begin_stage("s", StageKind::Control);
        let x = b.metadata("x", 8);
        let place = Span::new(base::FileId(0), 3, 7);
        b.set_span(place);
        b.set(x, 1);
        b.set(x, 2);
        assert_eq!(b.overrun(), None);
        for i in 0..100 {
            b.set(x, i);
            let y = b.temp(9);
            assert_eq!(b.program().width(y), 9, "widths stay right, so that callers need not look");
            b.mov(y, Bits::new(9, 1));
        }
        assert_eq!(b.overrun(), Some(place));
        assert_eq!((b.program().slots.len(), b.program().stages[0].blocks[0].insts.len()), (2, 2));
    }

    #[test]
    fn taken_slot_names_get_a_number() {
        let mut b = Builder::new("t");
        for _ in 0..3 {
            b.local("x", 8);
        }
        b.local("x#2", 8);
        let names: Vec<&str> = b.program().slots.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["x", "x#2", "x#3", "x#2#2"]);
    }
}
