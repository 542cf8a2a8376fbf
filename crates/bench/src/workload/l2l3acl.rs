//! `l2l3acl`: stations, routes, next hops and rules.
//!
//! Ports 1 to 8 are access ports, 9 to 16 trunks. Timed traffic is routed: from an access port's VLAN, untagged, to a
//! trunk, where it leaves with a tag, as in the measurement of PISCES section 5.2. With `mixed`, one frame in four goes
//! through the switching table instead, and both sides may be of either sort of port. Rules miss, except for one flow
//! in 64, which is denied. The rules' sources are of another network than all other traffic, so that one byte of a
//! frame excludes all of them; with `near` they are of the same network, and more of the key must be compared.

use super::{Flows, Workload, sequence};
use crate::entry::Entry;
use crate::frames::{Frames, Writer};
use crate::prefixes;
use crate::source::example;
use random::Random;
use std::sync::Arc;

/// The kinds of entries.
pub const KINDS: &[&str] = &[
    "vlan_ingress.assign_vlan",
    "vlan_ingress.admit",
    "mac_learning.seen",
    "routable.NoAction",
    "routing.set_next_hop",
    "routing.drop",
    "next_hop.rewrite",
    "switching.forward",
    "switching.drop",
    "acl.permit",
    "acl.drop",
    "vlan_egress.tagged",
    "vlan_egress.untagged",
];
const ASSIGN: u32 = 0;
const ADMIT: u32 = 1;
/// A station's address, learned at a port.
pub const SEEN: u32 = 2;
const ROUTABLE: u32 = 3;
/// A route with its next hop.
pub const ROUTE: u32 = 4;
const REWRITE: u32 = 6;
const FORWARD: u32 = 7;
const SWITCH_DROP: u32 = 8;
const PERMIT: u32 = 9;
/// A rule of the access list that denies.
pub const DENY: u32 = 10;
const TAGGED: u32 = 11;

/// Ports with untagged frames, and ports with tagged ones.
const ACCESS: std::ops::RangeInclusive<u64> = 1..=8;
const TRUNKS: std::ops::RangeInclusive<u64> = 9..=16;
const FIRST_VLAN: u64 = 10;
/// The router's address, the same in all VLANs.
const ROUTER: u64 = 0x0200_5e00_0001;

/// Sizes of the tables and the kind of traffic.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Known stations, in `mac_learning` and `switching`.
    pub stations: usize,
    /// Routes.
    pub routes: usize,
    /// Next hops.
    pub next_hops: usize,
    /// Rules of the access list.
    pub rules: usize,
    /// Distinct masks of these rules.
    pub masks: usize,
    /// VLANs; the first eight are those of the access ports.
    pub vlans: usize,
    /// Flows.
    pub flows: Flows,
    /// Bytes of a frame, without the frame check sequence.
    pub frame: usize,
    /// Whether frames take all paths through the program.
    pub mixed: bool,
    /// Whether the rules' sources are of the traffic's network.
    pub near: bool,
    /// Seed of everything random.
    pub seed: u64,
}

impl Size {
    /// `n` stations and `n` routes, with tables in proportion.
    pub fn of(n: usize, flows: usize) -> Size {
        Size {
            stations: n,
            routes: n,
            next_hops: (n / 10).clamp(1, 4096),
            rules: (n / 10).clamp(5, 1000),
            masks: 4,
            vlans: 16,
            flows: Flows::Uniform(flows),
            frame: 64,
            mixed: false,
            near: false,
            seed: 1,
        }
    }

    /// One station, ten routes, five rules.
    pub fn tiny(flows: usize) -> Size {
        Size { stations: 1, routes: 10, next_hops: 2, rules: 5, vlans: 8, ..Size::of(10, flows) }
    }
}

/// A station's address, VLAN and port: an access port, or for every fourth station of mixed traffic a trunk.
fn station(size: &Size, i: usize) -> (u64, u64, u64) {
    let mut rng = Random::stream(size.seed, 0x1000_0000 + i as u64);
    let mac = 0x0200_0000_0000 | (rng.below(1 << 16) << 24) | i as u64;
    if size.mixed && i % 4 == 3 {
        (mac, FIRST_VLAN + rng.below(size.vlans as u64), TRUNKS.start() + rng.below(8))
    } else {
        let port = rng.below(8);
        (mac, FIRST_VLAN + port % size.vlans as u64, ACCESS.start() + port)
    }
}

