"""Queues of ports (docs/qos.md): set, shown, refused, cleared, kept; and that priorities under a rate order packets.

Run: cargo build -p sluice && pytest tests/py/test_qos.py
"""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import time
import urllib.request

import pytest
from conftest import PATIENCE_S, ROOT, SLUICE, Daemon
from test_cli import Cli

#: Sets no class: what it sends waits as finished frames.
PLAIN = "tests/py/chain.p4"
#: A frame's first byte is its priority.
PRIORITIES = "tests/py/qos.p4"
PORTS = ["-i", "1@memory", "-i", "2@memory"]


def qos(cli, port):
    """What the switch says of a port's queues; nothing, if it has none."""
    return json.loads(cli.sluice("qos", "show", str(port), "--json"))["ports"][0]["qos"]


@pytest.fixture
def cli(daemon):
    return Cli(daemon(PLAIN, *PORTS).address)


@pytest.fixture
def prioritised(daemon):
    return Cli(daemon(PRIORITIES, *PORTS).address)


def test_queues_are_set_shown_and_cleared(prioritised):
    cli = prioritised
    # The program sets priorities, so each port has the default.
    assert qos(cli, 2) | {"queues": None} == {
        "configured": False, "config": {"queues": [{"limit": {}, "policy": "tail_drop"}], "mtu": 1518,
                                        "root": {"strict": [{"queue": 0}]}}, "queues": None}
    assert cli.sluice("qos", "set", "2", "--queues", "3", "--rate", "100Mbit", "--burst", "64KB", "--limit", "5ms") == ""
    found = qos(cli, 2)
    assert found["configured"] and len(found["queues"]) == 3
    assert found["config"]["root"] == {
        "strict": [{"queue": 2}, {"queue": 1}, {"queue": 0}], "shaper": {"rate": "100Mbit", "burst": "64KB"}}
    assert all(queue["limit"] == {"time": "5ms"} for queue in found["config"]["queues"])
    text = cli.sluice("qos", "show", "2")
    assert "port 2, memory: configured\n  strict priority, the most urgent first, at most 100Mbit, burst 64KB\n" in text
    assert re.search(r"^2 +2( +0){10} +- +-$", text, re.M), text
    assert not qos(cli, 1)["configured"], "another port's are its own"
    assert "default queue" in cli.sluice("qos", "clear", "2")
    assert not qos(cli, 2)["configured"]


def test_a_config_that_is_shown_can_be_set(cli, tmp_path):
    assert qos(cli, 2) is None
    assert "no port has queues; `sluice qos set PORT --queues 4`" in cli.sluice("qos", "show")
    # The example of the documentation.
    config = json.loads(re.search(r"```json\n(.*?)```", (ROOT / "docs/qos.md").read_text(), re.S).group(1))
    file = tmp_path / "queues.json"
    file.write_text(json.dumps(config))
    told = json.loads(cli.sluice("qos", "set", "2", str(file), "--json"))["changed"]
    assert told[0]["port"] == "2" and "sets no class and no `priority`, so all packets wait in queue 0" in told[0]["note"]
    shown = qos(cli, 2)["config"]
    assert shown["root"] == config["root"] and shown["classes"] == config["classes"]
    # What is shown is taken, from standard input too.
    for port, source, given in [("1", "-", json.dumps(shown)), ("2", str(file), None)]:
        command = [SLUICE, "qos", "set", port, source, "--grpc", cli.address]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        assert qos(cli, int(port))["config"] == shown
    cli.sluice("qos", "clear", "1")
    assert qos(cli, 1) is None and qos(cli, 2)["configured"]


