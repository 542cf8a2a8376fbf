//! References of flows and groups to groups, meters and learned flows, with counts.
//!
//! [`crate::change`] updates the [`Index`] along with [`crate::tables::Tables`], so that most requests need no scan
//! of all flows.

use crate::flow::{Flow, Group};
use crate::tables::limit;
use openflow::action::{Learn, port};
use openflow::{Action, Instructions};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// `NX_LEARN_F_DELETE_LEARNED`: learned flows are deleted with the last flow that learns them.
pub const LEARN_DELETES: u16 = 1 << 1;

/// Calls `f` with each action, including those inside of `clone` and `write_actions`.
pub(crate) fn each_action<'a>(actions: &'a [Action], f: &mut dyn FnMut(&'a Action)) {
    for action in actions {
        f(action);
        match action {
            Action::Clone(inner) | Action::WriteActions(inner) => each_action(inner, f),
            _ => {}
        }
    }
}

/// Calls `f` with each action of a flow's instructions.
pub(crate) fn each_of_flow<'a>(instructions: &'a Instructions, f: &mut dyn FnMut(&'a Action)) {
    each_action(&instructions.apply, f);
    each_action(&instructions.write, f);
}

/// Whether a flow outputs to a port, for the `out_port` filter of requests; [`port::ANY`] matches all flows.
pub(crate) fn outputs_to(instructions: &Instructions, to: u32) -> bool {
    if to == port::ANY {
        return true;
    }
    let mut found = false;
    each_of_flow(instructions, &mut |action| {
        found |= match action {
            Action::Output { port, .. } | Action::Enqueue { port, .. } | Action::OutputTruncated { port, .. } => {
                *port == to
            }
            Action::Controller(_) => to == port::CONTROLLER,
            _ => false,
        };
    });
    found
}

/// Whether a flow uses a group, for the `out_group` filter of requests; [`openflow::message::GROUP_ANY`] matches
/// all flows.
pub(crate) fn goes_through(instructions: &Instructions, to: u32) -> bool {
    to == openflow::message::GROUP_ANY || goes_through_any(instructions, &|id| id == to)
}

/// Whether a flow uses a group that passes `is_meant`.
pub(crate) fn goes_through_any(instructions: &Instructions, is_meant: &dyn Fn(u32) -> bool) -> bool {
    let mut found = false;
    each_of_flow(instructions, &mut |action| found |= matches!(action, Action::Group(group) if is_meant(*group)));
    found
}

/// Whether a flow uses a meter that passes `is_meant`.
pub(crate) fn uses_meter(instructions: &Instructions, is_meant: &dyn Fn(u32) -> bool) -> bool {
    let mut found = false;
    each_meter(instructions, &mut |id| found |= is_meant(id));
    found
}

fn each_meter(instructions: &Instructions, f: &mut dyn FnMut(u32)) {
    if let Some(id) = instructions.meter {
        f(id);
    }
    each_of_flow(instructions, &mut |action| match action {
        Action::Meter(id) => f(*id),
        Action::Controller(controller) => controller.meter.into_iter().for_each(&mut *f),
        _ => {}
    });
}

/// Calls `f` with each group that a group's buckets refer to by action or watch.
pub(crate) fn each_next_group(group: &Group, f: &mut dyn FnMut(u32)) {
    for (bucket, _) in &group.buckets {
        bucket.watch_group.into_iter().for_each(&mut *f);
        each_action(&bucket.actions, &mut |action| {
            if let Action::Group(id) = action {
                f(*id);
            }
        });
    }
}

/// Sort key of eviction: the least important flow first, then the one whose hard timeout expires first. The last
/// part is an address.
type Eviction = (u16, i64, usize);

fn eviction(flow: &Arc<Flow>) -> Option<Eviction> {
    let timeouts = flow.timeouts;
    let ends_us = match timeouts.hard {
        0 => i64::MAX,
        hard => flow.modified_us + i64::from(hard) * 1_000_000,
    };
    (timeouts.idle != 0 || timeouts.hard != 0).then(|| (flow.importance, ends_us, Arc::as_ptr(flow) as usize))
}

/// Counts of references between flows, groups, meters and learned flows.
#[derive(Debug)]
pub(crate) struct Index {
    /// Number of flows of all tables.
    pub flows: usize,
    /// Number of flows with a timeout.
    pub timed: usize,
    /// Number of flows that use each group.
    by_group: HashMap<u32, u32>,
    /// Number of groups that refer to each group.
    between_groups: HashMap<u32, u32>,
    /// Number of flows that use each meter.
    by_meter: HashMap<u32, u32>,
    /// By cookie and table, the number of flows that learn such flows with [`LEARN_DELETES`].
    learned: HashMap<(u64, u8), u32>,
    /// Keys of `learned` whose number has become zero, for [`Index::take_orphans`].
    orphans: Vec<(u64, u8)>,
    /// Flows that may be evicted, for tables with eviction.
    evictable: Vec<Option<BTreeMap<Eviction, Arc<Flow>>>>,
}

