//! The typed program: what the checker hands to lowering and to P4Info. Everything is resolved; nobody behind this
//! infers a type, looks up a name, or applies an implicit conversion.
//!
//! **Shape.** All declarations of a kind lie in one vector of [`Program`] and are named by typed ids: controls, parsers,
//! actions, tables, functions, externs. A body is checked once per *declaration* (a generic function: once per list of
//! type arguments); what differs between two instances of a control is only the values of its constructor parameters.
//! The [`Instance`] tree, elaborated from `main`, says which instances exist, with their control-plane names, constructor
//! arguments and nested instances; [`Program::eval`] gives a constructor-dependent expression its value in an instance.
//!
//! **Variables.** Every parser, control, function and top-level action has a [`Frame`]: all its variables and run-time
//! parameters, those of its actions and nested blocks included. [`ExprKind::Local`] is an index into the frame of the
//! body it stands in; an action inside a control uses the control's frame. A variable declaration is a statement
//! ([`StmtKind::Var`]) that starts the variable's life anew each time it is reached.
//!
//! **Expressions.** Compile-time known values are folded: [`ExprKind::Const`]. Named constants are replaced by their
//! values (or, if they depend on constructor parameters, by their expressions). Every implicit conversion is an explicit
//! [`ExprKind::Cast`] or [`ExprKind::Aggregate`]: `{ 1, x }` for a struct, header, tuple, list or stack has one element
//! per field in declaration order, also when it was written with names, and `...` has been filled with
//! default values. Operands of arithmetic have one type; only the right side of a shift is free
//! (any `bit<S>`; a constant amount is a `bit<32>`). Types of expressions never contain [`Type::Var`].
//!
//! **Calls.** Arguments are in parameter order, one per parameter: named and default arguments are resolved, what is left
//! out is [`ArgValue::Absent`]. `in` and directionless arguments have been cast to the parameter's type; `out`
//! and `inout` ones are l-values of exactly that type, or [`ArgValue::DontCare`].
//!
//! **Instances inside bodies** are [`InstanceRef`]s, and the whole expression is [`ExprKind::Instance`]; an extern that
//! came as a run-time parameter (`packet_in packet`) is an [`ExprKind::Local`] of extern type. `C.apply(...)` on a type and
//! constructor calls in arguments or table properties have become anonymous instance declarations.

use crate::types::{BlockKind, Type, TypeTable, TypeVar};
use crate::value::Value;
use base::Span;
use std::sync::Arc;

mod body;

pub use crate::annotation::{Annotation, AnnotationBody};
pub use crate::ids::{
    ActionId, ControlId, ExternFunctionId, ExternId, FrameId, FunctionId, InstanceId, LocalId, ParserId, TableId,
    ValueSetId,
};
pub use body::*;
pub use syntax::ast::{AnnotationToken, AnnotationTokenKind, BinaryOp, Direction, UnaryOp};

/// A checked program.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Named types.
    pub types: TypeTable,
    /// Members of `error` in declaration order; `NoError` is 0 when `core.p4` is included.
    pub errors: Vec<Arc<str>>,
    /// Members of `match_kind` in declaration order.
    pub match_kinds: Vec<Arc<str>>,
    /// Variables of bodies.
    pub frames: Vec<Frame>,
    /// Functions; of generic ones, each instantiation in use.
    pub functions: Vec<Function>,
    /// Extern functions.
    pub extern_functions: Vec<ExternFunction>,
    /// Extern object types.
    pub externs: Vec<Extern>,
    /// Actions, top-level ones and those of controls.
    pub actions: Vec<Action>,
    /// Tables of all controls.
    pub tables: Vec<Table>,
    /// Value sets of all parsers.
    pub value_sets: Vec<ValueSet>,
    /// Controls.
    pub controls: Vec<Control>,
    /// Parsers.
    pub parsers: Vec<Parser>,
    /// Top-level instance declarations, `main` included; [`InstanceRef::Global`] is an index here.
    pub globals: Vec<InstanceDecl>,
    /// The elaborated instances of `globals`, in parallel.
    pub global_instances: Vec<InstanceId>,
    /// All instances that exist, parents before children but for instances given as constructor arguments.
    pub instances: Vec<Instance>,
    /// The instance of `main`.
    pub main: Option<InstanceId>,
}

