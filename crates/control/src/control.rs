//! The control plane: devices, clients, and what they may do, as one state machine.
//!
//! ```text
//!   grpc, CLI ──requests──▶ Control ──▶ Target (the switch)
//!             ◀──answers──         ◀──frames, digests── whoever polls the switch
//!             ◀──events to clients (returned, not sent)
//! ```
//!
//! No sockets, no threads, no clock: a request is a call, notifications are returned as [`Events`] for the caller to
//! deliver, time is an argument. Callers serialise their calls (one lock around it), which makes every batch of updates a
//! transaction with respect to other requests.

use crate::arbitration::{ArbitrationRequest, ArbitrationUpdate, ClientId, Notices, RoleInfo, Roles};
use crate::digests::DigestList;
use crate::entity::{Atomicity, ElectionId, Role, TableEntry, Update, WriteRequest};
use crate::error::{Error, Result, choices};
use crate::forwarding::{Forwarding, ForwardingConfig, Target};
use crate::idle::IdleTimers;
use crate::journal::Keeper;
use crate::packets::Packet;
use crate::preparation::{Preparation, Prepared};
use crate::reconcile::{self, Report};
use crate::roles::{RoleConfig, Scope};
use crate::schema::Schema;
use abi::state::{DigestMessage, Phase};
use p4info::P4Info;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The version of the P4Runtime API that is implemented.
pub const API_VERSION: &str = "1.5.0";
/// Updates per write. Memory of requests ends most batches sooner (`grpc::MEMORY_BYTES_MAX`).
pub const UPDATES_MAX: usize = 50_000;

/// Something for a client's stream.
#[derive(Clone, PartialEq, Debug)]
pub enum StreamEvent {
    /// Who is primary.
    Arbitration(ArbitrationUpdate),
    /// A packet of the data plane.
    PacketIn(Packet),
    /// Digest messages.
    Digest(DigestList),
    /// Entries that nobody hit for long.
    IdleTimeout(Vec<TableEntry>),
    /// Something in a message of the client was wrong.
    Error(StreamError),
}

/// A refused stream message.
#[derive(Clone, PartialEq, Debug)]
pub struct StreamError {
    /// Why.
    pub error: Error,
    /// Which message.
    pub about: StreamErrorAbout,
}

/// What a [`StreamError`] is about.
#[derive(Clone, PartialEq, Debug)]
pub enum StreamErrorAbout {
    /// A packet-out, as received.
    PacketOut(Packet),
    /// An acknowledgement: digest id and list id.
    DigestAck(u32, u64),
    /// Another message.
    Other,
}

/// Events in the order in which they go out.
pub type Events = Vec<(ClientId, StreamEvent)>;

/// A message of a client's stream.
#[derive(Clone, PartialEq, Debug)]
pub enum StreamRequest {
    /// A claim.
    Arbitration(ArbitrationRequest),
    /// A packet for the data plane.
    PacketOut(Packet),
    /// Digest id and list id.
    DigestAck(u32, u64),
    /// A message of an architecture, or nothing.
    Other,
}

/// What a config request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the protocol's names")]
pub enum ConfigAction {
    Unspecified,
    Verify,
    VerifyAndSave,
    VerifyAndCommit,
    Commit,
    ReconcileAndCommit,
}

/// What happens if something that was written has no place in a new program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Losses {
    /// The new program is refused.
    Refused,
    /// It is told.
    Accepted,
}

/// A request to change a device's program.
#[derive(Clone, PartialEq, Debug)]
pub struct SetConfigRequest {
    /// Which device.
    pub device_id: u64,
    /// The sender's role.
    pub role: Role,
    /// The sender's election id.
    pub election_id: Option<ElectionId>,
    /// What is asked.
    pub action: ConfigAction,
    /// The program.
    pub config: Option<ForwardingConfig>,
}

/// A device's program as read back.
#[derive(Clone, Debug)]
pub struct ConfigView {
    /// As it was set.
    pub config: ForwardingConfig,
    /// The program's own, for when none was set.
    pub p4info: Arc<P4Info>,
}

