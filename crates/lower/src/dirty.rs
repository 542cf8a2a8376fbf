//! Finds the headers in which a program can observe that bmv2 keeps the fields of invalid headers.
//!
//! A forward dataflow analysis over a program whose headers are all *retained* (see `retained.rs`). Each header has a
//! set of possible states: *clean* (invalid, all fields zero), *dirty* (invalid, some field possibly set) and *valid*.
//! A header must be retained if one of its fields is read where it may be dirty. Branches on a header's validity refine
//! its state; a join takes the union.
//!
//! ```text
//! valid = 1    any   → valid   (fields are written before)
//! valid = 0    valid → dirty
//! field = x    clean → dirty
//! ```
//!
//! Needs the IR of `retained.rs` or of `crates/bmv2`, before any pass. The result is conservative: a header that is
//! retained without need only costs speed.

use crate::simple_switch::Stages;
use ir::{BlockId, EntryKind, Op, Operand, Program, SlotId, StageId, Terminator};
use std::collections::HashMap;

const CLEAN: u8 = 1;
const DIRTY: u8 = 2;
const VALID: u8 = 4;

/// Limit on states kept for a stage, one byte for each block and header: 64 MB, a small part of the 2 GB that a
/// compiling process may use. Beyond it all headers are retained.
const STATES_MAX: usize = 64 << 20;

/// Limit on the passes of clones through egress that are analysed; beyond it every header may be in any state.
const ROUNDS_MAX: u32 = 16;

#[derive(Clone, Copy)]
enum Part {
    Valid(usize),
    Field(usize),
}

/// The headers of a program whose headers are all retained.
#[derive(Debug, Default)]
pub struct Followed {
    /// By header: its validity slot and the slots of its fields; `None` for metadata.
    pub headers: Vec<Option<(SlotId, Vec<SlotId>)>>,
    /// Headers that must be retained in any case.
    pub surely_retained: Vec<usize>,
    /// Whether ingress creates clones of the received packet, which are parsed again.
    pub clones_at_ingress: bool,
    /// Whether egress creates clones, which go through egress again.
    pub clones_at_egress: bool,
}

/// Whether each header must be retained.
pub fn retained_headers(program: &Program, stages: &Stages, followed: &Followed) -> Vec<bool> {
    let mut parts = HashMap::new();
    for (header, slots) in followed.headers.iter().enumerate() {
        if let Some((valid, fields)) = slots {
            parts.insert(*valid, Part::Valid(header));
            parts.extend(fields.iter().map(|slot| (*slot, Part::Field(header))));
        }
    }
    let count = followed.headers.len();
    if program.stages.iter().any(|stage| stage.blocks.len().saturating_mul(count) > STATES_MAX) {
        return vec![true; count];
    }
    let mut walk = Walk { program, parts, retained: vec![false; count] };
    for header in &followed.surely_retained {
        walk.retained[*header] = true;
    }
    let start = vec![CLEAN; count];
    let parsed = walk.stage(stages.parser, start);
    let parsed = walk.stage(stages.verify, parsed);
    let mut to_egress = walk.stage(stages.ingress, parsed.clone());
    if followed.clones_at_ingress {
        join(&mut to_egress, &parsed);
    }
    let mut out = walk.stage(stages.egress, to_egress.clone());
    if followed.clones_at_egress {
        // A clone starts egress with the header states at the end of egress: iterated to a fixed point. One branch on a
        // header's validity can lead to the next, so each round may add a single state.
        for round in 1.. {
            if !join(&mut to_egress, &out) {
                break;
            }
            if round == ROUNDS_MAX {
                to_egress.fill(CLEAN | DIRTY | VALID);
            }
            out = walk.stage(stages.egress, to_egress.clone());
        }
    }
    let computed = walk.stage(stages.compute, out);
    walk.stage(stages.deparser, computed);
    debug_assert!(program.entry(EntryKind::Ingress).is_some());
    walk.retained
}

fn join(a: &mut [u8], b: &[u8]) -> bool {
    let mut changed = false;
    for (x, y) in a.iter_mut().zip(b) {
        changed |= *x | *y != *x;
        *x |= *y;
    }
    changed
}

struct Walk<'p> {
    program: &'p Program,
    parts: HashMap<SlotId, Part>,
    retained: Vec<bool>,
}

