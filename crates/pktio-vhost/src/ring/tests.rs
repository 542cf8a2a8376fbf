//! Rings without a front end: the driver's side is written here, honest (split and packed deliver what is sent, in any pieces)
//! and hostile (random memory, endless chains).

use super::*;
use crate::memory::Log;
use crate::memory::tests::{allowed, memfd};
use crate::message::Region;
use crate::terms::*;
use crate::{chain, packed, split};
use pktio::offload::Accepted;
use pktio::{HeapPool, offload};
use proptest::prelude::*;

const SIZE: u16 = 64;
/// Guest addresses of a ring's parts and of the buffers, all in one region that begins at 0.
const PARTS: [u64; 3] = [0, 0x4000, 0x8000];
const BUFFERS: u64 = 0x2_0000;
const BYTES: u64 = 1 << 22;
const HEADER: usize = 12;

/// The driver of one ring.
struct Driver {
    memory: Arc<Memory>,
    is_packed: bool,
    size: u16,
    next: u16,
    wrap: bool,
    /// Where the next buffer is.
    free: u64,
    /// Split: the next free descriptor.
    spare: u16,
    accepts: Accepted,
}

impl Driver {
    fn new(is_packed: bool, size: u16) -> Driver {
        let region = Region { guest: 0, bytes: BYTES, user: 0, offset: 0 };
        let memory = Memory::default().with(region, memfd(BYTES), &allowed()).expect("a region");
        Driver {
            memory: Arc::new(memory),
            is_packed,
            size,
            next: 0,
            wrap: true,
            free: BUFFERS,
            spare: 0,
            accepts: Accepted::default(),
        }
    }

    fn ring(&self, log: Option<Arc<Log>>) -> Ring {
        self.ring_from(if self.is_packed { 0x8000 } else { 0 }, log)
    }

    fn ring_from(&self, base: u32, log: Option<Arc<Log>>) -> Ring {
        let layout = if self.is_packed { packed::layout(self.size) } else { split::layout(self.size) };
        let place = |i: usize| self.memory.place(PARTS[i], layout[i].0, layout[i].1).expect("it is in memory");
        let log_at = log.is_some().then_some(PARTS[2]);
        let parts = Parts { size: self.size, descriptors: place(0), driver: place(1), device: place(2), log_at };
        let terms =
            Terms { header_bytes: HEADER, mergeable: true, leaves_work: true, takes: 0, accepts: self.accepts, log };
        Ring::new(Arc::clone(&self.memory), parts, self.is_packed, base, terms).expect("the parts fit")
    }

    fn write<T: shared_memory::Plain>(&self, at: u64, value: T) {
        let bytes = self.memory.translate(at, size_of::<T>() as u32, &mut 0).expect("in memory");
        assert!(bytes.write(0, value));
    }

    fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(self.memory.translate(at, len as u32, &mut 0).expect("in memory").read_bytes(0, &mut bytes));
        bytes
    }

    /// A new buffer that holds these bytes.
    fn buffer(&mut self, bytes: &[u8]) -> (u64, u32) {
        let at = self.free;
        self.free += bytes.len() as u64;
        assert!(self.memory.translate(at, bytes.len() as u32, &mut 0).expect("in memory").write_bytes(0, bytes));
        (at, bytes.len() as u32)
    }

    fn describe(&self, index: u16, (address, len): (u64, u32), last: u32) {
        self.write(PARTS[0] + 16 * u64::from(index), [address, u64::from(len) | u64::from(last) << 32]);
    }

    /// Makes a chain available.
    fn give(&mut self, pieces: &[(u64, u32)], flags: u16) {
        let head = if self.is_packed { self.next } else { self.spare };
        for (i, &piece) in pieces.iter().enumerate() {
            let flags = flags | if i + 1 == pieces.len() { 0 } else { NEXT };
            if self.is_packed {
                let marks = if self.wrap { 1 << 7 } else { 1 << 15 };
                self.describe(self.next, piece, u32::from(head) | u32::from(flags | marks) << 16);
                self.next += 1;
                if self.next == self.size {
                    (self.next, self.wrap) = (0, !self.wrap);
                }
            } else {
                let at = self.spare;
                self.spare = (at + 1) % self.size;
                self.describe(at, piece, u32::from(flags) | u32::from(self.spare) << 16);
            }
        }
        if !self.is_packed {
            self.write(PARTS[1] + 4 + 2 * u64::from(self.next % self.size), head);
            self.next = self.next.wrapping_add(1);
            self.write(PARTS[1] + 2, self.next);
        }
    }

    /// Cuts bytes at the given places, and gives them as one chain.
    fn send(&mut self, frame: &[u8], cuts: &[usize]) {
        let all = [&[0; HEADER], frame].concat();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (all.len() + 1)).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for to in cuts.into_iter().chain([all.len()]) {
            pieces.push(self.buffer(&all[from..to]));
            from = to;
        }
        self.give(&pieces, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What an honest guest sends arrives, in order and byte by byte, whatever pieces it is in.
    #[test]
    fn split_and_packed_deliver_what_a_guest_sends(
        is_packed: bool,
        rounds in proptest::collection::vec(
            proptest::collection::vec((1usize..5000, proptest::collection::vec(0usize..5000, 0..6)), 1..9),
            1..12,
        ),
    ) {
        let mut driver = Driver::new(is_packed, SIZE);
        let mut ring = driver.ring(None);
        let pool = HeapPool::shared(128);
        for (number, round) in rounds.into_iter().enumerate() {
            driver.free = BUFFERS;
            let mut sent = Vec::new();
            for (i, (len, cuts)) in round.into_iter().enumerate() {
                let frame: Vec<u8> = (0..len).map(|at| (at * 7 + i + number) as u8).collect();
                driver.send(&frame, &cuts);
                sent.push(frame);
            }
            let mut received = Vec::new();
            let mut burst = Burst::default();
            for _ in 0..sent.len() {
                prop_assert!(ring.receive(&*pool, &mut received, 64, &mut burst).is_ok());
            }
            let received: Vec<_> = received.iter().map(|packet| packet.data().to_vec()).collect();
            prop_assert_eq!(burst.dropped, 0);
            prop_assert!(received == sent, "round {}", number);
        }
    }

    /// What is sent to an honest guest arrives in its buffers, over as many as it takes.
    #[test]
    fn split_and_packed_deliver_to_a_guest(is_packed: bool, len in 1usize..6000, buffer in 100u32..2000, before in 0u16..60) {
        let mut driver = Driver::new(is_packed, SIZE);
        let mut ring = driver.ring(None);
        let pool = HeapPool::shared(8);
        let mut burst = Burst::default();
        for _ in 0..before {
            let at = driver.free;
            driver.give(&[(at, buffer)], WRITE);
            let mut packets = vec![pool.alloc_from(&[9; 20]).unwrap()];
            prop_assert_eq!(ring.send(&mut packets, 9018, &mut burst), Ok(1));
        }
        let start = driver.free;
        let entries = (len + HEADER).div_ceil(buffer as usize);
        prop_assume!(entries <= usize::from(SIZE));
        for i in 0..entries as u64 {
            driver.give(&[(start + i * u64::from(buffer), buffer)], WRITE);
        }
        let frame: Vec<u8> = (0..len).map(|at| at as u8 ^ 0x33).collect();
        let mut packets = vec![pool.alloc_from(&frame).unwrap()];
        prop_assert_eq!(ring.send(&mut packets, 9018, &mut burst), Ok(1));
        let bytes = driver.bytes(start, HEADER + len);
        prop_assert!(bytes[HEADER..] == frame);
        prop_assert_eq!(&bytes[..HEADER], &[&[0; 10][..], &(entries as u16).to_le_bytes()].concat());
        prop_assert_eq!(burst.dropped, 0);
    }

    /// Bursts of short and long packets, so that quick and general parts of a ring take turns: each arrives in order and byte by byte, over as
    /// many buffers as it takes.
    #[test]
    fn bursts_of_all_lengths_arrive_in_order(
        is_packed: bool,
        odd in 0u16..20,
        bursts in proptest::collection::vec(proptest::collection::vec(prop_oneof![1usize..280, 1usize..1500], 1..11), 1..30),
    ) {
        const BUFFER: u32 = 300;
        let mut driver = Driver::new(is_packed, if is_packed { SIZE + odd } else { SIZE });
        let mut ring = driver.ring(None);
        let pool = HeapPool::shared(16);
        for (number, lengths) in bursts.iter().enumerate() {
            let start = driver.free;
            let entries = |len: usize| (len + HEADER).div_ceil(BUFFER as usize);
            let all: usize = lengths.iter().map(|len| entries(*len)).sum();
            // Those of a last packet are not there, and come later.
            let (mut given, mut sent) = (all - entries(lengths[lengths.len() - 1]), 0);
            (0..given).for_each(|i| driver.give(&[(start + (i as u64) * u64::from(BUFFER), BUFFER)], WRITE));
            let frame = |i: usize| (0..lengths[i]).map(|at| (at * 5 + i + number) as u8).collect::<Vec<u8>>();
            let mut packets: Vec<_> = (0..lengths.len()).map(|i| pool.alloc_from(&frame(i)).unwrap()).collect();
            let mut burst = Burst::default();
            while sent < packets.len() {
                let done = ring.send(&mut packets[sent..], 9018, &mut burst);
                prop_assert!(done.is_ok());
                sent += done.unwrap_or(0);
                prop_assert!(sent == packets.len() || sent + 1 == packets.len() && given < all);
                (given..all).for_each(|i| driver.give(&[(start + (i as u64) * u64::from(BUFFER), BUFFER)], WRITE));
                given = all;
            }
            let mut at = start;
            for (i, len) in lengths.iter().enumerate() {
                let bytes = driver.bytes(at, HEADER + len);
                prop_assert_eq!(&bytes[..HEADER], &[&[0; 10][..], &(entries(*len) as u16).to_le_bytes()].concat());
                prop_assert!(bytes[HEADER..] == frame(i), "packet {} of burst {}", i, number);
                at += entries(*len) as u64 * u64::from(BUFFER);
            }
            prop_assert_eq!((burst.dropped, burst.bytes), (0, lengths.iter().sum::<usize>() as u64));
        }
    }

    /// Any memory: no panic, nothing outside of it touched (the mapping ends where the memory does), bounded work.
    #[test]
    fn random_rings_cost_the_guest_only(bytes in proptest::collection::vec(any::<u8>(), 6..300)) {
        crate::fuzz::rings(&bytes);
    }

    #[test]
    fn random_messages_cost_the_front_end_only(
        messages in proptest::collection::vec((1u8..41, any::<u8>(), proptest::collection::vec(0u8..3, 0..48)), 0..40),
    ) {
        let mut bytes = Vec::new();
        for (code, flags, payload) in messages {
            bytes.extend([code, flags, payload.len() as u8]);
            bytes.extend(payload);
        }
        crate::fuzz::messages(&bytes);
    }
}

