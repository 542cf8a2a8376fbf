"""BPF programs that flows of an OpenFlow bridge run (`sluice program`), and its flow caches (`sluice cache`).

Programs are compiled by clang; without one the tests that need it are skipped. Run: cargo build -p sluice && pytest tests/py/test_programs.py
"""

import json
import os
import shutil
import socket
import struct
import subprocess
import time

import pytest
from conftest import PATIENCE_S, ROOT
from test_cli import Cli

CLANG = next(filter(None, map(shutil.which, ["clang", "clang-14", "clang-16", "clang-19"])), None)
#: Ports of the switch, and the other ends of their cables.
CABLES = [("slprg1", "slprg2"), ("slprg3", "slprg4")]
SLUICE_EXPERIMENTER = 0x0072736C

#: Counts packets by the action's argument, and rewrites the last byte of the Ethernet destination to a byte from a map.
COUNT = """
#include "sluice_bpf.h"

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 4);
    __type(key, __u32);
    __type(value, __u64);
} packets SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 8);
    __type(key, __u16);
    __type(value, __u32);
} ports SEC(".maps");

SEC("xdp") int count(struct xdp_md *ctx)
{
    unsigned char *data = (void *)(long)ctx->data;
    if (data + 14 > (unsigned char *)(long)ctx->data_end)
        return XDP_DROP;
    __u32 key = ctx->argument;
    __u64 *packets_of = bpf_map_lookup_elem(&packets, &key);
    if (packets_of)
        __sync_fetch_and_add(packets_of, 1);
    __u16 port = ctx->ingress_ifindex;
    __u32 one = 1;
    bpf_map_update_elem(&ports, &port, &one, BPF_ANY);
    data[5] = MARK;
    return RESULT;
}
"""

#: Reads the packet without a look at its end.
UNCHECKED = """
#include "sluice_bpf.h"
SEC("xdp") int unchecked(struct xdp_md *ctx) { return *(unsigned char *)(long)ctx->data ? XDP_PASS : XDP_DROP; }
"""

FRAME = bytes.fromhex("020000000002 020000000001 88b5") + bytes(range(50))

needs_clang = pytest.mark.skipif(CLANG is None, reason="no clang, which compiles BPF programs, is installed")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes interfaces")


def compiled(folder, name, source, **macros):
    """The object file of a program."""
    (folder / f"{name}.c").write_text(source)
    out = folder / f"{name}.o"
    flags = [f"-D{macro}={value}" for macro, value in macros.items()]
    subprocess.run([CLANG, "-target", "bpf", "-O2", "-g", "-I", ROOT / "crates/bpf/include", *flags, "-c",
                    folder / f"{name}.c", "-o", out], check=True)
    return str(out)


