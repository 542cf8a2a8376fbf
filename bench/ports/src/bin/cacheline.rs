//! `cacheline CPU CPU`: nanoseconds that a cache line takes from one processor to the other and back, the least of some
//! hundred tries.
//!
//! Virtual processors move: at times both are threads of one core, at times they share no cache at all. What a port costs
//! depends on that more than on anything that the switch does, since every line of a ring goes from one to the other. So the
//! benchmark notes it beside each measurement.

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

const TRIES: u32 = 300;
/// Round trips that are timed together: the clock takes as long as some of them.
const TRIPS: u32 = 100;

/// A counter on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU32);

impl Line {
    fn set(&self, value: u32) {
        self.0.store(value, Ordering::Release);
    }

    fn wait_for(&self, value: u32) {
        while self.0.load(Ordering::Acquire) != value {
            std::hint::spin_loop();
        }
    }
}

fn pin(cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).with_context(|| format!("processor {cpu}"))
}

fn main() -> Result<()> {
    let cpus: Vec<usize> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [here, there] = cpus[..] else { bail!("usage: cacheline CPU CPU") };
    let (ping, pong) = (Line::default(), Line::default());
    let least = std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let pinned = pin(there);
            (1..=TRIES * TRIPS).for_each(|trip| {
                ping.wait_for(trip);
                pong.set(trip);
            });
            pinned
        });
        let pinned = pin(here);
        let mut least = f64::MAX;
        for first in (0..TRIES).map(|i| i * TRIPS + 1) {
            let begin = Instant::now();
            (first..first + TRIPS).for_each(|trip| {
                ping.set(trip);
                pong.wait_for(trip);
            });
            least = least.min(begin.elapsed().as_secs_f64() * 1e9 / f64::from(TRIPS));
        }
        pinned?;
        echo.join().map_err(|_| anyhow::anyhow!("the other thread has panicked"))??;
        Ok::<f64, anyhow::Error>(least)
    })?;
    println!("{least:.0}");
    Ok(())
}
