//! CRCs by carry-less multiplication, an instruction that Cranelift lacks.
//!
//! A CRC is a remainder: the message's bits are the coefficients of a polynomial over GF(2), and with `P` of degree 32
//! the CRC is `M t^32 mod P`, except for what the initial value adds. `pclmulqdq` multiplies two such polynomials of 64
//! coefficients. The method is that of Gopal, Ozturk and others, "Fast CRC computation for generic polynomials using
//! PCLMULQDQ instruction", Intel 2009, for short messages, without its loops:
//!
//! - The last 64 bits are `X`. Each 32 bits `A` before them, `d` bits ahead of the end, are congruent to `A (t^d mod
//!   P)`, which has less than 64 coefficients and is added to `X`: one product for four bytes, all independent of each
//!   other.
//! - Then `q = floor(X t^32 / P)` is the upper half of `X floor(t^96 / P)`, and the remainder is the lower 32
//!   coefficients of `q P` (Barrett reduction): two products.
//!
//! As in these reflected CRCs, the first bit of a message, the highest coefficient, is the lowest bit of a word. The
//! product of two reflected words is one bit too low, so each constant is shifted up by one. The highest coefficient of
//! the quotient is one; it stands for `X` itself and is the constant's lowest bit ([`constants`]). A polynomial of
//! degree 16 is treated as one of degree 32 whose lower half is zero.
//!
//! ```text
//! vmovq xmm16, word                       vmovq xmm16, x
//! vpclmulqdq xmm16, xmm16, [power], 0     vpclmulqdq xmm16, xmm16, [quotient], 0
//! vmovq product, xmm16                    vpclmulqdq xmm16, xmm16, [polynomial], 0
//!                                         vpextrq remainder, xmm16, 1
//! ```
//!
//! Placeholders stand for these instructions ([`crate::placeholder`]): a store of the word, stores of a constant
//! through the constants' address, and a load.
//!
//! Tests: at the end of the file; `tests/hashes.rs`, against the oracle's hashes.

use crate::placeholder::{Encoded, Instruction, LONG_DISPLACEMENT, memory_operand};
use crate::translate::Translator;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, TrapCode, Value};

const TO: TrapCode = TrapCode::unwrap_user(0x5c);
const MULTIPLY: TrapCode = TrapCode::unwrap_user(0x5d);
const LOW: TrapCode = TrapCode::unwrap_user(0x5e);
const HIGH: TrapCode = TrapCode::unwrap_user(0x5f);

/// Most words of 32 bits before the last 64 bits of a message.
pub(crate) const WORDS_MAX: usize = 14;
/// Bytes of a constant, of which the upper half is not read.
const CONSTANT_BYTES: u32 = 16;

/// Constants of a polynomial in memory: the quotient, the polynomial, and the powers for words, by the number of words
/// that follow.
pub(crate) type Constants = [[u64; 2]; 2 + WORDS_MAX];

/// Whether a load is the placeholder that reads a remainder, which has no bits above the polynomial's degree.
pub(crate) fn is_remainder(flags: MemFlagsData) -> bool {
    flags.trap_code() == Some(HIGH)
}

/// Whether the processor has the instructions.
pub(crate) fn is_available() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        has!("vpclmulqdq") && has!("avx512vl") && has!("avx512dq") && has!("avx512f")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// The constants of a polynomial in reflected form, without its highest coefficient.
pub(crate) fn constants(polynomial: u32) -> Constants {
    let times_t = |p: u32| p >> 1 ^ if p & 1 == 1 { polynomial } else { 0 };
    let mut all = [[0; 2]; 2 + WORDS_MAX];
    // floor(t^96 / P) by long division; its highest coefficient stands for X itself.
    let (mut rest, mut quotient) = (polynomial, 0);
    for bit in 0..64 {
        quotient |= u64::from(rest & 1) << bit;
        rest = times_t(rest);
    }
    all[0][0] = quotient << 1 | 1;
    all[1][0] = u64::from(polynomial) << 1;
    let one = 1 << 31;
    let mut power = (0..64).fold(one, |p, _| times_t(p));
    for constant in &mut all[2..] {
        constant[0] = u64::from(power) << 1;
        power = (0..32).fold(power, |p, _| times_t(p));
    }
    all
}

