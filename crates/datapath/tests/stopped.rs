//! Workers stopped in the middle of a batch while tables change: specialised code must never see table contents that
//! it would misread, and a change that would cause this is refused without side effects.
//!
//! One test stops at the critical point: between two copies of a packet, so that the second one's egress runs in a
//! batch that began before the change. The other stops workers at random instructions, with a signal whose handler
//! waits, while entries of all kinds of tables and default actions change and code is compiled; the result for each
//! packet must have been correct at some time during its batch. It runs briefly; `cargo xtask stopped SECONDS` makes
//! it longer (`STOPPED_MS`).
//!
//! A signal stops a thread as well as `ptrace` from another process would. Both take effect between any two
//! instructions of user code, and at the end of a system call; both preserve registers and memory of the interrupted
//! code; in both cases entering the kernel drains the store buffer. So other threads see the same: a thread that
//! makes no progress for a while. The handler itself reads one atomic and sleeps. It needs no second process and no
//! permission to trace.
#![allow(unsafe_code)]

mod common;

use abi::StateError;
use abi::state::Phase;
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind, TableEntry};
use base::ids::TableId;
use datapath::drops::DropReason;
use datapath::engine::{Engine, Sink};
use datapath::replication::Replica;
use datapath::{ACKNOWLEDGE_MAX, EngineKind, Pipeline, Specialise};
use pktio::{HeapPool, Packet};
use random::Random;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Width in bits of the large parameter: far more than the other action's entries have.
const WIDE: u32 = 512;

/// Name, key width, match kind and size of a table for each engine and each lookup plan of compiled code.
const KINDS: [(&str, u32, MatchKind, u32); 5] = [
    ("exact", 32, MatchKind::Exact, 1 << 16),
    ("direct", 8, MatchKind::Exact, 256),
    ("prefixes", 32, MatchKind::Lpm, 128),
    ("spread", 32, MatchKind::Lpm, 1 << 16),
    ("rules", 32, MatchKind::Ternary, 1024),
];

/// A program that looks the frame's key up in tables of these kinds; each writes its result into fields of its own: a
/// label and a wide value. With `copies`, ingress sends the packet to group 1, and egress does the lookups.
fn program(kinds: &[(&str, u32, MatchKind, u32)], copies: bool) -> Arc<ir::Program> {
    let [mut slots, mut header, mut tables, mut control] = [(); 4].map(|()| String::new());
    let last = kinds.len();
    for (i, (name, width, kind, size)) in kinds.iter().enumerate() {
        let kind = match kind {
            MatchKind::Lpm => "lpm",
            MatchKind::Ternary => "ternary",
            _ => "exact",
        };
        let key = if *width == 8 { "h.low" } else { "h.k" };
        write!(
            slots,
            "slot h.label{i}: 16 field h\nslot h.wide{i}: {WIDE} field h\nslot %h{i}: 1 temp\nslot %a{i}: 32 temp\n\
             slot %e{i}: 64 temp\nslot %d{i}: 64 temp\n"
        )
        .expect("a string");
        write!(header, "  label{i} = h.label{i}\n  wide{i} = h.wide{i}\n").expect("a string");
        write!(
            tables,
            "table {name} {{\n  key {key}: {width} {kind}\n  action none\n  action mark\n  action wide\n  default 0 ()\n  \
             size {size}\n}}\n"
        )
        .expect("a string");
        let (at, next) = (3 * i, 3 * (i + 1));
        write!(
            control,
            "b{at}:\n  %h{i}, %a{i}, %e{i}, %d{i} = apply {name} ({key})\n  switch %a{i}, 32w1 -> b{}, 32w2 -> b{}, default -> b{next}\n\
             b{}:\n  h.label{i} = param {name}, 1, 0, %d{i}\n  jump b{next}\n\
             b{}:\n  h.label{i} = param {name}, 2, 0, %d{i}\n  h.wide{i} = param {name}, 2, 1, %d{i}\n  jump b{next}\n",
            at + 1,
            at + 2,
            at + 1,
            at + 2,
        )
        .expect("a string");
    }
    let bits = 32 + last as u32 * (16 + WIDE);
    let (stages, ingress) = match copies {
        true => {
            ("entry ingress (p, i, e, d)\nentry egress (e, d)", "b0:\n  group = mov 16w1\n  replicate ingress_end\n")
        }
        false => ("entry ingress (p, e, d)", "b0:\n  next\n"),
    };
    let text = format!(
        "program \"stopped\"
drops short
slot port: 9 metadata
slot group: 16 metadata
slot h.high: 24 field h
slot h.low: 8 field h
slot h.k: 32 metadata
slot h.$valid: 1 valid h
slot %ok: 1 temp
slot %out: 32 temp
{slots}header h valid h.$valid {{
  high = h.high
  low = h.low
{header}}}
action none ()
action mark (label: 16)
action wide (label: 16, value: {WIDE})
{tables}intrinsic multicast_group = group
intrinsic egress_port = port
{stages}
stage parser p {{
b0:
  %ok = has_bits 32w{bits}
  branch %ok, b1, b2
b1:
  h.k = lookahead 0
  extract h
  next
b2:
  drop short
}}
stage control i {{
{ingress}}}
stage control e {{
{control}b{}:
  next
}}
stage deparser d {{
b0:
  emit h
  %out = zext port
  send %out
}}
",
        3 * last
    );
    Arc::new(ir::parse(&text, base::FileId(0)).unwrap_or_else(|d| panic!("{text}\n{d:#?}")))
}

