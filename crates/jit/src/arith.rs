//! Arithmetic, logic, comparisons and changes of width.
//!
//! Every operation has the meaning of the method of the same name in [`base::Bits`]. Up to 128 bits everything is
//! inline except 128-bit division; wider sums, products, orders and shifts call `RuntimeCalls::wide_bin`.
//!
//! Tests: `tests/arith.rs`, every operation at widths on both sides of each class's boundary, against the interpreter.

use crate::translate::Translator;
use crate::value::{Class, Val, ones};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I128};
use cranelift_codegen::ir::{InstBuilder, Value};
use ir::{BinOp, CastKind, Operand, SlotId, UnOp};

/// The number of an operation for `RuntimeCalls::wide_bin`.
fn wide_op(op: BinOp) -> u64 {
    op as u64
}

fn is_comparison(op: BinOp) -> bool {
    matches!(op, BinOp::Eq | BinOp::Ne | BinOp::Ult | BinOp::Ule | BinOp::Slt | BinOp::Sle)
}

fn is_shift(op: BinOp) -> bool {
    matches!(op, BinOp::Shl | BinOp::Lshr | BinOp::Ashr)
}

impl Translator<'_, '_> {
    pub fn bin(&mut self, op: BinOp, dst: SlotId, a: &Operand, b: &Operand) {
        let width = self.width(a);
        if is_shift(op) {
            return self.shift(op, dst, a, b);
        }
        let val = match (Class::of(width), self.read(a), self.read(b)) {
            (Class::Word, Val::Word(x), Val::Word(y)) => Val::Word(self.bin_word(op, width, x, y, b)),
            (Class::Pair, Val::Pair(x), Val::Pair(y)) => self.bin_pair(op, width, x, y),
            (_, x, y) => {
                let (x, y) = (self.words_of_val(&x), self.words_of_val(&y));
                self.bin_words(op, width, &x, &y)
            }
        };
        self.write_slot(dst, &val);
    }

    /// Translates an operation on words. `y_operand` is the operand that `y` is the value of: a divisor that is a
    /// nonzero constant needs no guard.
    fn bin_word(&mut self, op: BinOp, width: u32, x: Value, y: Value, y_operand: &Operand) -> Value {
        match op {
            BinOp::Add => {
                let v = self.b.ins().iadd(x, y);
                self.mask_word(v, width)
            }
            BinOp::Sub => {
                let v = self.b.ins().isub(x, y);
                self.mask_word(v, width)
            }
            BinOp::Mul => {
                let v = self.b.ins().imul(x, y);
                self.mask_word(v, width)
            }
            BinOp::Div | BinOp::Mod => self.divide_word(op, width, x, y, y_operand),
            BinOp::And | BinOp::Or | BinOp::Xor => self.bitwise(op, x, y),
            BinOp::SatAddU => {
                let sum = self.b.ins().iadd(x, y);
                let max = self.iconst(ones(width));
                let over = self.icmp(
                    if width == 64 { IntCC::UnsignedLessThan } else { IntCC::UnsignedGreaterThan },
                    sum,
                    if width == 64 { x } else { max },
                );
                self.b.ins().select(over, max, sum)
            }
            BinOp::SatSubU => {
                let v = self.b.ins().isub(x, y);
                let under = self.icmp(IntCC::UnsignedLessThan, x, y);
                let zero = self.iconst(0);
                self.b.ins().select(under, zero, v)
            }
            BinOp::SatAddS | BinOp::SatSubS => self.saturate_signed_word(op, width, x, y),
            BinOp::Eq | BinOp::Ne | BinOp::Ult | BinOp::Ule => {
                let flag = self.icmp(condition(op), x, y);
                self.bool_word(flag)
            }
            BinOp::Slt | BinOp::Sle => {
                // With the sign bits shifted to the top, the comparison is that of signed words; the bits below are
                // zero in both.
                let up = i64::from(64 - width);
                let (x, y) = (self.b.ins().ishl_imm_u(x, up), self.b.ins().ishl_imm_u(y, up));
                let flag = self.icmp(condition(op), x, y);
                self.bool_word(flag)
            }
            BinOp::Shl | BinOp::Lshr | BinOp::Ashr => unreachable!("shifts have their own function"),
        }
    }

