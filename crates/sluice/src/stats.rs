//! `sluice stats`: ports, tables, drops and load of a running switch; and the server's side, which collects them.
//!
//! Exit code 2 when no switch answers.

use crate::output::{JsonArgs, Rows};
use crate::{queues, watched};
use anyhow::{Context, Result};
use datapath::Switch;
use grpc::admin::AdminStats;
use grpc::client::{Client, ClientError, ClientTls};
use messages::sluice::v1 as pb;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The commands' message about a server without admin service.
pub const NO_ADMIN: &str = "the server has no admin service: it is not a Sluice switch";

/// Which switch.
#[derive(clap::Args, Clone, Debug)]
pub struct ServerArgs {
    /// Where the switch listens (`sluice run --grpc`) [default: $SLUICE_GRPC, or 127.0.0.1:9559]. One on this machine is asked by its
    /// Unix socket, which is found by the port.
    #[arg(long, value_name = "ADDR", global = true)]
    grpc: Option<String>,
    /// The switch's Unix socket (`sluice run --admin`) [default: $SLUICE_ADMIN, or found by --grpc].
    #[arg(long, value_name = "PATH", global = true, conflicts_with = "tls_ca")]
    admin: Option<PathBuf>,
    /// Connect with TLS; the file has the certificate of whoever signed the switch's (PEM).
    #[arg(long, value_name = "FILE", global = true)]
    pub tls_ca: Option<PathBuf>,
    /// This client's certificate, for a switch that wants one (`sluice run --tls-client-ca`).
    #[arg(long, value_name = "FILE", global = true, requires_all = ["tls_ca", "tls_client_key"])]
    pub tls_client_cert: Option<PathBuf>,
    /// The private key of --tls-client-cert.
    #[arg(long, value_name = "FILE", global = true, requires = "tls_client_cert")]
    pub tls_client_key: Option<PathBuf>,
}

impl ServerArgs {
    /// Returns P4Runtime's address, HOST:PORT.
    pub fn address(&self) -> String {
        let variable = || std::env::var("SLUICE_GRPC").ok().filter(|value| !value.is_empty());
        self.grpc.clone().or_else(variable).unwrap_or_else(|| crate::local::ADDRESS.to_string())
    }

    /// Connects to the switch: by its Unix socket if it is on this machine, else by TCP.
    ///
    /// # Errors
    /// If no switch listens (the message says what to do), or TLS fails.
    pub fn connect(&self) -> Result<Client> {
        let address = &self.address();
        let variable = || std::env::var_os("SLUICE_ADMIN").filter(|value| !value.is_empty()).map(PathBuf::from);
        // Options take precedence over the environment.
        let of_environment = || if self.grpc.is_none() && self.tls_ca.is_none() { variable() } else { None };
        if let Some(path) = self.admin.clone().or_else(of_environment) {
            return Client::connect_local(&path).map_err(|error| anyhow::anyhow!("--admin: {error}"));
        }
        let mut no_right = None;
        if self.tls_ca.is_none() {
            for path in crate::local::candidates(address) {
                match Client::connect_local(&path) {
                    Ok(client) => return Ok(client),
                    Err(ClientError::NoRight(path)) => no_right = Some(path),
                    // A stale socket.
                    Err(_) => {}
                }
            }
        }
        let identity = self.tls_client_cert.as_deref().zip(self.tls_client_key.as_deref());
        let tls = self.tls_ca.as_deref().map(|ca| ClientTls::load(ca, identity)).transpose().context("TLS")?;
        let client = Client::connect_with(address, tls.as_ref()).map_err(|error| match error {
            ClientError::Unreachable { .. } => anyhow::anyhow!(
                "{error}\nstart one with `sluice run X.p4 --grpc {address}`, or say where it listens with --grpc ADDR"
            ),
            ClientError::Untrusted { .. } => anyhow::anyhow!("{error}"),
            error => anyhow::anyhow!("--grpc: {error}"),
        })?;
        Ok(client.noting(
            no_right.map(|path| format!("this user may not connect to {path}, where the operator's commands go")),
        ))
    }
}

/// Arguments of `stats`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: JsonArgs,
    /// Watch the switch for so long, and print how often actions ran and where the cycles went meanwhile.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    profile: Option<f64>,
}

/// Parses a time in seconds, from 0.1 to 3600.
///
/// # Errors
/// If it is no number or out of range.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is a number of seconds".to_string())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("from 0.1 to 3600 seconds".to_string()) }
}

