//! Checksums and segmentation that senders leave to the device, and jumbo frames: segments made by us, a guest whose
//! descriptors are chosen one by one, and the kernel's TCP with all its offloads on.

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
use pktio::{Device, Packet, Queue};
use pktio_dpdk::{Eal, PortOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Sends a large frame through a port that takes none, and gives what arrives.
fn cut(eal: &Eal, queue: &mut dyn Queue, frame: &[u8], segment: u16) -> Vec<Vec<u8>> {
    let mut packet = eal.pool().alloc_from(frame).unwrap();
    packet.set_segment(segment);
    let mut packets = vec![packet];
    assert_eq!(queue.tx(&mut packets), 1);
    assert!(packets.is_empty());
    let mut received = Vec::new();
    queue.rx(&mut received, 512);
    received.iter().map(|packet| packet.data().to_vec()).collect()
}

#[test]
fn large_tcp_frames_are_cut_into_segments() {
    isolated("large_tcp_frames_are_cut_into_segments", Needs::Nothing, || {
        let eal = small_eal();
        let (device, mut queue) = open(&eal, "ring:r0");
        let mut sent = 0;
        for is_v6 in [false, true] {
            for (len, each) in
                [(65_000, 1448), (2897, 1448), (2896, 1448), (1448, 1448), (1, 1448), (30_000, 8900), (890, 7)]
            {
                for (link, flags) in
                    [(&[][..], 0x18), (&[0x81, 0, 0, 5][..], 0x91), (&[0x88, 0xa8, 0, 6, 0x81, 0, 0, 5], 0x10)]
                {
                    let mut tcp = Tcp::new(is_v6, len);
                    tcp.flags = flags;
                    tcp.link.splice(12..12, link.iter().copied());
                    // The checksum that is there does not matter: the program may have left any.
                    let segments = cut(&eal, &mut *queue, &tcp.frame(false), each as u16);
                    assert_eq!(segments.len(), len.div_ceil(each));
                    sent += segments.len() as u64;
                    assert!(segments.iter().all(|segment| segment.starts_with(&tcp.link)));
                    tcp.check_segments(&segments, each, tcp.link.len());
                }
            }
        }
        let stats = device.stats();
        assert_eq!((stats.tx_packets, stats.tx_dropped), (sent, 0));
        assert_eq!(eal.pool().available(), eal.pool().limit());
    });
}

#[test]
fn segments_in_a_tunnel_have_right_outer_headers() {
    isolated("segments_in_a_tunnel_have_right_outer_headers", Needs::Nothing, || {
        let eal = small_eal();
        let (_device, mut queue) = open(&eal, "ring:r0");
        for (is_v6, with_checksum) in [(false, false), (true, true), (false, true)] {
            let tcp = Tcp::new(is_v6, 5000);
            let inner = tcp.frame(true);
            let len = 8 + 8 + inner.len() as u16;
            let mut udp = [50_000u16, 4789, len, u16::from(with_checksum)].map(u16::to_be_bytes).concat();
            udp.extend([8, 0, 0, 0, 0, 0, 7, 0]);
            let mut ip = vec![0x45, 0];
            ip.extend((20 + len).to_be_bytes());
            ip.extend([0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
            let frame = [&ETHERNET[..], &[8, 0], &ip, &udp, &inner].concat();
            let segments = cut(&eal, &mut *queue, &frame, 1400);
            assert_eq!(segments.len(), 4);
            for segment in &segments {
                let outer = &segment[14..];
                assert_eq!(sum(&outer[..20]), 0xffff);
                assert_eq!(usize::from(u16::from_be_bytes([outer[2], outer[3]])), outer.len());
                assert_eq!(usize::from(u16::from_be_bytes([outer[24], outer[25]])), outer.len() - 20);
                match with_checksum {
                    true => assert!(transport_is_right(outer), "the outer UDP checksum"),
                    false => assert_eq!(outer[26..28], [0, 0]),
                }
                assert_eq!(outer[28..36], udp[8..16], "the VXLAN header");
            }
            tcp.check_segments(&segments, 1400, 14 + 20 + 8 + 8 + 14);
        }
    });
}

#[test]
fn large_udp_frames_are_cut_into_datagrams() {
    isolated("large_udp_frames_are_cut_into_datagrams", Needs::Nothing, || {
        let eal = small_eal();
        let (_device, mut queue) = open(&eal, "ring:r0");
        let payload: Vec<u8> = (0..2500).map(|i| i as u8).collect();
        let mut ip = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
        ip.extend([0x13, 0x88, 0x17, 0x70, 0, 0, 0, 0]);
        ip.extend(&payload);
        let frame = [&ETHERNET[..], &[8, 0], &ip].concat();
        let datagrams = cut(&eal, &mut *queue, &frame, 1000 | 0x8000);
        let lengths: Vec<usize> = datagrams.iter().map(|datagram| datagram.len() - 42).collect();
        assert_eq!(lengths, [1000, 1000, 500]);
        for datagram in &datagrams {
            assert!(transport_is_right(&datagram[14..]) && sum(&datagram[14..34]) == 0xffff);
            assert_eq!(usize::from(u16::from_be_bytes([datagram[38], datagram[39]])), datagram.len() - 34);
        }
        let all: Vec<u8> = datagrams.iter().flat_map(|datagram| datagram[42..].to_vec()).collect();
        assert_eq!(all, payload);
    });
}

#[test]
fn what_cannot_be_cut_is_dropped_with_its_reason() {
    isolated("what_cannot_be_cut_is_dropped_with_its_reason", Needs::Nothing, || {
        let eal = small_eal();
        let spec = "ring:r0".parse().unwrap();
        let mut device = eal.open(&spec, &PortOptions { mtu: Some(1500), ..PortOptions::default() }).unwrap();
        let mut queue = device.take_queues().remove(0);
        let tcp = Tcp::new(false, 4000);
        let whole = tcp.frame(true);
        let mut fragment = whole.clone();
        fragment[20] = 0x20;
        let udp = {
            let mut frame = whole.clone();
            frame[23] = 17;
            frame
        };
        let unknown = [&[0xffu8; 12][..], &[0x88, 0xb5], &[0; 4000]].concat();
        // A hostile guest's: 4,000 segments of one byte; cut off within the headers; a header longer than the frame.
        let short = {
            let mut frame = whole[..60].to_vec();
            frame[46] = 0xf0;
            frame
        };
        for (frame, segment) in
            [(&fragment, 1000), (&udp, 1000), (&unknown, 1000), (&whole, 1), (&short, 10), (&whole[..14].to_vec(), 10)]
        {
            assert_eq!(cut(&eal, &mut *queue, frame, segment), Vec::<Vec<u8>>::new());
        }
        let stats = device.stats();
        assert_eq!((stats.tx_dropped, stats.tx_not_cut, stats.tx_too_long), (6, 6, 0));
        assert!(cut(&eal, &mut *queue, &whole, 1453).is_empty(), "segments of 1519 bytes");
        assert_eq!(cut(&eal, &mut *queue, &whole, 1452).len(), 3, "segments of 1518 bytes");
        assert!(cut(&eal, &mut *queue, &[1; 1519], 0).is_empty());
        assert_eq!(cut(&eal, &mut *queue, &[1; 1518], 0).len(), 1);
        let stats = device.stats();
        assert_eq!((stats.tx_dropped, stats.tx_not_cut, stats.tx_too_long), (8, 6, 2));
        assert_eq!(eal.pool().available(), eal.pool().limit());
    });
}

/// A vhost port with a guest of these features in front of it, with split rings and then with packed ones.
fn with_guest(
    test: &'static str,
    features: u64,
    buffer_bytes: u32,
    body: impl Fn(&Eal, &dyn Device, &mut dyn Queue, &mut Guest),
) {
    isolated(test, Needs::Nothing, || {
        let folder = Folder::new(test);
        let eal = small_eal();
        for rings in [0, F_RING_PACKED] {
            let socket = folder.path("switch.sock");
            let (device, mut queue) = open(&eal, &format!("vhost-server:{socket}"));
            let mut guest = Guest::connect(&socket, features | rings, buffer_bytes);
            wait_for("the link is up", is_up(&*device));
            body(&eal, &*device, &mut *queue, &mut guest);
        }
    });
}

#[test]
fn a_guest_s_frames_come_from_chains_of_any_shape() {
    with_guest("a_guest_s_frames_come_from_chains_of_any_shape", ALL, 2048, |eal, device, queue, guest| {
        let mut count = 0;
        for len in [60, 1514, 2036, 2048, 2049, 9018, 65_000] {
            let frame: Vec<u8> = (0..len).map(|i| (i * 31 % 253) as u8).collect();
            // The virtio header alone; split itself; the frame's headers over several pieces; all in one.
            for pieces in [&[12][..], &[3, 5], &[12, 7, 5, 13, 1], &[], &[40, 4, 1, 1]] {
                guest.send(Header::default(), &frame, pieces);
                let packet = receive(queue, |_| true).expect("the frame arrives");
                assert!(packet.data() == frame, "{len} bytes in pieces {pieces:?}");
                assert_eq!((packet.segment(), packet.headroom()), (0, pktio::HEADROOM));
                // And back: into as many of the guest's buffers as it takes.
                let mut packets = vec![packet];
                assert_eq!(queue.tx(&mut packets), 1);
                count += 1;
                if len > 9018 {
                    continue;
                }
                let (header, bytes) = guest.wait();
                assert!(bytes == frame, "{len} bytes");
                assert_eq!(header, Header { buffers: (len as u16 + 12).div_ceil(2048), ..Header::default() });
            }
        }
        let stats = device.stats();
        assert_eq!((stats.rx_packets, stats.rx_dropped), (count, 0));
        assert_eq!(
            (stats.tx_packets, stats.tx_dropped, stats.tx_too_long),
            (count - 5, 5, 5),
            "65,000 bytes are too many"
        );
        assert!(guest.all_taken());
        wait_for("all buffers are back", || eal.pool().available() == eal.pool().limit());
    });
}

#[test]
fn a_guest_s_partial_checksums_are_completed() {
    with_guest("a_guest_s_partial_checksums_are_completed", ALL, 2048, |_, device, queue, guest| {
        for is_v6 in [false, true] {
            for len in [0, 1, 1447, 1448, 8947] {
                let tcp = Tcp::new(is_v6, len);
                guest.send(partial(&tcp, 0), &tcp.frame(false), &[12, 60]);
                let packet = receive(queue, |_| true).expect("the frame arrives");
                assert!(packet.data() == tcp.frame(true), "{len} bytes");
            }
        }
        // Outside of the frame.
        let tcp = Tcp::new(false, 100);
        for (start, offset) in [(166, 0), (34, 131), (0xffff, 0xffff)] {
            guest.send(Header { csum_start: start, csum_offset: offset, ..partial(&tcp, 0) }, &tcp.frame(false), &[]);
        }
        assert!(receive_none(queue));
        assert_eq!(device.stats().rx_dropped, 3);
        assert!(guest.all_taken());
    });
}

/// Whether nothing arrives for a moment.
fn receive_none(queue: &mut dyn Queue) -> bool {
    (0..50).all(|_| {
        std::thread::sleep(Duration::from_millis(1));
        queue.rx(&mut Vec::new(), 64) == 0
    })
}

#[test]
fn a_guest_s_large_frames_pass_to_one_that_takes_them() {
    with_guest("a_guest_s_large_frames_pass_to_one_that_takes_them", ALL, 4096, |_, device, queue, guest| {
        for is_v6 in [false, true] {
            let tcp = Tcp::new(is_v6, 50_000);
            guest.send(partial(&tcp, 1448), &tcp.frame(false), &[12]);
            let mut packet = receive(queue, |_| true).expect("the frame arrives");
            assert_eq!(packet.segment(), 1448);
            assert!(packet.data() == tcp.frame(true), "the program sees the frame with its checksum");
            // A program that rewrites an address, and forgets about the checksum.
            let ip = tcp.link.len();
            packet.data_mut()[ip + if is_v6 { 30 } else { 17 }] ^= 0x55;
            let mut expected = packet.data().to_vec();
            assert_eq!(queue.tx(&mut vec![packet]), 1);
            let (header, frame) = guest.wait();
            let wanted = Header { buffers: header.buffers, ..partial(&tcp, 1448) };
            assert_eq!(header, wanted);
            assert_eq!(usize::from(header.buffers), (expected.len() + 12).div_ceil(4096));
            let transport = usize::from(header.csum_start);
            let partial = sum(&pseudo_header(&expected[ip..], expected.len() - transport));
            expected[transport + 16..transport + 18].copy_from_slice(&partial.to_be_bytes());
            assert!(frame == expected, "the checksum is the sum of the new addresses");
        }
        assert_eq!(device.stats().tx_dropped, 0);
    });
}

#[test]
fn a_guest_without_offloads_gets_segments() {
    const FEATURES: u64 = F_CSUM | F_HOST_TSO4 | F_HOST_TSO6 | F_MRG_RXBUF | F_VERSION_1;
    with_guest("a_guest_without_offloads_gets_segments", FEATURES, 2048, |_, device, queue, guest| {
        for is_v6 in [false, true] {
            let tcp = Tcp::new(is_v6, 10_000);
            guest.send(partial(&tcp, 1448), &tcp.frame(false), &[12]);
            let packet = receive(queue, |_| true).expect("the frame arrives");
            assert_eq!(queue.tx(&mut vec![packet]), 1);
            let segments: Vec<Vec<u8>> = (0..7).map(|_| guest.wait().1).collect();
            assert!(guest.receive().is_none());
            tcp.check_segments(&segments, 1448, 14);
        }
        assert_eq!((device.stats().tx_packets, device.stats().tx_dropped), (14, 0));
    });
}

/// A process in a network namespace of its own, ended on drop.
struct Namespace(Reaped);

impl Namespace {
    fn new() -> Namespace {
        let sleeping = Command::new("unshare").args(["--net", "sleep", "1000"]).spawn().expect("`unshare` runs");
        let namespace = Namespace(Reaped(sleeping));
        let mine = std::fs::read_link("/proc/self/ns/net").unwrap();
        wait_for("the namespace", || {
            std::fs::read_link(format!("/proc/{}/ns/net", namespace.pid())).is_ok_and(|its| its != mine)
        });
        namespace
    }

    fn pid(&self) -> u32 {
        self.0.0.id()
    }

    fn run(&self, command: &str) -> Command {
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["--net", "--target", &self.pid().to_string()]).args(command.split(' '));
        nsenter
    }

    fn ip(&self, arguments: &str) {
        assert!(self.run(&format!("ip {arguments}")).status().unwrap().success(), "ip {arguments}");
    }

    /// Makes `interface` this host's only one.
    fn host(&self, interface: &str, mac: &str, address: &str) {
        ip(&format!("link set {interface} netns {}", self.pid()));
        self.ip(&format!("link set {interface} address {mac} up"));
        self.ip(&format!("addr add {address}/24 dev {interface}"));
    }
}

const STREAM_BYTES: usize = 20_000_000;

fn stream() -> Vec<u8> {
    (0..STREAM_BYTES).map(|i| (i % 65_521 % 256) as u8).collect()
}

/// What the two hosts do, each in a process of its own: one stream there, then one back.
fn be_host(role: &str) {
    let mut received = Vec::new();
    let mut socket = match role {
        "server" => TcpListener::bind("10.9.1.2:7000").unwrap().accept().unwrap().0,
        _ => TcpStream::connect("10.9.0.2:7000").unwrap(),
    };
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    if role == "server" {
        Read::by_ref(&mut socket).take(STREAM_BYTES as u64).read_to_end(&mut received).unwrap();
    }
    socket.write_all(&stream()).unwrap();
    socket.flush().unwrap();
    if role == "client" {
        Read::by_ref(&mut socket).take(STREAM_BYTES as u64).read_to_end(&mut received).unwrap();
    }
    assert!(received == stream(), "{role}: {} bytes arrived, not those that were sent", received.len());
}

/// Changes an address of an IPv4 packet as a program does that knows what it replaces: RFC 1624, equation 3.
fn rewrite(frame: &mut [u8], at: usize, from: [u8; 4], to: [u8; 4]) {
    if frame.len() < 54 || frame[12..14] != [8, 0] || frame[23] != 6 || frame[at..at + 4] != from {
        return;
    }
    frame[at..at + 4].copy_from_slice(&to);
    for checksum in [24, 50] {
        let old = u16::from_be_bytes([frame[checksum], frame[checksum + 1]]);
        let mut change = (!old).to_be_bytes().to_vec();
        change.extend(from.map(|byte| !byte));
        change.extend(to);
        frame[checksum..checksum + 2].copy_from_slice(&(!sum(&change)).to_be_bytes());
    }
}

/// Whether anybody listens at a TCP port in the network namespace that a process is in.
fn listens(pid: u32, port: u16) -> bool {
    // Each line: number, local address and port in hexadecimal digits, remote ones, state (0A is `LISTEN`).
    let sockets = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let wanted = format!(":{port:04X}");
    sockets.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.len() > 3 && fields[1].ends_with(&wanted) && fields[3] == "0A"
    })
}

