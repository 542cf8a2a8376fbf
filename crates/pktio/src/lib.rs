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
//! | `packet` | [`Packet`], [`RawPacket`], [`free_bulk`] |
//! | `pool` | [`Pool`], [`HeapPool`] |
//! | `device` | [`Device`], [`Queue`], [`LinkState`], [`PortStats`], per-queue counters |
//! | `spec` | [`PortSpec`] and [`DeviceSpec`]: the command line's port syntax |
//! | `error` | [`Error`]: what can go wrong when a port is opened, with the remedy |
//!
//! **Invariant:** this crate knows no packet format (not even Ethernet), no P4, and no DPDK.
#![deny(unsafe_op_in_unsafe_fn)]

mod device;
mod error;
mod packet;
mod pool;
mod spec;

pub use device::{Device, LinkState, MacAddress, PortStats, Queue, QueueCounters};
pub use error::Error;
pub use packet::{NoRoom, Packet, PoolVtable, RawPacket, free_bulk};
pub use pool::{BUFFER_CAPACITY, HEADROOM, HeapPool, Pool, PoolRef};
pub use spec::{DeviceSpec, MemifRole, PORT_NUMBER_MAX, PortSpec, SpecError};
