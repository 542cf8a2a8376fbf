//! `heavy_hitter`: every packet is counted in the four rows of the sketch; there is no C version.

use super::{Flows, Workload, sequence};
use crate::entry::Entry;
use crate::frames::{Frames, Writer};
use crate::source::example;
use random::Random;
use std::sync::Arc;

/// The kinds of entries.
const KINDS: &[&str] = &["wire.to_port", "protected_v4.protect"];
const WIRE: u32 = 0;
const PROTECT: u32 = 1;

fn datagram(seed: u64, flow: u64, size: usize, w: &mut Writer) {
    let mut rng = Random::stream(seed, 0x5000_0000 + flow);
    let (source, destination) = (rng.below(1 << 32) as u32, 0x0a00_0000 | rng.below(1 << 24) as u32);
    w.clear().ethernet(0x0200_0000_0001, 0x0200_0000_0002).ipv4(source, destination, 17, 64, size.saturating_sub(34));
    w.be::<2>(1024 + rng.below(60_000)).be::<2>(53).be::<4>(0).pad(size);
}

fn entries(emit: &mut dyn FnMut(&Entry)) {
    for port in 1..=8 {
        emit(&Entry::exact(WIRE, &[port], &[1 + port % 8]));
    }
    // A rate above that of any flow in the benchmark: all packets pass.
    emit(&Entry::lpm(PROTECT, &[0x0a00_0000], 8, &[0xf_fffe]));
}

/// Datagrams of `flows` flows in frames of `size` bytes.
pub fn workload(flows: Flows, size: usize, seed: u64) -> Workload {
    let mut w = Writer::default();
    let order = sequence(flows, &mut Random::stream(seed, 4));
    let mut frames = Frames::with_capacity(order.len(), size);
    let mut rng = Random::stream(seed, 6);
    for &flow in &order {
        datagram(seed, flow.into(), size, &mut w);
        frames.push(1 + rng.below(8) as u16, &w.0);
    }
    let mut odd = Frames::default();
    for i in 0..4000 {
        datagram(seed, 1 << 40 | rng.below(20), 64, &mut w);
        match i % 16 {
            0 => w.0[rng.index(42)] = rng.next_u64() as u8,
            1 => w.0.truncate(rng.index(64)),
            _ => {}
        }
        odd.push(1 + rng.below(10) as u16, &w.0);
    }
    Workload {
        program: "heavy_hitter",
        source: example("heavy_hitter"),
        kinds: KINDS,
        entries: Arc::new(|emit| entries(emit)),
        frames,
        odd,
        oracle: None,
        setup: None,
    }
}
