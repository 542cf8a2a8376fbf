//! A loaded program: its IR, what runs it, and its state.
//!
//! Immutable but for the state behind it; workers and the control plane share it by `Arc`. The last one to let go frees
//! code and tables, so a replaced pipeline lives exactly as long as some worker may still run it.

use crate::drops::DropCounters;
use crate::executor::Executor;
use crate::machine::Machine;
use crate::oracle::Oracle;
use crate::switch::TableInfo;
use abi::state::{DigestMessage, PipelineState};
use base::ids::TableId;
use ir::Program;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
}

/// What runs a program's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EngineKind {
    /// Machine code on the fast tables.
    #[default]
    Machine,
    /// The interpreter on its naive tables.
    Interpreter,
}

/// Why a program cannot run.
#[derive(Debug, thiserror::Error)]
#[error("`{program}` cannot be loaded: {reason}")]
pub struct PipelineError {
    /// The program.
    pub program: String,
    /// Why.
    pub reason: String,
}

/// Makes a program ready to run on `workers` workers. A program that the verifier refuses is a bug of the compiler; it is
/// refused here, and what runs goes on running.
pub fn load(program: Arc<Program>, engine: EngineKind, workers: usize) -> Result<Pipeline, PipelineError> {
    let refuse = |reason: String| PipelineError { program: program.name.clone(), reason };
    let start = Instant::now();
    let problems = ir::verify(&program);
    let mut times = vec![("verify IR", start.elapsed())];
    if let Some(first) = problems.first() {
        return Err(refuse(format!("the compiler made wrong IR (please report this): {}", first.message)));
    }
    let backend: Box<dyn Backend> = match engine {
        EngineKind::Interpreter => Box::new(Oracle::new(Arc::clone(&program), false)),
        EngineKind::Machine => {
            let machine = Machine::new(Arc::clone(&program), workers, &jit::Options::default());
            let machine = machine.map_err(|e| refuse(e.to_string()))?;
            times.extend(machine.load_times());
            Box::new(machine)
        }
    };
    Ok(Pipeline { load_times: times, ..Pipeline::new(program, backend, workers) })
}

/// A loaded program.
pub struct Pipeline {
    program: Arc<Program>,
    backend: Box<dyn Backend>,
    drops: Vec<DropCounters>,
    load_times: Vec<(&'static str, Duration)>,
}

impl Pipeline {
    /// A program on a backend that has executors for workers `0..workers`.
    pub fn new(program: Arc<Program>, backend: Box<dyn Backend>, workers: usize) -> Pipeline {
        let drops = (0..workers).map(|_| DropCounters::new(program.drops.len())).collect();
        Pipeline { program, backend, drops, load_times: Vec::new() }
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
        self.backend.executor(worker)
    }

    /// The state.
    pub fn state(&self) -> &Arc<dyn PipelineState> {
        self.backend.state()
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

    /// A worker's drop counters.
    pub fn drops(&self, worker: usize) -> &DropCounters {
        &self.drops[worker]
    }

    /// All tables with entries, hits and misses; value sets included.
    pub fn table_info(&self) -> Vec<TableInfo> {
        self.program
            .tables
            .iter()
            .enumerate()
            .map(|(i, table)| {
                let id = TableId::from_index(i);
                let lookups = self.backend.table_counters(id);
                TableInfo { name: table.name.clone(), entries: self.state().len(id), size: table.size, lookups }
            })
            .collect()
    }
}
