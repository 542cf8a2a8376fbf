//! Bit strings in memory, in network byte order: header fields and data to be hashed.

use crate::build::{At, Buffer, Lowering, part};
use crate::emission::Piece;
use crate::header::FieldAt;
use crate::value::Val;
use ir::layout::words_of;
use ir::{BinOp, Operand, SlotId};
use mir::{Access, Binary, Region, Regions, Type, Value};

impl Lowering<'_> {
    /// Loads a field of the segment at `at`.
    pub fn load_field(&mut self, at: At, field: &FieldAt) -> Val {
        // From the least significant end, one word at a time.
        let end = field.bit + field.width;
        let word = |i: u32| {
            let width = (field.width - 64 * i).min(64);
            self.load_bits(at, end - 64 * i - width, width)
        };
        let words = (0..words_of(field.width)).map(word).collect();
        self.val_of_words(field.width, words)
    }

    /// Loads at most 64 bits at bit offset `bit` from `at`; touches only bytes that contain some of them.
    fn load_bits(&mut self, at: At, bit: u32, width: u32) -> Value {
        let (first, end) = (bit / 8, (bit + width).div_ceil(8));
        if end - first > 8 {
            let head = 8 * (first + 1) - bit;
            let high = self.load_bits(at, bit, head);
            let low = self.load_bits(at, bit + head, width - head);
            return self.pack(Type::I64, vec![part(low, width - head, 0), part(high, head, width - head)]);
        }
        let loaded = self.load(Access::big(Region::Frame, (end - first) as u8), at.plus(first));
        let shifted = self.shr(loaded, 8 * end - (bit + width));
        if bit.is_multiple_of(8) { shifted } else { self.mask_word(shifted, width) }
    }

    /// Operands as pieces of a bit string.
    pub fn pieces(&mut self, operands: &[Operand]) -> Vec<Piece> {
        operands.iter().map(|o| Piece { words: self.read_words(o), width: self.width(o) }).collect()
    }

    /// Stores a bit string, most significant piece first, padded with zero bits to whole bytes.
    pub fn store_pieces(&mut self, regions: impl Into<Regions>, pieces: &[Piece], at: At) {
        let regions = regions.into();
        let bytes = pieces.iter().map(|piece| piece.width).sum::<u32>().div_ceil(8);
        let (mut next, mut start) = (0, 0);
        for byte in (0..bytes).step_by(8) {
            let count = (bytes - byte).min(8);
            while next < pieces.len() && start + pieces[next].width <= 8 * byte {
                start += pieces[next].width;
                next += 1;
            }
            let word = self.bits_of_string(&pieces[next..], start, 8 * byte, 8 * count);
            self.store(Access::big(regions, count as u8), at.plus(byte), word);
        }
    }

    /// At most 64 bits of a string, from bit `first` on; its pieces begin at bit `start`.
    fn bits_of_string(&mut self, pieces: &[Piece], mut start: u32, first: u32, bits: u32) -> Value {
        let end = first + bits;
        let mut parts = Vec::new();
        for piece in pieces {
            let piece_end = start + piece.width;
            if start >= end {
                break;
            }
            let count = piece_end.min(end).saturating_sub(start.max(first));
            if count > 0 {
                // Number of the piece's bits behind the range, and of the range's bits behind the piece.
                let (behind, up) = (piece_end.saturating_sub(end), end.saturating_sub(piece_end));
                let bits = self.bits_of_words(&piece.words, behind, count);
                parts.push(part(bits, count, up));
            }
            start = piece_end;
        }
        self.pack(Type::I64, parts)
    }

    /// Stores a bit string with variable-length pieces, of which only the low bits count: `varbits` has their indices
    /// and the slots of their lengths in bits. The string is built as one wide number and shifted to the left end.
    /// Returns the buffer's address and the length in bits.
    pub fn store_varbits(&mut self, pieces: &[Piece], varbits: &[(u32, SlotId)]) -> (Value, Value) {
        let most: u32 = pieces.iter().map(|piece| piece.width).sum();
        // The runtime's wide operations take whole words, and more than 128 bits.
        let width = most.next_multiple_of(64).max(192);
        let zero = self.word(0);
        let (mut string, mut total) = (vec![zero; width as usize / 64], zero);
        for (i, piece) in pieces.iter().enumerate() {
            let len = match varbits.iter().find(|(operand, _)| *operand as usize == i) {
                Some((_, slot)) => {
                    let (len, most) = (self.read_flag(*slot), self.word(piece.width.into()));
                    self.min(len, most)
                }
                None => self.word(piece.width.into()),
            };
            // Clears the bits above the length.
            let mut words = piece.words.clone();
            words.resize(string.len(), zero);
            let all = self.word(width.into());
            let above = self.sub(all, len);
            let words = self.wide_shift(BinOp::Shl, width, &words, above);
            let words = self.wide_shift(BinOp::Lshr, width, &words, above);
            string = self.wide_shift(BinOp::Shl, width, &string, len);
            for (word, low) in string.iter_mut().zip(words) {
                *word = self.bin(Binary::Or, *word, low);
            }
            total = self.add(total, len);
        }
        let all = self.word(width.into());
        let up = self.sub(all, total);
        let string = self.wide_shift(BinOp::Shl, width, &string, up);
        let base = self.buffer(Buffer::Call, width / 8);
        self.store_pieces(Region::Stack, &[Piece { words: string, width }], At { base, offset: 0 });
        (base, total)
    }

    /// Loads `bytes` bytes in network byte order as a number of at most `width` bits.
    pub fn load_varbit(&mut self, at: At, bytes: Value, width: u32) -> Vec<Value> {
        let zeros = vec![self.word(0); words_of(width) as usize];
        let scratch = self.buffer_with(Buffer::Left, &zeros);
        let most = self.word((width / 8).into());
        let bytes = self.min(bytes, most);
        let from = self.add_imm(at.base, at.offset.into());
        let zero = self.word(0);
        // The last byte on the wire is the least significant one.
        self.count_up(zero, bytes, 1, |l, i| {
            let last = l.sub(bytes, i);
            let last = l.add_imm(last, u64::MAX);
            let byte = l.add(from, last);
            let byte = l.load_le(Region::Frame, 1, byte, 0);
            let to = l.add(scratch, i);
            l.store_le(Region::Stack, 1, to, 0, byte);
        });
        let at = At { base: scratch, offset: 0 };
        let val = self.load_val(Region::Stack, width, at);
        self.words_of_val(&val)
    }

    /// Stores the low `bytes` bytes of a number in network byte order.
    pub fn store_varbit(&mut self, regions: Regions, words: &[Value], bytes: Value, to: Value) {
        let scratch = self.buffer_with(Buffer::Left, words);
        let zero = self.word(0);
        self.count_up(zero, bytes, 1, |l, i| {
            let last = l.sub(bytes, i);
            let last = l.add_imm(last, u64::MAX);
            let from = l.add(scratch, last);
            let byte = l.load_le(Region::Stack, 1, from, 0);
            let to = l.add(to, i);
            l.store_le(regions, 1, to, 0, byte);
        });
    }

    /// Copies `bytes` bytes from a buffer: whole words first, then single bytes.
    pub fn copy_from_buffer(&mut self, from: Value, regions: Regions, to: Value, bytes: Value) {
        let zero = self.word(0);
        let whole = self.bin_imm(Binary::And, bytes, u128::from(!7u64));
        for (first, last, step) in [(zero, whole, 8), (whole, bytes, 1)] {
            self.count_up(first, last, step, |l, i| {
                let from = l.add(from, i);
                let word = l.load_le(Region::Stack, step as u8, from, 0);
                let to = l.add(to, i);
                l.store_le(regions, step as u8, to, 0, word);
            });
        }
    }
}
