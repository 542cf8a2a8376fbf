//! Frames in the order in which they are played, in one allocation; and a writer of frames.

/// Many frames with their ingress ports.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// The offset of each frame, its length and its port.
    index: Vec<(u64, u16, u16)>,
}

impl Frames {
    /// No frames, with room for `count` of `size` bytes.
    pub fn with_capacity(count: usize, size: usize) -> Frames {
        Frames { bytes: Vec::with_capacity(count * size), index: Vec::with_capacity(count) }
    }

    /// Adds a frame.
    pub fn push(&mut self, port: u16, frame: &[u8]) {
        self.index.push((self.bytes.len() as u64, frame.len() as u16, port));
        self.bytes.extend_from_slice(frame);
    }

    /// The number of frames.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The port and bytes of frame `i`.
    pub fn get(&self, i: usize) -> (u32, &[u8]) {
        let (start, len, port) = self.index[i];
        (u32::from(port), &self.bytes[start as usize..start as usize + usize::from(len)])
    }
}

/// The one's complement checksum of 16-bit words (RFC 1071).
pub fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Writes a frame, front to back.
#[derive(Clone, Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Starts a new frame.
    pub fn clear(&mut self) -> &mut Writer {
        self.0.clear();
        self
    }

    /// Appends the lowest `N` bytes of a number, in network byte order.
    pub fn be<const N: usize>(&mut self, value: u64) -> &mut Writer {
        self.0.extend_from_slice(&value.to_be_bytes()[8 - N..]);
        self
    }

    /// Appends the destination and source addresses; the type follows separately.
    pub fn ethernet(&mut self, dst: u64, src: u64) -> &mut Writer {
        self.be::<6>(dst).be::<6>(src)
    }

    /// Appends a VLAN tag, without the type that follows it.
    pub fn vlan(&mut self, vid: u64) -> &mut Writer {
        self.be::<2>(0x8100).be::<2>(vid)
    }

    /// Appends the EtherType and an IPv4 header for `payload` bytes, with a correct checksum.
    pub fn ipv4(&mut self, src: u32, dst: u32, protocol: u8, ttl: u8, payload: usize) -> &mut Writer {
        self.be::<2>(0x0800);
        self.ipv4_header(src, dst, protocol, ttl, payload)
    }

    /// Appends an IPv4 header alone.
    pub fn ipv4_header(&mut self, src: u32, dst: u32, protocol: u8, ttl: u8, payload: usize) -> &mut Writer {
        let start = self.0.len();
        self.be::<2>(0x4500).be::<2>(20 + payload as u64).be::<4>(0x4000);
        self.be::<1>(ttl.into()).be::<1>(protocol.into()).be::<2>(0).be::<4>(src.into()).be::<4>(dst.into());
        let sum = checksum(&self.0[start..]);
        self.0[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
        self
    }

    /// Pads to `size` bytes; longer frames are left as they are.
    pub fn pad(&mut self, size: usize) -> &mut Writer {
        let len = self.0.len();
        self.0.extend((len..size).map(|i| i as u8));
        self
    }
}
