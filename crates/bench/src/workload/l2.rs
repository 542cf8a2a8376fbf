//! `l2`: stations of eight VLANs, each VLAN with an access port and a trunk.
//!
//! Timed frames go from a station behind an access port to one behind the trunk, so a tag is added.

use super::{Flows, Workload, sequence};
use crate::entry::Entry;
use crate::frames::{Frames, Writer};
use crate::source::example;
use random::Random;
use std::sync::Arc;

/// The kinds of entries.
pub const KINDS: &[&str] = &[
    "vlan_ingress.assign_vlan",
    "vlan_ingress.admit",
    "vlan_ingress.drop",
    "mac_learning.seen",
    "switching.forward",
    "switching.drop",
    "vlan_egress.tagged",
    "vlan_egress.untagged",
];
const ASSIGN: u32 = 0;
const ADMIT: u32 = 1;
const REFUSE: u32 = 2;
const SEEN: u32 = 3;
const FORWARD: u32 = 4;
const SWITCH_DROP: u32 = 5;
const TAGGED: u32 = 6;

const VLANS: u64 = 8;
const FIRST_VLAN: u64 = 10;

/// A station's address, VLAN and port: every other station of a VLAN is behind its trunk.
fn station(seed: u64, i: u64) -> (u64, u64, u64) {
    let mut rng = Random::stream(seed, 0x1000_0000 + i);
    let (vlan, tagged) = (i % VLANS, i / VLANS % 2);
    (0x0200_0000_0000 | rng.below(1 << 16) << 24 | i, FIRST_VLAN + vlan, 1 + vlan + VLANS * tagged)
}

fn entries(stations: u64, seed: u64, emit: &mut dyn FnMut(&Entry)) {
    for vlan in 0..VLANS {
        let (vid, access, trunk) = (FIRST_VLAN + vlan, 1 + vlan, 1 + vlan + VLANS);
        emit(&Entry::exact(ASSIGN, &[access, 0], &[vid]));
        emit(&Entry::exact(ADMIT, &[trunk, vid], &[]));
        emit(&Entry::exact(TAGGED, &[trunk, vid], &[]));
    }
    emit(&Entry::exact(REFUSE, &[17, 0], &[]));
    for i in 0..stations {
        let (mac, vid, port) = station(seed, i);
        emit(&Entry::exact(SEEN, &[vid, mac], &[port]));
        let drops = i % 1000 == 999;
        emit(&Entry::exact(if drops { SWITCH_DROP } else { FORWARD }, &[vid, mac], &[if drops { 0 } else { port }]));
    }
}

/// Writes a frame from one station to another; returns its ingress port.
fn write(seed: u64, from: u64, to: u64, size: usize, w: &mut Writer) -> u16 {
    let (src, vid, port) = station(seed, from);
    w.clear().ethernet(station(seed, to).0, src);
    if port > VLANS {
        w.vlan(vid);
    }
    w.be::<2>(0x88b5).pad(size);
    port as u16
}

/// At least `stations` stations (a multiple of 16), and frames of `size` bytes.
pub fn workload(stations: usize, flows: Flows, size: usize, seed: u64) -> Workload {
    let stations = (stations as u64).next_multiple_of(2 * VLANS);
    let pairs = stations / (2 * VLANS);
    let mut w = Writer::default();
    let order = sequence(flows, &mut Random::stream(seed, 4));
    let mut frames = Frames::with_capacity(order.len(), size);
    for flow in order {
        let mut rng = Random::stream(seed, 0x4000_0000 + u64::from(flow));
        let vlan = rng.below(VLANS);
        let mut one = |tagged: u64| (rng.below(pairs) * 2 + tagged) * VLANS + vlan;
        let (from, to) = (one(0), one(1));
        let port = write(seed, from, to, size, &mut w);
        frames.push(port, &w.0);
    }
    let mut odd = Frames::default();
    let mut rng = Random::stream(seed, 5);
    for i in 0..10_000 {
        let from = rng.below(stations);
        let to = if i % 2 == 0 { rng.below(stations) } else { rng.below(pairs) * 2 * VLANS + from % (2 * VLANS) };
        let mut port = write(seed, from, to, 64, &mut w);
        match i % 8 {
            0 => w.0[rng.index(18)] = rng.next_u64() as u8,
            1 => w.0.truncate(rng.index(24)),
            2 => port = rng.below(20) as u16,
            3 => {
                w.0.splice(12..12, [0x81, 0, rng.next_u64() as u8, rng.below(20) as u8]);
            }
            _ => {}
        }
        odd.push(port, &w.0);
    }
    Workload {
        program: "l2",
        source: example("l2"),
        kinds: KINDS,
        entries: Arc::new(move |emit| entries(stations, seed, emit)),
        frames,
        odd,
        oracle: None,
        setup: None,
    }
}
