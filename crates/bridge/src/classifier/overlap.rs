//! Overlap checks within a subtable: indices of its flows by parts of the mask.
//!
//! Two flows overlap if their values agree in the bits that both masks have. For a flow with another mask, these
//! common bits are a *part* of the subtable's mask, the same for all flows with that mask. So a subtable keeps, for
//! the parts that were checked last, an ordered set of hashes of its flows' values under the part. A check then
//! only looks at flows that can agree.
//!
//! Building an index costs as much as [`BUILD_SCANS`] scans of all flows. So an index for a part is built after
//! that many checks of it, and replaces another index after twice as many. Whatever the order of checks, scans and
//! building together cost at most twice what scans alone would (ski rental: Karlin, Manasse, Rudolph and Sleator,
//! "Competitive Snoopy Caching", 1988). Each added or removed flow updates the indices. An index that no check has
//! used during as many changes as it has flows is dropped, so updates cost no more than building did. All indices
//! are dropped when memory is short ([`Indices::give_up`]).
//!
//! Packets wait while flows change, so a dropped index is freed incrementally: a few flows with each later change.
//!
//! Hashes only name candidates: the subtable compares their values. Readers share the indices under a lock of their
//! own.
//!
//! Tests: `classifier/tests.rs`, against a scan after every change.

use crate::key::mix;
use crate::memory::{Charge, Pool};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of indices of a subtable. Each takes [`FLOW_BYTES`] per flow and is updated by every change, so
/// this bounds what a controller can make a flow cost. Each adds 2 to 9 us to the 8 us of adding a flow to 100,000,
/// so four make it at most four times as long (`examples/overlap_costs.rs`, on a busy machine, as are the figures
/// below).
pub(super) const INDICES_MAX: usize = 4;
/// Minimum number of flows for which an index is built. A check by an index takes 1.4 to 2 us, in which 100 to 200
/// flows are scanned at 9 to 15 ns. Tests have few flows.
pub(super) const FLOWS_MIN: usize = if cfg!(test) { 4 } else { 256 };
/// Number of scans that cost as much as building an index: 4 to 8 with 100,000 or 1,000,000 flows. With few flows
/// it is larger, but both are cheap.
pub(super) const BUILD_SCANS: usize = 8;
/// Maximum number of parts without an index whose checks are counted. Checks of more parts in turn are scans, as
/// without indices.
const CANDIDATES_MAX: usize = 4 * INDICES_MAX;
/// Flows of a dropped index that each change frees.
const FREED: usize = 8;
/// Bytes per flow of an index, with the set's nodes half full.
const FLOW_BYTES: u64 = 48;

/// An index of the flows by their values under a part of the mask.
#[derive(Debug, Default)]
struct Index {
    /// The part: a mask per word.
    part: Box<[u64]>,
    /// For each flow, a hash of its priority and its values under the part, and the hash of its values.
    flows: BTreeSet<(u64, u64)>,
    /// Number of checks that used it, up to [`BUILD_SCANS`].
    uses: usize,
    /// Number of changes since the last check that used it.
    unused: usize,
    has_ended: bool,
    charge: Charge,
}

/// A part without an index, with the number of its checks.
#[derive(Debug)]
struct Candidate {
    part: Box<[u64]>,
    asked: usize,
}

#[derive(Debug, Default)]
struct Inner {
    /// Indices, the most recently used one last.
    all: Vec<Index>,
    /// Parts without an index, likewise.
    candidates: VecDeque<Candidate>,
}

/// The indices of a subtable.
#[derive(Debug, Default)]
pub(super) struct Indices(Mutex<Inner>);

/// A flow, as indices see it.
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

    /// Updates the index for a change of a flow or, if it is dropped, frees some of it. Returns false once nothing
    /// is left.
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

