//! `sluice run --thrift`: bmv2's thrift services for the first device (`crates/thrift`), for `simple_switch_CLI` and
//! scripts written for bmv2.
//!
//! The protocol has neither encryption nor authentication, so any address but loopback needs --insecure. A client may
//! do what local commands do, but cannot name files of this machine: ports that it adds are kernel interfaces.
//!
//! Threads: those of the services; calls are serialised. Tests: `tests/py/test_thrift.py`.

use crate::bmv2::{config, names};
use crate::compiler::Compiler;
use crate::devices::Devices;
use crate::nanomsg::{Address, Publisher};
use crate::transport::{Listeners, TransportArgs, socket_address};
use abi::state::{DigestMessage, HashParameters};
use anyhow::{Context, Result, bail, ensure};
use control::Control;
use control::entity::{CalculationEntry, Entity, TableEntry};
use control::forwarding::ForwardingConfig;
use control::schema::Schema;
use datapath::Switch;
use entities::Names;
use frontend::Options;
use grpc::Handle;
use grpc::audit::{Audit, Entry};
use grpc::peer::{Origin, Peer};
use messages::convert;
use messages::p4::v1 as pb;
use messages::sluice::v1 as admin;
use prost::Message;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use thrift_service::{Ageing, Learning, Port, PortNotices, QueueSetting, Record, Server};

/// The most entities in a dump of all of them.
const ENTITIES_MAX: usize = 1 << 20;
/// The most bytes of these in P4Runtime's encoding; as text, which must fit into an answer, they are longer.
const ENTITIES_BYTES_MAX: usize = thrift_service::wire::ANSWER_BYTES_MAX;
/// How many entities are read at a time.
const STEP: usize = 1024;

/// Flags of the thrift services.
#[derive(clap::Args, Clone, Debug)]
pub struct ThriftArgs {
    /// Serve bmv2's thrift interface, which simple_switch_CLI speaks, for the device of --device-id.
    #[arg(long, value_name = "ADDR:PORT")]
    thrift: Option<String>,
    /// The same on 127.0.0.1, by its port alone, as bmv2 has it.
    #[arg(long, value_name = "PORT", conflicts_with = "thrift")]
    thrift_port: Option<u16>,
    /// Send digest messages of this device, idle entries and changes of its ports to subscribers of nanomsg as bmv2 does, at
    /// ipc://PATH or tcp://ADDR:PORT; they acknowledge digests by thrift.
    #[arg(long, value_name = "ADDR")]
    notifications: Option<Address>,
}

/// How often ports are polled for changes, in milliseconds, as in bmv2.
const LOOK_MS: u64 = 200;

/// The notifications of a device, which are published to nanomsg subscribers.
pub struct Learners {
    device: u64,
    learning: Arc<Learning>,
    publisher: Publisher,
    ports: PortNotices,
    looked_ms: Option<u64>,
    /// Set once thrift is served, which assigns the entries' handles.
    ageing: Option<Ageing>,
}

impl Learners {
    /// Returns the device whose messages are published.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Queues digest messages and changes of ports, and publishes what is due. `now_ms` is the time in milliseconds.
    pub fn tell(&mut self, switch: &Switch, handle: &Handle, digests: &[DigestMessage], now_ms: u64) {
        let mut due = Vec::new();
        if self.looked_ms.is_none_or(|looked_ms| now_ms.saturating_sub(looked_ms) >= LOOK_MS) {
            self.looked_ms = Some(now_ms);
            let ours = switch.ports().into_iter().filter(|port| port.bound_to == self.device);
            due.extend(self.ports.take(ours.map(|port| (port.number, is_up(&port)))));
        }
        due.extend(self.ageing.iter().flat_map(Ageing::messages));
        if !digests.is_empty() || self.learning.waits() {
            // Without a program there are no digests.
            if let Ok(schema) = handle.with(|control| control.schema(self.device)) {
                due.extend(self.learning.take(&schema, digests, now_ms));
            }
        }
        self.publisher.publish(&due, Instant::now());
    }

    /// Queues notifications about entries whose idle timeout has expired; the next [`Learners::tell`] sends them.
    pub fn tell_idle(&self, idle: Vec<TableEntry>) {
        if let Some(ageing) = &self.ageing {
            ageing.take(idle);
        }
    }
}

