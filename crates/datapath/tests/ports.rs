//! Adding and removing ports while packets run: no packet of other ports is lost, and no resources leak.
//!
//! `SLUICE_PORT_CHANGES=10000` makes the long run; `scripts/trust-ports` does so on an optimised build.

mod common;

use common::{LIMIT, by_first_bytes, frame, wait_for};
use datapath::{EngineKind, Idle, PortOf, Switch, SwitchConfig, SwitchError};
use pktio::{HeapPool, MemoryDevice, MemoryHandle, PoolRef, PortOptions};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const INNER: &str = "DATAPATH_PORTS_TEST";

/// Runs `body` in a child process, as root in its own network namespace.
fn isolated(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INNER).is_some_and(|inner| inner == test) {
        return body();
    }
    if !Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n") {
        eprintln!("{test}: skipped, it needs root to make a network namespace and interfaces");
        return;
    }
    let this = std::env::current_exe().expect("the test has a path");
    let mut command = Command::new("unshare");
    command.arg("--net").arg(this).args([test, "--exact", "--nocapture"]).env(INNER, test);
    assert!(command.status().expect("the test starts").success(), "{test}: failed, see above");
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("`ip` runs");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

fn switch(pool: &PoolRef, workers: usize) -> Switch {
    let config = SwitchConfig { workers, idle: Idle::Sleep, pool: Some(Arc::clone(pool)), ..Default::default() };
    let switch = Switch::new(config);
    let program = datapath::load(Arc::new(by_first_bytes()), EngineKind::Machine, workers).expect("small");
    switch.set_pipeline(Some(Arc::new(program))).expect("workers answer");
    switch
}

fn memory(switch: &Switch, pool: &PoolRef, number: u32) -> MemoryHandle {
    let (port, handle) = MemoryDevice::new(format!("m{number}"), Arc::clone(pool), 1);
    switch.add_port(number, Box::new(port)).expect("a new number");
    handle
}

fn dropped(switch: &Switch, reason: &str) -> u64 {
    switch.drops().iter().find(|(name, _)| name == reason).map_or(0, |(_, count)| *count)
}

/// Open files, mappings, and resident memory in KB.
fn resources() -> (usize, usize, usize) {
    let files = std::fs::read_dir("/proc/self/fd").expect("proc is there").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("proc is there").lines().count();
    let status = std::fs::read_to_string("/proc/self/status").expect("proc is there");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|kb| kb.trim().trim_end_matches(" kB").parse().ok());
    (files, maps, resident.expect("the kernel says how much"))
}