    /// A bitwise operation. Masks and byte swaps that both operands share are applied once, to the result.
    fn bitwise(&mut self, op: BinOp, x: Value, y: Value) -> Value {
        if let (Some((x, mask)), Some((y, same))) = (self.unmasked(x), self.unmasked(y))
            && mask == same
        {
            let word = self.bitwise(op, x, y);
            return self.b.ins().band_imm_u(word, mask as i64);
        }
        if let Some((x, y, ty)) = self.both_unswapped(x, y) {
            let word = self.bitwise(op, x, y);
            return self.swap(word, ty);
        }
        match op {
            BinOp::And => self.b.ins().band(x, y),
            BinOp::Or => self.b.ins().bor(x, y),
            _ => self.b.ins().bxor(x, y),
        }
    }

    fn divide_word(&mut self, op: BinOp, width: u32, x: Value, y: Value, y_operand: &Operand) -> Value {
        let known = y_operand.constant().map(|c| c.is_zero());
        let on_zero = if op == BinOp::Div { self.iconst(ones(width)) } else { x };
        if known == Some(true) {
            return on_zero;
        }
        let is_zero = self.icmp_imm(IntCC::Equal, y, 0);
        let one = self.iconst(1);
        let divisor = if known == Some(false) { y } else { self.b.ins().select(is_zero, one, y) };
        let v = if op == BinOp::Div { self.b.ins().udiv(x, divisor) } else { self.b.ins().urem(x, divisor) };
        if known == Some(false) { v } else { self.b.ins().select(is_zero, on_zero, v) }
    }

    fn saturate_signed_word(&mut self, op: BinOp, width: u32, x: Value, y: Value) -> Value {
        let (x, y) = (self.sign_extend_word(x, width), self.sign_extend_word(y, width));
        let v = if op == BinOp::SatAddS { self.b.ins().iadd(x, y) } else { self.b.ins().isub(x, y) };
        let max = ones(width) >> 1;
        let v = if width == 64 {
            let over = self.signed_overflow(op, x, y, v);
            let limit = self.b.ins().sshr_imm_u(x, 63);
            let limit = self.b.ins().bxor_imm_u(limit, max as i64);
            self.b.ins().select(over, limit, v)
        } else {
            // The words have a bit more than the operands, so the sum is exact.
            let (low, high) = (self.iconst(!max), self.iconst(max));
            let v = self.b.ins().smin(v, high);
            self.b.ins().smax(v, low)
        };
        self.mask_word(v, width)
    }

    /// Whether the full-width signed sum or difference `v` overflowed: a sum if its sign differs from both operands'
    /// signs, a difference if the operands' signs differ and its sign is not the first operand's.
    fn signed_overflow(&mut self, op: BinOp, x: Value, y: Value, v: Value) -> Value {
        let p = self.b.ins().bxor(x, v);
        let q = if op == BinOp::SatAddS { self.b.ins().bxor(y, v) } else { self.b.ins().bxor(x, y) };
        let both = self.b.ins().band(p, q);
        let zero = if self.b.func.dfg.value_type(v) == I128 { self.pair_const(0) } else { self.iconst(0) };
        self.icmp(IntCC::SignedLessThan, both, zero)
    }

    pub fn sign_extend_word(&mut self, x: Value, width: u32) -> Value {
        if width >= 64 {
            return x;
        }
        let up = i64::from(64 - width);
        let x = self.b.ins().ishl_imm_u(x, up);
        self.b.ins().sshr_imm_u(x, up)
    }

