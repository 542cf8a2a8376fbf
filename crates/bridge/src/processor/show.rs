//! Dumps of the workers' megaflows.
//!
//! Only a worker itself reads its cache. A request is therefore posted for all workers: between two batches, each
//! copies the megaflows that match, visiting [`SCAN`] entries at a time, and reports completion together with its
//! counts (`Pipeline::request_counts`). There is one request at a time.

use crate::cache::{Cache, Mask, Packet};
use crate::key::Layout;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Entries that a worker visits between two batches.
const SCAN: usize = 2048;

/// A filter for megaflows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Only megaflows of packets received on this port.
    pub port: Option<u32>,
    /// Maximum number per worker.
    pub max: usize,
    /// Only the megaflow of this packet: its record, its frame's length in bytes, and its start.
    pub of: Option<(Vec<u64>, u32, u64)>,
}

/// A copy of a megaflow.
#[derive(Clone, Debug)]
pub struct Megaflow {
    /// Its worker.
    pub worker: usize,
    /// An example record that it matches: fields outside the mask are all ones.
    pub record: Vec<u64>,
    /// Its mask.
    pub mask: Arc<Mask>,
    /// The frame's length under the mask.
    pub length: u32,
    /// Where processing of its packets starts: 0 for table 0.
    pub start: u64,
    /// Number of hits, without the packet that created it.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Time of the last hit, in microseconds of the switch's clock.
    pub used_us: u64,
}

/// The current request, and what workers have found for it.
#[derive(Debug, Default)]
pub(crate) struct Question {
    turn: Mutex<()>,
    asked: Mutex<Option<Arc<Wanted>>>,
    found: Mutex<(Vec<Megaflow>, bool)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Question {
    /// Posts a request. Returns the megaflows found, by worker, and whether the list is incomplete. `wait` waits
    /// for the workers and returns whether all have answered.
    pub fn ask(&self, wanted: Wanted, wait: impl FnOnce() -> bool) -> (Vec<Megaflow>, bool) {
        let _turn = lock(&self.turn);
        *lock(&self.found) = (Vec::new(), false);
        *lock(&self.asked) = Some(Arc::new(wanted));
        let is_complete = wait();
        *lock(&self.asked) = None;
        let (mut found, has_more) = std::mem::take(&mut *lock(&self.found));
        found.sort_by_key(|megaflow| (megaflow.worker, std::cmp::Reverse(megaflow.packets)));
        (found, has_more || !is_complete)
    }
}

/// A worker's progress with the current request.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    wanted: Option<Arc<Wanted>>,
    next: usize,
    found: usize,
}

impl Answer {
    /// Continues with the current request. Returns whether this worker has finished it.
    pub fn go_on(&mut self, question: &Question, worker: usize, cache: &Cache, layout: &Layout) -> bool {
        let Some(wanted) = lock(&question.asked).clone() else {
            *self = Answer::default();
            return true;
        };
        if self.wanted.as_ref().is_none_or(|last| !Arc::ptr_eq(last, &wanted)) {
            *self = Answer { wanted: Some(Arc::clone(&wanted)), next: 0, found: 0 };
        }
        let mut found = Vec::new();
        let mut has_more = false;
        let is_complete = match &wanted.of {
            Some((record, bytes, start)) => {
                let at = cache.find(Packet { record, bytes: *bytes, start: *start });
                found.extend(at.and_then(|at| megaflow(worker, cache, layout, at)));
                true
            }
            None => {
                let end = (self.next + SCAN).min(cache.slots());
                let in_port = layout.in_port();
                for at in self.next..end {
                    let Some(megaflow) = megaflow(worker, cache, layout, at as u32) else { continue };
                    if wanted.port.is_some_and(|port| in_port.read(&megaflow.record) as u32 != port) {
                        continue;
                    }
                    if self.found >= wanted.max {
                        has_more = true;
                        break;
                    }
                    self.found += 1;
                    found.push(megaflow);
                }
                self.next = end;
                has_more || end == cache.slots()
            }
        };
        if !found.is_empty() || has_more {
            let mut all = lock(&question.found);
            all.0.append(&mut found);
            all.1 |= has_more;
        }
        is_complete
    }
}

fn megaflow(worker: usize, cache: &Cache, layout: &Layout, at: u32) -> Option<Megaflow> {
    let entry = cache.get(at)?;
    let mut record = Vec::new();
    let (length, start) = cache.example(at, layout.words(), &mut record)?;
    let mask = Arc::clone(cache.mask_of(at)?);
    // Fields outside the mask are all ones: TTLs are checked when effects are run, and one of zero would have
    // expired.
    for (id, _) in layout.fields().iter() {
        for part in &layout.place(id).parts {
            let counts = mask.words.iter().find(|(word, _)| *word == part.word).map_or(0, |(_, mask)| *mask);
            record[part.word as usize] |= part.mask() & !counts;
        }
    }
    Some(Megaflow {
        worker,
        record,
        mask,
        length,
        start,
        packets: entry.settled.0 + entry.packets,
        bytes: entry.settled.1 + entry.bytes,
        used_us: entry.used_us,
    })
}
