//! See `difftest::p4rt::fuzz_constraint`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| difftest::p4rt::fuzz_constraint(bytes));
