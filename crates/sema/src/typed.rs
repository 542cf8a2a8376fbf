//! The typed program: the checker's output and the input of lowering and P4Info generation. Everything is resolved:
//! later stages infer no types, look up no names and apply no implicit conversions.
//!
//! **Shape.** All declarations of a kind are in one vector of [`Program`] and are referred to by typed ids: controls,
//! parsers, actions, tables, functions, externs. A body is checked once per *declaration* (a generic function: once per
//! list of type arguments); two instances of a control differ only in the values of its constructor parameters. The
//! [`Instance`] tree, elaborated from `main`, lists the instances that exist, with their control-plane names,
//! constructor arguments and nested instances; [`Program::eval`] evaluates a constructor-dependent expression in a
//! given instance.
//!
//! **Variables.** Every parser, control, function and top-level action has a [`Frame`]: all its variables and run-time
//! parameters, including those of its actions and nested blocks. [`ExprKind::Local`] is an index into the frame of the
//! enclosing body; an action inside a control uses the control's frame. A variable declaration is a statement
//! ([`StmtKind::Var`]) that starts a new lifetime of the variable each time it is executed.
//!
//! **Expressions.** Compile-time known values are folded: [`ExprKind::Const`]. Named constants are replaced by their
//! values (or, if they depend on constructor parameters, by their expressions). Every implicit conversion is an
//! explicit [`ExprKind::Cast`] or [`ExprKind::Aggregate`]: `{ 1, x }` for a struct, header, tuple, list or stack has
//! one element per field in declaration order, even if the source names the fields, and `...` is replaced by default
//! values. Both operands of an arithmetic operator have the same type, except that the right operand of a shift has any
//! type `bit<S>` (a constant shift amount is a `bit<32>`). Types of expressions never contain [`Type::Var`].
//!
//! **Calls.** Arguments are in parameter order, one per parameter: named and default arguments are resolved, and an
//! omitted argument is [`ArgValue::Absent`]. `in` and directionless arguments have been cast to the parameter's type;
//! `out` and `inout` arguments are l-values of exactly that type, or [`ArgValue::DontCare`].
//!
//! **Instances inside bodies** are [`InstanceRef`]s, and the expression that names one is [`ExprKind::Instance`]; an
//! extern passed as a run-time parameter (`packet_in packet`) is an [`ExprKind::Local`] of extern type. `C.apply(...)`
//! on a type name and constructor calls in arguments or table properties have become anonymous instance declarations.

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
    /// Named types and what they consist of.
    pub types: TypeTable,
    /// Members of `error` in declaration order; `NoError` is 0 when `core.p4` is included.
    pub errors: Vec<Arc<str>>,
    /// Members of `match_kind` in declaration order.
    pub match_kinds: Vec<Arc<str>>,
    /// Variables and parameters of all bodies.
    pub frames: Vec<Frame>,
    /// Functions with a body; a generic function has one element per instantiation in use.
    pub functions: Vec<Function>,
    /// Extern functions.
    pub extern_functions: Vec<ExternFunction>,
    /// Extern object types.
    pub externs: Vec<Extern>,
    /// Actions, both top-level ones and those declared in controls.
    pub actions: Vec<Action>,
    /// Tables of all controls.
    pub tables: Vec<Table>,
    /// Value sets of all parsers.
    pub value_sets: Vec<ValueSet>,
    /// Controls.
    pub controls: Vec<Control>,
    /// Parsers.
    pub parsers: Vec<Parser>,
    /// Top-level instance declarations, including `main`; [`InstanceRef::Global`] is an index into this vector.
    pub globals: Vec<InstanceDecl>,
    /// The elaborated instances of `globals`, at the same indices.
    pub global_instances: Vec<InstanceId>,
    /// All instances that exist; parents precede children, except for instances passed as constructor arguments.
    pub instances: Vec<Instance>,
    /// The instance of `main`.
    pub main: Option<InstanceId>,
}

/// The first annotation with this name, if there is one.
pub fn find_annotation<'a>(annotations: &'a [Annotation], name: &str) -> Option<&'a Annotation> {
    annotations.iter().find(|a| &*a.name == name)
}

// ---------------------------------------------------------------------------------------------------- variables, parameters

