"""What an operator does with a running switch (docs/operations.md): another program, metrics, top, traces, captures.

Run: cargo build -p sluice && pytest tests/py/test_operations.py
"""

import json
import os
import re
import struct
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from conftest import PATIENCE_S, ROOT, SLUICE
from test_cli import Cli

ROUTER = "examples/router/router.p4"
# A frame for 10.0.1.2 with TTL 64, to the router's address on port 1.
ETHERNET = "020000000101" "02000000000a" "0800"
IPV4 = "4500001c00000000401163c60a00020a0a000102"
FRAME = ETHERNET + IPV4 + "0001000200080000"


@pytest.fixture
def switch(daemon):
    running = daemon(ROUTER, "-i", "1@memory", "-i", "2@memory", "--metrics", "127.0.0.1:0")
    switch = Cli(running.address)
    switch.metrics = running.metrics
    switch.table("add", "ipv4_lpm", "dstAddr:10.0.1.0/24", "set_nexthop(nexthop:1)")
    switch.table("add", "nexthop", "nexthop:1", "send(port:2, srcAddr:02:00:00:00:01:01, dstAddr:02:00:00:00:01:02)")
    return switch


@pytest.fixture
def changed(tmp_path) -> Path:
    """The router with one more action of `nexthop`."""
    text = (ROOT / ROUTER).read_text()
    assert "    table nexthop {" in text and "actions = { send; no_route; }" in text
    text = text.replace("    table nexthop {", "    action hole() { drop(3); }\n    table nexthop {")
    text = text.replace("actions = { send; no_route; }", "actions = { send; hole; no_route; }")
    program = tmp_path / "changed.p4"
    program.write_text(text)
    return program


