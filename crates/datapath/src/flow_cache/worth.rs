//! Decides whether a flow cache is worth its cost: compares ticks per packet with and without it while packets run.
//!
//! ```text
//! Rest ──time over──▶ Look ──packets cost more than a hit──▶ Try ──cheaper with the cache──▶ Use
//!  ▲                    │ no                                  │ not in time                    │ not any more
//!  └────────────────────┴─────────────────────────────────────┴────────────────────────────────┘
//! ```
//!
//! *Look* times some batches without the cache. *Try* sends one batch of [`TRY_EVERY`] through the cache, so that
//! traffic in which each packet is a new flow loses little, as long as the hit rate keeps growing. *Use* sends all
//! but one batch of [`COMPARE_EVERY`] through it; that one is timed without. The rest doubles while trials fail. At
//! rest a batch costs one comparison of times.
//!
//! The policy reads no clock and no counter: both are arguments. Tests: below.

/// Packets timed for a comparison.
const PACKETS: u64 = 4096;
/// Smaller batches are ignored: their fixed cost would dominate the comparison.
const BATCH_MIN: usize = 4;
/// During a trial, one batch of this many goes through the cache.
const TRY_EVERY: u32 = 4;
/// While the cache is in use, one batch of this many bypasses it.
const COMPARE_EVERY: u32 = 64;
/// Comparisons lost in a row after which the cache is no longer used.
const LOSSES_MAX: u32 = 4;
/// Duration of a trial without a growing share of hits, in microseconds.
const TRIAL_US: u64 = 500_000;
/// By how much the share of hits must grow to extend a trial, in thousandths.
const GROWTH: u64 = 20;
/// Shortest and longest rest, in microseconds.
const REST_US: (u64, u64) = (500_000, 32_000_000);
/// Assumed ticks per hit until measured: comparing a frame's first cache line and rewriting some fields.
const HIT_TICKS: f64 = 80.0;

/// What to do with the next batch: use the cache, time it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) is_used: bool,
    pub(super) is_timed: bool,
}

/// Accumulated ticks and packets.
#[derive(Clone, Copy, Default, Debug)]
struct Timed {
    ticks: u64,
    packets: u64,
}

impl Timed {
    fn add(&mut self, packets: usize, ticks: u64) {
        self.ticks += ticks;
        self.packets += packets as u64;
    }

    fn per_packet(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.ticks as f64 / self.packets as f64)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Rest { until_us: u64 },
    Look,
    Try { until_us: u64, hits: u64 },
    Use,
}

/// The policy of one worker.
#[derive(Debug)]
pub(super) struct Worth {
    state: State,
    batches: u32,
    with: Timed,
    without: Timed,
    /// Hits among the packets of `with`.
    hits: u64,
    /// Ticks per packet without and with the cache, as last compared.
    last: (Option<f64>, Option<f64>),
    hit_ticks: f64,
    rest_us: u64,
    losses: u32,
}

impl Default for Worth {
    fn default() -> Worth {
        Worth {
            state: State::Rest { until_us: 0 },
            batches: 0,
            with: Timed::default(),
            without: Timed::default(),
            hits: 0,
            last: (None, None),
            hit_ticks: HIT_TICKS,
            rest_us: 0,
            losses: 0,
        }
    }
}

impl Worth {
    /// What to do with the next batch.
    pub(super) fn plan(&mut self, now_us: u64) -> Plan {
        if let State::Rest { until_us } = self.state
            && now_us >= until_us
        {
            self.enter(State::Look);
        }
        self.batches = self.batches.wrapping_add(1);
        match self.state {
            State::Rest { .. } => Plan { is_used: false, is_timed: false },
            State::Look => Plan { is_used: false, is_timed: true },
            State::Try { .. } => Plan { is_used: self.batches.is_multiple_of(TRY_EVERY), is_timed: true },
            State::Use => Plan { is_used: !self.batches.is_multiple_of(COMPARE_EVERY), is_timed: true },
        }
    }

    /// The time until which all batches bypass the cache and are not timed; 0 if not at rest.
    pub(super) fn bypassed_until_us(&self) -> u64 {
        match self.state {
            State::Rest { until_us } => until_us,
            _ => 0,
        }
    }

    /// Whether the cache is in use, for statistics.
    pub(super) fn is_on(&self) -> bool {
        self.state == State::Use
    }

    /// Ticks per packet without and with the cache, as last compared.
    pub(super) fn times(&self) -> (Option<f64>, Option<f64>) {
        self.last
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        (self.with, self.without, self.hits) = Default::default();
    }

