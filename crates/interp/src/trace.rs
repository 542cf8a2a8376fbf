//! The trace of a packet's run, step by step, for `sluice trace` and for finding where two engines differ.
//!
//! Steps contain only names and values, no ids, so they can be shown without the program. Temporaries and handles,
//! which are the compiler's, are left out. The text form groups steps by the P4 source line that they came from.
//!
//! Tests: `tests/trace.rs`.

use crate::meter::Colour;
use base::entry::TableEntry;
use base::{Bits, SourceMap, Span};
use std::fmt::{self, Write};

/// All steps of one packet, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// The steps.
    pub steps: Vec<TraceStep>,
    /// The egress port at the start of the run, if the program reads it: identifies copies in egress.
    pub port: Option<u64>,
    /// The replication instance (rid) at the start of the run, if the program has it.
    pub rid: Option<u64>,
}

/// A step and its source position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceStep {
    /// Source position.
    pub span: Span,
    /// What happened.
    pub event: Event,
}

/// What a step did.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named by the variant's text")]
pub enum Event {
    /// A stage begins; `kind` is the keyword of its kind.
    Stage { name: String, kind: &'static str },
    /// A parser state is entered.
    State(String),
    /// A control or sub-control is entered.
    Block(String),
    /// An action's body begins.
    Action(String),
    /// The parser checked that `bits` bits remain.
    HasBits { bits: u64, there: bool },
    /// A header was extracted, starting at byte `offset`.
    Extract { header: String, offset: u64, fields: Vec<(String, Bits)> },
    /// The cursor moved.
    Advance { bits: u64 },
    /// Bits were read ahead of the cursor.
    Lookahead { offset: u64, value: Bits },
    /// A condition, written by the author or generated: its name if it has one, its value, and the name of the state or
    /// error to which it leads, if it has one.
    Condition { on: Option<String>, value: bool, to: String },
    /// A compound condition has been evaluated completely.
    Decision { name: String, holds: bool },
    /// A primitive operation of an action begins.
    Statement,
    /// A table that always runs the same action is applied.
    Direct { table: String, action: String },
    /// The control ends by an `exit` statement.
    Exit,
    /// An index of a header stack is out of range.
    OutOfRange { stack: String, size: u64 },
    /// A `select` or `switch`: the operand, its value, and the name of the target if it has one.
    Select { on: String, value: Bits, to: String },
    /// A jump to a named target whose condition cannot be shown, or without condition.
    To(String),
    /// A table lookup.
    Apply {
        table: String,
        keys: Vec<(String, Bits)>,
        /// The matched entry's key and priority; `None` for a miss.
        entry: Option<String>,
        /// The entry itself.
        matched: Option<Box<TableEntry>>,
        /// The member that ran, and the group from which it was selected.
        member: Option<(u32, Option<u32>)>,
        /// Whether the entry or the default entry refers to a group without members.
        empty_group: bool,
        action: String,
        args: Vec<(String, Bits)>,
    },
    /// A variable or field was written. If the value is unchanged, the step is not shown.
    Change { slot: String, old: Bits, new: Bits },
    /// A header became valid or invalid.
    Valid { header: String, valid: bool },
    /// A valid header was emitted.
    Emit { header: String, bytes: Vec<u8> },
    /// A counter, meter, register, hash or another extern was used.
    Extern { name: String, what: Use },
    /// The architecture's verification or update of a checksum begins, if its condition holds.
    Checksum { name: String, update: bool },
    /// A verified checksum: the computed value, and the one in the packet.
    Verified { computed: Bits, actual: Bits },
    /// A log line.
    Log(String),
    /// An assertion failed.
    AssertFailed(String),
    /// The fate of the packet in this entry point.
    Fate(String),
}

/// How an extern was used.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named by the variant's text")]
pub enum Use {
    /// A counter cell was incremented.
    Count { index: u64 },
    /// A meter cell was executed.
    Meter { index: u64, colour: Colour },
    /// A register cell was read.
    Read { index: u64, value: Bits },
    /// A register cell was written.
    Write { index: u64, value: Bits },
    /// A hash; `value` is the result after scaling by `base` and `max`.
    Hash { hash: u64, base: Bits, max: Option<Bits>, value: Bits },
    /// A random number.
    Random { low: u64, high: u64, value: u64 },
    /// A digest for the controller.
    Digest,
    /// Anything else, as text.
    Other(String),
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Use::Count { index } => write!(f, "count cell {index}"),
            Use::Meter { index, colour } => write!(f, "cell {index} says {colour:?}"),
            Use::Read { index, value } => write!(f, "cell {index} holds {}", number(value)),
            Use::Write { index, value } => write!(f, "cell {index} becomes {}", number(value)),
            Use::Hash { hash, .. } => write!(f, "{hash:#x}"),
            Use::Random { low, high, value } => write!(f, "{value} of {low} to {high}"),
            Use::Digest => f.write_str("message to the controller"),
            Use::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Stage { name, kind } => write!(f, "{kind} {name}"),
            Event::State(name) => write!(f, "state {name}"),
            Event::Block(name) => write!(f, "block {name}"),
            Event::Action(name) => write!(f, "action {name}"),
            Event::HasBits { bits, there: true } => write!(f, "{bits} bits are there"),
            Event::HasBits { bits, there: false } => write!(f, "packet too short: {bits} bits are not there"),
            Event::Extract { header, offset, fields } => {
                write!(f, "extract {header} at byte {offset}: {}", assignments(fields))
            }
            Event::Advance { bits } => write!(f, "advance by {bits} bits"),
            Event::Lookahead { offset, value } => write!(f, "look ahead at bit {offset}: {}", number(value)),
            Event::Condition { on, value, to } => {
                write!(f, "{} is {value}", on.as_deref().unwrap_or("the condition"))?;
                goes_on(f, to)
            }
            Event::Decision { name, holds } => write!(f, "{name} is {holds}"),
            Event::Statement => f.write_str("statement"),
            Event::Direct { table, action } => write!(f, "apply {table} () -> {action}()"),
            Event::Exit => f.write_str("exit"),
            Event::OutOfRange { stack, size } => write!(f, "index of {stack} is out of range: it has {size} elements"),
            Event::Select { on, value, to } => {
                write!(f, "{on} is {}", number(value))?;
                goes_on(f, to)
            }
            Event::To(to) => write!(f, "to {to}"),
            Event::Apply { table, keys, entry, member, empty_group, action, args, .. } => {
                let found = match entry {
                    Some(entry) => format!("hit {entry}"),
                    None if *empty_group => "miss (a group without members)".to_string(),
                    None => "miss".to_string(),
                };
                write!(f, "apply {table} ({}): {found} -> ", assignments(keys))?;
                if let Some((member, Some(group))) = member {
                    write!(f, "member {member} of group {group}: ")?;
                }
                write!(f, "{action}({})", assignments(args))
            }
            Event::Change { slot, old, new } => write!(f, "{slot}: {} -> {}", number(old), number(new)),
            Event::Valid { header, valid: true } => write!(f, "{header} becomes valid"),
            Event::Valid { header, valid: false } => write!(f, "{header} becomes invalid"),
            Event::Emit { header, bytes } => {
                write!(f, "emit {header}: ")?;
                bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
            Event::Extern { name, what } => write!(f, "{name}: {what}"),
            Event::Checksum { name, update: true } => write!(f, "update checksum {name}"),
            Event::Checksum { name, update: false } => write!(f, "verify checksum {name}"),
            Event::Verified { computed, actual } => {
                write!(f, "computed {}, the packet has {}", number(computed), number(actual))
            }
            Event::Log(text) => write!(f, "log: {text}"),
            Event::AssertFailed(text) => write!(f, "assertion failed: {text}"),
            Event::Fate(fate) => write!(f, "{fate}"),
        }
    }
}

