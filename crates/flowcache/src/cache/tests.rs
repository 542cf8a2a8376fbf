use random::Random;

use super::hash::Hash;
use super::masks::Bits;
use super::table::Table;
use super::{Cache, Frame, MASKS_MAX, NONE, Refused};
use crate::path::{Pattern, Rewrite, WINDOW};
use crate::run::Prepared;

fn nothing() -> Prepared {
    Prepared::new(&Rewrite { max_len: u32::MAX, ..Rewrite::default() }).expect("right")
}

fn pattern(mask: &[u8], value: &[u8]) -> Pattern {
    Pattern { mask: mask.into(), value: value.into(), shortest: 0, longest: u32::MAX }
}

fn is_of(pattern: &Pattern, frame: &[u8]) -> bool {
    let bytes = frame.iter().copied().chain(std::iter::repeat(0));
    (pattern.shortest as usize..=pattern.longest as usize).contains(&frame.len())
        && pattern.mask.iter().zip(&pattern.value).zip(bytes).all(|((mask, value), byte)| byte & mask == *value)
}

/// Whether some frame may match both patterns.
fn may_meet(a: &Pattern, b: &Pattern) -> bool {
    let bits = |p: &Pattern| -> Vec<(u8, u8)> { p.mask.iter().copied().zip(p.value.iter().copied()).collect() };
    a.shortest <= b.longest
        && b.shortest <= a.longest
        && bits(a).iter().zip(&bits(b)).all(|((mask_a, a), (mask_b, b))| (a ^ b) & mask_a & mask_b == 0)
}

/// Looks up frames in buffers with other bytes before and after them.
fn lookup<T>(cache: &mut Cache<T>, frames: &[(u32, Vec<u8>)]) -> Vec<u32> {
    let buffers: Vec<Vec<u8>> = frames.iter().map(|(_, frame)| [&[0xa5; 3][..], frame, &[0x5a; 7]].concat()).collect();
    let frames: Vec<Frame<'_>> = frames
        .iter()
        .zip(&buffers)
        .map(|((port, frame), buffer)| Frame { buffer, offset: 3, len: frame.len(), port: *port })
        .collect();
    let mut hits = vec![7; frames.len()];
    cache.lookup(&frames, &mut hits);
    hits
}

/// A plain list of megaflows.
#[derive(Default)]
struct Model(Vec<(u32, Pattern, u64, u32)>);

impl Model {
    fn forget(&mut self, payload: u64) {
        let before = self.0.len();
        self.0.retain(|(.., p, _)| *p != payload);
        assert_eq!(self.0.len() + 1, before, "what leaves was there once");
    }

    fn handle(&self, port: u32, frame: &[u8]) -> u32 {
        self.0.iter().find(|(p, pattern, ..)| *p == port && is_of(pattern, frame)).map_or(NONE, |(.., handle)| *handle)
    }
}

/// A random mask with some bytes, some of them partial.
fn any_mask(random: &mut Random, window: usize) -> Vec<u8> {
    let mut mask = vec![0; 1 + random.index(window)];
    for _ in 0..1 + random.below(12) {
        let at = random.index(mask.len());
        mask[at] = *random.pick(&[0xff, 0xff, 0xf0, 0x01, 0x7e]);
    }
    let len = mask.iter().rposition(|m| *m != 0).map_or(0, |i| i + 1);
    mask.truncate(len);
    mask
}