/// Whether a port is up from the point of view of bmv2's clients. A `memory` port has no link that could be down.
fn is_up(port: &datapath::switch::PortInfo) -> bool {
    port.in_service && (port.link.up || port.kind == "memory")
}

/// The parts of a running switch that the services use.
pub struct Parts<'a> {
    pub switch: &'a Arc<Switch>,
    pub handle: &'a Arc<Handle>,
    pub devices: &'a Arc<Devices>,
    pub compiler: &'a Arc<Compiler>,
    /// The options with which programs are compiled.
    pub options: Options,
    /// The device that the services expose.
    pub device: u64,
    /// The address of the event stream, if there is one.
    pub events: Option<String>,
}

/// The objection to a notification address that other machines can reach.
const OPEN_TO_READERS: &str = "other machines can connect there, and everybody can read what is sent";

impl ThriftArgs {
    /// Returns the option and address to serve on; `None` if thrift is not requested.
    ///
    /// # Errors
    /// If the address is wrong or needs --insecure, or notifications are requested without thrift.
    pub fn check(&self, transport: &TransportArgs) -> Result<Option<(&'static str, SocketAddr)>> {
        if let Some(address) = self.open_notifications() {
            let option = names::option("--notifications");
            ensure!(transport.insecure(), "{option} {address}: {OPEN_TO_READERS}; --insecure does it all the same");
        }
        let (option, address) = match (&self.thrift, self.thrift_port) {
            (Some(address), _) => (names::option("--thrift"), socket_address(names::option("--thrift"), address)?),
            (None, Some(port)) => ("--thrift-port", SocketAddr::from(([127, 0, 0, 1], port))),
            (None, None) if self.notifications.is_some() => {
                bail!("--notifications: messages are acknowledged by thrift, which --thrift or --thrift-port serves")
            }
            (None, None) => return Ok(None),
        };
        if !address.ip().to_canonical().is_loopback() && !transport.insecure() {
            bail!(
                "{option} {address}: other machines can connect there, and thrift has no TLS: everybody can read and change what is sent; \
                 --insecure does it all the same"
            );
        }
        if transport.wants_certificates() && !transport.insecure() {
            bail!(
                "{option}: thrift asks for no certificate, so whoever can connect could do what --tls-client-ca keeps from them; --insecure \
                 does it all the same"
            );
        }
        Ok(Some((option, address)))
    }

    /// Returns the notification address if other machines can reach it.
    fn open_notifications(&self) -> Option<&SocketAddr> {
        match &self.notifications {
            Some(Address::Tcp(address)) if !address.ip().to_canonical().is_loopback() => Some(address),
            _ => None,
        }
    }

    /// Serves thrift and notifications, if requested.
    ///
    /// # Errors
    /// As [`ThriftArgs::check`], or if the address cannot be listened on.
    pub fn serve(
        &self,
        parts: Parts<'_>,
        transport: &TransportArgs,
        listeners: &Listeners,
    ) -> Result<(Option<Server>, Option<Learners>)> {
        let Some((option, address)) = self.check(transport)? else { return Ok((None, None)) };
        let insecure = names::insecure();
        if !address.ip().to_canonical().is_loopback() {
            tracing::warn!("{option} {address} is open to other machines without TLS ({insecure})");
        }
        if let Some(address) = self.open_notifications() {
            tracing::warn!("{} {address}: {OPEN_TO_READERS} ({insecure})", names::option("--notifications"));
        }
        let mut learners = self.notifications.as_ref().and_then(|address| learners(address, parts.device));
        let service = Service {
            switch: Arc::clone(parts.switch),
            handle: Arc::clone(parts.handle),
            devices: Arc::clone(parts.devices),
            compiler: Arc::clone(parts.compiler),
            options: parts.options,
            device: parts.device,
            events: parts.events,
            audit: listeners.audit().clone(),
        };
        let learning = learners.as_ref().map(|learners| Arc::clone(&learners.learning));
        let server = thrift_service::serve(address, Arc::new(service), learning)
            .with_context(|| format!("cannot serve thrift on {address} ({option} chooses another address)"))?;
        if let Some(learners) = &mut learners {
            learners.ageing = Some(server.ageing()?);
        }
        announce!("thrift on {}, device {}", server.address(), parts.device);
        Ok((Some(server), learners))
    }
}

