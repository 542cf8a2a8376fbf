//! `sluice check X.p4`: compiles a program as far as possible, to machine code if it has a `main`. Exit code 0, or 1
//! with diagnostics: on stderr as text, with `--json` (or `--format json`) on stdout as one object per line
//! (`json.rs`).
//!
//! A program that compiles but cannot be loaded (it is for another target, or calls externs that this switch lacks)
//! gets warnings with codes, and a last line that says so. The exit code stays 0, because the command also checks
//! libraries and programs for other targets. With `--loadable` these warnings are errors.

use crate::compile::{self, ProgramArgs};
use crate::json;
use crate::show::{self, ShowArgs};
use anyhow::Result;
use base::span::SourceFile;
use base::{Diagnostic, Severity, SourceMap, Span};
use frontend::{Compiled, Until};
use std::process::ExitCode;
use std::sync::Arc;

/// Arguments of `check`.
#[derive(clap::Args)]
#[command(
    after_help = "Exit code 0: it compiles; that it cannot be loaded here, as it is for another target or a library without \
                        `main`, is a warning, an error with --loadable. 1: it does not. 2: it cannot be read."
)]
pub struct Args {
    #[command(flatten)]
    program: ProgramArgs,
    /// Print the IR after all passes.
    #[arg(long)]
    ir: bool,
    /// Print the IR as lowered, before any pass.
    #[arg(long)]
    raw_ir: bool,
    #[command(flatten)]
    show: ShowArgs,
    /// Print the time of each stage.
    #[arg(long)]
    time: bool,
    /// The program must be one that this switch can load: no `main`, another target's package or an unknown extern is an error.
    #[arg(long)]
    loadable: bool,
    /// How diagnostics are printed.
    #[arg(long, value_enum, default_value = "text", conflicts_with_all = ["ir", "raw_ir", "ir_after", "state", "stages", "emit", "clif", "asm"])]
    format: Format,
    /// The same as --format json.
    #[arg(long, conflicts_with_all = ["format", "ir", "raw_ir", "ir_after", "state", "stages", "emit", "clif", "asm"])]
    json: bool,
}

/// `--format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Format {
    /// With source excerpts, on stderr.
    Text,
    /// One JSON object per line, on stdout; `--time` becomes lines with `stage` and `ms`.
    Json,
}

// Whatever the front end accepts, the code generator accepts.
const _: () = assert!(lower::WIDTH_LIMIT == jit::SLOT_WIDTH_MAX);

/// Runs `sluice check`.
///
/// # Errors
/// If the options are wrong or the file cannot be read.
pub fn main(args: &Args) -> Result<ExitCode> {
    let (path, options) = (&args.program.program, &args.program.compile);
    let format = if args.json { Format::Json } else { args.format };
    args.show.validate(&options.options()?.opt)?;
    let code = options.code()?;
    let compiled = match format {
        Format::Text => options.compile(path, Until::Ir)?,
        Format::Json => options.compile_quietly(path, Until::Ir)?,
    };
    if format == Format::Json {
        for diagnostic in &compiled.diagnostics {
            println!("{}", json::line(diagnostic, &compiled.sources));
        }
    }
    if compiled.failed() {
        return Ok(ExitCode::from(1));
    }
    let has_no_main = compiled.typed.as_ref().is_some_and(|p| p.main.is_none());
    let reasons = why_not_loadable(&compiled, has_no_main, args.loadable);
    match format {
        Format::Text if has_no_main && !args.loadable => {
            eprintln!("note: {} has no `main`, so it cannot run by itself", path.display());
        }
        // Its escape sequences are our own; those in names are already made visible.
        Format::Text => reasons
            .iter()
            .for_each(|reason| std::eprintln!("{}", reason.render(&compiled.sources, compile::colours_stderr()))),
        Format::Json => reasons.iter().for_each(|reason| println!("{}", json::line(reason, &compiled.sources))),
    }
    let wanted = [compiled.raw.as_ref().filter(|_| args.raw_ir), compiled.optimised.as_ref().filter(|_| args.ir)];
    for program in wanted.into_iter().flatten() {
        print!("{}", ir::print::print(program));
    }
    if let Some(raw) = &compiled.raw {
        args.show.show_passes(raw, &options.options()?.opt);
    }
    let mut rows = compiled.times.clone();
    if let Some(program) = compiled.optimised {
        let program = Arc::new(program);
        if args.show.state {
            print!("{}", show::state_text(&program));
        }
        args.show.show_code(&program, &code.jit, &compiled.sources)?;
        match compiled.unloadable.is_empty() {
            true => rows.extend(datapath::load_with(program, datapath::EngineKind::Machine, 1, &code)?.load_times()),
            false => rows.extend(datapath::check_code(program)?),
        }
    }
    if args.time {
        let total: std::time::Duration = rows.iter().map(|(_, t)| *t).sum();
        rows.push(("total", total));
        let (lines, lines_with_includes) = count_lines(&compiled.sources);
        match format {
            Format::Text => println!("{lines} lines, {lines_with_includes} with what it includes"),
            Format::Json => {
                println!("{}", serde_json::json!({ "lines": lines, "lines_with_includes": lines_with_includes }));
            }
        }
        for (stage, time) in rows {
            let ms = time.as_secs_f64() * 1e3;
            match format {
                Format::Text => println!("{stage:24} {ms:10.3} ms"),
                Format::Json => println!("{}", serde_json::json!({ "stage": stage, "ms": ms })),
            }
        }
    }
    let Some(first) = reasons.first() else { return Ok(ExitCode::SUCCESS) };
    if format == Format::Text {
        let code = first.code;
        let also = if args.loadable { "" } else { " (--loadable makes that an error)" };
        eprintln!("{} compiles, but cannot be loaded here{also}; `sluice explain {code}` says more", path.display());
    }
    Ok(ExitCode::from(u8::from(args.loadable)))
}

/// Returns why a program that compiles cannot be loaded, as warnings, or as errors with `loadable`.
fn why_not_loadable(compiled: &Compiled, has_no_main: bool, loadable: bool) -> Vec<Diagnostic> {
    let severity = if loadable { Severity::Error } else { Severity::Warning };
    let no_main = || {
        Diagnostic::error(lower::codes::NO_MAIN, Span::NONE, "the program has no `main`, so there is nothing to run")
    };
    let reasons = compiled.unloadable.iter().cloned().chain((has_no_main && loadable).then(no_main));
    reasons.map(|reason| Diagnostic { severity, ..reason }).collect()
}

/// Returns the number of lines of the program's own file, and of it with its includes, each counted as often as it is
/// included.
fn count_lines(sources: &SourceMap) -> (usize, usize) {
    let count = |file: &SourceFile| file.text.lines().count();
    let own = sources.files().find(|f| !f.name.starts_with('<')).map_or(0, count);
    (own, sources.files().map(count).sum())
}
