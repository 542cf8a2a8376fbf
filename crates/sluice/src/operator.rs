//! The admin service of a running switch: the server's side of `sluice stats`, `load`, `trace`, `capture`, and of
//! commands about several devices.
//!
//! Threads: the blocking threads of the server, several at once.

use crate::compiler::Compiler;
use crate::devices::Devices;
use crate::live::{PacketFilter, Ports, Tracer};
use crate::stats;
use crate::successor::Successors;
use control::arbitration::RoleInfo;
use control::reconcile::Report;
use datapath::tap::{TapConfig, TappedFrame};
use datapath::{PortOf, QueuesOf, Switch};
use grpc::Handle;
use grpc::admin::{AdminStats, Operator, Stream};
use messages::sluice::v1 as pb;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most frames in one message of a capture.
const FRAMES_MAX: usize = 256;
/// The bytes after which a message of a capture is sent; the last frame may exceed them.
const FRAMES_BYTES_MAX: usize = 256 << 10;
/// How often a stream without packets checks whether its client is still connected.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long workers may take to add the counts that their flow caches hold back.
const SETTLE_MAX: Duration = Duration::from_secs(1);

const NO_BRIDGE: &str = "no device is an OpenFlow bridge; `sluice run --openflow` makes one";

/// A switch and its control plane.
pub struct SwitchOperator {
    /// The data plane.
    pub switch: Arc<Switch>,
    /// The control plane.
    pub handle: Arc<Handle>,
    /// The devices.
    pub devices: Arc<Devices>,
    /// Compiles running programs again, for traces.
    pub compiler: Arc<Compiler>,
    /// The options with which the switch compiles programs.
    pub options: frontend::Options,
    /// Starts the process that takes over.
    pub successors: Arc<Successors>,
    /// The device that is an OpenFlow bridge, if one is.
    pub bridge: Option<crate::openflow::Admin>,
}

impl Operator for SwitchOperator {
    fn stats(&self, watch: Duration) -> AdminStats {
        if !watch.is_zero() {
            self.switch.watch(watch);
        }
        let mut stats = stats::collect(&self.switch);
        self.devices.name_all(&mut stats.devices);
        self.handle.with(|control| {
            for device in &mut stats.devices {
                // A device that was removed meanwhile has no roles.
                let roles = control.roles(device.id).unwrap_or_default();
                device.roles = roles.into_iter().map(role).collect();
                if device.program.is_empty() {
                    device.program = control.program_name(device.id).unwrap_or_default().to_string();
                }
            }
        });
        stats
    }

    fn load(&self, request: pb::LoadRequest) -> Result<pb::LoadResponse, String> {
        let start = Instant::now();
        let device = request.device_id;
        let (new, report) = self.devices.load(&request)?;
        let took = start.elapsed();
        let what = if new { "device made by the operator" } else { "program replaced by the operator" };
        tracing::info!(device, took_us = took.as_micros() as u64, "{what}");
        Ok(pb::LoadResponse { new_device: new, ..response(report, took.as_micros() as u64) })
    }

    fn restart(&self) -> Result<u32, String> {
        self.successors.start(&self.handle)
    }

    fn unload(&self, request: pb::UnloadRequest) -> Result<(), String> {
        self.devices.unload(request.device_id, request.force)?;
        tracing::info!(device = request.device_id, "device removed by the operator");
        Ok(())
    }

    fn bind(&self, request: pb::BindRequest) -> Result<(), String> {
        self.devices.bind(&request.ports, request.device_id, request.force)?;
        tracing::info!(device = request.device_id, ports = ?request.ports, "ports bound by the operator");
        Ok(())
    }

