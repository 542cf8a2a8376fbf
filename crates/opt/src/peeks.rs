//! Packets that only read a cell do so without its lock.
//!
//! Needs: a well-formed program for several workers, whose cells have locks (`ir::atomicity`). Guarantees: same behaviour, each
//! packet's accesses one step. What a packet does from a read on is copied, as far as it only computes: the copy reads the cell
//! without acquiring its lock (a *peek*), and works on slots of its own. Where it turns out that the packet accesses no other
//! cell, and writes nothing, or a value of its own that the cell holds anyway, the copy's slots are written back: the packet's step was the peek.
//! Elsewhere the packet goes on with the read itself, as if there had been no peek. It is optimistic concurrency control (Kung and
//! Robinson, "On optimistic methods for concurrency control", 1981) for the one case that needs no validation, and
//! keeps the cell's cache line shared between cores.
//!
//! ```text
//! b0:                            b0:
//!   v = read r, i                  %v = peek r, i
//!   c = lt v, limit                %c = lt %v, limit
//!   branch c, b1, b2               branch %c, b3, b4
//! b1:                       =>   b3:
//!   w = add v, 1                   v = read r, i
//!   write r, i, w                  c = lt v, limit
//!   next                           branch c, b1, b2
//! b2:                            b4:
//!   next                           v = mov %v
//!                                  c = mov %c
//!                                  jump b2
//! ```
//!
//! **What is peeked at.** A cell that is read and written in one machine access, and whose register is written last: no packet accesses
//! a locked cell behind such a write. So a write is its packet's step for all who peek, and no order of peeks shows half of what a
//! packet does. Before the peek the packet holds no lock.
//!
//! **Size.** All copies together have at most as many operations as the program, but for small programs.
//!
//! **Worth.** A peek in vain costs its code again, and another transfer of the cache line. So a read is copied if, with all branches
//! equally likely, at least half of its packets leave the copy without the lock (Ball and Larus, "Branch prediction for
//! free", 1993, have better guesses).
//!
//! Tests: at the end of the file; `datapath`'s `tests/shared_cells.rs`.

