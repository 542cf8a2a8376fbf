//! Narrates what a program did with one packet in bmv2's terms: converts the interpreter's traces into lines of bmv2's
//! log and messages of its event stream, in order.
//!
//! ```text
//!   traces of all runs ─▶ Narrator::tell ─▶ Story: lines, events
//!                            └ Run: one packet or copy between two replication points
//! ```
//!
//! Checksums, which bmv2 handles after the parser and before the deparser, are narrated as parts of these. What bmv2
//! does between pipelines is narrated where the glue stages begin (`ingress_end`, `egress_end`, `deparse_end` of
//! `lower::simple_switch`).
//!
//! Copies are numbered in the order in which they run here, which is not always bmv2's. p4c makes tables of statements
//! outside actions; these are narrated for programs in JSON, while programs from source have the statements only.
//!
//! `blocks.rs` narrates the parts of bmv2 and the steps between them, `pipeline.rs` the steps within a pipeline;
//! `sets.rs` finds the origin of the values that parsers assign.
//!
//! Tests: `tests.rs` beside this; `tests/py/test_bmv2.py`.

mod blocks;
mod pipeline;
mod sets;

use super::conditions::Whole;
use super::events::{Event as Message, EventKind};
use super::line::Line;
use super::numbers::{Kind, Numbers};
use base::entry::TableEntry;
use base::{Bits, SourceMap, Span};
use datapath::replication::Replication;
use interp::trace::{Event, TraceStep};
use ir::program::ExternKind;
use ir::{EntryKind, Intrinsic, Mark, Op, Program, StageKind};
use sets::Sets;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use thrift_service::Mirrored;

/// The narration of one packet.
#[derive(Default)]
pub struct Story {
    /// Lines of the log.
    pub lines: Vec<Line>,
    /// Messages of the event stream.
    pub events: Vec<Message>,
}

/// Looks up the handle of a table's entry.
pub type HandleOf<'a> = &'a dyn Fn(&str, &TableEntry) -> Option<i32>;

/// Looks up the destination of a mirroring session that was created by thrift; `None` for other sessions.
pub type MirroredOf<'a> = &'a dyn Fn(u32) -> Option<Mirrored>;

/// A stage's part in bmv2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Parser,
    Verify,
    Pipeline(&'static str),
    IngressEnd,
    EgressEnd,
    Compute,
    Deparser,
    DeparseEnd,
}

/// bmv2's names of parser and deparser.
const PARSER: &str = "parser";
const DEPARSER: &str = "deparser";

