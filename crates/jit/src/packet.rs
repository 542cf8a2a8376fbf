//! The parser's operations: availability, extraction, lookahead.
//!
//! Loads never touch a byte outside the region that a dominating `HasBits` covers: a field is loaded by the smallest
//! power of two of bytes that covers it and fits into its segment, or in parts where none does. All packet loads are
//! plain `notrap` loads: Cranelift drops unused ones, merges equal ones, and never moves one across a store to packets.
//! Extracting a header without a varbit loads nothing: its fields are loaded where they are read ([`crate::flow`],
//! "Clean fields").

use crate::Optimisation;
use crate::flow;
use crate::header::{FieldAt, Segment, bits_of};
use crate::translate::Translator;
use crate::value::{Place, Val};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use ir::{BinOp, HeaderId, Operand, SlotId};

/// An address in a packet: a pointer and a constant offset in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub base: Value,
    pub offset: u32,
}

impl At {
    pub fn plus(self, bytes: u32) -> At {
        At { offset: self.offset + bytes, ..self }
    }
}

impl Translator<'_, '_> {
    /// The cursor as a value.
    pub fn cursor_value(&mut self) -> Value {
        match self.facts_now.cursor {
            flow::Place::Const(c) => self.iconst(u64::from(c)),
            flow::Place::Varying => self.b.use_var(self.vars.cursor),
        }
    }

    /// The byte at the cursor.
    pub fn cursor_at(&mut self) -> At {
        let base = self.b.use_var(self.vars.data);
        match self.facts_now.cursor {
            flow::Place::Const(offset) => At { base, offset },
            flow::Place::Varying => {
                let cursor = self.b.use_var(self.vars.cursor);
                At { base: self.b.ins().iadd(base, cursor), offset: 0 }
            }
        }
    }

    /// The address that a header was last extracted from. Meaningless for an invalid header.
    pub fn extracted_at(&mut self, header: HeaderId) -> At {
        match self.flow.extracted_at[header.index()] {
            flow::Place::Const(offset) => At { base: self.b.use_var(self.vars.data), offset },
            flow::Place::Varying => At { base: self.header_pointer(header), offset: 0 },
        }
    }

    /// The address from which a header's clean fields can be loaded: its place in the packet, or zeros while it is
    /// invalid.
    pub fn header_pointer(&mut self, header: HeaderId) -> Value {
        if let Some(place) = self.header_pointers[header.index()] {
            return self.read_pointer(place);
        }
        let zeros = self.zeros();
        match self.flow.extracted_at[header.index()] {
            flow::Place::Const(offset) if self.flow.is_extracted[header.index()] => {
                let data = self.b.use_var(self.vars.data);
                let place = self.add_imm(data, offset.into());
                let valid = self.read_flag(self.facts.headers[header.index()].valid);
                self.b.ins().select(valid, place, zeros)
            }
            _ => zeros,
        }
    }

    /// Assigns a header's pointer, if the code carries one.
    pub fn set_header_pointer(&mut self, header: HeaderId, to: Value) {
        if let Some(place) = self.header_pointers[header.index()] {
            self.write_pointer(place, to);
        }
    }

    /// The value of a header's pointer.
    pub fn read_pointer(&mut self, place: Place) -> Value {
        match place {
            Place::Var(var) => self.b.use_var(var),
            Place::Stack(_) | Place::Block(_) => unreachable!("pointers are carried in variables or the frame"),
            Place::Memory(offset) => {
                let frame = self.stack_addr(self.frame);
                self.b.ins().load(I64, self.flags.stack, frame, offset as i32)
            }
        }
    }

    pub fn write_pointer(&mut self, place: Place, to: Value) {
        match place {
            Place::Var(var) => self.b.def_var(var, to),
            Place::Stack(_) | Place::Block(_) => unreachable!("pointers are carried in variables or the frame"),
            Place::Memory(offset) => {
                let frame = self.stack_addr(self.frame);
                self.b.ins().store(self.flags.stack, to, frame, offset as i32);
            }
        }
    }

    /// The address of the zeros.
    pub fn zeros(&mut self) -> Value {
        self.iconst(self.zeros.as_ptr() as u64)
    }

