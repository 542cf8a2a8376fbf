//! `sluice qos`: shows, sets and clears queues of a running switch's ports and links; tenants are in `qos/tenant.rs`.
//! The server's side is in `devices/queues.rs`; `traffic` and `docs/qos.md` explain queues.
//!
//! Exit code 1 when the config is wrong or the switch refuses it, 2 when none answers. Tests: below,
//! `tests/py/test_qos.py`.

mod given;
mod start;
mod tenant;

use crate::changes::refuse;
use crate::complete;
use crate::output::JsonArgs;
use crate::queues;
use crate::stats::{NO_ADMIN, ServerArgs};
use anyhow::{Context, Result, bail};
use clap_complete::ArgValueCompleter;
use datapath::{PortOf, QueuesOf};
use given::{parse_place, read};
use grpc::admin::AdminStats;
use grpc::client::ClientError;
use messages::sluice::v1 as pb;
pub use start::StartArgs;
use std::path::PathBuf;
use std::process::ExitCode;
use traffic::{Config, Ecn, Kind, Level, Limit, Node, Policy, Rate, Red, Shaper, Size};

const EXAMPLES: &str = "Examples:
  sluice qos set 3 --queues 4                       strict priority: queue 3 is sent first, class 3 and above go there
  sluice qos set 3 --weights 4,2,1,1                shares of four queues, of queue 0 first
  sluice qos set 3 --queues 2 --rate 100Mbit --limit 5ms
  sluice qos set 3 --red 30KB,90KB,ecn              one queue that marks, or drops at random, before it is full
  sluice qos set 1:10 --rate 1Gbit                  the link that begins at port 10 of device 1
  sluice qos set 3 voice.json                       anything else: docs/qos.md; `sluice qos show 3 --json` has it as `config`";

/// Arguments of `qos`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: QosCommand,
}

#[derive(clap::Subcommand)]
enum QosCommand {
    /// Show queues of ports: what waits, what was sent, dropped and marked, how long packets waited; of one port the config, too.
    Show(ShowArgs),
    /// Give a port or a link queues, or change them; what waits goes on waiting. With --state they come back after a restart.
    #[command(after_help = EXAMPLES)]
    Set(Box<SetArgs>),
    /// Take configured queues away: what waits is sent in order. A program that asks for queues keeps the default ones.
    Clear(ClearArgs),
    /// Add, change and remove tenants: queues that have limits together, wherever they are.
    Tenant(tenant::Args),
}

#[derive(clap::Args)]
struct ShowArgs {
    /// Only this one; a link is named as DEVICE:PORT.
    #[arg(value_name = "PORT", value_parser = parse_place, add = ArgValueCompleter::new(complete::ports))]
    port: Option<QueuesOf>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: JsonArgs,
}

#[derive(clap::Args)]
struct SetArgs {
    /// The port's number, or DEVICE:PORT where a link begins.
    #[arg(value_name = "PORT", value_parser = parse_place, add = ArgValueCompleter::new(complete::ports))]
    port: QueuesOf,
    /// The queues as JSON; - is standard input.
    #[arg(value_name = "FILE.json", conflicts_with_all = SHORT, required_unless_present_any = SHORT)]
    file: Option<PathBuf>,
    #[command(flatten)]
    short: ShortArgs,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: JsonArgs,
}

/// The options that replace a file.
const SHORT: [&str; 7] = ["queues", "weights", "rate", "burst", "limit", "red", "tenant"];

#[derive(clap::Args, Default)]
struct ShortArgs {
    /// So many queues, in strict priority unless --weights says otherwise; the last one is the most urgent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    queues: Option<u8>,
    /// Weighted round robin: a weight for each queue, of queue 0 first.
    #[arg(long, value_name = "W,...", value_delimiter = ',')]
    weights: Vec<u32>,
    /// What the port sends at most: 100Mbit, 2.5Gbit.
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// What may leave at once under --rate: 64KB.
    #[arg(long, value_name = "SIZE", requires = "rate")]
    burst: Option<Size>,
    /// When each queue is full: 5ms that its head has waited, 100KB, or 200 packets.
    #[arg(long, value_name = "TIME|SIZE|PACKETS", value_parser = parse_level)]
    limit: Option<Level>,
    /// Random early detection for each queue, with thresholds like --limit's; `ecn` marks frames that can be marked.
    #[arg(long, value_name = "MIN,MAX[,ecn]", value_parser = parse_red)]
    red: Option<Red>,
    /// The tenant that all queues belong to.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
}

#[derive(clap::Args)]
struct ClearArgs {
    /// The port's number, or DEVICE:PORT where a link begins.
    #[arg(value_name = "PORT", value_parser = parse_place, add = ArgValueCompleter::new(complete::ports))]
    port: QueuesOf,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: JsonArgs,
}

