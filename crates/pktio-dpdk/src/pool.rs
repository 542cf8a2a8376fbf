//! The mempool as a [`Pool`]. There is one per process, made when DPDK starts and never freed, so a packet may outlive
//! the device it came from.
//!
//! Threads: any. A thread that called [`crate::register_worker`] has a cache of its own; others share one ring.
#![allow(unsafe_code)]

use crate::ffi;
use pktio::{HEADROOM, Packet, Pool, PoolVtable, PortStats, RawPacket};
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Bytes of data in a buffer, behind the headroom.
pub(crate) const DATA_BYTES: u16 = 2048;

/// Memory for one buffer with its headers and the allocator's, rounded up; for estimates.
pub(crate) const BYTES_PER_BUFFER: u64 = 2560;

/// Large buffers, for frames that fit into no other, and memory for one of them.
pub(crate) const LARGE_BUFFERS: u32 = 511;
pub(crate) const BYTES_PER_LARGE_BUFFER: u64 = 66 << 10;

/// What makes a packet an `rte_mbuf`: `handle` points to one.
pub(crate) static MBUF_VTABLE: PoolVtable = PoolVtable {
    name: "mbuf",
    free: mbuf_free,
    free_bulk: mbuf_free_bulk,
    alloc_like: mbuf_alloc_like,
    alloc_like_bulk: mbuf_alloc_like_bulk,
    pool_of: mbuf_pool_of,
};

pub(crate) struct MbufPool {
    pool: NonNull<c_void>,
    limit: u32,
}

// SAFETY: mempools are safe to use from any thread, with or without registration.
unsafe impl Send for MbufPool {}
// SAFETY: as above.
unsafe impl Sync for MbufPool {}

impl MbufPool {
    /// Makes the mempool; on failure returns DPDK's (negative) error number.
    pub(crate) fn create(name: &CStr, count: u32) -> Result<MbufPool, i32> {
        let mut error = 0;
        // SAFETY: `name` is a C string, `error` is written before the return.
        let pool = unsafe { ffi::shim_pool_create(name.as_ptr(), count, HEADROOM as u16, DATA_BYTES, &mut error) };
        let pool = NonNull::new(pool).map(|pool| MbufPool { pool, limit: count }).ok_or(error)?;
        // SAFETY: a C string; called once per process, as DPDK starts once.
        match unsafe { ffi::shim_large_pool_create(c"sluice-large".as_ptr(), LARGE_BUFFERS) } {
            0 => Ok(pool),
            error => Err(error),
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut c_void {
        self.pool.as_ptr()
    }
}

impl Pool for MbufPool {
    fn alloc(&self) -> Option<Packet> {
        let mut raw = MaybeUninit::<RawPacket>::uninit();
        // SAFETY: on success the shim has written `raw`, which describes a fresh mbuf owned by nobody else. Mempool
        // memory comes zeroed from the kernel, so it is initialised.
        unsafe {
            let result = ffi::shim_alloc(self.as_ptr(), &MBUF_VTABLE, raw.as_mut_ptr());
            (result == 0).then(|| Packet::from_raw(raw.assume_init()))
        }
    }

    fn alloc_large(&self) -> Option<Packet> {
        let mut raw = MaybeUninit::<RawPacket>::uninit();
        // SAFETY: as in `alloc`.
        unsafe {
            let result = ffi::shim_alloc_large(&MBUF_VTABLE, raw.as_mut_ptr());
            (result == 0).then(|| Packet::from_raw(raw.assume_init()))
        }
    }

    fn alloc_bulk(&self, out: &mut Vec<Packet>, n: usize) -> usize {
        let n = n.min(self.limit as usize);
        out.reserve(n);
        let before = out.len();
        // SAFETY: there is room for `n` packets behind `before`, and a packet is laid out as a `RawPacket`; the shim
        // writes as many as it returns, each a fresh mbuf.
        unsafe {
            let end = out.as_mut_ptr().add(before).cast::<RawPacket>();
            let count = ffi::shim_alloc_bulk(self.as_ptr(), &MBUF_VTABLE, end, n as u32) as usize;
            out.set_len(before + count);
            count
        }
    }

    fn limit(&self) -> usize {
        self.limit as usize
    }

    fn available(&self) -> usize {
        // SAFETY: the pool lives as long as the process.
        unsafe { ffi::shim_pool_available(self.as_ptr()) as usize }
    }
}

/// Copies packets of other pools into mbufs, since drivers take no others, and frees those that no buffer is left for.
/// Says how many, as `tx_dropped`.
#[cold]
pub(crate) fn make_mbufs(pool: &MbufPool, packets: &mut Vec<Packet>) -> PortStats {
    let mut lost = PortStats::default();
    let mbufs = packets.drain(..).filter_map(|packet| {
        if std::ptr::eq(packet.raw().vtable, &MBUF_VTABLE) {
            return Some(packet);
        }
        let copy = pool.alloc_from(packet.data());
        lost.tx_dropped += u64::from(copy.is_none());
        let mut copy = copy?;
        copy.set_segment(packet.segment());
        Some(copy)
    });
    let mut mbufs: Vec<Packet> = mbufs.collect();
    packets.append(&mut mbufs);
    lost
}

unsafe fn mbuf_free(handle: NonNull<()>) {
    // SAFETY: the caller owns the mbuf (`PoolVtable::free`).
    unsafe { ffi::shim_free(handle.as_ptr().cast()) }
}

unsafe fn mbuf_free_bulk(packets: &[RawPacket]) {
    // SAFETY: the caller owns the mbufs (`PoolVtable::free_bulk`).
    unsafe { ffi::shim_free_bulk(packets.as_ptr(), packets.len()) }
}

unsafe fn mbuf_alloc_like(handle: NonNull<()>) -> Option<Packet> {
    let mut raw = MaybeUninit::<RawPacket>::uninit();
    // SAFETY: `handle` is a live mbuf (`PoolVtable::alloc_like`); on success `raw` is written, as in `alloc`.
    unsafe {
        let result = ffi::shim_alloc_like(handle.as_ptr().cast(), &MBUF_VTABLE, raw.as_mut_ptr());
        (result == 0).then(|| Packet::from_raw(raw.assume_init()))
    }
}

unsafe fn mbuf_alloc_like_bulk(handle: NonNull<()>, out: &mut Vec<Packet>, n: usize) {
    out.reserve(n);
    let before = out.len();
    // SAFETY: `handle` is a live mbuf (`PoolVtable::alloc_like`). There is room for `n` packets behind `before`, and a packet is
    // laid out as a `RawPacket`; the shim writes as many as it returns, each a fresh mbuf.
    unsafe {
        let end = out.as_mut_ptr().add(before).cast::<RawPacket>();
        let count = ffi::shim_alloc_like_bulk(handle.as_ptr().cast(), &MBUF_VTABLE, end, n as u32) as usize;
        out.set_len(before + count);
    }
}

/// There are two pools, one for each size of buffers.
unsafe fn mbuf_pool_of(_: NonNull<()>) -> usize {
    0
}
