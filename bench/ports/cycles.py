"""Where a worker's cycles go through ports: receive, program and send, of one or several builds of Sluice in turn, and of VPP.

    python3 bench/ports/cycles.py [--work l2,l3router-1k,l3router-100k] [--link vhost|memif] [--sluice NEW,OLD] [--vpp BUILD] [--rounds N]
    [--seconds S]

VPP is of a build folder (v25.10: `cmake -G Ninja -DCMAKE_BUILD_TYPE=release -DVPP_PLUGINS=memif,vhost ../src`, then `ninja`). In `l2` it
connects its two interfaces and looks at no frame; in `l3router-…` it has the same routes and neighbours.

Cycles are of the time stamp counter, by the worker's own counters (`sluice stats --json`), and include the generator's warm-up. A packet
is counted when it is received. Each round takes a short measurement of each build, so that what else the machine does hits all alike.
Virtual processors move, and every cache line of a ring goes from the generator's to the worker's: each round notes how long that takes
(`cacheline`), and rounds in which it took twice the least or more are shown apart.

How run.py measures, and what it needs, is said there; `--portgen` chooses the generator, which is the same for all builds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import l2  # noqa: E402
import l2l3acl  # noqa: E402
import l3router  # noqa: E402
import links  # noqa: E402
import middles  # noqa: E402
from run import alone, hugepages, machine, measure  # noqa: E402
from workload import ROOT, Workload  # noqa: E402

WORKLOADS = l2.ALL | l2l3acl.ALL | l3router.ALL
PARTS = ("receive", "pipeline", "send")
#: Where the first build listens for `sluice stats`, on the loopback interface.
FIRST_PORT = 29_600


class Counted(middles.Sluice):
    """Says where its cycles went since it was asked last."""

    before: dict[str, int] = {}

    def answers(self) -> dict[str, float]:
        command = ["taskset", "-c", str(middles.OTHER_CPU), self.binary, "stats", "--json", "--grpc", self.grpc]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise middles.Failed(f"{' '.join(command)}: {done.stderr}")
        worker = json.loads(done.stdout)["workers"][0]
        names = ["packets", "bursts", *(f"{part}_cycles" for part in PARTS)]
        now = {name: int(worker[name]) for name in names}
        since = {name: now[name] - self.before.get(name, 0) for name in names}
        self.before = now
        packets = max(1, since["packets"])
        cycles = {part: since[f"{part}_cycles"] / packets for part in PARTS}
        return cycles | {"total": sum(cycles.values()), "burst": packets / max(1, since["bursts"])}


def round_trip_ns(portgen: str) -> int:
    """Nanoseconds that a cache line takes between the worker's processor and the generator's and back."""
    command = [str(Path(portgen).with_name("cacheline")), str(middles.OTHER_CPU), str(middles.WORKER_CPU)]
    return int(subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout)


def show(path: str, its: list[dict[str, float]]) -> None:
    """A line for the rounds of a build with near processors, and one for those with far ones."""
    nearest = min(reading["round trip ns"] for reading in its)
    near = [reading for reading in its if reading["round trip ns"] < 2 * nearest]
    for rounds in filter(None, [near, [reading for reading in its if reading not in near]]):
        shown = []
        for name in (*PARTS, "total", "burst", "mpps", "round trip ns"):
            values = [reading[name] for reading in rounds]
            digits = 1 if name == "mpps" else 0
            shown.append(f"{name} {statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})")
        print(f"  {path}, {len(rounds)} rounds: {', '.join(shown)}", flush=True)


def measure_work(work: Workload, folder: Path, arguments: argparse.Namespace) -> None:
    """Rounds of one workload, and a line for each build."""
    binaries = arguments.sluice.split(",")
    kinds = links.KINDS[arguments.link]
    made: list[middles.Middle] = [
        Counted(folder, kinds, path, work.program, work.entries, f"sluice {place}", grpc=f"127.0.0.1:{FIRST_PORT + place}")
        for place, path in enumerate(binaries)
    ]
    names = list(binaries)
    if arguments.vpp and work.vpp:
        made.append(middles.Vpp(folder, kinds, arguments.vpp, work.vpp))
        names.append("vpp")
    size = arguments.size - 4
    files = []
    for i, data in enumerate(work.frames(size)):
        files.append(folder / f"frames{i}.bin")
        files[i].write_bytes(data)
    readings: list[list[dict[str, float]]] = [[] for _ in made]
    with contextlib.ExitStack() as stack:
        for middle in made:
            stack.callback(middle.stop)
            with alone(arguments.lock):
                middle.start()
        # The first round is for code that is made in the background.
        for turn in range(arguments.rounds + 1):
            with alone(arguments.lock):
                # Neither build is always the first.
                for middle, its in list(zip(made, readings))[:: 1 if turn % 2 else -1]:
                    distance = {"round trip ns": round_trip_ns(arguments.portgen)}
                    result = measure(middle, arguments.portgen, files, size, work.generator, arguments.seconds)
                    if turn:
                        its.append(result["answers"] | distance | {"mpps": result["mpps"]})
    print(f"\n{work.title}; {arguments.link}; {arguments.size} bytes, both ways; TSC cycles per packet: median (spread)")
    for path, its in zip(names, readings):
        show(path, its)
    for path, its in list(zip(names, readings))[1:]:
        ratios = [new["total"] / old["total"] for new, old in zip(readings[0], its)]
        spread = f"{min(ratios):.2f}..{max(ratios):.2f}"
        print(f"  {names[0]} by {path}, of each round: {statistics.median(ratios):.2f} ({spread})", flush=True)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=str(ROOT / "target/release/sluice"), help="binaries to compare, with commas between them")
    parser.add_argument("--portgen", default=str(ROOT / "target/release/portgen"))
    parser.add_argument("--vpp", help="a build folder of VPP")
    parser.add_argument("--work", default="l2,l3router-1k,l3router-100k", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--link", default="vhost", choices=list(links.KINDS), help="the kind of ports")
    parser.add_argument("--size", type=int, default=64, help="bytes of a frame on the wire")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--lock", help="a file to lock for the length of a round")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or (os.cpu_count() or 1) < 2:
        sys.exit("this needs root and two CPUs")
    for line in machine(arguments.sluice):
        print(line)
    with hugepages():
        for name in arguments.work.split(","):
            with tempfile.TemporaryDirectory(prefix="cycles") as folder:
                measure_work(WORKLOADS[name](), Path(folder), arguments)


if __name__ == "__main__":
    try:
        main()
    except middles.Failed as failed:
        sys.exit(str(failed))
