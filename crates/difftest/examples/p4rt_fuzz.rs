//! `cargo xtask p4rt-fuzz`: P4Runtime requests over programs of the tree, until there have been enough. Prints each fault with
//! the seed that repeats it.

use datapath::EngineKind;
use difftest::p4rt::{Subject, Totals};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
cargo xtask p4rt-fuzz [--requests N] [--seed S] [--round N] [--state DIR] [PROGRAM.p4 ...]

  --requests N  how many altogether (100000)
  --seed S      the first seed (1)
  --round N     requests to a fresh device, then another seed (5000)
  --state DIR   keep what is written below DIR, and restart from there after every 128 requests

Without programs: all of examples/ and tests/stf/ that have a script, and those of tests/py/.
";

fn main() -> ExitCode {
    let (mut requests, mut seed, mut round) = (100_000, 1, 5000);
    let mut programs: Vec<PathBuf> = Vec::new();
    let mut state: Option<PathBuf> = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if !arg.starts_with("--") {
            programs.push(arg.into());
            continue;
        }
        if arg == "--state" {
            state = args.next().map(PathBuf::from);
            if state.is_none() {
                return usage();
            }
            continue;
        }
        let target = match arg.as_str() {
            "--requests" => &mut requests,
            "--seed" => &mut seed,
            "--round" => &mut round,
            _ => return usage(),
        };
        match args.next().and_then(|value| value.parse::<u64>().ok()) {
            Some(value) => *target = value,
            None => return usage(),
        }
    }
    if programs.is_empty() {
        programs = with_scripts();
    }
    let start = Instant::now();
    let mut totals = Totals::default();
    let mut faults = 0;
    while totals.requests < requests && !programs.is_empty() {
        for program in &programs {
            // A directory is for one program; that of one that ended with a fault stays.
            let dir = state
                .as_ref()
                .map(|state| state.join(format!("{}-{seed}", program.file_stem().unwrap_or_default().display())));
            let asked = ask(program, dir.as_deref(), seed, round, &mut totals);
            if let (Ok(()), Some(dir)) = (&asked, &dir) {
                let _ = std::fs::remove_dir_all(dir);
            }
            if let Err(what) = asked {
                println!("{what}\n");
                faults += 1;
            }
            if totals.requests >= requests {
                break;
            }
        }
        seed += 1;
    }
    let Totals { requests, updates, done, read, restarts } = totals;
    let seconds = start.elapsed().as_secs();
    println!(
        "{requests} requests, {updates} updates ({done} done), {read} entities read, {restarts} restarts; {faults} faults, {seconds} s"
    );
    if faults == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// So many requests to a fresh device with one program.
fn ask(program: &Path, dir: Option<&Path>, seed: u64, round: u64, totals: &mut Totals) -> Result<(), String> {
    let cannot = |why: String| format!("{}: {why}", program.display());
    let mut subject = Subject::new(program, EngineKind::Machine, seed).map_err(cannot)?;
    if let Some(dir) = dir {
        if dir.exists() {
            return Err(cannot(format!("{} is there already", dir.display())));
        }
        subject.keep_in(dir).map_err(cannot)?;
    }
    subject.run(seed, round, totals).map_err(|fault| {
        let place = format!("{} --seed {} --round {round}", fault.program, fault.seed);
        format!("{place}, request {}: {}", fault.request, fault.what)
    })
}

fn usage() -> ExitCode {
    eprint!("{HELP}");
    ExitCode::from(2)
}

/// Programs with a script beside them.
fn with_scripts() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("examples"), PathBuf::from("tests/stf")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "p4") && path.with_extension("stf").exists() {
                found.push(path);
            }
        }
    }
    let more = std::fs::read_dir("tests/py").into_iter().flatten().flatten().map(|entry| entry.path());
    found.extend(more.filter(|path| path.extension().is_some_and(|e| e == "p4")));
    found.sort();
    found
}
