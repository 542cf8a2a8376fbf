//! "P4Runtime Stream Messages": sessions, packets, digests, idle timeouts, stream errors.

use super::*;
use UpdateKind::{Delete, Insert, Modify};
use abi::state::DigestMessage;
use base::Bits;
use control::control::{Events, StreamErrorAbout, StreamEvent};
use control::packets::Packet;

const MS: u64 = 1_000_000;

fn packet(port: u8) -> Packet {
    Packet { payload: vec![1, 2, 3], metadata: vec![(1, vec![port]), (2, vec![0])] }
}

#[track_caller]
fn error_of(events: Events) -> (Code, StreamErrorAbout) {
    match events.as_slice() {
        [(_, StreamEvent::Error(error))] => (error.error.code, error.about.clone()),
        other => panic!("{other:?} is not one stream error"),
    }
}

#[test]
fn a_stream_belongs_to_one_device_and_role() {
    let mut bed = Bed::without_program();
    let other = |request: ArbitrationRequest| StreamRequest::Arbitration(request);
    let client = bed.control.connect();
    let unknown = ArbitrationRequest { device_id: 9, election_id: Some(1), ..Default::default() };
    assert_refused(bed.control.stream_request(client, other(unknown)), Code::NotFound, "no device 9");
    bed.control.stream_request(client, claim(Some(1))).unwrap();
    let elsewhere = ArbitrationRequest { device_id: 9, election_id: Some(1), ..Default::default() };
    assert_refused(bed.control.stream_request(client, other(elsewhere)), Code::FailedPrecondition, "device 1");
    let role = Role { name: "x".into(), id: 0 };
    let in_role = ArbitrationRequest { device_id: DEVICE, role, election_id: Some(1), ..Default::default() };
    assert_refused(bed.control.stream_request(client, other(in_role)), Code::FailedPrecondition, "default role");
}

