//! Which calls of a worker were held up by a peer.
//!
//! A call that took long may have been displaced by another program, which is no fault of the peer. So what the kernel has counted
//! for the thread ([`Usage`]) is compared with a count from before the call. That count is at most [`RECOUNT`] old, and made anew
//! after each sleep of the worker and each wait of its own that is told ([`crate::has_waited`]), which must not be taken for the call's. It belongs to the thread, since
//! several workers may call one queue.

use crate::clock::{ticks, ticks_per_second};
use crate::wait;
use shared_memory::{Entered, Usage};
use std::cell::Cell;
use std::time::Duration;

/// A call that takes longer and has waited was held up: a burst takes some ten microseconds, and what waits for the peer of
/// one port are the packets of all.
pub(super) const HELD_UP: Duration = Duration::from_millis(1);
/// The same of a call that has computed for so long with [`FAULTS`] page faults, or for [`FAULTED_LONG`] with one. The first touch
/// of ordinary pages takes less, in all of a burst. (Time that a host takes may count as computed.)
const FAULTED: Duration = Duration::from_millis(2);
const FAULTS: u64 = 8;
const FAULTED_LONG: Duration = Duration::from_millis(50);
/// A call that takes longer, and has waited, counts towards [`SHORT_MAX`].
const SHORT: Duration = Duration::from_micros(100);
/// How long short waits may hold up a worker, in the part of time that [`LEAK`] says.
const SHORT_MAX: Duration = Duration::from_millis(20);
/// Short waits of one part in so many of the time are forgotten: two in a hundred are less than the twentieth that a peer may cost.
const LEAK: u32 = 50;
/// The age of the count from before a call.
const RECOUNT: Duration = Duration::from_millis(1);

#[derive(Clone, Copy)]
struct Counted {
    at: u64,
    usage: Usage,
}

thread_local! {
    static COUNTED: Cell<Counted> =
        const { Cell::new(Counted { at: 0, usage: Usage { waits: 0, faults: 0, time: Duration::ZERO } }) };
}

/// The calls of one queue. Costs two looks at the clock for each, and a system call after each sleep and each [`RECOUNT`].
pub(super) struct Watch {
    per_second: f64,
    /// Ticks.
    short: u64,
    recount: u64,
    /// How long short waits have held up workers, less what is forgotten, and when that was.
    short_sum: Duration,
    short_at: u64,
}

/// A call that goes on.
pub(super) struct Call {
    start: u64,
    damages: u64,
    /// Lets the loops in it end in time.
    _entered: Entered,
}

impl Watch {
    pub(super) fn new() -> Watch {
        let per_second = ticks_per_second();
        let of = |time: Duration| (time.as_secs_f64() * per_second) as u64;
        Watch { per_second, short: of(SHORT), recount: of(RECOUNT), short_sum: Duration::ZERO, short_at: ticks() }
    }

    /// A call begins.
    #[inline]
    pub(super) fn begin(&self) -> Call {
        let start = ticks();
        let counted_at = COUNTED.with(|counted| counted.get().at);
        if wait::take_slept() || start.wrapping_sub(counted_at) > self.recount {
            count(start);
        }
        Call { start, damages: shared_memory::damages(), _entered: shared_memory::enter() }
    }

    /// The call is over: for how long it held the worker up, if that is too long.
    #[inline]
    pub(super) fn end(&mut self, call: Call) -> Option<Duration> {
        let end = ticks();
        if end.wrapping_sub(call.start) <= self.short { None } else { self.judge(&call, end) }
    }

    #[cold]
    fn judge(&mut self, call: &Call, end: u64) -> Option<Duration> {
        let of = |ticks: u64| Duration::from_secs_f64(ticks as f64 / self.per_second);
        let Counted { at, usage: before } = COUNTED.get();
        let usage = Usage::now();
        let took = of(end.wrapping_sub(call.start));
        // Computed since the count, and certainly not before the call.
        let computed = usage.time.saturating_sub(before.time).saturating_sub(of(call.start.wrapping_sub(at)));
        let has_waited = usage.waits > before.waits;
        if took > HELD_UP && (has_waited || shared_memory::damages() != call.damages) {
            return Some(took);
        }
        let faults = usage.faults - before.faults;
        if faults >= FAULTS && computed > FAULTED || faults > 0 && computed > FAULTED_LONG {
            return Some(took);
        }
        if has_waited {
            self.short_sum = self.short_sum.saturating_sub(of(end.wrapping_sub(self.short_at)) / LEAK) + took;
            self.short_at = end;
            // What it has waited for was this call; the next one begins anew.
            count(end);
        }
        (self.short_sum > SHORT_MAX).then_some(self.short_sum)
    }
}

#[cold]
fn count(now: u64) {
    COUNTED.set(Counted { at: now, usage: Usage::now() });
}
