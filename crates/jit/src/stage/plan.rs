//! Where staged code cuts an entry.
//!
//! A **lookup** is an apply that was chosen to be taken apart: its key is hashed and its memory prefetched for many packets
//! before any of them needs the result. A **phase** is what runs from the start of a packet, or from behind a lookup, up to
//! the next lookups or the packet's fate. Phase 0 starts packets; every other phase belongs to the lookup at which the
//! packets that it goes on with wait: a **cut**.
//!
//! Where a packet waits for one lookup, others can be begun too: those that may follow and whose keys have their values
//! already ([`Planner::is_ready`]). When the packet comes to them they are finished on the spot, without another phase. So a
//! row of tables that do not depend on one another is one phase, and a program has as many phases as the longest chain of
//! dependent lookups, or a few more.
//!
//! **Order.** RTC code does everything for one packet before it looks at the next one. Staged code does not, which nobody
//! may see. Counters are sums, and sums know no order; but what packets do to the same register, to the same meter or to the
//! random numbers, and lookups in tables that packets add entries to, must happen in the packets' order. It does if it all happens
//! in one phase whose packets come in order: phase 0, or one that is reached from a single phase in order (rows are
//! appended one after the other). So must all accesses of locked registers ([`crate::locks`]): who waits for a table holds no lock. A plan for which this does not hold is not used: cuts are added one by one as long as it
//! does. Registers that the entry only reads are free.
//!
//! **Size.** Code that several phases reach is made several times; [`GROWTH_MAX`] bounds that.
//!
//! Not cut: applies in parsers and deparsers, in loops, of tables without keys.

use crate::ahead::Ahead;
use crate::flow::Flow;
use crate::locks::lock_rank;
use crate::probe::is_inlined;
use crate::{Options, Strategy};
use abi::{Bindings, EngineKind, TableBinding};
use ir::{BitSet, EntryPoint, ExternId, HashAlgorithm, Op, Program, SlotId, StageKind, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// Most phases of an entry, the first included, for each copy of what follows its parser.
const PHASES_MAX: usize = 12;
/// Most times that operations may be translated more often than once: `ops * GROWTH_MAX + GROWTH_FREE` in all.
const GROWTH_MAX: usize = 3;
/// See [`GROWTH_MAX`].
const GROWTH_FREE: usize = 64;

/// A place in the graph: a node and the number of an operation in its block.
pub(crate) type Spot = (usize, usize);

/// An apply that is taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    pub spot: Spot,
    pub table: TableId,
}

/// One phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phase {
    /// The lookup that its packets wait for; `None` for the first phase.
    pub cut: Option<usize>,
    /// Lookups that are begun where packets start to wait for it.
    pub fresh: Vec<usize>,
    /// Lookups that all packets that come to it have begun before, and may still come to.
    pub passed: Vec<usize>,
    /// The nodes it runs in ascending order, each with the operation before which it stops.
    pub nodes: Vec<(usize, Option<usize>)>,
}

impl Phase {
    /// Whether the phase's packets have begun a lookup when they enter it.
    pub fn has_begun(&self, lookup: usize) -> bool {
        self.cut == Some(lookup) || self.fresh.contains(&lookup) || self.passed.contains(&lookup)
    }

    /// The lookups that are begun when it is entered.
    pub fn begun(&self) -> impl Iterator<Item = usize> + '_ {
        self.cut.iter().chain(&self.fresh).chain(&self.passed).copied()
    }
}

/// How an entry is cut.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub lookups: Vec<Lookup>,
    /// Tables none of whose lookups in controls is left whole.
    pub tables: BTreeSet<TableId>,
    /// Tables that the strategy does not want to cut at, and their bytes.
    pub unwanted: BTreeMap<TableId, u64>,
    /// In an order in which packets can come through them.
    pub phases: Vec<Phase>,
    /// What packets go through before, if no packet waits.
    pub ahead: Option<Ahead>,
}

impl Plan {
    /// The plan that a strategy wants, as far as order and size allow. The flow has up to `copies` copies of what follows
    /// the parser.
    pub fn new(
        program: &Program,
        entry: &EntryPoint,
        flow: &Flow,
        bindings: &Bindings,
        options: &Options,
        copies: usize,
    ) -> Plan {
        let planner = Planner::new(program, entry, flow, bindings, options, copies);
        let wanted = planner.wanted(options);
        let unwanted = planner.unwanted(&wanted);
        let all = planner.plan(&wanted);
        if planner.is_allowed(&all) {
            return Plan { unwanted, ..all };
        }
        let (mut chosen, mut best) = (Vec::new(), planner.plan(&[]));
        for candidate in wanted {
            chosen.push(candidate);
            chosen.sort_unstable();
            let plan = planner.plan(&chosen);
            if planner.is_allowed(&plan) {
                best = plan;
            } else {
                chosen.retain(|&c| c != candidate);
            }
        }
        Plan { unwanted, ..best }
    }

