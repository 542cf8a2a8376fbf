"""Queues of a port: how exact rates and shares are and how long packets wait, beside Linux `tc htb` and OVS-DPDK's egress policer.

    python3 bench/ports/qos.py [--sluice PATH] [--only sluice,htb,ovs] [--rounds N] [--seconds S] [--csv FILE] [--summary FILE]

`make bench-ports BENCH_PORTS=qos` runs it. The generator (qos.c) sends frames of several classes, UDP destination ports, at random
times (Poisson) into one veth pair and takes them out of another one; between the two are

    sluice   AF_PACKET ports, queues of port 1
    htb      a network namespace that forwards IPv4, with classes of HTB on the way out and a FIFO of 1,000 packets in each
    ovs      OVS-DPDK with AF_PACKET ports and `egress-policer` on the way out, which drops and has no classes

Tests, each with full frames of 1,500 bytes:

    rate     one class is offered 1.3 times of what is allowed: how much comes, beside what is allowed
    shares   four classes with weights 4, 2, 1, 1, each offered 0.6 of the rate: what each gets
    urgent   1,000 packets a second of an urgent class beside twice the rate of another one: how long they are under way

CPU 0 is the forwarding thread's (HTB runs where the kernel has the packet, mostly on the generator's), CPU 1 the generator's.
Rounds are interleaved. Needs root, cc and iproute2; for OVS openvswitch-switch-dpdk and hugepages. What is not there is left out and said.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import links  # noqa: E402
import middles  # noqa: E402
import run  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = run.ROOT
FRAME = 1500
SKIP_SECONDS = 1.0
WEIGHTS = [4, 2, 1, 1]
RATES_MBIT = [10, 100, 500]
SHARED_MBIT = 100
URGENT_PPS = 1000
URGENT_BYTES = 200
#: Packets in a queue.
ROOM = 1000
#: Bursts hold so much of the rate, and ten frames at least: who is not scheduled for longer loses rate. HTB's own default is made from
#: its timer, ours is 1 ms.
BURST_SECONDS = 5e-3
NEXT_HOP = "02:00:00:00:00:02"


def pps(mbit: float) -> float:
    """Full frames a second."""
    return mbit * 1e6 / 8 / FRAME


def burst(mbit: int) -> int:
    """Bytes."""
    return max(10 * FRAME, round(mbit * 1e6 / 8 * BURST_SECONDS))


class Sluice(middles.Sluice):
    """Queues of port 1."""

    def __init__(self, folder: Path, binary: str):
        address = f"127.0.0.1:{40_000 + os.getpid() % 20_000}"
        super().__init__(folder, links.Veth, binary, HERE / "qos.p4", "", grpc=address, realtime=False)

    def set(self, config: dict) -> None:
        """Other queues."""
        command = [self.binary, "qos", "set", "1", "-", "--grpc", self.grpc]
        done = subprocess.run(command, input=json.dumps(config), capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise middles.Failed(f"{self.name}: {done.stderr}")

    def rate(self, mbit: int) -> None:
        shaper = {"rate": f"{mbit}Mbit", "burst": burst(mbit)}
        self.set({"queues": [{"limit": {"packets": ROOM}}], "root": {"queue": 0, "shaper": shaper}})

    def shares(self, mbit: int) -> None:
        nodes = [{"queue": i, "weight": weight} for i, weight in enumerate(WEIGHTS)]
        root = {"weighted": nodes, "shaper": {"rate": f"{mbit}Mbit", "burst": burst(mbit)}}
        self.set({"queues": [{"limit": {"packets": ROOM}}] * len(WEIGHTS), "root": root})

    def urgent(self, mbit: int) -> None:
        root = {"strict": [{"queue": 1}, {"queue": 0}], "shaper": {"rate": f"{mbit}Mbit", "burst": burst(mbit)}}
        self.set({"queues": [{"limit": {"packets": ROOM}}] * 2, "root": root})


class Htb(middles.Middle):
    """A namespace that forwards, with HTB on the way out."""

    name = "htb"

    def __init__(self, folder: Path):
        super().__init__(folder, links.Veth)
        self.space = f"qos{os.getpid()}"

    def inside(self, *command: str) -> None:
        links.run("ip", "netns", "exec", self.space, *command)

    def launch(self) -> None:
        links.run("ip", "netns", "add", self.space)
        for i in range(2):
            name = self.link.ours(i)
            links.run("ip", "link", "set", name, "netns", self.space)
            self.inside("ip", "link", "set", name, "address", "02:00:00:00:00:01", "up")
            self.inside("ip", "address", "add", f"10.{i + 1}.0.1/24", "dev", name)
        self.inside("ip", "neighbour", "add", "10.2.0.2", "lladdr", NEXT_HOP, "dev", self.link.ours(1))
        self.inside("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")

    def classes(self, mbit: int, classes: list[tuple[int, int]]) -> None:
        """Classes of a rate in Kbit/s and a priority each, all up to the rate of the whole."""
        name = self.link.ours(1)
        subprocess.run(["ip", "netns", "exec", self.space, "tc", "qdisc", "del", "dev", name, "root"], capture_output=True)
        self.inside("tc", "qdisc", "add", "dev", name, "root", "handle", "1:", "htb", "default", "10")
        whole = ["rate", f"{mbit}mbit", "ceil", f"{mbit}mbit", "burst", str(burst(mbit)), "cburst", str(burst(mbit))]
        self.inside("tc", "class", "add", "dev", name, "parent", "1:", "classid", "1:1", "htb", *whole)
        for i, (kbit, priority) in enumerate(classes):
            own = ["rate", f"{kbit}kbit", "ceil", f"{mbit}mbit", "burst", str(burst(mbit)), "cburst", str(burst(mbit)), "prio", str(priority)]
            own += ["quantum", str(FRAME * max(1, kbit * 8 // (1000 * mbit)))]
            at = ["classid", f"1:{10 + i}"]
            self.inside("tc", "class", "add", "dev", name, "parent", "1:1", *at, "htb", *own)
            self.inside("tc", "qdisc", "add", "dev", name, "parent", f"1:{10 + i}", "pfifo", "limit", str(ROOM))
            match = ["match", "ip", "dport", str(5000 + i), "0xffff", "flowid", f"1:{10 + i}"]
            self.inside("tc", "filter", "add", "dev", name, "parent", "1:", "protocol", "ip", "u32", *match)

    def rate(self, mbit: int) -> None:
        self.classes(mbit, [(1000 * mbit, 0)])

    def shares(self, mbit: int) -> None:
        self.classes(mbit, [(1000 * mbit * weight // sum(WEIGHTS), 0) for weight in WEIGHTS])

    def urgent(self, mbit: int) -> None:
        # Hardly a rate of their own, which they might use beyond the rate of the whole: both borrow from that.
        self.classes(mbit, [(8, 1), (8, 0)])

    def resume(self) -> None:
        """It is the kernel."""

    def pause(self) -> None:
        """It is the kernel."""

    def stop(self) -> None:
        # The interfaces go with it.
        subprocess.run(["ip", "netns", "delete", self.space], capture_output=True)
        self.link.remove()


class Ovs(middles.Ovs):
    """A policer on the way out."""

    realtime = False

    def __init__(self, folder: Path):
        super().__init__(folder, links.Veth, "in_port=1,actions=output:2\n", [], 10_000)

    def rate(self, mbit: int) -> None:
        # Its rate is of IP packets, without the Ethernet header.
        bytes_per_s = round(mbit * 1e6 / 8 * (FRAME - 14) / FRAME)
        name = self.link.ovs_name(1)
        made = ["--id=@q", "create", "qos", "type=egress-policer", f"other-config:cir={bytes_per_s}", f"other-config:cbs={burst(mbit)}"]
        self.vsctl("clear", "port", name, "qos", "--", "--all", "destroy", "qos")
        self.vsctl("set", "port", name, "qos=@q", "--", *made)

    shares = rate
    urgent = rate


def generate(generator: Path, middle: middles.Middle, seconds: float, classes: list[tuple[int, int, float]]) -> dict:
    """One measurement: what qos.c prints."""
    command = ["nice", "-n", str(middles.GENERATOR_NICE), "taskset", "-c", str(middles.OTHER_CPU), str(generator)]
    command += [middle.link.theirs(0), middle.link.theirs(1), str(SKIP_SECONDS), str(seconds)]
    command += [f"{number}:{size}:{rate}" for number, size, rate in classes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 30)
    if done.returncode != 0:
        raise middles.Failed(f"{middle.name}: {done.stderr}")
    told = json.loads(done.stdout)
    # Whoever was not read counts as not sent by who is measured.
    if told["unread"]:
        print(f"  {middle.name}: the generator has not read {told['unread']} packets", flush=True)
    return told


def mbit(of: dict) -> float:
    """Between the first and the last packet that came; the last one's bytes are those of the time behind it."""
    return (of["bytes"] - FRAME) * 8e3 / max(1, of["ns"])


