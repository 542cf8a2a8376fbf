//! Runs a program on both engines and compares everything: compiled code on a small runtime of its own, the interpreter
//! on its state.
//!
//! The runtime is simple on purpose: wide arithmetic is `base::Bits`, hashes are the interpreter's, tables are scanned.
//! Under test is what the compiled code does itself.
#![allow(unsafe_code, dead_code, reason = "calls machine code; not every test file uses everything")]

pub mod random;
pub mod runtime;

use abi::{Batch, FateCode, PacketDesc, Shapes};
use base::Bits;
use base::entry::EntryAction;
use interp::{Fate, Interp, SeededHost};
use ir::{EntryKind, Intrinsic, Program, ReplicationPoint, SlotId, SlotKind};
use jit::{CompiledPipeline, Optimisation, Options, SiteKind};
use runtime::Runtime;
use std::sync::Arc;
use tables::{Domain, Runs, Table, TableSpec};

/// Free bytes before a frame: so few that growing headers must sometimes make room.
const HEAD: usize = 40;
/// Free bytes after a frame.
const TAIL: usize = 600;
/// The time that all packets see.
pub const NOW_US: u64 = 5_000_000;

/// A program, compiled and interpretable, each with its own state.
pub struct Both {
    pub program: Arc<Program>,
    pub interp: Interp,
    pub runtime: Box<Runtime>,
    pub pipeline: CompiledPipeline,
    /// Slots in which the records must agree.
    compared: Vec<SlotId>,
}

/// The outcome of one packet, in terms that both engines have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub fate: Fate,
    /// Empty for dropped packets.
    pub packet: Vec<u8>,
    pub consumed: u32,
    /// The compared slots, for replicated packets.
    pub slots: Vec<(String, Bits)>,
    pub digests: Vec<Vec<Bits>>,
    pub logs: Vec<String>,
    pub failed_assertions: Vec<String>,
}

/// Parses IR text and verifies it.
pub fn parse(text: &str) -> Program {
    let program = ir::parse(text, base::FileId(0)).unwrap_or_else(|diags| panic!("{diags:#?}\n{text}"));
    verified(program)
}

/// Checks that the verifier accepts a program.
pub fn verified(program: Program) -> Program {
    let complaints = ir::verify(&program);
    assert!(complaints.is_empty(), "{complaints:#?}\n{}", ir::print(&program));
    program
}

/// The options that tests compile with.
pub fn options() -> Options {
    // `JIT_LINEAR=1` compiles all tests as large entry points are compiled.
    let mut options = Options { check_bounds: true, verify: true, ..Options::default() };
    if std::env::var_os("JIT_LINEAR").is_some() {
        (options.thorough_instructions_max, options.carried_headers_max) = (0, 0);
    }
    // `JIT_WITHOUT=NAME,...` leaves optimisations out; `all` leaves out all of them.
    if let Ok(names) = std::env::var("JIT_WITHOUT") {
        for name in names.split(',') {
            let named = |o: &Optimisation| name == "all" || o.name() == name;
            let mut found = Optimisation::ALL.into_iter().filter(named).peekable();
            assert!(found.peek().is_some(), "JIT_WITHOUT: there is no `{name}`");
            found.for_each(|o| options.without.insert(o));
        }
    }
    // `JIT_STAGED=1` runs all tests on staged code.
    if std::env::var_os("JIT_STAGED").is_some() {
        options.strategy = jit::Strategy::Staged;
    }
    options
}

/// A table of crate `tables` with the program's entries.
pub fn engine(program: &Program, table: &ir::Table, idle_timeout: bool) -> Table {
    let params = |a: &ir::TableAction| program.actions[a.action.index()].params.iter().map(|p| p.1).collect();
    let spec = TableSpec {
        keys: table.keys.iter().map(|k| (k.width, k.kind)).collect(),
        size: table.size,
        actions: table.actions.iter().map(params).collect(),
        members: false,
        selector: false,
        idle_timeout,
        direct: false,
    };
    let mut made = Table::new(spec, Runs::Call(&table.default_action), Domain::new(1)).expect("a possible table");
    for entry in &table.entries {
        let EntryAction::Call(call) = &entry.action else { panic!("an action") };
        made.insert(entry, Runs::Call(call), 0).expect("room for the entry");
    }
    made
}

impl Both {
    pub fn new(program: Program) -> Both {
        Both::with_options(program, &options())
    }

    pub fn with_options(program: Program, options: &Options) -> Both {
        Both::with_runtime(program, options, |_| {})
    }

    /// As [`Self::new`], with a runtime that is changed before it is compiled against.
    pub fn with_runtime(program: Program, options: &Options, change: impl FnOnce(&mut Runtime)) -> Both {
        Both::with_shapes(program, options, &Shapes::default(), change)
    }

