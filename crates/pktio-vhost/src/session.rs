//! The state that one front end has set up, and the rings built from it.
//!
//! A ring is ready when its size and addresses are set, its kick message has arrived, and it is enabled (or the front
//! end did not negotiate protocol features, in which case there is no enabling). Only `rebuild` makes a ring: it takes
//! the old ring from its worker, saves its index, and checks everything again: size, format, alignment, and that each
//! part lies in the current memory table. It runs for one ring after every message about it, and for all rings after a
//! message about features, memory or the log. So no check of an earlier size, format or table is ever relied on.
//!
//! Threads: the port's service thread. Tests: `tests/hostile.rs`, `tests/honest.rs`; fuzzed by `fuzz`.

use crate::events;
use crate::memory::{Log, Memory};
use crate::message::{self, Message, REGIONS_MAX, Request, RingAddress, RingFile};
use crate::port::{Found, Port};
use crate::ring::Ring;
use crate::terms::{Fault, Parts, SIZE_MAX, Terms};
use crate::{packed, split};
use pktio::offload::{Accepted, GsoType};
use shared_memory::{Notifier, PeerFile};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Number of rings that a front end may name: those of the largest port, even if this one has fewer.
const RINGS_MAX: usize = 2 * crate::QUEUES_MAX as usize;

const fn bits(numbers: &[u32]) -> u64 {
    let (mut all, mut i) = (0, 0);
    while i < numbers.len() {
        all |= 1 << numbers[i];
        i += 1;
    }
    all
}

// Feature bits: virtio 1.2, 5.1.3 and 6, and the protocol's own.
const F_CSUM: u32 = 0;
const F_GUEST_CSUM: u32 = 1;
const F_MTU: u32 = 3;
const F_GSO: u32 = 6;
const F_GUEST_TSO4: u32 = 7;
const F_GUEST_TSO6: u32 = 8;
const F_HOST_TSO4: u32 = 11;
const F_HOST_TSO6: u32 = 12;
const F_MRG_RXBUF: u32 = 15;
const F_CTRL_VQ: u32 = 17;
const F_CTRL_RX: u32 = 18;
const F_MQ: u32 = 22;
const F_LOG_ALL: u32 = 26;
const F_ANY_LAYOUT: u32 = 27;
const F_PROTOCOL_FEATURES: u32 = 30;
const F_VERSION_1: u32 = 32;
const F_RING_PACKED: u32 = 34;
const F_IN_ORDER: u32 = 35;

/// Virtio features that are offered.
pub(crate) const FEATURES: u64 = bits(&[
    F_CSUM,
    F_GUEST_CSUM,
    F_MTU,
    F_GSO,
    F_GUEST_TSO4,
    F_GUEST_TSO6,
    F_HOST_TSO4,
    F_HOST_TSO6,
    F_MRG_RXBUF,
    F_CTRL_VQ,
    F_CTRL_RX,
    F_MQ,
    F_LOG_ALL,
    F_ANY_LAYOUT,
    F_PROTOCOL_FEATURES,
    F_VERSION_1,
    F_RING_PACKED,
    F_IN_ORDER,
]);

const P_REPLY_ACK: u32 = 3;

/// Protocol features that are offered: multiqueue, dirty log in a file, RARP, reply acknowledgement, MTU, memory slots,
/// status. After a migration the guest announces itself, so a RARP request is accepted and does nothing.
pub(crate) const PROTOCOL_FEATURES: u64 = bits(&[0, 1, 2, P_REPLY_ACK, 4, 15, 16]);

/// What the front end has set for one ring.
#[derive(Default)]
struct RingState {
    size: u32,
    address: Option<RingAddress>,
    base: u32,
    is_started: bool,
    is_enabled: bool,
    kick: Option<OwnedFd>,
    /// Whether the ring is published to its worker.
    is_in_place: bool,
}

pub(crate) struct Session {
    /// Distinguishes this session's faults from those of others; the first session is 1.
    id: u64,
    port: Arc<Port>,
    calls: Arc<Notifier>,
    memory: Arc<Memory>,
    log: Option<Arc<Log>>,
    features: u64,
    protocol_features: u64,
    status: u64,
    rings: Vec<RingState>,
}

/// Why a request was refused, for the log; ends the connection.
pub(crate) type Refusal = String;

