//! The checker: syntax tree in, typed program and diagnostics out.
//!
//! First one pass over the declarations in source order (P4 requires declaration before use), then the bodies of the
//! generic functions that were called, once per list of type arguments, then the instance tree. Type inference is local
//! to an expression and bidirectional: expected types are passed down (so that `{ … }`, `…` and integer literals take
//! their type from the context), synthesised types are passed up, and where both are known [`coerce`](Checker::coerce)
//! makes the conversion explicit or reports an error. Type arguments of calls are inferred by matching parameter types
//! against argument types ([`generics`]); argument types are always ground, so one-sided matching suffices and there
//! are no unification variables.
//!
//! Invariants:
//! - no tree that the parser can produce causes a panic; an erroneous construct becomes [`Type::Unknown`] (expressions)
//!   or [`Symbol::Broken`] (names), so that one mistake gives one message;
//! - the typed program is returned only if there was no error.
//!
//! Modules: `decls` (top level, types, externs), `functions`, `types` (type names), `generics` (matching,
//! substitution), `expr` and `operators` (expressions), `literals` (lists, records, defaults), `calls` and `methods`,
//! `unknown` (undeclared names), `coerce` (conversions), `stmts`, `case_fit`, `blocks` (parsers, controls), `tables`,
//! `instances` (instantiations), `annotations`, `elaborate` (the instance tree), `limits` (bounds).
//! `elaborate` (the instance tree), `limits` (bounds).
//!
//! Tests: `crates/sema/tests`.

mod annotations;
mod blocks;
mod calls;
mod case_fit;
mod coerce;
mod decls;
mod elaborate;
mod expr;
mod functions;
mod generic_blocks;
mod generics;
mod instances;
mod limits;
mod literals;
mod methods;
mod operators;
mod stmts;
mod tables;
mod types;
mod unknown;

use crate::codes;
use crate::scope::{Entry, Scopes, Symbol};
use crate::typed::*;
use crate::types::*;
use crate::value::Value;
use base::{Diagnostic, Severity, Span};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use syntax::ast;

/// The maximum number of errors reported, and likewise of warnings.
const MAX_DIAGNOSTICS: usize = 200;

/// The signature of anything that is called or constructed.
#[derive(Clone, Debug)]
pub(crate) struct Sig {
    /// Its description in messages: «function `f`».
    pub what: String,
    pub span: Span,
    pub type_params: Vec<TypeVar>,
    /// One variable per `_` in its types; inferred like type parameters, but never given explicitly.
    pub hidden_params: Vec<TypeVar>,
    pub params: Vec<SigParam>,
    pub result: Type,
}

/// A generic struct, header or header union.
pub(crate) struct GenericStruct {
    pub name: Arc<str>,
    pub kind: StructKind,
    pub type_params: Vec<TypeVar>,
    /// The fields; their types may contain `type_params`.
    pub fields: Fields,
    pub annotations: Vec<Annotation>,
    pub span: Span,
}

/// A function with a body, generic or not.
pub(crate) struct FunctionDecl<'a> {
    pub decl: &'a ast::Decl,
    pub ast: &'a ast::FunctionDecl,
    pub sig: Rc<Sig>,
    /// Whether its body has errors; then it is not instantiated.
    pub broken: bool,
}

/// The kind of context being checked, which determines what is allowed there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Place {
    #[default]
    TopLevel,
    ParserLocals,
    ParserState,
    ControlLocals,
    Apply,
    /// Arguments of actions in a table; they are evaluated when the action is called.
    TableProperty,
    Action,
    Function,
}

/// The owner of the instances that are declared in a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Owner {
    #[default]
    Program,
    Parser(ParserId),
    Control(ControlId),
}

/// The body being checked.
#[derive(Default)]
pub(crate) struct Body {
    /// Number of the frame, which distinguishes names of this body from names of an enclosing one.
    pub number: u32,
    pub frame: Frame,
    pub place: Place,
    pub owner: Owner,
    pub instances: Vec<InstanceDecl>,
    pub result: Option<Type>,
    pub loops: u32,
    /// The type of `this`: the extern whose abstract method is being implemented.
    pub this: Option<Type>,
}

