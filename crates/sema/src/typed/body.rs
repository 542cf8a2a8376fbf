//! What stands in bodies: expressions, calls, statements. The promises are those of the module above.

use crate::annotation::Annotation;
use crate::ids::{ActionId, ExternFunctionId, ExternId, FunctionId, LocalId, TableId};
use crate::types::Type;
use crate::value::Value;
use base::Span;
use std::sync::Arc;
use syntax::ast::{BinaryOp, Direction, UnaryOp};

// ---------------------------------------------------------------------------------------------------- expressions

/// A typed expression.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it computes.
    pub kind: ExprKind,
    /// Its type.
    pub ty: Type,
    /// Its place.
    pub span: Span,
}

impl Expr {
    /// The compile-time value, if it has one in every instance.
    pub fn as_const(&self) -> Option<&Value> {
        match &self.kind {
            ExprKind::Const(value) => Some(value),
            _ => None,
        }
    }

    /// Calls `f` for the expressions that this one directly consists of. A call is given back: what becomes of its
    /// arguments depends on their directions.
    pub fn for_each_child<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) -> Option<&'a Call> {
        match &self.kind {
            ExprKind::Const(_)
            | ExprKind::Local(_)
            | ExprKind::CtorParam(_)
            | ExprKind::Instance(_)
            | ExprKind::This => {}
            ExprKind::Field(a, _)
            | ExprKind::TupleElement(a, _)
            | ExprKind::StackNext(a)
            | ExprKind::StackLast(a)
            | ExprKind::StackLastIndex(a)
            | ExprKind::Slice { base: a, .. }
            | ExprKind::Unary(_, a)
            | ExprKind::Cast(a) => f(a),
            ExprKind::StackElement { stack: a, index: b }
            | ExprKind::SliceFrom { base: a, low: b, .. }
            | ExprKind::Binary(_, a, b) => {
                f(a);
                f(b);
            }
            ExprKind::Ternary { cond, then, otherwise } => {
                f(cond);
                f(then);
                f(otherwise);
            }
            ExprKind::Aggregate(elements) => elements.iter().for_each(f),
            ExprKind::Call(call) | ExprKind::ApplyHit(call) | ExprKind::ApplyMiss(call) => return Some(call),
        }
        None
    }
}

/// What an [`Expr`] computes.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// A compile-time known value of the expression's type.
    Const(Value),
    /// A variable or run-time parameter.
    Local(LocalId),
    /// A constructor parameter of the enclosing parser or control that is a value: index into its `ctor_params`.
    CtorParam(u32),
    /// An extern, parser, control or package instance, or a constructor parameter that is one.
    Instance(InstanceRef),
    /// Field number `.1` of a struct, header or header union.
    Field(Box<Expr>, u32),
    /// Element number `.1` of a tuple.
    TupleElement(Box<Expr>, u32),
    /// `stack[index]`; the index is of any `bit`/`int` type or a constant in range.
    StackElement {
        /// The stack.
        stack: Box<Expr>,
        /// Which element.
        index: Box<Expr>,
    },
    /// `stack.next`: the element at `nextIndex`; parser error `StackOutOfBounds` when there is none.
    StackNext(Box<Expr>),
    /// `stack.last`: the element at `nextIndex - 1`; parser error `StackOutOfBounds` when there is none.
    StackLast(Box<Expr>),
    /// `stack.lastIndex`: `nextIndex - 1`, a `bit<32>`.
    StackLastIndex(Box<Expr>),
    /// `base[high:low]`
    Slice {
        /// The value; as l-value too.
        base: Box<Expr>,
        /// Highest bit.
        high: u32,
        /// Lowest bit.
        low: u32,
    },
    /// `base[low +: width]` with a `low` that is not constant (otherwise it is a `Slice`).
    SliceFrom {
        /// The value; as l-value too.
        base: Box<Expr>,
        /// Lowest bit.
        low: Box<Expr>,
        /// Number of bits.
        width: u32,
    },
    /// `op operand`
    Unary(UnaryOp, Box<Expr>),
    /// `left op right`. `&&` and `||` are short-circuit. Both sides of `==` and `!=` have one type of any comparable kind
    /// (also structs, headers, tuples, stacks).
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `cond ? then : otherwise`; only the chosen side is evaluated.
    Ternary {
        /// The condition.
        cond: Box<Expr>,
        /// Value when true.
        then: Box<Expr>,
        /// Value when false.
        otherwise: Box<Expr>,
    },
    /// A conversion from the operand's type to the expression's, explicit or implicit: `bit`↔`int` of one width (no
    /// change), widths (zero or sign extension by the *operand's* signedness, truncation), `bool`↔`bit<1>`, `type` and
    /// serialisable enum to or from the underlying type (no change).
    Cast(Box<Expr>),
    /// A value built from one expression per field or element, by the expression's type: struct, header (valid), tuple,
    /// list, or stack.
    Aggregate(Vec<Expr>),
    /// A call that yields a value.
    Call(Box<Call>),
    /// `table.apply().hit`
    ApplyHit(Box<Call>),
    /// `table.apply().miss`
    ApplyMiss(Box<Call>),
    /// `this`: the instance whose abstract method is being implemented.
    This,
}

