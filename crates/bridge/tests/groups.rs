//! Group mods: a table of cases.

mod common;

use common::{bridge, by, flow_mod, flows};
use openflow::message::{FlowCommand, GROUP_ALL, GROUP_MAX, GroupCommand, GroupKind, GroupMod, Selection, bucket};
use openflow::{Action, Bucket, ErrorKind, Instructions, Match, Version};

use GroupCommand::{Add, AddOrModify, Delete, InsertBucket, Modify, RemoveBucket};

fn to(id: u32, actions: Vec<Action>) -> Bucket {
    Bucket { id, weight: 0, watch_port: None, watch_group: None, actions }
}

fn request(command: GroupCommand, group: u32, kind: GroupKind, buckets: Vec<Bucket>) -> GroupMod {
    GroupMod { command, group, kind, buckets, selection: Selection::default() }
}

#[test]
fn group_mods_and_their_errors() {
    use GroupKind::{All, FastFailover, Indirect, Select};
    let (bridge, _) = bridge();
    let through = |group| vec![to(0, vec![Action::Group(group)])];
    let watching = |group| vec![Bucket { watch_group: Some(group), ..to(0, Vec::new()) }];
    let weighted = vec![Bucket { weight: 3, ..to(0, Vec::new()) }];
    let watching_port = vec![Bucket { watch_port: Some(1), ..to(0, Vec::new()) }];
    let none = Vec::new;
    // Each sees what those before it have made.
    let cases: Vec<(GroupMod, Result<(), ErrorKind>)> = vec![
        (request(Add, 1, All, vec![to(0, none()), to(1, none())]), Ok(())),
        (request(Add, 1, All, Vec::new()), Err(ErrorKind::GmfcGroupExists)),
        (request(Add, GROUP_MAX + 1, All, Vec::new()), Err(ErrorKind::GmfcInvalidGroup)),
        (request(Add, 2, All, vec![to(0, none()), to(0, none())]), Err(ErrorKind::GmfcBucketExists)),
        (request(Add, 2, All, vec![to(bucket::MAX + 1, none())]), Err(ErrorKind::GmfcBadBucket)),
        (request(Add, 2, Indirect, Vec::new()), Err(ErrorKind::GmfcInvalidGroup)),
        (request(Add, 2, All, weighted.clone()), Err(ErrorKind::GmfcInvalidGroup)),
        (request(Add, 2, FastFailover, vec![to(0, none())]), Err(ErrorKind::GmfcInvalidGroup)),
        (request(Add, 2, FastFailover, watching(9)), Err(ErrorKind::GmfcBadWatch)),
        (request(Add, 2, All, watching(1)), Err(ErrorKind::GmfcWatchUnsupported)),
        (request(Add, 2, Indirect, watching_port.clone()), Err(ErrorKind::GmfcWatchUnsupported)),
        (request(Add, 2, All, through(9)), Err(ErrorKind::BacBadOutGroup)),
        (request(Add, 2, All, through(2)), Err(ErrorKind::GmfcLoop)),
        (request(Add, 2, Select, weighted), Ok(())),
        (request(Modify, 2, All, through(1)), Ok(())),
        (request(Add, 3, FastFailover, watching(2)), Ok(())),
        (request(Modify, 1, All, through(3)), Err(ErrorKind::GmfcLoop)),
        (request(Delete, 1, All, Vec::new()), Err(ErrorKind::GmfcChainedGroup)),
        (request(Modify, 4, All, Vec::new()), Err(ErrorKind::GmfcUnknownGroup)),
        (request(AddOrModify, 4, All, Vec::new()), Ok(())),
        (request(InsertBucket(bucket::FIRST), 1, All, vec![to(5, none())]), Ok(())),
        (request(InsertBucket(5), 1, All, vec![to(6, none())]), Ok(())),
        (request(InsertBucket(bucket::LAST), 1, All, vec![to(7, none())]), Ok(())),
        (request(InsertBucket(bucket::LAST), 1, All, vec![to(6, none())]), Err(ErrorKind::GmfcBucketExists)),
        (request(InsertBucket(99), 1, All, vec![to(8, none())]), Err(ErrorKind::GmfcUnknownBucket)),
        (request(RemoveBucket(99), 1, All, Vec::new()), Err(ErrorKind::GmfcUnknownBucket)),
        (request(RemoveBucket(bucket::LAST), 1, All, Vec::new()), Ok(())),
        (request(RemoveBucket(0), 1, All, Vec::new()), Ok(())),
    ];
    for (i, (request, expected)) in cases.into_iter().enumerate() {
        let result = bridge.group_mod(&request, &by(Version::V15)).map_err(|error| error.kind);
        assert_eq!(result, expected, "case {i}: {request:?}");
    }
    let ids: Vec<u32> = bridge.tables().group(1).unwrap().buckets.iter().map(|(bucket, _)| bucket.id).collect();
    assert_eq!(ids, [5, 6, 1]);
}

#[test]
fn flows_go_with_their_group() {
    let (bridge, _) = bridge();
    let by = by(Version::V13);
    for group in [1, 2] {
        bridge.group_mod(&request(Add, group, GroupKind::All, Vec::new()), &by).unwrap();
        let write = Instructions { write: vec![Action::Group(group)], ..Instructions::default() };
        bridge.flow_mod(&flow_mod(FlowCommand::Add, Match::any(), group as u16, write), &by).unwrap();
    }
    bridge.group_mod(&request(Delete, 1, GroupKind::All, Vec::new()), &by).unwrap();
    assert_eq!(flows(&bridge).iter().map(|flow| flow.1).collect::<Vec<_>>(), [2]);
    bridge.group_mod(&request(Delete, 9, GroupKind::All, Vec::new()), &by).unwrap();
    bridge.group_mod(&request(Delete, GROUP_ALL, GroupKind::All, Vec::new()), &by).unwrap();
    assert_eq!((flows(&bridge).len(), bridge.tables().groups().len()), (0, 0));
}

/// Not a test of speed: flow mods that name a flow must not search the others, and this would take hours if they did.
#[test]
fn a_hundred_thousand_flows() {
    let (bridge, host) = bridge();
    let by = by(Version::V13);
    let field = bridge.fields().named("eth_src").unwrap();
    let command = |command, i: u32| {
        let mut wanted = Match::any();
        wanted.add(field, u128::from(i), 0xffff_ffff_ffff);
        let mut request = flow_mod(command, wanted, 1, common::output(1));
        request.timeouts.idle = 10;
        bridge.flow_mod(&request, &by).unwrap();
    };
    (0..100_000).for_each(|i| command(FlowCommand::Add, i));
    (0..100_000).for_each(|i| command(FlowCommand::ModifyStrict, i));
    (0..50_000).for_each(|i| command(FlowCommand::DeleteStrict, i));
    assert_eq!(bridge.flow_count(), 50_000);
    host.now_us.store(10_000_000, std::sync::atomic::Ordering::Relaxed);
    bridge.tick(10_000_000);
    assert_eq!(bridge.flow_count(), 0);
}
