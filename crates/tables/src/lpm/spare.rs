//! Memory for nodes and lists of one table. Nearly every change of a trie makes a node anew that is a little larger or smaller,
//! and frees the old one; so freed pieces are kept for the next one of their size, and new ones are cut from chunks.
//!
//! The system's allocator would join and split them, and wait for memory while it does. Chunks of larger tables are huge pages
//! ([`crate::region`]), since a walk meets a page of its own at each step.
//!
//! Invariant: a piece is in use, or free in the list of its size, or in what is left of the last chunk. Chunks go back to the
//! system when nothing is in use any more, and at the end.
//!
//! Threads: the writer's. Tests: `spare/tests.rs`, and those of the trie.
#![allow(unsafe_code)]

use crate::region::Region;

/// Sizes are multiples of this, and pieces are aligned to it.
const GRAIN: usize = 16;
/// Grains of the first chunks, 32 KB: most tables are small.
const SMALL_CHUNK: usize = (32 << 10) / GRAIN;
/// Grains of a chunk when there are so many already: a huge page.
const LARGE_CHUNK: usize = (2 << 20) / GRAIN;

/// The unit of memory.
#[repr(C, align(16))]
struct Grain([u8; GRAIN]);

/// Free pieces, by the number of grains, and the chunks that they are cut from.
#[derive(Debug, Default)]
pub struct Spare {
    free: Vec<Vec<*mut u8>>,
    chunks: Vec<Region<Grain>>,
    /// Grains of the last chunk that were handed out.
    cut: usize,
    /// Pieces that are handed out.
    in_use: usize,
}

impl std::fmt::Debug for Grain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grain").finish_non_exhaustive()
    }
}

// SAFETY: the pointers lead into the chunks, which are the value's.
unsafe impl Send for Spare {}

/// Memory that was unlinked but that readers may still see.
#[derive(Debug)]
pub struct Dead {
    at: *mut u8,
    bytes: usize,
}

// SAFETY: whoever has the value owns the memory.
unsafe impl Send for Dead {}

impl Spare {
    /// At least so many bytes, aligned to 16. They are valid as long as the `Spare`, or until given back.
    pub fn take(&mut self, bytes: usize) -> *mut u8 {
        let grains = bytes.div_ceil(GRAIN);
        self.in_use += 1;
        if let Some(piece) = self.free.get_mut(grains).and_then(Vec::pop) {
            return piece;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() - self.cut < grains) {
            self.add_chunk(grains);
        }
        let chunk = self.chunks.last().expect("one was just added");
        assert!(grains <= chunk.len() - self.cut, "a chunk has room for a node");
        let at = self.cut;
        self.cut += grains;
        // SAFETY: the piece ends in the chunk.
        unsafe { chunk.as_mut_ptr().add(at).cast() }
    }

    /// Another chunk, with room for a piece; what is left of the last one becomes a free piece.
    fn add_chunk(&mut self, grains: usize) {
        if let Some(chunk) = self.chunks.last().filter(|chunk| self.cut < chunk.len()) {
            // SAFETY: the rest begins in the chunk.
            let rest = unsafe { chunk.as_mut_ptr().add(self.cut) };
            self.keep(rest.cast(), chunk.len() - self.cut);
        }
        let there: usize = self.chunks.iter().map(|chunk| chunk.len()).sum();
        let wanted = if there < LARGE_CHUNK / 2 { SMALL_CHUNK } else { LARGE_CHUNK };
        // SAFETY: zeros are grains.
        self.chunks.push(unsafe { Region::zeroed(wanted.max(grains)) });
        self.cut = 0;
    }

    fn keep(&mut self, piece: *mut u8, grains: usize) {
        if self.free.len() <= grains {
            self.free.resize_with(grains + 1, Vec::new);
        }
        self.free[grains].push(piece);
    }

    /// Takes memory back.
    ///
    /// # Safety
    /// No reader can see it any more, it came from this `Spare`, and it is given back once.
    pub unsafe fn give_back(&mut self, Dead { at, bytes }: Dead) {
        self.in_use -= 1;
        if self.in_use == 0 {
            *self = Spare::default();
        } else {
            self.keep(at, bytes.div_ceil(GRAIN));
        }
    }

    /// Bytes of all chunks.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(Region::bytes).sum()
    }
}

impl Dead {
    /// What `take` gave for so many bytes.
    pub fn new<P>(at: *mut P, bytes: usize) -> Dead {
        Dead { at: at.cast(), bytes }
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests;
