//! Connections that end and begin again. A file of its own, for it counts what the process holds.

mod common;

use common::{OPTIONS, connected, cross, held, open, wait_for};
use pktio::HeapPool;

/// Each side goes away and comes back, a hundred times; nothing is left over.
#[test]
fn a_hundred_reconnections_leak_nothing() {
    const ROUNDS: usize = 100;
    let folder = tempfile::tempdir().expect("a folder");
    let pool = HeapPool::shared(1024);
    let path = folder.path().join("m");
    let (mut server, mut client) = connected(&path, [&OPTIONS; 2], &pool);
    cross(&pool, &mut client, &mut server, [60].into_iter());
    let before = held();
    for round in 0..ROUNDS {
        let back = if round % 2 == 0 {
            drop(client);
            wait_for("the server sees it", || server.receive().is_empty() && !server.is_up());
            client = open(&path, "", &OPTIONS, &pool);
            "the client is back"
        } else {
            drop(server);
            wait_for("the client sees it", || client.receive().is_empty() && !client.is_up());
            server = open(&path, ",role=server", &OPTIONS, &pool);
            "the server is back"
        };
        wait_for(back, || server.is_up() && client.is_up());
        cross(&pool, &mut client, &mut server, [60, 3000].into_iter());
        cross(&pool, &mut server, &mut client, [60, 3000].into_iter());
    }
    let mut now = held();
    wait_for("what the last rounds held is given back", || {
        server.receive();
        client.receive();
        now = held();
        now <= before
    });
    drop((server, client));
    assert_eq!(pool.available(), 1024, "all buffers are back");
}
