//! The runtime functions that compiled code calls ([`RuntimeCalls`]): meters, hashes, random numbers, messages,
//! arithmetic above 128 bits, and headroom in front of a packet.
//!
//! Messages (digests, log lines, failed assertions) leave the packet path through bounded queues, [`Messages`];
//! messages that do not fit are dropped and counted. Log lines are also limited to [`LOG_LINES_PER_SECOND`], so that
//! a log line per packet does not bring the switch down.
//!
//! Threads: calls run on the worker that `ctx` belongs to; [`Messages`] is shared. Tests: `calls/tests.rs`.
#![allow(unsafe_code)]

pub mod hash;

use crate::state::Meters;
use abi::packet::PacketDesc;
use abi::state::DigestMessage;
use abi::{RuntimeCalls, WorkerCtx};
use base::Bits;
use base::ids::ExternId;
use hash::Parametric;
use ir::{BinOp, ExternKind, Program};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Most digest messages that may wait for the control plane.
pub const DIGESTS_MAX: usize = 8192;
/// Most log lines that may wait to be written.
pub const LOG_LINES_MAX: usize = 1024;
/// Most log lines of a worker per second of its clock.
pub const LOG_LINES_PER_SECOND: u32 = 1000;

/// Maximum number of messages that the packets of one batch leave: twice as many as the queue to the control plane holds
/// ([`DIGESTS_MAX`]), so that none is lost here that would not be lost there. Further ones are dropped and counted.
const LEFT_MAX: usize = 1 << 14;

/// The table of runtime functions, for `jit`.
pub const CALLS: RuntimeCalls =
    RuntimeCalls { meter, hash: hash_call, random, digest, log, assert_failed, wide_bin, make_headroom, wait_for_lock };

/// The runtime's data of one worker, behind `WorkerCtx::runtime`.
#[derive(Debug)]
pub struct WorkerRuntime {
    /// Microseconds since the switch started, of the current batch.
    pub now_us: u64,
    worker: usize,
    random: u64,
    /// By extern.
    meters: Vec<Option<Arc<Meters>>>,
    hashes: Arc<Parametric>,
    messages: Arc<Messages>,
    /// Messages of the current batch, with the address of their packet's descriptor.
    left: Vec<(usize, Message)>,
    /// The second in which `lines` counts.
    line_second: u64,
    lines: u32,
}

impl WorkerRuntime {
    pub(crate) fn new(
        worker: usize,
        meters: Vec<Option<Arc<Meters>>>,
        hashes: Arc<Parametric>,
        messages: Arc<Messages>,
    ) -> WorkerRuntime {
        WorkerRuntime {
            now_us: 0,
            worker,
            random: worker as u64,
            meters,
            hashes,
            messages,
            left: Vec::new(),
            line_second: 0,
            lines: 0,
        }
    }

    /// Seeds the random number generator.
    pub fn seed(&mut self, seed: u64) {
        self.random = seed;
    }

    /// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Queues the messages since the last call, in the packets' order: staged code does not process packets in order.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if !self.left.is_empty() {
            self.hand_on();
        }
    }

    #[inline(never)]
    fn hand_on(&mut self) {
        let mut left = std::mem::take(&mut self.left);
        left.sort_by_key(|(packet, _)| *packet);
        for (_, message) in left.drain(..) {
            match message {
                Message::Digest(digest, words) => self.messages.digests.push((digest, words)),
                Message::Line(line) => self.line(line),
            }
        }
        self.left = left;
    }

    fn line(&mut self, line: LogRecord) {
        let second = self.now_us / 1_000_000;
        if second != self.line_second {
            (self.line_second, self.lines) = (second, 0);
        }
        self.lines = self.lines.saturating_add(1);
        if self.lines > LOG_LINES_PER_SECOND {
            self.messages.lines.drop_one();
        } else {
            self.messages.lines.push(line);
        }
    }
}

/// A log line or a failed assertion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRecord {
    /// Index into the compiled pipeline's sites, which have the text.
    pub site: u32,
    /// The arguments' words; empty for assertions.
    pub words: Vec<u64>,
}

/// A packet's message to the control plane.
#[derive(Debug)]
enum Message {
    Digest(ExternId, Vec<u64>),
    Line(LogRecord),
}

/// A bounded queue that drops items when full, and counts them.
#[derive(Debug)]
struct Bounded<T> {
    queue: Mutex<VecDeque<T>>,
    max: usize,
    dropped: AtomicU64,
}

impl<T> Bounded<T> {
    fn new(max: usize) -> Bounded<T> {
        Bounded { queue: Mutex::new(VecDeque::new()), max, dropped: AtomicU64::new(0) }
    }

