//! Memory of keys and values: rows of atomic words.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The size of a word in bytes.
pub(super) const WORD: usize = 8;

/// Rows of atomic words, all of the same length.
pub(super) struct Words {
    pub(super) words: Box<[AtomicU64]>,
    /// The number of words per row.
    pub(super) stride: usize,
}

impl Words {
    pub(super) fn new(rows: u32, bytes: u32) -> Words {
        let stride = (bytes as usize).div_ceil(WORD);
        Words { words: (0..rows as usize * stride).map(|_| AtomicU64::new(0)).collect(), stride }
    }

    fn row(&self, row: u32) -> &[AtomicU64] {
        &self.words[row as usize * self.stride..][..self.stride]
    }

    pub(super) fn write(&self, row: u32, bytes: &[u8]) {
        for (word, chunk) in self.row(row).iter().zip(bytes.chunks(WORD)) {
            word.store(padded(chunk), Relaxed);
        }
    }

    pub(super) fn read(&self, row: u32, bytes: &mut [u8]) {
        for (word, chunk) in self.row(row).iter().zip(bytes.chunks_mut(WORD)) {
            chunk.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..chunk.len()]);
        }
    }

    pub(super) fn equals(&self, row: u32, bytes: &[u8]) -> bool {
        self.row(row).iter().zip(bytes.chunks(WORD)).all(|(word, chunk)| word.load(Relaxed) == padded(chunk))
    }
}

/// Up to eight bytes as a word, padded with zeros, in memory order.
fn padded(chunk: &[u8]) -> u64 {
    let mut bytes = [0; WORD];
    bytes[..chunk.len()].copy_from_slice(chunk);
    u64::from_ne_bytes(bytes)
}
