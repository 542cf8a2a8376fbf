//! The events: workers take batches, packets get to their cells, locks are taken, found taken, polled and released.
//!
//! Events of one time are processed in the order in which they were made, so that a run follows from its seed.

use super::lines::{Lines, Time, Transfers, WORKERS_MAX, Want};
use super::programs::{Access, Place, Program, Wait};
use super::traffic::{Arrival, Feed, Shares, Spread, worker_of};
use random::Random;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Workers, from 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// Between their caches.
    pub transfers: Transfers,
    /// Lines that a worker can have under way when it prefetches.
    pub overlap: usize,
    /// Time between two tries of [`Wait::Retry`].
    pub retry: Time,
    /// Which worker gets a packet.
    pub spread: Spread,
    /// How packets arrive.
    pub arrival: Arrival,
    /// Packets of a batch.
    pub batch: usize,
    /// Time per packet outside of the pass, before each batch: it lets others go on, and is not counted where workers are
    /// saturated.
    pub gap: Time,
    /// Packets that are not counted, and those that are, of all workers.
    pub packets: (u64, u64),
    /// Of all that is random.
    pub seed: u64,
}

/// What came of a run. Shares are of the time of all workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Time per packet, of all workers together: the rate is its inverse.
    pub packet_ns: f64,
    /// Transfers of lines per packet.
    pub transfers: f64,
    /// The share of time in which workers wait for lines.
    pub lines: f64,
    /// The share in which they wait for locks and turns.
    pub locks: f64,
    /// The share in which they have no packet.
    pub idle: f64,
}

/// The part of a pass that is spent in the pass that prefetches, if there is one.
const PREFETCHING: f64 = 0.3;
/// The part of a pass before the packet gets to its cells.
const BEFORE: f64 = 0.7;

/// What happens next to a worker, with the number of the packet in its batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Step {
    /// It takes a batch.
    Batch,
    /// It has its turn.
    Turn,
    /// It prefetches the lines of a cell.
    Prefetch(usize, usize),
    /// A packet begins.
    Packet(usize),
    /// A packet gets to its cells.
    Cells(usize),
    /// A packet locks its cells.
    Lock(usize),
    /// The line of a cell has come, or was there: the lock can be tried.
    Try(usize, usize),
    /// A poll of a lock is answered.
    Polled(usize, usize),
    /// The packet has done what it does under locks.
    Release(usize),
    /// The packet is done.
    Done(usize),
    /// A lock of the worker is free.
    Free(usize),
}

#[derive(Default)]
struct Worker {
    batch: Vec<u32>,
    places: Vec<Place>,
    /// When each place's line has come.
    arrivals: Vec<Time>,
    /// When all stores of the last packet are done.
    stored: Time,
    /// Arrival times of the cache lines that its outstanding prefetches have requested.
    prefetched: Vec<Time>,
    /// The cell whose lock it polls, and the step after.
    polls: Option<(usize, Step)>,
    sleeps: bool,
    /// Since when it waits for a lock, a turn or packets.
    since: Option<Time>,
    /// Counted packets, and times.
    packets: u64,
    gaps: Time,
    lines: Time,
    locks: Time,
    idle: Time,
}

/// A run in progress.
struct Simulation<'a> {
    program: &'a Program,
    parameters: &'a Parameters,
    feed: Feed<'a>,
    lines: Lines,
    /// The worker that holds each cell's lock.
    holders: Vec<Option<u8>>,
    workers: Vec<Worker>,
    events: BinaryHeap<Reverse<(Time, u64, usize, Step)>>,
    events_made: u64,
    /// Who has the turn, and who waits for it.
    turn: Option<usize>,
    turns: VecDeque<usize>,
    random: Random,
    done: u64,
}

/// Runs a program.
pub fn run(program: &Program, shares: &Shares, parameters: &Parameters) -> Outcome {
    assert!((1..=WORKERS_MAX).contains(&parameters.workers), "a set of workers is one word");
    let mut simulation = Simulation::new(program, shares, parameters);
    simulation.place(shares);
    for worker in 0..parameters.workers {
        simulation.at(0, worker, Step::Batch);
    }
    simulation.until(parameters.packets.0);
    let begin = simulation.forget();
    let end = simulation.until(parameters.packets.0 + parameters.packets.1);
    simulation.outcome(begin, end)
}

fn scaled(time: Time, part: f64) -> Time {
    (time as f64 * part).round() as Time
}

