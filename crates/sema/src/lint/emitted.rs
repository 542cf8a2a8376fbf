//! W0831 and W0832: headers that are extracted and not emitted, or emitted and never valid.
//!
//! Headers are identified by struct type and field, so that a header passed through several blocks is one header. Only
//! structs with both an emitted and an extracted header are considered. A header that is set invalid, copied as a whole
//! or annotated with `@controller_header` may be dropped deliberately and is not reported; a header that is assigned,
//! or passed to another callee, may be valid.

use super::catalog::{NEVER_VALID, NOT_EMITTED};
use super::visit::{self, Visitor};
use super::{Context, warning};
use crate::typed::*;
use crate::types::*;
use base::Span;
use std::collections::{HashMap, HashSet};

/// A header, stack or union as a field of a struct.
type Header = (StructId, u32);

struct Uses<'p> {
    program: &'p Program,
    extracted: HashMap<Header, Span>,
    emitted: HashMap<Header, Span>,
    /// Headers that may be valid: set valid, assigned, or passed to a callee that may set them valid.
    made: HashSet<Header>,
    /// Headers that are set invalid or copied: not emitting them is not a mistake.
    taken: HashSet<Header>,
    emitted_structs: HashSet<StructId>,
    /// Structs whose headers are all in `made` (`all_taken`: in `taken`), so that a large struct is added only once.
    all_made: HashSet<StructId>,
    all_taken: HashSet<StructId>,
    /// Whether a header variable is emitted; which header it holds is unknown.
    unknown_emit: bool,
}

/// The header that an l-value denotes or is part of.
fn header_of(e: &Expr) -> Option<Header> {
    let mut at = e;
    loop {
        at = match &at.kind {
            ExprKind::Field(base, i) => match base.ty {
                Type::Struct(id) => return Some((id, *i)),
                _ => base,
            },
            ExprKind::StackElement { stack: base, .. } | ExprKind::StackNext(base) | ExprKind::StackLast(base) => base,
            _ => return None,
        };
    }
}

fn is_header_like(ty: &Type) -> bool {
    match ty {
        Type::Header(_) | Type::HeaderUnion(_) => true,
        Type::Stack(element, _) => is_header_like(element),
        _ => false,
    }
}

impl<'p> Uses<'p> {
    /// All headers in a struct.
    fn all_of(&self, ty: &Type, out: &mut Vec<Header>) {
        self.all_but(&mut HashSet::new(), ty, out);
    }

    /// All headers in a struct, skipping structs in `seen`: a type can occur many times.
    fn all_but(&self, seen: &mut HashSet<StructId>, ty: &Type, out: &mut Vec<Header>) {
        let Type::Struct(id) = ty else { return };
        if !seen.insert(*id) {
            return;
        }
        for (i, field) in self.program.types.structs[id.index()].fields.iter().enumerate() {
            if is_header_like(&field.ty) {
                out.push((*id, i as u32));
            } else {
                self.all_but(seen, &field.ty, out);
            }
        }
    }

    fn written(&mut self, e: &Expr) {
        if is_header_like(&e.ty) {
            self.made.extend(header_of(e));
        } else {
            let mut all = Vec::new();
            let mut seen = std::mem::take(&mut self.all_made);
            self.all_but(&mut seen, &e.ty, &mut all);
            self.all_made = seen;
            self.made.extend(all);
        }
    }

    fn copied(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Aggregate(elements) => elements.iter().for_each(|e| self.copied(e)),
            _ if is_header_like(&e.ty) => self.taken.extend(header_of(e)),
            _ => {
                let mut all = Vec::new();
                let mut seen = std::mem::take(&mut self.all_taken);
                self.all_but(&mut seen, &e.ty, &mut all);
                self.all_taken = seen;
                self.taken.extend(all);
            }
        }
    }

    fn emit(&mut self, e: &Expr) {
        if let ExprKind::Aggregate(elements) = &e.kind {
            return elements.iter().for_each(|e| self.emit(e));
        }
        if is_header_like(&e.ty) {
            match header_of(e) {
                Some(header) => {
                    self.emitted.entry(header).or_insert(e.span);
                    self.emitted_structs.insert(header.0);
                }
                None => self.unknown_emit = true,
            }
            return;
        }
        let mut all = Vec::new();
        self.all_of(&e.ty, &mut all);
        for header in all {
            // Emitting a whole struct is not about this header, so the emit has no span.
            self.emitted.entry(header).or_insert(Span::NONE);
            self.emitted_structs.insert(header.0);
        }
    }
}

