//! Specialised code while tables change: every batch that begins after a change has returned sees that change,
//! whichever code runs, with writers, workers and compilations running concurrently.
//!
//! Random programs, entries and packets against the interpreter, with recompilation in between, are in `difftest`.

mod common;

use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::{ExternId, TableId};
use datapath::drops::DropReason;
use datapath::engine::{Engine, Sink};
use datapath::executor::Executor;
use datapath::replication::Replication;
use datapath::{CodeOptions, EngineKind, Local, Pipeline, Specialise, Without};
use pktio::{HeapPool, Packet, PoolRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A frame's first 32 bits are looked up in `acl`, which gives whether it is denied, then in `station`, then in
/// `route`: the egress port.
const TABLES: &str = "\
action permit ()
action deny ()
action forward (port: 9)
action unknown ()
extern seen counter size 65536 unit packets
table acl {
  key h.k: 32 ternary
  action permit
  action deny
  default 0 ()
  size 1024
}
table station {
  key h.k: 32 exact
  action forward
  action unknown
  default 1 ()
  size 1048576
}
table route {
  key h.k: 32 lpm
  action forward
  action unknown
  default 1 ()
  size 1024
}
";
const CONTROL: &str = "\
b0:
  %h0, %a0, %e0, %d0 = apply acl (h.k)
  switch %a0, 32w0 -> b1, 32w1 -> b2, default -> b2
b1:
  %h1, %a1, %e1, %d1 = apply station (h.k)
  switch %a1, 32w0 -> b3, default -> b4
b2:
  drop denied
b3:
  out = param station, 0, 0, %d1
  count seen, 32w1
  send out
b4:
  %h2, %a2, %e2, %d2 = apply route (h.k)
  switch %a2, 32w0 -> b5, default -> b6
b5:
  out = param route, 0, 0, %d2
  send out
b6:
  drop unknown
";

const ACL: TableId = TableId(0);
const STATION: TableId = TableId(1);
const ROUTE: TableId = TableId(2);
const DENIED: DropReason = DropReason::Program(1);
const UNKNOWN: DropReason = DropReason::Program(2);

fn pipeline(workers: usize) -> Arc<Pipeline> {
    pipeline_on(EngineKind::Machine, workers)
}

fn pipeline_on(engine: EngineKind, workers: usize) -> Arc<Pipeline> {
    let program = common::matching(&[("k", 32)], 3, TABLES, CONTROL);
    Arc::new(datapath::load(program, engine, workers).expect("it can be loaded"))
}

fn bits(value: u32) -> Bits {
    Bits::new(32, value.into())
}

fn forward(port: u32) -> EntryAction {
    EntryAction::Call(ActionCall { action: 0, args: vec![Bits::new(9, port.into())] })
}

fn station(key: u32, port: u32) -> TableEntry {
    TableEntry { key: vec![KeyMatch::Exact(bits(key))], priority: 0, action: forward(port), idle_timeout_ns: 0 }
}

fn route(value: u32, prefix_len: u32, port: u32) -> TableEntry {
    let key = vec![KeyMatch::Lpm { value: bits(value), prefix_len }];
    TableEntry { key, priority: 0, action: forward(port), idle_timeout_ns: 0 }
}

fn rule(value: u32, mask: u32, priority: i32, action: u32) -> TableEntry {
    let key = vec![KeyMatch::Ternary { value: bits(value & mask), mask: bits(mask) }];
    let action = EntryAction::Call(ActionCall { action, args: vec![] });
    TableEntry { key, priority, action, idle_timeout_ns: 0 }
}

/// The fate of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Sent(u32),
    Dropped(DropReason),
}

#[derive(Default)]
struct Fates(Vec<Fate>);

impl Sink for Fates {
    fn send(&mut self, port: u32, _: Packet) {
        self.0.push(Fate::Sent(port));
    }

    fn drop(&mut self, reason: DropReason, _: Packet) {
        self.0.push(Fate::Dropped(reason));
    }