/// Random changes and lookups, each compared with the list.
fn against_the_list(seed: u64, masks: usize, window: usize, limit: usize, steps: usize) -> Cache<u64> {
    let mut random = Random::new(seed);
    // Few of many masks would be disjoint, so the first two bytes number them.
    let are_numbered = masks > MASKS_MAX;
    let mut masks: Vec<Vec<u8>> = (0..masks).map(|_| any_mask(&mut random, window)).collect();
    for mask in masks.iter_mut().filter(|_| are_numbered) {
        mask.splice(0..mask.len().min(2), [0xff, 0xff]);
    }
    let mut cache = Cache::new(seed, limit);
    let mut model = Model::default();
    let mut gone: Vec<u32> = Vec::new();
    for step in 0..steps as u64 {
        match random.below(10) {
            0..6 => {
                let number = random.index(masks.len());
                let mask = masks[number].clone();
                let mut value: Vec<u8> = mask.iter().map(|m| m & (random.below(4) as u8 * 0x55)).collect();
                if are_numbered {
                    value.splice(0..2, (number as u16).to_be_bytes());
                }
                let shortest = if random.one_in(2) { 0 } else { random.range(0, 80) };
                let longest = if random.one_in(2) { u32::MAX } else { shortest + random.range(0, 300) };
                let pattern = Pattern { shortest, longest, ..pattern(&mask, &value) };
                let port = random.range(0, 2);
                let others = model.0.iter().filter(|(p, ..)| *p == port);
                if others.clone().any(|(_, other, ..)| may_meet(other, &pattern) && *other != pattern) {
                    continue;
                }
                let mut left = Vec::new();
                let inserted = cache.insert(port, &pattern, nothing(), step, |payload| left.push(payload));
                match inserted {
                    Ok(handle) => model.0.push((port, pattern, step, handle)),
                    Err(refused) => {
                        assert_eq!((refused, left.pop()), (Refused::Masks, Some(step)));
                    }
                }
                left.into_iter().for_each(|payload| model.forget(payload));
            }
            6 if !model.0.is_empty() => {
                let (.., payload, handle) = *random.pick(&model.0);
                assert_eq!(cache.remove(handle), Some(payload));
                assert_eq!(cache.remove(handle), None);
                model.forget(payload);
                gone.push(handle);
            }
            7 if random.one_in(40) => {
                let bit = 1 << random.below(4);
                cache.retain(|handle, payload| {
                    assert!(model.0.iter().any(|(.., p, h)| (p, *h) == (&*payload, handle)));
                    *payload & bit != 0
                });
                model.0.retain(|(.., payload, _)| payload & bit != 0);
            }
            8 if random.one_in(200) => {
                let mut left = Vec::new();
                cache.clear(|payload| left.push(payload));
                left.into_iter().for_each(|payload| model.forget(payload));
                assert!(model.0.is_empty() && cache.is_empty() && cache.masks() == 0);
            }
            _ => {
                let frames: Vec<(u32, Vec<u8>)> = (0..random.below(70))
                    .map(|_| {
                        let mut frame: Vec<u8> =
                            (0..random.below(window as u64 + 40)).map(|_| random.below(4) as u8 * 0x55).collect();
                        let mut port = random.range(0, 2);
                        if !model.0.is_empty() && !random.one_in(4) {
                            let (p, pattern, ..) = random.pick(&model.0);
                            port = *p;
                            frame.resize(frame.len().max(pattern.shortest as usize), 0x33);
                            frame.truncate(pattern.longest as usize);
                            for ((byte, mask), value) in frame.iter_mut().zip(&pattern.mask).zip(&pattern.value) {
                                *byte = *byte & !mask | value;
                            }
                            if random.one_in(4) && !frame.is_empty() {
                                let at = random.index(frame.len());
                                frame[at] ^= 1 << random.below(8);
                            }
                        }
                        (port, frame)
                    })
                    .collect();
                let expected: Vec<u32> = frames.iter().map(|(port, frame)| model.handle(*port, frame)).collect();
                assert_eq!(lookup(&mut cache, &frames), expected, "seed {seed}, step {step}");
            }
        }
        assert_eq!(cache.len(), model.0.len());
        assert!(cache.len() <= limit && cache.masks() <= MASKS_MAX);
    }
    let mut handles: Vec<u32> = model.0.iter().map(|(.., handle)| *handle).collect();
    handles.sort_by_key(|handle| handle & super::SLOT_MASK);
    assert_eq!(cache.handles().collect::<Vec<_>>(), handles);
    for (port, pattern, payload, handle) in &model.0 {
        assert_eq!(cache.pattern(*handle), Some((*port, pattern.clone())));
        assert_eq!(cache.get(*handle).map(|m| *m.payload), Some(*payload));
    }
    for handle in gone.iter().rev().take(200).filter(|handle| !handles.contains(handle)) {
        assert!(cache.get(*handle).is_none() && cache.get_mut(*handle).is_none());
    }
    cache
}

#[test]
fn one_mask() {
    for seed in 0..20 {
        against_the_list(seed, 1, 60, 1000, 500);
    }
}

#[test]
fn several_masks() {
    let mut found = (0, 0, 0);
    for seed in 0..60 {
        let cache = against_the_list(seed, 12, if seed % 2 == 0 { 60 } else { WINDOW }, 1000, 500);
        let statistics = cache.statistics();
        found = (found.0 + statistics.front_hits, found.1 + statistics.mask_hits, found.2 + statistics.misses);
    }
    assert!(found.0 > 1000 && found.1 > 1000 && found.2 > 1000, "all branches are taken: {found:?}");
}

#[test]
fn a_limit_that_is_reached() {
    for seed in 0..20 {
        let cache = against_the_list(seed, 6, 60, 10, 1000);
        assert!(cache.statistics().evicted > 0);
    }
}

