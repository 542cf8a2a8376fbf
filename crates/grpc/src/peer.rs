//! The peer of a connection: where it comes from, and its identity.

pub use admission::PeerKey;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where a connection comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Over TCP.
    Tcp(SocketAddr),
    /// Over the Unix socket, with the kernel's credentials of the process that connected (`SO_PEERCRED`).
    Unix {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
        /// The process, if known.
        pid: Option<i32>,
    },
}

impl Origin {
    /// The key by which limits are counted.
    pub fn key(&self) -> PeerKey {
        match self {
            Origin::Tcp(address) => PeerKey::of_address(address.ip()),
            Origin::Unix { uid, .. } => PeerKey::User(*uid),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Tcp(address) => write!(f, "{address}"),
            Origin::Unix { uid, pid: Some(pid), .. } => write!(f, "uid {uid}, process {pid}"),
            Origin::Unix { uid, pid: None, .. } => write!(f, "uid {uid}"),
        }
    }
}

/// A connection's peer, as far as it is authenticated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Where the connection comes from.
    pub origin: Origin,
    /// The names in its certificate; empty without one.
    pub names: Arc<[Name]>,
    /// Whether the connection is encrypted or local to the machine.
    pub private: bool,
}

/// A name in a certificate.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    /// `CN`, `DNS`, `URI`, `EMAIL` or `IP`.
    pub kind: &'static str,
    /// The name itself.
    pub value: String,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.value)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.names.first() {
            Some(name) => write!(f, "{name} at {}", self.origin),
            None => self.origin.fmt(f),
        }
    }
}

/// The names in a certificate (DER): its subject's common names, then its subject alternative names.
pub fn names_of(certificate: &[u8]) -> Vec<Name> {
    use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
    // The handshake has checked the certificate, so this does not fail.
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let name = |kind, value: &str| Name { kind, value: value.to_string() };
    let common = certificate.subject().iter_common_name().filter_map(|cn| Some(name("CN", cn.as_str().ok()?)));
    let mut names: Vec<Name> = common.collect();
    if let Ok(Some(alternatives)) = certificate.subject_alternative_name() {
        let of = |alternative: &GeneralName<'_>| match alternative {
            GeneralName::DNSName(value) => Some(name("DNS", value)),
            GeneralName::URI(value) => Some(name("URI", value)),
            GeneralName::RFC822Name(value) => Some(name("EMAIL", value)),
            GeneralName::IPAddress(bytes) => {
                let ip = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                let ip = ip.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok()?;
                Some(name("IP", &ip.to_string()))
            }
            _ => None,
        };
        names.extend(alternatives.value.general_names.iter().filter_map(of));
    }
    names
}
