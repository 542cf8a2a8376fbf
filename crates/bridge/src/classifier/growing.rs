//! A hash table that grows in small steps, so that packets do not wait while a large one is rehashed.
//!
//! Extendible hashing (Fagin, Nievergelt, Pippenger and Strong, "Extendible Hashing – A Fast Access Method for
//! Dynamic Files", ACM TODS, 1979): a directory maps bits of the hash to parts (buckets) of at most [`PART_MAX`]
//! keys; a full part is split by one more bit.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Maximum number of keys in a part. Splitting takes as long as 512 insertions: some tens of microseconds under the
/// write lock.
const PART_MAX: usize = 512;
/// Maximum number of directory bits. With many keys of one hash, parts grow instead.
const DEPTH_MAX: u32 = 16;
/// Position of the directory bits in a hash. The parts' own tables use the lowest and the highest bits.
const SHIFT: u32 = 24;

#[derive(Debug)]
struct Part<K, V, S> {
    /// Number of low directory bits that all keys of the part have in common.
    depth: u32,
    map: HashMap<K, V, S>,
}

/// An extendible hash table.
#[derive(Debug)]
pub struct Growing<K, V, S> {
    hasher: S,
    /// Parts by the hash bits from [`SHIFT`] on; the length is a power of two.
    directory: Vec<u32>,
    parts: Vec<Part<K, V, S>>,
}

impl<K: Eq + Hash + Copy, V: Default, S: BuildHasher + Clone + Default> Default for Growing<K, V, S> {
    fn default() -> Self {
        Growing { hasher: S::default(), directory: Vec::new(), parts: Vec::new() }
    }
}

impl<K: Eq + Hash + Copy, V: Default, S: BuildHasher + Clone + Default> Growing<K, V, S> {
    fn bits(&self, key: &K) -> usize {
        (self.hasher.hash_one(key) >> SHIFT) as usize
    }

    fn part(&self, key: &K) -> Option<usize> {
        let mask = self.directory.len().checked_sub(1)?;
        Some(self.directory[self.bits(key) & mask] as usize)
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.parts[self.part(key)?].map.get(key)
    }

    /// The value of a key.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let part = self.part(key)?;
        self.parts[part].map.get_mut(key)
    }

    /// The value of a key, which is inserted with the default if it is absent.
    pub fn entry(&mut self, key: K) -> &mut V {
        let part = match self.part(&key) {
            Some(part) => part,
            None => {
                self.directory.push(0);
                self.parts.push(Part { depth: 0, map: HashMap::with_hasher(self.hasher.clone()) });
                0
            }
        };
        let is_full = self.parts[part].map.len() >= PART_MAX && self.parts[part].depth < DEPTH_MAX;
        if is_full && !self.parts[part].map.contains_key(&key) {
            self.split(part);
            return self.entry(key);
        }
        self.parts[part].map.entry(key).or_default()
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let part = self.part(key)?;
        let map = &mut self.parts[part].map;
        let value = map.remove(key);
        if map.is_empty() {
            map.shrink_to_fit();
        }
        value
    }

    /// All values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.parts.iter().flat_map(|part| part.map.values())
    }

    /// Splits a part by the next bit of its hashes.
    fn split(&mut self, at: usize) {
        let depth = self.parts[at].depth;
        if 1 << depth == self.directory.len() {
            self.directory.extend_from_within(..);
        }
        let hasher = self.hasher.clone();
        let mut map = HashMap::with_hasher(hasher);
        let is_moved = |key: &K| self.hasher.hash_one(key) >> (SHIFT + depth) & 1 == 1;
        map.extend(self.parts[at].map.extract_if(|key, _| is_moved(key)));
        self.parts[at].depth = depth + 1;
        let new = self.parts.len() as u32;
        self.parts.push(Part { depth: depth + 1, map });
        for (i, part) in self.directory.iter_mut().enumerate() {
            if *part as usize == at && i >> depth & 1 == 1 {
                *part = new;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::Random;
    use std::collections::hash_map::RandomState;

    #[test]
    fn it_holds_what_a_map_does_in_small_parts() {
        let mut random = Random::new(3);
        let (mut growing, mut map) = (Growing::<u64, u32, RandomState>::default(), HashMap::<u64, u32>::new());
        for round in 0..200_000 {
            // First the number of keys grows, then it shrinks.
            let key = random.next_u64() % 100_000;
            if random.next_u64() % 10 < if round < 120_000 { 8 } else { 3 } {
                *growing.entry(key) += 1;
                *map.entry(key).or_default() += 1;
            } else {
                assert_eq!(growing.remove(&key), map.remove(&key));
            }
            let other = random.next_u64() % 100_000;
            assert_eq!(growing.get(&other), map.get(&other));
            assert_eq!(growing.get_mut(&other), map.get_mut(&other));
        }
        assert!(growing.parts.iter().all(|part| part.map.len() <= PART_MAX) && growing.parts.len() > 64);
        let (mut ours, mut theirs): (Vec<u32>, Vec<u32>) =
            (growing.values().copied().collect(), map.values().copied().collect());
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours, theirs);
    }
}