def measure(generator: Path, middle: middles.Middle, seconds: float) -> list[dict]:
    """All tests of one middle, a line for each number."""
    lines: list[dict] = []

    def line(test: str, allowed: int, what: str, value: float, unit: str) -> None:
        lines.append({"middle": middle.name, "test": test, "rate_mbit": allowed, "what": what, "value": round(value, 4) + 0.0, "unit": unit})

    middle.resume()
    try:
        for allowed in RATES_MBIT:
            middle.rate(allowed)
            found = generate(generator, middle, seconds, [(0, FRAME, 1.3 * pps(allowed))])["classes"][0]
            line("rate", allowed, "error", 100 * (mbit(found) / allowed - 1), "%")
            line("rate", allowed, "p50", found["p50"] / 1e3, "us")
        middle.shares(SHARED_MBIT)
        offered = [(i, FRAME, 0.6 * pps(SHARED_MBIT)) for i in range(len(WEIGHTS))]
        found = generate(generator, middle, seconds, offered)["classes"]
        total = sum(of["bytes"] for of in found) or 1
        for of, weight in zip(found, WEIGHTS):
            line("shares", SHARED_MBIT, f"class {of['class']}", 100 * of["bytes"] / total, "%")
        errors = [abs(of["bytes"] / total * sum(WEIGHTS) / weight - 1) for of, weight in zip(found, WEIGHTS)]
        line("shares", SHARED_MBIT, "largest error", 100 * max(errors), "%")
        middle.urgent(SHARED_MBIT)
        offered = [(0, FRAME, 2 * pps(SHARED_MBIT)), (1, URGENT_BYTES, URGENT_PPS)]
        bulk, urgent = generate(generator, middle, seconds, offered)["classes"]
        for name, of in (("urgent", urgent), ("other", bulk)):
            for percentile in ("p50", "p99", "p999"):
                line("urgent", SHARED_MBIT, f"{name} {percentile}", of[percentile] / 1e3, "us")
            line("urgent", SHARED_MBIT, f"{name} lost", 100 * max(0.0, 1 - of["came"] / max(1, of["sent"])), "%")
        return lines
    finally:
        middle.pause()


