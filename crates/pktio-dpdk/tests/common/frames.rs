//! Frames for the tests of checksums and segmentation, and a judge of them that shares no code with what is tested.
#![allow(dead_code)]

/// The one's complement sum of RFC 1071, byte by byte.
pub fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The pseudo header of the packet whose IP header is `ip`, for a transport header and payload of `len` bytes.
pub fn pseudo_header(ip: &[u8], len: usize) -> Vec<u8> {
    let (addresses, protocol) = if ip[0] >> 4 == 4 { (&ip[12..20], ip[9]) } else { (&ip[8..40], ip[6]) };
    let mut bytes = addresses.to_vec();
    bytes.extend((len as u32).to_be_bytes());
    bytes.extend(u32::from(protocol).to_be_bytes());
    bytes
}

/// Whether the transport checksum of the IP packet is right.
pub fn transport_is_right(ip: &[u8]) -> bool {
    let header = if ip[0] >> 4 == 4 { usize::from(ip[0] & 15) * 4 } else { 40 };
    let mut all = pseudo_header(ip, ip.len() - header);
    all.extend(&ip[header..]);
    sum(&all) == 0xffff
}

/// A description of a TCP frame.
#[derive(Clone)]
pub struct Tcp {
    /// What is before the IP header, with its type.
    pub link: Vec<u8>,
    pub is_v6: bool,
    pub sequence: u32,
    pub flags: u8,
    pub payload: Vec<u8>,
}

pub const ETHERNET: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

impl Tcp {
    pub fn new(is_v6: bool, len: usize) -> Tcp {
        let payload = (0..len).map(|i| (i * 7 % 251) as u8).collect();
        let ethertype: [u8; 2] = if is_v6 { [0x86, 0xdd] } else { [8, 0] };
        Tcp { link: [&ETHERNET[..], &ethertype].concat(), is_v6, sequence: 0xffff_f000, flags: 0x18, payload }
    }

    /// The frame; its TCP checksum is right, or the pseudo header's sum alone as a sender leaves it to the device.
    pub fn frame(&self, is_complete: bool) -> Vec<u8> {
        let len = 32 + self.payload.len();
        let mut ip = if self.is_v6 {
            let mut ip = vec![0x60, 0, 0, 0];
            ip.extend((len as u16).to_be_bytes());
            ip.extend([6, 64]);
            ip.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            ip.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            ip
        } else {
            let mut ip = vec![0x45, 0];
            ip.extend((20 + len as u16).to_be_bytes());
            ip.extend([0xff, 0xff, 0x40, 0, 64, 6, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
            let header = !sum(&ip);
            ip[10..12].copy_from_slice(&header.to_be_bytes());
            ip
        };
        let at = ip.len();
        let mut segment = vec![0x13, 0x88, 0x17, 0x70];
        segment.extend(self.sequence.to_be_bytes());
        segment.extend([1, 2, 3, 4, 0x80, self.flags, 1, 0, 0, 0, 0, 0]);
        segment.extend([1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        segment.extend(&self.payload);
        let pseudo = pseudo_header(&ip, len);
        let checksum = if is_complete { !sum(&[&pseudo[..], &segment].concat()) } else { sum(&pseudo) };
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
        ip.extend(segment);
        assert_eq!(ip.len(), at + len);
        [&self.link[..], &ip].concat()
    }

    /// Holds `frames` against what this frame must become in segments of `each` bytes. `outer` bytes are before the IP
    /// header, and judged by the caller.
    pub fn check_segments(&self, frames: &[Vec<u8>], each: usize, outer: usize) {
        let mut payload: Vec<u8> = Vec::new();
        for (i, frame) in frames.iter().enumerate() {
            let ip = &frame[outer..];
            let is_last = i + 1 == frames.len();
            let (at, length) = if self.is_v6 {
                (40, 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]])))
            } else {
                assert_eq!(sum(&ip[..20]), 0xffff, "IPv4 checksum of segment {i}");
                assert_eq!(u16::from_be_bytes([ip[4], ip[5]]), 0xffffu16.wrapping_add(i as u16), "identification");
                (20, usize::from(u16::from_be_bytes([ip[2], ip[3]])))
            };
            assert_eq!(length, ip.len(), "IP length of segment {i}");
            assert!(transport_is_right(ip), "TCP checksum of segment {i}");
            let sequence = u32::from_be_bytes(ip[at + 4..at + 8].try_into().unwrap());
            assert_eq!(sequence, self.sequence.wrapping_add((i * each) as u32), "sequence number of segment {i}");
            let mut flags = self.flags;
            if !is_last {
                flags &= !0x09; // FIN and PSH belong to the last
            }
            if i != 0 {
                flags &= !0x80; // CWR to the first
            }
            assert_eq!(ip[at + 13], flags, "flags of segment {i}");
            assert!(is_last || ip.len() - at - 32 == each, "length of segment {i}");
            payload.extend(&ip[at + 32..]);
        }
        assert!(payload == self.payload, "the payload of {} bytes arrives whole and in order", self.payload.len());
    }
}
