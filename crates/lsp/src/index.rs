//! The index of a program: its declarations, and the uses of each name.
//!
//! `resolve` builds an [`Index`] from the syntax tree alone, so it also exists for programs with errors: an undeclared
//! name has no entry, everything else does. It is plain data, built for each analysis and never changed.
//!
//! Invariants: a [`DefId`] is an index into [`Index::defs`]; scopes are in the order in which they open, each after its
//! parent; the span of a use covers exactly the name, or the macro call that produced it.

use base::{FileId, Span};
use std::sync::Arc;

/// Identifies a [`Def`] of one [`Index`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DefId(pub u32);

/// The kind of a declaration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefKind {
    /// `const`.
    Const,
    /// A local variable.
    Variable,
    /// A parameter of any declaration.
    Param,
    /// `<T>`.
    TypeParam,
    /// `T(args) name;`
    Instance,
    /// `action`.
    Action,
    /// `table`.
    Table,
    /// `value_set`.
    ValueSet,
    /// A function with a body, or an extern one.
    Function,
    /// `extern` object.
    Extern,
    /// A method of an extern object.
    Method,
    /// A constructor of an extern object.
    Constructor,
    /// `parser` with a body.
    Parser,
    /// `control` with a body.
    Control,
    /// A parser, control or package type.
    BlockType,
    /// `header`.
    Header,
    /// `header_union`.
    HeaderUnion,
    /// `struct`.
    Struct,
    /// `enum`.
    Enum,
    /// A field of a header, union or struct.
    Field,
    /// A member of an enum, error or match_kind list.
    Member,
    /// A parser state.
    State,
    /// `typedef`.
    Typedef,
    /// `type`.
    NewType,
}

impl DefKind {
    /// Whether it declares a type name.
    pub fn is_type(self) -> bool {
        use DefKind::*;
        matches!(
            self,
            TypeParam
                | Extern
                | Parser
                | Control
                | BlockType
                | Header
                | HeaderUnion
                | Struct
                | Enum
                | Typedef
                | NewType
        )
    }
}

/// A declaration of a name.
#[derive(Clone, Debug)]
pub struct Def {
    /// The declared name.
    pub name: Arc<str>,
    /// Its kind.
    pub kind: DefKind,
    /// Span of the name.
    pub span: Span,
    /// Span of the whole declaration, without annotations.
    pub full: Span,
    /// Start of the annotations in front of it; [`Span::NONE`] without any.
    pub annotations: Span,
    /// Span of its body, which the displayed signature omits; [`Span::NONE`] if there is no body.
    pub body: Span,
    /// The declaration that contains it.
    pub parent: Option<DefId>,
    /// Its type; for a function the return type, for a typedef its target.
    pub ty: Ty,
    /// Its parameters; for a parser or control those of `apply`.
    pub params: Vec<DefId>,
    /// Type parameters.
    pub type_params: Vec<DefId>,
    /// Fields, members, methods.
    pub members: Vec<DefId>,
}

/// A type, in the detail that members and calls need.
#[derive(Clone, PartialEq, Debug)]
pub enum Ty {
    /// Not known.
    Unknown,
    /// A type without members: `bit<8>`, `bool`, ...
    Scalar,
    /// A declared type and its type arguments.
    Named(DefId, Vec<Ty>),
    /// A header stack.
    Stack(Box<Ty>),
    /// A list or tuple.
    Tuple,
    /// The name of a type in the position of a value.
    Name(Box<Ty>),
    /// `error` before a dot.
    Error,
    /// A table.
    Table(DefId),
    /// The result of a table's `apply`.
    ApplyResult(DefId),
    /// `action_run`.
    ActionRun(DefId),
    /// Candidates of a call (overloads), and the type arguments of the object.
    Callable(Vec<DefId>, Vec<(DefId, Ty)>),
    /// `apply` of a table.
    ApplyOf(DefId),
    /// A built-in method and its return type.
    Builtin(Box<Ty>),
}

/// A member that can follow a dot.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name.
    pub name: Arc<str>,
    /// Its declaration, if it is not built in.
    pub def: Option<DefId>,
    /// Its type.
    pub ty: Ty,
    /// For built-in members: the syntax, and the description.
    pub about: Option<(&'static str, &'static str)>,
}

