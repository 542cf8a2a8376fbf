//! The control plane of all devices: clients, roles, reads, writes and forwarding pipeline configs as one state
//! machine.
//!
//! ```text
//!   grpc, CLI ──requests──▶ Control ──▶ Target (the switch)
//!             ◀──answers──         ◀──frames, digests── the thread that polls the switch
//!             ◀──events to clients (returned, not sent)
//! ```
//!
//! No sockets, no threads, no clock: a request is a function call, notifications are returned as [`Events`] for the
//! caller to deliver, and time is an argument. Callers serialise their calls with one lock; a batch of updates may be
//! several calls ([`crate::writes`]).

use crate::arbitration::{ArbitrationRequest, ArbitrationUpdate, ClientId, Notices, RoleInfo, Roles};
use crate::digests::DigestList;
use crate::entity::{ElectionId, Role, TableEntry, Update};
use crate::error::{Error, Result, choices};
use crate::forwarding::{Forwarding, ForwardingConfig, Target};
use crate::idle::IdleTimers;
use crate::journal::Keeper;
use crate::objects::Objects;
use crate::packets::Packet;
use crate::preparation::{Preparation, Prepared};
use crate::reconcile::{self, Report};
use crate::roles::RoleConfig;
use crate::schema::Schema;
use abi::state::DigestMessage;
use p4info::P4Info;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

/// The version of the P4Runtime API that is implemented.
pub const API_VERSION: &str = "1.5.0";
/// Limit on the updates of one Write request. The memory limit (`grpc::MEMORY_BYTES_MAX`) is usually reached earlier.
pub const UPDATES_MAX: usize = 50_000;

/// A message to be sent on a client's stream.
#[derive(Clone, PartialEq, Debug)]
pub enum StreamEvent {
    /// The result of arbitration: the client's status and the primary's election id.
    Arbitration(ArbitrationUpdate),
    /// A packet from the data plane.
    PacketIn(Packet),
    /// A list of digest messages; one for all clients.
    Digest(Arc<DigestList>),
    /// Entries that were not hit for their idle timeout; one list for all clients that see the same tables.
    IdleTimeout(Arc<Vec<TableEntry>>),
    /// An error about a message that the client sent.
    Error(StreamError),
}

/// A refused stream message.
#[derive(Clone, PartialEq, Debug)]
pub struct StreamError {
    /// The reason.
    pub error: Error,
    /// The message that was refused.
    pub about: StreamErrorAbout,
}

/// The message that a [`StreamError`] is about.
#[derive(Clone, PartialEq, Debug)]
pub enum StreamErrorAbout {
    /// A packet-out, as received.
    PacketOut(Packet),
    /// An acknowledgement: digest id and list id.
    DigestAck(u32, u64),
    /// Another message.
    Other,
}

/// Events in the order in which they must be sent.
pub type Events = Vec<(ClientId, StreamEvent)>;

/// A message received on a client's stream.
#[derive(Clone, PartialEq, Debug)]
pub enum StreamRequest {
    /// `MasterArbitrationUpdate`.
    Arbitration(ArbitrationRequest),
    /// A packet for the data plane.
    PacketOut(Packet),
    /// An acknowledged digest list: digest id and list id.
    DigestAck(u32, u64),
    /// An architecture-specific message, or an empty one.
    Other,
}

/// The action of a `SetForwardingPipelineConfig` request.
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

/// What to do if some of the existing state has no place in a new program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Losses {
    /// Refuse the new program.
    Refused,
    /// Drop that state and report it.
    Accepted,
}

/// A `SetForwardingPipelineConfig` request.
#[derive(Clone, PartialEq, Debug)]
pub struct SetConfigRequest {
    /// The device.
    pub device_id: u64,
    /// The sender's role.
    pub role: Role,
    /// The sender's election id.
    pub election_id: Option<ElectionId>,
    /// The action.
    pub action: ConfigAction,
    /// The new config; `None` for COMMIT.
    pub config: Option<ForwardingConfig>,
}

/// A device's forwarding pipeline config as read back.
#[derive(Clone, Debug)]
pub struct ConfigView {
    /// The config as it was set.
    pub config: ForwardingConfig,
    /// The P4Info derived from the program, for a config that was set without one.
    pub p4info: Arc<P4Info>,
}

pub(crate) struct Device {
    pub(crate) target: Arc<dyn Target>,
    pub(crate) roles: Roles,
    pub(crate) running: Option<Forwarding>,
    pub(crate) saved: Option<Forwarding>,
    /// Journals the writes, if this device's state is persistent.
    pub(crate) keeper: Option<Keeper>,
    /// For each batch that is being written, the objects that others may not use meanwhile.
    pub(crate) batches: Vec<Weak<Objects>>,
    /// The time of a tick that has not looked for idle entries, because a batch that may be rolled back was being written.
    pub(crate) idle_due_ns: Option<u64>,
    /// Idle entries that the next tick reports.
    pub(crate) idle: Vec<TableEntry>,
}

