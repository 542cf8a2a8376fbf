//! A peer made of messages, memory and lies, in both roles. Whatever it does costs it frames or its connection; the process goes
//! on, and an honest peer is served as before.

mod common;

use common::{OPTIONS, open, wait_for};
use pktio::{HeapPool, PoolRef};
use pktio_memif::wire::{
    AddRegion, AddRing, Hello, Init, MESSAGE_BYTES, MODE_ETHERNET, Message, RING_CLIENT_TO_SERVER, VERSION,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind, connect, listen, recvmsg, sendmsg, socket_with,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A connection, as the peer has it.
struct Peer(OwnedFd);

fn socket() -> OwnedFd {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket");
    let time = Some(common::PATIENCE);
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, time).expect("a timeout");
    socket
}

impl Peer {
    /// A client of the server at a path.
    fn client(path: &Path) -> Peer {
        let socket = socket();
        connect(&socket, &SocketAddrUnix::new(path).expect("short")).expect("somebody listens");
        Peer(socket)
    }

    fn send(&self, message: &Message, file: Option<BorrowedFd<'_>>) {
        self.send_bytes(&message.encode(), file);
    }

    fn send_bytes(&self, bytes: &[u8], file: Option<BorrowedFd<'_>>) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let files = file.map(|file| [file]);
        if let Some(files) = &files {
            beside.push(SendAncillaryMessage::ScmRights(files));
        }
        // The other end may have had enough.
        let _ = sendmsg(&self.0, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL);
    }

    /// The next message and its file; `None` when the connection is closed.
    fn next(&self) -> Option<(Message, Option<OwnedFd>)> {
        // The kernel says first that something was not read there, and then gives what was said before.
        self.next_or_reset().or_else(|| self.next_or_reset())
    }

    fn next_or_reset(&self) -> Option<(Message, Option<OwnedFd>)> {
        let mut bytes = [0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut beside, RecvFlags::CMSG_CLOEXEC);
        let file = beside.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        match received {
            Ok(received) if received.bytes == MESSAGE_BYTES => {
                Some((Message::decode(&bytes).expect("a message"), file))
            }
            Ok(received) if received.bytes == 0 => None,
            Err(rustix::io::Errno::CONNRESET) => None,
            other => panic!("no message within {:?}: {other:?}", common::PATIENCE),
        }
    }

    /// Why the other end closes the connection.
    fn refusal(&self) -> String {
        loop {
            match self.next() {
                Some((Message::Disconnect(reason), _)) => return reason,
                Some(_) => {}
                None => return "closed without a reason".into(),
            }
        }
    }

    fn expect_ack(&self) {
        assert_eq!(self.next().map(|(message, _)| message), Some(Message::Ack));
    }
}

fn init(id: u32) -> Message {
    let name = "hostile".into();
    Message::Init(Init { version: VERSION, id, mode: MODE_ETHERNET, secret: [0; 24], name })
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd")
}

const REGION_BYTES: u64 = 1 << 20;
const LOG2: u8 = 4;
/// Where the second ring is, and the first buffer.
const SECOND_AT: u32 = 128 + (16 << LOG2);
const BUFFERS_AT: u32 = 2 * SECOND_AT;

/// Memory of a client as it should be: a ring each way, in a file that can be truncated, since it is not sealed.
fn memory() -> OwnedFd {
    let file = memfd_create("hostile", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&file, REGION_BYTES).expect("it grows");
    for ring in [0, SECOND_AT] {
        write(&file, ring, &0x03e3_1f20u32.to_le_bytes());
    }
    file
}

fn write(file: &OwnedFd, at: u32, bytes: &[u8]) {
    rustix::io::pwrite(file, bytes, u64::from(at)).expect("the file is as long");
}

fn descriptor(flags: u16, region: u16, length: u32, offset: u32) -> Vec<u8> {
    let mut bytes = [flags.to_le_bytes(), region.to_le_bytes()].concat();
    bytes.extend([length.to_le_bytes(), offset.to_le_bytes(), [0; 4]].concat());
    bytes
}

fn ring(to_server: bool) -> AddRing {
    AddRing {
        flags: if to_server { RING_CLIENT_TO_SERVER } else { 0 },
        index: 0,
        region: 0,
        offset: if to_server { 0 } else { SECOND_AT },
        log2: LOG2,
        private_header_bytes: 0,
    }
}

