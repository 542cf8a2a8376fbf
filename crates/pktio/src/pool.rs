//! Packet buffers: the [`Pool`] trait and the heap pool.
//!
//! A packet is always contiguous. There are two sizes of buffers: small ones for frames of the default MTU,
//! and fewer large ones for jumbo frames and for large frames that are segmented later
//! ([`Packet::segment`]). Copying a long frame that a device delivers in fragments costs less than if every
//! program, engine and device had to handle fragments.
//!
//! [`HeapPool`] hands out at most `limit` buffers, recycles them, and allocates lazily. Each buffer starts with a
//! 64-byte header that names its pool and size, so that a packet can be freed from any thread. While any buffer is in
//! use, the pool holds a strong reference to itself, so it outlives its packets.
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

/// Headroom of a new packet, in bytes.
pub const HEADROOM: usize = 128;

/// Size of a small buffer in bytes: headroom and 2 KB of data.
pub const BUFFER_CAPACITY: usize = HEADROOM + 2048;

/// Size of a large buffer in bytes, headroom included: the limit of a packet's 16-bit lengths, in whole cache lines.
pub const LARGE_CAPACITY: usize = 65_472;

/// Maximum large buffers of a heap pool.
const HEAP_LARGE_LIMIT: usize = 512;

/// A source of packet buffers, shared by workers and control.
pub trait Pool: Send + Sync {
    /// Allocates an empty packet with at least [`HEADROOM`] bytes before its data; `None` when all buffers are in use.
    fn alloc(&self) -> Option<Packet>;

    /// Appends up to `n` empty packets to `out`. Returns how many.
    fn alloc_bulk(&self, out: &mut Vec<Packet>, n: usize) -> usize {
        let before = out.len();
        out.extend((0..n).map_while(|_| self.alloc()));
        out.len() - before
    }

    /// Allocates an empty packet with a large buffer; `None` when all of them are in use.
    fn alloc_large(&self) -> Option<Packet>;

    /// Allocates a packet that contains `bytes`; `None` when all buffers are in use or too small.
    fn alloc_from(&self, bytes: &[u8]) -> Option<Packet> {
        let is_small = bytes.len() <= BUFFER_CAPACITY - HEADROOM;
        let mut packet = if is_small { self.alloc() } else { self.alloc_large() }?;
        packet.set_data(bytes).ok()?;
        Some(packet)
    }

    /// Number of small buffers, in use or free.
    fn limit(&self) -> usize;

    /// Number of free small buffers (exact when no other thread uses the pool).
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
    /// The small buffers, and the large ones.
    sizes: [Size; 2],
    /// Buffers of both sizes in use. While there are any, the pool holds a strong reference to itself.
    out: usize,
}

/// The buffers of one size.
struct Size {
    /// Size of a buffer in bytes, headroom included.
    capacity: usize,
    limit: usize,
    free: Vec<FreeBuffer>,
    /// Buffers allocated so far, in use or free; never above `limit`.
    allocated: usize,
}

const SMALL: usize = 0;
const LARGE: usize = 1;

/// An unused buffer; the pointer is to its header.
struct FreeBuffer(NonNull<Header>);

// SAFETY: a free buffer is plain memory owned by the pool.
unsafe impl Send for FreeBuffer {}

/// Precedes every buffer. `pool` stays valid, because the pool frees all buffers before it is dropped itself.
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

    /// Takes a buffer; `shared` must be the pool of this state.
    #[inline(always)]
    fn take(&mut self, shared: &Arc<Shared>, size: usize) -> Option<Packet> {
        let of_size = &mut self.sizes[size];
        let header = match of_size.free.pop() {
            Some(FreeBuffer(header)) => header,
            None => of_size.allocate(shared, size)?,
        };
        if self.out == 0 {
            // SAFETY: `shared` holds a strong reference. `give_back` drops the one that is created here.
            unsafe { Arc::increment_strong_count(Arc::as_ptr(shared)) }
        }
        self.out += 1;
        // SAFETY: the buffer is not in the free list, so nobody else uses it; its data starts right after the header.
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
    /// Allocates another buffer, unless the limit is reached.
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
        // All buffers are free: while one is in use, the pool holds a strong reference to itself.
        for size in &mut self.state.get_mut().unwrap_or_else(PoisonError::into_inner).sizes {
            debug_assert_eq!(size.free.len(), size.allocated);
            for FreeBuffer(header) in size.free.drain(..) {
                // SAFETY: allocated by `allocate` with this layout, and not in use.
                unsafe { dealloc(header.as_ptr().cast(), layout(size.capacity)) }
            }
        }
    }
}

/// Returns the buffers of one pool. With the last one in use, drops the pool's reference to itself, outside the lock,
/// since that may free the pool.
///
/// # Safety
/// `packets` is not empty; all are owned by the caller, have `HEAP_VTABLE` and the same pool.
unsafe fn give_back(packets: &[RawPacket]) {
    // SAFETY: a handle of this vtable points to the header that `allocate` wrote.
    let pool = unsafe { packets[0].handle.cast::<Header>().as_ref().pool };
    // SAFETY: while a buffer is in use, the pool holds a strong reference to itself.
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
        // SAFETY: the reference that `take` created when the first buffer was taken.
        unsafe { Arc::decrement_strong_count(pool) }
    }
}

unsafe fn heap_free(handle: NonNull<()>) {
    // SAFETY: guaranteed by the caller (`PoolVtable::free`); only the handle of the raw packet is used.
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

/// The pool and size of a buffer in use.
///
/// # Safety
/// `handle` is that of a live packet with `HEAP_VTABLE`, and the result is not used after it is gone.
unsafe fn home(handle: NonNull<()>) -> (ManuallyDrop<Arc<Shared>>, usize) {
    // SAFETY: `allocate` wrote the header, and the pool holds a strong reference to itself while the packet is live.
    // `ManuallyDrop` keeps that reference from being dropped here.
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
