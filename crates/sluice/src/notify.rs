//! Notifications to systemd (`sd_notify(3)`, `Type=notify`): ready, alive, stopping.
//!
//! The watchdog is fed only while every vital thread makes progress (`heartbeat`): the workers and the service threads.
//! A stuck thread is named in the log, and systemd restarts the service; without systemd there is only the log line.
//! Threads that serve the peers of a single port or recompile code are not vital and only named: otherwise a peer that
//! can block its own thread could restart the switch.
//!
//! Tests: below; `tests/py/test_systemd.py`; `datapath/tests/heartbeat.rs`.

use heartbeat::{Monitor, Stuck};
use sd_notify::NotifyState;
use std::time::{Duration, Instant};

/// The service from systemd's point of view.
pub struct Service {
    /// The interval of feeding the watchdog, and the last time it was fed; `None` without a watchdog.
    alive: Option<(Duration, Instant)>,
    monitor: Monitor,
    /// Stuck threads that were logged.
    named: Vec<String>,
}

impl Service {
    /// Reports that the service is ready.
    pub fn ready(status: &str) -> Service {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
        // Twice within systemd's timeout.
        let alive = sd_notify::watchdog_enabled().map(|time| (time / 2, Instant::now()));
        Service { alive, monitor: Monitor::default(), named: Vec::new() }
    }

    /// Feeds the watchdog if it is due and all vital threads make progress.
    pub fn alive(&mut self) {
        let stuck = self.monitor.stuck();
        if !self.may_feed(&stuck) {
            return;
        }
        if let Some((interval, last)) = &mut self.alive
            && last.elapsed() >= *interval
        {
            *last = Instant::now();
            tell(&[NotifyState::Watchdog]);
        }
    }

    /// Logs threads that got stuck and those that recovered; returns whether no stuck thread is vital.
    fn may_feed(&mut self, stuck: &[Stuck]) -> bool {
        for Stuck { thread, since, is_vital } in stuck.iter().filter(|stuck| !self.named.contains(&stuck.thread)) {
            let so = if *is_vital { "the watchdog is not fed" } else { "the rest of the switch is not affected" };
            tracing::error!("{thread} makes no progress for {since:?}: {so}");
        }
        for thread in self.named.iter().filter(|named| !stuck.iter().any(|stuck| stuck.thread == **named)) {
            tracing::info!("{thread} has recovered");
        }
        self.named = stuck.iter().map(|stuck| stuck.thread.clone()).collect();
        !stuck.iter().any(|stuck| stuck.is_vital)
    }

    /// Reports that another process is the service from now on.
    pub fn hand_over(&self, pid: u32) {
        tell(&[NotifyState::MainPid(pid)]);
    }

    /// Reports that the service is stopping.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }
}

fn tell(states: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("systemd cannot be told how the service is: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_not_fed_while_a_thread_is_stuck() {
        let mut service = Service { alive: None, monitor: Monitor::default(), named: Vec::new() };
        let stuck = Stuck { thread: "worker-1".into(), since: Duration::from_secs(11), is_vital: true };
        assert!(service.may_feed(&[]));
        assert!(!service.may_feed(std::slice::from_ref(&stuck)));
        assert_eq!(service.named, ["worker-1"]);
        assert!(service.may_feed(&[]), "it goes on");
        assert!(service.named.is_empty());
    }

    #[test]
    fn a_port_s_thread_that_is_stuck_is_named_and_does_not_restart_the_switch() {
        let mut service = Service { alive: None, monitor: Monitor::default(), named: Vec::new() };
        let stuck = |thread: &str, is_vital| Stuck { thread: thread.into(), since: Duration::from_secs(11), is_vital };
        assert!(service.may_feed(&[stuck("vhost a", false)]));
        assert_eq!(service.named, ["vhost a"]);
        assert!(!service.may_feed(&[stuck("vhost a", false), stuck("worker-1", true)]));
        assert!(service.may_feed(&[]));
    }
}
