//! Both ends of rings in one process, on memory like that of a port, and a peer that writes anything.

use crate::layout::{Layout, Made};
use crate::memory::Memory;
use crate::receive::{Fault, Receiver};
use crate::ring::{DESCRIPTOR_BYTES, Descriptor, HEADER_BYTES, MASK_INTERRUPTS, NEXT, Ring};
use crate::transmit::{Stop, Transmitter};
use pktio::{HeapPool, Packet, Pool, PoolRef, PortStats};
use proptest::prelude::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use shared_memory::{Doorbell, Notifier, Quota};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A client's memory with one ring in each direction, and both ends of both.
struct Pair {
    file: OwnedFd,
    /// The peer's mapping of the same memory.
    peer: Arc<Memory>,
    client: (Transmitter, Receiver),
    server: (Receiver, Transmitter),
    pool: PoolRef,
}

/// A doorbell that signals nobody.
fn doorbell() -> Doorbell {
    Notifier::new("test", 0).expect("a thread").doorbell(0)
}

fn pair(log2: u8, buffer_bytes: u32) -> Pair {
    let quota = Quota::new(2).expect("there are few");
    let layout = Layout { to_server: 1, to_client: 1, log2, buffer_bytes };
    let Made { file, rings, .. } = layout.make(&quota).expect("memory");
    let mut theirs = Memory::default();
    theirs.add(&file, layout.bytes().expect("small"), &quota).expect("the memory can be mapped");
    let peer = Arc::new(theirs);
    let mut rings = rings.into_iter();
    let ((out, out_buffers), (back, back_buffers)) = (rings.next().expect("one"), rings.next().expect("two"));
    let client = (Transmitter::of_client(out, out_buffers, doorbell()), Receiver::of_client(back, back_buffers, None));
    let ring = |number| Ring::new(&peer, 0, layout.ring_at(number), log2).expect("it lies in the region");
    assert!(ring(0).has_cookie() && ring(1).has_cookie());
    let server = (Receiver::of_server(ring(0), None), Transmitter::of_server(ring(1), doorbell()));
    server.0.begin();
    server.1.begin();
    client.1.begin();
    Pair { file, peer, client, server, pool: HeapPool::shared(4096) }
}

fn frame(pool: &dyn Pool, bytes: usize, seed: u8) -> Packet {
    let data: Vec<u8> = (0..bytes).map(|i| (i as u8).wrapping_mul(7) ^ seed).collect();
    pool.alloc_from(&data).expect("a buffer")
}

const FRAME_MAX: u32 = 65_018;

