//! The P4Runtime devices of a running switch: creates, loads, binds to ports, links and removes them.
//!
//! ```text
//!   command line, store ───────▶ Devices ──▶ Switch    ports, links, programs
//!   admin service ─────────────▶         ──▶ Control   what controllers see
//!                                        ──▶ State     restored at the next start
//! ```
//!
//! The switch starts with a first device (`sluice run --device-id`), which owns every port that no other device is
//! given. Each further device has a target of its own, and so its own tables, state and election of a primary. All
//! devices run on the same workers and are served at the same address.
//!
//! With `--state` a change is on disk before it is acknowledged; a change that cannot be stored is undone. At the start
//! the stored record is used, unless the command line differs from the one of the last start; `state.rs` has the same
//! rule for programs.
//!
//! Threads: those of the admin service; changes are serialised. Tests: `tests/py/test_devices.py`.

mod queues;

use crate::ports::{Opener, conflict};
use crate::state::State;
use crate::target::{SwitchTarget, port_problem};
use anyhow::{Context, Result, bail};
use control::Control;
use control::control::Losses;
use control::forwarding::ForwardingConfig;
use control::reconcile::Report;
use datapath::{NewPort, PortOf, QueuesOf, Sharing, Switch};
use grpc::Handle;
use messages::sluice::v1 as pb;
use pb::kept_wiring as kept;
use pktio::{Device, PortSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::Wiring;
use traffic::{Config, TenantConfig};

/// The configuration of devices, ports and links, as given by a command line or a stored record.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Wanted {
    /// Devices besides the first.
    pub devices: BTreeSet<u64>,
    /// Devices of the ports that do not belong to the first device, by port.
    pub bindings: BTreeMap<u32, u64>,
    /// Links, as pairs of source and destination.
    pub links: Vec<(PortOf, PortOf)>,
    /// Queue configurations of links, by source.
    pub link_queues: BTreeMap<PortOf, Config>,
    /// Tenants, by name.
    pub tenants: BTreeMap<String, TenantConfig>,
    /// Whether the first device was unloaded. It is created again at a start if a port belongs to no other device.
    pub without_first: bool,
    /// Ports, by number.
    pub ports: BTreeMap<u32, WantedPort>,
}

/// The configuration of a port.
#[derive(Clone, PartialEq, Debug)]
pub struct WantedPort {
    /// The port's number, device and options.
    pub spec: PortSpec,
    /// Whether the operator has taken it out of service.
    pub out_of_service: bool,
    /// Its queues, if configured by `--qos` or the operator.
    pub queues: Option<Config>,
}

impl WantedPort {
    fn new(spec: PortSpec) -> WantedPort {
        WantedPort { spec, out_of_service: false, queues: None }
    }
}

/// The queues and tenants of a command line.
#[derive(Default)]
pub struct Qos {
    pub queues: Vec<(QueuesOf, Config)>,
    pub tenants: Vec<(String, TenantConfig)>,
}

/// The value of `sluice run --device ID[=X.p4]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceArg {
    /// The device's id.
    pub id: u64,
    /// Its program; without one the device waits for P4Runtime to set it.
    pub program: Option<PathBuf>,
}

/// Parses `ID[=X.p4]`.
///
/// # Errors
/// If the id is no number.
pub fn parse_device(text: &str) -> Result<DeviceArg, String> {
    let (id, program) = match text.split_once('=') {
        Some((id, path)) => (id, Some(PathBuf::from(path))),
        None => (text, None),
    };
    let id =
        id.parse().map_err(|_| format!("`{id}` is not a device id; it is written ID or ID=X.p4, as 2=firewall.p4"))?;
    Ok(DeviceArg { id, program })
}

/// Parses `PORT,...=ID` into port numbers and a device id.
///
/// # Errors
/// If the text has another form.
pub fn parse_binding(text: &str) -> Result<(Vec<u32>, u64), String> {
    let wrong = || format!("`{text}` is not PORT,...=ID, as 3,4=2");
    let (ports, id) = text.split_once('=').ok_or_else(wrong)?;
    let ports: Result<Vec<u32>, _> = ports.split(',').map(str::parse).collect();
    Ok((ports.map_err(|_| wrong())?, id.parse().map_err(|_| wrong())?))
}

/// Parses `ID:PORT`, one end of a link.
///
/// # Errors
/// If the text has another form.
pub fn parse_end(text: &str) -> Result<PortOf, String> {
    let parts = text.split_once(':').and_then(|(device, port)| device.parse().ok().zip(port.parse().ok()));
    let (device, port) = parts.ok_or_else(|| format!("`{text}` is not DEVICE:PORT, as 1:10"))?;
    Ok(PortOf { device, port })
}

/// Parses `ID:PORT,ID:PORT` into a link's source and destination.
///
/// # Errors
/// If the text has another form.
pub fn parse_link(text: &str) -> Result<(PortOf, PortOf), String> {
    let (from, to) =
        text.split_once(',').ok_or_else(|| format!("`{text}` is not FROM,TO, each DEVICE:PORT, as 1:10,2:1"))?;
    Ok((parse_end(from)?, parse_end(to)?))
}

