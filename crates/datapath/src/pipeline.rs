//! A loaded program: its IR, what runs it, and its state.
//!
//! Immutable but for the state behind it; workers and the control plane share it by `Arc`. The last one to let go frees
//! code and tables, so a replaced pipeline lives exactly as long as some worker may still run it.
//!
//! Workers run at the same time. Where packets read and write the same register, they lock its cells, or workers take turns, a
//! batch each (`ir::atomicity`; the interpreter's always take turns). Counters and meters need neither.
//!
//! Tests: at the end of the file.

use crate::drops::DropCounters;
use crate::executor::Executor;
use crate::flow_cache::FlowCache;
use crate::lowered::{self, MirMachine};
use crate::memory;
use crate::oracle::Oracle;
use crate::replication::Replication;
use crate::state::{FastState, Keep};
use crate::switch::TableInfo;
use crate::switches::CodeOptions;
use crate::tiers::{Machine, Specialise};
use abi::Batch;
use abi::flows::FlowTables;
use abi::state::{DigestMessage, PipelineState};
use base::ids::TableId;
use ir::{EntryKind, Op, Program};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tables::reclaim::ACKNOWLEDGE_MAX;

/// What runs a program and holds its state. One implementation per engine.
pub trait Backend: Send + Sync {
    /// What one worker runs packets with. At most one executor per worker exists at a time.
    fn executor(&self, worker: usize) -> Box<dyn Executor>;
    /// The state.
    fn state(&self) -> &Arc<dyn PipelineState>;
    /// Digest messages since the last call.
    fn take_digests(&self) -> Vec<DigestMessage>;
    /// Hits and misses of a table, summed over workers; `None` where nobody counts.
    fn table_counters(&self, table: TableId) -> Option<(u64, u64)>;
    /// Log lines and failed assertions since the last call.
    fn take_logs(&self) -> Vec<String>;
    /// To be called now and then: tells the time, frees what nobody uses any more.
    fn housekeeping(&self, now_us: u64);
    /// From now on compiles code for the tables as they are, in the background, as `mode` says. With `Specialise::Off` the next
    /// batches run code for any tables.
    fn specialise(&self, _mode: Specialise) {}
    /// Compiles code for the tables as they are and makes workers run it, before it returns; how long that took. With
    /// `Specialise::Off` only the strategy goes by the tables. `None` if there is no code, or it cannot be compiled.
    fn recompile(&self, _mode: Specialise) -> Option<Duration> {
        None
    }
    /// As [`Backend::recompile`], but only the code that is made first.
    fn recompile_quick(&self, _mode: Specialise) -> Option<Duration> {
        None
    }
    /// The fast tables; `None` for the interpreter.
    fn fast(&self) -> Option<&Arc<FastState>> {
        None
    }
    /// Which code runs; `None` without machine code.
    fn code_info(&self) -> Option<CodeInfo> {
        None
    }
    /// Whether a batch that began now would run code for the tables as they are.
    fn runs_specialised(&self) -> bool {
        false
    }
    /// Whether code counts actions and says where it is, from now on.
    fn watch(&self, _on: bool) {}
    /// Packets by action of a table, in the order of its actions, as far as code was watched; `None` where nobody counts.
    fn action_counts(&self, _table: TableId) -> Option<Vec<u64>> {
        None
    }
    /// The parts of the program that workers were in (`watch`); `None` for those that were somewhere else.
    fn regions(&self, spots: &[Spot]) -> Vec<Option<String>> {
        vec![None; spots.len()]
    }
}

/// Where a worker was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// Its next instruction.
    pub pc: usize,
    /// What watched code has said before its last call (`abi::WorkerCtx::place`).
    pub place: u64,
}

/// How often a table ran an action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActionInfo {
    /// The table's control-plane name.
    pub table: String,
    /// The action's.
    pub action: String,
    /// Packets for which it ran while somebody watched, on a hit or as default action.
    pub packets: u64,
}

/// What packets wait for in staged code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PhaseInfo {
    /// The way in.
    pub entry: EntryKind,
    /// From 1 on, in an order in which packets can come through them.
    pub number: u32,
    /// The table that they wait for.
    pub waits_for: String,
    /// Tables that are asked for at the same time.
    pub begun_with: Vec<String>,
    /// What is kept of each packet that waits.
    pub row_bytes: u32,
}

