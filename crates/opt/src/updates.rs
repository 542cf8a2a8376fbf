//! Updates: a register's read and write become one operation where a processor has an instruction for what is between them.
//!
//! Several workers lock a cell for the time from its read to its write (`ir::atomicity`). Where the new value is the old one
//! plus something, or does not depend on it, an atomic instruction does the same without a lock, whatever the number of cells,
//! and also where packets would have to take turns because there are few.
//!
//! ```text
//! v = read p, i                v = update p, i, add, 32w1
//! w = add v, 32w1       =>     w = add v, 32w1
//! write p, i, w
//! ```
//!
//! **Needs** a program that is optimised for one worker: reads and writes of a cell are in one block there, and copies are
//! propagated. **Guarantees**: a register is left as it is, unless all its accesses become updates for which
//! [`Sharing::Stepped`] holds: on no path does an access of an updated register follow. Between read and write are only
//! operations that compute, so that no packet ends there; what they computed from the old value stays.
//!
//! The time is linear in the program for each round; a round is repeated if a register was left.
//!
//! Tests: at the end of the file; `tests/properties.rs`; `datapath`'s `tests/shared_cells.rs`.

use crate::passes::{Options, optimise};
use base::ids::{ExternId, SlotId};
use ir::{Atomicity, BinOp, ExternKind, HashAlgorithm, Inst, Op, Operand, Program, Sharing, Update};
use std::collections::BTreeSet;

/// The name under which it can be switched off.
pub const NAME: &str = "updates";

/// The program with updates, for several workers, optimised with the passes of `options`; `None` if there are none.
pub fn updates(program: &Program, options: &Options) -> Option<Program> {
    if options.disabled.contains(NAME) {
        return None;
    }
    let mut made = inserted(program)?;
    optimise(&mut made, &crate::assume::keeping(options));
    // No pass may have made more of it than an update that nothing follows.
    let atomicity = Atomicity::new(&made);
    let is_left = |inst: &Inst| match inst.op {
        Op::RegisterUpdate { register, .. } => !atomicity.is_stepped(register),
        _ => false,
    };
    let mut insts = made.stages.iter().flat_map(|stage| &stage.blocks).flat_map(|block| &block.insts);
    (!insts.any(is_left)).then_some(made)
}

/// The program with updates, as they are inserted.
fn inserted(program: &Program) -> Option<Program> {
    let atomicity = Atomicity::new(program);
    let is_updated =
        |sharing: &Sharing| !matches!(sharing, Sharing::OnlyRead | Sharing::OnlyWritten | Sharing::Stepped);
    let updated: BTreeSet<ExternId> =
        atomicity.registers().filter(|(_, sharing)| is_updated(sharing)).map(|(register, _)| register).collect();
    let mut wanted = updated.clone();
    loop {
        wanted.retain(|register| {
            matches!(program.externs[register.index()].kind, ExternKind::Register { width, .. } if width <= 64)
        });
        if wanted.is_empty() {
            return None;
        }
        let mut made = program.clone();
        for block in made.stages.iter_mut().flat_map(|stage| &mut stage.blocks) {
            let pairs = pairs(program, &block.insts, &updated);
            for Pair { read, write, update, src } in pairs.into_iter().rev() {
                let Op::RegisterRead { register, dst, ref index, .. } = block.insts[read].op else {
                    unreachable!("a pair begins with a read")
                };
                if wanted.contains(&register) {
                    block.insts[read].op =
                        Op::RegisterUpdate { register, dst, index: index.clone(), update, src: src.clone() };
                    block.insts.remove(write);
                }
            }
        }
        let after = Atomicity::new(&made);
        let count = wanted.len();
        wanted.retain(|register| after.is_stepped(*register));
        if wanted.len() == count {
            return Some(made);
        }
    }
}

/// A read-modify-write: the indices in a block of the read and of the write of the same cell, and the update between them.
struct Pair {
    read: usize,
    write: usize,
    update: Update,
    src: Operand,
}

