//! Workers on memory devices: destinations and order of packets, counters, and behaviour when idle.
//!
//! The program sends each packet to the port in its first two bytes; 0xffff is dropped.

mod common;

use common::{LIMIT, by_first_bytes, frame, wait_for};
use datapath::{EngineKind, Idle, Switch, SwitchConfig, WorkerLoad};
use pktio::{
    Bell, Device, HeapPool, LinkState, MacAddress, MemoryDevice, MemoryHandle, Packet, PoolRef, PortStats, Queue, Wake,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

struct Setup {
    switch: Switch,
    ports: Vec<MemoryHandle>,
    pool: PoolRef,
}

fn setup(ports: u32, config: SwitchConfig) -> Setup {
    let pool = HeapPool::shared(8192);
    let switch = Switch::new(SwitchConfig { pool: Some(Arc::clone(&pool)), ..config });
    let pipeline =
        datapath::load(Arc::new(by_first_bytes()), EngineKind::Machine, switch.workers()).expect("it is small");
    switch.set_pipeline(Some(Arc::new(pipeline))).expect("workers answer");
    let open = |number| {
        let (device, handle) = MemoryDevice::new(format!("m{number}"), Arc::clone(&pool), 1);
        switch.add_port(number, Box::new(device)).expect("a new number");
        handle
    };
    let ports = (0..ports).map(open).collect();
    Setup { switch, ports, pool }
}

fn drops(switch: &Switch, reason: &str) -> u64 {
    switch.drops().iter().find(|(name, _)| name == reason).map_or(0, |(_, count)| *count)
}

/// Injects `frames` on port 0 and waits until the worker has received them.
fn inject(setup: &Setup, frames: impl IntoIterator<Item = Vec<u8>>) {
    for frame in frames {
        wait_for("room in the ring", || setup.ports[0].inject(&frame));
    }
}

#[test]
fn every_mix_of_ports_in_a_burst_arrives_in_order_and_all_buffers_come_back() {
    let setup = setup(4, SwitchConfig::default());
    // Bursts to one port, alternating ports, and drops and unknown ports in between.
    let to = |i: u32| match i / 1000 {
        0 => 1,
        1 => [1, 2, 3][i as usize % 3],
        2 => [1, 0xffff, 2, 77][i as usize % 4],
        3 => 0xffff,
        _ => (i / 64 % 4) as u16,
    };
    let mut sent: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 4];
    let (mut asked, mut unknown) = (0, 0);
    let mut got: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 4];
    for i in 0..5000 {
        let port = to(i);
        match port {
            0xffff => asked += 1,
            77 => unknown += 1,
            port => sent[port as usize].push(frame(port, i)),
        }
        inject(&setup, [frame(port, i)]);
        for (port, got) in setup.ports.iter().zip(&mut got) {
            got.extend(port.collect());
        }
    }
    wait_for("all packets", || {
        for (port, got) in setup.ports.iter().zip(&mut got) {
            got.extend(port.collect());
        }
        got.iter().map(Vec::len).sum::<usize>() as u64 + asked + unknown >= 5000
            && drops(&setup.switch, "asked for") == asked
    });
    assert!(got == sent, "each port gets its packets, unchanged and in order");
    wait_for("the unknown port's drops", || drops(&setup.switch, "no such port") == unknown);
    wait_for("all buffers", || setup.pool.available() == setup.pool.limit());
    // A burst is counted after it was transmitted.
    wait_for("the count", || setup.switch.worker_load()[0].packets >= 5000);
    let load = setup.switch.worker_load()[0];
    assert_eq!(load.packets, 5000);
    assert!((1..=5000).contains(&load.bursts) && load.bursts >= 5000 / 64, "{load:?}");
}

#[test]
fn what_a_full_port_does_not_take_is_dropped_and_freed() {
    let setup = setup(2, SwitchConfig::default());
    // A memory device's ring holds 4096 packets, and nobody drains it.
    inject(&setup, (0..6000).map(|i| frame(1, i)));
    wait_for("drops", || drops(&setup.switch, "port full") == 6000 - 4096);
    wait_for("buffers", || setup.pool.available() == setup.pool.limit() - 4096);
    let got = setup.ports[1].collect();
    assert!(got.iter().enumerate().all(|(i, bytes)| *bytes == frame(1, i as u32)), "the first ones stay, in order");
}

/// The first worker's counters, with a time before and a time after its last accounting.
struct Mark {
    load: WorkerLoad,
    after: u64,
    before: u64,
}

