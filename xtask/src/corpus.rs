//! `cargo xtask p4c-corpus DIR`: runs a checkout of p4lang/p4c, which stays outside this repository.
//!
//! Each program is a process of its own with a time limit, so that a crash or a hang is one failed case and not the end.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// No file of the corpus may take longer.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// What became of one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Passed,
    Failed,
    /// Ended by a signal or a panic.
    Crashed,
    TimedOut,
}

/// Runs everything and prints a table; the report goes to `target/p4c-corpus.csv`.
pub fn run(dir: &Path, engine: &str) -> Result<ExitCode> {
    let samples = dir.join("testdata/p4_16_samples");
    ensure!(samples.is_dir(), "{} is no checkout of p4lang/p4c", dir.display());
    let status = Command::new(env!("CARGO")).args(["build", "--release", "--quiet", "--bin", "sluice"]).status()?;
    ensure!(status.success(), "sluice does not build");
    let sluice = Path::new("target/release/sluice").canonicalize().or_else(|_| in_target_dir())?;

    let mut programs: Vec<PathBuf> =
        std::fs::read_dir(&samples)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    programs.retain(|p| p.extension().is_some_and(|e| e == "p4"));
    programs.sort();

    let mut report = String::from("suite,case,verdict,detail\n");
    let engines: &[&str] = if engine == "all" { &["raw", "interp", "jit", "all"] } else { &[engine] };
    let scripts: Vec<(&PathBuf, PathBuf)> = programs
        .iter()
        .map(|p| (p, p.with_extension("stf")))
        .filter(|(p, script)| script.exists() && is_v1model(p))
        .collect();
    println!("{} programs, {} of them for v1model with a script", programs.len(), scripts.len());

    let mut rows = Vec::new();
    let mut check = Vec::new();
    for program in programs.iter().filter(|p| needs_only_ours(p)) {
        let mut command = Command::new(&sluice);
        command.arg("check").arg(program).arg("-I").arg(&samples);
        check.push((program.clone(), limited(command)?));
    }
    rows.push(("accept".to_string(), check));
    for engine in engines {
        let mut cases = Vec::new();
        for (program, script) in &scripts {
            let mut command = Command::new(&sluice);
            command.arg("stf").arg(program).arg(script).args(["--engine", engine]).arg("-I").arg(&samples);
            cases.push(((*program).clone(), limited(command)?));
        }
        rows.push((format!("stf {engine}"), cases));
    }

    println!("{:12} {:>6} {:>7} {:>7} {:>8} {:>6}", "suite", "cases", "passed", "failed", "crashed", "hung");
    for (suite, cases) in &rows {
        let count = |v: Verdict| cases.iter().filter(|(_, (have, _))| *have == v).count();
        println!(
            "{suite:12} {:6} {:7} {:7} {:8} {:6}",
            cases.len(),
            count(Verdict::Passed),
            count(Verdict::Failed),
            count(Verdict::Crashed),
            count(Verdict::TimedOut)
        );
        for (program, (verdict, detail)) in cases {
            let name = program.file_stem().unwrap_or_default().to_string_lossy();
            report += &format!("{suite},{name},{verdict:?},\"{}\"\n", detail.replace('"', "'"));
        }
    }
    std::fs::create_dir_all("target")?;
    std::fs::write("target/p4c-corpus.csv", report)?;
    println!("each case: target/p4c-corpus.csv");
    Ok(ExitCode::SUCCESS)
}

fn in_target_dir() -> std::io::Result<PathBuf> {
    let dir = std::env::var("CARGO_TARGET_DIR").map_err(std::io::Error::other)?;
    Path::new(&dir).join("release/sluice").canonicalize()
}

fn includes(program: &Path) -> Vec<String> {
    let text = String::from_utf8_lossy(&std::fs::read(program).unwrap_or_default()).into_owned();
    text.lines()
        .filter_map(|l| l.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include"))
        .map(|rest| rest.trim().trim_matches(['<', '>', '"']).split(['>', '"']).next().unwrap_or_default().to_string())
        .collect()
}

fn is_v1model(program: &Path) -> bool {
    includes(program).iter().any(|i| i.ends_with("v1model.p4"))
}

/// Whether a program includes no architecture but v1model.
fn needs_only_ours(program: &Path) -> bool {
    let all = includes(program);
    let known = |i: &String| i == "core.p4" || i == "v1model.p4";
    all.iter().all(|i| known(i) || program.with_file_name(i).exists()) && all.iter().any(known)
}

fn limited(mut command: Command) -> Result<(Verdict, String)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start sluice")?;
    let mut stderr = child.stderr.take().context("stderr is a pipe")?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = std::io::Read::read_to_end(&mut stderr, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let start = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if start.elapsed() > TIME_LIMIT => {
                child.kill()?;
                child.wait()?;
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let text = reader.join().unwrap_or_default();
    let first = text.lines().find(|l| !l.starts_with("warning") && !l.is_empty()).unwrap_or_default().to_string();
    let verdict = match status {
        None => Verdict::TimedOut,
        Some(s) if s.success() => Verdict::Passed,
        Some(s) if s.code() == Some(101) || s.code().is_none() => Verdict::Crashed,
        Some(_) => Verdict::Failed,
    };
    Ok((verdict, first))
}
