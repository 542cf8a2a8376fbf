"""The workload `l2l3acl`: examples/l2l3acl/l2l3acl.p4, and the same pipeline as OpenFlow tables.

Port 0 is in VLAN 10, port 1 in VLAN 20, both without tags. All traffic is routed from one to the other: 10/8 lies behind
port 1, 20/8 behind port 0. Rules of the access list hardly ever match, so what is sent
comes back, from every switch.
"""

from __future__ import annotations

import random

from frames import IMIX, array, ip, prefix_mask, spell_ip, spell_mac, udp
from workload import ROOT, Workload

ROUTER = 0x0200_5E00_0001
VLANS = [10, 20]
NEXT_HOPS = 16

#: Shapes of rules: prefix lengths of source and destination, whether the two ports are compared.
SHAPES = [
    (src, dst, sport, dport)
    for src, dst in ((24, 24), (32, 0), (16, 24), (28, 16), (20, 20))
    for sport, dport in ((True, True), (False, True), (True, False), (False, False))
]


def station(port: int) -> int:
    """The one station behind a port, which sends to the router."""
    return 0x0200_0000_0100 + port


def routes(count: int, rng: random.Random) -> list[tuple[int, int, int]]:
    """Routes (address, length, egress port), half behind each port: a /8 each, the others /16 to /24, most of them /24."""
    made = {(ip(10, 0, 0, 0), 8): 1, (ip(20, 0, 0, 0), 8): 0}
    lengths = [24] * 12 + [23, 22, 22, 21, 20, 19, 18, 16]
    while len(made) < count:
        to = len(made) % 2
        length = rng.choice(lengths)
        address = (ip(10 if to else 20, 0, 0, 0) | rng.getrandbits(24)) & prefix_mask(length)
        made.setdefault((address, length), to)
    return [(address, length, to) for (address, length), to in made.items()]


def rules(count: int, masks: int, rng: random.Random) -> list[tuple[int, int, int, int, int | None, int | None]]:
    """Rules (source, length, destination, length, source port, destination port). With sources in 30/8, as random frames
    have, they compare at least 16 random bits more than a frame has by chance: one frame in 30,000 is denied."""
    made = []
    for i in range(count):
        src_len, dst_len, sport, dport = SHAPES[i % masks]
        src = (ip(30, 0, 0, 0) | rng.getrandbits(24)) & prefix_mask(src_len)
        dst = (ip(rng.choice((10, 20)), 0, 0, 0) | rng.getrandbits(24)) & prefix_mask(dst_len)
        made.append(
            (src, src_len, dst, dst_len, rng.getrandbits(16) if sport else None, rng.getrandbits(16) if dport else None)
        )
    return made


def entries(table: list, access_list: list) -> str:
    """For Sluice."""
    lines = []
    for port, vlan in enumerate(VLANS):
        lines.append(f"add vlan_ingress std.ingress_port:{port} meta.vid:0 assign_vlan(vid:{vlan})")
        lines.append(f"add mac_learning meta.vid:{vlan} hdr.ethernet.srcAddr:{station(port):#014x} seen(port:{port})")
        lines.append(f"add switching meta.vid:{vlan} hdr.ethernet.dstAddr:{station(port):#014x} forward(port:{port})")
        lines.append(f"add routable meta.vid:{vlan} hdr.ethernet.dstAddr:{ROUTER:#014x} NoAction()")
        for i in range(NEXT_HOPS):
            rewrite = f"vid:{vlan}, port:{port}, srcAddr:{ROUTER:#014x}, dstAddr:{0x0200_6000_0000 | port << 16 | i:#014x}"
            lines.append(f"add next_hop meta.next_hop:{port * NEXT_HOPS + i} rewrite({rewrite})")
    for i, (address, length, to) in enumerate(table):
        hop = to * NEXT_HOPS + i % NEXT_HOPS
        lines.append(f"add routing hdr.ipv4.dstAddr:{spell_ip(address)}/{length} set_next_hop(next_hop:{hop})")
    for i, (src, src_len, dst, dst_len, sport, dport) in enumerate(access_list):
        key = [f"hdr.ipv4.srcAddr:{spell_ip(src)}/{src_len}", "hdr.ipv4.protocol:17"]
        key += [f"hdr.ipv4.dstAddr:{spell_ip(dst)}/{dst_len}"] if dst_len else []
        key += [f"srcPort:{sport}"] if sport is not None else []
        key += [f"dstPort:{dport}"] if dport is not None else []
        lines.append(f"add acl {i + 1} {' '.join(key)} drop()")
    return "\n".join(lines) + "\n"