/// The first annotation of a name.
pub fn find_annotation<'a>(annotations: &'a [Annotation], name: &str) -> Option<&'a Annotation> {
    annotations.iter().find(|a| &*a.name == name)
}

// ---------------------------------------------------------------------------------------------------- variables, parameters

/// All variables and run-time parameters of a body and what is nested in it.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// In order of declaration.
    pub locals: Vec<Local>,
}

/// A variable or run-time parameter.
#[derive(Clone, Debug)]
pub struct Local {
    /// As declared; not unique in a frame.
    pub name: Arc<str>,
    /// Its type.
    pub ty: Type,
    /// Parameter or variable.
    pub kind: LocalKind,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// Its name's place.
    pub span: Span,
}

/// What a [`Local`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalKind {
    /// A parameter; [`Direction::None`] is action data in actions, and an extern or compile-time value elsewhere.
    Param(Direction),
    /// A variable declaration or the variable of a `for`-`in` loop.
    Variable,
}

/// A run-time parameter of a declaration with a body.
#[derive(Clone, Debug)]
pub struct Param {
    /// Where its value lives.
    pub local: LocalId,
    /// As declared.
    pub name: Arc<str>,
    /// As declared.
    pub direction: Direction,
    /// Its type.
    pub ty: Type,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// Its place.
    pub span: Span,
}

/// A parameter of a signature without a body (externs, block types) or a constructor parameter.
#[derive(Clone, Debug)]
pub struct SigParam {
    /// As declared.
    pub name: Arc<str>,
    /// As declared.
    pub direction: Direction,
    /// Its type; may contain the declaration's type parameters.
    pub ty: Type,
    /// `@optional`, or it has a default.
    pub optional: bool,
    /// `= value`
    pub default: Option<Expr>,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// Its place.
    pub span: Span,
}

// ---------------------------------------------------------------------------------------------------- declarations

/// A function with a body.
#[derive(Clone, Debug)]
pub struct Function {
    /// As declared.
    pub name: Arc<str>,
    /// Of a generic function.
    pub type_args: Vec<Type>,
    /// Its variables.
    pub frame: FrameId,
    /// Parameters.
    pub params: Vec<Param>,
    /// What it returns.
    pub result: Type,
    /// Its statements.
    pub body: Block,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// Its name's place.
    pub span: Span,
}

/// An extern function.
#[derive(Clone, Debug)]
pub struct ExternFunction {
    /// As declared.
    pub name: Arc<str>,
    /// Type parameters.
    pub type_params: Vec<TypeVar>,
    /// Parameters.
    pub params: Vec<SigParam>,
    /// What it returns.
    pub result: Type,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// Its name's place.
    pub span: Span,
}

/// An extern object type.
#[derive(Clone, Debug)]
pub struct Extern {
    /// As declared.
    pub name: Arc<str>,
    /// Type parameters.
    pub type_params: Vec<TypeVar>,
    /// Methods and constructors in order.
    pub methods: Vec<ExternMethod>,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// Its name's place.
    pub span: Span,
}

/// What an [`ExternMethod`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MethodKind {
    /// Called on an instance.
    Method,
    /// Makes an instance.
    Constructor,
    /// Given by the instance declaration.
    Abstract,
}

/// A method or constructor of an extern object.
#[derive(Clone, Debug)]
pub struct ExternMethod {
    /// As declared.
    pub name: Arc<str>,
    /// Method, constructor or abstract.
    pub kind: MethodKind,
    /// Its own type parameters.
    pub type_params: Vec<TypeVar>,
    /// Parameters; types may contain its and the extern's type parameters.
    pub params: Vec<SigParam>,
    /// What it returns.
    pub result: Type,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// Its name's place.
    pub span: Span,
}

/// An action.
#[derive(Clone, Debug)]
pub struct Action {
    /// As declared.
    pub name: Arc<str>,
    /// The control it belongs to; `None` for a top-level action.
    pub owner: Option<ControlId>,
    /// The owner's frame, or its own.
    pub frame: FrameId,
    /// All parameters: directed ones first, then action data ([`Direction::None`]).
    pub params: Vec<Param>,
    /// Its statements.
    pub body: Block,
    /// Its control-plane name.
    pub control_name: ControlName,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// Its name's place.
    pub span: Span,
}

impl Action {
    /// The parameters that the control plane (or a direct call) gives values: action data.
    pub fn data_params(&self) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(|p| p.direction == Direction::None)
    }
}