/// A client that has connected, its memory and the eventfd of its ring to us.
fn connected(path: &Path) -> (Peer, OwnedFd, OwnedFd) {
    let (peer, file, bell) = (Peer::client(path), memory(), event());
    assert!(matches!(peer.next(), Some((Message::Hello(_), _))));
    peer.send(&init(0), None);
    peer.expect_ack();
    peer.send(&Message::AddRegion(AddRegion { index: 0, bytes: REGION_BYTES }), Some(file.as_fd()));
    peer.expect_ack();
    for to_server in [true, false] {
        peer.send(&Message::AddRing(ring(to_server)), Some(bell.as_fd()));
        peer.expect_ack();
    }
    peer.send(&Message::Connect("hostile".into()), None);
    assert!(matches!(peer.next(), Some((Message::Connected(_), _))));
    (peer, file, bell)
}

/// That the port serves an honest client of ours.
fn serves(server: &mut common::End, path: &Path, pool: &PoolRef) {
    let mut client = open(path, "", &OPTIONS, pool);
    wait_for("an honest client is served", || {
        server.receive();
        client.is_up() && server.is_up()
    });
    wait_for("its frame arrives", || {
        client.send(0, &**pool, &[vec![0x77; 60]]);
        server.receive().contains(&vec![0x77; 60])
    });
}

#[test]
fn a_descriptor_outside_of_its_region_crashes_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, pool) = (folder.path().join("m"), HeapPool::shared(256));
    let mut server = open(&path, ",role=server", &OPTIONS, &pool);
    let (peer, file, _) = connected(&path);
    let lies =
        [(0x7fff, 64, BUFFERS_AT), (0, 64, 0xfff0_0000), (0, u32::MAX, BUFFERS_AT), (0, 64, REGION_BYTES as u32 - 63)];
    for (i, (region, length, offset)) in lies.into_iter().enumerate() {
        write(&file, 128 + 16 * i as u32, &descriptor(0, region, length, offset));
    }
    write(&file, BUFFERS_AT, &[0x42; 64]);
    write(&file, 128 + 16 * 4, &descriptor(0, 0, 64, BUFFERS_AT));
    write(&file, 6, &5u16.to_le_bytes());
    let mut received = Vec::new();
    wait_for("the right frame arrives", || {
        received.extend(server.receive());
        !received.is_empty()
    });
    assert_eq!(received, [vec![0x42; 64]]);
    assert_eq!(server.device.stats().rx_errors, 4);
    assert!(server.is_up(), "frames are all that it costs");
    drop(peer);
    serves(&mut server, &path, &pool);
}

#[test]
fn a_head_out_of_bounds_costs_the_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, pool) = (folder.path().join("m"), HeapPool::shared(256));
    let mut server = open(&path, ",role=server", &OPTIONS, &pool);
    for to_server in [true, false] {
        let (peer, file, _) = connected(&path);
        write(&file, if to_server { 6 } else { SECOND_AT + 6 }, &17u16.to_le_bytes());
        wait_for("the link is down", || {
            server.receive();
            server.send(0, &*pool, &[vec![1; 60]]);
            !server.is_up()
        });
        assert!(peer.refusal().contains("out of bounds"));
    }
    serves(&mut server, &path, &pool);
}

#[test]
fn a_buffer_outside_of_its_region_costs_the_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, pool) = (folder.path().join("m"), HeapPool::shared(256));
    let mut server = open(&path, ",role=server", &OPTIONS, &pool);
    for (region, length, offset) in [(0x7fff, 2048, 0), (0, 2048, 0xfff0_0000), (0, 0, BUFFERS_AT)] {
        let (peer, file, _) = connected(&path);
        write(&file, SECOND_AT + 128, &descriptor(0, region, length, offset));
        write(&file, SECOND_AT + 6, &1u16.to_le_bytes());
        wait_for("the link is down", || {
            server.send(0, &*pool, &[vec![1; 60]]);
            !server.is_up()
        });
        assert!(peer.refusal().contains("buffer"));
    }
    serves(&mut server, &path, &pool);
}

