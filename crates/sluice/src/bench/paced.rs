//! A port whose packets arrive by the clock: a virtual network card with a receive ring of [`RING`] descriptors.
//!
//! When the worker polls, as many packets have arrived as the rate and the time since the last poll say. What finds the ring full is
//! lost and counted, as a card does; a generator that shares a processor with what it measures could not keep such a
//! schedule. Buffers are filled when the worker takes the packets, on its processor, so the rate that it bears is
//! somewhat below what a card's would be. What is sent is counted and freed.
//!
//! **Time that is not the worker's.** On a machine that does other things, too, the kernel may run another program on the worker's
//! processor. Then arrivals stand still: of a gap between two polls, what `/proc/thread-self/schedstat` counts as
//! waiting for a processor is no time of the schedule, and is told beside the result. Waiting for anything else (a lock, memory) is.
//!
//! Threads: the queue belongs to the worker; the handle sets the rate and reads counters.

use pktio::{Device, LinkState, MTU_DEFAULT, MacAddress, Packet, PoolRef, PortStats, Queue, ticks, ticks_per_second};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Descriptors of the receive ring.
pub const RING: u64 = 1024;
/// Gaps between polls of which it is asked whose they were, in seconds: a twentieth of what fills the ring at five
/// million packets a second.
const GAP_S: f64 = 10e-6;

/// The device.
pub struct Paced {
    name: String,
    frames: Option<Vec<Vec<u8>>>,
    pool: PoolRef,
    shared: Arc<Shared>,
}

/// Its other side.
pub struct PacedHandle(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Packets per second.
    rate: AtomicU64,
    /// How often it was set.
    set: AtomicU64,
    /// How often the worker has seen that.
    seen: AtomicU64,
    arrived: AtomicU64,
    lost: AtomicU64,
    taken: AtomicU64,
    sent: AtomicU64,
    /// Most packets that were in the ring since the rate was set.
    fullest: AtomicU64,
    /// Nanoseconds in which arrivals stood still.
    stolen_ns: AtomicU64,
}

/// What passed so far.
#[derive(Clone, Copy, Default)]
pub struct Passed {
    /// Packets that came, lost or not.
    pub arrived: u64,
    /// Packets that found the ring full.
    pub lost: u64,
    /// Packets that the worker took.
    pub taken: u64,
    /// Packets that it sent by this port.
    pub sent: u64,
    /// Most packets that were in the ring since the rate was last set.
    pub fullest: u64,
    /// Seconds in which the worker's processor ran something else.
    pub stolen_s: f64,
}

impl Paced {
    /// A port with these frames, in turn; without any it only sends.
    pub fn new(name: String, frames: Vec<Vec<u8>>, pool: PoolRef) -> (Paced, PacedHandle) {
        let shared = Arc::new(Shared::default());
        (Paced { name, frames: Some(frames), pool, shared: Arc::clone(&shared) }, PacedHandle(shared))
    }
}

impl PacedHandle {
    /// So many packets a second from now on; returns when the worker knows.
    pub fn set_rate(&self, rate: u64) {
        self.0.rate.store(rate, Relaxed);
        let number = self.0.set.fetch_add(1, Relaxed) + 1;
        while self.0.seen.load(Relaxed) < number {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }

    /// Counters now.
    pub fn passed(&self) -> Passed {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let shared = &self.0;
        Passed {
            arrived: of(&shared.arrived),
            lost: of(&shared.lost),
            taken: of(&shared.taken),
            sent: of(&shared.sent),
            fullest: of(&shared.fullest),
            stolen_s: of(&shared.stolen_ns) as f64 / 1e9,
        }
    }
}

impl Device for Paced {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        "paced"
    }

    fn queue_count(&self) -> u16 {
        1
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        let Some(frames) = self.frames.take() else { return Vec::new() };
        let per_second = ticks_per_second();
        vec![Box::new(PacedQueue {
            frames,
            next: 0,
            pool: Arc::clone(&self.pool),
            shared: Arc::clone(&self.shared),
            per_second,
            rate: 0,
            set: 0,
            begin: ticks(),
            since_begin: 0,
            waiting: 0,
            last: ticks(),
            schedstat: None,
            delay_ns: 0,
            stolen_ns: 0,
        })]
    }

