//! Detection of a worker's calls that a peer has held up.
//!
//! Time alone does not tell: the thread may have been preempted during the call, which is not the peer's fault. Nor does
//! a wait: a signal or a debugger may have stopped the thread, or somebody frozen its control group. A peer holds its
//! reader up in a page fault, which the kernel counts once it is over. So the kernel's counts for the thread ([`Usage`])
//! are compared with counts from before the call. Those were read at most [`RECOUNT`] before the call began. They are read again after each sleep of the worker and each other wait that it
//! reports ([`crate::has_waited`]), so that these are not attributed to the call. They belong to the thread, since
//! several workers may call one queue.

use crate::clock::{ticks, ticks_per_second};
use crate::wait;
use shared_memory::{Entered, Usage};
use std::cell::Cell;
use std::time::Duration;

/// A call that takes longer than this, has waited, and has had a page fault was held up. A burst takes some ten microseconds, and while a
/// worker waits for one port's peer, the packets of all its ports wait.
pub(super) const HELD_UP: Duration = Duration::from_millis(1);
/// A call that computes for longer and has page faults blocked the worker, too: the kernel clears huge pages in it. First
/// accesses to ordinary pages take less time, even thousands of them. (Time that a host takes may count as computed.)
const FAULTED: Duration = Duration::from_millis(50);
/// A call that takes longer than this, has waited, and has had a page fault counts towards [`SHORT_MAX`].
const SHORT: Duration = Duration::from_micros(100);
/// Limit of a leaky bucket: the total time of short waits, less what has leaked ([`LEAK`]).
const SHORT_MAX: Duration = Duration::from_millis(20);
/// The bucket leaks one part in this many of the time that passes: 2 %, which is less than the 5 % that a peer may
/// cost.
const LEAK: u32 = 50;
/// Maximum age of the counts when a call begins.
const RECOUNT: Duration = Duration::from_millis(1);

/// A thread's counts, and the time in ticks at which they were read.
#[derive(Clone, Copy)]
struct Counted {
    at: u64,
    usage: Usage,
}

thread_local! {
    static COUNTED: Cell<Counted> =
        const { Cell::new(Counted { at: 0, usage: Usage { waits: 0, faults: 0, major_faults: 0, time: Duration::ZERO } }) };
}

/// Watches the calls of one queue. A call costs two readings of the time stamp counter, and a system call if the worker
/// has slept or [`RECOUNT`] has passed.
pub(super) struct Watch {
    per_second: f64,
    /// [`SHORT`] in ticks.
    short: u64,
    /// [`RECOUNT`] in ticks.
    recount: u64,
    /// Level of the leaky bucket of short waits.
    short_sum: Duration,
    /// Time of its last update, in ticks.
    short_at: u64,
}

/// A call in progress.
pub(super) struct Call {
    start: u64,
    damages: u64,
    /// Makes the loops in it end in time.
    _entered: Entered,
}

impl Watch {
    pub(super) fn new() -> Watch {
        let per_second = ticks_per_second();
        let of = |time: Duration| (time.as_secs_f64() * per_second) as u64;
        Watch { per_second, short: of(SHORT), recount: of(RECOUNT), short_sum: Duration::ZERO, short_at: ticks() }
    }

    /// Begins a call.
    #[inline]
    pub(super) fn begin(&self) -> Call {
        let start = ticks();
        let counted_at = COUNTED.with(|counted| counted.get().at);
        if wait::take_slept() || start.wrapping_sub(counted_at) > self.recount {
            count(start);
        }
        Call { start, damages: shared_memory::damages(), _entered: shared_memory::enter() }
    }

    /// Ends a call. Returns for how long the peer has held up the worker, if that is too long.
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
        // At least so much processor time was used in the call: all time before it is subtracted.
        let computed = usage.time.saturating_sub(before.time).saturating_sub(of(call.start.wrapping_sub(at)));
        let has_damage = shared_memory::damages() != call.damages;
        if is_held_up(took, computed, before, usage, has_damage) {
            return Some(took);
        }
        if usage.waits > before.waits && usage.faults > before.faults {
            self.short_sum = self.short_sum.saturating_sub(of(end.wrapping_sub(self.short_at)) / LEAK) + took;
            self.short_at = end;
        }
        if usage.waits > before.waits {
            // The wait has been judged for this call and must not be judged for the next.
            count(end);
        }
        (self.short_sum > SHORT_MAX).then_some(self.short_sum)
    }
}

/// Whether the peer has held up this one call. A wait for a page that is read from a disk only counts towards
/// [`SHORT_MAX`]: it may be a page of this process that the kernel evicted, which is not the peer's fault.
fn is_held_up(took: Duration, computed: Duration, before: Usage, after: Usage, has_damage: bool) -> bool {
    let has_faulted = after.faults > before.faults;
    let has_waited = after.waits > before.waits && has_faulted && after.major_faults == before.major_faults;
    took > HELD_UP && (has_waited || has_damage) || has_faulted && computed > FAULTED
}

#[cold]
fn count(now: u64) {
    COUNTED.set(Counted { at: now, usage: Usage::now() });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_read_from_a_disk_is_not_the_peer_s_wait() {
        let usage = |waits, faults, major_faults| Usage { waits, faults, major_faults, time: Duration::ZERO };
        let (before, waited, read) = (usage(5, 7, 1), usage(6, 8, 1), usage(6, 8, 2));
        let (short, long, none) = (HELD_UP, 2 * HELD_UP, Duration::ZERO);
        assert!(is_held_up(long, none, before, waited, false));
        assert!(!is_held_up(short, none, before, waited, false));
        assert!(!is_held_up(long, none, before, before, false), "preempted");
        assert!(!is_held_up(long, none, before, usage(6, 7, 1), false), "stopped, as by a debugger");
        assert!(!is_held_up(long, none, before, read, false));
        assert!(is_held_up(long, none, before, read, true), "the peer has truncated its memory");
        assert!(is_held_up(2 * FAULTED, 2 * FAULTED, before, usage(5, 8, 1), false), "a page was cleared");
        assert!(!is_held_up(2 * FAULTED, 2 * FAULTED, before, before, false), "computed without a page fault");
    }
}
