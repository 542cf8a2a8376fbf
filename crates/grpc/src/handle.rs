//! The control plane with its clients' queues, shared between the services and the threads that poll the switch.
//!
//! One lock is held for each use of the control plane. It is fair: those that wait get it in the order of their arrival.
//! Events are queued while it is held, which preserves their order.
//!
//! **Turns.** Whoever sends a large batch of updates must not make all others wait for it, so it is written in turns of
//! [`TURN_MAX`], between which the lock is free ([`Handle::write`], [`control::writes`]). Each device has further locks
//! ([`DeviceTurns`]). `requests` is held by each request about the device's state; by a large batch during its turns, by
//! one of which all or nothing takes effect until it is finished. `batches` and `running` are held by a large batch until
//! it is finished, and by requests about the same objects, which wait for it. Requests about the whole device, those that
//! change who is primary or which program runs among them, take `running` alone. Only the holder of `batches` waits for
//! it, so such a request waits for one batch, however many are queued. Writes of one role, and all reads, wait for
//! `requests` one at a time (`lines`). So a small request about other objects waits for one turn of each other role,
//! however much these send at a time, and one to another device for one turn of the whole device. The order of locks is
//! `batches`, `running`, `lines`, `requests`, control plane; all are fair.
//!
//! Requests over gRPC wait for `batches`, `running` and `lines`, and for the disk, without a thread, because the threads of
//! the runtime are limited, and those that wait for one device must not take them from others.
//!
//! A batch that stops packets is one turn, since others could need the workers, and since packets of all devices wait for
//! it; it is short.
//!
//! A client that does not read loses packets and notifications when its queue (`events`) is full, but never an
//! arbitration update: if one does not fit, the client's stream is closed. Programs are compiled without the lock
//! ([`Handle::prepared`]).
//!
//! Tests: `handle/tests.rs`; `tests/loopback.rs`, `tests/load.rs`.

use crate::events::{self, EventSender};
use crate::rpcs::RpcCounts;
use crate::status;
use abi::state::DigestMessage;
use control::arbitration::ClientId;
use control::control::{Events, Losses, StreamErrorAbout, StreamEvent};
use control::entity::{TableEntry, WriteRequest};
use control::forwarding::ForwardingConfig;
use control::journal::Slot;
use control::objects::Objects;
use control::preparation::{Preparation, Prepared};
use control::reconcile::Report;
use control::restore::{Parts, Restored};
use control::schema::Schema;
use control::writes::{self, Written};
use control::{Control, Error};
use messages::convert;
use parking_lot::FairMutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::OwnedMutexGuard;
use tonic::Code;

/// Limit on the programs that wait while another one is compiled. Each has its text in memory, and occupies a blocking
/// thread.
const PROGRAMS_WAITING_MAX: usize = 8;

/// Limit on the bytes of a refused packet-out that are returned to its sender with the error.
const ECHO_BYTES_MAX: usize = 16 << 10;

/// The time after which a batch of updates lets others use the control plane, chosen. The update that is being written
/// then is finished.
pub const TURN_MAX: Duration = Duration::from_millis(2);

/// Batches of more updates wait for other large batches of the device from the start; smaller ones usually take less than
/// a turn.
const LARGE: usize = 64;

/// Lines in which requests wait for a device, chosen: roles seldom share one. The first is that of reads.
const LINES: usize = 64;

/// A fair lock that both threads and tasks wait for.
type Gate = Arc<tokio::sync::Mutex<()>>;

/// The locks of a device.
#[derive(Debug)]
struct DeviceTurns {
    batches: Gate,
    running: Gate,
    lines: [Gate; LINES],
    requests: FairMutex<()>,
}

/// What a request waits for before `requests`.
#[derive(Clone, Copy, Debug)]
struct Waits {
    batches: bool,
    running: bool,
    line: Option<usize>,
}

/// What a request waited for, released in this order.
struct Places {
    line: Option<OwnedMutexGuard<()>>,
    running: Option<OwnedMutexGuard<()>>,
    _batches: Option<OwnedMutexGuard<()>>,
}

impl Waits {
    /// Those of a request about the whole device.
    const DEVICE: Waits = Waits { batches: false, running: true, line: None };

    /// As before, and for the batches that the request must wait for.
    fn with_batches(self) -> Waits {
        Waits { batches: true, running: true, ..self }
    }
}

