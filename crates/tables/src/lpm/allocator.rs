//! Allocator for the nodes and lists of one table. Nearly every change of a trie replaces a node by one that is a
//! little larger or smaller; so freed pieces are kept in a free list per size, and new ones are cut from chunks.
//!
//! The system's allocator would merge and split such pieces, at the cost of cache misses. Chunks of larger tables are
//! huge pages ([`crate::region`]), since each step of a lookup touches a different page.
//!
//! Invariant: every piece is in use, in the free list of its size, or in the unused rest of the last chunk. Chunks are
//! returned to the system when no piece is in use, and on drop.
//!
//! Threads: writer only. Tests: `allocator/tests.rs`, and those of the trie.
#![allow(unsafe_code)]

use crate::region::Region;

/// The unit of allocation in bytes; sizes are multiples of it, and pieces are aligned to it.
const GRAIN: usize = 16;
/// Grains of a chunk of a small table (32 KB).
const SMALL_CHUNK: usize = (32 << 10) / GRAIN;
/// Grains of a chunk once half as many are allocated: a huge page (2 MB).
const LARGE_CHUNK: usize = (2 << 20) / GRAIN;

/// One unit of allocation.
#[repr(C, align(16))]
struct Grain([u8; GRAIN]);

/// Free pieces by their number of grains, and the chunks that they are cut from.
#[derive(Debug, Default)]
pub struct NodeAllocator {
    free: Vec<Vec<*mut u8>>,
    chunks: Vec<Region<Grain>>,
    /// Grains of the last chunk that were handed out so far.
    cut: usize,
    /// Number of pieces that are handed out.
    in_use: usize,
}

impl std::fmt::Debug for Grain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grain").finish_non_exhaustive()
    }
}

// SAFETY: the pointers point into the chunks, which the value owns.
unsafe impl Send for NodeAllocator {}

/// Unlinked memory that readers may still see.
#[derive(Debug)]
pub struct Unlinked {
    at: *mut u8,
    bytes: usize,
}

// SAFETY: the value owns the memory.
unsafe impl Send for Unlinked {}

impl NodeAllocator {
    /// Allocates at least `bytes` bytes, aligned to 16. They are valid until given back, at most as long as the
    /// `NodeAllocator`.
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

    /// Adds a chunk with room for `grains`; the rest of the last one becomes a free piece.
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

    /// Takes freed memory back.
    ///
    /// # Safety
    /// No reader can see the memory any more; it came from this `NodeAllocator`, and is given back once.
    pub unsafe fn release(&mut self, Unlinked { at, bytes }: Unlinked) {
        self.in_use -= 1;
        if self.in_use == 0 {
            *self = NodeAllocator::default();
        } else {
            self.keep(at, bytes.div_ceil(GRAIN));
        }
    }

    /// Bytes of all chunks.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(Region::bytes).sum()
    }
}

impl Unlinked {
    /// The memory that [`NodeAllocator::take`] returned for so many bytes.
    pub fn new<P>(at: *mut P, bytes: usize) -> Unlinked {
        Unlinked { at: at.cast(), bytes }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests;