/// A frame with this key.
fn frame(key: u8, tables: usize) -> Vec<u8> {
    let mut bytes = vec![0; 4 + tables * (2 + WIDE as usize / 8)];
    bytes[3] = key;
    bytes
}

/// The wide value that belongs to a label.
fn wide_of(label: u16) -> Vec<u8> {
    label.to_be_bytes().repeat(WIDE as usize / 16)
}

/// The effect of an entry or a default action: nothing, or a label, alone or with its wide value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Does {
    Nothing,
    Mark(u16),
    Wide(u16),
}

impl Does {
    fn action(self) -> EntryAction {
        let label = |label: u16| Bits::new(16, label.into());
        EntryAction::Call(match self {
            Does::Nothing => ActionCall { action: 0, args: vec![] },
            Does::Mark(l) => ActionCall { action: 1, args: vec![label(l)] },
            Does::Wide(l) => ActionCall { action: 2, args: vec![label(l), Bits::from_bytes_be(WIDE, &wide_of(l))] },
        })
    }

    /// The effect that a table left in a frame. Any other value was written by neither action.
    fn read(frame: &[u8], table: usize) -> Does {
        let at = 4 + table * (2 + WIDE as usize / 8);
        let label = u16::from_be_bytes([frame[at], frame[at + 1]]);
        let wide = &frame[at + 2..][..WIDE as usize / 8];
        match wide.iter().all(|b| *b == 0) {
            true if label == 0 => Does::Nothing,
            true => Does::Mark(label),
            false => {
                assert_eq!(wide, wide_of(label), "bytes that no entry has, with label {label} of table {table}");
                Does::Wide(label)
            }
        }
    }
}

/// The entry for a key; entries do not overlap.
fn entry(kind: (&str, u32, MatchKind, u32), key: u8, does: Does) -> TableEntry {
    let value = Bits::new(kind.1, key.into());
    let (key, priority) = match kind.2 {
        MatchKind::Lpm => (KeyMatch::Lpm { value, prefix_len: 32 }, 0),
        MatchKind::Ternary => (KeyMatch::Ternary { value, mask: Bits::ones(32) }, 1),
        _ => (KeyMatch::Exact(value), 0),
    };
    TableEntry { key: vec![key], priority, action: does.action(), idle_timeout_ns: 0 }
}

/// A sink that blocks after the first copy until told to continue.
struct StandsStill {
    sent: Vec<Vec<u8>>,
    stands: Sender<()>,
    go_on: Receiver<()>,
}

impl Sink for StandsStill {
    fn send(&mut self, _: u32, packet: Packet) {
        self.sent.push(packet.data().to_vec());
        if self.sent.len() == 1 {
            self.stands.send(()).expect("somebody waits");
            self.go_on.recv().expect("somebody says so");
        }
    }

    fn drop(&mut self, reason: DropReason, _: Packet) {
        panic!("{reason:?}");
    }

    fn lost_copies(&mut self, reason: DropReason, _: u64) {
        panic!("{reason:?}");
    }
}

