//! `cargo xtask p4c-corpus DIR`: holds Sluice against a checkout of p4lang/p4c, which stays outside this repository.
//!
//! One suite per file of `corpus/`; each gives cases and the bars that they are held against:
//!
//! | suite | what runs |
//! | --- | --- |
//! | `accept` | `sluice check --time` on every sample that needs no architecture but ours |
//! | `stf` | `sluice stf` on every sample with a script for an architecture of ours, on each engine |
//! | `refuse` | `sluice check` on every wrong program, and whether the first error is on p4c's line |
//! | `prefixes` | prefixes of every file, compiled: no panic, no hang, no runaway memory |
//! | `mutants` | accepted programs with a few tokens changed, likewise |
//! | `generated` | scripts of p4c's test generator for programs of any origin |
//! | `bmv2-json` | JSON that `p4c-bm2-ss` made of samples, with their scripts |
//! | `programs` | how long real programs take to compile, and the traffic scripts of `tests/real/` |
//!
//! Each case is a process of its own with a limit on time and memory, so that a crash or a hang is one failed case and not the
//! end. A table goes to stdout, every case with its details to `TARGET/p4c-corpus.json`. The exit code is 1 when a bar is
//! missed. What the counts were, and which wrong programs are accepted on purpose, is in `docs/p4-coverage.md`.

mod accept;
mod bmv2;
mod files;
mod generated;
mod mangled;
mod peer;
mod process;
mod real;
mod refuse;
mod report;
mod stf;

use anyhow::{Context, Result, bail, ensure};
use report::Suite;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What the command line asks for.
#[derive(Debug)]
pub struct Options {
    dir: PathBuf,
    engines: Vec<String>,
    suites: Vec<String>,
    /// Prefixes per file.
    cuts: usize,
    /// Mutations per accepted program.
    mutants: usize,
    seed: u64,
    /// The reference compiler's `p4test`, to compare compile times with.
    p4test: Option<PathBuf>,
    /// Of the suite `bmv2-json`: where the JSON is.
    json: Option<PathBuf>,
    /// Of the suite `generated`: `SCRIPTS=ROOT`, folders.
    generated: Vec<String>,
    /// Another build than the release build of this tree, with `mangle` beside it.
    sluice: Option<PathBuf>,
}

const ENGINES: [&str; 4] = ["raw", "interp", "jit", "all"];
const SUITES: [&str; 8] = ["accept", "stf", "refuse", "programs", "prefixes", "mutants", "generated", "bmv2-json"];
/// Those that run unless others are named.
const OF_THE_CHECKOUT: usize = 6;

impl Options {
    /// Reads `DIR [--engine E,F] [--suite A,B] [--cuts N] [--mutants N] [--seed N] [--p4test PATH] [--generated SCRIPTS=ROOT]
    /// [--json DIR] [--sluice PATH]`.
    pub fn parse(args: &[&str]) -> Result<Options> {
        let mut dir = None;
        let (mut engines, mut suites) = (
            ENGINES.map(String::from).to_vec(),
            SUITES[..OF_THE_CHECKOUT].iter().map(|s| s.to_string()).collect::<Vec<_>>(),
        );
        let (mut cuts, mut mutants, mut seed, mut generated) = (64, 16, 1, vec![]);
        let (mut p4test, mut json, mut sluice) = (None, None, None);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if !arg.starts_with('-') {
                dir = Some(PathBuf::from(arg));
                continue;
            }
            let value = *args.next().with_context(|| format!("{arg} needs a value"))?;
            let number = || value.parse().with_context(|| format!("{arg} needs a number, not `{value}`"));
            match *arg {
                "--engine" => engines = list(value, &ENGINES)?,
                "--suite" => suites = list(value, &SUITES)?,
                "--cuts" => cuts = number()?,
                "--mutants" => mutants = number()?,
                "--seed" => seed = number()? as u64,
                "--generated" => generated.push(value.to_string()),
                "--json" => json = Some(PathBuf::from(value)),
                "--p4test" => p4test = Some(PathBuf::from(value)),
                "--sluice" => sluice = Some(PathBuf::from(value)),
                flag => bail!("p4c-corpus has no option {flag}"),
            }
        }
        let dir = dir.context("p4c-corpus needs the folder of a checkout of p4lang/p4c")?;
        Ok(Options { dir, engines, suites, cuts, mutants, seed, p4test, generated, json, sluice })
    }
}

/// The words of a list with commas, all of which must be known.
fn list(value: &str, known: &[&str]) -> Result<Vec<String>> {
    let words: Vec<String> = value.split(',').map(String::from).collect();
    let unknown = words.iter().find(|w| !known.contains(&w.as_str()));
    ensure!(unknown.is_none(), "there are {}, not `{}`", known.join(", "), unknown.map_or("", |u| u));
    Ok(words)
}

/// What every suite needs.
struct Corpus {
    /// The command.
    sluice: PathBuf,
    /// `testdata/p4_16_samples`, absolute.
    samples: PathBuf,
    /// `p4include`, absolute: architectures that Sluice has no declarations of.
    includes: PathBuf,
    /// `testdata` of the checkout.
    testdata: PathBuf,
    engines: Vec<String>,
    p4test: Option<PathBuf>,
}

/// Runs the suites, prints the table and writes the report.
pub fn run(options: Options) -> Result<ExitCode> {
    let testdata = options.dir.join("testdata").canonicalize().unwrap_or_default();
    let samples = testdata.join("p4_16_samples");
    ensure!(samples.is_dir(), "{} is no checkout of p4lang/p4c", options.dir.display());
    let target = target_dir();
    let sluice = match &options.sluice {
        Some(sluice) => sluice.canonicalize().with_context(|| format!("there is no {}", sluice.display()))?,
        None => build(&target)?,
    };
    let includes = options.dir.join("p4include").canonicalize().context("the checkout has no p4include")?;
    let context = Corpus { sluice, samples, includes, testdata, engines: options.engines, p4test: options.p4test };

    let mut suites: Vec<Suite> = Vec::new();
    for name in &options.suites {
        eprintln!("{name} ...");
        match name.as_str() {
            "accept" => suites.push(accept::run(&context)?),
            "stf" => suites.extend(stf::run(&context)?),
            "refuse" => suites.push(refuse::run(&context)?),
            "bmv2-json" => suites.extend(bmv2::run(&context, options.json.as_deref())?),
            "generated" => suites.extend(generated::run(&context, &options.generated)?),
            "programs" => suites.extend(real::run(&context)?),
            "prefixes" => {
                let plan = mangled::Plan { cuts: options.cuts, byte_cuts: options.cuts / 4, mutants: 0, seed: 0 };
                suites.push(mangled::run(&context, name, plan)?);
            }
            "mutants" => {
                let plan = mangled::Plan { cuts: 0, byte_cuts: 0, mutants: options.mutants, seed: options.seed };
                suites.push(mangled::run(&context, name, plan)?);
            }
            other => bail!("no suite {other}"),
        }
    }
    report::print(&suites);
    let path = target.join("p4c-corpus.json");
    report::write(&suites, &path)?;
    println!("\nevery case: {}", path.display());
    Ok(ExitCode::from(u8::from(suites.iter().any(Suite::missed))))
}

/// Builds the commands for release.
fn build(target: &Path) -> Result<PathBuf> {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--bin", "sluice", "--bin", "mangle"])
        .status()?;
    ensure!(status.success(), "sluice does not build");
    target.join("release/sluice").canonicalize().context("the build left no target/release/sluice")
}

/// Where cargo builds.
fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| Path::new("target").to_path_buf(), PathBuf::from)
}
