//! The warnings: codes (never reused for another meaning), and p4c's names for `@noWarn`. What they mean is explained in
//! `crates/frontend/explain/08-warnings.md`.

/// A kind of warning.
#[derive(Debug)]
pub struct Lint {
    /// As `W0801`.
    pub code: &'static str,
    /// What `@noWarn("…")` calls it, as p4c does where it has it; `-` and `_` are the same.
    pub names: &'static [&'static str],
}

macro_rules! lints {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $names:expr;)*) => {
        $($(#[$doc])* pub(super) const $name: Lint = Lint { code: $code, names: &$names };)*
        /// All of them, by code.
        pub const LINTS: &[Lint] = &[$($name),*];
    };
}

lints! {
    /// A variable is read that has no value on some path.
    UNINITIALISED = "W0801", ["uninitialized_use", "uninitialized"];
    /// An `out` parameter has no value at the end of some path.
    OUT_NOT_WRITTEN = "W0802", ["uninitialized_out_param", "uninitialized_use"];
    /// A field of a header that is invalid on all paths is used.
    INVALID_HEADER = "W0803", ["invalid_header"];
    /// A field of a header that may be invalid is read, and nothing asks.
    MAYBE_INVALID = "W0804", ["invalid_header"];
    /// No path leads to a parser state.
    UNREACHABLE_STATE = "W0810", ["unreachable", "parser_transition", "unused"];
    /// Earlier cases match everything that this one does.
    COVERED_CASE = "W0811", ["unreachable", "parser_transition"];
    /// States that go round without taking anything from the packet.
    NO_PROGRESS = "W0812", ["parser_transition"];
    /// A state without `transition`.
    NO_TRANSITION = "W0813", ["parser_transition"];
    /// An action that nothing runs.
    UNUSED_ACTION = "W0820", ["unused"];
    /// A table that is not applied.
    UNUSED_TABLE = "W0821", ["unused"];
    /// A variable that is not mentioned after its declaration.
    UNUSED_VARIABLE = "W0822", ["unused"];
    /// A table looks up metadata that nothing writes.
    KEY_NEVER_SET = "W0830", ["uninitialized_use", "uninitialized"];
    /// A header that leaves the packet because the deparser forgets it.
    NOT_EMITTED = "W0831", ["ordering", "unused"];
    /// A header that is emitted and cannot be there.
    NEVER_VALID = "W0832", ["invalid_header", "unused"];
    /// A shift by its width or more.
    SHIFTED_OUT = "W0840", ["overflow", "mismatch"];
    /// A comparison that always has the same result.
    ALWAYS_SAME = "W0841", ["mismatch", "overflow"];
}