use crate::passes::{Options, optimise, run_pass};
use base::ids::{BlockId, ExternId, SlotId, StageId};
use ir::{
    Acquisitions, Atomicity, BinOp, Block, Cfg, HashAlgorithm, Inst, Op, Operand, Program, Slot, SlotKind, Stage,
    Terminator,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The name under which it can be switched off.
pub const NAME: &str = "peeks";

/// Most blocks that are copied for a read. Chosen; the region of `stateful_firewall` has 11.
const COPIED_MAX: usize = 64;

/// Most steps of the liveness analysis of a stage: operations, and slots that are live where blocks begin, summed over all rounds.
/// Beyond it the stage has no peeks. Chosen.
const LIVE_MAX: usize = 1 << 20;

/// Operations that copies may have in any program.
const SMALL: usize = 1 << 12;

/// The least part of packets that leaves the copy.
const LEAVING_MIN: f64 = 0.5;

/// The widest cells that are accessed at once.
const WIDTH_MAX: u32 = 64;

/// The program with peeks, for several workers, optimised with the passes of `options`; `None` if there are none.
pub fn peeks(program: &Program, options: &Options) -> Option<Program> {
    if options.disabled.contains(NAME) {
        return None;
    }
    let mut made = inserted(program)?;
    optimise(&mut made, &crate::assume::keeping(options));
    if !options.disabled.contains("compact_slots") {
        run_pass(&mut made, "compact_slots");
    }
    Some(made)
}

/// The program with peeks, as they are inserted.
fn inserted(program: &Program) -> Option<Program> {
    let atomicity = Atomicity::new(program);
    let rank = |register| atomicity.rank(register);
    let locks: Vec<Acquisitions> =
        program.entries.iter().map(|entry| Acquisitions::new(program, entry, &rank).ok()).collect::<Option<_>>()?;
    if locks.iter().all(Acquisitions::is_empty) {
        return None;
    }
    let stages: Vec<Places<'_>> =
        (0..program.stages.len()).map(|stage| Places::new(program, StageId::from_index(stage), &locks)).collect();
    let followed: HashSet<ExternId> = stages.iter().flat_map(Places::written_and_followed).collect();
    let mut made = program.clone();
    let all: usize = program.stages.iter().flat_map(|stage| &stage.blocks).map(|block| block.insts.len()).sum();
    let mut room = all.max(SMALL);
    let first = room;
    for places in &stages {
        for block in 0..places.stage().blocks.len() {
            let block = BlockId::from_index(block);
            let Some(at) = places.first_read(block, &followed) else { continue };
            let mut region = Region::new(places, (block, at));
            if region.leaving(region.first()) >= LEAVING_MIN && region.copied() <= room {
                room -= region.copied();
                region.insert_into(&mut made);
            }
        }
    }
    (room < first).then_some(made)
}

/// A stage, wherever it stands in entries.
struct Places<'a> {
    program: &'a Program,
    stage: StageId,
    cfg: Cfg,
    at: Vec<(&'a Acquisitions, usize)>,
    /// Temporaries that are live where each block begins; `None` if they are too many.
    live: Option<Vec<HashSet<SlotId>>>,
}

impl<'a> Places<'a> {
    fn new(program: &'a Program, stage: StageId, locks: &'a [Acquisitions]) -> Places<'a> {
        let at = program.entries.iter().zip(locks).flat_map(|(entry, locks)| {
            let positions = entry.stages.iter().enumerate().filter(|(_, s)| **s == stage);
            positions.map(move |(position, _)| (locks, position)).collect::<Vec<_>>()
        });
        let cfg = Cfg::new(&program.stages[stage.index()]);
        let mut places = Places { program, stage, cfg, at: at.collect(), live: None };
        places.live = places.live_temporaries();
        places
    }

    fn stage(&self) -> &'a Stage {
        &self.program.stages[self.stage.index()]
    }

    fn block(&self, block: BlockId) -> &'a Block {
        &self.stage().blocks[block.index()]
    }

    /// Whether an operation accesses a locked cell, or changes one by an instruction.
    fn is_access(&self, block: BlockId, inst: usize) -> bool {
        let is_step = matches!(self.block(block).insts[inst].op, Op::RegisterUpdate { .. });
        is_step || self.at.iter().any(|(locks, position)| locks.at(*position, block, inst).is_some())
    }

    /// Whether an access can be reached from the start of a block.
    fn is_growing(&self, block: BlockId) -> bool {
        self.at.iter().any(|(locks, position)| locks.is_growing(*position, block))
    }

    /// Whether an access can be reached in the stages that follow.
    fn grows_later(&self) -> bool {
        self.at.iter().any(|(locks, position)| locks.is_growing(position + 1, Stage::START))
    }

    /// Whether an access can be reached from the end of a block.
    fn grows_behind(&self, block: BlockId) -> bool {
        let mut grows = matches!(self.block(block).term, Terminator::Next) && self.grows_later();
        self.block(block).term.for_each_target(|to| grows |= self.is_growing(to));
        grows
    }

    /// Registers with a write behind which packets can come to another access.
    fn written_and_followed(&self) -> Vec<ExternId> {
        let mut found = Vec::new();
        for &block in &self.cfg.rpo {
            let insts = &self.block(block).insts;
            for (i, inst) in insts.iter().enumerate() {
                if let Op::RegisterWrite { register, .. } = inst.op
                    && self.is_access(block, i)
                    && (self.grows_behind(block) || (i + 1..insts.len()).any(|next| self.is_access(block, next)))
                {
                    found.push(register);
                }
            }
        }
        found
    }

    /// The block's first access, if it is a read that may be a peek.
    fn first_read(&self, block: BlockId, followed: &HashSet<ExternId>) -> Option<usize> {
        if !self.cfg.is_reachable(block) || self.live.is_none() {
            return None;
        }
        let insts = &self.block(block).insts;
        let at = (0..insts.len()).find(|inst| self.is_access(block, *inst))?;
        let Op::RegisterRead { register, dst, .. } = &insts[at].op else { return None };
        let holds_none = self.at.iter().all(|(locks, position)| locks.is_alone(*position, block, at));
        (holds_none && !followed.contains(register) && self.program.width(*dst) <= WIDTH_MAX).then_some(at)
    }

    fn is_temp(&self, slot: SlotId) -> bool {
        self.program.slots[slot.index()].kind == SlotKind::Temp
    }

    /// Temporaries live before operation `inst` of a block, given those live where blocks begin.
    fn live_at(&self, live: &[HashSet<SlotId>], block: BlockId, inst: usize) -> HashSet<SlotId> {
        let code = self.block(block);
        let mut now = HashSet::new();
        code.term.for_each_target(|to| now.extend(&live[to.index()]));
        now.extend(code.term.operand().and_then(Operand::slot));
        for inst in code.insts[inst..].iter().rev() {
            inst.op.for_each_def(self.program, |slot| _ = now.remove(&slot));
            inst.op.for_each_use(self.program, |slot| _ = now.insert(slot));
        }
        now.retain(|slot| self.is_temp(*slot));
        now
    }

    /// Temporaries live where each block begins; they do not outlive the stage. `None` after [`LIVE_MAX`] steps.
    fn live_temporaries(&self) -> Option<Vec<HashSet<SlotId>>> {
        let mut live = vec![HashSet::new(); self.stage().blocks.len()];
        let has_accesses = self.cfg.rpo.iter().any(|block| self.is_growing(*block));
        let (mut changed, mut steps) = (has_accesses, 0);
        while changed {
            changed = false;
            for &block in self.cfg.rpo.iter().rev() {
                let now = self.live_at(&live, block, 0);
                steps += 1 + now.len() + self.block(block).insts.len();
                changed |= now != live[block.index()];
                live[block.index()] = now;
            }
            if steps > LIVE_MAX {
                return None;
            }
        }
        Some(live)
    }

    /// Temporaries live where a block begins.
    fn live_in(&self, block: BlockId) -> HashSet<SlotId> {
        self.live.as_ref().map_or_else(HashSet::new, |live| live[block.index()].clone())
    }

    /// Temporaries live before operation `inst` of a block.
    fn live_before(&self, block: BlockId, inst: usize) -> HashSet<SlotId> {
        self.live.as_ref().map_or_else(HashSet::new, |live| self.live_at(live, block, inst))
    }
}

