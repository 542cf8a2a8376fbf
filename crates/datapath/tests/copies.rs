//! Packets that the replication engine moves between entry points of the program while code is recompiled: whichever
//! code writes a packet's record and whichever reads it, the output is the same.
//!
//! Also limits on the cost of copies.
//!
//! Random programs that clone, resubmit and recirculate are in `difftest`.

mod common;

use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::TableId;
use common::Engines;
use datapath::drops::{DropReason, RuntimeDrop};
use datapath::engine::{Engine, Sink, UNIT_BYTES, WORK_MAX};
use datapath::replication::Replica;
use datapath::{EngineKind, Specialise};
use pktio::{HeapPool, Packet};
use std::sync::Arc;

/// The first byte is looked up; packets that hit go to a group of ports with a label, which the copies carry in their
/// second byte. Once all entries agree on the label, only the part of the record that the copies' entry point reads
/// has it.
const PROGRAM: &str = r#"program "copies"
drops unknown
slot port: 9 metadata
slot spec: 9 metadata
slot group: 16 metadata
slot rid: 16 metadata
slot label: 8 metadata
slot h.k: 8 field h
slot h.label: 8 field h
slot h.$valid: 1 valid h
slot %ok: 1 temp
slot %h: 1 temp
slot %a: 32 temp
slot %e: 64 temp
slot %d: 64 temp
slot %r: 8 temp
slot %out: 32 temp
header h valid h.$valid {
  k = h.k
  label = h.label
}
action mark (label: 8)
action unknown ()
table t {
  key h.k: 8 exact
  action mark
  action unknown
  default 1 ()
  size 64
}
intrinsic egress_spec = spec
intrinsic multicast_group = group
intrinsic egress_rid = rid
intrinsic egress_port = port
entry ingress (p, c, e, d)
entry egress (e, d)
stage parser p {
b0:
  %ok = has_bits 32w16
  branch %ok, b1, b2
b1:
  extract h
  next
b2:
  drop unknown
}
stage control c {
b0:
  %h, %a, %e, %d = apply t (h.k)
  switch %a, 32w0 -> b1, default -> b2
b1:
  label = param t, 0, 0, %d
  group = mov 16w1
  replicate ingress_end
b2:
  spec = mov 9w7
  next
}
stage control e {
b0:
  %r = trunc rid
  h.label = add label, %r
  next
}
stage deparser d {
b0:
  emit h
  %out = zext port
  send %out
}
"#;

fn entry(key: u128, label: u128) -> TableEntry {
    let key = vec![KeyMatch::Exact(Bits::new(8, key))];
    let action = EntryAction::Call(ActionCall { action: 0, args: vec![Bits::new(8, label)] });
    TableEntry { key, priority: 0, action, idle_timeout_ns: 0 }
}

#[test]
fn copies_carry_what_the_code_of_their_ingress_knew() {
    let program = ir::parse(PROGRAM, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}"));
    let mut engines = Engines::new(&Arc::new(program));
    engines.replicate(|replication| {
        let replicas = [(2, 10), (3, 20)].map(|(port, instance)| Replica { port, instance });
        replication.group_insert(1, replicas.to_vec()).expect("a new group");
    });
    let check = |engines: &mut Engines, what: &str| {
        for key in 0..8 {
            engines.check(&[key, 0xff], what);
        }
    };
    check(&mut engines, "no entries");
    for (key, label) in [(1, 40), (2, 40), (3, 50), (4, 60)] {
        engines.each(|state| state.insert(TableId(0), &entry(key, label)).expect("room"));
        check(&mut engines, "code of before");
        for mode in [Specialise::Constants, Specialise::Contents] {
            engines.recompile(mode);
            check(&mut engines, "code for this");
        }
    }
    let sent = engines.sent(&[2, 0xff]);
    let seen: Vec<(u32, u8)> = sent.iter().map(|sent| (sent.port, sent.bytes[1])).collect();
    assert_eq!(seen, [(2, 50), (3, 60)], "the label and the copy's number");
}

/// A sink that counts copies to a group, and packets lost.
#[derive(Default)]
struct Copies {
    sent: u64,
    lost: u64,
    /// Keeps all packets, so that no buffer becomes free meanwhile.
    kept: Vec<Packet>,
}