#[test]
fn ports_come_and_go_under_load_without_a_lost_packet_or_a_leak() {
    isolated("ports_come_and_go_under_load_without_a_lost_packet_or_a_leak", || {
        let changes = std::env::var("SLUICE_PORT_CHANGES").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
        ip("link add sw0 type veth peer name host0");
        ip("link set sw0 up");
        ip("link set host0 up");
        let pool = HeapPool::shared(16_384);
        let switch = switch(&pool, 2);
        let (from, to) = (memory(&switch, &pool, 1), memory(&switch, &pool, 2));
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        let (stop, done) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut longest = (Duration::ZERO, String::new());
        let mut begun = None;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut deadline = None;
                loop {
                    received.fetch_add(to.collect().len() as u64, Ordering::Relaxed);
                    if done.load(Ordering::Acquire) {
                        let deadline = *deadline.get_or_insert_with(|| Instant::now() + LIMIT);
                        let all = received.load(Ordering::Relaxed) >= sent.load(Ordering::Relaxed);
                        if all || Instant::now() > deadline {
                            break;
                        }
                    }
                    std::thread::yield_now();
                }
            });
            scope.spawn(|| {
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    if sent.load(Ordering::Relaxed) - received.load(Ordering::Relaxed) > 1000 {
                        std::thread::yield_now();
                        continue;
                    }
                    number += 1;
                    // Some for the port that is added and removed.
                    if number % 16 == 0 {
                        from.inject(&frame(3, number));
                    }
                    if from.inject(&frame(2, number)) {
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                }
                done.store(true, Ordering::Release);
            });
            // The other threads must end whatever goes wrong.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                for i in 0..changes {
                    if i == changes / 4 {
                        begun = Some(resources());
                    }
                    let spec = ["sw0", "tap:tap9", "sw0"][i % 3];
                    let options = PortOptions { queues: 1 + (i % 2) as u16, ..PortOptions::default() };
                    let mut step = |what: &str, begin: Instant| {
                        if begin.elapsed() > longest.0 {
                            longest = (begin.elapsed(), format!("{what} {spec}"));
                        }
                    };
                    let begin = Instant::now();
                    let device = pktio_kernel::open(&spec.parse().expect("a device"), Arc::clone(&pool), &options);
                    let device = device.unwrap_or_else(|error| panic!("{spec}, change {i}: {error}"));
                    step("opening", begin);
                    let begin = Instant::now();
                    switch.add_port(3, device).expect("the number is free");
                    step("adding", begin);
                    let begin = Instant::now();
                    switch.remove_port(3).expect("it is there");
                    step("removing", begin);
                }
            }));
            stop.store(true, Ordering::Relaxed);
            if let Err(problem) = result {
                std::panic::resume_unwind(problem);
            }
        });
        assert_eq!(received.into_inner(), sent.load(Ordering::Relaxed), "every packet of other ports arrives");
        assert_eq!(dropped(&switch, "port full"), 0);
        wait_for("all buffers are back", || pool.available() == pool.limit());
        let (before, after) = (begun.expect("changes"), resources());
        let (time, step) = longest;
        eprintln!(
            "{changes} changes, {} packets, longest {time:?}, {step}: {before:?} -> {after:?}",
            sent.into_inner()
        );
        assert!(after.0 <= before.0 + 4, "files: {before:?} -> {after:?}");
        assert!(after.1 <= before.1 + 16, "mappings: {before:?} -> {after:?}");
        assert!(after.2 <= before.2 + 16_384, "memory: {before:?} -> {after:?}");
    });
}

#[test]
fn a_port_out_of_service_receives_and_sends_nothing() {
    let pool = HeapPool::shared(1024);
    let switch = switch(&pool, 1);
    let (one, two) = (memory(&switch, &pool, 1), memory(&switch, &pool, 2));
    let up = |number| switch.port_is_up(PortOf { device: 1, port: number });
    let arrives = |from: &MemoryHandle, to: &MemoryHandle, port| {
        from.inject(&frame(port, 7));
        assert_eq!(to.collect_within(1, LIMIT), [frame(port, 7)]);
    };
    arrives(&one, &two, 2);
    assert_eq!(switch.set_in_service(9, false), Err(SwitchError::NoSuchPort(9)));
    switch.set_in_service(2, false).expect("workers answer");
    assert!(!up(2) && up(1));
    let info = |number| switch.ports().into_iter().find(|port| port.number == number).expect("it is there");
    assert!(!info(2).in_service && !info(2).link.up && info(1).in_service);
    one.inject(&frame(2, 1));
    wait_for("it is dropped for its reason", || dropped(&switch, "port is down") == 1);
    // Packets received meanwhile stay lost when the port is back in service.
    two.inject(&frame(1, 1));
    wait_for("it is taken", || info(2).stats.rx_packets == 1);
    switch.poll_links();
    assert!(!up(2), "its link is up, the port is not");
    switch.set_in_service(2, true).expect("workers answer");
    assert!(up(2));
    arrives(&one, &two, 2);
    arrives(&two, &one, 1);
    // A port out of service can be removed as well, and its number reused.
    switch.set_in_service(2, false).expect("workers answer");
    switch.remove_port(2).expect("it is there");
    let two = memory(&switch, &pool, 2);
    arrives(&one, &two, 2);
}
