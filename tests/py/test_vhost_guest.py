"""A vhost-user guest that keeps to the protocol, and one that does not: the switch survives whatever is in shared memory.

The guest is this file: the front end's side of the vhost-user protocol and a driver for two split rings, on a memfd.
"""

import json
import mmap
import os
import select
import socket
import struct
import subprocess
import time

import pytest
from conftest import PATIENCE_S, ROOT, SLUICE, Daemon

GET_FEATURES, SET_FEATURES, SET_OWNER, SET_MEM_TABLE = 1, 2, 3, 5
SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE, GET_VRING_BASE, SET_VRING_KICK, SET_VRING_CALL = 8, 9, 10, 11, 12, 13
VERSION_1 = 1 << 32
#: Checksums may be left to the switch.
CSUM = 1 << 0
NEXT, WRITE, INDIRECT = 1, 2, 4
SIZE = 1 << 20
GUEST, USER = 0x10_0000, 0x7000_0000_0000
ENTRIES = 256
RX, TX = 0, 1
HEADER = 12
FRAME = bytes.fromhex("020000000001 020000000002 88b5") + bytes(range(46))


class Guest:
    """One memory region, a receive ring and a send ring for each of its pairs: those of pair `n` have 2n added to their numbers."""

    PAIRS = 1

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(path)
        self.begin()

    def begin(self) -> None:
        """Makes the rings, and tells the switch on the other side of our socket."""
        self.file = os.memfd_create("guest")
        os.ftruncate(self.file, SIZE)
        self.memory = mmap.mmap(self.file, SIZE)
        self.fds = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(4 * self.PAIRS)]
        self.avail = [0] * 2 * self.PAIRS
        self.seen = [0] * 2 * self.PAIRS
        self.negotiate()
        self.share()
        for ring in range(2 * self.PAIRS):
            self.start(ring)
        for pair in range(self.PAIRS):
            for i in range(32):
                self.offer(RX + 2 * pair, [(GUEST + 0x4_0000 + (32 * pair + i) * 2048, 2048, WRITE)])

    def negotiate(self) -> None:
        """Takes the one feature that we need."""
        self.tell(SET_OWNER)
        self.tell(GET_FEATURES)
        (offered,) = struct.unpack("<Q", self.answer())
        assert offered & VERSION_1 and offered & 1 << 34, "packed rings"
        assert not offered & (1 << 28 | 1 << 29), "indirect descriptors, event indices"
        self.tell(SET_FEATURES, struct.pack("<Q", VERSION_1 | CSUM))

    def share(self) -> None:
        """Tells the switch where our memory is."""
        self.tell(SET_MEM_TABLE, struct.pack("<IIQQQQ", 1, 0, GUEST, SIZE, USER, 0), [self.file])

    def start(self, ring: int, index: int | None = None) -> None:
        """Makes a ring run from an index, or from the one it is at."""
        at = USER + self.base(ring)
        self.tell(SET_VRING_NUM, struct.pack("<II", ring, ENTRIES))
        self.tell(SET_VRING_BASE, struct.pack("<II", ring, self.avail[ring] if index is None else index))
        self.tell(SET_VRING_ADDR, struct.pack("<IIQQQQ", ring, 0, at, at + 0x2000, at + 0x1000, 0))
        self.tell(SET_VRING_CALL, struct.pack("<Q", ring), [self.fds[ring]])
        self.tell(SET_VRING_KICK, struct.pack("<Q", ring), [self.fds[2 * self.PAIRS + ring]])

    def tell(self, request: int, payload: bytes = b"", fds: list[int] | None = None) -> None:
        """Sends a message."""
        socket.send_fds(self.socket, [struct.pack("<III", request, 1, len(payload)) + payload], fds or [])

    def answer(self) -> bytes:
        """The payload of an answer."""
        size = struct.unpack("<III", self.socket.recv(12, socket.MSG_WAITALL))[2]
        return self.socket.recv(size, socket.MSG_WAITALL)

    @staticmethod
    def base(ring: int) -> int:
        """Where a ring lies: descriptors, then the driver's part, then the device's."""
        return ring * 0x4000

    def offer(self, ring: int, chain: list[tuple[int, int, int]], first: int | None = None) -> None:
        """Puts a chain of descriptors (address, length, flags) into a ring."""
        head = (self.avail[ring] * 8) % ENTRIES if first is None else first
        for i, (address, length, flags) in enumerate(chain):
            more = NEXT if i + 1 < len(chain) else 0
            at = self.base(ring) + (head + i) % ENTRIES * 16
            self.memory[at : at + 16] = struct.pack("<QIHH", address, length, flags | more, (head + i + 1) % ENTRIES)
        self.publish(ring, head)

    def publish(self, ring: int, head: int) -> None:
        """Gives the switch a chain by its head."""
        at = self.base(ring) + 0x1000
        struct.pack_into("<H", self.memory, at + 4 + self.avail[ring] % ENTRIES * 2, head)
        self.avail[ring] = (self.avail[ring] + 1) & 0xFFFF
        struct.pack_into("<H", self.memory, at + 2, self.avail[ring])

    def returned(self, ring: int) -> list[tuple[int, int]]:
        """Heads and lengths that the switch gave back since the last call."""
        at = self.base(ring) + 0x2000
        (index,) = struct.unpack_from("<H", self.memory, at + 2)
        found = []
        while self.seen[ring] != index:
            found.append(struct.unpack_from("<II", self.memory, at + 4 + self.seen[ring] % ENTRIES * 8))
            self.seen[ring] = (self.seen[ring] + 1) & 0xFFFF
        return found

    def wait(self, ring: int, count: int) -> list[tuple[int, int]]:
        """Waits until the switch has given back `count` entries."""
        found = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} entries of ring {ring} came back"
            found += self.returned(ring)
            time.sleep(0.001)
        return found

    def send(self, frame: bytes, header: bytes = bytes(HEADER), pair: int = 0) -> None:
        """Sends a frame in one descriptor."""
        data, ring = header + frame, TX + 2 * pair
        at = (0x2_0000 if pair == 0 else 0x8_0000) + self.avail[ring] % 32 * 4096
        self.memory[at : at + len(data)] = data
        self.offer(ring, [(GUEST + at, len(data), 0)])

    def receive(self) -> bytes:
        """Waits for one frame, and gives its buffer back."""
        [(head, length)] = self.wait(RX, 1)
        return self.taken(head, length)

    def taken(self, head: int, length: int, ring: int = RX) -> bytes:
        """The frame in a buffer that the switch gave back; the buffer is offered again."""
        address = struct.unpack_from("<Q", self.memory, self.base(ring) + head * 16)[0]
        data = self.memory[address - GUEST : address - GUEST + length]
        self.offer(ring, [(address, 2048, WRITE)], head)
        assert data[:HEADER] == bytes(10) + b"\x01\x00", "no offloads, one buffer"
        return data[HEADER:]

    def close(self) -> None:
        """Goes away without a word."""
        self.socket.close()
        self.memory.close()
        for fd in [self.file, *self.fds]:
            os.close(fd)


