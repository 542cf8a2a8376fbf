"""The benchmark through ports: testpmd, OVS-DPDK and Sluice in turn on the same kind of ports, with the same traffic.

    python3 bench/ports/run.py                        all of the benchmark's third layer: SUITE below
    python3 bench/ports/run.py qos [...]              queues of ports instead, beside tc and OVS: qos.py
    python3 bench/ports/run.py --work l2,... [--link vhost] [--sizes 64,imix] [--directions bi,uni] [--latency]
    [--rounds N] [--seconds S] [--csv FILE] [--plots FOLDER]

Two CPUs: what is measured has CPU 0 for its one forwarding thread, the generator (`portgen`, in this folder) is on CPU 1
as two virtio-user guests, or at the other ends of memif sockets or veth pairs (links.py). Rounds are interleaved: each takes one short measurement of everything, so that what else the
machine does hits all alike. Read ratios, and mind the spread. Needs root, 2 MB hugepages (reserved here and given back),
and the Debian packages dpdk-dev and openvswitch-switch-dpdk.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import fcntl
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import bars  # noqa: E402
import copies  # noqa: E402
import l2  # noqa: E402
import l2l3acl  # noqa: E402
import links  # noqa: E402
import middles  # noqa: E402
from workload import Workload  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PAGES = Path("/proc/sys/vm/nr_hugepages")
PAGES_NEEDED = 512
#: By name.
WORKLOADS = l2.ALL | l2l3acl.ALL | copies.ALL
#: What runs without `--work`: workloads, link, sizes, directions, latency.
EVERYWHERE = "l2,l2l3acl-64"
SUITE = [
    (EVERYWHERE, "vhost", "64,256,1024,imix", "bi,uni", True),
    (",".join(name for name in WORKLOADS if name not in EVERYWHERE.split(",")), "vhost", "64", "bi", False),
]
for _link in ("memif", "packet", "xdp"):
    SUITE += [(EVERYWHERE, _link, "64", "bi,uni", True), (EVERYWHERE, _link, "256,1024,imix", "bi,uni", False)]
#: Parts of its own highest rate at which a middle's latency is measured, and in how many of the rounds.
LOADS = [0.10, 0.50, 0.99]
LATENCY_ROUNDS_MAX = 3
#: Sent to OVS before the first round, packets a second, and in how many pieces until it makes no more megaflows.
FILL_RATE = 1e6
FILL_PIECES_MAX = 20
#: Of the latency, what `portgen` calls them.
PERCENTILES = ("p50", "p99", "p999")
#: A guest that connects while the switch still lets go of the last one is refused now and then.
ATTEMPTS = 3
RESTARTS_MAX = 3
#: What a port sends that only receives, for `portgen`.
NOTHING = Path("none")


@contextlib.contextmanager
def hugepages():
    """Reserves hugepages and gives them back."""
    before = int(PAGES.read_text())
    try:
        if before < PAGES_NEEDED:
            PAGES.write_text(str(PAGES_NEEDED))
        if int(PAGES.read_text()) < PAGES_NEEDED:
            sys.exit(f"the kernel gives {PAGES.read_text().strip()} hugepages, {PAGES_NEEDED} are needed")
        yield
    finally:
        PAGES.write_text(str(before))


@contextlib.contextmanager
def alone(path: str | None):
    """Others that measure on this machine wait meanwhile."""
    if path is None:
        yield
        return
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def generate(command: list[str], patience: float) -> subprocess.CompletedProcess[str]:
    """Runs the generator. Real-time priority is for its busy thread only, once that is there: DPDK waits for new threads in sleeps of a
    microsecond, which a kernel may end before it lets another thread of the same priority run."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + patience
            while process.poll() is None and not prefer(process.pid, "generator") and time.monotonic() < deadline:
                time.sleep(0.01)
            out, err = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def prefer(pid: int, thread: str) -> bool:
    """Gives a process's thread a worker's priority, if it is there."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if (task / "comm").read_text().strip() == thread:
                os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(middles.WORKER_PRIORITY))
                return True
    return False


def measure(middle: middles.Middle, generator: str, files: list[Path], size: int | None, extra: list[str], seconds: float) -> dict:
    """One measurement: what `portgen` prints. Others that have ended are started again: DPDK's memif driver now and then takes its process
    along when the generator goes."""
    for _ in range(RESTARTS_MAX):
        try:
            return measure_once(middle, generator, files, size, extra, seconds)
        except middles.Failed:
            # One that is ending is still there.
            time.sleep(1)
            if middle.pid() is not None or isinstance(middle, middles.Sluice):
                raise
            last = (middle.log.read_text().splitlines() or ["nothing"])[-1]
            print(f"{middle.name} on {middle.link.kind} ports has ended and is started again; it last said: {last}", flush=True)
            middle.restart()
    return measure_once(middle, generator, files, size, extra, seconds)


def measure_once(middle: middles.Middle, generator: str, files: list[Path], size: int | None, extra: list[str], seconds: float) -> dict:
    """`measure` without a second chance."""
    command = ["taskset", "-c", str(middles.OTHER_CPU), generator]
    for socket, file in zip(middle.sockets(), files):
        command += ["--port", socket, "--frames", str(file)]
    command += ["--mixed"] if size is None else ["--size", str(size)]
    command += ["--seconds", str(seconds), *extra]
    middle.resume()
    try:
        for attempt in range(ATTEMPTS):
            try:
                done = generate(command, seconds + 30)
                if done.returncode == 0:
                    break
                problem = done.stderr[:1000]
            except subprocess.TimeoutExpired:
                problem = "the generator does not end"
            if attempt + 1 == ATTEMPTS:
                raise middles.Failed(f"{middle.name}: {problem}\n{middle.log.read_text()[-3000:]}")
            time.sleep(0.5)
        # The other side notices that its guest has gone before it sleeps again.
        time.sleep(0.1)
        return json.loads(done.stdout) | {"answers": middle.answers()}
    finally:
        middle.pause()


def make(work: Workload, folder: Path, arguments: argparse.Namespace, only: set[str] | None) -> list[middles.Middle]:
    """Everything that a workload is measured on."""
    link = links.KINDS[arguments.link]
    made: list[middles.Middle] = [middles.TestPmd(folder, link, mode) for mode in work.testpmd]
    if link.without_ovs:
        print(f"\n{work.name} without OVS: {link.without_ovs}")
    else:
        made += [middles.Ovs(folder, link, work.flows, work.ovs, work.megaflows_max, work.ports, work.ovs_commands)]
    for place, path in enumerate(arguments.sluice.split(",")):
        name = "sluice" if place == 0 else f"sluice {place + 1}"
        made += [middles.Sluice(folder, link, path, work.program, work.entries, name, ports=work.ports)]
    return [m for m in made if only is None or m.name in only]


def spell(rates: list[float], digits: int = 2) -> str:
    """Median and spread."""
    return f"{statistics.median(rates):6.{digits}f} ({min(rates):.{digits}f} to {max(rates):.{digits}f})"


def version(*command: str) -> str:
    """The first line of what a program says about itself."""
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[0]
    except (OSError, IndexError):
        return "?"


def machine(binary: str) -> list[str]:
    """Where this was measured."""
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?")
    return [
        f"machine: {model}, {os.cpu_count()} CPUs, Linux {platform.release()}",
        f"versions: {version(binary.split(',')[0], '--version')} in a tree at {version('git', '-C', str(ROOT), 'describe', '--always', '--tags', '--dirty')}; "
        f"{version('ovs-vsctl', '--version')}; DPDK {version('pkg-config', '--modversion', 'libdpdk')}",
    ]


def main() -> None:
    """Measures and prints."""
    if sys.argv[1:2] == ["qos"]:
        import qos

        return qos.main(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=str(ROOT / "target/release/sluice"), help="binaries to compare, with commas between them")
    parser.add_argument("--portgen", default=str(ROOT / "target/release/portgen"))
    parser.add_argument("--bench", default=str(ROOT / "target/release/sluice-bench"), help="what draws")
    parser.add_argument("--work", help=f"of {', '.join(WORKLOADS)}; all of SUITE without it")
    parser.add_argument("--link", default="vhost", choices=list(links.KINDS), help="the kind of ports")
    parser.add_argument("--latency", action="store_true", help="also at parts of each middle's highest rate")
    parser.add_argument("--only", help="names of what is measured, with commas between them")
    parser.add_argument("--sizes", default="64", help="bytes, or imix")
    parser.add_argument("--directions", default="bi", help="bi, uni or both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--csv", default=str(ROOT / "target/bench/ports.csv"), help="a file for all single readings")
    parser.add_argument("--plots", default=str(ROOT / "target/bench"), help="a folder for SVG plots of the readings")
    parser.add_argument("--lock", help="a file to lock for the length of a round")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or (os.cpu_count() or 1) < 2:
        sys.exit("this needs root and two CPUs")
    if middles.missing():
        sys.exit(f"as root: apt-get install --no-install-recommends {' '.join(middles.missing())}")
    for line in machine(arguments.sluice):
        print(line)
    only = set(arguments.only.split(",")) if arguments.only else None
    # What was started is ended, too, when this is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    readings: list[dict] = []
    parts = SUITE
    if arguments.work:
        parts = [(arguments.work, arguments.link, arguments.sizes, arguments.directions, arguments.latency)]
    begin = time.monotonic()
    try:
        with hugepages():
            for works, arguments.link, arguments.sizes, arguments.directions, arguments.latency in parts:
                for name in works.split(","):
                    work = WORKLOADS[name]()
                    with tempfile.TemporaryDirectory(prefix="ports") as folder:
                        measure_work(work, Path(folder), arguments, only, readings)
    finally:
        if readings:
            write(Path(arguments.csv), readings)
            print(f"\nall readings, of {(time.monotonic() - begin) / 60:.1f} minutes: {arguments.csv}", flush=True)
    for line in bars.own(readings):
        print(f"\n{line}", flush=True)
    plot(arguments.bench, arguments.csv, arguments.plots)


def write(path: Path, readings: list[dict]) -> None:
    """Writes the CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(readings[0]))
        writer.writeheader()
        writer.writerows(readings)


