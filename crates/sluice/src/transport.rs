//! The listeners of `sluice run`: P4Runtime over TCP, the Unix socket with the admin service, metrics; with access
//! control and limits (`docs/access.md`).
//!
//! A TCP address that other machines can reach needs TLS, or `--insecure`, which logs a warning. SIGHUP reloads
//! certificates and roles; errors in them are logged, and the previous ones stay in force.
//!
//! Tests: `tests/py/test_tls.py`, `tests/py/test_access.py`.

use crate::bmv2::names;
use crate::local;
use anyhow::{Context, Result, bail};
use grpc::access::Access;
use grpc::admin::Operator;
use grpc::audit::Audit;
use grpc::metrics::{MetricsOptions, MetricsServer, MetricsSource};
use grpc::tls::Tls;
use grpc::{ConnectionLimits, Handle, ServeOptions, Server};
use std::io::Read as _;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The most bytes of a token's file.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Flags of what the switch listens on.
#[derive(clap::Args, Clone, Debug)]
pub struct TransportArgs {
    /// Where P4Runtime listens; `none` for nowhere.
    #[arg(long, value_name = "ADDR", default_value = local::ADDRESS)]
    grpc: String,
    /// The Unix socket of the admin service, which local commands use, and of P4Runtime; `none` for none. By default
    /// /run/sluice/admin.sock, with the port in its name if that is not 9559.
    #[arg(long, value_name = "PATH")]
    admin: Option<String>,
    /// Go on without that socket if another switch has it.
    #[arg(long, hide = true)]
    admin_if_free: bool,
    /// Listen without TLS where other machines can connect.
    #[arg(long)]
    insecure: bool,
    /// Serve with TLS: the switch's certificate, followed by those of its signers (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Mutual TLS: only clients with a certificate that one of these signed are let in (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Which client certificates may do what, a line each: `CN=NAME admin|p4runtime|read-only`. SIGHUP reads it again.
    #[arg(long, value_name = "FILE", requires = "tls_client_ca")]
    roles: Option<PathBuf>,
    /// Append a record of each change and each refused call to this file.
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Largest message in either direction, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = (grpc::MESSAGE_BYTES_MAX >> 20) as u16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    grpc_message_max: u16,
    /// Memory of all requests in progress, in MiB; one client address can have half of it.
    #[arg(long, value_name = "MIB", default_value_t = (grpc::MEMORY_BYTES_MAX >> 20) as u32, value_parser = clap::value_parser!(u32).range(4..=1_048_576))]
    grpc_memory_max: u32,
    /// Connections that may be open by TCP, and as many on the Unix socket; one client address can have half of them.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(2..=65_536))]
    grpc_connections_max: u32,
    /// Seconds of silence after which a client is asked whether it is still there. One that does not answer for ten seconds is gone.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    grpc_keepalive: u32,
    /// Serve metrics for Prometheus on `http://ADDR/metrics`.
    #[arg(long, value_name = "ADDR")]
    metrics: Option<String>,
    /// Serve metrics with TLS: the certificate, followed by those of its signers (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["metrics", "metrics_tls_key"])]
    metrics_tls_cert: Option<PathBuf>,
    /// The private key of --metrics-tls-cert (PEM).
    #[arg(long, value_name = "FILE", requires = "metrics_tls_cert")]
    metrics_tls_key: Option<PathBuf>,
    /// Metrics are told only to who shows the token in this file: `Authorization: Bearer TOKEN`.
    #[arg(long, value_name = "FILE", requires = "metrics")]
    metrics_token_file: Option<PathBuf>,
}

/// The open listeners; dropping them closes them.
pub struct Listeners {
    server: Option<Server>,
    _metrics: Option<MetricsServer>,
    certificates: Vec<Tls>,
    access: Arc<Access>,
    audit: Audit,
}

/// Files and addresses that were read and checked before anything listens.
pub struct Read {
    tls: Option<Tls>,
    access: Arc<Access>,
    audit: Audit,
    /// The address of P4Runtime; `None` for off.
    grpc: Option<SocketAddr>,
    metrics: Option<ReadMetrics>,
}

struct ReadMetrics {
    address: SocketAddr,
    tls: Option<Tls>,
    token: Option<String>,
}

