//! Compiles optimised IR to machine code with Cranelift.
//!
//! [`compile`] turns each entry point of a program into one function, `extern "C" fn(ctx, batch)`, which runs every
//! packet of a batch to its fate. The contract with the runtime is crate `abi`; the meaning of every operation is in
//! `ir::op`.
//!
//! - Analyses before code generation: `analysis` and `flow` compute dataflow facts (the parser's cursor, which fields
//!   can differ from the packet's bytes, which slots are needed). `paths` duplicates blocks by what is known of a
//!   packet on each path. `placement` decides which slots live in memory, so that compile time stays near linear.
//! - Code generation: `translate` builds the function (packet loop, blocks, records). `value` defines how slots become
//!   values. `ops` lists all operations, terminators and fates; `arith`, `packet`, `deparse`, `apply`, `probe`,
//!   `prefixes`, `rules`, `bit_vectors`, `prefilter`, `exact_index`, `join`, `externs`, `hashes`, `csum` and `pack`
//!   translate them. `known` finds what is known of a value; `unused` removes dead instructions.
//! - `cold_calls` keeps calls on cold paths from costing registers on hot ones.
//! - Batches: `stage` takes many packets through the function in phases; `prefetch_pass` runs its beginning once more
//!   to prefetch.
//! - Instructions that Cranelift lacks: `placeholder` patches them into the code; `prefetch`, `wide` (compare a key
//!   with a whole bucket) and `clmul` (carry-less multiplication) use it.
//! - The result: `compiled` owns it; `source_map` and `listing` map code to the part of the program it comes from.
//!   `optimisation` names what can be switched off.
//!
//! The compiler trusts the IR, which must have passed `ir::verify`. The bounds of a packet are checked by the program's
//! own `HasBits`; code of a program that extracts without it reads outside the frame ([`Options::check_bounds`] finds
//! such reads in tests).
//!
//! [`Error::Limit`] refuses values wider than [`SLOT_WIDTH_MAX`] bits and entry points whose wide values need more than
//! [`STACK_BYTES_MAX`] bytes; random numbers wider than 64 bits are refused too.

mod addresses;
mod analysis;
mod apply;
mod arith;
mod bit_vectors;
mod clmul;
mod cold_calls;
mod compiled;
mod counts;
mod csum;
mod dead_fields;
mod deparse;
mod dynamic;
mod edges;
mod entry;
mod exact_index;
mod externs;
mod flow;
mod hashes;
mod header;
mod hot;
mod join;
mod known;
mod listing;
mod locks;
mod ops;
mod optimisation;
mod pack;
mod packet;
mod paths;
mod placeholder;
mod placement;
mod prefetch;
mod prefetch_pass;
mod prefilter;
mod prefixes;
mod probe;
mod record;
mod reloads;
mod rules;
mod source_map;
mod stage;
mod translate;
mod unresolved;
mod unused;
mod value;
mod verified;
mod wide;

pub use analysis::Analysis;
pub use bit_vectors::COLUMNS_MAX;
pub use compiled::{CompiledPipeline, Site, SiteKind, Timing};
pub use exact_index::{EXACT_INDEX_MAX, KEY_WORDS_MAX};
pub use hot::HOT_PATHS;
pub use join::{driving_tables, joined};
pub use listing::Listing;
pub use optimisation::{Optimisation, Without};
pub use prefetch_pass::prefetched_bytes_min;
pub use source_map::{CodeRange, LOOP, Location};
pub use stage::report::{NotStaged, Phase, Stages};

use abi::{Bindings, RuntimeCalls, Shapes};
use addresses::Addresses;
use bit_vectors::AllBitVectors;
use cold_calls::ColdCalls;
use compiled::{CodeData, Named, NewEntry};
use cranelift_codegen::ir::UserFuncName;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{CodegenError, CompileError, control::ControlPlane};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, ModuleError, ModuleReloc};
use exact_index::ExactIndexes;
use ir::layout::RecordLayout;
use ir::{EntryKind, Program, SlotId};
use join::Joins;
use prefetch_pass::PrefetchPass;
use stage::plan::Plan;
use std::time::{Duration, Instant};
use translate::Shared;
use unresolved::Symbols;

