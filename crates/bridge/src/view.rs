//! The state on which requests are planned: the tables, overlaid with the planned changes of earlier requests of
//! the same bundle.
//!
//! A bundle can thus be planned while packets read the tables, however long that takes. The tables are changed once
//! the whole bundle is known to succeed.

use crate::change::{Change, FlowChange};
use crate::classifier::Classifier;
use crate::flow::{Flow, Group, Meter};
use crate::memory::{Charge, Pool};
use crate::references::Index;
use crate::tables::{TableSettings, Tables, limit, table_config};
use openflow::Match;
use openflow::message::Port;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Planned changes that have not been applied.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    flows: HashMap<u8, Flows>,
    groups: HashMap<u32, Option<Arc<Group>>>,
    meters: HashMap<u32, Option<Arc<Meter>>>,
    ports: HashMap<u32, Option<Port>>,
    settings: HashMap<u8, TableSettings>,
    /// Net number of groups and of meters that are added.
    more: (isize, isize),
}

/// Planned changes of a table's flows.
#[derive(Debug)]
struct Flows {
    /// New flows.
    added: Classifier,
    /// Addresses of flows in the table that are replaced or removed. The table references them, so the addresses
    /// are not reused.
    gone: HashSet<usize>,
}

/// A count of the flows and subtables visited while requests are planned.
#[derive(Debug, Default)]
pub(crate) struct Visits(Cell<u64>);

impl Visits {
    /// Adds visits.
    pub fn add(&self, visits: u64) {
        self.0.set(self.0.get().saturating_add(visits));
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

fn address(flow: &Arc<Flow>) -> usize {
    Arc::as_ptr(flow) as usize
}

impl Overlay {
    /// Adds a planned change.
    pub fn add(&mut self, change: &Change, tables: &Tables) {
        match change {
            Change::Flow(change) => self.add_flow(change, tables),
            Change::Group { id, old, new } => {
                self.groups.insert(*id, new.clone());
                self.more.0 += isize::from(new.is_some()) - isize::from(old.is_some());
            }
            Change::Meter { id, old, new } => {
                self.meters.insert(*id, new.clone());
                self.more.1 += isize::from(new.is_some()) - isize::from(old.is_some());
            }
            Change::Port { number, new, .. } => drop(self.ports.insert(*number, new.clone())),
            Change::Settings { table, new, .. } => drop(self.settings.insert(*table, new.clone())),
        }
    }

    fn add_flow(&mut self, change: &FlowChange, tables: &Tables) {
        let Some(table) = change.new.as_ref().or(change.old.as_ref()).map(|flow| flow.table) else { return };
        let new =
            || Flows { added: Classifier::charging(tables.layout(), &tables.memory().state), gone: HashSet::new() };
        let flows = self.flows.entry(table).or_insert_with(new);
        if let Some(old) = &change.old {
            let is_added =
                flows.added.find(&old.matching, old.priority).is_some_and(|flow| address(flow) == address(old));
            if !is_added {
                flows.gone.insert(address(old));
            } else if change.new.is_none() {
                flows.added.remove(&old.matching, old.priority);
            }
        }
        if let Some(new) = &change.new {
            flows.added.insert(Arc::clone(new));
        }
    }
}

/// The tables with planned changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    tables: &'a Tables,
    overlay: Option<&'a Overlay>,
}

impl<'a> View<'a> {
    /// The tables as they are.
    pub fn of(tables: &'a Tables) -> View<'a> {
        View { tables, overlay: None }
    }

    /// The tables as they will be after the planned changes.
    pub fn with(tables: &'a Tables, overlay: &'a Overlay) -> View<'a> {
        View { tables, overlay: Some(overlay) }
    }

    fn changed(&self, table: u8) -> Option<&'a Flows> {
        self.overlay?.flows.get(&table)
    }

