//! Persistent state of a bridge: flows, groups, meters, and the configuration of ports, tables and fragments.
//!
//! ```text
//! request ─▶ plan ─▶ encode ─▶ apply ─▶ Keeper::append     under the state lock, so that the order of changes is kept
//! barrier ─▶ Keeper::wait ─▶ reply
//! start   ─▶ Bridge::restore ─▶ Bridge::set_keeper
//! ```
//!
//! State is stored as records. A record's value is the OpenFlow message that recreates the object, in the newest
//! version that can express it, with its times beside it. Keys name fields by their OXM numbers, so they do not
//! change when a program declares more fields. Results of traffic are not stored: counters, idle times, the MAC
//! table, timeouts shortened by `fin_timeout`.
//!
//! **Invariants.** The changes of one request are stored atomically. A change that cannot be encoded is refused
//! before it is applied. After the keeper has failed, controllers cannot change anything. The switch itself still
//! does (timeouts, learned flows, ports), and all of that is stored when the keeper recovers.
//!
//! Tests: `tests/kept.rs`; with a directory and `kill -9`, `tests/py/test_openflow_state.py`.

use crate::bridge::Bridge;
use crate::change::Change;
use crate::flow::{Flow, Group, Meter};
use crate::flow_mod::{NO_BUFFER, Origin};
use crate::ports::config;
use crate::references::each_action;
use crate::tables::TableSettings;
use openflow::action::port;
use openflow::message::{
    FlowCommand, FlowMod, Framed, GROUP_ANY, GroupCommand, GroupMod, MeterCommand, MeterMod, PortMod, Request,
    SwitchConfig, TableFeatures,
};
use openflow::wire::{self, FLOW_NXM, Formats};
use openflow::{Action, Error, ErrorKind, Fields, Match, Message, Version};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The first byte of a key. Records are restored in the order of their keys. Kinds marked "not the bridge's" belong
/// to its owner.
pub mod kind {
    /// How fragments are treated.
    pub const FRAGMENTS: u8 = 1;
    /// A table's configuration.
    pub const TABLE: u8 = 2;
    /// A table's name.
    pub const TABLE_NAME: u8 = 3;
    /// A port's configuration.
    pub const PORT: u8 = 4;
    /// A program that flows run (not the bridge's).
    pub const PROGRAM: u8 = 5;
    /// An entry of such a program's map (not the bridge's).
    pub const MAP_ENTRY: u8 = 6;
    /// A meter.
    pub const METER: u8 = 7;
    /// A group.
    pub const GROUP: u8 = 8;
    /// A flow that another one temporarily replaces (not the bridge's).
    pub const REPLACED: u8 = 9;
    /// A flow.
    pub const FLOW: u8 = 10;
}

/// Message formats of the records.
fn formats() -> Formats {
    Formats { flow: FLOW_NXM, flow_mod_table_id: true, ..Formats::default() }
}

/// The value of a record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// The OpenFlow message that recreates the object.
    pub message: Vec<u8>,
    /// When it was added, in microseconds of the switch's clock; negative if that was before the switch started.
    pub created_us: i64,
    /// When it was last modified, likewise.
    pub modified_us: i64,
    /// A flow's [`openflow::message::flow_flag`] bits and importance, which the message's version may not have.
    pub flags: u16,
    /// See `flags`.
    pub importance: u16,
}

/// A change to one record of the persistent state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptChange {
    /// The record's key: see [`kind`].
    pub key: Vec<u8>,
    /// The record's new value; `None` if it is removed.
    pub after: Option<Kept>,
}

/// Storage for the records. Its errors are for the operator.
pub trait Keeper: Send + Sync {
    /// Appends changes, which are stored atomically, in the order of the calls. Does not wait for a disk. Workers
    /// call it, too.
    fn append(&self, changes: Vec<KeptChange>);
    /// Whether so many changes wait for the disk that packets must not cause more and controllers have to wait.
    fn is_behind(&self) -> bool;
    /// Waits until all appended changes are stored.
    ///
    /// # Errors
    /// If they cannot be stored; the message says why.
    fn wait(&self) -> Result<(), String>;
    /// Why nothing is stored any more, after a failure.
    fn failure(&self) -> Option<String>;
    /// Starts again after a failure, with these records, which are in no order.
    ///
    /// # Errors
    /// If this fails, too; the message says why.
    fn renew(&self, all: &mut dyn Iterator<Item = (Vec<u8>, Kept)>) -> Result<(), String>;
}