    /// Loads a clean field.
    pub fn load_clean(&mut self, header: HeaderId, field: &FieldAt) -> Val {
        let valid = self.read_flag(self.facts.headers[header.index()].valid);
        if !self.flow.is_extracted[header.index()] || self.as_constant(valid) == Some(0) {
            return self.zero(field.width);
        }
        let at = At { base: self.header_pointer(header), offset: 0 };
        self.load_field(at, self.facts.headers[header.index()].fixed_bytes, field)
    }

    /// Loads fields that are about to lose their place in the packet into their variables.
    pub fn materialise(&mut self, slots: &[SlotId]) {
        for &slot in slots {
            let val = self.read_slot(slot);
            self.write_slot(slot, &val);
        }
    }

    pub fn has_bits(&mut self, dst: SlotId, bits: &Operand) {
        let len = self.b.use_var(self.vars.len);
        let cursor = self.facts_now.cursor;
        let known = bits.constant().and_then(|b| b.to_u128()).map(|b| b.div_ceil(8));
        let flag = match (known, cursor) {
            (Some(bytes), flow::Place::Const(c)) => {
                let need = u64::try_from(bytes + u128::from(c)).unwrap_or(u64::MAX);
                self.icmp_imm(IntCC::UnsignedGreaterThanOrEqual, len, need)
            }
            _ => {
                let bytes = match known {
                    Some(bytes) => self.iconst(u64::try_from(bytes).unwrap_or(u64::MAX)),
                    None => {
                        let bits = self.read(bits);
                        let bits = self.saturate_to_word(&bits);
                        self.bytes_of_bits(bits)
                    }
                };
                let cursor = self.cursor_value();
                let left = self.b.ins().isub(len, cursor);
                self.icmp(IntCC::UnsignedGreaterThanOrEqual, left, bytes)
            }
        };
        let flag = self.bool_word(flag);
        self.write_slot(dst, &Val::Word(flag));
    }

    /// `ceil(bits / 8)` without overflow.
    fn bytes_of_bits(&mut self, bits: Value) -> Value {
        let whole = self.b.ins().ushr_imm_u(bits, 3);
        let rest = self.b.ins().band_imm_u(bits, 7);
        let part = self.icmp_imm(IntCC::NotEqual, rest, 0);
        let part = self.bool_word(part);
        self.b.ins().iadd(whole, part)
    }

    pub fn extract(&mut self, header: HeaderId, varbit_bits: Option<&Operand>) {
        let layout = &self.facts.headers[header.index()];
        let cursor = self.cursor_value();
        let at = self.cursor_at();
        let start = self.add_imm(at.base, u64::from(at.offset));
        self.set_header_pointer(header, start);
        let var_bits = match (varbit_bits, layout.var) {
            (Some(bits), Some((_, length))) => {
                let bits = self.read(bits);
                let bits = self.saturate_to_word(&bits);
                self.write_number(length, bits);
                Some(bits)
            }
            (None, Some((_, length))) => {
                let zero = self.iconst(0);
                self.write_number(length, zero);
                Some(zero)
            }
            (_, None) => None,
        };
        let var_bytes = var_bits.map(|bits| self.b.ins().ushr_imm_u(bits, 3));
        if self.options.check_bounds {
            let fixed = self.iconst(u64::from(layout.fixed_bytes));
            let size = var_bytes.map_or(fixed, |v| self.b.ins().iadd(fixed, v));
            self.check_left(size);
        }
        let one = self.iconst(1);
        self.write_slot(layout.valid, &Val::Word(one));
        let lazy = self.options.has(Optimisation::LazyFields);
        let is_loaded = |slot: SlotId| self.facts.lazy_field(slot).is_none();
        if self.program.headers[header.index()].fields.iter().any(|f| is_loaded(f.slot)) {
            let flags = self.flags.packet;
            if !lazy {
                // Loads that may trap are executed even if unused.
                self.flags.packet = self.flags.extract;
            }
            self.load_header(header, at, var_bytes, &mut |t, slot, load| {
                if t.flow.needed.contains(slot.index()) && t.facts.lazy_field(slot).is_none() {
                    let val = load(t);
                    t.write_slot(slot, &val);
                }
            });
            self.flags.packet = flags;
        }
        match var_bytes {
            None => self.move_cursor(u64::from(layout.fixed_bytes)),
            Some(bytes) => {
                let next = self.b.ins().iadd(cursor, bytes);
                let next = self.add_imm(next, u64::from(layout.fixed_bytes));
                self.b.def_var(self.vars.cursor, next);
            }
        }
    }

