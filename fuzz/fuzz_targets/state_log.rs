//! See `difftest::fuzz::state_log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| difftest::fuzz::state_log(bytes));
