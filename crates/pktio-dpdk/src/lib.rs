//! DPDK ports: kernel interfaces, virtual machines, shared memory and network cards as [`pktio`] devices.
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
//! | `pool` | the mempool as a [`pktio::Pool`] |
//! | `port` | an ethdev port as [`pktio::Device`] and [`pktio::Queue`] |
//! | `vhost` | a vhost-user port, on rings of our own (`shim/vhost.c`) |
//! | `reconnect` | keeps a port connected whose driver gives up on a missing peer |
//!
//! **Invariant:** the only crate that knows DPDK.
//!
//! # What DPDK's drivers do and do not do
//!
//! - A packet is one buffer with 2,048 bytes of data. A driver that delivers a chain gets it linearised if it fits;
//!   longer packets are dropped and counted in `rx_dropped`.
//! - `af_packet` cuts long frames to its ring's frame size without a word. So frames that reach that size (1,982 bytes;
//!   segmentation offload on a veth makes them) are dropped and counted instead of being forwarded cut. What the kernel
//!   drops because the ring is full is counted nowhere.
//! - `af_packet` does not say that the sender left a checksum to the hardware (veth does). Turn that off at the sender:
//!   `ethtool -K IFACE tx off tso off gso off`. For vhost-user the shim completes checksums itself.
//! - The kernel takes the outer VLAN tag off a frame for `af_packet`; the driver puts it back with type 0x8100 whatever it
//!   was (0x88a8, say).
//! - The kernel's own packets leave through an interface that is a port, and `af_packet` receives them too. Keep the
//!   kernel quiet there: no IP address, `sysctl net.ipv6.conf.IFACE.disable_ipv6=1`.
//! - A vhost-user socket in client mode reconnects when the guest restarts; link state follows. So does a memif client, by
//!   a thread of ours: the driver gives up when its server is not there. A memif client takes packets only once its
//!   queue has been polled.
//! - Packets that are empty, and for `tap` longer than MTU and tagged header, are dropped and counted in `tx_dropped`
//!   instead of being shown to the driver, which would stop there.
//! - Ports work without hugepages, but slower: see [`Eal::notices`].
//! - At most 32 ports (`RTE_MAX_ETHPORTS` of Debian's build).
//! - What DPDK logs is kept back ([`take_log`]) and quoted in errors; libxdp, under `xdp`, writes to the standard error.
//!
//! Tests: `tests/ports.rs` (each port type through its queues), `tests/peers.rs` (against `dpdk-testpmd`).
#![deny(unsafe_op_in_unsafe_fn)]

mod eal;
mod ffi;
mod hugepages;
mod pool;
mod port;
mod reconnect;
mod vdev;
mod vhost;

pub use eal::{Eal, EalConfig, HugepageUse, PortOptions, WorkerRegistration, register_worker, take_log};