@pytest.fixture(params=["", ",isolated"], ids=["by its worker", "isolated"])
def switch(tmp_path, request):
    """A switch that sends back what its one port receives, whoever serves that; its socket."""
    path = tmp_path / "guest.sock"
    entries = tmp_path / "entries.stf"
    entries.write_text("add dmac std.ingress_port:0 hdr.ethernet.dstAddr:02:00:00:00:00:01 forward(port:0)\n")
    program = ROOT / "bench/l2fwd/l2fwd.p4"
    daemon = Daemon(str(program), "-i", f"0@vhost-server:{path}{request.param}", "--entries", str(entries))
    yield daemon, str(path)
    assert daemon.stop() == 0, daemon.output


def link_is_up(daemon: Daemon) -> bool:
    """Whether the switch says that somebody is at its port."""
    command = [SLUICE, "stats", "--json", "--grpc", daemon.address]
    stats = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_S).stdout)
    return stats["ports"][0]["link_up"]


def echo(guest: Guest, frame: bytes = FRAME) -> None:
    """The switch is well: a frame comes back."""
    guest.send(frame)
    assert guest.receive() == frame
    guest.wait(TX, 1)


def test_frames_come_back_and_interrupts_are_sent(switch):
    guest = Guest(switch[1])
    for i in range(600):
        echo(guest, FRAME + bytes([i & 255]) * (i * 2))
    ready, _, _ = select.select([guest.fds[RX]], [], [], PATIENCE_S)
    assert ready, "the guest asked for interrupts"
    guest.close()


