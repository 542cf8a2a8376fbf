//! Map entries: limits, update modes, and reasons for refusal.

/// The maximum size of a key in bytes, as in Linux: keys are on the stack, which has 512 bytes.
pub const KEY_BYTES_MAX: u32 = 512;
/// The maximum size of a value in bytes. A packet that updates an entry copies the whole value.
pub const VALUE_BYTES_MAX: u32 = 1 << 20;

/// Whether an update may create or replace an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// Either (`BPF_ANY`).
    Any,
    /// Only create (`BPF_NOEXIST`).
    New,
    /// Only replace (`BPF_EXIST`).
    Existing,
}

/// Why a change of a map was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// The map is full.
    Full,
    /// The key exists if true, otherwise does not, contrary to the update mode.
    Exists(bool),
    /// The key is not an index of the array.
    Number,
    /// The prefix is longer than the key.
    Length(usize),
    /// Entries of an array cannot be deleted.
    Delete,
    /// The map holds constants of the program.
    Constant,
}