/// Summary of a restore.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// Number of flows.
    pub flows: usize,
    /// Number of groups.
    pub groups: usize,
    /// Number of meters.
    pub meters: usize,
    /// Stored objects that could not be restored, each with the reason.
    pub refused: Vec<String>,
}

fn refused(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::BrcEperm, why)
}

/// Encodes a message in the newest version in which it reads back unchanged, as `is_same` decides.
fn encode(message: Message, is_same: &dyn Fn(&Message) -> bool, fields: &Fields) -> Result<Vec<u8>, Error> {
    let formats = formats();
    let mut framed = Framed { version: Version::V15, xid: 0, message };
    let mut bytes = Vec::new();
    for version in Version::ALL.into_iter().rev() {
        framed.version = version;
        bytes.clear();
        let is_written = wire::write(&framed, fields, &formats, &mut bytes).is_ok();
        if is_written && wire::read_agreed(&bytes, fields, &formats).is_ok_and(|read| is_same(&read.message)) {
            return Ok(bytes);
        }
    }
    Err(refused(format!("no version of OpenFlow can say it, so it cannot be kept: {:?}", framed.message)))
}

/// Encodes a flow mod. Its flags and importance are to be stored beside the message.
///
/// # Errors
/// If no version of OpenFlow can express it.
pub fn encode_flow_mod(flow: &FlowMod, fields: &Fields) -> Result<Vec<u8>, Error> {
    let is_same = |read: &Message| {
        let Message::FlowMod(read) = read else { return false };
        let (flags, importance) = (flow.flags, flow.importance);
        *flow == FlowMod { flags, importance, ..read.clone() }
    };
    encode(Message::FlowMod(flow.clone()), &is_same, fields)
}

/// Decodes a flow mod, and adds its flags and importance.
///
/// # Errors
/// If the message is not a flow mod, or has unknown fields.
pub fn decode_flow_mod(kept: &Kept, fields: &Fields) -> Result<FlowMod, String> {
    match wire::read_agreed(&kept.message, fields, &formats()) {
        Ok(Framed { message: Message::FlowMod(flow), .. }) => {
            Ok(FlowMod { flags: kept.flags, importance: kept.importance, ..flow })
        }
        Ok(_) => Err("a message that is no flow mod".to_string()),
        Err(error) => Err(error.to_string()),
    }
}

fn flow_mod(flow: &Flow) -> FlowMod {
    FlowMod {
        command: FlowCommand::Add,
        table: flow.table,
        matching: flow.matching.clone(),
        priority: flow.priority,
        cookie: flow.cookie,
        cookie_mask: 0,
        timeouts: flow.timeouts,
        buffer: NO_BUFFER,
        out_port: port::ANY,
        out_group: GROUP_ANY,
        flags: flow.flags,
        importance: flow.importance,
        instructions: flow.instructions.clone(),
    }
}

/// Appends a length byte and a number without leading zero bytes.
fn put_number(key: &mut Vec<u8>, value: u128) {
    let bytes = value.to_be_bytes();
    let used = &bytes[value.leading_zeros() as usize / 8..];
    key.push(used.len() as u8);
    key.extend_from_slice(used);
}

fn flow_key(table: u8, matching: &Match, priority: u16, fields: &Fields) -> Vec<u8> {
    let mut key = vec![kind::FLOW, table];
    key.extend(priority.to_be_bytes());
    let mut terms: Vec<Vec<u8>> = Vec::with_capacity(matching.terms().len());
    for term in matching.terms() {
        let field = fields.get(term.field);
        let mut bytes = Vec::with_capacity(16);
        match field.numbers.first() {
            Some(number) => {
                bytes.extend(number.class.to_be_bytes());
                bytes.extend(number.experimenter.to_be_bytes());
                bytes.push(number.field);
            }
            // OXM class 0xfffe is not assigned (OpenFlow 1.5.1, table 7-1: reserved).
            None => {
                bytes.extend([0xff, 0xfe]);
                put_number(&mut bytes, field.name.len() as u128);
                bytes.extend_from_slice(field.name.as_bytes());
            }
        }
        put_number(&mut bytes, term.value);
        put_number(&mut bytes, if term.mask == field.full() { 0 } else { term.mask });
        terms.push(bytes);
    }
    // Sorted by number: the order of the fields depends on the program.
    terms.sort_unstable();
    terms.iter().for_each(|term| key.extend_from_slice(term));
    key
}

fn key_of(kind: u8, id: u32) -> Vec<u8> {
    let mut key = vec![kind];
    key.extend(id.to_be_bytes());
    key
}