fn goes_on(f: &mut fmt::Formatter<'_>, to: &str) -> fmt::Result {
    if to.is_empty() { Ok(()) } else { write!(f, ": to {to}") }
}

/// The value in hexadecimal, without its width.
fn number(value: &Bits) -> String {
    format!("{value:#}")
}

fn assignments(values: &[(String, Bits)]) -> String {
    let parts: Vec<String> = values.iter().map(|(name, value)| format!("{name}={}", number(value))).collect();
    parts.join(", ")
}

/// The form of the IR that ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Unoptimised IR: branches evaluate the conditions of the source.
    Lowered,
    /// IR after passes, which may invert branches: only conditions with a name are shown.
    Optimised,
}

/// Maximum length of a condition that is shown in full, in characters.
const CONDITION_MAX: usize = 80;

/// The text of a condition, if the span is that of one: it is in parentheses or next to a logical operator. Branches
/// that the compiler generates (guards of array elements, dispatch on a table's actions) have spans of statements and
/// calls.
pub fn condition_text(sources: &SourceMap, span: Span) -> Option<String> {
    let text = sources.text(span).filter(|text| !text.is_empty())?;
    let rest = sources.get(span.file)?.text.get(span.end as usize..)?.trim_start();
    if ![")", "&&", "||"].iter().any(|after| rest.starts_with(after)) {
        return None;
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(CONDITION_MAX) {
        Some((cut, _)) => Some(format!("{} ...", line[..cut].trim_end())),
        None => Some(line),
    }
}

impl TraceStep {
    /// The text of the step; `None` for conditions that are not the author's.
    fn text(&self, sources: &SourceMap, form: Form) -> Option<String> {
        let Event::Condition { on, value, to } = &self.event else { return Some(self.event.to_string()) };
        let source = if form == Form::Lowered { condition_text(sources, self.span) } else { None };
        match source.or_else(|| on.clone()) {
            on @ Some(_) => Some(Event::Condition { on, value: *value, to: to.clone() }.to_string()),
            None if to.is_empty() => None,
            None => Some(Event::To(to.clone()).to_string()),
        }
    }
}

/// A step as shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceLine {
    /// Whether it is the heading of a stage.
    pub heading: bool,
    /// The text of the step.
    pub text: String,
    /// File, line number, and the text of that line.
    pub place: Option<(String, u32, String)>,
}

