"""`sluice run --state DIR`: what was acknowledged is there after `kill -9`, and the switch forwards again.

SLUICE_KILLS is how often the switch is killed (5), SLUICE_PROFILE which build (debug); `-s` prints the recovery times:

    SLUICE_KILLS=1000 SLUICE_PROFILE=release .venv/bin/python -m pytest -s tests/py/test_restart.py -k killed
"""

import os
import random
import shutil
import subprocess
import threading
import time

import grpc
import pytest
from conftest import PATIENCE_S, ROOT, SLUICE, Daemon
from test_p4runtime import Controller, find, messages  # noqa: F401 (a fixture)

INSERT, MODIFY, DELETE = 1, 2, 3
ROUTER = ROOT / "examples/router/router.p4"
KILLS = int(os.environ.get("SLUICE_KILLS", "5"))
# Entries that are there all the time, and threads that write.
ENTRIES, WRITERS = 10_000, 4


class Routes:
    """Writes routes of the router: keys are numbers, values nexthops."""

    def __init__(self, controller):
        p4info = controller.config().p4info
        self.controller = controller
        self.table = find(p4info.tables, "MyIngress.ipv4_lpm").preamble.id
        self.action = find(p4info.actions, "MyIngress.set_nexthop").preamble.id

    def request(self, changes):
        """`changes`: (kind, key, nexthop) in order."""
        request = self.controller.new("WriteRequest")
        for kind, key, nexthop in changes:
            entry = request.updates.add(type=kind).entity.table_entry
            entry.table_id = self.table
            match = entry.match.add(field_id=1)
            match.lpm.value = (0x0A000000 + key).to_bytes(4, "big")
            match.lpm.prefix_len = 32
            entry.action.action.action_id = self.action
            entry.action.action.params.add(param_id=1, value=nexthop.to_bytes(2, "big").lstrip(b"\0") or b"\0")
        return request

    def write(self, changes):
        self.controller.write(self.request(changes))

    def read(self):
        found = {}
        for entry in self.controller.read(table_id=self.table):
            key = int.from_bytes(entry.match[0].lpm.value, "big") - 0x0A000000
            found[key] = int.from_bytes(entry.action.action.params[0].value, "big")
        return found


class Writer(threading.Thread):
    """Changes routes with keys of its own until the switch is gone. `kept` is what was acknowledged; `open` is the batch
    whose answer never came, which may have been kept or not, as a whole."""

    def __init__(self, routes, number, kept, seed):
        super().__init__(daemon=True)
        self.routes, self.number, self.kept, self.random = routes, number, kept, random.Random(seed)
        self.open, self.batches = None, 0

    def run(self):
        while True:
            new = dict(self.kept)
            changes = []
            for _ in range(self.random.randint(1, 50)):
                key = self.number + WRITERS * self.random.randrange(3 * ENTRIES // WRITERS)
                nexthop = self.random.randrange(1, 60000)
                if key not in new:
                    kind = INSERT
                    new[key] = nexthop
                elif self.random.random() < 0.5:
                    kind = MODIFY
                    new[key] = nexthop
                else:
                    kind = DELETE
                    del new[key]
                changes.append((kind, key, nexthop))
            self.open = new
            try:
                self.routes.write(changes)
            except grpc.RpcError as error:
                assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED), error
                return
            self.kept, self.open = new, None
            self.batches += 1


@pytest.fixture
def start():
    """As `daemon`, for switches that may be stopped or killed before the end of the test."""
    started = []

    def one(*args):
        started.append(Daemon(*args))
        return started[-1]

    yield one
    for switch in started:
        if not switch.process.stdout.closed:
            assert switch.stop() == 0, switch.output


def kill(daemon):
    daemon.process.kill()
    daemon.process.wait()
    daemon.process.stdout.close()


