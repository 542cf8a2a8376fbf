//! IPv4 prefixes distributed like the Internet's (`tables::workload`).

/// The network mask of a prefix length.
pub fn mask(prefix_len: u32) -> u32 {
    u32::MAX.checked_shl(32 - prefix_len).unwrap_or(0)
}

/// `count` distinct prefixes (address and length), in random order.
pub fn ipv4(count: usize, seed: u64) -> Vec<(u32, u32)> {
    tables::workload::ipv4_prefixes(count, seed)
}
