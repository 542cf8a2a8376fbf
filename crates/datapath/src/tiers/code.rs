//! All machine code of a pipeline: generic, baseline and specialised code, and retired code that workers may still
//! run.
//!
//! - *Generic* code is correct for any table contents. It is compiled quickly when the program is loaded, while
//!   tables are empty, and always stays available.
//! - *Baseline* code is as general and replaces generic code: it is compiled with full effort, and staged where
//!   tables are large. Packets run it while tables change, which may take seconds.
//! - *Specialised* code is correct while the domain's generation is the one under which its shapes were taken
//!   (`tables::reclaim`). [`Code::recompile`] makes it; never on a worker, one at a time.
//!
//! Specialised code is compiled in two steps ([`Effort`]): first as quickly as possible, so that packets run generic
//! code only briefly; then with full effort, including hot paths. The first step compiles only the entry point for
//! received packets. The replication engine runs generic code meanwhile, so records in between hold what generic code
//! needs (`opt::ingress_only`).
//!
//! A worker chooses code once per batch ([`Choice`]), which costs two loads. So a table write never waits for a
//! compilation, and the next batch sees it, by running generic or baseline code.
//!
//! While someone watches, all newly compiled code, baseline code included, counts actions and reports its position
//! (`counting`); generic code never does.
//!
//! Code is freed by the thread that recompiles or does housekeeping, after the last worker has released it: workers
//! hold code by `Arc`, and so does `retired`, so a worker never drops the last reference.
//!
//! Tests: `tests/recompile.rs`.

use super::assume::assumed;
use super::counting::counting;
use super::prepared::Preparations;
use crate::calls::CALLS;
use crate::pipeline::{CodeInfo, PhaseInfo, Spot};
use crate::state::{Activity, FastState};
use crate::switches::CodeOptions;
use abi::packet::PipelineFn;
use abi::{EngineKind, Prefilter, Shapes, TableBinding, TableShape};
use arc_swap::ArcSwapOption;
use base::entry::MatchKind;
use base::ids::TableId;
use ir::{EntryKind, Program};
use jit::CompiledPipeline;
use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use tables::Wanted;

/// The functions of the entry points, by position in `EntryKind::ALL`.
pub(super) type Entries = [Option<PipelineFn>; EntryKind::ALL.len()];

/// What code may be specialised for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Specialise {
    /// Nothing: generic or baseline code runs.
    Off,
    /// Addresses, sizes and default entries of tables, and prefilters: assumptions that survive changes of entries.
    Constants,
    /// Also the entries of small tables, in every compilation.
    Contents,
    /// Also the entries of small tables that do not change too often.
    #[default]
    Auto,
}

/// How much time a compilation may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effort {
    /// A few milliseconds: the first step.
    Quick,
    /// Twice that or more: separate code for hot packets (`jit::Options::hot_paths`).
    Full,
}

/// Specialised or baseline code.
pub(super) struct Special {
    code: CompiledPipeline,
    entries: Entries,
    /// The generation under which it may run; `None` if it is correct for any tables.
    generation: Option<u64>,
    /// Tables whose entries are part of it.
    contents: BTreeSet<TableId>,
    /// The prefilters it uses for tables whose entries may change, and whether [`Code::take_worn`] has reported one
    /// of them.
    prefilters: Vec<Arc<Prefilter>>,
    told_worn: AtomicBool,
}

impl Special {
    /// Whether a batch that starts now may run it.
    fn holds(&self, fast: &FastState) -> bool {
        self.generation.is_none_or(|generation| generation == fast.generation())
    }
}

/// Failed compilations. Packets keep running other code, so nobody would notice otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Failures {
    /// Their number.
    count: u64,
    /// Why the last one failed, if none has succeeded since.
    last: Option<String>,
}

impl Failures {
    /// Records the result of a compilation; logs an error unless the previous failure had the same.
    fn note(&mut self, result: Result<(), &String>) {
        match result {
            Ok(()) => self.last = None,
            Err(error) => {
                self.count += 1;
                if self.last.as_ref() != Some(error) {
                    tracing::warn!("code for the tables as they are cannot be made, packets run other code: {error}");
                    self.last = Some(error.clone());
                }
            }
        }
    }
}

