//! Several devices in one switch: each a P4Runtime device with its own program, state and ports.
//!
//! ```text
//!   port 1 ──▶ device 1 ── port 10 ═══ link ═══▶ port 1 of device 2 ──▶ port 2
//! ```
//!
//! A *port* (to the outside) is bound to one device, which sees it under its number; it can be bound to another
//! device at any time. A *link* leads from a port of one device to a port of another (or the same); its ends use
//! numbers that the devices have no port at, and at most one link starts or ends at each. Two links in opposite
//! directions form a cable. Cycles are allowed, as two switches may be cabled both ways; a packet is dropped after a
//! bounded number of links (`worker/links.rs`).
//!
//! Changes are commands that each worker executes between two bursts: no packet waits for them or is lost. When a
//! port is bound to another device, packets in its receive queues enter the new device; packets that wait in its
//! egress queues go through egress of the old device at once (`worker/egress.rs`).
//!
//! Tests: `tests/devices.rs`.

use super::queues::PortQueues;
use super::{Inner, PICK_UP, Switch, SwitchError};
use crate::drops::DropCounters;
use crate::hold::Held;
use crate::pipeline::Pipeline;
use crate::worker::{Basket, Command, LinkCounters, LinkEnd, PortQueue};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A port of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortOf {
    /// The device's id.
    pub device: u64,
    /// The port's number.
    pub port: u32,
}

impl fmt::Display for PortOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {} of device {}", self.port, self.device)
    }
}

/// A link and its counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkInfo {
    /// The port at which packets leave.
    pub from: PortOf,
    /// The port at which they enter.
    pub to: PortOf,
    /// Packets so far.
    pub packets: u64,
    /// Bytes so far.
    pub bytes: u64,
}

/// The control plane's side of a device.
#[derive(Default)]
pub(super) struct DeviceEntry {
    pub pipeline: Option<Arc<Pipeline>>,
    pub program_changes: u64,
    /// Packets dropped under earlier programs, by reason.
    pub past_drops: BTreeMap<String, u64>,
    /// By worker: drop counters while no program is loaded.
    pub without_program: Vec<Arc<DropCounters>>,
}

pub(super) struct LinkEntry {
    pub(super) from: PortOf,
    to: PortOf,
    pub(super) queues: PortQueues,
    /// Counters, by worker.
    counters: Vec<Arc<LinkCounters>>,
}

impl LinkEntry {
    fn name(&self) -> String {
        format!("the link from {} to {}", self.from, self.to)
    }
}

/// `there are devices 1, 2`, for messages.
pub(super) fn list(devices: &[u64]) -> String {
    match devices {
        [] => "there are no devices".to_string(),
        [one] => format!("there is device {one}"),
        several => {
            let ids: Vec<String> = several.iter().map(u64::to_string).collect();
            format!("there are devices {}", ids.join(", "))
        }
    }
}

/// The existing links, for messages.
pub(super) fn list_links(links: &[String]) -> String {
    match links {
        [] => "there are no links".to_string(),
        some => format!("there is {}", some.join(", ")),
    }
}

impl Inner {
    /// A device's running program.
    pub(super) fn pipeline(&self, device: u64) -> Option<&Arc<Pipeline>> {
        self.devices.get(&device)?.pipeline.as_ref()
    }

    /// All links, for messages.
    pub(super) fn link_names(&self) -> Vec<String> {
        self.links.iter().map(LinkEntry::name).collect()
    }

    fn device(&mut self, id: u64) -> Result<&mut DeviceEntry, SwitchError> {
        let there = self.devices.keys().copied().collect();
        self.devices.get_mut(&id).ok_or(SwitchError::NoSuchDevice { id, there })
    }

    /// Checks that the device exists and has neither a port nor a link end of this number.
    pub(super) fn check_free(&mut self, at: PortOf) -> Result<(), SwitchError> {
        self.device(at.device)?;
        if self.ports.iter().any(|p| p.number == at.port && p.bound_to == at.device) {
            return Err(SwitchError::PortTaken(at, format!("port {} is bound to the device", at.port)));
        }
        match self.links.iter().find(|link| link.from == at || link.to == at) {
            Some(link) => Err(SwitchError::PortTaken(at, link.name())),
            None => Ok(()),
        }
    }