impl Inner {
    /// Counts a check of a part without an index. Returns whether an index should be built now; if there are too
    /// many, one has been dropped.
    fn is_worth_building(&mut self, part: &[u64]) -> bool {
        let known = self.candidates.iter().position(|candidate| *candidate.part == *part);
        let known = known.and_then(|at| self.candidates.remove(at));
        let mut candidate = known.unwrap_or_else(|| Candidate { part: part.into(), asked: 0 });
        candidate.asked += 1;
        let asked = candidate.asked;
        self.candidates.push_back(candidate);
        if self.candidates.len() > CANDIDATES_MAX {
            self.candidates.pop_front();
        }
        if asked <= BUILD_SCANS {
            return false;
        }
        if self.all.len() >= INDICES_MAX {
            let worth = |index: &Index| if index.has_ended { 0 } else { index.uses };
            let least = self.all.iter().enumerate().min_by_key(|(_, index)| worth(index));
            let Some((at, _)) = least.filter(|(_, index)| asked > BUILD_SCANS + worth(index)) else { return false };
            self.all.remove(at);
        }
        true
    }
}

impl Indices {
    /// Frees all indices. They are built again after enough checks.
    pub fn give_up(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Inner::default();
    }

    /// Adds a flow to the indices.
    pub fn insert(&mut self, seed: u64, flow: Known<'_>) {
        let Inner { all, .. } = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        all.retain_mut(|index| {
            index.follow(|index| {
                let key = index.key(seed, &flow);
                index.flows.insert(key);
            })
        });
    }

    /// Removes a flow from the indices. `others` are the remaining flows of the subtable with the same hash.
    pub fn remove<'a, I: Iterator<Item = Known<'a>>>(&mut self, seed: u64, flow: Known<'_>, others: impl Fn() -> I) {
        let Inner { all, .. } = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        all.retain_mut(|index| {
            index.follow(|index| {
                let key = index.key(seed, &flow);
                if others().all(|other| index.key(seed, &other) != key) {
                    index.flows.remove(&key);
                }
            })
        });
    }

    /// Searches the flows of a priority that agree with `wanted` under a part of the mask, where `wanted` has no
    /// bits outside the part. Calls `try_one` with the hash of each candidate's values until it returns a result.
    /// Adds the flows looked at to `visits`. Builds an index of `flows` (`count` of them) if that pays now. `None`
    /// if there is no index, because building one does not pay yet or memory is short.
    pub fn find<'a, T>(
        &self,
        (seed, part, wanted, priority): (u64, &[u64], &[u64], u16),
        memory: Option<&Arc<Pool>>,
        (count, flows): (usize, impl Iterator<Item = Known<'a>>),
        visits: &mut u64,
        mut try_one: impl FnMut(u64) -> Option<T>,
    ) -> Option<Option<T>> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = inner.all.iter().position(|index| !index.has_ended && *index.part == *part);
        if found.is_none() && !inner.is_worth_building(part) {
            return None;
        }
        let Inner { all, candidates } = &mut *inner;
        match found {
            Some(at) => {
                let index = all.remove(at);
                all.push(index);
            }
            None => {
                // Charge half as much again, so that it may grow.
                let bytes = (count as u64).saturating_mul(FLOW_BYTES) / 2 * 3;
                let charge = match memory {
                    Some(memory) => memory.charge(bytes, 0)?,
                    None => Charge::uncounted(bytes),
                };
                let mut index = Index { part: part.into(), charge, ..Index::default() };
                index.flows = flows.map(|flow| index.key(seed, &flow)).collect();
                *visits += (BUILD_SCANS * index.flows.len()) as u64;
                candidates.retain(|candidate| *candidate.part != *part);
                all.push(index);
            }
        }
        let index = all.last_mut()?;
        (index.unused, index.uses) = (0, (index.uses + 1).min(BUILD_SCANS));
        let key = hash_of(seed, wanted, part, priority);
        let mut candidates = index.flows.range((key, 0)..=(key, u64::MAX));
        Some(candidates.find_map(|(_, hash)| {
            *visits += 1;
            try_one(*hash)
        }))
    }
}
