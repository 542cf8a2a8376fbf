//! Keys of entries as words: one canonical form that engines match on, entries are identified by, and reads give back.
//!
//! A packed key has the words of the key layout (`abi::table`), and in tables with anything but exact fields as many
//! again. A field's place in the first half holds the value (for ranges the low end), its place in the second half the
//! mask (for ranges the high end). Bits outside a mask are zero, so two keys accept the same values if and only if
//! their words are equal.
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

/// How keys of one table are packed.
#[derive(Clone, Debug)]
pub struct KeyShape {
    layout: KeyLayout,
    words: usize,
    all_exact: bool,
}

impl KeyShape {
    /// For keys of these widths and kinds.
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

    /// Where the fields lie.
    pub fn layout(&self) -> &KeyLayout {
        &self.layout
    }

    /// Words of a packet's key.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Words of a packed key.
    pub fn packed_words(&self) -> usize {
        if self.all_exact { self.words } else { 2 * self.words }
    }

    /// Packs a key into `out` (of [`packed_words`](KeyShape::packed_words)); false if it does not have the table's
    /// fields. An `Exact` value stands for a field of any kind that accepts only this value.
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

    /// The first that `find` finds of the packed keys which a packet's key has in a table with one `lpm` field and exact
    /// ones beside it, longest prefix first. `packed` is scratch memory.
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

    /// The key that was packed.
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

/// Where a field lies in the words of a key.
trait Place {
    /// Its words.
    fn words(&self) -> Range<usize>;
    /// The bits of each of them that are its own.
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

/// Sets the upper `len` bits of a field's width.
fn put_prefix_mask(field: &KeyField, len: u32, base: usize, out: &mut [u64]) {
    for (i, word) in (0..).zip(field.words()) {
        // Bits of the field that this word has, and the lowest of them to be set.
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
