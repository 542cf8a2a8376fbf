//! Checks of operations and blocks: ranges, widths, kinds of stages.

use super::{Verifier, flow};
use crate::flow::Cfg;
use crate::op::{Fate, HashAlgorithm, Op, Operand, Terminator};
use crate::print::{op_text, terminator_text};
use crate::program::{Expiry, ExternKind, Program, SlotKind, Stage, StageKind};
use base::Span;
use base::diag::Diagnostic;
use base::ids::{ExternId, HeaderId, SlotId, TableId};
use std::collections::HashSet;

/// The result of a check: on failure the code and the message, without a location.
pub(super) type Check<T = ()> = Result<T, (&'static str, String)>;

/// Whether the stage has a reachable `next`. Block ids must be in range.
pub(super) fn ends_in_next(stage: &Stage) -> bool {
    shape_is_sound(stage)
        && Cfg::new(stage).rpo.iter().any(|b| matches!(stage.blocks[b.index()].term, Terminator::Next))
}

fn shape_is_sound(stage: &Stage) -> bool {
    let mut sound = !stage.blocks.is_empty();
    for block in &stage.blocks {
        block.term.for_each_target(|to| sound &= to.index() < stage.blocks.len());
    }
    sound
}

/// Checks a stage.
pub(super) fn check(v: &mut Verifier<'_>, stage: &Stage) {
    let program = v.program;
    if stage.blocks.is_empty() {
        return v.error("E0729", format!("stage `{}` has no blocks", stage.name));
    }
    let before = v.diags.len();
    let place = |block: usize| {
        let label = &stage.blocks[block].label;
        let label = if label.is_empty() { String::new() } else { format!(" `{label}`") };
        format!("stage `{}`, block b{block}{label}", stage.name)
    };
    let mut report = |block: usize, span: Span, text: String, (code, message): (&'static str, String)| {
        v.diags.push(Diagnostic::error(code, span, format!("{}: `{text}`: {message}", place(block))));
    };
    for (i, block) in stage.blocks.iter().enumerate() {
        for inst in &block.insts {
            let checked = ranges(program, &inst.op).and_then(|()| op(program, stage.kind, &inst.op));
            if let Err(wrong) = checked {
                report(i, inst.span, op_text(program, &inst.op), wrong);
            }
        }
        if let Err(wrong) = terminator(program, stage, &block.term) {
            report(i, block.span, terminator_text(program, &block.term), wrong);
        }
    }
    if v.diags.len() == before && shape_is_sound(stage) {
        let mut report = |block: usize, inst: Option<usize>, code: &'static str, message: String| {
            let b = &stage.blocks[block];
            let (text, span) = match inst {
                Some(i) => (op_text(program, &b.insts[i].op), b.insts[i].span),
                None => (terminator_text(program, &b.term), b.span),
            };
            v.diags.push(Diagnostic::error(code, span, format!("{}: `{text}`: {message}", place(block))));
        };
        let cfg = Cfg::new(stage);
        flow::temporaries(program, stage, &cfg, &mut report);
        if stage.kind == StageKind::Parser {
            flow::packet_bounds(program, stage, &cfg, &mut report);
        }
        if let Some(block) = crate::cost::uncharged_cycle(stage, &cfg) {
            report(block.index(), None, "E0733", "a loop comes back to here without a `charge`".to_string());
        }
    }
}

fn in_range(what: &str, index: usize, len: usize) -> Check {
    if index < len { Ok(()) } else { Err(("E0720", format!("{what} ?{index} does not exist"))) }
}

/// Checks that all ids exist, so that later checks may index with them.
fn ranges(p: &Program, op: &Op) -> Check {
    let header = |h: &HeaderId| {
        in_range("header", h.index(), p.headers.len())?;
        let header = &p.headers[h.index()];
        let slots = header.fields.iter().flat_map(|f| [Some(f.slot), f.varbit_length]).flatten();
        slots.chain([header.valid]).try_for_each(|s| in_range("slot", s.index(), p.slots.len()))
    };
    let table = |t: &TableId| in_range("table", t.index(), p.tables.len());
    let ext = |e: &ExternId| in_range("extern", e.index(), p.externs.len());
    match op {
        Op::SetValid { header: h }
        | Op::SetInvalid { header: h }
        | Op::Extract { header: h, .. }
        | Op::Emit { header: h } => {
            header(h)?;
        }
        Op::Apply { table: t, .. }
        | Op::ActionParam { table: t, .. }
        | Op::AddEntry { table: t, .. }
        | Op::RestartTimer { table: t, .. } => table(t)?,
        Op::Count { counter: e, .. }
        | Op::CountDirect { counter: e, .. }
        | Op::Meter { meter: e, .. }
        | Op::MeterDirect { meter: e, .. }
        | Op::RegisterRead { register: e, .. }
        | Op::RegisterWrite { register: e, .. }
        | Op::RegisterUpdate { register: e, .. }
        | Op::Digest { digest: e, .. } => ext(e)?,
        _ => {}
    }
    let mut checked = Ok(());
    let mut slot = |s: SlotId| {
        if let Err(wrong) = in_range("slot", s.index(), p.slots.len()) {
            checked = Err(wrong);
        }
    };
    op.for_each_def(p, &mut slot);
    op.for_each_use(p, &mut slot);
    checked
}

