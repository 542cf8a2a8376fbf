"""`sluice config save|load`, `run --entries` with such a file, and the commands for all kinds of entities.

Run: cargo build -p sluice && pytest tests/py/test_config.py
"""

import json
import subprocess

import pytest
from conftest import PATIENCE_S, ROOT, SLUICE
from test_cli import Cli

PORTS = ["-i", "1@memory", "-i", "2@memory", "-i", "3@memory"]
EVERYTHING = "tests/py/everything.p4"
CONFIG = "tests/py/config.p4"


@pytest.fixture
def everything(daemon):
    return Cli(daemon(EVERYTHING, *PORTS).address)


def fill(switch):
    """One entity of every kind that everything.p4 has."""
    switch.sluice("member", "add", "selector", "1", "answer(result:10)")
    switch.sluice("member", "add", "selector", "2", "answer(20)")
    switch.sluice("group", "add", "selector", "1", "max_size=8", "1", "2:3@2")
    switch.sluice("multicast", "add", "1", "1:7", "2:8|3:9", "metadata=0x00ff")
    switch.sluice("clone", "add", "100", "510", "packet_length=64", "class_of_service=3")
    switch.sluice("value-set", "add", "wanted", "0x1234")
    switch.sluice("value-set", "add", "wanted", "7")
    switch.sluice("digest", "add", "seen_t", "max_list_size=16", "max_timeout=100ms", "ack_timeout=1s")
    switch.table("add", "exact_table", "a:1", "answer(5)", "metadata=0x0102")
    switch.table("add", "lpm_table", "a:10.0.0.0/8", "route(6)", "timeout=30s", "meter=1000,10,2000,20")
    switch.table("add", "acl_table", "7", "b:0x0a000000&&&0xff000000", "c:1..9", "answer(1)")
    switch.table("add", "acl_table", "9", "d:3", "answer(2)")
    switch.table("add", "ecmp_table", "a:5", "group(1)")
    switch.table("add", "ecmp_table", "a:6", "member(2)")
    switch.table("set-default", "exact_table", "answer(77)")
    switch.sluice("register", "set", "cells", "3", "0xdead")
    switch.sluice("meter", "set", "police", "2", "100", "10", "200", "20")
    switch.sluice("counter", "set", "seen", "4", "11", "1100")


def saved(switch, *options):
    return switch.sluice("config", "save", "-", *options)


def load(switch, tmp_path, text, *options, code=0):
    file = tmp_path / "load.entries"
    file.write_text(text)
    return switch.sluice("config", "load", str(file), *options, code=code)


def test_every_entity_is_saved_and_comes_back(everything, daemon, tmp_path):
    fill(everything)
    text = saved(everything)
    for line in [
        "member MyIngress.selector 1 MyIngress.answer(result:0x000a)",
        "group MyIngress.selector 1 max_size=8 1 2:3@2",
        "multicast 1 1:7 2:8|3:9 metadata=0x00ff",
        "clone 100 510 class_of_service=3 packet_length=64",
        "value_set MyParser.wanted 0x0007",
        "value_set MyParser.wanted 0x1234",
        "digest seen_t max_timeout=100ms max_list_size=16 ack_timeout=1s",
        "setdefault MyIngress.exact_table MyIngress.answer(result:0x004d)",
        "set MyIngress.exact_table a:0x00000001 MyIngress.answer(result:0x0005) metadata=0x0102",
        "set MyIngress.lpm_table a:0x0a000000/8 MyIngress.route(result:0x0006) timeout=30s meter=1000,10,2000,20",
        "set MyIngress.acl_table 7 b:0x0a000000&&&0xff000000 c:0x0001..0x0009 MyIngress.answer(result:0x0001)",
        "set MyIngress.ecmp_table a:0x00000005 group(1)",
        "register_write MyIngress.cells all 0",
        "register_write MyIngress.cells 3 0xdead",
        "meter_write MyIngress.police 2 100 10 200 20",
    ]:
        assert line in text.splitlines(), f"{line} is not in\n{text}"
    assert "counter" not in text.replace("# counters", "")
    # On a fresh switch, by hand and at its start.
    fresh = Cli(daemon(EVERYTHING, *PORTS).address)
    assert "inserted: " in load(fresh, tmp_path, text)
    assert saved(fresh) == text
    assert "inserted: 0, modified: 0, deleted: 0" in load(fresh, tmp_path, text, "--replace")
    started = Cli(daemon(EVERYTHING, *PORTS, "--entries", str(tmp_path / "load.entries")).address)
    assert saved(started) == text


def test_counts_are_saved_if_asked_for(everything, daemon, tmp_path):
    fill(everything)
    text = saved(everything, "--counters")
    assert "counter_write MyIngress.seen 4 11 1100" in text.splitlines()
    fresh = Cli(daemon(EVERYTHING, *PORTS).address)
    load(fresh, tmp_path, text)
    assert saved(fresh, "--counters") == text