/// Narrates runs of packets through one program.
pub struct Narrator {
    parts: HashMap<String, Part>,
    drop_port: u64,
    /// Intrinsics by the name of their slot.
    intrinsics: HashMap<String, Intrinsic>,
    /// Kind and number of cells of counters, meters and registers, by name.
    sizes: HashMap<String, (&'static str, u64)>,
    headers: HashSet<String>,
    /// Headers that have a field of variable length.
    variable: HashSet<String>,
    sets: Sets,
    errors: Vec<String>,
    /// Whether the IR has marks for the results of conditions and the beginnings of statements, as that of JSON has.
    says: bool,
    /// Actions that have a mark at their beginning; those without statements have none.
    marked: HashSet<String>,
    numbers: Numbers,
}

impl Narrator {
    pub fn new(program: &Program, numbers: Numbers, drop_port: u64) -> Narrator {
        let intrinsic =
            |(which, slot): &(Intrinsic, base::ids::SlotId)| (program.slots[slot.index()].name.clone(), *which);
        let size = |e: &ir::Extern| match &e.kind {
            ExternKind::Counter { size, direct: None, .. } => Some((e.name.clone(), ("counter", *size))),
            ExternKind::Meter { size, direct: None, .. } => Some((e.name.clone(), ("meter", *size))),
            ExternKind::Register { size, .. } => Some((e.name.clone(), ("register", *size))),
            _ => None,
        };
        let insts = || program.stages.iter().flat_map(|stage| &stage.blocks).flat_map(|block| &block.insts);
        let marks = || insts().filter_map(|inst| if let Op::Mark(mark) = &inst.op { Some(mark) } else { None });
        let action = |mark: &Mark| if let Mark::Action(name) = mark { Some(name.clone()) } else { None };
        let variable = program.headers.iter().filter(|h| h.fields.iter().any(|f| f.varbit_length.is_some()));
        Narrator {
            parts: parts(program),
            drop_port,
            intrinsics: program.intrinsics.iter().map(intrinsic).collect(),
            sizes: program.externs.iter().filter_map(size).collect(),
            headers: program.headers.iter().map(|h| plain(&h.name).to_string()).collect(),
            variable: variable.map(|h| plain(&h.name).to_string()).collect(),
            sets: Sets::new(program),
            errors: program.errors.clone(),
            says: marks().any(|mark| matches!(mark, Mark::Decision { .. } | Mark::Statement)),
            marked: marks().filter_map(action).collect(),
            numbers,
        }
    }
}

/// Returns a header's own name: a header whose fields keep their values while it is invalid is extracted into
/// `NAME.$wire` first.
fn plain(header: &str) -> &str {
    header.strip_suffix(".$wire").unwrap_or(header)
}

/// Returns the part of each stage of a program, by the stage's name.
fn parts(program: &Program) -> HashMap<String, Part> {
    let mut parts = HashMap::new();
    let glue = [
        "ingress_end",
        "egress_start",
        "egress_end",
        "deparse_begin",
        "deparse_end",
        "length_start",
        "clone_begin",
        "clone_end",
    ];
    let Some(entry) = program.entry(EntryKind::Ingress) else { return parts };
    let stages: Vec<_> = entry.stages.iter().map(|id| &program.stages[id.index()]).collect();
    let mut ends = stages.iter().take_while(|s| s.name != "ingress_end").filter(|s| s.kind == StageKind::Control);
    let before: Vec<&str> = ends.by_ref().map(|s| s.name.as_str()).filter(|name| !glue.contains(name)).collect();
    // Verification of checksums, then ingress.
    if let Some((ingress, checks)) = before.split_last() {
        parts.insert((*ingress).to_string(), Part::Pipeline("ingress"));
        parts.extend(checks.iter().map(|name| ((*name).to_string(), Part::Verify)));
    }
    // If packets pass to another entry point at the end of ingress, egress is there.
    let rest: Vec<_> = match program.entry(EntryKind::Egress) {
        Some(entry) => entry.stages.iter().map(|id| &program.stages[id.index()]).collect(),
        None => stages.iter().copied().skip_while(|s| s.name != "ingress_end").collect(),
    };
    let after: Vec<&str> = rest.iter().filter(|s| s.kind == StageKind::Control).map(|s| s.name.as_str()).collect();
    let mut after = after.into_iter().filter(|name| !glue.contains(name));
    parts.extend(after.next().map(|name| (name.to_string(), Part::Pipeline("egress"))));
    parts.extend(after.next().map(|name| (name.to_string(), Part::Compute)));
    for stage in &program.stages {
        let part = match (stage.kind, stage.name.as_str()) {
            (StageKind::Parser, _) => Part::Parser,
            (StageKind::Deparser, _) => Part::Deparser,
            (_, "ingress_end") => Part::IngressEnd,
            (_, "egress_end") => Part::EgressEnd,
            (_, "deparse_end") => Part::DeparseEnd,
            _ => continue,
        };
        parts.insert(stage.name.clone(), part);
    }
    parts
}

/// The input of a narration: a packet's runs, sent frames and reasons of drops, with what is needed to interpret them.
pub struct PacketRuns<'a> {
    pub runs: &'a crate::live::Runs,
    pub sources: &'a SourceMap,
    pub replication: &'a Replication,
    pub handle_of: HandleOf<'a>,
    pub mirrored: MirroredOf<'a>,
    /// The port that received the packet.
    pub port: u32,
}

impl Narrator {
    /// Narrates the runs of a packet.
    pub fn tell(&mut self, packet: &PacketRuns<'_>) -> Story {
        let (runs, sent, dropped) = packet.runs;
        let mut story = Story::default();
        let mut sent: Vec<Option<(u32, usize)>> = sent.iter().map(|s| Some((s.port, s.frame.len()))).collect();
        let mut copies = Copies::default();
        for (entry, trace) in runs {
            let copy = copies.begin(*entry);
            let first = story.lines.is_empty();
            let mut run = Run::new(self, packet, &mut story, copy);
            if first || *entry == EntryKind::Reingress {
                run.debug(format!("Processing packet received on port {}", packet.port));
            }
            if first {
                run.event(EventKind::PacketIn, vec![packet.port as i32]);
            }
            for step in &trace.steps {
                run.step(step);
            }
            run.close();
            let wanted = run.wanted.clone();
            let port = match trace.steps.last().map(|step| &step.event) {
                Some(Event::Fate(fate)) => fate.strip_prefix("send to port ").and_then(|port| port.parse().ok()),
                _ => None,
            };
            if let Some(at) = sent.iter().position(|s| s.is_some_and(|(to, _)| Some(to) == port)) {
                run.transmit(sent[at].take());
            }
            copies.end(*entry, copy, &wanted);
        }
        let rest: Vec<_> = sent.into_iter().flatten().collect();
        let mut run = Run::new(self, packet, &mut story, 0);
        rest.into_iter().for_each(|frame| run.transmit(Some(frame)));
        // Drops at the ends of pipelines have been narrated there.
        let others = dropped.iter().filter(|why| !["ingress drop", "egress drop"].contains(&why.as_str()));
        others.for_each(|why| run.debug(format!("Dropping packet: {why}")));
        story
    }
}

/// The numbering of copies.
#[derive(Default)]
struct Copies {
    last: u64,
    begun: bool,
    /// Copies whose packet itself continues at egress, and at the deparser; these keep their number.
    to_egress: Vec<u64>,
    to_deparser: Vec<u64>,
}

impl Copies {
    fn begin(&mut self, entry: EntryKind) -> u64 {
        let waiting = match entry {
            EntryKind::Egress => &mut self.to_egress,
            EntryKind::Deparse => &mut self.to_deparser,
            _ => {
                self.last += u64::from(self.begun);
                self.begun = true;
                return self.last;
            }
        };
        if !waiting.is_empty() {
            return waiting.remove(0);
        }
        self.last += 1;
        self.last
    }

