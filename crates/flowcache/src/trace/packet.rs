//! The current frame of a run: bytes that deparsers have put in front, followed by received bytes.

use super::value::Value;

/// The current frame: the whole bytes of `head`, then the received bytes from `from` on, truncated to `limit`
/// bytes; with the parser's cursor and the deparser's output.
#[derive(Default)]
pub(super) struct Packet {
    pub head: Value,
    pub from: u32,
    pub limit: Option<u32>,
    /// Position of the parser in bits.
    pub cursor: u64,
    /// The deparser's output so far.
    pub out: Value,
    pub truncate: Option<u64>,
    /// Whether a deparser has run.
    pub is_rewritten: bool,
}

impl Packet {
    pub fn head_bytes(&self) -> u32 {
        self.head.width() / 8
    }

    pub fn consumed(&self) -> u32 {
        (self.cursor / 8) as u32
    }
}
