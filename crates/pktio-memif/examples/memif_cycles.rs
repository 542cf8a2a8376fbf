//! TSC cycles that a memif port takes to receive and to send a packet, in both roles; its peer is a port of ours in the same process.
//!
//! `cargo run --release -p pktio-memif --example memif_cycles [WORD]`: cases whose name holds the word.

#[path = "../../pktio/examples/ports/mod.rs"]
mod ports;

use pktio::{Device, Packet, Pool, Queue};
use pktio_memif::Options;
use ports::{LocalPool, Peer};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Packets in a ring.
const DESCRIPTORS: u16 = 1024;

struct Port {
    _device: Box<dyn Device>,
    queue: Box<dyn Queue>,
    pool: &'static LocalPool,
    frame_bytes: usize,
    packets: Vec<Packet>,
}

impl Peer for Port {
    fn send(&mut self, count: usize) -> usize {
        self.packets.clear();
        self.pool.alloc_bulk(&mut self.packets, count);
        for packet in &mut self.packets {
            packet.set_len(self.frame_bytes).expect("buffers hold it");
        }
        let sent = self.queue.tx(&mut self.packets);
        pktio::free_bulk(&mut self.packets);
        sent
    }

    fn receive(&mut self) -> usize {
        let mut all = 0;
        loop {
            let count = self.queue.rx(&mut self.packets, 64);
            all += count;
            pktio::free_bulk(&mut self.packets);
            if count == 0 || all >= usize::from(DESCRIPTORS) {
                return all;
            }
        }
    }
}

fn open(path: &str, frame_bytes: usize) -> Port {
    let pool = LocalPool::leak(4096);
    let options = Options { queues: 1, descriptors: DESCRIPTORS, mtu: None, memory_bytes: 1 << 30 };
    let spec = format!("memif:{path}").parse().expect("a port");
    let device = pktio_memif::open(&spec, &options, Arc::new(pool)).expect("it opens");
    // As the switch opens it.
    let mut device = pktio::guard(device).expect("a thread is left");
    let queue = device.take_queues().remove(0);
    Port { _device: device, queue, pool, frame_bytes, packets: Vec::with_capacity(64) }
}

fn main() {
    let word = std::env::args().nth(1).unwrap_or_default();
    let folder = tempfile::tempdir().expect("a folder");
    for frame_bytes in [60, 1500] {
        for role in ["server", "client"] {
            let name = format!("memif {role} {frame_bytes} B");
            if !name.contains(&word) {
                continue;
            }
            let path = folder.path().join(format!("{role}{frame_bytes}"));
            let path = path.display();
            let mut server = open(&format!("{path},role=server"), frame_bytes);
            let mut client = open(&format!("{path}"), frame_bytes);
            let deadline = Instant::now() + Duration::from_secs(10);
            while !(server._device.link().up && client._device.link().up) {
                assert!(Instant::now() < deadline, "the ports find each other");
                std::thread::sleep(Duration::from_millis(1));
            }
            let (port, mut peer) = if role == "server" { (&mut server, client) } else { (&mut client, server) };
            ports::measure(&name, &mut *port.queue, &mut peer);
        }
    }
}
