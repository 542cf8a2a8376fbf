//! Hashes of bit strings of constant length as part of the code: CRCs, `xor16`, the first 64 bits.
//!
//! A CRC is linear: the remainder of a message is the exclusive or of what each of its bits contributes, and of what the
//! initial value does. A byte's contribution depends on the byte and on the number of bytes behind it, so there is a table of
//! 256 remainders for each such number ([`remainders`]; the lookup tables of Kounavis and Berry, "A systematic approach to
//! building high performance software-based CRC generators", for whole messages). No lookup waits for another one, and
//! the initial value and the final complement are one constant.
//!
//! Where the processor multiplies polynomials, four bytes are one product instead of four lookups ([`crate::clmul`]).
//!
//! The tables are made when code first needs them, and stay for the life of the process: all code shares them, so that
//! caches hold them once.
//!
//! Everything else is a call ([`Translator::hash_value`]): strings whose length is not known, the payload, CRCs whose
//! parameters the control plane sets, and CRCs over more than [`CRC_BYTES_MAX`] bytes.
//!
//! Tests: `tests/packets.rs` (generated programs), `tests/hashes.rs` (lengths, alignments), both against the oracle's hashes.

use crate::clmul::{self, Constants};
use crate::optimisation::Optimisation;
use crate::pack::Piece;
use crate::packet::At;
use crate::translate::Translator;
use cranelift_codegen::ir::types::I32;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value};
use ir::{HashAlgorithm, Operand};
use std::sync::OnceLock;

/// So many bytes of a CRC may wait in registers.
const BYTES_AT_ONCE: usize = 4;

/// The longest string whose CRC is computed without a call: 64 kilobytes of tables.
const CRC_BYTES_MAX: usize = 64;
const _: () = assert!(CRC_BYTES_MAX <= 8 + 4 * clmul::WORDS_MAX);

/// The shortest string whose CRC is computed by products: two of them, a move there and one back stand for a lookup each.
const LONG_ENOUGH: usize = 4;

/// What a byte contributes to a remainder, by the number of bytes behind it and its value.
type Remainders = [[u32; 256]; CRC_BYTES_MAX];

/// A CRC whose bytes go in from their lowest bit on.
#[derive(Clone, Copy)]
struct Crc {
    /// Turned round.
    polynomial: u32,
    initial: u32,
    xor_out: u32,
}

/// CRC-32 (IEEE 802.3) and CRC-16/ARC.
const CRC32: Crc = Crc { polynomial: 0xedb8_8320, initial: u32::MAX, xor_out: u32::MAX };
const CRC16: Crc = Crc { polynomial: 0xa001, initial: 0, xor_out: 0 };

/// The remainder after another byte.
fn step(crc: Crc, remainder: u32) -> u32 {
    (0..8).fold(remainder, |r, _| r >> 1 ^ if r & 1 == 1 { crc.polynomial } else { 0 })
}

/// The tables of a CRC.
fn remainders(crc: Crc) -> &'static Remainders {
    static TABLES: [OnceLock<Box<Remainders>>; 2] = [OnceLock::new(), OnceLock::new()];
    TABLES[usize::from(crc.polynomial == CRC16.polynomial)].get_or_init(|| {
        let first: [u32; 256] = std::array::from_fn(|byte| step(crc, byte as u32));
        let mut tables = Box::new([first; CRC_BYTES_MAX]);
        for behind in 1..CRC_BYTES_MAX {
            for byte in 0..256 {
                let before = tables[behind - 1][byte];
                tables[behind][byte] = before >> 8 ^ first[(before & 0xff) as usize];
            }
        }
        tables
    })
}

/// What products need of a CRC.
fn constants(crc: Crc) -> &'static Constants {
    static CONSTANTS: [OnceLock<Box<Constants>>; 2] = [OnceLock::new(), OnceLock::new()];
    CONSTANTS[usize::from(crc.polynomial == CRC16.polynomial)]
        .get_or_init(|| Box::new(clmul::constants(crc.polynomial)))
}

/// A part of a string.
enum Part {
    /// Bytes as they stand in the packet.
    Packet(At, u32),
    /// Values; the next part begins at a whole byte.
    Pieces(Vec<Piece>),
}

