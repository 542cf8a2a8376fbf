use super::*;
use crate::memory::{MemoryDevice, MemoryHandle};
use crate::pool::HeapPool;
use std::sync::{Condvar, Mutex};
use std::thread::{ThreadId, current, scope, sleep};
use std::time::Instant;

const PATIENCE: Duration = Duration::from_secs(120);

/// How the peer makes the calls of its queue behave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// Nothing special.
    Honest,
    /// The next call waits for this time in a page fault, once.
    Delays(Duration),
    /// The next call waits for this time elsewhere, once, as a thread does that a signal or a debugger has stopped.
    IsStopped(Duration),
    /// The next call computes for this time, once.
    IsSlow(Duration),
    /// Calls block until this changes.
    Stops,
    /// Packets are received, but none is taken.
    TakesNothing,
}

struct Behaviour {
    peer: Mutex<Peer>,
    changed: Condvar,
    /// The calling threads, in the order of their first calls.
    callers: Mutex<Vec<ThreadId>>,
    /// Number of calls that are blocked.
    waiting: Mutex<usize>,
}

impl Behaviour {
    fn set(&self, peer: Peer) {
        *self.peer.lock().unwrap() = peer;
        self.changed.notify_all();
    }

    fn call(&self) {
        let me = current().id();
        let mut callers = self.callers.lock().unwrap();
        if !callers.contains(&me) {
            callers.push(me);
        }
        drop(callers);
        let mut peer = self.peer.lock().unwrap();
        match *peer {
            Peer::Honest | Peer::TakesNothing => {}
            Peer::Delays(time) => {
                *peer = Peer::Honest;
                drop(peer);
                sleep(time);
                page_fault();
            }
            Peer::IsStopped(time) => {
                *peer = Peer::Honest;
                drop(peer);
                sleep(time);
            }
            Peer::IsSlow(time) => {
                *peer = Peer::Honest;
                drop(peer);
                let start = Instant::now();
                while start.elapsed() < time {}
            }
            Peer::Stops => {
                *self.waiting.lock().unwrap() += 1;
                drop(self.changed.wait_while(peer, |peer| *peer == Peer::Stops).unwrap());
                *self.waiting.lock().unwrap() -= 1;
                page_fault();
            }
        }
    }
}

/// Touches a page for the first time. As in a fault that a peer holds up, the kernel counts it at its end.
#[allow(unsafe_code)]
fn page_fault() {
    const BYTES: usize = 4096;
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, which nobody else knows, is written while it is there.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), BYTES, access, kind, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        page.cast::<u8>().write_volatile(1);
        libc::munmap(page, BYTES);
    }
}

/// A queue with a peer of the given behaviour.
struct Odd {
    inner: Box<dyn Queue>,
    behaviour: Arc<Behaviour>,
}

impl Queue for Odd {
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        self.behaviour.call();
        self.inner.rx(out, max)
    }

    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        self.behaviour.call();
        if *self.behaviour.peer.lock().unwrap() == Peer::TakesNothing { 0 } else { self.inner.tx(packets) }
    }

    fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        self.behaviour.call();
        self.inner.arm(files)
    }

    fn disarm(&mut self) {
        self.behaviour.call();
        self.inner.disarm();
    }
}

struct OddDevice {
    inner: MemoryDevice,
    behaviour: Arc<Behaviour>,
    /// Whether closing waits as calls do, as a device's own thread may.
    closes_slowly: bool,
}

impl Drop for OddDevice {
    fn drop(&mut self) {
        if self.closes_slowly {
            self.behaviour.call();
        }
    }
}

impl Device for OddDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn queue_count(&self) -> u16 {
        self.inner.queue_count()
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        let odd = |inner| Box::new(Odd { inner, behaviour: Arc::clone(&self.behaviour) }) as Box<dyn Queue>;
        self.inner.take_queues().into_iter().map(odd).collect()
    }

    fn pool(&self) -> PoolRef {
        self.inner.pool()
    }

    fn link(&self) -> LinkState {
        self.inner.link()
    }

    fn stats(&self) -> PortStats {
        self.inner.stats()
    }

    fn mac(&self) -> Option<MacAddress> {
        None
    }

    fn mtu(&self) -> u16 {
        self.inner.mtu()
    }
}

