//! Where packets come from: the [`Pool`] trait and the heap pool.
//!
//! A packet is always in one piece. There are two sizes of buffers: small ones for what networks carry by default, and large
//! ones, fewer, for jumbo frames and for large frames that are cut up later ([`Packet::segment`]). One copy of a long frame
//! that a device delivers in pieces costs less than every program, engine and device dealing with pieces.
//!
//! [`HeapPool`] hands out at most `limit` buffers, recycles them, and allocates lazily. Each buffer starts with a
//! 64-byte header that names its pool and size, so that a packet finds its way home from any thread; while any buffer is out,
//! the pool holds a strong count of itself, so it outlives its packets.
//!
//! Threads: any. One mutex guards the free list; bulk calls take it once. The heap pool serves tests, packet-out and
//! the devices without DPDK; ports at line rate use the DPDK mempool, which has per-thread caches.
//! Tests: `pool/tests.rs`.
#![allow(unsafe_code)]

use crate::packet::{Packet, PoolVtable, RawPacket};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::mem::ManuallyDrop;
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
    state: Mutex<State>,
}

struct State {
    /// Small buffers, and large ones.
    sizes: [Size; 2],
    /// Buffers of both sizes that are out. While there is one, the pool has a strong count of itself.
    out: usize,
}

/// The buffers of one size.
struct Size {
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

/// In front of every buffer, from when it is made. `pool` is valid as long as that is: it frees them.
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

static HEAP_VTABLE: PoolVtable = PoolVtable {
    name: "heap",
    free: heap_free,
    free_bulk: heap_free_bulk,
    alloc_like: heap_alloc_like,
    alloc_like_bulk: heap_alloc_like_bulk,
    pool_of: heap_pool_of,
};

impl HeapPool {
    /// A pool of at most `limit` small buffers.
    pub fn new(limit: usize) -> HeapPool {
        let size = |capacity, limit| Size { capacity, limit, free: Vec::new(), allocated: 0 };
        let sizes = [size(BUFFER_CAPACITY, limit), size(LARGE_CAPACITY, limit.min(HEAP_LARGE_LIMIT))];
        HeapPool { shared: Arc::new(Shared { state: Mutex::new(State { sizes, out: 0 }) }) }
    }

    /// A shared pool of at most `limit` small buffers.
    pub fn shared(limit: usize) -> PoolRef {
        Arc::new(HeapPool::new(limit))
    }
}

impl Pool for HeapPool {
    fn alloc(&self) -> Option<Packet> {
        self.shared.lock().take(&self.shared, SMALL)
    }

    fn alloc_large(&self) -> Option<Packet> {
        self.shared.lock().take(&self.shared, LARGE)
    }

    fn alloc_bulk(&self, out: &mut Vec<Packet>, n: usize) -> usize {
        let before = out.len();
        self.shared.lock().take_bulk(&self.shared, SMALL, out, n);
        out.len() - before
    }

    fn limit(&self) -> usize {
        self.shared.lock().sizes[SMALL].limit
    }

