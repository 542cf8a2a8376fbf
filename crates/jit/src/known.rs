//! What is known of a value from the instructions that compute it.
//!
//! Only a few instructions are examined, so queries are cheap. Nothing is known of block parameters.
//!
//! Tests: `tests/packets.rs`, `tests/stf/v1model/what_branches_say.stf`; crate `difftest`.

use crate::clmul;
use crate::packet::At;
use crate::translate::Translator;
use cranelift_codegen::ir::types::{I16, I64};
use cranelift_codegen::ir::{InstBuilder, InstructionData, Opcode, Type, Value};

/// Most instructions in a chain that are examined.
const DEPTH_MAX: u32 = 4;

/// Bytes of the frame that a value was loaded from.
#[derive(Clone, Copy)]
pub(crate) struct FrameBytes {
    at: At,
    size: u32,
    /// Whether the first byte is the most significant.
    in_network_order: bool,
}

impl FrameBytes {
    /// Where byte `byte` of the value is, counted from the least significant; `None` for higher bytes, which are zero.
    pub fn byte(&self, byte: u32) -> Option<At> {
        let from = if self.in_network_order { self.size.checked_sub(byte + 1)? } else { byte };
        (from < self.size).then(|| self.at.plus(from))
    }

    /// Where the bytes of a value of `width` bits are, the most significant first, if they are exactly this load.
    pub fn whole(&self, width: u32) -> Option<At> {
        (8 * self.size == width && (self.in_network_order || self.size == 1)).then_some(self.at)
    }
}

/// A comparison of masked bytes of the frame, in the host's byte order, with a constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameTest {
    pub at: At,
    /// 1, 2, 4 or 8.
    pub size: u32,
    pub mask: u64,
    pub value: u64,
}

