//! Egress queues: the same packets, queue metadata and order on every engine, also when code is recompiled while
//! packets wait; and in the running switch priorities, full ports, and ports and programs that change while packets
//! wait.

mod common;

use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::TableId;
use common::{by_first_bytes, frame, wait_for};
use datapath::drops::DropReason;
use datapath::engine::{Arrival, Departure, Engine, Passage, Sink, WORK_MAX};
use datapath::replication::{CloneSession, Replica, Replication};
use datapath::{EngineKind, Idle, Pipeline, PortOf, QueuesOf, Sharing, Specialise, Switch, SwitchConfig, SwitchError};
use frontend::{Input, Until};
use pktio::{HeapPool, MemoryDevice, MemoryHandle, Packet, Pool, PoolRef};
use random::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use traffic::{Config, Limit, PortQueues, Queue, Rate, Shaper, Size, Taken};

const PROGRAM: &str = r#"
#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<16> to;
    bit<8>  class;
    bit<8>  what;       // 1 clone, 2 multicast, 4 drop, 8 clone in egress, 16 recirculate, 32 resubmit
    bit<32> number;
    bit<16> came_by;
    bit<16> kind;
    bit<16> rid;
    bit<16> told;
    bit<8>  class_then;
    bit<32> enqueued;
    bit<32> waited;
    bit<32> before;
    bit<32> behind;
}
struct headers_t { ask_t ask; }
struct meta_t { @field_list(1) bit<8> rounds; bit<16> told; bit<48> note; }

parser MyParser(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { pkt.extract(hdr.ask); transition accept; }
}
control MyVerify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    action tell(bit<16> told) { meta.told = told; }
    action unknown() { meta.told = 0xdead; }
    table tells {
        key = { hdr.ask.number & 3 : exact @name("number"); }
        actions = { tell; unknown; }
        default_action = unknown();
    }
    apply {
        tells.apply();
        meta.note = std.ingress_global_timestamp + (bit<48>)hdr.ask.number;
        std.egress_spec = (bit<9>)hdr.ask.to;
        std.priority = (bit<3>)hdr.ask.class;
        if (meta.rounds == 0) {
            if (hdr.ask.what & 1 == 1) { clone_preserving_field_list(CloneType.I2E, 1, 1); }
            if (hdr.ask.what & 2 == 2) { std.mcast_grp = 1; }
            if (hdr.ask.what & 4 == 4) { mark_to_drop(std); }
            if (hdr.ask.what & 32 == 32) { meta.rounds = 1; resubmit_preserving_field_list(1); }
        }
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    register<bit<32>>(1) order;
    apply {
        bit<32> n;
        order.read(n, 0);
        order.write(0, n + 1);
        if (std.instance_type != 2) {
            if (hdr.ask.what & 8 == 8 && meta.rounds == 0) { clone_preserving_field_list(CloneType.E2E, 2, 1); }
            if (hdr.ask.what & 16 == 16 && meta.rounds == 0) { meta.rounds = 1; recirculate_preserving_field_list(1); }
        }
        hdr.ask.came_by = (bit<16>)std.ingress_port;
        hdr.ask.kind = (bit<16>)std.instance_type;
        hdr.ask.rid = std.egress_rid;
        hdr.ask.told = meta.told + (bit<16>)meta.note;
        hdr.ask.class_then = (bit<8>)std.priority;
        hdr.ask.enqueued = std.enq_timestamp;
        hdr.ask.waited = std.deq_timedelta;
        hdr.ask.before = (bit<32>)std.enq_qdepth;
        hdr.ask.behind = (bit<32>)std.deq_qdepth + (n << 16);
    }
}

control MyCompute(inout headers_t hdr, inout meta_t meta) { apply {} }
control MyDeparser(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.ask); } }

V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
"#;

/// Offsets in frames of the values that egress writes, and the frame length.
const CLASS_THEN: usize = 16;
const WAITED: usize = 21;
const BEFORE: usize = 25;
const LONG: usize = 64;

