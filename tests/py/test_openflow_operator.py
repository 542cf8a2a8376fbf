"""What an operator sees of an OpenFlow bridge: `sluice cache show`, `sluice trace`, and commands that are for P4 devices.

Run as root: cargo build -p sluice && pytest tests/py/test_openflow_operator.py
"""

import json
import os
import re
import shutil
import time

import pytest
from conftest import SLUICE
from openflow_net import Net, run, until
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw
from test_programs import COUNT, FRAME, Management, compiled, needs_clang, output, run_program

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not shutil.which("ovs-ofctl"), reason="ovs-ofctl is missing: scripts/setup"),
]


@pytest.fixture(scope="module")
def shared():
    net = Net("--fail-mode", "secure", "--cache", "always", hosts=3, start=False)
    net.args += ["--admin", str(net.directory / "a")]
    net.start()
    yield net
    net.close()


@pytest.fixture
def net(shared):
    shared.reset()
    shared.cli("cache", "flush")
    yield shared
    assert shared.daemon.process.poll() is None, "the switch has ended"


def cli(net, *words, code=0):
    return run(str(SLUICE), *words, "--admin", str(net.directory / "a"), code=code)


Net.cli = cli


def udp(mark=b"x", dst="192.0.2.2", dport=2000):
    return Ether(src="02:aa:00:00:00:01", dst="02:aa:00:00:00:02") / IP(src="192.0.2.1", dst=dst) / UDP(sport=1, dport=dport) / Raw(mark)


def megaflows(net, *words):
    return json.loads(net.cli("cache", "show", "--json", *words))


def ours(shown):
    return [one for one in shown["megaflows"] if "ipv4_dst=192.0.2." in one["match"]]


def test_megaflows_are_shown_with_path_actions_and_counts(net):
    net.ofctl("add-group", "group_id=4,type=indirect,bucket=actions=set_field:02:00:00:00:00:09->eth_dst,output:2")
    net.ofctl("add-flows", "-", input="\n".join([
        "table=0,priority=5,cookie=0xabc,ip,nw_dst=192.0.2.0/24,actions=dec_ttl,goto_table:3",
        "table=3,priority=7,cookie=0xdef,udp,tp_dst=2000,actions=group:4",
        "table=3,priority=1,cookie=0x111,actions=drop",
    ]))
    mark = net.mark()
    for _ in range(3):
        net.pass_through(1, udp(mark), mark, [2])
    net.send(3, udp(b"y", dport=2001), count=2)
    # The hosts' kernels send something as well.
    until(lambda: len(ours(megaflows(net))) == 2, "both are there")
    of_one = megaflows(net, "--port", "1")
    assert not of_one["more"]
    (one,) = ours(of_one)
    # Those that have met it: the first one has made it.
    assert one["packets"] == 2 and one["bytes"] == 2 * len(udp(mark)) and one["idle_ms"] < 60_000
    for part in ["in_port_oxm=1", "eth_type=0x800", "ipv4_dst=192.0.2.0/24", "udp_dst=2000"]:
        assert part in one["match"], one
    assert "ipv4_src" not in one["match"]
    path = "\n".join(one["path"])
    assert re.search(r"table 0: cookie=0xabc, priority=5, .*ipv4_dst=192\.0\.2\.0/24: dec_ttl,goto_table:3", path), path
    assert re.search(r"table 3: cookie=0xdef, priority=7, .*udp_dst=2000: group:4", path), path
    assert "group 4" in path and "dec_nw_ttl()" in one["actions"] and "set eth_dst=02:00:00:00:00:09" in one["actions"]
    assert one["actions"].endswith("to port 2")
    dropped = ours(megaflows(net, "--port", "3"))
    assert len(dropped) == 1 and dropped[0]["actions"] == "drop" and dropped[0]["packets"] == 1
    # As text, and no more than were asked for.
    text = net.cli("cache", "show", "--port", "1")
    assert "worker 0: " in text and "cookie=0xdef" in text and re.search(r"2 packets, \d+ bytes, idle \d", text)
    assert "there are more" in net.cli("cache", "show", "--limit", "1")
    assert megaflows(net, "--limit", "1")["more"]
    assert "4096" in net.cli("cache", "show", "--limit", "5000", code=2)
    net.cli("cache", "flush")
    assert ours(megaflows(net)) == []


def test_many_megaflows_are_shown_while_packets_run(net):
    net.ofctl("add-flows", "-", input="\n".join(f"priority={p},udp,tp_dst={p},actions=output:2" for p in range(1, 400)))
    flood = net.begin(1, "ping", "-n", "-i", "0.01", "10.0.0.2")
    for port in range(1, 400):
        net.send(1, udp(dport=port))
    until(lambda: len(megaflows(net, "--limit", "1000")["megaflows"]) >= 399, "all are there")
    some = megaflows(net, "--limit", "10")
    assert len(some["megaflows"]) == 10 and some["more"]
    flood.kill()


def trace(net, packet, port=1, *words):
    return json.loads(net.cli("trace", "--json", "--port", str(port), "--packet", bytes(packet).hex(), *words))


def steps(trace):
    return ["\n".join(step["text"] for step in run["steps"]) for run in trace["runs"]]


