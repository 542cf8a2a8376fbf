//! Programs in a worker's engine, timed from the batch to the ports' buffers: the part of a worker's time that it
//! accounts to its pipeline.
//!
//! That is [`Engine::receive`], including the allocation of buffers for copies. Freeing sent packets is not timed.
//! Ports have no queues: a packet that selects a queue goes on to egress at once.

use crate::frames::Frames;
use crate::measure::{Plan, Series};
use crate::rows::{Settings, with_lock};
use crate::source::Source;
use crate::subject;
use abi::packet::BATCH_MAX;
use anyhow::{Result, ensure};
use datapath::drops::{DropCounters, DropReason};
use datapath::engine::{Engine, Inserted, Sink, WORK_MAX};
use datapath::executor::Executor;
use datapath::timing::ticks;
use datapath::{EngineKind, Pipeline};
use pktio::{HeapPool, Packet, Pool, free_bulk};
use std::time::{Duration, Instant};

/// Port numbers are below this.
const PORTS: u32 = 32;

/// The ports' buffers, as a worker has them.
struct Buffers {
    out: Vec<Vec<Packet>>,
    dropped: Vec<Packet>,
    drops: DropCounters,
}

impl Sink for Buffers {
    #[inline]
    fn send(&mut self, port: u32, packet: Packet) {
        match self.out.get_mut(port as usize) {
            Some(out) => out.push(packet),
            None => self.dropped.push(packet),
        }
    }

    #[inline]
    fn send_all(&mut self, port: u32, packets: &mut Vec<Packet>) {
        match self.out.get_mut(port as usize) {
            Some(out) if out.is_empty() => std::mem::swap(out, packets),
            Some(out) => out.append(packets),
            None => self.dropped.append(packets),
        }
    }

    #[inline]
    fn send_merged(&mut self, batch: (u32, &mut Vec<Packet>), other: (u32, &mut Vec<Packet>), _: Inserted<'_>) {
        self.send_all(batch.0, batch.1);
        self.send_all(other.0, other.1);
    }

    fn drop(&mut self, reason: DropReason, packet: Packet) {
        self.drops.count(reason);
        self.dropped.push(packet);
    }

    fn drop_all(&mut self, reason: DropReason, packets: &mut Vec<Packet>) {
        self.drops.count_many(reason, packets.len() as u64);
        self.dropped.append(packets);
    }

    fn lost_copies(&mut self, reason: DropReason, count: u64) {
        self.drops.count_many(reason, count);
    }
}

/// Loads a pipeline's entries, groups and sessions.
pub type Prepare<'a> = &'a dyn Fn(&Pipeline) -> Result<()>;

/// A program in a worker's engine.
pub struct Subject {
    /// Its name in tables.
    pub name: &'static str,
    /// The loaded program.
    pub pipeline: Pipeline,
    executor: Box<dyn Executor>,
    engine: Engine,
    pool: HeapPool,
    burst: Vec<Packet>,
    buffers: Buffers,
    now_us: u64,
    /// If set, a batch's time is the real time since then; otherwise each batch is one microsecond later than the last.
    begin: Option<Instant>,
}

impl Subject {
    /// A program of which each packet has at most `copies` copies.
    ///
    /// # Errors
    /// If the program cannot be compiled or `prepare` fails.
    pub fn new(
        name: &'static str,
        source: &Source,
        kind: EngineKind,
        copies: usize,
        prepare: Prepare<'_>,
        settings: &Settings,
    ) -> Result<Subject> {
        let program = subject::compile(source, &settings.options)?;
        let pipeline = datapath::load_with(program, kind, 1, &settings.options.code)?;
        prepare(&pipeline)?;
        Ok(Subject::of_pipeline(name, pipeline, copies))
    }

