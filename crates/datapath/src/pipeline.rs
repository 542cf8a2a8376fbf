//! A loaded program: its IR, the backend that runs it, and its state.
//!
//! A [`Pipeline`] is immutable except for its state; workers and the control plane share it by `Arc`. Dropping the
//! last reference frees code and tables, so a replaced pipeline lives as long as any worker may still run it.
//!
//! Workers run concurrently. Where packets read and write the same register, they lock its cells, or workers take
//! turns, a batch each (`ir::atomicity`; with the interpreter they always take turns). Counters and meters need
//! neither.
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

/// Runs a program and holds its state. One implementation per engine.
pub trait Backend: Send + Sync {
    /// The executor of a worker. At most one per worker exists at a time.
    fn executor(&self, worker: usize) -> Box<dyn Executor>;
    /// The state.
    fn state(&self) -> &Arc<dyn PipelineState>;
    /// Digest messages since the last call.
    fn take_digests(&self) -> Vec<DigestMessage>;
    /// Hits and misses of a table, summed over workers; `None` if the engine does not count them.
    fn table_counters(&self, table: TableId) -> Option<(u64, u64)>;
    /// Log lines and failed assertions since the last call.
    fn take_logs(&self) -> Vec<String>;
    /// Advances the clock of idle timers to `now_us` and frees memory that is no longer used. Called periodically.
    fn housekeeping(&self, now_us: u64);
    /// Sets the specialisation mode; specialised code is compiled in the background from now on. With
    /// `Specialise::Off` the next batches run generic or baseline code.
    fn specialise(&self, _mode: Specialise) {}
    /// Compiles specialised code for the current tables and publishes it before returning; returns how long that
    /// took. With `Specialise::Off` only the strategy depends on the tables. `None` without machine code, or if it
    /// cannot be compiled.
    fn recompile(&self, _mode: Specialise) -> Option<Duration> {
        None
    }
    /// As [`Backend::recompile`], but only the quick first step.
    fn recompile_quick(&self, _mode: Specialise) -> Option<Duration> {
        None
    }
    /// The state on the fast tables; `None` for the interpreter.
    fn fast(&self) -> Option<&Arc<FastState>> {
        None
    }
    /// Information about the running code; `None` without machine code.
    fn code_info(&self) -> Option<CodeInfo> {
        None
    }
    /// Whether a batch that started now would run specialised code.
    fn runs_specialised(&self) -> bool {
        false
    }
    /// Sets whether code is watched: counts actions and reports its position.
    fn watch(&self, _on: bool) {}
    /// Packets by action of a table, in the order of its actions, as far as code was watched; `None` if the engine
    /// does not count them.
    fn action_counts(&self, _table: TableId) -> Option<Vec<u64>> {
        None
    }
    /// The parts of the program at these spots (`watch`); `None` for spots outside the program's code.
    fn regions(&self, spots: &[Spot]) -> Vec<Option<String>> {
        vec![None; spots.len()]
    }
}

/// A sample of where a worker was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// Its program counter.
    pub pc: usize,
    /// The position that watched code stored before its last call (`abi::WorkerCtx::place`).
    pub place: u64,
}

/// How often a table ran an action while watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActionInfo {
    /// The table's control-plane name.
    pub table: String,
    /// The action's control-plane name.
    pub action: String,
    /// Packets for which it ran, on a hit or as default action.
    pub packets: u64,
}

/// A phase of staged code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PhaseInfo {
    /// The entry point.
    pub entry: EntryKind,
    /// The phase's number, from 1, in an order in which packets can pass through the phases.
    pub number: u32,
    /// The table whose lookup the phase waits for.
    pub waits_for: String,
    /// Tables whose buckets are prefetched at the same time.
    pub begun_with: Vec<String>,
    /// Bytes of live values kept per waiting packet.
    pub row_bytes: u32,
}

