//! The recompilation policy: when specialised and baseline code are compiled.
//!
//! One thread per pipeline checks every [`TICK`]. It compiles specialised code when the last one was invalidated and
//! nothing has been invalidated for a while, and when the entries of more small tables could become part of the code.
//! The waiting time doubles each time code is invalidated soon after it was made, up to [`WAIT_MAX`], and is reset
//! once code has lasted. The entries of a table that changes while they are part of the code are left out until it
//! has been quiet for longer. So a table that changes constantly costs a bounded share of one core, and packets run
//! baseline code, or specialised code without that table's entries but possibly with a prefilter of them
//! (`tables::prefilter`).
//!
//! *Baseline* code is compiled after the first specialised code, or after [`BASELINE_REST`] if there is none by then.
//! It is compiled again at once when a table is probed differently, and at most once per [`BASELINE_REST`] when other
//! tables have outgrown the caches; no change invalidates it.
//!
//! The policy is [`Policy`], which has no clock and no thread. Tests: below; `tests/recompile.rs`.

use super::code::{Code, Effort, Specialise};
use crate::state::Activity;
use abi::EngineKind;
use base::ids::TableId;
use heartbeat::Heartbeat;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Time between two checks of a pipeline.
const TICK: Duration = Duration::from_millis(10);
/// Ticks between two checks of its registers.
const REGISTER_TICKS: u32 = 100;
/// Initial time without invalidation before specialised code is compiled.
const WAIT: Duration = Duration::from_millis(20);
/// Longest such time.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The shortest time between two compilations of baseline code.
const BASELINE_REST: Duration = Duration::from_millis(200);
/// A round that takes longer counts as stuck: the largest programs compile in tens of seconds. Packets run existing
/// code meanwhile, so the thread is not vital.
const ROUND_MAX: Duration = Duration::from_secs(120);
/// Code that lives this many times the wait resets it.
const LASTED: u32 = 8;

/// A table as the policy sees it.
#[derive(Clone, Copy)]
struct Watched {
    changes: u64,
    last_change: Duration,
    /// How long the table must be unchanged before its entries become part of the code.
    wait: Duration,
}

/// Decides when to compile, and which tables' entries become part of the code.
struct Policy {
    mode: Specialise,
    /// `None` before the first [`Policy::look`].
    tables: Option<Vec<Watched>>,
    wait: Duration,
    /// Minimum lifetime of code with an ineffective prefilter.
    worn_wait: Duration,
    generation: u64,
    last_invalidated: Duration,
    last_compiled: Option<Duration>,
    /// Tables whose entries are part of the code.
    contents: BTreeSet<TableId>,
    /// Whether the code is still valid and wanted.
    holds: bool,
    /// Which tables and registers were too large for the caches at the last look.
    large: Vec<bool>,
    /// How tables were probed at the last look.
    engines: Vec<EngineKind>,
    /// When baseline code was compiled, with `large` and `engines` at that time.
    baseline: Option<(Duration, Vec<bool>, Vec<EngineKind>)>,
}

impl Policy {
    fn new(mode: Specialise) -> Policy {
        Policy {
            mode,
            tables: None,
            wait: WAIT,
            worn_wait: WAIT,
            generation: 0,
            last_invalidated: Duration::ZERO,
            last_compiled: None,
            contents: BTreeSet::new(),
            holds: false,
            large: Vec::new(),
            engines: Vec::new(),
            baseline: None,
        }
    }

    /// Whether baseline code should be compiled now. To be called after [`Policy::look`].
    fn wants_baseline(&mut self, now: Duration) -> bool {
        // Specialised code comes first, unless tables do not settle.
        if self.mode == Specialise::Off || self.last_compiled.is_none() && now < BASELINE_REST {
            return false;
        }
        let wanted = match &self.baseline {
            None => true,
            Some((_, _, engines)) if *engines != self.engines => true,
            Some((made, large, _)) => *large != self.large && now.saturating_sub(*made) >= BASELINE_REST,
        };
        if wanted {
            self.baseline = Some((now, self.large.clone(), self.engines.clone()));
        }
        wanted
    }