/// Sends two packets in sequence: when the second is counted, all cycles of the first one's burst are, however often
/// the worker and this thread are preempted meanwhile.
fn mark(setup: &Setup) -> Mark {
    let after = pktio::ticks();
    let packets = || setup.switch.worker_load()[0].packets;
    for _ in 0..2 {
        let counted = packets();
        inject(setup, [frame(1, 0)]);
        wait_for("the packet", || packets() > counted);
    }
    let load = setup.switch.worker_load()[0];
    Mark { load, after, before: pktio::ticks() }
}

#[test]
fn all_of_a_workers_time_is_accounted_for() {
    for idle in [Idle::Sleep, Idle::Busy, Idle::Interrupt] {
        let setup = setup(2, SwitchConfig { idle, ..SwitchConfig::default() });
        let first = mark(&setup);
        // Both ends are uncertain, more so on a busy machine: continue until the uncertainty is small compared with
        // the interval.
        let last = loop {
            inject(&setup, (0..500).map(|i| frame(1, i)));
            std::thread::sleep(Duration::from_millis(2));
            setup.ports[1].collect();
            let last = mark(&setup);
            let between = last.after - first.before;
            if (first.before - first.after).max(last.before - last.after) < between / 20 {
                break last;
            }
        };
        let accounted = last.load.total_cycles() - first.load.total_cycles();
        let (least, most) = (last.after - first.before, last.before - first.after);
        assert!(
            (least..=most).contains(&accounted),
            "{idle:?}: {accounted} of {least} to {most} cycles: {:?}",
            last.load
        );
        let WorkerLoad { receive_cycles, pipeline_cycles, send_cycles, idle_cycles, .. } = last.load;
        assert!(receive_cycles > 0 && pipeline_cycles > 0 && send_cycles > 0, "{idle:?}: {:?}", last.load);
        assert!(idle_cycles > 0, "{idle:?}: {:?}", last.load);
    }
}

/// Resource usage of this process's worker threads.
struct Use {
    /// Processor time in the kernel's ticks (10 ms).
    ticks: u64,
    /// Number of voluntary context switches.
    sleeps: u64,
}

fn worker_use() -> Use {
    let mut sum = Use { ticks: 0, sleeps: 0 };
    for task in std::fs::read_dir("/proc/self/task").expect("Linux").flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let stat = read("stat");
        // pid (name) state ...: the times are the 14th and 15th fields.
        let Some((name, rest)) = stat.rsplit_once(") ") else { continue };
        if name.contains("(worker-") {
            let field = |n: usize| rest.split(' ').nth(n - 3).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            sum.ticks += field(14) + field(15);
            let status = read("status");
            let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sum.sleeps += sleeps.and_then(|n| n.trim().parse::<u64>().ok()).expect("Linux says so");
        }
    }
    sum
}

/// Runs in a process of its own, because workers of other tests would be counted, too.
#[test]
fn an_idle_switch_sleeps_and_still_forwards_at_once() {
    const TEST: &str = "an_idle_switch_sleeps_and_still_forwards_at_once";
    if std::env::var_os("DATAPATH_TEST_ALONE").is_none() {
        let this = std::env::current_exe().expect("the test has a path");
        let mut command = std::process::Command::new(this);
        let status = command.args([TEST, "--exact", "--nocapture"]).env("DATAPATH_TEST_ALONE", "1").status();
        assert!(status.expect("the test runs again").success(), "see above");
        return;
    }
    for idle in [Idle::Sleep, Idle::Interrupt] {
        let setup = setup(2, SwitchConfig { idle, ..SwitchConfig::default() });
        inject(&setup, [frame(1, 0)]);
        assert_eq!(setup.ports[1].collect_within(1, LIMIT).len(), 1);
        // On a busy machine it may take several readings until one reflects the worker alone.
        wait_for(&format!("an idle worker sleeps, {idle:?}"), || {
            let (start, before) = (Instant::now(), worker_use());
            std::thread::sleep(Duration::from_millis(500));
            let (now, centiseconds) = (worker_use(), start.elapsed().as_millis() as u64 / 10);
            // With interrupts a worker wakes ten times a second, sleeping between polls two thousand times.
            let wakes_seldom = idle == Idle::Sleep || now.sleeps - before.sleeps <= centiseconds;
            wakes_seldom && now.ticks - before.ticks <= centiseconds / 4
        });
        // Half a millisecond of sleep, or none; the rest is tolerance for a loaded machine.
        wait_for(&format!("packets wake it, {idle:?}"), || {
            let start = Instant::now();
            inject(&setup, [frame(1, 1)]);
            assert_eq!(setup.ports[1].collect_within(1, LIMIT), [frame(1, 1)]);
            start.elapsed() < Duration::from_millis(500)
        });
    }
}