def test_another_program_keeps_what_diff_says(switch, changed):
    done = subprocess.run([SLUICE, "diff", ROUTER, changed, "--json"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    fates = {o["name"]: o["fate"] for o in map(json.loads, done.stdout.splitlines())}
    assert fates["MyIngress.ipv4_lpm"] == "kept" and fates["MyIngress.nexthop"] == "copied"
    before = switch.entries("ipv4_lpm"), switch.entries("nexthop")
    loaded = json.loads(switch.sluice("load", str(changed), "--json"))
    assert {o["name"]: o["fate"] for o in loaded["outcomes"]} == fates
    assert (switch.entries("ipv4_lpm"), switch.entries("nexthop")) == before
    switch.table("add", "nexthop", "nexthop:2", "hole()")
    # What would lose an entry is refused unless told so.
    with_hole = switch.entries("nexthop")
    refused = switch.sluice("load", ROUTER, code=1)
    assert "MyIngress.nexthop" in refused and "1 lost" in refused and "--allow-loss" in refused
    assert switch.entries("nexthop") == with_hole
    text = switch.sluice("load", ROUTER, "--allow-loss")
    assert "1 carried over, 1 lost" in text and "no action `MyIngress.hole`" in text
    assert (switch.entries("ipv4_lpm"), switch.entries("nexthop")) == before
    switch.sluice("load", ROUTER, "--fresh")
    assert switch.entries("ipv4_lpm") == []
    assert "is not loaded: 0 is not a device id" in switch.sluice("load", ROUTER, "--device-id", "0", code=1)


def test_metrics_count_entries_calls_and_changes(switch):
    switch.sluice("load", ROUTER)
    wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
    request = urllib.request.Request(f"http://{switch.metrics}/metrics", headers=wanted)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    assert 'sluice_table_entries{device_id="1",table="MyIngress.ipv4_lpm"} 1.0' in lines
    assert 'sluice_program_changes_total{device_id="1"} 2' in lines
    assert any(line.startswith('sluice_rpcs_total{method="Write",code="Ok"} 2') for line in lines), lines
    assert any(line.startswith('sluice_port_up{device_id="1",port="1"') for line in lines)
    assert lines[-1] == "# EOF"


def test_top_prints_once(switch):
    text = switch.sluice("top", "--once", "--interval", "0.2")
    for word in ["ports", "MyIngress.ipv4_lpm", "hits/s", "workers", "drops"]:
        assert word in text, text


# What comes in by port 1 is let through to nowhere, all else is dropped.
BY_PORT = """
#include <core.p4>
#include <v1model.p4>
header eth_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers_t { eth_t eth; }
struct meta_t { }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.eth); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    action pass() { s.egress_spec = 7; h.eth.src = h.eth.dst; }
    action deny() { mark_to_drop(s); }
    table t {
        key = { s.ingress_port: exact; }
        actions = { pass; deny; }
        default_action = deny();
        const entries = { 1: pass(); }
    }
    apply { t.apply(); }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def test_actions_and_cycles_are_shown_while_somebody_watches(daemon, tmp_path):
    program = tmp_path / "by_port.p4"
    program.write_text(BY_PORT)
    # By port 1 frames come without end.
    running = daemon(str(program), "-i", "1@null", "--metrics", "127.0.0.1:0")
    switch = Cli(running.address)
    assert json.loads(switch.sluice("stats", "--json"))["watched"] is None

    def watched():
        return json.loads(switch.sluice("stats", "--json"))["watched"]

    # On a busy machine the switch may have had no turn in so short a time.
    part = re.compile(r"^(state|parser|table|action|control|loop) .* [\d.]+ +[\d.]+ % +\d+$", re.M)
    action = re.compile(r"^I.t +I.pass +\d+ +100.0 %$", re.M)
    for seconds in ["0.5", "5", "50"]:
        text = switch.sluice("stats", "--profile", seconds)
        profile = text[re.search(r"^in \d+\.\d s:$", text, re.M).start() :]
        if part.search(profile) and action.search(profile):
            break
    assert action.search(profile), text
    assert re.search(r"^receive +[\d.]+ +[\d.]+ % +counted$", profile, re.M), text
    assert part.search(profile), text
    with urllib.request.urlopen(f"http://{running.metrics}/metrics", timeout=PATIENCE_S) as answer:
        assert "sluice_action_packets_total{" in answer.read().decode()
    top = switch.sluice("top", "--once", "--interval", "1")
    assert re.search(r"^ +I.t: I.pass +[\d.]+( k| M)? +100.0 %$", top, re.M), top
    assert re.search("cycles, sampled for [1-9][0-9]* s", top), top
    # The last one asked for seven seconds.
    deadline = time.monotonic() + PATIENCE_S
    while watched()["now"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    before = watched()
    time.sleep(0.3)
    after = watched()
    assert before["samples"] == after["samples"] and before["actions"] == after["actions"]


def test_a_given_packet_is_traced_with_the_running_entries(switch):
    text = switch.sluice("trace", "--port", "1", "--packet", FRAME)
    assert re.search(r"apply MyIngress.ipv4_lpm .*: hit .*set_nexthop\(nexthop=0x1\)", text), text
    assert "port 2: 020000000102020000000101" in text
    [line] = switch.sluice("trace", "--port", "1", "--packet", FRAME, "--format", "json").splitlines()
    trace = json.loads(line)
    assert [sent["port"] for sent in trace["sent"]] == [2]
    assert any(step["file"] == "router.p4" for run in trace["runs"] for step in run["steps"])
    [route] = switch.entries("ipv4_lpm")
    assert "# 0 packets" in route, "a trace counts nothing"
    assert "--packet has no bytes" in switch.sluice("trace", "--port", "1", "--packet", "", code=2)
    assert "no field `hdr.ipv4.dst`" in switch.sluice("trace", "--filter", "hdr.ipv4.dst == 1", code=2)


def test_a_tree_shows_what_outcomes_share_once(daemon, tmp_path):
    folder = ROOT / "examples/load_balancer"
    members = [line for line in (folder / "load_balancer.stf").read_text().splitlines() if line.startswith(("member", "group", "add"))]
    entries = tmp_path / "entries"
    entries.write_text("\n".join(members))
    switch = Cli(daemon(str(folder / "load_balancer.p4"), "-i", "1@memory", "-i", "2@memory", "-i", "3@memory", "--entries", str(entries)).address)
    packet = "0200000000ff02000000000a0800" "4500001c00010000401100000a010005cb007101" "0001003500080000"
    text = switch.sluice("trace", "--port", "1", "--packet", packet, "--tree")
    assert text.count("state start") == text.count("apply MyIngress.virtual_service") // 3 * 2 == 2, text
    branches = [line[3:] for line in text.splitlines() if line.startswith(("├─ ", "└─ "))]
    assert branches == [f"MyIngress.servers, group 7: member {n}" for n in (1, 2, 3)]
    outcomes = [json.loads(line) for line in switch.sluice("trace", "--port", "1", "--packet", packet, "--tree", "--format", "json").splitlines()]
    assert [outcome["more"] for outcome in outcomes] == [True, True, False]


def test_steps_name_the_files_that_a_program_was_put_together_from(daemon, tmp_path):
    text = (ROOT / ROUTER).read_text()
    at = text.index("parser MyParser")
    (tmp_path / "types.p4").write_text(text[:at].replace("#include <core.p4>", "").replace("#include <v1model.p4>", ""))
    main = tmp_path / "main.p4"
    main.write_text('#include <core.p4>\n#include <v1model.p4>\n#include "types.p4"\n' + text[at:])
    switch = Cli(daemon(str(main), "-i", "1@memory").address)
    told = json.loads(switch.sluice("trace", "--port", "1", "--packet", FRAME, "--format", "json"))
    places = {(step["file"], step["line"], step["source"]) for run in told["runs"] for step in run["steps"] if step["file"]}
    # Files that come with the compiler have their own names.
    lines = {"main.p4": main.read_text().splitlines()}
    for name in {file for file, *_ in places} - {"main.p4"}:
        assert name.startswith("<p4lib/"), name
        lines[name] = (ROOT / name.strip("<>")).read_text().splitlines()
    assert len(places) > 5 and {"main.p4", "<p4lib/parsers.p4>"} <= set(lines)
    assert all(lines[file][line - 1].strip().startswith(source[:10]) for file, line, source in places), places


def test_a_program_that_does_not_run_is_traced_in_all_formats():
    def trace(*more):
        command = [SLUICE, "trace", ROUTER, "--port", "1", "--packet", FRAME, *more]
        done = subprocess.run(command, capture_output=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return done.stdout

    [line] = trace("--format", "json").splitlines()
    told = json.loads(line)
    assert told["sent"] == [] and told["dropped"] == ["ingress drop"] and told["port"] == 1
    steps = [step["text"] for run in told["runs"] for step in run["steps"]]
    assert any("apply MyIngress.ipv4_lpm" in step for step in steps), steps
    text = trace().decode()
    assert all(step in text for step in steps), "the same steps as text"
    message = trace("--format", "protobuf")
    # A length in front, then the fields of the message: the port is the first.
    assert len(message) > 500 and b"MyIngress.ipv4_lpm" in message


def test_frames_of_a_capture_file_are_traced(switch, tmp_path):
    other = FRAME.replace("0a000102", "0a000202")
    file = tmp_path / "in.pcap"
    with file.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1))
        for digits in [other, "ff" * 20, FRAME]:
            frame = bytes.fromhex(digits)
            out.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
    trace = ["trace", "--port", "1", "--pcap", str(file), "--format", "json"]

    def sent(*args):
        lines = switch.sluice(*trace, *args).splitlines()
        return [[s["port"] for s in json.loads(line)["sent"]] for line in lines]

    assert sent("--count", "5") == [[], [], [2]]
    assert sent("--number", "3") == [[2]]
    assert sent("--pcap-filter", "udp and dst host 10.0.1.2", "--count", "5") == [[2]]
    assert sent("--filter", "ipv4.dstAddr == 10.0.2.0/24", "--count", "5") == [[]]
    assert "no frame 4" in switch.sluice(*trace, "--number", "4", code=2)
    assert "syntax error" in switch.sluice(*trace, "--pcap-filter", "udp adn", code=2)
    assert "no frame of the file" in switch.sluice(*trace, "--pcap-filter", "tcp", code=1)
    command = [SLUICE, "trace", ROUTER, "--port", "1", "--pcap", file, "--count", "2"]
    offline = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S)
    assert offline.returncode == 0 and offline.stdout.count("# frame") == 2, offline


def test_traces_and_captures_wait_for_packets(daemon, tmp_path):
    """Nothing passes a memory port, so both wait; packets are in crates/datapath/tests/tap.rs and sluice/src/live."""
    switch = Cli(daemon(ROUTER, "-i", "1@memory").address)
    file = tmp_path / "out.pcapng"
    waiting = [
        [SLUICE, "trace", "--filter", "ipv4", "--grpc", switch.address],
        [SLUICE, "capture", "1", "-w", file, "--grpc", switch.address],
    ]
    for command in waiting:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
        deadline = time.monotonic() + PATIENCE_S
        while "capture" in command and not (file.exists() and file.stat().st_size >= 4):
            assert time.monotonic() < deadline and process.poll() is None, "the capture does not begin"
            time.sleep(0.05)
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    magic, = struct.unpack("<I", file.read_bytes()[:4])
    assert magic == 0x0A0D0D0A, "a pcapng section"
    assert "there is no port 9" in switch.sluice("capture", "9", "-w", str(file), code=2)


def test_state_that_could_use_up_the_memory_is_refused_and_the_switch_goes_on(daemon, tmp_path):
    running = daemon(ROUTER, "-i", "1@memory", "-i", "2@memory", "--state-memory", "2000")
    switch = Cli(running.address)
    switch.table("add", "ipv4_lpm", "dstAddr:10.0.1.0/24", "set_nexthop(nexthop:1)")
    # 32 GB of cells, none of which is touched when the program is loaded.
    large = tmp_path / "large.p4"
    control = "control MyIngress("
    text = (ROOT / ROUTER).read_text()
    assert text.count(control) == 1
    large.write_text(text.replace(control, "@name(\"seen\") register<bit<64>>(0xffffffff) seen;\n" + control))
    refused = switch.sluice("load", str(large), code=1)
    assert "`seen`" in refused and "2000 MB" in refused and "--state-memory" in refused
    assert len(switch.entries("ipv4_lpm")) == 1


@pytest.fixture
def group_in_a_group():
    """A control group without a limit in one with a limit of 1 GB."""
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    for controller, mount, limit in [("memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("", "/sys/fs/cgroup", "memory.max")]:
        # A container's path may be one of outside.
        for around in [Path(mount) / own.get(controller, "").lstrip("/"), Path(mount)]:
            outer = around / f"sluice-test-{os.getpid()}"
            inner = outer / "inner"
            try:
                if (around / "cgroup.procs").exists():
                    outer.mkdir()
                    (outer / limit).write_text(str(1 << 30))
                    inner.mkdir()
                    yield inner
                    return
            except OSError:
                continue
            finally:
                for folder in [inner, outer]:
                    if folder.exists():
                        folder.rmdir()
    pytest.skip("no control group with a limit on memory can be made here")


def test_the_limit_of_a_group_around_the_switch_s_own_bounds_its_state(group_in_a_group, tmp_path):
    program = tmp_path / "large.p4"
    control = "control MyIngress("
    text = (ROOT / ROUTER).read_text()
    assert text.count(control) == 1
    # 640 MB.
    program.write_text(text.replace(control, "@name(\"seen\") register<bit<64>>(80 << 20) seen;\n" + control))
    command = f"echo $$ > {group_in_a_group}/cgroup.procs && exec {SLUICE} run {program} -i 1@memory --grpc 127.0.0.1:0"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE_S)
    assert done.returncode != 0 and "`seen`" in done.stderr and "may take 512 MB" in done.stderr, done.stderr


def test_several_ports_are_changed_all_or_none(switch):
    numbers = lambda: [port["number"] for port in json.loads(switch.sluice("port", "show", "--json"))["ports"]]
    out_of_service = lambda: [p["number"] for p in json.loads(switch.sluice("port", "show", "--json"))["ports"] if p["out_of_service"]]
    for wrong, why in [
        (["3@memory", "4@nosuch0"], "nosuch0"),
        (["3@memory", "510@memory"], "stands for the controller"),
        (["3@memory", "1@memory"], "there is a port 1 already"),
    ]:
        message = switch.sluice("port", "add", *wrong, code=1)
        assert why in message and message.endswith("sluice: nothing is changed\n"), message
        assert numbers() == [1, 2]
    # Nothing was tried.
    assert "port 3 is given twice" in switch.sluice("port", "add", "3@memory", "3@null", code=1)
    assert "does not fit" in switch.sluice("port", "add", "3@memory", "4@memory,mtu=1500", code=1)
    switch.sluice("port", "add", "3@memory", "4@memory")
    message = switch.sluice("port", "remove", "3", "9", "4", code=1)
    assert "there is no port 9" in message and "nothing is changed" in message
    assert numbers() == [1, 2, 3, 4]
    assert "port 3 is given twice" in switch.sluice("port", "remove", "3", "3", code=1)
    switch.sluice("port", "down", "3")
    message = switch.sluice("port", "down", "3", "4", "9", code=1)
    assert "there is no port 9" in message and "nothing is changed" in message
    assert out_of_service() == [3]
    switch.sluice("port", "remove", "3", "4")
    assert numbers() == [1, 2]


def test_a_memory_port_has_no_link_and_takes_any_length(switch):
    header, first, *_ = switch.sluice("port", "show").splitlines()
    column = lambda name: first[header.index(name):].split("  ")[0].strip()
    assert column("state") == "no link" and "only in memory" in first, first
    assert " any " in first and "9000" not in first, first


def test_a_load_that_replaces_names_what_begins_anew_and_what_stays(daemon, tmp_path):
    switch = Cli(daemon("tests/py/everything.p4", "-i", "1@memory").address)
    switch.sluice("meter", "set", "police", "2", "100", "10", "200", "20")
    switch.sluice("value-set", "set", "wanted", "1", "2")
    switch.table("set-default", "exact_table", "answer(77)")
    switch.sluice("register", "set", "cells", "3", "0xdead")
    empty = tmp_path / "empty.entries"
    empty.write_text("")
    lines = switch.sluice("config", "load", str(empty), "--replace", "--dry-run").splitlines()
    for what in ["meter MyIngress.police 2", "value set MyParser.wanted", "default action of MyIngress.exact_table"]:
        assert f"~ {what}: back to what the program begins with" in lines, lines
    stays = "cells of registers that the file does not name stay as they are: "
    assert lines[-1].startswith(stays) and "MyIngress.cells" in lines[-1]
    told = json.loads(switch.sluice("config", "load", str(empty), "--replace", "--dry-run", "--json"))
    assert {"change": "reset", "entity": "meter MyIngress.police 2", "line": None} in told["steps"]
    assert "MyIngress.cells" in told["untouched_registers"] and not told["written"]
    assert stays in switch.sluice("config", "load", str(empty), "--replace")
    assert "3 0xdead" in switch.sluice("register", "show", "cells")
    assert "police 2" not in switch.sluice("meter", "show", "police")
    # A file that was saved names all cells.
    switch.sluice("config", "save", str(empty))
    assert stays not in switch.sluice("config", "load", str(empty), "--replace")
