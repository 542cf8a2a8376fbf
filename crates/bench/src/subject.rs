//! Subjects of measurements: P4 programs and C references, loaded with a workload's entries.

use crate::entry::{Entry, Kinds};
use crate::reference::{self, Reference};
use crate::source::Source;
use crate::workload::{Entries, Workload};
use abi::state::PipelineState;
use anyhow::{Context, Result, bail};
use datapath::executor::Executor;
use datapath::{CodeOptions, EngineKind, Pipeline, Specialise};
use frontend::{Compiled, Input, Until};
use std::sync::Arc;

/// Compiler options for P4 programs.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Of the front end: include folders, passes that are switched off.
    pub frontend: frontend::Options,
    /// Of code generation.
    pub code: CodeOptions,
    /// How the code is specialised once the tables are filled.
    pub specialise: Specialise,
}

/// An executor of batches, with a name for tables.
pub struct Subject {
    /// The name in tables.
    pub name: String,
    /// Runs the batches.
    pub executor: Box<dyn Executor>,
    /// 64-bit words of a packet's record.
    pub record_words: usize,
    /// Whether a packet takes so long that turns must be short.
    pub slow: bool,
    /// The pipeline, if its program can be recompiled.
    pipeline: Option<Arc<Pipeline>>,
}

impl Subject {
    /// Recompiles for the observed paths of packets and the contents of registers, as a switch does after a second. The
    /// new code is not the code that was compared before.
    pub fn settle(&self, options: &Options) {
        if let Some(pipeline) = &self.pipeline {
            pipeline.recompile(options.specialise);
        }
    }
}

/// Compiles a program to optimised IR.
///
/// # Errors
/// If the source cannot be read or has errors.
pub fn compile(source: &Source, options: &Options) -> Result<Arc<ir::Program>> {
    let compiled = match source {
        Source::File(path) => frontend::compile(Input::File(path), &options.frontend, Until::Ir)
            .with_context(|| format!("cannot read {}", path.display()))?,
        Source::Text(text) => {
            frontend::compile(Input::Text { name: "generated.p4", text }, &options.frontend, Until::Ir)?
        }
    };
    let refused = |c: &Compiled| anyhow::anyhow!("the program is refused:\n{}", c.render(false));
    if compiled.failed() {
        return Err(refused(&compiled));
    }
    let program = compiled.optimised.context("the program has no `main`")?;
    Ok(Arc::new(program))
}

/// Adds a workload's entries to a P4 program's state.
///
/// # Errors
/// If the program lacks a table or action, or the state refuses an entry.
pub fn insert_all(workload: &Workload, program: &ir::Program, state: &dyn PipelineState) -> Result<()> {
    insert(&workload.entries, workload, program, state)
}

fn insert(entries: &Entries, workload: &Workload, program: &ir::Program, state: &dyn PipelineState) -> Result<()> {
    let kinds = Kinds::new(program, workload.kinds)?;
    let mut result = Ok(());
    entries(&mut |entry: &Entry| {
        if result.is_ok() {
            let (table, entry) = kinds.table_entry(entry);
            result = state.insert(table, &entry).map_err(|e| {
                anyhow::anyhow!("table `{}` refuses {entry:?}: {e:?}", program.tables[table.index()].name)
            });
        }
    });
    result?;
    workload.setup.as_ref().map_or(Ok(()), |more| more(program, state))
}

/// The workload's program for `workers` workers, compiled and loaded with its entries.
///
/// # Errors
/// As [`compile`] and [`insert_all`], or if code generation fails.
pub fn load(workload: &Workload, options: &Options, workers: usize) -> Result<Arc<Pipeline>> {
    let program = compile(&workload.source, options)?;
    let pipeline = datapath::load_with(program, EngineKind::Machine, workers, &options.code)?;
    insert_all(workload, pipeline.program(), pipeline.state().as_ref())?;
    // The code so far was made while the tables were empty.
    pipeline.recompile(options.specialise);
    Ok(Arc::new(pipeline))
}

/// Worker `worker` of a loaded program.
pub fn of_pipeline(name: &str, pipeline: &Pipeline, worker: usize) -> Subject {
    Subject {
        name: name.to_string(),
        executor: pipeline.executor(worker),
        record_words: ir::layout::RecordLayout::new(pipeline.program()).words(),
        slow: false,
        pipeline: None,
    }
}

/// The workload's program as Sluice runs it.
///
/// # Errors
/// As [`load`].
pub fn sluice(name: &str, workload: &Workload, options: &Options) -> Result<Subject> {
    let pipeline = load(workload, options, 1)?;
    Ok(Subject { pipeline: Some(Arc::clone(&pipeline)), ..of_pipeline(name, &pipeline, 0) })
}

/// The workload's program as it runs directly after loading: with generic code, for any contents of tables.
///
/// # Errors
/// As [`load`].
pub fn as_loaded(name: &str, workload: &Workload, engine: EngineKind, options: &Options) -> Result<Subject> {
    let program = compile(&workload.source, options)?;
    let pipeline = datapath::load_with(program, engine, 1, &options.code)?;
    let few = workload.oracle.as_ref().filter(|_| engine == EngineKind::Interpreter);
    insert(few.unwrap_or(&workload.entries), workload, pipeline.program(), pipeline.state().as_ref())?;
    Ok(Subject { slow: engine == EngineKind::Interpreter, ..of_pipeline(name, &pipeline, 0) })
}

/// The workload's program in the interpreter, the oracle for everything else: it shares no table, code or lookup with
/// the measured engine. It scans entries linearly, so from a workload with many entries it gets only those that the
/// first frames can match ([`Workload::oracle`]).
///
/// # Errors
/// As [`load`].
pub fn interpreter(workload: &Workload, options: &Options) -> Result<Subject> {
    as_loaded("interpreter", workload, EngineKind::Interpreter, options)
}

/// The workload's C reference, plain or batched.
///
/// # Errors
/// If the program has no C version, or that refuses the entries.
pub fn c(workload: &Workload, batched: bool) -> Result<Subject> {
    let Some(functions) = reference::named(workload.program) else {
        bail!("there is no C version of {}", workload.program)
    };
    let mut reference = Reference::new(functions, workload.kinds, batched)?;
    let mut result = Ok(());
    (workload.entries)(&mut |entry: &Entry| {
        if result.is_ok() {
            result = reference.insert(entry);
        }
    });
    result?;
    reference.commit()?;
    let name = if batched { "C, batched" } else { "C, plain" };
    Ok(Subject { name: name.to_string(), executor: Box::new(reference), record_words: 0, slow: false, pipeline: None })
}
