//! Shares masks between megaflows.
//!
//! Each further mask costs lookups a probe. Once there are [`MASKS_MAX`], a path gets an existing mask that covers
//! its bits, or a new one that covers the bits of all. A megaflow with a wider mask matches fewer frames but is just
//! as correct.

use flowcache::path::Pattern;

/// Most masks before they are shared.
const MASKS_MAX: usize = 16;

/// A mask and its use count, which decays by halving.
struct Used {
    mask: Box<[u8]>,
    count: u64,
}

/// The masks of all workers' megaflows.
#[derive(Default)]
pub(super) struct Masks {
    all: Vec<Used>,
}

impl Masks {
    /// Widens the pattern of a frame with the first bytes `head` to a shared mask.
    pub(super) fn share(&mut self, pattern: &mut Pattern, head: &[u8]) {
        let wanted = self.mask_for(&pattern.mask);
        if *wanted != *pattern.mask {
            let value = wanted.iter().enumerate().map(|(i, bits)| head.get(i).unwrap_or(&0) & bits);
            pattern.value = value.collect();
            pattern.mask = wanted;
        }
    }

    fn mask_for(&mut self, mask: &[u8]) -> Box<[u8]> {
        if let Some(same) = self.all.iter_mut().find(|used| *used.mask == *mask) {
            same.count += 1;
            return same.mask.clone();
        }
        if self.all.len() < MASKS_MAX {
            self.all.push(Used { mask: mask.into(), count: 1 });
            return mask.into();
        }
        let covering = self.all.iter_mut().filter(|used| covers(&used.mask, mask));
        if let Some(least) = covering.min_by_key(|used| ones(&used.mask)) {
            least.count += 1;
            return least.mask.clone();
        }
        let all = self.all.iter().fold(Vec::from(mask), |all, used| union(all, &used.mask));
        // The least used mask is dropped, so that it is not part of the next union.
        if let Some(least) = (0..self.all.len()).min_by_key(|i| self.all[*i].count) {
            self.all.swap_remove(least);
        }
        self.all.iter_mut().for_each(|used| used.count /= 2);
        self.all.push(Used { mask: all.clone().into(), count: 1 });
        all.into()
    }
}

fn covers(mask: &[u8], other: &[u8]) -> bool {
    other.iter().enumerate().all(|(i, bits)| bits & !mask.get(i).unwrap_or(&0) == 0)
}

fn ones(mask: &[u8]) -> u32 {
    mask.iter().map(|bits| bits.count_ones()).sum()
}

fn union(mut all: Vec<u8>, mask: &[u8]) -> Vec<u8> {
    all.resize(all.len().max(mask.len()), 0);
    all.iter_mut().zip(mask).for_each(|(all, bits)| *all |= bits);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_masks_become_few_that_have_their_bits() {
        let mut random = random::Random::new(5);
        let mut masks = Masks::default();
        let mut seen = std::collections::BTreeSet::new();
        for i in 0..2000 {
            let mut mask: Vec<u8> =
                (0..random.range(1, 40)).map(|_| random.next_u64() as u8 & random.next_u64() as u8).collect();
            *mask.last_mut().expect("not empty") |= 1;
            let head: Vec<u8> = (0..64).map(|_| random.next_u64() as u8).collect();
            let value = mask.iter().zip(&head).map(|(bits, byte)| bits & byte).collect();
            let before = mask.clone();
            let mut pattern = Pattern { mask: mask.into(), value, shortest: 0, longest: 100 };
            masks.share(&mut pattern, &head);
            assert!(covers(&pattern.mask, &before));
            assert_eq!(pattern.mask.len(), pattern.value.len());
            assert_ne!(pattern.mask.last(), Some(&0));
            assert!((0..pattern.mask.len()).all(|i| head[i] & pattern.mask[i] == pattern.value[i]));
            if i >= 1000 {
                seen.insert(pattern.mask);
            }
        }
        assert!(seen.len() <= MASKS_MAX, "{}", seen.len());
    }
}
