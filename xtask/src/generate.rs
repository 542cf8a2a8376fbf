//! `cargo xtask generate`: generated programs on all engines. The work is `crates/difftest/examples/generate.rs`.

use anyhow::Result;
use std::process::{Command, ExitCode};

/// Builds the runner (with debug assertions: the IR verifier runs around each pass) and passes the arguments on.
pub fn run(args: &[String]) -> Result<ExitCode> {
    let status = Command::new("cargo")
        .args(["run", "-q", "-p", "difftest", "--example", "generate", "--"])
        .args(args)
        .status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