/// Information about the running code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeInfo {
    /// Whether it is specialised code.
    pub specialised: bool,
    /// Its strategy: how it goes through a batch.
    pub strategy: String,
    /// The phases of staged code, without the first of each entry point.
    pub phases: Vec<PhaseInfo>,
    /// How often specialised code was compiled.
    pub compiled: u64,
    /// Duration of the last compilation, until workers could run the code.
    pub last: Duration,
    /// Bytes of machine code.
    pub code_bytes: u64,
    /// Tables whose entries are part of the code.
    pub contents: Vec<String>,
    /// For how many other tables it has a prefilter.
    pub prefilters: usize,
    /// How often specialised code could not be compiled; other code keeps running then.
    pub failed: u64,
    /// Why the last such compilation failed, if none has succeeded since.
    pub error: Option<String>,
}

/// The engine that runs a program's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EngineKind {
    /// Machine code on the fast tables.
    #[default]
    Machine,
    /// As `Machine`, staged at every table that allows it (`jit::Strategy::Staged`); tests compare it with the other
    /// engines.
    Staged,
    /// The IR interpreter on its own plain tables.
    Interpreter,
    /// Machine code from machine-level IR (`lowering`, `mir`, `codegen`) on the fast tables, not specialised.
    Mir,
    /// The interpreter of machine-level IR, on the same memory as machine code.
    MirInterpreter,
}

/// Why a program cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[error("`{program}` cannot be loaded: {reason}")]
pub struct PipelineError {
    /// The program.
    pub program: String,
    /// The reason.
    pub reason: String,
    /// The limit it exceeds, if the program may be correct otherwise.
    pub limit: Option<Limit>,
}

/// A resource limit for programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Time to compile machine code.
    CompileTime,
    /// Memory of counters, meters and registers.
    StateMemory,
}

/// Loads a program for `workers` workers.
///
/// # Errors
/// If the program has unresolved externs, exceeds a [`Limit`], or cannot be compiled. A program that the verifier
/// rejects indicates a compiler bug and is refused here, too, so that the running program keeps running.
pub fn load(program: Arc<Program>, engine: EngineKind, workers: usize) -> Result<Pipeline, PipelineError> {
    load_with(program, engine, workers, &CodeOptions::default())
}

/// As [`load`], with options for machine code.
///
/// # Errors
/// As [`load`].
pub fn load_with(
    program: Arc<Program>,
    engine: EngineKind,
    workers: usize,
    options: &CodeOptions,
) -> Result<Pipeline, PipelineError> {
    load_keeping(program, engine, workers, options, None)
}

/// As [`load_with`], sharing the objects of an old pipeline that [`Keep`] lists, if both run as machine code for the
/// same number of workers (see [`Pipeline::shares`]). The old program may keep running; nothing it uses changes.
///
/// # Errors
/// As [`load`].
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

/// As [`load_with`], for a program of the OpenFlow architecture: `flows` decide about its packets.
///
/// # Errors
/// As [`load`].
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
    let name = program.name.clone();
    let refuse = |reason: String| PipelineError { program: name.clone(), reason, limit: None };
    let start = Instant::now();
    let problems = ir::verify(&program);
    let mut times = vec![("verify IR", start.elapsed())];
    if let Some(first) = problems.first() {
        return Err(refuse(format!("the compiler made wrong IR (please report this): {}", first.message)));
    }
    if let Some(symbol) = program.unresolved().next() {
        return Err(refuse(format!("it calls `{symbol}`, which this switch does not have")));
    }
    let shared = match engine {
        EngineKind::Interpreter => None,
        _ if workers == 1 => None,
        _ => opt::for_several_workers(&program, &options.passes).map(Arc::new),
    };
    let program = shared.unwrap_or(program);
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
        // These engines serve comparison, so all packets must go through them.
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