fn program() -> Arc<ir::Program> {
    let input = Input::Text { name: "queues.p4", text: PROGRAM };
    let compiled = frontend::compile(input, &frontend::Options::default(), Until::Ir).expect("it is text");
    assert!(!compiled.failed(), "{}", compiled.render(false));
    let program = compiled.optimised.expect("it has a main");
    assert!(program.queues);
    Arc::new(program)
}

fn ask(to: u16, class: u8, what: u8, number: u32) -> Vec<u8> {
    let mut frame = vec![0; LONG];
    frame[..2].copy_from_slice(&to.to_be_bytes());
    (frame[2], frame[3]) = (class, what);
    frame[4..8].copy_from_slice(&number.to_be_bytes());
    frame
}

fn word(frame: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(frame[at..at + 4].try_into().expect("four bytes"))
}

/// A packet in one of the test's queues.
struct Waiting {
    packet: Packet,
    record: Box<[u64]>,
    passage: Passage,
    enqueued_us: u64,
}

/// A sink with queues for ports 1 to 3 only.
struct Ports {
    queues: BTreeMap<u32, PortQueues<Waiting>>,
    now_us: u64,
    sent: Vec<(u32, Vec<u8>)>,
    dropped: Vec<DropReason>,
}

impl Ports {
    fn new() -> Ports {
        let mut config = Config::strict(3);
        config.queues[0] = Queue::with_limit(Limit::packets(12));
        let queues = |port| (port, PortQueues::new(&config).expect("a good config"));
        Ports { queues: (1..=3).map(queues).collect(), now_us: 0, sent: Vec::new(), dropped: Vec::new() }
    }
}

impl Sink for Ports {
    fn send(&mut self, port: u32, packet: Packet) {
        self.sent.push((port, packet.data().to_vec()));
    }

    fn drop(&mut self, reason: DropReason, _: Packet) {
        self.dropped.push(reason);
    }

    fn lost_copies(&mut self, reason: DropReason, count: u64) {
        self.dropped.extend((0..count).map(|_| reason));
    }

    fn queue(&mut self, port: u32, arrival: Arrival<'_>) -> Result<(), Packet> {
        let Some(queues) = self.queues.get_mut(&port) else { return Err(arrival.packet) };
        let Arrival { packet, class, record, passage } = arrival;
        let bytes = packet.len() as u32;
        let waiting = Waiting { packet, record: record.into(), passage, enqueued_us: self.now_us };
        if queues.offer(waiting, bytes, class, false, self.now_us * 1000).is_err() {
            self.dropped.push(DropReason::Program(u32::MAX));
        }
        Ok(())
    }
}

/// A pipeline, its engine, and the test's ports.
struct Bench {
    pipeline: Pipeline,
    engine: Engine,
    ports: Ports,
    pool: Arc<HeapPool>,
    recompiles: bool,
}

impl Bench {
    fn new(program: &Arc<ir::Program>, kind: EngineKind, recompiles: bool) -> Bench {
        let pipeline = datapath::load(Arc::clone(program), kind, 1).expect("it loads");
        let replication = Arc::clone(pipeline.replication());
        configure(&replication);
        let engine = Engine::new(Arc::clone(program), replication);
        Bench { pipeline, engine, ports: Ports::new(), pool: Arc::new(HeapPool::new(4096)), recompiles }
    }

    /// Replaces an entry of the table; recompiles if the bench does so.
    fn change(&mut self, number: u32, told: u16) {
        let key = vec![KeyMatch::Exact(Bits::new(32, u128::from(number & 3)))];
        let args = vec![Bits::new(16, u128::from(told))];
        let action = EntryAction::Call(ActionCall { action: 0, args });
        let entry = TableEntry { key: key.clone(), priority: 0, action, idle_timeout_ns: 0 };
        let (state, table) = (self.pipeline.state(), TableId::from_index(0));
        let deleted = state.delete(table, &key, 0);
        state.insert(table, &entry).unwrap_or_else(|e| panic!("{e:?}, {deleted:?}"));
        if self.recompiles {
            let mode = if told.is_multiple_of(2) { Specialise::Contents } else { Specialise::Constants };
            self.pipeline.recompile(mode).expect("it compiles");
        }
    }

