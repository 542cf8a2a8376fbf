//! The documented selection, for sums of weights on both sides of the expansion limit.
#![allow(unsafe_code)]

use super::{Group, MAX_EXPANDED, select};
use abi::EntryHeader;
use std::ptr;

/// The selection by counting through the weights.
fn expected(members: &[(u32, *const EntryHeader)], hash: u64) -> *const EntryHeader {
    let total: u64 = members.iter().map(|(w, _)| u64::from(*w)).sum();
    let mut left = hash.checked_rem(total).unwrap_or(0);
    for (weight, entry) in members {
        if left < u64::from(*weight) {
            return *entry;
        }
        left -= u64::from(*weight);
    }
    ptr::null()
}

#[test]
fn chooses_by_hash_modulo_the_sum_of_weights() {
    let member = |i: usize| ptr::without_provenance::<EntryHeader>(64 * i);
    let large = MAX_EXPANDED as u32;
    let cases: &[&[u32]] = &[&[], &[1], &[3, 1, 2], &[large], &[large, 1], &[u32::MAX, 7, u32::MAX], &[1, 0, 2]];
    let group = Group::new(&[]);
    for weights in cases {
        let members: Vec<_> = weights.iter().enumerate().map(|(i, w)| (*w, member(i + 1))).collect();
        drop(group.set(&members));
        let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        let edges = [0, 1, 2, 3, 4, 5, 6, 7, 4095, 4096, 4097, total.wrapping_sub(1), total, total + 1, u64::MAX];
        for hash in edges {
            // SAFETY: the group is live and there is one thread.
            let chosen = unsafe { select(group.as_ptr(), hash) };
            assert_eq!(chosen, expected(&members, hash), "weights {weights:?}, hash {hash}");
        }
    }
}