/// Bits of the widest slot that can be compiled.
pub const SLOT_WIDTH_MAX: u32 = 1 << 16;
/// Most bytes of a function's stack frame that slots may take.
pub const STACK_BYTES_MAX: u64 = 512 * 1024;
/// The `fate_arg` of a descriptor that code with [`Options::check_bounds`] left `Pending`.
pub const OUT_OF_FRAME: u32 = 0xffff_fff0;
/// Most edges on which a lazily loaded field may turn dirty and be loaded. A field with more such edges is loaded when
/// its header is extracted.
pub const LOADS_PER_FIELD_MAX: u32 = 64;
/// Most Cranelift instructions of an entry point that is compiled with the best register allocator. Above, registers
/// are allocated in one pass: the better allocator's time grows with the square of the size for long straight-line code
/// and for many long live ranges, and code of this size waits for caches more than for registers.
pub const THOROUGH_INSTRUCTIONS_MAX: usize = 100_000;
/// Most extracted headers for which the code carries a pointer to each. Above, the address of a header that is always
/// extracted at the same offset is computed from its validity where it is needed. Every carried value costs a block
/// parameter at every join.
pub const CARRIED_HEADERS_MAX: usize = 16;
/// Most packets that staged code takes through its phases together; by default a whole batch. Smaller chunks run the
/// phases more often, and each time the first packets wait for memory and the loop exits are mispredicted.
pub const CHUNK: u32 = abi::BATCH_MAX as u32;
/// Most bytes of all tables of an entry point for which `Strategy::Auto` runs to completion: the size of a second-level
/// cache.
pub const CACHED_BYTES_MAX: u64 = 256 * 1024;
/// Bytes of a register in use from which `Strategy::Auto` prefetches its cells: the size of a second-level cache. The
/// cells of a larger register come from the last-level cache or from memory, which takes longer than the thirty cycles
/// per packet that a second pass over the batch costs.
pub const PREFETCHED_BYTES_MIN: u64 = 1 << 20;
/// Bytes of a table from which `Strategy::Auto` may split phases at it, so that packets wait for its prefetches.
pub const CUT_BYTES_MIN: u64 = 64 * 1024;
/// Most cases of a switch that is translated to a chain of comparisons.
pub(crate) const COMPARED_CASES_MAX: usize = 4;

/// Cranelift's optimisation level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OptLevel {
    /// No optimisation passes; for comparison.
    None,
    /// Optimise for speed.
    #[default]
    Speed,
    /// For speed and then size.
    SpeedAndSize,
}

impl OptLevel {
    fn name(self) -> &'static str {
        match self {
            OptLevel::None => "none",
            OptLevel::Speed => "speed",
            OptLevel::SpeedAndSize => "speed_and_size",
        }
    }
}

/// The order in which the packets of a batch go through an entry point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Strategy {
    /// One packet after the other.
    RunToCompletion,
    /// Phases: all packets go up to a table with a key, then the table is looked up for all of them, as far as order
    /// and size allow (see `stage/plan.rs`). Otherwise the cells of registers are prefetched (`prefetch_pass.rs`).
    Staged,
    /// As `Staged`, but only for tables and registers that are too large for the caches; see [`CACHED_BYTES_MAX`],
    /// [`CUT_BYTES_MIN`] and [`PREFETCHED_BYTES_MIN`].
    #[default]
    Auto,
}

impl std::str::FromStr for Strategy {
    type Err = String;

    /// Parses `rtc`, `staged` or `auto`.
    ///
    /// # Errors
    /// A message that lists the names, for any other name.
    fn from_str(name: &str) -> Result<Strategy, String> {
        match name {
            "rtc" => Ok(Strategy::RunToCompletion),
            "staged" => Ok(Strategy::Staged),
            "auto" => Ok(Strategy::Auto),
            _ => Err("there are `rtc`, `staged` and `auto`".to_string()),
        }
    }
}

