//! Codes of this crate's diagnostics. The texts of `sluice explain` are in `crates/frontend/explain/09-bmv2-json.md`.

/// The text is truncated or no JSON.
pub const NO_JSON: &str = "E0801";
/// The text is nested too deeply or has too many parts.
pub const TOO_LARGE: &str = "E0802";
/// JSON of another version of the format, or for another target than simple_switch.
pub const OTHER_FORMAT: &str = "E0803";
/// An attribute is missing or of the wrong type.
pub const SHAPE: &str = "E0804";
/// A reference to a name or id that no object has.
pub const UNKNOWN: &str = "E0805";
/// Two objects of one kind have the same name or id.
pub const TWICE: &str = "E0806";
/// A number, width or value that is out of range where it stands.
pub const RANGE: &str = "E0807";
/// Attributes that contradict each other.
pub const CONTRADICTION: &str = "E0808";
/// A cycle in the control flow.
pub const CYCLE: &str = "E0809";
/// A feature of the format that is not supported here.
pub const UNSUPPORTED: &str = "E0810";