fn kept_flow(flow: &Flow, fields: &Fields) -> Result<Kept, Error> {
    let message = encode_flow_mod(&flow_mod(flow), fields)?;
    let (created_us, modified_us) = (flow.created_us, flow.modified_us);
    Ok(Kept { message, created_us, modified_us, flags: flow.flags, importance: flow.importance })
}

fn kept(message: Message, fields: &Fields) -> Result<Kept, Error> {
    let same = message.clone();
    Ok(Kept { message: encode(message, &|read| *read == same, fields)?, ..Kept::default() })
}

fn kept_group(group: &Group, fields: &Fields) -> Result<Kept, Error> {
    let buckets = group.buckets.iter().map(|(bucket, _)| bucket.clone()).collect();
    let (group, kind, selection) = (group.id, group.kind, group.selection.clone());
    kept(Message::GroupMod(GroupMod { command: GroupCommand::Add, group, kind, buckets, selection }), fields)
}

fn kept_meter(meter: &Meter, fields: &Fields) -> Result<Kept, Error> {
    let bands = meter.bands.iter().map(|band| band.band).collect();
    let (meter, flags) = (meter.id, meter.flags);
    kept(Message::MeterMod(MeterMod { command: MeterCommand::Add, flags, meter, bands }), fields)
}

fn kept_table(table: u8, settings: &TableSettings, fields: &Fields) -> Result<Option<Kept>, Error> {
    let TableSettings { config, vacancy, .. } = *settings;
    if (config, vacancy) == (0, (0, 0)) {
        return Ok(None);
    }
    kept(Message::TableMod { table, config, vacancy: Some(vacancy) }, fields).map(Some)
}

fn kept_name(table: u8, name: &str, fields: &Fields) -> Result<Option<Kept>, Error> {
    if name.is_empty() {
        return Ok(None);
    }
    let features = TableFeatures { table, name: name.to_string(), ..TableFeatures::default() };
    kept(Message::Multipart(Request::TableFeatures(vec![features])), fields).map(Some)
}

/// The record of a port. `bits` are the configuration bits that controllers and operators have set.
fn kept_port(port: u32, bits: u32, fields: &Fields) -> Result<Option<Kept>, Error> {
    if bits == 0 {
        return Ok(None);
    }
    let request = PortMod { port, address: [0; 6], config: bits, mask: bits, advertise: 0 };
    kept(Message::PortMod(request), fields).map(Some)
}

fn kept_fragments(flags: u16, fields: &Fields) -> Result<Option<Kept>, Error> {
    if flags == 0 {
        return Ok(None);
    }
    kept(Message::SetConfig(SwitchConfig { flags, miss_send_len: 0 }), fields).map(Some)
}

/// Appends the changes of records that a change of the bridge causes.
fn of_change(change: &Change, fields: &Fields, all: &mut Vec<KeptChange>) -> Result<(), Error> {
    let (key, after) = match change {
        Change::Flow(change) => {
            let Some(flow) = change.new.as_ref().or(change.old.as_ref()) else { return Ok(()) };
            let key = flow_key(flow.table, &flow.matching, flow.priority, fields);
            (key, change.new.as_ref().map(|flow| kept_flow(flow, fields)).transpose()?)
        }
        Change::Group { id, new, .. } => {
            (key_of(kind::GROUP, *id), new.as_ref().map(|group| kept_group(group, fields)).transpose()?)
        }
        Change::Meter { id, new, .. } => {
            (key_of(kind::METER, *id), new.as_ref().map(|meter| kept_meter(meter, fields)).transpose()?)
        }
        Change::Port { number, old, new } => {
            let bits =
                |port: &Option<openflow::message::Port>| port.as_ref().map_or(0, |port| port.config & config::ALL);
            if bits(old) == bits(new) {
                return Ok(());
            }
            (key_of(kind::PORT, *number), kept_port(*number, bits(new), fields)?)
        }
        Change::Settings { table, old, new } => {
            if old.name != new.name {
                let key = vec![kind::TABLE_NAME, *table];
                all.push(KeptChange { key, after: kept_name(*table, &new.name, fields)? });
            }
            if (old.config, old.vacancy) == (new.config, new.vacancy) {
                return Ok(());
            }
            (vec![kind::TABLE, *table], kept_table(*table, new, fields)?)
        }
    };
    all.push(KeptChange { key, after });
    Ok(())
}

impl Bridge {
    /// Stores all changes from now on. If `has_all` is false, the present state is stored first
    /// ([`Keeper::renew`]).
    ///
    /// # Errors
    /// If the present state cannot be stored.
    pub fn set_keeper(&self, keeper: Arc<dyn Keeper>, has_all: bool) -> Result<(), String> {
        let state = self.state();
        if !has_all {
            self.renew(&*keeper, state.fragments)?;
        }
        // Fails only if a keeper has been set already.
        let _ = self.keeper.set(keeper);
        Ok(())
    }

