//! `sluice bench X.p4 --entries FILE --packets FILE`: cycles per packet of a program's pipeline from memory. With
//! `--swap` it measures the effect on packets of replacing the program; with `--control`, how fast the switch is
//! written and read, alone or under load (the files below).
//!
//! The engines are measured in alternation, round by round, so that disturbances by the rest of the machine affect all
//! of them; figures are to be read as ratios within one run. This command is for the user's own program and frames; the
//! benchmark of the examples beside hand-written C is crate `bench` (`make bench`).

mod control;
mod fill;
mod gaps;
mod loaded;
mod paced;
mod steps;
mod swaps;
mod turns;

use crate::compile::ProgramArgs;
use crate::specialise::Specialise;
use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table};
use datapath::timing::Measured;
use datapath::{EngineKind, Local};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Arguments of `bench`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    program: ProgramArgs,
    /// Lines that set the switch up, as for `run`.
    #[arg(long, value_name = "FILE")]
    entries: Option<PathBuf>,
    /// Frames: lines `packet PORT HEX`, as in STF scripts; other lines are ignored.
    #[arg(long, value_name = "FILE", required_unless_present = "control")]
    packets: Option<PathBuf>,
    #[command(flatten)]
    control: control::ControlArgs,
    /// Packets of a batch.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=64))]
    batch: u16,
    /// Rounds; each engine has one turn a round.
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Machine code to measure: for any tables, for the tables as they are, also for the entries of tiny ones.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "contents,constants,off")]
    specialise: Vec<Specialise>,
    /// Measure what packets notice when this program takes the other's place and back: every frame must leave by one port,
    /// once.
    #[arg(long, value_name = "NEW.p4")]
    swap: Option<PathBuf>,
    /// How often.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    swaps: usize,
    /// Milliseconds between two.
    #[arg(long, value_name = "MS", default_value_t = 10)]
    swap_pause_ms: u64,
    /// Ports that frames leave by and none comes from.
    #[arg(long, value_name = "PORT,...", value_delimiter = ',')]
    out_ports: Vec<u32>,
    /// Also measure the interpreter (on raw and on optimised IR).
    #[arg(long)]
    interpreter: bool,
    /// Print one JSON object instead of text.
    #[arg(long, conflicts_with_all = ["swap", "control"])]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// If a file cannot be read, the program does not compile, or a measurement fails.
pub fn main(args: &Args) -> Result<ExitCode> {
    datapath::memory::keep_freed();
    if args.control.control && args.packets.is_none() {
        control::run(args)?;
        return Ok(ExitCode::SUCCESS);
    }
    let packets = args.packets.as_ref().context("--packets says which frames")?;
    let text = crate::files::text(packets)?;
    let lines = match stf::parse(&text) {
        Ok(lines) => lines,
        Err(errors) => {
            errors.iter().for_each(|error| eprintln!("{}: {error}", packets.display()));
            return Ok(ExitCode::from(1));
        }
    };
    let frames: Vec<(u32, Vec<u8>)> = lines
        .into_iter()
        .filter_map(|l| match l.command {
            stf::Command::Packet { port, frame } => Some((port, frame)),
            _ => None,
        })
        .collect();
    if frames.is_empty() {
        eprintln!("{} has no `packet` line", packets.display());
        return Ok(ExitCode::from(1));
    }

    if args.control.control {
        loaded::run(args, &frames)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(new) = &args.swap {
        swaps::run(args, new, &frames)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(compiled) = args.program.compile.compile_program(&args.program.program)? else {
        return Ok(ExitCode::from(1));
    };
    let raw = Arc::new(compiled.raw.context("the program has IR")?);
    let optimised = Arc::new(compiled.optimised.context("the program has optimised IR")?);
    let machine = |mode: &Specialise| (mode.describe(), &optimised, EngineKind::Machine, *mode, 2000);
    let mut engines: Vec<_> = args.specialise.iter().map(machine).collect();
    if args.interpreter {
        engines.push(("interpreter, optimised IR", &optimised, EngineKind::Interpreter, Specialise::Off, 20));
        engines.push(("interpreter, raw IR", &raw, EngineKind::Interpreter, Specialise::Off, 20));
    }
    let code = args.program.compile.code()?;
    let mut ready = Vec::new();
    let mut recompiled_ms = Vec::new();
    for (name, program, kind, mode, batches) in engines {
        let pipeline = Arc::new(datapath::load_with(Arc::clone(program), kind, 1, &code)?);
        let local = Local::new(Arc::clone(&pipeline));
        if let Some(file) = &args.entries
            && !crate::run::apply_entries(file, &pipeline, local.replication())?
        {
            return Ok(ExitCode::from(1));
        }
        // The executor of `local` must be dropped before another one for worker 0 is created.
        drop(local);
        // The tables have their final contents.
        let took = pipeline.recompile(mode.into()).map(|took| took.as_secs_f64() * 1e3);
        if let Some(ms) = took.filter(|_| !args.json) {
            println!("{name}: recompiled in {ms:.1} ms");
        }
        recompiled_ms.push(took);
        let words = ir::layout::RecordLayout::new(program).words();
        ready.push((name, pipeline.executor(0), words, batches, Vec::new()));
    }
    let mut last = Vec::new();
    for _ in 0..args.rounds {
        last.clear();
        for (name, exec, words, batches, all) in &mut ready {
            let one = datapath::timing::run(exec.as_mut(), *words, &frames, args.batch.into(), *batches, 1);
            all.extend(one.cycles_per_packet.iter().copied());
            last.push((*name, one.fates));
        }
    }
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::UTF8_BORDERS_ONLY);
    table.set_header(["engine", "cycles/packet (median)", "min", "max", "ratio", "sent", "dropped", "replicated"]);
    let (mut base, mut rows) = (None, Vec::new());
    for (((name, .., all), (_, fates)), recompiled_ms) in ready.into_iter().zip(last).zip(recompiled_ms) {
        let mut cycles_per_packet: Vec<f64> = all;
        cycles_per_packet.sort_by(f64::total_cmp);
        let measured = Measured { cycles_per_packet, fates };
        let base = *base.get_or_insert(measured.median());
        rows.push(serde_json::json!({
            "engine": name, "recompiled_ms": recompiled_ms, "cycles_per_packet": measured.cycles_per_packet,
            "median": measured.median(), "ratio": measured.median() / base, "sent": fates[0], "dropped": fates[1],
            "replicated": fates[2],
        }));
        let number = |x: f64| format!("{x:.1}");
        table.add_row([
            name.to_string(),
            number(measured.median()),
            number(measured.min()),
            number(measured.cycles_per_packet.last().copied().unwrap_or(f64::NAN)),
            format!("{:.2}", measured.median() / base),
            fates[0].to_string(),
            fates[1].to_string(),
            fates[2].to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    if args.json {
        let all = serde_json::json!({
            "frames": frames.len(), "batch": args.batch, "rounds": args.rounds, "engines": rows,
        });
        println!("{all:#}");
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "{} frames, batches of {}, {} rounds; cycles of the time stamp counter",
        frames.len(),
        args.batch,
        args.rounds
    );
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}
