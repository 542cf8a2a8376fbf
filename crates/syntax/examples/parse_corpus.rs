//! Parses every P4 program under a directory and prints counts, failures and times.
//!
//! `parse_corpus DIR [-I DIR]... [--prefixes N] [--time]`: `-I` gives include directories (where the programs' `core.p4`
//! is); `--prefixes N` also parses N prefixes of each main file, to find panics and hangs; `--time` prints the slowest
//! files. Exits with 1 when a program has errors.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::diag::has_errors;
use base::{SourceMap, diag::Severity};
use syntax::{FileLoader, Options, SourceInput, parse_program};

struct Disk;

impl FileLoader for Disk {
    fn read(&self, path: &str) -> Result<Option<Arc<str>>, String> {
        Ok(std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into()))
    }

    fn embedded(&self, _name: &str) -> Option<Arc<str>> {
        None
    }
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "p4") {
            files.push(path);
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut options = Options::default();
    let mut dir = None;
    let mut prefixes = 0_usize;
    let mut time = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-I" => options.include_dirs.extend(args.next()),
            "--prefixes" => prefixes = args.next().and_then(|n| n.parse().ok()).unwrap_or(100),
            "--time" => time = true,
            _ => dir = Some(arg),
        }
    }
    let Some(dir) = dir else {
        eprintln!("usage: parse_corpus DIR [-I DIR]... [--prefixes N] [--time]");
        return ExitCode::from(2);
    };
    let mut files = Vec::new();
    if let Err(error) = collect(Path::new(&dir), &mut files) {
        eprintln!("{dir}: {error}");
        return ExitCode::from(2);
    }
    files.sort();
    let mut failed = 0;
    let mut warned = 0;
    let mut cut = 0;
    let mut times: Vec<(Duration, &PathBuf)> = Vec::new();
    for path in &files {
        let name = path.display().to_string();
        let Ok(Some(text)) = Disk.read(&name) else {
            eprintln!("{name}: cannot be read");
            failed += 1;
            continue;
        };
        let mut sources = SourceMap::new();
        let start = Instant::now();
        let source = SourceInput { name: name.clone(), text: text.clone() };
        let parsed = parse_program(source, &options, &Disk, &mut sources);
        times.push((start.elapsed(), path));
        let bad = has_errors(&parsed.diagnostics);
        failed += usize::from(bad);
        warned += usize::from(!bad && !parsed.diagnostics.is_empty());
        for diag in parsed.diagnostics.iter().filter(|d| d.severity == Severity::Error) {
            let place = sources.locate(diag.span).map_or(name.clone(), |(f, l, c)| format!("{f}:{l}:{c}"));
            println!("{place}: {}: {}", diag.code, diag.message);
        }
        for i in 1..=prefixes {
            let mut end = text.len() * i / (prefixes + 1);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let source = SourceInput { name: name.clone(), text: text[..end].into() };
            let parsed = parse_program(source, &options, &Disk, &mut SourceMap::new());
            std::hint::black_box(parsed);
            cut += 1;
        }
    }
    println!(
        "{} programs, {} without errors, {failed} with errors, {warned} with warnings",
        files.len(),
        files.len() - failed
    );
    if prefixes > 0 {
        println!("{cut} prefixes parsed");
    }
    if time {
        times.sort_by_key(|t| std::cmp::Reverse(t.0));
        for (elapsed, path) in times.iter().take(5) {
            println!("{:8.2} ms {}", elapsed.as_secs_f64() * 1e3, path.display());
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
