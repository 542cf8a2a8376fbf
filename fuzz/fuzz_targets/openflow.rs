//! See `difftest::controller`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| difftest::controller::fuzz(bytes));
