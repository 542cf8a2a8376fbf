//! A packet, a batch and a worker as compiled code sees them.
//!
//! A compiled entry point is `fn(&WorkerCtx, &mut Batch)`: it processes every packet of the batch until its fate is
//! decided and writes the fate into the packet's descriptor. It never allocates and never frees. Buffers belong to the
//! caller, who finds the frame's first byte (which may have moved) and its length in the descriptor afterwards.
//! Single-threaded: a batch and a context belong to one worker.

/// Largest number of packets in a batch.
pub const BATCH_MAX: usize = 64;

/// Descriptor of one packet.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PacketDesc {
    /// In and out: first byte of the frame. Deparsing may move it within the headroom.
    pub data: *mut u8,
    /// In and out: length of the frame in bytes.
    pub len: u32,
    /// In and out: free bytes before `data`.
    pub headroom: u32,
    /// In and out: free bytes after the frame.
    pub tailroom: u32,
    /// In: the port on which it was received.
    pub ingress_port: u32,
    /// Out: the egress port, when `fate` is `Send`; the multicast group, when it is `Multicast`.
    pub egress_port: u32,
    /// Out: a [`FateCode`].
    pub fate: u32,
    /// Out: the drop reason or the replication point (0 ingress end, 1 egress end, 2 deparse end).
    pub fate_arg: u32,
    /// Bytes consumed by the parser. Out for every fate; in for entry points that do not parse.
    pub consumed: u32,
    /// The packet's record (`ir::layout`). Null if the batch's entry point reads none and cannot hand packets to the
    /// replication engine. All slots are written before `Replicate`, and for `Again` those that the next pass reads; for
    /// no other fate may it be written, since packets may share one. Entry points other than `Ingress` read all slots.
    pub record: *mut u64,
    /// In: when the packet was received, in microseconds since the switch started.
    pub timestamp_us: u64,
}

/// What compiled code has decided about a packet.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FateCode {
    /// Not decided; never left in a descriptor by compiled code.
    Pending = 0,
    /// Dropped; `fate_arg` is the reason.
    Drop = 1,
    /// Sent to `egress_port`.
    Send = 2,
    /// Handed to the replication engine.
    Replicate = 3,
    /// Deparsing needed more room than the buffer has. The runtime drops the packet with a reason of its own.
    NoRoom = 4,
    /// Stopped in a loop without end (parser states that consume nothing). The runtime drops the packet.
    Endless = 5,
    /// Sent unchanged to all ports of the multicast group in `egress_port`.
    Multicast = 6,
    /// Sent back to ingress unchanged: processing continues at `Reingress`, whose inputs the record holds.
    Again = 7,
    /// Sent back too often, or its work budget was spent. Written by the replication engine.
    OverLimit = 8,
}

impl FateCode {
    /// Whether a packet with this fate is for the replication engine.
    #[inline(always)]
    pub const fn is_request(fate: u32) -> bool {
        fate == FateCode::Replicate as u32 || fate == FateCode::Multicast as u32 || fate == FateCode::Again as u32
    }
}

/// Packets that are processed together.
#[repr(C)]
#[derive(Debug)]
pub struct Batch {
    /// Number of valid elements of `packets`.
    pub count: u32,
    /// Out: compiled code adds the work of the packets' loops that exceeds `ir::cost::FREE_STEPS` per packet, in
    /// steps.
    pub spent: u32,
    /// When the batch was formed, in microseconds since the switch started.
    pub now_us: u64,
    /// The packets.
    pub packets: [PacketDesc; BATCH_MAX],
}

/// The worker's context for compiled code. One per worker and pipeline.
#[repr(C)]
#[derive(Debug)]
pub struct WorkerCtx {
    /// This worker's counter cells, by extern id: arrays of `[packets, bytes]` pairs, of meters three pairs for each cell,
    /// by colour; null for other externs. Written by this worker alone; read by any thread with relaxed loads.
    pub counters: *const *mut [u64; 2],
    /// This worker's `[hits, misses]` by table id, incremented by compiled code at each apply. Written by this worker
    /// alone; read by any thread with relaxed loads.
    pub table_counters: *mut [u64; 2],
    /// The runtime's data for calls; opaque to compiled code.
    pub runtime: *mut core::ffi::c_void,
    /// Index of the worker.
    pub worker: u32,
    /// Reserved; zero.
    pub flags: u32,
    /// Where watched code notes a call in progress: before a call it writes a number that only the code's owner can
    /// interpret, and 0 after it. Never null. Written by this worker alone; read by its signal handler.
    pub place: *mut u64,
}

/// A compiled entry point.
pub type PipelineFn = unsafe extern "C" fn(ctx: *const WorkerCtx, batch: *mut Batch);

impl PacketDesc {
    /// A descriptor without a packet.
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
