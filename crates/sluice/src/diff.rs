//! `sluice diff OLD.p4 NEW.p4`: the state of a running switch that would be kept if the new program replaced the old
//! one.
//!
//! `sluice load` makes the same comparison (`control::compare`). Exit code 1 when a program is wrong.

use crate::compile::CompileArgs;
use anyhow::{Context, Result};
use control::compare::{Comparison, Fate, Side, compare};
use frontend::Compiled;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `diff`.
#[derive(clap::Args)]
pub struct Args {
    /// The program that runs.
    #[arg(value_name = "OLD.p4")]
    old: PathBuf,
    /// The program that takes its place.
    #[arg(value_name = "NEW.p4")]
    new: PathBuf,
    #[command(flatten)]
    compile: CompileArgs,
    /// Print one JSON object per line instead of text.
    #[arg(long)]
    json: bool,
}

/// Runs `sluice diff`.
///
/// # Errors
/// If a file cannot be read.
pub fn main(args: &Args) -> Result<ExitCode> {
    let (Some(old), Some(new)) = (args.compile.compile_program(&args.old)?, args.compile.compile_program(&args.new)?)
    else {
        return Ok(ExitCode::from(1));
    };
    let comparison = compare(side(&old, &args.old)?, side(&new, &args.new)?);
    match args.json {
        true => print!("{}", to_json(&comparison)),
        false => print!("{}", render(&comparison)),
    }
    Ok(ExitCode::SUCCESS)
}

fn side<'a>(compiled: &'a Compiled, path: &Path) -> Result<Side<'a>> {
    let (info, program) = (compiled.p4info.as_ref(), compiled.optimised.as_ref());
    let (info, program) = info.zip(program).with_context(|| format!("{} has no program", path.display()))?;
    Ok(Side { info, program })
}

fn render(comparison: &Comparison) -> String {
    let mut text = String::new();
    for o in &comparison.objects {
        text += &format!("{:<13} {} `{}`\n", o.fate.name(), o.kind.noun(), o.name);
        for note in &o.notes {
            text += &format!("{:<13} - {note}\n", "");
        }
    }
    let count = |fate| comparison.objects.iter().filter(|o| o.fate == fate).count();
    let fates = [Fate::Kept, Fate::Copied, Fate::Incompatible, Fate::Dropped, Fate::New];
    let counts: Vec<String> = fates.iter().map(|fate| format!("{} {}", count(*fate), fate.name())).collect();
    text + &format!("{}\n", counts.join(", "))
}

fn to_json(comparison: &Comparison) -> String {
    let line = |o: &control::compare::Compared| {
        let object = serde_json::json!({
            "kind": o.kind.noun(), "name": o.name, "fate": o.fate.name(), "notes": o.notes,
        });
        format!("{object}\n")
    };
    comparison.objects.iter().map(line).collect()
}