pub(crate) struct Checker<'a> {
    ast: &'a ast::Program,
    pub prog: Program,
    pub diags: Vec<Diagnostic>,
    pub scopes: Scopes,
    pub body: Body,
    bodies: u32,
    generic_structs: Vec<GenericStruct>,
    generic_cache: HashMap<(usize, Vec<Type>), StructId>,
    /// The generic declaration that each struct of the type table is an instantiation of.
    struct_origin: Vec<Option<usize>>,
    /// The number of scalar leaves in each struct of the type table.
    struct_leaves: Vec<u64>,
    anonymous: HashMap<Vec<(Arc<str>, Type)>, StructId>,
    functions: Vec<FunctionDecl<'a>>,
    function_instances: HashMap<(usize, Vec<Type>), FunctionId>,
    pending: Vec<(FunctionId, usize)>,
    generic_blocks: Vec<generic_blocks::GenericBlock<'a>>,
    block_instances: HashMap<(usize, Vec<Type>), Type>,
    /// Instantiated generic parsers and controls whose bodies have not been checked yet.
    pending_blocks: Vec<(Type, usize, Vec<Type>)>,
    /// Default values of constructor parameters whose types contain type parameters, by the parameter's span; they are
    /// checked where they are used.
    deferred_defaults: HashMap<Span, (&'a ast::Expr, Option<Type>)>,
    extern_function_sigs: Vec<Rc<Sig>>,
    method_sigs: Vec<Vec<Rc<Sig>>>,
    action_sigs: Vec<Rc<Sig>>,
    control_sigs: Vec<(Rc<Sig>, Rc<Sig>)>,
    parser_sigs: Vec<(Rc<Sig>, Rc<Sig>)>,
    package_sigs: HashMap<BlockTypeId, Rc<Sig>>,
    /// The type variables for `_` in the signature being resolved.
    wildcards: Option<Vec<TypeVar>>,
    /// The extern whose declaration is being checked.
    open_extern: Option<ExternId>,
    /// The table whose declaration is being checked.
    open_table: Option<TableId>,
    /// The actions in that table's list, with their positions.
    listed: HashMap<ActionId, u32>,
    /// The parsers and controls whose bodies are being checked; an instance of one would contain itself.
    open_blocks: Vec<Type>,
    unknown: unknown::Unknown,
    /// Tables whose action list names an undeclared action. An action that seems to be missing from such a list is not
    /// reported, since it may be the misspelt one.
    broken_tables: std::collections::HashSet<TableId>,
}

/// Checks a whole program.
pub(crate) fn run(ast: &ast::Program) -> (Program, Vec<Diagnostic>) {
    let mut checker = Checker {
        ast,
        prog: Program::default(),
        diags: Vec::new(),
        scopes: Scopes::default(),
        body: Body::default(),
        bodies: 0,
        generic_structs: Vec::new(),
        generic_cache: HashMap::new(),
        struct_origin: Vec::new(),
        struct_leaves: Vec::new(),
        anonymous: HashMap::new(),
        functions: Vec::new(),
        function_instances: HashMap::new(),
        pending: Vec::new(),
        generic_blocks: Vec::new(),
        block_instances: HashMap::new(),
        pending_blocks: Vec::new(),
        deferred_defaults: HashMap::new(),
        extern_function_sigs: Vec::new(),
        method_sigs: Vec::new(),
        action_sigs: Vec::new(),
        control_sigs: Vec::new(),
        parser_sigs: Vec::new(),
        package_sigs: HashMap::new(),
        wildcards: None,
        open_extern: None,
        open_table: None,
        listed: HashMap::new(),
        open_blocks: Vec::new(),
        unknown: unknown::Unknown::default(),
        broken_tables: Default::default(),
    };
    for decl in &ast.decls {
        checker.top_level(decl);
    }
    checker.instantiate_bodies();
    if !base::diag::has_errors(&checker.diags) {
        checker.elaborate();
        checker.check_control_names();
    }
    checker.count_unknown();
    (checker.prog, checker.diags)
}

// Reporting.
impl<'a> Checker<'a> {
    /// Adds a diagnostic, unless [`MAX_DIAGNOSTICS`] of its severity exist. Errors and warnings are counted separately,
    /// so that no number of warnings hides an error.
    pub fn report(&mut self, diagnostic: Diagnostic) {
        if !self.is_at_limit(diagnostic.severity) {
            self.diags.push(diagnostic);
        }
    }

