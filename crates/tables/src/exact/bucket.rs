//! One bucket with its slots, and the protocol by which readers read it during changes. [`super`] has the layout.
#![allow(unsafe_code)]

use crate::sync::{AtomicU32, Ordering};

/// Bytes of a bucket, and its alignment: one cache line.
pub const BUCKET_BYTES: u32 = 64;
/// Byte offset of the state word, which is the bucket's last four bytes.
pub const META_OFFSET: u32 = BUCKET_BYTES - 4;
/// Limit of the slots of a bucket: the state word has bits for so many.
pub const SLOTS_MAX: u32 = 8;
/// The lowest of the dead bits, one for each slot: retired, and perhaps still being read.
const DEAD_SHIFT: u32 = 8;
/// The lowest of the overflow marks: keys that were not stored here because the bucket was full.
pub const PASSED_SHIFT: u32 = 16;
/// Number of overflow marks.
pub const PASSED_MARKS: u32 = 16;

/// The layout of the buckets of one table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Bytes of a key in a slot: 4, 8, 12 or 16. The keys come first: the first 8 bytes of each, consecutively, then
    /// the rest of each.
    pub key_bytes: u32,
    /// Number of slots.
    pub slots: u32,
    /// Bytes of a slot's entry, or of its address if it is out of line; the entries follow the keys consecutively.
    pub entry_bytes: u32,
}

impl Shape {
    /// The shape with as many slots as fit.
    pub fn new(key_bytes: u32, entry_bytes: u32) -> Shape {
        let slots = (META_OFFSET / (key_bytes + entry_bytes)).min(SLOTS_MAX);
        Shape { key_bytes, slots, entry_bytes }
    }

    /// Byte offset of a slot's entry in the bucket.
    pub fn entry_offset(&self, slot: usize) -> usize {
        self.slots as usize * self.key_bytes as usize + slot * self.entry_bytes as usize
    }

    pub(super) fn key_words(&self) -> usize {
        self.key_bytes as usize / 4
    }

    /// Index of a 32-bit word of a slot's key in the bucket, in such words.
    #[inline]
    fn key_word(&self, slot: usize, word: usize) -> usize {
        let (front, words) = (self.key_words().min(2), self.key_words());
        if word < front {
            slot * front + word
        } else {
            self.slots as usize * front + slot * (words - front) + word - front
        }
    }

    pub(super) fn all(&self) -> u32 {
        (1 << self.slots) - 1
    }
}

#[cfg(not(loom))]
const WORDS: usize = BUCKET_BYTES as usize / 4;
/// Two keys of two words and the state word: a model must have few steps.
#[cfg(loom)]
const WORDS: usize = 5;

/// A cache line of slots.
#[cfg_attr(not(loom), repr(C, align(64)))]
#[derive(Debug)]
pub struct Bucket {
    words: [AtomicU32; WORDS],
    /// The model checker observes accesses to the entries.
    #[cfg(loom)]
    entries: [loom::cell::UnsafeCell<u64>; 2],
}

/// A bucket's state word at one moment.
#[derive(Clone, Copy)]
pub(super) struct Meta(u32);

impl Meta {
    /// One bit for each live slot.
    pub(super) fn live(self, shape: &Shape) -> u32 {
        self.0 & shape.all()
    }

    /// One bit for each slot that may be filled.
    pub(super) fn free(self, shape: &Shape) -> u32 {
        !(self.0 | self.0 >> DEAD_SHIFT) & shape.all()
    }

    /// Whether keys with this mark overflowed: they may be in later buckets.
    pub(super) fn passed(self, mark: u32) -> bool {
        self.0 >> (PASSED_SHIFT + mark) & 1 == 1
    }
}

impl Bucket {
    #[cfg(loom)]
    pub(super) fn new() -> Bucket {
        Bucket {
            words: std::array::from_fn(|_| AtomicU32::new(0)),
            entries: std::array::from_fn(|_| loom::cell::UnsafeCell::new(0)),
        }
    }

    /// The state word. Loaded before anything else of the bucket: a slot seen live has its key and entry.
    #[inline]
    pub(super) fn meta(&self) -> Meta {
        Meta(self.words[WORDS - 1].load(Ordering::Acquire))
    }