/// How long a switch gets to compile code that counts actions.
const MAKE_READY: Duration = Duration::from_secs(1);

/// Watches a switch for some time; returns the readings before and after.
fn profile(client: &Client, seconds: f64) -> Result<Option<(AdminStats, AdminStats)>> {
    let time = Duration::from_secs_f64(seconds);
    client.stats_watching(time + 2 * MAKE_READY)?;
    // The switch first compiles code that counts actions.
    std::thread::sleep(MAKE_READY);
    let Some(before) = client.stats()? else { return Ok(None) };
    std::thread::sleep(time);
    Ok(client.stats()?.map(|now| (before, now)))
}

/// Runs `sluice stats`.
///
/// # Errors
/// If no switch answers.
pub fn main(args: &Args) -> Result<ExitCode> {
    let client = args.server.connect()?;
    let readings = match args.profile {
        Some(seconds) => profile(&client, seconds)?,
        None => client.stats()?.map(|now| (now.clone(), now)),
    };
    let (before, now) = readings.context(NO_ADMIN)?;
    let profile = args.profile.is_some();
    args.output.print(
        || match profile {
            true => with_profile(to_json(&now), &before, &now),
            false => to_json(&now),
        },
        || match profile {
            true => format!("{}\n{}", render(&now), render_profile(&before, &now)),
            false => render(&now),
        },
    );
    Ok(ExitCode::SUCCESS)
}

/// Reads all counters of a switch.
pub fn collect(switch: &Switch) -> AdminStats {
    let port = |port: datapath::switch::PortInfo| {
        let (s, queues) = (port.stats, queues::collect(switch, datapath::QueuesOf::Port(port.number)));
        let rx = pb::Counters { packets: s.rx_packets, bytes: s.rx_bytes, dropped: s.rx_dropped, errors: s.rx_errors };
        let tx = pb::Counters { packets: s.tx_packets, bytes: s.tx_bytes, dropped: s.tx_dropped, errors: 0 };
        pb::Port {
            number: port.number,
            name: port.name,
            kind: port.kind.to_string(),
            link_up: port.link.up,
            speed_mbps: port.link.speed_mbps,
            rx: Some(rx),
            tx: Some(tx),
            device_id: port.bound_to,
            out_of_service: !port.in_service,
            note: port.note.unwrap_or_default(),
            mtu: port.mtu.into(),
            mac: port.mac.map(|mac| mac.to_string()).unwrap_or_default(),
            queues,
        }
    };
    let table = |(device_id, table): (u64, datapath::switch::TableInfo)| pb::Table {
        device_id,
        name: table.name,
        entries: table.entries,
        size: table.size,
        hits: table.lookups.map(|(hits, _)| hits),
        misses: table.lookups.map(|(_, misses)| misses),
        memory_bytes: table.memory_bytes,
    };
    let worker = |load: datapath::WorkerLoad| pb::Worker {
        packets: load.packets,
        bursts: load.bursts,
        receive_cycles: load.receive_cycles,
        pipeline_cycles: load.pipeline_cycles,
        send_cycles: load.send_cycles,
        idle_cycles: load.idle_cycles,
    };
    let phase = |phase: datapath::PhaseInfo| pb::Phase {
        entry: phase.entry.name().into(),
        number: phase.number,
        waits_for: phase.waits_for,
        begun_with: phase.begun_with,
        row_bytes: phase.row_bytes,
    };
    let code = |code: datapath::CodeInfo| pb::Code {
        specialised: code.specialised,
        strategy: code.strategy,
        compiled: code.compiled,
        last_us: code.last.as_micros() as u64,
        bytes: code.code_bytes,
        contents: code.contents,
        failed: code.failed,
        error: code.error.unwrap_or_default(),
        phases: code.phases.into_iter().map(phase).collect(),
    };
    let devices = switch.devices();
    // A bridge's header actions are a table of its program, but not one that a user can fill.
    let is_filled = |id: u64, name: &str| {
        let pipeline = switch.pipeline_of(id);
        let program = pipeline.as_ref().map(|pipeline| pipeline.program());
        let actions = program
            .and_then(|program| Some(program.tables[program.openflow.as_ref()?.actions?.1.index()].name.as_str()));
        actions != Some(name)
    };
    let tables = |id: &u64| {
        let tables = switch.tables(*id).into_iter().filter(|table| is_filled(*id, &table.name));
        tables.map(|table| (*id, table)).collect::<Vec<_>>()
    };
    let drops = |id: &u64| {
        let drop = |(reason, packets)| pb::Drop { reason, packets, device_id: *id };
        switch.drops_of(*id).into_iter().map(drop).collect::<Vec<_>>()
    };
    let device = |id: &u64| {
        let pipeline = switch.pipeline_of(*id);
        pb::Device {
            id: *id,
            program: String::new(),
            runs: pipeline.is_some(),
            program_changes: switch.program_changes_of(*id),
            code: pipeline.and_then(|p| p.code_info()).map(code),
            roles: vec![],
        }
    };
    let end = |at: datapath::PortOf| Some(pb::DevicePort { device_id: at.device, port: at.port });
    let link = |l: datapath::LinkInfo| pb::Link {
        from: end(l.from),
        to: end(l.to),
        packets: l.packets,
        bytes: l.bytes,
        queues: queues::collect(switch, datapath::QueuesOf::Link(l.from)),
    };
    let buffers = switch.buffers();
    AdminStats {
        uptime_us: switch.now_us(),
        ports: switch.ports().into_iter().map(port).collect(),
        tables: devices.iter().flat_map(tables).map(table).collect(),
        drops: devices.iter().flat_map(drops).collect(),
        devices: devices.iter().map(device).collect(),
        links: switch.links().into_iter().map(link).collect(),
        workers: switch.worker_load().into_iter().map(worker).collect(),
        program_changes: switch.program_changes(),
        code: switch.pipeline().and_then(|p| p.code_info()).map(code),
        watched: watched::collect(switch),
        buffers: Some(pb::Buffers { in_use: buffers.0 as u64, total: buffers.1 as u64 }),
        tenants: queues::collect_tenants(switch),
        shared_packets: switch.shared_packets(),
    }
}

