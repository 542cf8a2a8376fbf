//! Front ends and guests that attack. Each test has two ports with one worker between them: the attacker's, and that of an
//! honest guest, whose frames must come back whatever the other one does.
#![allow(unsafe_code)]

mod common;

use common::*;
use pktio::HeapPool;
use pktio_vhost::{Options, open};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Finding 1: rings were mapped for one size and used with another, beyond their region.
#[test]
fn a_ring_that_grows_beyond_its_region_is_not_used() {
    let ports = Ports::new();
    let (mut attacker, mut honest) = (ports.connect("attacked"), ports.connect("honest"));
    ports.echo(&mut attacker);
    let end = MEMORY_BYTES as u64;
    for (size, descriptors, used, available) in [
        (32_768, 0, end - 0x1000, 0x20_0000),
        (32_768, end - 16 * 256, 0x20_0000, 0x30_0000),
        (32_768, 0, 0x20_0000, end - 4),
        (256, end, 0x20_0000, 0x30_0000),
        (256, 0, u64::MAX / 2, 0x30_0000),
        (256, 8, 0x20_0000, 0x30_0000),
        (100, 0, 0x20_0000, 0x30_0000),
    ] {
        for ring in [0, 1] {
            move_ring(&mut attacker, ring, size, descriptors, used, available);
        }
        assert!(attacker.is_connected());
        ports.worker_runs();
        assert!(!ports.devices[0].link().up, "{size} places at {descriptors:#x}, {used:#x}, {available:#x}");
        ports.echo(&mut honest);
    }
    ports.says("not in the guest's memory");
    // Larger while it works, and only then elsewhere.
    let mut again = {
        drop(attacker);
        wait_for("the port is free", || !ports.devices[0].link().up);
        ports.connect("attacked")
    };
    ports.echo(&mut again);
    again.tell(8, &words(&[0, 32_768]), None);
    again.tell(8, &words(&[1, 32_768]), None);
    let _ = again.is_connected();
    ports.worker_runs();
    ports.echo(&mut honest);
}

/// Finding 1: a ring's kind changed between stop and start.
#[test]
fn packed_and_split_may_change_places() {
    let ports = Ports::new();
    let (mut attacker, mut honest) = (ports.connect("attacked"), ports.connect("honest"));
    ports.echo(&mut attacker);
    for round in 0..50u64 {
        let packed = if round % 2 == 0 { F_RING_PACKED } else { 0 };
        let stop = round % 3 == 0;
        if stop {
            attacker.try_ask(11, &words(&[0, 0]));
            attacker.try_ask(11, &words(&[1, 0]));
        }
        attacker.tell(2, &(FEATURES | packed).to_le_bytes(), None);
        if stop {
            attacker.tell(12, &(1u64 << 8).to_le_bytes(), None);
            attacker.tell(12, &(1u64 | 1 << 8).to_le_bytes(), None);
        }
        if !attacker.is_connected() {
            break;
        }
        ports.worker_runs();
    }
    ports.echo(&mut honest);
}

