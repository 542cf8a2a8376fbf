//! Tables on every engine, action parameters of every width, groups, counters, registers, hashes of packets, messages.

mod common;

use abi::{EngineKind, PipelineState};
use base::Bits;
use base::entry::{ActionCall, EntryAction, GroupMember, KeyMatch, MatchKind, TableEntry};
use common::random::Random;
use common::{Both, NOW_US, Outcome, engine, options, parse};
use interp::Fate;
use ir::builder::{Builder, FieldWidth};
use ir::{Action, BinOp, EntryKind, ExternId, Intrinsic, Key, Op, Operand, Program, ReplicationPoint, SlotId};
use ir::{StageKind, Table as IrTable, TableAction, TableId};
use tables::Runs;

/// Parameter widths on both sides of every boundary between width classes.
const PARAMS: [u32; 8] = [1, 9, 48, 64, 65, 128, 129, 200];

/// A program that looks its header's fields up in one table and stores everything that results.
fn lookup_program(keys: &[(u32, MatchKind)], entries: Vec<TableEntry>, size: u64, idle_timeout: bool) -> Program {
    let mut b = Builder::new("lookup");
    let bits: u32 = keys.iter().map(|(w, _)| w).sum();
    let names = ["a", "b", "c", "d", "e"];
    let mut fields: Vec<(&str, FieldWidth)> =
        names.into_iter().zip(keys.iter().map(|&(w, _)| FieldWidth::Fixed(w))).collect();
    fields.push(("pad", FieldWidth::Fixed(bits.next_multiple_of(8) - bits + 8)));
    let header = b.header("h", &fields);
    let key_slots: Vec<Operand> = b.program().headers[0].fields[..keys.len()].iter().map(|f| f.slot.into()).collect();
    let short = b.drop_reason("short");
    let params = PARAMS.iter().map(|w| (format!("p{w}"), *w)).collect();
    let set = b.action(Action { name: "set".into(), params });
    let nothing = b.action(Action { name: "nothing".into(), params: Vec::new() });
    let listed = |action| TableAction { action, default_only: false, table_only: false };
    let table = b.table(IrTable {
        name: "t".into(),
        span: base::Span::NONE,
        keys: keys.iter().zip(names).map(|(&(width, kind), n)| Key { name: n.into(), width, kind }).collect(),
        actions: vec![listed(nothing), listed(set)],
        default_action: ActionCall { action: 0, args: Vec::new() },
        const_default: false,
        entries,
        const_entries: false,
        size,
        implementation: None,
        direct: Vec::new(),
        idle_timeout,
        value_set: false,
        dynamic: None,
    });
    let hit = b.metadata("hit", 1);
    let action = b.metadata("action", 32);
    let (entry, data) = (b.temp(64), b.temp(64));
    let results: Vec<SlotId> = PARAMS.iter().map(|&w| b.metadata(format!("r{w}"), w)).collect();
    let parser = b.begin_stage("parser", StageKind::Parser);
    let enough = b.temp(1);
    b.emit(Op::HasBits { dst: enough, bits: Operand::new_const(32, (bits.next_multiple_of(8) + 8).into()) });
    let (good, bad) = (b.block(""), b.block(""));
    b.branch(enough, good, bad);
    b.switch_to(bad);
    b.fate(ir::Fate::Drop(short));
    b.switch_to(good);
    b.emit(Op::Extract { header, varbit_bits: None });
    b.next_stage();
    b.end_stage();
    let control = b.begin_stage("control", StageKind::Control);
    b.emit(Op::Apply { table, keys: key_slots, selector: Vec::new(), hit, action, entry, data });
    let (take, end) = (b.block(""), b.block(""));
    b.switch(action, vec![(Bits::new(32, 1), take)], end);
    b.switch_to(take);
    for (i, &dst) in results.iter().enumerate() {
        b.emit(Op::ActionParam { dst, table, action: 1, param: i as u32, data });
    }
    b.jump(end);
    b.switch_to(end);
    b.fate(ir::Fate::Replicate(ReplicationPoint::IngressEnd));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[parser, control]);
    let kept = [hit, action].into_iter().chain(results).collect();
    b.program_mut().field_lists.push((0, kept));
    b.finish()
}

