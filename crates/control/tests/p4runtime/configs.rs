//! "SetForwardingPipelineConfig RPC", "GetForwardingPipelineConfig RPC".

use super::*;
use ConfigAction::*;
use UpdateKind::{Insert, Modify};
use control::control::Losses;
use control::forwarding::Claim;

fn routes(bed: &mut Bed) -> Vec<TableEntry> {
    bed.read_tables(TableEntry { table_id: table("ingress.ipv4_lpm"), ..Default::default() })
}

#[test]
fn only_the_primary_sets_a_config() {
    let mut bed = Bed::without_program();
    let request = |device_id, election_id| SetConfigRequest {
        device_id,
        role: Role::default(),
        election_id,
        action: VerifyAndCommit,
        config: Some(ForwardingConfig { device_config: b"router".to_vec(), ..Default::default() }),
    };
    assert_refused(bed.control.set_config(request(7, Some(ELECTION))), Code::NotFound, "no device 7");
    assert_refused(bed.control.set_config(request(DEVICE, Some(9))), Code::PermissionDenied, "election id");
    bed.control.set_config(request(DEVICE, Some(ELECTION))).unwrap();
}

#[test]
fn a_config_must_be_there_and_compile() {
    let mut bed = Bed::without_program();
    assert_refused(bed.set_config(Unspecified, Some("router")), Code::InvalidArgument, "action is missing");
    for action in [Verify, VerifyAndSave, VerifyAndCommit, ReconcileAndCommit] {
        assert_refused(bed.set_config(action, None), Code::InvalidArgument, "config is missing");
        assert_refused(bed.set_config(action, Some("nonsense")), Code::InvalidArgument, "`nonsense` is no program");
    }
    assert!(bed.control.config(DEVICE).unwrap().is_none());
}

#[test]
fn platform_properties_that_cannot_be_met_are_refused() {
    use p4info::model::PlatformProperties;
    let mut bed = Bed::without_program();
    let mut set = |platform| {
        bed.control.set_config(SetConfigRequest {
            device_id: DEVICE,
            role: Role::default(),
            election_id: Some(ELECTION),
            action: VerifyAndCommit,
            config: Some(ForwardingConfig {
                device_config: b"router".to_vec(),
                platform: Some(platform),
                ..Default::default()
            }),
        })
    };
    let too_many = PlatformProperties { multicast_group_table_size: 1 << 16, ..Default::default() };
    assert_refused(
        set(too_many),
        Code::InvalidArgument,
        "`multicast_group_table_size` is 65536; this switch has 65535",
    );
    let too_many = PlatformProperties { multicast_group_table_max_replicas_per_entry: 4097, ..Default::default() };
    assert_refused(set(too_many), Code::InvalidArgument, "per_entry` is 4097; this switch has 4096");
    set(PlatformProperties {
        multicast_group_table_size: 512,
        multicast_group_table_total_replicas: 3968,
        multicast_group_table_max_replicas_per_entry: 128,
    })
    .unwrap();
}

#[test]
fn verifying_changes_nothing() {
    let mut bed = Bed::without_program();
    bed.set_config(Verify, Some("router")).unwrap();
    assert!(bed.control.config(DEVICE).unwrap().is_none());
    assert!(bed.switch.running.lock().unwrap().is_none());
}

#[test]
fn a_config_is_read_back_with_its_cookie() {
    let mut bed = Bed::new();
    let view = bed.control.config(DEVICE).unwrap().unwrap();
    assert_eq!((view.config.device_config.as_slice(), view.config.cookie), (&b"router"[..], Some(42)));
    assert_eq!(*view.p4info, fixture::program("router").unwrap().0);
    assert_refused(bed.control.config(9), Code::NotFound, "no device 9");
}

#[test]
fn committing_clears_what_was_written() {
    let mut bed = Bed::new();
    bed.write(Insert, Entity::Table(route([10, 0, 0, 0], 8, 1))).unwrap();
    bed.set_config(VerifyAndCommit, Some("router")).unwrap();
    assert_eq!(routes(&mut bed), []);
}

#[test]
fn a_refused_config_leaves_the_old_one_running() {
    let mut bed = Bed::new();
    bed.write(Insert, Entity::Table(route([10, 0, 0, 0], 8, 1))).unwrap();
    assert_refused(bed.set_config(VerifyAndCommit, Some("nonsense")), Code::InvalidArgument, "nonsense");
    assert_eq!(routes(&mut bed).len(), 1);
}

