//! Multipart replies (OpenFlow 1.3.5, 7.3.5; 1.4.1, 7.3.5; 1.5.1, 7.3.5).
//!
//! A reply that may be long is an [`Answer`], which the connection converts to messages as fast as the peer reads
//! them. It stores the locations of flows, groups and meters, not references to them. An object that is replaced or
//! deleted before its turn is shown as it is then, or not at all, and a connection that reads slowly keeps no
//! objects alive.

use crate::bridge::Bridge;
use crate::controllers::Endpoint;
use crate::expiry::{timeouts, used_us};
use crate::features;
use crate::flow::{Flow, Group, Meter, Usage};
use crate::flow_mod::{ALL_TABLES, is_selected, select};
use crate::monitor::shows;
use crate::tables::{Spot, Tables, limit, table_config};
use openflow::action::port;
use openflow::message::{
    ControllerStatus, Counts, FlowEntry, FlowFilter, FlowMonitor, FlowUpdate, GROUP_ALL, GroupDesc, GroupStats,
    MeterCommand, MeterMod, MeterStats, PortStats, Queue, QueueStats, RemovedReason, Reply, Request, TableStats,
    UpdateEvent, meter,
};
use openflow::{Error, ErrorKind, Instructions, Version};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// All queues, in requests.
const QUEUE_ALL: u32 = u32::MAX;

/// A multipart reply that is sent in parts.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A complete reply.
    Whole(Reply),
    /// Flows that pass a filter; without their instructions if `is_brief`.
    Flows { flows: Vec<Spot>, filter: Box<FlowFilter>, is_brief: bool },
    /// The initial flows of monitors.
    Monitored { flows: Vec<Spot>, monitors: Vec<FlowMonitor> },
    /// Table features, from this table on.
    TableFeatures(u8),
    /// Group statistics.
    Groups(Vec<u32>),
    /// Group descriptions.
    GroupDescs(Vec<u32>),
    /// Meter statistics.
    Meters(Vec<u32>),
    /// Meter configurations.
    MeterConfigs(Vec<u32>),
}

/// Maximum number of flows, groups or meters in a part.
const PART: usize = 64;

impl Answer {
    /// Bytes that it takes while it waits.
    pub fn bytes(&self) -> u64 {
        let bytes = match self {
            Answer::Flows { flows, filter, .. } => {
                flows.capacity() * size_of::<Spot>() + size_of::<FlowFilter>() + filter.matching.heap_bytes()
            }
            Answer::Monitored { flows, monitors } => {
                let matches: usize = monitors.iter().map(|monitor| monitor.matching.heap_bytes()).sum();
                flows.capacity() * size_of::<Spot>() + monitors.capacity() * size_of::<FlowMonitor>() + matches
            }
            Answer::Groups(ids) | Answer::GroupDescs(ids) | Answer::Meters(ids) | Answer::MeterConfigs(ids) => {
                ids.capacity() * size_of::<u32>()
            }
            // Bounded by the number of ports or tables.
            Answer::Whole(_) | Answer::TableFeatures(_) => 0,
        };
        bytes as u64
    }