fn random_match(random: &mut Random, width: u32, kind: MatchKind) -> KeyMatch {
    // Few values, so that packets hit.
    let value = random.bits(width).and(&Bits::new(width, 0x30f));
    match kind {
        MatchKind::Exact => KeyMatch::Exact(value),
        MatchKind::Lpm => {
            let prefix_len = random.below(u64::from(width) + 1) as u32;
            let keep = u64::from(width - prefix_len);
            KeyMatch::Lpm { value: value.lshr(keep).shl(keep), prefix_len }
        }
        MatchKind::Ternary => {
            let mask = if random.chance(20) { Bits::zero(width) } else { random.bits(width) };
            KeyMatch::Ternary { value: value.and(&mask), mask }
        }
        MatchKind::Range => {
            let other = random.bits(width).and(&Bits::new(width, 0x3ff));
            let (low, high) = if value.ule(&other) { (value, other) } else { (other, value) };
            KeyMatch::Range { low, high }
        }
        MatchKind::Optional => KeyMatch::Optional(random.chance(60).then_some(value)),
    }
}

fn random_entries(random: &mut Random, keys: &[(u32, MatchKind)], count: usize) -> Vec<TableEntry> {
    let prioritised = keys.iter().any(|(_, kind)| kind.needs_priority());
    let mut entries: Vec<TableEntry> = Vec::new();
    for i in 0..count {
        let key: Vec<KeyMatch> = keys.iter().map(|&(w, kind)| random_match(random, w, kind)).collect();
        // Distinct priorities leave no doubt about which entry wins.
        let priority = if prioritised { 1 + i as i32 } else { 0 };
        if entries.iter().any(|e| e.key == key && e.priority == priority) {
            continue;
        }
        let call = if random.chance(20) {
            ActionCall { action: 0, args: Vec::new() }
        } else {
            ActionCall { action: 1, args: PARAMS.iter().map(|&w| random.bits(w)).collect() }
        };
        entries.push(TableEntry { key, priority, action: EntryAction::Call(call), idle_timeout_ns: 0 });
    }
    entries
}

fn key_packets(random: &mut Random, keys: &[(u32, MatchKind)], entries: &[TableEntry], count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|_| {
            let like = random.chance(70).then(|| random.pick(entries).clone());
            let bits = keys.iter().enumerate().fold(Bits::zero(0), |all, (i, &(w, _))| {
                let noise = random.bits(w).and(&Bits::new(w, 0x30f));
                let value = match like.as_ref().map(|e| &e.key[i]) {
                    Some(KeyMatch::Exact(v) | KeyMatch::Optional(Some(v))) => v.clone(),
                    Some(KeyMatch::Lpm { value, prefix_len }) => {
                        value.or(&noise.resize_u(w).lshr((*prefix_len).into()))
                    }
                    Some(KeyMatch::Ternary { value, mask }) => value.or(&noise.and(&mask.not())),
                    Some(KeyMatch::Range { low, .. }) => low.clone(),
                    Some(KeyMatch::Optional(None)) | None => noise,
                };
                all.concat(&value)
            });
            let pad = bits.width().next_multiple_of(8) - bits.width() + 8;
            bits.concat(&Bits::zero(pad)).to_bytes_be()
        })
        .collect()
}

const KEYS: [&[(u32, MatchKind)]; 17] = [
    &[(1, MatchKind::Exact)],
    &[(9, MatchKind::Exact)],
    &[(16, MatchKind::Exact)],
    &[(17, MatchKind::Exact)],
    &[(5, MatchKind::Exact), (9, MatchKind::Exact)],
    &[(9, MatchKind::Exact), (1, MatchKind::Exact), (8, MatchKind::Exact)],
    &[(9, MatchKind::Exact), (12, MatchKind::Exact)],
    &[(32, MatchKind::Exact)],
    &[(48, MatchKind::Exact)],
    &[(64, MatchKind::Exact)],
    &[(48, MatchKind::Exact), (9, MatchKind::Exact)],
    &[(9, MatchKind::Exact), (4, MatchKind::Exact), (32, MatchKind::Exact), (12, MatchKind::Exact)],
    &[(128, MatchKind::Exact)],
    &[(200, MatchKind::Exact)],
    &[(32, MatchKind::Lpm)],
    &[(12, MatchKind::Exact), (128, MatchKind::Lpm)],
    &[(20, MatchKind::Ternary), (16, MatchKind::Range), (9, MatchKind::Optional), (70, MatchKind::Exact)],
];