/// All variables and run-time parameters of a body, including those of nested declarations and blocks.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// Variables and parameters in declaration order.
    pub locals: Vec<Local>,
}

/// A variable or run-time parameter.
#[derive(Clone, Debug)]
pub struct Local {
    /// The declared name; not unique within a frame.
    pub name: Arc<str>,
    /// Its type.
    pub ty: Type,
    /// Parameter or variable.
    pub kind: LocalKind,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Span of its name.
    pub span: Span,
}

/// What a [`Local`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalKind {
    /// A parameter. With [`Direction::None`] it is action data in an action, and an extern or compile-time value
    /// elsewhere.
    Param(Direction),
    /// A variable declaration or the variable of a `for`-`in` loop.
    Variable,
}

/// A run-time parameter of a declaration with a body.
#[derive(Clone, Debug)]
pub struct Param {
    /// The element of the frame that holds its value.
    pub local: LocalId,
    /// The declared name.
    pub name: Arc<str>,
    /// The declared direction.
    pub direction: Direction,
    /// Its type.
    pub ty: Type,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Its span.
    pub span: Span,
}

/// A parameter of a signature without a body (extern, parser, control or package type) or a constructor parameter.
#[derive(Clone, Debug)]
pub struct SigParam {
    /// The declared name.
    pub name: Arc<str>,
    /// The declared direction.
    pub direction: Direction,
    /// Its type; may contain the declaration's type parameters.
    pub ty: Type,
    /// Whether it is `@optional` or has a default value.
    pub optional: bool,
    /// The default value: `= value`.
    pub default: Option<Expr>,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Its span.
    pub span: Span,
}

// ---------------------------------------------------------------------------------------------------- declarations

/// A function with a body.
#[derive(Clone, Debug)]
pub struct Function {
    /// The declared name.
    pub name: Arc<str>,
    /// Type arguments of this instantiation of a generic function; empty otherwise.
    pub type_args: Vec<Type>,
    /// Its variables and run-time parameters.
    pub frame: FrameId,
    /// Parameters in declaration order.
    pub params: Vec<Param>,
    /// Return type.
    pub result: Type,
    /// Its statements.
    pub body: Block,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Span of its name.
    pub span: Span,
}

/// An extern function.
#[derive(Clone, Debug)]
pub struct ExternFunction {
    /// The declared name.
    pub name: Arc<str>,
    /// Type parameters.
    pub type_params: Vec<TypeVar>,
    /// Parameters in declaration order.
    pub params: Vec<SigParam>,
    /// Return type.
    pub result: Type,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Span of its name.
    pub span: Span,
}

/// An extern object type.
#[derive(Clone, Debug)]
pub struct Extern {
    /// The declared name.
    pub name: Arc<str>,
    /// Type parameters.
    pub type_params: Vec<TypeVar>,
    /// Methods and constructors in declaration order.
    pub methods: Vec<ExternMethod>,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Span of its name.
    pub span: Span,
}

/// What an [`ExternMethod`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MethodKind {
    /// Called on an instance.
    Method,
    /// Creates an instance.
    Constructor,
    /// Abstract; implemented in the instance declaration.
    Abstract,
}

/// A method or constructor of an extern object.
#[derive(Clone, Debug)]
pub struct ExternMethod {
    /// The declared name.
    pub name: Arc<str>,
    /// Method, constructor or abstract.
    pub kind: MethodKind,
    /// Its own type parameters.
    pub type_params: Vec<TypeVar>,
    /// Parameters; their types may contain type parameters of the method and of the extern.
    pub params: Vec<SigParam>,
    /// Return type.
    pub result: Type,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Span of its name.
    pub span: Span,
}

/// An action.
#[derive(Clone, Debug)]
pub struct Action {
    /// The declared name.
    pub name: Arc<str>,
    /// The control that declares it; `None` for a top-level action.
    pub owner: Option<ControlId>,
    /// The frame of the enclosing control, or its own for a top-level action.
    pub frame: FrameId,
    /// All parameters: directed ones first, then action data ([`Direction::None`]).
    pub params: Vec<Param>,
    /// Its statements.
    pub body: Block,
    /// Its control-plane name.
    pub control_name: ControlName,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Span of its name.
    pub span: Span,
}

