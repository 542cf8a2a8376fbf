//! What a traced packet's way comes to: which frames go it, and what happens to their bytes.

use ir::{BinOp, UnOp};

/// Bytes of a frame that a path may look at and rewrite: the first so many.
pub const WINDOW: usize = 256;

/// The frames that go a path. Bytes behind the end of a frame count as zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Bits of the frame's first bytes that are compared; at most [`WINDOW`] bytes, the last one not zero.
    pub mask: Box<[u8]>,
    /// What they are: as long as the mask, zero outside of it.
    pub value: Box<[u8]>,
    /// Bytes that a frame has at least.
    pub shortest: u32,
    /// Bytes that a frame has at most.
    pub longest: u32,
}

/// Where a step finds a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// What an earlier step has computed.
    Register(u8),
    /// A constant.
    Const(u64),
}

/// 64 bits of the received frame that a sum takes in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Word {
    /// The first byte's place, even.
    pub at: u16,
    /// The bits that count, in network byte order as a big-endian number.
    pub mask: u64,
}

/// A step of a rewriting. Values have at most 64 bits; those of fewer have zeros above. `Load`, `Sum` and `Copy` read the frame as
/// received, whatever was written before.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named by the variant's text")]
pub enum Step {
    /// `to` = `width` bits of the received frame from bit `bit` on; bit 0 is the first byte's most significant one.
    Load { to: u8, bit: u16, width: u8 },
    /// `to = a op b`, as [`BinOp`] has it for values of `width` bits (comparisons give 0 or 1; shift amounts have any width).
    Binary { op: BinOp, to: u8, a: Source, b: Source, width: u8 },
    /// `to = op a`, of `width` bits.
    Unary { op: UnOp, to: u8, a: Source, width: u8 },
    /// `to = cond != 0 ? then : other`.
    Select { to: u8, cond: Source, then: Source, other: Source },
    /// `to` = the one's complement sum (RFC 1071) of 16 bits: of the words' 16-bit parts, of the values' 16-bit parts, of `constant`.
    /// It is 0 only if everything is. Not complemented.
    Sum { to: u8, words: Box<[Word]>, values: Box<[Source]>, constant: u16 },
    /// Writes `width` bits of the new head from bit `bit` on; the bits around them stay.
    Store { bit: u16, width: u8, value: Source },
    /// Writes bytes of the new head.
    Bytes { at: u16, bytes: Box<[u8]> },
    /// Copies bytes of the received frame into the new head.
    Copy { from: u16, to: u16, len: u16 },
}

/// How a frame changes. Its first `replaced` bytes make room for a head of `head` bytes. If both are equal, the head begins as the bytes
/// that were received, and the steps write only what differs; otherwise they write all of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rewrite {
    /// In order.
    pub steps: Box<[Step]>,
    /// Bytes of the received frame, at most [`WINDOW`] and at most [`Pattern::shortest`].
    pub replaced: u16,
    /// Bytes of the new head, at most [`WINDOW`].
    pub head: u16,
    /// Bytes of the new frame at most.
    pub max_len: u32,
}
