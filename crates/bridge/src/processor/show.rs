//! Megaflows of all workers, for people.
//!
//! Only its worker reads a cache. A request waits there: between two batches the worker copies the megaflows that match, [`SCAN`] entries
//! at a time, and reports that it is done together with its counts (`Pipeline::request_counts`). There is one request at a time.

use crate::cache::{Cache, Mask, Packet};
use crate::key::Layout;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Entries that a worker looks at between two batches.
const SCAN: usize = 2048;

/// Which megaflows are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Those of packets that came by this port.
    pub port: Option<u32>,
    /// At most so many of each worker.
    pub max: usize,
    /// Only that of this packet: its record, its frame's length and where it begins.
    pub of: Option<(Vec<u64>, u32, u64)>,
}

/// A megaflow, as it was.
#[derive(Clone, Debug)]
pub struct Megaflow {
    /// Whose.
    pub worker: usize,
    /// A record that it is for: fields that its mask leaves out are all ones.
    pub record: Vec<u64>,
    /// Which bits of it count.
    pub mask: Arc<Mask>,
    /// The frame's length, as far as that counts.
    pub length: u32,
    /// Where its packets begin: 0 for the first table.
    pub start: u64,
    /// Packets that have met it, the one that made it not included.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When it was used last, by the switch's clock.
    pub used_us: u64,
}

/// What was asked, and what workers have answered.
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
    /// What workers find, by worker; and whether there is more than was wanted. `wait` has them answer, and says whether all have.
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

/// How far a worker has answered.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    wanted: Option<Arc<Wanted>>,
    next: usize,
    found: usize,
}

impl Answer {
    /// Goes on with an answer of a worker and its cache; whether it is complete.
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
    let (mut record, length, start) = cache.example(at, layout.words())?;
    let mask = Arc::clone(cache.mask_of(at)?);
    // Fields that do not count are all ones: a TTL is looked at when effects run, and one of zero would be over.
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
