//! Explicit congestion notification in Ethernet frames (RFC 3168).
//!
//! The ECN field is the low two bits of IPv4's type of service and of IPv6's traffic class: 00 not capable, 10
//! and 01 capable (ECT(0), ECT(1)), 11 congestion experienced (CE). VLAN tags (802.1Q, 802.1ad, up to
//! [`TAGS_MAX`]) are skipped. A truncated frame, or one that is neither IPv4 nor IPv6, is not capable and never
//! changed. No byte outside the frame is read.
//!
//! Tests: `tests/ecn.rs`.

/// Maximum VLAN tags that are skipped.
pub const TAGS_MAX: usize = 4;

const MASK: u8 = 0b11;
const CE: u8 = 0b11;

/// Version and offset in bytes of a frame's IP header.
enum Ip {
    V4(usize),
    V6(usize),
}

fn ip(frame: &[u8]) -> Option<Ip> {
    let mut at = 12;
    for _ in 0..=TAGS_MAX {
        let kind = frame.get(at..at + 2)?;
        at += 2;
        match u16::from_be_bytes([kind[0], kind[1]]) {
            // 802.1Q, 802.1ad, and older EtherTypes of stacked tags.
            0x8100 | 0x88a8 | 0x9100 | 0x9200 => at += 2,
            0x0800 => {
                let header = frame.get(at..at + 20)?;
                return (header[0] >> 4 == 4 && header[0] & 0xf >= 5).then_some(Ip::V4(at));
            }
            0x86dd => {
                let header = frame.get(at..at + 40)?;
                return (header[0] >> 4 == 6).then_some(Ip::V6(at));
            }
            _ => return None,
        }
    }
    None
}

/// The frame's ECN field; `None` if the frame is not IP.
pub fn field(frame: &[u8]) -> Option<u8> {
    Some(match ip(frame)? {
        Ip::V4(at) => frame[at + 1] & MASK,
        Ip::V6(at) => frame[at + 1] >> 4 & MASK,
    })
}

/// Whether the frame may be marked instead of dropped: ECT(0), ECT(1), or already CE.
pub fn is_capable(frame: &[u8]) -> bool {
    field(frame).is_some_and(|field| field != 0)
}

/// Sets CE in a capable frame and updates IPv4's checksum. Returns false and changes nothing if the frame is not
/// capable.
pub fn mark(frame: &mut [u8]) -> bool {
    if !is_capable(frame) {
        return false;
    }
    match ip(frame) {
        Some(Ip::V4(at)) => {
            let old = u16::from_be_bytes([frame[at], frame[at + 1]]);
            frame[at + 1] |= CE;
            let new = u16::from_be_bytes([frame[at], frame[at + 1]]);
            if new != old {
                // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
                let checksum = u16::from_be_bytes([frame[at + 10], frame[at + 11]]);
                let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
                let sum = (sum & 0xffff) + (sum >> 16);
                let sum = (sum & 0xffff) + (sum >> 16);
                frame[at + 10..at + 12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
            }
            true
        }
        Some(Ip::V6(at)) => {
            frame[at + 1] |= CE << 4;
            true
        }
        None => false,
    }
}
