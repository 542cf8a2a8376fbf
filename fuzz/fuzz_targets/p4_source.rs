//! See `difftest::fuzz::p4_source`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| difftest::fuzz::p4_source(bytes));
