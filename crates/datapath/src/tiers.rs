//! Machine code as a backend: compiled entries on the fast tables.
//!
//! Code and state live and die together: the code has the state's addresses in it, so both are behind one `Arc` that every
//! executor holds. A worker's executor is its membership among the state's readers; see `state` for the rules.
//!
//! Besides the code that the program is loaded with there is code for the tables as they are: [`code`] says when which
//! runs, `tuner` when it is made, `assume` what follows from tables' entries. `counting` is the program for those who watch.
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

/// Entries of a table with ternary or optional fields up to which they may be part of the code.
const RULES_MAX: u64 = tables::prefilter::RULES_MAX as u64;
/// The same if the key is so wide that they would be compared one by one.
const WIDE_RULES_MAX: u64 = 16;
/// The same for a table with an lpm field.
const PREFIXES_MAX: u64 = 10;
/// The same for a table of exact fields whose engine hashes keys.
const KEYED_MAX: u64 = jit::KEYED_MAX as u64;
/// The same where the one field is the position in an array and may be what routes say: what they lead to lies in their rows
/// (`jit`'s `join.rs`) up to there.
const POSITIONS_MAX: u64 = 4096;
/// The same where several fields are the position, and for other tables of one field.
const JOINED_MAX: u64 = 512;
/// The same for other tables of exact fields.
const EXACT_MAX: u64 = 8;

/// Compiled code with its state.
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
    /// The state.
    #[error(transparent)]
    State(#[from] LoadError),
    /// The code.
    #[error("{0}")]
    Code(jit::Error),
}

impl MachineError {
    /// The bound that the program is over, if it may be right otherwise.
    pub(crate) fn limit(&self) -> Option<Limit> {
        match self {
            MachineError::Code(jit::Error::TooSlow(_)) => Some(Limit::CompileTime),
            MachineError::State(LoadError::Memory { limit: Some(_), .. }) => Some(Limit::StateMemory),
            _ => None,
        }
    }
}

impl Machine {
    /// Makes the state of a verified program for `workers` workers, and compiles it.
    pub fn new(program: Arc<Program>, workers: usize, options: &CodeOptions) -> Result<Machine, MachineError> {
        let start = Instant::now();
        let fast = FastState::new(Arc::clone(&program), workers)?;
        Machine::on(program, fast, start.elapsed(), options)
    }

    /// As [`Machine::new`], with what `keep` says of an earlier program's state.
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

    /// How long the phases of [`Machine::new`] took, in order.
    pub(crate) fn load_times(&self) -> [(&'static str, Duration); 5] {
        phases(self.state_time, self.code.generic().timing())
    }

    /// Whether a verified program's state and code can be made, without making it run; how long the phases took.
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

    /// What a verified program's entries are translated to, without making it run.
    pub(crate) fn listing(program: &Arc<Program>, options: &jit::Options) -> Result<Vec<jit::Listing>, MachineError> {
        let fast = FastState::new(Arc::clone(program), 1)?;
        jit::listing(program, &fast.bindings(), &CALLS, options).map_err(MachineError::Code)
    }

    /// The code that the program was loaded with, for dumps and timings.
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
            // Without a thread, generic code goes on running.
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
    /// A log line's text.
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

/// A log line's text: each `{}` of the format replaced by an argument of these widths; or a failed assertion's.
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
