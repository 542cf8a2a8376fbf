//! `sluice cache`: the flow caches of a device, one per worker. The server's side is in `openflow/admin.rs` for bridges
//! and in `operator.rs` for P4 devices.
//!
//! Exit code 1 when the switch refuses, 2 when none answers. Tests: below, `tests/py/test_programs.py`,
//! `test_openflow_operator.py`.

use crate::changes::refuse;
use crate::complete;
use crate::output::{JsonArgs, Rows, word};
use crate::stats::ServerArgs;
use anyhow::{Result, bail};
use clap_complete::ArgValueCompleter;
use grpc::client::ClientError;
use messages::sluice::v1 as pb;
use pb::cache_response::{Megaflow, Refusal, Worker};
use std::process::ExitCode;

/// Arguments of `cache`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: CacheCommand,
}

#[derive(clap::Subcommand)]
enum CacheCommand {
    /// Show hits, misses and sizes, by worker.
    Stats(CacheArgs),
    /// Show megaflows: what their packets have in common, the flows that these go through, and what is done with them.
    Show(ShowArgs),
    /// Forget all megaflows; the next packets go through the tables. What they have counted stays counted.
    Flush(CacheArgs),
}

#[derive(clap::Args)]
struct CacheArgs {
    /// The device [default: the bridge, or the only one].
    #[arg(long, visible_alias = "device", value_name = "ID", add = ArgValueCompleter::new(complete::devices))]
    device_id: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: JsonArgs,
}

#[derive(clap::Args)]
struct ShowArgs {
    /// Only those of packets that came by this port.
    #[arg(long, value_name = "PORT")]
    port: Option<u32>,
    /// At most so many of each worker.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4096))]
    limit: u32,
    #[command(flatten)]
    cache: CacheArgs,
}

/// Runs `sluice cache`.
///
/// # Errors
/// If no switch answers.
pub fn main(args: &Args) -> Result<ExitCode> {
    let (args, flush, show) = match &args.command {
        CacheCommand::Stats(args) => (args, false, None),
        CacheCommand::Flush(args) => (args, true, None),
        CacheCommand::Show(args) => {
            (&args.cache, false, Some(pb::cache_request::Show { port: args.port, limit: args.limit }))
        }
    };
    let lists = show.is_some();
    match args.server.connect()?.cache(pb::CacheRequest { device_id: args.device_id, flush, show }) {
        Ok(answer) if lists => {
            args.output.print(|| listing_json(&answer), || listing(&answer));
            Ok(ExitCode::SUCCESS)
        }
        Ok(answer) => {
            args.output.print(|| json(&answer), || if flush { String::new() } else { text(&answer) });
            Ok(ExitCode::SUCCESS)
        }
        Err(ClientError::Refused(reason)) => Ok(refuse([reason])),
        Err(error) => bail!(error),
    }
}

fn listing_json(answer: &pb::CacheResponse) -> serde_json::Value {
    let megaflow = |megaflow: &Megaflow| {
        serde_json::json!({
            "worker": megaflow.worker,
            "match": megaflow.r#match,
            "path": megaflow.path,
            "actions": megaflow.actions,
            "packets": megaflow.packets,
            "bytes": megaflow.bytes,
            "idle_ms": megaflow.idle_ms,
        })
    };
    serde_json::json!({ "megaflows": answer.megaflows.iter().map(megaflow).collect::<Vec<_>>(), "more": answer.more })
}

fn listing(answer: &pb::CacheResponse) -> String {
    let mut text = String::new();
    for Megaflow { worker, r#match, path, actions, packets, bytes, idle_ms } in &answer.megaflows {
        text += &format!("worker {worker}: {}\n", word(r#match));
        path.iter().for_each(|line| text += &format!("    {}\n", word(line)));
        let (actions, idle) = (word(actions), *idle_ms as f64 / 1000.0);
        text += &format!("    actions: {actions}; {packets} packets, {bytes} bytes, idle {idle:.1} s\n");
    }
    if answer.more {
        text += "there are more; --limit shows more of them, --port those of one port\n";
    }
    if text.is_empty() { "no megaflows\n".to_string() } else { text }
}

fn json(answer: &pb::CacheResponse) -> serde_json::Value {
    let worker = |worker: &Worker| {
        serde_json::json!({
            "worker": worker.number,
            "exact_hits": worker.exact_hits,
            "megaflow_hits": worker.megaflow_hits,
            "misses": worker.misses,
            "bypassed": worker.bypassed,
            "megaflows": worker.entries,
            "masks": worker.masks,
            "limit": worker.limit,
            "evictions": worker.evictions,
            "revalidations": worker.revalidations,
            "on": worker.on,
            "ticks_without": worker.ticks_without,
            "ticks_with": worker.ticks_with,
        })
    };
    let refusal = |refusal: &Refusal| serde_json::json!({ "why": refusal.why, "packets": refusal.packets });
    serde_json::json!({
        "cache": answer.r#use,
        "workers": answer.workers.iter().map(worker).collect::<Vec<_>>(),
        "refusals": answer.refusals.iter().map(refusal).collect::<Vec<_>>(),
    })
}

fn text(answer: &pb::CacheResponse) -> String {
    let mut rows = Rows::new(&[
        "worker",
        "exact",
        "megaflow",
        "misses",
        "bypassed",
        "hits %",
        "megaflows",
        "masks",
        "limit",
        "evicted",
        "renewed",
    ]);
    rows.align_right(1);
    for worker in &answer.workers {
        let hits = worker.exact_hits + worker.megaflow_hits;
        let all = hits + worker.misses;
        let share = if all == 0 { "-".to_string() } else { format!("{:.1}", hits as f64 * 100.0 / all as f64) };
        let numbers = [worker.exact_hits, worker.megaflow_hits, worker.misses, worker.bypassed].map(|n| n.to_string());
        let sizes = [worker.entries, worker.masks, worker.limit, worker.evictions, worker.revalidations];
        let cells = [worker.number.to_string()].into_iter().chain(numbers).chain([share]);
        rows.add_row(cells.chain(sizes.map(|n| n.to_string())));
    }
    let mut text = format!("used: {}\n{}", answer.r#use, rows.trim_fmt());
    for Worker { number, on, ticks_without, ticks_with, .. } in &answer.workers {
        if *ticks_without > 0.0 {
            let on = if *on { "on" } else { "off" };
            let with = if *ticks_with > 0.0 { format!("{ticks_with:.0}") } else { "-".to_string() };
            text += &format!("\nworker {number}: {on}; ticks per packet: {ticks_without:.0} without, {with} with");
        }
    }
    for Refusal { why, packets } in &answer.refusals {
        text += &format!("\nnot cached, {packets} looked at: {why}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_a_share_of_packets_that_asked() {
        let busy = Worker { number: 1, exact_hits: 6, megaflow_hits: 3, misses: 1, bypassed: 90, ..Worker::default() };
        let answer = pb::CacheResponse {
            r#use: "auto".to_string(),
            workers: vec![Worker::default(), busy],
            ..pb::CacheResponse::default()
        };
        let shown = text(&answer);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["used:", "auto"]);
        assert_eq!(lines[2][..6], ["0", "0", "0", "0", "0", "-"]);
        assert_eq!(lines[3][..6], ["1", "6", "3", "1", "90", "90.0"]);
        assert_eq!(json(&answer)["workers"][1]["bypassed"], 90);
    }
}
