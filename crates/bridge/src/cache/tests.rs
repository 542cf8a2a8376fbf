use super::*;
use crate::key::Consulted;
use crate::testing::program;
use random::Random;

fn translation(layout: &Layout, words: &[(u32, u64)], length: u32) -> Translation {
    let mut consulted = Consulted::new(layout.words());
    words.iter().for_each(|(word, mask)| consulted.add(*word, *mask));
    Translation {
        effects: Effects::default(),
        consulted,
        length,
        dependences: Vec::new(),
        is_repeatable: true,
        would_learn: false,
        error: None,
    }
}

/// Entries, as a list: (mask, length's mask, record, bytes, start).
type Model = Vec<(u32, Vec<(u32, u64)>, u32, Vec<u64>, u32, u64)>;

/// Whether an entry of the list is a packet's.
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
                    let at = cache.insert(packet, translation(&layout, &words, length), 0, 0, &mut |_| {});
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
    let at = cache.insert(packet(&useful), translation(&layout, &word, 0), 0, 0, &mut |_| {});
    let mut evicted = 0;
    for i in 0..5000 {
        Cache::touch(cache.get_mut(at).expect("it is the most useful one"), 1, 64, i);
        let record = record(i);
        cache.insert(packet(&record), translation(&layout, &word, 0), 0, i, &mut |_| evicted += 1);
        assert!(cache.len() <= *ENTRIES.start());
    }
    assert_eq!(evicted + cache.len(), 5001);
    assert_eq!(cache.lookup(packet(&useful)).map(|hit| hit.entry), Some(at));
    // Masks of two words, all different.
    for i in 0..2 * MASKS_MAX as u64 {
        let record = record(i);
        let words = [(0, 1 << (i % 64)), (1, i / 64 + 1)];
        cache.insert(packet(&record), translation(&layout, &words, 0), 0, i, &mut |_| {});
        assert!(cache.masks() <= MASKS_MAX);
    }
}
