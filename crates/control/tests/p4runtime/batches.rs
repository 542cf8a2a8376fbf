//! "Write RPC", "Read RPC": checks before a batch, batch atomicity, error reporting.

use super::*;
use ::control::journal::{Batch, Contents, Journal, Ticket, WhenKept};
use UpdateKind::{Delete, Insert, Modify};
use std::sync::atomic::Ordering;

fn update(kind: UpdateKind, entry: TableEntry) -> Update {
    Update { kind, entity: Some(Entity::Table(entry)) }
}

#[test]
fn a_write_is_checked_in_the_specified_order() {
    let mut bed = Bed::without_program();
    let no_device = WriteRequest { device_id: 7, ..batch() };
    assert_refused(bed.control.write(&no_device), Code::NotFound, "no device 7; there is `1`");
    let no_role = WriteRequest { role: Role { name: "x".into(), id: 0 }, ..batch() };
    assert_refused(bed.control.write(&no_role), Code::NotFound, "role `x`");
    let backup = WriteRequest { election_id: Some(3), ..batch() };
    assert_refused(bed.control.write(&backup), Code::PermissionDenied, "election id");
    let nobody = WriteRequest { election_id: None, ..batch() };
    assert_refused(bed.control.write(&nobody), Code::PermissionDenied, "election id");
    assert_refused(bed.control.write(&batch()), Code::FailedPrecondition, "no forwarding pipeline config");
}

#[test]
fn an_operator_writes_while_nobody_is_primary() {
    let mut bed = Bed::new();
    let updates = vec![update(Insert, route([10, 0, 0, 0], 8, 1)), update(Insert, route([10, 0, 0, 0], 8, 1))];
    let request = Arc::new(WriteRequest { updates, election_id: None, ..batch() });
    let refused = bed.control.write_as_operator(&request);
    assert_refused(refused, Code::PermissionDenied, "a controller is primary, with election id");
    bed.control.disconnect(bed.primary);
    let results = bed.control.write_as_operator(&request).unwrap();
    let codes: Vec<_> = results.iter().map(|r| r.as_ref().map_err(|e| e.code).copied_code()).collect();
    assert_eq!(codes, [Code::Ok, Code::AlreadyExists]);
    let elsewhere = Arc::new(WriteRequest { device_id: 7, ..batch() });
    assert_refused(bed.control.write_as_operator(&elsewhere), Code::NotFound, "no device 7");
}

#[test]
fn a_read_needs_a_device_and_a_config_but_no_primary() {
    let mut bed = Bed::without_program();
    assert_refused(bed.control.read(7, &[]), Code::NotFound, "no device 7");
    assert_refused(bed.control.read(DEVICE, &[]), Code::FailedPrecondition, "no forwarding pipeline config");
    let mut bed = Bed::new();
    bed.control.disconnect(bed.primary);
    let everything = Some(Entity::Table(TableEntry::default()));
    assert_eq!(bed.control.read(DEVICE, &[everything]).unwrap().0.len(), 3, "the program's own");
}

#[test]
fn a_read_answers_what_it_can_and_reports_the_rest() {
    let mut bed = Bed::new();
    let good = Some(Entity::Table(TableEntry::default()));
    let bad = Some(Entity::Table(TableEntry { table_id: 5, ..Default::default() }));
    let (found, results) = bed.control.read(DEVICE, &[good.clone(), bad, None, good]).unwrap();
    assert_eq!(found.len(), 3, "the program's entries: equal queries are one");
    let codes: Vec<_> = results.iter().map(|r| r.as_ref().map_err(|e| e.code).copied_code()).collect();
    assert_eq!(codes, [Code::Ok, Code::NotFound, Code::InvalidArgument, Code::Ok]);
}

#[test]
fn updates_go_on_after_a_failure() {
    let mut bed = Bed::new();
    let updates = vec![
        update(Insert, route([10, 0, 0, 0], 8, 1)),
        update(Insert, route([10, 0, 0, 0], 8, 1)),
        update(Insert, route([11, 0, 0, 0], 8, 1)),
    ];
    let results = bed.control.write(&WriteRequest { updates, ..batch() }).unwrap();
    let codes: Vec<_> = results.iter().map(|r| r.as_ref().map_err(|e| e.code).copied_code()).collect();
    assert_eq!(codes, [Code::Ok, Code::AlreadyExists, Code::Ok]);
}