/// Starts publishing notifications. A failure is only logged, because several switches of an emulated network may be
/// given the same address.
fn learners(address: &Address, device: u64) -> Option<Learners> {
    let bound = Publisher::bind(address);
    let note = |error| tracing::warn!("notifications are not sent by nanomsg: cannot listen at {address}: {error:#}");
    let publisher = bound.map_err(note).ok()?;
    let learning = Arc::new(Learning::new(device, address.to_string()));
    Some(Learners { device, learning, publisher, ports: PortNotices::new(device), looked_ms: None, ageing: None })
}

struct Service {
    switch: Arc<Switch>,
    handle: Arc<Handle>,
    devices: Arc<Devices>,
    compiler: Arc<Compiler>,
    options: Options,
    device: u64,
    events: Option<String>,
    audit: Audit,
}

/// Changes the setting of one queue, or of all.
fn change_queues(config: &mut traffic::Config, queue: Option<u8>, setting: QueueSetting) -> Result<(), String> {
    let count = config.queues.len();
    let which = match queue {
        Some(queue) if usize::from(queue) < count => usize::from(queue)..usize::from(queue) + 1,
        Some(queue) => return Err(format!("there is no queue {queue}: it has {count}, numbered from 0")),
        None => 0..count,
    };
    for number in which {
        match setting {
            QueueSetting::Depth(packets) => config.queues[number].limit = traffic::Limit::packets(packets),
            QueueSetting::Rate(packets_per_s) => {
                let shaper = traffic::PacketShaper { packets_per_s, burst: 1 };
                if let Some(node) = config.node_mut(number as u8) {
                    node.packet_shaper = Some(shaper).filter(|_| packets_per_s > 0);
                }
            }
        }
    }
    Ok(())
}

/// Returns the script line that sets a calculation's parameters.
fn set_parameters(name: &str, parameters: &HashParameters) -> String {
    match parameters {
        HashParameters::Crc(crc) => format!(
            "set_crc{}_parameters {name} {:#x} {:#x} {:#x} {} {}\n",
            crc.width, crc.polynomial, crc.initial, crc.xor_out, crc.reflect_in, crc.reflect_out
        ),
        HashParameters::Toeplitz(key) => format!("set_toeplitz_key {name} {}\n", hex::encode(key)),
    }
}

fn message(error: control::Error) -> String {
    error.message
}

impl Service {
    fn program(&self, text: &str) -> ForwardingConfig {
        ForwardingConfig { device_config: text.as_bytes().to_vec(), ..ForwardingConfig::default() }
    }

    fn check_nobody_primary(&self) -> Result<(), String> {
        match self.handle.with(|control| control.has_primary(self.device)).map_err(message)? {
            true => Err("a controller is primary, and would not know of another program".to_string()),
            false => Ok(()),
        }
    }
}

impl thrift_service::Switch for Service {
    fn device_id(&self) -> u64 {
        self.device
    }

    fn control(&self, f: &mut dyn FnMut(&mut Control)) {
        self.handle.with_device(self.device, f);
    }

    fn config(&self, _: &Schema) -> Result<String, String> {
        let view = self.handle.with(|control| control.config(self.device)).map_err(message)?;
        let ForwardingConfig { name, device_config, .. } = view.ok_or("no program runs")?.config;
        config::json(&self.compiler, &self.options, &name, &device_config)
            .map_err(|refusal| refusal.message().to_string())
    }

    fn check_program(&self, text: &str) -> Result<(), String> {
        self.check_nobody_primary()?;
        let config = self.program(text);
        let preparation = self.handle.with(|control| control.prepare(self.device, config, false)).map_err(message)?;
        self.handle.prepared(preparation).map(drop).map_err(message)
    }

    fn load_program(&self, text: &str) -> Result<(), String> {
        let request = admin::LoadRequest {
            device_id: self.device,
            program: text.as_bytes().to_vec(),
            state: admin::load_request::State::Fresh.into(),
            ..Default::default()
        };
        self.devices.load(&request)?;
        tracing::info!(device = self.device, "program replaced by a thrift client");
        Ok(())
    }

    fn reset(&self) -> Result<(), String> {
        self.check_nobody_primary()?;
        let config = self.handle.with(|control| control.running_config(self.device)).map_err(message)?;
        self.handle.load(self.device, config.ok_or("no program runs")?).map_err(message)?;
        tracing::info!(device = self.device, "program restarted by a thrift client");
        Ok(())
    }

