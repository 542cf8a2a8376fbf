//! What a program has declared so far, as far as statements can use it.

use crate::types::Type;

/// Something that can be read, perhaps written.
#[derive(Clone, Debug)]
pub struct Var {
    /// How it is written; `@` stands for an index of a stack still to be chosen.
    pub path: String,
    /// Its type.
    pub ty: Type,
    /// Whether it can be assigned to.
    pub writable: bool,
    /// Whether its value is known at compile time.
    pub constant: bool,
}

/// Where statements stand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// Top level.
    Top,
    /// A function with its result.
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
    /// Whether packets can be read here.
    pub fn is_parser(&self) -> bool {
        *self == Place::State
    }
}

/// Which half of the pipeline is being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// Parser, functions, sub-controls: whatever may run in both.
    Both,
    /// Ingress.
    Ingress,
    /// Egress.
    Egress,
}

/// Direction of a parameter.
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
    /// Whether a call can leave it out.
    pub default: bool,
}

/// A function or action.
#[derive(Clone, Debug)]
pub struct Callable {
    /// Its name.
    pub name: String,
    /// Its result, if it is a function that has one.
    pub result: Option<Type>,
    /// Its parameters.
    pub params: Vec<Param>,
    /// What one call costs.
    pub cost: u64,
    /// The only table that may run it, if it reads that table's direct meter.
    pub table: Option<String>,
}

/// A control or parser that can be instantiated.
#[derive(Clone, Debug)]
pub struct Control {
    /// Its name.
    pub name: String,
    /// Parameters after those that every control has.
    pub params: Vec<Param>,
    /// Types of constructor parameters.
    pub ctor: Vec<Type>,
    /// What applying it costs.
    pub cost: u64,
    /// Whether it is a parser; these have another first parameter.
    pub parser: bool,
}

/// What an instance is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExternKind {
    /// With the width of its index.
    Counter(u32),
    /// With the width of its index.
    Meter(u32),
    /// With its content and the width of its index.
    Register(Type, u32),
}

/// An instance in scope.
#[derive(Clone, Debug)]
pub struct ExternInstance {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: ExternKind,
}

/// A table in scope.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Names of its actions.
    pub actions: Vec<String>,
    /// What applying it costs.
    pub cost: u64,
}
