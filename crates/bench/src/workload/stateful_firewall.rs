//! `stateful_firewall`: connections that are opened while outputs are compared, then segments of them in both
//! directions.

use super::{Flows, Workload, sequence};
use crate::entry::Entry;
use crate::frames::{Frames, Writer};
use crate::source::example;
use random::Random;
use std::sync::Arc;

/// The kinds of entries.
pub const KINDS: &[&str] = &["zone.inside", "zone.outside", "zone.drop"];
const INSIDE: u32 = 0;
const OUTSIDE: u32 = 1;

const SYN: u64 = 0x02;
const ACK: u64 = 0x10;

/// Writes a segment of connection `i`, from inside or outside; returns its ingress port (1 or 2).
fn segment(seed: u64, i: u64, inside: bool, flags: u64, size: usize, w: &mut Writer) -> u16 {
    let mut rng = Random::stream(seed, 0x4000_0000 + i);
    let local = (0x0a00_0000 | rng.below(1 << 24) as u32, 1024 + rng.below(60_000));
    let remote = (0x6400_0000 | rng.below(1 << 24) as u32, *rng.pick(&[80, 443, 8080]));
    let (from, to) = if inside { (local, remote) } else { (remote, local) };
    w.clear().ethernet(0x0200_0000_0001, 0x0200_0000_0002).ipv4(from.0, to.0, 6, 64, size.saturating_sub(34).max(20));
    w.be::<2>(from.1).be::<2>(to.1).be::<8>(0).be::<2>(0x5000 | flags).be::<6>(0x2000_0000_0000).pad(size);
    if inside { 1 } else { 2 }
}

fn entries(emit: &mut dyn FnMut(&Entry)) {
    for pair in 0..4 {
        emit(&Entry::exact(INSIDE, &[1 + 2 * pair], &[2 + 2 * pair]));
        emit(&Entry::exact(OUTSIDE, &[2 + 2 * pair], &[1 + 2 * pair]));
    }
}

/// Segments of `flows` connections in frames of `size` bytes.
pub fn workload(flows: Flows, size: usize, seed: u64) -> Workload {
    let mut w = Writer::default();
    let order = sequence(flows, &mut Random::stream(seed, 4));
    let mut frames = Frames::with_capacity(order.len(), size);
    let mut rng = Random::stream(seed, 6);
    for &flow in &order {
        let port = segment(seed, flow.into(), rng.one_in(2), ACK, size, &mut w);
        frames.push(port, &w.0);
    }
    let mut odd = Frames::default();
    // A few connections with random flags, in random order; and damaged frames.
    for i in 0..40_000 {
        let flags = [SYN, SYN | ACK, ACK, ACK, 0x11, 0x14, 0x04, rng.below(64)][rng.index(8)];
        let mut port = segment(seed, 1 << 40 | rng.below(200), rng.one_in(2), flags, 64, &mut w);
        match i % 32 {
            0 => w.0[rng.index(54)] = rng.next_u64() as u8,
            1 => w.0.truncate(rng.index(64)),
            2 => port = rng.below(12) as u16,
            _ => {}
        }
        odd.push(port, &w.0);
    }
    for &flow in &order {
        for (inside, flags) in [(true, SYN), (false, SYN | ACK), (true, ACK)] {
            let port = segment(seed, flow.into(), inside, flags, 64, &mut w);
            odd.push(port, &w.0);
        }
    }
    Workload {
        program: "stateful_firewall",
        source: example("stateful_firewall"),
        kinds: KINDS,
        entries: Arc::new(|emit| entries(emit)),
        frames,
        odd,
        oracle: None,
        setup: None,
    }
}

/// The same segments for `firewall`, which has no tables.
pub fn without_tables(flows: Flows, size: usize, seed: u64) -> Workload {
    Workload {
        program: "firewall",
        source: example("firewall"),
        kinds: &[],
        entries: Arc::new(|_| ()),
        ..workload(flows, size, seed)
    }
}