impl Wanted {
    /// Returns the devices, bindings and links of a command line.
    ///
    /// # Errors
    /// If a device is defined twice, a port is bound twice, or a device that is named does not exist.
    pub fn new(
        first: u64,
        devices: &[DeviceArg],
        bindings: &[(Vec<u32>, u64)],
        links: &[(PortOf, PortOf)],
    ) -> Result<Wanted> {
        let mut wanted = Wanted { links: links.to_vec(), ..Wanted::default() };
        for DeviceArg { id, .. } in devices {
            if *id == first || !wanted.devices.insert(*id) {
                bail!("--device {id}: there is a device {id} already (--device-id is {first})");
            }
        }
        for (port, device) in bindings.iter().flat_map(|(ports, device)| ports.iter().map(move |port| (port, device))) {
            if wanted.bindings.insert(*port, *device).is_some() {
                bail!("--bind: port {port} is bound twice, and a port belongs to one device");
            }
        }
        wanted.bindings.retain(|_, device| *device != first);
        let named = wanted.bindings.values().chain(links.iter().flat_map(|(a, b)| [&a.device, &b.device]));
        if let Some(id) = named.into_iter().find(|id| **id != first && !wanted.devices.contains(id)) {
            bail!(
                "there is no device {id}: --device {id}=X.p4 makes one, --device {id} one that waits for its program"
            );
        }
        Ok(wanted)
    }

    fn record(&self) -> pb::KeptWiring {
        let binding = |(port, device_id): (&u32, &u64)| kept::Binding { port: *port, device_id: *device_id };
        let link = |(from, to): &(PortOf, PortOf)| kept::Link {
            from_device_id: from.device,
            from_port: from.port,
            to_device_id: to.device,
            to_port: to.port,
            queues: self.link_queues.get(from).map(crate::queues::to_text).unwrap_or_default(),
        };
        let tenant = |(name, config): (&String, &TenantConfig)| kept::Tenant {
            name: name.clone(),
            config: crate::queues::tenant_to_text(config),
        };
        let port = |port: &WantedPort| kept::Port {
            port: port.spec.to_string(),
            out_of_service: port.out_of_service,
            queues: port.queues.as_ref().map(crate::queues::to_text).unwrap_or_default(),
        };
        pb::KeptWiring {
            devices: self.devices.iter().copied().collect(),
            bindings: self.bindings.iter().map(binding).collect(),
            links: self.links.iter().map(link).collect(),
            without_first: self.without_first,
            ports: self.ports.values().map(port).collect(),
            has_ports: true,
            tenants: self.tenants.iter().map(tenant).collect(),
        }
    }

    fn from_record(record: pb::KeptWiring) -> Result<Wanted> {
        let port = |kept: kept::Port| -> Result<(u32, WantedPort)> {
            let spec = kept.port.parse::<PortSpec>().context("--state: a kept port")?;
            let queues = queues::kept_config(QueuesOf::Port(spec.number), &kept.queues)?;
            Ok((spec.number, WantedPort { spec, out_of_service: kept.out_of_service, queues }))
        };
        let end = |device, port| PortOf { device, port };
        let link = |l: kept::Link| (end(l.from_device_id, l.from_port), end(l.to_device_id, l.to_port));
        let mut link_queues = BTreeMap::new();
        for kept in &record.links {
            let from = end(kept.from_device_id, kept.from_port);
            link_queues.extend(queues::kept_config(QueuesOf::Link(from), &kept.queues)?.map(|config| (from, config)));
        }
        Ok(Wanted {
            devices: record.devices.into_iter().collect(),
            bindings: record.bindings.into_iter().map(|b| (b.port, b.device_id)).collect(),
            links: record.links.into_iter().map(link).collect(),
            link_queues,
            tenants: record.tenants.into_iter().map(queues::kept_tenant).collect::<Result<_>>()?,
            without_first: record.without_first,
            ports: record.ports.into_iter().map(port).collect::<Result<_>>()?,
        })
    }

    /// Adds ports.
    pub fn with_ports(self, ports: &[PortSpec]) -> Wanted {
        let port = |spec: &PortSpec| (spec.number, WantedPort::new(spec.clone()));
        Wanted { ports: ports.iter().map(port).collect(), ..self }
    }

    /// Adds tenants, and queues of existing ports and links.
    ///
    /// # Errors
    /// If a port or link does not exist, or queues or a tenant are given twice.
    pub fn with_qos(mut self, start: Qos) -> Result<Wanted> {
        for (of, config) in start.queues {
            let before = match of {
                QueuesOf::Port(number) => match self.ports.get_mut(&number) {
                    Some(port) => port.queues.replace(config),
                    None => bail!("--qos: there is no port {number}; -i {number}@DEVICE opens one"),
                },
                QueuesOf::Link(from) if self.links.iter().any(|(begin, _)| *begin == from) => {
                    self.link_queues.insert(from, config)
                }
                QueuesOf::Link(from) => bail!("--qos: no link begins at {from}; --chain makes one"),
            };
            if before.is_some() {
                bail!("--qos: {of} is given twice");
            }
        }
        for (name, config) in start.tenants {
            if self.tenants.insert(name.clone(), config).is_some() {
                bail!("--tenant: {name} is given twice");
            }
        }
        Ok(self)
    }

