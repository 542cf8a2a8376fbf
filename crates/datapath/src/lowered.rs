//! Machine-level IR as a backend: compiled by `codegen`, or interpreted, on the fast tables.
//!
//! [`MirMachine`] lowers a program once, for any table contents. For machine code the module goes through the passes
//! of `mir`; the interpreter runs it as lowered, so that comparing both also tests the passes. Both call the same
//! runtime functions and match engines, and run on the same memory. The interpreter checks the regions that accesses
//! name, as far as it knows what lies where ([`memory`]).
//!
//! Code and state have one lifetime, as in [`crate::tiers`].
//!
//! Tests: `crates/difftest`, which compares both with the other engines; `tests/shared_cells.rs`.
#![allow(unsafe_code)]

mod host;
mod memory;

use crate::calls::CALLS;
use crate::executor::Executor;
use crate::pipeline::{Backend, EngineKind};
use crate::state::{FastState, FastWorker};
use crate::switches::CodeOptions;
use crate::tiers::log_text;
use abi::RuntimeCalls;
use abi::packet::{Batch, PipelineFn};
use abi::state::{DigestMessage, PipelineState};
use abi::table::LookupFn;
use base::ids::TableId;
use codegen::Code;
use host::ProcessHost;
use ir::layout::RecordLayout;
use ir::{EntryKind, Program};
use lowering::{Lowered, SiteKind};
use memory::ProcessMemory;
use mir::FunctionId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A lowered program, with what it needs to run.
struct Shared {
    lowered: Lowered,
    /// By [`mir::TableId`]: the match engine's lookup function, and its handle's address.
    lookups: Vec<(LookupFn, usize)>,
    record_words: usize,
    /// `None` for the interpreter.
    code: Option<Code>,
}

/// The backend: a lowered program with its state.
pub(crate) struct MirMachine {
    shared: Arc<Shared>,
    fast: Arc<FastState>,
    state: Arc<dyn PipelineState>,
    times: Vec<(&'static str, Duration)>,
}

/// The runtime functions.
const RUNTIME: &RuntimeCalls = &CALLS;

impl MirMachine {
    /// Creates the state of a verified program for `workers` workers, and lowers the program.
    ///
    /// # Errors
    /// The reason as text, if the state cannot be created, or the program cannot be lowered or compiled.
    pub(crate) fn new(
        program: &Arc<Program>,
        engine: EngineKind,
        workers: usize,
        options: &CodeOptions,
    ) -> Result<MirMachine, String> {
        let lowering = match options.jit.memory_slots {
            jit::MemorySlots::EveryOther => lowering::Options { definitions_max: 0 },
            _ => lowering::Options::default(),
        };
        let mut times = Vec::new();
        let mut start = Instant::now();
        let mut note = |what| times.push((what, std::mem::replace(&mut start, Instant::now()).elapsed()));
        let fast = Arc::new(FastState::new(Arc::clone(program), workers).map_err(|e| e.to_string())?);
        note("tables and state");
        let bindings = fast.bindings();
        let mut lowered = lowering::lower(program, &bindings, RUNTIME, &lowering).map_err(|e| e.to_string())?;
        note("lowering");
        if let Some(complaint) = mir::verify(&lowered.module).first() {
            return Err(format!("the compiler made wrong machine-level IR (please report this): {complaint}"));
        }
        let mut code = None;
        if engine != EngineKind::MirInterpreter {
            mir::passes::optimise(&mut lowered.module, &[]);
            note("passes of machine-level IR");
            let options = codegen::Options::default();
            code = Some(codegen::compile(&lowered.module, &options).map_err(|e| e.to_string())?);
            note("code: Cranelift");
        }
        let record_words = RecordLayout::new(program).words();
        let lookups = bindings.tables.iter().map(|table| (table.lookup, table.handle.expose_provenance())).collect();
        let state: Arc<dyn PipelineState> = Arc::clone(&fast) as _;
        Ok(MirMachine { shared: Arc::new(Shared { lowered, lookups, record_words, code }), fast, state, times })
    }

