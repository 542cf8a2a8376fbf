//! The codes of this crate's diagnostics: one for each kind of mistake, never reused with another meaning. The text of
//! `sluice explain` for each is in `crates/frontend/explain/`.

/// An included file is not found.
pub const INCLUDE_NOT_FOUND: &str = "E0001";
/// A preprocessor directive is malformed.
pub const BAD_DIRECTIVE: &str = "E0002";
/// A preprocessor directive does not exist.
pub const UNKNOWN_DIRECTIVE: &str = "E0003";
/// `#error`.
pub const ERROR_DIRECTIVE: &str = "E0004";
/// `#if`, `#elif`, `#else` and `#endif` do not match up.
pub const UNBALANCED_CONDITIONAL: &str = "E0005";
/// The expression of `#if` or `#elif` is wrong.
pub const BAD_CONDITION: &str = "E0006";
/// A limit of the preprocessor is reached.
pub const PREPROCESSOR_LIMIT: &str = "E0007";
/// A macro is used with wrong arguments.
pub const MACRO_ARGUMENTS: &str = "E0008";
/// `#` or `##` is misused.
pub const BAD_PASTE: &str = "E0009";
/// An included file exists but is not read.
pub const INCLUDE_REFUSED: &str = "E0010";
/// The file is not a P4 program.
pub const NOT_A_PROGRAM: &str = "E0011";
/// `#warning`.
pub const WARNING_DIRECTIVE: &str = "W0001";
/// A macro is defined again with another meaning.
pub const MACRO_REDEFINED: &str = "W0002";
/// Something follows a directive that takes nothing more.
pub const EXTRA_TOKENS: &str = "W0003";

/// A character that starts no token.
pub const BAD_CHARACTER: &str = "E0101";
/// A comment does not end.
pub const OPEN_COMMENT: &str = "E0102";
/// A string does not end.
pub const OPEN_STRING: &str = "E0103";
/// An integer literal is malformed.
pub const BAD_INTEGER: &str = "E0104";

/// A different token was expected.
pub const UNEXPECTED_TOKEN: &str = "E0201";
/// A semicolon is missing.
pub const MISSING_SEMICOLON: &str = "E0202";
/// A bracket is not closed.
pub const UNCLOSED: &str = "E0203";
/// The program is nested too deeply.
pub const TOO_DEEP: &str = "E0204";
/// A misspelt keyword.
pub const MISSPELT_KEYWORD: &str = "E0205";
/// A construct that the grammar does not allow here.
pub const MISPLACED: &str = "E0206";
/// A reserved word used as a name.
pub const RESERVED_NAME: &str = "E0207";
/// Errors after this one are not shown.
pub const TOO_MANY_ERRORS: &str = "E0208";
/// A control without `apply` block.
pub const NO_APPLY: &str = "E0209";
