//! Where packets come from: the [`Pool`] trait and the heap pool.
//!
//! A packet is always in one piece. There are two sizes of buffers: small ones for what networks carry by default, and large
//! ones, fewer, for jumbo frames and for large frames that are cut up later ([`Packet::segment`]). One copy of a long frame
//! that a device delivers in pieces costs less than every program, engine and device dealing with pieces.
//!
//! [`HeapPool`] hands out at most `limit` buffers, recycles them, and allocates lazily. Each buffer starts with a
//! 64-byte header that names its pool and size, so that a packet finds its way home from any thread; a buffer that is out
//! holds one strong count of the pool, so the pool outlives its packets.
//!
//! Threads: any. One mutex guards the free list; bulk calls take it once. The heap pool serves tests, packet-out and
//! the devices without DPDK; ports at line rate use the DPDK mempool, which has per-thread caches.
//! Tests: `pool/tests.rs`.
#![allow(unsafe_code)]

use crate::packet::{Packet, PoolVtable, RawPacket};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes kept free before the data of a fresh packet.
pub const HEADROOM: usize = 128;

/// Size of a small buffer: headroom and 2 KB of data.
pub const BUFFER_CAPACITY: usize = HEADROOM + 2048;

/// Size of a large buffer, headroom included: what a packet's 16-bit lengths allow, in whole cache lines.
pub const LARGE_CAPACITY: usize = 65_472;

/// Large buffers of a heap pool, at most.
const HEAP_LARGE_LIMIT: usize = 512;

/// A source of packet buffers, shared by workers and control.
pub trait Pool: Send + Sync {
    /// An empty packet with at least [`HEADROOM`] bytes before its data; `None` when all buffers are out.
    fn alloc(&self) -> Option<Packet>;

    /// Appends up to `n` empty packets to `out`; returns how many.
    fn alloc_bulk(&self, out: &mut Vec<Packet>, n: usize) -> usize {
        let before = out.len();
        out.extend((0..n).map_while(|_| self.alloc()));
        out.len() - before
    }

    /// An empty packet in a large buffer; `None` when all of them are out.
    fn alloc_large(&self) -> Option<Packet>;

    /// A packet that holds `bytes`; `None` when all buffers are out or `bytes` does not fit into one.
    fn alloc_from(&self, bytes: &[u8]) -> Option<Packet> {
        let is_small = bytes.len() <= BUFFER_CAPACITY - HEADROOM;
        let mut packet = if is_small { self.alloc() } else { self.alloc_large() }?;
        packet.set_data(bytes).ok()?;
        Some(packet)
    }

    /// How many small buffers there are, in and out.
    fn limit(&self) -> usize;

    /// How many small buffers are in the pool now (exact when no other thread uses it).
    fn available(&self) -> usize;
}

/// A shared pool.
pub type PoolRef = Arc<dyn Pool>;

/// A bounded, thread-safe pool of heap buffers.
pub struct HeapPool {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<[State; 2]>,
}

/// The buffers of one size.
struct State {
    /// Headroom and data.
    capacity: usize,
    limit: usize,
    free: Vec<FreeBuffer>,
    /// Buffers allocated so far, in and out; never above `limit`.
    allocated: usize,
}

const SMALL: usize = 0;
const LARGE: usize = 1;

/// A buffer that nobody uses; the pointer is to its header.
struct FreeBuffer(NonNull<Header>);

// SAFETY: a free buffer is plain memory owned by the pool.
unsafe impl Send for FreeBuffer {}

/// In front of every buffer. `pool` is a strong count while the buffer is out, and dangling while it is in.
#[repr(C, align(64))]
struct Header {
    pool: *const Shared,
    /// [`SMALL`] or [`LARGE`].
    size: usize,
}

const fn layout(capacity: usize) -> Layout {
    match Layout::from_size_align(size_of::<Header>() + capacity, align_of::<Header>()) {
        Ok(layout) => layout,
        Err(_) => panic!("the buffer layout overflows"),
    }
}

static HEAP_VTABLE: PoolVtable =
    PoolVtable { name: "heap", free: heap_free, free_bulk: heap_free_bulk, alloc_like: heap_alloc_like };

impl HeapPool {
    /// A pool of at most `limit` small buffers.
    pub fn new(limit: usize) -> HeapPool {
        let state = |capacity, limit| State { capacity, limit, free: Vec::new(), allocated: 0 };
        let sizes = [state(BUFFER_CAPACITY, limit), state(LARGE_CAPACITY, limit.min(HEAP_LARGE_LIMIT))];
        HeapPool { shared: Arc::new(Shared { state: Mutex::new(sizes) }) }
    }

    /// A shared pool of at most `limit` small buffers.
    pub fn shared(limit: usize) -> PoolRef {
        Arc::new(HeapPool::new(limit))
    }
}

impl Pool for HeapPool {
    fn alloc(&self) -> Option<Packet> {
        self.shared.alloc(SMALL)
    }

