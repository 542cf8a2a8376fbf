//! One round: the same changes and packets on every engine, and a comparison of all observable results.

use crate::generate::{Change, Dice, changes, packet};
use crate::seed::Subject;
use abi::PipelineState;
use anyhow::{Context, Result, anyhow};
use base::entry::TableEntry;
use base::ids::TableId;
use datapath::{CacheUse, EngineKind, Local, Sent, Specialise};
use ir::Program;
use std::ops::AddAssign;
use std::sync::Arc;
use stf::{Setup, Target};

/// The number of packets in a round.
const PACKETS: usize = 1024;
/// The maximum number of packets in a batch.
const BATCH: usize = 48;

/// A difference between two engines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The program.
    pub program: String,
    /// The seed that reproduces the round.
    pub seed: u64,
    /// Which engines differ, and in what.
    pub what: String,
}

/// The work of rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Packets received.
    pub packets: u64,
    /// Frames sent.
    pub sent: u64,
    /// Table entries installed.
    pub entries: u64,
    /// Packets that hit the flow cache.
    pub known: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.packets += other.packets;
        self.sent += other.sent;
        self.entries += other.entries;
        self.known += other.known;
    }
}

/// The engine that is occasionally specialised for its current tables.
const RECOMPILED: &str = "recompiled jit";

/// The engine with a flow cache.
const CACHED: &str = "cached jit";

struct Engine {
    name: &'static str,
    local: Local,
}

/// Runs `rounds` rounds with seeds from `seed` on; returns the first difference.
///
/// # Errors
/// If an engine cannot be set up, or a frame is too long for it.
pub fn run_rounds(subject: &Subject, seed: u64, rounds: u64, totals: &mut Totals) -> Result<Option<Difference>> {
    for seed in seed..seed + rounds {
        if let Some(what) = one_round(subject, seed, totals)? {
            return Ok(Some(Difference { program: subject.name.clone(), seed, what }));
        }
    }
    Ok(None)
}

