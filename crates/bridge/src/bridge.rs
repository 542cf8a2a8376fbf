//! A bridge: its tables, the requests that change them, and the connections that are notified of changes.
//!
//! ```text
//! connection ─▶ state lock ─▶ plan (read lock) ─▶ apply (write lock) ─▶ publish ─▶ connections' queues ─▶ Host::wake
//! worker ─▶ read lock                            worker ─▶ packet_in ─▶ connections' queues ─▶ Host::wake
//! ```
//!
//! **Locks**, in the order in which they are taken:
//!
//! 1. `state`: one request at a time. It is also held while all flows are scanned, so that no writer queues behind
//!    a long read lock and blocks the workers' reads.
//! 2. `tables`: workers only read-lock it, and must not hold it when they call [`Bridge::flow_mod`]. A long request lets those
//!    that wait for it read every few changes.
//! 3. `endpoints`.
//! 4. The lock of one endpoint.

use crate::admit::Admit;
use crate::change::{Change, FlowChange};
use crate::controllers::{Endpoint, Event, Kind, PacketInEvent, packet_in_reason};
use crate::expiry::Timers;
use crate::features::Capabilities;
use crate::flow::Flow;
use crate::flow_mod::{Origin, Plan};
use crate::host::Host;
use crate::key::Layout;
use crate::memory::Memory;
use crate::ports::config;
use crate::recent::Recent;
use crate::references::Index;
use crate::tables::{Miss, Tables, limit};
use crate::view::{Overlay, View, Visits};
use arc_swap::ArcSwap;
use openflow::message::{Desc, FlowMod, GroupMod, MeterMod, Port, PortReason, RemovedReason, Role};
use openflow::{Error, ErrorKind, Fields, Message};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, Weak,
};
use std::time::{Duration, Instant};

/// A bridge's identity: datapath id and description.
#[derive(Clone, Debug, Default)]
pub struct BridgeOptions {
    /// The datapath id.
    pub datapath: u64,
    /// The description reported by `OFPMP_DESC`.
    pub desc: Desc,
}

/// How long a packet that learns a flow waits for the state lock.
const LEARN_WAIT: Duration = Duration::from_micros(50);
/// Changes applied per acquisition of the write lock, some dozens of microseconds; workers that wait read in between. Bundles
/// are not sliced.
const SLICE: usize = 16;
/// Flows whose timeouts may be shortened between two ticks. Flows beyond this number expire at their former times.
const SHORTENED_MAX: usize = 1 << 20;

/// State that only requests use; workers do not read it.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub index: Index,
    pub timers: Timers,
    /// The highest `generation_id` of a controller role request.
    pub election: Option<u64>,
    /// Tables for which the next vacancy event is `OFPTR_VACANCY_UP`.
    pub crowded: HashSet<u8>,
    /// `OFPC_FRAG_` bits of the switch configuration.
    pub fragments: u16,
}

/// An OpenFlow bridge; shared by workers and connections.
pub struct Bridge {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) options: BridgeOptions,
    pub(crate) admit: Admit,
    tables: RwLock<Tables>,
    /// Threads that wait to read them.
    waiting: AtomicU32,
    state: Mutex<State>,
    endpoints: RwLock<BTreeMap<u64, Arc<Endpoint>>>,
    next_endpoint: AtomicU64,
    recent: Arc<Recent>,
    pub(crate) memory: Arc<Memory>,
    /// Ports with `OFPPC_NO_PACKET_IN`: their table misses cause no packet-ins.
    quiet: ArcSwap<HashSet<u32>>,
    shortened: Mutex<Vec<Weak<Flow>>>,
    pub(crate) keeper: OnceLock<Arc<dyn crate::keep::Keeper>>,
    /// Configuration bits for ports that are not there yet, applied when they are added.
    absent: Mutex<BTreeMap<u32, u32>>,
    started_us: u64,
    /// Stored processing states of packets that do not start at table 0.
    pub pending: crate::pending::Pending,
    /// Connections whose packet-outs wait for workers.
    pub(crate) turns: crate::turns::Turns,
}

