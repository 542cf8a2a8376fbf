//! Idle timeouts: finds the entries that have not been hit for their timeout (P4Runtime specification, "Table Idle
//! Timeout Notification").
//!
//! Each entry with a timeout has a timer, set to the earliest time at which the timeout can be over. When the timer is
//! due, the data plane reports how long the entry has been idle, and the timer is set anew. So a check costs as much as
//! there are due timers, not entries; tables without idle timeouts cost nothing. The time is that of [`Control::tick`]
//! and stands still between two ticks, so an entry may be checked too early, but at most one tick too late.
//!
//! Tables that packets write report their expired entries themselves (`PipelineState::reports_idle`). If such an entry
//! was removed, the notification is the last message about it.
//!
//! After a report the timeout starts anew: an entry that stays idle is reported again one timeout later. Timers are
//! keyed by P4Info ids, which depend on names, so they remain valid for the next program ([`IdleTimers::of`]).
//!
//! A tick is bounded, because all clients of all devices wait for it: it checks at most [`CHECKS_MAX`] timers and
//! reports at most [`reports_max`] entries; the rest follow with the next ticks. Timers are served in the order of the
//! times at which they are due, and a timer is set anew to a later time, so none waits for ever. Timeouts below
//! [`RESOLUTION_NS`] count as that.
//!
//! [`Control::tick`]: crate::Control::tick

use crate::entity::TableEntry;
use crate::forwarding::{EntryKey, Forwarding};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// The shortest idle timeout in effect. Shorter ones are read back as written.
const RESOLUTION_NS: u64 = 10_000_000;
/// Limit on the timers that a tick checks, chosen: 200,000 a second at a tick of 5 ms, so that requests do not wait for a
/// tick with all timers of a large table. The others are checked by the next ticks, in the order in which they are due.
const CHECKS_MAX: usize = 1024;
/// Limit on the entries of a tick's reports, times the clients that receive them, by each of timers and data plane.
/// Chosen: some hundred kilobytes of messages a tick.
const TOLD_MAX: usize = 2048;

/// Limit on the entries that a tick reports to so many clients, by each of timers and data plane.
fn reports_max(clients: usize) -> usize {
    (TOLD_MAX / clients.max(1)).clamp(8, 512)
}

/// The timeout in effect.
fn effective(timeout_ns: u64) -> u64 {
    timeout_ns.max(RESOLUTION_NS)
}

/// Identifies an entry: its table's P4Info id, its key and its priority.
pub(crate) type Place = (u32, EntryKey);

/// An expired entry, as the data plane reports it.
type Expired = (base::ids::TableId, base::entry::TableEntry);

/// Timers of entries.
#[derive(Default)]
pub(crate) struct IdleTimers {
    timers: HashMap<Arc<Place>, Timer>,
    /// Due timers by time and a sequence number, which separates those due at the same time.
    due: BTreeMap<(u64, u64), Arc<Place>>,
    last: u64,
    /// Time of the last tick.
    now_ns: u64,
    /// Expired entries from the data plane that are still to be reported, by table.
    expired: VecDeque<Expired>,
}

#[derive(Clone, Copy)]
struct Timer {
    at: (u64, u64),
    reported_ns: Option<u64>,
}

impl IdleTimers {
    /// Timers for all entries of a config. Entries that `earlier` had, too, keep the time of their last report.
    pub(crate) fn of(forwarding: &Forwarding, earlier: Option<&IdleTimers>) -> IdleTimers {
        const STEP: usize = 1024;
        let now_ns = earlier.map_or(forwarding.timers.now_ns, |earlier| earlier.now_ns);
        let mut timers = IdleTimers { now_ns, ..IdleTimers::default() };
        for (id, table) in forwarding.schema.tables.iter().filter(|(_, table)| table.idle_timeout) {
            let target = table.target.filter(|target| !forwarding.state().reports_idle(*target));
            let mut place = target.map(|target| (target, 0));
            while let Some((target, from)) = place {
                let (entries, next) = forwarding.state().walk(target, from, STEP);
                for found in entries.into_iter().filter(|found| found.entry.idle_timeout_ns > 0) {
                    let of_entry = (*id, (found.entry.key, found.entry.priority));
                    let reported_ns = earlier.and_then(|e| e.timers.get(&of_entry)?.reported_ns);
                    timers.set(Arc::new(of_entry), now_ns, reported_ns);
                }
                place = next.map(|next| (target, next));
            }
        }
        timers
    }

