//! Entries and frames for programs of `examples/` that have no C version, flow by flow.

use crate::entry::{Is, add, call, key, table};
use crate::frames::{Writer, checksum};
use anyhow::{Context, Result, anyhow};
use base::Bits;
use base::entry::{ActionCall, EntryAction, GroupMember, KeyMatch, MeterConfig, TableEntry};
use base::ids::ExternId;
use datapath::Pipeline;
use datapath::replication::{CloneSession, Replica};

/// Writes a frame of a flow; returns its ingress port. `answers` are the packets that the switch has sent so far for
/// the flow's opening frames.
pub type Make = fn(flow: u32, answers: &[Vec<u8>], w: &mut Writer) -> u16;

/// A program with its entries and frames.
pub struct Example {
    /// The program's name.
    pub program: &'static str,
    /// A description of the flows and of the timed frames.
    pub flows: &'static str,
    /// Adds the entries and other state for this many flows.
    pub prepare: fn(&Pipeline, flows: u32) -> Result<()>,
    /// Frames that open a flow, in order; none is dropped.
    pub opening: &'static [Make],
    /// Frames of an open flow.
    pub frames: &'static [Make],
}

/// MAC addresses without meaning for the program.
const MAC: (u64, u64) = (0x0200_0000_0001, 0x0200_0000_0002);
/// Bytes that shorter frames are padded to.
const SIZE: usize = 64;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// An IPv4 address and a port.
type End = (u32, u16);

/// The endpoints of an IPv4 packet: the source, then the destination.
fn ends(frame: &[u8]) -> (End, End) {
    let number = |at: usize, len: usize| frame[at..at + len].iter().fold(0, |n, &b| n << 8 | u32::from(b));
    ((number(26, 4), number(34, 2) as u16), (number(30, 4), number(36, 2) as u16))
}

/// The sequence number of a TCP segment over IPv4.
fn seq_of(frame: &[u8]) -> u32 {
    frame[38..42].iter().fold(0, |n, &b| n << 8 | u32::from(b))
}

/// A TCP header without data; `pseudo` holds the pseudo-header's addresses.
fn tcp(w: &mut Writer, pseudo: &[u8], ports: (u16, u16), flags: u8, seq: u32, ack: u32) {
    let start = w.0.len();
    w.be::<2>(ports.0.into()).be::<2>(ports.1.into()).be::<4>(seq.into()).be::<4>(ack.into());
    w.be::<1>(0x50).be::<1>(flags.into()).be::<2>(1000).be::<4>(0);
    let covered = [pseudo, &[0, TCP, 0, 20], &w.0[start..]].concat();
    w.0[start + 16..start + 18].copy_from_slice(&checksum(&covered).to_be_bytes());
}

/// A TCP segment over IPv4.
fn segment(w: &mut Writer, from: End, to: End, flags: u8, seq: u32, ack: u32) {
    w.ethernet(MAC.0, MAC.1).ipv4(from.0, to.0, TCP, 64, 20);
    let pseudo = [from.0.to_be_bytes(), to.0.to_be_bytes()].concat();
    tcp(w, &pseudo, (from.1, to.1), flags, seq, ack);
    w.pad(SIZE);
}

