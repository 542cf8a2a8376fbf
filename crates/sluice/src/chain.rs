//! `sluice unload`, `show`, `bind`, `chain`, `unchain`: several programs in one running switch.
//!
//! `sluice load X.p4 --device-id N` creates a device; these commands give it ports, link it to other devices, and
//! remove it. The server's side is in `devices.rs`.
//!
//! Exit code 1 when the switch refuses, 2 when none answers. Tests: `tests/py/test_devices.py`.

use crate::complete;
use crate::devices::parse_end;
use crate::output::{Rows, word};
use crate::stats::{NO_ADMIN, ServerArgs, links};
use anyhow::{Context, Result, bail};
use clap_complete::ArgValueCompleter;
use datapath::PortOf;
use grpc::admin::AdminStats;
use grpc::client::ClientError;
use messages::sluice::v1 as pb;
use std::process::ExitCode;

/// Arguments of `unload`.
#[derive(clap::Args)]
#[command(after_help = "Its ports must be bound to other devices and its links removed before.")]
pub struct UnloadArgs {
    /// The device's id.
    #[arg(value_name = "ID", add = ArgValueCompleter::new(complete::devices))]
    device_id: u64,
    #[command(flatten)]
    server: ServerArgs,
    /// Also while a controller is primary; its stream ends.
    #[arg(long)]
    force: bool,
}

/// Arguments of `show`.
#[derive(clap::Args)]
pub struct ShowArgs {
    /// Only this device, with its tables.
    #[arg(value_name = "ID", add = ArgValueCompleter::new(complete::devices))]
    device_id: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: crate::output::JsonArgs,
}

/// Arguments of `bind`.
#[derive(clap::Args)]
#[command(
    after_help = "A port belongs to one device: the one before has it no longer. Packets in its queues meet the new one."
)]
pub struct BindArgs {
    /// Port numbers.
    #[arg(value_name = "PORT", required = true, add = ArgValueCompleter::new(complete::ports))]
    ports: Vec<u32>,
    /// The id of the device that gets them.
    #[arg(long, value_name = "ID", add = ArgValueCompleter::new(complete::devices))]
    to: u64,
    #[command(flatten)]
    server: ServerArgs,
    /// Also while a controller is primary for a device that this concerns.
    #[arg(long)]
    force: bool,
}

/// Arguments of `chain`.
#[derive(clap::Args)]
#[command(
    after_help = "Numbers of ports are the devices' own: any that no port is bound under, within the width of the \
                        program's port numbers."
)]
pub struct ChainArgs {
    /// Where packets leave a device, as 1:10.
    #[arg(value_name = "ID:PORT", value_parser = parse_end)]
    from: PortOf,
    /// Where they enter another one, as 2:1.
    #[arg(value_name = "ID:PORT", value_parser = parse_end)]
    to: PortOf,
    /// Also back, by the same ports.
    #[arg(long)]
    both_ways: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// Also while a controller is primary for a device that this concerns.
    #[arg(long)]
    force: bool,
}

/// Arguments of `unchain`.
#[derive(clap::Args)]
pub struct UnchainArgs {
    /// Where the link begins, as 1:10.
    #[arg(value_name = "ID:PORT", value_parser = parse_end)]
    from: PortOf,
    /// Also the link back.
    #[arg(long)]
    both_ways: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// Also while a controller is primary for a device that this concerns.
    #[arg(long)]
    force: bool,
}

/// Returns the exit code of a request; prints the reason of a refusal.
fn finish(done: Result<(), ClientError>, what: &str) -> Result<ExitCode> {
    match done {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(ClientError::Refused(reason)) => {
            eprintln!("sluice: {what}: {reason}");
            Ok(ExitCode::from(1))
        }
        Err(error) => bail!(error),
    }
}

/// Runs `sluice unload`.
///
/// # Errors
/// If no switch answers.
pub fn unload(args: &UnloadArgs) -> Result<ExitCode> {
    let request = pb::UnloadRequest { device_id: args.device_id, force: args.force };
    finish(args.server.connect()?.unload(request), &format!("device {} is not unloaded", args.device_id))
}

/// Runs `sluice bind`.
///
/// # Errors
/// If no switch answers.
pub fn bind(args: &BindArgs) -> Result<ExitCode> {
    let request = pb::BindRequest { ports: args.ports.clone(), device_id: args.to, force: args.force };
    finish(args.server.connect()?.bind(request), "nothing is bound")
}

fn end(at: PortOf) -> Option<pb::DevicePort> {
    Some(pb::DevicePort { device_id: at.device, port: at.port })
}

/// Runs `sluice chain`.
///
/// # Errors
/// If no switch answers.
pub fn chain(args: &ChainArgs) -> Result<ExitCode> {
    let (from, to) = (end(args.from), end(args.to));
    let request = pb::ChainRequest { from, to, both_ways: args.both_ways, remove: false, force: args.force };
    finish(args.server.connect()?.chain(request), "nothing is chained")
}

