//! Materialised joins: tables whose keys are results of earlier tables, in code that has them joined, against the
//! interpreter. Compared are packets, hits and misses, and direct counters, while all tables change and packets run.

mod common;

use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::{ExternId, TableId};
use common::Engines;
use datapath::{EngineKind, Local, Sent, Specialise};
use random::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A route gives a hop and a port; a hop gives a neighbour, and some packets look the port up, too. The neighbour,
/// identified by two numbers, gives the egress port; hits in `link` are counted by entry.
const TABLES: &str = "\
slot hop: 16 metadata
slot near: 8 metadata
slot sum: 9 metadata
action to (hop: 16, port: 9)
action unknown ()
action via (near: 8, tag: 9)
action straight (tag: 9)
action add (tag: 9)
extern linked counter size 1024 unit packets direct link
table route {
  key h.k: 32 lpm
  action to
  action unknown
  default 1 ()
  size 1024
}
table hop {
  key hop: 16 exact
  action via
  action straight
  action unknown
  default 2 ()
  size 1024
}
table near {
  key near: 8 exact
  key out: 9 exact
  action add
  action unknown
  default 1 ()
  size 1024
}
table link {
  key out: 9 exact
  action add
  action unknown
  default 1 ()
  size 512
  direct linked
}
";
const CONTROL: &str = "\
b0:
  %h0, %a0, %e0, %d0 = apply route (h.k)
  switch %a0, 32w0 -> b1, default -> b7
b1:
  hop = param route, 0, 0, %d0
  out = param route, 0, 1, %d0
  %h1, %a1, %e1, %d1 = apply hop (hop)
  switch %a1, 32w0 -> b2, 32w1 -> b3, default -> b7
b2:
  near = param hop, 0, 0, %d1
  sum = param hop, 0, 1, %d1
  %h2, %a2, %e2, %d2 = apply near (near, out)
  switch %a2, 32w0 -> b4, default -> b5
b3:
  sum = param hop, 1, 0, %d1
  %h3, %a3, %e3, %d3 = apply link (out)
  count_direct linked, %h3, %e3
  switch %a3, 32w0 -> b6, default -> b5
b4:
  out = param near, 0, 0, %d2
  sum = add sum, out
  send sum
b5:
  send sum
b6:
  out = param link, 0, 0, %d3
  sum = add sum, out
  send sum
b7:
  drop unknown
";

/// Two routes: the results of both are looked up together, and each by itself; one table is looked up by either of
/// the two results of the first.
const CROSSED_TABLES: &str = "\
slot hop: 16 metadata
slot other: 16 metadata
slot back: 16 metadata
action to (hop: 16, other: 16)
action unknown ()
action home (back: 16)
action add (tag: 9)
table route {
  key h.k: 32 lpm
  action to
  action unknown
  default 1 ()
  size 1024
}
table home {
  key h.l: 32 lpm
  action home
  action unknown
  default 1 ()
  size 1024
}
table pair {
  key hop: 16 exact
  key back: 16 exact
  action add
  action unknown
  default 1 ()
  size 1024
}
table one {
  key hop: 16 exact
  action add
  action unknown
  default 1 ()
  size 1024
}
table last {
  key back: 16 exact
  action add
  action unknown
  default 1 ()
  size 1024
}
";
const CROSSED: &str = "\
b0:
  %h0, %a0, %e0, %d0 = apply route (h.k)
  switch %a0, 32w0 -> b1, default -> b7
b1:
  hop = param route, 0, 0, %d0
  other = param route, 0, 1, %d0
  %h1, %a1, %e1, %d1 = apply home (h.l)
  switch %a1, 32w0 -> b2, default -> b3
b2:
  back = param home, 0, 0, %d1
  %h2, %a2, %e2, %d2 = apply pair (hop, back)
  switch %a2, 32w0 -> b4, default -> b5
b3:
  %h3, %a3, %e3, %d3 = apply one (hop)
  switch %a3, 32w0 -> b6, default -> b7
b4:
  out = param pair, 0, 0, %d2
  send out