def test_what_contradicts_itself_is_named_and_changes_nothing(cli, tmp_path):
    cli.sluice("qos", "set", "2", "--queues", "2")
    before = qos(cli, 2)
    file = tmp_path / "queues.json"

    def refused(config):
        file.write_text(config if isinstance(config, str) else json.dumps(config))
        return cli.sluice("qos", "set", "2", str(file), code=1)

    one = [{}]
    for config, words in [
        ("{", ["queues.json: line 1, column 1: EOF"]),
        ({"queues": one, "root": {"queue": 0, "shapper": {}}}, ["root.shapper: unknown field `shapper`", "`shaper`"]),
        ({"queues": one, "root": {"queue": 0, "shaper": {"rate": "1Gbps"}}}, ["root.shaper.rate: ", "write one of bit, kbit"]),
        ({"queues": [{}, {}], "root": {"queue": 0}}, ["queues.json: queues[1]: is nowhere in the tree"]),
        ({"queues": one, "root": {"queue": 0, "shaper": {"rate": "1Mbit", "burst": "100B"}}},
         ["root.shaper.burst: 100B is less than one frame, 1518B"]),
        ({"queues": one, "root": {"queue": 0}, "classes": {"5": 3}}, ["classes.5: there is no queue 3"]),
        ({"queues": [{"limit": {"packets": 0}}], "root": {"strict": []}},
         ["queues[0].limit.packets: 0 packets", "root.strict: a scheduler needs"]),
        ({"queues": one, "root": {"strict": [{"queue": 0, "min_rate": "2Mbit"}], "shaper": {"rate": "1Mbit"}}},
         ["root.shaper.rate: 1Mbit is less than the sum of the minimum rates"]),
    ]:
        message = refused(config)
        assert all(word in message for word in words), (config, message)
    assert "there is no port 9" in cli.sluice("qos", "set", "9", "--queues", "2", code=1)
    assert "there is no port 9" in cli.sluice("qos", "clear", "9", code=1)
    assert "there is no port 9" in cli.sluice("qos", "show", "9", code=1)
    assert "--burst: 10B is less than one frame" in cli.sluice("qos", "set", "2", "--rate", "1Mbit", "--burst", "10B", code=1)
    assert "2 weights for 3 queues" in cli.sluice("qos", "set", "2", "--queues", "3", "--weights", "1,2", code=1)
    assert "FILE.json" in cli.sluice("qos", "set", "2", code=2)
    assert "cannot be used with" in cli.sluice("qos", "set", "2", str(file), "--queues", "2", code=2)
    assert "cannot read nothing.json" in cli.sluice("qos", "set", "2", "nothing.json", code=2)
    assert qos(cli, 2) == before


def capture(path, frames):
    text = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    path.write_bytes(text + b"".join(struct.pack("<IIII", 0, 0, len(f), len(f)) + f for f in frames))


def frames(path):
    """Frames of a capture file, little endian."""
    text, at, found = path.read_bytes(), 24, []
    while at < len(text):
        (length,) = struct.unpack_from("<I", text, at + 8)
        found.append(text[at + 16 : at + 16 + length])
        at += 16 + length
    return found


