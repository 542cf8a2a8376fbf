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
mod fold;
mod folder;
pub mod frames;
mod image;
mod layout;
pub mod log;
mod manifest;
pub mod offline;
mod tables;
mod wiring;
mod writer;

pub use image::{FORMAT_FILE, Finding, Severity};
pub use layout::{Kept, KeptConfig, Stored, StoredConfig, Values};
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
        "{dir} has format {found}, this version reads {}, {} and {}; run the version that wrote it, or choose another directory",
        image::FORMATS_BEFORE[0],
        image::FORMATS_BEFORE[1],
        image::FORMAT
    )]
    Format {
        /// The directory.
        dir: String,
        /// What its `format` file says.
        found: String,
    },
    /// A record whose checksum is right and that makes no sense.
    #[error(
        "{dir}: {what} cannot be read: {why}; was it written by a newer version? restore the directory from a backup, or start with --forget"
    )]
    Broken {
        /// The directory.
        dir: String,
        /// The record.
        what: String,
        /// What is wrong.
        why: String,
    },
    /// What is on the disk is not what was written there.
    #[error(
        "{dir} is damaged: {finding}{}; `sluice state check {dir}` lists all; restore a backup (`sluice state restore BACKUP NEWDIR`), or \
         save what can be read (`sluice state dump --salvage {dir} > FILE`, `sluice state restore FILE NEWDIR`), or begin anew with --forget",
        and_more(.more)
    )]
    Damaged {
        /// The directory.
        dir: String,
        /// The worst that was found.
        finding: Box<Finding>,
        /// So many other findings.
        more: usize,
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

fn and_more(findings: &usize) -> String {
    if *findings == 0 { String::new() } else { format!(" (and {findings} more)") }
}
