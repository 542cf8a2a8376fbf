"""bmv2's command lines: who has nothing changed but the PATH. The program of the tutorials' kind is compiled by `p4c-bm2-ss`, started by
`simple_switch_grpc`, and set by a controller as the tutorials' library does it; packets go through interfaces of a namespace.

Unmodified parts of bmv2's command line (.venv-bmv2) read the JSON. Needs root. Run: cargo build -p sluice && pytest tests/py/test_bmv2.py
"""

import json
import os
import subprocess
import sys
import time

import grpc
import pytest
from conftest import PATIENCE_S, ROOT, SLUICE
from google.protobuf import text_format
from test_p4runtime import INSERT, VERIFY_AND_COMMIT, Controller, find, messages  # noqa: F401 (a fixture)

PROGRAM = ROOT / "examples/l3router/l3router.p4"
NAMESPACE = "sluice-bmv2"
VENV = ROOT / ".venv-bmv2/bin"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes interfaces")

# In the namespace: sends a frame by one interface and prints what comes by another.
EXCHANGE = """
import socket, sys, time
def open_by(name):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.bind((name, 0))
    return s
a, b = open_by("h1"), open_by("h2")
b.settimeout(5)
wanted = bytes.fromhex(sys.argv[2])
a.send(bytes.fromhex(sys.argv[1]))
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    frame = b.recv(2000)
    if frame.startswith(wanted):
        print(frame.hex())
        break
"""

LOAD = """
import bm_cli, sys
sys.path.append(bm_cli.__path__[0])
import runtime_CLI
text = open(sys.argv[1]).read()
runtime_CLI.load_json_str(text)
for name, table in sorted(runtime_CLI.TABLES.items()):
    print(name, runtime_CLI.TableType.to_str(table.type_), table.key_str(), sorted(table.actions))
for name, action in sorted(runtime_CLI.ACTIONS.items()):
    print(name, action.runtime_data)
"""


