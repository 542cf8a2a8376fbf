//! The origin of the values that a parser assigns, for bmv2's lines `Parser set`.
//!
//! An assignment is identified by its state, position, target and order: operations of JSON have no positions of their
//! own.
//!
//! Tests: `tests.rs` and `tests/json.rs` beside this.

use base::ids::SlotId;
use base::{Bits, Span};
use ir::{Block, Inst, Mark, Op, Operand, Program, Slot, SlotKind, Stage, StageKind};
use std::collections::{BTreeSet, HashMap};

/// The origin of an assigned value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    Constant,
    Field(String),
    /// The packet, at an offset from the cursor; both in bits.
    Lookahead {
        offset: u32,
        width: u32,
    },
    Expression,
    /// The copy of a header that was extracted into another one: part of `extract`, which has its own line.
    Extracted,
}

/// All assignments of a program's parsers, by state and position, in order.
pub struct Sets(HashMap<String, HashMap<Span, Vec<Set>>>);

struct Set {
    target: String,
    source: Source,
    constant: Option<Bits>,
}

impl Sets {
    pub fn new(program: &Program) -> Sets {
        let mut sets: HashMap<String, HashMap<Span, Vec<Set>>> = HashMap::new();
        for stage in program.stages.iter().filter(|stage| stage.kind == StageKind::Parser) {
            let begins = |(index, block)| state_of(block).map(|name: &str| (index, name));
            for (start, name) in [(0, "")].into_iter().chain(stage.blocks.iter().enumerate().filter_map(begins)) {
                let of_state = sets.entry(name.to_string()).or_default();
                let mut ahead = HashMap::new();
                for inst in blocks_of(stage, start).iter().flat_map(|index| &stage.blocks[*index].insts) {
                    if let Op::Lookahead { dst, offset } = inst.op {
                        ahead.insert(dst, Source::Lookahead { offset, width: program.width(dst) });
                    }
                    if let Some(set) = set(program, inst, &ahead) {
                        of_state.entry(inst.span).or_default().push(set);
                    }
                }
            }
        }
        Sets(sets)
    }

    /// Returns the origin of a value; `None` if no statement of the state assigns the slot there. `at` is the position
    /// of the last assignment found; the caller resets it when a state begins.
    pub fn source(
        &self,
        at: &mut Option<(Span, usize)>,
        (state, span): (&str, Span),
        slot: &str,
        value: &Bits,
    ) -> Option<Source> {
        let sets = self.0.get(state)?.get(&span)?;
        let begin = at.filter(|(last, _)| *last == span).map_or(0, |(_, index)| index + 1);
        let fits = |set: &Set| set.target == slot && set.constant.as_ref().is_none_or(|constant| constant == value);
        let found = begin + sets[begin..].iter().position(fits)?;
        *at = Some((span, found));
        Some(sets[found].source.clone()).filter(|source| *source != Source::Extracted)
    }
}

/// Returns the state that begins with a block.
fn state_of(block: &Block) -> Option<&str> {
    block
        .insts
        .iter()
        .find_map(|inst| if let Op::Mark(Mark::State(name)) = &inst.op { Some(name.as_str()) } else { None })
}

/// Returns the blocks that a state can reach before another one begins, by index.
fn blocks_of(stage: &Stage, start: usize) -> BTreeSet<usize> {
    let (mut found, mut waiting) = (BTreeSet::from([start]), vec![start]);
    while let Some(index) = waiting.pop() {
        stage.blocks[index].term.for_each_target(|to| {
            if state_of(&stage.blocks[to.index()]).is_none() && found.insert(to.index()) {
                waiting.push(to.index());
            }
        });
    }
    found
}

/// Returns the assignment that an instruction performs, if it is one.
fn set(program: &Program, inst: &Inst, ahead: &HashMap<SlotId, Source>) -> Option<Set> {
    let slot = |id: SlotId| &program.slots[id.index()];
    let target = match inst.op {
        Op::Lookahead { dst, .. } => dst,
        ref op => op.arithmetic_dst()?,
    };
    let mut constant = None;
    let source = match assigned(&inst.op, target) {
        Some(Operand::Const(value)) => {
            constant = Some(value.clone());
            Source::Constant
        }
        Some(Operand::Slot(from)) if slot(*from).kind == SlotKind::Temp => {
            ahead.get(from).cloned().unwrap_or(Source::Expression)
        }
        Some(Operand::Slot(from)) if slot(*from).name.contains('$') => Source::Extracted,
        Some(Operand::Slot(from)) => Source::Field(slot(*from).name.clone()),
        None => ahead.get(&target).cloned().unwrap_or(Source::Expression),
    };
    is_told(slot(target)).then(|| Set { target: slot(target).name.clone(), source, constant })
}

/// Returns the operand that an instruction copies. An assignment to a header field is a `Select`, because it applies
/// only if the header is valid.
fn assigned(op: &Op, target: SlotId) -> Option<&Operand> {
    match op {
        Op::Mov { src, .. } => Some(src),
        Op::Select { then, other: Operand::Slot(old), .. } if *old == target => Some(then),
        _ => None,
    }
}

/// Whether a program's author can assign the slot by name.
fn is_told(slot: &Slot) -> bool {
    matches!(slot.kind, SlotKind::Metadata | SlotKind::Field(_) | SlotKind::HeaderPart) && !slot.name.contains('$')
}
