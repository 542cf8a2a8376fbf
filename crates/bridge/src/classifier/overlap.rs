//! Overlap checks of a subtable: indices of its flows by parts of the mask.
//!
//! Two flows overlap if their values agree in the bits that both masks have. For a flow of another mask these bits are a part of a
//! subtable's mask, the same for all flows with that mask. So a subtable keeps, for the parts that were asked for last, an ordered
//! set of hashes of its flows' values there: those that can agree are found without a look at the others.
//!
//! An overlap check builds the index of its part if there is none ([`Indices::find`]), and each flow that comes or goes updates the
//! indices. An index that no check has used during as many changes as it has flows is dropped, so updates cost no more than building did.
//!
//! Packets wait while flows change, so an index that has ended is freed with the changes that follow, a few flows with each.
//!
//! A hash only names candidates: the subtable compares their values. Readers share the indices under a lock of their own.
//!
//! Tests: `classifier/tests.rs`, against a scan after every change.

use crate::key::mix;
use crate::memory::{Charge, Pool};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Indices of a subtable at most; the least recently used one makes room. Each takes [`FLOW_BYTES`] a flow and is updated by every change,
/// so this bounds what a controller can make a flow cost.
const INDICES_MAX: usize = 4;
/// Flows of a subtable for which there is an index. Smaller ones are scanned, which looks at no more than this many. Tests have few flows.
pub(super) const FLOWS_MIN: usize = if cfg!(test) { 4 } else { 256 };
/// Flows of an index that has ended that a change frees.
const FREED: usize = 8;
/// Bytes of a flow in an index, with the set's nodes half full.
const FLOW_BYTES: u64 = 48;

/// Flows by their values under a part of the mask.
#[derive(Debug, Default)]
struct Index {
    /// The part, word by word.
    part: Box<[u64]>,
    /// Of each flow, the hash of its values under the part with its priority, and the hash of its values.
    flows: BTreeSet<(u64, u64)>,
    /// Changes since it was asked for.
    unused: usize,
    has_ended: bool,
    charge: Charge,
}

/// Indices of a subtable.
#[derive(Debug, Default)]
pub(super) struct Indices {
    /// The one that was asked for last is the last.
    all: Mutex<Vec<Index>>,
}

/// A flow as an index knows it.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub values: &'a [u64],
    pub priority: u16,
    /// The hash of its values.
    pub hash: u64,
}

fn hash_of(seed: u64, values: &[u64], part: &[u64], priority: u16) -> u64 {
    values.iter().zip(part).fold(mix(seed, priority.into()), |hash, (value, mask)| mix(hash, value & mask))
}

impl Index {
    fn key(&self, seed: u64, flow: &Known<'_>) -> (u64, u64) {
        (hash_of(seed, flow.values, &self.part, flow.priority), flow.hash)
    }

    /// Updates the index for a changed flow or, if it is no longer used, frees some of it. False once nothing is left.
    fn follow(&mut self, change: impl FnOnce(&mut Index)) -> bool {
        if self.has_ended {
            (0..FREED).for_each(|_| _ = self.flows.pop_first());
            return !self.flows.is_empty();
        }
        change(self);
        self.unused += 1;
        let has_room = self.flows.len() as u64 * FLOW_BYTES <= self.charge.bytes();
        self.has_ended = self.unused > self.flows.len().max(FLOWS_MIN) || !has_room;
        true
    }
}

impl Indices {
    /// A flow has come.
    pub fn insert(&mut self, seed: u64, flow: Known<'_>) {
        let all = self.all.get_mut().unwrap_or_else(PoisonError::into_inner);
        all.retain_mut(|index| {
            index.follow(|index| {
                let key = index.key(seed, &flow);
                index.flows.insert(key);
            })
        });
    }

    /// A flow has gone. `others` are the flows that the subtable still has with this hash.
    pub fn remove<'a, I: Iterator<Item = Known<'a>>>(&mut self, seed: u64, flow: Known<'_>, others: impl Fn() -> I) {
        let all = self.all.get_mut().unwrap_or_else(PoisonError::into_inner);
        all.retain_mut(|index| {
            index.follow(|index| {
                let key = index.key(seed, &flow);
                if others().all(|other| index.key(seed, &other) != key) {
                    index.flows.remove(&key);
                }
            })
        });
    }

    /// Hashes of the values of flows of a priority that may agree with these values under a part of the mask, in which `wanted` has its
    /// bits; `try_one` says whether to end with one. Counts flows that are looked at as `visits`. `None` if there is no memory for an
    /// index, which `flows` would have, `count` at most.
    pub fn find<'a, T>(
        &self,
        (seed, part, wanted, priority): (u64, &[u64], &[u64], u16),
        memory: Option<&Arc<Pool>>,
        (count, flows): (usize, impl Iterator<Item = Known<'a>>),
        visits: &mut u64,
        mut try_one: impl FnMut(u64) -> Option<T>,
    ) -> Option<Option<T>> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        match all.iter().position(|index| !index.has_ended && *index.part == *part) {
            Some(at) => {
                let index = all.remove(at);
                all.push(index);
            }
            None => {
                // It may become half as large again.
                let bytes = (count as u64).saturating_mul(FLOW_BYTES) / 2 * 3;
                let charge = match memory {
                    Some(memory) => memory.charge(bytes, 0)?,
                    None => Charge::uncounted(bytes),
                };
                let mut index = Index { part: part.into(), charge, ..Index::default() };
                index.flows = flows.map(|flow| index.key(seed, &flow)).collect();
                *visits += index.flows.len() as u64;
                if all.len() >= INDICES_MAX {
                    all.remove(0);
                }
                all.push(index);
            }
        }
        let index = all.last_mut()?;
        index.unused = 0;
        let key = hash_of(seed, wanted, part, priority);
        let mut candidates = index.flows.range((key, 0)..=(key, u64::MAX));
        Some(candidates.find_map(|(_, hash)| {
            *visits += 1;
            try_one(*hash)
        }))
    }
}