/// How a body names an instance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum InstanceRef {
    /// Of the enclosing parser or control: index into its `instances` (and [`Instance::children`]).
    Local(u32),
    /// A constructor parameter of the enclosing parser or control: index into its `ctor_params`.
    CtorParam(u32),
    /// A top-level one: index into [`Program::globals`].
    Global(u32),
}

/// A resolved call.
#[derive(Clone, Debug)]
pub struct Call {
    /// What is called.
    pub callee: Callee,
    /// Type arguments, written or inferred; one per type parameter.
    pub type_args: Vec<Type>,
    /// One per parameter, in parameter order.
    pub args: Vec<Arg>,
    /// What it returns.
    pub result: Type,
    /// All of it.
    pub span: Span,
}

/// What a [`Call`] calls.
#[derive(Clone, Debug)]
pub enum Callee {
    /// A function with a body.
    Function(FunctionId),
    /// An action, called directly.
    Action(ActionId),
    /// An extern function, `verify`, `static_assert`, `clone`, …
    ExternFunction(ExternFunctionId),
    /// A method of an extern object: `packet.extract`, `counter.count`, …
    ExternMethod {
        /// [`ExprKind::Instance`], an element of an array of instances, [`ExprKind::Local`] or [`ExprKind::This`]; of type
        /// [`Type::Extern`].
        object: Expr,
        /// Its type's declaration.
        extern_id: ExternId,
        /// Index into [`Extern::methods`].
        method: u32,
    },
    /// `table.apply()`
    TableApply(TableId),
    /// `parser.apply(args)`; which parser it is says the instance.
    ParserApply(InstanceRef),
    /// `control.apply(args)`; which control it is says the instance (a constructor parameter can be any of its type).
    ControlApply(InstanceRef),
    /// A method that headers, header unions or stacks have by themselves.
    Builtin(Builtin, Expr),
}

/// Methods that types have by themselves. (`minSizeInBits` and its like are folded to constants.)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Builtin {
    /// `header.isValid()`, `union.isValid()`
    IsValid,
    /// `header.setValid()`
    SetValid,
    /// `header.setInvalid()`
    SetInvalid,
    /// `stack.push_front(n)`: the one argument is a constant `int`.
    PushFront,
    /// `stack.pop_front(n)`: the one argument is a constant `int`.
    PopFront,
}

/// An argument.
#[derive(Clone, Debug)]
pub struct Arg {
    /// The parameter's name.
    pub param: Arc<str>,
    /// The parameter's direction.
    pub direction: Direction,
    /// The parameter's type with type arguments filled in.
    pub ty: Type,
    /// What is given.
    pub value: ArgValue,
}

