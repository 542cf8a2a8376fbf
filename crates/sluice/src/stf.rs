//! `sluice stf X.p4 X.stf`: runs an STF script, on one engine or on all with a comparison.
//!
//! If an expected frame is missing, the script is run again by the interpreter with a trace, which shows at which line
//! of the program the packets before it were dropped. The line is not shown for a packet whose fate differs between
//! engine and interpreter.

use crate::compile::ProgramArgs;
use crate::output::JsonArgs;
use anyhow::{Context, Result};
use base::SourceMap;
use datapath::oracle::Oracle;
use datapath::{EngineKind, Local, Pipeline};
use interp::trace::Form;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use stf::{Outcome, PacketFate};

/// Arguments of `stf`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    program: ProgramArgs,
    /// The script.
    #[arg(value_name = "X.stf")]
    script: PathBuf,
    /// What runs the packets: the interpreter on optimised IR, on raw IR, machine code, or all of them compared.
    #[arg(long, value_enum, default_value = "jit")]
    engine: Engine,
    /// Print what `register_read` and the like read, and every frame that is sent.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    output: JsonArgs,
}

/// `--engine`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Engine {
    /// The interpreter on optimised IR.
    Interp,
    /// The interpreter on IR as lowered.
    Raw,
    /// Machine code.
    Jit,
    /// Machine code, staged at every table.
    Staged,
    /// Machine code of machine-level IR.
    Mir,
    /// The interpreter of machine-level IR.
    MirInterp,
    /// All of them, compared with each other.
    All,
}

/// Runs `sluice stf`.
///
/// # Errors
/// If the options are wrong or a file cannot be read.
pub fn main(args: &Args) -> Result<ExitCode> {
    let mut report = Report { output: args.output, script: args.script.display().to_string(), ..Report::default() };
    let Some(compiled) = args.program.compile.compile_program(&args.program.program)? else {
        // The diagnostics have been printed.
        report.failed += 1;
        report.failures.push(json!({ "engine": null, "line": null, "message": "the program does not compile" }));
        return Ok(report.finish());
    };
    let text = crate::files::text(&args.script)?;
    let lines = match stf::parse(&text) {
        Ok(lines) => lines,
        Err(errors) => {
            errors.into_iter().for_each(|error| report.fail(None, error.line, error.message));
            return Ok(report.finish());
        }
    };
    let raw = Arc::new(compiled.raw.context("the program has IR")?);
    let optimised = Arc::new(compiled.optimised.context("the program has optimised IR")?);
    let engines: &[(&str, &Arc<ir::Program>, EngineKind)] = &[
        ("raw", &raw, EngineKind::Interpreter),
        ("interp", &optimised, EngineKind::Interpreter),
        ("jit", &optimised, EngineKind::Machine),
        ("staged", &optimised, EngineKind::Staged),
        ("mir", &optimised, EngineKind::Mir),
        ("mir-interp", &optimised, EngineKind::MirInterpreter),
    ];
    let wanted = |name: &str| match args.engine {
        Engine::All => true,
        Engine::Raw => name == "raw",
        Engine::Interp => name == "interp",
        Engine::Jit => name == "jit",
        Engine::Staged => name == "staged",
        Engine::Mir => name == "mir",
        Engine::MirInterp => name == "mir-interp",
    };

    let code = args.program.compile.code()?;
    let mut first: Option<(&str, Outcome)> = None;
    let mut traced: Option<Vec<(PacketFate, Option<String>)>> = None;
    for (name, program, kind) in engines.iter().filter(|(name, ..)| wanted(name)) {
        let pipeline = datapath::load_with(Arc::clone(program), *kind, 1, &code)?;
        let mut local = Local::new(Arc::new(pipeline));
        let mut outcome = stf::run_watched(&lines, &mut local, &mut || {});
        if args.engine == Engine::All {
            outcome.state = stf::dump_state(&local);
        }
        if !outcome.missing.is_empty() {
            let traced = traced.get_or_insert_with(|| places(&lines, &raw, &compiled.sources));
            let same = outcome.fates.iter().zip(traced.iter());
            let places: Vec<_> = same.map(|(fate, (of, place))| place.clone().filter(|_| fate == of)).collect();
            outcome.explain(&places);
        }
        report.passed += outcome.passed;
        for (line, message) in &outcome.failures {
            report.fail(Some(name), *line, message.clone());
        }
        if args.verbose {
            report.say(name, &outcome);
        }
        match &first {
            None => first = Some((name, outcome)),
            Some((other, reference)) => match reference.sent == outcome.sent && reference.state == outcome.state {
                true => report.passed += 1,
                false => report.differ(name, other, difference(reference, &outcome)),
            },
        }
    }
    Ok(report.finish())
}

