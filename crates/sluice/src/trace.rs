//! `sluice trace X.p4 --port N --packet HEX`: what a program does with one packet, step by step, with P4 lines.

use crate::compile::ProgramArgs;
use anyhow::{Context, Result};
use datapath::oracle::Oracle;
use datapath::{Local, Pipeline};
use interp::trace::Form;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Arguments of `trace`.
#[derive(clap::Args)]
#[command(after_help = "Steps that change nothing (an assignment of the value that is there already) are not shown.")]
pub struct Args {
    #[command(flatten)]
    program: ProgramArgs,
    /// Lines that set the switch up: `add`, `setdefault`, `mc_*`, `mirroring_*`, ... as in STF scripts.
    #[arg(long, value_name = "FILE")]
    entries: Option<PathBuf>,
    /// The port that the packet comes from.
    #[arg(long)]
    port: u32,
    /// The frame as hexadecimal digits; spaces and colons are ignored.
    #[arg(long, value_name = "HEX")]
    packet: String,
    /// Trace the IR after all passes instead of the IR as lowered (fewer steps: what the passes removed is gone).
    #[arg(long)]
    optimised: bool,
}

/// Runs it.
pub fn main(args: &Args) -> Result<ExitCode> {
    let Some(compiled) = args.program.compile.compile_program(&args.program.program)? else {
        return Ok(ExitCode::from(1));
    };
    let digits: String = args.packet.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
    let frame = hex::decode(&digits).context("--packet is not whole bytes of hexadecimal digits")?;
    let (program, form) =
        if args.optimised { (compiled.optimised, Form::Optimised) } else { (compiled.raw, Form::Lowered) };
    let program = Arc::new(program.context("the program has IR")?);
    let oracle = Oracle::new(Arc::clone(&program), true);
    let output = oracle.output();
    let pipeline = Arc::new(Pipeline::new(program, Box::new(oracle), 1));
    let mut local = Local::new(pipeline);
    if let Some(file) = &args.entries
        && !crate::run::apply_entries(file, local.pipeline(), local.replication())?
    {
        return Ok(ExitCode::from(1));
    }
    let sent = local
        .receive(args.port, &frame)
        .with_context(|| format!("the frame has {} bytes, a packet buffer 2,048", frame.len()))?;
    for (i, (entry, trace)) in output.take_traces().iter().enumerate() {
        if i > 0 {
            println!();
        }
        let mut copy = String::new();
        if matches!(entry, ir::EntryKind::Egress | ir::EntryKind::Deparse) {
            copy.extend(trace.port.map(|port| format!(", port {port}")));
            copy.extend(trace.rid.filter(|rid| *rid != 0).map(|rid| format!(", rid {rid}")));
        }
        println!("== {}{copy}", entry.name());
        print!("{}", trace.render(&compiled.sources, form));
    }
    for line in output.take_logs() {
        println!("log: {line}");
    }
    for message in local.pipeline().take_digests() {
        let digest = &local.pipeline().program().externs[message.digest.index()];
        let fields: Vec<String> = message.fields.iter().map(|f| format!("{f:#}")).collect();
        println!("digest {}: {}", digest.name, fields.join(", "));
    }
    println!();
    if sent.is_empty() {
        let drops = local.pipeline().drops(0).read(local.pipeline().program());
        let reasons: Vec<String> = drops.into_iter().filter(|(_, n)| *n > 0).map(|(name, _)| name).collect();
        println!("dropped: {}", if reasons.is_empty() { "no copy was made".to_string() } else { reasons.join(", ") });
    }
    for out in sent {
        println!("port {}: {}", out.port, hex::encode(out.bytes));
    }
    Ok(ExitCode::SUCCESS)
}
