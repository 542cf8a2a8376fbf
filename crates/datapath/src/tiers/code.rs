//! The code of a pipeline: what runs always, what was compiled last for the tables as they are, and what workers may
//! still run.
//!
//! - *Generic* code is right for all tables at all times. It is there first and stays; it is made quickly, when tables are empty.
//! - *Baseline* code is as right as that, and takes its place: it is made with all effort and staged where tables are large. It
//!   is what packets run while tables grow, which may be for seconds.
//! - *Specialised* code is right while the domain's number is the one that its shapes were taken under
//!   (`tables::reclaim`). [`Code::recompile`] makes it; never on a worker, one at a time.
//!
//! Specialised code is made in two steps ([`Effort`]): as soon as possible, so that packets do not run generic code for
//! longer than they must, and then with more code for the packets that a program is written for. The first step makes only
//! the entry for packets from ports; what the replication engine runs is the generic code's meanwhile, and the records between them
//! hold what that needs (`opt::ingress_alone`).
//!
//! A worker chooses once per batch ([`Choice`]): two loads. So a change never waits for a compilation, and the next batch
//! after it sees it, through generic code.
//!
//! While somebody watches, all code that is made counts actions and says where it is (`counting`), baseline code
//! too; generic code is never like that.
//!
//! Code is freed by whoever recompiles or keeps house, after the last worker has let go of it: workers hold it by `Arc`,
//! and so does `retired`, so a worker's is never the last.
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

/// Functions by position in `EntryKind::ALL`.
pub(super) type Entries = [Option<PipelineFn>; EntryKind::ALL.len()];

/// What code may be made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Specialise {
    /// Nothing: generic code runs.
    Off,
    /// Addresses, sizes and default entries of tables, and prefilters: what lasts while entries change.
    Constants,
    /// Also the entries of tiny tables, each time.
    Contents,
    /// Also the entries of tiny tables that do not change too often.
    #[default]
    Auto,
}

/// How long compiling may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effort {
    /// A few milliseconds.
    Quick,
    /// Twice that or more, for code of their own for hot packets (`jit::Options::hot_paths`).
    Full,
}

/// Code for tables as they were.
pub(super) struct Special {
    code: CompiledPipeline,
    entries: Entries,
    /// The number under which it may run; `None` if it is right for any tables.
    generation: Option<u64>,
    /// Tables whose entries are part of it.
    contents: BTreeSet<TableId>,
    /// Those that it asks while entries change, and whether somebody was told that one is worn.
    prefilters: Vec<Arc<Prefilter>>,
    told_worn: AtomicBool,
}

impl Special {
    /// Whether a batch that begins now may run it.
    fn holds(&self, fast: &FastState) -> bool {
        self.generation.is_none_or(|generation| generation == fast.generation())
    }
}

/// Compilations that came to nothing. Packets run generic code then, so nobody would notice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Failures {
    /// How many there were.
    count: u64,
    /// Why the last one failed, if none has succeeded since.
    last: Option<String>,
}

impl Failures {
    /// Notes how a compilation ended, and tells the log of the first failure of each kind.
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
    /// By table: what of its entries may be part of the code.
    wanted: Vec<Wanted>,
    generic: Arc<CompiledPipeline>,
    generic_entries: Entries,
    /// The program without what the generic code does in place of quick code; `None` if there is no such thing.
    alone: OnceLock<Option<Arc<Program>>>,
    prepared: Preparations,
    special: ArcSwapOption<Special>,
    /// Whether somebody watches: then all code that is made counts actions and says where it is.
    watched: AtomicBool,
    /// The program that counts, once somebody has watched.
    counted: OnceLock<Arc<Program>>,
    /// What runs in place of the generic code, if anything.
    baseline: ArcSwapOption<Special>,
    /// Whether `watched` has changed since the tuner last asked.
    watch_changed: AtomicBool,
    /// How often `special` or `baseline` was exchanged.
    published: AtomicU64,
    /// How often `special` was.
    compiled: AtomicU64,
    /// Code that workers may still hold. Held while compiling, too.
    retired: Mutex<Vec<Arc<Special>>>,
    last_ns: AtomicU64,
    failures: Mutex<Failures>,
}

/// What a panic said.
fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the compiler panicked: {}", text.unwrap_or("no reason given"))
}

fn entries(code: &CompiledPipeline) -> Entries {
    EntryKind::ALL.map(|kind| code.entry(kind))
}

/// How many entries of a table may be part of the code.
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

/// The options without what takes long.
fn quick(options: &jit::Options) -> jit::Options {
    jit::Options { hot_paths: 0, ..options.clone() }
}

