//! Which phase each table and action of an entry point belongs to, for display.
//!
//! This is no annotation of the IR: each compilation makes a plan, from the tables' sizes at that time and from what
//! the optimiser knows of their contents, so one IR has many plans. The report describes the plan of the code that was
//! made.
//!
//! Tests: `tests/staged.rs`.

use crate::flow::Flow;
use crate::source_map::{self, SourceMap};
use crate::stage::plan::Plan;
use ir::{Op, Program, TableId};

/// How packets go through an entry point.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stages {
    /// The phases in an order in which packets can pass them; a single one for run to completion. Copies for hot paths
    /// have phases of their own.
    pub phases: Vec<Phase>,
    /// Tables for which packets do not wait, at one apply at least, and why.
    pub not_staged: Vec<(TableId, NotStaged)>,
}

/// A phase: what packets run from one table that they wait for to the next ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Phase {
    /// The table that its packets have waited for; `None` for the first phase.
    pub waits_for: Option<TableId>,
    /// Tables whose keys are hashed and whose memory is prefetched when packets begin to wait.
    pub begun_with: Vec<TableId>,
    /// Bytes saved of each waiting packet.
    pub row_bytes: u32,
    /// The parts of the program that it runs (`Location::region`); filled in for listings only.
    pub runs: Vec<String>,
}

/// Why packets do not wait for a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotStaged {
    /// The strategy does not cut there: the caches hold the table's bytes (given), or all packets run to completion.
    NotSelected(u64),
    /// The table has no key or can have no entries, it is applied in a loop or outside controls, or cutting there would
    /// change the packets' order or exceed a limit (`stage/plan.rs`).
    NotPossible,
}

impl Stages {
    /// The report of generated code; `row_bytes` is by phase. `map` is given for a listing.
    pub(crate) fn new(
        program: &Program,
        flow: &Flow,
        plan: &Plan,
        row_bytes: &[u32],
        map: Option<&SourceMap>,
    ) -> Stages {
        let table = |lookup: &usize| plan.lookups[*lookup].table;
        let phases = plan.phases.iter().enumerate().map(|(p, phase)| Phase {
            waits_for: phase.cut.as_ref().map(table),
            begun_with: once(phase.fresh.iter().map(table)),
            // Only waiting packets have rows.
            row_bytes: phase.cut.and(row_bytes.get(p).copied()).unwrap_or(0),
            runs: map.map_or_else(Vec::new, |map| parts(program, flow, plan, p, map)),
        });
        let phases = phases.collect();
        let mut not_staged: Vec<(TableId, NotStaged)> = Vec::new();
        for n in 0..flow.graph.nodes.len() {
            for inst in &flow.graph.block(program, n).insts {
                let Op::Apply { table, .. } = inst.op else { continue };
                if plan.tables.contains(&table) || not_staged.iter().any(|(known, _)| *known == table) {
                    continue;
                }
                let why = plan
                    .not_selected
                    .get(&table)
                    .map_or(NotStaged::NotPossible, |bytes| NotStaged::NotSelected(*bytes));
                not_staged.push((table, why));
            }
        }
        Stages { phases, not_staged }
    }
}

/// Each table once: copies of a node have lookups of their own for the same table.
fn once(tables: impl Iterator<Item = TableId>) -> Vec<TableId> {
    let mut all = Vec::new();
    tables.for_each(|table| {
        if !all.contains(&table) {
            all.push(table)
        }
    });
    all
}

/// The parts of the program that a phase runs, each once.
fn parts(program: &Program, flow: &Flow, plan: &Plan, phase: usize, map: &SourceMap) -> Vec<String> {
    let phase = &plan.phases[phase];
    let start = phase.cut.map(|c| plan.lookups[c].program_point);
    let mut parts: Vec<String> = Vec::new();
    for &(n, stop) in &phase.nodes {
        let insts = &flow.graph.block(program, n).insts;
        let from = start.filter(|s| s.0 == n).map_or(0, |s| s.1 + 1);
        let tables = insts[from..stop.unwrap_or(insts.len())].iter().filter_map(|inst| match inst.op {
            Op::Apply { table, .. } => Some(source_map::table_region(program, table)),
            _ => None,
        });
        // A node that only leads to where packets wait does no work.
        let own = (stop != Some(from)).then(|| map.region(n).to_string());
        for part in own.into_iter().chain(tables) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
    }
    parts
}
