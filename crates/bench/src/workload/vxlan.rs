//! `vxlan`: stations of eight tenants, half of them local. Flows alternate between entering a tunnel and leaving one.

use super::{Flows, Workload, sequence};
use crate::entry::Entry;
use crate::frames::{Frames, Writer};
use crate::source::example;
use random::Random;
use std::sync::Arc;

/// The kinds of entries.
pub const KINDS: &[&str] = &["own_address.decap", "tenant_port.tenant", "local.deliver", "encap.tunnel_to"];
const OWN: u32 = 0;
const TENANT: u32 = 1;
const DELIVER: u32 = 2;
const TUNNEL: u32 = 3;

const TENANTS: u64 = 8;
const OWN_ADDRESS: u64 = 0x0a00_0001;
/// Number of remote tunnel endpoints.
const REMOTES: u64 = 256;
const UPLINK: u64 = 9;

/// A station's address and VNI.
fn station(seed: u64, i: u64) -> (u64, u64) {
    let mut rng = Random::stream(seed, 0x1000_0000 + i);
    (0x0200_0000_0000 | rng.below(1 << 16) << 24 | i, 5000 + i % TENANTS)
}

fn entries(stations: u64, seed: u64, emit: &mut dyn FnMut(&Entry)) {
    emit(&Entry::exact(OWN, &[OWN_ADDRESS], &[]));
    for tenant in 0..TENANTS {
        emit(&Entry::exact(TENANT, &[1 + tenant], &[5000 + tenant]));
    }
    for i in 0..stations {
        let (mac, vni) = station(seed, i);
        if (i / TENANTS).is_multiple_of(2) {
            emit(&Entry::exact(DELIVER, &[vni, mac], &[1 + i % TENANTS]));
        } else {
            let remote = (i / TENANTS) % REMOTES;
            let args = [0x0a00_0100 + remote, OWN_ADDRESS, 0x0200_7000_0000 | remote, 0x0200_5e00_0001, UPLINK];
            emit(&Entry::exact(TUNNEL, &[vni, mac], &args));
        }
    }
}

/// Writes a frame for station `to`, from a tenant's port or in a tunnel; returns its ingress port.
fn write(seed: u64, to: u64, from: u64, tunnelled: bool, size: usize, w: &mut Writer) -> u16 {
    let (dst, vni) = station(seed, to);
    w.clear();
    if tunnelled {
        w.ethernet(0x0200_5e00_0001, 0x0200_7000_0001);
        w.ipv4(0x0a00_0101, OWN_ADDRESS as u32, 17, 64, size + 16);
        w.be::<2>(49152 + from % 16384).be::<2>(4789).be::<2>(size as u64 + 16).be::<2>(0);
        w.be::<4>(0x0800_0000).be::<3>(vni).be::<1>(0);
    }
    let start = w.0.len();
    w.ethernet(dst, 0x0200_8000_0000 | from).ipv4(0x0b00_0001, 0x0b00_0002, 6, 64, size.saturating_sub(34));
    w.pad(start + size);
    if tunnelled { UPLINK as u16 } else { 1 + (vni - 5000) as u16 }
}

/// `count` stations; frames of `size` bytes without the outer headers.
pub fn workload(count: usize, flows: Flows, size: usize, seed: u64) -> Workload {
    let stations = (count as u64).next_multiple_of(2 * TENANTS);
    let pairs = stations / (2 * TENANTS);
    let mut w = Writer::default();
    let order = sequence(flows, &mut Random::stream(seed, 4));
    let mut frames = Frames::with_capacity(order.len(), size + 25);
    for flow in order {
        let mut rng = Random::stream(seed, 0x4000_0000 + u64::from(flow));
        let tunnelled = flow % 2 == 1;
        let to = (2 * rng.below(pairs) + u64::from(!tunnelled)) * TENANTS + rng.below(TENANTS);
        let port = write(seed, to, rng.below(1 << 24), tunnelled, size, &mut w);
        frames.push(port, &w.0);
    }
    let mut odd = Frames::default();
    let mut rng = Random::stream(seed, 5);
    for i in 0..20_000 {
        let size = 14 + rng.index(200);
        let mut port = write(seed, rng.below(stations), rng.below(1 << 24), i % 2 == 0, size, &mut w);
        match i % 8 {
            0 | 1 => {
                let at = rng.index(w.0.len().min(64));
                w.0[at] = rng.next_u64() as u8;
            }
            2 | 3 => w.0.truncate(rng.index(100)),
            4 => port = rng.below(12) as u16,
            _ => {}
        }
        odd.push(port, &w.0);
    }
    Workload {
        program: "vxlan",
        source: example("vxlan"),
        kinds: KINDS,
        entries: Arc::new(move |emit| entries(stations, seed, emit)),
        frames,
        odd,
        oracle: None,
        setup: None,
    }
}
