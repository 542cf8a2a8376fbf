//! Slots and operands as Cranelift values.
//!
//! A value's class follows from its width: one `I64` up to 64 bits, one `I128` up to 128 bits, and above that
//! little-endian 64-bit words ([`Val::Words`]), whose slots live on the stack. Slots of the other classes live in
//! Cranelift variables or, where `placement` says so, in words of the function's frame.
//!
//! **Invariant:** bits above the width are zero in every value that is read from or written to a slot. Operations that
//! can set them mask their result ([`Translator::mask_word`] and friends); no others need to.

use crate::Optimisation;
use crate::placement::Where;
use crate::translate::Translator;
use base::Bits;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I64, I128};
use cranelift_codegen::ir::{
    InstBuilder, InstructionData, MemFlagsData, Opcode, StackSlot, StackSlotData, StackSlotKind, Value,
};
use cranelift_frontend::Variable;
use ir::{Operand, SlotId, SlotKind};

/// The class of a width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// Up to 64 bits.
    Word,
    /// 65 to 128 bits.
    Pair,
    /// More than 128 bits: so many words.
    Words(usize),
}

impl Class {
    pub fn of(width: u32) -> Class {
        match width {
            0..=64 => Class::Word,
            65..=128 => Class::Pair,
            _ => Class::Words(width.div_ceil(64) as usize),
        }
    }
}

/// A value of known width.
#[derive(Clone, Debug)]
pub(crate) enum Val {
    /// An `I64`.
    Word(Value),
    /// An `I128`.
    Pair(Value),
    /// `I64`s, least significant first.
    Words(Vec<Value>),
}

/// Where a slot's value is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// In an `I64` or `I128` variable.
    Var(Variable),
    /// In a stack slot of its own: values above 128 bits, or all values.
    Stack(StackSlot),
    /// In the frame ([`Translator::frame_words`]), at this byte offset.
    Memory(u32),
    /// Only within a block: the value that the current block has written last.
    Block(Value),
}