@pytest.fixture
def tools(tmp_path):
    """A folder with bmv2's names, as packages have it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ["p4c-bm2-ss", "p4c", "simple_switch", "simple_switch_grpc"]:
        (folder / name).symlink_to(SLUICE)
    return folder


def run(*command, code=0, cwd=ROOT):
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=cwd, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def in_message(config: bytes) -> bytes:
    """A P4DeviceConfig with `reassign` and `device_data`, as p4runtime_lib/bmv2.py serialises it."""
    length, rest = b"", len(config)
    while rest > 0x7F:
        length, rest = length + bytes([rest & 0x7F | 0x80]), rest >> 7
    return b"\x08\x01\x1a" + length + bytes([rest]) + config


def compiled(tools, folder, program=PROGRAM):
    """The JSON and the P4Info of a program."""
    out, info = folder / "out.json", folder / "out.p4.p4info.txtpb"
    run(tools / "p4c-bm2-ss", "--p4v", "16", "--p4runtime-files", str(info), "-o", str(out), str(program))
    return out, info


def test_the_compiler_writes_what_tools_read(tools, tmp_path):
    out, info = compiled(tools, tmp_path)
    file = json.loads(out.read_text())
    assert file["__meta__"]["version"] == [2, 23]
    assert file["sluice"]["source"] == PROGRAM.read_text()
    assert info.read_text() == run(SLUICE, "p4info", str(PROGRAM)).stdout
    # An unmodified command line of bmv2 knows tables, keys with their widths, and actions by it.
    told = run(VENV / "python", "-c", LOAD, str(out)).stdout.splitlines()
    assert told[0] == "MyIngress.ipv4_match simple ipv4.dstAddr(lpm, 32) ['MyIngress.drop', 'MyIngress.route']"
    assert told[1] == (
        "MyIngress.rewrite_dst simple scalars.metadata_t.next_hop(exact, 32) ['MyIngress.drop', 'MyIngress.set_dst']"
    )
    assert "MyIngress.route [('next_hop', 32), ('port', 9)]" in told


@pytest.mark.parametrize("program", sorted(ROOT.glob("examples/*/*.p4")), ids=lambda path: path.stem)
def test_tools_read_the_json_of_each_example(tools, tmp_path, program):
    out, _ = compiled(tools, tmp_path, program)
    run(VENV / "python", "-c", LOAD, str(out))
    # It is the same program: the JSON compiles to what the source does for bmv2.
    ir = [run(SLUICE, "check", "--ir", "--bmv2", str(program)).stdout, run(SLUICE, "check", "--ir", str(out)).stdout]
    assert ir[0] == ir[1]


def test_the_driver_writes_into_a_folder_and_forms_are_chosen_by_endings(tools, tmp_path):
    files = [tmp_path / f"i.{ending}" for ending in ["txt", "json", "bin"]]
    line = ["--target", "bmv2", "--arch", "v1model", "--std", "p4-16", "-o", str(tmp_path), str(PROGRAM)]
    run(tools / "p4c", *line, "--p4runtime-files", ",".join(map(str, files)))
    assert (tmp_path / "l3router.json").exists()
    assert files[0].read_text() == run(SLUICE, "p4info", str(PROGRAM)).stdout
    assert json.loads(files[1].read_text())["tables"][0]["preamble"]["name"] == "MyIngress.ipv4_match"
    assert b"MyIngress.ipv4_match" in files[2].read_bytes()


def test_the_compiler_refuses_by_name(tools, tmp_path):
    wrong = tmp_path / "wrong.p4"
    wrong.write_text("header h { bit<8> f }\n")
    assert "error[E" in run(tools / "p4c-bm2-ss", "-o", str(tmp_path / "x"), str(wrong), code=1).stderr
    assert not (tmp_path / "x").exists()
    for line, said in [
        (["--p4v", "14", str(PROGRAM)], "P4_14"),
        (["--arch", "psa", str(PROGRAM)], "--arch psa: "),
        (["--toJSON", "x", str(PROGRAM)], "--toJSON is not supported"),
        (["missing.p4"], "missing.p4"),
        ([], "no program"),
    ]:
        assert said in run(tools / "p4c-bm2-ss", *line, code=1).stderr
    for line, said in [(["--debugger", "x.json"], "--debugger"), ([], "no program"), (["--no-p4", "--wrong"], "--wrong")]:
        assert said in run(tools / "simple_switch_grpc", *line, code=1).stderr


def test_device_configs_of_all_forms_are_accepted(tools, tmp_path, messages, daemon):  # noqa: F811
    out, info_file = compiled(tools, tmp_path)
    controller = Controller(messages, daemon("-i", "1@memory").address)
    info = text_format.Parse(info_file.read_text(), messages["p4.config.v1.P4Info"]())
    for config in [PROGRAM.read_bytes(), out.read_bytes()]:
        for form in [config, in_message(config)]:
            controller.set_config(VERIFY_AND_COMMIT, form, info)
            assert controller.config().p4_device_config == form
            table = find(controller.config().p4info.tables, "MyIngress.ipv4_match")
            assert table.preamble.id == find(info.tables, "MyIngress.ipv4_match").preamble.id
    without_source = json.loads(out.read_text())
    del without_source["sluice"]
    deep = b'{"a": ' + b"[" * 1_000_000
    for wrong, said in [
        (b"\x7fELF\xff\xfe\x00", "P4 source, the file that"),
        (in_message(b"\xff"), "P4 source, the file that"),
        (b'{"sluice": {"source": 1}}', "the JSON does not hold a program"),
        (json.dumps(without_source).encode(), "compile_p4_source_with_sluice"),
        (deep, "error"),
    ]:
        with pytest.raises(grpc.RpcError) as failure:
            controller.set_config(VERIFY_AND_COMMIT, wrong)
        assert failure.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert said in failure.value.details(), failure.value.details()
    # What ran before goes on.
    assert controller.config().p4_device_config == in_message(out.read_bytes())


@pytest.fixture
def network():
    """Two pairs of interfaces in a namespace: h1 with s1-eth1, h2 with s1-eth2."""
    run("ip", "netns", "add", NAMESPACE)
    try:
        inside = ["ip", "netns", "exec", NAMESPACE]
        run(*inside, "ip", "link", "set", "lo", "up")
        for number in ["1", "2"]:
            run(*inside, "ip", "link", "add", f"h{number}", "type", "veth", "peer", "name", f"s1-eth{number}")
            for name in [f"h{number}", f"s1-eth{number}"]:
                run(*inside, "sysctl", "-q", "-w", f"net.ipv6.conf.{name}.disable_ipv6=1")
                run(*inside, "ip", "link", "set", name, "up")
        yield inside
    finally:
        run("ip", "netns", "del", NAMESPACE)


class Bmv2:
    """A switch that was started as bmv2 is."""

    def __init__(self, command, socket):
        self.log = open(socket + ".out", "w+")  # noqa: SIM115
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, cwd=ROOT)
        deadline = time.monotonic() + PATIENCE_S
        while not os.path.exists(socket):
            assert self.process.poll() is None and time.monotonic() < deadline, self.output()
            time.sleep(0.05)

    def output(self):
        self.log.flush()
        with open(self.log.name) as file:
            return file.read()

    def stop(self):
        self.process.terminate()
        code = self.process.wait(timeout=PATIENCE_S)
        assert code == 0 and "panicked" not in self.output(), self.output()


def wait_for(what, *words):
    """Until a file has all these words."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        text = what()
        if all(word in text for word in words):
            return text
        assert time.monotonic() < deadline, (words, text)
        time.sleep(0.1)