    /// One bit for each slot that holds this key, in whatever state.
    #[inline]
    pub(super) fn matching(&self, shape: &Shape, key: &[u32]) -> u32 {
        debug_assert_eq!(key.len(), shape.key_words());
        let shape = Shape { key_bytes: 4 * key.len() as u32, ..*shape };
        let same = |slot: usize| {
            let word = |i: usize| self.words[shape.key_word(slot, i)].load(Ordering::Relaxed);
            key.iter().enumerate().fold(0, |differ, (i, k)| differ | (word(i) ^ k)) == 0
        };
        (0..shape.slots).fold(0, |bits, slot| bits | u32::from(same(slot as usize)) << slot)
    }

    /// The key of a slot.
    pub(super) fn key(&self, shape: &Shape, slot: usize, out: &mut [u32]) {
        let word = |i: usize| self.words[shape.key_word(slot, i)].load(Ordering::Relaxed);
        out.iter_mut().take(shape.key_words()).enumerate().for_each(|(i, out)| *out = word(i));
    }
}

/// The bytes of entries.
#[cfg(not(loom))]
impl Bucket {
    /// The address of a slot's entry.
    #[inline]
    pub(crate) fn entry(&self, shape: &Shape, slot: usize) -> *mut u8 {
        let offset = shape.entry_offset(slot);
        debug_assert!(offset + shape.entry_bytes as usize <= META_OFFSET as usize);
        // From the atomics' own pointer: their bytes may be written through a shared reference.
        self.words.as_ptr().cast::<u8>().cast_mut().wrapping_add(offset)
    }

    pub(super) fn copy_entry(&self, slot: usize, from: &Bucket, from_slot: usize, shape: &Shape) {
        // SAFETY: both slots have so many bytes; ours is free and not visible, and theirs does not change.
        unsafe {
            let bytes = shape.entry_bytes as usize;
            std::ptr::copy_nonoverlapping(from.entry(shape, from_slot), self.entry(shape, slot), bytes);
        }
    }
}

#[cfg(loom)]
impl Bucket {
    /// The entry of a slot.
    pub fn entry(&self, _shape: &Shape, slot: usize) -> &loom::cell::UnsafeCell<u64> {
        &self.entries[slot]
    }

    pub(super) fn copy_entry(&self, slot: usize, from: &Bucket, from_slot: usize, _shape: &Shape) {
        // SAFETY: the model checker reports who else accesses them.
        unsafe { self.entries[slot].with_mut(|to| from.entries[from_slot].with(|from| *to = *from)) };
    }
}

/// Operations of the writer.
impl Bucket {
    fn change(&self, change: impl FnOnce(u32) -> u32) {
        let meta = &self.words[WORDS - 1];
        meta.store(change(meta.load(Ordering::Relaxed)), Ordering::Release);
    }

    /// Writes the key of a free slot.
    pub(super) fn set_key(&self, shape: &Shape, slot: usize, key: &[u32]) {
        let words = key.iter().enumerate().take(shape.key_words());
        words.for_each(|(i, k)| self.words[shape.key_word(slot, i)].store(*k, Ordering::Relaxed));
    }

    /// Makes a slot live and, in the same store, another one dead.
    pub(super) fn publish(&self, slot: usize, instead_of: Option<usize>) {
        let old = instead_of.map_or(0, |old| 1 << old);
        self.change(|meta| (meta | 1 << slot | old << DEAD_SHIFT) & !old);
    }

    /// Makes a live slot dead.
    pub(super) fn unpublish(&self, slot: usize) {
        self.change(|meta| (meta & !(1 << slot)) | 1 << (slot as u32 + DEAD_SHIFT));
    }

    /// Frees a dead slot; every reader has been quiescent since it died.
    pub(super) fn release(&self, slot: usize) {
        self.change(|meta| meta & !(1 << (slot as u32 + DEAD_SHIFT)));
    }

    /// Sets all overflow marks, one bit for each.
    #[cfg(not(loom))]
    pub(super) fn set_passed(&self, marks: u16) {
        self.change(|meta| (meta & ((1 << PASSED_SHIFT) - 1)) | u32::from(marks) << PASSED_SHIFT);
    }

    /// Sets an overflow mark: a key with this mark is in a later bucket.
    pub(super) fn pass(&self, mark: u32) {
        self.change(|meta| meta | 1 << (PASSED_SHIFT + mark));
    }
}
