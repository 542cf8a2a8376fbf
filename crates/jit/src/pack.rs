//! Writes bit strings to memory: the opposite of loading fields.
//!
//! A list of [`Piece`]s is a bit string, most significant piece first. [`Translator::store_pieces`] writes a byte range
//! of it in network order with the widest possible stores: adjacent fields are combined in registers, so that an
//! Ethernet header takes three stores. Used for emitted headers and for the data of hashes.

use crate::Optimisation;
use crate::packet::At;
use crate::translate::Translator;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value};
use ir::{HeaderId, Operand};

/// A value (zero above its width) as words, and its width in bits.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub words: Vec<Value>,
    pub width: u32,
}

impl Translator<'_, '_> {
    /// Operands as pieces, one each.
    pub fn pieces(&mut self, operands: &[Operand]) -> Vec<Piece> {
        operands.iter().map(|o| Piece { words: self.read_words(o), width: self.width(o) }).collect()
    }

    /// Operands as pieces, of which some may hold several operands: adjacent fields that are unchanged in the packet
    /// are loaded together, up to eight bytes at a time.
    pub fn packed_pieces(&mut self, operands: &[Operand]) -> Vec<Piece> {
        let mut out = Vec::new();
        if !self.options.has(Optimisation::PackedChecksum) {
            return self.pieces(operands);
        }
        let mut rest = operands;
        while !rest.is_empty() {
            let Some((header, first_byte, bytes, count)) = self.run_in_packet(rest) else {
                out.extend(self.pieces(&rest[..1]));
                rest = &rest[1..];
                continue;
            };
            let start = At { base: self.header_pointer(header), offset: first_byte };
            let mut at = 0;
            while at < bytes {
                let size = 1 << (bytes - at).ilog2().min(3);
                out.push(Piece { words: vec![self.load_be(start.plus(at), size)], width: 8 * size });
                at += size;
            }
            rest = &rest[count..];
        }
        out
    }

    /// The longest run of operands, from the first on, that are a whole number of bytes of one header in the packet:
    /// header, first byte, bytes, number of operands. `None` for a single operand, since loading it alone is as good.
    pub fn run_in_packet(&self, operands: &[Operand]) -> Option<(HeaderId, u32, u32, usize)> {
        let clean = |o: &Operand| {
            let slot = o.slot().filter(|s| !self.flow.is_dirty(self.facts, &self.facts_now, *s))?;
            self.facts.lazy_field(slot).filter(|(h, _)| self.flow.is_extracted[h.index()])
        };
        let (header, first) = clean(&operands[0])?;
        let mut end = first.bit;
        let mut found = None;
        for (i, operand) in operands.iter().enumerate() {
            match clean(operand) {
                Some((h, field)) if h == header && field.bit == end => end += field.width,
                _ => break,
            }
            if i > 0 && first.bit.is_multiple_of(8) && end.is_multiple_of(8) {
                found = Some((header, first.bit / 8, (end - first.bit) / 8, i + 1));
            }
        }
        found
    }

    /// Stores the bytes `from..to` of a bit string at `at` (the place of byte `from`). The first piece begins at bit
    /// `origin` of the string, not after byte `from`; bits after the last piece are zero.
    pub fn store_pieces(&mut self, flags: MemFlagsData, pieces: &[Piece], origin: u32, from: u32, to: u32, at: At) {
        if !self.options.has(Optimisation::WideStores) {
            return self.store_one_by_one(flags, pieces, origin, from, to, at);
        }
        for (byte, size, value) in self.wide_pieces(pieces, origin, from, to) {
            self.store_be(flags, value, at.plus(byte - from), size);
        }
    }

    /// The bytes `from..to` of a bit string as words: the first byte of each, its number of bytes, and its value. Bits
    /// above are undefined.
    pub fn wide_pieces(&mut self, pieces: &[Piece], origin: u32, from: u32, to: u32) -> Vec<(u32, u32, Value)> {
        let mut words = Vec::new();
        // `start` is the bit offset of piece `next`, the first one that ends after the current byte.
        let (mut next, mut start) = (0, origin);
        let mut byte = from;
        while byte < to {
            let size = 1 << (to - byte).ilog2().min(3);
            while next < pieces.len() && start + pieces[next].width <= 8 * byte {
                start += pieces[next].width;
                next += 1;
            }
            let value = self.join_pieces(&pieces[next.min(pieces.len())..], start, 8 * byte, 8 * size);
            words.push((byte, size, value));
            byte += size;
        }
        words
    }

