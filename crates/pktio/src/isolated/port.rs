//! What the queues of a guarded port, their threads and its device share.

use crate::device::QueueCounters;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// What the queues of a port and its device share.
pub(super) struct Port {
    pub name: String,
    /// Whether queues are to be isolated.
    pub isolates: AtomicBool,
    /// Queues that have a thread of their own.
    pub isolated: AtomicUsize,
    /// The longest time that a worker was held up, in microseconds.
    held_up_us: AtomicU64,
    pub counters: Vec<QueueCounters>,
}

impl Port {
    pub(super) fn new(name: &str, queues: u16, isolates: bool) -> Port {
        Port {
            name: name.to_owned(),
            isolates: AtomicBool::new(isolates),
            isolated: AtomicUsize::new(0),
            held_up_us: AtomicU64::new(0),
            counters: (0..queues).map(|_| QueueCounters::default()).collect(),
        }
    }

    /// Its peer has held a worker up for so long.
    pub(super) fn held_up(&self, time: Duration) {
        self.held_up_us.fetch_max((time.as_micros() as u64).max(1), Ordering::Relaxed);
        self.isolates.store(true, Ordering::Relaxed);
    }

    /// What an operator is to know of that.
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