    /// Whether further diagnostics of this severity are suppressed.
    pub(super) fn is_at_limit(&self, severity: Severity) -> bool {
        self.diags.iter().filter(|d| d.severity == severity).count() >= MAX_DIAGNOSTICS
    }

    /// Adds an error that consists of a message only.
    pub fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>) {
        self.report(Diagnostic::error(code, span, message));
    }

    /// Formats a type for messages.
    pub fn show(&self, ty: &Type) -> String {
        self.prog.types.display(ty).to_string()
    }

    /// A placeholder of type [`Type::Unknown`] for an erroneous expression.
    pub fn poison(&self, span: Span) -> Expr {
        Expr { kind: ExprKind::Const(Value::Bool(false)), ty: Type::Unknown, span }
    }

    /// Declares a name in the innermost scope, or reports that it is already declared there.
    pub fn declare(&mut self, name: &ast::Name, symbol: Symbol) {
        if &*name.text == "main"
            && self.scopes.at_top()
            && !matches!(symbol, Symbol::Instance(_, Type::Block(..)) | Symbol::Functions(_) | Symbol::Broken)
        {
            self.report(
                Diagnostic::error(codes::BAD_MAIN, name.span, "`main` must be an instance of a package")
                    .help("such as V1Switch(…) main; or PSA_Switch(…) main;"),
            );
        }
        if let Err(first) = self.scopes.declare(&name.text, symbol, name.span) {
            self.report(
                Diagnostic::error(codes::DECLARED_TWICE, name.span, format!("`{name}` is declared twice in one scope"))
                    .note(first, "first declared here")
                    .help("rename one of them"),
            );
        }
    }

    /// The meaning of a path; reports an error if it is not declared.
    pub fn lookup(&mut self, path: &ast::Path) -> Option<Entry> {
        let found =
            if path.global { self.scopes.lookup_global(&path.name.text) } else { self.scopes.lookup(&path.name.text) };
        if let Some(entry) = found {
            return Some(entry.clone());
        }
        self.undeclared(path, false);
        None
    }

    /// Starts a new body and returns the enclosing one, which must be passed to [`Checker::leave_body`].
    pub fn enter_body(&mut self, place: Place, owner: Owner) -> Body {
        self.bodies += 1;
        std::mem::replace(&mut self.body, Body { number: self.bodies, place, owner, ..Body::default() })
    }

    /// Ends the current body, returns it, and restores the enclosing one.
    pub fn leave_body(&mut self, outer: Body) -> Body {
        std::mem::replace(&mut self.body, outer)
    }

    /// Adds a frame to the program.
    pub fn add_frame(&mut self, frame: Frame) -> FrameId {
        self.prog.frames.push(frame);
        FrameId::from_index(self.prog.frames.len() - 1)
    }

    /// A new variable of the body, declared in the innermost scope.
    pub fn new_local(&mut self, name: &ast::Name, ty: Type, kind: LocalKind, annotations: Vec<Annotation>) -> LocalId {
        let id = LocalId::from_index(self.body.frame.locals.len());
        if kind == LocalKind::Variable
            && let Some(Entry { symbol: Symbol::Local(hidden, body), span, .. }) = self.scopes.lookup(&name.text)
            && *body == self.body.number
            && matches!(self.body.frame.locals[hidden.index()].kind, LocalKind::Param(_))
        {
            let first = *span;
            let message = format!("the variable `{name}` hides a parameter");
            let d = match self.body.place {
                Place::ControlLocals | Place::ParserLocals => {
                    Diagnostic::warning(codes::HIDES_PARAMETER, name.span, message)
                }
                _ => Diagnostic::error(codes::SHADOWS_PARAMETER, name.span, message),
            };
            self.report(d.note(first, "the parameter").help("rename the variable"));
        }
        self.body.frame.locals.push(Local { name: name.text.clone(), ty, kind, annotations, span: name.span });
        self.declare(name, Symbol::Local(id, self.body.number));
        id
    }

    /// A new type variable.
    pub fn new_var(&mut self, name: Arc<str>) -> TypeVar {
        self.prog.types.vars.push(name);
        TypeVar::from_index(self.prog.types.vars.len() - 1)
    }
}