struct Rig {
    device: Box<dyn Device>,
    queue: Box<dyn Queue>,
    outside: MemoryHandle,
    behaviour: Arc<Behaviour>,
    pool: PoolRef,
}

fn rig(isolates: bool) -> Rig {
    rig_with(isolates, false)
}

/// `isolates`: as if its peer had held up a worker already.
fn rig_with(isolates: bool, closes_slowly: bool) -> Rig {
    let pool = HeapPool::shared(8192);
    let (inner, outside) = MemoryDevice::new("odd", Arc::clone(&pool), 1);
    let behaviour = Arc::new(Behaviour {
        peer: Mutex::new(Peer::Honest),
        changed: Condvar::new(),
        callers: Mutex::default(),
        waiting: Mutex::default(),
    });
    let odd = Box::new(OddDevice { inner, behaviour: Arc::clone(&behaviour), closes_slowly });
    let mut device = guard_from(odd, isolates).expect("a thread is left");
    let mut queue = device.take_queues().pop().expect("it has one queue");
    if isolates {
        // The first call moves it to its thread.
        queue.disarm();
    }
    assert!(device.take_queues().is_empty(), "they are given once");
    Rig { device, queue, outside, behaviour, pool }
}

impl Rig {
    /// Receives `count` packets, whichever thread serves the queue.
    fn receive(&mut self, count: usize) -> Vec<Vec<u8>> {
        let (mut out, start) = (Vec::new(), Instant::now());
        while out.len() < count && start.elapsed() < PATIENCE {
            self.queue.rx(&mut out, count);
        }
        out.iter().map(|packet| packet.data().to_vec()).collect()
    }

    fn send(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) {
        let mut packets: Vec<_> = frames.into_iter().map(|frame| self.pool.alloc_from(&frame).unwrap()).collect();
        let start = Instant::now();
        while !packets.is_empty() && start.elapsed() < PATIENCE {
            self.queue.tx(&mut packets);
        }
        assert!(packets.is_empty());
    }

    fn callers(&self) -> Vec<ThreadId> {
        self.behaviour.callers.lock().unwrap().clone()
    }

    /// Asserts that packets pass in both directions, in order.
    fn passes(&mut self) {
        let frames: Vec<Vec<u8>> = (0..3000u32).map(|i| [&[7; 60][..], &i.to_be_bytes()].concat()).collect();
        for part in frames.chunks(500) {
            part.iter().for_each(|frame| assert!(self.outside.inject(frame)));
            assert_eq!(self.receive(part.len()), part);
            self.send(part.to_vec());
        }
        assert_eq!(self.outside.collect_within(frames.len(), PATIENCE), frames);
        crate::has_waited();
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(1));
    }
}

/// Passes packets, with slow calls in between. Returns whether the worker still serves the port.
fn is_served_by_its_worker() -> bool {
    let mut rig = rig(false);
    rig.passes();
    // A call that takes long, for example because the thread is preempted, has not waited.
    for _ in 0..3 {
        rig.behaviour.set(Peer::IsSlow(Duration::from_millis(3)));
        rig.queue.rx(&mut Vec::new(), 1);
        // The worker's own sleep is not attributed to a call.
        sleep(Duration::from_millis(3));
        // Nor is a wait that is no page fault.
        rig.behaviour.set(Peer::IsStopped(Duration::from_millis(3)));
        rig.queue.rx(&mut Vec::new(), 1);
    }
    rig.passes();
    rig.callers() == [current().id()] && rig.device.note().is_none()
}

#[test]
fn workers_serve_peers_that_hold_nobody_up() {
    // This thread sometimes waits for the allocator, which other tests use, too. Occasionally that is attributed to the
    // peer.
    assert!((0..5).any(|_| is_served_by_its_worker()));
}