/// A use of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// Its span.
    pub span: Span,
    /// The declaration that it refers to.
    pub def: DefId,
}

/// A range in which declarations are visible.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The enclosing scope.
    pub parent: Option<usize>,
    /// Its declarations, in order.
    pub defs: Vec<DefId>,
}

/// What is expected at the position of a completion.
#[derive(Clone, Debug)]
pub enum Site {
    /// Behind a dot: the members that can follow.
    Members(Vec<Item>),
    /// A value or statement, in this scope.
    Value(usize),
    /// A type, in this scope.
    Type(usize),
    /// The start of a declaration in this scope, at top level or within this kind of declaration.
    Declaration(usize, Option<DefKind>),
    /// An action, in this scope.
    Action(usize),
    /// A state, in this scope.
    State(usize),
    /// A match kind.
    MatchKind,
    /// A table property.
    Property,
    /// The name of a parameter of one of these callees.
    Argument(Vec<DefId>),
}

/// All declarations and uses of a program.
#[derive(Debug, Default)]
pub struct Index {
    /// Declarations, each before those that it contains.
    pub defs: Vec<Def>,
    /// Uses, in the order in which they were resolved.
    pub uses: Vec<Use>,
    /// Scopes; the first is the whole program's.
    pub scopes: Vec<Scope>,
    /// Members of `error`.
    pub errors: Vec<DefId>,
    /// Members of `match_kind`.
    pub match_kinds: Vec<DefId>,
    /// Built-in members that are used, for hover.
    pub builtins: Vec<(Span, &'static str, &'static str)>,
    /// What is expected at the completion mark, if the text has one.
    pub site: Option<Site>,
}

impl Index {
    /// A declaration of a name.
    pub fn def(&self, id: DefId) -> &Def {
        &self.defs[id.0 as usize]
    }

    /// The span and declaration of the name at an offset, which is a declaration or a use. `files` are the ids of one
    /// file.
    pub fn at(&self, files: &[FileId], offset: u32) -> Option<(Span, DefId)> {
        let covers = |span: Span| files.contains(&span.file) && span.start <= offset && offset <= span.end;
        let own = (0..).zip(&self.defs).map(|(id, def)| (def.span, DefId(id)));
        let uses = self.uses.iter().map(|u| (u.span, u.def));
        // If two names touch, the one that begins here; if a macro's expansion has several, the first.
        own.chain(uses)
            .filter(|(span, _)| covers(*span))
            .min_by_key(|(span, _)| (span.end - span.start, span.start != offset))
    }

    /// The spans of a declaration's name and of its uses.
    pub fn places(&self, id: DefId) -> Vec<Span> {
        let uses = self.uses.iter().filter(|u| u.def == id).map(|u| u.span);
        std::iter::once(self.def(id).span).chain(uses).collect()
    }

    /// The declarations visible in a scope, innermost first, without shadowed ones.
    pub fn visible(&self, scope: usize) -> Vec<DefId> {
        let mut seen = std::collections::HashSet::new();
        let mut visible = Vec::new();
        let mut at = Some(scope);
        while let Some(scope) = at.map(|i| &self.scopes[i]) {
            visible.extend(scope.defs.iter().rev().filter(|id| seen.insert(self.def(**id).name.clone())));
            at = scope.parent;
        }
        visible
    }

    /// Substitutes type parameters in a type.
    pub fn substitute(ty: &Ty, by: &[(DefId, Ty)]) -> Ty {
        match ty {
            Ty::Named(id, args) if args.is_empty() => {
                by.iter().find(|(param, _)| param == id).map_or_else(|| ty.clone(), |(_, ty)| ty.clone())
            }
            Ty::Named(id, args) => Ty::Named(*id, args.iter().map(|a| Index::substitute(a, by)).collect()),
            Ty::Stack(of) => Ty::Stack(Box::new(Index::substitute(of, by))),
            _ => ty.clone(),
        }
    }