/// All code of a pipeline.
pub(super) struct Code {
    pub(super) program: Arc<Program>,
    pub(super) fast: Arc<FastState>,
    options: jit::Options,
    passes: opt::Options,
    specialise_actions: bool,
    /// By table: which facts about its entries may become part of the code.
    wanted: Vec<Wanted>,
    generic: Arc<CompiledPipeline>,
    generic_entries: Entries,
    /// The program reduced to the entry point that quick code has; `None` inside if it cannot be reduced.
    alone: OnceLock<Option<Arc<Program>>>,
    prepared: Preparations,
    special: ArcSwapOption<Special>,
    /// Whether new code is compiled to count actions and report its position.
    watched: AtomicBool,
    /// The program with action counters, made when first watched.
    counted: OnceLock<Arc<Program>>,
    /// Baseline code, which replaces generic code once it exists.
    baseline: ArcSwapOption<Special>,
    /// Whether `watched` has changed since the tuner last checked.
    watch_changed: AtomicBool,
    /// How often `special` or `baseline` was replaced.
    published: AtomicU64,
    /// How often `special` was replaced.
    compiled: AtomicU64,
    /// Replaced code that workers may still hold. Also the lock that serialises compilations.
    retired: Mutex<Vec<Arc<Special>>>,
    last_ns: AtomicU64,
    failures: Mutex<Failures>,
}

/// The message of a panic.
fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the compiler panicked: {}", text.unwrap_or("no reason given"))
}

fn entries(code: &CompiledPipeline) -> Entries {
    EntryKind::ALL.map(|kind| code.entry(kind))
}

/// Most entries of a table that may become part of the code.
fn entries_max(table: &ir::Table, binding: &TableBinding, may_be_joined: bool) -> u64 {
    let engine = binding.engine;
    let is_short = binding.key.bytes as usize <= 8 * jit::KEY_WORDS_MAX;
    let has = |kind| table.keys.iter().any(|k| k.kind == kind);
    if has(MatchKind::Ternary) || has(MatchKind::Optional) {
        let bits: usize = table.keys.iter().map(|k| (k.width as usize).next_multiple_of(8)).sum();
        if bits <= 8 * jit::COLUMNS_MAX { super::RULES_MAX } else { super::WIDE_RULES_MAX }
    } else if has(MatchKind::Lpm) {
        super::PREFIXES_MAX
    } else if engine == EngineKind::ExactInline || engine == EngineKind::Opaque && is_short {
        super::KEYED_MAX
    } else if may_be_joined && engine == EngineKind::DirectIndex && table.keys.len() == 1 {
        super::POSITIONS_MAX
    } else if may_be_joined && engine == EngineKind::DirectIndex || table.keys.len() == 1 {
        super::JOINED_MAX
    } else {
        super::EXACT_MAX
    }
}

/// The options without slow optimisations.
fn quick(options: &jit::Options) -> jit::Options {
    jit::Options { hot_paths: 0, ..options.clone() }
}

/// As [`quick`], without Cranelift's own passes, which saves six sevenths of the time for a fiftieth of the speed:
/// for code that better code replaces at once.
fn quickest(options: &jit::Options) -> jit::Options {
    jit::Options { opt_level: jit::OptLevel::None, ..quick(options) }
}