    fn sign_extend_pair(&mut self, x: Value, width: u32) -> Value {
        let (lo, hi) = self.b.ins().isplit(x);
        let hi = self.sign_extend_word(hi, width - 64);
        self.b.ins().iconcat(lo, hi)
    }

    pub fn bin_pair(&mut self, op: BinOp, width: u32, x: Value, y: Value) -> Val {
        let v = match op {
            BinOp::Add => self.b.ins().iadd(x, y),
            BinOp::Sub => self.b.ins().isub(x, y),
            BinOp::Mul => self.b.ins().imul(x, y),
            BinOp::And => self.b.ins().band(x, y),
            BinOp::Or => self.b.ins().bor(x, y),
            BinOp::Xor => self.b.ins().bxor(x, y),
            BinOp::Div | BinOp::Mod => {
                let (x, y) = (self.words_of_val(&Val::Pair(x)), self.words_of_val(&Val::Pair(y)));
                return self.call_wide(op, width, &x, &y);
            }
            BinOp::SatAddU => {
                let sum = self.b.ins().iadd(x, y);
                let max = self.pair_const(u128::MAX >> (128 - width));
                let over = if width == 128 {
                    self.icmp(IntCC::UnsignedLessThan, sum, x)
                } else {
                    let (_, high) = self.b.ins().isplit(sum);
                    let carry = self.b.ins().ushr_imm_u(high, i64::from(width - 64));
                    self.icmp_imm(IntCC::NotEqual, carry, 0)
                };
                return Val::Pair(self.select_pair(over, max, sum));
            }
            BinOp::SatSubU => {
                let v = self.b.ins().isub(x, y);
                let under = self.icmp(IntCC::UnsignedLessThan, x, y);
                let zero = self.pair_const(0);
                self.select_pair(under, zero, v)
            }
            BinOp::SatAddS | BinOp::SatSubS => self.saturate_signed_pair(op, width, x, y),
            BinOp::Eq | BinOp::Ne | BinOp::Ult | BinOp::Ule => {
                let flag = self.icmp(condition(op), x, y);
                return Val::Word(self.bool_word(flag));
            }
            BinOp::Slt | BinOp::Sle => {
                let (x, y) = (self.sign_extend_pair(x, width), self.sign_extend_pair(y, width));
                let flag = self.icmp(condition(op), x, y);
                return Val::Word(self.bool_word(flag));
            }
            BinOp::Shl | BinOp::Lshr | BinOp::Ashr => unreachable!("shifts have their own function"),
        };
        Val::Pair(self.mask_pair(v, width))
    }

    fn saturate_signed_pair(&mut self, op: BinOp, width: u32, x: Value, y: Value) -> Value {
        let (x, y) = (self.sign_extend_pair(x, width), self.sign_extend_pair(y, width));
        let v = if op == BinOp::SatAddS { self.b.ins().iadd(x, y) } else { self.b.ins().isub(x, y) };
        let max = (u128::MAX >> (128 - width)) >> 1;
        let (low, high) = (self.pair_const(!max), self.pair_const(max));
        let zero = self.pair_const(0);
        // The sign of the exact result: the first operand's if the sum overflowed, else its own.
        let (over, sign) = if width == 128 {
            (self.signed_overflow(op, x, y, v), x)
        } else {
            let wrapped = self.sign_extend_pair(v, width);
            (self.icmp(IntCC::NotEqual, wrapped, v), v)
        };
        let negative = self.icmp(IntCC::SignedLessThan, sign, zero);
        let limit = self.select_pair(negative, low, high);
        self.select_pair(over, limit, v)
    }

    /// Selects one of two pairs, by halves: Cranelift turns a comparison and a selection of the same values into a
    /// minimum or maximum, which the back ends lack for 128 bits.
    fn select_pair(&mut self, cond: Value, x: Value, y: Value) -> Value {
        let ((x_low, x_high), (y_low, y_high)) = (self.b.ins().isplit(x), self.b.ins().isplit(y));
        let low = self.b.ins().select(cond, x_low, y_low);
        let high = self.b.ins().select(cond, x_high, y_high);
        self.b.ins().iconcat(low, high)
    }