    fn available(&self) -> usize {
        let size = &self.shared.lock().sizes[SMALL];
        size.limit - size.allocated + size.free.len()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_bulk(&mut self, shared: &Arc<Shared>, size: usize, out: &mut Vec<Packet>, n: usize) {
        out.reserve(n);
        for _ in 0..n {
            let Some(packet) = self.take(shared, size) else { return };
            out.push(packet);
        }
    }

    /// A buffer of the pool that this is the state of.
    #[inline(always)]
    fn take(&mut self, shared: &Arc<Shared>, size: usize) -> Option<Packet> {
        let of_size = &mut self.sizes[size];
        let header = match of_size.free.pop() {
            Some(FreeBuffer(header)) => header,
            None => of_size.allocate(shared, size)?,
        };
        if self.out == 0 {
            // SAFETY: `shared` holds a strong count. `give_back` gives this one up.
            unsafe { Arc::increment_strong_count(Arc::as_ptr(shared)) }
        }
        self.out += 1;
        // SAFETY: the buffer is out of the free list, so it is ours; its data starts right after the header.
        unsafe {
            Some(Packet::from_raw(RawPacket {
                base: header.add(1).cast(),
                handle: header.cast(),
                vtable: &HEAP_VTABLE,
                capacity: of_size.capacity as u16,
                offset: HEADROOM as u16,
                len: 0,
                segment: 0,
            }))
        }
    }
}

impl Size {
    /// A new buffer, if there may be one more.
    #[cold]
    #[inline(never)]
    fn allocate(&mut self, shared: &Arc<Shared>, size: usize) -> Option<NonNull<Header>> {
        if self.allocated == self.limit {
            return None;
        }
        self.allocated += 1;
        let layout = layout(self.capacity);
        // SAFETY: the layout has a size above zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let header = NonNull::new(memory.cast::<Header>()).unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: the memory is new, and begins with a header.
        unsafe { header.as_ptr().write(Header { pool: Arc::as_ptr(shared), size }) };
        Some(header)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // While a buffer is out the pool has a strong count of itself, so all are in now.
        for size in &mut self.state.get_mut().unwrap_or_else(PoisonError::into_inner).sizes {
            debug_assert_eq!(size.free.len(), size.allocated);
            for FreeBuffer(header) in size.free.drain(..) {
                // SAFETY: made by `allocate` with this layout, and used by nobody.
                unsafe { dealloc(header.as_ptr().cast(), layout(size.capacity)) }
            }
        }
    }
}

/// Puts the buffers of one pool back, and gives up the pool's count of itself with the last that was out (outside the lock: that
/// may free the pool).
///
/// # Safety
/// `packets` is not empty; all are owned by the caller, have `HEAP_VTABLE` and the same pool.
unsafe fn give_back(packets: &[RawPacket]) {
    // SAFETY: a handle of this vtable points to the header that `allocate` wrote.
    let pool = unsafe { packets[0].handle.cast::<Header>().as_ref().pool };
    // SAFETY: as long as a buffer is out, the pool has a strong count of itself.
    let shared = unsafe { &*pool };
    let mut state = shared.lock();
    for packet in packets {
        // SAFETY: as above; `allocate` has written the size.
        let size = unsafe { packet.handle.cast::<Header>().as_ref().size };
        state.sizes[size].free.push(FreeBuffer(packet.handle.cast()));
    }
    state.out -= packets.len();
    let last = state.out == 0;
    drop(state);
    if last {
        // SAFETY: the count that `take` made when the first one went out.
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

/// The pool and size of a buffer that is out.
///
/// # Safety
/// `handle` is that of a live packet with `HEAP_VTABLE`, and the result is not used after it is gone.
unsafe fn home(handle: NonNull<()>) -> (ManuallyDrop<Arc<Shared>>, usize) {
    // SAFETY: the header is as `allocate` wrote it, and the pool has a strong count of itself while the packet is live. This makes no
    // other, and does not give that one up.
    unsafe {
        let header = handle.cast::<Header>().as_ref();
        (ManuallyDrop::new(Arc::from_raw(header.pool)), header.size)
    }
}

unsafe fn heap_alloc_like(handle: NonNull<()>) -> Option<Packet> {
    // SAFETY: the packet behind `handle` is live (`PoolVtable::alloc_like`).
    let (shared, size) = unsafe { home(handle) };
    shared.lock().take(&shared, size)
}

unsafe fn heap_alloc_like_bulk(handle: NonNull<()>, out: &mut Vec<Packet>, n: usize) {
    // SAFETY: the packet behind `handle` is live (`PoolVtable::alloc_like`).
    let (shared, size) = unsafe { home(handle) };
    shared.lock().take_bulk(&shared, size, out, n);
}

unsafe fn heap_pool_of(handle: NonNull<()>) -> usize {
    // SAFETY: as above.
    unsafe { handle.cast::<Header>().as_ref() }.pool.addr()
}

#[cfg(test)]
mod tests;
