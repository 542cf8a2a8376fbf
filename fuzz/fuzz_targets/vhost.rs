//! See `difftest::fuzz::vhost`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| difftest::fuzz::vhost(bytes));