/// Returns the statistics as an object, for `--json`.
pub fn to_json(stats: &AdminStats) -> serde_json::Value {
    use serde_json::json;
    let counters = |c: Option<pb::Counters>| {
        let c = c.unwrap_or_default();
        json!({ "packets": c.packets, "bytes": c.bytes, "dropped": c.dropped, "errors": c.errors })
    };
    let port = |p: &pb::Port| {
        json!({
            "number": p.number, "name": p.name, "kind": p.kind, "link_up": p.link_up, "speed_mbps": p.speed_mbps,
            "rx": counters(p.rx), "tx": counters(p.tx), "device_id": p.device_id,
            "out_of_service": p.out_of_service, "mtu": p.mtu, "mac": p.mac, "note": p.note,
            "qos": queues::to_json(p.queues.as_ref()),
        })
    };
    let table = |t: &pb::Table| {
        json!({
            "name": t.name, "entries": t.entries, "size": t.size, "hits": t.hits, "misses": t.misses,
            "memory_bytes": t.memory_bytes, "device_id": t.device_id,
        })
    };
    let phase = |p: &pb::Phase| {
        json!({
            "entry": p.entry, "number": p.number, "waits_for": p.waits_for, "begun_with": p.begun_with,
            "row_bytes": p.row_bytes,
        })
    };
    let code = |c: &pb::Code| {
        json!({
            "specialised": c.specialised, "strategy": c.strategy, "compiled": c.compiled, "last_us": c.last_us,
            "bytes": c.bytes, "contents": c.contents, "failed": c.failed, "error": c.error,
            "phases": c.phases.iter().map(phase).collect::<Vec<_>>(),
        })
    };
    let worker = |w: &pb::Worker| {
        json!({
            "packets": w.packets, "bursts": w.bursts, "receive_cycles": w.receive_cycles,
            "pipeline_cycles": w.pipeline_cycles, "send_cycles": w.send_cycles, "idle_cycles": w.idle_cycles,
        })
    };
    let drop = |d: &pb::Drop| json!({ "reason": d.reason, "packets": d.packets, "device_id": d.device_id });
    let role = |r: &pb::Role| {
        // As text: it has 128 bits, more than most JSON readers' numbers.
        let id = r.election_id.map(|id| (u128::from(id.high) << 64 | u128::from(id.low)).to_string());
        json!({ "name": r.name, "id": r.id, "has_primary": r.has_primary, "election_id": id, "clients": r.clients })
    };
    let device = |d: &pb::Device| {
        json!({
            "id": d.id, "program": d.program, "runs": d.runs, "program_changes": d.program_changes,
            "code": d.code.as_ref().map(code), "roles": d.roles.iter().map(role).collect::<Vec<_>>(),
        })
    };
    let end = |end: Option<pb::DevicePort>| end.map(|e| json!({ "device_id": e.device_id, "port": e.port }));
    let link = |l: &pb::Link| {
        json!({
            "from": end(l.from), "to": end(l.to), "packets": l.packets, "bytes": l.bytes,
            "qos": queues::to_json(l.queues.as_ref()),
        })
    };
    json!({
        "uptime_us": stats.uptime_us,
        "buffers": stats.buffers.as_ref().map(|b| json!({ "in_use": b.in_use, "total": b.total })),
        "ports": stats.ports.iter().map(port).collect::<Vec<_>>(),
        "tables": stats.tables.iter().map(table).collect::<Vec<_>>(),
        "drops": stats.drops.iter().map(drop).collect::<Vec<_>>(),
        "devices": stats.devices.iter().map(device).collect::<Vec<_>>(),
        "links": stats.links.iter().map(link).collect::<Vec<_>>(),
        "tenants": queues::tenants_to_json(stats), "shared_packets": stats.shared_packets,
        "workers": stats.workers.iter().map(worker).collect::<Vec<_>>(),
        "code": stats.code.as_ref().map(code),
        "watched": stats.watched.as_ref().map(watched::to_json),
    })
}

