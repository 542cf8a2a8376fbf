//! See `difftest::fuzz::packets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| difftest::fuzz::packets(bytes));