def plot(drawer: str, readings: str, folder: str) -> None:
    """Has plots drawn; says where they are."""
    if not Path(drawer).exists():
        print(f"no plots: {drawer} is not there; cargo build --release --package bench makes it")
        return
    done = subprocess.run([drawer, "plot-ports", readings, folder], capture_output=True, text=True)
    print(done.stdout, end="")
    if done.returncode != 0:
        print(f"no plots: {drawer} plot-ports: {(done.stderr.strip().splitlines() or ['?'])[0]}")


def measure_work(work: Workload, folder: Path, arguments: argparse.Namespace, only: set[str] | None, readings: list[dict]) -> None:
    """All sizes and directions of one workload."""
    all_middles = make(work, folder, arguments, only)
    with contextlib.ExitStack() as stack:
        for middle in list(all_middles):
            stack.callback(middle.stop)
            try:
                with alone(arguments.lock):
                    middle.start()
            except middles.Failed as failed:
                if isinstance(middle, middles.Sluice):
                    raise
                print(f"\n{work.name} on {arguments.link} ports without {middle.name}: {failed}", flush=True)
                all_middles.remove(middle)
        for place, text in enumerate(arguments.sizes.split(",")):
            size = None if text == "imix" else int(text)
            both = []
            # The sizes are those on the wire, where a frame ends with a check sequence of four bytes.
            length = None if size is None else size - 4
            for i, data in enumerate(work.frames(length)):
                both.append(folder / f"frames{i}.bin" if data else NOTHING)
                if data:
                    both[i].write_bytes(data)
            if place == 0:
                fill(work, all_middles, arguments, both, length)
            for direction in arguments.directions.split(","):
                files = both if direction == "bi" else [both[0]] + [NOTHING] * (work.ports - 1)
                rates: dict[str, list[float]] = {middle.name: [] for middle in all_middles}
                answers: dict[str, list[dict]] = {middle.name: [] for middle in all_middles}
                for turn in range(arguments.rounds):
                    with alone(arguments.lock):
                        for middle in all_middles:
                            result = measure(middle, arguments.portgen, files, length, work.generator, arguments.seconds)
                            rates[middle.name].append(result["mpps"])
                            answers[middle.name].append(result["answers"])
                            readings.append(
                                reading(work, arguments.link, text, direction, turn, middle, result)
                            )
                report(work, arguments.link, text, direction, rates, answers)
                if arguments.latency:
                    readings += measure_latency(work, all_middles, arguments, files, text, length, direction, rates)


