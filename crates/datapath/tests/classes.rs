//! PNA's class of service: on every engine, finished frames and copies of mirror sessions wait in the queue of their
//! class; a port without queues sends them at once.

mod common;

use common::wait_for;
use datapath::drops::DropReason;
use datapath::engine::{Arrival, Departure, Engine, Passage, Sink, WORK_MAX};
use datapath::replication::{CloneSession, Replica};
use datapath::{EngineKind, Idle, Switch, SwitchConfig};
use frontend::{Input, Until};
use pktio::{HeapPool, MemoryDevice, Packet, Pool};
use std::sync::Arc;
use traffic::{Config, Limit, Queue};

/// The program of the STF script: bit 0 of `what` adds two bytes in front, bit 1 requests a copy, bit 3 recirculates
/// twice.
const PROGRAM: &str = include_str!("../../../tests/stf/pna/class.p4");

fn program() -> ir::Program {
    let input = Input::Text { name: "class.p4", text: PROGRAM };
    let compiled = frontend::compile(input, &frontend::Options::default(), Until::Ir).expect("it is text");
    assert!(!compiled.failed(), "{}", compiled.render(false));
    let program = compiled.optimised.expect("it has a main");
    assert!(program.queues);
    program
}

fn ask(what: u8, port: u8, class: u8, number: u8) -> Vec<u8> {
    vec![what, port, class, 0, number]
}

/// A queued packet.
struct Waiting {
    port: u32,
    class: u8,
    packet: Packet,
    record: Box<[u64]>,
    passage: Passage,
}

/// A sink in which ports 1 to 31 have queues.
#[derive(Default)]
struct Ports {
    waiting: Vec<Waiting>,
    sent: Vec<(u32, Vec<u8>)>,
    dropped: Vec<DropReason>,
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
        let Arrival { packet, class, record, passage } = arrival;
        if !(1..32).contains(&port) {
            return Err(packet);
        }
        self.waiting.push(Waiting { port, class, packet, record: record.into(), passage });
        Ok(())
    }
}

#[test]
fn every_engine_lets_finished_frames_wait_in_their_class() {
    let program = Arc::new(program());
    let pool = HeapPool::new(256);
    for kind in
        [EngineKind::Interpreter, EngineKind::Machine, EngineKind::Staged, EngineKind::Mir, EngineKind::MirInterpreter]
    {
        let pipeline = datapath::load(Arc::clone(&program), kind, 1).expect("it loads");
        let replicas = vec![Replica { port: 20, instance: 0 }];
        let session = CloneSession { replicas, class_of_service: 3, ..CloneSession::default() };
        pipeline.replication().session_insert(7, session).expect("a new session");
        let mut engine = Engine::new(Arc::clone(&program), Arc::clone(pipeline.replication()));
        let mut exec = pipeline.executor(0);
        let mut ports = Ports::default();
        let frames =
            [ask(0, 5, 0, 1), ask(1, 6, 7, 2), ask(3, 5, 2, 3), ask(0x12, 5, 1, 4), ask(8, 9, 4, 5), ask(1, 99, 6, 6)];
        let mut burst: Vec<Packet> = frames.iter().map(|f| pool.alloc_from(f).expect("a buffer")).collect();
        engine.set_work(WORK_MAX);
        engine.receive(exec.as_mut(), &mut burst, 40, 1000, &mut ports);

        // A port without queues.
        assert_eq!(ports.sent, [(99, vec![0xab, 0xcd, 1, 99, 6, 0, 6])], "{kind:?}");
        assert_eq!(ports.dropped.len(), 1, "{kind:?}: the one that nobody sends");
        let mut waiting: Vec<_> = ports.waiting.iter().map(|w| (w.port, w.class, w.packet.data().to_vec())).collect();
        waiting.sort();
        let expected = [
            (5, 0, vec![0, 5, 0, 0, 1]),
            (5, 2, vec![0xab, 0xcd, 3, 5, 2, 0, 3]),
            (6, 7, vec![0xab, 0xcd, 1, 6, 7, 0, 2]),
            (9, 4, vec![8, 9, 4, 2, 5]),
            (20, 3, vec![0x12, 5, 1, 0, 4]),
            (20, 3, vec![0xab, 0xcd, 3, 5, 2, 0, 3]),
        ];
        assert_eq!(waiting, expected, "{kind:?}");

        // Dequeued, they leave unchanged.
        let mut departures = Vec::new();
        for Waiting { packet, record, passage, .. } in std::mem::take(&mut ports.waiting) {
            departures.push(Departure { packet, record, passage, enqueued_us: 1000, depths: [0, 0] });
        }
        ports.sent.clear();
        engine.set_work(WORK_MAX);
        engine.resume(exec.as_mut(), &mut departures, &mut Vec::new(), 2000, &mut ports);
        ports.sent.sort();
        let expected = expected.map(|(port, _, frame)| (port, frame));
        assert_eq!(ports.sent, expected, "{kind:?}");
        assert_eq!((ports.waiting.len(), ports.dropped.len()), (0, 1), "{kind:?}");
    }
}

#[test]
fn in_a_switch_the_higher_class_leaves_first() {
    let pool = HeapPool::shared(65_536);
    let config =
        SwitchConfig { workers: 1, idle: Idle::Sleep, pool: Some(Arc::clone(&pool)), ..SwitchConfig::default() };
    let switch = Switch::new(config);
    let pipeline = datapath::load(Arc::new(program()), EngineKind::Machine, switch.workers()).expect("it is small");
    switch.set_pipeline(Some(Arc::new(pipeline))).expect("workers answer");
    let handles: Vec<_> = (0..2)
        .map(|number| {
            let (device, handle) = MemoryDevice::new(format!("m{number}"), Arc::clone(&pool), 1);
            switch.add_port(number, Box::new(device)).expect("a new number");
            handle
        })
        .collect();
    let mut config = Config::strict(2);
    config.queues.iter_mut().for_each(|queue| *queue = Queue::with_limit(Limit::packets(500)));
    switch.set_queues(1, Some(config)).expect("a good config");
    let waiting = || -> u64 {
        let info = switch.queues(1).expect("it is there").expect("it has queues");
        info.statistics.iter().map(|queue| queue.depth.packets).sum()
    };
    // Nobody drains port 1: it accepts 4,096 frames, at most 64 are in flight, and the rest wait.
    let inject = |class: u8, number: u8| {
        wait_for("room in the ring", || handles[0].inject(&ask(0, 1, class, number)));
    };
    (0..4096 + 64 + 40).for_each(|_| inject(0, 1));
    wait_for("a full port", || handles[0].pending() == 0 && waiting() >= 40);
    (0..100).for_each(|_| inject(1, 2));
    wait_for("the others", || handles[0].pending() == 0 && waiting() >= 140);
    let low = waiting() as usize - 100;
    let mut got = Vec::new();
    wait_for("all frames", || {
        got.extend(handles[1].collect());
        got.len() == 4096 + 64 + 40 + 100
    });
    let numbers: Vec<u8> = got.iter().map(|frame| frame[4]).collect();
    let first = numbers.iter().position(|number| *number == 2).expect("they came");
    assert!(numbers[first..first + 100].iter().all(|number| *number == 2), "before those that waited longer");
    assert_eq!(numbers.len() - first - 100, low, "all that waited when they came");
}
