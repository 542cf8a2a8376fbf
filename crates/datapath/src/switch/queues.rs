//! The queues of ports and links, and the tenants that they belong to, for the control plane.
//!
//! A port has queues if somebody configured some, or if its device's program asks for queues (`ir::Program::queues`): then it has
//! [`SwitchConfig::queues`](super::SwitchConfig::queues), one queue of the default length unless said otherwise. They come
//! before the program that asks for them, and go after it. A link is a port of the device that it begins at.
//!
//! A tenant (`traffic::Tenants`) is there before the first queue that belongs to it, and as long as one does.
//!
//! Tests: `tests/queues.rs`, `tests/tenants.rs`, `tests/devices.rs`.

use super::devices::PortOf;
use super::{Inner, PICK_UP, Switch, SwitchError};
use crate::drops::RuntimeDrop;
use crate::pipeline::Pipeline;
use crate::queues::EgressQueues;
use crate::worker::Command;
use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError};
use traffic::{Config, QueueStatistics, TENANTS_MAX, TenantConfig, TenantStatistics, Tenants};

/// What has queues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum QueuesOf {
    /// The port of this number.
    Port(u32),
    /// The link that begins there.
    Link(PortOf),
}

impl fmt::Display for QueuesOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueuesOf::Port(number) => write!(f, "port {number}"),
            QueuesOf::Link(from) => write!(f, "the link at {from}"),
        }
    }
}

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

/// A tenant of the buffer that queues share.
#[derive(Clone, Debug)]
pub struct TenantInfo {
    /// Its name.
    pub name: String,
    /// What its queues may hold together.
    pub config: TenantConfig,
    /// Whose queues belong to it, or some of them.
    pub members: Vec<QueuesOf>,
    /// What they hold, and what was refused for its sake.
    pub statistics: TenantStatistics,
}

/// A port's queues as control has them.
#[derive(Default)]
pub(super) struct PortQueues {
    configured: Option<Config>,
    /// Those that the workers have.
    running: Option<Arc<EgressQueues>>,
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

    fn belongs_to(&self, tenant: &str) -> bool {
        self.configured.as_ref().is_some_and(|config| config.tenants().any(|name| name == tenant))
    }
}

impl Inner {
    /// Where something is in its device, and its queues.
    fn queues_of(&mut self, of: QueuesOf) -> Result<(PortOf, &mut PortQueues), SwitchError> {
        match of {
            QueuesOf::Port(number) => {
                let port = self.ports.iter_mut().find(|port| port.number == number);
                let port = port.ok_or(SwitchError::NoSuchPort(number))?;
                Ok((PortOf { device: port.bound_to, port: number }, &mut port.queues))
            }
            QueuesOf::Link(from) => {
                let names = self.link_names();
                let link = self.links.iter_mut().find(|link| link.from == from);
                let link = link.ok_or(SwitchError::NoSuchLink { from, links: names })?;
                Ok((from, &mut link.queues))
            }
        }
    }

    fn all_queues(&self) -> impl Iterator<Item = (QueuesOf, &PortQueues)> {
        let ports = self.ports.iter().map(|port| (QueuesOf::Port(port.number), &port.queues));
        ports.chain(self.links.iter().map(|link| (QueuesOf::Link(link.from), &link.queues)))
    }
}

impl Switch {
    fn tenants(&self) -> MutexGuard<'_, Tenants> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a port queues, or takes them away; packets that wait go on waiting if there is room for them, and in order. Returns when
    /// all workers go by it.
    pub fn set_queues(&self, number: u32, config: Option<Config>) -> Result<(), SwitchError> {
        self.set_queues_of(QueuesOf::Port(number), config)
    }

    /// The same, of a port or a link.
    pub fn set_queues_of(&self, of: QueuesOf, config: Option<Config>) -> Result<(), SwitchError> {
        let mut inner = self.lock();
        let (at, _) = inner.queues_of(of)?;
        let speed = inner
            .ports
            .iter()
            .filter(|port| of == QueuesOf::Port(port.number))
            .find_map(|port| port.device.link().speed_mbps);
        if let Some(config) = &config {
            let bad = |problems| SwitchError::BadQueues { of, problems };
            config.check(speed.map(|mbps| u64::from(mbps) * 1_000_000)).map_err(bad)?;
            let tenants = self.tenants();
            tenants.of_queues(config, &tenants.buffer().newcomer()).map_err(bad)?;
        }
        inner.queues_of(of)?.1.configured = config;
        let asks = inner.pipeline(at.device).is_some_and(|pipeline| pipeline.program().queues);
        self.fit_queues(&mut inner, of, asks)
    }

    /// Queues of ports for which none are configured, where a program asks for queues.
    pub fn default_queues(&self) -> Config {
        self.queues_default.clone()
    }

    /// A port's queues; `None` if it has none.
    pub fn queues(&self, number: u32) -> Result<Option<QueueInfo>, SwitchError> {
        self.queues_of(QueuesOf::Port(number))
    }

