//! The reference compiler's `p4test` beside ours: how long each takes for a program, as whole processes, in turn.
//!
//! `p4test` is p4c's front end and mid end: it parses, checks and rewrites a program and makes no code. Ours goes on to
//! machine code. Both run on the same processor, one after the other, and the least time of each counts.

use super::Corpus;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// How often each runs.
const RUNS: usize = 5;

/// Milliseconds of both.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    pub p4test: f64,
    pub ours: f64,
}

impl Compared {
    /// Ours over theirs.
    pub fn ratio(self) -> f64 {
        self.ours / self.p4test
    }
}

/// Times both compilers on a program; `p4test` is the path of theirs.
pub fn compare(corpus: &Corpus, p4test: &Path, program: &Path) -> Result<Compared> {
    let mut best = Compared { p4test: f64::INFINITY, ours: f64::INFINITY };
    for _ in 0..RUNS {
        let mut theirs = pinned(p4test);
        theirs.arg("-I").arg(&corpus.includes).arg("-I").arg(&corpus.samples).arg(program);
        best.p4test = best.p4test.min(time(theirs)?);
        let mut ours = pinned(&corpus.sluice);
        ours.args(["check", "--time", "-I"]).arg(&corpus.samples).arg(program);
        best.ours = best.ours.min(time(ours)?);
    }
    Ok(best)
}

fn pinned(program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(program);
    command
}

/// Milliseconds that a process takes, which must succeed.
fn time(mut command: Command) -> Result<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    let ms = start.elapsed().as_secs_f64() * 1000.0;
    ensure!(status.success(), "{command:?} failed");
    Ok(ms)
}