    /// Everything in one phase, after all.
    pub fn uncut(&self, flow: &Flow) -> Plan {
        let nodes = (0..flow.graph.nodes.len()).map(|n| (n, None)).collect();
        let phases = vec![Phase { nodes, ..Phase::default() }];
        Plan { phases, unwanted: self.unwanted.clone(), ..Plan::default() }
    }

    /// The lookup at a place.
    pub fn lookup_at(&self, spot: Spot) -> Option<usize> {
        self.lookups.binary_search_by_key(&spot, |l| l.spot).ok()
    }

    /// The phase whose packets wait for a lookup.
    pub fn phase_of(&self, lookup: usize) -> Option<usize> {
        self.phases.iter().position(|p| p.cut == Some(lookup))
    }

    /// Whether packets wait anywhere.
    pub fn is_staged(&self) -> bool {
        self.phases.len() > 1
    }
}

/// What must see packets in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Ordered {
    Extern(ExternId),
    Table(TableId),
    Locked,
    Unresolved,
    Chance,
}

/// Whether a lookup that was begun is only finished where the packet comes to it: its first cache line has all of it.
pub(super) fn is_finished_late(binding: &TableBinding, options: &Options) -> bool {
    is_inlined(binding.engine, options) && binding.exact.is_some_and(|layout| !layout.far)
}

struct Planner<'a> {
    program: &'a Program,
    flow: &'a Flow,
    bindings: &'a Bindings,
    /// All applies that can be cut, by place.
    candidates: Vec<Lookup>,
    /// Nodes that can be reached from each candidate's node, itself not included.
    behind: Vec<BitSet>,
    /// Nodes from which each candidate's node can be reached, itself not included.
    before: Vec<BitSet>,
    /// Registers that the entry writes.
    written: Vec<ExternId>,
    /// Tables that it adds entries to.
    added: Vec<TableId>,
    /// See [`PHASES_MAX`].
    phases_max: usize,
}

