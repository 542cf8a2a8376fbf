//! Traversals of bodies in evaluation order: every expression, call and statement once.
//!
//! A warning that does not depend on the order of events implements the relevant methods of [`Visitor`]; the traversal
//! descends by itself. (`flow` has its own walk, because it follows paths.) Depth is bounded by the parser's limit on
//! nesting.

use crate::typed::*;

/// Callbacks of a traversal; by default they do nothing.
pub(super) trait Visitor<'p> {
    /// Called for an expression whose value is used, before its operands.
    fn expr(&mut self, _: &'p Expr) {}
    /// Called for an expression that is written: the target of an assignment (`compound`: also read), an `out` or
    /// `inout` argument.
    fn written(&mut self, _: &'p Expr, _compound: bool) {}
    /// Called for a call, before its arguments.
    fn call(&mut self, _: &'p Call) {}
    /// Called for a statement, before its parts.
    fn stmt(&mut self, _: &'p Stmt) {}
}

/// Visits everything with a body: functions, actions, controls with their tables, parsers.
pub(super) fn program<'p, V: Visitor<'p>>(p: &'p Program, v: &mut V) {
    p.functions.iter().for_each(|f| block(&f.body, v));
    p.actions.iter().for_each(|a| block(&a.body, v));
    p.tables.iter().for_each(|t| table(t, v));
    for c in &p.controls {
        stmts(&c.locals, v);
        block(&c.body, v);
        instances(&c.instances, v);
    }
    for parser in &p.parsers {
        stmts(&parser.locals, v);
        instances(&parser.instances, v);
        parser.states.iter().for_each(|s| state(s, v));
    }
    instances(&p.globals, v);
}

/// Visits a parser state with its transition.
pub(super) fn state<'p, V: Visitor<'p>>(state: &'p State, v: &mut V) {
    stmts(&state.body, v);
    if let Transition::Select { keys, cases, .. } = &state.transition {
        keys.iter().for_each(|k| expr(k, v));
        cases.iter().flat_map(|c| &c.keysets).for_each(|k| keyset(k, v));
    }
}

fn instances<'p, V: Visitor<'p>>(decls: &'p [InstanceDecl], v: &mut V) {
    decls.iter().for_each(|d| args(&d.args, v));
}

/// Visits the expressions of a table.
pub(super) fn table<'p, V: Visitor<'p>>(t: &'p Table, v: &mut V) {
    t.keys.iter().for_each(|k| expr(&k.expr, v));
    t.actions.iter().for_each(|a| args(&a.args, v));
    t.default_action.iter().flat_map(|d| &d.args).for_each(|e| expr(e, v));
    for entry in &t.entries {
        entry.keysets.iter().for_each(|k| keyset(k, v));
        entry.args.iter().for_each(|e| expr(e, v));
    }
    t.properties.iter().for_each(|p| expr(&p.value, v));
}

fn keyset<'p, V: Visitor<'p>>(set: &'p Keyset, v: &mut V) {
    match set {
        Keyset::Value(e) => expr(e, v),
        Keyset::Mask(a, b) | Keyset::Range(a, b) => {
            expr(a, v);
            expr(b, v);
        }
        Keyset::DontCare | Keyset::ValueSet(_) => {}
    }
}

fn block<'p, V: Visitor<'p>>(b: &'p Block, v: &mut V) {
    stmts(&b.stmts, v);
}

/// Visits statements.
pub(super) fn stmts<'p, V: Visitor<'p>>(list: &'p [Stmt], v: &mut V) {
    for stmt in list {
        v.stmt(stmt);
        match &stmt.kind {
            StmtKind::Assign { target, op, value } => {
                expr(value, v);
                written(target, op.is_some(), v);
            }
            StmtKind::Call(c) => call(c, v),
            StmtKind::Var { init, .. } => init.iter().for_each(|e| expr(e, v)),
            StmtKind::Block(b) => block(b, v),
            StmtKind::If { cond, then, otherwise } => {
                expr(cond, v);
                block(then, v);
                otherwise.iter().for_each(|b| block(b, v));
            }
            StmtKind::SwitchAction { apply, cases, .. } => {
                call(apply, v);
                cases.iter().for_each(|c| block(&c.body, v));
            }
            StmtKind::Switch { subject, cases } => {
                expr(subject, v);
                cases.iter().for_each(|c| block(&c.body, v));
            }
            StmtKind::For { init, cond, update, body, .. } => {
                stmts(init, v);
                expr(cond, v);
                block(body, v);
                stmts(update, v);
            }
            StmtKind::ForIn { collection, body, .. } => {
                match collection {
                    ForCollection::Elements(e) => expr(e, v),
                    ForCollection::Range(a, b) => {
                        expr(a, v);
                        expr(b, v);
                    }
                }
                block(body, v);
            }
            StmtKind::Return(value) => value.iter().for_each(|e| expr(e, v)),
            StmtKind::Break | StmtKind::Continue | StmtKind::Exit => {}
        }
    }
}

fn args<'p, V: Visitor<'p>>(list: &'p [Arg], v: &mut V) {
    for arg in list {
        if let ArgValue::Expr(e) = &arg.value {
            match arg.direction {
                Direction::Out => written(e, false, v),
                Direction::InOut => written(e, true, v),
                Direction::In | Direction::None => expr(e, v),
            }
        }
    }
}

fn call<'p, V: Visitor<'p>>(c: &'p Call, v: &mut V) {
    v.call(c);
    match &c.callee {
        Callee::ExternMethod { object, .. } => expr(object, v),
        Callee::Builtin(Builtin::IsValid, object) => expr(object, v),
        Callee::Builtin(_, object) => written(object, false, v),
        _ => {}
    }
    args(&c.args, v);
}

/// Visits an l-value: the value written, and the index expressions in it.
fn written<'p, V: Visitor<'p>>(e: &'p Expr, compound: bool, v: &mut V) {
    v.written(e, compound);
    let mut at = e;
    loop {
        at = match &at.kind {
            ExprKind::Field(base, _)
            | ExprKind::TupleElement(base, _)
            | ExprKind::StackNext(base)
            | ExprKind::StackLast(base)
            | ExprKind::Slice { base, .. } => base,
            ExprKind::StackElement { stack, index } => {
                expr(index, v);
                stack
            }
            ExprKind::SliceFrom { base, low, .. } => {
                expr(low, v);
                base
            }
            _ => return,
        };
    }
}

/// Visits an expression.
pub(super) fn expr<'p, V: Visitor<'p>>(e: &'p Expr, v: &mut V) {
    v.expr(e);
    if let Some(c) = e.for_each_child(&mut |child| expr(child, v)) {
        call(c, v);
    }
}
