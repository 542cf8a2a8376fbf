//! Plain translations: what becomes of one packet, without what a megaflow would need.
//!
//! A packet that misses the cache is mostly not worth a megaflow (`crate::cache::admission`). [`crate::translate`] notes for each one
//! which bits decided and where the record's bits come from; here the packet goes through the tables and is sent, on its own record,
//! with no allocation. Only flows that do simple things are taken: they write fields, go on to a later table, and the last one sends
//! to ports. What else comes is left to [`crate::translate`]: nothing has happened then, and the record is as it was.
//!
//! The caller holds the tables' read lock for a run of packets.
//!
//! Tests: `processor/tests.rs`. A bridge that caches nothing takes this path for every packet and agrees with one that caches all.

use crate::classifier::Found;
use crate::flow::Flow;
use crate::key::Layout;
use crate::ports::config;
use crate::tables::{Miss, Tables, limit};
use abi::flows::{Arrival, Output, Outputs};
use openflow::action::port;
use openflow::{Action, FieldId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Tables that a packet goes through at most, so that the result needs no allocation; more are left to [`crate::translate`].
const TABLES_MAX: usize = 32;

/// Searches and actions of a plain translation at most: within the steps that are free for each packet, so it needs no account. For more,
/// [`crate::translate`] asks the burst's budget.
const STEPS_MAX: usize = 256;

/// Subtables that it passes at most, likewise: as many as twice [`STEPS_MAX`] stand for.
const VISITS_MAX: u32 = 2 * STEPS_MAX as u32 * crate::translate::VISITS_PER_STEP;

/// The plain translations of a worker.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    /// Words that were written and what they were.
    undo: Vec<(u32, u64)>,
    /// The port and the generation of ports for which it was found out whether packets are taken without further ado.
    receiving: Option<(u32, u64, bool)>,
    /// Lookups and matches of tables that have not been added.
    lookups: Vec<(u8, u32, u32)>,
    metadata: Option<FieldId>,
    /// Packets that it has taken to their ends.
    pub(crate) packets: u64,
}

impl Plain {
    pub(crate) fn new(layout: &Layout) -> Plain {
        // OXM number 2 is `metadata` (OpenFlow 1.3.5, 7.2.3.7).
        Plain { metadata: layout.fields().basic(2), ..Plain::default() }
    }

    /// Takes a packet through the tables. `false` if that is not so simple.
    pub(crate) fn run(
        &mut self,
        tables: &Tables,
        packet: usize,
        arrival: &mut Arrival<'_>,
        now_us: u64,
        outputs: &mut dyn Outputs,
    ) -> bool {
        let layout = tables.layout();
        let in_port = layout.in_port().read(arrival.record) as u32;
        if arrival.start != 0 || !self.receives(tables, in_port) {
            return false;
        }
        self.undo.clear();
        let mut path: [Option<&Arc<Flow>>; TABLES_MAX] = [None; TABLES_MAX];
        let mut is_modified = false;
        let (mut table, mut len, mut steps, mut visits) = (0, 0, 0, VISITS_MAX);
        let last = loop {
            let flow = match tables.table(table).flows.find_plain(arrival.record, &mut visits) {
                Found::Flow(flow) => flow,
                Found::None if tables.miss() == Miss::Drop => break None,
                _ => return self.give_up(arrival),
            };
            steps += 1 + flow.instructions.apply.len();
            if len == TABLES_MAX || steps > STEPS_MAX {
                return self.give_up(arrival);
            }
            (path[len], len) = (Some(flow), len + 1);
            let Some(changes) = self.apply(layout, flow, arrival.record) else { return self.give_up(arrival) };
            is_modified |= changes;
            match flow.instructions.goto {
                Some(next) if next < limit::TABLES => table = next,
                Some(_) => return self.give_up(arrival),
                None => break Some(flow),
            }
        };
        for flow in path[..len].iter().flatten() {
            flow.usage.add(1, u64::from(arrival.bytes), now_us);
            self.count(flow.table, true);
        }
        self.packets += 1;
        match last {
            Some(flow) => send(tables, flow, is_modified, packet, arrival, outputs),
            None => {
                self.count(table, false);
                outputs.end(packet, true);
            }
        }
        true
    }

    /// Adds lookups that were counted.
    pub(crate) fn settle(&mut self, tables: &Tables) {
        for (table, lookups, matches) in self.lookups.drain(..) {
            let table = tables.table(table);
            table.lookups.fetch_add(lookups.into(), Ordering::Relaxed);
            if matches != 0 {
                table.matches.fetch_add(matches.into(), Ordering::Relaxed);
            }
        }
    }

