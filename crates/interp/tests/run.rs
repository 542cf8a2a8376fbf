//! Packets are run through small programs: parsing, headers, tables, externs, deparsing.

mod common;

use abi::PipelineState;
use base::Bits;
use base::entry::{ActionCall, CounterValue, EntryAction, KeyMatch, TableEntry};
use common::{bytes, hex, ingress, interp};
use interp::{Fate, SeededHost};
use ir::{EntryKind, ReplicationPoint};

/// A two-byte header; an option of variable length follows if the first byte says so. A table matches the second byte.
const ROUTER: &str = r#"program "router"
drops short, miss
slot h.len: 8 field h
slot h.dst: 8 field h
slot h.$valid: 1 valid h
slot o.tag: 4 field o
slot o.data: 32 field o
slot o.data.$length: 32 varbit_length o
slot o.tail: 4 field o
slot o.$valid: 1 valid o
slot in: 9 metadata
slot out: 9 metadata
slot m32: 32 metadata
slot p.ok: 1 local
slot %hit: 1 temp
slot %action: 32 temp
slot %entry: 64 temp
slot %data: 64 temp
header h valid h.$valid {
  len = h.len
  dst = h.dst
}
header o valid o.$valid {
  tag = o.tag
  data = o.data varbit o.data.$length
  tail = o.tail
}
action drop ()
action forward (port: 9, tag: 4)
extern hits counter size 1024 unit both direct t
extern all counter size 2 unit packets
table t {
  key h.dst: 8 lpm
  action forward
  action drop
  default 1 ()
  size 16
  direct hits
  entry (lpm 8w0x80/1) priority 0 -> call 0 (9w1, 4w0xa)
  entry (lpm 8w0xc0/2) priority 0 -> call 0 (9w2, 4w0xb)
}
intrinsic ingress_port = in
entry ingress (P, C, D)
entry egress (E)
stage parser P {
b0 start:
  p.ok = has_bits 32w16
  branch p.ok, b1, b4
b1:
  extract h
  branch h.$valid, b2, b4
b2:
  m32 = zext h.len
  m32 = mul m32, 32w8
  p.ok = eq h.len, 8w0
  branch p.ok, b5, b3
b3:
  m32 = add m32, 32w8
  p.ok = has_bits m32
  m32 = sub m32, 32w8
  branch p.ok, b6, b4
b4:
  drop short
b5:
  next
b6:
  extract o, m32
  next
}
stage control C {
b0:
  m32 = zext in
  count all, m32
  %hit, %action, %entry, %data = apply t (h.dst)
  count_direct hits, %hit, %entry
  switch %action, 32w0 -> b1, default -> b2
b1 forward:
  out = param t, 0, 0, %data
  o.tag = param t, 0, 1, %data
  branch o.$valid, b4, b3
b2 drop:
  drop miss
b3:
  o.tag = mov 4w0
  next
b4:
  next
}
stage deparser D {
b0:
  h.dst = add h.dst, 8w1
  emit o
  emit h
  truncate 8w6
  send out
}
stage control E {
b0:
  replicate egress_end
}
"#;

#[test]
fn the_longest_prefix_wins_and_the_deparser_joins_headers_and_payload() {
    let interp = interp(ROUTER);
    let (outcome, _) = ingress(&interp, "00 c5 1122", 0);
    assert_eq!((outcome.fate, hex(&outcome.packet)), (Fate::Send(2), "00c61122".into()));
    assert_eq!(outcome.consumed, 2);
    let (outcome, _) = ingress(&interp, "00 85 1122", 0);
    assert_eq!((outcome.fate, hex(&outcome.packet)), (Fate::Send(1), "00861122".into()));
}

#[test]
fn varbits_take_what_they_are_told_and_truncation_cuts_the_end() {
    let interp = interp(ROUTER);
    // Tag 9, data 0x1234, tail 0x5: the action sets the tag to 0xb.
    let (outcome, _) = ingress(&interp, "02 ff 912345 aabbccdd", 0);
    assert_eq!((outcome.fate, hex(&outcome.packet)), (Fate::Send(2), "b123450200aa".into()));
}

#[test]
fn a_miss_runs_the_default_and_a_short_packet_never_gets_there() {
    let interp = interp(ROUTER);
    assert_eq!(ingress(&interp, "00 05", 0).0.fate, Fate::Drop(1));
    let (outcome, _) = ingress(&interp, "00", 0);
    assert_eq!((outcome.fate, hex(&outcome.packet)), (Fate::Drop(0), "00".into()));
    assert_eq!(ingress(&interp, "04 ff 9123", 0).0.fate, Fate::Drop(0));
}

#[test]
fn counters_count_what_they_are_for() {
    let interp = interp(ROUTER);
    for (packet, port) in [("00 c5 1122", 0), ("00 c5", 1), ("00 05", 1), ("00 c5", 2)] {
        ingress(&interp, packet, port);
    }
    let state = interp.state();
    let key = [KeyMatch::Lpm { value: Bits::new(8, 0xc0), prefix_len: 2 }];
    let hits = interp.program().extern_named("hits").expect("declared");
    let all = interp.program().extern_named("all").expect("declared");
    assert_eq!(state.direct_counter(hits, &key, 0), Ok(CounterValue { packets: 3, bytes: 8 }));
    assert_eq!(state.counter(all, 0), Ok(CounterValue { packets: 1, bytes: 0 }));
    assert_eq!(state.counter(all, 1), Ok(CounterValue { packets: 2, bytes: 0 }));
    assert_eq!(state.counter(all, 2), Err(abi::StateError::NotFound));
}

