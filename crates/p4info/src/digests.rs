//! Digests that are calls: v1model's `digest(receiver, data)` has no instance, so the objects that a controller sees are
//! the types of its data, each named like its struct (`digest_0`, … for types without a name).

use base::Span;
use sema::TypedProgram;
use sema::typed::{ArgValue, Block, Call, Callee, ControlId, ForCollection, Stmt, StmtKind};
use sema::types::Type;

use crate::types::control_name;

/// The function's name and the position of its type argument that is the data's type.
const DIGEST_FUNCTION: &str = "digest";

/// Name, data type and place of each different digest that the actions and bodies of `controls` send.
pub(crate) fn calls(program: &TypedProgram, controls: impl Iterator<Item = ControlId>) -> Vec<(String, Type, Span)> {
    let mut found = Finder { program, digests: Vec::new(), unnamed: 0 };
    for control in controls {
        let control = &program.controls[control.index()];
        let tables = control.tables.iter().flat_map(|t| program.tables[t.index()].actions.iter().map(|a| a.action));
        for action in control.actions.iter().copied().chain(tables) {
            found.block(&program.actions[action.index()].body);
        }
        found.block(&control.body);
    }
    found.digests
}

struct Finder<'p> {
    program: &'p TypedProgram,
    digests: Vec<(String, Type, Span)>,
    unnamed: u32,
}

impl Finder<'_> {
    fn block(&mut self, block: &Block) {
        block.stmts.iter().for_each(|stmt| self.stmt(stmt));
    }

    /// `digest` returns nothing, so its calls are statements, never parts of expressions.
    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Call(call) => self.call(call),
            StmtKind::Block(block) => self.block(block),
            StmtKind::If { then, otherwise, .. } => {
                self.block(then);
                otherwise.iter().for_each(|block| self.block(block));
            }
            StmtKind::SwitchAction { cases, .. } => cases.iter().for_each(|case| self.block(&case.body)),
            StmtKind::Switch { cases, .. } => cases.iter().for_each(|case| self.block(&case.body)),
            StmtKind::For { init, update, body, .. } => {
                init.iter().chain(update).for_each(|stmt| self.stmt(stmt));
                self.block(body);
            }
            StmtKind::ForIn { collection: ForCollection::Elements(_) | ForCollection::Range(..), body, .. } => {
                self.block(body);
            }
            StmtKind::Assign { .. }
            | StmtKind::Var { .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return(_)
            | StmtKind::Exit => {}
        }
    }

    fn call(&mut self, call: &Call) {
        match &call.callee {
            Callee::Function(function) => {
                let function = &self.program.functions[function.index()];
                // Recursion is no P4, so this ends.
                self.block(&function.body);
            }
            Callee::ExternFunction(id) if &*self.program.extern_functions[id.index()].name == DIGEST_FUNCTION => {
                let data = call.args.last().map(|arg| match &arg.value {
                    ArgValue::Expr(expr) => expr.ty.clone(),
                    ArgValue::DontCare | ArgValue::Absent => arg.ty.clone(),
                });
                let Some(ty) = call.type_args.first().cloned().or(data) else { return };
                if self.digests.iter().any(|(_, have, _)| *have == ty) {
                    return;
                }
                let named = self.program.types.struct_info(&ty).filter(|info| !info.name.is_empty());
                let name = match named {
                    Some(info) => control_name(&info.name, &info.annotations),
                    None => {
                        self.unnamed += 1;
                        format!("digest_{}", self.unnamed - 1)
                    }
                };
                self.digests.push((name, ty, call.span));
            }
            _ => {}
        }
    }
}
