//! Traversals of typed expressions and statements, and properties computed by them.

use sema::typed::{ArgValue, Block, Builtin, Call, Callee, Expr, ExprKind, ForCollection, Stmt, StmtKind};

/// A node met on a traversal.
#[derive(Clone, Copy)]
pub(crate) enum Node<'a> {
    Expr(&'a Expr),
    Call(&'a Call),
    Stmt(&'a Stmt),
}

/// Calls `f` for an expression and its subexpressions, in preorder.
pub(crate) fn expr<'a>(e: &'a Expr, f: &mut dyn FnMut(Node<'a>)) {
    f(Node::Expr(e));
    if let Some(c) = e.for_each_child(&mut |child| expr(child, f)) {
        call(c, f);
    }
}

/// Calls `f` for a call and its arguments.
pub(crate) fn call<'a>(c: &'a Call, f: &mut dyn FnMut(Node<'a>)) {
    f(Node::Call(c));
    if let Callee::ExternMethod { object, .. } | Callee::Builtin(_, object) = &c.callee {
        expr(object, f);
    }
    for arg in &c.args {
        if let ArgValue::Expr(e) = &arg.value {
            expr(e, f);
        }
    }
}

/// Calls `f` for all statements and expressions of a block.
pub(crate) fn block<'a>(b: &'a Block, f: &mut dyn FnMut(Node<'a>)) {
    b.stmts.iter().for_each(|s| stmt(s, f));
}

fn stmt<'a>(s: &'a Stmt, f: &mut dyn FnMut(Node<'a>)) {
    f(Node::Stmt(s));
    match &s.kind {
        StmtKind::Assign { target, value, .. } => {
            expr(target, f);
            expr(value, f);
        }
        StmtKind::Call(c) => call(c, f),
        StmtKind::Var { init, .. } | StmtKind::Return(init) => init.iter().for_each(|e| expr(e, f)),
        StmtKind::Block(b) => block(b, f),
        StmtKind::If { cond, then, otherwise } => {
            expr(cond, f);
            block(then, f);
            otherwise.iter().for_each(|b| block(b, f));
        }
        StmtKind::SwitchAction { apply, cases, .. } => {
            call(apply, f);
            cases.iter().for_each(|c| block(&c.body, f));
        }
        StmtKind::Switch { subject, cases } => {
            expr(subject, f);
            cases.iter().for_each(|c| block(&c.body, f));
        }
        StmtKind::For { init, cond, update, body, .. } => {
            init.iter().chain(update).for_each(|s| stmt(s, f));
            expr(cond, f);
            block(body, f);
        }
        StmtKind::ForIn { collection, body, .. } => {
            match collection {
                ForCollection::Elements(e) => expr(e, f),
                ForCollection::Range(a, b) => {
                    expr(a, f);
                    expr(b, f);
                }
            }
            block(body, f);
        }
        StmtKind::Break | StmtKind::Continue | StmtKind::Exit => {}
    }
}

/// Whether evaluating an expression has no side effects and cannot leave the block. Only such expressions may be
/// evaluated early, late or without need.
pub(crate) fn is_pure(e: &Expr) -> bool {
    let mut pure = true;
    expr(e, &mut |node| match node {
        Node::Call(c) => pure &= matches!(&c.callee, Callee::Builtin(Builtin::IsValid, _)),
        Node::Expr(Expr { kind, .. }) => {
            pure &= !matches!(
                kind,
                ExprKind::ApplyHit(_)
                    | ExprKind::ApplyMiss(_)
                    | ExprKind::StackNext(_)
                    | ExprKind::StackLast(_)
                    | ExprKind::StackLastIndex(_)
            );
        }
        Node::Stmt(_) => {}
    });
    pure
}

/// Whether a statement contains a `return`.
pub(crate) fn has_return(s: &Stmt) -> bool {
    let mut found = false;
    stmt(s, &mut |node| {
        if let Node::Stmt(Stmt { kind: StmtKind::Return(_), .. }) = node {
            found = true;
        }
    });
    found
}
