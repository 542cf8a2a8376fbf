//! memif ports: exchange packets with another process through shared memory.
//!
//! The client allocates the memory, with the rings and buffers, and passes it to the server over a Unix socket
//! (`handshake`). From then on packets pass through the rings without system calls (`receive`, `transmit`). Both roles
//! are implemented, for protocol version 2.0 with Ethernet frames, as spoken by VPP, libmemif and DPDK's driver.
//!
//! **Invariant:** the peer is hostile. It can write any byte of the shared memory at any time, send any message, stop
//! at any point, truncate files and fill eventfds. This costs it packets or the connection, and affects nobody else: no
//! access leaves a region, no call waits for the peer, and work per poll is bounded.
//!
//! | file | holds |
//! | --- | --- |
//! | `wire` | [`wire::Message`]: the control channel's messages |
//! | `socket` | the control channel |
//! | `memory`, `layout` | mapped regions; the layout of our own |
//! | `ring` | a ring's indices and descriptors |
//! | `receive`, `transmit` | the ends of a ring: bursts of packets |
//! | `handshake` | the control protocol until the rings can be used |
//! | `service` | the threads that keep ports connected |
//! | `port` | state shared by queues, device and service; [`pktio::Queue`] |
//! | `fuzz` | fuzz targets that act as a peer |
//!
//! Tests: `src/tests.rs` (rings with a peer that writes anything), `tests/pair.rs` (two of our ports),
//! `tests/hostile.rs` (a peer that forges messages and memory), `tests/sleep.rs`;
//! `pktio-dpdk/tests/peers.rs` against DPDK's driver.
#![deny(unsafe_op_in_unsafe_fn)]

mod fuzz;
mod handshake;
mod layout;
mod memory;
mod port;
mod receive;
mod ring;
mod service;
mod socket;
#[cfg(test)]
mod tests;
mod transmit;
pub mod wire;

#[doc(hidden)]
pub use fuzz::{fuzz, fuzz_seeds};

use crate::port::{Port, PortConfig, PortQueue};
use crate::service::Owner;
pub use crate::service::serves;
use pktio::{
    Device, DeviceSpec, Error, FRAME_HEADER_MAX, LinkState, MTU_DEFAULT, MacAddress, PoolRef, PortStats, Queue,
};
use std::sync::Arc;

/// Bytes of our buffers if no MTU is set, as in other implementations. Longer frames take several buffers.
const BUFFER_BYTES: u32 = 2048;

/// Maximum bytes of a buffer: the longest packet.
const BUFFER_BYTES_MAX: u32 = 65_472;

/// How a port is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of queues, one per worker; a peer may have fewer rings.
    pub queues: u16,
    /// Descriptors per ring if we are the client; rounded up to a power of two, at most 16,384.
    pub descriptors: u16,
    /// MTU in bytes. Frames longer than this plus an Ethernet header and a VLAN tag are not sent; as client, a buffer
    /// holds a whole frame. `None` means 9,000, and buffers of 2 KB.
    pub mtu: Option<u16>,
    /// Bytes that a client may share on ordinary pages; huge pages do not count.
    pub memory_bytes: u64,
}

/// Opens a memif port. It connects in the background, and reconnects whenever its peer returns.
///
/// # Errors
/// `spec` is not a memif port, an option is invalid, or the socket or the port's thread cannot be created.
pub fn open(spec: &DeviceSpec, options: &Options, pool: PoolRef) -> Result<Box<dyn Device>, Error> {
    let DeviceSpec::Memif { path, id, role } = spec else {
        return Err(Error::Unsupported { device: spec.to_string(), reason: "it is no memif port" });
    };
    let device_error = |reason: String| Error::Device { device: spec.to_string(), reason };
    let path = socket::absolute(path)?;
    let mtu = options.mtu.unwrap_or(MTU_DEFAULT);
    let frame_max = u32::from(mtu) + u32::from(FRAME_HEADER_MAX);
    let whole_frame = frame_max.next_multiple_of(64).clamp(BUFFER_BYTES, BUFFER_BYTES_MAX);
    let most = 1 << ring::RING_LOG2_MAX;
    let config = PortConfig {
        name: spec.to_string(),
        role: *role,
        id: *id,
        ring_log2: options.descriptors.clamp(1, most).next_power_of_two().ilog2() as u8,
        buffer_bytes: if options.mtu.is_some() { whole_frame } else { BUFFER_BYTES },
        frame_max,
        queues: options.queues.max(1),
        memory_bytes: options.memory_bytes,
    };
    let layout = layout::Layout {
        to_server: config.queues,
        to_client: config.queues,
        log2: config.ring_log2,
        buffer_bytes: config.buffer_bytes,
    };
    if *role == pktio::MemifRole::Client && layout.bytes().is_none() {
        return Err(device_error(
            "rings and buffers need more than 4 GiB: ask for fewer queues, descriptors or a lower MTU".into(),
        ));
    }
    let port = Port::new(config, pool).map_err(|error| device_error(error.to_string()))?;
    let port = Arc::new(port);
    let owner = Arc::new(Owner::new(Arc::clone(&port), &path)?);
    Ok(Box::new(MemifDevice { port, owner, mtu, queues_taken: false }))
}

/// A memif port.
struct MemifDevice {
    port: Arc<Port>,
    owner: Arc<Owner>,
    mtu: u16,
    queues_taken: bool,
}

impl Device for MemifDevice {
    fn name(&self) -> &str {
        &self.port.name
    }

    fn kind(&self) -> &'static str {
        "memif"
    }

    fn queue_count(&self) -> u16 {
        self.port.queues.len() as u16
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        if std::mem::replace(&mut self.queues_taken, true) {
            return Vec::new();
        }
        let queue = |index| Box::new(PortQueue::new(&self.port, index, &self.owner)) as Box<dyn Queue>;
        (0..self.port.queues.len()).map(queue).collect()
    }

    fn pool(&self) -> PoolRef {
        Arc::clone(&self.port.pool)
    }

    fn link(&self) -> LinkState {
        LinkState { up: self.port.is_up(), speed_mbps: None }
    }

    fn stats(&self) -> PortStats {
        self.port.stats()
    }

    fn mac(&self) -> Option<MacAddress> {
        None
    }

    fn mtu(&self) -> u16 {
        self.mtu
    }
}
