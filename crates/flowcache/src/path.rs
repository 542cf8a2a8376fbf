//! The result of a trace: a pattern of frames, and a rewrite of their bytes.

use ir::{BinOp, UnOp};

/// Number of leading bytes of a frame that a path may read and rewrite.
pub const WINDOW: usize = 256;

/// A set of frames that take the same path. Bytes after the end of a frame count as zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Mask of a frame's first bytes; at most [`WINDOW`] bytes, the last one not zero.
    pub mask: Box<[u8]>,
    /// Their values under the mask; as long as the mask.
    pub value: Box<[u8]>,
    /// Minimum length of a frame in bytes.
    pub shortest: u32,
    /// Maximum length of a frame in bytes.
    pub longest: u32,
}

/// An operand of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The result of an earlier step.
    Register(u8),
    /// A constant.
    Const(u64),
}

/// 64 bits of the received frame that are added to a sum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Word {
    /// Offset of the first byte; even.
    pub at: u16,
    /// Mask of the bits to add, as a big-endian number.
    pub mask: u64,
}

/// A step of a rewrite. Values have at most 64 bits; narrower ones are zero-extended. `Load`, `Sum` and `Copy` read
/// the frame as received, whatever earlier steps have written.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named by the variant's text")]
pub enum Step {
    /// `to` = `width` bits of the received frame starting at bit `bit`; bit 0 is the most significant bit of the
    /// first byte.
    Load { to: u8, bit: u16, width: u8 },
    /// `to = a op b`, with [`BinOp`]'s semantics for values of `width` bits (comparisons give 0 or 1; shift amounts
    /// have any width).
    Binary { op: BinOp, to: u8, a: Source, b: Source, width: u8 },
    /// `to = op a`, for values of `width` bits.
    Unary { op: UnOp, to: u8, a: Source, width: u8 },
    /// `to = cond != 0 ? then : other`.
    Select { to: u8, cond: Source, then: Source, other: Source },
    /// `to` = the one's complement sum (RFC 1071), not complemented, of the 16-bit words of `words`, of the 16-bit
    /// words of `values`, and of `constant`. It is 0 only if all of them are.
    Sum { to: u8, words: Box<[Word]>, values: Box<[Source]>, constant: u16 },
    /// Writes `width` bits of the new head starting at bit `bit`; other bits are unchanged.
    Store { bit: u16, width: u8, value: Source },
    /// Writes bytes of the new head.
    Bytes { at: u16, bytes: Box<[u8]> },
    /// Copies bytes of the received frame into the new head.
    Copy { from: u16, to: u16, len: u16 },
}

/// How frames change: the first `replaced` bytes are replaced by a head of `head` bytes. If both numbers are equal,
/// the head starts out as the received bytes and the steps only write what differs; otherwise the steps write all
/// of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rewrite {
    /// The steps, in order.
    pub steps: Box<[Step]>,
    /// Number of replaced bytes of the received frame; at most [`WINDOW`] and at most [`Pattern::shortest`].
    pub replaced: u16,
    /// Length of the new head in bytes; at most [`WINDOW`].
    pub head: u16,
    /// Maximum length of the new frame in bytes.
    pub max_len: u32,
}
