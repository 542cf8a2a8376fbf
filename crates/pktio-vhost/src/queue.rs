//! The workers' side of a port: one [`pktio::Queue`] per pair of rings.
//!
//! Ring 2i goes to the guest, ring 2i+1 comes from it (virtio 1.2, 5.1.2). If a guest uses fewer pairs than there are
//! workers, the remaining workers send through the first pair.
//!
//! A pair's lock is held for one burst and never across a system call. Calls that are due and faults are recorded under
//! the lock and reported after it is released. While the service thread holds the lock, a poll finds nothing.
//!
//! Threads: each queue on its worker; pairs are shared with the service thread. Tests: `tests/honest.rs`.

use crate::port::Found;
use crate::service::Running;
use crate::terms::{BURST_MAX, Burst};
use pktio::offload;
use pktio::{Packet, PortStats, Queue, Wake};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Attempts to lock a ring that another worker uses: about as long as a burst takes.
const TRIES: u32 = 2000;

pub(crate) struct PairQueue {
    /// Keeps the port open.
    pub running: Arc<Running>,
    pub index: usize,
}

impl PairQueue {
    /// Sends from the front of `packets`. Returns how many were taken, and freed.
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
                    // Its buffers or its budget are exhausted.
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
            // The worker that polls this pair may be asleep, so this one does the call.
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
        // Segments of a large frame may remain, more than there were packets.
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
                // Store-load ordering: the guest adds entries and then reads our flag; we
                // have set the flag and now read for entries.
                if ring.has_entries() {
                    Wake::Now
                } else if has_kick {
                    Wake::File
                } else {
                    // The guest has no kick eventfd, so the ring must be polled.
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
        // Without the lock the guest kicks on, until the next time.
        let Some(mut rings) = pair.rings.lock_soon(TRIES) else { return pair.waker.silence() };
        rings.is_armed = false;
        if let Some(ring) = rings.from_guest.as_mut() {
            ring.want_kicks(false);
        }
        drop(rings);
        // The file is not readable until the next event.
        pair.waker.silence();
    }
}
