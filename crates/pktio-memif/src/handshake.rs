//! The handshake in both roles: what messages mean, until the rings can be used.
//!
//! ```text
//! server   HELLO        ACK        ACK  ...     ACK          CONNECTED
//! client         INIT   ADD_REGION ...  ADD_RING ... CONNECT
//! ```
//!
//! The server checks each message when it arrives ([`Building`]): indices in order, limits on regions and rings, rings
//! inside regions, region files that are memory and long enough. The client allocates memory within the limits of the
//! server's HELLO ([`Offer`]), and sends one message per acknowledgement.
//!
//! Errors are reasons in words, for the peer and the log. Threads: the service thread. Tests: `tests/hostile.rs`,
//! `tests/pair.rs`.

use crate::layout::{Layout, Made};
use crate::memory::{Memory, REGIONS_MAX, reach};
use crate::port::{Ends, Link, Port, Sender, lock};
use crate::receive::Receiver;
use crate::ring::{MASK_INTERRUPTS, RING_LOG2_MAX, Ring};
use crate::transmit::Transmitter;
use crate::wire::{AddRegion, AddRing, Hello, Init, MODE_ETHERNET, Message, RING_CLIENT_TO_SERVER, VERSION};
use shared_memory::{MapError, PeerFile, Watch, is_huge};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Maximum bytes of a client's regions together: more than any packet program's buffers, and little address space.
const MAPPED_BYTES_MAX: u64 = 64 << 30;

/// Maximum rings of a client in each direction; a port has fewer queues.
const RINGS_MAX: usize = 256;

/// The name that we send to peers.
const NAME: &str = "sluice";

/// The HELLO message of a server with these ports.
pub(crate) fn hello<'a>(ports: impl Iterator<Item = &'a Arc<Port>>) -> Message {
    let most = ports.map(|port| port.queues.len()).max().unwrap_or(1).min(RINGS_MAX) as u16;
    Message::Hello(Hello {
        name: NAME.into(),
        min_version: VERSION,
        max_version: VERSION,
        max_region: REGIONS_MAX as u16 - 1,
        max_to_client: most - 1,
        max_to_server: most - 1,
        max_ring_log2: RING_LOG2_MAX,
    })
}

/// Server side: a client that is announcing its memory and rings.
pub(crate) struct Building {
    pub port: Arc<Port>,
    memory: Memory,
    mapped: u64,
    to_server: Vec<Plan>,
    to_client: Vec<Plan>,
}

/// The announced location of a ring.
struct Plan {
    region: u16,
    offset: u32,
    log2: u8,
    event: Arc<OwnedFd>,
}

impl Building {
    /// Handles a client's INIT.
    ///
    /// # Errors
    /// The version or mode is not supported, or the port is connected or closed for a while.
    pub(crate) fn new(port: Arc<Port>, init: &Init) -> Result<Building, String> {
        if init.version != VERSION {
            return Err(format!("version {:#x} of the protocol is not spoken here", init.version));
        }
        if init.mode != MODE_ETHERNET {
            return Err("only Ethernet frames are carried here".into());
        }
        if port.is_up() {
            return Err("the interface is connected already".into());
        }
        if !lock(&port.pause).left(Instant::now()).is_zero() {
            return Err("the interface is closed for a while: its last client took shared memory away".into());
        }
        let (memory, mapped, to_server, to_client) = (Memory::default(), 0, Vec::new(), Vec::new());
        Ok(Building { port, memory, mapped, to_server, to_client })
    }