impl Code {
    pub(super) fn new(program: Arc<Program>, fast: Arc<FastState>, options: &CodeOptions) -> Result<Code, jit::Error> {
        let CodeOptions { jit: options, passes, specialise_actions } = options.clone();
        let bindings = fast.bindings();
        let generic = jit::compile(&program, &bindings, &CALLS, &quick(&options))?;
        let tables = program.tables.iter().zip(&bindings.tables);
        let joins = jit::driving_tables(&program).into_iter().zip(jit::joined(&program));
        let wanted = tables.zip(joins).map(|((table, binding), (is_head, may_be_joined))| Wanted {
            entries_max: Some(entries_max(table, binding, may_be_joined)),
            results: is_head,
            prefilter: binding.engine == EngineKind::Opaque && !table.keys.iter().all(|k| k.kind == MatchKind::Exact),
        });
        Ok(Code {
            wanted: wanted.collect(),
            program,
            fast,
            options,
            passes,
            specialise_actions,
            generic_entries: entries(&generic),
            generic: Arc::new(generic),
            alone: OnceLock::new(),
            prepared: Preparations::default(),
            special: ArcSwapOption::empty(),
            watched: AtomicBool::new(false),
            counted: OnceLock::new(),
            baseline: ArcSwapOption::empty(),
            watch_changed: AtomicBool::new(false),
            published: AtomicU64::new(0),
            compiled: AtomicU64::new(0),
            retired: Mutex::default(),
            last_ns: AtomicU64::new(0),
            failures: Mutex::default(),
        })
    }

    /// The generic code.
    pub(super) fn generic(&self) -> &Arc<CompiledPipeline> {
        &self.generic
    }

    /// A change count for tables whose entries (all of them, or what they share) may become part of the code; `None`
    /// for others.
    pub(super) fn changes(&self, table: TableId, activity: &Activity) -> Option<u64> {
        let wanted = self.wanted[table.index()];
        if self.program.tables[table.index()].keys.iter().any(|k| k.kind == MatchKind::Range) {
            return None;
        }
        match activity.contents {
            _ if wanted.entries_max.is_some_and(|max| activity.len <= max) => Some(activity.changes),
            Some((_, changes)) if wanted.results => Some(changes),
            _ => None,
        }
    }

    /// Compiles specialised code for the current tables and publishes it. The entries of tables for which `contents`
    /// holds become part of it if they are small and `mode` allows it. Returns how long it took; `None` if it failed,
    /// which is logged and reported by [`Code::info`].
    pub(super) fn recompile(
        &self,
        mode: Specialise,
        effort: Effort,
        contents: impl Fn(TableId) -> bool,
    ) -> Option<Duration> {
        // Code is published only when complete, and poisoned locks are tolerated, so a compiler panic is contained
        // here.
        let compile = AssertUnwindSafe(|| self.compile_and_publish(mode, effort, contents));
        let result = catch_unwind(compile).map_err(panic_text).and_then(|result| result.map_err(|e| e.to_string()));
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.note(result.as_ref().map(|_| ()));
        result.ok()
    }

