//! What packets read: flow tables, groups, meters, ports.
//!
//! One writer at a time (`crate::bridge` holds a lock for that) changes it through the methods of this file, each of which
//! advances the generation of what it touches and the one of all, and says which packets it is about (`crate::recent`). Workers read
//! under a read lock and compare generations to find out which cached decisions to make anew.

use crate::classifier::{Classifier, Handle};
use crate::flow::{Flow, Group, Meter};
use crate::key::Layout;
use crate::memory::Memory;
use crate::ports::Ports;
use crate::recent::Dependence;
use crate::recent::{Extent, Recent};
use openflow::Match;
use openflow::message::Port;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// How much a bridge holds. Beyond, requests are refused with the error of the object in question.
pub mod limit {
    /// Tables, numbered from 0 (as Open vSwitch has them).
    pub const TABLES: u8 = 254;
    /// Flows of a table, unless it is configured to hold fewer.
    pub const FLOWS_PER_TABLE: usize = 1 << 20;
    /// Flows of all tables.
    pub const FLOWS: usize = 1 << 22;
    /// Groups.
    pub const GROUPS: usize = 1 << 16;
    /// Buckets of a group.
    pub const BUCKETS: usize = 1 << 12;
    /// Meters.
    pub const METERS: usize = 1 << 16;
    /// Bands of a meter.
    pub const BANDS: usize = 8;
    /// Flow monitors of a connection.
    pub const MONITORS: usize = 256;
    /// Flows that a bundle's requests may look at, all together: other requests wait meanwhile, for about a second.
    pub const BUNDLE_VISITS: u64 = 4 * FLOWS as u64;
    /// Open bundles of a connection.
    pub const BUNDLES: usize = 64;
    /// Packet-ins that wait for a connection to take them.
    pub const PACKET_INS: usize = 1024;
    /// Bytes of frames in them.
    pub const PACKET_IN_BYTES: usize = 4 << 20;
    /// Other messages that wait for a connection; one that takes none beyond this is closed.
    pub const EVENTS: usize = 1 << 20;
}

/// `OFPTC_` bits (1.4).
pub mod table_config {
    /// Makes room for new flows by evicting less important ones.
    pub const EVICTION: u32 = 1 << 2;
    /// Reports when free room goes under or over limits.
    pub const VACANCY_EVENTS: u32 = 1 << 3;
    /// All that are done.
    pub const ALL: u32 = EVICTION | VACANCY_EVENTS;
}

/// Where a flow is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    pub handle: Handle,
    pub table: u8,
}

/// What becomes of packets that no flow of a table matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// They are dropped (OpenFlow 1.3).
    Drop,
    /// They go to controllers (OpenFlow 1.0).
    Controller,
}

/// A table's settings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableSettings {
    /// [`table_config`] bits.
    pub config: u32,
    /// Free room in percent under and over which there are events.
    pub vacancy: (u8, u8),
    /// What people call it.
    pub name: String,
    /// Most flows, if fewer than [`limit::FLOWS_PER_TABLE`].
    pub max_flows: Option<u32>,
}

/// A flow table.
#[derive(Debug)]
pub struct Table {
    /// Its flows.
    pub flows: Classifier,
    /// Its settings.
    pub settings: TableSettings,
    /// Packets that were looked up.
    pub lookups: AtomicU64,
    /// Packets that matched.
    pub matches: AtomicU64,
    generation: u64,
}

impl TableSettings {
    /// Most flows, by default [`limit::FLOWS_PER_TABLE`].
    pub fn max_flows(&self) -> usize {
        self.max_flows.map_or(limit::FLOWS_PER_TABLE, |max| (max as usize).min(limit::FLOWS_PER_TABLE))
    }
}

impl Table {
    /// Most flows.
    pub fn max_flows(&self) -> usize {
        self.settings.max_flows()
    }

    /// Free room in percent, rounded down.
    pub fn vacancy(&self) -> u8 {
        let max = self.max_flows().max(1);
        (100 * max.saturating_sub(self.flows.len()) / max) as u8
    }
}

/// Everything that packets read.
#[derive(Debug)]
pub struct Tables {
    layout: Arc<Layout>,
    tables: Vec<Table>,
    groups: HashMap<u32, Arc<Group>>,
    meters: BTreeMap<u32, Arc<Meter>>,
    ports: Ports,
    miss: Miss,
    fragments: u16,
    groups_generation: u64,
    meters_generation: u64,
    ports_generation: u64,
    recent: Arc<Recent>,
    memory: Arc<Memory>,
}

impl Tables {
    /// Empty tables for flows of these fields.
    pub fn new(layout: &Arc<Layout>) -> Tables {
        let memory = Arc::new(Memory::default());
        let table = |_| Table {
            flows: Classifier::charging(layout, &memory.state),
            settings: TableSettings::default(),
            lookups: AtomicU64::new(0),
            matches: AtomicU64::new(0),
            generation: 1,
        };
        Tables {
            layout: Arc::clone(layout),
            tables: (0..limit::TABLES).map(table).collect(),
            groups: HashMap::new(),
            meters: BTreeMap::new(),
            ports: Ports::default(),
            miss: Miss::Drop,
            fragments: 0,
            groups_generation: 1,
            meters_generation: 1,
            ports_generation: 1,
            recent: Arc::default(),
            memory,
        }
    }

