//! Dataflow analysis of an entry point, before code is generated for it.
//!
//! The stages of an entry point are laid out as one control-flow graph of [`Node`]s in reverse post-order. A forward
//! analysis propagates [`Facts`] through it: the parser's cursor where it is a constant, which headers can be valid,
//! and which fields can differ from the packet's bytes. Edit mode depends on the last.
//!
//! **Clean fields.** A field is *clean* where its value equals the packet's bytes at the place the header was last
//! extracted from, if its header is valid, and is zero if its header is invalid (the IR's own rule for invalid
//! headers). Clean fields need no register: reads load them from the packet, and deparsing leaves their bytes alone or
//! copies them. All other fields are *dirty*. At a join, a field is dirty if it is dirty on any incoming path.
//!
//! So that a read need not test whether the header is valid, code keeps a pointer for every header that is extracted:
//! to its place in the packet, or to a row of zeros while the header is invalid. One value per header is thus carried
//! through the graph instead of one per field. Where a field turns dirty without being assigned (its header is set
//! valid, its path joins one on which it is dirty, the deparser ends), its value is loaded into its variable. Two kinds
//! of fields are loaded when they are extracted instead: those of headers with a varbit ([`ProgramFacts::lazy_field`]),
//! and those that would have to be loaded on many edges ([`Flow::loaded_often`]). The latter arise where the cases of a
//! large `switch` join, each of which assigns another field: all of these fields turn dirty on all incoming edges.
//!
//! **Layout changes.** The headers that the next deparser emits are unmoved at the packet's head as long as (a) none
//! was valid before the parser began, (b) they were extracted in the order of emission, (c) the parser skipped nothing
//! and extracted nothing that is not emitted, and (d) no validity and no varbit changed since. [`Flow::step`] says for
//! every operation whether it may break this ([`LayoutChange`]); generated code then keeps a flag.
//!
//! Also here: which slots must hold a value at all ([`Flow::needed`]), and which are live at the start of an entry
//! point.
//!
//! Tests: `tests/` of this crate compare edited packets with the interpreter's.

use crate::header::{FieldAt, HeaderLayout, Segment, dirty_bytes};
use crate::paths::{self, Known};
use crate::verified::{self, SumFacts, Sums};
use crate::{Optimisation, Options};
use ir::flow::Cfg;
use ir::{BitSet, BlockId, EntryKind, EntryPoint, Fate, HeaderId, Inst, Op, Program, SlotId, SlotKind, StageId};
use ir::{StageKind, Terminator};
use std::collections::{BTreeMap, VecDeque};

/// Facts about the whole program, shared by all entry points except those with [`Flow::loaded_often`].
#[derive(Clone)]
pub(crate) struct ProgramFacts {
    /// The layouts of headers, by header.
    pub headers: Vec<HeaderLayout>,
    /// By slot: the number of a header field among all fields; `u32::MAX` for other slots.
    field_number: Vec<u32>,
    /// By header: the numbers of its fields.
    field_range: Vec<std::ops::Range<usize>>,
    fields: usize,
    /// All fields, by number.
    all_fields: BitSet,
    /// By slot: the header and the place in it, for fields of headers without varbits.
    lazy_fields: Vec<Option<(HeaderId, FieldAt)>>,
    /// By slot: whether it is a field of a header that is not accessed field by field (`Segment::Odd`); such a field is
    /// never clean.
    never_clean: Vec<bool>,
    /// Slots that are assigned by an operation other than extracting a header or making it invalid.
    pub assigned: BitSet,
    /// The sets of fields that are summed more than once.
    pub sums: Sums,
    /// Slots that a record must hold after `IngressEnd` and `EgressEnd`, after `DeparseEnd`, and after `FrameEnd`: the
    /// entry points that follow, or the runtime, read them.
    pub spilled_before_deparse: BitSet,
    pub spilled_after_deparse: BitSet,
    pub spilled_after_frame: BitSet,
    /// Slots that a record must hold when a packet goes back to ingress; some of them are zero.
    pub read_at_reingress: BitSet,
    /// The slots of each field list, by its number; `None` is the empty list.
    lists: Vec<(Option<u64>, BitSet)>,
}

