"""Peers of shared-memory ports go on by themselves after the switch was killed and started again.

memif and virtio-user are DPDK's own (`dpdk-testpmd`, sending all the time); the guest that listens as QEMU does, with rings
half used, is that of `test_vhost_guest`.
"""

import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import time
import urllib.request

import pytest
from conftest import PATIENCE_S, ROOT, Daemon
from test_vhost_guest import FRAME, RX, TX, Guest

PROGRAM = str(ROOT / "bench/l2fwd/l2fwd.p4")
# Hugepages of 2 MB that a virtio-user guest takes: its memory must be shared.
HUGEPAGES = 64


class Switch:
    """A switch with one port that can be killed and started again as it was."""

    def __init__(self, tmp_path, *devices: str) -> None:
        # What comes in by one port goes out by the next; of one port alone, back.
        entries = tmp_path / f"entries-{len(devices)}.stf"
        line = "add dmac std.ingress_port:{} hdr.ethernet.dstAddr:02:00:00:00:00:01 forward(port:{})\n"
        count = len(devices)
        entries.write_text("".join(line.format(n, (n + 1) % count) for n in range(count)))
        ports = [argument for n, device in enumerate(devices) for argument in ("-i", f"{n}@{device}")]
        self.arguments = (PROGRAM, *ports, "--entries", str(entries))
        self.start()

    def start(self) -> None:
        self.daemon = Daemon(*self.arguments, "--metrics", "127.0.0.1:0")

    def kill(self) -> None:
        if not self.daemon.process.stdout.closed:
            self.daemon.process.kill()
            self.daemon.process.wait()
            self.daemon.process.stdout.close()

    def received(self) -> int:
        """Packets on the port."""
        with urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        found = re.search(r'^sluice_port_packets_total\{[^}]*direction="receive"[^}]*\} (\d+)', text, re.M)
        return int(found.group(1))

    def wait_for_packets(self, peer: subprocess.Popen) -> None:
        before = self.received()
        deadline = time.monotonic() + PATIENCE_S
        while self.received() < before + 100:
            survives(peer)
            assert time.monotonic() < deadline, f"the peer does not send: {self.received()}\n{self.daemon.output}"
            time.sleep(0.05)


@pytest.fixture
def switch(tmp_path):
    """Starts switches; none is left at the end."""
    started = []

    def start(*devices: str) -> Switch:
        started.append(Switch(tmp_path, *devices))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def peer(tmp_path):
    """Starts `dpdk-testpmd` with one port, which sends all the time."""
    if not shutil.which("dpdk-testpmd"):
        pytest.skip("dpdk-testpmd is not installed")
    started = []

    def start(device: str, *memory: str) -> subprocess.Popen:
        runtime = tmp_path / f"runtime-{len(started)}"
        runtime.mkdir()
        command = ["dpdk-testpmd", "--lcores", "0@(0-1),1@(0-1)", "--no-pci", "--no-telemetry"]
        command += [f"--file-prefix=peer{os.getpid()}", *memory, "--vdev", device, "--"]
        command += ["--forward-mode=txonly", "--auto-start", "--total-num-mbufs=4096", "--no-mlockall"]
        command += ["--disable-link-check"]
        # It ends at the end of its input.
        started.append(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "RUNTIME_DIRECTORY": str(runtime)},
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


class Crash(Exception):
    """DPDK's sender has touched the rings that its other thread unmaps when the switch has gone."""


def survives(peer: subprocess.Popen) -> None:
    """The peer goes on, which is what it does unless it loses a race of its own."""
    if peer.poll() == -signal.SIGSEGV:
        raise Crash
    assert peer.poll() is None, "the peer survives"


def kill_twice(one: Switch, process: subprocess.Popen) -> None:
    one.wait_for_packets(process)
    for _ in range(2):
        one.kill()
        time.sleep(0.3)
        survives(process)
        one.start()
        one.wait_for_packets(process)
    assert one.daemon.stop() == 0, one.daemon.output