    fn lost_copies(&mut self, _: DropReason, _: u64) {}
}

/// A worker without ports.
struct Worker {
    engine: Engine,
    executor: Box<dyn Executor>,
    pool: PoolRef,
    now_us: u64,
}

impl Worker {
    fn new(pipeline: &Pipeline, index: usize) -> Worker {
        Worker {
            engine: Engine::new(Arc::clone(pipeline.program()), Arc::new(Replication::new())),
            executor: pipeline.executor(index),
            pool: HeapPool::shared(64),
            now_us: 0,
        }
    }

    /// Runs frames with these keys as one batch and then goes offline, so that writers do not wait for this worker.
    fn batch(&mut self, keys: &[u32]) -> Vec<Fate> {
        let fates = self.batch_of_many(keys);
        self.executor.idle();
        fates
    }

    /// Runs frames with these keys as one batch; the worker stays online, so writers wait for its next batch.
    fn batch_of_many(&mut self, keys: &[u32]) -> Vec<Fate> {
        let frame = |key: &u32| {
            let mut bytes = key.to_be_bytes().to_vec();
            bytes.resize(60, 0);
            self.pool.alloc_from(&bytes).expect("a buffer")
        };
        let mut packets: Vec<Packet> = keys.iter().map(frame).collect();
        let mut fates = Fates::default();
        self.now_us += 1;
        self.engine.receive(self.executor.as_mut(), &mut packets, 1, self.now_us, &mut fates);
        self.executor.quiescent();
        fates.0
    }

    fn one(&mut self, key: u32) -> Fate {
        self.batch(&[key])[0]
    }
}

fn specialised(pipeline: &Pipeline) -> bool {
    pipeline.code_info().expect("machine code").specialised
}

#[test]
fn the_next_batch_sees_every_change_and_recompiled_code_agrees() {
    let pipeline = pipeline(1);
    let state = Arc::clone(pipeline.state());
    let mut worker = Worker::new(&pipeline, 0);
    let recompile = || {
        assert!(pipeline.recompile(Specialise::Auto).is_some());
        assert!(specialised(&pipeline));
    };
    // Each step: a change, and the fate of frames before and after recompilation.
    let mut check = |what: &str, expected: &[(u32, Fate)]| {
        for code in ["generic", "made first", "recompiled"] {
            match code {
                "made first" => assert!(pipeline.recompile_quick(Specialise::Auto).is_some()),
                "recompiled" => recompile(),
                _ => {}
            }
            let keys: Vec<u32> = expected.iter().map(|(key, _)| *key).collect();
            let fates: Vec<Fate> = expected.iter().map(|(_, fate)| *fate).collect();
            assert_eq!(worker.batch(&keys), fates, "{what}, {code}");
        }
    };
    let unknown = Fate::Dropped(UNKNOWN);
    let denied = Fate::Dropped(DENIED);
    check("no entries", &[(7, unknown), (0x0a00_0001, unknown)]);

    state.insert(STATION, &station(7, 3)).expect("room");
    assert!(!specialised(&pipeline), "code that holds the entries does not hold any more");
    check("a station", &[(7, Fate::Sent(3)), (8, unknown)]);

    state.insert(ROUTE, &route(0x0a00_0000, 8, 4)).expect("room");
    state.insert(ROUTE, &route(0x0a01_0000, 16, 5)).expect("room");
    state.insert(ROUTE, &route(0, 0, 6)).expect("room");
    let routed = [(0x0a00_0001, Fate::Sent(4)), (0x0a01_0001, Fate::Sent(5)), (9, Fate::Sent(6)), (7, Fate::Sent(3))];
    check("routes", &routed);

    state.insert(ACL, &rule(0x0a00_0000, 0xff00_0000, 1, 1)).expect("room");
    state.insert(ACL, &rule(0x0a01_0000, 0xffff_0000, 2, 0)).expect("room");
    check("rules", &[(0x0a00_0001, denied), (0x0a01_0001, Fate::Sent(5)), (7, Fate::Sent(3))]);

    state.modify(STATION, &station(7, 8)).expect("it is there");
    check("another port", &[(7, Fate::Sent(8))]);

    state.set_default(ACL, Some(&EntryAction::Call(ActionCall { action: 1, args: vec![] }))).expect("it may change");
    check("denied by default", &[(7, denied), (0x0a01_0001, Fate::Sent(5))]);

    state.insert(ACL, &rule(0, 0, 0, 0)).expect("room");
    check("a rule for everything", &[(7, Fate::Sent(8)), (0x0a00_0001, denied)]);

    state.delete(STATION, &station(7, 8).key, 0).expect("it is there");
    check("the station is gone", &[(7, Fate::Sent(6))]);

    // More than are compared one by one; then the table is resized several times.
    for key in 0..100 {
        state.insert(STATION, &station(0x1000 + key, key)).expect("room");
        let expected = [(0x1000 + key, Fate::Sent(key)), (0x1000, Fate::Sent(0)), (0x1001 + key, Fate::Sent(6))];
        check("a table that grows", &expected);
    }

    // Hundreds of entries become part of the code, more do not.
    for (count, is_part) in [(1500, true), (3000, false)] {
        for key in state.len(STATION) as u32..count {
            state.insert(STATION, &station(0x1000 + key, key % 500)).expect("room");
        }
        let expected = [(0x1000, Fate::Sent(0)), (0x0fff, Fate::Sent(6)), (0x1000 + 1234, Fate::Sent(234))];
        check("many stations", &expected);
        let contents = pipeline.code_info().expect("machine code").contents;
        assert_eq!(contents.contains(&"station".to_string()), is_part, "{count} entries");
    }
}

