//! What overlap checks, their indices and changes of flows cost: the reasons for the limits in `classifier/overlap.rs`.
//!
//!     cargo run --release -p bridge --example overlap_costs
#![allow(dead_code)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{by, flow_mod, matching, output};
use openflow::message::FlowCommand::{Add, DeleteStrict};
use openflow::message::{FlowMod, flow_flag};
use openflow::{Match, Version::V13};
use std::time::Instant;

/// Checks of a part: of the first ones each is a scan, then an index is built, then it is used.
const SCANS: usize = 8;
const PARTS: u32 = 4;
const ADDED: u32 = 2000;

fn main() {
    for flows in [256, 1000, 10_000, 100_000, 1_000_000] {
        let (bridge, _) = common::bridge();
        let add = |number: u32| {
            let terms = [("eth_src", u128::from(number)), ("eth_dst", u128::from(number % 100))];
            flow_mod(Add, matching(&bridge, &terms), 5, output(1))
        };
        let ns = |work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            start.elapsed().as_nanos() as f64
        };
        (0..flows).for_each(|number| bridge.flow_mod(&add(number), &by(V13)).expect("there is room"));
        let field = bridge.fields().named("eth_dst").expect("it has addresses");
        // A bit that no flow has, another one for each part: what is checked overlaps with nothing.
        let mut next = flows;
        println!("{flows} flows:");
        for part in 0..=PARTS {
            let each = (0..3).map(|_| {
                ns(&mut || {
                    (0..ADDED).for_each(|_| {
                        next += 1;
                        bridge.flow_mod(&add(next), &by(V13)).expect("there is room");
                    })
                }) / f64::from(ADDED)
            });
            let each = each.fold(f64::MAX, f64::min);
            println!("  with {part} indices: {each:.0} ns for a new flow");
            if part == PARTS {
                break;
            }
            let check = || {
                let (mut term, bit) = (Match::any(), 1 << (24 + part));
                term.add(field, bit, bit);
                let request = FlowMod { flags: flow_flag::CHECK_OVERLAP, ..flow_mod(Add, term, 5, output(1)) };
                let took = ns(&mut || _ = std::hint::black_box(bridge.flow_mod(&request, &by(V13))));
                let strict = FlowMod { command: DeleteStrict, flags: 0, ..request };
                let _ = bridge.flow_mod(&strict, &by(V13));
                took
            };
            let times: Vec<f64> = (0..SCANS + 4).map(|_| check()).collect();
            let scan = times[1..SCANS].iter().copied().fold(f64::MAX, f64::min);
            let used = times[SCANS + 1..].iter().copied().fold(f64::MAX, f64::min);
            let (build, count) = (times[SCANS], f64::from(next));
            println!(
                "  part {part}: scan {:.1} ns a flow, building {:.1} ns a flow ({:.1} scans), checked by the index in {used:.0} ns",
                scan / count,
                build / count,
                build / scan
            );
        }
    }
}
