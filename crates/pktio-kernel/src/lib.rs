//! Ports to the kernel: existing interfaces through AF_PACKET sockets, and TAP interfaces.
//!
//! DPDK has drivers for both. These are our own because the kernel leaves checksums and segmentation to its devices,
//! and for veth pairs and TAP interfaces we are that device. Only a socket with virtio headers (`PACKET_VNET_HDR`,
//! `IFF_VNET_HDR`) tells us about these offloads, and lets us request them from the kernel. Besides, DPDK's af_packet
//! truncates long frames silently and loses the EtherType of VLAN tags.
//!
//! | file | holds |
//! | --- | --- |
//! | `sys` | system calls that no safe crate provides |
//! | `ring` | the receive ring that a packet socket shares with the kernel |
//! | `netlink` | rtnetlink's link messages: requests and a parser |
//! | `links` | [`Links`]: the kernel's interfaces, followed as they change |
//! | `claim` | ensures that an interface is a port only once per network namespace |
//! | `interface` | [`Interface`]: an interface of another driver's port (AF_XDP), followed and claimed |
//! | `io` | the sockets of a port's queues |
//! | `port` | the port: follows its interface and reopens it |
//! | `queue` | the packet side |
//!
//! # A port's interface
//!
//! A port is opened by name, and then bound to that interface's index as long as the interface exists;
//! renaming has no effect. When the interface is gone (deleted, or moved to another network namespace), the
//! port waits for another interface of its name. Link state, MTU and address come from one netlink socket that
//! stays open, so that they stay known when the process runs out of file descriptors. An interface that is
//! down is left down, unless the option `up` is set.
//!
//! All ports of a process use the network namespace of the thread that opened the first of them.
//!
//! **Invariant:** a worker's only system calls are those that move packets and those that prepare its sleep; sockets
//! are opened and closed on other threads.
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

/// Opens an interface, or creates a TAP interface. Received packets are allocated from
/// `pool`; packets of any pool can be sent.
///
/// # Errors
/// `spec` is not an interface of the kernel, there is none of its name, it is claimed by another port, a permission is
/// missing, or a system call failed.
pub fn open(spec: &DeviceSpec, pool: PoolRef, options: &PortOptions) -> Result<Box<dyn Device>, Error> {
    open_prepared(spec, pool, options, None)
}

/// Does the slow part of [`open_prepared`] in advance: creates the sockets, which receive nothing yet. Another process
/// may still have the interface. Returns `None` for other kinds of ports.
///
/// # Errors
/// There is no such interface, or sockets cannot be created.
pub fn prepare(spec: &DeviceSpec, options: &PortOptions) -> Result<Option<Sockets>, Error> {
    match spec {
        DeviceSpec::AfPacket { interface } => device::prepare(spec, interface, options).map(Some),
        _ => Ok(None),
    }
}

/// Like [`open`], with the result of [`prepare`].
///
/// # Errors
/// As [`open`].
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
