//! Developer commands: `cargo xtask help`.

mod corpus;
mod figures;
mod fuzz;
mod generate;
mod licences;
mod links;
mod p4rt_fuzz;
mod scale;
mod stopped;
mod tidy;
mod tutorials;

use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  tidy                  checks the house rules that no compiler checks
  figures [--check]     makes tables and plots of docs/{performance,scaling}.md from bench/results/; or only compares: 1 if they differ
  licences              checks that all dependencies have a licence we accept
  generate [--seconds N] [--seed S] [--count N] [--out DIR] [--print]
                        generated programs on all engines, each pass alone; prints what differs, reduced (60 seconds)
  p4rt-fuzz [--requests N] [--seed S] [--round N] [PROGRAM.p4 ...]
                        P4Runtime requests to programs of the tree, valid and damaged, judged by a model (100000)
  fuzz [SECONDS]        runs each fuzz target (60 seconds)
  scale [SHAPE [TIMES|large]]
                        compiles programs of growing size: no phase may be worse than n log n; so many times larger
  stopped [SECONDS]     stops workers at random instructions while tables change: every packet must have been right (60 seconds)
  p4c-corpus DIR [--suite SUITE,...] [--engine ENGINE,...] [--cuts N] [--mutants N] [--seed N] [--p4test PATH]
             [--generated SCRIPTS=ROOT] [--json DIR] [--sluice PATH]
                        holds Sluice against the checkout DIR of p4lang/p4c; 1 when a bar is missed
                        suites: accept, stf, refuse, programs, prefixes, mutants; engines of stf: raw, interp, jit,
                        all; prefixes of each file (64); mutations of each program (16) and their seed (1);
                        p4c's `p4test`, to compare compile times with; the suite `generated`: scripts of p4testgen for
                        the programs below ROOT, in folders named like them; the suite `bmv2-json`: JSON of the samples in DIR
  tutorials DIR [--exercise NAME,...] [--sluice PATH] [--p4-utils DIR]
                        runs an unmodified checkout of p4lang/tutorials, nsg-ethz/p4-learning (with one of nsg-ethz/p4-utils) or
                        jafingerhut/p4-guide in Mininet, as root, and checks what its READMEs promise
";

fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    std::env::set_current_dir(root())?;
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => tidy::run(),
        ["figures"] => figures::run(false),
        ["figures", "--check"] => figures::run(true),
        ["licences"] => licences::run(),
        ["generate", ..] => generate::run(&args[1..]),
        ["p4rt-fuzz", ..] => p4rt_fuzz::run(&args[1..]),
        ["fuzz"] => fuzz::run(60),
        ["fuzz", seconds] => fuzz::run(seconds.parse()?),
        ["scale"] => scale::run("", scale::Size::Times(1)),
        ["scale", shape] => scale::run(shape, scale::Size::Times(1)),
        ["scale", shape, size] => scale::run(shape, size.parse()?),
        ["stopped"] => stopped::run(60),
        ["stopped", seconds] => stopped::run(seconds.parse()?),
        ["p4c-corpus", rest @ ..] => corpus::run(corpus::Options::parse(rest)?),
        ["tutorials", rest @ ..] => tutorials::run(rest),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        other => {
            eprint!("xtask: `{}` is not a command\n\n{HELP}", other.join(" "));
            Ok(ExitCode::from(2))
        }
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}