    /// The changes of records that these changes of the bridge cause; none without a keeper.
    pub(crate) fn to_keep(&self, changes: &[Change]) -> Result<Vec<KeptChange>, Error> {
        if self.keeper.get().is_none() {
            return Ok(Vec::new());
        }
        let fields = self.fields();
        let mut all = Vec::with_capacity(changes.len());
        for change in changes {
            of_change(change, fields, &mut all)?;
        }
        Ok(all)
    }

    /// Stores the removal of flows, which can always be encoded.
    pub(crate) fn keep_removals(&self, changes: &[Change]) {
        if let Ok(changes) = self.to_keep(changes) {
            self.keep(changes);
        }
    }

    /// Stores changes. The caller holds the state lock, which preserves their order.
    pub(crate) fn keep(&self, changes: Vec<KeptChange>) {
        if let Some(keeper) = self.keeper.get().filter(|_| !changes.is_empty()) {
            keeper.append(changes);
        }
    }

    /// Stores how fragments are treated. The caller holds the state lock.
    pub(crate) fn keep_fragments(&self, flags: u16) {
        if let Ok(after) = kept_fragments(flags, self.fields()) {
            self.keep(vec![KeptChange { key: vec![kind::FRAGMENTS], after }]);
        }
    }

    /// Whether the disk lags behind.
    pub(crate) fn is_keeper_behind(&self) -> bool {
        self.keeper.get().is_some_and(|keeper| keeper.is_behind())
    }

    /// Whether the bridge has a keeper.
    pub(crate) fn is_kept(&self) -> bool {
        self.keeper.get().is_some()
    }

    /// Waits until all changes so far are durable. To be called before any of them is acknowledged.
    ///
    /// # Errors
    /// `OFPBRC_EPERM` if they cannot be stored.
    pub fn wait_kept(&self) -> Result<(), Error> {
        let Some(keeper) = self.keeper.get() else { return Ok(()) };
        keeper.wait().map_err(|why| refused(format!("what was changed is not kept: {why}")))
    }

    /// Checks that changes can be stored. After a failure, tries to store the whole state again.
    ///
    /// # Errors
    /// `OFPBRC_EPERM` if that fails; changes are to be refused then.
    pub fn check_keeper(&self) -> Result<(), Error> {
        let Some(keeper) = self.keeper.get() else { return Ok(()) };
        if keeper.failure().is_none() {
            return Ok(());
        }
        let state = self.state();
        let Some(failure) = keeper.failure() else { return Ok(()) };
        self.renew(&**keeper, state.fragments)
            .map_err(|_| refused(format!("changes are refused, they could not be kept: {failure}")))
    }

    /// Replaces all records by the present state. The caller holds the state lock.
    fn renew(&self, keeper: &dyn Keeper, fragments: u16) -> Result<(), String> {
        let fields = self.fields();
        let said = |key: Vec<u8>, kept: Result<Option<Kept>, Error>| match kept {
            Ok(kept) => kept.map(|kept| (key, kept)),
            Err(error) => {
                tracing::error!("{error}");
                None
            }
        };
        let absent = self.absent_ports();
        let tables = self.tables();
        let fragments = std::iter::once((vec![kind::FRAGMENTS], kept_fragments(fragments, fields)));
        let settings = tables
            .iter()
            .map(|(number, table)| (vec![kind::TABLE, number], kept_table(number, &table.settings, fields)));
        let names = tables
            .iter()
            .map(|(number, table)| (vec![kind::TABLE_NAME, number], kept_name(number, &table.settings.name, fields)));
        let ports = tables.ports().iter().map(|port| (port.number, port.config & config::ALL)).chain(absent);
        let ports = ports.map(|(number, bits)| (key_of(kind::PORT, number), kept_port(number, bits, fields)));
        let meters = tables.meters().map(|meter| (key_of(kind::METER, meter.id), kept_meter(meter, fields).map(Some)));
        let groups = tables.groups().map(|group| (key_of(kind::GROUP, group.id), kept_group(group, fields).map(Some)));
        let flows = tables.iter().flat_map(|(_, table)| table.flows.iter()).map(|flow| {
            (flow_key(flow.table, &flow.matching, flow.priority, fields), kept_flow(flow, fields).map(Some))
        });
        let all = fragments.chain(settings).chain(names).chain(ports).chain(meters).chain(groups).chain(flows);
        keeper.renew(&mut all.filter_map(|(key, kept)| said(key, kept)))
    }

