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
const BROADCAST: [TrapCode; 2] = [TrapCode::unwrap_user(0x52), TrapCode::unwrap_user(0x53)];
const COMPARE: [TrapCode; 2] = [TrapCode::unwrap_user(0x54), TrapCode::unwrap_user(0x55)];
const MASK: TrapCode = TrapCode::unwrap_user(0x56);

/// What the second one stores.
const STORED: u32 = 0x5a5a_5a5a;
/// How far behind the bucket it does that, so that the instruction has a displacement.
const BEHIND: i32 = 1;
/// The same for the store of the key, which needs a long one.
const FAR_BEHIND: i32 = 0x5a_5a5a;

/// Bytes of all lanes that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lanes {
    /// Eight of eight bytes.
    Words,
    /// Eight of four bytes.
    Halves,
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

    /// One bit for each of eight lanes from `address` on that are equal to `key`. All of the lanes are read, whatever they
    /// hold.
    pub fn equal_lanes(&mut self, lanes: Lanes, key: Value, address: Value) -> Value {
        let patched = self.flags.patched;
        let tagged = |tag| MemFlagsData::new().with_trap_code(Some(tag)).with_alias_region(patched);
        let kind = lanes as usize;
        let (broadcast, compare, mask) = (tagged(BROADCAST[kind]), tagged(COMPARE[kind]), tagged(MASK));
        let key = if lanes == Lanes::Words { key } else { self.b.ins().ireduce(I32, key) };
        self.b.ins().store(broadcast, key, address, FAR_BEHIND);
        let stored = self.b.ins().iconst(I32, i64::from(STORED));
        self.b.ins().store(compare, stored, address, BEHIND);
        self.b.ins().sload8(I64, mask, address, BEHIND)
    }
}

/// Puts the instructions where their placeholders are in `code`; how many there were.
pub(crate) fn patch(code: &mut [u8], traps: &[cranelift_codegen::MachTrap]) -> Result<usize, Error> {
    let mut count = 0;
    for trap in traps {
        let at = trap.offset as usize;
        let rest = code.get(at..).unwrap_or_default();
        let instruction = Instruction::decode(rest);
        let made = if let Some(kind) = BROADCAST.iter().position(|t| *t == trap.code) {
            instruction
                .filter(|i| i.is_store_of_register(kind == 0))
                .map(|i| (broadcast(kind == 0, i.register), i.length))
        } else if let Some(kind) = COMPARE.iter().position(|t| *t == trap.code) {
            let stored =
                |i: &Instruction| i.opcode == [0xc7] && !i.wide && rest[i.length..].starts_with(&STORED.to_le_bytes());
            let store = instruction.filter(stored);
            store.and_then(|i| Some((compare(kind == 0, &i)?, i.length + 4)))
        } else if trap.code == MASK {
            let load = instruction.filter(|i| i.opcode == [0x0f, 0xbe] && i.wide);
            load.map(|i| (mask(i.register), i.length))
        } else {
            continue;
        };
        let Some((bytes, length)) = made.filter(|(bytes, length)| bytes.len() <= *length) else {
            return Err(Error::Codegen(format!("no placeholder at {at:#x} that a comparison could be made of")));
        };
        let filled = length - bytes.len();
        // DS
        code[at..at + filled].fill(0x3e);
        code[at + filled..at + length].copy_from_slice(&bytes);
        count += 1;
    }
    Ok(count)
}

/// An instruction with a register and a place in memory.
struct Instruction<'a> {
    wide: bool,
    opcode: &'a [u8],
    register: u8,
    base: u8,
    /// With the exponent of its factor.
    index: Option<(u8, u8)>,
    displacement: i32,
    /// Bytes without an immediate operand.
    length: usize,
}

impl Instruction<'_> {
    /// The instruction at the beginning of `code`: of those with one opcode byte, or two from the table behind 0F.
    fn decode(code: &[u8]) -> Option<Instruction<'_>> {
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
    fn is_store_of_register(&self, wide: bool) -> bool {
        self.opcode == [0x89] && self.wide == wide
    }
}

/// `vpbroadcastq zmm16, r64` or `vpbroadcastd ymm16, r32` (Intel SDM volume 2, VPBROADCAST; EVEX: section 2.7).
fn broadcast(is_words: bool, from: u8) -> Vec<u8> {
    let p0 = 0xc2 | u8::from(from < 8) << 5;
    let (p1, p2) = if is_words { (0xfd, 0x48) } else { (0x7d, 0x28) };
    vec![0x62, p0, p1, p2, 0x7c, 0xc0 | from & 7]
}