def test_a_memif_server_takes_the_switch_back(tmp_path, switch, peer):
    path = tmp_path / "memif.sock"
    device = f"net_memif0,socket={path},socket-abstract=no,role=server"
    for attempts_left in reversed(range(5)):
        one = switch(f"memif:{path},role=client")
        try:
            return kill_twice(one, peer(device, "--no-huge", "--no-shconf", "-m", "128"))
        except Crash:
            assert attempts_left, "DPDK's memif server crashes each time"
            one.kill()
            path.unlink(missing_ok=True)


def test_a_memif_client_comes_back_to_the_switch(tmp_path, switch):
    """The client is a switch, too: DPDK's own does not try again."""
    memif, path = tmp_path / "memif.sock", str(tmp_path / "guest.sock")
    killed = switch(f"memif:{memif},role=server")
    other = switch(f"vhost-server:{path}", f"memif:{memif},role=client")
    guest = Guest(path)
    echoed_at_last(guest)
    for _ in range(2):
        killed.kill()
        killed.start()
        echoed_at_last(guest)
    guest.close()
    assert [one.daemon.stop() for one in (killed, other)] == [0, 0]


def echoed_at_last(guest: Guest) -> None:
    """A frame comes back, though some before it may have been lost."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        guest.send(FRAME)
        guest.wait(TX, 1)
        time.sleep(0.05)
        if back := guest.returned(RX):
            assert all(guest.taken(*used) == FRAME for used in back)
            return
        assert time.monotonic() < deadline, "nothing comes back"


def test_a_virtio_user_guest_that_listens_goes_on(tmp_path, switch, peer):
    free = 0
    with open("/proc/meminfo", encoding="ascii") as file:
        free = int(re.search(r"HugePages_Free:\s+(\d+)", file.read()).group(1))
    if free < HUGEPAGES:
        pytest.skip(f"a guest needs hugepages: {free} of {HUGEPAGES} are free")
    path = tmp_path / "guest.sock"
    device = f"net_virtio_user0,path={path},server=1,queues=1,queue_size=1024"
    process = peer(device, "--in-memory", "--single-file-segments", "--socket-mem", "128")
    # It waits for the switch, which connects whenever the socket is there.
    kill_twice(switch(f"vhost:{path}"), process)


class ListeningGuest(Guest):
    """As QEMU with `server=on`: the switch connects, and what it has not given back is there again for the next one."""

    def __init__(self, path: str) -> None:
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(path)
        self.listening.listen()
        self.listening.settimeout(PATIENCE_S)

    def accept(self) -> None:
        """Waits for the switch."""
        self.socket, _ = self.listening.accept()
        self.socket.settimeout(PATIENCE_S)

    def go_on(self) -> None:
        """Sets a new connection up, with rings as the switch before left them."""
        self.negotiate()
        self.share()
        for ring in (RX, TX):
            at = self.base(ring) + 0x2000
            self.start(ring, struct.unpack_from("<H", self.memory, at + 2)[0])


def test_a_guest_goes_on_with_its_rings(tmp_path, switch):
    path = str(tmp_path / "guest.sock")
    guest = ListeningGuest(path)
    one = switch(f"vhost:{path}")
    guest.accept()
    guest.begin()
    for round_number in range(3):
        for i in range(50):
            frame = FRAME + bytes([i])
            guest.send(frame)
            assert guest.receive() == frame
            guest.wait(TX, 1)
        one.kill()
        # What is sent while nobody is there waits in the ring.
        waiting = [FRAME + bytes([round_number, i]) for i in range(10)]
        for frame in waiting:
            guest.send(frame)
        one.start()
        guest.accept()
        guest.go_on()
        assert [guest.taken(*used) for used in guest.wait(RX, len(waiting))] == waiting
        guest.wait(TX, len(waiting))
    assert one.daemon.stop() == 0, one.daemon.output
    guest.close()


def test_a_guest_that_connects_finds_the_switch_again(tmp_path, switch):
    path = str(tmp_path / "guest.sock")
    one = switch(f"vhost-server:{path}")
    for _ in range(2):
        guest = Guest(path)
        echoed_at_last(guest)
        # The socket's file is left over.
        one.kill()
        guest.close()
        one.start()
    guest = Guest(path)
    echoed_at_last(guest)
    guest.close()
    assert one.daemon.stop() == 0, one.daemon.output