b5:
  %h3, %a3, %e3, %d3 = apply one (other)
  switch %a3, 32w0 -> b6, default -> b8
b6:
  out = param one, 0, 0, %d3
  send out
b7:
  drop unknown
b8:
  %h4, %a4, %e4, %d4 = apply last (back)
  switch %a4, 32w0 -> b9, default -> b7
b9:
  out = param last, 0, 0, %d4
  send out
";

const ROUTE: TableId = TableId(0);
const HOP: TableId = TableId(1);
const NEAR: TableId = TableId(2);
const LINK: TableId = TableId(3);
const LINKED: ExternId = ExternId(0);

fn program() -> Arc<ir::Program> {
    common::matching(&[("k", 32)], 4, TABLES, CONTROL)
}

fn entry(key: Vec<KeyMatch>, action: u32, args: &[(u32, u64)]) -> TableEntry {
    let args = args.iter().map(|(width, value)| Bits::new(*width, (*value).into())).collect();
    TableEntry { key, priority: 0, action: EntryAction::Call(ActionCall { action, args }), idle_timeout_ns: 0 }
}

fn exact(fields: &[(u32, u64)]) -> Vec<KeyMatch> {
    fields.iter().map(|(width, value)| KeyMatch::Exact(Bits::new(*width, (*value).into()))).collect()
}

fn prefix(value: u32, prefix_len: u32) -> Vec<KeyMatch> {
    vec![KeyMatch::Lpm { value: Bits::new(32, value.into()), prefix_len }]
}

/// A random table and one of few possible entries for it.
fn draw(random: &mut Random) -> (TableId, TableEntry) {
    let mut below = |n| random.below(n);
    match below(6) {
        0..=2 => {
            let len = [0, 8, 12, 16, 24, 27][below(6) as usize] as u32;
            let value = (below(3) << 24 | below(3) << 16 | below(2) << 8 | below(256)) as u32;
            let kept = u32::MAX.checked_shl(32 - len).unwrap_or(0);
            let call: &[(u32, u64)] = &[(16, below(4)), (9, below(3))];
            let action = u32::from(below(8) == 0);
            (ROUTE, entry(prefix(value & kept, len), action, if action == 0 { call } else { &[] }))
        }
        3 => {
            let (near, tag) = ((8, below(3)), (9, below(100)));
            let key = exact(&[(16, below(5))]);
            (HOP, if below(2) == 0 { entry(key, 0, &[near, tag]) } else { entry(key, 1, &[tag]) })
        }
        4 => (NEAR, entry(exact(&[(8, below(3)), (9, below(3))]), 0, &[(9, below(100))])),
        _ => (LINK, entry(exact(&[(9, below(3))]), 0, &[(9, below(100))])),
    }
}

#[test]
fn joined_tables_say_what_tables_say() {
    for seed in 1..=6 {
        let mut random = Random::new(seed);
        let mut engines = Engines::new(&program());
        // More prefixes than are compared one by one.
        let mut there: Vec<(TableId, Vec<KeyMatch>)> = Vec::new();
        let mut routes: Vec<u32> = Vec::new();
        for i in 0..40u32 {
            let address = i << 20 | 0x4000_0000;
            let hop = random.below(5);
            let new = entry(prefix(address, 14), 0, &[(16, hop), (9, random.below(3))]);
            engines.each(|state| state.insert(ROUTE, &new).expect("there is room"));
            routes.push(address);
        }
        for step in 0..300u32 {
            if step % 10 == 0 {
                engines.recompile(Specialise::Contents);
            }
            let what = format!("seed {seed}, step {step}");
            let (table, new) = draw(&mut random);
            let old = there.iter().position(|(t, key)| *t == table && *key == new.key);
            match (old, random.below(3)) {
                (Some(at), 0) => {
                    there.swap_remove(at);
                    engines.each(|state| state.delete(table, &new.key, 0).expect("it is there"));
                }
                (Some(_), _) => engines.each(|state| state.modify(table, &new).expect("it is there")),
                (None, _) => {
                    there.push((table, new.key.clone()));
                    engines.each(|state| state.insert(table, &new).expect("there is room"));
                }
            }
            if step % 40 == 7 {
                let call = ActionCall { action: 1, args: vec![Bits::new(9, u128::from(step))] };
                let call = if step % 80 == 7 { EntryAction::Call(call) } else { entry(Vec::new(), 2, &[]).action };
                engines.each(|state| state.set_default(HOP, Some(&call)).expect("it may change"));
            }
            for _ in 0..5 {
                let [a, b, c] = [3, 3, 2].map(|n| random.below(n) as u8);
                engines.check(&[a, b, c, random.next_u64() as u8], &what);
            }
            engines.check(&routes[random.below(40) as usize].to_be_bytes(), &what);
        }
        let keys: Vec<_> = there.iter().filter(|(table, _)| *table == LINK).map(|(_, key)| key.clone()).collect();
        engines.agree("hits and misses", |pipeline| {
            pipeline.table_info().iter().filter_map(|table| table.lookups).collect::<Vec<_>>()
        });
        engines.agree("direct counters", |pipeline| {
            let count = |key: &Vec<KeyMatch>| pipeline.state().direct_counter(LINKED, key, 0).expect("it is there");
            keys.iter().map(|key| count(key).packets).collect::<Vec<_>>()
        });
    }
}

