//! Every way a packet can end has a name and a counter.
//!
//! Reasons are the program's own (`ir::Program::drops`) followed by the runtime's ([`RuntimeDrop`]). Each worker counts
//! in cells of its own; reading sums them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Reasons that are the runtime's, not the program's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuntimeDrop {
    /// The new headers do not fit before the payload.
    NoRoom,
    /// Went in circles in the parser.
    Endless,
    /// No buffer was free for a copy.
    NoBuffer,
    /// Resubmitted, recirculated or cloned too often.
    ReplicationLimit,
    /// A multicast group or clone session that does not exist.
    NoSuchGroup,
    /// The port does not exist.
    NoSuchPort,
    /// The port's queue is full.
    PortFull,
    /// Nobody takes packets for the controller fast enough.
    ControllerFull,
    /// No program is loaded.
    NoProgram,
    /// The frame is longer or shorter than the switch can carry.
    BadLength,
    /// Went over links from device to device too often.
    LinkLimit,
    /// The operator has taken the port out of service.
    PortDown,
    /// Was sent to port 0, which is not there: what `egress_spec` is where the program chose none.
    NoPortChosen,
    /// A queue of the port has reached its limit.
    QueueFull,
    /// A queue of the port drops some packets before it is full (RED).
    QueueEarly,
    /// The buffer that ports share has no room for the port's tenant.
    SharedBufferFull,
    /// The tenant that the queue belongs to has reached its limit.
    TenantLimit,
    /// The flow tables of the bridge send it nowhere.
    FlowTables,
    /// The burst has used up the work that flow tables may cost.
    FlowWork,
}

impl RuntimeDrop {
    /// All of them, in counter order.
    pub const ALL: [RuntimeDrop; 19] = [
        RuntimeDrop::NoRoom,
        RuntimeDrop::Endless,
        RuntimeDrop::NoBuffer,
        RuntimeDrop::ReplicationLimit,
        RuntimeDrop::NoSuchGroup,
        RuntimeDrop::NoSuchPort,
        RuntimeDrop::PortFull,
        RuntimeDrop::ControllerFull,
        RuntimeDrop::NoProgram,
        RuntimeDrop::BadLength,
        RuntimeDrop::LinkLimit,
        RuntimeDrop::PortDown,
        RuntimeDrop::NoPortChosen,
        RuntimeDrop::QueueFull,
        RuntimeDrop::QueueEarly,
        RuntimeDrop::SharedBufferFull,
        RuntimeDrop::TenantLimit,
        RuntimeDrop::FlowTables,
        RuntimeDrop::FlowWork,
    ];

    /// The name that `sluice stats` prints.
    pub fn name(self) -> &'static str {
        match self {
            RuntimeDrop::NoRoom => "no headroom for headers",
            RuntimeDrop::Endless => "endless loop",
            RuntimeDrop::NoBuffer => "no buffer for a copy",
            RuntimeDrop::ReplicationLimit => "replication limit",
            RuntimeDrop::NoSuchGroup => "no such group or session",
            RuntimeDrop::NoSuchPort => "no such port",
            RuntimeDrop::PortFull => "port full",
            RuntimeDrop::ControllerFull => "controller too slow",
            RuntimeDrop::NoProgram => "no program",
            RuntimeDrop::BadLength => "bad frame length",
            RuntimeDrop::LinkLimit => "too many links",
            RuntimeDrop::PortDown => "port is down",
            RuntimeDrop::NoPortChosen => "no egress port chosen",
            RuntimeDrop::QueueFull => "queue full",
            RuntimeDrop::QueueEarly => "queue early drop",
            RuntimeDrop::SharedBufferFull => "shared buffer full",
            RuntimeDrop::TenantLimit => "tenant limit",
            RuntimeDrop::FlowTables => "flow tables",
            RuntimeDrop::FlowWork => "flow work limit",
        }
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DropReason {
    /// Index into `ir::Program::drops`.
    Program(u32),
    /// The runtime's.
    Runtime(RuntimeDrop),
}

/// One worker's cells. Only the worker adds; anyone reads.
#[derive(Debug)]
pub struct DropCounters {
    runtime: [AtomicU64; RuntimeDrop::ALL.len()],
    program: Vec<AtomicU64>,
}

impl DropCounters {
    /// Zero cells for a program with this many reasons.
    pub fn new(program_reasons: usize) -> DropCounters {
        DropCounters { runtime: Default::default(), program: (0..program_reasons).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Counts one packet.
    pub fn count(&self, reason: DropReason) {
        self.count_many(reason, 1);
    }

    /// Counts `packets` packets.
    pub fn count_many(&self, reason: DropReason, packets: u64) {
        let cell = match reason {
            DropReason::Runtime(r) => &self.runtime[r as usize],
            DropReason::Program(i) => match self.program.get(i as usize) {
                Some(cell) => cell,
                None => return,
            },
        };
        // One writer: a plain add is enough.
        cell.store(cell.load(Ordering::Relaxed) + packets, Ordering::Relaxed);
    }

    /// `(name, packets)` of all reasons, the program's first.
    pub fn read(&self, program: &ir::Program) -> Vec<(String, u64)> {
        let names = program.drops.iter().cloned().zip(self.program.iter());
        let runtime = RuntimeDrop::ALL.iter().map(|r| r.name().to_string()).zip(self.runtime.iter());
        names.chain(runtime).map(|(n, c)| (n, c.load(Ordering::Relaxed))).collect()
    }
}
