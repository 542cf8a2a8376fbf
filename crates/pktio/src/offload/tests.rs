//! Checksums and segments compared to a naive reference (byte-wise sums, its own parser); arbitrary bytes.

use super::checksum::Sum;
use super::*;
use crate::pool::HeapPool;
use proptest::prelude::*;

/// RFC 1071, byte by byte, in network byte order.
fn simple_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for (i, byte) in bytes.iter().enumerate() {
        sum += u64::from(*byte) << (if i % 2 == 0 { 8 } else { 0 });
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from(bytes[at]) << 8 | u16::from(bytes[at + 1])
}

/// The pseudo header of the IP packet `ip`, and the offset of its transport header.
fn pseudo(ip: &[u8]) -> (Vec<u8>, usize) {
    let (addresses, protocol, at) = match ip[0] >> 4 {
        4 => (&ip[12..20], ip[9], usize::from(ip[0] & 15) * 4),
        _ => (&ip[8..40], ip[6], 40),
    };
    let mut bytes = addresses.to_vec();
    bytes.extend(((ip.len() - at) as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    (bytes, at)
}

fn transport_is_right(ip: &[u8]) -> bool {
    let (mut all, at) = pseudo(ip);
    all.extend(&ip[at..]);
    simple_sum(&all) == 0xffff
}

/// A large frame, as a sender builds it.
#[derive(Clone, Debug)]
struct Stream {
    tags: Vec<u16>,
    is_v6: bool,
    is_udp: bool,
    /// IPv4 options, in 32-bit words.
    options: usize,
    /// TCP options, in 32-bit words.
    tcp_options: usize,
    sequence: u32,
    flags: u8,
    payload: Vec<u8>,
    /// Segment size in bytes.
    each: u16,
}

impl Stream {
    fn link(&self) -> Vec<u8> {
        let mut link: Vec<u8> = (0..12).collect();
        for tag in &self.tags {
            link.extend([tag.to_be_bytes(), [0, 7]].concat());
        }
        link.extend(if self.is_v6 { [0x86, 0xdd] } else { [8, 0] });
        link
    }

    fn transport_bytes(&self) -> usize {
        if self.is_udp { 8 } else { 20 + 4 * self.tcp_options }
    }

    fn ip(&self) -> Vec<u8> {
        let protocol = if self.is_udp { 17 } else { 6 };
        let len = self.transport_bytes() + self.payload.len();
        let mut ip;
        if self.is_v6 {
            ip = vec![0x60, 0, 0, 0, (len >> 8) as u8, len as u8, protocol, 64];
            ip.extend((0..32).map(|i| i * 5));
        } else {
            let all = 20 + 4 * self.options + len;
            let size = 0x45 + self.options as u8;
            ip = vec![size, 0, (all >> 8) as u8, all as u8, 0xff, 0xfe, 0x40, 0, 64, protocol, 0xab, 0xcd];
            ip.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            ip.extend(vec![1; 4 * self.options]);
        }
        if self.is_udp {
            ip.extend([0x12, 0x34, 0x56, 0x78, (len >> 8) as u8, len as u8, 0x11, 0x22]);
        } else {
            ip.extend([0x12, 0x34, 0x56, 0x78]);
            ip.extend(self.sequence.to_be_bytes());
            ip.extend([9, 9, 9, 9, (self.transport_bytes() as u8 / 4) << 4, self.flags, 1, 1, 0x11, 0x22, 0, 0]);
            ip.extend(vec![1; 4 * self.tcp_options]);
        }
        ip.extend(&self.payload);
        ip
    }

    fn segment(&self) -> u16 {
        self.each | if self.is_udp { SEGMENT_UDP } else { 0 }
    }

    /// Checks the IP packet of segment `number`, and appends its payload to `payload`.
    fn check(&self, ip: &[u8], number: usize, is_last: bool, payload: &mut Vec<u8>) {
        let at = pseudo(ip).1;
        if self.is_v6 {
            assert_eq!(usize::from(word(ip, 4)), ip.len() - 40, "IPv6 payload length");
        } else {
            assert_eq!(usize::from(word(ip, 2)), ip.len(), "IPv4 total length");
            assert_eq!(word(ip, 4), 0xfffeu16.wrapping_add(number as u16), "identification");
            assert_eq!(simple_sum(&ip[..at]), 0xffff, "IPv4 checksum");
        }
        assert!(transport_is_right(ip), "transport checksum");
        let body = &ip[at + self.transport_bytes()..];
        assert!(body.len() == usize::from(self.each) || is_last && body.len() <= usize::from(self.each));
        if self.is_udp {
            assert_eq!(usize::from(word(ip, at + 4)), ip.len() - at, "UDP length");
        } else {
            let sequence = self.sequence.wrapping_add(payload.len() as u32);
            assert_eq!(ip[at + 4..at + 8], sequence.to_be_bytes(), "sequence number");
            let first_only = if number == 0 { self.flags & 0x80 } else { 0 };
            let last_only = if is_last { self.flags & 0x09 } else { 0 };
            assert_eq!(ip[at + 13], self.flags & 0x76 | first_only | last_only, "flags");
        }
        payload.extend(body);
    }
}

fn stream() -> impl Strategy<Value = Stream> {
    let tags = prop::collection::vec(prop::sample::select(vec![0x8100u16, 0x88a8, 0x9100]), 0..4);
    let headers = (tags, any::<bool>(), any::<bool>(), 0usize..11, 0usize..11);
    let body = (any::<u32>(), any::<u8>(), prop::collection::vec(any::<u8>(), 1..6000), 30u16..9000);
    (headers, body).prop_map(|((tags, is_v6, is_udp, options, tcp_options), (sequence, flags, payload, each))| Stream {
        tags,
        is_v6,
        is_udp,
        options,
        tcp_options,
        sequence,
        flags,
        // At most the maximum number of segments.
        each: each.max(payload.len().div_ceil(SEGMENTS_MAX) as u16),
        payload,
    })
}

/// Segments `frame` with buffers of a fresh pool, and checks that all of them return to it.
fn cut_up(frame: &[u8], segment: u16, frame_max: u32) -> Result<Vec<Vec<u8>>, NotCut> {
    let pool = HeapPool::new(SEGMENTS_MAX + 1);
    let mut packet = pool.alloc_from(frame).expect("it fits");
    packet.set_segment(segment);
    let mut out = vec![];
    let result = cut(&packet, &pool, frame_max, &mut out);
    assert_eq!(packet.data(), frame, "what is cut stays as it is");
    assert!(result.is_ok() || out.is_empty());
    result.map(|()| out.iter().map(|segment| segment.data().to_vec()).collect())
}

proptest! {
    #[test]
    fn sums_are_those_of_the_simple_sum(bytes in prop::collection::vec(any::<u8>(), 0..300), ones in any::<bool>()) {
        let bytes = if ones { vec![0xff; bytes.len()] } else { bytes };
        let sum = u16::from_be_bytes(Sum::of(&bytes).folded());
        // Zero has two representations; the sum of nonzero words is never the positive one.
        prop_assert_eq!(sum, simple_sum(&bytes));
        let even = bytes.len() / 4 * 2;
        let parts = Sum::of(&bytes[..even]) + Sum::of(&bytes[even..]);
        prop_assert_eq!(u16::from_be_bytes(parts.folded()), sum);
    }

    #[test]
    fn segments_are_frames_of_their_own(stream in stream()) {
        let frame = [stream.link(), stream.ip()].concat();
        let segments = cut_up(&frame, stream.segment(), u32::MAX).expect("it is understood");
        prop_assert_eq!(segments.len(), stream.payload.len().div_ceil(usize::from(stream.each)));
        let mut payload = vec![];
        for (i, segment) in segments.iter().enumerate() {
            let (link, ip) = segment.split_at(stream.link().len());
            prop_assert_eq!(link, &stream.link()[..]);
            stream.check(ip, i, i + 1 == segments.len(), &mut payload);
        }
        prop_assert!(payload == stream.payload, "the payload is whole and in order");
    }

    #[test]
    fn segments_in_a_tunnel_have_right_outer_headers(stream in stream(), vxlan in any::<bool>(), checksum in any::<bool>()) {
        let inner = [if vxlan { stream.link() } else { vec![] }, stream.ip()].concat();
        // VLAN tags inside a tunnel are not parsed.
        let stream = Stream { tags: vec![], ..stream };
        let inner = if vxlan { [stream.link(), stream.ip()].concat() } else { inner };
        let mut outer = vec![0x45, 0, 0, 0, 0xff, 0xfe, 0, 0, 64, if vxlan { 17 } else if stream.is_v6 { 41 } else { 4 }, 0, 0];
        outer.extend([192, 0, 2, 1, 192, 0, 2, 2]);
        if vxlan {
            outer.extend([0xc0, 0, 0x12, 0xb5, 0, 0, 0, u8::from(checksum), 8, 0, 0, 0, 0, 0, 7, 0]);
        }
        let frame = [&[5; 12][..], &[8, 0], &outer, &inner].concat();
        let segments = cut_up(&frame, stream.segment(), u32::MAX).expect("it is understood");
        let mut payload = vec![];
        for (i, segment) in segments.iter().enumerate() {
            let ip = &segment[14..];
            prop_assert_eq!(usize::from(word(ip, 2)), ip.len());
            prop_assert_eq!(simple_sum(&ip[..20]), 0xffff);
            if vxlan {
                prop_assert_eq!(usize::from(word(ip, 24)), ip.len() - 20);
                let is_right = if checksum { transport_is_right(ip) } else { word(ip, 26) == 0 };
                prop_assert!(is_right);
                prop_assert_eq!(&ip[28..36], &outer[28..36]);
            }
            let skip = outer.len() + if vxlan { 14 } else { 0 };
            stream.check(&ip[skip..], i, i + 1 == segments.len(), &mut payload);
        }
        prop_assert!(payload == stream.payload);
    }

    #[test]
    fn what_a_peer_gets_is_completed_to_the_right_frame(stream in stream()) {
        let stream = Stream { flags: stream.flags & 0x7f, ..stream };
        let mut frame = [stream.link(), stream.ip()].concat();
        let header = for_peer(&mut frame, stream.segment()).expect("it is understood");
        let link = stream.link().len();
        prop_assert_eq!(usize::from(header.hdr_len), frame.len() - stream.payload.len());
        prop_assert_eq!(header.segment_frame_bytes(), u32::from(header.hdr_len) + u32::from(stream.each));
        let (pseudo, at) = pseudo(&frame[link..]);
        let place = usize::from(header.csum_start + header.csum_offset);
        prop_assert_eq!(usize::from(header.csum_start), link + at);
        prop_assert_eq!(word(&frame, place), simple_sum(&pseudo), "the peer adds the rest");
        let again = VirtioNetHeader::from_bytes(&header.to_bytes());
        prop_assert_eq!(again, header);
        // We act as the peer.
        prop_assert_eq!(complete(&mut frame, &header, Accepted::ALL), Ok(stream.segment()));
        prop_assert!(transport_is_right(&frame[link..]));
    }

    #[test]
    fn any_header_on_any_frame_is_taken_or_refused(
        mut data in prop::collection::vec(any::<u8>(), 0..200),
        mut bytes in any::<[u8; VirtioNetHeader::BYTES]>(),
        near in any::<bool>(),
    ) {
        if near {
            // Makes offsets likely to lie near the frame's end.
            (bytes[0], bytes[7], bytes[9]) = (bytes[0] | 1, 0, 0);
        }
        let header = VirtioNetHeader::from_bytes(&bytes);
        prop_assert_eq!(header.to_bytes(), bytes);
        let before = data.clone();
        let result = complete(&mut data, &header, Accepted::ALL);
        let at = usize::from(header.csum_start) + usize::from(header.csum_offset);
        for (i, byte) in data.iter().enumerate() {
            prop_assert!(*byte == before[i] || header.needs_checksum() && (i == at || i == at + 1));
        }
        if let Ok(segment) = result {
            prop_assert_eq!(segment & !SEGMENT_UDP == 0, header.gso_type().unwrap() == GsoType::None);
        }
    }

    #[test]
    fn damaged_frames_are_cut_or_refused(
        stream in stream(),
        damage in prop::collection::vec((0usize..120, any::<u8>()), 0..6),
        len in 0usize..200,
        segment in any::<u16>(),
        frame_max in 0u32..3000,
    ) {
        let mut frame = [stream.link(), stream.ip()].concat();
        for (at, byte) in damage {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        let short = &frame[..len.min(frame.len())];
        for frame in [&frame[..], short] {
            for segment in [segment, stream.segment()] {
                if let Ok(segments) = cut_up(frame, segment, frame_max) {
                    prop_assert!(segments.len() <= SEGMENTS_MAX);
                    prop_assert!(segments.iter().all(|segment| segment.len() <= frame_max as usize));
                }
                for_peer(&mut frame.to_vec(), segment);
            }
        }
    }
}

fn tcp() -> Stream {
    let payload = vec![7; 4000];
    Stream {
        tags: vec![],
        is_v6: false,
        is_udp: false,
        options: 0,
        tcp_options: 0,
        sequence: 1,
        flags: 0x10,
        payload,
        each: 1000,
    }
}

#[test]
fn a_checksum_left_to_the_device_is_completed_and_never_zero() {
    let header = VirtioNetHeader { flags: 1, csum_start: 2, csum_offset: 2, ..VirtioNetHeader::default() };
    let mut frame = [9, 9, 0xff, 0xf0, 0, 0x0f];
    assert_eq!(complete(&mut frame, &header, Accepted::ALL), Ok(0));
    assert_eq!(frame, [9, 9, 0xff, 0xf0, 0xff, 0xff], "zero would mean that there is none");
    let mut odd = [9, 9, 1, 2, 0, 0, 3];
    assert_eq!(complete(&mut odd, &header, Accepted::ALL), Ok(0));
    assert_eq!(odd, [9, 9, 1, 2, 0xfb, 0xfd, 3]);
}

#[test]
fn headers_that_lie_are_refused() {
    let plain = VirtioNetHeader::default();
    let checksum = |csum_start, csum_offset| VirtioNetHeader { flags: 1, csum_start, csum_offset, ..plain };
    let gso = |gso_type, gso_size| VirtioNetHeader { gso_type, gso_size, ..plain };
    let lies = [
        checksum(60, 0),
        checksum(59, 0),
        checksum(u16::MAX, u16::MAX),
        checksum(0, 59),
        checksum(58, 1),
        gso(1, 0),
        gso(1, 0x8000),
        gso(5, 0xffff),
        gso(2, 100),
        gso(3, 100),
        gso(0x7f, 100),
    ];
    for header in lies {
        let mut frame = [0; 60];
        assert_eq!(complete(&mut frame, &header, Accepted::ALL), Err(BadHeader), "{header:?}");
        assert_eq!(frame, [0; 60]);
    }
    assert_eq!(complete(&mut [], &checksum(0, 0), Accepted::ALL), Err(BadHeader));
    assert_eq!(complete(&mut [0; 60], &checksum(58, 0), Accepted::ALL), Ok(0));
    assert_eq!(complete(&mut [0; 60], &gso(1, 100), Accepted::ALL), Ok(100));
    assert_eq!(complete(&mut [0; 60], &gso(0x81, 100), Accepted::ALL), Ok(100), "ECN changes nothing");
    assert_eq!(complete(&mut [0; 60], &gso(5, 100), Accepted::ALL), Ok(100 | SEGMENT_UDP));
}

#[test]
fn what_cannot_be_cut_says_why() {
    let stream = tcp();
    let frame = [stream.link(), stream.ip()].concat();
    assert_eq!(cut_up(&frame, 1000, 1053).err(), Some(NotCut::TooLong));
    assert_eq!(cut_up(&frame, 1000, 1054).map(|segments| segments.len()), Ok(4));
    assert_eq!(cut_up(&frame, 4000, 4054).map(|segments| segments.len()), Ok(1));
    assert_eq!(cut_up(&frame, 31, 1500).err(), Some(NotCut::NotUnderstood), "130 segments");
    assert_eq!(cut_up(&frame, 32, 1500).map(|segments| segments.len()), Ok(125));
    for segment in [0, SEGMENT_UDP, SEGMENT_UDP | 1000] {
        assert_eq!(cut_up(&frame, segment, 1500).err(), Some(NotCut::NotUnderstood), "{segment:#x}");
    }
    for (at, byte) in [(20, 0x20), (21, 1), (14, 0x44), (14, 0x65), (23, 17), (46, 0x40), (12, 7)] {
        let mut other = frame.clone();
        other[at] = byte;
        assert_eq!(cut_up(&other, 1000, 1500).err(), Some(NotCut::NotUnderstood), "byte {at}");
    }
    for len in 0..=54 {
        assert_eq!(cut_up(&frame[..len], 1000, 1500).err(), Some(NotCut::NotUnderstood), "{len} bytes");
    }
}

#[test]
fn without_buffers_nothing_is_cut_and_nothing_is_lost() {
    let stream = tcp();
    let pool = HeapPool::new(3);
    let mut packet = pool.alloc_from(&[stream.link(), stream.ip()].concat()).unwrap();
    packet.set_segment(1000);
    let mut out = vec![];
    assert_eq!(cut(&packet, &pool, 1500, &mut out), Err(NotCut::NoBuffer));
    assert_eq!((out.len(), pool.available()), (0, 3));
}

#[test]
fn a_reduced_window_is_said_in_the_first_segment_alone() {
    let stream = Stream { flags: 0x90, ..tcp() };
    let mut frame = [stream.link(), stream.ip()].concat();
    let before = frame.clone();
    assert_eq!(for_peer(&mut frame, 1000), None, "peers that take it are not asked for");
    assert_eq!(frame, before);
}

#[test]
fn three_ip_headers_are_one_too_many() {
    let stream = tcp();
    let outer = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 4, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2];
    let once = [&stream.link()[..], &outer, &stream.ip()].concat();
    let twice = [&stream.link()[..], &outer, &outer, &stream.ip()].concat();
    assert!(cut_up(&once, 1000, 1500).is_ok());
    assert_eq!(cut_up(&twice, 1000, 1500).err(), Some(NotCut::NotUnderstood));
    assert_eq!(for_peer(&mut once.clone(), 1000), None, "virtio's header describes no tunnel");
}

#[test]
fn what_no_port_can_send_is_freed_and_counted() {
    let stream = tcp();
    let pool = HeapPool::new(50);
    let mut large = pool.alloc_from(&[stream.link(), stream.ip()].concat()).unwrap();
    large.set_segment(1000);
    let mut long = pool.alloc_from(large.data()).unwrap();
    long.set_segment(1400);
    let mut odd = pool.alloc_from(&[9; 60]).unwrap();
    odd.set_segment(10);
    let plain = |len: usize| pool.alloc_from(&vec![1; len]).unwrap();
    let mut packets = vec![plain(60), large, plain(0), plain(1201), long, odd, plain(1200)];
    let mut sent = Vec::new();
    let lost = send_rest(&pool, &mut packets, 1200, |batch| sent.append(batch));
    let lengths: Vec<usize> = sent.iter().map(Packet::len).collect();
    assert_eq!((lengths, packets.len()), (vec![60, 1054, 1054, 1054, 1054, 1200], 0));
    assert_eq!((lost.tx_dropped, lost.tx_too_long, lost.tx_not_cut), (4, 2, 1));
}

/// Regression: 64 frames of 310 bytes became 16,384 before one was sent, and took all buffers.
#[test]
fn small_frames_do_not_become_thousands_for_a_port_that_takes_none() {
    let stream = Stream { payload: vec![7; 256], ..tcp() };
    let frame = [stream.link(), stream.ip()].concat();
    for room in [0, 10, 64, 100] {
        let pool = HeapPool::new(4096);
        let large = |_| {
            let mut packet = pool.alloc_from(&frame).unwrap();
            packet.set_segment(8);
            packet
        };
        let mut packets: Vec<Packet> = (0..64).map(large).collect();
        let mut taken = 0;
        let lost = send_rest(&pool, &mut packets, 1500, |batch| {
            let count = batch.len().min(room - taken);
            batch.drain(..count);
            taken += count;
        });
        assert_eq!((taken, lost), (room, PortStats::default()));
        let made = 4096 - pool.available();
        assert!(made <= 64 + SEND_BATCH + SEGMENTS_MAX, "room for {room}: {made} buffers are out");
        assert!(
            packets.iter().skip(SEND_BATCH + SEGMENTS_MAX).all(|packet| packet.segment() == 8),
            "the rest is whole"
        );
    }
}

#[test]
fn what_was_not_negotiated_is_refused() {
    let header =
        |flags, gso_type, gso_size| VirtioNetHeader { flags, gso_type, gso_size, ..VirtioNetHeader::default() };
    let (none, tcp4) = (Accepted::default(), Accepted { checksums: false, large: 1 << GsoType::TcpV4 as u8 });
    let mut frame = [0; 60];
    assert_eq!(complete(&mut frame, &header(0, 1, 100), none), Err(BadHeader));
    assert_eq!(complete(&mut frame, &header(1, 0, 0), none), Err(BadHeader));
    assert_eq!(complete(&mut frame, &header(0, 0, 0), none), Ok(0));
    assert_eq!(complete(&mut frame, &header(0, 1, 100), tcp4), Ok(100));
    assert_eq!(complete(&mut frame, &header(1, 1, 100), tcp4), Err(BadHeader));
    assert_eq!(complete(&mut frame, &header(0, 4, 100), tcp4), Err(BadHeader));
    for size in 0..TCP_SEGMENT_MIN {
        assert_eq!(
            complete(&mut frame, &header(0, 1, size), Accepted::ALL),
            Err(BadHeader),
            "segments of {size} bytes"
        );
    }
    assert_eq!(complete(&mut frame, &header(0, 1, TCP_SEGMENT_MIN), Accepted::ALL), Ok(TCP_SEGMENT_MIN));
}