    /// The flow of a table with this match and priority.
    pub fn find(&self, table: u8, matching: &Match, priority: u16) -> Option<&'a Arc<Flow>> {
        let changed = self.changed(table);
        let added = changed.and_then(|changed| changed.added.find(matching, priority));
        let is_there = |flow: &&Arc<Flow>| changed.is_none_or(|changed| !changed.gone.contains(&address(flow)));
        added.or_else(|| self.tables.table(table).flows.find(matching, priority).filter(is_there))
    }

    /// The flows of a table, in no order.
    pub fn flows(&self, table: u8) -> impl Iterator<Item = &'a Arc<Flow>> + use<'a> {
        let changed = self.changed(table);
        let is_there = move |flow: &&Arc<Flow>| changed.is_none_or(|changed| !changed.gone.contains(&address(flow)));
        let before = self.tables.table(table).flows.iter().filter(is_there);
        before.chain(changed.into_iter().flat_map(|changed| changed.added.iter()))
    }

    /// The number of flows of a table.
    pub fn len(&self, table: u8) -> usize {
        let before = self.tables.table(table).flows.len();
        self.changed(table).map_or(before, |changed| before - changed.gone.len() + changed.added.len())
    }

    /// An upper bound of the number of flows with this cookie in a table: flows that planned changes remove are
    /// still counted.
    pub fn with_cookie(&self, table: u8, cookie: u64) -> usize {
        let added = self.changed(table).map_or(0, |changed| changed.added.with_cookie(cookie));
        self.tables.table(table).flows.with_cookie(cookie) + added
    }

    /// Whether a flow of the same priority overlaps with this match.
    pub fn has_overlap(&self, table: u8, matching: &Match, priority: u16, visits: &Visits) -> bool {
        let flows = &self.tables.table(table).flows;
        let changed = self.changed(table);
        let is_there = |flow: &Arc<Flow>| changed.is_none_or(|changed| !changed.gone.contains(&address(flow)));
        let mut looked_at = 0;
        // If all flows of a table have been removed, there is nothing to check.
        let some_are_left = changed.is_none_or(|changed| changed.gone.len() < flows.len());
        let overlaps = (some_are_left && flows.overlapping(matching, priority, &is_there, &mut looked_at).is_some())
            || changed.is_some_and(|of| of.added.overlapping(matching, priority, &|_| true, &mut looked_at).is_some());
        visits.add(looked_at);
        overlaps
    }

    /// Charges `bytes` to `pool` if they fit after `freed` bytes are released. If memory is short, drops the
    /// indices for overlap checks first.
    pub fn charge(&self, pool: &Arc<Pool>, bytes: u64, freed: u64) -> Option<Charge> {
        pool.charge(bytes, freed).or_else(|| {
            self.give_up_indices();
            pool.charge(bytes, freed)
        })
    }

    /// Frees the indices for overlap checks of all tables.
    pub fn give_up_indices(&self) {
        self.tables.iter().for_each(|(_, table)| table.flows.give_up_indices());
        (0..limit::TABLES).filter_map(|table| self.changed(table)).for_each(|of| of.added.give_up_indices());
    }

    /// A table's settings.
    pub fn settings(&self, table: u8) -> &'a TableSettings {
        let changed = self.overlay.and_then(|overlay| overlay.settings.get(&table));
        changed.unwrap_or(&self.tables.table(table).settings)
    }

    /// A group.
    pub fn group(&self, id: u32) -> Option<&'a Arc<Group>> {
        match self.overlay.and_then(|overlay| overlay.groups.get(&id)) {
            Some(changed) => changed.as_ref(),
            None => self.tables.group(id),
        }
    }

    /// All groups, in no order.
    pub fn groups(&self) -> impl Iterator<Item = &'a Arc<Group>> + use<'a> {
        let overlay = self.overlay;
        let is_same = move |group: &&Arc<Group>| overlay.is_none_or(|overlay| !overlay.groups.contains_key(&group.id));
        let changed = overlay.into_iter().flat_map(|overlay| overlay.groups.values().flatten());
        self.tables.groups().filter(is_same).chain(changed)
    }

    /// The number of groups.
    pub fn group_count(&self) -> usize {
        self.tables.groups().len().saturating_add_signed(self.overlay.map_or(0, |overlay| overlay.more.0))
    }

    /// A meter.
    pub fn meter(&self, id: u32) -> Option<&'a Arc<Meter>> {
        match self.overlay.and_then(|overlay| overlay.meters.get(&id)) {
            Some(changed) => changed.as_ref(),
            None => self.tables.meter(id),
        }
    }

    /// All meters, in no order.
    pub fn meters(&self) -> impl Iterator<Item = &'a Arc<Meter>> + use<'a> {
        let overlay = self.overlay;
        let is_same = move |meter: &&Arc<Meter>| overlay.is_none_or(|overlay| !overlay.meters.contains_key(&meter.id));
        let changed = overlay.into_iter().flat_map(|overlay| overlay.meters.values().flatten());
        self.tables.meters().filter(is_same).chain(changed)
    }

    /// The number of meters.
    pub fn meter_count(&self) -> usize {
        self.tables.meters().len().saturating_add_signed(self.overlay.map_or(0, |overlay| overlay.more.1))
    }

    /// A port.
    pub fn port(&self, number: u32) -> Option<&'a Port> {
        match self.overlay.and_then(|overlay| overlay.ports.get(&number)) {
            Some(changed) => changed.as_ref(),
            None => self.tables.ports().get(number),
        }
    }
}

