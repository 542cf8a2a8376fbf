//! The control plane with its clients, shared between the services and those who feed the switch.
//!
//! One lock is held for each use of the control plane. Events are queued while it is held, which keeps them in order. A client
//! that does not read loses packets and notifications once its queue (`events`) is full; it never loses an arbitration
//! update: its stream is closed instead. Programs are compiled without the lock ([`Handle::prepared`]).
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

/// Programs that may wait for another one that is being compiled. Each has its text in memory, and a thread of those for requests.
const PROGRAMS_WAITING_MAX: usize = 8;

/// Bytes of a packet-out that is sent back to who sent it, with what was wrong about it.
const ECHO_BYTES_MAX: usize = 16 << 10;

/// The control plane, shared between the service and those who feed it.
#[derive(Default)]
pub struct Handle {
    control: Mutex<Control>,
    clients: Mutex<HashMap<ClientId, EventSender>>,
    lost: [AtomicU64; 3],
    rpcs: Arc<RpcCounts>,
    /// Held while a program is prepared.
    preparing: Mutex<()>,
    /// Programs that are prepared or wait for that.
    programs: AtomicUsize,
}

/// Events that clients did not take in time, so that they were dropped.
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
    /// Shares a control plane.
    pub fn new(control: Control) -> Arc<Handle> {
        Arc::new(Handle { control: Mutex::new(control), ..Handle::default() })
    }

    /// Does something with the control plane, for the command line.
    pub fn with<R>(&self, f: impl FnOnce(&mut Control) -> R) -> R {
        f(&mut lock(&self.control))
    }

    /// Compiles and builds a program, one at a time; to be called without the control plane.
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

    /// Replaces the running program without a client, with what was written into it.
    pub fn replace(&self, device_id: u64, config: ForwardingConfig, losses: Losses) -> Result<Report, Error> {
        let preparation = self.with(|control| control.prepare(device_id, config, true))?;
        let prepared = self.prepared(preparation)?;
        self.with(|control| control.replace_prepared(device_id, prepared, losses))
    }

    /// Puts a kept config and its entities back without a client.
    pub fn restore(
        &self,
        device_id: u64,
        slot: Slot,
        config: ForwardingConfig,
        entities: &dyn Parts,
    ) -> Result<Restored, Error> {
        let restored = self.with(|control| control.prepare(device_id, config, false))?.restore(entities)?;
        self.with(|control| control.put_back(device_id, slot, restored))
    }

    /// Loads a program without a client.
    pub fn load(&self, device_id: u64, config: ForwardingConfig) -> Result<(), Error> {
        let preparation = self.with(|control| control.prepare(device_id, config, false))?;
        let prepared = self.prepared(preparation)?;
        self.with(|control| control.load_prepared(device_id, prepared))
    }

    /// A frame that the data plane sent to the controller.
    pub fn packet_in(&self, device_id: u64, frame: &[u8]) {
        self.run(|control| control.packet_in(device_id, frame));
    }

    /// Digest messages since the last call, and the passing of time on any steady clock. Returns entries that are idle.
    pub fn tick(&self, device_id: u64, digests: &[DigestMessage], now_ns: u64) -> Vec<TableEntry> {
        let mut idle = Vec::new();
        self.run(|control| {
            let (events, entries) = control.tick_telling(device_id, digests, now_ns);
            idle = entries;
            events
        });
        idle
    }

    /// Calls so far.
    pub fn rpcs(&self) -> &Arc<RpcCounts> {
        &self.rpcs
    }

    /// Events that clients did not take in time.
    pub fn lost_events(&self) -> LostEvents {
        let [packets, digests, idle_timeouts] = [0, 1, 2].map(|i: usize| self.lost[i].load(Ordering::Relaxed));
        LostEvents { packets, digests, idle_timeouts }
    }

    /// Does something with the control plane, and queues the events that come of it while the lock is held.
    pub(crate) fn run(&self, f: impl FnOnce(&mut Control) -> Events) {
        let mut control = lock(&self.control);
        let mut events = f(&mut control);
        // Closing a stream makes its client leave, of which others hear.
        while !events.is_empty() {
            events = self.deliver(events).into_iter().flat_map(|gone| control.disconnect(gone)).collect();
        }
    }

    /// Queues events; returns clients that had to be dropped.
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
            // An error is the client's own doing, and news to nobody else.
            kind.into_iter().for_each(|kind| self.count_lost(kind));
            if must_arrive {
                sender.outgoing().cut(events::not_read("it would have missed who is primary"));
                clients.remove(&client);
                gone.push(client);
            }
        }
        gone
    }

    /// Removes a device and ends the streams of its clients, who are told.
    pub fn remove_device(&self, device_id: u64) -> Result<(), Error> {
        let gone = self.with(|control| control.remove_device(device_id))?;
        let mut clients = lock(&self.clients);
        for client in gone {
            if let Some(sender) = clients.remove(&client) {
                // Who does not read finds out when the stream ends.
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

    /// A client's stream begins; its events go into this queue.
    pub(crate) fn enter(&self, client: ClientId, sender: EventSender) {
        lock(&self.clients).insert(client, sender);
    }

    /// A client's stream is over.
    pub(crate) fn leave(&self, client: ClientId) {
        lock(&self.clients).remove(&client);
        self.run(|control| control.disconnect(client));
    }
}

/// A place among the programs that are prepared, given back also when preparing one panics.
struct Place<'a>(&'a AtomicUsize);

impl Place<'_> {
    /// A place, and how many were taken before.
    fn take(places: &AtomicUsize) -> (Place<'_>, usize) {
        (Place(places), places.fetch_add(1, Ordering::AcqRel))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An error goes with what it is about, of which the beginning is enough to know it by.
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
