//! `sluice port`: ports of a running switch, added, removed and changed while packets run. What the server does is in
//! `devices.rs`.
//!
//! Exit code 1 when the switch refuses, 2 when none answers. Tests: `tests/py/test_ports.py`.

use crate::complete;
use crate::output::{JsonArgs, Rows};
use crate::stats::ServerArgs;
use anyhow::{Context, Result, bail};
use clap_complete::ArgValueCompleter;
use grpc::admin::AdminStats;
use grpc::client::ClientError;
use grpc::proto::sluice::v1 as pb;
use pb::port_request::{Add, Change, Service, Set};
use std::process::ExitCode;

/// Arguments of `port`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: PortCommand,
}

#[derive(clap::Subcommand)]
enum PortCommand {
    /// Add ports; with --state they come back after a restart.
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
    /// mtu=9000, queues=2, descriptors=4096, memory=4096, spread, up; mtu=default as if it had not been given.
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

/// Runs `port`.
pub fn main(args: &Args) -> Result<ExitCode> {
    let service = |number: &u32, up| Change::Service(Service { number: *number, up });
    match &args.command {
        PortCommand::Add(add) => {
            let one = |port: &String| Change::Add(Add { port: port.clone(), device_id: add.device_id });
            change(&add.server, add.output, &add.ports, one)
        }
        PortCommand::Remove(args) => change(&args.server, args.output, &args.ports, |port| Change::Remove(*port)),
        PortCommand::Up(args) => change(&args.server, args.output, &args.ports, |port| service(port, true)),
        PortCommand::Down(args) => change(&args.server, args.output, &args.ports, |port| service(port, false)),
        PortCommand::Set(args) => {
            let one = |port: &u32| Change::Set(Set { number: *port, options: args.options.clone() });
            change(&args.server, args.output, &[args.port], one)
        }
        PortCommand::Show(args) => show(args),
    }
}

/// Makes a change of each port, up to the first that is refused.
fn change<T: std::fmt::Display>(
    server: &ServerArgs,
    output: JsonArgs,
    ports: &[T],
    change: impl Fn(&T) -> Change,
) -> Result<ExitCode> {
    let client = server.connect()?;
    let (mut done, mut code) = (Vec::new(), ExitCode::SUCCESS);
    for port in ports {
        match client.port(pb::PortRequest { change: Some(change(port)) }) {
            Ok(answer) => done.push((port.to_string(), answer.note)),
            Err(ClientError::Refused(reason)) => {
                // Reasons that name the port do not need it twice.
                let which = if reason.starts_with("port ") { String::new() } else { format!("port {port}: ") };
                eprintln!("sluice: {which}{reason}");
                code = ExitCode::from(1);
                break;
            }
            Err(error) => bail!(error),
        }
    }
    let object = |(port, note): &(String, String)| serde_json::json!({ "port": port, "note": note });
    let line = |(port, note): &(String, String)| format!("port {port}: {note}\n");
    output.print(
        || serde_json::json!({ "changed": done.iter().map(object).collect::<Vec<_>>() }),
        || done.iter().filter(|(_, note)| !note.is_empty()).map(line).collect(),
    );
    Ok(code)
}

fn show(args: &ShowArgs) -> Result<ExitCode> {
    let stats = args.server.connect()?.stats()?;
    let mut stats = stats.context("the server has no admin service: it is not a Sluice switch")?;
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
        let state = match (port.out_of_service, port.link_up) {
            (true, _) => "out of service",
            (false, true) => "up",
            (false, false) => "down",
        };
        table.add_row([
            port.number.to_string(),
            port.name.clone(),
            port.kind.clone(),
            port.device_id.to_string(),
            state.to_string(),
            port.mtu.to_string(),
            port.mac.clone(),
            port.note.clone(),
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
        let ports = vec![port(1, true, false, ""), port(2, false, true, ""), port(3, false, false, "it is gone")];
        let text = text(&AdminStats { ports, ..Default::default() });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[1].contains("veth1") && lines[1].contains(" up "), "{text}");
        assert!(lines[2].contains("out of service"), "{text}");
        assert!(lines[3].contains(" down ") && lines[3].contains("it is gone"), "{text}");
    }
}