impl ProgramFacts {
    pub fn new(program: &Program, options: &Options) -> Result<ProgramFacts, crate::Error> {
        let headers = (0..program.headers.len())
            .map(|h| HeaderLayout::new(program, HeaderId::from_index(h)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut field_number = vec![u32::MAX; program.slots.len()];
        let mut field_range = Vec::new();
        let mut fields = 0;
        for header in &program.headers {
            let from = fields;
            for field in &header.fields {
                field_number[field.slot.index()] = fields as u32;
                fields += 1;
            }
            field_range.push(from..fields);
        }
        let mut lazy_fields = vec![None; program.slots.len()];
        let loads_fields_late = |h: &HeaderLayout| h.var.is_none() && options.has(Optimisation::LazyFields);
        for (h, layout) in headers.iter().enumerate().filter(|(_, h)| loads_fields_late(h)) {
            for segment in &layout.segments {
                let Segment::Fixed { fields, .. } = segment else { continue };
                fields.iter().for_each(|f| lazy_fields[f.slot.index()] = Some((HeaderId::from_index(h), *f)));
            }
        }
        let mut never_clean = vec![false; program.slots.len()];
        for (header, _) in program.headers.iter().zip(&headers).filter(|(_, layout)| layout.is_odd()) {
            header.fields.iter().for_each(|f| never_clean[f.slot.index()] = true);
        }
        let mut assigned = BitSet::new(program.slots.len());
        for inst in program.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts) {
            if !matches!(inst.op, Op::Extract { .. } | Op::SetInvalid { .. }) {
                inst.op.for_each_def(program, |s| assigned.insert(s.index()));
            }
        }
        let empty = BitSet::new(program.slots.len());
        let sums = Sums::new(program, options, |slot| lazy_fields[slot.index()].is_some());
        let mut facts = ProgramFacts {
            sums,
            lazy_fields,
            never_clean,
            assigned,
            headers,
            field_number,
            field_range,
            fields,
            all_fields: BitSet::full(fields),
            spilled_before_deparse: empty.clone(),
            spilled_after_deparse: empty.clone(),
            spilled_after_frame: empty.clone(),
            read_at_reingress: empty.clone(),
            lists: vec![(None, empty)],
        };
        for (number, slots) in &program.field_lists {
            let mut list = BitSet::new(program.slots.len());
            slots.iter().for_each(|slot| list.insert(slot.index()));
            facts.lists.push((Some(*number), list));
        }
        facts.find_spilled(program);
        facts.read_at_reingress = facts.find_read_at_reingress(program);
        Ok(facts)
    }

    /// Computes which slots records must hold, as a least fixed point: the runtime reads intrinsics and field lists;
    /// the entry points `Egress` and `Deparse` read what they use before they assign it; and `Egress` may pass it on to
    /// another `Egress` or `Deparse`. `Deparse` passes on only what the runtime reads.
    fn find_spilled(&mut self, program: &Program) {
        let mut base = BitSet::new(program.slots.len());
        program.intrinsics.iter().for_each(|(_, slot)| base.insert(slot.index()));
        program.field_lists.iter().flat_map(|(_, slots)| slots).for_each(|slot| base.insert(slot.index()));
        self.spilled_after_deparse = base.clone();
        self.spilled_after_frame = base.clone();
        self.spilled_before_deparse = base;
        let read =
            [EntryKind::Deparse, EntryKind::Egress].map(|kind| program.entry(kind).map(|e| Graph::new(program, e)));
        if let Some(deparse) = &read[0] {
            self.spilled_after_frame.union(&deparse.live_at_start(program, self));
        }
        loop {
            let mut grown = self.spilled_before_deparse.clone();
            let mut changed = false;
            for graph in read.iter().flatten() {
                changed |= grown.union(&graph.live_at_start(program, self));
            }
            self.spilled_before_deparse = grown;
            if !changed {
                return;
            }
        }
    }

    /// The slots that the entry point `Reingress` reads from records. If the program has none, all that any entry point
    /// may read, since other code has one.
    fn find_read_at_reingress(&self, program: &Program) -> BitSet {
        let Some(entry) = program.entry(EntryKind::Reingress) else { return self.spilled_after_deparse.clone() };
        let mut read = BitSet::new(program.slots.len());
        let live = Graph::new(program, entry).live_at_start(program, self);
        live.iter().filter(|slot| self.spilled_after_deparse.contains(*slot)).for_each(|slot| read.insert(slot));
        read
    }

    /// These facts with some fields loaded when their header is extracted.
    pub fn with_loaded(&self, fields: &BitSet) -> ProgramFacts {
        let mut facts = self.clone();
        fields.iter().for_each(|slot| facts.lazy_fields[slot] = None);
        facts
    }

    /// The header of a lazily loaded field and its place there; while the field is clean, reads load it from the
    /// packet.
    pub fn lazy_field(&self, slot: SlotId) -> Option<(HeaderId, FieldAt)> {
        self.lazy_fields[slot.index()]
    }

    /// The slot of a field, by number.
    fn slot_of_field(&self, program: &Program, field: usize) -> SlotId {
        let header = self.field_range.partition_point(|r| r.end <= field);
        program.headers[header].fields[field - self.field_range[header].start].slot
    }

    /// The fields of a header, by number.
    fn fields_of(&self, header: HeaderId) -> std::ops::Range<usize> {
        self.field_range[header.index()].clone()
    }

    /// Whether a slot can have a nonzero value when a packet starts at an entry point. Records for `Reingress` and
    /// `CloneIngress` have been cleared by the replication engine except for intrinsics and field lists.
    pub fn is_kept(&self, kind: EntryKind, slot: SlotId) -> bool {
        match kind {
            EntryKind::Ingress => false,
            EntryKind::Reingress | EntryKind::CloneIngress => self.spilled_after_deparse.contains(slot.index()),
            EntryKind::Egress | EntryKind::Deparse => true,
        }
    }

    /// The slots that any replication point spills.
    pub fn recorded(&self) -> Vec<SlotId> {
        let mut all = self.spilled_before_deparse.clone();
        all.union(&self.spilled_after_deparse);
        all.union(&self.spilled_after_frame);
        all.iter().map(SlotId::from_index).collect()
    }

    /// The slots whose values must be in the record when packets end with this fate, because other entry points read
    /// them.
    pub fn spilled_for(&self, fate: &Fate) -> Option<&BitSet> {
        match fate {
            Fate::Replicate(point) => Some(self.spilled(*point)),
            Fate::Again { list, .. } => {
                let lists = &self.lists;
                lists.iter().find(|(number, _)| number == list).map(|(_, slots)| slots)
            }
            Fate::Drop(_) | Fate::Send(_) | Fate::Multicast(_) => None,
        }
    }

    /// The slots a replication point spills.
    pub fn spilled(&self, point: ir::ReplicationPoint) -> &BitSet {
        match point {
            ir::ReplicationPoint::IngressEnd | ir::ReplicationPoint::EgressEnd => &self.spilled_before_deparse,
            ir::ReplicationPoint::DeparseEnd => &self.spilled_after_deparse,
            ir::ReplicationPoint::FrameEnd => &self.spilled_after_frame,
        }
    }
}

/// A block of a stage of an entry point.
#[derive(Debug)]
pub(crate) struct Node {
    /// Position of the stage in the entry point.
    pub position: usize,
    /// The stage.
    pub stage: StageId,
    /// The block.
    pub block: BlockId,
    /// Successor nodes, each once; for `Next`, the next stage's start.
    pub succs: Vec<usize>,
    /// Successors by the blocks that the terminator names.
    pub targets: BTreeMap<BlockId, usize>,
    /// Number of predecessor nodes.
    pub preds: u32,
    /// Whether an edge from a later node leads here (a back edge): the head of a loop.
    pub is_loop_head: bool,
    /// Whether the terminator always takes the same edge.
    pub decided: bool,
    /// The slots' values that are known at the start.
    pub known: Known,
    /// The number of the hot path out of the parser that the node is on, from 1; 0 for none. See [`crate::hot`].
    pub hot: usize,
}

impl Node {
    /// Adds a successor for the terminator's target `block`.
    pub fn link(&mut self, block: BlockId, node: usize) {
        if self.targets.insert(block, node).is_none() {
            self.succs.push(node);
        }
    }
}

/// The control-flow graph of an entry point: its nodes in reverse post-order, starting with node 0.
pub(crate) struct Graph {
    pub nodes: Vec<Node>,
    /// First node of each stage position; empty for a graph with duplicated nodes.
    pub first: Vec<usize>,
}

impl Graph {
    pub fn new(program: &Program, entry: &EntryPoint) -> Graph {
        let mut graph = Graph { nodes: Vec::new(), first: Vec::new() };
        let mut reached = true;
        for (position, &stage_id) in entry.stages.iter().enumerate() {
            if !reached {
                break;
            }
            let stage = &program.stages[stage_id.index()];
            let cfg = Cfg::new(stage);
            let first = graph.nodes.len();
            graph.first.push(first);
            let index: Vec<usize> =
                cfg.rpo_index.iter().map(|i| i.map_or(usize::MAX, |i| first + i as usize)).collect();
            reached = false;
            for &block in &cfg.rpo {
                let is_next = matches!(stage.blocks[block.index()].term, Terminator::Next);
                reached |= is_next;
                let mut node = Node {
                    position,
                    stage: stage_id,
                    block,
                    succs: Vec::new(),
                    targets: BTreeMap::new(),
                    preds: 0,
                    is_loop_head: false,
                    decided: false,
                    known: Known::new(),
                    hot: 0,
                };
                if is_next {
                    node.succs.push(first + cfg.rpo.len());
                }
                cfg.succs[block.index()].iter().for_each(|b| node.link(*b, index[b.index()]));
                graph.nodes.push(node);
            }
        }
        for n in 0..graph.nodes.len() {
            for s in graph.nodes[n].succs.clone() {
                graph.nodes[s].preds += 1;
                graph.nodes[s].is_loop_head |= s <= n;
            }
        }
        graph
    }

