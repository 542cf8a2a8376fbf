//! What `memif_cycles` and `vhost_cycles` share: a port and its peer in one process, and the TSC cycles that the
//! port takes for each packet, apart for receiving and for sending.
//!
//! The peer is on the same thread (`near`: instructions and the first-level cache) or on another processor (`far`: each cache line
//! of the ring is fetched from there, as in service). Frames go back as they came. A reading is the median of a block of bursts, since
//! other programs interrupt some; shown are the median of all blocks, and the least.
//!
//! Buffers come from a list of one thread's, as with DPDK's per-thread caches.
#![allow(unsafe_code)]

use pktio::{BUFFER_CAPACITY, HEADROOM, Packet, Pool, PoolVtable, Queue, RawPacket, ticks};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::alloc::{Layout, alloc_zeroed};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bursts of a block, and blocks of a reading.
const BLOCK: usize = 128;
const BLOCKS: usize = 25;
/// Ticks a packet between receiving and sending, as a program takes them: prefetches go on meanwhile.
const PROGRAM: u64 = 40;
/// Polls that find nothing, after which a reading is given up: seconds, so the peer's thread has ended.
const POLLS_MAX: usize = 100_000_000;

/// Who is at the other end of the rings.
pub trait Peer: Send {
    /// Sends up to `count` frames; how many.
    fn send(&mut self, count: usize) -> usize;

    /// Takes all that has come, and gives its buffers back; how many frames.
    fn receive(&mut self) -> usize;
}

/// A pool without locks, of small buffers, which is never freed.
pub struct LocalPool {
    free: UnsafeCell<Vec<RawPacket>>,
    limit: usize,
}

// SAFETY: a pool and its packets are used by one thread at a time, by this file's construction.
unsafe impl Sync for LocalPool {}
// SAFETY: as above.
unsafe impl Send for LocalPool {}

/// In front of each buffer.
#[repr(C, align(64))]
struct Home {
    pool: *const LocalPool,
    packet: RawPacket,
}

static LOCAL: PoolVtable = PoolVtable {
    name: "local",
    free: local_free,
    free_bulk: local_free_bulk,
    alloc_like: local_alloc_like,
    alloc_like_bulk: local_alloc_like_bulk,
    pool_of: local_pool_of,
};

impl LocalPool {
    /// A pool of `limit` buffers, for one thread.
    pub fn leak(limit: usize) -> &'static LocalPool {
        const HUGE: usize = 2 << 20;
        // An odd number of cache lines, so that buffers begin in all sets of a cache.
        let stride = (size_of::<Home>() + BUFFER_CAPACITY).next_multiple_of(128) + 64;
        let pool: &'static LocalPool = Box::leak(Box::new(LocalPool { free: UnsafeCell::default(), limit }));
        let layout = Layout::from_size_align((limit * stride).next_multiple_of(HUGE), HUGE).expect("a small pool");
        // SAFETY: the layout is not empty; each buffer with its header lies in the memory, which is never freed.
        unsafe {
            let memory = NonNull::new(alloc_zeroed(layout)).expect("memory");
            for i in 0..limit {
                let home = memory.add(i * stride).cast::<Home>();
                let packet = RawPacket {
                    base: home.add(1).cast(),
                    handle: home.cast(),
                    vtable: &LOCAL,
                    capacity: BUFFER_CAPACITY as u16,
                    offset: HEADROOM as u16,
                    len: 0,
                    segment: 0,
                };
                home.write(Home { pool, packet });
                (*pool.free.get()).push(packet);
            }
        }
        pool
    }

    #[allow(clippy::mut_from_ref)]
    fn list(&self) -> &mut Vec<RawPacket> {
        // SAFETY: one thread uses the pool, and no caller keeps the reference.
        unsafe { &mut *self.free.get() }
    }
}

impl Pool for &'static LocalPool {
    fn alloc(&self) -> Option<Packet> {
        // SAFETY: a buffer in the list is nobody's.
        self.list().pop().map(|raw| unsafe { Packet::from_raw(raw) })
    }

    fn alloc_bulk(&self, out: &mut Vec<Packet>, n: usize) -> usize {
        let list = self.list();
        let n = n.min(list.len());
        let rest = list.len() - n;
        // SAFETY: as in `alloc`.
        out.extend(list[rest..].iter().map(|raw| unsafe { Packet::from_raw(*raw) }));
        list.truncate(rest);
        n
    }

    fn alloc_large(&self) -> Option<Packet> {
        None
    }

    fn limit(&self) -> usize {
        self.limit
    }

    fn available(&self) -> usize {
        self.list().len()
    }
}

/// # Safety
/// `handle` is that of a packet of a [`LocalPool`].
unsafe fn home<'a>(handle: NonNull<()>) -> (&'a &'static LocalPool, RawPacket) {
    // SAFETY: such a handle points to a header that lives for ever; a pointer to the pool is laid out as a reference.
    unsafe {
        let home = handle.cast::<Home>();
        (&*(&raw const (*home.as_ptr()).pool).cast::<&'static LocalPool>(), home.as_ref().packet)
    }
}

