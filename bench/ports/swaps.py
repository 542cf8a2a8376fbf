"""What packets on DPDK ports notice when the program changes: 1,000 swaps under full load, there and back.

    python3 bench/ports/swaps.py [--link vhost|memif|packet|xdp|tap] [--by load|p4runtime] [--swaps N] [--sluice PATH] [--portgen PATH]

The generator (`portgen --window`) keeps as many packets under way as rings hold, both ways, all the time: the worker is never without
work, and no ring overflows because somebody waits for a processor, so a packet that does not come back was lost by the switch.
Each packet says at two places which program it met (swap.p4). The same load without swaps follows, because the worst times
are the machine's as well: with two processors the worker has CPU 0, and generator, compiler and this script share CPU 1. Nobody has
real-time priority (the kernel would stop it for a while each second), but all are preferred to what else the machine does.

`--by load` runs `sluice load` for each swap; `--by p4runtime` is a primary client that sends RECONCILE_AND_COMMIT, and needs the
PyPI package p4runtime (`make test` has it in .venv). Ends with 1 if a packet was lost or met two programs, or a drop was counted.
Needs root and hugepages, as run.py.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import links  # noqa: E402
import middles  # noqa: E402
from frames import array, ip, udp  # noqa: E402
from l2 import stations  # noqa: E402
from run import alone, hugepages, machine  # noqa: E402
from workload import ROOT  # noqa: E402

PROGRAM = Path(__file__).resolve().parent / "swap.p4"
FRAME_BYTES = 60
#: Where ingress and egress write which program they are.
MARKS = "42:43"
#: Fewer than a ring holds, for all ports together.
WINDOW = 400
FLOWS, STATIONS, ROUTES, RULES = 1024, 16, 10_000, 100


def entries() -> str:
    """Stations behind both ports, routes and rules; no packet meets a rule that drops."""
    lines = []
    for to in range(2):
        lines += [f"add dmac hdr.ethernet.dst:{mac:#014x} forward(port:{to})" for mac in stations(STATIONS, to)]
    lines += [f"add routes hdr.ipv4.dst:{ip(10, i >> 8, i & 255, 0):#010x}/24 set_class(class:{i % 16})" for i in range(ROUTES)]
    for i in range(RULES):
        source = f"{ip(172, 16, i, 0):#010x}&&&0xffffff00"
        lines.append(f"add acl {i + 1} hdr.ipv4.src:{source} hdr.ipv4.dst:0&&&0 hdr.udp.dport:{i}&&&0xffff drop()")
    return "\n".join(lines) + "\n"


def frames(source: int) -> bytes:
    """What a port sends."""
    me = stations(1, source)[0].to_bytes(6, "big")
    made = []
    for i in range(FLOWS):
        to = stations(STATIONS, 1 - source)[i % STATIONS].to_bytes(6, "big")
        addresses = ip(10, i >> 5 & 31, i & 255, 1), ip(10, source, 0, i & 255)
        made.append(udp(to, me, *addresses, 1024 + i, 5000, FRAME_BYTES))
    return array(made, False)


class ByLoad:
    """Swaps with the command line."""

    def __init__(self, sluice: str, address: str):
        self.command = ["nice", "-n", str(middles.OTHER_NICE), "taskset", "-c", str(middles.OTHER_CPU), sluice, "load", str(PROGRAM), "--strict", "--json", "--grpc", address]

    def swap(self, version: int) -> None:
        done = subprocess.run([*self.command, "-D", f"VERSION={version}"], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise middles.Failed(done.stderr)


class ByP4Runtime:
    """Swaps as a controller does."""

    def __init__(self, sluice: str, address: str):
        import grpc
        from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc

        self.messages = p4runtime_pb2
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(grpc.insecure_channel(address))
        self.requests: queue.Queue = queue.Queue()
        claim = p4runtime_pb2.StreamMessageRequest()
        claim.arbitration.device_id = 1
        claim.arbitration.election_id.low = 1
        self.requests.put(claim)
        self.answers = self.stub.StreamChannel(iter(self.requests.get, None))
        if next(self.answers).arbitration.status.code != 0:
            raise middles.Failed("the switch has another primary")
        text = PROGRAM.read_bytes()
        self.programs = {version: b"#define VERSION %d\n" % version + text for version in (1, 2)}

    def swap(self, version: int) -> None:
        request = self.messages.SetForwardingPipelineConfigRequest(device_id=1)
        request.election_id.low = 1
        request.action = request.RECONCILE_AND_COMMIT
        request.config.p4_device_config = self.programs[version]
        request.config.p4info.SetInParent()
        self.stub.SetForwardingPipelineConfig(request, timeout=60)


def under_load(middle: middles.Middle, portgen: str, files: list[Path], body) -> dict:
    """What the generator says after `body` has run."""
    command = ["nice", "-n", str(middles.GENERATOR_NICE), "taskset", "-c", str(middles.OTHER_CPU), portgen, "--size", str(FRAME_BYTES), "--window", str(WINDOW)]
    command += ["--same", MARKS, "--latency", "--seconds", "3600", "--burst", "64"]
    for device, file in zip(middle.sockets(), files):
        command += ["--port", device, "--frames", str(file)]
    generator = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        # Until its links are up, packets go, and code is made for the tables as they are.
        time.sleep(2)
        body()
        out, problem = generator.communicate(timeout=30)
    finally:
        if generator.poll() is None:
            generator.kill()
            generator.wait()
    if generator.returncode != 0:
        raise middles.Failed(f"{problem}\n{middle.log.read_text()[-2000:]}")
    return json.loads(out)


@contextlib.contextmanager
def preferred():
    """This session's processes go before all others, where the kernel shares time among sessions."""
    group = Path("/proc/self/autogroup")
    if not group.exists():
        yield
        return
    before = group.read_text().split()[-1]
    group.write_text("-20")
    try:
        yield
    finally:
        group.write_text(before)