/// Returns, for each packet of a script, its fate in the interpreter and the source line that decided it.
fn places(lines: &[stf::Line], program: &Arc<ir::Program>, sources: &SourceMap) -> Vec<(PacketFate, Option<String>)> {
    let oracle = Oracle::new(Arc::clone(program), true);
    let output = oracle.output();
    let pipeline = Arc::new(Pipeline::new(Arc::clone(program), Box::new(oracle), 1));
    let mut places = Vec::new();
    let outcome = stf::run_watched(lines, &mut Local::new(pipeline), &mut || {
        places.push(output.take_traces().last().and_then(|(_, trace)| decision(trace, sources)));
    });
    outcome.fates.into_iter().zip(places).collect()
}

/// Returns where the last run of a packet was decided: the source line of the step that chose its output, or of the
/// last step; followed by the lookup or action call that led there.
fn decision(trace: &interp::Trace, sources: &SourceMap) -> Option<String> {
    let lines = trace.lines(sources, Form::Lowered);
    let chooses = |text: &str| {
        let slot = text.split(':').next().unwrap_or_default();
        slot.ends_with("egress_spec") || slot.ends_with("mcast_grp")
    };
    let chosen = lines.iter().rposition(|line| line.place.is_some() && chooses(&line.text));
    let (word, at) = match chosen {
        Some(at) => ("decided in", at),
        None => ("last step:", lines.iter().rposition(|line| line.place.is_some())?),
    };
    let (file, line, source) = lines[at].place.as_ref()?;
    let mut text = format!("{word} {file}:{line}: {source}");
    let is = |at: usize, what| lines[at].text.starts_with(what);
    let caused =
        (0..=at).rev().find(|&at| is(at, "apply ") || (is(at, "action ") && (at == 0 || !is(at - 1, "apply "))));
    if let Some(cause) = caused.map(|at| &lines[at])
        && let Some((file, line, source)) = &cause.place
    {
        let what = if cause.text.starts_with("apply ") { &cause.text } else { source };
        text += &format!("\n    after {file}:{line}: {what}");
    }
    Some(text)
}

/// The report on a script: failures are printed at once on stderr, or everything as one object at the end.
#[derive(Default)]
struct Report {
    output: JsonArgs,
    script: String,
    passed: usize,
    failed: usize,
    failures: Vec<Value>,
    /// Output of each engine, with `--verbose`.
    engines: Vec<Value>,
}

impl Report {
    /// Reports a failed expectation or a wrong line of the script; line 0 is the end.
    fn fail(&mut self, engine: Option<&str>, line: usize, message: String) {
        self.failed += 1;
        if !self.output.json {
            let place = if line == 0 { "at the end".to_string() } else { format!("line {line}") };
            let engine = engine.map_or(String::new(), |engine| format!(" [{engine}]"));
            eprintln!("{}{engine}: {place}: {message}", self.script);
        }
        let line = Some(line).filter(|line| *line > 0);
        self.failures.push(json!({ "engine": engine, "line": line, "message": message }));
    }

    fn differ(&mut self, engine: &str, other: &str, difference: String) {
        self.failed += 1;
        if !self.output.json {
            eprintln!("{}: `{engine}` and `{other}` differ:\n{difference}", self.script);
        }
        let message = format!("`{engine}` and `{other}` differ:\n{difference}");
        self.failures.push(json!({ "engine": engine, "line": null, "message": message }));
    }

    /// Reports what was read and sent.
    fn say(&mut self, engine: &str, outcome: &Outcome) {
        if self.output.json {
            let sent = |(port, frame): &(u32, Vec<u8>)| json!({ "port": port, "frame": hex::encode(frame) });
            let sent: Vec<Value> = outcome.sent.iter().map(sent).collect();
            return self.engines.push(json!({ "engine": engine, "output": outcome.output, "sent": sent }));
        }
        outcome.output.iter().for_each(|text| println!("[{engine}] {text}"));
        outcome.sent.iter().for_each(|(port, frame)| println!("[{engine}] port {port}: {}", hex::encode(frame)));
    }

    /// Prints the totals and returns the exit code.
    fn finish(self) -> ExitCode {
        let Report { output, passed, failed, failures, engines, .. } = self;
        output.print(
            || json!({ "passed": passed, "failed": failed, "failures": failures, "engines": engines }),
            || format!("{passed} passed, {failed} failed"),
        );
        ExitCode::from(u8::from(failed > 0))
    }
}

/// Describes where two engines differ: the first frame, and cells.
fn difference(a: &Outcome, b: &Outcome) -> String {
    let mut lines = Vec::new();
    let frame = |o: &Outcome, i: usize| {
        o.sent.get(i).map_or("nothing".to_string(), |(port, f)| format!("port {port} {}", hex::encode(f)))
    };
    if let Some(i) = (0..a.sent.len().max(b.sent.len())).find(|&i| a.sent.get(i) != b.sent.get(i)) {
        lines.push(format!("  frame {i}: {}\n      against {}", frame(a, i), frame(b, i)));
    }
    for (name, cells) in &a.state {
        if b.state.get(name) != Some(cells) {
            lines.push(format!("  {name}: {cells:?}\n  against {:?}", b.state.get(name)));
        }
    }
    lines.join("\n")
}