fn want(what: &str, found: u32, expected: u32) -> Check {
    if found == expected { Ok(()) } else { Err(("E0728", format!("{what} has {found} bits, not {expected}"))) }
}

fn at_most(what: &str, found: u32, limit: u32) -> Check {
    if found <= limit { Ok(()) } else { Err(("E0728", format!("{what} has {found} bits; {limit} are possible"))) }
}

fn rule(holds: bool, message: impl Into<String>) -> Check {
    if holds { Ok(()) } else { Err(("E0728", message.into())) }
}

fn only_in(kind: StageKind, found: StageKind) -> Check {
    if kind == found {
        Ok(())
    } else {
        Err(("E0727", format!("may stand in a {} only, not in a {}", kind.name(), found.name())))
    }
}

fn given_length(p: &Program, bytes: &Option<Operand>) -> Check {
    bytes.iter().try_for_each(|bytes| want("the length", bytes.width(p), 32))
}

/// Checks widths and kinds. All ids are in range.
fn op(p: &Program, stage: StageKind, op: &Op) -> Check {
    let width = |s: &SlotId| p.width(*s);
    let w = |o: &Operand| o.width(p);
    match op {
        Op::Mov { dst, src } => want("the source", w(src), width(dst)),
        Op::Bin { op, dst, a, b } => {
            if !op.is_shift() {
                want("the second operand", w(b), w(a))?;
            }
            want("the destination", width(dst), if op.is_comparison() { 1 } else { w(a) })
        }
        Op::Un { dst, a, .. } => want("the operand", w(a), width(dst)),
        Op::Cast { kind, dst, a } => match kind {
            crate::CastKind::Zext | crate::CastKind::Sext => rule(w(a) <= width(dst), "the destination is narrower"),
            crate::CastKind::Trunc => rule(w(a) >= width(dst), "the destination is wider"),
        },
        Op::Concat { dst, hi, lo } => rule(
            u64::from(w(hi)) + u64::from(w(lo)) == u64::from(width(dst)),
            format!("the parts have {} and {} bits, the destination {}", w(hi), w(lo), width(dst)),
        ),
        Op::Slice { dst, a, hi, lo } => {
            slice(w(a), *hi, *lo)?;
            want("the destination", width(dst), hi - lo + 1)
        }
        Op::SetSlice { dst, hi, lo, a } => {
            slice(width(dst), *hi, *lo)?;
            want("the source", w(a), hi - lo + 1)
        }
        Op::Select { dst, cond, then, other } => {
            want("the condition", w(cond), 1)?;
            want("the first choice", w(then), width(dst))?;
            want("the second choice", w(other), width(dst))
        }
        Op::SetValid { .. } | Op::SetInvalid { .. } | Op::Mark(_) | Op::Log { .. } => Ok(()),
        Op::Charge { steps } => {
            let range = 1..=crate::STEPS_MAX + 1;
            rule(range.contains(&(*steps).into()), format!("a round costs 1 to {} steps", range.end()))
        }
        Op::HasBits { dst, .. } => {
            only_in(StageKind::Parser, stage)?;
            want("the destination", width(dst), 1)
        }
        Op::Extract { header, varbit_bits } => {
            only_in(StageKind::Parser, stage)?;
            let has_varbit = p.headers[header.index()].fields.iter().any(|f| f.varbit_length.is_some());
            rule(has_varbit == varbit_bits.is_some(), "an amount goes with a varbit field, and only with one")
        }
        Op::Advance { .. } | Op::Lookahead { .. } => only_in(StageKind::Parser, stage),
        Op::Consumed { dst } => want("the destination", width(dst), 32),
        Op::Emit { .. } | Op::Truncate { .. } => only_in(StageKind::Deparser, stage),
        Op::Apply { .. } => apply(p, stage, op),
        Op::ActionParam { dst, table, action, param, data } => {
            let table = &p.tables[table.index()];
            let params = table
                .actions
                .get(*action as usize)
                .and_then(|a| p.actions.get(a.action.index()))
                .map(|a| a.params.as_slice());
            let Some((_, param_width)) = params.and_then(|params| params.get(*param as usize)) else {
                return Err(("E0720", format!("table `{}` has no such action or parameter", table.name)));
            };
            want("the handle", width(data), 64)?;
            want("the destination", width(dst), *param_width)
        }
        Op::AddEntry { .. } => add_entry(p, stage, op),
        Op::RestartTimer { table, hit, entry, expire } => {
            only_in(StageKind::Control, stage)?;
            let table = &p.tables[table.index()];
            let timed = table.dynamic.as_ref().is_some_and(|d| d.expiry != Expiry::Never);
            rule(timed, format!("entries of `{}` do not expire", table.name))?;
            want("the condition", w(hit), 1)?;
            expire.iter().try_for_each(|expire| at_most("the expire time", w(expire), 32))?;
            want("the handle", width(entry), 64)
        }
        Op::Count { counter, index, bytes } => {
            rule(matches!(kind(p, *counter), ExternKind::Counter { direct: None, .. }), "this is not a counter array")?;
            given_length(p, bytes)?;
            at_most("the index", w(index), 64)
        }
        Op::CountDirect { counter, hit, entry, bytes } => {
            given_length(p, bytes)?;
            rule(
                matches!(kind(p, *counter), ExternKind::Counter { direct: Some(_), .. }),
                "this is not a direct counter",
            )?;
            want("the condition", w(hit), 1)?;
            want("the handle", width(entry), 64)
        }
        Op::Meter { meter, dst, index, before, bytes } => {
            given_length(p, bytes)?;
            before.iter().try_for_each(|before| want("the colour before", w(before), 2))?;
            rule(matches!(kind(p, *meter), ExternKind::Meter { direct: None, .. }), "this is not a meter array")?;
            rule(width(dst) >= 2, "a colour has 2 bits or more")?;
            at_most("the index", w(index), 64)
        }
        Op::MeterDirect { meter, dst, hit, entry, before, bytes } => {
            given_length(p, bytes)?;
            before.iter().try_for_each(|before| want("the colour before", w(before), 2))?;
            rule(matches!(kind(p, *meter), ExternKind::Meter { direct: Some(_), .. }), "this is not a direct meter")?;
            rule(width(dst) >= 2, "a colour has 2 bits or more")?;
            want("the condition", w(hit), 1)?;
            want("the handle", width(entry), 64)
        }
        Op::RegisterRead { register, dst, index, peek } => {
            want("the destination", width(dst), register_width(p, *register)?)?;
            rule(!*peek || width(dst) <= 64, "a cell that is peeked at has 64 bits at most")?;
            at_most("the index", w(index), 64)
        }
        Op::RegisterUpdate { register, dst, index, src, .. } => {
            want("the destination", width(dst), register_width(p, *register)?)?;
            want("the source", w(src), width(dst))?;
            rule(width(dst) <= 64, "a cell that is updated in one step has 64 bits at most")?;
            at_most("the index", w(index), 64)
        }
        Op::RegisterWrite { register, index, src } => {
            want("the source", w(src), register_width(p, *register)?)?;
            at_most("the index", w(index), 64)
        }
        Op::Hash { algorithm, dst, base, data, varbits, .. } => {
            if let HashAlgorithm::Calculation(id) = algorithm {
                rule(id.index() < p.calculations.len(), format!("there is no calculation {}", id.0))?;
            }
            want("the base", w(base), width(dst))?;
            let mut seen = HashSet::new();
            varbits.iter().try_for_each(|(operand, length)| {
                rule((*operand as usize) < data.len(), format!("there is no operand {operand}"))?;
                rule(seen.insert(*operand), format!("operand {operand} has two lengths"))?;
                want("the length of a varbit", width(length), 32)
            })
        }
        Op::Random { dst, low, high } => {
            at_most("the destination", width(dst), 64)?;
            want("the lower end", w(low), width(dst))?;
            want("the upper end", w(high), width(dst))
        }
        Op::Digest { digest, data } => {
            let ExternKind::Digest { fields } = kind(p, *digest) else {
                return Err(("E0728", "this is not a digest".into()));
            };
            let fits = data.iter().map(w).eq(fields.iter().map(|(_, width)| *width));
            rule(fits, "the data do not fit the digest's fields")
        }
        Op::Assert { cond, .. } => want("the condition", w(cond), 1),
        Op::Unresolved { results, .. } => {
            let mut seen = HashSet::new();
            results.iter().try_for_each(|slot| {
                let slot_info = &p.slots[slot.index()];
                let free = matches!(slot_info.kind, SlotKind::Temp | SlotKind::Local | SlotKind::Metadata);
                rule(free, format!("the result `{}` is part of a header", slot_info.name))?;
                rule(seen.insert(*slot), format!("the result `{}` is there twice", slot_info.name))
            })
        }
    }
}