impl TransportArgs {
    /// Reads certificates, roles and the token, opens the audit log, and checks the addresses.
    ///
    /// # Errors
    /// If one of the files cannot be used, or an address is wrong or needs --insecure.
    pub fn read(&self) -> Result<Read> {
        let tls = self.tls()?;
        let access = match &self.roles {
            Some(file) => Arc::new(Access::load(file).context("--roles")?),
            None => Arc::default(),
        };
        let audit = match &self.audit {
            Some(file) => Audit::to_file(file).with_context(|| format!("--audit: cannot write {}", file.display()))?,
            None => Audit::default(),
        };
        let grpc = match self.grpc.as_str() {
            "none" => None,
            address => Some(socket_address(names::option("--grpc"), address)?),
        };
        if let Some(address) = grpc {
            self.check_private("--grpc", address, tls.is_some())?;
        }
        let metrics = self.metrics.as_ref().map(|address| self.read_metrics(address)).transpose()?;
        Ok(Read { tls, access, audit, grpc, metrics })
    }

    fn read_metrics(&self, address: &str) -> Result<ReadMetrics> {
        let address = socket_address("--metrics", address)?;
        let tls = match self.metrics_tls_cert.as_deref().zip(self.metrics_tls_key.as_deref()) {
            Some((cert, key)) => Some(Tls::load_http1(cert, key).context("cannot serve metrics with TLS")?),
            None => None,
        };
        self.check_private("--metrics", address, tls.is_some())?;
        let token = self.metrics_token_file.as_deref().map(read_token).transpose()?;
        Ok(ReadMetrics { address, tls, token })
    }

    /// Opens the listeners.
    ///
    /// # Errors
    /// If an address or the Unix socket cannot be listened on.
    pub fn serve(
        &self,
        read: Read,
        handle: &Arc<Handle>,
        operator: Arc<dyn Operator>,
        metrics: MetricsSource,
        devices: &[u64],
    ) -> Result<Listeners> {
        let Read { tls, access, audit, grpc, metrics: wanted } = read;
        let options = ServeOptions {
            operator: Some(operator),
            tls: tls.clone(),
            access: Arc::clone(&access),
            audit: audit.clone(),
            connections: ConnectionLimits {
                connections_max: self.grpc_connections_max as usize,
                per_peer_max: self.grpc_connections_max as usize / 2,
                ..ConnectionLimits::default()
            },
            message_bytes_max: usize::from(self.grpc_message_max) << 20,
            memory_bytes_max: u64::from(self.grpc_memory_max) << 20,
            keepalive: Duration::from_secs(u64::from(self.grpc_keepalive)),
            ..ServeOptions::default()
        };
        let server = self.serve_p4runtime(handle, grpc, options, devices)?;
        let mut certificates: Vec<Tls> = tls.into_iter().collect();
        certificates.extend(wanted.as_ref().and_then(|wanted| wanted.tls.clone()));
        let metrics = wanted.map(|wanted| serve_metrics(wanted, metrics)).transpose()?;
        Ok(Listeners { server, _metrics: metrics, certificates, access, audit })
    }

    fn tls(&self) -> Result<Option<Tls>> {
        let Some((cert, key)) = self.tls_cert.as_deref().zip(self.tls_key.as_deref()) else { return Ok(None) };
        Ok(Some(Tls::load(cert, key, self.tls_client_ca.as_deref()).context("cannot serve with TLS")?))
    }

    fn serve_p4runtime(
        &self,
        handle: &Arc<Handle>,
        wanted: Option<SocketAddr>,
        options: ServeOptions,
        devices: &[u64],
    ) -> Result<Option<Server>> {
        let wants_socket = self.admin.as_deref() != Some("none");
        if wanted.is_none() && !wants_socket {
            return Ok(None);
        }
        // Bound after P4Runtime listens, because the socket's name contains the port.
        let mut refused = None;
        let socket = |address| {
            if !wants_socket {
                return Ok(None);
            }
            match local::bind(self.admin.as_deref().map(Path::new), address) {
                Ok(socket) => Ok(Some(socket)),
                Err(error) if self.admin_if_free => {
                    let why = error.root_cause();
                    tracing::warn!("commands of Sluice do not find this switch by its socket: {why}");
                    Ok(None)
                }
                Err(error) => {
                    refused = Some(error);
                    Err(std::io::Error::other("the admin socket cannot be made"))
                }
            }
        };
        let server = grpc::serve_on(wanted, socket, Arc::clone(handle), options);
        if let Some(error) = refused {
            return Err(error);
        }
        let server = server.with_context(|| {
            let without = if names::are_bmv2s() { "simple_switch" } else { "--grpc none" };
            let option = names::option("--grpc");
            format!(
                "cannot serve P4Runtime on {} ({option} chooses another address, {without} does without)",
                self.grpc
            )
        })?;
        let ids: Vec<String> = devices.iter().map(u64::to_string).collect();
        if wanted.is_some() {
            announce!("P4Runtime on {}{}, device {}", server.address(), self.how(), ids.join(", "));
        }
        if let Some(path) = server.socket() {
            announce!("admin service on {}", path.display());
        }
        Ok(Some(server))
    }

