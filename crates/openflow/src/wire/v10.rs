//! Numbers that differ in OpenFlow 1.0 (ports, capabilities, port features), and flags that some versions lack.

use super::{Reader, Result, Writer};
use crate::action::port;
use crate::error::{Error, ErrorKind};
use crate::message::Version;

/// Decodes a port number: 16 bits in 1.0, 32 bits later.
pub(crate) fn read_port(version: Version, r: &mut Reader<'_>) -> Result<u32> {
    if version == Version::V10 { Ok(port::from_16(r.u16()?)) } else { r.u32() }
}

/// Appends a port number: 16 bits in 1.0, 32 bits later.
pub(crate) fn write_port(version: Version, number: u32, out: &mut Vec<u8>) -> Result<()> {
    if version == Version::V10 {
        let error = || Error::new(ErrorKind::BrcBadPort, format!("OpenFlow 1.0 has no port {number}"));
        out.u16(port::to_16(number).ok_or_else(error)?);
    } else {
        out.u32(number);
    }
    Ok(())
}

/// Appends a port number in 16 bits, whatever the version.
pub(crate) fn write_port_10(number: u32, out: &mut Vec<u8>) -> Result<()> {
    write_port(Version::V10, number, out)
}

/// The `OFPC_` capabilities that exist in a version.
pub(crate) fn capabilities(version: Version, bits: u32) -> u32 {
    // 1.0 has 802.1D in place of group statistics, and "match IP addresses in ARP packets".
    let known = match version {
        Version::V10 => 0x0e7,
        Version::V13 => 0x16f,
        Version::V14 | Version::V15 => 0x76f,
    };
    bits & known
}

/// The `OFPPC_` bits that exist in a version; 1.0 also has those for spanning tree and flooding.
pub(crate) fn port_config(version: Version, bits: u32) -> u32 {
    bits & if version == Version::V10 { 0x7f } else { 0x65 }
}

/// The `OFPPS_` bits that exist in a version: 1.0 has the spanning tree states, later ones "blocked" and "live".
pub(crate) fn port_state(version: Version, bits: u32) -> u32 {
    bits & if version == Version::V10 { 0x301 } else { 0x007 }
}

/// Converts a version's `OFPPF_` bits to those of later versions: 1.0 lacks four rates between its rates and the media.
pub(crate) fn port_features_from(version: Version, bits: u32) -> u32 {
    if version == Version::V10 { bits & 0x7f | (bits & 0xf80) << 4 } else { bits & 0xffff }
}

/// Converts the `OFPPF_` bits of later versions to a version's.
pub(crate) fn port_features_to(version: Version, bits: u32) -> u32 {
    if version == Version::V10 { bits & 0x7f | (bits & 0xf800) >> 4 } else { bits & 0xffff }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_move_over_the_new_rates() {
        let (copper, autoneg, gigabit) = (1 << 11, 1 << 13, 1 << 5);
        assert_eq!(port_features_to(Version::V10, copper | autoneg | gigabit), 1 << 7 | 1 << 9 | 1 << 5);
        assert_eq!(port_features_from(Version::V10, 1 << 7 | 1 << 9 | 1 << 5), copper | autoneg | gigabit);
        let forty_gigabit = 1 << 7;
        assert_eq!(port_features_to(Version::V10, forty_gigabit), 0);
    }
}
