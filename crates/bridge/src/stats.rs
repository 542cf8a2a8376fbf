//! Answers to multipart requests (OpenFlow 1.3.5, 7.3.5; 1.4.1, 7.3.5; 1.5.1, 7.3.5).
//!
//! What may be long is an [`Answer`] of shared pointers, which the connection turns into messages as fast as they are read.

use crate::bridge::Bridge;
use crate::controllers::Endpoint;
use crate::expiry::{timeouts, used_us};
use crate::features;
use crate::flow::{Flow, Group, Meter, Usage};
use crate::flow_mod::{ALL_TABLES, select};
use crate::tables::{Tables, limit, table_config};
use openflow::action::port;
use openflow::message::{
    ControllerStatus, Counts, FlowEntry, FlowFilter, FlowUpdate, GROUP_ALL, GroupDesc, GroupStats, MeterCommand,
    MeterMod, MeterStats, PortStats, Queue, QueueStats, RemovedReason, Reply, Request, TableStats, UpdateEvent, meter,
};
use openflow::{Error, ErrorKind, Instructions, Version};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// All queues, in requests.
const QUEUE_ALL: u32 = u32::MAX;

/// An answer, to be given in parts.
#[derive(Debug)]
pub(crate) enum Answer {
    /// All of it.
    Whole(Reply),
    /// Flows; without what they do if `is_brief`.
    Flows { flows: Vec<Arc<Flow>>, is_brief: bool },
    /// Flows that a monitor finds, each with or without what it does.
    Monitored(Vec<(Arc<Flow>, bool)>),
    /// What tables can do, from this one on.
    TableFeatures(u8),
    /// Groups, with what went through them.
    Groups(Vec<Arc<Group>>),
    /// Groups, with what they do.
    GroupDescs(Vec<Arc<Group>>),
    /// Meters, with what went through them.
    Meters(Vec<Arc<Meter>>),
    /// Meters, with what they do.
    MeterConfigs(Vec<Arc<Meter>>),
}

/// Flows, groups or meters of a part.
const PART: usize = 64;

impl Answer {
    /// Bytes that it takes until it is given, beside what it points to.
    pub fn bytes(&self) -> u64 {
        let bytes = match self {
            Answer::Flows { flows, .. } => flows.capacity() * size_of::<Arc<Flow>>(),
            Answer::Monitored(flows) => flows.capacity() * size_of::<(Arc<Flow>, bool)>(),
            Answer::Groups(groups) | Answer::GroupDescs(groups) => groups.capacity() * size_of::<Arc<Group>>(),
            Answer::Meters(meters) | Answer::MeterConfigs(meters) => meters.capacity() * size_of::<Arc<Meter>>(),
            // At most as long as there are ports or tables.
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
            Answer::Flows { flows, is_brief } => {
                let (part, more) = take(flows);
                let entries = part.iter().rev().map(|flow| flow_entry(flow, now_us, !*is_brief)).collect();
                (if *is_brief { Reply::FlowStats(entries) } else { Reply::Flow(entries) }, more)
            }
            Answer::Monitored(flows) => {
                let (part, more) = take(flows);
                let full = |(flow, has_instructions): &(Arc<Flow>, bool)| FlowUpdate::Full {
                    event: UpdateEvent::Initial,
                    reason: RemovedReason::IdleTimeout,
                    flow: flow_entry(flow, now_us, *has_instructions),
                };
                (Reply::FlowMonitor(part.iter().rev().map(full).collect()), more)
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
                let state = bridge.state();
                let stats = |group: &Arc<Group>| GroupStats {
                    group: group.id,
                    references: state.index.flows_of_group(group.id) + state.index.groups_of_group(group.id),
                    counts: counts(&group.usage),
                    duration: since(group.created_us, now_us),
                    buckets: group.buckets.iter().map(|(_, usage)| counts(usage)).collect(),
                };
                (Reply::Group(part.iter().rev().map(stats).collect()), more)
            }
            Answer::GroupDescs(groups) => {
                let (part, more) = take(groups);
                let desc = |group: &Arc<Group>| GroupDesc {
                    group: group.id,
                    kind: group.kind,
                    buckets: group.buckets.iter().map(|(bucket, _)| bucket.clone()).collect(),
                    selection: group.selection.clone(),
                };
                (Reply::GroupDesc(part.iter().rev().map(desc).collect()), more)
            }
            Answer::Meters(meters) => {
                let (part, more) = take(meters);
                let state = bridge.state();
                let stats = |meter: &Arc<Meter>| MeterStats {
                    meter: meter.id,
                    flows: state.index.flows_of_meter(meter.id),
                    counts: counts(&meter.usage),
                    duration: since(meter.created_us, now_us),
                    bands: meter.bands.iter().map(|band| counts(&band.usage)).collect(),
                };
                (Reply::Meter(part.iter().rev().map(stats).collect()), more)
            }
            Answer::MeterConfigs(meters) => {
                let (part, more) = take(meters);
                let config = |meter: &Arc<Meter>| MeterMod {
                    command: MeterCommand::Add,
                    flags: meter.flags,
                    meter: meter.id,
                    bands: meter.bands.iter().map(|band| band.band).collect(),
                };
                (Reply::MeterConfig(part.iter().rev().map(config).collect()), more)
            }
        }
    }
}

