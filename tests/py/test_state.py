"""The state directory in an operator's hands: `sluice state check|dump|restore|backup`, damage at the start, a directory that is lost under the switch."""

import shutil
import subprocess
import time

import grpc
import pytest
from conftest import PATIENCE_S, ROOT, SLUICE, Daemon
from test_p4runtime import Controller, messages  # noqa: F401 (a fixture)
from test_restart import INSERT, ROUTER, Routes, kill


def state(*args):
    command = [str(SLUICE), "state", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def switch(directory, *more):
    return Daemon(str(ROUTER), "-i", "1@memory", "--state", str(directory), *more)


def refusal(directory):
    command = [str(SLUICE), "run", str(ROUTER), "--state", str(directory), "--grpc", "none", "-i", "1@memory"]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_a_backup_and_a_dump_bring_a_switch_back(messages, tmp_path):
    daemon = switch(tmp_path / "state")
    routes = Routes(Controller(messages, daemon.address))
    routes.write([(INSERT, key, key + 1) for key in range(100)])
    assert state("check", tmp_path / "state").returncode == 2
    backup = state("backup", tmp_path / "state", tmp_path / "backup")
    assert (backup.returncode, backup.stderr) == (0, "")
    assert "device 1: 100 entities, running" in backup.stdout
    routes.write([(INSERT, key, 1) for key in range(100, 150)])
    assert daemon.stop() == 0
    # All of it as text, and from that a directory again.
    dump = state("dump", tmp_path / "state")
    assert dump.returncode == 0 and dump.stdout.count("\nentity ") == 150
    (tmp_path / "text").write_text(dump.stdout)
    assert state("restore", tmp_path / "text", tmp_path / "from-text").returncode == 0
    assert state("restore", tmp_path / "backup", tmp_path / "from-backup").returncode == 0
    refused = state("restore", tmp_path / "backup", tmp_path / "from-text")
    assert refused.returncode == 2 and "is not empty" in refused.stderr
    for directory, entries in [("from-text", 150), ("from-backup", 100), ("state", 150)]:
        assert state("check", tmp_path / directory).returncode == 0
        daemon = switch(tmp_path / directory)
        assert len(Routes(Controller(messages, daemon.address)).read()) == entries
        assert daemon.stop() == 0


def test_damage_stops_the_start_with_the_place_and_the_remedy(messages, tmp_path):
    directory = tmp_path / "state"
    daemon = switch(directory)
    routes = Routes(Controller(messages, daemon.address))
    for key in range(50):
        routes.write([(INSERT, key, 1)])
    kill(daemon)
    log = directory / "log-1"
    whole = log.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    log.write_bytes(damaged)
    run = refusal(directory)
    assert run.returncode == 2
    for part in ["is damaged: log-1, byte ", "lost: records from number", "sluice state restore", "--forget"]:
        assert part in run.stderr, run.stderr
    check = state("check", directory)
    assert check.returncode == 2 and check.stderr.startswith("damaged: log-1, byte "), check.stderr
    assert state("dump", directory).returncode == 2
    # What can be read is most of it.
    salvaged = state("dump", "--salvage", directory)
    assert salvaged.returncode == 1 and salvaged.stdout.count("\nentity ") == 49, salvaged.stderr
    # A crash while a record was appended is another matter: the start says what it cuts off, and goes on.
    log.write_bytes(whole + whole[:60])
    assert state("check", directory).returncode == 2, "an intact record of before is no torn tail"
    log.write_bytes(whole + whole[-30:])
    check = state("check", directory)
    assert check.returncode == 1 and "nothing that was acknowledged" in check.stderr, check.stderr
    daemon = switch(directory)
    assert len(Routes(Controller(messages, daemon.address)).read()) == 50
    assert daemon.stop() == 0


def test_missing_and_empty_files_stop_the_start(messages, tmp_path):
    whole = tmp_path / "whole"
    daemon = switch(whole)
    Routes(Controller(messages, daemon.address)).write([(INSERT, 1, 1)])
    assert daemon.stop() == 0
    for file in sorted(whole.iterdir()):
        for emptied in (True, False):
            directory = tmp_path / f"{file.name}-{emptied}"
            shutil.copytree(whole, directory)
            if emptied:
                (directory / file.name).write_bytes(b"")
            else:
                (directory / file.name).unlink()
            if file.name == "mark":
                # Everything is there; only a log that is cut off would not be noticed, which is said.
                assert state("check", directory).returncode == 0
                continue
            run = refusal(directory)
            assert run.returncode == 2 and str(directory) in run.stderr, f"{file.name}: {run.stderr}"


def test_writes_are_refused_when_the_directory_is_deleted_under_the_switch(messages, tmp_path):
    directory = tmp_path / "state"
    daemon = switch(directory)
    routes = Routes(Controller(messages, daemon.address))
    routes.write([(INSERT, 1, 1)])
    shutil.rmtree(directory)
    with pytest.raises(grpc.RpcError) as refused:
        routes.write([(INSERT, 2, 2)])
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    assert str(directory) in refused.value.details() and "deleted" in refused.value.details()
    assert routes.read() == {1: 1}
    deadline = time.monotonic() + PATIENCE_S
    while "make an empty directory there" not in refused.value.details():
        assert time.monotonic() < deadline, refused.value.details()
        with pytest.raises(grpc.RpcError) as refused:
            routes.write([(INSERT, 2, 2)])
        time.sleep(0.05)
    directory.mkdir()
    while True:
        try:
            routes.write([(INSERT, 3, 3)])
            break
        except grpc.RpcError as error:
            assert time.monotonic() < deadline, error
            time.sleep(0.05)
    kill(daemon)
    daemon = switch(directory)
    assert Routes(Controller(messages, daemon.address)).read() == {1: 1, 3: 3}
    assert daemon.stop() == 0


def test_the_unit_does_not_restart_on_what_a_restart_cannot_mend(tmp_path):
    unit = (ROOT / "dist/sluice.service").read_text().splitlines()
    assert "RestartPreventExitStatus=2" in unit
    limits = dict(line.split("=", 1) for line in unit if line.startswith("StartLimit"))
    assert 0 < int(limits["StartLimitIntervalSec"]) and 0 < int(limits["StartLimitBurst"])
    # And damaged state is exit code 2.
    directory = tmp_path / "state"
    directory.mkdir()
    (directory / "format").write_text("sluice state 4\n")
    run = refusal(directory)
    assert run.returncode == 2 and "manifest, byte 0: the file is missing" in run.stderr, run.stderr