/// Checks that a program's state can be created and its machine code compiled, and discards both. Also accepts
/// programs with unresolved externs. Returns how long each phase took.
///
/// # Errors
/// If the verifier rejects the program, or its state or code cannot be made.
pub fn check_code(program: Arc<Program>) -> Result<Vec<(&'static str, Duration)>, PipelineError> {
    let refuse = |reason: String| PipelineError { program: program.name.clone(), reason, limit: None };
    if let Some(first) = ir::verify(&program).first() {
        return Err(refuse(format!("the compiler made wrong IR (please report this): {}", first.message)));
    }
    let times = Machine::check(Arc::clone(&program), &jit::Options::default()).map_err(|e| refuse(e.to_string()))?;
    Ok(times.to_vec())
}

/// A listing of a program's entry points, for people. As for [`check_code`], externs may be unresolved.
///
/// # Errors
/// As [`check_code`].
pub fn listing(program: &Arc<Program>, options: &jit::Options) -> Result<Vec<jit::Listing>, PipelineError> {
    let refuse = |reason: String| PipelineError { program: program.name.clone(), reason, limit: None };
    if let Some(first) = ir::verify(program).first() {
        return Err(refuse(format!("the compiler made wrong IR (please report this): {}", first.message)));
    }
    Machine::listing(program, options).map_err(|e| refuse(e.to_string()))
}

/// The machine-level IR of a program's entry points as text, before or after all its passes. As for [`check_code`],
/// externs may be unresolved.
///
/// # Errors
/// If the verifier rejects the program, or it cannot be lowered.
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
    /// Owned by the program, so that no packet meets a program with the groups of another.
    replication: Arc<Replication>,
    load_times: Vec<(&'static str, Duration)>,
    /// Unique in the process, never reused.
    number: u64,
    /// Whether it shares parts of another pipeline's state.
    shares: bool,
    /// The lock of programs whose workers take turns.
    turn: Option<Arc<Mutex<()>>>,
    /// The flow tables that decide about its packets (OpenFlow), if any.
    flows: Option<Arc<dyn FlowTables>>,
    /// The flow cache in front of the parser, if program and engine support one.
    cache: Option<FlowCache>,
}

/// Whether some register is both read and written by packets. Then a packet's read and write must be one atomic step,
/// or updates get lost.
pub fn updates_registers(program: &Program) -> bool {
    let mut read = BTreeSet::new();
    let mut written = BTreeSet::new();
    for inst in program.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts) {
        match &inst.op {
            Op::RegisterRead { register, .. } => _ = read.insert(*register),
            Op::RegisterWrite { register, .. } => _ = written.insert(*register),
            Op::RegisterUpdate { register, .. } => {
                read.insert(*register);
                written.insert(*register);
            }
            _ => {}
        }
    }
    read.intersection(&written).next().is_some()
}

/// An executor that runs a batch only while no other worker runs one, so that each packet's reads and writes of
/// registers are atomic (P4_16, `@atomic`; bmv2 does so for each action, with the annotation and without).
struct InTurn {
    inner: Box<dyn Executor>,
    turn: Arc<Mutex<()>>,
}

