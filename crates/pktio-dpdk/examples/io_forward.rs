//! Forwards everything between two ports without looking at it, and prints how fast: the floor of what a switch on these
//! ports costs. Compare with `dpdk-testpmd --forward-mode=io` on the same ports.
//!
//! ```text
//! taskset -c 0 io_forward vhost:/tmp/a.sock vhost:/tmp/b.sock 10
//! ```
//!
//! Rates are of sent packets, both directions added. Packets that the other port does not take are dropped and counted.
//! Cycles per packet are of the time-stamp counter, in bursts that had packets, as testpmd's `--record-core-cycles` has it.
#![allow(unsafe_code)]

use pktio::{Device, DeviceSpec, Error, Packet, Queue};
use pktio_dpdk::{Eal, EalConfig, PortOptions, register_worker};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The burst of testpmd.
const BURST: usize = 32;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (a, b, seconds) = match &arguments[..] {
        [a, b] => (a, b, 10),
        [a, b, seconds] => match seconds.parse() {
            Ok(seconds) => (a, b, seconds),
            Err(_) => return usage(&format!("`{seconds}` is not a number of seconds")),
        },
        _ => return usage("two devices are needed"),
    };
    match forward(a, b, Duration::from_secs(seconds)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(remedy) = error.remedy() {
                eprintln!("help: {remedy}");
            }
            ExitCode::FAILURE
        }
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("error: {problem}\nusage: io_forward DEVICE DEVICE [SECONDS]");
    ExitCode::from(2)
}

fn forward(a: &str, b: &str, time: Duration) -> Result<(), Error> {
    let specs: [DeviceSpec; 2] = [a.parse()?, b.parse()?];
    let eal = Eal::init(&EalConfig::default())?;
    eal.notices().iter().for_each(|notice| eprintln!("note: {notice}"));
    let [mut first, mut second] = [open(&eal, &specs[0])?, open(&eal, &specs[1])?];
    let mut queues = [first.take_queues().remove(0), second.take_queues().remove(0)];
    let _worker = register_worker()?;

    let start = Instant::now();
    let (mut sent, mut dropped, mut busy_cycles) = (0, 0, 0);
    let (mut sent_before, mut cycles_before) = (0, 0);
    let mut report = start + Duration::from_secs(1);
    let mut packets = Vec::with_capacity(BURST);
    while start.elapsed() < time {
        for _ in 0..10_000 {
            for _ in 0..2 {
                let [from, to] = &mut queues;
                let start = cycles();
                let (passed, lost) = pass(&mut **from, &mut **to, &mut packets);
                if passed + lost > 0 {
                    busy_cycles += cycles() - start;
                }
                sent += passed;
                dropped += lost;
                queues.swap(0, 1);
            }
        }
        if Instant::now() >= report {
            let (packets, cycles) = (sent - sent_before, busy_cycles - cycles_before);
            let cost = cycles as f64 / packets.max(1) as f64;
            println!("{:.3} Mpps, {cost:.1} cycles per packet, {dropped} dropped so far", packets as f64 / 1e6);
            (sent_before, cycles_before) = (sent, busy_cycles);
            report += Duration::from_secs(1);
        }
    }
    let rate = sent as f64 / 1e6 / start.elapsed().as_secs_f64();
    let cost = busy_cycles as f64 / (sent + dropped).max(1) as f64;
    println!("mean {rate:.3} Mpps of {sent} packets, {cost:.1} cycles per packet");
    for device in [&first, &second] {
        println!("{}: {:?}", device.name(), device.stats());
    }
    Ok(())
}

fn open(eal: &Eal, spec: &DeviceSpec) -> Result<Box<dyn Device>, Error> {
    eal.open(spec, &PortOptions::default())
}

/// The time-stamp counter; 0 where there is none.
fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the counter.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    return 0;
}

/// One burst from one port to the other; returns packets sent and lost.
fn pass(from: &mut dyn Queue, to: &mut dyn Queue, packets: &mut Vec<Packet>) -> (usize, usize) {
    if from.rx(packets, BURST) == 0 {
        return (0, 0);
    }
    let sent = to.tx(packets);
    let lost = packets.len();
    pktio::free_bulk(packets);
    (sent, lost)
}
