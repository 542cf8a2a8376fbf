//! The interface of every port: [`Device`] for control, [`Queue`] for one worker.
//!
//! Threads: a `Device` belongs to control, each `Queue` to one worker; they share only counters. Nothing here blocks:
//! a queue without packets returns 0. A worker that wants to sleep asks its queues how they will wake it.

use crate::packet::Packet;
use crate::pool::PoolRef;
use crate::wait::Wake;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The control side of a port.
///
/// A device may be dropped while workers still hold its queues; the port closes when the last of them is dropped. To
/// close it on the control thread, drop the queues first.
pub trait Device: Send {
    /// The device's name, as its user wrote it, e.g. `veth0` or `vhost:/run/vm1.sock`.
    fn name(&self) -> &str;

    /// The kind of device, one word: `memory`, `pcap`, `af_packet`, `vhost`, ...
    fn kind(&self) -> &'static str;

    /// Number of queues.
    fn queue_count(&self) -> u16;

    /// Hands out the queues, in order: one per worker. A second call returns none.
    fn take_queues(&mut self) -> Vec<Box<dyn Queue>>;

    /// The pool of received packets. The switch also uses it for packets of its own.
    fn pool(&self) -> PoolRef;

    /// The link state and speed. May ask the kernel; not for the packet path.
    fn link(&self) -> LinkState;

    /// Counters since the device was opened.
    fn stats(&self) -> PortStats;

    /// The port's link-layer address, if it has one.
    fn mac(&self) -> Option<MacAddress>;

    /// The MTU in bytes: the largest payload of a link-layer frame that the port should carry.
    fn mtu(&self) -> u16;

    /// A message for the user, such as what prevents packets from passing, with the remedy; `None` when all is well.
    fn note(&self) -> Option<String> {
        None
    }

    /// Whether no further packet will be received, as after the last packet of a file.
    fn at_end(&self) -> bool {
        false
    }
}

/// Options for opening a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortOptions {
    /// Desired number of queues, one per worker; the device may have fewer.
    pub queues: u16,
    /// Descriptors per ring, that is, per queue and direction; rounded to what the device supports.
    pub descriptors: u16,
    /// MTU to set, in bytes; `None` keeps the device's MTU.
    pub mtu: Option<u16>,
    /// Megabytes that a guest or memif client may share on ordinary pages.
    pub memory_mb: u32,
    /// Whether a process of the port's own accesses its peer's memory (`pktio-process`).
    pub isolated: bool,
    /// Whether a kernel interface that is down is set up.
    pub up: bool,
}

impl Default for PortOptions {
    fn default() -> Self {
        PortOptions {
            queues: 1,
            descriptors: 1024,
            mtu: None,
            memory_mb: MEMORY_MB_DEFAULT,
            isolated: false,
            up: false,
        }
    }
}

/// Default of [`PortOptions::memory_mb`]: megabytes that a guest or memif client may share on ordinary pages. Such
/// pages are charged to the switch if it touches them first, so a sparse file could cost that much. Larger guests use
/// huge pages, or a port with a higher limit.
pub const MEMORY_MB_DEFAULT: u32 = 8192;

/// MTU in bytes of devices without one of their own: lets jumbo frames pass.
pub const MTU_DEFAULT: u16 = 9000;

/// Bytes by which a frame may exceed the MTU: an Ethernet header with a VLAN tag.
pub const FRAME_HEADER_MAX: u16 = 18;

/// The packet side of a port: one receive and one send queue, used by one worker.
pub trait Queue: Send {
    /// Appends at most `max` received packets to `out`. Returns how many. Does not block.
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize;

    /// Sends packets from the front of `packets`. Returns how many it took. Packets that the device can never send are
    /// taken too, and counted in `tx_dropped`. The others stay, in order, for the caller to retry or drop.
    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize;

    /// Prepares for its worker's sleep. Returns how packets will be announced; for [`Wake::File`] it
    /// appends the files to poll ([`crate::wait`]).
    fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        let _ = files;
        Wake::Poll
    }

    /// Ends [`Queue::arm`] after its worker has slept: it polls again and needs no notifications.
    fn disarm(&mut self) {}
}

/// An EUI-48 link-layer address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Link state of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Whether packets can pass.
    pub up: bool,
    /// Speed in megabits per second; `None` if the device does not know it.
    pub speed_mbps: Option<u32>,
}

/// Counters of a port. Bytes are of packets as the switch sees them (without frame check sequence).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets handed to a worker.
    pub rx_packets: u64,
    /// Bytes of these packets.
    pub rx_bytes: u64,
    /// Packets that arrived but were not handed to a worker: no buffer, ring full, or too long for a buffer.
    pub rx_dropped: u64,
    /// Packets that arrived damaged.
    pub rx_errors: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes of these packets.
    pub tx_bytes: u64,
    /// Packets taken from a worker but not sent.
    pub tx_dropped: u64,
    /// Part of `tx_dropped`: frames longer than the port carries.
    pub tx_too_long: u64,
    /// Part of `tx_dropped`: large frames that could not be segmented.
    pub tx_not_cut: u64,
}

impl std::ops::AddAssign for PortStats {
    fn add_assign(&mut self, other: PortStats) {
        self.rx_packets += other.rx_packets;
        self.rx_bytes += other.rx_bytes;
        self.rx_dropped += other.rx_dropped;
        self.rx_errors += other.rx_errors;
        self.tx_packets += other.tx_packets;
        self.tx_bytes += other.tx_bytes;
        self.tx_dropped += other.tx_dropped;
        self.tx_too_long += other.tx_too_long;
        self.tx_not_cut += other.tx_not_cut;
    }
}

/// Counters of one queue, on cache lines of their own: written by its worker, read by control.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct QueueCounters {
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    rx_dropped: AtomicU64,
    rx_errors: AtomicU64,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
    tx_dropped: AtomicU64,
    tx_too_long: AtomicU64,
    tx_not_cut: AtomicU64,
}

impl QueueCounters {
    /// Adds the counts of one burst. Only the queue's worker calls this, so a plain load and store suffice.
    #[inline]
    pub fn add(&self, burst: &PortStats) {
        let bump = |cell: &AtomicU64, n: u64| {
            if n != 0 {
                cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
            }
        };
        bump(&self.rx_packets, burst.rx_packets);
        bump(&self.rx_bytes, burst.rx_bytes);
        bump(&self.rx_dropped, burst.rx_dropped);
        bump(&self.rx_errors, burst.rx_errors);
        bump(&self.tx_packets, burst.tx_packets);
        bump(&self.tx_bytes, burst.tx_bytes);
        bump(&self.tx_dropped, burst.tx_dropped);
        bump(&self.tx_too_long, burst.tx_too_long);
        bump(&self.tx_not_cut, burst.tx_not_cut);
    }

    /// The current counters.
    pub fn read(&self) -> PortStats {
        PortStats {
            rx_packets: self.rx_packets.load(Relaxed),
            rx_bytes: self.rx_bytes.load(Relaxed),
            rx_dropped: self.rx_dropped.load(Relaxed),
            rx_errors: self.rx_errors.load(Relaxed),
            tx_packets: self.tx_packets.load(Relaxed),
            tx_bytes: self.tx_bytes.load(Relaxed),
            tx_dropped: self.tx_dropped.load(Relaxed),
            tx_too_long: self.tx_too_long.load(Relaxed),
            tx_not_cut: self.tx_not_cut.load(Relaxed),
        }
    }
}
