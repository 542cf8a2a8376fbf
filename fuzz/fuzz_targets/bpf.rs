//! See `difftest::bpf_objects`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| difftest::bpf_objects::fuzz(bytes));