/// How the control plane names a declaration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ControlName {
    /// `@name` or the declared name, without a leading dot.
    pub name: String,
    /// The name had a leading dot (or the declaration is at top level): it is not prefixed with the instances' names.
    pub global: bool,
    /// `@hidden`: not shown to the control plane.
    pub hidden: bool,
}

impl ControlName {
    /// The fully qualified name in an instance with a given prefix (its path; empty for none).
    pub fn qualified(&self, prefix: &str) -> String {
        if self.global || prefix.is_empty() { self.name.clone() } else { format!("{prefix}.{}", self.name) }
    }
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// As declared.
    pub name: Arc<str>,
    /// The control it belongs to.
    pub owner: ControlId,
    /// Its control-plane name.
    pub control_name: ControlName,
    /// In order.
    pub keys: Vec<Key>,
    /// In order; if no `default_action` is written and `NoAction` is not listed, it stands at the end with
    /// `implicit`.
    pub actions: Vec<TableAction>,
    /// What runs on a miss; `None` only when the program has no `NoAction` (no `core.p4`).
    pub default_action: Option<DefaultAction>,
    /// `psa_empty_group_action` and the like: what a group without members runs.
    pub empty_group_action: Option<DefaultAction>,
    /// `entries = { }`
    pub entries: Vec<Entry>,
    /// Whether `const entries`.
    pub const_entries: bool,
    /// Whether an `entries` property is there (even an empty one).
    pub has_entries: bool,
    /// `size = n`
    pub size: Option<Expr>,
    /// Other properties: `implementation`, `counters`, `meters`, `support_timeout`, `largest_priority_wins`, …
    pub properties: Vec<Property>,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// Its name's place.
    pub span: Span,
}

impl Table {
    /// A further property by name.
    pub fn property(&self, name: &str) -> Option<&Property> {
        self.properties.iter().find(|p| &*p.name == name)
    }
}

/// A key element.
#[derive(Clone, Debug)]
pub struct Key {
    /// The value looked up.
    pub expr: Expr,
    /// Index into [`Program::match_kinds`].
    pub match_kind: u32,
    /// Its name: `exact`, `lpm`, …
    pub match_kind_name: Arc<str>,
    /// Control-plane name: `@name`, or the expression's text.
    pub name: String,
    /// After it.
    pub annotations: Vec<Annotation>,
    /// All of it.
    pub span: Span,
}

/// An action of a table.
#[derive(Clone, Debug)]
pub struct TableAction {
    /// Which.
    pub action: ActionId,
    /// One per parameter: the directed ones are given here, action data are [`ArgValue::Absent`].
    pub args: Vec<Arg>,
    /// `@defaultonly`
    pub default_only: bool,
    /// `@tableonly`
    pub table_only: bool,
    /// `@groupaction`: runs before the member that a group's action set selects, and only there.
    pub group_only: bool,
    /// Not in the source: the `NoAction` of a table without `default_action`.
    pub implicit: bool,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// Its place.
    pub span: Span,
}

/// `default_action = action(args);`
#[derive(Clone, Debug)]
pub struct DefaultAction {
    /// Index into [`Table::actions`].
    pub action: u32,
    /// Values of the action data, one per data parameter; compile-time known in an instance.
    pub args: Vec<Expr>,
    /// `const default_action`
    pub is_const: bool,
    /// Its place.
    pub span: Span,
}

/// An entry.
#[derive(Clone, Debug)]
pub struct Entry {
    /// `const` (of the entry or of the whole list).
    pub is_const: bool,
    /// `priority = n:`
    pub priority: Option<Value>,
    /// One per key.
    pub keysets: Vec<Keyset>,
    /// Index into [`Table::actions`].
    pub action: u32,
    /// Values of the action data, one per data parameter.
    pub args: Vec<Expr>,
    /// After it.
    pub annotations: Vec<Annotation>,
    /// All of it.
    pub span: Span,
}

/// A set of values for one key. Expressions have the key's type.
#[derive(Clone, Debug)]
pub enum Keyset {
    /// One value.
    Value(Expr),
    /// `value &&& mask`
    Mask(Expr, Expr),
    /// `low .. high`, both included.
    Range(Expr, Expr),
    /// `_` or `default`
    DontCare,
    /// A parser value set (in `select` only).
    ValueSet(ValueSetId),
}

