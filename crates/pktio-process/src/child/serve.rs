//! The thread of a queue: moves packets between the queue and its rings ([`pktio::serve`]).
//!
//! Room in the ring to the peer is returned when a burst has been sent or dropped, so the switch can count what is lost
//! if the process ends.
//!
//! Threads: one per queue; [`State`] is theirs and the main thread's. Tests: `tests/isolated.rs`.

use crate::channel::Channel;
use crate::ring::{Buffers, Consumer, Fault, Producer};
use heartbeat::Heartbeat;
use pktio::{Device, Exchange, Packet, PoolRef, PortStats, Queue, QueueCounters, serve};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// A round that takes longer is reported: the peer has managed to block the thread.
const ROUND_MAX: Duration = Duration::from_secs(10);
/// Bursts after which the port's state is told while packets pass.
const TELL_BURSTS: u32 = 256;

/// The port's state, for the switch.
pub(super) struct State {
    device: Mutex<Box<dyn Device>>,
    channel: Channel,
    /// Packets that a peer did not take in time, by queue.
    dropped: Vec<QueueCounters>,
}

impl State {
    pub(super) fn new(device: Box<dyn Device>, channel: Channel, queues: u16) -> State {
        let dropped = (0..queues).map(|_| QueueCounters::default()).collect();
        State { device: Mutex::new(device), channel, dropped }
    }

    pub(super) fn name(&self) -> String {
        self.device.lock().unwrap_or_else(PoisonError::into_inner).name().to_owned()
    }

    fn pool(&self) -> PoolRef {
        self.device.lock().unwrap_or_else(PoisonError::into_inner).pool()
    }

    /// Tells link and counters. If another thread is at it, that one does.
    pub(super) fn tell(&self) {
        let device: MutexGuard<'_, Box<dyn Device>> = match self.device.try_lock() {
            Ok(device) => device,
            Err(TryLockError::Poisoned(device)) => device.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let mut stats = device.stats();
        self.dropped.iter().for_each(|dropped| stats += dropped.read());
        self.channel.publish(device.link().up, &stats);
    }
}

/// Signals an eventfd.
pub(super) fn ring(event: &OwnedFd) {
    // It fails only when the counter is full, and then the file is readable.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Ends the process when its thread panics, so that the switch starts it again. The message is on stderr.
struct EndsTheProcess;

impl Drop for EndsTheProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// A queue's rings, as its thread has them.
pub(super) struct Serving {
    inward: Producer,
    outward: Consumer,
    buffers: Buffers,
    index: usize,
    own: Arc<OwnedFd>,
    worker: OwnedFd,
    state: Arc<State>,
    stops: Arc<AtomicBool>,
    bursts: u32,
}

impl Serving {
    /// `None` if the rings are not there.
    pub(super) fn new(
        channel: &Channel,
        index: usize,
        own: Arc<OwnedFd>,
        worker: OwnedFd,
        state: &Arc<State>,
        stops: &Arc<AtomicBool>,
    ) -> Option<Serving> {
        let (inward, outward) = channel.process_ends(index)?;
        let buffers = Buffers::new(state.pool());
        let (state, stops) = (Arc::clone(state), Arc::clone(stops));
        Some(Serving { inward, outward, buffers, index, own, worker, state, stops, bursts: 0 })
    }

    /// Starts the queue's thread; `None` if there can be no thread.
    pub(super) fn start(mut self, queue: Box<dyn Queue>) -> Option<JoinHandle<()>> {
        let name = format!("isolated {}", self.state.name().replace('\0', "?"));
        let heart_name = name.clone();
        let run = move || {
            let _ends = EndsTheProcess;
            serve(queue, &mut self, &Heartbeat::not_vital(heart_name, ROUND_MAX));
        };
        Builder::new().name(name).spawn(run).ok()
    }

    /// The switch does not break rings; if something else has, this process is of no use.
    fn of_the_switch<T>(result: Result<T, Fault>) -> T {
        result.unwrap_or_else(|fault| {
            tracing::error!("the rings of the switch are damaged: {fault}");
            std::process::abort()
        })
    }

    fn count(&mut self) {
        self.bursts += 1;
        if self.bursts >= TELL_BURSTS {
            self.bursts = 0;
            self.state.tell();
        }
    }
}

impl Exchange for Serving {
    fn room(&mut self) -> usize {
        Serving::of_the_switch(self.inward.room())
    }

    fn deliver(&mut self, packets: &mut Vec<Packet>) {
        let moved = Serving::of_the_switch(self.inward.put(packets));
        if moved.packets != 0 && self.inward.must_wake() {
            ring(&self.worker);
        }
        if moved.dropped != 0 {
            let rx_dropped = moved.dropped;
            self.state.dropped[self.index].add(&PortStats { rx_dropped, ..PortStats::default() });
        }
        self.count();
    }

    fn collect(&mut self, into: &mut Vec<Packet>, max: usize) {
        let moved = Serving::of_the_switch(self.outward.take(into, max, &mut self.buffers));
        if moved.dropped != 0 {
            let tx_dropped = moved.dropped;
            self.state.dropped[self.index].add(&PortStats { tx_dropped, ..PortStats::default() });
            if into.is_empty() {
                self.outward.release();
            }
        }
    }

    fn finished(&mut self, dropped: usize) {
        self.outward.release();
        if dropped != 0 {
            let tx_dropped = dropped as u64;
            self.state.dropped[self.index].add(&PortStats { tx_dropped, ..PortStats::default() });
        }
        self.count();
    }

    fn arm(&mut self) -> bool {
        self.state.tell();
        Serving::of_the_switch(self.outward.arm()) && !self.stops()
    }

    fn disarm(&mut self) {
        self.outward.disarm();
        // An error means that it was not signalled.
        let _ = rustix::io::read(&self.own, &mut [0; 8]);
    }

    fn file(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.own)
    }

    fn stops(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }
}