    /// The age of the code that was compiled last.
    fn lived(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last_compiled.unwrap_or_default())
    }

    /// Whether code may be replaced for an ineffective prefilter. This has a wait of its own: such code is correct,
    /// and recompilation after an invalidation must not be delayed by it.
    fn may_wear(&self, now: Duration) -> bool {
        self.holds && self.lived(now) >= self.worn_wait
    }

    /// Notes that a prefilter of the code is ineffective.
    fn wear(&mut self, now: Duration) {
        self.worn_wait = next_wait(self.worn_wait, self.lived(now));
        self.holds = false;
    }

    /// Examines the tables at time `now`. Returns the tables whose entries should become part of new code, if code
    /// should be compiled. `known` gives a change count for tables whose entries may become part of the code.
    fn look(
        &mut self,
        now: Duration,
        generation: u64,
        activity: &[Activity],
        registers: &[bool],
        known: impl Fn(TableId, &Activity) -> Option<u64>,
    ) -> Option<BTreeSet<TableId>> {
        if self.mode == Specialise::Off {
            return None;
        }
        let large = too_large(activity, registers);
        if large != self.large && std::mem::take(&mut self.holds) {
            // Another strategy may be better, although the code is still correct.
            self.wait = next_wait(self.wait, self.lived(now));
        }
        let tables = self.tables.get_or_insert_with(|| {
            self.last_invalidated = now;
            let changes = |(i, a)| known(TableId::from_index(i), a).unwrap_or(a.changes);
            let watched = |table| Watched { changes: changes(table), last_change: now, wait: WAIT };
            activity.iter().enumerate().map(watched).collect()
        });
        if generation != self.generation {
            self.generation = generation;
            self.last_invalidated = now;
            if std::mem::take(&mut self.holds) {
                let lived = now.saturating_sub(self.last_compiled.unwrap_or_default());
                self.wait = next_wait(self.wait, lived);
            }
        }
        let mut contents = BTreeSet::new();
        for (i, (table, new)) in tables.iter_mut().zip(activity).enumerate() {
            let id = TableId::from_index(i);
            let known = known(id, new);
            let changes = known.unwrap_or(new.changes);
            if table.changes != changes {
                if self.contents.remove(&id) {
                    table.wait = next_wait(table.wait, now.saturating_sub(table.last_change));
                }
                *table = Watched { changes, last_change: now, ..*table };
            }
            let is_quiet = match self.mode {
                Specialise::Off | Specialise::Constants => false,
                Specialise::Contents => true,
                Specialise::Auto => now.saturating_sub(table.last_change) >= table.wait,
            };
            if is_quiet && known.is_some() {
                contents.insert(id);
            }
        }
        self.large = large;
        self.engines = activity.iter().map(|a| a.engine).collect();
        let is_quiet = now.saturating_sub(self.last_invalidated) >= self.wait;
        let is_rested = self.last_compiled.is_none_or(|last| now.saturating_sub(last) >= self.wait);
        let is_better = !self.holds || !contents.is_subset(&self.contents);
        (is_quiet && is_rested && is_better).then_some(contents)
    }

    /// Notes that code was compiled that is valid in `generation`, or that compiling failed.
    fn compiled(&mut self, now: Duration, contents: BTreeSet<TableId>, generation: u64) {
        self.generation = generation;
        self.last_compiled = Some(now);
        self.contents = contents;
        self.holds = true;
    }
}

/// Which tables and registers exceed the caches; the choice of strategy depends on this (`jit::Strategy::Auto`).
fn too_large(activity: &[Activity], registers: &[bool]) -> Vec<bool> {
    let all: u64 = activity.iter().map(|a| a.footprint_bytes).sum();
    let is_large = |a: &Activity| all > jit::CACHED_BYTES_MAX && a.footprint_bytes > jit::CUT_BYTES_MIN;
    activity.iter().map(is_large).chain(registers.iter().copied()).collect()
}

/// The next wait after code or contents have lived for `lived`.
fn next_wait(wait: Duration, lived: Duration) -> Duration {
    if lived >= wait * LASTED { WAIT } else { (wait * 2).min(WAIT_MAX) }
}

/// The handle of the thread. Dropping it ends the thread within a [`TICK`] or after the compilation in progress.
pub(super) struct Tuner {
    stop: Arc<AtomicBool>,
    thread: Thread,
}

impl Tuner {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(super) fn start(code: Arc<Code>, mode: Specialise) -> std::io::Result<Tuner> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || run(&code, mode, &stopped);
        let handle = std::thread::Builder::new().name("recompile".into()).spawn(body)?;
        Ok(Tuner { stop, thread: handle.thread().clone() })
    }
}