    fn compile_and_publish(
        &self,
        mode: Specialise,
        effort: Effort,
        contents: impl Fn(TableId) -> bool,
    ) -> Result<Duration, jit::Error> {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        let with_contents = matches!(mode, Specialise::Contents | Specialise::Auto);
        let wanted = |table: TableId| {
            let all = self.wanted[table.index()];
            // Assumptions that survive changes of entries.
            let lasting = Wanted { entries_max: None, results: false, ..all };
            Some(if with_contents && contents(table) { all } else { lasting })
        };
        let (generation, mut shapes) = match mode {
            Specialise::Off => (None, Shapes::default()),
            _ => {
                let (generation, shapes) = self.fast.shapes(wanted);
                (Some(generation), shapes)
            }
        };
        // Prefilters of known entries are made here, where no writer waits.
        for (shape, _) in shapes.tables.iter_mut().zip(&self.wanted).filter(|(_, wanted)| wanted.prefilter) {
            shape.prefilter = shape.prefilter.take().or_else(|| tables::prefilter::of_known(shape));
        }
        let does_not_stay = effort == Effort::Quick && self.could_be_better();
        let options = if does_not_stay { quickest(&self.options) } else { self.options.clone() };
        let (program, options) = self.as_watched(options);
        // Generic code does not count or report, so watched code cannot be combined with it except where queues
        // demand it.
        let watched_alone = self.beside_generic(program, &options);
        let alone = match does_not_stay && !options.watched {
            true => self.alone(),
            false => watched_alone.as_ref(),
        };
        let program = alone.unwrap_or(program);
        let mut bindings = self.fast.bindings();
        let is_known = |shape: &TableShape| shape.rules.is_some() || shape.prefilter.is_some();
        for (binding, _) in bindings.tables.iter_mut().zip(&shapes.tables).filter(|(_, shape)| is_known(shape)) {
            // Lookups touch little memory of such a table: staging them is not worthwhile.
            binding.footprint_bytes = 0;
        }
        let layouts = bindings.tables.iter().map(|t| &t.key);
        let known = |(shape, key)| assumed(shape, key).filter(|_| self.specialise_actions);
        let known: Vec<_> = shapes.tables.iter().zip(layouts).map(known).collect();
        let special = self.prepared.get(program, known, &options, &self.passes)?;
        let (analysis, sites) = (&special.analysis, self.generic.sites());
        let code = jit::compile_analysed(&special.program, analysis, &bindings, &shapes, sites, &CALLS, &options)?;
        let contents = shapes.tables.iter().enumerate().filter(|(_, t)| t.rules.is_some());
        let contents = contents.map(|(i, _)| TableId::from_index(i)).collect();
        let mut entries = entries(&code);
        if alone.is_some() {
            let others = entries.iter_mut().zip(&self.generic_entries);
            others.for_each(|(entry, generic)| *entry = entry.or(*generic));
        }
        let changing = shapes.tables.into_iter().filter(|shape| shape.rules.is_none());
        let prefilters = changing.filter_map(|shape| shape.prefilter).collect();
        let new = Special { entries, code, generation, contents, prefilters, told_worn: AtomicBool::new(false) };
        // These stores come first, so that a reader who sees the code also sees them.
        let took = start.elapsed();
        self.last_ns.store(took.as_nanos() as u64, Ordering::Relaxed);
        self.compiled.fetch_add(1, Ordering::Relaxed);
        retired.extend(self.special.swap(Some(Arc::new(new))));
        self.published.fetch_add(1, Ordering::Release);
        retired.retain(|code| Arc::strong_count(code) > 1);
        Ok(took)
    }

    /// The program reduced to the entry point that quick code has.
    fn alone(&self) -> Option<&Arc<Program>> {
        let alone = || opt::ingress_only(&self.program, self.generic.recorded(), &self.passes).map(Arc::new);
        self.alone.get_or_init(alone).as_ref()
    }

    /// For programs with queues: the program reduced to what runs beside the entry points of generic code for the
    /// replication engine. Those must stay: a packet that waits in a queue may continue in other code, which must be
    /// able to read its record.
    fn beside_generic(&self, program: &Arc<Program>, options: &jit::Options) -> Option<Arc<Program>> {
        if !program.queues {
            return None;
        }
        match options.watched {
            false => self.alone().cloned(),
            true => opt::ingress_only(program, self.generic.recorded(), &self.passes).map(Arc::new),
        }
    }

    /// The program and options to compile now, which differ while watched.
    fn as_watched(&self, options: jit::Options) -> (&Arc<Program>, jit::Options) {
        match self.watched.load(Ordering::Relaxed) {
            false => (&self.program, options),
            true => {
                let counted = self.counted.get_or_init(|| Arc::new(counting(&self.program)));
                (counted, jit::Options { watched: true, ..options })
            }
        }
    }

    /// Sets whether code counts actions and reports its position. Returns once baseline code that does is installed;
    /// specialised code follows.
    pub(super) fn watch(&self, on: bool) {
        if self.watched.swap(on, Ordering::Relaxed) == on {
            return;
        }
        self.install_baseline(on.then(|| quick(&self.options)));
        self.watch_changed.store(true, Ordering::Release);
    }

    /// Compiles and installs baseline code with full effort, for the tables' current sizes.
    pub(super) fn make_baseline(&self) {
        self.install_baseline(Some(self.options.clone()));
    }

