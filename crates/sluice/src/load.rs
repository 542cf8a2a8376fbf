//! `sluice load NEW.p4`: replaces the program of a running switch, which keeps forwarding and keeps compatible state;
//! under a device id that does not exist, creates another device.
//!
//! Exit code 1 when the program is wrong or the switch refuses it, 2 when no switch answers.

use crate::compile::ProgramArgs;
use crate::stats::ServerArgs;
use anyhow::{Result, bail};
use grpc::client::ClientError;
use messages::sluice::v1 as pb;
use pb::load_request::State;
use std::process::ExitCode;

/// Arguments of `load`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sluice diff old.p4 new.p4               says beforehand what stays
  sluice load new.p4                      refused if something that was written has no place in it
  sluice load new.p4 --allow-loss         what has no place is dropped, and said")]
pub struct Args {
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    server: ServerArgs,
    /// The device id of P4Runtime; one that is not there is made.
    #[arg(long, value_name = "ID", default_value_t = 1)]
    device_id: u64,
    /// Drop what was written and has no place in the new program; without this such a program is refused.
    #[arg(long, conflicts_with = "fresh")]
    allow_loss: bool,
    /// What happens without --allow-loss, too.
    #[arg(long, hide = true, conflicts_with_all = ["fresh", "allow_loss"])]
    strict: bool,
    /// Begin with nothing but what the program itself brings.
    #[arg(long)]
    fresh: bool,
    /// Also while a controller is primary, which will not know.
    #[arg(long)]
    force: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Runs `sluice load`.
///
/// # Errors
/// If the file cannot be read, or no switch answers.
pub fn main(args: &Args) -> Result<ExitCode> {
    let path = &args.program.program;
    let Some(compiled) = args.program.compile.compile_program(path)? else { return Ok(ExitCode::from(1)) };
    let program = frontend::self_contained(path, &compiled.sources, &args.program.compile.options()?)?.into_bytes();
    let client = args.server.connect()?;
    let state = match (args.allow_loss, args.fresh) {
        (_, true) => State::Fresh,
        (true, _) => State::KeepWhatFits,
        (false, false) => State::KeepAll,
    };
    let name = path.display().to_string();
    let request = pb::LoadRequest { device_id: args.device_id, program, state: state.into(), force: args.force, name };
    let done = match client.load(request) {
        Ok(done) => done,
        Err(ClientError::Refused(reason)) => {
            eprintln!("sluice: {} is not loaded: {reason}", path.display());
            if state == State::KeepAll && reason.contains("cannot be kept") {
                eprintln!("--allow-loss loads it without that, --fresh without anything that was written");
            }
            return Ok(ExitCode::from(1));
        }
        Err(error) => bail!(error),
    };
    match args.json {
        true => println!("{:#}", to_json(&done)),
        false => print!("{}", render(args.device_id, &done)),
    }
    Ok(ExitCode::SUCCESS)
}

fn render(device: u64, done: &pb::LoadResponse) -> String {
    let mut text = String::new();
    if done.new_device {
        text += &format!(
            "device {device} is new: `sluice bind PORT --to {device}` gives it ports, `sluice chain ID:PORT {device}:PORT` packets \
             of another device\n"
        );
    }
    for o in &done.outcomes {
        text += &format!("{:<13} {} `{}`", o.fate, o.kind, crate::output::word(&o.name));
        if o.carried > 0 || o.lost > 0 {
            text += &format!(": {} carried over", o.carried);
        }
        if o.lost > 0 {
            text += &format!(", {} lost", o.lost);
        }
        text.push('\n');
        let reason = Some(&o.reason).filter(|reason| !reason.is_empty()).map(|r| format!("the first lost one: {r}"));
        for note in o.notes.iter().cloned().chain(reason) {
            text += &format!("{:<13} - {note}\n", "");
        }
    }
    if done.replication > 0 {
        text += &format!("{:<13} {} multicast groups and clone sessions\n", "kept", done.replication);
    }
    for lost in &done.replication_lost {
        text += &format!("{:<13} {lost}\n", "dropped");
    }
    text + &format!("loaded in {:.1} ms\n", done.took_us as f64 / 1e3)
}

fn to_json(done: &pb::LoadResponse) -> serde_json::Value {
    let outcome = |o: &pb::Outcome| {
        serde_json::json!({
            "kind": o.kind, "name": o.name, "fate": o.fate, "notes": o.notes, "carried": o.carried, "lost": o.lost,
            "reason": o.reason,
        })
    };
    serde_json::json!({
        "outcomes": done.outcomes.iter().map(outcome).collect::<Vec<_>>(),
        "new_device": done.new_device, "replication": done.replication, "replication_lost": done.replication_lost, "took_us": done.took_us,
    })
}