fn hits(outcomes: &[Outcome]) -> usize {
    outcomes.iter().filter(|o| o.slots.iter().any(|(name, v)| name == "hit" && v.is_true())).count()
}

/// The program with the match engines that its tables have in the switch.
fn with_engines(program: &Program, options: &jit::Options) -> (Both, Vec<tables::Table>) {
    let mut engines: Vec<tables::Table> = program.tables.iter().map(|table| engine(program, table, false)).collect();
    let both = Both::with_runtime(program.clone(), options, |runtime| {
        for (replaced, engine) in runtime.replaced.iter_mut().zip(&mut engines) {
            *replaced = Some(engine.binding());
        }
    });
    (both, engines)
}

/// More tables than there are cells in the frame, in batches; each table has one entry, and half of them end with a
/// branch.
#[test]
fn hits_and_misses_of_many_tables_add_up() {
    const TABLES: u64 = 24;
    let mut text = String::from(
        "program \"test\"\ndrops end\nslot port: 9 metadata\nslot out: 8 metadata\nslot h.a: 8 field h\nslot h.$valid: 1 valid h\n\
         slot %0: 1 temp\nslot %1: 32 temp\nslot %2: 64 temp\nslot %3: 64 temp\nheader h valid h.$valid {\n  a = h.a\n}\n\
         action nothing ()\nintrinsic ingress_port = port\n",
    );
    for i in 0..TABLES {
        text += &format!(
            "table t{i} {{\n  key a: 8 ternary\n  action nothing\n  default 0 ()\n  size 8\n  entry (ternary 8w{i} &&& 8w255) priority 1 -> call 0 ()\n}}\n"
        );
    }
    text += "entry ingress (P, I)\nstage parser P {\nb0:\n  %0 = has_bits 16w8\n  branch %0, b1, b2\nb1:\n  extract h\n  next\nb2:\n  \
             drop end\n}\nstage control I {\n";
    for i in 0..TABLES {
        text += &format!("b{i}:\n  %0, %1, %2, %3 = apply t{i} (h.a)\n");
        text += &match i {
            _ if i + 1 == TABLES => "  send out\n".to_string(),
            _ if i % 2 == 0 => format!("  branch %0, b{}, b{}\n", i + 1, TABLES - 1),
            _ => format!("  jump b{}\n", i + 1),
        };
    }
    let program = parse(&(text + "}\n"));
    // Packets continue as long as they hit every other table.
    let counts = |values: &[u8]| -> Vec<[u64; 2]> {
        let mut counts = vec![[0; 2]; TABLES as usize];
        for value in values {
            let mut i = 0;
            while i < TABLES {
                let hits = u64::from(*value) == i;
                counts[i as usize][usize::from(!hits)] += 1;
                i = if i % 2 == 0 && !hits && i + 1 < TABLES { TABLES - 1 } else { i + 1 };
            }
        }
        counts
    };
    for strategy in [jit::Strategy::RunToCompletion, jit::Strategy::Staged] {
        let (both, _engines) = with_engines(&program, &jit::Options { strategy, ..options() });
        let values: Vec<u8> = (0..60).map(|i| [0, 1, 2, 23, 255][i % 5]).collect();
        let packets: Vec<Vec<u8>> = values.iter().map(|value| vec![*value]).collect();
        for (count, batch) in packets.chunks(7).enumerate() {
            both.run_batch(EntryKind::Ingress, batch, &|_| {});
            let done = values.len().min(7 * (count + 1));
            assert_eq!(both.runtime.table_counters, counts(&values[..done]), "{strategy:?}, batch {count}");
        }
    }
}

