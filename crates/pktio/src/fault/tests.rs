use crate::{
    Device, FaultConfig, FaultCounts, FaultHandle, FaultInjector, HeapPool, MemoryDevice, MemoryHandle, Queue,
};

struct Bed {
    device: FaultInjector,
    queue: Box<dyn Queue>,
    outside: MemoryHandle,
    faults: FaultHandle,
}

fn bed(config: FaultConfig) -> Bed {
    let (device, outside) = MemoryDevice::new("m", HeapPool::shared(4096), 1);
    let (mut device, faults) = FaultInjector::wrap(Box::new(device), config);
    let queue = device.take_queues().remove(0);
    Bed { device, queue, outside, faults }
}

/// Sends 1,000 numbered packets through the receive side, in bursts of `burst`.
fn receive(config: FaultConfig, burst: usize) -> (Vec<Vec<u8>>, FaultCounts) {
    let Bed { mut queue, outside, faults, .. } = bed(config);
    for i in 0..1000u16 {
        assert!(outside.inject(&i.to_be_bytes()));
    }
    let mut packets = Vec::new();
    // A burst may be dropped completely, so this asks until the device is empty and nothing is held.
    while outside.pending() > 0 || queue.rx(&mut packets, burst) > 0 {
        let before = packets.len();
        assert!(queue.rx(&mut packets, burst) <= burst);
        assert!(packets.len() - before <= burst);
    }
    (packets.iter().map(|packet| packet.data().to_vec()).collect(), faults.counts())
}

#[test]
fn no_faults_change_nothing() {
    let (received, counts) = receive(FaultConfig::default(), 32);
    assert_eq!(counts, FaultCounts::default());
    assert!(received.iter().enumerate().all(|(i, bytes)| *bytes == (i as u16).to_be_bytes()));
    assert_eq!(received.len(), 1000);
}

#[test]
fn certain_faults_hit_every_packet() {
    let all = FaultConfig { drop: 1.0, ..FaultConfig::default() };
    assert_eq!(receive(all, 32).0.len(), 0);
    let twice = FaultConfig { duplicate: 1.0, ..FaultConfig::default() };
    let (received, counts) = receive(twice, 7);
    assert_eq!((received.len(), counts.duplicated), (2000, 1000));
    assert!(received.chunks(2).all(|pair| pair[0] == pair[1]), "a duplicate follows its original, across bursts too");
    let (received, counts) = receive(FaultConfig { corrupt: 1.0, ..FaultConfig::default() }, 32);
    assert_eq!((received.len(), counts.corrupted), (1000, 1000));
    for (i, bytes) in received.iter().enumerate() {
        let changed = u16::from_be_bytes([bytes[0], bytes[1]]) ^ i as u16;
        assert_eq!(changed.count_ones(), 1, "exactly one bit of packet {i}");
    }
}

#[test]
fn shares_hold_and_the_books_balance() {
    let config = FaultConfig { drop: 0.2, duplicate: 0.1, corrupt: 0.3, ..FaultConfig::default() };
    let (received, counts) = receive(config, 32);
    assert_eq!(received.len() as u64, 1000 - counts.dropped + counts.duplicated);
    assert!((150..250).contains(&counts.dropped), "{counts:?}");
    assert!((50..120).contains(&counts.duplicated), "{counts:?}");
    assert!((180..300).contains(&counts.corrupted), "{counts:?}");
}

#[test]
fn the_seed_decides() {
    let config = |seed| FaultConfig { drop: 0.3, corrupt: 0.3, seed, ..FaultConfig::default() };
    assert_eq!(receive(config(5), 32), receive(config(5), 9), "the same packets whatever the bursts");
    assert_ne!(receive(config(5), 32).0, receive(config(6), 32).0);
}

#[test]
fn sent_packets_suffer_when_asked() {
    let config = FaultConfig { duplicate: 1.0, on_rx: false, on_tx: true, ..FaultConfig::default() };
    let mut bed = bed(config);
    let pool = bed.device.pool();
    let mut packets = vec![pool.alloc_from(b"a").unwrap(), pool.alloc_from(b"b").unwrap()];
    assert_eq!(bed.queue.tx(&mut packets), 2);
    assert!(packets.is_empty());
    assert_eq!(bed.outside.collect(), [b"a", b"a", b"b", b"b"]);
    assert!(bed.outside.inject(b"c"));
    assert_eq!(bed.queue.rx(&mut packets, 8), 1, "the receive side is untouched");
    assert_eq!(bed.faults.counts().duplicated, 2);
}

#[test]
fn a_full_device_holds_new_packets_back() {
    let mut bed = bed(FaultConfig { duplicate: 1.0, on_rx: false, on_tx: true, ..FaultConfig::default() });
    let pool = HeapPool::shared(10_000);
    let mut packets = Vec::new();
    pool.alloc_bulk(&mut packets, 3000);
    assert_eq!(bed.queue.tx(&mut packets), 3000);
    // The ring holds 4,096 of the 6,000; nothing new is accepted until the rest is gone.
    packets.push(pool.alloc_from(b"later").unwrap());
    assert_eq!(bed.queue.tx(&mut packets), 0);
    assert_eq!(packets.len(), 1);
    assert_eq!(bed.outside.collect().len(), 4096);
    assert_eq!(bed.queue.tx(&mut packets), 1);
    let rest = bed.outside.collect();
    assert_eq!((rest.len(), rest.last().unwrap().as_slice()), (1906, b"later".as_slice()));
}
