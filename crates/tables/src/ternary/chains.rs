//! Long chains of a bucket, indexed by rank.
//!
//! Entries with one mask and equal masked values are in one chain, whatever the number of buckets: the same key with many
//! priorities, or ranges that share no leading bit. The chain is in rank order, and the writer would walk along it with
//! each change. So a chain in which it takes [`STEPS_MAX`] steps gets an index of its nodes, until it is short again or
//! its buckets are replaced.
//!
//! Threads: writer only. Tests: `ternary/tests.rs`, `tests/properties.rs`.
#![allow(unsafe_code)]

use super::memory::{Buckets, Node};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Steps along a chain after which it is indexed.
const STEPS_MAX: usize = 32;

/// The order of a chain: priority and insertion number.
type Place = (Reverse<i32>, u64);

/// The indices of long chains, by the address of the chain's head.
#[derive(Default)]
pub(super) struct Chains {
    indices: HashMap<usize, BTreeMap<Place, *mut Node>>,
    /// Steps along chains so far.
    steps: u64,
}

fn address(head: &AtomicPtr<Node>) -> usize {
    std::ptr::from_ref(head).addr()
}

impl Chains {
    /// Steps along chains so far: the work that changes have caused.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// The link to the node of this rank or, if there is none, where it belongs.
    ///
    /// # Safety
    /// All linked nodes are alive.
    pub(super) unsafe fn link<'a>(&mut self, head: &'a AtomicPtr<Node>, rank: (i32, u64)) -> &'a AtomicPtr<Node> {
        let place = (Reverse(rank.0), rank.1);
        if let Some(index) = self.index(head) {
            let before = index.range(..place).next_back();
            // SAFETY: the caller's promise.
            return before.map_or(head, |(_, node)| unsafe { &(**node).next });
        }
        let (mut link, mut steps) = (head, 0);
        // SAFETY: the caller's promise.
        while let Some(node) = unsafe { link.load(Ordering::Relaxed).as_ref() }.filter(|node| node.place() < place) {
            (link, steps) = (&node.next, steps + 1);
        }
        self.steps += steps as u64;
        if steps >= STEPS_MAX {
            let mut index = BTreeMap::new();
            let mut node = head.load(Ordering::Relaxed);
            // SAFETY: the caller's promise.
            while let Some(there) = unsafe { node.as_ref() } {
                index.insert(there.place(), node);
                node = there.next.load(Ordering::Relaxed);
            }
            self.steps += index.len() as u64;
            self.indices.insert(address(head), index);
        }
        link
    }

    fn index(&mut self, head: &AtomicPtr<Node>) -> Option<&mut BTreeMap<Place, *mut Node>> {
        if self.indices.is_empty() { None } else { self.indices.get_mut(&address(head)) }
    }

    /// Notes a node that was linked into a chain.
    pub(super) fn linked(&mut self, head: &AtomicPtr<Node>, rank: (i32, u64), node: *mut Node) {
        self.index(head).map(|index| index.insert((Reverse(rank.0), rank.1), node));
    }

    /// Notes that the node of this rank was unlinked.
    pub(super) fn unlinked(&mut self, head: &AtomicPtr<Node>, rank: (i32, u64)) {
        let Some(index) = self.index(head) else { return };
        index.remove(&(Reverse(rank.0), rank.1));
        if index.len() < STEPS_MAX / 2 {
            self.indices.remove(&address(head));
        }
    }

    /// Drops the indices of buckets that are about to be replaced.
    pub(super) fn forget(&mut self, buckets: &Buckets) {
        if !self.indices.is_empty() {
            buckets.heads().for_each(|head| _ = self.indices.remove(&address(head)));
        }
    }
}