    /// The successor of `node` for its terminator's target `block`.
    pub fn target(&self, node: usize, block: BlockId) -> usize {
        *self.nodes[node].targets.get(&block).expect("a block that the terminator names")
    }

    /// The basic block of a node.
    pub fn block<'p>(&self, program: &'p Program, node: usize) -> &'p ir::Block {
        let n = &self.nodes[node];
        &program.stages[n.stage.index()].blocks[n.block.index()]
    }

    /// Whether a node ends its stage and leads to the next one.
    pub fn ends_stage(&self, program: &Program, node: usize) -> bool {
        matches!(self.block(program, node).term, Terminator::Next)
    }

    /// By node: whether it is cold, so that its code is placed out of line. Nodes that lead to a drop are cold; if
    /// there are hot paths, so are those that are on none and lead to none.
    pub fn cold(&self, program: &Program) -> Vec<bool> {
        let any_hot = self.nodes.iter().any(|n| n.hot > 0);
        let mut cold = vec![false; self.nodes.len()];
        let mut reaches_hot = vec![false; self.nodes.len()];
        for (n, node) in self.nodes.iter().enumerate().rev() {
            let is_dropped = matches!(self.block(program, n).term, Terminator::Finish(Fate::Drop(_)));
            reaches_hot[n] = node.hot > 0 || node.succs.iter().any(|&s| reaches_hot[s]);
            let all_cold = !node.succs.is_empty() && node.succs.iter().all(|&s| cold[s]);
            cold[n] = is_dropped || all_cold || any_hot && !reaches_hot[n];
        }
        cold
    }

    /// Slots whose value at the start of the entry point may be read: classical backward liveness.
    pub fn live_at_start(&self, program: &Program, facts: &ProgramFacts) -> BitSet {
        let slots = program.slots.len();
        let mut live: Vec<BitSet> = vec![BitSet::new(slots); self.nodes.len()];
        let mut preds: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (n, node) in self.nodes.iter().enumerate() {
            node.succs.iter().for_each(|&s| preds[s].push(n));
        }
        let mut queued = vec![true; self.nodes.len()];
        let mut queue: VecDeque<usize> = (0..self.nodes.len()).rev().collect();
        while let Some(n) = queue.pop_front() {
            queued[n] = false;
            let mut set = BitSet::new(slots);
            self.nodes[n].succs.iter().for_each(|&s| {
                set.union(&live[s]);
            });
            let block = self.block(program, n);
            match &block.term {
                Terminator::Finish(fate @ (Fate::Replicate(_) | Fate::Again { .. })) => {
                    facts.spilled_for(fate).into_iter().for_each(|slots| _ = set.union(slots));
                }
                term => term.operand().and_then(|o| o.slot()).into_iter().for_each(|s| set.insert(s.index())),
            }
            for inst in block.insts.iter().rev() {
                inst.op.for_each_def(program, |s| set.remove(s.index()));
                inst.op.for_each_use(program, |s| set.insert(s.index()));
            }
            if live[n].union(&set) {
                for &p in &preds[n] {
                    if !std::mem::replace(&mut queued[p], true) {
                        queue.push_back(p);
                    }
                }
            }
        }
        live.into_iter().next().unwrap_or_default()
    }
}

