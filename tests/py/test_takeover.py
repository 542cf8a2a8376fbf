"""`sluice restart`: a new process takes over entries, ports and addresses, or the running one goes on.

Run: cargo build -p sluice && pytest tests/py/test_takeover.py
"""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import grpc
import pages
import pytest
from conftest import PATIENCE_S, ROOT, SLUICE, Daemon
from test_p4runtime import Controller, messages  # noqa: F401 (a fixture)
from test_restart import INSERT, Routes, Writer

ROUTER = ROOT / "examples/router/router.p4"

PAGE = """
```console
$ examples/hosts add 2
h1: 10.0.0.1, behind port1
h2: 10.0.0.2, behind port2
$ sluice run examples/l2/l2.p4 -i 1@port1 -i 2@port2 -i 3@tap:tap3 --state state > switch.log 2>&1 &
```
```console retry
$ sluice port show
port  device  kind       bound to  state  ...
1     port1   af_packet  1         up     ...
2     port2   af_packet  1         up     ...
3     tap:tap3  tap      1         up     ...
```
```console
$ sluice table add switching vid:1 dstAddr:02:00:00:00:00:01 'forward(port:1)'
$ sluice table add switching vid:1 dstAddr:02:00:00:00:00:02 'forward(port:2)'
$ sluice multicast add 1 1 2
$ ip netns exec h1 ping -c 1 -W 5 10.0.0.2
...
1 packets transmitted, 1 received, 0% packet loss...
...
$ sluice restart
process ... has taken over after ... ms; P4Runtime was away for ... ms of these
$ sluice port show
port  device  kind       bound to  state  ...
1     port1   af_packet  1         up     ...
2     port2   af_packet  1         up     ...
3     tap:tap3  tap      1         up     ...
$ ip netns exec h1 ping -c 1 -W 5 10.0.0.2
...
1 packets transmitted, 1 received, 0% packet loss...
...
$ sluice port set 3 mtu=1400
...
$ sluice restart --json
{"away_ms":...,"pid":...,"took_ms":...}
$ ip netns exec h2 ping -c 1 -W 5 10.0.0.1
...
1 packets transmitted, 1 received, 0% packet loss...
...
$ sluice table show switching | wc -l
4
$ pgrep -c -f 'sluice run examples/l2'
1
```
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_hosts_ping_before_and_after(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    (whole,) = pages.sections(page)
    pages.run(whole.steps, tmp_path, SLUICE, PATIENCE_S)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


class Switch:
    """A switch that processes take over from one another."""

    def __init__(self, tmp_path, *args):
        self.admin, self.address = tmp_path / "admin", f"127.0.0.1:{free_port()}"
        where = ("--admin", str(self.admin), "--grpc", self.address)
        self.daemon = Daemon(*args, "-i", "1@memory", *where)
        self.pid = self.daemon.process.pid

    def restart(self):
        command = [SLUICE, "restart", "--json", "--admin", self.admin]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        if done.returncode == 0:
            # Not named if the connection broke before the answer, though a new process answers now.
            self.pid = json.loads(done.stdout)["pid"] or self.found()
        return done

    def found(self):
        """The switch's process, by the address that no other has; the first one if it is gone."""
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"run" in words and self.address.encode() in words:
                return int(folder.name)
        return self.daemon.process.pid

    def output(self):
        """All that the processes have said, after the last has ended."""
        return self.daemon.output + self.daemon.process.stdout.read()

    def stop(self):
        try:
            os.kill(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        # The first process is ours; who comes after it has its output.
        assert self.daemon.process.wait(PATIENCE_S) == 0
        return self.output()


def controller(messages, address):  # noqa: F811
    """A controller, once the library has noticed that its connections to an address are another process's."""
    deadline = time.monotonic() + PATIENCE_S
    with grpc.insecure_channel(address) as channel:
        while True:
            try:
                channel.unary_unary("/p4.v1.P4Runtime/Capabilities")(b"", wait_for_ready=True, timeout=PATIENCE_S)
                return Controller(messages, address)
            except grpc.RpcError as error:
                assert time.monotonic() < deadline, error


@pytest.fixture
def switch(tmp_path):
    started = []

    def start(*args):
        started.append(Switch(tmp_path, *args))
        return started[-1]

    yield start
    for one in started:
        if not one.daemon.process.stdout.closed:
            output = one.stop()
            one.daemon.process.stdout.close()
            assert "panicked" not in output, output


def test_what_was_acknowledged_is_there_whoever_answers(messages, tmp_path, switch):  # noqa: F811
    one = switch(str(ROUTER), "--state", str(tmp_path / "state"))
    kept, routes = {}, Routes(controller(messages, one.address))
    for round_number in range(3):
        writer = Writer(routes, 0, kept, f"{round_number}")
        writer.start()
        deadline = time.monotonic() + PATIENCE_S
        while writer.batches < 3:
            assert time.monotonic() < deadline, "no batch is acknowledged"
            time.sleep(0.001)
        before = one.pid
        done = one.restart()
        assert done.returncode == 0 and one.pid != before, done.stderr
        writer.join(PATIENCE_S)
        assert not writer.is_alive()
        routes = Routes(controller(messages, one.address))
        kept = routes.read()
        assert kept in (writer.kept, writer.open), round_number


def test_a_new_process_that_does_not_start_changes_nothing(messages, tmp_path, switch):  # noqa: F811
    program, state = tmp_path / "router.p4", str(tmp_path / "state")
    source = ROUTER.read_text()
    program.write_text(source)
    one = switch(str(program), "--state", state)
    routes = Routes(controller(messages, one.address))
    routes.write([(INSERT, 1, 7)])
    # It is refused before it has asked for anything, by what it compiles, and after it has the directory, by what that holds.
    for edited in [source + "}", source.replace("size = 65536", "size = 1").replace("MyIngress(", "Other(")]:
        program.write_text(edited)
        done = one.restart()
        assert done.returncode == 1, done
        assert re.search(r"the switch runs on as it is: the new process has refused to start.*exit status: ", done.stderr)
    # The same process answers, and keeps what it is told.
    routes.write([(INSERT, 2, 8)])
    assert routes.read() == {1: 7, 2: 8}
    program.write_text(source)
    assert one.restart().returncode == 0
    assert Routes(controller(messages, one.address)).read() == {1: 7, 2: 8}
    assert "error" in one.stop()


def test_what_was_begun_anew_is_not_begun_anew_again(messages, tmp_path, switch):  # noqa: F811
    one = switch(str(ROUTER), "--state", str(tmp_path / "state"), "--forget")
    Routes(controller(messages, one.address)).write([(INSERT, 1, 7)])
    assert one.restart().returncode == 0
    assert Routes(controller(messages, one.address)).read() == {1: 7}


def test_what_keeps_nothing_cannot_be_taken_over(tmp_path, switch):
    one = switch(str(ROUTER))
    done = one.restart()
    assert done.returncode == 1
    assert "`sluice run --state DIR` keeps what it takes over" in done.stderr


def test_what_can_be_known_before_is_known_before(tmp_path, switch):
    token = tmp_path / "token"
    token.write_text("secret\n")
    metrics = ("--metrics", f"127.0.0.1:{free_port()}", "--metrics-token-file", str(token))
    one = switch(str(ROUTER), "--state", str(tmp_path / "state"), *metrics)
    token.write_text("")
    done = one.restart()
    assert done.returncode == 1 and "refused to start" in done.stderr, done
    token.write_text("secret\n")
    # A directory that is gone is nobody's to take over.
    os.rename(tmp_path / "state", tmp_path / "moved")
    done = one.restart()
    assert done.returncode == 1, done
    os.rename(tmp_path / "moved", tmp_path / "state")
    deadline = time.monotonic() + PATIENCE_S
    while one.restart().returncode != 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def settled(look):
    """What `look` finds when that has been the same length for half a second."""
    found, since, deadline = None, time.monotonic(), time.monotonic() + PATIENCE_S
    while time.monotonic() < min(since + 0.5, deadline):
        try:
            now = look()
        except FileNotFoundError:
            # Closed while it was looked at.
            continue
        if found is None or len(now) != len(found):
            since = time.monotonic()
        found = now
        time.sleep(0.02)
    return found


def test_no_file_is_handed_down(tmp_path, switch):
    one = switch(str(ROUTER), "--state", str(tmp_path / "state"), "-i", f"2@memif:{tmp_path}/memif.sock")

    def files():
        return sorted(os.readlink(f"/proc/{one.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{one.pid}/fd"))

    # A process that has just started may still close what it started with.
    before = settled(files)
    for _ in range(3):
        assert one.restart().returncode == 0
        after = settled(files)
        assert len(after) <= len(before) + 1, (before, after)


def test_a_switch_that_is_told_to_end_leaves_none(tmp_path, switch):
    for pause_s in (0.0, 0.03, 0.06):
        one = switch(str(ROUTER), "--state", str(tmp_path / f"state-{pause_s}"))
        results = []
        restarting = threading.Thread(target=lambda one=one, results=results: results.append(one.restart()))
        restarting.start()
        time.sleep(pause_s)
        try:
            os.kill(one.daemon.process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        restarting.join(PATIENCE_S)
        if results[0].returncode == 0 and one.pid != one.daemon.process.pid:
            os.kill(one.pid, signal.SIGTERM)
        # All that has the output open has ended.
        reading = threading.Thread(target=one.daemon.process.stdout.read)
        reading.start()
        reading.join(PATIENCE_S)
        assert not reading.is_alive(), results
        one.daemon.process.wait(PATIENCE_S)
        one.daemon.process.stdout.close()


def test_two_restarts_at_once_are_one(tmp_path, switch):
    one = switch(str(ROUTER), "--state", str(tmp_path / "state"))
    results = []

    def run():
        results.append(one.restart())

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert any(done.returncode == 0 for done in results), results
    for done in results:
        assert done.returncode in (0, 1, 2) and "panicked" not in done.stderr


def test_systemd_is_told_which_process_the_service_is(tmp_path, monkeypatch, switch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "400000")
        one = switch(str(ROUTER), "--state", str(tmp_path / "state"))

        def told():
            while (said := systemd.recv(4096).decode().splitlines()) == ["WATCHDOG=1"]:
                pass
            return said

        assert told()[0] == "READY=1"
        assert one.restart().returncode == 0
        assert told() == [f"MAINPID={one.pid}"]
        assert told()[0] == "READY=1"
        # The new process feeds the watchdog.
        assert systemd.recv(4096).split() == [b"WATCHDOG=1"]
