//! Several devices in one switch: which program a packet meets, links, rebinding of ports under load, and refused
//! requests.

mod common;

use abi::Batch;
use abi::state::{DigestMessage, PipelineState};
use base::ids::TableId;
use common::{by_first_bytes, frame, wait_for};
use datapath::executor::Executor;
use datapath::pipeline::Backend;
use datapath::{EngineKind, Idle, Pipeline, PortOf, QueuesOf, Sharing, Switch, SwitchConfig, SwitchError};
use ir::{EntryKind, Fate, Operand, Program, StageKind};
use pktio::{HeapPool, MemoryDevice, MemoryHandle, PoolRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use traffic::{Config, Limit, Node, Queue, Rate, Shaper, Size};

/// A program that sends all packets to one port.
fn always(port: u32) -> Program {
    let mut b = ir::Builder::new("always");
    let parser = b.begin_stage("parse", StageKind::Parser);
    b.fate(Fate::Send(Operand::new_const(32, u128::from(port))));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[parser]);
    b.finish()
}

fn at(device: u64, port: u32) -> PortOf {
    PortOf { device, port }
}

struct Bed {
    switch: Switch,
    pool: PoolRef,
}

impl Bed {
    fn new(workers: usize) -> Bed {
        let pool = HeapPool::shared(8192);
        let config = SwitchConfig { workers, idle: Idle::Busy, pool: Some(Arc::clone(&pool)), ..Default::default() };
        Bed { switch: Switch::new(config), pool }
    }

    fn run(&self, device: u64, program: Program) {
        let pipeline = datapath::load(Arc::new(program), EngineKind::Machine, self.switch.workers()).expect("small");
        self.switch.set_pipeline_of(device, Some(Arc::new(pipeline))).expect("workers answer");
    }

    fn port(&self, device: u64, number: u32) -> MemoryHandle {
        let queues = self.switch.workers() as u16;
        let (port, handle) = MemoryDevice::new(format!("m{number}"), Arc::clone(&self.pool), queues);
        self.switch.add_port_to(device, number, Box::new(port), Sharing::default()).expect("a new number");
        handle
    }

    fn dropped(&self, device: u64, reason: &str) -> u64 {
        self.switch.drops_of(device).iter().find(|(name, _)| name == reason).map_or(0, |(_, count)| *count)
    }

    fn all_buffers_are_back(&self) -> bool {
        self.pool.available() == self.pool.limit()
    }
}

fn collect(what: &str, port: &MemoryHandle, count: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    wait_for(what, || {
        got.extend(port.collect());
        got.len() >= count
    });
    got
}

#[test]
fn a_packet_for_which_no_port_was_chosen_is_dropped_for_that_reason() {
    let bed = Bed::new(1);
    bed.run(1, by_first_bytes());
    let from = bed.port(1, 1);
    // The value of v1model's `egress_spec` if the program does not write it.
    from.inject(&frame(0, 1));
    wait_for("the drop", || bed.dropped(1, "no egress port chosen") == 1);
    assert_eq!(bed.dropped(1, "no such port"), 0);
    // If port 0 exists, the packet is sent there.
    let zero = bed.port(1, 0);
    from.inject(&frame(0, 2));
    assert_eq!(collect("port 0", &zero, 1), [frame(0, 2)]);
    assert_eq!(bed.dropped(1, "no egress port chosen"), 1);
}

