//! What a bridge needs from the switch around it: time, frames, counts, ports.

use openflow::message::{PortStats, Queue, QueueStats};

/// Why a frame is not taken.
#[derive(Debug)]
pub enum NotInjected {
    /// Too many wait to be taken. The frame, for another try.
    Busy(Vec<u8>),
    /// Nothing takes it: why.
    Failed(String),
}

/// The switch around a bridge. Called by connections and [`crate::Bridge::tick`], never by workers but for [`Host::wake`] and
/// [`Host::now_us`].
pub trait Host: Send + Sync {
    /// The switch's clock, in microseconds. It never goes back.
    fn now_us(&self) -> u64;

    /// Sends a frame through the pipeline as if it had come by `in_port`, beginning at `start` (`abi::flows::Arrival::start`).
    ///
    /// # Errors
    /// Why it is not taken.
    fn inject(&self, frame: Vec<u8>, in_port: u32, start: u64) -> Result<(), NotInjected>;

    /// A port's counts. `None` if there is no such port.
    fn port_stats(&self, port: u32) -> Option<PortStats>;

    /// The queues of a port.
    fn queues(&self, port: u32) -> Vec<Queue>;

    /// The counts of a port's queues.
    fn queue_stats(&self, port: u32) -> Vec<QueueStats>;

    /// Changes a port's `OFPPC_` bits where that needs the switch: `OFPPC_PORT_DOWN`.
    ///
    /// # Errors
    /// If the port cannot be changed: why.
    fn set_port_config(&self, port: u32, config: u32) -> Result<(), String>;

    /// Asks workers to add the counts that they hold back, and waits for some milliseconds at most.
    fn sync_counts(&self);

    /// A connection has something to send: its owner should call [`crate::Connection::poll`]. Called from any thread; must not
    /// block.
    fn wake(&self, connection: u64);
}
