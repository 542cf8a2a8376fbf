//! The P4Runtime devices of a switch: made, loaded, bound to ports, chained and removed while it runs.
//!
//! ```text
//!   command line, kept record ──▶ Devices ──▶ Switch    ports, links, programs
//!   admin service ─────────────▶         ──▶ Control   what controllers see
//!                                        ──▶ State     comes back after a crash
//! ```
//!
//! The switch begins with a first device (`sluice run --device-id`), which has all ports that no other is given. Each other one has a target of its own, so its own tables,
//! state and election of primaries; all run on the same workers and answer on the same address.
//!
//! With `--state` a change is on disk before it is acknowledged; one that cannot be kept is taken back. Which of the two the
//! switch begins with, what is kept or what the command line says, is decided as for programs (`state.rs`): what is kept,
//! unless the command line is another than at the last start.
//!
//! Threads: the admin service's, one change at a time. Tests: `tests/py/test_devices.py`.

use crate::state::State;
use crate::target::{SwitchTarget, port_problem};
use anyhow::{Context, Result, bail};
use control::Control;
use control::control::Losses;
use control::pipeline::ForwardingConfig;
use control::reconcile::Report;
use datapath::{PortOf, Switch};
use grpc::Handle;
use grpc::proto::sluice::v1 as pb;
use pb::kept_wiring as kept;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::Wiring;

/// Devices, ports and links as a command line says or a record keeps them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Devices besides the first.
    pub devices: BTreeSet<u64>,
    /// Ports that are not the first device's.
    pub bindings: BTreeMap<u32, u64>,
    /// From where to where.
    pub links: Vec<(PortOf, PortOf)>,
    /// The first device was unloaded. It is made again where a port is nobody else's.
    pub without_first: bool,
}

/// `sluice run --device ID[=X.p4]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceArg {
    /// Its id.
    pub id: u64,
    /// Its program; without one it waits for P4Runtime.
    pub program: Option<PathBuf>,
}

/// `ID[=X.p4]`.
pub fn parse_device(text: &str) -> Result<DeviceArg, String> {
    let (id, program) = match text.split_once('=') {
        Some((id, path)) => (id, Some(PathBuf::from(path))),
        None => (text, None),
    };
    let id =
        id.parse().map_err(|_| format!("`{id}` is no device id; it is written ID or ID=X.p4, as 2=firewall.p4"))?;
    Ok(DeviceArg { id, program })
}

/// `PORT,...=ID`.
pub fn parse_binding(text: &str) -> Result<(Vec<u32>, u64), String> {
    let wrong = || format!("`{text}` is not PORT,...=ID, as 3,4=2");
    let (ports, id) = text.split_once('=').ok_or_else(wrong)?;
    let ports: Result<Vec<u32>, _> = ports.split(',').map(str::parse).collect();
    Ok((ports.map_err(|_| wrong())?, id.parse().map_err(|_| wrong())?))
}

/// `ID:PORT`.
pub fn parse_end(text: &str) -> Result<PortOf, String> {
    let parts = text.split_once(':').and_then(|(device, port)| device.parse().ok().zip(port.parse().ok()));
    let (device, port) = parts.ok_or_else(|| format!("`{text}` is not DEVICE:PORT, as 1:10"))?;
    Ok(PortOf { device, port })
}

/// `ID:PORT,ID:PORT`.
pub fn parse_link(text: &str) -> Result<(PortOf, PortOf), String> {
    let (from, to) =
        text.split_once(',').ok_or_else(|| format!("`{text}` is not FROM,TO, each DEVICE:PORT, as 1:10,2:1"))?;
    Ok((parse_end(from)?, parse_end(to)?))
}

impl Wanted {
    /// What a command line says.
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
        };
        pb::KeptWiring {
            devices: self.devices.iter().copied().collect(),
            bindings: self.bindings.iter().map(binding).collect(),
            links: self.links.iter().map(link).collect(),
            without_first: self.without_first,
        }
    }

    fn from_record(record: pb::KeptWiring) -> Wanted {
        let end = |device, port| PortOf { device, port };
        let link = |l: kept::Link| (end(l.from_device_id, l.from_port), end(l.to_device_id, l.to_port));
        Wanted {
            devices: record.devices.into_iter().collect(),
            bindings: record.bindings.into_iter().map(|b| (b.port, b.device_id)).collect(),
            links: record.links.into_iter().map(link).collect(),
            without_first: record.without_first,
        }
    }
}