struct Rule {
    key: [u64; 5],
    mask: [u64; 5],
}

/// A source address of the traffic: 100.64.0.0/10.
fn source(random: u64) -> u32 {
    0x6440_0000 | (random & 0x3f_ffff) as u32
}

/// Rules over distinct masks. Their sources are from 10.0.0.0/8, which no other frame has, or (`near`) from the network
/// of all frames: then a frame matches a rule's destination, protocol and ports once in many millions.
fn rules(size: &Size) -> Vec<Rule> {
    let mut rng = Random::stream(size.seed, 2);
    let from = |random: u64| if size.near { source(random).into() } else { 10 << 24 | random };
    let shape = |i: usize| {
        let (src, dst) = ([32, 24, 16, 12, 28][i % 5], [0, 32, 24, 16, 8][(i / 5 + i) % 5]);
        let ports = [(0, 0xffff), (0, 0), (0xffff, 0xffff), (0xffff, 0)][i % 4];
        let mask = |len: u32| u64::from(prefixes::mask(len));
        [mask(src), mask(dst), if i % 3 == 2 { 0 } else { 0xff }, ports.0, ports.1]
    };
    (0..size.rules)
        .map(|i| {
            let mask = shape(i % size.masks);
            let any = [
                from(rng.below(1 << 24)),
                rng.below(1 << 32),
                [6, 17][rng.index(2)],
                rng.below(1 << 16),
                rng.below(1 << 16),
            ];
            let mut key = any;
            key.iter_mut().zip(mask).for_each(|(k, m)| *k &= m);
            Rule { key, mask }
        })
        .collect()
}

fn entries(size: &Size, routes: &[(u32, u32)], emit: &mut dyn FnMut(&Entry)) {
    let vlans = FIRST_VLAN..FIRST_VLAN + size.vlans as u64;
    for port in ACCESS {
        emit(&Entry::exact(ASSIGN, &[port, 0], &[FIRST_VLAN + (port - ACCESS.start()) % size.vlans as u64]));
    }
    for port in TRUNKS {
        for vid in vlans.clone() {
            emit(&Entry::exact(ADMIT, &[port, vid], &[]));
            emit(&Entry::exact(TAGGED, &[port, vid], &[]));
        }
    }
    for vid in vlans.clone() {
        emit(&Entry::exact(ROUTABLE, &[vid, ROUTER], &[]));
    }
    for i in 0..size.stations {
        let (mac, vid, port) = station(size, i);
        emit(&Entry::exact(SEEN, &[vid, mac], &[port]));
        let kind = if i % 1000 == 999 { SWITCH_DROP } else { FORWARD };
        emit(&Entry::exact(kind, &[vid, mac], &[if kind == FORWARD { port } else { 0 }]));
    }
    let mut rng = Random::stream(size.seed, 3);
    for hop in 0..size.next_hops as u64 {
        let port =
            if size.mixed && hop % 2 == 1 { ACCESS.start() + rng.below(8) } else { TRUNKS.start() + rng.below(8) };
        let vid = vlans.start + rng.below(size.vlans as u64);
        emit(&Entry::exact(REWRITE, &[hop], &[vid, port, ROUTER, 0x0200_6000_0000 | hop]));
    }
    for (i, &(address, prefix_len)) in routes.iter().enumerate() {
        let hop = (i % size.next_hops) as u64;
        emit(&Entry::lpm(ROUTE, &[u64::from(address)], prefix_len, &[hop]));
    }
    for (i, rule) in rules(size).iter().enumerate() {
        let kind = if i % 8 == 7 { PERMIT } else { DENY };
        emit(&Entry::ternary(kind, 1 + i as i32, &rule.key, &rule.mask, &[]));
    }
}

