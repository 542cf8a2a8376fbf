//! Diagnostic codes of lowering: one for each kind of mistake, never reused. The texts of `sluice explain` are in
//! `crates/frontend/explain/`.

/// The program has no `main`.
pub const NO_MAIN: &str = "E0601";
/// The package type of `main` is unknown.
pub const UNKNOWN_ARCHITECTURE: &str = "E0602";
/// The architecture does not support an extern function, object or method.
pub const UNSUPPORTED_EXTERN: &str = "E0603";
/// An extern is used in a place or a manner that has no meaning.
pub const EXTERN_MISUSE: &str = "E0604";
/// Values of this type cannot be stored or copied at run time.
pub const UNSUPPORTED_TYPE: &str = "E0605";
/// An expression cannot be evaluated at run time.
pub const UNSUPPORTED_EXPRESSION: &str = "E0606";
/// A table property, key, action or entry is not supported.
pub const UNSUPPORTED_TABLE: &str = "E0607";
/// A value that must be known at compile time is not, or is out of range.
pub const NOT_CONSTANT: &str = "E0608";
/// A header cannot be extracted or emitted.
pub const UNSUPPORTED_HEADER: &str = "E0609";
/// A statement is not allowed here.
pub const MISPLACED: &str = "E0610";
/// The program is too large once everything is inlined.
pub const TOO_LARGE: &str = "E0611";
/// A table declares that packets modify its entries, but cannot have such entries.
pub const NOT_DYNAMIC: &str = "E0620";
/// Entries or timers of a table cannot be modified here, or not in this manner.
pub const WRITES_NO_TABLE: &str = "E0621";
/// An extern call has no effect.
pub const NO_EFFECT: &str = "W0601";
/// A block of the package has a different number of parameters than the architecture passes.
pub const BLOCK_PARAMETERS: &str = "E0612";
/// A write to metadata has no effect.
pub const WRITTEN_IN_VAIN: &str = "W0606";
/// A table property that the architecture does not know.
pub const UNKNOWN_PROPERTY: &str = "W0602";
/// Two entries of a table have the same key.
pub const ENTRY_TWICE: &str = "W0603";
/// A `selector` key in a table without an action selector.
pub const IDLE_SELECTOR_KEY: &str = "W0604";
/// Tables share an action profile, but not all of them list an action.
pub const NOT_IN_ALL_TABLES: &str = "W0607";
/// The input of a checksum is padded because it does not fill whole words.
pub const PADDED: &str = "W0608";
/// An OpenFlow match field is declared incorrectly.
pub const MATCH_FIELD: &str = "E0622";