/// The devices of a running switch.
pub struct Devices {
    switch: Arc<Switch>,
    handle: Arc<Handle>,
    /// How programs are compiled.
    target: SwitchTarget,
    state: Option<Arc<State>>,
    /// Held by whoever changes something.
    turn: Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// What programs are called, and after how many program changes that was true.
    names: BTreeMap<u64, (String, u64)>,
    /// Ports that are not the first device's; those that were not opened this time, too.
    bindings: BTreeMap<u32, u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses while a controller is primary, unless forced to.
fn check_nobody_primary(control: &mut Control, device: u64, force: bool, does: &str) -> Result<(), String> {
    if !force && control.has_primary(device).map_err(|e| e.message)? {
        return Err(format!(
            "a controller is primary for device {device} and would not know; --force {does} all the same"
        ));
    }
    Ok(())
}

impl Devices {
    /// The first device alone; `ports` are the numbers of those that will be opened.
    pub fn new(switch: Arc<Switch>, handle: Arc<Handle>, target: SwitchTarget, state: Option<Arc<State>>) -> Devices {
        Devices { switch, handle, target, state, turn: Mutex::default(), known: Mutex::default() }
    }

    /// Makes all devices and links that the switch begins with, without programs; ports come later, `ports` are their numbers.
    pub fn begin(&self, command_line: &Wanted, ports: &[u32]) -> Result<()> {
        let wanted = match &self.state {
            None => command_line.clone(),
            Some(state) => {
                let kept = |which| anyhow::Ok(state.store().wiring(which)?.map(Wanted::from_record));
                let (now, last) = (kept(Wiring::Now)?, kept(Wiring::CommandLine)?);
                match now {
                    Some(now) if last.as_ref() == Some(command_line) => now,
                    Some(now) => {
                        // Devices that were made while it ran stay, with what they were told.
                        let devices = now.devices.union(&command_line.devices).copied().collect();
                        Wanted { devices, ..command_line.clone() }
                    }
                    None => command_line.clone(),
                }
            }
        };
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
        lock(&self.known).bindings = wanted.bindings;
        if let Some(state) = &self.state {
            let set = |which, wanted: &Wanted| state.store().set_wiring(which, &wanted.record());
            set(Wiring::Now, &self.now())
                .and_then(|()| set(Wiring::CommandLine, command_line))
                .map_err(|why| anyhow::anyhow!("--state: {why}"))?;
        }
        Ok(())
    }

    /// Finds out what a device's program is called, which was loaded just now.
    pub fn learn_name(&self, device: u64) {
        let config = self.handle.with(|control| control.running_config(device));
        let changes = self.switch.program_changes_of(device);
        if let Ok(Some(config)) = config {
            lock(&self.known).names.insert(device, (config.name, changes));
        }
    }

    /// The device that a port of this number belongs to.
    pub fn of_port(&self, port: u32) -> u64 {
        lock(&self.known).bindings.get(&port).copied().unwrap_or(self.switch.first_device())
    }

    /// Says in counters what programs are called; a controller's has no name.
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

    /// As it is now.
    fn now(&self) -> Wanted {
        let first = self.switch.first_device();
        let there = self.switch.devices();
        Wanted {
            without_first: !there.contains(&first),
            devices: there.into_iter().filter(|id| *id != first).collect(),
            bindings: lock(&self.known).bindings.clone(),
            links: self.switch.links().into_iter().map(|link| (link.from, link.to)).collect(),
        }
    }

    fn keep(&self, wanted: &Wanted) -> Result<(), String> {
        let Some(state) = &self.state else { return Ok(()) };
        state.store().set_wiring(Wiring::Now, &wanted.record()).map_err(|why| format!("it cannot be kept: {why}"))
    }

    /// Loads a program into a device, which is made if it is not there; whether it was, and what became of the old program's
    /// state.
    pub fn load(&self, request: &pb::LoadRequest) -> Result<(bool, Report), String> {
        let _turn = lock(&self.turn);
        let device = request.device_id;
        let new = !self.switch.devices().contains(&device);
        if new {
            self.create(device)?;
        }
        let report = self.load_into(request).inspect_err(|_| {
            if new {
                // Nobody has seen it; what is left of it on disk is dropped when its id is used again.
                let _ = self.drop_device(device);
            }
        })?;
        self.learn_name(device);
        if new && let Err(why) = self.keep(&self.now()) {
            let _ = self.drop_device(device);
            return Err(why);
        }
        Ok((new, report))
    }