def test_strings_initial_entries_and_quoted_names_come_back(daemon, tmp_path):
    switch = Cli(daemon(CONFIG, *PORTS).address)
    switch.table("add", "vrfs", "ingress_port:1", 'in_vrf("red one")')
    switch.table("add", "vrfs", "ingress_port:2", "in_vrf(vrf:blue)")
    switch.table("set", "routes", "5", 'vrf:"red one"', '"h.eth.dst[47:40]":0x10&&&0xf0', "send(3)")
    switch.table("delete", "kinds", '"ether type":0x0800')
    switch.table("set", "kinds", '"ether type":0x0806', "drop()")
    text = saved(switch)
    assert 'set I.vrfs standard_metadata.ingress_port:0x001 I.in_vrf(vrf:"red one")' in text.replace("s.ingress_port", "standard_metadata.ingress_port")
    assert "clear I.kinds" in text
    file = tmp_path / "x"
    for options in [[], ["--entries", str(file)]]:
        file.write_text(text)
        fresh = Cli(daemon(CONFIG, *PORTS, *options).address)
        if not options:
            load(fresh, tmp_path, text)
        assert saved(fresh) == text
        assert len(fresh.entries("kinds")) == 1


def test_a_load_keeps_or_replaces_what_is_there(everything, tmp_path):
    fill(everything)
    text = saved(everything)
    everything.table("add", "exact_table", "a:2", "answer(6)")
    everything.table("set", "exact_table", "a:1", "answer(9)")
    everything.sluice("multicast", "add", "2", "3")
    changed = saved(everything)
    out = load(everything, tmp_path, text, "--replace", "--dry-run")
    assert "would be inserted: 0, modified: 1, deleted: 2" in out, out
    assert "- MyIngress.exact_table a:0x00000002" in out.splitlines(), out
    assert saved(everything) == changed
    assert "inserted: 0, modified: 1, deleted: 0" in load(everything, tmp_path, text)
    assert len(everything.entries("exact_table")) == 2
    answer = json.loads(load(everything, tmp_path, text, "--replace", "--json"))
    assert (answer["inserted"], answer["modified"], answer["deleted"], answer["written"]) == (0, 0, 2, True)
    assert saved(everything) == text


def test_a_refused_load_changes_nothing_and_names_the_line(everything, tmp_path):
    before = saved(everything)
    bad = "set exact_table a:1 answer(1)\n\nset ecmp_table a:1 group(9)\n"
    message = load(everything, tmp_path, bad, code=1)
    assert "load.entries:3: " in message and "no group 9" in message and "nothing is changed" in message
    assert saved(everything) == before
    message = load(everything, tmp_path, "set exact_table a:1 answer(70000)\npacket 1 00\nadd nothing a()\n", code=1)
    for line in ["load.entries:1: ", "load.entries:2: ", "load.entries:3: "]:
        assert line in message, message


def test_batches_before_a_refused_one_are_undone(daemon, tmp_path):
    switch = Cli(daemon(CONFIG, *PORTS).address)
    before = saved(switch)
    # The table that is last in the file takes 16 entries: that is known when another batch was carried out.
    lines = [f"set stations dst:{n} send(1)" for n in range(60_000)]
    lines += [f'set kinds "ether type":{n} drop()' for n in range(300)]
    message = load(switch, tmp_path, "\n".join(lines), code=1)
    assert "load.entries:600" in message and "nothing is changed" in message
    assert saved(switch) == before


def test_a_table_of_more_entries_than_a_request_takes_is_cleared(daemon, tmp_path):
    switch = Cli(daemon(CONFIG, *PORTS).address)
    load(switch, tmp_path, "\n".join(f"set stations dst:{n} send(1)" for n in range(60_000)))
    assert switch.table("show", "stations").splitlines()[-1].startswith("# 60000 of ")
    switch.table("clear", "stations")
    assert switch.entries("stations") == []


def test_entities_are_shown_as_lines_and_as_json(everything):
    fill(everything)
    show = lambda *words: everything.sluice(*words, "show")
    assert "MyIngress.selector 2 MyIngress.answer(result:0x0014)" in show("member").splitlines()
    assert "MyIngress.selector 1 max_size=8 1 2:3@2" in show("group").splitlines()
    assert "1 1:7 2:8|3:9 metadata=0x00ff" in show("multicast").splitlines()
    assert "# 1 clone session" in show("clone")
    answers = lambda word: json.loads(everything.sluice(word, "show", "--json"))
    assert answers("multicast")["multicast_groups"] == [{
        "group": 1,
        "metadata": "0x00ff",
        "replicas": [{"port": "1", "instance": 7},
                     {"port": "2", "instance": 8, "backups": [{"port": "3", "instance": 9}]}],
    }]
    [group] = answers("group")["groups"]
    assert group["members"][1] == {"member": 2, "weight": 3, "watch_port": "2"}
    [digest] = answers("digest")["digests"]
    assert digest["max_timeout_ns"] == 100_000_000
    [values] = answers("value-set")["value_sets"]
    assert len(values["members"]) == 2 and values["size"] == 4
    table = json.loads(everything.table("show", "lpm_table", "--json"))
    [entry] = table["entries"]
    assert entry["match"] == {"a": {"lpm": "0x0a000000", "prefix_len": 8}}
    assert entry["action"] == {"name": "MyIngress.route", "params": {"result": "0x0006"}}
    assert entry["idle_timeout_ns"] == 30_000_000_000 and entry["meter"]["pir"] == 2000
    assert "time_since_last_hit_ns" in entry and entry["counter"] == {"packets": 0, "bytes": 0}
    assert {"MyIngress.lpm_table"} <= {table["table"] for table in json.loads(everything.table("list", "--json"))["tables"]}
    cells = json.loads(everything.sluice("register", "show", "cells", "--json"))["cells"]
    assert cells == [{"register": "MyIngress.cells", "index": 3, "value": ["0xdead"]}]


