//! `cargo xtask p4c-corpus DIR`: holds Sluice against a checkout of p4lang/p4c, which stays outside this repository.
//!
//! One suite per file of `corpus/`; each gives cases and the bars that they are held against:
//!
//! | suite | what runs |
//! | --- | --- |
//! | `accept` | `sluice check --time` on every sample that needs only `core.p4` or v1model |
//! | `stf` | `sluice stf` on every v1model sample with a script, on each engine |
//! | `refuse` | `sluice check` on every wrong program, and whether the first error is on p4c's line |
//!
//! Each case is a process of its own with a limit on time and memory, so that a crash or a hang is one failed case and not the
//! end. A table goes to stdout, every case with its details to `TARGET/p4c-corpus.json`. The exit code is 1 when a bar is
//! missed. What the counts were, and which wrong programs are accepted on purpose, is in `docs/p4-coverage.md`.

mod accept;
mod files;
mod process;
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
}

const ENGINES: [&str; 4] = ["raw", "interp", "jit", "all"];
const SUITES: [&str; 3] = ["accept", "stf", "refuse"];

impl Options {
    /// Reads `DIR [--engine E] [--suite A,B]`.
    pub fn parse(args: &[&str]) -> Result<Options> {
        let mut dir = None;
        let (mut engines, mut suites) = (ENGINES.map(String::from).to_vec(), SUITES.map(String::from).to_vec());
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut list = |known: &[&str]| -> Result<Vec<String>> {
                let value = args.next().with_context(|| format!("{arg} needs a value"))?;
                let list: Vec<String> = value.split(',').map(String::from).collect();
                let unknown = list.iter().find(|l| !known.contains(&l.as_str()));
                ensure!(unknown.is_none(), "{arg}: there are {}, not `{}`", known.join(", "), value);
                Ok(list)
            };
            match *arg {
                "--engine" => engines = list(&ENGINES)?,
                "--suite" => suites = list(&SUITES)?,
                flag if flag.starts_with('-') => bail!("p4c-corpus has no option {flag}"),
                path => dir = Some(PathBuf::from(path)),
            }
        }
        Ok(Options { dir: dir.context("p4c-corpus needs the folder of a checkout of p4lang/p4c")?, engines, suites })
    }
}

/// What every suite needs.
struct Corpus {
    /// The release build of the command.
    sluice: PathBuf,
    /// `testdata/p4_16_samples`, absolute.
    samples: PathBuf,
    /// `testdata` of the checkout.
    testdata: PathBuf,
    engines: Vec<String>,
}

/// Runs the suites, prints the table and writes the report.
pub fn run(options: Options) -> Result<ExitCode> {
    let testdata = options.dir.join("testdata").canonicalize().unwrap_or_default();
    let samples = testdata.join("p4_16_samples");
    ensure!(samples.is_dir(), "{} is no checkout of p4lang/p4c", options.dir.display());
    let status = Command::new(env!("CARGO")).args(["build", "--release", "--quiet", "--bin", "sluice"]).status()?;
    ensure!(status.success(), "sluice does not build");
    let target = target_dir();
    let sluice = target.join("release/sluice").canonicalize().context("the build left no target/release/sluice")?;
    let context = Corpus { sluice, samples, testdata, engines: options.engines };

    let mut suites: Vec<Suite> = Vec::new();
    for name in &options.suites {
        match name.as_str() {
            "accept" => suites.push(accept::run(&context)?),
            "stf" => suites.extend(stf::run(&context)?),
            "refuse" => suites.push(refuse::run(&context)?),
            other => bail!("no suite {other}"),
        }
    }
    report::print(&suites);
    let path = target.join("p4c-corpus.json");
    report::write(&suites, &path)?;
    println!("\nevery case: {}", path.display());
    Ok(ExitCode::from(u8::from(suites.iter().any(Suite::missed))))
}

/// Where cargo builds.
fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| Path::new("target").to_path_buf(), PathBuf::from)
}
