"""Throughput between two vhost-user ports: Sluice as an L2 forwarder beside `dpdk-testpmd --forward-mode=io`.

    python3 bench/vhost.py [--sluice PATH] [--rounds N] [--seconds N]

One core (CPU 0) for what is measured, the other (CPU 1) for the generator: dpdk-testpmd as two virtio-user guests that
send 64-byte packets both ways and count what comes back. The two are measured in turn, round by round; read the ratio.
Needs root, two CPUs, dpdk-testpmd (Debian package dpdk-dev) and 512 hugepages of 2 MB, which it reserves and gives back.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = Path("/proc/sys/vm/nr_hugepages")
PAGES_NEEDED = 768


def generator(sockets: list[str], seconds: int) -> subprocess.Popen:
    """Two guests that send as fast as they can; prints rates every second."""
    ports = [
        f"net_virtio_user{i},path={path},server=1,queues=1,queue_size=1024,mac=02:00:00:00:00:0{i + 1}"
        for i, path in enumerate(sockets)
    ]
    command = ["timeout", "-s", "INT", str(seconds), "dpdk-testpmd", "--lcores", "0@1,1@1", "--no-pci", "--in-memory"]
    command += ["--single-file-segments", "--socket-mem", "256", "--file-prefix", f"generator{os.getpid()}"]
    command += [word for port in ports for word in ("--vdev", port)]
    command += ["--", "--forward-mode=flowgen", "--flowgen-flows=64", "--auto-start", "--stats-period", "1"]
    command += ["--total-num-mbufs=32768", "--no-mlockall", "--txd=1024", "--rxd=1024"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def testpmd(sockets: list[str]) -> list[str]:
    """The floor: packets are handed from one port to the other unseen."""
    command = ["taskset", "-c", "0", "dpdk-testpmd", "--lcores", "0@0,1@0", "--no-pci", "--in-memory", "--no-telemetry"]
    command += ["--socket-mem", "256", "--file-prefix", f"middle{os.getpid()}"]
    for i, path in enumerate(sockets):
        command += ["--vdev", f"net_vhost{i},iface={path},client=1,queues=1"]
    command += ["--", "--forward-mode=io", "--auto-start", "--total-num-mbufs=32768", "--no-mlockall"]
    return command + ["--txd=1024", "--rxd=1024", "--stats-period", "10", "--disable-link-check"]


def sluice(binary: str, sockets: list[str]) -> list[str]:
    """What is measured."""
    command = ["taskset", "-c", "0", binary, "run", str(ROOT / "bench/l2fwd/l2fwd.p4"), "--busy-poll", "--grpc", "none"]
    for i, path in enumerate(sockets):
        command += ["-i", f"{i}@vhost:{path}"]
    return command + ["--entries", str(ROOT / "bench/l2fwd/entries.stf")]


def measure(middle: list[str], sockets: list[str], seconds: int) -> float:
    """Mpps that come back to the generator, both ways added; the median of the seconds after the first three."""
    for path in sockets:
        Path(path).unlink(missing_ok=True)
    log = tempfile.TemporaryFile("w+")
    # Each guest waits for its connection; the middle connects, and tries again until the guests are there.
    source = generator(sockets, seconds + 6)
    try:
        process = subprocess.Popen(middle, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.PIPE)
        try:
            output = source.communicate(timeout=seconds + 30)[0]
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    finally:
        if source.poll() is None:
            source.kill()
            source.wait()
    rates = [int(rate) for rate in re.findall(r"Rx-pps:\s+(\d+)", output)]
    per_second = [sum(pair) for pair in zip(rates[0::2], rates[1::2])][3:]
    if not per_second or max(per_second) == 0:
        log.seek(0)
        sys.exit(f"nothing came back from {' '.join(middle)}:\n{log.read()[-3000:]}\n{output[-2000:]}")
    return statistics.median(rate for rate in per_second if rate) / 1e6


def main() -> None:
    """Measures in turn and prints medians, spreads and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=str(ROOT / "target/release/sluice"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=6)
    arguments = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("dpdk-testpmd") or (os.cpu_count() or 1) < 2:
        sys.exit("vhost.py needs root, two CPUs and dpdk-testpmd (apt-get install dpdk-dev)")
    before = int(PAGES.read_text())
    try:
        if before < PAGES_NEEDED:
            PAGES.write_text(str(PAGES_NEEDED))
        with tempfile.TemporaryDirectory() as folder:
            sockets = [f"{folder}/vm0.sock", f"{folder}/vm1.sock"]
            floor, ours = [], []
            for turn in range(arguments.rounds):
                floor.append(measure(testpmd(sockets), sockets, arguments.seconds))
                ours.append(measure(sluice(arguments.sluice, sockets), sockets, arguments.seconds))
                print(f"round {turn + 1}: testpmd io {floor[-1]:.2f} Mpps, sluice l2fwd {ours[-1]:.2f} Mpps", flush=True)
    finally:
        if int(PAGES.read_text()) != before:
            PAGES.write_text(str(before))
    for name, rates in (("testpmd io", floor), ("sluice l2fwd", ours)):
        print(f"{name:13} median {statistics.median(rates):.2f} Mpps, {min(rates):.2f} to {max(rates):.2f}")
    print(f"ratio of medians: {statistics.median(ours) / statistics.median(floor):.2f}")


if __name__ == "__main__":
    main()
