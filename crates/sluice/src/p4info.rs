//! `sluice p4info X.p4`: what a controller sees, as protobuf text.

use crate::compile::ProgramArgs;
use anyhow::Result;
use std::process::ExitCode;

/// Arguments of `p4info`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    program: ProgramArgs,
}

/// Runs it.
pub fn main(args: &Args) -> Result<ExitCode> {
    let Some(compiled) = args.program.compile.compile_program(&args.program.program)? else {
        return Ok(ExitCode::from(1));
    };
    if let Some(info) = &compiled.p4info {
        print!("{}", p4info::text::print(info));
    }
    Ok(ExitCode::SUCCESS)
}
