//! What a packet does to state that workers share, and where that state lies.

use super::lines::Time;
use super::traffic::hash;

/// How packets access their cells.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Access {
    /// No state that another worker has: header fields, tables, and counters, of which each worker has its own.
    Own,
    /// Locks all cells, changes them, and releases all.
    Locked(Wait),
    /// Reads the cell without its lock; this share of packets also locks and changes it.
    Peek(f64),
    /// One instruction that changes the cell.
    Add,
    /// Changes cells in a worker's turn: one batch at a time.
    Turn,
}

/// What a worker does that finds a lock taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Reads it until it is free (`datapath`'s `wait_for_lock`).
    Poll,
    /// Tries again to take it (meters).
    Retry,
}

/// Where the cells of a packet are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// A hashed cell in each of some registers.
    Registers {
        /// Registers.
        count: usize,
        /// Cells of each.
        cells: usize,
        /// Bytes from one cell to the next.
        stride: usize,
    },
    /// A cell for each flow, one after the other; flows beyond the last share cells.
    Entries {
        /// Cells.
        cells: usize,
        /// Bytes of each, also more than a line.
        stride: usize,
    },
}

const LINE_BYTES: usize = 64;

/// A cell, and its lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its number among all.
    pub cell: usize,
    /// The line where it begins.
    pub first: usize,
    /// The line where it ends.
    pub last: usize,
}

impl Layout {
    fn size(self) -> (usize, usize, usize) {
        match self {
            Layout::Registers { count, cells, stride } => (count, cells, stride),
            Layout::Entries { cells, stride } => (1, cells, stride),
        }
    }

    /// Cells of all registers.
    pub fn cells(self) -> usize {
        let (count, cells, _) = self.size();
        count * cells
    }

    /// Lines of all registers.
    pub fn lines(self) -> usize {
        let (count, cells, stride) = self.size();
        count * (cells * stride).div_ceil(LINE_BYTES)
    }

    /// The cells of a flow's packets.
    pub fn places(self, flow: u32) -> impl Iterator<Item = Place> {
        let (count, cells, stride) = self.size();
        let lines = (cells * stride).div_ceil(LINE_BYTES);
        (0..count).map(move |register| {
            let at = match self {
                Layout::Registers { .. } => (hash(flow, register as u64) % cells as u64) as usize,
                Layout::Entries { .. } => flow as usize % cells,
            };
            let line = |byte: usize| register * lines + byte / LINE_BYTES;
            Place { cell: register * cells + at, first: line(at * stride), last: line((at + 1) * stride - 1) }
        })
    }
}

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// What packets do to cells.
    pub access: Access,
    /// Where these are.
    pub layout: Layout,
    /// The time of a packet with one worker, with code for several.
    pub pass: Time,
    /// The part of it in which locks are held.
    pub hold: Time,
    /// Whether batches prefetch their cells.
    pub prefetches: bool,
}
