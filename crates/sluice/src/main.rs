//! The `sluice` command.
//!
//! One file per subcommand; each returns its exit code: 0 done, 1 the input is wrong (diagnostics or failed
//! expectations on stderr), 2 the command could not run (no such file, port, server), which is an `Err` of its `main`.

/// Prints a line about the running switch. Errors are ignored: if nobody reads its output any more, the switch goes on.
macro_rules! announce {
    ($($line:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), "{}", crate::output::visible(&format!($($line)*)));
    }};
}

// Declared before the macros below: the child process prints for its parent, and says when memory is exhausted.
mod compiler;

// In the modules below these macros replace the standard library's: they escape control characters, so that no name can
// control the terminal.
macro_rules! print {
    ($($text:tt)*) => { std::print!("{}", crate::output::visible(&format!($($text)*))) };
}
macro_rules! println {
    () => { std::println!() };
    ($($text:tt)*) => { std::println!("{}", crate::output::visible(&format!($($text)*))) };
}
macro_rules! eprintln {
    () => { std::eprintln!() };
    ($($text:tt)*) => { std::eprintln!("{}", crate::output::visible(&format!($($text)*))) };
}

mod bench;
mod bmv2;
mod cache;
mod capture;
mod cells;
mod chain;
mod changes;
mod check;
mod compile;
mod complete;
mod config;
mod devices;
mod diff;
mod entity;
mod explain;
mod files;
mod generate;
mod json;
mod listen;
mod live;
mod load;
mod local;
mod log;
mod lsp;
mod metrics;
mod nanomsg;
mod notify;
mod openflow;
mod operator;
mod output;
mod p4info;
mod port;
mod ports;
mod program;
mod qos;
mod queues;
mod restart;
mod run;
mod show;
mod specialise;
mod state;
mod state_files;
mod stats;
mod stf;
mod successor;
mod table;
mod target;
mod thrift;
mod top;
mod trace;
mod transport;
mod unix_socket;
mod watched;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

/// mimalloc, because writes of the control plane make many small allocations in one thread that another thread frees.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MULTICAST: &str = "Examples:
  sluice multicast add 1 2 3 4            copies to ports 2, 3 and 4
  sluice multicast set 1 2:7 3:8|5:8      with instances (egress_rid); 5 is sent to while 3 is down
  sluice multicast delete 1";

const CLONE: &str = "Examples:
  sluice clone add 100 510                to the controller
  sluice clone set 100 3 packet_length=128
  sluice clone show --json";

const MEMBER: &str = "Examples:
  sluice member add ecmp 1 'send(port:2)'
  sluice member set ecmp 1 'send(port:3)'
  sluice member show ecmp";

const GROUP: &str = "Examples:
  sluice group add ecmp 1 1 2             members 1 and 2, with equal shares
  sluice group set ecmp 1 1:3@2 2@3       three shares and one, each while its port's link is up
  sluice table add route dst:10.0.0.1 'group(1)'";

const VALUE_SET: &str = "Examples:
  sluice value-set add tpids 0x88a8       one member more
  sluice value-set set tpids 0x88a8 0x9100
                                          these, and no other
  sluice value-set delete tpids 0x88a8    one less
  sluice value-set delete tpids           all";