/// Adds the values of [`render_profile`] to the object of all counters.
fn with_profile(mut all: serde_json::Value, before: &AdminStats, now: &AdminStats) -> serde_json::Value {
    use serde_json::json;
    let action = |row: watched::ActionRow| {
        json!({
            "device_id": row.device, "table": row.table, "action": row.action, "packets": row.packets,
            "percent_of_table": row.share,
        })
    };
    all["profile"] = json!({
        "seconds": now.uptime_us.saturating_sub(before.uptime_us) as f64 / 1e6,
        "actions": watched::actions(before, now).into_iter().map(action).collect::<Vec<_>>(),
        "parts": watched::stages(before, now).iter().map(watched::StageRow::json).collect::<Vec<_>>(),
    });
    all
}

/// Returns the text about actions and cycles between two readings of a watched switch.
fn render_profile(before: &AdminStats, now: &AdminStats) -> String {
    let several = now.devices.len() > 1;
    let of_device = |device: Option<u64>, name: &str| match device {
        Some(id) if several => format!("{id}: {name}"),
        _ => name.to_string(),
    };
    let seconds = now.uptime_us.saturating_sub(before.uptime_us) as f64 / 1e6;
    let mut actions = Rows::new(&["table", "action", "packets", "of the table's"]);
    actions.align_right(2);
    for row in watched::actions(before, now) {
        let table = of_device(Some(row.device), &row.table);
        actions.add_row([table, row.action, row.packets.to_string(), format!("{:.1} %", row.share)]);
    }
    let mut stages = Rows::new(&["part", "cycles per packet", "of all", "samples"]);
    stages.align_right(1);
    for row in watched::stages(before, now) {
        let samples = row.samples.map_or("counted".to_string(), |n| n.to_string());
        let cells = [format!("{:.1}", row.cycles_per_packet), format!("{:.1} %", row.share), samples];
        stages.add_row([of_device(row.device, &row.part)].into_iter().chain(cells));
    }
    let none = "no sample was in the program: no packets, or only the interpreter runs";
    format!("in {seconds:.1} s:\n\n{}{}", section(&actions, "no table ran an action"), section(&stages, none))
}

