//! Entries and frames for each program. Everything follows from the sizes and a seed.

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

/// Calls its argument with each entry, in the order in which they are to be inserted; the same ones each time.
pub type Entries = Arc<dyn Fn(&mut dyn FnMut(&Entry)) + Send + Sync>;

/// Frames that are held against the interpreter where there is no C version.
pub const ORACLE_FRAMES: usize = 4096;

/// What a program is given to do.
pub struct Workload {
    /// The program, as its C reference calls it.
    pub program: &'static str,
    /// Its text.
    pub source: Source,
    /// What entries may be: `"table.action"`.
    pub kinds: &'static [&'static str],
    /// Its entries.
    pub entries: Entries,
    /// Of very many entries, all that the first [`ORACLE_FRAMES`] frames can meet.
    pub oracle: Option<Entries>,
    /// What is timed.
    pub frames: Frames,
    /// What is compared besides: the uncommon cases.
    pub odd: Frames,
    /// Entries that are not numbers by position alone, for P4 only.
    pub more: Option<More>,
}

/// Adds entries to a program's state.
pub type More = Box<dyn Fn(&ir::Program, &dyn PipelineState) -> Result<()> + Send + Sync>;

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
            more: None,
        }
    }
}

/// How frames follow each other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Flows {
    /// This many, each as often as any other, in no order.
    Uniform(usize),
    /// This many, their shares as Zipf's law with exponent 1.1 has them, a million packets or as many as there are flows.
    Zipf(usize),
    /// Each packet is of a flow that was not there before: another source address and other ports. Only `l2l3acl` has them.
    New {
        /// Pairs of stations and routes that flows are between.
        pairs: usize,
        /// Packets until the first one comes again.
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
