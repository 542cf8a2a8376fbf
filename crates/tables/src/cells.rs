//! Cells of memory for entries: many small ones, cut from chunks in multiples of 16 bytes. Freed cells are kept in a
//! free list per size; chunks are returned to the system when the [`Cells`] are dropped.
//!
//! Cells of a [`Row`] have one size and are adjacent, so that the address of a cell gives its number.
//!
//! Threads: writer only. Tests: `entry/tests.rs`.
#![allow(unsafe_code)]

use crate::region::Region;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr;

/// The unit of allocation in bytes; sizes are multiples of it, and cells are aligned to it.
const GRAIN: usize = 16;
/// Limit in bytes of cells that are cut from chunks; larger ones are allocated separately.
const LARGEST_CELL: usize = 512;
/// Bytes of a chunk of cells.
const CHUNK_BYTES: usize = 64 << 10;
const LINE: usize = 64;

/// An allocator for cells, whose sizes are multiples of 16 bytes and which are aligned to 16.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    /// By size in units of 16 bytes.
    sizes: Vec<FreeCells>,
    chunks: Vec<*mut u8>,
}

/// The free cells of one size.
#[derive(Clone, Debug)]
struct FreeCells {
    given_back: Vec<*mut u8>,
    /// Cells at the end of the latest chunk that were never used: the address of the first one, and their number.
    fresh: (*mut u8, usize),
}

// SAFETY: the pointers point at memory that this value owns; it is not shared with other writers.
unsafe impl Send for Cells {}

/// Size of the cell for so many bytes.
fn cell_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(GRAIN).max(GRAIN)
}

fn chunk_layout() -> Layout {
    Layout::from_size_align(CHUNK_BYTES, LINE).expect("a chunk is no larger than memory")
}

fn large_layout(cell: usize) -> Layout {
    Layout::from_size_align(cell, LINE).expect("an entry is no larger than memory")
}

impl Cells {
    /// A cell of at least so many bytes, aligned to 16.
    pub(crate) fn take(&mut self, bytes: usize) -> *mut u8 {
        let bytes = cell_bytes(bytes);
        if bytes > LARGEST_CELL {
            let layout = large_layout(bytes);
            // SAFETY: the layout is not empty.
            let cell = unsafe { alloc(layout) };
            if cell.is_null() {
                handle_alloc_error(layout);
            }
            return cell;
        }
        let class = bytes / GRAIN;
        if self.sizes.len() <= class {
            self.sizes.resize(class + 1, FreeCells { given_back: Vec::new(), fresh: (ptr::null_mut(), 0) });
        }
        let FreeCells { given_back, fresh: (fresh, left) } = &mut self.sizes[class];
        if let Some(cell) = given_back.pop() {
            return cell;
        }
        if *left == 0 {
            // SAFETY: the layout is not empty.
            *fresh = unsafe { alloc(chunk_layout()) };
            if fresh.is_null() {
                handle_alloc_error(chunk_layout());
            }
            self.chunks.push(*fresh);
            *left = CHUNK_BYTES / bytes;
        }
        let cell = *fresh;
        *left -= 1;
        // SAFETY: the cells that are left, `cell` among them, are inside the chunk.
        *fresh = unsafe { fresh.add(bytes) };
        cell
    }

    /// Frees a cell.
    ///
    /// # Safety
    /// The cell was taken with the same number of bytes, is freed once, and no one uses it.
    pub(crate) unsafe fn release(&mut self, cell: *mut u8, bytes: usize) {
        let bytes = cell_bytes(bytes);
        if bytes > LARGEST_CELL {
            // SAFETY: a cell of this size was allocated separately with this layout.
            unsafe { dealloc(cell, large_layout(bytes)) };
        } else {
            self.sizes[bytes / GRAIN].given_back.push(cell);
        }
    }
}

impl Cells {
    /// Bytes of all chunks.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES
    }
}

impl Drop for Cells {
    /// Frees the chunks. The owner must free cells above [`LARGEST_CELL`] first.
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: allocated with this layout and freed once.
            unsafe { dealloc(chunk, chunk_layout()) };
        }
    }
}

/// A bounded number of adjacent cells of one size. Its pages take memory only when they are used.
#[derive(Debug)]
pub(crate) struct Row {
    lines: Region<Line>,
    /// Bytes from one cell to the next.
    pub(crate) distance: usize,
    pub(crate) count: usize,
    /// The number of cells, from the first on, that were ever used.
    begun: usize,
    /// Those of them that are free.
    pub(crate) given_back: Vec<*mut u8>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; LINE],
}

// SAFETY: as for `Cells`.
unsafe impl Send for Row {}

impl Row {
    /// `count` cells of at least so many bytes, aligned to 16.
    pub(crate) fn new(bytes: usize, count: usize) -> Row {
        let distance = cell_bytes(bytes);
        // SAFETY: all zero bytes are valid lines.
        let lines = unsafe { Region::zeroed((distance * count).div_ceil(LINE)) };
        Row { lines, distance, count, begun: 0, given_back: Vec::new() }
    }

    /// The first cell.
    pub(crate) fn first(&self) -> *mut u8 {
        self.lines.as_mut_ptr().cast()
    }

    /// A free cell, if there is one.
    pub(crate) fn take(&mut self) -> Option<*mut u8> {
        self.given_back.pop().or_else(|| {
            let at = self.begun;
            self.begun += usize::from(at < self.count);
            // SAFETY: the cell is in the row.
            (at < self.count).then(|| unsafe { self.first().add(at * self.distance) })
        })
    }

    /// Whether a cell is in the row.
    pub(crate) fn has(&self, cell: *const u8) -> bool {
        let from = self.first().addr();
        (from..from + self.distance * self.count).contains(&cell.addr())
    }
}