/// Parses a time (`5ms`), a size (`100KB`) or a number of packets (`200`).
fn parse_level(text: &str) -> Result<Level, String> {
    if let Ok(packets) = text.parse() {
        return Ok(Level::Packets(packets));
    }
    text.parse().map_err(|_| format!("`{text}` is none of: a time (`5ms`), a size (`100KB`), packets (`200`)"))
}

/// Parses `MIN,MAX[,ecn]`.
fn parse_red(text: &str) -> Result<Red, String> {
    let wrong = || format!("`{text}` is not MIN,MAX[,ecn], as 30KB,90KB,ecn");
    let mut words = text.split(',');
    let (min, max) = words.next().zip(words.next()).ok_or_else(wrong)?;
    let red = Red::new(parse_level(min)?, parse_level(max)?);
    match (words.next(), words.next()) {
        (None, _) => Ok(red),
        (Some("ecn"), None) => Ok(Red { ecn: Ecn::Mark, ..red }),
        _ => Err(wrong()),
    }
}

impl ShortArgs {
    fn config(&self) -> Result<Config, String> {
        let (count, given) = (self.queues.map(usize::from), self.weights.len());
        if let Some(count) = count.filter(|count| given > 0 && *count != given) {
            return Err(format!(
                "--weights has {given} weights for {count} queues: it is one for each, of queue 0 first"
            ));
        }
        let mut config = match (count, given) {
            (Some(count), 0) if count > 1 => Config::strict(count as u8),
            (_, 0) => Config::fifo(),
            _ => Config::weighted(&self.weights),
        };
        if let Some(rate) = self.rate {
            // The root's shaper limits the whole port.
            config.root.shaper = Some(Shaper { rate, burst: self.burst });
        }
        config.tenant.clone_from(&self.tenant);
        for queue in &mut config.queues {
            if let Some(limit) = self.limit {
                queue.limit = match limit {
                    Level::Packets(packets) => Limit::packets(packets),
                    Level::Bytes(size) => Limit::bytes(size.0),
                    Level::Time(span) => Limit::time(span),
                };
            }
            if let Some(red) = &self.red {
                queue.policy = Policy::Red(red.clone());
            }
        }
        Ok(config)
    }
}

/// Describes a problem by the option that caused it: its path in the config means nothing to a user who wrote no
/// config.
fn by_option(problem: &traffic::Problem) -> String {
    let traffic::Problem { path, message } = problem;
    let options = [
        (".shaper.rate", "--rate"),
        (".shaper.burst", "--burst"),
        (".limit", "--limit"),
        (".policy.red", "--red"),
        (".weight", "--weights"),
        ("tenant", "--tenant"),
    ];
    let option = options.iter().find(|(part, _)| path.contains(part)).map_or("", |(_, option)| option);
    if option.is_empty() { problem.to_string() } else { format!("{option}: {message}") }
}

/// Runs `sluice qos`.
///
/// # Errors
/// If no switch answers, or the file cannot be read.
pub fn main(args: &Args) -> Result<ExitCode> {
    match &args.command {
        QosCommand::Show(args) => show(args),
        QosCommand::Tenant(args) => tenant::main(args),
        QosCommand::Set(args) => {
            let config = match &args.file {
                Some(file) => read(file)?,
                None => args.short.config().and_then(|config| match config.check(None) {
                    Ok(()) => Ok(config),
                    Err(problems) => {
                        // Options apply to every queue, so each queue has the same problem.
                        let mut lines: Vec<String> = problems.iter().map(by_option).collect();
                        lines.dedup();
                        Err(lines.join("\n"))
                    }
                }),
            };
            match config {
                Ok(config) => change(&args.server, args.output, args.port, Some(queues::to_text(&config))),
                Err(why) => Ok(refuse(why.lines().map(str::to_string))),
            }
        }
        QosCommand::Clear(args) => change(&args.server, args.output, args.port, None),
    }
}

fn change(server: &ServerArgs, output: JsonArgs, of: QueuesOf, config: Option<String>) -> Result<ExitCode> {
    let (port, device_id) = match of {
        QueuesOf::Port(port) => (port, None),
        QueuesOf::Link(PortOf { device, port }) => (port, Some(device)),
    };
    let at = spell(of);
    match server.connect()?.qos(pb::QosRequest { port, config, device_id, tenant: None }) {
        Ok(pb::QosResponse { note }) => {
            output.print(
                || serde_json::json!({ "changed": [{ "port": at, "note": note }] }),
                || if note.is_empty() { String::new() } else { format!("{of}: {note}\n") },
            );
            Ok(ExitCode::SUCCESS)
        }
        Err(ClientError::Refused(reason)) => {
            let which = if reason.contains(&format!("port {port}")) { String::new() } else { format!("{of}: ") };
            Ok(refuse([format!("{which}{reason}")]))
        }
        Err(error) => bail!("{of}: {error}"),
    }
}

