//! The frame on its way: what deparsers have put in front, and the received bytes behind that.

use super::value::Value;

/// The current frame: whole bytes of `head`, then the received ones from `from` on, cut to `limit` bytes; with a cursor and an output.
#[derive(Default)]
pub(super) struct Packet {
    pub head: Value,
    pub from: u32,
    pub limit: Option<u32>,
    /// In bits.
    pub cursor: u64,
    /// What the deparser has emitted.
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