    fn receive(&mut self, exec: &mut dyn datapath::executor::Executor, port: u32, frames: &[Vec<u8>], now_us: u64) {
        self.ports.now_us = now_us;
        let mut burst: Vec<Packet> = frames.iter().map(|f| self.pool.alloc_from(f).expect("a buffer")).collect();
        self.engine.set_work(WORK_MAX);
        self.engine.receive(exec, &mut burst, port, now_us, &mut self.ports);
        exec.idle();
    }

    /// Dequeues `count` packets of a port and runs egress for them.
    fn take(&mut self, exec: &mut dyn datapath::executor::Executor, port: u32, count: usize, now_us: u64) {
        self.ports.now_us = now_us;
        let queues = self.ports.queues.get_mut(&port).expect("it has some");
        let mut departures = Vec::new();
        for _ in 0..count {
            let Some(Taken { item, packets_at_enqueue, packets_behind, .. }) = queues.take(now_us * 1000) else {
                break;
            };
            let Waiting { packet, record, passage, enqueued_us } = item;
            let depths = [packets_at_enqueue, packets_behind].map(u64::from);
            departures.push(Departure { packet, record, passage, enqueued_us, depths });
        }
        self.engine.set_work(WORK_MAX);
        self.engine.resume(exec, &mut departures, &mut Vec::new(), now_us, &mut self.ports);
        exec.idle();
    }
}

fn configure(replication: &Replication) {
    let replica = |port: u32| Replica { port, instance: 70 + port };
    replication.group_insert(1, (0..4).map(replica).collect()).expect("a new group");
    let session = |class_of_service, ports: &[u32]| CloneSession {
        replicas: ports.iter().copied().map(replica).collect(),
        class_of_service,
        ..CloneSession::default()
    };
    replication.session_insert(1, session(2, &[2, 9])).expect("a new session");
    replication.session_insert(2, session(1, &[3])).expect("a new session");
}

#[test]
fn every_engine_lets_packets_wait_and_go_on_alike() {
    let program = program();
    let mut was_full = false;
    for seed in 0..12 {
        let mut all: Vec<Bench> = [
            (EngineKind::Interpreter, false),
            (EngineKind::Machine, false),
            (EngineKind::Machine, true),
            (EngineKind::Staged, true),
        ]
        .map(|(kind, recompiles)| Bench::new(&program, kind, recompiles))
        .into();
        let mut execs: Vec<_> = all.iter().map(|bench| bench.pipeline.executor(0)).collect();
        let mut random = Random::new(seed);
        let (mut now, mut number) = (1000, 0);
        for _ in 0..40 {
            now += random.below(300);
            if random.below(4) == 0 {
                let (key, told) = (random.below(4) as u32, random.below(60_000) as u16);
                all.iter_mut().for_each(|bench| bench.change(key, told));
            }
            if random.below(2) == 0 {
                let (from, count) = (random.below(4) as u32 + 1, 1 + random.below(64));
                let mut frame = |_| {
                    number += 1;
                    let what = if random.below(3) == 0 { random.below(64) as u8 } else { 0 };
                    ask(random.below(5) as u16, random.below(8) as u8, what, number)
                };
                let burst: Vec<Vec<u8>> = (0..count).map(&mut frame).collect();
                for (bench, exec) in all.iter_mut().zip(&mut execs) {
                    bench.receive(exec.as_mut(), from, &burst, now);
                }
            } else {
                let (port, count) = (1 + random.below(3) as u32, 1 + random.below(64) as usize);
                for (bench, exec) in all.iter_mut().zip(&mut execs) {
                    bench.take(exec.as_mut(), port, count, now);
                }
            }
            let (oracle, others) = all.split_first().expect("there are several");
            for other in others {
                assert_eq!(other.ports.sent.len(), oracle.ports.sent.len(), "seed {seed}");
                for (ours, theirs) in other.ports.sent.iter().zip(&oracle.ports.sent) {
                    assert_eq!(ours, theirs, "seed {seed}");
                }
                assert_eq!(other.ports.dropped, oracle.ports.dropped, "seed {seed}");
                let depths = |bench: &Bench| bench.ports.queues.values().map(PortQueues::len).collect::<Vec<_>>();
                assert_eq!(depths(other), depths(oracle), "seed {seed}");
            }
        }
        let sent = &all[0].ports.sent;
        let waited = sent.iter().filter(|(_, frame)| word(frame, WAITED) > 0).count();
        let behind_others = sent.iter().filter(|(_, frame)| word(frame, BEFORE) > 0).count();
        assert!(sent.len() > 100 && waited > 20 && behind_others > 20, "{} {waited} {behind_others}", sent.len());
        was_full |= all[0].ports.dropped.contains(&DropReason::Program(u32::MAX));
    }
    assert!(was_full, "no queue was ever full");
}