/// `name = value;` of a table.
#[derive(Clone, Debug)]
pub struct Property {
    /// As written.
    pub name: Arc<str>,
    /// `const`
    pub is_const: bool,
    /// Its value; an instance is [`ExprKind::Instance`].
    pub value: Expr,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// All of it.
    pub span: Span,
}

/// A control.
#[derive(Clone, Debug)]
pub struct Control {
    /// As declared.
    pub name: Arc<str>,
    /// Its variables.
    pub frame: FrameId,
    /// Run-time parameters.
    pub params: Vec<Param>,
    /// Constructor parameters.
    pub ctor_params: Vec<SigParam>,
    /// Instances in order, anonymous ones included.
    pub instances: Vec<InstanceDecl>,
    /// Its actions.
    pub actions: Vec<ActionId>,
    /// Its tables.
    pub tables: Vec<TableId>,
    /// Declarations of the control's variables ([`StmtKind::Var`]), done before `body` each time it is applied.
    pub locals: Vec<Stmt>,
    /// The `apply` block.
    pub body: Block,
    /// Its name for the control plane where an instance has none of its own.
    pub control_name: ControlName,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// Its name's place.
    pub span: Span,
}

/// A parser.
#[derive(Clone, Debug)]
pub struct Parser {
    /// As declared.
    pub name: Arc<str>,
    /// Its variables.
    pub frame: FrameId,
    /// Run-time parameters.
    pub params: Vec<Param>,
    /// Constructor parameters.
    pub ctor_params: Vec<SigParam>,
    /// Instances in order, anonymous ones included.
    pub instances: Vec<InstanceDecl>,
    /// Its value sets.
    pub value_sets: Vec<ValueSetId>,
    /// Declarations of the parser's variables ([`StmtKind::Var`]), done before `start` each time it is applied.
    pub locals: Vec<Stmt>,
    /// In order.
    pub states: Vec<State>,
    /// The index of `start`.
    pub start: u32,
    /// Its name for the control plane where an instance has none of its own.
    pub control_name: ControlName,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// Its name's place.
    pub span: Span,
}

/// A parser state.
#[derive(Clone, Debug)]
pub struct State {
    /// As declared.
    pub name: Arc<str>,
    /// Statements.
    pub body: Vec<Stmt>,
    /// Where it goes on.
    pub transition: Transition,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// All of it.
    pub span: Span,
}

impl State {
    /// The states that it goes on to.
    pub fn targets(&self) -> impl Iterator<Item = Target> {
        let (direct, cases) = match &self.transition {
            Transition::Direct(target) => (Some(*target), &[][..]),
            Transition::Select { cases, .. } => (None, cases.as_slice()),
        };
        direct.into_iter().chain(cases.iter().map(|c| c.target))
    }
}

/// Where a state goes on.
#[derive(Clone, Debug)]
pub enum Transition {
    /// `transition target;` (a missing transition is to `reject`)
    Direct(Target),
    /// `transition select(keys) { cases }`; without a matching case the error is `NoMatch`.
    Select {
        /// What is matched.
        keys: Vec<Expr>,
        /// In order; the first that matches.
        cases: Vec<SelectCase>,
        /// All of it.
        span: Span,
    },
}

/// The target of a transition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Index into [`Parser::states`].
    State(u32),
    /// `accept`
    Accept,
    /// `reject`
    Reject,
}

/// A case of a `select`.
#[derive(Clone, Debug)]
pub struct SelectCase {
    /// One per key; or a sole [`Keyset::ValueSet`] whose element type is a struct or tuple with one field per key
    /// (fields of nested structs counted singly).
    pub keysets: Vec<Keyset>,
    /// Where to.
    pub target: Target,
    /// All of it.
    pub span: Span,
}

/// `value_set<T>(size) name;`
#[derive(Clone, Debug)]
pub struct ValueSet {
    /// As declared.
    pub name: Arc<str>,
    /// The parser it belongs to.
    pub owner: ParserId,
    /// Its control-plane name.
    pub control_name: ControlName,
    /// Element type; a struct's fields may have `@match` annotations.
    pub element: Type,
    /// Size hint; compile-time known in an instance.
    pub size: Expr,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// Its name's place.
    pub span: Span,
}

// ---------------------------------------------------------------------------------------------------- instances

