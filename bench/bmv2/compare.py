"""Sluice beside bmv2's `simple_switch_grpc`, as users of Mininet meet both: the tutorials' `basic` between two hosts on veth pairs.

    .venv/bin/python bench/bmv2/compare.py --bmv2 PATH/simple_switch_grpc --exercise TUTORIALS/exercises/basic --json basic.json
    [--sluice PATH,...] [--only NAMES] [--parts rate,ping,tcp,idle] [--rounds N] [--seconds S] [--csv FILE]

Three network namespaces: `h1` and `h2` with the addresses, routes and offloads that the tutorials give their hosts, and one with
the switch, which both times is started by the name `simple_switch_grpc`, with the options that Mininet's script gives it and the same
JSON (made by p4c), and gets the same P4Runtime requests (control.py). A switch is started anew for each round; rounds are
interleaved.

rate   `h1` sends UDP datagrams of one flow (traffic.c); counted is what arrives at the interface of `h2`. *Most*: the most that arrives at
       any rate that is offered; *without loss*: the highest rate of which all but LOSS_MAX arrives; *CPU*: processor time of the
       switch for each packet that arrives when more is offered than it takes
ping   round trips, one after the other (`ping -A`), and one every 10 ms
tcp    iperf3, one connection, with `basic`'s offloads: packets of 1,500 bytes
idle   processor time of the switch without packets

`no switch` is both hosts on one veth pair: what the sender, the receiver and the kernel between them can do. The sender is on CPU 1. The
switch may use all CPUs, or all but that one: for rates, whichever lets more arrive. Needs root, two CPUs, a C compiler, iproute2,
ping, ethtool, iperf3 and the PyPI package p4runtime.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "bench/ports"))

from frames import ip, mac, udp  # noqa: E402
from run import alone, spell, version, write  # noqa: E402

NO_SWITCH, BMV2, SLUICE = "no switch", "bmv2", "sluice"
GRPC, THRIFT_PORT = "127.0.0.1:50051", 9090
#: Bytes of frames without the check sequence: the shortest, and a full MTU.
LENGTHS = (60, 1514)
PORT = 5001
#: An address that no host has.
NOBODY = "02:00:00:00:00:99"
SENDER_CPU = 1
LOSS_MAX = 0.001
ALL_CPUS = os.sched_getaffinity(0)
PLACES = (ALL_CPUS, ALL_CPUS - {SENDER_CPU})
#: Halvings of the interval in which the highest rate without loss is.
STEPS = 6
#: What has been sent may still wait in the switch.
DRAIN_SECONDS = 0.15
PINGS, SLOW_PINGS = 2000, 100
PINGS_LOST_MAX = 0.005
#: Until the switch has compiled for the tables that it has, and the first packets are over.
SETTLE_SECONDS = 1.5
#: A host: address, gateway, its own MAC, the gateway's. As in `basic`'s topology.
HOSTS = {
    "h1": ("10.0.1.1", "10.0.1.10", "08:00:00:00:01:11", "08:00:00:00:01:00"),
    "h2": ("10.0.2.2", "10.0.2.20", "08:00:00:00:02:22", "08:00:00:00:02:00"),
}


def run(*command: str, patience: float = 60) -> str:
    """Runs a command that must not fail."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done.stdout