    fn create(&self, id: u64) -> Result<(), String> {
        self.switch.add_device(id).map_err(|e| e.to_string())?;
        self.handle.with(|control| control.add_device(id, Arc::new(self.target.for_device(id))));
        let Some(state) = &self.state else { return Ok(()) };
        state.keep(&self.handle, id, false).map_err(|why| {
            let _ = self.drop_device(id);
            format!("{why:#}")
        })
    }

    fn load_into(&self, request: &pb::LoadRequest) -> Result<Report, String> {
        use pb::load_request::State;
        let device = request.device_id;
        let config = ForwardingConfig {
            device_config: request.program.clone(),
            name: request.name.clone(),
            ..ForwardingConfig::default()
        };
        self.handle.with(|control| {
            check_nobody_primary(control, device, request.force, "replaces its program")?;
            let done = match request.state() {
                State::Fresh => control.load(device, config).map(|()| Report::default()),
                State::KeepAll => control.replace(device, config, Losses::Refused),
                State::KeepWhatFits => control.replace(device, config, Losses::Accepted),
            };
            done.map_err(|e| e.message)
        })
    }

    fn drop_device(&self, id: u64) -> Result<(), String> {
        self.handle.remove_device(id).map_err(|e| e.message)?;
        self.switch.remove_device(id).map_err(|e| e.to_string())?;
        lock(&self.known).names.remove(&id);
        Ok(())
    }

    /// Removes a device that has no ports and links.
    pub fn unload(&self, device: u64, force: bool) -> Result<(), String> {
        let _turn = lock(&self.turn);
        self.switch.check_removable(device).map_err(|e| e.to_string())?;
        self.handle.with(|control| check_nobody_primary(control, device, force, "removes it"))?;
        let mut without = self.now();
        without.devices.remove(&device);
        without.without_first |= device == self.switch.first_device();
        without.bindings.retain(|_, to| *to != device);
        self.keep(&without)?;
        self.drop_device(device)?;
        lock(&self.known).bindings = without.bindings;
        if let Some(state) = &self.state
            && let Err(why) = state.forget_device(device)
        {
            tracing::warn!(device, "what is left of it on disk stays there: {why}");
        }
        Ok(())
    }

    /// Gives ports to a device: all, or none.
    pub fn bind(&self, ports: &[u32], to: u64) -> Result<(), String> {
        let _turn = lock(&self.turn);
        if ports.is_empty() {
            return Err("no port is named".to_string());
        }
        if ports.iter().collect::<BTreeSet<_>>().len() < ports.len() {
            return Err("a port is named twice".to_string());
        }
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

    /// Why a device's program cannot have a port.
    fn problem(&self, at: PortOf) -> Option<String> {
        let pipeline = self.switch.pipeline_of(at.device)?;
        port_problem(pipeline.program(), at.port).map(|why| format!("device {}: {why}", at.device))
    }

    /// Makes a link, or a link each way.
    pub fn chain(&self, from: PortOf, to: PortOf, both_ways: bool) -> Result<(), String> {
        let _turn = lock(&self.turn);
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

    /// Removes the link that begins at a port, and the one back if asked to.
    pub fn unchain(&self, from: PortOf, both_ways: bool) -> Result<(), String> {
        let _turn = lock(&self.turn);
        let to = self.switch.links().into_iter().find(|link| link.from == from).map(|link| link.to);
        self.switch.unlink(from).map_err(|e| e.to_string())?;
        let Some(to) = to else { return Ok(()) };
        let back = both_ways && to != from && self.switch.links().iter().any(|link| link.from == to && link.to == from);
        if back {
            self.switch.unlink(to).map_err(|e| e.to_string())?;
        }
        self.keep(&self.now()).map_err(|why| {
            let again =
                self.switch.link(from, to).and_then(|()| if back { self.switch.link(to, from) } else { Ok(()) });
            again.err().map_or(why.clone(), |error| format!("{why}; and {error}"))
        })?;
        self.links_changed(from, to);
        Ok(())
    }

    /// Replicas with backups follow what is there.
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
        assert_eq!(Wanted::from_record(wanted.record()), wanted);
        assert!(says(&[DeviceArg { id: 1, program: None }], &[], &[]).unwrap_err().contains("already"));
        assert!(says(&devices, &[(vec![3], 2), (vec![3], 1)], &[]).unwrap_err().contains("bound twice"));
        assert!(says(&[], &[(vec![3], 2)], &[]).unwrap_err().starts_with("there is no device 2"));
        assert!(says(&devices, &[], &[(at(2, 1), at(3, 1))]).unwrap_err().starts_with("there is no device 3"));
    }
}
