"""Flow mods by the million through a bridge's socket while packets run: how many a second the bridge accepts, and what is left of the
throughput meanwhile.

    python3 bench/openflow/flow_mods.py [--sluice PATH] [--flows N] [--rounds N]

A worker takes an endless supply of frames from a `null` port and sends them out of another one, by a flow of a lower priority than those
that are added. Each round adds all flows (OpenFlow 1.3, one IPv4 destination each) with a barrier behind each thousand, then deletes them
with one message. A rate is from the first byte until the last barrier is answered. Needs two processors: one is the worker's.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION = 4
HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, FLOW_MOD, BARRIER_REQUEST, BARRIER_REPLY = 0, 1, 2, 3, 14, 20, 21
ADD, DELETE = 0, 3
ANY = 0xFFFFFFFF
COOKIE = 0x51
#: Flow mods between two barriers.
BETWEEN = 1000
#: Flow mods a second, and the part of the throughput that they may cost.
BARS = (100_000, 0.10)
#: How long throughput is measured without changes, s.
CALM_S = 3.0


def message(kind: int, body: bytes = b"", xid: int = 0) -> bytes:
    return struct.pack("!BBHI", VERSION, kind, 8 + len(body), xid) + body


def flow_mod(command: int, priority: int, oxms: bytes, port: int | None) -> bytes:
    """An ADD that sends to a port, or a DELETE of everything with the cookie."""
    mask = 0xFFFFFFFFFFFFFFFF if command == DELETE else 0
    fixed = struct.pack("!QQBBHHHIIIH2x", COOKIE, mask, 0, command, 0, 0, priority, ANY, ANY, ANY, 0)
    match = struct.pack("!HH", 1, 4 + len(oxms)) + oxms
    match += bytes(-len(match) % 8)
    output = struct.pack("!HHIH6x", 0, 16, port, 0) if port is not None else b""
    apply = struct.pack("!HH4x", 4, 8 + len(output)) + output if output else b""
    return message(FLOW_MOD, fixed + match + apply)


def destination(address: int) -> bytes:
    return struct.pack("!IHII", 0x80000A02, 0x0800, 0x80001804, address)


def stream(flows: int) -> list[bytes]:
    """All ADDs, in pieces that each end with a barrier."""
    pieces = []
    for first in range(0, flows, BETWEEN):
        adds = [flow_mod(ADD, 10, destination(0x0A000000 + i), 2) for i in range(first, min(first + BETWEEN, flows))]
        pieces.append(b"".join(adds) + message(BARRIER_REQUEST, xid=first // BETWEEN + 1))
    return pieces


class Bridge:
    """A connection to a bridge's management socket."""

    def __init__(self, path: Path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(path))
        self.socket.sendall(message(HELLO))
        self.pending = b""
        self.until(HELLO)

    def until(self, kind: int, xid: int | None = None) -> None:
        """Reads up to an answer; errors end the measurement."""
        while True:
            while len(self.pending) >= 8:
                _, got, length, number = struct.unpack("!BBHI", self.pending[:8])
                if len(self.pending) < length:
                    break
                body, self.pending = self.pending[8:length], self.pending[length:]
                if got == ERROR:
                    sys.exit(f"the bridge refuses: type {body[:2].hex()}, code {body[2:4].hex()}")
                if got == ECHO_REQUEST:
                    self.socket.sendall(message(ECHO_REPLY, body, number))
                if got == kind and (xid is None or xid == number):
                    return
            received = self.socket.recv(1 << 16)
            if not received:
                sys.exit("the bridge has closed the connection")
            self.pending += received

    def send(self, pieces: list[bytes]) -> float:
        """Sends pieces, few ahead of the answers; seconds."""
        begin = time.monotonic()
        for i, piece in enumerate(pieces):
            self.socket.sendall(piece)
            if i >= 4:
                self.until(BARRIER_REPLY, i - 3)
        self.until(BARRIER_REPLY, len(pieces))
        return time.monotonic() - begin


class Switch:
    """A bridge between two `null` ports."""

    def __init__(self, sluice: str, folder: Path):
        self.sluice, self.admin, self.management = sluice, folder / "admin", folder / "mgmt"
        words = ["run", "--openflow", "--mgmt", self.management, "--admin", self.admin, "--grpc", "127.0.0.1:0", "-i", "1@null", "-i", "2@null"]
        self.log = (folder / "log").open("w+")
        self.process = subprocess.Popen([sluice, *map(str, words)], stdout=self.log, stderr=subprocess.STDOUT, cwd=ROOT)
        deadline = time.monotonic() + 120
        while not self.management.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the switch does not start: {(folder / 'log').read_text()}")
            time.sleep(0.05)

    def received(self) -> tuple[float, int]:
        """The time, and packets that port 1 has received."""
        words = [self.sluice, "stats", "--json", "--admin", str(self.admin)]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
        now = time.monotonic()
        ports = {port["number"]: port for port in json.loads(done.stdout)["ports"]}
        return now, ports[1]["rx"]["packets"]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)


def mpps(before: tuple[float, int], after: tuple[float, int]) -> float:
    return (after[1] - before[1]) / (after[0] - before[0]) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=str(ROOT / "target/release/sluice"))
    parser.add_argument("--flows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    pieces = stream(args.flows)
    with tempfile.TemporaryDirectory() as folder:
        switch = Switch(args.sluice, Path(folder))
        try:
            bridge = Bridge(switch.management)
            forward = flow_mod(ADD, 1, struct.pack("!II", 0x80000004, 1), 2)
            bridge.socket.sendall(forward.replace(struct.pack("!Q", COOKIE), struct.pack("!Q", 1), 1) + message(BARRIER_REQUEST, xid=1))
            bridge.until(BARRIER_REPLY, 1)
            rates, shares = [], []
            for _ in range(args.rounds):
                before = switch.received()
                time.sleep(CALM_S)
                calm = switch.received()
                seconds = bridge.send(pieces)
                busy = switch.received()
                bridge.socket.sendall(flow_mod(DELETE, 0, b"", None) + message(BARRIER_REQUEST, xid=1))
                bridge.until(BARRIER_REPLY, 1)
                if mpps(before, calm) == 0:
                    sys.exit("no packets run")
                rates.append(args.flows / seconds)
                shares.append(1 - mpps(calm, busy) / mpps(before, calm))
                print(f"{rates[-1]:,.0f} flow mods a second; {mpps(before, calm):.2f} Mpps before, {mpps(calm, busy):.2f} meanwhile")
        finally:
            switch.stop()
    rate, share = statistics.median(rates), statistics.median(shares)
    passed = rate >= BARS[0] and share <= BARS[1]
    print(f"{args.flows:,} flows, median of {args.rounds}: {rate:,.0f} flow mods a second (at least {BARS[0]:,}), throughput {share:.1%} lower"
          f" (at most {BARS[1]:.0%}): {'PASS' if passed else 'short'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