/// Returns a port or link in the form of the command line.
fn spell(of: QueuesOf) -> String {
    match of {
        QueuesOf::Port(port) => port.to_string(),
        QueuesOf::Link(PortOf { device, port }) => format!("{device}:{port}"),
    }
}

fn show(args: &ShowArgs) -> Result<ExitCode> {
    let stats = args.server.connect()?.stats()?;
    let mut stats = stats.context(NO_ADMIN)?;
    match args.port {
        Some(QueuesOf::Port(number)) => {
            stats.ports.retain(|port| port.number == number);
            stats.links.clear();
        }
        Some(QueuesOf::Link(from)) => {
            stats.links.retain(|link| link.from == Some(pb::DevicePort { device_id: from.device, port: from.port }));
            stats.ports.clear();
        }
        None => {}
    }
    match args.port {
        Some(QueuesOf::Port(number)) if stats.ports.is_empty() => {
            return Ok(refuse([format!("there is no port {number}")]));
        }
        Some(QueuesOf::Link(from)) if stats.links.is_empty() => {
            return Ok(refuse([format!("no link begins at {from}")]));
        }
        _ => {}
    }
    let port = |port: &pb::Port| {
        let qos = queues::to_json(port.queues.as_ref());
        serde_json::json!({ "number": port.number, "name": port.name, "qos": qos })
    };
    let link = |link: &pb::Link| {
        let end = |end: Option<pb::DevicePort>| end.map_or(String::new(), |e| format!("{}:{}", e.device_id, e.port));
        serde_json::json!({ "from": end(link.from), "to": end(link.to), "qos": queues::to_json(link.queues.as_ref()) })
    };
    args.output.print(
        || {
            serde_json::json!({
                "ports": stats.ports.iter().map(port).collect::<Vec<_>>(),
                "links": stats.links.iter().map(link).collect::<Vec<_>>(),
                "tenants": queues::tenants_to_json(&stats), "shared_packets": stats.shared_packets,
            })
        },
        || text(&stats, args.port),
    );
    Ok(ExitCode::SUCCESS)
}

/// Returns the counters as text; for a single port or link, after its scheduling tree.
fn text(stats: &AdminStats, only: Option<QueuesOf>) -> String {
    let owners: Vec<queues::Owner<'_>> = queues::owners(stats).collect();
    let mut text = String::new();
    if owners.is_empty() {
        let (which, example) =
            only.map_or(("no port".to_string(), "PORT".to_string()), |of| (of.to_string(), spell(of)));
        let has = if only.is_some() { "has no queues" } else { "has queues" };
        text = format!("{which} {has}; `sluice qos set {example} --queues 4` gives it some\n");
    } else {
        if let (Some(of), [owner]) = (only, &owners[..]) {
            let queues = owner.queues;
            let whose = if queues.configured { "configured" } else { "the default, which its program asks for" };
            let (what, name) = match of {
                QueuesOf::Port(_) => (of.to_string(), owner.name.clone()),
                QueuesOf::Link(_) => (format!("link {}", owner.at), format!("to {}", owner.name)),
            };
            text += &format!("{what}, {name}: {whose}\n");
            match queues::parse(&queues.config) {
                Ok(config) => queues::tree(&config).iter().for_each(|line| text += &format!("  {line}\n")),
                // A newer switch may have settings that this command does not know.
                Err(_) => text += &format!("  {}\n", queues.config),
            }
            text.push('\n');
        }
        text += &queues::rows(stats).trim_fmt();
    }
    if only.is_none() && !stats.tenants.is_empty() {
        text = format!("{}\n\n{}", text.trim_end(), queues::tenant_rows(stats).trim_fmt());
        text += &format!("\n\nall queues together hold at most {} packets\n", stats.shared_packets);
    }
    text
}

