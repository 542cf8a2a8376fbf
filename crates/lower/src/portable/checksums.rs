//! `InternetChecksum` and `Checksum`: objects that accumulate data while a block runs.
//!
//! **`InternetChecksum`** is a variable with the ones' complement sum (RFC 1071) of its data:
//!
//! ```text
//! ck.add({a, b})        %0 = hash csum16 (a, b)       $sum = $sum + ~%0, end around
//! ck.subtract({a, b})   %0 = hash csum16 (~a, ~b)     $sum = $sum + ~%0, end around
//! ck.get()              ~$sum
//! ```
//!
//! If all data since `clear` were added in the basic block that calls `get`, `get` is a single `hash` over all of them,
//! and the variable is not read.
//!
//! **`Checksum`** supports any algorithm, so all of its data must be present at once. Each call of `update` saves
//! copies of its data. `get` is a `hash` over the copies of all calls that may have run since `clear`, in order. The
//! copies of a call that is not on all paths to `get` have a length, which is zero if the call did not run. An `update`
//! that may run again before `clear`, as in a loop, is an error.
//!
//! Both are cleared whenever the parser or control that declares them is applied.
//!
//! Specification: PSA 7.7 and appendix B. Tests: `tests/psa.rs`, `tests/stf/psa/checksums.stf` at the root.

use crate::arch::ExternCall;
use crate::codes;
use crate::context::Lowerer;
use crate::tree::Tree;
use base::diag::Diagnostic;
use base::{Bits, Span};
use ir::{BinOp, BlockId, CastKind, Cfg, HashAlgorithm, Inst, Op, Operand, SlotId, Stage, StageId, UnOp};
use sema::typed::InstanceId;
use std::collections::{BTreeSet, HashMap};

/// Number of (block, note) pairs that cost one unit of the budget. An operand of a `hash` costs one unit.
const NOTES_PER_UNIT: usize = 8;

/// Width of the words that `InternetChecksum` sums, in bits.
const WORD: u32 = 16;

/// Data to be hashed: values, and for a varbit its length in bits.
type Data = Vec<(Operand, Option<Operand>)>;

/// The checksum objects of a program.
#[derive(Default)]
pub(crate) struct Checksums {
    /// The sum of each `InternetChecksum`.
    sums: HashMap<InstanceId, SlotId>,
    /// The data given to an `InternetChecksum` since `clear`, while control stays in one basic block.
    given: HashMap<InstanceId, (StageId, BlockId, Data)>,
    /// Placeholder: until the stage is finished, `mark = n` stands for note `n`.
    mark: Option<SlotId>,
    notes: Vec<Note>,
}

/// A method call on a `Checksum`, to be resolved when the stage is finished.
enum Note {
    Clear(InstanceId),
    /// The copies of the data; each has a slot for its length, which defaults to its full width.
    Update(InstanceId, Vec<Kept>),
    /// The algorithm, and the result's slot and width in bits.
    Get(InstanceId, HashAlgorithm, SlotId, u32),
}

/// A copy of an operand.
struct Kept {
    value: SlotId,
    width: u32,
    /// For a varbit, its length in bits when it was copied.
    length: Option<Operand>,
    /// The slot with the number of bits to hash.
    present: SlotId,
}

impl Checksums {
    /// Clears an object: its block is applied, or `clear` is called.
    pub fn clear(&mut self, cx: &mut Lowerer<'_>, object: InstanceId, is_internet: bool) {
        if is_internet {
            let sum = self.sum(cx, object);
            cx.b.set(sum, 0);
            self.given.insert(object, (cx.b.current_stage(), cx.b.current(), Data::new()));
        } else {
            self.note(cx, Note::Clear(object));
        }
    }

    /// Lowers a method call on an `InternetChecksum`; `None` if it has no such method.
    pub fn internet(
        &mut self,
        cx: &mut Lowerer<'_>,
        object: InstanceId,
        method: &str,
        call: &ExternCall<'_>,
    ) -> Option<Tree> {
        let sum = self.sum(cx, object);
        match method {
            "clear" => self.clear(cx, object, true),
            "add" | "subtract" => self.add(cx, object, call, method == "subtract"),
            "get" => return Some(self.complement(cx, object, sum)),
            "get_state" => return Some(cx.freeze(&sum.into())),
            "set_state" => {
                cx.b.mov(sum, call.value(0).operand());
                self.given.remove(&object);
            }
            _ => return None,
        }
        Some(Tree::Nothing)
    }

    fn sum(&mut self, cx: &mut Lowerer<'_>, object: InstanceId) -> SlotId {
        *self.sums.entry(object).or_insert_with(|| cx.b.local(format!("{}.$sum", cx.p.instance(object).path), WORD))
    }

