//! Comparing a key with all keys of a bucket at once, which takes registers that Cranelift does not have.
//!
//! AVX-512 compares sixty-four bytes in one instruction, and what comes out is a mask of one bit a lane:
//!
//! ```text
//! vpbroadcastq zmm16, key          vpbroadcastd ymm16, key
//! vpcmpeqq k1, zmm16, [bucket]     vpcmpeqd k1, ymm16, [bucket]
//! kmovb mask, k1
//! ```
//!
//! Keys above eight bytes take two of them, one for what comes first of each, one for the rest. All that is read is in the
//! bucket: those keys have four slots at most.
//!
//! As for prefetches ([`crate::prefetch`]), placeholders stand for them until the code gets its address: a store of the key,
//! a store of a constant and a load, all through the bucket. They are allowed to trap, each with a tag of its own, so they
//! are neither dropped nor moved against one another, and Cranelift notes where they begin. It never uses `zmm16` and `k1`, so
//! nothing between them changes those. A placeholder is at least as long as what takes its place; segment overrides, which
//! mean nothing here, fill it up.
//!
//! Placeholders must not run. Where Cranelift made something else of one than is known here, which it does where a key is a
//! constant, [`patch`] fails, and everything is compiled again without this. So keys that are seen to be constants are compared
//! in another way. On processors without AVX-512 (F, VL and
//! DQ) [`is_available`] says no.
//!
//! Tests: at the end of the file; `tests/tables.rs` and everything that looks up small exact keys.

use crate::Error;
use crate::translate::Translator;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, TrapCode, Value, ValueDef};

/// The kinds of placeholders.
const BROADCAST: [TrapCode; 3] =
    [TrapCode::unwrap_user(0x52), TrapCode::unwrap_user(0x53), TrapCode::unwrap_user(0x57)];
const COMPARE: [TrapCode; 3] = [TrapCode::unwrap_user(0x54), TrapCode::unwrap_user(0x55), TrapCode::unwrap_user(0x58)];
/// As [`COMPARE`], at a distance from the bucket.
const COMPARE_FAR: [TrapCode; 3] =
    [TrapCode::unwrap_user(0x59), TrapCode::unwrap_user(0x5a), TrapCode::unwrap_user(0x5b)];
const MASK: TrapCode = TrapCode::unwrap_user(0x56);

/// What the second one stores.
pub(crate) const STORED: u32 = 0x5a5a_5a5a;
/// How far behind the bucket it does that, so that the instruction has a displacement.
const BEHIND: i32 = 1;
/// The same for the store of the key and for compares at a distance, which need a long one.
pub(crate) const FAR_BEHIND: i32 = 0x5a_5a5a;

/// What is compared at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lanes {
    /// Of eight bytes.
    EightWords,
    /// Of four bytes.
    EightHalves,
    /// Of eight bytes.
    FourWords,
}

impl Lanes {
    const ALL: [Lanes; 3] = [Lanes::EightWords, Lanes::EightHalves, Lanes::FourWords];

    fn are_words(self) -> bool {
        self != Lanes::EightHalves
    }

    /// Bytes of all of them.
    fn vector(self) -> i32 {
        if self == Lanes::EightWords { 64 } else { 32 }
    }

    /// The bits of the last byte of a prefix that say how long the vector is.
    fn length(self) -> u8 {
        if self == Lanes::EightWords { 0x40 } else { 0x20 }
    }
}

/// Whether the processor has what it takes.
pub(crate) fn is_available() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        has!("avx512f") && has!("avx512vl") && has!("avx512dq")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

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

    /// One bit for each lane from `address + offset` on that is equal to `key`. All of the lanes are read, whatever they hold.
    pub fn equal_lanes(&mut self, lanes: Lanes, key: Value, address: Value, offset: u32) -> Value {
        let patched = self.flags.patched;
        let tagged = |tag| MemFlagsData::new().with_trap_code(Some(tag)).with_alias_region(patched);
        let kind = lanes as usize;
        let (compare, behind) = match offset {
            0 => (COMPARE[kind], BEHIND),
            _ => (COMPARE_FAR[kind], FAR_BEHIND),
        };
        let key = if lanes.are_words() { key } else { self.b.ins().ireduce(I32, key) };
        self.b.ins().store(tagged(BROADCAST[kind]), key, address, FAR_BEHIND);
        let stored = self.b.ins().iconst(I32, i64::from(STORED));
        self.b.ins().store(tagged(compare), stored, address, offset as i32 + behind);
        self.b.ins().sload8(I64, tagged(MASK), address, BEHIND)
    }
}