impl<'p> Visitor<'p> for Uses<'p> {
    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Assign { target, value, .. } => {
                self.written(target);
                self.copied(value);
            }
            StmtKind::Var { init: Some(init), .. } => self.copied(init),
            StmtKind::ForIn { collection: ForCollection::Elements(e), .. } => self.copied(e),
            StmtKind::Return(Some(value)) => self.copied(value),
            _ => {}
        }
    }

    fn call(&mut self, call: &Call) {
        match &call.callee {
            Callee::ExternMethod { extern_id, method, .. } => {
                let object = &self.program.externs[extern_id.index()];
                let name = object.methods.get(*method as usize).map_or("", |m| &*m.name);
                let first = call.args.first().and_then(|a| a.value.expr());
                match (&*object.name, name, first) {
                    ("packet_in", "extract", Some(e)) => {
                        if let Some(header) = header_of(e) {
                            self.extracted.entry(header).or_insert(e.span);
                            self.made.insert(header);
                        }
                        return;
                    }
                    ("packet_out", "emit", Some(e)) => return self.emit(e),
                    _ => {}
                }
            }
            Callee::Builtin(Builtin::SetInvalid, e) => self.taken.extend(header_of(e)),
            Callee::Builtin(Builtin::IsValid, _) => {}
            Callee::Builtin(_, e) => {
                self.made.extend(header_of(e));
                self.taken.extend(header_of(e));
            }
            Callee::ParserApply(_) | Callee::ControlApply(_) | Callee::Function(_) | Callee::Action(_) => {
                // Structs are identified by type in the callee too; a header passed alone is not.
                for e in call.args.iter().filter_map(|a| a.value.expr()).filter(|e| is_header_like(&e.ty)) {
                    self.made.extend(header_of(e));
                    self.taken.extend(header_of(e));
                }
                return;
            }
            _ => {}
        }
        for arg in &call.args {
            let Some(e) = arg.value.expr() else { continue };
            if matches!(arg.direction, Direction::Out | Direction::InOut) {
                self.written(e);
            }
            if is_header_like(&e.ty) {
                self.copied(e);
            }
        }
    }
}

pub(super) fn check(cx: &mut Context) {
    let p = cx.program;
    if p.main.is_none() {
        return;
    }
    let mut uses = Uses {
        program: p,
        extracted: HashMap::new(),
        emitted: HashMap::new(),
        made: HashSet::new(),
        taken: HashSet::new(),
        emitted_structs: HashSet::new(),
        all_made: HashSet::new(),
        all_taken: HashSet::new(),
        unknown_emit: false,
    };
    visit::program(p, &mut uses);
    let extracted_structs: HashSet<StructId> = uses.extracted.keys().map(|h| h.0).collect();
    for (header, span) in &uses.extracted {
        if uses.unknown_emit
            || uses.emitted.contains_key(header)
            || uses.taken.contains(header)
            || !uses.emitted_structs.contains(&header.0)
        {
            continue;
        }
        let field = &p.types.structs[header.0.index()].fields[header.1 as usize];
        // A controller header is not part of the packet on the network.
        if p.types
            .struct_info(&field.ty)
            .is_some_and(|s| find_annotation(&s.annotations, "controller_header").is_some())
        {
            continue;
        }
        let message = format!("the header `{}` is extracted and never emitted", field.name);
        let d = warning(&NOT_EMITTED, *span, message)
            .label("taken from the packet here")
            .note(field.span, "the header")
            .help("emit it in the deparser, or call setInvalid() where it is removed on purpose");
        cx.warn(&NOT_EMITTED, &[&field.annotations], d);
    }
    for (header, span) in &uses.emitted {
        if uses.made.contains(header) || !extracted_structs.contains(&header.0) {
            continue;
        }
        let field = &p.types.structs[header.0.index()].fields[header.1 as usize];
        let d = warning(&NEVER_VALID, *span, format!("the header `{}` is emitted, but never valid", field.name))
            .label("emits nothing: no parser extracts it, nothing calls setValid()")
            .note(field.span, "the header")
            .help("make it valid where it is to be added, or do not emit it");
        cx.warn(&NEVER_VALID, &[&field.annotations], d);
    }
}