def test_every_acknowledged_write_is_there_after_the_switch_was_killed(messages, tmp_path):
    chance = random.Random(1)
    arguments = (str(ROUTER), "-i", "1@memory", "--state", str(tmp_path / "state"))
    daemon = Daemon(*arguments)
    routes = Routes(Controller(messages, daemon.address))
    routes.write([(INSERT, key, key % 60000) for key in range(ENTRIES)])
    state = {key: key % 60000 for key in range(ENTRIES)}
    recovered, batches, undecided = [], 0, 0
    for round_number in range(KILLS):
        share = [{k: v for k, v in state.items() if k % WRITERS == n} for n in range(WRITERS)]
        writers = [Writer(routes, n, share[n], f"{round_number}/{n}") for n in range(WRITERS)]
        for writer in writers:
            writer.start()
        time.sleep(chance.uniform(0.0, 0.3))
        # On a busy machine no batch may have been answered so far; without any, the test says nothing.
        deadline = time.monotonic() + PATIENCE_S
        while round_number + 1 == KILLS and batches + sum(writer.batches for writer in writers) == 0:
            assert time.monotonic() < deadline, "no batch is acknowledged"
            time.sleep(0.01)
        kill(daemon)
        for writer in writers:
            writer.join(PATIENCE_S)
            assert not writer.is_alive()
        start = time.monotonic()
        # Ports are the last to come, so when P4Runtime is there packets are forwarded already.
        daemon = Daemon(*arguments)
        recovered.append(time.monotonic() - start)
        routes = Routes(Controller(messages, daemon.address))
        state = routes.read()
        for writer in writers:
            found = {k: v for k, v in state.items() if k % WRITERS == writer.number}
            undecided += writer.open is not None
            batches += writer.batches
            assert found == writer.kept or found == writer.open, f"round {round_number}, writer {writer.number}"
        if (round_number + 1) % 100 == 0:
            print(f"{round_number + 1} kills, worst recovery {max(recovered) * 1000:.0f} ms", flush=True)
        # Its size stays about the same.
        surplus = sorted(state)[: max(0, len(state) - ENTRIES)]
        if surplus:
            routes.write([(DELETE, key, 1) for key in surplus])
            surplus = set(surplus)
            state = {k: v for k, v in state.items() if k not in surplus}
    kill(daemon)
    assert batches > 0
    recovered.sort()
    print(
        f"\n{KILLS} kills, {batches} acknowledged batches all there, {undecided} without answer whole or not at all; "
        f"about {ENTRIES} entries forwarded again after: median {recovered[len(recovered) // 2] * 1000:.0f} ms, "
        f"99% {recovered[int(len(recovered) * 0.99)] * 1000:.0f} ms, worst {recovered[-1] * 1000:.0f} ms"
    )


def test_another_program_takes_over_what_fits(messages, tmp_path, start):
    state = str(tmp_path / "state")
    program = tmp_path / "router.p4"
    source = ROUTER.read_text()
    program.write_text(source)
    first = start(str(program), "-i", "1@memory", "--state", state)
    Routes(Controller(messages, first.address)).write([(INSERT, 1, 7)])
    assert first.stop() == 0

    # The program is edited; the table keeps its name.
    program.write_text(source.replace("size = 65536", "size = 1024"))
    second = start(str(program), "-i", "1@memory", "--state", state)
    assert "takes over from the program of the last start" in second.output
    controller = Controller(messages, second.address)
    assert Routes(controller).read() == {1: 7}
    # A controller sets another one, which an unchanged command line does not take back.
    controller.set_config(5, source.replace("size = 65536", "size = 2048").encode())
    assert second.stop() == 0

    third = start(str(program), "-i", "1@memory", "--state", state)
    controller = Controller(messages, third.address)
    assert b"size = 2048" in controller.config().p4_device_config
    assert Routes(controller).read() == {1: 7}
    assert third.stop() == 0

    # Without a program on the command line the kept one runs.
    fourth = start("-i", "1@memory", "--state", state)
    assert Routes(Controller(messages, fourth.address)).read() == {1: 7}
    assert fourth.stop() == 0

    program.write_text(source.replace("ipv4_lpm", "renamed"))
    run = [str(SLUICE), "run", str(program), "--state", state, "--grpc", "none", "-i", "1@memory"]
    refused = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert refused.returncode == 2
    assert "ipv4_lpm" in refused.stderr and "--forget starts empty" in refused.stderr
    fifth = start(str(program), "-i", "1@memory", "--state", state, "--forget")
    assert "entities back" not in fifth.output