/// Two hosts with the kernel's TCP, all its offloads on, and between them two ports and a translation of addresses.
fn tcp_through(test: &'static str, second: &str, mtu: u32, is_large: bool) {
    if let Ok(role) = std::env::var("PKTIO_DPDK_HOST") {
        return be_host(&role);
    }
    isolated(test, Needs::Root, || {
        veth_pair();
        if second == "sw1" {
            ip("link add sw1 type veth peer name host1");
            ip("link set sw1 up");
        }
        for interface in ["sw0", "host0", "sw1", "host1"].iter().filter(|_| mtu != 1500) {
            ip(&format!("link set {interface} mtu {mtu}"));
        }
        let (client, server) = (Namespace::new(), Namespace::new());
        let eal = small_eal();
        let (first, mut left) = open(&eal, "sw0");
        let (other, mut right) = open(&eal, second);
        client.host("host0", "02:00:00:00:00:01", "10.9.0.1");
        server.host(second.strip_prefix("tap:").unwrap_or("host1"), "02:00:00:00:00:02", "10.9.1.2");
        client.ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev host0");
        let far = second.strip_prefix("tap:").unwrap_or("host1");
        server.ip(&format!("route add 10.9.0.0/24 dev {far}"));
        server.ip(&format!("neigh add 10.9.0.1 lladdr 02:00:00:00:00:01 dev {far}"));

        let host = |namespace: &Namespace, role: &str| -> Reaped {
            let this = std::env::current_exe().unwrap();
            let mut command = namespace.run(&this.display().to_string());
            command.args([test, "--exact", "--nocapture"]).env("PKTIO_DPDK_HOST", role);
            Reaped(command.stdout(Stdio::null()).spawn().unwrap())
        };
        let mut far_host = host(&server, "server");
        wait_for("the server listens", || listens(far_host.0.id(), 7000));
        let mut near_host = host(&client, "client");
        let deadline = Instant::now() + 5 * PATIENCE;
        let (mut large, mut longest, mut waiting) = ([0; 2], 0, [Vec::new(), Vec::new()]);
        let mut ended = [None, None];
        while ended.iter().any(Option::is_none) {
            assert!(Instant::now() < deadline, "the streams did not end: {:?} {:?}", first.stats(), other.stats());
            for direction in 0..2 {
                let (from, to): (&mut dyn Queue, &mut dyn Queue) =
                    if direction == 0 { (&mut *left, &mut *right) } else { (&mut *right, &mut *left) };
                let packets: &mut Vec<Packet> = &mut waiting[direction];
                if packets.is_empty() {
                    from.rx(packets, 64);
                    for packet in packets.iter_mut() {
                        large[direction] += u32::from(packet.segment() != 0);
                        longest = longest.max(packet.len());
                        if direction == 0 {
                            rewrite(packet.data_mut(), 30, [10, 9, 0, 2], [10, 9, 1, 2]);
                        } else {
                            rewrite(packet.data_mut(), 26, [10, 9, 1, 2], [10, 9, 0, 2]);
                        }
                    }
                }
                to.tx(packets);
            }
            let status = |child: &mut Child| child.try_wait().unwrap();
            ended = [status(&mut near_host.0), status(&mut far_host.0)];
        }
        assert!(ended.iter().all(|status| status.is_some_and(|status| status.success())), "see above: {ended:?}");
        for stats in [first.stats(), other.stats()] {
            assert_eq!((stats.tx_dropped, stats.rx_errors), (0, 0), "{stats:?}");
        }
        if is_large {
            assert!(large.iter().all(|&count| count > 50), "large frames each way: {large:?}");
            assert!(longest > 20_000, "{longest}");
        } else {
            assert_eq!(large, [0; 2]);
        }
        // The far side judged every checksum: none that was wrong was taken for right, and none was wrong.
        for (namespace, what) in [(&client, "the client's"), (&server, "the server's")] {
            let output = namespace.run("cat /proc/net/snmp").stderr(Stdio::null()).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let errors =
                text.lines().rfind(|line| line.starts_with("Tcp:")).and_then(|line| line.split(' ').next_back());
            assert_eq!(errors, Some("0"), "{what} kernel has seen wrong checksums:\n{text}");
        }
    });
}

#[test]
fn tcp_with_offloads_crosses_two_kernel_interfaces() {
    tcp_through("tcp_with_offloads_crosses_two_kernel_interfaces", "sw1", 1500, true);
}

#[test]
fn tcp_with_offloads_crosses_a_jumbo_network() {
    tcp_through("tcp_with_offloads_crosses_a_jumbo_network", "sw1", 9000, true);
}

#[test]
fn tcp_with_offloads_reaches_a_tap() {
    tcp_through("tcp_with_offloads_reaches_a_tap", "tap:far0", 1500, true);
}