def reading(
    work: Workload, link: str, size: str, direction: str, turn: int, middle: middles.Middle, result: dict, load: float | None = None
) -> dict:
    """A line of the CSV file."""
    latency, answers = result["latency_ns"], result["answers"]
    return {
        "work": work.name, "link": link, "size": size, "direction": direction, "round": turn, "middle": middle.name,
        "load": "" if load is None else load, "mpps": result["mpps"], "sent_mpps": result["sent_mpps"], "gbps": result["gbps"],
        **{f"latency_{name}_us": latency[name] / 1000 if name in latency else "" for name in PERCENTILES},
        "megaflows": int(answers["megaflows"]) if answers else "", "upcalls": round(answers["upcalls"], 6) if answers else "",
    }  # fmt: skip


def measure_latency(
    work: Workload, all_middles: list[middles.Middle], arguments: argparse.Namespace, files: list[Path], size: str,
    length: int | None, direction: str, rates: dict[str, list[float]],
) -> list[dict]:  # fmt: skip
    """The time until packets come back, at parts of what each middle can do."""
    rounds = min(arguments.rounds, LATENCY_ROUNDS_MAX)
    readings = []
    for turn in range(rounds):
        with alone(arguments.lock):
            for middle in all_middles:
                for load in LOADS:
                    rate = statistics.median(rates[middle.name]) * load * 1e6
                    if rate:
                        extra = ["--latency", "--turn-us", "0", "--burst", "32", "--rate", str(rate)]
                        result = measure(middle, arguments.portgen, files, length, [*work.generator, *extra], arguments.seconds)
                        readings.append(reading(work, arguments.link, size, direction, turn, middle, result, load))
    print(f"  microseconds until a packet is back, at parts of the own highest rate: median, 99 %, 99.9 %, of {rounds} rounds median (spread)")
    for middle in all_middles:
        for load in LOADS:
            lines = [line for line in readings if (line["middle"], line["load"]) == (middle.name, load)]
            times = [[line[f"latency_{name}_us"] for line in lines if line[f"latency_{name}_us"] != ""] for name in PERCENTILES]
            if all(times):
                print(f"  {middle.name:16} {load:4.0%} {'  '.join(spell(each, 1) for each in times)}", flush=True)
            else:
                print(f"  {middle.name:16} {load:4.0%} nothing came back")
    return readings


