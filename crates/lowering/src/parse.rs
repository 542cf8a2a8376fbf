//! The parser's operations: availability, extraction, lookahead.

use crate::build::{At, Lowering};
use crate::header::{FieldAt, Segment, Varbit, bits_of};
use crate::value::Val;
use ir::{BinOp, HeaderId, Operand, SlotId};
use mir::{Binary, Condition, Value};

impl Lowering<'_> {
    /// The address of the first byte that has not been consumed.
    fn cursor_at(&mut self) -> At {
        let (data, cursor) = (self.read_var(self.vars.data), self.read_var(self.vars.cursor));
        At { base: self.add(data, cursor), offset: 0 }
    }

    pub fn has_bits(&mut self, dst: SlotId, bits: &Operand) {
        let bits = self.read_saturated(bits);
        // Bits to bytes, rounded up without overflow.
        let (whole, rest) = (self.shr(bits, 3), self.bin_imm(Binary::And, bits, 7));
        let part = self.truth(rest);
        let part = self.flag(part);
        let bytes = self.add(whole, part);
        let (len, cursor) = (self.read_var(self.vars.len), self.read_var(self.vars.cursor));
        let left = self.sub(len, cursor);
        let has = self.compare(Condition::Uge, left, bytes);
        let has = self.flag(has);
        self.write_slot(dst, &Val::Word(has));
    }

    pub fn advance(&mut self, bits: &Operand) {
        let bits = self.read_saturated(bits);
        let bytes = self.shr(bits, 3);
        self.move_cursor(bytes);
    }

    fn move_cursor(&mut self, bytes: Value) {
        let cursor = self.read_var(self.vars.cursor);
        let cursor = self.add(cursor, bytes);
        self.write_var(self.vars.cursor, cursor);
    }

    pub fn lookahead(&mut self, dst: SlotId, offset: u32) {
        let at = self.cursor_at();
        let val = self.load_field(at, &FieldAt { slot: dst, bit: offset, width: self.program.width(dst) });
        self.write_slot(dst, &val);
    }

    pub fn extract(&mut self, header: HeaderId, varbit_bits: Option<&Operand>) {
        let layout = &self.headers[header.index()];
        let mut at = self.cursor_at();
        let mut size = self.word(layout.fixed_bytes.into());
        let mut var_bytes = self.word(0);
        if let Some(Varbit { length, .. }) = layout.varbit {
            let bits = match varbit_bits {
                Some(bits) => self.read_saturated(bits),
                None => self.word(0),
            };
            self.write_number(length, bits);
            var_bytes = self.shr(bits, 3);
            size = self.add(size, var_bytes);
        }
        let one = self.word(1);
        self.write_slot(layout.valid, &Val::Word(one));
        for segment in &layout.segments {
            match segment {
                Segment::Fixed(bytes, fields) => {
                    for field in fields {
                        let val = self.load_field(at, field);
                        self.write_slot(field.slot, &val);
                    }
                    at = at.plus(*bytes);
                }
                Segment::Var(varbit) => {
                    let words = self.load_varbit(at, var_bytes, varbit.width);
                    self.write_words(varbit.slot, words);
                    at = At { base: self.add(at.base, var_bytes), ..at };
                }
                Segment::Odd(before, varbit, after) => self.extract_odd(at, size, before, *varbit, after),
            }
        }
        self.move_cursor(size);
    }

    /// Extracts a header whose varbit does not begin at a byte boundary: loads it as one wide number and slices out the
    /// fields.
    fn extract_odd(&mut self, at: At, bytes: Value, before: &[FieldAt], varbit: Varbit, after: &[FieldAt]) {
        // The runtime's wide operations take whole words, and more than two of them.
        let behind = bits_of(after);
        let all = (bits_of(before) + varbit.width + behind).next_multiple_of(64).max(192);
        let whole = self.load_varbit(at, bytes, all);
        for field in after {
            let words = self.slice_words(&whole, behind - field.bit - field.width, field.width);
            self.write_words(field.slot, words);
        }
        let mut rest = self.slice_words(&whole, behind, all - behind);
        let zero = self.word(0);
        rest.resize(all as usize / 64, zero);
        let bits = self.read_flag(varbit.length);
        let count = self.word(all.into());
        let above = self.sub(count, bits);
        let var = self.wide_shift(BinOp::Shl, all, &rest, above);
        let var = self.wide_shift(BinOp::Lshr, all, &var, above);
        let var = self.slice_words(&var, 0, varbit.width);
        self.write_words(varbit.slot, var);
        let rest = self.wide_shift(BinOp::Lshr, all, &rest, bits);
        for field in before {
            let words = self.slice_words(&rest, bits_of(before) - field.bit - field.width, field.width);
            self.write_words(field.slot, words);
        }
    }
}
