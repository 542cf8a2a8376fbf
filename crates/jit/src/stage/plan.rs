//! Chooses where staged code cuts an entry point.
//!
//! A **lookup** here is an apply that is split: its key is hashed and its memory prefetched for many packets before any
//! of them needs the result. A **phase** runs from the start of a packet, or from after a lookup, to the next lookups
//! or the packet's fate. Phase 0 starts packets; every other phase belongs to the lookup at which its packets wait: a
//! **cut**.
//!
//! Where a packet waits for one lookup, others can be begun too: those that may follow and whose keys are already
//! computed ([`Planner::is_ready`]). They are finished where the packet reaches them, without another phase. So a
//! sequence of independent tables is one phase, and a program has about as many phases as its longest chain of
//! dependent lookups.
//!
//! **Order.** Run-to-completion code does everything for one packet before the next one. Staged code does not, and this
//! must not be observable. Counters are sums, which do not depend on order. But accesses of the same register, of the
//! same meter or of the random numbers, and lookups in tables that packets add entries to, must happen in the packets'
//! order. They do if they all happen in one phase whose packets come in order: phase 0, or a phase that is reached in
//! order from a single phase (rows are appended one after the other). The same holds for all accesses of locked
//! registers ([`crate::locks`]), because a packet that waits for a table holds no lock. Cuts are added one by one as
//! long as the plan satisfies this. Registers that the entry point only reads are exempt.
//!
//! **Size.** Code that is reached from several phases is generated several times; [`GROWTH_MAX`] bounds that.
//!
//! Not cut: applies in parsers and deparsers, in loops, and of tables without keys.

use crate::flow::Flow;
use crate::locks::lock_rank;
use crate::prefetch_pass::PrefetchPass;
use crate::probe::is_inlined;
use crate::{Options, Strategy};
use abi::{Bindings, EngineKind, TableBinding};
use ir::{BitSet, EntryPoint, ExternId, ExternKind, HashAlgorithm, Op, Program, SlotId, StageKind, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// Most phases of an entry point, the first included, for each copy of what follows its parser.
const PHASES_MAX: usize = 12;
/// Bound on the code size: at most `ops * GROWTH_MAX + GROWTH_FREE` operations are translated in all.
const GROWTH_MAX: usize = 3;
/// See [`GROWTH_MAX`].
const GROWTH_FREE: usize = 64;

/// A program point: a node and the index of an operation in its block.
pub(crate) type ProgramPoint = (usize, usize);

/// An apply that is split.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    pub program_point: ProgramPoint,
    pub table: TableId,
}

/// A phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phase {
    /// The lookup that its packets wait for; `None` for the first phase.
    pub cut: Option<usize>,
    /// Lookups that are begun where packets start to wait for this phase.
    pub fresh: Vec<usize>,
    /// Lookups that all packets of this phase have begun earlier and may still reach.
    pub passed: Vec<usize>,
    /// The nodes that it runs, in ascending order, each with the operation before which it stops.
    pub nodes: Vec<(usize, Option<usize>)>,
}

impl Phase {
    /// Whether the phase's packets have begun a lookup before they enter it.
    pub fn has_begun(&self, lookup: usize) -> bool {
        self.cut == Some(lookup) || self.fresh.contains(&lookup) || self.passed.contains(&lookup)
    }

    /// The lookups that are begun before it is entered.
    pub fn begun(&self) -> impl Iterator<Item = usize> + '_ {
        self.cut.iter().chain(&self.fresh).chain(&self.passed).copied()
    }
}

/// The cuts of an entry point.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub lookups: Vec<Lookup>,
    /// Tables whose lookups in controls are all split.
    pub tables: BTreeSet<TableId>,
    /// Tables at which the strategy does not cut, with their bytes.
    pub not_selected: BTreeMap<TableId, u64>,
    /// The phases in an order in which packets can pass them.
    pub phases: Vec<Phase>,
    /// The prefetching pass before the packets run, if no packet waits.
    pub prefetch_pass: Option<PrefetchPass>,
}