/// A byte offset: a compile-time constant or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Always this offset.
    Const(u32),
    /// Known at run time only.
    Varying,
}

/// What is known at one point of an entry point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    /// The parser's cursor.
    pub cursor: Place,
    /// Headers that can be valid; all others are invalid.
    may_be_valid: BitSet,
    /// Fields (by number) that can differ from the packet's bytes.
    dirty: BitSet,
    /// One plus the greatest position in the order of emission among the headers extracted so far.
    last_extracted: u32,
    /// Facts about checksums.
    pub sums: SumFacts,
}

/// How an operation may move the emitted headers from their places in the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LayoutChange {
    /// It moves none.
    None,
    /// It moves them, or may, and there is no cheap test.
    Always,
    /// The header becomes valid: a change if it was invalid.
    Validated(SlotId),
    /// The header becomes invalid: a change if it was valid.
    Invalidated(SlotId),
    /// The validity slot is assigned: a change if the value differs.
    Assigned(SlotId),
}

/// A deparser of the entry point.
#[derive(Debug)]
pub(crate) struct Deparser {
    /// Stage position in the entry point.
    position: usize,
    /// The emitted headers in order, when the stage is a straight line that emits each header at most once and changes
    /// none of them; only such a deparser is subject to edit mode.
    pub in_order: Option<Vec<HeaderId>>,
    /// By header: its position in that order.
    place: Vec<Option<u32>>,
    /// Bytes of the buffer that receives the emitted headers.
    pub buffer_bytes: u32,
    /// Whether it may emit more than the buffer holds: it emits in a loop, or emits very many bytes.
    pub may_overflow: bool,
}

