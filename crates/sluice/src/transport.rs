//! How `sluice run` serves gRPC: certificates, limits of messages, keepalive.

use anyhow::{Context, Result};
use grpc::ServeOptions;
use grpc::tls::Tls;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of the connection to controllers.
#[derive(clap::Args, Clone, Debug)]
pub struct TransportArgs {
    /// Serve with TLS: the switch's certificate, followed by those of its signers (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Mutual TLS: only clients with a certificate that one of these signed are let in (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Largest message in either direction, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=2047))]
    grpc_message_max: u16,
    /// Seconds of silence after which a client is asked whether it is still there. One that does not answer for ten seconds is gone.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    grpc_keepalive: u32,
}

impl TransportArgs {
    /// Reads the certificates.
    pub fn options(&self) -> Result<ServeOptions> {
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => {
                Some(Tls::load(cert, key, self.tls_client_ca.as_deref()).context("cannot serve with TLS")?)
            }
            _ => None,
        };
        Ok(ServeOptions {
            tls,
            message_bytes_max: usize::from(self.grpc_message_max) << 20,
            keepalive: Duration::from_secs(u64::from(self.grpc_keepalive)),
            ..ServeOptions::default()
        })
    }

    /// For the line that says where the switch listens.
    pub fn how(&self) -> &'static str {
        match (&self.tls_cert, &self.tls_client_ca) {
            (None, _) => "",
            (Some(_), None) => " (TLS)",
            (Some(_), Some(_)) => " (mutual TLS)",
        }
    }
}
