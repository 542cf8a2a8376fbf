//! `sluice port`: adds, removes and changes ports of a running switch. The server's side is in `devices.rs`.
//!
//! A command about several ports changes all or none: checks come first, and if the switch refuses a port, earlier
//! changes are undone. A removed port cannot be restored, because its options are not known here; so ports that the
//! switch does not show, the likely refusals, are removed first.
//!
//! Exit code 1 when the switch refuses, 2 when none answers. Tests: `tests/py/test_ports.py`.

use crate::changes::refuse;
use crate::complete;
use crate::output::{JsonArgs, Rows};
use crate::ports::conflict;
use crate::stats::{NO_ADMIN, ServerArgs};
use anyhow::{Context, Result, bail};
use clap_complete::ArgValueCompleter;
use grpc::admin::AdminStats;
use grpc::client::{Client, ClientError};
use messages::sluice::v1 as pb;
use pb::port_request::{Add, Change, Service, Set};
use pktio::PortSpec;
use std::process::ExitCode;

const UNCHANGED: &str = "nothing is changed";
const MEMORY_NOTE: &str = "only in memory: what is sent by it is dropped";

/// Arguments of `port`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: PortCommand,
}

#[derive(clap::Subcommand)]
enum PortCommand {
    /// Add ports, all or none; with --state they come back after a restart.
    Add(AddArgs),
    /// Remove ports.
    Remove(NumbersArgs),
    /// Take ports into service again.
    Up(NumbersArgs),
    /// Take ports out of service: they receive and send nothing, and count as down.
    Down(NumbersArgs),
    /// Open a port again with other options; what it has under way meanwhile is lost, other ports notice nothing.
    Set(SetArgs),
    /// Show ports, and what keeps packets from passing.
    Show(ShowArgs),
}

#[derive(clap::Args)]
struct AddArgs {
    /// As behind `sluice run -i`: 3@veth3, 4@tap:tap0,mtu=9000.
    #[arg(value_name = "PORT@DEVICE", required = true)]
    ports: Vec<String>,
    /// The device that gets them; without it, the one that the switch began with.
    #[arg(long, value_name = "ID", default_value_t = 0, hide_default_value = true)]
    device_id: u64,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: JsonArgs,
}

#[derive(clap::Args)]
struct NumbersArgs {
    /// Port numbers.
    #[arg(value_name = "PORT", required = true, add = ArgValueCompleter::new(complete::ports))]
    ports: Vec<u32>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: JsonArgs,
}

#[derive(clap::Args)]
struct SetArgs {
    /// The port's number.
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    port: u32,
    /// mtu=9000, queues=2, descriptors=4096, memory=4096, isolated, spread, up; mtu=default as if it had not been given.
    #[arg(value_name = "OPTION", required = true)]
    options: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: JsonArgs,
}

#[derive(clap::Args)]
struct ShowArgs {
    /// Only this one.
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    port: Option<u32>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: JsonArgs,
}

/// Runs `sluice port`.
///
/// # Errors
/// If no switch answers; the message says which ports were changed.
pub fn main(args: &Args) -> Result<ExitCode> {
    match &args.command {
        PortCommand::Add(args) => add(args),
        PortCommand::Remove(args) => remove(args),
        PortCommand::Up(args) => set_in_service(args, true),
        PortCommand::Down(args) => set_in_service(args, false),
        PortCommand::Set(args) => {
            let change = Change::Set(Set { number: args.port, options: args.options.clone() });
            carry_out(&args.server.connect()?, args.output, vec![Step::new(args.port, change, None)])
        }
        PortCommand::Show(args) => show(args),
    }
}

/// A change of one port, and how to undo it.
struct Step {
    /// The port as on the command line.
    port: String,
    change: Change,
    /// The inverse change; `None` if there is none.
    undo: Option<Change>,
}

impl Step {
    fn new(port: impl ToString, change: Change, undo: Option<Change>) -> Step {
        Step { port: port.to_string(), change, undo }
    }
}

