//! W0820 to W0822: actions that are never run, tables that are not applied, variables that are not used after their
//! declaration.
//!
//! Top-level actions are considered only in the file of `main`, because other files are libraries. Parameters and
//! instances are not considered: a signature often prescribes parameters, and instances are visible to the control
//! plane.

use super::catalog::{UNUSED_ACTION, UNUSED_TABLE, UNUSED_VARIABLE};
use super::visit::{self, Visitor};
use super::{Context, warning};
use crate::typed::*;

/// What bodies refer to.
struct Mentioned {
    actions: Vec<bool>,
    tables: Vec<bool>,
}

impl Visitor<'_> for Mentioned {
    fn call(&mut self, call: &Call) {
        match call.callee {
            Callee::Action(id) => self.actions[id.index()] = true,
            Callee::TableApply(id) => self.tables[id.index()] = true,
            _ => {}
        }
    }
}

pub(super) fn check(cx: &mut Context) {
    let p = cx.program;
    let mut used = Mentioned { actions: vec![false; p.actions.len()], tables: vec![false; p.tables.len()] };
    visit::program(p, &mut used);
    for action in p.tables.iter().flat_map(|t| &t.actions) {
        used.actions[action.action.index()] = true;
    }
    let main = p.globals.iter().find(|g| &*g.name == "main" && !g.anonymous).map(|g| g.span.file);
    for (action, used) in p.actions.iter().zip(&used.actions) {
        if *used || (action.owner.is_none() && main != Some(action.span.file)) {
            continue;
        }
        let d = warning(&UNUSED_ACTION, action.span, format!("the action `{}` is never used", action.name))
            .label("in no table, and nothing calls it")
            .help("list it in the `actions` of a table, or remove it");
        let mut around = vec![action.annotations.as_slice()];
        around.extend(action.owner.map(|c| p.controls[c.index()].annotations.as_slice()));
        let control = action.owner.map(|c| &p.controls[c.index()]);
        let d = control.iter().fold(d, |d, c| d.note(c.span, "in this control"));
        cx.warn(&UNUSED_ACTION, &around, d);
    }
    for (table, used) in p.tables.iter().zip(&used.tables) {
        let control = &p.controls[table.owner.index()];
        if !used {
            let d = warning(&UNUSED_TABLE, table.span, format!("the table `{}` is never applied", table.name))
                .label("no packet is looked up in it")
                .note(control.span, "in this control")
                .help(format!("call {}.apply(), or remove the table", table.name));
            cx.warn(&UNUSED_TABLE, &[&table.annotations, &control.annotations], d);
        }
    }
    variables(cx);
}

/// Which locals of a frame are referred to.
struct Locals<'a>(&'a mut Vec<bool>);

impl Visitor<'_> for Locals<'_> {
    fn expr(&mut self, e: &Expr) {
        if let ExprKind::Local(id) = e.kind {
            self.0[id.index()] = true;
        }
    }

    fn written(&mut self, e: &Expr, _: bool) {
        let mut at = e;
        loop {
            at = match &at.kind {
                ExprKind::Local(id) => {
                    self.0[id.index()] = true;
                    return;
                }
                ExprKind::Field(base, _)
                | ExprKind::TupleElement(base, _)
                | ExprKind::StackElement { stack: base, .. }
                | ExprKind::StackNext(base)
                | ExprKind::StackLast(base)
                | ExprKind::Slice { base, .. }
                | ExprKind::SliceFrom { base, .. } => base,
                _ => return,
            };
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        // A loop variable may only count iterations.
        if let StmtKind::ForIn { variable, .. } = stmt.kind {
            self.0[variable.index()] = true;
        }
    }
}

fn variables(cx: &mut Context) {
    let p = cx.program;
    let mut mentioned: Vec<Vec<bool>> = p.frames.iter().map(|f| vec![false; f.locals.len()]).collect();
    let mut around: Vec<Vec<&[Annotation]>> = vec![Vec::new(); p.frames.len()];
    for f in &p.functions {
        visit::stmts(&f.body.stmts, &mut Locals(&mut mentioned[f.frame.index()]));
        around[f.frame.index()] = vec![&f.annotations];
    }
    for a in &p.actions {
        visit::stmts(&a.body.stmts, &mut Locals(&mut mentioned[a.frame.index()]));
        around[a.frame.index()].push(&a.annotations);
    }
    for t in &p.tables {
        let frame = p.controls[t.owner.index()].frame;
        visit::table(t, &mut Locals(&mut mentioned[frame.index()]));
    }
    for c in &p.controls {
        let v = &mut Locals(&mut mentioned[c.frame.index()]);
        visit::stmts(&c.locals, v);
        visit::stmts(&c.body.stmts, v);
        around[c.frame.index()] = vec![&c.annotations];
    }
    for parser in &p.parsers {
        let v = &mut Locals(&mut mentioned[parser.frame.index()]);
        visit::stmts(&parser.locals, v);
        parser.states.iter().for_each(|s| visit::state(s, v));
        around[parser.frame.index()] = vec![&parser.annotations];
    }
    for ((frame, mentioned), around) in p.frames.iter().zip(&mentioned).zip(&around) {
        for (local, mentioned) in frame.locals.iter().zip(mentioned) {
            if *mentioned || local.kind != LocalKind::Variable {
                continue;
            }
            let d = warning(&UNUSED_VARIABLE, local.span, format!("the variable `{}` is never used", local.name))
                .label("neither read nor written")
                .help("remove it");
            let around: Vec<&[Annotation]> = around.iter().copied().chain([local.annotations.as_slice()]).collect();
            cx.warn(&UNUSED_VARIABLE, &around, d);
        }
    }
}