/// They are not read: a frame in one piece and one in three arrive as they are.
#[test]
fn headers_of_a_guest_that_leaves_no_work_say_nothing() {
    for is_packed in [false, true] {
        let mut driver = Driver::new(is_packed, SIZE);
        let mut ring = driver.ring(None);
        ring.terms.leaves_work = false;
        let frame: Vec<u8> = (0..100).collect();
        let all = [&[0xff; HEADER][..], &frame].concat();
        let whole = driver.buffer(&all);
        let pieces = [&all[..5], &all[5..40], &all[40..]].map(|piece| driver.buffer(piece));
        driver.give(&[whole], 0);
        driver.give(&pieces, 0);
        let (mut received, mut burst) = (Vec::new(), Burst::default());
        assert_eq!(ring.receive(&*HeapPool::shared(8), &mut received, 64, &mut burst), Ok(()));
        assert_eq!((received.len(), burst.dropped), (2, 0));
        assert!(received.iter().all(|packet| packet.data() == frame && packet.segment() == 0));
    }
}

#[test]
fn the_fuzz_targets_seeds_pass() {
    crate::fuzz::seeds().iter().for_each(|seed| crate::fuzz::any(seed));
}

/// 32,768 descriptors without a byte, of which each entry of the ring is one chain: the guest of finding 4.
#[test]
fn endless_chains_cost_a_bounded_number_of_descriptors() {
    let size = 32_768;
    let mut driver = Driver::new(false, size);
    // Descriptors reach up to 0x8_0000 now: the other parts and buffers are behind them.
    let place = |at, (len, align)| driver.memory.place(at, len, align).expect("in memory");
    let [descriptors, avail, used] = split::layout(size);
    let (descriptors, avail, used) = (place(0, descriptors), place(0x8_0000, avail), place(0x10_0000, used));
    for flags in [0, WRITE] {
        for at in 0..size {
            // A chain for the port begins with room for a header, and all are the same one.
            let len = if flags == WRITE && at == 0 { HEADER as u32 } else { 0 };
            driver.describe(at, (0x20_0000, len), u32::from(flags | NEXT) | u32::from((at + 1) % size) << 16);
        }
        for entry in 0..u64::from(size) {
            driver.write(0x8_0004 + 2 * entry, if flags == WRITE { 0 } else { entry as u16 });
        }
        driver.next = driver.next.wrapping_add(size);
        driver.write(0x8_0002, driver.next);
        let parts = Parts { size, descriptors, driver: avail, device: used, log_at: None };
        let terms = Terms {
            header_bytes: HEADER,
            mergeable: true,
            leaves_work: true,
            takes: 0,
            accepts: Accepted::default(),
            log: None,
        };
        driver.write(0x10_0002, driver.next.wrapping_sub(size));
        let mut ring = Ring::new(Arc::clone(&driver.memory), parts, false, 0, terms).expect("it fits");
        let pool = HeapPool::shared(64);
        let mut burst = Burst::default();
        if flags == 0 {
            ring.receive(&*pool, &mut Vec::new(), 64, &mut burst).expect("no fault");
        } else {
            let mut packets: Vec<_> = (0..64).map(|_| pool.alloc_from(&[1; 60]).unwrap()).collect();
            ring.send(&mut packets, 9018, &mut burst).expect("no fault");
        }
        // Each packet costs at most PIECES_MAX, a poll POLL_PIECES_MAX and one packet more.
        assert!((1..=POLL_PIECES_MAX / PIECES_MAX + 1).contains(&(burst.dropped as u32)), "{flags}: {burst:?}");
    }
}

