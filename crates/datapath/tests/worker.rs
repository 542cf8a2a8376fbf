//! Workers on memory devices: where packets go and in which order, what is counted, and what workers do when idle.
//!
//! The program sends each packet to the port in its first two bytes; 0xffff is dropped.

use datapath::{EngineKind, Idle, Switch, SwitchConfig, WorkerLoad};
use ir::{BinOp, EntryKind, Fate, Op, Operand, Program, StageKind};
use pktio::{HeapPool, MemoryDevice, MemoryHandle, PoolRef};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

fn program() -> Program {
    let mut b = ir::Builder::new("by first bytes");
    let reason = b.drop_reason("asked for");
    let parser = b.begin_stage("parse", StageKind::Parser);
    let port = b.local("port", 16);
    let enough = b.local("enough", 1);
    let (long, short) = (b.block("long"), b.block("short"));
    b.emit(Op::HasBits { dst: enough, bits: Operand::new_const(32, 16) });
    b.branch(enough, long, short);
    b.switch_to(short);
    b.fate(Fate::Drop(reason));
    b.switch_to(long);
    b.emit(Op::Lookahead { dst: port, offset: 0 });
    let (send, drop) = (b.block("send"), b.block("drop"));
    let dropped = b.bin(BinOp::Eq, port, Operand::new_const(16, 0xffff));
    b.branch(dropped, drop, send);
    b.switch_to(drop);
    b.fate(Fate::Drop(reason));
    b.switch_to(send);
    let port = b.resize_u(32, port);
    b.fate(Fate::Send(port));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[parser]);
    b.finish()
}

struct Setup {
    switch: Switch,
    ports: Vec<MemoryHandle>,
    pool: PoolRef,
}

fn setup(ports: u32, config: SwitchConfig) -> Setup {
    let pool = HeapPool::shared(8192);
    let switch = Switch::new(SwitchConfig { pool: Some(Arc::clone(&pool)), ..config });
    let pipeline = datapath::load(Arc::new(program()), EngineKind::Machine, switch.workers()).expect("it is small");
    switch.set_pipeline(Some(Arc::new(pipeline))).expect("workers answer");
    let open = |number| {
        let (device, handle) = MemoryDevice::new(format!("m{number}"), Arc::clone(&pool), 1);
        switch.add_port(number, Box::new(device)).expect("a new number");
        handle
    };
    let ports = (0..ports).map(open).collect();
    Setup { switch, ports, pool }
}

fn frame(port: u16, number: u32) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..2].copy_from_slice(&port.to_be_bytes());
    frame[2..6].copy_from_slice(&number.to_be_bytes());
    frame
}

fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !ready() {
        assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn drops(switch: &Switch, reason: &str) -> u64 {
    switch.drops().iter().find(|(name, _)| name == reason).map_or(0, |(_, count)| *count)
}

/// Lets `frames` in on port 0 and waits until the worker has taken them.
fn inject(setup: &Setup, frames: impl IntoIterator<Item = Vec<u8>>) {
    for frame in frames {
        wait_for("room in the ring", || setup.ports[0].inject(&frame));
    }
}

#[test]
fn every_mix_of_ports_in_a_burst_arrives_in_order_and_all_buffers_come_back() {
    let setup = setup(4, SwitchConfig::default());
    // Runs of one port as long as a burst, alternating ports, drops and unknown ports between them.
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
    let load = setup.switch.worker_load()[0];
    assert_eq!(load.packets, 5000);
    assert!((1..=5000).contains(&load.bursts) && load.bursts >= 5000 / 64, "{load:?}");
}

#[test]
fn what_a_full_port_does_not_take_is_dropped_and_freed() {
    let setup = setup(2, SwitchConfig::default());
    // The ring of a memory device holds 4096 packets, and nobody collects.
    inject(&setup, (0..6000).map(|i| frame(1, i)));
    wait_for("drops", || drops(&setup.switch, "port full") == 6000 - 4096);
    wait_for("buffers", || setup.pool.available() == setup.pool.limit() - 4096);
    let got = setup.ports[1].collect();
    assert!(got.iter().enumerate().all(|(i, bytes)| *bytes == frame(1, i as u32)), "the first ones stay, in order");
}

#[test]
fn all_of_a_workers_time_is_accounted_for() {
    for idle in [Idle::Sleep, Idle::Busy] {
        let setup = setup(2, SwitchConfig { idle, ..SwitchConfig::default() });
        // From a moment when the worker surely runs.
        wait_for("the worker", || setup.switch.worker_load()[0].idle_cycles > 0);
        let (first, start) = (setup.switch.worker_load()[0], pktio::ticks());
        for _ in 0..20 {
            inject(&setup, (0..500).map(|i| frame(1, i)));
            std::thread::sleep(Duration::from_millis(2));
            setup.ports[1].collect();
        }
        wait_for("packets", || setup.switch.worker_load()[0].packets == 20 * 500);
        std::thread::sleep(Duration::from_millis(20));
        let (last, end) = (setup.switch.worker_load()[0], pktio::ticks());
        let passed = (end - start) as f64;
        let accounted = (last.total_cycles() - first.total_cycles()) as f64;
        // The worker may be off its processor at both ends.
        assert!((accounted / passed - 1.0).abs() < 0.3, "{idle:?}: {accounted} of {passed} cycles: {last:?}");
        let WorkerLoad { receive_cycles, pipeline_cycles, send_cycles, .. } = last;
        assert!(receive_cycles > 0 && pipeline_cycles > 0 && send_cycles > 0, "{idle:?}: {last:?}");
    }
}

/// Processor time of this process's worker threads, in the kernel's ticks (10 ms).
fn worker_ticks() -> u64 {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("Linux").flatten() {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // pid (name) state ...: the times are the 14th and 15th fields.
        let Some((name, rest)) = stat.rsplit_once(") ") else { continue };
        if name.contains("(worker-") {
            let field = |n: usize| rest.split(' ').nth(n - 3).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            sum += field(14) + field(15);
        }
    }
    sum
}

/// In a process of its own, because workers of other tests would count too.
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
    let setup = setup(2, SwitchConfig { idle: Idle::Sleep, ..SwitchConfig::default() });
    inject(&setup, [frame(1, 0)]);
    assert_eq!(setup.ports[1].collect_within(1, LIMIT).len(), 1);
    std::thread::sleep(Duration::from_millis(300));
    let before = worker_ticks();
    std::thread::sleep(Duration::from_millis(1000));
    let spent = worker_ticks() - before;
    // 100 ticks are all of the second.
    assert!(spent <= 20, "an idle worker was busy for {spent} % of a second");
    let start = Instant::now();
    inject(&setup, [frame(1, 1)]);
    assert_eq!(setup.ports[1].collect_within(1, LIMIT), [frame(1, 1)]);
    // Half a millisecond of sleep; the rest is room for a loaded machine.
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
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
