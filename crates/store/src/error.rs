//! What is wrong with a directory, in words for an operator.

use crate::format::{FORMAT, FORMATS_BEFORE};

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
        FORMATS_BEFORE[0],
        FORMATS_BEFORE[1],
        FORMAT
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

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Everything is there.
    Note,
    /// What a crash left of a record that was never acknowledged.
    Torn,
    /// The system did not let it be read.
    Unreadable,
    /// What was acknowledged is not there.
    Damage,
}

/// Something that is not as it should be.
#[derive(Clone, Debug)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// Its file in the directory.
    pub file: String,
    /// Bytes from the file's beginning.
    pub at: u64,
    /// What was found.
    pub why: String,
    /// What is lost by it; empty if nothing is.
    pub lost: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, byte {}: {}", self.file, self.at, self.why)?;
        if self.lost.is_empty() { Ok(()) } else { write!(f, "; lost: {}", self.lost) }
    }
}

/// An error of the system in words for an operator.
pub fn explain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            format!("{error}; free some space, then writes are taken again without a restart")
        }
        _ => error.to_string(),
    }
}