/// Runs `sluice unchain`.
///
/// # Errors
/// If no switch answers.
pub fn unchain(args: &UnchainArgs) -> Result<ExitCode> {
    let from = end(args.from);
    let request = pb::ChainRequest { from, to: None, both_ways: args.both_ways, remove: true, force: args.force };
    finish(args.server.connect()?.chain(request), "nothing is removed")
}

/// Runs `sluice show`.
///
/// # Errors
/// If no switch answers.
pub fn show(args: &ShowArgs) -> Result<ExitCode> {
    let stats = args.server.connect()?.stats()?;
    let stats = stats.context(NO_ADMIN)?;
    let Some(id) = args.device_id else {
        args.output.print(|| to_json(&stats, None), || all(&stats));
        return Ok(ExitCode::SUCCESS);
    };
    match stats.devices.iter().find(|device| device.id == id) {
        Some(device) => args.output.print(|| to_json(&stats, Some(id)), || one(&stats, device)),
        None => {
            let ids: Vec<String> = stats.devices.iter().map(|device| device.id.to_string()).collect();
            eprintln!(
                "sluice: there is no device {id}; there {} {}",
                if ids.len() == 1 { "is" } else { "are" },
                ids.join(", ")
            );
            return Ok(ExitCode::from(1));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns devices and links with ports and tables, in the form of `sluice stats --json`; of one device, or of all.
fn to_json(stats: &AdminStats, id: Option<u64>) -> serde_json::Value {
    let mut of = stats.clone();
    if let Some(id) = id {
        of.devices.retain(|device| device.id == id);
        of.ports.retain(|port| port.device_id == id);
        of.tables.retain(|table| table.device_id == id);
        of.links.retain(|link| is_at(link.from, id) || is_at(link.to, id));
    }
    let all = crate::stats::to_json(&of);
    serde_json::json!({
        "devices": all["devices"], "ports": all["ports"], "tables": all["tables"], "links": all["links"],
    })
}

fn program(device: &pb::Device) -> String {
    match (device.runs, device.program.as_str()) {
        (false, _) => "none".to_string(),
        (true, "") => "unnamed".to_string(),
        (true, name) => word(name),
    }
}

fn ports_of(stats: &AdminStats, device: u64) -> Vec<String> {
    stats.ports.iter().filter(|port| port.device_id == device).map(|port| port.number.to_string()).collect()
}

/// Returns `primary with election id 7` and the like, one text per role that has a primary.
fn roles(device: &pb::Device) -> Vec<String> {
    let role = |r: &pb::Role| {
        let name = match (r.name.as_str(), r.id) {
            ("", 0) => String::new(),
            ("", id) => format!("role {id}: "),
            (name, _) => format!("role {}: ", word(name)),
        };
        let id = r.election_id.map(|id| u128::from(id.high) << 64 | u128::from(id.low));
        let primary = match (r.has_primary, id) {
            (true, Some(id)) => format!("primary with election id {id}"),
            (_, Some(id)) => format!("no primary (highest election id {id})"),
            (_, None) => "no primary".to_string(),
        };
        let backups = r.clients - u32::from(r.has_primary).min(r.clients);
        let backups = match backups {
            0 => String::new(),
            1 => ", 1 backup".to_string(),
            n => format!(", {n} backups"),
        };
        format!("{name}{primary}{backups}")
    };
    device.roles.iter().map(role).collect()
}

fn is_at(end: Option<pb::DevicePort>, device: u64) -> bool {
    end.is_some_and(|end| end.device_id == device)
}

/// Returns the text about all devices and links.
fn all(stats: &AdminStats) -> String {
    let mut table = Rows::new(&["device", "program", "changes", "ports", "tables", "entries", "dropped"]);
    table.align_right(4);
    for device in &stats.devices {
        let tables: Vec<&pb::Table> = stats.tables.iter().filter(|t| t.device_id == device.id).collect();
        let dropped: u64 = stats.drops.iter().filter(|d| d.device_id == device.id).map(|d| d.packets).sum();
        let ports = ports_of(stats, device.id);
        table.add_row([
            device.id.to_string(),
            program(device),
            device.program_changes.to_string(),
            if ports.is_empty() { "none".to_string() } else { ports.join(", ") },
            tables.len().to_string(),
            tables.iter().map(|t| t.entries).sum::<u64>().to_string(),
            dropped.to_string(),
        ]);
    }
    let mut text = format!("{}\n", table.trim_fmt());
    let claims = stats.devices.iter().flat_map(|d| roles(d).into_iter().map(move |role| (d.id, role)));
    let mut claimed = Rows::new(&["device", "controllers"]);
    claims.for_each(|(id, role)| claimed.add_row([id.to_string(), role]));
    if claimed.row_count() > 0 {
        text += &format!("\n{}\n", claimed.trim_fmt());
    }
    if !stats.links.is_empty() {
        text += &format!("\n{}\n", links(&stats.links).trim_fmt());
    }
    text
}

/// Returns the text about one device and its tables.
fn one(stats: &AdminStats, device: &pb::Device) -> String {
    let mut text = format!("device {}: {}, program change {}\n", device.id, program(device), device.program_changes);
    for port in stats.ports.iter().filter(|port| port.device_id == device.id) {
        text +=
            &format!("port {} is {}, {}\n", port.number, word(&port.name), if port.link_up { "up" } else { "down" });
    }
    for role in roles(device) {
        text += &format!("{role}\n");
    }
    let mine = |link: &&pb::Link| is_at(link.from, device.id) || is_at(link.to, device.id);
    let mine: Vec<pb::Link> = stats.links.iter().filter(mine).cloned().collect();
    if !mine.is_empty() {
        text += &format!("\n{}\n", links(&mine).trim_fmt());
    }
    let mut tables = Rows::new(&["table", "entries", "size"]);
    tables.align_right(1);
    for t in stats.tables.iter().filter(|t| t.device_id == device.id) {
        tables.add_row([t.name.clone(), t.entries.to_string(), t.size.to_string()]);
    }
    if tables.row_count() > 0 {
        text += &format!("\n{}\n", tables.trim_fmt());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn devices_with_their_ports_and_links() {
        let port =
            |number, device_id| pb::Port { number, device_id, name: format!("veth{number}"), ..Default::default() };
        let table = |name: &str, device_id| pb::Table {
            name: name.into(),
            entries: 3,
            size: 8,
            device_id,
            ..Default::default()
        };
        let at = |device_id, port| Some(pb::DevicePort { device_id, port });
        let role = |name: &str, id, election_id: Option<(u64, u64)>, has_primary, clients| pb::Role {
            name: name.into(),
            id,
            has_primary,
            election_id: election_id.map(|(high, low)| pb::ElectionId { high, low }),
            clients,
        };
        let stats = AdminStats {
            ports: vec![port(1, 1), port(2, 1), port(3, 2)],
            tables: vec![table("I.dst", 1), table("I.acl", 2), table("I.more", 2)],
            drops: vec![pb::Drop { reason: "ingress drop".into(), packets: 5, device_id: 2 }],
            devices: vec![
                pb::Device { id: 1, program: "router.p4".into(), runs: true, program_changes: 2, ..Default::default() },
                pb::Device { id: 2, runs: true, program_changes: 1, ..Default::default() },
                pb::Device {
                    id: 9,
                    roles: vec![
                        role("", 0, Some((0, 7)), true, 3),
                        role("acl", 0, Some((1, 2)), false, 1),
                        role("", 4, None, false, 2),
                    ],
                    ..Default::default()
                },
            ],
            links: vec![pb::Link { from: at(1, 10), to: at(2, 1), packets: 7, bytes: 420, queues: None }],
            ..Default::default()
        };
        expect![[r#"
            device  program    changes  ports  tables  entries  dropped
            1       router.p4  2        1, 2        1        3        0
            2       unnamed    1        3           2        6        5
            9       none       0        none        0        0        0

            device  controllers
            9       primary with election id 7, 2 backups
            9       role acl: no primary (highest election id 18446744073709551618), 1 backup
            9       role 4: no primary, 2 backups

            link from  to   packets  bytes
            1:10       2:1        7    420
        "#]]
        .assert_eq(&all(&stats));
        expect![[r#"
            device 2: unnamed, program change 1
            port 3 is veth3, down

            link from  to   packets  bytes
            1:10       2:1        7    420

            table   entries  size
            I.acl         3     8
            I.more        3     8
        "#]]
        .assert_eq(&one(&stats, &stats.devices[1]));
    }

    #[test]
    fn a_role_name_with_escape_sequences_and_newlines_does_not_forge_lines_of_show() {
        let role = pb::Role { name: "x\u{1b}[1A\nport 9 is eth9, up".into(), clients: 1, ..Default::default() };
        let program = "router.p4\u{1b}[2J\ndevice 3: none".to_string();
        let device = pb::Device { id: 1, program, runs: true, roles: vec![role], ..Default::default() };
        let stats = AdminStats { devices: vec![device], ..Default::default() };
        for text in [all(&stats), one(&stats, &stats.devices[0])] {
            assert!(!text.contains('\u{1b}'), "{text}");
            assert!(!text.lines().any(|line| line.starts_with("port 9") || line.starts_with("device 3")), "{text}");
            assert!(text.contains(r"role x\u001b[1A\nport 9 is eth9, up: no primary, 1 backup"), "{text}");
        }
    }
}