struct Bed {
    switch: Switch,
    ports: Vec<MemoryHandle>,
    pool: PoolRef,
}

/// A running switch with four ports and this program.
fn bed(workers: usize, program: ir::Program) -> Bed {
    bed_of(65_536, workers, program)
}

/// As [`bed`], with `buffers` packet buffers.
fn bed_of(buffers: usize, workers: usize, program: ir::Program) -> Bed {
    let pool = HeapPool::shared(buffers);
    let config = SwitchConfig { workers, idle: Idle::Sleep, pool: Some(Arc::clone(&pool)), ..SwitchConfig::default() };
    let switch = Switch::new(config);
    run(&switch, program);
    let open = |number| {
        let (device, handle) = MemoryDevice::new(format!("m{number}"), Arc::clone(&pool), workers as u16);
        switch.add_port(number, Box::new(device)).expect("a new number");
        handle
    };
    let ports = (0..4).map(open).collect();
    Bed { switch, ports, pool }
}

fn run(switch: &Switch, program: ir::Program) {
    let pipeline = datapath::load(Arc::new(program), EngineKind::Machine, switch.workers()).expect("it is small");
    switch.set_pipeline(Some(Arc::new(pipeline))).expect("workers answer");
}

impl Bed {
    fn inject(&self, from: usize, frames: impl IntoIterator<Item = Vec<u8>>) {
        for frame in frames {
            wait_for("room in the ring", || self.ports[from].inject(&frame));
        }
    }

    fn waiting(&self, port: u32) -> u64 {
        let info = self.switch.queues(port).expect("it is there");
        info.map_or(0, |info| info.statistics.iter().map(|queue| queue.depth.packets).sum())
    }

    fn dropped(&self, reason: &str) -> u64 {
        self.switch.drops().iter().find(|(name, _)| name == reason).map_or(0, |(_, count)| *count)
    }

    fn collect(&self, port: usize, count: usize) -> Vec<Vec<u8>> {
        let mut got = Vec::new();
        wait_for("packets", || {
            got.extend(self.ports[port].collect());
            got.len() >= count
        });
        got
    }

    /// Fills a port until it accepts no more and at least 40 packets wait; returns how many were sent.
    fn fill(&self, port: u32, from: usize, make: impl Fn(u32) -> Vec<u8>) -> usize {
        // A memory device holds 4096, and 1 to 64 are out of the queue and not yet in the port.
        let count = 4096 + 64 + 40;
        let sent =
            || self.switch.ports().iter().find(|info| info.number == port).map_or(0, |info| info.stats.tx_packets);
        let before = sent();
        self.inject(from, (0..count).map(make));
        wait_for("a full port", || {
            self.ports[from].pending() == 0 && sent() == before + 4096 && self.waiting(port) >= 40
        });
        count as usize
    }
}

fn of_packets(config: Config, packets: u32) -> Config {
    let queues = config.queues.iter().map(|_| Queue::with_limit(Limit::packets(packets))).collect();
    Config { queues, ..config }
}