def summary(readings: list[dict]) -> list[dict]:
    """Median, least and most of all rounds."""
    keys = ("middle", "test", "rate_mbit", "what", "unit")
    rows: dict[tuple, list[float]] = {}
    for reading in readings:
        rows.setdefault(tuple(reading[key] for key in keys), []).append(reading["value"])
    numbers = {key: {"median": statistics.median(of), "least": min(of), "most": max(of)} for key, of in rows.items()}
    return [dict(zip(keys, key)) | row for key, row in numbers.items()]


def compiled(folder: Path) -> Path:
    """The generator."""
    made = folder / "generator"
    links.run("cc", "-O2", "-o", str(made), str(HERE / "qos.c"), "-lm")
    return made


def main(words: list[str]) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=str(ROOT / "target/release/sluice"))
    parser.add_argument("--only", default="sluice,htb,ovs", help="what is measured, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--csv", default=str(ROOT / "target/bench/qos.csv"))
    parser.add_argument("--summary", help="a file for medians and spreads")
    arguments = parser.parse_args(words)
    if os.geteuid() != 0 or (os.cpu_count() or 1) < 2:
        sys.exit("this needs root and two CPUs")
    only = arguments.only.split(",")
    if "ovs" in only and middles.missing():
        print(f"without OVS: as root, apt-get install --no-install-recommends {' '.join(middles.missing())}")
        only.remove("ovs")
    for text in run.machine(arguments.sluice):
        print(text)
    readings: list[dict] = []
    with tempfile.TemporaryDirectory(prefix="qos") as name, ExitStack() as stack:
        folder = Path(name)
        generator = compiled(folder)
        if "ovs" in only:
            stack.enter_context(run.hugepages())
        made = {"sluice": lambda: Sluice(folder, arguments.sluice), "htb": lambda: Htb(folder), "ovs": lambda: Ovs(folder)}
        started = []
        for each in only:
            middle = made[each]()
            stack.callback(middle.stop)
            middle.start()
            started.append(middle)
        for number in range(arguments.rounds):
            for middle in started:
                readings += [{"round": number} | line for line in measure(generator, middle, arguments.seconds)]
    run.write(Path(arguments.csv), readings)
    rows = summary(readings)
    if arguments.summary:
        run.write(Path(arguments.summary), rows)
    for middle in dict.fromkeys(row["middle"] for row in rows):
        print(f"\n{middle}")
        for row in (row for row in rows if row["middle"] == middle):
            spread = f"{row['median']:10.3f} ({row['least']:.3f} to {row['most']:.3f})"
            print(f"  {row['test']:7} {row['rate_mbit']:5} Mbit/s  {row['what']:14} {spread} {row['unit']}")
    print(f"\nall readings: {arguments.csv}")


if __name__ == "__main__":
    main(sys.argv[1:])