/// A UDP datagram over IPv4, after whatever was written before.
fn datagram(w: &mut Writer, from: End, to: End, dscp: u8, data: usize) {
    let start = w.0.len();
    w.ipv4_header(from.0, to.0, UDP, 64, 8 + data);
    w.0[start + 1] = dscp << 2;
    w.0[start + 10..start + 12].copy_from_slice(&[0, 0]);
    let sum = checksum(&w.0[start..]);
    w.0[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
    w.be::<2>(from.1.into()).be::<2>(to.1.into()).be::<2>(8 + data as u64).be::<2>(0);
    let end = w.0.len() + data;
    w.pad(end);
}

/// Adds an entry.
fn put(p: &Pipeline, what: (&str, &str), priority: i32, fields: &[(&str, Is)], args: &[u128]) -> Result<()> {
    add(p.program(), p.state().as_ref(), what, priority, fields, args)
}

/// The extern whose qualified name ends with `name`.
fn named_extern(p: &Pipeline, name: &str) -> Result<ExternId> {
    let at = p.program().externs.iter().position(|e| e.name.rsplit('.').next() == Some(name));
    Ok(ExternId::from_index(at.with_context(|| format!("{} has no extern `{name}`", p.program().name))?))
}

/// The error of a call of the state, with what was attempted.
fn done<E: std::fmt::Debug>(what: &str, result: Result<(), E>) -> Result<()> {
    result.map_err(|e| anyhow!("{what}: {e:?}"))
}

/// Rates above the benchmark's: all packets are green.
const FAST: MeterConfig = MeterConfig { cir: 1 << 40, cburst: 1 << 40, pir: 1 << 40, pburst: 1 << 40, eburst: 0 };

fn set_meter(p: &Pipeline, name: &str, index: u64) -> Result<()> {
    done(name, p.state().meter_set(named_extern(p, name)?, index, Some(FAST)))
}

// ---- l2learn: pairs of stations, one behind port 1, the other behind port 2.

const NEAR: u64 = 0x0200_0100_0000;
const FAR: u64 = 0x0200_0200_0000;

fn from_near(flow: u32, _: &[Vec<u8>], w: &mut Writer) -> u16 {
    w.ethernet(FAR + u64::from(flow), NEAR + u64::from(flow)).be::<2>(0x88b5).pad(SIZE);
    1
}

fn from_far(flow: u32, _: &[Vec<u8>], w: &mut Writer) -> u16 {
    w.ethernet(NEAR + u64::from(flow), FAR + u64::from(flow)).be::<2>(0x88b5).pad(SIZE);
    2
}

/// `l2learn`.
pub const L2LEARN: Example = Example {
    program: "l2learn",
    flows: "pairs of stations that it has learned, both directions",
    prepare: |p, _| {
        let ports = (1..=4).map(|port| Replica { port, instance: 0 }).collect();
        Ok(p.replication().group_insert(1, ports)?)
    },
    opening: &[from_near, from_far],
    frames: &[from_near, from_far],
};

// ---- conntrack: port 1 is inside, port 2 outside.

/// An inside host and port: 4,096 hosts, each with another port for each of its flows.
fn host(flow: u32) -> End {
    (0x0a00_0000 + flow % 4096, 2000 + (flow / 4096) as u16)
}

/// An outside host and port.
fn server(flow: u32) -> End {
    (0xcb00_7000 + flow % 251, 443)
}

/// Initial sequence numbers of both directions.
fn isn(flow: u32) -> (u32, u32) {
    (flow << 12, !(flow << 12))
}

fn conntrack_out(flow: u32, flags: u8, w: &mut Writer) -> u16 {
    let (own, peer) = isn(flow);
    let begins = u32::from(flags & SYN == 0);
    segment(w, host(flow), server(flow), flags, own + begins, peer.wrapping_add(1) * begins);
    1
}

fn conntrack_in(flow: u32, flags: u8, w: &mut Writer) -> u16 {
    let (peer, own) = isn(flow);
    let begins = u32::from(flags & SYN == 0);
    segment(w, server(flow), host(flow), flags, own.wrapping_add(begins), peer + 1);
    2
}

/// `conntrack`.
pub const CONNTRACK: Example = Example {
    program: "conntrack",
    flows: "established TCP connections, both directions",
    prepare: |_, _| Ok(()),
    opening: &[
        |flow, _, w| conntrack_out(flow, SYN, w),
        |flow, _, w| conntrack_in(flow, SYN | ACK, w),
        |flow, _, w| conntrack_out(flow, ACK, w),
    ],
    frames: &[|flow, _, w| conntrack_out(flow, ACK, w), |flow, _, w| conntrack_in(flow, ACK, w)],
};

// ---- nat44: 64 hosts share an address, as in RFC 7422.

fn nat44_in(flow: u32, answers: &[Vec<u8>], flags: u8, w: &mut Writer) -> u16 {
    let (from, to) = ends(&answers[0]);
    let (peer, own) = isn(flow);
    segment(w, to, from, flags, own.wrapping_add(u32::from(flags & SYN == 0)), peer + 1);
    2
}

/// `nat44`.
pub const NAT44: Example = Example {
    program: "nat44",
    flows: "established TCP connections, both directions",
    prepare: |p, _| {
        let inside = 0x0a00_0000;
        put(
            p,
            ("pools", "pool"),
            0,
            &[("inside.address", Is::Prefix(inside, 20))],
            &[inside, 0xc612_0000, 6, 1008, 0],
        )?;
        put(p, ("addresses", "NoAction"), 0, &[("dst", Is::Prefix(0xc612_0000, 24))], &[])?;
        put(p, ("routes", "forward"), 0, &[("ipv4.dstAddr", Is::Prefix(0x0a00_0000, 8))], &[1, 3, 4])?;
        put(p, ("routes", "forward"), 0, &[("ipv4.dstAddr", Is::Prefix(0, 0))], &[2, 5, 6])
    },
    opening: &[
        |flow, _, w| conntrack_out(flow, SYN, w),
        |flow, answers, w| nat44_in(flow, answers, SYN | ACK, w),
        |flow, _, w| conntrack_out(flow, ACK, w),
    ],
    frames: &[|flow, _, w| conntrack_out(flow, ACK, w), |flow, answers, w| nat44_in(flow, answers, ACK, w)],
};

// ---- nat64: prefixes of 16,384 hosts each, which share an address.

const HOSTS_V6: u128 = 0x2001_0db8_000a << 80;
const PREFIX_V6: u128 = 0x0064_ff9b << 96;

fn nat64_host(flow: u32) -> u128 {
    HOSTS_V6 | u128::from(flow / 16_384) << 64 | u128::from(1 + flow % 16_384)
}

/// Packet identifiers are counted in a cell selected by the lower bits of the destination. Flows that are compared have
/// cells of their own.
fn nat64_server(flow: u32) -> u32 {
    let cell = if flow < 1024 { flow } else { 1024 + flow % 3072 };
    0xcb00_7000 | cell
}

fn nat64_out(flow: u32, flags: u8, w: &mut Writer) -> u16 {
    let (own, peer) = isn(flow);
    let begins = u32::from(flags & SYN == 0);
    let (src, dst) = (nat64_host(flow), PREFIX_V6 | u128::from(nat64_server(flow)));
    w.ethernet(MAC.0, MAC.1).be::<2>(0x86dd).be::<4>(0x6000_0000).be::<2>(20).be::<1>(TCP.into()).be::<1>(64);
    w.0.extend(src.to_be_bytes());
    w.0.extend(dst.to_be_bytes());
    let pseudo = [src.to_be_bytes(), dst.to_be_bytes()].concat();
    tcp(w, &pseudo, (2000, 443), flags, own + begins, peer.wrapping_add(1) * begins);
    1
}

/// `nat64`.
pub const NAT64: Example = Example {
    program: "nat64",
    flows: "established TCP connections, both directions",
    prepare: |p, flows| {
        for prefix in 0..=u128::from(flows / 16_384) {
            let key = [("inside.address", Is::Prefix(HOSTS_V6 | prefix << 64, 64))];
            put(p, ("pools", "pool"), 0, &key, &[0xc612_0000 + prefix, 1024, 64_512, prefix])?;
        }
        put(p, ("addresses", "NoAction"), 0, &[("address", Is::Prefix(0xc612_0000, 24))], &[])?;
        put(p, ("routes", "forward"), 0, &[("dst", Is::Prefix(0x2001_0db8 << 96, 32))], &[1, 3, 4])?;
        put(p, ("routes", "forward"), 0, &[("dst", Is::Prefix(PREFIX_V6, 96))], &[2, 5, 6])
    },
    opening: &[
        |flow, _, w| nat64_out(flow, SYN, w),
        |flow, answers, w| nat44_in(flow, answers, SYN | ACK, w),
        |flow, _, w| nat64_out(flow, ACK, w),
    ],
    frames: &[|flow, _, w| nat64_out(flow, ACK, w), |flow, answers, w| nat44_in(flow, answers, ACK, w)],
};

// ---- slb: four servers behind ports 1 to 4, clients behind port 9.

const SERVICE: End = (0xcb00_7101, 443);

/// An IPv4-mapped address, as the programs store IPv4 addresses in IPv6 fields.
fn mapped(address: u32) -> u128 {
    0xffff << 32 | u128::from(address)
}

fn slb_segment(flow: u32, flags: u8, w: &mut Writer) -> u16 {
    segment(w, host(flow), SERVICE, flags, isn(flow).0 + u32::from(flags & SYN == 0), u32::from(flags & SYN == 0));
    9
}

/// `slb`.
pub const SLB: Example = Example {
    program: "slb",
    flows: "established TCP connections, four servers",
    prepare: |p, _| {
        let (program, state) = (p.program(), p.state());
        let (services, members) = (table(program, "services")?, named_extern(p, "group_members")?);
        for server in 1..=4 {
            put(p, ("servers", "send"), 0, &[("server", Is::Exact(server))], &[0x0200_0000_0010 + server, server])?;
            let action = call(program, services, "select_server", &[server])?;
            done("member", state.member_insert(members, server as u32, &action, 0))?;
        }
        let group: Vec<_> = (1..=4).map(|member| GroupMember { member, weight: 1, watch_port: None }).collect();
        done("group", state.group_insert(members, 1, &group, 4))?;
        let fields = [
            ("meta.service", Is::Exact(mapped(SERVICE.0))),
            ("service_port", Is::Exact(SERVICE.1.into())),
            ("protocol", Is::Exact(TCP.into())),
        ];
        let key = key(program, services, &fields)?;
        let entry = TableEntry { key, priority: 0, action: EntryAction::Group(1), idle_timeout_ns: 0 };
        done("service", state.insert(services, &entry))
    },
    opening: &[|flow, _, w| slb_segment(flow, SYN, w), |flow, _, w| slb_segment(flow, ACK, w)],
    frames: &[|flow, _, w| slb_segment(flow, ACK, w)],
};

// ---- syn_proxy: clients behind port 1, servers behind port 2.

fn proxy_ack(flow: u32, answers: &[Vec<u8>], w: &mut Writer) -> u16 {
    let cookie = seq_of(&answers[0]);
    segment(w, host(flow), SERVICE, ACK, isn(flow).0 + 1, cookie.wrapping_add(1));
    1
}

fn proxy_server(flow: u32, flags: u8, w: &mut Writer) -> u16 {
    let (client, own) = isn(flow);
    segment(w, SERVICE, host(flow), flags, own.wrapping_add(u32::from(flags & SYN == 0)), client + 1);
    2
}

/// `syn_proxy`.
pub const SYN_PROXY: Example = Example {
    program: "syn_proxy",
    flows: "established TCP connections, both directions",
    prepare: |p, _| {
        let secret = named_extern(p, "secret")?;
        for (cell, half) in [(0, 0x0302_0100), (1, 0x0706_0504)] {
            done("secret", p.state().register_set(secret, cell, &Bits::new(32, half)))?;
        }
        let to_servers = CloneSession { replicas: vec![Replica { port: 2, instance: 0 }], ..CloneSession::default() };
        p.replication().session_insert(1, to_servers)?;
        let fields = [("meta.server", Is::Exact(mapped(SERVICE.0))), ("server_port", Is::Exact(SERVICE.1.into()))];
        put(p, ("protected", "protect"), 0, &fields, &[1440])
    },
    opening: &[
        |flow, _, w| {
            segment(w, host(flow), SERVICE, SYN, isn(flow).0, 0);
            1
        },
        proxy_ack,
        |flow, _, w| proxy_server(flow, SYN | ACK, w),
    ],
    frames: &[proxy_ack, |flow, _, w| proxy_server(flow, ACK, w)],
};

// ---- upf: port 1 is N3, port 2 is N6.

const N3: u32 = 0xac10_0002;
const GNB: u32 = 0xac10_0001;

fn user(flow: u32) -> End {
    (0x0a2d_0000 + flow, 1000)
}

fn upf_uplink(flow: u32, _: &[Vec<u8>], w: &mut Writer) -> u16 {
    // Outer IPv4, UDP, GTP-U with the PDU session container; then the user's datagram.
    const USER: u64 = 28 + 18;
    w.ethernet(MAC.0, MAC.1).ipv4(GNB, N3, UDP, 64, 8 + 16 + USER as usize);
    w.be::<2>(2152).be::<2>(2152).be::<2>(8 + 16 + USER).be::<2>(0);
    w.be::<1>(0x34).be::<1>(255).be::<2>(8 + USER).be::<4>(0x1_0000 + u64::from(flow));
    w.be::<4>(0x85).be::<4>(0x0110_0900);
    datagram(w, user(flow), (server(flow).0, 2000), 0, 18);
    1
}

fn upf_downlink(flow: u32, _: &[Vec<u8>], w: &mut Writer) -> u16 {
    w.ethernet(MAC.0, MAC.1).be::<2>(0x0800);
    datagram(w, (server(flow).0, 2000), user(flow), 0, 18);
    2
}

/// `upf`.
pub const UPF: Example = Example {
    program: "upf",
    flows: "sessions with a tunnel, a QER and two meters each, both directions",
    prepare: |p, flows| {
        let (program, state) = (p.program(), p.state());
        let n3 = table(program, "n3_v4")?;
        let bits = |width, value: u32| KeyMatch::Exact(Bits::new(width, value.into()));
        let action = EntryAction::Call(ActionCall { action: 0, args: Vec::new() });
        let entry = TableEntry { key: vec![bits(9, 1), bits(32, N3)], priority: 0, action, idle_timeout_ns: 0 };
        done("n3_v4", state.insert(n3, &entry))?;
        put(p, ("far", "to_data_network"), 0, &[("far", Is::Exact(0))], &[2, 3, 4])?;
        let (flow_table, flow_rate) = (table(program, "flow")?, named_extern(p, "flow_rate")?);
        for flow in 0..u128::from(flows) {
            let address = u128::from(user(flow as u32).0);
            let uplink = [("teid", Is::Exact(0x1_0000 + flow)), ("ipv4.srcAddr", Is::Exact(address))];
            put(p, ("uplink_v4", "detected"), 0, &uplink, &[flow, 0, 9])?;
            put(p, ("downlink_v4", "detected"), 0, &[("ipv4.dstAddr", Is::Exact(address))], &[flow, 1 + flow, 9])?;
            let tunnel = [0x2_0000 + flow, N3.into(), GNB.into(), 1, 5, 6];
            put(p, ("far", "tunnel_v4"), 0, &[("far", Is::Exact(1 + flow))], &tunnel)?;
            for uplink in 0..2 {
                let fields = [("session", Is::Exact(flow)), ("uplink", Is::Exact(uplink))];
                put(p, ("flow", "qos"), 10, &fields, &[9, 1])?;
                let key = key(program, flow_table, &fields)?;
                done("flow_rate", state.direct_meter_set(flow_rate, &key, 10, Some(FAST)))?;
                set_meter(p, "session_rate", (2 * flow + uplink) as u64)?;
            }
        }
        Ok(())
    },
    opening: &[],
    frames: &[upf_uplink, upf_downlink],
};

// ---- bng: subscribers with two VLAN tags behind port 1, the core behind port 2.

const GATEWAY: (u64, u64) = (0x0200_0000_00f1, 0x0200_0000_00f2);

fn subscriber(flow: u32) -> (u64, u64, u64) {
    let (outer, inner) = (1 + flow / 4000, 1 + flow % 4000);
    (0x0200_0001_0000 + u64::from(flow), u64::from(outer << 12 | inner), 1 + u64::from(flow))
}

fn subscriber_address(flow: u32) -> u32 {
    0x6440_0000 + flow
}

fn bng_up(flow: u32, _: &[Vec<u8>], w: &mut Writer) -> u16 {
    let (mac, vids, session) = subscriber(flow);
    w.ethernet(GATEWAY.0, mac).be::<2>(0x88a8).be::<2>(vids >> 12).vlan(vids & 0xfff);
    w.be::<2>(0x8864).be::<2>(0x1100).be::<2>(session).be::<2>(2 + 28 + 18).be::<2>(0x0021);
    datagram(w, (subscriber_address(flow), 1000), server(flow), 0, 18);
    1
}

fn bng_down(flow: u32, _: &[Vec<u8>], w: &mut Writer) -> u16 {
    w.ethernet(GATEWAY.1, MAC.1).be::<2>(0x0800);
    datagram(w, server(flow), (subscriber_address(flow), 1000), 46, 18);
    2
}

/// `bng`.
pub const BNG: Example = Example {
    program: "bng",
    flows: "PPPoE sessions in two VLANs, three meters each, both directions",
    prepare: |p, flows| {
        let core = [("ingress_port", Is::Exact(2)), ("vids", Is::Exact(0)), ("dstAddr", Is::Exact(GATEWAY.1.into()))];
        put(p, ("core", "NoAction"), 0, &core, &[])?;
        put(p, ("route_v4", "to_core"), 0, &[("dstAddr", Is::Prefix(0, 0))], &[2, GATEWAY.1.into(), 3])?;
        put(p, ("class", "queue"), 20, &[("service", Is::Exact(1)), ("dscp", Is::Exact(46))], &[6])?;
        put(p, ("class", "queue"), 10, &[("service", Is::Exact(1))], &[2])?;
        for flow in 0..u128::from(flows) {
            let (mac, vids, session) = subscriber(flow as u32);
            let (mac, vids, session) = (u128::from(mac), u128::from(vids), u128::from(session));
            let address = u128::from(subscriber_address(flow as u32));
            let fields = [
                ("ingress_port", Is::Exact(1)),
                ("vids", Is::Exact(vids)),
                ("srcAddr", Is::Exact(mac)),
                ("dstAddr", Is::Exact(GATEWAY.0.into())),
                ("sessionId", Is::Exact(session)),
            ];
            put(p, ("session", "of_subscriber"), 0, &fields, &[flow, 1])?;
            let source = [("subscriber", Is::Exact(flow)), ("srcAddr", Is::Prefix(address, 32))];
            put(p, ("source_v4", "own"), 0, &source, &[])?;
            put(p, ("route_v4", "to_subscriber"), 0, &[("dstAddr", Is::Prefix(address, 32))], &[flow])?;
            let args = [1, vids, GATEWAY.0.into(), mac, session, 1492, 1];
            put(p, ("subscriber", "reach"), 0, &[("subscriber", Is::Exact(flow))], &args)?;
            set_meter(p, "upstream_rate", flow as u64)?;
            set_meter(p, "downstream_rate", flow as u64)?;
            // For the class of downstream frames.
            set_meter(p, "class_rate", 8 * flow as u64 + 6)?;
        }
        Ok(())
    },
    opening: &[],
    frames: &[bng_up, bng_down],
};

// ---- int_telemetry: a host behind port 1, switches behind ports 3 and 5, a host behind port 2, the collector behind port 4.

const HOPS: [(u64, u16); 3] = [(0x0200_0000_000d, 3), (0x0200_0000_000e, 5), (0x0200_0000_000b, 2)];

fn telemetry_source(flow: u32, _: &[Vec<u8>], w: &mut Writer) -> u16 {
    w.ethernet(HOPS[0].0, MAC.1).be::<2>(0x0800);
    datagram(w, host(flow), (server(flow).0, 2000), 0, 18);
    1
}

/// The packet that the previous hop has sent, forwarded to the next one.
fn telemetry_hop(hop: usize, answers: &[Vec<u8>], w: &mut Writer) -> u16 {
    w.be::<6>(HOPS[hop].0);
    w.0.extend_from_slice(&answers[hop - 1][6..]);
    HOPS[hop - 1].1
}

/// `int_telemetry`.
pub const INT_TELEMETRY: Example = Example {
    program: "int_telemetry",
    flows: "flows, frames as source, transit hop and sink of INT-MD",
    prepare: |p, _| {
        for (mac, port) in HOPS {
            put(p, ("forward", "to_port"), 0, &[("dstAddr", Is::Exact(mac.into()))], &[port.into()])?;
        }
        for port in [1, 2] {
            put(p, ("edge_in", "NoAction"), 0, &[("port", Is::Exact(port))], &[])?;
            // One report for each flow while it is compared.
            put(p, ("edge_out", "sink"), 0, &[("port", Is::Exact(port))], &[1, 1 << 40])?;
        }
        put(p, ("watched_v4", "source"), 10, &[("protocol", Is::Exact(UDP.into()))], &[0xd000, 3, 4])?;
        let report = [7, 8, 0xc000_0201, 0xc000_0264, 32_766];
        put(p, ("collector", "report"), 0, &[("port", Is::Exact(4))], &report)?;
        let hop = table(p.program(), "hop")?;
        let identity = EntryAction::Call(call(p.program(), hop, "identity", &[7])?);
        done("hop", p.state().set_default(hop, Some(&identity)))?;
        let collector = CloneSession { replicas: vec![Replica { port: 4, instance: 0 }], ..CloneSession::default() };
        Ok(p.replication().session_insert(1, collector)?)
    },
    opening: &[telemetry_source, |_, answers, w| telemetry_hop(1, answers, w)],
    frames: &[
        telemetry_source,
        |_, answers, w| telemetry_hop(1, answers, w),
        |_, answers, w| telemetry_hop(2, answers, w),
    ],
};

// ---- codel, pi2: stations behind port 2.

fn to_station(flow: u32, _: &[Vec<u8>], w: &mut Writer) -> u16 {
    w.ethernet(FAR + u64::from(flow), MAC.1).be::<2>(0x0800);
    datagram(w, host(flow), server(flow), 0, 22);
    1
}

fn stations(p: &Pipeline, flows: u32) -> Result<()> {
    for flow in 0..u128::from(flows) {
        put(p, ("forward", "to_port"), 0, &[("dstAddr", Is::Exact(u128::from(FAR) + flow))], &[2])?;
    }
    Ok(())
}

/// `codel`.
pub const CODEL: Example = Example {
    program: "codel",
    flows: "stations; no frame waits, so none is marked",
    prepare: stations,
    opening: &[],
    frames: &[to_station],
};

/// `pi2`.
pub const PI2: Example = Example {
    program: "pi2",
    flows: "stations; no frame waits, so none is marked",
    prepare: stations,
    opening: &[],
    frames: &[to_station],
};

// ---- rate_limiter: a customer for each flow.

/// `rate_limiter`.
pub const RATE_LIMITER: Example = Example {
    program: "rate_limiter",
    flows: "customers with a meter each, within their rates",
    prepare: |p, flows| {
        put(p, ("uplink", "to_port"), 0, &[("ingress_port", Is::Exact(1))], &[2])?;
        let (customer, rates) = (table(p.program(), "customer")?, named_extern(p, "rates")?);
        for flow in 0..flows {
            let fields = [("srcAddr", Is::Prefix(u128::from(user(flow).0), 32))];
            put(p, ("customer", "limit"), 0, &fields, &[])?;
            let key = key(p.program(), customer, &fields)?;
            done("rates", p.state().direct_meter_set(rates, &key, 0, Some(FAST)))?;
        }
        Ok(())
    },
    opening: &[],
    frames: &[|flow, _, w| {
        w.ethernet(MAC.0, MAC.1).be::<2>(0x0800);
        datagram(w, user(flow), server(flow), 0, 22);
        1
    }],
};
