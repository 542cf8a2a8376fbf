//! Copies frames that ports receive and send, for captures and for tracing packets of the running switch.
//!
//! Workers check for taps once per burst; normally there are none. They copy matching frames into a bounded queue (in
//! frames and bytes) and never wait: frames that find it full are counted as lost. Dropping the [`Tapped`] end
//! removes the tap.
//!
//! A *sent* frame is copied when it is handed to the device, so frames that a full device then refuses are included.
//!
//! Threads: workers use `Tap`, its owner uses `Tapped`. Tests: `tests/tap.rs`.

use crate::worker::{Command, Mailbox};
use pktio::Packet;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

/// Most frames that may wait for the owner.
pub const WAITING_MAX: usize = 8192;
/// Most bytes of waiting copies; may be exceeded by one frame per worker.
pub const WAITING_BYTES_MAX: usize = 8 << 20;

/// Selects what a tap copies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TapConfig {
    /// Only ports of this device; ends of links are numbered per device.
    pub device: Option<u64>,
    /// Port numbers; empty for all.
    pub ports: BTreeSet<u32>,
    /// Most bytes copied of each frame; 0 for all.
    pub snap_length: u32,
    /// Whether to copy received frames only.
    pub received_only: bool,
}

/// A copied frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TappedFrame {
    /// The device whose port it is.
    pub device: u64,
    /// The port.
    pub port: u32,
    /// Whether the switch sent it.
    pub sent: bool,
    /// Time since the Unix epoch.
    pub time: Duration,
    /// Length of the whole frame in bytes.
    pub length: u32,
    /// The first bytes of the frame.
    pub data: Vec<u8>,
}

/// The workers' end of a tap.
#[derive(Debug)]
pub(crate) struct Tap {
    config: TapConfig,
    frames: SyncSender<TappedFrame>,
    /// Bytes of waiting copies.
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

/// The owner's end of a tap.
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

    /// The command that starts the tap.
    pub(crate) fn begin(&self) -> Command {
        Command::Tap(Arc::clone(&self.tap))
    }

    /// The next frame; `None` if none arrives within `timeout`.
    pub fn next_within(&self, timeout: Duration) -> Option<TappedFrame> {
        let frame = self.frames.recv_timeout(timeout).ok()?;
        self.tap.waiting.fetch_sub(frame.data.len(), Ordering::Relaxed);
        Some(frame)
    }

    /// Frames lost because the queue was full.
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
