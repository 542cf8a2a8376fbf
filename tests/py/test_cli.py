"""`sluice table` and `sluice stats` against a running switch: the router example with memory ports.

Run: cargo build -p sluice && pytest tests/py/test_cli.py
"""

import json
import os
import subprocess
import time

import pytest
from conftest import PATIENCE_S, ROOT, SLUICE

class Cli:
    """The command line, talking to the switch on an address."""

    def __init__(self, address):
        self.address = address

    def sluice(self, *words, code=0):
        """Standard output, or what the command complains about if it has to fail."""
        done = subprocess.run(
            [SLUICE, *words, "--grpc", self.address], capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT
        )
        assert done.returncode == code, f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    def table(self, *words, code=0):
        return self.sluice("table", *words, code=code)

    def entries(self, table):
        return [line for line in self.table("show", table).splitlines() if not line.startswith("#")]


@pytest.fixture
def switch(daemon):
    return Cli(daemon("examples/router/router.p4", "-i", "1@memory", "-i", "2@memory").address)


def test_list_names_tables_keys_and_actions(switch):
    text = switch.table("list")
    for name in ["MyIngress.ipv4_lpm", "hdr.ipv4.dstAddr: lpm", "MyIngress.nexthop", "meta.nexthop: exact",
                 "MyIngress.arp_reply", "MyIngress.set_nexthop", "1048576"]:
        assert name in text, text


def test_entries_come_back_as_lines_that_add_takes(switch):
    switch.table("add", "ipv4_lpm", "dstAddr:10.0.1.0/24", "set_nexthop(nexthop:1)")
    switch.table("add", "nexthop", "nexthop:1", "send(port:2, srcAddr:02:00:00:00:01:01, dstAddr:0x020000000102)")
    [route] = switch.entries("ipv4_lpm")
    assert route.startswith("MyIngress.ipv4_lpm hdr.ipv4.dstAddr:0x0a000100/24 MyIngress.set_nexthop(nexthop:0x0001)")
    assert "# 0 packets, 0 bytes" in route
    [hop] = switch.entries("nexthop")
    assert hop == ("MyIngress.nexthop meta.nexthop:0x0001 "
                   "MyIngress.send(port:0x002, srcAddr:0x020000000101, dstAddr:0x020000000102)")
    switch.table("delete", "ipv4_lpm", "dstAddr:10.0.1.0/24")
    assert switch.entries("ipv4_lpm") == []
    switch.table("add", route)
    assert switch.entries("ipv4_lpm") == [route]


def test_several_lines_are_added_all_or_none(switch):
    lines = [f"ipv4_lpm dstAddr:10.0.{i}.0/24 set_nexthop({i})" for i in range(100)]
    switch.table("add", "\n".join(["# routes", *lines, ""]))
    assert len(switch.entries("ipv4_lpm")) == 100
    more = [f"ipv4_lpm dstAddr:10.1.{i}.0/24 set_nexthop({i})" for i in range(3)]
    message = switch.table("add", "\n".join([*more, lines[7]]), code=1)
    assert f"{lines[7]}: " in message and "exists already" in message
    assert len(switch.entries("ipv4_lpm")) == 100


def test_default_actions_change_and_come_back(switch):
    assert "# MyIngress.ipv4_lpm, default MyIngress.no_route()" in switch.table("show", "ipv4_lpm")
    switch.table("set-default", "ipv4_lpm", "set_nexthop(9)")
    assert "# MyIngress.ipv4_lpm, default MyIngress.set_nexthop(nexthop:0x0009)" in switch.table("show", "ipv4_lpm")
    switch.table("set-default", "ipv4_lpm")
    assert "# MyIngress.ipv4_lpm, default MyIngress.no_route()" in switch.table("show", "ipv4_lpm")


