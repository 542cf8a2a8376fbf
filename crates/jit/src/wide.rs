//! Comparison of a key with all keys of a bucket at once, with vector registers that Cranelift lacks.
//!
//! AVX-512 compares sixty-four bytes in one instruction, whose result is a mask with one bit per lane:
//!
//! ```text
//! vpbroadcastq zmm16, key          vpbroadcastd ymm16, key
//! vpcmpeqq k1, zmm16, [bucket]     vpcmpeqd k1, ymm16, [bucket]
//! kmovb mask, k1
//! ```
//!
//! Keys of more than eight bytes take two comparisons, one of the first words and one of the rest. Only the bucket is
//! read: buckets of such keys have at most four slots.
//!
//! Placeholders stand for these instructions ([`crate::placeholder`]): a store of the key, which must not be a
//! constant, a store of a constant and a load, all with the bucket's address. On processors without AVX-512 (F, VL and
//! DQ) [`is_available`] returns false.
//!
//! Tests: at the end of the file; all tests that look up small exact keys.

use crate::placeholder::{Encoded, Instruction, LONG_DISPLACEMENT, memory_operand};
use crate::translate::Translator;
use cranelift_codegen::ir::types::I32;
use cranelift_codegen::ir::{InstBuilder, TrapCode, Value};

/// The tags of placeholders, by [`Lanes`].
const BROADCAST: [TrapCode; 3] =
    [TrapCode::unwrap_user(0x52), TrapCode::unwrap_user(0x53), TrapCode::unwrap_user(0x57)];
const COMPARE: [TrapCode; 3] = [TrapCode::unwrap_user(0x54), TrapCode::unwrap_user(0x55), TrapCode::unwrap_user(0x58)];
/// As [`COMPARE`], for lanes at an offset in the bucket.
const COMPARE_AT_OFFSET: [TrapCode; 3] =
    [TrapCode::unwrap_user(0x59), TrapCode::unwrap_user(0x5a), TrapCode::unwrap_user(0x5b)];
const MASK: TrapCode = TrapCode::unwrap_user(0x56);

/// The displacement of a comparison's placeholder, so that it has one of one byte; those at an offset need one of four
/// bytes.
const SHORT_DISPLACEMENT: i32 = 1;
/// The lanes that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lanes {
    /// Eight lanes of eight bytes.
    EightWords,
    /// Eight lanes of four bytes.
    EightHalves,
    /// Four lanes of eight bytes.
    FourWords,
}

impl Lanes {
    const ALL: [Lanes; 3] = [Lanes::EightWords, Lanes::EightHalves, Lanes::FourWords];

    fn are_words(self) -> bool {
        self != Lanes::EightHalves
    }

    /// Bytes of all lanes.
    fn vector(self) -> i32 {
        if self == Lanes::EightWords { 64 } else { 32 }
    }

    /// The vector length field of the EVEX prefix's last byte.
    fn length(self) -> u8 {
        if self == Lanes::EightWords { 0x40 } else { 0x20 }
    }
}

/// Whether the processor has the instructions.
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
    /// A bit for each lane that equals `key`, the lanes beginning at `address + offset`. All lanes are read, whatever
    /// they hold.
    pub fn equal_lanes(&mut self, lanes: Lanes, key: Value, address: Value, offset: u32) -> Value {
        let kind = lanes as usize;
        let (compare, behind) = match offset {
            0 => (COMPARE[kind], SHORT_DISPLACEMENT),
            _ => (COMPARE_AT_OFFSET[kind], LONG_DISPLACEMENT),
        };
        let key = if lanes.are_words() { key } else { self.b.ins().ireduce(I32, key) };
        self.place_store(BROADCAST[kind], key, address);
        self.place_constant(compare, address, offset as i32 + behind);
        self.place_load(MASK, address, SHORT_DISPLACEMENT)
    }
}

/// The instruction and the placeholder's length. The outer option is `None` if the tag is another one's, the inner one
/// if the code is unexpected.
pub(crate) fn made(tag: TrapCode, instruction: Option<Instruction<'_>>) -> Option<Option<Encoded>> {
    if let Some(lanes) = lanes_of(&BROADCAST, tag) {
        let store = instruction.filter(|i| i.is_store_of_register(lanes.are_words()));
        return Some(store.map(|i| (broadcast(lanes, i.register), i.length)));
    }
    let near = lanes_of(&COMPARE, tag).map(|lanes| (lanes, SHORT_DISPLACEMENT));
    if let Some((lanes, behind)) =
        near.or_else(|| lanes_of(&COMPARE_AT_OFFSET, tag).map(|lanes| (lanes, LONG_DISPLACEMENT)))
    {
        let store = instruction.filter(Instruction::is_store_of_constant);
        return Some(store.and_then(|i| Some((compare(lanes, behind, &i)?, i.length + 4))));
    }
    (tag == MASK).then(|| instruction.filter(Instruction::is_load_of_byte).map(|i| (mask(i.register), i.length)))
}

