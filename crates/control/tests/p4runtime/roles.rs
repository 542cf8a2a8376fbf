//! "Role Config": what a role with a configuration may write, read and hear.

use super::*;
use ::control::arbitration::ArbitrationRequest;
use ::control::control::StreamEvent;
use ::control::packets::Packet;
use ::control::roles::{GivenConfig, Packets, RoleConfig};
use UpdateKind::{Insert, Modify};

fn config(objects: &[u32], exclusive: &[u32]) -> RoleConfig {
    RoleConfig {
        objects: Some(objects.iter().chain(exclusive).copied().collect()),
        exclusive: exclusive.iter().copied().collect(),
        replication: false,
        packets_in: Packets::None,
        packets_out: Packets::None,
        sets_program: false,
        message: ("type.googleapis.com/example".to_string(), vec![1, 2]),
    }
}

fn role(name: &str) -> Role {
    Role { name: name.to_string(), id: 0 }
}

/// A primary of a role with this configuration.
fn join(bed: &mut Bed, name: &str, config: RoleConfig) -> ClientId {
    let client = bed.control.connect();
    let (role, role_config) = (role(name), Some(GivenConfig::Known(config)));
    let claim = ArbitrationRequest { device_id: DEVICE, role, election_id: Some(1), role_config };
    bed.control.stream_request(client, StreamRequest::Arbitration(claim)).unwrap();
    client
}

fn write(bed: &mut Bed, name: &str, atomicity: Atomicity, updates: Vec<Update>) -> Vec<Code> {
    let role = role(name);
    let election_id = if name.is_empty() { Some(ELECTION) } else { Some(1) };
    let request = WriteRequest { device_id: DEVICE, role, election_id, updates, atomicity };
    let results = bed.control.write(&request).unwrap();
    results.iter().map(|r| r.as_ref().err().map_or(Code::Ok, |e| e.code)).collect()
}

fn insert_route(net: u8) -> Update {
    Update { kind: Insert, entity: Some(Entity::Table(route([net, 0, 0, 0], 8, 1))) }
}

fn count() -> Update {
    let counter_id = id(ObjectKind::Counter, "ingress.count");
    let data = Some(CounterData { byte_count: 1, packet_count: 1 });
    Update { kind: Modify, entity: Some(Entity::Counter(CounterEntry { counter_id, index: Some(0), data })) }
}

fn group() -> Update {
    Update { kind: Insert, entity: Some(Entity::MulticastGroup(MulticastGroup { group_id: 1, ..Default::default() })) }
}

#[test]
fn a_role_writes_what_its_configuration_names() {
    let mut bed = Bed::new();
    let routes = table("ingress.ipv4_lpm");
    join(&mut bed, "routing", config(&[routes], &[]));
    let all = || vec![insert_route(10), count(), group()];
    let denied = Code::PermissionDenied;
    assert_eq!(write(&mut bed, "routing", Atomicity::ContinueOnError, all()), [Code::Ok, denied, denied]);
    let updates = vec![insert_route(11), count()];
    assert_eq!(write(&mut bed, "routing", Atomicity::RollbackOnError, updates), [Code::Aborted, denied]);
    assert_eq!(bed.read_tables(TableEntry { table_id: routes, ..Default::default() }).len(), 1);
    let request = SetConfigRequest {
        device_id: DEVICE,
        role: role("routing"),
        election_id: Some(1),
        action: ConfigAction::VerifyAndCommit,
        config: Some(ForwardingConfig { device_config: b"router".to_vec(), ..Default::default() }),
    };
    assert_refused(bed.control.set_config(request), denied, "may not change the program");
    // The default role may do all that.
    assert_eq!(
        write(&mut bed, "", Atomicity::ContinueOnError, vec![insert_route(12), count(), group()]),
        [Code::Ok; 3]
    );
}

#[test]
fn what_a_role_has_for_itself_is_closed_to_others() {
    let mut bed = Bed::new();
    let routes = table("ingress.ipv4_lpm");
    let counter = id(ObjectKind::Counter, "ingress.count");
    join(&mut bed, "routing", config(&[], &[routes]));
    join(&mut bed, "counting", config(&[counter, routes], &[]));
    let updates = || vec![insert_route(10), count()];
    assert_eq!(write(&mut bed, "counting", Atomicity::ContinueOnError, updates()), [Code::PermissionDenied, Code::Ok]);
    assert_eq!(write(&mut bed, "routing", Atomicity::ContinueOnError, updates()), [Code::Ok, Code::PermissionDenied]);
}