#[test]
fn backups_hear_when_the_primary_disconnects() {
    let mut bed = Bed::without_program();
    let backup = bed.control.connect();
    bed.control.stream_request(backup, claim(Some(1))).unwrap();
    let events = bed.control.disconnect(bed.primary);
    match events.as_slice() {
        [(client, StreamEvent::Arbitration(update))] => {
            assert_eq!((*client, update.status, update.election_id), (backup, Code::NotFound, Some(ELECTION)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(bed.control.disconnect(backup), vec![]);
}

#[test]
fn a_packet_out_gets_its_header_and_enters_at_the_controllers_port() {
    let mut bed = Bed::new();
    let events = bed.control.stream_request(bed.primary, StreamRequest::PacketOut(packet(3))).unwrap();
    assert_eq!(events, vec![]);
    // 9 bits port, 7 bits padding.
    assert_eq!(*bed.switch.injected.lock().unwrap(), [(fixture::CPU, vec![0x01, 0x80, 1, 2, 3])]);
}

#[test]
fn a_packet_in_loses_its_header_and_goes_to_the_primary() {
    let mut bed = Bed::new();
    let backup = bed.control.connect();
    bed.control.stream_request(backup, claim(Some(1))).unwrap();
    let events = bed.control.packet_in(DEVICE, &[0x01, 0x80, 1, 2, 3]);
    assert_eq!(events, [(bed.primary, StreamEvent::PacketIn(packet(3)))]);
    assert_eq!(bed.control.packet_in(DEVICE, &[0x01]), vec![], "shorter than the header");
}

#[test]
fn a_wrong_packet_out_is_reported_and_the_stream_goes_on() {
    let mut bed = Bed::new();
    let mut send = |client, packet: Packet| {
        error_of(bed.control.stream_request(client, StreamRequest::PacketOut(packet)).unwrap())
    };
    let primary = ClientId(1);
    for metadata in [
        vec![(1, vec![1])],
        vec![(1, vec![1]), (2, vec![0]), (7, vec![0])],
        vec![(1, vec![1]), (1, vec![1]), (2, vec![0])],
        vec![(1, vec![2, 0]), (2, vec![0])],
    ] {
        let wrong = Packet { metadata, payload: vec![] };
        assert_eq!(send(primary, wrong.clone()), (Code::InvalidArgument, StreamErrorAbout::PacketOut(wrong)));
    }
    let stranger = bed.control.connect();
    let events = bed.control.stream_request(stranger, StreamRequest::PacketOut(packet(1))).unwrap();
    assert_eq!(error_of(events).0, Code::PermissionDenied);
    bed.control.stream_request(stranger, claim(Some(1))).unwrap();
    let events = bed.control.stream_request(stranger, StreamRequest::PacketOut(packet(1))).unwrap();
    assert_eq!(error_of(events).0, Code::PermissionDenied);
    let events = bed.control.stream_request(primary, StreamRequest::Other).unwrap();
    assert_eq!(error_of(events), (Code::Unimplemented, StreamErrorAbout::Other));
    assert!(bed.switch.injected.lock().unwrap().is_empty());
}

fn learned(mac: u128) -> DigestMessage {
    let (_, program) = fixture::program("router").unwrap();
    let digest = program.extern_named("learn").unwrap();
    DigestMessage { digest, fields: vec![Bits::new(48, mac), Bits::new(9, 1)] }
}

fn enable(bed: &mut Bed, config: DigestConfig) -> u32 {
    let digest_id = id(ObjectKind::Digest, "learn");
    bed.write(Insert, Entity::Digest(DigestEntry { digest_id, config: Some(config) })).unwrap();
    digest_id
}

/// The lists among events: id and first bytes of each message.
fn lists(events: Events) -> Vec<(u64, Vec<u8>)> {
    let mac = |data: &P4Data| match data {
        P4Data::Struct(members) => match &members[0] {
            P4Data::Bitstring(mac) => mac[0],
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    events
        .into_iter()
        .map(|(_, event)| match event {
            StreamEvent::Digest(list) => (list.list_id, list.data.iter().map(mac).collect()),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn primaries_share_a_list_of_digest_messages() {
    let mut bed = Bed::new();
    enable(&mut bed, DigestConfig::default());
    for i in 0..20 {
        let client = bed.control.connect();
        let role = Role { name: format!("r{i}"), id: 0 };
        let request = ArbitrationRequest { device_id: DEVICE, role, election_id: Some(1), ..Default::default() };
        bed.control.stream_request(client, StreamRequest::Arbitration(request)).unwrap();
    }
    let events = bed.control.tick(DEVICE, &[learned(1)], 0);
    let lists = events.into_iter().map(|(_, event)| match event {
        StreamEvent::Digest(list) => list,
        other => panic!("{other:?}"),
    });
    let lists: Vec<_> = lists.collect();
    assert_eq!(lists.len(), 21);
    assert!(lists.iter().all(|list| Arc::ptr_eq(list, &lists[0])));
}

#[test]
fn digests_are_sent_only_while_enabled() {
    let mut bed = Bed::new();
    assert_eq!(bed.control.tick(DEVICE, &[learned(1)], 0), vec![]);
    let digest_id = enable(&mut bed, DigestConfig::default());
    assert_eq!(lists(bed.control.tick(DEVICE, &[learned(1)], 0)), [(1, vec![1])]);
    let entry = Entity::Digest(DigestEntry { digest_id, config: Some(DigestConfig::default()) });
    assert_eq!(bed.read(Entity::Digest(Default::default())).unwrap(), std::slice::from_ref(&entry));
    assert_refused(bed.write(Insert, entry.clone()), Code::AlreadyExists, "learn");
    bed.write(Delete, entry.clone()).unwrap();
    assert_refused(bed.write(Modify, entry), Code::NotFound, "not enabled");
    assert_eq!(bed.control.tick(DEVICE, &[learned(1)], 0), vec![]);
}

#[test]
fn a_list_goes_out_when_it_is_full_or_old() {
    let mut bed = Bed::new();
    let config = DigestConfig { max_timeout_ns: 10 * MS as i64, max_list_size: 2, ack_timeout_ns: 0 };
    enable(&mut bed, config);
    assert_eq!(bed.control.tick(DEVICE, &[learned(1), learned(1)], 0), vec![], "one distinct message");
    assert_eq!(lists(bed.control.tick(DEVICE, &[learned(2)], MS)), [(1, vec![1, 2])]);
    assert_eq!(bed.control.tick(DEVICE, &[learned(3)], 2 * MS), vec![]);
    assert_eq!(bed.control.tick(DEVICE, &[], 11 * MS), vec![]);
    assert_eq!(lists(bed.control.tick(DEVICE, &[], 12 * MS)), [(2, vec![3])]);
}

#[test]
fn what_is_not_acknowledged_is_not_sent_again_for_a_while() {
    let mut bed = Bed::new();
    let digest_id = enable(&mut bed, DigestConfig { ack_timeout_ns: 100 * MS as i64, ..Default::default() });
    assert_eq!(lists(bed.control.tick(DEVICE, &[learned(1)], 0)), [(1, vec![1])]);
    assert_eq!(bed.control.tick(DEVICE, &[learned(1)], 50 * MS), vec![]);
    assert_eq!(lists(bed.control.tick(DEVICE, &[learned(1)], 100 * MS)), [(2, vec![1])]);
    bed.control.stream_request(bed.primary, StreamRequest::DigestAck(digest_id, 2)).unwrap();
    assert_eq!(lists(bed.control.tick(DEVICE, &[learned(1)], 101 * MS)), [(3, vec![1])]);
    let events = bed.control.stream_request(bed.primary, StreamRequest::DigestAck(77, 1)).unwrap();
    assert_eq!(error_of(events), (Code::InvalidArgument, StreamErrorAbout::DigestAck(77, 1)));
}

#[test]
fn idle_entries_are_reported_once_per_timeout() {
    let mut bed = Bed::new();
    let entry = TableEntry { idle_timeout_ns: 10 * MS as i64, metadata: vec![3], ..route([10, 0, 0, 0], 8, 1) };
    bed.write(Insert, Entity::Table(entry.clone())).unwrap();
    bed.write(Insert, Entity::Table(route([11, 0, 0, 0], 8, 1))).unwrap();
    let mut tick = |ms: u64| {
        bed.switch.state().set_time(ms * 1000);
        bed.control.tick(DEVICE, &[], ms * MS)
    };
    assert_eq!(tick(9), vec![]);
    let reported = TableEntry { action: None, ..entry };
    let event = vec![(ClientId(1), StreamEvent::IdleTimeout(Arc::new(vec![reported])))];
    assert_eq!(tick(10), event);
    assert_eq!(tick(15), vec![]);
    assert_eq!(tick(20), event);
}

/// Each tick falls into a batch.
#[test]
fn batches_one_after_the_other_do_not_prevent_idle_notifications() {
    let mut bed = Bed::new();
    let entry = TableEntry { idle_timeout_ns: 10 * MS as i64, ..route([10, 0, 0, 0], 8, 1) };
    bed.write(Insert, Entity::Table(entry.clone())).unwrap();
    let reported = vec![(ClientId(1), Arc::new(vec![TableEntry { action: None, ..entry }]))];
    let mut lists = Vec::new();
    for round in 1..=5u8 {
        let new = TableEntry { idle_timeout_ns: 1, ..route([20, round, 0, 0], 16, 1) };
        let entity = Some(Entity::Table(new));
        // The second fails, so all of it is undone.
        let updates = vec![Update { kind: Insert, entity }; 2];
        let request = Arc::new(WriteRequest { updates, atomicity: Atomicity::RollbackOnError, ..batch() });
        let mut writing = bed.control.begin_write(&request).unwrap();
        assert!(!bed.control.write_on(&request, &mut writing, &mut || true));
        let now_ms = u64::from(round) * 10;
        bed.switch.state().set_time(now_ms * 1000);
        lists.push(idle_lists(bed.control.tick(DEVICE, &[], now_ms * MS)));
        while !bed.control.write_on(&request, &mut writing, &mut || false) {}
    }
    // Never an entry that is undone, and the other one with the tick after that in which it was due.
    assert_eq!(lists, [vec![], reported.clone(), reported.clone(), reported.clone(), reported]);
}

#[test]
fn idle_timeouts_follow_hits_changes_and_removals() {
    let mut bed = Bed::new();
    // In units of the shortest timeout in effect.
    const UNIT: u64 = 10 * MS;
    let of =
        |last: u8, units: u64| TableEntry { idle_timeout_ns: (units * UNIT) as i64, ..route([10, last, 0, 0], 16, 1) };
    let reported = |entries: &[TableEntry]| {
        let entries = entries.iter().map(|e| TableEntry { action: None, ..e.clone() }).collect();
        vec![(ClientId(1), StreamEvent::IdleTimeout(Arc::new(entries)))]
    };
    let tick = |bed: &mut Bed, units: u64| {
        bed.switch.state().set_time(units * UNIT / 1000);
        bed.control.tick(DEVICE, &[], units * UNIT)
    };
    bed.write(Insert, Entity::Table(of(1, 10))).unwrap();
    bed.write(Insert, Entity::Table(of(2, 10))).unwrap();
    bed.write(Insert, Entity::Table(of(3, 100))).unwrap();
    bed.write(Delete, Entity::Table(of(2, 10))).unwrap();
    // A shorter one counts from the last hit, none at all ends it, and a longer one after a report waits for its time.
    bed.write(Modify, Entity::Table(of(3, 5))).unwrap();
    assert_eq!(tick(&mut bed, 4), vec![]);
    assert_eq!(tick(&mut bed, 6), reported(&[of(3, 5)]));
    bed.write(Modify, Entity::Table(of(3, 0))).unwrap();
    bed.write(Modify, Entity::Table(of(1, 8))).unwrap();
    assert_eq!(tick(&mut bed, 8), reported(&[of(1, 8)]));
    bed.write(Modify, Entity::Table(of(1, 20))).unwrap();
    assert_eq!(tick(&mut bed, 20), vec![]);
    assert_eq!(tick(&mut bed, 28), reported(&[of(1, 20)]));
    // Late ticks do not add up.
    assert_eq!(tick(&mut bed, 200), reported(&[of(1, 20)]));
    assert_eq!(tick(&mut bed, 201), vec![]);
    // A program that takes the entries over takes the time over, too.
    bed.set_config(ConfigAction::ReconcileAndCommit, Some("router")).unwrap();
    bed.switch.state().set_time(202 * UNIT / 1000);
    assert_eq!(tick(&mut bed, 202), vec![]);
    bed.write(Delete, Entity::Table(of(1, 20))).unwrap();
    assert_eq!(tick(&mut bed, 500), vec![]);
}

/// The entries that a tick reports, by client.
fn idle_lists(events: Events) -> Vec<(ClientId, Arc<Vec<TableEntry>>)> {
    let list = |(client, event)| match event {
        StreamEvent::IdleTimeout(entries) => (client, entries),
        other => panic!("{other:?} is no idle notification"),
    };
    events.into_iter().map(list).collect()
}

#[test]
fn a_tick_reports_so_many_idle_entries_and_later_ones_the_rest() {
    let mut bed = Bed::new();
    bed.set_config(ConfigAction::VerifyAndCommit, Some("router large")).unwrap();
    let patient = TableEntry { idle_timeout_ns: 100 * MS as i64, ..route([11, 0, 0, 0], 8, 1) };
    bed.write(Insert, Entity::Table(patient.clone())).unwrap();
    // Their timeouts are over before the clock's next step.
    let hasty = |i: u16| TableEntry { idle_timeout_ns: 1, ..route([10, (i >> 8) as u8, i as u8, 0], 24, 1) };
    for i in 0..1200 {
        bed.write(Insert, Entity::Table(hasty(i))).unwrap();
    }
    assert_eq!(bed.read_tables(hasty(7))[0].idle_timeout_ns, 1, "what was written is read back");
    let mut tick = |ms: u64| -> Vec<Vec<FieldMatch>> {
        bed.switch.state().set_time(ms * 1000);
        let lists = idle_lists(bed.control.tick(DEVICE, &[], ms * MS));
        lists.into_iter().flat_map(|(_, list)| list.iter().map(|e| e.matches.clone()).collect::<Vec<_>>()).collect()
    };
    assert!(tick(9).is_empty(), "no timeout is shorter than the resolution");
    let mut reported = Vec::new();
    for ms in (10..150).step_by(5) {
        let list = tick(ms);
        assert!(list.len() <= 512, "{} entries in one tick", list.len());
        reported.push(list);
    }
    // All before any of them again, and the hasty ones do not keep the patient one waiting for ever.
    let first: std::collections::BTreeSet<String> =
        reported.iter().flatten().take(1200).map(|matches| format!("{matches:?}")).collect();
    assert_eq!(first.len(), 1200);
    let at = reported.iter().position(|list| list.contains(&patient.matches)).expect("it is reported");
    assert!((18..22).contains(&at), "reported in tick {at}");
}

#[test]
fn primaries_share_a_list_of_idle_entries_and_many_get_shorter_ones() {
    let mut bed = Bed::new();
    bed.set_config(ConfigAction::VerifyAndCommit, Some("router large")).unwrap();
    for i in 0..200u16 {
        let prefix = [10, (i >> 8) as u8, i as u8, 0];
        let entry = TableEntry { idle_timeout_ns: 1, ..route(prefix, 24, 1) };
        bed.write(Insert, Entity::Table(entry)).unwrap();
    }
    for i in 0..63 {
        let client = bed.control.connect();
        let role = Role { name: format!("r{i}"), id: 0 };
        let request = ArbitrationRequest { device_id: DEVICE, role, election_id: Some(1), ..Default::default() };
        bed.control.stream_request(client, StreamRequest::Arbitration(request)).unwrap();
    }
    bed.switch.state().set_time(20_000);
    let lists = idle_lists(bed.control.tick(DEVICE, &[], 20 * MS));
    assert_eq!(lists.len(), 64);
    assert_eq!(lists[0].1.len(), 2048 / 64);
    assert!(lists.iter().all(|(_, list)| Arc::ptr_eq(list, &lists[0].1)));
}