/// All facts about one entry point.
pub(crate) struct Flow {
    pub graph: Graph,
    /// Facts at the start of each node.
    pub at: Vec<Facts>,
    pub deparsers: Vec<Deparser>,
    /// By header: the offset at which it is extracted, if it is the same everywhere.
    pub extracted_at: Vec<Place>,
    /// By header: whether it is extracted at all.
    pub is_extracted: Vec<bool>,
    /// Slots whose values the code must compute.
    pub needed: BitSet,
    /// Slots whose values at the start may be read.
    pub live_at_start: BitSet,
    /// Whether the code must keep the flag for a changed layout.
    pub layout_may_change: bool,
    /// Fields, by number, that never need to be loaded when they turn dirty.
    never_loaded: BitSet,
}

impl Flow {
    pub fn new(program: &Program, facts: &ProgramFacts, entry: &EntryPoint, options: &Options, hot: usize) -> Flow {
        let mut graph = Graph::new(program, entry);
        let live_at_start = graph.live_at_start(program, facts);
        let mut deparsers = find_deparsers(program, facts, entry, &graph);
        if !options.has(Optimisation::EditMode) {
            deparsers.iter_mut().for_each(|d| d.in_order = None);
        }
        if options.has(Optimisation::SplitPaths) {
            graph = paths::split(program, entry, graph, hot);
        }
        let mut flow = Flow {
            at: Vec::new(),
            graph,
            deparsers,
            extracted_at: vec![Place::Varying; program.headers.len()],
            is_extracted: vec![false; program.headers.len()],
            needed: BitSet::new(program.slots.len()),
            live_at_start,
            layout_may_change: false,
            never_loaded: BitSet::new(facts.fields),
        };
        flow.solve(program, facts, entry);
        flow.collect_needs(program, facts);
        if !options.has(Optimisation::LazyFields) {
            flow.need_all_extracted(program);
        }
        for field in 0..facts.fields {
            let slot = facts.slot_of_field(program, field);
            if !flow.needed.contains(slot.index()) || facts.lazy_field(slot).is_none() {
                flow.never_loaded.insert(field);
            }
        }
        flow
    }

    /// The facts when a packet starts at the entry point, before its first stage.
    pub fn initial(&self, program: &Program, facts: &ProgramFacts, kind: EntryKind) -> Facts {
        let mut initial = Facts {
            cursor: if kind == EntryKind::Ingress { Place::Const(0) } else { Place::Varying },
            may_be_valid: BitSet::new(program.headers.len()),
            dirty: BitSet::new(facts.fields),
            last_extracted: 0,
            sums: SumFacts::default(),
        };
        for (h, range) in facts.field_range.iter().enumerate() {
            let mut kept = false;
            ir::flow::for_each_header_slot(program, HeaderId::from_index(h), |s| kept |= facts.is_kept(kind, s));
            if kept {
                initial.may_be_valid.insert(h);
                range.clone().for_each(|f| initial.dirty.insert(f));
            }
        }
        initial
    }