fn apply(p: &Program, stage: StageKind, op: &Op) -> Check {
    let Op::Apply { table, keys, selector, hit, action, entry, data } = op else { return Ok(()) };
    let table = &p.tables[table.index()];
    only_in(if table.value_set { StageKind::Parser } else { StageKind::Control }, stage)?;
    let widths = table.keys.iter().map(|k| k.width);
    rule(keys.iter().map(|k| k.width(p)).eq(widths), format!("the keys do not fit those of `{}`", table.name))?;
    let selects = table
        .implementation
        .and_then(|e| p.externs.get(e.index()))
        .is_some_and(|e| matches!(e.kind, ExternKind::ActionSelector { .. }));
    rule(selector.is_empty() || selects, "the table has no action selector")?;
    want("the hit flag", p.width(*hit), 1)?;
    want("the action", p.width(*action), 32)?;
    want("the entry handle", p.width(*entry), 64)?;
    want("the data handle", p.width(*data), 64)?;
    let distinct: HashSet<_> = [hit, action, entry, data].into_iter().collect();
    rule(distinct.len() == 4, "the destinations are not four different slots")
}

fn add_entry(p: &Program, stage: StageKind, op: &Op) -> Check {
    let Op::AddEntry { table, keys, action, args, expire, dst, .. } = op else { return Ok(()) };
    only_in(StageKind::Control, stage)?;
    let table = &p.tables[table.index()];
    let may_add = table.dynamic.as_ref().is_some_and(|d| d.add_on_miss);
    rule(may_add, format!("packets do not add entries to `{}`", table.name))?;
    let widths = table.keys.iter().map(|k| k.width);
    rule(keys.iter().map(|k| k.width(p)).eq(widths), format!("the keys do not fit those of `{}`", table.name))?;
    let listed = table.actions.get(*action as usize).filter(|a| !a.default_only);
    let Some(params) = listed.and_then(|a| p.actions.get(a.action.index())).map(|a| &a.params) else {
        return Err(("E0720", format!("entries of table `{}` have no action {action}", table.name)));
    };
    let fits = args.iter().map(|a| a.width(p)).eq(params.iter().map(|(_, width)| *width));
    rule(fits, "the arguments do not fit the action's parameters")?;
    at_most("the expire time", expire.width(p), 32)?;
    want("the destination", p.width(*dst), 1)
}

