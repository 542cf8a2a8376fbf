use crate::{BUFFER_CAPACITY, HEADROOM, HeapPool, LARGE_CAPACITY, Pool, free_bulk};

#[test]
fn the_limit_holds_and_buffers_come_back() {
    let pool = HeapPool::new(2);
    let first = pool.alloc().unwrap();
    let second = pool.alloc().unwrap();
    assert!(pool.alloc().is_none());
    assert_eq!((pool.limit(), pool.available()), (2, 0));
    let base = first.base_ptr();
    drop(first);
    assert_eq!(pool.available(), 1);
    assert_eq!(pool.alloc().unwrap().base_ptr(), base, "the buffer is used again");
    drop(second);
    assert_eq!(pool.available(), 2);
}

#[test]
fn bulk_allocation_stops_at_the_limit() {
    let pool = HeapPool::new(5);
    let mut packets = Vec::new();
    assert_eq!(pool.alloc_bulk(&mut packets, 3), 3);
    assert_eq!(pool.alloc_bulk(&mut packets, 3), 2);
    assert_eq!(packets.len(), 5);
}

#[test]
fn packets_outlive_the_pool_handle() {
    let pool = HeapPool::new(2);
    let mut packet = pool.alloc().unwrap();
    drop(pool);
    packet.set_data(b"still here").unwrap();
    let copy = packet.copy().unwrap();
    assert_eq!(copy.data(), b"still here");
    assert!(packet.copy().is_none(), "the limit outlives the handle too");
}

#[test]
fn too_long_for_a_buffer_gives_the_buffer_back() {
    let pool = HeapPool::new(1);
    assert!(pool.alloc_from(&[0; LARGE_CAPACITY]).is_none());
    assert_eq!(pool.available(), 1);
}

#[test]
fn what_fits_into_no_small_buffer_gets_a_large_one() {
    let pool = HeapPool::new(2);
    let mut small = pool.alloc_from(&[1; BUFFER_CAPACITY - HEADROOM]).unwrap();
    let mut large = pool.alloc_from(&[2; LARGE_CAPACITY - HEADROOM]).unwrap();
    assert_eq!((small.capacity(), large.capacity()), (BUFFER_CAPACITY, LARGE_CAPACITY));
    assert_eq!((small.headroom(), large.headroom(), large.tailroom()), (HEADROOM, HEADROOM, 0));
    large.set_segment(1448);
    let copy = large.copy().unwrap();
    assert_eq!((copy.data(), copy.segment()), (large.data(), 1448));
    assert!(large.copy().is_none(), "two large buffers are out");
    large.truncate(100);
    assert_eq!(large.segment(), 0, "what is cut is no large frame any more");
    small.set_segment(1);
    small.truncate(BUFFER_CAPACITY);
    assert_eq!(small.segment(), 1);
    free_bulk(&mut vec![small, large, copy]);
    assert_eq!((pool.available(), pool.alloc_large().is_some()), (2, true));
}

#[test]
fn threads_share_a_pool_without_losing_buffers() {
    let pool = HeapPool::shared(64);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut packets = Vec::new();
                for round in 0..500 {
                    pool.alloc_bulk(&mut packets, 1 + round % 32);
                    packets.iter_mut().for_each(|packet| packet.set_data(&[round as u8]).unwrap());
                    assert!(packets.iter().all(|packet| packet.data() == [round as u8]));
                    if round % 2 == 0 {
                        free_bulk(&mut packets);
                    } else {
                        packets.clear();
                    }
                }
            });
        }
    });
    assert_eq!(pool.available(), 64);
}
