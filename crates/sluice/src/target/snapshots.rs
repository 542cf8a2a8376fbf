//! Reads that are answered in pieces while controllers write: on the real tables, each answer equals a snapshot taken
//! when the read was opened.

use super::*;
use control::Control;
use control::arbitration::ArbitrationRequest;
use control::control::StreamRequest;
use control::entity::*;
use control::error::Code;
use control::forwarding::ForwardingConfig;
use control::reads::{CHANGES_MAX, ReadId};
use datapath::SwitchConfig;

const DEVICE: u64 = 1;

const SOURCE: &str = r#"#include <core.p4>
#include <v1model.p4>
header h_t { bit<48> dst; bit<32> ip; bit<16> kind; }
struct headers { h_t h; }
struct meta_t { bit<1> unused; }
parser P(packet_in b, out headers hdr, inout meta_t m, inout standard_metadata_t sm) {
    state start { b.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout meta_t m) { apply { } }
control I(inout headers hdr, inout meta_t m, inout standard_metadata_t sm) {
    direct_counter(CounterType.packets) hits;
    register<bit<32>>(5000) cells;
    action forward(bit<9> port) { sm.egress_spec = port; }
    action count(bit<9> port) { sm.egress_spec = port; hits.count(); }
    table macs {
        key = { hdr.h.dst: exact; }
        actions = { forward; NoAction; }
        default_action = NoAction();
        size = 1048576;
    }
    table routes {
        key = { hdr.h.ip: lpm; }
        actions = { count; NoAction; }
        default_action = NoAction();
        counters = hits;
        size = 65536;
    }
    table rules {
        key = { hdr.h.kind: ternary; hdr.h.ip: exact; }
        actions = { forward; NoAction; }
        default_action = NoAction();
        size = 16384;
    }
    apply {
        macs.apply();
        routes.apply();
        rules.apply();
        bit<32> n;
        cells.read(n, (bit<32>)hdr.h.kind);
        cells.write((bit<32>)hdr.h.kind, n + 1);
    }
}
control E(inout headers hdr, inout meta_t m, inout standard_metadata_t sm) { apply { } }
control C(inout headers hdr, inout meta_t m) { apply { } }
control D(packet_out b, in headers hdr) { apply { b.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"#;

struct Bed {
    control: Control,
    macs: u32,
    routes: u32,
    rules: u32,
    cells: u32,
    forward: u32,
    count: u32,
    random: u64,
}

impl Bed {
    fn new() -> Bed {
        let switch = Arc::new(Switch::new(SwitchConfig::default()));
        let (options, code) = (Options::default(), CodeOptions::default());
        let target = SwitchTarget::new(
            switch,
            crate::compiler::Compiler::in_process(),
            options,
            code,
            EngineKind::Machine,
            Specialise::Off,
        );
        let mut control = Control::new();
        control.add_device(DEVICE, Arc::new(target));
        let stream = control.connect();
        let claim = ArbitrationRequest { device_id: DEVICE, election_id: Some(1), ..Default::default() };
        control.stream_request(stream, StreamRequest::Arbitration(claim)).unwrap();
        control.load(DEVICE, config()).unwrap();
        let info = control.config(DEVICE).unwrap().unwrap().p4info;
        let table = |name: &str| info.tables.iter().find(|t| t.preamble.name == name).unwrap().preamble.id;
        let action = |name: &str| info.actions.iter().find(|a| a.preamble.name == name).unwrap().preamble.id;
        Bed {
            macs: table("I.macs"),
            routes: table("I.routes"),
            rules: table("I.rules"),
            cells: info.registers[0].preamble.id,
            forward: action("I.forward"),
            count: action("I.count"),
            control,
            random: 1,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.random >> 33) % n
    }

    /// Returns an entry of a table, by its number.
    fn entry(&mut self, table: u32, number: u64) -> TableEntry {
        let bytes = |n: u64| n.to_be_bytes().iter().copied().skip_while(|b| *b == 0).collect::<Vec<_>>();
        let some = |n: u64| if n == 0 { vec![0] } else { bytes(n) };
        let exact = |field_id, n| FieldMatch { field_id, value: MatchValue::Exact(some(n)) };
        let (matches, priority) = if table == self.macs {
            (vec![exact(1, number * 77)], 0)
        } else if table == self.routes {
            let value = MatchValue::Lpm { value: some((number + 1) << 8), prefix_len: 24 };
            (vec![FieldMatch { field_id: 1, value }], 0)
        } else {
            let value = MatchValue::Ternary { value: some(number % 16 + 1), mask: vec![0xff] };
            (vec![FieldMatch { field_id: 1, value }, exact(2, number / 16)], 1 + (number % 3) as i32)
        };
        let action_id = if table == self.routes { self.count } else { self.forward };
        let params = vec![(1, some(1 + self.below(400)))];
        let action = Some(TableAction::Action(Action { action_id, params }));
        // Some have metadata, which only the control plane stores.
        let metadata = if self.below(4) == 0 { vec![self.below(256) as u8] } else { vec![] };
        TableEntry { table_id: table, matches, priority, action, metadata, ..Default::default() }
    }

    fn change(&mut self, entries: u64) -> Update {
        let tables = [self.macs, self.routes, self.rules];
        let table = tables[self.below(3) as usize];
        let number = self.below(entries);
        let entry = self.entry(table, number);
        let kind = match self.below(4) {
            0 => UpdateKind::Delete,
            1 => UpdateKind::Modify,
            _ => UpdateKind::Insert,
        };
        let entity = match self.below(12) {
            0 => {
                let index = (self.below(100) > 0).then(|| self.below(5000) as i64);
                let data = Some(P4Data::Bitstring(vec![1 + self.below(200) as u8]));
                return modify(Entity::Register(RegisterEntry { register_id: self.cells, index, data }));
            }
            1 => {
                let of_route = self.entry(self.routes, number);
                let data = Some(CounterData { packet_count: self.below(1000) as i64, byte_count: 0 });
                return modify(Entity::DirectCounter(DirectCounterEntry { table_entry: Some(of_route), data }));
            }
            _ => Entity::Table(entry),
        };
        Update { kind, entity: Some(entity) }
    }

    /// Writes updates. Some are refused, because their entries exist already or do not exist.
    fn write(&mut self, updates: Vec<Update>) {
        let request = WriteRequest { device_id: DEVICE, election_id: Some(1), updates, ..Default::default() };
        self.control.write(&request).unwrap();
    }

    fn write_some(&mut self, count: usize, entries: u64) {
        let updates = (0..count).map(|_| self.change(entries)).collect();
        self.write(updates);
    }

    fn open(&mut self) -> ReadId {
        let (id, results) = self.control.open_read(DEVICE, &Role::default(), &queries()).unwrap();
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        id
    }

    fn everything(&mut self) -> Vec<String> {
        let (found, results) = self.control.read(DEVICE, &queries()).unwrap();
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        sorted(found)
    }
}

fn config() -> ForwardingConfig {
    ForwardingConfig { device_config: SOURCE.as_bytes().to_vec(), ..Default::default() }
}

fn modify(entity: Entity) -> Update {
    Update { kind: UpdateKind::Modify, entity: Some(entity) }
}

fn queries() -> [Option<Entity>; 3] {
    let entries = TableEntry { counter_data: Some(Default::default()), ..Default::default() };
    let counters = DirectCounterEntry { table_entry: Some(TableEntry::default()), data: None };
    let cells = RegisterEntry::default();
    [Entity::Table(entries), Entity::DirectCounter(counters), Entity::Register(cells)].map(Some)
}

fn sorted(found: Vec<Entity>) -> Vec<String> {
    let mut all: Vec<String> = found.iter().map(|entity| format!("{entity:?}")).collect();
    all.sort();
    all
}

#[test]
fn answers_are_what_was_there_when_they_were_asked_for() {
    let mut bed = Bed::new();
    bed.write_some(6000, 4000);
    // Up to three open reads, each with the expected answer and what it has returned so far.
    let mut open: Vec<(ReadId, Vec<String>, Vec<Entity>)> = Vec::new();
    let mut answered = 0;
    while answered < 12 {
        if open.len() < 3 {
            let expected = bed.everything();
            let id = bed.open();
            open.push((id, expected, vec![]));
        }
        let count = 1 + bed.below(60) as usize;
        // The number of entries rises, so that tables grow meanwhile.
        bed.write_some(count, 4000 + 1000 * answered);
        let at = bed.below(open.len() as u64) as usize;
        let some = bed.control.read_on(open[at].0, 150).unwrap();
        let at_end = some.is_empty();
        open[at].2.extend(some);
        if at_end {
            let (_, expected, found) = open.swap_remove(at);
            let found = sorted(found);
            assert_eq!(found.len(), expected.len());
            assert!(found == expected, "{:?}", found.iter().zip(&expected).find(|(a, b)| a != b));
            answered += 1;
        }
    }
}

#[test]
fn a_read_of_a_program_that_is_replaced_is_cut_off() {
    let mut bed = Bed::new();
    bed.write_some(3000, 4000);
    let id = bed.open();
    assert!(!bed.control.read_on(id, 10).unwrap().is_empty());
    bed.control.load(DEVICE, config()).unwrap();
    let error = bed.control.read_on(id, 10).unwrap_err();
    assert_eq!(error.code, Code::Aborted, "{error}");
}

#[test]
fn a_reader_that_is_overtaken_by_too_many_changes_is_cut_off_and_others_are_not() {
    let mut bed = Bed::new();
    let insert = |entry| Update { kind: UpdateKind::Insert, entity: Some(Entity::Table(entry)) };
    let first: Vec<Update> = (0..2000).map(|n| insert(bed.entry(bed.macs, n))).collect();
    bed.write(first);
    let slow = bed.open();
    assert!(!bed.control.read_on(slow, 10).unwrap().is_empty());
    let mut later = None;
    let all = 2000 + CHANGES_MAX as u64 + 1;
    for number in (2000..all).step_by(10_000) {
        let more: Vec<Update> = (number..(number + 10_000).min(all)).map(|n| insert(bed.entry(bed.macs, n))).collect();
        bed.write(more);
        if later.is_none() && number > 100_000 {
            later = Some(bed.open());
        }
    }
    let error = bed.control.read_on(slow, 10).unwrap_err();
    assert_eq!(error.code, Code::Aborted, "{error}");
    assert!(!bed.control.read_on(later.expect("it was opened"), 10).unwrap().is_empty());
    bed.control.close_read(later.expect("it was opened"));
    // A closed read is not truncated but aborted.
    assert_eq!(bed.control.read_on(slow, 10).unwrap_err().code, Code::Aborted);
}