impl Session {
    pub(crate) fn new(port: &Arc<Port>, calls: &Arc<Notifier>) -> Session {
        Session {
            id: port.sessions.fetch_add(1, Ordering::Relaxed) + 1,
            port: Arc::clone(port),
            calls: Arc::clone(calls),
            memory: Arc::default(),
            log: None,
            features: 0,
            protocol_features: 0,
            status: 0,
            rings: (0..RINGS_MAX).map(|_| RingState::default()).collect(),
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Handles a message. Returns the reply's bytes, if there is one, and whether the request was refused.
    pub(crate) fn handle(&mut self, message: &Message, files: Vec<PeerFile>) -> (Option<Vec<u8>>, Result<(), Refusal>) {
        let number = |value: u64| value.to_ne_bytes().to_vec();
        let answer = match message.request {
            Request::GetFeatures => Some(number(FEATURES)),
            Request::GetProtocolFeatures => Some(number(PROTOCOL_FEATURES)),
            // A guest may have more pairs than there are workers; it uses as many as are served.
            Request::GetQueueCount => Some(number(crate::QUEUES_MAX.into())),
            Request::GetMaxMemSlots => Some(number(REGIONS_MAX as u64)),
            Request::GetStatus => Some(number(self.status)),
            Request::GetRingBase { ring } => match self.stop_ring(ring) {
                Ok(base) => Some([ring, base].map(u32::to_ne_bytes).concat()),
                Err(refusal) => return (None, Err(refusal)),
            },
            _ => None,
        };
        if let Some(answer) = answer {
            return (Some(message::reply(message.code, &answer)), Ok(()));
        }
        let result = self.change(&message.request, files);
        let reply = match message.request {
            // QEMU expects a reply without a payload here.
            Request::SetLogBase { .. } if result.is_ok() => Some(message::reply(message.code, &[])),
            _ if message.needs_reply && self.protocol_features >> P_REPLY_ACK & 1 != 0 => {
                Some(message::reply(message.code, &number(result.is_err().into())))
            }
            _ => None,
        };
        (reply, result)
    }

    /// Handles a request that is not answered with a value.
    fn change(&mut self, request: &Request, mut files: Vec<PeerFile>) -> Result<(), Refusal> {
        match *request {
            Request::SetFeatures(features) => {
                if features & !FEATURES != 0 {
                    return Err(format!("features {:#x}, which were not offered", features & !FEATURES));
                }
                self.features = features;
                self.rebuild_all();
            }
            Request::SetProtocolFeatures(features) => {
                if features & !PROTOCOL_FEATURES != 0 {
                    let unknown = features & !PROTOCOL_FEATURES;
                    return Err(format!("protocol features {unknown:#x}, which were not offered"));
                }
                self.protocol_features = features;
            }
            Request::SetMemTable(ref regions) => {
                if regions.len() != files.len() {
                    return Err(format!("{} memory regions with {} files", regions.len(), files.len()));
                }
                // The old table is unmapped before the new one is mapped, so that the quota does not count both.
                self.take_all();
                self.memory = Arc::default();
                let mut memory = Memory::default();
                for (number, (region, file)) in regions.iter().zip(&files).enumerate() {
                    let with = memory.with(*region, file, &self.port.allowed);
                    memory = with.map_err(|error| format!("memory region {number}: {error}"))?;
                }
                self.set_memory(memory);
            }
            Request::AddMemRegion(region) => {
                let file = files.pop().ok_or("a memory region without a file")?;
                if self.memory.len() >= REGIONS_MAX {
                    return Err(format!("more than {REGIONS_MAX} memory regions"));
                }
                let memory = self
                    .memory
                    .with(region, &file, &self.port.allowed)
                    .map_err(|error| format!("a memory region: {error}"))?;
                self.set_memory(memory);
            }
            Request::RemoveMemRegion(region) => {
                let memory = self.memory.without(region).map_err(|error| format!("a memory region: {error}"))?;
                self.set_memory(memory);
            }
            Request::SetLogBase { bytes, offset } => {
                let file = files.pop().ok_or("a log of written pages without a file")?;
                let log = Log::new(&file, bytes, offset, &self.port.allowed);
                let log = log.map_err(|error| format!("the log of written pages: {error}"))?;
                self.log = Some(Arc::new(log));
                self.rebuild_all();
            }
            Request::SetRingSize { ring, size } => {
                if size == 0 || size > SIZE_MAX {
                    return Err(format!("ring {ring}: {size} places, at most {SIZE_MAX}"));
                }
                self.ring(ring)?.size = size;
                self.rebuild(ring as usize);
            }
            Request::SetRingAddress { ring, address } => {
                self.ring(ring)?.address = Some(address);
                self.rebuild(ring as usize);
            }
            Request::SetRingBase { ring, base } => {
                // The new base applies to a running ring too: it is stopped first, since that overwrites `base`.
                self.ring(ring)?;
                self.take(ring as usize);
                self.ring(ring)?.base = base;
                self.rebuild(ring as usize);
            }
            Request::SetRingFile { ring, which, has_file } => self.set_file(ring, which, has_file, files)?,
            Request::EnableRing { ring, enable } => {
                self.ring(ring)?.is_enabled = enable;
                self.rebuild(ring as usize);
            }
            Request::ResetOwner | Request::ResetDevice => {
                for ring in 0..RINGS_MAX {
                    self.take(ring);
                    self.rings[ring].is_started = false;
                }
                self.settle();
            }
            Request::SetStatus(status) => self.status = status & 0xff,
            Request::SetOwner | Request::SetLogFile | Request::SendRarp | Request::SetMtu(_) => {}
            Request::GetFeatures
            | Request::GetProtocolFeatures
            | Request::GetQueueCount
            | Request::GetMaxMemSlots
            | Request::GetStatus
            | Request::GetRingBase { .. } => {}
        }
        Ok(())
    }

    fn ring(&mut self, ring: u32) -> Result<&mut RingState, Refusal> {
        self.rings.get_mut(ring as usize).ok_or_else(|| format!("ring {ring} of at most {RINGS_MAX}"))
    }

    fn set_file(
        &mut self,
        ring: u32,
        which: RingFile,
        has_file: bool,
        mut files: Vec<PeerFile>,
    ) -> Result<(), Refusal> {
        self.ring(ring)?;
        let file = if has_file { files.pop() } else { None };
        let name = match which {
            RingFile::Kick => "kick",
            RingFile::Call => "call",
            // Error eventfds are never written.
            RingFile::Error => return Ok(()),
        };
        let file =
            file.map(events::checked).transpose().map_err(|error| format!("ring {ring}: its {name} file: {error}"))?;
        let index = ring as usize;
        if which == RingFile::Kick {
            self.take(index);
            self.rings[index].kick = file;
            self.rings[index].is_started = true;
            self.rebuild(index);
        } else if index < 2 * self.port.pairs.len() {
            self.calls.set(index, file.map(Arc::new));
        }
        Ok(())
    }

    /// Stops a ring and returns its index.
    fn stop_ring(&mut self, ring: u32) -> Result<u32, Refusal> {
        self.ring(ring)?;
        let index = ring as usize;
        self.take(index);
        if index < 2 * self.port.pairs.len() {
            self.calls.set(index, None);
        }
        let state = &mut self.rings[index];
        state.is_started = false;
        state.kick = None;
        let base = state.base;
        self.settle();
        Ok(base)
    }

    fn set_memory(&mut self, memory: Memory) {
        self.take_all();
        self.memory = Arc::new(memory);
        self.rebuild_all();
    }

    fn take_all(&mut self) {
        (0..RINGS_MAX).for_each(|ring| self.take(ring));
    }

    fn rebuild_all(&mut self) {
        (0..RINGS_MAX).for_each(|ring| self.rebuild(ring));
    }

    /// Takes a ring from its worker, if it has it. Afterwards no worker uses it, and `base` is its index.
    fn take(&mut self, index: usize) {
        let state = &mut self.rings[index];
        if !std::mem::take(&mut state.is_in_place) {
            return;
        }
        let pair = &self.port.pairs[index / 2];
        let mut rings = pair.rings.lock();
        let ring = if index.is_multiple_of(2) { rings.to_guest.take() } else { rings.from_guest.take() };
        if index.is_multiple_of(2) {
            pair.can_send.store(false, Ordering::Relaxed);
        } else {
            rings.has_kick = false;
        }
        drop(rings);
        // Dropped here, outside the lock.
        if let Some(mut ring) = ring {
            state.base = ring.base();
            if ring.take_call() {
                self.port.caller.call(index);
            }
        }
        if let Some(kick) = state.kick.as_ref().filter(|_| index % 2 == 1) {
            pair.waker.forget(kick);
        }
    }

    /// Builds a ring from the current state, and publishes it to its worker.
    fn rebuild(&mut self, index: usize) {
        self.take(index);
        if index < 2 * self.port.pairs.len() && self.is_ready(index) {
            match self.make(index) {
                Some(ring) => self.put(index, ring),
                // The service thread logs it, at a bounded rate.
                None => self.port.report(Found { session: self.id, ring: index, fault: Fault::Unfit }),
            }
        }
        self.settle();
    }

    fn is_ready(&self, index: usize) -> bool {
        let state = &self.rings[index];
        let is_enabled = state.is_enabled || self.features >> F_PROTOCOL_FEATURES & 1 == 0;
        state.is_started && is_enabled && state.size != 0 && state.address.is_some()
    }

    /// Builds the ring; `None` if it is invalid.
    fn make(&self, index: usize) -> Option<Ring> {
        let state = &self.rings[index];
        let address = state.address?;
        let has = |feature: u32| self.features >> feature & 1 != 0;
        let is_packed = has(F_RING_PACKED);
        let size = u16::try_from(state.size).ok()?;
        let [descriptors, driver, device] = if is_packed { packed::layout(size) } else { split::layout(size) };
        let place = |user, (len, align)| self.memory.place(user, len, align);
        let log = self.log.clone().filter(|_| has(F_LOG_ALL));
        let parts = Parts {
            size,
            descriptors: place(address.descriptors, descriptors)?,
            driver: place(address.available, driver)?,
            device: place(address.used, device)?,
            log_at: (address.logs && log.is_some()).then_some(address.log),
        };
        let kind = |feature, kind: GsoType| if has(feature) { 1 << kind as u8 } else { 0 };
        let takes = kind(F_GUEST_TSO4, GsoType::TcpV4) | kind(F_GUEST_TSO6, GsoType::TcpV6);
        // Before virtio 1.0, `F_GSO` stood for all GSO types.
        let gives = |feature, of| kind(feature, of) | kind(F_GSO, of);
        let large = gives(F_HOST_TSO4, GsoType::TcpV4) | gives(F_HOST_TSO6, GsoType::TcpV6);
        let terms = Terms {
            header_bytes: if has(F_MRG_RXBUF) || has(F_VERSION_1) { 12 } else { 10 },
            mergeable: has(F_MRG_RXBUF),
            leaves_work: [F_CSUM, F_GSO, F_HOST_TSO4, F_HOST_TSO6].into_iter().any(has),
            takes: if has(F_GUEST_CSUM) { takes } else { 0 },
            accepts: Accepted { checksums: has(F_CSUM), large: if has(F_CSUM) { large } else { 0 } },
            log,
        };
        Ring::new(Arc::clone(&self.memory), parts, is_packed, state.base, terms)
    }

    fn put(&mut self, index: usize, mut ring: Ring) {
        let pair = &self.port.pairs[index / 2];
        let state = &mut self.rings[index];
        state.is_in_place = true;
        let is_from_guest = index % 2 == 1;
        let mut has_kick = false;
        if is_from_guest && let Some(kick) = &state.kick {
            has_kick = pair.waker.watch(kick).is_ok();
        }
        // A worker that polls need not be kicked. Written before the lock is taken: the access may wait for the front end.
        ring.want_kicks(false);
        let mut rings = pair.rings.lock();
        rings.session = self.id;
        if is_from_guest {
            rings.from_guest = Some(ring);
            rings.has_kick = has_kick;
        } else {
            rings.to_guest = Some(ring);
            pair.can_send.store(true, Ordering::Relaxed);
        }
        let is_armed = rings.is_armed;
        drop(rings);
        if is_armed {
            // The sleeping worker must enable kicks on the new ring.
            pair.waker.wake();
        }
    }

    /// Updates the link state: up if both rings of the first pair are in use.
    fn settle(&self) {
        let is_up = self.rings[..2].iter().all(|ring| ring.is_in_place);
        self.port.is_up.store(is_up, Ordering::Release);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for index in 0..RINGS_MAX {
            self.take(index);
        }
        for index in 0..2 * self.port.pairs.len() {
            self.calls.set(index, None);
        }
        self.port.is_up.store(false, Ordering::Release);
    }
}
