//! One round: the same changes and packets on every engine, and a comparison of everything that can be seen.

use crate::generate::{Change, Dice, changes, packet};
use crate::seed::Subject;
use anyhow::{Result, anyhow};
use datapath::{EngineKind, Local, Sent};
use ir::Program;
use std::sync::Arc;
use stf::{Setup, Target};

/// Packets of a round.
const PACKETS: usize = 1024;
/// Most packets that are received together.
const BATCH: usize = 48;

/// Two engines disagreed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The program.
    pub program: String,
    /// Repeats the round.
    pub seed: u64,
    /// Which engines, and on what.
    pub what: String,
}

/// What rounds covered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Packets received.
    pub packets: u64,
    /// Frames sent.
    pub sent: u64,
    /// Table entries installed.
    pub entries: u64,
}

struct Engine {
    name: &'static str,
    local: Local,
}

/// Runs `rounds` rounds from `seed` on.
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
    ];
    // Every other round keeps the script's own entries below the generated ones.
    let with_setup = dice.one_in(2) || subject.raw.tables.iter().any(|t| t.implementation.is_some());
    let list = changes(subject, &mut dice);
    let mut answers: Vec<Vec<String>> = Vec::new();
    for engine in &mut engines {
        let mut answer = Vec::new();
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
        let state = engine.local.pipeline().state();
        for change in &list {
            let result = match change {
                Change::Insert(table, entry) => state.insert(*table, entry),
                Change::SetDefault(table, action) => state.set_default(*table, Some(action)),
                Change::Meter(meter, index, config) => state.meter_set(*meter, *index, Some(*config)),
                Change::Register(register, index, value) => state.register_set(*register, *index, value),
            };
            answer.push(format!("{result:?}"));
        }
        answers.push(answer);
    }
    for (engine, answer) in engines.iter().zip(&answers).skip(1) {
        if let Some(i) = (0..list.len()).find(|&i| answer[i] != answers[0][i]) {
            let (name, change) = (engine.name, &list[i]);
            return Ok(Some(format!("raw answers {} and {name} {} to {change:?}", answers[0][i], answer[i])));
        }
    }
    totals.entries += answers[0].iter().filter(|a| *a == "Ok(())").count() as u64;

    let mut left = PACKETS;
    while left > 0 {
        let (port, first) = packet(subject, &mut dice);
        let more = dice.below(BATCH.min(left));
        let mut frames = vec![first];
        frames.extend((0..more).map(|_| packet(subject, &mut dice).1));
        left -= frames.len();
        let views: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let mut outcomes: Vec<Vec<Sent>> = Vec::new();
        for engine in &mut engines {
            engine.local.advance_us(37);
            outcomes.push(engine.local.receive_batch(port, &views).ok_or(anyhow!("a frame is too long"))?);
        }
        totals.packets += frames.len() as u64;
        totals.sent += outcomes[0].len() as u64;
        for (engine, outcome) in engines.iter().zip(&outcomes).skip(1) {
            if outcome != &outcomes[0] {
                return Ok(Some(describe(engine.name, &outcomes[0], outcome, port, &frames)));
            }
        }
    }
    let seen: Vec<Vec<String>> = engines.iter().map(|e| visible_state(&e.local)).collect();
    for (engine, state) in engines.iter().zip(&seen).skip(1) {
        if let Some((a, b)) = seen[0].iter().zip(state).find(|(a, b)| a != b) {
            return Ok(Some(format!("at the end raw has\n  {a}\nand {} has\n  {b}", engine.name)));
        }
    }
    Ok(None)
}

/// Digests, drop counters, counters and registers as text, in one order for all engines.
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
