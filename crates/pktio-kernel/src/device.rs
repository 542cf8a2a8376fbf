//! Opens ports to the kernel; their control side.
//!
//! Threads: control. `port` handles changes of a port's interface.

use crate::interface::{link_state, links, refused};
use crate::io::{Kind, Sockets, open_tap};
use crate::links::{Links, Watcher};
use crate::port::{Port, State, lock};
use crate::queue::KernelQueue;
use pktio::{
    Device, DeviceSpec, Error, FRAME_HEADER_MAX, LinkState, MacAddress, PoolRef, PortOptions, PortStats, Queue,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum queues of a port.
pub const QUEUES_MAX: u16 = 64;

/// Creates the sockets of a port that will be opened later. They receive nothing yet.
pub(crate) fn prepare(spec: &DeviceSpec, interface: &str, options: &PortOptions) -> Result<Sockets, Error> {
    let device = spec.to_string();
    let known = links(&device)?.named(interface);
    let known = known.ok_or_else(|| Error::NoSuchInterface { interface: interface.to_owned() })?;
    let mtu = options.mtu.map_or(known.link.mtu, u32::from);
    Sockets::new(mtu, options.queues.clamp(1, QUEUES_MAX)).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Error::Permission { device, capability: "CAP_NET_RAW" },
        _ => refused(&device, &error),
    })
}

/// Opens a port, using the prepared sockets if they fit.
pub(crate) fn open(
    spec: &DeviceSpec,
    interface: &str,
    kind: Kind,
    pool: PoolRef,
    options: &PortOptions,
    prepared: Option<Sockets>,
) -> Result<Box<dyn Device>, Error> {
    let device = spec.to_string();
    let links = links(&device)?;
    let there = links.named(interface);
    let mut options = *options;
    options.queues = options.queues.clamp(1, QUEUES_MAX);
    let mut unbound = None;
    let made = match (kind, &there) {
        (Kind::Packet, None) => return Err(Error::NoSuchInterface { interface: interface.to_owned() }),
        (Kind::Packet, Some(_)) => {
            unbound = Some(prepared.map_or_else(|| prepare(spec, interface, &options), Ok)?);
            None
        }
        (Kind::Tap, _) => {
            // If the interface is created here, we also set it up.
            options.up |= there.is_none();
            Some(open_tap(interface, options.queues).map_err(|error| tap_refused(&device, &error))?)
        }
    };
    let known = links.named(interface).ok_or_else(|| Error::NoSuchInterface { interface: interface.to_owned() })?;
    let port = Arc::new(Port::new(device, interface, kind, options, pool, unbound));
    port.attach(&mut lock(&port.state), &known, links.control(), made)?;
    // Handles what setting the interface up has changed; later changes are reported to the watcher.
    let watcher: Arc<dyn Watcher> = Arc::clone(&port) as Arc<dyn Watcher>;
    links.add_watcher(Arc::downgrade(&watcher));
    let now = links.poll(|table| table.clone());
    port.links_changed(&now, links.control());
    if let Some(reason) = port.unopened_because() {
        return Err(Error::Device { device: port.device.clone(), reason });
    }
    // The sockets of an interface that is down are created when it is set up.
    lock(&port.state).unbound = None;
    Ok(Box::new(KernelDevice { links, port, queues_taken: false }))
}

/// The error for a TAP interface that cannot be created.
fn tap_refused(device: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::File { path: "/dev/net/tun".into(), reason: error.to_string() },
        _ => refused(device, error),
    }
}

/// The control side of a port.
struct KernelDevice {
    links: Arc<Links>,
    port: Arc<Port>,
    queues_taken: bool,
}

impl KernelDevice {
    /// Reads the port's state after applying pending link changes.
    fn now<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        // The watcher runs first and has released the lock of the state.
        self.links.poll(|_| ());
        read(&lock(&self.port.state))
    }
}

impl Device for KernelDevice {
    fn name(&self) -> &str {
        &self.port.device
    }

    fn kind(&self) -> &'static str {
        match self.port.kind {
            Kind::Packet => "af_packet",
            Kind::Tap => "tap",
        }
    }

    fn queue_count(&self) -> u16 {
        self.port.slots.len() as u16
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        if std::mem::replace(&mut self.queues_taken, true) {
            return Vec::new();
        }
        let queue = |index| Box::new(KernelQueue::new(Arc::clone(&self.port), index)) as Box<dyn Queue>;
        (0..self.port.slots.len()).map(queue).collect()
    }

    fn pool(&self) -> PoolRef {
        Arc::clone(&self.port.pool)
    }

    fn link(&self) -> LinkState {
        self.now(|state| state.last.as_ref().map_or_else(LinkState::default, link_state))
    }

    fn stats(&self) -> PortStats {
        let mut stats = PortStats::default();
        self.port.counters.iter().for_each(|counters| stats += counters.read());
        stats.rx_dropped += self.port.missed();
        stats
    }

    fn mac(&self) -> Option<MacAddress> {
        self.now(|state| state.last.as_ref().and_then(|known| known.link.mac).map(MacAddress))
    }

    fn mtu(&self) -> u16 {
        self.links.poll(|_| ());
        (self.port.frame_max.load(Ordering::Relaxed) - u32::from(FRAME_HEADER_MAX)) as u16
    }

    fn note(&self) -> Option<String> {
        self.now(|state| state.note.clone())
    }
}