pub(crate) struct Device {
    pub(crate) target: Arc<dyn Target>,
    pub(crate) roles: Roles,
    pub(crate) running: Option<Forwarding>,
    pub(crate) saved: Option<Forwarding>,
    /// Keeps what is written, if anything does.
    pub(crate) keeper: Option<Keeper>,
}

impl Device {
    /// The config that reads and writes are about.
    pub(crate) fn current(&mut self) -> Result<&mut Forwarding> {
        if let (None, None, Some(what)) = (&self.running, &self.saved, self.target.other_owner()) {
            return Err(Error::precondition(what));
        }
        let none = || Error::precondition("the device has no forwarding pipeline config yet");
        self.saved.as_mut().or(self.running.as_mut()).ok_or_else(none)
    }
}

/// The control plane of all devices.
#[derive(Default)]
pub struct Control {
    pub(crate) devices: BTreeMap<u64, Device>,
    clients: BTreeMap<ClientId, Option<(u64, Role)>>,
    last_client: u64,
    pub(crate) last_read: u64,
}

impl Control {
    /// Without devices.
    pub fn new() -> Control {
        Control::default()
    }

    /// Adds a device, without a program.
    pub fn add_device(&mut self, device_id: u64, target: Arc<dyn Target>) {
        let device = Device { target, roles: Roles::default(), running: None, saved: None, keeper: None };
        self.devices.insert(device_id, device);
    }

    /// Removes a device with all that it was told; the clients of its streams, which the caller closes.
    pub fn remove_device(&mut self, device_id: u64) -> Result<Vec<ClientId>> {
        self.device(device_id)?;
        self.devices.remove(&device_id);
        let of = |seat: &Option<(u64, Role)>| seat.as_ref().is_some_and(|(id, _)| *id == device_id);
        let gone: Vec<ClientId> = self.clients.iter().filter(|(_, seat)| of(seat)).map(|(client, _)| *client).collect();
        gone.iter().for_each(|client| _ = self.clients.remove(client));
        Ok(gone)
    }

    pub(crate) fn device(&mut self, device_id: u64) -> Result<&mut Device> {
        let ids: Vec<String> = self.devices.keys().map(u64::to_string).collect();
        self.devices.get_mut(&device_id).ok_or_else(|| {
            let ids = choices(ids.iter().map(String::as_str));
            Error::not_found(format!("there is no device {device_id}; there is {ids}"))
        })
    }

    /// The ids of all devices.
    pub fn device_ids(&self) -> Vec<u64> {
        self.devices.keys().copied().collect()
    }
}

// Streams.
impl Control {
    /// A stream was opened.
    pub fn connect(&mut self) -> ClientId {
        self.last_client += 1;
        let client = ClientId(self.last_client);
        self.clients.insert(client, None);
        client
    }

    /// A stream is gone.
    pub fn disconnect(&mut self, client: ClientId) -> Events {
        let Some(Some((device_id, role))) = self.clients.remove(&client) else { return vec![] };
        let Some(device) = self.devices.get_mut(&device_id) else { return vec![] };
        arbitration_events(device.roles.leave(device_id, &role, client))
    }

    /// A message came in on a stream. `Err` ends the stream; the caller then calls [`Control::disconnect`].
    pub fn stream_request(&mut self, client: ClientId, request: StreamRequest) -> Result<Events> {
        match request {
            StreamRequest::Arbitration(request) => self.arbitrate(client, &request).map(arbitration_events),
            StreamRequest::PacketOut(packet) => {
                let done =
                    self.check_packet_out(client, &packet).and_then(|()| self.as_primary(client)?.packet_out(&packet));
                Ok(stream_error(client, done, || StreamErrorAbout::PacketOut(packet)))
            }
            StreamRequest::DigestAck(digest, list) => {
                let done = self.as_primary(client).and_then(|f| f.acknowledge_digest(digest, list));
                Ok(stream_error(client, done, || StreamErrorAbout::DigestAck(digest, list)))
            }
            StreamRequest::Other => {
                let error = Error::unimplemented("the stream takes arbitration updates, packets and digest acks only");
                Ok(stream_error(client, Err(error), || StreamErrorAbout::Other))
            }
        }
    }

