//! W0830: table keys that are fields of user metadata which are never written.
//!
//! Fields are identified by struct type, not by path: a write to the field of any value of the struct counts, as does a
//! write of a whole value. Structs that the architecture's signatures name, or that a block takes as `in`, are filled
//! by the architecture. Only programs with `main` are considered.

use super::catalog::KEY_NEVER_SET;
use super::visit::{self, Visitor};
use super::{Context, warning};
use crate::typed::*;
use crate::types::*;
use std::collections::HashSet;

/// The fields that are written somewhere.
struct Writes<'p> {
    types: &'p TypeTable,
    fields: HashSet<(StructId, u32)>,
    whole: HashSet<StructId>,
}

impl Writes<'_> {
    fn whole(&mut self, ty: &Type) {
        match ty {
            Type::Struct(id) if self.whole.insert(*id) => {
                let types = self.types;
                types.structs[id.index()].fields.iter().for_each(|f| self.whole(&f.ty));
            }
            Type::Stack(element, _) => self.whole(element),
            _ => {}
        }
    }

    fn target(&mut self, e: &Expr) {
        self.whole(&e.ty);
        let mut at = e;
        loop {
            at = match &at.kind {
                ExprKind::Field(base, i) => {
                    if let Type::Struct(id) = base.ty {
                        self.fields.insert((id, *i));
                    }
                    return;
                }
                ExprKind::TupleElement(base, _)
                | ExprKind::StackElement { stack: base, .. }
                | ExprKind::Slice { base, .. }
                | ExprKind::SliceFrom { base, .. } => base,
                _ => return,
            };
        }
    }
}

impl Visitor<'_> for Writes<'_> {
    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Assign { target, .. } => self.target(target),
            StmtKind::Var { init: Some(init), .. } => self.whole(&init.ty),
            _ => {}
        }
    }

    fn call(&mut self, call: &Call) {
        let has_body = matches!(
            call.callee,
            Callee::Function(_) | Callee::Action(_) | Callee::ParserApply(_) | Callee::ControlApply(_)
        );
        for arg in call.args.iter().filter(|a| matches!(a.direction, Direction::Out | Direction::InOut)) {
            match arg.value.expr() {
                // Writes to fields of a struct are seen in the callee's body.
                Some(e) if has_body && matches!(e.ty, Type::Struct(_)) => {}
                Some(e) => self.target(e),
                None => {}
            }
        }
    }
}

pub(super) fn check(cx: &mut Context) {
    let p = cx.program;
    let mut writes = Writes { types: &p.types, fields: HashSet::new(), whole: HashSet::new() };
    if p.main.is_none() {
        return;
    }
    visit::program(p, &mut writes);
    for action in p.tables.iter().flat_map(|t| &t.actions) {
        let args = action.args.iter().filter(|a| matches!(a.direction, Direction::Out | Direction::InOut));
        args.filter_map(|a| a.value.expr()).for_each(|e| writes.target(e));
    }
    for block in &p.types.block_types {
        block.params.iter().for_each(|param| writes.whole(&param.ty));
    }
    let blocks = p.instances.iter().filter(|i| i.parent.is_none());
    for block in blocks {
        let params = match block.of {
            InstanceOf::Parser(id) => &p.parsers[id.index()].params,
            InstanceOf::Control(id) => &p.controls[id.index()].params,
            _ => continue,
        };
        params.iter().filter(|q| q.direction == Direction::In).for_each(|q| writes.whole_unless_headers(&q.ty));
    }
    for table in &p.tables {
        let control = &p.controls[table.owner.index()];
        for key in &table.keys {
            let ExprKind::Field(base, i) = &key.expr.kind else { continue };
            let Type::Struct(id) = base.ty else { continue };
            if writes.fields.contains(&(id, *i))
                || writes.whole.contains(&id)
                || !is_param(&p.frames[control.frame.index()], base)
            {
                continue;
            }
            let field = &p.types.structs[id.index()].fields[*i as usize];
            let d = warning(&KEY_NEVER_SET, key.expr.span, format!("the key `{}` is never set", field.name))
                .label("nothing in the program writes this field")
                .note(field.span, "the field")
                .help("assign it before the table is applied");
            let around = [table.annotations.as_slice(), &control.annotations, &field.annotations, &key.annotations];
            cx.warn(&KEY_NEVER_SET, &around, d);
        }
    }
}

impl Writes<'_> {
    /// Marks all fields of a struct without headers as written: the headers that a deparser takes as `in` come from the
    /// program.
    fn whole_unless_headers(&mut self, ty: &Type) {
        let Type::Struct(id) = ty else { return };
        let headers = |f: &FieldInfo| {
            matches!(f.ty, Type::Header(_) | Type::HeaderUnion(_))
                || matches!(&f.ty, Type::Stack(e, _) if e.is_header())
        };
        if !self.types.structs[id.index()].fields.iter().any(headers) {
            self.whole(ty);
        }
    }
}

/// Whether a struct is a parameter or part of one.
fn is_param(frame: &Frame, e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Local(id) => {
            matches!(frame.locals[id.index()].kind, LocalKind::Param(Direction::In | Direction::InOut))
        }
        ExprKind::Field(base, _) if matches!(base.ty, Type::Struct(_)) => is_param(frame, base),
        _ => false,
    }
}