/// Which code runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeInfo {
    /// Whether it is code for the tables as they are.
    pub specialised: bool,
    /// How it goes through a batch.
    pub strategy: String,
    /// The phases of staged code, without the first of each entry.
    pub phases: Vec<PhaseInfo>,
    /// How often code was compiled for the tables as they were.
    pub compiled: u64,
    /// How long the last time took, until workers could run it.
    pub last: Duration,
    /// Bytes of machine code.
    pub code_bytes: u64,
    /// Tables whose entries are part of the code.
    pub contents: Vec<String>,
    /// Of how many other tables it has a prefilter.
    pub prefilters: usize,
    /// How often code could not be compiled for the tables as they were; then other code goes on running.
    pub failed: u64,
    /// Why the last such compilation failed, if none has succeeded since.
    pub error: Option<String>,
}

/// What runs a program's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EngineKind {
    /// Machine code on the fast tables.
    #[default]
    Machine,
    /// As `Machine`, staged at every table that can be (`jit::Strategy::Staged`): what tests compare with the others.
    Staged,
    /// The interpreter on its naive tables.
    Interpreter,
    /// Machine code of machine-level IR (`lowering`, `mir`, `codegen`) on the fast tables, without knowledge of their contents.
    Mir,
    /// The interpreter of machine-level IR on the same memory.
    MirInterpreter,
}

/// Why a program cannot run.
#[derive(Debug, thiserror::Error)]
#[error("`{program}` cannot be loaded: {reason}")]
pub struct PipelineError {
    /// The program.
    pub program: String,
    /// Why.
    pub reason: String,
    /// The bound that it is over, if it may be right otherwise.
    pub limit: Option<Limit>,
}

/// What the switch allows a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Time to make machine code.
    CompileTime,
    /// Memory of counters, meters and registers.
    StateMemory,
}

/// Makes a program ready to run on `workers` workers. A program that the verifier refuses is a bug of the compiler; it is
/// refused here, and what runs goes on running.
pub fn load(program: Arc<Program>, engine: EngineKind, workers: usize) -> Result<Pipeline, PipelineError> {
    load_with(program, engine, workers, &CodeOptions::default())
}

/// As [`load`], with options for the machine code.
pub fn load_with(
    program: Arc<Program>,
    engine: EngineKind,
    workers: usize,
    options: &CodeOptions,
) -> Result<Pipeline, PipelineError> {
    load_keeping(program, engine, workers, options, None)
}

/// As [`load_with`], with what is kept of the program before it, if both run as machine code: see [`Pipeline::shares`].
/// The old program may go on running: nothing that it uses changes.
pub fn load_keeping(
    program: Arc<Program>,
    engine: EngineKind,
    workers: usize,
    options: &CodeOptions,
    old: Option<(&Pipeline, &Keep)>,
) -> Result<Pipeline, PipelineError> {
    if program.openflow.is_some() {
        let reason = "it leaves decisions to OpenFlow's tables, so only a bridge can run it (`--openflow`)".to_string();
        return Err(PipelineError { program: program.name.clone(), reason, limit: None });
    }
    memory::returning(|| load_now(program, engine, workers, options, old))
}

/// As [`load_with`], for a program of the OpenFlow model: `flows` decide about its packets.
pub fn load_bridge(
    program: Arc<Program>,
    engine: EngineKind,
    workers: usize,
    options: &CodeOptions,
    flows: Arc<dyn FlowTables>,
) -> Result<Pipeline, PipelineError> {
    let pipeline = memory::returning(|| load_now(program, engine, workers, options, None))?;
    Ok(Pipeline { flows: Some(flows), ..pipeline })
}