/// A word with the low `width` bits set.
pub(crate) fn ones(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// A constant's words, least significant first.
pub(crate) fn const_words(bits: &Bits) -> Vec<u64> {
    let mut bytes = bits.to_bytes_be();
    bytes.reverse();
    bytes.resize(bits.width().div_ceil(64).max(1) as usize * 8, 0);
    bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes"))).collect()
}

// Constants and small helpers.
impl Translator<'_, '_> {
    pub fn iconst(&mut self, value: u64) -> Value {
        self.b.ins().iconst(I64, value as i64)
    }

    pub fn pair_const(&mut self, value: u128) -> Value {
        let (lo, hi) = (self.iconst(value as u64), self.iconst((value >> 64) as u64));
        self.b.ins().iconcat(lo, hi)
    }

    pub fn zero(&mut self, width: u32) -> Val {
        self.constant(&Bits::zero(width))
    }

    pub fn constant(&mut self, bits: &Bits) -> Val {
        match Class::of(bits.width()) {
            Class::Word => Val::Word(self.iconst(const_words(bits)[0])),
            Class::Pair => Val::Pair(self.pair_const(bits.to_u128().expect("at most 128 bits"))),
            Class::Words(_) => Val::Words(const_words(bits).into_iter().map(|w| self.iconst(w)).collect()),
        }
    }

    /// The value as a constant, if it is one.
    pub fn as_constant(&self, value: Value) -> Option<i64> {
        let dfg = &self.b.func.dfg;
        let inst = dfg.value_def(dfg.resolve_aliases(value)).inst()?;
        match dfg.insts[inst] {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
            _ => None,
        }
    }

    /// The bytes from `base` to `pointer`, if the pointer was computed by adding constants to the base.
    pub fn distance(&self, pointer: Value, base: Value) -> Option<i64> {
        let dfg = &self.b.func.dfg;
        let (mut pointer, base) = (dfg.resolve_aliases(pointer), dfg.resolve_aliases(base));
        let mut distance = 0i64;
        while pointer != base {
            match dfg.insts[dfg.value_def(pointer).inst()?] {
                InstructionData::Binary { opcode: Opcode::Iadd, args: [x, y] } => {
                    distance = distance.checked_add(self.as_constant(y)?)?;
                    pointer = dfg.resolve_aliases(x);
                }
                _ => return None,
            }
        }
        Some(distance)
    }

    /// `a & ((1 << width) - 1)`, without an instruction if it changes nothing.
    pub fn mask_word(&mut self, a: Value, width: u32) -> Value {
        if width >= self.significant_bits(a) { a } else { self.b.ins().band_imm_u(a, ones(width) as i64) }
    }

    /// As [`Self::mask_word`] for a pair.
    pub fn mask_pair(&mut self, a: Value, width: u32) -> Value {
        if width >= 128 {
            return a;
        }
        let (lo, hi) = self.b.ins().isplit(a);
        let hi = self.mask_word(hi, width - 64);
        self.b.ins().iconcat(lo, hi)
    }

    /// The result of a comparison as a one-bit word.
    pub fn bool_word(&mut self, flag: Value) -> Value {
        self.b.ins().uextend(I64, flag)
    }

    pub fn icmp(&mut self, cc: IntCC, a: Value, b: Value) -> Value {
        if let Some(number) = self.as_constant(b).filter(|_| self.b.func.dfg.value_type(b) == I64) {
            return self.icmp_imm(cc, a, number as u64);
        }
        let as_they_lie = if is_equality(cc) { self.both_unswapped(a, b).map(|(a, b, _)| (a, b)) } else { None };
        let (a, b) = as_they_lie.unwrap_or((a, b));
        self.b.ins().icmp(cc, a, b)
    }

    pub fn icmp_imm(&mut self, cc: IntCC, a: Value, b: u64) -> Value {
        let as_they_lie = if is_equality(cc) { self.unswapped(a, b) } else { None };
        let (a, b) = as_they_lie.unwrap_or((a, b));
        let b = self.iconst(b);
        self.b.ins().icmp(cc, a, b)
    }

    pub fn add_imm(&mut self, a: Value, b: u64) -> Value {
        if b == 0 { a } else { self.b.ins().iadd_imm_s(a, b as i64) }
    }

    /// A new stack slot, aligned to eight bytes.
    pub fn stack_slot(&mut self, bytes: u32) -> StackSlot {
        self.stack_bytes += u64::from(bytes.next_multiple_of(8));
        self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, bytes.next_multiple_of(8), 3))
    }

    /// The byte offset of new words in the frame. All are in one stack slot, whose address need not be carried as a
    /// value.
    pub fn frame_words(&mut self, words: u32) -> u32 {
        let offset = self.b.func.sized_stack_slots[self.frame].size;
        self.grow(self.frame, offset + 8 * words);
        offset
    }

    pub fn stack_addr(&mut self, slot: StackSlot) -> Value {
        self.b.ins().stack_addr(I64, slot, 0)
    }

    /// Stores words at `base + offset`.
    pub fn store_words(&mut self, flags: MemFlagsData, words: &[Value], base: Value, offset: u32) {
        for (i, &word) in words.iter().enumerate() {
            self.b.ins().store(flags, word, base, (offset + 8 * i as u32) as i32);
        }
    }

    /// Loads a value of `width` bits from `base + offset`.
    pub fn load_val(&mut self, flags: MemFlagsData, width: u32, base: Value, offset: u32) -> Val {
        let words =
            (0..width.div_ceil(64)).map(|i| self.b.ins().load(I64, flags, base, (offset + 8 * i) as i32)).collect();
        self.val_of_words(width, words)
    }
}

// Values between classes.
impl Translator<'_, '_> {
    /// The words of a value.
    pub fn words_of_val(&mut self, val: &Val) -> Vec<Value> {
        match val {
            Val::Word(v) => vec![*v],
            Val::Pair(v) => {
                let (lo, hi) = self.b.ins().isplit(*v);
                vec![lo, hi]
            }
            Val::Words(words) => words.clone(),
        }
    }

    /// A value of `width` bits from its words. Missing words are zero, surplus ones are ignored; the caller has masked
    /// the last word.
    pub fn val_of_words(&mut self, width: u32, mut words: Vec<Value>) -> Val {
        let count = width.div_ceil(64).max(1) as usize;
        while words.len() < count {
            let zero = self.iconst(0);
            words.push(zero);
        }
        words.truncate(count);
        match Class::of(width) {
            Class::Word => Val::Word(words[0]),
            Class::Pair => Val::Pair(self.b.ins().iconcat(words[0], words[1])),
            Class::Words(_) => Val::Words(words),
        }
    }

    /// Clears the bits above `width`.
    pub fn mask_val(&mut self, val: Val, width: u32) -> Val {
        match val {
            Val::Word(v) => Val::Word(self.mask_word(v, width)),
            Val::Pair(v) => Val::Pair(self.mask_pair(v, width)),
            Val::Words(mut words) => {
                if let Some(top) = words.last_mut() {
                    *top = self.mask_word(*top, (width - 1) % 64 + 1);
                }
                Val::Words(words)
            }
        }
    }