#[test]
fn hits_and_misses_are_counted_by_all_code() {
    let pipeline = pipeline(1);
    pipeline.state().insert(STATION, &station(7, 3)).expect("room");
    let mut worker = Worker::new(&pipeline, 0);
    for mode in [Specialise::Off, Specialise::Constants, Specialise::Contents] {
        assert!(pipeline.recompile(mode).is_some());
        assert_eq!(specialised(&pipeline), mode != Specialise::Off);
        worker.batch(&[7, 8, 7]);
    }
    let lookups = |name: &str| pipeline.table_info().into_iter().find(|t| t.name == name).expect("a table").lookups;
    assert_eq!((lookups("acl"), lookups("station"), lookups("route")), (Some((0, 9)), Some((6, 3)), Some((0, 3))));
    let counted = pipeline.state().counter(base::ids::ExternId(0), 1).expect("a cell");
    assert_eq!(counted.packets, 6);
}

#[test]
fn what_all_entries_have_in_common_is_part_of_the_program_unless_that_is_left_out() {
    let bytes = |options: CodeOptions| {
        let program = common::matching(&[("k", 32)], 3, TABLES, CONTROL);
        let pipeline = datapath::load_with(program, EngineKind::Machine, 1, &options).expect("it can be loaded");
        for key in [7, 8] {
            pipeline.state().insert(STATION, &station(key, 3)).expect("room");
        }
        let pipeline = Arc::new(pipeline);
        pipeline.recompile(Specialise::Contents).expect("it compiles");
        assert_eq!(Worker::new(&pipeline, 0).batch(&[7, 9, 8]), [Fate::Sent(3), Fate::Dropped(UNKNOWN), Fate::Sent(3)]);
        pipeline.code_info().expect("machine code").code_bytes
    };
    let all = bytes(CodeOptions::default());
    let nothing_in_common = bytes(Without::new(["specialise_actions"]).expect("there is such a thing").code());
    assert!(all < nothing_in_common, "{all}, {nothing_in_common}");
}

