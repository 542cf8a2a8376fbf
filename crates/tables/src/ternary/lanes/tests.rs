//! The portable and the vector version agree with each other and with the hash of one tuple.

use super::{Hasher, LANES, Pass, Portable, Word, hash_one};
use crate::ternary::filter::Filter;
use random::Random;

#[test]
fn all_hash_implementations_agree() {
    let mut random = Random::new(1);
    for words in 1..6 {
        let hasher = Hasher::new(words);
        for round in 0..200 {
            let used: Vec<Word> = (0..words).filter(|_| random.below(3) > 0).map(|i| hasher.word(i)).collect();
            let salts: [u64; LANES] = std::array::from_fn(|_| random.next_u64());
            let mut rows = vec![salts.map(|salt| hasher.first(salt, &used))];
            let mut masks = vec![[0; LANES]; words];
            for word in &used {
                masks[word.position] = std::array::from_fn(|_| if random.below(4) > 0 { random.next_u64() } else { 0 });
                rows.push(masks[word.position]);
            }
            let key: Vec<u64> = (0..words).map(|_| random.next_u64()).collect();
            let expected: [u32; LANES] =
                std::array::from_fn(|i| hasher.hash(salts[i], key.iter().zip(&masks).map(|(k, m)| k & m[i])));
            let there: Vec<u32> =
                (0..round).map(|i| if i < 4 { expected[2 * i] } else { random.next_u64() as u32 }).collect();
            let filter = Filter::new(&there);
            // SAFETY: the key has the words.
            let (passed, hashes) = unsafe { Portable::pass(&used, &rows, key.as_ptr(), &filter) };
            assert_eq!(hashes, expected);
            // SAFETY: as above.
            assert_eq!(std::array::from_fn(|i| unsafe { hash_one(&used, &rows, i, key.as_ptr()) }), expected);
            let expected_to_pass = (0..round.min(4)).fold(0, |bits, i| bits | 1 << (2 * i));
            assert_eq!(passed & expected_to_pass, expected_to_pass, "what is there passes");
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: as above, and the processor has the instructions.
                let also = unsafe { super::Avx2::pass(&used, &rows, key.as_ptr(), &filter) };
                assert_eq!(also, (passed, expected));
            }
        }
    }
}

#[test]
fn a_full_filter_has_few_false_positives() {
    let mut random = Random::new(2);
    let there: Vec<u32> = (0..1000).map(|_| random.next_u64() as u32).collect();
    let filter = Filter::new(&there);
    // The filter has 2048 words, so this wears it.
    (0..1048).for_each(|_| filter.add(random.next_u64() as u32));
    assert!(filter.needs_rebuild() && there.iter().all(|hash| filter.test(*hash)));
    let passed = (0..100_000).filter(|_| filter.test(random.next_u64() as u32)).count();
    assert!(passed < 2000, "{passed} of 100,000");
}

#[test]
fn all_comparison_implementations_agree() {
    let mut random = Random::new(3);
    for _ in 0..500 {
        let words: Vec<usize> = (0..4).filter(|_| random.below(2) == 0).collect();
        let key: [u64; 4] = std::array::from_fn(|_| random.next_u64());
        let entries: Vec<[[u64; LANES]; 2]> = words
            .iter()
            .map(|word| {
                let masks: [u64; LANES] = std::array::from_fn(|_| random.next_u64() & random.next_u64());
                let off = |random: &mut Random| if random.below(4) == 0 { 1 << random.below(64) } else { 0 };
                [masks.map(|mask| (key[*word] ^ off(&mut random)) & mask), masks]
            })
            .collect();
        let accepts = |i: usize| words.iter().zip(&entries).all(|(w, [values, masks])| key[*w] & masks[i] == values[i]);
        let expected = (0..LANES).fold(0, |bits, i| bits | u32::from(accepts(i)) << i);
        // SAFETY: the key has the words.
        assert_eq!(unsafe { Portable::accept(&words, &entries, key.as_ptr()) }, expected);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above, and the processor has the instructions.
            assert_eq!(unsafe { super::Avx2::accept(&words, &entries, key.as_ptr()) }, expected);
        }
    }
}
