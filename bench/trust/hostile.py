"""Front ends of a vhost-user port that attack: for the row `guests` of `run.py`.

    python3 bench/trust/hostile.py SOCKET ATTACK SECONDS

Each attack does one thing as often as it can until its time is over, and connects again when the switch has thrown it out. Prints how often
it did so. What others at the same worker notice is measured elsewhere; that none of this reaches beyond the attacker's own memory is
what `crates/pktio-vhost/tests/hostile.rs` tests.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import random
import select
import socket
import struct
import sys
import threading
import time

GET_FEATURES, SET_FEATURES, SET_OWNER, SET_MEM_TABLE = 1, 2, 3, 5
SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE, SET_VRING_KICK, SET_VRING_CALL = 8, 9, 10, 12, 13
VERSION_1 = 1 << 32
NEXT, WRITE = 1, 2
GUEST, USER = 0x10_0000, 0x7000_0000_0000
#: Of a ring that is as large as the protocol allows: descriptors, then the driver's part, then the device's.
AVAIL, USED, RING_BYTES = 0x8_0000, 0xA_0000, 0x10_0000
SIZE = 4 << 20
BUFFERS = 2 * RING_BYTES
RX, TX = 0, 1
HEADER = bytes(12)
#: To another port, and from the attacker to itself.
ACROSS = bytes.fromhex("020000000002 020000000003 88b5") + bytes(46)
LOOP = bytes.fromhex("020000000003 020000000003 88b5") + bytes(46)


class Guest:
    """One memory region with a receive ring and a send ring."""

    def __init__(self, path: str, entries: int, size: int = SIZE):
        self.entries, self.size = entries, size
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(5)
        self.file = os.memfd_create("guest")
        os.ftruncate(self.file, size)
        self.memory = mmap.mmap(self.file, size)
        self.events = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(4)]
        self.index = [0, 0]
        try:
            self.socket.connect(path)
            self.tell(SET_OWNER)
            self.tell(GET_FEATURES)
            self.answer()
            self.tell(SET_FEATURES, struct.pack("<Q", VERSION_1))
            self.tell(SET_MEM_TABLE, struct.pack("<IIQQQQ", 1, 0, GUEST, size, USER, 0), [self.file])
            for ring in (RX, TX):
                at = USER + ring * RING_BYTES
                self.tell(SET_VRING_NUM, struct.pack("<II", ring, entries))
                self.tell(SET_VRING_BASE, struct.pack("<II", ring, 0))
                self.tell(SET_VRING_ADDR, struct.pack("<IIQQQQ", ring, 0, at, at + USED, at + AVAIL, 0))
                self.tell(SET_VRING_CALL, struct.pack("<Q", ring), [self.events[ring]])
                self.tell(SET_VRING_KICK, struct.pack("<Q", ring), [self.events[2 + ring]])
        except OSError:
            self.close()
            raise

    def tell(self, request: int, payload: bytes = b"", files: list[int] | None = None) -> None:
        socket.send_fds(self.socket, [struct.pack("<III", request, 1, len(payload)) + payload], files or [])

    def answer(self) -> bytes:
        size = struct.unpack("<III", self.socket.recv(12, socket.MSG_WAITALL))[2]
        return self.socket.recv(size, socket.MSG_WAITALL)

    def is_connected(self) -> bool:
        readable, _, _ = select.select([self.socket], [], [], 0)
        try:
            return not readable or self.socket.recv(1) != b""
        except OSError:
            return False

    def descriptor(self, ring: int, i: int, address: int, length: int, flags: int, following: int = 0) -> None:
        struct.pack_into("<QIHH", self.memory, ring * RING_BYTES + i * 16, address, length, flags, following)

    def fill(self, ring: int, frame: bytes, length: int | None = None, flags: int = 0) -> None:
        """All descriptors of a ring lead to buffers with this frame, and all places of its list to descriptors."""
        data = HEADER + frame
        for i in range(self.entries):
            at = BUFFERS + i % 512 * 2048
            self.memory[at : at + len(data)] = data
            self.descriptor(ring, i, GUEST + at, length or len(data), flags)
            struct.pack_into("<H", self.memory, ring * RING_BYTES + AVAIL + 4 + 2 * i, i)

    def offer(self, ring: int, count: int) -> None:
        """Offers so many places beyond those that the switch has used."""
        (used,) = struct.unpack_from("<H", self.memory, ring * RING_BYTES + USED + 2)
        self.index[ring] = (used + count) & 0xFFFF
        struct.pack_into("<H", self.memory, ring * RING_BYTES + AVAIL + 2, self.index[ring])

    def close(self) -> None:
        self.socket.close()
        self.memory.close()
        for file in (self.file, *self.events):
            os.close(file)


def flood(guest: Guest, chance: random.Random) -> None:
    """A full send ring at any time, to another port."""
    guest.fill(TX, ACROSS)
    while guest.is_connected():
        for _ in range(200):
            guest.offer(TX, guest.entries)
        yield


def lies(guest: Guest, chance: random.Random) -> None:
    """Rings full of whatever: addresses, lengths, successors, heads and indices."""
    while guest.is_connected():
        for ring in (RX, TX):
            at = ring * RING_BYTES
            for _ in range(64):
                address = chance.choice([0, GUEST + SIZE - 10, 2**64 - 8, GUEST + chance.randrange(SIZE), chance.getrandbits(64)])
                length = chance.choice([0, 7, 12, 72, 60_000, 0xFFFFFFFF, chance.getrandbits(32)])
                guest.descriptor(ring, chance.randrange(guest.entries), address, length, chance.getrandbits(3), chance.getrandbits(16))
                struct.pack_into("<H", guest.memory, at + AVAIL + 4 + 2 * chance.randrange(guest.entries), chance.getrandbits(16))
            if chance.random() < 0.1:
                struct.pack_into("<H", guest.memory, at + AVAIL + 2, chance.getrandbits(16))
            else:
                guest.offer(ring, chance.randrange(guest.entries + 1))
        yield


def chains(guest: Guest, chance: random.Random) -> None:
    """Chains as long as the ring, of descriptors without a byte; and one that leads back into itself."""
    for ring in (RX, TX):
        for i in range(guest.entries):
            guest.descriptor(ring, i, GUEST + BUFFERS, 0, NEXT | (WRITE if ring == RX else 0), (i + 1) % guest.entries)
            struct.pack_into("<H", guest.memory, ring * RING_BYTES + AVAIL + 4 + 2 * i, chance.randrange(guest.entries))
    while guest.is_connected():
        for _ in range(200):
            guest.offer(TX, guest.entries)
            guest.offer(RX, guest.entries)
        yield


def stuck(guest: Guest, chance: random.Random) -> None:
    """Sends to itself and never takes a frame out of its receive ring."""
    guest.fill(TX, LOOP)
    guest.fill(RX, b"", 2048, WRITE)
    guest.offer(RX, guest.entries // 2)
    while guest.is_connected():
        for _ in range(200):
            guest.offer(TX, guest.entries)
        yield


def truncation(guest: Guest, chance: random.Random) -> None:
    """Takes the memory away while the switch reads it."""
    guest.fill(TX, ACROSS)
    guest.offer(TX, guest.entries)
    yield
    size = chance.choice([0, 4096, RING_BYTES, BUFFERS])
    os.ftruncate(guest.file, size)
    while guest.is_connected():
        if size == BUFFERS:
            # The rings are left, and the switch may have read all buffers before: it has to read them again.
            guest.offer(TX, guest.entries)
        time.sleep(0.001)
    yield


def punch(guest: Guest, at: int, count: int) -> None:
    """Frees pages of the shared file, without making it shorter; whoever touches one waits until all are freed."""
    punch_hole, keep_size = 2, 1
    if LIBC.fallocate(guest.file, punch_hole | keep_size, ctypes.c_long(at), ctypes.c_long(count)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def holes(guest: Guest, chance: random.Random) -> None:
    """Buffers all over a gigabyte, around which a hole is punched while the switch reads them; then the pages are allocated again."""
    for ring in (RX, TX):
        for i in range(guest.entries):
            at = BUFFERS + i * ((guest.size - BUFFERS) // guest.entries) // 4096 * 4096
            guest.memory[at : at + len(HEADER + ACROSS)] = HEADER + ACROSS
            guest.descriptor(ring, i, GUEST + at, len(HEADER + ACROSS) if ring == TX else 2048, 0 if ring == TX else WRITE)
            struct.pack_into("<H", guest.memory, ring * RING_BYTES + AVAIL + 4 + 2 * i, i)
    over = threading.Event()

    def offer() -> None:
        # The connection may end meanwhile.
        with contextlib.suppress(ValueError):
            while not over.is_set():
                guest.offer(TX, guest.entries)
                guest.offer(RX, guest.entries)

    offering = threading.Thread(target=offer)
    offering.start()
    try:
        while guest.is_connected():
            os.posix_fallocate(guest.file, BUFFERS, guest.size - BUFFERS)
            punch(guest, BUFFERS, guest.size - BUFFERS)
            yield
    finally:
        over.set()
        offering.join()


def flapping(guest: Guest, chance: random.Random) -> None:
    """Comes, starts its rings, and goes."""
    guest.fill(TX, ACROSS)
    guest.offer(TX, guest.entries)
    yield


def messages(guest: Guest, chance: random.Random) -> None:
    """Messages of every number with whatever in them, then one that stops in its middle."""
    for _ in range(chance.randrange(50)):
        guest.tell(chance.randrange(45), chance.randbytes(chance.choice([0, 4, 8, 16, 40])))
        yield
    guest.socket.sendall(struct.pack("<III", SET_FEATURES, 1, 8))
    time.sleep(0.01)
    yield


#: Its calls let other threads of this process run.
LIBC = ctypes.CDLL(None, use_errno=True)

#: Name: the attack, and the entries of its rings.
ATTACKS = {
    "flood": (flood, 256),
    "lies": (lies, 256),
    "chains": (chains, 32_768),
    "stuck": (stuck, 1024),
    "truncation": (truncation, 256),
    "flapping": (flapping, 256),
    "messages": (messages, 256),
    "holes": (holes, 4096),
}
#: Bytes that an attack shares, where these are not a few megabytes.
SIZES = {"holes": 1 << 30}


def main() -> None:
    """Attacks until the time is over."""
    path, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    attack, entries = ATTACKS[name]
    chance, end = random.Random(1), time.monotonic() + seconds
    turns = connections = 0
    while time.monotonic() < end:
        try:
            guest = Guest(path, entries, SIZES.get(name, SIZE))
        except OSError:
            # The switch is not done with the last one.
            time.sleep(0.001)
            continue
        connections += 1
        try:
            for _ in attack(guest, chance):
                turns += 1
                if time.monotonic() > end:
                    break
        except OSError:
            # Thrown out.
            pass
        finally:
            guest.close()
    print(turns, connections)


if __name__ == "__main__":
    main()
