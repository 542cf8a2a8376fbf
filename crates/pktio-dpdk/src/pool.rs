//! The mempool as a [`Pool`]. There is one per process, made when DPDK starts and never freed, so a packet may outlive
//! the device it came from.
//!
//! Threads: any. A thread that called [`crate::register_worker`] has a cache of its own; others share one ring.
#![allow(unsafe_code)]

use crate::ffi;
use pktio::{HEADROOM, Packet, Pool, PoolVtable, RawPacket};
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Bytes of data in a buffer, behind the headroom.
pub(crate) const DATA_BYTES: u16 = 2048;

/// Memory for one buffer with its headers and the allocator's, rounded up; for estimates.
pub(crate) const BYTES_PER_BUFFER: u64 = 2560;

/// What makes a packet an `rte_mbuf`: `handle` points to one.
pub(crate) static MBUF_VTABLE: PoolVtable =
    PoolVtable { name: "mbuf", free: mbuf_free, free_bulk: mbuf_free_bulk, alloc_like: mbuf_alloc_like };

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
        NonNull::new(pool).map(|pool| MbufPool { pool, limit: count }).ok_or(error)
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

/// Replaces packets of other pools by copies in mbufs, since drivers take no others, and frees what cannot be sent: packets
/// that are empty, which some drivers never recover from, or longer than `longest`, and copies that no buffer is left for.
/// Returns how many were freed.
#[cold]
pub(crate) fn make_sendable(pool: &MbufPool, packets: &mut Vec<Packet>, longest: u16) -> usize {
    let before = packets.len();
    packets.retain_mut(|packet| {
        if packet.is_empty() || packet.len() > usize::from(longest) {
            return false;
        }
        if !std::ptr::eq(packet.raw().vtable, &MBUF_VTABLE) {
            let Some(copy) = pool.alloc_from(packet.data()) else { return false };
            *packet = copy;
        }
        true
    });
    before - packets.len()
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