#[test]
fn a_full_port_keeps_packets_in_order_of_class_and_drops_only_what_finds_no_room() {
    let bed = bed(1, Arc::unwrap_or_clone(program()));
    bed.switch.set_queues(1, Some(of_packets(Config::strict(2), 150))).expect("a good config");
    let first = bed.fill(1, 0, |i| ask(1, 0, 0, i));
    let low = bed.waiting(1);
    bed.inject(0, (0..20).map(|i| ask(1, 0, 0, 100_000 + i)));
    bed.inject(2, (0..200).map(|i| ask(1, 7, 0, 200_000 + i)));
    wait_for("a full queue", || bed.dropped("queue full") == 50);
    assert_eq!(bed.waiting(1), low + 170);
    let got = bed.collect(1, first + 170);
    let numbers: Vec<u32> = got.iter().map(|frame| word(frame, 4)).collect();
    // Packets already dequeued go first; then all of the higher class; then the rest of the lower one.
    let early = first - low as usize;
    let expected = (0..early as u32).chain(200_000..200_150).chain(early as u32..first as u32).chain(100_000..100_020);
    assert!(numbers.into_iter().eq(expected));
    let high = got.iter().find(|frame| word(frame, 4) == 200_149).expect("it is there");
    assert_eq!((high[CLASS_THEN], word(high, BEFORE)), (7, 149));
    wait_for("all buffers", || bed.pool.available() == bed.pool.limit());
    let info = bed.switch.queues(1).expect("it is there").expect("it has queues");
    let sent: Vec<u64> = info.statistics.iter().map(|queue| queue.sent.packets).collect();
    assert_eq!((sent, info.is_configured), (vec![first as u64 + 20, 150], true));
}

#[test]
fn a_program_that_asks_for_queues_has_them_on_links_too() {
    let bed = bed(1, by_first_bytes());
    bed.switch.add_device(2).expect("a new id");
    let forward = datapath::load(Arc::new(by_first_bytes()), EngineKind::Machine, 1).expect("it is small");
    bed.switch.set_pipeline_of(2, Some(Arc::new(forward))).expect("workers answer");
    let (device, out) = MemoryDevice::new("m9", Arc::clone(&bed.pool), 1);
    bed.switch.add_port_to(2, 9, Box::new(device), Sharing::default()).expect("a new number");
    let (from, to) = (PortOf { device: 1, port: 9 }, PortOf { device: 2, port: 1 });
    bed.switch.link(from, to).expect("free ends");
    let of = QueuesOf::Link(from);
    assert!(bed.switch.queues_of(of).expect("it is there").is_none());
    run(&bed.switch, Arc::unwrap_or_clone(program()));
    assert!(!bed.switch.queues_of(of).expect("it is there").expect("the program asks for them").is_configured);
    let mut config = of_packets(Config::strict(2), 200);
    config.root.shaper = Some(Shaper { rate: Rate(10), burst: Some(Size(1518)) });
    bed.switch.set_queues_of(of, Some(config.clone())).expect("a good config");
    bed.inject(0, (0..100).map(|i| ask(9, 0, 0, i)));
    wait_for("packets that wait", || {
        let info = bed.switch.queues_of(of).expect("it is there").expect("it has queues");
        info.statistics[0].accepted.packets == 100
    });
    let early = out.collect().len() as u32;
    assert!(early < 40);
    bed.inject(0, (0..50).map(|i| ask(9, 7, 0, 1000 + i)));
    wait_for("urgent ones", || {
        let info = bed.switch.queues_of(of).expect("it is there").expect("it has queues");
        info.statistics[1].accepted.packets == 50
    });
    config.root.shaper = None;
    bed.switch.set_queues_of(of, Some(config)).expect("a good config");
    let mut got = Vec::new();
    wait_for("the others", || {
        got.extend(out.collect());
        got.len() as u32 + early == 150
    });
    let numbers: Vec<u32> = got.iter().map(|frame| word(frame, 4)).collect();
    assert!(numbers.into_iter().eq((1000..1050).chain(early..100)), "the urgent ones first");
    assert_eq!(word(&got[49], BEFORE), 49, "egress sees the queue");
    assert!(word(&got[49], WAITED) > 0);
    // Another program, which does not use queues.
    bed.switch.set_queues_of(of, None).expect("it is there");
    assert!(bed.switch.queues_of(of).expect("it is there").is_some());
    run(&bed.switch, by_first_bytes());
    assert!(bed.switch.queues_of(of).expect("it is there").is_none());
    wait_for("all buffers", || bed.pool.available() == bed.pool.limit());
}