impl Action {
    /// The action data: directionless parameters, whose values come from the control plane or a direct call.
    pub fn data_params(&self) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(|p| p.direction == Direction::None)
    }
}

/// The control-plane name of a declaration (P4_16, "Computing control-plane names").
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ControlName {
    /// `@name` or the declared name, without a leading dot.
    pub name: String,
    /// Whether the name is absolute (leading dot, or top-level declaration): enclosing instances' names are not
    /// prefixed.
    pub global: bool,
    /// `@hidden`: not shown to the control plane.
    pub hidden: bool,
}

impl ControlName {
    /// The fully qualified name inside an instance whose path is `prefix` (empty: no prefix).
    pub fn qualified(&self, prefix: &str) -> String {
        if self.global || prefix.is_empty() { self.name.clone() } else { format!("{prefix}.{}", self.name) }
    }
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// The declared name.
    pub name: Arc<str>,
    /// The control that declares it.
    pub owner: ControlId,
    /// Its control-plane name.
    pub control_name: ControlName,
    /// Key elements in declaration order.
    pub keys: Vec<Key>,
    /// The action list in source order. If the table has neither a `default_action` nor `NoAction` in its list,
    /// `NoAction` is appended with `implicit` set.
    pub actions: Vec<TableAction>,
    /// The action that runs on a miss; `None` only when the program has no `NoAction` (no `core.p4`).
    pub default_action: Option<DefaultAction>,
    /// `psa_empty_group_action` and its equivalents: the action that an empty action selector group runs.
    pub empty_group_action: Option<DefaultAction>,
    /// `entries = { }`
    pub entries: Vec<Entry>,
    /// Whether `const entries`.
    pub const_entries: bool,
    /// Whether the table has an `entries` property, even an empty one.
    pub has_entries: bool,
    /// `size = n`
    pub size: Option<Expr>,
    /// Other properties: `implementation`, `counters`, `meters`, `support_timeout`, `largest_priority_wins`, …
    pub properties: Vec<Property>,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Span of its name.
    pub span: Span,
}

impl Table {
    /// The element of `properties` with this name.
    pub fn property(&self, name: &str) -> Option<&Property> {
        self.properties.iter().find(|p| &*p.name == name)
    }
}

/// A key element.
#[derive(Clone, Debug)]
pub struct Key {
    /// The expression whose value is looked up.
    pub expr: Expr,
    /// Index into [`Program::match_kinds`].
    pub match_kind: u32,
    /// Its name: `exact`, `lpm`, …
    pub match_kind_name: Arc<str>,
    /// Control-plane name: `@name`, or the expression's text.
    pub name: String,
    /// Annotations after it.
    pub annotations: Vec<Annotation>,
    /// Span of the whole construct.
    pub span: Span,
}

/// An action of a table.
#[derive(Clone, Debug)]
pub struct TableAction {
    /// The listed action.
    pub action: ActionId,
    /// One per parameter: directed arguments are bound here, action data are [`ArgValue::Absent`].
    pub args: Vec<Arg>,
    /// `@defaultonly`
    pub default_only: bool,
    /// `@tableonly`
    pub table_only: bool,
    /// `@groupaction`: runs before the action of the selected group member, and only there.
    pub group_only: bool,
    /// Whether it is not in the source: the implicit `NoAction` of a table without `default_action`.
    pub implicit: bool,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Its span.
    pub span: Span,
}

/// `default_action = action(args);`
#[derive(Clone, Debug)]
pub struct DefaultAction {
    /// Index into [`Table::actions`].
    pub action: u32,
    /// Values of the action data, one per data parameter; compile-time known within an instance.
    pub args: Vec<Expr>,
    /// `const default_action`
    pub is_const: bool,
    /// Its span.
    pub span: Span,
}

/// An entry of a table's `entries` property.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Whether the entry or the whole `entries` property is `const`.
    pub is_const: bool,
    /// `priority = n:`
    pub priority: Option<Value>,
    /// One per key.
    pub keysets: Vec<Keyset>,
    /// Index into [`Table::actions`].
    pub action: u32,
    /// Values of the action data, one per data parameter.
    pub args: Vec<Expr>,
    /// Annotations after it.
    pub annotations: Vec<Annotation>,
    /// Span of the whole construct.
    pub span: Span,
}