def test_entries_of_a_file_are_kept_with_the_rest(messages, tmp_path, start):
    state = str(tmp_path / "state")
    entries = tmp_path / "entries"
    entries.write_text("add ipv4_lpm hdr.ipv4.dstAddr:10.0.0.5/32 set_nexthop(nexthop:9)\nmc_mgrp_create 3\n")
    arguments = (str(ROUTER), "-i", "1@memory", "--entries", str(entries), "--state", state)
    kill(start(*arguments))
    # They are there once, not twice, and a controller may have deleted them since.
    second = start(*arguments)
    assert f"{entries} is not read" in second.output
    routes = Routes(Controller(messages, second.address))
    assert routes.read() == {5: 9}
    routes.write([(DELETE, 5, 9)])
    kill(second)
    third = start(*arguments)
    assert Routes(Controller(messages, third.address)).read() == {}


def in_small_file_system(directory, megabytes):
    """A command prefix that puts a small file system over `directory`, for what it runs alone; None where that is not allowed."""
    script = f'mount -t tmpfs -o size={megabytes}m tmpfs {directory} && exec "$@"'
    prefix = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh"]
    if not shutil.which("unshare") or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        return None
    return prefix


def test_a_full_disk_refuses_writes_and_nothing_else(messages, tmp_path):
    directory = tmp_path / "disk"
    directory.mkdir()
    prefix = in_small_file_system(directory, 4)
    if prefix is None:
        pytest.skip("needs to mount a small file system in a namespace of its own")
    daemon = Daemon(str(ROUTER), "-i", "1@memory", "--state", str(directory / "state"), prefix=prefix)
    seen = f"/proc/{daemon.process.pid}/root{directory}"
    controller = Controller(messages, daemon.address)
    routes = Routes(controller)
    routes.write([(INSERT, key, 1) for key in range(1000)])
    with open(f"{seen}/ballast", "wb") as ballast, pytest.raises(OSError):
        while True:
            ballast.write(bytes(1 << 16))
            ballast.flush()
    kept = {key: 1 for key in range(1000)}
    with pytest.raises(grpc.RpcError) as refused:
        for key in range(1000, 1 << 20, 1000):
            routes.write([(INSERT, key + i, 1) for i in range(1000)])
            kept.update({key + i: 1 for i in range(1000)})
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    assert "No space left" in refused.value.details(), refused.value.details()
    # What was refused is not in force; reading goes on.
    assert routes.read() == kept
    # The disk is tried twice a second; what comes between is refused at once.
    deadline = time.monotonic() + PATIENCE_S
    while "writes are refused" not in refused.value.details():
        assert time.monotonic() < deadline, refused.value.details()
        with pytest.raises(grpc.RpcError) as refused:
            routes.write([(INSERT, 500_000, 1)])
    # With space again, writes are taken again.
    os.remove(f"{seen}/ballast")
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            routes.write([(INSERT, 500_000, 2)])
            break
        except grpc.RpcError as error:
            assert time.monotonic() < deadline, error
            time.sleep(0.2)
    kept[500_000] = 2
    assert routes.read() == kept
    daemon.stop()


def test_the_switch_says_why_it_cannot_use_a_directory(tmp_path, start):
    state = str(tmp_path / "state")
    start(str(ROUTER), "-i", "1@memory", "--state", state)

    def refusal(directory):
        command = [str(SLUICE), "run", str(ROUTER), "--state", str(directory), "--grpc", "none", "-i", "1@memory"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert run.returncode == 2
        return run.stderr

    assert "in use by another process" in refusal(state)
    other = tmp_path / "other"
    other.mkdir()
    (other / "format").write_text("sluice state 7\n")
    assert "has format 7, this version reads 2, 3 and 4" in refusal(other)
    (other / "format").write_text("something else")
    assert "holds no state of a switch" in refusal(other)
    (tmp_path / "file").write_text("")
    assert "file: this is not a directory" in refusal(tmp_path / "file")
