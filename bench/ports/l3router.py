"""The workload `l3router`: examples/l3router/l3router.p4, prefixes of the Internet's lengths over next hops behind two ports.

What comes in at one port is routed to the other: 10/8 lies behind port 1, 20/8 behind port 0. OVS is not measured with it: it has the same
traffic in `l2l3acl`.
"""

from __future__ import annotations

import random

from frames import IMIX, array, ip, prefix_mask, spell_ip, spell_mac, udp
from l2l3acl import ROUTER, routes, station
from workload import ROOT, Workload

HOPS_PER_PORT = 32


def entries(table: list[tuple[int, int, int]]) -> str:
    """For Sluice."""
    lines = []
    for port in range(2):
        lines.append(f"add rewrite_src std.egress_spec:{port} set_src(srcAddr:{ROUTER | port << 8:#014x})")
        for i in range(HOPS_PER_PORT):
            address = 0x0200_6000_0000 | port << 16 | i
            lines.append(f"add rewrite_dst meta.next_hop:{port * HOPS_PER_PORT + i} set_dst(dstAddr:{address:#014x})")
    for i, (address, length, to) in enumerate(table):
        hop = to * HOPS_PER_PORT + i // 2 % HOPS_PER_PORT
        lines.append(f"add ipv4_match hdr.ipv4.dstAddr:{spell_ip(address)}/{length} route(next_hop:{hop}, port:{to})")
    return "\n".join(lines) + "\n"


def vpp(table: list[tuple[int, int, int]]) -> list[str]:
    """The same for VPP: neighbours that are known, and routes through them."""
    lines = []
    for port in range(2):
        lines.append(f"set interface mac address {{{port}}} {spell_mac(ROUTER)}")
        lines.append(f"set interface ip address {{{port}}} 192.168.{port}.1/24")
        for i in range(HOPS_PER_PORT):
            address = 0x0200_6000_0000 | port << 16 | i
            lines.append(f"set ip neighbor {{{port}}} 192.168.{port}.{2 + i} {spell_mac(address)} static")
    for i, (address, length, to) in enumerate(table):
        lines.append(f"ip route add {spell_ip(address)}/{length} via 192.168.{to}.{2 + i // 2 % HOPS_PER_PORT} {{{to}}}")
    return lines


def workload(name: str, title: str, route_count: int, flow_count: int) -> Workload:
    """Flows are of destinations that are drawn from the prefixes."""
    table = routes(route_count, random.Random(1))

    def frames(size: int | None) -> list[bytes]:
        sizes = IMIX if size is None else [size]
        sides = []
        for source in range(2):
            rng = random.Random(2 + source)
            behind = [(address, length) for address, length, to in table if to != source]
            me, router = station(source).to_bytes(6, "big"), ROUTER.to_bytes(6, "big")
            made = []
            for i in range(flow_count):
                address, length = rng.choice(behind)
                dst = address | rng.getrandbits(32) & ~prefix_mask(length) & 0xFFFFFFFF
                made.append(udp(router, me, dst, ip(100, 64, 0, 1 + i % 250), 1024 + i % 1000, 5000, sizes[i % len(sizes)]))
            sides.append(array(made, size is None))
        return sides

    return Workload(name, title, ROOT / "examples/l3router/l3router.p4", entries(table), "", frames, vpp=vpp(table))


def small() -> Workload:
    """All in the nearest caches."""
    return workload("l3router-1k", "IPv4 router, 1,000 routes, 64 flows", 1000, 64)


def large() -> Workload:
    """Beyond them."""
    return workload("l3router-100k", "IPv4 router, 100,000 routes, 1M flows", 100_000, 1_000_000)


ALL = {"l3router-1k": small, "l3router-100k": large}