/// The finding: SIGBUS ended the process.
#[test]
fn a_truncated_file_costs_the_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, pool) = (folder.path().join("m"), HeapPool::shared(256));
    let mut server = open(&path, ",role=server", &OPTIONS, &pool);
    for left in [0, 8192] {
        // Who did it before does not come back at once, nor does anybody else.
        let mut was_refused = left == 0;
        wait_for("the interface is open", || {
            let probe = Peer::client(&path);
            assert!(matches!(probe.next(), Some((Message::Hello(_), _))));
            probe.send(&init(0), None);
            match probe.next() {
                Some((Message::Ack, _)) => return true,
                Some((Message::Disconnect(reason), _)) => assert!(reason.contains("for a while"), "{reason}"),
                other => panic!("{other:?}"),
            }
            was_refused = true;
            false
        });
        assert!(was_refused);
        let (peer, file, _) = connected(&path);
        write(&file, 128, &descriptor(0, 0, 64, 512 << 10));
        write(&file, SECOND_AT + 128, &descriptor(0, 0, 2048, 640 << 10));
        write(&file, SECOND_AT + 6, &1u16.to_le_bytes());
        write(&file, 6, &1u16.to_le_bytes());
        ftruncate(&file, left).expect("it is not sealed");
        let before = server.device.stats().rx_packets;
        wait_for("the link is down", || {
            assert!(server.receive().is_empty(), "zeros that nobody sent are no frame");
            server.send(0, &*pool, &[vec![1; 60]]);
            !server.is_up()
        });
        assert_eq!(server.device.stats().rx_packets, before);
        assert!(peer.refusal().contains("truncated"));
    }
    serves(&mut server, &path, &pool);
}

/// A refused message ends the connection with its reason.
#[test]
fn messages_that_lie_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, pool) = (folder.path().join("m"), HeapPool::shared(256));
    let mut server = open(&path, ",role=server", &OPTIONS, &pool);
    let region = |index, bytes| Message::AddRegion(AddRegion { index, bytes });
    let disk = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
    disk.set_len(REGION_BYTES).expect("it grows");
    let (pipe, _writer) = std::io::pipe().expect("a pipe");
    let (memory, event) = (memory(), event());
    let (memory, event, disk, pipe) =
        (Some(memory.as_fd()), Some(event.as_fd()), Some(disk.as_fd()), Some(pipe.as_fd()));
    let right = region(0, REGION_BYTES);
    let add = |change: &dyn Fn(&mut AddRing)| {
        let mut ring = ring(true);
        change(&mut ring);
        Message::AddRing(ring)
    };
    let connect = Message::Connect("hostile".into());
    type Step<'a> = (Message, Option<BorrowedFd<'a>>);
    let cases: Vec<(&str, Vec<Step<'_>>)> = vec![
        ("ends at byte", vec![(region(0, REGION_BYTES + 1), memory)]),
        ("not in memory", vec![(right.clone(), disk)]),
        ("not in memory", vec![(right.clone(), pipe)]),
        ("without a file", vec![(right.clone(), None)]),
        ("out of order", vec![(region(1, REGION_BYTES), memory)]),
        ("empty", vec![(region(0, 0), memory)]),
        ("larger than", vec![(region(0, u64::MAX), memory)]),
        ("without an eventfd", vec![(add(&|_| ()), None)]),
        ("without an eventfd", vec![(add(&|_| ()), pipe)]),
        ("out of order", vec![(add(&|ring| ring.index = 1), event)]),
        ("descriptors", vec![(add(&|ring| ring.log2 = 15), event)]),
        ("descriptors", vec![(add(&|ring| ring.log2 = 255), event)]),
        ("private headers", vec![(add(&|ring| ring.private_header_bytes = 1), event)]),
        ("does not lie", vec![(right.clone(), memory), (add(&|ring| ring.region = 1), event), (connect.clone(), None)]),
        (
            "does not lie",
            vec![
                (right.clone(), memory),
                (add(&|ring| ring.offset = REGION_BYTES as u32 - 64), event),
                (connect.clone(), None),
            ],
        ),
        ("does not lie", vec![(right.clone(), memory), (add(&|ring| ring.offset = 4), event), (connect.clone(), None)]),
        ("does not begin", vec![(right, memory), (add(&|ring| ring.offset = 8192), event), (connect, None)]),
        ("out of turn", vec![(Message::Ack, None)]),
        ("out of turn", vec![(init(0), None)]),
    ];
    for (reason, steps) in cases {
        let peer = Peer::client(&path);
        peer.send(&init(0), None);
        steps.iter().for_each(|(message, file)| peer.send(message, *file));
        let refusal = peer.refusal();
        assert!(refusal.contains(reason), "{steps:?}: {refusal}, not {reason}");
    }
    for (reason, bytes) in [("128 bytes", &[1u8, 0][..]), ("128 bytes", &[0; 129]), ("unknown type", &[0xff; 128])] {
        let peer = Peer::client(&path);
        peer.send_bytes(bytes, None);
        assert!(peer.refusal().contains(reason));
    }
    for (reason, message) in [
        ("no interface", init(77)),
        ("out of turn", Message::Connect("x".into())),
        ("version", Message::Init(Init { version: 0x0300, id: 0, mode: 0, secret: [0; 24], name: "x".into() })),
        ("Ethernet", Message::Init(Init { version: VERSION, id: 0, mode: 1, secret: [0; 24], name: "x".into() })),
    ] {
        let peer = Peer::client(&path);
        peer.send(&message, None);
        assert!(peer.refusal().contains(reason), "{message:?}");
    }
    serves(&mut server, &path, &pool);
}

