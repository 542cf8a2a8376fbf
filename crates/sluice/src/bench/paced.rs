//! A port whose packets arrive by the clock: a virtual network card with a receive ring.
//!
//! When the worker polls, as many packets have arrived as the rate and the time since the last poll say. What finds the ring full is
//! lost and counted, as a card does; a generator that shares a processor with what it measures could not keep such a
//! schedule. Buffers are filled when the worker takes the packets, on its processor, so the rate that it bears is
//! somewhat below what a card's would be. What is sent is counted and freed.
//!
//! **Time that is not the worker's.** The kernel may run another program on the worker's processor, and the host of a
//! virtual machine another machine. Arrivals stand still meanwhile: that part of a gap between two polls is not time of
//! the schedule, and is reported beside the result. Two clocks measure it. The thread's clock of processor time stands
//! still whenever the worker does not run, also in time that the host takes, but cannot tell preemption from a wait. So
//! it is used for gaps in which the worker has not waited. A wait in the kernel (for a page that a peer takes away, say)
//! is the worker's own time and may lose packets; of a gap with a wait, only the time in which the worker was
//! runnable and another thread ran is left out (`run_delay` of `schedstat`). So is the time in which the port itself
//! reads these counts, and a wait for a page that is read from a disk, since other programs' need of memory evicted it.
//! Where the time went when packets were lost is [`super::gaps`]'s.
//!
//! Threads: the queue belongs to the worker; the handle sets the rate and reads counters.

use super::gaps::{BURST, Gap, Gaps, PAUSE_S, Watcher};
use pktio::{Device, LinkState, MTU_DEFAULT, MacAddress, Packet, PoolRef, PortStats, Queue, ticks, ticks_per_second};
use shared_memory::Usage;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// How often the thread's own clock is looked at if no gap is longer than [`PAUSE_S`], in seconds: clocks drift apart.
const LOOK_S: f64 = 0.01;
/// What the clocks may differ by, nanoseconds.
const DRIFT_NS: u64 = 2_000;
/// How long no packet is lost when an overload is over, in seconds: ten times what fills and empties a large ring.
pub const CALM_S: f64 = 0.1;
/// No time yet.
const NEVER: u64 = u64::MAX;
/// Says whether packets run code for the tables as they are. Called by the worker, once per burst.
pub type CodeNow = Arc<dyn Fn() -> bool + Send + Sync>;

/// The device.
pub struct Paced {
    name: String,
    frames: Option<Vec<Vec<u8>>>,
    ring: u64,
    pool: PoolRef,
    code_now: CodeNow,
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
    /// See [`Passed::calm_s`], in nanoseconds of the schedule.
    calm_ns: AtomicU64,
    /// See [`Passed::drained_s`].
    drained_ns: AtomicU64,
    /// Of the time between the last two settings of the rate.
    gaps: Mutex<Gaps>,
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
    /// Seconds in which the worker's processor was others'.
    pub stolen_s: f64,
    /// From when on no packet found the ring full for [`CALM_S`] or more, in seconds of the schedule since the rate was last set.
    pub calm_s: f64,
    /// When the ring was as good as empty for the first time since then; infinite if it never was.
    pub drained_s: f64,
}

impl Passed {
    /// Of two ports, or of two times.
    pub fn and(&self, more: &Passed) -> Passed {
        Passed {
            arrived: self.arrived + more.arrived,
            lost: self.lost + more.lost,
            taken: self.taken + more.taken,
            sent: self.sent + more.sent,
            fullest: self.fullest.max(more.fullest),
            stolen_s: self.stolen_s + more.stolen_s,
            calm_s: self.calm_s.max(more.calm_s),
            drained_s: self.drained_s.max(more.drained_s),
        }
    }
}

