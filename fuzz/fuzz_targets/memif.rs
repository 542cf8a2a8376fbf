//! See `difftest::fuzz::memif`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| difftest::fuzz::memif(bytes));
