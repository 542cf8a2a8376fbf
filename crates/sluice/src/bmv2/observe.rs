//! `--pcap`, `--log-console` and `--log-file`: what ports receive and send, and what the program does with each packet, as users of bmv2
//! read it.
//!
//! Workers do nothing for it but copy frames (`datapath::tap`). A thread writes pcap files, another one runs each received frame again
//! through the interpreter (`live.rs`), on a snapshot of the tables as they are then, and writes a line for each step. Frames that
//! come faster than that are not in the log, which says how many; the switch does not wait. So the log is for looking at packets,
//! not for load.
//!
//! A line has bmv2's form; numbers of packets count what is in the log, and an entry is told by its key where bmv2 has a handle. Times are
//! UTC.
//!
//! Tests: below, `tests/py/test_bmv2.py`.

use super::switch::DROP_PORT;
use crate::compiler::Compiler;
use crate::live::{PacketFilter, Runs, Tracer};
use anyhow::{Context, Result};
use base::{Bits, SourceMap, Span};
use datapath::tap::{TapConfig, Tapped, TappedFrame};
use datapath::{Pipeline, Switch};
use grpc::Handle;
use interp::trace::{Event, TraceStep};
use ir::{EntryKind, Program};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// How long a thread waits for a frame before it writes out what it has.
const LOOK: Duration = Duration::from_millis(50);
const SNAP_LENGTH: u32 = 65_535;
/// Bytes of a file's buffer: what the disk is behind.
const BUFFER_BYTES: usize = 64 << 10;

/// Options of `sluice run` that bmv2's command lines become.
#[derive(clap::Args, Clone, Debug)]
pub struct ObserveArgs {
    /// Record what ports receive and send, as INTERFACE_in.pcap and INTERFACE_out.pcap in this folder.
    #[arg(long, value_name = "FOLDER", hide = true)]
    pcap: Option<PathBuf>,
    /// Write a line for each step of each packet, as bmv2 does; `-` is stdout.
    #[arg(long, value_name = "FILE", hide = true)]
    packet_log: Option<PathBuf>,
    /// Whether it shows what the program does.
    #[arg(long, value_name = "true|false", hide = true, default_value_t = true, action = clap::ArgAction::Set)]
    packet_log_steps: bool,
    /// Bytes of packets that it shows.
    #[arg(long, value_name = "BYTES", hide = true, default_value_t = 0)]
    packet_log_bytes: usize,
}

/// What is being written; dropping it ends it, once what has come is written.
pub struct Observer {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl ObserveArgs {
    /// Begins with the first frame of the ports that are added afterwards.
    pub fn start(
        &self,
        switch: &Arc<Switch>,
        handle: &Arc<Handle>,
        (compiler, options): (&Arc<Compiler>, &frontend::Options),
        device: u64,
    ) -> Result<Observer> {
        let mut observer = Observer { stop: Arc::default(), threads: Vec::new() };
        if let Some(folder) = &self.pcap {
            let tapped = switch.tap(TapConfig::default())?;
            let files = PcapFiles { folder: folder.clone(), files: BTreeMap::new(), failed: false };
            let (switch, stop) = (Arc::clone(switch), Arc::clone(&observer.stop));
            let thread = std::thread::Builder::new().name("pcap".into());
            observer.threads.push(thread.spawn(move || files.write_all(&switch, &tapped, &stop))?);
        }
        if let Some(file) = &self.packet_log {
            let out: Box<dyn Write + Send> = match file {
                file if file == Path::new("-") => Box::new(std::io::stdout()),
                file => Box::new(File::create(file).with_context(|| format!("cannot write {}", file.display()))?),
            };
            // What is sent is copied only if its bytes are shown: the steps say where it goes.
            let received_only = self.packet_log_bytes == 0;
            let tapped = switch.tap(TapConfig { device: Some(device), received_only, ..TapConfig::default() })?;
            let log = PacketLog {
                out,
                switch: Arc::clone(switch),
                handle: Arc::clone(handle),
                compiler: Arc::clone(compiler),
                options: options.clone(),
                device,
                steps: self.packet_log_steps,
                bytes: self.packet_log_bytes,
                tracer: None,
                count: 0,
            };
            let stop = Arc::clone(&observer.stop);
            let thread = std::thread::Builder::new().name("packet-log".into());
            observer.threads.push(thread.spawn(move || log.write_all(&tapped, &stop))?);
        }
        Ok(observer)
    }
}

// ---------------------------------------------------------------------------------------------------- pcap files

/// Two files for each port, by its name.
struct PcapFiles {
    folder: PathBuf,
    files: BTreeMap<(u32, bool), Option<BufWriter<File>>>,
    /// A problem was told.
    failed: bool,
}

impl PcapFiles {
    fn write_all(mut self, switch: &Switch, tapped: &Tapped, stop: &AtomicBool) {
        let mut lost = 0;
        loop {
            let frame = tapped.next_within(LOOK);
            let Some(frame) = frame else {
                self.make(switch);
                self.flush();
                if tapped.lost() != lost {
                    lost = tapped.lost();
                    tracing::warn!("--pcap: {lost} frames came too fast and are not in the files");
                }
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                continue;
            };
            if !self.files.contains_key(&(frame.port, frame.sent)) {
                self.make(switch);
            }
            self.write(&frame);
        }
    }

