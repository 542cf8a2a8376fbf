//! The shim's functions as Rust sees them; one-to-one with `shim/shim.h`, which documents them.
//!
//! The pool's vtable crosses as an opaque pointer: C stores it in packets and never looks inside, hence the lint.
#![allow(unsafe_code, improper_ctypes)]

use pktio::{PoolVtable, RawPacket};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::AtomicU32;

#[repr(C)]
#[derive(Default)]
pub(crate) struct Burst {
    pub bytes: u64,
    pub dropped: u64,
    pub stopped: u64,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct Stats {
    pub rx_missed: u64,
    pub rx_no_buffer: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct Link {
    pub up: u32,
    pub speed_mbps: u32,
}

#[repr(C)]
pub(crate) struct PortConfig {
    pub queues: u16,
    pub descriptors: u16,
    pub mtu: u16,
}

/// The first member of every kind of port: `shim_port`.
#[repr(C)]
pub(crate) struct PortBase {
    pub frame_max: AtomicU32,
}

/// A kind of port's function to receive: port, queue, vtable, room for packets, most of them, what happened.
pub(crate) type Rx =
    unsafe extern "C" fn(*mut c_void, u16, &'static PoolVtable, *mut RawPacket, u16, *mut Burst) -> u16;

/// Its function to send: port, queue, vtable, packets, how many, what happened.
pub(crate) type Tx =
    unsafe extern "C" fn(*mut c_void, u16, &'static PoolVtable, *const RawPacket, u16, *mut Burst) -> u16;

// `shim_packet` in shim.h is `RawPacket`: three pointers, then four 16-bit numbers.
const _: () = {
    assert!(size_of::<RawPacket>() == 32);
    assert!(std::mem::offset_of!(RawPacket, base) == 0);
    assert!(std::mem::offset_of!(RawPacket, handle) == 8);
    assert!(std::mem::offset_of!(RawPacket, vtable) == 16);
    assert!(std::mem::offset_of!(RawPacket, capacity) == 24);
    assert!(std::mem::offset_of!(RawPacket, offset) == 26);
    assert!(std::mem::offset_of!(RawPacket, len) == 28);
    assert!(std::mem::offset_of!(RawPacket, segment) == 30);
};

unsafe extern "C" {
    pub(crate) fn shim_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    pub(crate) safe fn shim_ask_before_growing(may_grow: extern "C" fn() -> c_int);
    pub(crate) safe fn shim_thread_register() -> c_int;
    pub(crate) safe fn shim_thread_unregister();
    pub(crate) fn shim_allowed_cpus(cpus: *mut u16, max: c_int) -> c_int;
    pub(crate) fn shim_log_take(out: *mut u8, size: usize) -> usize;

    pub(crate) fn shim_pool_create(
        name: *const c_char,
        count: u32,
        headroom: u16,
        data_bytes: u16,
        error: *mut c_int,
    ) -> *mut c_void;
    pub(crate) fn shim_large_pool_create(name: *const c_char, count: u32) -> c_int;
    pub(crate) fn shim_pool_available(pool: *const c_void) -> u32;
    pub(crate) fn shim_alloc_large(vtable: &'static PoolVtable, out: *mut RawPacket) -> c_int;
    pub(crate) fn shim_alloc(pool: *mut c_void, vtable: &'static PoolVtable, out: *mut RawPacket) -> c_int;
    pub(crate) fn shim_alloc_bulk(
        pool: *mut c_void,
        vtable: &'static PoolVtable,
        out: *mut RawPacket,
        count: u32,
    ) -> u32;
    pub(crate) fn shim_alloc_like(handle: *mut c_void, vtable: &'static PoolVtable, out: *mut RawPacket) -> c_int;
    pub(crate) fn shim_alloc_like_bulk(
        handle: *mut c_void,
        vtable: &'static PoolVtable,
        out: *mut RawPacket,
        count: u32,
    ) -> u32;
    pub(crate) fn shim_free(handle: *mut c_void);
    pub(crate) fn shim_free_bulk(packets: *const RawPacket, count: usize);

    pub(crate) fn shim_vdev_add(name: *const c_char, arguments: *const c_char) -> c_int;
    pub(crate) fn shim_port_by_name(name: *const c_char) -> c_int;
    pub(crate) fn shim_port_detach(number: u16, vdev_name: *const c_char);
    pub(crate) fn shim_eth_open(
        number: u16,
        vdev_name: *const c_char,
        pool: *mut c_void,
        config: *mut PortConfig,
        error: *mut c_int,
    ) -> *mut c_void;
    pub(crate) fn shim_eth_start(port: *mut c_void) -> c_int;
    pub(crate) fn shim_eth_close(port: *mut c_void);
    pub(crate) fn shim_eth_link(port: *mut c_void, out: *mut Link) -> c_int;
    pub(crate) fn shim_eth_stats(port: *mut c_void, out: *mut Stats) -> c_int;
    pub(crate) fn shim_eth_mac(port: *mut c_void, out: *mut [u8; 6]) -> c_int;
    pub(crate) fn shim_eth_mtu(port: *mut c_void) -> c_int;
    pub(crate) fn shim_eth_rx(
        port: *mut c_void,
        queue: u16,
        vtable: &'static PoolVtable,
        out: *mut RawPacket,
        max: u16,
        burst: *mut Burst,
    ) -> u16;
    pub(crate) fn shim_eth_tx(
        port: *mut c_void,
        queue: u16,
        vtable: &'static PoolVtable,
        packets: *const RawPacket,
        count: u16,
        burst: *mut Burst,
    ) -> u16;
}
