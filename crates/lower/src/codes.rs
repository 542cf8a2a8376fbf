//! Codes of the diagnostics of lowering: one for each kind of mistake, never reused. The text of `sluice explain` for each
//! is in `crates/frontend/explain/`.

/// No `main`.
pub const NO_MAIN: &str = "E0601";
/// The package of `main` is not known.
pub const UNKNOWN_ARCHITECTURE: &str = "E0602";
/// An extern function, object or method that the architecture does not map.
pub const UNSUPPORTED_EXTERN: &str = "E0603";
/// An extern is used where or how it has no meaning.
pub const EXTERN_MISUSE: &str = "E0604";
/// A type whose values cannot be kept or moved at run time.
pub const UNSUPPORTED_TYPE: &str = "E0605";
/// An expression that cannot be computed at run time.
pub const UNSUPPORTED_EXPRESSION: &str = "E0606";
/// A table property, key, action or entry that cannot be mapped.
pub const UNSUPPORTED_TABLE: &str = "E0607";
/// A value that must be known at compile time is not, or is out of range.
pub const NOT_CONSTANT: &str = "E0608";
/// A header that cannot be extracted or emitted.
pub const UNSUPPORTED_HEADER: &str = "E0609";
/// A statement that has no meaning here.
pub const MISPLACED: &str = "E0610";
/// A program that grows too large when everything is inlined.
pub const TOO_LARGE: &str = "E0611";
/// A table of which packets cannot change entries says that they do.
pub const NOT_DYNAMIC: &str = "E0620";
/// Entries or timers of a table are to be changed where or how that is not possible.
pub const WRITES_NO_TABLE: &str = "E0621";
/// An extern call that does nothing here.
pub const NO_EFFECT: &str = "W0601";
/// A block of the package has another number of parameters than the architecture gives it.
pub const BLOCK_PARAMETERS: &str = "E0612";
/// Metadata is written where that has no effect.
pub const WRITTEN_IN_VAIN: &str = "W0606";
/// A table property that the architecture does not know.
pub const UNKNOWN_PROPERTY: &str = "W0602";
/// Two entries of a table have the same key.
pub const ENTRY_TWICE: &str = "W0603";
/// A `selector` key in a table without action selector.
pub const IDLE_SELECTOR_KEY: &str = "W0604";
/// Tables share an action profile, and not all of them list an action.
pub const NOT_IN_ALL_TABLES: &str = "W0607";
/// What a checksum is given does not fill its words.
pub const PADDED: &str = "W0608";
/// A match field of OpenFlow is not declared as one can be.
pub const MATCH_FIELD: &str = "E0622";
