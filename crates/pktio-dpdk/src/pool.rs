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

/// Large buffers, for frames that fit into no other, and memory for one of them.
pub(crate) const LARGE_BUFFERS: u32 = 511;
pub(crate) const BYTES_PER_LARGE_BUFFER: u64 = 66 << 10;

/// Most packets that a large frame is cut into; the shim's bound.
const SEGMENTS_MAX: usize = 256;

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

/// Packets that no port of this kind can send, and why.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Unsendable {
    pub all: u64,
    /// Of these: longer than the port carries.
    pub too_long: u64,
    /// Of these: large frames in which nobody finds the segments.
    pub not_cut: u64,
}

/// Makes of packets what every port can send: copies packets of other pools into mbufs, since drivers take no others, cuts
/// large frames into their segments, and frees what cannot be sent: packets that are empty, which some drivers never recover
/// from, or longer than `frame_max`, and copies that no buffer is left for. Says what was freed.
#[cold]
pub(crate) fn make_sendable(pool: &MbufPool, packets: &mut Vec<Packet>, frame_max: u32) -> Unsendable {
    let mut lost = Unsendable::default();
    let mut sendable = Vec::with_capacity(packets.len() + SEGMENTS_MAX);
    for mut packet in packets.drain(..) {
        if !std::ptr::eq(packet.raw().vtable, &MBUF_VTABLE) {
            let segment = packet.segment();
            let Some(mut copy) = pool.alloc_from(packet.data()) else {
                lost.all += 1;
                continue;
            };
            copy.set_segment(segment);
            packet = copy;
        }
        if packet.segment() != 0 {
            let why = cut(pool, &packet, frame_max, &mut sendable);
            lost.all += u64::from(why != Cut::Done);
            lost.too_long += u64::from(why == Cut::TooLong);
            lost.not_cut += u64::from(why == Cut::NotUnderstood);
        } else if packet.is_empty() || packet.len() as u32 > frame_max {
            lost.all += 1;
            lost.too_long += u64::from(!packet.is_empty());
        } else {
            sendable.push(packet);
        }
    }
    packets.append(&mut sendable);
    lost
}

#[derive(PartialEq, Eq)]
enum Cut {
    Done,
    TooLong,
    NotUnderstood,
    NoBuffer,
}

/// Cuts a large frame into packets at the end of `out`.
fn cut(pool: &MbufPool, packet: &Packet, frame_max: u32, out: &mut Vec<Packet>) -> Cut {
    out.reserve(SEGMENTS_MAX);
    // SAFETY: the packet is an mbuf that stays ours; there is room for `SEGMENTS_MAX` packets behind those of `out`, and a
    // packet is laid out as a `RawPacket`; the shim writes as many as it returns, each a fresh mbuf.
    let count = unsafe {
        let end = out.as_mut_ptr().add(out.len()).cast::<RawPacket>();
        let count = ffi::shim_segment(packet.raw(), pool.as_ptr(), frame_max, end, SEGMENTS_MAX as u32);
        out.set_len(out.len() + usize::try_from(count).unwrap_or(0));
        count
    };
    match -count {
        EMSGSIZE => Cut::TooLong,
        ENOMEM => Cut::NoBuffer,
        error if error > 0 => Cut::NotUnderstood,
        _ => Cut::Done,
    }
}

const ENOMEM: i32 = 12;
const EMSGSIZE: i32 = 90;

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