impl Trace {
    /// The trace as text. Stages are headings; a source line is shown once for consecutive steps that came from it.
    pub fn render(&self, sources: &SourceMap, form: Form) -> String {
        let mut out = String::new();
        let mut shown = None;
        for line in self.lines(sources, form) {
            if line.heading {
                writeln!(out, "== {}", line.text).expect("strings take everything");
                shown = None;
                continue;
            }
            let place = line.place.filter(|(file, number, _)| {
                shown.as_ref().is_none_or(|(last, at): &(String, u32)| last != file || at != number)
            });
            if let Some((file, number, source)) = place {
                writeln!(out, "{file}:{number}: {source}").expect("strings take everything");
                shown = Some((file, number));
            }
            writeln!(out, "    {}", line.text).expect("strings take everything");
        }
        out
    }

    /// The steps that are shown, in order.
    pub fn lines(&self, sources: &SourceMap, form: Form) -> Vec<TraceLine> {
        let mut lines = Vec::new();
        let mut heading = None;
        for step in &self.steps {
            if let Event::Stage { name, .. } = &step.event {
                lines.push(TraceLine { heading: true, text: step.event.to_string(), place: None });
                heading = Some(name);
                continue;
            }
            // A stage usually consists of one control, which the heading already names.
            if heading.take().is_some_and(|stage| step.event == Event::Block(stage.clone())) {
                continue;
            }
            // The steps within them are shown instead.
            if matches!(step.event, Event::Decision { .. } | Event::Statement | Event::Direct { .. }) {
                continue;
            }
            if matches!(&step.event, Event::Change { old, new, .. } if old == new) {
                continue;
            }
            let Some(text) = step.text(sources, form) else { continue };
            // The text is that of the compiled source; file and line number are those of the file from which it came.
            let source = |line| sources.get(step.span.file).and_then(|f| f.line(line)).unwrap_or("").trim().to_string();
            let text_of = sources.locate(step.span).map(|(_, line, _)| source(line));
            let origin = sources.origin(step.span).map(|(file, line)| (file.to_string(), line));
            let place = origin.zip(text_of).map(|((file, line), text)| (file, line, text));
            lines.push(TraceLine { heading: false, text, place });
        }
        lines
    }
}
