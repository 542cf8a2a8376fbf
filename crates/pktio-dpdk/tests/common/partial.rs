//! What a guest leaves to its device.

use crate::frames::Tcp;
use crate::guest::*;

/// All offloads.
pub const ALL: u64 =
    F_CSUM | F_GUEST_CSUM | F_GUEST_TSO4 | F_GUEST_TSO6 | F_HOST_TSO4 | F_HOST_TSO6 | F_MRG_RXBUF | F_VERSION_1;

/// What a guest that leaves the checksum to the device says of a TCP frame.
pub fn partial(frame: &Tcp, gso_size: u16) -> Header {
    let start = frame.link.len() as u16 + if frame.is_v6 { 40 } else { 20 };
    let gso_type = match (gso_size, frame.is_v6) {
        (0, _) => 0,
        (_, false) => 1,
        (_, true) => 4,
    };
    Header { flags: 1, gso_type, header_len: start + 32, gso_size, csum_start: start, csum_offset: 16, buffers: 0 }
}