impl Paced {
    /// A port with these frames, in turn, and so many descriptors; without any frame it only sends.
    pub fn new(
        name: String,
        frames: Vec<Vec<u8>>,
        ring: u64,
        pool: PoolRef,
        code_now: CodeNow,
    ) -> (Paced, PacedHandle) {
        let shared = Arc::new(Shared::default());
        (Paced { name, frames: Some(frames), ring, pool, code_now, shared: Arc::clone(&shared) }, PacedHandle(shared))
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

    /// Where the worker's time went between the last two settings of the rate.
    pub fn gaps(&self) -> Gaps {
        *self.0.gaps.lock().unwrap_or_else(PoisonError::into_inner)
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
            calm_s: of(&shared.calm_ns) as f64 / 1e9,
            drained_s: match of(&shared.drained_ns) {
                NEVER => f64::INFINITY,
                ns => ns as f64 / 1e9,
            },
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
            ring: self.ring,
            next: 0,
            pool: Arc::clone(&self.pool),
            code_now: Arc::clone(&self.code_now),
            shared: Arc::clone(&self.shared),
            watcher: Watcher::default(),
            burst: 0,
            specialised: false,
            per_second,
            rate: 0,
            set: 0,
            begin: ticks(),
            since_begin: 0,
            waiting: 0,
            last: ticks(),
            looked: (ticks(), Instant::now(), 0),
            waits: 0,
            major_faults: 0,
            run_delay: RunDelay::default(),
            stolen_ns: 0,
            is_drained: false,
            calm_s: 0.0,
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
    ring: u64,
    next: usize,
    pool: PoolRef,
    code_now: CodeNow,
    shared: Arc<Shared>,
    watcher: Watcher,
    /// Packets that were taken last, and which code they met.
    burst: u64,
    specialised: bool,
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
    /// When the thread's clock was looked at last, in ticks and in time, and what it said.
    looked: (u64, Instant, u64),
    /// How often the worker had waited by then.
    waits: u64,
    /// How many pages it had read from a disk by then.
    major_faults: u64,
    /// For how long it had been runnable and not running by then, in nanoseconds.
    run_delay: RunDelay,
    /// Nanoseconds in which the processor was others' since the rate was set, or this port read the kernel's counts.
    stolen_ns: u64,
    /// Whether the ring has been as good as empty since then.
    is_drained: bool,
    /// See [`Passed::calm_s`].
    calm_s: f64,
}

impl PacedQueue {
    /// Nanoseconds in which the processor was others' since the last call.
    fn others_ns(&mut self, now: u64) -> u64 {
        let Usage { waits, major_faults, time: own, .. } = Usage::now();
        let own_ns = own.as_nanos() as u64;
        let time = Instant::now();
        let (_, last, last_own_ns) = std::mem::replace(&mut self.looked, (now, time, own_ns));
        let all_ns = (time - last).as_nanos() as u64;
        let delay_ns = self.run_delay.advance();
        let has_waited = std::mem::replace(&mut self.waits, waits) != waits;
        let has_read_pages = std::mem::replace(&mut self.major_faults, major_faults) != major_faults;
        let others_ns = if has_waited && !has_read_pages {
            delay_ns.min(all_ns)
        } else {
            all_ns.saturating_sub(own_ns - last_own_ns.min(own_ns))
        };
        if others_ns > DRIFT_NS { others_ns } else { 0 }
    }

    fn arrive(&mut self) {
        let set = self.shared.set.load(Relaxed);
        if set != self.set {
            self.others_ns(ticks());
            self.stolen_ns = 0;
            *self.shared.gaps.lock().unwrap_or_else(PoisonError::into_inner) = self.watcher.restart();
            (self.rate, self.set) = (self.shared.rate.load(Relaxed), set);
            self.begin = ticks();
            (self.last, self.since_begin) = (self.begin, 0);
            if self.rate > 0 {
                self.shared.fullest.store(self.waiting, Relaxed);
                self.shared.calm_ns.store(0, Relaxed);
                self.calm_s = 0.0;
                self.shared.drained_ns.store(NEVER, Relaxed);
                self.is_drained = false;
            }
            self.shared.seen.store(set, Relaxed);
        }
        let now = ticks();
        let gap = now.saturating_sub(self.last) as f64 / self.per_second;
        self.last = now;
        let mut time_s = gap;
        let mut others = false;
        let measures = gap > PAUSE_S || now.saturating_sub(self.looked.0) as f64 > LOOK_S * self.per_second;
        if measures {
            // After `now`: what is others' between the two is taken off a moment too early, not too late.
            let others_ns = self.others_ns(now);
            self.shared.stolen_ns.fetch_add(others_ns, Relaxed);
            self.stolen_ns += others_ns;
            time_s = (time_s - others_ns as f64 / 1e9).max(0.0);
            others = others_ns > 0;
        }
        let lost = self.arrived_until(now);
        if self.rate > 0 {
            let due_s = self.burst as f64 / self.rate as f64;
            let (is_pause, packets, specialised) = (gap > PAUSE_S, self.burst, self.specialised);
            let gap = Gap { time_s, is_pause, others, packets, due_s, specialised };
            self.watcher.note(gap, lost, self.waiting <= BURST);
        }
        if measures {
            // Reading the kernel's counts can take longer than `PAUSE_S`. Without this, one pause would make the next
            // gap a pause, too, and so on, and the port could not keep up.
            self.last = ticks();
            self.stolen_ns += (self.last.saturating_sub(now) as f64 / self.per_second * 1e9) as u64;
        }
    }

    /// Puts what has arrived until then into the ring; how many packets found it full.
    fn arrived_until(&mut self, now: u64) -> u64 {
        let own_s = now.saturating_sub(self.begin) as f64 / self.per_second - self.stolen_ns as f64 / 1e9;
        let arrived = ((own_s * self.rate as f64) as u64).saturating_sub(self.since_begin);
        if !self.is_drained && self.waiting + arrived <= BURST {
            self.is_drained = true;
            self.shared.drained_ns.store((own_s.max(0.0) * 1e9) as u64, Relaxed);
        }
        if arrived == 0 {
            return 0;
        }
        self.since_begin += arrived;
        self.waiting += arrived;
        self.shared.arrived.fetch_add(arrived, Relaxed);
        let lost = self.waiting.saturating_sub(self.ring);
        self.waiting -= lost;
        if lost > 0 {
            self.shared.lost.fetch_add(lost, Relaxed);
            // Losses behind a calm are no part of what was before it.
            if own_s - self.calm_s < CALM_S {
                self.calm_s = own_s.max(0.0);
                self.shared.calm_ns.store((self.calm_s * 1e9) as u64, Relaxed);
            }
        }
        self.shared.fullest.fetch_max(self.waiting, Relaxed);
        lost
    }
}

/// The calling thread's `run_delay`: the time in which it was runnable and another thread ran.
///
/// The kernel's file is opened by the first call, which is the worker's: it belongs to the thread that opens it.
#[derive(Default)]
struct RunDelay {
    file: Option<File>,
    last_ns: u64,
}

impl RunDelay {
    /// Nanoseconds since the last call; 0 for the first one, and where the kernel does not count.
    fn advance(&mut self) -> u64 {
        let is_first = self.file.is_none();
        if is_first {
            self.file = File::open("/proc/thread-self/schedstat").ok();
        }
        let mut text = [0; 64];
        let length = self.file.as_ref().map_or(0, |file| file.read_at(&mut text, 0).unwrap_or(0));
        let field = std::str::from_utf8(&text[..length]).ok().and_then(|text| text.split_whitespace().nth(1));
        let now_ns = field.and_then(|field| field.parse().ok()).unwrap_or(self.last_ns);
        let since_ns = now_ns - self.last_ns.min(now_ns);
        self.last_ns = now_ns;
        if is_first { 0 } else { since_ns }
    }
}

impl Queue for PacedQueue {
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        self.arrive();
        self.burst = 0;
        if self.waiting == 0 || self.frames.is_empty() {
            return 0;
        }
        self.specialised = (self.code_now)();
        let before = out.len();
        let got = self.pool.alloc_bulk(out, max.min(usize::try_from(self.waiting).unwrap_or(max)));
        for packet in &mut out[before..] {
            // A frame that no buffer holds was refused at the start.
            let _ = packet.set_data(&self.frames[self.next]);
            self.next = (self.next + 1) % self.frames.len();
        }
        self.waiting -= got as u64;
        self.burst = got as u64;
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

#[cfg(test)]
mod tests {
    use super::RunDelay;
    use std::time::{Duration, Instant};

    /// Two threads on one processor: each is runnable while the other runs. A thread that sleeps is not runnable.
    #[test]
    fn preemption_is_told_from_a_wait() {
        let own = std::thread::spawn(|| {
            let mask = rustix::thread::sched_getaffinity(None).unwrap();
            let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| mask.is_set(cpu)).unwrap();
            let mut one = rustix::thread::CpuSet::new();
            one.set(first);
            rustix::thread::sched_setaffinity(None, &one).unwrap();
            let mut delay = RunDelay::default();
            assert_eq!(delay.advance(), 0);
            let rival = std::thread::spawn(|| {
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(300) {}
            });
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(300) {}
            rival.join().unwrap();
            assert!(delay.advance() > 20_000_000);
            let quiet = (0..20).map(|_| {
                std::thread::sleep(Duration::from_millis(50));
                delay.advance()
            });
            assert!(quiet.min().unwrap() < 25_000_000);
        });
        own.join().unwrap();
    }
}
