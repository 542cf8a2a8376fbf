//! TSC cycles that a vhost-user port takes to receive and to send a packet, through split and packed rings; its guest is in the same
//! process, and places headers and frames as DPDK's driver does: a frame begins a cache line, and its header ends the line before.
//!
//! `cargo run --release -p pktio-vhost --example vhost_cycles [WORD]`: cases whose name holds the word.
#![allow(unsafe_code)]

#[path = "../../pktio-dpdk/tests/common/guest.rs"]
mod guest;
#[path = "../../pktio/examples/ports/mod.rs"]
mod ports;

use guest::{F_MRG_RXBUF, F_RING_PACKED, F_VERSION_1, Guest, Header};
use pktio_vhost::{Options, open};
use ports::{LocalPool, Peer};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// Places of a ring, a power of two; each has a buffer.
const SIZE: u16 = 1024;
/// Where the rings and their buffers are in the guest's memory, behind the guest's own.
const RINGS_AT: usize = 0x10_0000;
const RING_BYTES: usize = 0x1_0000;
const AVAILABLE_AT: usize = 0x8000;
const USED_AT: usize = 0xa000;
const BUFFERS_AT: usize = 0x20_0000;
const BUFFER_STRIDE: usize = 2048 + 64;

const WRITE: u16 = 2;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// A ring of a driver: 0 receives, 1 sends.
struct Ring {
    at: NonNull<u8>,
    buffers_at: usize,
    packed: bool,
    /// Entries made available, and taken back, without end.
    given: usize,
    back: usize,
}

impl Ring {
    fn word(&self, at: usize) -> &AtomicU16 {
        // SAFETY: in the ring's part of the mapping, and aligned.
        unsafe { AtomicU16::from_ptr(self.at.as_ptr().add(at).cast()) }
    }

    fn long(&self, at: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.at.as_ptr().add(at).cast()) }
    }

    /// The guest's address of a place's buffer.
    fn buffer(&self, place: usize) -> usize {
        self.buffers_at + place % usize::from(SIZE) * BUFFER_STRIDE + 64 - Header::BYTES
    }

    /// Makes the next buffers available.
    fn give(&mut self, count: usize, len: usize, flags: u16) {
        let size = usize::from(SIZE);
        let first = self.given;
        for entry in first..first + count {
            let place = entry % size;
            let marks = if (entry / size).is_multiple_of(2) { AVAIL } else { USED };
            let rest = if self.packed {
                len as u64 | (place as u64) << 32 | u64::from(flags | marks) << 48
            } else {
                self.word(AVAILABLE_AT + 4 + 2 * place).store(place as u16, Ordering::Relaxed);
                len as u64 | u64::from(flags) << 32
            };
            self.long(16 * place).store(self.buffer(place) as u64, Ordering::Relaxed);
            self.long(16 * place + 8).store(rest, Ordering::Release);
        }
        self.given += count;
        if !self.packed {
            self.word(AVAILABLE_AT + 2).store(self.given as u16, Ordering::Release);
        }
    }

    /// How many have come back, at most `most`.
    fn take(&mut self, most: usize) -> usize {
        let size = usize::from(SIZE);
        let all = if self.packed {
            let is_used = |entry: &usize| {
                let marks = if (entry / size).is_multiple_of(2) { AVAIL | USED } else { 0 };
                self.word(16 * (entry % size) + 14).load(Ordering::Acquire) & (AVAIL | USED) == marks
            };
            (self.back..self.given).take(most).take_while(is_used).count()
        } else {
            usize::from(self.word(USED_AT + 2).load(Ordering::Acquire).wrapping_sub(self.back as u16))
        };
        let count = all.min(most);
        self.back += count;
        count
    }
}

struct Driver {
    _guest: Guest,
    memory: NonNull<u8>,
    rings: [Ring; 2],
    frame_bytes: usize,
    /// So that frames are read.
    sum: u64,
}

// SAFETY: the memory is the guest's own, and one thread at a time is its driver.
unsafe impl Send for Driver {}

