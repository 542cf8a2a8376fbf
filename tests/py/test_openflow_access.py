"""Who may hold places of an OpenFlow listener, what is logged of them, and threads that stand still.

Run: cargo build -p sluice && pytest tests/py/test_openflow_access.py
"""

import ctypes
import os
import re
import shutil
import socket
import time
from pathlib import Path

import pytest
from conftest import PATIENCE_S
from openflow_net import run, until

pytestmark = pytest.mark.skipif(not shutil.which("ovs-ofctl"), reason="ovs-ofctl is missing: scripts/setup")

#: OFPT_HELLO, and OFPT_ECHO_REQUEST with its answer, of OpenFlow 1.3.
HELLO, ECHO, ECHOED = bytes([4, 0, 0, 8, 0, 0, 0, 1]), bytes([4, 2, 0, 8, 0, 0, 0, 9]), bytes([4, 3, 0, 8, 0, 0, 0, 9])
#: ptrace(2).
SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17


def started(daemon, tmp_path, *args):
    switch = daemon("--openflow", "--mgmt", f"{tmp_path}/m", "-i", "1@memory", "--admin", "none", *args)
    return switch, int(re.search(r"controllers may connect to 127.0.0.1:(\d+)", switch.output).group(1))


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
    before = len(switch.output.splitlines())
    for _ in range(2000):
        connected(port, "127.0.0.2").close()
    assert "OFPT_FEATURES_REPLY" in run("ovs-ofctl", "-O", "OpenFlow13", "show", target)
    assert len(switch.output.splitlines()) - before < 30, switch.output
    for stream in silent + held:
        stream.close()


def test_a_stopped_thread_is_named(daemon, tmp_path):
    """A thread that accepts is stopped for good: the log names it, and that it goes on."""
    switch, _ = started(daemon, tmp_path, "--controller", "ptcp:0:127.0.0.1")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    def listening():
        tasks = Path(f"/proc/{switch.process.pid}/task").iterdir()
        return [int(task.name) for task in tasks if (task / "comm").read_text().startswith("openflow-listen")]

    # For the management socket, and for controllers; a thread has its name a moment after it has begun.
    tasks = until(lambda: listening() if len(listening()) == 2 else None, "both threads are there")
    for task in tasks:
        assert libc.ptrace(SEIZE, task, 0, 0) == 0 and libc.ptrace(INTERRUPT, task, 0, 0) == 0, os.strerror(ctypes.get_errno())
    until(lambda: "openflow-listen ptcp:" in switch.output and "the watchdog is not fed" in switch.output, "it is named")
    for task in tasks:
        libc.ptrace(DETACH, task, 0, 0)
    until(lambda: re.search(r"openflow-listen ptcp:\S+ goes on", switch.output), "it goes on")


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
