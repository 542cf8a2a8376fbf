//! Checks of the description for OpenFlow flow processors ([`OpenFlow`]).

use super::Verifier;
use crate::program::{MatchField, OpenFlow, SlotKind, StageKind};
use base::ids::SlotId;
use std::collections::HashSet;

/// Width of the widest match field in bits.
const FIELD_BITS_MAX: u32 = 128;

/// Checks the description. Runs after the stages have been checked.
pub(super) fn check(v: &mut Verifier<'_>, openflow: &OpenFlow) {
    v.unique("match fields", openflow.fields.iter().map(|f| f.name.as_str()));
    let mut numbers = HashSet::new();
    for field in &openflow.fields {
        for number in &field.numbers {
            if !numbers.insert(*number) {
                let (class, place, _) = number;
                v.error("E0732", format!("match field `{}` is not the first {class:#x}:{place}", field.name));
            }
        }
        check_field(v, openflow, field);
    }
    for (what, slot) in [("reparse", openflow.reparse), ("ttl_exceeded", openflow.ttl_exceeded)] {
        if let Some(slot) = slot {
            check_slot(v, what, slot, |width| width == 1);
        }
    }
    let Some((stage, table)) = openflow.actions else { return };
    match v.program.stages.get(stage.index()) {
        None => v.error("E0720", format!("the header actions are stage ?{}, which does not exist", stage.0)),
        Some(s) if s.kind != StageKind::Control => {
            v.error("E0732", format!("the header actions are stage `{}`, which is not a control", s.name));
        }
        Some(_) => {}
    }
    if v.program.tables.get(table.index()).is_none() {
        v.error("E0720", format!("the header actions are those of table ?{}, which does not exist", table.0));
    }
}

fn check_field(v: &mut Verifier<'_>, openflow: &OpenFlow, field: &MatchField) {
    let what = format!("match field `{}`", field.name);
    let mut bits = 0u32;
    for part in &field.parts {
        bits = bits.saturating_add(part.width);
        let end = part.lo.checked_add(part.width);
        check_slot(v, &what, part.slot, |width| part.width > 0 && end.is_some_and(|end| end <= width));
    }
    if !(1..=FIELD_BITS_MAX).contains(&bits) {
        v.error("E0732", format!("{what} has {bits} bits; 1 to {FIELD_BITS_MAX} are possible"));
    }
    if field.numbers.is_empty() {
        v.error("E0732", format!("{what} has no number"));
    }
    for (other, ..) in &field.prerequisites {
        if *other as usize >= openflow.fields.len() {
            v.error("E0720", format!("{what} needs match field ?{other}, which does not exist"));
        }
    }
}

fn check_slot(v: &mut Verifier<'_>, what: &str, slot: SlotId, fits: impl Fn(u32) -> bool) {
    match v.program.slots.get(slot.index()) {
        None => v.error("E0720", format!("{what} has slot ?{}, which does not exist", slot.0)),
        Some(s) if s.kind == SlotKind::Temp => v.error("E0732", format!("{what} is the temporary `{}`", s.name)),
        Some(s) if !fits(s.width) => {
            v.error("E0732", format!("{what} takes bits that slot `{}` does not have", s.name));
        }
        Some(_) => {}
    }
}
