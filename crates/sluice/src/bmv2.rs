//! The command lines of bmv2 and p4c, so that scripts that call `p4c-bm2-ss`, `p4c`, `simple_switch` or
//! `simple_switch_grpc` work unchanged.
//!
//! ```text
//!   called as                     or as                     becomes
//!   p4c-bm2-ss, p4c               sluice p4c-bm2-ss|p4c     compiler.rs: P4Info, and the JSON that carries the source
//!   p4c-bm2-psa, p4c-bm2-pna                                compiler.rs, for programs of these architectures only
//!   simple_switch                 sluice bmv2               switch.rs: options of `sluice run`
//!   psa_switch, pna_nic                                     switch.rs, as simple_switch
//!   simple_switch_grpc            sluice bmv2-grpc
//! ```
//!
//! `options.rs` parses command lines as these programs do; `names.rs` translates option names in messages. An option
//! that has no meaning here is accepted with a note or refused by name; none is ignored silently. `observe.rs` writes
//! pcap files and the packet log, `config.rs` describes a running program to tools, and `entries.rs` writes a program's
//! entries in the form that controllers read.
//!
//! Docs: `docs/bmv2-tools.md`. Tests: in the files; with unmodified tools, `tests/py/test_bmv2.py`.

pub mod compiler;
pub mod config;
pub mod entries;
pub mod names;
pub mod observe;
pub mod options;
pub mod switch;

use anyhow::Result;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// A program of bmv2 or p4c.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    /// The compiler alone, without the driver.
    P4cBm2Ss,
    /// The compiler alone, for PSA.
    P4cBm2Psa,
    /// The compiler alone, for PNA.
    P4cBm2Pna,
    /// The compiler driver.
    P4c,
    /// The switch with thrift.
    SimpleSwitch,
    /// The switch with P4Runtime and thrift.
    SimpleSwitchGrpc,
    /// The switch with thrift, for PSA.
    PsaSwitch,
    /// The switch with thrift, for PNA.
    PnaNic,
}

impl Tool {
    const ALL: [Tool; 8] = [
        Tool::P4cBm2Ss,
        Tool::P4cBm2Psa,
        Tool::P4cBm2Pna,
        Tool::P4c,
        Tool::SimpleSwitch,
        Tool::SimpleSwitchGrpc,
        Tool::PsaSwitch,
        Tool::PnaNic,
    ];

    /// Returns the tool of this name.
    fn named(name: &str) -> Option<Tool> {
        Tool::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Returns the tool's name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Tool::P4cBm2Ss => "p4c-bm2-ss",
            Tool::P4cBm2Psa => "p4c-bm2-psa",
            Tool::P4cBm2Pna => "p4c-bm2-pna",
            Tool::P4c => "p4c",
            Tool::SimpleSwitch => "simple_switch",
            Tool::SimpleSwitchGrpc => "simple_switch_grpc",
            Tool::PsaSwitch => "psa_switch",
            Tool::PnaNic => "pna_nic",
        }
    }

    /// Returns the only architecture that the tool accepts; `None` if it accepts several.
    fn architecture(self) -> Option<&'static str> {
        match self {
            Tool::P4cBm2Psa => Some("psa"),
            Tool::P4cBm2Pna => Some("pna"),
            _ => None,
        }
    }
}

/// A command line of another program, as it is.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Its options; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    args: Vec<OsString>,
}

/// Runs the tool that `argv[0]` names; `None` if it names none.
pub fn called_as(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let called = args.next()?;
    let tool = Tool::named(Path::new(&called).file_name()?.to_str()?)?;
    Some(run(tool, args))
}

/// Runs a tool as a subcommand of `sluice`. Errors are printed, so the result is always `Ok`.
pub fn main(tool: Tool, args: &Args) -> Result<ExitCode> {
    Ok(run(tool, args.args.iter().cloned()))
}

/// Runs a tool. The tools have a single exit code, 1, for every failure.
fn run(tool: Tool, args: impl Iterator<Item = OsString>) -> ExitCode {
    let text = |arg: OsString| arg.into_string().map_err(|arg| anyhow::anyhow!("{} is no UTF-8", arg.display()));
    let result = args.map(text).collect::<Result<Vec<String>>>().and_then(|args| match tool {
        Tool::P4cBm2Ss | Tool::P4cBm2Psa | Tool::P4cBm2Pna | Tool::P4c => compiler::main(tool, args),
        Tool::SimpleSwitch | Tool::SimpleSwitchGrpc | Tool::PsaSwitch | Tool::PnaNic => switch::main(tool, args),
    });
    result.unwrap_or_else(|error| {
        eprintln!("{}: {error:#}", tool.name());
        ExitCode::from(1)
    })
}