    /// Returns the configuration to start with: the stored one, unless the command line differs from the one of the
    /// last start. Then the command line is used, together with devices, ports and tenants that were added at run time.
    ///
    /// # Errors
    /// If the stored record cannot be read.
    pub fn decide(state: Option<&State>, command_line: &Wanted) -> Result<Wanted> {
        let Some(state) = state else { return Ok(command_line.clone()) };
        let kept = |which| -> Result<Option<(Wanted, bool)>> {
            let Some(record) = state.store().wiring(which)? else { return Ok(None) };
            let has_ports = record.has_ports;
            Ok(Some((Wanted::from_record(record)?, has_ports)))
        };
        let Some((mut now, has_ports)) = kept(Wiring::Now)? else { return Ok(command_line.clone()) };
        let mut last = kept(Wiring::CommandLine)?.map(|(last, _)| last).unwrap_or_default();
        if !has_ports {
            // A record from before ports could be added and removed at run time: the ports were those of the command
            // line.
            (now.ports, last.ports) = (command_line.ports.clone(), command_line.ports.clone());
        }
        if last == *command_line {
            return Ok(now);
        }
        let devices = now.devices.union(&command_line.devices).copied().collect();
        let mut wanted = Wanted { devices, ..command_line.clone() };
        for (name, tenant) in now.tenants.into_iter().filter(|(name, _)| !last.tenants.contains_key(name)) {
            wanted.tenants.entry(name).or_insert(tenant);
        }
        for (number, port) in now.ports.into_iter().filter(|(number, _)| !last.ports.contains_key(number)) {
            if conflict(&port.spec, wanted.ports.values().map(|port| &port.spec)).is_none() {
                if let Some(device) = now.bindings.get(&number).filter(|device| wanted.devices.contains(device)) {
                    wanted.bindings.insert(number, *device);
                }
                wanted.ports.insert(number, port);
            }
        }
        Ok(wanted)
    }
}

/// The devices of a running switch.
pub struct Devices {
    switch: Arc<Switch>,
    handle: Arc<Handle>,
    /// The template of devices' targets, which says how programs are compiled.
    target: SwitchTarget,
    state: Option<Arc<State>>,
    opener: Mutex<Opener>,
    /// Serialises changes.
    turn: Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Programs' names by device, each with the device's number of program changes when the name was learned.
    names: BTreeMap<u64, (String, u64)>,
    /// Devices of the ports that do not belong to the first device, including ports that could not be opened.
    bindings: BTreeMap<u32, u64>,
    /// All ports, including those that could not be opened.
    ports: BTreeMap<u32, WantedPort>,
    /// Queue configurations of links, by source.
    link_queues: BTreeMap<PortOf, Config>,
    tenants: BTreeMap<String, TenantConfig>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses if a controller is primary for the device, unless `force` is set. `does` completes the message.
fn check_nobody_primary(control: &mut Control, device: u64, force: bool, does: &str) -> Result<(), String> {
    if !force && control.has_primary(device).map_err(|e| e.message)? {
        return Err(format!(
            "a controller is primary for device {device} and would not know; --force {does} all the same"
        ));
    }
    Ok(())
}

impl Devices {
    /// Returns a switch's devices, the first one only; `opener` opens ports that are added at run time.
    pub fn new(
        switch: Arc<Switch>,
        handle: Arc<Handle>,
        target: SwitchTarget,
        state: Option<Arc<State>>,
        opener: Opener,
    ) -> Devices {
        let opener = Mutex::new(opener);
        Devices { switch, handle, target, state, opener, turn: Mutex::default(), known: Mutex::default() }
    }

    /// Creates all devices and links of the start, without programs. Ports are added later; `ports` are the numbers of
    /// those that could be opened.
    ///
    /// # Errors
    /// If a device or link cannot be created, or the record cannot be stored.
    pub fn begin(&self, wanted: &Wanted, command_line: &Wanted, ports: &[u32]) -> Result<()> {
        let first = self.switch.first_device();
        let without_first = wanted.without_first && ports.iter().all(|port| wanted.bindings.contains_key(port));
        if without_first {
            self.switch.remove_device(first)?;
        }
        for id in Some(first).filter(|_| !without_first).into_iter().chain(wanted.devices.iter().copied()) {
            if id != first {
                self.switch.add_device(id)?;
            }
            let theirs = ports.iter().copied().filter(|port| wanted.bindings.get(port).unwrap_or(&first) == &id);
            let target = self.target.for_device(id).with_ports(theirs.collect());
            self.handle.with(|control| control.add_device(id, Arc::new(target)));
        }
        for (from, to) in &wanted.links {
            self.switch.link(*from, *to).context("--chain")?;
        }
        {
            let mut known = lock(&self.known);
            known.bindings = wanted.bindings.clone();
            known.ports = wanted.ports.clone();
            known.link_queues = wanted.link_queues.clone();
            known.tenants = wanted.tenants.clone();
        }
        if let Some(state) = &self.state {
            let set = |which, wanted: &Wanted| state.store().set_wiring(which, &wanted.record());
            set(Wiring::Now, &self.now())
                .and_then(|()| set(Wiring::CommandLine, command_line))
                .map_err(|why| anyhow::anyhow!("--state: {why}"))?;
        }
        Ok(())
    }

    /// Records the name of the program that was just loaded into a device.
    pub fn learn_name(&self, device: u64) {
        let config = self.handle.with(|control| control.running_config(device));
        let changes = self.switch.program_changes_of(device);
        if let Ok(Some(config)) = config {
            lock(&self.known).names.insert(device, (config.name, changes));
        }
    }

    /// Returns the device that owns, or would own, a port of this number.
    pub fn of_port(&self, port: u32) -> u64 {
        lock(&self.known).bindings.get(&port).copied().unwrap_or(self.switch.first_device())
    }

    /// Fills in the program names of `devices`; a program that a controller has set stays unnamed.
    pub fn name_all(&self, devices: &mut [pb::Device]) {
        let known = lock(&self.known);
        for device in devices {
            if let Some((name, changes)) = known.names.get(&device.id)
                && *changes == device.program_changes
            {
                device.program.clone_from(name);
            }
        }
    }

