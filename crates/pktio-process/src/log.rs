//! Lines of a port's process in the switch's log, with the level, the target and the fields that they have in a switch
//! without `isolated`; and lines of its stderr, where a panic's message is.
//!
//! A target of a line is known when the program is compiled, so those that ports use are listed here. Whoever takes a
//! process over cannot fill the log, or write lines of its own making into it: after a burst there is a line a second,
//! those beyond are left out and counted; long lines are cut, and control characters are escaped ([`clean`]).
//!
//! Threads: a port's supervisor. Tests: below, `src/tests.rs`, `tests/isolated.rs`.

use crate::protocol::Line;
use crate::text::clean;
use std::fmt::Write;
use std::time::{Duration, Instant};
use tracing::Level;

/// Lines of a process that may follow each other at once; a port itself warns 16 times a second at most.
const BURST_LINES: u64 = 64;
/// Time in which a process may log one more line.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

macro_rules! log_by_target {
    ($log:expr, $line:expr, $port:expr, $other:literal, $($target:literal),*) => {
        match $line.target.as_str() {
            $($target => log_by_level!($log, $line, $port, $target),)*
            _ => log_by_level!($log, $line, $port, $other),
        }
    };
}

macro_rules! log_by_level {
    ($log:expr, $line:expr, $port:expr, $target:literal) => {
        match $line.level {
            0 => log_if_wanted!($log, $line, $port, $target, ERROR),
            1 => log_if_wanted!($log, $line, $port, $target, WARN),
            2 => log_if_wanted!($log, $line, $port, $target, INFO),
            3 => log_if_wanted!($log, $line, $port, $target, DEBUG),
            _ => log_if_wanted!($log, $line, $port, $target, TRACE),
        }
    };
}

/// Lines that nobody wants do not count.
macro_rules! log_if_wanted {
    ($log:expr, $line:expr, $port:expr, $target:literal, $level:ident) => {
        if tracing::enabled!(target: $target, Level::$level)
            && let Some(text) = $log.admit(&$line.text)
        {
            tracing::event!(target: $target, Level::$level, port = $port, queue = $line.queue, "{text}");
        }
    };
}

/// The log of one port's processes.
pub(crate) struct Log {
    /// Lines that may be logged now.
    left: u64,
    /// When `left` was last increased.
    since: Instant,
    left_out: u64,
}

impl Log {
    pub(crate) fn new() -> Log {
        Log { left: BURST_LINES, since: Instant::now(), left_out: 0 }
    }

    /// Logs a line of the process.
    pub(crate) fn line(&mut self, port: &str, line: &Line) {
        // The name that a line has in its text is not repeated.
        let port = line.port.as_ref().map(|_| port);
        log_by_target!(
            self,
            line,
            port,
            "pktio_process::child",
            "pktio_vhost::service",
            "pktio_memif::service",
            "shared_memory::notify"
        );
    }

    /// Logs a line of the process's stderr.
    pub(crate) fn last_words(&mut self, port: &str, text: &str) {
        if let Some(text) = self.admit(text) {
            tracing::error!(port, "its process: {text}");
        }
    }

    /// The text as it is logged; `None` if it is left out.
    fn admit(&mut self, text: &str) -> Option<String> {
        let gained = self.since.elapsed().as_secs() / LINE_INTERVAL.as_secs();
        self.left = self.left.saturating_add(gained).min(BURST_LINES);
        self.since += Duration::from_secs(gained * LINE_INTERVAL.as_secs());
        if self.left == 0 {
            self.left_out += 1;
            return None;
        }
        self.left -= 1;
        let mut text = clean(text);
        if self.left_out != 0 {
            let _ = write!(text, " ({} lines of its process before this one were left out)", self.left_out);
            self.left_out = 0;
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_a_process_logs_a_line_a_second_and_the_rest_is_counted() {
        let mut log = Log::new();
        assert!((0..BURST_LINES).all(|_| log.admit("x").as_deref() == Some("x")));
        assert!((0..7).all(|_| log.admit("x").is_none()));
        log.since -= LINE_INTERVAL;
        assert_eq!(log.admit("x").as_deref(), Some("x (7 lines of its process before this one were left out)"));
        assert!(log.admit("x").is_none());
        log.since -= 1000 * LINE_INTERVAL;
        let admitted = (0..1000).filter(|_| log.admit("x").is_some()).count();
        assert_eq!(admitted as u64, BURST_LINES, "silence saves up one burst and no more");
    }
}