    /// The next part, and whether more follow.
    pub fn part(&mut self, bridge: &Bridge, version: Version) -> (Reply, bool) {
        fn take<T>(of: &mut Vec<T>) -> (Vec<T>, bool) {
            let rest = of.len().saturating_sub(PART);
            let part = of.split_off(rest);
            (part, rest > 0)
        }
        let now_us = bridge.host.now_us();
        match self {
            Answer::Whole(reply) => (std::mem::replace(reply, Reply::Flow(Vec::new())), false),
            Answer::Flows { flows, filter, is_brief } => {
                let (part, more) = take(flows);
                let found = flows_at(bridge, &part);
                let found = found.iter().filter(|flow| is_selected(flow, filter));
                let entries = found.map(|flow| flow_entry(flow, now_us, !*is_brief)).collect();
                (if *is_brief { Reply::FlowStats(entries) } else { Reply::Flow(entries) }, more)
            }
            Answer::Monitored { flows, monitors } => {
                let (part, more) = take(flows);
                let full = |flow: &Arc<Flow>| {
                    let has_instructions = shows(monitors, flow)?;
                    let flow = flow_entry(flow, now_us, has_instructions);
                    Some(FlowUpdate::Full { event: UpdateEvent::Initial, reason: RemovedReason::IdleTimeout, flow })
                };
                (Reply::FlowMonitor(flows_at(bridge, &part).iter().filter_map(full).collect()), more)
            }
            Answer::TableFeatures(next) => {
                let table = *next;
                *next += 1;
                let (fields, capabilities) = (bridge.fields(), &bridge.admit.capabilities);
                let settings = bridge.tables().table(table).settings.clone();
                let features = features::table_features(table, &settings, fields, capabilities, version);
                (Reply::TableFeatures(vec![features]), *next < limit::TABLES)
            }
            Answer::Groups(groups) => {
                let (part, more) = take(groups);
                let groups = groups_of(bridge, &part);
                let state = bridge.state();
                let stats = |group: &Arc<Group>| GroupStats {
                    group: group.id,
                    references: state.index.flows_of_group(group.id) + state.index.groups_of_group(group.id),
                    counts: counts(&group.usage),
                    duration: since(group.created_us, now_us),
                    buckets: group.buckets.iter().map(|(_, usage)| counts(usage)).collect(),
                };
                (Reply::Group(groups.iter().map(stats).collect()), more)
            }
            Answer::GroupDescs(groups) => {
                let (part, more) = take(groups);
                let groups = groups_of(bridge, &part);
                let desc = |group: &Arc<Group>| GroupDesc {
                    group: group.id,
                    kind: group.kind,
                    buckets: group.buckets.iter().map(|(bucket, _)| bucket.clone()).collect(),
                    selection: group.selection.clone(),
                };
                (Reply::GroupDesc(groups.iter().map(desc).collect()), more)
            }
            Answer::Meters(meters) => {
                let (part, more) = take(meters);
                let meters = meters_of(bridge, &part);
                let state = bridge.state();
                let stats = |meter: &Arc<Meter>| MeterStats {
                    meter: meter.id,
                    flows: state.index.flows_of_meter(meter.id),
                    counts: counts(&meter.usage),
                    duration: since(meter.created_us, now_us),
                    bands: meter.bands.iter().map(|band| counts(&band.usage)).collect(),
                };
                (Reply::Meter(meters.iter().map(stats).collect()), more)
            }
            Answer::MeterConfigs(meters) => {
                let (part, more) = take(meters);
                let meters = meters_of(bridge, &part);
                let config = |meter: &Arc<Meter>| MeterMod {
                    command: MeterCommand::Add,
                    flags: meter.flags,
                    meter: meter.id,
                    bands: meter.bands.iter().map(|band| band.band).collect(),
                };
                (Reply::MeterConfig(meters.iter().map(config).collect()), more)
            }
        }
    }
}

/// The flows at the locations of a part, which is in reverse order. The tables are unlocked before messages are
/// made of them.
fn flows_at(bridge: &Bridge, part: &[Spot]) -> Vec<Arc<Flow>> {
    let tables = bridge.tables();
    part.iter().rev().flat_map(|spot| tables.at(*spot)).cloned().collect()
}

fn groups_of(bridge: &Bridge, part: &[u32]) -> Vec<Arc<Group>> {
    let tables = bridge.tables();
    part.iter().rev().filter_map(|id| tables.group(*id)).cloned().collect()
}

fn meters_of(bridge: &Bridge, part: &[u32]) -> Vec<Arc<Meter>> {
    let tables = bridge.tables();
    part.iter().rev().filter_map(|id| tables.meter(*id)).cloned().collect()
}

/// The duration from one time to another, in seconds and nanoseconds.
pub(crate) fn since(then_us: impl Into<i128>, now_us: u64) -> (u32, u32) {
    let us = u64::try_from(i128::from(now_us) - then_us.into()).unwrap_or(0);
    (u32::try_from(us / 1_000_000).unwrap_or(u32::MAX), (us % 1_000_000) as u32 * 1000)
}

fn counts(usage: &Usage) -> Counts {
    let (packets, bytes) = usage.counts();
    Counts { packets, bytes }
}

/// A flow, as statistics describe it.
pub(crate) fn flow_entry(flow: &Flow, now_us: u64, has_instructions: bool) -> FlowEntry {
    FlowEntry {
        table: flow.table,
        matching: flow.matching.clone(),
        priority: flow.priority,
        cookie: flow.cookie,
        timeouts: timeouts(flow),
        flags: flow.flags,
        importance: flow.importance,
        duration: since(flow.created_us, now_us),
        ages: (since(used_us(flow), now_us).0, since(flow.modified_us, now_us).0),
        counts: counts(&flow.usage),
        instructions: if has_instructions { flow.instructions.clone() } else { Instructions::default() },
    }
}