/// Operations of a block, from one on.
type Piece = (BlockId, usize);

/// How the copy of a piece ends.
#[derive(Clone, Copy)]
enum End {
    /// As the block does.
    Block,
    /// With the write at this place, which writes what the cell holds, or is not done.
    Write(usize),
}

/// What follows a read.
struct Region<'a> {
    places: &'a Places<'a>,
    read: Piece,
    register: ExternId,
    dst: SlotId,
    index: Operand,
    /// Slots that the copy writes.
    written: BTreeSet<SlotId>,
    /// Those whose values are computed from the cell's.
    derived: HashSet<SlotId>,
    /// By piece: the part of packets that leaves the copy.
    leaving: HashMap<Piece, f64>,
}

impl<'a> Region<'a> {
    fn new(places: &'a Places<'a>, read: Piece) -> Region<'a> {
        let Op::RegisterRead { register, dst, index, .. } = &places.block(read.0).insts[read.1].op else {
            unreachable!("it is a read")
        };
        let mut region = Region {
            places,
            read,
            register: *register,
            dst: *dst,
            index: index.clone(),
            written: BTreeSet::from([*dst]),
            derived: HashSet::from([*dst]),
            leaving: HashMap::new(),
        };
        region.note_writes();
        region
    }

    fn first(&self) -> Piece {
        (self.read.0, self.read.1 + 1)
    }

    /// Finds the slots that the operations write which may be copied, and those derived from the cell.
    fn note_writes(&mut self) {
        let (mut waiting, mut seen) = (vec![self.first()], HashSet::from([self.first()]));
        let mut copied = Vec::new();
        while let Some((block, from)) = waiting.pop() {
            let code = self.places.block(block);
            let end = self.copied_up_to((block, from));
            copied.extend(&code.insts[from..end]);
            code.term.for_each_target(|to| {
                if seen.len() < COPIED_MAX && self.places.is_growing(to) && seen.insert((to, 0)) {
                    waiting.push((to, 0));
                }
            });
        }
        let program = self.places.program;
        copied.iter().for_each(|inst| inst.op.for_each_def(program, |slot| _ = self.written.insert(slot)));
        let mut count = 0;
        while count != self.derived.len() {
            count = self.derived.len();
            for inst in &copied {
                let mut is_derived = false;
                inst.op.for_each_use(program, |slot| is_derived |= self.derived.contains(&slot));
                if is_derived {
                    inst.op.for_each_def(program, |slot| _ = self.derived.insert(slot));
                }
            }
        }
    }

    /// Whether an operation only computes, so that it may run twice.
    fn is_copied(&self, block: BlockId, at: usize, inst: &Inst) -> bool {
        let computes = match &inst.op {
            Op::Mark(_) | Op::ActionParam { .. } | Op::RegisterRead { .. } => true,
            Op::Hash { algorithm, payload, .. } => *algorithm != HashAlgorithm::Random && !payload,
            op => op.is_arithmetic(),
        };
        computes && !self.places.is_access(block, at)
    }

    /// The first operation of a piece that is not copied.
    fn copied_up_to(&self, (block, from): Piece) -> usize {
        let insts = &self.places.block(block).insts;
        (from..insts.len()).find(|i| !self.is_copied(block, *i, &insts[*i])).unwrap_or(insts.len())
    }

    /// How the copy of a piece ends; `None` if it would have to access a cell, or do what may not be done twice.
    fn end(&self, piece: Piece) -> Option<End> {
        let code = self.places.block(piece.0);
        let at = self.copied_up_to(piece);
        match code.insts.get(at).map(|inst| &inst.op) {
            None if matches!(code.term, Terminator::Next) && self.places.grows_later() => None,
            None => Some(End::Block),
            // What is computed from the cell's value, as a count, mostly differs from it.
            Some(Op::RegisterWrite { register, index, src })
                if *register == self.register
                    && *index == self.index
                    && index.slot().is_none_or(|slot| !self.written.contains(&slot))
                    && src.slot().is_none_or(|slot| !self.derived.contains(&slot)) =>
            {
                Some(End::Write(at))
            }
            Some(_) => None,
        }
    }

    /// The part of packets that leaves the copy from a piece on.
    fn leaving(&mut self, piece: Piece) -> f64 {
        if let Some(known) = self.leaving.get(&piece) {
            return *known;
        }
        if self.leaving.len() >= COPIED_MAX {
            return 0.0;
        }
        // Packets that go round in the meantime do not leave.
        self.leaving.insert(piece, 0.0);
        let part = match self.end(piece) {
            None => 0.0,
            Some(End::Write(_)) => 0.5,
            Some(End::Block) => {
                let mut targets = Vec::new();
                self.places.block(piece.0).term.for_each_target(|to| targets.push(to));
                let parts =
                    targets.iter().map(|to| if self.places.is_growing(*to) { self.leaving((*to, 0)) } else { 1.0 });
                if targets.is_empty() { 1.0 } else { parts.sum::<f64>() / targets.len() as f64 }
            }
        };
        self.leaving.insert(piece, part);
        part
    }

    /// Operations that the copy has, about.
    fn copied(&self) -> usize {
        let copied = self.leaving.iter().filter(|(_, part)| **part > 0.0);
        let sizes = copied.map(|((block, from), _)| self.places.block(*block).insts.len() - from);
        sizes.sum::<usize>() + 2 * self.written.len() + 1
    }

    /// Inserts the copy into a program whose blocks are numbered as in the one analysed.
    fn insert_into(self, made: &mut Program) {
        let (block, at) = self.read;
        let code = self.places.block(block);
        let span = code.insts[at].span;
        let mut copy = Copy { region: &self, made, own: BTreeMap::new(), blocks: HashMap::new(), back: HashMap::new() };
        copy.name_slots();
        let locked = copy.push(code.insts[at..].to_vec(), code.term.clone(), span);
        let peeked = copy.new_slot(copy.made.width(self.dst));
        let live = self.places.live_before(block, at);
        let mut insts: Vec<Inst> = self
            .written
            .iter()
            .filter(|slot| !self.places.is_temp(**slot) || live.contains(slot))
            .map(|slot| Inst { op: Op::Mov { dst: copy.own[slot], src: (*slot).into() }, span })
            .collect();
        let (register, index) = (self.register, self.index.clone());
        insts.push(Inst { op: Op::RegisterRead { register, dst: peeked, index, peek: true }, span });
        insts.push(Inst { op: Op::Mov { dst: copy.own[&self.dst], src: peeked.into() }, span });
        copy.fill(insts, locked, peeked);
        let first = copy.blocks[&self.first()];
        let old = &mut made.stages[self.places.stage.index()].blocks[block.index()];
        old.insts.truncate(at);
        old.term = Terminator::Jump(first);
    }
}

