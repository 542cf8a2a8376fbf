//! SAI P4 (`pins/pins_middleblock.p4` of a p4c checkout): 10,000 IPv4 routes over 100 next hops, and 500 ternary
//! entries in its access lists that no frame hits.

use super::{Flows, Workload, sequence};
use crate::entry::{Is, add};
use crate::frames::{Frames, Writer};
use crate::prefixes;
use crate::source::Source;
use abi::state::PipelineState;
use anyhow::Result;
use ir::Program;
use random::Random;
use std::path::Path;
use std::sync::Arc;

const SEED: u64 = 1;
const ROUTES: usize = 10_000;
const NEXT_HOPS: u64 = 100;
const INTERFACES: u64 = 16;
const VRF: u128 = 1;
const ROUTER: u64 = 0x0200_5e00_0001;

fn entries(program: &Program, state: &dyn PipelineState, routes: &[(u32, u32)]) -> Result<()> {
    let add = |what, priority, fields: &[(&str, Is)], args: &[u128]| add(program, state, what, priority, fields, args);
    add(("l3_admit_table", "admit_to_l3"), 1, &[("dst_mac", Is::Exact(ROUTER.into()))], &[])?;
    add(("vrf_table", "no_action"), 0, &[("vrf_id", Is::Exact(VRF))], &[])?;
    add(("acl_pre_ingress_table", "set_vrf"), 1, &[("is_ipv4", Is::Exact(1))], &[VRF])?;
    for interface in 1..=u128::from(INTERFACES) {
        let args = [interface, u128::from(ROUTER)];
        add(
            ("router_interface_table", "set_port_and_src_mac"),
            0,
            &[("router_interface_id", Is::Exact(interface))],
            &args,
        )?;
    }
    for hop in 1..=u128::from(NEXT_HOPS) {
        let (interface, neighbor) = (1 + hop % u128::from(INTERFACES), 0xfe80 << 112 | hop);
        add(("nexthop_table", "set_ip_nexthop"), 0, &[("nexthop_id", Is::Exact(hop))], &[interface, neighbor])?;
        let key = [("router_interface_id", Is::Exact(interface)), ("neighbor_id", Is::Exact(neighbor))];
        add(("neighbor_table", "set_dst_mac"), 0, &key, &[0x0200_6000_0000 | hop])?;
    }
    for (i, &(address, len)) in routes.iter().enumerate() {
        let key = [("vrf_id", Is::Exact(VRF)), ("ipv4_dst", Is::Prefix(address.into(), len))];
        add(("ipv4_table", "set_nexthop_id"), 0, &key, &[1 + i as u128 % u128::from(NEXT_HOPS)])?;
    }
    // From sources that no frame has.
    let mut rng = Random::stream(SEED, 2);
    for i in 0..250 {
        let src = u128::from(10 << 24 | rng.below(1 << 24));
        let mask = [0xffff_ffff, 0xffff_ff00, 0xffff_0000][i % 3];
        let port = if i % 2 == 0 { Is::Exact(rng.below(1 << 16).into()) } else { Is::Masked(0, 0) };
        let key = [
            ("is_ipv4", Is::Exact(1)),
            ("src_ip", Is::Masked(src, mask)),
            ("ip_protocol", Is::Exact(6)),
            ("l4_dst_port", port),
        ];
        add(("acl_ingress_table", "acl_drop"), 1 + i as i32, &key, &[])?;
        let key = [("is_ipv4", Is::Exact(1)), ("src_ip", Is::Masked(src, mask))];
        add(("acl_ingress_security_table", "acl_drop"), 1 + i as i32, &key, &[])?;
    }
    Ok(())
}

/// Routed TCP and UDP of `flows` flows.
pub fn workload(path: &Path, flows: usize) -> Workload {
    let routes = prefixes::ipv4(ROUTES, SEED);
    let mut w = Writer::default();
    let mut frames = Frames::with_capacity(flows, 64);
    let mut odd = Frames::default();
    for i in sequence(Flows::Uniform(flows), &mut Random::stream(SEED, 4)) {
        let mut rng = Random::stream(SEED, 0x4000_0000 + u64::from(i));
        let &(address, len) = rng.pick(&routes);
        let to = address | (rng.below(1 << 32) as u32 & !prefixes::mask(len));
        let from = 0x6440_0000 | rng.below(1 << 22) as u32;
        w.clear().ethernet(ROUTER, 0x0200_0000_0001).ipv4(from, to, [6, 17][rng.index(2)], 64, 30);
        w.be::<2>(rng.below(1 << 16)).be::<2>(rng.below(1 << 16)).pad(64);
        let port = 1 + rng.below(16) as u16;
        frames.push(port, &w.0);
        if odd.len() < 2000 {
            match odd.len() % 4 {
                0 => w.0.truncate(rng.index(64)),
                1 => w.0[22] = rng.below(2) as u8,
                _ => w.0[rng.index(38)] = rng.next_u64() as u8,
            }
            odd.push(port, &w.0);
        }
    }
    Workload {
        program: "pins_middleblock",
        source: Source::File(path.to_path_buf()),
        kinds: &[],
        entries: Arc::new(|_| {}),
        frames,
        odd,
        oracle: None,
        setup: Some(Box::new(move |program, state| entries(program, state, &routes))),
    }
}
