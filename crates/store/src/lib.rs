//! What controllers wrote, kept on disk, so that a switch that was killed comes back with it.
//!
//! ```text
//!   control (one lock) ──append──▶ queue ──▶ thread "state": one record per request, one fsync for all that wait ──▶ log
//!   RPCs ◀──────────────── wait(ticket) ◀──────────────┘                                                           │
//!                                            thread "state-fold": the log, sorted ──▶ tables of the configs ◀────────┘
//! ```
//!
//! [`Store`] is a directory, [`open`](Store::open)ed by one process; [`Store::kept`] reads a device back, and as
//! [`control::journal::Journal`] it keeps what changes. The directory's layout is in `layout`, the threads in `writer`, what they write in
//! `log` and `fold`; values are P4Runtime's own messages (`encode`), so that the format is as stable as the protocol.
//!
//! **Invariants.** A ticket is kept only after `fsync`. A device's configs change as a whole: a new one is written beside
//! the old, and one record says which counts. After any error of the disk nothing is kept until the directory is opened
//! again, because what an `fsync` that failed left behind cannot be known.
//!
//! The embedded store is `fjall`, a log-structured merge tree: entities have random keys and come in large batches, which a
//! log takes with one sequential write where trees of pages write a page per entity. Tests: `tests/`.

mod encode;
mod fold;
mod layout;
pub mod log;
mod wiring;
mod writer;

pub use layout::{Kept, KeptConfig};
pub use wiring::Wiring;
pub use writer::{Store, forget};

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{0} is in use by another process; one directory is for one switch")]
    InUse(String),
    /// Not ours.
    #[error("{0} is not empty and holds no state of a switch; choose another directory")]
    Foreign(String),
    /// Of another version.
    #[error(
        "{dir} has format {found}, this version reads {} and {}; run the version that wrote it, or choose another directory",
        layout::FORMAT_BEFORE,
        layout::FORMAT
    )]
    Format {
        /// The directory.
        dir: String,
        /// What its `format` file says.
        found: String,
    },
    /// A record that makes no sense.
    #[error("{dir}: {what} cannot be read: {why}; restore the directory from a copy, or start with --forget")]
    Broken {
        /// The directory.
        dir: String,
        /// The record.
        what: String,
        /// What is wrong.
        why: String,
    },
    /// What is on the disk is not what was written there.
    #[error("{dir} is damaged: {why}; restore it from a copy, or start with --forget")]
    Damaged {
        /// The directory.
        dir: String,
        /// What was found.
        why: String,
    },
    /// The disk, or who may use it.
    #[error("{dir}: {why}")]
    Io {
        /// The directory.
        dir: String,
        /// What the system says.
        why: String,
    },
}
