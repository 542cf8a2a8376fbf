//! Notifications about flows: flow-removed messages, flow monitors, vacancy events.
//!
//! Flow monitors are those of Nicira (ovs-ofctl(8), `monitor … watch:`) and of OpenFlow 1.4 (1.4.1, 7.3.5.17). A
//! connection's own changes are abbreviated to one update for each request, unless a monitor asks for them in full.
//! If a connection does not keep up, its monitors are paused: only removals of flows that it knows are still sent.
//! When it has read everything, it gets what has changed since.

use crate::bridge::{Bridge, State};
use crate::change::{Cause, FlowChange};
use crate::controllers::{Endpoint, Event, Kind, Status, Update};
use crate::flow::Flow;
use crate::flow_mod::{ALL_TABLES, Origin};
use crate::references::{goes_through, outputs_to};
use crate::tables::{Spot, TableSettings, limit, table_config};
use openflow::message::{FlowMonitor, MonitorCommand, RemovedReason, UpdateEvent, flow_flag, monitor_flag};
use openflow::{Error, ErrorKind, Message, Version};
use std::sync::Arc;

/// `OFPTR_VACANCY_DOWN`.
const VACANCY_DOWN: u8 = 3;
/// `OFPTR_VACANCY_UP`.
const VACANCY_UP: u8 = 4;

/// The reason as this OpenFlow version expresses it.
pub(crate) fn reason_in(reason: RemovedReason, version: Version) -> RemovedReason {
    match reason {
        RemovedReason::GroupDelete if version < Version::V13 => RemovedReason::Delete,
        RemovedReason::MeterDelete | RemovedReason::Eviction if version < Version::V14 => RemovedReason::Delete,
        reason => reason,
    }
}

/// Whether a monitor watches a flow.
fn watches(monitor: &FlowMonitor, flow: &Flow, before: Option<&Flow>) -> bool {
    let outputs = outputs_to(&flow.instructions, monitor.out_port)
        || before.is_some_and(|before| outputs_to(&before.instructions, monitor.out_port));
    (monitor.table == ALL_TABLES || monitor.table == flow.table)
        && outputs
        && goes_through(&flow.instructions, monitor.out_group)
        && flow.matching.is_within(&monitor.matching)
}

/// Whether a flow is among the initial flows of new monitors, and if so, whether with its instructions.
pub(crate) fn shows(begun: &[FlowMonitor], flow: &Flow) -> Option<bool> {
    let by = begun.iter().filter(|monitor| watches(monitor, flow, None)).fold(0, |all, monitor| all | monitor.flags);
    (by != 0).then_some(by & monitor_flag::INSTRUCTIONS != 0)
}

/// Whether a monitor reports the changes of its own connection only (`OFPFMF_ONLY_OWN`). Own changes would only be
/// abbreviated without `OFPFMF_NO_ABBREV`, which is of no use. Open vSwitch, also `ovs-ofctl`, sets `OFPFMF_ONLY_OWN`
/// alone to get own changes in full beside the others.
fn is_only_own(flags: u16) -> bool {
    let both = monitor_flag::ONLY_OWN | monitor_flag::NO_ABBREV;
    flags & both == both
}

/// The flags of the connection's monitors that subscribe to this change; 0 for none.
fn wanted(status: &Status, event: u16, flow: &Flow, before: Option<&Flow>, is_own: bool) -> u16 {
    let monitors = status.monitors.values().filter(|monitor| is_own || !is_only_own(monitor.flags));
    monitors
        .filter(|monitor| monitor.flags & event != 0 && watches(monitor, flow, before))
        .fold(0, |all, m| all | m.flags)
}

impl Bridge {
    /// Notifies connections of changed flows.
    pub(crate) fn report_flows(&self, state: &mut State, flows: &[&FlowChange], origin: &Origin, now_us: u64) {
        for endpoint in self.endpoints().values() {
            self.report_removed(endpoint, flows, now_us);
            self.report_monitored(endpoint, flows, origin, now_us);
        }
        self.report_vacancy(state, flows);
    }