def ipv4(ttl):
    from scapy.all import IP, UDP, Ether

    frame = Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.2.9", ttl=ttl)
    return bytes(frame / UDP(sport=1, dport=2) / b"hello, switch, are you there?")


def entry(request, info, table, key, action, *args):
    """An insert of an exact or lpm entry."""
    table = find(info.tables, table)
    action = find(info.actions, action)
    new = request.updates.add(type=INSERT).entity.table_entry
    new.table_id = table.preamble.id
    match = new.match.add(field_id=1)
    if isinstance(key, tuple):
        match.lpm.value, match.lpm.prefix_len = key
    else:
        match.exact.value = key
    new.action.action.action_id = action.preamble.id
    for number, arg in enumerate(args, 1):
        new.action.action.params.add(param_id=number, value=arg)


def fill(controller, info):
    request = controller.new("WriteRequest")
    hop = bytes([10, 0, 2, 1])
    entry(request, info, "MyIngress.ipv4_match", (bytes([10, 0, 2, 0]), 24), "MyIngress.route", hop, b"\x02")
    entry(request, info, "MyIngress.rewrite_dst", hop, "MyIngress.set_dst", bytes.fromhex("020000000009"))
    entry(request, info, "MyIngress.rewrite_src", b"\x02", "MyIngress.set_src", bytes.fromhex("020000000008"))
    controller.write(request)


@pytest.fixture
def by_socket(monkeypatch):
    """The library's default name of a server is no name where that is a path."""
    plain = grpc.insecure_channel
    options = [("grpc.default_authority", "localhost")]
    monkeypatch.setattr(grpc, "insecure_channel", lambda address: plain(address, options=options))


