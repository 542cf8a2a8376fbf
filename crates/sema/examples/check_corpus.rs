//! Checks every P4 program in a directory and says how many are accepted.
//!
//! `cargo run -p sema --example check_corpus -- DIR [--filter TEXT] [--only FILE-WITH-NAMES] [--verbose] [--quiet] [--warnings] [-I DIR]...`
//!
//! Programs whose architecture files are not there are counted apart ("no include"). Failures are summed up by code, with
//! the first diagnostic of each program; `--verbose` renders them all, `--quiet` lists what was accepted, `--warnings` renders warnings. What is accepted
//! goes through `sema::verify`; a line with BUG is one.

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
    only: Option<Vec<String>>,
    verbose: bool,
    quiet: bool,
    warnings: bool,
    options: Options,
}

fn parse_args() -> Result<Args, String> {
    let mut args = Args::default();
    let mut iter = std::env::args().skip(1);
    while let Some(arg) = iter.next() {
        let mut value = || iter.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--filter" => args.filter = Some(value()?),
            "--only" => {
                let text = std::fs::read_to_string(value()?).map_err(|e| e.to_string())?;
                args.only = Some(text.lines().map(str::to_string).collect());
            }
            "-I" => args.options.include_dirs.push(value()?),
            "--verbose" => args.verbose = true,
            "--quiet" => args.quiet = true,
            "--warnings" => args.warnings = true,
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
        .filter(|name| args.only.as_ref().is_none_or(|only| only.iter().any(|o| o == name)))
        .collect();
    names.sort();
    let (mut accepted, mut no_include, mut syntax_errors) = (0, 0, 0);
    let mut codes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut spent = Duration::ZERO;
    for name in &names {
        let path = Path::new(&args.dir).join(name).to_string_lossy().into_owned();
        let Ok(Some(text)) = Disk.read(&path) else { continue };
        let mut sources = base::SourceMap::new();
        let parsed = syntax::parse_program(SourceInput { name: path, text }, &args.options, &Disk, &mut sources);
        if let Some(d) = parsed.diagnostics.iter().find(|d| d.severity == base::Severity::Error) {
            if d.code.starts_with("E00") {
                no_include += 1;
            } else {
                syntax_errors += 1;
            }
            if args.verbose {
                println!("{name}: {}", d.render(&sources, false));
            }
            continue;
        }
        let start = Instant::now();
        let checked = sema::check(&parsed.program, &sources);
        spent += start.elapsed();
        let errors: Vec<_> = checked.diagnostics.iter().filter(|d| d.severity == base::Severity::Error).collect();
        for d in checked.diagnostics.iter().filter(|d| args.warnings && d.severity == base::Severity::Warning) {
            println!("{}", d.render(&sources, false));
        }
        match errors.first() {
            None => {
                accepted += 1;
                for finding in checked.program.iter().flat_map(sema::verify::verify) {
                    println!("BUG {name}: {finding}");
                }
                if args.quiet {
                    println!("accepted {name}");
                }
            }
            Some(first) => {
                let place = sources.locate(first.span).map(|(f, l, c)| format!("{f}:{l}:{c}")).unwrap_or_default();
                codes.entry(first.code).or_default().push(format!("{place}: {}", first.message));
                if args.verbose {
                    for d in &errors {
                        println!("{}", d.render(&sources, false));
                    }
                }
            }
        }
    }
    for (code, failures) in &codes {
        println!("{code}: {}", failures.len());
        for failure in failures {
            println!("  {failure}");
        }
    }
    let refused: usize = codes.values().map(Vec::len).sum();
    println!(
        "{} programs: {accepted} accepted, {refused} refused, {syntax_errors} with syntax errors, {no_include} without \
         their include files; checking took {spent:?}",
        names.len()
    );
    Ok(())
}