/// A queue whose file descriptor is never readable, so that only commands, or the longest wait, wake its worker.
struct Silent {
    file: Arc<OwnedFd>,
    polls: Arc<AtomicU64>,
}

impl Queue for Silent {
    fn rx(&mut self, _: &mut Vec<Packet>, _: usize) -> usize {
        self.polls.fetch_add(1, Ordering::Relaxed);
        0
    }

    fn tx(&mut self, _: &mut Vec<Packet>) -> usize {
        0
    }

    fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        files.push(Arc::clone(&self.file));
        Wake::File
    }
}

struct SilentDevice {
    queue: Option<Box<dyn Queue>>,
    pool: PoolRef,
}

impl Device for SilentDevice {
    fn name(&self) -> &str {
        "silent"
    }
    fn kind(&self) -> &'static str {
        "silent"
    }
    fn queue_count(&self) -> u16 {
        1
    }
    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        self.queue.take().into_iter().collect()
    }
    fn pool(&self) -> PoolRef {
        Arc::clone(&self.pool)
    }
    fn link(&self) -> LinkState {
        LinkState::default()
    }
    fn stats(&self) -> PortStats {
        PortStats::default()
    }
    fn mac(&self) -> Option<MacAddress> {
        None
    }
    fn mtu(&self) -> u16 {
        1500
    }
}

/// A queue whose poll takes a millisecond and finds no packet, like one with invalid descriptors.
struct Slow(Arc<AtomicU64>);

impl Queue for Slow {
    fn rx(&mut self, _: &mut Vec<Packet>, _: usize) -> usize {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        0
    }

    fn tx(&mut self, _: &mut Vec<Packet>) -> usize {
        0
    }
}

/// The finding: it had a turn before each burst of the others.
#[test]
fn a_port_that_costs_much_time_does_not_have_a_turn_for_each_burst_of_the_others() {
    let setup = setup(2, SwitchConfig { idle: Idle::Busy, ..SwitchConfig::default() });
    let turns = Arc::new(AtomicU64::new(0));
    let device = SilentDevice { queue: Some(Box::new(Slow(Arc::clone(&turns)))), pool: Arc::clone(&setup.pool) };
    setup.switch.add_port(7, Box::new(device)).expect("a new number");
    wait_for("it has its turns while nobody else wants any", || turns.load(Ordering::Relaxed) >= 10);
    // On a busy machine the bursts may take long, too.
    wait_for("others have more bursts than it has turns", || {
        inject(&setup, (0..4096).map(|i| frame(1, i)));
        let before = turns.load(Ordering::Relaxed);
        assert_eq!(setup.ports[1].collect_within(4096, LIMIT).len(), 4096);
        turns.load(Ordering::Relaxed) - before < 4096 / 64 / 2
    });
}

/// A queue that never has a packet; records the most packets that another queue was sent between two polls of it.
struct Between {
    sent: Arc<AtomicU64>,
    before: u64,
    most: Arc<AtomicU64>,
}

impl Queue for Between {
    fn rx(&mut self, _: &mut Vec<Packet>, _: usize) -> usize {
        let sent = self.sent.load(Ordering::Relaxed);
        self.most.fetch_max(sent - self.before, Ordering::Relaxed);
        self.before = sent;
        0
    }

    fn tx(&mut self, _: &mut Vec<Packet>) -> usize {
        0
    }
}

/// A queue that counts the packets it is sent.
struct Counting(Arc<AtomicU64>);

impl Queue for Counting {
    fn rx(&mut self, _: &mut Vec<Packet>, _: usize) -> usize {
        0
    }

    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        self.0.fetch_add(packets.len() as u64, Ordering::Relaxed);
        packets.drain(..).count()
    }
}