    /// Refuses an address that other machines can reach without TLS, unless `--insecure` is set.
    fn check_private(&self, option: &'static str, address: SocketAddr, has_tls: bool) -> Result<()> {
        if has_tls || address.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        let cert = if option == "--grpc" { "--tls-cert" } else { "--metrics-tls-cert" };
        if !self.insecure {
            bail!(
                "{option} {address}: other machines can connect there, and without TLS everybody can read and change what is sent; \
                 {cert} serves with TLS, --insecure does without"
            );
        }
        let (option, insecure) = (names::option(option), names::insecure());
        tracing::warn!("{option} {address} is open to other machines without TLS ({insecure})");
        Ok(())
    }

    /// Whether `--insecure` is set: addresses that other machines can reach may go without TLS.
    pub fn insecure(&self) -> bool {
        self.insecure
    }

    /// Whether clients need a certificate.
    pub fn wants_certificates(&self) -> bool {
        self.tls_client_ca.is_some()
    }

    /// Describes the transport security, for the line about the address.
    fn how(&self) -> &'static str {
        match (&self.tls_cert, &self.tls_client_ca) {
            (None, _) => "",
            (Some(_), None) => " (TLS)",
            (Some(_), Some(_)) => " (mutual TLS)",
        }
    }
}

impl Listeners {
    /// Reloads certificates and roles, reopens the audit log, and resets the log filter that `sluice log` changed.
    pub fn reload(&self) {
        let certificates = self.certificates.iter().map(|tls| tls.reload().map_err(|e| e.to_string()));
        let access = self.access.reload().map_err(|e| e.to_string());
        let audit = self.audit.reopen().map_err(|e| format!("the audit log cannot be opened again: {e}"));
        let mut failed = false;
        for error in certificates.chain([access, audit, crate::log::reset()]).filter_map(Result::err) {
            failed = true;
            tracing::error!("SIGHUP: {error}; what was in force stays");
        }
        if !failed {
            tracing::info!("SIGHUP: certificates, roles, audit log and log level are read again");
        }
    }

    /// Returns the audit log.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Closes P4Runtime and the Unix socket.
    pub fn shutdown(self) {
        if let Some(server) = self.server {
            server.shutdown();
        }
    }
}

fn serve_metrics(wanted: ReadMetrics, source: MetricsSource) -> Result<MetricsServer> {
    let ReadMetrics { address, tls, token } = wanted;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let options = MetricsOptions { tls, token, ..MetricsOptions::default() };
    let server = grpc::metrics::serve(address, source, options)
        .with_context(|| format!("cannot serve metrics on {address} (--metrics chooses another address)"))?;
    announce!("metrics on {scheme}://{}/metrics", server.address());
    Ok(server)
}

fn read_token(file: &Path) -> Result<String> {
    let shown = file.display();
    let mut text = String::new();
    let read = std::fs::File::open(file).and_then(|file| file.take(TOKEN_BYTES_MAX + 1).read_to_string(&mut text));
    if read.with_context(|| format!("--metrics-token-file: cannot read {shown}"))? as u64 > TOKEN_BYTES_MAX {
        bail!("--metrics-token-file: {shown} is longer than {TOKEN_BYTES_MAX} bytes, the limit of a token");
    }
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        bail!("--metrics-token-file: {shown} holds no token: one line of printable ASCII without blanks");
    }
    Ok(token.to_string())
}

/// Resolves HOST:PORT.
///
/// # Errors
/// If it has another form or cannot be resolved; `option` is named in the message.
pub fn socket_address(option: &str, address: &str) -> Result<SocketAddr> {
    address.to_socket_addrs().ok().and_then(|mut all| all.next()).with_context(|| {
        format!("{option}: `{address}` is not an address: a host and a port are needed, as in 127.0.0.1:9559")
    })
}