impl Default for DeviceTurns {
    fn default() -> Self {
        let gate = Gate::default;
        let lines = std::array::from_fn(|_| gate());
        DeviceTurns { batches: gate(), running: gate(), lines, requests: FairMutex::new(()) }
    }
}

impl DeviceTurns {
    /// The locks that a request waits for, in their order.
    fn gates(&self, waits: Waits) -> [Option<Gate>; 3] {
        let batches = waits.batches.then(|| Arc::clone(&self.batches));
        let running = waits.running.then(|| Arc::clone(&self.running));
        [batches, running, waits.line.map(|line| Arc::clone(&self.lines[line]))]
    }

    /// Waits as a thread; not for threads that run tasks.
    fn wait(&self, waits: Waits) -> Places {
        let [_batches, running, line] = self.gates(waits).map(|gate| gate.map(tokio::sync::Mutex::blocking_lock_owned));
        Places { line, running, _batches }
    }

    /// Waits as a task.
    async fn wait_as_task(&self, waits: Waits) -> Places {
        let mut places = [None, None, None];
        for (place, gate) in places.iter_mut().zip(self.gates(waits)) {
            if let Some(gate) = gate {
                *place = Some(gate.lock_owned().await);
            }
        }
        let [_batches, running, line] = places;
        Places { line, running, _batches }
    }
}

/// Runs what waits for locks on a blocking thread.
pub(crate) async fn blocking<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> Result<R, Error> {
    tokio::task::spawn_blocking(f).await.map_err(|_| Error::internal("the request's task failed"))
}

/// The control plane and its clients' queues.
#[derive(Default)]
pub struct Handle {
    control: FairMutex<Control>,
    turns: Mutex<HashMap<u64, Arc<DeviceTurns>>>,
    /// For the lines of roles, so that nobody can choose a name for its line.
    names: RandomState,
    clients: Mutex<HashMap<ClientId, EventSender>>,
    lost: [AtomicU64; 3],
    rpcs: Arc<RpcCounts>,
    /// Held while a program is prepared.
    preparing: Mutex<()>,
    /// Number of programs that are being prepared or wait for it.
    programs: AtomicUsize,
}

/// Events that were dropped because clients did not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "what they are called everywhere")]
pub struct LostEvents {
    pub packets: u64,
    pub digests: u64,
    pub idle_timeouts: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handle {
    /// A handle that shares a control plane.
    pub fn new(control: Control) -> Arc<Handle> {
        Arc::new(Handle { control: FairMutex::new(control), ..Handle::default() })
    }

    /// Runs `f` on the control plane, holding its lock. For requests about a device's state, see
    /// [`Handle::with_device`].
    pub fn with<R>(&self, f: impl FnOnce(&mut Control) -> R) -> R {
        f(&mut self.control.lock())
    }

    /// Runs `f` on the control plane, holding its lock, when no batch of updates is being written to the device.
    pub fn with_device<R>(&self, device_id: u64, f: impl FnOnce(&mut Control) -> R) -> R {
        let turns = self.turns(device_id);
        let _places = turns.wait(Waits::DEVICE);
        let _request = turns.requests.lock();
        self.with(f)
    }

    /// As [`Handle::with_device`], for a task.
    pub(crate) async fn on_device<R: Send + 'static>(
        self: &Arc<Self>,
        device_id: u64,
        f: impl FnOnce(&Handle, &mut Control) -> R + Send + 'static,
    ) -> Result<R, Error> {
        let turns = self.turns_for_task(device_id).await?;
        let places = turns.wait_as_task(Waits::DEVICE).await;
        let handle = Arc::clone(self);
        blocking(move || {
            let _places = places;
            let _request = turns.requests.lock();
            handle.with(|control| f(&handle, control))
        })
        .await
    }