/// The effects on both copies of a packet with this key; `meanwhile` runs between them.
fn two_copies(pipeline: &Pipeline, key: u8, meanwhile: impl FnOnce()) -> [Does; 2] {
    let (stands, is_standing) = channel();
    let (go_on, may_go_on) = channel();
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut engine = Engine::new(Arc::clone(pipeline.program()), Arc::clone(pipeline.replication()));
            let mut executor = pipeline.executor(0);
            let mut sink = StandsStill { sent: Vec::new(), stands, go_on: may_go_on };
            let pool = HeapPool::shared(8);
            let mut burst = vec![pool.alloc_from(&frame(key, 1)).expect("a buffer")];
            engine.receive(executor.as_mut(), &mut burst, 1, 0, &mut sink);
            executor.idle();
            sink.sent
        });
        is_standing.recv().expect("it stands");
        meanwhile();
        go_on.send(()).expect("it waits");
        let sent = worker.join().expect("the worker does not panic");
        [0, 1].map(|copy| Does::read(&sent[copy], 0))
    })
}

/// A change for the key 7.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Insert,
    Modify,
    Delete,
    Default,
}

/// The finding: a worker was stopped in a batch, an entry of another action added, and the worker resumed. The new
/// entry ran the old action, and memory beyond the entry was sent.
#[test]
fn code_never_meets_an_entry_that_it_was_not_made_for_however_long_its_worker_stands() {
    // In parallel, since each waits as long as a writer does.
    std::thread::scope(|scope| {
        for kind in KINDS {
            for change in [Change::Insert, Change::Modify, Change::Delete, Change::Default] {
                scope.spawn(move || is_not_met(kind, change));
            }
        }
    });
}

fn is_not_met(kind: (&str, u32, MatchKind, u32), change: Change) {
    let pipeline = datapath::load(program(&[kind], true), EngineKind::Machine, 1).expect("it loads");
    let replicas = [2, 3].map(|port| Replica { port, instance: 0 });
    pipeline.replication().group_insert(1, replicas.to_vec()).expect("a new group");
    let (state, table) = (pipeline.state(), TableId(0));
    // Few enough to become part of the code, whatever the kind.
    (1..7).for_each(|key| state.insert(table, &entry(kind, key, Does::Mark(40))).expect("room"));
    let is_there = matches!(change, Change::Modify | Change::Delete);
    if is_there {
        state.insert(table, &entry(kind, 7, Does::Mark(41))).expect("room");
    }
    pipeline.recompile(Specialise::Contents).expect("it compiles");
    let make = || match change {
        Change::Insert => state.insert(table, &entry(kind, 7, Does::Wide(9))),
        Change::Modify => state.modify(table, &entry(kind, 7, Does::Wide(9))),
        Change::Delete => {
            state.delete(table, &entry(kind, 7, Does::Nothing).key, entry(kind, 7, Does::Nothing).priority)
        }
        Change::Default => state.set_default(table, Some(&Does::Wide(9).action())),
    };
    let what = format!("{change:?} in `{}`", kind.0);
    let before = if is_there { Does::Mark(41) } else { Does::Nothing };
    let all = || (state.entries(table), state.default_action(table));
    let copies = two_copies(&pipeline, 7, || {
        let was = all();
        assert_eq!(make(), Err(StateError::Unacknowledged(0)), "{what}");
        // Writers do not wait again for a worker known to be stopped: otherwise this would take minutes.
        for _ in 0..300 {
            assert_eq!(make(), Err(StateError::Unacknowledged(0)), "{what}, again");
        }
        assert_eq!(all(), was, "{what} left something");
        // A batch of changes is rolled back as a whole although the worker is stopped.
        let phase = state.set_phase(Phase::Atomic);
        assert_eq!(make(), Err(StateError::Unacknowledged(0)), "{what}, in a batch");
        state.set_phase(phase);
    });
    assert_eq!(copies, [before; 2], "{what}");
    assert_eq!(make(), Ok(()), "{what}, after it");
    let after = if change == Change::Delete { Does::Nothing } else { Does::Wide(9) };
    assert_eq!(two_copies(&pipeline, 7, || ()), [after; 2], "{what}, after it");
}