#[test]
fn frames_of_any_program_wait_behind_the_deparser_where_a_port_has_queues() {
    for workers in [1, 2] {
        let bed = bed(workers, by_first_bytes());
        assert!(bed.switch.queues(1).expect("it is there").is_none(), "nobody asks for queues");
        bed.switch.set_queues(1, Some(of_packets(Config::fifo(), 5000))).expect("a good config");
        let first = bed.fill(1, 0, |i| frame(1, i));
        bed.inject(2, (0..100).map(|i| frame(1, 100_000 + i)));
        wait_for("all of them", || bed.waiting(1) >= 100 && bed.ports[2].pending() == 0);
        // The same queues with another limit: waiting packets stay queued.
        bed.switch.set_queues(1, Some(of_packets(Config::fifo(), 7000))).expect("a good config");
        let got = bed.collect(1, first + 100);
        assert!(got.iter().take(first).enumerate().all(|(i, bytes)| *bytes == frame(1, i as u32)), "in order");
        assert_eq!((bed.dropped("port full"), bed.dropped("queue full")), (0, 0));
        wait_for("all buffers", || bed.pool.available() == bed.pool.limit());
    }
}

#[test]
fn queues_that_are_taken_away_give_what_waits_to_the_port_and_ports_that_go_take_it_with_them() {
    let bed = bed(1, by_first_bytes());
    bed.switch.set_queues(1, Some(Config::fifo())).expect("a good config");
    let first = bed.fill(1, 0, |i| frame(1, i));
    let waited = bed.waiting(1);
    let mut got = bed.ports[1].collect();
    bed.switch.set_queues(1, None).expect("it is there");
    assert!(bed.switch.queues(1).expect("it is there").is_none());
    got.extend(bed.collect(1, first - got.len()));
    assert!(waited > 0 && got.iter().enumerate().all(|(i, bytes)| *bytes == frame(1, i as u32)), "in order");

    bed.switch.set_queues(1, Some(Config::fifo())).expect("a good config");
    bed.fill(1, 0, |i| frame(1, i));
    bed.switch.remove_port(1).expect("it is there");
    assert_eq!(bed.switch.queues(1).unwrap_err(), SwitchError::NoSuchPort(1));
    wait_for("all buffers but the port's", || bed.pool.available() >= bed.pool.limit() - 4096);
}

#[test]
fn packets_that_wait_go_on_through_the_program_that_they_met_and_the_next_one_has_no_queues_without_need() {
    let bed = bed(1, Arc::unwrap_or_clone(program()));
    assert!(!bed.switch.queues(1).expect("it is there").expect("the program asks").is_configured);
    let first = bed.fill(1, 0, |i| ask(1, 3, 0, i));
    let waited = bed.waiting(1) as usize;
    run(&bed.switch, Arc::unwrap_or_clone(program()));
    assert_eq!(bed.waiting(1) as usize, waited);
    bed.inject(0, [ask(1, 5, 0, 9999)]);
    let got = bed.collect(1, first + 1);
    assert!(got.iter().all(|frame| matches!(frame[CLASS_THEN], 3 | 5)), "all were in egress");
    assert_eq!(got[first][CLASS_THEN], 5);
    assert_eq!(bed.dropped("no program"), 0);
    run(&bed.switch, by_first_bytes());
    assert!(bed.switch.queues(1).expect("it is there").is_none());
}

/// The finding: requests of egress for the port being served were never offered to its queues, and neither was
/// anything after them.
#[test]
fn what_is_to_wait_again_at_the_port_being_served_does() {
    let bed = bed(1, Arc::unwrap_or_clone(program()));
    let replication = bed.switch.pipeline().expect("it runs");
    configure(replication.replication());
    // Egress clones go to port 3, and a recirculated packet returns to its own port.
    bed.inject(0, [ask(3, 0, 8, 1), ask(3, 0, 16, 2)]);
    assert_eq!(bed.collect(3, 3).len(), 3);
    bed.inject(0, (0..100).map(|i| ask(3, 0, 0, 10 + i)));
    let got = bed.collect(3, 100);
    assert!(got.iter().zip(10..).all(|(frame, number)| word(frame, 4) == number), "in order");
    wait_for("all buffers", || bed.pool.available() == bed.pool.limit());
}

