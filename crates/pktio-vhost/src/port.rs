//! The state of a port that workers, service thread and device share.
//!
//! Ring 2i goes to the guest, ring 2i+1 comes from it (virtio 1.2, 5.1.2).
//!
//! Threads: any; a pair's rings belong to the holder of its lock.

use crate::events::Waker;
use crate::lock::Lock;
use crate::memory::Allowed;
use crate::ring::Ring;
use crate::terms::Fault;
use pktio::{FRAME_HEADER_MAX, PoolRef, QueueCounters};
use shared_memory::Caller;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A port, as workers, service thread and device share it.
pub(crate) struct Port {
    pub pairs: Vec<Pair>,
    pub pool: PoolRef,
    /// Maximum frame length in bytes; longer frames, and large frames with longer segments, are not sent.
    pub frame_max: AtomicU32,
    /// Whether the rings of the first pair are in use; the port's link state.
    pub is_up: AtomicBool,
    pub caller: Caller,
    /// Wakes the service thread.
    pub bell: pktio::Bell,
    /// Faults that workers have found in rings, for the service thread.
    pub faults: Mutex<Vec<Found>>,
    /// Number of sessions so far.
    pub sessions: AtomicU64,
    /// Limits on the memory that front ends may share.
    pub allowed: Allowed,
    pub stops: AtomicBool,
}

/// A fault in a session's ring. The session may have ended since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub session: u64,
    pub ring: usize,
    pub fault: Fault,
}

/// A pair of rings, on cache lines of its own.
#[repr(align(128))]
pub(crate) struct Pair {
    pub rings: Lock<Rings>,
    pub counters: QueueCounters,
    pub waker: Waker,
    /// Whether there is a ring to the guest; can be read without the lock.
    pub can_send: AtomicBool,
}

#[derive(Default)]
pub(crate) struct Rings {
    pub from_guest: Option<Ring>,
    pub to_guest: Option<Ring>,
    /// Whether the worker sleeps and so wants to be kicked.
    pub is_armed: bool,
    /// Whether the guest has a kick eventfd that is watched.
    pub has_kick: bool,
    /// The session that the rings belong to.
    pub session: u64,
}

impl Rings {
    /// Which rings need a call to the guest: the ring to the guest, the ring from it.
    #[inline]
    pub(crate) fn take_calls(&mut self) -> [bool; 2] {
        [&mut self.to_guest, &mut self.from_guest].map(|ring| ring.as_mut().is_some_and(Ring::take_call))
    }
}

impl Port {
    pub(crate) fn set_mtu(&self, mtu: u16) {
        self.frame_max.store(u32::from(mtu) + u32::from(FRAME_HEADER_MAX), Ordering::Relaxed);
    }

    pub(crate) fn mtu(&self) -> u16 {
        (self.frame_max.load(Ordering::Relaxed) - u32::from(FRAME_HEADER_MAX)) as u16
    }

    #[inline]
    /// Signals the calls that are due, and reports a fault.
    pub(crate) fn tell(&self, pair: usize, calls: [bool; 2], fault: Option<Found>) {
        for (ring, is_wanted) in calls.into_iter().enumerate() {
            if is_wanted {
                self.caller.call(2 * pair + ring);
            }
        }
        if let Some(fault) = fault {
            self.report(fault);
        }
    }

    /// Reports a fault, once per ring: the ring is unusable afterwards. The write to our own eventfd does not block.
    #[cold]
    pub(crate) fn report(&self, fault: Found) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
        self.bell.ring();
    }
}