class Management:
    """A connection of OpenFlow 1.3 to a bridge's management socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(path))
        self.send(0, b"")
        assert self.receive()[0] == 0, "a hello"

    def send(self, kind, body, xid=1):
        self.socket.sendall(struct.pack("!BBHI", 4, kind, 8 + len(body), xid) + body)

    def receive(self):
        """Type and body of the next message."""
        header = self.exactly(8)
        _, kind, length, _ = struct.unpack("!BBHI", header)
        return kind, self.exactly(length - 8)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            assert more, "the bridge has closed the connection"
            data += more
        return data

    def flow_mod(self, command, actions, in_port=None, eth_type=None):
        """Changes a flow of table 0, and waits for the answer."""
        oxm = b"" if in_port is None else struct.pack("!II", 0x80000004, in_port)
        oxm += b"" if eth_type is None else struct.pack("!IH", 0x80000A02, eth_type)
        match = struct.pack("!HH", 1, 4 + len(oxm)) + oxm
        match += bytes(-len(match) % 8)
        instructions = struct.pack("!HHI", 4, 8 + len(actions), 0) + actions if actions else b""
        none = 0xFFFFFFFF
        fixed = struct.pack("!QQBBHHHIIIHH", 0, 0, 0, command, 0, 0, 100, none, none, none, 0, 0)
        self.send(14, fixed + match + instructions)
        self.send(20, b"", xid=2)
        while (answer := self.receive())[0] != 21:
            assert answer[0] != 1, f"the bridge refuses it: {answer[1].hex()}"


def run_program(number, argument):
    """The action that runs a program: 24 bytes."""
    return struct.pack("!HHIHHIQ", 0xFFFF, 24, SLUICE_EXPERIMENTER, 1, 0, number, argument)


def output(port):
    return struct.pack("!HHIHHI", 0, 16, port, 0xFFFF, 0, 0)


@pytest.fixture
def bridge(daemon, tmp_path):
    """A bridge with ports in memory."""
    mgmt = tmp_path / "mgmt"
    switch = daemon("--openflow", "--mgmt", str(mgmt), "--fail-mode", "secure", "-i", "1@memory", "-i", "2@memory")
    return Cli(switch.address), mgmt


@pytest.fixture
def cabled(daemon, tmp_path):
    """A bridge with two cables: its command line, its management socket, and sockets at the ends."""
    for ends in CABLES:
        subprocess.run(["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]], check=True)
    sockets = []
    try:
        for name in [name for ends in CABLES for name in ends]:
            subprocess.run(["sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1"], check=True)
            subprocess.run(["ip", "link", "set", name, "up"], check=True)
        mgmt = tmp_path / "mgmt"
        ports = [word for number, (near, _) in enumerate(CABLES, 1) for word in ("-i", f"{number}@{near}")]
        switch = daemon("--openflow", "--mgmt", str(mgmt), "--fail-mode", "secure", "--cache", "always", *ports)
        for _, far in CABLES:
            sockets.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5)))
            sockets[-1].bind((far, 0))
        yield Cli(switch.address), mgmt, sockets
    finally:
        for one in sockets:
            one.close()
        for near, _ in CABLES:
            subprocess.run(["ip", "link", "del", near], check=False)


def wait_for(what):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, "nothing came of it"
        time.sleep(0.02)
    return found


def received(end):
    """The next frame with the tests' type; none if there is none for a while."""
    end.settimeout(PATIENCE_S)
    return end.recv(2000)


def numbers(cli, program, name):
    """A map with numbers."""
    entries = json.loads(cli.sluice("program", "map", str(program), name, "--json"))["entries"]
    return {entry["key_number"]: entry["value_number"] for entry in entries}


def shown(cli, program):
    return json.loads(cli.sluice("program", "show", str(program), "--json"))["programs"][0]


@needs_clang
@pytest.mark.skipif(not shutil.which("ovs-ofctl"), reason="ovs-ofctl is missing: scripts/setup")
def test_ovs_ofctl_writes_and_prints_programs_as_notes(bridge, tmp_path):
    cli, mgmt = bridge
    cli.sluice("program", "load", "3", compiled(tmp_path, "first", COUNT, MARK=0x22, RESULT="XDP_PASS"))

    def ofctl(version, *words):
        command = ["ovs-ofctl", "-O", version, words[0], f"unix:{mgmt}", *words[1:]]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout

    note = "note:" + run_program(3, 2)[4:].hex(".")
    ofctl("OpenFlow13", "add-flow", f"in_port=1,actions={note},output:2")
    # The experimenter's action.
    Management(mgmt).flow_mod(0, run_program(3, 2) + output(2), in_port=2)
    assert shown(cli, 3)["users"] == 2
    for version in ["OpenFlow10", "OpenFlow13", "OpenFlow14", "OpenFlow15"]:
        flows = ofctl(version, "dump-flows")
        # A note is padded to a multiple of eight bytes.
        for port in [1, 2]:
            assert f"in_port={port} actions={note}.00.00,output:2" in flows, flows
    ofctl("OpenFlow13", "del-flows")
    assert shown(cli, 3)["users"] == 0


