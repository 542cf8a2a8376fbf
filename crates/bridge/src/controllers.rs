//! The bridge's side of its connections: subscriptions, and queues of asynchronous messages.
//!
//! Workers and other connections push events into an [`Endpoint`]'s queue; the connection pops them when its output
//! has room (`crate::connection`). Packet-ins that exceed a bound are dropped and counted. Other events are never
//! dropped silently: a connection whose queue exceeds a bound is closed. Queues are bounded in the number of
//! messages and in bytes: in total, and for one connection by what the others leave free (`crate::memory`).

use crate::flow::Flow;
use crate::memory::{Charge, Pool};
use crate::tables::limit;
use openflow::message::{AsyncConfig, FlowMonitor, PacketIn, RemovedReason, Role, UpdateEvent};
use openflow::{Message, Version};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// `OFPR_` reasons of packet-ins.
pub mod packet_in_reason {
    /// A table miss, or a table-miss flow.
    pub const TABLE_MISS: u8 = 0;
    /// An output action.
    pub const ACTION: u8 = 1;
    /// An invalid TTL.
    pub const INVALID_TTL: u8 = 2;
    /// An output of the action set (1.4).
    pub const ACTION_SET: u8 = 3;
    /// An output of a group bucket (1.4).
    pub const GROUP: u8 = 4;
    /// An output of a packet-out (1.4).
    pub const PACKET_OUT: u8 = 5;
}

/// A packet-in for all connections that want it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketInEvent {
    /// The controller id of its receivers; 0 unless a controller has set another one.
    pub controller: u16,
    /// Maximum number of bytes of the frame to send; `0xffff` for all.
    pub max_len: u16,
    /// Whether it is a table miss without a flow: it goes to controllers that want these, with their own
    /// `miss_send_len`.
    pub is_miss: bool,
    /// The port on which it was received.
    pub in_port: u32,
    /// The packet with its reason, and with a continuation if it is paused.
    pub packet: PacketIn,
}

/// An update of a flow monitor.
#[derive(Clone, Debug)]
pub(crate) enum Update {
    /// What happened to a flow.
    Full { event: UpdateEvent, reason: RemovedReason, flow: Arc<Flow>, has_instructions: bool },
    /// The connection's own request with this xid took effect.
    Abbreviated(u32),
    /// Updates are paused (`true`) or resume (`false`).
    Paused(bool),
}

/// An event queued for a connection.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A packet-in.
    PacketIn(Arc<PacketInEvent>),
    /// A flow was removed at `at_us`.
    FlowRemoved { flow: Arc<Flow>, reason: RemovedReason, at_us: u64 },
    /// An update of a flow monitor.
    Update(Update),
    /// Another message.
    Message(Box<Message>),
}

impl Event {
    /// Bytes that the event takes in the queue. A flow counts fully, because it may be gone from its table.
    fn bytes(&self) -> u64 {
        // The queue's capacity may be twice its length.
        let own = 2 * size_of::<Event>();
        let shared = match self {
            Event::PacketIn(packet) => {
                (size_of::<PacketInEvent>() + openflow::memory::packet_in(&packet.packet)) as u64
            }
            Event::FlowRemoved { flow, .. } | Event::Update(Update::Full { flow, .. }) => flow.charge.bytes(),
            Event::Update(_) => 0,
            Event::Message(message) => (size_of::<Message>() + openflow::memory::message(message)) as u64,
        };
        own as u64 + shared
    }
}

/// A type of asynchronous messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    PacketIn,
    PortStatus,
    FlowRemoved,
    RoleStatus,
    TableStatus,
    Requestforward,
}

/// A connection's settings and subscriptions.
#[derive(Debug)]
pub(crate) struct Status {
    /// The version, once negotiated.
    pub version: Option<Version>,
    pub role: Role,
    /// The short id (1.5).
    pub short: u16,
    /// The asynchronous configuration, if it has been set.
    pub asynchronous: Option<AsyncConfig>,
    pub miss_send_len: u16,
    /// The controller id (Nicira's extension).
    pub controller: u16,
    pub monitors: BTreeMap<u32, FlowMonitor>,
    /// Since when flow monitors are paused.
    pub paused_us: Option<u64>,
}

/// A connection, as the rest of the bridge sees it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub id: u64,
    /// Whether it is a management connection, which gets no asynchronous messages unless it asks for them.
    pub is_service: bool,
    pub uri: String,
    status: Mutex<Status>,
    queue: Mutex<Queue>,
    packet_ins_dropped: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    events: VecDeque<Event>,
    packet_ins: VecDeque<Arc<PacketInEvent>>,
    packet_in_bytes: usize,
    updates: usize,
    is_overrun: bool,
    /// The queue's charge to the memory pool.
    charge: Charge,
}

/// Default of the bytes of a table miss that are sent (`OFP_DEFAULT_MISS_SEND_LEN`).
const MISS_SEND_LEN: u16 = 128;
/// Queued updates at which flow monitors are paused.
const UPDATES_MAX: usize = 4096;