/// Puts the instructions where their placeholders are in `code`; how many there were.
pub(crate) fn patch(code: &mut [u8], traps: &[cranelift_codegen::MachTrap]) -> Result<usize, Error> {
    let mut count = 0;
    for trap in traps {
        let at = trap.offset as usize;
        let rest = code.get(at..).unwrap_or_default();
        let instruction = Instruction::decode(rest);
        let made = if let Some(lanes) = lanes_of(&BROADCAST, trap.code) {
            instruction
                .filter(|i| i.is_store_of_register(lanes.are_words()))
                .map(|i| (broadcast(lanes, i.register), i.length))
        } else if let Some((lanes, behind)) = lanes_of(&COMPARE, trap.code)
            .map(|lanes| (lanes, BEHIND))
            .or_else(|| lanes_of(&COMPARE_FAR, trap.code).map(|lanes| (lanes, FAR_BEHIND)))
        {
            let store = instruction.filter(|i| i.is_store_of_constant(rest));
            store.and_then(|i| Some((compare(lanes, behind, &i)?, i.length + 4)))
        } else if trap.code == MASK {
            let load = instruction.filter(Instruction::is_load_of_byte);
            load.map(|i| (mask(i.register), i.length))
        } else {
            continue;
        };
        replace(code, at, made)?;
        count += 1;
    }
    Ok(count)
}

/// Puts an instruction in the place of a placeholder of so many bytes, if it is one.
pub(crate) fn replace(code: &mut [u8], at: usize, made: Option<(Vec<u8>, usize)>) -> Result<(), Error> {
    let Some((bytes, length)) = made.filter(|(bytes, length)| bytes.len() <= *length) else {
        return Err(Error::Codegen(format!("no placeholder at {at:#x} that an instruction could be made of")));
    };
    let filled = length - bytes.len();
    // DS
    code[at..at + filled].fill(0x3e);
    code[at + filled..at + length].copy_from_slice(&bytes);
    Ok(())
}

/// What is compared by a placeholder, if it is one of these.
fn lanes_of(tags: &[TrapCode; 3], tag: TrapCode) -> Option<Lanes> {
    tags.iter().position(|t| *t == tag).map(|kind| Lanes::ALL[kind])
}

/// An instruction with a register and a place in memory.
pub(crate) struct Instruction<'a> {
    wide: bool,
    opcode: &'a [u8],
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
        })
    }

    /// `mov m64, r64` or `mov m32, r32`.
    pub fn is_store_of_register(&self, wide: bool) -> bool {
        self.opcode == [0x89] && self.wide == wide
    }

    /// `mov m32, STORED`, at the beginning of `code`.
    pub fn is_store_of_constant(&self, code: &[u8]) -> bool {
        self.opcode == [0xc7] && !self.wide && code[self.length..].starts_with(&STORED.to_le_bytes())
    }

    /// `movsx r64, m8`.
    pub fn is_load_of_byte(&self) -> bool {
        self.opcode == [0x0f, 0xbe] && self.wide
    }
}

/// `vpbroadcastq zmm16, r64` or `vpbroadcastd ymm16, r32` (Intel SDM volume 2, VPBROADCAST; EVEX: section 2.7).
fn broadcast(lanes: Lanes, from: u8) -> Vec<u8> {
    let p0 = 0xc2 | u8::from(from < 8) << 5;
    let p1 = if lanes.are_words() { 0xfd } else { 0x7d };
    vec![0x62, p0, p1, lanes.length() | 0x08, 0x7c, 0xc0 | from & 7]
}