/// Tables without a key, which count the same packets: after a hit, after a miss, after both, and one of them twice.
/// Most counts are derived from others and not counted.
#[test]
fn hits_and_misses_follow_from_others() {
    let mut text = String::from(
        "program \"test\"\ndrops end\nslot port: 9 metadata\nslot out: 8 metadata\nslot h.a: 8 field h\nslot h.$valid: 1 valid h\n\
         slot %0: 1 temp\nslot %1: 32 temp\nslot %2: 64 temp\nslot %3: 64 temp\nheader h valid h.$valid {\n  a = h.a\n}\n\
         action nothing ()\nintrinsic ingress_port = port\n\
         table keyed {\n  key a: 8 ternary\n  action nothing\n  default 0 ()\n  size 8\n  entry (ternary 8w7 &&& 8w255) priority 1 -> call 0 ()\n}\n",
    );
    for table in ["first", "second", "third"] {
        text += &format!("table {table} {{\n  action nothing\n  default 0 ()\n  size 0\n}}\n");
    }
    text += "entry ingress (P, I)\nstage parser P {\nb0:\n  %0 = has_bits 16w8\n  branch %0, b1, b2\nb1:\n  extract h\n  next\nb2:\n  \
             drop end\n}\nstage control I {\nb0:\n  %0, %1, %2, %3 = apply keyed (h.a)\n  branch %0, b1, b2\n";
    for (block, tables) in [("b1", ["first", "second"]), ("b2", ["second", "third"])] {
        text += &format!("{block}:\n");
        tables.iter().for_each(|table| text += &format!("  %0, %1, %2, %3 = apply {table} ()\n"));
        text += "  jump b3\n";
    }
    text += "b3:\n";
    ["third", "first", "third"].iter().for_each(|table| text += &format!("  %0, %1, %2, %3 = apply {table} ()\n"));
    text += "  send out\n}\n";
    let program = parse(&text);
    for strategy in [jit::Strategy::RunToCompletion, jit::Strategy::Staged] {
        let (both, _engines) = with_engines(&program, &jit::Options { strategy, ..options() });
        // The value 7 hits, others miss; an empty packet reaches no table.
        let packets: Vec<Vec<u8>> =
            (0..30).map(|i| vec![if i % 3 == 0 { 7 } else { i }; usize::from(i % 5 > 0)]).collect();
        let mut expected = [[0; 2]; 4];
        for batch in packets.chunks(8) {
            both.run_batch(EntryKind::Ingress, batch, &|_| {});
            for packet in batch.iter().filter(|packet| !packet.is_empty()) {
                let hits = packet[0] == 7;
                expected[0][usize::from(!hits)] += 1;
                expected[1][1] += 1 + u64::from(hits);
                expected[2][1] += 1;
                expected[3][1] += 2 + u64::from(!hits);
            }
            assert_eq!(both.runtime.table_counters, expected, "{strategy:?}");
        }
    }
    use jit::Optimisation::{BatchedCounts, DerivedCounts, SplitPaths};
    let mut derived = jit::Options { strategy: jit::Strategy::RunToCompletion, ..options() };
    if ![BatchedCounts, DerivedCounts, SplitPaths].iter().any(|needed| derived.without.contains(*needed)) {
        let bytes = |options: &jit::Options| with_engines(&program, options).0.pipeline.code_size();
        let with = bytes(&derived);
        derived.without.insert(DerivedCounts);
        assert_ne!(with, bytes(&derived), "nothing follows from others");
    }
}

#[test]
fn lookups_by_call() {
    let mut random = Random::new(11);
    for keys in KEYS {
        let entries = random_entries(&mut random, keys, 60);
        let packets = key_packets(&mut random, keys, &entries, 300);
        let both = Both::new(lookup_program(keys, entries, 1000, false));
        let outcomes = both.check(&packets);
        let found = hits(&outcomes);
        assert!(found > 100, "{found} hits with {keys:?}");
        assert_eq!(both.runtime.table_counters[0], [found as u64, (outcomes.len() - found) as u64]);
    }
}

