//! What a guest leaves to its device, checksums and segmentation, on the way to every kind of port: at the far end are the bytes
//! that the guest meant, wherever they were made.

mod common;
#[path = "common/frames.rs"]
mod frames;
#[path = "common/guest.rs"]
mod guest;
#[path = "common/partial.rs"]
mod partial;

use common::*;
use frames::{ETHERNET, Tcp, pseudo_header, sum, transport_is_right};
use guest::*;
use partial::{ALL, partial};
use pktio::{Packet, Queue};
use pktio_dpdk::Eal;
use std::process::Command;

const TAG: [u8; 4] = [0x81, 0, 0x20, 7];

/// A frame as a guest leaves it, and as it meant it.
struct Frame {
    what: String,
    header: Header,
    left: Vec<u8>,
    meant: Vec<u8>,
}

/// Frames that end within 1,500 bytes, whose checksum is left to the device: TCP and UDP, tagged or not, with odd and even lengths.
fn small_frames() -> Vec<Frame> {
    let mut frames = Vec::new();
    for is_v6 in [false, true] {
        for is_tagged in [false, true] {
            for len in [0, 1, 700, 1427, 1428] {
                let tcp = tcp(is_v6, is_tagged, len);
                frames.push(Frame {
                    what: format!("TCP, {is_v6} {is_tagged} {len}"),
                    header: partial(&tcp, 0),
                    left: tcp.frame(false),
                    meant: tcp.frame(true),
                });
                frames.push(udp(is_v6, is_tagged, len, len == 700));
            }
        }
    }
    frames
}

fn tcp(is_v6: bool, is_tagged: bool, len: usize) -> Tcp {
    let mut tcp = Tcp::new(is_v6, len);
    if is_tagged {
        tcp.link.splice(12..12, TAG);
    }
    tcp
}