    fn report_removed(&self, endpoint: &Endpoint, flows: &[&FlowChange], now_us: u64) {
        let status = endpoint.status();
        let Some(version) = status.version else { return };
        for change in flows {
            if let (FlowChange { old: Some(flow), new: None, .. }, Cause::Remove(reason)) = (change, change.cause)
                && flow.flags & flow_flag::SEND_FLOW_REM != 0
                && status.receives(endpoint.is_service, Kind::FlowRemoved, reason_in(reason, version) as u8)
            {
                let reason = reason_in(reason, version);
                self.push(endpoint, Event::FlowRemoved { flow: Arc::clone(flow), reason, at_us: now_us });
            }
        }
    }

    fn report_monitored(&self, endpoint: &Endpoint, flows: &[&FlowChange], origin: &Origin, now_us: u64) {
        let mut status = endpoint.status();
        if status.monitors.is_empty() {
            return;
        }
        let mut is_abbreviated = false;
        for change in flows {
            let (event, bit, flow, before) = match (change.cause, &change.old, &change.new) {
                (Cause::Remove(_), Some(old), _) => (UpdateEvent::Removed, monitor_flag::REMOVED, old, None),
                (Cause::Add, old, Some(new)) => (UpdateEvent::Added, monitor_flag::ADD, new, old.as_deref()),
                (Cause::Modify, old, Some(new)) => (UpdateEvent::Modified, monitor_flag::MODIFY, new, old.as_deref()),
                _ => continue,
            };
            if let (UpdateEvent::Modified, Some(before)) = (event, before)
                && before.instructions == flow.instructions
                && before.cookie == flow.cookie
            {
                continue;
            }
            let is_known = |since: u64| event == UpdateEvent::Removed && flow.created_us <= since.cast_signed();
            if status.paused_us.is_some_and(|since| !is_known(since)) {
                continue;
            }
            let is_own = origin.connection == Some(endpoint.id);
            let flags = wanted(&status, bit, flow, before, is_own);
            if flags == 0 {
                continue;
            }
            if is_own && flags & (monitor_flag::NO_ABBREV | monitor_flag::ONLY_OWN) == 0 && status.paused_us.is_none() {
                if !is_abbreviated {
                    is_abbreviated = true;
                    self.push(endpoint, Event::Update(Update::Abbreviated(origin.xid)));
                }
                continue;
            }
            let reason = match change.cause {
                Cause::Remove(reason) => reason,
                _ => RemovedReason::IdleTimeout,
            };
            let has_instructions = flags & monitor_flag::INSTRUCTIONS != 0;
            let update = Update::Full { event, reason, flow: Arc::clone(flow), has_instructions };
            self.push(endpoint, Event::Update(update));
            if status.paused_us.is_none() && endpoint.is_behind() {
                status.paused_us = Some(now_us);
                self.push(endpoint, Event::Update(Update::Paused(true)));
            }
        }
    }

    /// Resumes a paused connection's monitors once it has read everything, with updates for the flows that have
    /// changed since.
    pub(crate) fn resume_monitors(&self, endpoint: &Endpoint) {
        let _state = self.state();
        let mut status = endpoint.status();
        let Some(since) = status.paused_us.take() else { return };
        let tables = self.tables();
        for flow in tables.iter().flat_map(|(_, table)| table.flows.iter()) {
            let at = since.cast_signed();
            let (event, bit) = match (flow.created_us >= at, flow.modified_us >= at) {
                (true, _) => (UpdateEvent::Added, monitor_flag::ADD | monitor_flag::MODIFY),
                (false, true) => (UpdateEvent::Modified, monitor_flag::MODIFY),
                (false, false) => continue,
            };
            let flags = wanted(&status, bit, flow, None, true);
            if flags != 0 {
                let has_instructions = flags & monitor_flag::INSTRUCTIONS != 0;
                let reason = RemovedReason::IdleTimeout;
                let update = Update::Full { event, reason, flow: Arc::clone(flow), has_instructions };
                self.push(endpoint, Event::Update(update));
            }
        }
        self.push(endpoint, Event::Update(Update::Paused(false)));
    }