#[test]
fn code_for_no_entries_ends_with_the_first_one() {
    let pipeline = pipeline(1);
    pipeline.recompile(Specialise::Contents).expect("it compiles");
    let mut local = Local::new(Arc::clone(&pipeline));
    let frame = [0u8; 60];
    assert!(local.receive(1, &frame).expect("it fits").is_empty());
    pipeline.state().insert(STATION, &station(0, 9)).expect("room");
    let sent = local.receive(1, &frame).expect("it fits");
    assert_eq!(sent[0].port, 9);
}

#[test]
fn code_is_recompiled_in_the_background_and_says_so() {
    let pipeline = pipeline(1);
    pipeline.specialise(Specialise::Auto);
    common::wait_for("it is compiled at all", || specialised(&pipeline));
    let info = pipeline.code_info().expect("machine code");
    assert_eq!(info.contents, ["acl", "station", "route"]);
    assert!(info.compiled >= 1 && info.last > Duration::ZERO && info.code_bytes > 0);
    pipeline.state().insert(ACL, &rule(1, 1, 1, 1)).expect("room");
    common::wait_for("it is compiled again", || {
        let info = pipeline.code_info().expect("machine code");
        info.specialised && info.contents.len() == 3
    });
    let mut worker = Worker::new(&pipeline, 0);
    assert_eq!(worker.one(1), Fate::Dropped(DENIED));
    pipeline.specialise(Specialise::Off);
    assert!(!pipeline.runs_specialised());
    assert_eq!(worker.one(1), Fate::Dropped(DENIED));
}

/// Two workers, one writer, and continuous compilation: after a change has returned, no later batch misses it. The
/// tables grow, shrink to a few entries and change their defaults meanwhile.
#[test]
fn no_batch_misses_a_change_that_came_before_it() {
    change_while_packets_run(&pipeline(2));
}

/// The same for staged code, which hashes the keys of many packets before any lookup.
#[test]
fn no_batch_misses_a_change_in_staged_code() {
    change_while_packets_run(&pipeline_on(EngineKind::Staged, 2));
}

/// Values that all entries share are part of the code, which looks prefixes up in the table itself. So a writer waits
/// for a batch that runs such code: no packet sees a new entry with the old entries' parameter.
#[test]
fn a_new_entry_comes_with_all_of_its_parameters() {
    const TABLES: &str = "\
action forward (port: 9, index: 64)
action unknown ()
extern seen counter size 16 unit packets
table route {
  key h.k: 32 lpm
  action forward
  action unknown
  default 1 ()
  size 1024
}
";
    const CONTROL: &str = "\
b0:
  %h0, %a0, %e0, %d0 = apply route (h.k)
  switch %a0, 32w0 -> b1, default -> b2
b1:
  out = param route, 0, 0, %d0
  %e0 = param route, 0, 1, %d0
  count seen, %e0
  send out
b2:
  drop unknown
";
    const ROUTE: TableId = TableId(0);
    const KEY: u32 = 0x0a0b_0c0d;
    const COMMON: u32 = 7;
    const OWN: u32 = 3;
    const SEEN: ExternId = ExternId(0);
    const ROUNDS: usize = 2000;
    const OWN_PORT: u32 = 99;
    let program = common::matching(&[("k", 32)], 1, TABLES, CONTROL);
    let pipeline = datapath::load(program, EngineKind::Machine, 1).expect("it can be loaded");
    let state = pipeline.state();
    let entry = |prefix_len, port: u32, index: u32| {
        let args = vec![Bits::new(9, port.into()), Bits::new(64, index.into())];
        TableEntry { action: EntryAction::Call(ActionCall { action: 0, args }), ..route(KEY, prefix_len, 0) }
    };
    for len in 1..=5 {
        state.insert(ROUTE, &entry(len, len, COMMON)).expect("room");
    }
    let (stop, own) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut worker = Worker::new(&pipeline, 0);
            let mut common = 0;
            while !stop.load(Ordering::Relaxed) {
                for fate in worker.batch_of_many(&[KEY; 32]) {
                    match fate {
                        Fate::Sent(OWN_PORT) => _ = own.fetch_add(1, Ordering::Relaxed),
                        Fate::Sent(5) => common += 1,
                        other => panic!("{other:?}"),
                    }
                }
            }
            worker.executor.idle();
            common
        });
        for _ in 0..ROUNDS {
            pipeline.recompile(Specialise::Contents).expect("it compiles");
            let before = own.load(Ordering::Relaxed);
            state.insert(ROUTE, &entry(32, OWN_PORT, OWN)).expect("room");
            common::wait_for("packets that take it", || own.load(Ordering::Relaxed) > before);
            state.delete(ROUTE, &entry(32, OWN_PORT, OWN).key, 0).expect("it is there");
        }
        stop.store(true, Ordering::Relaxed);
        let common = worker.join().expect("no packet goes elsewhere");
        let counted = |index: u32| state.counter(SEEN, index.into()).expect("there is one").packets;
        assert_eq!((counted(OWN), counted(COMMON)), (own.load(Ordering::Relaxed), common));
    });
}