#[test]
fn lookups_inline() {
    let mut random = Random::new(12);
    for keys in KEYS {
        let entries = random_entries(&mut random, keys, 700);
        let packets = key_packets(&mut random, keys, &entries, 300);
        let program = lookup_program(keys, entries, 4000, false);
        let table = engine(&program, &program.tables[0], false);
        let binding = table.binding();
        let exact = keys.iter().all(|(_, kind)| *kind == MatchKind::Exact);
        let bits: u32 = keys.iter().map(|(w, _)| w).sum();
        let expected = match binding.engine {
            _ if exact && bits <= 18 => EngineKind::DirectIndex,
            _ if exact && bits <= 128 => EngineKind::ExactInline,
            other => other,
        };
        assert_eq!(binding.engine, expected, "{keys:?}");
        let both = Both::with_runtime(program, &options(), |runtime| runtime.replaced[0] = Some(binding));
        let found = hits(&both.check(&packets));
        assert!(found > 100, "{found} hits with {keys:?}");
    }
}

#[test]
fn hit_times_are_stored_for_entries_with_timeouts() {
    let keys = &[(32, MatchKind::Exact)];
    let mut random = Random::new(13);
    let mut entries = random_entries(&mut random, keys, 40);
    for (i, entry) in entries.iter_mut().enumerate() {
        entry.idle_timeout_ns = if i % 2 == 0 { 1_000_000 } else { 0 };
    }
    let packets = key_packets(&mut random, keys, &entries[..10], 100);
    let program = lookup_program(keys, entries.clone(), 100, true);
    let mut table = engine(&program, &program.tables[0], true);
    let both = Both::with_runtime(program, &options(), |runtime| runtime.replaced[0] = Some(table.binding()));
    both.check(&packets);
    let mut idle_of = |entry: &TableEntry| table.entry(&entry.key, 0, NOW_US).expect("it is there").idle_ns;
    let idle: Vec<u64> = entries.iter().map(|entry| idle_of(entry).expect("it is kept")).collect();
    for (i, entry) in entries.iter().enumerate() {
        let KeyMatch::Exact(key) = &entry.key[0] else { panic!("exact") };
        let was_hit = packets.iter().any(|p| Bits::from_bytes_be(32, &p[..4]) == *key);
        if entry.idle_timeout_ns > 0 {
            assert_eq!(idle[i] == 0, was_hit, "entry {i}");
        }
    }
    assert!(idle.contains(&0) && idle.contains(&(NOW_US * 1000)));
}

#[test]
fn a_table_that_grows_is_found_in_the_next_batch() {
    let keys = &[(48, MatchKind::Exact)];
    let mut random = Random::new(14);
    let few = random_entries(&mut random, keys, 3);
    let many = random_entries(&mut random, keys, 900);
    let program = lookup_program(keys, few.clone(), 4000, false);
    let mut table = engine(&program, &program.tables[0], false);
    let binding = table.binding();
    let both = Both::with_runtime(program, &options(), |runtime| runtime.replaced[0] = Some(binding));
    both.check(&key_packets(&mut random, keys, &few, 30));
    for entry in many.iter().filter(|e| few.iter().all(|f| f.key != e.key)) {
        let EntryAction::Call(call) = &entry.action else { panic!("an action") };
        table.insert(entry, Runs::Call(call), 0).expect("room for the entry");
        both.interp.state().insert(TableId(0), entry).expect("room for the entry");
    }
    assert!(hits(&both.check(&key_packets(&mut random, keys, &many, 300))) > 100);
}

const GROUPS: &str = r#"program "groups"
slot h.k: 8 field h
slot h.a: 20 field h
slot h.b: 4 field h
slot h.$valid: 1 valid h
slot hit: 1 metadata
slot action: 32 metadata
slot out: 9 metadata
slot %ok: 1 temp
slot %entry: 64 temp
slot %data: 64 temp
header h valid h.$valid {
  k = h.k
  a = h.a
  b = h.b
}
action set (port: 9)
action nothing ()
extern direct counter size 16 unit both direct t
extern selector action_selector size 64 hash crc16 width 10 actions (set, nothing)
table t {
  key h.k: 8 exact
  action set
  action nothing
  default 1 ()
  size 16
  implementation selector
  direct direct
}
field_list 0 (hit, action, out)
entry ingress (P, C)
stage parser P {
b0:
  %ok = has_bits 32w32
  branch %ok, b1, b2
b1:
  extract h
  next
b2:
  next
}
stage control C {
b0:
  hit, action, %entry, %data = apply t (h.k) select (h.a, h.b)
  count_direct direct, hit, %entry
  switch action, 32w0 -> b1, default -> b2
b1:
  out = param t, 0, 0, %data
  jump b2
b2:
  replicate ingress_end
}
"#;