impl std::fmt::Debug for Bridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bridge").field("options", &self.options).finish_non_exhaustive()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error of a bundle that visited too many flows: other requests wait while a bundle is planned.
fn too_long(visits: u64) -> Error {
    let why = format!(
        "the messages of the bundle before this one have looked at {visits} flows, more than the {} that a bundle may while other \
         requests wait; commit fewer non-strict changes or overlap checks at once",
        limit::BUNDLE_VISITS
    );
    Error::new(ErrorKind::BfcTimeout, why)
}

/// Adds planned changes to the overlay and the index.
fn take_in(changes: &[Change], tables: &Tables, overlay: &mut Overlay, index: &mut Index) {
    for change in changes {
        change.index(View::with(tables, overlay), index);
        overlay.add(change, tables);
    }
}

impl Bridge {
    /// Makes a bridge for the protocols of a P4 program.
    ///
    /// # Errors
    /// If the program is not made for OpenFlow; the message says why.
    pub fn new(program: &ir::Program, host: Arc<dyn Host>, options: BridgeOptions) -> Result<Bridge, String> {
        let layout = Arc::new(Layout::new(program)?);
        let tables = Tables::new(&layout);
        let recent = Arc::clone(tables.recent());
        let memory = Arc::clone(tables.memory());
        let started_us = host.now_us();
        Ok(Bridge {
            host,
            options,
            admit: Admit { layout, capabilities: Capabilities::of(program) },
            tables: RwLock::new(tables),
            waiting: AtomicU32::new(0),
            state: Mutex::default(),
            endpoints: RwLock::default(),
            next_endpoint: AtomicU64::new(1),
            recent,
            quiet: ArcSwap::default(),
            shortened: Mutex::default(),
            keeper: OnceLock::new(),
            absent: Mutex::default(),
            started_us,
            pending: crate::pending::Pending::charging(&memory),
            turns: crate::turns::Turns::default(),
            memory,
        })
    }

    /// Read-locks the state that packets read. To be held briefly: requests wait for it.
    pub fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        match self.tables.try_read() {
            Ok(tables) => tables,
            Err(TryLockError::Poisoned(tables)) => tables.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                tables
            }
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The global generation, which every change of tables, groups, meters and ports advances. The same as
    /// [`Tables::global_generation`], but without a lock.
    pub fn generation(&self) -> u64 {
        self.recent.generation()
    }

    /// The log of recent changes.
    pub(crate) fn recent(&self) -> &Arc<Recent> {
        &self.recent
    }

