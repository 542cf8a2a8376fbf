//! The warnings: their codes (never reused with another meaning) and p4c's names for `@noWarn`.
//! `crates/frontend/explain/08-warnings.md` explains each.

/// A kind of warning.
#[derive(Debug)]
pub struct Lint {
    /// Such as `W0801`.
    pub code: &'static str,
    /// Its names in `@noWarn("…")`, p4c's where p4c has this warning; `-` and `_` are equivalent.
    pub names: &'static [&'static str],
}

macro_rules! lints {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $names:expr;)*) => {
        $($(#[$doc])* pub(super) const $name: Lint = Lint { code: $code, names: &$names };)*
        /// All warnings, sorted by code.
        pub const LINTS: &[Lint] = &[$($name),*];
    };
}

lints! {
    /// A variable is read that is uninitialised on some path.
    UNINITIALISED = "W0801", ["uninitialized_use", "uninitialized"];
    /// An `out` parameter is uninitialised at the end of some path.
    OUT_NOT_WRITTEN = "W0802", ["uninitialized_out_param", "uninitialized_use"];
    /// A field of a header that is invalid on all paths is used.
    INVALID_HEADER = "W0803", ["invalid_header"];
    /// A field of a header that may be invalid is read without a validity check.
    MAYBE_INVALID = "W0804", ["invalid_header"];
    /// No path leads to a parser state.
    UNREACHABLE_STATE = "W0810", ["unreachable", "parser_transition", "unused"];
    /// Earlier cases match everything that this one does.
    COVERED_CASE = "W0811", ["unreachable", "parser_transition"];
    /// A loop of parser states that makes no progress in the packet.
    NO_PROGRESS = "W0812", ["parser_transition"];
    /// A state without `transition`.
    NO_TRANSITION = "W0813", ["parser_transition"];
    /// An action that is never run.
    UNUSED_ACTION = "W0820", ["unused"];
    /// A table that is not applied.
    UNUSED_TABLE = "W0821", ["unused"];
    /// A variable that is not mentioned after its declaration.
    UNUSED_VARIABLE = "W0822", ["unused"];
    /// A table key is a metadata field that is never written.
    KEY_NEVER_SET = "W0830", ["uninitialized_use", "uninitialized"];
    /// A header that is extracted but never emitted, and so is lost from the packet.
    NOT_EMITTED = "W0831", ["ordering", "unused"];
    /// A header that is emitted but is never valid.
    NEVER_VALID = "W0832", ["invalid_header", "unused"];
    /// A shift by at least the operand's width.
    SHIFTED_OUT = "W0840", ["overflow", "mismatch"];
    /// A comparison that always has the same result.
    ALWAYS_SAME = "W0841", ["mismatch", "overflow"];
}