impl FrameTest {
    /// One comparison for both, if a word holds the bytes of both. It begins at the base or after it; from there on all
    /// bytes are in the frame.
    pub fn with(&self, other: &FrameTest) -> Option<FrameTest> {
        let from = self.at.offset.min(other.at.offset);
        let end = (self.at.offset + self.size).max(other.at.offset + other.size);
        let size = (end - from).next_power_of_two();
        if self.at.base != other.at.base || size > 8 {
            return None;
        }
        let offset = end.checked_sub(size)?;
        let up = |test: &FrameTest| 8 * (test.at.offset - offset);
        let both = self.mask << up(self) & other.mask << up(other);
        if (self.value << up(self) ^ other.value << up(other)) & both != 0 {
            return None;
        }
        Some(FrameTest {
            at: At { base: self.at.base, offset },
            size,
            mask: self.mask << up(self) | other.mask << up(other),
            value: self.value << up(self) | other.value << up(other),
        })
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

    /// The bytes of the frame that a value was loaded from, if they have not been written since.
    pub fn frame_bytes(&self, value: Value) -> Option<FrameBytes> {
        if !self.flow.is_before_deparsers(self.position) {
            return None;
        }
        let narrow = self.operand_of(value, Opcode::Uextend).unwrap_or(value);
        let swapped = self.operand_of(narrow, Opcode::Bswap);
        let bytes = self.b.func.dfg.value_type(swapped.unwrap_or(narrow)).bytes();
        let loaded = swapped.map_or(narrow, |value| self.unreduced(value).unwrap_or(value));
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
        if swapped.is_some() && size != bytes {
            return None;
        }
        let offset = u32::try_from(i32::from(offset)).ok()?;
        Some(FrameBytes { at: At { base: arg, offset }, size, in_network_order: swapped.is_some() })
    }

    /// The test of the frame's bytes that is equivalent to `value == number`, if the value was loaded from there, or
    /// consists of bits or a concatenation of such values.
    pub fn frame_test(&self, value: Value, number: u64) -> Option<FrameTest> {
        if let Some((high, up, low)) = self.parts_of(value) {
            let low = self.frame_test(low, number & ((1 << up) - 1))?;
            return self.frame_test(high, number >> up)?.with(&low);
        }
        let (whole, mask) = match self.def(value)? {
            InstructionData::Binary { opcode: Opcode::Band, args: [a, b] } => (a, self.as_constant(b)? as u64),
            _ => (value, u64::MAX),
        };
        let bytes = self.frame_bytes(whole)?;
        let bits = 8 * bytes.size;
        let mask = mask & (u64::MAX >> (64 - bits));
        if number & !mask != 0 {
            return None;
        }
        let turned = |number: u64| if bytes.in_network_order { number.swap_bytes() >> (64 - bits) } else { number };
        Some(FrameTest { at: bytes.at, size: bytes.size, mask: turned(mask), value: turned(number) })
    }

    /// The number of low bits of a word that may be nonzero.
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
            InstructionData::IntCompare { .. } => 1,
            InstructionData::Load { opcode: Opcode::Uload8, .. } => 8,
            InstructionData::Load { opcode: Opcode::Uload16, .. } => 16,
            InstructionData::Load { opcode: Opcode::Uload32, .. } => 32,
            InstructionData::Load { flags, .. } if clmul::is_remainder(self.b.func.dfg.mem_flags[flags]) => 32,
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

    /// The two flags of which a flag is the disjunction.
    pub fn either_of(&self, flag: Value) -> Option<[Value; 2]> {
        let InstructionData::Binary { opcode: Opcode::Bor, args } = self.def(flag)? else { return None };
        args.iter().all(|arg| self.significant_bits(*arg) == 1).then_some(args)
    }

    /// The parts of `high << up | low`, if they do not overlap.
    pub fn parts_of(&self, value: Value) -> Option<(Value, u32, Value)> {
        let InstructionData::Binary { opcode: Opcode::Bor, args: [a, b] } = self.def(value)? else { return None };
        [(a, b), (b, a)].into_iter().find_map(|(shifted, low)| {
            let InstructionData::Binary { opcode: Opcode::Ishl, args: [high, by] } = self.def(shifted)? else {
                return None;
            };
            let up = self.as_constant(by).filter(|by| (1..64).contains(by))? as u32;
            let fits = self.significant_bits(low) <= up && self.significant_bits(high) + up <= 64;
            fits.then_some((high, up, low))
        })
    }

    /// An equivalent comparison of a value with a number that needs no byte swap.
    pub fn unswapped(&mut self, value: Value, number: u64) -> Option<(Value, u64)> {
        let (whole, mask) = match self.def(value)? {
            InstructionData::Binary { opcode: Opcode::Band, args: [a, b] } => (a, Some(self.as_constant(b)? as u64)),
            _ => (value, None),
        };
        let (inner, ty) = self.swapped(whole)?;
        let above = |number: u64| if ty.bits() < 64 { number >> ty.bits() } else { 0 };
        let turned = |number: u64| number.swap_bytes() >> (64 - ty.bits());
        if above(number) != 0 || mask.is_some_and(|mask| above(mask) != 0) {
            return None;
        }
        let inner = match mask {
            Some(mask) => self.b.ins().band_imm_u(inner, turned(mask) as i64),
            None => inner,
        };
        Some((inner, turned(number)))
    }

    /// The same for a comparison of two values; also the type of the unswapped values.
    pub fn both_unswapped(&mut self, a: Value, b: Value) -> Option<(Value, Value, Type)> {
        let ((a, a_type), (b, b_type)) = (self.swapped(a)?, self.swapped(b)?);
        (a_type == b_type).then_some((a, b, a_type))
    }

    /// Reverses the order of a word's low bytes, as many as type `ty` has; the bytes above become zero.
    pub fn swap(&mut self, word: Value, ty: Type) -> Value {
        if ty == I64 {
            return self.b.ins().bswap(word);
        }
        let narrow = self.b.ins().ireduce(ty, word);
        let narrow = self.b.ins().bswap(narrow);
        self.b.ins().uextend(I64, narrow)
    }

    /// The word that a narrower value was truncated from, if the bits above are zero.
    fn unreduced(&self, value: Value) -> Option<Value> {
        let word = self.operand_of(value, Opcode::Ireduce)?;
        let dfg = &self.b.func.dfg;
        (dfg.value_type(word) == I64 && self.significant_bits(word) <= dfg.value_type(value).bits()).then_some(word)
    }

    /// The value and the mask of a masked value.
    pub fn unmasked(&self, value: Value) -> Option<(Value, u64)> {
        let InstructionData::Binary { opcode: Opcode::Band, args: [a, b] } = self.def(value)? else { return None };
        Some((a, self.as_constant(b)? as u64))
    }

    /// The value whose byte swap, zero-extended, this is, and its type.
    pub fn swapped(&mut self, value: Value) -> Option<(Value, Type)> {
        let narrow = self.operand_of(value, Opcode::Uextend).unwrap_or(value);
        let inner = self.operand_of(narrow, Opcode::Bswap)?;
        let ty = self.b.func.dfg.value_type(inner);
        if self.b.func.dfg.value_type(value) != I64 || ty.bits() < I16.bits() {
            return None;
        }
        let word = match self.unreduced(inner) {
            Some(word) => word,
            None if ty == I64 => inner,
            None => self.b.ins().uextend(I64, inner),
        };
        Some((word, ty))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_of_two_places_holds_where_both_do() {
        let mut random = random::Random::new(1);
        let mut below = |n: u64| random.below(n);
        let holds = |test: &FrameTest, frame: &[u8; 24]| {
            let from = test.at.offset as usize;
            let bytes = frame[from..from + test.size as usize].iter().rev();
            bytes.fold(0, |all, byte| all << 8 | u64::from(*byte)) & test.mask == test.value
        };
        let (mut joined, mut held) = (0, 0);
        for _ in 0..20_000 {
            let mut frame = [0; 24];
            frame.iter_mut().for_each(|byte| *byte = below(3) as u8);
            let mut test = || {
                let size = 1 << below(4);
                let (at, bits) =
                    (At { base: Value::from_u32(below(20).min(1) as u32), offset: below(16) as u32 }, 8 * size);
                let mask = (below(1 << 31) << 32 | below(1 << 31)) & (u64::MAX >> (64 - bits)) & 0x0303_0303_0303_0303;
                FrameTest { at, size, mask, value: 0x0001_0200_0101_0000 & mask }
            };
            let (one, other) = (test(), test());
            let Some(both) = one.with(&other) else { continue };
            assert!(one.at.base == other.at.base && both.size <= 8, "{both:?}");
            assert_eq!(holds(&both, &frame), holds(&one, &frame) && holds(&other, &frame), "{one:?}, {other:?}");
            joined += 1;
            held += usize::from(holds(&both, &frame));
        }
        assert!(joined > 2_000 && held > 20, "{joined} of two, {held} hold");
    }
}
