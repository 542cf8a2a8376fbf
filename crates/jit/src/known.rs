//! What is known of a value from the instruction that makes it.
//!
//! Only a few instructions back are looked at, so asking is cheap; values that joins make are not known.
//!
//! Tests: below through compiled programs: `tests/packets.rs`; crate `difftest`.

use crate::packet::At;
use crate::translate::Translator;
use cranelift_codegen::ir::types::{I16, I64};
use cranelift_codegen::ir::{InstBuilder, InstructionData, Opcode, Type, Value};

/// Instructions behind one another that are looked at.
const DEPTH_MAX: u32 = 4;

/// Bytes of the frame that a value was loaded from.
#[derive(Clone, Copy)]
pub(crate) struct FrameBytes {
    at: At,
    size: u32,
    /// Whether the first byte is the highest.
    in_network_order: bool,
}

impl FrameBytes {
    /// Where byte `byte` of the value is, from the lowest on; `None` for those above it, which are zero.
    pub fn byte(&self, byte: u32) -> Option<At> {
        let from = if self.in_network_order { self.size.checked_sub(byte + 1)? } else { byte };
        (from < self.size).then(|| self.at.plus(from))
    }
}

impl Translator<'_, '_> {
    fn def(&self, value: Value) -> Option<InstructionData> {
        let dfg = &self.b.func.dfg;
        dfg.value_def(dfg.resolve_aliases(value)).inst().map(|inst| dfg.insts[inst])
    }

    /// The operand of the unary instruction that makes a value.
    fn operand_of(&self, value: Value, wanted: Opcode) -> Option<Value> {
        match self.def(value)? {
            InstructionData::Unary { opcode, arg } if opcode == wanted => Some(arg),
            _ => None,
        }
    }

    /// The bytes of the frame that a value is, if they are as they were.
    pub fn frame_bytes(&self, value: Value) -> Option<FrameBytes> {
        if !self.flow.is_before_deparsers(self.position) {
            return None;
        }
        let narrow = self.operand_of(value, Opcode::Uextend).unwrap_or(value);
        let swapped = self.operand_of(narrow, Opcode::Bswap);
        let loaded = swapped.unwrap_or(narrow);
        let InstructionData::Load { opcode, arg, flags, offset } = self.def(loaded)? else { return None };
        let flags = self.b.func.dfg.mem_flags[flags];
        if flags.alias_region() != self.flags.packet.alias_region() {
            return None;
        }
        let size = match opcode {
            Opcode::Load => self.b.func.dfg.value_type(loaded).bytes(),
            Opcode::Uload8 => 1,
            Opcode::Uload16 => 2,
            Opcode::Uload32 => 4,
            _ => return None,
        };
        let offset = u32::try_from(i32::from(offset)).ok()?;
        Some(FrameBytes { at: At { base: arg, offset }, size, in_network_order: swapped.is_some() })
    }

    /// Above so many bits a word is zero.
    pub fn significant_bits(&self, value: Value) -> u32 {
        self.bits_of(value, DEPTH_MAX)
    }

    fn bits_of(&self, value: Value, depth: u32) -> u32 {
        let all = self.b.func.dfg.value_type(value).bits();
        let (Some(def), 1..) = (self.def(value), depth) else { return all };
        let of = |value| self.bits_of(value, depth - 1);
        let bits = match def {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => 64 - (imm.bits() as u64).leading_zeros(),
            InstructionData::Unary { opcode: Opcode::Uextend, arg } => of(arg),
            InstructionData::Load { opcode: Opcode::Uload8, .. } => 8,
            InstructionData::Load { opcode: Opcode::Uload16, .. } => 16,
            InstructionData::Load { opcode: Opcode::Uload32, .. } => 32,
            InstructionData::Binary { opcode: Opcode::Band, args: [a, b] } => of(a).min(of(b)),
            InstructionData::Binary { opcode: Opcode::Bor | Opcode::Bxor, args: [a, b] } => of(a).max(of(b)),
            InstructionData::Binary { opcode: Opcode::Ishl, args: [a, by] } => match self.as_constant(by) {
                Some(by @ 0..64) => of(a) + by as u32,
                _ => all,
            },
            InstructionData::Binary { opcode: Opcode::Ushr, args: [a, by] } => match self.as_constant(by) {
                Some(by @ 0..64) => of(a).saturating_sub(by as u32),
                _ => all,
            },
            _ => all,
        };
        bits.min(all)
    }

    /// What a value and a number may be compared as instead: bytes as they lie in the frame.
    pub fn unswapped(&mut self, value: Value, number: u64) -> Option<(Value, u64)> {
        let (inner, ty) = self.swapped(value)?;
        let above = if ty.bits() < 64 { number >> ty.bits() } else { 0 };
        let turned = number.swap_bytes() >> (64 - ty.bits());
        (above == 0).then_some((inner, turned))
    }

    /// The same for two values.
    pub fn both_unswapped(&mut self, a: Value, b: Value) -> Option<(Value, Value)> {
        let ((a, a_type), (b, b_type)) = (self.swapped(a)?, self.swapped(b)?);
        (a_type == b_type).then_some((a, b))
    }

    /// The value of which the bytes are exchanged, zero-extended, and its type.
    fn swapped(&mut self, value: Value) -> Option<(Value, Type)> {
        let narrow = self.operand_of(value, Opcode::Uextend).unwrap_or(value);
        let inner = self.operand_of(narrow, Opcode::Bswap)?;
        let ty = self.b.func.dfg.value_type(inner);
        let is_whole = self.b.func.dfg.value_type(value) == I64 && ty.bits() >= I16.bits();
        is_whole.then(|| (if ty == I64 { inner } else { self.b.ins().uextend(I64, inner) }, ty))
    }
}
