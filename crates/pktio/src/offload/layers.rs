//! Locates the headers of a large frame: VLAN tags, one IP header or two with a tunnel between (VXLAN, IP in IP), and
//! the TCP or UDP header whose payload is segmented.
//!
//! **Invariant:** every header in [`Layers`] lies completely before `payload`, and `payload` before the frame's end.
//! Code that changes segments indexes with these offsets and relies on this.

/// Maximum IP headers in a frame: two, with a tunnel.
const LAYERS_MAX: usize = 2;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// 802.1Q, 802.1ad, and the EtherType used before 802.1ad.
const ETHERTYPES_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];

const IP_IN_IP: u8 = 4;
const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const IPV6_IN_IP: u8 = 41;

const ADDRESSES_BYTES: usize = 12;
const IPV4_BYTES_MIN: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES_MIN: usize = 20;
pub(super) const UDP_BYTES: usize = 8;
const VXLAN_BYTES: usize = 8;
const VXLAN_PORT: u16 = 4789;

/// An IP header, and the UDP header of a tunnel behind it, as offsets in the frame.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Layer {
    pub ip: usize,
    /// Length of the header in bytes, including IPv4 options.
    pub ip_bytes: usize,
    pub tunnel: Option<usize>,
    pub is_v6: bool,
}

/// The headers of a large frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layers {
    layers: [Layer; LAYERS_MAX],
    count: usize,
    pub is_udp: bool,
    /// Offset of the TCP or UDP header.
    pub transport: usize,
    /// Offset of the payload, which is not empty.
    pub payload: usize,
}

impl Layers {
    /// Locates the headers of a TCP or UDP frame; `None` if it has no known ones.
    pub(super) fn find(data: &[u8], is_udp: bool) -> Option<Layers> {
        let mut at = ADDRESSES_BYTES;
        let mut ethertype = get_u16(data, at)?;
        at += 2;
        while ETHERTYPES_VLAN.contains(&ethertype) {
            ethertype = get_u16(data, at + 2)?;
            at += 4;
        }
        let mut found = Layers { layers: Default::default(), count: 0, is_udp, transport: 0, payload: 0 };
        while found.count < LAYERS_MAX {
            let (mut layer, protocol) = Layer::find(data, at, ethertype)?;
            at += layer.ip_bytes;
            let mut next = match protocol {
                IP_IN_IP => Some(ETHERTYPE_IPV4),
                IPV6_IN_IP => Some(ETHERTYPE_IPV6),
                _ => None,
            };
            let is_first = found.count == 0;
            if protocol == UDP && is_first && get_u16(data, at + 2)? == VXLAN_PORT {
                layer.tunnel = Some(at);
                at += UDP_BYTES + VXLAN_BYTES + ADDRESSES_BYTES;
                next = Some(get_u16(data, at)?);
                at += 2;
            }
            found.layers[found.count] = layer;
            found.count += 1;
            let Some(next) = next else { return found.with_transport(data, at, protocol) };
            ethertype = next;
        }
        None
    }

    fn with_transport(mut self, data: &[u8], at: usize, protocol: u8) -> Option<Layers> {
        let bytes = match (protocol, self.is_udp) {
            (TCP, false) => {
                data.get(at..at + TCP_BYTES_MIN)?;
                usize::from(data[at + 12] >> 4) * 4
            }
            (UDP, true) => UDP_BYTES,
            _ => return None,
        };
        let is_whole = protocol != TCP || bytes >= TCP_BYTES_MIN;
        (self.transport, self.payload) = (at, at + bytes);
        (is_whole && self.payload < data.len()).then_some(self)
    }

    /// The IP headers, outermost first; at least one.
    pub(super) fn all(&self) -> &[Layer] {
        &self.layers[..self.count]
    }

    /// The innermost IP header, which precedes the transport header.
    pub(super) fn inner(&self) -> &Layer {
        &self.layers[self.count - 1]
    }

    /// The layer of a frame without a tunnel; `None` with one.
    pub(super) fn only(&self) -> Option<&Layer> {
        (self.count == 1).then_some(&self.layers[0])
    }

    /// The transport's protocol number.
    pub(super) fn protocol(&self) -> u8 {
        if self.is_udp { UDP } else { TCP }
    }
}

impl Layer {
    /// Parses the IP header at `at`. Returns also the next protocol. IPv6 extension headers are not followed.
    fn find(data: &[u8], at: usize, ethertype: u16) -> Option<(Layer, u8)> {
        let first = *data.get(at)?;
        match (ethertype, first >> 4) {
            (ETHERTYPE_IPV4, 4) => {
                let ip_bytes = usize::from(first & 0xf) * 4;
                let header = data.get(at..at + ip_bytes).filter(|_| ip_bytes >= IPV4_BYTES_MIN)?;
                // A fragment cannot be segmented.
                let is_fragment = load_u16(header, 6) & 0x3fff != 0;
                (!is_fragment).then_some((Layer { ip: at, ip_bytes, ..Layer::default() }, header[9]))
            }
            (ETHERTYPE_IPV6, 6) => {
                let header = data.get(at..at + IPV6_BYTES)?;
                Some((Layer { ip: at, ip_bytes: IPV6_BYTES, is_v6: true, tunnel: None }, header[6]))
            }
            _ => None,
        }
    }
}

fn get_u16(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..at + 2).map(|bytes| load_u16(bytes, 0))
}

/// Loads a number in network byte order; `at` must be in range.
pub(super) fn load_u16(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([data[at], data[at + 1]])
}

pub(super) fn load_u32(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

pub(super) fn store_u16(data: &mut [u8], at: usize, value: u16) {
    data[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

pub(super) fn store_u32(data: &mut [u8], at: usize, value: u32) {
    data[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