REFUSALS = [
    (["add", "nothing", "a:1", "send(1, 2, 3)"], "there is no table `nothing`"),
    (["add", "nexthop", "send(1, 2, 3)"], "key `meta.nexthop` of table `MyIngress.nexthop` is exact and must be given"),
    (["add", "nexthop", "nexthop:70000", "send(1, 2, 3)"], "`70000` does not fit in 16 bits"),
    (["add", "nexthop", "nexthop:1", "send(1, 2)"], "needs a value for `dstAddr`"),
    (["delete", "nexthop", "nexthop:77"], "does not exist"),
    (["show", "nothing"], "there is no table `nothing`"),
    (["add", "# nothing"], "there is no line"),
]


def test_lines_of_an_entries_file_are_understood(switch):
    switch.table("add", "add ipv4_lpm dstAddr:10.0.1.0/24 set_nexthop(nexthop:1)")
    assert len(switch.entries("ipv4_lpm")) == 1
    # Whatever else it says, the command's word is what happens.
    switch.table("set", "add ipv4_lpm dstAddr:10.0.1.0/24 set_nexthop(nexthop:2)")
    assert len(switch.entries("ipv4_lpm")) == 1


def test_refusals_name_the_object(switch):
    for words, message in REFUSALS:
        assert message in switch.table(*words, code=1)
    assert switch.entries("nexthop") == []


def test_a_primary_with_a_higher_id_keeps_the_right_to_write(switch):
    switch.table("add", "nexthop", "nexthop:1", "no_route()", "--election-id", "5")
    # Nobody is primary now, but ids do not go down.
    message = switch.table("delete", "nexthop", "nexthop:1", "--election-id", "4", code=2)
    assert "election id 5" in message and "--election-id" in message
    # Who asks for no id gets the one that nobody uses now.
    switch.table("delete", "nexthop", "nexthop:1")
    assert switch.entries("nexthop") == []


def test_commands_that_run_at_the_same_time_all_write(switch):
    words = [["table", "add", "nexthop", f"nexthop:{n}", "no_route()"] for n in range(12)]
    running = [subprocess.Popen([SLUICE, *w, "--grpc", switch.address], stderr=subprocess.PIPE, text=True, cwd=ROOT)
               for w in words]
    assert [(p.communicate(timeout=PATIENCE_S)[1], p.returncode) for p in running] == [("", 0)] * len(running)
    assert len(switch.entries("nexthop")) == len(words)


def test_while_another_client_is_primary_the_refusal_says_who_that_may_be(switch):
    listening = subprocess.Popen([SLUICE, "listen", "--grpc", switch.address], cwd=ROOT)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "has_primary\": true" not in switch.sluice("show", "--json") and time.monotonic() < deadline:
            time.sleep(0.05)
        message = switch.table("add", "nexthop", "nexthop:1", "no_route()", code=2)
        assert "does not let this command write" in message and "`sluice listen`" in message and "--election-id" in message
    finally:
        listening.kill()
        listening.wait(timeout=PATIENCE_S)


def test_a_trace_says_that_the_switch_has_no_such_port(daemon):
    switch = Cli(daemon("examples/monitor/monitor.p4", "-i", "1@memory", "-i", "2@memory").address)
    trace = lambda: switch.sluice("trace", "--port", "1", "--packet", "020000000002 020000000001 0800 00")
    switch.table("add", "forward", "dstAddr:02:00:00:00:00:02", "unicast(port:9)")
    assert trace().endswith("dropped: no such port (9)\n")
    switch.table("set", "forward", "dstAddr:02:00:00:00:00:02", "unicast(port:2)")
    assert "\nport 2: 020000000002" in trace()
    switch.sluice("port", "down", "2")
    assert trace().endswith("dropped: port is down (2)\n")


PRINTS = [
    ["check", "examples/router/router.p4"], ["explain", "E0301"], ["p4info", "examples/router/router.p4"],
    ["stf", "examples/router/router.p4", "examples/router/router.stf"],
    ["diff", "examples/router/router.p4", "examples/router/router.p4"],
    ["trace", "examples/router/router.p4", "--port", "1", "--packet", "00"],
]
ASKS = [
    ["load", "examples/router/router.p4"], ["show"], ["table", "list"], ["table", "show", "nexthop"], ["counter", "list"],
    ["register", "list"], ["meter", "list"], ["multicast", "show"], ["clone", "show"], ["member", "show"],
    ["group", "show"], ["value-set", "show"], ["digest", "show"], ["config", "save", "-"], ["stats"],
    ["stats", "--profile", "0.1"], ["log"], ["port", "show"], ["top", "--once", "--interval", "0.1"],
    ["trace", "--port", "1", "--packet", "00"],
]


