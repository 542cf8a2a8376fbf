//! Machine code as a backend: compiled entry points on the fast tables.
//!
//! Code contains addresses of the state, so both have one lifetime: every executor holds both through an `Arc`. A
//! worker's executor is also its registration as a reader of the state; see `state` for the rules.
//!
//! Besides the code that a program is loaded with there is code specialised for the current tables: [`code`] decides
//! which runs, `tuner` when it is compiled, `assume` derives what table entries imply for the program. `counting` is
//! the program variant that runs while someone watches.
#![allow(unsafe_code)]

mod assume;
mod code;
mod counting;
mod prepared;
mod tuner;

pub use code::Specialise;

use crate::calls::CALLS;
use crate::executor::Executor;
use crate::pipeline::{Backend, CodeInfo, Limit, Spot};
use crate::state::{FastState, FastWorker, Keep, LoadError};
use crate::switches::CodeOptions;
use abi::packet::Batch;
use abi::state::{DigestMessage, PipelineState};
use base::ids::TableId;
use code::{Choice, Code, Effort};
use ir::{EntryKind, Program};
use jit::{CompiledPipeline, SiteKind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tuner::Tuner;

/// Most entries of a table with ternary or optional fields that may become part of the code.
const RULES_MAX: u64 = tables::prefilter::RULES_MAX as u64;
/// The same for keys so wide that entries would be compared one by one.
const WIDE_RULES_MAX: u64 = 16;
/// The same for a table with an lpm field.
const PREFIXES_MAX: u64 = 10;
/// The same for a table of exact fields whose engine hashes keys.
const KEYED_MAX: u64 = jit::EXACT_INDEX_MAX as u64;
/// The same for a direct index with one field that routes may supply: up to here its entries are stored in the rows
/// of the materialised join (`jit`'s `join.rs`).
const POSITIONS_MAX: u64 = 4096;
/// The same for a direct index over several fields, and for other tables of one field.
const JOINED_MAX: u64 = 512;
/// The same for other tables of exact fields.
const EXACT_MAX: u64 = 8;

/// The machine-code backend: compiled code with its state.
pub struct Machine {
    code: Arc<Code>,
    fast: Arc<FastState>,
    state: Arc<dyn PipelineState>,
    state_time: Duration,
    tuner: Mutex<Option<Tuner>>,
}

/// Why a program cannot run as machine code.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The state cannot be created.
    #[error(transparent)]
    State(#[from] LoadError),
    /// The code cannot be compiled.
    #[error("{0}")]
    Code(jit::Error),
}

impl MachineError {
    /// The limit that the program exceeds, if it may be correct otherwise.
    pub(crate) fn limit(&self) -> Option<Limit> {
        match self {
            MachineError::Code(jit::Error::TooSlow(_)) => Some(Limit::CompileTime),
            MachineError::State(LoadError::Memory { limit: Some(_), .. }) => Some(Limit::StateMemory),
            _ => None,
        }
    }
}

impl Machine {
    /// Creates the state of a verified program for `workers` workers, and compiles the program.
    ///
    /// # Errors
    /// If the state cannot be created or the code cannot be compiled.
    pub fn new(program: Arc<Program>, workers: usize, options: &CodeOptions) -> Result<Machine, MachineError> {
        let start = Instant::now();
        let fast = FastState::new(Arc::clone(&program), workers)?;
        Machine::on(program, fast, start.elapsed(), options)
    }

    /// As [`Machine::new`], sharing the objects of an earlier program's state that `keep` lists.
    ///
    /// # Errors
    /// As [`Machine::new`].
    pub fn inheriting(
        program: Arc<Program>,
        old: &FastState,
        keep: &Keep,
        options: &CodeOptions,
    ) -> Result<Machine, MachineError> {
        let start = Instant::now();
        let fast = FastState::inheriting(Arc::clone(&program), old, keep)?;
        Machine::on(program, fast, start.elapsed(), options)
    }

    fn on(
        program: Arc<Program>,
        fast: FastState,
        state_time: Duration,
        options: &CodeOptions,
    ) -> Result<Machine, MachineError> {
        let fast = Arc::new(fast);
        let code = Code::new(program, Arc::clone(&fast), options).map_err(MachineError::Code)?;
        let state: Arc<dyn PipelineState> = Arc::clone(&fast) as _;
        Ok(Machine { code: Arc::new(code), fast, state, state_time, tuner: Mutex::default() })
    }

    /// How long each phase of [`Machine::new`] took, in order.
    pub(crate) fn load_times(&self) -> [(&'static str, Duration); 5] {
        phases(self.state_time, self.code.generic().timing())
    }

    /// Checks that a verified program's state and code can be made, and discards them. Returns how long each phase
    /// took.
    pub(crate) fn check(
        program: Arc<Program>,
        options: &jit::Options,
    ) -> Result<[(&'static str, Duration); 5], MachineError> {
        let start = Instant::now();
        let fast = FastState::new(Arc::clone(&program), 1)?;
        let state_time = start.elapsed();
        let code = jit::check(&program, &fast.bindings(), &CALLS, options).map_err(MachineError::Code)?;
        Ok(phases(state_time, code))
    }

    /// A listing of a verified program's entry points.
    pub(crate) fn listing(program: &Arc<Program>, options: &jit::Options) -> Result<Vec<jit::Listing>, MachineError> {
        let fast = FastState::new(Arc::clone(program), 1)?;
        jit::listing(program, &fast.bindings(), &CALLS, options).map_err(MachineError::Code)
    }

    /// The generic code, with which the program was loaded; for dumps and timings.
    pub fn code(&self) -> &Arc<CompiledPipeline> {
        self.code.generic()
    }
}

fn phases(state: Duration, code: jit::Timing) -> [(&'static str, Duration); 5] {
    [
        ("tables and state", state),
        ("code: analysis", code.analysis),
        ("code: translation", code.translation),
        ("code: Cranelift", code.codegen),
        ("code: linking", code.linking),
    ]
}

impl Backend for Machine {
    fn executor(&self, worker: usize) -> Box<dyn Executor> {
        let member = self.fast.worker(worker).expect("the state was made for this many workers, one executor each");
        Box::new(Run { choice: Choice::new(Arc::clone(&self.code)), worker: member })
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
        self.fast.messages().take_lines().iter().map(|line| self.log_text(line.site, &line.words)).collect()
    }

    fn housekeeping(&self, now_us: u64) {
        self.fast.expire(now_us);
        self.fast.collect();
        self.code.collect();
    }

    fn specialise(&self, mode: Specialise) {
        let mut tuner = self.tuner.lock().unwrap_or_else(PoisonError::into_inner);
        *tuner = None;
        match mode {
            Specialise::Off => self.fast.domain().invalidate(),
            // If the thread cannot be started, generic code keeps running.
            mode => *tuner = Tuner::start(Arc::clone(&self.code), mode).ok(),
        }
    }

    fn recompile(&self, mode: Specialise) -> Option<Duration> {
        self.fast.look_at_registers();
        let took = self.recompile_quick(mode)?;
        if self.code.could_be_better() {
            self.code.recompile(mode, Effort::Full, |_| true)?;
        }
        Some(took)
    }

    fn recompile_quick(&self, mode: Specialise) -> Option<Duration> {
        self.code.recompile(mode, Effort::Quick, |_| true)
    }

    fn fast(&self) -> Option<&Arc<FastState>> {
        Some(&self.fast)
    }

    fn code_info(&self) -> Option<CodeInfo> {
        Some(self.code.info())
    }

    fn runs_specialised(&self) -> bool {
        self.code.generation() == Some(self.fast.generation())
    }

    fn watch(&self, on: bool) {
        self.code.watch(on);
    }

    fn action_counts(&self, table: TableId) -> Option<Vec<u64>> {
        Some(self.fast.action_counts(table))
    }

    fn regions(&self, spots: &[Spot]) -> Vec<Option<String>> {
        self.code.regions(spots)
    }
}

impl Machine {
    /// The text of a log line.
    fn log_text(&self, site: u32, words: &[u64]) -> String {
        let Some(site) = self.code.sites().get(site as usize) else {
            return format!("a line of unknown site {site}");
        };
        let widths = match &site.kind {
            SiteKind::Log { arg_widths } => Some(arg_widths.as_slice()),
            SiteKind::Assert => None,
        };
        log_text(&site.text, widths, words)
    }
}

/// The text of a log line, each `{}` of the format replaced by an argument of the given width in bits; without
/// widths, the text of a failed assertion.
pub(crate) fn log_text(text: &str, widths: Option<&[u32]>, words: &[u64]) -> String {
    let Some(widths) = widths else { return format!("assertion failed: {text}") };
    let mut parts = text.split("{}");
    let mut text = parts.next().unwrap_or_default().to_string();
    let mut rest = words;
    for (part, width) in parts.zip(widths) {
        let (value, behind) = rest.split_at(rest.len().min(ir::layout::words_of(*width) as usize));
        rest = behind;
        let bytes: Vec<u8> = value.iter().rev().flat_map(|w| w.to_be_bytes()).collect();
        let value = base::Bits::from_bytes_be(*width, &bytes);
        text += &format!("{}{part}", value.to_biguint());
    }
    text
}

struct Run {
    /// Keeps the code mapped.
    choice: Choice,
    worker: FastWorker,
}

impl Executor for Run {
    fn run(&mut self, entry: EntryKind, batch: &mut Batch) {
        self.worker.begin(batch.now_us);
        let code = self.choice.entry(entry);
        // SAFETY: the code was compiled for this state and lives as long as `choice`; it was chosen in this batch, so it
        // fits the tables; the context is this worker's and only used here; the engine fills descriptors as
        // `abi::packet` demands, records included.
        unsafe { code(self.worker.ctx(), batch) };
        self.worker.end();
    }

    fn quiescent(&mut self) {
        self.choice.end();
        self.worker.quiescent();
    }

    fn quiescent_behind(&mut self, settle: &mut dyn FnMut()) {
        self.choice.end();
        self.worker.quiescent_behind(settle);
    }

    fn begin(&mut self, now_us: u64) {
        self.worker.begin(now_us);
    }

    fn idle(&mut self) {
        self.choice.end();
        self.worker.idle();
    }

    fn report_to(&mut self, place: &Arc<AtomicU64>) {
        self.worker.report_to(place);
    }
}
