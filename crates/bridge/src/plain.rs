//! Plain translation: processes one packet without recording what a megaflow would need.
//!
//! Most packets that miss the cache are not worth a megaflow (`crate::cache::admission`). [`crate::translate`]
//! records the consulted bits and the provenance of the record's bits. Here the packet is processed on its own
//! record, without allocations. Only simple flows are supported: they write fields and go to a later table, and the
//! last one outputs to ports. Anything else is left to [`crate::translate`]; no effect has taken place then, and
//! the record is restored.
//!
//! The caller holds the tables' read lock for a sequence of packets.
//!
//! Tests: `processor/tests.rs`. A bridge that caches nothing takes this path for every packet and agrees with one
//! that caches all.

use crate::classifier::Found;
use crate::flow::Flow;
use crate::key::Layout;
use crate::ports::config;
use crate::tables::{Miss, Tables, limit};
use abi::flows::{Arrival, Output, Outputs, Verdict};
use openflow::action::port;
use openflow::{Action, FieldId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of tables on a packet's path, so that it fits an array; longer paths are left to
/// [`crate::translate`].
const TABLES_MAX: usize = 32;

/// Maximum number of lookups and actions of a plain translation. It is within the work that is free for each
/// packet, so that nothing is charged; [`crate::translate`] charges the burst.
const STEPS_MAX: usize = 256;

/// Maximum number of subtables searched, likewise.
const VISITS_MAX: u32 = 2 * STEPS_MAX as u32 * crate::translate::VISITS_PER_STEP;

/// The flows of a packet.
struct Path<'t> {
    flows: [Option<&'t Arc<Flow>>; TABLES_MAX],
    len: usize,
    /// The table that has no flow for it.
    missed: Option<u8>,
    /// Whether a write is visible in the packet.
    is_modified: bool,
}

impl Default for Path<'_> {
    fn default() -> Self {
        Path { flows: [None; TABLES_MAX], len: 0, missed: None, is_modified: false }
    }
}

impl<'t> Path<'t> {
    /// The flow that sends the packet, if no table lacks a flow.
    fn last(&self) -> Option<&'t Arc<Flow>> {
        if self.missed.is_some() { None } else { self.flows[..self.len].last().copied().flatten() }
    }
}

/// The plain translations of a worker, with their statistics.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    /// Written words with their former values.
    undo: Vec<(u32, u64)>,
    /// Input port and ports' generation of the last check of [`Plain::receives`], with its result.
    receiving: Option<(u32, u64, bool)>,
    /// Lookups and matches by table that have not been added to the tables' counters.
    lookups: Vec<(u8, u32, u32)>,
    metadata: Option<FieldId>,
    /// Number of packets that were fully processed.
    pub(crate) packets: u64,
}

impl Plain {
    pub(crate) fn new(layout: &Layout) -> Plain {
        // OXM number 2 is `metadata` (OpenFlow 1.3.5, 7.2.3.7).
        Plain { metadata: layout.fields().basic(2), ..Plain::default() }
    }

    /// Processes a packet. `false` if that is not possible; nothing has happened then.
    pub(crate) fn run(
        &mut self,
        tables: &Tables,
        packet: usize,
        arrival: &mut Arrival<'_>,
        now_us: u64,
        outputs: &mut dyn Outputs,
    ) -> bool {
        if arrival.start != 0 {
            return false;
        }
        let mut path = Path::default();
        if self.walk(tables, arrival.record, &mut path).is_none() {
            self.restore(arrival.record);
            return false;
        }
        self.count_path(&path, arrival.bytes, now_us);
        match path.last() {
            Some(flow) => send(tables, flow, path.is_modified, packet, arrival, outputs),
            None => outputs.end(packet, true),
        }
        true
    }

    /// Decides about a packet by its record as parsed, and restores the record. `None` if it may be changed, sent to
    /// several ports, or anything else than a verdict says; nothing has happened then.
    pub(crate) fn decide(&mut self, tables: &Tables, record: &mut [u64], bytes: u32, now_us: u64) -> Option<Verdict> {
        let mut path = Path::default();
        let is_done = self.walk(tables, record, &mut path).is_some();
        let in_port = tables.layout().in_port().read(record) as u32;
        self.restore(record);
        if !is_done || path.is_modified {
            return None;
        }
        let mut ports = path.last().into_iter().flat_map(|flow| ports(tables, flow, in_port));
        let verdict = match (ports.next(), ports.next()) {
            (None, _) => Verdict::Drop { reason: None },
            (Some(port), None) => Verdict::Send { port, queue: 0 },
            _ => return None,
        };
        self.count_path(&path, bytes, now_us);
        Some(verdict)
    }

