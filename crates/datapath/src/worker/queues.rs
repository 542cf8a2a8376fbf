//! Assigns the receive and transmit queues of a port to workers.
//!
//! A device has a queue for each worker if it can. Guests and peers need not use all of them and often use only the
//! first, so each port's first queue is assigned to a different worker. If a device has more queues than there are
//! workers, each worker gets several. If it has fewer, several workers share a queue: all transmit on it under a
//! lock, and one of them receives.
//!
//! With [`Sharing::Spread`] the others get packets, too: the receiving worker distributes flows by hash, as
//! receive-side scaling (RSS) does in a network card. Both directions of a flow go to the same worker, in order
//! ([`flow_hash`]). A hand-over costs a lock per burst, and the packets' cache lines move between processors; this
//! pays off only for programs that take longer than that, so it is off by default.
//!
//! One worker, one thread; shared data is behind locks. Tests here and in `tests/worker.rs`.

use abi::BATCH_MAX;
use pktio::{Packet, Queue, Wake};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// When this many packets wait for one worker, the receiving worker stops receiving until that worker has taken some.
/// Packets then wait in the device, which counts those it has no room for.
const HANDED_OVER_MAX: usize = 1024;

/// What happens with workers for which a device has no queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sharing {
    /// They receive nothing from the device.
    #[default]
    Fixed,
    /// They receive a share of the device's flows.
    Spread,
}

/// A port's queues as one worker holds them.
pub(crate) enum PortQueue {
    /// Queues of this worker alone: it receives from all in turn and transmits on the first.
    Own {
        /// At least one.
        queues: Vec<Box<dyn Queue>>,
        /// Position of the queue that was polled last.
        next: usize,
    },
    /// A queue that other workers transmit on, too.
    Shared {
        /// The queue.
        queue: Arc<Mutex<Box<dyn Queue>>>,
        /// Whether this worker receives from it.
        receives: bool,
        /// The hand-over buffers, with [`Sharing::Spread`].
        spread: Option<Arc<Spread>>,
        /// This worker's index among those that share the queue; the receiver is 0.
        place: usize,
    },
    /// The sending end of a link: `links` takes transmitted packets to another device; nothing is received.
    Link(super::links::LinkEnd),
    /// A port that is out of service: received packets are freed, nothing is transmitted.
    Down(Box<PortQueue>),
}

/// Hand-over buffers of the workers that share a queue.
#[derive(Default)]
pub(crate) struct Spread {
    waiting: Vec<HandOver>,
}

#[derive(Default)]
struct HandOver {
    count: AtomicUsize,
    packets: Mutex<Vec<Packet>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
        Err(TryLockError::WouldBlock) => {
            let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            // For another worker, and not for a port's peer.
            pktio::has_waited();
            guard
        }
    }
}

/// Assigns a device's queues to `workers` workers; returns a [`PortQueue`] per worker. `port` is the port's index
/// among all ports, by which the assignment rotates.
pub(crate) fn share(queues: Vec<Box<dyn Queue>>, workers: usize, port: usize, sharing: Sharing) -> Vec<PortQueue> {
    let count = queues.len();
    if count == 0 {
        return Vec::new();
    }
    if count >= workers {
        let mut own: Vec<Vec<Box<dyn Queue>>> = (0..workers).map(|_| Vec::new()).collect();
        for (i, queue) in queues.into_iter().enumerate() {
            own[(i + port) % workers].push(queue);
        }
        return own.into_iter().map(|queues| PortQueue::Own { queues, next: 0 }).collect();
    }
    let spreads: Vec<Option<Arc<Spread>>> = (0..count)
        .map(|i| {
            // Workers i, i + count, ... of the rotated order share queue i.
            let sharers = (workers - i).div_ceil(count);
            let waiting = (0..sharers).map(|_| HandOver::default()).collect();
            (sharing == Sharing::Spread).then(|| Arc::new(Spread { waiting }))
        })
        .collect();
    let queues: Vec<_> = queues.into_iter().map(|queue| Arc::new(Mutex::new(queue))).collect();
    let deal = |worker: usize| {
        let rotated = (worker + workers - port % workers) % workers;
        let (queue, place) = (rotated % count, rotated / count);
        PortQueue::Shared {
            queue: Arc::clone(&queues[queue]),
            receives: place == 0,
            spread: spreads[queue].clone(),
            place,
        }
    };
    (0..workers).map(deal).collect()
}