/// Where slots live; see `placement`. All but [`MemorySlots::Auto`] are for tests and comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemorySlots {
    /// In Cranelift variables, except slots with long live ranges and few accesses.
    #[default]
    Auto,
    /// Every other slot in memory.
    EveryOther,
    /// In variables, except slots that are too wide for a register.
    Never,
}

/// Options of the compiler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Cranelift's optimisation level.
    pub opt_level: OptLevel,
    /// Keep Cranelift's text form and the assembly of every entry point.
    pub keep_text: bool,
    /// For tests: check every extraction against the frame's length. A packet that would be read beyond its end is left
    /// `Pending` with [`OUT_OF_FRAME`].
    pub check_bounds: bool,
    /// Run Cranelift's verifier.
    pub verify: bool,
    /// Append the functions' parts (tables, actions, parser states) to `/tmp/perf-<pid>.map` for Linux `perf`.
    pub perf_map: bool,
    /// For sampling profilers: keep which part of the program each byte of code comes from, and store in
    /// `WorkerCtx::place` which part makes a call ([`CompiledPipeline::region_at`]).
    pub watched: bool,
    /// Default: [`THOROUGH_INSTRUCTIONS_MAX`].
    pub thorough_instructions_max: usize,
    /// Default: [`LOADS_PER_FIELD_MAX`].
    pub loads_per_field_max: u32,
    /// Default: [`CARRIED_HEADERS_MAX`].
    pub carried_headers_max: usize,
    /// Whether packets go through the code in phases.
    pub strategy: Strategy,
    /// Default: [`CHUNK`].
    pub chunk: u32,
    /// Optimisations that are switched off.
    pub without: Without,
    /// Where slots live.
    pub memory_slots: MemorySlots,
    /// How many paths out of the parser get code of their own; default: [`HOT_PATHS`]. More paths take longer to
    /// compile.
    pub hot_paths: usize,
    /// Most time that compilation may take. It is checked between functions and between their compile phases. Each of
    /// these takes time proportional to the size of its function ([`THOROUGH_INSTRUCTIONS_MAX`]), so the limit is
    /// overrun by one of them at most.
    pub time_max: Option<Duration>,
}

impl Options {
    /// Whether an optimisation is on.
    pub(crate) fn has(&self, optimisation: Optimisation) -> bool {
        !self.without.contains(optimisation)
    }

    /// Whether hot paths out of the parser get code of their own.
    pub fn has_hot_paths(&self) -> bool {
        self.hot_paths > 0 && self.has(Optimisation::HotPaths) && self.has(Optimisation::SplitPaths)
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            opt_level: OptLevel::Speed,
            keep_text: false,
            check_bounds: false,
            verify: cfg!(debug_assertions),
            perf_map: false,
            watched: false,
            thorough_instructions_max: THOROUGH_INSTRUCTIONS_MAX,
            carried_headers_max: CARRIED_HEADERS_MAX,
            loads_per_field_max: LOADS_PER_FIELD_MAX,
            without: Without::default(),
            strategy: Strategy::default(),
            chunk: CHUNK,
            memory_slots: MemorySlots::Auto,
            hot_paths: HOT_PATHS,
            time_max: None,
        }
    }
}

