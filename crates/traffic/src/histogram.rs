//! A histogram of durations with constant memory and bounded relative error.
//!
//! It has eight buckets per power of two, as in HdrHistogram: a quantile is never below the true one, and at most one
//! eighth above. Durations from 2^44 ns (almost five hours) on are counted as that. Tests below.

/// Bits of a value that select a bucket within its power of two.
const SUB_BITS: u32 = 3;
const SUBS: usize = 1 << SUB_BITS;
/// Number of distinguished powers of two.
const BITS: u32 = 44;
const BUCKETS: usize = (BITS - SUB_BITS + 1) as usize * SUBS;

/// A histogram of durations in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    total: u64,
    sum: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: Box::new([0; BUCKETS]), total: 0, sum: 0, max: 0 }
    }
}

fn bucket(value: u64) -> usize {
    let value = value.min((1 << BITS) - 1);
    if value < SUBS as u64 {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    ((shift + 1) as usize) * SUBS + (value >> shift) as usize - SUBS
}

/// The largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < SUBS {
        return bucket as u64;
    }
    let shift = (bucket / SUBS - 1) as u32;
    (((bucket % SUBS + SUBS + 1) as u64) << shift) - 1
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.sum = self.sum.saturating_add(ns);
        self.max = self.max.max(ns);
    }

    /// Number of counted durations.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Sum of all durations, in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum
    }

    /// The longest duration, in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.max
    }

    /// The `q`-quantile in nanoseconds: an upper bound for the fraction `q` of all durations. 0 if nothing was counted.
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = ((q.clamp(0.0, 1.0) * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return if bucket == BUCKETS - 1 { self.max } else { upper(bucket).min(self.max) };
            }
        }
        0
    }

    /// The nonempty buckets, shortest durations first: the longest duration of
    /// the bucket in nanoseconds, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(bucket, count)| (upper(bucket), *count))
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(other.counts.iter()).for_each(|(a, b)| *a += b);
        self.total += other.total;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Removes all counts.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.total, self.sum, self.max) = (0, 0, 0);
    }

    /// The counts since `earlier`, an older copy of this histogram. Their maximum is only an upper bound.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let counts = Box::new(std::array::from_fn(|i| self.counts[i].saturating_sub(earlier.counts[i])));
        let total = self.total.saturating_sub(earlier.total);
        Histogram { counts, total, sum: self.sum.saturating_sub(earlier.sum), max: self.max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_all_values_in_order() {
        let mut last = 0;
        for value in 0..100_000u64 {
            let bucket = bucket(value);
            assert!(bucket == last || bucket == last + 1, "{value}");
            assert!(upper(bucket) >= value && (bucket == 0 || upper(bucket - 1) < value), "{value}");
            last = bucket;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(upper(BUCKETS - 1), (1 << BITS) - 1);
    }

    #[test]
    fn quantiles_are_one_eighth_too_high_at_most() {
        let mut random = random::Random::new(3);
        let mut histogram = Histogram::default();
        let mut values: Vec<u64> = (0..10_000).map(|_| random.next_u64() >> (20 + random.below(44))).collect();
        values.iter().for_each(|v| histogram.record(*v));
        values.sort_unstable();
        for q in [0.0, 0.1, 0.5, 0.9, 0.99, 1.0] {
            let rank = ((q * 10_000.0) as usize).max(1);
            let (exact, estimate) = (values[rank - 1], histogram.quantile(q));
            assert!(estimate >= exact && estimate <= exact + exact / 8, "{q}: {exact} {estimate}");
        }
        assert_eq!(histogram.max_ns(), *values.last().unwrap());
        assert_eq!(Histogram::default().quantile(0.5), 0);
        let counted: Vec<(u64, u64)> = histogram.buckets().collect();
        assert!(counted.is_sorted_by_key(|(up_to, _)| *up_to) && counted.iter().all(|(_, count)| *count > 0));
        assert_eq!(counted.iter().map(|(_, count)| count).sum::<u64>(), histogram.count());
        let earlier = histogram.clone();
        histogram.record(7);
        assert_eq!(histogram.since(&earlier).quantile(0.99), 7);
        histogram.record(u64::MAX);
        assert_eq!(histogram.quantile(1.0), u64::MAX);
    }
}
