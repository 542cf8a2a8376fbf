"""What clients that are slow, stopped or many cost the others: how long writes and reads of clients that work take beside them.

    .venv/bin/python bench/control/clients.py [--sluice PATH] [--entries 200000] [--seconds 5]

A switch has a large table. Beside it, in turn: nobody else; clients that were stopped (SIGSTOP) in the middle of reading
the table and hold its snapshot; clients that are stopped with open streams while packets keep coming for them; and 64 clients that
all write and read at once. In each case a client writes batches of 100 entries and reads one entry, time after time; what it
waited is told, of the first case before and after the others, because the machine changes, too. All clients are processes of their
own, on the CPUs that are there; the switch is started here. Needs the PyPI package p4runtime (`make test` has it in .venv).

Ends with 1 if a request of a client that works is refused, or what it wrote is not there.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import grpc
from p4.v1 import p4runtime_pb2 as p4
from p4.v1 import p4runtime_pb2_grpc

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).resolve().parent / "clients.p4"
DEVICE, BATCH, STOPPED, MANY = 1, 100, 62, 64
TABLE = "ig.switching"


class Client:
    """A connection of its own, primary in a role of its own if it writes."""

    def __init__(self, address: str, role: str = ""):
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(grpc.insecure_channel(address, options=options))
        self.role = role
        config = p4.GetForwardingPipelineConfigRequest(device_id=DEVICE, response_type="P4INFO_AND_COOKIE")
        info = self.stub.GetForwardingPipelineConfig(config).config.p4info
        self.table = next(t.preamble.id for t in info.tables if t.preamble.name == TABLE)
        self.action = next(a.preamble.id for a in info.actions if a.preamble.name == "ig.send")

    def claim(self) -> None:
        """Becomes primary of its role."""
        self.said: queue.Queue = queue.Queue()
        claim = p4.StreamMessageRequest()
        claim.arbitration.device_id, claim.arbitration.election_id.low = DEVICE, 1
        claim.arbitration.role.name = self.role
        self.said.put(claim)
        self.stream = self.stub.StreamChannel(iter(self.said.get, None))
        assert next(self.stream).arbitration.status.code == 0

    def write(self, first: int, count: int, kind=p4.Update.INSERT) -> None:
        """Entries `first` and following."""
        request = p4.WriteRequest(device_id=DEVICE, role=self.role)
        request.election_id.low = 1
        for number in range(first, first + count):
            update = request.updates.add(type=kind)
            entry = update.entity.table_entry
            entry.table_id = self.table
            match = entry.match.add(field_id=1)
            match.exact.value = number.to_bytes(6, "big").lstrip(b"\0")
            entry.action.action.action_id = self.action
            entry.action.action.params.add(param_id=1, value=b"\x02")
        self.stub.Write(request)

    def read(self, number: int | None = None):
        """One entry, or all: an iterator over answers."""
        request = p4.ReadRequest(device_id=DEVICE)
        entry = request.entities.add().table_entry
        entry.table_id = self.table
        if number is not None:
            entry.match.add(field_id=1).exact.value = number.to_bytes(6, "big").lstrip(b"\0")
        return self.stub.Read(request)


def worker(address: str, who: int, seconds: float, together, out) -> None:
    """Writes batches and reads one entry of each, and deletes them again: what each took."""
    client = Client(address, f"worker-{who}")
    client.claim()
    writes, reads = [], []
    base = (1 << 40) + (who << 24)
    together.wait()
    end, turn = time.monotonic() + seconds, 0
    while time.monotonic() < end or turn % 2:
        kind = p4.Update.DELETE if turn % 2 else p4.Update.INSERT
        start = time.monotonic()
        client.write(base, BATCH, kind)
        writes.append(time.monotonic() - start)
        start = time.monotonic()
        found = sum(len(answer.entities) for answer in client.read(base + BATCH // 2))
        reads.append(time.monotonic() - start)
        assert found == 1 - turn % 2, "what was written is there, and what was deleted is not"
        turn += 1
    out.put((writes, reads))


def reader(address: str, ready) -> None:
    """Begins to read the whole table, and says so; goes on slowly if nobody stops it."""
    client = Client(address)
    answers = client.read()
    next(answers)
    ready.send(None)
    for _ in answers:
        time.sleep(1)


def listener(address: str, who: int, ready) -> None:
    """Primary of its role, and does nothing with what it is told."""
    client = Client(address, f"listener-{who}")
    client.claim()
    ready.send(None)
    time.sleep(3600)


def work(address: str, count: int, seconds: float) -> tuple[list[float], list[float]]:
    """`count` clients that work at once: how long all their writes and reads took."""
    out, together = multiprocessing.Queue(), multiprocessing.Barrier(count)
    workers = [multiprocessing.Process(target=worker, args=(address, who, seconds, together, out)) for who in range(count)]
    for process in workers:
        process.start()
    writes, reads = [], []
    for _ in workers:
        one_writes, one_reads = out.get(timeout=seconds + 60)
        writes += one_writes
        reads += one_reads
    for process in workers:
        process.join()
        if process.exitcode:
            sys.exit(f"a client that works failed: {process.exitcode}")
    return writes, reads


class Stopped:
    """Clients that are stopped once each has begun."""

    def __init__(self, target, args):
        # A pipe each: one that is stopped must not hold a lock that others want.
        pipes = [multiprocessing.Pipe(duplex=False) for _ in args]
        self.processes = [
            multiprocessing.Process(target=target, args=(*each, ready)) for each, (_, ready) in zip(args, pipes)
        ]
        for process in self.processes:
            process.start()
        for process, (told, _) in zip(self.processes, pipes):
            if not told.poll(120):
                sys.exit("a client did not begin")
            os.kill(process.pid, signal.SIGSTOP)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.join()


def told(name: str, seconds: float, writes: list[float], reads: list[float], memory_kb: int) -> None:
    """A row."""

    def ms(values: list[float]) -> str:
        values = sorted(values)
        return f"{statistics.median(values) * 1e3:7.2f} {values[int(len(values) * 0.99)] * 1e3:8.2f} {values[-1] * 1e3:8.2f}"

    rate = len(writes) * BATCH / seconds
    print(f"{name:<44} {rate:>9,.0f} {ms(writes)} {ms(reads)} {memory_kb / 1024:>7.0f}", flush=True)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=str(ROOT / "target/release/sluice"))
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    ports = ["-i", "1@memory", "-i", "2@memory"]
    command = [arguments.sluice, "run", str(PROGRAM), *ports, "--grpc", "127.0.0.1:0"]
    log = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        lines = []
        for line in log.stdout:
            lines.append(line)
            if found := re.search(r"P4Runtime on (\S+),", line):
                break
        else:
            sys.exit("".join(lines))
        address = found.group(1)

        def memory_kb() -> int:
            status = Path(f"/proc/{log.pid}/status").read_text()
            return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))

        measure(arguments, address, memory_kb)
    finally:
        log.terminate()
        log.wait()


def measure(arguments, address: str, memory_kb) -> None:
    """All cases."""
    filler = Client(address, "filler")
    filler.claim()
    for first in range(0, arguments.entries, 1000):
        filler.write(1 + first, min(1000, arguments.entries - first))
    print(f"{'':<44} {'':>9} {'a write of 100: median, 99 %, worst':^25} {'a read: the same, ms':^25}")
    print(f"{'beside':<44} {'updates/s':>9} {'ms':>7} {'':>8} {'':>8} {'ms':>7} {'':>8} {'':>8} {'MB':>7}")
    seconds = arguments.seconds

    def case(name: str, count: int = 1) -> None:
        told(name, seconds, *work(address, count, seconds), memory_kb())

    case("nobody else")
    with Stopped(reader, [(address,)] * STOPPED):
        case(f"{STOPPED} just stopped in the middle of reading all")
        case("the same, when that is over")
    with Stopped(listener, [(address, who) for who in range(STOPPED)]):
        case(f"{STOPPED} stopped with streams")
        with Packets(address):
            case("the same, and packets for all of them")
    case("nobody else, again")
    case(f"{MANY} that write and read", MANY)
    case("nobody else, again")
    found = sum(len(answer.entities) for answer in filler.read())
    if found != arguments.entries:
        sys.exit(f"{found} entries are there, {arguments.entries} were written")


class Packets:
    """Packet-outs that come back to all controllers, as fast as one client sends them."""

    def __init__(self, address: str):
        self.process = multiprocessing.Process(target=flood, args=(address,))

    def __enter__(self):
        self.process.start()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.join()


def flood(address: str) -> None:
    """Sends until it is ended."""
    client = Client(address, "flood")
    client.claim()
    packet = p4.StreamMessageRequest()
    packet.packet.payload = bytes(60)
    while True:
        while client.said.qsize() < 1000:
            client.said.put(packet)
        time.sleep(0.001)


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