/// Returns the text about ports, tables, drops, workers and code; with several devices each row begins with its
/// device's id.
fn render(stats: &AdminStats) -> String {
    let several = stats.devices.len() > 1;
    let columns = |header: &[&'static str]| {
        let device = if several { &["device id"][..] } else { &[] };
        Rows::new(&[device, header].concat())
    };
    let row = |device: u64, cells: Vec<String>| {
        let device = several.then(|| device.to_string());
        device.into_iter().chain(cells).collect::<Vec<String>>()
    };
    let more = usize::from(several);
    let mut text = format!("up {}\n\n", spell(Duration::from_micros(stats.uptime_us)));
    let mut ports = columns(&[
        "port",
        "device",
        "kind",
        "link",
        "rx packets",
        "rx bytes",
        "rx drops",
        "rx errors",
        "tx packets",
        "tx bytes",
        "tx drops",
    ]);
    ports.align_right(4 + more);
    for port in &stats.ports {
        let (rx, tx) = (port.rx.unwrap_or_default(), port.tx.unwrap_or_default());
        let mut cells = vec![port.number.to_string(), port.name.clone(), port.kind.clone(), link(port)];
        let counters = [rx.packets, rx.bytes, rx.dropped, rx.errors, tx.packets, tx.bytes, tx.dropped];
        cells.extend(counters.map(|n| n.to_string()));
        ports.add_row(row(port.device_id, cells));
    }
    text += &section(&ports, "no ports");

    if queues::owners(stats).next().is_some() {
        text += &section(&queues::rows(stats), "");
    }
    if !stats.tenants.is_empty() {
        text += &section(&queues::tenant_rows(stats), "");
    }

    if !stats.links.is_empty() {
        text += &section(&links(&stats.links), "");
    }
    let mut tables = columns(&["table", "entries", "size", "hits", "misses", "memory"]);
    tables.align_right(1 + more);
    let count = |n: Option<u64>| n.map_or("-".to_string(), |n| n.to_string());
    for t in &stats.tables {
        let memory = t.memory_bytes.map_or("-".to_string(), spell_bytes);
        let counts = [t.entries.to_string(), t.size.to_string(), count(t.hits), count(t.misses), memory];
        let cells = [t.name.clone()].into_iter().chain(counts).collect();
        tables.add_row(row(t.device_id, cells));
    }
    text += &section(&tables, "no tables");

    let mut drops = columns(&["dropped because", "packets"]);
    drops.align_right(1 + more);
    for drop in stats.drops.iter().filter(|d| d.packets > 0) {
        drops.add_row(row(drop.device_id, vec![drop.reason.clone(), drop.packets.to_string()]));
    }
    text += &section(&drops, "no packet was dropped");

    if let Some(buffers) = &stats.buffers {
        text += &format!("buffers: {} of {} in use\n\n", buffers.in_use, buffers.total);
    }
    text += &workers(&stats.workers);
    if !several {
        return text + &stats.code.as_ref().map_or_else(String::new, |code| format!("\n{}", render_code(code)));
    }
    let codes =
        stats.devices.iter().filter_map(|d| Some(format!("device {}: {}", d.id, render_code(d.code.as_ref()?))));
    text + "\n" + &codes.collect::<String>()
}

/// Formats a size: `12.3 kB`.
fn spell_bytes(bytes: u64) -> String {
    let scaled = |unit: u64| bytes as f64 / unit as f64;
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{:.1} kB", scaled(1_000)),
        10_000_000..10_000_000_000 => format!("{:.1} MB", scaled(1_000_000)),
        _ => format!("{:.1} GB", scaled(1_000_000_000)),
    }
}

/// Returns a table of the links between devices.
pub fn links(links: &[pb::Link]) -> Rows {
    let mut table = Rows::new(&["link from", "to", "packets", "bytes"]);
    table.align_right(2);
    let end = |end: Option<pb::DevicePort>| end.map_or(String::new(), |e| format!("{}:{}", e.device_id, e.port));
    for link in links {
        table.add_row([end(link.from), end(link.to), link.packets.to_string(), link.bytes.to_string()]);
    }
    table
}

/// Describes the running code in a line, followed by one for each table that a phase of staged code waits for.
fn render_code(code: &pb::Code) -> String {
    let made_for = match (code.specialised, code.contents.as_slice()) {
        (false, _) => "any tables".to_string(),
        (true, []) => "the tables as they are".to_string(),
        (true, names) => format!("the tables as they are and the entries of {}", names.join(", ")),
    };
    let times = match code.compiled {
        0 => "never recompiled".to_string(),
        1 => format!("recompiled once, in {:.1} ms", code.last_us as f64 / 1e3),
        n => format!("recompiled {n} times, the last time in {:.1} ms", code.last_us as f64 / 1e3),
    };
    let failed = match (code.failed, code.error.as_str()) {
        (0, _) => String::new(),
        (n, "") => format!("; {n} attempts failed"),
        (n, error) => format!("; {n} attempts failed, the last because: {error}"),
    };
    let waiting = code.phases.iter().map(|phase| {
        let begun = match phase.begun_with.as_slice() {
            [] => String::new(),
            begun => format!(", and have begun {}", begun.join(", ")),
        };
        let pb::Phase { entry, number, waits_for, row_bytes, .. } = phase;
        format!("  {entry}, phase {number}: packets wait for {waits_for}{begun}; {row_bytes} bytes are kept of each\n")
    });
    let waiting: String = waiting.collect();
    format!("code: {}, {} bytes, for {made_for}; {times}{failed}\n{waiting}", code.strategy, code.bytes)
}