impl<'a> Simulation<'a> {
    fn new(program: &'a Program, shares: &'a Shares, parameters: &'a Parameters) -> Simulation<'a> {
        let Parameters { workers, spread, arrival, seed, .. } = *parameters;
        let shared = if program.access == Access::Own { 0 } else { 1 };
        Simulation {
            program,
            parameters,
            feed: Feed::new(shares, spread, arrival, workers, seed),
            lines: Lines::new(shared * program.layout.lines(), parameters.transfers),
            holders: vec![None; shared * program.layout.cells()],
            workers: (0..workers).map(|_| Worker::default()).collect(),
            events: BinaryHeap::new(),
            events_made: 0,
            turn: None,
            turns: VecDeque::new(),
            random: Random::stream(seed, 2),
            done: 0,
        }
    }

    /// Puts the lines where they are after some time: the last packet of a line was any worker's that gets its flows, and
    /// lines that are only read are everywhere.
    fn place(&mut self, shares: &Shares) {
        if self.program.access == Access::Own {
            return;
        }
        let workers = self.parameters.workers;
        for flow in 0..shares.flows() {
            let worker = match self.parameters.spread {
                Spread::Any => self.random.index(workers),
                Spread::ByFlow => worker_of(flow, workers),
            };
            let read = matches!(self.program.access, Access::Peek(_));
            let holders = match self.parameters.spread {
                Spread::Any if read => u64::MAX >> (64 - workers),
                _ => 1 << worker,
            };
            for place in self.program.layout.places(flow) {
                (place.first..=place.last).for_each(|line| self.lines.place(line, holders, !read));
            }
        }
    }

    fn at(&mut self, time: Time, worker: usize, step: Step) {
        self.events_made += 1;
        self.events.push(Reverse((time, self.events_made, worker, step)));
    }

    /// Lets things happen until this many packets are done; returns the time.
    fn until(&mut self, packets: u64) -> Time {
        let mut now = 0;
        while self.done < packets {
            let Some(Reverse((time, _, worker, step))) = self.events.pop() else {
                unreachable!("some worker always has something to do: locks are taken in order");
            };
            now = time;
            self.step(now, worker, step);
        }
        now
    }

    /// Counts from now on; returns the time.
    fn forget(&mut self) -> Time {
        let now = self.events.peek().map_or(0, |Reverse((time, ..))| *time);
        for worker in &mut self.workers {
            (worker.packets, worker.gaps, worker.lines, worker.locks, worker.idle) = (0, 0, 0, 0, 0);
            worker.since = worker.since.map(|since| since.max(now));
        }
        self.lines.moved = 0;
        now
    }

    fn outcome(&self, begin: Time, end: Time) -> Outcome {
        let elapsed = (end - begin).max(1) as f64;
        let packets: u64 = self.workers.iter().map(|worker| worker.packets).sum();
        let rate = match self.parameters.arrival {
            Arrival::Stream { .. } => packets as f64 / elapsed,
            Arrival::Saturated | Arrival::Rounds => {
                self.workers.iter().map(|worker| worker.packets as f64 / (elapsed - worker.gaps as f64).max(1.0)).sum()
            }
        };
        let all = elapsed * self.workers.len() as f64;
        // What they wait for at the end counts until then; a worker in its gap waits only after it.
        let open = |worker: &Worker| worker.since.map_or(0, |since| end.saturating_sub(since));
        let idle = |worker: &Worker| worker.idle + if worker.sleeps { open(worker) } else { 0 };
        let locks = |worker: &Worker| worker.locks + if worker.sleeps { 0 } else { open(worker) };
        let share = |of: &dyn Fn(&Worker) -> Time| self.workers.iter().map(of).sum::<Time>() as f64 / all;
        Outcome {
            packet_ns: 1.0 / rate / 1000.0,
            transfers: self.lines.moved as f64 / packets.max(1) as f64,
            lines: share(&|worker| worker.lines),
            locks: share(&locks),
            idle: share(&idle),
        }
    }

    /// The time of a packet before its cells, and after them.
    fn parts(&self) -> (Time, Time) {
        let Program { pass, hold, .. } = *self.program;
        let first = if self.prefetches() { scaled(pass, PREFETCHING) } else { 0 };
        let rest = pass.saturating_sub(first + hold);
        let before = scaled(rest, BEFORE);
        (before, rest - before)
    }

    fn prefetches(&self) -> bool {
        self.program.prefetches && self.program.access != Access::Own
    }

    fn wants(&self) -> Want {
        if matches!(self.program.access, Access::Peek(_)) { Want::Read } else { Want::Own }
    }

    fn step(&mut self, now: Time, worker: usize, step: Step) {
        match step {
            Step::Batch => self.batch(now, worker),
            Step::Turn => self.begin(now, worker),
            Step::Prefetch(packet, cell) => self.prefetch(now, worker, packet, cell),
            Step::Packet(packet) => self.packet(now, worker, packet),
            Step::Cells(packet) => self.cells(now, worker, packet),
            Step::Lock(packet) => self.lock(now, worker, packet),
            Step::Try(packet, cell) => self.attempt(now, worker, packet, cell),
            Step::Polled(packet, cell) => self.polled(now, worker, packet, cell),
            Step::Release(packet) => self.release(now, worker, packet),
            Step::Done(packet) => {
                self.workers[worker].packets += 1;
                self.done += 1;
                self.packet(now, worker, packet + 1);
            }
            Step::Free(cell) => self.free(now, cell),
        }
    }

    fn batch(&mut self, now: Time, worker: usize) {
        let state = &mut self.workers[worker];
        state.batch.clear();
        let woken = self.feed.take(worker, self.parameters.batch, &mut state.batch);
        state.sleeps = state.batch.is_empty();
        if state.sleeps {
            state.since.get_or_insert(now);
        } else {
            state.idle += state.since.take().map_or(0, |since| now - since);
            let gap = self.parameters.gap * state.batch.len() as u64;
            state.gaps += gap;
            match self.program.access {
                Access::Turn if self.turn.is_some() => {
                    state.since = Some(now + gap);
                    self.turns.push_back(worker);
                }
                Access::Turn => {
                    self.turn = Some(worker);
                    self.at(now + gap, worker, Step::Turn);
                }
                _ => self.at(now + gap, worker, Step::Turn),
            }
        }
        for other in (0..self.workers.len()).filter(|other| woken >> other & 1 == 1) {
            if std::mem::take(&mut self.workers[other].sleeps) {
                self.at(now, other, Step::Batch);
            }
        }
    }

    fn begin(&mut self, now: Time, worker: usize) {
        let state = &mut self.workers[worker];
        state.locks += state.since.take().map_or(0, |since| now.saturating_sub(since));
        state.prefetched.clear();
        let first = if self.prefetches() { Step::Prefetch(0, 0) } else { Step::Packet(0) };
        self.step(now, worker, first);
    }

    fn prefetch(&mut self, now: Time, worker: usize, packet: usize, cell: usize) {
        let Some(flow) = self.workers[worker].batch.get(packet).copied() else {
            return self.packet(now, worker, 0);
        };
        let want = self.wants();
        let Some(place) = self.program.layout.places(flow).nth(cell) else {
            return self.at(now + scaled(self.program.pass, PREFETCHING), worker, Step::Prefetch(packet + 1, 0));
        };
        for line in place.first..=place.last {
            if self.lines.has(worker, line, want, now) {
                continue;
            }
            let state = &mut self.workers[worker];
            state.prefetched.retain(|time| *time > now);
            if state.prefetched.len() >= self.parameters.overlap {
                let next = state.prefetched.iter().copied().min().unwrap_or(now);
                state.lines += next - now;
                return self.at(next, worker, Step::Prefetch(packet, cell));
            }
            let arrival = self.lines.request(worker, line, want, now);
            self.workers[worker].prefetched.push(arrival);
        }
        self.prefetch(now, worker, packet, cell + 1);
    }

    fn packet(&mut self, now: Time, worker: usize, packet: usize) {
        if packet < self.workers[worker].batch.len() {
            return self.at(now + self.parts().0, worker, Step::Cells(packet));
        }
        if self.program.access == Access::Turn {
            self.turn = self.turns.pop_front();
            if let Some(next) = self.turn {
                // The word of the lock: the one who waits reads it, and writes it.
                let time = 2 * self.parameters.transfers.between(worker, next);
                let ready = self.workers[next].since.map_or(now, |since| since.max(now));
                self.at(ready + time, next, Step::Turn);
            }
        }
        self.at(now, worker, Step::Batch);
    }

    fn cells(&mut self, now: Time, worker: usize, packet: usize) {
        let (_, after) = self.parts();
        let hold = self.program.hold;
        let done = Step::Done(packet);
        let flow = self.workers[worker].batch[packet];
        if self.program.access == Access::Own {
            return self.at(now + hold + after, worker, done);
        }
        self.workers[worker].places.clear();
        self.workers[worker].places.extend(self.program.layout.places(flow));
        match self.program.access {
            Access::Own => {}
            Access::Locked(_) => self.lock(now, worker, packet),
            Access::Peek(changing) => {
                let come = self.ask_for_all(now, worker, Want::Read);
                self.workers[worker].lines += come - now;
                if self.random.unit() < changing {
                    self.at(come, worker, Step::Lock(packet));
                } else {
                    self.at(come + hold + after, worker, done);
                }
            }
            Access::Add | Access::Turn => {
                let come = self.ask_for_all(now, worker, Want::Own);
                self.workers[worker].lines += come - now;
                self.at(come + hold + after, worker, done);
            }
        }
    }

    /// Asks for the lines of all places at once, as a processor does that executes ahead; returns when the last one has come.
    fn ask_for_all(&mut self, now: Time, worker: usize, want: Want) -> Time {
        let state = &mut self.workers[worker];
        state.arrivals.clear();
        let mut last = now;
        for place in &state.places {
            let arrival = self.lines.request(worker, place.first, want, now);
            state.arrivals.push(arrival);
            last = last.max(arrival);
            for line in place.first + 1..=place.last {
                last = last.max(self.lines.request(worker, line, want, now));
            }
        }
        last
    }

    fn lock(&mut self, now: Time, worker: usize, packet: usize) {
        let begin = now.max(self.workers[worker].stored);
        if begin > now {
            self.workers[worker].lines += begin - now;
            return self.at(begin, worker, Step::Lock(packet));
        }
        self.ask_for_all(now, worker, Want::Own);
        self.await_line(now, worker, packet, 0);
    }

    /// Goes on when the line of a cell has come.
    fn await_line(&mut self, now: Time, worker: usize, packet: usize, cell: usize) {
        let state = &mut self.workers[worker];
        let come = state.arrivals[cell].max(now);
        if state.since.is_none() {
            state.lines += come - now;
        }
        self.at(come, worker, Step::Try(packet, cell));
    }

    fn attempt(&mut self, now: Time, worker: usize, packet: usize, cell: usize) {
        let place = self.workers[worker].places[cell];
        // A line is used when it comes; later, others may have it.
        if self.workers[worker].arrivals[cell] != now && !self.lines.has(worker, place.first, Want::Own, now) {
            self.workers[worker].arrivals[cell] = self.lines.request(worker, place.first, Want::Own, now);
            return self.await_line(now, worker, packet, cell);
        }
        if self.holders[place.cell].is_none() {
            self.holders[place.cell] = Some(worker as u8);
            let state = &mut self.workers[worker];
            state.locks += state.since.take().map_or(0, |since| now - since);
            return if cell + 1 < state.places.len() {
                self.await_line(now, worker, packet, cell + 1)
            } else {
                self.at(now + self.program.hold, worker, Step::Release(packet))
            };
        }
        let state = &mut self.workers[worker];
        state.since.get_or_insert(now);
        // The line may go in the meantime.
        state.arrivals[cell] = 0;
        match self.program.access {
            Access::Locked(Wait::Retry) => self.at(now + self.parameters.retry, worker, Step::Try(packet, cell)),
            _ => state.polls = Some((place.cell, Step::Polled(packet, cell))),
        }
    }

    fn polled(&mut self, now: Time, worker: usize, packet: usize, cell: usize) {
        let place = self.workers[worker].places[cell];
        if self.holders[place.cell].is_some() {
            self.workers[worker].polls = Some((place.cell, Step::Polled(packet, cell)));
            return;
        }
        self.workers[worker].arrivals[cell] = self.lines.request(worker, place.first, Want::Own, now);
        self.await_line(now, worker, packet, cell);
    }

    /// Stores to the cells and their locks; each lock is free when its line is there.
    fn release(&mut self, now: Time, worker: usize, packet: usize) {
        let places = std::mem::take(&mut self.workers[worker].places);
        for place in &places {
            let last =
                (place.first + 1..=place.last).map(|line| self.lines.request(worker, line, Want::Own, now)).max();
            let free = self.lines.request(worker, place.first, Want::Own, now).max(last.unwrap_or(now));
            self.workers[worker].stored = self.workers[worker].stored.max(free);
            self.at(free, worker, Step::Free(place.cell));
        }
        self.workers[worker].places = places;
        self.at(now + self.parts().1, worker, Step::Done(packet));
    }

    fn free(&mut self, now: Time, cell: usize) {
        self.holders[cell] = None;
        let line = |worker: &Worker| worker.places.iter().find(|place| place.cell == cell).map(|place| place.first);
        for other in 0..self.workers.len() {
            let Some((polled, step)) = self.workers[other].polls else { continue };
            if polled == cell
                && let Some(line) = line(&self.workers[other])
            {
                self.workers[other].polls = None;
                let come = self.lines.request(other, line, Want::Read, now);
                self.at(come, other, step);
            }
        }
    }
}