    fn check_removable(&mut self, id: u64) -> Result<(), SwitchError> {
        self.device(id)?;
        let ports = self.ports.iter().filter(|p| p.bound_to == id).map(|p| format!("port {}", p.number));
        let links = self.links.iter().filter(|link| link.from.device == id || link.to.device == id);
        let has: Vec<String> = ports.chain(links.map(LinkEntry::name)).collect();
        if has.is_empty() { Ok(()) } else { Err(SwitchError::DeviceInUse { id, has }) }
    }
}

impl Switch {
    /// The id of the first device; it can be removed like any other.
    pub fn first_device(&self) -> u64 {
        self.first
    }

    /// The ids of all devices, in ascending order.
    pub fn devices(&self) -> Vec<u64> {
        self.lock().devices.keys().copied().collect()
    }

    /// Announces a new device to the workers.
    pub(super) fn new_device(&self, id: u64) -> DeviceEntry {
        let drops: Vec<Arc<DropCounters>> = self.mailboxes.iter().map(|_| Arc::new(DropCounters::new(0))).collect();
        for (mailbox, drops) in self.mailboxes.iter().zip(&drops) {
            mailbox.post(Command::AddDevice(id, Arc::clone(drops)));
        }
        DeviceEntry { without_program: drops, ..DeviceEntry::default() }
    }

    /// Adds a device without ports and program.
    ///
    /// # Errors
    /// [`SwitchError::NoDeviceId`] for 0, [`SwitchError::DeviceExists`].
    pub fn add_device(&self, id: u64) -> Result<(), SwitchError> {
        let mut inner = self.lock();
        if id == 0 {
            return Err(SwitchError::NoDeviceId);
        }
        if inner.devices.contains_key(&id) {
            return Err(SwitchError::DeviceExists(id));
        }
        let entry = self.new_device(id);
        inner.devices.insert(id, entry);
        Ok(())
    }

    /// Checks whether a device can be removed.
    ///
    /// # Errors
    /// [`SwitchError::NoSuchDevice`]; [`SwitchError::DeviceInUse`] if it has ports or links.
    pub fn check_removable(&self, id: u64) -> Result<(), SwitchError> {
        self.lock().check_removable(id)
    }

    /// Removes a device without ports and links. Returns once all workers have released it.
    ///
    /// # Errors
    /// As [`Switch::check_removable`]; [`SwitchError::Stuck`], and then the device stays.
    pub fn remove_device(&self, id: u64) -> Result<(), SwitchError> {
        let mut inner = self.lock();
        inner.check_removable(id)?;
        if let Err(error) = self.tell_all(|| Command::RemoveDevice(id)) {
            // It has no ports, so program and counters restore it.
            let entry = inner.device(id)?;
            for (worker, mailbox) in self.mailboxes.iter().enumerate() {
                let add = Command::AddDevice(id, Arc::clone(&entry.without_program[worker]));
                mailbox.post_all(vec![Command::RemoveDevice(id), add, Command::Pipeline(id, entry.pipeline.clone())]);
            }
            return Err(error);
        }
        inner.devices.remove(&id);
        Ok(())
    }

    /// As [`Switch::set_pipeline`], for any device.
    ///
    /// # Errors
    /// [`SwitchError::NoSuchDevice`]; errors of default queues if the program uses queues; [`SwitchError::Stuck`],
    /// and then all workers return to the old program.
    pub fn set_pipeline_of(&self, device: u64, pipeline: Option<Arc<Pipeline>>) -> Result<(), SwitchError> {
        self.change_pipeline(device, pipeline, |pipeline| {
            self.tell_all(|| Command::Pipeline(device, pipeline.cloned()))
        })
    }

