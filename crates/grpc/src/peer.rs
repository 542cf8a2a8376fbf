//! Who is at the other end of a connection.

pub use places::PeerKey;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where a connection comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// By TCP.
    Tcp(SocketAddr),
    /// By the Unix socket: what the kernel says about the process that connected (`SO_PEERCRED`).
    Unix {
        /// Its user.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Its process, if known.
        pid: Option<i32>,
    },
}

impl Origin {
    /// What its limits are counted by.
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

/// A connection's peer, as far as it has shown who it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Where it comes from.
    pub origin: Origin,
    /// What its certificate says that it is; empty without one.
    pub names: Arc<[Name]>,
    /// Whether the connection is encrypted, or does not leave the machine's kernel.
    pub private: bool,
}

/// A name of a certificate's subject.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    /// `CN`, `DNS`, `URI`, `EMAIL` or `IP`.
    pub kind: &'static str,
    /// Its value.
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

/// The names of a certificate (DER): its subject's common names, then its alternative names.
pub fn names_of(certificate: &[u8]) -> Vec<Name> {
    use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
    // The handshake has checked it already, so it can be read.
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
