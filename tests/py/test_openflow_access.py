"""Who may hold places of an OpenFlow listener, what is logged of them, and threads that stand still.

Run: cargo build -p sluice && pytest tests/py/test_openflow_access.py
"""

import contextlib
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import PATIENCE_S
from openflow_net import run, until

pytestmark = pytest.mark.skipif(not shutil.which("ovs-ofctl"), reason="ovs-ofctl is missing: scripts/setup")

#: OFPT_HELLO, and OFPT_ECHO_REQUEST with its answer, of OpenFlow 1.3.
HELLO, ECHO, ECHOED = bytes([4, 0, 0, 8, 0, 0, 0, 1]), bytes([4, 2, 0, 8, 0, 0, 0, 9]), bytes([4, 3, 0, 8, 0, 0, 0, 9])


def started(daemon, tmp_path, *args):
    switch = daemon("--openflow", "--mgmt", f"{tmp_path}/m", "-i", "1@memory", "--admin", "none", *args)
    return switch, int(re.search(r"controllers may connect to 127.0.0.1:(\d+)", switch.output).group(1))


def told(switch):
    """All that it has said so far."""
    while select.select([switch.process.stdout], [], [], 0.05)[0] and (more := os.read(switch.process.stdout.fileno(), 65536)):
        switch.output += more.decode(errors="replace")
    return switch.output


def connected(port, source="127.0.0.1", hello=False):
    stream = socket.create_connection(("127.0.0.1", port), PATIENCE_S, (source, 0))
    if hello:
        stream.sendall(HELLO + ECHO)
        came = b""
        # Its place is taken once the switch has answered.
        while ECHOED not in came:
            more = stream.recv(4096)
            assert more, "the switch has closed"
            came += more
    return stream


def test_silent_connections_keep_nobody_out_and_fill_no_log(daemon, tmp_path):
    switch, port = started(daemon, tmp_path, "--controller", "ptcp:0:127.0.0.1")
    target = f"tcp:127.0.0.1:{port}"
    begin = len(told(switch).splitlines())
    # More handshakes than there are places for, of the client's own address.
    silent = [connected(port) for _ in range(100)]
    assert "OFPT_FEATURES_REPLY" in run("ovs-ofctl", "-O", "OpenFlow13", "show", target)
    # All places, by two others.
    held = [connected(port, source, hello=True) for source in ("127.0.0.2", "127.0.0.3") for _ in range(32)]
    for _ in range(3):
        assert "OFPT_FEATURES_REPLY" in run("ovs-ofctl", "-O", "OpenFlow13", "show", target)
    # Who held them keeps nearly all.
    for stream in held:
        stream.setblocking(False)

    def is_open(stream):
        try:
            return stream.recv(1 << 16) != b""
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False

    assert sum(map(is_open, held)) >= 60
    # Come and gone again and again.
    before = len(told(switch).splitlines())
    for _ in range(2000):
        connected(port, "127.0.0.2").close()
    assert "OFPT_FEATURES_REPLY" in run("ovs-ofctl", "-O", "OpenFlow13", "show", target)
    lines = told(switch).splitlines()
    # The same is told once in ten seconds: now, or when the places were taken.
    assert len(lines) > begin and len(lines) - before < 30, lines
    for stream in silent + held:
        stream.close()


#: Stops threads for as long as it lives.
STOPPER = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.ptrace.argtypes = [ctypes.c_long] * 4
for task in map(int, sys.argv[1:]):
    # PTRACE_SEIZE, PTRACE_INTERRUPT.
    assert libc.ptrace(0x4206, task, 0, 0) == 0 and libc.ptrace(0x4207, task, 0, 0) == 0
print("stopped", flush=True)
sys.stdin.read()
"""


def test_a_stopped_thread_is_named(daemon, tmp_path):
    """A thread that accepts is stopped for a time: the log names it, and says that it has recovered."""
    switch, _ = started(daemon, tmp_path, "--controller", "ptcp:0:127.0.0.1")

    def listening():
        found = []
        for task in Path(f"/proc/{switch.process.pid}/task").iterdir():
            # Others may end meanwhile.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if (task / "comm").read_text().startswith("openflow-listen"):
                    found.append(task.name)
        return found

    # For the management socket, and for controllers; a thread has its name a moment after it has begun.
    tasks = until(lambda: listening() if len(listening()) == 2 else None, "both threads are there")
    stopper = subprocess.Popen([sys.executable, "-c", STOPPER, *tasks], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert stopper.stdout.readline() == "stopped\n"
        until(lambda: re.search(r"openflow-listen ptcp:\S+ makes no progress .* the watchdog is not fed", told(switch)), "it is named")
    finally:
        stopper.kill()
        stopper.communicate()
    until(lambda: re.search(r"openflow-listen ptcp:\S+ has recovered", told(switch)), "it recovers")


def test_a_switch_that_dials_nobody_ends_at_once(daemon, tmp_path):
    # A listener whose queue is full answers no dial.
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen(0)
    full = []
    for _ in range(4):
        stream = socket.socket()
        stream.setblocking(False)
        stream.connect_ex(silent.getsockname())
        full.append(stream)
    switch = daemon("--openflow", "--mgmt", f"{tmp_path}/m", "-i", "1@memory", "--admin", "none",
                    "--controller", f"tcp:127.0.0.1:{silent.getsockname()[1]}")
    time.sleep(1)
    begin = time.monotonic()
    switch.process.terminate()
    assert switch.process.wait(PATIENCE_S) == 0
    assert time.monotonic() - begin < 4