/// A keyset (P4_16, "Operations on sets"): the values that one key element matches. The expressions have the key's
/// type.
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

/// A table property, `name = value;`.
#[derive(Clone, Debug)]
pub struct Property {
    /// The name as written.
    pub name: Arc<str>,
    /// `const`
    pub is_const: bool,
    /// Its value; [`ExprKind::Instance`] if it is an instance.
    pub value: Expr,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Span of the whole construct.
    pub span: Span,
}

/// A control.
#[derive(Clone, Debug)]
pub struct Control {
    /// The declared name.
    pub name: Arc<str>,
    /// Its variables and run-time parameters.
    pub frame: FrameId,
    /// Run-time parameters.
    pub params: Vec<Param>,
    /// Constructor parameters.
    pub ctor_params: Vec<SigParam>,
    /// Instance declarations in source order, including anonymous ones.
    pub instances: Vec<InstanceDecl>,
    /// Its actions.
    pub actions: Vec<ActionId>,
    /// Its tables.
    pub tables: Vec<TableId>,
    /// Declarations of the control's variables ([`StmtKind::Var`]), executed before `body` each time it is applied.
    pub locals: Vec<Stmt>,
    /// The `apply` block.
    pub body: Block,
    /// Its control-plane name, for instances that have no name of their own.
    pub control_name: ControlName,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Span of its name.
    pub span: Span,
}

/// A parser.
#[derive(Clone, Debug)]
pub struct Parser {
    /// The declared name.
    pub name: Arc<str>,
    /// Its variables and run-time parameters.
    pub frame: FrameId,
    /// Run-time parameters.
    pub params: Vec<Param>,
    /// Constructor parameters.
    pub ctor_params: Vec<SigParam>,
    /// Instance declarations in source order, including anonymous ones.
    pub instances: Vec<InstanceDecl>,
    /// Its value sets.
    pub value_sets: Vec<ValueSetId>,
    /// Declarations of the parser's variables ([`StmtKind::Var`]), executed before `start` each time it is applied.
    pub locals: Vec<Stmt>,
    /// States in declaration order.
    pub states: Vec<State>,
    /// Index of the state `start`.
    pub start: u32,
    /// Its control-plane name, for instances that have no name of their own.
    pub control_name: ControlName,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Span of its name.
    pub span: Span,
}

/// A parser state.
#[derive(Clone, Debug)]
pub struct State {
    /// The declared name.
    pub name: Arc<str>,
    /// Statements.
    pub body: Vec<Stmt>,
    /// Its transition.
    pub transition: Transition,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Span of the whole construct.
    pub span: Span,
}

impl State {
    /// The targets of its transition, including `accept` and `reject`.
    pub fn targets(&self) -> impl Iterator<Item = Target> {
        let (direct, cases) = match &self.transition {
            Transition::Direct(target) => (Some(*target), &[][..]),
            Transition::Select { cases, .. } => (None, cases.as_slice()),
        };
        direct.into_iter().chain(cases.iter().map(|c| c.target))
    }
}

