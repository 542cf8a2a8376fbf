//! What the tracer finds out about packets, and what their hits count.

use crate::state::FastState;
use abi::flows::Verdict;
use base::ids::{ExternId, TableId};
use flowcache::path::Pattern;
use flowcache::run::Prepared;
use flowcache::trace::{Bytes, Counted, Fate, Place, Traced};
use ir::{CounterUnit, ExternKind, Program};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Different lookups that paths of a pipeline have at most.
const LOOKUPS_MAX: usize = 1 << 16;

/// What packets of a path do, and until when that is right.
pub(super) struct Path {
    pub(super) verdict: Verdict,
    /// Tables, and how often they had been changed.
    relied: Box<[(Arc<AtomicU64>, u64)]>,
    pub(super) lookups: Arc<Lookups>,
    counts: Box<[Count]>,
}

/// Lookups that hit, and that missed: what many paths have in common, so that workers count them together.
pub(super) struct Lookups {
    /// Its number, from 0 on.
    pub(super) number: u32,
    /// Table, whether it hit, and how many.
    all: Box<[(TableId, bool, u32)]>,
}

/// All of a pipeline's.
#[derive(Default)]
pub(super) struct AllLookups(HashMap<Asked, Arc<Lookups>>);

/// Tables that a path asks, whether each has a hit, and how often.
type Asked = Box<[(TableId, bool, u32)]>;

impl AllLookups {
    /// Those of a trace; none if there are too many different ones.
    pub(super) fn of(&mut self, lookups: &[(TableId, bool)]) -> Option<Arc<Lookups>> {
        let mut all: Vec<(TableId, bool, u32)> = Vec::new();
        for (table, is_hit) in lookups {
            match all.iter_mut().find(|(other, was_hit, _)| (other, was_hit) == (table, is_hit)) {
                Some((.., times)) => *times += 1,
                None => all.push((*table, *is_hit, 1)),
            }
        }
        if let Some(known) = self.0.get(&*all) {
            return Some(Arc::clone(known));
        }
        if self.0.len() >= LOOKUPS_MAX {
            return None;
        }
        let new = Arc::new(Lookups { number: self.0.len() as u32, all: all.clone().into() });
        self.0.insert(all.into(), Arc::clone(&new));
        Some(new)
    }
}

impl Lookups {
    /// Counts them for so many packets, on the worker's thread.
    pub(super) fn count(&self, fast: &FastState, worker: usize, packets: u64) {
        for (table, is_hit, times) in &self.all {
            fast.count_lookups(worker, *table, *is_hit, packets * u64::from(*times));
        }
    }
}

/// A cell of a counter, and what packets add to it.
struct Count {
    counter: ExternId,
    cell: u64,
    /// What the counter is declared to count.
    unit: CounterUnit,
    bytes: PerPacket,
}

/// Bytes that packets count as.
enum PerPacket {
    /// Those received, and so many more each.
    Received(i32),
    /// So many each.
    Exactly(u64),
}

/// A path for a worker's cache.
pub(super) struct Found {
    pub(super) port: u32,
    pub(super) pattern: Pattern,
    pub(super) rewrite: Prepared,
    pub(super) path: Arc<Path>,
    /// What it takes the place of, if anything: a megaflow of the worker's.
    pub(super) replaces: Option<u32>,
}

impl Path {
    /// Of a trace through a program that asked these tables.
    ///
    /// # Errors
    /// If what is to be counted does not follow from how many packets and bytes there were: where.
    pub(super) fn new(
        program: &Program,
        traced: &Traced<()>,
        lookups: Arc<Lookups>,
        relied: Vec<(Arc<AtomicU64>, u64)>,
    ) -> Result<Path, ExternId> {
        let verdict = match traced.fate {
            Fate::Send(port) => Verdict::Send { port, queue: 0 },
            Fate::Drop(reason) => Verdict::Drop { reason },
        };
        let counts = traced.counted.iter().map(|counted| count(program, counted, &traced.pattern));
        Ok(Path { verdict, relied: relied.into(), lookups, counts: counts.collect::<Result<_, _>>()? })
    }

    /// Whether no table has changed that it has asked.
    pub(super) fn is_right(&self) -> bool {
        self.relied.iter().all(|(changes, was)| changes.load(Ordering::Acquire) == *was)
    }

    /// Whether its packets count at counters of the program.
    pub(super) fn has_counts(&self) -> bool {
        !self.counts.is_empty()
    }

    /// Counts so many packets and bytes at the program's counters, on the worker's thread.
    pub(super) fn count(&self, fast: &FastState, worker: usize, packets: u64, bytes: u64) {
        for count in &self.counts {
            let bytes = match count.bytes {
                PerPacket::Received(plus) => bytes.wrapping_add_signed(i64::from(plus).wrapping_mul(packets as i64)),
                PerPacket::Exactly(each) => packets.wrapping_mul(each),
            };
            let packets = if count.unit == CounterUnit::Bytes { 0 } else { packets };
            fast.count_packets(worker, count.counter, count.cell, packets, bytes);
        }
    }
}

fn count(program: &Program, counted: &Counted, pattern: &Pattern) -> Result<Count, ExternId> {
    let (Place::Index(cell) | Place::Entry(cell)) = counted.at;
    let unit = match &program.externs[counted.counter.index()].kind {
        ExternKind::Counter { unit, .. } => *unit,
        // Whatever else is counted at has both.
        _ => CounterUnit::Both,
    };
    let bytes = match counted.bytes {
        _ if unit == CounterUnit::Packets => PerPacket::Exactly(0),
        Bytes::Exactly(each) => PerPacket::Exactly(each),
        Bytes::Received { plus, at_most } => {
            let longest = pattern.longest.checked_add_signed(plus).unwrap_or(u32::MAX);
            let is_cut = at_most < longest && at_most != u32::MAX;
            if is_cut || pattern.shortest.checked_add_signed(plus).is_none() {
                return Err(counted.counter);
            }
            PerPacket::Received(plus)
        }
    };
    Ok(Count { counter: counted.counter, cell, unit, bytes })
}
