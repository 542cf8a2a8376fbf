//! See `difftest::fuzz::bmv2_json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| difftest::fuzz::bmv2_json(bytes));