def test_entities_are_added_set_modified_and_deleted(everything):
    run = everything.sluice
    run("multicast", "add", "5", "1")
    assert "exists already" in run("multicast", "add", "5", "1", code=1)
    run("multicast", "set", "5", "2")
    run("multicast", "modify", "5", "3")
    assert "5 3" in run("multicast", "show").splitlines()
    run("multicast", "set", "6", "1")
    run("multicast", "delete", "5")
    assert "5 3" not in run("multicast", "show")
    assert "does not exist" in run("multicast", "modify", "5", "3", code=1)
    assert "there is no port 77" in run("clone", "add", "1", "77", code=1)
    run("value-set", "add", "wanted", "1")
    run("value-set", "add", "wanted", "2")
    assert "has that member already" in run("value-set", "add", "wanted", "2", code=1)
    run("value-set", "delete", "wanted", "1")
    assert "has no such member" in run("value-set", "delete", "wanted", "1", code=1)
    message = run("value-set", "add", "wanted", "99999999", code=1)
    assert message.endswith("key `value`: `99999999` does not fit in 16 bits\n"), message
    assert "MyParser.wanted 0x0002" in run("value-set", "show", "wanted").splitlines()
    run("value-set", "delete", "wanted")
    assert "MyParser.wanted" not in run("value-set", "show", "wanted")
    everything.table("set", "exact_table", "a:1", "answer(1)")
    everything.table("set", "exact_table", "a:1", "answer(2)")
    [entry] = everything.entries("exact_table")
    assert "result:0x0002" in entry
    everything.table("modify", "exact_table", "a:1", "answer(3)")
    assert "does not exist" in everything.table("modify", "exact_table", "a:9", "answer(3)", code=1)
    everything.table("clear", "exact_table")
    assert everything.entries("exact_table") == []


def test_actions_to_select_of_need_no_members(everything, daemon, tmp_path):
    everything.table("add", "ecmp_table", "a:1", "one_of(answer(1) *3 @1; answer(2) @2)", "mode=random", "size=weights")
    [entry] = everything.entries("ecmp_table")
    assert entry == ("MyIngress.ecmp_table a:0x00000001 one_of(MyIngress.answer(result:0x0001) *3 @1; "
                     "MyIngress.answer(result:0x0002) @2) mode=random size=weights")
    everything.table("delete", "ecmp_table", "a:1")
    everything.table("add", entry)
    assert everything.entries("ecmp_table") == [entry]
    text = saved(everything)
    file = tmp_path / "x"
    file.write_text(text)
    assert saved(Cli(daemon(EVERYTHING, *PORTS, "--entries", str(file)).address)) == text


def test_idle_entries_and_digests_are_listened_to(everything):
    everything.table("add", "lpm_table", "a:10.0.0.0/8", "route(6)", "timeout=50ms")
    assert everything.sluice("listen", "--idle", "--count", "1") == "idle MyIngress.lpm_table a:0x0a000000/8\n"
    [idle] = json.loads(everything.sluice("listen", "--idle", "--count", "1", "--json"))["idle"]
    assert idle["table"] == "MyIngress.lpm_table" and idle["match"]["a"]["prefix_len"] == 8
    # The right to write is given back.
    everything.table("clear", "lpm_table")
    assert "there is no digest `other`" in everything.sluice("listen", "other", code=1)


def test_without_entries_the_program_that_is_missing_is_said(daemon, tmp_path):
    switch = Cli(daemon(*PORTS).address)
    assert "device 1 runs no program yet" in switch.sluice("config", "save", "-", code=2)


def test_lines_of_a_file_are_refused_at_start_with_their_place(tmp_path):
    file = tmp_path / "bad.entries"
    file.write_text("set exact_table a:1 answer(1)\nadd exact_table a:1 answer(2)\nclone 5 77\n")
    done = subprocess.run([SLUICE, "run", EVERYTHING, *PORTS, "--entries", str(file), "--grpc", "127.0.0.1:0"],
                          capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT)
    assert done.returncode == 1
    assert "bad.entries: line 2: " in done.stderr and "exists already" in done.stderr
    assert "bad.entries: line 3: " in done.stderr and "no port 77" in done.stderr