impl Plan {
    /// The plan by the strategy, as far as order and size allow. The flow has up to `copies` copies of what follows the
    /// parser.
    pub fn new(
        program: &Program,
        entry: &EntryPoint,
        flow: &Flow,
        bindings: &Bindings,
        options: &Options,
        copies: usize,
    ) -> Plan {
        let planner = Planner::new(program, entry, flow, bindings, options, copies);
        let selected = planner.selected(options);
        let not_selected = planner.not_selected(&selected);
        let all = planner.plan(&selected);
        if planner.is_allowed(&all) {
            return Plan { not_selected, ..all };
        }
        let (mut chosen, mut best) = (Vec::new(), planner.plan(&[]));
        for candidate in selected {
            chosen.push(candidate);
            chosen.sort_unstable();
            let plan = planner.plan(&chosen);
            if planner.is_allowed(&plan) {
                best = plan;
            } else {
                chosen.retain(|&c| c != candidate);
            }
        }
        Plan { not_selected, ..best }
    }

    /// The plan with everything in one phase.
    pub fn unstaged(&self, flow: &Flow) -> Plan {
        let nodes = (0..flow.graph.nodes.len()).map(|n| (n, None)).collect();
        let phases = vec![Phase { nodes, ..Phase::default() }];
        Plan { phases, not_selected: self.not_selected.clone(), ..Plan::default() }
    }

