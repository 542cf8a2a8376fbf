//! Arithmetic, logic, comparisons and width changes.
//!
//! Every operation is defined by the method of the same name in [`base::Bits`]. Up to 128 bits all of them are inline
//! except 128-bit division; wider sums, products, comparisons and shifts call the runtime's `wide_bin`.

use crate::build::{At, Buffer, Lowering};
use crate::value::{Val, ones};
use ir::layout::words_of;
use ir::{BinOp, CastKind, Op as IrOp, Operand, SlotId, UnOp};
use mir::{Binary, Cast, Condition, Op, Region, Type, Unary, Value, low_bits};

fn condition(op: BinOp) -> Option<Condition> {
    Some(match op {
        BinOp::Eq => Condition::Eq,
        BinOp::Ne => Condition::Ne,
        BinOp::Ult => Condition::Ult,
        BinOp::Ule => Condition::Ule,
        BinOp::Slt => Condition::Slt,
        BinOp::Sle => Condition::Sle,
        _ => return None,
    })
}

impl Lowering<'_> {
    /// Lowers an operation that uses only slots and constants.
    pub fn arithmetic(&mut self, op: &IrOp) {
        let (dst, val) = match op {
            IrOp::Mov { dst, src } => (dst, self.read(src)),
            IrOp::Bin { op, dst, a, b } if op.is_shift() => (dst, self.shift(*op, a, b)),
            IrOp::Bin { op, dst, a, b } => {
                let width = self.width(a);
                let (a, b) = (self.read(a), self.read(b));
                (dst, self.bin_vals(*op, width, a, b))
            }
            IrOp::Un { op, dst, a } => (dst, self.un(*op, a)),
            IrOp::Cast { kind, dst, a } => (dst, self.cast(*kind, self.program.width(*dst), a)),
            IrOp::Concat { dst, hi, lo } => {
                let (lo_width, width) = (self.width(lo), self.program.width(*dst));
                let (hi, lo) = (self.read_words(hi), self.read_words(lo));
                let words = self.concat_words(&hi, &lo, lo_width, width);
                (dst, self.val_of_words(width, words))
            }
            IrOp::Slice { dst, a, hi, lo } => {
                let (words, width) = (self.read_words(a), hi + 1 - lo);
                let words = self.slice_words(&words, *lo, width);
                (dst, self.val_of_words(width, words))
            }
            IrOp::SetSlice { dst, hi, lo, a } => (dst, self.set_slice(*dst, (*hi, *lo), a)),
            IrOp::Select { dst, cond, then, other } => {
                let cond = self.read_word(cond);
                let truth = self.truth(cond);
                let (then, other) = (self.read(then), self.read(other));
                (dst, self.select_val(truth, then, other))
            }
            other => unreachable!("{other:?} is not an arithmetic operation"),
        };
        self.write_slot(*dst, &val);
    }

    pub fn bin_vals(&mut self, op: BinOp, width: u32, a: Val, b: Val) -> Val {
        match (a, b) {
            (Val::Word(a), Val::Word(b)) => self.bin_narrow(op, width, 64, a, b),
            (Val::Pair(a), Val::Pair(b)) => self.bin_narrow(op, width, 128, a, b),
            (a, b) => {
                let (a, b) = (self.words_of_val(&a), self.words_of_val(&b));
                self.bin_words(op, width, &a, &b)
            }
        }
    }

    /// Masks an `i64` or `i128` to `width` bits.
    fn narrow(&mut self, value: Value, width: u32) -> Val {
        if self.type_of(value) == Type::I64 {
            Val::Word(self.mask_word(value, width))
        } else {
            Val::Pair(self.mask_pair(value, width))
        }
    }

    /// A binary operation of `width` bits on integers of `bits` bits (64 or 128).
    fn bin_narrow(&mut self, op: BinOp, width: u32, bits: u32, x: Value, y: Value) -> Val {
        if let Some(condition) = condition(op) {
            let is_signed = matches!(op, BinOp::Slt | BinOp::Sle);
            let (x, y) = match is_signed {
                // Shifted so that the sign bit is the integer's top bit, they compare as signed integers; the low bits
                // are zero.
                true => (self.shl(x, bits - width), self.shl(y, bits - width)),
                false => (x, y),
            };
            let truth = self.compare(condition, x, y);
            return Val::Word(self.flag(truth));
        }
        let ty = self.type_of(x);
        let value = match op {
            BinOp::Add => self.add(x, y),
            BinOp::Sub => self.sub(x, y),
            BinOp::Mul => self.bin(Binary::Mul, x, y),
            BinOp::And => self.bin(Binary::And, x, y),
            BinOp::Or => self.bin(Binary::Or, x, y),
            BinOp::Xor => self.bin(Binary::Xor, x, y),
            BinOp::Div | BinOp::Mod if bits == 64 => return Val::Word(self.divide(op, width, x, y)),
            BinOp::Div | BinOp::Mod => {
                let (x, y) = (self.words_of_val(&Val::Pair(x)), self.words_of_val(&Val::Pair(y)));
                return self.call_wide(op, width, &x, &y);
            }
            BinOp::SatAddU => {
                let (sum, max) = (self.add(x, y), self.constant(ty, low_bits(width)));
                let over = match width == bits {
                    true => self.compare(Condition::Ult, sum, x),
                    false => self.compare(Condition::Ugt, sum, max),
                };
                self.select(over, max, sum)
            }
            BinOp::SatSubU => {
                let (difference, under) = (self.sub(x, y), self.compare(Condition::Ult, x, y));
                let zero = self.constant(ty, 0);
                self.select(under, zero, difference)
            }
            _ => self.saturate_signed(op, width, bits, x, y),
        };
        self.narrow(value, width)
    }

    fn divide(&mut self, op: BinOp, width: u32, x: Value, y: Value) -> Value {
        if op == BinOp::Mod {
            // `x mod 0` is `x`, as in `mir`.
            return self.bin(Binary::Rem, x, y);
        }
        let (quotient, all) = (self.bin(Binary::Div, x, y), self.word(ones(width)));
        let is_zero = self.compare_imm(Condition::Eq, y, 0);
        self.select(is_zero, all, quotient)
    }

    fn saturate_signed(&mut self, op: BinOp, width: u32, bits: u32, x: Value, y: Value) -> Value {
        let ty = self.type_of(x);
        // Shifted to the top of the integer, the operation overflows exactly if that of `width` bits does.
        let up = bits - width;
        let (x, y) = (self.shl(x, up), self.shl(y, up));
        let sum = if op == BinOp::SatAddS { self.add(x, y) } else { self.sub(x, y) };
        // A sum overflows if both operands' signs differ from the result's. A difference overflows if the operands'
        // signs differ from each other and the result's differs from the first operand's.
        let differs = self.bin(Binary::Xor, x, sum);
        let also = if op == BinOp::SatAddS { self.bin(Binary::Xor, y, sum) } else { self.bin(Binary::Xor, x, y) };
        let both = self.bin(Binary::And, differs, also);
        let zero = self.constant(ty, 0);
        let over = self.compare(Condition::Slt, both, zero);
        let sign = self.bin_imm(Binary::Sar, x, (bits - 1).into());
        let limit = self.bin_imm(Binary::Xor, sign, low_bits(bits) >> 1);
        let value = self.select(over, limit, sum);
        self.shr(value, up)
    }

    fn bin_words(&mut self, op: BinOp, width: u32, x: &[Value], y: &[Value]) -> Val {
        let bitwise = match op {
            BinOp::And => Some(Binary::And),
            BinOp::Or => Some(Binary::Or),
            BinOp::Xor => Some(Binary::Xor),
            _ => None,
        };
        if let Some(op) = bitwise {
            return Val::Words(x.iter().zip(y).map(|(x, y)| self.bin(op, *x, *y)).collect());
        }
        if let (BinOp::Eq | BinOp::Ne, Some(condition)) = (op, condition(op)) {
            let difference = self.difference(x, y);
            let truth = self.compare_imm(condition, difference, 0);
            return Val::Word(self.flag(truth));
        }
        self.call_wide(op, width, x, y)
    }

    /// Zero if and only if the words are equal.
    pub fn difference(&mut self, x: &[Value], y: &[Value]) -> Value {
        let mut all = self.word(0);
        for (x, y) in x.iter().zip(y) {
            let differs = self.bin(Binary::Xor, *x, *y);
            all = self.bin(Binary::Or, all, differs);
        }
        all
    }

    /// `x op y`, computed by the runtime. For shifts, `y` is one saturated word.
    pub fn call_wide(&mut self, op: BinOp, width: u32, x: &[Value], y: &[Value]) -> Val {
        let (a, b) = (self.buffer_with(Buffer::Left, x), self.buffer_with(Buffer::Right, y));
        let base = self.buffer(Buffer::Result, 8 * words_of(width));
        let (op_number, bits) = (self.constant(Type::I32, op as u32 as u128), self.constant(Type::I32, width.into()));
        let id = self.calls.wide_bin();
        self.call(id, vec![op_number, bits, base, a, b]);
        let result = if op.is_comparison() { 1 } else { width };
        self.load_val(Region::Stack, result, At { base, offset: 0 })
    }

    /// A shift of a multi-word value, computed by the runtime.
    pub fn wide_shift(&mut self, op: BinOp, width: u32, words: &[Value], by: Value) -> Vec<Value> {
        let val = self.call_wide(op, width, words, &[by]);
        self.words_of_val(&val)
    }

    fn shift(&mut self, op: BinOp, a: &Operand, b: &Operand) -> Val {
        let width = self.width(a);
        let (val, by) = (self.read(a), self.read_saturated(b));
        match val {
            Val::Word(x) => self.shift_narrow(op, width, 64, x, by),
            Val::Pair(x) => self.shift_narrow(op, width, 128, x, by),
            Val::Words(x) => self.call_wide(op, width, &x, &[by]),
        }
    }

    fn shift_narrow(&mut self, op: BinOp, width: u32, bits: u32, x: Value, by: Value) -> Val {
        let ty = self.type_of(x);
        let value = if op == BinOp::Ashr {
            let most = self.word((bits - 1).into());
            let by = self.min(by, most);
            let by = self.resize(by, ty);
            let x = self.sign_extend(x, width, bits);
            self.bin(Binary::Sar, x, by)
        } else {
            let fits = self.compare_imm(Condition::Ult, by, width.into());
            let by = self.resize(by, ty);
            let shifted = self.bin(if op == BinOp::Shl { Binary::Shl } else { Binary::Shr }, x, by);
            let zero = self.constant(ty, 0);
            self.select(fits, shifted, zero)
        };
        self.narrow(value, width)
    }

    /// Sign-extends a number of `width` bits to `bits` bits.
    fn sign_extend(&mut self, x: Value, width: u32, bits: u32) -> Value {
        let up = self.shl(x, bits - width);
        self.bin_imm(Binary::Sar, up, (bits - width).into())
    }

    fn un(&mut self, op: UnOp, a: &Operand) -> Val {
        let (width, val) = (self.width(a), self.read(a));
        match (op, val) {
            (_, Val::Word(x) | Val::Pair(x)) => {
                let ty = self.type_of(x);
                let op = if op == UnOp::Not { Unary::Not } else { Unary::Neg };
                let value = self.value(ty, Op::Unary(op, x));
                self.narrow(value, width)
            }
            (UnOp::Not, Val::Words(x)) => {
                let words = x.into_iter().map(|word| self.value(Type::I64, Op::Unary(Unary::Not, word))).collect();
                self.mask_val(Val::Words(words), width)
            }
            (UnOp::Neg, Val::Words(x)) => {
                let zero = self.word(0);
                self.call_wide(BinOp::Sub, width, &vec![zero; x.len()], &x)
            }
        }
    }

    fn cast(&mut self, kind: CastKind, to: u32, a: &Operand) -> Val {
        let (from, mut words) = (self.width(a), self.read_words(a));
        if kind == CastKind::Sext {
            let last = words.last_mut().expect("a value has a word");
            *last = self.sign_extend(*last, (from - 1) % 64 + 1, 64);
            let sign = *last;
            let sign = self.bin_imm(Binary::Sar, sign, 63);
            words.resize(words_of(to).max(1) as usize, sign);
        }
        let val = self.val_of_words(to, words);
        self.mask_val(val, to)
    }

    fn set_slice(&mut self, dst: SlotId, (hi, lo): (u32, u32), a: &Operand) -> Val {
        let width = self.program.width(dst);
        let old = self.read_slot(dst);
        let old = self.words_of_val(&old);
        let mut words = self.read_words(a);
        if lo > 0 {
            let low = self.slice_words(&old, 0, lo);
            words = self.concat_words(&words, &low, lo, hi + 1);
        }
        if hi + 1 < width {
            let high = self.slice_words(&old, hi + 1, width - hi - 1);
            words = self.concat_words(&high, &words, hi + 1, width);
        }
        self.val_of_words(width, words)
    }

    fn select_val(&mut self, truth: Value, then: Val, other: Val) -> Val {
        match (then, other) {
            (Val::Word(x), Val::Word(y)) => Val::Word(self.select(truth, x, y)),
            (Val::Pair(x), Val::Pair(y)) => Val::Pair(self.select(truth, x, y)),
            (x, y) => {
                let (x, y) = (self.words_of_val(&x), self.words_of_val(&y));
                Val::Words(x.into_iter().zip(y).map(|(x, y)| self.select(truth, x, y)).collect())
            }
        }
    }

    /// `base + number`, in the width of `base`; `number` is `hash mod max`.
    pub fn add_number(&mut self, width: u32, base: Val, number: Value) -> Val {
        let number = self.mask_word(number, width);
        let number = self.val_of_words(width, vec![number]);
        self.bin_vals(BinOp::Add, width, base, number)
    }

    /// Truncates an integer to `ty`, for arguments of calls.
    pub fn narrow_to(&mut self, value: Value, ty: Type) -> Value {
        self.value(ty, Op::Cast(Cast::Trunc, value))
    }

    /// The lowest 32 bits of a word.
    pub fn half(&mut self, word: Value) -> Value {
        self.narrow_to(word, Type::I32)
    }

    /// Zero, as a value of `width` bits.
    pub fn zero_val(&mut self, width: u32) -> Val {
        self.val_of_words(width, Vec::new())
    }

    /// The conjunction of two flags: 1 if both are 1, else 0.
    pub fn both(&mut self, a: Value, b: Value) -> Value {
        self.bin(Binary::And, a, b)
    }
}