/// Writes a flow's frame; returns its ingress port.
fn flow(size: &Size, routes: &[(u32, u32)], rules: &[Rule], i: u64, w: &mut Writer) -> u16 {
    // The pair that communicates: new flows use the same pairs repeatedly, with other host addresses and other ports.
    let pair = if let Flows::New { pairs, .. } = size.flows { i % pairs as u64 } else { i };
    let mut rng = Random::stream(size.seed, 0x4000_0000 + pair);
    let (mac, vid, port) = station(size, rng.index(size.stations));
    let &(address, prefix_len) = rng.pick(routes);
    let mut to = address | (rng.below(1 << 32) as u32 & !prefixes::mask(prefix_len));
    if let Flows::New { .. } = size.flows {
        rng = Random::stream(size.seed, 0x2000_0000_0000 + i);
    }
    let mut from = source(rng.below(1 << 22));
    let (mut protocol, mut sport, mut dport) = ([6, 17][rng.index(2)], rng.below(1 << 16), rng.below(1 << 16));
    if i % 64 == 63 {
        let Rule { key, mask } = rng.pick(rules);
        let fill = |k: usize, random: u64| key[k] | (random & !mask[k]);
        from = fill(0, from.into()) as u32;
        to = fill(1, to.into()) as u32;
        protocol = fill(2, protocol);
        (sport, dport) = (fill(3, sport), fill(4, dport));
    }
    let target = if size.mixed && rng.one_in(4) {
        // A station of the same VLAN if a few tries find one.
        let tries = (0..8).map(|_| station(size, rng.index(size.stations)));
        tries.into_iter().find(|s| s.1 == vid).map_or(ROUTER, |s| s.0)
    } else {
        ROUTER
    };
    w.clear().ethernet(target, mac);
    if TRUNKS.contains(&port) {
        w.vlan(vid);
    }
    w.ipv4(from, to, protocol as u8, 2 + rng.below(62) as u8, size.frame.saturating_sub(34))
        .be::<2>(sport)
        .be::<2>(dport);
    w.pad(size.frame);
    port as u16
}

/// Frames for the uncommon paths: with a random byte, truncated, with an expired TTL, unknown stations or other tags.
fn odd(size: &Size, routes: &[(u32, u32)], rules: &[Rule]) -> Frames {
    let mut rng = Random::stream(size.seed, 5);
    let mut frames = Frames::default();
    let mut w = Writer::default();
    let mixed = Size { mixed: true, ..*size };
    for i in 0..20_000 {
        let mut port = flow(&mixed, routes, rules, rng.below(1 << 30), &mut w);
        match i % 16 {
            // Any of the first 42 bytes.
            0..=5 => w.0[rng.index(42)] = rng.next_u64() as u8,
            6 => w.0.truncate(rng.index(64)),
            // The TTL expires.
            7 => {
                let w_ttl = if w.0[12] == 0x81 { 26 } else { 22 };
                w.0[w_ttl] = rng.below(2) as u8;
            }
            8 => port = rng.below(20) as u16,
            // From an unknown station, or to one.
            9 => w.0[9] ^= 0x40,
            10 => w.0[3] ^= 0x40,
            // Another EtherType; a tag on an untagged frame.
            11 => w.0[13] = 6,
            12 => {
                w.0.splice(12..12, [0x81, 0, rng.next_u64() as u8, rng.below(30) as u8]);
            }
            _ => {}
        }
        frames.push(port, &w.0);
    }
    frames
}

/// The workload of one size.
pub fn workload(size: Size) -> Workload {
    let routes = prefixes::ipv4(size.routes, size.seed);
    let order = sequence(size.flows, &mut Random::stream(size.seed, 4));
    let rules = rules(&size);
    let mut frames = Frames::with_capacity(order.len(), size.frame + 4);
    let mut w = Writer::default();
    for i in order {
        let port = flow(&size, &routes, &rules, i.into(), &mut w);
        frames.push(port, &w.0);
    }
    Workload {
        program: "l2l3acl",
        source: example("l2l3acl"),
        kinds: KINDS,
        odd: odd(&size, &routes, &rules),
        frames,
        entries: Arc::new(move |emit| entries(&size, &routes, emit)),
        oracle: None,
        setup: None,
    }
}