/// The copy that is made.
struct Copy<'a, 'p> {
    region: &'a Region<'a>,
    made: &'p mut Program,
    /// The slots of its own, by the one that each stands for.
    own: BTreeMap<SlotId, SlotId>,
    blocks: HashMap<Piece, BlockId>,
    /// Blocks that write its slots back, by the block that follows.
    back: HashMap<BlockId, BlockId>,
}

impl Copy<'_, '_> {
    fn name_slots(&mut self) {
        for &slot in &self.region.written {
            let own = self.new_slot(self.made.width(slot));
            self.own.insert(slot, own);
        }
    }

    fn new_slot(&mut self, width: u32) -> SlotId {
        let slot = SlotId::from_index(self.made.slots.len());
        self.made.slots.push(Slot { name: format!("%peek.{}", slot.index()), width, kind: SlotKind::Temp });
        slot
    }

    fn push(&mut self, insts: Vec<Inst>, term: Terminator, span: base::Span) -> BlockId {
        let blocks = &mut self.made.stages[self.region.places.stage.index()].blocks;
        blocks.push(Block { label: String::new(), insts, term, span });
        BlockId::from_index(blocks.len() - 1)
    }

    /// Copies all pieces from the first on, which begins with `before`. Packets that need the lock go to `locked`.
    fn fill(&mut self, before: Vec<Inst>, locked: BlockId, peeked: SlotId) {
        let mut waiting = vec![self.region.first()];
        let span = self.region.places.block(self.region.read.0).span;
        let first = self.push(before, Terminator::Next, span);
        self.blocks.insert(self.region.first(), first);
        while let Some(piece) = waiting.pop() {
            let (block, from) = piece;
            let code = self.region.places.block(block);
            let Some(end) = self.region.end(piece) else { unreachable!("packets leave from here") };
            let to = match end {
                End::Block => code.insts.len(),
                End::Write(at) => at,
            };
            let mut insts: Vec<Inst> = code.insts[from..to].iter().map(|inst| self.renamed(inst)).collect();
            let term = match end {
                End::Write(at) => self.unless_changed(&mut insts, (block, at), locked, peeked),
                End::Block => {
                    let mut term = code.term.clone();
                    if let Some(Operand::Slot(slot)) = term.operand_mut() {
                        *slot = self.own.get(slot).copied().unwrap_or(*slot);
                    }
                    let mut has_targets = false;
                    term.for_each_target_mut(|to| {
                        has_targets = true;
                        *to = self.target(*to, locked, &mut waiting);
                    });
                    if !has_targets {
                        insts.extend(self.written_back(&HashSet::new(), code.span));
                    }
                    term
                }
            };
            let copied = self.blocks[&piece].index();
            let copied = &mut self.made.stages[self.region.places.stage.index()].blocks[copied];
            copied.insts.extend(insts);
            copied.term = term;
        }
    }