fn one_round(subject: &Subject, seed: u64, totals: &mut Totals) -> Result<Option<String>> {
    let mut dice = Dice::new(seed);
    let load = |name, program: &Arc<Program>, kind| -> Result<Engine> {
        let pipeline = datapath::load(Arc::clone(program), kind, 1).map_err(|e| anyhow!("{}: {e}", subject.name))?;
        Ok(Engine { name, local: Local::new(Arc::new(pipeline)) })
    };
    let mut engines = [
        load("raw", &subject.raw, EngineKind::Interpreter)?,
        load("interp", &subject.optimised, EngineKind::Interpreter)?,
        load("jit", &subject.optimised, EngineKind::Machine)?,
        load("staged", &subject.optimised, EngineKind::Staged)?,
        load("mir", &subject.optimised, EngineKind::Mir)?,
        load("mir-interp", &subject.optimised, EngineKind::MirInterpreter)?,
        load(RECOMPILED, &subject.optimised, EngineKind::Machine)?,
        load(CACHED, &subject.optimised, EngineKind::Machine)?,
    ];
    let cached = engines.iter().find(|e| e.name == CACHED).map(|e| Arc::clone(e.local.pipeline()));
    let cached = cached.expect("it is in the list");
    let cache = cached.flow_cache();
    if let Some(cache) = cache {
        cache.set_use(CacheUse::Always).context("no thread")?;
    }
    let mut again: Option<(u32, Vec<Vec<u8>>)> = None;
    // Half of the rounds keep the script's own entries in addition to the generated ones.
    let with_setup = dice.one_in(2) || subject.raw.tables.iter().any(|t| t.implementation.is_some());
    let list = changes(subject, &mut dice);
    for engine in &engines {
        if with_setup {
            let pipeline = Arc::clone(engine.local.pipeline());
            let replication = Arc::clone(engine.local.replication());
            let target =
                Target { program: pipeline.program(), state: pipeline.state().as_ref(), replication: &replication };
            let mut setup = Setup::new();
            for line in &subject.setup {
                setup.apply(&line.command, target).map_err(|e| anyhow!("{}: {e}", subject.name))?;
            }
        }
    }
    if let Some(difference) = apply(&engines, list.into_iter().map(Edit::New), totals) {
        return Ok(Some(difference));
    }

    let mut left = PACKETS;
    while left > 0 {
        // Some batches are repeated, for flow cache hits with the same or changed tables.
        let (port, frames) = again.take().unwrap_or_else(|| {
            let (port, first) = packet(subject, &mut dice);
            let more = dice.below(BATCH.min(left));
            let mut frames = vec![first];
            frames.extend((0..more).map(|_| packet(subject, &mut dice).1));
            if dice.one_in(2) {
                again = Some((port, frames.clone()));
            }
            (port, frames)
        });
        left = left.saturating_sub(frames.len());
        if dice.one_in(4) {
            // A few changes at a time, so that code sees the tables that it was specialised for, and others.
            let mut list = changes(subject, &mut dice);
            list.truncate(dice.below(4));
            let edits = list.into_iter().map(Edit::New).chain(taken_back(&engines[0], &mut dice));
            if let Some(difference) = apply(&engines, edits, totals) {
                return Ok(Some(difference));
            }
        }
        if dice.one_in(16) {
            let recompiled = engines.iter().find(|e| e.name == RECOMPILED).expect("it is in the list");
            let pipeline = recompiled.local.pipeline();
            // Quickly compiled code is normally replaced soon; here it sometimes stays.
            let took = match dice.one_in(2) {
                true => pipeline.recompile(Specialise::Auto),
                false => pipeline.recompile_quick(Specialise::Auto),
            };
            took.ok_or_else(|| anyhow!("{}: it was not recompiled", subject.name))?;
        }
        let views: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let mut outcomes: Vec<Vec<Sent>> = Vec::new();
        for engine in &mut engines {
            engine.local.advance_us(37);
            outcomes.push(engine.local.receive_batch(port, &views).ok_or(anyhow!("a frame is too long"))?);
        }
        if let Some(cache) = cache {
            cache.trace_waiting();
        }
        totals.packets += frames.len() as u64;
        totals.sent += outcomes[0].len() as u64;
        for (engine, outcome) in engines.iter().zip(&outcomes).skip(1) {
            if outcome != &outcomes[0] {
                return Ok(Some(describe(engine.name, &outcomes[0], outcome, port, &frames)));
            }
        }
    }
    totals.known += cache.map_or(0, |cache| cache.stats().iter().map(|(_, stats)| stats.hits).sum());
    let seen: Vec<Vec<String>> = engines.iter().map(|e| visible_state(&e.local)).collect();
    for (engine, state) in engines.iter().zip(&seen).skip(1) {
        if let Some((a, b)) = seen[0].iter().zip(state).find(|(a, b)| a != b) {
            return Ok(Some(format!("at the end raw has\n  {a}\nand {} has\n  {b}", engine.name)));
        }
    }
    Ok(different_lookups(engines.iter().map(|e| (e.name, &e.local))).map(|(_, what)| what))
}

/// A controller's change.
#[derive(Debug)]
enum Edit {
    /// Adds or sets something.
    New(Change),
    /// Changes an entry's action.
    Modify(TableId, TableEntry),
    /// Deletes an entry.
    Delete(TableId, TableEntry),
}

/// Applies changes on all engines; returns the first difference between their answers.
fn apply(engines: &[Engine], list: impl IntoIterator<Item = Edit>, totals: &mut Totals) -> Option<String> {
    let change = |state: &dyn PipelineState, edit: &Edit| match edit {
        Edit::Modify(table, entry) => state.modify(*table, entry),
        Edit::Delete(table, entry) => state.delete(*table, &entry.key, entry.priority),
        Edit::New(change) => match change {
            Change::Insert(table, entry) => state.insert(*table, entry),
            Change::SetDefault(table, action) => state.set_default(*table, Some(action)),
            Change::Meter(meter, index, config) => state.meter_set(*meter, *index, Some(*config)),
            Change::Register(register, index, value) => state.register_set(*register, *index, value),
        },
    };
    for this in &list.into_iter().collect::<Vec<Edit>>() {
        let mut expected = None;
        for engine in engines {
            let answer = format!("{:?}", change(engine.local.pipeline().state().as_ref(), this));
            match &expected {
                None => {
                    let is_new = matches!(this, Edit::New(Change::Insert(..))) && answer == "Ok(())";
                    totals.entries += u64::from(is_new);
                    expected = Some(answer);
                }
                Some(expected) if *expected != answer => {
                    return Some(format!("raw answers {expected} and {} {answer} to {this:?}", engine.name));
                }
                Some(_) => {}
            }
        }
    }
    None
}