/// The pairs of a block, in order; they do not overlap.
fn pairs(program: &Program, insts: &[Inst], updated: &BTreeSet<ExternId>) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut from = 0;
    while let Some(read) = (from..insts.len()).find(|i| accessed(&insts[*i].op, updated).is_some()) {
        from = read + 1;
        let Op::RegisterRead { register, dst, index, peek: false } = &insts[read].op else { continue };
        let end = (from..insts.len()).find(|i| !computes(&insts[*i].op, updated));
        let Some(write) = end else { continue };
        let Op::RegisterWrite { register: written, index: there, src } = &insts[write].op else { continue };
        if written != register || there != index || *dst == index.slot().unwrap_or(SlotId(u32::MAX)) {
            continue;
        }
        let between = &insts[from..write];
        let is_kept = |operand: &Operand, until: usize| {
            operand.slot().is_none_or(|slot| slot != *dst && !defines(program, &between[..until], slot))
        };
        if !is_kept(index, between.len()) {
            continue;
        }
        let found = match src.slot() {
            _ if is_kept(src, between.len()) => Some((Update::Exchange, src.clone())),
            None => None,
            Some(new) => {
                let at = between.iter().rposition(|inst| defines(program, std::slice::from_ref(inst), new));
                at.and_then(|at| {
                    let Op::Bin { op, a, b, .. } = &between[at].op else { return None };
                    let is_old =
                        |operand: &Operand| operand.slot() == Some(*dst) && !defines(program, &between[..at], *dst);
                    let (other, swapped) = match (is_old(a), is_old(b)) {
                        (true, false) => (b, false),
                        (false, true) => (a, true),
                        _ => return None,
                    };
                    let update = match op {
                        BinOp::Add => (Update::Add, other.clone()),
                        BinOp::Sub if !swapped => {
                            let by = other.constant()?;
                            (Update::Add, Operand::Const(base::Bits::zero(by.width()).sub(by)))
                        }
                        BinOp::And => (Update::And, other.clone()),
                        BinOp::Or => (Update::Or, other.clone()),
                        BinOp::Xor => (Update::Xor, other.clone()),
                        _ => return None,
                    };
                    is_kept(other, at).then_some(update)
                })
            }
        };
        if let Some((update, src)) = found {
            pairs.push(Pair { read, write, update, src });
            from = write + 1;
        }
    }
    pairs
}

/// The updated register that an operation accesses.
fn accessed(op: &Op, updated: &BTreeSet<ExternId>) -> Option<ExternId> {
    match op {
        Op::RegisterRead { register, .. }
        | Op::RegisterWrite { register, .. }
        | Op::RegisterUpdate { register, .. } => updated.contains(register).then_some(*register),
        _ => None,
    }
}

/// Whether an operation only computes, so that nobody can tell whether a cell is written before or behind it.
fn computes(op: &Op, updated: &BTreeSet<ExternId>) -> bool {
    match op {
        Op::Mark(_) | Op::ActionParam { .. } => true,
        Op::RegisterRead { .. } => accessed(op, updated).is_none(),
        Op::Hash { algorithm, payload, .. } => *algorithm != HashAlgorithm::Random && !payload,
        op => op.is_arithmetic(),
    }
}