    fn add(&mut self, cx: &mut Lowerer<'_>, object: InstanceId, call: &ExternCall<'_>, subtract: bool) {
        let Some(mut data) = data_of(cx, call) else { return };
        let bits: u64 = data.iter().filter(|(_, length)| length.is_none()).map(|(o, _)| u64::from(cx.width(o))).sum();
        let missing = bits.next_multiple_of(WORD.into()) - bits;
        if missing > 0 {
            let message = format!("an `InternetChecksum` is given {bits} bits");
            let help = format!(
                "it adds up words of {WORD} bits: {missing} zero bits follow these; write them if you mean that"
            );
            cx.report(Diagnostic::warning(codes::PADDED, call.call.span, message).help(help));
            data.push((Operand::Const(Bits::zero(missing as u32)), None));
        }
        let here = (cx.b.current_stage(), cx.b.current());
        let has_varbit = data.iter().any(|(_, length)| length.is_some());
        match self.given.get_mut(&object) {
            Some((stage, block, given)) if (*stage, *block) == here && !subtract && !has_varbit => {
                given.extend(data.iter().cloned());
            }
            _ => _ = self.given.remove(&object),
        }
        let data: Data = match subtract {
            true => data.into_iter().map(|(o, length)| (cx.b.un(UnOp::Not, o).into(), length)).collect(),
            false => data,
        };
        let sum = self.sum(cx, object);
        let hash = csum16(cx, &data);
        let words = cx.b.un(UnOp::Not, hash);
        let [a, b] = [sum, words].map(|s| cx.b.cast(CastKind::Zext, WORD + 1, s));
        let wide = cx.b.bin(BinOp::Add, a, b);
        let low = cx.b.cast(CastKind::Trunc, WORD, wide);
        let carry = cx.b.slice(wide, WORD, WORD);
        let carry = cx.b.cast(CastKind::Zext, WORD, carry);
        cx.b.emit(Op::Bin { op: BinOp::Add, dst: sum, a: low.into(), b: carry.into() });
    }

    /// `get()`
    fn complement(&mut self, cx: &mut Lowerer<'_>, object: InstanceId, sum: SlotId) -> Tree {
        let here = (cx.b.current_stage(), cx.b.current());
        match self.given.get(&object) {
            Some((stage, block, given)) if (*stage, *block) == here && !given.is_empty() => {
                let given = given.clone();
                cx.b.charge(given.len());
                csum16(cx, &given).into()
            }
            _ => cx.b.un(UnOp::Not, sum).into(),
        }
    }

    /// Lowers a method call on a `Checksum`; `None` if it has no such method.
    pub fn any(
        &mut self,
        cx: &mut Lowerer<'_>,
        object: InstanceId,
        algorithm: HashAlgorithm,
        method: &str,
        call: &ExternCall<'_>,
    ) -> Option<Tree> {
        match method {
            "clear" => self.note(cx, Note::Clear(object)),
            "update" => {
                let data = data_of(cx, call)?;
                let name = format!("{}.$data", cx.p.instance(object).path);
                let mut kept = Vec::with_capacity(data.len());
                for (value, length) in data {
                    let width = cx.width(&value);
                    let copy = cx.b.local(&name, width);
                    cx.b.mov(copy, value);
                    let present = cx.b.local(format!("{name}.$length"), 32);
                    kept.push(Kept { value: copy, width, length, present });
                }
                self.note(cx, Note::Update(object, kept));
            }
            "get" => {
                let width = cx.scalar_width(&call.call.result).unwrap_or(1).max(1);
                let dst = cx.b.local(format!("{}.$result", cx.p.instance(object).path), width);
                self.note(cx, Note::Get(object, algorithm, dst, width));
                return Some(cx.freeze(&dst.into()));
            }
            _ => return None,
        }
        Some(Tree::Nothing)
    }

    fn note(&mut self, cx: &mut Lowerer<'_>, note: Note) {
        let mark = *self.mark.get_or_insert_with(|| cx.b.local("$checksum", 32));
        cx.b.set(mark, self.notes.len() as u128);
        self.notes.push(note);
    }

