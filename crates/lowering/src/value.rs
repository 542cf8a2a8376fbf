//! Representation of slots as values.
//!
//! | width in bits | value | place |
//! | --- | --- | --- |
//! | up to 64 | an `i64` | a variable, or 8 bytes of memory |
//! | 65 to 128 | an `i128` | a variable, or 16 bytes of memory |
//! | wider | words, least significant first | memory |
//!
//! Bits above the width are zero.

use crate::build::{At, Buffer, Lowering, part};
use crate::ssa::Place;
use base::Bits;
use ir::layout::words_of;
use ir::{Operand, SlotId};
use mir::{Access, Binary, Cast, Condition, Op, Region, Regions, Type, Value};

/// The value of a slot or operand of any width.
#[derive(Clone, Debug)]
pub(crate) enum Val {
    /// Up to 64 bits, an `i64`.
    Word(Value),
    /// 65 to 128 bits, an `i128`.
    Pair(Value),
    /// More than 128 bits: words, least significant first.
    Words(Vec<Value>),
}

/// The mask of the low `width` bits, at most 64.
pub(crate) fn ones(width: u32) -> u64 {
    mir::low_bits(width.min(64)) as u64
}

/// A constant's words, least significant first.
pub(crate) fn const_words(bits: &Bits) -> Vec<u64> {
    let mut bytes = bits.to_bytes_be();
    bytes.reverse();
    bytes.resize(8 * words_of(bits.width()).max(1) as usize, 0);
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect()
}