    /// Makes the files of ports that have none yet, so that there are files also where nothing passes.
    fn make(&mut self, switch: &Switch) {
        for port in switch.ports() {
            for sent in [false, true] {
                if self.files.contains_key(&(port.number, sent)) {
                    continue;
                }
                let path = self.folder.join(file_name(&port.name, sent));
                let made = File::create(&path).and_then(|file| {
                    let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
                    file.write_all(&file_header()).map(|()| file)
                });
                let made = made.map_err(|error| self.tell(&format!("{}: {error}", path.display()))).ok();
                self.files.insert((port.number, sent), made);
            }
        }
    }

    fn write(&mut self, frame: &TappedFrame) {
        let Some(Some(file)) = self.files.get_mut(&(frame.port, frame.sent)) else { return };
        let written = file.write_all(&record_header(frame)).and_then(|()| file.write_all(&frame.data));
        if let Err(error) = written {
            self.files.insert((frame.port, frame.sent), None);
            self.tell(&error.to_string());
        }
    }

    fn flush(&mut self) {
        let failed = self.files.values_mut().flatten().find_map(|file| file.flush().err());
        if let Some(error) = failed {
            self.tell(&error.to_string());
        }
    }

    /// A full disk is told once.
    fn tell(&mut self, problem: &str) {
        if !self.failed {
            tracing::error!("--pcap: {problem}");
        }
        self.failed = true;
    }
}

/// The beginning of a pcap file of Ethernet frames with microseconds, in this machine's order of bytes.
fn file_header() -> Vec<u8> {
    const MAGIC: u32 = 0xa1b2_c3d4;
    const VERSION: [u16; 2] = [2, 4];
    const ETHERNET: u32 = 1;
    let mut bytes = MAGIC.to_ne_bytes().to_vec();
    bytes.extend(VERSION.into_iter().flat_map(u16::to_ne_bytes));
    bytes.extend([0, 0, SNAP_LENGTH, ETHERNET].into_iter().flat_map(u32::to_ne_bytes));
    bytes
}

/// What stands before a frame in a file.
fn record_header(frame: &TappedFrame) -> Vec<u8> {
    let fields = [frame.time.as_secs() as u32, frame.time.subsec_micros(), frame.data.len() as u32, frame.length];
    fields.into_iter().flat_map(u32::to_ne_bytes).collect()
}

/// `s1-eth1_in.pcap`; a name is one of a file in the folder, whatever is in it.
fn file_name(port: &str, sent: bool) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = port.chars().map(plain).collect();
    let name = name.trim_start_matches('.');
    format!("{name}_{}.pcap", if sent { "out" } else { "in" })
}

// ---------------------------------------------------------------------------------------------------- the log of packets

struct PacketLog {
    out: Box<dyn Write + Send>,
    switch: Arc<Switch>,
    handle: Arc<Handle>,
    compiler: Arc<Compiler>,
    options: frontend::Options,
    device: u64,
    steps: bool,
    bytes: usize,
    /// For the program that runs; `None` if it cannot be traced.
    tracer: Option<(Arc<Pipeline>, Option<Tracer>)>,
    count: u64,
}

