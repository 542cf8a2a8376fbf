//! State shared by a guarded port's device, its queues and their threads.

use crate::device::QueueCounters;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// State of a guarded port.
pub(super) struct Port {
    pub name: String,
    /// Whether all queues are to be isolated.
    pub isolates: AtomicBool,
    /// Number of queues that a dedicated thread serves.
    pub isolated: AtomicUsize,
    /// The longest time for which a worker was held up, in microseconds; 0 if none was.
    held_up_us: AtomicU64,
    pub counters: Vec<QueueCounters>,
    /// Whether a thread did not end while the port was closed.
    pub has_left_threads: AtomicBool,
    /// See [`Port::close_by`].
    close_by: OnceLock<Instant>,
}

impl Port {
    pub(super) fn new(name: &str, queues: u16, isolates: bool) -> Port {
        Port {
            name: name.to_owned(),
            isolates: AtomicBool::new(isolates),
            isolated: AtomicUsize::new(0),
            held_up_us: AtomicU64::new(0),
            counters: (0..queues).map(|_| QueueCounters::default()).collect(),
            has_left_threads: AtomicBool::new(false),
            close_by: OnceLock::new(),
        }
    }

    /// When closing ends to wait for threads: `patience` after the first queue was closed.
    pub(super) fn close_by(&self, patience: Duration) -> Instant {
        *self.close_by.get_or_init(|| Instant::now() + patience)
    }

    /// Records that the peer has held up a worker for `time`, and has all queues isolated.
    pub(super) fn held_up(&self, time: Duration) {
        self.held_up_us.fetch_max((time.as_micros() as u64).max(1), Ordering::Relaxed);
        self.isolates.store(true, Ordering::Relaxed);
    }

    /// A message for the operator about that; `None` if no worker was held up.
    pub(super) fn note(&self) -> Option<String> {
        let held_up_us = self.held_up_us.load(Ordering::Relaxed);
        (held_up_us != 0).then(|| {
            let ms = held_up_us as f64 / 1e3;
            let (count, all) = (self.isolated.load(Ordering::Relaxed), self.counters.len());
            let served = match count {
                0 => "and a thread of its own is to serve it, which does not run yet".to_owned(),
                _ if count == all => "so a thread of its own serves it until it is added anew".to_owned(),
                _ => format!("so threads of their own serve {count} of its {all} queues until it is added anew"),
            };
            format!("its peer held a worker up for {ms:.1} ms, {served}")
        })
    }
}
