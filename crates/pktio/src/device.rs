//! What every port offers: [`Device`] for control, [`Queue`] for one worker.
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
/// A device may be dropped while workers still hold its queues; the port closes when the last of them is gone. To
/// close it on the control thread, drop the queues first.
pub trait Device: Send {
    /// The device as its user named it, e.g. `veth0` or `vhost:/run/vm1.sock`.
    fn name(&self) -> &str;

    /// The kind of device, one word: `memory`, `pcap`, `af_packet`, `vhost`, ...
    fn kind(&self) -> &'static str;

    /// How many queues the device has.
    fn queue_count(&self) -> u16;

    /// The queues, in order: one per worker. The second call returns none.
    fn take_queues(&mut self) -> Vec<Box<dyn Queue>>;

    /// The pool that received packets come from, also for packets made by the switch itself.
    fn pool(&self) -> PoolRef;

    /// Whether the port has a link, and how fast. May ask the kernel; not for the packet path.
    fn link(&self) -> LinkState;

    /// What has passed since the device was opened.
    fn stats(&self) -> PortStats;

    /// The port's link-layer address, if it has one.
    fn mac(&self) -> Option<MacAddress>;

    /// The largest payload of a link-layer frame that the port is meant to carry.
    fn mtu(&self) -> u16;

    /// What keeps packets from passing, as one sentence with the remedy, or what else a user should know; `None` when all is
    /// well.
    fn note(&self) -> Option<String> {
        None
    }

    /// Whether no further packet will ever be received, as after the last packet of a file.
    fn at_end(&self) -> bool {
        false
    }
}

/// How a port is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortOptions {
    /// Queues wanted, one per worker; the device may have fewer.
    pub queues: u16,
    /// Packets per queue and direction that wait in the device's rings; rounded to what the device can do.
    pub descriptors: u16,
    /// Sets the device's MTU; `None` leaves it.
    pub mtu: Option<u16>,
    /// Megabytes on ordinary pages that a guest or memif client may share.
    pub memory_mb: u32,
    /// Whether a thread of the port's own touches the memory of its guest or peer from the start ([`crate::guard`]).
    pub isolated: bool,
    /// Whether the kernel's interface is set up; without it one that is down stays down.
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

/// How many megabytes a guest or memif client may share with a port, on ordinary pages: those are charged to the switch if
/// it touches them first, so a sparse file would cost as much. Larger guests have huge pages or a port that says so.
pub const MEMORY_MB_DEFAULT: u32 = 8192;

/// The MTU of devices that have none of their own: jumbo frames pass between them.
pub const MTU_DEFAULT: u16 = 9000;

/// What a frame may be longer than the MTU: an Ethernet header with a VLAN tag.
pub const FRAME_HEADER_MAX: u16 = 18;

/// The packet side of a port: one receive and one send queue, used by one worker.
pub trait Queue: Send {
    /// Appends at most `max` received packets to `out`; returns how many. Does not wait.
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize;

    /// Takes packets from the front of `packets` and sends them; returns how many it took. What the device can never
    /// send is taken too, and counted in `tx_dropped`. The others stay, in order: retry or drop them.
    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize;

    /// Before its worker sleeps: how it will hear of packets. For [`Wake::File`] it adds the files ([`crate::wait`]).
    fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        let _ = files;
        Wake::Poll
    }

    /// After its worker has slept: it polls again, nothing need be said.
    fn disarm(&mut self) {}
}

/// A link-layer address of 48 bits.
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

/// A port's link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Whether packets can pass.
    pub up: bool,
    /// Megabits per second; `None` when the device does not know.
    pub speed_mbps: Option<u32>,
}

/// A port's counters. Bytes are of packets as the switch sees them (no frame check sequence).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets handed to a worker.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Arrived but not handed on: no buffer, ring full, or too long for one buffer.
    pub rx_dropped: u64,
    /// Arrived broken.
    pub rx_errors: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Taken from a worker but not sent.
    pub tx_dropped: u64,
    /// Of these: frames longer than the port carries.
    pub tx_too_long: u64,
    /// Of these: large frames in which nobody finds the segments.
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

/// One queue's counters: written by its worker, read by control, on cache lines of their own.
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
    /// Adds what one burst did. Only the queue's worker calls this, so a plain load and store is enough.
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

    /// The counters now.
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
