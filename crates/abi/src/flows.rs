//! Flow processors: what decides about packets between parsing and deparsing, in the place of a program's tables.
//!
//! A program made for that (`ir::Program::openflow`) parses a packet into its record (`ir::layout`) and asks. The processor reads
//! and writes slots there and says, by [`Outputs`], where the packet goes. Each output is a copy of the packet with the record as
//! it is at that moment; the engine takes it through the program's `Egress` entry, which writes headers back and deparses.
//!
//! **Work.** What packets of a received burst cause may cost so many *steps*: an action, a bucket of a group, a bit of an effect list. The
//! engine keeps the account ([`Outputs::work_left`]); a processor asks before it does the work, and refuses packets for which nothing
//! is left ([`Outputs::refuse`]).
//!
//! Single-threaded: one processor per worker.

/// A packet to be decided about.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// Its slots.
    pub record: &'a mut [u64],
    /// The port by which it came.
    pub port: u32,
    /// Its frame, as received.
    pub frame: &'a [u8],
    /// Bytes of its frame.
    pub bytes: u32,
    /// Where it begins: 0 for the first table, otherwise what [`Outputs::again`] or an injected packet named.
    pub start: u64,
}

/// What goes out and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Output {
    /// The packet, by its place in the batch.
    pub packet: usize,
    /// The frame is cut to so many bytes; `u32::MAX` for never.
    pub max_len: u32,
    /// Whether the record may say something else than the frame as received; if not, that is sent as it is.
    pub is_modified: bool,
    /// Whether nothing follows for this packet: its buffer is used instead of a copy.
    pub is_last: bool,
}

/// Where a processor sends packets.
pub trait Outputs {
    /// Sends the packet to a port, through a queue of it.
    fn send(&mut self, output: Output, record: &[u64], port: u32, queue: u8);
    /// Hands the frame to [`FlowProcessor::capture`], with this token.
    fn capture(&mut self, output: Output, record: &[u64], token: u64);
    /// Deparses it, lets [`FlowProcessor::rewrite`] work on the frame if `rewrites`, parses it anew and asks again with this start.
    fn again(&mut self, output: Output, record: &[u64], start: u64, rewrites: bool);
    /// Nothing follows for this packet, and no output was its last: the buffer is given back. `is_dropped` if there was no output.
    fn end(&mut self, packet: usize, is_dropped: bool);
    /// Steps that may still be done for the packet. More than that must not be done.
    fn work_left(&self, packet: usize) -> u32;
    /// So many steps are about to be done for it, or have been; at most what is left.
    fn spend(&mut self, packet: usize, steps: u32);
    /// Drops the packet, of which no output was the last: there is no work left for it.
    fn refuse(&mut self, packet: usize);
}

/// When a flow cache is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheUse {
    /// As long as it pays.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl CacheUse {
    /// As people name it.
    pub fn name(self) -> &'static str {
        match self {
            CacheUse::Auto => "auto",
            CacheUse::Always => "always",
            CacheUse::Never => "never",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<CacheUse> {
        [CacheUse::Auto, CacheUse::Always, CacheUse::Never].into_iter().find(|use_| use_.name() == name)
    }

    /// By its number (`as u8`).
    pub fn from_u8(number: u8) -> CacheUse {
        match number {
            0 => CacheUse::Auto,
            1 => CacheUse::Always,
            _ => CacheUse::Never,
        }
    }
}

/// What a flow cache says of a frame that it may know ([`FrameCache`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verdict {
    /// It does not know it: the pipeline decides.
    #[default]
    Unknown,
    /// It is dropped.
    Drop {
        /// The program's reason (`ir::Program::drops`); none if its flow tables send it nowhere.
        reason: Option<u32>,
    },
    /// It goes out by a port, through a queue of it, as it is now.
    Send {
        /// The port.
        port: u32,
        /// The queue.
        queue: u8,
    },
}

/// A received frame, of which a flow cache may know what the pipeline would do with it.
#[derive(Debug)]
pub struct Received<'a> {
    /// The frame, which is changed where the verdict is to send it.
    pub frame: Frame<'a>,
    /// What becomes of it; [`Verdict::Unknown`] before.
    pub verdict: Verdict,
}

/// Knows what a pipeline does with frames, before they are parsed. Single-threaded: one per worker.
pub trait FrameCache: Send {
    /// Whether frames are to be shown to it now. Asked for each batch.
    fn is_used(&mut self, now_us: u64) -> bool;
    /// Says what becomes of frames that came by a port, at most a batch of them, and changes those that it sends.
    fn decide(&mut self, frames: &mut [Received<'_>], port: u32, now_us: u64);
    /// Until when it need not be asked: a time of the same clock.
    fn rests_until_us(&self) -> u64 {
        0
    }
    /// Whether it wants to know how long the batch takes for which it was asked last, all of it.
    fn is_timed(&self) -> bool {
        false
    }
    /// So many packets have taken so many ticks, with what it knows or without.
    fn took(&mut self, _packets: usize, _ticks: u64, _is_used: bool) {}
    /// Frames that were shown have left. Counts what must be counted now, all of it if no batch may come for a while; whether it holds
    /// nothing back any more.
    fn settle(&mut self, _is_idle: bool) -> bool {
        true
    }
}

/// Decides about the packets of one worker.
pub trait FlowProcessor: Send {
    /// What knows packets by their frames, if anything does.
    fn front(&mut self) -> Option<&mut dyn FrameCache> {
        None
    }
    /// Decides about packets; for each, the calls of `outputs` end with an output that is its last or with [`Outputs::end`].
    fn process(&mut self, batch: &mut [Arrival<'_>], now_us: u64, outputs: &mut dyn Outputs);
    /// Takes a frame that [`Outputs::capture`] asked for.
    fn capture(&mut self, token: u64, frame: &[u8]);
    /// Works on the bytes of a frame between two passes, and may change its length within the room at both ends. `None` drops it.
    /// What that costs is taken from `steps` ([`Outputs::spend`]); if they do not suffice, none are left, and the frame is dropped.
    fn rewrite(&mut self, start: u64, frame: &mut Frame<'_>, steps: &mut u32) -> Option<()>;
    /// Called between batches, also when there are none.
    fn idle(&mut self, now_us: u64);
}

/// A frame in its buffer.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The whole buffer.
    pub buffer: &'a mut [u8],
    /// Where the frame begins there.
    pub offset: usize,
    /// Its length.
    pub len: usize,
}

/// Makes processors; shared by workers and the control plane.
pub trait FlowTables: Send + Sync {
    /// The processor of a worker. At most one per worker exists at a time.
    fn processor(&self, worker: usize) -> Box<dyn FlowProcessor>;
}
