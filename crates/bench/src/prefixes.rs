//! IPv4 prefixes shaped like the Internet's (`tables::workload`), and what goes with them.

/// The part of an address that a prefix of this length fixes.
pub fn mask(prefix_len: u32) -> u32 {
    u32::MAX.checked_shl(32 - prefix_len).unwrap_or(0)
}

/// `count` different prefixes, in random order.
pub fn ipv4(count: usize, seed: u64) -> Vec<(u32, u32)> {
    tables::workload::ipv4_prefixes(count, seed)
}