    /// The lookup at a program point.
    pub fn lookup_at(&self, program_point: ProgramPoint) -> Option<usize> {
        self.lookups.binary_search_by_key(&program_point, |l| l.program_point).ok()
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

/// What must be accessed in the packets' order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Ordered {
    Extern(ExternId),
    Table(TableId),
    Locked,
    Unresolved,
    Chance,
}

/// Whether a begun lookup is finished only where the packet reaches its apply, because its first cache line holds the
/// entry too.
pub(super) fn is_finished_late(binding: &TableBinding, options: &Options) -> bool {
    is_inlined(binding.engine, options) && binding.exact.is_some_and(|layout| !layout.out_of_line)
}

struct Planner<'a> {
    program: &'a Program,
    flow: &'a Flow,
    bindings: &'a Bindings,
    /// All applies that can be cut, by program point.
    candidates: Vec<Lookup>,
    /// By candidate: the nodes that are reachable from its node, without the node itself.
    behind: Vec<BitSet>,
    /// By candidate: the nodes from which its node is reachable, without the node itself.
    before: Vec<BitSet>,
    /// Registers that the entry point writes.
    written: Vec<ExternId>,
    /// Tables that the entry point adds entries to.
    added: Vec<TableId>,
    /// Those of them whose entries packets replace or evict.
    retired: Vec<TableId>,
    /// Whether packets lock cells of a register.
    has_locks: bool,
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
            retired: Vec::new(),
            has_locks: (0..program.externs.len()).any(|i| lock_rank(bindings, ExternId::from_index(i)).is_some()),
            phases_max: copies * PHASES_MAX,
        };
        for (n, node) in nodes.iter().enumerate() {
            let is_control = program.stages[entry.stages[node.position].index()].kind == StageKind::Control;
            for (i, inst) in planner.insts(n).iter().enumerate() {
                match &inst.op {
                    Op::RegisterWrite { register, .. } | Op::RegisterUpdate { register, .. } => {
                        planner.written.push(*register);
                    }
                    Op::AddEntry { table, replace, .. } => {
                        planner.added.push(*table);
                        let dynamic = program.tables[table.index()].dynamic.as_ref();
                        if *replace || dynamic.is_some_and(|dynamic| dynamic.evicts) {
                            planner.retired.push(*table);
                        }
                    }
                    Op::Apply { table, keys, .. } if is_control && !keys.is_empty() => {
                        let engine = bindings.tables.get(table.index()).map(|b| b.engine);
                        if engine.is_some_and(|e| e != EngineKind::Empty) {
                            planner.candidates.push(Lookup { program_point: (n, i), table: *table });
                        }
                    }
                    _ => {}
                }
            }
        }
        // A lookup must see the entries that earlier packets have added: it may only be finished where the packet
        // reaches it.
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
        // Every candidate costs a search of the graph; keep a few times as many as a plan can use.
        planner.candidates.truncate(8 * planner.phases_max);
        planner
            .candidates
            .retain(|c| !reach(c.program_point.0, &|n| nodes[n].succs.clone()).contains(c.program_point.0));
        for c in &planner.candidates {
            planner.behind.push(reach(c.program_point.0, &|n| nodes[n].succs.clone()));
            planner.before.push(reach(c.program_point.0, &|n| preds[n].clone()));
        }
        planner
    }

    fn insts(&self, node: usize) -> &'a [ir::Inst] {
        let n = &self.flow.graph.nodes[node];
        &self.program.stages[n.stage.index()].blocks[n.block.index()].insts
    }

    /// The candidates at which the strategy cuts, the most important first.
    fn selected(&self, options: &Options) -> Vec<usize> {
        let footprint = |c: &usize| self.bindings.tables[self.candidates[*c].table.index()].footprint_bytes;
        let mut selected: Vec<usize> = (0..self.candidates.len()).collect();
        match options.strategy {
            Strategy::RunToCompletion => selected.clear(),
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
                selected.retain(|c| all > crate::CACHED_BYTES_MAX && footprint(c) > crate::CUT_BYTES_MIN);
                selected.sort_by_key(|c| std::cmp::Reverse(footprint(c)));
            }
        }
        selected
    }

    /// The tables of all other candidates.
    fn not_selected(&self, selected: &[usize]) -> BTreeMap<TableId, u64> {
        let others = (0..self.candidates.len()).filter(|c| !selected.contains(c));
        let tables = others.map(|c| self.candidates[c].table);
        tables.map(|table| (table, self.bindings.tables[table.index()].footprint_bytes)).collect()
    }

    /// Whether candidate `b` may follow candidate `a`.
    fn follows(&self, a: usize, b: usize) -> bool {
        let ((an, ai), (bn, bi)) = (self.candidates[a].program_point, self.candidates[b].program_point);
        if an == bn { ai < bi } else { self.behind[a].contains(bn) }
    }

    /// Whether `b`'s key is computed when a packet is about to be looked up at `a`: nothing between the two assigns its
    /// slots.
    fn is_ready(&self, a: usize, b: usize) -> bool {
        let ((an, ai), (bn, bi)) = (self.candidates[a].program_point, self.candidates[b].program_point);
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

    /// The nodes of a phase that begins after `start` (or at the entry point's start) with some lookups begun, and the
    /// cuts that its packets reach. `chosen` are candidates.
    fn explore(
        &self,
        start: Option<ProgramPoint>,
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
                let (node, inst) = self.candidates[c].program_point;
                node == n && inst >= from && !begun.contains(&c)
            };
            let stop = chosen.iter().filter(stops).min_by_key(|&&c| self.candidates[c].program_point.1);
            nodes.insert(n, stop.map(|&c| self.candidates[c].program_point.1));
            match stop {
                Some(&c) if !cuts.contains(&c) => cuts.push(c),
                Some(_) => {}
                None => stack.extend(self.flow.graph.nodes[n].succs.iter().map(|&s| (s, 0))),
            }
        }
        (nodes.into_iter().collect(), cuts)
    }

    /// The plan with cuts at the chosen candidates.
    fn plan(&self, chosen: &[usize]) -> Plan {
        let mut chosen = chosen.to_vec();
        chosen.sort_unstable();
        let number = |c: usize| chosen.binary_search(&c).expect("a chosen candidate");
        let lookups = chosen.iter().map(|&c| self.candidates[c].clone()).collect();
        let (nodes, cuts) = self.explore(None, &[], &chosen);
        let mut phases = vec![Phase { nodes, ..Phase::default() }];
        // By chosen candidate: the lookups that have been begun in every phase that reaches it.
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
            let (nodes, cuts) = self.explore(Some(self.candidates[cut].program_point), &begun, &chosen);
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

    /// Whether a plan is small enough and keeps the required order.
    fn is_allowed(&self, plan: &Plan) -> bool {
        let ops = |phase: &Phase| -> usize {
            phase.nodes.iter().map(|&(n, stop)| stop.unwrap_or(self.insts(n).len()) + 1).sum()
        };
        let once: usize = (0..self.flow.graph.nodes.len()).map(|n| self.insts(n).len() + 1).sum();
        let all: usize = plan.phases.iter().map(ops).sum();
        if plan.phases.len() > self.phases_max || all > once * GROWTH_MAX + GROWTH_FREE {
            return false;
        }
        // How many phases lead to each phase, and whether its packets come in order.
        let mut in_order = vec![true; plan.phases.len()];
        for (p, phase) in plan.phases.iter().enumerate() {
            let Some(cut) = phase.cut else { continue };
            let program_point = plan.lookups[cut].program_point;
            let sources: Vec<usize> =
                (0..p).filter(|&q| plan.phases[q].nodes.contains(&(program_point.0, Some(program_point.1)))).collect();
            in_order[p] = matches!(sources[..], [only] if in_order[only]);
        }
        let mut used: BTreeMap<Ordered, usize> = BTreeMap::new();
        for (p, phase) in plan.phases.iter().enumerate() {
            let start = phase.cut.map(|c| plan.lookups[c].program_point);
            // The lookup that its packets wait for is finished in this phase.
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

    /// The table that a direct counter or meter belongs to.
    fn owner(&self, of: ExternId) -> Option<TableId> {
        match self.program.externs[of.index()].kind {
            ExternKind::Counter { direct, .. } | ExternKind::Meter { direct, .. } => direct,
            _ => None,
        }
    }

    /// What an operation accesses in an order that other packets can observe.
    fn ordered(&self, op: &Op) -> Option<Ordered> {
        match op {
            Op::RegisterRead { register, .. }
            | Op::RegisterWrite { register, .. }
            | Op::RegisterUpdate { register, .. }
                if lock_rank(self.bindings, *register).is_some() =>
            {
                Some(Ordered::Locked)
            }
            // Packets that hold locks keep them until then.
            Op::RegisterUpdate { .. } | Op::RegisterWrite { .. } if self.has_locks => Some(Ordered::Locked),
            Op::RegisterRead { register, .. } if !self.written.contains(register) => None,
            Op::RegisterRead { register, .. }
            | Op::RegisterWrite { register, .. }
            | Op::RegisterUpdate { register, .. } => Some(Ordered::Extern(*register)),
            Op::CountDirect { counter: of, .. } | Op::MeterDirect { meter: of, .. }
                if self.owner(*of).is_some_and(|table| self.retired.contains(&table)) =>
            {
                self.owner(*of).map(Ordered::Table)
            }
            Op::Meter { meter, .. } | Op::MeterDirect { meter, .. } => Some(Ordered::Extern(*meter)),
            // The lookup finds what earlier packets have added.
            Op::Apply { table, .. } if !self.added.contains(table) => None,
            Op::Apply { table, .. } | Op::AddEntry { table, .. } => Some(Ordered::Table(*table)),
            // Later packets may take the slots of entries that they replace or evict.
            Op::ActionParam { table, .. } | Op::RestartTimer { table, .. } if self.retired.contains(table) => {
                Some(Ordered::Table(*table))
            }
            Op::Unresolved { .. } => Some(Ordered::Unresolved),
            Op::Random { .. } | Op::Hash { algorithm: HashAlgorithm::Random, .. } => Some(Ordered::Chance),
            _ => None,
        }
    }
}