    pub(crate) fn add_region(&mut self, region: AddRegion, file: Option<PeerFile>) -> Result<(), String> {
        let AddRegion { index, bytes } = region;
        let file = file.ok_or_else(|| format!("region {index} comes without a file"))?;
        if usize::from(index) != self.memory.region_count() || usize::from(index) >= REGIONS_MAX {
            return Err(format!("region {index} is out of order, or there are more than {REGIONS_MAX}"));
        }
        self.mapped = self.mapped.saturating_add(bytes);
        if self.mapped > MAPPED_BYTES_MAX {
            return Err(format!("regions are larger than {} GiB together", MAPPED_BYTES_MAX >> 30));
        }
        let wrong = |error: MapError| format!("region {index}: {error}");
        let most = self.port.memory_bytes;
        let ordinary = if is_huge(&file).map_err(wrong)? { 0 } else { reach(bytes) };
        if self.memory.ordinary_bytes().saturating_add(ordinary) > most {
            return Err(format!(
                "regions on ordinary pages are larger than {} MB together, which the port's option memory= raises; huge \
                 pages do not count",
                most >> 20
            ));
        }
        self.memory.add(&file, bytes, &self.port.quota).map_err(wrong)
    }

    pub(crate) fn add_ring(&mut self, ring: AddRing, event: Option<PeerFile>) -> Result<(), String> {
        let AddRing { flags, index, region, offset, log2, private_header_bytes } = ring;
        let rings = if flags & RING_CLIENT_TO_SERVER != 0 { &mut self.to_server } else { &mut self.to_client };
        let most = self.port.queues.len().min(RINGS_MAX);
        if usize::from(index) != rings.len() || usize::from(index) >= most {
            return Err(format!("ring {index} is out of order, or there are more than {most} in its direction"));
        }
        if log2 > RING_LOG2_MAX {
            return Err(format!("ring {index} has more than {} descriptors", 1 << RING_LOG2_MAX));
        }
        if private_header_bytes != 0 {
            return Err("private headers are not supported".into());
        }
        let event = event.and_then(|event| event.into_eventfd().ok());
        let event = event.ok_or_else(|| format!("ring {index} comes without an eventfd"))?;
        rings.push(Plan { region, offset, log2, event: Arc::new(event) });
        Ok(())
    }

    /// Handles CONNECT: all regions and rings are announced. Returns the ring ends of each queue.
    ///
    /// # Errors
    /// A ring is not inside its region, or does not start with the cookie.
    pub(crate) fn connect(self, link: &Arc<Link>) -> Result<Vec<Ends>, String> {
        let memory = Arc::new(self.memory);
        let ring = |plan: &Plan, index: usize| {
            let ring = Ring::new(&memory, plan.region, plan.offset, plan.log2)
                .ok_or_else(|| format!("ring {index} does not lie in region {}", plan.region))?;
            if ring.has_cookie() { Ok(ring) } else { Err(format!("ring {index} does not begin as a ring does")) }
        };
        let mut receivers = Vec::new();
        for (index, plan) in self.to_server.iter().enumerate() {
            let ring = ring(plan, index)?;
            ring.set_flags(MASK_INTERRUPTS);
            let receiver = Receiver::of_server(ring, Watch::new(Arc::clone(&plan.event)).ok());
            receiver.begin();
            receivers.push(receiver);
        }
        let mut transmitters = Vec::new();
        for (index, plan) in self.to_client.iter().enumerate() {
            let transmitter = Transmitter::of_server(ring(plan, index)?, self.port.notifier.doorbell(index));
            self.port.notifier.set(index, Some(Arc::clone(&plan.event)));
            transmitter.begin();
            transmitters.push(transmitter);
        }
        Ok(spread(self.port.queues.len(), receivers, transmitters, link))
    }
}

/// Assigns ring ends to queues. A queue has its own receiver or none. If there are fewer
/// rings to send than queues, queues share them.
fn spread(queues: usize, receivers: Vec<Receiver>, transmitters: Vec<Transmitter>, link: &Arc<Link>) -> Vec<Ends> {
    let rings = transmitters.len();
    let senders: Vec<Sender> = if rings < queues {
        let shared: Vec<_> = transmitters.into_iter().map(|ring| Arc::new(Mutex::new(ring))).collect();
        shared.iter().cycle().take(queues).map(|ring| Sender::Shared(Arc::clone(ring))).collect()
    } else {
        transmitters.into_iter().map(|ring| Sender::Own(Box::new(ring))).collect()
    };
    let (mut receivers, mut senders) = (receivers.into_iter(), senders.into_iter());
    let ends = |_| Ends { receiver: receivers.next(), sender: senders.next(), link: Arc::clone(link) };
    (0..queues).map(ends).collect()
}