    /// Returns the current configuration.
    fn now(&self) -> Wanted {
        let first = self.switch.first_device();
        let there = self.switch.devices();
        let Known { bindings, ports, link_queues, tenants, .. } = &*lock(&self.known);
        Wanted {
            without_first: !there.contains(&first),
            devices: there.into_iter().filter(|id| *id != first).collect(),
            bindings: bindings.clone(),
            ports: ports.clone(),
            links: self.switch.links().into_iter().map(|link| (link.from, link.to)).collect(),
            link_queues: link_queues.clone(),
            tenants: tenants.clone(),
        }
    }

    fn keep(&self, wanted: &Wanted) -> Result<(), String> {
        let Some(state) = &self.state else { return Ok(()) };
        state.store().set_wiring(Wiring::Now, &wanted.record()).map_err(|why| format!("it cannot be kept: {why}"))
    }

    /// Loads a program into a device, which is created if it does not exist. Returns whether it was created, and what
    /// happened to the old program's state.
    ///
    /// # Errors
    /// If the program is refused, its state would be lost, a controller is primary, or the change cannot be stored.
    /// Nothing is changed then.
    pub fn load(&self, request: &pb::LoadRequest) -> Result<(bool, Report), String> {
        let _turn = lock(&self.turn);
        let device = request.device_id;
        let new = !self.switch.devices().contains(&device);
        if new {
            self.create(device)?;
        }
        // No client has seen the device; its remains on disk are dropped when its id is used again.
        let take_back = |why| if new { self.take_back(device, why) } else { why };
        let report = self.load_into(request).map_err(take_back)?;
        self.learn_name(device);
        if new {
            self.keep(&self.now()).map_err(take_back)?;
        }
        Ok((new, report))
    }

    fn create(&self, id: u64) -> Result<(), String> {
        self.switch.add_device(id).map_err(|e| e.to_string())?;
        self.handle.with(|control| control.add_device(id, Arc::new(self.target.for_device(id))));
        let Some(state) = &self.state else { return Ok(()) };
        state.keep(&self.handle, id, false).map_err(|why| self.take_back(id, format!("{why:#}")))
    }

    fn load_into(&self, request: &pb::LoadRequest) -> Result<Report, String> {
        use pb::load_request::State;
        let device = request.device_id;
        let config = ForwardingConfig {
            device_config: request.program.clone(),
            name: request.name.clone(),
            ..ForwardingConfig::default()
        };
        // The control plane is not locked during the compilation, so a client may become primary meanwhile.
        let may = |control: &mut Control| check_nobody_primary(control, device, request.force, "replaces its program");
        let takes_over = request.state() != State::Fresh;
        let preparation = self.handle.with(|control| {
            may(control)?;
            control.prepare(device, config, takes_over).map_err(|e| e.message)
        })?;
        let prepared = self.handle.prepared(preparation).map_err(|e| e.message)?;
        self.handle.with_device(device, |control| {
            may(control)?;
            let done = match request.state() {
                State::Fresh => control.load_prepared(device, prepared).map(|()| Report::default()),
                State::KeepAll => control.replace_prepared(device, prepared, Losses::Refused),
                State::KeepWhatFits => control.replace_prepared(device, prepared, Losses::Accepted),
            };
            done.map_err(|e| e.message)
        })
    }

    /// Removes a device from workers and controllers: from both or, if it is not removed, from neither.
    fn drop_device(&self, id: u64) -> Result<(), String> {
        // The workers, while controllers of the device wait.
        let release = || self.switch.remove_device(id).map_err(|e| control::Error::unavailable(e.to_string()));
        self.handle.remove_device(id, release).map_err(|e| e.message)?;
        lock(&self.known).names.remove(&id);
        Ok(())
    }

    /// Removes a device that was made and cannot be used, because of `why`. Returns that, and that it stays if it does.
    fn take_back(&self, id: u64, why: String) -> String {
        match self.drop_device(id) {
            Ok(()) => why,
            Err(stays) => format!("{why}; and device {id}, which was made for this, stays: {stays}"),
        }
    }

    /// Removes a device that has no ports or links.
    ///
    /// # Errors
    /// If it has some, a controller is primary, the change cannot be stored, or the workers do not respond.
    pub fn unload(&self, device: u64, force: bool) -> Result<(), String> {
        let _turn = lock(&self.turn);
        self.switch.check_removable(device).map_err(|e| e.to_string())?;
        self.handle.with(|control| check_nobody_primary(control, device, force, "removes it"))?;
        let mut without = self.now();
        without.devices.remove(&device);
        without.without_first |= device == self.switch.first_device();
        without.bindings.retain(|_, to| *to != device);
        self.keep(&without)?;
        if let Err(why) = self.drop_device(device) {
            self.keep(&self.now()).map_err(|kept| format!("{why}; and {kept}"))?;
            return Err(why);
        }
        lock(&self.known).bindings = without.bindings;
        if let Some(state) = &self.state
            && let Err(why) = state.forget_device(device)
        {
            tracing::warn!(device, "what is left of it on disk stays there: {why}");
        }
        Ok(())
    }

    /// Refuses if a controller is primary for one of these devices, unless `force` is set. Devices that do not exist
    /// are skipped here; the operation itself refuses them.
    fn check_nobody_primary_of(&self, devices: BTreeSet<u64>, force: bool, does: &str) -> Result<(), String> {
        let there = self.switch.devices();
        self.handle.with(|control| {
            let mut affected = devices.into_iter().filter(|device| there.contains(device));
            affected.try_for_each(|device| check_nobody_primary(control, device, force, does))
        })
    }

