//! Reachability within a control: tables that are applied, actions that are called, and all calls in between.
//!
//! P4Info lists only objects with an effect: a table that is not applied, or an action that no table lists and nothing
//! calls, is omitted, as in other compilers.

use sema::TypedProgram;
use sema::typed::{
    ActionId, ArgValue, Block, Call, Callee, ControlId, Expr, ExprKind, ForCollection, FunctionId, Stmt, StmtKind,
    TableId,
};
use std::collections::BTreeSet;

/// The reachable parts of one control.
pub(crate) struct Reach<'p> {
    program: &'p TypedProgram,
    /// Tables that are applied.
    pub(crate) tables: BTreeSet<TableId>,
    /// Actions called by the control itself. Calls within an action belong to that action.
    pub(crate) called: BTreeSet<ActionId>,
    /// All calls, including those in actions and functions.
    pub(crate) calls: Vec<&'p Call>,
    actions: BTreeSet<ActionId>,
    functions: BTreeSet<FunctionId>,
    /// Whether the walk is inside an action or function.
    inside: bool,
}

impl<'p> Reach<'p> {
    /// What is reachable from a control's `apply` block, without nested controls.
    pub(crate) fn of(program: &'p TypedProgram, control: ControlId) -> Reach<'p> {
        let mut reach = Reach {
            program,
            tables: BTreeSet::new(),
            called: BTreeSet::new(),
            calls: Vec::new(),
            actions: BTreeSet::new(),
            functions: BTreeSet::new(),
            inside: false,
        };
        let control = &program.controls[control.index()];
        control.locals.iter().for_each(|stmt| reach.stmt(stmt));
        reach.block(&control.body);
        reach
    }

    /// The actions that reachable tables list.
    pub(crate) fn listed(&self) -> BTreeSet<ActionId> {
        self.tables.iter().flat_map(|t| &self.program.tables[t.index()].actions).map(|a| a.action).collect()
    }

    fn block(&mut self, block: &'p Block) {
        block.stmts.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn stmt(&mut self, stmt: &'p Stmt) {
        match &stmt.kind {
            StmtKind::Assign { target, value, .. } => {
                self.expr(target);
                self.expr(value);
            }
            StmtKind::Call(call) => self.call(call),
            StmtKind::Var { init, .. } => init.iter().for_each(|e| self.expr(e)),
            StmtKind::Block(block) => self.block(block),
            StmtKind::If { cond, then, otherwise } => {
                self.expr(cond);
                self.block(then);
                otherwise.iter().for_each(|block| self.block(block));
            }
            StmtKind::SwitchAction { apply, cases, .. } => {
                self.call(apply);
                cases.iter().for_each(|case| self.block(&case.body));
            }
            StmtKind::Switch { subject, cases } => {
                self.expr(subject);
                cases.iter().for_each(|case| self.block(&case.body));
            }
            StmtKind::For { init, cond, update, body, .. } => {
                init.iter().chain(update).for_each(|stmt| self.stmt(stmt));
                self.expr(cond);
                self.block(body);
            }
            StmtKind::ForIn { collection, body, .. } => {
                match collection {
                    ForCollection::Elements(e) => self.expr(e),
                    ForCollection::Range(low, high) => {
                        self.expr(low);
                        self.expr(high);
                    }
                }
                self.block(body);
            }
            StmtKind::Return(value) => value.iter().for_each(|e| self.expr(e)),
            StmtKind::Break | StmtKind::Continue | StmtKind::Exit => {}
        }
    }

    fn expr(&mut self, expr: &'p Expr) {
        match &expr.kind {
            ExprKind::Const(_)
            | ExprKind::Local(_)
            | ExprKind::CtorParam(_)
            | ExprKind::Instance(_)
            | ExprKind::This => {}
            ExprKind::Field(e, _)
            | ExprKind::TupleElement(e, _)
            | ExprKind::StackNext(e)
            | ExprKind::StackLast(e)
            | ExprKind::StackLastIndex(e)
            | ExprKind::Slice { base: e, .. }
            | ExprKind::Unary(_, e)
            | ExprKind::Cast(e) => self.expr(e),
            ExprKind::StackElement { stack: a, index: b }
            | ExprKind::SliceFrom { base: a, low: b, .. }
            | ExprKind::Binary(_, a, b) => {
                self.expr(a);
                self.expr(b);
            }
            ExprKind::Ternary { cond, then, otherwise } => {
                self.expr(cond);
                self.expr(then);
                self.expr(otherwise);
            }
            ExprKind::Aggregate(elements) => elements.iter().for_each(|e| self.expr(e)),
            ExprKind::Call(call) | ExprKind::ApplyHit(call) | ExprKind::ApplyMiss(call) => self.call(call),
        }
    }

    fn call(&mut self, call: &'p Call) {
        self.calls.push(call);
        for arg in &call.args {
            if let ArgValue::Expr(e) = &arg.value {
                self.expr(e);
            }
        }
        match &call.callee {
            Callee::Action(id) => {
                if !self.inside {
                    self.called.insert(*id);
                }
                self.action(*id);
            }
            Callee::TableApply(id) => {
                if self.tables.insert(*id) {
                    let table = &self.program.tables[id.index()];
                    table.keys.iter().for_each(|key| self.expr(&key.expr));
                    table.actions.iter().for_each(|action| self.action(action.action));
                }
            }
            Callee::Function(id) => {
                if self.functions.insert(*id) {
                    self.nested(&self.program.functions[id.index()].body);
                }
            }
            Callee::ExternMethod { object, .. } | Callee::Builtin(_, object) => self.expr(object),
            // An applied control is a separate instance.
            Callee::ExternFunction(_) | Callee::ParserApply(..) | Callee::ControlApply(..) => {}
        }
    }

    fn action(&mut self, id: ActionId) {
        if self.actions.insert(id) {
            self.nested(&self.program.actions[id.index()].body);
        }
    }

    fn nested(&mut self, block: &'p Block) {
        let outer = std::mem::replace(&mut self.inside, true);
        self.block(block);
        self.inside = outer;
    }
}