    /// Headers for which the code carries a pointer. If there are more than `all_up_to`, the address of a header that
    /// is always extracted at the same offset is computed from its validity instead.
    pub fn carried_headers(&self, all_up_to: usize) -> impl Iterator<Item = HeaderId> + '_ {
        let extracted = self.is_extracted.iter().filter(|e| **e).count();
        let is_carried = move |h: &usize| {
            self.is_extracted[*h] && (extracted <= all_up_to || self.extracted_at[*h] == Place::Varying)
        };
        (0..self.is_extracted.len()).filter(is_carried).map(HeaderId::from_index)
    }

    /// The next deparser at or after a stage position.
    fn upcoming(&self, position: usize) -> Option<&Deparser> {
        self.deparsers.iter().find(|d| d.position >= position)
    }

    /// Whether a stage runs before all deparsers.
    pub fn is_before_deparsers(&self, position: usize) -> bool {
        self.deparsers.iter().all(|d| d.position > position)
    }

    /// The deparser at a stage position.
    pub fn deparser(&self, position: usize) -> Option<&Deparser> {
        self.deparsers.iter().find(|d| d.position == position)
    }

    /// Updates the facts where a stage is entered. Returns the initial value of the layout flag where it is set (at the
    /// entry point's start and at parsers): whether the layout counts as changed already.
    pub fn enter_stage(&self, program: &Program, entry: &EntryPoint, position: usize, at: &mut Facts) -> Option<bool> {
        if program.stages[entry.stages[position].index()].kind != StageKind::Parser {
            return (position == 0).then_some(self.upcoming(position).is_some());
        }
        at.cursor = Place::Const(0);
        at.last_extracted = 0;
        let stale =
            |d: &Deparser| (0..program.headers.len()).any(|h| d.place[h].is_some() && at.may_be_valid.contains(h));
        Some(self.upcoming(position).is_some_and(stale))
    }

    /// Updates the facts where a stage ends: a deparser rewrites the packet, so no header is where it was.
    pub fn leave_stage(&self, position: usize, at: &mut Facts, facts: &ProgramFacts) {
        if self.deparser(position).is_some() {
            at.cursor = Place::Varying;
            at.dirty.clone_from(&facts.all_fields);
            at.sums = SumFacts::default();
        }
    }

    /// The transfer function of an operation.
    pub fn step(
        &self,
        program: &Program,
        facts: &ProgramFacts,
        position: usize,
        op: &Op,
        at: &mut Facts,
    ) -> LayoutChange {
        if !facts.sums.is_empty() {
            let mut sums = std::mem::take(&mut at.sums);
            sums.step(program, &facts.sums, op, |slot| self.is_in_frame(facts, at, slot));
            at.sums = sums;
        }
        let place = |h: HeaderId| self.upcoming(position).and_then(|d| d.place[h.index()]);
        match op {
            Op::Extract { header, varbit_bits } => {
                let layout = &facts.headers[header.index()];
                at.cursor = match (at.cursor, varbit_bits) {
                    (Place::Const(c), None) => Place::Const(c + layout.fixed_bytes),
                    _ => Place::Varying,
                };
                at.may_be_valid.insert(header.index());
                facts.fields_of(*header).for_each(|f| at.dirty.remove(f));
                match place(*header) {
                    Some(place) if place >= at.last_extracted => {
                        at.last_extracted = place + 1;
                        LayoutChange::None
                    }
                    _ => LayoutChange::Always,
                }
            }
            Op::Advance { bits } => {
                at.cursor = match (at.cursor, bits.constant().and_then(|b| b.to_u128())) {
                    (Place::Const(c), Some(bits)) if bits < 1 << 24 => Place::Const(c + bits as u32 / 8),
                    _ => Place::Varying,
                };
                LayoutChange::Always
            }
            Op::SetValid { header } => {
                at.may_be_valid.insert(header.index());
                facts.fields_of(*header).for_each(|f| at.dirty.insert(f));
                place(*header)
                    .map_or(LayoutChange::None, |_| LayoutChange::Validated(facts.headers[header.index()].valid))
            }
            Op::SetInvalid { header } => {
                let was = at.may_be_valid.contains(header.index());
                at.may_be_valid.remove(header.index());
                facts.fields_of(*header).for_each(|f| at.dirty.remove(f));
                match place(*header) {
                    Some(_) if was => LayoutChange::Invalidated(facts.headers[header.index()].valid),
                    _ => LayoutChange::None,
                }
            }
            _ => {
                let mut change = LayoutChange::None;
                op.for_each_def(program, |slot| {
                    let kind = program.slots[slot.index()].kind;
                    let header = match kind {
                        SlotKind::Field(h) | SlotKind::VarbitLength(h) | SlotKind::Valid(h) => h,
                        SlotKind::HeaderPart | SlotKind::Metadata | SlotKind::Local | SlotKind::Temp => return,
                    };
                    if let SlotKind::Field(_) = kind {
                        at.dirty.insert(facts.field_number[slot.index()] as usize);
                    } else {
                        facts.fields_of(header).for_each(|f| at.dirty.insert(f));
                        at.may_be_valid.insert(header.index());
                    }
                    let is_var = facts.headers[header.index()].var.is_some_and(|(s, l)| slot == s || slot == l);
                    if place(header).is_some() {
                        if is_var {
                            change = LayoutChange::Always;
                        } else if let SlotKind::Valid(_) = kind {
                            change = LayoutChange::Assigned(slot);
                        }
                    }
                });
                change
            }
        }
    }

    /// Whether a slot is a lazily loaded field that is clean.
    fn is_in_frame(&self, facts: &ProgramFacts, at: &Facts, slot: SlotId) -> bool {
        facts.lazy_field(slot).is_some() && !self.is_dirty(facts, at, slot)
    }

    /// Whether a slot can differ from the packet's bytes; always true of slots that are not fields.
    pub fn is_dirty(&self, facts: &ProgramFacts, at: &Facts, slot: SlotId) -> bool {
        match facts.field_number[slot.index()] {
            u32::MAX => true,
            f => facts.never_clean[slot.index()] || at.dirty.contains(f as usize),
        }
    }

    /// Needed fields that are clean at `from` and dirty at `to`: the code loads them on this edge.
    pub fn turning_dirty(&self, program: &Program, facts: &ProgramFacts, from: &Facts, to: &Facts) -> Vec<SlotId> {
        let mut stay = from.dirty.clone();
        stay.union(&self.never_loaded);
        to.dirty.difference(&stay).map(|f| facts.slot_of_field(program, f)).collect()
    }

    /// The slots of fields that turn dirty on more edges than `loads_max`.
    pub fn loaded_often(&self, program: &Program, facts: &ProgramFacts, loads_max: u32) -> BitSet {
        let mut often = BitSet::new(program.slots.len());
        // Fields that have reached the limit are not counted further.
        let mut counted = BitSet::new(facts.fields);
        let mut loads = vec![0; facts.fields];
        for (n, node) in self.graph.nodes.iter().enumerate() {
            let mut at = self.at[n].clone();
            for Inst { op, .. } in &self.graph.block(program, n).insts {
                self.step(program, facts, node.position, op, &mut at);
            }
            at.dirty.union(&counted);
            for &succ in &node.succs {
                for field in self.at[succ].dirty.difference(&at.dirty) {
                    loads[field] += 1;
                    if loads[field] > loads_max {
                        counted.insert(field);
                        let slot = facts.slot_of_field(program, field);
                        if self.needed.contains(slot.index()) && facts.lazy_field(slot).is_some() {
                            often.insert(slot.index());
                        }
                    }
                }
            }
        }
        often
    }

    fn solve(&mut self, program: &Program, facts: &ProgramFacts, entry: &EntryPoint) {
        let mut at: Vec<Option<Facts>> = vec![None; self.graph.nodes.len()];
        let mut initial = self.initial(program, facts, entry.kind);
        self.layout_may_change =
            self.enter_stage(program, entry, 0, &mut initial) == Some(true) || self.deparsers.len() > 1;
        at[0] = Some(initial);
        let mut queued = vec![false; self.graph.nodes.len()];
        let mut queue = std::collections::BinaryHeap::from([std::cmp::Reverse(0)]);
        while let Some(std::cmp::Reverse(n)) = queue.pop() {
            queued[n] = false;
            let mut out = at[n].clone().expect("queued nodes have facts");
            let node = &self.graph.nodes[n];
            let block = self.graph.block(program, n);
            for Inst { op, .. } in &block.insts {
                self.step(program, facts, node.position, op, &mut out);
            }
            if let Terminator::Next = block.term {
                self.leave_stage(node.position, &mut out, facts);
                self.layout_may_change |= self.enter_stage(program, entry, node.position + 1, &mut out) == Some(true);
            }
            for &s in &self.graph.nodes[n].succs {
                let mut out = out.refined(program, &self.graph.nodes[s].known);
                if !self.graph.nodes[n].decided {
                    let target = |to| self.graph.target(n, to);
                    let end = out.clone();
                    let is_in_frame = |slot| self.is_in_frame(facts, &end, slot);
                    verified::learn_from(program, &facts.sums, block, (s, target), &mut out, is_in_frame);
                }
                let changed = match &mut at[s] {
                    Some(known) => known.join(&out),
                    none => {
                        *none = Some(out.clone());
                        true
                    }
                };
                if changed && !std::mem::replace(&mut queued[s], true) {
                    queue.push(std::cmp::Reverse(s));
                }
            }
        }
        self.at = at.into_iter().map(|f| f.expect("every node can be reached")).collect();
    }

    /// Once the facts are final: finds needed slots, extraction offsets, and whether the layout can change.
    fn collect_needs(&mut self, program: &Program, facts: &ProgramFacts) {
        let mut places: Vec<Option<Place>> = vec![None; program.headers.len()];
        for n in 0..self.graph.nodes.len() {
            let mut at = self.at[n].clone();
            let position = self.graph.nodes[n].position;
            let block = self.graph.block(program, n);
            for Inst { op, .. } in &block.insts {
                if let Op::Emit { header } = op {
                    self.need_for_emit(facts, &at, *header);
                } else {
                    op.for_each_use(program, |s| self.need(facts, &at, s));
                }
                if let Op::Extract { header, .. } = op {
                    let place = &mut places[header.index()];
                    *place = Some(if place.is_none_or(|p| p == at.cursor) { at.cursor } else { Place::Varying });
                }
                self.layout_may_change |= self.step(program, facts, position, op, &mut at) != LayoutChange::None;
            }
            match &block.term {
                Terminator::Finish(fate @ (Fate::Replicate(_) | Fate::Again { .. })) => {
                    if self.deparser(position).is_some() {
                        self.leave_stage(position, &mut at, facts);
                    }
                    for s in facts.spilled_for(fate).into_iter().flat_map(BitSet::iter) {
                        if self.is_dirty(facts, &at, SlotId::from_index(s)) {
                            self.needed.insert(s);
                        }
                    }
                }
                _ if self.graph.nodes[n].decided => {}
                term => term.operand().and_then(|o| o.slot()).into_iter().for_each(|s| self.need(facts, &at, s)),
            }
        }
        for header in &facts.headers {
            self.needed.insert(header.valid.index());
            header.var.into_iter().for_each(|(_, length)| self.needed.insert(length.index()));
        }
        self.is_extracted = places.iter().map(Option::is_some).collect();
        self.extracted_at = places.into_iter().map(|p| p.unwrap_or(Place::Varying)).collect();
    }

    /// A read of a slot: the slot must hold a value, unless the read loads it from the packet.
    fn need(&mut self, facts: &ProgramFacts, at: &Facts, slot: SlotId) {
        if facts.lazy_field(slot).is_none() || self.is_dirty(facts, at, slot) {
            self.needed.insert(slot.index());
        }
    }

    /// Every extracted field must have a value, read or not.
    fn need_all_extracted(&mut self, program: &Program) {
        for (header, _) in program.headers.iter().zip(&self.is_extracted).filter(|(_, e)| **e) {
            header.fields.iter().for_each(|f| self.needed.insert(f.slot.index()));
        }
    }

    fn need_for_emit(&mut self, facts: &ProgramFacts, at: &Facts, header: HeaderId) {
        for segment in &facts.headers[header.index()].segments {
            match segment {
                Segment::Fixed { bytes, fields } => {
                    let dirty = dirty_bytes(*bytes, fields, |s| self.is_dirty(facts, at, s));
                    for f in fields {
                        if dirty[f.first_byte() as usize..f.end_byte() as usize].contains(&true) {
                            self.need(facts, at, f.slot);
                        }
                    }
                }
                Segment::Var { slot, .. } => {
                    if self.is_dirty(facts, at, *slot) {
                        self.needed.insert(slot.index());
                    }
                }
                Segment::Odd { before, slot, after, .. } => {
                    before.iter().chain(after).for_each(|f| self.needed.insert(f.slot.index()));
                    self.needed.insert(slot.index());
                }
            }
        }
    }
}