    /// `words[lo + width - 1 : lo]`; bits beyond the last word are zero.
    pub fn slice_words(&mut self, words: &[Value], lo: u32, width: u32) -> Vec<Value> {
        let shift = lo % 64;
        let first = (lo / 64) as usize;
        let count = width.div_ceil(64) as usize;
        let mut out = Vec::with_capacity(count);
        for i in first..first + count {
            let mut word = match words.get(i) {
                Some(&w) => w,
                None => self.iconst(0),
            };
            if shift > 0 {
                word = self.b.ins().ushr_imm_u(word, i64::from(shift));
                // The next word's low bits, if any of them are needed.
                let have = 64 - shift;
                let want = width - 64 * (i - first) as u32;
                if let Some(&next) = words.get(i + 1).filter(|_| want > have) {
                    let next = self.b.ins().ishl_imm_u(next, i64::from(have));
                    word = self.b.ins().bor(word, next);
                }
            }
            out.push(word);
        }
        if let Some(top) = out.last_mut() {
            *top = self.mask_word(*top, (width - 1) % 64 + 1);
        }
        out
    }

    /// `hi ++ lo` as words, where `lo` has `lo_width` bits and the result `width` bits.
    pub fn concat_words(&mut self, hi: &[Value], lo: &[Value], lo_width: u32, width: u32) -> Vec<Value> {
        let count = width.div_ceil(64) as usize;
        let zero = self.iconst(0);
        let mut out: Vec<Value> = lo.to_vec();
        out.resize(count, zero);
        let (at, shift) = ((lo_width / 64) as usize, lo_width % 64);
        for (i, &word) in hi.iter().enumerate() {
            if at + i < count {
                let low = if shift > 0 { self.b.ins().ishl_imm_u(word, i64::from(shift)) } else { word };
                out[at + i] = self.b.ins().bor(out[at + i], low);
            }
            if shift > 0 && at + i + 1 < count {
                let high = self.b.ins().ushr_imm_u(word, i64::from(64 - shift));
                out[at + i + 1] = self.b.ins().bor(out[at + i + 1], high);
            }
        }
        out
    }

    /// The value as an unsigned word, saturated to `u64::MAX`.
    pub fn saturate_to_word(&mut self, val: &Val) -> Value {
        let words = self.words_of_val(val);
        let Some((&first, rest)) = words.split_first() else { return self.iconst(0) };
        let Some((&second, more)) = rest.split_first() else { return first };
        let high = more.iter().fold(second, |all, &w| self.b.ins().bor(all, w));
        let fits = self.icmp_imm(IntCC::Equal, high, 0);
        let max = self.iconst(u64::MAX);
        self.b.ins().select(fits, first, max)
    }
}

// Slots and operands.
impl Translator<'_, '_> {
    /// Forces a word to be computed here and on its own. Cranelift computes pure values where they are used, which may
    /// be far away, and the values loaded for it would occupy registers until then. Nor does Cranelift fold a load into
    /// an instruction if the loaded value is, even indirectly, used twice. An instruction with two results is neither
    /// moved nor looked through; this one needs no machine instruction.
    pub fn compute_here(&mut self, value: Value) -> Value {
        let pair = self.b.ins().iconcat(value, value);
        self.b.ins().isplit(pair).0
    }

    pub fn width(&self, operand: &Operand) -> u32 {
        operand.width(self.program)
    }

    /// The place of a slot that has one between blocks; allocated at the first use.
    pub fn place(&mut self, slot: SlotId) -> Place {
        if let Some(place) = self.places[slot.index()] {
            return place;
        }
        let class = Class::of(self.program.width(slot));
        let in_memory = self.placement.slot(slot) == Where::Memory;
        let place = match class {
            _ if !self.options.has(Optimisation::RegisterSlots) => {
                Place::Stack(self.stack_slot(8 * self.program.width(slot).div_ceil(64)))
            }
            Class::Word if in_memory => Place::Memory(self.frame_words(1)),
            Class::Pair if in_memory => Place::Memory(self.frame_words(2)),
            Class::Word => Place::Var(self.b.declare_var(I64)),
            Class::Pair => Place::Var(self.b.declare_var(I128)),
            Class::Words(n) => Place::Stack(self.stack_slot(8 * n as u32)),
        };
        self.places[slot.index()] = Some(place);
        place
    }