impl Translator<'_, '_> {
    /// The remainder of a message: its last 64 bits, and the words of 32 bits before them, from the last to the first,
    /// zero-padded in front. The first bit is the lowest. None of them may be a constant. `constants` is the address of
    /// [`constants`].
    pub fn remainder(&mut self, constants: Value, last: Value, words: &[Value]) -> Value {
        let mut x = last;
        for (behind, word) in words.iter().enumerate() {
            self.place_store(TO, *word, constants);
            self.multiply(constants, 2 + behind as u32);
            let product = self.place_load(LOW, constants, LONG_DISPLACEMENT);
            x = self.b.ins().bxor(x, product);
        }
        self.place_store(TO, x, constants);
        self.multiply(constants, 0);
        self.multiply(constants, 1);
        self.place_load(HIGH, constants, LONG_DISPLACEMENT)
    }

    /// Multiplies the vector register by a constant.
    fn multiply(&mut self, constants: Value, number: u32) {
        self.place_constant(MULTIPLY, constants, (CONSTANT_BYTES * number) as i32 + LONG_DISPLACEMENT);
    }
}

/// The instruction and the placeholder's length. The outer option is `None` if the tag is another one's, the inner one
/// if the code is unexpected.
pub(crate) fn made(tag: TrapCode, instruction: Option<Instruction<'_>>) -> Option<Option<Encoded>> {
    let load = |encode: fn(u8) -> Vec<u8>| {
        let load = instruction.as_ref().filter(|i| i.is_load_of_byte());
        load.map(|i| (encode(i.register), i.length))
    };
    match tag {
        MULTIPLY => {
            let store = instruction.filter(Instruction::is_store_of_constant);
            Some(store.and_then(|i| Some((multiplication(&i)?, i.length + 4))))
        }
        TO => {
            let store = instruction.filter(|i| i.is_store_of_register(true));
            Some(store.map(|i| (move_to(i.register), i.length)))
        }
        LOW => Some(load(move_low)),
        HIGH => Some(load(move_high)),
        _ => None,
    }
}

/// The bit of the prefix's first byte that is set for a register or base whose number needs only three bits.
fn low_register(register: u8) -> u8 {
    u8::from(register < 8) << 5
}

/// `vmovq xmm16, r64` (Intel SDM volume 2, MOVQ; EVEX: section 2.7).
fn move_to(from: u8) -> Vec<u8> {
    vec![0x62, 0xc1 | low_register(from), 0xfd, 0x08, 0x6e, 0xc0 | from & 7]
}

/// `vmovq r64, xmm16`.
fn move_low(to: u8) -> Vec<u8> {
    vec![0x62, 0xc1 | low_register(to), 0xfd, 0x08, 0x7e, 0xc0 | to & 7]
}

/// `vpextrq r64, xmm16, 1`.
fn move_high(to: u8) -> Vec<u8> {
    vec![0x62, 0xc3 | low_register(to), 0xfd, 0x08, 0x16, 0xc0 | to & 7, 1]
}