const DIGEST: &str = "Examples:
  sluice digest add learn max_list_size=16 max_timeout=100ms
  sluice listen learn
  sluice digest delete learn";

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
    Run(Box<run::Args>),
    /// Print a program's P4Info as protobuf text.
    P4info(p4info::Args),
    /// Show step by step what a program, or a running switch, does with a packet.
    Trace(trace::Args),
    /// Replace the program of a running switch, which keeps its state; or load one under another device id.
    Load(load::Args),
    /// Start the switch's binary anew, as it is on disk now: the new process takes over entries, ports and connections' addresses.
    Restart(restart::Args),
    /// Remove a device of a running switch, with its program and state.
    Unload(chain::UnloadArgs),
    /// Show the devices of a running switch: programs, ports, links.
    Show(chain::ShowArgs),
    /// Add, remove, change and show ports of a running switch.
    Port(port::Args),
    /// Show and change queues of a running switch's ports: priorities, shares, rates, limits, RED.
    Qos(qos::Args),
    /// Load, show and unload BPF programs that flows of an OpenFlow bridge run, and read and write their maps.
    Program(program::Args),
    /// Show what the flow caches of a device do, or empty them.
    Cache(cache::Args),
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
    /// Show or change multicast groups of a running switch: GROUP PORT[:INSTANCE][|BACKUP...]... [metadata=0x..].
    #[command(after_help = MULTICAST)]
    Multicast(entity::Args),
    /// Show or change clone sessions of a running switch: SESSION PORT[:INSTANCE]... [class_of_service=N] [packet_length=BYTES].
    #[command(after_help = CLONE)]
    Clone(entity::Args),
    /// Show or change members of action profiles of a running switch: PROFILE ID 'ACTION(ARG:VALUE, ...)'.
    #[command(after_help = MEMBER)]
    Member(entity::Args),
    /// Show or change groups of action selectors of a running switch: PROFILE ID [max_size=N] MEMBER[:WEIGHT][@PORT]...
    #[command(after_help = GROUP)]
    Group(entity::Args),
    /// Show or change value sets of a running switch's parser: NAME VALUE... (a value for each field, member by member).
    #[command(after_help = VALUE_SET)]
    ValueSet(entity::Args),
    /// Show or change which digests a running switch sends: NAME [max_timeout=TIME] [max_list_size=N] [ack_timeout=TIME].
    #[command(after_help = DIGEST)]
    Digest(entity::Args),
    /// Print what a running switch tells its controller: digests, idle entries, packets.
    Listen(listen::Args),
    /// Save all entities of a running switch as a file, or load such a file.
    Config(config::Args),
    /// Check, print, copy or make the directory of `sluice run --state`.
    State(state_files::Args),
    /// Time a program's pipeline from memory (`make bench` in the sources measures the examples beside C).
    Bench(bench::Args),
    /// Show ports, tables and drops of a running switch.
    Stats(stats::Args),
    /// Record what ports of a running switch receive and send.
    Capture(capture::Args),
    /// Say or change what a running switch logs.
    Log(log::Args),
    /// Watch a running switch: ports, tables by hits, cycles, drops.
    Top(top::Args),
    /// Serve an editor on standard input and output (language server protocol).
    Lsp(lsp::Args),
    /// Run the switch by the command line of bmv2's simple_switch.
    #[command(name = "simple_switch")]
    SimpleSwitch(bmv2::Args),
    /// Run the switch by the command line of bmv2's simple_switch_grpc.
    #[command(name = "simple_switch_grpc", alias = "bmv2")]
    SimpleSwitchGrpc(bmv2::Args),
    /// Compile a program by the command line of p4c-bm2-ss.
    #[command(name = "p4c-bm2-ss")]
    P4cBm2Ss(bmv2::Args),
    /// Compile a program by the command line of p4c.
    #[command(name = "p4c")]
    P4c(bmv2::Args),
    /// As simple_switch.
    #[command(name = "psa_switch", hide = true)]
    PsaSwitch(bmv2::Args),
    /// As simple_switch.
    #[command(name = "pna_nic", hide = true)]
    PnaNic(bmv2::Args),
    /// As p4c-bm2-ss, for PSA.
    #[command(name = "p4c-bm2-psa", hide = true)]
    P4cBm2Psa(bmv2::Args),
    /// As p4c-bm2-ss, for PNA.
    #[command(name = "p4c-bm2-pna", hide = true)]
    P4cBm2Pna(bmv2::Args),
    /// Write manual pages and shell completions into a folder.
    #[command(hide = true)]
    Generate(generate::Args),
    /// Compile a program for a running switch, which starts this by itself.
    #[command(name = compiler::SUBCOMMAND, hide = true)]
    CompileChild,
    /// Serve an isolated port of a running switch, which starts this by itself.
    #[command(name = pktio_process::SUBCOMMAND, hide = true)]
    PortProcess,
}

/// The commands whose help lists the optimisations.
const ABOUT_COMPILING: &[&str] = &["check", "bench"];

/// Returns the command line. `--without`, which many commands have, is described in full only for those of
/// [`ABOUT_COMPILING`].
fn command() -> clap::Command {
    Cli::command().mut_subcommands(|command| {
        let without = command.get_arguments().any(|arg| arg.get_id() == "without");
        match without && !ABOUT_COMPILING.contains(&command.get_name()) {
            true => command.mut_arg("without", |arg| {
                arg.long_help("Leave optimisations out, by name; the program does the same, slower (`sluice check --help` lists them)")
            }),
            false => command,
        }
    })
}