impl Bridge {
    /// Prepares the reply to a multipart request.
    pub(crate) fn multipart(&self, endpoint: &Endpoint, request: Request, version: Version) -> Result<Answer, Error> {
        Ok(match request {
            Request::Desc => Answer::Whole(Reply::Desc(self.options.desc.clone())),
            Request::Flow(filter) => self.flows_of(filter, false)?,
            Request::FlowStats(filter) => self.flows_of(filter, true)?,
            Request::Aggregate(filter) => {
                let (mut counts, mut flows) = (Counts::default(), 0u32);
                self.select(&filter, |_, flow| {
                    let (packets, bytes) = flow.usage.counts();
                    counts.packets = counts.packets.wrapping_add(packets);
                    counts.bytes = counts.bytes.wrapping_add(bytes);
                    flows = flows.saturating_add(1);
                })?;
                Answer::Whole(Reply::Aggregate { counts, flows })
            }
            Request::Table => {
                self.host.sync_counts();
                Answer::Whole(Reply::Table(table_stats(&self.tables())))
            }
            Request::TableFeatures(new) => {
                if !new.is_empty() {
                    self.set_table_features(&new, version)?;
                }
                Answer::TableFeatures(0)
            }
            Request::TableDesc => Answer::Whole(table_descs(&self.tables())),
            Request::PortStats { port } => Answer::Whole(Reply::PortStats(self.port_stats(port)?)),
            Request::PortDesc { port } => {
                let ports = self.ports(port)?;
                let tables = self.tables();
                Answer::Whole(Reply::PortDesc(
                    ports.iter().filter_map(|port| tables.ports().get(*port).cloned()).collect(),
                ))
            }
            Request::Queue { port, queue } => Answer::Whole(Reply::Queue(self.queue_stats(port, queue)?)),
            Request::QueueDesc { port, queue } => Answer::Whole(Reply::QueueDesc(self.queues(port, queue)?)),
            Request::Group { group } => {
                self.host.sync_counts();
                Answer::Groups(self.groups(group))
            }
            Request::GroupDesc { group } => Answer::GroupDescs(self.groups(group)),
            Request::GroupFeatures => {
                Answer::Whole(Reply::GroupFeatures(features::group_features(&self.admit.capabilities)))
            }
            Request::Meter { meter } => {
                self.host.sync_counts();
                Answer::Meters(self.meters(meter)?)
            }
            Request::MeterConfig { meter } => Answer::MeterConfigs(self.meters(meter)?),
            Request::MeterFeatures => Answer::Whole(Reply::MeterFeatures(features::meter_features())),
            Request::FlowMonitor(monitors) => {
                let (flows, monitors) = self.monitor(endpoint, &monitors)?;
                Answer::Monitored { flows, monitors }
            }
            Request::BundleFeatures { .. } => Answer::Whole(Reply::BundleFeatures { capabilities: 0b11 }),
            Request::ControllerStatus => Answer::Whole(Reply::ControllerStatus(self.controller_status())),
            Request::Experimenter { experimenter, kind } => {
                let why = format!("experimenter {experimenter:#x}, type {kind}");
                return Err(Error::new(ErrorKind::BrcBadExperimenter, why));
            }
        })
    }

    fn flows_of(&self, filter: FlowFilter, is_brief: bool) -> Result<Answer, Error> {
        let mut flows = Vec::new();
        self.select(&filter, |spot, _| flows.push(spot))?;
        // Parts are taken from the end.
        flows.reverse();
        flows.shrink_to_fit();
        Ok(Answer::Flows { flows, filter: Box::new(filter), is_brief })
    }

    fn select(&self, filter: &FlowFilter, mut take: impl FnMut(Spot, &Flow)) -> Result<(), Error> {
        if filter.table != ALL_TABLES && filter.table >= limit::TABLES {
            return Err(Error::new(ErrorKind::BrcBadTableId, format!("there is no table {}", filter.table)));
        }
        self.host.sync_counts();
        // Holding the state lock keeps writers from blocking the workers' reads: see `bridge`.
        let _state = self.state();
        let tables = self.tables();
        select(&tables, filter).for_each(|(spot, flow)| take(spot, flow));
        Ok(())
    }