/// `vpclmulqdq xmm16, xmm16, m128, 0`, on the constant before the address of `store`.
fn multiplication(store: &Instruction<'_>) -> Option<Vec<u8>> {
    let (prefix, operand) = memory_operand(store, LONG_DISPLACEMENT, CONSTANT_BYTES as i32, 0)?;
    let mut bytes = vec![0x62, 0x83 | prefix, 0x7d, 0, 0x44];
    bytes.extend(operand);
    bytes.push(0);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placeholder::tests::patched;

    fn product(a: u64, b: u64) -> u128 {
        (0..64).filter(|bit| a >> bit & 1 == 1).fold(0, |sum, bit| sum ^ u128::from(b) << bit)
    }

    /// What the compiled code computes.
    fn remainder(constants: &Constants, message: &[u8]) -> u32 {
        let word = |bytes: &[u8], size: usize| {
            let mut word = [0; 8];
            word[size - bytes.len()..size].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        let (front, last) = message.split_at(message.len().saturating_sub(8));
        let words = front.rchunks(4).zip(&constants[2..]);
        let x = words.fold(word(last, 8), |x, (bytes, power)| x ^ product(word(bytes, 4), power[0]) as u64);
        let quotient = product(x, constants[0][0]) as u64;
        (product(quotient, constants[1][0]) >> 64) as u32
    }

    #[test]
    fn products_give_the_remainder() {
        for polynomial in [0xedb8_8320, 0xa001, 0x82f6_3b78] {
            let constants = constants(polynomial);
            let step = |rest: u32, byte: &u8| {
                (0..8).fold(rest ^ u32::from(*byte), |r, _| r >> 1 ^ if r & 1 == 1 { polynomial } else { 0 })
            };
            let bytes: Vec<u8> = (0..64).map(|i: u32| (i.wrapping_mul(0x9e37_79b1) >> 13) as u8).collect();
            for length in 0..=64 {
                let message = &bytes[..length];
                assert_eq!(remainder(&constants, message), message.iter().fold(0, step), "{length} bytes");
            }
        }
    }

    #[test]
    fn encodings_match_the_assembler() {
        // vmovq xmm16, rdx; vmovq xmm16, r12
        assert_eq!(move_to(2), [0x62, 0xe1, 0xfd, 0x08, 0x6e, 0xc2]);
        assert_eq!(move_to(12), [0x62, 0xc1, 0xfd, 0x08, 0x6e, 0xc4]);
        // vmovq rax, xmm16; vmovq r9, xmm16
        assert_eq!(move_low(0), [0x62, 0xe1, 0xfd, 0x08, 0x7e, 0xc0]);
        assert_eq!(move_low(9), [0x62, 0xc1, 0xfd, 0x08, 0x7e, 0xc1]);
        // vpextrq rcx, xmm16, 1; vpextrq r14, xmm16, 1
        assert_eq!(move_high(1), [0x62, 0xe3, 0xfd, 0x08, 0x16, 0xc1, 1]);
        assert_eq!(move_high(14), [0x62, 0xc3, 0xfd, 0x08, 0x16, 0xc6, 1]);
    }

    #[test]
    fn placeholders_are_distinguished_from_other_code() {
        // mov dword [rsi + FAR_BEHIND], STORED; vpclmulqdq xmm16, xmm16, [rsi], 0
        let constant = [0xc7, 0x86, 0x5a, 0x5a, 0x5a, 0x00, 0x5a, 0x5a, 0x5a, 0x5a];
        let multiplied = [0x3e, 0x3e, 0x3e, 0x62, 0xe3, 0x7d, 0x00, 0x44, 0x06, 0];
        assert_eq!(patched(MULTIPLY, &constant), Some(multiplied.to_vec()));
        // The same with [r12 + 32]
        let constant = [0x41, 0xc7, 0x84, 0x24, 0x7a, 0x5a, 0x5a, 0x00, 0x5a, 0x5a, 0x5a, 0x5a];
        let multiplied = [0x3e, 0x3e, 0x3e, 0x62, 0xc3, 0x7d, 0x00, 0x44, 0x44, 0x24, 2, 0];
        assert_eq!(patched(MULTIPLY, &constant), Some(multiplied.to_vec()));
        // Between two constants; a short displacement.
        let between = [0xc7, 0x86, 0x62, 0x5a, 0x5a, 0x00, 0x5a, 0x5a, 0x5a, 0x5a];
        assert_eq!(patched(MULTIPLY, &between), None);
        assert_eq!(patched(MULTIPLY, &[0xc7, 0x46, 0x02, 0x5a, 0x5a, 0x5a, 0x5a]), None);
        // A store of four bytes, a store of a constant.
        assert_eq!(patched(TO, &[0x89, 0xa6, 0x5a, 0x5a, 0x5a, 0x00]), None);
        assert_eq!(patched(TO, &constant), None);
        // movsx r10, byte [r13 + FAR_BEHIND]
        let load = [0x4d, 0x0f, 0xbe, 0x95, 0x5a, 0x5a, 0x5a, 0x00];
        assert_eq!(patched(LOW, &load), Some(vec![0x3e, 0x3e, 0x62, 0xc1, 0xfd, 0x08, 0x7e, 0xc2]));
        assert_eq!(patched(HIGH, &load), Some(vec![0x3e, 0x62, 0xc3, 0xfd, 0x08, 0x16, 0xc2, 1]));
        assert_eq!(patched(HIGH, &[0x0f, 0xbe, 0x46, 0x01]), None);
    }
}