/// Returns where each worker's time went, as shares of its time and as cycles per packet.
fn workers(workers: &[pb::Worker]) -> String {
    if workers.is_empty() {
        return String::new();
    }
    let mut table = Rows::new(&["worker", "packets", "per burst", "", "receive", "pipeline", "send", "idle"]);
    table.align_right(1);
    for (i, w) in workers.iter().enumerate() {
        let busy = [w.receive_cycles, w.pipeline_cycles, w.send_cycles];
        let all = (busy.iter().sum::<u64>() + w.idle_cycles).max(1) as f64;
        let share = |cycles: u64| format!("{:.1} %", cycles as f64 / all * 100.0);
        let each = |cycles: u64| format!("{:.1}", cycles as f64 / w.packets.max(1) as f64);
        let burst = format!("{:.1}", w.packets as f64 / w.bursts.max(1) as f64);
        let mut row = vec![i.to_string(), w.packets.to_string(), burst, "of its time".to_string()];
        row.extend(busy.iter().chain([&w.idle_cycles]).map(|cycles| share(*cycles)));
        table.add_row(row);
        let mut row = vec![String::new(), String::new(), String::new(), "cycles per packet".to_string()];
        row.extend(busy.iter().map(|cycles| each(*cycles)));
        table.add_row(row);
    }
    format!("{}\n", table.trim_fmt())
}

fn link(port: &pb::Port) -> String {
    match (port.link_up, port.speed_mbps) {
        (false, _) => "down".to_string(),
        (true, None) => "up".to_string(),
        (true, Some(mbps)) if mbps >= 1000 && mbps % 1000 == 0 => format!("up, {} Gbit/s", mbps / 1000),
        (true, Some(mbps)) => format!("up, {mbps} Mbit/s"),
    }
}

fn section(table: &Rows, none: &str) -> String {
    if table.row_count() == 0 { format!("{none}\n\n") } else { format!("{}\n\n", table.trim_fmt()) }
}

