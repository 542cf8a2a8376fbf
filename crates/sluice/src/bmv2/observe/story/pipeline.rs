//! Narrates the steps of a pipeline: conditions, tables, statements and externs.

use super::super::conditions::Whole;
use super::super::events::EventKind;
use super::super::line::Line;
use super::super::numbers::{self, Kind};
use super::{Run, plain_hex};
use base::entry::{KeyMatch, TableEntry};
use base::{Bits, Span};
use interp::trace::{Event, TraceStep, Use};

/// Pipelines.
impl Run<'_> {
    pub(super) fn pipeline_step(&mut self, step: &TraceStep) {
        self.note(&step.event);
        match &step.event {
            // The IR sets a variable declared without a value to zero, which is no statement.
            Event::Change { old, new, .. } if old == new && !self.assigns(step.span) => {}
            Event::Change { .. } | Event::Valid { .. } => self.primitive(step.span),
            Event::Condition { value, .. } if !self.narrator.says => self.condition(step.span, *value),
            Event::Statement => self.statement(step.span),
            Event::Exit => {
                self.primitive(step.span);
                self.debug("Packet is marked for exit, interrupting pipeline".to_string());
            }
            Event::OutOfRange { stack, size } => {
                let at =
                    format!("Attempted to access header stack '{stack}' with size {size} at an out-of-bounds index.");
                self.error(format!("{at}  It reads as zeros, and is not written."));
            }
            Event::Decision { name, holds } => {
                let id = self.id(Kind::Condition, name);
                self.event(EventKind::ConditionEval, vec![id, i32::from(*holds)]);
                let (place, text) = self.source(step.span).unwrap_or_default();
                let place = if place.is_empty() { place } else { place + " " };
                let text = if text.is_empty() { name } else { &text };
                self.trace(format!("{place}Condition \"{text}\" ({name}) is {holds}"));
            }
            Event::Apply { table, keys, entry, matched, member, empty_group, action, args } => {
                self.table.clone_from(table);
                self.statement = None;
                self.apply(table, keys);
                if let Some((member, Some(group))) = member {
                    self.debug(format!("Choosing member {member} from group {group}"));
                }
                if *empty_group {
                    self.error(format!("Lookup in table '{table}' yielded empty group"));
                }
                self.found(table, keys, entry.as_deref(), matched.as_deref());
                let args: String = args.iter().map(|(_, value)| format!("{},", short_hex(value))).collect();
                self.debug(format!("Action entry is {action} - {args}"));
                if !self.narrator.marked.contains(action) {
                    self.action(Span::NONE, action);
                }
            }
            Event::Action(name) => self.action(step.span, name),
            Event::Direct { table, action } => {
                self.table.clone_from(table);
                self.statement = None;
                self.apply(table, &[]);
                self.found(table, &[], None, None);
                self.debug(format!("Action entry is {action} - "));
            }
            Event::Extern { name, what } => {
                self.primitive(step.span);
                self.used(name, what);
            }
            Event::Log(text) => {
                self.primitive(step.span);
                self.line(Line::info(text.clone()).of_switch());
            }
            Event::AssertFailed(text) => self.error(format!("Assert failed: {text}")),
            _ => {}
        }
    }

    /// Narrates the beginning of an action.
    fn action(&mut self, span: Span, name: &str) {
        let id = self.narrator.numbers.action(&self.table, name);
        self.event(EventKind::ActionExecute, vec![id]);
        let place = self.place(span);
        self.trace(format!("{place}Action {name}"));
    }

    pub(super) fn statement(&mut self, span: Span) {
        let text = match self.source(span) {
            Some((place, text)) => format!("{place} Primitive {text}"),
            None => "Primitive (no source info)".to_string(),
        };
        self.trace(text);
    }

    /// Whether the source text at a position is an assignment.
    fn assigns(&self, span: Span) -> bool {
        self.packet.sources.text(span).is_some_and(|text| text.contains('='))
    }

    /// Narrates a statement, once even if it changes several slots.
    fn primitive(&mut self, span: Span) {
        if self.narrator.says || self.statement.replace(span) == Some(span) {
            return;
        }
        if let Some((place, text)) = self.source(span) {
            self.trace(format!("{place} Primitive {text}"));
        }
    }

    /// Narrates an operand of a condition, for programs from source; the condition follows once its value is known.
    /// Conditions of JSON have marks instead.
    fn condition(&mut self, part: Span, value: bool) {
        let sources = self.packet.sources;
        let Some(text) = interp::trace::condition_text(sources, part) else { return };
        let within = |whole: &Whole| {
            whole.span.file == part.file && whole.span.start <= part.start && part.end <= whole.span.end
        };
        let whole = self.whole.take().filter(within).or_else(|| Whole::around(sources, part));
        let Some(mut whole) = whole else { return self.decision(part, &text, value) };
        match whole.take(sources, part, value) {
            Some(value) => {
                let words: Vec<&str> = sources.text(whole.span).unwrap_or_default().split_whitespace().collect();
                self.decision(whole.span, &words.join(" "), value);
            }
            None => self.whole = Some(whole),
        }
    }

    fn decision(&mut self, span: Span, text: &str, value: bool) {
        let place = self.place(span);
        let id = self.narrator.numbers.add(Kind::Condition, &format!("{place}{text}"));
        self.event(EventKind::ConditionEval, vec![id, i32::from(value)]);
        self.trace(format!("{place}Condition \"{text}\" (node_{id}) is {value}"));
    }

    /// Narrates the beginning of a lookup.
    fn apply(&mut self, table: &str, keys: &[(String, Bits)]) {
        self.trace(format!("Applying table '{table}'"));
        let width = name_width(keys);
        let keys_text: String =
            keys.iter().map(|(name, value)| format!("* {name:<width$}: {}\n", plain_hex(value))).collect();
        self.debug(format!("Looking up key:\n{keys_text}"));
    }

    /// Narrates a hit, with its entry, or a miss.
    fn found(&mut self, table: &str, keys: &[(String, Bits)], entry: Option<&str>, matched: Option<&TableEntry>) {
        let id = self.id(Kind::Table, table);
        let Some(matched) = matched else {
            self.event(EventKind::TableMiss, vec![id]);
            return self.debug(format!("Table '{table}': miss"));
        };
        let handle = (self.packet.handle_of)(table, matched);
        self.event(EventKind::TableHit, vec![id, handle.unwrap_or(numbers::NONE)]);
        let Some(handle) = handle else {
            return self.debug(format!("Table '{table}': hit with entry {}", entry.unwrap_or_default()));
        };
        self.debug(format!("Table '{table}': hit with handle {handle}"));
        let width = name_width(keys);
        let mut dump = format!("Dumping entry {handle}\nMatch key:\n");
        for ((name, _), key) in keys.iter().zip(&matched.key) {
            dump += &format!("* {name:<width$}: {}\n", key_text(key));
        }
        if matched
            .key
            .iter()
            .any(|key| matches!(key, KeyMatch::Ternary { .. } | KeyMatch::Range { .. } | KeyMatch::Optional(_)))
        {
            dump += &format!("Priority: {}\n", i32::MAX - matched.priority);
        }
        self.debug(dump);
    }

    fn used(&mut self, name: &str, what: &Use) {
        let (kind, size) = self.narrator.sizes.get(name).copied().unwrap_or(("", u64::MAX));
        let out = |index: &u64, verb: &str, left: &str| {
            let at = format!("Attempted to {verb} {kind} '{name}' with size {size} at out-of-bounds index {index}.");
            Line::error(format!("{at}  {left}"))
        };
        let line = match what {
            Use::Count { index } if *index >= size => out(index, "update", "No counters were updated."),
            Use::Count { index } => Line::trace(format!("Updated counter '{name}' at index {index}")),
            Use::Meter { index, .. } if *index >= size => {
                out(index, "update", "No meters were updated, and neither was dest field.")
            }
            Use::Meter { index, colour } => {
                self.debug(format!("Executing meter {name}[{index}]"));
                Line::trace(format!(
                    "Updated meter '{name}' at index {index}, assigning dest field the color result {}",
                    *colour as u8
                ))
            }
            Use::Read { index, .. } if *index >= size => out(index, "read", "Dest field was not updated."),
            Use::Read { index, value } => {
                Line::trace(format!("Read register '{name}' at index {index} read value {}", value.to_biguint()))
            }
            Use::Write { index, .. } if *index >= size => {
                out(index, "write", "No register array elements were updated.")
            }
            Use::Write { index, value } => {
                Line::trace(format!("Wrote register '{name}' at index {index} with value {}", value.to_biguint()))
            }
            Use::Hash { base, max: Some(max), value, .. } => {
                let [base, max, value] = [base, max, value].map(Bits::to_biguint);
                Line::trace(format!("hash(base={base}, max={max}) = {value}"))
            }
            Use::Hash { .. } => return,
            Use::Random { low, high, value } => Line::trace(format!("random(lo={low}, hi={high}) = {value}")),
            Use::Digest => {
                let id = self.id(Kind::LearnList, name);
                Line::trace(format!("Learning sample for list id {id}")).of_switch()
            }
            Use::Other(text) => Line::trace(format!("{name}: {text}")),
        };
        self.line(line);
    }
}

