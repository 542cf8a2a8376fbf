//! The workers' side of a port: one [`pktio::Queue`] for each pair of rings.
//!
//! Ring 2i goes to the guest, ring 2i+1 comes from it (virtio 1.2, 5.1.2). A guest may use fewer pairs than there are workers:
//! all others send through its first then.
//!
//! The lock of a pair is held for one burst and never across a system call: who is to be called, and what went wrong, is
//! noted under it and told afterwards. While the service thread has the lock, a poll finds nothing.
//!
//! Threads: each queue on its worker; pairs are shared with the service thread. Tests: `tests/honest.rs`.

use crate::events::Waker;
use crate::lock::Lock;
use crate::memory::Allowed;
use crate::ring::{BURST_MAX, Burst, Fault, Ring};
use crate::service::Running;
use pktio::offload;
use pktio::{FRAME_HEADER_MAX, Packet, PoolRef, PortStats, Queue, QueueCounters, Wake};
use shared_memory::Caller;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How often a worker tries for a ring that another one uses: as long as a burst takes.
const TRIES: u32 = 2000;

/// A port, as workers, service and device share it.
pub(crate) struct Port {
    pub pairs: Vec<Pair>,
    pub pool: PoolRef,
    /// Longer frames are not sent; of large frames, longer segments.
    pub frame_max: AtomicU32,
    /// Whether a guest is there whose first pair works.
    pub is_up: AtomicBool,
    pub caller: Caller,
    /// Wakes the service thread.
    pub bell: pktio::Bell,
    /// What workers have found in rings, for the service thread.
    pub faults: Mutex<Vec<Found>>,
    /// Sessions so far.
    pub sessions: AtomicU64,
    /// What front ends may share.
    pub allowed: Allowed,
    pub stops: AtomicBool,
}

/// A fault of a session's ring. The session may have ended since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub session: u64,
    pub ring: usize,
    pub fault: Fault,
}

/// Two rings, on cache lines of their own.
#[repr(align(128))]
pub(crate) struct Pair {
    pub rings: Lock<Rings>,
    pub counters: QueueCounters,
    pub waker: Waker,
    /// Whether there is a ring to the guest; read without the lock.
    pub can_send: AtomicBool,
}

#[derive(Default)]
pub(crate) struct Rings {
    pub from_guest: Option<Ring>,
    pub to_guest: Option<Ring>,
    /// The worker sleeps: the guest is to kick.
    pub is_armed: bool,
    /// Whether the guest has something to kick with.
    pub has_kick: bool,
    /// Whose the rings are.
    pub session: u64,
}

impl Rings {
    /// Which rings' guests are to be called: to the guest, from it.
    #[inline]
    fn take_calls(&mut self) -> [bool; 2] {
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
    fn tell(&self, pair: usize, calls: [bool; 2], fault: Option<Found>) {
        for (ring, is_wanted) in calls.into_iter().enumerate() {
            if is_wanted {
                self.caller.call(2 * pair + ring);
            }
        }
        if let Some(fault) = fault {
            self.report(fault);
        }
    }

    /// Once per ring: it is dead afterwards. The write to our own eventfd does not block.
    #[cold]
    pub(crate) fn report(&self, fault: Found) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
        self.bell.ring();
    }
}

pub(crate) struct PairQueue {
    /// Keeps the port open.
    pub running: Arc<Running>,
    pub index: usize,
}