#[test]
fn a_packed_chain_without_an_end_stops_its_ring() {
    let mut driver = Driver::new(true, 1024);
    let mut ring = driver.ring(None);
    let pieces = vec![(BUFFERS, 0); 1000];
    driver.give(&pieces, 0);
    let pool = HeapPool::shared(64);
    let mut burst = Burst::default();
    assert_eq!(ring.receive(&*pool, &mut Vec::new(), 64, &mut burst), Err(Fault::LongChain));
    assert_eq!(ring.receive(&*pool, &mut Vec::new(), 64, &mut burst), Ok(()), "it is said once");
}

#[test]
fn an_index_beyond_the_ring_stops_it_until_it_is_right() {
    let mut driver = Driver::new(false, SIZE);
    let mut ring = driver.ring(None);
    driver.send(&[1; 60], &[]);
    driver.write(PARTS[1] + 2, SIZE + 1);
    let pool = HeapPool::shared(64);
    let mut packets = Vec::new();
    let mut receive = || ring.receive(&*pool, &mut packets, 64, &mut Burst::default());
    assert_eq!(receive(), Err(Fault::Index));
    assert_eq!(receive(), Ok(()), "it is said once");
    driver.write(PARTS[1] + 2, 1u16);
    assert_eq!(receive(), Ok(()));
    assert_eq!(packets.len(), 1);
}

/// Finding 6: the page of the virtio header, and of each piece, is marked, and so is the used ring. Each is marked after it was
/// written: a page is sent as soon as it is marked.
#[test]
fn written_pages_are_logged_with_the_headers_page() {
    for is_packed in [false, true] {
        let mut driver = Driver::new(is_packed, SIZE);
        let mut log = Log::new(memfd(4096), 4096, 0, &allowed()).expect("a log");
        log.monitor.memory = Some(Arc::clone(&driver.memory));
        let log = Arc::new(log);
        let mut ring = driver.ring(Some(Arc::clone(&log)));
        // The header alone is at the end of page 0x40; data is in pages 0x41 and 0x50.
        driver.give(&[(0x4_0ff4, 12), (0x4_1000, 30)], WRITE);
        driver.give(&[(0x5_0000, 2000)], WRITE);
        // The header and all data are in one page.
        driver.give(&[(0x5_1000, 2000)], WRITE);
        let pool = HeapPool::shared(8);
        let mut packets: Vec<_> = (5..7).map(|byte| pool.alloc_from(&[byte; 100]).unwrap()).collect();
        assert_eq!(ring.send(&mut packets, 9018, &mut Burst::default()), Ok(2));
        let marked: Vec<u64> = (0..0x60).filter(|&page| log.is_marked(page)).collect();
        assert_eq!(marked, [8, 0x40, 0x41, 0x50, 0x51], "packed: {is_packed}");
        let sent: Vec<(u64, bool)> = marked.into_iter().map(|page| (page, true)).collect();
        assert_eq!(log.monitor.pages(), sent, "packed: {is_packed}");
    }
}