/// `vpcmpeqq k1, zmm16, m512` or `vpcmpeqd k1, ymm16, m256`, on what lies `behind` bytes before the address of `store`.
fn compare(lanes: Lanes, behind: i32, store: &Instruction<'_>) -> Option<Vec<u8>> {
    let (map, w, opcode) = if lanes.are_words() { (0x92, 0xfd, 0x29) } else { (0x91, 0x7d, 0x76) };
    let (prefix, operand) = memory_operand(store, behind, lanes.vector(), 1)?;
    let mut bytes = vec![0x62, map | prefix, w, lanes.length(), opcode];
    bytes.extend(operand);
    Some(bytes)
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

/// `kmovb r32, k1`.
fn mask(target: u8) -> Vec<u8> {
    vec![0xc5, if target < 8 { 0xf9 } else { 0x79 }, 0x93, 0xc1 | (target & 7) << 3]
}

#[cfg(test)]
mod tests {
    use super::*;
    use cranelift_codegen::MachTrap;

    #[test]
    fn encodings_are_the_assemblers() {
        // vpbroadcastq zmm16, rdx; vpbroadcastq zmm16, r12; vpbroadcastd ymm16, eax; vpbroadcastd ymm16, r9d;
        // vpbroadcastq ymm16, rcx; vpbroadcastq ymm16, r14
        assert_eq!(broadcast(Lanes::EightWords, 2), [0x62, 0xe2, 0xfd, 0x48, 0x7c, 0xc2]);
        assert_eq!(broadcast(Lanes::EightWords, 12), [0x62, 0xc2, 0xfd, 0x48, 0x7c, 0xc4]);
        assert_eq!(broadcast(Lanes::EightHalves, 0), [0x62, 0xe2, 0x7d, 0x28, 0x7c, 0xc0]);
        assert_eq!(broadcast(Lanes::EightHalves, 9), [0x62, 0xc2, 0x7d, 0x28, 0x7c, 0xc1]);
        assert_eq!(broadcast(Lanes::FourWords, 1), [0x62, 0xe2, 0xfd, 0x28, 0x7c, 0xc1]);
        assert_eq!(broadcast(Lanes::FourWords, 14), [0x62, 0xc2, 0xfd, 0x28, 0x7c, 0xc6]);
        let at = |base, index, displacement| Instruction {
            wide: false,
            opcode: &[],
            register: 0,
            base,
            index,
            displacement: displacement + BEHIND,
            length: 0,
        };
        // vpcmpeqq k1, zmm16, [rsi], [r12], [r13], [rdi + rax], [r13 + r10 * 2 + 64], [rcx + 100]
        let words = |at| compare(Lanes::EightWords, BEHIND, &at).expect("it can be encoded");
        assert_eq!(words(at(6, None, 0)), [0x62, 0xf2, 0xfd, 0x40, 0x29, 0x0e]);
        assert_eq!(words(at(12, None, 0)), [0x62, 0xd2, 0xfd, 0x40, 0x29, 0x0c, 0x24]);
        assert_eq!(words(at(13, None, 0)), [0x62, 0xd2, 0xfd, 0x40, 0x29, 0x4d, 0]);
        assert_eq!(words(at(7, Some((0, 0)), 0)), [0x62, 0xf2, 0xfd, 0x40, 0x29, 0x0c, 0x07]);
        assert_eq!(words(at(13, Some((10, 1)), 64)), [0x62, 0x92, 0xfd, 0x40, 0x29, 0x4c, 0x55, 0x01]);
        assert_eq!(words(at(1, None, 100)), [0x62, 0xf2, 0xfd, 0x40, 0x29, 0x89, 100, 0, 0, 0]);
        // vpcmpeqd k1, ymm16, [rax], [r8]
        let halves = |at| compare(Lanes::EightHalves, BEHIND, &at).expect("it can be encoded");
        assert_eq!(halves(at(0, None, 0)), [0x62, 0xf1, 0x7d, 0x20, 0x76, 0x08]);
        assert_eq!(halves(at(8, None, 0)), [0x62, 0xd1, 0x7d, 0x20, 0x76, 0x08]);
        // vpcmpeqq k1, ymm16, [rbx + 24], [rbx + 32], [r9]
        let few = |at| compare(Lanes::FourWords, BEHIND, &at).expect("it can be encoded");
        assert_eq!(few(at(3, None, 24)), [0x62, 0xf2, 0xfd, 0x20, 0x29, 0x8b, 24, 0, 0, 0]);
        assert_eq!(few(at(3, None, 32)), [0x62, 0xf2, 0xfd, 0x20, 0x29, 0x4b, 0x01]);
        assert_eq!(few(at(9, None, 0)), [0x62, 0xd2, 0xfd, 0x20, 0x29, 0x09]);
        // kmovb eax, k1; kmovb r10d, k1
        assert_eq!(mask(0), [0xc5, 0xf9, 0x93, 0xc1]);
        assert_eq!(mask(10), [0xc5, 0x79, 0x93, 0xd1]);
    }

    /// Patches one placeholder.
    fn patched(tag: TrapCode, code: &[u8]) -> Option<Vec<u8>> {
        let mut code = code.to_vec();
        patch(&mut code, &[MachTrap { offset: 0, code: tag }]).is_ok().then_some(code)
    }

    #[test]
    fn placeholders_are_told_from_anything_else() {
        // mov [rsi + 0x5a5a5a], r12
        let store = [0x4c, 0x89, 0xa6, 0x5a, 0x5a, 0x5a, 0x00];
        assert_eq!(patched(BROADCAST[0], &store), Some(vec![0x3e, 0x62, 0xc2, 0xfd, 0x48, 0x7c, 0xc4]));
        assert_eq!(patched(BROADCAST[1], &store), None);
        // mov [rsi + 1], r12 is too short
        assert_eq!(patched(BROADCAST[0], &[0x4c, 0x89, 0x66, 0x01]), None);
        // mov dword [r13 + r10 * 2 + 65], STORED
        let constant = [0x43, 0xc7, 0x44, 0x55, 65, 0x5a, 0x5a, 0x5a, 0x5a];
        let compared = [0x3e, 0x62, 0x92, 0xfd, 0x40, 0x29, 0x4c, 0x55, 0x01];
        assert_eq!(patched(COMPARE[0], &constant), Some(compared.to_vec()));
        // Another constant, a wider store, cut off, a displacement that would need more room.
        assert_eq!(patched(COMPARE[0], &[0x43, 0xc7, 0x44, 0x55, 65, 0x5a, 0x5a, 0x5a, 0x5b]), None);
        assert_eq!(patched(COMPARE[0], &[0x4b, 0xc7, 0x44, 0x55, 65, 0x5a, 0x5a, 0x5a, 0x5a]), None);
        assert_eq!(patched(COMPARE[0], &constant[..8]), None);
        assert_eq!(patched(COMPARE[0], &[0xc7, 0x46, 0x02, 0x5a, 0x5a, 0x5a, 0x5a]), None);
        // mov dword [rbx + FAR_BEHIND + 24], STORED
        let distant = [0xc7, 0x83, 0x72, 0x5a, 0x5a, 0x00, 0x5a, 0x5a, 0x5a, 0x5a];
        let compared = [0x62, 0xf2, 0xfd, 0x20, 0x29, 0x8b, 24, 0, 0, 0];
        assert_eq!(patched(COMPARE_FAR[2], &distant), Some(compared.to_vec()));
        // movsx r10, byte [r13 + rax + 1]
        let load = [0x4d, 0x0f, 0xbe, 0x54, 0x05, 0x01];
        assert_eq!(patched(MASK, &load), Some(vec![0x3e, 0x3e, 0xc5, 0x79, 0x93, 0xd1]));
        assert_eq!(patched(MASK, &[0x0f, 0xbe, 0x46, 0x01]), None);
        // mov r64, m64 and a register instead of memory
        assert_eq!(patched(MASK, &[0x48, 0x8b, 0x46, 0x01]), None);
        assert_eq!(patched(MASK, &[0x48, 0x0f, 0xbe, 0xc1]), None);
    }
}
