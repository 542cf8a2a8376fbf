//! Queues of ports and links, and tenants: changes by the operator, and the stored form.

use super::{Devices, lock};
use crate::queues;
use anyhow::Result;
use datapath::{PortOf, QueuesOf, SwitchError};
use messages::sluice::v1::kept_wiring as kept;
use traffic::{Config, Problem, TenantConfig};

/// Formats an error of the switch; settings that contradict one another or the port are on a line each.
pub(super) fn told(error: SwitchError) -> String {
    let lines = |of: String, problems: Vec<Problem>| {
        problems.iter().map(|problem| format!("{of}: {problem}")).collect::<Vec<_>>().join("\n")
    };
    match error {
        SwitchError::BadQueues { of, problems } => lines(format!("queues of {of}"), problems),
        SwitchError::BadTenant { name, problems } => lines(format!("tenant {name}"), problems),
        error => error.to_string(),
    }
}

/// Parses a stored queue config; an empty text is none.
///
/// # Errors
/// If the text is no valid queue config.
pub(super) fn kept_config(of: QueuesOf, text: &str) -> Result<Option<Config>> {
    if text.is_empty() {
        return Ok(None);
    }
    let config = queues::parse(text).and_then(|config| match config.check(None) {
        Ok(()) => Ok(config),
        Err(problems) => Err(queues::problems(&problems)),
    });
    let wrong = |why: String| anyhow::anyhow!("--state: the stored queues of {of}: {why} (--forget starts empty)");
    config.map(Some).map_err(wrong)
}

/// Parses a stored tenant.
///
/// # Errors
/// If the text is no valid tenant.
pub(super) fn kept_tenant(kept: kept::Tenant) -> Result<(String, TenantConfig)> {
    let kept::Tenant { name, config } = kept;
    let config = queues::parse_tenant(&config).and_then(|config| match config.check() {
        Ok(()) => Ok(config),
        Err(problems) => Err(queues::problems(&problems)),
    });
    let config =
        config.map_err(|why| anyhow::anyhow!("--state: the stored tenant {name}: {why} (--forget starts empty)"))?;
    Ok((name, config))
}

impl Devices {
    /// Sets or removes the queue config of a port or link. Returns a note for the operator, if there is one.
    ///
    /// # Errors
    /// If the config is wrong, there is no such port or link, or the change cannot be stored.
    pub fn set_queues(&self, of: QueuesOf, config: Option<Config>) -> Result<Option<String>, String> {
        let _turn = lock(&self.turn);
        self.configure_queues(of, config)
    }

    /// Adds or changes a tenant, or with `None` removes one.
    ///
    /// # Errors
    /// If the config is wrong, a queue still belongs to the tenant, or the change cannot be stored.
    pub fn set_tenant(&self, name: &str, config: Option<TenantConfig>) -> Result<(), String> {
        let _turn = lock(&self.turn);
        let before = self.known_ports();
        if config.is_none() {
            // The switch does not know ports that could not be opened, so check them here.
            let belongs = before.ports.iter().find(|(_, port)| {
                port.queues.as_ref().is_some_and(|config| config.tenants().any(|tenant| tenant == name))
            });
            if let Some((port, _)) = belongs {
                return Err(format!("queues of port {port} belong to tenant `{name}`"));
            }
        }
        self.switch.set_tenant(name, config.clone()).map_err(told)?;
        {
            let tenants = &mut lock(&self.known).tenants;
            match config {
                Some(config) => _ = tenants.insert(name.to_string(), config),
                None => _ = tenants.remove(name),
            }
        }
        self.keep(&self.now()).map_err(|why| {
            let back = self.switch.set_tenant(name, before.tenants.get(name).cloned());
            self.restore_known(before);
            back.err().map_or(why.clone(), |error| format!("{why}; and {}", told(error)))
        })
    }

    /// Changes the queues of several ports: of all, or of none if one is refused.
    ///
    /// # Errors
    /// If a change is refused or cannot be stored.
    pub fn change_queues(
        &self,
        ports: &[u32],
        change: impl Fn(&mut Config) -> Result<(), String>,
    ) -> Result<(), String> {
        let _turn = lock(&self.turn);
        let mut changed = Vec::new();
        for number in ports {
            let info = self.switch.queues(*number).map_err(told)?;
            let before = info.as_ref().filter(|info| info.is_configured).map(|info| info.config.clone());
            let mut config = info.map_or_else(|| self.switch.default_queues(), |info| info.config);
            let done = change(&mut config)
                .and_then(|()| self.configure_queues(QueuesOf::Port(*number), Some(config)).map(drop));
            if let Err(why) = done {
                let back = changed
                    .into_iter()
                    .rev()
                    .filter_map(|(port, old)| self.configure_queues(QueuesOf::Port(port), old).err());
                return Err([format!("port {number}: {why}")]
                    .into_iter()
                    .chain(back)
                    .collect::<Vec<_>>()
                    .join("; and "));
            }
            changed.push((*number, before));
        }
        Ok(())
    }

    fn configure_queues(&self, of: QueuesOf, config: Option<Config>) -> Result<Option<String>, String> {
        let device = match of {
            QueuesOf::Port(number) => self.bound_to(number).ok_or_else(|| format!("there is no port {number}"))?,
            QueuesOf::Link(PortOf { device, .. }) => device,
        };
        let in_force = self.configured_queues(of)?;
        let before = self.known_ports();
        let back = |why: String| match self.switch.set_queues_of(of, in_force.clone()) {
            Ok(()) => why,
            Err(error) => format!("{why}; and {error}"),
        };
        self.switch.set_queues_of(of, config.clone()).map_err(|error| match error {
            SwitchError::BadQueues { .. } => told(error),
            error => back(told(error)),
        })?;
        {
            let mut known = lock(&self.known);
            match (of, &config) {
                (QueuesOf::Port(number), config) => {
                    if let Some(port) = known.ports.get_mut(&number) {
                        port.queues.clone_from(config);
                    }
                }
                (QueuesOf::Link(from), Some(config)) => _ = known.link_queues.insert(from, config.clone()),
                (QueuesOf::Link(from), None) => _ = known.link_queues.remove(&from),
            }
        }
        self.keep(&self.now()).map_err(|why| {
            self.restore_known(before);
            back(why)
        })?;
        let asks = self.switch.pipeline_of(device).map(|pipeline| pipeline.program().queues);
        Ok(match config {
            Some(config) => crate::qos::note(&config, device, asks),
            None => asks.filter(|asks| *asks).map(|_| {
                let count = self.switch.default_queues().queues.len();
                let queues = if count == 1 { "queue".to_string() } else { format!("{count} queues") };
                format!("the program of device {device} asks for queues, so {of} has the default {queues}")
            }),
        })
    }

    /// Returns the queue config that is in force for a port or link; `None` without one.
    ///
    /// # Errors
    /// If there is no such port or link.
    pub(super) fn configured_queues(&self, of: QueuesOf) -> Result<Option<Config>, String> {
        let info = self.switch.queues_of(of).map_err(told)?;
        Ok(info.filter(|info| info.is_configured).map(|info| info.config))
    }
}
