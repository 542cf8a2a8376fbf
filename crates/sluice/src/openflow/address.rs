//! Controller targets in the syntax of ovs-vsctl(8): `tcp:HOST[:PORT]`, `unix:PATH`, `ptcp:[PORT][:ADDRESS]`,
//! `punix:PATH`; with TLS `ssl:HOST[:PORT]` and `pssl:[PORT][:ADDRESS]`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// OpenFlow's port, as registered with IANA.
const PORT: u16 = 6653;

/// A controller that the switch dials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Active {
    /// A host, by name or address, and a port.
    Tcp(String, u16),
    /// The same with TLS.
    Ssl(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

/// An address on which controllers may connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Passive {
    /// An address of this machine.
    Tcp(SocketAddr),
    /// The same with TLS.
    Ssl(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// A controller target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// The switch dials the controller.
    Active(Active),
    /// The controller dials the switch.
    Passive(Passive),
}

impl Passive {
    /// Whether other machines can connect without TLS.
    pub fn is_open(&self) -> bool {
        matches!(self, Passive::Tcp(address) if !address.ip().is_loopback())
    }
}

impl std::fmt::Display for Active {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Active::Tcp(host, port) | Active::Ssl(host, port) => {
                let method = if matches!(self, Active::Tcp(..)) { "tcp" } else { "ssl" };
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "{method}:{open}{host}{close}:{port}")
            }
            Active::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Parses a target.
///
/// # Errors
/// If it has another form; the message says what is wrong.
pub fn parse(text: &str) -> Result<Target, String> {
    let (method, rest) = text.split_once(':').ok_or("a target is METHOD:PLACE, as in tcp:127.0.0.1:6653")?;
    let is_path = |path: &str| if path.is_empty() { Err("no path".to_string()) } else { Ok(PathBuf::from(path)) };
    match method {
        "unix" => Ok(Target::Active(Active::Unix(is_path(rest)?))),
        "punix" => Ok(Target::Passive(Passive::Unix(is_path(rest)?))),
        "tcp" | "ssl" => {
            let (host, port) = host_and_port(rest)?;
            if host.is_empty() {
                return Err("no host".to_string());
            }
            let active = if method == "tcp" { Active::Tcp(host, port) } else { Active::Ssl(host, port) };
            Ok(Target::Active(active))
        }
        "ptcp" | "pssl" => {
            let (port, address) = rest.split_once(':').unwrap_or((rest, ""));
            let port = if port.is_empty() { PORT } else { number(port)? };
            let address = address.trim_start_matches('[').trim_end_matches(']');
            let address = match address {
                "" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                _ => address.parse().map_err(|_| format!("{address} is no IP address"))?,
            };
            let address = SocketAddr::new(address, port);
            Ok(Target::Passive(if method == "ptcp" { Passive::Tcp(address) } else { Passive::Ssl(address) }))
        }
        _ => Err(format!("{method} is no method: there are tcp, ssl, unix, ptcp, pssl and punix")),
    }
}

fn number(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("{text} is no port"))
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("no `]`")?;
        let port = rest.strip_prefix(':').map(number).transpose()?;
        return Ok((host.to_string(), port.unwrap_or(PORT)));
    }
    match text.split_once(':') {
        Some((host, port)) => Ok((host.to_string(), number(port)?)),
        None => Ok((text.to_string(), PORT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        let active = |host: &str, port| Ok(Target::Active(Active::Tcp(host.to_string(), port)));
        assert_eq!(parse("tcp:127.0.0.1"), active("127.0.0.1", 6653));
        assert_eq!(parse("tcp:controller:6633"), active("controller", 6633));
        assert_eq!(parse("tcp:[::1]:5"), active("::1", 5));
        let passive = |text: &str| Ok(Target::Passive(Passive::Tcp(text.parse().expect("an address"))));
        assert_eq!(parse("ptcp:"), passive("0.0.0.0:6653"));
        assert_eq!(parse("ptcp:6633:127.0.0.1"), passive("127.0.0.1:6633"));
        assert_eq!(parse("ptcp:1:[::1]"), passive("[::1]:1"));
        assert_eq!(parse("punix:/a"), Ok(Target::Passive(Passive::Unix("/a".into()))));
        assert_eq!(parse("ssl:[::1]"), Ok(Target::Active(Active::Ssl("::1".to_string(), 6653))));
        assert_eq!(parse("pssl:"), Ok(Target::Passive(Passive::Ssl("0.0.0.0:6653".parse().expect("an address")))));
        for wrong in
            ["tcp:", "tcp:a:b", "unix:", "ptcp:99999", "ptcp:1:x", "ssl:", "pssl:x", "telnet:a", "a", "tcp:[::1"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
