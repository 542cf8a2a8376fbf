"""Ports of a running switch (docs/ports.md): added, removed, taken out of service and changed while it runs; and what comes back
after `kill -9`.

Run: cargo build -p sluice && pytest tests/py/test_ports.py
"""

import json
import struct
import time

import pytest
from conftest import PATIENCE_S, Daemon
from test_cli import Cli

PROGRAM = "tests/py/chain.p4"
FIRST = ["-i", "1@memory", "-i", "2@memory"]


def ports(cli):
    return sorted(port["number"] for port in json.loads(cli.sluice("stats", "--json"))["ports"])


@pytest.fixture
def cli(daemon):
    return Cli(daemon(PROGRAM, *FIRST).address)


def test_ports_are_added_and_removed(cli):
    cli.sluice("port", "add", "3@memory", "4@memory")
    assert ports(cli) == [1, 2, 3, 4]
    assert "there is a port 3 already" in cli.sluice("port", "add", "3@memory", code=1)
    assert "stands for the controller" in cli.sluice("port", "add", "510@memory", code=1)
    assert "does not fit a port of kind memory" in cli.sluice("port", "add", "5@memory,mtu=1500", code=1)
    assert "nosuch0" in cli.sluice("port", "add", "5@nosuch0", code=1)
    assert "there is no device 7" in cli.sluice("port", "add", "5@memory", "--device-id", "7", code=1)
    cli.sluice("port", "remove", "1", "4")
    assert ports(cli) == [2, 3]
    assert "there is no port 4" in cli.sluice("port", "remove", "4", code=1)


def test_a_port_goes_out_of_service_and_comes_back(cli):
    cli.sluice("port", "down", "2")
    assert "out of service" in cli.sluice("port", "show", "2")
    assert json.loads(cli.sluice("port", "show", "2", "--json"))["ports"][0]["out_of_service"]
    cli.sluice("port", "up", "2")
    assert "out of service" not in cli.sluice("port", "show")
    assert "there is no port 9" in cli.sluice("port", "down", "9", code=1)
    assert "there is no port 9" in cli.sluice("port", "show", "9", code=1)


def test_options_are_changed_and_wrong_ones_change_nothing(cli):
    cli.sluice("port", "set", "2", "spread")
    assert "does not fit" in cli.sluice("port", "set", "2", "mtu=9000", code=1)
    assert ports(cli) == [1, 2]


def test_changes_are_told_as_json(cli):
    assert json.loads(cli.sluice("port", "add", "3@memory", "--json")) == {"changed": [{"port": "3@memory", "note": ""}]}
    assert json.loads(cli.sluice("port", "remove", "3", "--json"))["changed"][0]["port"] == "3"


def test_a_switch_without_ports_goes_on_and_does_not_end_with_a_capture_file_that_is_added(cli, tmp_path):
    cli.sluice("port", "remove", "1", "2")
    assert ports(cli) == []
    file = tmp_path / "in.pcap"
    frame = bytes(64)
    file.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) +
                     struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
    cli.sluice("port", "add", f"20@pcap:{file}")
    received = lambda: json.loads(cli.sluice("stats", "--json"))["ports"][0]["rx"]["packets"]
    deadline = time.monotonic() + PATIENCE_S
    while received() == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    # The end of input is looked for ten times a second.
    time.sleep(0.5)
    assert received() == 1 and ports(cli) == [20]


def test_ports_come_back_after_a_crash(tmp_path):
    state = ["--state", str(tmp_path / "state")]

    def run(*arguments):
        return Daemon(PROGRAM, *FIRST, *arguments, *state)

    running = run()
    cli = Cli(running.address)
    cli.sluice("port", "add", "3@memory")
    cli.sluice("port", "remove", "1")
    cli.sluice("port", "down", "3")
    running.process.kill()
    running.process.wait(timeout=PATIENCE_S)
    running.process.stdout.close()
    running = run()
    try:
        assert ports(Cli(running.address)) == [2, 3]
        assert "out of service" in Cli(running.address).sluice("port", "show", "3")
    finally:
        assert running.stop() == 0
    # Another command line is in force; what was added while the switch ran stays.
    running = run("-i", "5@memory")
    try:
        assert ports(Cli(running.address)) == [1, 2, 3, 5]
    finally:
        assert running.stop() == 0