#[test]
fn a_ring_goes_on_where_the_last_one_stood() {
    for is_packed in [false, true] {
        let mut driver = Driver::new(is_packed, SIZE);
        let mut ring = driver.ring(None);
        let pool = HeapPool::shared(128);
        let mut packets = Vec::new();
        for number in 0..100u8 {
            driver.free = BUFFERS;
            driver.send(&[number; 60], &[12, 40]);
            ring.receive(&*pool, &mut packets, 64, &mut Burst::default()).expect("no fault");
            let base = ring.base();
            let is_right = if is_packed { base >> 16 == base & 0xffff } else { base == u32::from(number) + 1 };
            assert!(is_right, "{base:#x}");
            ring = driver.ring_from(base & 0xffff, None);
        }
        let numbers: Vec<u8> = packets.iter().map(|packet| packet.data()[59]).collect();
        assert_eq!(numbers, (0..100).collect::<Vec<u8>>());
    }
}

/// The finding: 64 small frames became 16,384 segments within a poll, of a guest that had negotiated no offloads.
#[test]
fn segments_cost_a_guest_its_share_of_a_poll_and_none_are_made_unasked() {
    for is_packed in [false, true] {
        for (accepts, size) in [(Accepted::default(), 8), (Accepted::ALL, 1), (Accepted::ALL, 8)] {
            let mut driver = Driver { accepts, ..Driver::new(is_packed, SIZE) };
            let header = [0, 1, 0, 0, size, 0, 0, 0, 0, 0, 0, 0];
            let frame = [&header[..], &[7; 310]].concat();
            for _ in 0..SIZE {
                let buffer = driver.buffer(&frame);
                driver.give(&[buffer], 0);
            }
            let (mut ring, pool) = (driver.ring(None), HeapPool::new(256));
            let (mut all, mut polls) = (0, 0);
            while ring.has_entries() {
                let (mut packets, mut burst) = (Vec::new(), Burst::default());
                ring.receive(&pool, &mut packets, BURST_MAX, &mut burst).expect("the ring works");
                let segments: usize = packets.iter().map(offload::segments).sum();
                assert!(segments < POLL_SEGMENTS_MAX + offload::SEGMENTS_MAX, "{segments} segments in a poll");
                polls += 1;
                all += packets.len();
                assert_eq!(burst.packets, packets.len() as u64);
            }
            let is_asked = accepts == Accepted::ALL && size == 8;
            assert_eq!(all, if is_asked { usize::from(SIZE) } else { 0 }, "packed: {is_packed}, segments of {size}");
            assert!(!is_asked || polls > 10, "{polls} polls");
        }
    }
}

/// The finding: chains that turn out to be no frame were copied up to there and cost nothing, 60 KB each.
#[test]
fn what_is_no_frame_costs_its_bytes_all_the_same() {
    for is_packed in [false, true] {
        let (mut driver, pool) = (Driver::new(is_packed, SIZE), HeapPool::shared(64));
        let mut ring = driver.ring(None);
        for _ in 0..SIZE / 2 {
            driver.give(&[(BUFFERS, 60_000), (u64::MAX, 1)], 0);
        }
        let mut burst = Burst::default();
        ring.receive(&*pool, &mut Vec::new(), 64, &mut burst).expect("no fault");
        let most = POLL_BYTES_MAX / 60_000 + 2;
        assert!((1..=most).contains(&burst.dropped), "packed: {is_packed}, {burst:?}");
        // And for the guest: buffers of which all but the last hold a frame.
        let mut driver = Driver::new(is_packed, SIZE);
        let mut ring = driver.ring(None);
        for _ in 0..SIZE / 2 {
            driver.give(&[(BUFFERS, 60_000), (u64::MAX, 1)], WRITE);
        }
        let mut packets: Vec<_> = (0..SIZE / 2).map(|_| pool.alloc_from(&[1; 61_000]).expect("a buffer")).collect();
        ring.terms.mergeable = false;
        let mut burst = Burst::default();
        ring.send(&mut packets, 62_000, &mut burst).expect("no fault");
        assert!((1..=most).contains(&burst.dropped), "packed: {is_packed}, {burst:?}");
    }
}