def test_a_partial_checksum_is_completed(switch):
    guest = Guest(switch[1])
    # The sum over everything from byte 14 on, stored at byte 20; the guest has put the pseudo header's sum there.
    frame = bytearray(FRAME)
    frame[20:22] = b"\x12\x34"
    guest.send(bytes(frame), struct.pack("<BBHHHHH", 1, 0, 0, 0, 14, 6, 0))
    total = sum(struct.unpack(f">{len(frame[14:]) // 2}H", frame[14:]))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    frame[20:22] = struct.pack(">H", ~total & 0xFFFF)
    assert guest.receive() == bytes(frame)
    guest.wait(TX, 1)
    # Outside the frame: dropped.
    guest.send(bytes(frame), struct.pack("<BBHHHHH", 1, 0, 0, 0, 14, 60, 0))
    guest.wait(TX, 1)
    echo(guest)
    guest.close()


def test_chains_of_descriptors(switch):
    guest = Guest(switch[1])
    guest.memory[0x3_0000 : 0x3_0000 + HEADER + len(FRAME)] = bytes(HEADER) + FRAME
    start = GUEST + 0x3_0000
    for cut in ([12], [5, 12, 13], [20, 40], list(range(1, 7))):
        ends = [*cut, HEADER + len(FRAME)]
        pieces = [(start + a, b - a, 0) for a, b in zip([0, *cut], ends)]
        guest.offer(TX, pieces)
        assert guest.receive() == FRAME
        guest.wait(TX, 1)
    guest.close()


def test_rings_that_lie_cost_the_guest_its_packets_only(switch):
    guest = Guest(switch[1])
    length = HEADER + len(FRAME)
    good = GUEST + 0x3_0000
    guest.memory[0x3_0000 : 0x3_0000 + length] = bytes(HEADER) + FRAME
    bad = [
        [(0, length, 0)],  # outside the memory
        [(GUEST + SIZE - 10, length, 0)],  # over its end
        [(2**64 - 8, length, 0)],  # around zero
        [(good, 0xFFFFFFFF, 0)],  # longer than the memory
        [(good, 60_000, 0)],  # longer than the port sends
        [(good, 0, 0)],  # nothing
        [(good, HEADER, 0)],  # a header only
        [(good, 7, 0)],  # not even that
        [(good, length, WRITE)],  # for the other direction
        [(good, length, INDIRECT)],  # not negotiated
        [(good, HEADER, 0), (1, 60, 0)],  # the second one outside
    ]
    for chain in bad:
        guest.offer(TX, chain)
        guest.wait(TX, 1)
        echo(guest)
    # A loop, a successor that does not exist, a head that does not exist.
    for following in (8, 0xFFFF):
        struct.pack_into("<QIHH", guest.memory, guest.base(TX) + 8 * 16, good, 1, NEXT, following)
        guest.publish(TX, 8)
        guest.wait(TX, 1)
        echo(guest)
    guest.publish(TX, 40_000)
    guest.wait(TX, 1)
    echo(guest)
    # Segmentation of what is no TCP.
    guest.send(FRAME, struct.pack("<BBHHHHH", 1, 1, 54, 100, 34, 16, 0))
    guest.wait(TX, 1)
    echo(guest)
    # Receive buffers of all those kinds: frames are lost, later ones are not.
    guest.close()


def test_receive_buffers_that_lie(switch):
    guest = Guest(switch[1])
    # First use the 32 good ones up: each comes back and is not offered again.
    for _ in range(32):
        guest.send(FRAME)
    guest.wait(RX, 32)
    bad = [(0, 2048, WRITE), (GUEST + SIZE - 10, 2048, WRITE), (GUEST + 0x4_0000, 2048, 0), (GUEST + 0x4_0000, 20, WRITE)]
    bad += [(GUEST + 0x4_0000, 5, WRITE), (GUEST + 0x4_0000, 0, WRITE)]
    for i, descriptor in enumerate(bad):
        guest.offer(RX, [descriptor], i)
        guest.send(FRAME)
        assert guest.wait(RX, 1) == [(i, 0)], descriptor
    guest.offer(RX, [(GUEST + 0x4_0000, 2048, WRITE)], 30)
    guest.send(FRAME)
    assert guest.receive() == FRAME
    guest.close()


