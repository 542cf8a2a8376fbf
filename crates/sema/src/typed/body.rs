//! The contents of bodies: expressions, calls, statements. The invariants are those of the parent module.

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
    /// Its span.
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

    /// Calls `f` for the direct subexpressions. A call is returned instead, since the treatment of its arguments
    /// depends on their directions.
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
    /// A constructor parameter (a value, not an instance) of the enclosing parser or control: index into its
    /// `ctor_params`.
    CtorParam(u32),
    /// An extern, parser, control or package instance, or a constructor parameter that is one.
    Instance(InstanceRef),
    /// Field number `.1` of a struct, header or header union.
    Field(Box<Expr>, u32),
    /// Element number `.1` of a tuple.
    TupleElement(Box<Expr>, u32),
    /// `stack[index]`; the index has any `bit` or `int` type, or is a constant in range.
    StackElement {
        /// The stack.
        stack: Box<Expr>,
        /// The index.
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
        /// The value that is sliced; an l-value if the slice is assigned to.
        base: Box<Expr>,
        /// Highest bit.
        high: u32,
        /// Lowest bit.
        low: u32,
    },
    /// `base[low +: width]` with a non-constant `low` (a constant one gives a `Slice`).
    SliceFrom {
        /// The value that is sliced; an l-value if the slice is assigned to.
        base: Box<Expr>,
        /// Lowest bit.
        low: Box<Expr>,
        /// Number of bits.
        width: u32,
    },
    /// `op operand`
    Unary(UnaryOp, Box<Expr>),
    /// `left op right`. `&&` and `||` short-circuit. Both sides of `==` and `!=` have the same type, any comparable one
    /// (including structs, headers, tuples, stacks).
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `cond ? then : otherwise`; only the selected side is evaluated.
    Ternary {
        /// The condition.
        cond: Box<Expr>,
        /// Value when true.
        then: Box<Expr>,
        /// Value when false.
        otherwise: Box<Expr>,
    },
    /// A conversion, explicit or implicit, from the operand's type to the expression's: `bit` to or from `int` of the
    /// same width (bits unchanged), change of width (truncation, or zero or sign extension by the *operand's*
    /// signedness), `bool` to or from `bit<1>`, `type` or serialisable enum to or from its underlying type (bits
    /// unchanged).
    Cast(Box<Expr>),
    /// A composite value, one expression per field or element; the expression's type says which: struct, header
    /// (valid), tuple, list or stack.
    Aggregate(Vec<Expr>),
    /// A call whose result is used.
    Call(Box<Call>),
    /// `table.apply().hit`
    ApplyHit(Box<Call>),
    /// `table.apply().miss`
    ApplyMiss(Box<Call>),
    /// `this`: the instance whose abstract method the enclosing function implements.
    This,
}

/// A reference to an instance from within a body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum InstanceRef {
    /// Declared in the enclosing parser or control: index into its `instances` (and [`Instance::children`]).
    Local(u32),
    /// A constructor parameter of the enclosing parser or control: index into its `ctor_params`.
    CtorParam(u32),
    /// Declared at top level: index into [`Program::globals`].
    Global(u32),
}

/// A resolved call.
#[derive(Clone, Debug)]
pub struct Call {
    /// What is called.
    pub callee: Callee,
    /// Type arguments, explicit or inferred; one per type parameter.
    pub type_args: Vec<Type>,
    /// One per parameter, in parameter order.
    pub args: Vec<Arg>,
    /// Return type.
    pub result: Type,
    /// Span of the whole construct.
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
        /// The receiver, of type [`Type::Extern`]: [`ExprKind::Instance`], an element of an array of instances,
        /// [`ExprKind::Local`] or [`ExprKind::This`].
        object: Expr,
        /// The declaration of its type.
        extern_id: ExternId,
        /// Index into [`Extern::methods`].
        method: u32,
    },
    /// `table.apply()`
    TableApply(TableId),
    /// `parser.apply(args)`; the instance determines the parser.
    ParserApply(InstanceRef),
    /// `control.apply(args)`; the instance determines the control (a constructor parameter can be any control of its
    /// type).
    ControlApply(InstanceRef),
    /// A built-in method of a header, header union or stack.
    Builtin(Builtin, Expr),
}

