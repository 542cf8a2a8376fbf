//! `cargo xtask stopped [SECONDS]`: workers are stopped at random instructions while tables change, for longer than the test suite
//! does (`crates/datapath/tests/stopped.rs`), with the code of a release build.

use anyhow::{Context, Result};
use std::process::{Command, ExitCode};

/// Runs the test for so many seconds; its last lines say what happened.
pub fn run(seconds: u64) -> Result<ExitCode> {
    let mut test = Command::new("cargo");
    test.args([
        "test",
        "--release",
        "--package",
        "datapath",
        "--test",
        "stopped",
        "--",
        "--nocapture",
        "any_instruction",
    ]);
    let status = test.env("STOPPED_MS", (1000 * seconds).to_string()).status().context("cargo cannot be run")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
