//! Pseudorandom numbers that depend only on a seed, the same on every machine: for tests, program generators and
//! workloads.
//!
//! SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). It is not
//! cryptographically secure. A running switch does not use it for what packets can see.

/// A SplitMix64 generator; the field is its state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Random(u64);

/// The odd increment of the state.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The generator that starts from `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// One of several independent sequences of the same seed.
    pub fn stream(seed: u64, stream: u64) -> Random {
        let mut random = Random(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next_u64();
        random
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// 128 random bits.
    pub fn next_u128(&mut self) -> u128 {
        u128::from(self.next_u64()) << 64 | u128::from(self.next_u64())
    }

    /// A number in `0..n`; `n` is at least 1.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// An index into a list of `len` items; `len` is at least 1.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number in `low..=high`.
    pub fn range(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(u64::from(high - low) + 1) as u32
    }

    /// True with probability `1 / n`; `n` is at least 1.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A random item of a list that is not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// Shuffles a list in place (Fisher–Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }

    /// A number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_from_the_seed() {
        // The first numbers of the reference implementation from state 1234567.
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
        assert_eq!(Random::new(7).next_u64(), Random::new(7).next_u64());
        assert_ne!(Random::new(7).next_u64(), Random::new(8).next_u64());
        assert_ne!(Random::stream(7, 0).next_u64(), Random::stream(7, 1).next_u64());
    }

    #[test]
    fn numbers_are_in_range_and_reach_its_ends() {
        let mut random = Random::new(1);
        let mut seen = [0; 5];
        for _ in 0..5000 {
            seen[random.index(5)] += 1;
            assert!((3..=4).contains(&random.range(3, 4)));
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
        assert_eq!(random.below(1), 0);
        let mut list: Vec<u32> = (0..100).collect();
        random.shuffle(&mut list);
        assert!(!list.is_sorted());
        list.sort_unstable();
        assert!(list.into_iter().eq(0..100));
    }
}
