//! What compiled code sees of a packet, a batch and a worker.
//!
//! A compiled entry is `fn(&WorkerCtx, &mut Batch)`: it runs all packets of the batch to their fate and writes it into
//! each descriptor. It never allocates and never frees; buffers belong to the caller, who finds the (possibly moved)
//! first byte and length in the descriptor afterwards. Single-threaded: a batch and a context belong to one worker.

/// Most packets of a batch.
pub const BATCH_MAX: usize = 64;

/// One packet for compiled code.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PacketDesc {
    /// First byte of the frame. In and out: deparsing may move it within the headroom.
    pub data: *mut u8,
    /// Bytes of the frame. In and out.
    pub len: u32,
    /// Free bytes before `data`. In and out.
    pub headroom: u32,
    /// Free bytes behind the frame. In and out.
    pub tailroom: u32,
    /// In: the port it came from.
    pub ingress_port: u32,
    /// Out: the port it leaves by, when `fate` is `Send`; the multicast group, when it is `Multicast`.
    pub egress_port: u32,
    /// Out: a [`FateCode`].
    pub fate: u32,
    /// Out: the drop reason or the replication point (0 ingress end, 1 egress end, 2 deparse end).
    pub fate_arg: u32,
    /// Bytes consumed by the parser; out for every fate, in for the entries that do not parse.
    pub consumed: u32,
    /// The packet's record (`ir::layout`), or null where the batch's entry needs none and none can be asked for. All
    /// slots are written before `Replicate`; all are read by entries other than `Ingress`.
    pub record: *mut u64,
    /// In: microseconds since the switch started, when it was received.
    pub timestamp_us: u64,
}

/// What became of a packet.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FateCode {
    /// Not decided; never left in a descriptor by compiled code.
    Pending = 0,
    /// Dropped, with a reason.
    Drop = 1,
    /// To `egress_port`.
    Send = 2,
    /// To the replication engine.
    Replicate = 3,
    /// Deparsing needed more room than the buffer has: dropped by the runtime with a reason of its own.
    NoRoom = 4,
    /// Went in circles (a parser loop that consumes nothing): given up and dropped by the runtime.
    Endless = 5,
    /// To all ports of the multicast group in `egress_port`, as it is.
    Multicast = 6,
    /// Back to ingress: goes on at `Reingress`, as it is. The record holds what that entry reads.
    Again = 7,
    /// Went back too often, or no work was left for it. Written by the replication engine.
    OverLimit = 8,
}

impl FateCode {
    /// Whether a packet with this fate is for the replication engine.
    #[inline(always)]
    pub const fn is_request(fate: u32) -> bool {
        fate == FateCode::Replicate as u32 || fate == FateCode::Multicast as u32 || fate == FateCode::Again as u32
    }
}

/// Packets that are worked on together.
#[repr(C)]
#[derive(Debug)]
pub struct Batch {
    /// How many of `packets` are there.
    pub count: u32,
    /// Out: to this is added what each packet has spent in loops, in steps above `ir::cost::SPARED_STEPS`.
    pub spent: u32,
    /// Microseconds since the switch started, when the batch was formed.
    pub now_us: u64,
    /// The packets.
    pub packets: [PacketDesc; BATCH_MAX],
}

/// What compiled code needs of its worker. One per worker and pipeline.
#[repr(C)]
#[derive(Debug)]
pub struct WorkerCtx {
    /// Bases of this worker's counter cells, by extern id: arrays of `[packets, bytes]` pairs of `u64`; null for externs
    /// that are not counters. Written by this worker alone, read by anyone with relaxed loads.
    pub counters: *const *mut [u64; 2],
    /// This worker's `[hits, misses]` by table id, incremented by compiled code at each apply. Written by this worker
    /// alone, read by anyone with relaxed loads.
    pub table_counters: *mut [u64; 2],
    /// The runtime's own data for calls; opaque to compiled code.
    pub runtime: *mut core::ffi::c_void,
    /// Index of the worker.
    pub worker: u32,
    /// Reserved; zero.
    pub flags: u32,
    /// Where watched code writes what it calls somebody for, before it calls, and 0 when it ends: what that number means,
    /// the code's owner knows. Never null. Written by this worker alone, read by its signal handler.
    pub place: *mut u64,
}

/// A compiled entry.
pub type PipelineFn = unsafe extern "C" fn(ctx: *const WorkerCtx, batch: *mut Batch);

impl PacketDesc {
    /// A descriptor with nothing in it.
    pub const EMPTY: PacketDesc = PacketDesc {
        data: core::ptr::null_mut(),
        len: 0,
        headroom: 0,
        tailroom: 0,
        ingress_port: 0,
        egress_port: 0,
        fate: FateCode::Pending as u32,
        fate_arg: 0,
        consumed: 0,
        record: core::ptr::null_mut(),
        timestamp_us: 0,
    };
}

impl Batch {
    /// A batch without packets.
    pub fn new() -> Batch {
        Batch { count: 0, spent: 0, now_us: 0, packets: [PacketDesc::EMPTY; BATCH_MAX] }
    }
}

impl Default for Batch {
    fn default() -> Self {
        Batch::new()
    }
}

const _: () = assert!(size_of::<PacketDesc>() == 56 && size_of::<WorkerCtx>() == 40);