impl Device {
    /// Looks for idle entries if the last tick has not. Called before a batch that may be rolled back: else such batches,
    /// one after the other, would prevent that idle entries are reported.
    pub(crate) fn look_for_idle(&mut self) {
        if let (Some(now_ns), true, Some(running)) = (self.idle_due_ns.take(), self.idle.is_empty(), &mut self.running)
        {
            self.idle = running.idle_entries(now_ns, self.roles.primaries().count());
        }
    }

    /// The config that reads and writes apply to: the saved one if there is one, else the running one.
    pub(crate) fn current(&mut self) -> Result<&mut Forwarding> {
        if let (None, None, Some(what)) = (&self.running, &self.saved, self.target.other_owner()) {
            return Err(Error::precondition(what));
        }
        let none = || Error::precondition("the device has no forwarding pipeline config yet");
        self.saved.as_mut().or(self.running.as_mut()).ok_or_else(none)
    }
}

/// The control plane of all devices.
///
/// # Errors
///
/// Every fallible method that takes a `device_id` returns NOT_FOUND if there is no such device. The methods below state
/// their other errors.
#[derive(Default)]
pub struct Control {
    pub(crate) devices: BTreeMap<u64, Device>,
    clients: BTreeMap<ClientId, Option<(u64, Role)>>,
    last_client: u64,
    pub(crate) last_read: u64,
}

impl Control {
    /// A control plane without devices.
    pub fn new() -> Control {
        Control::default()
    }

    /// Adds a device that has no program yet.
    pub fn add_device(&mut self, device_id: u64, target: Arc<dyn Target>) {
        let (roles, batches) = (Roles::default(), Vec::new());
        let (idle_due_ns, idle) = (None, Vec::new());
        let device = Device { target, roles, running: None, saved: None, keeper: None, batches, idle_due_ns, idle };
        self.devices.insert(device_id, device);
    }

    /// Refuses if a device could not be removed now.
    ///
    /// # Errors
    ///
    /// As for [`Control::remove_device`].
    pub fn check_removable(&mut self, device_id: u64) -> Result<()> {
        self.device(device_id)?.check_settled(|_| Objects::All)
    }

    /// Removes a device with all its state. Returns the clients of its streams, which the caller must close.
    ///
    /// # Errors
    ///
    /// NOT_FOUND if there is no such device, UNAVAILABLE while a batch is being written to it.
    pub fn remove_device(&mut self, device_id: u64) -> Result<Vec<ClientId>> {
        self.check_removable(device_id)?;
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

    /// Whether there is such a device.
    pub fn has_device(&self, device_id: u64) -> bool {
        self.devices.contains_key(&device_id)
    }

    /// The ids of all devices.
    pub fn device_ids(&self) -> Vec<u64> {
        self.devices.keys().copied().collect()
    }
}

// Streams.
impl Control {
    /// Registers a new stream.
    pub fn connect(&mut self) -> ClientId {
        self.last_client += 1;
        let client = ClientId(self.last_client);
        self.clients.insert(client, None);
        client
    }

    /// Removes a closed stream. Returns the notifications that this causes.
    pub fn disconnect(&mut self, client: ClientId) -> Events {
        let Some(Some((device_id, role))) = self.clients.remove(&client) else { return vec![] };
        let Some(device) = self.devices.get_mut(&device_id) else { return vec![] };
        arbitration_events(device.roles.leave(device_id, &role, client))
    }

    /// Handles a message of a stream. Refused packets and acknowledgements are returned as [`StreamEvent::Error`].
    ///
    /// # Errors
    ///
    /// An arbitration update is refused. The caller must then close the stream and call [`Control::disconnect`].
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

    /// Refuses a packet-out that the configuration of the client's role does not allow.
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
    /// Checks that the sender is primary of its role. To be called before the rest of the request is decoded.
    ///
    /// # Errors
    ///
    /// NOT_FOUND for an unknown device or role, PERMISSION_DENIED if the sender is not primary.
    pub fn check_writer(&mut self, device_id: u64, role: &Role, election_id: Option<ElectionId>) -> Result<()> {
        self.device(device_id)?.roles.check_primary(role, election_id)
    }

