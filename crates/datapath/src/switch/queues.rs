//! Control-plane methods for the egress queues of ports and links, and for tenants of the shared buffer.
//!
//! A port has queues if they are configured, or if its device's program uses queues (`ir::Program::queues`): then it
//! gets [`SwitchConfig::queues`](super::SwitchConfig::queues), by default one queue of the default length. Default
//! queues are created before such a program starts and removed after it has ended. A link counts as a port of the
//! device at which it starts.
//!
//! A tenant (`traffic::Tenants`) is created before the first queue that belongs to it, and cannot be removed while
//! one does.
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

/// A port or link that has queues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum QueuesOf {
    /// The port of this number.
    Port(u32),
    /// The link that starts at this port.
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

/// The queues of a port or link.
#[derive(Clone, Debug)]
pub struct QueueInfo {
    /// The config in use.
    pub config: Config,
    /// Whether it was configured for this port; otherwise it is the switch's default.
    pub is_configured: bool,
    /// Statistics, by queue number.
    pub statistics: Vec<QueueStatistics>,
}

/// A tenant of the buffer that queues share.
#[derive(Clone, Debug)]
pub struct TenantInfo {
    /// Its name.
    pub name: String,
    /// The limits of its queues together.
    pub config: TenantConfig,
    /// The ports and links of which at least one queue belongs to it.
    pub members: Vec<QueuesOf>,
    /// What its queues hold, and packets refused because of its limits.
    pub statistics: TenantStatistics,
}

/// The control plane's side of a port's queues.
#[derive(Default)]
pub(super) struct PortQueues {
    configured: Option<Config>,
    /// The queues that the workers use.
    running: Option<Arc<EgressQueues>>,
    /// Index of the worker that dequeues.
    pub(super) server: usize,
}

impl PortQueues {
    /// Whether the workers have queues for this port.
    pub(super) fn are_running(&self) -> bool {
        self.running.is_some()
    }

    /// No queues yet; worker `server` will dequeue.
    pub(super) fn served_by(server: usize) -> PortQueues {
        PortQueues { server, ..PortQueues::default() }
    }

    fn belongs_to(&self, tenant: &str) -> bool {
        self.configured.as_ref().is_some_and(|config| config.tenants().any(|name| name == tenant))
    }
}

impl Inner {
    /// The port of a device that `of` names, and its queues.
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

    /// Sets or removes a port's queues. Waiting packets stay queued, in order, as far as there is room. Returns when
    /// all workers use the new config.
    ///
    /// # Errors
    /// As [`Switch::set_queues_of`].
    pub fn set_queues(&self, number: u32, config: Option<Config>) -> Result<(), SwitchError> {
        self.set_queues_of(QueuesOf::Port(number), config)
    }

    /// As [`Switch::set_queues`], for a port or a link.
    ///
    /// # Errors
    /// [`SwitchError::NoSuchPort`] or [`SwitchError::NoSuchLink`]; [`SwitchError::BadQueues`] if the config
    /// contradicts itself, the port's speed or the tenants; [`SwitchError::TooManyQueues`]; [`SwitchError::Stuck`].
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

    /// The queues of ports that have none configured, when their program uses queues.
    pub fn default_queues(&self) -> Config {
        self.queues_default.clone()
    }

    /// A port's queues; `None` if it has none.
    ///
    /// # Errors
    /// [`SwitchError::NoSuchPort`].
    pub fn queues(&self, number: u32) -> Result<Option<QueueInfo>, SwitchError> {
        self.queues_of(QueuesOf::Port(number))
    }

    /// As [`Switch::queues`], for a port or a link.
    ///
    /// # Errors
    /// [`SwitchError::NoSuchPort`] or [`SwitchError::NoSuchLink`].
    pub fn queues_of(&self, of: QueuesOf) -> Result<Option<QueueInfo>, SwitchError> {
        let mut inner = self.lock();
        let (_, queues) = inner.queues_of(of)?;
        Ok(queues.running.as_ref().map(|running| QueueInfo {
            config: running.config(),
            is_configured: queues.configured.is_some(),
            statistics: running.statistics(),
        }))
    }

    /// Adds a tenant or changes its limits; without a config, removes a tenant to which no queue belongs.
    ///
    /// # Errors
    /// [`SwitchError::BadTenant`] for a config that contradicts itself or other tenants; on removal
    /// [`SwitchError::NoSuchTenant`] or [`SwitchError::TenantInUse`].
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
        // Its queues are locked meanwhile.
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

    /// Capacity of the shared buffer, in packets.
    pub fn shared_packets(&self) -> u64 {
        let tenants = self.tenants();
        tenants.buffer().capacity() / tenants.buffer().cell()
    }

    /// Creates the queues that a program uses, where a device's ports lack them.
    pub(super) fn give_queues(&self, inner: &mut Inner, device: u64, pipeline: &Pipeline) -> Result<(), SwitchError> {
        self.fit_all(inner, device, pipeline.program().queues, |port| port.running.is_none())
    }

    /// Removes default queues that a device's program does not use any more, and adds missing ones.
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

    /// Makes the workers use the queues configured for a port or link, or the default ones if its program uses queues
    /// (`asks`).
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

    /// Makes the workers release a port's queues, the server last: once it has dequeued everything, no other worker
    /// can enqueue.
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
