//! The queues of ports, for the control plane.
//!
//! A port has queues if somebody configured some, or if its device's program asks for queues (`ir::Program::queues`): then it has
//! [`SwitchConfig::queues`](super::SwitchConfig::queues), one queue of the default length unless said otherwise. They come
//! before the program that asks for them, and go after it.
//!
//! Tests: `tests/queues.rs`.

use super::{Inner, Switch, SwitchError};
use crate::pipeline::Pipeline;
use crate::queues::EgressQueues;
use crate::worker::Command;
use std::sync::Arc;
use traffic::{Config, QueueStatistics};

/// What a port has of queues.
#[derive(Clone, Debug)]
pub struct QueueInfo {
    /// By what they go.
    pub config: Config,
    /// Whether that was configured for this port; else it is the switch's default.
    pub is_configured: bool,
    /// By queue.
    pub statistics: Vec<QueueStatistics>,
}

/// A port's queues as control has them.
#[derive(Default)]
pub(super) struct PortQueues {
    configured: Option<Config>,
    /// Those that the workers have, by what config.
    running: Option<(Arc<EgressQueues>, Config)>,
    /// The worker that takes packets out.
    server: usize,
}

impl PortQueues {
    /// None yet; if there are some, this worker takes packets out.
    pub(super) fn served_by(server: usize) -> PortQueues {
        PortQueues { server, ..PortQueues::default() }
    }
}

impl Switch {
    /// Gives a port queues, or takes them away; packets that wait go on waiting if there is room for them, and in order. Returns when
    /// all workers go by it.
    pub fn set_queues(&self, number: u32, config: Option<Config>) -> Result<(), SwitchError> {
        let mut inner = self.lock();
        let at = inner.ports.iter().position(|p| p.number == number).ok_or(SwitchError::NoSuchPort(number))?;
        let speed = inner.ports[at].device.link().speed_mbps.map(|mbps| u64::from(mbps) * 1_000_000);
        if let Some(Err(problems)) = config.as_ref().map(|config| config.check(speed)) {
            return Err(SwitchError::BadQueues { port: number, problems });
        }
        inner.ports[at].queues.configured = config;
        let asks = inner.pipeline(inner.ports[at].bound_to).is_some_and(|pipeline| pipeline.program().queues);
        self.fit_queues(&mut inner, at, asks)
    }

    /// Queues of ports for which none are configured, where a program asks for queues.
    pub fn default_queues(&self) -> Config {
        self.queues_default.clone()
    }

    /// A port's queues; `None` if it has none.
    pub fn queues(&self, number: u32) -> Result<Option<QueueInfo>, SwitchError> {
        let inner = self.lock();
        let port = inner.ports.iter().find(|p| p.number == number).ok_or(SwitchError::NoSuchPort(number))?;
        Ok(port.queues.running.as_ref().map(|(queues, config)| QueueInfo {
            config: config.clone(),
            is_configured: port.queues.configured.is_some(),
            statistics: queues.statistics(),
        }))
    }

    /// Gives a device's ports the queues that a program asks for.
    pub(super) fn give_queues(&self, inner: &mut Inner, device: u64, pipeline: &Pipeline) -> Result<(), SwitchError> {
        self.fit_all(inner, device, pipeline.program().queues, |port| port.running.is_none())
    }

    /// Takes queues away that nobody asks for any more.
    pub(super) fn tidy_queues(&self, inner: &mut Inner, device: u64) -> Result<(), SwitchError> {
        let asks = inner.pipeline(device).is_some_and(|pipeline| pipeline.program().queues);
        self.fit_all(inner, device, asks, |_| true)
    }

    fn fit_all(
        &self,
        inner: &mut Inner,
        device: u64,
        asks: bool,
        concerned: impl Fn(&PortQueues) -> bool,
    ) -> Result<(), SwitchError> {
        for at in 0..inner.ports.len() {
            if inner.ports[at].bound_to == device && concerned(&inner.ports[at].queues) {
                self.fit_queues(inner, at, asks)?;
            }
        }
        Ok(())
    }

    /// Has the workers go by what is configured for a port, whose program asks for queues or not.
    fn fit_queues(&self, inner: &mut Inner, at: usize, asks: bool) -> Result<(), SwitchError> {
        let default = self.queues_default.clone();
        let port = &mut inner.ports[at];
        let wanted = port.queues.configured.clone().or_else(|| asks.then_some(default));
        match (wanted, &mut port.queues.running) {
            (None, None) => Ok(()),
            (Some(wanted), Some((_, config))) if *config == wanted => Ok(()),
            (Some(wanted), Some((queues, config))) => {
                let now_ns = self.start.elapsed().as_nanos() as u64;
                let refused = queues.reconfigure(&wanted, now_ns);
                *config = wanted;
                refused.map(drop).map_err(|problems| SwitchError::BadQueues { port: port.number, problems })
            }
            (wanted, running) => {
                let server = port.queues.server;
                let (bound_to, number) = (port.bound_to, port.number);
                let made = wanted.map(|wanted| {
                    let queues = EgressQueues::new(&wanted, &self.mailboxes[server], &self.room)?;
                    Ok((Arc::new(queues), wanted))
                });
                *running = made.transpose().map_err(|problems| SwitchError::BadQueues { port: number, problems })?;
                let queues = running.as_ref().map(|(queues, _)| Arc::clone(queues));
                self.tell_each(|worker| {
                    let queues = queues.as_ref().map(|queues| (Arc::clone(queues), worker == server));
                    Command::SetQueues(bound_to, number, queues)
                })
            }
        }
    }
}