    /// Installs baseline code compiled with these options, or removes it.
    fn install_baseline(&self, options: Option<jit::Options>) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let compile = |options| {
            let (program, options) = self.as_watched(options);
            let sites = self.generic.sites();
            let alone = self.beside_generic(program, &options);
            let program = alone.as_ref().unwrap_or(program);
            let code = jit::compile_for(program, &self.fast.bindings(), &Shapes::default(), sites, &CALLS, &options)?;
            let mut all = entries(&code);
            if alone.is_some() {
                all.iter_mut().zip(&self.generic_entries).for_each(|(entry, generic)| *entry = entry.or(*generic));
            }
            Ok::<_, jit::Error>((code, all))
        };
        let made = options.and_then(|options| {
            let compile = AssertUnwindSafe(|| compile(options));
            let made = catch_unwind(compile).map_err(panic_text).and_then(|code| code.map_err(|e| e.to_string()));
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            failures.note(made.as_ref().map(|_| ()));
            made.ok()
        });
        let new = made.map(|(code, entries)| Special {
            entries,
            code,
            generation: None,
            contents: BTreeSet::new(),
            prefilters: Vec::new(),
            told_worn: AtomicBool::new(false),
        });
        retired.extend(self.baseline.swap(new.map(Arc::new)));
        self.published.fetch_add(1, Ordering::Release);
        retired.retain(|code| Arc::strong_count(code) > 1);
    }

    /// Whether watching has started or stopped since the last call.
    pub(super) fn take_watch_change(&self) -> bool {
        self.watch_changed.swap(false, Ordering::Acquire)
    }

    /// The parts of the program at these spots; `None` for code that was freed meanwhile.
    pub(super) fn regions(&self, spots: &[Spot]) -> Vec<Option<String>> {
        let retired = match self.retired.try_lock() {
            Ok(retired) => retired.clone(),
            Err(TryLockError::Poisoned(retired)) => retired.into_inner().clone(),
            // A compilation holds the lock. It is short enough that samples in retired code do not matter.
            Err(TryLockError::WouldBlock) => Vec::new(),
        };
        let all: Vec<Arc<Special>> =
            [self.special.load_full(), self.baseline.load_full()].into_iter().flatten().chain(retired).collect();
        let region = |spot: &Spot| all.iter().find_map(|special| special.code.region_at(spot.pc, spot.place));
        spots.iter().map(|spot| region(spot).map(str::to_string)).collect()
    }

    /// Whether a full-effort compilation gives better code than a quick one. If so, quick code is compiled with even
    /// less effort, since it will be replaced.
    pub(super) fn could_be_better(&self) -> bool {
        self.options.has_hot_paths()
    }

    /// Whether a prefilter of the running code has become ineffective, so that code with a new one would be better.
    /// Reported only once per code, since a new prefilter may not be better.
    pub(super) fn take_worn(&self) -> bool {
        let special = self.special.load();
        let Some(special) = special.as_ref() else { return false };
        special.prefilters.iter().any(|p| tables::prefilter::needs_rebuild(p))
            && !special.told_worn.swap(true, Ordering::Relaxed)
    }

    /// Frees code that no worker holds any more.
    pub(super) fn collect(&self) {
        // If a compilation holds the lock, it will free retired code itself.
        if let Ok(mut retired) = self.retired.try_lock() {
            retired.retain(|code| Arc::strong_count(code) > 1);
        }
    }

    /// The generation under which the latest specialised code may run.
    pub(super) fn generation(&self) -> Option<u64> {
        self.special.load().as_ref().and_then(|special| special.generation)
    }

    /// The log and assertion sites, the same in all code of the pipeline.
    pub(super) fn sites(&self) -> &[jit::Site] {
        self.generic.sites()
    }

    /// The phases of staged code.
    fn phases(&self, code: &CompiledPipeline) -> Vec<PhaseInfo> {
        let name = |table: TableId| self.program.tables[table.index()].name.clone();
        let of_entry = |entry: &EntryKind| {
            let phases = code.stages(*entry).map_or(&[][..], |stages| &stages.phases);
            let waiting = phases.iter().zip(0..).filter_map(|(phase, number)| {
                let waits_for = name(phase.waits_for?);
                let begun_with = phase.begun_with.iter().copied().map(name).collect();
                Some(PhaseInfo { entry: *entry, number, waits_for, begun_with, row_bytes: phase.row_bytes })
            });
            waiting.collect::<Vec<_>>()
        };
        EntryKind::ALL.iter().flat_map(of_entry).collect()
    }

    /// Information for the operator.
    pub(super) fn info(&self) -> CodeInfo {
        let name = |t: &TableId| self.program.tables[t.index()].name.clone();
        let running = self.special.load_full().filter(|special| special.holds(&self.fast));
        let baseline = self.baseline.load_full();
        let code = running.as_ref().or(baseline.as_ref()).map_or(&*self.generic, |special| &special.code);
        let phases = EntryKind::ALL.iter().filter_map(|kind| code.phases(*kind)).max().unwrap_or(1);
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        CodeInfo {
            specialised: running.as_ref().is_some_and(|special| special.generation.is_some()),
            strategy: match phases {
                0 | 1 if EntryKind::ALL.iter().any(|kind| code.has_prefetch_pass(*kind)) => {
                    "run to completion, registers prefetched".to_string()
                }
                0 | 1 => "run to completion".to_string(),
                phases => format!("staged in {phases} phases"),
            },
            phases: self.phases(code),
            compiled: self.compiled.load(Ordering::Relaxed),
            last: Duration::from_nanos(self.last_ns.load(Ordering::Relaxed)),
            code_bytes: code.code_size() as u64,
            prefilters: running.as_ref().map_or(0, |special| special.prefilters.len()),
            contents: running.map_or_else(Vec::new, |s| s.contents.iter().map(name).collect()),
            failed: failures.count,
            error: failures.last,
        }
    }
}