/// Twenty that connect and say nothing, and one that stops within its handshake, keep nobody away for long.
#[test]
fn silent_clients_do_not_keep_others_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, pool) = (folder.path().join("m"), HeapPool::shared(256));
    let mut server = open(&path, ",role=server", &OPTIONS, &pool);
    let silent: Vec<_> = (0..20).map(|_| Peer::client(&path)).collect();
    silent[0].send(&init(0), None);
    serves(&mut server, &path, &pool);
    assert!(silent[0].refusal().contains("too long"));
}

/// The finding: clients of a socket that connect and stop took all places for mappings, of this socket and of all others.
#[test]
fn clients_that_never_connect_take_no_mappings_of_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, other, pool) = (folder.path().join("m"), folder.path().join("n"), HeapPool::shared(256));
    let mut server = open(&path, ",role=server", &OPTIONS, &pool);
    let mut neighbour = open(&other, ",role=server", &OPTIONS, &pool);
    let mut pending = Vec::new();
    let mut refused = 0;
    for _ in 0..6 {
        let peer = Peer::client(&path);
        match peer.next() {
            Some((Message::Hello(_), _)) => {}
            Some((Message::Disconnect(reason), _)) => {
                assert!(reason.contains("of a process"), "{reason}");
                refused += 1;
                continue;
            }
            more => panic!("{more:?}"),
        }
        peer.send(&init(0), None);
        peer.expect_ack();
        for index in 0..64 {
            peer.send(&Message::AddRegion(AddRegion { index, bytes: 4096 }), Some(memory().as_fd()));
            match peer.next() {
                Some((Message::Ack, _)) => {}
                Some((Message::Disconnect(reason), _)) => {
                    assert!(reason.contains("regions are mapped for this port"), "{reason}");
                    refused += 1;
                    break;
                }
                more => panic!("{more:?}"),
            }
        }
        pending.push(peer);
    }
    assert!(refused >= 3, "{refused} of 6 are refused");
    serves(&mut neighbour, &other, &pool);
    drop(pending);
    serves(&mut server, &path, &pool);
}

#[test]
fn a_second_client_of_an_interface_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, pool) = (folder.path().join("m"), HeapPool::shared(256));
    let mut server = open(&path, ",role=server", &OPTIONS, &pool);
    let (first, ..) = connected(&path);
    let second = Peer::client(&path);
    second.send(&init(0), None);
    assert!(second.refusal().contains("connected already"));
    assert!(server.is_up());
    drop(first);
    serves(&mut server, &path, &pool);
}

/// The finding: a client that is connected may send acknowledgements without end, and the socket's thread took them as fast
/// as it could. 4,096 are taken in a second, and a few hundred wait in the socket.
#[test]
fn messages_without_end_are_taken_at_a_bounded_rate() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, pool) = (folder.path().join("m"), HeapPool::shared(256));
    let mut server = open(&path, ",role=server", &OPTIONS, &pool);
    let (peer, ..) = connected(&path);
    let start = std::time::Instant::now();
    (0..4 * 4096 + 2000).for_each(|_| peer.send(&Message::Ack, None));
    assert!(start.elapsed() > std::time::Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(server.is_up(), "it costs time only");
    drop(peer);
    serves(&mut server, &path, &pool);
}

