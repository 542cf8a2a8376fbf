//! The Internet checksum (RFC 1071) of a bit string of constant layout, from registers and straight from the packet.
//!
//! The one's complement sum is linear and does not depend on which 16-bit word a contribution is part of: a field whose
//! last bit is `s` bits before the end of its 16-bit word adds `field << s`. So no bytes are assembled: there are one
//! shift and one addition per field, and a fold at the end.
//!
//! Adjacent fields that are unchanged in the packet are not even separated: they are added as 32-bit words in the
//! machine's byte order. Swapping the bytes of all 16-bit words multiplies a sum by 256, modulo 65,535 (RFC 1071,
//! section 2 (B)). So the other contributions are shifted by eight bits and added to these words, and the result's
//! bytes are swapped; where it is compared with a field or written to one, the swaps cancel out. A nonzero sum stays
//! nonzero and folds to 0xffff, never to 0, in whatever order it is added, so the result is the same bit by bit. For an
//! IPv4 header this takes five loads, five additions, and ten instructions for the fold.
//!
//! Words of which the program never assigns a part are added first. Where a checksum is verified and later computed
//! again, this part of the two sums is the same expression, which Cranelift computes once.

use crate::Optimisation;
use crate::pack::Piece;
use crate::packet::At;
use crate::translate::Translator;
use cranelift_codegen::ir::types::{I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use ir::Operand;

/// Most bits of a contribution that is added whole; a word has room for 64 of them.
const TERM_BITS_MAX: u32 = 58;
/// Additional bits of the sum of so many.
const SUM_BITS: u32 = 6;

/// A sum under construction.
#[derive(Default)]
pub(crate) struct Sum {
    value: Option<Value>,
    /// Contributions since it was last folded.
    added: u32,
    /// Bits of the longest of them.
    bits: u32,
}

impl Sum {
    /// The sum of one value of at most `bits` bits.
    pub fn of(value: Value, bits: u32) -> Sum {
        Sum { value: Some(value), added: 1, bits }
    }
}

impl Translator<'_, '_> {
    /// The one's complement of the sum of the 16-bit words of `data`, padded with zeros at the end.
    pub fn internet_checksum(&mut self, data: &[Operand]) -> Value {
        let packed = self.options.has(Optimisation::PackedChecksum);
        // Sums in network byte order and in the machine's.
        let (mut sum, mut native) = (Sum::default(), Sum::default());
        let mut words: Vec<(bool, Value)> = Vec::new();
        let mut bit = 0;
        let mut rest = data;
        while !rest.is_empty() {
            let run =
                if packed && bit % 8 == 0 && cfg!(target_endian = "little") { self.run_in_packet(rest) } else { None };
            let Some((header, first_byte, bytes, count)) = run else {
                let piece = &self.pieces(&rest[..1])[0];
                bit += piece.width;
                self.add_piece(&mut sum, piece, bit);
                rest = &rest[1..];
                continue;
            };
            let start = At { base: self.header_pointer(header), offset: first_byte };
            let mut at = 0;
            while at < bytes {
                let left = bytes - at;
                // A single byte is the low or the high half of its word.
                if bit % 16 == 8 || left == 1 {
                    let byte = self.load_be(start.plus(at), 1);
                    let up = if bit % 16 == 8 { 0 } else { 8 };
                    self.add_term(&mut sum, byte, up, 8);
                    (at, bit) = (at + 1, bit + 8);
                } else {
                    let (size, flags) = (if left >= 4 { 4 } else { 2 }, self.flags.packet);
                    let place = start.plus(at);
                    let word = match size {
                        4 => self.b.ins().uload32(flags, place.base, place.offset as i32),
                        _ => self.b.ins().uload16(I64, flags, place.base, place.offset as i32),
                    };
                    words.push((self.may_be_assigned(&rest[..count], 8 * at, 8 * (at + size)), word));
                    (at, bit) = (at + size, bit + 8 * size);
                }
            }
            rest = &rest[count..];
        }
        words.sort_by_key(|(may_be_assigned, _)| *may_be_assigned);
        words.into_iter().for_each(|(_, word)| self.add_term(&mut native, word, 0, 32));
        match (sum.value, native.value) {
            (Some(other), Some(_)) if sum.bits + SUM_BITS + 8 <= TERM_BITS_MAX => {
                self.add_term(&mut native, other, 8, sum.bits + SUM_BITS);
            }
            (Some(_), Some(native)) => {
                // At most 60 contributions of 32 bits: there is room for eight more bits and for another such sum.
                self.add_term(&mut sum, native, 8, 32 + SUM_BITS);
                return self.fold(sum);
            }
            (_, None) => return self.fold(sum),
            (None, Some(_)) => {}
        }
        // If it is compared with a field or written to one, it is not swapped at all.
        let turned = self.fold(native);
        let turned = self.b.ins().ireduce(I16, turned);
        let in_order = self.b.ins().bswap(turned);
        self.b.ins().uextend(I64, in_order)
    }

    /// Whether the program assigns any field that has one of bits `from..to` of a run.
    fn may_be_assigned(&self, run: &[Operand], from: u32, to: u32) -> bool {
        let mut at = 0;
        run.iter().any(|operand| {
            let start = at;
            at += self.width(operand);
            let is_assigned = operand.slot().is_none_or(|s| self.facts.assigned.contains(s.index()));
            is_assigned && start < to && at > from
        })
    }

    /// Adds a field whose last bit is bit `end` of the string.
    fn add_piece(&mut self, sum: &mut Sum, piece: &Piece, end: u32) {
        let up = (16 - end % 16) % 16;
        for (i, &word) in piece.words.iter().enumerate() {
            let bits = (piece.width - 64 * i as u32).min(64);
            if bits + up <= TERM_BITS_MAX {
                self.add_term(sum, word, up, bits);
            } else {
                let high = self.b.ins().ushr_imm_u(word, 32);
                let low = self.mask_word(word, 32);
                self.add_term(sum, high, up, 32);
                self.add_term(sum, low, up, 32);
            }
        }
    }

    /// Adds `value << up`; the value has at most `bits` bits.
    pub fn add_term(&mut self, sum: &mut Sum, value: Value, up: u32, bits: u32) {
        let term = if up > 0 { self.b.ins().ishl_imm_u(value, i64::from(up)) } else { value };
        sum.value = Some(match sum.value {
            Some(so_far) => self.b.ins().iadd(so_far, term),
            None => term,
        });
        sum.added += 1;
        sum.bits = sum.bits.max(self.significant_bits(term).min(bits + up));
        if sum.added == 60
            && let Some(so_far) = sum.value
        {
            // Before the word can overflow, fold it to 33 bits.
            let (high, low) = (self.b.ins().ushr_imm_u(so_far, 32), self.mask_word(so_far, 32));
            *sum = Sum { value: Some(self.b.ins().iadd(high, low)), added: 1, bits: 33 };
        }
    }

    /// The end-around-carry sum of the 16-bit words, complemented.
    pub fn fold(&mut self, sum: Sum) -> Value {
        let fits_half = sum.bits + sum.added.next_power_of_two().ilog2() <= 32;
        let sum = match sum.value {
            Some(sum) => sum,
            None => self.iconst(0),
        };
        let mut sum = self.compute_here(sum);
        // Adding a number to itself with its halves exchanged leaves their end-around-carry sum in the upper half.
        if !fits_half {
            let turned = self.b.ins().rotl_imm_u(sum, 32);
            let twice = self.b.ins().iadd(sum, turned);
            sum = self.b.ins().ushr_imm_u(twice, 32);
        }
        let sum = self.b.ins().ireduce(I32, sum);
        let turned = self.b.ins().rotl_imm_u(sum, 16);
        let sum = self.b.ins().iadd(sum, turned);
        let sum = self.b.ins().ushr_imm_u(sum, 16);
        let sum = self.b.ins().uextend(I64, sum);
        self.b.ins().bxor_imm_u(sum, 0xffff)
    }
}
