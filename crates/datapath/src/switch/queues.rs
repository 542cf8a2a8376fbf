//! The queues of ports, for the control plane.
//!
//! A port has queues if somebody configured some, or if its device's program asks for queues (`ir::Program::queues`): then it has
//! [`SwitchConfig::queues`](super::SwitchConfig::queues), one queue of the default length unless said otherwise. They come
//! before the program that asks for them, and go after it.
//!
//! Tests: `tests/queues.rs`.

use super::{Inner, PICK_UP, Switch, SwitchError};
use crate::drops::RuntimeDrop;
use crate::pipeline::Pipeline;
use crate::queues::EgressQueues;
use crate::worker::Command;
use std::sync::Arc;
use traffic::{Config, QueueStatistics, TENANTS_MAX};

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
    /// Those that the workers have, and which tenant of the shared buffer they are.
    running: Option<(Arc<EgressQueues>, usize)>,
    /// The worker that dequeues.
    pub(super) server: usize,
}

impl PortQueues {
    /// Whether the workers have some.
    pub(super) fn are_running(&self) -> bool {
        self.running.is_some()
    }

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
        Ok(port.queues.running.as_ref().map(|(queues, _)| QueueInfo {
            config: queues.config(),
            is_configured: port.queues.configured.is_some(),
            statistics: queues.statistics(),
        }))
    }

    /// Gives a device's ports the queues that a program asks for.
    pub(super) fn give_queues(&self, inner: &mut Inner, device: u64, pipeline: &Pipeline) -> Result<(), SwitchError> {
        self.fit_all(inner, device, pipeline.program().queues, |port| port.running.is_none())
    }

    /// Removes default queues for which no program asks any more, and adds missing ones.
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

    /// Makes the workers use what is configured for a port, whose program asks for queues or not.
    fn fit_queues(&self, inner: &mut Inner, at: usize, asks: bool) -> Result<(), SwitchError> {
        let taken = |tenant| inner.ports.iter().any(|p| p.queues.running.as_ref().is_some_and(|(_, of)| *of == tenant));
        let free = (0..TENANTS_MAX).find(|tenant| !taken(*tenant));
        let port = &mut inner.ports[at];
        let (bound_to, number, server) = (port.bound_to, port.number, port.queues.server);
        let bad = |problems| SwitchError::BadQueues { port: number, problems };
        let wanted = port.queues.configured.clone().or_else(|| asks.then(|| self.queues_default.clone()));
        match (wanted, &mut port.queues.running) {
            (None, None) => Ok(()),
            (Some(wanted), Some((queues, _))) => {
                if queues.config() == wanted {
                    return Ok(());
                }
                let refused = queues.reconfigure(&wanted, self.start.elapsed().as_nanos() as u64).map_err(bad)?;
                if let Some(device) = inner.devices.get_mut(&bound_to).filter(|_| !refused.is_empty()) {
                    let count = device.past_drops.entry(RuntimeDrop::QueueFull.name().to_string()).or_default();
                    *count += refused.len() as u64;
                }
                Ok(())
            }
            (Some(wanted), running @ None) => {
                let number_of = free.ok_or(SwitchError::TooManyQueues)?;
                let tenant = self.buffer.tenant(number_of).ok_or(SwitchError::TooManyQueues)?;
                let queues = Arc::new(EgressQueues::new(&wanted, tenant, &self.mailboxes[server]).map_err(bad)?);
                *running = Some((Arc::clone(&queues), number_of));
                self.tell_each(|worker| {
                    Command::SetQueues(bound_to, number, Some((Arc::clone(&queues), worker == server)))
                })
            }
            (None, running) => {
                *running = None;
                self.take_queues(bound_to, number, server)
            }
        }
    }

    /// Has the workers forget a port's queues, the server last: nobody puts packets in after it has taken all out.
    pub(super) fn take_queues(&self, bound_to: u64, number: u32, server: usize) -> Result<(), SwitchError> {
        let post = |worker: usize| self.mailboxes[worker].post(Command::SetQueues(bound_to, number, None));
        let others: Vec<usize> = (0..self.workers()).filter(|worker| *worker != server).collect();
        for workers in [others, vec![server]] {
            let posted: Vec<(usize, u64)> = workers.into_iter().map(|worker| (worker, post(worker))).collect();
            for (worker, command) in posted {
                if !self.mailboxes[worker].wait(command, PICK_UP) {
                    return Err(SwitchError::Stuck(worker));
                }
            }
        }
        Ok(())
    }
}
