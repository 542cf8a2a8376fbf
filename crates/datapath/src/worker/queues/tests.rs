use super::*;
use pktio::{Device, HeapPool, MemoryDevice, MemoryHandle};

fn device(queues: u16) -> (Vec<Box<dyn Queue>>, MemoryHandle) {
    let (mut device, handle) = MemoryDevice::new("m", HeapPool::shared(4096), queues);
    (device.take_queues(), handle)
}

/// The device queues that each worker receives from.
fn received(shared: &mut [PortQueue], handle: &MemoryHandle, queues: u16) -> Vec<Vec<u8>> {
    for queue in 0..queues {
        assert!(handle.inject_on(queue, &[queue as u8; 60]));
    }
    let take = |queue: &mut PortQueue| {
        let mut packets = Vec::new();
        while queue.rx(&mut packets, 1) != 0 {}
        packets.iter().map(|packet| packet.data()[0]).collect()
    };
    shared.iter_mut().map(take).collect()
}

#[test]
fn the_first_queues_of_ports_go_to_different_workers() {
    for (port, expected) in [(0, [[0], [1], [2]]), (1, [[2], [0], [1]]), (2, [[1], [2], [0]]), (3, [[0], [1], [2]])] {
        let (queues, handle) = device(3);
        let mut shared = share(queues, 3, port, Sharing::Fixed);
        assert_eq!(received(&mut shared, &handle, 3), expected, "port {port}");
    }
}

#[test]
fn more_queues_than_workers_are_all_polled() {
    let (queues, handle) = device(5);
    let mut shared = share(queues, 2, 1, Sharing::Fixed);
    let mut all = received(&mut shared, &handle, 5);
    all.iter_mut().for_each(|queues| queues.sort());
    assert_eq!(all, [vec![1, 3], vec![0, 2, 4]]);
}

#[test]
fn fewer_queues_than_workers_have_one_receiver_each_and_all_send() {
    for port in 0..5 {
        let (queues, handle) = device(2);
        let mut shared = share(queues, 5, port, Sharing::Fixed);
        let all = received(&mut shared, &handle, 2);
        let mut expected = vec![Vec::new(); 5];
        expected[port] = vec![0];
        expected[(port + 1) % 5] = vec![1];
        assert_eq!(all, expected, "port {port}");
        let pool = HeapPool::shared(8);
        for queue in &mut shared {
            assert_eq!(queue.tx(&mut vec![pool.alloc_from(&[7; 60]).unwrap()]), 1);
        }
        assert_eq!((handle.collect_on(0).len(), handle.collect_on(1).len()), (3, 2));
    }
    assert!(share(Vec::new(), 2, 0, Sharing::Fixed).is_empty());
}

/// An IPv4 or IPv6 UDP frame, in either direction of a flow.
fn frame(flow: u32, is_back: bool, is_v6: bool, is_tagged: bool) -> Vec<u8> {
    let (mut from, mut to) = (flow.to_be_bytes().to_vec(), (flow ^ 0x0a00_0000).to_be_bytes().to_vec());
    let (mut source, mut destination) = ((flow as u16).to_be_bytes(), 53u16.to_be_bytes());
    if is_v6 {
        from.splice(0..0, [0xfd; 12]);
        to.splice(0..0, [0xfc; 12]);
    }
    if is_back {
        std::mem::swap(&mut from, &mut to);
        std::mem::swap(&mut source, &mut destination);
    }
    let mut frame = vec![2; 12];
    if is_tagged {
        frame.extend([0x81, 0, 0, 9]);
    }
    match is_v6 {
        true => frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64]),
        false => frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0]),
    }
    // Don't Fragment (DF) does not make a packet a fragment.
    if !is_v6 {
        let at = frame.len() - 14 + 2 + 6;
        frame[at] = 0;
    }
    [&frame[..], &from, &to, &source, &destination, &[0, 8, 0, 0]].concat()
}

#[test]
fn flows_are_spread_evenly_and_both_ways_meet_one_worker() {
    for is_v6 in [false, true] {
        for is_tagged in [false, true] {
            let mut counts = [0; 4];
            for flow in 0..4000 {
                let hash = flow_hash(&frame(flow, false, is_v6, is_tagged));
                assert_eq!(hash, flow_hash(&frame(flow, true, is_v6, is_tagged)), "flow {flow}");
                counts[((u64::from(hash) * 4) >> 32) as usize] += 1;
            }
            assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        }
    }
    for len in 0..60 {
        flow_hash(&frame(1, false, true, true)[..len]);
    }
}

#[test]
fn what_is_spread_keeps_its_order_and_no_packet_is_lost_below_the_limit() {
    let (queues, handle) = device(1);
    let mut shared = share(queues, 3, 2, Sharing::Spread);
    for number in 0..900u32 {
        let mut bytes = frame(number % 30, false, false, false);
        bytes.extend(number.to_be_bytes());
        assert!(handle.inject(&bytes));
    }
    let mut packets = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..100 {
        for (queue, packets) in shared.iter_mut().zip(&mut packets) {
            queue.rx(packets, 32);
        }
    }
    let mut flows = std::collections::HashMap::new();
    let mut count = 0;
    for (worker, packets) in packets.iter().enumerate() {
        assert!(packets.len() > 100, "worker {worker} has its share");
        let mut last = std::collections::HashMap::new();
        for packet in packets {
            let data = packet.data();
            let number = u32::from_be_bytes(data[data.len() - 4..].try_into().unwrap());
            assert!(last.insert(number % 30, number).is_none_or(|before| before < number), "out of order");
            assert_eq!(*flows.entry(number % 30).or_insert(worker), worker, "a flow has one worker");
            count += 1;
        }
    }
    assert_eq!(count, 900);
}

#[test]
fn a_worker_that_takes_nothing_leaves_packets_in_the_device() {
    let (queues, handle) = device(1);
    let mut shared = share(queues, 2, 0, Sharing::Spread);
    for number in 0..4000 {
        assert!(handle.inject(&frame(number, false, false, false)) || number > 1000);
    }
    let before = handle.pending();
    let mut mine = Vec::new();
    for _ in 0..100 {
        shared[0].rx(&mut mine, 32);
    }
    assert!(handle.pending() > 0 && handle.pending() < before, "{} of {before}", handle.pending());
    let mut theirs = Vec::new();
    for _ in 0..200 {
        shared[1].rx(&mut theirs, 32);
        shared[0].rx(&mut mine, 32);
    }
    assert_eq!((handle.pending(), mine.len() + theirs.len()), (0, before));
}
