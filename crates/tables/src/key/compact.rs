//! A compact form of packed keys, for storing millions of them.
//!
//! Each field takes the whole bytes of its width. An `lpm` field then has its prefix length in one byte (in four if it
//! has more than 255 bits), an optional field one byte that says whether it is present, and ternary and range fields as
//! many bytes again for the mask or the high end. An IPv4 prefix takes 5 bytes; as a packed key, 16. The form is as
//! canonical as packed keys, so keys are equal if and only if their bytes are.
//!
//! Tests: `key/tests.rs`.

use super::KeyShape;
use crate::bytes::{get_le, put_le, zero};
use abi::table::KeyField;
use base::entry::MatchKind;

/// The compact layout of one table's keys.
#[derive(Clone, Debug)]
pub struct CompactForm {
    fields: Vec<Field>,
    bytes: usize,
    /// Words of the first half of a packed key; of all of it.
    words: usize,
    packed_words: usize,
}

#[derive(Clone, Debug)]
struct Field {
    word: usize,
    shift: u32,
    /// Bytes of the value: fewer than in the key layout if the width leaves the upper ones zero.
    bytes: usize,
    width: u32,
    second: Second,
}

/// What is stored after a field's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Second {
    Nothing,
    /// The number of leading ones of the mask.
    PrefixLen,
    /// Whether the mask is set.
    Flag,
    All,
}

impl Field {
    fn new(field: &KeyField) -> Field {
        let second = match field.kind {
            MatchKind::Exact => Second::Nothing,
            MatchKind::Lpm => Second::PrefixLen,
            MatchKind::Optional => Second::Flag,
            MatchKind::Ternary | MatchKind::Range => Second::All,
        };
        Field {
            word: field.offset as usize / 8,
            shift: field.offset % 8 * 8,
            bytes: field.width.div_ceil(8) as usize,
            width: field.width,
            second,
        }
    }

    fn second_bytes(&self) -> usize {
        match self.second {
            Second::Nothing => 0,
            Second::Flag => 1,
            Second::PrefixLen => {
                if self.width > 255 {
                    4
                } else {
                    1
                }
            }
            Second::All => self.bytes,
        }
    }

    /// Copies the field's bytes from the words of a key.
    fn take(&self, words: &[u64], out: &mut [u8]) {
        for (i, chunk) in out[..self.bytes].chunks_mut(8).enumerate() {
            put_le(chunk, words[self.word + i] >> self.shift);
        }
    }

    fn put(&self, bytes: &[u8], words: &mut [u64]) {
        for (i, chunk) in bytes[..self.bytes].chunks(8).enumerate() {
            words[self.word + i] |= get_le(chunk) << self.shift;
        }
    }

    /// Sets the bits of the field from bit `from` up in the words of a key.
    fn set_bits(&self, from: u32, words: &mut [u64]) {
        let mut at = from;
        while at < self.width {
            let (i, low) = (at / 64, at % 64);
            let count = (64 - low).min(self.width - at);
            words[self.word + i as usize] |= u64::MAX >> (64 - count) << low << self.shift;
            at += count;
        }
    }

    /// The number of the field's bits that are set in the words of a key.
    fn ones(&self, words: &[u64]) -> u32 {
        if self.width <= 64 {
            let place = u64::MAX >> (64 - self.width.max(1)) << self.shift;
            (words[self.word] & place).count_ones()
        } else {
            words[self.word..][..self.width.div_ceil(64) as usize].iter().map(|w| w.count_ones()).sum()
        }
    }
}

impl CompactForm {
    /// The form for keys of this shape.
    pub fn new(shape: &KeyShape) -> CompactForm {
        let fields: Vec<Field> = shape.layout().fields.iter().map(Field::new).collect();
        let bytes = fields.iter().map(|f| f.bytes + f.second_bytes()).sum();
        CompactForm { fields, bytes, words: shape.words(), packed_words: shape.packed_words() }
    }

    /// Size of a key in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of words of a packed key.
    pub fn packed_words(&self) -> usize {
        self.packed_words
    }

    /// Writes the compact form of a packed key to `out`, which has [`bytes`](CompactForm::bytes) bytes.
    pub fn compact(&self, packed: &[u64], out: &mut [u8]) {
        let (values, seconds) = packed.split_at(self.words);
        let mut out = out;
        for field in &self.fields {
            field.take(values, out);
            let (second, rest) = out[field.bytes..].split_at_mut(field.second_bytes());
            match field.second {
                Second::Nothing => {}
                Second::PrefixLen => put_le(second, field.ones(seconds).into()),
                Second::Flag => second[0] = u8::from(field.ones(seconds) > 0),
                Second::All => field.take(seconds, second),
            }
            out = rest;
        }
    }

    /// Writes the packed key with this compact form to `packed`; the inverse of [`compact`](CompactForm::compact).
    pub fn expand(&self, bytes: &[u8], packed: &mut [u64]) {
        zero(packed);
        let (values, seconds) = packed.split_at_mut(self.words);
        let mut bytes = bytes;
        for field in &self.fields {
            field.put(bytes, values);
            let (second, rest) = bytes[field.bytes..].split_at(field.second_bytes());
            match field.second {
                // Among fields of other kinds an exact field has a full mask.
                Second::Nothing if !seconds.is_empty() => field.set_bits(0, seconds),
                Second::Nothing => {}
                Second::PrefixLen => {
                    let len = second.iter().rev().fold(0, |len, byte| len << 8 | u32::from(*byte));
                    field.set_bits(field.width - len, seconds);
                }
                Second::Flag if second[0] != 0 => field.set_bits(0, seconds),
                Second::Flag => {}
                Second::All => field.put(second, seconds),
            }
            bytes = rest;
        }
    }
}