/// A key combined from parts of two routes is in neither one's rows, and a table that is looked up at two places by
/// different parameters has one's results at only one of them.
#[test]
fn parameters_of_other_rows_and_other_parameters_are_looked_up() {
    let [home, pair, one, last] = [1, 2, 3, 4].map(TableId);
    let mut engines = Engines::new(&common::matching(&[("k", 32), ("l", 32)], 5, CROSSED_TABLES, CROSSED));
    let mut random = Random::new(3);
    for i in 0..40u32 {
        let numbers = [random.below(6), random.below(6), random.below(6)];
        let route = entry(prefix(i << 20, 14), 0, &[(16, numbers[0]), (16, numbers[1])]);
        engines.each(|state| state.insert(ROUTE, &route).expect("there is room"));
        let way = entry(prefix(i << 20, 14), 0, &[(16, numbers[2])]);
        engines.each(|state| state.insert(home, &way).expect("there is room"));
    }
    for back in 0..5 {
        let alone = entry(exact(&[(16, back)]), 0, &[(9, 200 + back)]);
        engines.each(|state| state.insert(last, &alone).expect("there is room"));
    }
    for hop in 0..5 {
        for back in (0..6).filter(|back| (hop + back) % 3 != 0) {
            let both = entry(exact(&[(16, hop), (16, back)]), 0, &[(9, 10 * hop + back)]);
            engines.each(|state| state.insert(pair, &both).expect("there is room"));
        }
        let alone = entry(exact(&[(16, hop)]), 0, &[(9, 100 + hop)]);
        engines.each(|state| state.insert(one, &alone).expect("there is room"));
    }
    engines.recompile(Specialise::Contents);
    for _ in 0..2000 {
        let [k, l] = [40, 44].map(|n| (random.below(n) as u32) << 20);
        engines.check(&[k.to_be_bytes(), l.to_be_bytes()].concat(), "crossed");
    }
}

