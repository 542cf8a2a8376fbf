"""The workload `l2`: examples/l2/l2.p4, and the same pipeline as OpenFlow tables.

Both ports are in VLAN 10, without tags, so that what is sent is what comes back, from every switch, testpmd among them. Each
frame meets all four tables: its port's VLAN, its source, which is known, its destination, and the VLAN's tag at the way out.
"""

from __future__ import annotations

from frames import IMIX, array, ip, spell_mac, udp
from workload import ROOT, Workload

VLAN = 10


def stations(count: int, port: int) -> list[int]:
    """Stations behind a port."""
    return [0x0200_0000_0000 + (port << 32) + i for i in range(count)]


def entries(station_count: int) -> str:
    """For Sluice."""
    lines = []
    for port in range(2):
        lines.append(f"add vlan_ingress std.ingress_port:{port} meta.vid:0 assign_vlan(vid:{VLAN})")
        lines.append(f"add vlan_egress std.egress_port:{port} meta.vid:{VLAN} untagged()")
        for station in stations(station_count, port):
            lines.append(f"add mac_learning meta.vid:{VLAN} hdr.ethernet.srcAddr:{station:#014x} seen(port:{port})")
            lines.append(f"add switching meta.vid:{VLAN} hdr.ethernet.dstAddr:{station:#014x} forward(port:{port})")
    return "\n".join(lines) + "\n"


def flows(station_count: int) -> str:
    """For OVS. Registers: 0 is the VLAN, 2 the egress port; OVS itself sends nothing back to where it came from."""
    lines = ["table=0,priority=0,actions=drop", "table=1,priority=0,actions=CONTROLLER,goto_table:2"]
    lines += ["table=2,priority=0,actions=FLOOD", "table=3,priority=0,actions=output:NXM_NX_REG2[]"]
    for port in range(2):
        ofport = port + 1
        lines.append(f"table=0,priority=1,in_port={ofport},vlan_tci=0,actions=set_field:{VLAN}->reg0,goto_table:1")
        lines.append(f"table=3,priority=1,reg0={VLAN},reg2={ofport},actions=output:NXM_NX_REG2[]")
        for station in stations(station_count, port):
            mac = spell_mac(station)
            lines.append(f"table=1,priority=1,in_port={ofport},reg0={VLAN},dl_src={mac},actions=goto_table:2")
            lines.append(f"table=2,priority=1,reg0={VLAN},dl_dst={mac},actions=set_field:{ofport}->reg2,goto_table:3")
    return "\n".join(lines) + "\n"


#: What OVS does fastest: one port-to-port flow each way, which it answers before any of its caches.
PORT_TO_PORT = "in_port=1,actions=output:2\nin_port=2,actions=output:1\n"

#: What VPP does fastest: all that comes in at one interface goes out at the other, unseen.
CROSS_CONNECT = ["set interface l2 xconnect {0} {1}", "set interface l2 xconnect {1} {0}"]


def workload(name: str, title: str, station_count: int, flow_count: int, openflow: str | None = None, **further) -> Workload:
    """`station_count` stations behind each port, each of which sends to one behind the other; `flow_count` flows each way."""

    def frames(size: int | None) -> list[bytes]:
        sizes = IMIX if size is None else [size]
        sides = []
        for source in range(2):
            to, me = ([mac.to_bytes(6, "big") for mac in stations(station_count, port)] for port in (1 - source, source))
            made = []
            for i in range(flow_count):
                dst, src = ip(10, 1 - source, 0, 1), ip(10, source, i >> 16 & 255, i >> 8 & 255)
                ports = 1024 + (i & 255), 5000 + (i >> 24)
                made.append(udp(to[i % station_count], me[i % station_count], dst, src, *ports, sizes[i % len(sizes)]))
            sides.append(array(made, size is None))
        return sides

    program = ROOT / "examples/l2/l2.p4"
    return Workload(name, title, program, entries(station_count), openflow or flows(station_count), frames, **further)


def port() -> Workload:
    """Beside testpmd and OVS's simplest case."""
    title = "L2, one station behind each port, 64 flows; OVS has one port-to-port flow each way"
    return workload("l2", title, 1, 64, PORT_TO_PORT, testpmd=["io", "macswap"], vpp=CROSS_CONNECT)


def tables() -> Workload:
    """Beside OVS with equivalent tables."""
    return workload("l2-tables", "L2, one station behind each port, 64 flows; OVS has the same tables", 1, 64)


def one_flow() -> Workload:
    """1,000 stations, one flow."""
    return workload("l2-1k-1", "L2, 1,000 stations behind each port, 1 flow", 1000, 1)


def million_flows() -> Workload:
    """1,000 stations, a million flows."""
    return workload("l2-1k-1m", "L2, 1,000 stations behind each port, 1M flows", 1000, 1_000_000, ovs=["emc-insert-inv-prob=0"])


ALL = {"l2": port, "l2-tables": tables, "l2-1k-1": one_flow, "l2-1k-1m": million_flows}
