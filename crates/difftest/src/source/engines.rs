//! Comparison of many engines on one script, up to the first difference.

use super::finding::{Counts, Depth, Finding, Kind, guard, no_passes};
use crate::round::{different_lookups, visible_state};
use datapath::drops::RuntimeDrop;
use datapath::{EngineKind, Local, Sent, Specialise};
use ir::{ExternKind, Program};
use std::sync::Arc;
use stf::{Command, Line, Setup, Target};

/// The maximum number of packets in a batch.
const BATCH_MAX: usize = 24;
/// The number of packets with which each single pass is tested.
const PASS_PACKETS: usize = 64;

/// The number of packets with which a rewritten program is tested.
const REWRITTEN_PACKETS: usize = 128;

/// The names of the engines that are occasionally specialised for their current tables.
const RECOMPILED: [&str; 2] = ["recompiled machine code", "recompiled staged code"];

/// An engine for a program.
#[derive(Clone, Copy)]
enum Runs {
    Interpreter,
    /// Machine code without some optimisations.
    Machine(jit::Without),
    /// Machine code with staging at every table.
    Staged,
    /// Machine code with every other slot in memory, as in the code of large programs.
    MachineInMemory,
    /// Machine-level IR, compiled or interpreted.
    Lowered(EngineKind),
    /// Machine-level IR with all slots in memory.
    LoweredInMemory,
    /// Machine code for two workers, which locks the cells of registers; one worker runs.
    Shared(EngineKind),
}

struct Engine {
    name: String,
    local: Local,
    setup: Setup,
    /// The number of batches so far, for engines that are specialised.
    batches: u32,
}