/// Sends frames of these lengths through one end and expects them at the other, over many laps of the ring.
fn cross(pool: &PoolRef, from: &mut Transmitter, to: &mut Receiver, lengths: &[usize]) {
    let mut packets: Vec<_> = lengths.iter().enumerate().map(|(i, &n)| frame(&**pool, n, i as u8)).collect();
    let (mut sent, mut got) = (PortStats::default(), PortStats::default());
    let mut received = Vec::new();
    while received.len() < lengths.len() {
        let (count, _) = from.send(&packets, FRAME_MAX, &mut sent).expect("an honest peer");
        let before = received.len();
        packets.drain(..count);
        to.receive(&**pool, &mut received, 64, &mut got).expect("an honest peer");
        assert!(count > 0 || received.len() > before, "it goes on");
    }
    for (i, (packet, &bytes)) in received.iter().zip(lengths).enumerate() {
        assert!(packet.data() == frame(&**pool, bytes, i as u8).data(), "frame {i} of {bytes} bytes");
    }
    let bytes: usize = lengths.iter().sum();
    let right = PortStats { rx_packets: lengths.len() as u64, rx_bytes: bytes as u64, ..PortStats::default() };
    assert_eq!(got, right);
    assert_eq!((sent.tx_packets, sent.tx_bytes, sent.tx_dropped), (right.rx_packets, right.rx_bytes, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Frames of every length, in one buffer or several, over several laps of both rings.
    #[test]
    fn frames_of_any_length_arrive_in_order(
        log2 in 1u8..8,
        buffer_bytes in prop_oneof![Just(2048u32), Just(9024), 600u32..3000],
        lengths in prop::collection::vec(prop_oneof![1usize..300, 1usize..2100, 2000usize..9018], 1..200),
    ) {
        let longest = (buffer_bytes as usize) << log2;
        let lengths: Vec<_> = lengths.into_iter().map(|n| n.min(longest)).collect();
        let mut pair = pair(log2, buffer_bytes);
        cross(&pair.pool, &mut pair.client.0, &mut pair.server.0, &lengths);
        cross(&pair.pool, &mut pair.server.1, &mut pair.client.1, &lengths);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// The peer writes anything anywhere between any two bursts; each end does no more than it is asked to.
    /// That only addresses returned by `find` are accessed is tested below.
    #[test]
    fn a_peer_that_writes_anything_costs_frames_or_the_connection(
        bytes in prop::collection::vec(any::<u8>(), 0..4096),
    ) {
        crate::fuzz::fuzz_rings(&bytes);
        crate::fuzz::fuzz_messages(&bytes);
    }
}

proptest! {
    /// `find` returns only ranges inside the region.
    #[test]
    fn what_is_found_lies_in_the_region(
        region in prop_oneof![0u16..3, any::<u16>()],
        offset in prop_oneof![0u32..20_000, any::<u32>()],
        bytes in prop_oneof![0u32..20_000, any::<u32>()],
        log2 in any::<u8>(),
    ) {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&file, 12_288).expect("it grows");
        let mut memory = Memory::default();
        let quota = Quota::new(2).expect("there are few");
        memory.add(&file, 12_288, &quota).expect("the whole file");
        memory.add(&file, 5000, &quota).expect("a part of it");
        let size = [12_288u64, 5000].get(usize::from(region)).copied();
        let fits = size.is_some_and(|size| u64::from(offset) + u64::from(bytes) <= size);
        let found = memory.find(region, offset, bytes);
        prop_assert_eq!(found.is_some(), fits);
        if let Some(found) = found {
            let base = memory.find(region, 0, 0).expect("the region is there");
            prop_assert_eq!(found.as_ptr() as usize - base.as_ptr() as usize, offset as usize);
        }
        let memory = Arc::new(memory);
        let holds = log2 <= 14
            && offset % 8 == 0
            && size.is_some_and(|size| u64::from(offset) + 128 + (16 << log2) <= size);
        prop_assert_eq!(Ring::new(&memory, region, offset, log2).is_some(), holds);
    }
}

#[test]
fn seeds_of_the_fuzzer_reach_the_rings() {
    let seeds = crate::fuzz_seeds();
    assert!(seeds.len() >= 12);
    seeds.iter().for_each(|seed| crate::fuzz(seed));
}

/// Has the peer write a descriptor into the ring to the server and publish it.
fn lie(pair: &Pair, descriptors: &[Descriptor]) {
    let ring = Ring::new(&pair.peer, 0, 0, 3).expect("the first ring");
    let head = ring.head();
    for (i, &descriptor) in (0..).zip(descriptors) {
        ring.store(head.wrapping_add(i), descriptor);
    }
    ring.set_head(head.wrapping_add(descriptors.len() as u16));
}

/// Regression: `region=0x7fff` and `offset=0xfff00000` crashed DPDK's driver, and
/// a wrong but mapped offset was forwarded.
#[test]
fn descriptors_outside_of_their_region_cost_the_frame() {
    let mut pair = pair(3, 2048);
    let end = pair.client_bytes();
    let good = Descriptor { flags: 0, region: 0, length: 64, offset: end - 64 };
    let wrong = [
        Descriptor { region: 0x7fff, ..good },
        Descriptor { region: 1, ..good },
        Descriptor { offset: 0xfff0_0000, ..good },
        Descriptor { offset: end - 63, ..good },
        Descriptor { length: u32::MAX, ..good },
        Descriptor { length: 0, ..good },
    ];
    for descriptor in wrong {
        lie(&pair, &[descriptor, good]);
        let (mut out, mut stats) = (Vec::new(), PortStats::default());
        pair.server.0.receive(&*pair.pool, &mut out, 64, &mut stats).expect("it goes on");
        assert_eq!((out.len(), stats.rx_packets, stats.rx_errors), (1, 1, 1), "{descriptor:?}");
        let tail = Ring::new(&pair.peer, 0, 0, 3).expect("the ring").tail();
        assert_eq!(tail % 2, 0, "both are given back");
    }
    // The same in a chain.
    lie(&pair, &[Descriptor { flags: NEXT, ..good }, Descriptor { region: 9, ..good }, good]);
    let (mut out, mut stats) = (Vec::new(), PortStats::default());
    pair.server.0.receive(&*pair.pool, &mut out, 64, &mut stats).expect("it goes on");
    assert_eq!((out.len(), stats.rx_errors), (1, 1));
}

impl Pair {
    fn client_bytes(&self) -> u32 {
        rustix::fs::fstat(&self.file).expect("the file is open").st_size as u32
    }
}

#[test]
fn a_chain_waits_for_its_end_and_one_without_an_end_is_dropped() {
    let mut pair = pair(3, 2048);
    let piece = Descriptor { flags: NEXT, region: 0, length: 100, offset: 4096 };
    let (mut out, mut stats) = (Vec::new(), PortStats::default());
    lie(&pair, &[piece, piece]);
    pair.server.0.receive(&*pair.pool, &mut out, 64, &mut stats).expect("it goes on");
    assert_eq!((out.len(), stats), (0, PortStats::default()));
    lie(&pair, &[Descriptor { flags: 0, ..piece }]);
    pair.server.0.receive(&*pair.pool, &mut out, 64, &mut stats).expect("it goes on");
    assert_eq!((out.pop().map(|packet| packet.len()), stats.rx_errors), (Some(300), 0));
    // The frame fills the ring and does not end.
    lie(&pair, &[piece; 8]);
    pair.server.0.receive(&*pair.pool, &mut out, 64, &mut stats).expect("it goes on");
    assert_eq!((out.len(), stats.rx_errors), (0, 1));
    // The remainder of the frame is skipped.
    lie(&pair, &[piece, Descriptor { flags: 0, ..piece }, Descriptor { flags: 0, ..piece }]);
    pair.server.0.receive(&*pair.pool, &mut out, 64, &mut stats).expect("it goes on");
    assert_eq!((out.len(), stats.rx_errors), (1, 1));
}

#[test]
fn indices_out_of_bounds_cost_the_connection() {
    let stats = &mut PortStats::default();
    let mut lying = pair(3, 2048);
    Ring::new(&lying.peer, 0, 0, 3).expect("the ring").set_head(9);
    assert_eq!(lying.server.0.receive(&*lying.pool, &mut Vec::new(), 64, stats), Err(Fault::Index));
    let mut lying = pair(3, 2048);
    let second = (HEADER_BYTES + 8 * DESCRIPTOR_BYTES) as u32;
    Ring::new(&lying.peer, 0, second, 3).expect("the ring").set_tail(9);
    assert_eq!(lying.client.1.receive(&*lying.pool, &mut Vec::new(), 64, stats), Err(Fault::Index));
    let mut lying = pair(3, 2048);
    let packets = [frame(&*lying.pool, 60, 1)];
    Ring::new(&lying.peer, 0, second, 3).expect("the ring").set_head(9);
    assert_eq!(lying.server.1.send(&packets, FRAME_MAX, stats), Err(Fault::Index));
    Ring::new(&lying.peer, 0, 0, 3).expect("the ring").set_tail(9);
    assert_eq!(lying.client.0.send(&packets, FRAME_MAX, stats), Err(Fault::Index));
}

#[test]
fn buffers_outside_of_their_region_are_not_written() {
    let second = (HEADER_BYTES + 8 * DESCRIPTOR_BYTES) as u32;
    let wrong = [(0x7fff, 4096, 2048), (0, 0xfff0_0000, 2048), (0, 4096, u32::MAX), (0, 4096, 0)];
    for (region, offset, length) in wrong {
        let mut pair = pair(3, 2048);
        let ring = Ring::new(&pair.peer, 0, second, 3).expect("the ring");
        ring.store(0, Descriptor { flags: 0, region, length, offset });
        let packets = [frame(&*pair.pool, 60, 1)];
        assert_eq!(pair.server.1.send(&packets, FRAME_MAX, &mut PortStats::default()), Err(Fault::Buffer));
    }
}

/// A client does not trust what a server has changed in its descriptors.
#[test]
fn a_client_keeps_its_own_account_of_its_buffers() {
    let mut pair = pair(3, 2048);
    let ring = Ring::new(&pair.peer, 0, 0, 3).expect("the ring to the server");
    (0..8).for_each(|i| ring.store(i, Descriptor { flags: 7, region: 9, length: 1, offset: 1 }));
    cross(&pair.pool, &mut pair.client.0, &mut pair.server.0, &[60, 3000, 64]);
    let second = Ring::new(&pair.peer, 0, (HEADER_BYTES + 8 * DESCRIPTOR_BYTES) as u32, 3).expect("the ring back");
    cross(&pair.pool, &mut pair.server.1, &mut pair.client.1, &[60; 8]);
    assert!((0..8).all(|i| second.load(i).length == 2048), "given back as they were");
}

#[test]
fn a_full_ring_keeps_packets_with_the_worker() {
    let mut pair = pair(3, 2048);
    let packets: Vec<_> = (0..20).map(|i| frame(&*pair.pool, 60, i)).collect();
    let mut stats = PortStats::default();
    assert_eq!(pair.client.0.send(&packets, FRAME_MAX, &mut stats), Ok((8, Stop::Full)));
    assert_eq!(pair.client.0.send(&packets[8..], FRAME_MAX, &mut stats), Ok((0, Stop::Full)));
    assert_eq!(stats.tx_packets, 8);
    let long = [frame(&*pair.pool, 60_000, 1)];
    let mut stats = PortStats::default();
    assert_eq!(pair.server.1.send(&long, FRAME_MAX, &mut stats), Ok((1, Stop::Done)));
    assert_eq!((stats.tx_packets, stats.tx_dropped, stats.tx_too_long), (0, 1, 1), "no ring of 8 buffers holds it");
}

#[test]
fn without_buffers_frames_wait_in_the_ring() {
    let mut pair = pair(5, 2048);
    let sent: Vec<_> = (0..20).map(|i| frame(&*pair.pool, 60, i)).collect();
    pair.client.0.send(&sent, FRAME_MAX, &mut PortStats::default()).expect("an honest peer");
    let small = HeapPool::new(8);
    let mut out = Vec::new();
    let mut stats = PortStats::default();
    pair.server.0.receive(&small, &mut out, 64, &mut stats).expect("an honest peer");
    assert_eq!(out.len(), 8);
    pair.server.0.receive(&small, &mut out, 64, &mut stats).expect("an honest peer");
    assert_eq!(out.len(), 8);
    let received: Vec<_> = out.drain(..).map(|packet| packet.data().to_vec()).collect();
    pair.server.0.receive(&small, &mut out, 64, &mut stats).expect("an honest peer");
    assert_eq!(out.len(), 8);
    assert!(received.iter().zip(&sent).all(|(a, b)| a[..] == *b.data()));
    assert_eq!(stats.rx_dropped + stats.rx_errors, 0);
}

/// An interrupt request that the peer makes after the first check, as one that saw the ring empty and goes to sleep, is
/// seen at the next check: the last packets of a burst do not stay in the ring.
#[test]
fn a_wish_for_interrupts_that_comes_late_is_seen() {
    let notifier = Notifier::new("test", 1).expect("a thread");
    let event = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd"));
    notifier.set(0, Some(Arc::clone(&event)));
    let pair = pair(6, 2048);
    let layout = Layout { to_server: 1, to_client: 1, log2: 6, buffer_bytes: 2048 };
    let ring = || Ring::new(&pair.peer, 0, layout.ring_at(1), 6).expect("it lies in the region");
    let mut sender = Transmitter::of_server(ring(), notifier.doorbell(0));
    let send = |sender: &mut Transmitter| {
        let packet = frame(&*pair.pool, 60, 1);
        let sent = sender.send(&[packet], FRAME_MAX, &mut PortStats::default()).expect("an honest peer");
        assert_eq!(sent, (1, Stop::Done));
    };
    let is_woken = || {
        let mut files = [PollFd::new(&event, PollFlags::IN)];
        poll(&mut files, Some(&Timespec { tv_sec: 30, tv_nsec: 0 })).expect("a file to wait for") == 1
    };
    // Nobody sleeps: two further checks, and no more.
    send(&mut sender);
    assert!(sender.look() && !sender.look() && !sender.look());
    // Sending again restarts the checks.
    send(&mut sender);
    assert!(sender.look());
    send(&mut sender);
    assert!(sender.look());
    ring().set_flags(0);
    assert!(!sender.look());
    assert!(is_woken());
    // Before the worker itself sleeps, it checks for the last time.
    ring().set_flags(MASK_INTERRUPTS);
    rustix::io::read(&event, &mut [0; 8]).expect("it was called");
    send(&mut sender);
    ring().set_flags(0);
    sender.last_look();
    assert!(is_woken() && !sender.look());
}

/// Regression: peers that kept their files open made the switch pay for one after another, in both roles.
#[test]
fn a_region_that_there_is_no_memory_for_is_refused() {
    let group = shared_memory::Group { name: "/sluice".into(), limit: 64 << 20, used: 32 << 20 };
    let reading = shared_memory::Reading { groups: vec![group], ..Default::default() };
    let room = shared_memory::Room::new(move || reading.clone());
    let quota = Quota::in_room(4, &room).expect("few are there");
    let layout = |buffer_bytes| Layout { to_server: 1, to_client: 1, log2: 10, buffer_bytes };
    let refused = layout(65_472).make(&quota).err().expect("128 MB are too much").to_string();
    assert!(refused.contains("/sluice") && refused.contains("MemoryMax="), "{refused}");
    let made = layout(2048).make(&quota).expect("it fits");
    let refused = Memory::default().add(&made.file, 4 << 20, &quota).err();
    assert!(refused.is_none(), "{refused:?}");
    let mut theirs = Memory::default();
    let file = rustix::fs::memfd_create("region", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::fs::ftruncate(&file, 64 << 20).expect("it grows");
    let refused = theirs.add(&file, 64 << 20, &quota).expect_err("it is too much").to_string();
    assert!(refused.contains("pay 64 MB"), "{refused}");
}