    fn chain(&self, request: pb::ChainRequest) -> Result<(), String> {
        let end = |end: Option<pb::DevicePort>| end.map(|end| PortOf { device: end.device_id, port: end.port });
        let from = end(request.from).ok_or("the port where the link begins is missing")?;
        if request.remove {
            self.devices.unchain(from, request.both_ways, request.force)?;
            tracing::info!(%from, "link removed by the operator");
            return Ok(());
        }
        let to = end(request.to).ok_or("the port where the link ends is missing")?;
        self.devices.chain(from, to, request.both_ways, request.force)?;
        tracing::info!(%from, %to, "link made by the operator");
        Ok(())
    }

    fn port(&self, request: pb::PortRequest) -> Result<pb::PortResponse, String> {
        use pb::port_request::Change;
        let change = request.change.ok_or("it is not said what is to be changed")?;
        let note = match change {
            Change::Add(add) => {
                let note = self.devices.add_port(&add.port, add.device_id)?;
                tracing::info!(port = add.port, "port added by the operator");
                note
            }
            Change::Remove(number) => {
                self.devices.remove_port(number)?;
                tracing::info!(port = number, "port removed by the operator");
                None
            }
            Change::Service(pb::port_request::Service { number, up }) => {
                let note = self.devices.set_in_service(number, up)?;
                let what = if up { "into" } else { "out of" };
                tracing::info!(port = number, "port taken {what} service by the operator");
                note
            }
            Change::Set(set) => {
                let note = self.devices.set_port(set.number, &set.options)?;
                tracing::info!(port = set.number, options = ?set.options, "port opened again by the operator");
                note
            }
        };
        Ok(pb::PortResponse { note: note.unwrap_or_default() })
    }

    fn qos(&self, request: pb::QosRequest) -> Result<pb::QosResponse, String> {
        if let Some(tenant) = request.tenant {
            let config = request.config.map(|text| crate::queues::parse_tenant(&text)).transpose()?;
            let what = if config.is_none() { "removed" } else { "configured" };
            self.devices.set_tenant(&tenant, config)?;
            tracing::info!(tenant, "tenant {what} by the operator");
            return Ok(pb::QosResponse::default());
        }
        let config = request.config.map(|text| crate::queues::parse(&text)).transpose()?;
        let taken = config.is_none();
        let of = match request.device_id {
            Some(device) => QueuesOf::Link(PortOf { device, port: request.port }),
            None => QueuesOf::Port(request.port),
        };
        let note = self.devices.set_queues(of, config)?;
        let what = if taken { "taken away" } else { "configured" };
        tracing::info!("queues of {of} {what} by the operator");
        Ok(pb::QosResponse { note: note.unwrap_or_default() })
    }

    fn program(&self, request: pb::ProgramRequest) -> Result<pb::ProgramResponse, String> {
        self.bridge.as_ref().ok_or(NO_BRIDGE)?.program(request)
    }

    fn cache(&self, request: pb::CacheRequest) -> Result<pb::CacheResponse, String> {
        match &self.bridge {
            Some(bridge) if request.device_id.is_none_or(|device| bridge.device() == device) => bridge.cache(request),
            _ => self.cache_of_program(request),
        }
    }

    fn log(&self, filter: &str) -> Result<String, String> {
        if !filter.is_empty() {
            crate::log::set(filter)?;
            tracing::info!("log changed by the operator: {filter}");
        }
        Ok(crate::log::now())
    }

