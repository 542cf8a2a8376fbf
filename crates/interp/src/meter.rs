//! A meter cell: two token buckets (RFC 2698, colour-blind). The formula is spelled out at [`MeterConfig`]; the fast
//! path implements it again and is compared with this.
//!
//! Tests: at the end of the file.

use base::entry::MeterConfig;

/// What a meter says of a packet; the numbers are what programs see.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Colour {
    /// Within the committed rate.
    Green = 0,
    /// Within the peak rate.
    Yellow = 1,
    /// Above.
    Red = 2,
}

/// Buckets count millionths of a unit: one microsecond at one unit per second.
const SCALE: u128 = 1_000_000;

/// A cell; always green while it has no configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterCell {
    config: Option<MeterConfig>,
    committed: u128,
    peak: u128,
    last_us: u64,
}

impl MeterCell {
    /// A cell with full buckets.
    pub fn new(config: Option<MeterConfig>) -> MeterCell {
        let full = |burst: Option<u64>| u128::from(burst.unwrap_or(0)) * SCALE;
        MeterCell {
            config,
            committed: full(config.map(|c| c.cburst)),
            peak: full(config.map(|c| c.pburst)),
            last_us: 0,
        }
    }

    /// The configuration.
    pub fn config(&self) -> Option<MeterConfig> {
        self.config
    }

    /// The colour of a packet of `units`, which is taken from the buckets.
    pub fn execute(&mut self, units: u64, now_us: u64) -> Colour {
        let Some(config) = self.config else { return Colour::Green };
        let elapsed = u128::from(now_us.saturating_sub(self.last_us));
        self.last_us = self.last_us.max(now_us);
        let fill =
            |level: u128, rate: u64, burst: u64| (u128::from(burst) * SCALE).min(level + elapsed * u128::from(rate));
        self.committed = fill(self.committed, config.cir, config.cburst);
        self.peak = fill(self.peak, config.pir, config.pburst);
        let need = u128::from(units) * SCALE;
        if self.peak < need {
            return Colour::Red;
        }
        self.peak -= need;
        if self.committed < need {
            return Colour::Yellow;
        }
        self.committed -= need;
        Colour::Green
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: MeterConfig = MeterConfig { cir: 100, cburst: 2, pir: 200, pburst: 3 };

    #[test]
    fn bursts_run_green_then_yellow_then_red() {
        let mut cell = MeterCell::new(Some(CONFIG));
        let colours: Vec<Colour> = (0..5).map(|_| cell.execute(1, 1000)).collect();
        assert_eq!(colours, [Colour::Green, Colour::Green, Colour::Yellow, Colour::Red, Colour::Red]);
    }

    #[test]
    fn buckets_fill_at_their_rates_and_not_above_their_bursts() {
        let mut cell = MeterCell::new(Some(CONFIG));
        (0..3).for_each(|_| {
            cell.execute(1, 0);
        });
        // 5 ms bring one unit to the peak bucket and half a unit to the committed one.
        assert_eq!(cell.execute(1, 4_999), Colour::Red);
        assert_eq!(cell.execute(1, 5_000), Colour::Yellow);
        assert_eq!(cell.execute(1, 10_000), Colour::Green);
        // After a long pause only the bursts are there.
        let colours: Vec<Colour> = (0..4).map(|_| cell.execute(1, 1 << 40)).collect();
        assert_eq!(colours, [Colour::Green, Colour::Green, Colour::Yellow, Colour::Red]);
    }

    #[test]
    fn time_that_goes_back_fills_nothing() {
        let mut cell = MeterCell::new(Some(CONFIG));
        (0..3).for_each(|_| {
            cell.execute(1, 10_000);
        });
        assert_eq!(cell.execute(1, 5_000), Colour::Red);
        assert_eq!(cell.execute(1, 14_999), Colour::Red);
        assert_eq!(cell.execute(1, 15_000), Colour::Yellow);
    }

    #[test]
    fn an_unset_cell_is_green() {
        assert_eq!(MeterCell::default().execute(u64::MAX, 0), Colour::Green);
    }
}
