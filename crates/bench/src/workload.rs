//! Entries and frames for each program. Everything is determined by the sizes and a seed.

pub mod examples;
pub mod generated;
pub mod heavy_hitter;
pub mod l2;
pub mod l2l3acl;
pub mod l3router;
pub mod pins;
pub mod stateful_firewall;
pub mod vxlan;

use crate::entry::Entry;
use crate::frames::Frames;
use crate::source::Source;
use abi::state::PipelineState;
use anyhow::Result;
use std::sync::Arc;

/// Calls its argument with each entry in insertion order; the same entries each time.
pub type Entries = Arc<dyn Fn(&mut dyn FnMut(&Entry)) + Send + Sync>;

/// Number of frames that are compared with the interpreter where there is no C version.
pub const ORACLE_FRAMES: usize = 4096;

/// A program with its entries and frames.
pub struct Workload {
    /// The program's name, as its C reference has it.
    pub program: &'static str,
    /// The program's source.
    pub source: Source,
    /// The kinds of entries: `"table.action"`.
    pub kinds: &'static [&'static str],
    /// The entries.
    pub entries: Entries,
    /// For very many entries: those that the first [`ORACLE_FRAMES`] frames can match.
    pub oracle: Option<Entries>,
    /// The timed frames.
    pub frames: Frames,
    /// Frames that are only compared: the uncommon cases.
    pub odd: Frames,
    /// Adds entries that [`Entry`] cannot express, for P4 only.
    pub setup: Option<Setup>,
}

/// Adds entries to a program's state.
pub type Setup = Box<dyn Fn(&ir::Program, &dyn PipelineState) -> Result<()> + Send + Sync>;

impl Workload {
    /// The program and its entries, without frames.
    pub fn same_but_frames(&self) -> Workload {
        Workload {
            program: self.program,
            source: self.source.clone(),
            kinds: self.kinds,
            entries: Arc::clone(&self.entries),
            oracle: self.oracle.clone(),
            frames: Frames::default(),
            odd: Frames::default(),
            setup: None,
        }
    }
}

/// The order of flows among the frames.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Flows {
    /// This many flows, equally often, in random order.
    Uniform(usize),
    /// This many flows with shares by Zipf's law (exponent 1.1); a million packets, or as many as there are flows.
    Zipf(usize),
    /// Each packet is of a new flow: another source address and other ports. Only `l2l3acl` supports this.
    New {
        /// Pairs of stations and routes that flows are between.
        pairs: usize,
        /// Packets until the first flow repeats.
        packets: usize,
    },
}

/// The flow of each packet, in order.
pub fn sequence(flows: Flows, rng: &mut random::Random) -> Vec<u32> {
    match flows {
        Flows::Uniform(n) | Flows::New { packets: n, .. } => {
            let mut order: Vec<u32> = (0..n as u32).collect();
            for i in (1..order.len()).rev() {
                order.swap(i, rng.index(i + 1));
            }
            order
        }
        Flows::Zipf(n) => {
            let mut sums = Vec::with_capacity(n);
            let mut total = 0.0;
            for i in 1..=n {
                total += (i as f64).powf(-1.1);
                sums.push(total);
            }
            (0..n.max(1_000_000))
                .map(|_| {
                    let x = rng.unit() * total;
                    sums.partition_point(|&s| s < x).min(n - 1) as u32
                })
                .collect()
        }
    }
}