/// The findings: a program that was loaded again had two executors on a worker, and the programs of one second
/// exceeded the room for executors.
#[test]
fn programs_may_change_often_while_packets_wait() {
    let bed = bed(1, Arc::unwrap_or_clone(program()));
    let first = bed.switch.pipeline().expect("it runs");
    let count = bed.fill(1, 0, |i| ask(1, 3, 0, i));
    for _ in 0..3 {
        bed.switch.set_pipeline(None).expect("workers answer");
        bed.switch.set_pipeline(Some(Arc::clone(&first))).expect("workers answer");
        run(&bed.switch, Arc::unwrap_or_clone(program()));
        bed.switch.set_pipeline(Some(Arc::clone(&first))).expect("workers answer");
    }
    bed.inject(0, [ask(1, 5, 0, 9999)]);
    let mut got = Vec::new();
    wait_for("the last one", || {
        got.extend(bed.ports[1].collect());
        got.iter().any(|frame| word(frame, 4) == 9999)
    });
    assert!(got.len() <= count + 1);
    wait_for("all buffers", || bed.pool.available() == bed.pool.limit());
}

#[test]
fn a_port_out_of_service_drops_what_waits_and_contradictory_queues_are_refused() {
    let bed = bed(1, by_first_bytes());
    bed.switch.set_queues(1, Some(Config::fifo())).expect("a good config");
    bed.fill(1, 0, |i| frame(1, i));
    bed.switch.set_in_service(1, false).expect("it is there");
    wait_for("what waited", || bed.waiting(1) == 0 && bed.dropped("port is down") > 0);
    bed.ports[1].collect();
    bed.switch.set_in_service(1, true).expect("it is there");
    let before = bed.switch.queues(1).expect("it is there").expect("it has queues").statistics[0].sent.packets;
    bed.inject(0, [frame(1, 7)]);
    assert_eq!(bed.collect(1, 1), [frame(1, 7)]);
    assert_eq!(bed.switch.queues(1).unwrap().unwrap().statistics[0].sent.packets, before + 1, "the queues stay");

    let mut bad = Config::strict(2);
    bad.queues.push(Queue::default());
    let error = bed.switch.set_queues(1, Some(bad)).unwrap_err();
    assert!(matches!(&error, SwitchError::BadQueues { of: QueuesOf::Port(1), .. }), "{error}");
    assert_eq!(bed.switch.set_queues(8, None), Err(SwitchError::NoSuchPort(8)));
}

#[test]
fn a_port_that_takes_nothing_leaves_buffers_to_the_others() {
    let bed = bed_of(16_384, 1, by_first_bytes());
    bed.switch.set_queues(1, Some(of_packets(Config::fifo(), 100_000))).expect("a good config");
    bed.switch.set_queues(3, Some(of_packets(Config::fifo(), 100_000))).expect("a good config");
    // 16,384 buffers: 8,192 may wait, one port's half of that.
    bed.inject(0, (0..14_000).map(|i| frame(1, i)));
    wait_for("a full buffer", || bed.dropped("shared buffer full") > 1000 && bed.ports[0].pending() == 0);
    assert_eq!(bed.waiting(1), 4096);
    bed.inject(2, (0..8000).map(|i| frame(3, i)));
    wait_for("the other port's share", || bed.waiting(3) == 2048 && bed.ports[2].pending() == 0);
    bed.inject(2, (0..100).map(|i| frame(0, i)));
    assert_eq!(bed.collect(0, 100).len(), 100, "ports without queues go on");
    bed.switch.set_queues(3, None).expect("it is there");
    bed.ports[1].collect();
    wait_for("what has waited", || {
        bed.ports[1].collect();
        bed.ports[3].collect();
        bed.waiting(1) == 0
    });
    wait_for("all buffers", || {
        bed.ports[1].collect();
        bed.ports[3].collect();
        bed.pool.available() == bed.pool.limit()
    });
    bed.inject(0, (0..4096 + 64 + 3000).map(|i| frame(1, i)));
    wait_for("the room is whole again", || bed.waiting(1) >= 3000);
}