/// Returns a note for a port with several queues whose program selects none of them: all packets use one queue.
pub fn note(config: &Config, device: u64, program_asks: Option<bool>) -> Option<String> {
    let leaves = |node: &Node| matches!(node.kind, Kind::Queue(_));
    if program_asks != Some(false) || leaves(&config.root) && config.queues.len() == 1 {
        return None;
    }
    let queue = config.class_map()[0];
    Some(format!(
        "the program of device {device} sets no class and no `priority`, so all packets wait in queue {queue} (docs/qos.md)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        short: ShortArgs,
    }

    fn short(line: &str) -> Result<Config, String> {
        let words = ["sluice"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map_err(|error| error.to_string())?.short.config()
    }

    #[test]
    fn short_forms_are_the_configs_that_they_stand_for() {
        for (line, json) in [
            ("--queues 1", r#"{"queues":[{}],"root":{"queue":0}}"#),
            ("--queues 2", r#"{"queues":[{},{}],"root":{"strict":[{"queue":1},{"queue":0}]}}"#),
            (
                "--queues 2 --weights 4,1",
                r#"{"queues":[{},{}],"root":{"weighted":[{"queue":0,"weight":4},{"queue":1}]}}"#,
            ),
            (
                "--rate 100Mbit --burst 64KB --limit 200",
                r#"{"queues":[{"limit":{"packets":200}}],"root":{"queue":0,"shaper":{"rate":"100Mbit","burst":"64KB"}}}"#,
            ),
            (
                "--queues 2 --tenant red",
                r#"{"queues":[{},{}],"root":{"strict":[{"queue":1},{"queue":0}]},"tenant":"red"}"#,
            ),
            ("--limit 5ms", r#"{"queues":[{"limit":{"time":"5ms"}}],"root":{"queue":0}}"#),
            (
                "--red 30KB,90KB,ecn --limit 100KB",
                r#"{"queues":[{"limit":{"bytes":"100KB"},"policy":{"red":{"min":"30KB","max":"90KB","ecn":"mark"}}}],
                    "root":{"queue":0}}"#,
            ),
            (
                "--red 10,20",
                r#"{"queues":[{"policy":{"red":{"min":"10packets","max":"20packets"}}}],"root":{"queue":0}}"#,
            ),
        ] {
            let config = short(line).unwrap();
            assert_eq!(config, queues::parse(json).unwrap(), "{line}");
            assert_eq!(config.check(None), Ok(()), "{line}");
        }
        for (line, message) in [
            ("--queues 3 --weights 4,1", "--weights has 2 weights for 3 queues"),
            ("--queues 0", "0 is not in 1..=64"),
            ("--burst 64KB", "--rate"),
            ("--limit soon", "a time (`5ms`), a size (`100KB`), packets (`200`)"),
            ("--red 30KB", "is not MIN,MAX[,ecn]"),
            ("--red 30KB,90KB,dctcp", "is not MIN,MAX[,ecn]"),
            ("--rate 100Mbps", "may mean bits or bytes per second"),
        ] {
            let wrong = short(line).unwrap_err();
            assert!(wrong.contains(message), "{line}: {wrong}");
        }
        let problems = short("--rate 1Mbit --burst 100B").unwrap().check(None).unwrap_err();
        assert_eq!(by_option(&problems[0]), "--burst: 100B is less than one frame, 1518B");
    }

    #[test]
    fn a_port_is_shown_with_its_tree_and_what_its_program_does_not_use_is_said() {
        let stats = AdminStats { ports: vec![queues::tests::port(100)], ..Default::default() };
        let shown = text(&stats, Some(QueuesOf::Port(3)));
        assert!(shown.starts_with("port 3, veth3: configured\n  strict priority"), "{shown}");
        assert!(shown.contains("    queue 1, limit 1024 packets\n") && shown.contains("waited 50 %"), "{shown}");
        assert!(!text(&stats, None).contains("strict") && !shown.contains("tenant red"));
        let link = QueuesOf::Link(PortOf { device: 1, port: 10 });
        let end = |device_id, port| Some(pb::DevicePort { device_id, port });
        let queues = stats.ports[0].queues.clone();
        let links = vec![pb::Link { from: end(1, 10), to: end(2, 1), queues, ..Default::default() }];
        let tenants = vec![queues::tenant_of_tests(1)];
        let linked = AdminStats { links, tenants, shared_packets: 4096, ..Default::default() };
        assert!(text(&linked, Some(link)).starts_with("link 1:10, to 2:1: configured\n  strict priority"));
        let shown = text(&linked, None);
        assert!(shown.contains("\ntenant ") && shown.contains("at most 4096 packets\n"), "{shown}");
        let none = AdminStats { ports: vec![pb::Port::default()], ..Default::default() };
        assert!(text(&none, Some(QueuesOf::Port(0))).starts_with("port 0 has no queues; `sluice qos set 0"));
        assert!(text(&none, None).starts_with("no port has queues; `sluice qos set PORT"));

        assert!(note(&Config::strict(2), 1, Some(false)).unwrap().contains("wait in queue 0"));
        assert_eq!(note(&Config::strict(2), 1, Some(true)), None);
        assert_eq!(note(&Config::strict(2), 1, None), None);
        assert_eq!(note(&Config::fifo(), 1, Some(false)), None);
    }
}