    fn pool(&self) -> PoolRef {
        Arc::clone(&self.pool)
    }

    fn link(&self) -> LinkState {
        LinkState { up: true, speed_mbps: None }
    }

    fn stats(&self) -> PortStats {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let (rx_packets, rx_dropped, tx_packets) =
            (of(&self.shared.taken), of(&self.shared.lost), of(&self.shared.sent));
        PortStats { rx_packets, rx_dropped, tx_packets, ..PortStats::default() }
    }

    fn mac(&self) -> Option<MacAddress> {
        None
    }

    fn mtu(&self) -> u16 {
        MTU_DEFAULT
    }
}

struct PacedQueue {
    frames: Vec<Vec<u8>>,
    next: usize,
    pool: PoolRef,
    shared: Arc<Shared>,
    /// Ticks.
    per_second: f64,
    rate: u64,
    set: u64,
    /// When the rate was set, in ticks.
    begin: u64,
    /// Packets that have arrived since.
    since_begin: u64,
    /// Packets in the ring.
    waiting: u64,
    /// When it was last polled.
    last: u64,
    schedstat: Option<File>,
    /// What that said when the rate was set.
    delay_ns: u64,
    /// What it has said more since.
    stolen_ns: u64,
}

impl PacedQueue {
    /// Nanoseconds that this thread has waited for a processor, ever.
    fn delay_ns(&mut self) -> u64 {
        if self.schedstat.is_none() {
            self.schedstat = File::open("/proc/thread-self/schedstat").ok();
        }
        let mut text = [0; 96];
        let read = self.schedstat.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let second = std::str::from_utf8(&text[..read]).ok().and_then(|text| text.split(' ').nth(1)?.parse().ok());
        second.unwrap_or(self.delay_ns + self.stolen_ns)
    }

    fn arrive(&mut self) {
        let set = self.shared.set.load(Relaxed);
        if set != self.set {
            self.delay_ns = self.delay_ns();
            self.stolen_ns = 0;
            (self.rate, self.set) = (self.shared.rate.load(Relaxed), set);
            self.begin = ticks();
            (self.last, self.since_begin) = (self.begin, 0);
            if self.rate > 0 {
                self.shared.fullest.store(self.waiting, Relaxed);
            }
            self.shared.seen.store(set, Relaxed);
        }
        let now = ticks();
        let gap = now.saturating_sub(self.last) as f64 / self.per_second;
        self.last = now;
        if gap > GAP_S {
            // After `now`: what is stolen between the two is taken off a moment too early, not too late.
            let stolen_ns = self.delay_ns().saturating_sub(self.delay_ns);
            self.shared.stolen_ns.fetch_add(stolen_ns - self.stolen_ns.min(stolen_ns), Relaxed);
            self.stolen_ns = stolen_ns;
        }
        let own_s = now.saturating_sub(self.begin) as f64 / self.per_second - self.stolen_ns as f64 / 1e9;
        let arrived = ((own_s * self.rate as f64) as u64).saturating_sub(self.since_begin);
        if arrived == 0 {
            return;
        }
        self.since_begin += arrived;
        self.waiting += arrived;
        self.shared.arrived.fetch_add(arrived, Relaxed);
        if self.waiting > RING {
            self.shared.lost.fetch_add(self.waiting - RING, Relaxed);
            self.waiting = RING;
        }
        self.shared.fullest.fetch_max(self.waiting, Relaxed);
    }
}

impl Queue for PacedQueue {
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        self.arrive();
        if self.waiting == 0 || self.frames.is_empty() {
            return 0;
        }
        let before = out.len();
        let got = self.pool.alloc_bulk(out, max.min(usize::try_from(self.waiting).unwrap_or(max)));
        for packet in &mut out[before..] {
            // A frame that no buffer holds was refused at the start.
            let _ = packet.set_data(&self.frames[self.next]);
            self.next = (self.next + 1) % self.frames.len();
        }
        self.waiting -= got as u64;
        self.shared.taken.fetch_add(got as u64, Relaxed);
        got
    }

    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        let count = packets.len();
        pktio::free_bulk(packets);
        self.shared.sent.fetch_add(count as u64, Relaxed);
        count
    }
}