/// `vpcmpeqq k1, zmm16, m512` or `vpcmpeqd k1, ymm16, m256`, on what lies before the address of `store`.
fn compare(is_words: bool, store: &Instruction<'_>) -> Option<Vec<u8>> {
    let b = u8::from(store.base < 8) << 5;
    let x = u8::from(store.index.is_none_or(|(index, _)| index < 8)) << 6;
    let (mut bytes, vector) = match is_words {
        true => (vec![0x62, 0x92 | x | b, 0xfd, 0x40, 0x29], 64),
        false => (vec![0x62, 0x91 | x | b, 0x7d, 0x20, 0x76], 32),
    };
    let displacement = store.displacement.checked_sub(BEHIND)?;
    // A short displacement counts vectors.
    let vectors = i8::try_from(displacement / vector).ok().filter(|_| displacement % vector == 0);
    let mode = match vectors {
        Some(0) if store.base & 7 != 5 => 0,
        Some(_) => 1,
        None => 2,
    };
    let has_sib = store.index.is_some() || store.base & 7 == 4;
    bytes.push(mode << 6 | 0x08 | if has_sib { 4 } else { store.base & 7 });
    if has_sib {
        let (index, scale) = store.index.unwrap_or((4, 0));
        bytes.push(scale << 6 | (index & 7) << 3 | store.base & 7);
    }
    match (mode, vectors) {
        (0, _) => {}
        (_, Some(vectors)) => bytes.push(vectors as u8),
        _ => bytes.extend(displacement.to_le_bytes()),
    }
    Some(bytes)
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
        // vpbroadcastq zmm16, rdx; vpbroadcastq zmm16, r12; vpbroadcastd ymm16, eax; vpbroadcastd ymm16, r9d
        assert_eq!(broadcast(true, 2), [0x62, 0xe2, 0xfd, 0x48, 0x7c, 0xc2]);
        assert_eq!(broadcast(true, 12), [0x62, 0xc2, 0xfd, 0x48, 0x7c, 0xc4]);
        assert_eq!(broadcast(false, 0), [0x62, 0xe2, 0x7d, 0x28, 0x7c, 0xc0]);
        assert_eq!(broadcast(false, 9), [0x62, 0xc2, 0x7d, 0x28, 0x7c, 0xc1]);
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
        let words = |at| compare(true, &at).expect("it can be encoded");
        assert_eq!(words(at(6, None, 0)), [0x62, 0xf2, 0xfd, 0x40, 0x29, 0x0e]);
        assert_eq!(words(at(12, None, 0)), [0x62, 0xd2, 0xfd, 0x40, 0x29, 0x0c, 0x24]);
        assert_eq!(words(at(13, None, 0)), [0x62, 0xd2, 0xfd, 0x40, 0x29, 0x4d, 0]);
        assert_eq!(words(at(7, Some((0, 0)), 0)), [0x62, 0xf2, 0xfd, 0x40, 0x29, 0x0c, 0x07]);
        assert_eq!(words(at(13, Some((10, 1)), 64)), [0x62, 0x92, 0xfd, 0x40, 0x29, 0x4c, 0x55, 0x01]);
        assert_eq!(words(at(1, None, 100)), [0x62, 0xf2, 0xfd, 0x40, 0x29, 0x89, 100, 0, 0, 0]);
        // vpcmpeqd k1, ymm16, [rax], [r8]
        let halves = |at| compare(false, &at).expect("it can be encoded");
        assert_eq!(halves(at(0, None, 0)), [0x62, 0xf1, 0x7d, 0x20, 0x76, 0x08]);
        assert_eq!(halves(at(8, None, 0)), [0x62, 0xd1, 0x7d, 0x20, 0x76, 0x08]);
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
        // movsx r10, byte [r13 + rax + 1]
        let load = [0x4d, 0x0f, 0xbe, 0x54, 0x05, 0x01];
        assert_eq!(patched(MASK, &load), Some(vec![0x3e, 0x3e, 0xc5, 0x79, 0x93, 0xd1]));
        assert_eq!(patched(MASK, &[0x0f, 0xbe, 0x46, 0x01]), None);
        // mov r64, m64 and a register instead of memory
        assert_eq!(patched(MASK, &[0x48, 0x8b, 0x46, 0x01]), None);
        assert_eq!(patched(MASK, &[0x48, 0x0f, 0xbe, 0xc1]), None);
    }
}
