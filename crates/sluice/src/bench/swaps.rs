//! `sluice bench OLD.p4 --packets FILE --swap NEW.p4 --swaps N`: the effect on packets of replacing a program.
//!
//! A switch with one worker and memory ports runs under load while its program is replaced N times, back and forth,
//! with all of its state, as `sluice load --strict` does. One thread sends and receives the packets. Since the worker
//! keeps their order, a packet's time in the switch is known without marking it. The same load without replacements
//! runs first, so that delays by the machine's other work are not attributed to the switch.

use super::Args;
use crate::compile::CompileArgs;
use crate::target::SwitchTarget;
use anyhow::{Result, bail, ensure};
use control::Control;
use control::control::Losses;
use control::forwarding::ForwardingConfig;
use datapath::{EngineKind, Idle, Specialise, Switch, SwitchConfig};
use pktio::{HeapPool, MemoryDevice, MemoryHandle};
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Packets in the switch at a time: enough for full bursts, and never more than a ring holds.
const IN_FLIGHT: usize = 512;
/// Time limit for the last packets.
const END: Duration = Duration::from_secs(2);
/// The device id; it is not visible outside.
const DEVICE: u64 = 1;

/// The observations of one run.
#[derive(Default)]
struct Seen {
    sent: u64,
    received: u64,
    worst_gap: Duration,
    latencies: Vec<Duration>,
}

/// Measures the replacements and prints the result.
///
/// # Errors
/// If a program does not compile or cannot replace the other, or a packet is lost.
pub fn run(args: &Args, new: &Path, frames: &[(u32, Vec<u8>)]) -> Result<()> {
    let compile = &args.program.compile;
    let sources = [text(compile, &args.program.program)?, text(compile, new)?];
    let pool = HeapPool::shared(8 * 1024);
    let switch = Arc::new(Switch::new(SwitchConfig {
        idle: Idle::Busy,
        pool: Some(Arc::clone(&pool)),
        ..SwitchConfig::default()
    }));
    let engine = EngineKind::Machine;
    let target = SwitchTarget::new(
        Arc::clone(&switch),
        crate::compiler::Compiler::in_process(),
        compile.options()?,
        compile.code()?,
        engine,
        Specialise::Auto,
    );
    let mut control = Control::new();
    control.add_device(DEVICE, Arc::new(target));
    let config = |i: usize| ForwardingConfig { device_config: sources[i % 2].clone(), ..Default::default() };
    control.load(DEVICE, config(0)).map_err(|e| anyhow::anyhow!(e.message))?;
    if let (Some(file), Some(pipeline)) = (&args.entries, switch.pipeline()) {
        ensure!(crate::run::apply_entries(file, &pipeline, pipeline.replication())?, "the entries are wrong");
    }
    let mut ports = Vec::new();
    let numbers: BTreeSet<u32> = frames.iter().map(|(port, _)| *port).chain(args.out_ports.iter().copied()).collect();
    for number in numbers {
        let (device, handle) = MemoryDevice::new(format!("m{number}"), Arc::clone(&pool), 1);
        switch.add_port(number, Box::new(device))?;
        ports.push((number, handle));
    }
    let quiet = under_load(&ports, frames, || {
        std::thread::sleep(Duration::from_secs(2));
        Ok(())
    })?;
    let mut swaps = Vec::new();
    let swapped = under_load(&ports, frames, || {
        for i in 1..=args.swaps {
            let start = Instant::now();
            let done = control.replace(DEVICE, config(i), Losses::Refused);
            swaps.push(start.elapsed());
            if let Err(error) = done {
                bail!("{}", error.message);
            }
            // Leaves time for specialised code to be compiled and installed.
            std::thread::sleep(Duration::from_millis(args.swap_pause_ms));
        }
        Ok(())
    })?;
    print("no swaps", &quiet);
    print(&format!("{} swaps", args.swaps), &swapped);
    swaps.sort_unstable();
    if let (Some(median), Some(worst)) = (swaps.get(swaps.len() / 2), swaps.last()) {
        println!("a swap, compiling included: median {:.1} ms, worst {:.1} ms", ms(*median), ms(*worst));
    }
    ensure!(swapped.sent == swapped.received, "{} packets were lost", swapped.sent - swapped.received);
    Ok(())
}

pub(super) fn text(compile: &CompileArgs, path: &Path) -> Result<Vec<u8>> {
    let Some(compiled) = compile.compile_program(path)? else { bail!("{} is wrong", path.display()) };
    Ok(frontend::self_contained(path, &compiled.sources, &compile.options()?)?.into_bytes())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn print(what: &str, seen: &Seen) {
    let mut all = seen.latencies.clone();
    all.sort_unstable();
    let at = |share: f64| ms(all.get((all.len() as f64 * share) as usize).or(all.last()).copied().unwrap_or_default());
    println!(
        "{what}: {} sent, {} lost; worst gap between packets {:.3} ms; time in the switch: median {:.3} ms, 99.99 % {:.3} ms, \
         worst {:.3} ms",
        seen.sent,
        seen.sent - seen.received,
        ms(seen.worst_gap),
        at(0.5),
        at(0.9999),
        at(1.0)
    );
}

/// Calls `body` while packets go through the switch.
fn under_load(
    ports: &[(u32, MemoryHandle)],
    frames: &[(u32, Vec<u8>)],
    body: impl FnOnce() -> Result<()>,
) -> Result<Seen> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let load = s.spawn(|| generate(ports, frames, &stop));
        let done = body();
        stop.store(true, Ordering::Relaxed);
        let seen = load.join().expect("the generator does not panic");
        done.map(|()| seen)
    })
}

fn generate(ports: &[(u32, MemoryHandle)], frames: &[(u32, Vec<u8>)], stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut flying: VecDeque<Instant> = VecDeque::new();
    let mut next = frames.iter().cycle();
    let mut last = Instant::now();
    let mut stopped = None;
    loop {
        let now = Instant::now();
        let got: usize = ports.iter().map(|(_, port)| port.collect().len()).sum();
        if got > 0 {
            seen.worst_gap = seen.worst_gap.max(now - last);
            last = now;
        }
        seen.received += got as u64;
        seen.latencies.extend(flying.drain(..got.min(flying.len())).map(|sent| now - sent));
        if stop.load(Ordering::Relaxed) {
            let since = *stopped.get_or_insert(now);
            if flying.is_empty() || now - since > END {
                return seen;
            }
            std::thread::yield_now();
            continue;
        }
        while flying.len() < IN_FLIGHT {
            let Some((number, frame)) = next.next() else { break };
            let port = ports.iter().find(|(n, _)| n == number);
            if port.is_some_and(|(_, port)| port.inject(frame)) {
                seen.sent += 1;
                flying.push_back(Instant::now());
            }
        }
        std::thread::yield_now();
    }
}