    /// The same, of a port or a link.
    pub fn queues_of(&self, of: QueuesOf) -> Result<Option<QueueInfo>, SwitchError> {
        let mut inner = self.lock();
        let (_, queues) = inner.queues_of(of)?;
        Ok(queues.running.as_ref().map(|running| QueueInfo {
            config: running.config(),
            is_configured: queues.configured.is_some(),
            statistics: running.statistics(),
        }))
    }

    /// Adds a tenant, changes what its queues may hold together, or removes one that no queue belongs to any more.
    pub fn set_tenant(&self, name: &str, config: Option<TenantConfig>) -> Result<(), SwitchError> {
        let inner = self.lock();
        let mut tenants = self.tenants();
        let members: Vec<(QueuesOf, &PortQueues)> =
            inner.all_queues().filter(|(_, queues)| queues.belongs_to(name)).collect();
        let Some(config) = config else {
            if !members.is_empty() {
                let members = members.into_iter().map(|(of, _)| of).collect();
                return Err(SwitchError::TenantInUse { name: name.to_string(), members });
            }
            let there = || tenants.iter().map(|(name, ..)| name.to_string()).collect();
            if tenants.get(name).is_none() {
                return Err(SwitchError::NoSuchTenant { name: name.to_string(), there: there() });
            }
            tenants.remove(name);
            return Ok(());
        };
        // Its queues stand still meanwhile.
        let running = members.into_iter().filter_map(|(_, queues)| queues.running.as_ref());
        let held: Vec<_> = running.map(|queues| queues.hold()).collect();
        let done = tenants.set(name, &config);
        drop(held);
        done.map_err(|problems| SwitchError::BadTenant { name: name.to_string(), problems })
    }

    /// All tenants, by name.
    pub fn tenant_infos(&self) -> Vec<TenantInfo> {
        let inner = self.lock();
        let tenants = self.tenants();
        let info = |(name, config, tenant): (&str, &TenantConfig, &traffic::Tenant)| TenantInfo {
            name: name.to_string(),
            config: config.clone(),
            members: inner.all_queues().filter(|(_, queues)| queues.belongs_to(name)).map(|(of, _)| of).collect(),
            statistics: tenant.statistics(),
        };
        tenants.iter().map(info).collect()
    }

    /// Packets that may wait in all queues together.
    pub fn shared_packets(&self) -> u64 {
        let tenants = self.tenants();
        tenants.buffer().capacity() / tenants.buffer().cell()
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
        let all: Vec<QueuesOf> = inner.all_queues().filter(|(_, queues)| concerned(queues)).map(|(of, _)| of).collect();
        for of in all {
            if inner.queues_of(of)?.0.device == device {
                self.fit_queues(inner, of, asks)?;
            }
        }
        Ok(())
    }

    /// Makes the workers use what is configured for a port or link, whose program asks for queues or not.
    fn fit_queues(&self, inner: &mut Inner, of: QueuesOf, asks: bool) -> Result<(), SwitchError> {
        let count = inner.all_queues().filter(|(_, queues)| queues.are_running()).count();
        let (at, queues) = inner.queues_of(of)?;
        let server = queues.server;
        let bad = |problems| SwitchError::BadQueues { of, problems };
        let wanted = queues.configured.clone().or_else(|| asks.then(|| self.queues_default.clone()));
        match (wanted, &mut queues.running) {
            (None, None) => Ok(()),
            (Some(wanted), Some(running)) => {
                if running.config() == wanted {
                    return Ok(());
                }
                let tenants = self.tenants().of_queues(&wanted, running.own()).map_err(bad)?;
                let now_ns = self.start.elapsed().as_nanos() as u64;
                let refused = running.reconfigure(&wanted, &tenants, now_ns).map_err(bad)?;
                if let Some(device) = inner.devices.get_mut(&at.device).filter(|_| !refused.is_empty()) {
                    let count = device.past_drops.entry(RuntimeDrop::QueueFull.name().to_string()).or_default();
                    *count += refused.len() as u64;
                }
                Ok(())
            }
            (Some(wanted), running @ None) => {
                if count >= TENANTS_MAX {
                    return Err(SwitchError::TooManyQueues);
                }
                let (own, tenants) = {
                    let tenants = self.tenants();
                    let own = tenants.buffer().newcomer();
                    let of_queues = tenants.of_queues(&wanted, &own).map_err(bad)?;
                    (own, of_queues)
                };
                let new = EgressQueues::new(&wanted, own, &tenants, &self.mailboxes[server]).map_err(bad)?;
                let new = Arc::new(new);
                *running = Some(Arc::clone(&new));
                self.tell_each(|worker| {
                    Command::SetQueues(at.device, at.port, Some((Arc::clone(&new), worker == server)))
                })
            }
            (None, running) => {
                *running = None;
                self.take_queues(at, server)
            }
        }
    }

    /// Has the workers forget a port's queues, the server last: nobody puts packets in after it has taken all out.
    pub(super) fn take_queues(&self, at: PortOf, server: usize) -> Result<(), SwitchError> {
        let post = |worker: usize| self.mailboxes[worker].post(Command::SetQueues(at.device, at.port, None));
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