    /// Binds ports to a device: all, or none.
    ///
    /// # Errors
    /// If a port or the device does not exist, the device's program cannot have the port, a controller is primary, or
    /// the change cannot be stored.
    pub fn bind(&self, ports: &[u32], to: u64, force: bool) -> Result<(), String> {
        let _turn = lock(&self.turn);
        if ports.is_empty() {
            return Err("no port is named".to_string());
        }
        if ports.iter().collect::<BTreeSet<_>>().len() < ports.len() {
            return Err("a port is named twice".to_string());
        }
        let owners = self.switch.ports().into_iter().filter(|p| ports.contains(&p.number)).map(|p| p.bound_to);
        self.check_nobody_primary_of(owners.chain([to]).collect(), force, "moves the ports")?;
        let mut done: Vec<(u32, u64)> = Vec::new();
        let before = lock(&self.known).bindings.clone();
        let take_back = |done: &[(u32, u64)], why: String| {
            for (port, from) in done.iter().rev() {
                if let Err(error) = self.switch.bind(*port, *from) {
                    return format!("{why}; and {error}");
                }
            }
            why
        };
        for port in ports {
            let from = self.switch.ports().iter().find(|p| p.number == *port).map(|p| p.bound_to);
            let bound = match self.problem(PortOf { device: to, port: *port }) {
                Some(problem) => Err(problem),
                None => self.switch.bind(*port, to).map_err(|e| e.to_string()),
            };
            match (bound, from) {
                (Ok(()), Some(from)) => done.push((*port, from)),
                (Err(why), _) => return Err(take_back(&done, why)),
                (Ok(()), None) => {}
            }
        }
        let first = self.switch.first_device();
        {
            let bindings = &mut lock(&self.known).bindings;
            ports.iter().for_each(|port| _ = bindings.insert(*port, to));
            bindings.retain(|_, device| *device != first);
        }
        self.keep(&self.now()).map_err(|why| {
            lock(&self.known).bindings = before;
            take_back(&done, why)
        })?;
        let devices = done.iter().map(|(_, from)| *from).chain([to]).collect::<BTreeSet<_>>();
        self.handle.with(|control| devices.into_iter().for_each(|device| control.links_changed(device)));
        Ok(())
    }

    /// Opens a port, `NUMBER@DEVICE`, and binds it to a device, 0 for the first. Returns a note for the operator, if
    /// there is one.
    ///
    /// # Errors
    /// If the text is wrong, the port conflicts with another or cannot be opened, or the change cannot be stored.
    pub fn add_port(&self, text: &str, device: u64) -> Result<Option<String>, String> {
        let _turn = lock(&self.turn);
        let spec: PortSpec = text.parse().map_err(|error: pktio::SpecError| format!("{error}\n{}", error.help()))?;
        let device = if device == 0 { self.switch.first_device() } else { device };
        if self.switch.cpu_port() == Some(spec.number) {
            return Err(format!("port {} stands for the controller", spec.number));
        }
        {
            // A configured port that could not be opened does not count: it is replaced.
            let open: Vec<u32> = self.switch.ports().iter().map(|port| port.number).collect();
            let known = lock(&self.known);
            let others = known.ports.values().map(|port| &port.spec).filter(|other| open.contains(&other.number));
            if open.contains(&spec.number) {
                return Err(format!("there is a port {} already", spec.number));
            }
            if let Some(problem) = conflict(&spec, others) {
                return Err(problem);
            }
        }
        let before = self.known_ports();
        let note = self.open_port(&spec, device)?;
        {
            let mut known = lock(&self.known);
            known.ports.insert(spec.number, WantedPort::new(spec.clone()));
            known.bindings.remove(&spec.number);
            if device != self.switch.first_device() {
                known.bindings.insert(spec.number, device);
            }
        }
        self.keep(&self.now()).map_err(|why| {
            self.restore_known(before);
            self.switch.remove_port(spec.number).err().map_or(why.clone(), |error| format!("{why}; and {error}"))
        })?;
        self.handle.with(|control| control.links_changed(device));
        Ok(note)
    }

    /// Opens a port's device without adding the port.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_device(&self, spec: &PortSpec) -> Result<Box<dyn Device>> {
        lock(&self.opener).open(spec)
    }

    /// Opens a port and adds it to the switch. Returns the device's note for the operator.
    fn open_port(&self, spec: &PortSpec, device: u64) -> Result<Option<String>, String> {
        if let Some(problem) = self.problem(PortOf { device, port: spec.number }) {
            return Err(problem);
        }
        let opened = lock(&self.opener).open(spec).map_err(|error| format!("{error:#}"))?;
        let note = opened.note();
        let sharing = if spec.spread { Sharing::Spread } else { Sharing::Fixed };
        let port = NewPort { bound_to: device, number: spec.number, device: opened, sharing };
        self.switch.add_ports(vec![port]).map_err(|error| error.to_string())?;
        Ok(note)
    }

