"""The trust tests: what a switch must bear, each with a bound, run one after the other; `docs/trust.md` shows the results.

    python3 bench/trust/run.py [--quick] [--publish] [--sluice PATH] [ROW,...]
    make trust TRUST='--quick restart,kills'

Each row prints what was measured beside its bound. `--quick` takes small counts, a few minutes in all, and says so in the result; what it
shows is that the row works and that the behaviour is right, not the figure of a thousand rounds. `--publish` writes the results into
`bench/trust/results.json`, row by row, and makes the table of `docs/trust.md` from it. Ends with 1 if a row failed.

Rows measure a release build. They need two processors and, for `vhost`, hugepages; a row that cannot run says why, and is no pass.
`tests/py/test_trust.py` runs every row with tiny counts.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import platform
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results.json"
PAGE = ROOT / "docs/trust.md"
BEGIN, END = "<!-- trust table: made by bench/trust/run.py -->", "<!-- end of the trust table -->"
ROUTER = ROOT / "examples/router/router.p4"
L2L3 = ROOT / "examples/l2l3/l2l3.p4"


class CannotRun(Exception):
    """This machine has not what the row needs."""


@dataclass
class Outcome:
    """What a row has measured, in words, and whether that is within its bound."""

    measured: str
    passed: bool


@dataclass
class Scale:
    """How much is done."""

    quick: bool
    tiny: bool

    def of(self, tiny, quick, full):
        return tiny if self.tiny else quick if self.quick else full


#: What the switch's benchmark says when no rate is without loss.
BUSY = "does something else use the worker's processor?"


def two_processors() -> None:
    """The worker's, and that of everything else."""
    if (os.cpu_count() or 1) < 2:
        raise CannotRun("one processor only")


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def command(sluice: str, *args: object, limit_s: float = 3600) -> str:
    done = subprocess.run([sluice, *map(str, args)], capture_output=True, text=True, timeout=limit_s, check=False, cwd=ROOT)
    if done.returncode != 0 and BUSY in done.stderr:
        raise CannotRun(f"the worker's processor has too much else to do: {done.stderr[-300:]}")
    if done.returncode != 0:
        raise RuntimeError(f"`sluice {' '.join(map(str, args))}` ended with {done.returncode}: {done.stdout[-400:]}{done.stderr[-800:]}")
    return done.stdout


class Switch:
    """A running switch; ready when it was made."""

    def __init__(self, sluice: str, *args: object, prefix=(), grpc="127.0.0.1:0"):
        self.log = tempfile.TemporaryFile("w+")
        words = [*prefix, sluice, "run", *map(str, args), "--grpc", grpc]
        self.process = subprocess.Popen(words, stdout=self.log, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
        deadline = time.monotonic() + 120
        while not (found := re.search(r"P4Runtime on ([^ ,\n]+)", self.text())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{words} is not ready: {self.text()[-800:]}")
            time.sleep(0.001)
        self.address = found[1]

    def text(self) -> str:
        # Not through the file's own position: the process writes there.
        return os.pread(self.log.fileno(), 1 << 20, 0).decode(errors="replace")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def resident_mb(self) -> float:
        return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())[1]) / 1024

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def restart(scale: Scale, sluice: str, folder: Path) -> Outcome:
    """`sluice restart` while a frame a millisecond passes: the longest pause of frames and of P4Runtime's answers in each round."""
    if os.geteuid() != 0:
        raise CannotRun("network namespaces need root")
    entries, rounds = scale.of(500, 100_000, 100_000), scale.of(2, 10, 100)
    lines, space, address = folder / "entries", f"trust{os.getpid()}", "127.0.0.1:9559"
    station = "add switching meta.vid:1 hdr.ethernet.dstAddr:{:#x} forward(port:2)\n"
    lines.write_text("".join(station.format(0x020000010000 + i) for i in range(entries)))
    inside = ("ip", "netns", "exec", space)

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def measure(*words: str) -> subprocess.Popen:
        command = [*inside, sys.executable, str(Path(__file__).with_name("gap.py")), *words]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    ip("netns", "add", space)
    pid, measuring = 0, []
    try:
        ip("-n", space, "link", "set", "lo", "up")
        for n in (1, 2):
            ip("-n", space, "link", "add", f"host{n}", "type", "veth", "peer", "name", f"port{n}")
            ip("-n", space, "link", "set", f"host{n}", "up")
            ip("-n", space, "link", "set", f"port{n}", "up")
        arguments = ("examples/l2/l2.p4", "-i", "1@port1", "-i", "2@port2", "--state", folder / "state", "--entries", lines)
        switch = Switch(sluice, *arguments, "--admin", folder / "admin", prefix=inside, grpc=address)
        pid = switch.process.pid
        measuring = [measure("packets", "host1", "host2", "02:00:00:01:00:01"), measure("control", address)]
        time.sleep(1)
        intervals = []
        for _ in range(rounds):
            begin = time.monotonic()
            done = json.loads(command(sluice, "restart", "--json", "--admin", folder / "admin"))
            pid = done["pid"]
            time.sleep(0.5)
            intervals.append((begin, time.monotonic()))
        shown = command(sluice, "table", "show", "switching", "--admin", folder / "admin")
        if (came := shown.count("forward(port:")) != entries:
            return Outcome(f"{came} of {entries} entries came over", False)
        pauses = [one.communicate("", timeout=60)[0] for one in measuring]
        longest = []
        for text in pauses:
            found = [tuple(map(float, line.split())) for line in text.splitlines()]
            longest.append([max((1000 * (e - b) for b, e in found if begin <= e and b <= end), default=0) for begin, end in intervals])
    finally:
        for one in measuring:
            one.kill()
            one.wait()
        if pid:
            os.kill(pid, signal.SIGTERM)
        ip("netns", "del", space)
    of_packets, of_control = ((percentile(values, 0.5), percentile(values, 0.99)) for values in longest)
    measured = f"{rounds} restarts with {entries:,} entries: no packet for {of_packets[0]:.0f} ms (median) and {of_packets[1]:.0f} ms (99 %), "
    measured += f"no answer of P4Runtime for {of_control[0]:.0f} and {of_control[1]:.0f} ms"
    return Outcome(measured, max(of_packets[1], of_control[1]) <= 100)