    fn arbitrate(&mut self, client: ClientId, request: &ArbitrationRequest) -> Result<Notices> {
        match self.clients.get(&client).cloned().flatten() {
            None => {
                let notices = self.device(request.device_id)?.roles.arbitrate(client, request)?;
                self.clients.insert(client, Some((request.device_id, request.role.clone())));
                Ok(notices)
            }
            Some((device_id, _)) if device_id != request.device_id => {
                Err(Error::precondition(format!("this stream is for device {device_id}; open another one")))
            }
            Some((_, role)) if role != request.role => {
                Err(Error::precondition(format!("this stream is for {role}; open another one")))
            }
            Some((device_id, _)) => self.device(device_id)?.roles.arbitrate(client, request),
        }
    }

    /// Whether the client's role may send a packet.
    fn check_packet_out(&mut self, client: ClientId, packet: &Packet) -> Result<()> {
        let Some((device_id, role)) = self.clients.get(&client).cloned().flatten() else { return Ok(()) };
        match self.device(device_id)?.roles.config(&role) {
            Some(config) if !config.packets_out.contain(packet) => {
                Err(Error::denied(format!("{role} may not send this packet by its configuration")))
            }
            _ => Ok(()),
        }
    }

    /// The running config of a client's device, if the client is primary.
    fn as_primary(&mut self, client: ClientId) -> Result<&mut Forwarding> {
        let Some((device_id, role)) = self.clients.get(&client).cloned().flatten() else {
            return Err(Error::denied("the stream has not sent an arbitration update yet"));
        };
        let device = self.device(device_id)?;
        if !device.roles.is_primary(&role, client) {
            return Err(Error::denied(format!("only the primary of {role} may do this")));
        }
        device.running.as_mut().ok_or_else(|| Error::precondition("the device runs no program yet"))
    }
}

// Writes; reads are in `reads`.
impl Control {
    /// Whether who says so may write: what a request is refused for first, to be asked before it is looked at.
    pub fn check_writer(&mut self, device_id: u64, role: &Role, election_id: Option<ElectionId>) -> Result<()> {
        self.device(device_id)?.roles.check_primary(role, election_id)
    }

    /// Applies a batch. `Err` when nothing was tried; else one result per update.
    pub fn write(&mut self, request: &WriteRequest) -> Result<Vec<Result<()>>> {
        let device = self.device(request.device_id)?;
        device.roles.check_primary(&request.role, request.election_id)?;
        match device.keeper {
            Some(_) => self.write_kept(&Arc::new(request.clone())),
            None => self.apply(request),
        }
    }

    /// Applies a batch for an operator, who has the default role without a client: refused while a client is its primary; else as a
    /// client's write, journal included.
    pub fn write_as_operator(&mut self, request: &Arc<WriteRequest>) -> Result<Vec<Result<()>>> {
        self.device(request.device_id)?.roles.check_free()?;
        self.write_kept(request)
    }

    /// Applies a batch of a sender who may write.
    pub(crate) fn apply(&mut self, request: &WriteRequest) -> Result<Vec<Result<()>>> {
        let device = self.device(request.device_id)?;
        let scope = device.roles.scope(&request.role);
        let forwarding = device.current()?;
        if request.updates.len() > UPDATES_MAX {
            let message = format!("{} updates in one request, the limit is {UPDATES_MAX}", request.updates.len());
            return Err(Error::exhausted(message));
        }
        let write = |update: &Update| scope.check(update.entity.as_ref()).and_then(|()| forwarding.write(update));
        match request.atomicity {
            Atomicity::ContinueOnError => Ok(request.updates.iter().map(write).collect()),
            Atomicity::RollbackOnError => Ok(write_or_roll_back(forwarding, &scope, request)),
            // One update is atomic by itself.
            Atomicity::DataplaneAtomic if request.updates.len() <= 1 => Ok(request.updates.iter().map(write).collect()),
            Atomicity::DataplaneAtomic => {
                let target = Arc::clone(&forwarding.target);
                let stopped =
                    |why| Error::unavailable(format!("nothing was changed, the packets could not be stopped: {why}"));
                let _held = target.hold().map_err(stopped)?;
                forwarding.held = true;
                let results = write_or_roll_back(forwarding, &scope, request);
                forwarding.held = false;
                Ok(results)
            }
        }
    }