#[test]
fn a_packet_meets_the_program_of_its_ports_device_and_only_that_devices_ports() {
    let bed = Bed::new(1);
    bed.switch.add_device(7).unwrap();
    bed.run(1, by_first_bytes());
    bed.run(7, always(4));
    let ports = [bed.port(1, 1), bed.port(1, 2), bed.port(7, 3), bed.port(7, 4)];
    ports[0].inject(&frame(2, 1));
    ports[2].inject(&frame(2, 2));
    assert_eq!(collect("device 1", &ports[1], 1), [frame(2, 1)]);
    assert_eq!(collect("device 7", &ports[3], 1), [frame(2, 2)]);
    // Port 4 belongs to another device.
    ports[0].inject(&frame(4, 3));
    wait_for("the drop", || bed.dropped(1, "no such port") == 1);
    assert_eq!(bed.dropped(7, "no such port"), 0);
    bed.switch.inject_into(7, 510, frame(2, 4)).unwrap();
    assert_eq!(collect("an injected packet", &ports[3], 1), [frame(2, 4)]);
}

#[test]
fn links_keep_order_and_lose_nothing() {
    for workers in [1, 2] {
        let bed = Bed::new(workers);
        bed.switch.add_device(2).unwrap();
        bed.switch.add_device(3).unwrap();
        bed.run(1, by_first_bytes());
        bed.run(2, by_first_bytes());
        bed.run(3, by_first_bytes());
        let (first, last, side) = (bed.port(1, 1), bed.port(3, 11), bed.port(2, 12));
        bed.switch.link(at(1, 11), at(2, 1)).unwrap();
        bed.switch.link(at(1, 12), at(2, 2)).unwrap();
        bed.switch.link(at(2, 11), at(3, 1)).unwrap();
        let (mut far, mut near) = (Vec::new(), Vec::new());
        let (mut got_far, mut got_near) = (Vec::new(), Vec::new());
        for i in 0..20_000 {
            let to = if i / 100 % 3 == 0 { 12 } else { 11 };
            let sent = if to == 12 { &mut near } else { &mut far };
            sent.push(frame(to, i));
            wait_for("room", || first.inject(&frame(to, i)));
            got_far.extend(last.collect());
            got_near.extend(side.collect());
        }
        wait_for("all packets", || {
            got_far.extend(last.collect());
            got_near.extend(side.collect());
            got_far.len() + got_near.len() >= 20_000
        });
        if workers == 1 {
            assert!(got_far == far && got_near == near, "each port gets its packets in order");
        } else {
            // The memory device distributes packets to its queues in turn, so workers overtake one another.
            for (got, sent) in [(&mut got_far, &mut far), (&mut got_near, &mut near)] {
                got.sort();
                sent.sort();
                assert!(got == sent, "each port gets its packets");
            }
        }
        wait_for("buffers", || bed.all_buffers_are_back());
        // A burst is counted after it was transmitted.
        let received = || bed.switch.worker_load().iter().map(|load| load.packets).sum::<u64>();
        wait_for("the count", || received() >= 20_000);
        assert_eq!(received(), 20_000, "received once");
        let packets: Vec<u64> = bed.switch.links().iter().map(|link| link.packets).collect();
        assert_eq!(packets, [far.len() as u64, near.len() as u64, far.len() as u64]);
        assert_eq!(bed.switch.links()[0].bytes, far.len() as u64 * 60);
    }
}

#[test]
fn circles_end() {
    let bed = Bed::new(1);
    bed.switch.add_device(2).unwrap();
    bed.run(1, by_first_bytes());
    bed.run(2, always(5));
    let port = bed.port(1, 1);
    bed.switch.link(at(1, 10), at(2, 5)).unwrap();
    bed.switch.link(at(2, 5), at(1, 10)).unwrap();
    for i in 0..300 {
        wait_for("room", || port.inject(&frame(10, i)));
    }
    // Sixteen links are crossed: the next one would lead into device 2 again.
    wait_for("drops", || bed.dropped(2, "too many links") == 300);
    assert_eq!(bed.dropped(1, "too many links"), 0);
    let packets: Vec<u64> = bed.switch.links().iter().map(|link| link.packets).collect();
    assert_eq!(packets, [300 * 9, 300 * 8]);
    wait_for("buffers", || bed.all_buffers_are_back());
}