/// `T(args) name;`, or a constructor call.
#[derive(Clone, Debug)]
pub struct InstanceDecl {
    /// As declared; of an anonymous one the type's name.
    pub name: Arc<str>,
    /// Whether the source gives it no name.
    pub anonymous: bool,
    /// [`Type::Extern`], [`Type::Parser`], [`Type::Control`], or [`Type::Block`] of a package.
    pub ty: Type,
    /// For externs: the constructor, index into [`Extern::methods`].
    pub constructor: Option<u32>,
    /// How many objects, in an array of externs (`E(args) name[n]`); the expression that names it is an
    /// [`ExprKind::Instance`] of type [`Type::Stack`].
    pub count: Option<u32>,
    /// One per constructor parameter, as with calls; compile-time known in an instance.
    pub args: Vec<Arg>,
    /// Implementations of abstract methods: index into [`Extern::methods`], and the function.
    pub methods: Vec<(u32, FunctionId)>,
    /// Its control-plane name.
    pub control_name: ControlName,
    /// Before it.
    pub annotations: Vec<Annotation>,
    /// Its name's place.
    pub span: Span,
}

/// An instance that exists when the program runs.
#[derive(Clone, Debug)]
pub struct Instance {
    /// What it is an instance of.
    pub of: InstanceOf,
    /// Its type (with type arguments).
    pub ty: Type,
    /// Its local name.
    pub name: Arc<str>,
    /// Fully qualified control-plane name: the prefix of the names of what is in it. Blocks given to a package are not
    /// prefixed with the package's name.
    pub path: String,
    /// `@hidden`
    pub hidden: bool,
    /// The instance it is declared in; `None` at top level.
    pub parent: Option<InstanceId>,
    /// Values of its constructor parameters, in parameter order.
    pub args: Vec<InstanceArg>,
    /// Instances of the declarations in `Control::instances` / `Parser::instances`, in parallel.
    pub children: Vec<InstanceId>,
    /// Implementations of abstract methods: index into [`Extern::methods`], and the function.
    pub methods: Vec<(u32, FunctionId)>,
    /// For externs: the constructor, index into [`Extern::methods`].
    pub constructor: Option<u32>,
    /// How many objects, in an array of externs.
    pub count: Option<u32>,
    /// Of the declaration.
    pub annotations: Vec<Annotation>,
    /// The declaration's place.
    pub span: Span,
}

/// What an [`Instance`] is an instance of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstanceOf {
    /// An extern object.
    Extern(ExternId),
    /// A parser.
    Parser(ParserId),
    /// A control.
    Control(ControlId),
    /// A package.
    Package(crate::types::BlockTypeId),
}

/// A constructor argument.
#[derive(Clone, Debug)]
pub struct InstanceArg {
    /// The parameter's name.
    pub name: Arc<str>,
    /// The parameter's type.
    pub ty: Type,
    /// Its value; [`Value::Absent`] when optional and not given.
    pub value: Value,
}

impl Instance {
    /// The value of a constructor parameter.
    pub fn arg(&self, name: &str) -> Option<&Value> {
        self.args.iter().find(|a| &*a.name == name).map(|a| &a.value)
    }
}

impl Program {
    /// An instance.
    pub fn instance(&self, id: InstanceId) -> &Instance {
        &self.instances[id.index()]
    }

    /// The instance that a reference in the body of `within` means.
    pub fn resolve(&self, reference: InstanceRef, within: Option<InstanceId>) -> Option<InstanceId> {
        match reference {
            InstanceRef::Global(i) => self.global_instances.get(i as usize).copied(),
            InstanceRef::Local(i) => self.instances.get(within?.index())?.children.get(i as usize).copied(),
            InstanceRef::CtorParam(i) => self.instances.get(within?.index())?.args.get(i as usize)?.value.as_instance(),
        }
    }

    /// The compile-time value of an expression in the body of `within` (`None`: outside any parser or control).
    pub fn eval(&self, expr: &Expr, within: Option<InstanceId>) -> Option<Value> {
        crate::consteval::eval(self, expr, within)
    }

    /// The name of an extern type.
    pub fn extern_name(&self, id: ExternId) -> &str {
        &self.externs[id.index()].name
    }

    /// A package type's declaration kind check: whether a block type is a package.
    pub fn is_package(&self, ty: &Type) -> bool {
        matches!(ty, Type::Block(id, _) if self.types.block_types[id.index()].kind == BlockKind::Package)
    }
}