    /// As [`Switch::set_pipeline_of`], and calls `between` at a moment when no packet runs through the old program or
    /// the new one. All workers are stopped meanwhile and packets wait in the devices' queues, so `between` must be
    /// short.
    ///
    /// # Errors
    /// As [`Switch::set_pipeline_of`]; if a worker is stuck, `between` may not have run.
    pub fn replace_pipeline_of(
        &self,
        device: u64,
        pipeline: Arc<Pipeline>,
        between: impl FnOnce(),
    ) -> Result<(), SwitchError> {
        self.change_pipeline(device, Some(pipeline), |pipeline| {
            let Some(pipeline) = pipeline else { return Ok(()) };
            let held = Held { gate: Arc::default() };
            let behind = |_| Command::PipelineBehind(Arc::clone(&held.gate), device, Arc::clone(pipeline));
            let numbers = self.post_each(behind);
            if !held.gate.await_standing(self.workers(), PICK_UP) {
                held.gate.give_up();
                return Err(self.stuck());
            }
            between();
            drop(held);
            self.await_each(&numbers)
        })
    }

    fn change_pipeline(
        &self,
        device: u64,
        pipeline: Option<Arc<Pipeline>>,
        tell: impl FnOnce(Option<&Arc<Pipeline>>) -> Result<(), SwitchError>,
    ) -> Result<(), SwitchError> {
        let mut inner = self.lock();
        inner.device(device)?;
        if let Some(pipeline) = &pipeline {
            for port in inner.ports.iter().filter(|port| port.bound_to == device) {
                pipeline.state().port_state(port.number, port.up);
            }
            self.give_queues(&mut inner, device, pipeline)?;
        }
        if let Err(error) = tell(pipeline.as_ref()) {
            // Workers that have changed return to the old program; a worker that changes later returns, too.
            let old = inner.device(device)?.pipeline.clone();
            self.post_each(|_| Command::Pipeline(device, old.clone()));
            return Err(error);
        }
        let entry = inner.device(device)?;
        entry.program_changes += 1;
        let old = std::mem::replace(&mut entry.pipeline, pipeline);
        if let Some(old) = old.filter(|old| entry.pipeline.as_ref().is_none_or(|new| !Arc::ptr_eq(old, new))) {
            let drops = (0..self.workers()).flat_map(|worker| old.drops(worker).read(old.program()));
            for (reason, packets) in drops.filter(|(_, packets)| *packets > 0) {
                *entry.past_drops.entry(reason).or_default() += packets;
            }
        }
        self.tidy_queues(&mut inner, device)
    }

    /// A device's running pipeline.
    pub fn pipeline_of(&self, device: u64) -> Option<Arc<Pipeline>> {
        self.lock().pipeline(device).cloned()
    }

    /// How often a pipeline of the device was set.
    pub fn program_changes_of(&self, device: u64) -> u64 {
        self.lock().devices.get(&device).map_or(0, |entry| entry.program_changes)
    }

    /// Binds a port to another device. Returns when all workers have done so. No packet is lost.
    ///
    /// # Errors
    /// [`SwitchError::NoSuchPort`], [`SwitchError::NoSuchDevice`], [`SwitchError::BoundAlready`];
    /// [`SwitchError::PortTaken`] if `to` has a link at this number; errors of default queues;
    /// [`SwitchError::Stuck`].
    pub fn bind(&self, number: u32, to: u64) -> Result<(), SwitchError> {
        let mut inner = self.lock();
        let at = inner.ports.iter().position(|p| p.number == number).ok_or(SwitchError::NoSuchPort(number))?;
        let (from, up) = (inner.ports[at].bound_to, inner.ports[at].up);
        inner.device(to)?;
        if from == to {
            return Err(SwitchError::BoundAlready(number, to));
        }
        inner.check_free(PortOf { device: to, port: number })?;
        if let Some(pipeline) = inner.pipeline(to) {
            pipeline.state().port_state(number, up);
        }
        self.tell_all(|| Command::MovePort(number, from, to))?;
        inner.ports[at].bound_to = to;
        // Selector members that watch the port are no longer chosen.
        if let Some(pipeline) = inner.pipeline(from) {
            pipeline.state().port_state(number, false);
        }
        self.tidy_queues(&mut inner, to)
    }