#[test]
fn more_masks_than_there_may_be() {
    for seed in 0..4 {
        let cache = against_the_list(seed, 1000, 40, 100_000, 1500);
        assert!(cache.statistics().evicted > 0);
    }
}

#[test]
fn a_thousand_masks_of_a_hostile_sender() {
    let mut cache = Cache::new(1, 10_000);
    let mut model = Model::default();
    // 200 megaflows in use, with one mask; byte 0 distinguishes them from the others.
    let good = |i: u8| pattern(&[0xff, 0xff], &[1, i]);
    for i in 0..200 {
        let handle = cache.insert(0, &good(i), nothing(), u64::from(i), |_| panic!("there is room")).expect("right");
        model.0.push((0, good(i), u64::from(i), handle));
    }
    let frames: Vec<_> = (0..200).map(|i| (0, vec![1, i, 9, 9, 9, 9])).collect();
    for n in 0..1000u64 {
        let bad = pattern(&[&[0xff, 0][..], &(n + 1).to_be_bytes()].concat(), &[&[2, 0][..], &[0; 8]].concat());
        let _ = cache.insert(0, &bad, nothing(), 1000 + n, |payload| assert!(payload >= 1000, "the others stay"));
        assert!(cache.masks() <= MASKS_MAX);
        if n % 100 == 0 {
            let before = cache.statistics();
            let expected: Vec<u32> = frames.iter().map(|(port, frame)| model.handle(*port, frame)).collect();
            assert_eq!(lookup(&mut cache, &frames), expected);
            assert_eq!(lookup(&mut cache, &frames), expected);
            let after = cache.statistics();
            assert!(after.front_hits - before.front_hits >= 200, "the second time the front has them");
        }
    }
}

#[test]
fn a_thrifty_search_leaves_out_masks_that_do_not_pay() {
    let mut cache = Cache::new(1, 10_000);
    cache.set_thrifty(true);
    // The second byte distinguishes them.
    let of =
        |n: u64| pattern(&[&[0xff; 2][..], &(n + 1).to_be_bytes()].concat(), &[&[2, n as u8][..], &[0; 8]].concat());
    let handles: Vec<u32> =
        (0..MASKS_MAX as u64).map(|n| cache.insert(0, &of(n), nothing(), n, drop).expect("there is room")).collect();
    let misses: Vec<_> = (0..64).map(|i| (0, vec![1, i, 0, 0, 0, 0, 0, 0, 0, 0])).collect();
    (0..200).for_each(|_| drop(lookup(&mut cache, &misses)));
    let before = cache.statistics();
    assert!(lookup(&mut cache, &misses).iter().all(|hit| *hit == NONE));
    let probes = cache.statistics().probes - before.probes;
    assert!(probes <= 64 * 5, "{probes} probes for 64 frames, with {} masks", cache.masks());
    // A megaflow of a mask that is left out is found by `find`, then by the front, and by all lookups once it is
    // hit often.
    let frame = |n: u64, rest: u64| [&[2, n as u8][..], &[0; 8], &rest.to_be_bytes()].concat();
    let (some, mut rest) = (40, 0);
    let one = frame(some, 0);
    assert_eq!(cache.find(Frame { buffer: &one, offset: 0, len: one.len(), port: 0 }), handles[some as usize]);
    assert_eq!(lookup(&mut cache, &[(0, one)]), [handles[some as usize]]);
    let mut hits = 0;
    for _ in 0..400 {
        // Different frames each time, so that the front does not have them.
        let frames: Vec<_> = (0..64)
            .map(|_| {
                (
                    0,
                    frame(some, {
                        rest += 1;
                        rest
                    }),
                )
            })
            .collect();
        cache.front.clear();
        let found = lookup(&mut cache, &frames);
        assert!(found.iter().all(|hit| *hit == NONE || *hit == handles[some as usize]));
        hits = found.iter().filter(|hit| **hit != NONE).count();
    }
    assert_eq!(hits, 64, "its mask has come to be searched");
}

#[test]
fn equal_bits_and_many_lengths() {
    let mut cache = Cache::new(5, 10_000);
    let mut model = Model::default();
    for len in 0..300 {
        let pattern = Pattern { shortest: len, longest: len, ..pattern(&[0xff], &[3]) };
        let mut left = Vec::new();
        let handle = cache.insert(0, &pattern, nothing(), len.into(), |p| left.push(p)).expect("right");
        left.into_iter().for_each(|payload| model.forget(payload));
        model.0.push((0, pattern, len.into(), handle));
    }
    assert!(cache.len() >= 50, "a search is bounded, and still there are as many as its buckets hold: {}", cache.len());
    let frames: Vec<_> = (1..300).map(|len| (0, vec![3; len])).collect();
    let expected: Vec<u32> = frames.iter().map(|(port, frame)| model.handle(*port, frame)).collect();
    assert_eq!(lookup(&mut cache, &frames), expected);
}