    /// Adds, modifies or deletes flow monitors. Returns the locations of their initial flows, and the monitors that
    /// ask for these.
    pub(crate) fn monitor(
        &self,
        endpoint: &Endpoint,
        requests: &[FlowMonitor],
    ) -> Result<(Vec<Spot>, Vec<FlowMonitor>), Error> {
        let known = monitor_flag::INITIAL
            | monitor_flag::ADD
            | monitor_flag::REMOVED
            | monitor_flag::MODIFY
            | monitor_flag::INSTRUCTIONS
            | monitor_flag::NO_ABBREV
            | monitor_flag::ONLY_OWN;
        let _state = self.state();
        let mut status = endpoint.status();
        let mut monitors = status.monitors.clone();
        let mut begun: Vec<FlowMonitor> = Vec::new();
        for request in requests {
            let exists = monitors.contains_key(&request.id);
            match request.command {
                MonitorCommand::Add if exists => {
                    return Err(Error::new(ErrorKind::MofcMonitorExists, format!("monitor {} exists", request.id)));
                }
                MonitorCommand::Modify | MonitorCommand::Delete if !exists => {
                    return Err(Error::new(
                        ErrorKind::MofcUnknownMonitor,
                        format!("there is no monitor {}", request.id),
                    ));
                }
                MonitorCommand::Delete => drop(monitors.remove(&request.id)),
                MonitorCommand::Add | MonitorCommand::Modify => {
                    if request.flags & !known != 0 {
                        return Err(Error::new(
                            ErrorKind::MofcBadFlags,
                            format!("flags {:#x}", request.flags & !known),
                        ));
                    }
                    if request.table != ALL_TABLES && request.table >= limit::TABLES {
                        return Err(Error::new(
                            ErrorKind::MofcBadTableId,
                            format!("there is no table {}", request.table),
                        ));
                    }
                    self.admit.matching(&request.matching)?;
                    if !exists && monitors.len() >= limit::MONITORS {
                        let why = format!("a connection has at most {} monitors", limit::MONITORS);
                        return Err(Error::new(ErrorKind::MofcUnknown, why));
                    }
                    monitors.insert(request.id, request.clone());
                    if request.flags & monitor_flag::INITIAL != 0 {
                        begun.push(request.clone());
                    }
                }
            }
        }
        status.monitors = monitors;
        drop(status);
        let mut flows = Vec::new();
        if !begun.is_empty() {
            for (number, table) in self.tables().iter() {
                let shown = table.flows.handles().filter(|(_, flow)| shows(&begun, flow).is_some());
                flows.extend(shown.map(|(handle, _)| Spot { handle, table: number }));
            }
            flows.shrink_to_fit();
        }
        Ok((flows, begun))
    }

    /// Determines which vacancy event a table reports next, after its settings have changed.
    pub(crate) fn set_vacancy(&self, state: &mut State, table: u8, settings: &TableSettings) {
        let reports = settings.config & table_config::VACANCY_EVENTS != 0;
        if reports && self.tables().table(table).vacancy() < settings.vacancy.1 {
            state.crowded.insert(table);
        } else {
            state.crowded.remove(&table);
        }
    }

    fn report_vacancy(&self, state: &mut State, flows: &[&FlowChange]) {
        let mut touched: Vec<u8> =
            flows.iter().filter_map(|c| c.new.as_ref().or(c.old.as_ref())).map(|f| f.table).collect();
        touched.dedup();
        let mut told = Vec::new();
        {
            let tables = self.tables();
            for number in touched {
                let table = tables.table(number);
                let config = table.settings.config;
                if config & table_config::VACANCY_EVENTS == 0 {
                    continue;
                }
                let ((down, up), now) = (table.settings.vacancy, table.vacancy());
                let is_crowded = state.crowded.contains(&number);
                let reason = match is_crowded {
                    false if now < down => VACANCY_DOWN,
                    true if now > up => VACANCY_UP,
                    _ => continue,
                };
                if is_crowded {
                    state.crowded.remove(&number);
                } else {
                    state.crowded.insert(number);
                }
                let vacancy = Some((down, up, now));
                told.push((reason, Message::TableStatus { reason, table: number, config, vacancy }));
            }
        }
        for (reason, message) in told {
            self.tell(Kind::TableStatus, reason, message);
        }
    }
}