def get(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
        return answer.read().decode().splitlines()


def test_priorities_order_what_waits_and_are_counted(tmp_path):
    ins, empty, outs = (tmp_path / name for name in ["in.pcap", "empty.pcap", "out.pcap"])
    low = [struct.pack(">BI", 0, n) + bytes(995) for n in range(200)]
    high = [struct.pack(">BI", 5, n) + bytes(995) for n in range(50)]
    capture(ins, low + high)
    capture(empty, [])
    # Not only files, so that the switch goes on after the last one's end.
    running = Daemon(PRIORITIES, "-i", "1@memory", "-i", f"2@pcap:{empty},{outs}", "--metrics", "127.0.0.1:0")
    try:
        cli = Cli(running.address)
        # A frame each 8 ms: all are read long before half of them are sent.
        cli.sluice("qos", "set", "2", "--queues", "2", "--rate", "1Mbit")
        cli.sluice("port", "add", f"3@pcap:{ins}")
        sent = lambda: sum(queue["sent"]["packets"] for queue in qos(cli, 2)["queues"])
        deadline = time.monotonic() + PATIENCE_S
        while sent() < len(low) + len(high):
            assert time.monotonic() < deadline, qos(cli, 2)
            time.sleep(0.1)
        first, second = qos(cli, 2)["queues"]
        assert first["sent"] == {"packets": 200, "bytes": 200_000} and second["sent"] == {"packets": 50, "bytes": 50_000}
        assert first["depth"] == {"packets": 0, "bytes": 0} and first["highest"]["packets"] > 50
        assert first["waited_ns"]["p99"] >= first["waited_ns"]["p50"] > 0
        lines = get(running.metrics)
        labels = 'device_id="1",port="2",device="pcap:' + f'{empty},{outs}",kind="pcap",queue="0"'
        found = dict(line.rsplit(" ", 1) for line in lines if line.startswith("sluice_queue_"))
        assert found[f"sluice_queue_sent_packets_total{{{labels}}}"] == "200", lines
        assert found[f"sluice_queue_wait_seconds_count{{{labels}}}"] == "200"
        assert found[f'sluice_queue_dropped_packets_total{{{labels},cause="tail"}}'] == "0"
        assert found[f"sluice_queue_depth_packets{{{labels}}}"] == "0.0"
        assert '# TYPE sluice_queue_wait_seconds histogram' in lines
        stats = cli.sluice("stats")
        assert re.search(r"^2 +0 +0 +0 +\d+ +200 ", stats, re.M), stats
        top = cli.sluice("top", "--once", "--interval", "0.2")
        assert "\nqueues\n" in top and re.search(r"^ +2 pcap.*: 1 ", top, re.M), top
    finally:
        assert running.stop() == 0, running.output
    out = frames(outs)
    assert [f for f in out if f[0] == 0] == low and [f for f in out if f[0] == 5] == high, "in order within a class"
    last = max(at for at, frame in enumerate(out) if frame[0] == 5)
    assert len(out) - 1 - last > 100, "urgent frames, which came last, have not waited for the others"


def test_full_queues_refuse_and_say_why(tmp_path):
    ins, empty, outs = (tmp_path / name for name in ["in.pcap", "empty.pcap", "out.pcap"])
    capture(ins, [bytes([0]) + bytes(999)] * 300)
    capture(empty, [])
    running = Daemon(PRIORITIES, "-i", "1@memory", "-i", f"2@pcap:{empty},{outs}")
    try:
        cli = Cli(running.address)
        cli.sluice("qos", "set", "2", "--limit", "10", "--rate", "10kbit")
        cli.sluice("port", "add", f"3@pcap:{ins}")
        deadline = time.monotonic() + PATIENCE_S
        while (queue := qos(cli, 2)["queues"][0])["dropped"]["tail"]["packets"] == 0:
            assert time.monotonic() < deadline, queue
            time.sleep(0.05)
        assert queue["highest"]["packets"] == 10 and queue["depth"]["packets"] > 0
        # What waits leaves at once where nothing holds it back any more.
        cli.sluice("qos", "set", "2", "--limit", "10")
        while (queue := qos(cli, 2)["queues"][0])["depth"]["packets"] > 0:
            assert time.monotonic() < deadline, queue
            time.sleep(0.05)
        counted = queue["sent"]["packets"] + queue["dropped"]["tail"]["packets"]
        assert counted == 300 and queue["removed"]["packets"] == 0, queue
    finally:
        assert running.stop() == 0, running.output


def tenants(cli):
    """What the switch says of its tenants, by name."""
    return {tenant["name"]: tenant for tenant in json.loads(cli.sluice("qos", "show", "--json"))["tenants"]}


def test_queues_of_two_ports_share_the_limit_of_their_tenant(tmp_path):
    ins, empty, outs = (tmp_path / name for name in ["in.pcap", "empty.pcap", "out.pcap"])
    capture(ins, [bytes([0]) + bytes(999)] * 300)
    capture(empty, [])
    running = Daemon(PRIORITIES, "-i", "1@memory", "-i", f"2@pcap:{empty},{outs}", "--metrics", "127.0.0.1:0")
    try:
        cli = Cli(running.address)
        assert "there is no tenant `red`; there is none" in cli.sluice("qos", "set", "2", "--queues", "2", "--tenant", "red", code=1)
        cli.sluice("qos", "tenant", "set", "red", "--packets", "20", "--bytes", "15KB", "--reserved", "5")
        cli.sluice("qos", "set", "2", "--tenant", "red", "--rate", "10kbit")
        cli.sluice("qos", "set", "1", "--queues", "2", "--tenant", "red")
        cli.sluice("port", "add", f"3@pcap:{ins}")
        deadline = time.monotonic() + PATIENCE_S
        counted = lambda q: q["sent"]["packets"] + q["depth"]["packets"] + q["dropped"]["tenant"]["packets"]
        while counted(queue := qos(cli, 2)["queues"][0]) < 300:
            assert time.monotonic() < deadline, queue
            time.sleep(0.05)
        red = tenants(cli)["red"]
        # 15 KB are 15 frames of 1,000 bytes.
        assert red["highest"] == {"packets": 15, "bytes": 15_000} and red["members"] == ["port 1", "port 2"]
        assert red["config"] == {"limit": {"packets": 20, "bytes": "15KB"}, "reserved": 5, "alpha": 1.0}
        assert qos(cli, 2)["queues"][0]["dropped"]["tenant"]["packets"] == red["dropped"]["limit"]["packets"]
        text = cli.sluice("qos", "show")
        assert re.search(r"^red .* 20 packets, 15KB +5 +1 +port 1, port 2$", text, re.M), text
        assert re.search(r"all queues together hold at most \d+ packets", text)
        assert "all queues belong to tenant red" in cli.sluice("qos", "show", "2")
        assert re.search(r"^red +\d+ +\d+ +15 ", cli.sluice("stats"), re.M)
        assert "\ntenants\n" in cli.sluice("top", "--once", "--interval", "0.2")
        found = dict(line.rsplit(" ", 1) for line in get(running.metrics) if line.startswith("sluice_tenant"))
        assert int(found['sluice_tenant_dropped_packets_total{tenant="red",cause="limit"}']) >= 250
        assert found['sluice_tenant_highest_bytes{tenant="red"}'] == "15000.0"
        drops = {drop["reason"]: drop["packets"] for drop in json.loads(cli.sluice("stats", "--json"))["drops"]}
        assert drops["tenant limit"] >= 250
        assert "queues of port 1 belong to tenant `red`" in cli.sluice("qos", "tenant", "clear", "red", code=1)
        cli.sluice("qos", "clear", "1")
        cli.sluice("qos", "clear", "2")
        cli.sluice("qos", "tenant", "clear", "red")
        assert tenants(cli) == {}
    finally:
        assert running.stop() == 0, running.output


def test_contradictory_tenants_are_named_and_change_nothing(cli, tmp_path):
    file = tmp_path / "queues.json"
    cli.sluice("qos", "tenant", "set", "red", "--packets", "20")
    before = tenants(cli)

    def refused(config, *words):
        file.write_text(config if isinstance(config, str) else json.dumps(config))
        return cli.sluice("qos", *words, str(file), code=1)

    tenant = ["tenant", "set", "blue"]
    for config, words, message in [
        ({"limit": {"packets": 9}, "reserved": 10}, tenant, "queues.json: limit.packets: 9 is less than the 10 that are reserved"),
        ({"limit": {"bytes": 100}, "reserved": 10}, tenant, "limit.bytes: 100B is less than 10 reserved frames of 60 bytes"),
        ({"reserved": 100_000_000}, tenant, "tenant blue: reserved: 100000000; the shared buffer holds"),
        ({"alpha": 0}, tenant, "alpha: 0 is not between 1/256 and 256"),
        ({"limit": {"time": "5ms"}}, tenant, "limit.time: unknown field"),
        ({}, ["tenant", "set", "a b"], "`a b` is no name of a tenant"),
        ({"queues": [{}], "root": {"queue": 0}, "tenant": "green"}, ["set", "2"], "tenant: there is no tenant `green`; there is red"),
        ({"queues": [{"tenant": "red"}], "root": {"queue": 0}, "tenant": "blue"}, ["set", "2"],
         "queues[0].tenant: `red`, but the port belongs to `blue`: a queue has one tenant"),
    ]:
        assert message in refused(config, *words), (config, refused(config, *words))
    assert "--packets: 1 is less than the 2" in cli.sluice("qos", *tenant, "--packets", "1", "--reserved", "2", code=1)
    assert "there is no tenant `green`; there is red" in cli.sluice("qos", "tenant", "clear", "green", code=1)
    assert "cannot be used with" in cli.sluice("qos", *tenant, str(file), "--packets", "1", code=2)
    assert tenants(cli) == before and qos(cli, 2) is None


def test_a_link_has_queues_and_keeps_them(tmp_path):
    ins, empty, outs = (tmp_path / name for name in ["in.pcap", "empty.pcap", "out.pcap"])
    low = [struct.pack(">BI", 0, n) + bytes(995) for n in range(100)]
    high = [struct.pack(">BI", 5, n) + bytes(995) for n in range(20)]
    capture(ins, low + high)
    capture(empty, [])
    limit, queues = tmp_path / "red.json", tmp_path / "link.json"
    limit.write_text(json.dumps({"limit": {"packets": 500}}))
    queues.write_text(json.dumps({"queues": [{}, {}], "tenant": "red",
                                  "root": {"strict": [{"queue": 1}, {"queue": 0}], "shaper": {"rate": "1Mbit"}}}))
    state = ["--state", str(tmp_path / "state")]
    # Each device sends all by its port 2: of the first one that is a link.
    start = [PRIORITIES, "-i", "1@memory", "-i", f"2@pcap:{empty},{outs}", "--device", f"2={PRIORITIES}", "--bind", "2=2",
             "--chain", "1:2,2:1", "--qos", f"1:2={queues}", "--tenant", f"red={limit}", *state]
    running = Daemon(*start)
    try:
        cli = Cli(running.address)
        link = lambda: json.loads(cli.sluice("qos", "show", "1:2", "--json"))["links"][0]
        assert link()["qos"]["configured"] and tenants(cli)["red"]["members"] == ["the link at port 2 of device 1"]
        cli.sluice("port", "add", f"3@pcap:{ins}")
        deadline = time.monotonic() + PATIENCE_S
        while sum(queue["sent"]["packets"] for queue in link()["qos"]["queues"]) < 120:
            assert time.monotonic() < deadline, link()
            time.sleep(0.1)
        text = cli.sluice("qos", "show", "1:2")
        assert "link 1:2, to 2:1: configured\n  strict priority" in text and re.search(r"^1:2 +0 ", text, re.M), text
        assert "no link begins at port 7 of device 1" in cli.sluice("qos", "show", "1:7", code=1)
        assert "no link begins at port 7 of device 1" in cli.sluice("qos", "set", "1:7", "--queues", "2", code=1)
        assert "there is no port 9" in cli.sluice("qos", "set", "9", "--queues", "2", code=1)
        cli.sluice("qos", "set", "1:2", "--queues", "4", "--tenant", "red")
        cli.sluice("qos", "tenant", "set", "red", "--packets", "77")
        cli.sluice("qos", "tenant", "set", "blue", "--reserved", "3")
        wanted = link()["qos"]["config"], [tenant["config"] for tenant in tenants(cli).values()]
    finally:
        assert running.stop() == 0, running.output
    out = frames(outs)
    assert [f for f in out if f[0] == 0] == low and [f for f in out if f[0] == 5] == high, "in order within a class"
    last = max(at for at, frame in enumerate(out) if frame[0] == 5)
    assert len(out) - 1 - last > 30, "urgent frames, which came last, have not waited for the others"
    running = Daemon(*start)
    try:
        cli = Cli(running.address)
        assert (link()["qos"]["config"], [tenant["config"] for tenant in tenants(cli).values()]) == wanted
        cli.sluice("unchain", "1:2")
        cli.sluice("qos", "tenant", "clear", "red")
    finally:
        assert running.stop() == 0, running.output


def test_a_program_without_queues_shows_none_in_stats_top_and_metrics(daemon):
    running = daemon(PLAIN, *PORTS, "--metrics", "127.0.0.1:0")
    cli = Cli(running.address)
    assert "queue" not in cli.sluice("stats") and "queues" not in cli.sluice("top", "--once", "--interval", "0.1")
    assert not any("sluice_queue" in line for line in get(running.metrics))
    assert json.loads(cli.sluice("stats", "--json"))["ports"][0]["qos"] is None


def test_queues_come_back_with_their_port(tmp_path):
    state = ["--state", str(tmp_path / "state")]
    file = tmp_path / "start.json"
    file.write_text(json.dumps({"queues": [{}, {}], "root": {"weighted": [{"queue": 0}, {"queue": 1, "weight": 2}]}}))
    start = ["--qos", f"1={file}"]
    # One that is free, and that the process that takes over finds again.
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % found.getsockname()[1]

    def run(*arguments):
        running = Daemon(PLAIN, *PORTS, *arguments, *state, "--grpc", address)
        return running, Cli(running.address)

    def killed(running):
        running.process.kill()
        running.process.wait(timeout=PATIENCE_S)
        running.process.stdout.close()

    running, cli = run(*start)
    assert qos(cli, 1)["config"]["root"]["weighted"][1] == {"queue": 1, "weight": 2}
    cli.sluice("port", "add", "3@memory")
    cli.sluice("port", "add", "4@memory")
    cli.sluice("qos", "set", "3", "--queues", "4", "--rate", "1Gbit")
    cli.sluice("qos", "set", "4", "--queues", "2")
    # Opened again, and with its queues; removed, and with them.
    cli.sluice("port", "set", "3", "spread")
    cli.sluice("port", "remove", "4")
    cli.sluice("port", "add", "4@memory")
    cli.sluice("qos", "set", "1", "--queues", "5")
    wanted = [qos(cli, port) for port in (1, 2, 3, 4)]
    assert wanted[1] is None and wanted[3] is None and len(wanted[2]["queues"]) == 4
    killed(running)

    running, cli = run(*start)
    pid = None
    try:
        assert [qos(cli, port) for port in (1, 2, 3, 4)] == wanted
        deadline = time.monotonic() + PATIENCE_S
        told = cli.sluice("restart")
        assert "has taken over" in told
        assert [qos(cli, port) for port in (1, 2, 3, 4)] == wanted
        pid = int(re.search(r"process (\d+)", told).group(1))
        cli.sluice("qos", "clear", "3")
        os.kill(pid, signal.SIGTERM)
        while os.path.exists(f"/proc/{pid}/fd"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        killed(running)
        if pid is not None and os.path.exists(f"/proc/{pid}/fd"):
            os.kill(pid, signal.SIGKILL)

    # Another command line is in force for the ports that it names.
    running, cli = run()
    try:
        assert qos(cli, 1) is None and qos(cli, 3) is None
    finally:
        assert running.stop() == 0, running.output


def test_wrong_queues_at_the_start_are_refused(tmp_path):
    file = tmp_path / "start.json"

    def refused(text, *arguments):
        file.write_text(text)
        command = [SLUICE, "run", PLAIN, *PORTS, "--grpc", "127.0.0.1:0", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT)
        assert done.returncode == 2, done
        return done.stderr

    good = '{"queues":[{}],"root":{"queue":0}}'
    assert "start.json: root: unknown" not in refused("{}", "--qos", f"1={file}")
    assert "start.json: line 1, column 2: missing field `queues`" in refused("{}", "--qos", f"1={file}")
    assert "queues[1]: is nowhere" in refused('{"queues":[{},{}],"root":{"queue":0}}', "--qos", f"1={file}")
    assert "--qos: there is no port 7; -i 7@DEVICE opens one" in refused(good, "--qos", f"7={file}")
    assert "port 1 is given twice" in refused(good, "--qos", f"1={file}", "--qos", f"1={file}")
    assert "PORT=FILE.json" in refused(good, "--qos", str(file))
    assert "no link begins at port 7 of device 1; --chain makes one" in refused(good, "--qos", f"1:7={file}")
    assert "start.json: limit.packets: 1 is less" in refused('{"limit":{"packets":1},"reserved":2}', "--tenant", f"red={file}")
    assert "red is given twice" in refused("{}", "--tenant", f"red={file}", "--tenant", f"red={file}")
    assert "NAME=FILE.json" in refused("{}", "--tenant", str(file))
    unknown = '{"queues":[{}],"root":{"queue":0},"tenant":"red"}'
    assert "--qos: queues of port 1: tenant: there is no tenant `red`" in refused(unknown, "--qos", f"1={file}")


def test_changes_are_in_the_audit_log(daemon, tmp_path):
    audit = tmp_path / "audit"
    running = daemon(PLAIN, *PORTS, "--audit", str(audit))
    cli = Cli(running.address)
    cli.sluice("qos", "set", "1", "--queues", "2")
    cli.sluice("qos", "clear", "7", code=1)
    cli.sluice("qos", "show")
    running.stop()
    records = [json.loads(line) for line in audit.read_text().splitlines()]
    records = [r for r in records if r["method"] == "/sluice.v1.Admin/Qos"]
    assert [r["outcome"] for r in records] == ["Ok", "FailedPrecondition"], records
    assert "port=1" in records[0]["what"] and "config" in records[0]["what"] and "port=7" in records[1]["what"]
