//! Where the values come from that a parser assigns: what bmv2's lines `Parser set` say.
//!
//! An assignment is found by its place and its target, and by their order: JSON gives all operations of a state one place.
//!
//! Tests: `tests.rs` and `tests/json.rs` beside this.

use base::ids::SlotId;
use base::{Bits, Span};
use ir::{Inst, Op, Operand, Program, Slot, SlotKind, StageKind};
use std::collections::HashMap;

/// Where an assigned value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    Constant,
    Field(String),
    /// In bits, from the cursor.
    Lookahead {
        offset: u32,
        width: u32,
    },
    Expression,
}

/// All assignments of a program's parsers, by place.
pub struct Sets(HashMap<Span, Vec<Set>>);

struct Set {
    target: String,
    source: Source,
    constant: Option<Bits>,
}

impl Sets {
    pub fn new(program: &Program) -> Sets {
        let mut sets: HashMap<Span, Vec<Set>> = HashMap::new();
        let parsers = program.stages.iter().filter(|stage| stage.kind == StageKind::Parser);
        for block in parsers.flat_map(|stage| &stage.blocks) {
            let mut ahead = HashMap::new();
            for inst in &block.insts {
                if let Op::Lookahead { dst, offset } = inst.op {
                    ahead.insert(dst, Source::Lookahead { offset, width: program.width(dst) });
                }
                if let Some(set) = set(program, inst, &ahead) {
                    sets.entry(inst.span).or_default().push(set);
                }
            }
        }
        Sets(sets)
    }

    /// Where this value comes from; `None` if the program's parser does not assign the slot there. `at` is where the last one was found, and
    /// is forgotten when a state begins.
    pub fn source(&self, at: &mut Option<(Span, usize)>, span: Span, slot: &str, value: &Bits) -> Option<Source> {
        let sets = self.0.get(&span)?;
        let begin = at.filter(|(last, _)| *last == span).map_or(0, |(_, index)| index + 1);
        let fits = |set: &Set| set.target == slot && set.constant.as_ref().is_none_or(|constant| constant == value);
        let found = begin + sets[begin..].iter().position(fits)?;
        *at = Some((span, found));
        Some(sets[found].source.clone())
    }
}

/// The assignment that an instruction is.
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
        // A header is received into another one: this copy is part of `extract`.
        Some(Operand::Slot(from)) if slot(*from).name.contains('$') => return None,
        Some(Operand::Slot(from)) => Source::Field(slot(*from).name.clone()),
        None => ahead.get(&target).cloned().unwrap_or(Source::Expression),
    };
    is_told(slot(target)).then(|| Set { target: slot(target).name.clone(), source, constant })
}

/// What an instruction assigns as it is; a field of a header is assigned only where the header is valid.
fn assigned(op: &Op, target: SlotId) -> Option<&Operand> {
    match op {
        Op::Mov { src, .. } => Some(src),
        Op::Select { then, other: Operand::Slot(old), .. } if *old == target => Some(then),
        _ => None,
    }
}

/// What the author of a program can assign by name.
fn is_told(slot: &Slot) -> bool {
    matches!(slot.kind, SlotKind::Metadata | SlotKind::Field(_)) && !slot.name.contains('$')
}