    /// As [`Self::with_runtime`], specialised for tables of these `shapes`.
    pub fn with_shapes(
        program: Program,
        options: &Options,
        shapes: &Shapes,
        change: impl FnOnce(&mut Runtime),
    ) -> Both {
        let program = Arc::new(verified(program));
        let mut runtime = Runtime::new(program.clone());
        change(&mut runtime);
        let pipeline = jit::compile_for(&program, &runtime.bindings(), shapes, &[], &runtime::calls(), options)
            .unwrap_or_else(|e| panic!("{e}\n{}", ir::print(&program)));
        let mut compared: Vec<SlotId> = program.intrinsics.iter().map(|(_, s)| *s).collect();
        compared.extend(program.field_lists.iter().flat_map(|(_, slots)| slots));
        compared.sort();
        compared.dedup();
        Both { interp: Interp::new(program.clone()), program, runtime, pipeline, compared }
    }

    /// Runs packets from port 7 through the ingress entry point on both engines, which must agree.
    pub fn check(&self, packets: &[Vec<u8>]) -> Vec<Outcome> {
        self.check_entry(EntryKind::Ingress, packets, &|_| {})
    }

    /// As [`Self::check`] for any entry point; `fill` sets the packet's record.
    pub fn check_entry(&self, kind: EntryKind, packets: &[Vec<u8>], fill: &dyn Fn(&mut [u64])) -> Vec<Outcome> {
        let mut all = Vec::new();
        for batch in packets.chunks(abi::BATCH_MAX) {
            let compiled = self.run_compiled(kind, batch, fill);
            for (packet, compiled) in batch.iter().zip(compiled) {
                let interpreted = self.run_interpreted(kind, packet, fill);
                assert_eq!(
                    compiled,
                    interpreted,
                    "compiled (left) and interpreted (right) differ on {packet:02x?}\n{}",
                    ir::print(&self.program)
                );
                all.push(compiled);
            }
        }
        all
    }

    fn initial_record(&self, kind: EntryKind, len: usize, fill: &dyn Fn(&mut [u64])) -> Vec<u64> {
        let layout = self.interp.layout();
        let mut record = vec![0; layout.words()];
        if kind == EntryKind::Ingress {
            for &(which, slot) in &self.program.intrinsics {
                let value = match which {
                    Intrinsic::IngressPort => 7,
                    Intrinsic::PacketLength => len as u64,
                    Intrinsic::InstanceType => self.program.instance_types.normal,
                    Intrinsic::IngressTimestamp => NOW_US - 3,
                    _ => 0,
                };
                layout.set_word(&mut record, slot, value);
            }
        }
        fill(&mut record);
        record
    }

    fn slots_of(&self, record: &[u64]) -> Vec<(String, Bits)> {
        let of = |s: &SlotId| (self.program.slots[s.index()].name.clone(), self.interp.layout().get(record, *s));
        // An unneeded validity or length may be stale; the compared slots are all needed.
        self.compared.iter().filter(|s| self.program.slots[s.index()].kind != SlotKind::Temp).map(of).collect()
    }

    /// Runs one packet on the interpreter.
    pub fn run_one_interpreted(&self, kind: EntryKind, packet: &[u8]) -> Outcome {
        self.run_interpreted(kind, packet, &|_| {})
    }

    fn run_interpreted(&self, kind: EntryKind, packet: &[u8], fill: &dyn Fn(&mut [u64])) -> Outcome {
        let mut record = self.initial_record(kind, packet.len(), fill);
        let mut host = SeededHost::new(1);
        host.now_us = NOW_US;
        let out = self.interp.run(kind, packet, 0, &mut record, &mut host, None);
        let dropped = matches!(out.fate, Fate::Drop(_) | Fate::Endless | Fate::NoRoom);
        Outcome {
            fate: out.fate,
            packet: if dropped { Vec::new() } else { out.packet },
            consumed: if dropped { 0 } else { out.consumed },
            slots: if matches!(out.fate, Fate::Replicate(_)) { self.slots_of(&record) } else { Vec::new() },
            digests: out.digests.into_iter().map(|d| d.fields).collect(),
            logs: out.logs,
            failed_assertions: out.failed_assertions,
        }
    }

    fn run_compiled(&self, kind: EntryKind, packets: &[Vec<u8>], fill: &dyn Fn(&mut [u64])) -> Vec<Outcome> {
        // One packet at a time, since the runtime's side effects must be attributed; the batch loop has its own test.
        packets.iter().flat_map(|p| self.run_batch(kind, std::slice::from_ref(p), fill)).collect()
    }