class Network:
    """The namespaces, with names of their own on this machine."""

    def __init__(self, folder: Path):
        self.tag = f"bmv2-{os.getpid()}-"
        self.neighbour: dict[str, list[str]] = {}
        self.traffic = folder / "traffic"
        run("cc", "-O2", "-Wall", "-Wextra", "-o", str(self.traffic), str(HERE / "traffic.c"))

    def space(self, name: str) -> str:
        return self.tag + name

    def inside(self, name: str, *command: str) -> list[str]:
        """A command in a namespace."""
        return ["ip", "netns", "exec", self.space(name), *command]

    @contextlib.contextmanager
    def up(self, has_switch: bool):
        """The hosts, each with a veth pair to the switch, or one pair between them."""
        names = [*HOSTS, "s1"]
        try:
            for name in names:
                run("ip", "netns", "add", self.space(name))
                # The kernel's own packets would be measured, too.
                run(*self.inside(name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"))
                run(*self.inside(name, "ip", "link", "set", "lo", "up"))
            pair = ["ip", "link", "add", "eth0", "netns"]
            if has_switch:
                for i, host in enumerate(HOSTS):
                    end = f"s1-eth{i + 1}"
                    run(*pair, self.space(host), "type", "veth", "peer", "name", end, "netns", self.space("s1"))
                    run(*self.inside("s1", "ip", "link", "set", end, "up"))
            else:
                run(*pair, self.space("h1"), "type", "veth", "peer", "name", "eth0", "netns", self.space("h2"))
            for host, (address, gateway, own, theirs) in HOSTS.items():
                run(*self.inside(host, "ip", "link", "set", "eth0", "address", own, "up"))
                for offload in ("rx", "tx", "sg"):
                    run(*self.inside(host, "ethtool", "--offload", "eth0", offload, "off"))
                run(*self.inside(host, "ip", "address", "add", f"{address}/24", "dev", "eth0"))
                other = next(far for far in HOSTS if far != host)
                hop = theirs if has_switch else HOSTS[other][2]
                self.neighbour[host] = ["ip", "neigh", "replace", gateway, "lladdr", hop, "dev", "eth0"]
                run(*self.inside(host, *self.neighbour[host]))
                run(*self.inside(host, "ip", "route", "add", "default", "via", gateway))
            yield
        finally:
            for name in names:
                subprocess.run(["ip", "netns", "delete", self.space(name)], capture_output=True)

    @contextlib.contextmanager
    def deaf(self, host: str):
        """The host's kernel counts packets at the interface, and drops them as not its own."""
        change = self.inside(host, "ip", "link", "set", "eth0", "address")
        run(*change, NOBODY)
        try:
            yield
        finally:
            run(*change, HOSTS[host][2])
            run(*self.inside(host, *self.neighbour[host]))

    def arrived(self) -> int:
        """Packets at the receiver's interface."""
        told = json.loads(run("ip", "-n", self.space("h2"), "-s", "-j", "link", "show", "eth0"))
        return told[0]["stats64"]["rx"]["packets"]

    def send(self, frame: bytes, seconds: float, rate: float) -> tuple[int, float]:
        """Frames that `h1` has sent, and the seconds it took."""
        command = self.inside("h1", "taskset", "--cpu-list", str(SENDER_CPU), str(self.traffic), "eth0", str(seconds), str(rate))
        done = subprocess.run(command, input=frame, capture_output=True, timeout=seconds + 30, check=True)
        sent, nanoseconds = done.stdout.split()
        return int(sent), int(nanoseconds) / 1e9


class Switch:
    """What is between the hosts."""

    def __init__(self, name: str, binary: str | None, network: Network, folder: Path, arguments: argparse.Namespace):
        self.name, self.binary, self.network, self.arguments = name, binary, network, arguments
        self.folder = folder / re.sub(r"\W+", "-", name)
        self.folder.mkdir()
        self.process: subprocess.Popen | None = None
        if binary:
            # Sluice takes bmv2's options if it is called by that name.
            (self.folder / "simple_switch_grpc").symlink_to(Path(binary).resolve())

    @contextlib.contextmanager
    def running(self):
        """Started as the tutorials start it."""
        with self.network.up(self.binary is not None):
            if not self.binary:
                yield
                return
            command = [str(self.folder / "simple_switch_grpc"), "-i", "1@s1-eth1", "-i", "2@s1-eth2", "--device-id", "0", "--no-p4"]
            command += ["--thrift-port", str(THRIFT_PORT), "--", "--grpc-server-addr", GRPC]
            environment = os.environ | {"SLUICE_RUNTIME_DIR": str(self.folder)}
            log = self.folder / "log.txt"
            with log.open("w") as output:
                inside = self.network.inside("s1", *command)
                self.process = subprocess.Popen(inside, stdout=output, stderr=subprocess.STDOUT, env=environment)
            try:
                setting = (GRPC, self.arguments.json, self.arguments.p4info, str(self.arguments.exercise / "pod-topo/s1-runtime.json"))
                run(*self.network.inside("s1", sys.executable, str(HERE / "control.py"), *setting))
                time.sleep(SETTLE_SECONDS)
                run(*self.network.inside("h1", "ping", "-n", "-c", "3", "-i", "0.1", "-W", "1", HOSTS["h2"][0]))
                yield
            except (RuntimeError, subprocess.SubprocessError) as problem:
                raise SystemExit(f"{self.name}: {problem}\n{log.read_text()[-2000:]}") from problem
            finally:
                self.process.terminate()
                try:
                    self.process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()

    def place(self, cpus: set[int]) -> None:
        """Where its threads may run."""
        if self.process:
            for task in Path(f"/proc/{self.process.pid}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(task.name), cpus)

    def cpu_seconds(self) -> float:
        """Processor time of all its threads, with what the kernel does for it."""
        if not self.process:
            return 0.0
        total = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9


def attempt(switch: Switch, frame: bytes, seconds: float, rate: float) -> dict[str, float]:
    """One rate: packets a second that were sent and that arrived, and the switch's time for each."""
    network = switch.network
    before, cpu = network.arrived(), switch.cpu_seconds()
    sent, took = network.send(frame, seconds, rate)
    cpu = switch.cpu_seconds() - cpu
    time.sleep(DRAIN_SECONDS)
    arrived = network.arrived() - before
    return {"sent": sent / took, "arrived": arrived / took, "lost": 1 - arrived / sent, "cpu_us": cpu / arrived * 1e6 if arrived else 0}


def measure_rate(switch: Switch, seconds: float) -> dict[str, float]:
    """For each length: most, without loss, CPU. The receiver does nothing with packets, which would take time from the switch."""
    with switch.network.deaf("h2"):
        found = measure_rates(switch, seconds)
    switch.place(PLACES[0])
    return found


def measure_rates(switch: Switch, seconds: float) -> dict[str, float]:
    """`measure_rate`."""
    found: dict[str, float] = {}
    source, target = HOSTS["h1"], HOSTS["h2"]
    addresses = ip(*map(int, target[0].split("."))), ip(*map(int, source[0].split(".")))
    for length in LENGTHS:
        to = source[3] if switch.binary else target[2]
        frame = udp(mac(to), mac(source[2]), *addresses, PORT, PORT, length)
        tried = []
        for cpus in PLACES:
            switch.place(cpus)
            # The first packets are over.
            attempt(switch, frame, seconds / 2, 0)
            tried.append((attempt(switch, frame, seconds, 0), cpus))
        flat_out, cpus = max(tried, key=lambda one: one[0]["arrived"])
        switch.place(cpus)
        best, most = 0.0, flat_out["arrived"]
        if flat_out["lost"] <= LOSS_MAX:
            best = flat_out["arrived"]
        else:
            low, high = 0.0, min(flat_out["sent"], 3 * most)
            for _ in range(STEPS):
                rate = (low + high) / 2
                # A second try: others of this machine take the processor now and then.
                tries = [attempt(switch, frame, seconds, rate)]
                if tries[0]["lost"] > LOSS_MAX:
                    tries.append(attempt(switch, frame, seconds, rate))
                most = max([most, *(each["arrived"] for each in tries)])
                held = [each["arrived"] for each in tries if each["lost"] <= LOSS_MAX]
                best = max([best, *held])
                low, high = (rate, high) if held else (low, rate)
        found |= {f"most_{length}": most, f"lossless_{length}": best, f"cpu_us_{length}": flat_out["cpu_us"]}
        found |= {f"offered_{length}": flat_out["sent"], f"flat_out_{length}": flat_out["arrived"]}
    return found


def measure_ping(switch: Switch, _: float) -> dict[str, float]:
    """Round-trip times in microseconds."""
    found: dict[str, float] = {}
    for name, options, count in (("ping", ["-A"], PINGS), ("slow", ["-i", "0.01"], SLOW_PINGS)):
        told = run(*switch.network.inside("h1", "ping", "-n", "-W", "1", *options, "-c", str(count), HOSTS["h2"][0]))
        times = sorted(float(each) * 1000 for each in re.findall(r"time=([\d.]+) ms", told))
        if len(times) < count * (1 - PINGS_LOST_MAX):
            raise RuntimeError(f"{len(times)} of {count} pings came back")
        found |= {f"{name}_p50": times[len(times) // 2], f"{name}_p99": times[len(times) * 99 // 100]}
    return found


def measure_tcp(switch: Switch, seconds: float) -> dict[str, float]:
    """Gigabits a second."""
    length = max(1, round(3 * seconds))
    server = subprocess.Popen(switch.network.inside("h2", "iperf3", "--server", "--one-off"), stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.3)
        client = ["iperf3", "--client", HOSTS["h2"][0], "--time", str(length), "--omit", "1", "--json"]
        told = json.loads(run(*switch.network.inside("h1", *client)))
        return {"tcp": told["end"]["sum_received"]["bits_per_second"] / 1e9}
    finally:
        server.terminate()
        server.wait()


def measure_idle(switch: Switch, seconds: float) -> dict[str, float]:
    """Per cent of a processor that the switch takes without packets."""
    length, before = 4 * seconds, switch.cpu_seconds()
    time.sleep(length)
    return {"idle": (switch.cpu_seconds() - before) / length * 100}


PARTS = {"rate": measure_rate, "ping": measure_ping, "tcp": measure_tcp, "idle": measure_idle}
#: Rows of the table: the key, its title, by how much values are divided, digits, whether less is better.
ROWS = [
    row
    for length in LENGTHS
    for row in (
        (f"most_{length}", f"{length} bytes, most, kpps", 1e3, 1, False),
        (f"lossless_{length}", f"{length} bytes, without loss, kpps", 1e3, 1, False),
        (f"cpu_us_{length}", f"{length} bytes, CPU for a packet, µs", 1, 2, True),
    )
] + [
    ("tcp", "TCP, Gbit/s", 1, 2, False),
    ("ping_p50", "ping, one after the other: median, µs", 1, 0, True),
    ("ping_p99", "99 %", 1, 0, True),
    ("slow_p50", "ping, 100 a second: median, µs", 1, 0, True),
    ("slow_p99", "99 %", 1, 0, True),
    ("idle", "CPU without packets, %", 1, 2, True),
]


def report(readings: list[dict], names: list[str]) -> None:
    """The table, in Markdown: medians with the least and the most of the rounds; ratios are of medians, with those of each round."""
    measured = [name for name in names if name not in (NO_SWITCH, BMV2)] if BMV2 in names else []
    titles = ["", *names, *(f"{name} / {BMV2}" for name in measured)]
    print(f"\n| {' | '.join(titles)} |\n| --- {'| ---: ' * (len(titles) - 1)}|")
    for key, title, unit, digits, is_less in ROWS:
        values = {name: [r[key] / unit for r in readings if r["switch"] == name and key in r] for name in names}
        if not any(values.values()):
            continue
        cells = [title] + [spell(values[name], digits).strip() if any(values[name]) else "" for name in names]
        for name in measured:
            over, under = (values[BMV2], values[name]) if is_less else (values[name], values[BMV2])
            each = [a / b for a, b in zip(over, under) if b]
            ratio = f"{statistics.median(over) / statistics.median(under):.3g} ({min(each):.2g} to {max(each):.2g})" if each else ""
            cells.append(ratio)
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bmv2", help="bmv2's simple_switch_grpc")
    parser.add_argument("--sluice", default=str(ROOT / "target/release/sluice"), help="binaries to compare, with commas between them")
    parser.add_argument("--exercise", type=Path, required=True, help="the folder exercises/basic of p4lang/tutorials")
    parser.add_argument("--json", help="p4c's JSON of it; build/basic.json there without it")
    parser.add_argument("--p4info", help="p4c's P4Info of it; build/basic.p4.p4info.txtpb there without it")
    parser.add_argument("--only", help=f"of {NO_SWITCH}, {BMV2}, {SLUICE}, with commas between them")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a measurement of a rate")
    parser.add_argument("--csv", default=str(ROOT / "target/bench/bmv2.csv"), help="a file for all single readings")
    parser.add_argument("--lock", help="a file to lock for the length of a measurement")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or (os.cpu_count() or 1) < 2:
        sys.exit("this needs root and two CPUs")
    arguments.json = arguments.json or str(arguments.exercise / "build/basic.json")
    arguments.p4info = arguments.p4info or str(arguments.exercise / "build/basic.p4.p4info.txtpb")
    # What was started is ended, too, when this is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?")
    print(f"machine: {model}, {os.cpu_count()} CPUs, Linux {platform.release()}")
    readings: list[dict] = []
    with tempfile.TemporaryDirectory(prefix="bmv2") as text:
        folder = Path(text)
        network = Network(folder)
        switches = [Switch(NO_SWITCH, None, network, folder, arguments)]
        if arguments.bmv2:
            print(f"{BMV2}: {version(arguments.bmv2, '--version')}")
            switches.append(Switch(BMV2, arguments.bmv2, network, folder, arguments))
        for place, binary in enumerate(arguments.sluice.split(",")):
            name = SLUICE if place == 0 else f"{SLUICE} {place + 1}"
            print(f"{name}: {version(binary, '--version')}")
            switches.append(Switch(name, binary, network, folder, arguments))
        if arguments.only:
            switches = [switch for switch in switches if switch.name in arguments.only.split(",")]
        try:
            for turn in range(arguments.rounds):
                for switch in switches:
                    with alone(arguments.lock), switch.running():
                        found: dict = {"round": turn, "switch": switch.name}
                        for part in arguments.parts.split(","):
                            found |= PARTS[part](switch, arguments.seconds)
                    readings.append(found)
                    print(f"round {turn + 1}, {switch.name}", flush=True)
        finally:
            if readings:
                write(Path(arguments.csv), readings)
                report(readings, [switch.name for switch in switches])


if __name__ == "__main__":
    main()
