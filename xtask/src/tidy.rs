//! `cargo xtask tidy`: the house rules that no compiler checks.

mod code_map;
mod modules;

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Crates that may contain unsafe code.
const UNSAFE_CRATES: [&str; 14] = [
    "abi",
    "codegen",
    "jit",
    "tables",
    "pktio",
    "shared-memory",
    "pktio-vhost",
    "pktio-memif",
    "pktio-kernel",
    "pktio-dpdk",
    "datapath",
    "bench",
    "bpf",
    "flowcache",
];
/// Lines after which a file must give a reason in its first lines («long because …»).
const LONG: usize = 1000;

/// Checks everything; prints one line per finding.
pub fn run() -> Result<ExitCode> {
    let files = tracked_files()?;
    let mut findings = Vec::new();
    for file in &files {
        if file.extension().is_some_and(|e| e == "rs") {
            rust_file(file, &mut findings)?;
        }
    }
    architecture(&mut findings)?;
    examples(&mut findings)?;
    trust(&mut findings)?;
    crate::figures::check(&mut findings)?;
    crate::links::check(&files, &mut findings)?;
    code_map::check(&mut findings)?;
    modules::check(&files, &mut findings)?;
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} findings", files.len(), findings.len());
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Files that git knows or would add.
pub fn tracked_files() -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("git is needed to list the files")?;
    let names = String::from_utf8(output.stdout)?;
    Ok(names.lines().map(PathBuf::from).filter(|p| p.exists()).collect())
}

fn rust_file(file: &Path, findings: &mut Vec<String>) -> Result<()> {
    let text = std::fs::read_to_string(file)?;
    let name = file.display();
    let is_test = file.components().any(|c| c.as_os_str() == "tests" || c.as_os_str() == "tests.rs");
    if !text.starts_with("//!") && !is_test {
        findings.push(format!("{name}: does not begin with `//!` and what it promises"));
    }
    let lines = text.lines().count();
    let head: String = text.lines().take(40).collect::<Vec<_>>().join("\n").to_lowercase();
    if lines > LONG && !head.contains("long because") {
        findings.push(format!("{name}: {lines} lines and no «Long because …» in its first lines"));
    }
    // Written in two pieces, so that this file does not find itself.
    let [allowance, block, implementation] =
        [["allow(unsafe", "_code)"], ["unsafe", " {"], ["unsafe", " impl"]].map(|parts| parts.concat());
    let allows_unsafe = text.contains(&allowance);
    let permitted = UNSAFE_CRATES.iter().any(|c| file.starts_with(Path::new("crates").join(c)));
    if allows_unsafe && !permitted {
        findings.push(format!("{name}: unsafe code outside {}", UNSAFE_CRATES.join(", ")));
    }
    let lines: Vec<&str> = text.lines().collect();
    for (i, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let opens = code.contains(&block) || code.contains(&implementation);
        let explained = lines[i.saturating_sub(8)..=i].iter().any(|l| l.contains("SAFETY"));
        if opens && !explained && !is_test {
            findings.push(format!("{name}:{}: unsafe without a SAFETY line", i + 1));
        }
        if line.trim_end().len() != line.len() {
            findings.push(format!("{name}:{}: white space at the end", i + 1));
        }
    }
    Ok(())
}

/// Paths in backticks that look like ours must exist, and every dependency has its line.
fn architecture(findings: &mut Vec<String>) -> Result<()> {
    for page in ["ARCHITECTURE.md", "README.md", "CHANGELOG.md"] {
        let text = std::fs::read_to_string(page).with_context(|| format!("{page} is missing"))?;
        if page == "ARCHITECTURE.md" && text.lines().count() > 300 {
            findings.push(format!("{page}: more than 300 lines"));
        }
        for path in text.split('`').skip(1).step_by(2) {
            let ours = ["crates/", "examples/", "docs/", "p4lib/", "scripts/", "tests/", "fuzz/", "xtask/"];
            let plain = !path.contains(['*', ' ', '<', '{']);
            if plain && ours.iter().any(|o| path.starts_with(o)) && !Path::new(path).exists() {
                findings.push(format!("{page}: `{path}` does not exist"));
            }
        }
    }
    let architecture = std::fs::read_to_string("ARCHITECTURE.md")?;
    let manifest = std::fs::read_to_string("Cargo.toml")?;
    let dependencies = manifest.split("[workspace.dependencies]").nth(1).unwrap_or_default();
    for line in dependencies.lines().take_while(|l| !l.starts_with('[')) {
        let Some((name, value)) = line.split_once('=') else { continue };
        let name = name.trim();
        let family = name.split('-').next().unwrap_or(name);
        let named = architecture.contains(name) || architecture.contains(&format!("{family}-*"));
        if !value.contains("path") && !name.starts_with('#') && !named {
            findings.push(format!("ARCHITECTURE.md: no reason for the dependency `{name}`"));
        }
    }
    Ok(())
}

/// Every example has its script and its line in the overview.
fn examples(findings: &mut Vec<String>) -> Result<()> {
    let overview = std::fs::read_to_string("examples/README.md").context("examples/README.md is missing")?;
    for entry in std::fs::read_dir("examples")? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|n| n.to_str()).filter(|_| path.is_dir()) else { continue };
        // Changes of another program have no script of their own.
        let changes =
            std::fs::read_dir(&path)?.flatten().any(|file| file.path().extension().is_some_and(|e| e == "diff"));
        for file in [format!("{name}.p4"), format!("{name}.stf")].into_iter().filter(|_| !changes) {
            if !path.join(&file).exists() {
                findings.push(format!("{}: has no {file}", path.display()));
            }
        }
        if !overview.contains(&format!("`{name}`")) {
            findings.push(format!("examples/README.md: does not name `{name}`"));
        }
    }
    Ok(())
}

/// Tests that the threat model names, `FILE::NAME` in backticks, exist.
fn trust(findings: &mut Vec<String>) -> Result<()> {
    let page = "docs/trust.md";
    let text = std::fs::read_to_string(page).with_context(|| format!("{page} is missing"))?;
    let mut named = 0;
    for test in text.split('`').skip(1).step_by(2) {
        let Some((file, name)) = test.split_once("::") else { continue };
        named += 1;
        let found = std::fs::read_to_string(file).is_ok_and(|source| defines(&source, name));
        if !found {
            findings.push(format!("{page}: there is no test `{name}` in {file}"));
        }
    }
    if named == 0 {
        findings.push(format!("{page}: names no test"));
    }
    Ok(())
}

/// Whether a source in Rust or Python has a function of that name.
fn defines(source: &str, name: &str) -> bool {
    let begins = |line: &str, word: &str| {
        line.trim_start()
            .strip_prefix(word)
            .is_some_and(|rest| rest.strip_prefix(name).is_some_and(|r| r.starts_with('(')))
    };
    source.lines().any(|line| ["fn ", "async fn ", "def "].iter().any(|word| begins(line, word)))
}

#[cfg(test)]
mod tests {
    use super::defines;

    #[test]
    fn a_test_is_found_by_its_whole_name() {
        let source = "#[test]\nfn one_thing() {}\ndef test_other(messages):\n";
        assert!(defines(source, "one_thing") && defines(source, "test_other"));
        assert!(!defines(source, "one") && !defines(source, "thing") && !defines(source, "test_one_thing"));
    }
}
