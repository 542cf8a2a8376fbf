//! Keys of entries as words, in one canonical form: engines match on it, it identifies entries, and reads return it.
//!
//! A packed key has the words of the key layout (`abi::table`); in tables with fields of other kinds than exact, as
//! many words again follow. A field's bits in the first half hold its value (of ranges, the low end), those in the
//! second half its mask (of ranges, the high end). Value bits outside the mask are zero, so two keys match the same
//! values if and only if their words are equal.
//!
//! Tests: `key/tests.rs`.

pub mod compact;

use crate::bytes::zero;
use crate::entry::{read_words, write_words};
use abi::KeyLayout;
use abi::table::KeyField;
use base::Bits;
use base::entry::{KeyMatch, MatchKind};
use std::ops::Range;

/// The layout of one table's keys, packed or not.
#[derive(Clone, Debug)]
pub struct KeyShape {
    layout: KeyLayout,
    words: usize,
    all_exact: bool,
}

impl KeyShape {
    /// The shape of keys whose fields have these widths in bits and match kinds.
    pub fn new(keys: &[(u32, MatchKind)]) -> KeyShape {
        let all_exact = keys.iter().all(|(_, kind)| *kind == MatchKind::Exact);
        let layout = if all_exact {
            KeyLayout::packed(keys.iter().map(|(width, _)| *width))
        } else {
            KeyLayout::new(keys.iter().copied())
        };
        let words = layout.bytes as usize / 8;
        KeyShape { layout, words, all_exact }
    }

    /// The layout of the fields in a packet's key.
    pub fn layout(&self) -> &KeyLayout {
        &self.layout
    }

    /// Number of 64-bit words of a packet's key.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Number of 64-bit words of a packed key.
    pub fn packed_words(&self) -> usize {
        if self.all_exact { self.words } else { 2 * self.words }
    }

    /// Packs a key into `out`, which has [`packed_words`](KeyShape::packed_words) words. Returns false if the key does
    /// not fit the table's fields. An `Exact` value may stand for a field of any kind, which then matches only this
    /// value.
    pub fn pack(&self, key: &[KeyMatch], out: &mut [u64]) -> bool {
        zero(out);
        key.len() == self.layout.fields.len()
            && key.iter().zip(&self.layout.fields).all(|(m, field)| self.pack_field(m, field, out))
    }

    fn pack_field(&self, key: &KeyMatch, field: &KeyField, out: &mut [u64]) -> bool {
        let width = field.width;
        let fits = |v: &Bits| v.width() == width;
        if let KeyMatch::Exact(value) = key {
            put(field, value, 0, out);
            if !self.all_exact {
                let second = if field.kind == MatchKind::Range { value } else { &Bits::ones(width) };
                put(field, second, self.words, out);
            }
            return fits(value);
        }
        match (key, field.kind) {
            (KeyMatch::Lpm { value, prefix_len }, MatchKind::Lpm) if *prefix_len <= width && fits(value) => {
                put(field, value, 0, out);
                put_prefix_mask(field, *prefix_len, self.words, out);
            }
            (KeyMatch::Ternary { value, mask }, MatchKind::Ternary) if fits(value) && fits(mask) => {
                put(field, value, 0, out);
                put(field, mask, self.words, out);
            }
            (KeyMatch::Optional(Some(value)), MatchKind::Optional) if fits(value) => {
                put(field, value, 0, out);
                put_prefix_mask(field, width, self.words, out);
            }
            (KeyMatch::Optional(None), MatchKind::Optional) => return true,
            (KeyMatch::Range { low, high }, MatchKind::Range) => {
                put(field, low, 0, out);
                put(field, high, self.words, out);
                return fits(low) && fits(high);
            }
            _ => return false,
        }
        for i in field.words() {
            out[i] &= out[self.words + i] | !field.place();
        }
        true
    }

    /// In a table with one `lpm` field and otherwise exact ones: calls `find` with the packed keys that match a
    /// packet's key, longest prefix first, until it returns a result. `packed` is scratch memory.
    pub fn prefixes<R>(&self, key: &[u64], packed: &mut [u64], mut find: impl FnMut(&[u64]) -> Option<R>) -> Option<R> {
        let longest = self.layout.fields.iter().find(|f| f.kind == MatchKind::Lpm)?.width;
        (0..=longest).rev().find_map(|len| {
            packed.fill(0);
            for field in &self.layout.fields {
                let len = if field.kind == MatchKind::Lpm { len } else { field.width };
                put_prefix_mask(field, len, self.words, packed);
            }
            let (values, masks) = packed.split_at_mut(self.words);
            values.iter_mut().zip(key).zip(masks).for_each(|((value, key), mask)| *value = key & *mask);
            find(packed)
        })
    }

    /// The key whose packed form this is; the inverse of [`pack`](KeyShape::pack).
    pub fn unpack(&self, packed: &[u64]) -> Vec<KeyMatch> {
        let value_of = |field: &KeyField, base: usize| get(field, base, packed);
        let unpack = |field: &KeyField| {
            let value = value_of(field, 0);
            match field.kind {
                MatchKind::Exact => KeyMatch::Exact(value),
                MatchKind::Lpm => KeyMatch::Lpm { value, prefix_len: prefix_len(&value_of(field, self.words)) },
                MatchKind::Ternary => KeyMatch::Ternary { value, mask: value_of(field, self.words) },
                MatchKind::Range => KeyMatch::Range { low: value, high: value_of(field, self.words) },
                MatchKind::Optional if value_of(field, self.words).is_zero() => KeyMatch::Optional(None),
                MatchKind::Optional => KeyMatch::Optional(Some(value)),
            }
        };
        self.layout.fields.iter().map(unpack).collect()
    }
}

/// The number of leading ones of a prefix mask.
fn prefix_len(mask: &Bits) -> u32 {
    (0..mask.width()).rev().take_while(|i| mask.bit(*i)).count() as u32
}

/// The position of a field in the words of a key.
trait Place {
    /// The words that the field lies in.
    fn words(&self) -> Range<usize>;
    /// The bits of each of these words that belong to the field.
    fn place(&self) -> u64;
}

impl Place for KeyField {
    fn words(&self) -> Range<usize> {
        let first = self.offset as usize / 8;
        first..first + self.bytes.div_ceil(8) as usize
    }

    fn place(&self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes.min(8)) << (self.offset % 8 * 8)
    }
}

/// Sets the upper `len` bits of a field in the half of a packed key that starts at word `base`.
fn put_prefix_mask(field: &KeyField, len: u32, base: usize, out: &mut [u64]) {
    for (i, word) in (0..).zip(field.words()) {
        // The number of the field's bits in this word, and the lowest of them to be set.
        let bits = (field.width - 64 * i).min(64);
        let low = (field.width - len).saturating_sub(64 * i).min(bits);
        if low < bits {
            out[base + word] |= (u64::MAX >> (64 - bits) & u64::MAX << low) << (field.offset % 8 * 8);
        }
    }
}

fn put(field: &KeyField, value: &Bits, base: usize, out: &mut [u64]) {
    let (at, shift) = (base + field.offset as usize / 8, field.offset % 8 * 8);
    write_words(value, field.bytes.div_ceil(8) as usize, |i, word| out[at + i] |= word << shift);
}

fn get(field: &KeyField, base: usize, words: &[u64]) -> Bits {
    let (at, shift) = (base + field.offset as usize / 8, field.offset % 8 * 8);
    read_words(field.width, |i| words[at + i] >> shift)
}

#[cfg(all(test, not(loom)))]
mod tests;
