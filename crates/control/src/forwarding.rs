//! A forwarding config: a program together with all the state that controllers wrote into it.
//!
//! [`Forwarding`] is the type that the entity files (`tables`, `profiles`, `arrays`, `replication`, `value_sets`,
//! `digests`) extend. The data plane's state lives behind [`PipelineState`]; what only controllers need (metadata of
//! entries, one-shot action sets as sent, digest settings) lives here. A config that is saved but not committed is a
//! `Forwarding` with state of its own, so writes to it need no replay: to commit it is to make the switch run it.

use crate::digests::Digests;
use crate::entity::{Entity, Update, UpdateKind};
use crate::error::{Error, Result};
use crate::idle::IdleTimers;
use crate::reads::OpenReads;
use crate::replication::REPLICAS_MAX;
use crate::replication::ReplicationEntries;
use crate::schema::Schema;
use crate::tables::EntryExtras;
use abi::state::{Phase, PipelineState};
use base::entry::KeyMatch;
use base::ids::TableId;
use datapath::Keep;
use datapath::replication::ID_LIMIT;
use datapath::replication::Replication;
use p4info::model::PlatformProperties;
use p4info::{ObjectKind, P4Info};
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// A program with its state, ready to run.
#[derive(Clone)]
pub struct Built {
    /// The program as controllers see it.
    pub p4info: Arc<P4Info>,
    /// The program whose ids the state uses.
    pub program: Arc<ir::Program>,
    /// The state of its tables and externs.
    pub state: Arc<dyn PipelineState>,
    /// Its multicast groups and clone sessions.
    pub replication: Arc<Replication>,
    /// Whether it was built on the shared parts of an earlier program's state.
    pub shares: bool,
    /// Data of the target, for use in [`Target::activate`].
    pub handle: Arc<dyn Any + Send + Sync>,
}

/// A compiled program without state.
#[derive(Clone)]
pub struct Compiled {
    /// The program as controllers see it.
    pub p4info: Arc<P4Info>,
    /// The program that runs.
    pub program: Arc<ir::Program>,
}

/// Why a program could not be compiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The program is wrong; the diagnostics are for its author.
    Program(String),
    /// Compiling it exceeds a limit of the switch.
    Limit(String),
    /// It cannot be compiled at present.
    Unavailable(String),
    /// A bug in the compiler.
    Internal(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal::Program(why)
    }
}

impl From<&str> for Refusal {
    fn from(why: &str) -> Refusal {
        Refusal::Program(why.to_string())
    }
}

impl Refusal {
    /// The reason, in words.
    pub fn message(&self) -> &str {
        let (Refusal::Program(why) | Refusal::Limit(why) | Refusal::Unavailable(why) | Refusal::Internal(why)) = self;
        why
    }

    /// The error for a controller: INVALID_ARGUMENT for a wrong program, RESOURCE_EXHAUSTED for one that exceeds a
    /// limit.
    pub fn error(self) -> Error {
        match self {
            Refusal::Program(why) => Error::invalid(format!("the program is refused:\n{}", beginning(why))),
            Refusal::Limit(why) => Error::exhausted(format!("the program is refused: {why}")),
            Refusal::Unavailable(why) => Error::unavailable(why),
            Refusal::Internal(why) => Error::internal(why),
        }
    }
}

/// Limit on the bytes of diagnostics in an answer: a status travels in an HTTP/2 header, which clients limit to some
/// kilobytes.
const MESSAGES_BYTES_MAX: usize = 3 << 10;

/// The first diagnostics, cut off at the end of a line.
fn beginning(messages: String) -> String {
    if messages.len() <= MESSAGES_BYTES_MAX {
        return messages;
    }
    let cut = messages.floor_char_boundary(MESSAGES_BYTES_MAX);
    let end = messages[..cut].rfind('\n').unwrap_or(cut);
    format!("{}\n... and more: `sluice check` prints all", &messages[..end])
}