impl Driver {
    fn connect(path: &str, packed: bool, frame_bytes: usize) -> Driver {
        let features = F_MRG_RXBUF | F_VERSION_1 | if packed { F_RING_PACKED } else { 0 };
        let mut guest = Guest::connect(path, features, 2048);
        let words = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        for ring in 0..2u32 {
            let at = (RINGS_AT + ring as usize * RING_BYTES) as u64;
            guest.ask(11, &words(&[ring, 0]));
            guest.tell(8, &words(&[ring, SIZE.into()]), None);
            guest.tell(10, &words(&[ring, if packed { 0x8000 } else { 0 }]), None);
            let mut addresses = words(&[ring, 0]);
            let parts = [at, at + USED_AT as u64, at + AVAILABLE_AT as u64];
            addresses.extend(parts.map(|at| guest.user(at).to_le_bytes()).concat());
            addresses.extend(0u64.to_le_bytes());
            guest.tell(9, &addresses, None);
            guest.tell(12, &(u64::from(ring) | 1 << 8).to_le_bytes(), None);
        }
        assert!(guest.is_connected());
        // SAFETY: the guest's memory once more, for as long as the process lives.
        let memory = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let (bytes, file) = (guest::MEMORY_BYTES, guest.file().as_raw_fd());
            let at = libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file, 0);
            assert_ne!(at, libc::MAP_FAILED);
            NonNull::new(at.cast::<u8>()).expect("an address")
        };
        let ring = |number: usize| {
            // SAFETY: in the memory.
            let at = unsafe { memory.add(RINGS_AT + number * RING_BYTES) };
            let buffers_at = BUFFERS_AT + number * usize::from(SIZE) * BUFFER_STRIDE;
            Ring { at, buffers_at, packed, given: 0, back: 0 }
        };
        let mut driver = Driver { _guest: guest, memory, rings: [ring(0), ring(1)], frame_bytes, sum: 0 };
        // Who polls wants no interrupts.
        for ring in &driver.rings {
            ring.word(AVAILABLE_AT + if packed { 2 } else { 0 }).store(1, Ordering::Relaxed);
        }
        driver.rings[0].give(SIZE.into(), 2048, WRITE);
        driver
    }

    fn at(&self, address: usize) -> *mut u8 {
        assert!(address < guest::MEMORY_BYTES);
        // SAFETY: in the memory.
        unsafe { self.memory.as_ptr().add(address) }
    }
}

impl Peer for Driver {
    fn send(&mut self, count: usize) -> usize {
        self.rings[1].take(SIZE.into());
        let ring = &self.rings[1];
        let count = count.min(usize::from(SIZE) - (ring.given - ring.back));
        for i in 0..count {
            let buffer = self.at(ring.buffer(ring.given + i));
            // SAFETY: a header and a frame are shorter than a buffer.
            unsafe {
                buffer.write_bytes(0, Header::BYTES);
                buffer.add(Header::BYTES).write_bytes(i as u8, self.frame_bytes);
            }
        }
        let len = Header::BYTES + self.frame_bytes;
        self.rings[1].give(count, len, 0);
        count
    }

    fn receive(&mut self) -> usize {
        let ring = &self.rings[0];
        let first = ring.back;
        let mut all = 0;
        loop {
            let count = self.rings[0].take(64);
            for entry in first + all..first + all + count {
                let ring = &self.rings[0];
                let buffer = self.at(ring.buffer(entry));
                // SAFETY: in the buffer, whose frame begins a cache line.
                self.sum +=
                    unsafe { u64::from(buffer.add(10).read()) + buffer.add(Header::BYTES).cast::<u64>().read() };
            }
            all += count;
            self.rings[0].give(count, 2048, WRITE);
            if count == 0 || all >= usize::from(SIZE) {
                return all;
            }
        }
    }
}

fn main() {
    let word = std::env::args().nth(1).unwrap_or_default();
    let folder = tempfile::tempdir().expect("a folder");
    for frame_bytes in [60, 1500] {
        for kind in ["split", "packed"] {
            let name = format!("vhost {kind} {frame_bytes} B");
            if !name.contains(&word) {
                continue;
            }
            let path = folder.path().join(format!("{kind}{frame_bytes}"));
            let options = Options { is_server: true, queues: 1, mtu: 9000, memory_bytes: 1 << 30 };
            let device = open(name.clone(), &path, &options, Arc::new(LocalPool::leak(4096))).expect("it opens");
            // As the switch opens it.
            let mut device = pktio::guard(device).expect("a thread is left");
            let mut queue = device.take_queues().remove(0);
            let mut driver = Driver::connect(&path.display().to_string(), kind == "packed", frame_bytes);
            ports::measure(&name, &mut *queue, &mut driver);
            assert!(driver.sum != 0);
        }
    }
}
