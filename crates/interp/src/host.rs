//! Inputs of a run from outside of the program: time, random numbers, and results of unresolved externs. All are
//! arguments, so every run is reproducible.

use base::Bits;

/// The environment of the interpreter.
pub trait Host {
    /// Microseconds since the switch started, for meters and idle timers.
    fn now_us(&mut self) -> u64;
    /// A number in `low..=high`, where `low <= high`.
    fn random(&mut self, low: u64, high: u64) -> u64;
    /// Calls an unresolved extern; the results have the given widths in bits. Programs with such calls cannot be
    /// loaded, but tests run their blocks.
    fn unresolved(&mut self, _callee: &str, _args: &[Bits], result_widths: &[u32]) -> Vec<Bits> {
        result_widths.iter().map(|w| Bits::zero(*w)).collect()
    }
}

/// A host whose clock is set explicitly, with a seeded generator (SplitMix64).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SeededHost {
    /// The current time in microseconds.
    pub now_us: u64,
    state: u64,
}

impl SeededHost {
    /// Starts at time 0.
    pub fn new(seed: u64) -> SeededHost {
        SeededHost { now_us: 0, state: seed }
    }

    /// The next number of the generator.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Host for SeededHost {
    fn now_us(&mut self) -> u64 {
        self.now_us
    }

    fn random(&mut self, low: u64, high: u64) -> u64 {
        // Modulo bias is below 2^-32 for the ranges that programs use.
        match (high - low).checked_add(1) {
            Some(count) => low + self.next_u64() % count,
            None => self.next_u64(),
        }
    }
}
