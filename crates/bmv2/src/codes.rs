//! Codes of the diagnostics of this crate. The text of `sluice explain` for each is in
//! `crates/frontend/explain/09-bmv2-json.md`.

/// The text is cut off or no JSON.
pub const NO_JSON: &str = "E0801";
/// The text is nested too deeply or has too many parts.
pub const TOO_LARGE: &str = "E0802";
/// JSON of another version of the format, or for another target than simple_switch.
pub const OTHER_FORMAT: &str = "E0803";
/// An attribute is missing or of the wrong type.
pub const SHAPE: &str = "E0804";
/// A name or id that nothing has.
pub const UNKNOWN: &str = "E0805";
/// Two objects of a kind have one name or id.
pub const TWICE: &str = "E0806";
/// A number, width or value that does not fit its place.
pub const RANGE: &str = "E0807";
/// Attributes that contradict each other.
pub const CONTRADICTION: &str = "E0808";
/// Control flow that comes back to where it was.
pub const CYCLE: &str = "E0809";
/// Something that the format has and that is not supported here.
pub const UNSUPPORTED: &str = "E0810";