    pub fn bin_words(&mut self, op: BinOp, width: u32, x: &[Value], y: &[Value]) -> Val {
        let each = |t: &mut Self, f: fn(&mut Self, Value, Value) -> Value| {
            Val::Words(x.iter().zip(y).map(|(&x, &y)| f(t, x, y)).collect())
        };
        match op {
            BinOp::And => each(self, |t, x, y| t.b.ins().band(x, y)),
            BinOp::Or => each(self, |t, x, y| t.b.ins().bor(x, y)),
            BinOp::Xor => each(self, |t, x, y| t.b.ins().bxor(x, y)),
            BinOp::Eq | BinOp::Ne => {
                let mut difference = self.iconst(0);
                for (&x, &y) in x.iter().zip(y) {
                    let d = self.b.ins().bxor(x, y);
                    difference = self.b.ins().bor(difference, d);
                }
                let flag = self.icmp_imm(condition(op), difference, 0);
                Val::Word(self.bool_word(flag))
            }
            _ => self.call_wide(op, width, x, y),
        }
    }

    /// `x op y` by a call of the runtime. For shifts `y` is one saturated word.
    pub fn call_wide(&mut self, op: BinOp, width: u32, x: &[Value], y: &[Value]) -> Val {
        let bytes = width.div_ceil(64) * 8;
        let [dst, a, b] = self.wide_scratch(bytes);
        let (dst, a, b) = (self.stack_addr(dst), self.stack_addr(a), self.stack_addr(b));
        self.store_words(self.flags.stack, x, a, 0);
        self.store_words(self.flags.stack, y, b, 0);
        let (op_number, width_value) =
            (self.b.ins().iconst(I32, wide_op(op) as i64), self.b.ins().iconst(I32, i64::from(width)));
        self.call(self.runtime.wide_bin as usize, &[op_number, width_value, dst, a, b], None);
        let result = if is_comparison(op) { 1 } else { width };
        self.load_val(self.flags.stack, result, dst, 0)
    }

    fn shift(&mut self, op: BinOp, dst: SlotId, a: &Operand, b: &Operand) {
        let width = self.width(a);
        let known = b.constant().map(|c| c.to_u128().map_or(u64::MAX, |n| u64::try_from(n).unwrap_or(u64::MAX)));
        let x = self.read(a);
        let val = match (x, known) {
            (Val::Word(x), Some(n)) => Val::Word(self.shift_word_by(op, width, x, n)),
            (Val::Word(x), None) => {
                let n = self.read(b);
                let n = self.saturate_to_word(&n);
                Val::Word(self.shift_word(op, width, x, n))
            }
            (Val::Pair(x), _) => {
                let n = self.read(b);
                let n = self.saturate_to_word(&n);
                Val::Pair(self.shift_pair(op, width, x, n))
            }
            (Val::Words(x), Some(n)) if op != BinOp::Ashr => {
                let zero = self.iconst(0);
                let words = if n >= u64::from(width) {
                    vec![zero; x.len()]
                } else if op == BinOp::Lshr {
                    self.slice_words(&x, n as u32, width - n as u32)
                } else {
                    self.concat_words(&x, &[], n as u32, width)
                };
                let val = self.val_of_words(width, words);
                self.mask_val(val, width)
            }
            (Val::Words(x), _) => {
                let n = self.read(b);
                let n = self.saturate_to_word(&n);
                self.call_wide(op, width, &x, &[n])
            }
        };
        self.write_slot(dst, &val);
    }

    fn shift_word_by(&mut self, op: BinOp, width: u32, x: Value, n: u64) -> Value {
        let out = n >= u64::from(width);
        match op {
            BinOp::Ashr => {
                let x = self.sign_extend_word(x, width);
                let v = self.b.ins().sshr_imm_u(x, n.min(63) as i64);
                self.mask_word(v, width)
            }
            _ if out => self.iconst(0),
            BinOp::Lshr => self.b.ins().ushr_imm_u(x, n as i64),
            _ => {
                let v = self.b.ins().ishl_imm_u(x, n as i64);
                self.mask_word(v, width)
            }
        }
    }

