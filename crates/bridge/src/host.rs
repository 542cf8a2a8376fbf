//! The interface of a bridge to the switch around it: time, frames, counters, ports.

use openflow::message::{PortStats, Queue, QueueStats};

/// Why a frame is not injected.
#[derive(Debug)]
pub enum NotInjected {
    /// There is no room now. Returns the frame, for another try.
    Busy(Vec<u8>),
    /// It cannot be injected; the message says why.
    Failed(String),
}

/// The switch around a bridge. Called by connections and [`crate::Bridge::tick`]; workers call only [`Host::wake`]
/// and [`Host::now_us`].
pub trait Host: Send + Sync {
    /// The switch's clock, in microseconds. It is monotonic.
    fn now_us(&self) -> u64;

    /// Injects a frame into the pipeline as if it had been received on `in_port`; processing begins at `start`
    /// (`abi::flows::Arrival::start`).
    ///
    /// # Errors
    /// If the frame is not taken; see [`NotInjected`].
    fn inject(&self, frame: Vec<u8>, in_port: u32, start: u64) -> Result<(), NotInjected>;

    /// The counters of a port. `None` if there is no such port.
    fn port_stats(&self, port: u32) -> Option<PortStats>;

    /// The queues of a port.
    fn queues(&self, port: u32) -> Vec<Queue>;

    /// The counters of a port's queues.
    fn queue_stats(&self, port: u32) -> Vec<QueueStats>;

    /// Sets a port's `OFPPC_` bits as far as the switch implements them: `OFPPC_PORT_DOWN`.
    ///
    /// # Errors
    /// If the port cannot be configured; the message says why.
    fn set_port_config(&self, port: u32, config: u32) -> Result<(), String>;

    /// Requests workers to flush the counts that they hold back, and waits for some milliseconds at most.
    fn sync_counts(&self);

    /// Notifies the owner of a connection that it has something to send, so that [`crate::Connection::poll`] should
    /// be called. Called from any thread; must not block.
    fn wake(&self, connection: u64);
}