#[test]
fn who_has_held_up_a_worker_holds_up_a_thread_of_its_own_from_then_on() {
    let mut rig = rig(false);
    rig.passes();
    rig.behaviour.set(Peer::Delays(Duration::from_millis(5)));
    rig.queue.rx(&mut Vec::new(), 1);
    let note = || rig.device.note().expect("it is told");
    assert!(note().starts_with("its peer held a worker up for "), "{}", note());
    wait_until("the thread begins", || note().contains("so a thread of its own serves it") && rig.callers().len() == 2);
    rig.passes();
    rig.behaviour.set(Peer::Stops);
    wait_until("the thread stands", || *rig.behaviour.waiting.lock().unwrap() == 1);
    // Without isolation the worker would block here.
    assert_eq!(rig.queue.rx(&mut Vec::new(), 1), 0);
    rig.send((0..100).map(|i| vec![i; 60]));
    rig.behaviour.set(Peer::Honest);
    assert_eq!(rig.outside.collect_within(100, PATIENCE).len(), 100);
    rig.passes();
    assert_eq!(rig.callers().len(), 2);
}

#[test]
fn it_is_noticed_whichever_call_is_held_up() {
    let calls: [fn(&mut Rig); 4] = [
        |rig| _ = rig.queue.rx(&mut Vec::new(), 1),
        |rig| _ = rig.queue.tx(&mut vec![rig.pool.alloc_from(&[1; 60]).unwrap()]),
        |rig| _ = rig.queue.arm(&mut Vec::new()),
        |rig| rig.queue.disarm(),
    ];
    for call in calls {
        let mut rig = rig(false);
        rig.behaviour.set(Peer::Delays(Duration::from_millis(5)));
        call(&mut rig);
        assert!(rig.device.note().is_some());
        wait_until("the thread serves it", || {
            rig.device.note().is_some_and(|note| note.contains("so a thread of its own serves it"))
        });
        rig.outside.collect();
        rig.passes();
    }
}

#[test]
fn it_is_noticed_on_whichever_of_several_workers() {
    let mut rig = rig(false);
    let queue = Mutex::new(&mut rig.queue);
    scope(|scope| {
        // One worker polls all the time, and another is held up.
        let polling = scope.spawn(|| (0..20_000).for_each(|_| _ = queue.lock().unwrap().rx(&mut Vec::new(), 1)));
        sleep(Duration::from_millis(1));
        let mut queue = queue.lock().unwrap();
        rig.behaviour.set(Peer::Delays(Duration::from_millis(5)));
        queue.tx(&mut vec![rig.pool.alloc_from(&[1; 60]).unwrap()]);
        drop(queue);
        polling.join().unwrap();
    });
    assert!(rig.device.note().is_some());
}

#[test]
fn short_waits_are_noticed_when_there_are_many() {
    let mut rig = rig(false);
    let mut delays = 0;
    wait_until("it is noticed", || {
        rig.behaviour.set(Peer::Delays(Duration::from_micros(300)));
        rig.queue.rx(&mut Vec::new(), 1);
        delays += 1;
        rig.device.note().is_some()
    });
    // If this thread is preempted, one wait may be long enough by itself.
    assert!(delays <= 200, "{delays}");
}

#[test]
fn all_queues_of_a_port_follow() {
    let pool = HeapPool::shared(1024);
    spawner::prepare().expect("a thread is left");
    let port = Arc::new(port::Port::new("odd", 3, false));
    let (mut inner, outside) = MemoryDevice::new("odd", Arc::clone(&pool), 3);
    let mut queues: Vec<_> = inner
        .take_queues()
        .into_iter()
        .enumerate()
        .map(|(i, queue)| GuardedQueue::new(queue, Arc::clone(&port), i))
        .collect();
    queues[1].held_up(Duration::from_millis(7));
    for (index, queue) in (0..3).zip(&mut queues) {
        assert!(outside.inject_on(index, &[index as u8; 60]));
        let mut out = Vec::new();
        wait_until("it comes by its thread", || queue.rx(&mut out, 1) != 0);
        assert!(matches!(queue.served, Served::Isolated(_)));
    }
    wait_until("three threads serve it", || port.isolated.load(Ordering::Relaxed) == 3);
    let note = port.note().expect("it is told");
    assert!(note.starts_with("its peer held a worker up for 7.0 ms, so a thread of its own"), "{note}");
    drop(queues);
    // Their ends are waited for, unless this machine is too busy to let them end in time.
    assert!(port.isolated.load(Ordering::Relaxed) == 0 || port.has_left_threads.load(Ordering::Relaxed));
}