    fn shift_word(&mut self, op: BinOp, width: u32, x: Value, n: Value) -> Value {
        if op == BinOp::Ashr {
            let x = self.sign_extend_word(x, width);
            let most = self.iconst(63);
            let n = self.b.ins().umin(n, most);
            let v = self.b.ins().sshr(x, n);
            return self.mask_word(v, width);
        }
        let fits = self.icmp_imm(IntCC::UnsignedLessThan, n, u64::from(width));
        let v = if op == BinOp::Shl { self.b.ins().ishl(x, n) } else { self.b.ins().ushr(x, n) };
        let v = if op == BinOp::Shl { self.mask_word(v, width) } else { v };
        let zero = self.iconst(0);
        self.b.ins().select(fits, v, zero)
    }

    fn shift_pair(&mut self, op: BinOp, width: u32, x: Value, n: Value) -> Value {
        if op == BinOp::Ashr {
            let x = self.sign_extend_pair(x, width);
            let most = self.iconst(127);
            let n = self.b.ins().umin(n, most);
            let v = self.b.ins().sshr(x, n);
            return self.mask_pair(v, width);
        }
        let fits = self.icmp_imm(IntCC::UnsignedLessThan, n, u64::from(width));
        let v = if op == BinOp::Shl { self.b.ins().ishl(x, n) } else { self.b.ins().ushr(x, n) };
        let v = if op == BinOp::Shl { self.mask_pair(v, width) } else { v };
        let zero = self.pair_const(0);
        self.b.ins().select(fits, v, zero)
    }

    pub fn un(&mut self, op: UnOp, dst: SlotId, a: &Operand) {
        let width = self.width(a);
        let val = match (op, self.read(a)) {
            (UnOp::Not, Val::Word(x)) => {
                let mask = self.iconst(ones(width));
                Val::Word(self.b.ins().bxor(x, mask))
            }
            (UnOp::Neg, Val::Word(x)) => {
                let v = self.b.ins().ineg(x);
                Val::Word(self.mask_word(v, width))
            }
            (UnOp::Not, Val::Pair(x)) => {
                let mask = self.pair_const(u128::MAX >> (128 - width));
                Val::Pair(self.b.ins().bxor(x, mask))
            }
            (UnOp::Neg, Val::Pair(x)) => {
                let zero = self.pair_const(0);
                let v = self.b.ins().isub(zero, x);
                Val::Pair(self.mask_pair(v, width))
            }
            (UnOp::Not, Val::Words(x)) => {
                let words = x.into_iter().map(|w| self.b.ins().bnot(w)).collect();
                self.mask_val(Val::Words(words), width)
            }
            (UnOp::Neg, Val::Words(x)) => {
                let zero = self.iconst(0);
                self.call_wide(BinOp::Sub, width, &vec![zero; x.len()], &x)
            }
        };
        self.write_slot(dst, &val);
    }

    pub fn cast(&mut self, kind: CastKind, dst: SlotId, a: &Operand) {
        let (from, to) = (self.width(a), self.program.width(dst));
        let val = self.read(a);
        let val = match (kind, val) {
            (CastKind::Zext, val) => {
                let words = self.words_of_val(&val);
                self.val_of_words(to, words)
            }
            (CastKind::Trunc, val) => {
                let words = self.words_of_val(&val);
                let val = self.val_of_words(to, words);
                self.mask_val(val, to)
            }
            (CastKind::Sext, val) => {
                let mut words = self.words_of_val(&val);
                let top = words.last_mut().expect("a value has a word");
                *top = self.sign_extend_word(*top, (from - 1) % 64 + 1);
                let sign = self.b.ins().sshr_imm_u(*top, 63);
                words.resize(to.div_ceil(64) as usize, sign);
                let val = self.val_of_words(to, words);
                self.mask_val(val, to)
            }
        };
        self.write_slot(dst, &val);
    }