impl Sink for Copies {
    fn send(&mut self, _: u32, packet: Packet) {
        self.sent += 1;
        self.kept.push(packet);
    }

    fn drop(&mut self, reason: DropReason, _: Packet) {
        panic!("{reason:?}");
    }

    fn lost_copies(&mut self, reason: DropReason, count: u64) {
        assert!(matches!(reason, DropReason::Runtime(RuntimeDrop::ReplicationLimit | RuntimeDrop::NoBuffer)));
        self.lost += count;
    }
}

/// Sends a burst of `packets` to a group of `replicas`, with `buffers` buffers in total; returns the copies and the
/// work units left.
fn multicast(engine: EngineKind, replicas: u32, packets: usize, buffers: usize, length: usize) -> (Copies, u32) {
    let program = ir::parse(PROGRAM, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}"));
    let pipeline = datapath::load(Arc::new(program), engine, 1).expect("it loads");
    pipeline.state().insert(TableId(0), &entry(1, 40)).expect("room");
    let group = (0..replicas).map(|instance| Replica { port: 2, instance }).collect();
    pipeline.replication().group_insert(1, group).expect("a new group");
    let pool = HeapPool::shared(buffers);
    let mut frame = vec![0; length];
    frame[0] = 1;
    let mut burst = (0..packets).map(|_| pool.alloc_from(&frame).expect("a buffer")).collect();
    let mut engine = Engine::new(Arc::clone(pipeline.program()), Arc::clone(pipeline.replication()));
    let mut copies = Copies::default();
    let mut executor = pipeline.executor(0);
    engine.receive(executor.as_mut(), &mut burst, 1, 0, &mut copies);
    executor.idle();
    (copies, WORK_MAX - engine.work_left())
}

const ENGINES: [EngineKind; 5] =
    [EngineKind::Interpreter, EngineKind::Machine, EngineKind::Staged, EngineKind::Mir, EngineKind::MirInterpreter];

/// The finding: 64 frames to a group of 10,000 blocked a worker for seconds, because copies were made before the
/// budget was checked.
#[test]
fn a_burst_to_a_group_of_ten_thousand_costs_no_more_than_it_may() {
    for engine in ENGINES {
        for packets in [1, 3, 64] {
            let (copies, work) = multicast(engine, 10_000, packets, 16 << 10, 60);
            assert!(work <= WORK_MAX && work > WORK_MAX * 9 / 10, "{engine:?}: {work} for {packets}");
            // Each packet itself becomes its last copy, which costs nothing.
            assert_eq!(copies.sent, u64::from(work) + packets as u64, "{engine:?}: {packets}");
            assert_eq!(copies.sent + copies.lost, 10_000 * packets as u64, "{engine:?}: {packets}");
        }
    }
}

/// Copies that fail for lack of a buffer cost work, too: the attempt to allocate one.
#[test]
fn copies_that_fail_are_paid_for() {
    for engine in ENGINES {
        let (copies, work) = multicast(engine, 10_000, 8, 8, 60);
        assert_eq!(copies.sent, 8, "{engine:?}");
        assert_eq!(copies.sent + copies.lost, 80_000, "{engine:?}");
        assert_eq!(work, WORK_MAX, "{engine:?}");
    }
}

/// A full burst to 64 ports, as large switches have, loses nothing.
#[test]
fn a_full_burst_to_sixty_four_ports_has_work_enough() {
    for engine in ENGINES {
        let (copies, work) = multicast(engine, 64, 64, 16 << 10, 60);
        assert_eq!((copies.sent, copies.lost, work), (64 * 64, 0, 63 * 64), "{engine:?}");
    }
}

/// The copied bytes count, too.
#[test]
fn copies_of_long_frames_cost_more() {
    for engine in ENGINES {
        let (_, short) = multicast(engine, 11, 1, 64, 60);
        let (_, long) = multicast(engine, 11, 1, 64, 2 * UNIT_BYTES - 600);
        assert_eq!((short, long), (10, 20), "{engine:?}");
    }
}