#[test]
fn groups_choose_members_and_empty_ones_miss() {
    let port = |p: u128| ActionCall { action: 0, args: vec![Bits::new(9, p)] };
    let member = |member, weight| GroupMember { member, weight, watch_port: None };
    let members = [
        (member(1, 1), port(11)),
        (member(2, 3), port(12)),
        (member(3, 2), ActionCall { action: 1, args: Vec::new() }),
    ];
    let key = |k: u128| vec![KeyMatch::Exact(Bits::new(8, k))];
    let both = Both::with_runtime(parse(GROUPS), &options(), |runtime| {
        runtime.insert_group(0, key(1), &members);
        runtime.insert_group(0, key(2), &[]);
    });
    let (state, selector) = (both.interp.state(), ExternId(1));
    for (m, call) in &members {
        state.member_insert(selector, m.member, call, 0).expect("room");
    }
    let group: Vec<GroupMember> = members.iter().map(|(m, _)| m.clone()).collect();
    state.group_insert(selector, 7, &group, 0).expect("room");
    state.group_insert(selector, 8, &[], 0).expect("room");
    for (k, group) in [(1, 7), (2, 8)] {
        let entry = TableEntry { key: key(k), priority: 0, action: EntryAction::Group(group), idle_timeout_ns: 0 };
        state.insert(TableId(0), &entry).expect("room");
    }
    let mut random = Random::new(15);
    let packets: Vec<Vec<u8>> = (0..200u32).map(|i| [&[(i % 4) as u8][..], &random.bytes(4)].concat()).collect();
    let outcomes = both.check(&packets);
    let ports: std::collections::BTreeSet<_> = outcomes.iter().map(|o| o.slots[2].1.clone()).collect();
    assert_eq!(ports.len(), 3, "no port, 11, 12");
    assert_eq!(hits(&outcomes), 50);
    // A quarter of the packets hit the first entry; the second one's group is empty.
    assert_eq!(both.runtime.counter(0)[..2], [[50, 250], [0, 0]]);
}

const EXTERNS: &str = r#"program "externs"
drops odd
slot h.i: 8 field h
slot h.v: 200 field h
slot h.w: 48 field h
slot h.$valid: 1 valid h
slot port: 9 metadata
slot big: 100 metadata
slot far: 64 metadata
slot r16: 16 metadata
slot r48: 48 metadata
slot r100: 100 metadata
slot r200: 200 metadata
slot sum: 16 metadata
slot crc: 32 metadata
slot colour: 2 metadata
slot chance: 24 metadata
slot %ok: 1 temp
slot %v100: 100 temp
header h valid h.$valid {
  i = h.i
  v = h.v
  w = h.w
}
extern packets counter size 100 unit packets
extern bytes counter size 100 unit bytes
extern both counter size 3 unit both
extern reg16 register size 10 width 16 initial 16w0x1234
extern reg48 register size 16 width 48 initial 48w0
extern reg100 register size 16 width 100 initial 100w0x123456789abcdef0123456
extern reg200 register size 16 width 200 initial 200w0
extern meter meter size 10 unit bytes
extern msg digest (a: 8, b: 200, c: 48, d: 1)
intrinsic ingress_port = port
field_list 0 (r16, r48, r100, r200, sum, crc, colour)
entry ingress (P, C)
stage parser P {
b0:
  %ok = has_bits 32w256
  branch %ok, b1, b2
b1:
  extract h
  next
b2:
  drop odd
}
stage control C {
b0:
  count packets, h.i
  count bytes, h.i
  count both, h.i
  count both, 32w2
  count both, 32w3
  big = concat h.w, 52w1
  far = trunc big
  count packets, far
  r16 = read reg16, h.i
  r16 = add r16, 16w1
  write reg16, h.i, r16
  r48 = read reg48, h.i
  write reg48, h.i, h.w
  r100 = read reg100, h.i
  %v100 = slice h.v, 150, 51
  write reg100, h.i, %v100
  r200 = read reg200, h.i
  write reg200, h.i, h.v
  write reg200, far, h.v
  sum = hash csum16 base 16w0 data (h.i, h.v, h.w) payload
  crc = hash crc32 base 32w5 max 32w1000 data (h.v, h.i, h.w)
  colour = meter meter, h.i
  chance = random 24w9, 24w5
  %ok = eq chance, 24w9
  assert %ok, "low when high is lower"
  %ok = slice h.i, 0, 0
  assert %ok, "an odd index"
  branch %ok, b1, b2
b1:
  digest msg (h.i, h.v, h.w, %ok)
  log "index {} of {}, {}" (h.i, h.v, big)
  jump b2
b2:
  log "no arguments" ()
  replicate ingress_end
}
"#;