    /// A subject of a loaded pipeline. If a flow processor handles its packets, it is worker 0's.
    pub fn of_pipeline(name: &'static str, pipeline: Pipeline, copies: usize) -> Subject {
        Subject {
            name,
            executor: pipeline.executor(0),
            engine: Engine::of_pipeline(&pipeline, 0),
            buffers: Buffers {
                out: (0..PORTS).map(|_| Vec::with_capacity(BATCH_MAX * 4)).collect(),
                dropped: Vec::new(),
                drops: DropCounters::new(pipeline.program().drops.len()),
            },
            pipeline,
            pool: HeapPool::new(BATCH_MAX * (copies + 2)),
            burst: Vec::new(),
            now_us: 1,
            begin: None,
        }
    }

    /// From now on batches have the real time, for features that depend on elapsed time, such as flow caches.
    pub fn in_real_time(mut self) -> Subject {
        self.begin = Some(Instant::now());
        self
    }

    /// The loaded program.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Plays all frames, and has the flow cache learn the missing ones.
    pub fn learn(&mut self, frames: &Frames, batch: usize) {
        let mut at = 0;
        while at < frames.len() {
            at += self.run(frames, at, batch).1;
            self.clear();
            if let Some(cache) = self.pipeline.flow_cache() {
                cache.trace_waiting();
            }
        }
        self.engine.rest(self.executor.as_mut());
    }

    /// Recompiles for the current state, as a switch does after a second.
    pub fn settle(&self, settings: &Settings) {
        self.pipeline.recompile(settings.options.specialise);
    }

    /// Plays a batch from frame `at` on: consecutive frames of the same port, up to `size`. Returns its time in ticks
    /// and the number of frames.
    fn run(&mut self, frames: &Frames, at: usize, size: usize) -> (u64, usize) {
        let port = frames.get(at).0;
        let more = (at..frames.len()).take(size.min(BATCH_MAX)).take_while(|&k| frames.get(k).0 == port);
        let count = more.count();
        self.pool.alloc_bulk(&mut self.burst, count);
        for (k, packet) in self.burst.iter_mut().enumerate() {
            packet.set_data(frames.get(at + k).1).expect("frames of the generators fit a buffer");
        }
        self.now_us = match self.begin {
            Some(begin) => 1 + begin.elapsed().as_micros() as u64,
            None => self.now_us + 1,
        };
        let start = ticks();
        self.engine.set_work(WORK_MAX);
        self.engine.receive(self.executor.as_mut(), &mut self.burst, port, self.now_us, &mut self.buffers);
        let spent = ticks() - start;
        self.engine.quiescent(self.executor.as_mut());
        self.engine.idle(self.now_us);
        (spent, count)
    }

    /// Plays one frame; returns the packet that was sent by the lowest-numbered port.
    pub fn answer(&mut self, port: u16, frame: &[u8]) -> Option<Vec<u8>> {
        let mut frames = Frames::default();
        frames.push(port, frame);
        self.run(&frames, 0, 1);
        let sent = self.buffers.out.iter().flatten().next().map(|packet| packet.data().to_vec());
        self.clear();
        sent
    }

    /// Frees the packets of the last batch.
    fn clear(&mut self) {
        self.buffers.out.iter_mut().for_each(free_bulk);
        free_bulk(&mut self.buffers.dropped);
    }

    /// Plays a batch from frame `at` on, and does the engine's work between batches; returns the number of packets and
    /// the batch's time.
    pub fn play(&mut self, frames: &Frames, at: usize, batch: usize) -> (usize, Duration) {
        let begin = Instant::now();
        let count = self.run(frames, at, batch).1;
        let took = begin.elapsed();
        self.clear();
        (count, took)
    }

    /// Plays all frames; returns the number of dropped packets.
    pub fn drops(&mut self, frames: &Frames, batch: usize) -> usize {
        let (mut at, mut dropped) = (0, 0);
        while at < frames.len() {
            at += self.run(frames, at, batch).1;
            dropped += self.buffers.dropped.len();
            self.clear();
        }
        dropped
    }