    fn trace(&self, request: pb::TraceRequest, to: &Stream<pb::TraceResponse>) -> Result<(), String> {
        let device = request.device_id;
        let packet_filter = PacketFilter::compile(&request.packet_filter)?;
        let tracer = match self.bridge.as_ref().filter(|bridge| bridge.device() == device) {
            Some(bridge) => {
                if !request.filter.is_empty() {
                    return Err(
                        "--filter is for P4 programs; a bridge's packets are chosen by --pcap-filter".to_string()
                    );
                }
                if request.tree {
                    return Err(
                        "--tree is for P4 programs: a bridge chooses buckets and ports by hashes of the packet"
                            .to_string(),
                    );
                }
                AnyTracer::Bridge(bridge, packet_filter)
            }
            None => AnyTracer::Program(Box::new(self.tracer(device, &request.filter, packet_filter)?)),
        };
        let send = |port, frame: &[u8]| -> Result<bool, String> {
            Ok(tracer.trace(port, frame, request.tree)?.into_iter().all(|trace| to.send(trace)))
        };
        if !request.frame.is_empty() {
            let port = request.port.ok_or("a frame needs the port that it comes from")?;
            if !tracer.wants(port, &request.frame) {
                return Ok(());
            }
            return send(port, &request.frame).map(drop);
        }
        let wanted = TapConfig {
            device: Some(device),
            ports: request.port.into_iter().collect(),
            snap_length: 0,
            received_only: true,
        };
        let tapped = self.switch.tap(wanted).map_err(|e| e.to_string())?;
        let mut left = request.count.max(1);
        while left > 0 && !to.is_closed() {
            let Some(frame) = tapped.next_within(POLL_INTERVAL) else { continue };
            if tracer.wants(frame.port, &frame.data) {
                if !send(frame.port, &frame.data)? {
                    break;
                }
                left -= 1;
            }
        }
        Ok(())
    }

    fn capture(&self, request: pb::CaptureRequest, to: &Stream<pb::CaptureResponse>) -> Result<(), String> {
        let packet_filter = PacketFilter::compile(&request.packet_filter)?;
        let wanted = TapConfig {
            device: Some(request.device_id).filter(|id| *id != 0),
            ports: request.ports.into_iter().collect(),
            // The filter needs whole frames.
            snap_length: if request.packet_filter.is_empty() { request.snap_length } else { 0 },
            received_only: false,
        };
        let tapped = self.switch.tap(wanted).map_err(|e| e.to_string())?;
        let frame = |mut f: TappedFrame| {
            if request.snap_length > 0 {
                f.data.truncate(request.snap_length as usize);
            }
            pb::capture_response::Frame {
                port: f.port,
                sent: f.sent,
                time_ns: f.time.as_nanos() as u64,
                length: f.length,
                data: f.data,
                device_id: f.device,
            }
        };
        while !to.is_closed() {
            let Some(first) = tapped.next_within(POLL_INTERVAL) else { continue };
            let (mut frames, mut bytes) = (Vec::new(), 0);
            let mut next = Some(first);
            while let Some(tapped_frame) = next {
                if packet_filter.accepts(&tapped_frame.data) {
                    bytes += tapped_frame.data.len();
                    frames.push(frame(tapped_frame));
                }
                let room = frames.len() < FRAMES_MAX && bytes < FRAMES_BYTES_MAX;
                next = if room { tapped.next_within(Duration::ZERO) } else { None };
            }
            if frames.is_empty() {
                continue;
            }
            to.send(pb::CaptureResponse { frames, lost: tapped.lost() });
        }
        Ok(())
    }
}

/// A tracer for a P4 device or a bridge.
enum AnyTracer<'a> {
    Program(Box<Tracer>),
    Bridge(&'a crate::openflow::Admin, PacketFilter),
}

impl AnyTracer<'_> {
    /// Whether a frame passes the filters.
    fn wants(&self, port: u32, frame: &[u8]) -> bool {
        match self {
            AnyTracer::Program(tracer) => tracer.wants(port, frame),
            AnyTracer::Bridge(_, filter) => filter.accepts(frame),
        }
    }

    fn trace(&self, port: u32, frame: &[u8], tree: bool) -> Result<Vec<pb::TraceResponse>, String> {
        match self {
            AnyTracer::Program(tracer) => tracer.trace(port, frame, tree),
            AnyTracer::Bridge(bridge, _) => bridge.trace(port, frame).map(|trace| vec![trace]),
        }
    }
}

