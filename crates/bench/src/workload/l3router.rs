//! `l3router`: routes over next hops on 16 ports.

use super::{Flows, Workload, sequence};
use crate::entry::Entry;
use crate::frames::{Frames, Writer};
use crate::prefixes;
use crate::source::example;
use random::Random;
use std::sync::Arc;

/// The kinds of entries.
pub const KINDS: &[&str] = &["ipv4_match.route", "ipv4_match.drop", "rewrite_dst.set_dst", "rewrite_src.set_src"];
const ROUTE: u32 = 0;
const ROUTE_DROP: u32 = 1;
const SET_DST: u32 = 2;
const SET_SRC: u32 = 3;

const PORTS: u64 = 16;
const FIRST_HOP: u64 = 0x0a00_0001;

fn entries(routes: &[(u32, u32)], hops: u64, emit: &mut dyn FnMut(&Entry)) {
    for port in 1..=PORTS {
        emit(&Entry::exact(SET_SRC, &[port], &[0x0200_5e00_0000 | port]));
    }
    for hop in 0..hops {
        emit(&Entry::exact(SET_DST, &[FIRST_HOP + hop], &[0x0200_6000_0000 | hop]));
    }
    for (i, &(address, prefix_len)) in routes.iter().enumerate() {
        let hop = i as u64 % hops;
        let (kind, args) =
            if i % 1000 == 999 { (ROUTE_DROP, vec![]) } else { (ROUTE, vec![FIRST_HOP + hop, 1 + hop % PORTS]) };
        emit(&Entry::lpm(kind, &[u64::from(address)], prefix_len, &args));
    }
}

/// `count` routes, and frames of `size` bytes.
pub fn workload(count: usize, flows: Flows, size: usize, seed: u64) -> Workload {
    let routes = prefixes::ipv4(count, seed);
    let hops = (count as u64 / 10).clamp(1, 2048);
    let mut w = Writer::default();
    let write = |routes: &[(u32, u32)], i: u64, w: &mut Writer| {
        let mut rng = Random::stream(seed, 0x4000_0000 + i);
        let &(address, prefix_len) = rng.pick(routes);
        let to = address | (rng.below(1 << 32) as u32 & !prefixes::mask(prefix_len));
        let from = 0x6440_0000 | rng.below(1 << 22) as u32;
        w.clear().ethernet(0x0200_5e00_0001, 0x0200_0000_0001);
        w.ipv4(from, to, 17, 2 + rng.below(62) as u8, size.saturating_sub(34)).pad(size);
        1 + rng.below(PORTS) as u16
    };
    let order = sequence(flows, &mut Random::stream(seed, 4));
    let mut frames = Frames::with_capacity(order.len(), size);
    for flow in order {
        let port = write(&routes, flow.into(), &mut w);
        frames.push(port, &w.0);
    }
    let mut odd = Frames::default();
    let mut rng = Random::stream(seed, 5);
    for i in 0..10_000 {
        let port = write(&routes, rng.below(1 << 30), &mut w);
        match i % 4 {
            0 => w.0[rng.index(34)] = rng.next_u64() as u8,
            1 if i % 8 == 1 => w.0.truncate(rng.index(40)),
            _ => {}
        }
        odd.push(port, &w.0);
    }
    Workload {
        program: "l3router",
        source: example("l3router"),
        kinds: KINDS,
        entries: Arc::new(move |emit| entries(&routes, hops, emit)),
        frames,
        odd,
        oracle: None,
        setup: None,
    }
}
