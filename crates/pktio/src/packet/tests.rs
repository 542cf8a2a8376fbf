use crate::{BUFFER_CAPACITY, HEADROOM, HeapPool, NoRoom, Packet, Pool, free_bulk, free_front};

fn packet(pool: &HeapPool, bytes: &[u8]) -> Packet {
    pool.alloc_from(bytes).expect("the pool has a buffer")
}

#[test]
fn a_fresh_packet_is_empty_with_headroom() {
    let pool = HeapPool::new(1);
    let packet = pool.alloc().unwrap();
    assert_eq!((packet.len(), packet.headroom(), packet.capacity()), (0, HEADROOM, BUFFER_CAPACITY));
    assert_eq!(packet.tailroom(), BUFFER_CAPACITY - HEADROOM);
    assert!(packet.is_empty());
}

#[test]
fn pushes_and_pulls_move_the_window_not_the_bytes() {
    let pool = HeapPool::new(1);
    let mut packet = packet(&pool, b"payload");
    packet.push_front(4).unwrap()[..4].copy_from_slice(b"head");
    assert_eq!(packet.data(), b"headpayload");
    packet.push_back(2).unwrap()[11..].copy_from_slice(b"!!");
    assert_eq!(packet.data(), b"headpayload!!");
    packet.pull_front(4).unwrap();
    packet.truncate(7);
    assert_eq!(packet.data(), b"payload");
    packet.truncate(100);
    assert_eq!(packet.len(), 7);
}

#[test]
fn the_window_cannot_leave_the_buffer() {
    let pool = HeapPool::new(1);
    let mut packet = packet(&pool, b"abc");
    assert_eq!(packet.push_front(HEADROOM + 1).err(), Some(NoRoom));
    assert_eq!(packet.push_back(BUFFER_CAPACITY).err(), Some(NoRoom));
    assert_eq!(packet.push_back(usize::MAX).err(), Some(NoRoom));
    assert_eq!(packet.pull_front(4), Err(NoRoom));
    assert_eq!(packet.adjust(usize::MAX, 2), Err(NoRoom));
    assert_eq!(packet.adjust(0, BUFFER_CAPACITY + 1), Err(NoRoom));
    assert_eq!(packet.set_data(&[0; BUFFER_CAPACITY]), Err(NoRoom));
    assert_eq!(packet.data(), b"abc", "a refused operation changes nothing");
    assert_eq!(packet.adjust(0, BUFFER_CAPACITY), Ok(()));
}

#[test]
fn a_copy_is_independent_and_from_the_same_pool() {
    let pool = HeapPool::new(2);
    let mut original = packet(&pool, b"same");
    original.push_front(1).unwrap()[0] = b'-';
    let copy = original.copy().unwrap();
    original.data_mut()[0] = b'+';
    assert_eq!(copy.data(), b"-same");
    assert_eq!(copy.headroom(), original.headroom());
    assert!(original.copy().is_none(), "the pool is empty");
    drop(copy);
    assert!(original.copy().is_some());
}

#[test]
fn raw_round_trip_keeps_one_owner() {
    let pool = HeapPool::new(1);
    let raw = packet(&pool, b"x").into_raw();
    assert_eq!(pool.available(), 0, "into_raw frees nothing");
    // SAFETY: `raw` came from `into_raw` just above.
    let packet = unsafe { Packet::from_raw(raw) };
    assert_eq!(packet.data(), b"x");
    drop(packet);
    assert_eq!(pool.available(), 1);
}

#[test]
fn bulk_free_returns_each_packet_to_its_own_pool() {
    let (a, b) = (HeapPool::new(8), HeapPool::new(8));
    let mut packets = Vec::new();
    for i in 0..8 {
        packets.push(packet(if i % 3 == 0 { &a } else { &b }, &[i]));
    }
    assert_eq!((a.available(), b.available()), (5, 3));
    free_bulk(&mut packets);
    assert!(packets.is_empty());
    assert_eq!((a.available(), b.available()), (8, 8));
    free_bulk(&mut packets);
}

#[test]
fn freeing_the_first_packets_leaves_the_others_in_order() {
    let pool = HeapPool::new(8);
    let mut packets: Vec<_> = (0..8).map(|i| packet(&pool, &[i])).collect();
    free_front(&mut packets, 3);
    assert_eq!(packets.iter().map(|packet| packet.data()[0]).collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
    assert_eq!(pool.available(), 3);
    free_front(&mut packets, 0);
    free_front(&mut packets, 5);
    assert!(packets.is_empty());
    assert_eq!(pool.available(), 8);
}

#[test]
fn copies_of_any_length_and_place_are_the_same_bytes() {
    let pool = HeapPool::new(4);
    for len in [0, 1, 59, 60, 63, 64, 65, 128, 1500, 2048] {
        for headroom in [0, 1, 128, BUFFER_CAPACITY - len] {
            let mut original = pool.alloc().unwrap();
            let Ok(()) = original.adjust(headroom, len) else { continue };
            original.data_mut().iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8 ^ 0x5a);
            original.set_segment(7);
            let copy = original.copy().unwrap();
            assert_eq!((copy.data(), copy.headroom(), copy.segment()), (original.data(), headroom, 7), "{len}");
        }
    }
}

#[test]
fn buffers_are_like_those_of_the_same_pool_and_size() {
    let (pool, other) = (HeapPool::new(3), HeapPool::new(1));
    let (first, large, foreign) = (pool.alloc().unwrap(), pool.alloc_large().unwrap(), other.alloc().unwrap());
    let mut like = Vec::new();
    first.alloc_like(&mut like, 5);
    assert_eq!(like.len(), 2, "as many as there are");
    assert!(like.iter().all(|packet| packet.is_like(&first) && packet.is_empty()));
    assert!(!first.is_like(&large) && !first.is_like(&foreign));
    let raw = first.raw().with_window(7, 9).with_segment(3);
    assert_eq!((raw.capacity, raw.offset, raw.len, raw.segment), (first.raw().capacity, 7, 9, 3));
}
