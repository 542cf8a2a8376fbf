//! Opens a port; its control side.
//!
//! Threads: control. Tests: `tests/honest.rs`, `pktio-dpdk/tests/peers.rs`.

use crate::events::Waker;
use crate::lock::Lock;
use crate::memory::Allowed;
use crate::port::{Pair, Port, Rings};
use crate::queue::PairQueue;
use crate::service::{Running, Way};
use pktio::{Bell, Device, Error, LinkState, MacAddress, PoolRef, PortStats, Queue, QueueCounters};
use shared_memory::Notifier;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Maximum number of queue pairs of a port.
pub const QUEUES_MAX: u16 = 64;

/// How a port is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether the port listens at the socket. Otherwise it connects as soon as a front end listens there.
    pub is_server: bool,
    /// Pairs of rings, one per worker; at most [`QUEUES_MAX`].
    pub queues: u16,
    /// MTU in bytes: frames longer than this plus a tagged Ethernet header are not sent.
    pub mtu: u16,
    /// Memory on ordinary (not huge) pages that a front end may share, in bytes.
    pub memory_bytes: u64,
}

struct VhostDevice {
    name: String,
    running: Arc<Running>,
    queues_taken: bool,
}

/// Opens a port at the socket `path`; guests may connect and disconnect at any time. `name` is the port's name in
/// messages. Received packets are allocated from `pool`; packets of any pool can be sent.
///
/// # Errors
/// [`Error::Socket`] if the socket cannot be bound, or an eventfd or the port's thread cannot be created.
pub fn open(name: String, path: &Path, options: &Options, pool: PoolRef) -> Result<Box<dyn Device>, Error> {
    let refuse = |error: io::Error| Error::Socket { path: path.to_owned(), reason: error.to_string() };
    let queues = options.queues.clamp(1, QUEUES_MAX);
    let way = if options.is_server {
        let listener = UnixListener::bind(path).map_err(refuse)?;
        listener.set_nonblocking(true).map_err(refuse)?;
        Way::Listen(listener)
    } else {
        Way::Connect
    };
    let running = start(&name, path, way, &Options { queues, ..*options }, pool).map_err(refuse)?;
    Ok(Box::new(VhostDevice { name, running: Arc::new(running), queues_taken: false }))
}

fn start(name: &str, path: &Path, way: Way, options: &Options, pool: PoolRef) -> io::Result<Running> {
    let (port, calls) = make_port(name, options, pool)?;
    Running::start(port, calls, name.to_owned(), path.to_owned(), way)
}

/// Creates a port that no guest is connected to.
pub(crate) fn make_port(name: &str, options: &Options, pool: PoolRef) -> io::Result<(Arc<Port>, Notifier)> {
    let Options { queues, mtu, memory_bytes, .. } = *options;
    let calls = Notifier::new(name, 2 * usize::from(queues))?;
    let pair = |_| {
        Ok(Pair {
            rings: Lock::new(Rings::default()),
            counters: QueueCounters::default(),
            waker: Waker::new()?,
            can_send: AtomicBool::new(false),
        })
    };
    let port = Port {
        pairs: (0..queues).map(pair).collect::<io::Result<_>>()?,
        pool,
        frame_max: AtomicU32::new(0),
        is_up: AtomicBool::new(false),
        caller: calls.caller(),
        bell: Bell::new()?,
        faults: Mutex::default(),
        sessions: AtomicU64::new(0),
        allowed: Allowed::new(memory_bytes).map_err(io::Error::other)?,
        stops: AtomicBool::new(false),
    };
    port.set_mtu(mtu);
    Ok((Arc::new(port), calls))
}

impl VhostDevice {
    fn port(&self) -> &Port {
        &self.running.port
    }
}

impl Device for VhostDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        "vhost"
    }

    fn queue_count(&self) -> u16 {
        self.port().pairs.len() as u16
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        if std::mem::replace(&mut self.queues_taken, true) {
            return Vec::new();
        }
        let queue = |index| Box::new(PairQueue { running: Arc::clone(&self.running), index }) as Box<dyn Queue>;
        (0..self.port().pairs.len()).map(queue).collect()
    }

    fn pool(&self) -> PoolRef {
        Arc::clone(&self.port().pool)
    }

    fn link(&self) -> LinkState {
        LinkState { up: self.port().is_up.load(Ordering::Acquire), speed_mbps: None }
    }

    fn stats(&self) -> PortStats {
        let mut stats = PortStats::default();
        self.port().pairs.iter().for_each(|pair| stats += pair.counters.read());
        stats
    }

    fn mac(&self) -> Option<MacAddress> {
        None
    }

    fn mtu(&self) -> u16 {
        self.port().mtu()
    }
}