fn defines(program: &Program, insts: &[Inst], slot: SlotId) -> bool {
    let mut found = false;
    insts.iter().for_each(|inst| inst.op.for_each_def(program, |def| found |= def == slot));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(control: &str) -> Program {
        let text = format!(
            "program \"test\"\ndrops end\nslot port: 9 metadata\nslot n: 32 metadata\nslot i: 16 metadata\n\
             slot v: 32 temp\nslot w: 32 temp\nslot o: 20 temp\nslot c: 1 temp\nintrinsic ingress_port = port\n\
             extern p register size 1 width 32 initial 32w0\nextern q register size 4096 width 32 initial 32w0\n\
             extern odd register size 4096 width 20 initial 20w0\n\
             entry ingress (s)\nstage control s {{\n{control}}}\n"
        );
        ir::parse(&text, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}"))
    }

    /// The updates of a stage.
    fn made(control: &str) -> Vec<String> {
        let Some(made) = updates(&program(control), &Options::default()) else { return Vec::new() };
        let text = ir::print(&made);
        let again = ir::parse(&text, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}\n{text}"));
        assert_eq!(ir::print(&again), text);
        let is_access = |line: &&str| ["update ", "read ", "write "].iter().any(|op| line.contains(op));
        text.lines().map(str::trim).filter(is_access).map(str::to_string).collect()
    }

    #[test]
    fn a_sum_a_mask_and_a_value_become_updates() {
        for (code, src, update) in [
            ("w = add v, 32w1", "w", ", add, 32w0x1"),
            ("w = add n, v", "w", ", add, "),
            ("w = sub v, 32w1", "w", ", add, 32w0xffffffff"),
            ("w = or v, 32w4", "w", ", or, 32w0x4"),
            ("w = and v, n", "w", ", and, "),
            ("w = xor v, n", "w", ", xor, "),
            ("w = mov n", "n", ", exchange, "),
        ] {
            let control = format!(
                "b0:\n  i = zext port\n  n = zext port\n  v = read p, i\n  {code}\n  write p, i, {src}\n  n = mov v\n  \
                 send port\n"
            );
            let text = made(&control);
            assert_eq!(text.len(), 1, "{code}: {text:?}");
            assert!(text[0].contains(" = update p, ") && text[0].contains(update), "{code}: {text:?}");
        }
    }

    #[test]
    fn nothing_is_changed_where_another_access_follows_or_no_instruction_does_it() {
        let step = "  v = read p, i\n  w = add v, 32w1\n  write p, i, w\n";
        for (why, control) in [
            (
                "another register follows, which is updated",
                format!("b0:\n{step}  v = read q, i\n  w = mul v, 32w3\n  write q, i, w\n  send port\n"),
            ),
            ("the register itself follows", format!("b0:\n{step}{step}  send port\n")),
            (
                "round a loop",
                format!("b0:\n  jump b1\nb1:\n{step}  c = ult w, 32w9\n  branch c, b1, b2\nb2:\n  send port\n"),
            ),
            ("a product", "b0:\n  v = read p, i\n  w = mul v, 32w3\n  write p, i, w\n  send port\n".to_string()),
            (
                "another cell",
                "b0:\n  v = read p, i\n  w = add v, 32w1\n  i = add i, 16w1\n  write p, i, w\n  send port\n"
                    .to_string(),
            ),
            (
                "20 bits do not wrap",
                "b0:\n  o = read odd, i\n  o = add o, 20w1\n  write odd, i, o\n  send port\n".to_string(),
            ),
            (
                "another path only reads",
                format!(
                    "b0:\n  c = eq i, 16w0\n  branch c, b1, b2\nb1:\n{step}  send port\nb2:\n  n = read p, i\n  send port\n"
                ),
            ),
            (
                "what is added is computed from the cell",
                "b0:\n  v = read p, i\n  n = mul v, 32w3\n  w = add v, n\n  write p, i, w\n  send port\n".to_string(),
            ),
        ] {
            assert_eq!(made(&control), Vec::<String>::new(), "{why}");
        }
        // The last one of two is a step; the first one keeps its lock until then.
        let last = made(&format!("b0:\n  v = read q, i\n  w = mul v, 32w3\n  write q, i, w\n{step}  send port\n"));
        assert!(last.iter().any(|line| line.contains("update p")), "{last:?}");
        assert!(last.iter().any(|line| line.contains("read q")), "{last:?}");
    }

    #[test]
    fn it_can_be_switched_off() {
        let without = Options { disabled: [NAME.to_string()].into(), ..Options::default() };
        let control = "b0:\n  v = read p, i\n  w = add v, 32w1\n  write p, i, w\n  send port\n";
        assert_eq!(updates(&program(control), &without), None);
    }
}
