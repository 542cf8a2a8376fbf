//! Flow processors: they decide about packets between parser and deparser, in place of a program's tables.
//!
//! A program with `ir::Program::openflow` parses a packet into its record (`ir::layout`) and hands it to the processor.
//! The processor reads and writes slots there and calls [`Outputs`] to send the packet. Each output is a copy of the
//! packet with the record as it is at that moment. The engine takes it through the program's `Egress` entry point,
//! which writes headers back and deparses.
//!
//! **Work.** The packets of a received burst may cost a limited number of *steps*: an action, a bucket of a group or a
//! bit of an effect list is one. The engine keeps the account ([`Outputs::work_left`]). A processor asks before it does
//! the work, and refuses packets for which nothing is left ([`Outputs::refuse`]).
//!
//! Single-threaded: one processor per worker.

/// A packet to decide about.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// Its slots.
    pub record: &'a mut [u64],
    /// The port on which it was received.
    pub port: u32,
    /// Its frame, as received.
    pub frame: &'a [u8],
    /// Length of its frame in bytes.
    pub bytes: u32,
    /// Where processing begins: 0 for the first table, otherwise the value given to [`Outputs::again`] or with an
    /// injected packet.
    pub start: u64,
}

/// A copy of a packet to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Output {
    /// The packet's index in the batch.
    pub packet: usize,
    /// The frame is truncated to this many bytes; `u32::MAX` for no limit.
    pub max_len: u32,
    /// Whether the record may differ from the frame as received. If not, the frame is sent as it is.
    pub is_modified: bool,
    /// Whether this is the packet's last output, which then takes its buffer instead of a copy.
    pub is_last: bool,
}

/// The destinations of packets, implemented by the engine.
pub trait Outputs {
    /// Sends the packet to a port, through one of its queues.
    fn send(&mut self, output: Output, record: &[u64], port: u32, queue: u8);
    /// Hands the outgoing frame to [`FlowProcessor::capture`] with this token.
    fn capture(&mut self, output: Output, record: &[u64], token: u64);
    /// Deparses the packet, passes the frame to [`FlowProcessor::rewrite`] if `rewrites`, parses it anew and processes
    /// it again from `start`.
    fn again(&mut self, output: Output, record: &[u64], start: u64, rewrites: bool);
    /// Ends a packet none of whose outputs was its last, and releases its buffer. `is_dropped` if there was no output.
    fn end(&mut self, packet: usize, is_dropped: bool);
    /// Steps of the work budget that the packet may still spend.
    fn work_left(&self, packet: usize) -> u32;
    /// Charges the packet for steps that are about to be done, or have been; at most [`Outputs::work_left`].
    fn spend(&mut self, packet: usize, steps: u32);
    /// Drops the packet because no work is left for it. None of its outputs was its last.
    fn refuse(&mut self, packet: usize);
}

/// When a flow cache is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheUse {
    /// While measurements say that it is faster.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl CacheUse {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            CacheUse::Auto => "auto",
            CacheUse::Always => "always",
            CacheUse::Never => "never",
        }
    }

    /// The variant of this name.
    pub fn named(name: &str) -> Option<CacheUse> {
        [CacheUse::Auto, CacheUse::Always, CacheUse::Never].into_iter().find(|use_| use_.name() == name)
    }

    /// The variant of this number (`as u8`).
    pub fn from_u8(number: u8) -> CacheUse {
        match number {
            0 => CacheUse::Auto,
            1 => CacheUse::Always,
            _ => CacheUse::Never,
        }
    }
}

/// The answer of a flow cache about a frame ([`FrameCache`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verdict {
    /// The frame is not in the cache: the pipeline decides.
    #[default]
    Unknown,
    /// The frame is dropped.
    Drop {
        /// The program's drop reason (`ir::Program::drops`); `None` if its flow tables have no output for it.
        reason: Option<u32>,
    },
    /// The frame is sent, as it is now, to a port through one of its queues.
    Send {
        /// The port.
        port: u32,
        /// The queue.
        queue: u8,
    },
}

/// A received frame and the flow cache's answer.
#[derive(Debug)]
pub struct Received<'a> {
    /// The frame; modified if the verdict is to send it.
    pub frame: Frame<'a>,
    /// The answer; [`Verdict::Unknown`] before.
    pub verdict: Verdict,
}

/// A flow cache in front of the parser. Single-threaded: one per worker.
pub trait FrameCache: Send {
    /// Whether the cache is to be used now. Called for each batch.
    fn is_used(&mut self, now_us: u64) -> bool;
    /// Decides about frames received on a port, at most a batch of them, and modifies those that it sends.
    fn decide(&mut self, frames: &mut [Received<'_>], port: u32, now_us: u64);
    /// The time, by the same clock, before which [`FrameCache::is_used`] need not be called again.
    fn bypassed_until_us(&self) -> u64 {
        0
    }
    /// Whether [`FrameCache::record_time`] is to be called with the duration of the whole batch for which it was used
    /// last.
    fn is_timed(&self) -> bool {
        false
    }
    /// Records that `packets` packets took `ticks` ticks, with the cache or without.
    fn record_time(&mut self, _packets: usize, _ticks: u64, _is_used: bool) {}
    /// Called when the frames of a batch have been sent. Updates counters that are due; all of them if `is_idle`, that
    /// is if no batch may come for a while. Returns whether no count is held back any more.
    fn settle(&mut self, _is_idle: bool) -> bool {
        true
    }
}

/// Decides about the packets of one worker.
pub trait FlowProcessor: Send {
    /// The flow cache in front of the parser, if there is one.
    fn front(&mut self) -> Option<&mut dyn FrameCache> {
        None
    }
    /// Decides about packets. For each, the calls of `outputs` end with an output that is its last, with
    /// [`Outputs::end`] or with [`Outputs::refuse`].
    fn process(&mut self, batch: &mut [Arrival<'_>], now_us: u64, outputs: &mut dyn Outputs);
    /// Receives a frame that [`Outputs::capture`] requested.
    fn capture(&mut self, token: u64, frame: &[u8]);
    /// Modifies the bytes of a frame between two passes. It may change the frame's length within the room at both ends
    /// of the buffer. `None` drops the frame. The cost is taken from `steps` (as in [`Outputs::spend`]); if they do not
    /// suffice, none are left and the frame is dropped.
    fn rewrite(&mut self, start: u64, frame: &mut Frame<'_>, steps: &mut u32) -> Option<()>;
    /// Called between batches, and also when there are none.
    fn idle(&mut self, now_us: u64);
}

/// A frame in its buffer.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The whole buffer.
    pub buffer: &'a mut [u8],
    /// Offset of the frame in the buffer.
    pub offset: usize,
    /// Length of the frame in bytes.
    pub len: usize,
}

/// Flow tables, from which processors are made. Shared by workers and the control plane.
pub trait FlowTables: Send + Sync {
    /// The processor of a worker. At most one per worker exists at a time.
    fn processor(&self, worker: usize) -> Box<dyn FlowProcessor>;
}