impl Facts {
    /// These facts, refined by the known validity of headers. (Fields of an invalid header stay dirty: the pointer that
    /// clean fields are loaded from may still point into the packet.)
    fn refined(&self, program: &Program, known: &Known) -> Facts {
        let mut out = self.clone();
        for (slot, _) in known.iter().filter(|(_, value)| value.is_zero()) {
            if let SlotKind::Valid(header) = program.slots[slot.index()].kind {
                out.may_be_valid.remove(header.index());
            }
        }
        out
    }

    /// Joins another path's facts into these; returns whether they changed.
    fn join(&mut self, other: &Facts) -> bool {
        let mut changed = false;
        if self.cursor != other.cursor && self.cursor != Place::Varying {
            self.cursor = Place::Varying;
            changed = true;
        }
        if other.last_extracted > self.last_extracted {
            self.last_extracted = other.last_extracted;
            changed = true;
        }
        changed |= self.may_be_valid.union(&other.may_be_valid);
        changed |= self.sums.join(&other.sums);
        changed | self.dirty.union(&other.dirty)
    }
}

/// The entry point's deparsers in order.
fn find_deparsers(program: &Program, facts: &ProgramFacts, entry: &EntryPoint, graph: &Graph) -> Vec<Deparser> {
    let mut out = Vec::new();
    for (position, &first) in graph.first.iter().enumerate() {
        let stage = &program.stages[entry.stages[position].index()];
        if stage.kind != StageKind::Deparser {
            continue;
        }
        let nodes: Vec<&Node> = graph.nodes[first..].iter().take_while(|n| n.position == position).collect();
        let ops = || nodes.iter().flat_map(|n| &stage.blocks[n.block.index()].insts).map(|i| &i.op);
        let emitted: Vec<HeaderId> =
            ops().filter_map(|op| if let Op::Emit { header } = op { Some(*header) } else { None }).collect();
        let max_bytes: u64 = emitted.iter().map(|h| u64::from(facts.headers[h.index()].max_bytes)).sum();
        let backwards = nodes.iter().enumerate().any(|(i, n)| n.succs.iter().any(|&s| s <= first + i));
        let may_overflow = backwards && !emitted.is_empty() || max_bytes > u64::from(ir::EMITTED_BYTES_MAX);
        let buffer_bytes = if may_overflow { ir::EMITTED_BYTES_MAX } else { max_bytes as u32 };
        let mut place = vec![None; program.headers.len()];
        let mut distinct = true;
        for (i, h) in emitted.iter().enumerate() {
            distinct &= place[h.index()].replace(i as u32).is_none();
        }
        let straight = nodes.iter().all(|n| n.succs.len() <= 1);
        let mut changes_header = false;
        ops().for_each(|op| {
            op.for_each_def(program, |s| {
                let kind = program.slots[s.index()].kind;
                changes_header |= matches!(kind, SlotKind::Field(_) | SlotKind::Valid(_) | SlotKind::VarbitLength(_));
            });
        });
        let odd = emitted.iter().any(|h| facts.headers[h.index()].is_odd());
        // A deparser that may emit too much keeps a running total, even where the frame could stay as it is.
        let in_order = (straight && distinct && !changes_header && !odd && !may_overflow).then_some(emitted);
        out.push(Deparser { position, in_order, place, buffer_bytes, may_overflow });
    }
    out
}
