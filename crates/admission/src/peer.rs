//! The identity of a peer, to which limits apply.

use std::net::{IpAddr, Ipv6Addr};

/// A peer: one IPv4 address, one IPv6 /64 network, or one user id.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PeerKey {
    /// A TCP peer: its IPv4 address or IPv6 /64 network.
    Address(IpAddr),
    /// A peer on a Unix socket: its user id.
    User(u32),
}

impl PeerKey {
    /// The key of a TCP connection from this address.
    pub fn of_address(address: IpAddr) -> PeerKey {
        PeerKey::Address(match address.to_canonical() {
            IpAddr::V6(ip) if !ip.is_loopback() => {
                let [a, b, c, d, ..] = ip.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            ip => ip,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_of_ipv6_is_one_peer() {
        let key = |text: &str| PeerKey::of_address(text.parse().unwrap());
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:2"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
    }
}