impl PacketLog {
    fn write_all(mut self, tapped: &Tapped, stop: &AtomicBool) {
        let mut lost = 0;
        while !stop.load(Ordering::Relaxed) {
            let Some(frame) = tapped.next_within(LOOK) else { continue };
            let mut lines = Vec::new();
            if tapped.lost() != lost {
                lines.push(Line::info(format!(
                    "{} packets came too fast and are not in this log",
                    tapped.lost() - lost
                )));
                lost = tapped.lost();
            }
            self.packet(&frame, &mut lines);
            let text: String = lines.iter().map(|line| line.text(self.count)).collect();
            // Names in it do not steer a terminal.
            let text = crate::output::visible(&text);
            if self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).is_err() {
                tracing::error!("the log of packets cannot be written any more");
                return;
            }
        }
    }

    fn packet(&mut self, frame: &TappedFrame, lines: &mut Vec<Line>) {
        if self.bytes > 0 {
            let what = if frame.sent { "Sending" } else { "Received" };
            let shown = &frame.data[..frame.data.len().min(self.bytes)];
            let hex: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            lines.push(Line::info(format!("{what} packet of length {} on port {}: {hex}", frame.length, frame.port)));
        }
        if frame.sent || !self.steps {
            return;
        }
        self.count += 1;
        lines.push(Line::debug(format!("Processing packet received on port {}", frame.port)));
        self.follow_program();
        let Some((_, Some(tracer))) = &self.tracer else {
            lines.push(Line::debug("Dropping packet: no program runs".to_string()));
            return;
        };
        match tracer.runs(frame.port, &frame.data) {
            Ok(runs) => {
                let (program, sources) = tracer.program();
                Narrator::new(program, sources).tell(&runs, lines);
            }
            Err(why) => lines.push(Line::debug(format!("Dropping packet: {why}"))),
        }
    }

    /// Makes a tracer if another program runs than before.
    fn follow_program(&mut self) {
        let Some(pipeline) = self.switch.pipeline_of(self.device) else {
            self.tracer = None;
            return;
        };
        if self.tracer.as_ref().is_some_and(|(traced, _)| Arc::ptr_eq(traced, &pipeline)) {
            return;
        }
        let config = self.handle.with(|control| control.running_config(self.device)).ok().flatten();
        let made = config.ok_or_else(|| "no program runs".to_string()).and_then(|config| {
            let filter = PacketFilter::compile("")?;
            let program = (config.name.as_str(), config.device_config.as_slice());
            let compile = (&*self.compiler, &self.options);
            Tracer::new(compile, Arc::clone(&pipeline), program, "", filter, self.switch.now_us())
        });
        let tracer = made.map_err(|why| tracing::warn!("packets of this program are not logged: {why}")).ok();
        self.tracer = Some((pipeline, tracer));
    }
}

/// A line of the log.
struct Line {
    level: char,
    text: String,
}

impl Line {
    fn trace(text: String) -> Line {
        Line { level: 'T', text }
    }

    fn debug(text: String) -> Line {
        Line { level: 'D', text }
    }

    fn info(text: String) -> Line {
        Line { level: 'I', text }
    }

    /// As bmv2 writes it.
    fn text(&self, packet: u64) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (seconds, ms) = (now.as_secs() % 86_400, now.subsec_millis());
        let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let thread = std::process::id();
        let number = packet.saturating_sub(1);
        format!(
            "[{h:02}:{m:02}:{s:02}.{ms:03}] [bmv2] [{}] [thread {thread}] [{number}.0] [cxt 0] {}\n",
            self.level, self.text
        )
    }
}

/// Behind each state of the parser.
fn bytes_parsed(bits: u64) -> Line {
    Line::trace(format!("Bytes parsed: {}", bits / 8))
}

/// Where ingress wants a packet to go.
#[derive(Default)]
struct Wanted {
    port: u64,
    group: u64,
}

impl Wanted {
    fn note(&mut self, slot: &str, new: &Bits) {
        let of = |name: &str| slot.rsplit('.').next() == Some(name);
        let value = new.to_u64().unwrap_or(0);
        if of("egress_spec") {
            self.port = value;
        } else if of("mcast_grp") {
            self.group = value;
        }
    }

    fn tell(&self, drop_port: u64, lines: &mut Vec<Line>) {
        let mut debug = |text: String| lines.push(Line::debug(text));
        if self.group != 0 {
            return debug("Multicast requested for packet".to_string());
        }
        debug(format!("Egress port is {}", self.port));
        if self.port == drop_port {
            debug("Dropping packet at the end of ingress".to_string());
        }
    }
}

/// Tells the runs of packets through one program.
struct Narrator<'a> {
    sources: &'a SourceMap,
    drop_port: u64,
    /// What bmv2 calls the program's blocks, by their names here.
    blocks: HashMap<&'a str, (&'static str, &'static str)>,
}

