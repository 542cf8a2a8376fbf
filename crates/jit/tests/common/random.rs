//! Random values for tests: a seed identifies a case forever.

use base::Bits;
use interp::SeededHost;

/// A generator with helpers for tests.
pub struct Random(SeededHost);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(SeededHost::new(seed))
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.0.next_u64() as u8).collect()
    }

    pub fn bits(&mut self, width: u32) -> Bits {
        let bytes = self.bytes(width.div_ceil(8) as usize);
        Bits::from_bytes_be(width, &bytes)
    }
}
