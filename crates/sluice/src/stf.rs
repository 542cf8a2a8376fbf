//! `sluice stf X.p4 X.stf`: runs a script, on one engine or on all with a comparison.

use crate::compile::ProgramArgs;
use anyhow::{Context, Result};
use datapath::{EngineKind, Local};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use stf::Outcome;

/// Arguments of `stf`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    program: ProgramArgs,
    /// The script.
    #[arg(value_name = "X.stf")]
    script: PathBuf,
    /// What runs the packets: the interpreter on optimised IR, on raw IR, machine code, or all three compared.
    #[arg(long, value_enum, default_value = "jit")]
    engine: Engine,
    /// Print what `register_read` and the like read, and every frame that is sent.
    #[arg(short, long)]
    verbose: bool,
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
    /// All of them, compared with each other.
    All,
}

/// Runs it.
pub fn main(args: &Args) -> Result<ExitCode> {
    let Some(compiled) = args.program.compile.compile_program(&args.program.program)? else {
        println!("0 passed, 1 failed");
        return Ok(ExitCode::from(1));
    };
    let text =
        std::fs::read_to_string(&args.script).with_context(|| format!("cannot read {}", args.script.display()))?;
    let lines = match stf::parse(&text) {
        Ok(lines) => lines,
        Err(errors) => {
            for error in &errors {
                eprintln!("{}: {error}", args.script.display());
            }
            println!("0 passed, {} failed", errors.len());
            return Ok(ExitCode::from(1));
        }
    };
    let raw = Arc::new(compiled.raw.context("the program has IR")?);
    let optimised = Arc::new(compiled.optimised.context("the program has optimised IR")?);
    let engines: &[(&str, &Arc<ir::Program>, EngineKind)] = &[
        ("raw", &raw, EngineKind::Interpreter),
        ("interp", &optimised, EngineKind::Interpreter),
        ("jit", &optimised, EngineKind::Machine),
        ("staged", &optimised, EngineKind::Staged),
    ];
    let wanted = |name: &str| match args.engine {
        Engine::All => true,
        Engine::Raw => name == "raw",
        Engine::Interp => name == "interp",
        Engine::Jit => name == "jit",
        Engine::Staged => name == "staged",
    };

    let code = args.program.compile.code()?;
    let mut passed = 0;
    let mut failed = 0;
    let mut first: Option<(&str, Outcome)> = None;
    for (name, program, kind) in engines.iter().filter(|(name, ..)| wanted(name)) {
        let pipeline = datapath::load_with(Arc::clone(program), *kind, 1, &code)?;
        let outcome = stf::run_script(&lines, &mut Local::new(Arc::new(pipeline)));
        passed += outcome.passed;
        failed += outcome.failures.len();
        for (line, message) in &outcome.failures {
            let place = if *line == 0 { "at the end".to_string() } else { format!("line {line}") };
            eprintln!("{} [{name}]: {place}: {message}", args.script.display());
        }
        if args.verbose {
            for text in &outcome.output {
                println!("[{name}] {text}");
            }
            for (port, frame) in &outcome.sent {
                println!("[{name}] port {port}: {}", hex::encode(frame));
            }
        }
        match &first {
            None => first = Some((name, outcome)),
            Some((other, reference)) => {
                let same = reference.sent == outcome.sent && reference.state == outcome.state;
                if same {
                    passed += 1
                } else {
                    failed += 1
                }
                if !same {
                    eprintln!("{}: `{name}` and `{other}` differ:", args.script.display());
                    report_difference(reference, &outcome);
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn report_difference(a: &Outcome, b: &Outcome) {
    let frame = |o: &Outcome, i: usize| {
        o.sent.get(i).map_or("nothing".to_string(), |(port, f)| format!("port {port} {}", hex::encode(f)))
    };
    if let Some(i) = (0..a.sent.len().max(b.sent.len())).find(|&i| a.sent.get(i) != b.sent.get(i)) {
        eprintln!("  frame {i}: {}\n      against {}", frame(a, i), frame(b, i));
    }
    for (name, cells) in &a.state {
        if b.state.get(name) != Some(cells) {
            eprintln!("  {name}: {cells:?}\n  against {:?}", b.state.get(name));
        }
    }
}