#[test]
fn a_saved_config_takes_writes_and_runs_when_committed() {
    let mut bed = Bed::new();
    assert_refused(bed.set_config(Commit, None), Code::NotFound, "VERIFY_AND_SAVE");
    bed.write(Insert, Entity::Table(route([10, 0, 0, 0], 8, 1))).unwrap();
    let running = bed.switch.state();
    bed.set_config(VerifyAndSave, Some("router smaller")).unwrap();
    // Requests are about the saved config, packets still see the old one.
    assert_eq!(routes(&mut bed), []);
    let acl = Entity::Table(TableEntry { table_id: table("ingress.acl"), ..Default::default() });
    assert_refused(bed.read(acl), Code::NotFound, "no table");
    bed.write(Insert, Entity::Table(route([11, 0, 0, 0], 8, 2))).unwrap();
    let copies = vec![Replica { port: ReplicaPort::Port(vec![1]), ..Default::default() }];
    let group = Entity::MulticastGroup(MulticastGroup { group_id: 5, replicas: copies, metadata: vec![] });
    bed.write(Insert, group).unwrap();
    assert!(Arc::ptr_eq(&running, &bed.switch.state()));
    assert!(bed.switch.replication().group(5).is_none());

    assert_refused(bed.set_config(Commit, Some("router")), Code::InvalidArgument, "takes no config");
    bed.set_config(Commit, None).unwrap();
    assert!(!Arc::ptr_eq(&running, &bed.switch.state()));
    assert!(bed.switch.replication().group(5).is_some());
    assert_eq!(routes(&mut bed), [route([11, 0, 0, 0], 8, 2)]);
    assert_refused(bed.set_config(Commit, None), Code::NotFound, "VERIFY_AND_SAVE");
}

#[test]
fn a_p4info_that_is_not_the_programs_is_refused() {
    let mut bed = Bed::without_program();
    let mut set = |kind, id, name: &str, fields: Vec<(u32, u32)>| {
        let claims = vec![Claim { kind, id, name: name.into(), fields }];
        let config = ForwardingConfig { device_config: b"router".to_vec(), claims, ..Default::default() };
        bed.control.set_config(SetConfigRequest {
            device_id: DEVICE,
            role: Role::default(),
            election_id: Some(ELECTION),
            action: VerifyAndCommit,
            config: Some(config),
        })
    };
    let lpm = table("ingress.ipv4_lpm");
    set(ObjectKind::Table, lpm, "ingress.ipv4_lpm", vec![(1, 32)]).unwrap();
    let invalid = Code::InvalidArgument;
    assert_refused(set(ObjectKind::Table, lpm, "ingress.gone", vec![]), invalid, "none of this name");
    assert_refused(set(ObjectKind::Table, lpm + 1, "ingress.ipv4_lpm", vec![(1, 32)]), invalid, "the id");
    assert_refused(set(ObjectKind::Table, lpm, "ingress.ipv4_lpm", vec![(1, 16)]), invalid, "fields");
}

/// All that was written.
fn everything(bed: &mut Bed) -> Vec<Entity> {
    let asked = TableEntry { counter_data: Some(Default::default()), ..Default::default() };
    let queries = [
        Entity::Table(asked),
        Entity::Table(TableEntry { is_default_action: true, ..Default::default() }),
        Entity::Member(Default::default()),
        Entity::Group(Default::default()),
        Entity::Counter(Default::default()),
        Entity::Register(Default::default()),
        Entity::MulticastGroup(Default::default()),
        Entity::Digest(Default::default()),
    ];
    let (found, results) = bed.control.read(DEVICE, &queries.map(Some)).unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    found
}

