//! Lowers every v1model program of a directory and reports how many yield well-formed IR.
//!
//! `cargo run -p lower --example lower_corpus -- DIR [--filter TEXT] [--stf] [--print] [--verbose] [-I DIR]...`
//!
//! `--stf` restricts it to programs that have an STF script. `--print` prints the IR. Programs that an earlier stage
//! rejects, and programs for other architectures, are counted separately.

use base::{Severity, SourceMap};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use syntax::{FileLoader, Options, SourceInput};

struct Disk;

impl FileLoader for Disk {
    fn read(&self, path: &str) -> Result<Option<Arc<str>>, String> {
        Ok(std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into()))
    }

    fn embedded(&self, name: &str) -> Option<Arc<str>> {
        sema::embedded(name).map(Arc::from)
    }
}

#[derive(Default)]
struct Args {
    dir: String,
    filter: Option<String>,
    stf: bool,
    print: bool,
    verbose: bool,
    options: Options,
}

fn parse_args() -> Result<Args, String> {
    let mut args = Args::default();
    let mut iter = std::env::args().skip(1);
    while let Some(arg) = iter.next() {
        let mut value = || iter.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--filter" => args.filter = Some(value()?),
            "-I" => args.options.include_dirs.push(value()?),
            "--stf" => args.stf = true,
            "--print" => args.print = true,
            "--verbose" => args.verbose = true,
            _ if args.dir.is_empty() => args.dir = arg,
            _ => return Err(format!("unexpected argument {arg}")),
        }
    }
    if args.dir.is_empty() { Err("which directory?".to_string()) } else { Ok(args) }
}

fn main() -> Result<(), String> {
    let args = parse_args()?;
    let mut names: Vec<String> = std::fs::read_dir(&args.dir)
        .map_err(|e| format!("{}: {e}", args.dir))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".p4"))
        .filter(|name| args.filter.as_ref().is_none_or(|f| name.contains(f.as_str())))
        .filter(|name| !args.stf || Path::new(&args.dir).join(name).with_extension("stf").exists())
        .collect();
    names.sort();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut failures: Vec<String> = Vec::new();
    let mut spent = Duration::ZERO;
    let mut slowest = (Duration::ZERO, String::new());
    for name in &names {
        let path = Path::new(&args.dir).join(name).to_string_lossy().into_owned();
        let Ok(Some(text)) = Disk.read(&path) else { continue };
        let mut sources = SourceMap::new();
        let parsed = syntax::parse_program(SourceInput { name: path, text }, &args.options, &Disk, &mut sources);
        if parsed.diagnostics.iter().any(|d| d.severity == Severity::Error) {
            *counts.entry("refused by the parser").or_default() += 1;
            continue;
        }
        let checked = sema::check(&parsed.program, &sources);
        let Some(program) = checked.program else {
            *counts.entry("refused by the checker").or_default() += 1;
            continue;
        };
        if lower::architecture(&program).is_none() {
            *counts.entry("of other architectures").or_default() += 1;
            continue;
        }
        let start = Instant::now();
        let lowered = lower::lower(&program, name);
        let took = start.elapsed();
        spent += took;
        if took > slowest.0 {
            slowest = (took, name.clone());
        }
        let (outcome, complaints) = match &lowered.program {
            None => ("refused", lowered.diagnostics.iter().filter(|d| d.severity == Severity::Error).collect()),
            Some(ir) => {
                if args.print {
                    println!("{}", ir::print(ir));
                }
                let found = ir::verify(ir);
                match found.is_empty() {
                    true => ("lowered", Vec::new()),
                    false => {
                        let first = &found[0];
                        failures.push(format!("{name}: ILL-FORMED {} {}", first.code, first.message));
                        ("ill-formed", Vec::new())
                    }
                }
            }
        };
        *counts.entry(outcome).or_default() += 1;
        if let Some(first) = complaints.first() {
            let place = sources.locate(first.span).map(|(_, l, _)| format!(":{l}")).unwrap_or_default();
            failures.push(format!("{name}{place}: {} {}", first.code, first.message));
        }
        if args.verbose {
            complaints.iter().for_each(|d| println!("{}", d.render(&sources, false)));
        }
    }
    failures.iter().for_each(|f| println!("{f}"));
    println!("{} programs", names.len());
    counts.iter().for_each(|(outcome, count)| println!("  {count} {outcome}"));
    println!("lowering took {spent:?}; the slowest, {}, {:?}", slowest.1, slowest.0);
    Ok(())
}