fn add(args: &AddArgs) -> Result<ExitCode> {
    let mut specs: Vec<PortSpec> = Vec::new();
    let mut steps = Vec::new();
    for text in &args.ports {
        let spec: PortSpec = match text.parse() {
            Ok(spec) => spec,
            Err(error) => {
                let error: pktio::SpecError = error;
                return Ok(refuse([format!("port {text}: {error}\n{}", error.help())]));
            }
        };
        if let Some(problem) = conflict(&spec, specs.iter()) {
            return Ok(refuse([problem]));
        }
        let change = Change::Add(Add { port: text.clone(), device_id: args.device_id });
        steps.push(Step::new(text, change, Some(Change::Remove(spec.number))));
        specs.push(spec);
    }
    let client = args.server.connect()?;
    if steps.len() > 1 {
        let there = ports_of(&client)?;
        if let Some(spec) = specs.iter().find(|spec| there.iter().any(|port| port.number == spec.number)) {
            return Ok(refuse([format!("there is a port {} already", spec.number), UNCHANGED.to_string()]));
        }
    }
    carry_out(&client, args.output, steps)
}

fn remove(args: &NumbersArgs) -> Result<ExitCode> {
    if let Some(problem) = given_twice(&args.ports) {
        return Ok(refuse([problem]));
    }
    let client = args.server.connect()?;
    let mut ports = args.ports.clone();
    if ports.len() > 1 {
        // A configured port that could not be opened is not shown, but can be removed.
        let there = ports_of(&client)?;
        ports.sort_by_key(|number| there.iter().any(|port| port.number == *number));
    }
    let step = |number: u32| Step::new(number, Change::Remove(number), None);
    carry_out(&client, args.output, ports.into_iter().map(step).collect())
}

fn set_in_service(args: &NumbersArgs, up: bool) -> Result<ExitCode> {
    if let Some(problem) = given_twice(&args.ports) {
        return Ok(refuse([problem]));
    }
    let client = args.server.connect()?;
    let there = if args.ports.len() > 1 { ports_of(&client)? } else { vec![] };
    let service = |number, up| Change::Service(Service { number, up });
    let step = |number: &u32| {
        // Undoing restores the previous state, which may equal the requested one.
        let was_up = there.iter().find(|port| port.number == *number).is_none_or(|port| !port.out_of_service);
        Step::new(number, service(*number, up), Some(service(*number, was_up)))
    };
    carry_out(&client, args.output, args.ports.iter().map(step).collect())
}

fn given_twice(numbers: &[u32]) -> Option<String> {
    let twice = (1..numbers.len()).find(|at| numbers[..*at].contains(&numbers[*at]))?;
    Some(format!("port {} is given twice", numbers[twice]))
}

fn ports_of(client: &Client) -> Result<Vec<pb::Port>> {
    Ok(client.stats()?.context(NO_ADMIN)?.ports)
}

/// Makes the changes in order; if one is refused, undoes those before it.
fn carry_out(client: &Client, output: JsonArgs, steps: Vec<Step>) -> Result<ExitCode> {
    let all: Vec<String> = steps.iter().map(|step| step.port.clone()).collect();
    let change = |change| client.port(pb::PortRequest { change: Some(change) });
    let (mut done, mut code) = (Vec::new(), ExitCode::SUCCESS);
    for step in steps {
        match change(step.change) {
            Ok(answer) => done.push((step.port, answer.note, step.undo)),
            Err(ClientError::Refused(reason)) => {
                // Do not name the port twice.
                let which = if reason.starts_with("port ") { String::new() } else { format!("port {}: ", step.port) };
                let mut messages = vec![format!("{which}{reason}")];
                let mut left = Vec::new();
                for (port, note, undo) in std::mem::take(&mut done).into_iter().rev() {
                    match undo.map(change) {
                        Some(Ok(_)) => {}
                        Some(Err(why)) => {
                            messages.push(format!("port {port} could not be brought back to what it was: {why}"));
                            left.push((port, note, None));
                        }
                        None => left.push((port, note, None)),
                    }
                }
                left.reverse();
                done = left;
                if all.len() > 1 {
                    messages.push(state_of(&all, done.iter().map(|(port, ..)| port.as_str()).collect()));
                }
                code = refuse(messages);
                break;
            }
            Err(error) => {
                let done = done.iter().map(|(port, ..)| port.as_str()).collect();
                let rest = if all.len() > 1 { format!("\n{}", state_of(&all, done)) } else { String::new() };
                bail!("port {}: {error}{rest}", step.port);
            }
        }
    }
    let object = |(port, note, _): &(String, String, _)| serde_json::json!({ "port": port, "note": note });
    let line = |(port, note, _): &(String, String, _)| format!("port {port}: {note}\n");
    output.print(
        || serde_json::json!({ "changed": done.iter().map(object).collect::<Vec<_>>() }),
        || done.iter().filter(|(_, note, _)| !note.is_empty()).map(line).collect(),
    );
    Ok(code)
}