    /// Applies updates to the running program without a client, as the command line does at start; one result each.
    pub fn set_up(&mut self, device_id: u64, updates: &[Update]) -> Result<Vec<Result<()>>> {
        let none = || Error::precondition("the device runs no program yet");
        let forwarding = self.device(device_id)?.running.as_mut().ok_or_else(none)?;
        Ok(updates.iter().map(|update| forwarding.write(update)).collect())
    }

    /// Takes in what was set up beside the control plane, so that clients see it.
    pub fn adopt(&mut self, device_id: u64) -> Result<()> {
        self.device(device_id)?.running.iter_mut().for_each(Forwarding::adopt_replication);
        Ok(())
    }

    /// Ports' links went up or down: replicas with backups follow.
    pub fn links_changed(&mut self, device_id: u64) {
        if let Some(forwarding) = self.devices.get_mut(&device_id).and_then(|device| device.running.as_mut()) {
            forwarding.follow_links();
        }
    }

    /// The version of the API, for a device or (0) the server.
    pub fn capabilities(&mut self, device_id: u64) -> Result<&'static str> {
        if device_id != 0 {
            self.device(device_id)?;
        }
        Ok(API_VERSION)
    }
}

/// All updates or none: what was done is undone, last first, and its result says so.
fn write_or_roll_back(forwarding: &mut Forwarding, scope: &Scope, request: &WriteRequest) -> Vec<Result<()>> {
    let aborted = |why: &str| Err(Error::aborted(why));
    let mut undo = Vec::new();
    let _batch = forwarding.begin_phase(Phase::Atomic);
    for (at, update) in request.updates.iter().enumerate() {
        let inverse = forwarding.inverse(update);
        let done = scope.check(update.entity.as_ref()).and_then(|()| forwarding.write(update));
        let Err(error) = done else {
            undo.extend(inverse.into_iter().flatten());
            continue;
        };
        let _taken_back = forwarding.begin_phase(Phase::Undo);
        for update in undo.iter().rev() {
            if let Err(error) = forwarding.write(update) {
                let error = Error::internal(format!("the batch could not be rolled back: {error}"));
                return vec![Err(error); request.updates.len()];
            }
        }
        let mut results: Vec<Result<()>> =
            (0..request.updates.len()).map(|_| aborted("rolled back: another update of the batch failed")).collect();
        results[at] = Err(error);
        return results;
    }
    request.updates.iter().map(|_| Ok(())).collect()
}

// Forwarding pipeline configs.
impl Control {
    /// Checks, saves or starts a program, with all that takes long. Who must not keep others waiting does it in three steps
    /// (`preparation`).
    pub fn set_config(&mut self, request: SetConfigRequest) -> Result<()> {
        let prepared = self.prepare_config(&request)?.map(Preparation::run).transpose()?;
        self.set_config_prepared(request, prepared)
    }

    /// The last part of [`Control::set_config`].
    pub fn set_config_prepared(&mut self, request: SetConfigRequest, prepared: Option<Prepared>) -> Result<()> {
        self.may_set_config(&request)?;
        self.revive()?;
        self.device(request.device_id)?.set_config(request.action, request.config.is_some(), prepared)
    }

    pub(crate) fn may_set_config(&mut self, request: &SetConfigRequest) -> Result<&mut Device> {
        let device = self.device(request.device_id)?;
        device.roles.check_primary(&request.role, request.election_id)?;
        if device.roles.config(&request.role).is_some_and(|config| !config.sets_program) {
            let message = format!("{} may not change the program by its configuration", request.role);
            return Err(Error::denied(message));
        }
        Ok(device)
    }

    /// Loads a program without a client, as the command line does at start.
    pub fn load(&mut self, device_id: u64, config: ForwardingConfig) -> Result<()> {
        let prepared = self.prepare(device_id, config, false)?.run()?;
        self.load_prepared(device_id, prepared)
    }