impl Change {
    /// Updates the index for this change. `view` is the state on which it was planned; afterwards the change is
    /// applied.
    pub fn index(&self, view: View<'_>, index: &mut Index) {
        self.index_as(view, index, false);
    }

    /// Reverts [`Change::index`].
    pub fn undo(&self, view: View<'_>, index: &mut Index) {
        self.index_as(view, index, true);
    }

    fn index_as(&self, view: View<'_>, index: &mut Index, backwards: bool) {
        fn pair<T>(old: T, new: T, backwards: bool) -> (T, T) {
            if backwards { (new, old) } else { (old, new) }
        }
        match self {
            Change::Flow(change) => {
                let (old, new) = pair(change.old.as_ref(), change.new.as_ref(), backwards);
                index.replace(old, new);
            }
            Change::Group { old, new, .. } => {
                let (old, new) = pair(old.as_deref(), new.as_deref(), backwards);
                index.replace_group(old, new);
            }
            Change::Settings { table, old, new } => {
                let (old, new) = pair(old, new, backwards);
                let evicts = |settings: &TableSettings| settings.config & table_config::EVICTION != 0;
                if evicts(old) != evicts(new) {
                    let mut flows = view.flows(*table);
                    index.set_eviction(*table, evicts(new).then_some(&mut flows));
                }
            }
            Change::Meter { .. } | Change::Port { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::bridge::{Bridge, BridgeOptions, Step};
    use crate::flow_mod::Origin;
    use crate::testing::{NoSwitch, program};
    use openflow::message::{FlowCommand, FlowMod, GROUP_ANY, Timeouts, flow_flag};
    use openflow::{Action, Instructions, Match};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    #[test]
    fn packets_read_tables_while_a_bundle_is_planned() {
        let bridge =
            Arc::new(Bridge::new(&program(), Arc::new(NoSwitch::default()), BridgeOptions::default()).unwrap());
        let request = FlowMod {
            command: FlowCommand::Add,
            table: 0,
            matching: Match::any(),
            priority: 1,
            cookie: 0,
            cookie_mask: 0,
            timeouts: Timeouts::default(),
            buffer: u32::MAX,
            out_port: openflow::action::port::ANY,
            out_group: GROUP_ANY,
            flags: flow_flag::CHECK_OVERLAP,
            importance: 0,
            instructions: Instructions { apply: vec![Action::Exit], ..Instructions::default() },
        };
        let add = |priority: u16| -> (Origin, Step<'_>) {
            let request = FlowMod { priority, ..request.clone() };
            let plan = move |plan: &super::super::flow_mod::Plan<'_>| {
                let changes = plan.flow_mod(&request, &Origin::SWITCH)?;
                Ok(changes.into_iter().map(crate::change::Change::Flow).collect())
            };
            (Origin::SWITCH, Box::new(plan))
        };
        let seen_meanwhile: Step<'_> = Box::new(|plan| {
            assert_eq!(plan.tables.len(0), 1, "the flow that was planned before");
            let (send, receive) = mpsc::channel();
            let reader = Arc::clone(&bridge);
            std::thread::spawn(move || send.send((reader.tables().table(0).flows.len(), reader.generation())));
            let seen = receive.recv_timeout(Duration::from_secs(60)).expect("a packet does not wait");
            assert_eq!(seen, (0, bridge.generation()), "and sees nothing of the bundle");
            Ok(Vec::new())
        });
        let before = bridge.generation();
        let mut steps = [add(1), (Origin::SWITCH, seen_meanwhile), add(2)].into_iter();
        bridge.change_atomically(&mut steps).unwrap();
        assert_eq!(bridge.tables().table(0).flows.len(), 2);
        assert!(bridge.generation() > before);
    }
}