/// An atomic batch can be rolled back while a worker is stopped, and a compilation cannot prevent it.
#[test]
fn a_batch_is_taken_back_under_a_worker_that_stands() {
    for kind in KINDS {
        let pipeline = datapath::load(program(&[kind], true), EngineKind::Machine, 1).expect("it loads");
        let replicas = [2, 3].map(|port| Replica { port, instance: 0 });
        pipeline.replication().group_insert(1, replicas.to_vec()).expect("a new group");
        let (state, table) = (pipeline.state(), TableId(0));
        (1..8).for_each(|key| state.insert(table, &entry(kind, key, Does::Mark(key.into()))).expect("room"));
        pipeline.recompile(Specialise::Contents).expect("it compiles");
        let was = state.entries(table);
        let priority = entry(kind, 1, Does::Nothing).priority;
        let phase = state.set_phase(Phase::Atomic);
        // The only entry with its contents is deleted: restoring it adds new contents.
        state.delete(table, &entry(kind, 3, Does::Nothing).key, priority).expect("it is there");
        state.modify(table, &entry(kind, 7, Does::Wide(7))).expect("it is there");
        state.insert(table, &entry(kind, 9, Does::Wide(9))).expect("room");
        std::thread::scope(|scope| {
            // The compilation waits for the end of the batch.
            let compiler = scope.spawn(|| pipeline.recompile(Specialise::Contents));
            let copies = two_copies(&pipeline, 7, || {
                state.set_phase(Phase::Undo);
                state.delete(table, &entry(kind, 9, Does::Nothing).key, priority).expect("it can be undone");
                state.modify(table, &entry(kind, 7, Does::Mark(7))).expect("it can be undone");
                state.insert(table, &entry(kind, 3, Does::Mark(3))).expect("it can be undone");
                state.set_phase(phase);
            });
            assert_eq!(copies[0], Does::Wide(7), "`{}`", kind.0);
            assert!([Does::Wide(7), Does::Mark(7)].contains(&copies[1]), "`{}`: {copies:?}", kind.0);
            compiler.join().expect("no panic").expect("it compiles");
        });
        let sorted = |mut entries: Vec<abi::state::ReadEntry>| {
            entries.sort_by_key(|read| format!("{:?}", read.entry.key));
            entries
        };
        assert_eq!(sorted(state.entries(table)), sorted(was), "`{}`", kind.0);
    }
}

/// Number of keys of packets and entries.
const KEYS: u8 = 9;
/// Worker threads.
const WORKERS: usize = 2;

/// One version of an object (an entry or a default action), with its lifetime. Time is a count of all beginnings and
/// ends of changes.
struct Version {
    /// Its effect; `None` for an entry that does not exist.
    does: Option<Does>,
    /// No packet can have met it before this time.
    begin: u64,
    /// No packet can meet it after this time.
    end: u64,
    /// Whether the change to it has succeeded; until then it may be refused.
    made: bool,
    /// Whether a packet met it before it succeeded: then it must not be refused.
    met: bool,
}

/// The history of all changes, against which packets are checked.
struct Model {
    clock: AtomicU64,
    /// By table: the versions by key, followed by those of the default action.
    things: Vec<Vec<Mutex<Vec<Version>>>>,
}