#[test]
fn circles_of_links_with_queues_end_and_new_packets_are_not_dropped_with_old_ones() {
    for workers in [1, 2] {
        let bed = Bed::new(workers);
        bed.switch.add_device(2).unwrap();
        bed.run(1, by_first_bytes());
        bed.run(2, by_first_bytes());
        let (port, out) = (bed.port(1, 1), bed.port(2, 7));
        bed.switch.link(at(1, 10), at(2, 10)).unwrap();
        bed.switch.link(at(2, 10), at(1, 10)).unwrap();
        bed.switch.link(at(1, 7), at(2, 1)).unwrap();
        for from in [at(1, 10), at(2, 10), at(1, 7)] {
            bed.switch.set_queues_of(QueuesOf::Link(from), Some(Config::fifo())).unwrap();
        }
        for i in 0..300 {
            wait_for("room", || port.inject(&frame(10, i)));
            wait_for("room", || port.inject(&frame(7, i)));
        }
        wait_for("drops", || bed.dropped(2, "too many links") + bed.dropped(1, "queue full") == 300);
        assert_eq!(bed.dropped(1, "queue full"), 0);
        assert_eq!(collect("others", &out, 300).len(), 300);
        let packets: Vec<u64> = bed.switch.links().iter().map(|link| link.packets).collect();
        assert_eq!(packets, [300 * 9, 300 * 8, 300]);
        wait_for("buffers", || bed.all_buffers_are_back());
    }
}

#[test]
fn packets_wait_in_the_queues_of_a_link_as_in_a_ports() {
    for workers in [1, 2] {
        let bed = Bed::new(workers);
        bed.switch.add_device(2).unwrap();
        bed.run(1, by_first_bytes());
        bed.run(2, by_first_bytes());
        let (first, last) = (bed.port(1, 1), bed.port(2, 11));
        let of = QueuesOf::Link(at(1, 11));
        let error = bed.switch.set_queues_of(of, Some(Config::fifo())).unwrap_err().to_string();
        assert_eq!(error, "no link begins at port 11 of device 1; there are no links");
        bed.switch.link(at(1, 11), at(2, 1)).unwrap();
        assert!(bed.switch.queues_of(of).unwrap().is_none());
        // One frame in 48 seconds, after the first 25.
        let mut slow = Config::new(vec![Queue::with_limit(Limit::packets(500))], Node::queue(0));
        slow.root.shaper = Some(Shaper { rate: Rate(10), burst: Some(Size(1518)) });
        bed.switch.set_queues_of(of, Some(slow.clone())).unwrap();
        for i in 0..400 {
            wait_for("room", || first.inject(&frame(11, i)));
        }
        let queue = || bed.switch.queues_of(of).unwrap().unwrap().statistics[0].clone();
        wait_for("all of them", || queue().accepted.packets == 400);
        assert!(queue().depth.packets > 350 && bed.switch.links()[0].packets < 50);
        // Without a shaper: in order, and none is lost.
        bed.switch.set_queues_of(of, Some(Config::fifo())).unwrap();
        let got = collect("all of them", &last, 400);
        assert!(got.iter().enumerate().all(|(i, bytes)| *bytes == frame(11, i as u32)), "in order");
        assert_eq!((queue().sent.packets, bed.switch.links()[0].packets), (400, 400));
        // Waiting packets cross when the queues are removed, and when the link is.
        for take_away in [false, true] {
            bed.switch.set_queues_of(of, Some(slow.clone())).unwrap();
            for i in 0..300 {
                wait_for("room", || first.inject(&frame(11, i)));
            }
            wait_for("all of them", || first.pending() == 0 && queue().depth.packets >= 270);
            match take_away {
                false => bed.switch.set_queues_of(of, None).unwrap(),
                true => bed.switch.unlink(at(1, 11)).unwrap(),
            }
            let got = collect("all of them", &last, 300);
            assert!(got.iter().enumerate().all(|(i, bytes)| *bytes == frame(11, i as u32)), "in order");
        }
        wait_for("buffers", || bed.all_buffers_are_back());
    }
}