    /// Records a batch: its packets, the hits among them, and its ticks.
    pub(super) fn record_time(&mut self, packets: usize, hits: usize, ticks: u64, is_used: bool, now_us: u64) {
        if packets < BATCH_MIN {
            return;
        }
        match is_used {
            true => {
                self.with.add(packets, ticks);
                self.hits += hits as u64;
            }
            false => self.without.add(packets, ticks),
        }
        match self.state {
            State::Rest { .. } => {}
            State::Look if self.without.packets >= PACKETS => {
                self.last.0 = self.without.per_packet();
                let pays = self.last.0.is_some_and(|ticks| ticks > self.hit_ticks);
                // Tables and traffic may change; looking again costs next to nothing.
                self.enter(if pays {
                    State::Try { until_us: now_us + TRIAL_US, hits: 0 }
                } else {
                    State::Rest { until_us: now_us + REST_US.0 }
                });
            }
            State::Try { until_us, hits: before }
                if self.with.packets >= PACKETS && self.without.packets >= PACKETS =>
            {
                let hits = self.hits * 1000 / self.with.packets;
                match self.compare(hits) {
                    true => {
                        self.rest_us = 0;
                        self.losses = 0;
                        self.enter(State::Use);
                    }
                    false if hits >= before + GROWTH => self.enter(State::Try { until_us: now_us + TRIAL_US, hits }),
                    false if now_us >= until_us => self.rest(now_us),
                    false => self.enter(State::Try { until_us, hits: before }),
                }
            }
            // The time is over with hardly any packets.
            State::Try { until_us, .. } if now_us >= until_us.saturating_add(4 * TRIAL_US) => self.rest(now_us),
            State::Use if self.without.packets >= PACKETS / 8 => {
                let hits = self.hits * 1000 / self.with.packets.max(1);
                self.losses = if self.compare(hits) { 0 } else { self.losses + 1 };
                match self.losses >= LOSSES_MAX {
                    true => self.rest(now_us),
                    false => self.enter(State::Use),
                }
            }
            _ => {}
        }
    }

    /// Whether packets are cheaper with the cache; `hits` is the share of hits in thousandths.
    fn compare(&mut self, hits: u64) -> bool {
        let (without, with) = (self.without.per_packet(), self.with.per_packet());
        self.last = (without.or(self.last.0), with.or(self.last.1));
        let (Some(without), Some(with)) = (without, with) else { return true };
        if hits >= 990 {
            self.hit_ticks = with;
        }
        with < without
    }

    fn rest(&mut self, now_us: u64) {
        self.losses = 0;
        self.rest_us = (self.rest_us * 2).clamp(REST_US.0, REST_US.1);
        self.enter(State::Rest { until_us: now_us + self.rest_us });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates batches of 32 packets for `seconds`. Returns the share of batches that went through the cache, and
    /// the relative extra time compared with not having a cache.
    fn drive(worth: &mut Worth, from_us: u64, seconds: u64, ticks: impl Fn(u64, bool) -> (usize, u64)) -> (f64, f64) {
        let (mut used, mut batches, mut spent, mut without) = (0u64, 0u64, 0u64, 0u64);
        let mut now_us = from_us;
        while now_us < from_us + seconds * 1_000_000 {
            let plan = worth.plan(now_us);
            let (hits, cost) = ticks(now_us, plan.is_used);
            used += u64::from(plan.is_used);
            batches += 1;
            spent += 32 * cost;
            without += 32 * ticks(now_us, false).1;
            if plan.is_timed {
                worth.record_time(32, hits, 32 * cost, plan.is_used, now_us);
            }
            now_us += 50;
        }
        (used as f64 / batches as f64, spent as f64 / without as f64 - 1.0)
    }

    #[test]
    fn a_pipeline_that_costs_less_than_a_hit_never_meets_the_cache() {
        let mut worth = Worth::default();
        let (used, _) = drive(&mut worth, 0, 5, |_, _| (0, 40));
        assert_eq!(used, 0.0);
    }

    #[test]
    fn traffic_of_new_flows_costs_little() {
        let mut worth = Worth::default();
        let (_, lost) = drive(&mut worth, 0, 60, |_, is_used| (0, if is_used { 1400 } else { 1000 }));
        assert!(lost < 0.01, "{lost}");
    }

    #[test]
    fn traffic_that_is_learned_slowly_is_learned() {
        let mut worth = Worth::default();
        let ticks = |now_us: u64, is_used: bool| {
            let hits = (now_us / 200_000).min(32);
            (hits as usize, if is_used { (hits * 100 + (32 - hits) * 3000) / 32 } else { 2800 })
        };
        drive(&mut worth, 0, 10, ticks);
        let (used, _) = drive(&mut worth, 10_000_000, 2, ticks);
        assert!(used > 0.98, "{used}");
        assert!(worth.is_on());
    }

    #[test]
    fn it_goes_when_traffic_changes_and_comes_back() {
        let mut worth = Worth::default();
        let good = |_: u64, is_used: bool| if is_used { (32, 100) } else { (0, 2000) };
        let bad = |_: u64, is_used: bool| if is_used { (0, 2300) } else { (0, 2000) };
        drive(&mut worth, 0, 2, good);
        assert!(worth.is_on());
        drive(&mut worth, 2_000_000, 2, bad);
        assert!(!worth.is_on());
        drive(&mut worth, 4_000_000, 40, good);
        assert!(worth.is_on());
    }

    #[test]
    fn a_measured_hit_is_what_decides_about_looking_further() {
        let mut worth = Worth::default();
        drive(&mut worth, 0, 2, |_, is_used| if is_used { (32, 300) } else { (0, 2000) });
        assert!(worth.is_on());
        // The pipeline has become cheaper than a hit.
        let (used, _) = drive(&mut worth, 2_000_000, 120, |_, is_used| if is_used { (32, 300) } else { (0, 200) });
        assert!(used < 0.01 && !worth.is_on(), "{used}");
    }
}