impl Model {
    fn new(tables: usize) -> Model {
        let first = |does| Mutex::new(vec![Version { does, begin: 0, end: u64::MAX, made: true, met: false }]);
        let things = |_| (0..KEYS).map(|_| first(None)).chain([first(Some(Does::Nothing))]).collect();
        Model { clock: AtomicU64::new(1), things: (0..tables).map(things).collect() }
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn now(&self, table: usize, thing: usize) -> Option<Does> {
        self.things[table][thing].lock().expect("no panic").last().expect("there is one").does
    }

    /// Makes a change and records when packets may meet it. Returns whether it succeeded.
    fn change(
        &self,
        table: usize,
        thing: usize,
        does: Option<Does>,
        make: impl FnOnce() -> Result<(), StateError>,
    ) -> bool {
        let versions = &self.things[table][thing];
        versions.lock().expect("no panic").push(Version {
            does,
            begin: self.tick(),
            end: u64::MAX,
            made: false,
            met: false,
        });
        let made = make();
        let mut versions = versions.lock().expect("no panic");
        let end = self.tick();
        match made {
            Ok(()) => {
                let last = versions.len() - 1;
                versions[last - 1].end = end;
                versions[last].made = true;
            }
            Err(StateError::Unacknowledged(worker)) => {
                assert!((worker as usize) < WORKERS, "{worker}");
                let refused = versions.pop().expect("it was just pushed");
                assert!(!refused.met, "a packet met {does:?}, which was refused");
            }
            Err(error) => panic!("{does:?} for {thing} of table {table}: {error:?}"),
        }
        // Batches do not last this long unless they are stopped.
        let old = versions.len().saturating_sub(4000);
        versions.drain(..old);
        made.is_ok()
    }

    /// Whether a packet may have met this version in a batch between these times; unless `made`, also if the change
    /// may still be refused.
    fn may_be(&self, table: usize, thing: usize, does: Option<Does>, batch: (u64, u64), made: bool) -> bool {
        let mut versions = self.things[table][thing].lock().expect("no panic");
        let is = |v: &&mut Version| v.does == does && v.begin <= batch.1 && v.end >= batch.0 && (v.made || !made);
        let found: Vec<&mut Version> = versions.iter_mut().filter(is).collect();
        let is = !found.is_empty();
        found.into_iter().for_each(|version| version.met |= !version.made);
        is
    }

    /// Whether a table may have had this effect for a key in a batch between these times.
    fn may_give(&self, table: usize, key: usize, found: Does, batch: (u64, u64)) -> bool {
        // Changes that may be refused are considered only if nothing else explains the effect.
        [true, false].into_iter().any(|made| {
            // A lookup may have missed before an entry was added, and then run a later default action.
            self.may_be(table, key, Some(found), batch, made)
                || self.may_be(table, key, None, batch, made)
                    && self.may_be(table, usize::from(KEYS), Some(found), batch, made)
        })
    }
}

/// A sink that keeps the frames.
struct Frames(Vec<Vec<u8>>);

impl Sink for Frames {
    fn send(&mut self, _: u32, packet: Packet) {
        self.0.push(packet.data().to_vec());
    }

    fn drop(&mut self, reason: DropReason, _: Packet) {
        panic!("{reason:?}");
    }