impl<'a> Narrator<'a> {
    fn new(program: &'a Program, sources: &'a SourceMap) -> Narrator<'a> {
        let mut blocks = HashMap::new();
        for stage in &program.stages {
            match stage.kind {
                ir::StageKind::Parser => _ = blocks.insert(stage.name.as_str(), ("Parser", "parser")),
                ir::StageKind::Deparser => _ = blocks.insert(stage.name.as_str(), ("Deparser", "deparser")),
                ir::StageKind::Control => {}
            }
        }
        // The architecture's glue stands between the two pipelines.
        if let Some(entry) = program.entry(EntryKind::Ingress) {
            let names: Vec<&str> = entry.stages.iter().map(|id| program.stages[id.index()].name.as_str()).collect();
            if let Some(end) = names.iter().position(|name| *name == "ingress_end") {
                let before = end.checked_sub(1).map(|at| (names[at], "ingress"));
                let after = names.get(end + 1).map(|name| (*name, "egress"));
                let pipelines = before.into_iter().chain(after);
                blocks.extend(pipelines.map(|(name, pipeline)| (name, ("Pipeline", pipeline))));
            }
        }
        let drop_port = program.drop_port.unwrap_or(u64::from(DROP_PORT));
        Narrator { sources, drop_port, blocks }
    }

    fn tell(&self, (runs, sent, dropped): &Runs, lines: &mut Vec<Line>) {
        for (_, trace) in runs {
            let mut open: Option<(&str, &str)> = None;
            let mut in_state = String::new();
            let mut last_primitive = None;
            let mut parsed_bits = 0u64;
            let mut wanted = Wanted::default();
            let end = |open: &mut Option<(&str, &str)>, parsed_bits: u64, lines: &mut Vec<Line>| {
                if let Some((kind, name)) = open.take() {
                    if kind == "Parser" {
                        lines.push(bytes_parsed(parsed_bits));
                    }
                    lines.push(Line::debug(format!("{kind} '{name}': end")));
                }
            };
            for step in &trace.steps {
                match &step.event {
                    Event::Stage { name, .. } => {
                        end(&mut open, parsed_bits, lines);
                        if name == "ingress_end" {
                            wanted.tell(self.drop_port, lines);
                        }
                        open = self.blocks.get(name.as_str()).copied();
                        if let Some((kind, name)) = open {
                            lines.push(Line::debug(format!("{kind} '{name}': start")));
                        }
                    }
                    Event::State(name) => {
                        if !in_state.is_empty() {
                            lines.push(bytes_parsed(parsed_bits));
                        }
                        in_state.clone_from(name);
                        lines.push(Line::debug(format!("Parser 'parser' entering state '{name}'")));
                    }
                    Event::Select { value, .. } if open.is_some_and(|(kind, _)| kind == "Parser") => {
                        lines.push(Line::debug(format!("Parser state '{in_state}': key is {}", plain_hex(value))));
                    }
                    Event::Change { slot, new, .. } => {
                        wanted.note(slot, new);
                        // One statement may change several slots, and the parser's own are no primitives.
                        let primitive = self.source(step.span);
                        if last_primitive != Some(step.span) && open.is_some_and(|(kind, _)| kind == "Pipeline") {
                            lines.extend(
                                primitive.map(|(place, text)| Line::trace(format!("{place} Primitive {text}"))),
                            );
                        }
                        last_primitive = Some(step.span);
                    }
                    event => {
                        match event {
                            Event::Extract { offset, fields, .. } => {
                                let bits: u64 = fields.iter().map(|(_, value)| u64::from(value.width())).sum();
                                parsed_bits = offset * 8 + bits;
                            }
                            Event::Advance { bits } => parsed_bits += bits,
                            _ => {}
                        }
                        self.step(step, lines);
                    }
                }
            }
            end(&mut open, parsed_bits, lines);
        }
        for frame in sent {
            lines.push(Line::debug(format!(
                "Transmitting packet of size {} out of port {}",
                frame.frame.len(),
                frame.port
            )));
        }
        lines.extend(dropped.iter().map(|why| Line::debug(format!("Dropping packet: {why}"))));
    }

    fn step(&self, step: &TraceStep, lines: &mut Vec<Line>) {
        match &step.event {
            Event::Extract { header, .. } => {
                lines.push(Line::debug(format!("Extracting header '{}'", instance(header))))
            }
            Event::Emit { header, .. } => lines.push(Line::debug(format!("Deparsing header '{}'", instance(header)))),
            Event::HasBits { bits, there: false } => {
                lines.push(Line::debug(format!("Packet too short: {bits} bits are not there")));
            }
            Event::Condition { value, .. } => {
                let text = interp::trace::condition_text(self.sources, step.span);
                let place = self.source(step.span).map_or_else(String::new, |(place, _)| place);
                lines.extend(text.map(|text| Line::trace(format!("{place} Condition \"{text}\" is {value}"))));
            }
            Event::Apply { table, keys, entry, action, args } => {
                lines.push(Line::trace(format!("Applying table '{table}'")));
                let mut key = "Looking up key:\n".to_string();
                for (name, value) in keys {
                    key += &format!("* {name:<20}: {}\n", plain_hex(value));
                }
                lines.push(Line::debug(key));
                lines.push(Line::debug(match entry {
                    Some(entry) => format!("Table '{table}': hit with entry {entry}"),
                    None => format!("Table '{table}': miss"),
                }));
                let args: String = args.iter().map(|(_, value)| format!("{},", short_hex(value))).collect();
                lines.push(Line::debug(format!("Action entry is {action} - {args}")));
            }
            Event::Action(name) => lines.push(Line::trace(format!("Action {name}"))),
            Event::Extern { name, what } => lines.push(Line::trace(format!("{name}: {what}"))),
            Event::Log(text) => lines.push(Line::info(text.clone())),
            Event::AssertFailed(text) => lines.push(Line { level: 'E', text: format!("Assert failed: {text}") }),
            _ => {}
        }
    }

    /// `basic.p4(99)` and what stands there.
    fn source(&self, span: Span) -> Option<(String, String)> {
        let (file, line) = self.sources.origin(span)?;
        let words: Vec<&str> = self.sources.text(span)?.split_whitespace().collect();
        // `<p4lib/x.p4>` comes with the compiler.
        let file = file.trim_matches(['<', '>']);
        let file = Path::new(file).file_name().map_or(file.into(), |name| name.to_string_lossy());
        (!words.is_empty()).then(|| (format!("{file}({line})"), words.join(" ").trim_end_matches(';').to_string()))
    }
}