    fn renamed(&self, inst: &Inst) -> Inst {
        let mut inst = inst.clone();
        inst.op.for_each_slot_mut(|slot| *slot = self.own.get(slot).copied().unwrap_or(*slot));
        inst
    }

    /// Where an edge to a block leads in the copy.
    fn target(&mut self, to: BlockId, locked: BlockId, waiting: &mut Vec<Piece>) -> BlockId {
        let span = self.region.places.block(to).span;
        if !self.region.places.is_growing(to) {
            if let Some(back) = self.back.get(&to) {
                return *back;
            }
            let insts = self.written_back(&self.region.places.live_in(to), span);
            let back = self.push(insts, Terminator::Jump(to), span);
            self.back.insert(to, back);
            return back;
        }
        if self.region.leaving.get(&(to, 0)).is_none_or(|part| *part == 0.0) {
            return locked;
        }
        if let Some(copied) = self.blocks.get(&(to, 0)) {
            return *copied;
        }
        let copied = self.push(Vec::new(), Terminator::Next, span);
        self.blocks.insert((to, 0), copied);
        waiting.push((to, 0));
        copied
    }

    /// At a write: the packet leaves if the cell holds the value.
    fn unless_changed(
        &mut self,
        insts: &mut Vec<Inst>,
        (block, at): Piece,
        locked: BlockId,
        peeked: SlotId,
    ) -> Terminator {
        let code = self.region.places.block(block);
        let span = code.insts[at].span;
        let Op::RegisterWrite { src, .. } = self.renamed(&code.insts[at]).op else { unreachable!("it is a write") };
        let same = self.new_slot(1);
        insts.push(Inst { op: Op::Bin { op: BinOp::Eq, dst: same, a: src, b: peeked.into() }, span });
        let live = self.region.places.live_before(block, at + 1);
        let mut rest = self.written_back(&live, span);
        rest.extend(code.insts[at + 1..].iter().cloned());
        let done = self.push(rest, code.term.clone(), span);
        Terminator::Branch { cond: same.into(), then: done, other: locked }
    }

