//! When code is compiled again for the tables as they are.
//!
//! A thread per pipeline looks every [`TICK`]. It compiles when the last specialised code does not hold any more and
//! nothing has been invalidated for a while, and when the entries of more tiny tables could be part of the code. Waiting is
//! doubled each time code was invalidated soon after it was made, up to [`WAIT_MAX`], and forgotten when code has lasted;
//! the entries of a table that changes while they are part of the code are left out until it has been quiet for longer.
//! So a table that changes all the time costs a bounded share of one core, and packets run code for any tables or code without
//! its entries, which may know a prefilter of them (`tables::prefilter`).
//!
//! Code for any tables is made anew, as *baseline* code, after the first code for the tables as they are or when that does not come
//! for [`BASELINE_REST`], and when other tables are
//! too large for the caches or a table is probed in another way: at once, since nothing invalidates it, and at most once in [`BASELINE_REST`].
//!
//! The policy is [`Policy`], which knows no clock and no thread. Tests: below; `tests/recompile.rs`.

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

/// How often a pipeline is looked at.
const TICK: Duration = Duration::from_millis(10);
/// How many times less often its registers are.
const REGISTER_TICKS: u32 = 100;
/// How long nothing must have been invalidated, at first.
const WAIT: Duration = Duration::from_millis(20);
/// The longest wait.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The shortest time between two compilations of baseline code.
const BASELINE_REST: Duration = Duration::from_millis(200);
/// A round that takes longer is stuck: the largest programs compile in tens of seconds. Packets run the code that is there
/// meanwhile, so the thread is not vital.
const ROUND_MAX: Duration = Duration::from_secs(120);
/// Code that lasted this many times the wait has lasted.
const LASTED: u32 = 8;

/// A table as the policy sees it.
#[derive(Clone, Copy)]
struct Watched {
    changes: u64,
    last_change: Duration,
    /// How long it must be quiet before its entries become part of the code.
    wait: Duration,
}

/// When to compile, and with the entries of which tables.
struct Policy {
    mode: Specialise,
    /// `None` until the first look.
    tables: Option<Vec<Watched>>,
    wait: Duration,
    /// How long code stays at least whose prefilter is worn.
    worn_wait: Duration,
    generation: u64,
    last_invalidated: Duration,
    last_compiled: Option<Duration>,
    /// Tables whose entries are part of the code.
    contents: BTreeSet<TableId>,
    /// Whether the code holds.
    holds: bool,
    /// Which tables and registers were too large for the caches when it was compiled.
    large: Vec<bool>,
    /// How tables are probed.
    engines: Vec<EngineKind>,
    /// When baseline code was made, and `large` and `engines` then.
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

    /// Whether baseline code should be made now, behind [`Policy::look`].
    fn wants_baseline(&mut self, now: Duration) -> bool {
        // Code for the tables as they are comes first, unless they do not settle.
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

    /// How long the code that was compiled last has been there.
    fn lived(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last_compiled.unwrap_or_default())
    }

    /// Whether code with another prefilter may be made. It has a wait of its own: the code is right, and what invalidates code later need
    /// not wait for this.
    fn may_wear(&self, now: Duration) -> bool {
        self.holds && self.lived(now) >= self.worn_wait
    }

    /// A prefilter of the code is worn.
    fn wear(&mut self, now: Duration) {
        self.worn_wait = next_wait(self.worn_wait, self.lived(now));
        self.holds = false;
    }

    /// Looks at the tables at a time; the tables whose entries should be part of new code, if some should be made. Of tables whose entries
    /// may be, `known` says how often changed what code would know of them.
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
            // Another strategy may be better; the code is right all the same.
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

    /// Code was compiled that holds under this number, or could not be.
    fn compiled(&mut self, now: Duration, contents: BTreeSet<TableId>, generation: u64) {
        self.generation = generation;
        self.last_compiled = Some(now);
        self.contents = contents;
        self.holds = true;
    }
}

/// What the strategy goes by (`jit::Strategy::Auto`): which tables and registers caches do not hold.
fn too_large(activity: &[Activity], registers: &[bool]) -> Vec<bool> {
    let all: u64 = activity.iter().map(|a| a.footprint_bytes).sum();
    let is_large = |a: &Activity| all > jit::CACHED_BYTES_MAX && a.footprint_bytes > jit::CUT_BYTES_MIN;
    activity.iter().map(is_large).chain(registers.iter().copied()).collect()
}

/// How long to wait after something has lasted for `lived` only.
fn next_wait(wait: Duration, lived: Duration) -> Duration {
    if lived >= wait * LASTED { WAIT } else { (wait * 2).min(WAIT_MAX) }
}

/// The thread's handle. Dropping it ends the thread within a [`TICK`] or a compilation.
pub(super) struct Tuner {
    stop: Arc<AtomicBool>,
    thread: Thread,
}

impl Tuner {
    /// Starts the thread.
    pub(super) fn start(code: Arc<Code>, mode: Specialise) -> std::io::Result<Tuner> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || run(&code, mode, &stopped);
        let handle = std::thread::Builder::new().name("recompile".into()).spawn(body)?;
        Ok(Tuner { stop, thread: handle.thread().clone() })
    }
}

impl Drop for Tuner {
    /// Does not wait: the last owner of a pipeline may be a worker.
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
            // Code that cannot be compiled for these tables is not tried again until they change.
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
        // Entries that do not make the table move are no reason.
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
        // After it has been quiet for long, they are taken in again.
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
        // A table that grows from the first moment on, so that nothing is ever quiet for as long as it takes.
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
        // Worn as soon as it was made, for 20 s.
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
        // What is invalidated is made again as soon as ever.
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
