use super::RING_LIMIT;
use crate::{Device, HeapPool, LinkState, MemoryDevice, PortStats, Wake};
use std::time::{Duration, Instant};

#[test]
fn what_is_injected_is_received_and_what_is_sent_is_collected() {
    let (mut device, handle) = MemoryDevice::new("m0", HeapPool::shared(16), 1);
    let mut queue = device.take_queues().remove(0);
    assert!(handle.inject(b"one") && handle.inject(b"two") && handle.inject(b"three"));
    assert_eq!(handle.pending(), 3);
    let mut packets = Vec::new();
    assert_eq!(queue.rx(&mut packets, 2), 2);
    assert_eq!(packets[1].data(), b"two");
    assert_eq!(queue.rx(&mut packets, 2), 1);
    assert_eq!(queue.rx(&mut packets, 2), 0);
    assert_eq!(queue.tx(&mut packets), 3);
    assert!(packets.is_empty());
    assert_eq!(handle.collect(), [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
    assert!(handle.collect().is_empty());
    let expected = PortStats { rx_packets: 3, rx_bytes: 11, tx_packets: 3, tx_bytes: 11, ..PortStats::default() };
    assert_eq!(device.stats(), expected);
}

#[test]
fn queues_are_separate_and_taken_once() {
    let (mut device, handle) = MemoryDevice::new("m0", HeapPool::shared(16), 2);
    let mut queues = device.take_queues();
    assert_eq!((queues.len(), device.queue_count()), (2, 2));
    assert!(device.take_queues().is_empty());
    handle.inject_on(1, b"second");
    let mut packets = Vec::new();
    assert_eq!(queues[0].rx(&mut packets, 8), 0);
    assert_eq!(queues[1].rx(&mut packets, 8), 1);
    queues[0].tx(&mut packets);
    assert!(handle.collect_on(1).is_empty());
    assert_eq!(handle.collect_on(0), [b"second"]);
}

#[test]
fn an_empty_pool_refuses_injections_and_counts_them() {
    let (device, handle) = MemoryDevice::new("m0", HeapPool::shared(1), 1);
    assert!(handle.inject(b"fits"));
    assert!(!handle.inject(b"no buffer"));
    assert!(handle.inject(&[0; 9018]), "a jumbo frame has a buffer of another size");
    assert!(!handle.inject(&[0; 70_000]));
    assert_eq!(device.stats().rx_dropped, 2);
}

#[test]
fn a_full_send_ring_leaves_packets_with_the_worker() {
    let (mut device, handle) = MemoryDevice::new("m0", HeapPool::shared(RING_LIMIT + 2), 1);
    let mut queue = device.take_queues().remove(0);
    let mut packets = Vec::new();
    assert_eq!(device.pool().alloc_bulk(&mut packets, RING_LIMIT + 2), RING_LIMIT + 2);
    packets[RING_LIMIT].set_data(b"left over").unwrap();
    assert_eq!(queue.tx(&mut packets), RING_LIMIT);
    assert_eq!(packets.len(), 2);
    assert_eq!(packets[0].data(), b"left over");
    handle.collect();
    assert_eq!(queue.tx(&mut packets), 2);
}

#[test]
fn link_down_drops_both_ways() {
    let (mut device, handle) = MemoryDevice::new("m0", HeapPool::shared(4), 1);
    let mut queue = device.take_queues().remove(0);
    handle.set_link(false);
    assert_eq!(device.link(), LinkState { up: false, speed_mbps: None });
    assert!(!handle.inject(b"x"));
    let mut packets = vec![device.pool().alloc().unwrap()];
    assert_eq!(queue.tx(&mut packets), 1);
    let stats = device.stats();
    assert_eq!((stats.rx_dropped, stats.tx_dropped, stats.tx_packets), (1, 1, 0));
    assert_eq!(device.pool().available(), 4);
}

#[test]
fn collecting_waits_for_the_worker_but_not_forever() {
    let (mut device, handle) = MemoryDevice::new("m0", HeapPool::shared(4), 1);
    let mut queue = device.take_queues().remove(0);
    let pool = device.pool();
    let worker = std::thread::spawn(move || {
        for byte in 0..2 {
            std::thread::sleep(Duration::from_millis(5));
            queue.tx(&mut vec![pool.alloc_from(&[byte]).unwrap()]);
        }
    });
    assert_eq!(handle.collect_within(2, Duration::from_secs(120)), [[0], [1]]);
    worker.join().unwrap();
    let start = Instant::now();
    assert!(handle.collect_within(1, Duration::from_millis(20)).is_empty());
    assert!(start.elapsed() >= Duration::from_millis(20));
}

#[test]
fn a_packet_wakes_who_has_armed_the_queue() {
    let (mut device, handle) = MemoryDevice::new("m", HeapPool::shared(16), 1);
    let mut queue = device.take_queues().remove(0);
    let (mut files, mut packets) = (Vec::new(), Vec::new());
    assert!(handle.inject(&[1; 60]));
    assert_eq!((queue.arm(&mut files), files.len()), (Wake::Now, 0), "it came before");
    queue.disarm();
    assert_eq!(queue.rx(&mut packets, 8), 1);
    for _ in 0..2 {
        assert_eq!((queue.arm(&mut files), files.len()), (Wake::File, 1));
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| handle.inject(&[2; 60]));
            crate::wait(&files, Duration::from_secs(240));
        });
        assert!(start.elapsed() < Duration::from_secs(120), "it slept on");
        queue.disarm();
        assert_eq!(queue.rx(&mut packets, 8), 1);
        // The queue polls again, so packets no longer make the file readable.
        assert!(handle.inject(&[3; 60]));
        let start = Instant::now();
        crate::wait(&files, Duration::from_millis(10));
        assert!(start.elapsed() >= Duration::from_millis(10), "still readable");
        assert_eq!(queue.rx(&mut packets, 8), 1);
        files.clear();
    }
}
