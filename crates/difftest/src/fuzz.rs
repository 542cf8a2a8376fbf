//! Bodies of the fuzz targets. They are here and not in `fuzz/`, so that the test suite can replay findings.
//!
//! | target | input | property |
//! | --- | --- | --- |
//! | `p4_source` | a P4 program | the compiler returns a program or diagnostics |
//! | `bmv2_json` | a program in bmv2's JSON | likewise |
//! | `ir_text` | a program's IR | if the verifier accepts it, it round-trips through text |
//! | `packets` | which example, then frames ([`split_frames`]) | interpreter and machine code behave the same |
//! | `stf_script` | which example, then a script | it is refused or runs to its end |
//! | `p4runtime` | which protocol message, then the message | there is an answer, and read results can be encoded |
//! | `messages` | method of the services, then its request | decoding takes no more memory than `grpc::wire` estimates |
//! | `constraint` | a constraint | it is parsed, or refused at a place in the text |
//! | `state_log` | records of a state directory's log ([`split_records`]) | they are refused, or round-trip as entities |
//! | `state_files` | damage to a state directory | a start restores the exact state, is refused, or reports the loss |
//! | `trace_filter` | a filter of `sluice trace` | it is parsed or refused, and evaluates on any packet |
//! | `vhost` | a vhost-user front end's messages, or a ring (`pktio_vhost::fuzz`) | bounded work, within guest memory |
//! | `memif` | a memif peer's memory and messages (`pktio_memif::fuzz`) | bursts end, and access only its memory |
//! | `openflow` | version, formats, an OpenFlow controller's messages | they are refused or round-trip; bounded answers |
//! | `bpf` | a BPF object file, or instructions | they are refused with a reason, or behave the same on both engines |
//! | `thrift` | a thrift client's bytes (`thrift_service::fuzz`) | calls are refused, or round-trip, within bounds |
//!
//! A body panics if its property is violated. It is deterministic: the result depends on the input only.
//!
//! Tests: `tests/fuzz_regressions.rs` replays `fuzz/regressions/`.

use crate::seed::Subject;
use base::Bits;
use base::ids::ExternId;
use base::span::FileId;
use control::journal::{After, Batch, Change, Slot};
use datapath::{EngineKind, Local};
use frontend::{Input, Options, Until};
use interp::filter::Filter;
use interp::trace::Event;
use ir::ExternKind;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use stf::{Setup, Target};

/// The body of a fuzz target.
pub type Body = fn(&[u8]);

/// The fuzz targets by name.
pub const TARGETS: [(&str, Body); 16] = [
    ("p4_source", p4_source),
    ("bmv2_json", bmv2_json),
    ("ir_text", ir_text),
    ("packets", packets),
    ("stf_script", stf_script),
    ("p4runtime", crate::p4rt::fuzz_message),
    ("messages", crate::messages::fuzz),
    ("constraint", crate::p4rt::fuzz_constraint),
    ("state_log", state_log),
    ("state_files", crate::state_files::state_files),
    ("trace_filter", trace_filter),
    ("vhost", vhost),
    ("memif", memif),
    ("thrift", thrift),
    ("openflow", crate::controller::fuzz),
    ("bpf", crate::bpf_objects::fuzz),
];

/// Filters that together use every word and symbol of the language.
const FILTER_SEEDS: [&str; 13] = [
    "",
    "hdr.ipv4",
    "!ethernet",
    "port == 1",
    "port != 0x2 && length < 64",
    "ipv4.ttl <= 1 || ipv4.ttl > 200",
    "hdr.ipv4.dstAddr == 10.0.0.0/8",
    "ipv4.srcAddr != 192.168.0.1",
    "ethernet.dstAddr == 02:00:00:00:00:01",
    "ethernet.srcAddr != 02:00:00:00:00:00/24",
    "(port == 1 || port == 2) && !(length >= 1500)",
    "!!(!hdr.ipv4)",
    "port == ::1",
];
/// A program with a parser, a table and a checksum.
const BMV2_SEED: &str = include_str!("fuzz/small.json");
/// Substitutions in the sample text; each pair of old and new text gives one seed.
const BMV2_SEEDS: [(&str, &str); 14] = [
    ("", ""),
    ("ternary", "exact"),
    ("ternary", "lpm"),
    ("ternary", "range"),
    ("ternary", "optional"),
    ("csum16", "crc32"),
    ("push", "pop"),
    ("mark_to_drop", "remove_header"),
    ("register_write", "register_read"),
    ("\"op\": \"+\"", "\"op\": \"<<\""),
    ("\"op\": \"&\"", "\"op\": \"usat_cast\""),
    ("stack_field", "field"),
    ("extract_VL", "extract"),
    ("mark_to_drop", "exit"),
];
/// The maximum length of a source in bytes: longer ones find nothing new.
const SOURCE_BYTES_MAX: usize = 64 * 1024;
/// The maximum number of frames of an input.
const FRAMES_MAX: usize = 64;
/// The maximum number of frames in a batch.
const BATCH_MAX: usize = 16;

