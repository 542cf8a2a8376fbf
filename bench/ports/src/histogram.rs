//! A histogram of times with a relative error of 1/32: 32 linear steps in each power of two (as in HdrHistogram).

/// Steps in a power of two.
const STEPS: u64 = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// Counts of times in ticks.
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// An empty one.
    pub fn new() -> Histogram {
        Histogram { counts: vec![0; (64 - STEP_BITS as usize + 1) * STEPS as usize], total: 0 }
    }

    /// Counts a time.
    #[inline]
    pub fn add(&mut self, ticks: u64) {
        self.counts[bucket(ticks)] += 1;
        self.total += 1;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }

    /// How many times were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The time that a share `part` (0 to 1) of all times does not exceed, at its bucket's lower end.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let wanted = ((self.total as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        self.counts
            .iter()
            .position(|count| {
                seen += count;
                seen >= wanted
            })
            .map(lower_end)
    }
}

fn bucket(ticks: u64) -> usize {
    if ticks < STEPS {
        return ticks as usize;
    }
    let shift = ticks.ilog2() - STEP_BITS;
    ((u64::from(shift) + 1) * STEPS + ((ticks >> shift) - STEPS)) as usize
}

fn lower_end(bucket: usize) -> u64 {
    let (power, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    if power == 0 { step } else { (STEPS + step) << (power - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_lies_in_its_bucket() {
        for ticks in (0..200_000).chain([u64::MAX, 1 << 40, (1 << 40) + 12345]) {
            let low = lower_end(bucket(ticks));
            assert!(low <= ticks && ticks - low <= low / STEPS, "{ticks}: {low}");
        }
    }

    #[test]
    fn quantiles_of_a_thousand_times() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=1000).for_each(|ticks| histogram.add(ticks * 10));
        assert_eq!(histogram.total(), 1000);
        for (part, exact) in [(0.5, 5000.0), (0.99, 9900.0), (1.0, 10_000.0), (0.0, 10.0)] {
            let found = histogram.quantile(part).unwrap() as f64;
            assert!((found - exact).abs() <= exact / 16.0, "{part}: {found}");
        }
        histogram.clear();
        assert_eq!(histogram.quantile(0.5), None);
    }
}
