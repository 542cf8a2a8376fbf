//! See `difftest::fuzz::ir_text`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| difftest::fuzz::ir_text(bytes));