/// Runs an input as a hostile memif peer.
pub fn memif(bytes: &[u8]) {
    pktio_memif::fuzz(bytes);
}

/// Compiles an input, and renders the diagnostics.
pub fn p4_source(bytes: &[u8]) {
    if bytes.len() > SOURCE_BYTES_MAX {
        return;
    }
    let text = String::from_utf8_lossy(bytes);
    let input = Input::Text { name: "fuzz.p4", text: &text };
    let compiled = frontend::compile(input, &Options::default(), Until::Ir).expect("a text needs no file");
    let rendered = compiled.render(false);
    assert!(!compiled.failed() || !rendered.is_empty(), "a refused program without a reason");
    let messages_max = 64 * 1024 + 64 * text.len();
    assert!(rendered.len() <= messages_max, "{} bytes of messages", rendered.len());
    for program in compiled.raw.iter().chain(&compiled.optimised) {
        let size = opt::size(program) + program.slots.len();
        assert!(size <= lower::SIZE_LIMIT, "{size} operations and slots");
        let problems = ir::verify(program);
        assert!(problems.is_empty(), "an accepted program became wrong IR: {}", problems[0].message);
    }
}

/// Compiles an input as bmv2's JSON.
pub fn bmv2_json(bytes: &[u8]) {
    if bytes.len() > SOURCE_BYTES_MAX {
        return;
    }
    let compiled = bmv2::compile(&String::from_utf8_lossy(bytes), "fuzz.json", "fuzz");
    match compiled.program {
        None => assert!(base::diag::has_errors(&compiled.diagnostics), "a refused program without a reason"),
        Some(mut program) => {
            assert!(compiled.p4info.is_some());
            opt::optimise(&mut program, &opt::Options::default());
            let problems = ir::verify(&program);
            assert!(problems.is_empty(), "an accepted program became wrong IR: {}", problems[0].message);
        }
    }
}

/// Parses an input as IR.
pub fn ir_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if text.len() > SOURCE_BYTES_MAX {
        return;
    }
    let Ok(program) = ir::parse::parse(text, FileId(0)) else { return };
    if !ir::verify(&program).is_empty() {
        return;
    }
    let printed = ir::print::print(&program);
    let again = ir::parse::parse(&printed, FileId(0))
        .unwrap_or_else(|problems| panic!("printed IR is refused: {}\n{printed}", problems[0].message));
    assert_eq!(printed, ir::print::print(&again), "IR changes when it is printed and read");
}

/// The example programs with scripts.
fn examples() -> Vec<PathBuf> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    let folders = std::fs::read_dir(&root).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = folders
        .map(|folder| folder.path().join(folder.file_name()).with_extension("p4"))
        .filter(|program| program.exists() && program.with_extension("stf").exists())
        .collect();
    found.sort();
    found
}

/// An example loaded on all engines.
struct Bench {
    subject: Subject,
    /// Raw IR interpreted; optimised IR interpreted, compiled, compiled with staging; its machine-level IR compiled and
    /// interpreted.
    engines: [Local; 6],
}

impl Bench {
    fn load(program: &std::path::Path) -> Option<Bench> {
        let subject = match Subject::read(program, &program.with_extension("stf")) {
            Ok(subject) => subject,
            Err(error) if error.to_string().contains("draws random numbers") => return None,
            Err(error) => panic!("{}: {error:#}", program.display()),
        };
        let load = |program, kind| {
            let pipeline = datapath::load(Arc::clone(program), kind, 1).expect("examples load");
            let local = Local::new(Arc::new(pipeline));
            set_up(&local, &subject);
            local
        };
        let engines = [
            load(&subject.raw, EngineKind::Interpreter),
            load(&subject.optimised, EngineKind::Interpreter),
            load(&subject.optimised, EngineKind::Machine),
            load(&subject.optimised, EngineKind::Staged),
            load(&subject.optimised, EngineKind::Mir),
            load(&subject.optimised, EngineKind::MirInterpreter),
        ];
        Some(Bench { subject, engines })
    }

