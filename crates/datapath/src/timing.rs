//! Measures a pipeline on packets from memory: batches through the `Ingress` entry point, without ports, in cycles
//! per packet of the time stamp counter.
//!
//! Packets are written back into their buffers before each batch, outside the timed part, so every batch sees the
//! same frames in warm buffers. The timed part is what a worker's batch costs between receiving and transmitting.
#![allow(unsafe_code)]

use crate::executor::Executor;
use abi::packet::{BATCH_MAX, Batch, FateCode, PacketDesc};
use ir::EntryKind;
use pktio::{HeapPool, Packet, Pool};

/// The time stamp counter, read after all earlier instructions (`rdtscp`).
#[cfg(target_arch = "x86_64")]
pub fn ticks() -> u64 {
    let mut aux = 0;
    // SAFETY: `rdtscp` exists on every x86-64 processor that DPDK supports; it writes only `aux`.
    unsafe { core::arch::x86_64::__rdtscp(&mut aux) }
}

/// Nanoseconds, on processors without this time stamp counter.
#[cfg(not(target_arch = "x86_64"))]
pub fn ticks() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The result of a measurement.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Cycles per packet of each round, sorted.
    pub cycles_per_packet: Vec<f64>,
    /// Packets of the last round by fate: sent, dropped, replicated.
    pub fates: [u64; 3],
}

impl Measured {
    /// Cycles per packet of the fastest round.
    pub fn min(&self) -> f64 {
        self.cycles_per_packet.first().copied().unwrap_or(f64::NAN)
    }

    /// Cycles per packet of the median round.
    pub fn median(&self) -> f64 {
        self.cycles_per_packet.get(self.cycles_per_packet.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Runs `frames`, in order and repeatedly, in batches of `batch` packets, for `rounds` rounds of `batches` batches.
/// `record_words` is the length of the program's record. Frames longer than a buffer are left out.
pub fn run(
    exec: &mut dyn Executor,
    record_words: usize,
    frames: &[(u32, Vec<u8>)],
    batch: usize,
    batches: usize,
    rounds: usize,
) -> Measured {
    let size = batch.clamp(1, BATCH_MAX);
    let words = record_words.max(1);
    let mut records = vec![0u64; words * size];
    let pool = HeapPool::new(size);
    let mut buffers: Vec<Packet> = (0..size).filter_map(|_| pool.alloc()).collect();
    let home: Vec<usize> = buffers.iter().map(Packet::headroom).collect();
    let mut work = Box::new(Batch::new());
    let mut next = 0;
    let mut cycles_per_packet = Vec::with_capacity(rounds);
    let mut fates = [0; 3];
    for round in 0..=rounds {
        let mut spent = 0;
        fates = [0; 3];
        for i in 0..batches {
            work.count = size as u32;
            work.now_us = (round * batches + i) as u64;
            for (k, buffer) in buffers.iter_mut().enumerate() {
                let (port, frame) = &frames[next];
                next = if next + 1 == frames.len() { 0 } else { next + 1 };
                if buffer.adjust(home[k], frame.len()).is_err() {
                    continue;
                }
                buffer.data_mut().copy_from_slice(frame);
                work.packets[k] = PacketDesc {
                    data: buffer.data_mut_ptr(),
                    len: frame.len() as u32,
                    headroom: buffer.headroom() as u32,
                    tailroom: buffer.tailroom() as u32,
                    ingress_port: *port,
                    record: records[k * words..].as_mut_ptr(),
                    timestamp_us: work.now_us,
                    ..PacketDesc::EMPTY
                };
            }
            let start = ticks();
            exec.run(EntryKind::Ingress, &mut work);
            spent += ticks() - start;
            exec.quiescent();
            for desc in &work.packets[..size] {
                match desc.fate {
                    f if f == FateCode::Send as u32 => fates[0] += 1,
                    f if FateCode::is_request(f) => fates[2] += 1,
                    _ => fates[1] += 1,
                }
            }
        }
        // The first round warms caches and branch predictors.
        if round > 0 {
            cycles_per_packet.push(spent as f64 / (batches * size) as f64);
        }
    }
    exec.idle();
    cycles_per_packet.sort_by(f64::total_cmp);
    Measured { cycles_per_packet, fates }
}