def flows(table: list, access_list: list) -> str:
    """For OVS. Registers: 0 is the VLAN, 1 the next hop, 2 the egress port."""
    lines = ["table=0,priority=0,actions=drop"]
    for port, vlan in enumerate(VLANS):
        ofport = port + 1
        lines.append(f"table=0,priority=1,in_port={ofport},vlan_tci=0,actions=set_field:{vlan}->reg0,goto_table:1")
        mac = spell_mac(station(port))
        lines.append(f"table=1,priority=1,in_port={ofport},reg0={vlan},dl_src={mac},actions=goto_table:2")
        lines.append(f"table=2,priority=1,ip,reg0={vlan},dl_dst={spell_mac(ROUTER)},actions=goto_table:3")
        lines.append(f"table=5,priority=1,reg0={vlan},dl_dst={mac},actions=set_field:{ofport}->reg2,goto_table:6")
        for i in range(NEXT_HOPS):
            hop = port * NEXT_HOPS + i
            actions = [f"set_field:{vlan}->reg0", f"set_field:{ofport}->reg2", f"set_field:{spell_mac(ROUTER)}->eth_src"]
            actions += [f"set_field:{spell_mac(0x0200_6000_0000 | port << 16 | i)}->eth_dst", "dec_ttl", "goto_table:6"]
            lines.append(f"table=4,priority=1,ip,reg1={hop},actions={','.join(actions)}")
    lines += ["table=1,priority=0,actions=CONTROLLER,goto_table:2", "table=2,priority=0,actions=goto_table:5"]
    lines += ["table=6,priority=0,actions=goto_table:7", "table=7,priority=0,actions=output:NXM_NX_REG2[]"]
    for i, (address, length, to) in enumerate(table):
        hop = to * NEXT_HOPS + i % NEXT_HOPS
        match = f"ip,nw_dst={spell_ip(address)}/{length}"
        lines.append(f"table=3,priority={length + 1},{match},actions=set_field:{hop}->reg1,goto_table:4")
    for i, (src, src_len, dst, dst_len, sport, dport) in enumerate(access_list):
        match = ["udp", f"nw_src={spell_ip(src)}/{src_len}"]
        match += [f"nw_dst={spell_ip(dst)}/{dst_len}"] if dst_len else []
        match += [f"tp_src={sport}"] if sport is not None else []
        match += [f"tp_dst={dport}"] if dport is not None else []
        lines.append(f"table=6,priority={i + 1},{','.join(match)},actions=drop")
    return "\n".join(lines) + "\n"


def workload(
    name: str, title: str, route_count: int, rule_count: int, masks: int, flow_count: int, sources: str, **further
) -> Workload:
    """`sources` says what varies from flow to flow beside the destination: `few` (kind to megaflows) or `random`."""
    rng = random.Random(1)
    table = routes(route_count, rng)
    access_list = rules(rule_count, masks, rng)

    def frames(size: int | None) -> list[bytes]:
        sizes = IMIX if size is None else [size]
        sides = []
        for source in range(2):
            rng = random.Random(2 + source)
            behind = [(address, length) for address, length, to in table if to != source]
            me, router = station(source).to_bytes(6, "big"), ROUTER.to_bytes(6, "big")
            made = []
            for i in range(flow_count):
                address, length = behind[i % len(behind)]
                dst = address | rng.getrandbits(32) & ~prefix_mask(length) & 0xFFFFFFFF
                if sources == "few":
                    src, sport, dport = ip(100, 64, 0, 1 + i % 250), 1024 + i % 1000, 5000
                else:
                    src, sport, dport = ip(30, 0, 0, 0) | rng.getrandbits(24), rng.getrandbits(16), rng.getrandbits(16)
                made.append(udp(router, me, dst, src, sport, dport, sizes[i % len(sizes)]))
            sides.append(array(made, size is None))
        return sides

    program = ROOT / "examples/l2l3acl/l2l3acl.p4"
    return Workload(name, title, program, entries(table, access_list), flows(table, access_list), frames, **further)


def few() -> Workload:
    """OVS answers from its exact-match cache."""
    return workload("l2l3acl-64", "L2/L3/ACL, 1,000 routes, 100 rules of 4 masks, 64 flows", 1000, 100, 4, 64, "few")


def many() -> Workload:
    """OVS answers from its megaflow cache."""
    return workload(
        "l2l3acl-1m", "L2/L3/ACL, 100,000 routes, 100 rules of 4 masks, 1M flows", 100_000, 100, 4, 1_000_000, "few",
        # Hardly a frame's flow is in the exact-match cache (8,192 flows); it is faster without trying.
        ovs=["emc-insert-inv-prob=0"],
    )  # fmt: skip


def masks() -> Workload:
    """Many masks in OVS's megaflow cache."""
    return workload(
        "l2l3acl-masks", "L2/L3/ACL, 1,000 routes, 200 rules of 20 masks, 20,000 flows with random headers", 1000, 200, 20,
        # The signature cache names the mask of most flows; with the default caches it has three quarters of the rate.
        20_000, "random", ovs=["smc-enable=true", "emc-insert-inv-prob=0"],
    )  # fmt: skip


def new() -> Workload:
    """Every packet is a flow of its own, and rules over all of the 5-tuple make it a megaflow of its own."""
    return workload(
        "l2l3acl-new", "L2/L3/ACL, 1,000 routes, 200 rules of 20 masks, every packet a new 5-tuple", 1000, 200, 20, 4096,
        # Low bits of both addresses, and both ports.
        "random", generator=["--random", "27:3,31:3,34:4", "--ipv4-checksum"],
        # None comes again, and making a megaflow costs OVS as much as the rest of its work on the packet.
        megaflows_max=1000,
    )  # fmt: skip


ALL = {"l2l3acl-64": few, "l2l3acl-1m": many, "l2l3acl-masks": masks, "l2l3acl-new": new}
