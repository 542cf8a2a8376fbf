//! Statements: assignments, conditionals, switches, loops, `return`, `exit`.
//!
//! Early exits (`return`, `exit`, `break`, `continue`) jump to joins. Code after them is lowered to unreachable blocks,
//! which `cleanup.rs` removes.
//!
//! Specification: P4_16, chapter "Statements".

use crate::codes;
use crate::context::{Facts, LoopTarget, Lowerer};
use crate::path::{BitRange, Place};
use crate::tree::Tree;
use crate::visit::is_pure;
use ir::{BinOp, Mark, Op, Operand};
use sema::consteval::is_signed;
use sema::typed::{BinaryOp, Block, Expr, ExprKind, ForCollection, LocalId, Stmt, StmtKind, ValueCase};
use std::collections::HashSet;

/// Limit on the iterations of a `for`-`in` loop over elements, which is unrolled.
const UNROLL_LIMIT: usize = 4096;

impl Lowerer<'_> {
    /// Lowers the statements of a block.
    pub fn block(&mut self, block: &Block) {
        self.stmts(&block.stmts);
    }

    /// Lowers statements in order.
    pub fn stmts(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            if self.b.is_terminated() || self.step(stmt.span) {
                // The rest is unreachable, or lowering has given up.
                return;
            }
            let saved = self.b.set_span(stmt.span);
            self.stmt(stmt);
            self.b.set_span(saved);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Assign { target, op, value } => self.assignment(target, *op, value),
            StmtKind::Call(call) => {
                self.call(call);
            }
            StmtKind::Var { local, init } => self.variable(*local, init.as_ref()),
            StmtKind::Block(block) => self.block(block),
            StmtKind::If { cond, then, otherwise } => self.if_statement(cond, then, otherwise.as_ref()),
            StmtKind::SwitchAction { apply, cases, .. } => {
                self.apply_call(apply, Some(cases));
            }
            StmtKind::Switch { subject, cases } => self.switch(subject, cases),
            StmtKind::For { init, cond, update, body, .. } => self.for_loop(init, cond, update, body),
            StmtKind::ForIn { variable, collection, body, .. } => self.for_in(*variable, collection, body, stmt),
            StmtKind::Break => match self.loops.last() {
                Some(target) => self.to(target.brk),
                None => self.refuse(codes::MISPLACED, stmt.span, "`break` outside of a loop"),
            },
            StmtKind::Continue => match self.loops.last() {
                Some(target) => self.to(target.cont),
                None => self.refuse(codes::MISPLACED, stmt.span, "`continue` outside of a loop"),
            },
            StmtKind::Return(value) => self.return_statement(value.as_ref(), stmt),
            StmtKind::Exit => match self.exit {
                Some(exit) => {
                    self.mark(Mark::Exit);
                    self.to(exit);
                }
                None => self.refuse(codes::MISPLACED, stmt.span, "`exit` has no meaning here"),
            },
        }
    }

    fn assignment(&mut self, target: &Expr, op: Option<BinaryOp>, value: &Expr) {
        let place = self.place(target);
        let first_new = self.b.program().slots.len();
        let result = match op {
            None => self.eval(value),
            Some(op) => {
                let mut old = self.read(&place);
                if !is_pure(value) {
                    old = self.freeze(&old);
                }
                let value = self.eval(value);
                let signed = is_signed(&self.p.types, &target.ty);
                self.binary(op, signed, old.operand(), value.operand()).into()
            }
        };
        self.assign_result(&place, &result, first_new);
    }

    /// Assigns a value that was just computed. If possible, the last operation writes the target directly, without a
    /// move.
    fn assign_result(&mut self, place: &Place, value: &Tree, first_new: usize) {
        if let ([to], BitRange::Whole, Tree::Leaf(value)) = (place.alternatives.as_slice(), &place.bits, value)
            && to.guard.is_none()
            && to.valid.is_none_or(|v| self.facts.contains(&v))
            && let Tree::Leaf(Operand::Slot(slot)) = to.tree
        {
            if *value != Operand::Slot(slot) {
                self.move_result(slot, value, first_new);
            }
            return;
        }
        self.assign(place, value);
    }

    fn variable(&mut self, local: LocalId, init: Option<&Expr>) {
        let storage = self.local_storage(local);
        let first_new = self.b.program().slots.len();
        match init {
            Some(init) => {
                let value = self.eval(init);
                if matches!(init.kind, ExprKind::Aggregate(_)) {
                    self.reset_stacks(&storage);
                }
                self.assign_result(&Place::of(storage), &value, first_new);
            }
            None => self.reset(&storage),
        }
    }

    /// Sets the `nextIndex` of stacks to 0; a list expression has no value for it.
    fn reset_stacks(&mut self, tree: &Tree) {
        if let Tree::Stack { next: Some(next), .. } = tree {
            self.b.set(*next, 0);
        }
        tree.children().iter().for_each(|c| self.reset_stacks(c));
    }

    fn if_statement(&mut self, cond: &Expr, then: &Block, otherwise: Option<&Block>) {
        let (yes, done) = (self.new_join(""), self.new_join(""));
        let otherwise = otherwise.filter(|b| !b.stmts.is_empty());
        let no = if otherwise.is_some() { self.new_join("") } else { done };
        self.condition(cond, yes, no);
        if self.is_used(yes) {
            self.enter(yes);
            self.block(then);
            self.to(done);
        }
        if let Some(otherwise) = otherwise
            && self.is_used(no)
        {
            self.enter(no);
            self.block(otherwise);
            self.to(done);
        }
        self.continue_at(done);
    }

    fn switch(&mut self, subject: &Expr, cases: &[ValueCase]) {
        let value = self.eval(subject).operand();
        let facts = self.facts.clone();
        let done = self.new_join("");
        let mut targets = Vec::new();
        let mut default = None;
        let mut joins = Vec::new();
        let mut seen = HashSet::new();
        for case in cases {
            let join = self.new_join("");
            let block = self.join_block(join, &facts);
            for label in &case.values {
                if let Operand::Const(c) = self.value_tree(label, &subject.ty).operand()
                    && seen.insert(c.clone())
                {
                    targets.push((c, block));
                }
            }
            if case.default {
                default = Some(block);
            }
            joins.push(join);
        }
        let default = match default {
            Some(block) => block,
            None => self.join_block(done, &facts),
        };
        self.b.switch(value, targets, default);
        for (case, join) in cases.iter().zip(joins) {
            self.enter(join);
            self.block(&case.body);
            self.to(done);
        }
        self.continue_at(done);
    }

    fn for_loop(&mut self, init: &[Stmt], cond: &Expr, update: &[Stmt], body: &Block) {
        self.stmts(init);
        let head = self.b.block("for");
        self.b.jump(head);
        self.start_block(head, Facts::new());
        let (rounds, done, cont) = (self.new_join(""), self.new_join(""), self.new_join(""));
        self.condition(cond, rounds, done);
        if self.is_used(rounds) {
            self.enter(rounds);
            self.loops.push(LoopTarget { brk: done, cont });
            self.block(body);
            self.loops.pop();
            self.continue_at(cont);
            self.stmts(update);
            if !self.b.is_terminated() {
                self.b.jump(head);
            }
        }
        self.continue_at(done);
    }

    fn for_in(&mut self, variable: LocalId, collection: &ForCollection, body: &Block, stmt: &Stmt) {
        match collection {
            ForCollection::Elements(e) => {
                let elements = self.eval(e);
                let elements = if matches!(e.kind, ExprKind::Aggregate(_)) { self.freeze(&elements) } else { elements };
                if elements.children().len() > UNROLL_LIMIT {
                    let message = format!("a loop over more than {UNROLL_LIMIT} elements");
                    return self.refuse(codes::TOO_LARGE, stmt.span, message);
                }
                let storage = self.local_storage(variable);
                let done = self.new_join("");
                for element in elements.children() {
                    if self.b.is_terminated() || self.is_too_large() {
                        break;
                    }
                    let cont = self.new_join("");
                    self.assign(&Place::of(storage.clone()), element);
                    self.loops.push(LoopTarget { brk: done, cont });
                    self.block(body);
                    self.loops.pop();
                    self.continue_at(cont);
                }
                self.continue_at(done);
            }
            ForCollection::Range(low, high) => self.for_range(variable, low, high, body),
        }
    }

    /// A `for` loop over a range. It counts in a slot of its own, because the body may write the variable, and compares
    /// before it increments, because the upper end may be the largest value.
    fn for_range(&mut self, variable: LocalId, low: &Expr, high: &Expr, body: &Block) {
        let signed = is_signed(&self.p.types, &low.ty);
        let ends = self.eval_all(&[low, high]);
        let storage = self.local_storage(variable).operand();
        let Operand::Slot(slot) = storage else { return };
        let width = self.b.program().width(slot);
        let name = format!("{}.$counter", self.b.program().slots[slot.index()].name);
        let counter = self.b.local(name.clone(), width);
        let last = self.b.local(format!("{name}.last"), width);
        let low = self.resize(ends[0].operand(), width, signed);
        let high = self.resize(ends[1].operand(), width, signed);
        self.b.mov(counter, low);
        self.b.mov(last, high);
        let some = self.b.bin(if signed { BinOp::Sle } else { BinOp::Ule }, counter, last);
        let (done, cont) = (self.new_join(""), self.new_join(""));
        let facts = self.facts.clone();
        let done_block = self.join_block(done, &facts);
        let round = self.b.block("for");
        self.b.branch(some, round, done_block);
        self.start_block(round, Facts::new());
        self.b.mov(slot, counter);
        self.loops.push(LoopTarget { brk: done, cont });
        self.block(body);
        self.loops.pop();
        self.continue_at(cont);
        if !self.b.is_terminated() {
            let at_end = self.b.bin(BinOp::Eq, counter, last);
            let step = self.b.block("");
            let facts = self.facts.clone();
            let done_block = self.join_block(done, &facts);
            self.b.branch(at_end, done_block, step);
            self.b.switch_to(step);
            self.b.emit(Op::Bin { op: BinOp::Add, dst: counter, a: counter.into(), b: Operand::new_const(width, 1) });
            self.b.jump(round);
        }
        self.continue_at(done);
    }

    fn return_statement(&mut self, value: Option<&Expr>, stmt: &Stmt) {
        let Some(target) = self.ret.clone() else {
            return self.refuse(codes::MISPLACED, stmt.span, "`return` has no meaning here");
        };
        if let Some(value) = value {
            let value = self.eval(value);
            if let Some(result) = &target.result {
                self.assign(&Place::of(result.clone()), &value);
            }
        }
        self.to(target.join);
    }
}
