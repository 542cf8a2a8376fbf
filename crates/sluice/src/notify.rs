//! What systemd is told (`sd_notify(3)`, `Type=notify`): ready, alive, stopping. Without systemd nothing happens.
//!
//! Tests: `tests/py/test_systemd.py`.

use sd_notify::NotifyState;
use std::time::{Duration, Instant};

/// The service as systemd sees it.
pub struct Service {
    /// How often to say that it is alive, and when that was done last.
    alive: Option<(Duration, Instant)>,
}

impl Service {
    /// Says that it is ready.
    pub fn ready(status: &str) -> Service {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
        // Twice within the time that systemd allows.
        Service { alive: sd_notify::watchdog_enabled().map(|time| (time / 2, Instant::now())) }
    }

    /// Says that it is alive, when it is time to.
    pub fn alive(&mut self) {
        if let Some((interval, last)) = &mut self.alive
            && last.elapsed() >= *interval
        {
            *last = Instant::now();
            tell(&[NotifyState::Watchdog]);
        }
    }

    /// Says that it is about to end.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }
}

fn tell(states: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("systemd cannot be told how the service is: {error}");
    }
}