    /// The members that can follow a value of a type and a dot.
    pub fn members(&self, ty: &Ty) -> Vec<Item> {
        let builtin =
            |name: &str, text, about, ty| Item { name: name.into(), def: None, ty, about: Some((text, about)) };
        let value = |name, text, about| builtin(name, text, about, Ty::Scalar);
        let method = |name, text, about| builtin(name, text, about, Ty::Builtin(Box::new(Ty::Scalar)));
        let own = |ids: &[DefId], by: &[(DefId, Ty)]| -> Vec<Item> {
            let item = |id: &DefId| {
                let def = self.def(*id);
                let ty = match def.kind {
                    DefKind::Method => Ty::Callable(vec![*id], by.to_vec()),
                    _ => Index::substitute(&def.ty, by),
                };
                Item { name: def.name.clone(), def: Some(*id), ty, about: None }
            };
            ids.iter().map(item).collect()
        };
        let sizes = || {
            [
                method("minSizeInBits", "minSizeInBits()", "The smallest size of a value in bits."),
                method("minSizeInBytes", "minSizeInBytes()", "The smallest size of a value in bytes."),
                method("maxSizeInBits", "maxSizeInBits()", "The largest size of a value in bits."),
                method("maxSizeInBytes", "maxSizeInBytes()", "The largest size of a value in bytes."),
            ]
        };
        match ty {
            Ty::Named(id, args) => {
                let def = self.def(*id);
                let by: Vec<(DefId, Ty)> = def.type_params.iter().copied().zip(args.iter().cloned()).collect();
                let mut items = match def.kind {
                    DefKind::Extern => {
                        let methods: Vec<DefId> =
                            def.members.iter().copied().filter(|m| self.def(*m).kind == DefKind::Method).collect();
                        own(&methods, &by)
                    }
                    DefKind::Header | DefKind::HeaderUnion | DefKind::Struct => own(&def.members, &by),
                    DefKind::Parser | DefKind::Control => vec![Item {
                        name: "apply".into(),
                        def: None,
                        ty: Ty::Callable(vec![*id], by),
                        about: Some(("apply(...)", "Runs the block.")),
                    }],
                    _ => Vec::new(),
                };
                match def.kind {
                    DefKind::Header => items.extend([
                        method("isValid", "bool isValid()", "Whether the header is valid."),
                        method("setValid", "void setValid()", "Makes the header valid; its fields are unspecified."),
                        method("setInvalid", "void setInvalid()", "Makes the header invalid."),
                    ]),
                    DefKind::HeaderUnion => {
                        items.push(method("isValid", "bool isValid()", "Whether one of the headers is valid."));
                    }
                    _ => {}
                }
                if matches!(def.kind, DefKind::Header | DefKind::HeaderUnion | DefKind::Struct) {
                    items.extend(sizes());
                }
                items
            }
            Ty::Stack(of) => vec![
                builtin("next", "next", "The element that is extracted next; in parsers.", (**of).clone()),
                builtin("last", "last", "The element that was extracted last; in parsers.", (**of).clone()),
                value(
                    "lastIndex",
                    "bit<32> lastIndex",
                    "The index of the last element that was extracted; in parsers.",
                ),
                value("size", "int size", "How many elements the stack has."),
                method(
                    "push_front",
                    "void push_front(int count)",
                    "Moves elements back; the first ones become invalid.",
                ),
                method(
                    "pop_front",
                    "void pop_front(int count)",
                    "Moves elements forward; the last ones become invalid.",
                ),
            ],
            Ty::Name(of) => match &**of {
                Ty::Named(id, _) => match self.def(*id).kind {
                    DefKind::Enum => own(&self.def(*id).members, &[]),
                    DefKind::Parser | DefKind::Control => self.members(of),
                    DefKind::Header | DefKind::HeaderUnion | DefKind::Struct => sizes().into(),
                    _ => Vec::new(),
                },
                _ => Vec::new(),
            },
            Ty::Error => own(&self.errors, &[]),
            Ty::Table(id) => {
                vec![builtin("apply", "apply()", "Looks the key up and runs an action.", Ty::ApplyOf(*id))]
            }
            Ty::ApplyResult(id) => vec![
                value("hit", "bool hit", "Whether an entry matched."),
                value("miss", "bool miss", "Whether no entry matched."),
                builtin("action_run", "action_run", "The action that ran, for `switch`.", Ty::ActionRun(*id)),
            ],
            _ => Vec::new(),
        }
    }
}
