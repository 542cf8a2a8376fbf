//! `struct virtio_net_hdr` (virtio 1.2, 5.1.6): what stands before a frame in a guest's buffers, and before what the kernel
//! gives and takes through `PACKET_VNET_HDR` and `IFF_VNET_HDR`.

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_ECN`, a flag in the type.
const GSO_ECN: u8 = 0x80;

/// What segments a large frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GsoType {
    /// It is none.
    None = 0,
    /// TCP over IPv4.
    TcpV4 = 1,
    /// TCP over IPv6.
    TcpV6 = 4,
    /// UDP datagrams, over either.
    UdpL4 = 5,
}

/// The header, without the count of buffers that follows it in guests' rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtioNetHeader {
    /// Whether a checksum is to be completed, among others.
    pub flags: u8,
    /// See [`VirtioNetHeader::gso_type`].
    pub gso_type: u8,
    /// Bytes of headers before the payload that is cut.
    pub hdr_len: u16,
    /// Bytes of payload of each segment.
    pub gso_size: u16,
    /// Offset in the frame where the sum for the checksum begins.
    pub csum_start: u16,
    /// Offset of the checksum from there.
    pub csum_offset: u16,
}

impl VirtioNetHeader {
    /// Bytes of the header.
    pub const BYTES: usize = 10;

    /// Whether nothing was left to the device: most headers are so.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.flags & NEEDS_CSUM == 0 && self.gso_type == GsoType::None as u8
    }

    /// Whether the checksum is to be completed.
    #[inline]
    pub fn needs_checksum(&self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }

    /// What segments the frame has; `None` for a type that is not known here. Whether a congested sender may be told so
    /// (`VIRTIO_NET_HDR_GSO_ECN`) changes nothing for us.
    #[inline]
    pub fn gso_type(&self) -> Option<GsoType> {
        match self.gso_type & !GSO_ECN {
            0 => Some(GsoType::None),
            1 => Some(GsoType::TcpV4),
            4 => Some(GsoType::TcpV6),
            5 => Some(GsoType::UdpL4),
            _ => None,
        }
    }

    /// Bytes of the longest frame among the segments, as they will be on a wire.
    #[inline]
    pub fn segment_frame_bytes(&self) -> u32 {
        u32::from(self.hdr_len) + u32::from(self.gso_size)
    }

    /// The header of a large frame whose transport checksum the peer completes.
    pub(super) fn large(
        gso_type: GsoType,
        hdr_len: u16,
        gso_size: u16,
        csum_start: u16,
        csum_offset: u16,
    ) -> VirtioNetHeader {
        VirtioNetHeader { flags: NEEDS_CSUM, gso_type: gso_type as u8, hdr_len, gso_size, csum_start, csum_offset }
    }

    /// From memory. Fields are in little-endian order: virtio's since 1.0, and of the processors that we run on.
    #[inline]
    pub fn from_bytes(bytes: &[u8; VirtioNetHeader::BYTES]) -> VirtioNetHeader {
        let field = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        VirtioNetHeader {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: field(2),
            gso_size: field(4),
            csum_start: field(6),
            csum_offset: field(8),
        }
    }

    /// To memory, as in [`VirtioNetHeader::from_bytes`].
    #[inline]
    pub fn to_bytes(self) -> [u8; VirtioNetHeader::BYTES] {
        let [a, b] = self.hdr_len.to_le_bytes();
        let [c, d] = self.gso_size.to_le_bytes();
        let [e, f] = self.csum_start.to_le_bytes();
        let [g, h] = self.csum_offset.to_le_bytes();
        [self.flags, self.gso_type, a, b, c, d, e, f, g, h]
    }
}
