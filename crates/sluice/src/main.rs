//! The `sluice` command.
//!
//! One file per subcommand; each returns its exit code. Exit codes: 0 done, 1 the input is wrong (diagnostics or failed
//! expectations on stderr), 2 the command could not run (no such file, port, server).

mod bench;
mod capture;
mod cells;
mod chain;
mod check;
mod compile;
mod devices;
mod diff;
mod explain;
mod json;
mod live;
mod load;
mod metrics;
mod notify;
mod operator;
mod p4info;
mod run;
mod show;
mod specialise;
mod state;
mod stats;
mod stf;
mod table;
mod target;
mod top;
mod trace;
mod transport;
mod watched;

use clap::{Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

/// A write of the control plane is mostly small allocations, made in one thread and freed in another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXIT_CODES: &str = "Exit codes: 0 done; 1 the program, script or entry is wrong; 2 the command could not run (no such \
                          file, port or switch)";

/// A software switch that you program in P4.
#[derive(Parser)]
#[command(name = "sluice", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check a P4 program: exit code 0, or 1 with diagnostics.
    Check(check::Args),
    /// Say what a diagnostic's code means, with examples; without a code, list all.
    Explain(explain::Args),
    /// Run an STF script on a program.
    Stf(stf::Args),
    /// Run the switch.
    Run(run::Args),
    /// Print a program's P4Info as protobuf text.
    P4info(p4info::Args),
    /// Show step by step what a program, or a running switch, does with a packet.
    Trace(trace::Args),
    /// Replace the program of a running switch, what fits of its state stays; or load one under another device id.
    Load(load::Args),
    /// Remove a device of a running switch, with its program and state.
    Unload(chain::UnloadArgs),
    /// Show the devices of a running switch: programs, ports, links.
    Show(chain::ShowArgs),
    /// Give ports of a running switch to another device.
    Bind(chain::BindArgs),
    /// Make what a device sends by a port enter another device.
    Chain(chain::ChainArgs),
    /// Remove what `chain` has made.
    Unchain(chain::UnchainArgs),
    /// Say what would stay of a switch's state if one program took another's place.
    Diff(diff::Args),
    /// Show or change tables of a running switch.
    Table(table::Args),
    /// Show or change registers of a running switch.
    Register(cells::RegisterArgs),
    /// Show or change counters of a running switch; those beside entries are shown with `table show`.
    Counter(cells::CounterArgs),
    /// Show or configure meters of a running switch; those beside entries are shown with `table show`.
    Meter(cells::MeterArgs),
    /// Time a program's pipeline from memory (`make bench` in the sources measures the examples beside C).
    Bench(bench::Args),
    /// Show ports, tables and drops of a running switch.
    Stats(stats::Args),
    /// Record what ports of a running switch receive and send.
    Capture(capture::Args),
    /// Watch a running switch: ports, tables by hits, cycles, drops.
    Top(top::Args),
}

fn main() -> ExitCode {
    // A closed pipe (`sluice ... | head`) ends the command quietly, as for other tools.
    end_quietly_without_output();
    let result = match Cli::parse().command {
        Command::Check(args) => check::main(&args),
        Command::Explain(args) => explain::main(&args),
        Command::Stf(args) => stf::main(&args),
        Command::Run(args) => run::main(&args),
        Command::P4info(args) => p4info::main(&args),
        Command::Trace(args) => trace::main(&args),
        Command::Load(args) => load::main(&args),
        Command::Unload(args) => chain::unload(&args),
        Command::Show(args) => chain::show(&args),
        Command::Bind(args) => chain::bind(&args),
        Command::Chain(args) => chain::chain(&args),
        Command::Unchain(args) => chain::unchain(&args),
        Command::Diff(args) => diff::main(&args),
        Command::Table(args) => table::main(&args),
        Command::Register(args) => cells::register(&args),
        Command::Counter(args) => cells::counter(&args),
        Command::Meter(args) => cells::meter(&args),
        Command::Bench(args) => bench::main(&args),
        Command::Stats(args) => stats::main(&args),
        Command::Capture(args) => capture::main(&args),
        Command::Top(args) => top::main(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("sluice: {error:#}");
        ExitCode::from(2)
    })
}

/// Rust ignores SIGPIPE and makes output that cannot be written a panic. A reader that has gone is no error for what it was
/// told before; a full disk is one, and so are diagnostics that nobody gets: they may say why the program is refused.
fn end_quietly_without_output() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let message = info.payload_as_str().unwrap_or_default();
        if message.starts_with("failed printing to stdout") {
            if message.contains("Broken pipe") {
                std::process::exit(0);
            }
            let _ = writeln!(std::io::stderr(), "sluice: {message}");
            std::process::exit(2);
        }
        if message.starts_with("failed printing to stderr") {
            std::process::exit(2);
        }
        default(info);
    }));
}