@needs_clang
@needs_root
def test_a_flow_runs_a_program_which_is_replaced_and_unloaded(cabled, tmp_path):
    cli, mgmt, (near, far) = cabled
    first = compiled(tmp_path, "first", COUNT, MARK=0x22, RESULT="XDP_PASS")
    assert "program 3 is `count` of" in cli.sluice("program", "load", "3", first)
    control = Management(mgmt)
    control.flow_mod(0, run_program(3, 2) + output(2), in_port=1)
    assert shown(cli, 3)["users"] == 1

    for _ in range(5):
        near.send(FRAME)
        assert received(far) == FRAME[:5] + b"\x22" + FRAME[6:]
    assert numbers(cli, 3, "packets") == {0: 0, 1: 0, 2: 5, 3: 0}
    assert numbers(cli, 3, "ports") == {1: 1}, "the program knows the port"
    assert shown(cli, 3)["passed"] == 5

    # The operator writes what the program reads.
    cli.sluice("program", "map", "3", "packets", "set", "2", "0x100")
    near.send(FRAME)
    received(far)
    assert cli.sluice("program", "map", "3", "packets", "get", "2") == "hex:02000000 (2) = hex:0101000000000000 (257)\n"
    cli.sluice("program", "map", "3", "ports", "delete", "1")
    assert numbers(cli, 3, "ports") == {}

    # Another version, with the same maps: megaflows that name it run it at once.
    second = compiled(tmp_path, "second", COUNT, MARK=0x33, RESULT="XDP_PASS")
    assert "replaced the program" in cli.sluice("program", "load", "3", second, "--keep-maps")
    near.send(FRAME)
    assert received(far)[5] == 0x33
    assert numbers(cli, 3, "packets")[2] == 258

    # One that drops, with maps of its own.
    third = compiled(tmp_path, "third", COUNT, MARK=0, RESULT="XDP_DROP")
    cli.sluice("program", "load", "3", third)
    near.send(FRAME)
    wait_for(lambda: shown(cli, 3)["dropped"] == 1)
    assert numbers(cli, 3, "packets") == {0: 0, 1: 0, 2: 1, 3: 0}

    # To redirect is up to flows: a program cannot, and its packets are counted.
    cli.sluice("program", "load", "3", compiled(tmp_path, "fourth", COUNT, MARK=0, RESULT="bpf_redirect(2, 0)"))
    near.send(FRAME)
    wait_for(lambda: shown(cli, 3)["redirected"] == 1)

    assert "1 flow or group names it" in cli.sluice("program", "unload", "3", code=1)
    assert "its packets are dropped" in cli.sluice("program", "unload", "3", "--force")
    near.send(FRAME)
    wait_for(lambda: json.loads(cli.sluice("program", "list", "--json")) == {"programs": [], "without_program": 1})
    control.flow_mod(3, b"", in_port=1)
    control.flow_mod(0, output(2), in_port=1)
    near.send(FRAME)
    assert received(far) == FRAME, "nothing of what was dropped came before"


@needs_clang
@needs_root
def test_caches_are_shown_and_emptied(cabled):
    cli, mgmt, (near, far) = cabled
    Management(mgmt).flow_mod(0, output(2), in_port=1)
    for _ in range(10):
        near.send(FRAME)
        assert received(far) == FRAME

    def worker():
        cache = json.loads(cli.sluice("cache", "stats", "--json"))
        assert cache["cache"] == "always"
        return cache["workers"][0]

    before = worker()
    assert before["megaflows"] >= 1 and before["exact_hits"] + before["megaflow_hits"] >= 9
    assert cli.sluice("cache", "flush") == ""
    assert worker()["megaflows"] == 0
    near.send(FRAME)
    assert received(far) == FRAME
    after = worker()
    assert after["misses"] == before["misses"] + 1 and after["megaflows"] == 1
    assert cli.sluice("cache", "stats").startswith("used: always\n")