#[test]
fn a_rolled_back_batch_leaves_everything_as_it_was() {
    let mut bed = Bed::new();
    let counted = TableEntry {
        counter_data: Some(CounterData { byte_count: 7, packet_count: 1 }),
        metadata: vec![8],
        ..route([10, 0, 0, 0], 8, 1)
    };
    bed.write(Insert, Entity::Table(counted)).unwrap();
    bed.write(Insert, Entity::Table(route([11, 0, 0, 0], 8, 1))).unwrap();
    let query = || TableEntry { counter_data: Some(Default::default()), ..Default::default() };
    let sorted = |mut entries: Vec<TableEntry>| {
        entries.sort_by_key(|e| format!("{:?}", e.matches));
        entries
    };
    let before = sorted(bed.read_tables(query()));
    let updates = vec![
        update(Delete, route([10, 0, 0, 0], 8, 1)),
        update(Modify, route([11, 0, 0, 0], 8, 3)),
        update(Insert, route([12, 0, 0, 0], 8, 1)),
        update(Delete, route([99, 0, 0, 0], 8, 1)),
        update(Insert, route([13, 0, 0, 0], 8, 1)),
    ];
    let request = WriteRequest { updates: updates.clone(), atomicity: Atomicity::RollbackOnError, ..batch() };
    let results = bed.control.write(&request).unwrap();
    let codes: Vec<_> = results.iter().map(|r| r.as_ref().map_err(|e| e.code).copied_code()).collect();
    assert_eq!(codes, [Code::Aborted, Code::Aborted, Code::Aborted, Code::NotFound, Code::Aborted]);
    assert_eq!(sorted(bed.read_tables(query())), before);
    // Without the failing one it goes through.
    let updates = updates.into_iter().take(3).collect();
    let request = WriteRequest { updates, atomicity: Atomicity::RollbackOnError, ..batch() };
    assert!(bed.control.write(&request).unwrap().iter().all(Result::is_ok));
    assert_ne!(sorted(bed.read_tables(query())), before);
}

#[test]
fn an_entry_that_matches_everything_is_brought_back_alone() {
    let mut bed = Bed::new();
    let wide = TableEntry { matches: vec![], ..route([0, 0, 0, 0], 1, 1) };
    bed.write(Insert, Entity::Table(wide.clone())).unwrap();
    bed.write(Insert, Entity::Table(route([10, 0, 0, 0], 8, 1))).unwrap();
    let default = TableEntry { table_id: table("ingress.ecmp"), is_default_action: true, ..Default::default() };
    let updates = vec![
        update(Modify, default),
        update(Delete, wide),
        update(Delete, route([10, 0, 0, 0], 8, 1)),
        update(Delete, route([99, 0, 0, 0], 8, 1)),
        update(Delete, route([98, 0, 0, 0], 8, 1)),
    ];
    let request = WriteRequest { updates, atomicity: Atomicity::RollbackOnError, ..batch() };
    let results = bed.control.write(&request).unwrap();
    let codes: Vec<_> = results.iter().map(|r| r.as_ref().map_err(|e| e.code).copied_code()).collect();
    assert_eq!(codes, [Code::Aborted, Code::Aborted, Code::Aborted, Code::NotFound, Code::Aborted]);
    assert_eq!(bed.read_tables(TableEntry { table_id: table("ingress.ipv4_lpm"), ..Default::default() }).len(), 2);
}

#[test]
fn packets_see_all_of_an_atomic_batch_or_nothing() {
    let mut bed = Bed::new();
    let insert = |net| update(Insert, route([net, 0, 0, 0], 8, 1));
    let batch = |updates| WriteRequest { updates, atomicity: Atomicity::DataplaneAtomic, ..batch() };
    // One change is seen or not: no packet has to wait.
    assert_eq!(bed.control.write(&batch(vec![insert(10)])).unwrap(), [Ok(())]);
    assert_eq!(*bed.switch.held.lock().unwrap(), []);
    assert!(bed.control.write(&batch(vec![insert(11), insert(12), insert(13)])).unwrap().iter().all(Result::is_ok));
    // The fixed table has one entry.
    assert_eq!(*bed.switch.held.lock().unwrap(), [2, 5]);
    // When one is refused, all are gone again before packets go on.
    let results = bed.control.write(&batch(vec![insert(14), insert(15), insert(10)])).unwrap();
    let codes: Vec<_> = results.iter().map(|r| r.as_ref().map_err(|e| e.code).copied_code()).collect();
    assert_eq!(codes, [Code::Aborted, Code::Aborted, Code::AlreadyExists]);
    assert_eq!(*bed.switch.held.lock().unwrap(), [2, 5, 5, 5]);
}

