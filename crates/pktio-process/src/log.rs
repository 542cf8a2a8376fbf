//! Lines of a port's process in the switch's log, with the level, the target and the fields that they have in a switch
//! without `isolated`.
//!
//! A target of a line is known when the program is compiled, so those that ports use are listed here. Lines beyond a rate
//! are left out and counted, and long ones are cut: whoever takes a process over cannot fill the log.
//!
//! Threads: a port's supervisor. Tests: `tests/isolated.rs`.

use crate::protocol::Line;
use shared_memory::Limit;

/// Maximum lines of a process per second; a port itself warns 16 times at most.
const LINES_PER_SECOND: u32 = 64;
/// Maximum characters of a line.
const TEXT_MAX: usize = 1000;

macro_rules! log_by_target {
    ($line:expr, $port:expr, $text:expr, $other:literal, $($target:literal),*) => {
        match $line.target.as_str() {
            $($target => log_by_level!($line, $port, $text, $target),)*
            _ => log_by_level!($line, $port, $text, $other),
        }
    };
}

macro_rules! log_by_level {
    ($line:expr, $port:expr, $text:expr, $target:literal) => {
        match $line.level {
            0 => tracing::error!(target: $target, port = $port, queue = $line.queue, "{}", $text),
            1 => tracing::warn!(target: $target, port = $port, queue = $line.queue, "{}", $text),
            2 => tracing::info!(target: $target, port = $port, queue = $line.queue, "{}", $text),
            3 => tracing::debug!(target: $target, port = $port, queue = $line.queue, "{}", $text),
            _ => tracing::trace!(target: $target, port = $port, queue = $line.queue, "{}", $text),
        }
    };
}

/// The log of one port's processes.
pub(crate) struct Log {
    limit: Limit,
    left_out: u64,
}

impl Log {
    pub(crate) fn new() -> Log {
        Log { limit: Limit::new(LINES_PER_SECOND), left_out: 0 }
    }

    /// Logs a line of the process.
    pub(crate) fn line(&mut self, port: &str, line: &Line) {
        if !self.limit.take() {
            self.left_out += 1;
            return;
        }
        if self.left_out != 0 {
            tracing::warn!(port, "{} lines of its process were left out of the log", self.left_out);
            self.left_out = 0;
        }
        let text: String = line.text.chars().take(TEXT_MAX).collect();
        // The name that a line has in its text is not repeated.
        let port = line.port.as_ref().map(|_| port);
        log_by_target!(
            line,
            port,
            text,
            "pktio_process::child",
            "pktio_vhost::service",
            "pktio_memif::service",
            "shared_memory::notify"
        );
    }
}
