//! Instructions that Cranelift does not have.
//!
//! A placeholder stands for each of them until the code gets its address: a store of a word ([`Translator::place_store`]), a store of
//! a constant ([`Translator::place_constant`]) or a load of a byte ([`Translator::place_load`]), through an address that the
//! instruction needs or any other. They are allowed to trap, each with a tag of its own, so they are neither dropped nor moved against
//! one another, and Cranelift notes where they begin. It never uses `zmm16` and `k1`, so nothing between them changes those. A
//! placeholder is at least as long as what takes its place; segment overrides, which mean nothing here, fill it up.
//!
//! Placeholders must not run. Where Cranelift made something else of one than is known here, which it does where what is
//! stored is a constant, [`patch`] fails, and everything is compiled again without them. So nobody asks for one of a value that is seen
//! to be a constant ([`Translator::is_constant`]).
//!
//! | file | tags | instructions |
//! | --- | --- | --- |
//! | `prefetch` | 0x51, 0x60 | prefetches |
//! | `wide` | 0x52 to 0x5b | compares of a key with a whole bucket |
//! | `clmul` | 0x5c to 0x5f | products of polynomials |
//!
//! Tests: at the end of those files.

use crate::translate::Translator;
use crate::{Error, clmul, prefetch, wide};
use cranelift_codegen::MachTrap;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, TrapCode, Value, ValueDef};

/// What a store of a constant stores.
const STORED: u32 = 0x5a5a_5a5a;
/// How far behind an address placeholders store that need a long displacement.
pub(crate) const FAR_BEHIND: i32 = 0x5a_5a5a;

/// The bytes of an instruction, and how long the placeholder is that it takes the place of.
pub(crate) type Made = (Vec<u8>, usize);

impl Translator<'_, '_> {
    /// Whether a value is computed from constants alone, as far as that is easy to see: Cranelift stores one without a
    /// register.
    pub fn is_constant(&self, value: Value) -> bool {
        let dfg = &self.b.func.dfg;
        let mut left = vec![dfg.resolve_aliases(value)];
        // Enough for a field's constant that was moved into its place in the key.
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

    /// A placeholder that has a value in a register: one of 32 or 64 bits that is no constant.
    pub fn place_store(&mut self, tag: TrapCode, value: Value, address: Value) {
        let flags = self.tagged(tag);
        self.b.ins().store(flags, value, address, FAR_BEHIND);
    }

    /// A placeholder that has the address of what it reads.
    pub fn place_constant(&mut self, tag: TrapCode, address: Value, offset: i32) {
        let flags = self.tagged(tag);
        let stored = self.b.ins().iconst(I32, i64::from(STORED));
        self.b.ins().store(flags, stored, address, offset);
    }

    /// A placeholder that makes a value of 64 bits.
    pub fn place_load(&mut self, tag: TrapCode, address: Value, offset: i32) -> Value {
        let flags = self.tagged(tag);
        self.b.ins().sload8(I64, flags, address, offset)
    }
}

/// Puts the instructions where their placeholders are in `code`.
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

/// Puts an instruction in the place of a placeholder of so many bytes, if it is one.
fn replace(code: &mut [u8], at: usize, made: Option<(Vec<u8>, usize)>) -> Result<(), Error> {
    let Some((bytes, length)) = made.filter(|(bytes, length)| bytes.len() <= *length) else {
        return Err(Error::Codegen(format!("no placeholder at {at:#x} that an instruction could be made of")));
    };
    let filled = length - bytes.len();
    // DS
    code[at..at + filled].fill(0x3e);
    code[at + filled..at + length].copy_from_slice(&bytes);
    Ok(())
}

/// An instruction with a register and a place in memory.
pub(crate) struct Instruction<'a> {
    wide: bool,
    opcode: &'a [u8],
    /// What follows, an immediate operand if it has one.
    rest: &'a [u8],
    pub register: u8,
    base: u8,
    /// With the exponent of its factor.
    index: Option<(u8, u8)>,
    displacement: i32,
    /// Bytes without an immediate operand.
    pub length: usize,
}

impl Instruction<'_> {
    /// The instruction at the beginning of `code`: of those with one opcode byte, or two from the table behind 0F.
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
            // An address without a base.
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

/// An EVEX operand in memory, `behind` bytes before the address of an instruction, for vectors of so many bytes: what it sets in
/// the prefix's first byte, and what follows the opcode; `register` is the other operand's.
pub(crate) fn memory_operand(at: &Instruction<'_>, behind: i32, vector: i32, register: u8) -> Option<(u8, Vec<u8>)> {
    let b = u8::from(at.base < 8) << 5;
    let x = u8::from(at.index.is_none_or(|(index, _)| index < 8)) << 6;
    let displacement = at.displacement.checked_sub(behind)?;
    // A short displacement counts vectors.
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
        /// One that has this place in memory.
        pub(crate) fn at(base: u8, index: Option<(u8, u8)>, displacement: i32) -> Self {
            Instruction { wide: false, opcode: &[], rest: &[], register: 0, base, index, displacement, length: 0 }
        }
    }

    /// Patches one placeholder.
    pub(crate) fn patched(tag: TrapCode, code: &[u8]) -> Option<Vec<u8>> {
        let mut code = code.to_vec();
        patch(&mut code, &[MachTrap { offset: 0, code: tag }]).is_ok().then_some(code)
    }
}