    fn alloc_large(&self) -> Option<Packet> {
        self.shared.alloc(LARGE)
    }

    fn alloc_bulk(&self, out: &mut Vec<Packet>, n: usize) -> usize {
        let before = out.len();
        let mut state = self.shared.lock();
        out.extend((0..n).map_while(|_| self.shared.take(&mut state[SMALL], SMALL)));
        out.len() - before
    }

    fn limit(&self) -> usize {
        self.shared.lock()[SMALL].limit
    }

    fn available(&self) -> usize {
        let state = &self.shared.lock()[SMALL];
        state.limit - state.allocated + state.free.len()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, [State; 2]> {
        // The state is consistent between any two statements, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alloc(self: &Arc<Self>, size: usize) -> Option<Packet> {
        self.take(&mut self.lock()[size], size)
    }

    fn take(self: &Arc<Self>, state: &mut State, size: usize) -> Option<Packet> {
        let layout = layout(state.capacity);
        let header = match state.free.pop() {
            Some(FreeBuffer(header)) => header,
            None if state.allocated < state.limit => {
                state.allocated += 1;
                // SAFETY: the layout has a size above zero.
                let memory = unsafe { alloc_zeroed(layout) };
                NonNull::new(memory.cast::<Header>()).unwrap_or_else(|| handle_alloc_error(layout))
            }
            None => return None,
        };
        // SAFETY: the buffer is out of the free list, so it is ours; its data starts right after the header, and the
        // strong count that `pool` holds is given back by `Shared::give_back`.
        unsafe {
            header.as_ptr().write(Header { pool: Arc::into_raw(Arc::clone(self)), size });
            let base = header.add(1).cast::<u8>();
            Some(Packet::from_raw(RawPacket {
                base,
                handle: header.cast(),
                vtable: &HEAP_VTABLE,
                capacity: state.capacity as u16,
                offset: HEADROOM as u16,
                len: 0,
                segment: 0,
            }))
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Every buffer that is out holds a strong count, so all are in now.
        for state in self.state.get_mut().unwrap_or_else(PoisonError::into_inner) {
            debug_assert_eq!(state.free.len(), state.allocated);
            for FreeBuffer(header) in state.free.drain(..) {
                // SAFETY: allocated in `take` with this layout, and used by nobody.
                unsafe { dealloc(header.as_ptr().cast(), layout(state.capacity)) }
            }
        }
    }
}

/// Puts the buffers of one pool back, then gives up their strong counts (outside the lock: the last one frees the pool).
///
/// # Safety
/// `packets` is not empty; all are owned by the caller, have `HEAP_VTABLE` and the same pool.
unsafe fn give_back(packets: &[RawPacket]) {
    // SAFETY: a handle of this vtable points to the header that `take` wrote.
    let pool = unsafe { packets[0].handle.cast::<Header>().as_ref().pool };
    // SAFETY: each packet holds a strong count on `pool` until the loop below.
    let shared = unsafe { &*pool };
    let mut state = shared.lock();
    for packet in packets {
        // SAFETY: as above; `take` has written the size.
        let size = unsafe { packet.handle.cast::<Header>().as_ref().size };
        state[size].free.push(FreeBuffer(packet.handle.cast()));
    }
    drop(state);
    for _ in packets {
        // SAFETY: the count that `take` made for this packet.
        unsafe { Arc::decrement_strong_count(pool) }
    }
}

unsafe fn heap_free(handle: NonNull<()>) {
    // SAFETY: as promised by the caller (`PoolVtable::free`); only the handle of the raw packet is used.
    unsafe {
        let base = handle.cast::<Header>().add(1).cast();
        give_back(&[RawPacket { base, handle, vtable: &HEAP_VTABLE, capacity: 0, offset: 0, len: 0, segment: 0 }]);
    }
}

unsafe fn heap_free_bulk(packets: &[RawPacket]) {
    // SAFETY: the caller owns all packets and they have this vtable (`PoolVtable::free_bulk`).
    let pool_of = |packet: &RawPacket| unsafe { packet.handle.cast::<Header>().as_ref().pool };
    // `chunk_by` compares an element only with its successor, before the chunk that holds both is given back.
    for run in packets.chunk_by(|a, b| pool_of(a) == pool_of(b)) {
        // SAFETY: as above, and `run` is of one pool.
        unsafe { give_back(run) }
    }
}

unsafe fn heap_alloc_like(handle: NonNull<()>) -> Option<Packet> {
    // SAFETY: the packet behind `handle` is live (`PoolVtable::alloc_like`), so its strong count keeps the pool alive.
    let (pool, size) = unsafe {
        let header = handle.cast::<Header>().as_ref();
        Arc::increment_strong_count(header.pool);
        (Arc::from_raw(header.pool), header.size)
    };
    pool.alloc(size)
}

#[cfg(test)]
mod tests;
