//! What the queues of a guarded port, their threads and its device share.

use crate::device::QueueCounters;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// What the queues of a port and its device share.
pub(super) struct Port {
    pub name: String,
    /// Whether queues are to be isolated.
    pub isolates: AtomicBool,
    /// The longest time that a worker was held up, in microseconds.
    pub held_up_us: AtomicU64,
    pub counters: Vec<QueueCounters>,
    /// Where the thread runs that opened the port; a worker's processor is no place for others.
    pub processors: Option<CpuSet>,
}

impl Port {
    pub(super) fn new(name: &str, queues: u16, isolates: bool) -> Port {
        Port {
            name: name.to_owned(),
            isolates: AtomicBool::new(isolates),
            held_up_us: AtomicU64::new(0),
            counters: (0..queues).map(|_| QueueCounters::default()).collect(),
            processors: sched_getaffinity(None).ok(),
        }
    }
}
