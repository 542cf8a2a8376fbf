//! State that packets read: flow tables, groups, meters, ports.
//!
//! There is one writer at a time, the holder of the state lock of `crate::bridge`. It changes the tables through
//! the methods of this file. Each of these advances the generation of the object that it changes and the global
//! generation, and publishes the extent of the change (`crate::recent`). Workers hold a read lock, and compare
//! generations to find out which cached translations are outdated.

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

/// Capacities of a bridge. A request that exceeds one is refused with the error for its kind of object.
pub mod limit {
    /// Tables, numbered from 0 (the same number as in Open vSwitch).
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
    /// Flows that the requests of one bundle may visit in total. Other requests wait meanwhile, for about a second
    /// at most.
    pub const BUNDLE_VISITS: u64 = 4 * FLOWS as u64;
    /// Open bundles of a connection.
    pub const BUNDLES: usize = 64;
    /// Packet-ins queued for a connection.
    pub const PACKET_INS: usize = 1024;
    /// Bytes of frames in queued packet-ins.
    pub const PACKET_IN_BYTES: usize = 4 << 20;
    /// Other messages queued for a connection; a connection that exceeds this is closed.
    pub const EVENTS: usize = 1 << 20;
}

/// `OFPTC_` bits (OpenFlow 1.4).
pub mod table_config {
    /// Makes room for new flows by evicting less important ones.
    pub const EVICTION: u32 = 1 << 2;
    /// Reports when the free space crosses the vacancy limits.
    pub const VACANCY_EVENTS: u32 = 1 << 3;
    /// All bits that are supported.
    pub const ALL: u32 = EVICTION | VACANCY_EVENTS;
}

/// Where a flow is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    pub handle: Handle,
    pub table: u8,
}

/// Handling of table misses, where no flow of a table matches a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// The packet is dropped (OpenFlow 1.3).
    Drop,
    /// The packet is sent to controllers (OpenFlow 1.0).
    Controller,
}

/// A table's settings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableSettings {
    /// [`table_config`] bits.
    pub config: u32,
    /// Limits of the free space, in percent: below the first and above the second there are vacancy events.
    pub vacancy: (u8, u8),
    /// Its name, for display.
    pub name: String,
    /// Maximum number of flows, if lower than [`limit::FLOWS_PER_TABLE`].
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
    /// Maximum number of flows, by default [`limit::FLOWS_PER_TABLE`].
    pub fn max_flows(&self) -> usize {
        self.max_flows.map_or(limit::FLOWS_PER_TABLE, |max| (max as usize).min(limit::FLOWS_PER_TABLE))
    }
}

impl Table {
    /// Maximum number of flows.
    pub fn max_flows(&self) -> usize {
        self.settings.max_flows()
    }

    /// Free space in percent, rounded down.
    pub fn vacancy(&self) -> u8 {
        let max = self.max_flows().max(1);
        (100 * max.saturating_sub(self.flows.len()) / max) as u8
    }
}

/// All state that packets read.
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
    /// Empty tables, for flows over the fields of `layout`.
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

    /// Where match fields are in records.
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

    /// The flows that are now stored where a flow was.
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

    /// All meters, by id.
    pub fn meters(&self) -> impl ExactSizeIterator<Item = &Arc<Meter>> {
        self.meters.values()
    }

    /// Ports.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// What happens to a packet on a table miss.
    pub fn miss(&self) -> Miss {
        self.miss
    }

    /// How IP fragments are treated: `OFPC_FRAG_` bits.
    pub fn fragments(&self) -> u16 {
        self.fragments
    }

    /// The table's generation: advances with every change of its flows or settings.
    pub fn generation(&self, table: u8) -> u64 {
        self.table(table).generation
    }

    /// Advances with every change of a group.
    pub fn groups_generation(&self) -> u64 {
        self.groups_generation
    }

    /// Advances with every change of a meter.
    pub fn meters_generation(&self) -> u64 {
        self.meters_generation
    }

    /// Advances with every change of a port or its state, of [`Tables::miss`] and of [`Tables::fragments`].
    pub fn ports_generation(&self) -> u64 {
        self.ports_generation
    }

    /// Advances with every change. [`crate::Bridge::generation`] reads it without a lock.
    pub fn global_generation(&self) -> u64 {
        self.recent.generation()
    }

    /// The memory accounts of the bridge.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(crate) fn recent(&self) -> &Arc<Recent> {
        &self.recent
    }

    /// Publishes that a flow with this match was added, removed or modified.
    fn advance_flow(&self, table: u8, matching: &Match) {
        let extent = self.layout.terms(matching).map(|terms| Extent::flow(table, terms));
        self.recent.publish(extent.unwrap_or_else(Extent::nothing));
    }

    fn advance(&self, of: Dependence) {
        self.recent.publish(Extent::all(of));
    }

    /// Adds a flow. Returns the flow with the same match and priority that it replaces.
    pub(crate) fn insert_flow(&mut self, flow: Arc<Flow>) -> Option<Arc<Flow>> {
        let table = &mut self.tables[usize::from(flow.table)];
        table.generation += 1;
        let old = table.flows.insert(Arc::clone(&flow));
        self.advance_flow(flow.table, &flow.matching);
        old
    }

    /// Removes a flow and returns it.
    pub(crate) fn remove_flow(&mut self, table: u8, matching: &Match, priority: u16) -> Option<Arc<Flow>> {
        let of = &mut self.tables[usize::from(table)];
        of.generation += 1;
        let old = of.flows.remove(matching, priority);
        self.advance_flow(table, matching);
        old
    }

    /// Replaces or removes a group; returns the old one.
    pub(crate) fn replace_group(&mut self, id: u32, group: Option<Arc<Group>>) -> Option<Arc<Group>> {
        self.groups_generation += 1;
        let old = match group {
            Some(group) => self.groups.insert(id, group),
            None => self.groups.remove(&id),
        };
        self.advance(Dependence::Groups);
        old
    }

    /// Replaces or removes a meter; returns the old one.
    pub(crate) fn replace_meter(&mut self, id: u32, meter: Option<Arc<Meter>>) -> Option<Arc<Meter>> {
        self.meters_generation += 1;
        let old = match meter {
            Some(meter) => self.meters.insert(id, meter),
            None => self.meters.remove(&id),
        };
        self.advance(Dependence::Meters);
        old
    }

    /// Replaces or removes a port; returns the old one.
    pub(crate) fn replace_port(&mut self, number: u32, port: Option<Port>) -> Option<Port> {
        self.ports_generation += 1;
        let old = self.ports.replace(number, port);
        self.advance(Dependence::Ports);
        old
    }

    /// Replaces a table's settings; returns the old ones.
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