#[test]
fn no_worker_touches_what_is_isolated() {
    let mut rig = rig(true);
    rig.passes();
    assert!(rig.callers().len() == 1 && rig.callers() != [current().id()]);
    assert_eq!(rig.device.note(), None, "that is how it was opened");
    rig.behaviour.set(Peer::Stops);
    wait_until("the thread stands", || *rig.behaviour.waiting.lock().unwrap() == 1);
    assert_eq!(rig.queue.rx(&mut Vec::new(), 1), 0);
    // The ring takes what it can hold; the rest stays with the worker.
    let room = thread::RING_MAX;
    let mut packets: Vec<_> = (0..2000).map(|_| rig.pool.alloc_from(&[1; 60]).unwrap()).collect();
    while rig.queue.tx(&mut packets) != 0 {}
    // The thread may hold one burst.
    assert!((2000 - room - 64..=2000 - room).contains(&packets.len()), "{}", packets.len());
    rig.behaviour.set(Peer::Honest);
}

#[test]
fn what_a_peer_does_not_take_is_dropped_and_counted() {
    let mut rig = rig(true);
    rig.behaviour.set(Peer::TakesNothing);
    rig.send((0..2000u32).map(|i| vec![i as u8; 60]));
    wait_until("all are dropped", || rig.device.stats().tx_dropped == 2000);
    assert!(rig.outside.collect().is_empty());
    rig.behaviour.set(Peer::Honest);
    rig.passes();
}

#[test]
fn a_worker_that_sleeps_is_woken_and_so_is_the_thread() {
    let mut rig = rig(true);
    for i in 0..20u8 {
        let mut files = Vec::new();
        wait_until("nothing is there", || rig.queue.arm(&mut files) == Wake::File);
        scope(|scope| {
            scope.spawn(|| {
                // By then the dedicated thread sleeps, too.
                sleep(Duration::from_millis(5));
                assert!(rig.outside.inject(&[i; 60]));
            });
            crate::wait(&files, PATIENCE);
        });
        rig.queue.disarm();
        assert_eq!(rig.receive(1), [vec![i; 60]]);
        rig.send([vec![i; 60]]);
        assert_eq!(rig.outside.collect_within(1, PATIENCE), [vec![i; 60]]);
    }
    assert!(rig.outside.inject(&[9; 60]));
    wait_until("it has come", || rig.queue.arm(&mut Vec::new()) == Wake::Now);
}

#[test]
fn packets_from_the_peer_wait_at_the_peer_when_the_worker_takes_none() {
    let mut rig = rig(true);
    let total = thread::RING_MAX + 3000;
    let mut injected = 0;
    wait_until("the ring is full", || {
        while injected < total && rig.outside.inject(&[1; 60]) {
            injected += 1;
        }
        injected == total && rig.outside.pending() == 3000
    });
    assert_eq!(rig.receive(total).len(), total);
    assert_eq!(rig.device.stats().rx_packets, total as u64);
}

#[test]
fn closing_a_port_does_not_wait_for_a_peer_that_holds_up_its_thread() {
    let Rig { device, queue, outside, behaviour, pool } = rig_with(true, true);
    assert!(outside.inject(&[1; 60]));
    behaviour.set(Peer::Stops);
    wait_until("the thread stands", || *behaviour.waiting.lock().unwrap() == 1);
    let closing = std::thread::spawn(|| {
        drop(queue);
        drop(device);
    });
    // Here the peer would decide when.
    wait_until("it is closed", || closing.is_finished());
    wait_until("a thread closes the device", || *behaviour.waiting.lock().unwrap() == 2);
    behaviour.set(Peer::Honest);
    // Both end, and free all that they have.
    wait_until("all is freed", || Arc::strong_count(&behaviour) == 1);
    drop((outside, pool));
}
