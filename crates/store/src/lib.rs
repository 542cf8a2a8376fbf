//! What controllers wrote, kept on disk, so that a switch that was killed comes back with it.
//!
//! ```text
//!   control (one lock) ──append──▶ queue ──▶ thread "state": one record per request, one fsync for all that wait ──▶ log
//!   RPCs ◀──────────────── wait(ticket) ◀──────────────┘                                                           │
//!                                            thread "state-fold": the log, sorted ──▶ tables of the configs ◀────────┘
//! ```
//!
//! [`Store`] is a directory, [`open`](Store::open)ed by one process; [`Store::kept`] reads a device back, and as
//! [`control::journal::Journal`] it keeps what changes. The directory's layout is in `layout`, its files' form in `frames`, the threads in
//! `writer`, what they write in `log`, `fold` and `tables`; values are P4Runtime's own messages (`encode`), so that the format is as stable
//! as the protocol. `offline` is what an operator does with a directory: check, dump, restore, back up.
//!
//! **Invariants.** A ticket is kept only after `fsync`, while the directory and its files are where they were. A device's configs change as a
//! whole: a new one is written beside the old, and one manifest says which counts. What was acknowledged comes back exactly, or
//! the start is refused. After any error of the disk nothing is kept until the directory is opened again, because what an `fsync`
//! that failed left behind cannot be known.
//!
//! Entities have random keys and come in large batches, so the files are those of a log-structured merge tree, reduced to what a switch needs: it
//! reads everything once, in order, at its start. Embedded stores were given up because none tells a torn tail of its log from
//! damage, or missing files from a new store; `fjall` is left for directories of the format before. Tests: `tests/`.

mod before;
mod encode;
mod error;
mod fold;
mod folder;
mod format;
pub mod frames;
mod image;
mod layout;
pub mod log;
mod manifest;
pub mod offline;
mod opening;
mod tables;
mod wiring;
mod writer;

pub use error::{Finding, OpenError, Severity};
pub use format::FORMAT_FILE;
pub use layout::{Kept, KeptConfig, Stored, StoredConfig, Values};
pub use wiring::Wiring;
pub use writer::{Store, forget};
