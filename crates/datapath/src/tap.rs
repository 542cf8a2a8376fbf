//! Copies of what ports receive and send, for captures and for tracing packets of the running switch.
//!
//! A [`Tap`] is looked at once per burst, and is not there most of the time. Workers copy frames that it wants into a bounded
//! queue (by frames and by bytes) and never wait: what finds it full is counted as lost. Dropping the [`Tapped`] end takes the tap away from the
//! workers.
//!
//! What a port *sends* is copied when it is handed to the device, so frames that a full device then refuses are in it.
//!
//! Threads: `Tap` the workers', `Tapped` its owner's. Tests: `tests/tap.rs`.

use crate::worker::{Command, Mailbox};
use pktio::Packet;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

/// Frames that may wait for the owner.
pub const WAITING_MAX: usize = 8192;
/// Bytes of their copies, about: a worker that has room left copies one more frame.
pub const WAITING_BYTES_MAX: usize = 8 << 20;

/// What a tap copies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TapConfig {
    /// Only ports of this device: their numbers are its own where they are ends of links.
    pub device: Option<u64>,
    /// Port numbers; empty for all.
    pub ports: BTreeSet<u32>,
    /// Bytes of each frame; 0 for all.
    pub snap_length: u32,
    /// Whether only received frames are wanted.
    pub received_only: bool,
}

/// A frame that passed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TappedFrame {
    /// The device whose port it is.
    pub device: u64,
    /// The port.
    pub port: u32,
    /// Whether the switch sent it.
    pub sent: bool,
    /// When, since 1970.
    pub time: Duration,
    /// Bytes of the whole frame.
    pub length: u32,
    /// Its beginning.
    pub data: Vec<u8>,
}

/// The workers' end.
#[derive(Debug)]
pub(crate) struct Tap {
    config: TapConfig,
    frames: SyncSender<TappedFrame>,
    /// Bytes of the frames that wait.
    waiting: AtomicUsize,
    lost: Arc<AtomicU64>,
    closed: Arc<AtomicBool>,
}

impl Tap {
    /// Copies a burst. Called by workers.
    #[cold]
    pub(crate) fn copy(&self, device: u64, port: u32, sent: bool, packets: &[Packet]) {
        let ours = self.config.device.is_none_or(|wanted| wanted == device);
        let wanted = self.config.ports.is_empty() || self.config.ports.contains(&port);
        if !ours || !wanted || (sent && self.config.received_only) || self.closed.load(Ordering::Relaxed) {
            return;
        }
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        for packet in packets {
            let data = packet.data();
            let snap = match self.config.snap_length {
                0 => data.len(),
                bytes => data.len().min(bytes as usize),
            };
            let length = packet.len() as u32;
            if self.waiting.load(Ordering::Relaxed) >= WAITING_BYTES_MAX {
                self.lost.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let frame = TappedFrame { device, port, sent, time, length, data: data[..snap].to_vec() };
            self.waiting.fetch_add(snap, Ordering::Relaxed);
            if self.frames.try_send(frame).is_err() {
                self.waiting.fetch_sub(snap, Ordering::Relaxed);
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The owner's end.
pub struct Tapped {
    tap: Arc<Tap>,
    frames: Receiver<TappedFrame>,
    mailboxes: Vec<Arc<Mailbox>>,
}

impl Tapped {
    pub(crate) fn new(config: TapConfig, mailboxes: Vec<Arc<Mailbox>>) -> Tapped {
        let (sender, frames) = sync_channel(WAITING_MAX);
        let waiting = AtomicUsize::new(0);
        let tap = Arc::new(Tap { config, frames: sender, waiting, lost: Arc::default(), closed: Arc::default() });
        Tapped { tap, frames, mailboxes }
    }

    /// What workers are to be told first.
    pub(crate) fn begin(&self) -> Command {
        Command::Tap(Arc::clone(&self.tap))
    }

    /// The next frame; `None` if none comes in this time.
    pub fn next_within(&self, timeout: Duration) -> Option<TappedFrame> {
        let frame = self.frames.recv_timeout(timeout).ok()?;
        self.tap.waiting.fetch_sub(frame.data.len(), Ordering::Relaxed);
        Some(frame)
    }

    /// Frames that were not taken in time.
    pub fn lost(&self) -> u64 {
        self.tap.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Tapped {
    fn drop(&mut self) {
        self.tap.closed.store(true, Ordering::Relaxed);
        self.mailboxes.iter().for_each(|mailbox| _ = mailbox.post(Command::Untap(Arc::clone(&self.tap))));
    }
}