    /// How long each phase of [`MirMachine::new`] took, in order.
    pub(crate) fn load_times(&self) -> &[(&'static str, Duration)] {
        &self.times
    }
}

/// A verified program's module as text, after all passes or as lowered.
///
/// # Errors
/// The reason as text, if the state cannot be created or the program cannot be lowered.
pub(crate) fn text(program: &Arc<Program>, with_passes: bool) -> Result<String, String> {
    let fast = FastState::new(Arc::clone(program), 1).map_err(|e| e.to_string())?;
    let mut lowered =
        lowering::lower(program, &fast.bindings(), RUNTIME, &Default::default()).map_err(|e| e.to_string())?;
    if with_passes {
        mir::passes::optimise(&mut lowered.module, &[]);
    }
    Ok(mir::print(&lowered.module))
}

impl Backend for MirMachine {
    fn executor(&self, worker: usize) -> Box<dyn Executor> {
        let member = self.fast.worker(worker).expect("the state was made for this many workers, one executor each");
        Box::new(Run { shared: Arc::clone(&self.shared), worker: member, memory: ProcessMemory::new() })
    }

    fn state(&self) -> &Arc<dyn PipelineState> {
        &self.state
    }

    fn take_digests(&self) -> Vec<DigestMessage> {
        self.fast.take_digests()
    }

    fn table_counters(&self, table: TableId) -> Option<(u64, u64)> {
        Some(self.fast.table_counters(table))
    }

    fn take_logs(&self) -> Vec<String> {
        let text = |site: u32, words: &[u64]| {
            let site = self.shared.lowered.sites.get(site as usize)?;
            let widths = match &site.kind {
                SiteKind::Log { arg_widths } => Some(arg_widths.as_slice()),
                SiteKind::Assert => None,
            };
            Some(log_text(&site.text, widths, words))
        };
        let lines = self.fast.messages().take_lines();
        lines.iter().filter_map(|line| text(line.site, &line.words)).collect()
    }

    fn housekeeping(&self, now_us: u64) {
        self.fast.expire(now_us);
        self.fast.collect();
    }

    fn fast(&self) -> Option<&Arc<FastState>> {
        Some(&self.fast)
    }
}

struct Run {
    shared: Arc<Shared>,
    worker: FastWorker,
    memory: ProcessMemory,
}

impl Run {
    /// Runs a batch through machine code.
    fn compiled(&self, code: &Code, function: FunctionId, batch: &mut Batch) {
        // SAFETY: the address is that of a function with this signature, which lives as long as `shared`.
        let function = unsafe { std::mem::transmute::<*const u8, PipelineFn>(code.function(function)) };
        // SAFETY: the code was compiled for this state; the context is this worker's and only used here; the engine fills
        // descriptors as `abi::packet` demands, records included.
        unsafe { function(self.worker.ctx(), batch) };
    }

    /// Runs a batch through the interpreter.
    fn interpreted(&mut self, function: FunctionId, batch: &mut Batch) {
        let Shared { lowered, lookups, record_words, .. } = &*self.shared;
        let (ctx, batch): (_, *mut Batch) = (self.worker.ctx(), batch);
        // SAFETY: the engine's batch, which nothing else uses during this call; the memory keeps its ranges for this
        // call alone.
        unsafe { self.memory.know(ctx, batch, *record_words) };
        let mut host = ProcessHost { calls: &lowered.calls, lookups };
        let args = [ctx.expose_provenance(), batch.expose_provenance()].map(|address| address as u128);
        let result = mir::run(&lowered.module, function, &args, &mut self.memory, &mut host, u64::MAX);
        if let Err(fault) = result {
            panic!("lowered code went wrong: {fault}");
        }
    }
}

impl Executor for Run {
    fn run(&mut self, entry: EntryKind, batch: &mut Batch) {
        self.worker.begin(batch.now_us);
        let shared = Arc::clone(&self.shared);
        let function = shared.lowered.entries.iter().find(|(kind, _)| *kind == entry);
        let (_, function) = *function.expect("the program has an entry of this kind");
        match &shared.code {
            Some(code) => self.compiled(code, function, batch),
            None => self.interpreted(function, batch),
        }
        self.worker.end();
    }

    fn quiescent(&mut self) {
        self.worker.quiescent();
    }

    fn quiescent_behind(&mut self, settle: &mut dyn FnMut()) {
        self.worker.quiescent_behind(settle);
    }

    fn begin(&mut self, now_us: u64) {
        self.worker.begin(now_us);
    }

    fn idle(&mut self) {
        self.worker.idle();
    }
}