/// Built-in methods of types. (`minSizeInBits` and similar ones are folded to constants.)
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
    /// The parameter's type with type arguments substituted.
    pub ty: Type,
    /// The argument's value.
    pub value: ArgValue,
}

/// The value of an [`Arg`].
#[derive(Clone, Debug)]
pub enum ArgValue {
    /// An expression; for `out` and `inout` an l-value.
    Expr(Expr),
    /// `_`: the `out` value is discarded.
    DontCare,
    /// No argument: an `@optional` parameter, or action data that the control plane provides.
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
    /// Annotations before it (`@atomic`).
    pub annotations: Vec<Annotation>,
    /// Statements in source order.
    pub stmts: Vec<Stmt>,
    /// From `{` to `}`.
    pub span: Span,
}

/// A statement.
#[derive(Clone, Debug)]
pub struct Stmt {
    /// What it does.
    pub kind: StmtKind,
    /// Span of the whole construct.
    pub span: Span,
}

/// What a [`Stmt`] does.
#[derive(Clone, Debug)]
pub enum StmtKind {
    /// `target = value;`, both of the same type; or `target op= value;`, which is `target = target op value` with
    /// `target` evaluated once.
    Assign {
        /// An l-value.
        target: Expr,
        /// The operator of a compound assignment.
        op: Option<BinaryOp>,
        /// The value that is assigned.
        value: Expr,
    },
    /// A call whose result is not used.
    Call(Call),
    /// A variable declaration.
    Var {
        /// Which variable.
        local: LocalId,
        /// Its initial value. Without one, a header is invalid and any other value is undefined.
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
        /// The `apply` call.
        apply: Call,
        /// The table.
        table: TableId,
        /// Cases in source order; at most one runs.
        cases: Vec<ActionCase>,
    },
    /// `switch (subject)`
    Switch {
        /// The value that selects the case.
        subject: Expr,
        /// Cases in source order; at most one runs.
        cases: Vec<ValueCase>,
    },
    /// `for (init; cond; update) body`
    For {
        /// Executed once, before the loop.
        init: Vec<Stmt>,
        /// Tested before each iteration.
        cond: Expr,
        /// Executed after each iteration, including after `continue`.
        update: Vec<Stmt>,
        /// The loop body.
        body: Block,
        /// `@unroll`, …
        annotations: Vec<Annotation>,
    },
    /// `for (T variable in collection) body`
    ForIn {
        /// The loop variable, assigned before each iteration.
        variable: LocalId,
        /// What the loop iterates over.
        collection: ForCollection,
        /// The loop body.
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

/// What a `for`-`in` loop iterates over.
#[derive(Clone, Debug)]
pub enum ForCollection {
    /// The elements of a list or stack.
    Elements(Expr),
    /// `low .. high`, both included; of the variable's type.
    Range(Expr, Expr),
}

/// Cases of a switch on `action_run` that share one body; fall-through has been resolved.
#[derive(Clone, Debug)]
pub struct ActionCase {
    /// Indices into [`Table::actions`].
    pub actions: Vec<u32>,
    /// Whether `default` is among the labels.
    pub default: bool,
    /// What runs.
    pub body: Block,
    /// Span of the first label.
    pub span: Span,
}

/// Cases of a switch on a value that share one body; fall-through has been resolved.
#[derive(Clone, Debug)]
pub struct ValueCase {
    /// Compile-time values of the subject's type, all distinct.
    pub values: Vec<Value>,
    /// Whether `default` is among the labels.
    pub default: bool,
    /// What runs.
    pub body: Block,
    /// Span of the first label.
    pub span: Span,
}