/// The finding: all 1,024 waiting packet-outs ran before a port was polled again, each with the work that a burst may
/// cause.
#[test]
fn packet_outs_do_not_keep_ports_waiting_for_more_than_a_burst() {
    let setup = setup(0, SwitchConfig::default());
    let (sent, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let queues: [Box<dyn Queue>; 2] = [
        Box::new(Between { sent: Arc::clone(&sent), before: 0, most: Arc::clone(&most) }),
        Box::new(Counting(Arc::clone(&sent))),
    ];
    for (number, queue) in (1..).zip(queues) {
        let device = SilentDevice { queue: Some(queue), pool: Arc::clone(&setup.pool) };
        setup.switch.add_port(number, Box::new(device)).expect("a new number");
    }
    let held = setup.switch.hold().expect("workers answer");
    let taken = (0..).take_while(|i| setup.switch.inject(1, frame(2, *i)).is_ok()).count() as u64;
    assert_eq!(taken, 1024);
    drop(held);
    wait_for("all are sent", || sent.load(Ordering::Relaxed) == taken);
    let most = most.load(Ordering::Relaxed);
    assert!(most <= 64, "{most} packets between two looks at a port");
    assert!(setup.switch.inject(1, frame(2, 0)).is_ok(), "there is room again");
}

/// A queue for which each transmit attempt takes a millisecond and accepts nothing, like one whose buffers are in
/// many pieces.
struct CostlyToSendTo(Arc<AtomicU64>);

impl Queue for CostlyToSendTo {
    fn rx(&mut self, _: &mut Vec<Packet>, _: usize) -> usize {
        0
    }

    fn tx(&mut self, _: &mut Vec<Packet>) -> usize {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        0
    }
}

/// The finding: it had four attempts for each burst, charged to the ports that sent to it.
#[test]
fn a_port_that_is_costly_to_send_to_is_not_tried_again_and_again_while_others_wait() {
    let setup = setup(2, SwitchConfig { idle: Idle::Busy, ..SwitchConfig::default() });
    let tries = Arc::new(AtomicU64::new(0));
    let queue = CostlyToSendTo(Arc::clone(&tries));
    let device = SilentDevice { queue: Some(Box::new(queue)), pool: Arc::clone(&setup.pool) };
    setup.switch.add_port(7, Box::new(device)).expect("a new number");
    // One frame of each burst goes to it. On a busy machine the worker's own bursts may take as long as the attempts.
    wait_for("most bursts have one try", || {
        let before = tries.load(Ordering::Relaxed);
        inject(&setup, (0..4096).map(|i| frame(if i % 64 == 0 { 7 } else { 1 }, i)));
        assert_eq!(setup.ports[1].collect_within(4032, LIMIT).len(), 4032);
        wait_for("its tries are over", || setup.switch.worker_load()[0].packets.is_multiple_of(4096));
        tries.load(Ordering::Relaxed) - before < 3 * 64
    });
}

#[test]
fn commands_wake_a_worker_that_waits_and_silent_ports_do_not() {
    let setup = setup(1, SwitchConfig { idle: Idle::Interrupt, ..SwitchConfig::default() });
    let bell = Bell::new().expect("there are files left");
    let polls = Arc::new(AtomicU64::new(0));
    let queue = Silent { file: bell.file(), polls: Arc::clone(&polls) };
    let device = SilentDevice { queue: Some(Box::new(queue)), pool: Arc::clone(&setup.pool) };
    setup.switch.add_port(7, Box::new(device)).expect("a new number");
    // It polls a few thousand times, then sleeps: ten polls a second remain.
    wait_for("silent ports let it sleep", || {
        let (start, before) = (Instant::now(), polls.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(500));
        let polled = polls.load(Ordering::Relaxed) - before;
        u128::from(polled) <= start.elapsed().as_millis() / 100 + 3
    });
    // A change of ports waits for the worker, which would otherwise sleep for 100 ms: if twenty changes take less
    // than 300 ms, none waited for that. On a busy machine some attempts are longer for other reasons.
    wait_for("commands wake it", || {
        let mut waited = Duration::ZERO;
        for _ in 0..10 {
            wait_for("it sleeps", || {
                let before = polls.load(Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
                polls.load(Ordering::Relaxed) == before
            });
            let (device, _handle) = MemoryDevice::new("m", Arc::clone(&setup.pool), 1);
            let start = Instant::now();
            setup.switch.add_port(8, Box::new(device)).expect("a new number");
            waited += start.elapsed();
            wait_for("it sleeps again", || {
                let before = polls.load(Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
                polls.load(Ordering::Relaxed) == before
            });
            let start = Instant::now();
            setup.switch.remove_port(8).expect("it is there");
            waited += start.elapsed();
        }
        waited < Duration::from_millis(300)
    });
}

#[test]
fn no_packet_runs_while_workers_are_held_and_none_is_lost() {
    let setup = setup(2, SwitchConfig { workers: 2, ..SwitchConfig::default() });
    let arrived = |wanted: usize| {
        let mut got = 0;
        wait_for("frames", || {
            got += setup.ports[1].collect().len();
            got == wanted
        });
    };
    for _ in 0..20 {
        inject(&setup, (0..10).map(|i| frame(1, i)));
        arrived(10);
        let held = setup.switch.hold().expect("workers answer");
        inject(&setup, (0..10).map(|i| frame(1, i)));
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(setup.ports[1].collect().len(), 0);
        drop(held);
        arrived(10);
    }
}
