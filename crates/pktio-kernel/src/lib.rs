//! Ports to the kernel: existing interfaces through AF_PACKET sockets, and TAP interfaces.
//!
//! DPDK has drivers for both. These are our own because the kernel leaves checksums and segmentation to its devices, and on
//! veth pairs and TAP interfaces that is us: only a socket with virtio headers (`PACKET_VNET_HDR`, `IFF_VNET_HDR`) says so
//! and lets us leave the same to the kernel. Besides, DPDK's af_packet truncates long frames silently and forgets the type
//! of VLAN tags.
//!
//! | file | holds |
//! | --- | --- |
//! | `sys` | system calls that no safe crate has |
//! | `ring` | the receive ring that a packet socket shares with the kernel |
//! | `netlink` | link messages of rtnetlink: requests and a parser |
//! | `links` | [`Links`]: what the kernel's interfaces are, followed as they change |
//! | `claim` | an interface is a port once per network namespace |
//! | `interface` | [`Interface`]: an interface of another driver's port (AF_XDP), followed and claimed |
//! | `io` | the sockets of a port's queues |
//! | `port` | the port: follows its interface and opens it again |
//! | `queue` | the packet side |
//!
//! # Which interface a port is
//!
//! A port is opened by name, and stays with that interface, by index, as long as it exists: renaming changes nothing. When it
//! is gone (deleted, or moved to another network namespace), the port waits for an interface of its name and takes it. Link
//! state, MTU and address come from one netlink socket that is open all the time, so running out of descriptors changes
//! none of them. An interface that is down is left down, unless `up` was asked for.
//!
//! Ports of one process share the network namespace of the thread that opened the first of them.
//!
//! **Invariant:** workers make no system call but those that move packets and those that prepare to sleep; sockets are
//! opened and closed on other threads.
//!
//! Tests: `tests/follow.rs`; `pktio-dpdk/tests/ports.rs`, `offload.rs` and `sleep.rs` for packets.
#![deny(unsafe_op_in_unsafe_fn)]

mod claim;
mod device;
mod interface;
mod io;
mod links;
mod netlink;
mod port;
mod queue;
mod ring;
mod sys;

pub use device::QUEUES_MAX;
pub use interface::Interface;
pub use io::Sockets;

use pktio::{Device, DeviceSpec, Error, PoolRef, PortOptions};

/// Opens an interface, or makes a TAP interface. Received packets come from `pool`; packets of any pool are sent.
pub fn open(spec: &DeviceSpec, pool: PoolRef, options: &PortOptions) -> Result<Box<dyn Device>, Error> {
    open_prepared(spec, pool, options, None)
}

/// What takes long when an interface is opened, done ahead of [`open_prepared`]: nothing comes in yet, and another process may have the
/// interface. Nothing for other kinds of ports.
///
/// Errors: no such interface, no right to open sockets.
pub fn prepare(spec: &DeviceSpec, options: &PortOptions) -> Result<Option<Sockets>, Error> {
    match spec {
        DeviceSpec::AfPacket { interface } => device::prepare(spec, interface, options).map(Some),
        _ => Ok(None),
    }
}

/// As [`open`], with what [`prepare`] has made.
pub fn open_prepared(
    spec: &DeviceSpec,
    pool: PoolRef,
    options: &PortOptions,
    prepared: Option<Sockets>,
) -> Result<Box<dyn Device>, Error> {
    match spec {
        DeviceSpec::AfPacket { interface } => device::open(spec, interface, io::Kind::Packet, pool, options, prepared),
        DeviceSpec::Tap { interface } => device::open(spec, interface, io::Kind::Tap, pool, options, None),
        other => Err(Error::Unsupported { device: other.to_string(), reason: "it is no interface of the kernel" }),
    }
}