impl Translator<'_, '_> {
    /// The hash of `data` without a call, if there is code for it.
    pub fn inline_hash(&mut self, algorithm: HashAlgorithm, data: &[Operand]) -> Option<Value> {
        let bits: u32 = data.iter().map(|o| self.width(o)).sum();
        let bytes = bits.div_ceil(8) as usize;
        match algorithm {
            HashAlgorithm::Csum16 => Some(self.updated_checksum(data).unwrap_or_else(|| self.internet_checksum(data))),
            HashAlgorithm::Crc32 if bytes <= CRC_BYTES_MAX => Some(self.crc(CRC32, data, bytes)),
            HashAlgorithm::Crc16 if bytes <= CRC_BYTES_MAX => Some(self.crc(CRC16, data, bytes)),
            HashAlgorithm::Identity => {
                let pieces = self.packed_pieces(data);
                let bits = 8 * bytes.min(8) as u32;
                let joined = self.join_pieces(&pieces, 0, 0, bits);
                Some(self.mask_word(joined, bits))
            }
            HashAlgorithm::Xor16 => Some(self.xor16(data, bits)),
            _ => None,
        }
    }

    /// The exclusive or of the 16-bit words of a string of so many bits.
    fn xor16(&mut self, data: &[Operand], bits: u32) -> Value {
        let pieces = self.packed_pieces(data);
        let mut all = self.iconst(0);
        let (mut at, mut start) = (0, 0);
        for first in (0..bits).step_by(64) {
            while at < pieces.len() && start + pieces[at].width <= first {
                start += pieces[at].width;
                at += 1;
            }
            let word = self.join_pieces(&pieces[at..], start, first, 64);
            all = self.b.ins().bxor(all, word);
        }
        for shift in [32, 16] {
            let high = self.b.ins().ushr_imm_u(all, shift);
            all = self.b.ins().bxor(all, high);
        }
        self.mask_word(all, 16)
    }

    /// The CRC of a string of so many bytes.
    fn crc(&mut self, crc: Crc, data: &[Operand], bytes: usize) -> Value {
        let initial = (0..bytes).fold(crc.initial, |r, _| step(crc, r));
        if self.options.has(Optimisation::CarrylessCrc)
            && clmul::is_available()
            && bytes >= LONG_ENOUGH
            && let Some(remainder) = self.crc_by_products(crc, data, bytes)
        {
            let constant = self.iconst(u64::from(initial ^ crc.xor_out));
            return self.b.ins().bxor(remainder, constant);
        }
        let tables = remainders(crc);
        let base = self.iconst(tables.as_ptr() as u64);
        // Or each byte would have an instruction for the address.
        let base = self.compute_here(base);
        let mut sum = None;
        let mut behind = bytes;
        for part in self.parts(data) {
            match part {
                Part::Packet(at, count) => {
                    for i in 0..count {
                        behind -= 1;
                        let byte = self.load_be(at.plus(i), 1);
                        self.add_remainder(&mut sum, base, behind, byte);
                    }
                }
                Part::Pieces(pieces) => {
                    let bits: u32 = pieces.iter().map(|p| p.width).sum();
                    let count = bits.div_ceil(8);
                    let (mut next, mut start) = (0, 0);
                    for first in (0..count).step_by(8) {
                        while next < pieces.len() && start + pieces[next].width <= 8 * first {
                            start += pieces[next].width;
                            next += 1;
                        }
                        let here = (count - first).min(8);
                        let word = self.join_pieces(&pieces[next..], start, 8 * first, 8 * here);
                        for i in 0..here {
                            behind -= 1;
                            let byte = match here - 1 - i {
                                0 => word,
                                above => self.b.ins().ushr_imm_u(word, i64::from(8 * above)),
                            };
                            let byte = self.mask_word(byte, 8);
                            self.add_remainder(&mut sum, base, behind, byte);
                        }
                    }
                }
            }
        }
        debug_assert_eq!(behind, 0, "every byte has been seen");
        let constant = self.i32_const(initial ^ crc.xor_out);
        let sum = sum.map_or(constant, |sum| self.b.ins().bxor(sum, constant));
        let sum = self.b.ins().uextend(I64, sum);
        self.compute_here(sum)
    }

    /// The CRC of a string of so many bytes, without what the initial value contributes; none if a part is a constant, for which
    /// there is no placeholder.
    fn crc_by_products(&mut self, crc: Crc, data: &[Operand], bytes: usize) -> Option<Value> {
        let pieces = self.packed_pieces(data);
        let mut end = 8 * bytes as u32;
        let mut parts = Vec::new();
        while end > 0 {
            let most = if parts.is_empty() { 64 } else { 32 };
            let bits = end.min(most);
            end -= bits;
            let (mut next, mut start) = (0, 0);
            while next < pieces.len() && start + pieces[next].width <= end {
                start += pieces[next].width;
                next += 1;
            }
            let turned = match self.join_turned(&pieces[next..], start, end, bits, most) {
                Some(turned) => turned,
                // First bits lowest: the last byte becomes the highest one, and what is too short has zeros in front.
                None => {
                    let joined = self.join_pieces(&pieces[next..], start, end, bits);
                    let word = if bits < most { self.mask_word(joined, bits) } else { joined };
                    self.swap(word, if most == 64 { I64 } else { I32 })
                }
            };
            parts.push(turned);
        }
        if parts.iter().any(|part| self.is_constant(*part)) {
            return None;
        }
        let constants = self.iconst(constants(crc).as_ptr() as u64);
        let constants = self.compute_here(constants);
        Some(self.remainder(constants, parts[0], &parts[1..]))
    }