/// One worker's choice of code for a batch.
pub(super) struct Choice {
    code: Arc<Code>,
    /// The functions of specialised code, and the generation under which they may run.
    special: Option<(u64, Entries)>,
    /// The functions of code that is correct for any tables.
    others: Entries,
    /// Keeps these functions' code mapped; generic code is kept by `code`.
    held: [Option<Arc<Special>>; 2],
    /// `Code::published` when the above were read.
    seen: u64,
    /// Whether the current batch runs `special`; `None` before it has chosen.
    chosen: Option<bool>,
}

impl Choice {
    pub(super) fn new(code: Arc<Code>) -> Choice {
        Choice { special: None, others: code.generic_entries, code, held: [None, None], seen: 0, chosen: None }
    }

    /// The function of an entry point. The first call in a batch chooses the code for the whole batch, because a
    /// record written by one entry point can be read only by entry points of the same code. The worker must be
    /// online.
    #[inline]
    pub(super) fn entry(&mut self, kind: EntryKind) -> PipelineFn {
        let is_special = match self.chosen {
            Some(chosen) => chosen,
            None => self.choose(),
        };
        self.chosen = Some(is_special);
        let entries = match &self.special {
            Some((_, entries)) if is_special => entries,
            _ => &self.others,
        };
        entries[kind as usize].expect("the program has this entry")
    }

    #[inline]
    fn choose(&mut self) -> bool {
        let published = self.code.published.load(Ordering::Acquire);
        if published != self.seen {
            self.take(published);
        }
        self.special.is_some_and(|(generation, _)| generation == self.code.fast.generation())
    }

    #[cold]
    fn take(&mut self, published: u64) {
        let (special, baseline) = (self.code.special.load_full(), self.code.baseline.load_full());
        let for_any = [special.as_ref().filter(|s| s.generation.is_none()), baseline.as_ref()];
        self.others = for_any.into_iter().flatten().next().map_or(self.code.generic_entries, |code| code.entries);
        self.special = special.as_ref().and_then(|s| Some((s.generation?, s.entries)));
        self.held = [special, baseline];
        self.seen = published;
    }

    /// Ends the batch.
    #[inline]
    pub(super) fn end(&mut self) {
        self.chosen = None;
    }
}

