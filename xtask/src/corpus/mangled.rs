//! `prefixes` and `mutants`: no panic, no hang and no runaway memory on any file of the corpus, on any prefix of one, nor on an
//! accepted program with a few tokens changed.
//!
//! The command `mangle` (`crates/difftest/src/bin/mangle.rs`) compiles all variants of a file in one process, under the memory
//! limit, and says before each which one it is; from here each is held against the time limit. When a variant ends the
//! process, a new one goes on behind it.

use super::process::{self, TIME_LIMIT};
use super::report::{Bar, Case, Suite, Verdict};
use super::{Corpus, files};
use anyhow::{Context, Result};
use serde_json::{Map, Value};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};

/// After so many ended processes a file is given up.
const RESTARTS_MAX: usize = 8;

/// Which variants, per file.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Prefixes that end between two tokens.
    pub cuts: usize,
    /// Prefixes that end anywhere.
    pub byte_cuts: usize,
    /// Mutations.
    pub mutants: usize,
    /// For the mutations.
    pub seed: u64,
}

/// Runs it over samples and wrong programs.
pub fn run(corpus: &Corpus, name: &str, plan: Plan) -> Result<Suite> {
    let mut files = files::below(&corpus.samples, "p4")?;
    files.extend(files::below(&corpus.testdata.join("p4_16_errors"), "p4")?);
    let cases = process::for_each(&files, |file| case(corpus, file, plan))?;
    let sum = |field: &str| -> u64 { cases.iter().filter_map(|c| c.details.get(field)?.as_u64()).sum() };
    let variants = sum("variants");
    let remarks =
        vec![format!("{variants} variants of {} files compiled, {} of them accepted", files.len(), sum("accepted"))];
    let mut suite = Suite { name: name.into(), cases, bars: Vec::new(), remarks };
    let passed = suite.count(Verdict::Passed);
    let of = suite.cases.len();
    suite.bars.push(Bar::AtLeast { what: "files without a panic or hang".into(), have: passed, of, need: of });
    Ok(suite)
}

/// What happened to the variants of one file.
#[derive(Default)]
struct Findings {
    variants: u64,
    accepted: u64,
    verdict: Option<Verdict>,
    lines: Vec<String>,
}

impl Findings {
    fn add(&mut self, verdict: Verdict, line: String) {
        self.verdict.get_or_insert(verdict);
        self.lines.push(line);
    }
}

fn case(corpus: &Corpus, file: &Path, plan: Plan) -> Result<Case> {
    let mut findings = Findings::default();
    let mut from = 0;
    for _ in 0..RESTARTS_MAX {
        match one_process(corpus, file, plan, from, &mut findings)? {
            Some(ended_by) => from = ended_by + 1,
            None => break,
        }
    }
    let name = file.strip_prefix(&corpus.testdata).unwrap_or(file).display().to_string();
    let mut case = Case { name, verdict: findings.verdict.unwrap_or(Verdict::Passed), details: Map::new() };
    case.set("variants", findings.variants);
    case.set("accepted", findings.accepted);
    if let Some(first) = findings.lines.first() {
        case.set("reason", first.clone());
        case.set("findings", findings.lines.iter().map(|l| Value::from(l.as_str())).collect::<Vec<_>>());
    }
    Ok(case)
}

/// Runs the variants from one on; the one that ended the process, if one did.
fn one_process(
    corpus: &Corpus,
    file: &Path,
    plan: Plan,
    from: usize,
    findings: &mut Findings,
) -> Result<Option<usize>> {
    let mut command = process::command(corpus.sluice.with_file_name("mangle"));
    command.arg(file).arg("-I").arg(&corpus.samples).arg("-I").arg(corpus.testdata.join("p4_16_errors"));
    let numbers = [
        ("--cuts", plan.cuts as u64),
        ("--byte-cuts", plan.byte_cuts as u64),
        ("--mutants", plan.mutants as u64),
        ("--seed", plan.seed),
        ("--from", from as u64),
    ];
    for (flag, number) in numbers {
        command.arg(flag).arg(number.to_string());
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start mangle")?;
    let stdout = child.stdout.take().context("stdout is a pipe")?;
    let (sender, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        BufReader::new(stdout).lines().map_while(Result::ok).for_each(|line| _ = sender.send(line));
    });
    let mut at = from;
    let ended = loop {
        match lines.recv_timeout(TIME_LIMIT) {
            Ok(line) => {
                let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
                match word {
                    "begin" => {
                        at = rest.parse().context("mangle counts its variants")?;
                        findings.variants += 1;
                    }
                    "panic" => findings.add(Verdict::Crashed, rest.to_string()),
                    "done" => {
                        let accepted = rest.split(' ').next().and_then(|n| n.parse::<u64>().ok());
                        findings.accepted += accepted.context("mangle counts what is accepted")?;
                        break None;
                    }
                    _ => {}
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                child.kill()?;
                findings.add(Verdict::TimedOut, format!("{at} takes more than {} s", TIME_LIMIT.as_secs()));
                break Some(at);
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait()?;
                findings.add(Verdict::Crashed, format!("{at} ends the process: {status}"));
                break Some(at);
            }
        }
    };
    child.wait()?;
    _ = reader.join();
    Ok(ended)
}
