//! What a deparser emits: values of headers that are on their way into the frame.

use crate::header::HeaderLayout;
use ir::{Cfg, Op, SlotId, Stage};
use mir::Value;

/// A part of a bit string: a value as words, and its width.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub words: Vec<Value>,
    pub width: u32,
}

/// What is to be emitted of a segment.
pub(crate) enum Emission {
    /// Bytes, and their string.
    Fixed(u32, Vec<Piece>),
    /// A varbit's words, and how many bytes.
    Var(Vec<Value>, Value),
    /// Pieces, of which one counts with so many bits.
    Odd(Vec<Piece>, (u32, SlotId)),
}

/// A header that is emitted if it is valid.
pub(crate) struct Emitted {
    /// Whether it is, as a word.
    pub valid: Value,
    pub segments: Vec<Emission>,
    /// Its bytes if it is valid, else 0.
    pub bytes: Value,
}

/// The deparser stage at hand.
#[derive(Default)]
pub(crate) struct Deparser {
    /// Whether it has no branches, so that headers are remembered.
    pub is_straight: bool,
    pub emitted: Vec<Emitted>,
    /// Whether it may emit more than allowed.
    pub may_overflow: bool,
    /// Bytes of the buffer, if it has one.
    pub buffer_bytes: u32,
    pub truncates: bool,
}

impl Deparser {
    /// A stage, whose headers have these layouts.
    pub fn new(stage: &Stage, headers: &[HeaderLayout]) -> Deparser {
        let cfg = Cfg::new(stage);
        let ops = || cfg.rpo.iter().flat_map(|block| &stage.blocks[block.index()].insts).map(|inst| &inst.op);
        let bytes = |op: &Op| match op {
            Op::Emit { header } => u64::from(headers[header.index()].max_bytes),
            _ => 0,
        };
        let most: u64 = ops().map(bytes).sum();
        let may_overflow = cfg.loop_heads().contains(&true) || most > ir::EMITTED_BYTES_MAX.into();
        let longest = ops().map(bytes).max().unwrap_or(0);
        let buffer_bytes = if may_overflow { u64::from(ir::EMITTED_BYTES_MAX) + longest } else { most };
        Deparser {
            is_straight: cfg.succs.iter().all(|succs| succs.len() <= 1) && !may_overflow,
            emitted: Vec::new(),
            may_overflow,
            buffer_bytes: buffer_bytes as u32,
            truncates: ops().any(|op| matches!(op, Op::Truncate { .. })),
        }
    }
}
