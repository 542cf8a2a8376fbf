//! Readable traces of packets through the tables, and readable megaflows.
//!
//! Fields, values and actions are written as in ovs-fields(7) and ovs-actions(7) (`openflow::text`).

use crate::effects::Effect;
use crate::flow::Flow;
use crate::key::{Consulted, Layout, Place};
use crate::processor::Megaflow;
use crate::translate::{Shared, Subject, Translation};
use openflow::{FieldId, Match, text};
use std::fmt::Write;

/// A match, with field names.
pub fn matching(layout: &Layout, matching: &Match) -> String {
    let text = text::matching(matching, layout.fields());
    if text.is_empty() { "any".to_string() } else { text }
}

/// A flow: cookie, priority, match, instructions.
pub(crate) fn flow(layout: &Layout, flow: &Flow) -> String {
    let Flow { priority, cookie, .. } = flow;
    let (matching, fields) = (matching(layout, &flow.matching), layout.fields());
    format!("cookie={cookie:#x}, priority={priority}, {matching}: {}", text::instructions(&flow.instructions, fields))
}

/// Converts bits of words (word, mask, value) to fields. Also returns the number of bits that belong to no field.
/// Bits that several fields share are attributed to one whose prerequisites hold.
fn fields_of(layout: &Layout, words: &[(u32, u64, u64)]) -> (Match, u32) {
    let mut left = Consulted::new(layout.words());
    let mut record = vec![0; layout.words()];
    for (word, mask, value) in words {
        left.add(*word, *mask);
        record[*word as usize] = *value;
    }
    let mut found = Match::any();
    let mut open: Vec<FieldId> = layout.fields().iter().map(|(id, _)| id).collect();
    loop {
        let before = open.len();
        let (now, later): (Vec<FieldId>, Vec<FieldId>) =
            open.into_iter().partition(|id| found.provides(*id, layout.fields()));
        // The prerequisites of none of the remaining fields hold: any of them will do.
        let is_last = later.len() == before;
        for id in if is_last { &later } else { &now } {
            let (mut mask, mut value) = (0, 0);
            for part in &layout.place(*id).parts {
                let bits = left.mask(part.word) & part.mask();
                left.remove(part.word, bits);
                mask |= u128::from(bits >> part.shift) << part.at;
                value |= u128::from((record[part.word as usize] & bits) >> part.shift) << part.at;
            }
            found.add(*id, value, mask);
        }
        if is_last {
            break;
        }
        open = later;
    }
    (found, left.iter().map(|(_, mask)| mask.count_ones()).sum())
}

fn with_rest(text: String, rest: u32) -> String {
    let comma = if text.is_empty() || rest == 0 { "" } else { "," };
    if rest == 0 { text } else { format!("{text}{comma}{rest} bits of which headers there are") }
}

/// The consulted bits as fields: a megaflow's mask.
pub fn mask(layout: &Layout, consulted: &[(u32, u64)]) -> String {
    let words: Vec<_> = consulted.iter().map(|(word, mask)| (*word, *mask, 0)).collect();
    let (found, rest) = fields_of(layout, &words);
    let mut text = String::new();
    for term in found.ordered_terms(layout.fields()) {
        let field = layout.fields().get(term.field);
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{}", field.name);
        if term.mask != field.full() {
            let _ = write!(text, "/{:#x}", term.mask);
        }
    }
    with_rest(text, rest)
}

/// The consulted bits as fields with their values in a record: a megaflow's match.
pub fn key(layout: &Layout, words: &[(u32, u64)], record: &[u64]) -> String {
    let at = |word: u32| record.get(word as usize).copied().unwrap_or(0);
    let words: Vec<_> = words.iter().map(|(word, mask)| (*word, *mask, at(*word) & mask)).collect();
    let (found, rest) = fields_of(layout, &words);
    let text = with_rest(text::matching(&found, layout.fields()), rest);
    if text.is_empty() { "any".to_string() } else { text }
}

/// A megaflow's match, with the frame's length and the start.
pub fn megaflow(layout: &Layout, megaflow: &Megaflow) -> String {
    let mut text = key(layout, &megaflow.mask.words, &megaflow.record);
    if megaflow.mask.length != 0 {
        let _ = write!(text, ",frame length={:#x}/{:#x}", megaflow.length, megaflow.mask.length);
    }
    if megaflow.start != 0 {
        let _ = write!(text, ",goes on at {}", megaflow.start);
    }
    text
}

/// The path of a packet, line by line: tables, flows, groups, outputs. Nothing is learned, counted or sent.
pub fn path(shared: &Shared, subject: Subject<'_>) -> (Translation, Vec<String>) {
    crate::translate::trace(shared, subject)
}

/// The path of a packet, followed by the mask of its megaflow and its effects.
pub fn trace(shared: &Shared, subject: Subject<'_>) -> Vec<String> {
    let (translation, mut lines) = path(shared, subject);
    let layout = shared.control.layout();
    lines.push(format!("megaflow: {}", mask(layout, &translation.consulted)));
    if translation.length != 0 {
        lines.push(format!("frame length: {:#x}", translation.length));
    }
    lines.push(format!("effects: {}", effects(shared, &translation)));
    lines
}

/// The effects of a translation, such as `set ipv4_dst=10.0.0.1, to port 2` or `drop`.
pub fn effects(shared: &Shared, translation: &Translation) -> String {
    if let Some(error) = &translation.error {
        return format!("drop ({error})");
    }
    if !translation.effects.has_outputs {
        return "drop".to_string();
    }
    let layout = shared.control.layout();
    let mut steps: Vec<String> = Vec::new();
    let mut written: Vec<(u32, u64, u64)> = Vec::new();
    for effect in &translation.effects.list {
        if let Effect::Write { word, mask, value } = effect {
            match written.iter_mut().find(|(other, ..)| other == word) {
                Some((_, before, bits)) => (*before, *bits) = (*before | mask, *bits & !mask | value),
                None => written.push((*word, *mask, *value)),
            }
            continue;
        }
        if !written.is_empty() {
            let (found, rest) = fields_of(layout, &written);
            steps.push(format!("set {}", with_rest(text::matching(&found, layout.fields()), rest)));
            written.clear();
        }
        steps.extend(step(shared, effect));
    }
    steps.join(", ")
}

fn place(layout: &Layout, place: &Place) -> String {
    let found = layout.fields().iter().find(|(id, _)| layout.place(*id) == place);
    found.map_or_else(|| format!("{} bits", place.width), |(_, field)| field.name.clone())
}

fn step(shared: &Shared, effect: &Effect) -> Option<String> {
    let layout = shared.control.layout();
    Some(match effect {
        Effect::Move(places) => format!("move {} to {}", place(layout, &places.0), place(layout, &places.1)),
        Effect::Run { action, args, .. } => {
            let args: Vec<String> = args.iter().map(|arg| format!("{arg:#x}")).collect();
            format!("{}({})", shared.vm.name(*action), args.join(","))
        }
        Effect::Save(_) => "copy {".to_string(),
        Effect::Restore(_) => "}".to_string(),
        Effect::Output { port, queue: 0, .. } => format!("to port {port}"),
        Effect::Output { port, queue, .. } => format!("to port {port}, queue {queue}"),
        Effect::Capture { what, .. } => format!("to controllers of id {}", what.controller),
        Effect::Meter { meter, .. } => format!("meter {}", meter.id),
        Effect::Again { rewrites: true, .. } => "run a program and parse anew".to_string(),
        Effect::Again { .. } => "parse anew".to_string(),
        Effect::Write { .. } | Effect::Nothing => return None,
    })
}