impl Lowering<'_> {
    /// The type of a variable for a slot of `width` bits; `None` if it must be kept in memory.
    pub fn class(width: u32) -> Option<Type> {
        match width {
            0..=64 => Some(Type::I64),
            65..=128 => Some(Type::I128),
            _ => None,
        }
    }

    pub fn width(&self, operand: &Operand) -> u32 {
        operand.width(self.program)
    }

    fn frame_at(&mut self, offset: u32) -> At {
        At { base: self.value(Type::I64, Op::StackAddress(self.frame, 0)), offset }
    }

    /// The value of a slot.
    pub fn read_slot(&mut self, slot: SlotId) -> Val {
        let width = self.program.width(slot);
        match self.places[slot.index()] {
            Some(Place::Var(var)) => {
                let value = self.read_var(var);
                if width <= 64 { Val::Word(value) } else { Val::Pair(value) }
            }
            Some(Place::Memory(offset)) => {
                let at = self.frame_at(offset);
                self.load_val(Region::Stack, width, at)
            }
            None => {
                unreachable!("slot `{}` has a place in an entry that touches it", self.program.slots[slot.index()].name)
            }
        }
    }

    /// Writes a value of the slot's width to a slot.
    pub fn write_slot(&mut self, slot: SlotId, val: &Val) {
        match (self.places[slot.index()], val) {
            (Some(Place::Var(var)), Val::Word(value) | Val::Pair(value)) => self.write_var(var, *value),
            (Some(Place::Memory(offset)), val) => {
                let at = self.frame_at(offset);
                self.store_val(Region::Stack, val, at);
            }
            (place, val) => unreachable!("slot {slot:?} at {place:?} becomes {val:?}"),
        }
    }

    pub fn write_words(&mut self, slot: SlotId, words: Vec<Value>) {
        let val = self.val_of_words(self.program.width(slot), words);
        self.write_slot(slot, &val);
    }

    /// Writes a number of at most 64 bits to a slot of any width, truncated or zero-extended.
    pub fn write_number(&mut self, slot: SlotId, word: Value) {
        let width = self.program.width(slot);
        let word = self.mask_word(word, width);
        self.write_words(slot, vec![word]);
    }

    pub fn read(&mut self, operand: &Operand) -> Val {
        match operand {
            Operand::Slot(slot) => self.read_slot(*slot),
            Operand::Const(bits) => self.constant_val(bits),
        }
    }

    pub fn constant_val(&mut self, bits: &Bits) -> Val {
        let words = const_words(bits);
        match words[..] {
            [word] => Val::Word(self.word(word)),
            [low, high] => Val::Pair(self.constant(Type::I128, u128::from(high) << 64 | u128::from(low))),
            _ => Val::Words(words.into_iter().map(|word| self.word(word)).collect()),
        }
    }

    /// The least significant word of an operand.
    pub fn read_word(&mut self, operand: &Operand) -> Value {
        let val = self.read(operand);
        self.words_of_val(&val)[0]
    }

    /// The least significant word of a slot.
    pub fn read_flag(&mut self, slot: SlotId) -> Value {
        self.read_word(&Operand::Slot(slot))
    }

    pub fn read_words(&mut self, operand: &Operand) -> Vec<Value> {
        let val = self.read(operand);
        self.words_of_val(&val)
    }

    /// An operand as a word, saturated: all ones if it does not fit.
    pub fn read_saturated(&mut self, operand: &Operand) -> Value {
        let words = self.read_words(operand);
        let (&low, rest) = words.split_first().expect("a value has a word");
        let Some((&first, rest)) = rest.split_first() else { return low };
        let high = rest.iter().fold(first, |all, word| self.bin(Binary::Or, all, *word));
        let (fits, most) = (self.compare_imm(Condition::Eq, high, 0), self.word(u64::MAX));
        self.select(fits, low, most)
    }

    pub fn words_of_val(&mut self, val: &Val) -> Vec<Value> {
        match val {
            Val::Word(word) => vec![*word],
            Val::Pair(pair) => {
                let (low, high) = self.split(*pair);
                vec![low, high]
            }
            Val::Words(words) => words.clone(),
        }
    }

    /// The low and the high half of an `i128`.
    pub fn split(&mut self, pair: Value) -> (Value, Value) {
        let low = self.value(Type::I64, Op::Cast(Cast::Trunc, pair));
        let high = self.shr(pair, 64);
        (low, self.value(Type::I64, Op::Cast(Cast::Trunc, high)))
    }

    pub fn join(&mut self, low: Value, high: Value) -> Value {
        self.pack(Type::I128, vec![part(low, 64, 0), part(high, 64, 64)])
    }

    /// The value of `width` bits of these words; missing words are zero, excess ones are dropped.
    pub fn val_of_words(&mut self, width: u32, mut words: Vec<Value>) -> Val {
        let zero = self.word(0);
        words.resize(words_of(width).max(1) as usize, zero);
        match words[..] {
            [word] => Val::Word(word),
            [low, high] => Val::Pair(self.join(low, high)),
            _ => Val::Words(words),
        }
    }

    pub fn mask_word(&mut self, word: Value, width: u32) -> Value {
        if width >= 64 { word } else { self.bin_imm(Binary::And, word, ones(width).into()) }
    }

    pub fn mask_pair(&mut self, pair: Value, width: u32) -> Value {
        if width >= 128 { pair } else { self.bin_imm(Binary::And, pair, mir::low_bits(width)) }
    }

    /// Clears the bits of a value above `width`, and drops the words above it.
    pub fn mask_val(&mut self, val: Val, width: u32) -> Val {
        match val {
            Val::Word(word) => Val::Word(self.mask_word(word, width)),
            Val::Pair(pair) => Val::Pair(self.mask_pair(pair, width)),
            Val::Words(mut words) => {
                let last = words.last_mut().expect("a value has a word");
                *last = self.mask_word(*last, (width - 1) % 64 + 1);
                Val::Words(words)
            }
        }
    }

    /// Loads a value from memory that holds it as words, such as a record.
    pub fn load_val(&mut self, regions: impl Into<Regions>, width: u32, at: At) -> Val {
        let regions = regions.into();
        match Self::class(width) {
            Some(Type::I64) => Val::Word(self.load(Access::little(regions, 8), at)),
            Some(_) => Val::Pair(self.load(Access::little(regions, 16), at)),
            None => {
                let word = |i| self.load(Access::little(regions, 8), at.plus(8 * i));
                Val::Words((0..words_of(width)).map(word).collect())
            }
        }
    }

    /// Stores a value as words in memory.
    pub fn store_val(&mut self, regions: impl Into<Regions>, val: &Val, at: At) {
        let regions = regions.into();
        match val {
            Val::Word(word) => self.store(Access::little(regions, 8), at, *word),
            Val::Pair(pair) => self.store(Access::little(regions, 16), at, *pair),
            Val::Words(words) => self.store_words(regions, words, at),
        }
    }

    pub fn store_words(&mut self, regions: impl Into<Regions>, words: &[Value], at: At) {
        let regions = regions.into();
        for (i, word) in words.iter().enumerate() {
            self.store(Access::little(regions, 8), at.plus(8 * i as u32), *word);
        }
    }

    /// Stores words to a buffer; returns its address.
    pub fn buffer_with(&mut self, which: Buffer, words: &[Value]) -> Value {
        let base = self.buffer(which, 8 * words.len() as u32);
        self.store_words(Region::Stack, words, At { base, offset: 0 });
        base
    }

    /// The `width` bits of a multi-word value from bit `lo` on.
    pub fn slice_words(&mut self, words: &[Value], lo: u32, width: u32) -> Vec<Value> {
        (0..words_of(width)).map(|i| self.bits_of_words(words, lo + 64 * i, (width - 64 * i).min(64))).collect()
    }

    /// At most 64 bits of a multi-word value, from bit `lo` on.
    pub fn bits_of_words(&mut self, words: &[Value], lo: u32, width: u32) -> Value {
        let (at, shift) = ((lo / 64) as usize, lo % 64);
        let Some(&word) = words.get(at) else { return self.word(0) };
        let here = (64 - shift).min(width);
        let low = self.shr(word, shift);
        match words.get(at + 1) {
            Some(&next) if here < width => {
                self.pack(Type::I64, vec![part(low, here, 0), part(next, width - here, here)])
            }
            _ => self.mask_word(low, here),
        }
    }

    /// The words of `hi ++ lo`, where `lo` has `lo_width` bits, cut to `width`.
    pub fn concat_words(&mut self, hi: &[Value], lo: &[Value], lo_width: u32, width: u32) -> Vec<Value> {
        let mut words = Vec::new();
        for i in 0..words_of(width) {
            // Bits `first..first + 64` of the result.
            let (first, mut parts) = (64 * i, Vec::new());
            if first < lo_width
                && let Some(word) = lo.get(i as usize)
            {
                parts.push(part(*word, (lo_width - first).min(64), 0));
            }
            let from = first.max(lo_width);
            let count = (first + 64).min(width).saturating_sub(from);
            if count > 0 {
                let bits = self.bits_of_words(hi, from - lo_width, count);
                parts.push(part(bits, count, from - first));
            }
            words.push(self.pack(Type::I64, parts));
        }
        words
    }
}
