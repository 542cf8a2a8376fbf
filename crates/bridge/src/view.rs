//! What requests are planned on: the tables as they are, and on top of them what earlier requests of the same bundle will change.
//!
//! So a bundle is planned while packets read the tables, however long that takes; they are changed when all of it is known to succeed.

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

/// Planned changes that have not been made.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    flows: HashMap<u8, Flows>,
    groups: HashMap<u32, Option<Arc<Group>>>,
    meters: HashMap<u32, Option<Arc<Meter>>>,
    ports: HashMap<u32, Option<Port>>,
    settings: HashMap<u8, TableSettings>,
    /// Groups and meters that come, less those that go.
    more: (isize, isize),
}

/// Of a table.
#[derive(Debug)]
struct Flows {
    /// New flows.
    added: Classifier,
    /// Addresses of flows in the table that are replaced or removed. The table holds them, so no other flow has these addresses.
    gone: HashSet<usize>,
}

/// Flows and subtables that were looked at to plan requests.
#[derive(Debug, Default)]
pub(crate) struct Visits(Cell<u64>);

impl Visits {
    /// So many more.
    pub fn add(&self, visits: u64) {
        self.0.set(self.0.get().saturating_add(visits));
    }

    /// All of them.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

fn address(flow: &Arc<Flow>) -> usize {
    Arc::as_ptr(flow) as usize
}

impl Overlay {
    /// Takes a planned change in.
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

/// Tables with planned changes.
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

    /// The tables as they will be.
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

    /// How many flows a table has.
    pub fn len(&self, table: u8) -> usize {
        let before = self.tables.table(table).flows.len();
        self.changed(table).map_or(before, |changed| before - changed.gone.len() + changed.added.len())
    }

    /// How many flows of a table have this cookie, at least.
    pub fn with_cookie(&self, table: u8, cookie: u64) -> usize {
        let added = self.changed(table).map_or(0, |changed| changed.added.with_cookie(cookie));
        self.tables.table(table).flows.with_cookie(cookie) + added
    }

    /// Whether a packet may match this and a flow of the same priority.
    pub fn has_overlap(&self, table: u8, matching: &Match, priority: u16, visits: &Visits) -> bool {
        let flows = &self.tables.table(table).flows;
        let changed = self.changed(table);
        let is_there = |flow: &Arc<Flow>| changed.is_none_or(|changed| !changed.gone.contains(&address(flow)));
        let mut looked_at = 0;
        // Of a table whose flows have all been deleted none needs to be looked at.
        let some_are_left = changed.is_none_or(|changed| changed.gone.len() < flows.len());
        let overlaps = (some_are_left && flows.overlapping(matching, priority, &is_there, &mut looked_at).is_some())
            || changed.is_some_and(|of| of.added.overlapping(matching, priority, &|_| true, &mut looked_at).is_some());
        visits.add(looked_at);
        overlaps
    }

    /// Memory of `pool` for bytes, once `freed` are given back; indices for overlap checks are given up if it is short.
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

    /// How many groups there are.
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

    /// How many meters there are.
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
    /// Takes the change into the index. `view` is what it was planned on; after that the change is made, or undone here.
    pub fn index(&self, view: View<'_>, index: &mut Index) {
        self.index_as(view, index, false);
    }

    /// Makes it not have been in the index.
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
