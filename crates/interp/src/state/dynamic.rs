//! Tables that packets modify: the reference for `tables::exact::dynamic`.
//!
//! As there, time is measured in ticks (`abi::entry::TICK_US`), and entries expire at multiples of a step
//! (`ir::Dynamic::step_ticks`).

use super::table::Installed;
use super::{Content, State};
use abi::entry::TICK_US;
use abi::state::EXPIRED_MAX;
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::TableId;
use ir::{Dynamic, Expiry};

const NS_PER_MS: u64 = 1_000_000;

/// The start of the current tick, in microseconds.
pub(super) fn tick(now_us: u64) -> u64 {
    now_us / TICK_US * TICK_US
}

impl Installed {
    /// Whether an entry's timeout has expired, in a table that checks timeouts every `step` ticks.
    fn is_over(&self, step: u64, now_us: u64) -> bool {
        let timeout = (self.entry.idle_timeout_ns.div_ceil(NS_PER_MS) * 1000).div_ceil(TICK_US);
        let began = self.last_hit_us.max(self.notified_us) / TICK_US;
        timeout > 0 && now_us / TICK_US >= (began + timeout).next_multiple_of(step)
    }
}

impl State {
    /// The timestamp in µs of a new entry of a table.
    pub(super) fn stamp(&self, content: &Content, table: TableId) -> u64 {
        let is_dynamic = self.program.tables[table.index()].dynamic.is_some();
        if is_dynamic { tick(content.now_us) } else { content.now_us }
    }

    /// The timeout of an expire time profile, in nanoseconds.
    fn timeout_ns(dynamic: &Dynamic, number: u64) -> Option<u64> {
        if dynamic.expiry == Expiry::Never {
            return Some(0);
        }
        let ms = dynamic.expire_ms.get(usize::try_from(number).ok()?)?;
        Some(u64::from(*ms) * NS_PER_MS)
    }

    /// Adds an entry or, with `replace`, modifies an existing one (`ir::Op::AddEntry`). Returns whether it succeeded.
    pub fn add_entry(&self, table: TableId, keys: &[Bits], call: ActionCall, expire: u64, replace: bool) -> bool {
        let described = &self.program.tables[table.index()];
        let Some(dynamic) = &described.dynamic else { return false };
        let Some(idle_timeout_ns) = Self::timeout_ns(dynamic, expire) else { return false };
        let mut content = self.lock();
        let now_us = tick(content.now_us);
        let content = &mut *content;
        let (linear, counts) = (&mut content.tables[table.index()], &mut content.dynamic_counts[table.index()]);
        let key: Vec<KeyMatch> = keys.iter().cloned().map(KeyMatch::Exact).collect();
        if let Ok(there) = linear.find(&key, 0) {
            if replace {
                there.entry.action = EntryAction::Call(call);
                there.entry.idle_timeout_ns = idle_timeout_ns;
                there.last_hit_us = now_us;
            }
            return replace;
        }
        if replace {
            return false;
        }
        if linear.installed.len() as u64 >= linear.size {
            let timed = dynamic.expiry != Expiry::Never;
            let may_end = |i: &&Installed| !timed || i.entry.idle_timeout_ns > 0;
            let oldest = linear.installed.iter().filter(may_end).min_by_key(|i| i.last_hit_us).map(|i| i.serial);
            let Some(oldest) = oldest.filter(|_| dynamic.evicts) else {
                counts.refused += 1;
                return false;
            };
            linear.installed.retain(|i| i.serial != oldest);
            counts.evicted += 1;
        }
        linear.push(TableEntry { key, priority: 0, action: EntryAction::Call(call), idle_timeout_ns }, now_us);
        true
    }

    /// Restarts an entry's timer (`ir::Op::RestartTimer`).
    pub fn restart_timer(&self, table: TableId, entry: u64, expire: Option<u64>) {
        let Some(dynamic) = &self.program.tables[table.index()].dynamic else { return };
        let timeout_ns = match expire.map(|number| Self::timeout_ns(dynamic, number)) {
            None => None,
            Some(Some(timeout_ns)) => Some(timeout_ns),
            Some(None) => return,
        };
        let mut content = self.lock();
        let now_us = tick(content.now_us);
        let Some(installed) = content.tables[table.index()].by_serial(entry).filter(|i| i.serial != 0) else { return };
        installed.last_hit_us = now_us;
        installed.entry.idle_timeout_ns = timeout_ns.unwrap_or(installed.entry.idle_timeout_ns);
    }

    /// Checks the timeouts of all entries.
    pub(super) fn expire_all(&self) {
        let mut content = self.lock();
        let Content { tables, expired, dynamic_counts, now_us, .. } = &mut *content;
        for (i, described) in self.program.tables.iter().enumerate() {
            let Some(dynamic) = described.dynamic.as_ref().filter(|d| d.expiry != Expiry::Never) else { continue };
            let (linear, counts) = (&mut tables[i], &mut dynamic_counts[i]);
            let step = dynamic.step_ticks(TICK_US);
            for installed in linear.installed.iter_mut().filter(|i| i.is_over(step, *now_us)) {
                counts.expired += 1;
                installed.notified_us = *now_us;
                if dynamic.expiry == Expiry::Delete {
                    continue;
                }
                if expired.len() < EXPIRED_MAX {
                    expired.push((TableId::from_index(i), installed.entry.clone()));
                } else {
                    counts.unreported += 1;
                }
            }
            if dynamic.expiry.deletes() {
                let now_us = *now_us;
                linear
                    .installed
                    .retain(|i| i.notified_us != now_us || i.entry.idle_timeout_ns == 0 || i.notified_us == 0);
            }
        }
    }
}
