//! Cache admission: which missed packets get a megaflow, and how much time may be spent on that.
//!
//! Making a megaflow takes a translation with bookkeeping, an insertion, and maybe a trace (`crate::front`): as
//! long as tens or hundreds of plain translations (`crate::plain`). A packet that never comes again must not cost
//! that much. Time for filling the caches is therefore limited to one part in [`SHARE`] of the time that packets
//! spend *after* a frame-cache miss, which is what the caches can save. Unused time is saved up to [`SAVED_MAX`],
//! so that a burst of new flows is learned at once.
//!
//! While less than half of that is left, only packets that have been seen before are admitted. The *doorkeeper*
//! (Einziger, Friedman and Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", ACM Transactions on
//! Storage, 2017) is two Bloom filters of hashes over the bits that megaflows compare. When the younger one is
//! full, it replaces the older one.

use std::time::Duration;

/// One part in this number: packets that miss are slowed by at most an eighth.
const SHARE: u32 = 8;
/// Maximum unused time that is saved: some hundred megaflows, or twenty traces.
const SAVED_MAX: Duration = Duration::from_millis(2);
/// Words of a filter (8 KB).
const WORDS: usize = 1024;
/// Hashes until a filter is full. Each sets 2 of the 64 bits of a word, so that 5 % of other hashes are false
/// positives.
const HASHES_MAX: usize = 8192;

/// The doorkeeper and the time account of a worker.
#[derive(Debug)]
pub struct Admission {
    young: Box<[u64]>,
    old: Box<[u64]>,
    hashes: usize,
    /// Remaining time, in ns. The last piece of work may overdraw it.
    left_ns: i64,
}

impl Default for Admission {
    fn default() -> Admission {
        let filter = || vec![0; WORDS].into_boxed_slice();
        Admission { young: filter(), old: filter(), hashes: 0, left_ns: SAVED_MAX.as_nanos() as i64 }
    }
}

impl Admission {
    /// Credits a share of the time that packets took after a frame-cache miss.
    pub fn earn(&mut self, time: Duration) {
        let earned = (time / SHARE).as_nanos() as i64;
        self.left_ns = (self.left_ns + earned).min(SAVED_MAX.as_nanos() as i64);
    }

    /// Debits time spent on filling the caches.
    pub fn spend(&mut self, time: Duration) {
        // A worker that was interrupted meanwhile owes no more than it could have saved.
        let saved_max = SAVED_MAX.as_nanos() as i64;
        self.left_ns = (self.left_ns - time.as_nanos() as i64).max(-saved_max);
    }

    /// Whether any time is left.
    pub fn has_time(&self) -> bool {
        self.left_ns > 0
    }

    /// Whether a packet with this hash may get a megaflow. Records the hash as seen.
    pub fn admits(&mut self, hash: u64) -> bool {
        let was_seen = self.see(hash);
        self.has_time() && (was_seen || self.left_ns > SAVED_MAX.as_nanos() as i64 / 2)
    }

    /// Records a hash. Returns whether it was recorded before.
    fn see(&mut self, hash: u64) -> bool {
        let word = (hash >> 16) as usize % WORDS;
        let bits = 1 << (hash >> 58) | 1 << (hash >> 52 & 63);
        if self.young[word] & bits == bits {
            return true;
        }
        if self.hashes >= HASHES_MAX {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.fill(0);
            self.hashes = 0;
        }
        self.hashes += 1;
        self.young[word] |= bits;
        self.old[word] & bits == bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::Random;

    const FIRST: u64 = 0x1234_5678_9abc_def0;
    const SECOND: u64 = 0x9e37_79b9_7f4a_7c15;
    const THIRD: u64 = 0xc2b2_ae3d_27d4_eb4f;

    #[test]
    fn time_is_bounded_and_kept() {
        let mut admission = Admission::default();
        assert!(admission.admits(FIRST), "there is time at first");
        admission.spend(SAVED_MAX / 4 * 3);
        assert!(!admission.admits(SECOND), "not for what is new");
        assert!(admission.admits(SECOND) && admission.admits(FIRST), "but for what has been seen");
        admission.spend(SAVED_MAX);
        assert!(!admission.admits(FIRST));
        admission.earn(SAVED_MAX * SHARE * 7 / 4);
        assert!(admission.admits(THIRD), "all that was used has been earned");
        admission.earn(SAVED_MAX * SHARE * 9);
        admission.spend(SAVED_MAX);
        assert!(!admission.has_time(), "no more is kept than that");
    }

    #[test]
    fn what_comes_once_is_not_learned_and_what_comes_twice_is() {
        let (mut admission, mut random) = (Admission::default(), Random::new(3));
        admission.spend(SAVED_MAX / 4 * 3);
        let others = (0..100_000).filter(|_| admission.admits(random.next_u64())).count();
        assert!(others < 10_000, "{others} of 100,000 hashes seem to be there");
        let hashes: Vec<u64> = (0..4000).map(|_| random.next_u64()).collect();
        hashes.iter().for_each(|hash| _ = admission.admits(*hash));
        assert!(hashes.iter().all(|hash| admission.admits(*hash)));
        (0..HASHES_MAX * 3).for_each(|_| _ = admission.admits(random.next_u64()));
        let known = hashes.iter().filter(|hash| admission.admits(**hash)).count();
        assert!(known < 800, "{known} of 4,000 are still there");
    }
}