    /// Writes the copy's slots back, of temporaries those in `live`.
    fn written_back(&self, live: &HashSet<SlotId>, span: base::Span) -> Vec<Inst> {
        let is_wanted = |slot: &SlotId| !self.region.places.is_temp(*slot) || live.contains(slot);
        let wanted = self.own.iter().filter(|(slot, _)| is_wanted(slot));
        wanted.map(|(slot, own)| Inst { op: Op::Mov { dst: *slot, src: (*own).into() }, span }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with two registers that every packet may lock; `control` is what its one stage does.
    fn program(control: &str) -> Program {
        let text = format!(
            "program \"test\"\ndrops end\nslot port: 9 metadata\nslot kept: 32 metadata\nslot i: 16 metadata\n\
             slot v: 32 temp\nslot w: 32 temp\nslot c: 1 temp\nintrinsic ingress_port = port\n\
             extern p register size 4096 width 32 initial 32w0\nextern q register size 4096 width 32 initial 32w0\n\
             entry ingress (s)\nstage control s {{\n{control}}}\n"
        );
        ir::parse(&text, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}"))
    }

    /// The stage with peeks, unless there are none.
    fn peeked(control: &str) -> Option<String> {
        let made = inserted(&program(control))?;
        assert_eq!(ir::verify(&made), [], "{}", ir::print::print(&made));
        let optimised = peeks(&program(control), &Options::default()).expect("there are some");
        assert_eq!(ir::verify(&optimised), []);
        Some(ir::print::print_stage(&made, StageId::from_index(0)))
    }

    const HALF: &str = "\
b0:
  i = zext port
  v = read p, i
  kept = mov v
  c = ult v, 32w7
  branch c, b1, b2
b1:
  w = add v, 32w1
  write p, i, w
  send port
b2:
  send port
";

    #[test]
    fn packets_that_do_not_write_leave_before_the_lock() {
        let text = peeked(HALF).expect("half of the packets do not write");
        assert_eq!(text.matches("peek p").count(), 1, "{text}");
        assert_eq!(text.matches("read p").count(), 1, "{text}");
        assert_eq!(text.matches("write p").count(), 1, "{text}");
        assert_eq!(text.matches("kept = mov %peek").count(), 1, "what outlives the copy is written back\n{text}");
        assert_eq!(text.matches("  v = mov").count(), 0, "v is not read there\n{text}");
    }

    #[test]
    fn a_value_that_the_cell_has_is_not_written() {
        let text = peeked("b0:\n  i = zext port\n  v = read p, i\n  write p, i, 32w1\n  send port\n");
        let text = text.expect("the cell may be 1");
        assert_eq!(text.matches(" = eq 32w0x1, %peek").count(), 1, "{text}");
        assert_eq!((text.matches("write p").count(), text.matches("send port").count()), (1, 2), "{text}");
        let other = "b0:\n  i = zext port\n  v = read p, i\n  i = add i, 16w1\n  write p, i, 32w1\n  send port\n";
        assert_eq!(inserted(&program(other)), None, "another cell");
    }

    #[test]
    fn nothing_is_copied_where_it_would_be_wrong_or_mostly_in_vain() {
        for (why, from, to) in [
            ("most write", "  branch c, b1, b2", "  switch v, 32w0 -> b2, 32w1 -> b1, 32w2 -> b3, default -> b4"),
            ("a second cell", "b2:\n", "b2:\n  w = read q, i\n"),
            ("a second write follows", "  write p, i, w\n", "  write p, i, w\n  write p, i, 32w9\n"),
            ("another register is written behind it", "  write p, i, w\n", "  write p, i, w\n  write q, i, w\n"),
            ("another lock is held", "  v = read", "  w = read q, i\n  kept = mov w\n  v = read"),
        ] {
            let more = "b3:\n  jump b1\nb4:\n  jump b1\n";
            let control = HALF.replacen(from, to, 1) + if why == "most write" { more } else { "" };
            // Both are updated.
            let updated = "  w = read q, i\n  write q, i, w\n";
            let control = match why {
                "a second write follows" | "most write" => control,
                _ => control.replace("b1:\n", &format!("b1:\n{updated}")),
            };
            assert_eq!(inserted(&program(&control)).map(|p| ir::print::print(&p)), None, "{why}");
        }
    }

    #[test]
    fn it_can_be_switched_off() {
        let without = Options { disabled: [NAME.to_string()].into(), ..Options::default() };
        assert_eq!(peeks(&program(HALF), &without), None);
    }
}
