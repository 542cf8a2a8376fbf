//! "PacketReplicationEngineEntry".

use super::*;
use UpdateKind::{Delete, Insert, Modify};
use datapath::replication as engine;

fn replica(port: &[u8], instance: u32) -> Replica {
    Replica { port: ReplicaPort::Port(port.to_vec()), instance, backups: vec![] }
}

fn group(group_id: u32, replicas: Vec<Replica>) -> Entity {
    Entity::MulticastGroup(MulticastGroup { group_id, replicas, metadata: vec![3] })
}

fn session(session_id: u32, replicas: Vec<Replica>) -> CloneSession {
    CloneSession { session_id, replicas, class_of_service: 2, packet_length_bytes: 64 }
}

#[test]
fn multicast_groups_reach_the_switch_and_are_read_back() {
    let mut bed = Bed::new();
    let written = group(5, vec![replica(&[1], 0), replica(&[2], 1)]);
    bed.write(Insert, written.clone()).unwrap();
    let at_switch = |bed: &Bed| bed.switch.replication().group(5).map(|g| g.to_vec());
    let copies = vec![engine::Replica { port: 1, instance: 0 }, engine::Replica { port: 2, instance: 1 }];
    assert_eq!(at_switch(&bed), Some(copies));
    assert_eq!(bed.read(Entity::MulticastGroup(Default::default())).unwrap(), [written]);
    assert_refused(bed.write(Insert, group(5, vec![])), Code::AlreadyExists, "multicast group 5");
    bed.write(Modify, group(5, vec![replica(&[0, 3], 0)])).unwrap();
    assert_eq!(bed.read(group(5, vec![])).unwrap(), [group(5, vec![replica(&[3], 0)])]);
    bed.write(Delete, group(5, vec![])).unwrap();
    assert_eq!(at_switch(&bed), None);
    assert_refused(bed.write(Delete, group(5, vec![])), Code::NotFound, "multicast group 5");
    assert_refused(bed.write(Modify, group(5, vec![])), Code::NotFound, "multicast group 5");
}

#[test]
fn replicas_are_checked() {
    let mut bed = Bed::new();
    let mut refuse = |entity, code, says: &str| assert_refused(bed.write(Insert, entity), code, says);
    let invalid = Code::InvalidArgument;
    refuse(group(0, vec![]), invalid, "from 1");
    refuse(group(1 << 16, vec![]), invalid, "from 1");
    refuse(group(1, vec![replica(&[9], 0)]), invalid, "no port 9; there is `1`, `2` or `3`");
    refuse(group(1, vec![replica(&[], 0)]), invalid, "empty");
    refuse(group(1, vec![Replica::default()]), invalid, "port is missing");
    refuse(group(1, vec![replica(&[1], 1 << 16)]), invalid, "instance");
    refuse(group(1, vec![replica(&[1], 1), replica(&[0, 1], 1)]), invalid, "given twice");
    let with = |port: u8, instance| Replica {
        backups: vec![BackupReplica { port: vec![port], instance }],
        ..replica(&[1], 1)
    };
    refuse(group(1, vec![with(1, 2)]), invalid, "its own backup");
    refuse(group(1, vec![with(9, 2)]), invalid, "no port 9");
    refuse(group(1, vec![with(2, 1 << 16)]), invalid, "instance");
    refuse(group(1, vec![with(2, 5), replica(&[2], 5)]), invalid, "given twice");
}

#[test]
fn backups_take_over_while_ports_are_down() {
    let mut bed = Bed::new();
    let backup = |port: u8, instance| BackupReplica { port: vec![0, port], instance };
    let written = Replica { backups: vec![backup(2, 7), backup(3, 8)], ..replica(&[1], 0) };
    bed.write(Insert, group(5, vec![written.clone(), replica(&[1], 1)])).unwrap();
    let shortest = |port: u8, instance| BackupReplica { port: vec![port], instance };
    let read = Replica { backups: vec![shortest(2, 7), shortest(3, 8)], ..written };
    assert_eq!(bed.read(group(0, vec![])).unwrap(), [group(5, vec![read.clone(), replica(&[1], 1)])]);
    let mut copies = |down: &[u32]| {
        *bed.switch.down.lock().unwrap() = down.to_vec();
        bed.control.links_changed(DEVICE);
        let group = bed.switch.replication().group(5).unwrap();
        group.iter().map(|r| (r.port, r.instance)).collect::<Vec<_>>()
    };
    // The second replica has no backup and stays where it is.
    assert_eq!(copies(&[]), [(1, 0), (1, 1)]);
    assert_eq!(copies(&[1]), [(2, 7), (1, 1)]);
    assert_eq!(copies(&[1, 2]), [(3, 8), (1, 1)]);
    assert_eq!(copies(&[1, 2, 3]), [(1, 1)]);
    assert_eq!(copies(&[2, 3]), [(1, 0), (1, 1)]);
    // What is written later looks at the links, too.
    *bed.switch.down.lock().unwrap() = vec![1];
    bed.write(Insert, group(6, vec![read])).unwrap();
    assert_eq!(bed.switch.replication().group(6).unwrap()[0].port, 2);
}

#[test]
fn clone_sessions_reach_the_switch_and_know_the_controller() {
    let mut bed = Bed::new();
    // The protocol's number for the controller is the switch's port for it.
    let written = session(100, vec![replica(&[0xff, 0xff, 0xff, 0xfd], 1)]);
    bed.write(Insert, Entity::CloneSession(written.clone())).unwrap();
    let at_switch = bed.switch.replication().session(100).unwrap();
    let replicas = vec![engine::Replica { port: fixture::CPU, instance: 1 }];
    assert_eq!(*at_switch, engine::CloneSession { replicas, class_of_service: 2, packet_length_bytes: 64 });
    assert_eq!(bed.read(Entity::CloneSession(Default::default())).unwrap(), [Entity::CloneSession(written)]);
    let negative = CloneSession { packet_length_bytes: -1, ..session(7, vec![]) };
    assert_refused(bed.write(Insert, Entity::CloneSession(negative)), Code::InvalidArgument, "negative");
    bed.write(Delete, Entity::CloneSession(session(100, vec![]))).unwrap();
    assert!(bed.switch.replication().session(100).is_none());
}

#[test]
fn a_new_program_starts_without_groups() {
    let mut bed = Bed::new();
    bed.write(Insert, group(5, vec![replica(&[1], 0)])).unwrap();
    bed.set_config(ConfigAction::VerifyAndCommit, Some("router")).unwrap();
    assert!(bed.switch.replication().group(5).is_none());
    assert_eq!(bed.read(Entity::MulticastGroup(Default::default())).unwrap(), []);
}
