//! The profiler: exact action counts on every kind of code, samples by parts of the program, and nothing once nobody
//! watches.

mod common;

use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::TableId;
use common::{LIMIT, wait_for};
use datapath::{EngineKind, Local, Pipeline, Specialise, Switch, SwitchConfig};
use pktio::{HeapPool, MemoryDevice};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A frame's first 32 bits are looked up in `acl`, then in `station`: the egress port.
const TABLES: &str = "\
action permit ()
action deny ()
action forward (port: 9)
action unknown ()
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
  size 65536
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
  send out
b4:
  drop unknown
";

const ACL: TableId = TableId(0);
const STATION: TableId = TableId(1);

fn bits(value: u32) -> Bits {
    Bits::new(32, value.into())
}

/// A pipeline in which stations up to `stations` are at port 2; keys that end in 0xf are denied.
fn pipeline(engine: EngineKind, stations: u32) -> Arc<Pipeline> {
    let program = common::matching(&[("k", 32)], 2, TABLES, CONTROL);
    let pipeline = Arc::new(datapath::load(program, engine, 1).expect("it can be loaded"));
    let entry = |key: KeyMatch, action: u32, args: Vec<Bits>, priority| TableEntry {
        key: vec![key],
        action: EntryAction::Call(ActionCall { action, args }),
        priority,
        idle_timeout_ns: 0,
    };
    let state = pipeline.state();
    for n in 0..stations {
        let new = entry(KeyMatch::Exact(bits(n)), 0, vec![Bits::new(9, 2)], 0);
        state.insert(STATION, &new).expect("it fits");
    }
    let denied = KeyMatch::Ternary { value: bits(0xf), mask: bits(0xf) };
    state.insert(ACL, &entry(denied, 1, vec![], 1)).expect("it fits");
    pipeline
}

fn frame(key: u32) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..4].copy_from_slice(&key.to_be_bytes());
    frame
}

fn counts(pipeline: &Pipeline) -> BTreeMap<(String, String), u64> {
    pipeline.action_info().into_iter().map(|info| ((info.table, info.action), info.packets)).collect()
}

fn expected(list: [(&str, &str, u64); 4]) -> BTreeMap<(String, String), u64> {
    list.map(|(table, action, packets)| ((table.to_string(), action.to_string()), packets)).into()
}

#[test]
fn actions_are_counted_exactly_by_all_code_and_only_while_somebody_watches() {
    let modes = [None, Some(Specialise::Constants), Some(Specialise::Contents)];
    for (engine, mode) in [EngineKind::Machine, EngineKind::Staged].into_iter().flat_map(|e| modes.map(|m| (e, m))) {
        let what = format!("{engine:?}, {mode:?}");
        // With `Contents`, 3 stations are part of the code; 5,000 are looked up.
        for stations in [3, 5000] {
            let pipeline = pipeline(engine, stations);
            let mut local = Local::new(Arc::clone(&pipeline));
            let mut run = |key| drop(local.receive(1, &frame(key)).expect("it fits"));
            run(1);
            assert!(counts(&pipeline).values().all(|n| *n == 0), "{what}: nobody watches");
            pipeline.watch(true);
            let compile = |mode: Specialise| _ = pipeline.recompile(mode).expect("it compiles");
            mode.into_iter().for_each(compile);
            for (key, times) in [(2, 3), (0xff_ffff, 4), (70_000, 5)] {
                (0..times).for_each(|_| run(key));
            }
            let now = expected([
                ("acl", "permit", 8),
                ("acl", "deny", 4),
                ("station", "forward", 3),
                ("station", "unknown", 5),
            ]);
            assert_eq!(counts(&pipeline), now, "{what}, {stations} stations");
            pipeline.watch(false);
            mode.into_iter().for_each(compile);
            run(2);
            assert_eq!(counts(&pipeline), now, "{what}: nobody watches any more");
        }
    }
}

#[test]
fn the_interpreter_counts_no_actions_and_does_not_mind() {
    let pipeline = pipeline(EngineKind::Interpreter, 3);
    pipeline.watch(true);
    assert_eq!(pipeline.action_info(), []);
}

#[test]
fn a_switch_says_where_its_cycles_go_until_the_watcher_is_gone() {
    let pool = HeapPool::shared(4096);
    let switch = Switch::new(SwitchConfig { pool: Some(Arc::clone(&pool)), ..SwitchConfig::default() });
    let pipeline = pipeline(EngineKind::Machine, 5000);
    pipeline.specialise(Specialise::Auto);
    switch.set_pipeline(Some(Arc::clone(&pipeline))).expect("workers answer");
    let open = |number| {
        let (device, handle) = MemoryDevice::new(format!("m{number}"), Arc::clone(&pool), 1);
        switch.add_port(number, Box::new(device)).expect("a new number");
        handle
    };
    let (from, to) = (open(1), open(2));
    assert_eq!(switch.watched(), datapath::Watched::default());
    let before = switch.worker_load()[0];
    let deadline = Instant::now() + LIMIT;
    let found = |what: &str| switch.watched().regions.iter().any(|r| r.region == what && r.samples > 0);
    let counted = |action: &str| switch.actions(1).iter().any(|a| a.action == action && a.packets > 0);
    let mut key = 0;
    while !(found("table:station") && counted("forward") && counted("unknown") && counted("deny")) {
        assert!(Instant::now() < deadline, "{:?}, {:?}", switch.watched(), switch.actions(1));
        switch.watch(Duration::from_millis(300));
        for _ in 0..200 {
            key = (key + 1) % 6000;
            from.inject(&frame(key));
        }
        to.collect();
    }
    let watched = loop {
        switch.watch(Duration::from_millis(300));
        let watched = switch.watched();
        if watched.now {
            break watched;
        }
        assert!(Instant::now() < deadline, "nobody watches");
    };
    assert!(watched.regions.iter().all(|r| r.device == 1));
    let load = switch.worker_load()[0];
    let all = (load.total_cycles() - before.total_cycles()) as f64;
    let regions: f64 = watched.regions.iter().map(|r| r.cycles).sum();
    assert!(regions > 0.0 && regions <= all, "{regions} of {all}");
    assert!(watched.regions.iter().map(|r| r.samples).sum::<u64>() <= watched.samples);

    // A new program is watched, too.
    let other = self::pipeline(EngineKind::Machine, 10);
    switch.set_pipeline(Some(Arc::clone(&other))).expect("workers answer");
    while !counts(&other).values().any(|n| *n > 0) {
        assert!(Instant::now() < deadline, "{:?}", counts(&other));
        switch.watch(Duration::from_millis(300));
        from.inject(&frame(1));
        to.collect();
    }
    wait_for("the end", || !switch.watched().now);
    // Earlier samples are counted soon.
    let read = || (switch.watched().samples, switch.actions(1));
    let mut last = read();
    wait_for("all is counted", || {
        std::thread::sleep(Duration::from_millis(50));
        let now = read();
        let same = now == last;
        last = now;
        same
    });
    let packets = switch.worker_load()[0].packets;
    wait_for("more packets", || {
        from.inject(&frame(1));
        to.collect();
        switch.worker_load()[0].packets > packets + 100
    });
    assert_eq!(read(), last);
}

#[test]
fn a_switch_that_is_watched_can_end() {
    let switch = Switch::new(SwitchConfig { workers: 3, ..SwitchConfig::default() });
    switch.watch(Duration::MAX);
    wait_for("samples", || switch.watched().samples > 0);
    drop(switch);
}