    /// Removes a port, even one that is configured and could not be opened.
    ///
    /// # Errors
    /// If there is none, the change cannot be stored, or the workers do not respond. The port stays then.
    pub fn remove_port(&self, number: u32) -> Result<(), String> {
        let _turn = lock(&self.turn);
        let bound_to = self.bound_to(number);
        if bound_to.is_none() && !lock(&self.known).ports.contains_key(&number) {
            return Err(format!("there is no port {number}"));
        }
        let before = self.known_ports();
        {
            let mut known = lock(&self.known);
            known.ports.remove(&number);
            known.bindings.remove(&number);
        }
        // On disk first: after a crash in between, the port is gone, as requested.
        let kept = self.keep(&self.now());
        let removed = match (kept, bound_to) {
            (Err(why), _) => Err(why),
            (Ok(()), None) => Ok(()),
            (Ok(()), Some(_)) => self.switch.remove_port(number).map_err(|error| error.to_string()),
        };
        removed.inspect_err(|_| {
            self.restore_known(before);
            let _ = self.keep(&self.now());
        })?;
        if let Some(device) = bound_to {
            self.handle.with(|control| control.links_changed(device));
        }
        Ok(())
    }

    /// Reopens a port with changed options; on failure, with its old ones. Returns a note for the operator.
    ///
    /// # Errors
    /// If there is no such open port, it cannot be reopened, or the change cannot be stored.
    pub fn set_port(&self, number: u32, options: &[String]) -> Result<Option<String>, String> {
        let _turn = lock(&self.turn);
        let no_port = || format!("there is no port {number}");
        let device = self.bound_to(number).ok_or_else(no_port)?;
        let old = lock(&self.known).ports.get(&number).cloned().ok_or_else(no_port)?;
        let new = old.spec.with_options(options).map_err(|error| error.to_string())?;
        let configured = self.configured_queues(QueuesOf::Port(number))?;
        let reopen = |spec: &PortSpec| -> Result<Option<String>, String> {
            if self.bound_to(number).is_some() {
                self.switch.remove_port(number).map_err(|error| error.to_string())?;
            }
            let note = self.open_port(spec, device)?;
            if let Some(config) = &configured {
                self.switch.set_queues(number, Some(config.clone())).map_err(queues::told)?;
            }
            if old.out_of_service {
                self.switch.set_in_service(number, false).map_err(|error| error.to_string())?;
            }
            Ok(note)
        };
        let back = |why: String| match reopen(&old.spec) {
            Ok(_) => why,
            Err(error) => format!("{why}; and with its old options it cannot be opened either: {error}"),
        };
        let done = reopen(&new).map_err(back).and_then(|note| {
            lock(&self.known).ports.insert(number, WantedPort { spec: new, ..old.clone() });
            self.keep(&self.now()).map(|()| note).map_err(|why| {
                lock(&self.known).ports.insert(number, old.clone());
                back(why)
            })
        });
        self.handle.with(|control| control.links_changed(device));
        done
    }

    /// Takes a port into service or out of it. Returns a note for the operator.
    ///
    /// # Errors
    /// If there is no such port, or the change cannot be stored; then it is undone.
    pub fn set_in_service(&self, number: u32, up: bool) -> Result<Option<String>, String> {
        let _turn = lock(&self.turn);
        self.switch.set_in_service(number, up).map_err(|error| error.to_string())?;
        let before = self.known_ports();
        if let Some(port) = lock(&self.known).ports.get_mut(&number) {
            port.out_of_service = !up;
        }
        self.keep(&self.now()).map_err(|why| {
            let was_up = !before.ports.get(&number).is_some_and(|port| port.out_of_service);
            self.restore_known(before);
            self.switch.set_in_service(number, was_up).err().map_or(why.clone(), |error| format!("{why}; and {error}"))
        })?;
        if let Some(device) = self.bound_to(number) {
            self.handle.with(|control| control.links_changed(device));
        }
        Ok(self.switch.ports().into_iter().find(|port| port.number == number).and_then(|port| port.note))
    }

    /// Returns the device that owns an open port; `None` if it is not open.
    fn bound_to(&self, number: u32) -> Option<u64> {
        self.switch.ports().iter().find(|port| port.number == number).map(|port| port.bound_to)
    }

    /// Returns a copy of ports, bindings, queues and tenants, for undoing a change.
    fn known_ports(&self) -> Known {
        let Known { bindings, ports, link_queues, tenants, .. } = &*lock(&self.known);
        let (bindings, ports) = (bindings.clone(), ports.clone());
        Known { names: BTreeMap::new(), bindings, ports, link_queues: link_queues.clone(), tenants: tenants.clone() }
    }

    fn restore_known(&self, before: Known) {
        let mut known = lock(&self.known);
        let names = std::mem::take(&mut known.names);
        *known = Known { names, ..before };
    }

    /// Returns why a device's program cannot have a port, if so.
    fn problem(&self, at: PortOf) -> Option<String> {
        let pipeline = self.switch.pipeline_of(at.device)?;
        port_problem(pipeline.program(), at.port).map(|why| format!("device {}: {why}", at.device))
    }

    /// Creates a link, or one in each direction.
    ///
    /// # Errors
    /// If an end does not exist or is in use, a controller is primary, or the change cannot be stored. No link is left
    /// then.
    pub fn chain(&self, from: PortOf, to: PortOf, both_ways: bool, force: bool) -> Result<(), String> {
        let _turn = lock(&self.turn);
        self.check_nobody_primary_of([from.device, to.device].into(), force, "makes the link")?;
        if let Some(problem) = [from, to].into_iter().find_map(|end| self.problem(end)) {
            return Err(problem);
        }
        self.switch.link(from, to).map_err(|e| e.to_string())?;
        let back = both_ways && from != to;
        if back && let Err(error) = self.switch.link(to, from) {
            let _ = self.switch.unlink(from);
            return Err(error.to_string());
        }
        let undo = |why: String| {
            let ends = if back { vec![from, to] } else { vec![from] };
            let left: Vec<String> =
                ends.into_iter().filter_map(|end| Some(self.switch.unlink(end).err()?.to_string())).collect();
            if left.is_empty() { why } else { format!("{why}; and {}", left.join(", ")) }
        };
        self.keep(&self.now()).map_err(undo)?;
        self.links_changed(from, to);
        Ok(())
    }