    /// Visits the fields of a header at `at`, each with a function that loads it. `var_bytes` is the varbit's length,
    /// for headers with one.
    #[allow(clippy::type_complexity, reason = "a visitor with a deferred load, used twice")]
    pub fn load_header(
        &mut self,
        header: HeaderId,
        mut at: At,
        var_bytes: Option<Value>,
        visit: &mut dyn FnMut(&mut Self, SlotId, &mut dyn FnMut(&mut Self) -> Val),
    ) {
        let layout = &self.facts.headers[header.index()];
        for segment in &layout.segments {
            match segment {
                Segment::Fixed { bytes, fields } => {
                    for f in fields {
                        visit(self, f.slot, &mut |t| t.load_field(at, *bytes, f));
                    }
                    at = at.plus(*bytes);
                }
                Segment::Var { slot, width, .. } => {
                    let len = var_bytes.expect("a header with a varbit has a length");
                    visit(self, *slot, &mut |t| t.load_varbit(at, len, *width));
                    at = At { base: self.b.ins().iadd(at.base, len), ..at };
                }
                Segment::Odd { before, slot, length, width, after } => {
                    let bytes = var_bytes.expect("a header with a varbit has a length");
                    let needed = |s: SlotId| self.flow.needed.contains(s.index());
                    if !before.iter().chain(after).map(|f| f.slot).chain([*slot]).any(needed) {
                        continue;
                    }
                    let bytes = self.add_imm(bytes, u64::from(layout.fixed_bytes));
                    // The runtime's wide operations take whole words, and more than two.
                    let behind = bits_of(after);
                    let all = (bits_of(before) + width + behind).next_multiple_of(64).max(192);
                    let whole = self.load_varbit(at, bytes, all);
                    let whole = self.words_of_val(&whole);
                    let bits = self.read_flag(*length);
                    for f in after {
                        let words = self.slice_words(&whole, behind - f.bit - f.width, f.width);
                        visit(self, f.slot, &mut |t| t.val_of_words(f.width, words.clone()));
                    }
                    let rest = self.slice_words(&whole, behind, all);
                    let count = self.iconst(u64::from(all));
                    let above = self.b.ins().isub(count, bits);
                    let var = self.bin_wide_shift(BinOp::Shl, all, &rest, above);
                    let var = self.bin_wide_shift(BinOp::Lshr, all, &var, above);
                    let var = self.slice_words(&var, 0, *width);
                    visit(self, *slot, &mut |t| t.val_of_words(*width, var.clone()));
                    let rest = self.bin_wide_shift(BinOp::Lshr, all, &rest, bits);
                    for f in before {
                        let words = self.slice_words(&rest, bits_of(before) - f.bit - f.width, f.width);
                        visit(self, f.slot, &mut |t| t.val_of_words(f.width, words.clone()));
                    }
                }
            }
        }
    }

    /// Adds to the cursor; the caller updates the facts.
    fn move_cursor(&mut self, bytes: u64) {
        let cursor = self.cursor_value();
        let next = self.add_imm(cursor, bytes);
        self.b.def_var(self.vars.cursor, next);
    }

    pub fn advance(&mut self, bits: &Operand) {
        let bits = self.read(bits);
        let bits = self.saturate_to_word(&bits);
        let bytes = self.b.ins().ushr_imm_u(bits, 3);
        if self.options.check_bounds {
            self.check_left(bytes);
        }
        let cursor = self.cursor_value();
        let next = self.b.ins().iadd(cursor, bytes);
        self.b.def_var(self.vars.cursor, next);
    }