/// A header's name without that of the struct that it is in.
fn instance(header: &str) -> &str {
    header.split_once('.').map_or(header, |(_, name)| name)
}

/// All digits of a value's bytes.
fn plain_hex(value: &Bits) -> String {
    value.to_bytes_be().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn short_hex(value: &Bits) -> String {
    let hex = plain_hex(value);
    match hex.trim_start_matches('0') {
        "" => "0".to_string(),
        digits => digits.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_interfaces_and_stay_in_their_folder() {
        assert_eq!(file_name("s1-eth1", false), "s1-eth1_in.pcap");
        assert_eq!(file_name("s1-eth1", true), "s1-eth1_out.pcap");
        assert_eq!(file_name("../../etc/x", true), "_.._etc_x_out.pcap");
    }

    #[test]
    fn files_are_read_by_others() {
        let time = Duration::new(1_700_000_000, 123_456_789);
        let frame = TappedFrame { device: 0, port: 1, sent: false, time, length: 70, data: vec![7; 60] };
        let bytes = [file_header(), record_header(&frame), frame.data].concat();
        let mut reader = pcap_file::pcap::PcapReader::new(bytes.as_slice()).unwrap();
        assert_eq!(reader.header().datalink, pcap_file::DataLink::ETHERNET);
        let packet = reader.next_packet().unwrap().unwrap();
        assert_eq!((packet.timestamp, packet.orig_len), (Duration::new(1_700_000_000, 123_456_000), 70));
        assert_eq!(*packet.data, [7; 60]);
        assert!(reader.next_packet().is_none());
    }

    #[test]
    fn lines_have_the_form_that_scripts_look_for() {
        let line = Line::debug("Parser 'parser': start".to_string()).text(97);
        let (time, rest) = line.split_at("[15:16:48.145] ".len());
        assert!(time.starts_with('[') && time.ends_with("] "), "{line}");
        let thread = format!("[thread {}]", std::process::id());
        assert_eq!(rest, format!("[bmv2] [D] {thread} [96.0] [cxt 0] Parser 'parser': start\n"));
    }

    #[test]
    fn values_are_hexadecimal_without_a_prefix() {
        assert_eq!(plain_hex(&Bits::new(16, 0x800)), "0800");
        assert_eq!(plain_hex(&Bits::new(9, 2)), "0002");
        assert_eq!(short_hex(&Bits::new(48, 0x0800_0000_0200)), "80000000200");
        assert_eq!(short_hex(&Bits::new(9, 0)), "0");
    }
}
