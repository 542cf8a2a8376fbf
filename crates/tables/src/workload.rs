//! Realistic table contents for measurements and tests; everything follows from a seed.
//!
//! **Prefixes** as in the Internet's routing tables: mostly /24 (IPv6: /48), then the lengths of common allocations,
//! few shorter and few longer ones. They are not distributed uniformly, but lie in allocations, which cover a part of
//! the first octets and are announced in pieces. (The lengths are rounded from the reports of the CIDR Report and of
//! RIPE RIS for the years since 2020.)
//!
//! Tests: below.

use random::Random;
use std::collections::HashSet;

/// Prefix lengths, and their frequencies in thousandths.
type Lengths = &'static [(u32, u64)];

const LENGTHS_V4: Lengths = &[
    (24, 600),
    (22, 110),
    (23, 100),
    (20, 45),
    (21, 50),
    (19, 27),
    (18, 15),
    (16, 14),
    (17, 9),
    (15, 3),
    (14, 3),
    (13, 2),
    (12, 1),
    (11, 1),
    (25, 4),
    (26, 3),
    (27, 2),
    (28, 2),
    (29, 3),
    (30, 2),
    (32, 4),
];

const LENGTHS_V6: Lengths = &[
    (48, 470),
    (32, 120),
    (44, 110),
    (40, 85),
    (36, 45),
    (46, 35),
    (29, 25),
    (47, 20),
    (42, 20),
    (45, 15),
    (34, 10),
    (33, 10),
    (38, 10),
    (28, 5),
    (56, 8),
    (64, 8),
    (128, 4),
];

/// The parameters of an address family.
struct Family {
    width: u32,
    lengths: Lengths,
    /// The shortest and the longest allocation, as prefix lengths.
    allocations: (u32, u32),
}

impl Family {
    /// A random allocation: its value and its prefix length.
    fn allocation(&self, blocks: &[u64], random: &mut Random) -> (u128, u32) {
        let (from, to) = self.allocations;
        let len = from + random.below(u64::from(to - from + 1)) as u32;
        // A few blocks hold most allocations.
        let block = blocks
            [(random.below(blocks.len() as u64) * random.below(blocks.len() as u64) / blocks.len() as u64) as usize];
        let first_bits = if self.width == 32 { 8 } else { 16 };
        let value = u128::from(block) << (self.width - first_bits) | random.next_u128() & ones(self.width - first_bits);
        (value & !ones(self.width - len), len)
    }

    fn prefixes(&self, count: usize, seed: u64) -> Vec<(u128, u32)> {
        let mut random = Random::new(seed);
        let mut blocks: Vec<u64> = if self.width == 32 {
            (1..224).filter(|b| *b != 10 && *b != 127).collect()
        } else {
            (0x2001..0x2002).chain(0x2400..0x2410).chain(0x2600..0x2610).chain(0x2800..0x2a10).collect()
        };
        for i in (1..blocks.len()).rev() {
            blocks.swap(i, random.below(i as u64 + 1) as usize);
        }
        let allocations: Vec<(u128, u32)> =
            (0..count / 12 + 8).map(|_| self.allocation(&blocks, &mut random)).collect();
        let total: u64 = self.lengths.iter().map(|(_, weight)| weight).sum();
        let (mut seen, mut prefixes) = (HashSet::with_capacity(count), Vec::with_capacity(count));
        while prefixes.len() < count {
            let mut pick = random.below(total);
            let (len, _) = self
                .lengths
                .iter()
                .find(|(_, weight)| {
                    let here = pick < *weight;
                    pick = pick.wrapping_sub(*weight);
                    here
                })
                .expect("the weights add up to the total");
            let (allocation, allocated) = allocations[random.below(allocations.len() as u64) as usize];
            // In an allocation low numbers are used first.
            let free = len.saturating_sub(allocated).min(16);
            let low = random.below(1 << free).min(random.below(1 << free));
            let inside = u128::from(low) << (self.width - allocated.min(*len) - free);
            let rest =
                if *len > allocated + free { random.next_u128() & ones(self.width - allocated - free) } else { 0 };
            let value = (allocation | inside | rest) & !ones(self.width - len);
            if seen.insert((value, *len)) {
                prefixes.push((value, *len));
            }
        }
        prefixes
    }
}

/// The `count` low bits set.
fn ones(count: u32) -> u128 {
    if count == 0 { 0 } else { u128::MAX >> (128 - count) }
}

/// `count` different IPv4 prefixes, at most about two million: values with zeros after the prefix, and lengths in bits.
pub fn ipv4_prefixes(count: usize, seed: u64) -> Vec<(u32, u32)> {
    let family = Family { width: 32, lengths: LENGTHS_V4, allocations: (13, 20) };
    family.prefixes(count, seed).into_iter().map(|(value, len)| (value as u32, len)).collect()
}

/// `count` different IPv6 prefixes, as [`ipv4_prefixes`].
pub fn ipv6_prefixes(count: usize, seed: u64) -> Vec<(u128, u32)> {
    Family { width: 128, lengths: LENGTHS_V6, allocations: (28, 34) }.prefixes(count, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_different_and_mostly_of_24_bits() {
        let prefixes = ipv4_prefixes(50_000, 1);
        assert_eq!(prefixes.iter().collect::<HashSet<_>>().len(), 50_000);
        assert!(prefixes.iter().all(|(value, len)| u64::from(*value) & ((1 << (32 - len)) - 1) == 0));
        let share = |wanted: u32| prefixes.iter().filter(|(_, len)| *len == wanted).count() as f64 / 50_000.0;
        assert!((0.55..0.65).contains(&share(24)) && (0.005..0.03).contains(&share(16)));
        assert_eq!(ipv4_prefixes(100, 1), ipv4_prefixes(100, 1));
        assert_ne!(ipv4_prefixes(100, 1), ipv4_prefixes(100, 2));
    }

    #[test]
    fn ipv6_prefixes_are_global_unicast() {
        let prefixes = ipv6_prefixes(20_000, 1);
        assert!(prefixes.iter().all(|(value, len)| value >> 125 == 1 && value & ones(128 - len) == 0));
        assert!(prefixes.iter().filter(|(_, len)| *len == 48).count() > 8_000);
    }
}