impl<'a> Planner<'a> {
    fn new(
        program: &'a Program,
        entry: &EntryPoint,
        flow: &'a Flow,
        bindings: &'a Bindings,
        options: &Options,
        copies: usize,
    ) -> Planner<'a> {
        let nodes = &flow.graph.nodes;
        let mut preds: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        for (n, node) in nodes.iter().enumerate() {
            node.succs.iter().for_each(|&s| preds[s].push(n));
        }
        let mut planner = Planner {
            program,
            flow,
            bindings,
            candidates: Vec::new(),
            behind: Vec::new(),
            before: Vec::new(),
            written: Vec::new(),
            added: Vec::new(),
            phases_max: copies * PHASES_MAX,
        };
        for (n, node) in nodes.iter().enumerate() {
            let is_control = program.stages[entry.stages[node.position].index()].kind == StageKind::Control;
            for (i, inst) in planner.insts(n).iter().enumerate() {
                match &inst.op {
                    Op::RegisterWrite { register, .. } => planner.written.push(*register),
                    Op::AddEntry { table, .. } => planner.added.push(*table),
                    Op::Apply { table, keys, .. } if is_control && !keys.is_empty() => {
                        let engine = bindings.tables.get(table.index()).map(|b| b.engine);
                        if engine.is_some_and(|e| e != EngineKind::Empty) {
                            planner.candidates.push(Lookup { spot: (n, i), table: *table });
                        }
                    }
                    _ => {}
                }
            }
        }
        // A lookup must see what the packets before this one have added: it may only be finished where the packet comes to it.
        let added = &planner.added;
        planner.candidates.retain(|c| {
            let binding = &bindings.tables[c.table.index()];
            !added.contains(&c.table) || is_finished_late(binding, options)
        });
        let reach = |from: usize, next: &dyn Fn(usize) -> Vec<usize>| {
            let mut seen = BitSet::new(nodes.len());
            let mut stack = next(from);
            while let Some(n) = stack.pop() {
                if !seen.contains(n) {
                    seen.insert(n);
                    stack.extend(next(n));
                }
            }
            seen
        };
        // Every candidate is a search through the graph; no more of them than a plan can use a few times over.
        planner.candidates.truncate(8 * planner.phases_max);
        planner.candidates.retain(|c| !reach(c.spot.0, &|n| nodes[n].succs.clone()).contains(c.spot.0));
        for c in &planner.candidates {
            planner.behind.push(reach(c.spot.0, &|n| nodes[n].succs.clone()));
            planner.before.push(reach(c.spot.0, &|n| preds[n].clone()));
        }
        planner
    }

    fn insts(&self, node: usize) -> &'a [ir::Inst] {
        let n = &self.flow.graph.nodes[node];
        &self.program.stages[n.stage.index()].blocks[n.block.index()].insts
    }

    /// The candidates that the strategy wants to cut at, the most important first.
    fn wanted(&self, options: &Options) -> Vec<usize> {
        let footprint = |c: &usize| self.bindings.tables[self.candidates[*c].table.index()].footprint_bytes;
        let mut wanted: Vec<usize> = (0..self.candidates.len()).collect();
        match options.strategy {
            Strategy::RunToCompletion => wanted.clear(),
            Strategy::Staged => {}
            Strategy::Auto => {
                let mut seen = Vec::new();
                let mut all = 0;
                for c in &self.candidates {
                    if !seen.contains(&c.table) {
                        seen.push(c.table);
                        all += self.bindings.tables[c.table.index()].footprint_bytes;
                    }
                }
                wanted.retain(|c| all > crate::CACHED_BYTES_MAX && footprint(c) > crate::CUT_BYTES_MIN);
                wanted.sort_by_key(|c| std::cmp::Reverse(footprint(c)));
            }
        }
        wanted
    }

    /// The tables of all candidates that are not wanted.
    fn unwanted(&self, wanted: &[usize]) -> BTreeMap<TableId, u64> {
        let not_wanted = (0..self.candidates.len()).filter(|c| !wanted.contains(c));
        let tables = not_wanted.map(|c| self.candidates[c].table);
        tables.map(|table| (table, self.bindings.tables[table.index()].footprint_bytes)).collect()
    }

    /// Whether candidate `b` may follow candidate `a`.
    fn follows(&self, a: usize, b: usize) -> bool {
        let ((an, ai), (bn, bi)) = (self.candidates[a].spot, self.candidates[b].spot);
        if an == bn { ai < bi } else { self.behind[a].contains(bn) }
    }

    /// Whether `b`'s key has its value when a packet is about to be looked up at `a`: nothing that can happen between the
    /// two assigns what it is made of.
    fn is_ready(&self, a: usize, b: usize) -> bool {
        let ((an, ai), (bn, bi)) = (self.candidates[a].spot, self.candidates[b].spot);
        let Op::Apply { keys, .. } = &self.insts(bn)[bi].op else { unreachable!("candidates are applies") };
        let slots: Vec<SlotId> = keys.iter().filter_map(|k| k.slot()).collect();
        let changes = |ops: &[ir::Inst]| {
            let mut changes = false;
            ops.iter().for_each(|inst| inst.op.for_each_def(self.program, |s| changes |= slots.contains(&s)));
            changes
        };
        if an == bn {
            return !changes(&self.insts(an)[ai..bi]);
        }
        let between = |n: &usize| self.behind[a].contains(*n) && self.before[b].contains(*n);
        !changes(&self.insts(an)[ai..])
            && !changes(&self.insts(bn)[..bi])
            && !(0..self.flow.graph.nodes.len()).filter(between).any(|n| changes(self.insts(n)))
    }

    /// What a phase runs that begins behind `start` (or at the entry's start) with lookups begun, and the cuts that its
    /// packets come to. `chosen` are candidates.
    fn explore(
        &self,
        start: Option<Spot>,
        begun: &[usize],
        chosen: &[usize],
    ) -> (Vec<(usize, Option<usize>)>, Vec<usize>) {
        let mut nodes = BTreeMap::new();
        let mut cuts = Vec::new();
        let mut stack = vec![start.map_or((0, 0), |(n, i)| (n, i + 1))];
        while let Some((n, from)) = stack.pop() {
            if nodes.contains_key(&n) {
                continue;
            }
            let stops = |&&c: &&usize| {
                let (node, inst) = self.candidates[c].spot;
                node == n && inst >= from && !begun.contains(&c)
            };
            let stop = chosen.iter().filter(stops).min_by_key(|&&c| self.candidates[c].spot.1);
            nodes.insert(n, stop.map(|&c| self.candidates[c].spot.1));
            match stop {
                Some(&c) if !cuts.contains(&c) => cuts.push(c),
                Some(_) => {}
                None => stack.extend(self.flow.graph.nodes[n].succs.iter().map(|&s| (s, 0))),
            }
        }
        (nodes.into_iter().collect(), cuts)
    }

    /// Cuts at the chosen candidates.
    fn plan(&self, chosen: &[usize]) -> Plan {
        let mut chosen = chosen.to_vec();
        chosen.sort_unstable();
        let number = |c: usize| chosen.binary_search(&c).expect("a chosen candidate");
        let lookups = chosen.iter().map(|&c| self.candidates[c].clone()).collect();
        let (nodes, cuts) = self.explore(None, &[], &chosen);
        let mut phases = vec![Phase { nodes, ..Phase::default() }];
        // By chosen candidate: what has been begun in every phase that comes to it.
        let mut arriving: Vec<Option<Vec<usize>>> = vec![None; chosen.len()];
        for c in cuts {
            arriving[number(c)] = Some(Vec::new());
        }
        for (l, &cut) in chosen.iter().enumerate() {
            let Some(arrived) = arriving[l].take() else { continue };
            let passed: Vec<usize> = arrived.into_iter().filter(|&d| self.follows(cut, d)).collect();
            let fresh: Vec<usize> = chosen
                .iter()
                .copied()
                .filter(|&d| d != cut && !passed.contains(&d) && self.follows(cut, d) && self.is_ready(cut, d))
                .collect();
            let begun: Vec<usize> = passed.iter().chain(&fresh).chain([&cut]).copied().collect();
            let (nodes, cuts) = self.explore(Some(self.candidates[cut].spot), &begun, &chosen);
            for c in cuts {
                match &mut arriving[number(c)] {
                    Some(all) => all.retain(|d| begun.contains(d)),
                    none => *none = Some(begun.clone()),
                }
            }
            let numbers = |of: Vec<usize>| of.into_iter().map(number).collect();
            phases.push(Phase { cut: Some(l), fresh: numbers(fresh), passed: numbers(passed), nodes });
        }
        let is_whole = |c: &usize| chosen.binary_search(c).is_err();
        let mut tables: BTreeSet<TableId> = chosen.iter().map(|&c| self.candidates[c].table).collect();
        (0..self.candidates.len()).filter(is_whole).for_each(|c| _ = tables.remove(&self.candidates[c].table));
        Plan { lookups, tables, phases, ..Plan::default() }
    }

    /// Whether a plan is small enough and keeps the order of what must be kept in order.
    fn is_allowed(&self, plan: &Plan) -> bool {
        let ops = |phase: &Phase| -> usize {
            phase.nodes.iter().map(|&(n, stop)| stop.unwrap_or(self.insts(n).len()) + 1).sum()
        };
        let once: usize = (0..self.flow.graph.nodes.len()).map(|n| self.insts(n).len() + 1).sum();
        let all: usize = plan.phases.iter().map(ops).sum();
        if plan.phases.len() > self.phases_max || all > once * GROWTH_MAX + GROWTH_FREE {
            return false;
        }
        // How many phases come to each, and whether its packets come in order.
        let mut in_order = vec![true; plan.phases.len()];
        for (p, phase) in plan.phases.iter().enumerate() {
            let Some(cut) = phase.cut else { continue };
            let spot = plan.lookups[cut].spot;
            let sources: Vec<usize> =
                (0..p).filter(|&q| plan.phases[q].nodes.contains(&(spot.0, Some(spot.1)))).collect();
            in_order[p] = matches!(sources[..], [only] if in_order[only]);
        }
        let mut used: BTreeMap<Ordered, usize> = BTreeMap::new();
        for (p, phase) in plan.phases.iter().enumerate() {
            let start = phase.cut.map(|c| plan.lookups[c].spot);
            // The lookup that its packets wait for is finished in it.
            let cut = phase.cut.map(|c| plan.lookups[c].table).filter(|table| self.added.contains(table));
            if let Some(table) = cut
                && (*used.entry(Ordered::Table(table)).or_insert(p) != p || !in_order[p])
            {
                return false;
            }
            for &(n, stop) in &phase.nodes {
                let from = start.filter(|s| s.0 == n).map_or(0, |s| s.1 + 1);
                for inst in &self.insts(n)[from..stop.unwrap_or(self.insts(n).len())] {
                    let Some(what) = self.ordered(&inst.op) else { continue };
                    let owner = *used.entry(what).or_insert(p);
                    if owner != p || !in_order[p] {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// What an operation does that other packets can see the order of.
    fn ordered(&self, op: &Op) -> Option<Ordered> {
        match op {
            Op::RegisterRead { register, .. } | Op::RegisterWrite { register, .. }
                if lock_rank(self.bindings, *register).is_some() =>
            {
                Some(Ordered::Locked)
            }
            Op::RegisterRead { register, .. } if !self.written.contains(register) => None,
            Op::RegisterRead { register, .. } | Op::RegisterWrite { register, .. } => Some(Ordered::Extern(*register)),
            Op::Meter { meter, .. } | Op::MeterDirect { meter, .. } => Some(Ordered::Extern(*meter)),
            // What is looked up is what earlier packets have added.
            Op::Apply { table, .. } if !self.added.contains(table) => None,
            Op::Apply { table, .. } | Op::AddEntry { table, .. } => Some(Ordered::Table(*table)),
            Op::Unresolved { .. } => Some(Ordered::Unresolved),
            Op::Random { .. } | Op::Hash { algorithm: HashAlgorithm::Random, .. } => Some(Ordered::Chance),
            _ => None,
        }
    }
}