/// A switch, as the control plane uses it.
pub trait Target: Send + Sync {
    /// Compiles a program. It may take long, so it is called without the control plane's lock.
    fn compile(&self, source: &[u8]) -> std::result::Result<Compiled, Refusal>;
    /// As [`Target::compile`], for a program that the operator has named; diagnostics and profiles may use the name. It
    /// is empty for a controller's program.
    fn compile_named(&self, source: &[u8], name: &str) -> std::result::Result<Compiled, Refusal> {
        let _ = name;
        self.compile(source)
    }
    /// Describes what processes the device's packets if that is not a P4 program; the error for requests that need one.
    fn other_owner(&self) -> Option<String> {
        None
    }
    /// Builds a program's state without running it. Like `compile`, it is called without the lock. If possible, it
    /// shares the parts of the earlier program's state that are to be kept, without changing them ([`Built::shares`]).
    fn build(&self, compiled: &Compiled, earlier: Option<(&Built, &Keep)>) -> std::result::Result<Built, Refusal>;
    /// Runs the program: packets go through it from now on.
    fn activate(&self, built: &Built) -> std::result::Result<(), String>;
    /// Runs the program in place of an earlier one with which it shares state. Also copies what packets last counted
    /// and wrote in the parts that are not shared.
    fn replace(&self, _earlier: &Built, built: &Built, _keep: &Keep) -> std::result::Result<(), String> {
        self.activate(built)
    }
    /// Stops packet processing until the result is dropped: packets before that see none of the writes made meanwhile,
    /// packets after it see all of them. A switch without packets has nothing to stop.
    fn hold(&self) -> std::result::Result<Box<dyn Any>, String> {
        Ok(Box::new(()))
    }
    /// Whether a port's link is up.
    fn port_is_up(&self, _port: u32) -> bool {
        true
    }
    /// Numbers of all ports.
    fn ports(&self) -> Vec<u32>;
    /// The highest number of ports that entities may name before they exist; `None` if ports must exist.
    fn ports_to_come(&self) -> Option<u32> {
        None
    }
    /// The port that represents the controller.
    fn cpu_port(&self) -> Option<u32>;
    /// Length in bytes of the longest frame that can be sent through the program.
    fn frame_bytes_max(&self) -> usize {
        usize::MAX
    }
    /// Adds counts that flow caches still hold to the program's counters. Must be called before counters are read or
    /// set.
    fn settle_counts(&self, _built: &Built) {}
    /// Sends a frame through the running program as if received on `port`.
    fn inject(&self, port: u32, frame: Vec<u8>) -> std::result::Result<(), String>;
}

/// One object of the P4Info that a controller sent with a program, to be compared with the program's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Ids and bit widths of its fields or parameters.
    pub fields: Vec<(u32, u32)>,
}

/// A forwarding pipeline config as a controller sent it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForwardingConfig {
    /// The program's text (`p4_device_config`).
    pub device_config: Vec<u8>,
    /// The P4Info message as received, to be returned on reading; empty if none was sent.
    pub p4info: Vec<u8>,
    /// The objects of that message.
    pub claims: Vec<Claim>,
    /// The platform properties that message requires.
    pub platform: Option<PlatformProperties>,
    /// The controller's cookie.
    pub cookie: Option<u64>,
    /// The program's name, from the operator, the P4Info or the text; may be empty.
    pub name: String,
}

/// Refuses a config whose P4Info does not match its program: its ids would denote other objects.
pub(crate) fn check_claims(info: &P4Info, claims: &[Claim]) -> Result<()> {
    let objects = objects(info);
    for claim in claims {
        let noun = claim.kind.noun();
        let name = &claim.name;
        let Some(object) = objects.iter().find(|o| o.kind == claim.kind && o.name == *name) else {
            return Err(Error::invalid(format!("the P4Info has a {noun} `{name}`, the program has none of this name")));
        };
        if object.id != claim.id {
            let (given, expected) = (claim.id, object.id);
            return Err(Error::invalid(format!(
                "the P4Info gives the {noun} `{name}` the id {given:#010x}, the program {expected:#010x}"
            )));
        }
        let mut fields = claim.fields.clone();
        fields.sort_unstable();
        let mut expected = object.fields.clone();
        expected.sort_unstable();
        if fields != expected {
            return Err(Error::invalid(format!(
                "the P4Info gives the {noun} `{name}` fields (id, width) {fields:?}, the program {expected:?}"
            )));
        }
    }
    Ok(())
}