/// An update without an index is one update, but writes as many cells as the array has.
#[test]
fn packets_are_not_stopped_for_more_cells_than_the_limit() {
    use control::writes::HELD_CELLS_MAX;
    let mut bed = Bed::new();
    bed.set_config(ConfigAction::VerifyAndCommit, Some("router counting")).unwrap();
    let counts = |index, count: u64| {
        let counter_id = id(ObjectKind::Counter, "ingress.count");
        let data = Some(CounterData { packet_count: 1, byte_count: 1 });
        let entity = Some(Entity::Counter(CounterEntry { counter_id, index, data }));
        (0..count).map(|_| Update { kind: Modify, entity: entity.clone() }).collect::<Vec<_>>()
    };
    let batch = |updates, atomicity| WriteRequest { updates, atomicity, ..batch() };
    let most = HELD_CELLS_MAX / fixture::CELLS;
    let refused = bed.control.write(&batch(counts(None, most + 1), Atomicity::DataplaneAtomic));
    assert_refused(refused, Code::ResourceExhausted, "more than 65536 cells");
    assert_eq!(*bed.switch.held.lock().unwrap(), []);
    // So many, cells with an index, and those of batches that do not stop packets are written.
    for (updates, atomicity) in [
        (counts(None, most), Atomicity::DataplaneAtomic),
        (counts(Some(1), 1000), Atomicity::DataplaneAtomic),
        (counts(None, most + 1), Atomicity::RollbackOnError),
    ] {
        assert!(bed.control.write(&batch(updates, atomicity)).unwrap().iter().all(Result::is_ok));
    }
}

#[test]
fn the_api_version_is_told() {
    let mut bed = Bed::without_program();
    assert_eq!(bed.control.capabilities(0), Ok("1.5.0"));
    assert_eq!(bed.control.capabilities(DEVICE), Ok("1.5.0"));
    assert_refused(bed.control.capabilities(9), Code::NotFound, "no device 9");
}

#[test]
fn no_program_has_externs_without_entities_of_their_own() {
    let mut bed = Bed::new();
    let entity = |extern_type_id, extern_id| Entity::Extern { extern_type_id, extern_id };
    for kind in [Insert, Modify, Delete] {
        let refused = bed.write(kind, entity(0x81, 0x8100_0001));
        assert_refused(refused, Code::NotFound, "no extern 0x81000001 of type 0x81");
    }
    assert_refused(bed.read(entity(0x81, 0x8100_0001)), Code::NotFound, "no extern 0x81000001 of type 0x81");
    assert_refused(bed.read(entity(0x81, 0)), Code::NotFound, "of type 0x81");
    assert_eq!(bed.read(entity(0, 0)).unwrap(), []);
}

trait CopiedCode {
    fn copied_code(self) -> Code;
}

impl CopiedCode for Result<&(), Code> {
    fn copied_code(self) -> Code {
        self.err().unwrap_or(Code::Ok)
    }
}

/// Writes a batch in turns of one update; `between` runs between two of them, with the number of turns so far.
fn in_turns(
    control: &mut Control,
    request: &Arc<WriteRequest>,
    mut between: impl FnMut(&mut Control, usize),
) -> Vec<Code> {
    let mut writing = control.begin_write(request).unwrap();
    let mut turns = 1;
    while !control.write_on(request, &mut writing, &mut || true) {
        between(control, turns);
        turns += 1;
    }
    writing.finish().results.iter().map(|r| r.as_ref().map_err(|e| e.code).copied_code()).collect()
}

const ATOMICITIES: [Atomicity; 3] =
    [Atomicity::ContinueOnError, Atomicity::RollbackOnError, Atomicity::DataplaneAtomic];

fn routes(bed: &mut Bed) -> Vec<TableEntry> {
    bed.read_tables(TableEntry { table_id: table("ingress.ipv4_lpm"), ..Default::default() })
}

