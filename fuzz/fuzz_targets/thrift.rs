//! See `difftest::fuzz::thrift`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| difftest::fuzz::thrift(bytes));