/// Refuses platform properties that a P4Info requires (`pkg_info.platform_properties`) and this switch does not
/// provide. A property of 0 requires nothing.
pub(crate) fn check_platform(asked: Option<&PlatformProperties>) -> Result<()> {
    let Some(asked) = asked else { return Ok(()) };
    let groups = i64::from(ID_LIMIT - 1);
    let replicas = REPLICAS_MAX as i64;
    for (name, wanted, limit) in [
        ("multicast_group_table_size", asked.multicast_group_table_size, groups),
        ("multicast_group_table_total_replicas", asked.multicast_group_table_total_replicas, groups * replicas),
        ("multicast_group_table_max_replicas_per_entry", asked.multicast_group_table_max_replicas_per_entry, replicas),
    ] {
        if wanted < 0 || i64::from(wanted) > limit {
            return Err(Error::invalid(format!("the platform property `{name}` is {wanted}; this switch has {limit}")));
        }
    }
    Ok(())
}

/// The objects of a P4Info, in the form of claims.
fn objects(info: &P4Info) -> Vec<Claim> {
    let mut objects = Vec::new();
    let mut add = |kind, preamble: &p4info::Preamble, fields: Vec<(u32, u32)>| {
        objects.push(Claim { kind, id: preamble.id, name: preamble.name.clone(), fields });
    };
    let matches = |fields: &[p4info::MatchField]| fields.iter().map(|f| (f.id, f.bitwidth)).collect::<Vec<_>>();
    let params = |params: &[p4info::Param]| params.iter().map(|p| (p.id, p.bitwidth)).collect::<Vec<_>>();
    info.tables.iter().for_each(|o| add(ObjectKind::Table, &o.preamble, matches(&o.match_fields)));
    info.actions.iter().for_each(|o| add(ObjectKind::Action, &o.preamble, params(&o.params)));
    info.value_sets.iter().for_each(|o| add(ObjectKind::ValueSet, &o.preamble, matches(&o.match_fields)));
    let headers = &info.controller_packet_metadata;
    headers.iter().for_each(|o| add(ObjectKind::ControllerHeader, &o.preamble, params(&o.metadata)));
    info.action_profiles.iter().for_each(|o| add(ObjectKind::ActionProfile, &o.preamble, vec![]));
    info.counters.iter().for_each(|o| add(ObjectKind::Counter, &o.preamble, vec![]));
    info.direct_counters.iter().for_each(|o| add(ObjectKind::DirectCounter, &o.preamble, vec![]));
    info.meters.iter().for_each(|o| add(ObjectKind::Meter, &o.preamble, vec![]));
    info.direct_meters.iter().for_each(|o| add(ObjectKind::DirectMeter, &o.preamble, vec![]));
    info.registers.iter().for_each(|o| add(ObjectKind::Register, &o.preamble, vec![]));
    info.digests.iter().for_each(|o| add(ObjectKind::Digest, &o.preamble, vec![]));
    objects
}

/// Identifies an entry of a table: its key and its priority.
pub(crate) type EntryKey = (Vec<KeyMatch>, i32);

/// A loaded program with its entities.
pub struct Forwarding {
    pub(crate) config: ForwardingConfig,
    pub(crate) built: Built,
    pub(crate) schema: Arc<Schema>,
    pub(crate) target: Arc<dyn Target>,
    pub(crate) extras: HashMap<TableId, HashMap<EntryKey, EntryExtras>>,
    /// Metadata of default entries.
    pub(crate) default_extras: HashMap<TableId, EntryExtras>,
    pub(crate) one_shots: crate::profiles::OneShotIds,
    pub(crate) replication: ReplicationEntries,
    pub(crate) digests: Digests,
    /// Packets run through it, and may be between the read and the write of a register.
    packets_update_registers: bool,
    /// While this exists, packet processing is stopped: a data-plane-atomic batch is being written.
    pub(crate) held: Weak<()>,
    /// When to check the entries with idle timeouts.
    pub(crate) timers: IdleTimers,
    /// Reads in progress.
    pub(crate) reads: OpenReads,
}

/// Guard: until it is dropped, changes of the state belong to a [`Phase`].
pub(crate) struct InPhase {
    state: Arc<dyn PipelineState>,
    before: Phase,
}