/// A deletion of an entry, or a modification to another entry's action.
fn taken_back(engine: &Engine, dice: &mut Dice) -> Option<Edit> {
    let pipeline = engine.local.pipeline();
    let tables: Vec<_> = pipeline.program().tables.iter().enumerate().filter(|(_, t)| !t.const_entries).collect();
    if tables.is_empty() {
        return None;
    }
    let id = TableId::from_index(dice.pick(&tables).0);
    let entries = pipeline.state().entries(id);
    if entries.is_empty() {
        return None;
    }
    let entry = dice.pick(&entries).entry.clone();
    if dice.one_in(2) {
        return Some(Edit::Delete(id, entry));
    }
    let action = dice.pick(&entries).entry.action.clone();
    Some(Edit::Modify(id, TableEntry { action, ..entry }))
}

/// Digests, drop counters, counters and registers as text, in the same order on all engines.
pub(crate) fn visible_state(local: &Local) -> Vec<String> {
    let pipeline = local.pipeline();
    let digests = pipeline.take_digests().into_iter().map(|d| format!("digest {:?} {:?}", d.digest, d.fields));
    let drops = pipeline.drops(0).read(pipeline.program()).into_iter().map(|(name, n)| format!("drops {name}: {n}"));
    let cells = stf::run::dump_state(local).into_iter().map(|(name, cells)| format!("{name}: {cells:?}"));
    let digests: Vec<String> = digests.collect();
    let mut all = vec![format!("{} digests", digests.len())];
    all.extend(digests);
    all.extend(drops);
    all.extend(cells);
    all
}

/// The first difference in tables' hits and misses between engines that count them and run the same program: the engine
/// and the difference.
pub(crate) fn different_lookups<'a>(engines: impl Iterator<Item = (&'a str, &'a Local)>) -> Option<(&'a str, String)> {
    let counts = |local: &Local| {
        let tables = local.pipeline().table_info().into_iter();
        let text = |(hits, misses)| format!("{hits} hits, {misses} misses");
        tables.map(|table| Some(format!("{}: {}", table.name, table.lookups.map(text)?))).collect::<Option<Vec<_>>>()
    };
    let mut firsts: Vec<(&str, &Arc<Program>, Vec<String>)> = Vec::new();
    for (name, local) in engines {
        let (program, Some(seen)) = (local.pipeline().program(), counts(local)) else { continue };
        let Some((first, _, expected)) = firsts.iter().find(|(_, known, _)| Arc::ptr_eq(known, program)) else {
            firsts.push((name, program, seen));
            continue;
        };
        if let Some((a, b)) = expected.iter().zip(&seen).find(|(a, b)| a != b) {
            return Some((name, format!("at the end {first} has\n  {a}\nand {name} has\n  {b}")));
        }
    }
    None
}

fn describe(name: &str, expected: &[Sent], got: &[Sent], port: u32, frames: &[Vec<u8>]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let text = |list: &[Sent], i: usize| {
        list.get(i).map_or("nothing".into(), |s| format!("port {} {}", s.port, hex(&s.bytes)))
    };
    let at = (0..expected.len().max(got.len())).find(|&i| expected.get(i) != got.get(i)).unwrap_or(0);
    let frames: Vec<String> = frames.iter().map(|f| hex(f)).collect();
    format!(
        "frame {at} of a batch\n  raw:  {}\n  {name}: {}\n  received on port {port}:\n    {}",
        text(expected, at),
        text(got, at),
        frames.join("\n    ")
    )
}
