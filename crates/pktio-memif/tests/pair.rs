//! Two ports of ours connected to each other, in both roles: frames, jumbo and large frames, queues, several ports on a socket.

mod common;

use common::{End, OPTIONS, connected, cross, open, wait_for};
use pktio::HeapPool;
use pktio_memif::Options;
use std::path::Path;

#[test]
fn frames_pass_both_ways() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = HeapPool::shared(1024);
    let (mut server, mut client) = connected(&folder.path().join("m"), [&OPTIONS; 2], &pool);
    // Longer than the rings, so that these go round; jumbo frames in chains among them.
    for _ in 0..2 {
        cross(&pool, &mut client, &mut server, (0..298).map(|i| 60 + i * 30));
        cross(&pool, &mut server, &mut client, (0..298).map(|i| 60 + i * 30));
    }
    for end in [&server, &client] {
        let stats = end.device.stats();
        assert_eq!((stats.rx_packets, stats.tx_packets), (596, 596));
        assert_eq!(stats.rx_bytes, stats.tx_bytes);
        assert_eq!(stats.rx_dropped + stats.rx_errors + stats.tx_dropped, 0, "{stats:?}");
    }
}

#[test]
fn frames_longer_than_the_mtu_do_not_leave() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = HeapPool::shared(1024);
    let options = Options { mtu: Some(1500), ..OPTIONS };
    let (mut server, mut client) = connected(&folder.path().join("m"), [&OPTIONS, &options], &pool);
    assert_eq!((client.device.mtu(), server.device.mtu()), (1500, 9000));
    let frames = [vec![1; 1519], vec![2; 1518], vec![], vec![3; 60]];
    assert_eq!(client.send(0, &*pool, &frames), 4, "all are taken");
    let mut received = Vec::new();
    wait_for("two come", || {
        received.extend(server.receive());
        received.len() == 2
    });
    assert_eq!(received, [vec![2; 1518], vec![3; 60]]);
    let stats = client.device.stats();
    assert_eq!((stats.tx_packets, stats.tx_dropped, stats.tx_too_long), (2, 2, 1), "{stats:?}");
}

/// A TCP segment of 4,000 bytes of payload, with the MSS that it was left with.
fn large_tcp_frame() -> Vec<u8> {
    let mut frame = vec![0; 14 + 20 + 20];
    frame[12..14].copy_from_slice(&[0x08, 0]);
    frame[14] = 0x45;
    frame[22..24].copy_from_slice(&[64, 6]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[46] = 0x50;
    frame.extend((0..4000u32).map(|i| i as u8));
    let length = (frame.len() as u16 - 14).to_be_bytes();
    frame[16..18].copy_from_slice(&length);
    frame
}

#[test]
fn a_large_frame_is_cut_into_its_segments() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = HeapPool::shared(1024);
    let (mut server, mut client) = connected(&folder.path().join("m"), [&OPTIONS; 2], &pool);
    let frame = large_tcp_frame();
    let mut large = pool.alloc_from(&frame).expect("a buffer");
    large.set_segment(1460);
    let small = |seed| pool.alloc_from(&[seed; 60]).expect("a buffer");
    let mut not_cut = small(9);
    not_cut.set_segment(10);
    let mut packets = vec![small(1), large, not_cut, small(2)];
    assert_eq!(server.queues[0].tx(&mut packets), 4);
    let mut received = Vec::new();
    wait_for("five come", || {
        received.extend(client.receive());
        received.len() == 5
    });
    let lengths: Vec<_> = received.iter().map(Vec::len).collect();
    assert_eq!(lengths, [60, 54 + 1460, 54 + 1460, 54 + 1080, 60]);
    let payload: Vec<u8> = received[1..4].iter().flat_map(|frame| frame[54..].to_vec()).collect();
    assert!(payload == frame[54..]);
    let stats = server.device.stats();
    assert_eq!((stats.tx_packets, stats.tx_dropped, stats.tx_not_cut), (5, 1, 1), "{stats:?}");
}