/// Finding 2: a full pipe as the call descriptor blocked the worker.
#[test]
fn a_call_file_that_blocks_stops_nobody() {
    let ports = Ports::new();
    let (mut attacker, mut honest) = (ports.connect("attacked"), ports.connect("honest"));
    let full = eventfd(u64::MAX - 1);
    for ring in [0u64, 1] {
        attacker.tell(13, &ring.to_le_bytes(), Some(full.as_raw_fd()));
    }
    assert!(attacker.is_connected());
    // What the port has set on it, this side undoes.
    // SAFETY: a file of ours.
    unsafe { libc::fcntl(full.as_raw_fd(), libc::F_SETFL, 0) };
    ports.echo(&mut attacker);
    ports.worker_runs();
    ports.echo(&mut honest);
    let (_reader, writer) = std::io::pipe().expect("a pipe");
    attacker.tell(13, &0u64.to_le_bytes(), Some(writer.as_raw_fd()));
    assert!(!attacker.is_connected(), "a pipe is refused");
    ports.says("not an eventfd");
    ports.echo(&mut honest);
    // Later front ends of the port are called, though the file that blocks is still there.
    drop(attacker);
    let call = eventfd(0);
    // SAFETY: a file of ours.
    unsafe { libc::fcntl(call.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    let mut next = ports.connect("attacked");
    next.tell(13, &0u64.to_le_bytes(), Some(call.as_raw_fd()));
    ports.echo(&mut next);
    wait_for("the next guest is called", || {
        // SAFETY: eight bytes that live for the call.
        unsafe { libc::read(call.as_raw_fd(), [0u8; 8].as_mut_ptr().cast(), 8) == 8 }
    });
    drop(full);
}

/// Finding 3: the file shrinks under its mapping.
#[test]
fn a_truncated_memory_file_costs_its_guest_the_connection() {
    let ports = Ports::new();
    let (mut attacker, mut honest) = (ports.connect("attacked"), ports.connect("honest"));
    ports.echo(&mut attacker);
    // SAFETY: a file of ours. This process has it mapped too: nothing of it is touched any more.
    unsafe { assert_eq!(libc::ftruncate(attacker.file().as_raw_fd(), 4096), 0) };
    wait_for("the port notices when it touches what is gone", || !ports.devices[0].link().up);
    ports.says("shared memory was taken away");
    assert!(!attacker.is_connected());
    ports.echo(&mut honest);
    drop(attacker);
    ports.echo(&mut ports.connect("attacked"));
}

/// Finding 3: a region is longer than its file.
#[test]
fn a_region_longer_than_its_file_is_refused() {
    let ports = Ports::new();
    let (mut attacker, mut honest) = (ports.connect("attacked"), ports.connect("honest"));
    let mut table = words(&[1, 0]);
    table.extend([0, 2 * MEMORY_BYTES as u64, attacker.user(0), 0].map(u64::to_le_bytes).concat());
    let file = attacker.file().as_raw_fd();
    attacker.tell(5, &table, Some(file));
    assert!(!attacker.is_connected());
    ports.says("ends at byte 67108864 of its file, which has 33554432");
    ports.worker_runs();
    ports.echo(&mut honest);
}

/// Finding 4: 32,768 descriptors without a byte, in a ring of as many entries. Counted in entries per poll: each of them costs
/// as many descriptors as a packet may have, of which a poll looks at those of four packets and one more. How many
/// descriptors a packet may cost is counted in `ring/tests.rs`.
#[test]
fn endless_chains_delay_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("attacked");
    let options = Options { is_server: true, queues: 1, mtu: 9000, memory_bytes: 1 << 30 };
    let mut device = open("attacked".into(), &path, &options, HeapPool::shared(2048)).expect("the port opens");
    let mut queue = device.take_queues().remove(0);
    let mut attacker = Guest::connect(&path.display().to_string(), FEATURES, 2048);
    let (descriptors, available, used) = (0x100_0000u64, 0x120_0000u64, 0x140_0000u64);
    for at in 0..32_768u64 {
        let mut desc = 0u64.to_le_bytes().to_vec();
        desc.extend(0u32.to_le_bytes());
        desc.extend([1, ((at + 1) % 32_768) as u16].map(u16::to_le_bytes).concat());
        attacker.write(descriptors + 16 * at, &desc);
        attacker.write(available + 4 + 2 * at, &(at as u16).to_le_bytes());
    }
    move_ring(&mut attacker, 1, 32_768, descriptors, used, available);
    assert!(attacker.is_connected());
    attacker.write(available + 2, &0x8000u16.to_le_bytes());
    let taken = || u16::from_le_bytes([attacker.read(used + 2, 1)[0], attacker.read(used + 3, 1)[0]]);
    for poll in 0..50 {
        let before = taken();
        assert_eq!(queue.rx(&mut Vec::new(), 64), 0);
        assert!((1..=5).contains(&(taken() - before)), "poll {poll} took {} entries", taken() - before);
    }
    assert_eq!(device.stats().rx_dropped, u64::from(taken()));
}

/// The finding: the budget of a burst to a guest was given anew as long as packets were left, so 64 of them went through
/// 16,384 descriptors.
#[test]
fn buffers_in_endless_pieces_delay_no_sender() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("attacked");
    let options = Options { is_server: true, queues: 1, mtu: 9000, memory_bytes: 1 << 30 };
    let pool = HeapPool::shared(2048);
    let mut device = open("attacked".into(), &path, &options, pool.clone()).expect("the port opens");
    let mut queue = device.take_queues().remove(0);
    let mut attacker = Guest::connect(&path.display().to_string(), FEATURES, 2048);
    let (descriptors, available, used) = (0x100_0000u64, 0x120_0000u64, 0x140_0000u64);
    for at in 0..32_768u64 {
        let len = if at % 256 == 0 { 12u32 } else { 0 };
        let mut desc = 0x180_0000u64.to_le_bytes().to_vec();
        desc.extend(len.to_le_bytes());
        desc.extend([3, ((at + 1) % 32_768) as u16].map(u16::to_le_bytes).concat());
        attacker.write(descriptors + 16 * at, &desc);
        attacker.write(available + 4 + 2 * at, &((256 * at % 32_768) as u16).to_le_bytes());
    }
    move_ring(&mut attacker, 0, 32_768, descriptors, used, available);
    assert!(attacker.is_connected());
    attacker.write(available + 2, &0x8000u16.to_le_bytes());
    let taken = || u16::from_le_bytes([attacker.read(used + 2, 1)[0], attacker.read(used + 3, 1)[0]]);
    for burst in 0..50 {
        let before = taken();
        let mut packets: Vec<_> = (0..64).map(|_| pool.alloc_from(&[1; 60]).expect("a buffer")).collect();
        queue.tx(&mut packets);
        assert!((1..=5).contains(&(taken() - before)), "burst {burst} took {} entries", taken() - before);
    }
}