    /// Runs a batch through compiled code.
    pub fn run_batch(&self, kind: EntryKind, packets: &[Vec<u8>], fill: &dyn Fn(&mut [u64])) -> Vec<Outcome> {
        let mut buffers: Vec<Vec<u8>> =
            packets.iter().map(|p| [&[0xa5; HEAD][..], p, &[0xa5; TAIL][..]].concat()).collect();
        let mut records: Vec<Vec<u64>> = packets.iter().map(|p| self.initial_record(kind, p.len(), fill)).collect();
        if kind == EntryKind::Ingress {
            records.iter_mut().for_each(|r| r.fill(0x5a5a_5a5a_5a5a_5a5a));
        }
        let mut batch = Box::new(Batch::new());
        batch.count = packets.len() as u32;
        batch.now_us = NOW_US;
        for ((desc, (buffer, record)), packet) in
            batch.packets.iter_mut().zip(buffers.iter_mut().zip(&mut records)).zip(packets)
        {
            *desc = PacketDesc {
                // SAFETY: the buffer has `HEAD` bytes before the frame.
                data: unsafe { buffer.as_mut_ptr().add(HEAD) },
                len: packet.len() as u32,
                headroom: HEAD as u32,
                tailroom: TAIL as u32,
                ingress_port: 7,
                record: record.as_mut_ptr(),
                timestamp_us: NOW_US - 3,
                ..PacketDesc::EMPTY
            };
        }
        let entry = self.pipeline.entry(kind).expect("the entry exists");
        self.runtime.begin(self.pipeline.sites());
        let ctx = self.runtime.ctx();
        // SAFETY: batch, buffers, records, context and bindings are alive and as the contract wants them.
        unsafe { entry(&ctx, &mut *batch) };
        let effects = self.runtime.end();
        let mut out = Vec::new();
        for (i, desc) in batch.packets[..packets.len()].iter().enumerate() {
            let fate = match desc.fate {
                f if f == FateCode::Drop as u32 => Fate::Drop(desc.fate_arg),
                f if f == FateCode::Send as u32 => Fate::Send(desc.egress_port.into()),
                f if f == FateCode::Multicast as u32 => Fate::Multicast(desc.egress_port.into()),
                f if f == FateCode::Replicate as u32 => Fate::Replicate(match desc.fate_arg {
                    0 => ReplicationPoint::IngressEnd,
                    1 => ReplicationPoint::EgressEnd,
                    2 => ReplicationPoint::DeparseEnd,
                    n => panic!("replication point {n}"),
                }),
                f if f == FateCode::Endless as u32 => Fate::Endless,
                f if f == FateCode::NoRoom as u32 => Fate::NoRoom,
                f => panic!("fate {f} ({:#x}) on {:02x?}\n{}", desc.fate_arg, packets[i], ir::print(&self.program)),
            };
            let dropped = matches!(fate, Fate::Drop(_) | Fate::Endless | Fate::NoRoom);
            let total = desc.headroom + desc.len + desc.tailroom;
            assert_eq!(total as usize, packets[i].len() + HEAD + TAIL, "room does not add up: {desc:?}");
            let start = desc.data as usize - buffers[i].as_ptr() as usize;
            assert_eq!(start, desc.headroom as usize, "data and headroom disagree");
            let end = start + desc.len as usize;
            if desc.tailroom as usize >= TAIL {
                assert!(buffers[i][HEAD + packets[i].len()..].iter().all(|&b| b == 0xa5), "wrote behind the frame");
            }
            if start <= HEAD {
                assert!(buffers[i][..start].iter().all(|&b| b == 0xa5), "wrote before the frame");
            }
            let replicated = matches!(fate, Fate::Replicate(_));
            out.push(Outcome {
                fate,
                packet: if dropped { Vec::new() } else { buffers[i][start..end].to_vec() },
                consumed: if dropped { 0 } else { desc.consumed },
                slots: if replicated { self.slots_of(&records[i]) } else { Vec::new() },
                digests: effects.digests.clone(),
                logs: effects.logs.clone(),
                failed_assertions: effects.failed_assertions.clone(),
            });
        }
        out
    }
}

/// Formats a log line as the interpreter does.
pub fn format_log(site: &jit::Site, words: &[u64]) -> String {
    let SiteKind::Log { arg_widths } = &site.kind else { panic!("not a log site") };
    let mut at = 0;
    let mut args = arg_widths.iter().map(|&width| {
        let value = runtime::bits_of_words(width, &words[at..]);
        at += width.div_ceil(64) as usize;
        value.to_biguint().to_string()
    });
    let mut parts = site.text.split("{}");
    let mut text = parts.next().unwrap_or("").to_string();
    for part in parts {
        text.push_str(&args.next().unwrap_or_else(|| "{}".to_string()));
        text.push_str(part);
    }
    for arg in args {
        text.push(' ');
        text.push_str(&arg);
    }
    text
}
