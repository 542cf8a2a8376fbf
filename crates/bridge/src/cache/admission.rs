//! Which packets get a megaflow, and how much time is spent on that.
//!
//! A megaflow takes a translation with notes, an insertion, and maybe a trace (`crate::front`): as long as tens or hundreds of plain
//! translations (`crate::plain`). A packet that never comes again must not cost that much. So what is made for the cache gets one part
//! in [`SHARE`] of the time that packets spend *behind* the front, which is what it can save. Time that is not used is kept up to
//! [`SAVED_MAX`], so that a burst of new flows is learned at once.
//!
//! While less than half of that is left, only packets are learned that have been seen before: a *doorkeeper* (Einziger, Friedman and
//! Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", ACM Transactions on Storage, 2017), two Bloom filters of hashes of what
//! megaflows compare, the older of which is forgotten when the younger one is full.

use std::time::Duration;

/// One part in so many: packets that miss are slowed by an eighth at most.
const SHARE: u32 = 8;
/// Unused time that is kept: some hundred megaflows, or twenty traces.
const SAVED_MAX: Duration = Duration::from_millis(2);
/// Words of a filter: 8 KB.
const WORDS: usize = 1024;
/// Hashes until a filter is full: 2 of 64 bits of a word each, so that 5 % of others seem to be there.
const HASHES_MAX: usize = 8192;

/// Who has been seen, and time.
#[derive(Debug)]
pub struct Admission {
    young: Box<[u64]>,
    old: Box<[u64]>,
    hashes: usize,
    /// May be overdrawn by what was done last.
    left_ns: i64,
}

impl Default for Admission {
    fn default() -> Admission {
        let filter = || vec![0; WORDS].into_boxed_slice();
        Admission { young: filter(), old: filter(), hashes: 0, left_ns: SAVED_MAX.as_nanos() as i64 }
    }
}

impl Admission {
    /// Packets behind the front have taken so long.
    pub fn earn(&mut self, time: Duration) {
        let earned = (time / SHARE).as_nanos() as i64;
        self.left_ns = (self.left_ns + earned).min(SAVED_MAX.as_nanos() as i64);
    }

    /// So much of that was for the cache.
    pub fn spend(&mut self, time: Duration) {
        // A worker that was interrupted meanwhile owes no more than it could have saved.
        let saved_max = SAVED_MAX.as_nanos() as i64;
        self.left_ns = (self.left_ns - time.as_nanos() as i64).max(-saved_max);
    }

    /// Whether there is time for anything.
    pub fn has_time(&self) -> bool {
        self.left_ns > 0
    }

    /// Whether a packet of this hash is to get a megaflow; it has been seen then.
    pub fn admits(&mut self, hash: u64) -> bool {
        let was_seen = self.see(hash);
        self.has_time() && (was_seen || self.left_ns > SAVED_MAX.as_nanos() as i64 / 2)
    }

    /// Notes a hash; whether it was noted before.
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
