//! `struct virtio_net_hdr` (virtio 1.2, 5.1.6): precedes frames in a guest's buffers, and frames exchanged with the
//! kernel through `PACKET_VNET_HDR` and `IFF_VNET_HDR`.

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_ECN`, a flag in the GSO type.
const GSO_ECN: u8 = 0x80;

/// The segmentation type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GsoType {
    /// Not a large frame.
    None = 0,
    /// TCP over IPv4.
    TcpV4 = 1,
    /// TCP over IPv6.
    TcpV6 = 4,
    /// UDP datagrams over IPv4 or IPv6.
    UdpL4 = 5,
}

/// The virtio-net header, without the `num_buffers` field that follows it in virtqueues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtioNetHeader {
    /// `VIRTIO_NET_HDR_F_*` flags.
    pub flags: u8,
    /// See [`VirtioNetHeader::gso_type`].
    pub gso_type: u8,
    /// Length of the headers before the payload, in bytes.
    pub hdr_len: u16,
    /// Payload of each segment, in bytes.
    pub gso_size: u16,
    /// Offset in the frame where the checksummed range begins.
    pub csum_start: u16,
    /// Offset of the checksum field, relative to `csum_start`.
    pub csum_offset: u16,
}

impl VirtioNetHeader {
    /// Length of the header in bytes.
    pub const BYTES: usize = 10;

    /// Whether it requests no offload, as most headers do.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.flags & NEEDS_CSUM == 0 && self.gso_type == GsoType::None as u8
    }

    /// Whether the checksum must be completed.
    #[inline]
    pub fn needs_checksum(&self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }

    /// The segmentation type; `None` if it is unknown. The flag `VIRTIO_NET_HDR_GSO_ECN`
    /// is ignored: it makes no difference here.
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

    /// Length in bytes of the longest segment's frame.
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

    /// Decodes the header. Fields are little-endian: by virtio since 1.0, and
    /// natively on the processors that we support.
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

    /// Encodes the header as in [`VirtioNetHeader::from_bytes`].
    #[inline]
    pub fn to_bytes(self) -> [u8; VirtioNetHeader::BYTES] {
        let [a, b] = self.hdr_len.to_le_bytes();
        let [c, d] = self.gso_size.to_le_bytes();
        let [e, f] = self.csum_start.to_le_bytes();
        let [g, h] = self.csum_offset.to_le_bytes();
        [self.flags, self.gso_type, a, b, c, d, e, f, g, h]
    }
}