    /// Applies updates to the running program without a client, as the command line does at start. Returns one result
    /// per update.
    ///
    /// # Errors
    ///
    /// NOT_FOUND for an unknown device, FAILED_PRECONDITION if it runs no program.
    pub fn set_up(&mut self, device_id: u64, updates: &[Update]) -> Result<Vec<Result<()>>> {
        let none = || Error::precondition("the device runs no program yet");
        let forwarding = self.device(device_id)?.running.as_mut().ok_or_else(none)?;
        Ok(updates.iter().map(|update| forwarding.write(update)).collect())
    }

    /// Imports multicast groups and clone sessions that were set up without the control plane, so that clients can read
    /// them.
    pub fn adopt(&mut self, device_id: u64) -> Result<()> {
        self.device(device_id)?.running.iter_mut().for_each(Forwarding::adopt_replication);
        Ok(())
    }

    /// Handles a change of ports' link states: for replicas with backups, selects the port again.
    pub fn links_changed(&mut self, device_id: u64) {
        if let Some(forwarding) = self.devices.get_mut(&device_id).and_then(|device| device.running.as_mut()) {
            forwarding.follow_links();
        }
    }

    /// The version of the P4Runtime API of a device, or of the server for id 0.
    pub fn capabilities(&mut self, device_id: u64) -> Result<&'static str> {
        if device_id != 0 {
            self.device(device_id)?;
        }
        Ok(API_VERSION)
    }
}

// Forwarding pipeline configs.
impl Control {
    /// Handles a `SetForwardingPipelineConfig` request, including its slow parts. A caller that must not hold the lock
    /// that long uses the three steps of `preparation` instead.
    ///
    /// # Errors
    ///
    /// The sender may not change the program, the program is refused, or the switch cannot run it. What ran before
    /// continues.
    pub fn set_config(&mut self, request: SetConfigRequest) -> Result<()> {
        let prepared = self.prepare_config(&request)?.map(Preparation::run).transpose()?;
        self.set_config_prepared(request, prepared)
    }

    /// The last step of [`Control::set_config`].
    ///
    /// # Errors
    ///
    /// The sender may no longer change the program, another program runs than when this one was prepared, or the switch
    /// cannot run it.
    pub fn set_config_prepared(&mut self, request: SetConfigRequest, prepared: Option<Prepared>) -> Result<()> {
        self.may_set_config(&request)?.check_settled(|_| Objects::All)?;
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
    ///
    /// # Errors
    ///
    /// The program is refused, or the switch cannot run it.
    pub fn load(&mut self, device_id: u64, config: ForwardingConfig) -> Result<()> {
        let prepared = self.prepare(device_id, config, false)?.run()?;
        self.load_prepared(device_id, prepared)
    }

    /// The last step of [`Control::load`].
    ///
    /// # Errors
    ///
    /// UNAVAILABLE if the switch cannot run the program or the journal fails; what ran before continues.
    pub fn load_prepared(&mut self, device_id: u64, prepared: Prepared) -> Result<()> {
        let device = self.device(device_id)?;
        device.check_settled(|_| Objects::All)?;
        device.set_config(ConfigAction::VerifyAndCommit, true, Some(prepared))
    }

    /// Replaces the running program without a client and carries its state over. Returns what became of each object.
    ///
    /// # Errors
    ///
    /// The program is refused, the switch cannot run it, or state would be lost and `losses` is [`Losses::Refused`].
    pub fn replace(&mut self, device_id: u64, config: ForwardingConfig, losses: Losses) -> Result<Report> {
        let prepared = self.prepare(device_id, config, true)?.run()?;
        self.replace_prepared(device_id, prepared, losses)
    }

    /// The last step of [`Control::replace`].
    ///
    /// # Errors
    ///
    /// ABORTED if another program runs than when this one was prepared, INVALID_ARGUMENT if state would be lost and
    /// `losses` is [`Losses::Refused`], UNAVAILABLE if the switch cannot run it.
    pub fn replace_prepared(&mut self, device_id: u64, prepared: Prepared, losses: Losses) -> Result<Report> {
        let device = self.device(device_id)?;
        device.check_settled(|_| Objects::All)?;
        device.replace(prepared, losses)
    }

    /// Whether any role of a device has a primary.
    pub fn has_primary(&mut self, device_id: u64) -> Result<bool> {
        Ok(self.device(device_id)?.roles.primaries().next().is_some())
    }

    /// The roles that clients have claimed, each with its primary's election id.
    pub fn roles(&mut self, device_id: u64) -> Result<Vec<RoleInfo>> {
        Ok(self.device(device_id)?.roles.all())
    }

    /// The running config; `None` if there is none.
    pub fn running_config(&mut self, device_id: u64) -> Result<Option<ForwardingConfig>> {
        Ok(self.device(device_id)?.running.as_ref().map(|f| f.config.clone()))
    }

    /// The name of the running program; empty if it has none.
    pub fn program_name(&mut self, device_id: u64) -> Result<&str> {
        Ok(self.device(device_id)?.running.as_ref().map_or("", |f| f.config.name.as_str()))
    }

    /// The schema of the config that reads and writes apply to. Each config that is set has a schema of its own.
    ///
    /// # Errors
    ///
    /// NOT_FOUND for an unknown device, FAILED_PRECONDITION if it has no config.
    pub fn schema(&mut self, device_id: u64) -> Result<Arc<Schema>> {
        Ok(Arc::clone(&self.device(device_id)?.current()?.schema))
    }

    /// The config that was set last, whether saved or running.
    ///
    /// # Errors
    ///
    /// FAILED_PRECONDITION if something else than a P4 program processes the device's packets.
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

    /// Runs another program and carries the running one's state over.
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
        self.idle.clear();
        self.saved = None;
        Ok(report)
    }

