//! Memory for nodes and lists. Nearly every change of a trie makes a node anew that is a little larger or smaller, and
//! frees the old one; so a few freed pieces of each size are kept, and the system's allocator, which would join and split
//! them and wait for memory while it does, is seldom asked.
//!
//! Threads: the writer's. Tests: those of the trie.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

/// Sizes are multiples of this, and pieces are aligned to it.
const GRAIN: usize = 16;
/// Freed pieces of one size that are kept.
const KEPT: usize = 32;

/// Freed pieces, by the number of [`GRAIN`]s.
#[derive(Debug, Default)]
pub struct Spare(Vec<Vec<*mut u8>>);

// SAFETY: whoever has the value owns the pieces.
unsafe impl Send for Spare {}

/// Memory that was unlinked but that readers may still see.
#[derive(Debug)]
pub struct Dead {
    at: *mut u8,
    bytes: usize,
}

// SAFETY: whoever has the value owns the memory.
unsafe impl Send for Dead {}

fn layout(grains: usize) -> Layout {
    Layout::from_size_align(grains * GRAIN, GRAIN).expect("a node is small")
}

impl Spare {
    /// At least so many bytes, aligned to 16.
    pub fn take(&mut self, bytes: usize) -> *mut u8 {
        let grains = bytes.div_ceil(GRAIN);
        if let Some(piece) = self.0.get_mut(grains).and_then(Vec::pop) {
            return piece;
        }
        // SAFETY: nobody asks for no bytes, so the layout is not empty.
        let piece = unsafe { alloc(layout(grains)) };
        if piece.is_null() {
            handle_alloc_error(layout(grains));
        }
        piece
    }

    /// Takes memory back.
    ///
    /// # Safety
    /// No reader can see it any more, and it is given back once.
    pub unsafe fn give_back(&mut self, Dead { at, bytes }: Dead) {
        let grains = bytes.div_ceil(GRAIN);
        if self.0.len() <= grains {
            self.0.resize_with(grains + 1, Vec::new);
        }
        if self.0[grains].len() < KEPT {
            self.0[grains].push(at);
        } else {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(at, layout(grains)) };
        }
    }
}

impl Dead {
    /// What `take` gave for so many bytes.
    pub fn new<P>(at: *mut P, bytes: usize) -> Dead {
        Dead { at: at.cast(), bytes }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        for (grains, pieces) in self.0.iter().enumerate() {
            // SAFETY: each was allocated with this layout.
            pieces.iter().for_each(|piece| unsafe { dealloc(*piece, layout(grains)) });
        }
    }
}