    /// Removes the link that begins at a port, and with `both_ways` the reverse one.
    ///
    /// # Errors
    /// If there is no such link, a controller is primary, or the change cannot be stored; then the links are created
    /// again.
    pub fn unchain(&self, from: PortOf, both_ways: bool, force: bool) -> Result<(), String> {
        let _turn = lock(&self.turn);
        let to = self.switch.links().into_iter().find(|link| link.from == from).map(|link| link.to);
        let ends = [Some(from), to].into_iter().flatten().map(|end| end.device).collect();
        self.check_nobody_primary_of(ends, force, "removes the link")?;
        self.switch.unlink(from).map_err(|e| e.to_string())?;
        let Some(to) = to else { return Ok(()) };
        let back = both_ways && to != from && self.switch.links().iter().any(|link| link.from == to && link.to == from);
        if back {
            self.switch.unlink(to).map_err(|e| e.to_string())?;
        }
        let gone = if back { vec![(from, to), (to, from)] } else { vec![(from, to)] };
        let before = self.known_ports();
        lock(&self.known).link_queues.retain(|begin, _| !gone.iter().any(|(from, _)| from == begin));
        self.keep(&self.now()).map_err(|why| {
            let again = gone.iter().try_for_each(|(from, to)| {
                self.switch.link(*from, *to)?;
                self.switch.set_queues_of(QueuesOf::Link(*from), before.link_queues.get(from).cloned())
            });
            self.restore_known(before);
            again.err().map_or(why.clone(), |error| format!("{why}; and {error}"))
        })?;
        self.links_changed(from, to);
        Ok(())
    }

