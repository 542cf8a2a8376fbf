//! DPDK ports: kernel interfaces, virtual machines and network cards as [`pktio`] devices. [`Eal::open`] also opens those that need
//! no DPDK: memif ports are `pktio-memif`'s, with buffers of ours.
//!
//! ```no_run
//! # fn main() -> Result<(), pktio::Error> {
//! let eal = pktio_dpdk::Eal::init(&pktio_dpdk::EalConfig::default())?;
//! let mut device = eal.open(&"veth0".parse()?, &pktio_dpdk::PortOptions::default())?;
//! let mut queue = device.take_queues().remove(0);
//! let _worker = pktio_dpdk::register_worker()?; // on the thread that polls
//! let mut packets = Vec::with_capacity(64);
//! queue.rx(&mut packets, 64);
//! queue.tx(&mut packets);
//! # Ok(()) }
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | `shim/` | the C functions that wrap DPDK's inline functions |
//! | `ffi` | their declarations |
//! | `eal` | [`Eal`]: starts DPDK once per process, opens devices |
//! | `hugepages` | what the kernel has, and whether it is enough |
//! | `vdev` | a [`pktio::DeviceSpec`] as DPDK's driver name and arguments, checked beforehand for good errors |
//! | `pool` | the mempools as a [`pktio::Pool`]; what ports cannot send as it is |
//! | `queue` | the packet side of every kind of port: [`pktio::Queue`] over the shim's functions |
//! | `device` | every kind of port as [`pktio::Device`] |
//! | `port` | an ethdev port |
//! | `vhost` | opens vhost-user ports, which are `pktio-vhost`'s |
//!
//! **Invariant:** the only crate that knows DPDK.
//!
//! Checksums and segmentation that senders leave to the device: `pktio::offload` has the rule, `docs/ports.md` what users see.
//!
//! # What DPDK's drivers and the kernel do and do not do
//!
//! - A packet is one buffer, small or large. A driver that delivers a chain gets it put together; what no buffer can hold is
//!   dropped and counted in `rx_dropped`.
//! - Interfaces of the kernel and TAP are ports of `pktio-kernel`, with buffers of DPDK's.
//! - The kernel takes the outer VLAN tag off a frame for AF_PACKET; `pktio-kernel` puts it back with the type it had.
//! - The kernel's own packets leave through an interface that is a port, and packet sockets would receive them too: ours do not
//!   (`PACKET_IGNORE_OUTGOING`), from Linux 4.20 on. What arrives there reaches the kernel as well as the port: keep it
//!   quiet, with no IP address and `sysctl net.ipv6.conf.IFACE.disable_ipv6=1`.
//! - A vhost-user socket in client mode reconnects when the guest restarts; link state follows.
//! - Packets that are empty, or longer than the MTU with a tagged header, are dropped and counted in `tx_dropped` (and
//!   `tx_too_long`) instead of being shown to the driver, which may stop there.
//! - Ports work without hugepages, but slower: see [`Eal::notices`].
//! - At most 32 ports (`RTE_MAX_ETHPORTS` of Debian's build).
//! - What DPDK logs is kept back ([`take_log`]) and quoted in errors; libxdp, under `xdp`, writes to the standard error.
//!
//! Tests: `tests/ports.rs` (each port type through its queues), `tests/offload.rs` (long frames, checksums, segments; a guest of
//! the test's own), `tests/peers.rs` (against `dpdk-testpmd`).
#![deny(unsafe_op_in_unsafe_fn)]

mod device;
mod eal;
mod ffi;
mod hugepages;
mod pool;
mod port;
mod queue;
mod shared;
mod vdev;
mod vhost;

pub use eal::{Eal, EalConfig, HugepageUse, WorkerRegistration, close_on_exec, register_worker, take_log};
pub use pktio::PortOptions;