/// The finding of vhost-user ports, here: the peer's eventfd is full and blocks, and the peer asks for interrupts.
#[test]
fn a_full_blocking_eventfd_stops_no_worker() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, pool) = (folder.path().join("m"), HeapPool::shared(256));
    let mut server = open(&path, ",role=server", &OPTIONS, &pool);
    let (_peer, file, bell) = connected(&path);
    rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).expect("the counter takes as much");
    for i in 0..16 {
        write(&file, SECOND_AT + 128 + 16 * i, &descriptor(0, 0, 2048, BUFFERS_AT + 2048 * i));
    }
    write(&file, SECOND_AT + 6, &16u16.to_le_bytes());
    wait_for("frames are sent", || {
        server.receive();
        server.send(0, &*pool, &[vec![1; 60]]) == 0
    });
    assert_eq!(server.device.stats().tx_packets, 16);
    assert!(server.is_up());
}

/// The finding: the worker signalled the peer's eventfd itself, and the kernel goes through all who watch it: here 100,000
/// times, which takes some 20 ms, and a peer may have millions. Counted is what processor time that costs the worker.
#[test]
fn an_eventfd_that_many_watch_delays_no_worker() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, pool) = (folder.path().join("m"), HeapPool::shared(256));
    let mut server = open(&path, ",role=server", &OPTIONS, &pool);
    let (_peer, file, bell) = connected(&path);
    let watched: Vec<OwnedFd> = (0..200).map(|_| bell.try_clone().expect("a duplicate")).collect();
    let flags = rustix::event::epoll::EventFlags::IN | rustix::event::epoll::EventFlags::ET;
    let watchers: Vec<OwnedFd> = (0..500)
        .map(|_| rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).expect("an epoll"))
        .collect();
    for watcher in &watchers {
        for event in &watched {
            rustix::event::epoll::add(watcher, event, rustix::event::epoll::EventData::new_u64(0), flags)
                .expect("it is watched");
        }
    }
    for i in 0..16 {
        write(&file, SECOND_AT + 128 + 16 * i, &descriptor(0, 0, 2048, BUFFERS_AT + 2048 * i));
    }
    wait_for("the link is up", || server.is_up());
    let time = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let before = time();
    for head in 1..=100u16 {
        write(&file, SECOND_AT + 6, &head.to_le_bytes());
        assert_eq!(server.send(0, &*pool, &[vec![1; 60]]), 1);
        server.receive();
    }
    let took = time() - before;
    assert!(took < std::time::Duration::from_millis(400), "100 bursts took {took:?}");
    let seen = rustix::event::poll(
        &mut [rustix::event::PollFd::new(&bell, rustix::event::PollFlags::IN)],
        Some(&rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 }),
    );
    assert_eq!(seen, Ok(1), "the peer is woken all the same");
}

/// The finding: the socket's thread closed what a client had sent, and waited there for as long as that one had said: with it
/// all ports of the socket.
#[test]
fn files_whose_close_waits_stop_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, pool) = (folder.path().join("m"), HeapPool::shared(256));
    let mut server = open(&path, ",role=server", &OPTIONS, &pool);
    let mut others = Vec::new();
    for message in [init(0), Message::Ack] {
        // Once the port is the last that has it: if it was faster, the close here waits.
        let is_last = (0..10).any(|_| {
            let peer = std::sync::Arc::new(Peer::client(&path));
            let (file, other) = lingering();
            others.push(other);
            let (message, theirs, (closed, is_closed)) =
                (message.clone(), std::sync::Arc::clone(&peer), std::sync::mpsc::channel());
            std::thread::spawn(move || {
                // Beside a message that wants none; then the peer goes.
                theirs.send(&message, Some(file.as_fd()));
                drop(file);
                closed.send(())
            });
            let is_last = is_closed.recv_timeout(std::time::Duration::from_millis(200)).is_ok();
            drop(peer);
            is_last
        });
        assert!(is_last, "the file is in the port's hands");
    }
    serves(&mut server, &path, &pool);
    let start = std::time::Instant::now();
    drop(server);
    assert!(start.elapsed() < common::PATIENCE);
    drop(others);
}