    pub(crate) fn commit(&mut self, forwarding: Forwarding) -> Result<()> {
        self.keep_running(&forwarding)?;
        self.start(forwarding)
    }

    fn start(&mut self, mut forwarding: Forwarding) -> Result<()> {
        if let Err(error) = forwarding.activate(None) {
            // The old program keeps running, so the journal must describe that one again.
            self.keep_all()?;
            return Err(error);
        }
        forwarding.timers = IdleTimers::of(&forwarding, None);
        self.running = Some(forwarding);
        self.idle.clear();
        self.saved = None;
        Ok(())
    }
}

// Messages from the data plane.
impl Control {
    /// Sends a frame for the controller to the primaries of all roles that may receive it.
    pub fn packet_in(&mut self, device_id: u64, frame: &[u8]) -> Events {
        let Some(device) = self.devices.get(&device_id) else { return vec![] };
        let Some(packet) = device.running.as_ref().and_then(|f| f.packet_in(frame)) else { return vec![] };
        let receives = |config: Option<&RoleConfig>| config.is_none_or(|config| config.packets_in.contain(&packet));
        let receivers = device.roles.primaries().filter(|(_, config)| receives(*config));
        receivers.map(|(client, _)| (client, StreamEvent::PacketIn(packet.clone()))).collect()
    }

    /// Handles digest messages and the passing of time. Returns the digest lists and idle notifications that are due.
    pub fn tick(&mut self, device_id: u64, messages: &[DigestMessage], now_ns: u64) -> Events {
        self.tick_reporting_idle(device_id, messages, now_ns).0
    }

    /// As [`Control::tick`], and returns the idle entries too, whether or not a client receives them.
    pub fn tick_reporting_idle(
        &mut self,
        device_id: u64,
        messages: &[DigestMessage],
        now_ns: u64,
    ) -> (Events, Arc<Vec<TableEntry>>) {
        let Some(device) = self.devices.get_mut(&device_id) else { return Default::default() };
        device.undo_what_is_due();
        let Some(forwarding) = &mut device.running else { return Default::default() };
        let mut lists: Vec<DigestList> =
            messages.iter().filter_map(|message| forwarding.digest_message(message, now_ns)).collect();
        lists.extend(forwarding.due_digests(now_ns));
        let lists: Vec<Arc<DigestList>> = lists.into_iter().map(Arc::new).collect();
        // Entries of a batch that may be rolled back are not reported before it is finished.
        let may_be_undone = device.batches.iter().filter_map(Weak::upgrade).any(|objects| *objects == Objects::All);
        let mut idle = std::mem::take(&mut device.idle);
        device.idle_due_ns = may_be_undone.then_some(now_ns);
        if !may_be_undone && idle.is_empty() {
            idle = forwarding.idle_entries(now_ns, device.roles.primaries().count());
        }
        let idle = Arc::new(idle);
        let tables: BTreeSet<u32> = idle.iter().map(|entry| entry.table_id).collect();
        let mut by_tables = BTreeMap::from([(tables.clone(), Arc::clone(&idle))]);
        let mut events = Vec::new();
        for (client, config) in device.roles.primaries() {
            let sees = |id: u32| config.is_none_or(|config| config.has_object(id));
            let lists = lists.iter().filter(|list| sees(list.digest_id));
            events.extend(lists.map(|list| (client, StreamEvent::Digest(Arc::clone(list)))));
            let seen: BTreeSet<u32> = tables.iter().copied().filter(|table| sees(*table)).collect();
            if !seen.is_empty() {
                let of_seen = || idle.iter().filter(|entry| sees(entry.table_id)).cloned().collect::<Vec<_>>();
                let idle = by_tables.entry(seen).or_insert_with(|| Arc::new(of_seen()));
                events.push((client, StreamEvent::IdleTimeout(Arc::clone(idle))));
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