/// The finding: in a split ring whose buffers were all there, a frame behind others that needed more than these had left was
/// dropped, though it fits into an empty ring.
#[test]
fn a_frame_too_large_for_what_others_left_of_a_full_ring_is_kept() {
    for is_packed in [false, true] {
        let (mut driver, pool) = (Driver::new(is_packed, SIZE), HeapPool::shared(8));
        let mut ring = driver.ring(None);
        let give = |driver: &mut Driver, count: u16| (0..count).for_each(|_| driver.give(&[(BUFFERS, 100)], WRITE));
        give(&mut driver, SIZE);
        // Needs all 64 buffers.
        let mut packets: Vec<_> =
            [60, 6350].map(|len| pool.alloc_from(&vec![1; len]).expect("a buffer")).into_iter().collect();
        let mut burst = Burst::default();
        assert_eq!(ring.send(&mut packets, 9018, &mut burst), Ok(1), "packed: {is_packed}");
        assert_eq!(burst.dropped, 0);
        give(&mut driver, 1);
        assert_eq!(ring.send(&mut packets[1..], 9018, &mut burst), Ok(1), "packed: {is_packed}");
        assert_eq!(burst.dropped, 0);
        // What does not fit into an empty ring never will.
        give(&mut driver, SIZE);
        let mut packets = vec![pool.alloc_from(&[1; 6400]).expect("a buffer")];
        assert_eq!(ring.send(&mut packets, 9018, &mut burst), Ok(1), "packed: {is_packed}");
        assert_eq!(burst.dropped, 1);
    }
}

/// A table whose descriptors have no byte and go on for ever; it counts how many were looked at.
struct Endless {
    flags: u16,
    looked_at: std::cell::Cell<u32>,
}

impl Table for Endless {
    fn desc(&self, _: u16) -> Option<Desc> {
        self.looked_at.set(self.looked_at.get() + 1);
        Some(Desc { addr: BUFFERS, len: 0, flags: self.flags, next: 0 })
    }
}

/// Finding 4, in descriptors: it was all of a ring's, anew for each of its buffers.
#[test]
fn a_packet_looks_at_a_bounded_number_of_descriptors() {
    let driver = Driver::new(false, SIZE);
    let terms = Terms {
        header_bytes: HEADER,
        mergeable: true,
        leaves_work: true,
        takes: 0,
        accepts: Accepted::default(),
        log: None,
    };
    let mut budget = Budget::of_a_poll();
    let endless = |flags| Endless { flags, looked_at: std::cell::Cell::new(0) };
    let (sends, receives) = (endless(NEXT), endless(NEXT | WRITE));
    let mut packet = HeapPool::shared(1).alloc().expect("a buffer");
    let first = sends.desc(0).expect("there is always one");
    let read = chain::read(&driver.memory, &mut 0, &sends, first, &terms, &mut budget, &mut packet);
    assert_eq!((read, sends.looked_at.get()), (chain::Read::Bad, PIECES_MAX + 1));
    assert_eq!(budget.pieces, POLL_PIECES_MAX - PIECES_MAX);
    let mut lengths = [0; CHAINS_MAX];
    let written =
        chain::write(&driver.memory, &mut 0, &receives, |_| Some(0), &terms, &mut budget, &[1; 60], None, &mut lengths);
    assert!(matches!(written, chain::Written::Lost(_)), "{written:?}");
    assert!(receives.looked_at.get() <= PIECES_MAX && budget.pieces >= POLL_PIECES_MAX - 2 * PIECES_MAX);
}
