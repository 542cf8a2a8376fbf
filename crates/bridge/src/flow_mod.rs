//! Planning of flow mods (OpenFlow 1.3.5, 6.4; 1.4.1, 6.4 and 6.5; where these leave it open, as Open vSwitch).
//!
//! Planning only reads, so it needs no write lock. Strict requests find their flow by hash; the others scan tables.
//!
//! | | OpenFlow 1.0 | since 1.2 |
//! | --- | --- | --- |
//! | a modification that matches no flow | adds the flow | does nothing |
//! | cookies of modified flows | change, unless the new one is all ones | are kept |
//! | counts of a flow that replaces an equal one | start at zero | are kept without `OFPFF_RESET_COUNTS` |
//! | table 255 | adds to the first table, modifies and deletes in all | only for deletions |

use crate::admit::Admit;
use crate::change::{Cause, FlowChange};
use crate::flow::{Flow, Usage};
use crate::memory::{Charge, Memory};
use crate::references::{Index, goes_through, outputs_to};
use crate::tables::{Spot, Tables, limit, table_config};
use crate::view::{View, Visits};
use openflow::message::{FlowCommand, FlowFilter, FlowMod, RemovedReason, flow_flag};
use openflow::{Error, ErrorKind, Match, Version};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The origin of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The connection on which it was received, if any.
    pub connection: Option<u64>,
    /// Its transaction id.
    pub xid: u32,
    /// Its OpenFlow version.
    pub version: Version,
}

impl Origin {
    /// The switch itself, which learns flows and changes ports.
    pub const SWITCH: Origin = Origin { connection: None, xid: 0, version: Version::V13 };
}

/// No buffered packet.
pub(crate) const NO_BUFFER: u32 = u32::MAX;
/// `OFPTT_ALL`: all tables, in requests.
pub(crate) const ALL_TABLES: u8 = 0xff;
/// Flags that are stored with a flow.
const KEPT_FLAGS: u16 = flow_flag::SEND_FLOW_REM | flow_flag::NO_PKT_COUNTS | flow_flag::NO_BYT_COUNTS;
/// All supported flags.
const ALL_FLAGS: u16 = KEPT_FLAGS | flow_flag::CHECK_OVERLAP | flow_flag::RESET_COUNTS;

/// Maximum number of flows evicted for a new one. A flow mod has at most 64 KB, and a flow takes at least 600
/// bytes, so this many always make enough room, unless something else still references them.
const VICTIMS_MAX: usize = 1024;

/// The state on which requests are planned.
pub(crate) struct Plan<'a> {
    pub tables: View<'a>,
    pub index: &'a Index,
    pub admit: &'a Admit,
    pub memory: &'a Memory,
    pub visits: &'a Visits,
    pub now_us: u64,
}