/// A message to send, and the file to pass with it.
pub(crate) type Outgoing = (Message, Option<Arc<OwnedFd>>);

/// Client side: the regions and rings that we offer.
pub(crate) struct Offer {
    /// Messages not yet sent; one is sent for each acknowledgement.
    messages: VecDeque<Outgoing>,
    receivers: Vec<Receiver>,
    transmitters: Vec<Transmitter>,
}

impl Offer {
    /// Allocates memory within the server's limits.
    ///
    /// # Errors
    /// The server does not support our version, or memory or eventfds cannot be created.
    pub(crate) fn new(port: &Port, hello: &Hello) -> Result<Offer, String> {
        if !(hello.min_version..=hello.max_version).contains(&VERSION) {
            return Err(format!("version {VERSION:#x} of the protocol is not spoken there"));
        }
        let rings = |most: u16| (port.queues.len() as u16).min(most.saturating_add(1));
        let layout = Layout {
            to_server: rings(hello.max_to_server),
            to_client: rings(hello.max_to_client),
            log2: port.ring_log2.min(hello.max_ring_log2),
            buffer_bytes: port.buffer_bytes,
        };
        let system = |error: std::io::Error| format!("no memory to share: {error}");
        let Made { file, rings, .. } = layout.make(&port.quota).map_err(system)?;
        let bytes = layout.bytes().unwrap_or(0);
        let mut messages: VecDeque<Outgoing> = VecDeque::new();
        let init = Init { version: VERSION, id: port.id, mode: MODE_ETHERNET, secret: [0; 24], name: NAME.to_owned() };
        messages.push_back((Message::Init(init), None));
        messages.push_back((Message::AddRegion(AddRegion { index: 0, bytes }), Some(Arc::new(file))));
        let (mut receivers, mut transmitters) = (Vec::new(), Vec::new());
        for (number, (ring, buffers)) in (0..).zip(rings) {
            let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
            let event = Arc::new(rustix::event::eventfd(0, flags).map_err(|error| system(error.into()))?);
            let is_to_server = number < layout.to_server;
            let add = AddRing {
                flags: if is_to_server { RING_CLIENT_TO_SERVER } else { 0 },
                index: if is_to_server { number } else { number - layout.to_server },
                region: 0,
                offset: layout.ring_at(number),
                log2: layout.log2,
                private_header_bytes: 0,
            };
            messages.push_back((Message::AddRing(add), Some(Arc::clone(&event))));
            if is_to_server {
                let number = usize::from(number);
                let transmitter = Transmitter::of_client(ring, buffers, port.notifier.doorbell(number));
                port.notifier.set(number, Some(event));
                transmitters.push(transmitter);
            } else {
                receivers.push(Receiver::of_client(ring, buffers, Watch::new(event).ok()));
            }
        }
        messages.push_back((Message::Connect(port.name.clone()), None));
        Ok(Offer { messages, receivers, transmitters })
    }

    /// The next message, to be sent when the last one was acknowledged; `None` after the last.
    pub(crate) fn next(&mut self) -> Option<Outgoing> {
        self.messages.pop_front()
    }

    /// Whether all messages were sent.
    pub(crate) fn is_complete(&self) -> bool {
        self.messages.is_empty()
    }

    /// Handles CONNECTED: the server has initialised its ring ends. Returns the ring ends of each queue.
    pub(crate) fn connected(self, port: &Port, link: &Arc<Link>) -> Vec<Ends> {
        self.receivers.iter().for_each(Receiver::begin);
        spread(port.queues.len(), self.receivers, self.transmitters, link)
    }
}