#[test]
fn each_queue_has_its_rings_and_a_peer_may_have_fewer() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = HeapPool::shared(1024);
    let four = Options { queues: 4, ..OPTIONS };
    for (servers, clients) in [(4, 4), (4, 2), (1, 4), (3, 1)] {
        let path = folder.path().join(format!("m{servers}{clients}"));
        let (mut server, mut client) =
            connected(&path, [&Options { queues: servers, ..four }, &Options { queues: clients, ..four }], &pool);
        for from_server in [false, true] {
            let (from, to) = if from_server { (&mut server, &mut client) } else { (&mut client, &mut server) };
            let count = from.queues.len();
            wait_for("every queue sends", || {
                (0..count).all(|queue| from.send(queue, &*pool, &[vec![queue as u8; 60]]) == 1)
            });
            let mut received = Vec::new();
            wait_for("from every queue", || {
                received.extend(to.receive());
                (0..count).all(|queue| received.iter().any(|frame| frame[0] == queue as u8))
            });
        }
    }
}

#[test]
fn several_ports_share_a_socket_by_their_ids() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = HeapPool::shared(1024);
    let path = folder.path().join("m");
    let mut servers: Vec<_> = (0..3).map(|id| open(&path, &format!(",id={id},role=server"), &OPTIONS, &pool)).collect();
    let again = format!("memif:{},id=1,role=server", path.display()).parse().expect("a port");
    let error = pktio_memif::open(&again, &OPTIONS, pool.clone()).map(|_| ()).expect_err("the id is taken");
    assert!(error.to_string().contains("serves id 1"), "{error}");
    let mut clients: Vec<_> = (0..3).map(|id| open(&path, &format!(",id={id}"), &OPTIONS, &pool)).collect();
    wait_for("all are up", || servers.iter().chain(&clients).all(End::is_up));
    for (server, client) in servers.iter_mut().zip(&mut clients) {
        cross(&pool, client, server, [60, 64].into_iter());
    }
    drop(servers.remove(1));
    wait_for("its client is down", || !clients[1].is_up());
    assert!(path.exists() && servers.iter().all(End::is_up));
    cross(&pool, &mut clients[2], &mut servers[1], [60, 64].into_iter());
    drop(servers);
    assert!(!path.exists(), "closing the last port removes the socket");
}

#[test]
fn sockets_in_the_way_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = HeapPool::shared(64);
    let refused = |path: &Path| {
        let spec = format!("memif:{},role=server", path.display()).parse().expect("a port");
        pktio_memif::open(&spec, &OPTIONS, pool.clone()).map(|_| ()).expect_err("it is refused").to_string()
    };
    let path = folder.path().join("file");
    std::fs::write(&path, "mine").expect("a file");
    assert!(refused(&path).contains("no socket"));
    assert_eq!(std::fs::read(&path).expect("it is there"), b"mine");
    let path = folder.path().join("stream");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    assert!(refused(&path).contains("another process listens"));
    drop(listener);
    drop(open(&path, ",role=server", &OPTIONS, &pool));
    assert!(refused(&folder.path().join("none/m")).contains("there is no folder"));
}

/// A page fault may wait for the peer, and a burst has many: a call that was held up accesses no further buffer.
#[test]
fn a_call_that_was_held_up_ends_at_the_next_buffer() {
    shared_memory::start_monitor().expect("a thread is left");
    let folder = tempfile::tempdir().expect("a folder");
    let pool = HeapPool::shared(1024);
    let (mut server, mut client) = connected(&folder.path().join("m"), [&OPTIONS; 2], &pool);
    let frames: Vec<Vec<u8>> = [60, 1500, 5000, 60].iter().map(|length| vec![7; *length]).collect();
    let (server, client) = (&mut server, &mut client);
    for is_from_server in [true, false] {
        let (from, to) = if is_from_server { (&mut *server, &mut *client) } else { (&mut *client, &mut *server) };
        let overdue = shared_memory::Overdue::of_this_thread();
        let held_up = || {
            let call = shared_memory::enter();
            wait_for("the call is overdue", || overdue.is_now());
            call
        };
        let call = held_up();
        assert_eq!(from.send(0, &*pool, &frames), 0, "the packets stay with the worker");
        drop(call);
        assert_eq!(from.send(0, &*pool, &frames), frames.len());
        let call = held_up();
        assert!((0..10).all(|_| to.receive().is_empty()), "they wait in the ring");
        drop(call);
        let mut received = Vec::new();
        wait_for("they come", || {
            received.extend(to.receive());
            received.len() == frames.len()
        });
        assert_eq!(received, frames);
    }
}
