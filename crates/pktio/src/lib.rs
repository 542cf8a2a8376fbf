//! Packet buffers, the [`Device`] trait, and the devices that need no DPDK.
//!
//! A port of the switch has two sides. The control side is a [`Device`]: link, statistics, addresses. The packet side
//! is one [`Queue`] per worker, taken once from the device with [`Device::take_queues`] and then used by exactly one
//! thread, so receiving and sending need no lock. A packet is a [`Packet`]: a 32-byte, move-only handle on a buffer,
//! which returns to its [`Pool`] when the handle is dropped. Where the buffer lives (heap or DPDK mempool) is hidden
//! behind a vtable, so a packet received on any device can be sent on any other.
//!
//! | file | holds |
//! | --- | --- |
//! | `packet` | [`Packet`], [`RawPacket`], [`free_bulk`], [`free_front`] |
//! | `pool` | [`Pool`], [`HeapPool`] |
//! | `device` | [`Device`], [`Queue`], [`LinkState`], [`PortStats`], per-queue counters |
//! | `clock` | [`ticks`], [`Clock`]: time from the time stamp counter |
//! | `spec` | [`PortSpec`] and [`DeviceSpec`]: the command line's port syntax |
//! | `error` | [`Error`]: errors of opening a port, with remedies |
//! | `memory` | [`MemoryDevice`]: a test or a program injects and collects packets |
//! | `pcap` | [`PcapDevice`]: packets from and to capture files |
//! | `fault` | [`FaultInjector`]: a wrapper that drops, duplicates and corrupts packets |
//! | `wait` | [`wait`]: sleeping until a queue has packets |
//! | `isolated` | [`guard`]: a wrapper that isolates workers from a peer which can block memory accesses |
//! | `capture` | [`Capture`]: a wrapper that captures packets, switched on and off at run time |
//! | `offload` | checksums and segmentation that senders leave to the device, in safe code |
//!
//! **Invariant:** this crate knows no P4 and no DPDK, and outside of `offload` no packet format (not even Ethernet).
#![deny(unsafe_op_in_unsafe_fn)]

mod capture;
mod clock;
mod device;
mod error;
mod fault;
mod isolated;
mod memory;
pub mod offload;
mod packet;
mod pcap;
mod pool;
mod spec;
mod wait;

pub use capture::{Capture, CaptureHandle, CaptureLimits, CaptureStatus};
pub use clock::{Clock, ticks, ticks_per_second};
pub use device::{
    Device, FRAME_HEADER_MAX, LinkState, MEMORY_MB_DEFAULT, MTU_DEFAULT, MacAddress, PortOptions, PortStats, Queue,
    QueueCounters,
};
pub use error::Error;
pub use fault::{FaultConfig, FaultCounts, FaultHandle, FaultInjector};
pub use isolated::{Exchange, ISOLATED_RING_MAX, guard, register_threads, serve};
pub use memory::{MemoryDevice, MemoryHandle};
pub use packet::{NoRoom, Packet, PoolVtable, RawPacket, free_bulk, free_front};
pub use pcap::{PcapDevice, read_capture};
pub use pool::{BUFFER_CAPACITY, HEADROOM, HeapPool, LARGE_CAPACITY, Pool, PoolRef};
pub use spec::{DeviceSpec, MemifRole, PORT_NUMBER_MAX, PortSpec, SpecError};
pub use wait::{Bell, Wake, has_waited, sleep, wait};

/// Opens a `memory` or `pcap` device. Other kinds are opened by other crates.
///
/// A `memory` device opened here has nothing at its other end, so its link is down; use [`MemoryDevice::new`] to get
/// the handle of the other end.
///
/// # Errors
/// [`Error::Unsupported`] for other kinds, [`Error::File`] if a capture file cannot be opened.
pub fn open(spec: &DeviceSpec, pool: PoolRef) -> Result<Box<dyn Device>, Error> {
    match spec {
        DeviceSpec::Memory => {
            let (device, handle) = MemoryDevice::new("memory", pool, 1);
            handle.set_link(false);
            Ok(Box::new(device))
        }
        DeviceSpec::Pcap { input, output, after_s } => {
            let after = std::time::Duration::from_secs(u64::from(*after_s));
            Ok(Box::new(PcapDevice::open(input, output.as_deref(), after, pool)?))
        }
        other => Err(Error::Unsupported { device: other.to_string(), reason: "it needs DPDK" }),
    }
}
