//! A meter cell: two token buckets (RFC 2698 and RFC 2697), and counters for each colour. [`MeterConfig`] defines the
//! algorithm. The fast path has an implementation of its own, which is compared with this one.
//!
//! Tests: at the end of the file.

use base::entry::{CounterValue, MeterConfig};

/// The colour that a meter gives to a packet; the numbers are those that programs see.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Colour {
    /// Within the committed rate.
    Green = 0,
    /// Within the peak rate.
    Yellow = 1,
    /// Above the peak rate.
    Red = 2,
}

/// Buckets count millionths of a unit: what one unit per second adds in a microsecond.
const SCALE: u128 = 1_000_000;

/// A meter cell; without a configuration every packet is green.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterCell {
    config: Option<MeterConfig>,
    committed: u128,
    /// The peak or excess bucket.
    peak: u128,
    last_us: u64,
    /// By colour.
    counts: [CounterValue; 3],
}

impl MeterCell {
    /// A cell with full buckets.
    pub fn new(config: Option<MeterConfig>) -> MeterCell {
        let full = |burst: Option<u64>| u128::from(burst.unwrap_or(0)) * SCALE;
        MeterCell {
            config,
            committed: full(config.map(|c| c.cburst)),
            peak: full(config.map(|c| if c.eburst > 0 { c.eburst } else { c.pburst })),
            last_us: 0,
            counts: [CounterValue::default(); 3],
        }
    }

    /// Sets another configuration: the buckets are full, the counters stay.
    pub fn configure(&mut self, config: Option<MeterConfig>) {
        *self = MeterCell { counts: self.counts, ..MeterCell::new(config) };
    }

    /// Packets and bytes by colour.
    pub fn counts(&self) -> [CounterValue; 3] {
        self.counts
    }

    /// Resets the counters to zero.
    pub fn reset_counts(&mut self) {
        self.counts = Default::default();
    }

    /// The configuration.
    pub fn config(&self) -> Option<MeterConfig> {
        self.config
    }

    /// Meters a packet of `bytes` bytes that takes `units` units from the buckets; `before` is its colour so far (green
    /// for a colour-blind meter). Returns its colour and counts it.
    pub fn execute(&mut self, units: u64, bytes: u64, before: Colour, now_us: u64) -> Colour {
        let colour = self.colour(units, before, now_us);
        let counted = &mut self.counts[colour as usize];
        counted.packets = counted.packets.wrapping_add(1);
        counted.bytes = counted.bytes.wrapping_add(bytes);
        colour
    }

    fn colour(&mut self, units: u64, before: Colour, now_us: u64) -> Colour {
        let Some(config) = self.config else { return Colour::Green };
        let elapsed = u128::from(now_us.saturating_sub(self.last_us));
        self.last_us = self.last_us.max(now_us);
        let fill =
            |level: u128, rate: u64, burst: u64| (u128::from(burst) * SCALE).min(level + elapsed * u128::from(rate));
        if config.eburst > 0 {
            return self.single_rate(config, units, before, elapsed);
        }
        self.committed = fill(self.committed, config.cir, config.cburst);
        self.peak = fill(self.peak, config.pir, config.pburst);
        let need = u128::from(units) * SCALE;
        if before == Colour::Red || self.peak < need {
            return Colour::Red;
        }
        self.peak -= need;
        if before == Colour::Yellow || self.committed < need {
            return Colour::Yellow;
        }
        self.committed -= need;
        Colour::Green
    }