#[test]
fn a_link_into_a_device_without_program_drops_there() {
    let bed = Bed::new(1);
    bed.switch.add_device(2).unwrap();
    bed.run(1, always(10));
    let port = bed.port(1, 1);
    bed.switch.link(at(1, 10), at(2, 1)).unwrap();
    port.inject(&frame(0, 0));
    wait_for("the drop", || bed.dropped(2, "no program") == 1);
    wait_for("buffers", || bed.all_buffers_are_back());
}

#[test]
fn binding_a_port_anew_loses_no_packet_of_any_port() {
    let bed = Bed::new(2);
    bed.switch.add_device(2).unwrap();
    bed.run(1, always(1));
    bed.run(2, always(2));
    let (stays, out, other_out, moves) = (bed.port(1, 0), bed.port(1, 1), bed.port(2, 2), bed.port(1, 3));
    let done = AtomicU32::new(0);
    let (mut sent, mut got, mut by) = (0_u64, 0_u64, [0_u64; 2]);
    std::thread::scope(|s| {
        s.spawn(|| {
            for i in 0..200 {
                bed.switch.bind(3, if i % 2 == 0 { 2 } else { 1 }).expect("workers answer");
            }
            done.store(1, Ordering::Release);
        });
        let mut more = true;
        while more || got < sent {
            more = done.load(Ordering::Acquire) == 0;
            // Fewer in flight than a ring holds, so that none is dropped for lack of room.
            while more && sent - got < 1024 && stays.inject(&frame(0, 0)) && moves.inject(&frame(0, 1)) {
                sent += 2;
            }
            for (port, count) in [&out, &other_out].into_iter().zip(&mut by) {
                let packets = port.collect().len() as u64;
                *count += packets;
                got += packets;
            }
            std::thread::yield_now();
        }
    });
    assert_eq!(got, sent);
    assert!(by[0] >= sent / 2, "the port that stays is never without its device");
    assert_eq!(bed.switch.drops().iter().map(|(_, packets)| packets).sum::<u64>(), 0);
    // From here on the binding is certain.
    bed.switch.bind(3, 2).unwrap();
    moves.inject(&frame(0, 2));
    assert_eq!(collect("a packet by device 2", &other_out, 1), [frame(0, 2)]);
}

#[test]
fn what_cannot_be_done_is_refused_and_says_why() {
    let bed = Bed::new(1);
    let says = |done: Result<(), SwitchError>| done.expect_err("refused").to_string();
    let switch = &bed.switch;
    switch.add_device(2).unwrap();
    let _ports = [bed.port(1, 1), bed.port(2, 2)];
    assert_eq!(says(switch.add_device(2)), "there is a device 2 already");
    assert_eq!(says(switch.add_device(0)), "0 is not a device id: P4Runtime takes it for the server itself");
    assert_eq!(says(switch.bind(9, 2)), "there is no port 9");
    assert_eq!(says(switch.bind(1, 9)), "there is no device 9; there are devices 1, 2");
    assert_eq!(says(switch.bind(2, 2)), "port 2 is bound to device 2 already");
    assert_eq!(says(switch.link(at(1, 1), at(2, 5))), "port 1 of device 1 is taken: port 1 is bound to the device");
    assert_eq!(says(switch.link(at(1, 5), at(3, 5))), "there is no device 3; there are devices 1, 2");
    switch.link(at(1, 10), at(2, 1)).unwrap();
    let link = "the link from port 10 of device 1 to port 1 of device 2";
    assert_eq!(says(switch.link(at(1, 10), at(2, 3))), format!("port 10 of device 1 is taken: {link}"));
    assert_eq!(says(switch.link(at(2, 7), at(1, 10))), format!("port 10 of device 1 is taken: {link}"));
    assert_eq!(says(switch.bind(1, 2)), format!("port 1 of device 2 is taken: {link}"));
    assert_eq!(says(switch.unlink(at(2, 1))), format!("no link begins at port 1 of device 2; there is {link}"));
    // The opposite direction between the same ports: a cable.
    switch.link(at(2, 1), at(1, 10)).unwrap();
    switch.unlink(at(2, 1)).unwrap();
    let in_use = format!("device 2 still has port 2, {link}; bind ports to another device and unchain links first");
    assert_eq!(says(switch.remove_device(2)), in_use);
    switch.unlink(at(1, 10)).unwrap();
    assert_eq!(says(switch.unlink(at(1, 10))), "no link begins at port 10 of device 1; there are no links");
    switch.bind(2, 1).unwrap();
    switch.remove_device(2).unwrap();
    assert_eq!(switch.devices(), [1]);
    // The first device is like the others.
    let ports = "device 1 still has port 1, port 2; bind ports to another device and unchain links first";
    assert_eq!(says(switch.remove_device(1)), ports);
    switch.remove_port(1).unwrap();
    switch.remove_port(2).unwrap();
    switch.remove_device(1).unwrap();
    assert_eq!(switch.devices(), []);
    assert_eq!(says(switch.set_pipeline(None)), "there is no device 1; there are no devices");
    switch.add_device(1).unwrap();
    switch.set_pipeline(None).unwrap();
}