/// Why a program was not compiled.
#[derive(Debug)]
pub enum Error {
    /// The program needs something that this compiler does not have.
    Unsupported(String),
    /// A stated limit is exceeded.
    Limit {
        /// What is limited.
        what: String,
        /// The program's amount.
        found: u64,
        /// The limit.
        max: u64,
    },
    /// The bindings do not fit the program.
    Binding(String),
    /// The program calls an external function of this name that has no implementation: it can be translated, but not
    /// linked.
    Unresolved(String),
    /// Compilation takes longer than [`Options::time_max`].
    TooSlow(Duration),
    /// Cranelift failed: a bug, or it ran out of memory.
    Codegen(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Unsupported(what) => write!(f, "not supported by the compiler: {what}"),
            Error::Limit { what, found, max } => write!(f, "{what}: {found}, at most {max}"),
            Error::Binding(what) => write!(f, "the pipeline's state does not fit the program: {what}"),
            Error::Unresolved(symbol) => write!(f, "unresolved symbol: {symbol}"),
            Error::TooSlow(max) => write!(f, "compiling it to machine code takes longer than {} s", max.as_secs_f64()),
            Error::Codegen(what) => write!(f, "code generation failed: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<ModuleError> for Error {
    fn from(error: ModuleError) -> Error {
        // The short form of a compilation error does not name the cause.
        Error::Codegen(format!("{error:?}"))
    }
}

impl From<CodegenError> for Error {
    fn from(error: CodegenError) -> Error {
        Error::Codegen(error.to_string())
    }
}

/// Compiles all entry points of a verified program. The addresses in `bindings` and `calls` become constants of the
/// code and must stay valid while it runs.
///
/// # Errors
/// [`Error::Unresolved`] if the program calls an external function that has no implementation; else as [`Error`]'s
/// variants say.
pub fn compile(
    program: &Program,
    bindings: &Bindings,
    calls: &RuntimeCalls,
    options: &Options,
) -> Result<CompiledPipeline, Error> {
    compile_for(program, bindings, &Shapes::default(), &[], calls, options)
}

/// As [`compile`], specialised for tables of these `shapes`: the code may run only while the tables match them
/// (`abi::shape`). `sites` are those of other code of the same program; this code numbers its sites the same.
///
/// # Errors
/// As [`compile`].
pub fn compile_for(
    program: &Program,
    bindings: &Bindings,
    shapes: &Shapes,
    sites: &[Site],
    calls: &RuntimeCalls,
    options: &Options,
) -> Result<CompiledPipeline, Error> {
    compile_analysed(program, &Analysis::new(program, options)?, bindings, shapes, sites, calls, options)
}

/// As [`compile_for`], with an [`Analysis`] that was made from the same program and options.
///
/// # Errors
/// As [`compile`].
pub fn compile_analysed(
    program: &Program,
    analysis: &Analysis,
    bindings: &Bindings,
    shapes: &Shapes,
    sites: &[Site],
    calls: &RuntimeCalls,
    options: &Options,
) -> Result<CompiledPipeline, Error> {
    if let Some(symbol) = program.unresolved().next() {
        return Err(Error::Unresolved(symbol.to_string()));
    }
    let Generated { mut module, functions, sites, recorded, data, mut timing } =
        generate(program, analysis, bindings, shapes, sites, calls, options)?;
    timed(&mut timing.linking, || module.finalize_definitions().map_err(Error::from))?;
    let pipeline = CompiledPipeline::new(module, functions, sites, recorded, data, timing);
    if options.perf_map {
        write_perf_map(program, &pipeline);
    }
    Ok(pipeline)
}

/// Translates all entry points of a verified program to machine code and discards it, to check that it can be done.
/// Calls of external functions without an implementation remain unresolved symbols.
///
/// # Errors
/// As [`compile`], without [`Error::Unresolved`].
pub fn check(program: &Program, bindings: &Bindings, calls: &RuntimeCalls, options: &Options) -> Result<Timing, Error> {
    let analysis = Analysis::new(program, options)?;
    let generated = generate(program, &analysis, bindings, &Shapes::default(), &[], calls, options)?;
    compiled::discard(generated.module);
    Ok(generated.timing)
}

/// As [`check`]; returns the listings of the entry points' code.
///
/// # Errors
/// As [`check`].
pub fn listing(
    program: &Program,
    bindings: &Bindings,
    calls: &RuntimeCalls,
    options: &Options,
) -> Result<Vec<Listing>, Error> {
    let options = Options { keep_text: true, ..options.clone() };
    let analysis = Analysis::new(program, &options)?;
    let mut generated = generate(program, &analysis, bindings, &Shapes::default(), &[], calls, &options)?;
    compiled::discard(generated.module);
    Ok(generated.functions.iter_mut().filter_map(|f| f.listing.take()).collect())
}

/// Code that is not linked yet.
struct Generated {
    module: JITModule,
    functions: Vec<NewEntry>,
    sites: Vec<Site>,
    recorded: Vec<SlotId>,
    data: CodeData,
    timing: Timing,
}

/// The optimisations that patch instructions into the code.
const PATCHED: [Optimisation; 2] = [Optimisation::WideCompare, Optimisation::CarrylessCrc];

fn generate(
    program: &Program,
    analysis: &Analysis,
    bindings: &Bindings,
    shapes: &Shapes,
    sites: &[Site],
    calls: &RuntimeCalls,
    options: &Options,
) -> Result<Generated, Error> {
    match generate_as(program, analysis, bindings, shapes, sites, calls, options) {
        // A placeholder was encoded in an unexpected form; see `placeholder`. Code without patched instructions is
        // correct too.
        Err(Error::Codegen(_)) if PATCHED.iter().any(|patched| options.has(*patched)) => {
            let mut plain = options.clone();
            PATCHED.into_iter().for_each(|patched| plain.without.insert(patched));
            generate_as(program, analysis, bindings, shapes, sites, calls, &plain)
        }
        done => done,
    }
}

fn generate_as(
    program: &Program,
    analysis: &Analysis,
    bindings: &Bindings,
    shapes: &Shapes,
    sites: &[Site],
    calls: &RuntimeCalls,
    options: &Options,
) -> Result<Generated, Error> {
    let mut timing = Timing { analysis: analysis.took, ..Timing::default() };
    let start = Instant::now();
    let in_time = || match options.time_max {
        Some(max) if start.elapsed() + analysis.took >= max => Err(Error::TooSlow(max)),
        _ => Ok(()),
    };
    let isa = host_isa(options, Effort::Thorough)?;
    let mut module = JITModule::new(JITBuilder::with_isa(isa, cranelift_module::default_libcall_names()));
    let facts = &analysis.facts;
    let record = RecordLayout::new(program);
    // Reads of fields of invalid headers load from these zeros.
    let longest = facts.headers.iter().map(|h| h.fixed_bytes).max().unwrap_or(0);
    let zeros = vec![0u8; longest.max(8) as usize].into_boxed_slice();
    let addresses = Addresses::new(bindings, calls, options);
    let bit_vectors = AllBitVectors::default();
    let exact_index = ExactIndexes::default();
    let joins = Joins::new(program);
    let symbols = Symbols::declare(program, &mut module)?;
    let cold_calls = ColdCalls::declare(&mut module)?;
    let mut sites = sites.to_vec();
    let mut functions = Vec::new();
    let mut builder_context = FunctionBuilderContext::new();
    let mut context = module.make_context();
    context.set_disasm(options.keep_text);
    let mut control = ControlPlane::default();
    for (entry, paths) in program.entries.iter().zip(&analysis.entries) {
        in_time()?;
        let (mut entry_facts, mut flow) = paths.all.about(facts);
        let name = format!("{}::{}", program.name, entry.kind.name());
        let id = declare(&mut module, &name)?;
        let mut plan = timed(&mut timing.analysis, || {
            let plan = Plan::new(program, entry, flow, bindings, options, 1);
            match plan.is_staged() && !placement::may_stage(program, entry_facts, flow, options) {
                true => plan.unstaged(flow),
                false => plan,
            }
        });
        if let Some(hot) = &paths.hot {
            timed(&mut timing.analysis, || {
                let (hot_facts, hot) = hot.about(facts);
                let hot_plan = match plan.is_staged() {
                    true => Plan::new(program, entry, hot, bindings, options, 1 + options.hot_paths),
                    false => plan.unstaged(hot),
                };
                let may_stage = || placement::may_stage(program, hot_facts, hot, options);
                // Waiting for memory costs more than path copies save.
                if !plan.is_staged() || hot_plan.tables.is_superset(&plan.tables) && may_stage() {
                    (entry_facts, flow, plan) = (hot_facts, hot, hot_plan);
                }
            });
        }
        if !plan.is_staged() {
            plan.prefetch_pass =
                timed(&mut timing.analysis, || PrefetchPass::new(program, entry, flow, bindings, options));
        }
        let shared = Shared {
            program,
            facts: entry_facts,
            bindings,
            shapes,
            runtime: calls,
            options,
            record: &record,
            zeros: &zeros,
            addresses: &addresses,
            bit_vectors: &bit_vectors,
            exact_index: &exact_index,
            joins: &joins,
            symbols: &symbols,
            cold_calls: &cold_calls,
        };
        let (clif, map, stages) = timed(&mut timing.translation, || {
            let sites_before = sites.len();
            let (map, stages) = loop {
                context.func.signature = translate::entry_signature(module.isa().default_call_conv());
                context.func.name = UserFuncName::user(0, id.as_u32());
                let builder = FunctionBuilder::new(&mut context.func, &mut builder_context);
                let frontend = module.isa().frontend_config();
                match translate::translate(&shared, flow, &plan, entry, &mut sites, builder, frontend) {
                    // Waiting packets need stack space; one packet at a time may fit.
                    Err(Error::Limit { .. }) if plan.is_staged() => {
                        plan = plan.unstaged(flow);
                        sites.truncate(sites_before);
                        context.func.clear();
                        builder_context = FunctionBuilderContext::new();
                    }
                    done => break done?,
                }
            };
            unused::remove(&mut context.func);
            Ok::<_, Error>((options.keep_text.then(|| context.func.display().to_string()), map, stages))
        })?;
        in_time()?;
        let instructions = context.func.dfg.num_insts();
        let (size, asm) = timed(&mut timing.codegen, || {
            let thorough = instructions <= options.thorough_instructions_max;
            define(&mut module, id, &mut context, &mut control, options, thorough)?;
            let code = context.compiled_code().expect("just compiled");
            Ok::<_, Error>((code.code_buffer().len(), code.vcode.clone()))
        })?;
        let code = context.compiled_code().expect("just compiled");
        let code_ranges = map.as_ref().map(|p| p.of_code(code.buffer.get_srclocs_sorted(), size as u32));
        let named = match &map {
            Some(map) if options.watched => Named { serial: map.serial, locations: map.list.clone() },
            _ => Named::default(),
        };
        let mut listed = code.code_buffer().to_vec();
        placeholder::patch(&mut listed, code.buffer.traps())?;
        let listing = clif.as_ref().zip(map).map(|(clif, map)| Listing {
            kind: entry.kind,
            code: listed,
            locations: code_ranges.clone().unwrap_or_default(),
            clif: clif.clone(),
            numbered: map.list,
            stages: stages.clone(),
            vcode: asm.clone().unwrap_or_default(),
        });
        module.clear_context(&mut context);
        context.set_disasm(options.keep_text);
        let locations = code_ranges.unwrap_or_default();
        functions.push(NewEntry {
            kind: entry.kind,
            id,
            size,
            instructions,
            stages,
            has_prefetch_pass: plan.prefetch_pass.is_some(),
            clif,
            asm,
            locations,
            named,
            listing,
        });
    }
    timed(&mut timing.codegen, || {
        context.set_disasm(false);
        cold_calls.define(&mut module, &mut context, |module, id, context| {
            define(module, id, context, &mut control, options, true)
        })
    })?;
    let bit_vectors = bit_vectors.into_inner().into_iter().map(|(_, bit_vectors)| bit_vectors).collect();
    let exact_index = exact_index.into_inner().into_iter().filter_map(|(_, exact_index)| exact_index).collect();
    let data = CodeData {
        _zeros: zeros,
        _addresses: addresses,
        _bit_vectors: bit_vectors,
        _exact_indexes: exact_index,
        _prefilters: shapes.tables.iter().filter_map(|shape| shape.prefilter.clone()).collect(),
        _rows: joins.into_memory(),
    };
    Ok(Generated { module, functions, sites, recorded: facts.recorded(), data, timing })
}

fn timed<T>(total: &mut Duration, f: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = f();
    *total += start.elapsed();
    result
}

/// Compiles a function and adds its code to the module. See [`THOROUGH_INSTRUCTIONS_MAX`] for large functions.
fn define(
    module: &mut JITModule,
    id: FuncId,
    context: &mut cranelift_codegen::Context,
    control: &mut ControlPlane,
    options: &Options,
    thorough: bool,
) -> Result<(), Error> {
    let failed = |e: CompileError<'_>| Error::Codegen(format!("{:?}", e.inner));
    if thorough {
        context.compile(module.isa(), control).map_err(failed)?;
    } else {
        context.compile(&*host_isa(options, Effort::Linear)?, control).map_err(failed)?;
    }
    let code = context.compiled_code().expect("just compiled");
    let alignment = u64::from(code.buffer.alignment);
    let relocs = code.buffer.relocs().iter().map(|r| ModuleReloc::from_mach_reloc(r, &context.func, id));
    let relocs: Vec<ModuleReloc> = relocs.collect();
    let mut bytes = code.code_buffer().to_vec();
    placeholder::patch(&mut bytes, code.buffer.traps())?;
    Ok(module.define_function_bytes(id, alignment, &bytes, &relocs)?)
}

/// How much time code generation may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effort {
    /// The best code, at any cost.
    Thorough,
    /// Time proportional to the function's size.
    Linear,
}

fn host_isa(options: &Options, effort: Effort) -> Result<OwnedTargetIsa, Error> {
    let mut flags = settings::builder();
    let verify = if options.verify { "true" } else { "false" };
    let (opt_level, allocator) = match effort {
        Effort::Thorough => (options.opt_level, "backtracking"),
        Effort::Linear => (OptLevel::None, "single_pass"),
    };
    let settings = [
        ("opt_level", opt_level.name()),
        ("regalloc_algorithm", allocator),
        ("enable_verifier", verify),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
        // A frame with wide values may be longer than the stack's guard page.
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
        // Profilers unwind through compiled code by frame pointers.
        ("preserve_frame_pointers", "true"),
    ];
    for (name, value) in settings {
        flags.set(name, value).map_err(|e| Error::Codegen(e.to_string()))?;
    }
    let isa = cranelift_native::builder().map_err(|e| Error::Unsupported(format!("this machine: {e}")))?;
    Ok(isa.finish(settings::Flags::new(flags))?)
}

/// Declares the function of an entry point.
fn declare(module: &mut JITModule, name: &str) -> Result<FuncId, Error> {
    let signature = translate::entry_signature(module.isa().default_call_conv());
    Ok(module.declare_function(name, Linkage::Export, &signature)?)
}

/// Writes the names of the code's parts for `perf`. If the file cannot be written, `perf` shows no names; that is no
/// error.
fn write_perf_map(program: &Program, pipeline: &CompiledPipeline) {
    use std::io::Write;
    let path = format!("/tmp/perf-{}.map", std::process::id());
    let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path) else { return };
    for kind in EntryKind::ALL {
        if let Some((start, size)) = pipeline.code_range(kind) {
            let (name, entry) = (&program.name, kind.name());
            for (from, to, region) in pipeline.regions(kind) {
                let _ = writeln!(file, "{:x} {:x} sluice/{name}/{entry}/{region}", start + from, to - from);
            }
            if pipeline.regions(kind).is_empty() {
                let _ = writeln!(file, "{start:x} {size:x} sluice/{name}/{entry}");
            }
        }
    }
}
