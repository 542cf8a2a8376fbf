//! `sluice check X.p4`: compiles a program as far as it can be, to machine code if it has a `main`. Exit code 0, or 1 with
//! diagnostics: on stderr for people, with `--json` (or `--format json`) on stdout as one object per line (`json.rs`). A program that
//! compiles but could not be loaded gets a note on stderr that says why.

use crate::compile::ProgramArgs;
use crate::json;
use crate::show::ShowArgs;
use anyhow::Result;
use base::SourceMap;
use base::span::SourceFile;
use frontend::Until;
use std::process::ExitCode;
use std::sync::Arc;

/// Arguments of `check`.
#[derive(clap::Args)]
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
    /// How diagnostics are printed.
    #[arg(long, value_enum, default_value = "text", conflicts_with_all = ["ir", "raw_ir", "ir_after", "stages", "clif", "asm"])]
    format: Format,
    /// The same as --format json.
    #[arg(long, conflicts_with_all = ["format", "ir", "raw_ir", "ir_after", "stages", "clif", "asm"])]
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

// A program that compiles is one that machine code can be made of.
const _: () = assert!(lower::WIDTH_LIMIT == jit::SLOT_WIDTH_MAX);

/// Runs it.
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
    if has_no_main && format == Format::Text {
        eprintln!("note: {} has no `main`, so it cannot run by itself", path.display());
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
        args.show.show_code(&program, &code.jit, &compiled.sources)?;
        match compiled.unloadable.is_empty() {
            true => rows.extend(datapath::load_with(program, datapath::EngineKind::Machine, 1, &code)?.load_times()),
            false => rows.extend(datapath::check_code(program)?),
        }
    }
    for reason in &compiled.unloadable {
        let place =
            compiled.sources.locate(reason.span).map(|(file, line, column)| format!(" ({file}:{line}:{column})"));
        eprintln!("note: the program compiles but cannot be loaded: {}{}", reason.message, place.unwrap_or_default());
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
    Ok(ExitCode::SUCCESS)
}

/// Of the program's own file, and of that with all that it includes, as often as it does.
fn count_lines(sources: &SourceMap) -> (usize, usize) {
    let count = |file: &SourceFile| file.text.lines().count();
    let own = sources.files().find(|f| !f.name.starts_with('<')).map_or(0, count);
    (own, sources.files().map(count).sum())
}
