//! TLS configuration from PEM files: certificates of servers and of clients, for both sides of a connection.
//!
//! All errors in a file are found when it is loaded, before anything listens, and the error names the file; tonic would
//! only report «transport error». Tests: below, and `tests/py/test_tls.py` with an unmodified client.

pub mod peers;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, crypto};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::{PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// Why a certificate or key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file does not exist or is not readable.
    #[error("cannot read {}: {cause}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        cause: std::io::Error,
    },
    /// The file does not contain what it should.
    #[error("{}: {problem}", .file.display())]
    Bad {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// A server's TLS configuration: its identity, and the clients that it admits. Cheap to clone; clones share the
/// configuration in force.
#[derive(Clone, Debug)]
pub struct Tls {
    files: Arc<Files>,
    now: Arc<RwLock<Arc<ServerConfig>>>,
}

#[derive(Debug)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    /// The protocols offered by ALPN (RFC 7301).
    protocols: Vec<Vec<u8>>,
}

impl Tls {
    /// Loads the configuration of an HTTP/2 server: a certificate (with its chain), its key and, for mutual TLS, the
    /// certificates of the authorities that sign clients' certificates. Then only clients with such a certificate are
    /// admitted.
    ///
    /// # Errors
    ///
    /// The file that cannot be used, and why.
    pub fn load(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Tls, TlsError> {
        Tls::of(cert, key, client_ca, b"h2")
    }

    /// As [`Tls::load`], for an HTTP/1 server without client certificates.
    pub fn load_http1(cert: &Path, key: &Path) -> Result<Tls, TlsError> {
        Tls::of(cert, key, None, b"http/1.1")
    }

    fn of(cert: &Path, key: &Path, client_ca: Option<&Path>, protocol: &[u8]) -> Result<Tls, TlsError> {
        let files = Files {
            cert: cert.to_path_buf(),
            key: key.to_path_buf(),
            client_ca: client_ca.map(Path::to_path_buf),
            protocols: vec![protocol.to_vec()],
        };
        let now = Arc::new(RwLock::new(Arc::new(files.read()?)));
        Ok(Tls { files: Arc::new(files), now })
    }

    /// Reads the files again, for future connections.
    ///
    /// # Errors
    ///
    /// The file that cannot be used, and why; the old configuration then remains in force.
    pub fn reload(&self) -> Result<(), TlsError> {
        let new = Arc::new(self.files.read()?);
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// Whether clients must present a certificate.
    pub fn knows_clients(&self) -> bool {
        self.files.client_ca.is_some()
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Files {
    fn read(&self) -> Result<ServerConfig, TlsError> {
        let Files { cert, key, client_ca, protocols } = self;
        let (_, chain) = certificates(cert)?;
        let (_, private) = private_key(key)?;
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(cert, error.to_string()))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let (_, roots) = authorities(ca, "clients")?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                let verifier =
                    verifier.map_err(|error| bad(ca, format!("cannot be used to check clients: {error}")))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, private).map_err(|error| no_pair(cert, key, error))?;
        config.alpn_protocols.clone_from(protocols);
        Ok(config)
    }
}

/// A client's TLS configuration: the authorities it trusts, and its identity.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: ClientTlsConfig,
}

impl ClientTls {
    /// Loads the certificates of the authorities that sign the server's certificate and, for mutual TLS, the client's
    /// certificate and key.
    ///
    /// # Errors
    ///
    /// The file that cannot be used, and why.
    pub fn load(ca: &Path, identity: Option<(&Path, &Path)>) -> Result<ClientTls, TlsError> {
        let (ca_pem, roots) = authorities(ca, "the switch")?;
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca_pem));
        if let Some((cert, key)) = identity {
            let (cert_pem, chain) = certificates(cert)?;
            let (key_pem, private) = private_key(key)?;
            let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| bad(cert, error.to_string()))?;
            let checked = builder.with_root_certificates(roots).with_client_auth_cert(chain, private);
            checked.map_err(|error| no_pair(cert, key, error))?;
            config = config.identity(Identity::from_pem(cert_pem, key_pem));
        }
        Ok(ClientTls { config })
    }

    pub(crate) fn config(&self) -> ClientTlsConfig {
        self.config.clone()
    }
}