    /// Resets registers and meters, so that an input's result does not depend on earlier inputs. Counters grow equally
    /// on all engines.
    fn reset(&self) {
        for local in &self.engines {
            let state = local.pipeline().state();
            for (i, e) in local.pipeline().program().externs.iter().enumerate() {
                let id = ExternId::from_index(i);
                match &e.kind {
                    ExternKind::Register { size, initial, .. } => {
                        for index in 0..*size {
                            if state.register(id, index).is_ok_and(|value| value != *initial) {
                                state.register_set(id, index, initial).expect("the cell was just read");
                            }
                        }
                    }
                    ExternKind::Meter { size, direct: None, .. } => {
                        for index in 0..*size {
                            if let Ok(config @ Some(_)) = state.meter(id, index) {
                                state.meter_set(id, index, config).expect("the cell was just read");
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

fn set_up(local: &Local, subject: &Subject) {
    let pipeline = local.pipeline();
    let replication = local.replication();
    let target = Target { program: pipeline.program(), state: pipeline.state().as_ref(), replication };
    let mut setup = Setup::new();
    for line in &subject.setup {
        setup.apply(&line.command, target).expect("the example's own script");
    }
}

/// An example program; once selected, its bench, or `None` inside if its packets cannot be compared.
type LazyBench = (PathBuf, Option<Option<Bench>>);

thread_local! {
    /// The benches, each loaded when first selected, since loading all takes seconds.
    static BENCHES: RefCell<Vec<LazyBench>> =
        RefCell::new(examples().into_iter().map(|path| (path, None)).collect());
}

/// Runs frames through an example on all engines and compares.
pub fn packets(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let frames = split_frames(rest);
    BENCHES.with_borrow_mut(|benches| {
        let at = usize::from(choice) % benches.len();
        let (path, slot) = &mut benches[at];
        let Some(bench) = slot.get_or_insert_with(|| Bench::load(path)) else { return };
        bench.reset();
        let name = bench.subject.name.clone();
        for batch in frames.chunk_by(|a, b| a.0 == b.0).flat_map(|same| same.chunks(BATCH_MAX)) {
            let port = batch[0].0;
            let frames: Vec<&[u8]> = batch.iter().map(|(_, frame)| *frame).collect();
            let mut run = |local: &mut Local| local.receive_batch(port, &frames).expect("frames fit in buffers");
            let [raw, optimised, machine, staged, mir, mir_interpreter] = bench.engines.each_mut().map(&mut run);
            let others = [
                ("optimised", &optimised),
                ("machine code", &machine),
                ("staged", &staged),
                ("compiled mir", &mir),
                ("interpreted mir", &mir_interpreter),
            ];
            for (engine, sent) in others {
                assert_eq!(
                    raw, *sent,
                    "{name}: raw IR on the left, {engine} on the right, frames {frames:02x?} on {port}"
                );
            }
        }
        let [raw, optimised, machine, staged, mir, mir_interpreter] =
            bench.engines.each_ref().map(crate::round::visible_state);
        assert_eq!(raw, optimised, "{name}: state of raw IR and of optimised IR");
        assert_eq!(raw, machine, "{name}: state of raw IR and of machine code");
        assert_eq!(raw, staged, "{name}: state of raw IR and of staged machine code");
        assert_eq!(raw, mir, "{name}: state of raw IR and of compiled machine-level IR");
        assert_eq!(raw, mir_interpreter, "{name}: state of raw IR and of interpreted machine-level IR");
    });
}

/// Splits an input into frames with ports: `PORT LENGTH(2 bytes, big-endian) BYTES...`; the last frame may be cut
/// short.
pub fn split_frames(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
    let mut frames = Vec::new();
    while let [port, high, low, rest @ ..] = bytes {
        if frames.len() == FRAMES_MAX {
            break;
        }
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(1500).min(rest.len());
        let (frame, next) = rest.split_at(length);
        frames.push((u32::from(port % 16), frame));
        bytes = next;
    }
    frames
}

/// The inverse of [`split_frames`], for seeds.
pub fn join_frames<'a>(frames: impl IntoIterator<Item = (u32, &'a [u8])>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (port, frame) in frames {
        bytes.push(port as u8);
        bytes.extend((frame.len() as u16).to_be_bytes());
        bytes.extend(frame);
    }
    bytes
}

/// Parses a script and runs it on an example in the interpreter.
pub fn stf_script(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let Ok(lines) = stf::parse(text) else { return };
    if lines.len() > FRAMES_MAX {
        return;
    }
    thread_local! {
        static PROGRAMS: RefCell<Vec<(PathBuf, Option<Arc<ir::Program>>)>> =
            RefCell::new(examples().into_iter().map(|path| (path, None)).collect());
    }
    let program = PROGRAMS.with_borrow_mut(|programs| {
        let at = usize::from(choice) % programs.len();
        let (path, slot) = &mut programs[at];
        let compile = || {
            let compiled = frontend::compile(Input::File(path), &Options::default(), Until::Ir);
            Arc::new(compiled.expect("examples can be read").optimised.expect("examples compile"))
        };
        Arc::clone(slot.get_or_insert_with(compile))
    });
    let pipeline = datapath::load(program, EngineKind::Interpreter, 1).expect("examples load");
    stf::run_script(&lines, &mut Local::new(Arc::new(pipeline)));
}

/// Reads an input as the log of a state directory, as at startup: as a file, and as the records in a file.
pub fn state_log(bytes: &[u8]) {
    let (mut chain, mut at) = (store::frames::Chain::begin(1, 0), 0);
    while let Ok(Some(frame)) = chain.read(bytes, &mut at) {
        let _ = store::log::records(frame);
    }
    assert!(at <= bytes.len() && store::frames::intact_frames(bytes).all(|(range, _)| range.end <= bytes.len()));
    let records = split_records(bytes);
    // Framed as a file, the records read the same.
    let (mut file, mut at) = (Vec::new(), 0);
    let mut written = store::frames::Chain::begin(1, 0);
    written.frame(&mut file, |out| records.iter().for_each(|record| store::log::put_record(out, record)));
    let mut chain = store::frames::Chain::begin(1, 0);
    let frame = chain.read(&file, &mut at).expect("it was just written").unwrap_or_default();
    assert_eq!((store::log::records(frame), chain), (Some(records.clone()), written));
    let Ok(entities) = store::log::read(&records) else { return };
    assert!(entities.windows(2).all(|two| two[0].0 < two[1].0), "a key comes twice, or they are not in order");
    // Entities that could be read round-trip.
    let changes =
        entities.iter().map(|(key, entity)| Change { key: key.clone(), after: After::Is(Box::new(entity.clone())) });
    let batch = Batch { device_id: 1, slot: Slot::Running, request: Default::default(), changes: changes.collect() };
    let again = store::log::record(1, &batch);
    assert_eq!(store::log::read(&[&again]).expect("it was just written"), entities);
}

/// Splits an input into records, each after its length in two bytes, big-endian; the last record may be cut short.
pub fn split_records(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while let [high, low, rest @ ..] = bytes {
        let (record, next) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])).min(rest.len()));
        records.push(record);
        bytes = next;
    }
    records
}

/// The inverse of [`split_records`], for seeds.
fn join_records(records: &[Vec<u8>]) -> Vec<u8> {
    let one = |record: &Vec<u8>| [&(record.len() as u16).to_be_bytes(), record.as_slice()].concat();
    records.iter().flat_map(one).collect()
}

/// Parses an input as a filter on an example's headers, and evaluates it on a packet with all of them.
pub fn trace_filter(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    thread_local! {
        static PROGRAM: ir::Program = {
            let path = examples().into_iter().find(|p| p.ends_with("router.p4")).expect("it is an example");
            let compiled = frontend::compile(Input::File(&path), &Options::default(), Until::Ir);
            compiled.expect("examples can be read").raw.expect("examples compile")
        };
    }
    PROGRAM.with(|program| {
        let Ok(filter) = Filter::parse(text, program) else { return };
        let extract = |header: &ir::Header| Event::Extract {
            header: header.name.clone(),
            offset: 0,
            fields: header.fields.iter().map(|f| (f.name.clone(), Bits::ones(program.width(f.slot)))).collect(),
        };
        let events: Vec<Event> = program.headers.iter().map(extract).collect();
        let negated = Filter::parse(&format!("!({text})"), program);
        let accepts = |filter: &Filter| filter.accepts(3, 60, events.iter());
        // The extra parenthesis may exceed the parser's limits.
        if let (false, Ok(negated)) = (filter.wants_all(), negated) {
            assert_ne!(accepts(&filter), accepts(&negated), "{text}");
        }
    });
}

/// Runs an input as messages of a vhost-user front end, or as a ring's memory.
pub fn vhost(bytes: &[u8]) {
    pktio_vhost::fuzz::any(bytes);
}

/// Runs an input as a thrift client's bytes.
pub fn thrift(bytes: &[u8]) {
    thrift_service::fuzz::any(bytes);
}

/// Seed inputs as target, name and bytes: the unchanged examples.
pub fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut all = Vec::new();
    let messages = crate::p4rt::message_seeds().into_iter().enumerate();
    all.extend(messages.map(|(i, bytes)| ("p4runtime", i.to_string(), bytes)));
    let messages = crate::messages::seeds().into_iter().enumerate();
    all.extend(messages.map(|(i, bytes)| ("messages", i.to_string(), bytes)));
    let constraints = crate::p4rt::CONSTRAINT_SEEDS.iter().enumerate();
    all.extend(constraints.map(|(i, text)| ("constraint", i.to_string(), text.as_bytes().to_vec())));
    let logs = crate::p4rt::log_seeds().into_iter().enumerate();
    all.extend(logs.map(|(i, records)| ("state_log", i.to_string(), join_records(&records))));
    let damages = crate::state_files::seeds().into_iter().enumerate();
    all.extend(damages.map(|(i, bytes)| ("state_files", i.to_string(), bytes)));
    let peers = pktio_memif::fuzz_seeds().into_iter().enumerate();
    all.extend(peers.map(|(i, bytes)| ("memif", i.to_string(), bytes)));
    let controllers = crate::controller::seeds().into_iter().enumerate();
    all.extend(controllers.map(|(i, bytes)| ("openflow", i.to_string(), bytes)));
    let programs = crate::bpf_objects::seeds().into_iter().enumerate();
    all.extend(programs.map(|(i, bytes)| ("bpf", i.to_string(), bytes)));
    let calls = thrift_service::fuzz::seeds().into_iter().enumerate();
    all.extend(calls.map(|(i, bytes)| ("thrift", i.to_string(), bytes)));
    let filters = FILTER_SEEDS.iter().enumerate();
    all.extend(filters.map(|(i, text)| ("trace_filter", i.to_string(), text.as_bytes().to_vec())));
    for (i, (from, to)) in BMV2_SEEDS.iter().enumerate() {
        all.push(("bmv2_json", i.to_string(), BMV2_SEED.replace(from, to).into_bytes()));
    }
    let vhost = pktio_vhost::fuzz::seeds().into_iter().enumerate();
    all.extend(vhost.map(|(i, bytes)| ("vhost", i.to_string(), bytes)));
    for (i, path) in examples().into_iter().enumerate() {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let read = |path: PathBuf| std::fs::read(path).expect("examples can be read");
        all.push(("p4_source", name.clone(), read(path.clone())));
        let choice = i as u8;
        let script = read(path.with_extension("stf"));
        all.push(("stf_script", name.clone(), [vec![choice], script.clone()].concat()));
        let compiled = frontend::compile(Input::File(&path), &Options::default(), Until::Ir).expect("read before");
        let programs = [("raw", compiled.raw), ("optimised", compiled.optimised)];
        for (stage, program) in programs {
            let program = program.expect("examples compile");
            all.push(("ir_text", format!("{name}.{stage}"), ir::print::print(&program).into_bytes()));
        }
        let lines = stf::parse(&String::from_utf8_lossy(&script)).expect("examples have good scripts");
        let frames: Vec<(u32, &[u8])> = lines
            .iter()
            .filter_map(|line| match &line.command {
                stf::Command::Packet { port, frame } => Some((*port, frame.as_slice())),
                _ => None,
            })
            .collect();
        for (n, frame) in frames.iter().enumerate() {
            all.push(("packets", format!("{name}.{n}"), [vec![choice], join_frames([*frame])].concat()));
        }
        all.push(("packets", format!("{name}.all"), [vec![choice], join_frames(frames)].concat()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_split_as_they_were_joined() {
        let frames = [(1, &[1u8, 2, 3][..]), (15, &[]), (0, &[9; 300])];
        let bytes = join_frames(frames);
        assert_eq!(split_frames(&bytes), frames);
        assert_eq!(split_frames(&bytes[..bytes.len() - 1])[2].1.len(), 299);
        assert_eq!(split_frames(&[17, 0xff]), []);
    }

    #[test]
    fn seeds_get_through_to_ports() {
        // Without entries, or with a wrong format, every packet would be dropped and all engines would agree.
        let mut sent = 0;
        for path in examples() {
            let Some(mut bench) = Bench::load(&path) else { continue };
            for (port, frame) in bench.subject.packets.clone() {
                sent += bench.engines[2].receive(port, &frame).expect("frames fit in buffers").len();
            }
        }
        assert!(sent > 30, "{sent} frames");
    }
}
