//! `sluice trace X.p4 --port N --packet HEX`: shows step by step, with P4 lines, what a program does with a packet;
//! without a program, what a running switch does with a given packet, or with the next ones that match a filter.

mod tree;

use crate::compile::CompileArgs;
use crate::stats::ServerArgs;
use crate::target::port_problem;
use anyhow::{Context, Result, anyhow, bail, ensure};
use base::SourceMap;
use datapath::oracle::{Oracle, OracleOutput};
use datapath::{Local, Pipeline, Sent};
use interp::trace::Form;
use messages::sluice::v1 as pb;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Arguments of `trace`.
#[derive(clap::Args)]
#[command(
    after_help = "Steps that change nothing (an assignment of the value that is there already) are not shown.\n\n\
    A filter is conditions on extracted fields, as in 'hdr.ipv4.dstAddr == 10.0.0.0/8 && port == 2': a field, ==, !=, <, <=, \
    > or >=, and a number or an address; a header alone (was it extracted?); `port`, `length`; &&, ||, !, parentheses."
)]
pub struct Args {
    /// The P4 program; without one, the running switch's.
    #[arg(value_name = "X.p4")]
    program: Option<PathBuf>,
    #[command(flatten)]
    compile: CompileArgs,
    /// Lines that set the switch up: `add`, `setdefault`, `mc_*`, `mirroring_*`, ... as in STF scripts.
    #[arg(long, value_name = "FILE", requires = "program")]
    entries: Option<PathBuf>,
    /// The port that the packet comes from; of a running switch, the only one to look at.
    #[arg(long)]
    port: Option<u32>,
    /// The frame as hexadecimal digits, with or without 0x; white space and colons between bytes are ignored. Without one, the next
    /// that a running switch receives.
    #[arg(long, value_name = "HEX")]
    packet: Option<String>,
    /// The frames of a pcap or pcapng file, those that pass the filters of a running switch; --count of them.
    #[arg(long, value_name = "FILE", conflicts_with = "packet")]
    pcap: Option<PathBuf>,
    /// The first frame of the file to look at, counted from 1.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "pcap")]
    number: usize,
    /// Trace the IR after all passes instead of the IR as lowered (fewer steps: what the passes removed is gone).
    #[arg(long, requires = "program")]
    optimised: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// The device id of P4Runtime, for a running switch.
    #[arg(long, value_name = "ID", default_value_t = 1)]
    device_id: u64,
    /// Which packets of a running switch.
    #[arg(long, value_name = "EXPRESSION", conflicts_with_all = ["program", "packet"])]
    filter: Option<String>,
    /// Which packets of a running switch, as tcpdump takes it: 'tcp port 80 and host 10.0.0.1'.
    #[arg(long, value_name = "EXPRESSION", conflicts_with_all = ["program", "packet"])]
    pcap_filter: Option<String>,
    /// How many packets of a running switch.
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u32,
    /// All outcomes of a running switch, one for each member that a selector could choose and each way that a random number
    /// could send the packet.
    #[arg(long, conflicts_with = "program")]
    tree: bool,
    /// How traces are printed: text, JSON lines, or `sluice.v1.TraceResponse` messages, each with its
    /// length in front.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl Args {
    fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// The most frames that are read from a file.
const FRAMES_MAX: usize = 65_536;

/// How traces are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One object per line.
    Json,
    /// Length-delimited.
    Protobuf,
}

/// Runs `sluice trace`.
///
/// # Errors
/// If arguments are missing or wrong, a file cannot be read, or no switch answers.
pub fn main(args: &Args) -> Result<ExitCode> {
    let given = frames(args)?;
    match &args.program {
        None => live(args, given),
        Some(program) => {
            let (Some(port), Some(frames)) = (args.port, given) else {
                bail!("a program needs a packet: --port N --packet HEX, or --port N --pcap FILE");
            };
            // Without filters, --count is the number of frames to trace.
            let wanted = if args.pcap.is_some() { args.count as usize } else { 1 };
            offline(args, program, port, &frames[..wanted.min(frames.len())])
        }
    }
}