fn change_while_packets_run(pipeline: &Pipeline) {
    let stop = AtomicBool::new(false);
    // Stations below this number are permanent; the one at the number itself is added and removed.
    let published = AtomicU64::new(0);
    let (batches, compiled) = (AtomicU64::new(0), AtomicU64::new(0));
    let limit = Duration::from_secs(std::env::var("STRESS_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3));
    std::thread::scope(|scope| {
        for index in 0..2 {
            let (stop, published, batches) = (&stop, &published, &batches);
            scope.spawn(move || {
                let mut worker = Worker::new(pipeline, index);
                while !stop.load(Ordering::Relaxed) {
                    let there = published.load(Ordering::Acquire) as u32;
                    let keys: Vec<u32> = (0..16u32).map(|i| there.saturating_sub(1 + i * i)).collect();
                    let fates = worker.batch_of_many(&keys);
                    for (key, fate) in keys.iter().zip(fates) {
                        // The rule decides whether it is denied; the station decides the port.
                        let expected = Fate::Sent(key % 500);
                        assert!(there == 0 || fate == expected || fate == Fate::Dropped(DENIED), "{key}: {fate:?}");
                    }
                    batches.fetch_add(1, Ordering::Relaxed);
                    if there.is_multiple_of(64) {
                        worker.executor.idle();
                    }
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let took = match compiled.load(Ordering::Relaxed) % 2 {
                    0 => pipeline.recompile(Specialise::Contents),
                    _ => pipeline.recompile_quick(Specialise::Contents),
                };
                took.expect("it compiles");
                compiled.fetch_add(1, Ordering::Relaxed);
            }
        });
        let state = pipeline.state();
        let start = Instant::now();
        let mut next = 0u32;
        // On a busy machine the other threads may start late.
        let too_little = || compiled.load(Ordering::Relaxed) < 2 || batches.load(Ordering::Relaxed) < 10;
        while start.elapsed() < limit || (too_little() && start.elapsed() < common::LIMIT) {
            state.insert(STATION, &station(next, next % 500)).expect("room");
            next += 1;
            published.store(next.into(), Ordering::Release);
            // A small table that is filled and emptied; one of its rules denies everything.
            match next % 7 {
                0 => state.insert(ACL, &rule(0, 0, 1, 1)).expect("room"),
                1 if next > 1 => state.delete(ACL, &rule(0, 0, 1, 1).key, 1).expect("it is there"),
                3 => state.set_default(ROUTE, Some(&forward(next % 500))).expect("it may change"),
                _ => {}
            }
            pipeline.housekeeping(0);
            if next > 60_000 && !too_little() {
                for key in 0..next {
                    // Workers check only the newest stations.
                    if key + 300 < next {
                        state.delete(STATION, &station(key, 0).key, 0).expect("it is there");
                    }
                }
                break;
            }
            // Pause sometimes, so that a compilation can finish.
            if next.is_multiple_of(32) {
                std::thread::sleep(Duration::from_millis(3));
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(!too_little(), "{compiled:?} compilations, {batches:?} batches");
    });
}