fn main() -> ExitCode {
    // A closed pipe (`sluice ... | head`) ends the command quietly, as for other tools.
    end_quietly_without_output();
    if let Some(code) = bmv2::called_as(std::env::args_os()) {
        return code;
    }
    // Shell completion is requested by an environment variable; the process then exits.
    clap_complete::CompleteEnv::with_factory(command).complete();
    let cli = Cli::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit());
    let result = match cli.command {
        Command::Check(args) => check::main(&args),
        Command::Explain(args) => explain::main(&args),
        Command::Stf(args) => stf::main(&args),
        Command::Run(args) => run::main(&args),
        Command::P4info(args) => p4info::main(&args),
        Command::Trace(args) => trace::main(&args),
        Command::Load(args) => load::main(&args),
        Command::Restart(args) => restart::main(&args),
        Command::Unload(args) => chain::unload(&args),
        Command::Show(args) => chain::show(&args),
        Command::Port(args) => port::main(&args),
        Command::Qos(args) => qos::main(&args),
        Command::Program(args) => program::main(&args),
        Command::Cache(args) => cache::main(&args),
        Command::Bind(args) => chain::bind(&args),
        Command::Chain(args) => chain::chain(&args),
        Command::Unchain(args) => chain::unchain(&args),
        Command::Diff(args) => diff::main(&args),
        Command::Table(args) => table::main(&args),
        Command::Register(args) => cells::register(&args),
        Command::Counter(args) => cells::counter(&args),
        Command::Meter(args) => cells::meter(&args),
        Command::Multicast(args) => {
            entity::main(&args, &entity::Word { noun: "multicast group", keyword: "multicast" })
        }
        Command::Clone(args) => entity::main(&args, &entity::Word { noun: "clone session", keyword: "clone" }),
        Command::Member(args) => entity::main(&args, &entity::Word { noun: "member", keyword: "member" }),
        Command::Group(args) => entity::main(&args, &entity::Word { noun: "group", keyword: "group" }),
        Command::ValueSet(args) => entity::main(&args, &entity::Word { noun: "value set", keyword: "value_set" }),
        Command::Digest(args) => entity::main(&args, &entity::Word { noun: "digest", keyword: "digest" }),
        Command::Listen(args) => listen::main(&args),
        Command::Config(args) => config::main(&args),
        Command::State(args) => state_files::main(&args),
        Command::Bench(args) => bench::main(&args),
        Command::Stats(args) => stats::main(&args),
        Command::Capture(args) => capture::main(&args),
        Command::Log(args) => log::main(&args),
        Command::Top(args) => top::main(&args),
        Command::Lsp(args) => lsp::main(&args),
        Command::SimpleSwitch(args) => bmv2::main(bmv2::Tool::SimpleSwitch, &args),
        Command::SimpleSwitchGrpc(args) => bmv2::main(bmv2::Tool::SimpleSwitchGrpc, &args),
        Command::P4cBm2Ss(args) => bmv2::main(bmv2::Tool::P4cBm2Ss, &args),
        Command::P4c(args) => bmv2::main(bmv2::Tool::P4c, &args),
        Command::PsaSwitch(args) => bmv2::main(bmv2::Tool::PsaSwitch, &args),
        Command::PnaNic(args) => bmv2::main(bmv2::Tool::PnaNic, &args),
        Command::P4cBm2Psa(args) => bmv2::main(bmv2::Tool::P4cBm2Psa, &args),
        Command::P4cBm2Pna(args) => bmv2::main(bmv2::Tool::P4cBm2Pna, &args),
        Command::Generate(args) => generate::main(&args, command()),
        Command::CompileChild => Ok(compiler::child::main()),
        Command::PortProcess => {
            datapath::descriptors::close_inherited();
            Ok(pktio_process::child::main())
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("sluice: {error:#}");
        ExitCode::from(2)
    })
}

/// Runs `sluice run` with these arguments.
///
/// # Errors
/// If the arguments are wrong, or as of `run::main`.
fn run_with(args: &[String]) -> anyhow::Result<ExitCode> {
    let line = ["sluice", "run"].into_iter().chain(args.iter().map(String::as_str));
    match Cli::from_arg_matches(&command().try_get_matches_from(line)?)?.command {
        Command::Run(args) => run::main(&args),
        _ => Ok(ExitCode::from(2)),
    }
}

/// Sets a panic hook that ends the command quietly when its output cannot be written: Rust ignores SIGPIPE and panics
/// in `print!`. A closed pipe on stdout is exit code 0, another error (a full disk) 2. An error on stderr is always 2,
/// because the lost diagnostics may say why a program is refused.
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