fn bad(file: &Path, problem: String) -> TlsError {
    TlsError::Bad { file: file.to_path_buf(), problem }
}

/// The error for a certificate and a key that do not match.
fn no_pair(cert: &Path, key: &Path, error: rustls::Error) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            bad(key, format!("this is not the private key of the certificate in {}", cert.display()))
        }
        error => bad(cert, error.to_string()),
    }
}

/// A file's contents and the private key in it.
fn private_key(file: &Path) -> Result<(Vec<u8>, PrivateKeyDer<'static>), TlsError> {
    let pem = read(file)?;
    match PrivateKeyDer::from_pem_slice(&pem) {
        Ok(key) => Ok((pem, key)),
        Err(error) => Err(bad(file, format!("no private key in PEM form is in it ({error})"))),
    }
}

/// A file's contents, and its certificates as trusted authorities.
fn authorities(file: &Path, whose: &str) -> Result<(Vec<u8>, RootCertStore), TlsError> {
    let (pem, found) = certificates(file)?;
    let mut roots = RootCertStore::empty();
    for authority in found {
        roots.add(authority).map_err(|error| bad(file, format!("cannot be used to check {whose}: {error}")))?;
    }
    Ok((pem, roots))
}

/// Limit on the bytes of a certificate, key or roles file: room for hundreds of certificates, or thousands of lines.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The contents of a file of at most [`FILE_BYTES_MAX`]. Reads no further, so it returns even for a device, which has
/// no length.
pub(crate) fn read_bounded(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    std::fs::File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut all)?;
    if all.len() as u64 > FILE_BYTES_MAX {
        let why = format!("it is longer than {FILE_BYTES_MAX} bytes, which is the limit");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, why));
    }
    Ok(all)
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    read_bounded(file).map_err(|cause| TlsError::Unreadable { file: file.to_path_buf(), cause })
}

/// A file's contents and the certificates in it, of which there is at least one.
fn certificates(file: &Path) -> Result<(Vec<u8>, Vec<CertificateDer<'static>>), TlsError> {
    let pem = read(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| bad(file, format!("is no PEM file ({error})")))?;
    if found.is_empty() {
        return Err(bad(file, "no certificate in PEM form (`-----BEGIN CERTIFICATE-----`) is in it".to_string()));
    }
    Ok((pem, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error for files with these contents.
    fn problem(cert: &str, key: &str) -> String {
        let folder = std::env::temp_dir().join(format!("sluice-tls-{}-{:p}", std::process::id(), cert));
        std::fs::create_dir_all(&folder).unwrap();
        let (cert_file, key_file) = (folder.join("cert.pem"), folder.join("key.pem"));
        std::fs::write(&cert_file, cert).unwrap();
        std::fs::write(&key_file, key).unwrap();
        let message = Tls::load(&cert_file, &key_file, None).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        message
    }

    #[test]
    fn files_that_are_not_there_or_not_pem_are_named() {
        let message = Tls::load(Path::new("/nowhere/cert.pem"), Path::new("/nowhere/key.pem"), None).unwrap_err();
        assert!(message.to_string().starts_with("cannot read /nowhere/cert.pem: No such file"), "{message}");
        assert!(problem("hello", "").contains("cert.pem: no certificate in PEM form"));
        let cert = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        assert!(problem(cert, "hello").contains("key.pem: no private key in PEM form"));
        let broken = "-----BEGIN CERTIFICATE-----\n???\n-----END CERTIFICATE-----\n";
        assert!(problem(broken, "").contains("cert.pem: is no PEM file"), "{}", problem(broken, ""));
    }
    #[test]
    fn a_client_says_which_of_its_files_is_wrong() {
        let folder = std::env::temp_dir().join(format!("sluice-client-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (ca, key) = (folder.join("ca.pem"), folder.join("ca.key"));
        std::fs::write(&ca, "hello").unwrap();
        let message = ClientTls::load(&ca, None).unwrap_err().to_string();
        assert!(message.contains("ca.pem: no certificate in PEM form"), "{message}");
        let message = ClientTls::load(&key, None).unwrap_err().to_string();
        assert!(message.starts_with("cannot read ") && message.contains("ca.key"), "{message}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