#[test]
fn counters_registers_hashes_and_messages() {
    let both = Both::new(parse(EXTERNS));
    let mut random = Random::new(16);
    let packets: Vec<Vec<u8>> = (0..300)
        .map(|_| {
            let len = random.below(40) as usize;
            [&[random.below(20) as u8][..], &random.bytes(31 + len)].concat()
        })
        .collect();
    let outcomes = both.check(&packets);
    assert!(outcomes.iter().any(|o| o.digests.len() == 1 && o.logs.len() == 2 && o.failed_assertions.is_empty()));
    assert!(outcomes.iter().any(|o| o.logs.len() == 1 && o.failed_assertions.len() == 1));
    let state = both.interp.state();
    for ext in 0..3 {
        for (i, cell) in both.runtime.counter(ext as usize).iter().enumerate() {
            let expected = state.counter(ExternId(ext), i as u64).expect("a cell");
            assert_eq!(*cell, [expected.packets, expected.bytes], "cell {i} of counter {ext}");
        }
    }
    for (ext, width) in [(3, 16), (4, 48), (5, 100), (6, 200)] {
        let words = width as usize / 64 + 1;
        for (i, cell) in both.runtime.register(ext).chunks(words).enumerate() {
            let expected = state.register(ExternId(ext as u32), i as u64).expect("a cell");
            assert_eq!(common::runtime::bits_of_words(width, cell), expected, "cell {i} of register {ext}");
        }
    }
}

/// The origin of a packet that is copied: the descriptor's value, unless the program has assigned another.
#[test]
fn records_hold_received_and_assigned_intrinsics() {
    let program = |given: &str| {
        parse(&format!(
            "program \"origin\"\ndrops end\nslot port: 9 metadata\nslot length: 32 metadata\nslot at: 48 metadata\nslot h.a: 8 field h\n\
             slot h.$valid: 1 valid h\nslot %0: 1 temp\nheader h valid h.$valid {{\n  a = h.a\n}}\nintrinsic ingress_port = port\n\
             intrinsic packet_length = length\nintrinsic ingress_timestamp = at\nfield_list 0 (port, length, at)\nentry ingress (P, C)\n\
             stage parser P {{\nb0:\n  %0 = has_bits 16w8\n  branch %0, b1, b2\nb1:\n  extract h\n  next\nb2:\n  drop end\n}}\n\
             stage control C {{\nb0:\n  %0 = eq h.a, 8w1\n  branch %0, b1, b2\nb1:\n{given}  jump b2\nb2:\n  %0 = eq h.a, 8w2\n  \
             branch %0, b3, b4\nb3:\n  drop end\nb4:\n  replicate ingress_end\n}}\n"
        ))
    };
    let packets: Vec<Vec<u8>> = (0..12).map(|i| vec![i % 4; 1 + usize::from(i)]).collect();
    let mut seen = Vec::new();
    for given in ["", "  port = mov 9w5\n", "  length = add length, 32w100\n", "  at = mov 48w3\n"] {
        let outcomes = Both::new(program(given)).check(&packets);
        assert_eq!(outcomes.iter().filter(|o| o.slots.is_empty()).count(), 3, "packets of 2 are dropped");
        seen.push(outcomes.into_iter().map(|o| o.slots).collect::<Vec<_>>());
    }
    for (i, given) in seen.iter().enumerate().skip(1) {
        let others = given.iter().zip(&seen[0]).filter(|(a, b)| a != b).count();
        assert_eq!(others, 3, "packets of 1 are given another word by program {i}");
    }
}