def start(scale: Scale, sluice: str, folder: Path) -> Outcome:
    """From SIGTERM until the process that is started then has its entries back and P4Runtime answers; packets go a little earlier."""
    entries, rounds = scale.of(500, 100_000, 100_000), scale.of(2, 10, 100)
    program, lines, state = folder / "router.p4", folder / "entries", folder / "state"
    program.write_text(ROUTER.read_text().replace("size = 65536", "size = 131072"))
    route = "add ipv4_lpm hdr.ipv4.dstAddr:{}/32 set_nexthop(nexthop:{})\n"
    lines.write_text("".join(route.format(socket.inet_ntoa(struct.pack(">I", 0x0A000000 + i)), i % 60_000 + 1) for i in range(entries)))
    arguments = (program, "-i", "1@memory", "--state", state)
    switch = Switch(sluice, *arguments, "--entries", lines)
    blocked_ms = []
    try:
        for _ in range(rounds):
            begin = time.monotonic()
            switch.stop()
            switch = Switch(sluice, *arguments)
            blocked_ms.append((time.monotonic() - begin) * 1000)
            if f"{entries} entities back" not in switch.text():
                return Outcome(f"not all entries came back: {switch.text()[-300:]}", False)
    finally:
        switch.stop()
    p99 = percentile(blocked_ms, 0.99)
    median = percentile(blocked_ms, 0.5)
    return Outcome(f"{rounds} stops and starts with {entries:,} entries: median {median:.0f} ms, 99 % {p99:.0f} ms", p99 <= 1000)


def kills(scale: Scale, sluice: str, folder: Path) -> Outcome:
    """`kill -9` under four writers; every acknowledged batch must be there."""
    count = scale.of(1, 20, 1000)
    environment = dict(os.environ, SLUICE_KILLS=str(count), SLUICE_PROFILE=Path(sluice).parent.name)
    test = [sys.executable, "-m", "pytest", "-s", "-q", "tests/py/test_restart.py", "-k", "killed", "-p", "no:cacheprovider"]
    done = subprocess.run(test, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"(\d+) kills, (\d+) acknowledged batches all there.*median (\d+) ms, 99% (\d+) ms, worst (\d+) ms", done.stdout)
    if done.returncode != 0 or not found:
        return Outcome(f"the test failed: {done.stdout[-400:]}", False)
    killed, batches, median, p99, worst = map(int, found.groups())
    measured = f"{killed} kills, all {batches:,} acknowledged batches there; ready after {median} ms in the median, 99 % {p99} ms, worst {worst} ms"
    return Outcome(measured, worst <= 1000)


#: Requests of the vhost-user protocol that a front end begins with, and the flags of version 1.
GET_FEATURES, SET_OWNER, VERSION = 1, 3, 1