def test_a_trace_says_flows_outputs_and_the_megaflow(net):
    net.ofctl("add-meter", "meter=1,pktps,band=type=drop,rate=1")
    net.ofctl("add-flows", "-", input="\n".join([
        "table=0,priority=5,cookie=0xabc,ip,actions=meter:1,dec_ttl,goto_table:3",
        "table=3,priority=7,cookie=0xdef,udp,actions=set_field:10.9.9.9->ip_dst,output:2,output:3,CONTROLLER:20",
    ]))
    packet = udp(b"traced")
    for _ in range(3):
        # Nothing is metered, counted or sent.
        traced = trace(net, packet)
        (way,) = steps(traced)
        assert "table 0: cookie=0xabc" in way and "table 3: cookie=0xdef" in way, way
        assert "meter 1" in way and "to controllers of id 0: 20 of" in way, way
        assert "no worker has a megaflow for it; it would be: " in way, way
        assert [sent["port"] for sent in traced["sent"]] == [2, 3] and traced["dropped"] == []
        frame = Ether(bytes.fromhex(traced["sent"][0]["frame"]))
        assert frame[IP].dst == "10.9.9.9" and frame[IP].ttl == 63 and bytes(frame[UDP].payload) == b"traced"
    assert "n_packets=0" in net.ofctl("dump-flows", "table=3")
    assert "packet_in_count:0" in net.ofctl("meter-stats")
    # Met.
    net.send(1, packet)
    until(lambda: any("ip_proto=17" in one["match"] for one in megaflows(net)["megaflows"]), "its megaflow")
    (way,) = steps(trace(net, packet))
    assert "megaflow of worker 0, 0 packets so far: " in way, way
    (way,) = steps(trace(net, udp(dst="192.0.2.99", dport=9)))
    assert "megaflow of worker 0" in way, "others meet it as well"
    (way,) = steps(trace(net, packet, 2))
    assert "no worker has a megaflow" in way
    text = net.cli("trace", "--port", "1", "--packet", bytes(packet).hex())
    assert text.startswith("# port 1: ") and "== flow tables\n" in text and "port 3: " in text


def test_traces_of_drops_second_passes_and_what_would_be_learned(net):
    (way,) = steps(dropped := trace(net, udp()))
    assert "table 0: no match" in way and "actions: drop" in way and dropped["sent"] == [] and dropped["dropped"] == ["flow tables"]
    net.ofctl("add-flows", "-", version=10, input="\n".join([
        "priority=1,in_port=1,actions=strip_vlan,resubmit(,5)",
        "table=5,udp,actions=learn(table=9,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),output:2",
    ]))
    tagged = udp()
    tagged = Ether(src=tagged.src, dst=tagged.dst) / Dot1Q(vlan=7) / tagged.payload
    traced = trace(net, tagged)
    ways = "\n".join(steps(traced))
    assert "learns in table 9" in ways and [sent["port"] for sent in traced["sent"]] == [2]
    assert bytes.fromhex(traced["sent"][0]["frame"])[12:14] == b"\x08\x00"
    assert net.flows("table=9") == []
    assert "for P4 programs" in net.cli("trace", "--port", "1", "--packet", "00", "--tree", code=None)
    assert "--pcap-filter" in net.cli("trace", "--filter", "port == 1", code=None)
    for junk in ["00", "ff" * 13, bytes(udp())[:20].hex()]:
        assert steps(json.loads(net.cli("trace", "--json", "--port", "1", "--packet", junk)))


def test_the_next_packet_is_traced(net):
    net.ofctl("add-flow", "priority=1,udp,cookie=0x77,actions=output:2")
    waiting = net.begin("s", str(SLUICE), "trace", "--json", "--pcap-filter", "udp port 2077", "--admin", str(net.directory / "a"))
    deadline = time.monotonic() + 60
    while waiting.poll() is None:
        assert time.monotonic() < deadline
        net.send(1, udp(dport=2078))
        net.send(3, udp(dport=2077))
        time.sleep(0.05)
    told = waiting.stdout.read()
    traced = json.loads(told)
    assert traced["port"] == 3 and "cookie=0x77" in steps(traced)[0]


@needs_clang
def test_a_trace_runs_programs_on_copies_of_their_maps(net, tmp_path):
    marked = compiled(tmp_path, "marked", COUNT, MARK="0x33", RESULT="XDP_PASS")
    net.cli("program", "load", "3", marked)
    # The hosts' kernels send something as well, which the program would count.
    Management(net.directory / "m").flow_mod(0, run_program(3, 2) + output(2), in_port=1, eth_type=0x88B5)
    traced = trace(net, FRAME)
    assert [sent["port"] for sent in traced["sent"]] == [2], traced
    assert bytes.fromhex(traced["sent"][0]["frame"]) == FRAME[:5] + b"\x33" + FRAME[6:]
    assert "program 3: Pass" in "\n".join(steps(traced)), traced
    for name in ["packets", "ports"]:
        entries = json.loads(net.cli("program", "map", "3", name, "--json"))["entries"]
        assert all(entry["value_number"] == 0 for entry in entries), "nothing is counted"
    net.cli("program", "unload", "3", "--force")


def test_commands_for_p4_devices_name_what_to_use(net):
    for words in [["table", "list"], ["table", "show", "x"], ["config", "save", "x"]]:
        text = net.cli(*words, code=None)
        assert "device 1 is an OpenFlow bridge" in text and "ovs-ofctl dump-flows" in text, (words, text)
    stats = net.cli("stats")
    assert "header_actions" not in stats and "1024" not in stats, stats
    shown = net.ofctl("show", version=10)
    assert shown.count("current:    10GB-FD") == 3, shown
    assert shown.count("speed: 10000 Mbps now, 10000 Mbps max") == 3, shown
