//! Entries of maps: how large they may be, how they change, and why they do not.

/// Most bytes of a key, as Linux has it: a key is on the program's stack, which has 512 bytes.
pub const KEY_BYTES_MAX: u32 = 512;
/// Most bytes of a value. A packet that updates an entry copies the whole value.
pub const VALUE_BYTES_MAX: u32 = 1 << 20;

/// Whether an update may make or replace an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// Either (`BPF_ANY`).
    Any,
    /// Only make one (`BPF_NOEXIST`).
    New,
    /// Only replace one (`BPF_EXIST`).
    Existing,
}

/// Why a change of a map was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// There is no room.
    Full,
    /// The key exists, or does not.
    Exists(bool),
    /// The key is no number of the array.
    Number,
    /// The prefix is longer than the key.
    Length(usize),
    /// Nothing can be deleted from an array.
    Delete,
    /// The map holds constants of the program.
    Constant,
}