    /// Adds a link: packets that a device sends by `from` enter at `to`. It works by the time this returns.
    ///
    /// # Errors
    /// [`SwitchError::NoSuchDevice`]; [`SwitchError::PortTaken`] if an end is in use or is the controller's port;
    /// errors of default queues; [`SwitchError::Stuck`].
    pub fn link(&self, from: PortOf, to: PortOf) -> Result<(), SwitchError> {
        let mut inner = self.lock();
        for end in [from, to] {
            inner.device(end.device)?;
            if Some(end.port) == self.cpu_port {
                return Err(SwitchError::PortTaken(end, "it stands for the controller".to_string()));
            }
            if inner.ports.iter().any(|p| p.number == end.port && p.bound_to == end.device) {
                return Err(SwitchError::PortTaken(end, format!("port {} is bound to the device", end.port)));
            }
        }
        // A link in the opposite direction may use the same ends: the two form a cable.
        let taken = inner.links.iter().find(|link| {
            link.from == from
                || link.to == to
                || (link.from == to && link.to != from)
                || (link.to == from && link.from != to)
        });
        if let Some(link) = taken {
            let at = if link.from == from || link.to == from { from } else { to };
            return Err(SwitchError::PortTaken(at, link.name()));
        }
        let counters: Vec<Arc<LinkCounters>> = self.mailboxes.iter().map(|_| Arc::default()).collect();
        self.tell_each(|worker| {
            let end = LinkEnd { device: to.device, port: to.port, counters: Arc::clone(&counters[worker]) };
            Command::AddPort(from.device, from.port, PortQueue::Link(end))
        })?;
        if let Some(pipeline) = inner.pipeline(from.device) {
            pipeline.state().port_state(from.port, true);
        }
        let server = inner.links.len() % self.workers();
        inner.links.push(LinkEntry { from, to, queues: PortQueues::served_by(server), counters });
        self.tidy_queues(&mut inner, from.device)
    }

    /// Removes the link that starts at a port. Returns once no worker sends by it.
    ///
    /// # Errors
    /// [`SwitchError::NoSuchLink`], [`SwitchError::Stuck`].
    pub fn unlink(&self, from: PortOf) -> Result<(), SwitchError> {
        let mut inner = self.lock();
        let Some(at) = inner.links.iter().position(|link| link.from == from) else {
            return Err(SwitchError::NoSuchLink { from, links: inner.link_names() });
        };
        if inner.links[at].queues.are_running() {
            self.take_queues(from, inner.links[at].queues.server)?;
        }
        let basket = Basket::default();
        self.tell_all(|| Command::RemovePort(from.device, from.port, Arc::clone(&basket)))?;
        inner.links.remove(at);
        if let Some(pipeline) = inner.pipeline(from.device) {
            pipeline.state().port_state(from.port, false);
        }
        Ok(())
    }

    /// All links.
    pub fn links(&self) -> Vec<LinkInfo> {
        let info = |link: &LinkEntry| {
            let (packets, bytes) =
                link.counters.iter().map(|c| c.read()).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            LinkInfo { from: link.from, to: link.to, packets, bytes }
        };
        self.lock().links.iter().map(info).collect()
    }

    /// Numbers of the ports that a device can send by: those bound to it, and the starts of links.
    pub fn ports_of(&self, device: u64) -> Vec<u32> {
        let inner = self.lock();
        let ports = inner.ports.iter().filter(|p| p.bound_to == device).map(|p| p.number);
        let links = inner.links.iter().filter(|link| link.from.device == device).map(|link| link.from.port);
        ports.chain(links).collect()
    }

    /// Whether a device can send by a port now. The controller's port and links are always up; a port to the outside
    /// is up if its link was when last polled; a port that the device does not have is down.
    pub fn port_is_up(&self, at: PortOf) -> bool {
        let cpu_port = self.cpu_port_of(at.device);
        let inner = self.lock();
        cpu_port == Some(at.port)
            || inner.ports.iter().any(|p| p.number == at.port && p.bound_to == at.device && p.up)
            || inner.links.iter().any(|link| link.from == at)
    }
}