    pub fn concat(&mut self, dst: SlotId, hi: &Operand, lo: &Operand) {
        let (lo_width, width) = (self.width(lo), self.program.width(dst));
        if width <= 64 {
            let (hi, lo) = (self.read_word(hi), self.read_word(lo));
            let hi = if lo_width < 64 { self.b.ins().ishl_imm_u(hi, i64::from(lo_width)) } else { self.iconst(0) };
            let v = self.b.ins().bor(hi, lo);
            return self.write_slot(dst, &Val::Word(v));
        }
        let (hi, lo) = (self.read_words(hi), self.read_words(lo));
        let words = self.concat_words(&hi, &lo, lo_width, width);
        self.write_words(dst, words);
    }

    pub fn slice(&mut self, dst: SlotId, a: &Operand, hi: u32, lo: u32) {
        let val = self.read(a);
        if let Val::Word(x) = val {
            let v = self.b.ins().ushr_imm_u(x, i64::from(lo));
            let v = if hi + 1 == self.width(a) { v } else { self.mask_word(v, hi + 1 - lo) };
            return self.write_slot(dst, &Val::Word(v));
        }
        let words = self.words_of_val(&val);
        let words = self.slice_words(&words, lo, hi + 1 - lo);
        self.write_words(dst, words);
    }

    pub fn set_slice(&mut self, dst: SlotId, hi: u32, lo: u32, a: &Operand) {
        let width = self.program.width(dst);
        let old = self.read_slot(dst);
        if let Val::Word(old) = old {
            let hole = ones(hi + 1 - lo) << lo;
            let a = self.read_word(a);
            let a = self.b.ins().ishl_imm_u(a, i64::from(lo));
            let kept = self.b.ins().band_imm_u(old, (ones(width) & !hole) as i64);
            let v = self.b.ins().bor(kept, a);
            return self.write_slot(dst, &Val::Word(v));
        }
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
        self.write_words(dst, words);
    }

    pub fn select(&mut self, dst: SlotId, cond: &Operand, then: &Operand, other: &Operand) {
        let cond = self.read_word(cond);
        if let Some(known) = self.as_constant(cond) {
            let val = self.read(if known == 0 { other } else { then });
            return self.write_slot(dst, &val);
        }
        let cond = self.as_condition(cond);
        let val = match (self.read(then), self.read(other)) {
            (Val::Word(x), Val::Word(y)) => Val::Word(match self.both_unswapped(x, y) {
                // In the frame's byte order, so that the bytes are swapped once or not at all.
                Some((x, y, ty)) => {
                    let word = self.b.ins().select(cond, x, y);
                    self.swap(word, ty)
                }
                None => self.b.ins().select(cond, x, y),
            }),
            (Val::Pair(x), Val::Pair(y)) => Val::Pair(self.select_pair(cond, x, y)),
            (x, y) => {
                let (x, y) = (self.words_of_val(&x), self.words_of_val(&y));
                Val::Words(x.into_iter().zip(y).map(|(x, y)| self.b.ins().select(cond, x, y)).collect())
            }
        };
        self.write_slot(dst, &val);
    }
}

/// The Cranelift condition of a comparison.
fn condition(op: BinOp) -> IntCC {
    match op {
        BinOp::Eq => IntCC::Equal,
        BinOp::Ne => IntCC::NotEqual,
        BinOp::Ult => IntCC::UnsignedLessThan,
        BinOp::Ule => IntCC::UnsignedLessThanOrEqual,
        BinOp::Slt => IntCC::SignedLessThan,
        BinOp::Sle => IntCC::SignedLessThanOrEqual,
        _ => unreachable!("{op:?} is no comparison"),
    }
}
