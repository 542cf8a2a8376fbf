//! Bodies of the fuzz target, also used to replay its inputs: bytes as messages, and as memory that holds rings.
//!
//! Not a public API.

use crate::device::{Options, make_port};
use crate::memory::{Allowed, Memory};
use crate::message::{self, HEADER_BYTES, Region};
use crate::ring::Ring;
use crate::session::Session;
use crate::terms::{Burst, Parts, Terms};
use crate::{packed, split};
use pktio::HeapPool;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use shared_memory::{Closer, PeerFile};
use std::os::fd::OwnedFd;
use std::sync::Arc;

const OPTIONS: Options = Options { is_server: true, queues: 2, mtu: 9000, memory_bytes: 1 << 30 };

/// Size of the memory that holds the rings, in bytes.
const BYTES: usize = 1 << 16;

fn memfd() -> Option<OwnedFd> {
    let file = memfd_create("fuzz", MemfdFlags::CLOEXEC).ok()?;
    ftruncate(&file, BYTES as u64).ok()?;
    Some(file)
}

/// Runs a sequence of front end messages. Each is a byte for the request, one for flags and the number of files (memory
/// each), one for the payload's length, and the payload. Between messages a worker polls both rings of the first pair.
pub fn messages(mut bytes: &[u8]) {
    let pool = HeapPool::shared(256);
    let Ok((port, calls)) = make_port("fuzz", &OPTIONS, pool.clone()) else { return };
    let closer = Closer::default();
    let mut session = Session::new(&port, &Arc::new(calls));
    while let [code, flags, length, rest @ ..] = bytes {
        let (payload, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        bytes = rest;
        let mut header = [0; HEADER_BYTES];
        let needs_reply = u32::from(flags & 8);
        for (to, word) in header.chunks_mut(4).zip([u32::from(*code), 1 | needs_reply, payload.len() as u32]) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        assert_eq!(message::payload_bytes(&header), Ok(payload.len()));
        let Ok(message) = message::parse(&header, payload) else { continue };
        let files = (0..flags & 7).filter_map(|_| Some(PeerFile::new(memfd()?, &closer))).collect();
        let _ = session.handle(&message, files);
        let Some(mut rings) = port.pairs[0].rings.try_lock() else { panic!("nobody else has it") };
        let mut packets = Vec::new();
        if let Some(ring) = rings.from_guest.as_mut() {
            let _ = ring.receive(&*pool, &mut packets, 64, &mut Burst::default());
        }
        if let Some(ring) = rings.to_guest.as_mut() {
            packets.extend(pool.alloc_from(&[1; 60]));
            let _ = ring.send(&mut packets, 9018, &mut Burst::default());
            ring.take_call();
        }
    }
}

/// Runs a split or packed ring in memory that is filled with the input; its first bytes choose how the ring is used.
pub fn rings(bytes: &[u8]) {
    let Some((&[kind, size, base, at, mode, len], image)) = bytes.split_first_chunk::<6>() else { return };
    let Some(file) = memfd() else { return };
    let region = Region { guest: 0, bytes: BYTES as u64, user: 0, offset: 0 };
    let Ok(allowed) = Allowed::new(BYTES as u64) else { return };
    let Ok(memory) = Memory::default().with(region, &file, &allowed) else { return };
    let Some(all) = memory.place(0, BYTES, 1) else { return };
    if let Some(slice) = memory.at(all) {
        // Rings may start anywhere in this memory, so the image is repeated throughout it.
        for offset in (0..BYTES).step_by(image.len().max(16)) {
            slice.write_bytes(offset, &image[..image.len().min(BYTES - offset)]);
        }
    }
    let is_packed = kind & 1 != 0;
    let size = if is_packed { u16::from(size) + 1 } else { 1 << (size % 11) };
    let [descriptors, driver, device] = if is_packed { packed::layout(size) } else { split::layout(size) };
    let start = u64::from(at) * 16;
    let place = |user, (len, align)| memory.place(user, len, align);
    let (Some(descriptors), Some(driver), Some(device)) =
        (place(start, descriptors), place(start + 0x4000, driver), place(start + 0x8000, device))
    else {
        return;
    };
    let parts = Parts { size, descriptors, driver, device, log_at: None };
    let terms = Terms {
        header_bytes: if mode & 1 != 0 { 12 } else { 10 },
        mergeable: mode & 2 != 0,
        leaves_work: mode & 8 == 0,
        takes: if mode & 4 != 0 { 1 << 1 | 1 << 4 } else { 0 },
        accepts: pktio::offload::Accepted::ALL,
        log: None,
    };
    let base = u32::from(base) | if kind & 2 != 0 { 0x8000 } else { 0 };
    let Some(mut ring) = Ring::new(Arc::new(memory.clone()), parts, is_packed, base, terms) else { return };
    let pool = HeapPool::shared(256);
    for _ in 0..4 {
        let mut packets = Vec::new();
        let mut burst = Burst::default();
        if mode & 8 == 0 {
            let _ = ring.receive(&*pool, &mut packets, 64, &mut burst);
            assert!(packets.len() <= 64 && packets.iter().all(|packet| !packet.is_empty()));
        } else {
            let frame = vec![0x45; usize::from(len) * 40 + 1];
            packets.extend((0..8).filter_map(|_| pool.alloc_from(&frame)));
            if let Some(packet) = packets.first_mut() {
                packet.set_segment(u16::from(mode >> 4) * 100);
            }
            let _ = ring.send(&mut packets, 9018, &mut burst);
        }
        ring.take_call();
        ring.has_entries();
        ring.want_kicks(mode & 16 != 0);
        let _ = ring.base();
    }
    assert!(!memory.is_damaged());
}

/// The fuzz target: the first byte selects [`messages`] or [`rings`].
pub fn any(bytes: &[u8]) {
    match bytes.split_first() {
        Some((0, rest)) => messages(rest),
        Some((_, rest)) => rings(rest),
        None => {}
    }
}

/// Seed corpus: front ends that start, stop and move rings, and ring images; both for split and packed rings.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for is_packed in [false, true] {
        for ending in 0..3u8 {
            let mut bytes = vec![0];
            let mut say = |code: u8, flags: u8, payload: &[u8]| {
                bytes.extend([code, flags, payload.len() as u8]);
                bytes.extend(payload);
            };
            let words = |values: &[u32]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
            let longs = |values: &[u64]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
            say(1, 0, &[]);
            say(2, 0, &longs(&[1 << 15 | 1 << 26 | 1 << 32 | if is_packed { 1 << 34 } else { 0 }]));
            say(5, 1, &[words(&[1, 0]), longs(&[0, BYTES as u64, 0x10_0000, 0])].concat());
            say(6, 1, &longs(&[4096, 0]));
            for ring in 0..2u32 {
                let at = 0x10_0000 + u64::from(ring) * 0x4000;
                say(8, 0, &words(&[ring, 16]));
                say(10, 0, &words(&[ring, if is_packed { 0x8000 } else { 0 }]));
                say(9, 0, &[words(&[ring, 1]), longs(&[at, at + 0x1000, at + 0x2000, 0])].concat());
                say(12, 0, &longs(&[u64::from(ring) | 1 << 8]));
            }
            match ending {
                0 => say(11, 0, &words(&[0, 0])),
                1 => say(8, 0, &words(&[1, 32_768])),
                _ => say(38, 0, &longs(&[0, 0, BYTES as u64, 0x10_0000, 0])),
            }
            all.push(bytes);
        }
        for mode in [0, 1, 3, 9, 11, 27] {
            let mut bytes = vec![1, u8::from(is_packed) | 2, 6, 0, 0, mode, 40];
            for i in 0..64u64 {
                let flags = if is_packed { 0x80 } else { i & 1 };
                let rest = 1500 | if is_packed { flags << 48 } else { flags << 32 | (i + 1) << 48 };
                bytes.extend([0xc000 + i * 64, rest].map(u64::to_ne_bytes).concat());
            }
            all.push(bytes);
        }
    }
    all
}