/// A socket whose `close` waits for an hour, and the other end, which reads nothing.
fn lingering() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut socket = std::net::TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
    let (other, _) = listener.accept().expect("it is there");
    socket.set_nonblocking(true).expect("it is a socket");
    while std::io::Write::write(&mut socket, &[0; 1 << 16]).is_ok() {}
    socket.set_nonblocking(false).expect("it is a socket");
    rustix::net::sockopt::set_socket_linger(&socket, Some(std::time::Duration::from_secs(3600))).expect("an option");
    (socket, other)
}

/// The other role: a server of lies.
struct HostileServer(OwnedFd);

impl HostileServer {
    fn new(path: &Path) -> HostileServer {
        let socket = socket();
        bind(&socket, &SocketAddrUnix::new(path).expect("short")).expect("the folder is writable");
        listen(&socket, 4).expect("it listens");
        HostileServer(socket)
    }

    /// Takes the next client up to its CONNECT; gives its memory.
    fn take(&self) -> (Peer, OwnedFd) {
        let peer = Peer(accept(&self.0).expect("the client comes"));
        peer.send(&hello(VERSION), None);
        let mut memory = None;
        loop {
            match peer.next().expect("the client goes on") {
                (Message::Connect(_), _) => break,
                (Message::AddRegion(_), file) => memory = file,
                _ => {}
            }
            peer.send(&Message::Ack, None);
        }
        (peer, memory.expect("a region"))
    }
}

fn hello(version: u16) -> Message {
    Message::Hello(Hello {
        name: "hostile".into(),
        min_version: version,
        max_version: version,
        max_region: 0,
        max_to_client: 0,
        max_to_server: 0,
        max_ring_log2: LOG2,
    })
}

#[test]
fn a_hostile_server_costs_a_client_its_connection_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, pool) = (folder.path().join("m"), HeapPool::shared(256));
    let hostile = HostileServer::new(&path);
    let mut client = open(&path, "", &OPTIONS, &pool);
    for round in 0..3 {
        let (peer, memory) = hostile.take();
        assert!(ftruncate(&memory, 0).is_err(), "the memory is ours, and sealed");
        peer.send(&Message::Connected("hostile".into()), None);
        wait_for("the link is up", || client.is_up());
        match round {
            // The tail of a ring to us, then of one to the server.
            0 => write(&memory, SECOND_AT + 64, &17u16.to_le_bytes()),
            1 => write(&memory, 64, &17u16.to_le_bytes()),
            _ => peer.send_bytes(&[0xff; 128], None),
        }
        wait_for("the link is down", || {
            assert!(client.receive().is_empty());
            client.send(0, &*pool, &[vec![1; 60]]);
            !client.is_up()
        });
        assert_ne!(peer.refusal(), "closed without a reason");
    }
    // Frames that a server says are elsewhere are no frames.
    let (peer, memory) = hostile.take();
    peer.send(&Message::Connected("hostile".into()), None);
    wait_for("the link is up", || client.is_up());
    client.receive();
    write(&memory, SECOND_AT + 128, &descriptor(0, 0x7fff, 64, 0));
    write(&memory, SECOND_AT + 128 + 16, &descriptor(0, 0, 64, 0xfff0_0000));
    write(&memory, SECOND_AT + 64, &2u16.to_le_bytes());
    wait_for("both are counted", || {
        assert!(client.receive().is_empty());
        client.device.stats().rx_errors == 2
    });
    assert!(client.is_up());
    drop((peer, hostile));
    std::fs::remove_file(&path).expect("its file is left");
    let mut server = open(&path, ",role=server", &OPTIONS, &pool);
    wait_for("an honest server is found", || client.receive().is_empty() && client.is_up() && server.is_up());
    wait_for("a frame arrives", || {
        client.send(0, &*pool, &[vec![3; 60]]);
        !server.receive().is_empty()
    });
}

#[test]
fn a_server_that_says_nonsense_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, pool) = (folder.path().join("m"), HeapPool::shared(64));
    let hostile = HostileServer::new(&path);
    let _client = open(&path, "", &OPTIONS, &pool);
    for message in [hello(0x0300), Message::Ack, Message::Connected("x".into()), init(0)] {
        let peer = Peer(accept(&hostile.0).expect("the client comes"));
        peer.send(&message, None);
        assert_ne!(peer.refusal(), "closed without a reason", "{message:?}");
    }
    // One that says nothing at all.
    let peer = Peer(accept(&hostile.0).expect("the client comes"));
    assert!(peer.refusal().contains("too long"));
}
