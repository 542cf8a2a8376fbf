//! Keys of entries as words: one canonical form that engines match on, entries are identified by, and reads give back.
//!
//! A packed key has the words of the key layout (`abi::table`), and in tables with anything but exact fields as many
//! again. A field's place in the first half holds the value (for ranges the low end), its place in the second half the
//! mask (for ranges the high end). Bits outside a mask are zero, so two keys accept the same values if and only if
//! their words are equal.
//!
//! Tests: `key/tests.rs`.

pub mod compact;

use crate::entry::{read_words, write_words};
use abi::KeyLayout;
use abi::table::KeyField;
use base::Bits;
use base::entry::{KeyMatch, MatchKind};

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
        let layout = KeyLayout::new(keys.iter().copied());
        let words = layout.bytes as usize / 8;
        let all_exact = keys.iter().all(|(_, kind)| *kind == MatchKind::Exact);
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
        out.fill(0);
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
        let (value, second) = match (key, field.kind) {
            (KeyMatch::Lpm { value, prefix_len }, MatchKind::Lpm) if *prefix_len <= width => {
                (value, &Bits::ones(width).shl(u64::from(width - prefix_len)))
            }
            (KeyMatch::Ternary { value, mask }, MatchKind::Ternary) => (value, mask),
            (KeyMatch::Optional(Some(value)), MatchKind::Optional) => (value, &Bits::ones(width)),
            (KeyMatch::Optional(None), MatchKind::Optional) => return true,
            (KeyMatch::Range { low, high }, MatchKind::Range) => {
                put(field, low, 0, out);
                put(field, high, self.words, out);
                return fits(low) && fits(high);
            }
            _ => return false,
        };
        if !fits(value) || !fits(second) {
            return false;
        }
        put(field, &value.and(second), 0, out);
        put(field, second, self.words, out);
        true
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
