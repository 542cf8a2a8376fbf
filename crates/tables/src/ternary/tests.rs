//! The cost of changes, counted; and lookups among more masks than a segment of the list has, after each change.

use super::*;
use crate::ternary::list::{SEGMENT_MAX, SEGMENT_MIN};
use abi::TableHandle;
use base::Bits;
use base::entry::KeyMatch;
use base::entry::MatchKind::{Lpm, Optional, Range, Ternary as Wild};
use random::Random;

/// An engine alone, with made-up addresses of entries.
struct Bed {
    engine: Ternary,
    shape: KeyShape,
    domain: Arc<Domain>,
}

impl Bed {
    fn new(keys: &[(u32, MatchKind)], rule: Rule) -> Bed {
        let shape = KeyShape::new(keys);
        Bed { engine: new(&shape, rule), shape, domain: Domain::new(1) }
    }

    fn packed(&self, key: &[KeyMatch]) -> Vec<u64> {
        let mut packed = vec![0; self.shape.packed_words()];
        assert!(self.shape.pack(key, &mut packed), "the key has the shape");
        packed
    }

    fn change(&mut self, change: impl FnOnce(&mut Ternary, &Writing<'_>)) {
        let writing = Writing { domain: &self.domain, stored: &|_| ptr::null_mut(), old: ptr::null_mut() };
        change(&mut self.engine, &writing);
        self.engine.collect(&self.domain);
    }

    fn insert(&mut self, packed: &[u64], rank: Rank, entry: usize) {
        self.change(|engine, w| engine.insert(w, packed, rank, ptr::without_provenance_mut(entry)));
    }

    fn replace(&mut self, packed: &[u64], rank: Rank, entry: usize) {
        self.change(|engine, w| engine.replace(w, packed, rank, ptr::without_provenance_mut(entry)));
    }

    fn remove(&mut self, packed: &[u64], rank: Rank) {
        self.change(|engine, w| engine.remove(w, packed, rank));
    }

    /// The entries that match keys, one by one and, the same, in a batch; 0 for none.
    fn lookup(&self, keys: &[Vec<u64>]) -> Vec<usize> {
        let handle = TableHandle {
            snapshot: AtomicPtr::new(self.engine.snapshot().cast_mut()),
            default_entry: AtomicPtr::new(ptr::null_mut()),
        };
        let mut found = vec![ptr::null(); keys.len()];
        // SAFETY: the handle is this engine's, the keys have its words.
        let one_by_one: Vec<usize> = unsafe {
            self.engine.lookup_batch()(&handle, keys.concat().as_ptr().cast(), keys.len() as u32, found.as_mut_ptr());
            keys.iter().map(|key| self.engine.lookup()(&handle, key.as_ptr().cast()).addr()).collect()
        };
        assert_eq!(one_by_one, found.iter().map(|entry| entry.addr()).collect::<Vec<_>>());
        one_by_one
    }

    /// Checks that segments have the right lengths and order, and all tuples.
    fn check_segments(&self) {
        // SAFETY: segments of the list are alive.
        let lists: Vec<&TupleList> = self.engine.segments.lists().map(|list| unsafe { &*list }).collect();
        let all: Vec<i32> = lists.iter().flat_map(|list| list.tuples.iter().map(|(priority, _)| *priority)).collect();
        assert!(all.is_sorted_by_key(|priority| std::cmp::Reverse(*priority)), "{all:?}");
        assert_eq!(all.len(), self.engine.tuples.len());
        if lists.len() > 1 {
            assert!(lists.iter().all(|list| (SEGMENT_MIN..=SEGMENT_MAX).contains(&list.tuples.len())));
        }
        let links = lists.iter().map(|list| list.next.load(Ordering::Relaxed));
        assert!(links.eq(self.engine.segments.lists().skip(1).chain([ptr::null_mut()])));
    }
}

fn bits(width: u32, random: &mut Random) -> Bits {
    Bits::from_bytes_be(width, &(0..width.div_ceil(8)).map(|_| random.next_u64() as u8).collect::<Vec<_>>())
}

/// A ternary field with a mask that no other `n` has.
fn masked(width: u32, n: u64, random: &mut Random) -> KeyMatch {
    let own = Bits::new(width, u128::from(n));
    let mask = bits(width, random).shl(20).or(&own);
    KeyMatch::Ternary { value: bits(width, random).and(&mask), mask }
}

/// The work of `count` insertions, changes of the entry and deletions per entry.
fn work(
    keys: &[(u32, MatchKind)],
    rule: Rule,
    count: u64,
    key: &dyn Fn(u64, &mut Random) -> Vec<KeyMatch>,
) -> [u64; 3] {
    let mut random = Random::new(1);
    let mut bed = Bed::new(keys, rule);
    let entries: Vec<(Vec<u64>, Rank)> =
        (0..count).map(|n| (bed.packed(&key(n, &mut random)), (1 + random.below(1000) as i32, n))).collect();
    let mut last = 0;
    let mut since = |bed: &Bed| (bed.engine.work() - std::mem::replace(&mut last, bed.engine.work())) / count;
    entries.iter().for_each(|(packed, rank)| bed.insert(packed, *rank, 8));
    let inserted = since(&bed);
    entries.iter().rev().for_each(|(packed, rank)| bed.replace(packed, *rank, 16));
    let replaced = since(&bed);
    entries.iter().for_each(|(packed, rank)| bed.remove(packed, *rank));
    assert!(bed.engine.tuples.is_empty() && bed.engine.len == 0);
    [inserted, replaced, since(&bed)]
}

/// Entries and tuples that are copied or stepped over for a change, on average.
const WORK_MAX: u64 = 900;

#[test]
fn a_change_costs_the_same_among_many_masks_as_among_few() {
    type Key<'a> = &'a dyn Fn(u64, &mut Random) -> Vec<KeyMatch>;
    type Fields<'a> = &'a [(u32, MatchKind)];
    let range =
        |low: u64, high: u64| KeyMatch::Range { low: Bits::new(16, low.into()), high: Bits::new(16, high.into()) };
    let cases: [(&str, Fields, Rule, Key); 7] = [
        ("masks", &[(48, Wild)], Rule::Priority, &|n, random| vec![masked(48, n, random)]),
        ("masks without bit vectors", &[(128, Wild); 5], Rule::Priority, &|n, random| {
            (0..5).map(|_| masked(128, n, random)).collect()
        }),
        ("ranges with one mask", &[(16, Range)], Rule::Priority, &|n, _| vec![range(n % 30_000, 0x8000 + n % 999)]),
        ("ranges with masks", &[(16, Range), (64, Wild)], Rule::Priority, &|n, random| {
            vec![range(n % 1000, n % 1000 + n % 7), masked(64, n, random)]
        }),
        ("one key", &[(32, Wild)], Rule::Priority, &|_, _| {
            vec![KeyMatch::Ternary { value: Bits::zero(32), mask: Bits::ones(32) }]
        }),
        ("prefixes and optional fields", &[(32, Lpm), (16, Optional), (16, Wild)], Rule::Priority, &|n, random| {
            let (len, mask) = (n % 33, Bits::ones(32).shl(32 - n % 33));
            let value = bits(32, random).and(&mask);
            let optional = (n % 2 == 0).then(|| bits(16, random));
            vec![
                KeyMatch::Lpm { value, prefix_len: len as u32 },
                KeyMatch::Optional(optional),
                masked(16, n / 66, random),
            ]
        }),
        ("long prefixes", &[(256, Lpm)], Rule::PrefixLength, &|n, random| {
            let (len, mask) = (n % 257, Bits::ones(256).shl(256 - n % 257));
            vec![KeyMatch::Lpm { value: bits(256, random).and(&mask), prefix_len: len as u32 }]
        }),
    ];
    for (name, keys, rule, key) in cases {
        let few = work(keys, rule, 2_000, key);
        let many = work(keys, rule, 20_000, key);
        println!("{name}: {few:?} for 2,000, {many:?} for 20,000");
        assert!(few.iter().chain(&many).all(|work| *work <= WORK_MAX), "{name}: {few:?}, {many:?}");
    }
}

/// At the limit of the bit vectors' size a table does not switch back and forth.
#[test]
fn a_table_at_the_limit_of_bit_vectors_is_not_rebuilt_with_every_other_change() {
    let mut random = Random::new(4);
    let mut bed = Bed::new(&[(128, Wild)], Rule::Priority);
    let mut n = 0;
    let mut insert = |bed: &mut Bed| {
        let packed = bed.packed(&[masked(128, n, &mut random)]);
        let rank = (1 + (n % 100) as i32, n);
        n += 1;
        bed.insert(&packed, rank, 8);
        (packed, rank)
    };
    while bed.engine.len < 64 || bed.engine.vectors.is_some() {
        insert(&mut bed);
    }
    let before = bed.engine.work();
    for _ in 0..100 {
        let (packed, rank) = insert(&mut bed);
        bed.remove(&packed, rank);
        let (first, rank) = insert(&mut bed);
        bed.remove(&first, rank);
    }
    let work = (bed.engine.work() - before) / 400;
    assert!(work <= WORK_MAX, "{work}");
}

/// Five fields of 128 bits with masks everywhere, which is more than bit vectors are used for.
#[test]
fn lookups_among_many_segments_equal_a_linear_scan_after_every_change() {
    const WORDS: usize = 10;
    let mut random = Random::new(3);
    let mut bed = Bed::new(&[(128, Wild); 5], Rule::Priority);
    let masks: Vec<Vec<u64>> = (0..900)
        .map(|n| {
            (0..WORDS).map(|word| if (n + word) % 3 == 0 { random.next_u64() | 1 << 63 } else { n as u64 }).collect()
        })
        .collect();
    // Packed key, rank and entry.
    let mut there: Vec<(Vec<u64>, Rank, usize)> = Vec::new();
    let mut segments_max = 0;
    for step in 0..9_000u64 {
        // At first more insertions, at the end only deletions.
        let inserts = step < 3_000 || step < 6_000 && random.below(2) == 0;
        match random.below(8) {
            0 if !there.is_empty() => {
                let at = random.below(there.len() as u64) as usize;
                there[at].2 = 8 * (step as usize + 1);
                let (packed, rank, entry) = &there[at];
                bed.replace(packed, *rank, *entry);
            }
            _ if inserts && there.len() < 1_800 => {
                let mask = &masks[random.below(900) as usize];
                let value = mask.iter().map(|mask| random.next_u64() & mask);
                let packed: Vec<u64> = value.chain(mask.iter().copied()).collect();
                let (rank, entry) = ((1 + random.below(60) as i32, step), 8 * (step as usize + 1));
                bed.insert(&packed, rank, entry);
                there.push((packed, rank, entry));
            }
            _ if !there.is_empty() => {
                let (packed, rank, _) = there.swap_remove(random.below(there.len() as u64) as usize);
                bed.remove(&packed, rank);
            }
            _ => {}
        }
        if step % 64 == 0 {
            bed.check_segments();
        }
        segments_max = segments_max.max(bed.engine.segments.lists().count());
        let keys: Vec<Vec<u64>> = (0..3)
            .map(|_| {
                let any: Vec<u64> = (0..WORDS).map(|_| random.next_u64()).collect();
                let Some((packed, ..)) = there.get(random.below(there.len().max(1) as u64) as usize) else {
                    return any;
                };
                let (value, mask) = packed.split_at(WORDS);
                any.iter().zip(value).zip(mask).map(|((any, value), mask)| value | any & !mask).collect()
            })
            .collect();
        let expected = |key: &Vec<u64>| {
            let matches = |packed: &[u64]| {
                let (value, mask) = packed.split_at(WORDS);
                key.iter().zip(value).zip(mask).all(|((key, value), mask)| key & mask == *value)
            };
            let matching = there.iter().filter(|(packed, ..)| matches(packed));
            matching.max_by_key(|(_, rank, _)| (rank.0, std::cmp::Reverse(rank.1))).map_or(0, |(_, _, entry)| *entry)
        };
        assert_eq!(bed.lookup(&keys), keys.iter().map(expected).collect::<Vec<_>>(), "step {step}");
    }
    while let Some((packed, rank, _)) = there.pop() {
        bed.remove(&packed, rank);
    }
    bed.check_segments();
    assert!(bed.engine.vectors.is_none() && segments_max >= 4, "{segments_max} segments");
}

impl Bed {
    /// Buckets of all tuples, and bytes of the filter.
    fn sizes(&self) -> (usize, usize) {
        // SAFETY: tuples in the map and the filter are alive.
        unsafe {
            let buckets = |writer: &Writer| (*(*writer.tuple).buckets.load(Ordering::Relaxed)).len();
            let filter = &*self.engine.shared.filter.load(Ordering::Relaxed);
            (self.engine.tuples.values().map(buckets).sum(), filter.bytes())
        }
    }