/// Returns the frames of `--packet` or `--pcap`; `None` without either.
fn frames(args: &Args) -> Result<Option<Vec<Vec<u8>>>> {
    if let Some(digits) = &args.packet {
        return Ok(Some(vec![bytes(digits).map_err(|why| anyhow!("--packet {why}"))?]));
    }
    let Some(file) = &args.pcap else { return Ok(None) };
    ensure!(args.number > 0, "--number counts from 1");
    let (mut frames, mut seen) = (Vec::new(), 0);
    pktio::read_capture(file, &mut |frame| {
        seen += 1;
        if seen >= args.number {
            frames.push(frame.to_vec());
        }
        frames.len() < FRAMES_MAX
    })?;
    ensure!(!frames.is_empty(), "{} has {seen} frames, so there is no frame {}", file.display(), args.number);
    Ok(Some(frames))
}

/// Parses a packet's bytes in the usual notations: `0x0200 0000`, `02:00:00`, `0x02, 0x00`, several lines.
fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for word in text.split(|c: char| c.is_whitespace() || matches!(c, ':' | ',' | '-')) {
        let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")).unwrap_or(word);
        if let Some(other) = digits.chars().find(|c| !c.is_ascii_hexdigit()) {
            return Err(format!("has {other:?}, which is not a hexadecimal digit"));
        }
        // Words are decoded one by one: an odd number of digits must not be completed by the next word.
        bytes.extend(hex::decode(digits).map_err(|_| format!("has `{word}`, which is not whole bytes of two digits"))?);
    }
    if bytes.is_empty() { Err("has no bytes".to_string()) } else { Ok(bytes) }
}

