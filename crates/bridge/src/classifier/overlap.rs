//! Overlap checks of a subtable: indices of its flows by parts of the mask.
//!
//! Two flows overlap if their values agree in the bits that both masks have. For a flow of another mask these bits are a part of a
//! subtable's mask, the same for all flows with that mask. So a subtable keeps, for the parts that were asked for last, an ordered
//! set of hashes of its flows' values there: those that can agree are found without a look at the others.
//!
//! Building an index costs as much as [`BUILD_SCANS`] scans. So one is built for a part of the mask after that many checks of the
//! part, and replaces another index after twice as many. Whatever the order of checks, scans and building together cost at most twice
//! what scans alone would (ski rental: Karlin, Manasse, Rudolph and Sleator, "Competitive Snoopy Caching", 1988). Each flow that comes or goes updates the
//! indices. An index that no check has used during as many changes as it has flows is dropped, so updates cost no more than building did.
//! So are all of them when there is no memory for something else ([`Indices::give_up`]).
//!
//! Packets wait while flows change, so an index that has ended is freed with the changes that follow, a few flows with each.
//!
//! A hash only names candidates: the subtable compares their values. Readers share the indices under a lock of their own.
//!
//! Tests: `classifier/tests.rs`, against a scan after every change.

use crate::key::mix;
use crate::memory::{Charge, Pool};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Indices of a subtable at most. Each takes [`FLOW_BYTES`] a flow and is updated by every change, so this bounds what a controller can
/// make a flow cost: each adds 2 to 9 us to a new flow's 8 us among 100,000, so four make it at most four times as long
/// (`examples/overlap_costs.rs`, on a busy machine, as the figures below).
pub(super) const INDICES_MAX: usize = 4;
/// Flows of a subtable for which there is an index. A check by an index takes 1.4 to 2 us, in which 100 to 200 flows are scanned at 9
/// to 15 ns. Tests have few flows.
pub(super) const FLOWS_MIN: usize = if cfg!(test) { 4 } else { 256 };
/// Scans that cost as much as building an index: 4 to 8 of 100,000 and of 1,000,000 flows. Of few flows they are more, and cheap.
pub(super) const BUILD_SCANS: usize = 8;
/// Parts without an index whose checks are counted. A controller that checks more parts in turn has scans, as without indices.
const CANDIDATES_MAX: usize = 4 * INDICES_MAX;
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
    /// How often it was asked for, up to [`BUILD_SCANS`].
    uses: usize,
    /// Changes since it was asked for.
    unused: usize,
    has_ended: bool,
    charge: Charge,
}

/// A part without an index.
#[derive(Debug)]
struct Candidate {
    part: Box<[u64]>,
    asked: usize,
}

#[derive(Debug, Default)]
struct Inner {
    /// The one that was asked for last is the last.
    all: Vec<Index>,
    /// Likewise.
    candidates: VecDeque<Candidate>,
}

/// Indices of a subtable.
#[derive(Debug, Default)]
pub(super) struct Indices(Mutex<Inner>);

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

impl Inner {
    /// Counts a check of a part that has no index. Returns whether an index is to be built now, and then has dropped one if there were too many.
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
    /// Frees all indices. They are built anew when they have proved useful again.
    pub fn give_up(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Inner::default();
    }

    /// A flow has come.
    pub fn insert(&mut self, seed: u64, flow: Known<'_>) {
        let Inner { all, .. } = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        all.retain_mut(|index| {
            index.follow(|index| {
                let key = index.key(seed, &flow);
                index.flows.insert(key);
            })
        });
    }

    /// A flow has gone. `others` are the flows that the subtable still has with this hash.
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

    /// Hashes of the values of flows of a priority that may agree with these values under a part of the mask, in which `wanted` has its
    /// bits; `try_one` says whether to end with one. Counts flows that are looked at as `visits`. `None` if there is no
    /// index, which `flows` would have, `count` at most: since building one does not pay yet, or there is no memory for it.
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
                // It may become half as large again.
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