@needs_root
def test_the_flow_of_the_tutorials(tools, tmp_path, messages, network, by_socket):  # noqa: F811
    out, info_file = compiled(tools, tmp_path)
    # As bmv2 calls it.
    log, pcaps = tmp_path / "s1.txt", tmp_path / "pcaps"
    pcaps.mkdir()
    socket = os.environ["SLUICE_RUNTIME_DIR"] + "/admin-50051.sock"
    # The line that p4runtime_switch.py of the tutorials makes.
    line = f"-i 1@s1-eth1 -i 2@s1-eth2 --pcap {pcaps} --nanolog ipc:///tmp/bm-0-log.ipc --device-id 0 --no-p4 --log-file {log.with_suffix('')}"
    line += " --thrift-port 9090 -- --grpc-server-addr 0.0.0.0:50051 --cpu-port 255"
    switch = Bmv2([*network, str(tools / "simple_switch_grpc"), *line.split()], socket)
    try:
        controller = Controller(messages, "unix:" + socket, device=0)
        info = text_format.Parse(info_file.read_text(), messages["p4.config.v1.P4Info"]())
        controller.set_config(VERIFY_AND_COMMIT, in_message(out.read_bytes()), info)
        fill(controller, info)
        sent = ipv4(64)
        came = run(*network, sys.executable, "-c", EXCHANGE, sent.hex(), "0200000000090200000000080800").stdout.strip()
        assert bytes.fromhex(came)[22] == 63
        words = [
            "[bmv2] [D]", "Processing packet received on port 1", "Parser 'parser': start", "Extracting header 'ethernet'",
            "Parser 'parser' entering state 'network'", "Bytes parsed: 34", "Verified checksum 'cksum_0': passed",
            "Pipeline 'ingress': start", "Applying table 'MyIngress.ipv4_match'",
            "* hdr.ipv4.dstAddr    : 0a000209", "Table 'MyIngress.ipv4_match': hit with handle 0", "Action entry is MyIngress.route - a000201,2,",
            "l3router.p4(", "Egress port is 2", "Updating checksum 'cksum'", "Deparsing header 'ipv4'",
            f"Transmitting packet of size {len(sent)} out of port 2",
        ]  # fmt: skip
        text = wait_for(log.read_text, *words)
        places = [text.index(word) for word in words[1:8] + words[-4:]]
        assert places == sorted(places), text
        # One that is dropped is in the log and not in the other port's file.
        run(*network, sys.executable, "-c", EXCHANGE.split("deadline")[0], ipv4(1).hex(), "00")
        wait_for(log.read_text, "Dropping packet")
        # The unmodified command line of bmv2, by thrift.
        cli = [*network, str(VENV / "simple_switch_CLI"), "--thrift-port", "9090"]
        told = subprocess.run(
            cli, input="show_tables\ntable_dump MyIngress.ipv4_match\n", capture_output=True, text=True, timeout=PATIENCE_S,
            check=True,
        )  # fmt: skip
        assert "MyIngress.ipv4_match" in told.stdout and "0a000200/24" in told.stdout, told.stdout + told.stderr
    finally:
        switch.stop()
    from scapy.all import rdpcap

    frames = {name: [bytes(frame) for frame in rdpcap(str(pcaps / name))] for name in os.listdir(pcaps)}
    assert sorted(frames) == ["s1-eth1_in.pcap", "s1-eth1_out.pcap", "s1-eth2_in.pcap", "s1-eth2_out.pcap"]
    assert [sent, ipv4(1)] == frames["s1-eth1_in.pcap"]
    assert [bytes.fromhex(came)] == frames["s1-eth2_out.pcap"]
    assert frames["s1-eth1_out.pcap"] == frames["s1-eth2_in.pcap"] == []