/// Staged code waits for a large table of routes, but not for tables joined to it.
#[test]
fn packets_wait_for_routes_and_not_for_their_hops() {
    const HOPS: u32 = 2000;
    let program = common::matching(&[("k", 32)], 4, &TABLES.replace("size 1024", "size 8192"), CONTROL);
    let route = |i: u32| entry(prefix(i << 16, 24), 0, &[(16, (i % HOPS).into()), (9, (i % 3).into())]);
    let hop = |i: u32, add: u32| match i % 2 {
        0 => entry(exact(&[(16, i.into())]), 0, &[(8, (i % 5).into()), (9, (i % 200 + add).into())]),
        _ => entry(exact(&[(16, i.into())]), 1, &[(9, (i % 200 + add).into())]),
    };
    let fill = |state: &dyn abi::PipelineState| {
        (0..6000).for_each(|i| state.insert(ROUTE, &route(i)).expect("there is room"));
        (0..HOPS).for_each(|i| state.insert(HOP, &hop(i, 0)).expect("there is room"));
        for port in 0..3 {
            let key = exact(&[(8, 2), (9, port)]);
            state.insert(NEAR, &entry(key, 0, &[(9, 7)])).expect("there is room");
            state.insert(LINK, &entry(exact(&[(9, port)]), 0, &[(9, 9)])).expect("there is room");
        }
    };
    let alone = datapath::load(Arc::clone(&program), EngineKind::Machine, 1).expect("it loads");
    fill(alone.state().as_ref());
    alone.recompile(Specialise::Contents).expect("it compiles");
    let phases = alone.code_info().expect("it is machine code").phases;
    let waits: Vec<_> = phases.iter().map(|phase| (&phase.waits_for[..], phase.begun_with.len())).collect();
    assert_eq!(waits, [("route", 0)]);

    let mut engines = Engines::new(&program);
    engines.each(fill);
    let mut random = Random::new(7);
    for step in 0..40 {
        engines.recompile(Specialise::Contents);
        for _ in 0..50 {
            // A few addresses match no route.
            let address = (random.below(6020) << 16 | random.below(300)) as u32;
            engines.check(&address.to_be_bytes(), &format!("step {step}"));
        }
        let changed = hop(random.below(HOPS.into()) as u32, step);
        engines.each(|state| state.modify(HOP, &changed).expect("it is there"));
    }
}

/// Routes to new hops are added while a worker runs joined code: no packet sees a new hop with another hop's results.
#[test]
fn a_new_answer_comes_with_all_that_is_joined_to_it() {
    const ROUNDS: u64 = 300;
    let pipeline = Arc::new(datapath::load(program(), EngineKind::Machine, 1).expect("it loads"));
    let state = pipeline.state();
    for i in 0..40u32 {
        state.insert(ROUTE, &entry(prefix(i << 20, 14), 0, &[(16, 1), (9, 1)])).expect("room");
    }
    state.insert(HOP, &entry(exact(&[(16, 1)]), 1, &[(9, 1)])).expect("room");
    // The egress port of packets routed to a hop, by hop number.
    let port = |hop: u64| (hop % 300 + 2) as u32;
    let (stop, newest) = (AtomicBool::new(false), AtomicU64::new(1));
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut local = Local::new(Arc::clone(&pipeline));
            let mut frame = [0u8; 60];
            frame[..4].copy_from_slice(&0x0a0b_0c0du32.to_be_bytes());
            let frames = [&frame[..]; abi::BATCH_MAX];
            while !stop.load(Ordering::Relaxed) {
                let before = newest.load(Ordering::Acquire);
                let sent = local.receive_batch(1, &frames).expect("they fit");
                let after = newest.load(Ordering::Acquire);
                // While the route changes, either result is allowed.
                let is = |sent: &Sent, hop: u64| hop > 1 && sent.port == port(hop);
                let may_be = |sent: &Sent| (before..=after + 1).any(|hop| is(sent, hop));
                let wrong = sent.iter().find(|sent| !may_be(sent));
                let is_right = sent.len() == frames.len() && wrong.is_none();
                assert!(before == 1 || is_right, "{} sent, {wrong:?} between {before} and {after}", sent.len());
                seen.store(before, Ordering::Release);
            }
        });
        for hop in 2..2 + ROUNDS {
            state.insert(HOP, &entry(exact(&[(16, hop)]), 1, &[(9, port(hop).into())])).expect("room");
            if hop % 3 != 0 {
                pipeline.recompile(Specialise::Contents).expect("it compiles");
            }
            let route = entry(prefix(0x0a0b_0c0d, 32), 0, &[(16, hop), (9, 2)]);
            match hop {
                2 => state.insert(ROUTE, &route).expect("room"),
                _ => state.modify(ROUTE, &route).expect("it is there"),
            }
            newest.store(hop, Ordering::Release);
            common::wait_for("packets that take it", || seen.load(Ordering::Acquire) == hop);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