    /// The `bits` bits at offset `first` of a string whose pieces begin at offset `start <= first`, first bits lowest, in the highest
    /// ones of `most`, if the pieces are whole values whose bytes only need not be exchanged.
    fn join_turned(&mut self, pieces: &[Piece], mut start: u32, first: u32, bits: u32, most: u32) -> Option<Value> {
        let mut all: Option<Value> = None;
        for piece in pieces {
            if start == first + bits {
                break;
            }
            let [word] = piece.words[..] else { return None };
            let (lies, ty) = self.swapped(word)?;
            if start < first
                || !start.is_multiple_of(8)
                || ty.bits() != piece.width
                || start + piece.width > first + bits
            {
                return None;
            }
            let up = start - first + most - bits;
            let lies = if up > 0 { self.b.ins().ishl_imm_u(lies, i64::from(up)) } else { lies };
            all = Some(match all {
                Some(before) => self.b.ins().bor(before, lies),
                None => lies,
            });
            start += piece.width;
        }
        all.filter(|_| start == first + bits)
    }

    /// Adds what a byte with so many behind it contributes.
    fn add_remainder(&mut self, sum: &mut Option<Value>, tables: Value, behind: usize, byte: Value) {
        let flags = MemFlagsData::trusted().with_readonly().with_can_move();
        let offset = self.b.ins().ishl_imm_u(byte, 2);
        let at = self.b.ins().iadd(tables, offset);
        let remainder = self.b.ins().load(I32, flags, at, (behind * size_of::<[u32; 256]>()) as i32);
        let all = match *sum {
            Some(sum) => self.b.ins().bxor(sum, remainder),
            None => remainder,
        };
        // Or all bytes would be loaded before the first is used, and there are more of them than registers.
        *sum = Some(match behind.is_multiple_of(BYTES_AT_ONCE) {
            true => {
                let word = self.b.ins().uextend(I64, all);
                let word = self.compute_here(word);
                self.b.ins().ireduce(I32, word)
            }
            false => all,
        });
    }

    /// A string as parts that begin at whole bytes: fields that stand unchanged in the packet are not put together first.
    fn parts(&mut self, data: &[Operand]) -> Vec<Part> {
        let mut parts = Vec::new();
        let (mut rest, mut bit) = (data, 0);
        while !rest.is_empty() {
            if bit % 8 == 0
                && let Some((header, first_byte, bytes, count)) = self.run_in_packet(rest)
            {
                let at = At { base: self.header_pointer(header), offset: first_byte };
                parts.push(Part::Packet(at, bytes));
                rest = &rest[count..];
                continue;
            }
            let piece = self.pieces(&rest[..1]).remove(0);
            let width = piece.width;
            if bit % 8 == 0
                && let [word] = piece.words[..]
                && let Some(at) = self.frame_bytes(word).and_then(|frame| frame.whole(width))
            {
                parts.push(Part::Packet(at, width / 8));
                (rest, bit) = (&rest[1..], bit + width);
                continue;
            }
            match parts.last_mut() {
                Some(Part::Pieces(pieces)) => pieces.push(piece),
                _ => parts.push(Part::Pieces(vec![piece])),
            }
            (rest, bit) = (&rest[1..], bit + width);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::{CRC_BYTES_MAX, CRC16, CRC32, Crc, remainders, step};

    /// What compiled code computes.
    fn of(crc: Crc, bytes: &[u8]) -> u32 {
        let initial = bytes.iter().fold(crc.initial, |r, _| step(crc, r));
        let tables = remainders(crc);
        let behind = bytes.iter().rev().enumerate();
        behind.fold(initial ^ crc.xor_out, |sum, (behind, byte)| sum ^ tables[behind][usize::from(*byte)])
    }

    #[test]
    fn contributions_of_bytes_add_up_to_the_crc() {
        // The check values of the CRC catalogue.
        assert_eq!(of(CRC32, b"123456789"), 0xcbf4_3926);
        assert_eq!(of(CRC16, b"123456789"), 0xbb3d);
        assert_eq!(of(CRC32, b""), 0);
        assert_eq!(of(CRC32, &[0; CRC_BYTES_MAX]), 0x758d_6336);
    }
}
