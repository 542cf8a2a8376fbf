//! IPv4 prefixes with the lengths of the Internet's routing table, from a seed.
//!
//! The shares are rounded from public route collectors of the 2020s: three prefixes in five are /24, none of those exchanged
//! between providers is longer. One in a hundred here is, as in a network that carries its own routes too.

use crate::rng::Rng;
use std::collections::HashSet;

/// Lengths and how many of a thousand prefixes have them.
const LENGTHS: &[(u32, u64)] = &[
    (8, 1),
    (10, 1),
    (11, 1),
    (12, 1),
    (13, 1),
    (14, 2),
    (15, 2),
    (16, 14),
    (17, 9),
    (18, 14),
    (19, 26),
    (20, 45),
    (21, 53),
    (22, 115),
    (23, 105),
    (24, 600),
    (26, 2),
    (28, 3),
    (30, 2),
    (32, 3),
];

/// The part of an address that a prefix of this length fixes.
pub fn mask(prefix_len: u32) -> u32 {
    u32::MAX.checked_shl(32 - prefix_len).unwrap_or(0)
}

/// `count` different prefixes, in random order.
pub fn ipv4(count: usize, rng: &mut Rng) -> Vec<(u32, u32)> {
    let total: u64 = LENGTHS.iter().map(|l| l.1).sum();
    let mut seen = HashSet::with_capacity(count);
    let mut prefixes = Vec::with_capacity(count);
    while prefixes.len() < count {
        let mut at = rng.below(total);
        let drawn = LENGTHS.iter().find(|(_, share)| {
            let here = at < *share;
            at = at.wrapping_sub(*share);
            here
        });
        let prefix_len = drawn.map_or(24, |l| l.0);
        // Unicast addresses.
        let address = ((1 + rng.below(223)) << 24 | rng.below(1 << 24)) as u32 & mask(prefix_len);
        if seen.insert((address, prefix_len)) {
            prefixes.push((address, prefix_len));
        }
    }
    prefixes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_different_and_mostly_of_24_bits() {
        let all = ipv4(20_000, &mut Rng::new(1, 1));
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert!(all.iter().all(|(address, len)| address & !mask(*len) == 0));
        let of_24 = all.iter().filter(|(_, len)| *len == 24).count();
        assert!((11_000..13_500).contains(&of_24), "{of_24}");
    }
}
