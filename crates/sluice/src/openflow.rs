//! `sluice run --openflow`: the first device is an OpenFlow bridge (`crates/bridge`), over the protocols of a P4
//! program.
//!
//! ```text
//!   ovs-ofctl ─▶ management socket ─┐
//!   controllers ◀─▶ tcp, unix ──────┴─ connection threads (`openflow/serve.rs`) ─▶ bridge ◀─ workers
//!   ticker thread: timeouts of flows, changes of ports
//! ```
//!
//! Tests: `tests/py/test_openflow.py`.

mod address;
mod admin;
mod admission;
mod host;
mod kept;
mod programs;
mod serve;
mod standalone;
mod stream;
mod trace;

pub use admin::Admin;
pub use kept::Place;
pub use serve::Server;

use crate::compiler::Compiler;
use crate::compiler::protocol::Wants;
use anyhow::{Context, Result, bail};
use bridge::{Bridge, BridgeOptions};
use control::forwarding::ForwardingConfig;
use datapath::{CacheUse, CodeOptions, EngineKind, Pipeline, Switch};
use frontend::Options;
use grpc::tls::peers::PeerTls;
use host::SwitchHost;
use openflow::message::Desc;
use programs::Programs;
use serve::Peers;
use standalone::Standalone;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Flags of a bridge.
#[derive(clap::Args, Clone, Debug)]
pub struct OpenFlowArgs {
    /// The device of --device-id is an OpenFlow bridge, over the protocols of this program or, without one, of Sluice's own
    /// openflow.p4.
    #[arg(long, value_name = "X.p4", num_args = 0..=1, require_equals = true, conflicts_with = "program")]
    openflow: Option<Option<PathBuf>>,
    /// The bridge's management socket, for ovs-ofctl.
    #[arg(long, value_name = "PATH", requires = "openflow")]
    mgmt: Option<PathBuf>,
    /// A controller: tcp:HOST[:PORT], ssl:HOST[:PORT] and unix:PATH are dialled, ptcp:[PORT][:ADDRESS], pssl:[PORT][:ADDRESS] and
    /// punix:PATH wait for it. The port is 6653 if none is given.
    #[arg(long = "controller", value_name = "TARGET", requires = "openflow")]
    controllers: Vec<String>,
    /// With ssl: and pssl:, the bridge's private key (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["openflow", "certificate", "ca_cert"])]
    private_key: Option<PathBuf>,
    /// With ssl: and pssl:, the bridge's certificate, followed by those of its signers (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["openflow", "private_key", "ca_cert"])]
    certificate: Option<PathBuf>,
    /// With ssl: and pssl:, the certificates of those who sign controllers' certificates (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["openflow", "private_key", "certificate"])]
    ca_cert: Option<PathBuf>,
    /// The bridge's number, 16 hexadecimal digits at most; the device's id if none is given.
    #[arg(long, value_name = "HEX", requires = "openflow", value_parser = parse_datapath)]
    datapath_id: Option<u64>,
    /// While no controller is connected: `secure` keeps the flows, `standalone` forwards as a learning switch does.
    #[arg(long, value_name = "MODE", requires = "openflow", default_value = "standalone", value_parser = ["secure", "standalone"])]
    fail_mode: String,
    /// The flow caches of the bridge and of P4 devices: used as long as they pay (`auto`), `always`, or `never`; by default as
    /// long as they pay for a bridge, and never for P4 devices.
    #[arg(long, value_name = "WHEN", value_parser = parse_use)]
    cache: Option<CacheUse>,
}

fn parse_use(text: &str) -> Result<CacheUse, String> {
    CacheUse::named(text).ok_or_else(|| "caches are used `auto`, `always` or `never`".to_string())
}

fn parse_datapath(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16)
        .map_err(|_| "not a number of 16 hexadecimal digits".to_string())
}

/// A bridge that is to be started, as the command line describes it.
pub struct Wanted {
    path: Option<PathBuf>,
    peers: Peers,
    datapath: Option<u64>,
    cache: CacheUse,
    /// The memory limit of flows, groups and meters, in bytes.
    state_bytes: u64,
}

impl OpenFlowArgs {
    /// Returns when the flow caches of P4 devices are used.
    pub fn cache_use(&self) -> CacheUse {
        self.cache.unwrap_or(CacheUse::Never)
    }

    /// Returns the bridge of the command line, if there is one. `state_bytes` is the value of `--state-memory`.
    ///
    /// # Errors
    /// If a controller's target is wrong, or reachable from other machines without `--insecure`; if a certificate or
    /// key cannot be used.
    pub fn wanted(&self, insecure: bool, state_bytes: u64) -> Result<Option<Wanted>> {
        let Some(path) = &self.openflow else { return Ok(None) };
        let (mut active, mut passive) = (Vec::new(), Vec::new());
        for target in &self.controllers {
            match address::parse(target).map_err(|why| anyhow::anyhow!("--controller {target}: {why}"))? {
                address::Target::Active(one) => active.push(one),
                address::Target::Passive(one) => {
                    if one.is_open() {
                        if !insecure {
                            bail!(
                                "--controller {target}: other machines can connect there without TLS, and may change all that packets \
                                 do; --insecure does it all the same"
                            );
                        }
                        tracing::warn!("{target} is open to other machines without TLS (--insecure)");
                    }
                    passive.push(one);
                }
            }
        }
        let has_tls = active.iter().any(|one| matches!(one, address::Active::Ssl(..)))
            || passive.iter().any(|one| matches!(one, address::Passive::Ssl(_)));
        let tls = match (&self.private_key, &self.certificate, &self.ca_cert) {
            (Some(key), Some(cert), Some(ca)) => Some(Arc::new(PeerTls::load(key, cert, ca)?)),
            _ if has_tls => bail!("--controller ssl: and pssl: need --private-key, --certificate and --ca-cert"),
            _ => None,
        };
        Ok(Some(Wanted {
            path: path.clone(),
            peers: Peers {
                tls,
                management: self.mgmt.clone(),
                active,
                passive,
                is_standalone: self.fail_mode == "standalone",
            },
            datapath: self.datapath_id,
            cache: self.cache.unwrap_or(CacheUse::Auto),
            state_bytes,
        }))
    }
}

