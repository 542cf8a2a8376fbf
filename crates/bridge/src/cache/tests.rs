use super::*;
use crate::key::Consulted;
use crate::testing::program;
use random::Random;

fn translation(layout: &Layout, words: &[(u32, u64)], length: u32) -> Translation {
    let mut consulted = Consulted::new(layout.words());
    words.iter().for_each(|(word, mask)| consulted.add(*word, *mask));
    Translation {
        work: 0,
        is_too_much: false,
        effects: Effects::default(),
        consulted: consulted.sorted(),
        length,
        dependences: Box::default(),
        is_repeatable: true,
        would_learn: false,
        finds_flows: false,
        written: Words::default(),
        error: None,
    }
}

/// Entries, as a list: (mask, length's mask, record, bytes, start).
type Model = Vec<(u32, Vec<(u32, u64)>, u32, Vec<u64>, u32, u64)>;

/// Whether an entry of the list matches a packet.
fn is_right(model: &Model, at: u32, packet: Packet<'_>) -> bool {
    model.iter().any(|(slot, words, length, record, bytes, start)| {
        *slot == at
            && *start == packet.start
            && (bytes ^ packet.bytes) & length == 0
            && words.iter().all(|(word, mask)| (record[*word as usize] ^ packet.record[*word as usize]) & mask == 0)
    })
}

#[test]
fn lookups_agree_with_a_list_after_every_change() {
    let layout = Layout::new(&program()).unwrap();
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut cache = Cache::new(&layout);
        let mut model: Model = Vec::new();
        let masks: Vec<(Vec<(u32, u64)>, u32)> = (0..8)
            .map(|_| {
                let mut words: Vec<(u32, u64)> =
                    (0..random.range(0, 3)).map(|_| (random.range(0, 5), 1 << random.below(3))).collect();
                words.sort_unstable();
                words.dedup_by_key(|(word, _)| *word);
                (words, if random.one_in(3) { 0xf0 } else { 0 })
            })
            .collect();
        for step in 0..400 {
            let record: Vec<u64> = (0..layout.words()).map(|_| random.below(8)).collect();
            let packet = Packet { record: &record, bytes: random.range(0, 40), start: random.below(2) };
            match cache.lookup(packet) {
                Some(hit) => assert!(is_right(&model, hit.entry, packet), "seed {seed}, step {step}"),
                None => {
                    assert!(!model.iter().any(|entry| is_right(&model, entry.0, packet)), "seed {seed}, step {step}");
                    let (words, length) = random.pick(&masks).clone();
                    let at = cache.insert(
                        packet,
                        translation(&layout, &words, length),
                        Generation::default(),
                        0,
                        &mut |_| {},
                    );
                    model.push((at, words, length, record.clone(), packet.bytes, packet.start));
                }
            }
            if random.one_in(5) && !model.is_empty() {
                let gone = model.swap_remove(random.index(model.len()));
                assert!(cache.remove(gone.0).is_some() && cache.remove(gone.0).is_none());
            }
            assert_eq!(cache.len(), model.len());
        }
        let mut gone = 0;
        cache.clear(&mut |_| gone += 1);
        assert_eq!((gone, cache.len(), cache.masks()), (model.len(), 0, 0));
    }
}

#[test]
fn entries_and_masks_are_bounded_and_useful_ones_stay() {
    let layout = Layout::new(&program()).unwrap();
    let mut cache = Cache::new(&layout);
    cache.adapt(2_000_000);
    while cache.limit() > *ENTRIES.start() {
        cache.adapt(2_000_000);
    }
    let record = |i: u64| {
        let mut record = vec![0; layout.words()];
        record[0] = i;
        record
    };
    let useful = record(1 << 40);
    fn packet(record: &[u64]) -> Packet<'_> {
        Packet { record, bytes: 0, start: 0 }
    }
    let word = [(0, u64::MAX)];
    let at = cache.insert(packet(&useful), translation(&layout, &word, 0), Generation::default(), 0, &mut |_| {});
    let mut evicted = 0;
    for i in 0..5000 {
        cache.touch(at, 1, 64, i);
        let record = record(i);
        cache.insert(packet(&record), translation(&layout, &word, 0), Generation::default(), i, &mut |_| evicted += 1);
        assert!(cache.len() <= *ENTRIES.start());
    }
    assert_eq!(evicted + cache.len(), 5001);
    assert_eq!(cache.lookup(packet(&useful)).map(|hit| hit.entry), Some(at));
    // Masks of two words, all distinct.
    for i in 0..2 * MASKS_MAX as u64 {
        let record = record(i);
        let words = [(0, 1 << (i % 64)), (1, i / 64 + 1)];
        cache.insert(packet(&record), translation(&layout, &words, 0), Generation::default(), i, &mut |_| {});
        assert!(cache.masks() <= MASKS_MAX);
    }
}

#[test]
fn masks_that_do_not_pay_are_left_out_and_come_back_when_they_do() {
    let layout = Layout::new(&program()).unwrap();
    let mut cache = Cache::new(&layout);
    cache.set_gain(20);
    let record = |values: [u64; 2]| {
        let mut record = vec![0; layout.words()];
        record[..2].copy_from_slice(&values);
        record
    };
    // 200 masks, with one megaflow each.
    let of = |i: u64| record([1 << (i % 50), i / 50 + 1]);
    for i in 0..200 {
        let words = [(0, 1 << (i % 50)), (1, i / 50 + 1)];
        let (record, made) = (of(i), translation(&layout, &words, 0));
        cache.insert(Packet { record: &record, bytes: 0, start: 0 }, made, Generation::default(), 0, &mut |_| {});
    }
    let mut random = Random::new(2);
    let mut look = |cache: &mut Cache, i: u64| {
        let mut record = of(i);
        // No mask has this bit, so packets of a megaflow differ only in bits that are not compared.
        record[2] = random.next_u64();
        cache.lookup(Packet { record: &record, bytes: 0, start: 0 }).is_some()
    };
    let nothing = record([1 << 60, 1 << 60]);
    for i in 0..3 * SORT_INTERVAL {
        assert!(cache.lookup(Packet { record: &nothing, bytes: i as u32, start: 1 + i }).is_none());
    }
    assert_eq!(cache.searched, SEARCHED_MIN, "nothing is ever found");
    let found = (0..200).filter(|i| look(&mut cache, *i)).count();
    assert!(found <= 200);
    cache.front.fill((0, NONE));
    let missed = Packet { record: &of(150), bytes: 0, start: 0 };
    assert!(cache.search_others(missed).is_some() && cache.lookup(missed).is_some_and(|hit| hit.is_exact));
    // From here on all packets hit megaflows of one mask.
    for i in 0..4 * SORT_INTERVAL {
        cache.front.fill((0, NONE));
        look(&mut cache, if i % 2 == 0 { 150 } else { 199 });
    }
    cache.front.fill((0, NONE));
    assert!((0..100).all(|_| look(&mut cache, 150) && look(&mut cache, 199)), "both masks are among the first");
}
