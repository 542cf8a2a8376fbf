//! Errors of state directories, in words for an operator.

use crate::format::{FORMAT, OLDER_FORMATS};

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses it.
    #[error("{0} is in use by another process; one directory is for one switch")]
    InUse(String),
    /// Not a state directory.
    #[error("{0} is not empty and holds no state of a switch; choose another directory")]
    Foreign(String),
    /// Of another format version.
    #[error(
        "{dir} has format {found}, this version reads {}, {} and {}; run the version that wrote it, or choose another directory",
        OLDER_FORMATS[0],
        OLDER_FORMATS[1],
        FORMAT
    )]
    Format {
        /// The directory.
        dir: String,
        /// The contents of its `format` file.
        found: String,
    },
    /// A record with a correct checksum but invalid contents.
    #[error(
        "{dir}: {what} cannot be read: {why}; was it written by a newer version? restore the directory from a backup, or start with --forget"
    )]
    Broken {
        /// The directory.
        dir: String,
        /// The record.
        what: String,
        /// Why it is invalid.
        why: String,
    },
    /// The files differ from what was written.
    #[error(
        "{dir} is damaged: {finding}{}; `sluice state check {dir}` lists all; restore a backup (`sluice state restore BACKUP NEWDIR`), or \
         save what can be read (`sluice state dump --salvage {dir} > FILE`, `sluice state restore FILE NEWDIR`), or start empty with --forget",
        and_more(.more)
    )]
    Damaged {
        /// The directory.
        dir: String,
        /// The worst finding.
        finding: Box<Finding>,
        /// Number of further findings.
        more: usize,
    },
    /// An I/O error, such as a full disk or missing permissions.
    #[error("{dir}: {why}")]
    Io {
        /// The directory.
        dir: String,
        /// The system's message.
        why: String,
    },
}

fn and_more(findings: &usize) -> String {
    if *findings == 0 { String::new() } else { format!(" (and {findings} more)") }
}

/// How severe a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// No data is missing.
    Note,
    /// A torn write: what a crash left of a record that was never acknowledged.
    Torn,
    /// The system could not read it.
    Unreadable,
    /// Acknowledged data is missing.
    Damage,
}

/// A problem in a directory.
#[derive(Clone, Debug)]
pub struct Finding {
    /// How severe it is.
    pub severity: Severity,
    /// The file, relative to the directory.
    pub file: String,
    /// Byte offset in the file.
    pub at: u64,
    /// What was found.
    pub why: String,
    /// What is lost because of it; empty if nothing is.
    pub lost: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, byte {}: {}", self.file, self.at, self.why)?;
        if self.lost.is_empty() { Ok(()) } else { write!(f, "; lost: {}", self.lost) }
    }
}

/// Describes a system error for an operator.
pub fn explain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            format!("{error}; free some space, then writes are taken again without a restart")
        }
        _ => error.to_string(),
    }
}