    fn end(&mut self, entry: EntryKind, copy: u64, wanted: &Wanted) {
        match (entry, wanted.ended) {
            (_, Some(Part::EgressEnd)) => self.to_deparser.push(copy),
            (_, Some(Part::IngressEnd)) if wanted.goes_on => self.to_egress.push(copy),
            _ => {}
        }
    }
}

/// What a packet requests of the switch by intrinsic metadata.
#[derive(Clone, Default)]
struct Wanted {
    values: HashMap<Intrinsic, u64>,
    /// The last glue stage that it went through, and whether the packet itself continues after it.
    ended: Option<Part>,
    goes_on: bool,
}

impl Wanted {
    fn value(&self, which: Intrinsic) -> u64 {
        self.values.get(&which).copied().unwrap_or(0)
    }
}

/// A checksum in progress.
struct Checking {
    name: String,
    update: bool,
    computed: bool,
    target_is_invalid: bool,
    verified: Option<(Bits, Bits)>,
}

/// The narration of one run.
struct Run<'a> {
    narrator: &'a mut Narrator,
    packet: &'a PacketRuns<'a>,
    story: &'a mut Story,
    copy: u64,
    open: Option<Part>,
    wanted: Wanted,
    checking: Option<Checking>,
    /// The parser's state, and whether it has selected a transition.
    state: Option<String>,
    chose: bool,
    /// The last narrated assignment of the state.
    set: Option<(Span, usize)>,
    parsed_bits: u64,
    failed: bool,
    /// The statement and table that were narrated last.
    statement: Option<Span>,
    table: String,
    /// A condition whose value is not known yet.
    whole: Option<Whole>,
}

impl<'a> Run<'a> {
    fn new(narrator: &'a mut Narrator, packet: &'a PacketRuns<'a>, story: &'a mut Story, copy: u64) -> Run<'a> {
        Run {
            narrator,
            packet,
            story,
            copy,
            open: None,
            wanted: Wanted::default(),
            checking: None,
            state: None,
            chose: false,
            set: None,
            parsed_bits: 0,
            failed: false,
            statement: None,
            table: String::new(),
            whole: None,
        }
    }

    fn line(&mut self, line: Line) {
        self.story.lines.push(line.of_copy(self.copy));
    }

    fn debug(&mut self, text: String) {
        self.line(Line::debug(text));
    }

    fn trace(&mut self, text: String) {
        self.line(Line::trace(text));
    }

    fn error(&mut self, text: String) {
        self.line(Line::error(text));
    }

    fn event(&mut self, kind: EventKind, numbers: Vec<i32>) {
        self.story.events.push(Message { kind, copy: self.copy, numbers });
    }

    fn id(&self, kind: Kind, name: &str) -> i32 {
        self.narrator.numbers.of(kind, name)
    }

    fn transmit(&mut self, frame: Option<(u32, usize)>) {
        let Some((port, length)) = frame else { return };
        self.event(EventKind::PacketOut, vec![port as i32]);
        self.debug(format!("Transmitting packet of size {length} out of port {port}"));
    }

    fn step(&mut self, step: &TraceStep) {
        match &step.event {
            Event::Stage { name, .. } => self.enter(name),
            Event::Checksum { name, update } => {
                self.end_checksum();
                let (name, update) = (name.clone(), *update);
                self.checking =
                    Some(Checking { name, update, computed: false, target_is_invalid: false, verified: None });
            }
            event if self.checking.is_some() => self.checksum_step(event),
            _ => match self.open {
                Some(Part::Parser) => self.parser_step(step),
                Some(Part::Pipeline(_)) => self.pipeline_step(step),
                Some(Part::Deparser) => self.deparser_step(&step.event),
                _ => self.note(&step.event),
            },
        }
    }

    /// Records a change of intrinsic metadata.
    fn note(&mut self, event: &Event) {
        if let Event::Change { slot, new, .. } = event
            && let Some(which) = self.narrator.intrinsics.get(slot)
        {
            self.wanted.values.insert(*which, new.to_u64().unwrap_or(0));
        }
    }

    fn source(&self, span: Span) -> Option<(String, String)> {
        let (file, line) = self.packet.sources.origin(span)?;
        let words: Vec<&str> = self.packet.sources.text(span)?.split_whitespace().collect();
        // Embedded files have names such as `<p4lib/x.p4>`.
        let file = file.trim_matches(['<', '>']);
        let file = Path::new(file).file_name().map_or(file.into(), |name| name.to_string_lossy());
        (!words.is_empty()).then(|| (format!("{file}({line})"), words.join(" ").trim_end_matches(';').to_string()))
    }

    /// Returns the prefix of a position, `basic.p4(99) `; empty without one.
    fn place(&self, span: Span) -> String {
        self.source(span).map_or_else(String::new, |(place, _)| place + " ")
    }
}

/// Returns the value's bytes in hexadecimal, leading zeros included.
fn plain_hex(value: &Bits) -> String {
    value.to_bytes_be().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