    fn lost_copies(&mut self, reason: DropReason, _: u64) {
        panic!("{reason:?}");
    }
}

/// Whether the worker that gets the signal keeps waiting.
static STAND: AtomicBool = AtomicBool::new(false);

extern "C" fn stand(_: libc::c_int) {
    while STAND.load(Ordering::Relaxed) {
        // SAFETY: it may be called in a handler, and writes to no memory of this process.
        unsafe { libc::usleep(20) };
    }
}

fn worker(pipeline: &Pipeline, index: usize, model: &Model, stop: &AtomicBool) -> u64 {
    let mut random = Random::new(index as u64);
    let mut engine = Engine::new(Arc::clone(pipeline.program()), Arc::clone(pipeline.replication()));
    let mut executor = pipeline.executor(index);
    let pool = HeapPool::shared(64);
    let mut batches = 0;
    while !stop.load(Ordering::Relaxed) {
        let keys: Vec<u8> = (0..32).map(|_| random.below(KEYS.into()) as u8).collect();
        let alloc = |key: &u8| pool.alloc_from(&frame(*key, KINDS.len())).expect("a buffer");
        let mut burst = keys.iter().map(alloc).collect();
        let mut sink = Frames(Vec::new());
        let begin = model.tick();
        engine.receive(executor.as_mut(), &mut burst, 1, batches, &mut sink);
        let batch = (begin, model.tick());
        match random.below(8) {
            0 => executor.idle(),
            _ => executor.quiescent(),
        }
        for (key, frame) in keys.iter().zip(&sink.0) {
            for (table, (name, ..)) in KINDS.iter().enumerate() {
                let (found, key) = (Does::read(frame, table), usize::from(*key));
                assert!(
                    model.may_give(table, key, found, batch),
                    "`{name}`: {found:?} for {key} was never right in {batch:?}"
                );
            }
        }
        batches += 1;
    }
    executor.idle();
    batches
}

fn write(pipeline: &Pipeline, model: &Model, stop: &AtomicBool) -> (u64, u64) {
    let (mut random, mut label) = (Random::new(99), 0);
    let (mut made, mut refused) = (0, 0);
    let state = pipeline.state();
    while !stop.load(Ordering::Relaxed) {
        let table = random.below(KINDS.len() as u64) as usize;
        let (kind, id) = (KINDS[table], TableId(table as u32));
        let thing = random.below(u64::from(KEYS) + 1) as usize;
        // Entries with equal contents share them in some tables; 0 is no label.
        label = label % 60_000 + 1;
        let label = if random.below(2) == 0 { label } else { 60_001 + label % 7 };
        let does = if random.below(3) == 0 { Does::Wide(label) } else { Does::Mark(label) };
        let key = thing as u8;
        let is_made = if thing == usize::from(KEYS) {
            model.change(table, thing, Some(does), || state.set_default(id, Some(&does.action())))
        } else if model.now(table, thing).is_none() {
            model.change(table, thing, Some(does), || state.insert(id, &entry(kind, key, does)))
        } else if random.below(3) == 0 {
            let gone = entry(kind, key, does);
            model.change(table, thing, None, || state.delete(id, &gone.key, gone.priority))
        } else {
            model.change(table, thing, Some(does), || state.modify(id, &entry(kind, key, does)))
        };
        made += u64::from(is_made);
        refused += u64::from(!is_made);
        // Let specialised code last for a while; otherwise packets would run only generic code.
        std::thread::sleep(Duration::from_micros(random.below(3000)));
    }
    (made, refused)
}

#[test]
fn workers_that_are_stopped_at_any_instruction_run_no_code_that_does_not_fit() {
    let ms = std::env::var("STOPPED_MS").ok().and_then(|ms| ms.parse().ok()).unwrap_or(4000);
    let pipeline = datapath::load(program(&KINDS, false), EngineKind::Machine, WORKERS).expect("it loads");
    let (model, stop) = (Model::new(KINDS.len()), AtomicBool::new(false));
    // SAFETY: the handler only sleeps and reads an atomic, and nothing else uses the signal here.
    unsafe {
        let handler = stand as extern "C" fn(libc::c_int);
        libc::signal(libc::SIGUSR2, handler as libc::sighandler_t);
    }
    let (pipeline, model, stop) = (&pipeline, &model, &stop);
    std::thread::scope(|scope| {
        let (threads, ids) = channel();
        let workers: Vec<_> = (0..WORKERS)
            .map(|index| {
                let threads = threads.clone();
                scope.spawn(move || {
                    // SAFETY: it always succeeds.
                    threads.send(unsafe { libc::pthread_self() } as u64).expect("somebody listens");
                    worker(pipeline, index, model, stop)
                })
            })
            .collect();
        let ids: Vec<u64> = ids.iter().take(WORKERS).collect();
        let writer = scope.spawn(|| write(pipeline, model, stop));
        let compiler = scope.spawn(|| {
            let mut compiled = 0;
            while !stop.load(Ordering::Relaxed) {
                compiled += u64::from(pipeline.recompile_quick(Specialise::Contents).is_some());
                std::thread::sleep(Duration::from_millis(1));
            }
            compiled
        });
        let (start, mut random, mut stops) = (Instant::now(), Random::new(5), 0);
        while start.elapsed() < Duration::from_millis(ms) && !workers.iter().any(|w| w.is_finished()) {
            std::thread::sleep(Duration::from_micros(random.below(3000)));
            STAND.store(true, Ordering::Relaxed);
            // SAFETY: the thread runs until `stop` is set, which is below.
            unsafe { libc::pthread_kill(ids[random.below(WORKERS as u64) as usize] as libc::pthread_t, libc::SIGUSR2) };
            // Occasionally longer than writers wait.
            std::thread::sleep(match stops % 200 {
                150 => ACKNOWLEDGE_MAX + Duration::from_millis(300),
                _ => Duration::from_micros(random.below(8000)),
            });
            STAND.store(false, Ordering::Relaxed);
            stops += 1;
        }
        stop.store(true, Ordering::Relaxed);
        let batches: Vec<u64> = workers.into_iter().map(|w| w.join().expect("every packet was right")).collect();
        let (made, refused) = writer.join().expect("every change was made or refused as it should");
        let compiled = compiler.join().expect("it compiles");
        println!(
            "{batches:?} batches, {made} changes made and {refused} refused, {compiled} compilations, {stops} stops"
        );
        assert!(made > 0 && compiled > 0 && stops > 0 && batches.iter().all(|n| *n > 0));
    });
}
