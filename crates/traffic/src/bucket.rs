//! A token bucket without rounding errors.
//!
//! Tokens are counted in units of which a nanosecond adds an integer number: billionths of a bit for a rate in
//! bit/s, billionths of a packet for a rate in packets/s. So no credit is lost, whatever the rate, the packet
//! sizes and the times of calls; the long-run rate is exact as long as the bucket does not overflow. A burst
//! of 1 GB is 8·10^18 units, within 63 bits.
//!
//! A packet larger than the burst is sent when the bucket is full, and leaves a debt: it neither waits forever nor
//! exceeds the rate. Time must not run backwards; `clock.rs` ensures this. Tests: `tests/shaping.rs` and below.

/// Units per bit, or per packet.
pub const UNITS: i64 = 1_000_000_000;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Units added per nanosecond; at least 1.
    rate: i64,
    /// Capacity in units.
    burst: i64,
    /// Current units; a negative value is a debt.
    tokens: i64,
    /// Time of `tokens`, in nanoseconds.
    filled_at: u64,
}

/// Converts bytes to units.
pub fn bytes(bytes: u64) -> i64 {
    (bytes.min(1 << 30) * 8) as i64 * UNITS
}

impl Bucket {
    /// A full bucket. `rate` is in bits or packets per second, `burst` in [`UNITS`] of these, `now` in nanoseconds.
    pub fn full(rate: u64, burst: i64, now: u64) -> Bucket {
        let rate = i64::try_from(rate).unwrap_or(i64::MAX).max(1);
        Bucket { rate, burst: burst.max(1), tokens: burst.max(1), filled_at: now }
    }

    /// Adds the tokens since the last call. A full bucket may hold up to one nanosecond's tokens
    /// above the burst: a packet as large as the burst leaves at a whole nanosecond, and the rest of
    /// that nanosecond counts for the next packet.
    pub fn fill(&mut self, now: u64) {
        let elapsed = i64::try_from(now.saturating_sub(self.filled_at)).unwrap_or(i64::MAX);
        self.filled_at = self.filled_at.max(now);
        let room = self.burst.saturating_add(self.rate - 1).saturating_sub(self.tokens);
        self.tokens = self.tokens.saturating_add(elapsed.saturating_mul(self.rate).min(room));
    }

    /// Whether an item of this cost may be sent. Call [`Bucket::fill`] first.
    pub fn fits(&self, cost: i64) -> bool {
        self.tokens >= cost.min(self.burst)
    }

    /// Time at which an item of this cost may be sent; later than the last [`Bucket::fill`] unless it fits now.
    pub fn fits_at(&self, cost: i64) -> u64 {
        self.reaches_at(cost.min(self.burst))
    }

    /// Time at which the bucket will hold this many units.
    pub fn reaches_at(&self, tokens: i64) -> u64 {
        let missing = tokens.saturating_sub(self.tokens).max(0) as u64;
        self.filled_at.saturating_add(missing.div_ceil(self.rate as u64))
    }

    /// Removes this many units, into debt if necessary.
    pub fn spend(&mut self, cost: i64) {
        self.tokens = self.tokens.saturating_sub(cost);
    }

    /// Like [`Bucket::spend`], but the debt does not grow beyond the larger of burst and cost.
    pub fn spend_bounded(&mut self, cost: i64) {
        let lowest = self.tokens.min(-self.burst.max(cost));
        self.tokens = self.tokens.saturating_sub(cost).max(lowest);
    }

    /// Current units.
    pub fn tokens(&self) -> i64 {
        self.tokens
    }

    /// Takes over the tokens of an old bucket, up to this bucket's burst, so
    /// that a change of the rate grants no credit.
    pub fn inherit(&mut self, old: &Bucket) {
        let mut old = *old;
        old.fill(self.filled_at);
        self.tokens = old.tokens.min(self.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_loses_credit() {
        // Filled at random times over 10 ms: the sum equals that of one call.
        let mut random = random::Random::new(1);
        for rate in [1u64, 7, 10_000, 333_333_333, 400_000_000_000] {
            let mut bucket = Bucket::full(rate, bytes(1_000_000_000), 0);
            bucket.spend(bytes(1_000_000_000));
            let mut now = 0;
            while now < 10_000_000 {
                now = (now + 1 + random.below(10_000)).min(10_000_000);
                bucket.fill(now);
            }
            assert_eq!(bucket.tokens(), 10_000_000 * rate as i64);
        }
    }

    #[test]
    fn it_is_never_above_its_burst_nor_early() {
        let mut bucket = Bucket::full(8_000_000_000, bytes(1000), u64::MAX - 5);
        bucket.fill(u64::MAX);
        assert!((bytes(1000)..bytes(1001)).contains(&bucket.tokens()));
        bucket.fill(0);
        assert!((bytes(1000)..bytes(1001)).contains(&bucket.tokens()));
        let mut bucket = Bucket::full(8_000_000_000, bytes(1000), 0);
        bucket.spend(bytes(1000));
        // The rate is one byte per nanosecond.
        assert!(!bucket.fits(bytes(60)));
        assert_eq!(bucket.fits_at(bytes(60)), 60);
        bucket.fill(59);
        assert!(!bucket.fits(bytes(60)));
        bucket.fill(60);
        assert!(bucket.fits(bytes(60)));
        // Larger than the burst: sent once the bucket is full, with a debt.
        assert_eq!(bucket.fits_at(bytes(5000)), 1000);
        bucket.fill(1000);
        assert!(bucket.fits(bytes(5000)));
        bucket.spend(bytes(5000));
        assert_eq!(bucket.tokens(), bytes(1000) - bytes(5000));
        assert_eq!(bucket.fits_at(bytes(60)), 1000 + 4060);
    }
}
