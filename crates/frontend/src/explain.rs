//! The registry of diagnostic codes: what `sluice explain CODE` prints.
//!
//! The texts are Markdown, one file per group of codes in `crates/frontend/explain/`: a heading `## CODE: title`,
//! paragraphs, a small wrong program, the corrected one, and the clause of the specification. The fence's info string
//! gives the kind of program: `p4 wrong` and `p4 right` are whole programs; followed by `ingress`, the body of an
//! ingress control of v1model (completed by [`Example::program`]). Codes that no P4 program can cause (errors about the
//! compiler's own IR and about bmv2's JSON) have no examples.
//!
//! `tests/registry.rs` checks that every code of the sources has an entry and every entry a code, that each wrong
//! program gives its code and no other error, and that each right one is accepted.

use std::fmt::Write;
use std::sync::LazyLock;

const GROUPS: [&str; 10] = [
    include_str!("../explain/00-preprocessor.md"),
    include_str!("../explain/01-lexical.md"),
    include_str!("../explain/02-syntax.md"),
    include_str!("../explain/03-names.md"),
    include_str!("../explain/04-types.md"),
    include_str!("../explain/05-constants-instances-tables.md"),
    include_str!("../explain/06-architecture.md"),
    include_str!("../explain/07-ir.md"),
    include_str!("../explain/08-warnings.md"),
    include_str!("../explain/09-bmv2-json.md"),
];

/// The explanation of one code.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The code, for example `E0301`.
    pub code: &'static str,
    /// The title, one line.
    pub title: &'static str,
    /// The text and examples, in order.
    pub parts: Vec<Part>,
    /// The title of the code's group.
    pub group: &'static str,
}

/// A part of an explanation.
#[derive(Clone, Debug)]
pub enum Part {
    /// A paragraph, with its line breaks.
    Text(&'static str),
    /// A program.
    Example(Example),
}

/// A small program of an explanation.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// Whether it shows the mistake; otherwise it shows the corrected program.
    pub wrong: bool,
    /// Whether it is the body of an ingress control; otherwise it is a whole program.
    pub ingress: bool,
    /// The text as shown.
    pub text: &'static str,
}

impl Example {
    /// The whole program, which can be compiled.
    pub fn program(&self) -> String {
        if !self.ingress {
            return self.text.to_string();
        }
        format!("{BEFORE_INGRESS}{}{AFTER_INGRESS}", self.text)
    }
}

/// The program text around examples that are the body of an ingress control.
const BEFORE_INGRESS: &str = "#include <core.p4>
#include <v1model.p4>
#include <add_on_miss.p4>
header h_t { bit<8> a; bit<8> b; bit<16> c; }
struct headers_t { h_t h; h_t[2] stack; }
struct meta_t { bit<8> m; bit<32> w; }
parser MyParser(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.h); transition accept; }
}
control MyVerify(inout headers_t hdr, inout meta_t meta) { apply { } }
control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
";

const AFTER_INGRESS: &str = "}
control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control MyCompute(inout headers_t hdr, inout meta_t meta) { apply { } }
control MyDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
";

static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let mut entries: Vec<Entry> = GROUPS.iter().flat_map(|text| parse(text)).collect();
    entries.sort_by_key(|e| e.code);
    entries
});

/// All entries, by code.
pub fn entries() -> &'static [Entry] {
    &ENTRIES
}

/// The entry of a code, in upper or lower case.
pub fn entry(code: &str) -> Option<&'static Entry> {
    entries().iter().find(|e| e.code.eq_ignore_ascii_case(code))
}

/// The known code most similar to an unknown one: one character replaced, added, missing, or swapped with its
/// neighbour.
pub fn similar(code: &str) -> Option<&'static str> {
    let wanted = code.to_ascii_uppercase();
    base::spelling::similar(&wanted, entries().iter().map(|e| e.code))
}

impl Entry {
    /// The explanation as text for a terminal.
    pub fn render(&self) -> String {
        let mut out = format!("{}: {}\n", self.code, self.title);
        for part in &self.parts {
            match part {
                Part::Text(text) => _ = write!(out, "\n{text}\n"),
                Part::Example(example) => {
                    let heading = match (example.wrong, example.ingress) {
                        (true, false) => "Wrong:",
                        (true, true) => "Wrong, in the ingress control of a v1model program:",
                        (false, false) => "Right:",
                        (false, true) => "Right, there:",
                    };
                    _ = write!(out, "\n{heading}\n\n");
                    for line in example.text.lines() {
                        _ = writeln!(out, "{}", format!("    {line}").trim_end());
                    }
                }
            }
        }
        out
    }

    /// Its programs.
    pub fn examples(&self) -> impl Iterator<Item = &Example> {
        self.parts.iter().filter_map(|p| match p {
            Part::Example(example) => Some(example),
            Part::Text(_) => None,
        })
    }
}

/// Splits a group's text into entries. The files are part of the crate: malformed parts are left out, and the tests
/// notice.
fn parse(text: &'static str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let group = text.lines().next().and_then(|l| l.strip_prefix("# ")).unwrap_or_default();
    for section in text.split("\n## ").skip(1) {
        let (heading, mut rest) = section.split_once('\n').unwrap_or((section, ""));
        let Some((code, title)) = heading.split_once(": ") else { continue };
        let mut parts = Vec::new();
        while let Some((before, fenced)) = rest.split_once("```") {
            push_text(before, &mut parts);
            let Some((info, fenced)) = fenced.split_once('\n') else { break };
            let Some((program, after)) = fenced.split_once("```") else { break };
            let has = |word| info.split_whitespace().any(|w| w == word);
            parts.push(Part::Example(Example { wrong: has("wrong"), ingress: has("ingress"), text: program }));
            rest = after;
        }
        push_text(rest, &mut parts);
        entries.push(Entry { code, title, parts, group });
    }
    entries
}

fn push_text(text: &'static str, parts: &mut Vec<Part>) {
    parts.extend(text.split("\n\n").map(str::trim).filter(|t| !t.is_empty()).map(Part::Text));
}