/// The same, and without Cranelift's own passes, a seventh of the time for a fiftieth of the speed: for code that better code
/// follows at once.
fn quickest(options: &jit::Options) -> jit::Options {
    jit::Options { opt_level: jit::OptLevel::None, ..quick(options) }
}

impl Code {
    pub(super) fn new(program: Arc<Program>, fast: Arc<FastState>, options: &CodeOptions) -> Result<Code, jit::Error> {
        let CodeOptions { jit: options, passes, specialise_actions } = options.clone();
        let bindings = fast.bindings();
        let generic = jit::compile(&program, &bindings, &CALLS, &quick(&options))?;
        let tables = program.tables.iter().zip(&bindings.tables);
        let joins = jit::heads(&program).into_iter().zip(jit::joined(&program));
        let wanted = tables.zip(joins).map(|((table, binding), (is_head, may_be_joined))| Wanted {
            entries_max: Some(entries_max(table, binding, may_be_joined)),
            answers: is_head,
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

    /// The code that is always right.
    pub(super) fn generic(&self) -> &Arc<CompiledPipeline> {
        &self.generic
    }

    /// For tables whose entries may be part of the code, all of them or what they share: how often that changed.
    pub(super) fn changes(&self, table: TableId, activity: &Activity) -> Option<u64> {
        let wanted = self.wanted[table.index()];
        if self.program.tables[table.index()].keys.iter().any(|k| k.kind == MatchKind::Range) {
            return None;
        }
        match activity.contents {
            _ if wanted.entries_max.is_some_and(|max| activity.len <= max) => Some(activity.changes),
            Some((_, changes)) if wanted.answers => Some(changes),
            _ => None,
        }
    }

    /// Compiles for the tables as they are, with the entries of those of `contents` that are tiny if `mode` wants that, and
    /// publishes it. How long that took; `None` if it failed, which is told in the log and by [`Code::info`].
    pub(super) fn recompile(
        &self,
        mode: Specialise,
        effort: Effort,
        contents: impl Fn(TableId) -> bool,
    ) -> Option<Duration> {
        // Nothing is published before code is complete, and locks do not mind, so a bug of the compiler ends here.
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
            // What stays right while entries change.
            let lasting = Wanted { entries_max: None, answers: false, ..all };
            Some(if with_contents && contents(table) { all } else { lasting })
        };
        let (generation, mut shapes) = match mode {
            Specialise::Off => (None, Shapes::default()),
            _ => {
                let (generation, shapes) = self.fast.shapes(wanted);
                (Some(generation), shapes)
            }
        };
        // Of entries that are known it is made here, where no writer waits.
        for (shape, _) in shapes.tables.iter_mut().zip(&self.wanted).filter(|(_, wanted)| wanted.prefilter) {
            shape.prefilter = shape.prefilter.take().or_else(|| tables::prefilter::of_known(shape));
        }
        let does_not_stay = effort == Effort::Quick && self.could_be_better();
        let options = if does_not_stay { quickest(&self.options) } else { self.options.clone() };
        let (program, options) = self.as_watched(options);
        // Generic code says nothing to who watches.
        let watched_alone = self.beside_generic(program, &options);
        let alone = match does_not_stay && !options.watched {
            true => self.alone(),
            false => watched_alone.as_ref(),
        };
        let program = alone.unwrap_or(program);
        let mut bindings = self.fast.bindings();
        let is_known = |shape: &TableShape| shape.rules.is_some() || shape.prefilter.is_some();
        for (binding, _) in bindings.tables.iter_mut().zip(&shapes.tables).filter(|(_, shape)| is_known(shape)) {
            // Lookups touch little of such a table: packets need not wait for it together.
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
        // Whoever sees the code also sees that it was compiled.
        let took = start.elapsed();
        self.last_ns.store(took.as_nanos() as u64, Ordering::Relaxed);
        self.compiled.fetch_add(1, Ordering::Relaxed);
        retired.extend(self.special.swap(Some(Arc::new(new))));
        self.published.fetch_add(1, Ordering::Release);
        retired.retain(|code| Arc::strong_count(code) > 1);
        Ok(took)
    }

    /// The program with only what quick code has.
    fn alone(&self) -> Option<&Arc<Program>> {
        let alone = || opt::ingress_alone(&self.program, self.generic.recorded(), &self.passes).map(Arc::new);
        self.alone.get_or_init(alone).as_ref()
    }

    /// The program with only what runs beside the generic code's entries for the replication engine, if those must stay: packets that
    /// wait in queues may meet other code when they go on, which then must read records as they are.
    fn beside_generic(&self, program: &Arc<Program>, options: &jit::Options) -> Option<Arc<Program>> {
        if !program.queues {
            return None;
        }
        match options.watched {
            false => self.alone().cloned(),
            true => opt::ingress_alone(program, self.generic.recorded(), &self.passes).map(Arc::new),
        }
    }

    /// What code is made from now: other while somebody watches.
    fn as_watched(&self, options: jit::Options) -> (&Arc<Program>, jit::Options) {
        match self.watched.load(Ordering::Relaxed) {
            false => (&self.program, options),
            true => {
                let counted = self.counted.get_or_init(|| Arc::new(counting(&self.program)));
                (counted, jit::Options { watched: true, ..options })
            }
        }
    }

    /// From now on code counts actions and says where it is, or no longer. Returns when code for any tables is there that
    /// does; code for the tables as they are follows.
    pub(super) fn watch(&self, on: bool) {
        if self.watched.swap(on, Ordering::Relaxed) == on {
            return;
        }
        self.install_baseline(on.then(|| quick(&self.options)));
        self.watch_changed.store(true, Ordering::Release);
    }

    /// Makes code for any tables, with all effort and for their sizes now.
    pub(super) fn make_baseline(&self) {
        self.install_baseline(Some(self.options.clone()));
    }

    /// Has code with these options, or none, take the place of the generic code.
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

    /// Whether somebody has begun or ceased to watch since the last call.
    pub(super) fn take_watch_change(&self) -> bool {
        self.watch_changed.swap(false, Ordering::Acquire)
    }

    /// The parts of the program that workers were in. Code that was freed meanwhile has none.
    pub(super) fn regions(&self, spots: &[Spot]) -> Vec<Option<String>> {
        let retired = match self.retired.try_lock() {
            Ok(retired) => retired.clone(),
            Err(TryLockError::Poisoned(retired)) => retired.into_inner().clone(),
            // Code is being compiled; that does not take so long that what it replaced would matter.
            Err(TryLockError::WouldBlock) => Vec::new(),
        };
        let all: Vec<Arc<Special>> =
            [self.special.load_full(), self.baseline.load_full()].into_iter().flatten().chain(retired).collect();
        let region = |spot: &Spot| all.iter().find_map(|special| special.code.region_at(spot.pc, spot.place));
        spots.iter().map(|spot| region(spot).map(str::to_string)).collect()
    }

    /// Whether quick code is not the best there is: then it is made with less effort still, since it does not stay.
    pub(super) fn could_be_better(&self) -> bool {
        self.options.has_hot_paths()
    }

    /// Whether a table has changed so much that code with another prefilter would be better. It is told once of the same code, which may be
    /// the best that can be made.
    pub(super) fn take_worn(&self) -> bool {
        let special = self.special.load();
        let Some(special) = special.as_ref() else { return false };
        special.prefilters.iter().any(|p| tables::prefilter::is_worn(p))
            && !special.told_worn.swap(true, Ordering::Relaxed)
    }

    /// Frees code that no worker holds any more.
    pub(super) fn collect(&self) {
        // If it is being compiled, that does it.
        if let Ok(mut retired) = self.retired.try_lock() {
            retired.retain(|code| Arc::strong_count(code) > 1);
        }
    }

    /// The number under which the code that was published last may run.
    pub(super) fn generation(&self) -> Option<u64> {
        self.special.load().as_ref().and_then(|special| special.generation)
    }

    /// The code's log and assertion sites: all code has the same.
    pub(super) fn sites(&self) -> &[jit::Site] {
        self.generic.sites()
    }

    /// What packets wait for in some of the program's code.
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

    /// For the operator.
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
                0 | 1 if EntryKind::ALL.iter().any(|kind| code.prefetches_ahead(*kind)) => {
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

/// One worker's choice of code.
pub(super) struct Choice {
    code: Arc<Code>,
    /// The functions of code that may run while its number holds, and that number.
    special: Option<(u64, Entries)>,
    /// Those of code for any tables.
    others: Entries,
    /// What keeps the functions' code mapped, but for the generic code, which `code` keeps.
    held: [Option<Arc<Special>>; 2],
    /// `Code::published` when all of that was taken.
    seen: u64,
    /// Whether the batch that runs has chosen, and what: whether it is `special`.
    chosen: Option<bool>,
}

impl Choice {
    pub(super) fn new(code: Arc<Code>) -> Choice {
        Choice { special: None, others: code.generic_entries, code, held: [None, None], seen: 0, chosen: None }
    }

    /// The function for an entry of the program. The first call of a batch chooses for all of it: what one entry leaves
    /// in a packet's record is for the same code's other entries. The worker is online.
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

    /// The batch is over.
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

    /// What a record holds is for the entries of the code that wrote it.
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