    pub fn read_slot(&mut self, slot: SlotId) -> Val {
        if let Some((header, field)) = self.facts.lazy_field(slot)
            && !self.flow.is_dirty(self.facts, &self.facts_now, slot)
        {
            if let Some(known) = self.known_now.get(&slot).or(self.facts_now.sums.value(slot)).cloned() {
                return self.constant(&known);
            }
            return self.load_clean(header, &field);
        }
        let class = Class::of(self.program.width(slot));
        match (self.place(slot), class) {
            (Place::Var(v), Class::Pair) => Val::Pair(self.b.use_var(v)),
            (Place::Var(v), _) => Val::Word(self.b.use_var(v)),
            (Place::Stack(s), _) => {
                let at = self.stack_addr(s);
                self.load_val(self.flags.stack, self.program.width(slot), at, 0)
            }
            (Place::Block(v), Class::Pair) => Val::Pair(v),
            (Place::Block(v), _) => Val::Word(v),
            (Place::Memory(offset), _) => {
                if let Some(known) = self.known_now.get(&slot).cloned() {
                    return self.constant(&known);
                }
                let frame = self.stack_addr(self.frame);
                self.load_val(self.flags.stack, self.program.width(slot), frame, offset)
            }
        }
    }

    /// Writes a value without bits above the width; does nothing if no code needs the slot.
    pub fn write_slot(&mut self, slot: SlotId, val: &Val) {
        if self.is_known_to_be(slot, val) {
            return;
        }
        if !self.flow.needed.contains(slot.index()) {
            return;
        }
        if let (Where::Block, Val::Word(v) | Val::Pair(v)) = (self.placement.slot(slot), val) {
            self.places[slot.index()] = Some(Place::Block(*v));
            return;
        }
        match (self.place(slot), val) {
            (Place::Var(var), Val::Word(v) | Val::Pair(v)) => self.b.def_var(var, *v),
            (Place::Stack(s), val) => {
                let words = self.words_of_val(val);
                let at = self.stack_addr(s);
                self.store_words(self.flags.stack, &words, at, 0);
            }
            (Place::Memory(offset), val) => {
                let words = self.words_of_val(val);
                let frame = self.stack_addr(self.frame);
                self.store_words(self.flags.stack, &words, frame, offset);
            }
            (Place::Var(_) | Place::Block(_), _) => {
                unreachable!("a value of another class than `{}`", self.program.slots[slot.index()].name)
            }
        }
    }

    /// Records which constant a slot in memory is assigned, if it is one. Returns whether memory holds it already.
    fn is_known_to_be(&mut self, slot: SlotId, val: &Val) -> bool {
        if self.known_now.is_empty() {
            return false;
        }
        let before = self.known_now.remove(&slot);
        let constant = match val {
            Val::Word(v) if self.placement.slot(slot) == Where::Memory => self.as_constant(*v),
            _ => None,
        };
        let now = constant.map(|c| Bits::new(self.program.width(slot), (c as u64).into()));
        self.known_now.extend(now.clone().map(|now| (slot, now)));
        // Stores of a field may have been left out.
        let is_field = matches!(self.program.slots[slot.index()].kind, SlotKind::Field(_));
        now.is_some() && now == before && !is_field
    }

    /// Writes words of which the last is masked.
    pub fn write_words(&mut self, slot: SlotId, words: Vec<Value>) {
        let val = self.val_of_words(self.program.width(slot), words);
        self.write_slot(slot, &val);
    }

    pub fn read(&mut self, operand: &Operand) -> Val {
        match operand {
            Operand::Slot(slot) => self.read_slot(*slot),
            Operand::Const(bits) => self.constant(bits),
        }
    }

    /// An operand of at most 64 bits, or the low word of a wider one.
    pub fn read_word(&mut self, operand: &Operand) -> Value {
        match self.read(operand) {
            Val::Word(v) => v,
            Val::Pair(v) => self.b.ins().isplit(v).0,
            Val::Words(words) => words[0],
        }
    }

    pub fn read_words(&mut self, operand: &Operand) -> Vec<Value> {
        let val = self.read(operand);
        self.words_of_val(&val)
    }

    /// A one-bit slot as a condition.
    pub fn read_flag(&mut self, slot: SlotId) -> Value {
        self.read_word(&Operand::Slot(slot))
    }

    /// Assigns a word to a slot of any width, truncated or zero-extended.
    pub fn write_number(&mut self, slot: SlotId, value: Value) {
        let width = self.program.width(slot);
        let value = self.mask_word(value, width.min(64));
        self.write_words(slot, vec![value]);
    }

    /// An `I8` condition from a one-bit word.
    pub fn as_condition(&mut self, word: Value) -> Value {
        let ty = self.b.func.dfg.value_type(word);
        if ty == I8 { word } else { self.icmp_imm(IntCC::NotEqual, word, 0) }
    }
}

fn is_equality(cc: IntCC) -> bool {
    matches!(cc, IntCC::Equal | IntCC::NotEqual)
}