    /// Restores the state from records in the order of their keys. To be called once, before anything else changes
    /// the bridge.
    pub fn restore<'a>(&self, all: impl Iterator<Item = &'a Kept>) -> Restored {
        let mut restored = Restored::default();
        let mut groups = BTreeMap::new();
        for kept in all {
            let message = match wire::read_agreed(&kept.message, self.fields(), &formats()) {
                Ok(framed) => framed.message,
                Err(error) => {
                    restored.refused.push(error.to_string());
                    continue;
                }
            };
            match message {
                Message::GroupMod(group) => _ = groups.insert(group.group, group),
                Message::FlowMod(flow) => {
                    self.restore_groups(&mut groups, &mut restored);
                    let flow = FlowMod { flags: kept.flags, importance: kept.importance, ..flow };
                    match self.restore_flow(&flow, kept) {
                        Ok(()) => restored.flows += 1,
                        Err(error) => {
                            let matching = crate::trace::matching(self.layout(), &flow.matching);
                            let (table, priority) = (flow.table, flow.priority);
                            let flow = format!("flow of table {table}, priority {priority}, {matching}");
                            restored.refused.push(format!("{flow}: {}", error.text));
                        }
                    }
                }
                Message::MeterMod(meter) => match self.meter_mod(&meter, &Origin::SWITCH) {
                    Ok(()) => restored.meters += 1,
                    Err(error) => restored.refused.push(format!("meter {}: {}", meter.meter, error.text)),
                },
                Message::TableMod { table, config, vacancy } => {
                    let origin = Origin { version: Version::V15, ..Origin::SWITCH };
                    if let Err(error) = self.table_mod(table, config, vacancy, &origin) {
                        restored.refused.push(format!("table {table}: {}", error.text));
                    }
                }
                Message::Multipart(Request::TableFeatures(features)) => {
                    if let Err(error) = self.set_table_features(&features, Version::V13) {
                        restored.refused.push(format!("a table's name: {}", error.text));
                    }
                }
                Message::PortMod(port) => self.expect_port(port.port, port.config),
                Message::SetConfig(config) => self.set_fragments(config.flags),
                other => restored.refused.push(format!("what is no state of a bridge: {other:?}")),
            }
        }
        self.restore_groups(&mut groups, &mut restored);
        restored
    }

    fn restore_flow(&self, flow: &FlowMod, kept: &Kept) -> Result<(), Error> {
        // The wall clock may have been set back meanwhile.
        let now_us = self.host().now_us().cast_signed();
        self.change(&Origin::SWITCH, |plan| {
            let mut changes = plan.flow_mod(flow, &Origin::SWITCH)?;
            for new in changes.iter_mut().filter_map(|change| Arc::get_mut(change.new.as_mut()?)) {
                new.created_us = kept.created_us.min(now_us);
                new.modified_us = kept.modified_us.min(now_us);
            }
            Ok(changes.into_iter().map(Change::Flow).collect())
        })
    }

    /// Adds groups in an order in which each follows those that it refers to.
    fn restore_groups(&self, groups: &mut BTreeMap<u32, GroupMod>, restored: &mut Restored) {
        let mut path = Vec::new();
        let mut on_path = HashSet::new();
        while let Some(top) = path.last().copied().or_else(|| groups.first_key_value().map(|(id, _)| *id)) {
            if path.is_empty() {
                path.push(top);
                on_path.insert(top);
            }
            let next = groups.get(&top).and_then(|group| {
                let is_next = |id: &u32| groups.contains_key(id) && !on_path.contains(id);
                goes_through(group).into_iter().find(is_next)
            });
            if let Some(next) = next {
                path.push(next);
                on_path.insert(next);
                continue;
            }
            path.pop();
            on_path.remove(&top);
            let Some(group) = groups.remove(&top) else { continue };
            match self.group_mod(&group, &Origin::SWITCH) {
                Ok(()) => restored.groups += 1,
                Err(error) => restored.refused.push(format!("group {top}: {}", error.text)),
            }
        }
    }
}

/// The groups that a group's buckets refer to by action or watch.
fn goes_through(group: &GroupMod) -> Vec<u32> {
    let mut ids: Vec<u32> = group.buckets.iter().filter_map(|bucket| bucket.watch_group).collect();
    for bucket in &group.buckets {
        each_action(&bucket.actions, &mut |action| {
            ids.extend(match action {
                Action::Group(id) => Some(*id),
                _ => None,
            })
        });
    }
    ids
}