@needs_clang
def test_a_refused_program_shows_the_instruction_and_the_reason(bridge, tmp_path):
    cli, _ = bridge
    unchecked = compiled(tmp_path, "unchecked", UNCHECKED)
    refused = cli.sluice("program", "load", "1", unchecked, code=1)
    assert unchecked in refused and "`unchecked`, instruction" in refused and "r1" in refused, refused
    assert "no program is loaded" in cli.sluice("program", "list")
    count = compiled(tmp_path, "count", COUNT, MARK=1, RESULT="XDP_PASS")
    assert "there is no program `other`" in cli.sluice("program", "load", "1", count, "--name", "other", code=1)
    cli.sluice("program", "load", "1", count, "--name", "xdp")
    # A refused one does not take the place of another.
    cli.sluice("program", "load", "1", unchecked, code=1)
    assert shown(cli, 1)["function"] == "count"
    fewer = compiled(tmp_path, "fewer", COUNT.replace("max_entries, 8", "max_entries, 7"), MARK=1, RESULT="XDP_PASS")
    kept = cli.sluice("program", "load", "1", fewer, "--keep-maps", code=1)
    assert "its maps cannot be kept: the object has ports (hash, 7 entries of 2 and 4 bytes)" in kept
    for words, message in [
        (["get", "4"], "has no such key"),
        (["set", "4", "0"], "must be below 4"),
        (["get", "hex:00"], "has 1 bytes; the map's have 4"),
        (["set", "1", "word"], "neither a number nor bytes"),
        (["delete", "1"], "cannot be deleted"),
    ]:
        found = cli.sluice("program", "map", "1", "packets", *words, code=1)
        assert message in found, f"{words}: {found}"
    assert "there is no map `none`; maps of this program: packets, ports" in cli.sluice(
        "program", "map", "1", "none", "get", "1", code=1)
    assert "exit" in cli.sluice("program", "show", "1", "--listing")
    cli.sluice("program", "unload", "1")


@needs_clang
def test_maps_of_all_programs_share_the_memory_for_state(daemon, tmp_path):
    switch = daemon("--openflow", "--mgmt", str(tmp_path / "mgmt"), "--state-memory", "100", "-i", "1@memory")
    cli = Cli(switch.address)
    # Two million entries of 32 bytes each: key, value, and what the map keeps of it.
    large = compiled(tmp_path, "large", COUNT.replace("max_entries, 8", "max_entries, 2000000"), MARK=1, RESULT="XDP_PASS")
    cli.sluice("program", "load", "1", large)
    refused = cli.sluice("program", "load", "2", large, code=1)
    assert "--state-memory" in refused and "100 MB" in refused, refused
    # It goes on with the maps that there are.
    cli.sluice("program", "load", "1", large, "--keep-maps")
    small = compiled(tmp_path, "small", COUNT, MARK=1, RESULT="XDP_PASS")
    cli.sluice("program", "load", "2", small)
    # What was unloaded gives its memory back.
    cli.sluice("program", "unload", "1")
    cli.sluice("program", "load", "3", large)


def test_what_is_not_there_is_refused(bridge, daemon, tmp_path):
    cli, _ = bridge
    junk = tmp_path / "junk.o"
    junk.write_text("junk")
    assert "not a BPF object file" in cli.sluice("program", "load", "1", str(junk), code=1)
    assert "there is no program 7" in cli.sluice("program", "show", "7", code=1)
    assert "there is no program 7" in cli.sluice("program", "unload", "7", code=1)
    assert "no program runs on device 5" in cli.sluice("cache", "stats", "--device-id", "5", code=1)
    router = Cli(daemon("examples/router/router.p4", "-i", "1@memory").address)
    assert "no device is an OpenFlow bridge" in router.sluice("program", "list", code=1)


def test_a_p4_device_shows_and_empties_its_caches(daemon):
    router = Cli(daemon("examples/router/router.p4", "-i", "1@memory", "--cache", "always").address)
    cache = json.loads(router.sluice("cache", "stats", "--json"))
    assert cache["cache"] == "always" and cache["refusals"] == []
    assert [worker["worker"] for worker in cache["workers"]] == [0]
    assert router.sluice("cache", "flush") == ""
