//! The control plane with its clients' queues, shared between the services and the threads that poll the switch.
//!
//! One lock is held for each use of the control plane. Events are queued while it is held, which preserves their order.
//! A client that does not read loses packets and notifications when its queue (`events`) is full, but never an
//! arbitration update: if one does not fit, the client's stream is closed. Programs are compiled without the lock
//! ([`Handle::prepared`]).
//!
//! Tests: `tests/loopback.rs`, `tests/load.rs`.

use crate::events::{self, EventSender};
use crate::rpcs::RpcCounts;
use crate::status;
use abi::state::DigestMessage;
use control::arbitration::ClientId;
use control::control::{Events, Losses, StreamErrorAbout, StreamEvent};
use control::entity::TableEntry;
use control::forwarding::ForwardingConfig;
use control::journal::Slot;
use control::preparation::{Preparation, Prepared};
use control::reconcile::Report;
use control::restore::{Parts, Restored};
use control::{Control, Error};
use messages::convert;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tonic::Code;

/// Limit on the programs that wait while another one is compiled. Each has its text in memory, and occupies a blocking
/// thread.
const PROGRAMS_WAITING_MAX: usize = 8;

/// Limit on the bytes of a refused packet-out that are returned to its sender with the error.
const ECHO_BYTES_MAX: usize = 16 << 10;

/// The control plane and its clients' queues.
#[derive(Default)]
pub struct Handle {
    control: Mutex<Control>,
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
        Arc::new(Handle { control: Mutex::new(control), ..Handle::default() })
    }

    /// Runs `f` on the control plane, holding its lock.
    pub fn with<R>(&self, f: impl FnOnce(&mut Control) -> R) -> R {
        f(&mut lock(&self.control))
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
        self.with(|control| control.replace_prepared(device_id, prepared, losses))
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
        self.with(|control| control.install_restored(device_id, slot, restored))
    }

    /// Loads a program without a client.
    ///
    /// # Errors
    ///
    /// The program is refused, or the switch cannot run it.
    pub fn load(&self, device_id: u64, config: ForwardingConfig) -> Result<(), Error> {
        let preparation = self.with(|control| control.prepare(device_id, config, false))?;
        let prepared = self.prepared(preparation)?;
        self.with(|control| control.load_prepared(device_id, prepared))
    }

    /// Handles a frame that the data plane sent to the controller.
    pub fn packet_in(&self, device_id: u64, frame: &[u8]) {
        self.run(|control| control.packet_in(device_id, frame));
    }

    /// Handles the digest messages since the last call and the passing of time, by any monotonic clock. Returns the
    /// entries that are idle.
    pub fn tick(&self, device_id: u64, digests: &[DigestMessage], now_ns: u64) -> Vec<TableEntry> {
        let mut idle = Vec::new();
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
        let mut control = lock(&self.control);
        let mut events = f(&mut control);
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
            if sender.offer(|| convert::event_to_proto(within_bounds(event))) {
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

    /// Removes a device and ends the streams of its clients with a status.
    ///
    /// # Errors
    ///
    /// NOT_FOUND if there is no such device.
    pub fn remove_device(&self, device_id: u64) -> Result<(), Error> {
        let gone = self.with(|control| control.remove_device(device_id))?;
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
