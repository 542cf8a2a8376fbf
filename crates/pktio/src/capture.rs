//! A wrapper that captures the packets of a device into a pcapng file; started and stopped while packets flow.
//!
//! Each record tells whether the switch received or sent the packet (`epb_flags`), so one file shows both directions.
//! While no capture runs, the cost is one relaxed load per burst. Captures are bounded by [`CaptureLimits`]: at the
//! limit, or when the file cannot be written, the capture stops and gives the reason in its [`CaptureStatus`].
//!
//! Threads: all queues write through one mutex (only while a capture runs); the handle may be used from any thread.
//! Tests: `capture/tests.rs`. Format: draft-ietf-opsawg-pcapng.

use crate::device::{Device, LinkState, MacAddress, PortStats, Queue};
use crate::error::Error;
use crate::packet::Packet;
use crate::pool::PoolRef;
use crate::wait::Wake;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Limits of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureLimits {
    /// Maximum bytes recorded per packet (snap length).
    pub snap_len_bytes: usize,
    /// Packets recorded before the capture stops by itself.
    pub packets_max: u64,
}

impl Default for CaptureLimits {
    fn default() -> Self {
        CaptureLimits { snap_len_bytes: 65_535, packets_max: 10_000_000 }
    }
}

/// The state of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureStatus {
    /// Whether packets are being recorded.
    pub running: bool,
    /// Packets recorded since the start.
    pub packets: u64,
    /// Why the capture stopped by itself, if it did.
    pub stopped_because: Option<String>,
}

/// The wrapped device.
pub struct Capture {
    inner: Box<dyn Device>,
    shared: Arc<Shared>,
}

/// Starts and stops captures on a [`Capture`] device.
#[derive(Clone)]
pub struct CaptureHandle {
    shared: Arc<Shared>,
}

struct CaptureQueue {
    inner: Box<dyn Queue>,
    shared: Arc<Shared>,
    /// Bytes and lengths of the packets offered to `tx`: which of them are sent is known only when they are gone.
    offered: (Vec<u8>, Vec<u32>),
}

struct Shared {
    interface: String,
    running: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    writer: Option<PcapNgWriter<BufWriter<File>>>,
    limits: CaptureLimits,
    status: CaptureStatus,
}

/// Values of the direction bits in `epb_flags`.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Direction {
    Received = 1,
    Sent = 2,
}

impl Capture {
    /// Wraps `inner`. Nothing is recorded until the handle starts a capture.
    pub fn wrap(inner: Box<dyn Device>) -> (Capture, CaptureHandle) {
        let shared = Arc::new(Shared {
            interface: inner.name().to_owned(),
            running: AtomicBool::new(false),
            state: Mutex::default(),
        });
        (Capture { inner, shared: Arc::clone(&shared) }, CaptureHandle { shared })
    }
}

impl CaptureHandle {
    /// Starts a capture into `path`, replacing an existing file. A running capture is stopped first.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be written.
    pub fn start(&self, path: &Path, limits: CaptureLimits) -> Result<(), Error> {
        let mut state = self.shared.lock();
        state.end(&self.shared.running, None);
        let fail = |reason: String| Error::File { path: path.to_owned(), reason };
        let file = File::create(path).map_err(|error| fail(error.to_string()))?;
        let mut writer = PcapNgWriter::new(BufWriter::new(file)).map_err(|error| fail(error.to_string()))?;
        let nanoseconds = 9;
        let snap_len = u32::try_from(limits.snap_len_bytes).unwrap_or(u32::MAX);
        let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, snap_len);
        interface.options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(&self.shared.interface)),
            InterfaceDescriptionOption::IfTsResol(nanoseconds),
        ];
        writer.write_pcapng_block(interface).map_err(|error| fail(error.to_string()))?;
        writer.get_mut().flush().map_err(|error| fail(error.to_string()))?;
        *state =
            State { writer: Some(writer), limits, status: CaptureStatus { running: true, ..CaptureStatus::default() } };
        self.shared.running.store(true, Ordering::Release);
        Ok(())
    }

    /// Stops the capture; its file is complete afterwards.
    pub fn stop(&self) -> CaptureStatus {
        let mut state = self.shared.lock();
        state.end(&self.shared.running, None);
        state.status.clone()
    }

    /// The current state of the capture.
    pub fn status(&self) -> CaptureStatus {
        self.shared.lock().status.clone()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }

    fn record<'a>(&self, direction: Direction, packets: impl Iterator<Item = &'a [u8]>) {
        let mut state = self.lock();
        let Err(reason) = state.record(direction, packets) else { return };
        state.end(&self.running, Some(reason));
    }
}

impl State {
    fn record<'a>(&mut self, direction: Direction, packets: impl Iterator<Item = &'a [u8]>) -> Result<(), String> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        for bytes in packets {
            if self.status.packets == self.limits.packets_max {
                return Err(format!("the limit of {} packets is reached", self.limits.packets_max));
            }
            let block = EnhancedPacketBlock {
                interface_id: 0,
                timestamp,
                original_len: bytes.len() as u32,
                data: Cow::Borrowed(&bytes[..bytes.len().min(self.limits.snap_len_bytes)]),
                options: vec![EnhancedPacketOption::Flags(direction as u32)],
            };
            writer.write_pcapng_block(block).map_err(|error| error.to_string())?;
            self.status.packets += 1;
        }
        writer.get_mut().flush().map_err(|error| error.to_string())
    }

    fn end(&mut self, running: &AtomicBool, because: Option<String>) {
        running.store(false, Ordering::Release);
        if let Some(mut writer) = self.writer.take() {
            let flushed = writer.get_mut().flush().map_err(|error| error.to_string());
            self.status.stopped_because = because.or(flushed.err());
        }
        self.status.running = false;
    }
}

impl Device for Capture {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn queue_count(&self) -> u16 {
        self.inner.queue_count()
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        let wrap = |inner| {
            Box::new(CaptureQueue { inner, shared: Arc::clone(&self.shared), offered: Default::default() })
                as Box<dyn Queue>
        };
        self.inner.take_queues().into_iter().map(wrap).collect()
    }

    fn pool(&self) -> PoolRef {
        self.inner.pool()
    }

    fn link(&self) -> LinkState {
        self.inner.link()
    }

    fn stats(&self) -> PortStats {
        self.inner.stats()
    }

    fn mac(&self) -> Option<MacAddress> {
        self.inner.mac()
    }

    fn mtu(&self) -> u16 {
        self.inner.mtu()
    }

    fn note(&self) -> Option<String> {
        self.inner.note()
    }

    fn at_end(&self) -> bool {
        self.inner.at_end()
    }
}

impl Queue for CaptureQueue {
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        let before = out.len();
        let count = self.inner.rx(out, max);
        if count > 0 && self.shared.is_running() {
            self.shared.record(Direction::Received, out[before..].iter().map(Packet::data));
        }
        count
    }

    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        if !self.shared.is_running() {
            return self.inner.tx(packets);
        }
        let (bytes, lengths) = &mut self.offered;
        bytes.clear();
        lengths.clear();
        for packet in packets.iter() {
            bytes.extend_from_slice(packet.data());
            lengths.push(packet.len() as u32);
        }
        let count = self.inner.tx(packets);
        let mut rest = bytes.as_slice();
        let sent = lengths[..count].iter().map(|&len| {
            let (packet, after) = rest.split_at(len as usize);
            rest = after;
            packet
        });
        self.shared.record(Direction::Sent, sent);
        count
    }

    fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        self.inner.arm(files)
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }
}

#[cfg(test)]
mod tests;
