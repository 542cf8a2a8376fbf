//! Cycles per packet of a cached flow: lookup and rewriting, without I/O.
//!
//! `cargo run --release -p flowcache --example cycles [ROUNDS [MASKS FLOWS]]` prints a line per number of masks and of flows, for frames
//! of 64 bytes in bursts of 32, in random order. Cycles are those of the time stamp counter, whose rate Linux says: of the median burst,
//! and of the one that a tenth of all bursts are faster than, when the machine does little else. Each frame is found, its payload counted
//! as a switch would, and rewritten as a router does: two MAC addresses, TTL and checksum. Payloads have 24 bytes (with the rewriting, a
//! cache line), or 56.

use std::hint::black_box;
use std::time::Instant;

use flowcache::cache::{Cache, Frame, NONE};
use flowcache::path::Pattern;
use flowcache::run::Prepared;
use random::Random;

#[path = "../tests/common/router.rs"]
mod router;

const BATCH: usize = 32;
/// Bytes of a buffer, and where its frame begins.
const BUFFER: usize = 2048 + 192;
const OFFSET: usize = 128;
const LEN: usize = 64;
/// Frames in memory at once.
const BUFFERS: usize = 512;

/// Which frames have a megaflow.
#[derive(Clone, Copy, PartialEq)]
enum Traffic {
    Hits,
    Misses,
    EverySecondHits,
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|number| number.parse().ok()).collect();
    let rounds = numbers.first().copied().unwrap_or(10);
    println!("                                 median burst                least decile");
    println!("masks   flows payload frames   lookup rewrite     all   lookup rewrite     all");
    if let [_, masks, flows] = numbers[..] {
        return measure::<24>(rounds, masks, flows, Traffic::Hits);
    }
    for masks in [1, 20] {
        for flows in [64, 1000, 100_000] {
            measure::<24>(rounds, masks, flows, Traffic::Hits);
            measure::<56>(rounds, masks, flows, Traffic::Hits);
        }
    }
    for masks in [1, 20, 64] {
        measure::<24>(rounds, masks, 10_000, Traffic::Misses);
        measure::<24>(rounds, masks, 10_000, Traffic::EverySecondHits);
    }
}

/// What is kept for a megaflow: counters and so many bytes more.
struct Counts<const BYTES: usize> {
    packets: u64,
    bytes: u64,
    rest: [u8; BYTES],
}

/// With a payload of so many bytes: 24 or 56.
fn measure<const PAYLOAD: usize>(rounds: usize, masks: usize, flows: usize, traffic: Traffic) {
    match PAYLOAD {
        24 => measured::<8>(rounds, masks, flows, traffic),
        _ => measured::<40>(rounds, masks, flows, traffic),
    }
}