    fn entities(&self) -> Result<String, String> {
        let view = self.handle.with(|control| control.config(self.device)).map_err(message)?;
        let names = Names::new(convert::p4info::to_proto(&view.ok_or("no program runs")?.p4info));
        let (mut found, mut bytes) = (Vec::new(), 0);
        for query in entities::config::queries(&names, true) {
            let query = convert::entity(pb::Entity { entity: Some(query) });
            let open = |control: &mut Control| control.open_read(self.device, &Default::default(), &[query]);
            let opened = self.handle.with_device(self.device, open);
            let (id, results) = opened.map_err(message)?;
            let refused = results.into_iter().find_map(Result::err);
            loop {
                let some = self.handle.with(|control| control.read_on(id, STEP)).map_err(message)?;
                if some.is_empty() {
                    break;
                }
                for entity in some {
                    let entity = convert::entity_to_proto(entity);
                    bytes += entity.encoded_len();
                    found.extend(entity.entity);
                }
                if found.len() > ENTITIES_MAX || bytes > ENTITIES_BYTES_MAX {
                    self.handle.with(|control| control.close_read(id));
                    return Err(format!(
                        "there are more than {ENTITIES_MAX} entities, or more than {} MiB of them; `sluice config save` writes any \
                         number",
                        ENTITIES_BYTES_MAX >> 20
                    ));
                }
            }
            if let Some(error) = refused {
                return Err(error.message);
            }
        }
        let mut text = entities::config::text(&names, &found, true);
        let query = Some(Entity::Calculation(CalculationEntry::default()));
        let read = |control: &mut Control| control.read(self.device, &[query]);
        let (calculations, _) = self.handle.with_device(self.device, read).map_err(message)?;
        for calculation in calculations {
            if let Entity::Calculation(CalculationEntry { name, parameters: Some(parameters) }) = calculation {
                text += &set_parameters(&name, &parameters);
            }
        }
        Ok(text)
    }

    fn ports(&self) -> Vec<Port> {
        let ours = self.switch.ports().into_iter().filter(|port| port.bound_to == self.device);
        let told = ours.map(|port| Port {
            number: port.number,
            up: is_up(&port),
            name: port.name,
            extra: vec![("kind".to_string(), port.kind.to_string())],
        });
        told.collect()
    }

    fn add_port(&self, number: u32, interface: &str) -> Result<(), String> {
        let note = self.devices.add_port(&format!("{number}@{interface}"), self.device)?;
        tracing::info!(port = number, "port added by a thrift client");
        note.into_iter().for_each(|note| tracing::warn!(port = number, "{note}"));
        Ok(())
    }

    fn remove_port(&self, number: u32) -> Result<(), String> {
        if self.devices.of_port(number) != self.device {
            return Err(format!("device {} has no port {number}", self.device));
        }
        self.devices.remove_port(number)?;
        tracing::info!(port = number, "port removed by a thrift client");
        Ok(())
    }

    fn change_queues(&self, port: Option<u32>, queue: Option<u8>, setting: QueueSetting) -> Result<(), String> {
        let ours: Vec<u32> = match port {
            Some(port) if self.devices.of_port(port) == self.device => vec![port],
            Some(port) => return Err(format!("device {} has no port {port}", self.device)),
            None => self.switch.ports().iter().filter(|port| port.bound_to == self.device).map(|p| p.number).collect(),
        };
        self.devices.change_queues(&ours, |config| change_queues(config, queue, setting))?;
        tracing::info!(ports = ?ours, "queues changed by a thrift client");
        Ok(())
    }

    fn event_socket(&self) -> Option<String> {
        self.events.clone()
    }

    fn elapsed_us(&self) -> u64 {
        self.switch.now_us()
    }

    fn record(&self, record: Record<'_>) {
        let private = record.peer.ip().to_canonical().is_loopback();
        let peer = Peer { origin: Origin::Tcp(record.peer), names: Arc::default(), private };
        let entry = Entry {
            method: format!("thrift/{}", record.method),
            what: record.what,
            outcome: record.outcome.to_string(),
            message: record.message.to_string(),
            took: record.took,
            limited: record.outcome != "Ok",
        };
        self.audit.record_blocking(&peer, entry);
    }
}
