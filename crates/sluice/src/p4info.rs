//! `sluice p4info X.p4`: prints a program's P4Info, as protobuf text or in protobuf's JSON form.

use crate::compile::ProgramArgs;
use crate::output::JsonArgs;
use anyhow::{Context, Result};
use messages::FILE_DESCRIPTOR_SET;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use std::process::ExitCode;

/// Arguments of `p4info`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    output: JsonArgs,
}

/// Runs `sluice p4info`.
///
/// # Errors
/// If the options are wrong or the file cannot be read.
pub fn main(args: &Args) -> Result<ExitCode> {
    let Some(compiled) = args.program.compile.compile_program(&args.program.program)? else {
        return Ok(ExitCode::from(1));
    };
    if let Some(info) = &compiled.p4info {
        // Converting can fail, so it is done before anything is printed.
        let json = if args.output.json { json(info)? } else { serde_json::Value::Null };
        args.output.print(|| json, || p4info::text::print(info));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns `p4.config.v1.P4Info` in protobuf's JSON form, which the protobuf libraries of all languages read.
///
/// # Errors
/// If the message does not match the embedded descriptors, which is a bug.
pub fn json(info: &p4info::P4Info) -> Result<serde_json::Value> {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET)?;
    let of = pool.get_message_by_name("p4.config.v1.P4Info").context("P4Info is not described")?;
    let bytes = messages::convert::p4info::to_proto(info).encode_to_vec();
    Ok(serde_json::to_value(DynamicMessage::decode(of, bytes.as_slice())?)?)
}
