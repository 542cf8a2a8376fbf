//! Versions of the directory.

/// What this version writes.
pub const FORMAT: &str = "4";
/// What it makes one of its own.
pub const FORMATS_BEFORE: [&str; 2] = ["2", "3"];
/// The first words of the file `format`.
pub const FORMAT_LINE: &str = "sluice state ";
/// Its file.
pub const FORMAT_FILE: &str = "format";