    /// Checks what is counted of masks against the masks.
    fn check_masks(&self) {
        let mut all = vec![0; self.shape.words()];
        self.engine.tuples.keys().for_each(|mask| all.iter_mut().zip(mask).for_each(|(all, mask)| *all |= mask));
        let nibbles = all.iter().map(|word| (0..16).filter(|nibble| word >> (4 * nibble) & 0xf != 0).count()).sum();
        let words = all.iter().filter(|word| **word != 0).count();
        let Masked { nibbles: counted, words: counted_words, .. } = self.engine.masked;
        assert_eq!((counted, counted_words), (nibbles, words));
    }
}

/// Tables that become large and small again, under lookups: buckets and the filter shrink, and nothing is lost meanwhile.
#[test]
fn memory_follows_the_entries_that_are_there_and_lookups_equal_a_linear_scan() {
    // Prefixes of a word, and one mask of whole words; the third is a single value, so its entries form one chain.
    let masks = [[!0 << 40, 0], [!0, !0], [0, 1]];
    let mut random = Random::new(7);
    let mut bed = Bed::new(&[(64, Wild), (64, Wild)], Rule::Priority);
    let mut there: Vec<(Vec<u64>, Rank, usize)> = Vec::new();
    let (mut step, mut work) = (0, 0);
    for (target, last) in [(3_000, false), (40, false), (1_500, false), (9, false), (400, false), (0, true)] {
        while there.len() != target {
            step += 1;
            if there.len() < target {
                // A chain without end is walked by lookups here, so it stays short.
                let mask = masks[if random.below(40) == 0 { 2 } else { random.below(2) as usize }];
                let value = mask.map(|mask: u64| random.next_u64() & mask);
                let packed = [value, mask].concat();
                let (rank, entry) = ((1 + random.below(60) as i32, step), 8 * step as usize);
                bed.insert(&packed, rank, entry);
                there.push((packed, rank, entry));
            } else {
                let (packed, rank, _) = there.swap_remove(random.below(there.len() as u64) as usize);
                bed.remove(&packed, rank);
            }
            if step % 16 != 0 && there.len() > 64 {
                continue;
            }
            let keys: Vec<Vec<u64>> = (0..4)
                .map(|_| match there.get(random.below(there.len().max(1) as u64) as usize) {
                    Some((packed, ..)) => (0..2).map(|i| packed[i] | random.next_u64() & !packed[2 + i]).collect(),
                    None => vec![random.next_u64(), random.next_u64()],
                })
                .collect();
            let expected = |key: &Vec<u64>| {
                let matching = there.iter().filter(|(packed, ..)| (0..2).all(|i| key[i] & packed[2 + i] == packed[i]));
                matching
                    .max_by_key(|(_, rank, _)| (rank.0, std::cmp::Reverse(rank.1)))
                    .map_or(0, |(_, _, entry)| *entry)
            };
            assert_eq!(bed.lookup(&keys), keys.iter().map(expected).collect::<Vec<_>>(), "step {step}");
        }
        bed.check_masks();
        let (buckets, filter) = bed.sizes();
        assert!(buckets <= (SHRINK * target).max(3 * BUCKETS_MIN), "{buckets} buckets for {target} entries");
        assert!(filter <= (4 * SHRINK * target).max(256), "a filter of {filter} bytes for {target} entries");
        let done = bed.engine.work() - std::mem::replace(&mut work, bed.engine.work());
        println!("{target} entries: {buckets} buckets, a filter of {filter} bytes, {done} copied or stepped over");
        assert!(!last || bed.engine.tuples.is_empty() && bed.engine.tuples.capacity() <= SHRINK * BUCKETS_MIN);
    }
}

/// Keys of 80 bytes: masks all over them have more nibbles than bit vectors are made of.
#[test]
fn a_table_uses_bit_vectors_again_once_the_masks_have_gone_that_kept_it_from_them() {
    let mut random = Random::new(9);
    let mut bed = Bed::new(&[(128, Wild); 5], Rule::Priority);
    let any = || KeyMatch::Ternary { value: Bits::zero(128), mask: Bits::zero(128) };
    for n in 0..400 {
        let packed = bed.packed(&[masked(128, n, &mut random), any(), any(), any(), any()]);
        bed.insert(&packed, (1, n), 8);
    }
    assert!(bed.engine.vectors.is_some());
    let wide: Vec<_> = (400..430)
        .map(|n| (bed.packed(&std::array::from_fn::<_, 5, _>(|_| masked(128, n, &mut random))), (2, n)))
        .collect();
    wide.iter().for_each(|(packed, rank)| bed.insert(packed, *rank, 16));
    bed.check_masks();
    assert!(bed.engine.vectors.is_none(), "more nibbles than bit vectors are made of");
    wide.iter().for_each(|(packed, rank)| bed.remove(packed, *rank));
    bed.check_masks();
    assert!(bed.engine.vectors.is_some());
}
