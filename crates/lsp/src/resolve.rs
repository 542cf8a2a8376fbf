//! Error-tolerant name resolution: builds the [`Index`] of a syntax tree.
//!
//! It exists beside `sema`, which stops at errors, because an editor needs answers while a program is incomplete. Names
//! follow P4_16, "Name resolution" and "Visibility": declared before use, innermost first; states of a parser see
//! one another; overloads differ in the number of arguments. Types are inferred only as far as members and return types
//! of calls need them.
//!
//! A name equal to [`MARK`] is the position of a completion: what is expected there is recorded in [`Index::site`].
//!
//! Modules: this one has scopes and declarations; `body` statements, tables and states; `expr` types and expressions.

mod body;
mod expr;
mod properties;

pub use properties::PROPERTIES;

use crate::index::{Def, DefId, DefKind, Index, Scope, Site, Ty};
use base::{SourceMap, Span};
use std::collections::HashMap;
use std::sync::Arc;
use syntax::ast::{self, Annotation, Decl, DeclKind, MethodKind, Name, Param, TypeParam, TypedefDecl};

/// The placeholder for the name being typed; no program contains it.
pub const MARK: &str = "sluice_completion_mark";

/// Resolves a program's names.
pub fn resolve(program: &ast::Program, sources: &SourceMap) -> Index {
    let mut resolver =
        Resolver { index: Index::default(), sources, scopes: Vec::new(), open: Vec::new(), owner: Vec::new() };
    resolver.open_scope();
    program.decls.iter().for_each(|decl| resolver.decl(decl));
    resolver.index
}

struct Resolver<'a> {
    index: Index,
    sources: &'a SourceMap,
    /// Names of the open scopes.
    scopes: Vec<HashMap<Arc<str>, Vec<DefId>>>,
    /// Indices of the open scopes.
    open: Vec<usize>,
    /// The declarations that enclose the current position.
    owner: Vec<DefId>,
}