#[test]
fn a_batch_in_turns_does_what_it_does_at_once() {
    for atomicity in ATOMICITIES {
        for fails in [false, true] {
            let mut updates = vec![
                update(Insert, route([12, 0, 0, 0], 8, 1)),
                update(Modify, route([11, 0, 0, 0], 8, 3)),
                update(Modify, route([12, 0, 0, 0], 8, 2)),
                update(Delete, route([11, 0, 0, 0], 8, 3)),
                update(Insert, route([13, 0, 0, 0], 8, 1)),
            ];
            if fails {
                updates.insert(4, update(Delete, route([99, 0, 0, 0], 8, 1)));
            }
            let request = Arc::new(WriteRequest { updates, atomicity, ..batch() });
            let mut beds = [Bed::new(), Bed::new()];
            for bed in &mut beds {
                bed.write(Insert, Entity::Table(route([11, 0, 0, 0], 8, 1))).unwrap();
            }
            let [whole, parts] = &mut beds;
            let results = whole.control.write(&request).unwrap();
            let at_once: Vec<Code> = results.iter().map(|r| r.as_ref().map_err(|e| e.code).copied_code()).collect();
            assert_eq!(in_turns(&mut parts.control, &request, |_, _| {}), at_once, "{atomicity:?}, {fails}");
            assert_eq!(routes(parts), routes(whole), "{atomicity:?}, {fails}");
            assert_eq!(*parts.switch.held.lock().unwrap(), *whole.switch.held.lock().unwrap());
            // What comes after it is an update of its own again.
            let after = bed_is_free(parts);
            assert_eq!(after, Ok(()), "{atomicity:?}, {fails}");
        }
    }
}

fn bed_is_free(bed: &mut Bed) -> Result<(), Error> {
    bed.write(Insert, Entity::Table(route([77, 0, 0, 0], 8, 1)))
}

#[test]
fn between_its_turns_others_use_what_a_batch_is_not_about() {
    for atomicity in ATOMICITIES {
        let mut bed = Bed::new();
        let other = bed.control.connect();
        bed.control.add_device(7, FakeSwitch::new());
        let claim = ArbitrationRequest { device_id: 7, election_id: Some(1), ..Default::default() };
        bed.control.stream_request(other, StreamRequest::Arbitration(claim)).unwrap();
        let config = ForwardingConfig { device_config: b"router".to_vec(), ..Default::default() };
        bed.control.load(7, config).unwrap();
        let updates = (10..15).map(|net| update(Insert, route([net, 0, 0, 0], 8, 1))).collect();
        let request = Arc::new(WriteRequest { updates, atomicity, ..batch() });
        let codes = in_turns(&mut bed.control, &request, |control, turns| {
            let entry = route([100 + turns as u8, 0, 0, 0], 8, 1);
            let of = |entity| WriteRequest { updates: vec![Update { kind: Modify, entity: Some(entity) }], ..batch() };
            let same = of(Entity::Table(entry.clone()));
            let group = MulticastGroup { group_id: turns as u32, ..Default::default() };
            let mut another = of(Entity::MulticastGroup(group));
            another.updates[0].kind = Insert;
            let query = |table_id| Some(Entity::Table(TableEntry { table_id, ..Default::default() }));
            // The objects of the batch are closed to all.
            assert_refused(control.write(&same), Code::Unavailable, "is being written");
            for table_id in [entry.table_id, 0] {
                let read = control.read(DEVICE, &[query(table_id)]);
                assert_refused(read, Code::Unavailable, "is being written");
            }
            assert_refused(control.remove_device(DEVICE), Code::Unavailable, "is being written");
            // Others only if something of the device may be undone.
            let (written, read) = (control.write(&another), control.read(DEVICE, &[query(table("ingress.acl"))]));
            if atomicity == Atomicity::ContinueOnError {
                assert_eq!(written.unwrap(), [Ok(())]);
                read.unwrap();
            } else {
                assert_refused(written, Code::Unavailable, "is being written");
                assert_refused(read, Code::Unavailable, "is being written");
            }
            let mut elsewhere = WriteRequest { device_id: 7, election_id: Some(1), ..same };
            elsewhere.updates[0].kind = Insert;
            assert_eq!(control.write(&elsewhere).unwrap(), [Ok(())], "another device is not concerned");
        });
        assert_eq!(codes, [Code::Ok; 5]);
        assert_eq!(routes(&mut bed).len(), 5);
        bed_is_free(&mut bed).unwrap();
    }
}