/// A UDP frame; perhaps its checksum comes out as zero, which stands for none and is sent as 0xffff (RFC 768).
fn udp(is_v6: bool, is_tagged: bool, len: usize, is_zero: bool) -> Frame {
    let tcp = tcp(is_v6, is_tagged, len);
    let at = tcp.link.len();
    let ip_bytes = if is_v6 { 40 } else { 20 };
    let mut ip = tcp.frame(true)[at..at + ip_bytes].to_vec();
    let udp_bytes = 8 + len as u16;
    if is_v6 {
        ip[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
        ip[6] = 17;
    } else {
        ip[2..4].copy_from_slice(&(20 + udp_bytes).to_be_bytes());
        ip[9] = 17;
        ip[10..12].fill(0);
        let checksum = !sum(&ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    let mut udp = [5000, 6000, udp_bytes, 0].map(u16::to_be_bytes).concat();
    udp.extend(&tcp.payload);
    let pseudo = pseudo_header(&ip, udp.len());
    if is_zero {
        udp[8..10].fill(0);
        let rest = !sum(&[&pseudo[..], &udp].concat());
        udp[8..10].copy_from_slice(&rest.to_be_bytes());
    }
    let checksum = match !sum(&[&pseudo[..], &udp].concat()) {
        0 => 0xffff,
        checksum => checksum,
    };
    assert_eq!(is_zero, checksum == 0xffff);
    let with = |checksum: u16| {
        let mut udp = udp.clone();
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        [&tcp.link[..], &ip, &udp].concat()
    };
    let start = (at + ip_bytes) as u16;
    let header = Header { flags: 1, csum_start: start, csum_offset: 6, ..Header::default() };
    let frame = Frame {
        what: format!("UDP, {is_v6} {is_tagged} {len}"),
        header,
        left: with(sum(&pseudo)),
        meant: with(checksum),
    };
    assert!(transport_is_right(&frame.meant[at..]));
    frame
}

/// Bytes of payload of each segment of the large frames.
const EACH: u16 = 1400;

fn large_frames() -> Vec<(String, Tcp)> {
    let mut frames = Vec::new();
    for is_v6 in [false, true] {
        for is_tagged in [false, true] {
            for len in [20_001, 60_000] {
                frames.push((format!("TCP, {is_v6} {is_tagged} {len}"), tcp(is_v6, is_tagged, len)));
            }
        }
    }
    frames
}

/// A guest that leaves everything to its device, and the port that it sends by.
struct Source {
    port: Box<dyn Queue>,
    guest: Guest,
}

impl Source {
    fn new(eal: &Eal, folder: &Folder) -> Source {
        let socket = folder.path("source.sock");
        let (device, port) = open(eal, &format!("vhost-server:{socket}"));
        let guest = Guest::connect(&socket, ALL, 2048);
        wait_for("the link is up", is_up(&*device));
        Source { port, guest }
    }

    /// The guest's frame, in the switch.
    fn send(&mut self, header: Header, frame: &[u8]) -> Packet {
        self.guest.send(header, frame, &[12, 30]);
        receive(&mut *self.port, |_| true).expect("the guest's frame arrives")
    }
}

/// What arrives behind the port `to`: a frame, and for a large one of how many bytes its segments are.
type Arrived<'a> = &'a mut dyn FnMut() -> (Vec<u8>, u16);

/// Sends everything to a port and judges what arrives behind it. `is_whole`: large frames arrive in one piece.
fn cross(source: &mut Source, to: &mut dyn Queue, arrived: Arrived<'_>, is_whole: bool) {
    let mut send = |packet: Packet| {
        let mut packets = vec![packet];
        wait_for("the port takes it", || {
            to.tx(&mut packets);
            packets.is_empty()
        });
    };
    for frame in small_frames() {
        let packet = source.send(frame.header, &frame.left);
        assert!(packet.data() == frame.meant, "{}: in the switch", frame.what);
        send(packet);
        let (bytes, segment) = arrived();
        assert_eq!(segment, 0);
        assert!(bytes == frame.meant, "{}: {:02x?}", frame.what, &bytes[..bytes.len().min(100)]);
    }
    for (what, tcp) in large_frames() {
        send(source.send(partial(&tcp, EACH), &tcp.frame(false)));
        if is_whole {
            let (bytes, segment) = arrived();
            assert!(segment == EACH && bytes == tcp.frame(true), "{what}: {} bytes, {segment}", bytes.len());
        } else {
            let count = tcp.payload.len().div_ceil(usize::from(EACH));
            let segments: Vec<_> = (0..count).map(|_| arrived()).collect();
            assert!(segments.iter().all(|(_, segment)| *segment == 0), "{what}");
            let segments: Vec<Vec<u8>> = segments.into_iter().map(|(bytes, _)| bytes).collect();
            assert!(segments.iter().all(|segment| segment.starts_with(&tcp.link)), "{what}");
            tcp.check_segments(&segments, usize::from(EACH), tcp.link.len());
        }
    }
}

/// Frames of the test's own that a port of ours receives; the kernel says a few things by itself.
fn ours(port: &mut dyn Queue) -> (Vec<u8>, u16) {
    let packet = receive(port, |frame| frame.starts_with(&ETHERNET)).expect("the frame arrives");
    (packet.data().to_vec(), packet.segment())
}

/// What a guest makes of a frame of which the checksum was left to it.
fn complete((header, mut frame): (Header, Vec<u8>)) -> (Vec<u8>, u16) {
    if header.flags & 1 != 0 {
        let (start, at) = (usize::from(header.csum_start), usize::from(header.csum_start + header.csum_offset));
        let checksum = !sum(&frame[start..]);
        frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    (frame, header.gso_size)
}

fn to_guest(test: &'static str, features: u64, is_whole: bool) {
    isolated(test, Needs::Nothing, || {
        let folder = Folder::new(test);
        let eal = small_eal();
        let mut source = Source::new(&eal, &folder);
        for rings in [0, F_RING_PACKED] {
            let socket = folder.path("sink.sock");
            let (device, mut port) = open(&eal, &format!("vhost-server:{socket}"));
            let mut sink = Guest::connect(&socket, features | rings, 2048);
            wait_for("the link is up", is_up(&*device));
            cross(&mut source, &mut *port, &mut || complete(sink.wait()), is_whole);
            assert_eq!((device.stats().tx_dropped, device.stats().tx_not_cut), (0, 0));
        }
    });
}

#[test]
fn to_a_guest_with_all_offloads() {
    to_guest("to_a_guest_with_all_offloads", ALL, true);
}

#[test]
fn to_a_guest_without_offloads() {
    to_guest("to_a_guest_without_offloads", F_MRG_RXBUF | F_VERSION_1, false);
}

#[test]
fn to_a_guest_that_takes_checksums_alone() {
    to_guest("to_a_guest_that_takes_checksums_alone", F_GUEST_CSUM | F_MRG_RXBUF | F_VERSION_1, false);
}

#[test]
fn to_a_memif_port() {
    const TEST: &str = "to_a_memif_port";
    isolated(TEST, Needs::Root, || {
        let folder = Folder::new(TEST);
        let socket = folder.path("memif.sock");
        let eal = small_eal();
        let mut source = Source::new(&eal, &folder);
        let (server, mut far) = open(&eal, &format!("memif:{socket},role=server"));
        let (client, mut near) = open(&eal, &format!("memif:{socket}"));
        wait_for("both links are up", || client.link().up && server.link().up);
        cross(&mut source, &mut *near, &mut || ours(&mut *far), false);
        assert_eq!(client.stats().tx_dropped, 0);
    });
}

/// To one end of a veth pair; the other end is a port of ours, too, which says what the kernel has made of it.
fn to_kernel(test: &'static str, port: &str, features: Option<&str>, is_whole: bool) {
    isolated(test, Needs::Root, || {
        veth_pair();
        if let Some(features) = features {
            let set = Command::new("ethtool").args(["-K", "sw0"]).args(features.split(' ')).output();
            match set {
                Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
                Err(error) => return eprintln!("{test}: skipped, `ethtool` does not run: {error}"),
            }
        }
        let folder = Folder::new(test);
        let eal = small_eal();
        let mut source = Source::new(&eal, &folder);
        let (device, mut near) = open(&eal, port);
        let (_far_device, mut far) = open(&eal, "host0");
        cross(&mut source, &mut *near, &mut || ours(&mut *far), is_whole);
        assert_eq!(device.stats().tx_dropped, 0);
    });
}

#[test]
fn to_a_kernel_interface() {
    to_kernel("to_a_kernel_interface", "sw0", None, true);
}

/// The kernel cuts large frames itself, and computes their checksums.
#[test]
fn to_a_kernel_interface_without_offloads() {
    to_kernel("to_a_kernel_interface_without_offloads", "sw0", Some("tx off tso off"), false);
}

#[test]
fn to_an_xdp_port() {
    to_kernel("to_an_xdp_port", "xdp:sw0", None, false);
}
