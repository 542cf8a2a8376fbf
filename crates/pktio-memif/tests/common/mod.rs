//! What the tests share.
#![allow(dead_code)]

use pktio::{Device, Pool, PoolRef, Queue};
use pktio_memif::Options;
use std::path::Path;
use std::time::{Duration, Instant};

/// Far longer than anything takes on a machine that has much else to do.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const OPTIONS: Options = Options { queues: 1, descriptors: 64, mtu: None, memory_bytes: 1 << 30 };

pub struct End {
    pub device: Box<dyn Device>,
    pub queues: Vec<Box<dyn Queue>>,
}

pub fn open(path: &Path, rest: &str, options: &Options, pool: &PoolRef) -> End {
    let spec = format!("memif:{}{rest}", path.display()).parse().expect("a port");
    let mut device = pktio_memif::open(&spec, options, pool.clone()).unwrap_or_else(|error| panic!("{error}"));
    let queues = device.take_queues();
    End { device, queues }
}

impl End {
    pub fn is_up(&self) -> bool {
        self.device.link().up
    }

    /// Polls all queues; frames' bytes.
    pub fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        self.queues.iter_mut().for_each(|queue| _ = queue.rx(&mut packets, 64));
        packets.iter().map(|packet| packet.data().to_vec()).collect()
    }

    /// Sends on a queue; how many were taken.
    pub fn send(&mut self, queue: usize, pool: &dyn Pool, frames: &[Vec<u8>]) -> usize {
        let mut packets = frames.iter().map(|frame| pool.alloc_from(frame).expect("a buffer")).collect();
        self.queues[queue].tx(&mut packets)
    }
}

pub fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Open descriptors of this process, and mappings of memif memory.
pub fn held() -> (usize, usize) {
    let files = std::fs::read_dir("/proc/self/fd").expect("/proc").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    (files, maps.lines().filter(|line| line.contains("/memfd:")).count())
}

/// A server and a client that have found each other.
pub fn connected(path: &Path, options: [&Options; 2], pool: &PoolRef) -> (End, End) {
    let server = open(path, ",role=server", options[0], pool);
    let client = open(path, "", options[1], pool);
    wait_for("both links are up", || server.is_up() && client.is_up());
    (server, client)
}

/// Frames of these lengths, each once, from one end to the other.
pub fn cross(pool: &PoolRef, from: &mut End, to: &mut End, lengths: impl Iterator<Item = usize>) {
    let frames: Vec<Vec<u8>> = lengths.enumerate().map(|(i, bytes)| vec![i as u8 | 1; bytes]).collect();
    let (mut sent, mut received) = (0, Vec::new());
    wait_for("all frames arrive", || {
        let next = &frames[sent..frames.len().min(sent + 16)];
        sent += from.send(0, &**pool, next);
        received.extend(to.receive());
        received.len() == frames.len()
    });
    assert!(received == frames);
}