/// A backend that runs nothing, and counts how often its executor is taken offline.
struct Counting {
    state: Arc<dyn PipelineState>,
    let_go: Arc<AtomicU32>,
}

struct CountingExecutor(Arc<AtomicU32>);

impl Executor for CountingExecutor {
    fn run(&mut self, _: EntryKind, batch: &mut Batch) {
        let count = batch.count as usize;
        for packet in &mut batch.packets[..count] {
            packet.fate = abi::packet::FateCode::Drop as u32;
            packet.fate_arg = 0;
        }
    }

    fn quiescent(&mut self) {}

    fn idle(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Backend for Counting {
    fn executor(&self, _: usize) -> Box<dyn Executor> {
        Box::new(CountingExecutor(Arc::clone(&self.let_go)))
    }

    fn state(&self) -> &Arc<dyn PipelineState> {
        &self.state
    }

    fn take_digests(&self) -> Vec<DigestMessage> {
        vec![]
    }

    fn table_counters(&self, _: TableId) -> Option<(u64, u64)> {
        None
    }

    fn take_logs(&self) -> Vec<String> {
        vec![]
    }

    fn housekeeping(&self, _: u64) {}
}

#[test]
fn a_quiet_device_is_let_go_of_while_another_is_busy() {
    let bed = Bed::new(1);
    bed.switch.add_device(2).unwrap();
    let program = Arc::new(always(1));
    let counted = [Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0))];
    for (device, let_go) in [1, 2].into_iter().zip(&counted) {
        let state = Arc::new(interp::State::new(Arc::clone(&program)));
        let backend = Counting { state, let_go: Arc::clone(let_go) };
        let pipeline = Pipeline::new(Arc::clone(&program), Box::new(backend), 1);
        bed.switch.set_pipeline_of(device, Some(Arc::new(pipeline))).unwrap();
    }
    let (busy, quiet) = (bed.port(1, 1), bed.port(2, 2));
    // Device 1 gets packets all the time, so the worker as a whole is never idle for long.
    let feed_until = |what: &str, done: &dyn Fn() -> bool| {
        wait_for(what, || {
            busy.inject(&frame(0, 0));
            done()
        });
    };
    let let_go = || counted[1].load(Ordering::Relaxed);
    let before = let_go();
    quiet.inject(&frame(0, 0));
    feed_until("device 2 is let go of", &|| let_go() > before);
    // And again after its next packet.
    let before = let_go();
    quiet.inject(&frame(0, 0));
    feed_until("device 2 is let go of again", &|| let_go() > before);
}
