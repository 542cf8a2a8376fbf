//! State shared by the passes of a trace.

use super::value::Value;
use crate::path::WINDOW;
use ir::Program;
use ir::layout::RecordLayout;
use std::sync::Arc;

/// Maximum number of blocks that a pass executes; loops reach it soon.
pub(super) const BLOCKS_MAX: u32 = 1 << 14;

/// A program with tables for the passes.
#[derive(Debug)]
pub(super) struct Context {
    pub program: Arc<Program>,
    pub layout: RecordLayout,
    /// By word of a record: the slot, and the position of the word's lowest bit in it.
    pub words: Vec<(u32, u32)>,
    /// By slot: its initial value.
    pub zeros: Vec<Value>,
}

impl Context {
    pub fn new(program: Arc<Program>) -> Context {
        let layout = RecordLayout::new(&program);
        let words = program.slots.iter().enumerate();
        let words = words.flat_map(|(i, slot)| (0..slot.width.div_ceil(64)).map(move |k| (i as u32, 64 * k))).collect();
        let zeros = program.slots.iter().map(|slot| Value::constant(slot.width, 0)).collect();
        Context { program, layout, words, zeros }
    }
}

/// What is known to be the same for all frames of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Known {
    pub mask: [u8; WINDOW],
    /// Whether all frames have the same length.
    pub length: bool,
}
