//! See `difftest::fuzz::stf_script`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| difftest::fuzz::stf_script(bytes));