/// Traces packets of a running switch.
fn live(args: &Args, given: Option<Vec<Vec<u8>>>) -> Result<ExitCode> {
    ensure!(given.is_none() || args.port.is_some(), "a packet needs the --port that it comes from");
    let request = pb::TraceRequest {
        device_id: args.device_id,
        frame: Vec::new(),
        port: args.port,
        filter: args.filter.clone().unwrap_or_default(),
        count: args.count,
        tree: args.tree,
        packet_filter: args.pcap_filter.clone().unwrap_or_default(),
    };
    let client = args.server.connect()?;
    let mut shown = Shown { format: args.format(), waiting: vec![] };
    let Some(frames) = given else {
        if args.format() == Format::Text {
            eprintln!("waiting for a packet; Ctrl-C ends");
        }
        let mut done = Ok(());
        client.trace(request, |trace| {
            done = shown.take(trace);
            done.is_ok()
        })?;
        return done.map(|()| ExitCode::SUCCESS);
    };
    let mut traced = 0;
    for frame in frames {
        let (mut passed, mut done) = (false, Ok(()));
        client.trace(pb::TraceRequest { frame, ..request.clone() }, |trace| {
            passed = true;
            done = shown.take(trace);
            done.is_ok()
        })?;
        done?;
        traced += u32::from(passed);
        if traced == args.count.max(1) {
            break;
        }
    }
    if traced == 0 {
        eprintln!("no frame of the file passes the filter");
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints traces; in text form, the traces of a packet together.
struct Shown {
    format: Format,
    waiting: Vec<pb::TraceResponse>,
}

impl Shown {
    fn take(&mut self, trace: pb::TraceResponse) -> Result<()> {
        if self.format != Format::Text {
            return show(&trace, self.format);
        }
        let last = !trace.more;
        self.waiting.push(trace);
        if last {
            print!("{}", render(&std::mem::take(&mut self.waiting)));
            std::io::stdout().flush()?;
        }
        Ok(())
    }
}

fn show(trace: &pb::TraceResponse, format: Format) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match format {
        Format::Text => print!("{}", render(std::slice::from_ref(trace))),
        Format::Json => println!("{}", to_json(trace)),
        Format::Protobuf => out.write_all(&grpc::admin::delimited(trace))?,
    }
    out.flush()?;
    Ok(())
}

/// Returns the text about all outcomes of one packet.
fn render(traces: &[pb::TraceResponse]) -> String {
    let Some(first) = traces.first() else { return String::new() };
    let mut text = format!("# port {}: {}\n", first.port, hex::encode(&first.frame));
    match traces {
        [one] if one.choices.is_empty() => text += &(lines(one).join("\n") + "\n"),
        [one] => {
            text += &format!("# {}\n{}\n", one.choices.join("\n# "), lines(one).join("\n"));
        }
        _ => {
            let outcome = |t: &pb::TraceResponse| tree::Outcome { choices: t.choices.clone(), lines: lines(t) };
            text += &tree::render(&traces.iter().map(outcome).collect::<Vec<_>>());
        }
    }
    if traces.iter().any(|trace| trace.cut_short) {
        text += &format!("# there are more outcomes than these {}\n", traces.len());
    }
    text
}

fn lines(trace: &pb::TraceResponse) -> Vec<String> {
    let mut lines = Vec::new();
    for (i, run) in trace.runs.iter().enumerate() {
        let mut copy = String::new();
        copy.extend(run.egress_port.map(|port| format!(", port {port}")));
        copy.extend(run.instance.map(|rid| format!(", rid {rid}")));
        lines.extend((i > 0).then(String::new));
        lines.push(format!("== {}{copy}", run.entry));
        let mut last = None;
        for step in &run.steps {
            if step.text.starts_with("== ") {
                lines.push(step.text.clone());
                last = None;
                continue;
            }
            let place = Some((&step.file, step.line)).filter(|(file, _)| !file.is_empty());
            if place.is_some() && place != last {
                lines.push(format!("{}:{}: {}", step.file, step.line, step.source));
                last = place;
            }
            lines.push(format!("    {}", step.text));
        }
    }
    lines.push(String::new());
    lines.extend(trace.sent.iter().map(|sent| format!("port {}: {}", sent.port, hex::encode(&sent.frame))));
    match trace.dropped.as_slice() {
        [] if trace.sent.is_empty() => lines.push("dropped: no copy was made".to_string()),
        [] => {}
        reasons => lines.push(format!("dropped: {}", reasons.join(", "))),
    }
    lines
}

fn to_json(trace: &pb::TraceResponse) -> serde_json::Value {
    use serde_json::json;
    let step =
        |s: &pb::trace_response::Step| json!({ "text": s.text, "file": s.file, "line": s.line, "source": s.source });
    let run = |r: &pb::trace_response::Run| {
        json!({
            "entry": r.entry, "egress_port": r.egress_port, "instance": r.instance,
            "steps": r.steps.iter().map(step).collect::<Vec<_>>(),
        })
    };
    let sent = |s: &pb::trace_response::Sent| json!({ "port": s.port, "frame": hex::encode(&s.frame) });
    json!({
        "port": trace.port, "frame": hex::encode(&trace.frame), "choices": trace.choices,
        "more": trace.more, "cut_short": trace.cut_short,
        "runs": trace.runs.iter().map(run).collect::<Vec<_>>(),
        "sent": trace.sent.iter().map(sent).collect::<Vec<_>>(), "dropped": trace.dropped,
    })
}

/// Traces packets through a program without a switch, one after the other on the same tables and registers.
fn offline(args: &Args, path: &Path, port: u32, frames: &[Vec<u8>]) -> Result<ExitCode> {
    let Some(compiled) = args.compile.compile_program(path)? else {
        return Ok(ExitCode::from(1));
    };
    let (program, form) =
        if args.optimised { (compiled.optimised, Form::Optimised) } else { (compiled.raw, Form::Lowered) };
    let program = Arc::new(program.context("the program has IR")?);
    if let Some(problem) = port_problem(&program, port) {
        bail!("--port: {problem}");
    }
    let oracle = Oracle::new(Arc::clone(&program), true);
    let output = oracle.output();
    let pipeline = Arc::new(Pipeline::new(program, Box::new(oracle), 1));
    let mut local = Local::new(pipeline);
    if let Some(file) = &args.entries
        && !crate::run::apply_entries(file, local.pipeline(), local.replication())?
    {
        return Ok(ExitCode::from(1));
    }
    let mut before = BTreeMap::new();
    for (at, frame) in frames.iter().enumerate() {
        if args.format() != Format::Text {
            let (port, sources) = (port, &compiled.sources);
            show(&told(&mut local, &output, sources, form, port, frame, &mut before)?, args.format())?;
            continue;
        }
        if frames.len() > 1 {
            println!("{}# frame {}", if at > 0 { "\n" } else { "" }, args.number + at);
        }
        trace_one(&mut local, &output, &compiled.sources, form, port, frame, &mut before)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a packet through the program; returns the sent frames.
fn receive(local: &mut Local, port: u32, frame: &[u8]) -> Result<Vec<Sent>> {
    let too_long = || format!("the frame has {} bytes, a packet buffer 2,048", frame.len());
    local.receive(port, frame).with_context(too_long)
}

/// Returns the reasons of drops since the last call; `before` holds the drop counters of that call, by reason.
fn new_drops(local: &Local, before: &mut BTreeMap<String, u64>) -> Vec<String> {
    let drops: BTreeMap<_, _> = local.pipeline().drops(0).read(local.pipeline().program()).into_iter().collect();
    let new = drops.iter().filter(|(name, n)| **n > before.get(*name).copied().unwrap_or(0));
    let reasons = new.map(|(name, _)| name.clone()).collect();
    *before = drops;
    reasons
}

/// Traces a packet into the message of a running switch, which has no log lines and digests.
fn told(
    local: &mut Local,
    output: &OracleOutput,
    sources: &SourceMap,
    form: Form,
    port: u32,
    frame: &[u8],
    before: &mut BTreeMap<String, u64>,
) -> Result<pb::TraceResponse> {
    let sent = receive(local, port, frame)?;
    let dropped = new_drops(local, before);
    let dropped = if sent.is_empty() { dropped } else { vec![] };
    let runs = output.take_traces();
    let runs = runs.iter().map(|(entry, trace)| crate::live::run(*entry, trace, sources, form)).collect();
    // Not part of the message; left in place, they would be mixed with those of the next packet.
    drop(output.take_logs());
    drop(local.pipeline().take_digests());
    let sent = sent.into_iter().map(|s| pb::trace_response::Sent { port: s.port, frame: s.bytes }).collect();
    Ok(pb::TraceResponse { port, frame: frame.to_vec(), runs, sent, dropped, ..Default::default() })
}

/// Traces a packet and prints the trace; `before` is as of [`new_drops`].
fn trace_one(
    local: &mut Local,
    output: &OracleOutput,
    sources: &SourceMap,
    form: Form,
    port: u32,
    frame: &[u8],
    before: &mut BTreeMap<String, u64>,
) -> Result<()> {
    let sent = receive(local, port, frame)?;
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
        print!("{}", trace.render(sources, form));
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
        let reasons = new_drops(local, before);
        println!("dropped: {}", if reasons.is_empty() { "no copy was made".to_string() } else { reasons.join(", ") });
    }
    for out in sent {
        println!("port {}: {}", out.port, hex::encode(out.bytes));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn packets_are_read_as_people_write_them() {
        for text in [
            "0x0200ff",
            "0200FF",
            "02 00 ff",
            "02:00:ff",
            "0X02 0x00 0xff",
            "\n 0200\n\tff\n",
            "0x02,0x00,0xff",
            "02-00-ff",
        ] {
            assert_eq!(bytes(text).as_deref(), Ok(&[2, 0, 0xff][..]), "{text}");
        }
        for (text, why) in [
            ("", "has no bytes"),
            ("0x", "has no bytes"),
            ("0x020", "has `0x020`, which is not whole bytes of two digits"),
            ("02:0:01", "has `0`, which is not whole bytes of two digits"),
            ("02 0g", "has 'g', which is not a hexadecimal digit"),
            ("00x02", "has 'x', which is not a hexadecimal digit"),
            ("02 é", "has 'é', which is not a hexadecimal digit"),
        ] {
            assert_eq!(bytes(text), Err(why.to_string()), "{text}");
        }
    }
}
