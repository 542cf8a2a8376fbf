//! Bodies of the fuzz targets: a hostile peer driven by the input's bytes. The test suite replays their findings.
//!
//! [`fuzz_messages`]: the input is a client's messages to a server, of which it gives the first
//! [`MESSAGE_START`] bytes. Regions come with 64 KB of memory that holds the other bytes. If they
//! connect, a burst goes through each ring.
//!
//! [`fuzz_rings`]: the input is a list of steps. In each, the peer writes bytes anywhere into the shared memory, or
//! one of our four ring ends receives or sends a burst. Checked: nothing panics, a burst is no longer than
//! requested, frames are no longer than buffers, and counters match what was done. An access outside the memory
//! faults, because no other mapping adjoins it.

use crate::handshake::Building;
use crate::layout::{Layout, Made};
use crate::memory::Memory;
use crate::port::{Link, Port, PortConfig};
use crate::receive::Receiver;
use crate::ring::Ring;
use crate::transmit::Transmitter;
use crate::wire::{AddRegion, AddRing, Init, MESSAGE_BYTES, MODE_ETHERNET, Message, VERSION};
use pktio::{Bell, HeapPool, MemifRole, Packet, Pool, PortStats};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use shared_memory::{Closer, Notifier, PeerFile, Quota};
use std::sync::Arc;

/// Packets in a burst.
const BURST: usize = 32;

/// Maximum steps of an input: longer inputs find nothing new.
const STEPS_MAX: usize = 256;

/// Bytes of a message that the input gives: they contain all the numbers that matter here.
const MESSAGE_START: usize = 16;

/// Size of a region's file in bytes.
const FILE_BYTES: u64 = 64 << 10;

/// Seed corpus: honest peers, and every invalid descriptor and index that we know of.
pub fn fuzz_seeds() -> Vec<Vec<u8>> {
    let write = |place: u32, bytes: &[u8]| {
        // The step's upper four bits are the number of bytes minus one.
        let mut step = vec![((bytes.len() as u8).wrapping_sub(1) << 4) | 8];
        step.extend(place.to_le_bytes());
        step.extend(bytes);
        step
    };
    let descriptor = |flags: u16, region: u16, length: u32, offset: u32| {
        let low = u64::from(flags) | u64::from(region) << 16 | u64::from(length) << 32;
        [low.to_le_bytes(), u64::from(offset).to_le_bytes()].concat()
    };
    let lies = [
        (0, 0, 64, 1024),
        (1, 0, 64, 1024),
        (0, 0x7fff, 64, 0),
        (0, 0, 64, 0xfff0_0000),
        (0, 0, u32::MAX, 0),
        (0, 0, 0, 0),
    ];
    let mut seeds = Vec::new();
    for (flags, region, length, offset) in lies {
        // Writes the first descriptor of the ring to the server, and its head; then the server receives.
        let right = write(128, &descriptor(flags, region, length, offset));
        seeds.push([vec![0], right, write(6, &1u16.to_le_bytes()), vec![0]].concat());
    }
    for index in [1u16, 16, 17, 0xffff] {
        for place in [6, 64] {
            seeds.push([vec![0], write(place, &index.to_le_bytes()), vec![0, 1, 4, 60, 5, 60]].concat());
        }
    }
    // A region, a ring in each direction, and CONNECT; then the same with other ring offsets.
    for offset in [0u32, 4, 64 << 10, u32::MAX] {
        let start = |message: Message| message.encode()[..MESSAGE_START].to_vec();
        let ring = |flags, log2| {
            let (index, region, private_header_bytes) = (0, 0, 0);
            start(Message::AddRing(AddRing { flags, index, region, offset, log2, private_header_bytes }))
        };
        let region = start(Message::AddRegion(AddRegion { index: 0, bytes: FILE_BYTES }));
        let end = start(Message::Connect(String::new()));
        seeds.push([vec![1], region, ring(1, 4), ring(0, 5), end].concat());
    }
    seeds
}

/// Runs the target that the first byte selects.
pub fn fuzz(bytes: &[u8]) {
    match bytes.split_first() {
        Some((first, rest)) if first & 1 == 0 => fuzz_rings(rest),
        Some((_, rest)) => fuzz_messages(rest),
        None => {}
    }
}

