//! Specialisation: what the tables' entries imply, written into the program, for code that is compiled for tables as
//! they are.
//!
//! Not a pass: the result is equivalent to the program only while the tables are as [`Assumed`] says, which its user
//! must ensure (`datapath::tiers`).
//!
//! Needs: a well-formed program. Guarantees: tables, externs and slots are those of the program, so that both can share
//! state and records; every lookup is kept, so that it is counted.
//!
//! ```text
//! (only `drop`, 1, can run)
//! %h, %a, %e, %d = apply t (k)            %h, %a, %e, %d = apply t (16w0)
//! switch %a, 32w0 -> b1,          =>      %h = mov 1w0
//!   default -> b2                         %a = mov 32w1
//!                                         jump b2
//! ```
//!
//! Tests: `tests/files/specialise_actions.ir`; below; whole programs in `crates/datapath/tests/recompile.rs`.

use crate::passes::{Options, optimise};
use base::Bits;
use ir::{BlockId, Inst, Op, Operand, Program, SlotId, Terminator};
use std::collections::BTreeMap;

/// Assumptions about all lookups in a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assumed {
    /// Whether they hit; `None` if it varies.
    pub hit: Option<bool>,
    /// The actions that can run, by position in the table's list, in ascending order; `None` for all.
    pub actions: Option<Vec<u32>>,
    /// Parameters with the same value in all entries, by action and position.
    pub args: BTreeMap<(u32, u32), Bits>,
    /// The key fields, by position, that no entry matches on.
    pub unread_keys: Vec<usize>,
}

/// Passes that would break the guarantees.
const EXCLUDED_PASSES: [&str; 2] = ["compact_slots", "dead_tables"];

/// The options without the passes that break the guarantees.
pub(crate) fn keeping(options: &Options) -> Options {
    let mut kept = options.clone();
    kept.disabled.extend(EXCLUDED_PASSES.map(str::to_string));
    kept
}

/// The program specialised for the assumptions `tables`, indexed by table, and optimised again with the passes of
/// `options`.
pub fn assume(program: &Program, tables: &[Option<Assumed>], options: &Options) -> Program {
    let mut special = program.clone();
    for stage in 0..special.stages.len() {
        for block in 0..special.stages[stage].blocks.len() {
            let old = std::mem::take(&mut special.stages[stage].blocks[block].insts);
            let mut new = Vec::with_capacity(old.len() + 4);
            let mut looked_up = None;
            for inst in old {
                if let Some(slot) = looked_up.map(|(slot, _)| slot) {
                    inst.op.for_each_def(program, |s| looked_up = looked_up.filter(|_| s != slot));
                }
                looked_up = rewrite(program, tables, inst, &mut new).or(looked_up);
            }
            let block = &mut special.stages[stage].blocks[block];
            block.insts = new;
            if let Some((slot, actions)) = looked_up {
                prune(&mut block.term, slot, actions);
            }
        }
    }
    optimise(&mut special, &keeping(options));
    // Records are laid out by slots: a pass that changed them would belong in the list above.
    if special.slots == program.slots { special } else { program.clone() }
}

/// Appends an instruction and the values that the assumptions give its results. For a lookup, returns the slot of the
/// action and the actions that can run.
fn rewrite<'a>(
    program: &Program,
    tables: &'a [Option<Assumed>],
    mut inst: Inst,
    out: &mut Vec<Inst>,
) -> Option<(SlotId, &'a [u32])> {
    let span = inst.span;
    let assumed = |table: ir::TableId| tables.get(table.index()).and_then(Option::as_ref);
    match &mut inst.op {
        Op::Apply { table, keys, hit, action, .. } => {
            let (hit, action, assumed) = (*hit, *action, assumed(*table));
            for &i in assumed.iter().flat_map(|a| &a.unread_keys) {
                keys[i] = Operand::Const(Bits::zero(keys[i].width(program)));
            }
            out.push(inst);
            let assumed = assumed?;
            let mut known = |dst: SlotId, value: Bits| {
                out.push(Inst { op: Op::Mov { dst, src: Operand::Const(value) }, span });
            };
            if let Some(value) = assumed.hit {
                known(hit, Bits::from_bool(value));
            }
            let actions = assumed.actions.as_deref()?;
            if let [only] = actions {
                known(action, Bits::new(32, (*only).into()));
            }
            return Some((action, actions));
        }
        Op::ActionParam { dst, table, action, param, .. } => {
            if let Some(value) = assumed(*table).and_then(|a| a.args.get(&(*action, *param))) {
                inst.op = Op::Mov { dst: *dst, src: Operand::Const(value.clone()) };
            }
        }
        _ => {}
    }
    out.push(inst);
    None
}

/// Removes impossible actions from the switch on a lookup's action.
fn prune(term: &mut Terminator, slot: SlotId, actions: &[u32]) {
    let Terminator::Switch { on: Operand::Slot(on), cases, default } = term else { return };
    if *on != slot {
        return;
    }
    let can_run = |value: &Bits| actions.iter().any(|a| *value == Bits::new(32, (*a).into()));
    cases.retain(|(value, _)| can_run(value));
    if cases.len() == actions.len()
        && let Some((_, last)) = cases.pop()
    {
        // One of the cases always applies, so that the last needs no comparison.
        *default = last;
    }
    let all: Vec<BlockId> = cases.iter().map(|(_, to)| *to).chain([*default]).collect();
    if all.iter().all(|to| to == default) {
        *term = Terminator::Jump(*default);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = r#"program "test"
drops end
slot port: 9 metadata
slot k: 16 metadata
slot out: 9 metadata
slot %h: 1 temp
slot %a: 32 temp
slot %e: 64 temp
slot %d: 64 temp
action forward (port: 9)
action drop ()
intrinsic ingress_port = port
table t {
  key k: 16 exact
  key port: 9 exact
  action forward
  action drop
  default 1 ()
  size 8
}
entry ingress (s)
stage control s {
b0:
  k = zext port
  %h, %a, %e, %d = apply t (k, port)
  switch %a, 32w0x0 -> b1, 32w0x1 -> b2, default -> b2
b1:
  out = param t, 0, 0, %d
  send out
b2:
  drop "end"
}
"#;

    #[test]
    fn without_assumptions_nothing_changes() {
        let program = ir::parse(PROGRAM, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}"));
        let mut optimised = program.clone();
        optimise(&mut optimised, &keeping(&Options::default()));
        assert_eq!(assume(&program, &[None], &Options::default()), optimised);
    }
}
