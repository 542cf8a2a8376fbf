//! What a router does to a frame, for tests and measurements.

use flowcache::path::{Rewrite, Source, Step, Word};
use ir::{BinOp, UnOp};

/// Two addresses, a TTL, and the header's checksum anew.
pub fn router(macs: [u8; 12]) -> Rewrite {
    let words = [
        Word { at: 14, mask: u64::MAX },
        Word { at: 22, mask: 0x00ff_0000_ffff_ffff },
        Word { at: 30, mask: !0 << 32 },
    ];
    Rewrite {
        steps: Box::new([
            Step::Bytes { at: 0, bytes: macs.into() },
            Step::Load { to: 0, bit: 22 * 8, width: 8 },
            Step::Binary { op: BinOp::Sub, to: 0, a: Source::Register(0), b: Source::Const(1), width: 8 },
            Step::Store { bit: 22 * 8, width: 8, value: Source::Register(0) },
            Step::Binary { op: BinOp::Shl, to: 1, a: Source::Register(0), b: Source::Const(8), width: 16 },
            Step::Sum { to: 2, words: words.into(), values: Box::new([Source::Register(1)]), constant: 0 },
            Step::Unary { op: UnOp::Not, to: 2, a: Source::Register(2), width: 16 },
            Step::Store { bit: 24 * 8, width: 16, value: Source::Register(2) },
        ]),
        replaced: 34,
        head: 34,
        max_len: u32::MAX,
    }
}
