"""The workloads `flood` and `mirror`: copies.p4, and what OVS has for it.

`flood`: all frames that one port sends go to three others; OVS's action is FLOOD. `mirror`: two ports send to each other, and a third gets a copy
of every frame; OVS has a mirror of all traffic in its database. Mpps are those of all frames that come back, copies included.
"""

from __future__ import annotations

from pathlib import Path

from frames import IMIX, array, ip, udp
from workload import Workload

PROGRAM = Path(__file__).resolve().parent / "copies.p4"
FLOWS = 64
#: What a broadcast frame is sent to.
EVERYBODY = b"\xff" * 6


def frames_of(port: int, to: bytes, size: int | None) -> bytes:
    """64 flows."""
    sizes = IMIX if size is None else [size]
    me = (0x0200_0000_0000 + (port << 32)).to_bytes(6, "big")
    made = [udp(to, me, ip(10, 1 - port, 0, 1), ip(10, port, 0, i), 1024 + i, 5000, sizes[i % len(sizes)]) for i in range(FLOWS)]
    return array(made, size is None)


def flood() -> Workload:
    """One port sends, three receive."""
    ports = 4
    lines = [f"multicast {port + 1} " + " ".join(str(to) for to in range(ports) if to != port) for port in range(ports)]
    lines += [f"add ports std.ingress_port:{port} flood(group:{port + 1})" for port in range(ports)]
    return Workload(
        "flood", "flooded to three ports", PROGRAM, "\n".join(lines) + "\n", "actions=FLOOD\n",
        lambda size: [frames_of(0, EVERYBODY, size), b"", b"", b""], ports=ports,
    )  # fmt: skip


def mirror() -> Workload:
    """Two ports send to each other, the third one sees it all."""
    lines = ["clone 1 2"] + [f"add ports std.ingress_port:{port} forward_and_mirror(port:{1 - port}, session:1)" for port in range(2)]

    def frames(size: int | None) -> list[bytes]:
        return [frames_of(port, (0x0200_0000_0000 + (1 - port << 32)).to_bytes(6, "big"), size) for port in range(2)] + [b""]

    # A mirror of all ports but its own.
    select = ["--", "--id=@out", "get", "port", "2", "--", "--id=@mirror", "create", "mirror", "name=all", "select-all=true", "output-port=@out"]
    return Workload(
        "mirror", "one port to the other and back, all of it mirrored to a third", PROGRAM, "\n".join(lines) + "\n",
        "in_port=1,actions=output:2\nin_port=2,actions=output:1\n", frames, ports=3, ovs_commands=[[*select, "--", "set", "bridge", "br0", "mirrors=@mirror"]],
    )  # fmt: skip


ALL = {"flood": flood, "mirror": mirror}
