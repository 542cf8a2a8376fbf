//! The functions that compiled code may call; everything rare or too long to inline.
//!
//! All are `extern "C"`, must not unwind, and take the worker's context first. Wide values are little-endian 64-bit
//! words as in a packet record. `datapath` fills the table; `jit` bakes the addresses in; `jit`'s own tests fill it with
//! their own.

use crate::packet::{PacketDesc, WorkerCtx};

/// Operations of [`RuntimeCalls::wide_bin`], for values above 128 bits (below, code is inlined). The numbers are the
/// discriminants of `ir::BinOp` in declaration order.
pub type WideOp = u32;

/// The table of calls.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RuntimeCalls {
    /// Colour of meter `ext`'s cell for a packet of `bytes` that has the colour `before`; out of range is green (0).
    pub meter: unsafe extern "C" fn(ctx: *const WorkerCtx, ext: u32, index: u64, bytes: u32, before: u32) -> u32,
    /// Hash of `bits` bits at `data` (big-endian bit string, left-aligned, zero-padded to whole bytes), then of
    /// `payload_len` bytes at `payload`. `algorithm` is `ir::HashAlgorithm::code`. CRCs and checksums give
    /// their own width; `Identity` the first 64 bits of the padded data.
    pub hash: unsafe extern "C" fn(
        ctx: *const WorkerCtx,
        algorithm: u32,
        data: *const u8,
        bits: u32,
        payload: *const u8,
        payload_len: u32,
    ) -> u64,
    /// Random number in `low..=high`.
    pub random: unsafe extern "C" fn(ctx: *const WorkerCtx, low: u64, high: u64) -> u64,
    /// Digest message of a packet of the batch: the fields' words one after the other.
    ///
    /// This and the next two come in the order of the program for each packet, but packets may come in any order: their
    /// descriptors' addresses tell which is first.
    pub digest:
        unsafe extern "C" fn(ctx: *const WorkerCtx, packet: *const PacketDesc, ext: u32, words: *const u64, count: u32),
    /// Log line `id` (index into the pipeline's log sites) with arguments as words.
    pub log:
        unsafe extern "C" fn(ctx: *const WorkerCtx, packet: *const PacketDesc, id: u32, words: *const u64, count: u32),
    /// A failed assertion at site `id`.
    pub assert_failed: unsafe extern "C" fn(ctx: *const WorkerCtx, packet: *const PacketDesc, id: u32),
    /// `dst = a op b` on values of `width` bits. For shifts `b` is one word (saturated). Comparisons write 0 or 1.
    pub wide_bin: unsafe extern "C" fn(op: WideOp, width: u32, dst: *mut u64, a: *const u64, b: *const u64),
    /// Makes room: moves the packet's bytes so that at least `need` bytes are free before `data`; false if the buffer
    /// cannot hold it.
    pub make_headroom: unsafe extern "C" fn(ctx: *const WorkerCtx, packet: *mut PacketDesc, need: u32) -> bool,
    /// Waits until the lock of a register's cell is free, or a while; it may be held again then.
    pub wait_for_lock: unsafe extern "C" fn(ctx: *const WorkerCtx, lock: *const u8),
}
