//! Maps code to the parts of the P4 program that it comes from, for listings and profilers.
//!
//! A [`Location`] is a *region* (a parser state, a table or an action; otherwise the stage) and a span of the source.
//! During translation every Cranelift instruction gets the number of its location; Cranelift then reports which bytes
//! of machine code came from which. Instructions that it merged or moved count for one of their locations. Where it has
//! lost the location (it does when it simplifies an expression), the code counts for the location of the code before
//! it. The prologue, the epilogue and the loop over the batch are [`LOOP`].
//!
//! Regions: the code of an `apply`, with its hit counting, belongs to the table. Blocks that are reached only from the
//! switch on the applied action belong to that action. Blocks of a parser belong to the state that they are labelled
//! with, or that leads to them. What is reached from several regions belongs to the stage.
//!
//! The map is made only on request (`Options::keep_text`, `Options::perf_map`, `Options::watched`).
//!
//! A sampling profiler that finds a worker outside of compiled code needs to know which code made the call. Watched
//! code stores that before each call as one number: the entry point's [`SourceMap::serial`] and the number of the
//! location.
//!
//! Tests: `tests/source_map.rs`.

use crate::flow::Graph;
use crate::translate::Translator;
use abi::WorkerCtx;
use base::Span;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, SourceLoc};
use ir::{Op, Program, SlotId, StageKind, Terminator};
use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};

/// The region of code that belongs to no part of the program.
pub const LOOP: &str = "loop";

/// A part of the program.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// `table:MyIngress.ipv4_lpm`, `action:MyIngress.drop`, `state:MyParser.start`, `control:MyEgress`, `deparser:D`,
    /// or [`LOOP`].
    pub region: String,
    /// Its span in the source; `Span::NONE` if only the region is known.
    pub span: Span,
}

/// Bytes `start..end` of an entry point's code and the location that they come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeRange {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
    /// The part of the program.
    pub location: Location,
}

static SERIAL: AtomicU32 = AtomicU32::new(1);

/// Numbers locations, and maps each node of an entry point to its region.
#[derive(Default)]
pub(crate) struct SourceMap {
    pub list: Vec<Location>,
    /// Identifies the entry point among all that were compiled in this process; never 0.
    pub serial: u32,
    numbers: HashMap<Location, u32>,
    /// By node.
    regions: Vec<String>,
}

impl SourceMap {
    /// The locations of the entry point with this graph.
    pub fn new(program: &Program, graph: &Graph) -> SourceMap {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let mut map = SourceMap { regions: regions(program, graph), serial, ..SourceMap::default() };
        map.number(Location { region: LOOP.to_string(), span: Span::NONE });
        map
    }

    /// The source location of an operation of a node, or of the node's end.
    pub fn source_loc(&mut self, program: &Program, node: usize, op: Option<&Op>, span: Span) -> SourceLoc {
        let table = |t: ir::TableId| table_region(program, t);
        let owner = |e: ir::ExternId| match program.externs[e.index()].kind {
            ir::ExternKind::Counter { direct, .. } | ir::ExternKind::Meter { direct, .. } => direct,
            _ => None,
        };
        let region = match op {
            Some(Op::Apply { table: t, .. }) => Some(table(*t)),
            Some(Op::CountDirect { counter: e, .. } | Op::MeterDirect { meter: e, .. }) => owner(*e).map(table),
            Some(Op::ActionParam { table: t, action, .. }) => Some(action_region(program, *t, *action)),
            _ => None,
        };
        let region = region.unwrap_or_else(|| self.regions[node].clone());
        self.number(Location { region, span })
    }

    /// The region of a node.
    pub fn region(&self, node: usize) -> &str {
        &self.regions[node]
    }

    /// The number that watched code stores for a location.
    pub fn call_site(&self, loc: SourceLoc) -> u64 {
        u64::from(self.serial) << 32 | u64::from(loc.bits())
    }

    /// The source location of code that belongs to no part of the program.
    pub fn outside() -> SourceLoc {
        SourceLoc::new(0)
    }

    fn number(&mut self, location: Location) -> SourceLoc {
        let next = self.list.len() as u32;
        let number = *self.numbers.entry(location.clone()).or_insert(next);
        if number == next {
            self.list.push(location);
        }
        SourceLoc::new(number)
    }

    /// The locations of code by the locations that Cranelift reports, without gaps from byte 0 to `size`.
    pub fn of_code(
        &self,
        locations: &[cranelift_codegen::MachSrcLoc<cranelift_codegen::Final>],
        size: u32,
    ) -> Vec<CodeRange> {
        let mut out: Vec<CodeRange> = Vec::new();
        let mut push = |start: u32, end: u32, location: Option<&Location>| match (out.last_mut(), location) {
            _ if start >= end => {}
            (Some(last), None) => last.end = end,
            (Some(last), Some(location)) if last.location == *location => last.end = end,
            (_, location) => out.push(CodeRange { start, end, location: location.unwrap_or(&self.list[0]).clone() }),
        };
        let mut at = 0;
        for l in locations {
            // A branch that Cranelift removed again may leave a range that begins before the last one ends.
            let (start, end) = (l.start.clamp(at, size), l.end.clamp(at, size));
            let location = (!l.loc.is_default()).then(|| &self.list[l.loc.bits() as usize]);
            push(at, start, None);
            push(start, end, location);
            at = end;
        }
        push(at, size, None);
        out
    }
}