    fn push(&self, item: T) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() < self.max {
            queue.push_back(item);
        } else {
            drop(queue);
            self.drop_one();
        }
    }

    fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    fn take(&self) -> VecDeque<T> {
        std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The queues of packets' messages to the control plane.
#[derive(Debug)]
pub struct Messages {
    digests: Bounded<(ExternId, Vec<u64>)>,
    lines: Bounded<LogRecord>,
    failed: AtomicU64,
    /// Field widths by digest.
    widths: Vec<Vec<u32>>,
}

impl Messages {
    pub(crate) fn new(program: &Program) -> Messages {
        let widths = |kind: &ExternKind| match kind {
            ExternKind::Digest { fields } => fields.iter().map(|(_, width)| *width).collect(),
            _ => Vec::new(),
        };
        Messages {
            digests: Bounded::new(DIGESTS_MAX),
            lines: Bounded::new(LOG_LINES_MAX),
            failed: AtomicU64::new(0),
            widths: program.externs.iter().map(|e| widths(&e.kind)).collect(),
        }
    }

    /// Digest messages since the last call, oldest first.
    pub fn take_digests(&self) -> Vec<DigestMessage> {
        let message = |(digest, words): (ExternId, Vec<u64>)| {
            let mut at = 0;
            let field = |width: &u32| {
                let end = at + width.div_ceil(64) as usize;
                let field = from_words(*width, &words[at..end]);
                at = end;
                field
            };
            DigestMessage { digest, fields: self.widths[digest.index()].iter().map(field).collect() }
        };
        self.digests.take().into_iter().map(message).collect()
    }

    /// Digest messages dropped so far.
    pub fn digests_dropped(&self) -> u64 {
        self.digests.dropped.load(Ordering::Relaxed)
    }

    /// Log lines and failed assertions since the last call, oldest first.
    pub fn take_lines(&self) -> Vec<LogRecord> {
        self.lines.take().into()
    }

    /// Log lines dropped so far, because the queue was full or they exceeded the rate.
    pub fn lines_dropped(&self) -> u64 {
        self.lines.dropped.load(Ordering::Relaxed)
    }

    /// Failed assertions so far.
    pub fn assertions_failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// A value from its little-endian words.
fn from_words(width: u32, words: &[u64]) -> Bits {
    let bytes: Vec<u8> = words.iter().rev().flat_map(|w| w.to_be_bytes()).collect();
    Bits::from_bytes_be(width, &bytes)
}

/// # Safety
/// `ctx` is a [`crate::state::FastWorker`]'s, and the caller runs on its thread.
unsafe fn runtime<'a>(ctx: *const WorkerCtx) -> &'a mut WorkerRuntime {
    // SAFETY: the caller's promise; calls do not nest, so there is no other reference.
    unsafe { &mut *(*ctx).runtime.cast::<WorkerRuntime>() }
}

/// # Safety
/// `count` words lie at `words`, or `count` is zero.
unsafe fn slice<'a, T>(first: *const T, count: u32) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(first, count as usize) }
}

unsafe extern "C" fn meter(ctx: *const WorkerCtx, ext: u32, index: u64, bytes: u32, before: u32) -> u32 {
    // SAFETY: compiled code passes its worker's context.
    let runtime = unsafe { runtime(ctx) };
    match runtime.meters.get(ext as usize) {
        Some(Some(meters)) => meters.colour_after(runtime.worker, index, (bytes, before), runtime.now_us),
        _ => Meters::GREEN,
    }
}

unsafe extern "C" fn hash_call(
    ctx: *const WorkerCtx,
    algorithm: u32,
    data: *const u8,
    bits: u32,
    payload: *const u8,
    payload_len: u32,
) -> u64 {
    // SAFETY: compiled code passes as many bytes as it says.
    let (data, payload) = unsafe { (slice(data, bits.div_ceil(8)), slice(payload, payload_len)) };
    // SAFETY: compiled code passes its worker's context.
    let runtime = unsafe { runtime(ctx) };
    let custom = runtime.hashes.hash(algorithm, data, payload);
    custom.or_else(|| hash::hash(algorithm, data, payload)).unwrap_or_else(|| runtime.next_random())
}

unsafe extern "C" fn random(ctx: *const WorkerCtx, low: u64, high: u64) -> u64 {
    // SAFETY: compiled code passes its worker's context.
    let random = unsafe { runtime(ctx) }.next_random();
    // The modulo bias is below 2^-32 for ranges that programs use.
    match high.saturating_sub(low).checked_add(1) {
        Some(count) => low + random % count,
        None => random,
    }
}

unsafe extern "C" fn digest(ctx: *const WorkerCtx, packet: *const PacketDesc, ext: u32, words: *const u64, count: u32) {
    // SAFETY: compiled code passes its worker's context and as many words as it says.
    let (runtime, words) = unsafe { (runtime(ctx), slice(words, count)) };
    if runtime.left.len() >= LEFT_MAX {
        return runtime.messages.digests.drop_one();
    }
    runtime.left.push((packet.addr(), Message::Digest(ExternId(ext), words.to_vec())));
}

unsafe extern "C" fn log(ctx: *const WorkerCtx, packet: *const PacketDesc, id: u32, words: *const u64, count: u32) {
    // SAFETY: as above.
    let (runtime, words) = unsafe { (runtime(ctx), slice(words, count)) };
    if runtime.left.len() >= LEFT_MAX {
        return runtime.messages.lines.drop_one();
    }
    runtime.left.push((packet.addr(), Message::Line(LogRecord { site: id, words: words.to_vec() })));
}

unsafe extern "C" fn assert_failed(ctx: *const WorkerCtx, packet: *const PacketDesc, id: u32) {
    // SAFETY: compiled code passes its worker's context.
    let runtime = unsafe { runtime(ctx) };
    runtime.messages.failed.fetch_add(1, Ordering::Relaxed);
    if runtime.left.len() >= LEFT_MAX {
        return runtime.messages.lines.drop_one();
    }
    runtime.left.push((packet.addr(), Message::Line(LogRecord { site: id, words: Vec::new() })));
}

/// The operations in declaration order: `wide_bin` gets the discriminant.
const BIN_OPS: [BinOp; 21] = [
    BinOp::Add,
    BinOp::Sub,
    BinOp::Mul,
    BinOp::Div,
    BinOp::Mod,
    BinOp::And,
    BinOp::Or,
    BinOp::Xor,
    BinOp::Shl,
    BinOp::Lshr,
    BinOp::Ashr,
    BinOp::SatAddU,
    BinOp::SatSubU,
    BinOp::SatAddS,
    BinOp::SatSubS,
    BinOp::Eq,
    BinOp::Ne,
    BinOp::Ult,
    BinOp::Ule,
    BinOp::Slt,
    BinOp::Sle,
];

const _: () = {
    let mut i = 0;
    while i < BIN_OPS.len() {
        assert!(BIN_OPS[i] as usize == i, "in declaration order");
        i += 1;
    }
};

unsafe extern "C" fn wide_bin(op: u32, width: u32, dst: *mut u64, a: *const u64, b: *const u64) {
    // An unknown operation would be a compiler bug; the destination is left unchanged.
    let Some(op) = BIN_OPS.get(op as usize) else { return };
    let is_shift = matches!(op, BinOp::Shl | BinOp::Lshr | BinOp::Ashr);
    let words = width.div_ceil(64);
    // SAFETY: compiled code passes operands of `width` bits, for shifts one word as the second one.
    let (a, b) = unsafe {
        let amount = if is_shift { 1 } else { words };
        (from_words(width, slice(a, words)), from_words(if is_shift { 64 } else { width }, slice(b, amount)))
    };
    let result = op.apply(&a, &b);
    let bytes = result.to_bytes_be();
    // Comparisons produce one word.
    for (i, chunk) in bytes.rchunks(8).enumerate() {
        let word = chunk.iter().fold(0, |word, b| word << 8 | u64::from(*b));
        // SAFETY: compiled code passes room for the result.
        unsafe { dst.add(i).write(word) };
    }
}

unsafe extern "C" fn make_headroom(_ctx: *const WorkerCtx, packet: *mut PacketDesc, need: u32) -> bool {
    // SAFETY: compiled code passes a packet of its batch, whose buffer is as the descriptor says.
    unsafe {
        let packet = &mut *packet;
        let Some(missing) = need.checked_sub(packet.headroom).filter(|missing| *missing > 0) else { return true };
        if missing > packet.tailroom {
            return false;
        }
        let to = packet.data.add(missing as usize);
        std::ptr::copy(packet.data, to, packet.len as usize);
        packet.data = to;
        packet.headroom += missing;
        packet.tailroom -= missing;
        true
    }
}

/// Polls of a lock before its holder is assumed to be preempted: a critical section takes less than a microsecond.
const LOOKS_AT_LOCK: u32 = 1000;

/// See `abi::RuntimeCalls::wait_for_lock`.
unsafe extern "C" fn wait_for_lock(_ctx: *const WorkerCtx, lock: *const u8) {
    // SAFETY: the lock lives as long as the register that code was made for, and is only accessed atomically.
    let lock = unsafe { std::sync::atomic::AtomicU8::from_ptr(lock.cast_mut()) };
    for _ in 0..LOOKS_AT_LOCK {
        if lock.load(Ordering::Relaxed) == 0 {
            return;
        }
        std::hint::spin_loop();
    }
    std::thread::yield_now();
}

#[cfg(test)]
mod tests;