/// Returns which ports were changed and which were not.
fn state_of(all: &[String], done: Vec<&str>) -> String {
    if done.is_empty() {
        return UNCHANGED.to_string();
    }
    let not: Vec<&str> = all.iter().map(String::as_str).filter(|port| !done.contains(port)).collect();
    format!("changed: {}; not changed: {}", done.join(", "), not.join(", "))
}

fn show(args: &ShowArgs) -> Result<ExitCode> {
    let stats = args.server.connect()?.stats()?;
    let mut stats = stats.context(NO_ADMIN)?;
    if let Some(number) = args.port {
        stats.ports.retain(|port| port.number == number);
        if stats.ports.is_empty() {
            eprintln!("sluice: there is no port {number}");
            return Ok(ExitCode::from(1));
        }
    }
    let ports = || serde_json::json!({ "ports": crate::stats::to_json(&stats)["ports"] });
    args.output.print(ports, || text(&stats));
    Ok(ExitCode::SUCCESS)
}

fn text(stats: &AdminStats) -> String {
    let mut table = Rows::new(&["port", "device", "kind", "bound to", "state", "mtu", "address", "note"]);
    table.align_right(5);
    for port in &stats.ports {
        // A memory port of a switch has no peer, so no link that could be up.
        let memory = port.kind == "memory";
        let state = match (port.out_of_service, port.link_up) {
            (true, _) => "out of service",
            (false, true) => "up",
            (false, false) if memory => "no link",
            (false, false) => "down",
        };
        let any_length = memory || port.kind == "pcap";
        let note = if memory && port.note.is_empty() { MEMORY_NOTE } else { &port.note };
        table.add_row([
            port.number.to_string(),
            port.name.clone(),
            port.kind.clone(),
            port.device_id.to_string(),
            state.to_string(),
            if any_length { "any".to_string() } else { port.mtu.to_string() },
            port.mac.clone(),
            note.to_string(),
        ]);
    }
    format!("{}\n", table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_shown_with_their_state_and_what_is_wrong() {
        let port = |number, link_up, out_of_service, note: &str| pb::Port {
            number,
            name: format!("veth{number}"),
            kind: "af_packet".into(),
            link_up,
            out_of_service,
            device_id: 1,
            note: note.into(),
            mtu: 1500,
            ..Default::default()
        };
        let memory = pb::Port { kind: "memory".into(), ..port(4, false, false, "") };
        let ports =
            vec![port(1, true, false, ""), port(2, false, true, ""), port(3, false, false, "it is gone"), memory];
        let text = text(&AdminStats { ports, ..Default::default() });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[1].ends_with("1500") && lines[4].contains(" no link ") && lines[4].contains(" any "), "{text}");
        assert!(lines[4].contains(MEMORY_NOTE) && !lines[4].contains("down"), "{text}");
        assert!(lines[1].contains("veth1") && lines[1].contains(" up "), "{text}");
        assert!(lines[2].contains("out of service"), "{text}");
        assert!(lines[3].contains(" down ") && lines[3].contains("it is gone"), "{text}");
    }

    #[test]
    fn what_was_done_and_what_was_not_is_said() {
        let all = ["1", "2", "3"].map(String::from);
        assert_eq!(state_of(&all, vec![]), "nothing is changed");
        assert_eq!(state_of(&all, vec!["1", "3"]), "changed: 1, 3; not changed: 2");
        assert_eq!(given_twice(&[1, 2, 1]).as_deref(), Some("port 1 is given twice"));
        assert_eq!(given_twice(&[1, 2]), None);
    }
}
