//! `cargo xtask p4rt-fuzz`: P4Runtime requests, judged by a model. The work is `crates/difftest/examples/p4rt_fuzz.rs`.

use anyhow::Result;
use std::process::{Command, ExitCode};

/// Builds the runner and passes the arguments on.
pub fn run(args: &[String]) -> Result<ExitCode> {
    let status = Command::new("cargo")
        .args(["run", "-q", "-p", "difftest", "--example", "p4rt_fuzz", "--"])
        .args(args)
        .status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