    pub fn lookahead(&mut self, dst: SlotId, offset: u32) {
        let width = self.program.width(dst);
        let bytes = (offset + width).div_ceil(8);
        if self.options.check_bounds {
            let size = self.iconst(u64::from(bytes));
            self.check_left(size);
        }
        let at = self.cursor_at();
        let val = self.load_field(at, bytes, &FieldAt { slot: dst, bit: offset, width });
        self.write_slot(dst, &val);
    }

    pub fn consumed(&mut self, dst: SlotId) {
        let cursor = self.cursor_value();
        self.write_number(dst, cursor);
    }

    /// For tests: ends the packet with the fate `Pending` unless `bytes` are left after the cursor.
    fn check_left(&mut self, bytes: Value) {
        let len = self.b.use_var(self.vars.len);
        let cursor = self.cursor_value();
        let left = self.b.ins().isub(len, cursor);
        let fits = self.icmp(IntCC::UnsignedGreaterThanOrEqual, left, bytes);
        let (go_on, bad) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(fits, go_on, &[], bad, &[]);
        self.b.seal_block(bad);
        self.b.seal_block(go_on);
        self.b.switch_to_block(bad);
        self.b.set_cold_block(bad);
        self.finish(abi::FateCode::Pending, crate::OUT_OF_FRAME);
        self.b.switch_to_block(go_on);
    }

    /// Loads a field of a segment of `bytes` bytes at `at`.
    pub fn load_field(&mut self, at: At, bytes: u32, field: &FieldAt) -> Val {
        let mut words = Vec::new();
        // From the least significant end, 64 bits at a time.
        let end = field.bit + field.width;
        let mut taken = 0;
        while taken < field.width {
            let width = (field.width - taken).min(64);
            words.push(self.load_bits(at, bytes, end - taken - width, width));
            taken += width;
        }
        self.val_of_words(field.width, words)
    }

    /// Loads at most 64 bits at bit offset `bit` of a region of `bytes` bytes at `at`.
    fn load_bits(&mut self, at: At, bytes: u32, bit: u32, width: u32) -> Value {
        let (first, end) = (bit / 8, (bit + width).div_ceil(8));
        if let Some((start, size)) = window(first, end, bytes) {
            let loaded = self.load_be(at.plus(start), size);
            let down = 8 * (start + size) - (bit + width);
            let block = self.b.current_block().expect("an operation is being translated");
            if down > 0 && (self.is_cold || self.b.func.layout.is_cold(block)) {
                // A rotation instead of the shift that other uses of this load have: a key field that is shifted into
                // place needs no separate shift, but would have one computed for the shared value.
                let turned = self.b.ins().rotr_imm_u(loaded, i64::from(down));
                return self.mask_word(turned, width);
            }
            let shifted = if down > 0 { self.b.ins().ushr_imm_u(loaded, i64::from(down)) } else { loaded };
            return if 8 * start == bit { shifted } else { self.mask_word(shifted, width) };
        }
        // No single load covers it: load the first bytes, then the rest.
        let head_bytes = 1 << (end - first - 1).ilog2().min(2);
        let head = 8 * (first + head_bytes) - bit;
        let high = self.load_bits(at, bytes, bit, head);
        let low = self.load_bits(at, bytes, bit + head, width - head);
        let high = self.b.ins().ishl_imm_u(high, i64::from(width - head));
        self.b.ins().bor(high, low)
    }

    /// Loads `size` (1, 2, 4, 8) bytes in network order.
    pub fn load_be(&mut self, at: At, size: u32) -> Value {
        let offset = at.offset as i32;
        let flags = self.flags.packet;
        match size {
            1 => self.b.ins().uload8(I64, flags, at.base, offset),
            // The load is the same with and without a byte swap, so that uses of both share it.
            2 => {
                let v = self.b.ins().uload16(I64, flags, at.base, offset);
                self.swap(v, I16)
            }
            4 => {
                let v = self.b.ins().uload32(flags, at.base, offset);
                self.swap(v, I32)
            }
            _ => {
                let v = self.b.ins().load(I64, flags, at.base, offset);
                self.b.ins().bswap(v)
            }
        }
    }