#[test]
fn an_equal_pattern_is_replaced_and_its_handle_dies() {
    let mut cache = Cache::new(1, 4);
    let first = cache.insert(1, &pattern(&[0xff], &[1]), nothing(), 'a', |_| panic!()).expect("right");
    let mut left = None;
    let second = cache.insert(1, &pattern(&[0xff], &[1]), nothing(), 'b', |p| left = Some(p)).expect("right");
    assert_eq!((left, cache.len()), (Some('a'), 1));
    assert!(cache.get(first).is_none());
    assert_eq!(lookup(&mut cache, &[(1, vec![1, 2]), (2, vec![1, 2])]), [second, NONE]);
    *cache.get_mut(second).expect("there").1 = 'c';
    assert_eq!(cache.remove(second), Some('c'));
}

#[test]
fn a_slot_is_not_used_again_within_a_batch() {
    let mut cache = Cache::new(1, 1);
    let mut handles = Vec::new();
    for i in 0..=255u8 {
        handles.push(cache.insert(0, &pattern(&[0xff], &[i]), nothing(), i, drop).expect("right"));
    }
    let slots: Vec<u32> = handles.iter().map(|h| h & super::SLOT_MASK).collect();
    for (i, slot) in slots.iter().enumerate() {
        assert!(!slots[i + 1..].iter().take(super::QUARANTINE).any(|later| later == slot));
    }
    assert!(cache.slots() <= 2 + super::QUARANTINE, "and yet slots are used again");
    assert!(handles.iter().rev().skip(1).all(|handle| cache.get(*handle).is_none()));
}

#[test]
fn used_megaflows_stay() {
    let mut cache = Cache::new(1, 100);
    let handles: Vec<u32> = (0..30)
        .map(|i| cache.insert(0, &pattern(&[0xff, 0xff], &[1, i]), nothing(), 0, drop).expect("right"))
        .collect();
    let frames: Vec<_> = (0..30).map(|i| (0, vec![1, i])).collect();
    for i in 0..2000u16 {
        // All megaflows in use are used again before the eviction has visited all slots.
        assert_eq!(lookup(&mut cache, &frames), handles);
        let [high, low] = i.to_be_bytes();
        cache
            .insert(0, &pattern(&[0xff, 0xff, 0xff], &[2, high, low]), nothing(), 1, |p| assert_eq!(p, 1))
            .expect("right");
    }
    assert_eq!((cache.len(), cache.statistics().evicted), (100, 1930));
    for _ in 0..10 {
        assert_eq!(lookup(&mut cache, &frames), handles);
        cache.set_limit(90, 1, |p| assert_eq!(p, 1));
    }
    assert_eq!(cache.len(), 90);
    cache.set_limit(0, 1000, drop);
    assert_eq!((cache.limit(), cache.len()), (1, 1));
}

#[test]
fn wrong_patterns_are_refused() {
    let mut cache = Cache::new(1, 4);
    let mut refused = |p: &Pattern, rewrite: &Rewrite| {
        let mut back = None;
        let error =
            cache.insert(0, p, Prepared::new(rewrite).expect("right"), 5, |p| back = Some(p)).expect_err("wrong");
        assert_eq!(back, Some(5));
        error.to_string()
    };
    let rewrite = Rewrite::default();
    let good = pattern(&[0xf0], &[0x30]);
    let head = Rewrite { replaced: 20, head: 20, ..Rewrite::default() };
    assert_eq!(
        refused(&pattern(&[1; 257], &[1; 257]), &rewrite),
        "the pattern has 257 bytes; a megaflow compares the first 256"
    );
    let outside = "byte 0 of the pattern's value is missing, or has bits outside of the mask";
    assert_eq!(refused(&pattern(&[0xf0], &[0x31]), &rewrite), outside);
    assert_eq!(refused(&pattern(&[0xf0], &[]), &rewrite), outside);
    assert_eq!(refused(&pattern(&[], &[1]), &rewrite), outside);
    let lengths = Pattern { shortest: 8, longest: 7, ..good.clone() };
    assert_eq!(refused(&lengths, &rewrite), "the pattern is for frames of 8 to 7 bytes");
    assert_eq!(
        refused(&Pattern { shortest: 19, ..good.clone() }, &head),
        "the rewriting needs 20 bytes; frames of the pattern have 19 at least"
    );
    assert_eq!((cache.len(), cache.masks()), (0, 0));
}