@needs_root
def test_simple_switch_runs_the_program_of_its_command_line(tools, tmp_path, network):
    out, _ = compiled(tools, tmp_path)
    socket = os.environ["SLUICE_RUNTIME_DIR"] + "/admin-9095.sock"
    line = f"-i 1@s1-eth1 -i 2@s1-eth2 {out} --log-console --log-level info --dump-packet-data 14 --thrift-port 9095"
    switch = Bmv2([*network, str(tools / "simple_switch"), *line.split()], socket)
    try:
        commands = [
            "table_add MyIngress.ipv4_match MyIngress.route 10.0.2.0/24 => 10.0.2.1 2",
            "table_add rewrite_dst set_dst 10.0.2.1 => 02:00:00:00:00:09",
            "table_add rewrite_src set_src 2 => 02:00:00:00:00:08",
        ]
        cli = [*network, str(VENV / "simple_switch_CLI"), "--thrift-port", "9095"]
        told = subprocess.run(
            cli, input="\n".join(commands) + "\n", capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        assert told.stdout.count("Entry has been added with handle") == 3, told.stdout + told.stderr
        sent = ipv4(9)
        run(*network, sys.executable, "-c", EXCHANGE, sent.hex(), "0200000000090200000000080800")
        wait_for(
            switch.output,
            f"Received packet of length {len(sent)} on port 1: {sent[:14].hex()}",
            f"Sending packet of length {len(sent)} on port 2: 0200000000090200000000080800",
        )
        assert "Parser 'parser'" not in switch.output()
    finally:
        switch.stop()


CLONES = """
#include <core.p4>
#include <v1model.p4>
struct headers_t { }
struct meta_t { }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) { state start { transition accept; } }
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply { clone(CloneType.I2E, 5); mark_to_drop(s); }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


@needs_root
def test_the_log_says_what_a_clone_goes_to(tools, tmp_path, network):
    program = tmp_path / "clones.p4"
    program.write_text(CLONES)
    socket = os.environ["SLUICE_RUNTIME_DIR"] + "/admin-9096.sock"
    line = f"-i 1@s1-eth1 -i 2@s1-eth2 {program} --log-console --thrift-port 9096"
    switch = Bmv2([*network, str(tools / "simple_switch"), *line.split()], socket)
    cli = [*network, str(VENV / "simple_switch_CLI"), "--thrift-port", "9096"]
    frame = ipv4(9).hex()
    try:
        for commands, said in [
            (["mc_mgrp_create 7", "mc_node_create 3 2", "mc_node_associate 7 0", "mirroring_add_mc 5 7"], "MGID 7"),
            (["mirroring_delete 5", "mirroring_add 5 2"], "egress port 2"),
        ]:
            assert f"Cloning packet to {said}" not in switch.output()
            told = "\n".join(commands) + "\n"
            subprocess.run(cli, input=told, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
            run(*network, sys.executable, "-c", EXCHANGE, frame, frame)
            wait_for(switch.output, f"Cloning packet to {said}")
        output = switch.output()
        assert output.count("number of packets replicated : 1 for MGID: 7") == 1, output
        assert output.count("Replicating packet on port 2") == 1, output
    finally:
        switch.stop()


@needs_root
@pytest.mark.parametrize("tool", ["simple_switch", "simple_switch_grpc"])
def test_switches_in_namespaces_of_their_own_have_the_same_ports(tools, tmp_path, tool):
    started = []
    try:
        for number in [0, 1]:
            command = f"ip link set lo up && exec {tools / tool} --no-p4 --device-id {number}"
            log = open(tmp_path / f"{number}.out", "w")  # noqa: SIM115
            process = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", command], stdout=log, stderr=subprocess.STDOUT, cwd=ROOT
            )
            started.append(process)
            said = wait_for((tmp_path / f"{number}.out").read_text, "thrift on 127.0.0.1:9090")
            assert ("do not find this switch" in said) == (number == 1), said
    finally:
        for process in started:
            process.terminate()
        assert [process.wait(timeout=PATIENCE_S) for process in started] == [0, 0]


KEPT = ROOT / "tests/stf/bmv2/kept.p4"
# A field is read behind setInvalid: what bmv2 sends, and what P4 without it.
ASKED, IN_BMV2, IN_P4 = "010000 1122 ff", "011100ff", "010000ff"


def traced(switch, *options):
    """What a running switch would send."""
    told = run(SLUICE, "trace", "--grpc", switch.address, "--port", "1", "--packet", ASKED, *options).stdout
    return told.splitlines()[-1].replace(" ", "")


def test_a_program_behaves_as_in_bmv2_after_a_restart_too(tmp_path, daemon):
    state = str(tmp_path / "state")
    first = daemon(str(KEPT), "--bmv2", "-i", "1@memory", "--state", state)
    assert IN_BMV2 in traced(first)
    assert first.stop() == 0
    # Another command line, which does not say it.
    assert IN_BMV2 in traced(daemon("-i", "1@memory", "--state", state))


def test_the_compilers_file_behaves_as_in_bmv2_wherever_it_is_loaded(tools, tmp_path, messages, daemon):  # noqa: F811
    out, info_file = compiled(tools, tmp_path, KEPT)
    info = text_format.Parse(info_file.read_text(), messages["p4.config.v1.P4Info"]())
    switch = daemon("-i", "1@memory")
    controller = Controller(messages, switch.address)
    for config, wanted in [(out, IN_BMV2), (KEPT, IN_P4)]:
        controller.set_config(VERIFY_AND_COMMIT, in_message(config.read_bytes()), info)
        assert wanted in traced(switch), config
        assert controller.config().p4_device_config == in_message(config.read_bytes())
    # A new program in the place of a running one says it itself.
    run(SLUICE, "load", str(KEPT), "--bmv2", "--fresh", "--force", "--grpc", switch.address)
    assert IN_BMV2 in traced(switch)