@pytest.mark.parametrize("words", [*PRINTS, *ASKS], ids=" ".join)
def test_what_is_printed_is_json_if_asked_for(request, words):
    if words in PRINTS:
        done = subprocess.run([SLUICE, *words, "--json"], capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        text = done.stdout
    else:
        text = request.getfixturevalue("switch").sluice(*words, "--json")
    # One object, or one a line.
    try:
        json.loads(text)
    except json.JSONDecodeError:
        for line in text.splitlines():
            json.loads(line)


def test_json_of_local_commands_has_what_text_has():
    run = lambda *words: subprocess.run([SLUICE, *words], capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT)
    report = json.loads(run("stf", "examples/router/router.p4", "examples/router/router.stf", "--verbose", "--json").stdout)
    assert report["passed"] > 0 and report["failed"] == 0 and report["engines"][0]["sent"]
    failed = run("stf", "examples/router/router.p4", "examples/acl/acl.stf", "--json")
    report = json.loads(failed.stdout)
    assert failed.returncode == 1 and report["failed"] == len(report["failures"]) > 0
    assert {"engine", "line", "message"} == set(report["failures"][0])
    info = json.loads(run("p4info", "examples/router/router.p4", "--json").stdout)
    assert {"MyIngress.ipv4_lpm", "MyIngress.nexthop"} <= {table["preamble"]["name"] for table in info["tables"]}


def test_stats_show_ports_tables_drops_and_workers(switch):
    switch.table("add", "nexthop", "nexthop:3", "no_route()")
    text = switch.sluice("stats")
    rows = [line.split() for line in text.splitlines()]
    assert any(row[:3] == ["1", "memory", "memory"] for row in rows), text
    assert any(row[:3] == ["MyIngress.nexthop", "1", "65536"] for row in rows), text
    assert "no packet was dropped" in text
    assert ["worker", "packets", "per", "burst", "receive", "pipeline", "send", "idle"] in rows, text
    assert any(row[:2] == ["0", "0"] and row[3:6] == ["of", "its", "time"] for row in rows), text
    assert any(row[:1] == ["code:"] for row in rows), text


def completions(switch, *words):
    """What the shell would offer for the last word."""
    # As the script does that `COMPLETE=bash sluice` prints.
    environment = {**os.environ, "COMPLETE": "bash", "_CLAP_COMPLETE_INDEX": str(len(words)), "_CLAP_IFS": "\n",
                   "_CLAP_COMPLETE_COMP_TYPE": "9", "_CLAP_COMPLETE_SPACE": "true", "SLUICE_GRPC": switch.address}
    done = subprocess.run([SLUICE, "--", "sluice", *words], capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT,
                          env=environment)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout.splitlines()


def test_the_shell_completes_tables_keys_actions_and_ports(switch):
    assert completions(switch, "table", "show", "MyIngress.n") == ["MyIngress.nexthop"]
    assert completions(switch, "table", "show", "ipv4") == ["ipv4_lpm"]
    assert "MyIngress.nexthop" in completions(switch, "table", "add", "")
    assert completions(switch, "table", "add", "ipv4_lpm", "dst") == ["dstAddr:"]
    assert "'MyIngress.set_nexthop(nexthop:)'" in completions(switch, "table", "add", "ipv4_lpm", "")
    assert "hdr.ipv4.dstAddr:" not in completions(switch, "table", "add", "ipv4_lpm", "dstAddr:1", "")
    assert set(completions(switch, "port", "down", "")) >= {"1", "2"}
    for words in [["bind", ""], ["capture", ""]]:
        assert set(completions(switch, *words)) >= {"1", "2"}
    assert "1" in completions(switch, "table", "list", "--device-id", "")
    # Only what fits there.
    assert not any("(" in word for word in completions(switch, "table", "delete", "ipv4_lpm", ""))
    assert "hdr.ipv4.dstAddr:" not in completions(switch, "table", "set-default", "ipv4_lpm", "")
    assert "metadata=" in completions(switch, "table", "add", "ipv4_lpm", "dstAddr:1", "no_route()", "")


def test_the_shell_completes_numbers_of_what_there_is(daemon):
    switch = Cli(daemon("tests/py/everything.p4", "-i", "1@memory", "-i", "2@memory").address)
    switch.sluice("member", "add", "selector", "4", "answer(1)")
    switch.sluice("group", "add", "selector", "7", "4")
    switch.sluice("multicast", "add", "3", "1")
    offered = lambda *words: [word for word in completions(switch, *words) if not word.startswith("-")]
    assert offered("member", "delete", "selector", "") == ["4"]
    assert "'MyIngress.answer(result:)'" in offered("member", "add", "selector", "5", "")
    assert offered("group", "set", "selector", "7", "") == ["4", "max_size="]
    assert offered("multicast", "delete", "") == ["3"]
    assert offered("multicast", "add", "5", "") == ["1", "2", "metadata="]
    assert offered("digest", "add", "seen_t", "") == ["max_timeout=", "max_list_size=", "ack_timeout="]


def test_completions_find_a_switch_whose_address_the_shell_has_cut_at_the_colon(switch, nobody):
    host, port = switch.address.split(":")
    elsewhere = Cli(nobody)
    assert set(completions(elsewhere, "port", "down", "--grpc", host, ":", port, "")) >= {"1", "2"}


def test_without_a_switch_nothing_is_completed(nobody):
    start = time.monotonic()
    assert completions(Cli(nobody), "table", "show", "x") == []
    assert time.monotonic() - start < PATIENCE_S / 2


def test_nobody_listens(nobody):
    for words in [["stats"], ["table", "list"]]:
        message = Cli(nobody).sluice(*words, code=2)
        assert nobody in message and "sluice run" in message


def both(words, code=0):
    """What a command that needs no switch prints on standard output, and on standard error."""
    done = subprocess.run([SLUICE, *words], capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT)
    assert done.returncode == code, f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


def test_a_code_is_explained_by_its_number_alone():
    wanted, _ = both(["explain", "E0305"])
    for word in ["305", "0305", "e0305", "E305", "error[E0305]"]:
        assert both(["explain", word])[0] == wanted, word
    assert [e["code"] for e in json.loads(both(["explain", "305", "--json"])[0])["codes"]] == ["E0305"]
    out, err = both(["explain", "305", "9999"], code=1)
    assert out == wanted and "there is no diagnostic 9999" in err


# Calls an extern that no switch has.
FOREIGN = """
#include <core.p4>
#include <v1model.p4>
extern void encrypt(inout bit<8> x);
header h_t { bit<8> a; }
struct headers_t { h_t h; }
struct meta_t { }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control N(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { encrypt(h.h.a); } }
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), N(), I(), E(), N(), D()) main;
"""


def test_a_program_that_cannot_be_loaded_is_a_warning_and_an_error_if_it_has_to_be_loadable(tmp_path):
    program, library = tmp_path / "foreign.p4", tmp_path / "library.p4"
    program.write_text(FOREIGN)
    library.write_text("#include <core.p4>\nheader h_t { bit<8> a; }\n")
    out, err = both(["check", program])
    assert out == "" and err.startswith("warning[E0603]: ") and "encrypt(h.h.a)" in err, err
    last = "compiles, but cannot be loaded here (--loadable makes that an error); `sluice explain E0603` says more"
    assert err.splitlines()[-1] == f"{program} {last}"
    _, err = both(["check", program, "--loadable"], code=1)
    assert err.startswith("error[E0603]: ") and "cannot be loaded here; " in err.splitlines()[-1], err
    assert "error[E0601]" in both(["check", library, "--loadable"], code=1)[1]
    assert "note: " in both(["check", library])[1]
    both(["check", "examples/router/router.p4", "--loadable"])
    for flags, severity, code in [([], "warning", 0), (["--loadable"], "error", 1)]:
        out, err = both(["check", program, "--json", *flags], code=code)
        [diagnostic] = map(json.loads, out.splitlines())
        assert (diagnostic["severity"], diagnostic["code"], err) == (severity, "E0603", "")


def test_control_characters_of_a_program_are_shown(tmp_path):
    program = tmp_path / "odd.p4"
    program.write_text(FOREIGN.replace("encrypt(h.h.a);", 'encrypt(h.h.b); // \x9b31m\u202e"'))
    _, err = both(["check", program], code=1)
    assert "// \\u{9b}31m\\u{202e}" in err and "\x9b" not in err and "\u202e" not in err, err


# Drops what comes by port 2 in an action, and what has no entry by the default action.
DROPPING = FOREIGN.replace("apply { encrypt(h.h.a); }", """
    action deny() {
        mark_to_drop(s);
    }
    action pass(bit<9> port) { s.egress_spec = port; }
    table t { key = { h.h.a: exact; } actions = { pass; deny; } default_action = deny(); }
    apply { t.apply(); }""")


@pytest.mark.parametrize("engine", ["jit", "interp", "all"])
def test_a_frame_that_does_not_come_is_explained_by_what_became_of_the_packet(tmp_path, engine):
    program, script = tmp_path / "dropping.p4", tmp_path / "dropping.stf"
    program.write_text(DROPPING)
    script.write_text("""add t h.h.a:1 pass(port:3)
add t h.h.a:3 pass(port:5)
packet 1 01
expect 3 01
packet 1 02ff
expect 3 02ff
packet 1 03aa
expect 4 03aa
""")
    _, err = both(["stf", program, script, "--engine", engine], code=1)
    lines = err.splitlines()
    at = next(i for i, line in enumerate(lines) if "line 6: port 3: expected 02ff, but nothing was sent" in line)
    assert lines[at + 1] == "  the packet of line 5 (port 1) was dropped: ingress drop", err
    assert "decided in " in lines[at + 2] and "mark_to_drop(s);" in lines[at + 2], err
    assert "apply I.t (h.h.a=0x2): miss -> I.deny()" in lines[at + 3], err
    at = next(i for i, line in enumerate(lines) if "line 8: port 4: expected 03aa" in line)
    assert lines[at + 1] == "  the packet of line 7 (port 1) left by port 5", err


def test_a_packet_of_a_trace_may_have_0x_colons_and_lines():
    trace = lambda packet, code=0: both(["trace", "examples/router/router.p4", "--port", "1", "--packet", packet], code)
    wanted = trace("020000000101020000000002 0800 00")
    for text in ["0x020000000101020000000002080000", "02:00:00:00:01:01 02:00:00:00:00:02\n0x0800\n00\n"]:
        assert trace(text) == wanted
    assert "'g', which is not a hexadecimal digit" in trace("0x02g0", code=2)[1]
    assert "--packet has `0x020`, which is not whole bytes" in trace("0x020", code=2)[1]


def test_groups_and_sessions_without_ports_are_warned_about(switch):
    def told(*words):
        done = subprocess.run([SLUICE, *words, "--grpc", switch.address], capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done
        return done.stderr

    assert told("clone", "add", "1") == "sluice: clone session 1 has no ports, so what is cloned to it goes nowhere\n"
    assert told("clone", "set", "1", "2") == ""
    assert "multicast group 7 has no ports" in told("multicast", "add", "7")
    assert told("multicast", "delete", "7") == ""


def test_value_sets_take_several_members_in_one_command(daemon):
    switch = Cli(daemon("tests/py/everything.p4", "-i", "1@memory").address)
    members = lambda: [line.split()[1] for line in switch.sluice("value-set", "show", "wanted").splitlines() if line[0] != "#"]
    switch.sluice("value-set", "set", "wanted", "1", "2", "3")
    assert members() == ["0x0001", "0x0002", "0x0003"]
    switch.sluice("value-set", "delete", "wanted", "1", "3")
    switch.sluice("value-set", "add", "wanted", "7", "8")
    assert members() == ["0x0002", "0x0007", "0x0008"]
    # What `show` prints can be set again.
    shown = switch.sluice("value-set", "show", "wanted")
    switch.sluice("value-set", "delete", "wanted")
    switch.sluice("value-set", "set", shown)
    assert members() == ["0x0002", "0x0007", "0x0008"]
    assert "given twice" in switch.sluice("value-set", "set", "wanted", "5", "5", code=1)
    assert "no member is given: NAME VALUE..." in switch.sluice("value-set", "add", "wanted", code=1)
    assert "value-set set tpids 0x88a8 0x9100" in both(["value-set", "--help"])[0]


def test_listen_says_at_once_what_cannot_come(switch):
    assert "no table of the program has idle timeouts" in switch.sluice("listen", "--idle", code=1)
    assert "the program has no digest" in switch.sluice("listen", "learn", code=1)
    listening = subprocess.Popen([SLUICE, "listen", "--grpc", switch.address], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert listening.stderr.readline() == "sluice: the program has no digest and no table with idle timeouts\n"
        assert listening.stderr.readline() == "waiting for packets; Ctrl-C ends\n"
        assert listening.poll() is None
    finally:
        listening.kill()
        listening.communicate(timeout=PATIENCE_S)


def test_listen_names_digests_that_are_not_sent(daemon):
    switch = Cli(daemon("tests/py/everything.p4", "-i", "1@memory").address)
    command = [SLUICE, "listen", "--grpc", switch.address]
    listening = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert listening.stderr.readline() == "sluice: digest `seen_t` is not sent: `sluice digest add seen_t` asks for it\n"
        assert listening.stderr.readline() == "waiting for digest messages, idle entries, packets; Ctrl-C ends\n"
    finally:
        listening.kill()
        listening.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize("program, lines", [
    ("heavy_hitter", ["register MyIngress.row_1: a packet comes to one cell, which it can lock",
                      "workers run at the same time"]),
    ("stateful_firewall", ["register MyIngress.connections: a packet comes to one cell, which it can lock, and does not if it only "
                           "reads it", "workers run at the same time"]),
    ("nat44", ["register MyIngress.next_port: a packet comes to one cell, which it can lock", "workers run at the same time"]),
    ("router", ["the program has no registers: workers share no state that packets read and write"]),
])
def test_check_says_how_workers_share_registers(program, lines):
    path = f"examples/{program}/{program}.p4"
    done = subprocess.run([SLUICE, "check", path, "--state"], capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert all(line in printed for line in lines), done.stdout


def test_check_names_registers_that_one_instruction_changes(tmp_path):
    # Counts in each of 16 cells, instead of cloning.
    text = (ROOT / "tests/stf/v1model/clone_class.p4").read_text()
    text = text.replace("if (hdr.frame.type == 0x0801) { clone(CloneType.I2E, 7); }",
                        "bit<32> i = (bit<32>) hdr.frame.src[3:0]; bit<32> n; seen.read(n, i); seen.write(i, n + 1);")
    control = "control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {"
    program = tmp_path / "counts.p4"
    program.write_text(text.replace(control, control + " register<bit<32>>(16) seen;"))
    done = subprocess.run([SLUICE, "check", program, "--state"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "register I.seen: a packet changes one cell by one instruction, and comes to no other afterwards: nothing is locked",
        "workers run at the same time"]


def test_check_names_registers_that_make_workers_take_turns(tmp_path):
    text = (ROOT / "examples/firewall/firewall.p4").read_text()
    program = tmp_path / "small.p4"
    program.write_text(text.replace("FILTER_BITS = 4096", "FILTER_BITS = 512"))
    done = subprocess.run([SLUICE, "check", program, "--state"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert "register MyIngress.filter_1: fewer than 1024 cells need turns" in done.stdout
    assert done.stdout.splitlines()[-1] == "workers take turns, a batch each"