impl Drop for InPhase {
    fn drop(&mut self) {
        self.state.set_phase(self.before);
    }
}

impl Forwarding {
    pub(crate) fn new(
        target: Arc<dyn Target>,
        built: Built,
        config: ForwardingConfig,
        earlier: Option<&Forwarding>,
    ) -> Forwarding {
        let earlier = earlier.map(|f| &*f.schema);
        let schema = Arc::new(Schema::new(Arc::clone(&built.p4info), Arc::clone(&built.program), earlier));
        Forwarding {
            config,
            built,
            schema,
            target,
            extras: HashMap::new(),
            default_extras: HashMap::new(),
            one_shots: Default::default(),
            replication: Default::default(),
            digests: Default::default(),
            packets_update_registers: false,
            held: Weak::new(),
            timers: Default::default(),
            reads: Default::default(),
        }
    }

    /// The data plane's state.
    pub(crate) fn state(&self) -> &dyn PipelineState {
        &*self.built.state
    }

    /// Adds pending counts to the counters, so that all packets that left before this call are counted. Must be called
    /// before counters are read or set.
    pub(crate) fn settle_counts(&self) {
        self.target.settle_counts(&self.built);
    }

    /// Assigns all changes to a phase until the result is dropped. Within the undoing of a batch, that phase remains.
    pub(crate) fn begin_phase(&self, phase: Phase) -> InPhase {
        let state = Arc::clone(&self.built.state);
        let before = state.set_phase(phase);
        if (before, phase) == (Phase::Undo, Phase::Atomic) {
            // Undoing is not undone itself.
            state.set_phase(before);
        }
        InPhase { state, before }
    }

    /// Stops packet processing until the result is dropped, if a packet could be between reading and writing a
    /// register, so that its write does not overwrite ours (P4Runtime, "Atomicity of Individual `Write` and `Read`
    /// Operations": `@atomic`).
    pub(crate) fn between_packets(&self) -> Result<Option<Box<dyn Any>>> {
        if !self.packets_update_registers || self.held.strong_count() > 0 {
            return Ok(None);
        }
        let stopped = |why| Error::unavailable(format!("nothing was changed, the packets could not be stopped: {why}"));
        self.target.hold().map(Some).map_err(stopped)
    }

    /// Makes the switch run this config, in place of an earlier program if it shares that one's state.
    pub(crate) fn activate(&mut self, earlier: Option<(&Built, &Keep)>) -> Result<()> {
        let done = match earlier {
            Some((earlier, keep)) => self.target.replace(earlier, &self.built, keep),
            None => self.target.activate(&self.built),
        };
        done.map_err(|e| {
            Error::unavailable(format!("the switch cannot run it now, the previous program still runs: {e}"))
        })?;
        self.packets_update_registers = datapath::updates_registers(&self.schema.program);
        // Groups written before it ran were published for the link states of that time.
        self.follow_links();
        Ok(())
    }

    /// Applies one update.
    pub(crate) fn write(&mut self, update: &Update) -> Result<()> {
        let kind = update.kind;
        if kind == UpdateKind::Unspecified {
            return Err(Error::invalid("the update's type is missing: INSERT, MODIFY or DELETE"));
        }
        let entity = update.entity.as_ref().ok_or_else(|| Error::invalid("the update's entity is missing"))?;
        if !self.reads.is_empty() {
            self.remember(entity);
        }
        let sets_counts = match entity {
            Entity::Counter(_) | Entity::DirectCounter(_) => true,
            Entity::Table(entry) => entry.counter_data.is_some(),
            _ => false,
        };
        if sets_counts {
            self.settle_counts();
        }
        match entity {
            Entity::Table(entry) => self.write_table_entry(kind, entry),
            Entity::Member(member) => self.write_member(kind, member),
            Entity::Group(group) => self.write_group(kind, group),
            Entity::Counter(entry) => self.write_counter(kind, entry),
            Entity::DirectCounter(entry) => self.write_direct_counter(kind, entry),
            Entity::Meter(entry) => self.write_meter(kind, entry),
            Entity::DirectMeter(entry) => self.write_direct_meter(kind, entry),
            Entity::Register(entry) => self.write_register(kind, entry),
            Entity::MulticastGroup(group) => self.write_multicast_group(kind, group),
            Entity::CloneSession(session) => self.write_clone_session(kind, session),
            Entity::ValueSet(entry) => self.write_value_set(kind, entry),
            Entity::Digest(entry) => self.write_digest(kind, entry),
            Entity::Calculation(entry) => self.write_calculation(kind, entry),
            Entity::Extern { extern_type_id, extern_id } => Err(no_extern(*extern_type_id, *extern_id)),
        }
    }

