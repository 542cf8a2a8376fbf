//! `sluice state check|dump|restore|backup`: works on state directories without a switch.
//!
//! Exit codes, for scripts: 0 the directory is complete; 1 it is usable but not complete (a torn tail was found, or a
//! dump of a damaged directory left something out); 2 it is damaged, in use, or missing. Problems go to stderr, one
//! line each. Tests: `tests/py/test_state.py`.

use crate::output::JsonArgs;
use anyhow::Result;
use serde_json::json;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use store::offline::{self, Report};
use store::{Finding, Severity};

const EXIT_CODES: &str = "Exit codes: 0 everything is there; 1 a record that was never acknowledged is cut off, or a salvaged dump \
                          leaves something out; 2 damaged, in use, or no such directory";

/// Arguments of `state`.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Read everything that a directory holds and check it; changes nothing. Not while a switch uses it: check a backup then.
    Check {
        /// The directory of `sluice run --state`.
        dir: PathBuf,
        #[command(flatten)]
        output: JsonArgs,
    },
    /// Print everything that is kept as text, from which `restore` makes a directory.
    Dump {
        /// The directory of `sluice run --state`.
        dir: PathBuf,
        /// Print what can be read of a damaged directory, and say on stderr what is lost.
        #[arg(long)]
        salvage: bool,
    },
    /// Make a directory from a backup or a dump.
    Restore {
        /// A backup (a directory) or a dump (a file).
        from: PathBuf,
        /// An empty directory, or one to be made.
        into: PathBuf,
        #[command(flatten)]
        output: JsonArgs,
    },
    /// Copy a directory, also while a switch runs on it: everything that was acknowledged before. The copy is checked.
    Backup {
        /// The directory of `sluice run --state`.
        dir: PathBuf,
        /// An empty directory, or one to be made.
        to: PathBuf,
        #[command(flatten)]
        output: JsonArgs,
    },
}

/// Runs `sluice state`.
///
/// # Errors
/// If the directory is damaged, in use or missing, or a file cannot be written.
pub fn main(args: &Args) -> Result<ExitCode> {
    match &args.what {
        What::Check { dir, output } => Ok(say(*output, &offline::check(dir)?)),
        What::Dump { dir, salvage } => {
            let mut out = BufWriter::new(std::io::stdout().lock());
            let findings = offline::dump(dir, *salvage, &mut out)?;
            out.flush()?;
            name(&findings);
            let lost = findings.iter().any(|finding| finding.severity > Severity::Note);
            Ok(ExitCode::from(u8::from(lost)))
        }
        What::Restore { from, into, output } => Ok(say(*output, &offline::restore(from, into)?)),
        What::Backup { dir, to, output } => Ok(say(*output, &offline::backup(dir, to)?)),
    }
}

fn name(findings: &[Finding]) {
    for finding in findings {
        eprintln!("{}: {finding}", word(finding.severity));
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Torn => "cut off",
        Severity::Unreadable => "unreadable",
        Severity::Damage => "damaged",
    }
}

fn say(output: JsonArgs, report: &Report) -> ExitCode {
    if !output.json {
        name(&report.findings);
    }
    let finding = |f: &Finding| json!({ "severity": word(f.severity), "text": f.to_string() });
    let config = |(device, slot, entities): &(u64, &str, usize)| json!({ "device_id": device, "config": slot, "entities": entities });
    output.print(
        || {
            json!({
                "generation": report.generation, "records": report.records,
                "configs": report.configs.iter().map(config).collect::<Vec<_>>(),
                "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
            })
        },
        || {
            let line = |(device, slot, entities): &(u64, &str, usize)| {
                format!("device {device}: {entities} entities, {slot}\n")
            };
            let lines: String = report.configs.iter().map(line).collect();
            lines + &format!("generation {}, {} records", report.generation, report.records)
        },
    );
    ExitCode::from(match report.severity() {
        Severity::Note => 0,
        Severity::Torn => 1,
        Severity::Unreadable | Severity::Damage => 2,
    })
}