impl Resolver<'_> {
    // -------------------------------------------------------------------------------------------------- scopes

    fn open_scope(&mut self) {
        let parent = self.open.last().copied();
        self.open.push(self.index.scopes.len());
        self.index.scopes.push(Scope { parent, defs: Vec::new() });
        self.scopes.push(HashMap::new());
    }

    fn close_scope(&mut self) {
        self.open.pop();
        self.scopes.pop();
    }

    fn scope(&self) -> usize {
        self.open.last().copied().unwrap_or_default()
    }

    /// Adds a declaration that is not yet visible in a scope.
    fn add(&mut self, name: &Name, kind: DefKind, full: Span, annotations: &[Annotation]) -> DefId {
        let id = DefId(self.index.defs.len() as u32);
        self.index.defs.push(Def {
            name: name.text.clone(),
            kind,
            span: name.span,
            full,
            annotations: annotations.first().map_or(Span::NONE, |a| a.span),
            body: Span::NONE,
            parent: self.owner.last().copied(),
            ty: Ty::Unknown,
            params: Vec::new(),
            type_params: Vec::new(),
            members: Vec::new(),
        });
        self.annotations(annotations);
        id
    }

    /// Makes a declaration visible from here on.
    fn show(&mut self, id: DefId) {
        let name = self.index.def(id).name.clone();
        let scope = self.scope();
        self.index.scopes[scope].defs.push(id);
        if let Some(names) = self.scopes.last_mut() {
            names.entry(name).or_default().push(id);
        }
    }

    fn def_mut(&mut self, id: DefId) -> &mut Def {
        &mut self.index.defs[id.0 as usize]
    }

    /// The declarations that a name refers to here: several for overloads, none if it is undeclared.
    fn find(&self, name: &str, global: bool) -> Vec<DefId> {
        let scopes = if global { &self.scopes[..1] } else { &self.scopes[..] };
        scopes.iter().rev().find_map(|names| names.get(name)).cloned().unwrap_or_default()
    }

    fn note_use(&mut self, span: Span, def: DefId) {
        self.index.uses.push(crate::index::Use { span, def });
    }

    fn note_site(&mut self, name: &Name, site: impl FnOnce(&Self) -> Site) -> bool {
        if &*name.text != MARK {
            return false;
        }
        if self.index.site.is_none() {
            self.index.site = Some(site(self));
        }
        true
    }

    /// Expressions in annotations are sometimes field names but mostly free text: only what resolves is recorded.
    fn annotations(&mut self, annotations: &[Annotation]) {
        for annotation in annotations {
            for expr in annotation.exprs().unwrap_or_default() {
                self.expr(expr);
            }
        }
    }

    // ------------------------------------------------------------------------------------------------ declarations

    fn type_params(&mut self, params: &[TypeParam]) -> Vec<DefId> {
        let mut ids = Vec::new();
        for param in params {
            let id = self.add(&param.name, DefKind::TypeParam, param.name.span, &[]);
            self.def_mut(id).ty = Ty::Named(id, Vec::new());
            self.show(id);
            ids.push(id);
        }
        ids
    }

    fn params(&mut self, params: &[Param]) -> Vec<DefId> {
        let mut ids = Vec::new();
        for param in params {
            let ty = self.type_ref(&param.ty);
            if let Some(default) = &param.default {
                self.expr(default);
            }
            let id = self.add(&param.name, DefKind::Param, param.span, &param.annotations);
            self.def_mut(id).ty = ty;
            self.show(id);
            ids.push(id);
        }
        ids
    }

    fn decls(&mut self, decls: &[Decl]) {
        decls.iter().for_each(|decl| self.decl(decl));
    }

    fn decl(&mut self, decl: &Decl) {
        let add = |this: &mut Self, kind| this.add(&decl.name, kind, decl.span, &decl.annotations);
        if let DeclKind::Variable(ast::VariableDecl { ty, .. }) | DeclKind::Instantiation(ast::Instantiation { ty, .. }) =
            &decl.kind
            && let ast::TypeKind::Named { path, .. } = &ty.kind
        {
            let (scope, within) = (self.scope(), self.owner.last().map(|id| self.index.def(*id).kind));
            // The name after it may be the first token of the next declaration.
            if self.note_site(&path.name, |_| Site::Declaration(scope, within)) {
                return;
            }
        }
        match &decl.kind {
            DeclKind::Const(c) => {
                let ty = self.type_ref(&c.ty);
                self.expr_as(&c.value, &ty);
                let id = add(self, DefKind::Const);
                self.def_mut(id).ty = ty;
                self.show(id);
            }
            DeclKind::Variable(v) => {
                let ty = self.type_ref(&v.ty);
                if let Some(init) = &v.init {
                    self.expr_as(init, &ty);
                }
                let id = add(self, DefKind::Variable);
                self.def_mut(id).ty = ty;
                self.show(id);
            }
            DeclKind::Instantiation(i) => {
                let ty = self.type_ref(&i.ty);
                let makers = self.constructors(&ty, i.args.len());
                self.arguments(&i.args, &makers);
                let id = add(self, DefKind::Instance);
                self.def_mut(id).ty = ty;
                if let Some(body) = &i.body {
                    self.within(id, |this| this.decls(body));
                }
                self.show(id);
            }
            DeclKind::Action(a) => {
                let id = add(self, DefKind::Action);
                self.def_mut(id).body = a.body.span;
                self.within(id, |this| {
                    this.def_mut(id).params = this.params(&a.params);
                    this.block(&a.body);
                });
                self.show(id);
            }
            DeclKind::Table(t) => {
                let id = add(self, DefKind::Table);
                self.def_mut(id).ty = Ty::Table(id);
                self.within(id, |this| this.table(t));
                self.show(id);
            }
            DeclKind::ValueSet(v) => {
                let ty = self.type_ref(&v.element);
                self.expr(&v.size);
                let id = add(self, DefKind::ValueSet);
                self.def_mut(id).ty = ty;
                self.show(id);
            }
            DeclKind::Function(f) => {
                let id = add(self, DefKind::Function);
                self.def_mut(id).body = f.body.span;
                self.prototype(id, &f.proto, |this| this.block(&f.body));
                self.show(id);
            }
            DeclKind::ExternFunction(proto) => {
                let id = add(self, DefKind::Function);
                self.prototype(id, proto, |_| ());
                self.show(id);
            }
            DeclKind::ExternObject(e) => self.extern_object(decl, e),
            DeclKind::Parser(p) => {
                let id = add(self, DefKind::Parser);
                self.show(id);
                self.within(id, |this| {
                    let type_params = this.type_params(&p.type_params);
                    this.def_mut(id).type_params = type_params;
                    this.def_mut(id).params = this.params(&p.params);
                    this.def_mut(id).members = this.params(&p.constructor_params);
                    this.end_signature(id, p.locals.first().map(|l| l.span).or(p.states.first().map(|s| s.span)));
                    this.decls(&p.locals);
                    this.states(&p.states);
                });
            }
            DeclKind::Control(c) => {
                let id = add(self, DefKind::Control);
                self.show(id);
                self.within(id, |this| {
                    let type_params = this.type_params(&c.type_params);
                    this.def_mut(id).type_params = type_params;
                    this.def_mut(id).params = this.params(&c.params);
                    this.def_mut(id).members = this.params(&c.constructor_params);
                    this.end_signature(id, Some(c.locals.first().map_or(c.apply.span, |l| l.span)));
                    this.decls(&c.locals);
                    this.block(&c.apply);
                });
            }
            DeclKind::ParserType(b) | DeclKind::ControlType(b) | DeclKind::PackageType(b) => {
                let id = add(self, DefKind::BlockType);
                self.within(id, |this| {
                    let type_params = this.type_params(&b.type_params);
                    this.def_mut(id).type_params = type_params;
                    this.def_mut(id).params = this.params(&b.params);
                });
                self.show(id);
            }
            DeclKind::Header(f) => self.fields(decl, f, DefKind::Header),
            DeclKind::HeaderUnion(f) => self.fields(decl, f, DefKind::HeaderUnion),
            DeclKind::Struct(f) => self.fields(decl, f, DefKind::Struct),
            DeclKind::Enum(e) => {
                let repr = e.repr.as_ref().map(|ty| self.type_ref(ty));
                let id = add(self, DefKind::Enum);
                self.def_mut(id).ty = repr.unwrap_or(Ty::Unknown);
                let members = self.members(id, &e.members);
                self.def_mut(id).members = members;
                self.show(id);
            }
            DeclKind::Error(m) => {
                let members = self.list_members(&m.members);
                self.index.errors.extend(members);
            }
            DeclKind::MatchKind(m) => {
                let members = self.list_members(&m.members);
                self.index.match_kinds.extend(members);
            }
            DeclKind::Typedef(typedef) => {
                let ty = match typedef {
                    TypedefDecl::Type(ty) => self.type_ref(ty),
                    TypedefDecl::Derived(inner) => {
                        self.decl(inner);
                        self.find(&inner.name.text, false).first().map_or(Ty::Unknown, |id| Ty::Named(*id, Vec::new()))
                    }
                };
                let id = add(self, DefKind::Typedef);
                self.def_mut(id).ty = ty;
                self.show(id);
            }
            DeclKind::NewType(ty) => {
                let ty = self.type_ref(ty);
                let id = add(self, DefKind::NewType);
                self.def_mut(id).ty = ty;
                self.show(id);
            }
        }
    }

    /// Runs `inside` in a new scope, within a declaration.
    fn within(&mut self, id: DefId, inside: impl FnOnce(&mut Self)) {
        self.owner.push(id);
        self.open_scope();
        inside(self);
        self.close_scope();
        self.owner.pop();
    }

    /// Records where the body of a parser, control or similar declaration begins: at the last `{` before its first
    /// part.
    fn end_signature(&mut self, id: DefId, first: Option<Span>) {
        if let Some(first) = first {
            let full = self.index.def(id).full;
            let text = self.sources.text(Span { end: first.start.max(full.start), ..full }).unwrap_or_default();
            if let Some(brace) = text.rfind('{') {
                let at = full.start + brace as u32;
                self.def_mut(id).body = Span::new(full.file, at, full.end);
            }
        }
    }

    fn prototype(&mut self, id: DefId, proto: &ast::Prototype, body: impl FnOnce(&mut Self)) {
        self.within(id, |this| {
            let type_params = this.type_params(&proto.type_params);
            this.def_mut(id).type_params = type_params;
            this.def_mut(id).ty = this.type_ref(&proto.result);
            this.def_mut(id).params = this.params(&proto.params);
            body(this);
        });
    }

    fn extern_object(&mut self, decl: &Decl, object: &ast::ExternObjectDecl) {
        let id = self.add(&decl.name, DefKind::Extern, decl.span, &decl.annotations);
        // Methods may have parameters of the object's own type.
        self.show(id);
        self.within(id, |this| {
            let type_params = this.type_params(&object.type_params);
            this.def_mut(id).type_params = type_params;
            for method in &object.methods {
                let kind = match method.kind {
                    MethodKind::Constructor => DefKind::Constructor,
                    MethodKind::Method | MethodKind::Abstract => DefKind::Method,
                };
                let at = this.add(&method.name, kind, method.span, &method.annotations);
                this.prototype(at, &method.proto, |_| ());
                this.def_mut(id).members.push(at);
            }
        });
    }

    fn fields(&mut self, decl: &Decl, fields: &ast::FieldsDecl, kind: DefKind) {
        let id = self.add(&decl.name, kind, decl.span, &decl.annotations);
        self.within(id, |this| {
            let type_params = this.type_params(&fields.type_params);
            this.def_mut(id).type_params = type_params;
            for field in &fields.fields {
                let ty = this.type_ref(&field.ty);
                let at = this.add(&field.name, DefKind::Field, field.span, &field.annotations);
                this.def_mut(at).ty = ty;
                this.def_mut(id).members.push(at);
            }
        });
        self.def_mut(id).ty = Ty::Named(id, Vec::new());
        self.show(id);
    }

    fn members(&mut self, id: DefId, members: &[ast::Member]) -> Vec<DefId> {
        self.owner.push(id);
        let ids = self.list_members(members);
        self.owner.pop();
        for member in &ids {
            self.def_mut(*member).ty = Ty::Named(id, Vec::new());
        }
        ids
    }

    fn list_members(&mut self, members: &[ast::Member]) -> Vec<DefId> {
        let mut ids = Vec::new();
        for member in members {
            if let Some(value) = &member.value {
                self.expr(value);
            }
            let full = member.value.as_ref().map_or(member.name.span, |v| member.name.span.to(v.span));
            ids.push(self.add(&member.name, DefKind::Member, full, &member.annotations));
        }
        ids
    }
}
