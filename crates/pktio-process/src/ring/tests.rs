//! Rings with an honest and with a hostile other side.

use super::*;
use crate::channel::Channel;
use pktio::HeapPool;
use proptest::prelude::*;
use std::collections::VecDeque;

struct Rig {
    _channel: Channel,
    producer: Producer,
    consumer: Consumer,
    pool: PoolRef,
    buffers: Buffers,
}

/// The ring from the peer to the switch.
fn rig() -> Rig {
    let (_file, channel) = Channel::create(1).expect("there is memory");
    let (consumer, _) = channel.switch_ends(0).expect("a queue");
    let (producer, _) = channel.process_ends(0).expect("a queue");
    let pool = HeapPool::shared(2048);
    Rig { _channel: channel, producer, consumer, buffers: Buffers::new(Arc::clone(&pool)), pool }
}

impl Rig {
    fn packet(&self, bytes: &[u8], segment: u16) -> Packet {
        let mut packet = self.pool.alloc_from(bytes).expect("a buffer");
        packet.set_segment(segment);
        packet
    }

    fn put(&mut self, frames: &[(Vec<u8>, u16)]) -> usize {
        let mut packets: Vec<_> = frames.iter().map(|(bytes, segment)| self.packet(bytes, *segment)).collect();
        let moved = self.producer.put(&mut packets).expect("the consumer is honest");
        assert_eq!(moved.packets + packets.len(), frames.len());
        moved.packets
    }

    fn take(&mut self, max: usize) -> Result<Vec<(Vec<u8>, u16)>, Fault> {
        let mut out = Vec::new();
        self.consumer.take(&mut out, max, &mut self.buffers)?;
        self.consumer.release();
        Ok(out.iter().map(|packet| (packet.data().to_vec(), packet.segment())).collect())
    }

    /// Stores a word of the ring, as a hostile side does.
    fn store(&self, at: usize, value: u64) {
        self.consumer.place.store(at, value, Ordering::Relaxed);
    }
}

fn frame() -> impl Strategy<Value = (Vec<u8>, u16)> {
    let len = prop_oneof![8 => 1usize..200, 4 => 200usize..2100, 1 => 2000usize..=FRAME_BYTES_MAX];
    let segment = prop_oneof![Just(0u16), Just(1448), Just(offload::SEGMENT_UDP | 1200)];
    (len, any::<u8>(), segment)
        .prop_map(|(len, first, segment)| ((0..len).map(|i| (i as u8).wrapping_mul(31) ^ first).collect(), segment))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Random bursts in and out, often round the ring's end: what comes out is what went in, in order.
    #[test]
    fn frames_come_out_as_they_went_in(
        steps in proptest::collection::vec((proptest::collection::vec(frame(), 0..40), 1usize..80), 1..60),
    ) {
        let mut rig = rig();
        let mut model: VecDeque<(Vec<u8>, u16)> = VecDeque::new();
        for (burst, max) in steps {
            let put = rig.put(&burst);
            let bytes: usize = model.iter().chain(&burst[..put]).map(|(bytes, _)| record_bytes(bytes.len())).sum();
            let is_full = model.len() + put == FRAMES_MAX
                || burst.get(put).is_some_and(|(next, _)| bytes + record_bytes(next.len()) > RING_BYTES);
            prop_assert!(put == burst.len() || is_full, "it refuses only what does not fit");
            model.extend(burst.into_iter().take(put));
            prop_assert_eq!(rig.producer.outstanding(), model.len());
            prop_assert_eq!(rig.consumer.outstanding(), model.len());
            let count = max.min(model.len());
            let expected: Vec<_> = model.drain(..count).collect();
            prop_assert!(rig.take(max).expect("the producer is honest") == expected);
        }
    }

    /// Whatever a hostile producer writes, the consumer takes frames of the ring's bytes, or finds a fault, and takes at
    /// most what a ring holds for each position that it sees.
    #[test]
    fn a_hostile_producer_makes_frames_and_nothing_else(
        writes in proptest::collection::vec((0usize..RING_BYTES / 8, hostile()), 0..64),
        heads in proptest::collection::vec(hostile(), 1..8),
    ) {
        let mut rig = rig();
        let all = rig.pool.available();
        for (at, word) in &writes {
            // Mostly at the start, where the consumer reads.
            rig.store(RECORDS_AT + 8 * (at % if at % 2 == 0 { 64 } else { RING_BYTES / 8 }), *word);
        }
        for head in heads {
            rig.store(HEAD_AT, head);
            match rig.take(usize::MAX) {
                Ok(frames) => {
                    prop_assert!(frames.len() <= FRAMES_MAX);
                    let is_frame = |(bytes, segment): &(Vec<u8>, u16)| {
                        (1..=FRAME_BYTES_MAX).contains(&bytes.len()) && (*segment == 0 || is_segment(*segment))
                    };
                    let are_frames = frames.iter().all(is_frame);
                    prop_assert!(are_frames);
                }
                // The switch uses this ring no more.
                Err(_) => break,
            }
            prop_assert_eq!(rig.pool.available() + rig.buffers.spare.len(), all, "no buffer is lost");
        }
        // Also after a fault.
        let Rig { pool, buffers, .. } = rig;
        drop(buffers);
        prop_assert_eq!(pool.available(), all, "no buffer is lost");
    }

    /// Whatever position a hostile consumer writes, the producer writes within the ring, and no more than it holds.
    #[test]
    fn a_hostile_consumer_loses_frames_and_nothing_else(tails in proptest::collection::vec(hostile(), 1..20)) {
        let mut rig = rig();
        let frames = vec![(vec![7; 3000], 0); 64];
        for tail in tails {
            rig.store(TAIL_AT, tail);
            rig.store(SLEEPS_AT, tail);
            let mut packets: Vec<_> = frames.iter().map(|(bytes, segment)| rig.packet(bytes, *segment)).collect();
            if rig.producer.put(&mut packets).is_err() {
                break;
            }
            prop_assert!(rig.producer.outstanding() <= FRAMES_MAX);
            let Ok(room) = rig.producer.room() else { break };
            prop_assert!(room <= FRAMES_MAX);
            prop_assert_eq!(rig.producer.must_wake(), tail != 0);
        }
    }
}