    /// Looks a packet up in the tables, and writes what its flows write. `None` if that is not possible; the record
    /// must be restored in this case.
    fn walk<'t>(&mut self, tables: &'t Tables, record: &mut [u64], path: &mut Path<'t>) -> Option<()> {
        self.undo.clear();
        let layout = tables.layout();
        let in_port = layout.in_port().read(record) as u32;
        // `crate::translate` hides a first fragment's transport fields.
        if !self.receives(tables, in_port) || layout.is_first_fragment(record) {
            return None;
        }
        let (mut table, mut steps, mut visits) = (0, 0, VISITS_MAX);
        loop {
            let flow = match tables.table(table).flows.find_plain(record, &mut visits) {
                Found::Flow(flow) => flow,
                Found::None if tables.miss() == Miss::Drop => {
                    path.missed = Some(table);
                    return Some(());
                }
                _ => return None,
            };
            steps += 1 + flow.instructions.apply.len();
            if path.len == TABLES_MAX || steps > STEPS_MAX {
                return None;
            }
            (path.flows[path.len], path.len) = (Some(flow), path.len + 1);
            path.is_modified |= self.apply(layout, flow, record)?;
            match flow.instructions.goto {
                Some(next) if next < limit::TABLES => table = next,
                Some(_) => return None,
                None => return Some(()),
            }
        }
    }

    fn count_path(&mut self, path: &Path<'_>, bytes: u32, now_us: u64) {
        for flow in path.flows[..path.len].iter().flatten() {
            flow.usage.add(1, u64::from(bytes), now_us);
            self.count(flow.table, true);
        }
        if let Some(table) = path.missed {
            self.count(table, false);
        }
        self.packets += 1;
    }

    /// Adds the counted lookups to the tables' counters.
    pub(crate) fn settle(&mut self, tables: &Tables) {
        for (table, lookups, matches) in self.lookups.drain(..) {
            let table = tables.table(table);
            table.lookups.fetch_add(lookups.into(), Ordering::Relaxed);
            if matches != 0 {
                table.matches.fetch_add(matches.into(), Ordering::Relaxed);
            }
        }
    }

    /// Whether all counted lookups have been added.
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

    /// Whether the port accepts all packets, and the bridge handles fragments as is the default.
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

    /// Restores the record.
    fn restore(&mut self, record: &mut [u64]) {
        for (word, value) in self.undo.drain(..).rev() {
            record[word as usize] = value;
        }
    }

    /// Performs a flow's writes. Returns whether any of them is visible in the packet; `None` if the flow does
    /// anything else.
    fn apply(&mut self, layout: &Layout, flow: &Flow, record: &mut [u64]) -> Option<bool> {
        let instructions = &flow.instructions;
        if instructions.meter.is_some() || instructions.clear || !instructions.write.is_empty() {
            return None;
        }
        let mut is_visible = false;
        let mut has_sent = false;
        for action in &instructions.apply {
            match action {
                // Only the last flow may output, and nothing may be written after an output.
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

    /// Writes a field if it is present. Returns whether that is visible in the packet.
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

/// Outputs a packet as its last flow says.
fn send(
    tables: &Tables,
    flow: &Flow,
    is_modified: bool,
    packet: usize,
    arrival: &Arrival<'_>,
    outputs: &mut dyn Outputs,
) {
    // The current value: a flow may have written it.
    let in_port = tables.layout().in_port().read(arrival.record) as u32;
    let mut ports = ports(tables, flow, in_port);
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

/// The ports to which a flow sends a packet of `in_port`.
fn ports<'t>(tables: &'t Tables, flow: &'t Flow, in_port: u32) -> impl Iterator<Item = u32> + 't {
    let to = move |action: &Action| match action {
        Action::Output { port: port::IN_PORT, .. } => Some(in_port),
        Action::Output { port, .. } if *port != in_port && *port != port::ANY => Some(*port),
        _ => None,
    };
    let sends = move |number: &u32| {
        let port = tables.ports().get(*number);
        port.is_some_and(|port| port.config & (config::NO_FWD | config::PORT_DOWN) == 0)
    };
    flow.instructions.apply.iter().filter_map(to).filter(sends)
}
