//! Mutual TLS in which either side may dial: OpenFlow's `ssl:` and `pssl:` (ovs-vswitchd(8), "Public Key Infrastructure
//! Options").
//!
//! As in Open vSwitch, a side is trusted if its certificate is signed by one of the configured authorities, which must
//! sign for this network only. Certificates made by ovs-pki(8) name no host. A certificate that names hosts (DNS names
//! or IP addresses, RFC 5280) must name the host that was dialled.
//!
//! Tests: below; `tests/py/test_openflow_tls.py` with `ovs-ofctl` and OpenSSL.

use super::{TlsError, authorities, bad, certificates, no_pair, private_key};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, DnsName, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// One side of a TLS connection: bytes in and out, without a socket.
pub use rustls::Connection;

/// A side's identity and the authorities it trusts; shared by all of its connections.
#[derive(Debug)]
pub struct PeerTls {
    key: PathBuf,
    cert: PathBuf,
    ca: PathBuf,
    now: RwLock<Configs>,
}

#[derive(Clone, Debug)]
struct Configs {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl PeerTls {
    /// Loads a private key, its certificate (with its chain), and the certificates of the authorities that sign the
    /// other sides' certificates.
    ///
    /// # Errors
    /// The file that cannot be used, and why.
    pub fn load(key: &Path, cert: &Path, ca: &Path) -> Result<PeerTls, TlsError> {
        let now = RwLock::new(read(key, cert, ca)?);
        Ok(PeerTls { key: key.to_path_buf(), cert: cert.to_path_buf(), ca: ca.to_path_buf(), now })
    }

    /// Reads the files again, for connections from now on.
    ///
    /// # Errors
    /// The file that cannot be used, and why; nothing has changed then.
    pub fn reload(&self) -> Result<(), TlsError> {
        let new = read(&self.key, &self.cert, &self.ca)?;
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    fn now(&self) -> Configs {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The client side of a connection to `host`, a name or an address.
    ///
    /// # Errors
    /// `host` is neither.
    pub fn dials(&self, host: &str) -> Result<Connection, String> {
        let name = ServerName::try_from(host.to_string()).map_err(|_| format!("{host} is no name of a host"))?;
        ClientConnection::new(self.now().client, name).map(Connection::from).map_err(|error| error.to_string())
    }

    /// The server side of a connection.
    ///
    /// # Errors
    /// The library refuses the configuration.
    pub fn answers(&self) -> Result<Connection, String> {
        ServerConnection::new(self.now().server).map(Connection::from).map_err(|error| error.to_string())
    }

    /// Explains an error of a connection to the operator, and names the file responsible.
    pub fn explain(&self, error: &Error) -> String {
        let ca = self.ca.display();
        match error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                format!("its certificate is not signed by an authority of {ca}")
            }
            Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => format!("its certificate is for other hosts ({error})"),
            Error::NoCertificatesPresented => "it shows no certificate".to_string(),
            Error::AlertReceived(alert) => {
                format!("it refuses this side's certificate or TLS version (alert {alert:?}; {})", self.cert.display())
            }
            Error::InvalidMessage(_) => format!("it does not speak TLS ({error})"),
            error => error.to_string(),
        }
    }
}

fn read(key: &Path, cert: &Path, ca: &Path) -> Result<Configs, TlsError> {
    let (_, private) = private_key(key)?;
    let (_, chain) = certificates(cert)?;
    let (_, roots) = authorities(ca, "other sides")?;
    let (provider, roots) = (Arc::new(ring::default_provider()), Arc::new(roots));
    let algorithms = provider.signature_verification_algorithms;
    let signed = SignedBy { roots: Arc::clone(&roots), algorithms };
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(cert, error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(signed))
        .with_client_auth_cert(chain.clone(), private.clone_key())
        .map_err(|error| no_pair(cert, key, error))?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
    let verifier = verifier.map_err(|error| bad(ca, format!("cannot be used to check other sides: {error}")))?;
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(cert, error.to_string()))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, private)
        .map_err(|error| no_pair(cert, key, error))?;
    Ok(Configs { client: Arc::new(client), server: Arc::new(server) })
}

/// Trusts certificates that an authority has signed; if a certificate names hosts, only for one of them.
#[derive(Debug)]
struct SignedBy {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Whether a certificate names hosts. True if it cannot be parsed.
fn names_hosts(cert: &CertificateDer<'_>) -> bool {
    let Ok((_, cert)) = X509Certificate::from_der(cert) else { return true };
    let names = cert.subject_alternative_name().ok().flatten();
    names.is_some_and(|names| {
        names.value.general_names.iter().any(|name| match name {
            GeneralName::DNSName(name) => DnsName::try_from(name.trim_start_matches("*.")).is_ok(),
            GeneralName::IPAddress(_) => true,
            _ => false,
        })
    })
}

impl ServerCertVerifier for SignedBy {
    fn verify_server_cert(
        &self,
        cert: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(cert)?;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, self.algorithms.all)?;
        if names_hosts(cert) {
            verify_server_name(&parsed, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let nowhere = |name: &str| PathBuf::from(format!("/nowhere/{name}"));
        let error = PeerTls::load(&nowhere("key.pem"), &nowhere("cert.pem"), &nowhere("ca.pem")).unwrap_err();
        assert!(error.to_string().starts_with("cannot read /nowhere/key.pem: No such file"), "{error}");
    }
}
