//! Splits a deparser into two stages: a control with its computations, and a deparser that only emits.
//!
//! Packets are copied between the two. At that point the deparser's statements about copies (metadata, digests) have
//! taken effect, while the frame is still as received. Also, a packet that is dropped is not assembled, and a deparser
//! that only emits leaves unmoved headers in place (`jit/src/deparse.rs`).
//!
//! A header must be emitted with its value at the call of `emit`. If the deparser changes it later, a copy is made at
//! the call. If the call is not on all paths, a flag records whether it ran.
//!
//! ```text
//! hdr.a.n = 1;  b.emit(hdr.a);     =>  stage control D        hdr.a.n = 1   $emit = c
//! if (c) { b.emit(hdr.b); }            stage deparser D.emit  emit hdr.a   branch $emit: emit hdr.b
//! ```
//!
//! An `emit` in a loop is not supported and is reported as an error.
//!
//! Tests: `tests/psa.rs`, `tests/stf/psa/emits.stf` at the root.

use crate::codes;
use crate::context::Lowerer;
use base::diag::Diagnostic;
use ir::{
    BlockId, Cfg, FieldWidth, HeaderId, Inst, Op, Operand, SlotId, SlotKind, Stage, StageId, StageKind, Terminator,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Limit on blocks with calls of `emit` whose paths are analysed. Calls in further blocks are assumed not to be on all
/// paths, and their headers to be changed later.
const BLOCKS_MAX: usize = 256;

/// Number of blocks and writes visited per unit of the budget.
const WORK_PER_UNIT: usize = 16;

/// The calls of `emit` in a deparser that is lowered as a control.
pub(crate) struct Emits {
    /// Placeholder: until the stage is finished, `mark = n` stands for call `n`.
    mark: SlotId,
    headers: Vec<HeaderId>,
}

/// A call of `emit`.
struct Site {
    header: HeaderId,
    block: BlockId,
    inst: usize,
    span: base::Span,
}

/// Properties of a block that calls `emit`.
struct Around {
    /// Whether it is in a loop.
    is_in_loop: bool,
    /// Whether all paths to the end of the stage go through it.
    on_all_paths: bool,
    /// Headers written in blocks reachable from it.
    written_behind: BTreeSet<HeaderId>,
}

/// By block: the headers it writes, each with the index of the last instruction that does.
type Writes = Vec<HashMap<HeaderId, usize>>;

impl Lowerer<'_> {
    /// Emits a header: immediately, or by a placeholder in a deparser that is being split.
    pub fn emit_header(&mut self, header: HeaderId) {
        match &mut self.emits {
            None => self.b.emit(Op::Emit { header }),
            Some(emits) => {
                let (mark, number) = (emits.mark, emits.headers.len() as u128);
                emits.headers.push(header);
                self.b.set(mark, number);
            }
        }
    }

    /// Lowers a deparser to two stages. `body` lowers it as a control; the second stage emits.
    pub fn split_deparser(&mut self, body: impl FnOnce(&mut Self) -> StageId) -> (StageId, StageId) {
        let mark = self.b.local("$emit", 32);
        let outer = self.emits.replace(Emits { mark, headers: Vec::new() });
        let stage = body(self);
        let emits = std::mem::replace(&mut self.emits, outer);
        let headers = emits.map_or(Vec::new(), |e| e.headers);
        let name = format!("{}.emit", self.b.program().stages[stage.index()].name);
        let emitted = self.place_emits(stage, mark, &headers);
        let out = self.open_stage(&name, StageKind::Deparser);
        for (header, flag) in emitted {
            let Some(flag) = flag else {
                self.b.emit(Op::Emit { header });
                continue;
            };
            let skip = self.split(flag.into());
            self.b.emit(Op::Emit { header });
            self.b.fall_through(skip);
            self.b.switch_to(skip);
        }
        self.close_stage();
        (stage, out)
    }

    /// Replaces the placeholders by copies and flags. Returns the headers to emit, in order, each with the flag that
    /// tells whether to emit it; `None` means always.
    fn place_emits(&mut self, stage: StageId, mark: SlotId, headers: &[HeaderId]) -> Vec<(HeaderId, Option<SlotId>)> {
        let cfg = Cfg::new(&self.b.program().stages[stage.index()]);
        let sites = self.sites(stage, &cfg, mark, headers);
        let writes = self.writes(stage);
        let around = self.around(stage, &cfg, &sites, &writes);
        let has_loops = cfg.loop_heads().contains(&true);
        let mut out = Vec::new();
        let mut notes: HashMap<(BlockId, usize), Vec<Op>> = HashMap::new();
        for site in &sites {
            if self.is_too_large() {
                break;
            }
            let here = around.get(&site.block);
            if here.map_or(has_loops, |a| a.is_in_loop) {
                let message = "`emit` in a loop is not supported in a deparser of this architecture";
                let help = "emit a whole header stack: its valid elements are emitted in order";
                self.report(Diagnostic::error(codes::UNSUPPORTED_EXTERN, site.span, message).help(help));
                continue;
            }
            let ops = notes.entry((site.block, site.inst)).or_default();
            let last_write = writes[site.block.index()].get(&site.header);
            let changes = here.is_none_or(|a| a.written_behind.contains(&site.header))
                || last_write.is_some_and(|last| *last > site.inst);
            let header = match changes {
                false => site.header,
                true => self.copy_of(site.header, ops),
            };
            let flag = here.is_none_or(|a| !a.on_all_paths).then(|| {
                let flag = self.b.metadata("$emits", 1);
                ops.push(Op::Mov { dst: flag, src: Self::bit(true) });
                flag
            });
            self.b.charge(ops.len());
            out.push((header, flag));
        }
        let blocks = &mut self.b.program_mut().stages[stage.index()].blocks;
        for (b, block) in blocks.iter_mut().enumerate() {
            let mut insts = Vec::with_capacity(block.insts.len());
            for (i, inst) in block.insts.drain(..).enumerate() {
                if is_mark(&inst.op, mark).is_none() {
                    insts.push(inst);
                } else if let Some(ops) = notes.remove(&(BlockId::from_index(b), i)) {
                    insts.extend(ops.into_iter().map(|op| Inst { op, span: inst.span }));
                }
            }
            block.insts = insts;
        }
        out
    }

    /// The calls in reverse postorder, which is the order of execution on every path without loops.
    fn sites(&self, stage: StageId, cfg: &Cfg, mark: SlotId, headers: &[HeaderId]) -> Vec<Site> {
        let blocks = &self.b.program().stages[stage.index()].blocks;
        let mut sites = Vec::new();
        for &block in &cfg.rpo {
            for (i, inst) in blocks[block.index()].insts.iter().enumerate() {
                let number = is_mark(&inst.op, mark).and_then(|n| usize::try_from(n).ok());
                if let Some(header) = number.and_then(|n| headers.get(n)) {
                    sites.push(Site { header: *header, block, inst: i, span: inst.span });
                }
            }
        }
        sites
    }

    /// The headers that the blocks of a stage write.
    fn writes(&self, stage: StageId) -> Writes {
        let program = self.b.program();
        let of_block = |block: &ir::Block| {
            let mut last = HashMap::new();
            for (i, inst) in block.insts.iter().enumerate() {
                inst.op.for_each_def(program, |slot| match program.slots[slot.index()].kind {
                    SlotKind::Field(h) | SlotKind::Valid(h) | SlotKind::VarbitLength(h) => _ = last.insert(h, i),
                    SlotKind::HeaderPart | SlotKind::Metadata | SlotKind::Local | SlotKind::Temp => {}
                });
            }
            last
        };
        program.stages[stage.index()].blocks.iter().map(of_block).collect()
    }

    /// Analyses the blocks that call `emit`. A block without a result, because the budget is exhausted, is treated
    /// conservatively.
    fn around(&mut self, stage: StageId, cfg: &Cfg, sites: &[Site], writes: &Writes) -> BTreeMap<BlockId, Around> {
        let blocks: BTreeSet<BlockId> = sites.iter().map(|s| s.block).collect();
        let work = cfg.rpo.len() + writes.iter().map(HashMap::len).sum::<usize>();
        if !self.b.charge(blocks.len().min(BLOCKS_MAX) * work / WORK_PER_UNIT) {
            return BTreeMap::new();
        }
        let stage = &self.b.program().stages[stage.index()];
        let in_order = cfg.rpo.iter().filter(|b| blocks.contains(b)).take(BLOCKS_MAX);
        in_order.map(|block| (*block, Around::new(stage, cfg, *block, writes))).collect()
    }

    /// A new header, to which `ops` copy this one.
    fn copy_of(&mut self, header: HeaderId, ops: &mut Vec<Op>) -> HeaderId {
        let original = self.b.program().headers[header.index()].clone();
        let mut fields = Vec::new();
        for field in &original.fields {
            let width = self.b.program().width(field.slot);
            let width = field.varbit_length.map_or(FieldWidth::Fixed(width), |_| FieldWidth::Varbit(width));
            fields.push((field.name.as_str(), width));
        }
        let mut name = format!("{}.$emitted", original.name);
        while !self.header_names.insert(name.clone()) {
            name.push('\'');
        }
        let copy = self.b.header(name, &fields);
        let made = self.b.program().headers[copy.index()].clone();
        let mut mov = |dst: SlotId, src: SlotId| ops.push(Op::Mov { dst, src: Operand::Slot(src) });
        mov(made.valid, original.valid);
        for (to, from) in made.fields.iter().zip(&original.fields) {
            mov(to.slot, from.slot);
            if let (Some(to), Some(from)) = (to.varbit_length, from.varbit_length) {
                mov(to, from);
            }
        }
        copy
    }
}

/// The number of the call for which an operation is the placeholder.
fn is_mark(op: &Op, mark: SlotId) -> Option<u64> {
    match op {
        Op::Mov { dst, src: Operand::Const(number) } if *dst == mark => number.to_u64(),
        _ => None,
    }
}

impl Around {
    fn new(stage: &Stage, cfg: &Cfg, block: BlockId, writes: &Writes) -> Around {
        let mut behind = BTreeSet::new();
        let mut todo = cfg.succs[block.index()].clone();
        while let Some(next) = todo.pop() {
            if behind.insert(next) {
                todo.extend(&cfg.succs[next.index()]);
            }
        }
        // Is the end of the stage reachable without this block?
        let mut seen = BTreeSet::from([block]);
        let mut todo = vec![Stage::START];
        let mut on_all_paths = true;
        while let Some(next) = todo.pop() {
            if seen.insert(next) {
                on_all_paths &= !matches!(stage.blocks[next.index()].term, Terminator::Next);
                todo.extend(&cfg.succs[next.index()]);
            }
        }
        let written_behind = behind.iter().flat_map(|b| writes[b.index()].keys().copied()).collect();
        Around { is_in_loop: behind.contains(&block), on_all_paths, written_behind }
    }
}
