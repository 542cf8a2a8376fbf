//! A worker that sleeps is woken by its peer: by frames, and when the peer comes or goes.

mod common;

use common::{OPTIONS, connected, open, wait_for};
use pktio::{HeapPool, Wake};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(240);

#[test]
fn a_frame_wakes_a_sleeping_worker_in_both_roles() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = HeapPool::shared(256);
    let (mut server, mut client) = connected(&folder.path().join("m"), [&OPTIONS; 2], &pool);
    // That the peer has come is no frame: a worker that it wakes goes on before a frame's signal is there.
    for end in [&mut server, &mut client] {
        let _ = end.queues[0].arm(&mut Vec::new());
        end.queues[0].disarm();
    }
    for round in 0..20 {
        let (from, to) = if round % 2 == 0 { (&mut client, &mut server) } else { (&mut server, &mut client) };
        to.receive();
        let mut files = Vec::new();
        assert_eq!(to.queues[0].arm(&mut files), Wake::File, "round {round}");
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| pktio::wait(&files, LONG));
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(from.send(0, &*pool, &[vec![round; 60]]), 1);
        });
        assert!(start.elapsed() < LONG / 2, "round {round}: it slept on");
        to.queues[0].disarm();
        assert_eq!(to.receive(), [vec![round; 60]]);
        // What was sent while nobody slept rings for nobody, and is seen before one sleeps.
        assert_eq!(from.send(0, &*pool, &[vec![round; 61]]), 1);
        assert_eq!(to.queues[0].arm(&mut files), Wake::Now);
        to.queues[0].disarm();
        assert_eq!(to.receive(), [vec![round; 61]]);
        files.clear();
        assert_eq!(to.queues[0].arm(&mut files), Wake::File);
        let start = Instant::now();
        pktio::wait(&files, Duration::from_millis(10));
        assert!(start.elapsed() >= Duration::from_millis(10), "round {round}: nobody rang");
        to.queues[0].disarm();
    }
}

#[test]
fn a_peer_that_comes_wakes_a_sleeping_worker() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, pool) = (folder.path().join("m"), HeapPool::shared(256));
    let mut server = open(&path, ",role=server", &OPTIONS, &pool);
    let mut files = Vec::new();
    assert_eq!(server.queues[0].arm(&mut files), Wake::File);
    let start = Instant::now();
    let client = open(&path, "", &OPTIONS, &pool);
    pktio::wait(&files, LONG);
    assert!(start.elapsed() < LONG / 2);
    server.queues[0].disarm();
    wait_for("both are up", || client.is_up() && server.is_up());
}
