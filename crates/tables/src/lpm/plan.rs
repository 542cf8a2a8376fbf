//! Extracts the prefix field and the exact fields from the keys of an LPM table.
//!
//! Threads: any. Tests: `tests/properties.rs`, through tables.
#![allow(unsafe_code)]

use super::MAX_WIDTH;
use super::word::{Prefix, Word};
use crate::key::KeyShape;
use crate::map;
use crate::sync::CachePadded;
use abi::table::KeyField;
use base::entry::MatchKind;

/// The position of the fields in a key.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) prefix: KeyField,
    /// For each word of the exact fields, where it is copied from and to.
    pub(super) exact: Vec<CachePadded<ExactWord>>,
    /// Whether the key is only the prefix field, and that is as wide as the trie's words.
    pub(super) plain: bool,
    /// Bytes of a whole key.
    pub(super) bytes: usize,
}

/// The position of a word of an exact field in a key, and in the packed exact fields.
#[derive(Debug)]
pub(super) struct ExactWord {
    word: usize,
    shift: u32,
    mask: u64,
    to: usize,
    to_shift: u32,
}

impl Plan {
    /// The plan for keys of this shape; `None` if the LPM engine cannot match them.
    pub(super) fn new(shape: &KeyShape) -> Option<Plan> {
        let fields = &shape.layout().fields;
        let is_prefix = |f: &&KeyField| f.kind == MatchKind::Lpm;
        let prefix = fields.iter().find(is_prefix)?.clone();
        let rest = || fields.iter().filter(|f| !is_prefix(f));
        let packed = abi::KeyLayout::new(rest().map(|f| (f.width, f.kind)));
        let fits = prefix.width <= MAX_WIDTH
            && packed.bytes <= map::MAX_KEY_BYTES
            && rest().all(|f| f.kind == MatchKind::Exact);
        let words = |(from, to): (&KeyField, &KeyField)| {
            let (first, to_first) = (from.offset as usize / 8, to.offset as usize / 8);
            let mask = u64::MAX >> (64 - 8 * from.bytes.min(8));
            let (shift, to_shift) = (from.offset % 8 * 8, to.offset % 8 * 8);
            let word =
                move |i: usize| CachePadded(ExactWord { word: first + i, shift, mask, to: to_first + i, to_shift });
            (0..from.bytes.div_ceil(8) as usize).map(word)
        };
        let exact = || rest().zip(&packed.fields).flat_map(words).collect();
        let plain = fields.len() == 1 && matches!(prefix.width, 32 | 64 | 128);
        fits.then(|| Plan { prefix, exact: exact(), plain, bytes: shape.layout().bytes as usize })
    }

    /// The prefix field's value in a key.
    ///
    /// # Safety
    /// `key` points at a key of the table's layout.
    #[inline(always)]
    pub(super) unsafe fn value<T: Word>(&self, key: *const u8) -> T {
        // SAFETY: the field lies in the key, in little-endian order like this machine's.
        let value = unsafe {
            let at = key.add(self.prefix.offset as usize);
            match self.prefix.bytes {
                1 => u128::from(at.read()),
                2 => u128::from(at.cast::<u16>().read_unaligned()),
                4 => u128::from(at.cast::<u32>().read_unaligned()),
                8 => u128::from(at.cast::<u64>().read_unaligned()),
                _ => at.cast::<u128>().read_unaligned(),
            }
        };
        T::align(value, self.prefix.width)
    }

    /// The exact fields of a key, packed into 16 bytes.
    ///
    /// # Safety
    /// As [`Plan::value`].
    #[inline(always)]
    pub(super) unsafe fn exact(&self, key: *const u8) -> [u64; 2] {
        let mut packed = [0u64; 2];
        for CachePadded(field) in &self.exact {
            // SAFETY: the field lies in the key, its copy in the 16 bytes that the plan was checked against.
            unsafe {
                let word = key.cast::<u64>().add(field.word).read_unaligned();
                let part = (word >> field.shift & field.mask) << field.to_shift;
                // In registers: an array written by two 8-byte stores and read by a 16-byte load would fail
                // store-to-load forwarding.
                let second = (field.to as u64).wrapping_neg();
                packed = [packed[0] | part & !second, packed[1] | part & second];
            }
        }
        packed
    }

    /// The prefix that a packed key (values, then masks) stores.
    pub(super) fn prefix<T: Word>(&self, packed: &[u64]) -> Prefix<T> {
        let words = packed.len() / 2;
        let bytes = self.prefix.offset as usize;
        let mask = &packed[words + bytes / 8..];
        let len = match self.prefix.bytes {
            16 => mask[0].count_ones() + mask[1].count_ones(),
            8 => mask[0].count_ones(),
            narrow => (mask[0] >> (bytes % 8 * 8) & ((1 << (8 * narrow)) - 1)).count_ones(),
        };
        // SAFETY: the first half of a packed key has the key's layout.
        Prefix { value: unsafe { self.value(packed.as_ptr().cast()) }, len }
    }
}

/// Writes a prefix's value and mask into its field of a packed key.
pub(super) fn set_prefix<T: Word>(field: &KeyField, prefix: Prefix<T>, packed: &mut [u64]) {
    let words = packed.len() / 2;
    let ones = T::align(u128::MAX, field.width).prefix(prefix.len);
    for (base, value) in [(0, prefix.value), (words, ones)] {
        let value = value.number(field.width);
        let (at, shift) = (base + field.offset as usize / 8, field.offset % 8 * 8);
        if field.bytes == 16 {
            packed[at] = value as u64;
            packed[at + 1] = (value >> 64) as u64;
        } else {
            let field_mask = u64::MAX >> (64 - 8 * field.bytes) << shift;
            packed[at] = packed[at] & !field_mask | (value as u64) << shift;
        }
    }
}
