//! Shared test helpers: programs, and [`Engines`], which runs one program on every engine with the same changes and
//! packets and compares the results.
#![allow(dead_code)]

use datapath::replication::Replication;
use datapath::{EngineKind, Local, Pipeline, Sent, Specialise};
use ir::{BinOp, EntryKind, Fate, Op, Operand, Program, StageKind};
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Timeout for everything: far longer than it takes even on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Polls until `ready` holds; panics after [`LIMIT`].
pub fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !ready() {
        assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// A program that sends each packet to the port in its first two bytes; 0xffff, and shorter frames, are dropped as
/// "asked for".
pub fn by_first_bytes() -> Program {
    let mut b = ir::Builder::new("by first bytes");
    let reason = b.drop_reason("asked for");
    let parser = b.begin_stage("parse", StageKind::Parser);
    let port = b.local("port", 16);
    let enough = b.local("enough", 1);
    let (long, short) = (b.block("long"), b.block("short"));
    b.emit(Op::HasBits { dst: enough, bits: Operand::new_const(32, 16) });
    b.branch(enough, long, short);
    b.switch_to(short);
    b.fate(Fate::Drop(reason));
    b.switch_to(long);
    b.emit(Op::Lookahead { dst: port, offset: 0 });
    let (send, drop) = (b.block("send"), b.block("drop"));
    let dropped = b.bin(BinOp::Eq, port, Operand::new_const(16, 0xffff));
    b.branch(dropped, drop, send);
    b.switch_to(drop);
    b.fate(Fate::Drop(reason));
    b.switch_to(send);
    let port = b.resize_u(32, port);
    b.fate(Fate::Send(port));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[parser]);
    b.finish()
}

/// A frame for [`by_first_bytes`].
pub fn frame(port: u16, number: u32) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..2].copy_from_slice(&port.to_be_bytes());
    frame[2..6].copy_from_slice(&number.to_be_bytes());
    frame
}

/// A program over the first bytes of frames: header `h` with these fields and widths, then actions, tables and other
/// declarations, and the blocks of the control, as IR text. Shorter frames are dropped as `short`; `denied` and
/// `unknown` are other drop reasons. Slot `out` has a port's width; lookup `i` of `lookups` may leave its results in
/// `%hi`, `%ai`, `%ei` and `%di`.
pub fn matching(fields: &[(&str, u32)], lookups: usize, tables: &str, control: &str) -> Arc<Program> {
    let [mut slots, mut header] = [(); 2].map(|()| String::new());
    for (name, width) in fields {
        writeln!(slots, "slot h.{name}: {width} field h").expect("a string");
        writeln!(header, "  {name} = h.{name}").expect("a string");
    }
    let found = |i| format!("slot %h{i}: 1 temp\nslot %a{i}: 32 temp\nslot %e{i}: 64 temp\nslot %d{i}: 64 temp\n");
    let found: String = (0..lookups).map(found).collect();
    let bits: u32 = fields.iter().map(|(_, width)| width).sum();
    let text = format!(
        r#"program "matching"
drops short, denied, unknown
slot port: 9 metadata
slot out: 9 metadata
{slots}slot h.$valid: 1 valid h
slot %ok: 1 temp
{found}header h valid h.$valid {{
{header}}}
{tables}intrinsic ingress_port = port
entry ingress (p, c)
stage parser p {{
b0:
  %ok = has_bits 32w{bits}
  branch %ok, b1, b2
b1:
  extract h
  next
b2:
  drop short
}}
stage control c {{
{control}}}
"#
    );
    Arc::new(ir::parse(&text, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}")))
}

/// The same program on every engine.
pub struct Engines {
    pipelines: Vec<(&'static str, Arc<Pipeline>)>,
    locals: Vec<Local>,
}

impl Engines {
    /// Loads the program on each engine.
    pub fn new(program: &Arc<ir::Program>) -> Engines {
        let engines = [
            ("interpreted", EngineKind::Interpreter),
            ("generic", EngineKind::Machine),
            ("compiled again", EngineKind::Machine),
            ("compiled quickly", EngineKind::Machine),
            ("staged", EngineKind::Staged),
            ("staged, compiled again", EngineKind::Staged),
        ];
        let load = |(name, engine)| (name, Arc::new(datapath::load(Arc::clone(program), engine, 1).expect("it loads")));
        let pipelines: Vec<_> = engines.into_iter().map(load).collect();
        let locals = pipelines.iter().map(|(_, p)| Local::new(Arc::clone(p))).collect();
        Engines { pipelines, locals }
    }

    /// The pipeline of an engine, by name.
    pub fn pipeline(&self, name: &str) -> &Pipeline {
        self.pipelines.iter().find(|(n, _)| *n == name).map(|(_, p)| p).expect("it is there")
    }

    /// Applies a change to the state of each engine.
    pub fn each(&self, change: impl Fn(&dyn abi::PipelineState)) {
        self.pipelines.iter().for_each(|(_, p)| change(p.state().as_ref()));
    }

    /// Recompiles the code of three engines; for one of them only the quick step.
    pub fn recompile(&self, mode: Specialise) {
        self.pipeline("compiled again").recompile(mode).expect("it compiles");
        self.pipeline("staged, compiled again").recompile(mode).expect("it compiles");
        self.pipeline("compiled quickly").recompile_quick(mode).expect("it compiles");
    }

    /// Configures multicast groups and clone sessions of each engine.
    pub fn replicate(&self, configure: impl Fn(&Replication)) {
        self.locals.iter().for_each(|local| configure(local.replication()));
    }

    /// Applies `ask` to all engines and asserts that the results agree, except default values (of engines that do not
    /// support it).
    pub fn agree<T: Default + PartialEq + std::fmt::Debug>(&self, what: &str, ask: impl Fn(&Pipeline) -> T) {
        let mut expected: Option<T> = None;
        for (name, pipeline) in &self.pipelines {
            let said = ask(pipeline);
            match &expected {
                None => expected = Some(said).filter(|said| *said != T::default()),
                Some(expected) => assert_eq!(&said, expected, "{what}: {name} (left), others"),
            }
        }
    }

    /// What the interpreter sends for a frame that starts with these bytes.
    pub fn sent(&mut self, frame: &[u8]) -> Vec<Sent> {
        let mut frame = frame.to_vec();
        frame.resize(60, 0);
        self.locals[0].receive(1, &frame).expect("it fits")
    }

    /// Sends a frame that starts with these bytes through all engines and asserts that they agree.
    pub fn check(&mut self, frame: &[u8], what: &str) {
        let mut frame = frame.to_vec();
        frame.resize(60, 0);
        let mut expected: Option<Vec<Sent>> = None;
        for ((name, _), local) in self.pipelines.iter().zip(&mut self.locals) {
            let sent = local.receive(1, &frame).expect("it fits");
            match &expected {
                None => expected = Some(sent),
                Some(expected) => assert_eq!(&sent, expected, "{what}: {name} (left), interpreted, for {frame:02x?}"),
            }
        }
    }
}