    /// The last part of [`Control::load`].
    pub fn load_prepared(&mut self, device_id: u64, prepared: Prepared) -> Result<()> {
        self.device(device_id)?.set_config(ConfigAction::VerifyAndCommit, true, Some(prepared))
    }

    /// Replaces the running program without a client, with what was written into it; what became of that.
    pub fn replace(&mut self, device_id: u64, config: ForwardingConfig, losses: Losses) -> Result<Report> {
        let prepared = self.prepare(device_id, config, true)?.run()?;
        self.replace_prepared(device_id, prepared, losses)
    }

    /// The last part of [`Control::replace`].
    pub fn replace_prepared(&mut self, device_id: u64, prepared: Prepared, losses: Losses) -> Result<Report> {
        self.device(device_id)?.replace(prepared, losses)
    }

    /// Whether a client is primary in some role.
    pub fn has_primary(&mut self, device_id: u64) -> Result<bool> {
        Ok(self.device(device_id)?.roles.primaries().next().is_some())
    }

    /// The roles that clients have claimed, and who is primary.
    pub fn roles(&mut self, device_id: u64) -> Result<Vec<RoleInfo>> {
        Ok(self.device(device_id)?.roles.all())
    }

    /// The config that runs.
    pub fn running_config(&mut self, device_id: u64) -> Result<Option<ForwardingConfig>> {
        Ok(self.device(device_id)?.running.as_ref().map(|f| f.config.clone()))
    }

    /// What the running program is called; empty if nobody named it.
    pub fn program_name(&mut self, device_id: u64) -> Result<&str> {
        Ok(self.device(device_id)?.running.as_ref().map_or("", |f| f.config.name.as_str()))
    }

    /// What ids mean in the program that reads and writes are about; another one for each program that is set.
    pub fn schema(&mut self, device_id: u64) -> Result<Arc<Schema>> {
        Ok(Arc::clone(&self.device(device_id)?.current()?.schema))
    }

    /// The config that was set last, saved or running.
    pub fn config(&mut self, device_id: u64) -> Result<Option<ConfigView>> {
        let device = self.device(device_id)?;
        let current = device.saved.as_ref().or(device.running.as_ref());
        if let (None, Some(what)) = (current, device.target.other_owner()) {
            return Err(Error::precondition(what));
        }
        Ok(current.map(|f| ConfigView { config: f.config.clone(), p4info: Arc::clone(&f.schema.info) }))
    }
}

impl Device {
    fn set_config(&mut self, action: ConfigAction, given: bool, prepared: Option<Prepared>) -> Result<()> {
        let none_given = || Error::invalid("the request's config is missing");
        match action {
            ConfigAction::Unspecified => Err(Error::invalid("the request's action is missing")),
            ConfigAction::Verify => prepared.ok_or_else(none_given).map(drop),
            ConfigAction::VerifyAndSave => {
                let saved = self.forwarding(prepared.ok_or_else(none_given)?);
                self.keep_saved(&saved)?;
                self.saved = Some(saved);
                Ok(())
            }
            ConfigAction::VerifyAndCommit => {
                let forwarding = self.forwarding(prepared.ok_or_else(none_given)?);
                self.commit(forwarding)
            }
            ConfigAction::Commit => {
                if given {
                    return Err(Error::invalid("COMMIT takes no config; it starts the one that was saved"));
                }
                let none = || Error::not_found("no config is saved; use VERIFY_AND_SAVE first");
                let saved = self.saved.take().ok_or_else(none)?;
                if let Err(error) = self.keep_running(&saved) {
                    self.saved = Some(saved);
                    return Err(error);
                }
                self.start(saved)
            }
            ConfigAction::ReconcileAndCommit => {
                self.replace(prepared.ok_or_else(none_given)?, Losses::Refused).map(drop)
            }
        }
    }