/// A step of a script: a batch of packets, or another line.
enum Step<'a> {
    Batch(u32, Vec<&'a [u8]>),
    Line(&'a Line),
}

/// Compares all engines on a script. `again` is the raw program after printing and parsing.
///
/// # Errors
/// The first difference or failure.
pub fn compare(
    script: &[String],
    raw: &Arc<Program>,
    again: Program,
    depth: Depth,
    counts: &mut Counts,
) -> Result<(), Finding> {
    let mut list: Vec<(String, Arc<Program>, Runs)> = Vec::new();
    list.push(("raw".into(), Arc::clone(raw), Runs::Interpreter));
    let optimised = Arc::new(optimise("all passes", raw, &opt::Options::default())?);
    list.push(("optimised".into(), Arc::clone(&optimised), Runs::Interpreter));
    list.push(("machine code".into(), Arc::clone(&optimised), Runs::Machine(jit::Without::default())));
    list.push(("staged".into(), Arc::clone(&optimised), Runs::Staged));
    if datapath::updates_registers(raw) {
        list.push(("machine code for two workers".into(), Arc::clone(&optimised), Runs::Shared(EngineKind::Machine)));
        list.push(("staged for two workers".into(), Arc::clone(&optimised), Runs::Shared(EngineKind::Staged)));
        list.push(("compiled mir for two workers".into(), Arc::clone(&optimised), Runs::Shared(EngineKind::Mir)));
    }
    list.push(("compiled mir".into(), Arc::clone(&optimised), Runs::Lowered(EngineKind::Mir)));
    list.push(("compiled mir with slots in memory".into(), Arc::clone(&optimised), Runs::LoweredInMemory));
    list.push(("interpreted mir".into(), Arc::clone(raw), Runs::Lowered(EngineKind::MirInterpreter)));
    list.push((RECOMPILED[0].into(), Arc::clone(&optimised), Runs::Machine(jit::Without::default())));
    list.push((RECOMPILED[1].into(), Arc::clone(&optimised), Runs::Staged));
    list.push(("machine code with slots in memory".into(), Arc::clone(&optimised), Runs::MachineInMemory));
    list.push(("machine code of raw IR".into(), Arc::clone(raw), Runs::Machine(jit::Without::default())));
    let lines: Vec<Line> = script.iter().filter_map(|text| stf::parse(text).ok()).flatten().collect();
    run(list, &lines, usize::MAX, counts)?;
    if depth < Depth::Passes {
        return Ok(());
    }
    let mut list = vec![("raw".to_string(), Arc::clone(raw), Runs::Interpreter)];
    list.push(("printed and read".into(), Arc::new(again), Runs::Interpreter));
    for (i, pass) in opt::pass_names().enumerate() {
        let mut without = opt::Options::default();
        without.disabled.insert(pass.to_string());
        let mut alone = no_passes();
        alone.disabled.remove(pass);
        for (what, options) in [("without", without), ("only", alone)] {
            let name = format!("{what} {pass}");
            let program = Arc::new(optimise(&name, raw, &options)?);
            if *program == **raw {
                continue;
            }
            // Compiling all of them would take too long; the program selects some.
            if (raw.stages.len() + script.len() + i).is_multiple_of(9) {
                let code = if i % 2 == 0 { Runs::Machine(jit::Without::default()) } else { Runs::Staged };
                list.push((format!("machine code {name}"), Arc::clone(&program), code));
            }
            list.push((name, program, Runs::Interpreter));
        }
    }
    run(list, &lines, PASS_PACKETS, &mut Counts::default())?;
    compare_code(&lines, raw, &optimised)
}

/// Compares machine code by optimisations of code generation: for each program three of them, each disabled alone and
/// each enabled alone; and code without any.
fn compare_code(lines: &[Line], raw: &Arc<Program>, optimised: &Arc<Program>) -> Result<(), Finding> {
    let all = jit::Optimisation::ALL;
    let first = raw.stages.len() + lines.len();
    let mut list = vec![("raw".to_string(), Arc::clone(raw), Runs::Interpreter)];
    for o in (first..first + 3).map(|i| all[i % all.len()]) {
        let mut only = jit::Without::all();
        only.remove(o);
        for (what, without) in [("without", [o].into_iter().collect()), ("only", only)] {
            list.push((format!("machine code {what} {}", o.name()), Arc::clone(optimised), Runs::Machine(without)));
        }
    }
    list.push(("machine code without all".into(), Arc::clone(raw), Runs::Machine(jit::Without::all())));
    run(list, lines, PASS_PACKETS, &mut Counts::default())
}

/// Compares two programs that must behave the same.
///
/// # Errors
/// The first difference or failure.
pub fn compare_raw(
    script: &[String],
    raw: &Arc<Program>,
    written: &Arc<Program>,
    counts: &mut Counts,
) -> Result<(), Finding> {
    let list = vec![
        ("raw".into(), Arc::clone(raw), Runs::Interpreter),
        ("written differently".into(), Arc::clone(written), Runs::Interpreter),
    ];
    let lines: Vec<Line> = script.iter().filter_map(|text| stf::parse(text).ok()).flatten().collect();
    run(list, &lines, REWRITTEN_PACKETS, counts)
}

fn optimise(name: &str, raw: &Program, options: &opt::Options) -> Result<Program, Finding> {
    guard(&format!("optimiser, {name}"), || {
        let mut program = raw.clone();
        opt::optimise(&mut program, options);
        program
    })
}

fn run(
    list: Vec<(String, Arc<Program>, Runs)>,
    lines: &[Line],
    packets_max: usize,
    counts: &mut Counts,
) -> Result<(), Finding> {
    let mut engines = Vec::new();
    for (name, program, kind) in list {
        let mut options = jit::Options::default();
        let workers = if matches!(kind, Runs::Shared(_)) { 2 } else { 1 };
        let kind = match kind {
            Runs::Interpreter => EngineKind::Interpreter,
            Runs::Machine(without) => {
                options.without = without;
                EngineKind::Machine
            }
            Runs::MachineInMemory => {
                options.memory_slots = jit::MemorySlots::EveryOther;
                options.loads_per_field_max = 0;
                EngineKind::Machine
            }
            Runs::Staged => EngineKind::Staged,
            Runs::LoweredInMemory => {
                options.memory_slots = jit::MemorySlots::EveryOther;
                EngineKind::Mir
            }
            Runs::Lowered(kind) | Runs::Shared(kind) => kind,
        };
        let loaded =
            guard(&format!("loading, {name}"), || datapath::load_with(program, kind, workers, &options.into()))?;
        let pipeline = loaded.map_err(|e| Finding {
            kind: Kind::Load,
            place: format!("{name}: {}", super::finding::plain(&e.to_string())),
            what: format!("{name} cannot be loaded: {e}"),
        })?;
        engines.push(Engine { name, local: Local::new(Arc::new(pipeline)), setup: Setup::new(), batches: 0 });
    }
    counts.engines += engines.len() as u64 - 1;
    for step in steps(lines, packets_max) {
        match step {
            Step::Line(line) => {
                let mut expected = None;
                for engine in &mut engines {
                    let answer = guard(&format!("{}: line `{:?}`", engine.name, line.command), || apply(engine, line))?;
                    match &expected {
                        None => {
                            counts.entries += u64::from(answer.is_ok());
                            expected = Some(answer);
                        }
                        Some(expected) if *expected != answer => {
                            let what =
                                format!("raw answers {expected:?}, {} {answer:?} to {:?}", engine.name, line.command);
                            return Err(difference(&engine.name, what));
                        }
                        Some(_) => {}
                    }
                }
            }
            Step::Batch(port, frames) => {
                counts.packets += frames.len() as u64;
                let mut expected: Option<Vec<Sent>> = None;
                for engine in &mut engines {
                    engine.local.advance_us(37);
                    recompile(engine)?;
                    let sent =
                        guard(&format!("{}: packets", engine.name), || engine.local.receive_batch(port, &frames))?;
                    let sent = sent.unwrap_or_default();
                    match &expected {
                        None if went_in_circles(&engine.local) => return Ok(()),
                        None => {
                            counts.sent += sent.len() as u64;
                            expected = Some(sent);
                        }
                        Some(expected) if *expected != sent => {
                            return Err(difference(&engine.name, describe(&engine.name, expected, &sent)));
                        }
                        Some(_) => {}
                    }
                }
            }
        }
    }
    let seen: Vec<Vec<String>> = engines.iter().map(|e| visible_state(&e.local)).collect();
    for (engine, state) in engines.iter().zip(&seen).skip(1) {
        if let Some((a, b)) = seen[0].iter().zip(state).find(|(a, b)| a != b) {
            let what = format!("at the end raw has\n  {a}\nand {} has\n  {b}", engine.name);
            return Err(difference(&engine.name, what));
        }
    }
    if let Some((name, what)) = different_lookups(engines.iter().map(|e| (e.name.as_str(), &e.local))) {
        return Err(difference(name, what));
    }
    canary(&engines[0].local)
}

/// Specialises the code for the current tables, if the engine is one for that. Until the next time, batches see tables
/// that the code was specialised for, and others.
fn recompile(engine: &mut Engine) -> Result<(), Finding> {
    let Some(name) = RECOMPILED.iter().find(|name| engine.name == **name) else {
        return Ok(());
    };
    engine.batches += 1;
    // Early, so that short scripts are covered, and then less and less often.
    if engine.batches.is_power_of_two() || engine.batches.is_multiple_of(10) {
        let pipeline = engine.local.pipeline();
        // Quickly compiled code is normally replaced soon; here it sometimes stays.
        let took = guard(name, || match engine.batches % 3 {
            1 => pipeline.recompile(Specialise::Auto),
            _ => pipeline.recompile_quick(Specialise::Auto),
        })?;
        let refused = || Finding { kind: Kind::Load, place: name.to_string(), what: "it was not recompiled".into() };
        took.ok_or_else(refused)?;
    }
    Ok(())
}

/// Whether a packet exceeded its bound of passes: engines count differently up to that, and it takes long. Edited
/// programs do that.
fn went_in_circles(local: &Local) -> bool {
    let limits = [RuntimeDrop::Endless, RuntimeDrop::ReplicationLimit].map(RuntimeDrop::name);
    let drops = local.pipeline().drops(0).read(local.pipeline().program());
    drops.into_iter().any(|(name, count)| count > 0 && limits.contains(&name.as_str()))
}

fn canary(local: &Local) -> Result<(), Finding> {
    for (i, e) in local.pipeline().program().externs.iter().enumerate() {
        if e.name.ends_with("canary") && matches!(e.kind, ExternKind::Counter { .. }) {
            let count = local.pipeline().state().counter(base::ids::ExternId::from_index(i), 0);
            if count.is_ok_and(|c| c.packets > 0) {
                let what = "a constant expression has another value when it is computed at run time".to_string();
                return Err(Finding { kind: Kind::Canary, place: String::new(), what });
            }
        }
    }
    Ok(())
}

fn difference(engine: &str, what: String) -> Finding {
    Finding { kind: Kind::Difference, place: engine.to_string(), what }
}

/// Groups consecutive packets on one port into batches.
fn steps(lines: &[Line], packets_max: usize) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let mut packets = 0;
    for line in lines {
        match &line.command {
            Command::Packet { port, frame } => {
                packets += 1;
                if packets > packets_max {
                    break;
                }
                match steps.last_mut() {
                    Some(Step::Batch(last, frames)) if last == port && frames.len() < BATCH_MAX => frames.push(frame),
                    _ => steps.push(Step::Batch(*port, vec![frame])),
                }
            }
            _ => steps.push(Step::Line(line)),
        }
    }
    steps
}

fn apply(engine: &mut Engine, line: &Line) -> Result<Option<String>, String> {
    if let Command::Wait { microseconds } = line.command {
        engine.local.advance_us(microseconds);
        return Ok(None);
    }
    let pipeline = Arc::clone(engine.local.pipeline());
    let replication = Arc::clone(engine.local.replication());
    let target = Target { program: pipeline.program(), state: pipeline.state().as_ref(), replication: &replication };
    engine.setup.apply(&line.command, target)
}

fn describe(name: &str, expected: &[Sent], got: &[Sent]) -> String {
    let text = |list: &[Sent], i: usize| {
        list.get(i).map_or("nothing".into(), |s| {
            format!("port {} {}", s.port, s.bytes.iter().map(|b| format!("{b:02x}")).collect::<String>())
        })
    };
    let at = (0..expected.len().max(got.len())).find(|&i| expected.get(i) != got.get(i)).unwrap_or(0);
    format!("frame {at} of a batch\n  raw:  {}\n  {name}: {}", text(expected, at), text(got, at))
}
