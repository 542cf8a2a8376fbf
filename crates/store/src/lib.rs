//! Persistent state: what controllers wrote is kept on disk, so that a restarted switch continues with it.
//!
//! ```text
//!   control (one lock) ──append──▶ queue ──▶ thread "state": one record per request, one fsync for a whole group ──▶ log
//!   RPCs ◀──────────────── wait(ticket) ◀──────────────┘                                                           │
//!                                            thread "state-fold": the log, sorted ──▶ tables of the configs ◀────────┘
//! ```
//!
//! A [`Store`] is a directory, [`open`](Store::open)ed by one process. [`Store::kept`] reads a device's state;
//! through [`control::journal::Journal`] the store records changes. `layout` describes the directory, `frames`
//! the files' format, `writer` has the threads, and `log`, `fold` and `tables` what they write. Values are
//! P4Runtime's own messages (`encode`), so the format is as stable as the protocol. `offline` has an operator's
//! commands: check, dump, restore, back up.
//!
//! **Invariants.** A ticket counts as kept only after `fsync`, while the directory and its files still exist. A
//! device's configs change atomically: a new one is written beside the old, and one manifest switches over. What was
//! acknowledged is restored exactly, or the start is refused. After any disk error nothing is kept until the directory
//! is opened again, because the effect of a failed `fsync` is unknown.
//!
//! Entities have random keys and come in large batches, so the files form a log-structured merge tree (O'Neil, Cheng,
//! Gawlick and O'Neil 1996), reduced to what a switch needs: everything is read once, in order, at the start. Embedded
//! stores are not used because none distinguishes a torn write of its log from damage, or missing files from a new
//! store; `fjall` remains for migrating earlier formats. Tests: `tests/`.

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
mod migration;
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
