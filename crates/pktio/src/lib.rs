//! Packet buffers, the [`Device`] trait, and the devices that need no DPDK.
//!
//! A port of the switch has two sides. The control side is a [`Device`]: link, statistics, addresses. The packet side
//! is one [`Queue`] per worker, taken once from the device with [`Device::take_queues`] and then used by exactly one
//! thread, so receiving and sending need no lock. Packets are [`Packet`]: a 32-byte, move-only handle on a buffer that
//! goes back to the [`Pool`] it came from when it is dropped. Where a buffer lives (heap or DPDK mempool) is hidden
//! behind a small table of functions, so a packet received on any device can be sent on any other.
//!
//! | file | holds |
//! | --- | --- |
//! | `packet` | [`Packet`], [`RawPacket`], [`free_bulk`], [`free_front`] |
//! | `pool` | [`Pool`], [`HeapPool`] |
//! | `device` | [`Device`], [`Queue`], [`LinkState`], [`PortStats`], per-queue counters |
//! | `clock` | [`ticks`], [`Clock`]: time that is cheap to read |
//! | `spec` | [`PortSpec`] and [`DeviceSpec`]: the command line's port syntax |
//! | `error` | [`Error`]: what can go wrong when a port is opened, with the remedy |
//! | `memory` | [`MemoryDevice`]: a test or a program injects and collects packets |
//! | `pcap` | [`PcapDevice`]: packets from and to capture files |
//! | `fault` | [`FaultInjector`]: a wrapper that drops, duplicates and corrupts |
//! | `wait` | [`wait`]: sleeping until a queue has packets |
//! | `capture` | [`Capture`]: a wrapper that records what passes, switched on and off at run time |
//! | `offload` | checksums and segmentation that senders leave to the device, in safe code |
//!
//! **Invariant:** this crate knows no P4 and no DPDK, and outside of `offload` no packet format (not even Ethernet).
#![deny(unsafe_op_in_unsafe_fn)]

mod capture;
mod clock;
mod device;
mod error;
mod fault;
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
pub use memory::{MemoryDevice, MemoryHandle};
pub use packet::{NoRoom, Packet, PoolVtable, RawPacket, free_bulk, free_front};
pub use pcap::{PcapDevice, read_capture};
pub use pool::{BUFFER_CAPACITY, HEADROOM, HeapPool, LARGE_CAPACITY, Pool, PoolRef};
pub use spec::{DeviceSpec, MemifRole, PORT_NUMBER_MAX, PortSpec, SpecError};
pub use wait::{Bell, Wake, wait};

/// Opens a device that needs no DPDK. Other kinds are refused: the DPDK crate opens them.
///
/// A `memory` device opened here has nobody at its other end, so its link is down; [`MemoryDevice::new`] gives the
/// handle that makes it useful.
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
