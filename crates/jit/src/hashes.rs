//! Inline hashes of bit strings of constant length: CRCs, `xor16`, the first 64 bits.
//!
//! A CRC is linear: the remainder of a message is the exclusive or of the contributions of its bytes and of the initial
//! value. A byte's contribution depends on its value and on the number of bytes after it, so there is a table of 256
//! remainders for each such number ([`remainders`]; the lookup tables of Kounavis and Berry, "A systematic approach to
//! building high performance software-based CRC generators", for whole messages). No lookup depends on another, and the
//! initial value and the final complement are one constant.
//!
//! If the processor has carry-less multiplication, four bytes are one product instead of four lookups
//! ([`crate::clmul`]).
//!
//! The tables are computed when code first needs them, and kept for the life of the process. All code shares them, so
//! that caches hold them once.
//!
//! All other hashes are calls ([`Translator::hash_value`]): of strings of unknown length, of the payload, CRCs whose
//! parameters the control plane sets, and CRCs over more than [`CRC_BYTES_MAX`] bytes.
//!
//! Tests: `tests/packets.rs` (generated programs), `tests/hashes.rs` (lengths, alignments), both against the oracle's
//! hashes.

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

/// Most bytes of a CRC whose contributions are held in registers at once.
const BYTES_AT_ONCE: usize = 4;

/// Most bytes of a string whose CRC is computed inline: 64 kilobytes of tables.
const CRC_BYTES_MAX: usize = 64;
const _: () = assert!(CRC_BYTES_MAX <= 8 + 4 * clmul::WORDS_MAX);

/// Fewest bytes of a string whose CRC is computed by products: two products and two moves between register files cost
/// as much as four lookups.
const LONG_ENOUGH: usize = 4;

/// The contribution of a byte to a remainder, by the number of bytes after it and by its value.
type Remainders = [[u32; 256]; CRC_BYTES_MAX];

/// The parameters of a reflected CRC (each byte's lowest bit first).
#[derive(Clone, Copy)]
struct Crc {
    /// In reflected form.
    polynomial: u32,
    initial: u32,
    xor_out: u32,
}

/// CRC-32 (IEEE 802.3) and CRC-16/ARC.
const CRC32: Crc = Crc { polynomial: 0xedb8_8320, initial: u32::MAX, xor_out: u32::MAX };
const CRC16: Crc = Crc { polynomial: 0xa001, initial: 0, xor_out: 0 };

/// The remainder after another zero byte.
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

/// The constants for products of a CRC.
fn constants(crc: Crc) -> &'static Constants {
    static CONSTANTS: [OnceLock<Box<Constants>>; 2] = [OnceLock::new(), OnceLock::new()];
    CONSTANTS[usize::from(crc.polynomial == CRC16.polynomial)]
        .get_or_init(|| Box::new(clmul::constants(crc.polynomial)))
}

/// A part of a string.
enum Part {
    /// Bytes that are still in the packet, and their number.
    Packet(At, u32),
    /// Values, up to a byte boundary.
    Pieces(Vec<Piece>),
}

impl Translator<'_, '_> {
    /// The hash of `data` without a call, if there is inline code for it.
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

    /// The exclusive or of the 16-bit words of a string of `bits` bits.
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

    /// The CRC of a string of `bytes` bytes.
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
        // Otherwise each byte would take an instruction for the address.
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

    /// The CRC of a string of `bytes` bytes, without the contribution of the initial value. `None` if a part is a
    /// constant, for which there is no placeholder.
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
            let turned = match self.join_byte_swapped(&pieces[next..], start, end, bits, most) {
                Some(turned) => turned,
                // The first bit is the lowest: the last byte becomes the highest one, and short parts are zero-padded
                // in front.
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

    /// The `bits` bits at offset `first` of a string whose pieces begin at offset `start <= first`, first bit lowest,
    /// in the highest bits of `most`. Only if the pieces are whole values in the frame's byte order; `None` otherwise.
    fn join_byte_swapped(
        &mut self,
        pieces: &[Piece],
        mut start: u32,
        first: u32,
        bits: u32,
        most: u32,
    ) -> Option<Value> {
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

    /// Adds the contribution of a byte that `behind` bytes follow.
    fn add_remainder(&mut self, sum: &mut Option<Value>, tables: Value, behind: usize, byte: Value) {
        let flags = MemFlagsData::trusted().with_readonly().with_can_move();
        let offset = self.b.ins().ishl_imm_u(byte, 2);
        let at = self.b.ins().iadd(tables, offset);
        let remainder = self.b.ins().load(I32, flags, at, (behind * size_of::<[u32; 256]>()) as i32);
        let all = match *sum {
            Some(sum) => self.b.ins().bxor(sum, remainder),
            None => remainder,
        };
        // Otherwise all bytes would be loaded before the first is used, and they are more than the registers.
        *sum = Some(match behind.is_multiple_of(BYTES_AT_ONCE) {
            true => {
                let word = self.b.ins().uextend(I64, all);
                let word = self.compute_here(word);
                self.b.ins().ireduce(I32, word)
            }
            false => all,
        });
    }

    /// A string as parts that begin at byte boundaries: fields that are unchanged in the packet are loaded together.
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

    /// What the compiled code computes.
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