fn spell(time: Duration) -> String {
    let s = time.as_secs();
    match (s / 86400, s / 3600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, _) => format!("{:.1} s", time.as_secs_f64()),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, _, _) => format!("{d} d {h} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn tables_of_a_busy_switch() {
        let rx = pb::Counters { packets: 1000, bytes: 64000, dropped: 3, errors: 0 };
        let stats = AdminStats {
            program_changes: 1,
            uptime_us: 90_000_000,
            ports: vec![
                pb::Port {
                    number: 1,
                    name: "veth0".into(),
                    kind: "af_packet".into(),
                    link_up: true,
                    speed_mbps: Some(10_000),
                    rx: Some(rx),
                    tx: None,
                    device_id: 1,
                    ..Default::default()
                },
                pb::Port { number: 12, name: "memory".into(), kind: "memory".into(), ..Default::default() },
            ],
            tables: vec![pb::Table {
                name: "Ingress.t".into(),
                entries: 2,
                size: 1024,
                hits: Some(7),
                misses: None,
                device_id: 1,
                memory_bytes: Some(12_345),
            }],
            buffers: Some(pb::Buffers { in_use: 300, total: 4096 }),
            drops: vec![
                pb::Drop { reason: "ingress".into(), packets: 5, device_id: 1 },
                pb::Drop { reason: "no such port".into(), packets: 0, device_id: 1 },
            ],
            workers: vec![pb::Worker {
                packets: 1000,
                bursts: 100,
                receive_cycles: 100_000,
                pipeline_cycles: 50_000,
                send_cycles: 50_000,
                idle_cycles: 800_000,
            }],
            code: Some(pb::Code {
                specialised: true,
                strategy: "staged in 2 phases".into(),
                compiled: 3,
                last_us: 4200,
                bytes: 2048,
                contents: vec!["Ingress.t".into()],
                failed: 2,
                error: "no register".into(),
                phases: vec![pb::Phase {
                    entry: "ingress".into(),
                    number: 1,
                    waits_for: "Ingress.t".into(),
                    begun_with: vec!["Ingress.u".into()],
                    row_bytes: 24,
                }],
            }),
            ..AdminStats::default()
        };
        expect![[r#"
            up 1 min 30 s

            port  device  kind       link           rx packets  rx bytes  rx drops  rx errors  tx packets  tx bytes  tx drops
            1     veth0   af_packet  up, 10 Gbit/s        1000     64000         3          0           0         0         0
            12    memory  memory     down                    0         0         0          0           0         0         0

            table      entries  size  hits  misses   memory
            Ingress.t        2  1024     7       -  12.3 kB

            dropped because  packets
            ingress                5

            buffers: 300 of 4096 in use

            worker  packets  per burst                     receive  pipeline   send    idle
            0          1000       10.0        of its time   10.0 %     5.0 %  5.0 %  80.0 %
                                        cycles per packet    100.0      50.0   50.0

            code: staged in 2 phases, 2048 bytes, for the tables as they are and the entries of Ingress.t; recompiled 3 times, the last time in 4.2 ms; 2 attempts failed, the last because: no register
              ingress, phase 1: packets wait for Ingress.t, and have begun Ingress.u; 24 bytes are kept of each
        "#]].assert_eq(&render(&stats));
    }

    #[test]
    fn several_devices_are_told_apart() {
        let at = |device_id, port| Some(pb::DevicePort { device_id, port });
        let device = |id, strategy: &str| {
            let code = pb::Code { strategy: strategy.into(), bytes: 10, ..Default::default() };
            pb::Device { id, runs: true, code: Some(code), ..Default::default() }
        };
        let table = |device_id| pb::Table { name: "I.t".into(), entries: device_id, device_id, ..Default::default() };
        let stats = AdminStats {
            ports: vec![pb::Port { device_id: 2, ..queues::tests::port(100) }],
            tables: vec![table(1), table(2)],
            drops: vec![pb::Drop { reason: "too many links".into(), packets: 4, device_id: 2 }],
            devices: vec![device(1, "staged"), device(2, "run to completion")],
            links: vec![pb::Link { from: at(1, 10), to: at(2, 1), packets: 7, bytes: 420, queues: None }],
            ..AdminStats::default()
        };
        expect![[r#"
            up 0.0 s

            device id  port  device  kind  link  rx packets  rx bytes  rx drops  rx errors  tx packets  tx bytes  tx drops
            2          3     veth3         down           0         0         0          0           0         0         0

            port  queue  packets  bytes  highest  sent  tail drops  time drops  RED drops  buffer drops  tenant drops  marked  waited 50 %    99 %
            3         0        7    700       90   100          20           0         50             0             0      10       1.0 us  1.2 ms
            3         1        0      0        0     0           0           0          0             0             0       0            -       -

            link from  to   packets  bytes
            1:10       2:1        7    420

            device id  table  entries  size  hits  misses  memory
            1          I.t          1     0     -       -       -
            2          I.t          2     0     -       -       -

            device id  dropped because  packets
            2          too many links         4


            device 1: code: staged, 10 bytes, for any tables; never recompiled
            device 2: code: run to completion, 10 bytes, for any tables; never recompiled
        "#]].assert_eq(&render(&stats));
    }

    #[test]
    fn json_has_the_same_numbers() {
        let stats = AdminStats {
            uptime_us: 5,
            ports: vec![pb::Port { number: 12, name: "memory".into(), ..Default::default() }],
            drops: vec![pb::Drop { reason: "ingress".into(), packets: 5, device_id: 1 }],
            workers: vec![pb::Worker { packets: 7, idle_cycles: 9, ..Default::default() }],
            ..AdminStats::default()
        };
        let json = to_json(&stats);
        assert_eq!(json["ports"][0]["number"], 12);
        assert_eq!(json["ports"][0]["rx"]["packets"], 0);
        assert_eq!(json["drops"][0]["packets"], 5);
        assert_eq!((&json["workers"][0]["packets"], &json["workers"][0]["idle_cycles"]), (&7.into(), &9.into()));
        assert_eq!(json["tables"], serde_json::json!([]));
    }

    #[test]
    fn an_answer_without_anything_is_shown_too() {
        expect![[r#"
            up 0.0 s

            no ports

            no tables

            no packet was dropped

        "#]]
        .assert_eq(&render(&AdminStats::default()));
    }
}