/// The lanes of a placeholder, if its tag is among `tags`.
fn lanes_of(tags: &[TrapCode; 3], tag: TrapCode) -> Option<Lanes> {
    tags.iter().position(|t| *t == tag).map(|kind| Lanes::ALL[kind])
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

/// `kmovb r32, k1`.
fn mask(target: u8) -> Vec<u8> {
    vec![0xc5, if target < 8 { 0xf9 } else { 0x79 }, 0x93, 0xc1 | (target & 7) << 3]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placeholder::tests::patched;

    #[test]
    fn encodings_match_the_assembler() {
        // vpbroadcastq zmm16, rdx; vpbroadcastq zmm16, r12; vpbroadcastd ymm16, eax; vpbroadcastd ymm16, r9d;
        // vpbroadcastq ymm16, rcx; vpbroadcastq ymm16, r14
        assert_eq!(broadcast(Lanes::EightWords, 2), [0x62, 0xe2, 0xfd, 0x48, 0x7c, 0xc2]);
        assert_eq!(broadcast(Lanes::EightWords, 12), [0x62, 0xc2, 0xfd, 0x48, 0x7c, 0xc4]);
        assert_eq!(broadcast(Lanes::EightHalves, 0), [0x62, 0xe2, 0x7d, 0x28, 0x7c, 0xc0]);
        assert_eq!(broadcast(Lanes::EightHalves, 9), [0x62, 0xc2, 0x7d, 0x28, 0x7c, 0xc1]);
        assert_eq!(broadcast(Lanes::FourWords, 1), [0x62, 0xe2, 0xfd, 0x28, 0x7c, 0xc1]);
        assert_eq!(broadcast(Lanes::FourWords, 14), [0x62, 0xc2, 0xfd, 0x28, 0x7c, 0xc6]);
        let at = |base, index, displacement: i32| Instruction::at(base, index, displacement + SHORT_DISPLACEMENT);
        // vpcmpeqq k1, zmm16, [rsi], [r12], [r13], [rdi + rax], [r13 + r10 * 2 + 64], [rcx + 100]
        let words = |at| compare(Lanes::EightWords, SHORT_DISPLACEMENT, &at).expect("it can be encoded");
        assert_eq!(words(at(6, None, 0)), [0x62, 0xf2, 0xfd, 0x40, 0x29, 0x0e]);
        assert_eq!(words(at(12, None, 0)), [0x62, 0xd2, 0xfd, 0x40, 0x29, 0x0c, 0x24]);
        assert_eq!(words(at(13, None, 0)), [0x62, 0xd2, 0xfd, 0x40, 0x29, 0x4d, 0]);
        assert_eq!(words(at(7, Some((0, 0)), 0)), [0x62, 0xf2, 0xfd, 0x40, 0x29, 0x0c, 0x07]);
        assert_eq!(words(at(13, Some((10, 1)), 64)), [0x62, 0x92, 0xfd, 0x40, 0x29, 0x4c, 0x55, 0x01]);
        assert_eq!(words(at(1, None, 100)), [0x62, 0xf2, 0xfd, 0x40, 0x29, 0x89, 100, 0, 0, 0]);
        // vpcmpeqd k1, ymm16, [rax], [r8]
        let halves = |at| compare(Lanes::EightHalves, SHORT_DISPLACEMENT, &at).expect("it can be encoded");
        assert_eq!(halves(at(0, None, 0)), [0x62, 0xf1, 0x7d, 0x20, 0x76, 0x08]);
        assert_eq!(halves(at(8, None, 0)), [0x62, 0xd1, 0x7d, 0x20, 0x76, 0x08]);
        // vpcmpeqq k1, ymm16, [rbx + 24], [rbx + 32], [r9]
        let few = |at| compare(Lanes::FourWords, SHORT_DISPLACEMENT, &at).expect("it can be encoded");
        assert_eq!(few(at(3, None, 24)), [0x62, 0xf2, 0xfd, 0x20, 0x29, 0x8b, 24, 0, 0, 0]);
        assert_eq!(few(at(3, None, 32)), [0x62, 0xf2, 0xfd, 0x20, 0x29, 0x4b, 0x01]);
        assert_eq!(few(at(9, None, 0)), [0x62, 0xd2, 0xfd, 0x20, 0x29, 0x09]);
        // kmovb eax, k1; kmovb r10d, k1
        assert_eq!(mask(0), [0xc5, 0xf9, 0x93, 0xc1]);
        assert_eq!(mask(10), [0xc5, 0x79, 0x93, 0xd1]);
    }

    #[test]
    fn placeholders_are_distinguished_from_other_code() {
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
        assert_eq!(patched(COMPARE_AT_OFFSET[2], &distant), Some(compared.to_vec()));
        // movsx r10, byte [r13 + rax + 1]
        let load = [0x4d, 0x0f, 0xbe, 0x54, 0x05, 0x01];
        assert_eq!(patched(MASK, &load), Some(vec![0x3e, 0x3e, 0xc5, 0x79, 0x93, 0xd1]));
        assert_eq!(patched(MASK, &[0x0f, 0xbe, 0x46, 0x01]), None);
        // mov r64, m64 and a register instead of memory
        assert_eq!(patched(MASK, &[0x48, 0x8b, 0x46, 0x01]), None);
        assert_eq!(patched(MASK, &[0x48, 0x0f, 0xbe, 0xc1]), None);
    }
}
