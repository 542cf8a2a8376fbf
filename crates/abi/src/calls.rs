//! The functions that compiled code may call: operations that are rare or too long to inline.
//!
//! All are `extern "C"`, must not unwind, and take the worker's context first (except [`RuntimeCalls::wide_bin`]). Wide
//! values are little-endian 64-bit words as in a packet record. `datapath` fills the table with its functions, `jit`'s
//! tests with their own; `jit` compiles the addresses into the code as constants.

use crate::packet::{PacketDesc, WorkerCtx};

/// An operation of [`RuntimeCalls::wide_bin`] on values of more than 128 bits (narrower ones are inlined). The numbers
/// are the discriminants of `ir::BinOp` in declaration order.
pub type WideOp = u32;

/// The addresses of the functions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RuntimeCalls {
    /// Executes the cell `index` of meter `ext` for a packet of `bytes` bytes that was coloured `before`, and returns
    /// its colour. An index out of range is green (0).
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
    /// Sends a digest message for a packet of the batch; `words` are the fields' words, one after the other.
    ///
    /// The calls for one packet (this and the next two functions) come in program order. The packets of a batch may
    /// come in any order: the addresses of their descriptors give their order in the batch.
    pub digest:
        unsafe extern "C" fn(ctx: *const WorkerCtx, packet: *const PacketDesc, ext: u32, words: *const u64, count: u32),
    /// Writes log line `id` (an index into the pipeline's log sites) with its arguments as words.
    pub log:
        unsafe extern "C" fn(ctx: *const WorkerCtx, packet: *const PacketDesc, id: u32, words: *const u64, count: u32),
    /// Reports that the assertion at site `id` failed.
    pub assert_failed: unsafe extern "C" fn(ctx: *const WorkerCtx, packet: *const PacketDesc, id: u32),
    /// Computes `dst = a op b` on values of `width` bits. For shifts `b` is one word (saturated). Comparisons write 0
    /// or 1.
    pub wide_bin: unsafe extern "C" fn(op: WideOp, width: u32, dst: *mut u64, a: *const u64, b: *const u64),
    /// Moves the packet's bytes so that at least `need` bytes are free before `data`. False if the buffer is too small
    /// for that.
    pub make_headroom: unsafe extern "C" fn(ctx: *const WorkerCtx, packet: *mut PacketDesc, need: u32) -> bool,
    /// Waits until the lock of a register cell is free, for a limited time. The lock may be held again when this
    /// returns.
    pub wait_for_lock: unsafe extern "C" fn(ctx: *const WorkerCtx, lock: *const u8),
}
