//! Drop reasons and their counters: every dropped packet is counted under a named reason.
//!
//! Reasons are the program's own (`ir::Program::drops`), followed by the runtime's ([`RuntimeDrop`]). Each worker
//! counts in cells of its own; readers sum them.

use std::sync::atomic::{AtomicU64, Ordering};

/// The runtime's drop reasons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuntimeDrop {
    /// The new headers do not fit in front of the payload.
    NoRoom,
    /// The parser looped too often.
    Endless,
    /// No buffer was free for a copy.
    NoBuffer,
    /// Resubmitted, recirculated or cloned too often.
    ReplicationLimit,
    /// The multicast group or clone session does not exist.
    NoSuchGroup,
    /// The port does not exist.
    NoSuchPort,
    /// The port's queue is full.
    PortFull,
    /// The channel to the controller is full.
    ControllerFull,
    /// No program is loaded.
    NoProgram,
    /// The frame is longer or shorter than the switch can carry.
    BadLength,
    /// Crossed too many links between devices.
    LinkLimit,
    /// The port is out of service.
    PortDown,
    /// Sent to port 0, which does not exist: the value of `egress_spec` if the program chose no port.
    NoPortChosen,
    /// A queue of the port has reached its limit.
    QueueFull,
    /// Dropped early by a queue (RED).
    QueueEarly,
    /// The shared buffer has no room for the port's tenant.
    SharedBufferFull,
    /// The tenant that the queue belongs to has reached its limit.
    TenantLimit,
    /// The bridge's flow tables give it no output.
    FlowTables,
    /// The burst has used up its work budget for flow tables.
    FlowWork,
}

impl RuntimeDrop {
    /// All reasons, in counter order.
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
    /// A reason of the runtime.
    Runtime(RuntimeDrop),
}

/// One worker's drop counters. Only the worker adds; any thread may read.
#[derive(Debug)]
pub struct DropCounters {
    runtime: [AtomicU64; RuntimeDrop::ALL.len()],
    program: Vec<AtomicU64>,
}

impl DropCounters {
    /// Counters at zero for a program with this many reasons.
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