#[test]
fn reconciling_keeps_everything_that_has_a_place() {
    let mut bed = Bed::new();
    let entry = TableEntry {
        metadata: vec![4],
        counter_data: Some(CounterData { byte_count: 70, packet_count: 1 }),
        ..route([10, 0, 0, 0], 8, 1)
    };
    bed.write(Insert, Entity::Table(entry)).unwrap();
    let default = TableEntry {
        table_id: table("ingress.keyless"),
        is_default_action: true,
        action: Some(TableAction::Action(forward(2))),
        ..Default::default()
    };
    bed.write(Modify, Entity::Table(default)).unwrap();
    let selector = id(ObjectKind::ActionProfile, "ingress.selector");
    bed.write(Insert, Entity::Member(Member { action_profile_id: selector, member_id: 1, action: Some(forward(3)) }))
        .unwrap();
    let member = GroupMember { member_id: 1, weight: 2, watch: Watch::Unset };
    bed.write(
        Insert,
        Entity::Group(Group { action_profile_id: selector, group_id: 1, members: vec![member], max_size: 6 }),
    )
    .unwrap();
    let ecmp = TableEntry {
        table_id: table("ingress.ecmp"),
        matches: vec![FieldMatch { field_id: 1, value: MatchValue::Exact(vec![1]) }],
        action: Some(TableAction::Group(1)),
        ..Default::default()
    };
    bed.write(Insert, Entity::Table(ecmp)).unwrap();
    let counter_id = id(ObjectKind::Counter, "ingress.count");
    let cell = CounterEntry { counter_id, index: Some(1), data: Some(CounterData { byte_count: 5, packet_count: 5 }) };
    bed.write(Modify, Entity::Counter(cell)).unwrap();
    let register_id = id(ObjectKind::Register, "ingress.state");
    let cell = RegisterEntry { register_id, index: Some(3), data: Some(P4Data::Bitstring(vec![9])) };
    bed.write(Modify, Entity::Register(cell)).unwrap();
    let copies = vec![Replica { port: ReplicaPort::Port(vec![1]), ..Default::default() }];
    let group = Entity::MulticastGroup(MulticastGroup { group_id: 5, replicas: copies, metadata: vec![] });
    bed.write(Insert, group).unwrap();
    let digest_id = id(ObjectKind::Digest, "learn");
    let digest = DigestEntry { digest_id, config: Some(DigestConfig { max_list_size: 9, ..Default::default() }) };
    bed.write(Insert, Entity::Digest(digest)).unwrap();

    let before = everything(&mut bed);
    let old = bed.switch.state();
    bed.set_config(ReconcileAndCommit, Some("router")).unwrap();
    assert!(!Arc::ptr_eq(&old, &bed.switch.state()));
    let after = everything(&mut bed);
    assert_eq!(after, before);
    // A program without the group's table still has a place for all of it; one entry more and it has not.
    bed.set_config(ReconcileAndCommit, Some("router smaller")).unwrap();
}

#[test]
fn reconciling_refuses_what_has_no_place_and_keeps_the_old_program() {
    let mut bed = Bed::new();
    let entry = TableEntry {
        table_id: table("ingress.acl"),
        matches: vec![FieldMatch { field_id: 4, value: MatchValue::Exact(vec![1]) }],
        action: Some(TableAction::Action(forward(1))),
        priority: 1,
        ..Default::default()
    };
    bed.write(Insert, Entity::Table(entry.clone())).unwrap();
    let old = bed.switch.state();
    let refused = bed.set_config(ReconcileAndCommit, Some("router smaller"));
    assert_refused(refused, Code::InvalidArgument, "the new program has no table `ingress.acl`");
    assert!(Arc::ptr_eq(&old, &bed.switch.state()));
    assert_eq!(bed.read_tables(TableEntry { table_id: entry.table_id, ..Default::default() }), [entry]);
}

#[test]
fn a_program_that_was_prepared_to_take_over_another_one_is_refused_when_that_one_is_gone() {
    let mut bed = Bed::new();
    let config = |source: &str| ForwardingConfig { device_config: source.into(), ..Default::default() };
    let prepared = bed.control.prepare(DEVICE, config("router"), true).unwrap().run().unwrap();
    bed.control.load(DEVICE, config("router smaller")).unwrap();
    let refused = bed.control.replace_prepared(DEVICE, prepared, Losses::Refused);
    assert_refused(refused, Code::Aborted, "changed by another request");
}

#[test]
fn who_loses_its_election_while_its_program_is_compiled_does_not_set_it() {
    let mut bed = Bed::new();
    let request = SetConfigRequest {
        device_id: DEVICE,
        role: Role::default(),
        election_id: Some(ELECTION),
        action: ConfigAction::VerifyAndCommit,
        config: Some(ForwardingConfig { device_config: "router".into(), ..Default::default() }),
    };
    let prepared = bed.control.prepare_config(&request).unwrap().unwrap().run().unwrap();
    let other = bed.control.connect();
    bed.control.stream_request(other, claim(Some(ELECTION + 1))).unwrap();
    let refused = bed.control.set_config_prepared(request, Some(prepared));
    assert_refused(refused, Code::PermissionDenied, "election id");
}