    /// The switch that contains the bridge.
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }

    /// Where match fields are in records.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.admit.layout
    }

    /// The match fields.
    pub fn fields(&self) -> &Arc<Fields> {
        self.admit.fields()
    }

    /// The bridge's datapath id and description.
    pub fn options(&self) -> &BridgeOptions {
        &self.options
    }

    /// When the bridge was made, in microseconds of the host's clock.
    pub fn started_us(&self) -> u64 {
        self.started_us
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn plan<'a>(&'a self, tables: View<'a>, state: &'a State, visits: &'a Visits, now_us: u64) -> Plan<'a> {
        Plan { tables, index: &state.index, admit: &self.admit, memory: &self.memory, visits, now_us }
    }

    /// Adds, modifies or deletes flows.
    ///
    /// # Errors
    /// The error of the request. Nothing has changed then.
    pub fn flow_mod(&self, request: &FlowMod, origin: &Origin) -> Result<(), Error> {
        self.change(origin, |plan| Ok(plan.flow_mod(request, origin)?.into_iter().map(Change::Flow).collect()))
    }

    /// Adds a flow on behalf of a packet. Called by workers, so it waits at most `LEARN_WAIT` for another request;
    /// if this fails, the next packet tries again.
    ///
    /// # Errors
    /// The error of the request, or `OFPFMFC_UNKNOWN` if the tables are busy or the keeper is behind. Nothing has
    /// changed then.
    pub fn learn(&self, request: &FlowMod) -> Result<(), Error> {
        let begin = Instant::now();
        if self.is_keeper_behind() {
            return Err(Error::new(ErrorKind::FmfcUnknown, "too much waits to be kept"));
        }
        let mut state = loop {
            match self.state.try_lock() {
                Ok(state) => break state,
                Err(TryLockError::Poisoned(state)) => break state.into_inner(),
                Err(TryLockError::WouldBlock) if begin.elapsed() < LEARN_WAIT => std::hint::spin_loop(),
                Err(TryLockError::WouldBlock) => return Err(Error::new(ErrorKind::FmfcUnknown, "the tables are busy")),
            }
        };
        let origin = &Origin::SWITCH;
        let plan = |plan: &Plan<'_>| Ok(plan.flow_mod(request, origin)?.into_iter().map(Change::Flow).collect());
        let changes = self.change_in(&mut state, origin, plan);
        drop(state);
        changes.map(drop)
    }

    /// Adds, modifies or deletes a group.
    ///
    /// # Errors
    /// The error of the request. Nothing has changed then.
    pub fn group_mod(&self, request: &GroupMod, origin: &Origin) -> Result<(), Error> {
        self.change(origin, |plan| plan.group_mod(request))
    }

    /// Adds, modifies or deletes a meter.
    ///
    /// # Errors
    /// The error of the request. Nothing has changed then.
    pub fn meter_mod(&self, request: &MeterMod, origin: &Origin) -> Result<(), Error> {
        self.change(origin, |plan| plan.meter_mod(request))
    }

    /// Plans, applies and publishes changes.
    pub(crate) fn change(
        &self,
        origin: &Origin,
        plan: impl FnOnce(&Plan<'_>) -> Result<Vec<Change>, Error>,
    ) -> Result<(), Error> {
        let mut state = self.state();
        let changes = self.change_in(&mut state, origin, plan);
        drop(state);
        // Removed flows are freed here, where no lock is held.
        changes.map(drop)
    }

    fn change_in(
        &self,
        state: &mut State,
        origin: &Origin,
        plan: impl FnOnce(&Plan<'_>) -> Result<Vec<Change>, Error>,
    ) -> Result<Vec<Change>, Error> {
        let now_us = self.host.now_us();
        let mut changes = {
            let tables = self.tables();
            plan(&self.plan(View::of(&tables), state, &Visits::default(), now_us))?
        };
        let mut kept = self.to_keep(&changes)?;
        self.apply(state, &changes);
        loop {
            let orphans = state.index.take_orphans();
            if orphans.is_empty() {
                break;
            }
            let more = self.plan(View::of(&self.tables()), state, &Visits::default(), now_us).remove_learned(&orphans);
            let more: Vec<Change> = more.into_iter().map(Change::Flow).collect();
            kept.extend(self.to_keep(&more).unwrap_or_default());
            self.apply(state, &more);
            changes.extend(more);
        }
        self.keep(kept);
        self.publish(state, &changes, origin, now_us);
        Ok(changes)
    }

    fn apply(&self, state: &mut State, changes: &[Change]) {
        {
            let tables = self.tables();
            changes.iter().for_each(|change| change.index(View::of(&tables), &mut state.index));
        }
        for slice in changes.chunks(SLICE) {
            {
                let mut tables = self.write();
                slice.iter().for_each(|change| change.apply(&mut tables));
            }
            // Else the lock would be taken again before a worker that waits for it has woken up.
            while self.waiting.load(Ordering::Relaxed) > 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Applies the requests of a bundle atomically: packets see all of their changes or none. Each request is
    /// planned on the result of those before it. On an error, returns the index of the failed request and its
    /// error; nothing has changed then.
    pub(crate) fn change_atomically<'a>(
        &self,
        steps: &mut dyn Iterator<Item = (Origin, Step<'a>)>,
    ) -> Result<(), (usize, Error)> {
        let mut parts: Vec<(Origin, Vec<Change>)> = Vec::new();
        let mut kept = Vec::new();
        let mut state = self.state();
        let now_us = self.host.now_us();
        let (mut overlay, visits) = (Overlay::default(), Visits::default());
        {
            // Workers keep reading the tables meanwhile: only the holder of the state lock changes them.
            let tables = self.tables();
            let mut failure = None;
            for (i, (origin, step)) in steps.enumerate() {
                if visits.get() > limit::BUNDLE_VISITS {
                    failure = Some((i, too_long(visits.get())));
                    break;
                }
                let planned = step(&self.plan(View::with(&tables, &overlay), &state, &visits, now_us));
                let mut changes = match planned.and_then(|changes| Ok((self.to_keep(&changes)?, changes))) {
                    Ok((mut to_keep, changes)) => {
                        kept.append(&mut to_keep);
                        changes
                    }
                    Err(error) => {
                        failure = Some((i, error));
                        break;
                    }
                };
                take_in(&changes, &tables, &mut overlay, &mut state.index);
                loop {
                    let orphans = state.index.take_orphans();
                    if orphans.is_empty() {
                        break;
                    }
                    let plan = self.plan(View::with(&tables, &overlay), &state, &visits, now_us);
                    let more: Vec<Change> = plan.remove_learned(&orphans).into_iter().map(Change::Flow).collect();
                    kept.extend(self.to_keep(&more).unwrap_or_default());
                    take_in(&more, &tables, &mut overlay, &mut state.index);
                    changes.extend(more);
                }
                parts.push((origin, changes));
            }
            if let Some(failure) = failure {
                let changes = parts.iter().rev().flat_map(|(_, changes)| changes.iter().rev());
                changes.for_each(|change| change.undo(View::with(&tables, &overlay), &mut state.index));
                state.index.forget_orphans();
                return Err(failure);
            }
        }
        {
            let mut tables = self.write();
            parts.iter().flat_map(|(_, changes)| changes).for_each(|change| change.apply(&mut tables));
        }
        self.keep(kept);
        for (origin, changes) in &parts {
            self.publish(&mut state, changes, origin, now_us);
        }
        Ok(())
    }

    /// Notifies connections, timers and the host of applied changes.
    fn publish(&self, state: &mut State, changes: &[Change], origin: &Origin, now_us: u64) {
        let mut flows: Vec<&FlowChange> = Vec::new();
        let mut touches_ports = false;
        for change in changes {
            match change {
                Change::Flow(change) => {
                    if let Some(new) = &change.new {
                        state.timers.add(new);
                    }
                    flows.push(change);
                }
                Change::Port { old, new, .. } => {
                    touches_ports = true;
                    let told = match (old, new) {
                        (None, Some(new)) => Some((PortReason::Add, new)),
                        (Some(old), None) => Some((PortReason::Delete, old)),
                        (Some(old), Some(new)) if old != new => Some((PortReason::Modify, new)),
                        _ => None,
                    };
                    if let Some((reason, port)) = told {
                        let message = Message::PortStatus { reason, port: port.clone() };
                        self.tell(Kind::PortStatus, reason as u8, message);
                    }
                }
                Change::Settings { table, new, .. } => self.set_vacancy(state, *table, new),
                Change::Group { .. } | Change::Meter { .. } => {}
            }
        }
        if touches_ports {
            let tables = self.tables();
            let quiet = tables.ports().iter().filter(|port| port.config & config::NO_PACKET_IN != 0);
            self.quiet.store(Arc::new(quiet.map(|port| port.number).collect()));
        }
        if !flows.is_empty() {
            self.report_flows(state, &flows, origin, now_us);
            state.timers.compact(&self.tables(), state.index.timed);
        }
    }

    /// Queues a packet-in for the controllers that want it. Called by workers: never blocks, and drops the
    /// packet-in if a connection's queue is full.
    pub fn packet_in(&self, event: PacketInEvent) {
        if event.packet.reason == packet_in_reason::TABLE_MISS && self.quiet.load().contains(&event.in_port) {
            return;
        }
        let reason = event.packet.reason.min(31);
        let event = Arc::new(event);
        for endpoint in self.endpoints().values() {
            let status = endpoint.status();
            let is_wanted = status.controller == event.controller
                && status.receives(endpoint.is_service, Kind::PacketIn, reason)
                && (!event.is_miss || status.version == Some(openflow::Version::V10));
            drop(status);
            if is_wanted && endpoint.push(Event::PacketIn(Arc::clone(&event))) {
                self.host.wake(endpoint.id);
            }
        }
    }

    /// Sends an asynchronous message to all connections that subscribe to it.
    pub(crate) fn tell(&self, kind: Kind, reason: u8, message: Message) {
        for endpoint in self.endpoints().values() {
            if endpoint.status().receives(endpoint.is_service, kind, reason) {
                self.push(endpoint, Event::Message(Box::new(message.clone())));
            }
        }
    }

    pub(crate) fn push(&self, endpoint: &Endpoint, event: Event) {
        if endpoint.push(event) || endpoint.is_overrun() {
            self.host.wake(endpoint.id);
        }
    }

    /// Removes flows whose timeouts have expired. To be called several times a second.
    pub fn tick(&self, now_us: u64) {
        let shortened = std::mem::take(&mut *lock(&self.shortened));
        {
            let mut state = self.state();
            shortened.iter().filter_map(Weak::upgrade).for_each(|flow| state.timers.add(&flow));
            if !state.timers.is_due(now_us) {
                return;
            }
        }
        // Without the state lock, because workers that learn a flow meanwhile need it.
        self.host.sync_counts();
        let mut state = self.state();
        let ended = state.timers.take(&self.tables(), now_us);
        let changes: Vec<Change> =
            ended.iter().map(|(flow, reason)| Change::Flow(FlowChange::removal(flow, *reason))).collect();
        self.apply(&mut state, &changes);
        let orphans = state.index.take_orphans();
        let more = self.plan(View::of(&self.tables()), &state, &Visits::default(), now_us).remove_learned(&orphans);
        let more: Vec<Change> = more.into_iter().map(Change::Flow).collect();
        self.apply(&mut state, &more);
        self.keep_removals(&changes);
        self.keep_removals(&more);
        self.publish(&mut state, &changes, &Origin::SWITCH, now_us);
        self.publish(&mut state, &more, &Origin::SWITCH, now_us);
        drop(state);
    }

    /// Schedules a flow for its new expiry. To be called after [`Flow::fin_timeouts`] has been set; does not wait
    /// for requests.
    pub fn shorten(&self, flow: &Arc<Flow>) {
        let mut shortened = lock(&self.shortened);
        if shortened.len() < SHORTENED_MAX {
            shortened.push(Arc::downgrade(flow));
        }
    }

    /// Adds a port, or updates it. The configuration bits that controllers have set are kept.
    pub fn put_port(&self, mut port: Port) {
        let number = port.number;
        let expected = lock(&self.absent).remove(&number).unwrap_or(0);
        let _ = self.change(&Origin::SWITCH, |plan| {
            let old = plan.tables.port(number);
            if let Some(old) = old {
                port.config |= old.config & (config::ALL & !config::PORT_DOWN);
            }
            port.config |= expected;
            crate::ports::set_live(&mut port);
            Ok(vec![Change::Port { number, old: old.cloned(), new: Some(port) }])
        });
        if expected & config::PORT_DOWN != 0
            && let Err(why) = self.host.set_port_config(number, expected)
        {
            tracing::warn!("port {number}: {why}");
        }
    }

    /// Sets the [`config`] bits that a port gets when it is added.
    pub(crate) fn expect_port(&self, number: u32, bits: u32) {
        lock(&self.absent).insert(number, bits & config::ALL);
    }

    /// The ports that have such bits but have not been added yet.
    pub(crate) fn absent_ports(&self) -> BTreeMap<u32, u32> {
        lock(&self.absent).clone()
    }

    /// Removes a port.
    pub fn remove_port(&self, number: u32) {
        let _ = self.change(&Origin::SWITCH, |plan| {
            let old = plan.tables.port(number).cloned();
            Ok(old.map(|old| Change::Port { number, old: Some(old), new: None }).into_iter().collect())
        });
    }

    pub(crate) fn endpoints(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Arc<Endpoint>>> {
        self.endpoints.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection.
    pub(crate) fn attach(&self, is_service: bool, uri: String) -> Arc<Endpoint> {
        let id = self.next_endpoint.fetch_add(1, Ordering::Relaxed);
        let endpoint = Arc::new(Endpoint::new(id, is_service, uri, &self.memory.queues));
        let mut endpoints = self.endpoints.write().unwrap_or_else(PoisonError::into_inner);
        endpoints.insert(id, Arc::clone(&endpoint));
        endpoint
    }

    /// Removes a connection.
    pub(crate) fn detach(&self, id: u64) {
        self.endpoints.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        self.connections_changed();
    }

    /// Recomputes what happens on a table miss. To be called after a connection's version, role or configuration
    /// has changed.
    pub(crate) fn connections_changed(&self) {
        let _state = self.state();
        let is_wanted = self.endpoints().values().any(|endpoint| endpoint.status().wants_misses(endpoint.is_service));
        let miss = if is_wanted { Miss::Controller } else { Miss::Drop };
        if self.tables().miss() != miss {
            self.write().set_miss(miss);
        }
    }

    /// Sets how IP fragments are treated (`OFPC_FRAG_` bits).
    pub(crate) fn set_fragments(&self, fragments: u16) {
        let mut state = self.state();
        if state.fragments != fragments {
            self.keep_fragments(fragments);
        }
        state.fragments = fragments;
        self.write().set_fragments(fragments);
    }

    /// Status of all connections.
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        let info = |endpoint: &Arc<Endpoint>| {
            let status = endpoint.status();
            ConnectionInfo {
                id: endpoint.id,
                uri: endpoint.uri.clone(),
                is_service: endpoint.is_service,
                version: status.version,
                role: status.role,
                packet_ins_dropped: endpoint.packet_ins_dropped(),
            }
        };
        self.endpoints().values().map(info).collect()
    }

    /// The number of flows in all tables, at most [`crate::tables::limit::FLOWS`].
    pub fn flow_count(&self) -> usize {
        self.state().index.flows
    }

    /// Removes all flows, groups and meters, like `ovs-ofctl del-flows`, `del-groups` and `del-meters`.
    pub fn clear(&self) {
        let _ = self.change(&Origin::SWITCH, |plan| {
            let flows = plan.remove(RemovedReason::Delete, &|_| true).into_iter().map(Change::Flow);
            let groups = plan.tables.groups();
            let groups = groups.map(|group| Change::Group { id: group.id, old: Some(Arc::clone(group)), new: None });
            let meters = plan.tables.meters();
            let meters = meters.map(|meter| Change::Meter { id: meter.id, old: Some(Arc::clone(meter)), new: None });
            Ok(flows.chain(groups).chain(meters).collect())
        });
    }
}

/// One request of [`Bridge::change_atomically`]: a function that plans its changes.
pub(crate) type Step<'a> = Box<dyn FnOnce(&Plan<'_>) -> Result<Vec<Change>, Error> + 'a>;

/// Status of a connection, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionInfo {
    /// Its id.
    pub id: u64,
    /// Its URI.
    pub uri: String,
    /// Whether it is a management connection.
    pub is_service: bool,
    /// The OpenFlow version, once negotiated.
    pub version: Option<openflow::Version>,
    /// Its controller role.
    pub role: Role,
    /// Packet-ins dropped because its queue was full.
    pub packet_ins_dropped: u64,
}