#[test]
fn a_table_a_profile_that_it_uses_and_its_direct_resources_are_one_object() {
    use ::control::objects::Objects;
    let mut bed = Bed::new();
    let schema = bed.control.schema(DEVICE).unwrap();
    let of = |entity: &Entity| Objects::of(&schema, [Some(entity)]);
    let entry = |name| TableEntry { table_id: table(name), ..Default::default() };
    let member = Entity::Member(Member {
        action_profile_id: id(ObjectKind::ActionProfile, "ingress.selector"),
        ..Default::default()
    });
    assert!(of(&Entity::Table(entry("ingress.ecmp"))).overlap(&of(&member)));
    let count = DirectCounterEntry { table_entry: Some(entry("ingress.ipv4_lpm")), data: None };
    assert!(of(&Entity::DirectCounter(count.clone())).overlap(&of(&Entity::Table(entry("ingress.ipv4_lpm")))));
    assert!(!of(&Entity::DirectCounter(count)).overlap(&of(&member)));
    for all in [Entity::Table(TableEntry::default()), Entity::Counter(CounterEntry::default())] {
        assert_eq!(of(&all), Objects::All);
    }
}

#[test]
fn a_batch_that_has_begun_is_finished_when_its_sender_disconnects() {
    for atomicity in ATOMICITIES {
        let mut bed = Bed::new();
        let updates: Vec<Update> = (10..14).map(|net| update(Insert, route([net, 0, 0, 0], 8, 1))).collect();
        let request = Arc::new(WriteRequest { updates, atomicity, ..batch() });
        let primary = bed.primary;
        let codes = in_turns(&mut bed.control, &request, |control, turns| {
            if turns == 2 {
                control.disconnect(primary);
            }
        });
        assert_eq!(codes, [Code::Ok; 4], "{atomicity:?}");
        assert_eq!(routes(&mut bed).len(), 4, "{atomicity:?}");
    }
}

/// Notes how many changes are journalled together.
#[derive(Default)]
struct Noted(std::sync::Mutex<Vec<usize>>);

