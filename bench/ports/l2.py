"""The workload `l2`: bench/l2fwd/l2fwd.p4 switches by port and destination address."""

from __future__ import annotations

from frames import IMIX, array, ip, spell_mac, udp
from workload import ROOT, Workload


def stations(count: int, port: int) -> list[int]:
    """Stations behind a port."""
    return [0x0200_0000_0000 + (port << 32) + i for i in range(count)]


def workload(name: str, title: str, station_count: int, flow_count: int, testpmd: list[str]) -> Workload:
    """`station_count` stations behind each port, `flow_count` flows to them each way."""
    entries, flows = [], []
    for to in range(2):
        source = 1 - to
        for station in stations(station_count, to):
            key = f"std.ingress_port:{source} hdr.ethernet.dstAddr:{station:#014x}"
            entries.append(f"add dmac {key} forward(port:{to})")
            flows.append(f"in_port={source + 1},dl_dst={spell_mac(station)},actions=output:{to + 1}")
    if station_count == 1:
        # One port-to-port flow each way: what OVS does fastest.
        flows = ["in_port=1,actions=output:2", "in_port=2,actions=output:1"]

    def frames(size: int | None) -> list[bytes]:
        sizes = IMIX if size is None else [size]
        sides = []
        for source in range(2):
            macs = [mac.to_bytes(6, "big") for mac in stations(station_count, 1 - source)]
            me = stations(1, source)[0].to_bytes(6, "big")
            made = []
            for i in range(flow_count):
                dst, src = ip(10, 1 - source, 0, 1), ip(10, source, i >> 16 & 255, i >> 8 & 255)
                ports = 1024 + (i & 255), 5000 + (i >> 24)
                made.append(udp(macs[i % station_count], me, dst, src, *ports, sizes[i % len(sizes)]))
            sides.append(array(made, size is None))
        return sides

    program = ROOT / "bench/l2fwd/l2fwd.p4"
    return Workload(name, title, program, "\n".join(entries) + "\n", "\n".join(flows) + "\n", frames, testpmd)


def port() -> Workload:
    """The bars against testpmd and OVS's simplest case."""
    return workload("l2", "L2, one station behind each port, 64 flows", 1, 64, ["io", "macswap"])


def one_flow() -> Workload:
    """1,000 stations, one flow."""
    return workload("l2-1k-1", "L2, 1,000 stations, 1 flow", 1000, 1, [])


def million_flows() -> Workload:
    """1,000 stations, a million flows."""
    return workload("l2-1k-1m", "L2, 1,000 stations, 1M flows", 1000, 1_000_000, [])


ALL = {"l2": port, "l2-1k-1": one_flow, "l2-1k-1m": million_flows}