/// Words that a hostile side may find useful.
fn hostile() -> impl Strategy<Value = u64> {
    let position = (0u32..600, 0u32..RING_BYTES as u32 / 8 + 4)
        .prop_map(|(frames, words)| Position { frames, bytes: words.wrapping_mul(8) }.word());
    let record = (any::<u16>(), prop_oneof![Just(0u16), any::<u16>()])
        .prop_map(|(len, segment)| u64::from(len) | u64::from(segment) << 16);
    let short = (1u64..300).prop_map(|len| len);
    prop_oneof![any::<u64>(), position, record, short, Just(u64::MAX), Just(0)]
}

#[test]
fn positions_and_records_that_lie_are_faults() {
    let position = |frames, bytes| Position { frames, bytes }.word();
    for (head, record, fault) in [
        (position(1, 0), 0, Fault::Position),
        (position(0, 16), 60, Fault::Position),
        (position(1, 17), 60, Fault::Position),
        (position(1, RING_BYTES as u32 + 8), 60, Fault::Position),
        (position(FRAMES_MAX as u32 + 1, 16 * (FRAMES_MAX as u32 + 1)), 1, Fault::Position),
        (position(u32::MAX, u32::MAX - 7), 60, Fault::Position),
        (position(1, 72), 0, Fault::Record),
        (position(1, 72), 65, Fault::Record),
        (position(1, RING_BYTES as u32), FRAME_BYTES_MAX as u64 + 1, Fault::Record),
        (position(2, 80), 60, Fault::Position),
        (position(1, 80), 60, Fault::Position),
        (position(1, 72), 60 | 7 << 16, Fault::Segment),
        (position(1, 72), 60 | u64::from(offload::SEGMENT_UDP) << 16, Fault::Segment),
    ] {
        let mut rig = rig();
        rig.store(RECORDS_AT, record);
        rig.store(HEAD_AT, head);
        assert_eq!(rig.take(64), Err(fault), "head {head:#x}, record {record:#x}");
    }
}