    /// Replaces the notes of a stage by operations.
    pub fn finish_stage(&mut self, cx: &mut Lowerer<'_>, stage: StageId) {
        self.given.clear();
        let notes = std::mem::take(&mut self.notes);
        let Some(mark) = self.mark.filter(|_| !notes.is_empty()) else { return };
        let code = Code::new(&cx.b.program().stages[stage.index()], mark);
        // Each `get` may use all data, and each block may see all updates.
        let data: usize = notes.iter().map(Note::operands).sum();
        let (gets, blocks) = (notes.iter().filter(|n| matches!(n, Note::Get(..))).count(), code.notes.len());
        if !cx.b.charge(gets.saturating_mul(data) + blocks.saturating_mul(notes.len()) / NOTES_PER_UNIT) {
            return;
        }
        let objects: BTreeSet<InstanceId> = notes.iter().map(Note::object).collect();
        let mut replaced: HashMap<(BlockId, usize), Vec<Op>> = HashMap::new();
        let mut first = Vec::new();
        for object in objects {
            if let Err(span) = code.resolve(object, &notes, &mut replaced, &mut first) {
                let message = "`update` of a `Checksum` may run again before `clear`";
                let help = "call `clear` in the loop, or use an `InternetChecksum`";
                cx.report(Diagnostic::error(codes::UNSUPPORTED_EXTERN, span, message).help(help));
            }
        }
        cx.b.charge(first.len() + replaced.values().map(Vec::len).sum::<usize>());
        let blocks = &mut cx.b.program_mut().stages[stage.index()].blocks;
        for (b, block) in blocks.iter_mut().enumerate() {
            let mut insts = Vec::with_capacity(block.insts.len());
            if b == Stage::START.index() {
                insts.extend(first.drain(..).map(|op| Inst { op, span: Span::NONE }));
            }
            for (i, inst) in block.insts.drain(..).enumerate() {
                if number_of(&inst.op, mark).is_none() {
                    insts.push(inst);
                } else if let Some(ops) = replaced.remove(&(BlockId::from_index(b), i)) {
                    insts.extend(ops.into_iter().map(|op| Inst { op, span: inst.span }));
                }
            }
            block.insts = insts;
        }
    }
}

impl Note {
    fn operands(&self) -> usize {
        match self {
            Note::Update(_, kept) => kept.len(),
            Note::Clear(_) | Note::Get(..) => 0,
        }
    }

    fn object(&self) -> InstanceId {
        match self {
            Note::Clear(object) | Note::Update(object, _) | Note::Get(object, ..) => *object,
        }
    }
}

/// A frozen copy of the call's first argument.
fn data_of(cx: &mut Lowerer<'_>, call: &ExternCall<'_>) -> Option<Data> {
    let value = cx.freeze(&call.value(0));
    let mut data = Data::new();
    value.for_each_wire_leaf(&mut |o, length| data.push((o.clone(), length.cloned())));
    data.retain(|(o, _)| cx.width(o) > 0);
    Some(data)
}

fn csum16(cx: &mut Lowerer<'_>, data: &Data) -> SlotId {
    let dst = cx.b.temp(WORD);
    let mut varbits = Vec::new();
    for (i, (_, length)) in data.iter().enumerate() {
        if let Some(length) = length {
            varbits.push((i as u32, cx.as_slot(length)));
        }
    }
    let data = data.iter().map(|(o, _)| o.clone()).collect();
    let base = Operand::new_const(WORD, 0);
    cx.b.emit(Op::Hash { algorithm: HashAlgorithm::Csum16, dst, base, max: None, data, varbits, payload: false });
    dst
}

fn number_of(op: &Op, mark: SlotId) -> Option<usize> {
    match op {
        Op::Mov { dst, src: Operand::Const(number) } if *dst == mark => usize::try_from(number.to_u64()?).ok(),
        _ => None,
    }
}

/// A note in the code: index of the instruction, number of the note, and source position.
type Mark = (usize, usize, Span);

/// The notes of a stage, by position.
struct Code {
    cfg: Cfg,
    /// By block, in reverse postorder.
    notes: Vec<(BlockId, Vec<Mark>)>,
}

/// The updates since `clear`: those on some path, and those on all paths.
#[derive(Clone, Default, PartialEq)]
struct ReachingUpdates {
    may: BTreeSet<usize>,
    must: BTreeSet<usize>,
}

impl Code {
    fn new(stage: &Stage, mark: SlotId) -> Code {
        let cfg = Cfg::new(stage);
        let in_block = |block: &BlockId| {
            let insts = stage.blocks[block.index()].insts.iter().enumerate();
            let notes = insts.filter_map(|(i, inst)| Some((i, number_of(&inst.op, mark)?, inst.span)));
            (*block, notes.collect())
        };
        Code { notes: cfg.rpo.iter().map(in_block).collect(), cfg }
    }

