"""How the generator reaches what is measured: the kind of ports between them.

A link belongs to one middle and has two ends for each port: what the middle opens, as each middle names it, and what
`portgen` opens. Kinds with kernel interfaces make veth pairs, one per port, and remove them at the end; nothing of this
is visible outside of the machine.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class Link:
    """Vhost-user sockets, one for each port: the middle listens, `portgen` is the guest."""

    kind = "vhost"
    #: `portgen` needs memory that can be shared.
    generator_arguments: list[str] = []

    def __init__(self, folder: Path, ports: int = 2):
        self.folder, self.ports = folder, ports

    def make(self) -> None:
        """Before the middle starts."""

    def remove(self) -> None:
        """After it has ended."""

    def path(self, i: int) -> Path:
        """Where the socket of port `i` is."""
        return self.folder / str(i)

    def ready(self) -> bool:
        """Whether the middle has opened all."""
        return all(self.path(i).exists() for i in range(self.ports))

    def generator(self, i: int) -> str:
        """What `portgen` opens."""
        return f"virtio:{self.path(i)}"

    def sluice(self, i: int) -> str:
        """A device of Sluice."""
        return f"vhost-server:{self.path(i)}"

    def testpmd(self, i: int) -> str:
        """A virtual device of DPDK."""
        return f"net_vhost{i},iface={self.path(i)},client=0,queues=1"

    def ovs(self, i: int) -> list[str]:
        """Columns of an interface."""
        return ["type=dpdkvhostuser"]

    def vpp(self, i: int) -> tuple[list[str], str]:
        """Commands that make an interface, and its name."""
        return [f"create vhost-user socket {self.path(i)} server"], f"VirtualEthernet0/0/{i}"

    def ovs_name(self, i: int) -> str:
        """The interface's name."""
        return str(i)

    #: C in this folder that is loaded into OVS before it starts.
    ovs_preload = ""
    #: Why OVS is not measured.
    without_ovs = ""


class Memif(Link):
    """Shared memory; the middle listens."""

    kind = "memif"
    ovs_preload = "one_queue.c"

    def generator(self, i: int) -> str:
        return f"memif:{self.path(i)},id=0,role=client"

    def sluice(self, i: int) -> str:
        return f"memif:{self.path(i)},id=0,role=server"

    def testpmd(self, i: int) -> str:
        return f"net_memif{i},role=server,id=0,socket={self.path(i)},socket-abstract=no,rsize=10"

    def vpp(self, i: int) -> tuple[list[str], str]:
        socket = i + 1
        made = [f"create memif socket id {socket} filename {self.path(i)}", f"create interface memif id 0 socket-id {socket} master"]
        return made, f"memif{socket}/0"

    def ovs(self, i: int) -> list[str]:
        return ["type=dpdk", f"options:dpdk-devargs={self.testpmd(i)}"]


class Veth(Link):
    """A veth pair per port: AF_PACKET at both ends."""

    kind = "packet"
    count = 0

    def __init__(self, folder: Path, ports: int = 2):
        super().__init__(folder, ports)
        self.name = f"bp{os.getpid() % 10000}{chr(ord('a') + Veth.count)}"
        Veth.count += 1

    def ours(self, i: int) -> str:
        """The middle's end."""
        return f"{self.name}s{i}"

    def theirs(self, i: int) -> str:
        """The generator's end."""
        return f"{self.name}g{i}"

    def make(self) -> None:
        for i in range(self.ports):
            run("ip", "link", "add", self.ours(i), "type", "veth", "peer", "name", self.theirs(i))
            for end in (self.ours(i), self.theirs(i)):
                # The kernel's own packets would be measured, too.
                Path(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6").write_text("1")
                run("ip", "link", "set", end, "up", "promisc", "on")

    def remove(self) -> None:
        for i in range(self.ports):
            subprocess.run(["ip", "link", "delete", self.ours(i)], capture_output=True)

    def ready(self) -> bool:
        return True

    def generator(self, i: int) -> str:
        return self.theirs(i)

    def sluice(self, i: int) -> str:
        return self.ours(i)

    def testpmd(self, i: int) -> str:
        return f"net_af_packet{i},iface={self.ours(i)}"

    def ovs(self, i: int) -> list[str]:
        return ["type=dpdk", f"options:dpdk-devargs={self.testpmd(i)}"]


class Xdp(Veth):
    """The same with AF_XDP at the middle's end. OVS has AF_XDP ports of its own; DPDK's driver does not start in Debian's OVS (the kernel
    refuses OVS's buffers as the socket's memory: `Failed to create umem`)."""

    kind = "xdp"

    def sluice(self, i: int) -> str:
        return f"xdp:{self.ours(i)}"

    def testpmd(self, i: int) -> str:
        return f"net_af_xdp{i},iface={self.ours(i)}"

    def ovs(self, i: int) -> list[str]:
        return ["type=afxdp"]

    def ovs_name(self, i: int) -> str:
        return self.ours(i)


class Tap(Link):
    """TAP interfaces that Sluice makes; `portgen` is the kernel's end of them, through AF_PACKET."""

    kind = "tap"
    without_ovs = "its TAP interfaces have no DPDK"
    #: What new interfaces are like; read at the beginning, put back at the end.
    DEFAULT = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")

    def __init__(self, folder: Path, ports: int = 2):
        super().__init__(folder, ports)
        self.name = f"bt{os.getpid() % 10000}"
        self.before: str | None = None

    def make(self) -> None:
        # The kernel's own packets would be measured, too, from the moment on at which there is an interface.
        self.before = self.DEFAULT.read_text()
        self.DEFAULT.write_text("1")

    def remove(self) -> None:
        if self.before is not None:
            self.DEFAULT.write_text(self.before)

    def ready(self) -> bool:
        return all(Path(f"/sys/class/net/{self.generator(i)}").exists() for i in range(self.ports))

    def generator(self, i: int) -> str:
        return f"{self.name}p{i}"

    def sluice(self, i: int) -> str:
        return f"tap:{self.generator(i)}"

    def testpmd(self, i: int) -> str:
        return f"net_tap{i},iface={self.generator(i)}"


def run(*command: str) -> None:
    """Runs a command that must not fail."""
    subprocess.run(command, check=True, capture_output=True)


KINDS = {kind.kind: kind for kind in (Link, Memif, Veth, Xdp, Tap)}