impl Default for Index {
    fn default() -> Index {
        Index {
            flows: 0,
            timed: 0,
            by_group: HashMap::new(),
            between_groups: HashMap::new(),
            by_meter: HashMap::new(),
            learned: HashMap::new(),
            orphans: Vec::new(),
            evictable: (0..limit::TABLES).map(|_| None).collect(),
        }
    }
}

impl Index {
    /// Updates the index for the replacement of a flow; either may be absent.
    pub fn replace(&mut self, old: Option<&Arc<Flow>>, new: Option<&Arc<Flow>>) {
        // Additions come first, so that references common to both never drop to zero.
        if let Some(new) = new {
            self.flows += 1;
            self.timed += usize::from(is_timed(new));
            self.count(new, 1);
            if let (Some(of), Some(key)) = (&mut self.evictable[usize::from(new.table)], eviction(new)) {
                of.insert(key, Arc::clone(new));
            }
        }
        if let Some(old) = old {
            self.flows -= 1;
            self.timed -= usize::from(is_timed(old));
            self.count(old, -1);
            if let (Some(of), Some(key)) = (&mut self.evictable[usize::from(old.table)], eviction(old)) {
                of.remove(&key);
            }
        }
    }

    fn count(&mut self, flow: &Flow, by: i32) {
        let mut groups = Vec::new();
        let mut learns: Vec<&Learn> = Vec::new();
        each_of_flow(&flow.instructions, &mut |action| match action {
            Action::Group(id) => groups.push(*id),
            Action::Learn(learn) if learn.flags & LEARN_DELETES != 0 => learns.push(learn),
            _ => {}
        });
        distinct(groups, &mut |id| {
            add(&mut self.by_group, id, by);
        });
        let mut meters = Vec::new();
        each_meter(&flow.instructions, &mut |id| meters.push(id));
        distinct(meters, &mut |id| {
            add(&mut self.by_meter, id, by);
        });
        for learn in learns {
            let key = (learn.cookie, learn.table);
            if add(&mut self.learned, key, by) == 0 {
                self.orphans.push(key);
            }
        }
    }

    /// Updates the index for the replacement of a group; either may be absent.
    pub fn replace_group(&mut self, old: Option<&Group>, new: Option<&Group>) {
        for (group, by) in [(new, 1), (old, -1)] {
            let mut next = Vec::new();
            group.into_iter().for_each(|group| each_next_group(group, &mut |id| next.push(id)));
            distinct(next, &mut |id| {
                add(&mut self.between_groups, id, by);
            });
        }
    }

    /// The number of flows that use a group.
    pub fn flows_of_group(&self, id: u32) -> u32 {
        self.by_group.get(&id).copied().unwrap_or(0)
    }

    /// The number of groups that refer to a group.
    pub fn groups_of_group(&self, id: u32) -> u32 {
        self.between_groups.get(&id).copied().unwrap_or(0)
    }

    /// The number of flows that use a meter.
    pub fn flows_of_meter(&self, id: u32) -> u32 {
        self.by_meter.get(&id).copied().unwrap_or(0)
    }

    /// Cookies and tables of learned flows whose last learning flow has been removed since the last call.
    pub fn take_orphans(&mut self) -> Vec<(u64, u8)> {
        let mut orphans = std::mem::take(&mut self.orphans);
        orphans.retain(|key| !self.learned.contains_key(key));
        orphans.sort_unstable();
        orphans.dedup();
        orphans
    }

    /// Discards orphans, because the changes that caused them were undone.
    pub fn forget_orphans(&mut self) {
        self.orphans.clear();
    }

    /// Starts (`Some`) or stops (`None`) tracking which flows of a table may be evicted.
    pub fn set_eviction(&mut self, table: u8, flows: Option<&mut dyn Iterator<Item = &Arc<Flow>>>) {
        self.evictable[usize::from(table)] =
            flows.map(|flows| flows.filter_map(|flow| Some((eviction(flow)?, Arc::clone(flow)))).collect());
    }

    /// The flows that may be evicted, in order of eviction.
    pub fn victims(&self, table: u8) -> impl Iterator<Item = &Arc<Flow>> {
        self.evictable[usize::from(table)].iter().flat_map(BTreeMap::values)
    }
}

/// Whether a flow has a timeout.
pub(crate) fn is_timed(flow: &Flow) -> bool {
    flow.timeouts.idle != 0 || flow.timeouts.hard != 0
}

fn distinct(mut ids: Vec<u32>, f: &mut dyn FnMut(u32)) {
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().for_each(f);
}

/// Adds to a count, which is removed when it becomes zero. Returns the new count.
fn add<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u32>, key: K, by: i32) -> u32 {
    use std::collections::hash_map::Entry;
    match counts.entry(key) {
        Entry::Vacant(vacant) if by > 0 => *vacant.insert(by.unsigned_abs()),
        Entry::Vacant(_) => 0,
        Entry::Occupied(mut occupied) => {
            let count = occupied.get().saturating_add_signed(by);
            match count {
                0 => drop(occupied.remove()),
                count => *occupied.get_mut() = count,
            }
            count
        }
    }
}