/// Handles the messages that the input encodes for a client.
pub fn fuzz_messages(bytes: &[u8]) {
    let pool = HeapPool::shared(4 * BURST);
    let config = PortConfig {
        name: "fuzz".into(),
        role: MemifRole::Server,
        id: 0,
        ring_log2: 4,
        buffer_bytes: 256,
        frame_max: 1518,
        queues: 2,
        memory_bytes: 1 << 30,
    };
    let closer = Closer::default();
    let (Ok(port), Ok(bell)) = (Port::new(config, pool.clone()), Bell::new()) else { return };
    let init = Init { version: VERSION, id: 0, mode: MODE_ETHERNET, secret: [0; 24], name: String::new() };
    let Ok(mut building) = Building::new(Arc::new(port), &init) else { return };
    for start in bytes.chunks_exact(MESSAGE_START).take(STEPS_MAX) {
        let mut message = [0; MESSAGE_BYTES];
        message[..MESSAGE_START].copy_from_slice(start);
        let taken = match Message::decode(&message) {
            Some(Message::AddRegion(region)) => {
                let Ok(file) = memfd_create("fuzz", MemfdFlags::CLOEXEC) else { return };
                let written = ftruncate(&file, FILE_BYTES).and_then(|()| rustix::io::pwrite(&file, bytes, 0));
                building.add_region(region, written.is_ok().then(|| PeerFile::new(file, &closer)))
            }
            Some(Message::AddRing(ring)) => {
                let event = eventfd(0, EventfdFlags::CLOEXEC).ok();
                building.add_ring(ring, event.map(|event| PeerFile::new(event, &closer)))
            }
            Some(Message::Connect(_)) => {
                let Ok(ends) = building.connect(&Arc::new(Link::new(bell))) else { return };
                for mut end in ends {
                    let (mut packets, mut stats) = (Vec::new(), PortStats::default());
                    if let Some(receiver) = &mut end.receiver {
                        let _ = receiver.receive(&*pool, &mut packets, BURST, &mut stats);
                        assert!(packets.len() <= BURST);
                    }
                    packets.extend(pool.alloc_from(&[0x5a; 600]));
                    if let Some(sender) = &mut end.sender {
                        let _ = sender.with(|ring| ring.send(&packets, 1518, &mut stats));
                    }
                }
                return;
            }
            _ => return,
        };
        if taken.is_err() {
            return;
        }
    }
}

/// Runs the steps that the input encodes for a peer.
pub fn fuzz_rings(bytes: &[u8]) {
    let layout = Layout { to_server: 1, to_client: 1, log2: 4, buffer_bytes: 256 };
    let Ok(quota) = Quota::new(2) else { return };
    let (Ok(made), Some(size)) = (layout.make(&quota), layout.bytes()) else { return };
    let Made { file, memory: ours, mut rings } = made;
    let mut mapped = Memory::default();
    if mapped.add(&file, size, &quota).is_err() {
        return;
    }
    let theirs = Arc::new(mapped);
    let (Ok(event), Ok(notifier)) = (eventfd(0, EventfdFlags::CLOEXEC), Notifier::new("fuzz", 1)) else { return };
    notifier.set(0, Some(Arc::new(event)));
    let doorbell = || notifier.doorbell(0);
    let (Some((back, back_buffers)), Some((out, out_buffers))) = (rings.pop(), rings.pop()) else { return };
    let ring = |number| Ring::new(&theirs, 0, layout.ring_at(number), layout.log2);
    let (Some(first), Some(second)) = (ring(0), ring(1)) else { return };
    let mut receivers = [Receiver::of_server(first, None), Receiver::of_client(back, back_buffers, None)];
    let mut senders =
        [Transmitter::of_server(second, doorbell()), Transmitter::of_client(out, out_buffers, doorbell())];
    receivers[1].begin();
    let pool = HeapPool::new(4 * BURST);
    let mut steps = bytes;
    for _ in 0..STEPS_MAX {
        let Some((&step, rest)) = steps.split_first() else { break };
        steps = rest;
        match step {
            0..4 => {
                let mut out = Vec::new();
                let mut stats = PortStats::default();
                let result = receivers[usize::from(step & 1)].receive(&pool, &mut out, BURST, &mut stats);
                assert!(out.len() <= BURST);
                if result.is_ok() {
                    assert_eq!(stats.rx_packets, out.len() as u64);
                    assert_eq!(stats.rx_bytes, out.iter().map(|packet| packet.len() as u64).sum::<u64>());
                }
                assert!(out.iter().all(|packet| !packet.is_empty()));
            }
            4..8 => {
                let lengths = steps.iter().take(BURST).map(|&byte| usize::from(byte) * 5 + 1);
                let packets: Vec<Packet> =
                    lengths.map_while(|bytes| pool.alloc_from(&vec![byte_of(bytes); bytes])).collect();
                let mut stats = PortStats::default();
                if let Ok((sent, _)) = senders[usize::from(step & 1)].send(&packets, 1000, &mut stats) {
                    assert!(sent <= packets.len());
                    assert_eq!(stats.tx_packets + stats.tx_dropped, sent as u64);
                }
            }
            _ => {
                // Usually only the ring structures; if the lowest bit is set, all of the memory.
                let Some((place, rest)) = steps.split_first_chunk::<4>() else { break };
                let place = u32::from_le_bytes(*place);
                let reach = if step & 1 == 0 { layout.ring_at(2) } else { size as u32 };
                let (written, rest) = rest.split_at(rest.len().min(usize::from(step >> 4) + 1));
                steps = rest;
                ours.write(place % reach, written);
            }
        }
    }
}

fn byte_of(bytes: usize) -> u8 {
    bytes as u8
}
