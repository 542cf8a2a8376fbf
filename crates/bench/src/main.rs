//! `sluice-bench`: runs the rows that are asked for, or all, and prints their table.

use anyhow::{Result, ensure};
use bench::rows::{self, Row, Settings, WORKS};
use bench::subject::Options;
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use std::path::PathBuf;

/// Measures compiled P4 programs beside hand-written C, from memory.
#[derive(Parser)]
#[command(max_term_width = 100)]
struct Args {
    /// Rows to run, by name or a part of it; without any, all.
    rows: Vec<String>,
    /// Print the rows' names.
    #[arg(long)]
    list: bool,
    /// Packets of a batch.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=64))]
    batch: u16,
    /// Turns of each subject.
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Hold this file's lock while a row is timed, so that measurements on one machine take turns.
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// Switch an optimisation pass off, by its name.
    #[arg(long = "no-pass", value_name = "PASS")]
    disabled_passes: Vec<String>,
    /// Name the machine code in /tmp/perf-PID.map, for `perf report`.
    #[arg(long)]
    perf_map: bool,
    /// Tiny counts, to try the benchmark itself: what it prints means nothing.
    #[arg(long)]
    quick: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.list {
        WORKS.iter().for_each(|w| println!("{:<20} {}", w.name, w.title));
        return Ok(());
    }
    let wanted = |name: &str| args.rows.is_empty() || args.rows.iter().any(|r| name.contains(r.as_str()));
    let works: Vec<_> = WORKS.iter().filter(|w| wanted(w.name)).collect();
    ensure!(!works.is_empty(), "no row has such a name; --list prints them");
    let mut options = Options::default();
    options.frontend.opt.disabled = args.disabled_passes.iter().cloned().collect();
    options.jit.perf_map = args.perf_map;
    let settings =
        Settings { options, batch: args.batch.into(), rounds: args.rounds, lock: args.lock, quick: args.quick };
    bench::machine::lines().iter().for_each(|l| println!("{l}"));
    println!("batches of {}, {} rounds; cycles of the time stamp counter per packet\n", args.batch, args.rounds);
    for work in works {
        let row = rows::run(work, &settings)?;
        print_row(&row);
    }
    Ok(())
}

fn print_row(row: &Row) {
    let [sent, dropped, replicated] = row.fates;
    println!("{} (compared: {sent} sent, {dropped} dropped, {replicated} replicated)", row.name);
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY);
    table.set_header(["", "min", "median", "spread", "ratio", "quartiles", "bar", ""]);
    for (i, series) in row.series.iter().enumerate() {
        let mut cells = vec![
            series.name.clone(),
            format!("{:.1}", series.min()),
            format!("{:.1}", series.median()),
            format!("{:.0} %", 100.0 * series.spread()),
        ];
        if let Some(bar) = i.checked_sub(1).and_then(|i| row.bars.get(i)) {
            cells.push(format!("{:.2}", bar.ratio.value));
            cells.push(format!("{:.2} to {:.2}", bar.ratio.low, bar.ratio.high));
            if !bar.bar.is_nan() {
                cells.push(format!("{:.2}", bar.bar));
                cells.push(bar.ratio.verdict(bar.bar, bar.at_most).to_string());
            }
        }
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(1).take(6) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
}