#[test]
fn a_batch_gives_every_packet_its_own_fate() {
    let mut b = Builder::new("fates");
    let header = b.header("h", &[("a", FieldWidth::Fixed(8)), ("b", FieldWidth::Fixed(8))]);
    let [a, c] = [0, 1].map(|i| b.program().headers[0].fields[i].slot);
    let short = b.drop_reason("short");
    let other = b.drop_reason("other");
    let port = b.metadata("port", 9);
    b.intrinsic(Intrinsic::IngressPort, port);
    let parser = b.begin_stage("parser", StageKind::Parser);
    let enough = b.temp(1);
    b.emit(Op::HasBits { dst: enough, bits: Operand::new_const(32, 16) });
    let [good, bad, send, drop, replicate] = ["", "", "", "", ""].map(|l| b.block(l));
    b.branch(enough, good, bad);
    b.switch_to(bad);
    b.fate(ir::Fate::Drop(short));
    b.switch_to(good);
    b.emit(Op::Extract { header, varbit_bits: None });
    b.emit(Op::Bin { op: BinOp::Add, dst: c, a: c.into(), b: a.into() });
    b.switch(a, vec![(Bits::new(8, 1), drop), (Bits::new(8, 2), replicate)], send);
    b.switch_to(drop);
    b.fate(ir::Fate::Drop(other));
    b.switch_to(replicate);
    b.fate(ir::Fate::Replicate(ReplicationPoint::IngressEnd));
    b.switch_to(send);
    b.next_stage();
    b.end_stage();
    let deparser = b.begin_stage("deparser", StageKind::Deparser);
    b.emit(Op::Emit { header });
    b.fate(ir::Fate::Send(c.into()));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[parser, deparser]);
    b.program_mut().field_lists.push((0, vec![a, c]));
    let both = Both::new(b.finish());
    let packets: Vec<Vec<u8>> = (0..64u8).map(|i| vec![i % 4, i, 9][..2 + usize::from(i % 5 > 0)].to_vec()).collect();
    let one_by_one = both.check(&packets);
    let together = both.run_batch(EntryKind::Ingress, &packets, &|_| {});
    assert_eq!(one_by_one, together);
    assert_eq!(together.iter().filter(|o| matches!(o.fate, Fate::Send(_))).count(), 32);
    assert!(both.run_batch(EntryKind::Ingress, &[], &|_| {}).is_empty());
}

#[test]
fn a_parser_that_loops_is_rejected() {
    let text = r#"program "circles"
slot x: 8 metadata
entry ingress (P, C)
stage parser P {
b0:
  jump b1
b1:
  charge 5
  x = add x, 8w2
  switch x, 8w1 -> b2, default -> b1
b2:
  next
}
stage control C {
b0:
  send x
}
"#;
    let outcomes = Both::new(parse(text)).check(&[vec![1, 2, 3]]);
    assert_eq!(outcomes[0].fate, Fate::Endless);
}

#[test]
fn externs_without_implementation_are_translated_and_not_linked() {
    let program = parse(
        r#"program "foreign"
slot narrow: 8 metadata
slot wide: 200 metadata
entry ingress (C)
stage control C {
b0:
  unresolved "Checksum(C.ck).update" (narrow, 16w0x7) -> (wide, narrow)
  unresolved "log" () -> ()
  send narrow
}
"#,
    );
    let bindings = abi::Bindings { tables: Vec::new(), externs: Vec::new() };
    jit::check(&program, &bindings, &common::runtime::calls(), &options()).expect("the code can be made");
    let Err(error) = jit::compile(&program, &bindings, &common::runtime::calls(), &options()) else { panic!("linked") };
    assert!(error.to_string().contains("Checksum(C.ck).update"), "{error}");
}
