//! Bob Jenkins' `lookup3` (2006), the hash of ubpf_model, as IR operations: `hashlittle` with initial value 0 over the
//! bytes of the data in network order.
//!
//! It reads little-endian 32-bit words, three at a time, and mixes them with additions, subtractions, exclusive ors and
//! rotations.

use crate::context::Lowerer;
use base::Bits;
use ir::{BinOp, CastKind, Operand};

/// Initial value of the three state words, to which the length is added.
const SEED: u32 = 0xdead_beef;

/// Number of bytes that one round consumes.
const ROUND: u32 = 12;

/// `mix()`: steps `x -= y; x ^= rot(y, bits); y += z`, as indices of the words a, b and c.
const MIX: [(usize, usize, usize, u32); 6] =
    [(0, 2, 1, 4), (1, 0, 2, 6), (2, 1, 0, 8), (0, 2, 1, 16), (1, 0, 2, 19), (2, 1, 0, 4)];
/// `final()`: steps `x ^= y; x -= rot(y, bits)`.
const FINAL: [(usize, usize, u32); 7] =
    [(2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24)];

impl Lowerer<'_> {
    /// The 32-bit hash of a number, which is padded at its end with zero bits to whole bytes.
    pub(super) fn lookup3(&mut self, data: Operand) -> Operand {
        let width = self.width(&data);
        let bytes = width.div_ceil(8);
        let data = match bytes * 8 - width {
            0 => data,
            padding => self.b.concat(data, Bits::zero(padding)).into(),
        };
        let start = Operand::new_const(32, u128::from(SEED.wrapping_add(bytes)));
        let mut words = [start.clone(), start.clone(), start];
        let mut at = 0;
        while bytes - at > ROUND {
            self.add_round(&mut words, &data, at, bytes);
            for (x, y, z, bits) in MIX {
                words[x] = self.b.bin(BinOp::Sub, words[x].clone(), words[y].clone()).into();
                let rotated = self.rotate(words[y].clone(), bits);
                words[x] = self.b.bin(BinOp::Xor, words[x].clone(), rotated).into();
                words[y] = self.b.bin(BinOp::Add, words[y].clone(), words[z].clone()).into();
            }
            at += ROUND;
        }
        if bytes > 0 {
            self.add_round(&mut words, &data, at, bytes);
            for (x, y, bits) in FINAL {
                words[x] = self.b.bin(BinOp::Xor, words[x].clone(), words[y].clone()).into();
                let rotated = self.rotate(words[y].clone(), bits);
                words[x] = self.b.bin(BinOp::Sub, words[x].clone(), rotated).into();
            }
        }
        let [_, _, c] = words;
        c
    }

    /// Adds the bytes of a round, up to twelve from offset `at` on, to the state words.
    fn add_round(&mut self, words: &mut [Operand; 3], data: &Operand, at: u32, bytes: u32) {
        for (word, first) in words.iter_mut().zip((at..).step_by(4)) {
            let here = first.min(bytes)..(first + 4).min(bytes);
            let byte = |i: u32| (8 * (bytes - i) - 1, 8 * (bytes - i) - 8);
            let parts: Vec<Operand> = here
                .map(|i| {
                    let (hi, lo) = byte(i);
                    self.slice(data.clone(), hi, lo)
                })
                .collect();
            let Some((first, others)) = parts.split_first() else { continue };
            let value = others.iter().fold(first.clone(), |low, high| self.b.concat(high.clone(), low).into());
            let value = match self.width(&value) {
                32 => value,
                _ => self.b.cast(CastKind::Zext, 32, value).into(),
            };
            *word = self.b.bin(BinOp::Add, word.clone(), value).into();
        }
    }

    fn rotate(&mut self, word: Operand, bits: u32) -> Operand {
        let (high, low) = (self.slice(word.clone(), 31 - bits, 0), self.slice(word, 31, 32 - bits));
        self.b.concat(high, low).into()
    }
}
