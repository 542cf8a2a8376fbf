//! Cycles per packet of a cached flow: lookup and rewriting, without I/O.
//!
//! `cargo run --release -p flowcache --example cycles` prints a line per number of masks and of flows, for frames of 64 bytes in batches
//! of 64, in random order. Cycles are those of the time stamp counter, whose rate Linux says. Each frame is found, its payload counted as a switch would, and
//! rewritten as a router does: two MAC addresses, TTL and checksum.

use std::hint::black_box;
use std::time::Instant;

use flowcache::cache::{Cache, Frame};
use flowcache::path::{Pattern, Rewrite, Source, Step, Word};
use flowcache::run::Prepared;
use ir::{BinOp, UnOp};
use random::Random;

const BATCH: usize = 64;
/// Bytes of a buffer, and where its frame begins.
const BUFFER: usize = 2048 + 192;
const OFFSET: usize = 128;
const LEN: usize = 64;
/// Frames in memory at once.
const BUFFERS: usize = 512;
const ROUNDS: usize = 15;

fn main() {
    println!(
        "{:>6} {:>8} {:>8} {:>8} {:>8}  cycles per packet (median batch)",
        "masks", "flows", "lookup", "rewrite", "all"
    );
    for masks in [1, 20] {
        for flows in [64, 10_000, 100_000] {
            measure(masks, flows);
        }
    }
    for masks in [20, 64] {
        misses(masks);
    }
}

/// What is counted for a megaflow.
#[derive(Default)]
struct Counts {
    packets: u64,
    bytes: u64,
    port: u32,
}

fn measure(masks: usize, flows: usize) {
    let mut random = Random::new(1);
    let mut cache = cache(masks, flows, &mut random);
    let frames: Vec<[u8; LEN]> = (0..flows).map(|i| frame(masks, i)).collect();
    let mut memory = vec![[0; BUFFER]; BUFFERS];
    let (mut lookups, mut rewrites) = (Vec::new(), Vec::new());
    let batches = (flows * 4).max(20_000) / BATCH;
    for round in 0..ROUNDS {
        for batch in 0..batches {
            let buffers = &mut memory[batch * BATCH % BUFFERS..][..BATCH];
            for buffer in buffers.iter_mut() {
                let received = random.pick(&frames);
                buffer[OFFSET..][..LEN].copy_from_slice(received);
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
                let (prepared, counts) = cache.get_mut(hit).expect("each flow has its megaflow");
                counts.packets += 1;
                counts.bytes += LEN as u64;
                black_box((prepared.run(buffer, OFFSET, LEN), counts.port));
            }
            let end = Instant::now();
            // The first rounds fill the caches.
            if round >= ROUNDS / 3 {
                lookups.push((middle - begin).as_nanos() as f64);
                rewrites.push((end - middle).as_nanos() as f64);
            }
        }
    }
    let (lookup, rewrite) = (median(lookups), median(rewrites));
    println!("{masks:>6} {flows:>8} {lookup:>8.1} {rewrite:>8.1} {:>8.1}  {:?}", lookup + rewrite, cache.statistics());
}

/// Frames without a megaflow: what a lookup costs that finds nothing.
fn misses(masks: usize) {
    let mut random = Random::new(2);
    let mut cache = cache(masks, 10_000, &mut random);
    let mut memory = vec![[0; BUFFER]; BUFFERS];
    let mut cycles = Vec::new();
    for _ in 0..ROUNDS {
        for batch in 0..200 {
            let buffers = &mut memory[batch * BATCH % BUFFERS..][..BATCH];
            for buffer in buffers.iter_mut() {
                let mut frame = frame(masks, random.index(10_000));
                frame[26..30].copy_from_slice(&(random.next_u64() as u32 | 1 << 31).to_be_bytes());
                buffer[OFFSET..][..LEN].copy_from_slice(&frame);
            }
            let mut hits = [0; BATCH];
            let begin = Instant::now();
            let frames: [Frame<'_>; BATCH] =
                std::array::from_fn(|i| Frame { buffer: &buffers[i], offset: OFFSET, len: LEN, port: 1 });
            cache.lookup(&frames, &mut hits);
            cycles.push(begin.elapsed().as_nanos() as f64);
        }
    }
    println!("{masks:>6}  misses: {:.1} cycles per packet", median(cycles));
}

/// Megaflows of UDP flows: Ethernet type, addresses, protocol and ports, TTL, with more or fewer bits of the source MAC address.
fn cache(masks: usize, flows: usize, random: &mut Random) -> Cache<Counts> {
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
        let prepared = Prepared::new(&router(std::array::from_fn(|_| random.next_u64() as u8))).expect("right");
        let counts = Counts { port: 2, ..Counts::default() };
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

fn router(macs: [u8; 12]) -> Rewrite {
    let words = [
        Word { at: 14, mask: u64::MAX },
        Word { at: 22, mask: 0x00ff_0000_ffff_ffff },
        Word { at: 30, mask: !0 << 32 },
    ];
    Rewrite {
        steps: Box::new([
            Step::Bytes { at: 0, bytes: macs.into() },
            Step::Load { to: 0, bit: 22 * 8, width: 8 },
            Step::Binary { op: BinOp::Sub, to: 0, a: Source::Register(0), b: Source::Const(1), width: 8 },
            Step::Store { bit: 22 * 8, width: 8, value: Source::Register(0) },
            Step::Binary { op: BinOp::Shl, to: 1, a: Source::Register(0), b: Source::Const(8), width: 16 },
            Step::Sum { to: 2, words: words.into(), values: Box::new([Source::Register(1)]), constant: 0 },
            Step::Unary { op: UnOp::Not, to: 2, a: Source::Register(2), width: 16 },
            Step::Store { bit: 24 * 8, width: 16, value: Source::Register(2) },
        ]),
        replaced: 34,
        head: 34,
        max_len: u32::MAX,
    }
}

/// Cycles of the time stamp counter in a nanosecond: half of what Linux calls `bogomips`.
fn rate() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("bogomips")).and_then(|line| line.split(':').nth(1));
    line.and_then(|mips| mips.trim().parse::<f64>().ok()).expect("Linux says bogomips of the processor") / 2000.0
}

/// The median batch's cycles per packet.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2] * rate() / BATCH as f64
}
