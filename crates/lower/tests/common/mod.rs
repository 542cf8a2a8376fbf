//! Compiles P4 text to verified IR, and builds v1model programs from the parts that a test is about.

#![allow(dead_code, reason = "each test file uses its part")]

use base::SourceMap;
use interp::{Fate, Interp, SeededHost};
use ir::EntryKind;
use std::sync::Arc;
use syntax::{MemoryLoader, Options, SourceInput};

/// Lowers a program; `Err` has the diagnostics of the first stage that rejects it, one per line.
pub fn try_lower(text: &str) -> Result<ir::Program, String> {
    lower_with_reasons(text).map(|(program, _)| program)
}

/// The reasons why a correct program cannot be loaded, one per line.
pub fn unloadable(text: &str) -> String {
    lower_with_reasons(text).unwrap_or_else(|errors| panic!("{errors}")).1
}

/// The program, and the reasons why it cannot be loaded.
fn lower_with_reasons(text: &str) -> Result<(ir::Program, String), String> {
    let mut loader = MemoryLoader::default();
    for name in sema::EMBEDDED {
        loader.embedded.insert(name.to_string(), sema::embedded(name).expect("it is listed").into());
    }
    let mut sources = SourceMap::new();
    let input = SourceInput { name: "test.p4".into(), text: text.into() };
    let parsed = syntax::parse_program(input, &Options::default(), &loader, &mut sources);
    let lines = |diagnostics: &[base::Diagnostic]| -> String {
        let line = |d: &base::Diagnostic| {
            let place = sources.locate(d.span).map_or(String::new(), |(f, l, _)| format!("{f}:{l}: "));
            format!("{place}{} {}\n", d.code, d.message)
        };
        diagnostics.iter().filter(|d| d.severity == base::Severity::Error).map(line).collect()
    };
    if base::diag::has_errors(&parsed.diagnostics) {
        return Err(lines(&parsed.diagnostics));
    }
    let checked = sema::check(&parsed.program, &sources);
    let Some(typed) = checked.program else { return Err(lines(&checked.diagnostics)) };
    let lowered = lower::lower(&typed, "test");
    let Some(program) = lowered.program else { return Err(lines(&lowered.diagnostics)) };
    let complaints = ir::verify(&program);
    assert!(complaints.is_empty(), "{complaints:#?}\n{}", ir::print(&program));
    let reason = |d: &base::Diagnostic| {
        let place = sources.locate(d.span).map_or(String::new(), |(f, l, _)| format!("{f}:{l}: "));
        format!("{place}{}\n", d.message)
    };
    Ok((program, lowered.unloadable.iter().map(reason).collect()))
}

/// Lowers a correct program.
pub fn lower(text: &str) -> ir::Program {
    try_lower(text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The parts of a test program; empty parts get a default that does nothing.
#[derive(Clone, Copy, Default)]
pub struct V1<'a> {
    /// Declarations before the blocks.
    pub top: &'a str,
    /// Fields of the struct `H`; by default one header `a` of type `A { bit<8> x; bit<8> y; }`.
    pub headers: &'a str,
    /// Fields of the struct `M`.
    pub meta: &'a str,
    /// States of the parser; by default `a` is extracted.
    pub states: &'a str,
    /// Declarations of the parser.
    pub parser_locals: &'a str,
    /// Body of the verify control.
    pub verify: &'a str,
    /// Declarations of ingress.
    pub ingress_locals: &'a str,
    /// Body of ingress.
    pub ingress: &'a str,
    /// Body of egress.
    pub egress: &'a str,
    /// Body of the compute control.
    pub compute: &'a str,
}

impl V1<'_> {
    /// The program's text.
    pub fn text(&self) -> String {
        let or = |given: &str, default: &str| if given.is_empty() { default.to_string() } else { given.to_string() };
        let headers = or(self.headers, "A a;");
        let states = or(self.states, "state start { b.extract(h.a); transition accept; }");
        let V1 { top, meta, parser_locals, verify, ingress_locals, ingress, egress, compute, .. } = self;
        format!(
            "#include <core.p4>\n#include <v1model.p4>
header A {{ bit<8> x; bit<8> y; }}
{top}
struct H {{ {headers} }}
struct M {{ {meta} }}
parser P(packet_in b, out H h, inout M m, inout standard_metadata_t s) {{ {parser_locals} {states} }}
control V(inout H h, inout M m) {{ apply {{ {verify} }} }}
control I(inout H h, inout M m, inout standard_metadata_t s) {{ {ingress_locals} apply {{ {ingress} }} }}
control E(inout H h, inout M m, inout standard_metadata_t s) {{ apply {{ {egress} }} }}
control C(inout H h, inout M m) {{ apply {{ {compute} }} }}
control D(packet_out b, in H h) {{ apply {{ b.emit(h); }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;\n"
        )
    }

    /// The program's IR.
    pub fn lower(&self) -> ir::Program {
        lower(&self.text())
    }

    /// The errors of a program that is rejected.
    pub fn errors(&self) -> String {
        try_lower(&self.text()).err().unwrap_or_else(|| "no errors".to_string())
    }
}

/// A stage's text without source positions.
pub fn stage_text(program: &ir::Program, name: &str) -> String {
    let index = program.stages.iter().position(|s| s.name == name).unwrap_or_else(|| panic!("no stage `{name}`"));
    let text = ir::print::print_stage(program, ir::StageId::from_index(index));
    text.lines().map(|line| format!("{}\n", line.split(" @").next().unwrap_or(line))).collect()
}

/// The lines that declare entry points.
pub fn entries_text(program: &ir::Program) -> String {
    ir::print(program).lines().filter(|l| l.starts_with("entry ")).map(|l| format!("{l}\n")).collect()
}

/// The fate of a packet: `port: frame`, `drop: reason`, or the replication point.
pub fn run(interp: &Interp, packet: &str) -> String {
    let bytes: Vec<u8> = packet.split_whitespace().map(|b| u8::from_str_radix(b, 16).expect("a byte")).collect();
    let mut record = vec![0; interp.layout().words()];
    let mut host = SeededHost::new(1);
    let outcome = interp.run(EntryKind::Ingress, &bytes, 0, &mut record, &mut host, None);
    match outcome.fate {
        Fate::Send(port) => {
            let frame: Vec<String> = outcome.packet.iter().map(|b| format!("{b:02x}")).collect();
            format!("{port}: {}", frame.join(" "))
        }
        Fate::Drop(reason) => format!("drop: {}", interp.program().drops[reason as usize]),
        Fate::Multicast(group) => format!("group {group}"),
        Fate::Replicate(point) => format!("{point:?}"),
        Fate::Again { why, list } => format!("{why:?}, {list:?}"),
        Fate::Endless => "endless".to_string(),
        Fate::NoRoom => "no room".to_string(),
    }
}

/// Runs packets through a program and compares their fates.
pub fn check(program: V1<'_>, packets: &[(&str, &str)]) {
    let interp = Interp::new(Arc::new(program.lower()));
    for (packet, expected) in packets {
        assert_eq!(run(&interp, packet), *expected, "packet {packet}");
    }
}