#[test]
fn what_no_ring_can_carry_is_dropped_and_the_rest_goes_on() {
    let mut rig = rig();
    let mut long = rig.pool.alloc_large().expect("a buffer");
    long.adjust(0, FRAME_BYTES_MAX + 1).expect("it has headroom");
    let mut packets = vec![rig.packet(&[1; 60], 0), rig.packet(&[], 0), long, rig.packet(&[2; 60], 0)];
    let moved = rig.producer.put(&mut packets).expect("the consumer is honest");
    assert_eq!((moved.packets, moved.dropped, moved.too_long, packets.len()), (2, 2, 1, 0));
    assert_eq!(rig.take(64).unwrap(), [(vec![1; 60], 0), (vec![2; 60], 0)]);
}

#[test]
fn without_buffers_frames_wait_and_those_for_large_ones_are_dropped() {
    let mut rig = rig();
    rig.put(&[(vec![1; 60], 0), (vec![2; 9000], 0), (vec![3; 60], 0)]);
    let mut held = Vec::new();
    rig.pool.alloc_bulk(&mut held, 2048);
    assert_eq!(rig.take(64).unwrap(), []);
    held.clear();
    let large: Vec<_> = std::iter::from_fn(|| rig.pool.alloc_large()).collect();
    let mut out = Vec::new();
    let moved = rig.consumer.take(&mut out, 64, &mut rig.buffers).unwrap();
    assert_eq!((moved.packets, moved.dropped, out.len()), (2, 1, 2));
    drop(large);
}

#[test]
fn room_is_returned_when_it_is_released_and_not_before() {
    let mut rig = rig();
    assert_eq!(rig.put(&vec![(vec![1; 60], 0); FRAMES_MAX + 10]), FRAMES_MAX);
    let mut out = Vec::new();
    rig.consumer.take(&mut out, 100, &mut rig.buffers).unwrap();
    assert_eq!((rig.put(&[(vec![1; 60], 0)]), rig.producer.outstanding()), (0, FRAMES_MAX));
    rig.consumer.release();
    assert_eq!((rig.producer.outstanding(), rig.producer.room()), (FRAMES_MAX - 100, Ok(100)));
    assert_eq!(rig.put(&vec![(vec![1; 60], 0); 101]), 100);
}

#[test]
fn a_sleeping_consumer_is_woken_for_frames_and_hears_of_those_that_came_before() {
    let mut rig = rig();
    assert!(!rig.producer.must_wake());
    assert_eq!(rig.consumer.arm(), Ok(true));
    rig.put(&[(vec![1; 60], 0)]);
    assert!(rig.producer.must_wake());
    assert_eq!(rig.consumer.arm(), Ok(false), "one is there");
    rig.consumer.disarm();
    assert!(!rig.producer.must_wake());
    assert_eq!(rig.take(1).unwrap().len(), 1);
    assert_eq!(rig.consumer.arm(), Ok(true));
    rig.store(HEAD_AT, u64::MAX);
    assert_eq!(rig.consumer.arm(), Err(Fault::Position));
}

/// Two threads, as fast as they can: frames arrive whole and in order, and no wake-up is lost.
#[test]
fn frames_pass_between_threads_in_order() {
    let Rig { _channel, mut producer, mut consumer, pool, mut buffers } = rig();
    let count = 200_000u32;
    let sending = std::thread::spawn(move || {
        let (mut next, mut packets) = (0u32, Vec::new());
        while next < count || !packets.is_empty() {
            while next < count && packets.len() < 32 {
                let len = 60 + (next as usize * 7) % 1400;
                let mut bytes = vec![next as u8; len];
                bytes[..4].copy_from_slice(&next.to_ne_bytes());
                let Some(packet) = pool.alloc_from(&bytes) else { break };
                packets.push(packet);
                next += 1;
            }
            if producer.put(&mut packets).expect("it is honest").packets == 0 {
                std::thread::yield_now();
            }
        }
    });
    let (mut expected, mut out) = (0u32, Vec::new());
    while expected < count {
        let moved = consumer.take(&mut out, 64, &mut buffers).expect("it is honest");
        consumer.release();
        for packet in out.drain(..) {
            let data = packet.data();
            assert_eq!(data.len(), 60 + (expected as usize * 7) % 1400);
            assert_eq!(data[..4], expected.to_ne_bytes());
            assert!(data[4..].iter().all(|byte| *byte == expected as u8), "frame {expected}");
            expected += 1;
        }
        if moved.packets == 0 {
            std::thread::yield_now();
        }
    }
    sending.join().expect("it is honest");
}
