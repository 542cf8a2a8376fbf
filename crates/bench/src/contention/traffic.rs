//! Flows by Zipf's law, and the worker that gets a packet.

use random::Random;
use std::collections::VecDeque;

/// Shares of flows: the share of flow `i` (from 0) is proportional to `(i + 1)^-exponent`.
#[derive(Clone, Debug)]
pub struct Shares {
    flows: u32,
    /// Sums of shares; empty if all are equal.
    sums: Vec<f64>,
}

impl Shares {
    /// Shares of `flows` flows, at least one.
    pub fn zipf(flows: u32, exponent: f64) -> Shares {
        let mut total = 0.0;
        let mut sum = |i: u32| {
            total += f64::from(i + 1).powf(-exponent);
            total
        };
        let sums = if exponent == 0.0 { Vec::new() } else { (0..flows).map(&mut sum).collect() };
        Shares { flows, sums }
    }

    /// The number of flows.
    pub fn flows(&self) -> u32 {
        self.flows
    }

    /// The flow of a packet.
    pub fn draw(&self, random: &mut Random) -> u32 {
        match self.sums.last() {
            None => random.below(self.flows.into()) as u32,
            Some(total) => {
                let at = random.unit() * total;
                self.sums.partition_point(|sum| *sum < at).min(self.sums.len() - 1) as u32
            }
        }
    }
}

/// Which worker gets a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    /// Any that is ready for one.
    Any,
    /// One for all packets of a flow, by a hash of it (receive-side scaling).
    ByFlow,
}

/// How packets arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// Each worker always has packets of its flows: none waits for another, however much more traffic that one gets.
    Saturated,
    /// As [`Arrival::Saturated`], but each worker repeats all its flows in one order, as the benchmark's rows do. The workers
    /// begin at places equally far apart.
    Rounds,
    /// One stream, as fast as no packet is lost: it waits if a worker's queue of this many packets is full.
    Stream {
        /// Packets that a queue holds.
        queue: usize,
    },
}

/// A well mixed number of a flow.
pub fn hash(flow: u32, salt: u64) -> u64 {
    Random::stream(u64::from(flow), salt).next_u64()
}

/// The worker of a flow's packets.
pub fn worker_of(flow: u32, workers: usize) -> usize {
    (hash(flow, 0x5eed) % workers as u64) as usize
}

/// Packets on their way to workers, each with its flow.
pub struct Feed<'a> {
    shares: &'a Shares,
    spread: Spread,
    arrival: Arrival,
    random: Random,
    /// Flows of rounds, and where each worker is.
    rounds: Vec<(Vec<u32>, usize)>,
    queues: Vec<VecDeque<u32>>,
    /// The stream's next packet, if it waits.
    waiting: Option<u32>,
    /// Workers for which there is a flow.
    served: u64,
}

impl Feed<'_> {
    /// The beginning of the stream.
    pub fn new(shares: &Shares, spread: Spread, arrival: Arrival, workers: usize, seed: u64) -> Feed<'_> {
        let all = u64::MAX >> (64 - workers);
        let mut served = if spread == Spread::Any { all } else { 0 };
        for flow in 0..shares.flows() {
            if served == all {
                break;
            }
            served |= 1 << worker_of(flow, workers);
        }
        let mut random = Random::stream(seed, 1);
        let mut rounds = Vec::new();
        if arrival == Arrival::Rounds {
            let mut order: Vec<u32> = (0..shares.flows()).collect();
            random.shuffle(&mut order);
            let is_of = |flow: &u32, worker| spread == Spread::Any || worker_of(*flow, workers) == worker;
            let of = |worker| order.iter().copied().filter(|flow| is_of(flow, worker)).collect::<Vec<u32>>();
            let begins = |(worker, flows): (usize, Vec<u32>)| (worker * flows.len() / workers, flows);
            rounds = (0..workers).map(of).enumerate().map(begins).map(|(at, flows)| (flows, at)).collect();
        }
        let queues = vec![VecDeque::new(); workers];
        Feed { shares, spread, arrival, random, rounds, queues, waiting: None, served }
    }

    /// Moves up to `count` packets to `batch`, which is empty, if there are any; returns the set of workers whose empty
    /// queues have got packets.
    pub fn take(&mut self, worker: usize, count: usize, batch: &mut Vec<u32>) -> u64 {
        match (self.spread, self.arrival) {
            (_, Arrival::Rounds) => {
                let (flows, at) = &mut self.rounds[worker];
                if !flows.is_empty() {
                    batch.extend((0..count).map(|i| flows[(*at + i) % flows.len()]));
                    *at = (*at + count) % flows.len();
                }
                0
            }
            (Spread::Any, _) => {
                batch.extend((0..count).map(|_| self.shares.draw(&mut self.random)));
                0
            }
            (Spread::ByFlow, Arrival::Saturated) => {
                let workers = self.queues.len();
                while self.served >> worker & 1 == 1 && batch.len() < count {
                    let flow = self.shares.draw(&mut self.random);
                    batch.extend((worker_of(flow, workers) == worker).then_some(flow));
                }
                0
            }
            (Spread::ByFlow, Arrival::Stream { queue }) => {
                let mut woken = self.advance(queue);
                let own = &mut self.queues[worker];
                batch.extend(own.drain(..count.min(own.len())));
                woken |= self.advance(queue);
                woken & !(1 << worker)
            }
        }
    }

    /// Lets the stream go on until a queue is full.
    fn advance(&mut self, queue: usize) -> u64 {
        let mut woken = 0;
        loop {
            let flow = self.waiting.take().unwrap_or_else(|| self.shares.draw(&mut self.random));
            let worker = worker_of(flow, self.queues.len());
            let own = &mut self.queues[worker];
            if own.len() >= queue {
                self.waiting = Some(flow);
                return woken;
            }
            woken |= u64::from(own.is_empty()) << worker;
            own.push_back(flow);
        }
    }
}