    /// Stores the low `size` (1, 2, 4, 8) bytes of a word in network order.
    pub fn store_be(&mut self, flags: cranelift_codegen::ir::MemFlagsData, value: Value, at: At, size: u32) {
        let value = self.be_bytes(value, size);
        self.b.ins().store(flags, value, at.base, at.offset as i32);
    }

    /// The low `size` bytes of a word as a value that, stored in the machine's order, is in network order.
    pub fn be_bytes(&mut self, value: Value, size: u32) -> Value {
        let stored = match size {
            1 => self.b.ins().ireduce(I8, value),
            2 | 4 => {
                let v = self.b.ins().ireduce(if size == 2 { I16 } else { I32 }, value);
                self.b.ins().bswap(v)
            }
            _ => self.b.ins().bswap(value),
        };
        self.folded_into_row(stored)
    }

    /// Loads a varbit of `len` bytes (a value of at most `width` bits) at `at`, byte by byte: the last byte on the wire
    /// is the least significant one.
    fn load_varbit(&mut self, at: At, len: Value, width: u32) -> Val {
        let bytes = width.div_ceil(64) * 8;
        let [scratch, ..] = self.wide_scratch(bytes);
        let scratch = self.stack_addr(scratch);
        let zero = self.iconst(0);
        for i in 0..bytes / 8 {
            self.b.ins().store(self.flags.stack, zero, scratch, (8 * i) as i32);
        }
        let most = self.iconst(u64::from(width / 8));
        let len = self.b.ins().umin(len, most);
        let source = self.add_imm(at.base, u64::from(at.offset));
        let (packet, stack) = (self.flags.packet, self.flags.stack);
        self.byte_loop(len, &mut |t, i| {
            let last = t.b.ins().isub(len, i);
            let from = t.b.ins().iadd(source, last);
            let byte = t.b.ins().load(I8, packet, from, -1);
            let to = t.b.ins().iadd(scratch, i);
            t.b.ins().store(stack, byte, to, 0);
        });
        self.load_val(self.flags.stack, width, scratch, 0)
    }

    /// Generates a loop that runs `body` for `i` in `0..n`.
    pub fn byte_loop(&mut self, n: Value, body: &mut dyn FnMut(&mut Self, Value)) {
        let (head, inside, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let i = self.b.append_block_param(head, I64);
        let zero = self.iconst(0);
        self.b.ins().jump(head, &[zero.into()]);
        self.b.switch_to_block(head);
        let over = self.icmp(IntCC::UnsignedGreaterThanOrEqual, i, n);
        self.b.ins().brif(over, done, &[], inside, &[]);
        self.b.seal_block(inside);
        self.b.seal_block(done);
        self.b.switch_to_block(inside);
        body(self, i);
        let next = self.add_imm(i, 1);
        self.b.ins().jump(head, &[next.into()]);
        self.b.seal_block(head);
        self.b.switch_to_block(done);
    }
}

/// A window of a power of two of bytes that covers `first..end` inside `0..bytes`: start and size. Preferably one that
/// begins with the field (no mask needed), else one that ends with it (no shift needed).
fn window(first: u32, end: u32, bytes: u32) -> Option<(u32, u32)> {
    let size = (end - first).next_power_of_two();
    if size > 8 || size > bytes {
        return None;
    }
    let start = if first + size <= bytes { first } else { end.saturating_sub(size).min(bytes - size) };
    Some((start, size))
}

#[cfg(test)]
mod tests {
    use super::window;

    #[test]
    fn windows_cover_the_field_and_stay_inside() {
        for bytes in 1..20u32 {
            for first in 0..bytes {
                for end in first + 1..=bytes.min(first + 9) {
                    match window(first, end, bytes) {
                        Some((start, size)) => {
                            assert!([1, 2, 4, 8].contains(&size), "{first}..{end} of {bytes}");
                            assert!(
                                start <= first && end <= start + size && start + size <= bytes,
                                "{first}..{end} of {bytes}"
                            );
                        }
                        None => assert!((end - first).next_power_of_two() > bytes.min(8), "{first}..{end} of {bytes}"),
                    }
                }
            }
        }
    }
}