#[test]
fn frames_that_are_not_in_their_buffers_or_very_long() {
    let mut cache = Cache::new(1, 4);
    let short = Pattern { longest: 70_000, ..pattern(&[], &[]) };
    let all = cache.insert(0, &short, nothing(), (), drop).expect("right");
    let buffer = vec![0; 80_000];
    let frame = |offset, len| Frame { buffer: &buffer, offset, len, port: 0 };
    let frames = [
        frame(0, 0),
        frame(80_000, 0),
        frame(80_001, 0),
        frame(0, 80_001),
        frame(usize::MAX, usize::MAX),
        frame(1, 65_534),
        frame(1, 65_535),
        frame(1, 79_999),
    ];
    let mut hits = [0; 8];
    cache.lookup(&frames, &mut hits);
    assert_eq!(hits, [all, all, NONE, NONE, NONE, all, NONE, NONE], "bounded patterns end at 65,534 bytes");
    let long = Pattern { longest: u32::MAX, ..short };
    cache.clear(drop);
    let all = cache.insert(0, &long, nothing(), (), drop).expect("right");
    cache.lookup(&frames, &mut hits);
    assert_eq!(hits, [all, all, NONE, NONE, NONE, all, all, all]);
}

/// The hash of a key, under a mask that has all bits of the first word.
fn of(hash: &Hash, key: u64) -> u64 {
    let row = |word| std::array::from_fn(|k| [if k == 0 { word } else { 0 }, 0]);
    hash.of(0, &Bits::new(&row(u64::MAX)), &row(key))
}

/// The largest number of `keys` that share one of 256 buckets.
fn crowd(hash: &Hash, keys: &[u64]) -> usize {
    let mut counts = [0; 256];
    for key in keys {
        counts[of(hash, *key) as usize & 255] += 1;
    }
    counts.into_iter().max().unwrap_or(0)
}

#[test]
fn what_collides_under_one_seed_does_not_under_another() {
    let (one, other) = (Hash::new(1), Hash::new(2));
    let in_bucket_zero = |key: &u64| of(&one, *key) & 255 == 0;
    let keys: Vec<u64> = (0..).filter(in_bucket_zero).take(4096).collect();
    assert_eq!(crowd(&one, &keys), 4096);
    // 16 on average; 64 would be twelve standard deviations above.
    assert!(crowd(&other, &keys) < 64);
    for shift in [0, 8, 16, 32, 48] {
        let counted: Vec<u64> = (0..4096).map(|i: u64| i << shift).collect();
        assert!(crowd(&one, &counted) < 64, "counters at bit {shift}");
    }
}

#[test]
fn a_table_of_few_hashes_holds_what_its_buckets_can_and_loses_nothing() {
    let mut random = Random::new(8);
    let mut table = Table::new();
    let mut held: Vec<(u64, u32)> = Vec::new();
    for slot in 0..3000 {
        if random.one_in(3) && !held.is_empty() {
            let (hash, slot) = held.swap_remove(random.index(held.len()));
            table.remove(hash, slot);
        } else {
            let hash = (random.below(4) << 20) + random.below(3);
            match table.insert(hash, slot) {
                Ok(()) => held.push((hash, slot)),
                Err(neighbour) => assert!(held.iter().any(|(_, slot)| *slot == neighbour)),
            }
        }
        assert_eq!(table.len(), held.len());
        for (hash, slot) in &held {
            assert_eq!(table.find(*hash, |s| s == *slot), Some(*slot));
            assert!(table.may_have(*hash), "a filter leaves out nothing that is there");
        }
    }
    assert!(held.len() > 50, "{}", held.len());
    for (hash, slot) in held {
        table.remove(hash, slot);
    }
    assert_eq!((table.len(), table.find(0, |_| true)), (0, None));
}

#[test]
fn a_filter_forgets_what_has_left() {
    let mut random = Random::new(9);
    let mut table = Table::new();
    let mut held = std::collections::VecDeque::new();
    for slot in 0..20_000 {
        let hash = random.next_u64();
        table.insert(hash, slot).expect("there is room");
        held.push_back((hash, slot));
        if held.len() > 1000
            && let Some((hash, slot)) = held.pop_front()
        {
            table.remove(hash, slot);
        }
    }
    assert!(held.iter().all(|(hash, _)| table.may_have(*hash)));
    let wrong = (0..10_000).filter(|_| table.may_have(random.next_u64())).count();
    assert!(wrong < 1000, "{wrong} of 10,000 hashes that are not there");
}
