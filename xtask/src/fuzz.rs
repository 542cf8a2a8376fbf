//! `cargo xtask fuzz [SECONDS]`: runs each target of `fuzz/` with cargo-fuzz.

use anyhow::{Context, Result, bail};
use std::process::{Command, ExitCode};

/// Runs every target for `seconds`; stops at the first crash.
pub fn run(seconds: u32) -> Result<ExitCode> {
    let works = |args: &[&str]| Command::new("cargo").args(args).output().is_ok_and(|o| o.status.success());
    if !works(&["+nightly", "fuzz", "--version"]) {
        if !works(&["+nightly", "--version"]) {
            bail!("cargo-fuzz needs the nightly toolchain: rustup toolchain install nightly");
        }
        eprintln!("installing cargo-fuzz");
        let status = Command::new("cargo").args(["+nightly", "install", "--locked", "cargo-fuzz"]).status()?;
        anyhow::ensure!(status.success(), "cargo install cargo-fuzz failed");
    }
    // The first inputs: cargo-fuzz keeps what it finds beside them.
    let seed = ["run", "-q", "-p", "difftest", "--example", "fuzz_seeds", "fuzz/corpus"];
    anyhow::ensure!(Command::new("cargo").args(seed).status()?.success(), "the first inputs cannot be written");
    let list = Command::new("cargo").args(["+nightly", "fuzz", "list"]).output().context("cargo fuzz list")?;
    anyhow::ensure!(list.status.success(), "cargo fuzz list: {}", String::from_utf8_lossy(&list.stderr));
    let mut crashed = 0;
    for target in String::from_utf8(list.stdout)?.lines() {
        println!("== {target}, {seconds} s");
        let limit = format!("-max_total_time={seconds}");
        let args = ["+nightly", "fuzz", "run", target, "--", &limit, "-timeout=10", "-rss_limit_mb=4096"];
        if !Command::new("cargo").args(args).status()?.success() {
            println!(
                "{target}: crashed; the input is in fuzz/artifacts/{target}, its place is fuzz/regressions/{target}"
            );
            crashed += 1;
        }
    }
    Ok(if crashed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
