//! Why a program is not lowered.

/// Why a program was not lowered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The program needs something that there is no lowering for.
    #[error("not supported by the compiler: {0}")]
    Unsupported(String),
    /// A stated bound is exceeded.
    #[error("{what}: {found}, at most {max}")]
    Limit {
        /// Of what.
        what: String,
        /// How much there is.
        found: u64,
        /// How much there may be.
        max: u64,
    },
    /// The bindings do not fit the program.
    #[error("the pipeline's state does not fit the program: {0}")]
    Binding(String),
}