    /// As [`Self::store_pieces`], piece by piece: bytes of two pieces are read, modified and written.
    fn store_one_by_one(&mut self, flags: MemFlagsData, pieces: &[Piece], origin: u32, from: u32, to: u32, at: At) {
        let mut bit = origin;
        for piece in pieces {
            let (start, end) = (bit.max(8 * from), (bit + piece.width).min(8 * to));
            let mut first = start;
            while first < end {
                // A sequence of whole bytes that one store can write, or a part of a byte.
                let whole = if first.is_multiple_of(8) { (end - first) / 8 } else { 0 };
                let (byte, place) = (first / 8, at.plus(first / 8 - from));
                if whole > 0 {
                    let size = 1 << whole.ilog2().min(3);
                    let value = self.join_pieces(std::slice::from_ref(piece), bit, first, 8 * size);
                    self.store_be(flags, value, place, size);
                    first += 8 * size;
                } else {
                    let stop = end.min(8 * (byte + 1));
                    let ones = ((1u64 << (stop - first)) - 1) << (8 * (byte + 1) - stop);
                    let value = self.join_pieces(std::slice::from_ref(piece), bit, 8 * byte, 8);
                    let value = self.b.ins().band_imm_u(value, ones as i64);
                    let old = self.b.ins().uload8(I64, flags, place.base, place.offset as i32);
                    let old = self.b.ins().band_imm_u(old, (!ones & 0xff) as i64);
                    let new = self.b.ins().bor(old, value);
                    self.store_be(flags, new, place, 1);
                    first = stop;
                }
            }
            bit += piece.width;
        }
        if bit < 8 * to {
            // Zeros after the last piece.
            let (first, zero) = (bit.max(8 * from), self.iconst(0));
            let rest = Piece { words: vec![zero], width: 8 };
            let mut rest = vec![rest; (8 * to - first).div_ceil(8) as usize];
            if let Some(last) = rest.last_mut() {
                last.width = 8 * to - first - 8 * ((8 * to - first).div_ceil(8) - 1);
            }
            self.store_one_by_one(flags, &rest, first, from, to, at);
        }
    }

    /// The `bits` (at most 64) bits at offset `first` of a bit string whose pieces begin at offset `start <= first`.
    /// Bits above are undefined.
    pub fn join_pieces(&mut self, pieces: &[Piece], mut start: u32, first: u32, bits: u32) -> Value {
        let end = first + bits;
        let mut value: Option<Value> = None;
        for piece in pieces {
            let piece_end = start + piece.width;
            if start >= end {
                break;
            }
            // How many low bits of the piece are beyond the range, and how far the rest is shifted up.
            let (behind, up) = (piece_end.saturating_sub(end), end.saturating_sub(piece_end));
            let part = self.word_from(&piece.words, behind, piece.width, bits);
            let part = if up > 0 { self.b.ins().ishl_imm_u(part, i64::from(up)) } else { part };
            value = Some(match value {
                Some(v) => self.b.ins().bor(v, part),
                None => part,
            });
            start = piece_end;
        }
        match value {
            Some(value) => value,
            None => self.iconst(0),
        }
    }

    /// The `bits` low bits of `words >> lo`. Bits above are undefined.
    fn word_from(&mut self, words: &[Value], lo: u32, width: u32, bits: u32) -> Value {
        let (at, shift) = ((lo / 64) as usize, lo % 64);
        let word = words[at];
        if shift == 0 {
            return word;
        }
        let low = self.b.ins().ushr_imm_u(word, i64::from(shift));
        if at + 1 < words.len() && 64 - shift < bits.min(width - lo) {
            let high = self.b.ins().ishl_imm_u(words[at + 1], i64::from(64 - shift));
            return self.b.ins().bor(low, high);
        }
        low
    }
}