    /// Sets the timer of an entry that was added.
    pub(crate) fn added(&mut self, place: Place, timeout_ns: u64) {
        if timeout_ns > 0 {
            self.set(Arc::new(place), self.now_ns.saturating_add(effective(timeout_ns)), None);
        }
    }

    /// Resets the timer of an entry that may have another timeout now.
    pub(crate) fn changed(&mut self, place: Place) {
        let reported_ns = self.timers.get(&place).and_then(|timer| timer.reported_ns);
        self.set(Arc::new(place), self.now_ns, reported_ns);
    }

    /// Removes the timer of an entry.
    pub(crate) fn removed(&mut self, place: &Place) {
        if let Some(timer) = self.timers.remove(place) {
            self.due.remove(&timer.at);
        }
    }

    fn set(&mut self, place: Arc<Place>, due_ns: u64, reported_ns: Option<u64>) {
        self.last += 1;
        let at = (due_ns, self.last);
        if let Some(old) = self.timers.insert(Arc::clone(&place), Timer { at, reported_ns }) {
            self.due.remove(&old.at);
        }
        self.due.insert(at, place);
    }
}

impl Forwarding {
    /// Entries to be reported as idle now to so many clients, with the fields that a notification has.
    pub(crate) fn idle_entries(&mut self, now_ns: u64, clients: usize) -> Vec<TableEntry> {
        let most = reports_max(clients);
        let mut timers = std::mem::take(&mut self.timers);
        timers.now_ns = now_ns;
        let mut idle = self.expired_entries(&mut timers.expired, most);
        let most = idle.len() + most;
        for _ in 0..CHECKS_MAX {
            let Some(first) = timers.due.first_entry().filter(|first| first.key().0 <= now_ns) else { break };
            if idle.len() == most {
                break;
            }
            let place = first.remove();
            let Some(timer) = timers.timers.remove(&place) else { continue };
            if let Some((next_ns, reported_ns)) = self.check(&place, timer, now_ns, &mut idle) {
                timers.set(place, next_ns, reported_ns);
            }
        }
        self.timers = timers;
        idle
    }

    /// Checks an entry whose timer is due, and reports it if it is idle. Returns when to check it again, which is later
    /// than now, and when it was last reported; `None` if it needs no timer any more.
    fn check(
        &self,
        place: &Place,
        timer: Timer,
        now_ns: u64,
        idle: &mut Vec<TableEntry>,
    ) -> Option<(u64, Option<u64>)> {
        let (id, key) = place;
        let table = self.schema.tables.get(id)?;
        let target = table.target?;
        let found = self.state().entry(target, &key.0, key.1).ok()?;
        if found.entry.idle_timeout_ns == 0 {
            return None;
        }
        let timeout_ns = effective(found.entry.idle_timeout_ns);
        let idle_ns = found.idle_ns.unwrap_or(0);
        let since = |reported_ns: u64| now_ns.saturating_sub(reported_ns);
        Some(match timer.reported_ns {
            _ if idle_ns < timeout_ns => (now_ns.saturating_add(timeout_ns - idle_ns), None),
            Some(last) if since(last) < timeout_ns => (last.saturating_add(timeout_ns), Some(last)),
            _ => {
                let query = TableEntry { table_id: *id, ..Default::default() };
                let entry = self.selected(&query, target, table, &found);
                idle.extend(entry.map(|entry| TableEntry { action: None, is_const: false, ..entry }));
                (now_ns.saturating_add(timeout_ns), Some(now_ns))
            }
        })
    }

    /// At most `most` expired entries of the tables that packets write. The data plane's list is taken as a whole, when
    /// all earlier ones have been reported; `waiting` holds the rest.
    fn expired_entries(&self, waiting: &mut VecDeque<Expired>, most: usize) -> Vec<TableEntry> {
        if waiting.is_empty() {
            *waiting = self.state().take_expired().into();
        }
        let of = |(target, entry): Expired| {
            let (id, table) = self.schema.tables.iter().find(|(_, table)| table.target == Some(target))?;
            let query = TableEntry { table_id: *id, ..Default::default() };
            let entry = self.selected(&query, target, table, &abi::state::ReadEntry { entry, idle_ns: None })?;
            Some(TableEntry { action: None, is_const: false, ..entry })
        };
        waiting.drain(..most.min(waiting.len())).filter_map(of).collect()
    }
}