/// Seconds and nanoseconds from one time to another.
pub(crate) fn since(then_us: impl Into<i128>, now_us: u64) -> (u32, u32) {
    let us = u64::try_from(i128::from(now_us) - then_us.into()).unwrap_or(0);
    (u32::try_from(us / 1_000_000).unwrap_or(u32::MAX), (us % 1_000_000) as u32 * 1000)
}

fn counts(usage: &Usage) -> Counts {
    let (packets, bytes) = usage.counts();
    Counts { packets, bytes }
}

/// A flow, as a controller is shown it.
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
    /// Answers a request.
    pub(crate) fn multipart(&self, endpoint: &Endpoint, request: Request, version: Version) -> Result<Answer, Error> {
        Ok(match request {
            Request::Desc => Answer::Whole(Reply::Desc(self.options.desc.clone())),
            Request::Flow(filter) => Answer::Flows { flows: self.select(&filter)?, is_brief: false },
            Request::FlowStats(filter) => Answer::Flows { flows: self.select(&filter)?, is_brief: true },
            Request::Aggregate(filter) => {
                let mut sum = Counts::default();
                let flows = self.select(&filter)?;
                for flow in &flows {
                    let (packets, bytes) = flow.usage.counts();
                    sum.packets = sum.packets.wrapping_add(packets);
                    sum.bytes = sum.bytes.wrapping_add(bytes);
                }
                Answer::Whole(Reply::Aggregate { counts: sum, flows: u32::try_from(flows.len()).unwrap_or(u32::MAX) })
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
            Request::FlowMonitor(monitors) => Answer::Monitored(self.monitor(endpoint, &monitors)?),
            Request::BundleFeatures { .. } => Answer::Whole(Reply::BundleFeatures { capabilities: 0b11 }),
            Request::ControllerStatus => Answer::Whole(Reply::ControllerStatus(self.controller_status())),
            Request::Experimenter { experimenter, kind } => {
                let why = format!("experimenter {experimenter:#x}, type {kind}");
                return Err(Error::new(ErrorKind::BrcBadExperimenter, why));
            }
        })
    }

    fn select(&self, filter: &FlowFilter) -> Result<Vec<Arc<Flow>>, Error> {
        if filter.table != ALL_TABLES && filter.table >= limit::TABLES {
            return Err(Error::new(ErrorKind::BrcBadTableId, format!("there is no table {}", filter.table)));
        }
        self.host.sync_counts();
        // See `bridge` for why.
        let _state = self.state();
        let mut found = select(&self.tables(), filter);
        // Parts are taken from the end.
        found.reverse();
        Ok(found)
    }

    /// The ports that a request names.
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

    /// The queues of a port, or of all.
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

    fn groups(&self, id: u32) -> Vec<Arc<Group>> {
        let tables = self.tables();
        let mut groups: Vec<Arc<Group>> = match id {
            GROUP_ALL => tables.groups().cloned().collect(),
            id => tables.group(id).cloned().into_iter().collect(),
        };
        groups.sort_unstable_by_key(|group| std::cmp::Reverse(group.id));
        groups
    }

    fn meters(&self, id: u32) -> Result<Vec<Arc<Meter>>, Error> {
        let tables = self.tables();
        let mut meters: Vec<Arc<Meter>> = match id {
            meter::ALL => tables.meters().cloned().collect(),
            id => match tables.meter(id) {
                Some(meter) => vec![Arc::clone(meter)],
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