def test_an_index_out_of_reach_stops_the_ring_until_it_is_right(switch):
    guest = Guest(switch[1])
    echo(guest)
    at = guest.base(TX) + 0x1000 + 2
    struct.pack_into("<H", guest.memory, at, (guest.avail[TX] + 300) & 0xFFFF)
    time.sleep(0.1)
    assert guest.returned(TX) == []
    struct.pack_into("<H", guest.memory, at, guest.avail[TX])
    echo(guest)
    guest.close()


def test_memory_may_be_mapped_anew_and_rings_stopped_while_packets_flow(switch):
    guest = Guest(switch[1])
    for _ in range(20):
        echo(guest)
        # A frame that is on its way meanwhile comes back, or is lost as with any port that is down for a moment; none after that is.
        guest.share()
        late = FRAME + b"on its way"
        guest.send(late)
        guest.tell(GET_FEATURES)
        guest.answer()
        guest.send(FRAME)
        frames = []
        while FRAME not in frames:
            frames += [guest.taken(head, length) for head, length in guest.wait(RX, 1)]
        assert frames in ([FRAME], [late, FRAME])
        guest.wait(TX, 2)
        # Stopped, a ring says where it is; and goes on from there.
        for ring in (RX, TX):
            guest.tell(GET_VRING_BASE, struct.pack("<II", ring, 0))
            assert struct.unpack("<II", guest.answer()) == (ring, guest.avail[ring] if ring == TX else guest.seen[RX])
        at = guest.avail[RX]
        for ring, index in ((RX, guest.seen[RX]), (TX, guest.avail[TX])):
            guest.avail[ring] = index
            guest.start(ring)
        guest.avail[RX] = at
    guest.close()


def test_guests_may_come_and_go(switch):
    for _ in range(5):
        guest = Guest(switch[1])
        echo(guest)
        guest.close()
        # The switch notices before it takes the next one.
        deadline = time.monotonic() + PATIENCE_S
        while link_is_up(switch[0]):
            assert time.monotonic() < deadline, "the link is up still"
            time.sleep(0.02)


def processes_of(daemon: Daemon) -> set[int]:
    """The processes of the switch's isolated ports."""
    found = set()
    for entry in os.listdir("/proc"):
        try:
            stat = open(f"/proc/{entry}/stat").read() if entry.isdigit() else ""
        except OSError:
            continue
        name, _, rest = stat.partition("(")[2].rpartition(") ")
        if name == "sluice-port" and int(rest.split()[1]) == daemon.process.pid:
            found.add(int(entry))
    return found


def wait_for(what: str, is_so) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.parametrize("idle", ["sleep", "interrupt"])
def test_an_isolated_port_outlives_its_process_and_is_removed_and_added(tmp_path, daemon, idle):
    path, program = tmp_path / "guest.sock", ROOT / "bench/l2fwd/l2fwd.p4"
    entries = tmp_path / "entries.stf"
    entries.write_text("add dmac std.ingress_port:0 hdr.ethernet.dstAddr:02:00:00:00:00:01 forward(port:0)\n")
    port = f"0@vhost-server:{path},isolated,queues=2"
    switch = daemon(str(program), "-i", port, "--entries", str(entries), "--workers", "2", "--idle", idle)
    note = lambda: json.loads(sluice("port", "show", "--json"))["ports"][0].get("note")

    def sluice(*words: str) -> str:
        command = [SLUICE, *words, "--grpc", switch.address]
        return subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_S, text=True).stdout

    guest = Guest(str(path))
    echo(guest)
    [process] = processes_of(switch)
    os.kill(process, 9)
    wait_for("its end is noticed", lambda: not link_is_up(switch))
    guest.close()
    wait_for("it is started again", lambda: processes_of(switch) - {process} and path.exists() and not note())
    guest = Guest(str(path))
    echo(guest)
    sluice("port", "remove", "0")
    assert not path.exists()
    wait_for("its process has ended", lambda: not processes_of(switch))
    guest.close()
    sluice("port", "add", port)
    guest = Guest(str(path))
    echo(guest)
    guest.close()
