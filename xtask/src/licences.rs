//! `cargo xtask licences`: every dependency has a licence we accept.

use anyhow::{Context, Result, ensure};
use std::process::{Command, ExitCode};

/// Licences that do not bind a program that links them beyond attribution.
const ACCEPTED: [&str; 13] = [
    "0BSD",
    "BSL-1.0",
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "CC0-1.0",
    "Unlicense",
];

/// Lists all packages with their licences and names those that are not accepted.
pub fn run() -> Result<ExitCode> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--edges", "normal,build", "--prefix", "none", "--format", "{p}|{l}"])
        .output()
        .context("cargo tree")?;
    ensure!(output.status.success(), "cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    let mut lines: Vec<String> = String::from_utf8(output.stdout)?.lines().map(|l| l.replace(" (*)", "")).collect();
    lines.sort();
    lines.dedup();
    let mut refused = 0;
    for line in &lines {
        let Some((package, licence)) = line.rsplit_once('|') else { continue };
        if !accepted(licence) {
            println!("{package}: licence `{licence}`");
            refused += 1;
        }
    }
    println!("licences: {} packages, {refused} not accepted", lines.len());
    Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// A licence expression: one alternative of `OR` must have all its parts of `AND` accepted.
fn accepted(expression: &str) -> bool {
    let plain = expression.replace(['(', ')'], "");
    let mut alternatives = plain.split(" OR ").flat_map(|a| a.split('/'));
    alternatives.any(|alternative| alternative.split(" AND ").all(|part| ACCEPTED.contains(&part.trim())))
}

#[cfg(test)]
mod tests {
    use super::accepted;

    #[test]
    fn expressions() {
        assert!(accepted("MIT OR GPL-3.0") && accepted("MIT/Apache-2.0") && accepted("(MIT OR Apache-2.0) AND MIT"));
        assert!(!accepted("GPL-2.0") && !accepted("MIT AND GPL-2.0") && !accepted(""));
    }
}
