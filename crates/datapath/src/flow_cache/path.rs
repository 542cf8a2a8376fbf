//! The result of a trace: a path's verdict, its effects on counters, and the change counts it relies on.

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

/// Most different sets of lookups of a pipeline's paths.
const LOOKUPS_MAX: usize = 1 << 16;

/// What packets of a path do, and the change counts while this is correct.
pub(super) struct Path {
    pub(super) verdict: Verdict,
    /// The change counts of the tables it looked up: current values and those at the trace.
    relied: Box<[(Arc<AtomicU64>, u64)]>,
    pub(super) lookups: Arc<Lookups>,
    counts: Box<[Count]>,
}

/// A set of hits and misses. Many paths share one, so that workers count their lookups together.
pub(super) struct Lookups {
    /// Its number, from 0.
    pub(super) number: u32,
    /// Table, whether it hit, and how many times.
    all: Box<[(TableId, bool, u32)]>,
}

/// All lookup sets of a pipeline.
#[derive(Default)]
pub(super) struct AllLookups(HashMap<Asked, Arc<Lookups>>);

/// The tables that a path looks up, whether each hits, and how many times.
type Asked = Box<[(TableId, bool, u32)]>;

impl AllLookups {
    /// The set for a trace's lookups; `None` if there are too many different ones.
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
    /// Adds these lookups for `packets` packets; to be called on the worker's thread.
    pub(super) fn count(&self, fast: &FastState, worker: usize, packets: u64) {
        for (table, is_hit, times) in &self.all {
            fast.count_lookups(worker, *table, *is_hit, packets * u64::from(*times));
        }
    }
}

/// A counter cell, and what each packet adds to it.
struct Count {
    counter: ExternId,
    cell: u64,
    /// The counter's declared unit.
    unit: CounterUnit,
    bytes: PerPacket,
}

/// How many bytes a packet counts as.
enum PerPacket {
    /// Its received bytes plus this many.
    Received(i32),
    /// A constant number of bytes.
    Exactly(u64),
}

/// A traced path on its way to a worker's cache.
pub(super) struct Found {
    pub(super) port: u32,
    pub(super) pattern: Pattern,
    pub(super) rewrite: Prepared,
    pub(super) path: Arc<Path>,
    /// The stale megaflow of the worker that it replaces, if any.
    pub(super) replaces: Option<u32>,
}

impl Path {
    /// The path of a trace; `lookups` and `relied` are of the tables that it looked up.
    ///
    /// # Errors
    /// The counter, if its counts cannot be derived from the numbers of packets and bytes.
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

    /// Whether no table that it looked up has changed since.
    pub(super) fn is_right(&self) -> bool {
        self.relied.iter().all(|(changes, was)| changes.load(Ordering::Acquire) == *was)
    }

    /// Whether its packets are counted by counters of the program.
    pub(super) fn has_counts(&self) -> bool {
        !self.counts.is_empty()
    }

    /// Adds packets and bytes to the program's counters; to be called on the worker's thread.
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
        // Other externs count both packets and bytes.
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