impl Drop for Tuner {
    /// Does not wait for the thread: the last owner of a pipeline may be a worker.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

fn run(code: &Code, mode: Specialise, stop: &AtomicBool) {
    let start = Instant::now();
    let mut policy = Policy::new(mode);
    let heart = Heartbeat::not_vital("recompile", ROUND_MAX);
    for tick in (0..REGISTER_TICKS).cycle() {
        heart.beat();
        std::thread::park_timeout(TICK);
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if tick == 0 {
            code.fast.look_at_registers();
        }
        if code.take_watch_change() {
            policy.holds = false;
            policy.baseline = None;
        }
        if policy.may_wear(start.elapsed()) && code.take_worn() {
            policy.wear(start.elapsed());
        }
        let generation = code.fast.generation();
        let (tables, registers) = (code.fast.activity(), code.fast.registers_are_large());
        let wanted = policy.look(start.elapsed(), generation, &tables, &registers, |t, a| code.changes(t, a));
        if let Some(contents) = wanted {
            // If compiling fails for these tables, it is not tried again until they change.
            let compile = |effort| code.recompile(mode, effort, |table| contents.contains(&table));
            if compile(Effort::Quick).is_some() && code.could_be_better() {
                compile(Effort::Full);
            }
            policy.compiled(start.elapsed(), contents, code.generation().unwrap_or(generation));
        } else if policy.wants_baseline(start.elapsed()) {
            code.make_baseline();
        }
        code.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(len: u64, changes: u64) -> Activity {
        Activity { len, changes, contents: None, footprint_bytes: 100 * len, engine: EngineKind::ExactInline }
    }

    fn tiny(_: TableId, table: &Activity) -> Option<u64> {
        (table.len <= 8).then_some(table.changes)
    }

    fn set(tables: &[u32]) -> BTreeSet<TableId> {
        tables.iter().map(|t| TableId(*t)).collect()
    }

    #[test]
    fn compiles_once_when_tables_have_settled() {
        let mut policy = Policy::new(Specialise::Auto);
        let tables = [at(3, 3), at(100, 100)];
        assert_eq!(policy.look(ms(1000), 5, &tables, &[], tiny), None, "just seen");
        assert_eq!(policy.look(ms(1010), 5, &tables, &[], tiny), None, "not quiet for long enough");
        let found = policy.look(ms(1020), 5, &tables, &[], tiny);
        assert_eq!(found, Some(set(&[0])));
        policy.compiled(ms(1021), set(&[0]), 5);
        assert_eq!(policy.look(ms(2000), 5, &tables, &[], tiny), None);
    }

    #[test]
    fn a_table_that_grows_is_compiled_for_again() {
        let mut policy = Policy::new(Specialise::Constants);
        policy.look(ms(0), 1, &[at(100, 100)], &[], tiny);
        assert!(policy.look(ms(20), 1, &[at(100, 100)], &[], tiny).is_some());
        policy.compiled(ms(21), set(&[]), 1);
        // Entries that fit into the existing buckets are no reason.
        assert_eq!(policy.look(ms(500), 1, &[at(101, 101)], &[], tiny), None);
        assert_eq!(policy.look(ms(1000), 2, &[at(201, 201)], &[], tiny), None);
        assert_eq!(policy.look(ms(1020), 2, &[at(202, 202)], &[], tiny), Some(set(&[])));
    }

    #[test]
    fn entries_that_change_often_stay_out_for_longer_and_longer() {
        let mut policy = Policy::new(Specialise::Auto);
        let (mut generation, mut changes, mut with_entries) = (0, 0, 0);
        // A change every 50 ms for 20 s.
        for tick in 0..2000u64 {
            let now = ms(10 * tick);
            if tick % 5 == 0 {
                changes += 1;
                generation += u64::from(policy.contents.contains(&TableId(0)));
            }
            if let Some(contents) = policy.look(now, generation, &[at(4, changes)], &[], tiny) {
                with_entries += u32::from(!contents.is_empty());
                policy.compiled(now, contents, generation);
            }
        }
        assert!((1..=4).contains(&with_entries), "{with_entries} of 400");
        assert!(policy.holds, "without them, the code lasts");
        // After a long quiet time they become part of the code again.
        let found = policy.look(ms(60_000), generation, &[at(4, changes)], &[], tiny);
        assert_eq!(found, Some(set(&[0])));
    }

    #[test]
    fn code_that_never_lasts_is_made_seldom() {
        let mut policy = Policy::new(Specialise::Constants);
        let (mut generation, mut compiled) = (0, 0);
        // Invalidated as soon as it was made, for 60 s.
        for tick in 0..6000u64 {
            let now = ms(10 * tick);
            if policy.look(now, generation, &[at(4, 0)], &[], tiny).is_some() {
                compiled += 1;
                policy.compiled(now, BTreeSet::new(), generation);
                generation += 1;
            }
        }
        assert!(compiled < 20, "{compiled}");
    }

    #[test]
    fn a_table_that_outgrows_the_caches_is_compiled_for_again() {
        let mut policy = Policy::new(Specialise::Auto);
        policy.look(ms(0), 1, &[at(100, 100)], &[], tiny);
        assert!(policy.look(ms(20), 1, &[at(100, 100)], &[], tiny).is_some());
        policy.compiled(ms(21), set(&[]), 1);
        assert_eq!(policy.look(ms(1000), 1, &[at(2000, 2000)], &[], tiny), None);
        assert_eq!(policy.look(ms(2000), 1, &[at(4000, 4000)], &[], tiny), Some(set(&[])));
        policy.compiled(ms(2001), set(&[]), 1);
        assert_eq!(policy.look(ms(3000), 1, &[at(4001, 4001)], &[], tiny), None);
        assert_eq!(policy.look(ms(4000), 1, &[at(10, 8000)], &[], tiny), Some(set(&[])));
    }

    #[test]
    fn a_register_that_outgrows_the_caches_is_compiled_for_again() {
        let mut policy = Policy::new(Specialise::Auto);
        let tables = [at(100, 100)];
        policy.look(ms(0), 1, &tables, &[false], tiny);
        assert!(policy.look(ms(20), 1, &tables, &[false], tiny).is_some());
        policy.compiled(ms(21), set(&[]), 1);
        assert_eq!(policy.look(ms(1000), 1, &tables, &[false], tiny), None);
        assert_eq!(policy.look(ms(2000), 1, &tables, &[true], tiny), Some(set(&[])));
        policy.compiled(ms(2001), set(&[]), 1);
        assert_eq!(policy.look(ms(3000), 1, &tables, &[true], tiny), None);
    }

    #[test]
    fn standing_code_follows_the_sizes_of_tables_and_nothing_else() {
        let mut policy = Policy::new(Specialise::Auto);
        let mut made = 0;
        // A table that grows from the start, so that nothing is ever quiet for long enough.
        for tick in 0..1000u64 {
            let now = ms(10 * tick);
            let tables = [at(100 * tick, 100 * tick)];
            match policy.look(now, tick, &tables, &[], tiny) {
                Some(_) => panic!("code that would not hold"),
                None => made += u32::from(policy.wants_baseline(now)),
            }
        }
        assert_eq!(made, 2, "once for small tables, once for large ones");
        policy.look(ms(20_000), 1000, &[at(10, 5)], &[], tiny);
        let contents = policy.look(ms(30_000), 1000, &[at(10, 5)], &[], tiny).expect("it has been quiet");
        policy.compiled(ms(30_001), contents, 1000);
        let mut wants = |now: u64, len: u64| {
            policy.look(ms(now), 1000 + len, &[at(len, len)], &[], |_, _| None);
            policy.wants_baseline(ms(now))
        };
        assert!(wants(30_010, 10) && !wants(30_020, 20));
        assert!(wants(30_300, 1_000_000), "it is too large for the caches now");
        assert!(!wants(30_310, 10), "that can wait");
        assert!(wants(30_600, 10) && !wants(40_000, 20));
        let other = [Activity { engine: EngineKind::Opaque, ..at(20, 21) }];
        policy.look(ms(40_010), 1020, &other, &[], |_, _| None);
        assert!(policy.wants_baseline(ms(40_010)), "it calls another function now");
        assert!(!policy.wants_baseline(ms(40_020)));
    }

    #[test]
    fn worn_code_is_replaced_and_delays_nothing_else() {
        let mut policy = Policy::new(Specialise::Auto);
        let tables = [at(100, 100)];
        let (mut replaced, mut now) = (0, 0);
        // The prefilter is ineffective as soon as it was made, for 20 s.
        while now < 20_000 {
            if policy.may_wear(ms(now)) {
                policy.wear(ms(now));
            }
            if let Some(contents) = policy.look(ms(now), 1, &tables, &[], tiny) {
                replaced += 1;
                policy.compiled(ms(now), contents, 1);
            }
            now += 10;
        }
        assert!((4..20).contains(&replaced), "{replaced}");
        assert!(policy.holds && policy.wait == WAIT && policy.worn_wait > WAIT);
        // Recompilation after an invalidation is as quick as before.
        assert_eq!(policy.look(ms(now), 2, &tables, &[], tiny), None);
        assert!(policy.look(ms(now + 20), 2, &tables, &[], tiny).is_some());
    }

    #[test]
    fn switched_off_it_does_nothing() {
        let mut policy = Policy::new(Specialise::Off);
        assert_eq!(policy.look(ms(0), 1, &[at(1, 1)], &[], tiny), None);
        assert_eq!(policy.look(ms(10_000), 1, &[at(1, 1)], &[], tiny), None);
    }
}
