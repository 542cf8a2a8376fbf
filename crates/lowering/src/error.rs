//! Errors of lowering.

/// Why a program was not lowered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The program uses an operation that has no lowering.
    #[error("not supported by the compiler: {0}")]
    Unsupported(String),
    /// A limit is exceeded.
    #[error("{what}: {found}, at most {max}")]
    Limit {
        /// The quantity that is limited.
        what: String,
        /// Its value.
        found: u64,
        /// Its maximum.
        max: u64,
    },
    /// The bindings do not match the program.
    #[error("the pipeline's state does not fit the program: {0}")]
    Binding(String),
}