fn load_now(
    program: Arc<Program>,
    engine: EngineKind,
    workers: usize,
    options: &CodeOptions,
    old: Option<(&Pipeline, &Keep)>,
) -> Result<Pipeline, PipelineError> {
    let refuse = |reason: String| PipelineError { program: program.name.clone(), reason, limit: None };
    let start = Instant::now();
    let problems = ir::verify(&program);
    let mut times = vec![("verify IR", start.elapsed())];
    if let Some(first) = problems.first() {
        return Err(refuse(format!("the compiler made wrong IR (please report this): {}", first.message)));
    }
    if let Some(symbol) = program.unresolved().next() {
        return Err(refuse(format!("it calls `{symbol}`, which this switch does not have")));
    }
    let fast = |(old, keep): (&'_ Pipeline, _)| old.backend.fast().cloned().map(|fast| (fast, keep));
    let may_keep = matches!(engine, EngineKind::Machine | EngineKind::Staged);
    let kept = old.filter(|(old, _)| may_keep && old.workers() == workers).and_then(fast);
    let backend: Box<dyn Backend> = match engine {
        EngineKind::Interpreter => Box::new(Oracle::new(Arc::clone(&program), false)),
        EngineKind::Mir | EngineKind::MirInterpreter => {
            let machine = MirMachine::new(&program, engine, workers, options).map_err(refuse)?;
            times.extend(machine.load_times());
            Box::new(machine)
        }
        EngineKind::Machine | EngineKind::Staged => {
            let mut staged = options.clone();
            staged.jit.strategy = jit::Strategy::Staged;
            let options = if engine == EngineKind::Staged { &staged } else { options };
            let machine = match &kept {
                Some((fast, keep)) => Machine::inheriting(Arc::clone(&program), fast, keep, options),
                None => Machine::new(Arc::clone(&program), workers, options),
            };
            let machine = machine.map_err(|e| PipelineError { limit: e.limit(), ..refuse(e.to_string()) })?;
            times.extend(machine.load_times());
            Box::new(machine)
        }
    };
    let mut pipeline = Pipeline { load_times: times, ..Pipeline::new(program, backend, workers) };
    if matches!(engine, EngineKind::Mir | EngineKind::MirInterpreter) {
        // These are for comparing, so that all packets go through them.
        pipeline.cache = None;
    }
    if let (true, Some((old, _))) = (kept.is_some(), old) {
        pipeline.shares = true;
        if let (Some(turn), Some(old)) = (&mut pipeline.turn, &old.turn) {
            *turn = Arc::clone(old);
        }
    }
    Ok(pipeline)
}

/// Sets up a program's state and translates the program to machine code, and throws both away: whether it can be done.
/// That is also possible for programs that cannot be loaded because they call what nobody has. How long each phase took.
pub fn check_code(program: Arc<Program>) -> Result<Vec<(&'static str, Duration)>, PipelineError> {
    let refuse = |reason: String| PipelineError { program: program.name.clone(), reason, limit: None };
    if let Some(first) = ir::verify(&program).first() {
        return Err(refuse(format!("the compiler made wrong IR (please report this): {}", first.message)));
    }
    let times = Machine::check(Arc::clone(&program), &jit::Options::default()).map_err(|e| refuse(e.to_string()))?;
    Ok(times.to_vec())
}

/// What a program's entries are translated to, for people. As for [`check_code`], the program need not be one that can be
/// loaded.
pub fn listing(program: &Arc<Program>, options: &jit::Options) -> Result<Vec<jit::Listing>, PipelineError> {
    let refuse = |reason: String| PipelineError { program: program.name.clone(), reason, limit: None };
    if let Some(first) = ir::verify(program).first() {
        return Err(refuse(format!("the compiler made wrong IR (please report this): {}", first.message)));
    }
    Machine::listing(program, options).map_err(|e| refuse(e.to_string()))
}

/// The text form of what a program's entries are lowered to, behind all passes of machine-level IR or before them. As for
/// [`check_code`], the program need not be one that can be loaded.
pub fn mir_text(program: &Arc<Program>, with_passes: bool) -> Result<String, PipelineError> {
    let refuse = |reason: String| PipelineError { program: program.name.clone(), reason, limit: None };
    if let Some(first) = ir::verify(program).first() {
        return Err(refuse(format!("the compiler made wrong IR (please report this): {}", first.message)));
    }
    lowered::text(program, with_passes).map_err(refuse)
}

/// A loaded program.
pub struct Pipeline {
    program: Arc<Program>,
    backend: Box<dyn Backend>,
    drops: Vec<DropCounters>,
    /// The program's own, so that no packet meets a program with the groups of another.
    replication: Arc<Replication>,
    load_times: Vec<(&'static str, Duration)>,
    /// No other pipeline of the process has, or has had, the same.
    number: u64,
    /// Whether it was made with parts of another's state.
    shares: bool,
    /// Whose turn it is, for programs whose workers take turns.
    turn: Option<Arc<Mutex<()>>>,
    /// What decides about its packets, if that is not the program itself.
    flows: Option<Arc<dyn FlowTables>>,
    /// What knows packets by their frames, if the program and its engine are such that something can.
    cache: Option<FlowCache>,
}

/// Whether packets read a register that packets also write: then what one does between the two must not be mixed with
/// what another one does, or counts get lost.
pub fn updates_registers(program: &Program) -> bool {
    let mut read = BTreeSet::new();
    let mut written = BTreeSet::new();
    for inst in program.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts) {
        match &inst.op {
            Op::RegisterRead { register, .. } => _ = read.insert(*register),
            Op::RegisterWrite { register, .. } => _ = written.insert(*register),
            _ => {}
        }
    }
    read.intersection(&written).next().is_some()
}

/// An executor that runs a batch only while no other worker's does, so that every packet's reads and writes of registers
/// are one step (P4_16, `@atomic`; bmv2 does so for each action, with the annotation and without).
struct InTurn {
    inner: Box<dyn Executor>,
    turn: Arc<Mutex<()>>,
}

impl Executor for InTurn {
    fn run(&mut self, entry: EntryKind, batch: &mut Batch) {
        // A worker that panicked in its turn has left whole words in all cells.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.run(entry, batch);
    }

    fn quiescent(&mut self) {
        self.inner.quiescent();
    }

    fn quiescent_behind(&mut self, settle: &mut dyn FnMut()) {
        self.inner.quiescent_behind(settle);
    }

    fn begin(&mut self, now_us: u64) {
        self.inner.begin(now_us);
    }

    fn idle(&mut self) {
        self.inner.idle();
    }

    fn report_to(&mut self, place: &Arc<AtomicU64>) {
        self.inner.report_to(place);
    }
}

impl Pipeline {
    /// A program on a backend that has executors for workers `0..workers`.
    pub fn new(program: Arc<Program>, backend: Box<dyn Backend>, workers: usize) -> Pipeline {
        let drops = (0..workers).map(|_| DropCounters::new(program.drops.len())).collect();
        let takes_turns = match backend.fast() {
            Some(fast) => fast.takes_turns(),
            None => updates_registers(&program),
        };
        let turn = (workers > 1 && takes_turns).then(Arc::default);
        // Bridges have a cache of their own. Packets that wait go on later, which no path says.
        let fast = backend.fast().filter(|_| program.openflow.is_none() && !program.queues);
        let cache = fast.map(|fast| FlowCache::new(Arc::clone(fast)));
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        Pipeline {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            program,
            backend,
            drops,
            replication: Arc::new(Replication::new()),
            turn,
            shares: false,
            load_times: Vec::new(),
            flows: None,
            cache,
        }
    }

    /// What decides about its packets, if that is not the program itself.
    pub fn flows(&self) -> Option<&Arc<dyn FlowTables>> {
        self.flows.as_ref()
    }

    /// What knows its packets by their frames; nothing where the program or its engine are not such that something can.
    pub fn flow_cache(&self) -> Option<&FlowCache> {
        self.cache.as_ref()
    }

    /// Has workers count what flow caches hold back; waits for that, but no longer than for a worker that is stopped.
    pub fn settle_counts(&self) {
        if let Some(cache) = &self.cache {
            cache.settle(ACKNOWLEDGE_MAX);
        }
    }

    /// A number that no other pipeline of the process has, or has had; not 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it was made with parts of another's state ([`load_keeping`]).
    pub fn shares(&self) -> bool {
        self.shares
    }

    /// Whether there are registers that are not shared and whose cells are taken over.
    pub fn takes_registers(&self, old: &Pipeline, keep: &Keep) -> bool {
        match (self.backend.fast(), old.backend.fast()) {
            (Some(new), Some(old)) => new.takes_registers(old, keep),
            _ => false,
        }
    }

    /// Takes over what packets have left in registers that are not shared. To be called while no packet runs through either.
    pub fn take_registers(&self, old: &Pipeline, keep: &Keep) {
        if let (Some(new), Some(old)) = (self.backend.fast(), old.backend.fast()) {
            new.take_registers(old, keep);
        }
    }

    /// Takes over what `old` counted in objects that are not shared. To be called once, when no packet runs through it.
    pub fn inherit(&self, old: &Pipeline, keep: &Keep) {
        if let (Some(new), Some(old)) = (self.backend.fast(), old.backend.fast()) {
            new.inherit(old, keep);
        }
    }

    /// How many workers it was made for.
    pub fn workers(&self) -> usize {
        self.drops.len()
    }

    /// How long each phase of [`load`] took, in order.
    pub fn load_times(&self) -> &[(&'static str, Duration)] {
        &self.load_times
    }

    /// The IR that runs.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// What worker `worker` runs packets with.
    pub fn executor(&self, worker: usize) -> Box<dyn Executor> {
        let inner = self.backend.executor(worker);
        match &self.turn {
            None => inner,
            Some(turn) => Box::new(InTurn { inner, turn: Arc::clone(turn) }),
        }
    }

    /// The state.
    pub fn state(&self) -> &Arc<dyn PipelineState> {
        self.backend.state()
    }

    /// Multicast groups and clone sessions. Callers serialise their writes.
    pub fn replication(&self) -> &Arc<Replication> {
        &self.replication
    }

    /// Digest messages since the last call.
    pub fn take_digests(&self) -> Vec<DigestMessage> {
        self.backend.take_digests()
    }

    /// Log lines and failed assertions since the last call.
    pub fn take_logs(&self) -> Vec<String> {
        self.backend.take_logs()
    }

    /// To be called now and then: tells the time, frees what nobody uses any more.
    pub fn housekeeping(&self, now_us: u64) {
        self.backend.housekeeping(now_us);
    }

    /// From now on compiles code for the tables as they are, in the background, as `mode` says. With `Specialise::Off` the next
    /// batches run code for any tables.
    pub fn specialise(&self, mode: Specialise) {
        self.backend.specialise(mode);
    }

    /// Compiles code for the tables and registers as they are and makes workers run it, before it returns; how long that took
    /// until the first such code ran (better code may follow before it returns). With `Specialise::Off` only the strategy
    /// goes by the tables. `None` for the interpreter.
    pub fn recompile(&self, mode: Specialise) -> Option<Duration> {
        self.backend.recompile(mode)
    }

    /// As [`Pipeline::recompile`], but only the code that is made first: for tests and measurements of that.
    pub fn recompile_quick(&self, mode: Specialise) -> Option<Duration> {
        self.backend.recompile_quick(mode)
    }

    /// Which code runs; `None` for the interpreter.
    pub fn code_info(&self) -> Option<CodeInfo> {
        self.backend.code_info()
    }

    /// Whether a batch that began now would run code for the tables as they are: a few loads.
    pub fn runs_specialised(&self) -> bool {
        self.backend.runs_specialised()
    }

    /// Whether code counts actions and says where it is, from now on; returns when such code is there.
    pub fn watch(&self, on: bool) {
        if let Some(cache) = &self.cache {
            cache.watch(on);
        }
        self.backend.watch(on);
    }

    /// The parts of the program that workers were in, as names of `jit::Place::region`.
    pub fn regions(&self, spots: &[Spot]) -> Vec<Option<String>> {
        self.backend.regions(spots)
    }

    /// How often tables ran which actions while somebody watched; value sets have none.
    pub fn action_info(&self) -> Vec<ActionInfo> {
        let of_table = |(i, table): (usize, &ir::Table)| {
            let counts = self.backend.action_counts(TableId::from_index(i)).unwrap_or_default();
            let info = |(a, packets): (&ir::TableAction, u64)| ActionInfo {
                table: table.name.clone(),
                action: self.program.actions[a.action.index()].name.clone(),
                packets,
            };
            table.actions.iter().zip(counts).map(info).collect::<Vec<_>>()
        };
        self.program.tables.iter().enumerate().flat_map(of_table).collect()
    }

    /// A worker's drop counters.
    pub fn drops(&self, worker: usize) -> &DropCounters {
        &self.drops[worker]
    }

    /// All tables with entries, hits and misses; value sets included.
    pub fn table_info(&self) -> Vec<TableInfo> {
        self.settle_counts();
        self.program
            .tables
            .iter()
            .enumerate()
            .map(|(i, table)| {
                let id = TableId::from_index(i);
                let lookups = self.backend.table_counters(id);
                let memory_bytes = self.backend.fast().map(|fast| fast.table_memory_bytes(id));
                let entries = self.state().len(id);
                TableInfo { name: table.name.clone(), entries, size: table.size, lookups, memory_bytes }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drops::DropReason;
    use crate::engine::{Engine, Sink};
    use base::Bits;
    use ir::{Extern, ExternKind, Fate, Operand, StageKind};
    use pktio::{HeapPool, Packet};

    struct Nowhere;

    impl Sink for Nowhere {
        fn send(&mut self, _: u32, _: Packet) {}
        fn drop(&mut self, _: DropReason, _: Packet) {}
        fn lost_copies(&mut self, _: DropReason, _: u64) {}
    }

    /// Each packet reads a 64-bit cell, is busy for a while, and writes the cell plus one.
    fn counting() -> Program {
        let mut b = ir::Builder::new("counting");
        let register = b.extern_instance(Extern {
            name: "r".to_string(),
            span: base::Span::default(),
            kind: ExternKind::Register { size: 1, width: 64, initial: Bits::zero(64) },
        });
        let reason = b.drop_reason("counted");
        let stage = b.begin_stage("count", StageKind::Control);
        let value = b.local("value", 64);
        let index = Operand::new_const(32, 0);
        b.emit(Op::RegisterRead { register, dst: value, index: index.clone() });
        let hash = b.local("hash", 32);
        for _ in 0..50 {
            b.emit(Op::Hash {
                algorithm: ir::HashAlgorithm::Crc32,
                dst: hash,
                base: Operand::new_const(32, 0),
                max: None,
                data: vec![value.into(), hash.into()],
                varbits: Vec::new(),
                payload: false,
            });
        }
        let next = b.bin(ir::BinOp::Add, value, Operand::new_const(64, 1));
        b.emit(Op::RegisterWrite { register, index, src: next.into() });
        b.fate(Fate::Drop(reason));
        b.end_stage();
        b.entry(EntryKind::Ingress, &[stage]);
        b.finish()
    }

    #[test]
    fn workers_lose_no_count_in_a_register() {
        const BATCHES: u64 = 400;
        const BATCH: u64 = 32;
        let program = Arc::new(counting());
        for engine in [EngineKind::Machine, EngineKind::Interpreter] {
            let batches = if engine == EngineKind::Machine { BATCHES } else { BATCHES / 20 };
            let pipeline = load(Arc::clone(&program), engine, 3).expect("the program is small");
            std::thread::scope(|s| {
                for worker in 0..3 {
                    let pipeline = &pipeline;
                    s.spawn(move || {
                        let replication = Arc::clone(pipeline.replication());
                        let mut engine = Engine::new(Arc::clone(pipeline.program()), replication);
                        let mut executor = pipeline.executor(worker);
                        let pool = HeapPool::shared(64);
                        for now in 0..batches {
                            let packet = |_| pool.alloc_from(&[0; 60]).expect("a buffer");
                            let mut packets: Vec<Packet> = (0..BATCH).map(packet).collect();
                            engine.receive(executor.as_mut(), &mut packets, 0, now, &mut Nowhere);
                            executor.quiescent();
                        }
                    });
                }
            });
            let counted = pipeline.state().register(base::ids::ExternId(0), 0);
            assert_eq!(counted, Ok(Bits::new(64, u128::from(3 * batches * BATCH))), "{engine:?}");
        }
    }
}
