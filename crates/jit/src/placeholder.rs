//! Instructions that Cranelift lacks, patched into the code over placeholders.
//!
//! A placeholder is a store of a word ([`Translator::place_store`]), a store of a constant
//! ([`Translator::place_constant`]) or a load of a byte ([`Translator::place_load`]), through an address that the
//! instruction needs or any other. Placeholders are allowed to trap, each with a tag of its own (its trap code), so
//! they are neither removed nor reordered, and Cranelift records where they begin. Cranelift never uses `zmm16` and
//! `k1`, so nothing between placeholders changes these. A placeholder is at least as long as the instruction that
//! replaces it; segment override prefixes, which have no effect here, pad it.
//!
//! Placeholders must not run. Where Cranelift encoded one in an unexpected form, which it does where the stored value
//! is a constant, [`patch`] fails, and everything is compiled again without placeholders. So none is made for a value
//! that is visibly a constant ([`Translator::is_constant`]).
//!
//! | file | tags | instructions |
//! | --- | --- | --- |
//! | `prefetch` | 0x51, 0x60 | prefetches |
//! | `wide` | 0x52 to 0x5b | comparisons of a key with a whole bucket |
//! | `clmul` | 0x5c to 0x5f | carry-less multiplication |
//!
//! Tests: at the end of those files.

use crate::translate::Translator;
use crate::{Error, clmul, prefetch, wide};
use cranelift_codegen::MachTrap;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, TrapCode, Value, ValueDef};

/// The constant that [`Translator::place_constant`] stores.
const STORED: u32 = 0x5a5a_5a5a;
/// A displacement for placeholders that must be encoded with four bytes of it.
pub(crate) const LONG_DISPLACEMENT: i32 = 0x5a_5a5a;

/// The bytes of an instruction, and the length of the placeholder that it replaces.
pub(crate) type Encoded = (Vec<u8>, usize);

impl Translator<'_, '_> {
    /// Whether a value is computed from constants alone, as far as a short search shows: Cranelift stores such a value
    /// without a register.
    pub fn is_constant(&self, value: Value) -> bool {
        let dfg = &self.b.func.dfg;
        let mut left = vec![dfg.resolve_aliases(value)];
        // Enough for a field's constant that was shifted into its place in the key.
        for _ in 0..16 {
            let Some(value) = left.pop() else { return true };
            let ValueDef::Result(inst, _) = dfg.value_def(value) else { return false };
            let opcode = dfg.insts[inst].opcode();
            if opcode.can_load() || opcode.is_call() || opcode.other_side_effects() {
                return false;
            }
            left.extend(dfg.inst_args(inst).iter().map(|arg| dfg.resolve_aliases(*arg)));
        }
        false
    }

    fn tagged(&self, tag: TrapCode) -> MemFlagsData {
        MemFlagsData::new().with_trap_code(Some(tag)).with_alias_region(self.flags.patched)
    }

    /// A placeholder with a value in a register: 32 or 64 bits wide, no constant.
    pub fn place_store(&mut self, tag: TrapCode, value: Value, address: Value) {
        let flags = self.tagged(tag);
        self.b.ins().store(flags, value, address, LONG_DISPLACEMENT);
    }

    /// A placeholder with the address of a memory operand.
    pub fn place_constant(&mut self, tag: TrapCode, address: Value, offset: i32) {
        let flags = self.tagged(tag);
        let stored = self.b.ins().iconst(I32, i64::from(STORED));
        self.b.ins().store(flags, stored, address, offset);
    }

    /// A placeholder that defines a value of 64 bits.
    pub fn place_load(&mut self, tag: TrapCode, address: Value, offset: i32) -> Value {
        let flags = self.tagged(tag);
        self.b.ins().sload8(I64, flags, address, offset)
    }
}

/// Replaces the placeholders in `code` by their instructions.
///
/// # Errors
/// [`Error::Codegen`] if a placeholder has an unexpected encoding.
pub(crate) fn patch(code: &mut [u8], traps: &[MachTrap]) -> Result<(), Error> {
    for trap in traps {
        let at = trap.offset as usize;
        let instruction = || Instruction::decode(code.get(at..)?);
        let made = prefetch::made(trap.code, code.get(at..).unwrap_or_default())
            .or_else(|| wide::made(trap.code, instruction()))
            .or_else(|| clmul::made(trap.code, instruction()));
        if let Some(made) = made {
            replace(code, at, made)?;
        }
    }
    Ok(())
}

/// Replaces a placeholder by an instruction and pads it in front.
fn replace(code: &mut [u8], at: usize, made: Option<(Vec<u8>, usize)>) -> Result<(), Error> {
    let Some((bytes, length)) = made.filter(|(bytes, length)| bytes.len() <= *length) else {
        return Err(Error::Codegen(format!("no placeholder at {at:#x} that an instruction could be made of")));
    };
    let filled = length - bytes.len();
    // The prefix of the segment override DS.
    code[at..at + filled].fill(0x3e);
    code[at + filled..at + length].copy_from_slice(&bytes);
    Ok(())
}

