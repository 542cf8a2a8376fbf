//! Format versions of state directories.

/// The current format.
pub const FORMAT: &str = "4";
/// Formats that are migrated to the current one.
pub const OLDER_FORMATS: [&str; 2] = ["2", "3"];
/// Start of the line in the file `format`.
pub const FORMAT_LINE: &str = "sluice state ";
/// Name of the format file.
pub const FORMAT_FILE: &str = "format";