impl Walk<'_> {
    /// The states at the end of a stage that starts with the states `start`; all empty if it never reaches its end.
    fn stage(&mut self, id: StageId, start: Vec<u8>) -> Vec<u8> {
        let program = self.program;
        let blocks = &program.stages[id.index()].blocks;
        let count = start.len();
        let mut entry: Vec<Option<Vec<u8>>> = vec![None; blocks.len()];
        let mut waiting = vec![0usize];
        let mut out = vec![0u8; count];
        entry[0] = Some(start);
        while let Some(index) = waiting.pop() {
            let Some(mut state) = entry[index].clone() else { continue };
            let block = &blocks[index];
            for inst in &block.insts {
                self.step(&inst.op, &mut state);
            }
            if let Some(Operand::Slot(slot)) = block.term.operand() {
                self.read(*slot, &state);
            }
            let mut go = |to: BlockId, state: Vec<u8>| {
                let changed = match &mut entry[to.index()] {
                    Some(known) => join(known, &state),
                    none => {
                        *none = Some(state);
                        true
                    }
                };
                if changed && !waiting.contains(&to.index()) {
                    waiting.push(to.index());
                }
            };
            match &block.term {
                Terminator::Branch { cond: Operand::Slot(slot), then, other }
                    if let Some(Part::Valid(header)) = self.parts.get(slot) =>
                {
                    for (to, keep) in [(*then, VALID), (*other, CLEAN | DIRTY)] {
                        let mut state = state.clone();
                        state[*header] &= keep;
                        if state[*header] != 0 {
                            go(to, state);
                        }
                    }
                }
                Terminator::Next => _ = join(&mut out, &state),
                term => term.for_each_target(|to| go(to, state.clone())),
            }
        }
        out
    }

    fn read(&mut self, slot: SlotId, state: &[u8]) {
        if let Some(Part::Field(header)) = self.parts.get(&slot)
            && state[*header] & DIRTY != 0
        {
            self.retained[*header] = true;
        }
    }

    fn step(&mut self, op: &Op, state: &mut [u8]) {
        let mut used = Vec::new();
        op.for_each_use(self.program, |slot| used.push(slot));
        for slot in used {
            self.read(slot, state);
        }
        let constant = match op {
            Op::Mov { src: Operand::Const(c), .. } => Some(!c.is_zero()),
            _ => None,
        };
        op.for_each_def(self.program, |slot| match (self.parts.get(&slot), constant) {
            (Some(Part::Valid(header)), Some(true)) => state[*header] = VALID,
            (Some(Part::Valid(header)), Some(false)) => {
                let was = state[*header];
                state[*header] = was & !VALID | if was & VALID != 0 { DIRTY } else { 0 };
            }
            (Some(Part::Valid(header)), None) => state[*header] = CLEAN | DIRTY | VALID,
            (Some(Part::Field(_)), Some(false)) | (None, _) => {}
            (Some(Part::Field(header)), _) => {
                let was = state[*header];
                state[*header] = was & !CLEAN | if was & CLEAN != 0 { DIRTY } else { 0 };
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// Which of `count` headers are retained in a program whose egress makes one more of them valid each time that a
    /// clone passes through it, and reads a field of the last one after it made that header invalid.
    fn chain(count: usize) -> Vec<bool> {
        let mut text = String::from("program \"t\"\nslot out: 8 metadata\n");
        for i in 0..count {
            writeln!(text, "slot v{i}: 1 metadata\nslot f{i}: 8 metadata").unwrap();
        }
        text.push_str("entry ingress (none)\nstage control none {\nb0:\n  next\n}\nstage control egress {\n");
        let last = count - 1;
        let read = format!("v{last} = mov 1w0x0\n  out = mov f{last}");
        let set = |i: usize| format!("v{i} = mov 1w0x1\n  f{i} = mov 8w0x5");
        let steps = std::iter::once((last, read)).chain((1..count).rev().map(|i| (i - 1, set(i))));
        for (number, (tested, step)) in steps.enumerate() {
            let (at, then, after) = (2 * number, 2 * number + 1, 2 * number + 2);
            writeln!(text, "b{at}:\n  branch v{tested}, b{then}, b{after}\nb{then}:\n  {step}\n  jump b{after}")
                .unwrap();
        }
        writeln!(text, "b{}:\n  v0 = mov 1w0x1\n  next\n}}", 2 * count).unwrap();
        let program = ir::parse(&text, base::FileId(0)).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
        let slot = |name: String| SlotId::from_index(program.slots.iter().position(|s| *s.name == *name).unwrap());
        let headers = (0..count).map(|i| Some((slot(format!("v{i}")), vec![slot(format!("f{i}"))]))).collect();
        let [none, egress] = [0, 1].map(StageId::from_index);
        let stages = Stages { parser: none, verify: none, ingress: none, egress, compute: none, deparser: none };
        retained_headers(&program, &stages, &Followed { headers, clones_at_egress: true, ..Followed::default() })
    }

    #[test]
    fn a_field_that_only_a_late_clone_reads_is_retained() {
        for count in [2, 3, 6, 12, 40] {
            let retained = chain(count);
            assert!(retained[count - 1], "{count} headers");
            assert!(!retained[..count - 1].contains(&true), "{count} headers: the others are never read");
        }
    }
}