    /// The ports that a request selects.
    fn ports(&self, number: u32) -> Result<Vec<u32>, Error> {
        let tables = self.tables();
        match number {
            port::ANY => Ok(tables.ports().iter().map(|port| port.number).collect()),
            number if tables.ports().get(number).is_some() => Ok(vec![number]),
            number => Err(Error::new(ErrorKind::BrcBadPort, format!("there is no port {number}"))),
        }
    }

    fn port_stats(&self, number: u32) -> Result<Vec<PortStats>, Error> {
        self.host.sync_counts();
        Ok(self.ports(number)?.into_iter().filter_map(|port| self.host.port_stats(port)).collect())
    }

    /// The queues of a port, or of all ports.
    pub(crate) fn queues(&self, number: u32, queue: u32) -> Result<Vec<Queue>, Error> {
        let ports = self.ports(number).map_err(|error| Error::new(ErrorKind::QofcBadPort, error.text))?;
        let mut found: Vec<Queue> = ports.into_iter().flat_map(|port| self.host.queues(port)).collect();
        found.retain(|of| queue == QUEUE_ALL || of.queue == queue);
        self.has_queue(queue, found.is_empty())?;
        Ok(found)
    }

    fn queue_stats(&self, number: u32, queue: u32) -> Result<Vec<QueueStats>, Error> {
        self.host.sync_counts();
        let ports = self.ports(number).map_err(|error| Error::new(ErrorKind::QofcBadPort, error.text))?;
        let mut found: Vec<QueueStats> = ports.into_iter().flat_map(|port| self.host.queue_stats(port)).collect();
        found.retain(|of| queue == QUEUE_ALL || of.queue == queue);
        self.has_queue(queue, found.is_empty())?;
        Ok(found)
    }

    fn has_queue(&self, queue: u32, is_empty: bool) -> Result<(), Error> {
        if queue != QUEUE_ALL && is_empty {
            return Err(Error::new(ErrorKind::QofcBadQueue, format!("there is no queue {queue}")));
        }
        Ok(())
    }

    fn groups(&self, id: u32) -> Vec<u32> {
        let tables = self.tables();
        let mut groups: Vec<u32> = match id {
            GROUP_ALL => tables.groups().map(|group| group.id).collect(),
            id => tables.group(id).map(|group| group.id).into_iter().collect(),
        };
        groups.sort_unstable_by_key(|id| std::cmp::Reverse(*id));
        groups
    }

    fn meters(&self, id: u32) -> Result<Vec<u32>, Error> {
        let tables = self.tables();
        let mut meters: Vec<u32> = match id {
            meter::ALL => tables.meters().map(|meter| meter.id).collect(),
            id => match tables.meter(id) {
                Some(meter) => vec![meter.id],
                None => return Err(Error::new(ErrorKind::MmfcUnknownMeter, format!("there is no meter {id}"))),
            },
        };
        meters.reverse();
        Ok(meters)
    }

    fn controller_status(&self) -> Vec<ControllerStatus> {
        let endpoints = self.endpoints();
        let controllers = endpoints.values().filter(|endpoint| !endpoint.is_service);
        let status = |endpoint: &Arc<Endpoint>| {
            let status = endpoint.status();
            ControllerStatus {
                short: status.short,
                role: status.role,
                reason: 0,
                is_up: status.version.is_some(),
                uri: endpoint.uri.clone(),
            }
        };
        controllers.map(status).collect()
    }
}

fn table_stats(tables: &Tables) -> Vec<TableStats> {
    let stats = |(number, table): (u8, &crate::tables::Table)| TableStats {
        table: number,
        name: if table.settings.name.is_empty() { format!("table{number}") } else { table.settings.name.clone() },
        max: table.max_flows() as u32,
        active: table.flows.len() as u32,
        lookups: table.lookups.load(Ordering::Relaxed),
        matched: table.matches.load(Ordering::Relaxed),
    };
    tables.iter().map(stats).collect()
}

fn table_descs(tables: &Tables) -> Reply {
    let desc = |(number, table): (u8, &crate::tables::Table)| {
        let (down, up) = table.settings.vacancy;
        let config = table.settings.config;
        (number, config, (config & table_config::VACANCY_EVENTS != 0).then(|| (down, up, table.vacancy())))
    };
    Reply::TableDesc(tables.iter().map(desc).collect())
}
