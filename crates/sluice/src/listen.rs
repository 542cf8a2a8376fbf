//! `sluice listen`: prints what a running switch sends to its controller: digest messages, idle entries, packets.
//!
//! The switch sends these to the primary client only, so the command is primary while it runs. If another client is,
//! that takes a higher `--election-id`, which demotes the other. Digest lists are acknowledged.
//!
//! Messages that the program cannot produce are reported at once; if nothing else was requested, the command ends.
//! Packets are always possible, because any program can send to the controller's port.

use crate::changes::WriterArgs;
use crate::complete;
use anyhow::Result;
use clap_complete::ArgValueCompleter;
use entities::{Names, id_of, values};
use grpc::client::StreamUpdate;
use messages::p4::v1 as pb;
use pb::entity::Entity;
use serde_json::json;
use std::io::IsTerminal;
use std::process::ExitCode;

/// Arguments of `listen`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sluice digest add learn max_list_size=16 max_timeout=100ms && sluice listen learn
  sluice listen --idle --json
  sluice listen --packets --count 1")]
pub struct Args {
    #[command(flatten)]
    writer: WriterArgs,
    /// Only messages of these digests; without any of DIGEST, --idle and --packets, everything.
    #[arg(value_name = "DIGEST", add = ArgValueCompleter::new(complete::digests))]
    digests: Vec<String>,
    /// Entries that no packet has hit for their timeout (`table set ... timeout=30s`).
    #[arg(long)]
    idle: bool,
    /// Packets for the controller.
    #[arg(long)]
    packets: bool,
    /// End after so many messages.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// Runs `sluice listen`.
///
/// # Errors
/// If no switch answers, or the command does not become primary.
pub fn main(args: &Args) -> Result<ExitCode> {
    let (client, names) = args.writer.connect()?;
    let digests = args.digests.iter().map(|name| names.digest_id(name)).collect::<Result<Vec<u32>, _>>();
    let digests = match digests {
        Ok(digests) => digests,
        Err(message) => return Ok(crate::changes::refuse([message])),
    };
    let everything = digests.is_empty() && !args.idle && !args.packets;
    let idle_tables = names.tables().iter().any(|table| names.is_timed(table));
    if args.idle && !idle_tables {
        let nothing = digests.is_empty() && !args.packets;
        let rest = if nothing { ", so nothing can come" } else { "" };
        let message = format!("no table of the program has idle timeouts (`support_timeout = true`){rest}");
        if nothing {
            return Ok(crate::changes::refuse([message]));
        }
        eprintln!("sluice: {message}");
    }
    let mut primary = args.writer.claim(&client)?;
    let enabled = args.writer.read(&client, vec![Entity::DigestEntry(pb::DigestEntry::default())]).unwrap_or_default();
    let asked: Vec<u32> = match everything {
        true => names.info().digests.iter().map(|digest| id_of(&digest.preamble)).collect(),
        false => digests.clone(),
    };
    let is_sent = |id: &u32| enabled.iter().any(|e| matches!(e, Entity::DigestEntry(e) if e.digest_id == *id));
    let mut lacks: Vec<String> = Vec::new();
    for id in asked.iter().filter(|id| !is_sent(id)) {
        let name = names.digest_name(*id);
        lacks.push(format!("digest `{name}` is not sent: `sluice digest add {name}` asks for it"));
    }
    match (everything && asked.is_empty(), everything && !idle_tables) {
        (true, true) => lacks.push("the program has no digest and no table with idle timeouts".to_string()),
        (true, false) => lacks.push("the program has no digest".to_string()),
        (false, true) => lacks.push("no table of the program has idle timeouts".to_string()),
        (false, false) => {}
    }
    lacks.iter().for_each(|what| eprintln!("sluice: {what}"));
    // Say what the command waits for, at a terminal or if that is less than was requested.
    if !args.writer.output.json && (!lacks.is_empty() || std::io::stderr().is_terminal()) {
        let kinds = [
            (!asked.is_empty()).then_some("digest messages"),
            ((everything || args.idle) && idle_tables).then_some("idle entries"),
            (everything || args.packets).then_some("packets"),
        ];
        let kinds: Vec<&str> = kinds.into_iter().flatten().collect();
        eprintln!("waiting for {}; Ctrl-C ends", kinds.join(", "));
    }
    let mut left = args.count.unwrap_or(u64::MAX);
    let output = args.writer.output;
    primary.listen(|update| {
        let wanted = match update {
            StreamUpdate::Digest(list) => everything || digests.contains(&list.digest_id),
            StreamUpdate::IdleTimeoutNotification(_) => everything || args.idle,
            StreamUpdate::Packet(_) => everything || args.packets,
            _ => false,
        };
        if wanted && left > 0 {
            print(output, &names, update);
            left -= 1;
        }
        left > 0
    })?;
    Ok(ExitCode::SUCCESS)
}

fn print(output: crate::output::JsonArgs, names: &Names, update: &StreamUpdate) {
    match update {
        StreamUpdate::Digest(list) => output.print_line(
            || json!({ "digest": names.digest_list_json(list) }),
            || {
                let name = names.digest_name(list.digest_id);
                let lines: Vec<String> =
                    list.data.iter().map(|data| format!("digest {name} {}", values::data_text(data))).collect();
                lines.join("\n")
            },
        ),
        StreamUpdate::IdleTimeoutNotification(idle) => output.print_line(
            || json!({ "idle": idle.table_entry.iter().map(|entry| names.entry_json(entry)).collect::<Vec<_>>() }),
            || {
                let lines: Vec<String> =
                    idle.table_entry.iter().map(|entry| format!("idle {}", names.key_words(entry))).collect();
                lines.join("\n")
            },
        ),
        StreamUpdate::Packet(packet) => output.print_line(
            || json!({ "packet": names.packet_json(packet) }),
            || {
                let fields = names.packet_fields(packet);
                let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}:{value}")).collect();
                format!("packet {} {}", fields.join(" "), hex::encode(&packet.payload))
            },
        ),
        _ => {}
    }
}