def drops(sluice: str, address: str) -> dict[str, int]:
    """What the switch says that it has dropped."""
    stats = json.loads(subprocess.run([sluice, "stats", "--json", "--grpc", address], capture_output=True, text=True, check=True).stdout)
    found = {drop["reason"]: drop["packets"] for drop in stats["drops"] if drop["packets"]}
    for port in stats["ports"]:
        for side in ("rx", "tx"):
            if port[side]["dropped"]:
                found[f"{side} of port {port['number']}"] = port[side]["dropped"]
    return found


def spell(result: dict) -> str:
    """A row."""
    us = {name: ns / 1000 for name, ns in result["latency_ns"].items()}
    return (
        f"{result['sent']:>12,} {result['lost']:>5} {result['differ']:>5} {result['mpps']:>6.2f} {result['worst_gap_ms']:>9.3f} "
        f"{us['p50']:>8.0f} {us['p99']:>8.0f} {us['p9999']:>9.0f} {us['max']:>9.0f}"
    )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=str(ROOT / "target/release/sluice"))
    parser.add_argument("--portgen", default=str(ROOT / "target/release/portgen"))
    parser.add_argument("--link", default="vhost", choices=list(links.KINDS), help="the kind of ports")
    parser.add_argument("--by", default="load", choices=["load", "p4runtime"], help="what asks for the swaps")
    parser.add_argument("--swaps", type=int, default=1000)
    parser.add_argument("--pause-ms", type=float, default=0, help="between two swaps")
    parser.add_argument("--lock", help="a file to lock while the machine is measured on")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or (os.cpu_count() or 1) < 2:
        sys.exit("this needs root and two CPUs")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    for line in machine(arguments.sluice):
        print(line)
    with hugepages(), tempfile.TemporaryDirectory(prefix="swaps") as name:
        folder = Path(name)
        files = [folder / "frames0.bin", folder / "frames1.bin"]
        for source, file in enumerate(files):
            file.write_bytes(frames(source))
        link = links.KINDS[arguments.link]
        middle = middles.Sluice(folder, link, arguments.sluice, PROGRAM, entries(), grpc=address, realtime=False)
        swap_ms: list[float] = []

        def swaps() -> None:
            by = (ByLoad if arguments.by == "load" else ByP4Runtime)(arguments.sluice, address)
            for i in range(arguments.swaps):
                start = time.monotonic()
                by.swap(2 - i % 2)
                swap_ms.append((time.monotonic() - start) * 1000)
                time.sleep(arguments.pause_ms / 1000)

        with alone(arguments.lock), preferred():
            try:
                middle.start()
                middle.resume()
                begin = time.monotonic()
                swapped = under_load(middle, arguments.portgen, files, swaps)
                length = time.monotonic() - begin
                # The same time again, but not too long.
                quiet = under_load(middle, arguments.portgen, files, lambda: time.sleep(min(length, 10)))
                lost = drops(arguments.sluice, address)
            finally:
                middle.stop()
    print(f"{'':>14} {'packets':>12} {'lost':>5} {'mixed':>5} {'Mpps':>6} {'gap ms':>9} {'p50 us':>8} {'p99 us':>8} {'p9999 us':>9} {'max us':>9}")
    print(f"{'no swaps':>14} {spell(quiet)}")
    print(f"{f'{arguments.swaps} swaps':>14} {spell(swapped)}")
    swap_ms.sort()
    print(
        f"a swap by {arguments.by}, compiling included: median {statistics.median(swap_ms):.1f} ms, "
        f"99 % {swap_ms[int(len(swap_ms) * 0.99) - 1]:.1f} ms, worst {swap_ms[-1]:.1f} ms"
    )
    print(f"dropped by the switch: {lost or 'nothing'}")
    if any(result["lost"] or result["differ"] for result in (quiet, swapped)) or lost:
        sys.exit(1)


if __name__ == "__main__":
    main()