impl Plan<'_> {
    /// The changes of a flow mod.
    pub fn flow_mod(&self, request: &FlowMod, origin: &Origin) -> Result<Vec<FlowChange>, Error> {
        let is_delete = matches!(request.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
        let names_table = request.table != ALL_TABLES;
        if names_table && request.table >= limit::TABLES || !names_table && !is_delete && origin.version != Version::V10
        {
            return Err(Error::new(ErrorKind::FmfcBadTableId, format!("there is no table {}", request.table)));
        }
        if request.flags & !ALL_FLAGS != 0 {
            return Err(Error::new(
                ErrorKind::FmfcBadFlags,
                format!("unknown flags {:#x}", request.flags & !ALL_FLAGS),
            ));
        }
        if request.buffer != NO_BUFFER && !is_delete {
            return Err(Error::new(ErrorKind::BrcBufferUnknown, "packets are not buffered"));
        }
        self.admit.matching(&request.matching)?;
        match request.command {
            FlowCommand::Add => self.add(request, origin),
            FlowCommand::Modify | FlowCommand::ModifyStrict => self.modify(request, origin),
            FlowCommand::Delete | FlowCommand::DeleteStrict => {
                let is_selected = |flow: &Flow| {
                    outputs_to(&flow.instructions, request.out_port)
                        && goes_through(&flow.instructions, request.out_group)
                };
                let mut found = self.find(request);
                found.retain(|flow| is_selected(flow));
                Ok(found.into_iter().map(|flow| FlowChange::removal(flow, RemovedReason::Delete)).collect())
            }
        }
    }

    /// All flows of a table, counted as visits.
    fn flows(&self, table: u8) -> impl Iterator<Item = &Arc<Flow>> {
        self.visits.add(self.tables.len(table) as u64);
        self.tables.flows(table)
    }

    /// The flows that a modification or deletion selects by table, match, priority and cookie.
    fn find(&self, request: &FlowMod) -> Vec<&Arc<Flow>> {
        let is_strict = matches!(request.command, FlowCommand::ModifyStrict | FlowCommand::DeleteStrict);
        let mut found = Vec::new();
        for number in 0..limit::TABLES {
            if request.table != ALL_TABLES && request.table != number {
                continue;
            }
            let has_cookie = |flow: &Flow| (flow.cookie ^ request.cookie) & request.cookie_mask == 0;
            if is_strict {
                let flow = self.tables.find(number, &request.matching, request.priority);
                found.extend(flow.filter(|flow| has_cookie(flow)));
            } else {
                let flows = self.flows(number);
                found.extend(flows.filter(|flow| has_cookie(flow) && flow.matching.is_within(&request.matching)));
            }
        }
        found
    }

    fn add(&self, request: &FlowMod, origin: &Origin) -> Result<Vec<FlowChange>, Error> {
        let number = if request.table == ALL_TABLES { 0 } else { request.table };
        self.admit.flow(&self.tables, &request.instructions, &request.matching, number)?;
        let old = self.tables.find(number, &request.matching, request.priority);
        let mut evicted = Vec::new();
        let evicts = old.is_none() && self.tables.settings(number).config & table_config::EVICTION != 0;
        let mut victims = evicts.then(|| self.index.victims(number)).into_iter().flatten();
        if old.is_none() {
            if request.flags & flow_flag::CHECK_OVERLAP != 0
                && self.tables.has_overlap(number, &request.matching, request.priority, self.visits)
            {
                return Err(Error::new(ErrorKind::FmfcOverlap, "another flow of this priority overlaps"));
            }
            let (len, settings) = (self.tables.len(number), self.tables.settings(number));
            if len >= settings.max_flows() || self.index.flows >= limit::FLOWS {
                let Some(victim) = victims.next() else {
                    let why = format!("table {number} has {len} flows, all tables {}", self.index.flows);
                    return Err(Error::new(ErrorKind::FmfcTableFull, why));
                };
                evicted.push(victim);
            }
        }
        let resets = request.flags & flow_flag::RESET_COUNTS != 0 || origin.version == Version::V10;
        // A learned flow that is learned again stays the same flow; its hard timeout starts again.
        let renewed = old.filter(|old| {
            *origin == Origin::SWITCH
                && old.instructions == request.instructions
                && old.timeouts == request.timeouts
                && old.cookie == request.cookie
        });
        let mut new = Flow {
            table: number,
            matching: request.matching.clone(),
            priority: request.priority,
            cookie: request.cookie,
            flags: request.flags & KEPT_FLAGS,
            importance: request.importance,
            timeouts: request.timeouts,
            fin_timeouts: AtomicU32::new(u32::MAX),
            instructions: request.instructions.clone(),
            created_us: renewed.map_or(self.now_us.cast_signed(), |flow| flow.created_us),
            modified_us: self.now_us.cast_signed(),
            usage: self.usage(old.filter(|_| !resets)),
            charge: Charge::default(),
        };
        new.charge = self.charge(&new, &mut evicted, &mut victims)?;
        let removal = |victim| FlowChange::removal(victim, RemovedReason::Eviction);
        let mut changes: Vec<FlowChange> = evicted.into_iter().map(removal).collect();
        changes.push(FlowChange { old: old.cloned(), new: Some(Arc::new(new)), cause: Cause::Add });
        Ok(changes)
    }

    /// Charges the memory of a new flow, and evicts flows if needed.
    fn charge<'a>(
        &self,
        new: &Flow,
        evicted: &mut Vec<&'a Arc<Flow>>,
        victims: &mut dyn Iterator<Item = &'a Arc<Flow>>,
    ) -> Result<Charge, Error> {
        let (pool, bytes) = (&self.memory.state, new.bytes());
        let mut freed = evicted.iter().map(|flow| flow.charge.bytes()).sum();
        if !pool.fits(bytes, freed) {
            // Indices are dropped before a flow is evicted.
            self.tables.give_up_indices();
        }
        while !pool.fits(bytes, freed) {
            let victim = victims.next().filter(|_| evicted.len() < VICTIMS_MAX);
            let victim = victim.ok_or_else(|| self.no_memory(new.table))?;
            freed += victim.charge.bytes();
            evicted.push(victim);
        }
        pool.charge(bytes, freed).ok_or_else(|| self.no_memory(new.table))
    }

    fn no_memory(&self, table: u8) -> Error {
        self.memory.refuse(ErrorKind::FmfcTableFull, &format!("a flow of table {table}"))
    }

    fn usage(&self, of: Option<&Arc<Flow>>) -> Arc<Usage> {
        of.map_or_else(|| Arc::new(Usage::new(self.now_us)), |flow| Arc::clone(&flow.usage))
    }

    fn modify(&self, request: &FlowMod, origin: &Origin) -> Result<Vec<FlowChange>, Error> {
        let found = self.find(request);
        if found.is_empty() {
            if origin.version == Version::V10 && request.cookie_mask == 0 {
                return self.add(request, origin);
            }
            return self
                .admit
                .flow(&self.tables, &request.instructions, &request.matching, request.table)
                .map(|()| Vec::new());
        }
        let changes_cookie = origin.version == Version::V10 && request.cookie_mask == 0 && request.cookie != u64::MAX;
        let resets = request.flags & flow_flag::RESET_COUNTS != 0;
        let mut admitted = None;
        let mut changes = Vec::with_capacity(found.len());
        for old in found {
            if admitted != Some(old.table) {
                self.admit.flow(&self.tables, &request.instructions, &request.matching, old.table)?;
                admitted = Some(old.table);
            }
            let mut new = Flow {
                table: old.table,
                matching: old.matching.clone(),
                priority: old.priority,
                cookie: if changes_cookie { request.cookie } else { old.cookie },
                flags: old.flags,
                importance: old.importance,
                timeouts: old.timeouts,
                fin_timeouts: AtomicU32::new(old.fin_timeouts.load(Ordering::Relaxed)),
                instructions: request.instructions.clone(),
                created_us: old.created_us,
                modified_us: self.now_us.cast_signed(),
                usage: self.usage(Some(old).filter(|_| !resets)),
                charge: Charge::default(),
            };
            // Old and new flow coexist until the change is applied.
            new.charge =
                self.tables.charge(&self.memory.state, new.bytes(), 0).ok_or_else(|| self.no_memory(old.table))?;
            changes.push(FlowChange { old: Some(Arc::clone(old)), new: Some(Arc::new(new)), cause: Cause::Modify });
        }
        Ok(changes)
    }

    /// The removal of all flows that pass `is_gone`.
    pub fn remove(&self, reason: RemovedReason, is_gone: &dyn Fn(&Flow) -> bool) -> Vec<FlowChange> {
        let flows = (0..limit::TABLES).flat_map(|number| self.flows(number));
        flows.filter(|flow| is_gone(flow)).map(|flow| FlowChange::removal(flow, reason)).collect()
    }

    /// The removal of learned flows that no flow learns any more (`NX_LEARN_F_DELETE_LEARNED`).
    pub fn remove_learned(&self, orphans: &[(u64, u8)]) -> Vec<FlowChange> {
        let mut changes = Vec::new();
        for (cookie, table) in orphans.iter().filter(|(_, table)| *table < limit::TABLES) {
            if self.tables.with_cookie(*table, *cookie) == 0 {
                continue;
            }
            let flows = self.flows(*table).filter(|flow| flow.cookie == *cookie);
            changes.extend(flows.map(|flow| FlowChange::removal(flow, RemovedReason::Delete)));
        }
        changes
    }
}

/// Whether a flow passes the filter of a statistics request.
pub(crate) fn is_selected(flow: &Flow, filter: &FlowFilter) -> bool {
    (flow.cookie ^ filter.cookie) & filter.cookie_mask == 0
        && (filter.matching == Match::any() || flow.matching.is_within(&filter.matching))
        && outputs_to(&flow.instructions, filter.out_port)
        && goes_through(&flow.instructions, filter.out_group)
}

/// The flows that pass the filter of a statistics request.
pub(crate) fn select<'a>(tables: &'a Tables, filter: &'a FlowFilter) -> impl Iterator<Item = (Spot, &'a Arc<Flow>)> {
    let asked = tables.iter().filter(|(number, _)| filter.table == ALL_TABLES || filter.table == *number);
    let flows = asked.flat_map(|(number, table)| table.flows.handles().map(move |found| (number, found)));
    let selected = flows.filter(|(_, (_, flow))| is_selected(flow, filter));
    selected.map(|(table, (handle, flow))| (Spot { handle, table }, flow))
}