// `Entries` is indexed by the kind's discriminant.
const _: () = {
    let mut i = 0;
    while i < EntryKind::ALL.len() {
        assert!(EntryKind::ALL[i] as usize == i);
        i += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_ENTRY_POINTS: &str = r#"program "two entry points"
drops unknown
slot h.k: 8 field h
slot h.$valid: 1 valid h
slot %ok: 1 temp
slot %h: 1 temp
slot %a: 32 temp
slot %e: 64 temp
slot %d: 64 temp
header h valid h.$valid {
  k = h.k
}
action unknown ()
table t {
  key h.k: 8 exact
  action unknown
  default 0 ()
  size 64
}
entry ingress (p, c)
entry egress (d)
stage parser p {
b0:
  %ok = has_bits 32w8
  branch %ok, b1, b2
b1:
  extract h
  next
b2:
  drop unknown
}
stage control c {
b0:
  %h, %a, %e, %d = apply t (h.k)
  send 32w1
}
stage deparser d {
b0:
  emit h
  send 32w2
}
"#;

    /// A record can be read only by entry points of the code that wrote it.
    #[test]
    fn a_batch_has_all_its_entries_from_the_code_that_it_began_with() {
        let program = Arc::new(ir::parse(TWO_ENTRY_POINTS, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}")));
        let fast = Arc::new(FastState::new(Arc::clone(&program), 1).expect("a small state"));
        let code = Arc::new(Code::new(program, Arc::clone(&fast), &CodeOptions::default()).expect("it compiles"));
        let mut choice = Choice::new(Arc::clone(&code));
        let mut batch = |between: &dyn Fn()| {
            let ingress = choice.entry(EntryKind::Ingress);
            between();
            let egress = choice.entry(EntryKind::Egress);
            choice.end();
            [ingress, egress].map(|entry| entry as usize)
        };
        let in_order = |entries: &Entries| {
            [EntryKind::Ingress, EntryKind::Egress].map(|kind| entries[kind as usize].expect("it has both") as usize)
        };
        let made = || code.special.load_full().expect("it was made");
        let recompile = |mode| _ = code.recompile(mode, Effort::Full, |_| true).expect("it compiles");

        assert_eq!(batch(&|| recompile(Specialise::Contents)), in_order(&code.generic_entries));
        let for_contents = made();
        assert_eq!(batch(&|| fast.domain().invalidate()), in_order(&for_contents.entries));
        assert_eq!(batch(&|| recompile(Specialise::Contents)), in_order(&code.generic_entries));
        let for_contents = made();
        assert_eq!(batch(&|| recompile(Specialise::Off)), in_order(&for_contents.entries));
        let for_any = made();
        assert_eq!(batch(&|| fast.domain().invalidate()), in_order(&for_any.entries));
        assert_eq!(batch(&|| code.make_baseline()), in_order(&for_any.entries));
        recompile(Specialise::Contents);
        let for_contents = made();
        assert_eq!(batch(&|| fast.domain().invalidate()), in_order(&for_contents.entries));
        let baseline = code.baseline.load_full().expect("it was made");
        assert_eq!(batch(&|| ()), in_order(&baseline.entries));
    }

    #[test]
    fn failures_are_counted_and_the_last_one_stands_until_a_success() {
        let mut failures = Failures::default();
        let error = "too large".to_string();
        failures.note(Err(&error));
        failures.note(Err(&error));
        assert_eq!(failures, Failures { count: 2, last: Some(error) });
        failures.note(Ok(()));
        assert_eq!(failures, Failures { count: 2, last: None });
    }

    #[test]
    fn a_panic_is_told_by_its_text() {
        let panic = catch_unwind(|| panic!("no register {}", 17)).expect_err("it panics");
        assert_eq!(panic_text(panic), "the compiler panicked: no register 17");
        let panic = catch_unwind(|| panic!("nothing to add")).expect_err("it panics");
        assert_eq!(panic_text(panic), "the compiler panicked: nothing to add");
    }
}