    /// Appends the entities that a query selects to `into`.
    pub(crate) fn read(&self, entity: &Entity, into: &mut Vec<Entity>) -> Result<()> {
        match entity {
            Entity::Table(entry) => self.read_table_entries(entry, into),
            Entity::Member(member) => self.read_members(member, into),
            Entity::Group(group) => self.read_groups(group, into),
            Entity::Counter(entry) => self.read_counters(entry, into),
            Entity::DirectCounter(entry) => self.read_direct_counters(entry, into),
            Entity::Meter(entry) => self.read_meters(entry, into),
            Entity::DirectMeter(entry) => self.read_direct_meters(entry, into),
            Entity::Register(entry) => self.read_registers(entry, into),
            Entity::MulticastGroup(group) => self.read_multicast_groups(group, into),
            Entity::CloneSession(session) => self.read_clone_sessions(session, into),
            Entity::ValueSet(entry) => self.read_value_sets(entry, into),
            Entity::Digest(entry) => self.read_digests(entry, into),
            Entity::Calculation(entry) => self.read_calculations(entry, into),
            // No program has such an extern, so a read of all of them finds none.
            Entity::Extern { extern_type_id: 0, extern_id: 0 } => Ok(()),
            Entity::Extern { extern_type_id, extern_id } => Err(no_extern(*extern_type_id, *extern_id)),
        }
    }

    /// The updates that would undo an update, by restoring the entity as it is now. `None` if they are unknown.
    pub(crate) fn inverse(&self, update: &Update) -> Option<Vec<Update>> {
        let entity = update.entity.as_ref()?;
        let back = |kind, entity| vec![Update { kind, entity: Some(entity) }];
        match (update.kind, entity) {
            (UpdateKind::Insert, _) => Some(back(UpdateKind::Delete, entity.clone())),
            (UpdateKind::Delete | UpdateKind::Modify, _) => {
                let kind = if update.kind == UpdateKind::Delete { UpdateKind::Insert } else { UpdateKind::Modify };
                let now = self.as_it_is(entity)?;
                Some(now.into_iter().map(|entity| Update { kind, entity: Some(entity) }).collect())
            }
            (UpdateKind::Unspecified, _) => None,
        }
    }

    /// The entity that an update is about, with its direct resources, in a form that can be written. This is not a
    /// read: in a read, a key without fields selects all entries.
    pub(crate) fn as_it_is(&self, entity: &Entity) -> Option<Vec<Entity>> {
        let mut now = Vec::new();
        match entity {
            Entity::Table(entry) => now.push(Entity::Table(self.table_entry_to_write(entry)?)),
            Entity::DirectCounter(entry) => {
                let found = self.table_entry_to_write(entry.table_entry.as_ref()?)?;
                let data = found.counter_data;
                now.push(Entity::DirectCounter(crate::entity::DirectCounterEntry { data, ..entry.clone() }));
            }
            Entity::DirectMeter(entry) => {
                let found = self.table_entry_to_write(entry.table_entry.as_ref()?)?;
                let config = found.meter_config;
                now.push(Entity::DirectMeter(crate::entity::DirectMeterEntry { config, ..entry.clone() }));
            }
            other => self.read(other, &mut now).ok()?,
        }
        Some(now)
    }
}

/// The error for extern entries. They exist for externs without an entity of their own in the protocol (P4Runtime
/// specification, "ExternEntry"). All externs with state of the supported architectures have one, so no id is valid.
fn no_extern(extern_type_id: u32, extern_id: u32) -> Error {
    Error::not_found(format!(
        "the P4Info has no extern {extern_id:#010x} of type {extern_type_id:#x}: all externs of its architecture have entities of \
         their own (counters, meters, registers, action profiles, digests)"
    ))
}
