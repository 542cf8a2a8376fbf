//! See `difftest::fuzz::trace_filter`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| difftest::fuzz::trace_filter(bytes));
