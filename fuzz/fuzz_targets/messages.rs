//! See `difftest::messages::fuzz`; with an allocator that counts.
#![no_main]

use difftest::messages::{Meter, fuzz, measure_with};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

libfuzzer_sys::fuzz_target!(
    init: measure_with(Meter {
        reset: || ALLOCATOR.reset_peak_usage(),
        now: || ALLOCATOR.current_usage(),
        peak: || ALLOCATOR.peak_usage(),
    }),
    |bytes: &[u8]| fuzz(bytes)
);