/// An instruction with a register operand and a memory operand.
pub(crate) struct Instruction<'a> {
    wide: bool,
    opcode: &'a [u8],
    /// The bytes that follow, with the immediate operand if it has one.
    rest: &'a [u8],
    pub register: u8,
    base: u8,
    /// The index register, and the exponent of its scale factor.
    index: Option<(u8, u8)>,
    displacement: i32,
    /// Bytes without an immediate operand.
    pub length: usize,
}

impl Instruction<'_> {
    /// Decodes the instruction at the beginning of `code`, if it has one opcode byte, or two of which the first is 0F.
    pub fn decode(code: &[u8]) -> Option<Instruction<'_>> {
        let mut at = 0;
        let rex = code.first().copied().filter(|b| b & 0xf0 == 0x40).unwrap_or(0);
        at += usize::from(rex != 0);
        let bytes = if *code.get(at)? == 0x0f { 2 } else { 1 };
        let opcode = code.get(at..at + bytes)?;
        at += bytes;
        let modrm = *code.get(at)?;
        at += 1;
        let (mode, mut base, mut index) = (modrm >> 6, modrm & 7, None);
        if mode == 3 {
            return None;
        }
        if base == 4 {
            let sib = *code.get(at)?;
            at += 1;
            base = sib & 7;
            let number = sib >> 3 & 7 | (rex & 2) << 2;
            index = (number != 4).then_some((number, sib >> 6));
        }
        if mode == 0 && base == 5 {
            // An address without a base register.
            return None;
        }
        let displacement = match mode {
            0 => 0,
            1 => i32::from(*code.get(at)? as i8),
            _ => i32::from_le_bytes(code.get(at..at + 4)?.try_into().ok()?),
        };
        at += [0, 1, 4][usize::from(mode)];
        Some(Instruction {
            wide: rex & 8 != 0,
            opcode,
            register: modrm >> 3 & 7 | (rex & 4) << 1,
            base: base | (rex & 1) << 3,
            index,
            displacement,
            length: at,
            rest: code.get(at..)?,
        })
    }

    /// `mov m64, r64` or `mov m32, r32`.
    pub fn is_store_of_register(&self, wide: bool) -> bool {
        self.opcode == [0x89] && self.wide == wide
    }

    /// `mov m32, STORED`.
    pub fn is_store_of_constant(&self) -> bool {
        self.opcode == [0xc7] && !self.wide && self.rest.starts_with(&STORED.to_le_bytes())
    }

    /// `movsx r64, m8`.
    pub fn is_load_of_byte(&self) -> bool {
        self.opcode == [0x0f, 0xbe] && self.wide
    }
}

/// The EVEX encoding of a memory operand, `behind` bytes before the address of `at`, for vectors of `vector` bytes:
/// bits of the prefix's first byte, and the bytes after the opcode. `register` is the other operand.
pub(crate) fn memory_operand(at: &Instruction<'_>, behind: i32, vector: i32, register: u8) -> Option<(u8, Vec<u8>)> {
    let b = u8::from(at.base < 8) << 5;
    let x = u8::from(at.index.is_none_or(|(index, _)| index < 8)) << 6;
    let displacement = at.displacement.checked_sub(behind)?;
    // An EVEX displacement of one byte is a multiple of the vector's length (disp8*N).
    let vectors = i8::try_from(displacement / vector).ok().filter(|_| displacement % vector == 0);
    let mode = match vectors {
        Some(0) if at.base & 7 != 5 => 0,
        Some(_) => 1,
        None => 2,
    };
    let has_sib = at.index.is_some() || at.base & 7 == 4;
    let mut bytes = vec![mode << 6 | register << 3 | if has_sib { 4 } else { at.base & 7 }];
    if has_sib {
        let (index, scale) = at.index.unwrap_or((4, 0));
        bytes.push(scale << 6 | (index & 7) << 3 | at.base & 7);
    }
    match (mode, vectors) {
        (0, _) => {}
        (_, Some(vectors)) => bytes.push(vectors as u8),
        _ => bytes.extend(displacement.to_le_bytes()),
    }
    Some((x | b, bytes))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    impl Instruction<'_> {
        /// An instruction with this memory operand.
        pub(crate) fn at(base: u8, index: Option<(u8, u8)>, displacement: i32) -> Self {
            Instruction { wide: false, opcode: &[], rest: &[], register: 0, base, index, displacement, length: 0 }
        }
    }

    /// Patches a single placeholder.
    pub(crate) fn patched(tag: TrapCode, code: &[u8]) -> Option<Vec<u8>> {
        let mut code = code.to_vec();
        patch(&mut code, &[MachTrap { offset: 0, code: tag }]).is_ok().then_some(code)
    }
}