#[test]
fn entries_that_the_control_plane_adds_count_at_once() {
    let interp = interp(ROUTER);
    let table = interp.program().table_named("t").expect("declared");
    let call = ActionCall { action: 0, args: vec![Bits::new(9, 300), Bits::new(4, 0)] };
    let entry = TableEntry {
        key: vec![KeyMatch::Lpm { value: Bits::new(8, 0xc5), prefix_len: 8 }],
        priority: 0,
        action: EntryAction::Call(call),
        idle_timeout_ns: 0,
    };
    assert_eq!(interp.state().insert(table, &entry), Ok(()));
    assert_eq!(ingress(&interp, "00 c5", 0).0.fate, Fate::Send(300));
    assert_eq!(interp.state().delete(table, &entry.key, 0), Ok(()));
    assert_eq!(ingress(&interp, "00 c5", 0).0.fate, Fate::Send(2));
}

#[test]
fn other_entries_start_from_the_record_and_ingress_from_the_intrinsics_alone() {
    let interp = interp(ROUTER);
    let layout = interp.layout();
    let slot = |name: &str| {
        let at = interp.program().slots.iter().position(|s| s.name == name).expect("declared");
        ir::SlotId::from_index(at)
    };
    let mut record = vec![u64::MAX; layout.words()];
    layout.set_word(&mut record, slot("in"), 1);
    let mut host = SeededHost::new(0);
    interp.run(EntryKind::Ingress, &bytes("00 c5"), 0, &mut record, &mut host, None);
    assert_eq!(layout.get_word(&record, slot("o.tail")), 0);
    assert_eq!(layout.get_word(&record, slot("m32")), 1, "the ingress port, which came in the record");

    layout.set_word(&mut record, slot("o.tail"), 7);
    let outcome = interp.run(EntryKind::Egress, &bytes("00 c5"), 2, &mut record, &mut host, None);
    assert_eq!(outcome.fate, Fate::Replicate(ReplicationPoint::EgressEnd));
    assert_eq!((layout.get_word(&record, slot("o.tail")), outcome.consumed), (7, 2));
}

/// A program with a single control that has these instructions.
fn straight(declarations: &str, code: &str) -> interp::Interp {
    interp(&format!(
        "program \"straight\"\ndrops end\n{declarations}\nentry ingress (C)\nstage control C {{\nb0:\n{code}\n  drop end\n}}\n"
    ))
}

fn slots(interp: &interp::Interp, packet: &str) -> Vec<String> {
    let (_, record) = ingress(interp, packet, 0);
    let all = 0..interp.program().slots.len();
    all.map(|i| interp.layout().get(&record, ir::SlotId::from_index(i)).to_string()).collect()
}

#[test]
fn wide_values_go_through_records_and_operations() {
    let interp = straight(
        "slot a: 200 metadata\nslot b: 65 metadata\nslot c: 1 metadata",
        "  a = mov 200w0xffffffffffffffffffffffffffffffffffffffffffffffffff\n  a = add a, 200w2\n  b = not b\n  b = shl b, 200w1\n  c = slt b, 65w0",
    );
    assert_eq!(slots(&interp, ""), ["200w0x1", "65w0x1fffffffffffffffe", "1w0x1"]);
}

#[test]
fn registers_start_at_their_initial_value_and_ignore_what_is_out_of_range() {
    let interp = straight(
        "slot a: 8 metadata\nslot b: 8 metadata\nslot c: 8 metadata\nextern r register size 4 width 8 initial 8w5",
        "  a = read r, 8w3\n  write r, 8w3, 8w9\n  b = read r, 8w3\n  write r, 8w4, 8w9\n  c = read r, 8w4",
    );
    assert_eq!(slots(&interp, ""), ["8w0x5", "8w0x9", "8w0x0"]);
    let register = interp.program().extern_named("r").expect("declared");
    assert_eq!(interp.state().register(register, 3), Ok(Bits::new(8, 9)));
}

#[test]
fn hashes_see_varbits_at_their_length_and_the_payload() {
    let interp = straight(
        "slot a: 16 metadata\nslot b: 16 metadata\nslot n: 32 metadata",
        "  n = mov 32w16\n  a = hash csum16 base 16w0 data (32w0xaaaa0102) varbits (0: n)\n  b = hash csum16 base 16w0 data (16w0x0102) payload",
    );
    assert_eq!(slots(&interp, "0304"), ["16w0xfefd", "16w0xfbf9", "32w0x10"]);
}

#[test]
fn digests_logs_and_assertions_come_back() {
    let interp = straight(
        "slot a: 8 metadata\nextern d digest (x: 8, y: 16)",
        "  a = mov 8w200\n  digest d (a, 16w1)\n  log \"a={} b={}\" (a, 16w7, 1w1)\n  assert 1w1, \"yes\"\n  assert 1w0, \"no\"",
    );
    let (outcome, _) = ingress(&interp, "", 0);
    assert_eq!(outcome.digests[0].fields, [Bits::new(8, 200), Bits::new(16, 1)]);
    assert_eq!(outcome.logs, ["a=200 b=7 1"]);
    assert_eq!(outcome.failed_assertions, ["no"]);
}

#[test]
fn a_loop_that_never_ends_is_given_up() {
    let interp = interp("program \"loop\"\nentry ingress (C)\nstage control C {\nb0:\n  charge 5\n  jump b0\n}\n");
    assert_eq!(ingress(&interp, "", 0).0.fate, Fate::Endless);
}
