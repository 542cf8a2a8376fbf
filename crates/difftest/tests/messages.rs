//! Requests never take more memory than was found out before they were decoded: seeds, and what becomes of them when they are damaged.
//!
//! Alone in its program: the allocator counts for all threads.

use difftest::generate::Dice;
use difftest::messages::{Meter, fuzz, measure_with, seeds};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Damaged requests.
const ROUNDS: u64 = 20_000;

#[test]
fn requests_take_no_more_memory_than_was_said_before() {
    measure_with(Meter {
        reset: || ALLOCATOR.reset_peak_usage(),
        now: || ALLOCATOR.current_usage(),
        peak: || ALLOCATOR.peak_usage(),
    });
    let seeds = seeds();
    seeds.iter().for_each(|bytes| fuzz(bytes));
    let mut dice = Dice::new(7);
    for _ in 0..ROUNDS {
        let mut bytes = seeds[dice.below(seeds.len())].clone();
        for _ in 0..=dice.below(4) {
            let at = dice.below(bytes.len());
            match dice.below(4) {
                0 => bytes[at] = dice.below(256) as u8,
                1 => bytes[at] ^= 1 << dice.below(8),
                2 => bytes.truncate(at.max(1)),
                _ => {
                    let other = &seeds[dice.below(seeds.len())];
                    bytes.extend_from_slice(&other[1..]);
                }
            }
        }
        fuzz(&bytes);
    }
}