impl Journal for Noted {
    fn append(&self, batch: Batch) -> Ticket {
        let mut noted = self.0.lock().unwrap();
        noted.push(batch.changes.len());
        Ticket(noted.len() as u64)
    }
    fn kept(&self) -> Ticket {
        Default::default()
    }
    fn when_kept(&self, _: Ticket, then: WhenKept) {
        then(Ok(()));
    }
    fn failure(&self) -> Option<String> {
        None
    }
    fn replace(&self, _: u64, _: Contents, _: Contents) -> Result<(), String> {
        Ok(())
    }
    fn reopen(&self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_batch_in_turns_is_one_change_of_the_journal() {
    for atomicity in ATOMICITIES {
        let (mut bed, journal) = (Bed::new(), Arc::new(Noted::default()));
        bed.control.keep(DEVICE, Arc::clone(&journal) as _, true).unwrap();
        let updates: Vec<Update> = (10..14).map(|net| update(Insert, route([net, 0, 0, 0], 8, 1))).collect();
        let request = Arc::new(WriteRequest { updates, atomicity, ..batch() });
        assert_eq!(in_turns(&mut bed.control, &request, |_, _| {}), [Code::Ok; 4]);
        assert_eq!(*journal.0.lock().unwrap(), [4], "{atomicity:?}");
        // Nothing of the same once more is done.
        in_turns(&mut bed.control, &request, |_, _| {});
        assert_eq!(*journal.0.lock().unwrap(), [4], "{atomicity:?}");
    }
}

/// A batch that is given up, by a panic or because its request has gone.
#[test]
fn a_batch_that_stops_packets_and_is_not_finished_stops_none_from_then_on() {
    let mut bed = Bed::new();
    bed.set_config(ConfigAction::VerifyAndCommit, Some("router updating")).unwrap();
    let register = |value| {
        let register_id = id(ObjectKind::Register, "ingress.state");
        Entity::Register(RegisterEntry { register_id, index: Some(1), data: Some(P4Data::Bitstring(vec![value])) })
    };
    let updates = (1..5).map(|value| Update { kind: Modify, entity: Some(register(value)) }).collect();
    let request = Arc::new(WriteRequest { updates, atomicity: Atomicity::DataplaneAtomic, ..batch() });
    let stops = |bed: &Bed| bed.switch.held.lock().unwrap().len();
    // A packet may be between its read and its write, so they are stopped, and go on.
    bed.write(Modify, register(9)).unwrap();
    assert_eq!(stops(&bed), 2);
    for panics in [false, true] {
        let before = stops(&bed);
        let control = &mut bed.control;
        let given_up = std::panic::AssertUnwindSafe(|| {
            let mut writing = control.begin_write(&request).unwrap();
            assert!(!control.write_on(&request, &mut writing, &mut || true));
            assert!(!panics, "a panic in the middle of a batch");
        });
        assert_eq!(std::panic::catch_unwind(given_up).is_err(), panics);
        assert_eq!(stops(&bed), before + 2, "its registers were written while it had stopped packets, once");
        bed.write(Modify, register(9)).unwrap();
        assert_eq!(stops(&bed), before + 4, "packets go on, so a write stops them again");
    }
}

/// A journal whose disk is slow, and then fails.
#[derive(Default)]
struct FailingDisk {
    last: std::sync::atomic::AtomicU64,
    has_failed: std::sync::atomic::AtomicBool,
}

impl Journal for FailingDisk {
    fn append(&self, _: Batch) -> Ticket {
        Ticket(1 + self.last.fetch_add(1, Ordering::Relaxed))
    }

    fn kept(&self) -> Ticket {
        Ticket(0)
    }

    fn when_kept(&self, _: Ticket, then: WhenKept) {
        then(Err(self.failure().expect("nobody asks before")));
    }

    fn failure(&self) -> Option<String> {
        self.has_failed.load(Ordering::Relaxed).then(|| "no space left".to_string())
    }

    fn replace(&self, _: u64, _: Contents, _: Contents) -> Result<(), String> {
        Ok(())
    }

    fn reopen(&self) -> Result<(), String> {
        Err("still none".to_string())
    }
}

impl Bed {
    /// A bed with a journal, and two routes: of which only one is known not to be lost.
    fn with_a_slow_disk() -> (Bed, Arc<FailingDisk>) {
        let mut bed = Bed::new();
        bed.write(Insert, Entity::Table(route([11, 0, 0, 0], 8, 1))).unwrap();
        let disk = Arc::new(FailingDisk::default());
        bed.control.keep(DEVICE, Arc::clone(&disk) as _, false).unwrap();
        bed.write(Insert, Entity::Table(route([12, 0, 0, 0], 8, 1))).unwrap();
        assert_eq!(routes(&mut bed).len(), 2);
        (bed, disk)
    }
}

/// What others have written cannot be told from what the batch has, so it is undone behind the batch, which ends soon.
#[test]
fn when_the_disk_fails_a_batch_ends_with_its_turn_and_all_that_is_lost_is_undone() {
    for atomicity in ATOMICITIES {
        for changes in [true, false] {
            let (mut bed, disk) = Bed::with_a_slow_disk();
            let kind = if changes { Insert } else { Modify };
            let updates = (20..28).map(|net| update(kind, route([net, 0, 0, 0], 8, 1))).collect();
            let request = Arc::new(WriteRequest { updates, atomicity, ..batch() });
            let mut turns_since = 0;
            let codes = in_turns(&mut bed.control, &request, |control, turns| {
                if turns == 1 {
                    disk.has_failed.store(true, Ordering::Relaxed);
                    let (journal, ticket) = control.last_change(DEVICE).unwrap();
                    assert!(journal.wait(ticket).is_err(), "who reads now gets no answer with what is lost");
                    assert_refused(control.roll_back(), Code::Unavailable, "a batch of updates is being written");
                } else {
                    turns_since += 1;
                }
            });
            assert!(turns_since <= 2, "{atomicity:?}, {changes}: {turns_since} turns after the disk has failed");
            let is_atomic = atomicity != Atomicity::ContinueOnError;
            let refused = codes.iter().filter(|code| **code == Code::Unavailable).count();
            // Of an atomic batch one update fails for this reason, the others with it; or the first one by itself.
            assert_eq!(refused, if is_atomic { usize::from(changes) } else { 7 }, "{atomicity:?}: {codes:?}");
            let there: Vec<TableEntry> = routes(&mut bed);
            assert_eq!(there, [route([11, 0, 0, 0], 8, 1)], "{atomicity:?}, {changes}");
        }
    }
}

#[test]
fn what_is_lost_is_undone_with_the_time_when_a_batch_was_given_up() {
    let (mut bed, disk) = Bed::with_a_slow_disk();
    let updates = (20..28).map(|net| update(Modify, route([net, 0, 0, 0], 8, 1))).collect();
    let request = Arc::new(WriteRequest { updates, ..batch() });
    let mut writing = bed.control.begin_write(&request).unwrap();
    assert!(!bed.control.write_on(&request, &mut writing, &mut || true));
    disk.has_failed.store(true, Ordering::Relaxed);
    assert_refused(bed.control.roll_back(), Code::Unavailable, "a batch of updates is being written");
    drop(writing);
    bed.control.tick(DEVICE, &[], 1);
    assert_eq!(routes(&mut bed), [route([11, 0, 0, 0], 8, 1)]);
}
