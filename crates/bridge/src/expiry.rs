//! Timeouts of flows (OpenFlow 1.3.5, 5.5 and 6.4).
//!
//! [`Timers`] orders flows with timeouts by their earliest possible expiry. A tick only visits those that are due.
//! A flow that was used meanwhile is moved to its new expiry, so it costs one visit per idle timeout. Entries of
//! removed or replaced flows are not searched for: they are dropped when they are due, or when half of all entries
//! are stale.

use crate::flow::Flow;
use crate::tables::Tables;
use openflow::message::{RemovedReason, Timeouts};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The resolution of timeouts, in microseconds.
const STEP_US: u64 = 100_000;
/// Up to this number of stale entries, a cleanup is not worthwhile.
const STALE_MAX: usize = 1024;

/// The timeouts in effect: the flow's own, shortened if a TCP connection of it has ended (Nicira's `fin_timeout`).
pub fn timeouts(flow: &Flow) -> Timeouts {
    let shorter = |timeout: u16, fin: u16| match (timeout, fin) {
        (timeout, 0) => timeout,
        (0, fin) => fin,
        (timeout, fin) => timeout.min(fin),
    };
    match flow.fin_timeouts.load(Ordering::Relaxed) {
        u32::MAX => flow.timeouts,
        fin => Timeouts {
            idle: shorter(flow.timeouts.idle, (fin >> 16) as u16),
            hard: shorter(flow.timeouts.hard, fin as u16),
        },
    }
}

/// When a flow was last used: by a packet, or by a request that added or modified it.
pub fn used_us(flow: &Flow) -> u64 {
    flow.usage.used_us().max(u64::try_from(flow.modified_us).unwrap_or(0))
}

/// When a flow expires if no packet uses it, and for which reason.
pub fn deadline(flow: &Flow) -> Option<(u64, RemovedReason)> {
    let timeouts = timeouts(flow);
    let after = |seconds: u16, since: i64| {
        // A flow that expired before the switch started is removed at once.
        (seconds != 0).then(|| u64::try_from(since + i64::from(seconds) * 1_000_000).unwrap_or(0))
    };
    let hard = after(timeouts.hard, flow.modified_us).map(|at| (at, RemovedReason::HardTimeout));
    let idle = after(timeouts.idle, used_us(flow).cast_signed()).map(|at| (at, RemovedReason::IdleTimeout));
    match (hard, idle) {
        (Some(hard), Some(idle)) if idle.0 < hard.0 => Some(idle),
        (Some(hard), _) => Some(hard),
        (None, idle) => idle,
    }
}

/// Flows with timeouts, by their earliest possible expiry.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeMap<u64, Vec<Weak<Flow>>>,
    len: usize,
}

impl Timers {
    /// Adds a flow, if it has timeouts.
    pub fn add(&mut self, flow: &Arc<Flow>) {
        if let Some((at, _)) = deadline(flow) {
            self.due.entry(at.div_ceil(STEP_US)).or_default().push(Arc::downgrade(flow));
            self.len += 1;
        }
    }

    /// Whether a flow may have expired.
    pub fn is_due(&self, now_us: u64) -> bool {
        self.due.first_key_value().is_some_and(|(step, _)| *step <= now_us / STEP_US)
    }

    /// Removes and returns the flows that have expired. Others that were due are moved to their new expiry.
    pub fn take(&mut self, tables: &Tables, now_us: u64) -> Vec<(Arc<Flow>, RemovedReason)> {
        let mut ended = Vec::new();
        while self.is_due(now_us)
            && let Some((_, flows)) = self.due.pop_first()
        {
            self.len -= flows.len();
            for flow in flows.iter().filter_map(|flow| current(tables, flow)) {
                match deadline(&flow) {
                    Some((at, reason)) if at <= now_us => ended.push((flow, reason)),
                    Some(_) => self.add(&flow),
                    None => {}
                }
            }
        }
        ended
    }

    /// Drops stale entries if most are stale. `timed` is the number of flows with timeouts.
    pub fn compact(&mut self, tables: &Tables, timed: usize) {
        if self.len <= 2 * timed + STALE_MAX {
            return;
        }
        // A flow may have two entries, since timeouts can become shorter; the earlier one is kept.
        let mut seen = std::collections::HashSet::new();
        self.due.retain(|_, flows| {
            flows.retain(|flow| current(tables, flow).is_some_and(|flow| seen.insert(Arc::as_ptr(&flow))));
            flows.shrink_to_fit();
            !flows.is_empty()
        });
        self.len = self.due.values().map(Vec::len).sum();
    }
}

/// The flow, if it is still in its table.
fn current(tables: &Tables, flow: &Weak<Flow>) -> Option<Arc<Flow>> {
    let flow = flow.upgrade()?;
    let found = tables.table(flow.table).flows.find(&flow.matching, flow.priority)?;
    Arc::ptr_eq(found, &flow).then_some(flow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Usage;
    use crate::key::Layout;
    use openflow::{Instructions, Match};
    use std::sync::atomic::AtomicU32;

    #[test]
    fn flows_that_are_replaced_again_and_again_take_no_room() {
        let layout = Arc::new(Layout::new(&crate::testing::program()).unwrap());
        let mut tables = Tables::new(&layout);
        let mut timers = Timers::default();
        for now_us in 0..100_000i64 {
            let flow = Arc::new(Flow {
                table: 0,
                matching: Match::any(),
                priority: 1,
                cookie: 0,
                flags: 0,
                importance: 0,
                timeouts: Timeouts { idle: 0, hard: 60_000 },
                fin_timeouts: AtomicU32::new(u32::MAX),
                instructions: Instructions::default(),
                created_us: now_us,
                modified_us: now_us,
                usage: Arc::new(Usage::new(now_us.cast_unsigned())),
                charge: Default::default(),
            });
            tables.insert_flow(Arc::clone(&flow));
            timers.add(&flow);
            timers.compact(&tables, 1);
            assert!(timers.len <= STALE_MAX + 3);
        }
        let end_us = 60_001 * 1_000_000;
        assert_eq!(timers.take(&tables, end_us).len(), 1);
        assert_eq!((timers.len, timers.due.len()), (0, 0));
    }
}