impl PortQueue {
    /// Receives at most `max` packets into `out`; returns how many.
    pub(crate) fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        match self {
            PortQueue::Own { queues, next } => {
                if let [queue] = queues.as_mut_slice() {
                    return queue.rx(out, max);
                }
                for _ in 0..queues.len() {
                    *next = if *next + 1 >= queues.len() { 0 } else { *next + 1 };
                    let count = queues[*next].rx(out, max);
                    if count != 0 {
                        return count;
                    }
                }
                0
            }
            PortQueue::Shared { queue, receives: true, spread: None, .. } => lock(queue).rx(out, max),
            PortQueue::Shared { queue, receives: true, spread: Some(spread), .. } => {
                if spread.is_full() {
                    return 0;
                }
                let before = out.len();
                lock(queue).rx(out, max);
                spread.hand_over(out, before);
                out.len() - before
            }
            PortQueue::Shared { spread: Some(spread), place, .. } => spread.take(*place, out, max),
            PortQueue::Shared { .. } | PortQueue::Link(_) => 0,
            PortQueue::Down(queue) => {
                let before = out.len();
                queue.rx(out, max);
                // Left in the queue, packets would arrive stale when the port is back in service.
                out.truncate(before);
                0
            }
        }
    }

    /// Prepares for sleep: returns how the worker learns of new packets, and appends file descriptors that become
    /// readable.
    pub(crate) fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        match self {
            PortQueue::Own { queues, .. } => {
                let wakes: Vec<Wake> = queues.iter_mut().map(|queue| queue.arm(files)).collect();
                let any = |wake| wakes.contains(&wake);
                match (any(Wake::Now), any(Wake::Poll)) {
                    (true, _) => Wake::Now,
                    (_, true) => Wake::Poll,
                    _ => Wake::File,
                }
            }
            PortQueue::Shared { queue, receives: true, .. } => lock(queue).arm(files),
            // Packets that another worker hands over.
            PortQueue::Shared { spread: Some(_), .. } => Wake::Poll,
            PortQueue::Shared { .. } | PortQueue::Link(_) => Wake::Never,
            // A port out of service is drained periodically.
            PortQueue::Down(_) => Wake::Poll,
        }
    }

    /// Ends [`PortQueue::arm`]: the worker polls again.
    pub(crate) fn disarm(&mut self) {
        match self {
            PortQueue::Own { queues, .. } => queues.iter_mut().for_each(|queue| queue.disarm()),
            PortQueue::Shared { queue, receives: true, .. } => lock(queue).disarm(),
            PortQueue::Shared { .. } | PortQueue::Link(_) | PortQueue::Down(_) => {}
        }
    }

    /// The same port in service (`up`) or out of it.
    pub(crate) fn in_service(self, up: bool) -> PortQueue {
        match (self, up) {
            (PortQueue::Down(queue), true) => *queue,
            (queue @ (PortQueue::Down(_) | PortQueue::Link(_)), _) | (queue, true) => queue,
            (queue, false) => PortQueue::Down(Box::new(queue)),
        }
    }

    /// Transmits packets from the front; those not accepted stay. Returns how many were accepted.
    pub(crate) fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        match self {
            PortQueue::Own { queues, .. } => queues[0].tx(packets),
            PortQueue::Shared { queue, .. } => lock(queue).tx(packets),
            PortQueue::Link(_) | PortQueue::Down(_) => 0,
        }
    }
}

impl Spread {
    /// Moves other workers' packets, from position `before` on, to their buffers. The receiving worker's place is 0.
    fn hand_over(&self, packets: &mut Vec<Packet>, before: usize) {
        let mut theirs: Vec<Vec<Packet>> = Vec::new();
        theirs.resize_with(self.waiting.len(), || Vec::with_capacity(BATCH_MAX));
        for packet in packets.split_off(before) {
            let place = ((u64::from(flow_hash(packet.data())) * self.waiting.len() as u64) >> 32) as usize;
            if place == 0 {
                packets.push(packet);
            } else {
                theirs[place].push(packet);
            }
        }
        for (waiting, mut theirs) in self.waiting.iter().zip(theirs).filter(|(_, theirs)| !theirs.is_empty()) {
            let mut queue = lock(&waiting.packets);
            queue.append(&mut theirs);
            waiting.count.store(queue.len(), Ordering::Release);
        }
    }

    fn is_full(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.count.load(Ordering::Relaxed) >= HANDED_OVER_MAX)
    }

    fn take(&self, place: usize, out: &mut Vec<Packet>, max: usize) -> usize {
        let waiting = &self.waiting[place];
        if waiting.count.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let mut queue = lock(&waiting.packets);
        let count = queue.len().min(max);
        out.extend(queue.drain(..count));
        waiting.count.store(queue.len(), Ordering::Release);
        count
    }
}

/// A symmetric flow hash over addresses, protocol and ports: the same for both directions, since addresses and ports
/// are added before mixing. Fragments are hashed without ports, other than IP by Ethernet addresses.
fn flow_hash(frame: &[u8]) -> u32 {
    let half = |at: usize| frame.get(at..at + 2).map_or(0, |bytes| u64::from(u16::from_be_bytes([bytes[0], bytes[1]])));
    let word = |at: usize| half(at) << 16 | half(at + 2);
    let long = |at: usize| word(at) << 32 | word(at + 4);
    let mut at = 12;
    while matches!(half(at), 0x8100 | 0x88a8) {
        at += 4;
    }
    let (ethertype, ip) = (half(at), at + 2);
    let (addresses, protocol, transport) = match ethertype {
        0x0800 => {
            let first = frame.get(ip).copied().unwrap_or(0);
            let is_fragment = half(ip + 6) & 0x3fff != 0;
            let transport = (!is_fragment).then_some(ip + usize::from(first & 15) * 4);
            (word(ip + 12).wrapping_add(word(ip + 16)), half(ip + 8) & 0xff, transport)
        }
        0x86dd => {
            let halves = [8, 16, 24, 32].map(|at| long(ip + at));
            let high = halves[0].wrapping_add(halves[2]);
            (high.rotate_left(32) ^ halves[1].wrapping_add(halves[3]), half(ip + 6) >> 8, Some(ip + 40))
        }
        _ => ((long(0) >> 16).wrapping_add(long(6) >> 16), ethertype, None),
    };
    let ports = match (protocol, transport) {
        (6 | 17 | 132, Some(at)) => half(at).wrapping_add(half(at + 2)),
        _ => 0,
    };
    let mixed = (addresses ^ ports << 40 ^ protocol << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ mixed >> 29).wrapping_mul(0xc4ce_b9fe_1a85_ec53).rotate_left(32) as u32
}

#[cfg(test)]
mod tests;