def hostile():
    """The module beside this one, however this one was loaded."""
    folder = str(Path(__file__).parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module("hostile")


def vhost(scale: Scale, sluice: str, folder: Path) -> Outcome:
    """Front ends that come and go: a third shares memory and starts rings, a third asks for features only, the others leave in the middle of
    a message."""
    count = scale.of(20, 200, 1000)
    path = folder / "vhost.sock"
    try:
        switch = Switch(sluice, ROUTER, "-i", f"1@vhost-server:{path}")
    except RuntimeError as error:
        raise CannotRun(f"no vhost-user port can be opened ({str(error).splitlines()[-1][-200:]})") from None
    try:
        chance = random.Random(1)

        def visit() -> float:
            """Milliseconds until it was answered; 0 for one that leaves in the middle of a message."""
            begin, kind = time.monotonic(), chance.randrange(3)
            leaves = kind == 1
            # The switch opens its socket again after each front end, and who came too early is turned away.
            while True:
                try:
                    if kind == 2:
                        guest = hostile().Guest(str(path), 256)
                        guest.fill(1, hostile().ACROSS)
                        guest.offer(1, 256)
                        guest.close()
                        return (time.monotonic() - begin) * 1000
                    with socket.socket(socket.AF_UNIX) as peer:
                        peer.settimeout(10)
                        peer.connect(str(path))
                        request = struct.pack("<III", GET_FEATURES, VERSION, 0)
                        peer.sendall(request[: chance.randint(1, 11)] if leaves else request)
                        if leaves:
                            return 0.0
                        if len(peer.recv(20, socket.MSG_WAITALL)) == 20:
                            peer.sendall(struct.pack("<III", SET_OWNER, VERSION, 0))
                            return (time.monotonic() - begin) * 1000
                except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
                    pass
                except struct.error:
                    # Closed instead of an answer.
                    pass
                if time.monotonic() - begin > 10:
                    raise RuntimeError("no answer within 10 s")
                time.sleep(0.001)

        for _ in range(min(20, count)):
            visit()
        time.sleep(0.2)
        before = switch.descriptors(), switch.resident_mb()
        answered = [ms for ms in (visit() for _ in range(count)) if ms]
        time.sleep(0.5)
        more_files, more_mb = switch.descriptors() - before[0], switch.resident_mb() - before[1]
        command(sluice, "stats", "--grpc", switch.address, limit_s=10)
    except (TimeoutError, RuntimeError, OSError) as error:
        return Outcome(f"it hangs: {error}", False)
    finally:
        switch.stop()
    measured = f"{count} front ends, answered within {max(answered, default=0):.0f} ms; {more_files:+} descriptors, {more_mb:+.1f} MB"
    return Outcome(measured, more_files <= 2 and more_mb <= 8)


@dataclass
class Side:
    """Turns of one kind: with writes, or without."""

    packets: int = 0
    lost: int = 0
    beside: int = 0
    turns: int = 0
    with_loss: int = 0

    def add(self, cells: list[str]) -> None:
        """A row of the switch's benchmark."""
        packets, lost, others = int(cells[7]), int(cells[8]), int(cells[9])
        beside = min(lost, others)
        with_loss, turns = map(int, cells[13].split(" of "))
        self.packets, self.lost, self.beside = self.packets + packets, self.lost + lost - beside, self.beside + beside
        self.turns, self.with_loss = self.turns + turns, self.with_loss + with_loss

    def words(self) -> str:
        return f"{self.lost} lost of {self.packets / 1e6:.1f} million packets, in {self.with_loss} of {self.turns} turns"


class Loaded:
    """Turns with writes, and turns without.

    The machine itself loses packets. It is a virtual one; its host takes the processor away, or answers a missing page of the host's, for longer
    than a ring of 4,096 packets lasts (a millisecond), and for minutes its memory is slower than when the no-loss rate was searched. Part of that is
    told by the kernel as time of others (see `apart`), most is not, and it happens more often while both processors are busy. So every turn with
    writes is followed by one without, as long, at the same rate, in the kind of code that most packets of it met, while another switch in another
    process is written in the same way on the other processor: whatever the machine does hits both alike. Only what turns with writes lose more often is the
    switch's. A row passes if they lose nothing, or if, in pairs of turns, the one with writes is not the one that lost more packets so often that
    chance would do so in less than `CHANCE` of all runs (sign test, one-sided). Both sides are in the result.
    """

    def __init__(self) -> None:
        self.writes, self.none = Side(), Side()
        self.more = self.fewer = 0
        self.slowest: float | None = None

    def run(self, sluice: str, fill: int, share: float, phases: str, proof: int, turn: float, *more: object) -> Loaded:
        """Another run, added to those before."""
        text = command(
            sluice, "bench", L2L3, "--control", "--packets", "bench/control/l2l3.packets", "--entries", "bench/control/l2l3.entries",
            "--out-ports", 2, "--cores", "1,0", "--fill", f"switching={fill}", "--fill", f"routing={fill}", "--phases", phases,
            "--share", share, "--ring", 4096, "--proof", proof, "--turns", turn, *more,
        )  # fmt: skip
        before = self.writes.packets
        for line in text.splitlines():
            cells = re.split(r"\s{2,}|[│┆|]", line.strip("│┆| "))
            cells = [cell.strip() for cell in cells if cell.strip()]
            if len(cells) == 14 and cells[0] in ("switching", "routing"):
                (self.none if cells[1].startswith("beside") else self.writes).add(cells)
                if cells[3] != "-":
                    rate = float(cells[3])
                    self.slowest = rate if self.slowest is None else min(self.slowest, rate)
        pairs = re.search(r"turns with writes lost more in (\d+) pairs, turns without in (\d+)", text)
        if self.writes.packets == before or not pairs:
            raise RuntimeError(f"no rows: {text[-600:]}")
        self.more, self.fewer = self.more + int(pairs[1]), self.fewer + int(pairs[2])
        return self

    def adds_loss(self) -> bool:
        return self.writes.lost > 0 and is_no_chance(self.more, self.fewer)

    def words(self) -> str:
        """What came out; raises if the machine lost packets in most turns without writes, since then nothing is seen of the switch's."""
        measured = f"with writes {self.writes.words()}; without {self.none.words()}; with writes more in {self.more} pairs of turns, without in {self.fewer}"
        measured += apart(self.writes.beside + self.none.beside)
        if 2 * self.none.with_loss > self.none.turns:
            raise CannotRun(f"packets are lost without writes, too: {measured}")
        return measured


#: How often a switch that adds no loss may fail a row, at most.
CHANCE = 0.15


def is_no_chance(more: int, fewer: int) -> bool:
    """Whether of so many pairs in which both sides differ, the first side had more too often for chance."""
    pairs = more + fewer
    return sum(math.comb(pairs, k) for k in range(more, pairs + 1)) / 2**pairs < CHANCE


def apart(beside: int) -> str:
    """What is said of packets that were lost because of other programs."""
    return f", {beside} more in the millisecond after another program had the worker's processor" if beside else ""


def updates(scale: Scale, sluice: str, folder: Path) -> Outcome:
    """10,000 updates a second, with the table read ten times a second, and then the stricter thing: writes and reads as fast as they are
    answered."""
    fill, proof = scale.of(1_000, 50_000, 200_000), scale.of(1, 1, 4)
    paced = Loaded().run(sluice, fill, 0.95, "insert,modify,delete", proof, scale.of(0.1, 1, 2), "--updates", 100, "--write-rate", 10_000, "--polls", 10)
    fill = scale.of(2_000, 100_000, 1_000_000)
    full = Loaded().run(sluice, fill, 0.95, "insert,read,modify,read,delete", proof, scale.of(0.1, 0.5, 1))
    measured = f"{paced.words()}; as fast as the switch answers: {full.words()}; at least {full.slowest:,.0f},000 entries/s in each phase"
    return Outcome(measured, not paced.adds_loss())


def soak(scale: Scale, sluice: str, folder: Path) -> Outcome:
    """The same for long, at 90 %: half of the time with writes."""
    seconds, fill = scale.of(1, 30, 3600), scale.of(2_000, 100_000, 500_000)
    begin, all_of_it = time.monotonic(), Loaded()
    while time.monotonic() - begin < seconds:
        all_of_it.run(sluice, fill, 0.9, "insert,modify,read,modify,delete", 1, scale.of(0.1, 0.5, 1))
        print(f"  {time.monotonic() - begin:.0f} s: {all_of_it.writes}, {all_of_it.none}, {all_of_it.more}:{all_of_it.fewer}", file=sys.stderr, flush=True)
    return Outcome(f"{time.monotonic() - begin:.0f} s: {all_of_it.words()}", not all_of_it.adds_loss())


def swaps(scale: Scale, sluice: str, folder: Path) -> Outcome:
    """Another program under full load, there and back."""
    count = scale.of(3, 50, 1000)
    entries, packet, changed = folder / "entries", folder / "packets", folder / "changed.p4"
    shutil.copy(ROUTER, folder / "router.p4")
    entries.write_text((ROOT / "examples/router/router.stf").read_text())
    lines = [line for line in entries.read_text().splitlines() if line.startswith("packet ")]
    entries.write_text("\n".join(line for line in entries.read_text().splitlines() if re.match(r"(add|setdefault|mc_|mirroring)", line)) + "\n")
    packet.write_text(lines[0] + "\n")
    changed.write_text(ROUTER.read_text().replace("size = 65536", "size = 32768"))
    arguments = ["bench", ROUTER, "--entries", entries, "--packets", packet, "--swap", changed, "--swaps", count, "--swap-pause-ms", 1]
    text = command(sluice, *arguments, "--out-ports", "1,2,3,4")
    found = re.search(r"swaps: (\d+) sent, (\d+) lost; worst gap between packets ([\d.]+) ms", text)
    sent, lost, gap = int(found[1]), int(found[2]), float(found[3])
    return Outcome(f"{count} changes, {sent / 1e6:.1f} million packets, {lost} lost, worst gap {gap:.0f} ms", lost == 0)


def cycles(text: str) -> list[float]:
    """The medians of the rows of `sluice bench`, in its order: code for the tables as they are comes first."""
    rows = [re.findall(r"\d+\.\d+", line) for line in text.splitlines() if line.startswith("│")]
    return [float(row[0]) for row in rows if row]


TUPLES = """#include <core.p4>
#include <v1model.p4>
header ipv4_t { bit<96> rest; bit<32> src; bit<32> dst; }
struct headers { ipv4_t ipv4; }
struct meta { }
parser P(packet_in p, out headers h, inout meta m, inout standard_metadata_t s) { state start { p.extract(h.ipv4); transition accept; } }
control V(inout headers h, inout meta m) { apply { } }
control I(inout headers h, inout meta m, inout standard_metadata_t s) {
    action send(bit<9> port) { s.egress_spec = port; }
    table rules { key = { h.ipv4.src: ternary; h.ipv4.dst: ternary; } actions = { send; } size = 65536; default_action = send(2); }
    apply { rules.apply(); }
}
control E(inout headers h, inout meta m, inout standard_metadata_t s) { apply { } }
control C(inout headers h, inout meta m) { apply { } }
control D(packet_out p, in headers h) { apply { p.emit(h.ipv4); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def tuples(scale: Scale, sluice: str, folder: Path) -> Outcome:
    """Tuple-space explosion (Csikor et al. 2019): each rule has a mask of its own, beside as many rules with one mask."""
    masks = scale.of(16, 1024, 1024)
    program, entries, packets = folder / "tuples.p4", folder / "entries", folder / "packets"
    program.write_text(TUPLES)
    chance = random.Random(2)
    frame = "00" * 12 + "{:08x}{:08x}" + "00" * 44
    packets.write_text("".join(f"packet 1 {frame.format(chance.getrandbits(32), chance.getrandbits(32))}\n" for _ in range(256)))
    measured = []
    for many in (False, True):
        lines = []
        for i in range(masks):
            prefix = (0xFFFFFFFF << (31 - i % 32)) & 0xFFFFFFFF, (0xFFFFFFFF << (31 - i // 32 % 32)) & 0xFFFFFFFF
            source, destination = prefix if many else (0xFFFFFFFF, 0xFFFFFFFF)
            values = chance.getrandbits(32) & source, chance.getrandbits(32) & destination
            lines.append(f"add rules {i + 1} h.ipv4.src:{values[0]:#010x}&&&{source:#010x} h.ipv4.dst:{values[1]:#010x}&&&{destination:#010x} send(port:1)")
        entries.write_text("\n".join(lines) + "\n")
        text = command(sluice, "bench", program, "--entries", entries, "--packets", packets, "--specialise", "contents,off", "--rounds", scale.of(1, 5, 21))
        measured.append(cycles(text))
    (one, one_generic), (different, different_generic) = measured
    words = f"{masks} rules: {one:.0f} cycles a packet with one mask, {different:.0f} with {masks} masks; in generic code, which runs "
    words += f"while rules change, {one_generic:.0f} and {different_generic:.0f}"
    return Outcome(words, max(different, different_generic) <= 10 * max(one, one_generic))


def flows(scale: Scale, sluice: str, folder: Path) -> Outcome:
    """Exact entries, one for each flow, written, read back and changed."""
    measured, worst = [], 0.0
    for count in scale.of([1_000], [100_000, 1_000_000], [1_000_000, 10_000_000]):
        program = folder / "flows.p4"
        program.write_text(L2L3.read_text().replace("size = 1048576", f"size = {max(count, 1024)}"))
        text = command(sluice, "bench", program, "-I", L2L3.parent, "--control", "--fill", f"switching={count}", "--phases", "insert,read,modify,delete")
        rates = [re.split(r"\s{2,}|[│┆|]", line.strip("│┆| ")) for line in text.splitlines() if "switching" in line]
        rates = [[cell.strip() for cell in row if cell.strip()] for row in rates]
        slowest = min(float(row[4].replace(",", "")) for row in rates)
        measured.append(f"{count:,}: at least {slowest:,.0f},000/s")
        worst = slowest if not worst else min(worst, slowest)
    return Outcome("; ".join(measured), worst >= 100)


def bare(scale: Scale, sluice: str, folder: Path) -> Outcome:
    """A host with nothing: an unprivileged user, no capabilities, no hugepages, 64 KB of locked memory."""
    folder.chmod(0o777)
    # Where anybody may read it.
    copy = folder / "sluice"
    shutil.copy(sluice, copy)
    copy.chmod(0o755)
    program = folder / "router.p4"
    program.write_text(ROUTER.read_text())

    prefix = ["prlimit", "--memlock=65536:65536"]
    if os.geteuid() == 0:
        prefix += ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
    for tool in prefix[0], *(["setpriv"] if os.geteuid() == 0 else []):
        if not shutil.which(tool):
            raise CannotRun(f"`{tool}` is missing")
    begin = time.monotonic()
    switch = Switch(str(copy), program, "-i", "1@memory", "--state", folder / "state", "--admin", folder / "admin.sock", prefix=prefix)
    ready = time.monotonic() - begin
    try:
        text = command(sluice, "table", "add", "ipv4_lpm hdr.ipv4.dstAddr:10.0.0.1/32 set_nexthop(nexthop:1)", "--grpc", switch.address)
    finally:
        switch.stop()
    return Outcome(f"ready after {ready * 1000:.0f} ms, takes writes and keeps them{text and ''}", switch.process.returncode == 0)


NOISE = "import array\na = array.array('Q', bytes(1 << 27))\nwhile True:\n    for i in range(0, len(a), 8): a[i] += 1\n"


def neighbour(scale: Scale, sluice: str, folder: Path) -> Outcome:
    """A process beside it that writes 128 MB over and over, on the other processor: what it costs a packet."""
    two_processors()
    rounds = scale.of(1, 5, 21)
    arguments = ["bench", "examples/l2l3/l2l3.p4", "--entries", "bench/control/l2l3.entries", "--packets", "bench/control/l2l3.packets"]

    def measure() -> float:
        done = subprocess.run(["taskset", "-c", "1", sluice, *arguments, "--specialise", "off", "--rounds", str(rounds)], capture_output=True, text=True, check=True, cwd=ROOT)
        return cycles(done.stdout)[-1]

    alone = measure()
    noise = subprocess.Popen(["taskset", "-c", "0", sys.executable, "-c", NOISE])
    try:
        time.sleep(0.5)
        beside = measure()
    finally:
        noise.kill()
        noise.wait()
    return Outcome(f"{alone:.0f} cycles a packet alone, {beside:.0f} beside it: {100 * (beside / alone - 1):+.0f} %", beside <= 1.25 * alone)


#: Who a frame is for is in the last byte of its address.
BY_ADDRESS = """#include <core.p4>
#include <v1model.p4>
header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers { ethernet_t ethernet; }
struct meta { }
parser P(packet_in p, out headers h, inout meta m, inout standard_metadata_t s) { state start { p.extract(h.ethernet); transition accept; } }
control V(inout headers h, inout meta m) { apply { } }
control I(inout headers h, inout meta m, inout standard_metadata_t s) {
    action forward(bit<9> port) { s.egress_spec = port; }
    action drop() { mark_to_drop(s); }
    table stations { key = { h.ethernet.dst: exact; } actions = { forward; drop; } size = 1024; default_action = drop(); }
    apply { stations.apply(); }
}
control E(inout headers h, inout meta m, inout standard_metadata_t s) { apply { } }
control C(inout headers h, inout meta m) { apply { } }
control D(packet_out p, in headers h) { apply { p.emit(h.ethernet); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""

STEP = re.compile(
    r"step (\d+): (\d+) packets, (\d+) lost, (\d+) of them beside others; calm from ([\d.]+) ms on; ring empty after ([\d.]+ ms|never); "
    r"longest wait ([\d.]+) ms"
)


@dataclass
class Step:
    """What `sluice bench --steps` says of a step."""

    packets: int
    lost: int
    beside: int
    calm_ms: float
    empty_ms: float
    wait_ms: float

    @classmethod
    def of(cls, line: str) -> Step:
        found = STEP.match(line)
        if not found:
            raise RuntimeError(f"no step: {line}")
        _, packets, lost, beside, last, empty, wait = found.groups()
        empty_ms = float("inf") if empty == "never" else float(empty.split()[0])
        return cls(int(packets), int(lost), min(int(lost), int(beside)), float(last), empty_ms, float(wait))


#: How much of what is sent may be forwarded if it is an overload, and how often one is tried: other programs and pauses of the machine make the
#: no-loss rate lower than what the worker forwards, so more is sent the next time.
OVERLOADED, OVERLOAD_TRIES = 0.85, 3


def overload(scale: Scale, sluice: str, folder: Path) -> Outcome:
    """150 % of the no-loss rate or of what is forwarded, and then 90 %, again and again: from then on until no packet is lost and the ring is empty.

    A second step of 90 % follows each, which has no overload before it: what is lost there is the machine's, and steps are compared in pairs as
    turns are (see `Loaded`).
    """
    two_processors()
    rounds, seconds = scale.of(2, 5, 20), scale.of(0.1, 1, 1)
    share = 1.5
    arguments = ["--control", "--packets", "bench/control/l2l3.packets", "--entries", "bench/control/l2l3.entries", "--out-ports", 2]
    for _ in range(OVERLOAD_TRIES):
        sent = 100 * share
        steps = ",".join(f"{share:.2f}:{seconds},0.9:{seconds},0.9:{seconds}" for _ in range(rounds))
        text = command(sluice, "bench", L2L3, *arguments, "--ring", 4096, "--proof", 1, "--cores", "1,0", "--steps", steps)
        taken = [Step.of(line) for line in text.splitlines() if STEP.match(line)]
        above, below, calm = taken[::3], taken[1::3], taken[2::3]
        delivered = 1 - sum(step.lost for step in above) / max(sum(step.packets for step in above), 1)
        if delivered <= OVERLOADED:
            break
        # 150 % of what was forwarded.
        share *= 1.5 * delivered
    if len(taken) != 3 * rounds:
        return Outcome(f"not all steps were taken: {text[-600:]}", False)
    if delivered > OVERLOADED:
        raise CannotRun(f"{100 * delivered:.0f} % of {sent:.0f} % of what was found as the no-loss rate is forwarded: the machine was busier while that was searched")
    recovered, others = ([max(step.calm_ms, step.empty_ms) for step in steps] for steps in (below, calm))
    later, more, fewer = sum(others_ms > 100 for others_ms in others), 0, 0
    for with_overload, without in zip(recovered, others):
        more, fewer = more + (with_overload > max(without, 100)), fewer + (without > max(with_overload, 100))
    lost, beside = sum(step.lost - step.beside for step in below), sum(step.beside for step in below + calm)
    measured = f"{rounds} times {seconds} s at {sent:.0f} %: {100 * delivered:.0f} % of it forwarded; "
    measured += f"no loss and an empty ring {percentile(recovered, 0.5):.1f} ms after the load fell to 90 %, {max(recovered):.1f} ms at worst, for a tenth of a second at least; "
    measured += f"later than 100 ms {sum(ms > 100 for ms in recovered)} times, and {later} times in as long at 90 % without an overload before; "
    measured += f"in all of the time at 90 % {lost} lost behind an overload, {sum(step.lost - step.beside for step in calm)} without{apart(beside)}"
    if max(recovered) > 100 and 2 * later > rounds:
        raise CannotRun(f"packets are lost without an overload, too: {measured}")
    return Outcome(measured, max(recovered) <= 100 or not is_no_chance(more, fewer))


#: What others send in the row `guests`, as a part of the no-loss rate. Beside one other port half of the worker's time is theirs, and packets cost them
#: somewhat more than when the no-loss rate was searched, because the other port's work has the caches, too.
OTHERS_SHARE = 0.4


#: The step in which a worker meets for the first time a guest that holds it up.
FIRST_HOLES = "holes for the first time"


def guests(scale: Scale, sluice: str, folder: Path) -> Outcome:
    """One worker, one port whose packets come by the clock, and two at which vhost-user guests attack.

    One of these is `isolated` and has the guest that punches holes into its memory, which then is the thread's own to wait for. The same
    attack on the other port holds up the worker once: that step is told and has no bound; the one behind it has.
    """
    two_processors()
    seconds, path, isolated = scale.of(0.3, 3, 20), folder / "guest.sock", folder / "isolated.sock"
    program, entries, packets = folder / "guests.p4", folder / "entries", folder / "packets"
    program.write_text(BY_ADDRESS)
    entries.write_text("".join(f"add stations h.ethernet.dst:0x02000000000{i} forward(port:{i})\n" for i in (1, 2, 3)))
    packets.write_text("packet 1 020000000002020000000001" + "88b5" + "00" * 46 + "\n")
    # Each with its name here, what it does, and to which port.
    steps = [("none", "none", path), *((name, name, path) for name in hostile().ATTACKS if name != "holes")]
    steps += [("holes at an isolated port", "holes", isolated), (FIRST_HOLES, "holes", path), ("holes after that", "holes", path)]
    attacks = [name for name, _, _ in steps]
    arguments = [program, "--control", "--packets", packets, "--entries", entries, "--out-ports", 2, "--ring", 65_536, "--proof", 1]
    arguments += ["--cores", "1,0", "--steps", ",".join(f"{OTHERS_SHARE}:{seconds}" for _ in attacks), "--beside", f"3@vhost-server:{path}"]
    arguments += ["--beside", f"4@vhost-server:{isolated},isolated"]
    words = [sluice, "bench", *map(str, arguments)]
    found: dict[str, tuple[Step, int]] = {}
    with tempfile.TemporaryFile("w+") as log:
        bench = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, bufsize=1)
        attacker = None
        try:
            for line in bench.stdout:
                if "begins" in line:
                    _, name, target = steps[len(found)]
                    if name != "none":
                        attack = [sys.executable, str(Path(__file__).parent / "hostile.py"), str(target), name, str(seconds + 0.3)]
                        # Where the worker is not.
                        attacker = subprocess.Popen(["taskset", "-c", "0", *attack], stdout=subprocess.PIPE, text=True)
                        time.sleep(0.3)
                    bench.stdin.write("\n")
                elif STEP.match(line):
                    turns = int(attacker.communicate(timeout=60)[0].split()[0]) if attacker else 0
                    found[attacks[len(found)]] = (Step.of(line), turns)
                    attacker = None
        finally:
            for process in (attacker, bench):
                if process and process.poll() is None and process is not bench:
                    process.kill()
            bench.stdin.close()
            ended = bench.wait(timeout=60)
        if ended != 0 or len(found) != len(attacks):
            log.seek(0)
            error = log.read()[-600:]
            if BUSY in error:
                raise CannotRun(f"the worker's processor has too much else to do: {error[-300:]}")
            if "hugepages" in error or "DPDK" in error:
                raise CannotRun(f"no vhost-user port can be opened: {error[-200:]}")
            return Outcome(f"the switch ended with {ended} after {list(found)}: {error}", False)
    if idle := [name for name, (_, turns) in found.items() if name != "none" and turns == 0]:
        return Outcome(f"nothing was attacked by {', '.join(idle)}", False)
    share = {name: (step.lost - step.beside) / step.packets for name, (step, _) in found.items()}
    told = [f"{name} {100 * share[name]:.2g} % and {step.wait_ms:.2f} ms" for name, (step, _) in found.items()]
    million = sum(step.packets for step, _ in found.values()) / 1e6
    measured = f"{million:.0f} million packets of others, at {100 * OTHERS_SHARE:.0f} % of the no-loss rate; lost, and longest wait, beside each attack: {', '.join(told)}"
    base = found["none"][0].wait_ms
    bounded = [name for name in attacks if name != FIRST_HOLES]
    # Or nothing was shown about the steps beside it.
    was_held_up = found[FIRST_HOLES][0].wait_ms > base + 1
    return Outcome(measured, was_held_up and all(share[name] <= 0.01 and found[name][0].wait_ms <= base + 1 for name in bounded))


def ports(scale: Scale, sluice: str, folder: Path) -> Outcome:
    """A test of crate `datapath`, in the profile that the switch was built in: veth and TAP ports come and go while two others exchange packets."""
    if os.geteuid() != 0:
        raise CannotRun("it needs root, for a network namespace of its own")
    changes = scale.of(20, 500, 10_000)
    environment = dict(os.environ, SLUICE_PORT_CHANGES=str(changes), SLUICE_PROFILE=Path(sluice).parent.name)
    done = subprocess.run([ROOT / "scripts/trust-ports", str(changes)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    pair = r"\((\d+), (\d+), (\d+)\)"
    found = re.search(rf"(\d+) changes, (\d+) packets, longest ([\d.]+)(s|ms|µs), (\w+ \S+): {pair} -> {pair}", done.stderr)
    if done.returncode != 0 or not found:
        return Outcome(f"the test failed: {done.stdout[-200:]}{done.stderr[-400:]}", False)
    count, packets, longest, unit, step, *rest = found.groups()
    before, after = [int(n) for n in rest[:3]], [int(n) for n in rest[3:]]
    files, maps, kilobytes = (b - a for a, b in zip(before, after))
    measured = f"{int(count):,} ports added and removed, {int(packets) / 1e6:.1f} million packets of others, 0 lost; the longest step {float(longest):.0f} {unit} ({step}); "
    return Outcome(measured + f"{files:+} descriptors, {maps:+} mappings, {kilobytes / 1024:+.1f} MB", True)


#: Name: what, bound, function. A row without a function is asked for and not built; its third part says what is missing.
ROWS: dict[str, tuple[str, str, object]] = {
    "restart": ("planned restart (`sluice restart`) while packets pass, 100,000 entries", "99 % within 100 ms", restart),
    "start": ("stop and start, 100,000 entries", "99 % within 1 s", start),
    "kills": ("1,000 × `kill -9` under writes", "nothing acknowledged lost, ready within 1 s", kills),
    "vhost": ("1,000 vhost-user front ends come and go", "no hang; at most 2 descriptors and 8 MB more", vhost),
    "updates": ("10,000 updates and 10 reads of the table a second, packets at 95 % of the no-loss rate", "no packet lost that is not lost without writes", updates),
    "swaps": ("1,000 changes of the program under full load", "no packet lost", swaps),
    "tuples": ("tuple-space explosion, 1,024 masks", "at most 10 times the cycles of one mask", tuples),
    "flows": ("1 and 10 million flows", "at least 100,000 a second in every phase", flows),
    "soak": ("an hour of writes at 90 % of the no-loss rate", "no packet lost that is not lost without writes", soak),
    "bare": ("a host with no right, no hugepage, 64 KB of locked memory", "runs, takes writes", bare),
    "neighbour": ("a neighbour that writes memory all the time", "at most 25 % more cycles a packet", neighbour),
    "overload": ("overload at 150 % of the no-loss rate", "recovers within 100 ms", overload),
    "guests": ("hostile guests beside others on one worker", "others lose at most 1 %, and wait at most 1 ms longer", guests),
    "ports": ("10,000 port adds and removes", "no packet of others lost, nothing left behind", ports),
}


def machine(sluice: str, build: str) -> str:
    """What it was measured on, and what else the machine did."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return f"{model[1] if model else platform.machine()}, {os.cpu_count()} CPUs, {memory} GB, Linux {platform.release()}; {Path(sluice).parent.name} build of {build or head}; load {os.getloadavg()[0]:.0f}"


def table(results: dict) -> str:
    """The table of the page."""
    lines = ["| row | what | bound | measured | |", "| --- | --- | --- | --- | --- |"]
    for name, (what, bound, body) in ROWS.items():
        result = results.get(name)
        if not callable(body):
            measured, verdict = f"not built: {body}", "**open**"
        elif result is None:
            measured, verdict = "not measured yet", "**open**"
        else:
            measured = result["measured"] + (" (`--quick`)" if result["quick"] else "")
            verdict = {True: "pass", False: "**fail**", None: "**cannot run**"}[result["passed"]]
        lines.append(f"| `{name}` | {what} | {bound} | {measured} | {verdict} |")
    for machine_name in sorted({result["machine"] for result in results.values()}):
        rows = ", ".join(f"`{name}`" for name in ROWS if name in results and results[name]["machine"] == machine_name)
        lines += ["", f"Measured on: {machine_name}: {rows}."]
    return "\n".join(lines)


def publish(results: dict) -> None:
    """Writes the results and the page's table."""
    RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}")


def main() -> int:
    """Runs the rows that were named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", default="", metavar="ROW,...", help=f"of {', '.join(ROWS)}; all")
    parser.add_argument("--quick", action="store_true", help="small counts")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--publish", action="store_true", help="write results.json and docs/trust.md")
    parser.add_argument("--sluice", default=str(ROOT / "target/release/sluice"))
    parser.add_argument("--build", default="", help="what the binary was built from, if not this commit")
    arguments = parser.parse_args()
    names = [name for name in arguments.rows.split(",") if name] or list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"there is no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    if not Path(arguments.sluice).exists():
        parser.error(f"{arguments.sluice} is missing: cargo build --release --bin sluice")
    scale = Scale(arguments.quick or arguments.tiny, arguments.tiny)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    print(machine(arguments.sluice, arguments.build), flush=True)
    failed = 0
    for name in names:
        what, bound, body = ROWS[name]
        if not callable(body):
            print(f"{name:10} open         {what}: {body}", flush=True)
            continue
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="trust-") as folder:
            try:
                outcome = body(scale, arguments.sluice, Path(folder))
                measured, passed = outcome.measured, outcome.passed
            except CannotRun as why:
                measured, passed = str(why), None
            except (RuntimeError, subprocess.SubprocessError) as error:
                measured, passed = str(error)[:600], False
        verdict = {True: "pass", False: "FAIL", None: "cannot run"}[passed]
        failed += passed is False
        print(f"{name:10} {verdict:12} {what}; bound: {bound}; measured: {measured} ({time.monotonic() - begin:.0f} s)", flush=True)
        measured = measured.replace("|", "/").replace("\n", " ")
        results[name] = {"measured": measured, "passed": passed, "quick": scale.quick, "machine": machine(arguments.sluice, arguments.build)}
    if arguments.publish:
        # Another run may have published meanwhile.
        now = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        publish(now | {name: results[name] for name in names if name in results})
    return 1 if failed else 0


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(main())