    /// Cycles per received packet.
    fn turn(&mut self, frames: &Frames, plan: Plan) -> f64 {
        let (mut spent, mut timed, mut played, mut at) = (0, 0, 0, 0);
        while played < plan.warm + plan.count {
            let (cycles, count) = self.run(frames, at, plan.batch);
            self.clear();
            self.pipeline.take_digests();
            at = (at + count) % frames.len();
            if played >= plan.warm {
                spent += cycles;
                timed += count;
            }
            played += count;
        }
        spent as f64 / timed.max(1) as f64
    }
}

/// Compares the second subject with the first, batch by batch; returns how many packets were sent and dropped.
///
/// # Errors
/// If they differ.
pub fn compared(title: &str, subjects: &mut [Subject; 2], frames: &Frames, batch: usize) -> Result<[u64; 2]> {
    compare(title, subjects, frames, batch, true)
}

/// Compares only what is sent, for different programs, which have no drop reasons or digests in common.
///
/// # Errors
/// If they differ.
pub fn compared_outputs(title: &str, subjects: &mut [Subject; 2], frames: &Frames, batch: usize) -> Result<[u64; 2]> {
    compare(title, subjects, frames, batch, false)
}

fn compare(
    title: &str,
    subjects: &mut [Subject; 2],
    frames: &Frames,
    batch: usize,
    is_whole: bool,
) -> Result<[u64; 2]> {
    let mut fates = [0; 2];
    let mut at = 0;
    // One of them may have played more frames than the other before.
    for subject in subjects.iter_mut() {
        subject.buffers.drops = DropCounters::new(subject.pipeline.program().drops.len());
        subject.pipeline.take_digests();
    }
    while at < frames.len() {
        let counts = subjects.each_mut().map(|s| s.run(frames, at, batch).1);
        let [a, b] = subjects.each_ref();
        for port in 0..PORTS as usize {
            let all = |s: &Subject| s.buffers.out[port].iter().map(|p| p.data().to_vec()).collect::<Vec<_>>();
            ensure!(
                all(a) == all(b),
                "{title}: {} and {} differ in what leaves by port {port} of frames {at} to {}",
                a.name,
                b.name,
                at + counts[0]
            );
            fates[0] += a.buffers.out[port].len() as u64;
        }
        fates[1] += a.buffers.dropped.len() as u64;
        let drops = |s: &Subject| s.buffers.drops.read(s.pipeline.program());
        if is_whole {
            ensure!(drops(a) == drops(b), "{title}: {} and {} differ in what they drop", a.name, b.name);
            ensure!(a.pipeline.take_digests() == b.pipeline.take_digests(), "{title}: they differ in digests");
        }
        subjects.iter_mut().for_each(Subject::clear);
        at += counts[0];
    }
    Ok(fates)
}

/// Times the subjects in alternation on the same frames, under the lock.
///
/// # Errors
/// If the lock cannot be taken.
pub fn timed<const N: usize>(subjects: &mut [Subject; N], frames: &Frames, settings: &Settings) -> Result<[Series; N]> {
    timed_each(subjects, [frames; N], settings)
}

/// Times the subjects in alternation, each on its own frames, under the lock. The number of packets follows from the
/// first one's frames.
///
/// # Errors
/// If the lock cannot be taken.
pub fn timed_each<const N: usize>(
    subjects: &mut [Subject; N],
    frames: [&Frames; N],
    settings: &Settings,
) -> Result<[Series; N]> {
    let plan = match settings.quick {
        true => Plan { batch: settings.batch, rounds: 2, warm: 64, count: 256 },
        false => Plan::for_frames(frames[0].len(), settings.batch, settings.rounds),
    };
    let mut series = subjects.each_ref().map(|s| Series { name: s.name.to_string(), rounds: Vec::new() });
    with_lock(settings, || {
        for _ in 0..plan.rounds {
            for ((subject, frames), series) in subjects.iter_mut().zip(frames).zip(&mut series) {
                series.rounds.push(subject.turn(frames, plan));
            }
        }
    })?;
    Ok(series)
}