    /// Runs `f` on the control plane, for a task that reads these objects: when no batch is being written that it must
    /// wait for.
    pub(crate) async fn read_objects<R: Send + 'static>(
        self: &Arc<Self>,
        device_id: u64,
        objects: impl Fn(&Schema) -> Objects + Send + Clone + 'static,
        f: impl FnOnce(&mut Control) -> R + Send + 'static,
    ) -> Result<R, Error> {
        let turns = self.turns_for_task(device_id).await?;
        let mut waits = Waits { batches: false, running: false, line: Some(0) };
        let mut todo = f;
        loop {
            let places = turns.wait_as_task(waits).await;
            let (handle, turns, objects) = (Arc::clone(self), Arc::clone(&turns), objects.clone());
            let attempt = move || {
                let request = turns.requests.lock();
                let done =
                    handle.with(|control| match places.running.is_none() && control.is_busy(device_id, objects) {
                        true => Err(todo),
                        false => Ok(todo(control)),
                    });
                drop((request, places));
                done
            };
            match blocking(attempt).await? {
                Ok(done) => return Ok(done),
                Err(again) => todo = again,
            }
            waits = waits.with_batches();
        }
    }

    /// As [`Handle::turns`], for a task.
    async fn turns_for_task(self: &Arc<Self>, device_id: u64) -> Result<Arc<DeviceTurns>, Error> {
        if let Some(turns) = lock(&self.turns).get(&device_id) {
            return Ok(Arc::clone(turns));
        }
        let handle = Arc::clone(self);
        blocking(move || handle.turns(device_id)).await
    }

    /// The locks of a device. Those of a device that does not exist are not kept.
    fn turns(&self, device_id: u64) -> Arc<DeviceTurns> {
        if let Some(turns) = lock(&self.turns).get(&device_id) {
            return Arc::clone(turns);
        }
        match self.with(|control| control.has_device(device_id)) {
            true => Arc::clone(lock(&self.turns).entry(device_id).or_default()),
            false => Arc::default(),
        }
    }

    /// Writes a batch, in turns if it is large.
    ///
    /// # Errors
    ///
    /// The whole request is refused, and nothing was changed.
    pub fn write(&self, request: &Arc<WriteRequest>) -> Result<Written, Error> {
        self.write_in_turns(request, &mut || TURN_MAX)
    }

    /// As [`Handle::write`]; `turn` returns how long the next turn may be, unless all of the batch is one turn.
    fn write_in_turns(
        &self,
        request: &Arc<WriteRequest>,
        turn: &mut dyn FnMut() -> Duration,
    ) -> Result<Written, Error> {
        let turns = self.turns(request.device_id);
        let mut waits = self.waits_of_write(request);
        loop {
            let places = turns.wait(waits);
            if let Some(done) = self.try_write(request, &turns, places, waits, turn) {
                return done;
            }
            waits = waits.with_batches();
        }
    }

    /// As [`Handle::write`], for a task. `then` gets what became of the batch without a lock.
    pub(crate) async fn write_as_task<R: Send + 'static>(
        self: &Arc<Self>,
        request: Arc<WriteRequest>,
        then: impl FnOnce(&Handle, Written) -> R + Send + 'static,
    ) -> Result<R, Error> {
        let turns = self.turns_for_task(request.device_id).await?;
        let mut waits = self.waits_of_write(&request);
        let mut todo = then;
        loop {
            let places = turns.wait_as_task(waits).await;
            let (handle, turns, request) = (Arc::clone(self), Arc::clone(&turns), Arc::clone(&request));
            let attempt = move || match handle.try_write(&request, &turns, places, waits, &mut || TURN_MAX) {
                Some(Ok(written)) => Ok(Ok(todo(&handle, written))),
                Some(Err(error)) => Ok(Err(error)),
                None => Err(todo),
            };
            match blocking(attempt).await? {
                Ok(done) => return done,
                Err(again) => todo = again,
            }
            waits = waits.with_batches();
        }
    }

    fn waits_of_write(&self, request: &WriteRequest) -> Waits {
        let is_large = request.updates.len() > LARGE;
        let line = 1 + self.names.hash_one(&request.role) as usize % (LINES - 1);
        Waits { batches: is_large, running: is_large, line: Some(line) }
    }

    /// Writes a batch that has waited; `None` if it must wait for other batches first.
    fn try_write(
        &self,
        request: &Arc<WriteRequest>,
        turns: &DeviceTurns,
        mut places: Places,
        waits: Waits,
        turn: &mut dyn FnMut() -> Duration,
    ) -> Option<Result<Written, Error>> {
        let mut turn = || if writes::stops_packets(request) { Duration::MAX } else { turn() };
        let mut requests = Some((turns.requests.lock(), places.line.take()));
        let begun = self.with(|control| {
            let objects = |schema: &Schema| writes::objects(schema, request);
            if !waits.running && control.is_busy(request.device_id, objects) {
                return None;
            }
            Some(control.begin_write(request).map(|mut writing| {
                let done = control.write_on(request, &mut writing, &mut ends_after(turn()));
                (writing, done)
            }))
        });
        let (mut writing, mut done) = match begun? {
            Ok(begun) => begun,
            Err(error) => return Some(Err(error)),
        };
        while !done {
            if request.updates.len() > LARGE && !writes::is_atomic(request) {
                // Those that wait are next.
                drop(requests.take());
                let line = turns.wait(Waits { batches: false, running: false, ..waits }).line;
                requests = Some((turns.requests.lock(), line));
            }
            done = self.with(|control| control.write_on(request, &mut writing, &mut ends_after(turn())));
        }
        drop((requests, places));
        Some(Ok(writing.finish()))
    }

    /// Compiles and builds programs, one at a time. It must be called without the control plane's lock.
    ///
    /// # Errors
    ///
    /// The program is refused, or RESOURCE_EXHAUSTED if too many programs wait.
    pub fn prepared(&self, preparation: Preparation) -> Result<Prepared, Error> {
        let (_place, before) = Place::take(&self.programs);
        if before > PROGRAMS_WAITING_MAX {
            let message = format!(
                "{PROGRAMS_WAITING_MAX} other programs wait to be compiled, which is the most: try again later"
            );
            return Err(Error::exhausted(message));
        }
        let _turn = lock(&self.preparing);
        preparation.run()
    }

    /// Replaces the running program without a client, and carries its state over.
    ///
    /// # Errors
    ///
    /// As for [`Control::replace`].
    pub fn replace(&self, device_id: u64, config: ForwardingConfig, losses: Losses) -> Result<Report, Error> {
        let preparation = self.with(|control| control.prepare(device_id, config, true))?;
        let prepared = self.prepared(preparation)?;
        self.with_device(device_id, |control| control.replace_prepared(device_id, prepared, losses))
    }

    /// Restores a journalled config and its entities without a client.
    ///
    /// # Errors
    ///
    /// The program is refused, or the stored entities cannot be decoded.
    pub fn restore(
        &self,
        device_id: u64,
        slot: Slot,
        config: ForwardingConfig,
        entities: &dyn Parts,
    ) -> Result<Restored, Error> {
        let restored = self.with(|control| control.prepare(device_id, config, false))?.restore(entities)?;
        self.with_device(device_id, |control| control.install_restored(device_id, slot, restored))
    }

    /// Loads a program without a client.
    ///
    /// # Errors
    ///
    /// The program is refused, or the switch cannot run it.
    pub fn load(&self, device_id: u64, config: ForwardingConfig) -> Result<(), Error> {
        let preparation = self.with(|control| control.prepare(device_id, config, false))?;
        let prepared = self.prepared(preparation)?;
        self.with_device(device_id, |control| control.load_prepared(device_id, prepared))
    }

    /// Handles a frame that the data plane sent to the controller.
    pub fn packet_in(&self, device_id: u64, frame: &[u8]) {
        self.run(|control| control.packet_in(device_id, frame));
    }

    /// Handles the digest messages since the last call and the passing of time, by any monotonic clock. Returns the
    /// entries that are idle.
    pub fn tick(&self, device_id: u64, digests: &[DigestMessage], now_ns: u64) -> Arc<Vec<TableEntry>> {
        let mut idle = Arc::default();
        self.run(|control| {
            let (events, entries) = control.tick_reporting_idle(device_id, digests, now_ns);
            idle = entries;
            events
        });
        idle
    }

    /// Counts of calls so far.
    pub fn rpcs(&self) -> &Arc<RpcCounts> {
        &self.rpcs
    }

    /// Counts of events that were dropped because clients did not read.
    pub fn lost_events(&self) -> LostEvents {
        let [packets, digests, idle_timeouts] = [0, 1, 2].map(|i: usize| self.lost[i].load(Ordering::Relaxed));
        LostEvents { packets, digests, idle_timeouts }
    }

    /// Runs `f` on the control plane, and queues the resulting events before the lock is released.
    pub(crate) fn run(&self, f: impl FnOnce(&mut Control) -> Events) {
        self.with(|control| self.deliver_all(f(control), control));
    }

    /// Queues events and those that follow, before the lock is released.
    pub(crate) fn deliver_all(&self, mut events: Events, control: &mut Control) {
        // Closing a stream disconnects its client, which causes notifications for others.
        while !events.is_empty() {
            events = self.deliver(events).into_iter().flat_map(|gone| control.disconnect(gone)).collect();
        }
    }

    /// Queues events. Returns the clients whose streams had to be closed.
    fn deliver(&self, events: Events) -> Vec<ClientId> {
        let mut clients = lock(&self.clients);
        let mut gone = Vec::new();
        for (client, event) in events {
            let Some(sender) = clients.get(&client) else { continue };
            let kind = match &event {
                StreamEvent::PacketIn(_) => Some(0),
                StreamEvent::Digest(_) => Some(1),
                StreamEvent::IdleTimeout(_) => Some(2),
                StreamEvent::Error(_) | StreamEvent::Arbitration(_) => None,
            };
            let must_arrive = matches!(event, StreamEvent::Arbitration(_));
            let is_list = matches!(event, StreamEvent::Digest(_) | StreamEvent::IdleTimeout(_));
            let make = || convert::event_to_proto(within_bounds(event));
            let queued = if is_list { sender.offer_list(make) } else { sender.offer(make) };
            if queued {
                continue;
            }
            // Errors are not counted as lost: they concern only the client that caused them.
            kind.into_iter().for_each(|kind| self.count_lost(kind));
            if must_arrive {
                sender.outgoing().cut(events::not_read("it would have missed who is primary"));
                clients.remove(&client);
                gone.push(client);
            }
        }
        gone
    }

    /// Removes a device and ends the streams of its clients with a status. `release` takes it from the data plane; when it
    /// is called, the control plane has nothing against it, and if it fails, the device stays. Clients of the device wait
    /// meanwhile, others do not.
    ///
    /// # Errors
    ///
    /// NOT_FOUND if there is no such device, and the error of `release`.
    pub fn remove_device(&self, device_id: u64, release: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let gone = {
            let turns = self.turns(device_id);
            let _places = turns.wait(Waits::DEVICE);
            let _request = turns.requests.lock();
            self.with(|control| control.check_removable(device_id))?;
            // Without the control plane's lock: workers may take seconds, and clients of other devices do not wait.
            release()?;
            self.with(|control| control.remove_device(device_id))?
        };
        lock(&self.turns).remove(&device_id);
        let mut clients = lock(&self.clients);
        for client in gone {
            if let Some(sender) = clients.remove(&client) {
                // A client that does not read sees the status when its stream ends.
                let why = status::new(Code::NotFound, format!("device {device_id} was unloaded"));
                sender.outgoing().end(why);
            }
        }
        Ok(())
    }

    fn count_lost(&self, kind: usize) {
        self.lost[kind].fetch_add(1, Ordering::Relaxed);
    }

    /// Ends all streams.
    pub(crate) fn close_streams(&self) {
        lock(&self.clients).clear();
    }

    /// Registers the event queue of a client's new stream.
    pub(crate) fn enter(&self, client: ClientId, sender: EventSender) {
        lock(&self.clients).insert(client, sender);
    }

    /// Removes a client whose stream has ended.
    pub(crate) fn leave(&self, client: ClientId) {
        lock(&self.clients).remove(&client);
        self.run(|control| control.disconnect(client));
    }
}

/// Whether a turn that begins now, and may be so long, is over.
fn ends_after(long: Duration) -> impl FnMut() -> bool {
    let start = Instant::now();
    move || start.elapsed() >= long
}

/// A slot among the programs to be prepared; released on drop, so also when preparing one panics.
struct Place<'a>(&'a AtomicUsize);

impl Place<'_> {
    /// Takes a slot. Also returns how many were taken before.
    fn take(places: &AtomicUsize) -> (Place<'_>, usize) {
        (Place(places), places.fetch_add(1, Ordering::AcqRel))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The event, with an error's message and the packet that it returns cut to their limits; the beginning of the packet
/// is enough to recognise it.
fn within_bounds(mut event: StreamEvent) -> StreamEvent {
    if let StreamEvent::Error(error) = &mut event {
        error.error.message = status::cut(std::mem::take(&mut error.error.message));
        if let StreamErrorAbout::PacketOut(packet) = &mut error.about {
            packet.payload.truncate(ECHO_BYTES_MAX);
            let bytes: usize = packet.metadata.iter().map(|(_, value)| value.len() + 8).sum();
            if bytes > ECHO_BYTES_MAX {
                packet.metadata.clear();
            }
        }
    }
    event
}

#[cfg(test)]
mod tests;
