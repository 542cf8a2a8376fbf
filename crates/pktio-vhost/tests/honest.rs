//! What an honest front end may do: come and go, stop and go on, add memory, ask for replies.
#![allow(unsafe_code)]

mod common;

use common::*;
use pktio::HeapPool;
use pktio_vhost::{Options, open};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;

#[test]
fn both_kinds_of_rings_and_both_headers_work() {
    let ports = Ports::new();
    for features in [0, F_VERSION_1, FEATURES, FEATURES | F_RING_PACKED] {
        let path = ports.path("honest").display().to_string();
        let mut guest = Guest::connect(&path, features | F_VERSION_1, 2048);
        ports.echo_up_to(1500, &mut guest);
        drop(guest);
        wait_for("the port is free", || !ports.devices[1].link().up);
    }
}

#[test]
fn a_port_that_connects_finds_its_front_end_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("guest");
    let options = Options { is_server: false, queues: 1, mtu: 9000, memory_bytes: 1 << 30 };
    let mut device = open("client".into(), &path, &options, HeapPool::shared(1024)).expect("nobody need be there");
    let mut queue = device.take_queues().remove(0);
    for round in 0..2u8 {
        assert!(!device.link().up);
        let listener = UnixListener::bind(&path).expect("the folder is ours");
        let (socket, _) = listener.accept().expect("the port comes");
        let mut guest = Guest::over(socket, FEATURES, 2048, false);
        assert!(guest.is_connected() && device.link().up);
        let frame = [round; 100];
        guest.send(Header::default(), &frame, &[]);
        let mut packets = Vec::new();
        wait_for("the frame is there", || queue.rx(&mut packets, 64) == 1);
        assert_eq!(queue.tx(&mut packets), 1);
        assert!(guest.wait().1 == frame);
        drop((guest, listener));
        wait_for("the link is down", || !device.link().up);
        std::fs::remove_file(&path).expect("it is ours");
    }
    let stats = device.stats();
    assert_eq!((stats.rx_packets, stats.tx_packets, stats.rx_bytes), (2, 2, 200), "{stats:?}");
}

#[test]
fn rings_go_on_where_they_stood() {
    let ports = Ports::new();
    let mut guest = ports.connect("honest");
    ports.echo(&mut guest);
    for round in 1..4u64 {
        for ring in [0u32, 1] {
            let answer = guest.ask(11, &words(&[ring, 0]));
            assert_eq!((answer as u32, answer >> 32), (ring, 20 * round), "its number, and how many entries were used");
            guest.tell(10, &words(&[ring, (answer >> 32) as u32]), None);
        }
        assert!(!ports.devices[1].link().up);
        for ring in [0u64, 1] {
            guest.tell(12, &(ring | 1 << 8).to_le_bytes(), None);
        }
        ports.echo(&mut guest);
    }
}

#[test]
fn memory_may_be_added_and_removed_while_packets_pass() {
    let ports = Ports::new();
    let mut guest = ports.connect("honest");
    // SAFETY: a C string; a new file that is ours.
    let file = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"more".as_ptr(), libc::MFD_CLOEXEC)) };
    // SAFETY: a file of ours.
    assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), 1 << 20) }, 0);
    let mut region = 0u64.to_le_bytes().to_vec();
    region.extend([1u64 << 40, 1 << 20, 1 << 46, 0].map(u64::to_le_bytes).concat());
    for _ in 0..3 {
        guest.tell(37, &region, Some(file.as_raw_fd()));
        assert!(guest.is_connected());
        ports.echo(&mut guest);
        guest.tell(38, &region, None);
        assert!(guest.is_connected());
        ports.echo(&mut guest);
    }
    assert_eq!(guest.ask(36, &[]), 32);
    guest.tell(38, &region, None);
    assert!(!guest.is_connected(), "there is none any more");
}

#[test]
fn replies_come_when_they_are_asked_for() {
    let ports = Ports::new();
    let mut guest = ports.connect("honest");
    let offered = guest.ask(15, &[]);
    assert_eq!(offered & 0b1011, 0b1011, "multiqueue, log, replies");
    guest.tell(16, &(1u64 << 3).to_le_bytes(), None);
    let mut message = words(&[20, 1 | 8, 8]);
    message.extend(1500u64.to_le_bytes());
    std::io::Write::write_all(&mut guest.socket(), &message).expect("the socket is open");
    let mut reply = [0; 20];
    std::io::Read::read_exact(&mut guest.socket(), &mut reply).expect("there is a reply");
    assert_eq!(reply.to_vec(), [words(&[20, 1 | 4, 8]), vec![0; 8]].concat());
    assert_eq!(guest.ask(17, &[]), 64, "pairs of rings");
}

#[test]
fn a_guest_is_called_when_it_wants_to_be() {
    let ports = Ports::new();
    let mut guest = ports.connect("honest");
    let calls = [eventfd(0), eventfd(0)];
    for (ring, call) in calls.iter().enumerate() {
        guest.tell(13, &(ring as u64).to_le_bytes(), Some(call.as_raw_fd()));
    }
    assert!(guest.is_connected());
    ports.echo(&mut guest);
    for call in &calls {
        let mut count = [0u8; 8];
        // The port has set the file to non-blocking.
        wait_for("a call", || {
            // SAFETY: eight bytes that live for the call.
            unsafe { libc::read(call.as_raw_fd(), count.as_mut_ptr().cast(), 8) == 8 }
        });
        assert!(u64::from_ne_bytes(count) > 0);
    }
}