impl Executor for InTurn {
    fn run(&mut self, entry: EntryKind, batch: &mut Batch) {
        // A worker that panicked in its turn has left complete words in all cells.
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
    /// A pipeline from a program and its backend, which has executors for workers `0..workers`.
    pub fn new(program: Arc<Program>, backend: Box<dyn Backend>, workers: usize) -> Pipeline {
        let drops = (0..workers).map(|_| DropCounters::new(program.drops.len())).collect();
        let takes_turns = match backend.fast() {
            Some(fast) => fast.takes_turns(),
            None => updates_registers(&program),
        };
        let turn = (workers > 1 && takes_turns).then(Arc::default);
        // OpenFlow bridges have a cache of their own. With queues, packets continue later, which recorded paths do
        // not cover.
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

    /// The flow tables that decide about its packets (OpenFlow), if any.
    pub fn flows(&self) -> Option<&Arc<dyn FlowTables>> {
        self.flows.as_ref()
    }

    /// The flow cache in front of the parser; `None` if the program or its engine do not support one.
    pub fn flow_cache(&self) -> Option<&FlowCache> {
        self.cache.as_ref()
    }

    /// Makes workers add the counts that flow caches hold back, and waits for it, at most [`ACKNOWLEDGE_MAX`].
    pub fn settle_counts(&self) {
        if let Some(cache) = &self.cache {
            cache.settle(ACKNOWLEDGE_MAX);
        }
    }

    /// The pipeline's number: unique in the process, never reused, not 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it shares parts of another pipeline's state ([`load_keeping`]).
    pub fn shares(&self) -> bool {
        self.shares
    }

    /// Whether [`Pipeline::take_registers`] has any registers to copy.
    pub fn takes_registers(&self, old: &Pipeline, keep: &Keep) -> bool {
        match (self.backend.fast(), old.backend.fast()) {
            (Some(new), Some(old)) => new.takes_registers(old, keep),
            _ => false,
        }
    }

    /// Copies the contents of registers that are kept but not shared. Must be called while no packet runs through
    /// either pipeline.
    pub fn take_registers(&self, old: &Pipeline, keep: &Keep) {
        if let (Some(new), Some(old)) = (self.backend.fast(), old.backend.fast()) {
            new.take_registers(old, keep);
        }
    }

    /// Adds the counts of `old` for objects that are kept but not shared. Must be called once, when no packet runs
    /// through `old` any more.
    pub fn inherit(&self, old: &Pipeline, keep: &Keep) {
        if let (Some(new), Some(old)) = (self.backend.fast(), old.backend.fast()) {
            new.inherit(old, keep);
        }
    }

    /// The number of workers it was loaded for.
    pub fn workers(&self) -> usize {
        self.drops.len()
    }

    /// How long each phase of [`load`] took, in order.
    pub fn load_times(&self) -> &[(&'static str, Duration)] {
        &self.load_times
    }

    /// The program's IR.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The executor of a worker. At most one per worker may exist at a time.
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

    /// Advances the clock of idle timers to `now_us` and frees memory that is no longer used. Called periodically.
    pub fn housekeeping(&self, now_us: u64) {
        self.backend.housekeeping(now_us);
    }

    /// Sets the specialisation mode; specialised code is compiled in the background from now on. With
    /// `Specialise::Off` the next batches run generic or baseline code.
    pub fn specialise(&self, mode: Specialise) {
        self.backend.specialise(mode);
    }

    /// Compiles specialised code for the current tables and registers and publishes it before returning. Returns how
    /// long it took until the first such code ran (better code may follow before this returns). With
    /// `Specialise::Off` only the strategy depends on the tables. `None` for the interpreter.
    pub fn recompile(&self, mode: Specialise) -> Option<Duration> {
        self.backend.recompile(mode)
    }

    /// As [`Pipeline::recompile`], but only the quick first step, for tests and measurements.
    pub fn recompile_quick(&self, mode: Specialise) -> Option<Duration> {
        self.backend.recompile_quick(mode)
    }

    /// Information about the running code; `None` for the interpreter.
    pub fn code_info(&self) -> Option<CodeInfo> {
        self.backend.code_info()
    }

    /// Whether a batch that started now would run specialised code. Costs a few loads.
    pub fn runs_specialised(&self) -> bool {
        self.backend.runs_specialised()
    }

    /// Sets whether code is watched: counts actions and reports its position. Returns once such code is installed.
    pub fn watch(&self, on: bool) {
        if let Some(cache) = &self.cache {
            cache.watch(on);
        }
        self.backend.watch(on);
    }

    /// The parts of the program at these spots, as names of `jit::Location::region`.
    pub fn regions(&self, spots: &[Spot]) -> Vec<Option<String>> {
        self.backend.regions(spots)
    }

    /// How often tables ran each action while watched; value sets have no actions.
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

    /// All tables, value sets included, with entries, hits and misses.
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

    /// A program in which each packet reads a 64-bit cell, computes for a while, and writes the cell plus one.
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
        b.emit(Op::RegisterRead { register, dst: value, index: index.clone(), peek: false });
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