    /// Whether there are lookups to be added.
    pub(crate) fn is_settled(&self) -> bool {
        self.lookups.is_empty()
    }

    fn count(&mut self, table: u8, is_match: bool) {
        match self.lookups.iter_mut().find(|(other, ..)| *other == table) {
            Some((_, lookups, matches)) => {
                *lookups += 1;
                *matches += u32::from(is_match);
            }
            None => self.lookups.push((table, 1, is_match.into())),
        }
    }

    /// Whether the port takes all packets, also fragments.
    fn receives(&mut self, tables: &Tables, in_port: u32) -> bool {
        let generation = tables.ports_generation();
        match self.receiving {
            Some((of, at, receives)) if (of, at) == (in_port, generation) => receives,
            _ => {
                let bits = tables.ports().get(in_port).map_or(0, |port| port.config);
                let receives = bits & (config::NO_RECV | config::NO_RECV_STP) == 0 && tables.fragments() == 0;
                self.receiving = Some((in_port, generation, receives));
                receives
            }
        }
    }

    /// Gives the record back as it was.
    fn give_up(&mut self, arrival: &mut Arrival<'_>) -> bool {
        for (word, value) in self.undo.drain(..).rev() {
            arrival.record[word as usize] = value;
        }
        false
    }

    /// Writes what a flow writes; whether anything was written that leaves with the packet. `None` if it does something else as well.
    fn apply(&mut self, layout: &Layout, flow: &Flow, record: &mut [u64]) -> Option<bool> {
        let instructions = &flow.instructions;
        if instructions.meter.is_some() || instructions.clear || !instructions.write.is_empty() {
            return None;
        }
        let mut is_visible = false;
        let mut has_sent = false;
        for action in &instructions.apply {
            match action {
                // The last flow's outputs; what is written behind one is not seen by it.
                Action::Output { port, .. } if is_simple(*port) && instructions.goto.is_none() => has_sent = true,
                Action::SetField { field, value, mask } if !has_sent => {
                    is_visible |= self.write(layout, *field, *value, *mask, record);
                }
                Action::Note(_) => {}
                _ => return None,
            }
        }
        if let (Some((value, mask)), Some(field)) = (instructions.metadata, self.metadata) {
            if has_sent {
                return None;
            }
            is_visible |= self.write(layout, field, value.into(), mask.into(), record);
        }
        Some(is_visible)
    }

    /// Writes a field if it is there.
    fn write(&mut self, layout: &Layout, field: FieldId, value: u128, mask: u128, record: &mut [u64]) -> bool {
        if !layout.is_there(record, field) {
            return false;
        }
        let mut is_visible = false;
        layout.place(field).spread(value & mask, mask, |word, mask, value| {
            let at = &mut record[word as usize];
            self.undo.push((word, *at));
            *at = *at & !mask | value;
            is_visible |= layout.is_visible(word);
        });
        is_visible
    }
}

fn is_simple(to: u32) -> bool {
    !matches!(to, port::TABLE | port::NORMAL | port::FLOOD | port::ALL | port::CONTROLLER | port::LOCAL)
}

/// Sends a packet as its last flow says.
fn send(
    tables: &Tables,
    flow: &Flow,
    is_modified: bool,
    packet: usize,
    arrival: &Arrival<'_>,
    outputs: &mut dyn Outputs,
) {
    // As it is now: a flow may have written it.
    let in_port = tables.layout().in_port().read(arrival.record) as u32;
    let to = |action: &Action| match action {
        Action::Output { port: port::IN_PORT, .. } => Some(in_port),
        Action::Output { port, .. } if *port != in_port && *port != port::ANY => Some(*port),
        _ => None,
    };
    let sends = |number: &u32| {
        let port = tables.ports().get(*number);
        port.is_some_and(|port| port.config & (config::NO_FWD | config::PORT_DOWN) == 0)
    };
    let mut ports = flow.instructions.apply.iter().filter_map(to).filter(sends);
    let mut next = ports.next();
    if next.is_none() {
        return outputs.end(packet, true);
    }
    while let Some(port) = next {
        next = ports.next();
        let output = Output { packet, max_len: u32::MAX, is_modified, is_last: next.is_none() };
        outputs.send(output, arrival.record, port, 0);
    }
}