/// The minimum width of key names, in characters.
const NAME_WIDTH: usize = 20;

fn name_width(keys: &[(String, Bits)]) -> usize {
    keys.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(NAME_WIDTH)
}

/// Returns one field of an entry's key: its match kind, padded to ten columns, and its values.
fn key_text(key: &KeyMatch) -> String {
    match key {
        KeyMatch::Exact(value) => format!("{:<10}{}", "EXACT", plain_hex(value)),
        KeyMatch::Lpm { value, prefix_len } => format!("{:<10}{}/{prefix_len}", "LPM", plain_hex(value)),
        KeyMatch::Ternary { value, mask } => format!("{:<10}{} &&& {}", "TERNARY", plain_hex(value), plain_hex(mask)),
        KeyMatch::Range { low, high } => format!("{:<10}{} -> {}", "RANGE", plain_hex(low), plain_hex(high)),
        KeyMatch::Optional(Some(value)) => {
            format!("{:<10}{} &&& {}", "TERNARY", plain_hex(value), plain_hex(&Bits::ones(value.width())))
        }
        KeyMatch::Optional(None) => format!("{:<10}any", "TERNARY"),
    }
}

fn short_hex(value: &Bits) -> String {
    let hex = plain_hex(value);
    match hex.trim_start_matches('0') {
        "" => "0".to_string(),
        digits => digits.to_string(),
    }
}