    /// Runs another program with what was written into the one that runs.
    fn replace(&mut self, prepared: Prepared, losses: Losses) -> Result<Report> {
        let (mut forwarding, comparison) = self.taken_over(prepared)?;
        let (Some(old), Some(comparison)) = (&self.running, comparison) else {
            self.commit(forwarding)?;
            return Ok(Report::default());
        };
        let shares = forwarding.built.shares;
        let report = reconcile::carry_over(old, &mut forwarding, &comparison, shares);
        if losses == Losses::Refused {
            reconcile::check(&report)?;
        }
        self.keep_running(&forwarding)?;
        let earlier = self.running.as_ref().filter(|_| shares).map(|old| (&old.built, &comparison.keep));
        if let Err(error) = forwarding.activate(earlier) {
            self.keep_all()?;
            return Err(error);
        }
        forwarding.timers = IdleTimers::of(&forwarding, self.running.as_ref().map(|old| &old.timers));
        self.running = Some(forwarding);
        self.saved = None;
        Ok(report)
    }

    pub(crate) fn commit(&mut self, forwarding: Forwarding) -> Result<()> {
        self.keep_running(&forwarding)?;
        self.start(forwarding)
    }

    fn start(&mut self, mut forwarding: Forwarding) -> Result<()> {
        if let Err(error) = forwarding.activate(None) {
            // The one that runs goes on, so it is what must come back.
            self.keep_all()?;
            return Err(error);
        }
        forwarding.timers = IdleTimers::of(&forwarding, None);
        self.running = Some(forwarding);
        self.saved = None;
        Ok(())
    }
}

// What comes from the data plane.
impl Control {
    /// A frame for the controller: to the primaries of all roles.
    pub fn packet_in(&mut self, device_id: u64, frame: &[u8]) -> Events {
        let Some(device) = self.devices.get(&device_id) else { return vec![] };
        let Some(packet) = device.running.as_ref().and_then(|f| f.packet_in(frame)) else { return vec![] };
        let receives = |config: Option<&RoleConfig>| config.is_none_or(|config| config.packets_in.contain(&packet));
        let receivers = device.roles.primaries().filter(|(_, config)| receives(*config));
        receivers.map(|(client, _)| (client, StreamEvent::PacketIn(packet.clone()))).collect()
    }

    /// Digest messages of the data plane, and the passing of time: lists and idle notifications that are due.
    pub fn tick(&mut self, device_id: u64, messages: &[DigestMessage], now_ns: u64) -> Events {
        self.tick_telling(device_id, messages, now_ns).0
    }

    /// [`Control::tick`], and the entries that are idle, whoever is told.
    pub fn tick_telling(
        &mut self,
        device_id: u64,
        messages: &[DigestMessage],
        now_ns: u64,
    ) -> (Events, Vec<TableEntry>) {
        let Some(device) = self.devices.get_mut(&device_id) else { return Default::default() };
        let Some(forwarding) = &mut device.running else { return Default::default() };
        let mut lists: Vec<DigestList> =
            messages.iter().filter_map(|message| forwarding.digest_message(message, now_ns)).collect();
        lists.extend(forwarding.due_digests(now_ns));
        let idle = forwarding.idle_entries(now_ns);
        let mut events = Vec::new();
        for (client, config) in device.roles.primaries() {
            let sees = |id: u32| config.is_none_or(|config| config.has_object(id));
            let lists = lists.iter().filter(|list| sees(list.digest_id));
            events.extend(lists.map(|list| (client, StreamEvent::Digest(list.clone()))));
            let idle: Vec<TableEntry> = idle.iter().filter(|entry| sees(entry.table_id)).cloned().collect();
            if !idle.is_empty() {
                events.push((client, StreamEvent::IdleTimeout(idle)));
            }
        }
        (events, idle)
    }
}

fn arbitration_events(notices: Notices) -> Events {
    notices.into_iter().map(|(client, update)| (client, StreamEvent::Arbitration(update))).collect()
}

fn stream_error(client: ClientId, done: Result<()>, about: impl FnOnce() -> StreamErrorAbout) -> Events {
    match done {
        Ok(()) => vec![],
        Err(error) => vec![(client, StreamEvent::Error(StreamError { error, about: about() }))],
    }
}
