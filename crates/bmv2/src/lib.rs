//! bmv2's JSON, the output of p4c for `simple_switch`: a front end that compiles it to IR, and a description of
//! compiled programs in the same format for tools that read it.
//!
//! ```text
//! text ─read▶ Value ─headers, states, primitives, control, state▶ Model ─emit▶ ir::Program
//!      read.rs       names resolved, everything checked           model.rs  └─info▶ P4Info
//! ```
//!
//! The format is that of docs/JSON_format.md of behavioral-model, versions 2.0 to 2.24. Attributes without meaning here
//! are ignored; unknown operations, primitives, types and targets are refused by name. Reading stops at the first
//! error, which is reported with its path in the JSON (`codes`).
//!
//! Guarantees: `compile` never panics, whatever the text; the program it returns passes `ir::verify`. Recursion is as
//! deep as the JSON is nested, at most 8,192 levels, so the caller's stack must be as large as for the compiler of P4
//! source.
//!
//! Where bmv2's behaviour differs from P4_16, and what is missing: `docs/bmv2.md`. Tests: `tests/`.

pub mod codes;
mod control;
pub mod describe;
mod emit;
mod expressions;
mod headers;
mod info;
mod locations;
mod model;
mod names;
mod primitives;
mod read;
mod state;
mod states;

pub use read::Fault;

use base::diag::{Diagnostic, has_errors};
use base::{FileId, SourceMap, Span};
use locations::Spans;
use model::Model;
use names::Reader;
use p4info::P4Info;
use read::{At, Read};

/// Major version of the format.
const MAJOR: u32 = 2;
/// Newest minor version that was implemented. A newer one may have features that are not understood here.
const MINOR_MAX: u32 = 24;

/// The result of compiling a text.
#[derive(Default)]
pub struct Compiled {
    /// The text, and the known fragments of the sources that it was made from.
    pub sources: SourceMap,
    /// Errors and warnings.
    pub diagnostics: Vec<Diagnostic>,
    /// The program; `None` when there is an error.
    pub program: Option<ir::Program>,
    /// The program's P4Info, for controllers.
    pub p4info: Option<P4Info>,
}

/// Whether a text that begins as JSON is, or was meant to be, a program for bmv2. The caller decides which texts begin
/// as JSON: `frontend::form`.
pub fn is_program(json: &str) -> bool {
    ["\"header_types\"", "\"pipelines\"", "\"parsers\"", "\"__meta__\""].iter().any(|key| json.contains(key))
}

/// The JSON path of the next value after an incomplete JSON text.
pub fn path_behind(text: &str) -> String {
    read::path_of(text, text.len())
}

/// Compiles a text. `file` is its name in messages, `name` the program's name.
pub fn compile(text: &str, file: &str, name: &str) -> Compiled {
    compile_with(text, file, name, None)
}

/// Like [`compile`], with the value of `egress_spec` that means drop, if it is not 511.
pub fn compile_with(text: &str, file: &str, name: &str, drop_port: Option<u64>) -> Compiled {
    let mut sources = SourceMap::new();
    let text = text.trim_start_matches('\u{feff}');
    let id = sources.add(file, text);
    let (mut model, spans) = match read_program(text, &mut sources) {
        Ok(read) => read,
        Err(fault) => {
            let diagnostics = vec![diagnostic(text, id, &fault)];
            return Compiled { sources, diagnostics, program: None, p4info: None };
        }
    };
    model.drop_port = drop_port;
    let emit::Emitted { program, mut diagnostics, declared } = emit::emit(&model, &spans, name);
    if !has_errors(&diagnostics) {
        // An error that reading has missed must not reach passes and engines.
        diagnostics.extend(ir::verify(&program).into_iter().map(|d| {
            Diagnostic::error(codes::CONTRADICTION, d.span, format!("the JSON does not make a program: {}", d.message))
        }));
    }
    if has_errors(&diagnostics) {
        return Compiled { sources, diagnostics, program: None, p4info: None };
    }
    let p4info = info::build(&model, &program, &declared);
    Compiled { sources, diagnostics, program: Some(program), p4info: Some(p4info) }
}

fn diagnostic(text: &str, file: FileId, fault: &Fault) -> Diagnostic {
    let span: Span = read::locate(text, file, fault);
    let message = match fault.path.as_str() {
        "" => fault.message.clone(),
        path => format!("{path}: {}", fault.message),
    };
    Diagnostic::error(fault.code, span, message)
}

fn read_program(text: &str, sources: &mut SourceMap) -> Read<(Model, Spans)> {
    let value = read::parse(text)?;
    let root = At::root(&value);
    check_version(&root)?;
    let mut reader = Reader::default();
    // In order of dependence; registers come first, since expressions anywhere may name them.
    reader.registers(&root)?;
    reader.header_types(&root)?;
    reader.headers(&root)?;
    reader.stacks(&root)?;
    reader.unions(&root)?;
    reader.errors(&root)?;
    reader.well_known(&root)?;
    reader.extern_instances(&root)?;
    reader.value_sets(&root)?;
    reader.calculations(&root)?;
    reader.counters(&root)?;
    reader.meters(&root)?;
    reader.parser(&root)?;
    reader.deparser(&root)?;
    reader.actions(&root)?;
    reader.pipelines(&root)?;
    reader.checksums(&root)?;
    reader.field_lists(&root)?;
    reader.learn_lists(&root)?;
    reader.number_names();
    let spans = reader.locations.finish(sources);
    Ok((reader.m, spans))
}

fn check_version(root: &At<'_>) -> Read<()> {
    if !root.is_object() {
        return root.fail(codes::SHAPE, "the JSON is not an object");
    }
    let Some(version) = root.get("__meta__").and_then(|m| m.get("version")) else { return Ok(()) };
    let [major, minor] = version.tuple()?;
    let (a, b) = (major.number()?, minor.number()?);
    if a != MAJOR || b > MINOR_MAX {
        let message = format!("version {a}.{b} of the format; {MAJOR}.0 to {MAJOR}.{MINOR_MAX} are supported");
        return version.fail(codes::OTHER_FORMAT, message);
    }
    Ok(())
}
