//! `sluice check X.p4`: exit code 0, or 1 with diagnostics on stderr.

use crate::compile::ProgramArgs;
use anyhow::Result;
use frontend::Until;
use std::process::ExitCode;

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
    /// Compile to machine code too, and print the time of each stage.
    #[arg(long)]
    time: bool,
}

/// Runs it.
pub fn main(args: &Args) -> Result<ExitCode> {
    let compiled = args.program.compile.compile(&args.program.program, Until::Ir)?;
    if compiled.failed() {
        return Ok(ExitCode::from(1));
    }
    if compiled.typed.as_ref().is_some_and(|p| p.main.is_none()) {
        eprintln!("note: {} has no `main`, so it cannot run by itself", args.program.program.display());
    }
    let wanted = [compiled.raw.as_ref().filter(|_| args.raw_ir), compiled.optimised.as_ref().filter(|_| args.ir)];
    for program in wanted.into_iter().flatten() {
        print!("{}", ir::print::print(program));
    }
    if args.time {
        let mut rows = compiled.times.clone();
        if let Some(program) = compiled.optimised {
            let start = std::time::Instant::now();
            datapath::load(program.into(), datapath::EngineKind::Machine, 1)?;
            rows.push(("machine code and tables", start.elapsed()));
        }
        let total: std::time::Duration = rows.iter().map(|(_, t)| *t).sum();
        rows.push(("total", total));
        for (stage, time) in rows {
            println!("{stage:24} {:10.3} ms", time.as_secs_f64() * 1e3);
        }
    }
    Ok(ExitCode::SUCCESS)
}
