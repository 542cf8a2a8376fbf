//! The packet record: the memory layout of slots outside registers.
//!
//! A record is an array of 64-bit words that holds a packet's slots across a replication point. A slot takes
//! `ceil(width / 64)` words, least significant word first; bits above the width are zero. The replication engine, the
//! interpreter and compiled code share this layout and nothing else.

use crate::program::Program;
use base::Bits;
use base::ids::SlotId;

/// Offsets of all slots in a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordLayout {
    offsets: Vec<u32>,
    widths: Vec<u32>,
    words: u32,
}

/// Number of 64-bit words of a value of `width` bits.
pub fn words_of(width: u32) -> u32 {
    width.div_ceil(64)
}

impl RecordLayout {
    /// The layout of a program's slots, in slot order.
    pub fn new(program: &Program) -> RecordLayout {
        let mut words = 0;
        let offsets = program
            .slots
            .iter()
            .map(|s| {
                let at = words;
                words += words_of(s.width);
                at
            })
            .collect();
        RecordLayout { offsets, widths: program.slots.iter().map(|s| s.width).collect(), words }
    }

    /// Length of a record in words.
    pub fn words(&self) -> usize {
        self.words as usize
    }

    /// A slot's first word.
    pub fn offset(&self, slot: SlotId) -> usize {
        self.offsets[slot.index()] as usize
    }

    /// Reads a slot.
    pub fn get(&self, record: &[u64], slot: SlotId) -> Bits {
        let at = self.offset(slot);
        let width = self.widths[slot.index()];
        let bytes: Vec<u8> =
            record[at..at + words_of(width) as usize].iter().rev().flat_map(|w| w.to_be_bytes()).collect();
        Bits::from_bytes_be(width, &bytes)
    }

    /// Writes a slot; the value has the slot's width.
    pub fn set(&self, record: &mut [u64], slot: SlotId, value: &Bits) {
        let at = self.offset(slot);
        let words = words_of(self.widths[slot.index()]) as usize;
        let mut bytes = value.to_bytes_be();
        bytes.reverse();
        bytes.resize(words * 8, 0);
        for (word, chunk) in record[at..at + words].iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        }
    }

    /// Reads a slot's least significant word.
    pub fn get_word(&self, record: &[u64], slot: SlotId) -> u64 {
        record[self.offset(slot)]
    }

    /// Writes a slot of at most 64 bits; `value` is truncated to the slot's width.
    pub fn set_word(&self, record: &mut [u64], slot: SlotId, value: u64) {
        let width = self.widths[slot.index()];
        let at = self.offset(slot);
        record[at] = if width >= 64 { value } else { value & ((1 << width) - 1) };
        for word in &mut record[at + 1..at + words_of(width) as usize] {
            *word = 0;
        }
    }
}