/// The value of an [`Arg`].
#[derive(Clone, Debug)]
pub enum ArgValue {
    /// An expression; for `out` and `inout` an l-value.
    Expr(Expr),
    /// `_`: an `out` value that is not wanted.
    DontCare,
    /// No argument: an `@optional` parameter, or action data that the control plane gives.
    Absent,
}

impl ArgValue {
    /// The expression, if there is one.
    pub fn expr(&self) -> Option<&Expr> {
        match self {
            ArgValue::Expr(e) => Some(e),
            _ => None,
        }
    }
}

// ---------------------------------------------------------------------------------------------------- statements

/// `{ statements }`
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Before it (`@atomic`).
    pub annotations: Vec<Annotation>,
    /// In order.
    pub stmts: Vec<Stmt>,
    /// From `{` to `}`.
    pub span: Span,
}

/// A statement.
#[derive(Clone, Debug)]
pub struct Stmt {
    /// What it does.
    pub kind: StmtKind,
    /// All of it.
    pub span: Span,
}

/// What a [`Stmt`] does.
#[derive(Clone, Debug)]
pub enum StmtKind {
    /// `target = value;`, of one type; or `target op= value;`, which is `target = target op value` with `target`
    /// evaluated once.
    Assign {
        /// An l-value.
        target: Expr,
        /// The operator of a compound assignment.
        op: Option<BinaryOp>,
        /// The value.
        value: Expr,
    },
    /// A call whose result is not used.
    Call(Call),
    /// A variable declaration.
    Var {
        /// Which variable.
        local: LocalId,
        /// Its initial value; without one a header is invalid, anything else undefined.
        init: Option<Expr>,
    },
    /// A nested block.
    Block(Block),
    /// `if (cond) then else otherwise`
    If {
        /// The condition.
        cond: Expr,
        /// When true.
        then: Block,
        /// When false.
        otherwise: Option<Block>,
    },
    /// `switch (table.apply().action_run)`
    SwitchAction {
        /// The application.
        apply: Call,
        /// The table.
        table: TableId,
        /// In order; at most one runs.
        cases: Vec<ActionCase>,
    },
    /// `switch (subject)`
    Switch {
        /// The value.
        subject: Expr,
        /// In order; at most one runs.
        cases: Vec<ValueCase>,
    },
    /// `for (init; cond; update) body`
    For {
        /// Done once.
        init: Vec<Stmt>,
        /// Tested before each round.
        cond: Expr,
        /// Done after each round, also after `continue`.
        update: Vec<Stmt>,
        /// Each round.
        body: Block,
        /// `@unroll`, …
        annotations: Vec<Annotation>,
    },
    /// `for (T variable in collection) body`
    ForIn {
        /// Assigned before each round.
        variable: LocalId,
        /// What is iterated.
        collection: ForCollection,
        /// Each round.
        body: Block,
        /// `@unroll`, …
        annotations: Vec<Annotation>,
    },
    /// `break;`
    Break,
    /// `continue;`
    Continue,
    /// `return value;`
    Return(Option<Expr>),
    /// `exit;`
    Exit,
}

/// What a `for`-`in` loop iterates.
#[derive(Clone, Debug)]
pub enum ForCollection {
    /// The elements of a list or stack.
    Elements(Expr),
    /// `low .. high`, both included; of the variable's type.
    Range(Expr, Expr),
}

/// Cases of a switch on `action_run` that share one body: fall-through is resolved.
#[derive(Clone, Debug)]
pub struct ActionCase {
    /// Indices into [`Table::actions`].
    pub actions: Vec<u32>,
    /// Whether `default` is among the labels.
    pub default: bool,
    /// What runs.
    pub body: Block,
    /// The first label's place.
    pub span: Span,
}

/// Cases of a switch on a value that share one body: fall-through is resolved.
#[derive(Clone, Debug)]
pub struct ValueCase {
    /// Compile-time values of the subject's type, all different.
    pub values: Vec<Value>,
    /// Whether `default` is among the labels.
    pub default: bool,
    /// What runs.
    pub body: Block,
    /// The first label's place.
    pub span: Span,
}