fn slice(width: u32, hi: u32, lo: u32) -> Check {
    rule(lo <= hi && hi < width, format!("bits {hi} to {lo} of {width}"))
}

fn kind(p: &Program, ext: ExternId) -> &ExternKind {
    &p.externs[ext.index()].kind
}

fn register_width(p: &Program, ext: ExternId) -> Check<u32> {
    match kind(p, ext) {
        ExternKind::Register { width, .. } => Ok(*width),
        _ => Err(("E0728", "this is not a register".into())),
    }
}

fn terminator(p: &Program, stage: &Stage, term: &Terminator) -> Check {
    let mut targets = Ok(());
    term.for_each_target(|to| {
        if to.index() >= stage.blocks.len() {
            targets = Err(("E0729", format!("block b{} does not exist", to.0)));
        }
    });
    targets?;
    if let Some(Operand::Slot(s)) = term.operand() {
        in_range("slot", s.index(), p.slots.len())?;
    }
    match term {
        Terminator::Jump(_) | Terminator::Next | Terminator::Finish(Fate::Replicate(_)) => Ok(()),
        Terminator::Branch { cond, .. } => want("the condition", cond.width(p), 1),
        Terminator::Switch { on, cases, .. } => {
            let mut seen = HashSet::new();
            cases.iter().try_for_each(|(value, _)| {
                want("a case", value.width(), on.width(p))?;
                if seen.insert(value) { Ok(()) } else { Err(("E0729", format!("case {value} is there twice"))) }
            })
        }
        Terminator::Finish(Fate::Again { list, .. }) => match list {
            Some(list) if !p.field_lists.iter().any(|(number, _)| number == list) => {
                Err(("E0726", format!("there is no field list {list}")))
            }
            _ => Ok(()),
        },
        Terminator::Finish(Fate::Drop(reason)) => in_range("drop reason", *reason as usize, p.drops.len()),
        Terminator::Finish(Fate::Send(port)) => at_most("the port", port.width(p), 64),
        Terminator::Finish(Fate::Multicast(group)) => at_most("the group", group.width(p), 32),
    }
}