impl PairQueue {
    /// Sends from the front of `packets`; how many were taken, and freed.
    #[inline]
    fn send(&self, packets: &mut Vec<Packet>, burst: &mut Burst) -> usize {
        let port = &*self.running.port;
        let frame_max = port.frame_max.load(Ordering::Relaxed);
        let own = &port.pairs[self.index];
        let is_shared = self.index != 0 && !own.can_send.load(Ordering::Relaxed);
        let (at, rings) =
            if is_shared { (0, port.pairs[0].rings.lock_soon(TRIES)) } else { (self.index, own.rings.try_lock()) };
        let Some(mut rings) = rings else { return 0 };
        let mut calls = [false; 2];
        let mut fault = None;
        let mut sent = 0;
        let session = rings.session;
        if let Some(ring) = rings.to_guest.as_mut() {
            while sent < packets.len() && !burst.stopped {
                let offered = (packets.len() - sent).min(BURST_MAX);
                match ring.send(&mut packets[sent..], frame_max, burst) {
                    // Its buffers or its budget are used up.
                    Ok(done) if done < offered => {
                        sent += done;
                        break;
                    }
                    Ok(done) => sent += done,
                    Err(error) => {
                        fault = Some(Found { session, ring: 2 * at, fault: error });
                        break;
                    }
                }
            }
            // The worker that polls this pair may be asleep.
            if is_shared {
                std::sync::atomic::fence(Ordering::SeqCst);
                calls[0] = ring.take_call();
            }
        }
        drop(rings);
        port.tell(at, calls, fault);
        if sent != 0 {
            pktio::free_front(packets, sent);
        }
        sent
    }
}

impl Queue for PairQueue {
    #[inline]
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        let port = &*self.running.port;
        let pair = &port.pairs[self.index];
        let Some(mut rings) = pair.rings.try_lock() else { return 0 };
        let calls = rings.take_calls();
        let mut burst = Burst::default();
        let result = match rings.from_guest.as_mut() {
            Some(ring) => ring.receive(&*port.pool, out, max, &mut burst),
            None => Ok(()),
        };
        let session = rings.session;
        drop(rings);
        port.tell(self.index, calls, result.err().map(|fault| Found { session, ring: 2 * self.index + 1, fault }));
        if burst.packets != 0 || burst.dropped != 0 {
            pair.counters.add(&PortStats {
                rx_packets: burst.packets,
                rx_bytes: burst.bytes,
                rx_dropped: burst.dropped,
                ..PortStats::default()
            });
        }
        burst.packets as usize
    }

    #[inline]
    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        if packets.is_empty() {
            return 0;
        }
        let offered = packets.len();
        let mut burst = Burst::default();
        let mut sent = self.send(packets, &mut burst);
        let mut lost = PortStats::default();
        if burst.stopped {
            let port = &*self.running.port;
            let frame_max = port.frame_max.load(Ordering::Relaxed);
            lost = offload::send_rest(&*port.pool, packets, frame_max, |batch| {
                burst.stopped = false;
                sent += self.send(batch, &mut burst);
            });
        }
        self.running.port.pairs[self.index].counters.add(&PortStats {
            tx_packets: (sent as u64).saturating_sub(burst.dropped),
            tx_bytes: burst.bytes,
            tx_dropped: lost.tx_dropped + burst.dropped,
            ..lost
        });
        // Segments of a large frame may be left over, more than there were packets.
        offered.saturating_sub(packets.len())
    }

    fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        let pair = &self.running.port.pairs[self.index];
        let Some(mut rings) = pair.rings.try_lock() else { return Wake::Poll };
        rings.is_armed = true;
        let calls = rings.take_calls();
        let has_kick = rings.has_kick;
        let wake = match rings.from_guest.as_mut() {
            None => Wake::File,
            Some(ring) => {
                ring.want_kicks(true);
                // The guest gives entries and then looks at our wish; we have written the wish and look for entries.
                if ring.has_entries() {
                    Wake::Now
                } else if has_kick {
                    Wake::File
                } else {
                    // Without a file to kick it has to be looked at.
                    Wake::Poll
                }
            }
        };
        drop(rings);
        self.running.port.tell(self.index, calls, None);
        if wake == Wake::File {
            files.push(pair.waker.file());
        }
        wake
    }

    fn disarm(&mut self) {
        let pair = &self.running.port.pairs[self.index];
        let mut rings = pair.rings.lock();
        rings.is_armed = false;
        if let Some(ring) = rings.from_guest.as_mut() {
            ring.want_kicks(false);
        }
        drop(rings);
        // Until something else happens the file is not readable any more.
        pair.waker.silence();
    }
}
