//! What a deparser emits: header values that have not been stored yet.

use crate::header::HeaderLayout;
use ir::{Cfg, Op, SlotId, Stage};
use mir::Value;

/// A piece of a bit string: words, least significant first, of which the low `width` bits count.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub words: Vec<Value>,
    pub width: u32,
}

/// The contents of a header segment ([`crate::header::Segment`]).
pub(crate) enum Emission {
    /// Number of bytes, and the pieces that make them up.
    Fixed(u32, Vec<Piece>),
    /// A varbit's words, and its length in bytes.
    Var(Vec<Value>, Value),
    /// Pieces, of which the one at the given index is a varbit; the slot has its length in bits.
    Odd(Vec<Piece>, (u32, SlotId)),
}

/// A header that is emitted if it is valid.
pub(crate) struct Emitted {
    /// Whether the header is valid, as a word.
    pub valid: Value,
    pub segments: Vec<Emission>,
    /// Length of the header in bytes if it is valid, else 0.
    pub bytes: Value,
}

/// State of the current deparser stage.
#[derive(Default)]
pub(crate) struct Deparser {
    /// Whether the deparser has no branches, so that emitted headers are recorded.
    pub is_straight: bool,
    pub emitted: Vec<Emitted>,
    /// Whether it may emit more than [`ir::EMITTED_BYTES_MAX`] bytes.
    pub may_overflow: bool,
    /// Size of the buffer in bytes; 0 if there is none.
    pub buffer_bytes: u32,
    pub truncates: bool,
}

impl Deparser {
    /// The deparser of a stage; `headers` are the layouts of the program's headers.
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
