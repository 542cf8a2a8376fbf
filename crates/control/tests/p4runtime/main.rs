//! The control plane against the P4Runtime specification: a test per clause, named for what it says.
//!
//! `docs/` lists the clauses with these names. The switch is `fixture::FakeSwitch`: its state is the interpreter's, so
//! what is written can be looked at from the other side.

#[path = "../fixture/mod.rs"]
mod fixture;

mod arrays;
mod batches;
mod calculations;
mod configs;
mod constraints;
mod profiles;
mod reads;
mod replication;
mod roles;
mod streams;
mod tables;

use control::arbitration::{ArbitrationRequest, ClientId};
use control::control::{ConfigAction, SetConfigRequest, StreamRequest};
use control::entity::*;
use control::forwarding::ForwardingConfig;
use control::{Code, Control, Error};
use fixture::{FakeSwitch, extern_named, id, table_named};
use p4info::ObjectKind;
use std::sync::Arc;

const DEVICE: u64 = 1;
const ELECTION: ElectionId = 10;

/// A control plane with a primary client and the router running.
pub(crate) struct Bed {
    pub(crate) control: Control,
    pub(crate) switch: Arc<FakeSwitch>,
    pub(crate) primary: ClientId,
}

impl Bed {
    pub(crate) fn new() -> Bed {
        let mut bed = Bed::without_program();
        bed.set_config(ConfigAction::VerifyAndCommit, Some("router")).unwrap();
        bed
    }

    pub(crate) fn without_program() -> Bed {
        let switch = FakeSwitch::new();
        let mut control = Control::new();
        control.add_device(DEVICE, Arc::clone(&switch) as _);
        let primary = control.connect();
        control.stream_request(primary, claim(Some(ELECTION))).unwrap();
        Bed { control, switch, primary }
    }

    pub(crate) fn set_config(&mut self, action: ConfigAction, source: Option<&str>) -> Result<(), Error> {
        let config = |source: &str| ForwardingConfig {
            device_config: source.as_bytes().to_vec(),
            cookie: Some(42),
            ..Default::default()
        };
        self.control.set_config(SetConfigRequest {
            device_id: DEVICE,
            role: Role::default(),
            election_id: Some(ELECTION),
            action,
            config: source.map(config),
        })
    }

    /// One update.
    pub(crate) fn write(&mut self, kind: UpdateKind, entity: Entity) -> Result<(), Error> {
        let request = WriteRequest { updates: vec![Update { kind, entity: Some(entity) }], ..batch() };
        self.control.write(&request).expect("the batch is tried").remove(0)
    }

    /// What one entity selects.
    pub(crate) fn read(&mut self, entity: Entity) -> Result<Vec<Entity>, Error> {
        let (found, mut results) = self.control.read(DEVICE, &[Some(entity)]).expect("the batch is tried");
        results.remove(0).map(|()| found)
    }

    pub(crate) fn read_tables(&mut self, query: TableEntry) -> Vec<TableEntry> {
        let entry = |entity| match entity {
            Entity::Table(entry) => entry,
            other => panic!("{other:?} is no table entry"),
        };
        self.read(Entity::Table(query)).unwrap().into_iter().map(entry).collect()
    }
}

/// An empty batch of the primary.
pub(crate) fn batch() -> WriteRequest {
    WriteRequest { device_id: DEVICE, election_id: Some(ELECTION), ..Default::default() }
}

pub(crate) fn claim(election_id: Option<ElectionId>) -> StreamRequest {
    StreamRequest::Arbitration(ArbitrationRequest { device_id: DEVICE, election_id, ..Default::default() })
}

pub(crate) fn table(name: &str) -> u32 {
    id(ObjectKind::Table, name)
}

pub(crate) fn forward(port: u8) -> Action {
    let action_id = id(ObjectKind::Action, "ingress.forward");
    Action { action_id, params: vec![(1, vec![port]), (2, vec![0xaa, 0xbb])] }
}

/// A route of the `ipv4_lpm` table.
pub(crate) fn route(prefix: [u8; 4], prefix_len: i32, port: u8) -> TableEntry {
    let value = MatchValue::Lpm { value: prefix.to_vec(), prefix_len };
    TableEntry {
        table_id: table("ingress.ipv4_lpm"),
        matches: vec![FieldMatch { field_id: 1, value }],
        action: Some(TableAction::Action(forward(port))),
        ..Default::default()
    }
}

#[track_caller]
pub(crate) fn assert_refused<T: std::fmt::Debug>(result: Result<T, Error>, code: Code, says: &str) {
    let error = result.expect_err("a refusal");
    assert_eq!(error.code, code, "{}", error.message);
    assert!(error.message.contains(says), "`{}` does not say `{says}`", error.message);
}