#[test]
fn reads_as_a_role_find_what_is_in_its_scope() {
    let mut bed = Bed::new();
    join(&mut bed, "counting", config(&[id(ObjectKind::Counter, "ingress.count")], &[]));
    write(&mut bed, "", Atomicity::ContinueOnError, vec![insert_route(10), count(), group()]);
    let queries = [
        Some(Entity::Table(TableEntry::default())),
        Some(Entity::Counter(CounterEntry::default())),
        Some(Entity::MulticastGroup(Default::default())),
    ];
    let (found, results) = bed.control.read_as(DEVICE, &role("counting"), &queries).unwrap();
    assert!(results.iter().all(Result::is_ok));
    assert!(found.len() == 4 && found.iter().all(|e| matches!(e, Entity::Counter(_))), "{found:?}");
    let (found, _) = bed.control.read_as(DEVICE, &Role::default(), &queries).unwrap();
    // A route, the three entries of the program, four cells, a group.
    assert_eq!(found.len(), 9);
}

#[test]
fn packets_go_to_and_come_from_roles_that_may() {
    let mut bed = Bed::new();
    let from_two = RoleConfig {
        packets_in: Packets::With(vec![(1, vec![0, 2])]),
        packets_out: Packets::With(vec![(1, vec![3])]),
        ..config(&[], &[])
    };
    let choosy = join(&mut bed, "choosy", from_two);
    let deaf = join(&mut bed, "deaf", config(&[], &[]));
    let frame = |port: u8| vec![0, port << 7, b'x'];
    let receivers = |bed: &mut Bed, port| -> Vec<ClientId> {
        let mut frame = frame(0);
        frame[..2].copy_from_slice(&(u16::from(port) << 7).to_be_bytes());
        bed.control.packet_in(DEVICE, &frame).into_iter().map(|(client, _)| client).collect()
    };
    let port: u8 = 2;
    assert_eq!(receivers(&mut bed, port), [bed.primary, choosy]);
    assert_eq!(receivers(&mut bed, 1), [bed.primary]);
    let mut send = |client, port: u8| {
        let packet = Packet { payload: vec![1], metadata: vec![(1, vec![port]), (2, vec![0])] };
        bed.control.stream_request(client, StreamRequest::PacketOut(packet)).unwrap()
    };
    assert_eq!(send(choosy, 3), []);
    for (client, port) in [(choosy, 2), (deaf, 3)] {
        let events = send(client, port);
        let [(_, StreamEvent::Error(error))] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(error.error.code, Code::PermissionDenied);
    }
}

#[test]
fn configurations_are_checked_remembered_and_told() {
    let mut bed = Bed::new();
    let client = bed.control.connect();
    let claim = |name: &str, id, role_config| {
        let (role, election_id) = (role(name), Some(id));
        StreamRequest::Arbitration(ArbitrationRequest { device_id: DEVICE, role, election_id, role_config })
    };
    let unknown = GivenConfig::Unknown("of no known type".to_string());
    let refused = bed.control.stream_request(client, claim("a", 1, Some(unknown)));
    assert_refused(refused.map(drop), Code::InvalidArgument, "of no known type");
    let known = GivenConfig::Known(config(&[7], &[]));
    let refused = bed.control.stream_request(client, claim("", 99, Some(known.clone())));
    assert_refused(refused.map(drop), Code::InvalidArgument, "default role");
    let told = |events: Vec<(ClientId, StreamEvent)>| -> Vec<bool> {
        let has = |event: &StreamEvent| matches!(event, StreamEvent::Arbitration(u) if u.role_config.is_some());
        events.iter().map(|(_, event)| has(event)).collect()
    };
    assert_eq!(told(bed.control.stream_request(client, claim("a", 5, Some(known.clone()))).unwrap()), [true]);
    // A backup's configuration does not count, a later primary's does.
    let other = bed.control.connect();
    assert_eq!(told(bed.control.stream_request(other, claim("a", 4, None)).unwrap()), [true]);
    assert_eq!(told(bed.control.stream_request(other, claim("a", 6, None)).unwrap()), [false, false]);
}