/// The finding: the port's thread closed what a front end had sent, and waited there for as long as that one had said.
#[test]
fn files_whose_close_waits_stop_nobody() {
    let ports = Ports::new();
    let mut honest = ports.connect("honest");
    let mut others = Vec::new();
    for ring in [0u64, 1 << 8] {
        // As a call file; and beside a message that wants none. Once the port is the last that has it: if it was faster, the
        // close here waits.
        let is_last = (0..10).any(|_| {
            let mut attacker = ports.connect("attacked");
            let (file, other) = lingering();
            others.push(other);
            let (said, is_said) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                attacker.tell(13, &ring.to_le_bytes(), Some(file.as_raw_fd()));
                let _ = said.send(Some(attacker));
                drop(file);
                said.send(None)
            });
            let _attacker = is_said.recv_timeout(PATIENCE).expect("it is sent");
            is_said.recv_timeout(Duration::from_millis(200)).is_ok()
        });
        assert!(is_last, "the file is in the port's hands");
        ports.echo(&mut honest);
    }
    let mut next = ports.connect("attacked");
    ports.echo(&mut next);
    // Ports close at once, see `drop`.
    drop(ports);
    drop(others);
}

/// A socket whose `close` waits for an hour, and the other end, which reads nothing.
fn lingering() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut socket = std::net::TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
    let (other, _) = listener.accept().expect("it is there");
    socket.set_nonblocking(true).expect("it is a socket");
    while Write::write(&mut socket, &[0; 1 << 16]).is_ok() {}
    socket.set_nonblocking(false).expect("it is a socket");
    let linger = libc::linger { l_onoff: 1, l_linger: 3600 };
    let bytes = size_of::<libc::linger>() as libc::socklen_t;
    let at = (&raw const linger).cast();
    // SAFETY: an option that lives during the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, at, bytes) };
    assert_eq!(result, 0);
    (socket, other)
}