def fill(work: Workload, all_middles: list[middles.Middle], arguments: argparse.Namespace, files: list[Path], length: int | None) -> None:
    """Has OVS make its megaflows, in pieces, so that others get their turn on the machine, until a piece makes no more."""
    # Each flow comes in each piece.
    seconds = 1 + 2 * sum(file.stat().st_size for file in files if file != NOTHING) / (length or 60) / FILL_RATE
    for middle in (middle for middle in all_middles if isinstance(middle, middles.Ovs)):
        before = -1.0
        for _ in range(FILL_PIECES_MAX):
            with alone(arguments.lock):
                result = measure(middle, arguments.portgen, files, length, [*work.generator, "--rate", str(FILL_RATE)], seconds)
            now = result["answers"]["megaflows"]
            if now == before:
                break
            before = now
        else:
            print(f"{work.name}: {middle.name} still makes megaflows after {FILL_PIECES_MAX * seconds:.0f} s, {now:.0f} so far")


def report(work: Workload, link: str, size: str, direction: str, rates: dict[str, list[float]], answers: dict[str, list[dict]]) -> None:
    """A table of medians and ratios, and how packets were answered by who tells it."""
    print(f"\n{work.title}; {link}; {size} bytes, {'both ways' if direction == 'bi' else 'one way'}; Mpps that come back: median (spread)")
    ours = rates.get("sluice")
    for name, values in rates.items():
        ratio = ""
        if ours and name != "sluice":
            each = sorted(o / v for o, v in zip(ours, values) if v)
            if statistics.median(values) == 0:
                ratio = "  nothing comes back in most rounds"
            else:
                of_medians = statistics.median(ours) / statistics.median(values)
                ratio = f"  sluice is {of_medians:.2f} of this (by round {each[0]:.2f} to {each[-1]:.2f})"
                bar = bars.BESIDE.get((work.name, name)) if (link, size, direction) == ("vhost", "64", "bi") else None
                if bar is not None:
                    ratio += f"; {bars.verdict(ours, values, bar)}"
        print(f"  {name:16} {spell(values)}{ratio}", flush=True)
    for name, each in answers.items():
        if any(each):
            parts = {key: statistics.mean(answer[key] for answer in each) for key in each[0] if key != "megaflows"}
            shown = ", ".join(f"{key} {part:.2%}" for key, part in parts.items() if part or key == "upcalls")
            print(f"  {name} has {each[-1]['megaflows']:,.0f} megaflows, and answered from: {shown}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except middles.Failed as failed:
        sys.exit(str(failed))