impl SwitchOperator {
    /// Returns a tracer for the program that runs on a device.
    fn tracer(&self, device: u64, filter: &str, packet_filter: PacketFilter) -> Result<Tracer, String> {
        let config = self.handle.with(|control| control.running_config(device)).map_err(|e| e.message)?;
        let (config, pipeline) = config.zip(self.switch.pipeline_of(device)).ok_or("no program runs")?;
        let text = (config.name.as_str(), config.device_config.as_slice());
        let now_us = self.switch.now_us();
        let tracer = Tracer::new((&self.compiler, &self.options), pipeline, text, filter, packet_filter, now_us)?;
        Ok(tracer.with_ports(self.ports_of(device)))
    }

    /// Returns the ports of a device.
    fn ports_of(&self, device: u64) -> Ports {
        let ports = self.switch.ports();
        let ours = || ports.iter().filter(|port| port.bound_to == device);
        let links = self.switch.links().into_iter().map(|link| link.from);
        let links = links.filter(|end| end.device == device).map(|end| end.port);
        Ports {
            there: ours().map(|port| port.number).chain(links).chain(self.switch.cpu_port_of(device)).collect(),
            out_of_service: ours().filter(|port| !port.in_service).map(|port| port.number).collect(),
        }
    }
}

fn role(info: RoleInfo) -> pb::Role {
    let (name, id) = (info.role.name, info.role.id);
    let election_id = info.election_id.map(|id| pb::ElectionId { high: (id >> 64) as u64, low: id as u64 });
    pb::Role { name, id, has_primary: info.has_primary, election_id, clients: info.clients as u32 }
}

fn response(report: Report, took_us: u64) -> pb::LoadResponse {
    let outcome = |o: control::reconcile::Outcome| pb::Outcome {
        kind: o.object.kind.noun().to_string(),
        name: o.object.name,
        fate: o.object.fate.name().to_string(),
        notes: o.object.notes,
        carried: o.carried,
        lost: o.lost,
        reason: o.reason.unwrap_or_default(),
    };
    pb::LoadResponse {
        new_device: false,
        outcomes: report.outcomes.into_iter().map(outcome).collect(),
        replication: report.replication,
        replication_lost: report.replication_lost,
        took_us,
    }
}

impl SwitchOperator {
    /// Shows or empties the flow caches of a P4 device.
    fn cache_of_program(&self, request: pb::CacheRequest) -> Result<pb::CacheResponse, String> {
        let device = match (request.device_id, &self.switch.devices()[..]) {
            (Some(device), _) => device,
            (None, [only]) => *only,
            (None, _) => return Err("there are several devices; say which one: --device-id".to_string()),
        };
        let pipeline = self.switch.pipeline_of(device).ok_or_else(|| format!("no program runs on device {device}"))?;
        let cache = pipeline.flow_cache().ok_or_else(|| {
            format!(
                "the program of device {device} has no flow cache: its packets wait in queues, or it is interpreted"
            )
        })?;
        if request.show.is_some() {
            return Err(format!(
                "the megaflows of device {device}, which runs a P4 program, are not listed; `sluice cache stats` counts them"
            ));
        }
        if request.flush {
            cache.flush();
            tracing::info!(device, "flow caches emptied by the operator");
        }
        cache.settle(SETTLE_MAX);
        let worker = |(number, stats): (usize, datapath::CacheStats)| pb::cache_response::Worker {
            number: number as u32,
            exact_hits: stats.front_hits,
            megaflow_hits: stats.mask_hits,
            misses: stats.misses,
            bypassed: stats.bypassed,
            entries: stats.megaflows,
            masks: stats.masks,
            limit: stats.limit,
            evictions: stats.evictions,
            revalidations: stats.revalidations,
            on: stats.is_on,
            ticks_without: stats.ticks.0.unwrap_or(0.0),
            ticks_with: stats.ticks.1.unwrap_or(0.0),
        };
        let refusal = |(why, packets)| pb::cache_response::Refusal { why, packets };
        Ok(pb::CacheResponse {
            r#use: cache.cache_use().name().to_string(),
            workers: cache.stats().into_iter().map(worker).collect(),
            refusals: cache.refusals().into_iter().map(refusal).collect(),
            ..pb::CacheResponse::default()
        })
    }
}