    /// Tells the control plane of changed links: replicas with backup ports choose a port by them.
    fn links_changed(&self, from: PortOf, to: PortOf) {
        self.handle.with(|control| [from, to].into_iter().for_each(|end| control.links_changed(end.device)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(device: u64, port: u32) -> PortOf {
        PortOf { device, port }
    }

    #[test]
    fn flags_are_read_and_wrong_ones_say_how_they_are_written() {
        let device = DeviceArg { id: 2, program: Some("a=b.p4".into()) };
        assert_eq!(parse_device("2=a=b.p4"), Ok(device));
        assert_eq!(parse_device("7").map(|d| (d.id, d.program)), Ok((7, None)));
        assert!(parse_device("x.p4").unwrap_err().contains("2=firewall.p4"));
        assert_eq!(parse_binding("3,4=2"), Ok((vec![3, 4], 2)));
        assert!(parse_binding("3").unwrap_err().contains("PORT,...=ID"));
        assert_eq!(parse_link("1:10,2:1"), Ok((at(1, 10), at(2, 1))));
        assert!(parse_link("1:10").unwrap_err().contains("1:10,2:1"));
        assert!(parse_end("10").unwrap_err().contains("DEVICE:PORT"));
    }

    #[test]
    fn what_a_command_line_says_is_whole_or_refused() {
        let devices = [DeviceArg { id: 2, program: None }];
        let says = |devices: &[DeviceArg], bindings: &[(Vec<u32>, u64)], links: &[(PortOf, PortOf)]| {
            Wanted::new(1, devices, bindings, links).map_err(|e| e.to_string())
        };
        let wanted = says(&devices, &[(vec![3, 4], 2), (vec![5], 1)], &[(at(1, 10), at(2, 1))]).unwrap();
        assert_eq!(wanted.bindings, BTreeMap::from([(3, 2), (4, 2)]), "the first device's are not listed");
        let wanted = wanted.with_ports(&["7@veth0,mtu=9000".parse().unwrap(), "8@veth1".parse().unwrap()]);
        let start = |queues: Vec<(QueuesOf, Config)>, tenants: Vec<(String, TenantConfig)>| Qos { queues, tenants };
        let (port, link) = (QueuesOf::Port, QueuesOf::Link(at(1, 10)));
        let queues = vec![(port(7), Config::weighted(&[3, 1])), (link, Config::strict(2))];
        let red = TenantConfig { reserved: 7, ..TenantConfig::default() };
        let wanted = wanted.with_qos(start(queues, vec![("red".to_string(), red.clone())])).unwrap();
        assert_eq!(Wanted::from_record(wanted.record()).unwrap(), wanted);
        let refused = |start| wanted.clone().with_qos(start).unwrap_err().to_string();
        for (start, words) in [
            (start(vec![(port(7), Config::fifo())], vec![]), "port 7 is given twice"),
            (start(vec![(link, Config::fifo())], vec![]), "the link at port 10 of device 1 is given twice"),
            (start(vec![(port(9), Config::fifo())], vec![]), "-i 9@DEVICE"),
            (start(vec![(QueuesOf::Link(at(2, 1)), Config::fifo())], vec![]), "no link begins at port 1 of device 2"),
            (start(vec![], vec![("red".to_string(), red)]), "red is given twice"),
        ] {
            let why = refused(start);
            assert!(why.contains(words), "{why}");
        }
        for (kept, problem) in [
            ("{", "line 1"),
            (r#"{"queues":[{}],"root":{"queue":0},"colour":1}"#, "unknown field `colour`"),
            (r#"{"queues":[{},{}],"root":{"queue":0}}"#, "queues[1]: is nowhere in the tree"),
        ] {
            let mut record = wanted.record();
            record.ports[0].queues = kept.to_string();
            let refused = Wanted::from_record(record).unwrap_err().to_string();
            assert!(refused.contains("the stored queues of port 7") && refused.contains(problem), "{refused}");
            let mut record = wanted.record();
            record.links[0].queues = kept.to_string();
            let refused = Wanted::from_record(record).unwrap_err().to_string();
            assert!(
                refused.contains("the stored queues of the link at port 10") && refused.contains(problem),
                "{refused}"
            );
        }
        for (kept, problem) in
            [("{", "line 1"), (r#"{"limit":{"packets":6},"reserved":7}"#, "limit.packets: 6 is less")]
        {
            let mut record = wanted.record();
            record.tenants[0].config = kept.to_string();
            let refused = Wanted::from_record(record).unwrap_err().to_string();
            assert!(refused.contains("the stored tenant red") && refused.contains(problem), "{refused}");
        }
        assert!(says(&[DeviceArg { id: 1, program: None }], &[], &[]).unwrap_err().contains("already"));
        assert!(says(&devices, &[(vec![3], 2), (vec![3], 1)], &[]).unwrap_err().contains("bound twice"));
        assert!(says(&[], &[(vec![3], 2)], &[]).unwrap_err().starts_with("there is no device 2"));
        assert!(says(&devices, &[], &[(at(2, 1), at(3, 1))]).unwrap_err().starts_with("there is no device 3"));
    }

    /// A switch of devices 1, 2 and 3, with its state in a directory.
    fn three_devices(dir: &std::path::Path) -> Devices {
        use datapath::{EngineKind, Specialise, SwitchConfig};
        let switch = Arc::new(Switch::new(SwitchConfig::default()));
        let compiler = crate::compiler::Compiler::in_process();
        let (options, code) = (frontend::Options::default(), datapath::CodeOptions::default());
        let engine = EngineKind::Interpreter;
        let target = SwitchTarget::new(Arc::clone(&switch), compiler, options, code, engine, Specialise::Off);
        let state = Arc::new(State::open_at(dir).unwrap());
        let handle = Handle::new(Control::new());
        let devices = Devices::new(switch, handle, target, Some(state), Opener::new(&[], 1).unwrap());
        let wanted = Wanted { devices: [2, 3].into(), ..Wanted::default() };
        devices.begin(&wanted, &wanted, &[]).unwrap();
        devices
    }

    impl Devices {
        /// The devices that workers, controllers and the stored record know.
        fn known_by_all(&self) -> [Vec<u64>; 3] {
            let kept = Wanted::decide(self.state.as_deref(), &self.now()).unwrap();
            let mut on_disk: Vec<u64> = kept.devices.into_iter().collect();
            on_disk.extend((!kept.without_first).then_some(1));
            let mut all = [self.switch.devices(), self.handle.with(|control| control.device_ids()), on_disk];
            all.iter_mut().for_each(|ids| ids.sort_unstable());
            all
        }
    }

    #[test]
    fn a_device_that_is_not_removed_on_disk_is_removed_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let devices = three_devices(dir.path());
        // A file of this name is written before each change of the manifest.
        let in_the_way = dir.path().join("manifest.new");
        std::fs::create_dir(&in_the_way).unwrap();
        let refused = devices.unload(2, false).unwrap_err();
        assert!(refused.contains("it cannot be kept"), "{refused}");
        assert_eq!(devices.known_by_all(), [[1, 2, 3]; 3]);
        std::fs::remove_dir(&in_the_way).unwrap();
        // Another record is stored with the manifest, too.
        devices.state.as_ref().unwrap().store().set_command_line(1, b"program").unwrap();
        drop(devices);
        let kept = State::open_at(dir.path()).unwrap().store().wiring(Wiring::Now).unwrap().unwrap();
        assert_eq!(kept.devices, [2, 3]);
    }

    #[test]
    fn a_device_that_controllers_keep_for_now_stays_with_its_workers() {
        use control::arbitration::ArbitrationRequest;
        use control::control::StreamRequest;
        use control::entity::{Atomicity, WriteRequest};
        let dir = tempfile::tempdir().unwrap();
        let devices = three_devices(dir.path());
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/stf/v1model/limits.p4");
        let program = std::fs::read(program).unwrap();
        devices.load(&pb::LoadRequest { device_id: 2, program, ..Default::default() }).unwrap();
        let request = Arc::new(WriteRequest {
            device_id: 2,
            election_id: Some(1),
            atomicity: Atomicity::RollbackOnError,
            ..WriteRequest::default()
        });
        let batch = devices.handle.with(|control| {
            let client = control.connect();
            let claim = ArbitrationRequest { device_id: 2, election_id: Some(1), ..Default::default() };
            control.stream_request(client, StreamRequest::Arbitration(claim)).unwrap();
            control.begin_write(&request).unwrap()
        });
        let refused = devices.unload(2, true).unwrap_err();
        assert!(refused.contains("a batch of updates is being written"), "{refused}");
        assert_eq!(devices.known_by_all(), [[1, 2, 3]; 3]);
        drop(batch);
        devices.unload(2, true).unwrap();
        assert_eq!(devices.known_by_all(), [[1, 3]; 3]);
    }
}
