//! Named tenants of a shared buffer: limits for what a tenant's queues hold together, on whichever ports they are.
//!
//! A port's queues, or single queues ([`crate::Config::tenant`], [`crate::Queue::tenant`]), belong to a tenant; those
//! without a named tenant belong to their port. A tenant has a limit in packets and bytes, reserved packets, and a
//! factor of the dynamic threshold (`buffer.rs`) for what it uses beyond them. As JSON:
//!
//! ```text
//! { "limit": { "packets": 2000, "bytes": "1MB" }, "reserved": 100, "alpha": 0.5 }
//! ```
//!
//! A packet takes one cell of the buffer, so reserves and limits in packets are counted in cells. One thread at a time
//! owns this list; the tenants themselves are used by all threads. Tests: `tests/tenants.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::buffer::{Buffer, TENANTS_MAX, Tenant, Terms, in_256ths, is_alpha};
use crate::check::Problem;
use crate::config::{Config, check_name};
use crate::units::Size;

/// Minimum Ethernet frame without FCS, in bytes: a limit in bytes must have room for that many per reserved packet.
const FRAME_MIN: u64 = 60;

/// A tenant's configuration: what its queues may hold together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// The maximum.
    #[serde(default)]
    pub limit: TenantLimit,
    /// Packets for which there is always room, within the limit in bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reserved: u32,
    /// Dynamic threshold: beyond the reserved packets it may hold this many times as many as there is room for.
    #[serde(default = "default_alpha")]
    pub alpha: f64,
}

/// A tenant's limit. Without any, only the buffer limits it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantLimit {
    /// Maximum waiting packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u32>,
    /// Maximum waiting bytes; a frame that would exceed them is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Size>,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

fn default_alpha() -> f64 {
    1.0
}

impl Default for TenantConfig {
    fn default() -> TenantConfig {
        TenantConfig { limit: TenantLimit::default(), reserved: 0, alpha: default_alpha() }
    }
}

impl TenantConfig {
    /// Checks the settings for consistency.
    ///
    /// # Errors
    /// All problems that were found.
    pub fn check(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Vec::new();
        let mut problem = |path: &str, message: String| problems.push(Problem { path: path.into(), message });
        let TenantLimit { packets, bytes } = self.limit;
        if packets == Some(0) {
            problem("limit.packets", "0 packets: nothing would pass".into());
        } else if let Some(packets) = packets.filter(|packets| *packets < self.reserved) {
            problem("limit.packets", format!("{packets} is less than the {} that are reserved", self.reserved));
        }
        if let Some(bytes) = bytes {
            let reserved = FRAME_MIN * u64::from(self.reserved);
            if bytes.0 < FRAME_MIN {
                problem("limit.bytes", format!("{bytes} hold no frame of {FRAME_MIN} bytes"));
            } else if bytes.0 < reserved {
                let message =
                    format!("{bytes} is less than {} reserved frames of {FRAME_MIN} bytes take", self.reserved);
                problem("limit.bytes", message);
            }
        }
        if !is_alpha(self.alpha) {
            problem("alpha", format!("{} is not between 1/256 and 256", self.alpha));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn terms(&self, cell: u64) -> Terms {
        Terms {
            reserved: u64::from(self.reserved) * cell,
            max: self.limit.packets.map(|packets| u64::from(packets) * cell),
            frames_max: self.limit.bytes.map(|bytes| bytes.0),
            alpha: in_256ths(self.alpha),
        }
    }
}

/// The named tenants of a buffer.
#[derive(Debug)]
pub struct Tenants {
    buffer: Arc<Buffer>,
    all: BTreeMap<String, (TenantConfig, Tenant)>,
}

impl Tenants {
    /// An empty list.
    pub fn new(buffer: Arc<Buffer>) -> Tenants {
        Tenants { buffer, all: BTreeMap::new() }
    }

    /// The buffer.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// Checks whether a tenant can have this configuration beside the others.
    ///
    /// # Errors
    /// The problems: of the name, of the settings, too many tenants, or too much reserved.
    pub fn check(&self, name: &str, config: &TenantConfig) -> Result<(), Vec<Problem>> {
        config.check()?;
        let problem = |path: &str, message: String| Err(vec![Problem { path: path.into(), message }]);
        if let Err(message) = check_name(name) {
            return problem("name", message);
        }
        if !self.all.contains_key(name) && self.all.len() == TENANTS_MAX {
            return problem("name", format!("there are {TENANTS_MAX} tenants, and no more can be"));
        }
        let others: u64 =
            self.all.iter().filter(|(other, _)| *other != name).map(|(_, (c, _))| u64::from(c.reserved)).sum();
        let packets = self.buffer.capacity() / self.buffer.cell();
        if others + u64::from(config.reserved) > packets {
            let message = format!(
                "{}; the shared buffer holds {packets} packets, of which {others} are reserved for other tenants",
                config.reserved
            );
            return problem("reserved", message);
        }
        Ok(())
    }

    /// Adds or changes a tenant. Waiting packets are kept, even beyond a lower limit. The caller
    /// ensures that nobody uses the tenant meanwhile.
    ///
    /// # Errors
    /// As [`Tenants::check`]; nothing is changed.
    pub fn set(&mut self, name: &str, config: &TenantConfig) -> Result<(), Vec<Problem>> {
        self.check(name, config)?;
        let terms = config.terms(self.buffer.cell());
        if let Some((old, tenant)) = self.all.get_mut(name) {
            tenant.change(&terms);
            old.clone_from(config);
        } else {
            let tenant = self.buffer.open(&terms);
            self.all.insert(name.to_string(), (config.clone(), tenant));
        }
        Ok(())
    }

    /// Removes a tenant that no queue belongs to any more. Returns whether it existed.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some((_, tenant)) = self.all.remove(name) else { return false };
        tenant.change(&TenantConfig::default().terms(self.buffer.cell()));
        true
    }

    /// The tenant of this name.
    pub fn get(&self, name: &str) -> Option<(&TenantConfig, &Tenant)> {
        self.all.get(name).map(|(config, tenant)| (config, tenant))
    }

    /// All tenants, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TenantConfig, &Tenant)> {
        self.all.iter().map(|(name, (config, tenant))| (name.as_str(), config, tenant))
    }

    /// The tenant of each queue of a port; `own` for queues without a named tenant.
    ///
    /// # Errors
    /// Tenants that do not exist.
    pub fn of_queues(&self, config: &Config, own: &Tenant) -> Result<Vec<Tenant>, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut find = |path: String, name: &str| match self.all.get(name) {
            Some((_, tenant)) => tenant.clone(),
            None => {
                let names: Vec<&str> = self.all.keys().map(String::as_str).collect();
                let there = if names.is_empty() { "none".to_string() } else { names.join(", ") };
                problems.push(Problem { path, message: format!("there is no tenant `{name}`; there is {there}") });
                own.clone()
            }
        };
        let whole = config.tenant.as_ref().map(|name| find("tenant".into(), name));
        let of_queue = |(number, queue): (usize, &crate::config::Queue)| match (&queue.tenant, &whole) {
            (Some(name), _) => find(format!("queues[{number}].tenant"), name),
            (None, Some(tenant)) => tenant.clone(),
            (None, None) => own.clone(),
        };
        let tenants = config.queues.iter().enumerate().map(of_queue).collect();
        if problems.is_empty() { Ok(tenants) } else { Err(problems) }
    }
}