impl Endpoint {
    pub fn new(id: u64, is_service: bool, uri: String, memory: &Arc<Pool>) -> Endpoint {
        let status = Status {
            version: None,
            role: Role::Equal,
            short: u16::MAX,
            asynchronous: None,
            miss_send_len: if is_service { 0 } else { MISS_SEND_LEN },
            controller: 0,
            monitors: BTreeMap::new(),
            paused_us: None,
        };
        let queue = Queue {
            events: VecDeque::new(),
            packet_ins: VecDeque::new(),
            packet_in_bytes: 0,
            updates: 0,
            is_overrun: false,
            charge: Charge::nothing(memory),
        };
        Endpoint {
            id,
            is_service,
            uri,
            status: Mutex::new(status),
            queue: Mutex::new(queue),
            packet_ins_dropped: AtomicU64::new(0),
        }
    }

    /// Locks its settings and subscriptions.
    pub fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pushes an event. Returns whether the queue was empty, in which case the connection must be woken.
    pub fn push(&self, event: Event) -> bool {
        let mut queue = self.queue();
        let was_empty = queue.events.is_empty() && queue.packet_ins.is_empty();
        if queue.is_overrun {
            return false;
        }
        let cost = event.bytes();
        let own = queue.charge.bytes();
        match event {
            Event::PacketIn(packet) => {
                let bytes = packet.packet.frame.len() + packet.packet.userdata.len();
                if queue.packet_ins.len() >= limit::PACKET_INS
                    || queue.packet_in_bytes + bytes > limit::PACKET_IN_BYTES
                    || !queue.charge.grow(cost, own)
                {
                    self.packet_ins_dropped.fetch_add(1, Ordering::Relaxed);
                    return false;
                }
                queue.packet_in_bytes += bytes;
                queue.packet_ins.push_back(packet);
            }
            event if queue.events.len() < limit::EVENTS && queue.charge.grow(cost, own) => {
                queue.updates += usize::from(matches!(event, Event::Update(_)));
                queue.events.push_back(event);
            }
            _ => {
                queue.is_overrun = true;
                queue.events = VecDeque::new();
                queue.packet_ins = VecDeque::new();
                (queue.updates, queue.packet_in_bytes) = (0, 0);
                queue.charge.shrink(own);
            }
        }
        was_empty
    }

    /// Pops the next event; packet-ins come last.
    pub fn pop(&self) -> Option<Event> {
        let mut queue = self.queue();
        if let Some(event) = queue.events.pop_front() {
            queue.updates -= usize::from(matches!(event, Event::Update(_)));
            queue.charge.shrink(event.bytes());
            return Some(event);
        }
        let packet = queue.packet_ins.pop_front()?;
        queue.packet_in_bytes -= packet.packet.frame.len() + packet.packet.userdata.len();
        let event = Event::PacketIn(packet);
        queue.charge.shrink(event.bytes());
        Some(event)
    }

    /// Bytes of queued events.
    pub fn queued_bytes(&self) -> u64 {
        self.queue().charge.bytes()
    }

    /// Whether the queue is empty.
    pub fn is_idle(&self) -> bool {
        let queue = self.queue();
        queue.events.is_empty() && queue.packet_ins.is_empty()
    }

    /// Whether so many updates are queued that flow monitors must be paused.
    pub fn is_behind(&self) -> bool {
        self.queue().updates >= UPDATES_MAX
    }

    /// Whether the queue has exceeded its bounds; the connection is to be closed.
    pub fn is_overrun(&self) -> bool {
        self.queue().is_overrun
    }

    /// The number of dropped packet-ins.
    pub fn packet_ins_dropped(&self) -> u64 {
        self.packet_ins_dropped.load(Ordering::Relaxed)
    }
}

impl Status {
    /// The asynchronous configuration in effect.
    pub fn asynchronous(&self) -> AsyncConfig {
        match (self.asynchronous, self.version) {
            (Some(set), _) => set,
            (None, Some(version)) => default_async(version),
            (None, None) => AsyncConfig::default(),
        }
    }

    /// Whether it receives asynchronous messages of this type and reason. As in Open vSwitch, a management
    /// connection receives none until it sets a `miss_send_len` other than 0.
    pub fn receives(&self, is_service: bool, kind: Kind, reason: u8) -> bool {
        if self.version.is_none() || is_service && self.miss_send_len == 0 {
            return false;
        }
        let config = self.asynchronous();
        let masks = match kind {
            Kind::PacketIn => config.packet_in,
            Kind::PortStatus => config.port_status,
            Kind::FlowRemoved => config.flow_removed,
            Kind::RoleStatus => config.role_status,
            Kind::TableStatus => config.table_status,
            Kind::Requestforward => config.requestforward,
        };
        masks[usize::from(self.role == Role::Slave)] >> reason & 1 == 1
    }

    /// Whether it receives packets of table misses without a flow. By default, OpenFlow 1.0 sends these to
    /// controllers; later versions drop them.
    pub fn wants_misses(&self, is_service: bool) -> bool {
        self.version == Some(Version::V10) && self.receives(is_service, Kind::PacketIn, packet_in_reason::TABLE_MISS)
    }
}

/// The default asynchronous configuration (OpenFlow 1.3.5, 6.3.6 and 7.3.10).
fn default_async(version: Version) -> AsyncConfig {
    let packet_in = 0b11_1111 & !(1 << packet_in_reason::INVALID_TTL);
    let flow_removed = if version >= Version::V14 { 0b11_1111 } else { 0b1111 };
    AsyncConfig {
        packet_in: [packet_in, 0],
        port_status: [0b111, 0b111],
        flow_removed: [flow_removed, 0],
        role_status: [0b111, 0b111],
        table_status: [0b1_1000, 0],
        requestforward: [0, 0],
    }
}