/// A running bridge.
pub struct Running {
    bridge: Arc<Bridge>,
    host: Arc<SwitchHost>,
    wanted: Wanted,
    admin: Admin,
    begun: Option<kept::Begun>,
}

impl Wanted {
    /// Compiles the program, restores the stored state, and makes the device run the bridge. `None` if the program was
    /// refused, which has been printed.
    ///
    /// # Errors
    /// If the program cannot be read, is not an `OpenFlowBridge` or cannot be compiled to machine code, or the stored state
    /// does not fit it.
    pub fn begin(
        self,
        switch: &Arc<Switch>,
        device: u64,
        compiler: &Compiler,
        options: &Options,
        code: (&CodeOptions, EngineKind),
        place: Option<Place>,
    ) -> Result<Option<Running>> {
        let text = match &self.path {
            Some(path) => crate::files::bytes(path)?,
            None => bridge::PROTOCOLS.as_bytes().to_vec(),
        };
        let output = match &self.path {
            Some(path) => compiler.compile_file(path, options, Wants::default()),
            None => compiler.compile_text("openflow.p4", bridge::PROTOCOLS, options, Wants::default()),
        };
        let output = output.map_err(|refusal| anyhow::anyhow!("--openflow: {}", refusal.message()))?;
        eprint!("{}", output.messages);
        if output.failed {
            return Ok(None);
        }
        let name = self.path.as_deref().unwrap_or(Path::new("openflow.p4")).display().to_string();
        let program = output.program.with_context(|| format!("{name} has no `main`, so there is nothing to run"))?;
        if program.openflow.is_none() {
            bail!("{name} is not a program of the OpenFlow model: its `main` is no `OpenFlowBridge`");
        }
        let program = Arc::new(program);
        let host = Arc::new(SwitchHost::new(Arc::clone(switch), device));
        let desc = Desc {
            manufacturer: "Sluice".to_string(),
            hardware: "Software switch".to_string(),
            software: env!("CARGO_PKG_VERSION").to_string(),
            serial: "None".to_string(),
            datapath: format!("device {device}, {name}"),
        };
        let datapath = self.datapath.unwrap_or_else(|| host.default_datapath());
        let bridge =
            Bridge::new(&program, Arc::clone(&host) as Arc<dyn bridge::Host>, BridgeOptions { datapath, desc });
        let bridge = Arc::new(bridge.map_err(|why| anyhow::anyhow!("{name}: {why}"))?);
        let flows =
            bridge::processor::Pipeline::new(Arc::clone(&bridge) as Arc<dyn bridge::translate::Control>, &program);
        let flows = flows.map_err(|why| anyhow::anyhow!("{name}: {why}"))?;
        host.set_flows(&flows);
        let programs = Arc::new(Programs::default());
        flows.set_programs(Some(Arc::clone(&programs) as Arc<dyn bridge::processor::ProgramRunner>));
        flows.set_use(self.cache);
        let config = ForwardingConfig { device_config: text, name: name.clone(), ..ForwardingConfig::default() };
        let begun = place.map(|place| kept::begin(place, device, config, &bridge, &programs)).transpose()?;
        // The limit applies from here on: stored state is restored even if it exceeds it.
        bridge.limit_memory(self.state_bytes);
        let admin = Admin {
            device,
            switch: Arc::clone(switch),
            bridge: Arc::clone(&bridge),
            flows: Arc::clone(&flows),
            programs,
        };
        let pipeline = datapath::load_bridge(program, code.1, switch.workers(), code.0, flows)?;
        let pipeline: Arc<Pipeline> = Arc::new(pipeline);
        switch.set_pipeline_of(device, Some(pipeline))?;
        announce!("device {device} is an OpenFlow bridge over {name}, datapath id {datapath:016x}");
        Ok(Some(Running { bridge, host, wanted: self, admin, begun }))
    }
}

impl Running {
    /// Returns the admin interface of the bridge.
    pub fn admin(&self) -> Admin {
        self.admin.clone()
    }

    /// Starts listening for and dialling controllers, and the ticker thread; dropping the result stops them. To be
    /// called once the ports exist.
    ///
    /// # Errors
    /// If a socket cannot be opened.
    pub fn serve(self) -> Result<Server> {
        let Running { bridge, host, wanted, begun, .. } = self;
        host.tell_ports(&bridge);
        let (journaled, is_restored, replaced) = match begun {
            Some(kept::Begun { journaled, is_restored, replaced }) => (Some(journaled), is_restored, replaced),
            None => (None, false, None),
        };
        let standalone = Standalone::new(&bridge, journaled, replaced);
        if wanted.peers.is_standalone && !is_restored {
            standalone.stand_in();
        }
        Server::begin(bridge, host, wanted.peers, standalone, is_restored)
    }
}
