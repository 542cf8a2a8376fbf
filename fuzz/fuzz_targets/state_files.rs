//! See `difftest::state_files`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| difftest::state_files::state_files(bytes));