    /// Determines the operations for the notes of one object. `Err` is the position of an update that may run twice.
    fn resolve(
        &self,
        object: InstanceId,
        notes: &[Note],
        replaced: &mut HashMap<(BlockId, usize), Vec<Op>>,
        first: &mut Vec<Op>,
    ) -> Result<(), Span> {
        let at = self.solve(object, notes)?;
        // Reverse postorder: the order of execution, where there is one.
        let own = |n: &usize| notes.get(*n).is_some_and(|note| note.object() == object);
        let order: Vec<usize> = self.notes.iter().flat_map(|(_, all)| all.iter().map(|n| n.1)).filter(own).collect();
        let mut partly = BTreeSet::new();
        for (b, (block, all)) in self.notes.iter().enumerate() {
            let mut reaching = at[b].clone();
            for &(i, n, span) in all.iter().filter(|(_, n, _)| own(n)) {
                if let Note::Get(_, algorithm, dst, width) = &notes[n] {
                    partly.extend(reaching.may.difference(&reaching.must).copied());
                    let op = hash_of(*algorithm, (*dst, *width), &order, &reaching, notes);
                    replaced.insert((*block, i), vec![op]);
                }
                reaching.step(n, &notes[n], span)?;
            }
        }
        let absent = |n: usize| match &notes[n] {
            Note::Update(_, kept) => kept.iter().map(|k| zero(k.present)).collect(),
            _ => Vec::new(),
        };
        let all_absent: Vec<Op> = partly.iter().flat_map(|n| absent(*n)).collect();
        first.extend(all_absent.iter().cloned());
        for (block, all) in &self.notes {
            for &(i, n, _) in all.iter().filter(|(_, n, _)| own(n)) {
                match &notes[n] {
                    Note::Clear(_) => _ = replaced.insert((*block, i), all_absent.clone()),
                    // The length is always set, even if no `get` needs it; dead code elimination removes it then.
                    Note::Update(_, kept) => _ = replaced.insert((*block, i), kept.iter().map(Kept::whole).collect()),
                    Note::Get(..) => {}
                }
            }
        }
        Ok(())
    }

    /// Forward dataflow analysis: the updates since `clear` at the start of each block.
    fn solve(&self, object: InstanceId, notes: &[Note]) -> Result<Vec<ReachingUpdates>, Span> {
        let mut at: Vec<Option<ReachingUpdates>> = vec![None; self.notes.len()];
        if let Some(start) = at.first_mut() {
            *start = Some(ReachingUpdates::default());
        }
        loop {
            let mut changed = false;
            for b in 0..self.notes.len() {
                let Some(mut reaching) = at[b].clone() else { continue };
                let (block, all) = &self.notes[b];
                for &(_, n, span) in all {
                    if let Some(note) = notes.get(n).filter(|note| note.object() == object) {
                        reaching.step(n, note, span)?;
                    }
                }
                for succ in &self.cfg.succs[block.index()] {
                    let Some(to) = self.cfg.rpo_index[succ.index()] else { continue };
                    let known = &mut at[to as usize];
                    let joined = known.as_ref().map_or_else(|| reaching.clone(), |known| known.join(&reaching));
                    if known.as_ref() != Some(&joined) {
                        *known = Some(joined);
                        changed = true;
                    }
                }
            }
            if !changed {
                return Ok(at.into_iter().map(Option::unwrap_or_default).collect());
            }
        }
    }
}

impl ReachingUpdates {
    fn step(&mut self, number: usize, note: &Note, span: Span) -> Result<(), Span> {
        match note {
            Note::Clear(_) => *self = ReachingUpdates::default(),
            Note::Update(..) => {
                self.must.insert(number);
                if !self.may.insert(number) {
                    return Err(span);
                }
            }
            Note::Get(..) => {}
        }
        Ok(())
    }

    fn join(&self, other: &ReachingUpdates) -> ReachingUpdates {
        ReachingUpdates {
            may: self.may.union(&other.may).copied().collect(),
            must: self.must.intersection(&other.must).copied().collect(),
        }
    }
}

impl Kept {
    /// Sets its length to its full length.
    fn whole(&self) -> Op {
        let all = || Operand::new_const(32, self.width.into());
        Op::Mov { dst: self.present, src: self.length.clone().unwrap_or_else(all) }
    }
}

fn zero(slot: SlotId) -> Op {
    Op::Mov { dst: slot, src: Operand::new_const(32, 0) }
}

/// The hash over the updates that may have run, in order.
fn hash_of(
    algorithm: HashAlgorithm,
    (dst, width): (SlotId, u32),
    order: &[usize],
    reaching: &ReachingUpdates,
    notes: &[Note],
) -> Op {
    let (mut data, mut varbits) = (Vec::new(), Vec::new());
    for n in order.iter().filter(|n| reaching.may.contains(n)) {
        let Note::Update(_, kept) = &notes[*n] else { continue };
        for kept in kept {
            if kept.length.is_some() || !reaching.must.contains(n) {
                varbits.push((data.len() as u32, kept.present));
            }
            data.push(Operand::Slot(kept.value));
        }
    }
    Op::Hash { algorithm, dst, base: Operand::new_const(width, 0), max: None, data, varbits, payload: false }
}
