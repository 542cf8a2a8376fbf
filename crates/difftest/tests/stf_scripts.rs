//! Every script of the tree on every engine: all its checks hold, and the engines agree on frames, state and log lines.
//!
//! `STF_FILTER=text` runs the scripts whose path has the text in it, and prints the frames that they sent.

mod common;

use datapath::{EngineKind, Local, Without};
use frontend::{Input, Options, Until};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stf::Outcome;

/// All scripts with a program of the same name.
fn scripts() -> Vec<PathBuf> {
    common::programs().into_iter().map(|p| p.with_extension("stf")).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// What is wrong with a script's runs, one line each.
fn run(script: &Path, verbose: bool) -> Vec<String> {
    let program = script.with_extension("p4");
    // Scripts of bmv2's behaviour lie in a folder of their own.
    let bmv2 = script.parent().is_some_and(|folder| folder.ends_with("tests/stf/bmv2"));
    let options = Options { bmv2, ..Options::default() };
    let compiled = match frontend::compile(Input::File(&program), &options, Until::Ir) {
        Ok(compiled) if !compiled.failed() => compiled,
        Ok(compiled) => return vec![compiled.render(false)],
        Err(error) => return vec![error.to_string()],
    };
    let text = std::fs::read_to_string(script).expect("a readable script");
    let lines = match stf::parse(&text) {
        Ok(lines) => lines,
        Err(errors) => return errors.iter().map(|e| e.to_string()).collect(),
    };
    let raw = Arc::new(compiled.raw.expect("the program has a `main`"));
    let optimised = Arc::new(compiled.optimised.expect("raw IR is optimised"));
    let engines = [
        ("raw", &raw, EngineKind::Interpreter, Without::default()),
        ("interp", &optimised, EngineKind::Interpreter, Without::default()),
        ("jit", &optimised, EngineKind::Machine, Without::default()),
        ("jit without all", &raw, EngineKind::Machine, Without::all()),
        ("staged", &optimised, EngineKind::Staged, Without::default()),
        ("mir", &optimised, EngineKind::Mir, Without::default()),
        ("mir-interp", &raw, EngineKind::MirInterpreter, Without::default()),
    ];
    let mut wrong = Vec::new();
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (name, program, kind, without) in engines {
        let pipeline = match datapath::load_with(Arc::clone(program), kind, 1, &without.code()) {
            Ok(pipeline) => pipeline,
            Err(error) => return vec![format!("[{name}] {error}")],
        };
        let outcome = stf::run_script(&lines, &mut Local::new(Arc::new(pipeline)));
        wrong.extend(outcome.failures.iter().map(|(line, message)| format!("[{name}] line {line}: {message}")));
        if verbose {
            outcome.sent.iter().for_each(|(port, frame)| println!("[{name}] port {port}: {}", hex(frame)));
        }
        if let Some(first) = outcomes.first() {
            let same = first.sent == outcome.sent && first.state == outcome.state && first.output == outcome.output;
            if !same {
                wrong.push(format!("[{name}] differs from [raw]"));
            }
        }
        outcomes.push(outcome);
    }
    wrong
}

#[test]
fn scripts_hold_on_every_engine() {
    let filter = std::env::var("STF_FILTER").ok();
    let scripts: Vec<PathBuf> = scripts()
        .into_iter()
        .filter(|s| filter.as_ref().is_none_or(|f| s.to_string_lossy().contains(f.as_str())))
        .collect();
    assert!(filter.is_some() || scripts.len() > 20, "found only {scripts:?}");
    let mut wrong = Vec::new();
    for script in &scripts {
        let name = script.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(script).display().to_string();
        wrong.extend(run(script, filter.is_some()).into_iter().map(|w| format!("{name}: {w}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