unsafe fn local_free(handle: NonNull<()>) {
    // SAFETY: the caller's.
    let (pool, packet) = unsafe { home(handle) };
    pool.list().push(packet);
}

unsafe fn local_free_bulk(packets: &[RawPacket]) {
    let Some(first) = packets.first() else { return };
    // SAFETY: the caller's; a thread has packets of one pool only.
    let (pool, _) = unsafe { home(first.handle) };
    let fresh = |raw: &RawPacket| raw.with_window(HEADROOM as u16, 0).with_segment(0);
    pool.list().extend(packets.iter().map(fresh));
}

unsafe fn local_alloc_like(handle: NonNull<()>) -> Option<Packet> {
    // SAFETY: the caller's.
    unsafe { home(handle) }.0.alloc()
}

unsafe fn local_alloc_like_bulk(handle: NonNull<()>, out: &mut Vec<Packet>, n: usize) {
    // SAFETY: the caller's.
    unsafe { home(handle) }.0.alloc_bulk(out, n);
}

unsafe fn local_pool_of(handle: NonNull<()>) -> usize {
    // SAFETY: the caller's.
    std::ptr::from_ref(*unsafe { home(handle) }.0) as usize
}

/// Bursts: ticks a packet to receive, and to send.
#[derive(Default)]
struct Block {
    bursts: Vec<[f64; 2]>,
    packets: usize,
    lost: usize,
}

impl Block {
    /// Receives a burst, if there is one, and sends it.
    #[inline]
    fn forward(&mut self, queue: &mut dyn Queue, packets: &mut Vec<Packet>, burst: usize) {
        let start = ticks();
        let count = queue.rx(packets, burst);
        let received = ticks();
        if count == 0 {
            return;
        }
        while ticks() < received + PROGRAM * count as u64 {}
        let sending = ticks();
        queue.tx(packets);
        let sent = ticks();
        self.lost += packets.len();
        pktio::free_bulk(packets);
        self.packets += count;
        self.bursts.push([received - start, sent - sending].map(|ticks| ticks as f64 / count as f64));
    }

    fn median(&self, of: fn(&[f64; 2]) -> f64) -> f64 {
        median(self.bursts.iter().map(of).collect())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // Without the second processor the numbers say what they say.
    let _ = sched_setaffinity(None, &set);
}

fn near(queue: &mut dyn Queue, peer: &mut dyn Peer, burst: usize) -> Vec<Block> {
    pin(0);
    let mut packets = Vec::with_capacity(burst);
    let block = |_| {
        let mut block = Block::default();
        for _ in 0..BLOCK {
            peer.send(burst);
            block.forward(queue, &mut packets, burst);
            peer.receive();
        }
        block
    };
    (0..BLOCKS).map(block).collect()
}

fn far(queue: &mut dyn Queue, peer: &mut dyn Peer, burst: usize) -> Vec<Block> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            while !stop.load(Ordering::Relaxed) {
                peer.send(burst);
                peer.receive();
            }
        });
        pin(0);
        let mut packets = Vec::with_capacity(burst);
        let mut blocks = Vec::new();
        let (mut block, mut polls) = (Block::default(), 0);
        while blocks.len() < BLOCKS && polls < POLLS_MAX {
            block.forward(queue, &mut packets, burst);
            polls += 1;
            if block.bursts.len() == BLOCK {
                blocks.push(std::mem::take(&mut block));
            }
        }
        stop.store(true, Ordering::Relaxed);
        blocks
    })
}

/// Measures bursts of 32 and 64 with the peer on both sides, and prints a line for each.
pub fn measure(name: &str, queue: &mut dyn Queue, peer: &mut dyn Peer) {
    for burst in [32, 64] {
        for (place, run) in [("near", near as fn(&mut dyn Queue, &mut dyn Peer, usize) -> Vec<Block>), ("far", far)] {
            // What the last one has left.
            let mut packets = Vec::new();
            while queue.rx(&mut packets, 64) + peer.receive() != 0 {
                pktio::free_bulk(&mut packets);
            }
            let blocks = run(queue, peer, burst);
            show(&format!("{name} burst {burst} {place}"), &blocks);
        }
    }
}

fn show(name: &str, blocks: &[Block]) {
    let reading = |of: fn(&[f64; 2]) -> f64| {
        let each: Vec<f64> = blocks.iter().map(|block| block.median(of)).collect();
        let least = each.iter().copied().fold(f64::INFINITY, f64::min);
        format!("{:5.1} ({least:5.1})", median(each))
    };
    let sum = |of: fn(&Block) -> usize| blocks.iter().map(of).sum::<usize>().max(1) as f64;
    let packets = sum(|block| block.packets);
    println!(
        "{name:<36} receive {} send {} both {} bursts of {:.0}, {:.1} % not sent",
        reading(|[receive, _]| *receive),
        reading(|[_, send]| *send),
        reading(|[receive, send]| receive + send),
        packets / sum(|block| block.bursts.len()),
        100.0 * blocks.iter().map(|block| block.lost).sum::<usize>() as f64 / packets,
    );
}
