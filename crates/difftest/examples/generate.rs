//! `cargo xtask generate`: generated programs on all engines, until the time is up. Prints each fault once, reduced.

use difftest::source::{Case, Options, Report, catch_panics, sweep};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const HELP: &str = "\
cargo xtask generate [--seconds N] [--seed S] [--count N] [--packets N] [--mutations N] [--out DIR] [--print]

  --seconds N    how long (60)
  --seed S       the first seed (1)
  --count N      how many programs (as many as there is time for)
  --packets N    packets of each program (256)
  --mutations N  edited sources of each program (20)
  --out DIR      where reduced programs and scripts go (they are printed)
  --print        prints the program and script of the seed and runs nothing
";

fn main() -> ExitCode {
    let mut options = Options::default();
    let mut out: Option<PathBuf> = None;
    let mut print = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--print" {
            print = true;
            continue;
        }
        let Some(value) = args.next() else { return usage(&arg) };
        let number = value.parse::<u64>();
        match (arg.as_str(), number) {
            ("--out", _) => out = Some(value.into()),
            ("--seconds", Ok(n)) => options.limit = Duration::from_secs(n),
            ("--seed", Ok(n)) => options.seed = n,
            ("--count", Ok(n)) => options.count = n,
            ("--packets", Ok(n)) => options.packets = n as usize,
            ("--mutations", Ok(n)) => options.mutations = n as usize,
            _ => return usage(&arg),
        }
    }
    if print {
        let case = Case::generate(options.seed, difftest::source::size_of(options.seed), options.packets);
        println!("{}\n/*\n{}\n*/", case.source, case.script.join("\n"));
        return ExitCode::SUCCESS;
    }
    if let Some(dir) = &out
        && let Err(error) = std::fs::create_dir_all(dir)
    {
        eprintln!("{}: {error}", dir.display());
        return ExitCode::from(2);
    }
    catch_panics();
    let start = Instant::now();
    let mut last = Instant::now();
    let report = sweep(&options, &mut |seed, report, found| {
        if let Some(dir) = &out {
            // Says which seed it was if the process ends.
            let _ = std::fs::write(dir.join("seed"), format!("{seed}\n"));
        }
        if let Some(found) = found {
            println!("\n== seed {seed}: {:?} in {}\n{}", found.finding.kind, found.finding.place, found.finding.what);
            match &out {
                Some(dir) => {
                    let base = dir.join(format!("{:?}-{seed}", found.finding.kind).to_lowercase());
                    let saved = std::fs::write(base.with_extension("p4"), &found.case.source)
                        .and_then(|()| std::fs::write(base.with_extension("stf"), found.case.script.join("\n") + "\n"));
                    println!("{}: {saved:?}", base.display());
                }
                None => println!("{}\n/*\n{}\n*/", found.case.source, found.case.script.join("\n")),
            }
        } else if last.elapsed() > Duration::from_secs(60) {
            last = Instant::now();
            println!("{}", summary(report, start));
        }
    });
    println!("{}", summary(&report, start));
    for ((kind, place), found) in &report.found {
        println!("  {kind:?} in {place}: {} times, first seed {}", found.times, found.seed);
    }
    if report.found.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn usage(arg: &str) -> ExitCode {
    eprint!("`{arg}` cannot be used like this\n\n{HELP}");
    ExitCode::from(2)
}

fn summary(report: &Report, start: Instant) -> String {
    format!(
        "{:.0} s: {} programs, {} packets, {} frames sent, {} entries, {} engines compared; {} edited sources refused, {} taken; {} faults",
        start.elapsed().as_secs_f64(),
        report.programs,
        report.counts.packets,
        report.counts.sent,
        report.counts.entries,
        report.counts.engines,
        report.mutations.0,
        report.mutations.1,
        report.found.len(),
    )
}