/// Finding 5: a header without its payload stopped all other front ends' messages, and the end of the program.
#[test]
fn half_a_message_stops_nobody() {
    let ports = Ports::new();
    let attacker = ports.connect("attacked");
    attacker.socket().write_all(&words(&[5, 1, 300])).expect("the socket is open");
    std::thread::sleep(Duration::from_millis(20));
    let mut honest = ports.connect("honest");
    ports.echo(&mut honest);
    ports.worker_runs();
    // Both ports close in `drop`, with the attacker still connected.
    let start = Instant::now();
    drop(ports);
    assert!(start.elapsed() < PATIENCE);
    drop(attacker);
}

trait WriteAll {
    fn write_all(&self, bytes: &[u8]) -> std::io::Result<()>;
}

impl WriteAll for std::os::unix::net::UnixStream {
    fn write_all(&self, bytes: &[u8]) -> std::io::Result<()> {
        let mut socket = self;
        Write::write_all(&mut socket, bytes)
    }
}

#[test]
fn messages_of_no_form_end_the_connection_and_nothing_else() {
    let ports = Ports::new();
    let mut honest = ports.connect("honest");
    for (message, said) in [
        (words(&[1, 2, 0]), "not of version 1"),
        (words(&[5, 1, 1 << 20]), "bytes of payload, at most"),
        (words(&[77, 1, 0]), "request 77"),
        (words(&[8, 1, 8, 400, 256]), "ring 400"),
        (words(&[2, 1, 8, u32::MAX, u32::MAX]), "which were not offered"),
    ] {
        let mut attacker = ports.connect("attacked");
        attacker.socket().write_all(&message).expect("the socket is open");
        assert!(!attacker.is_connected(), "{said}");
        ports.says(said);
        ports.echo(&mut honest);
    }
}

/// A second front end is turned away, and the first is served on.
#[test]
fn one_front_end_at_a_time() {
    let ports = Ports::new();
    let mut first = ports.connect("attacked");
    let mut second = std::os::unix::net::UnixStream::connect(ports.path("attacked")).expect("it listens");
    second.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(std::io::Read::read(&mut second, &mut [0]).ok(), Some(0), "it is closed");
    ports.echo(&mut first);
}

/// A page fault may wait for the front end, and a burst has many: a call that was held up accesses no further buffer.
#[test]
fn a_call_that_was_held_up_ends_at_the_next_buffer() {
    shared_memory::start_monitor().expect("a thread is left");
    for features in [FEATURES, FEATURES | F_RING_PACKED] {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, pool) = (folder.path().join("guest"), HeapPool::shared(1024));
        let options = Options { is_server: true, queues: 1, mtu: 9000, memory_bytes: 1 << 30 };
        let mut device = open("held-up".into(), &path, &options, pool.clone()).expect("the port opens");
        let mut queue = device.take_queues().pop().expect("a queue");
        let mut guest = Guest::connect(&path.display().to_string(), features, 2048);
        wait_for("the port is up", || device.link().up);
        let overdue = shared_memory::Overdue::of_this_thread();
        let held_up = || {
            let call = shared_memory::enter();
            wait_for("the call is overdue", || overdue.is_now());
            call
        };
        let (mut packets, frame) = (Vec::new(), vec![7; 1500]);
        // In one descriptor, and in a chain.
        for pieces in [&[][..], &[20, 300]] {
            guest.send(Header::default(), &frame, pieces);
            let call = held_up();
            assert!((0..10).all(|_| queue.rx(&mut packets, 64) == 0), "the frame waits in the ring");
            drop(call);
            wait_for("it comes", || queue.rx(&mut packets, 64) == 1);
            assert!(packets.pop().is_some_and(|packet| packet.data() == frame));
        }
        // A long frame takes several of the guest's buffers.
        packets.extend([60, 5000, 60].map(|length| pool.alloc_from(&vec![9; length]).expect("a buffer")));
        let call = held_up();
        assert_eq!(queue.tx(&mut packets), 0, "the packets stay with the worker");
        drop(call);
        assert_eq!((queue.tx(&mut packets), packets.len()), (3, 0));
        let lengths: Vec<usize> = (0..3).map(|_| guest.wait().1.len()).collect();
        assert_eq!(lengths, [60, 5000, 60]);
    }
}