// Used by the translator.
impl Translator<'_, '_> {
    /// Attributes the code that follows to an operation of the current node, or to its end.
    pub fn locate(&mut self, op: Option<&Op>, span: Span) {
        if let Some(map) = &mut self.source_map {
            let loc = map.source_loc(self.program, self.node, op, span);
            self.b.set_srcloc(loc);
            self.source_loc = loc;
        }
    }

    /// Attributes the code that follows to no part of the program.
    pub fn locate_outside(&mut self) {
        if self.source_map.is_some() {
            self.b.set_srcloc(SourceMap::outside());
            self.source_loc = SourceMap::outside();
        }
    }

    /// In watched code, stores the location of the call that follows.
    pub fn store_call_site(&mut self) {
        if let Some(map) = self.source_map.as_ref().filter(|_| self.options.watched) {
            let call_site = map.call_site(self.source_loc);
            self.store_site(call_site);
        }
    }

    /// At the entry point's end: in watched code, stores that the worker is in no part of the program.
    pub fn clear_call_site(&mut self) {
        if self.options.watched {
            self.store_site(0);
        }
    }

    fn store_site(&mut self, call_site: u64) {
        let ctx = self.context();
        let place = self.b.ins().load(I64, self.flags.desc, ctx, offset_of!(WorkerCtx, place) as i32);
        let call_site = self.iconst(call_site);
        self.b.ins().store(MemFlagsData::trusted(), call_site, place, 0);
    }
}

/// The region of lookups in a table.
pub(crate) fn table_region(program: &Program, table: ir::TableId) -> String {
    format!("table:{}", program.tables[table.index()].name)
}

fn action_region(program: &Program, id: ir::TableId, action: u32) -> String {
    let table = &program.tables[id.index()];
    match table.actions.get(action as usize) {
        Some(a) => format!("action:{}", program.actions[a.action.index()].name),
        None => table_region(program, id),
    }
}

/// The region of each node of a graph in reverse post-order.
fn regions(program: &Program, graph: &Graph) -> Vec<String> {
    let stage_region = |n: usize| {
        let stage = &program.stages[graph.nodes[n].stage.index()];
        let word = match stage.kind {
            StageKind::Parser => "parser",
            StageKind::Control => "control",
            StageKind::Deparser => "deparser",
        };
        format!("{word}:{}", stage.name)
    };
    // By node: the region that leads to it (one that begins there, or one that continues); `Some(None)` if there are
    // several.
    let mut led: Vec<Option<Option<String>>> = vec![None; graph.nodes.len()];
    let lead = |led: &mut Vec<Option<Option<String>>>, to: usize, region: String| match &mut led[to] {
        none @ None => *none = Some(Some(region)),
        Some(known) if known.as_ref() != Some(&region) => *known = None,
        Some(_) => {}
    };
    let mut regions: Vec<String> = Vec::with_capacity(graph.nodes.len());
    for (n, node) in graph.nodes.iter().enumerate() {
        let stage = &program.stages[node.stage.index()];
        let block = &stage.blocks[node.block.index()];
        let region = match led[n].take() {
            _ if stage.kind == StageKind::Parser && !block.label.is_empty() => {
                format!("state:{}.{}", stage.name, block.label)
            }
            Some(Some(region)) if !node.is_loop_head => region,
            _ => stage_region(n),
        };
        match &block.term {
            Terminator::Next => node.succs.iter().for_each(|&s| lead(&mut led, s, stage_region(s))),
            term => {
                let actions = applied_action(&block.insts, term);
                term.for_each_target(|to| {
                    // An edge that is never taken has no node.
                    let Some(&to_node) = node.targets.get(&to) else { return };
                    let edges = match (actions, term) {
                        (Some(table), Terminator::Switch { cases, default, .. }) => {
                            let mut numbers: Vec<Option<u64>> =
                                cases.iter().filter(|(_, t)| *t == to).map(|(v, _)| v.to_u64()).collect();
                            if *default == to {
                                // All actions without a case.
                                let count = program.tables[table.index()].actions.len() as u64;
                                let has_case = |i: &u64| cases.iter().any(|(v, _)| v.to_u64() == Some(*i));
                                numbers.extend((0..count).filter(|i| !has_case(i)).map(Some));
                            }
                            match numbers[..] {
                                [Some(only)] => action_region(program, table, only as u32),
                                _ => stage_region(to_node),
                            }
                        }
                        _ => region.clone(),
                    };
                    lead(&mut led, to_node, edges);
                });
            }
        }
        regions.push(region);
    }
    regions
}

/// The table of the applied action on which a block ends with a switch.
fn applied_action(insts: &[ir::Inst], term: &Terminator) -> Option<ir::TableId> {
    let Terminator::Switch { on, .. } = term else { return None };
    let on: SlotId = on.slot()?;
    insts.iter().rev().find_map(|inst| match &inst.op {
        Op::Apply { table, action, .. } if *action == on => Some(*table),
        _ => None,
    })
}