/// The transition at the end of a parser state.
#[derive(Clone, Debug)]
pub enum Transition {
    /// `transition target;` (a state without a transition goes to `reject`)
    Direct(Target),
    /// `transition select(keys) { cases }`; if no case matches, the parser error is `NoMatch`.
    Select {
        /// The expressions that are matched.
        keys: Vec<Expr>,
        /// Cases in source order; the first that matches is taken.
        cases: Vec<SelectCase>,
        /// Span of the whole construct.
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
    /// One per key; or a single [`Keyset::ValueSet`] whose element type is a struct or tuple with one field per key
    /// (fields of nested structs count individually).
    pub keysets: Vec<Keyset>,
    /// The state that follows when the case matches.
    pub target: Target,
    /// Span of the whole construct.
    pub span: Span,
}

/// `value_set<T>(size) name;`
#[derive(Clone, Debug)]
pub struct ValueSet {
    /// The declared name.
    pub name: Arc<str>,
    /// The parser that declares it.
    pub owner: ParserId,
    /// Its control-plane name.
    pub control_name: ControlName,
    /// Element type; fields of a struct may have `@match` annotations.
    pub element: Type,
    /// Size hint; compile-time known within an instance.
    pub size: Expr,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Span of its name.
    pub span: Span,
}

// ---------------------------------------------------------------------------------------------------- instances

/// An instantiation: `T(args) name;` or a constructor call.
#[derive(Clone, Debug)]
pub struct InstanceDecl {
    /// The declared name; the type's name if the instance is anonymous.
    pub name: Arc<str>,
    /// Whether the source gives it no name (a constructor call).
    pub anonymous: bool,
    /// [`Type::Extern`], [`Type::Parser`], [`Type::Control`], or [`Type::Block`] of a package.
    pub ty: Type,
    /// For externs: the constructor, index into [`Extern::methods`].
    pub constructor: Option<u32>,
    /// Number of objects in an array of externs (`E(args) name[n]`); the expression that names the array is an
    /// [`ExprKind::Instance`] of type [`Type::Stack`].
    pub count: Option<u32>,
    /// One per constructor parameter, as in a call; compile-time known within an instance.
    pub args: Vec<Arg>,
    /// Implementations of abstract methods: index into [`Extern::methods`], and the function.
    pub methods: Vec<(u32, FunctionId)>,
    /// Its control-plane name.
    pub control_name: ControlName,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Span of its name.
    pub span: Span,
}

/// An instance in the elaborated instance tree.
#[derive(Clone, Debug)]
pub struct Instance {
    /// What it is an instance of.
    pub of: InstanceOf,
    /// Its type (with type arguments).
    pub ty: Type,
    /// Its local name.
    pub name: Arc<str>,
    /// Fully qualified control-plane name, the prefix of the names inside it. Blocks passed to a package are not
    /// prefixed with the package's name.
    pub path: String,
    /// `@hidden`
    pub hidden: bool,
    /// The instance it is declared in; `None` at top level.
    pub parent: Option<InstanceId>,
    /// Values of its constructor parameters, in parameter order.
    pub args: Vec<InstanceArg>,
    /// The instances of `Control::instances` or `Parser::instances`, at the same indices.
    pub children: Vec<InstanceId>,
    /// Implementations of abstract methods: index into [`Extern::methods`], and the function.
    pub methods: Vec<(u32, FunctionId)>,
    /// For externs: the constructor, index into [`Extern::methods`].
    pub constructor: Option<u32>,
    /// Number of objects, in an array of externs.
    pub count: Option<u32>,
    /// Annotations of the declaration.
    pub annotations: Vec<Annotation>,
    /// Span of the declaration.
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
    /// Its value; [`Value::Absent`] if it is optional and omitted.
    pub value: Value,
}

impl Instance {
    /// The value of the constructor parameter `name`.
    pub fn arg(&self, name: &str) -> Option<&Value> {
        self.args.iter().find(|a| &*a.name == name).map(|a| &a.value)
    }
}

impl Program {
    /// The instance with this id.
    pub fn instance(&self, id: InstanceId) -> &Instance {
        &self.instances[id.index()]
    }

    /// The instance that a reference in the body of instance `within` refers to.
    pub fn resolve(&self, reference: InstanceRef, within: Option<InstanceId>) -> Option<InstanceId> {
        match reference {
            InstanceRef::Global(i) => self.global_instances.get(i as usize).copied(),
            InstanceRef::Local(i) => self.instances.get(within?.index())?.children.get(i as usize).copied(),
            InstanceRef::CtorParam(i) => self.instances.get(within?.index())?.args.get(i as usize)?.value.as_instance(),
        }
    }

    /// The compile-time value of an expression in the body of instance `within` (`None`: outside any parser or
    /// control); `None` if the expression has none.
    pub fn eval(&self, expr: &Expr, within: Option<InstanceId>) -> Option<Value> {
        crate::consteval::eval(self, expr, within)
    }

    /// The name of an extern type.
    pub fn extern_name(&self, id: ExternId) -> &str {
        &self.externs[id.index()].name
    }

    /// Whether a type is a package type.
    pub fn is_package(&self, ty: &Type) -> bool {
        matches!(ty, Type::Block(id, _) if self.types.block_types[id.index()].kind == BlockKind::Package)
    }
}
