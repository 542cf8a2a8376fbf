//! The order in which a control applies its tables: as in the `apply` block, sub-controls where they are applied, each
//! table once. p4c lists them in this order.

use sema::TypedProgram;
use sema::typed::{
    ArgValue, Block, Call, Callee, Expr, ForCollection, InstanceId, InstanceOf, Stmt, StmtKind, TableId,
};
use std::collections::HashSet;

/// A table, and the instance of the control that contains it.
pub type Applied = (TableId, InstanceId);

/// The tables that a control's instance applies.
pub fn tables(typed: &TypedProgram, control: InstanceId) -> Vec<Applied> {
    let mut walk = Walk { typed, found: Vec::new(), seen: HashSet::new(), entered: HashSet::new() };
    walk.control(control);
    walk.found
}

struct Walk<'a> {
    typed: &'a TypedProgram,
    found: Vec<Applied>,
    seen: HashSet<Applied>,
    /// Controls that were visited. A control cannot contain itself; one that is applied twice is visited once.
    entered: HashSet<InstanceId>,
}

impl Walk<'_> {
    fn control(&mut self, id: InstanceId) {
        let InstanceOf::Control(control) = self.typed.instance(id).of else { return };
        if self.entered.insert(id) {
            let control = &self.typed.controls[control.index()];
            self.stmts(&control.locals, id);
            self.block(&control.body, id);
        }
    }

    fn block(&mut self, block: &Block, within: InstanceId) {
        self.stmts(&block.stmts, within);
    }

    fn stmts(&mut self, stmts: &[Stmt], within: InstanceId) {
        for stmt in stmts {
            self.stmt(stmt, within);
        }
    }

    fn stmt(&mut self, stmt: &Stmt, within: InstanceId) {
        match &stmt.kind {
            StmtKind::Assign { target, value, .. } => {
                self.expr(target, within);
                self.expr(value, within);
            }
            StmtKind::Call(call) => self.call(call, within),
            StmtKind::Var { init, .. } => init.iter().for_each(|value| self.expr(value, within)),
            StmtKind::Block(block) => self.block(block, within),
            StmtKind::If { cond, then, otherwise } => {
                self.expr(cond, within);
                self.block(then, within);
                otherwise.iter().for_each(|block| self.block(block, within));
            }
            StmtKind::SwitchAction { apply, cases, .. } => {
                self.call(apply, within);
                cases.iter().for_each(|case| self.block(&case.body, within));
            }
            StmtKind::Switch { subject, cases } => {
                self.expr(subject, within);
                cases.iter().for_each(|case| self.block(&case.body, within));
            }
            StmtKind::For { init, cond, update, body, .. } => {
                self.stmts(init, within);
                self.expr(cond, within);
                self.block(body, within);
                self.stmts(update, within);
            }
            StmtKind::ForIn { collection, body, .. } => {
                match collection {
                    ForCollection::Elements(elements) => self.expr(elements, within),
                    ForCollection::Range(low, high) => {
                        self.expr(low, within);
                        self.expr(high, within);
                    }
                }
                self.block(body, within);
            }
            StmtKind::Return(value) => value.iter().for_each(|value| self.expr(value, within)),
            StmtKind::Break | StmtKind::Continue | StmtKind::Exit => {}
        }
    }

    fn expr(&mut self, expr: &Expr, within: InstanceId) {
        let mut children = Vec::new();
        let call = expr.for_each_child(&mut |child| children.push(child));
        children.into_iter().for_each(|child| self.expr(child, within));
        call.into_iter().for_each(|call| self.call(call, within));
    }

    fn call(&mut self, call: &Call, within: InstanceId) {
        for arg in &call.args {
            if let ArgValue::Expr(value) = &arg.value {
                self.expr(value, within);
            }
        }
        match &call.callee {
            Callee::TableApply(table) if self.seen.insert((*table, within)) => self.found.push((*table, within)),
            Callee::ControlApply(reference) => {
                if let Some(id) = self.typed.resolve(*reference, Some(within)) {
                    self.control(id);
                }
            }
            _ => {}
        }
    }
}
