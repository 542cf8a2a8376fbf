//! The Toeplitz hash of receive-side scaling, as IR operations: for each set bit of the data, the 32-bit window of the
//! key that begins at that bit is combined by exclusive or. The key is the one from Microsoft's verification suite, a
//! common default of NICs; for data beyond the key's length the key is repeated.
//!
//! Specification: Microsoft, "RSS Hashing Functions".

use crate::context::Lowerer;
use base::Bits;
use ir::{BinOp, Operand};

const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

impl Lowerer<'_> {
    /// The 32-bit hash of the concatenated values.
    pub(super) fn toeplitz(&mut self, data: &[Operand]) -> Operand {
        let mut hash = Operand::new_const(32, 0);
        let mut at = 0;
        for value in data {
            let width = self.width(value);
            for i in 0..width {
                if self.is_too_large() {
                    return hash;
                }
                let bit = self.slice(value.clone(), width - 1 - i, width - 1 - i);
                let window = Operand::Const(Bits::new(32, u128::from(window(at))));
                let part = self.b.select(bit, window, Bits::zero(32));
                hash = self.b.bin(BinOp::Xor, hash, part).into();
                at += 1;
            }
        }
        hash
    }
}

/// The 32-bit window of the key that begins at bit `from`.
fn window(from: usize) -> u32 {
    let bit = |i: usize| u32::from(KEY[i / 8 % KEY.len()] >> (7 - i % 8) & 1);
    (from..from + 32).fold(0, |all, i| all << 1 | bit(i))
}

#[cfg(test)]
mod tests {
    use super::window;

    /// A direct implementation, for the test vectors of the specification.
    fn hash(data: &[u8]) -> u32 {
        let set = |i: &usize| data[i / 8] >> (7 - i % 8) & 1 == 1;
        (0..data.len() * 8).filter(set).fold(0, |all, i| all ^ window(i))
    }

    #[test]
    fn the_vectors_of_the_specification() {
        // Source and destination address, source and destination port.
        let data = [66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6];
        assert_eq!(hash(&data), 0x51cc_c178);
        assert_eq!(hash(&data[..8]), 0x323e_8fc2);
    }
}