fn measured<const REST: usize>(rounds: usize, masks: usize, flows: usize, traffic: Traffic) {
    let mut random = Random::new(1);
    let mut cache = cache::<REST>(masks, flows, &mut random);
    let known: Vec<[u8; LEN]> = (0..flows).map(|i| frame(masks, i)).collect();
    let mut memory = vec![[0; BUFFER]; BUFFERS];
    let (mut lookups, mut rewrites, mut both) = (Vec::new(), Vec::new(), Vec::new());
    let batches = (flows * 2).max(20_000) / BATCH;
    for round in 0..rounds {
        for batch in 0..batches {
            let buffers = &mut memory[batch * BATCH % BUFFERS..][..BATCH];
            for (i, buffer) in buffers.iter_mut().enumerate() {
                let mut received = *random.pick(&known);
                if traffic == Traffic::Misses || traffic == Traffic::EverySecondHits && i % 2 == 0 {
                    received[26..30].copy_from_slice(&(random.next_u64() as u32 | 1 << 31).to_be_bytes());
                }
                buffer[OFFSET..][..LEN].copy_from_slice(&received);
            }
            let mut hits = [0; BATCH];
            let begin = Instant::now();
            {
                let frames: [Frame<'_>; BATCH] =
                    std::array::from_fn(|i| Frame { buffer: &buffers[i], offset: OFFSET, len: LEN, port: 1 });
                cache.lookup(&frames, &mut hits);
            }
            let middle = Instant::now();
            for (buffer, hit) in buffers.iter_mut().zip(hits) {
                let Some((prepared, counts)) = cache.get_mut(hit) else { continue };
                counts.packets += 1;
                counts.bytes += LEN as u64;
                let Some((offset, len)) = prepared.run(buffer, OFFSET, LEN) else { continue };
                black_box((offset, len, &counts.rest));
            }
            let end = Instant::now();
            assert!(traffic != Traffic::Hits || hits.iter().all(|hit| *hit != NONE), "each flow has its megaflow");
            // The first rounds fill the caches.
            if round >= rounds / 3 {
                lookups.push((middle - begin).as_nanos() as f64);
                rewrites.push((end - middle).as_nanos() as f64);
                both.push((end - begin).as_nanos() as f64);
            }
        }
    }
    let name = match traffic {
        Traffic::Hits => "hit",
        Traffic::Misses => "miss",
        Traffic::EverySecondHits => "both",
    };
    print!("{masks:>5} {flows:>7} {:>7} {name:>6}", size_of::<Counts<REST>>());
    for part in [2, 10] {
        let at = |values: &mut [f64]| cycles(values, part);
        print!("  {:>7.1} {:>7.1} {:>7.1}", at(&mut lookups), at(&mut rewrites), at(&mut both));
    }
    println!();
}

/// Megaflows of UDP flows: Ethernet type, addresses, protocol and ports, TTL, with more or fewer bits of the source MAC address.
fn cache<const REST: usize>(masks: usize, flows: usize, random: &mut Random) -> Cache<Counts<REST>> {
    let mut cache = Cache::new(random.next_u64(), flows);
    for flow in 0..flows {
        let frame = frame(masks, flow);
        let mut mask = [0u8; 38];
        mask[0..6].fill(0xff);
        mask[12..15].fill(0xff);
        mask[20..24].fill(0xff);
        mask[26..38].fill(0xff);
        let extra = (flow % masks) as u8;
        (mask[6], mask[7]) = (extra, 0xff);
        let value: Vec<u8> = mask.iter().zip(frame).map(|(m, b)| m & b).collect();
        let pattern = Pattern { mask: mask.into(), value: value.into(), shortest: 38, longest: u32::MAX };
        let macs = std::array::from_fn(|_| random.next_u64() as u8);
        let prepared = Prepared::new(&router::router(macs)).expect("right");
        let counts = Counts { packets: 0, bytes: 0, rest: [2; REST] };
        cache.insert(1, &pattern, prepared, counts, |_| panic!("there is room")).expect("right");
    }
    cache
}

/// A UDP frame of a flow. Byte 7 is the number of the mask, so that megaflows are disjoint.
fn frame(masks: usize, flow: usize) -> [u8; LEN] {
    let mut frame = [0; LEN];
    frame[0..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[7] = (flow % masks) as u8;
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17]);
    frame[26..30].copy_from_slice(&(0x0a00_0000 + flow as u32).to_be_bytes());
    frame[30..34].copy_from_slice(&(0x0b00_0000 + flow as u32 * 7).to_be_bytes());
    frame[34..38].copy_from_slice(&[0x12, 0x34, 0, 53]);
    frame
}

/// Cycles of the time stamp counter in a nanosecond: half of what Linux calls `bogomips`.
fn rate() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("bogomips")).and_then(|line| line.split(':').nth(1));
    line.and_then(|mips| mips.trim().parse::<f64>().ok()).expect("Linux says bogomips of the processor") / 2000.0
}

/// Cycles per packet of the burst below which one part of so many is.
fn cycles(values: &mut [f64], part: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / part] * rate() / BATCH as f64
}
