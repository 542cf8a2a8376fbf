//! Pieces in use never overlap, in any order of taking and giving back, and a `NodeAllocator` with nothing in use holds
//! no memory.

use super::{NodeAllocator, Unlinked};
use proptest::prelude::*;

proptest! {
    #[test]
    fn pieces_do_not_overlap(steps in prop::collection::vec((any::<bool>(), 1usize..5000, any::<prop::sample::Index>()), 1..600)) {
        let mut allocator = NodeAllocator::default();
        let mut pieces: Vec<(*mut u8, usize, u8)> = Vec::new();
        for (number, (take, bytes, which)) in (0u8..=255).cycle().zip(steps) {
            if take || pieces.is_empty() {
                let at = allocator.take(bytes);
                prop_assert_eq!(at.addr() % 16, 0);
                // SAFETY: there is room for as many bytes.
                unsafe { at.write_bytes(number, bytes) };
                pieces.push((at, bytes, number));
            } else {
                let (at, bytes, number) = pieces.swap_remove(which.index(pieces.len()));
                // SAFETY: the piece is in use, and was written when it was taken.
                let content = unsafe { std::slice::from_raw_parts(at, bytes) };
                prop_assert!(content.iter().all(|byte| *byte == number), "another piece was written over it");
                // SAFETY: it came from there, and is not used any more.
                unsafe { allocator.release(Unlinked::new(at, bytes)) };
            }
            prop_assert_eq!(allocator.bytes() == 0, pieces.is_empty());
        }
    }
}
