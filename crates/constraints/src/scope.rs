//! The names that a constraint may use.

use base::entry::MatchKind;

/// The meaning of a name in a constraint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// A field of the key: its match kind, and its width in bits.
    Field(MatchKind, u32),
    /// A parameter of the action, with its width in bits.
    Param(u32),
}

/// The names that a constraint may use, in the order of the values that it is checked against.
#[derive(Clone, Default, Debug)]
pub struct Scope {
    /// Fields of the key, or parameters.
    pub names: Vec<(String, Operand)>,
    /// Whether `::priority` may be used.
    pub has_priority: bool,
}
