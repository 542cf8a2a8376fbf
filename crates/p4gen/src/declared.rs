//! Declarations so far that statements can use.

use crate::types::Type;

/// A variable or another readable name.
#[derive(Clone, Debug)]
pub struct Var {
    /// Its path in the source; `@` stands for a stack index to be chosen at each use.
    pub path: String,
    /// Its type.
    pub ty: Type,
    /// Whether it can be assigned to.
    pub writable: bool,
    /// Whether its value is known at compile time.
    pub constant: bool,
}

/// The kind of body that statements are generated for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// Top level.
    Top,
    /// A function, with its result type.
    Function(Option<Type>),
    /// An action.
    Action,
    /// The apply block of a control of a pipeline.
    Apply,
    /// A state of a parser.
    State,
    /// The deparser, checksum controls.
    Plain,
}

impl Place {
    /// Whether packet bytes can be read here.
    pub fn is_parser(&self) -> bool {
        *self == Place::State
    }
}

/// The half of the pipeline that is being generated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// Parser, functions, sub-controls: everything that may run in both halves.
    Both,
    /// Ingress.
    Ingress,
    /// Egress.
    Egress,
}

/// The direction of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dir {
    /// Action data.
    None,
    /// `in`
    In,
    /// `out`
    Out,
    /// `inout`
    InOut,
}

/// A parameter.
#[derive(Clone, Debug)]
pub struct Param {
    /// Its direction.
    pub dir: Dir,
    /// Its type.
    pub ty: Type,
    /// Its name.
    pub name: String,
    /// Whether a call may omit it.
    pub default: bool,
}

/// A function or action.
#[derive(Clone, Debug)]
pub struct Callable {
    /// Its name.
    pub name: String,
    /// Its result type, if it is a function with a result.
    pub result: Option<Type>,
    /// Its parameters.
    pub params: Vec<Param>,
    /// The cost of a call.
    pub cost: u64,
    /// The only table that may use it, if it reads that table's direct meter.
    pub table: Option<String>,
}

/// A control or parser type.
#[derive(Clone, Debug)]
pub struct Control {
    /// Its name.
    pub name: String,
    /// Its parameters after those that every control has.
    pub params: Vec<Param>,
    /// The types of its constructor parameters.
    pub ctor: Vec<Type>,
    /// The cost of applying it.
    pub cost: u64,
    /// Whether it is a parser, which has a different first parameter.
    pub parser: bool,
}

/// The type of an extern instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExternKind {
    /// A counter, with the width of its index.
    Counter(u32),
    /// A meter, with the width of its index.
    Meter(u32),
    /// A register, with the type of its cells and the width of its index.
    Register(Type, u32),
}

/// An extern instance in scope.
#[derive(Clone, Debug)]
pub struct ExternInstance {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: ExternKind,
}

/// A table in scope.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// The names of its actions.
    pub actions: Vec<String>,
    /// The cost of applying it.
    pub cost: u64,
}
