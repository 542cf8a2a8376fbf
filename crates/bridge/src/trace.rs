//! A packet's way through the tables, for people.

use crate::flow::Flow;
use crate::key::{Consulted, Layout};
use crate::translate::{Shared, Subject, Translation};
use openflow::Match;
use std::fmt::Write;

/// A match, with names and hexadecimal values.
pub fn matching(layout: &Layout, matching: &Match) -> String {
    let mut text = String::new();
    for term in matching.terms() {
        let field = layout.fields().get(term.field);
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{}={:#x}", field.name, term.value);
        if term.mask != field.full() {
            let _ = write!(text, "/{:#x}", term.mask);
        }
    }
    if text.is_empty() { "any".to_string() } else { text }
}

/// A flow's match and what it does.
pub(crate) fn flow(layout: &Layout, flow: &Flow) -> String {
    let mut text =
        format!("priority {}, {}, cookie {:#x}", flow.priority, matching(layout, &flow.matching), flow.cookie);
    for action in &flow.instructions.apply {
        let _ = write!(text, ", {action:?}");
    }
    text
}

/// The fields of which bits were consulted: a megaflow's mask.
pub fn mask(layout: &Layout, consulted: &Consulted) -> String {
    let mut text = String::new();
    let mut seen = Consulted::new(layout.words());
    for (id, field) in layout.fields().iter() {
        let mut mask = 0;
        for part in &layout.place(id).parts {
            let bits = consulted.mask(part.word) & part.mask() & !seen.mask(part.word);
            seen.add(part.word, bits);
            mask |= u128::from(bits >> part.shift) << part.at;
        }
        if mask != 0 {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{comma}{}", field.name);
            if mask != field.full() {
                let _ = write!(text, "/{mask:#x}");
            }
        }
    }
    let others: u32 = consulted.iter().map(|(word, mask)| (mask & !seen.mask(word)).count_ones()).sum();
    if others > 0 {
        let _ = write!(text, "{}{others} bits that no field has", if text.is_empty() { "" } else { "," });
    }
    text
}

/// What a packet's way is, line by line: tables, flows, groups, outputs, and at last the mask of its megaflow and its effects.
/// Nothing is learned, counted or sent.
pub fn trace(shared: &Shared, subject: Subject<'_>) -> Vec<String> {
    let (translation, mut lines) = crate::translate::trace(shared, subject);
    let layout = shared.control.layout();
    lines.push(format!("megaflow: {}", mask(layout, &translation.consulted)));
    if translation.length != 0 {
        lines.push(format!("frame length: {:#x}", translation.length));
    }
    lines.extend(summary(&translation));
    lines
}

fn summary(translation: &Translation) -> Vec<String> {
    if let Some(error) = &translation.error {
        return vec![format!("dropped: {error}")];
    }
    if !translation.effects.has_outputs {
        return vec!["dropped".to_string()];
    }
    translation.effects.list.iter().filter_map(step).map(|step| format!("effect: {step}")).collect()
}

fn step(effect: &crate::effects::Effect) -> Option<String> {
    use crate::effects::Effect;
    Some(match effect {
        Effect::Write { word, mask, value } => format!("word {word} = {value:#x}/{mask:#x}"),
        Effect::Move(_) => "move".to_string(),
        Effect::Run { action, args, .. } => format!("header action {action} {args:x?}"),
        Effect::Save(_) => "copy {".to_string(),
        Effect::Restore(_) => "}".to_string(),
        Effect::Output { port, queue, is_modified, .. } => {
            format!("to port {port}, queue {queue}{}", if *is_modified { ", changed" } else { "" })
        }
        Effect::Capture { what, .. } => format!("to controllers of id {}", what.controller),
        Effect::Meter { meter, .. } => format!("meter {}", meter.id),
        Effect::Again { start, .. } => format!("parse anew, at {start}"),
        Effect::Nothing => return None,
    })
}