    /// How fields lie in keys.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// A table.
    ///
    /// # Panics
    /// If `number` is [`limit::TABLES`] or more; no flow goes there.
    pub fn table(&self, number: u8) -> &Table {
        &self.tables[usize::from(number)]
    }

    /// All tables, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &Table)> {
        (0..).zip(&self.tables)
    }

    /// What is now where a flow was.
    pub(crate) fn at(&self, spot: Spot) -> Vec<&Arc<Flow>> {
        self.table(spot.table).flows.at(spot.handle)
    }

    /// A group.
    pub fn group(&self, id: u32) -> Option<&Arc<Group>> {
        self.groups.get(&id)
    }

    /// All groups, in no order.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = &Arc<Group>> {
        self.groups.values()
    }

    /// A meter.
    pub fn meter(&self, id: u32) -> Option<&Arc<Meter>> {
        self.meters.get(&id)
    }

    /// All meters, by number.
    pub fn meters(&self) -> impl ExactSizeIterator<Item = &Arc<Meter>> {
        self.meters.values()
    }

    /// Ports.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// What becomes of packets that no flow matches.
    pub fn miss(&self) -> Miss {
        self.miss
    }

    /// How IP fragments are treated: `OFPC_FRAG_` bits.
    pub fn fragments(&self) -> u16 {
        self.fragments
    }

    /// Advances with every change of the table's flows or settings.
    pub fn generation(&self, table: u8) -> u64 {
        self.table(table).generation
    }

    /// Advances with every change of groups.
    pub fn groups_generation(&self) -> u64 {
        self.groups_generation
    }

    /// Advances with every change of meters.
    pub fn meters_generation(&self) -> u64 {
        self.meters_generation
    }

    /// Advances with every change of ports, also of their state, and of [`Tables::miss`] and [`Tables::fragments`].
    pub fn ports_generation(&self) -> u64 {
        self.ports_generation
    }

    /// Advances with every change of anything. Read without a lock by [`crate::Bridge::generation`].
    pub fn global_generation(&self) -> u64 {
        self.recent.generation()
    }

    /// What all of it may take.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(crate) fn recent(&self) -> &Arc<Recent> {
        &self.recent
    }

    /// A flow of this match has come, gone, or become another.
    fn advance_flow(&self, table: u8, matching: &Match) {
        let extent = self.layout.terms(matching).map(|terms| Extent::flow(table, terms));
        self.recent.publish(extent.unwrap_or_else(Extent::nothing));
    }

    fn advance(&self, of: Dependence) {
        self.recent.publish(Extent::all(of));
    }

    /// Adds a flow in the place of one with the same match and priority, which is given back.
    pub(crate) fn insert_flow(&mut self, flow: Arc<Flow>) -> Option<Arc<Flow>> {
        let table = &mut self.tables[usize::from(flow.table)];
        table.generation += 1;
        let old = table.flows.insert(Arc::clone(&flow));
        self.advance_flow(flow.table, &flow.matching);
        old
    }

    /// Removes a flow.
    pub(crate) fn remove_flow(&mut self, table: u8, matching: &Match, priority: u16) -> Option<Arc<Flow>> {
        let of = &mut self.tables[usize::from(table)];
        of.generation += 1;
        let old = of.flows.remove(matching, priority);
        self.advance_flow(table, matching);
        old
    }

    /// Replaces a group, or removes it; gives the old one.
    pub(crate) fn replace_group(&mut self, id: u32, group: Option<Arc<Group>>) -> Option<Arc<Group>> {
        self.groups_generation += 1;
        let old = match group {
            Some(group) => self.groups.insert(id, group),
            None => self.groups.remove(&id),
        };
        self.advance(Dependence::Groups);
        old
    }

    /// Replaces a meter, or removes it; gives the old one.
    pub(crate) fn replace_meter(&mut self, id: u32, meter: Option<Arc<Meter>>) -> Option<Arc<Meter>> {
        self.meters_generation += 1;
        let old = match meter {
            Some(meter) => self.meters.insert(id, meter),
            None => self.meters.remove(&id),
        };
        self.advance(Dependence::Meters);
        old
    }

    /// Replaces a port, or removes it; gives the old one.
    pub(crate) fn replace_port(&mut self, number: u32, port: Option<Port>) -> Option<Port> {
        self.ports_generation += 1;
        let old = self.ports.replace(number, port);
        self.advance(Dependence::Ports);
        old
    }

    /// Changes a table's settings; gives the old ones.
    pub(crate) fn replace_settings(&mut self, table: u8, settings: TableSettings) -> TableSettings {
        let of = &mut self.tables[usize::from(table)];
        of.generation += 1;
        let old = std::mem::replace(&mut of.settings, settings);
        self.advance(Dependence::Table(table));
        old
    }

    pub(crate) fn set_miss(&mut self, miss: Miss) {
        if self.miss != miss {
            self.miss = miss;
            self.ports_generation += 1;
            self.advance(Dependence::Ports);
        }
    }

    pub(crate) fn set_fragments(&mut self, fragments: u16) {
        if self.fragments != fragments {
            self.fragments = fragments;
            self.ports_generation += 1;
            self.advance(Dependence::Ports);
        }
    }
}