    /// The single rate three color marker, RFC 2697.
    fn single_rate(&mut self, config: MeterConfig, units: u64, before: Colour, elapsed: u128) -> Colour {
        let filled = self.committed + elapsed * u128::from(config.cir);
        self.committed = filled.min(u128::from(config.cburst) * SCALE);
        self.peak = (u128::from(config.eburst) * SCALE).min(self.peak + (filled - self.committed));
        let need = u128::from(units) * SCALE;
        if before == Colour::Green && self.committed >= need {
            self.committed -= need;
            Colour::Green
        } else if before <= Colour::Yellow && self.peak >= need {
            self.peak -= need;
            Colour::Yellow
        } else {
            Colour::Red
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: MeterConfig = MeterConfig { cir: 100, cburst: 2, pir: 200, pburst: 3, eburst: 0 };

    #[test]
    fn bursts_run_green_then_yellow_then_red() {
        let mut cell = MeterCell::new(Some(CONFIG));
        let colours: Vec<Colour> = (0..5).map(|_| cell.execute(1, 64, Colour::Green, 1000)).collect();
        assert_eq!(colours, [Colour::Green, Colour::Green, Colour::Yellow, Colour::Red, Colour::Red]);
    }

    #[test]
    fn buckets_fill_at_their_rates_and_not_above_their_bursts() {
        let mut cell = MeterCell::new(Some(CONFIG));
        (0..3).for_each(|_| {
            cell.execute(1, 64, Colour::Green, 0);
        });
        // In 5 ms the peak bucket gains one unit, and the committed bucket half a unit.
        assert_eq!(cell.execute(1, 64, Colour::Green, 4_999), Colour::Red);
        assert_eq!(cell.execute(1, 64, Colour::Green, 5_000), Colour::Yellow);
        assert_eq!(cell.execute(1, 64, Colour::Green, 10_000), Colour::Green);
        // After a long pause the buckets are full.
        let colours: Vec<Colour> = (0..4).map(|_| cell.execute(1, 64, Colour::Green, 1 << 40)).collect();
        assert_eq!(colours, [Colour::Green, Colour::Green, Colour::Yellow, Colour::Red]);
    }

    #[test]
    fn time_that_goes_back_fills_nothing() {
        let mut cell = MeterCell::new(Some(CONFIG));
        (0..3).for_each(|_| {
            cell.execute(1, 64, Colour::Green, 10_000);
        });
        assert_eq!(cell.execute(1, 64, Colour::Green, 5_000), Colour::Red);
        assert_eq!(cell.execute(1, 64, Colour::Green, 14_999), Colour::Red);
        assert_eq!(cell.execute(1, 64, Colour::Green, 15_000), Colour::Yellow);
    }

    #[test]
    fn an_unset_cell_is_green() {
        assert_eq!(MeterCell::default().execute(u64::MAX, 64, Colour::Green, 0), Colour::Green);
    }

    #[test]
    fn one_rate_overflows_into_the_excess_bucket() {
        let config = MeterConfig { cir: 100, cburst: 2, pir: 100, pburst: 2, eburst: 1 };
        let mut cell = MeterCell::new(Some(config));
        let colours: Vec<Colour> = (0..4).map(|_| cell.execute(1, 64, Colour::Green, 1000)).collect();
        assert_eq!(colours, [Colour::Green, Colour::Green, Colour::Yellow, Colour::Red]);
        // In 30 ms three units arrive: two for the committed bucket, and the excess for the other.
        let colours: Vec<Colour> = (0..4).map(|_| cell.execute(1, 64, Colour::Green, 31_000)).collect();
        assert_eq!(colours, [Colour::Green, Colour::Green, Colour::Yellow, Colour::Red]);
        // One unit, which goes to the committed bucket.
        assert_eq!(cell.execute(1, 64, Colour::Green, 41_000), Colour::Green);
    }

    #[test]
    fn two_colours_are_the_same_for_either_kind() {
        // P4Runtime: a configuration for a single rate and two colours marks packets identically with the other meter
        // types.
        let two = MeterConfig { cir: 100, cburst: 2, pir: 100, pburst: 2, eburst: 0 };
        let mut cell = MeterCell::new(Some(two));
        let colours: Vec<Colour> = (0..3).map(|_| cell.execute(1, 64, Colour::Green, 0)).collect();
        assert_eq!(colours, [Colour::Green, Colour::Green, Colour::Red]);
    }

    #[test]
    fn colours_are_counted_also_without_a_configuration() {
        let mut cell = MeterCell::default();
        cell.execute(1, 60, Colour::Green, 0);
        cell.configure(Some(CONFIG));
        (0..4).for_each(|_| _ = cell.execute(1, 100, Colour::Green, 0));
        let of = |packets, bytes| CounterValue { packets, bytes };
        assert_eq!(cell.counts(), [of(3, 260), of(1, 100), of(1, 100)]);
        cell.reset_counts();
        assert_eq!((cell.counts(), cell.config()), ([of(0, 0); 3], Some(CONFIG)));
    }
}
