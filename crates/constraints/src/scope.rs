//! The names that a constraint may use.

use base::entry::MatchKind;

/// What a name of a constraint stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// A field of the key.
    Field(MatchKind, u32),
    /// A parameter of the action, so many bits wide.
    Param(u32),
}

/// The names that a constraint may use, in the order of the values it is checked with.
#[derive(Clone, Default, Debug)]
pub struct Scope {
    /// Fields of the key, or parameters.
    pub names: Vec<(String, Operand)>,
    /// Whether there is a `::priority`.
    pub has_priority: bool,
}
