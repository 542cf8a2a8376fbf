//! `mangle FILE [-I DIR] [--cuts N] [--byte-cuts N] [--mutants N] [--seed N] [--from N] [--show N]`: compiles broken
//! variants of a P4 file (`difftest::mangle`) in one process.
//!
//! Its output is for `cargo xtask p4c-corpus`, one line each, unbuffered: `begin N` before each variant, so that the
//! parent process knows which one hangs or crashes; `panic N NAME: MESSAGE` for one that panics; `done ACCEPTED
//! REFUSED` at the end. `--from` resumes after a variant that crashed; `--show` prints one variant's text instead. Only
//! accepted programs are mutated.

use anyhow::{Context, Result, bail};
use difftest::mangle::{self, Outcome, Plan, Source};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// The stack size of the server's threads, on which a program may arrive.
const STACK_BYTES: usize = 2 * 1024 * 1024;

struct Args {
    file: String,
    include_dirs: Vec<String>,
    plan: Plan,
    from: usize,
    show: Option<usize>,
}

fn main() -> Result<()> {
    let args = parse()?;
    std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || run(&args))
        .context("cannot start a thread")?
        .join()
        .expect("panics are caught")
}

fn parse() -> Result<Args> {
    let mut args = Args {
        file: String::new(),
        include_dirs: Vec::new(),
        plan: Plan { cuts: 64, byte_cuts: 16, mutants: 16, seed: 1 },
        from: 0,
        show: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            args.file = word;
            continue;
        }
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        let number = || value.parse::<usize>().with_context(|| format!("{word} needs a number"));
        match word.as_str() {
            "-I" => args.include_dirs.push(value),
            "--cuts" => args.plan.cuts = number()?,
            "--byte-cuts" => args.plan.byte_cuts = number()?,
            "--mutants" => args.plan.mutants = number()?,
            "--seed" => args.plan.seed = number()? as u64,
            "--from" => args.from = number()?,
            "--show" => args.show = Some(number()?),
            other => bail!("mangle has no option {other}"),
        }
    }
    Ok(args)
}

fn run(args: &Args) -> Result<()> {
    let bytes = std::fs::read(&args.file).with_context(|| format!("cannot read {}", args.file))?;
    let text = String::from_utf8_lossy(&bytes);
    let mut plan = args.plan;
    let message = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&message);
    std::panic::set_hook(Box::new(move |info| {
        let place = info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
        let text = info.payload_as_str().unwrap_or("a panic without a text").replace('\n', " ");
        *sink.lock().unwrap_or_else(|e| e.into_inner()) = format!("{text} ({place})");
    }));
    let compile = |text: &str| {
        catch_unwind(AssertUnwindSafe(|| mangle::compile(&args.file, text, &args.include_dirs)))
            .map_err(|_| message.lock().unwrap_or_else(|e| e.into_inner()).clone())
    };

    // Variant 0 is the unchanged file.
    let mut out = std::io::stdout().lock();
    writeln!(out, "begin 0")?;
    out.flush()?;
    let whole = compile(&text);
    if whole != Ok(Outcome::Accepted) {
        plan.mutants = 0;
    }
    let source = Source::new(&text, plan);
    if let Some(show) = args.show {
        let variant = if show == 0 { text.to_string() } else { source.variant(show - 1) };
        return Ok(out.write_all(variant.as_bytes())?);
    }
    let (mut accepted, mut refused) = (0, 0);
    let mut note = |number: usize, name: &str, outcome: Result<Outcome, String>| match outcome {
        Ok(Outcome::Accepted) => accepted += 1,
        Ok(Outcome::Refused) => refused += 1,
        Err(message) => println!("panic {number} {name}: {message}"),
    };
    drop(out);
    if args.from == 0 {
        note(0, "the file", whole);
    }
    for variant in args.from.saturating_sub(1)..source.variants() {
        let number = variant + 1;
        println!("begin {number}");
        note(number, &source.name(variant), compile(&source.variant(variant)));
    }
    println!("done {accepted} {refused}");
    Ok(())
}
