"""OpenFlow bridges (`sluice run --openflow`) and unmodified clients: Debian's ovs-ofctl, and os-ken's own
example applications; what they ask for is seen in packets between hosts in network namespaces.

Run as root: cargo build -p sluice && pytest tests/py/test_openflow.py
"""

import os
import re
import shutil
import socket
import struct
import time

import pytest
from conftest import PATIENCE_S, ROOT, Daemon
from openflow_net import Net, run, until
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6ND_NS, ICMPv6NDOptSrcLLAddr, IPv6
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Raw

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not shutil.which("ovs-ofctl"), reason="ovs-ofctl is missing: scripts/setup"),
]

VERSIONS = [10, 13, 14, 15]
#: Stations that no host is, so that no kernel answers.
A, B, C = "02:aa:00:00:00:01", "02:aa:00:00:00:02", "02:aa:00:00:00:03"


@pytest.fixture(scope="module")
def shared():
    """One bridge for most tests. It keeps its flows when it has no controller."""
    net = Net("--fail-mode", "secure", hosts=3)
    yield net
    net.close()


@pytest.fixture
def net(shared):
    """The shared bridge, without flows."""
    shared.reset()
    yield shared
    assert shared.daemon.process.poll() is None, "the switch has ended"


def udp(mark, src="192.0.2.1", dst="192.0.2.2", sport=1000, dport=2000, ttl=64, tos=0, tags=None):
    frame = Ether(src=A, dst=B)
    for tag in tags or []:
        frame = frame / tag
    return frame / IP(src=src, dst=dst, ttl=ttl, tos=tos) / UDP(sport=sport, dport=dport) / Raw(mark)


def tcp(mark, src="192.0.2.1", dst="192.0.2.2", sport=1000, dport=2000, flags="PA"):
    return Ether(src=A, dst=B) / IP(src=src, dst=dst) / TCP(sport=sport, dport=dport, flags=flags) / Raw(mark)


def is_right(packet):
    """Whether lengths and checksums are those that scapy computes."""
    again = packet.copy()
    layer = again
    while layer:
        for name in ["chksum", "cksum", "len", "plen"]:
            if name in layer.fields:
                layer.delfieldval(name)
        layer = layer.payload
    return bytes(again) == bytes(packet)


# What the switch is


@pytest.mark.parametrize("version", VERSIONS)
def test_features_ports_config_and_description(net, version):
    shown = net.ofctl("show", version=version)
    assert "dpid:0000000000000001" in shown and "n_tables:254, n_buffers:0" in shown
    assert "OFPT_GET_CONFIG_REPLY" in shown and "frags=normal" in shown
    for port in net.hosts:
        assert re.search(rf"^ {port}\(s{port}\): addr:[0-9a-f:]{{17}}$", shown, re.M), shown
    ports = net.ofctl("dump-ports-desc", version=version)
    assert ports.count("addr:") == 3
    # OpenFlow 1.0 says no speeds, only kinds of links.
    assert version == 10 or ports.count("speed: 10000 Mbps now, 10000 Mbps max") == 3, ports
    desc = net.ofctl("dump-desc", version=version)
    assert "Manufacturer: Sluice" in desc and "DP Description: device 1, openflow.p4" in desc
    assert net.ofctl("probe", version=version) == ""
    assert net.ofctl("get-frags", version=version).strip() == "normal"


@pytest.mark.parametrize("version", VERSIONS)
def test_dumps(net, version):
    net.ofctl("add-flow", "table=3,priority=7,cookie=0x12,udp,actions=output:2")
    assert "192.0.2" not in net.ofctl("dump-flows", version=version)
    aggregate = net.ofctl("dump-aggregate", version=version)
    assert "flow_count=1" in aggregate and "packet_count=0" in aggregate
    tables = net.ofctl("dump-tables", version=version)
    assert re.search(r"table 3.*:\n +active=1", tables), tables
    ports = net.ofctl("dump-ports", version=version)
    assert "3 ports" in ports and ports.count("rx pkts=") == 3
    assert net.ofctl("dump-ports", "2", version=version).count("rx pkts=") == 1
    assert "OFPST_QUEUE reply" in net.ofctl("queue-stats", version=version)
    if version >= 13:
        features = net.ofctl("dump-table-features", version=version)
        assert "table 0" in features and "goto_table" in features
        assert "max_meter" in net.ofctl("meter-features", version=version)
        group = net.ofctl("dump-group-features", version=version)
        assert "Types:  0xf" in group, group
    if version >= 14:
        assert "table 0" in net.ofctl("dump-table-desc", version=version)


# Forwarding


def test_normal_learns(net):
    net.ofctl("add-flow", "actions=NORMAL")
    first, second, third = net.mark(), net.mark(), net.mark()
    net.pass_through(1, Ether(src=A, dst=C) / IP() / UDP() / Raw(first), first, [2, 3])
    net.pass_through(2, Ether(src=B, dst=A) / IP() / UDP() / Raw(second), second, [1])
    net.pass_through(1, Ether(src=A, dst=B) / IP() / UDP() / Raw(third), third, [2])
    # The station moves.
    moved, after = net.mark(), net.mark()
    net.pass_through(3, Ether(src=A, dst=B) / IP() / UDP() / Raw(moved), moved, [2])
    net.pass_through(2, Ether(src=B, dst=A) / IP() / UDP() / Raw(after), after, [3])
    # Another VLAN has stations of its own.
    tagged = net.mark()
    net.pass_through(2, Ether(src=B, dst=A) / Dot1Q(vlan=9) / IP() / UDP() / Raw(tagged), tagged, [1, 3])
    assert net.ping(1, 2) == 3 and net.ping(3, 2) == 3 and net.ping(1, "fd00::2") == 3


def test_ports_of_actions(net):
    for actions, where in [
        ("output:2", [2]), ("output:2,output:3", [2, 3]), ("FLOOD", [2, 3]), ("ALL", [2, 3]), ("IN_PORT", [1]), ("drop", []),
        ("output:1", []), ("output:2,IN_PORT,output:2", [1, 2, 2]), ("output:77", []),
    ]:
        net.ofctl("add-flow", f"in_port=1,udp,actions={actions}")
        mark = net.mark()
        net.pass_through(1, udp(mark), mark, where)


def test_matches_of_many_fields(net):
    net.reset("priority=9,in_port=1,udp,nw_src=192.0.2.0/24,nw_dst=192.0.2.2,tp_src=1000,tp_dst=0x7d0/0xfff0,actions=output:2",
              "priority=8,tcp,tcp_flags=+syn-ack,actions=output:3",
              "priority=7,dl_src=02:aa:00:00:00:01/ff:ff:00:00:00:00,dl_vlan=5,dl_vlan_pcp=3,actions=output:3",
              "priority=6,ip,nw_tos=32,nw_ecn=1,nw_ttl=9,actions=output:2,output:3",
              "priority=5,arp,arp_op=1,arp_spa=192.0.2.1,arp_tpa=192.0.2.2,arp_sha=02:aa:00:00:00:01,actions=output:2",
              "priority=4,udp6,ipv6_src=fd00::/16,ipv6_dst=fd01::2,ipv6_label=0x12345,udp_dst=2000,actions=output:3",
              "priority=3,icmp,icmp_type=8,icmp_code=0,actions=output:2")

    def goes(packet, mark, where):
        net.pass_through(1, packet, mark, where)

    for change, where in [({}, [2]), ({"src": "192.0.3.1"}, []), ({"dst": "192.0.2.3"}, []), ({"sport": 1001}, []),
                          ({"dport": 0x7df}, [2]), ({"dport": 0x7e0}, []), ({"tos": 33, "ttl": 9, "sport": 1}, [2, 3]),
                          ({"tos": 33, "ttl": 8, "sport": 1}, []), ({"tos": 32, "ttl": 9, "sport": 1}, [])]:
        mark = net.mark()
        goes(udp(mark, **change), mark, where)
    for flags, where in [("S", [3]), ("SA", []), ("A", []), ("SU", [3])]:
        mark = net.mark()
        goes(tcp(mark, flags=flags), mark, where)
    for vlan, pcp, where in [(5, 3, [3]), (5, 2, []), (6, 3, [])]:
        mark = net.mark()
        goes(Ether(src=A, dst=B) / Dot1Q(vlan=vlan, prio=pcp) / Raw(mark), mark, where)
    for op, where in [(1, [2]), (2, [])]:
        mark = net.mark()
        goes(Ether(src=A, dst=B) / ARP(op=op, psrc="192.0.2.1", pdst="192.0.2.2", hwsrc=A) / Raw(mark), mark, where)
    for src, label, where in [("fd00::1", 0x12345, [3]), ("fc00::1", 0x12345, []), ("fd00::1", 0x12344, [])]:
        mark = net.mark()
        goes(Ether(src=A, dst=B) / IPv6(src=src, dst="fd01::2", fl=label) / UDP(dport=2000) / Raw(mark), mark, where)
    for kind, where in [(8, [2]), (0, [])]:
        mark = net.mark()
        goes(Ether(src=A, dst=B) / IP(src="192.0.2.1", dst="192.0.2.2") / ICMP(type=kind) / Raw(mark), mark, where)


# Flow mods


@pytest.mark.parametrize("version", VERSIONS)
def test_flow_mods(net, version):
    add = lambda flow: net.ofctl("add-flow", flow, version=version)
    add("priority=5,ip,nw_dst=192.0.2.0/24,actions=output:2")
    add("priority=5,ip,nw_dst=192.0.2.2,actions=output:2")
    add("priority=6,ip,nw_dst=192.0.2.2,actions=output:3")
    add("priority=5,arp,actions=output:3")
    # The same match and priority replace.
    add("priority=5,arp,actions=output:2")
    assert sorted(net.flows()) == sorted([
        "priority=6,ip,nw_dst=192.0.2.2 actions=output:3",
        "priority=5,arp actions=output:2",
        "priority=5,ip,nw_dst=192.0.2.0/24 actions=output:2",
        "priority=5,ip,nw_dst=192.0.2.2 actions=output:2",
    ])
    # Not strict: all that are more specific, of any priority.
    net.ofctl("mod-flows", "ip,nw_dst=192.0.2.2,actions=output:1", version=version)
    assert sum("output:1" in flow for flow in net.flows()) == 2
    net.ofctl("mod-flows", "--strict", "priority=5,ip,nw_dst=192.0.2.2,actions=output:3", version=version)
    assert [flow for flow in net.flows() if "output:3" in flow] == ["priority=5,ip,nw_dst=192.0.2.2 actions=output:3"]
    net.ofctl("del-flows", "--strict", "priority=5,ip,nw_dst=192.0.2.2", version=version)
    assert len(net.flows()) == 3
    net.ofctl("del-flows", "ip,nw_dst=192.0.2.2", version=version)
    assert len(net.flows()) == 2
    # By where they output.
    net.ofctl("del-flows", "out_port=7", version=version)
    assert len(net.flows()) == 2
    net.ofctl("del-flows", "ip,out_port=2", version=version)
    assert net.flows() == ["priority=5,arp actions=output:2"]
    net.ofctl("del-flows", version=version)
    assert net.flows() == []


def test_counts_of_flows_that_are_changed(net):
    net.ofctl("add-flow", "udp,actions=output:2")
    mark = net.mark()
    net.pass_through(1, udp(mark), mark, [2])
    until(lambda: "n_packets=1," in net.ofctl("dump-flows"), "the packet is counted")
    net.ofctl("mod-flows", "udp,actions=output:3")
    assert "n_packets=1," in net.ofctl("dump-flows")
    net.ofctl("mod-flows", "reset_counts,udp,actions=output:3")
    assert "n_packets=0," in net.ofctl("dump-flows")
    mark = net.mark()
    net.pass_through(1, udp(mark), mark, [3])
    until(lambda: "n_packets=1," in net.ofctl("dump-flows"), "the packet is counted")
    # A flow that replaces another one has its counts since OpenFlow 1.3 (6.4), and none before (1.0, 4.6).
    net.ofctl("add-flow", "udp,actions=output:2")
    assert "n_packets=1," in net.ofctl("dump-flows")
    net.ofctl("add-flow", "udp,actions=output:3", version=10)
    assert "n_packets=0," in net.ofctl("dump-flows")


def test_cookies(net):
    net.reset("cookie=0x101,table=1,priority=1,actions=output:1", "cookie=0x102,table=1,priority=2,actions=output:2",
              "cookie=0x201,table=1,priority=3,actions=output:3")
    assert len(net.flows("cookie=0x100/0xf00")) == 2
    net.ofctl("mod-flows", "cookie=0x1/0xff,table=1,actions=drop")
    assert sum("drop" in flow for flow in net.flows()) == 2
    net.ofctl("del-flows", "cookie=0x100/0xf00")
    assert net.flows() == ["cookie=0x201, table=1, priority=3 actions=drop"]
    net.ofctl("del-flows", "cookie=0x1/-1")
    assert len(net.flows()) == 1


def test_cookies_are_matched_in_1_0(net):
    net.reset("cookie=5,table=1,ip,actions=output:2", "cookie=0x17,table=1,priority=2,mpls,mpls_ttl=7,actions=output:3",
              "cookie=0x21,table=1,priority=3,actions=output:3")
    assert len(net.flows("cookie=5/-1", version=10)) == 1
    assert "flow_count=2" in net.ofctl("dump-aggregate", "cookie=5/0xd,table=1", version=10)
    net.ofctl("mod-flows", "cookie=5/-1,actions=drop", version=10)
    assert sum("drop" in flow for flow in net.flows()) == 1
    net.ofctl("del-flows", "cookie=7/0xf", version=10)
    assert len(net.flows()) == 2
    net.ofctl("del-flows", "cookie=5/-1", version=10)
    assert net.flows() == ["cookie=0x21, table=1, priority=3 actions=output:3"]


def test_groups_decide_what_is_deleted(net):
    net.ofctl("add-group", "group_id=5,type=all,bucket=output:2")
    net.ofctl("add-flow", "priority=1,actions=group:5")
    net.ofctl("add-flow", "priority=2,actions=output:2")
    net.ofctl("del-flows", "out_group=6", version=13)
    assert len(net.flows()) == 2
    net.ofctl("del-flows", "out_group=5", version=13)
    assert net.flows() == ["priority=2 actions=output:2"]
    net.ofctl("add-flow", "priority=1,actions=group:5")
    # A group's flows go with it (OpenFlow 1.3.5, 6.7).
    net.ofctl("del-groups", "group_id=5")
    assert net.flows() == ["priority=2 actions=output:2"]


@pytest.mark.parametrize("version", VERSIONS)
def test_overlap(net, version):
    net.ofctl("add-flow", "priority=5,ip,nw_dst=192.0.2.0/24,actions=output:2", version=version)
    net.refused("OFPFMFC_OVERLAP", "add-flow", "check_overlap,priority=5,ip,nw_src=192.0.2.1,actions=output:3",
                version=version)
    net.ofctl("add-flow", "check_overlap,priority=4,ip,nw_src=192.0.2.1,actions=output:3", version=version)
    net.ofctl("add-flow", "check_overlap,priority=5,ip,nw_dst=192.0.3.1,actions=output:3", version=version)
    assert len(net.flows()) == 3


def test_timeouts_and_removed_flows(net):
    monitor = net.watch("65534")
    net.ofctl("add-flow", "send_flow_rem,cookie=0x11,hard_timeout=1,priority=1,udp,actions=output:2")
    net.ofctl("add-flow", "send_flow_rem,cookie=0x22,idle_timeout=1,priority=2,tcp,actions=output:2")
    net.ofctl("add-flow", "send_flow_rem,cookie=0x33,priority=3,icmp,actions=output:2")
    mark = net.mark()
    net.pass_through(1, udp(mark), mark, [2])
    net.ofctl("del-flows", "icmp")
    hard = monitor.wait(r"OFPT_FLOW_REMOVED[^\n]*: priority=1,udp reason=hard[^\n]*").group(0)
    assert "cookie:0x11" in hard and "hard1" in hard and "pkts1 " in hard, hard
    idle = monitor.wait(r"OFPT_FLOW_REMOVED[^\n]*: priority=2,tcp reason=idle[^\n]*").group(0)
    assert "cookie:0x22" in idle and "idle1" in idle and "pkts0 " in idle, idle
    assert re.search(r"OFPT_FLOW_REMOVED[^\n]*: priority=3,icmp reason=delete[^\n]* cookie:0x33", monitor.text), monitor.text
    assert net.flows() == []


def test_a_flow_that_is_used_does_not_become_idle(net):
    net.ofctl("add-flow", "idle_timeout=1,udp,actions=output:2")
    for _ in range(4):
        mark = net.mark()
        net.pass_through(1, udp(mark), mark, [2])
        time.sleep(0.4)
    assert net.flows() == ["idle_timeout=1, udp actions=output:2"]
    until(lambda: net.flows() == [], "the flow ends")


# Tables, registers


def test_tables_registers_and_metadata(net):
    net.reset("table=0,udp,actions=load:0x5->NXM_NX_REG0[0..7],write_metadata:0xab/0xff,goto_table:4",
              "table=4,metadata=0xab,reg0=5,actions=move:NXM_NX_REG0[0..3]->NXM_NX_REG1[4..7],resubmit(,9),output:3",
              "table=9,reg1=0x50,actions=output:2")
    mark = net.mark()
    net.pass_through(1, udp(mark), mark, [2, 3])
    # A packet that no flow of a later table matches is dropped.
    net.ofctl("del-flows", "table=4")
    mark = net.mark()
    net.pass_through(1, udp(mark), mark, [])


def test_action_sets(net):
    net.reset("table=0,udp,actions=write_actions(set_field:192.0.2.9->ip_dst,output:2),goto_table:1",
              "table=1,tp_dst=2000,udp,actions=write_actions(output:3)",
              "table=1,tp_dst=2001,udp,actions=clear_actions",
              "table=1,tp_dst=2002,udp,actions=clear_actions,write_actions(output:3)")
    for dport, where, dst in [(2000, [3], "192.0.2.9"), (2001, [], ""), (2002, [3], "192.0.2.2")]:
        mark = net.mark()
        for packet in net.pass_through(1, udp(mark, dport=dport), mark, where):
            assert packet[IP].dst == dst and is_right(packet)


def test_resubmit_with_another_port_and_bounds(net):
    net.reset("table=0,in_port=1,actions=resubmit(3,0),output:2", "table=0,in_port=3,actions=output:2",
              "table=0,in_port=2,actions=resubmit(,0)")
    mark = net.mark()
    net.pass_through(1, udp(mark), mark, [2, 2])
    # A search that never ends is given up.
    mark = net.mark()
    net.pass_through(2, udp(mark), mark, [])
    mark = net.mark()
    net.pass_through(1, udp(mark), mark, [2, 2])


def test_stack_and_multipath_registers(net):
    net.reset("udp,actions=push:NXM_OF_IP_SRC[],push:NXM_OF_IP_DST[],pop:NXM_OF_IP_SRC[],pop:NXM_OF_IP_DST[],output:2")
    mark = net.mark()
    packet, = net.pass_through(1, udp(mark), mark, [2])
    assert (packet[IP].src, packet[IP].dst) == ("192.0.2.2", "192.0.2.1") and is_right(packet)


# Headers


def test_vlan_tags(net):
    def sent(actions, tags, version=13):
        net.reset()
        # Since 1.3 what writes a tag or takes it off needs a match of one.
        match = f"dl_vlan={tags[0].vlan}," if tags else ""
        net.ofctl("add-flow", f"{match}actions={actions},output:2", version=version)
        mark = net.mark()
        packet, = net.pass_through(1, udp(mark, tags=tags), mark, [2])
        assert packet[IP].dst == "192.0.2.2" and is_right(packet)
        found, layer = [], packet.payload
        while layer.name in ("802.1Q", "802_1AD"):
            found.append((0x88A8 if packet.type == 0x88A8 and not found else 0x8100, layer.vlan, layer.prio))
            layer = layer.payload
        return found

    five = [Dot1Q(vlan=5, prio=3)]
    assert sent("push_vlan:0x8100,set_field:0x1007->vlan_vid,set_field:2->vlan_pcp", []) == [(0x8100, 7, 2)]
    # A tag that is pushed is zero (ovs-actions(7)).
    assert sent("push_vlan:0x8100", five) == [(0x8100, 0, 0), (0x8100, 5, 3)]
    assert sent("push_vlan:0x88a8,set_field:0x1009->vlan_vid", five) == [(0x88A8, 9, 0), (0x8100, 5, 3)]
    assert sent("pop_vlan", five) == []
    assert sent("pop_vlan", [Dot1Q(vlan=6), Dot1Q(vlan=7, prio=1)]) == [(0x8100, 7, 1)]
    assert sent("set_field:0x1fff->vlan_vid", five) == [(0x8100, 4095, 3)]
    assert sent("mod_vlan_vid:8", five, 10) == [(0x8100, 8, 3)]
    assert sent("mod_vlan_vid:8", [], 10) == [(0x8100, 8, 0)]
    assert sent("mod_vlan_pcp:4", five, 10) == [(0x8100, 5, 4)]
    assert sent("strip_vlan", five, 10) == []
    assert sent("strip_vlan", [], 10) == []
    # Loads of the whole tag, or of its CFI: a tag is changed, pushed or removed.
    assert sent("load:0x3003->NXM_OF_VLAN_TCI[]", five, 10) == [(0x8100, 3, 1)]
    assert sent("load:0x3003->NXM_OF_VLAN_TCI[]", [], 10) == [(0x8100, 3, 1)]
    assert sent("load:0->NXM_OF_VLAN_TCI[12]", five, 10) == []
    for version in VERSIONS:
        assert sent("load:1->NXM_OF_VLAN_TCI[12]", [], version) == [(0x8100, 0, 0)]
    # The outer one of two tags is removed; what follows leaves the inner one alone, or removes it.
    two = [Dot1Q(vlan=5), Dot1Q(vlan=7, prio=1)]
    assert sent("load:0->NXM_OF_VLAN_TCI[12]", two, 10) == [(0x8100, 7, 1)]
    assert sent("load:0->NXM_OF_VLAN_TCI[],mod_vlan_vid:9", two, 10) == [(0x8100, 9, 0), (0x8100, 7, 1)]
    assert sent("load:0->NXM_OF_VLAN_TCI[12],strip_vlan", two, 10) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_loads_of_a_vlan_tag_are_dumped_as_they_were_given(net, version):
    loads = ["load:0x3003->NXM_OF_VLAN_TCI[]", "load:0->NXM_OF_VLAN_TCI[12]", "load:0xb->NXM_OF_VLAN_TCI[12..15]"]
    for load in loads:
        net.ofctl("add-flow", f"actions={load},output:2", version=version)
        before = {other: net.flows(version=other) for other in VERSIONS}
        assert all("vlan" in flow.lower() for flows in before.values() for flow in flows), before
        for other, flows in before.items():
            net.ofctl("del-flows")
            net.ofctl("add-flows", "-", input="\n".join(flows), version=other)
            assert {each: net.flows(version=each) for each in VERSIONS} == before, (load, other)


def test_a_tag_that_a_load_adds_is_not_pushed_again(net):
    net.ofctl("add-flow", "actions=load:0x1003->NXM_OF_VLAN_TCI[],mod_vlan_pcp:5,output:2", version=10)
    for version in VERSIONS:
        assert "push_vlan" not in "".join(net.flows(version=version)), version


def test_mpls_labels(net):
    net.reset("in_port=1,ip,actions=push_mpls:0x8847,set_field:100->mpls_label,set_field:5->mpls_tc,output:2",
              "in_port=2,mpls,mpls_label=100,mpls_bos=1,actions=pop_mpls:0x0800,output:1",
              "in_port=3,mpls,mpls_label=100,actions=dec_mpls_ttl,set_field:200->mpls_label,push_mpls:0x8847,output:1")
    mark = net.mark()
    labelled, = net.pass_through(1, udp(mark, ttl=33), mark, [2])
    assert labelled.type == 0x8847
    assert (labelled[MPLS].label, labelled[MPLS].cos, labelled[MPLS].s, labelled[MPLS].ttl) == (100, 5, 1, 33)
    mark = net.mark()
    tail = udp(mark).payload
    popped, = net.pass_through(2, Ether(src=A, dst=B, type=0x8847) / MPLS(label=100, s=1, ttl=9) / tail, mark, [1])
    assert popped.type == 0x0800 and bytes(popped.payload) == bytes(tail)
    mark = net.mark()
    tail = udp(mark).payload
    swapped, = net.pass_through(3, Ether(src=A, dst=B, type=0x8847) / MPLS(label=100, s=1, ttl=9) / tail, mark, [1])
    stack = struct.unpack("!II", bytes(swapped)[14:22])
    assert stack == (200 << 12 | 8, 200 << 12 | 1 << 8 | 8), [hex(entry) for entry in stack]
    assert bytes(swapped)[22:] == bytes(tail)


def test_ttls(net):
    net.reset("in_port=1,ip,actions=dec_ttl,output:2", "in_port=2,ip,actions=mod_nw_ttl:7,output:1",
              "in_port=1,ipv6,actions=dec_ttl,output:3")
    for ttl, where in [(64, [2]), (2, [2]), (1, []), (0, [])]:
        mark = net.mark()
        for packet in net.pass_through(1, udp(mark, ttl=ttl), mark, where):
            assert packet[IP].ttl == ttl - 1 and is_right(packet)
    mark = net.mark()
    packet, = net.pass_through(2, udp(mark), mark, [1])
    assert packet[IP].ttl == 7 and is_right(packet)
    for ttl, where in [(64, [3]), (1, [])]:
        mark = net.mark()
        frame = Ether(src=A, dst=B) / IPv6(src="fd00::1", dst="fd00::2", hlim=ttl) / UDP() / Raw(mark)
        for packet in net.pass_through(1, frame, mark, where):
            assert packet[IPv6].hlim == ttl - 1 and is_right(packet)


def test_a_ttl_that_is_over_is_told(net):
    net.ofctl("add-flow", "cookie=0x77,ip,actions=dec_ttl,output:2")
    monitor = net.watch("65534", "invalid_ttl", version=10)
    mark = net.mark()
    net.pass_through(1, udp(mark, ttl=1), mark, [])
    said = monitor.wait(r"(OFPT|NXT)_PACKET_IN[^\n]*\n[^\n]*nw_ttl=1[^\n]*").group(0)
    assert "invalid_ttl" in said and "in_port=1" in said, said


def test_addresses_and_ports_are_written_with_their_checksums(net):
    net.reset("in_port=1,udp,actions=set_field:02:bb:00:00:00:01->eth_src,set_field:02:bb:00:00:00:02->eth_dst,"
              "set_field:198.51.100.1->ip_src,set_field:198.51.100.2->ip_dst,set_field:7->udp_src,set_field:8->udp_dst,"
              "set_field:46->ip_dscp,set_field:2->ip_ecn,output:2",
              "in_port=1,tcp,actions=mod_nw_src:198.51.100.1,mod_nw_dst:198.51.100.2,mod_tp_src:7,mod_tp_dst:8,output:2",
              "in_port=1,tcp6,actions=set_field:fd02::1->ipv6_src,set_field:fd02::2->ipv6_dst,set_field:8->tcp_dst,"
              "set_field:0x54321->ipv6_label,output:2",
              "in_port=1,icmp,actions=set_field:0->icmp_type,mod_nw_src:198.51.100.1,output:2",
              "in_port=1,arp,actions=set_field:2->arp_op,move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],"
              "set_field:198.51.100.9->arp_spa,set_field:02:bb:00:00:00:09->arp_sha,output:2")
    mark = net.mark()
    packet, = net.pass_through(1, udp(mark), mark, [2])
    assert (packet.src, packet.dst) == ("02:bb:00:00:00:01", "02:bb:00:00:00:02")
    assert (packet[IP].src, packet[IP].dst, packet[IP].tos) == ("198.51.100.1", "198.51.100.2", 46 << 2 | 2)
    assert (packet[UDP].sport, packet[UDP].dport) == (7, 8) and is_right(packet)
    # A UDP datagram without a checksum stays without one (RFC 768).
    mark = net.mark()
    frame = udp(mark)
    frame[UDP].chksum = 0
    packet, = net.pass_through(1, frame, mark, [2])
    assert packet[UDP].chksum == 0 and packet[IP].src == "198.51.100.1"
    mark = net.mark()
    packet, = net.pass_through(1, tcp(mark), mark, [2])
    assert (packet[IP].src, packet[IP].dst, packet[TCP].sport, packet[TCP].dport) == ("198.51.100.1", "198.51.100.2", 7, 8)
    assert is_right(packet)
    mark = net.mark()
    frame = Ether(src=A, dst=B) / IPv6(src="fd00::1", dst="fd00::2") / TCP(sport=5, dport=6) / Raw(mark)
    packet, = net.pass_through(1, frame, mark, [2])
    assert (packet[IPv6].src, packet[IPv6].dst, packet[IPv6].fl) == ("fd02::1", "fd02::2", 0x54321)
    assert (packet[TCP].sport, packet[TCP].dport) == (5, 8) and is_right(packet)
    mark = net.mark()
    frame = Ether(src=A, dst=B) / IP(src="192.0.2.1", dst="192.0.2.2") / ICMP(type=8, id=3) / Raw(mark)
    packet, = net.pass_through(1, frame, mark, [2])
    assert packet[ICMP].type == 0 and packet[IP].src == "198.51.100.1" and is_right(packet)
    mark = net.mark()
    frame = Ether(src=A, dst=B) / ARP(op=1, hwsrc=A, psrc="192.0.2.1", pdst="192.0.2.2") / Raw(mark)
    packet, = net.pass_through(1, frame, mark, [2])
    assert (packet[ARP].op, packet[ARP].psrc, packet[ARP].pdst, packet[ARP].hwsrc) == (
        2, "198.51.100.9", "192.0.2.1", "02:bb:00:00:00:09")


def test_neighbour_discovery(net):
    net.reset("icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=fd00::2,nd_sll=02:aa:00:00:00:01,"
              "actions=set_field:fd00::3->nd_target,set_field:02:bb:00:00:00:01->nd_sll,output:2",
              "priority=1,ip6,actions=output:3")
    for target, where in [("fd00::2", [2]), ("fd00::4", [3])]:
        # The mark is in an option behind the address.
        mark = net.mark()
        frame = Ether(src=A, dst="33:33:ff:00:00:02") / IPv6(src="fd00::1", dst="ff02::1:ff00:2", hlim=255)
        frame = frame / ICMPv6ND_NS(tgt=target) / ICMPv6NDOptSrcLLAddr(lladdr=A) / Raw(b"\xfd\x03" + mark[:22])
        packet, = net.pass_through(1, frame, mark[:22], where)
        assert is_right(packet)
        if where == [2]:
            assert packet[ICMPv6ND_NS].tgt == "fd00::3"
            assert packet[ICMPv6NDOptSrcLLAddr].lladdr == "02:bb:00:00:00:01"


def test_neighbour_discovery_needs_no_code(net):
    flows = [f"icmp6,icmp_type={kind},{field},actions=output:2" for kind, field in [
        (135, "nd_target=fd00::2"), (135, "nd_sll=02:00:00:00:00:01"), (136, "nd_tll=02:00:00:00:00:01"),
        (136, "nd_reserved=1"), (135, "nd_options_type=1")]]
    net.reset(*flows)
    assert len(net.flows()) == len(flows)


@pytest.mark.parametrize("mode, first, later", [("normal", [2], [2]), ("drop", [], []), ("nx-match", [3], [2])])
def test_fragments(net, mode, first, later):
    """The ports to which the first and the later fragment of a datagram go, by the bridge's configuration."""
    net.reset("udp,tp_src=1,actions=output:3", "udp,tp_src=0,actions=output:2", "priority=1,actions=drop")
    mark = net.mark()
    datagram = IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=1, dport=2) / Raw(mark.ljust(40) + mark)
    net.ofctl("set-frags", mode)
    try:
        for fragment, to in zip(two_fragments(datagram), [first, later]):
            net.pass_through(1, Ether(src=A, dst=B) / fragment, mark, to)
    finally:
        net.ofctl("set-frags", "normal")
    net.pass_through(1, Ether(src=A, dst=B) / datagram, mark, [3])


def test_the_first_fragment_keeps_its_checksum(net):
    """Rewriting an address also changes the checksum of UDP, which the first fragment has."""
    net.reset("udp,actions=set_field:198.51.100.1->ip_src,set_field:7->udp_dst,output:2")
    mark = net.mark()
    datagram = IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=1, dport=2) / Raw(mark.ljust(40) + mark)
    parts = [net.pass_through(1, Ether(src=A, dst=B) / part, mark, [2])[0] for part in two_fragments(datagram)]
    assert [part[IP].src for part in parts] == ["198.51.100.1"] * 2
    payload = b"".join(bytes(part[IP].payload) for part in parts)
    whole = IP(bytes(IP(src="198.51.100.1", dst="192.0.2.2", proto=17) / Raw(payload)))
    assert (whole[UDP].sport, whole[UDP].dport) == (1, 7) and is_right(Ether() / whole)


def two_fragments(datagram):
    """Two fragments of a datagram with its checksums."""
    parts = IP(bytes(datagram)).fragment(fragsize=48)
    assert len(parts) == 2
    return parts


def test_hosts_behind_translated_addresses(net):
    """Two kernels agree with the checksums: a ping, and a TCP connection, to an address that nobody has."""
    net.reset("priority=2,in_port=1,arp,arp_tpa=10.0.0.9,actions=set_field:10.0.0.2->arp_tpa,output:2",
              "priority=2,in_port=2,arp,arp_spa=10.0.0.2,actions=set_field:10.0.0.9->arp_spa,output:1",
              "priority=2,in_port=1,ip,nw_dst=10.0.0.9,actions=dec_ttl,set_field:10.0.0.2->ip_dst,resubmit(,1)",
              "priority=2,in_port=2,ip,nw_src=10.0.0.2,actions=dec_ttl,set_field:10.0.0.9->ip_src,resubmit(,1)",
              "table=1,priority=2,in_port=1,tcp,tp_dst=80,actions=set_field:8080->tcp_dst,output:2",
              "table=1,priority=2,in_port=2,tcp,tp_src=8080,actions=set_field:80->tcp_src,output:1",
              "table=1,priority=1,in_port=1,actions=output:2", "table=1,priority=1,in_port=2,actions=output:1")
    assert net.ping(1, "10.0.0.9") == 3
    server = "import socket; s = socket.create_server(('10.0.0.2', 8080)); print('ready', flush=True); c, _ = s.accept()\n" \
             "n = 0\nwhile (d := c.recv(65536)): n += len(d)\nc.sendall(b'%d' % n)"
    client = "import socket; s = socket.create_connection(('10.0.0.9', 80), timeout=30); s.sendall(b'x' * 300000)\n" \
             "s.shutdown(1); print(s.recv(99).decode())"
    serving = net.begin(2, "python3", "-c", server)
    assert serving.stdout.readline() == "ready\n"
    assert run("ip", "netns", "exec", net.namespace(1), "python3", "-c", client).strip() == "300000"


# Groups, meters


def test_groups_of_all_kinds(net):
    for group in ["group_id=1,type=all,bucket=set_field:192.0.2.7->ip_dst,output:2,bucket=output:3",
                  "group_id=2,type=indirect,bucket=set_field:192.0.2.8->ip_dst,output:3",
                  "group_id=3,type=all,bucket=group:2,bucket=output:2",
                  "group_id=4,type=select,bucket=weight:1,output:2,bucket=weight:1,output:3"]:
        net.ofctl("add-group", group)
    described = net.ofctl("dump-groups")
    assert "group_id=1,type=all,bucket=actions=set_field:192.0.2.7->ip_dst,output:2,bucket=actions=output:3" in described
    assert "group_id=2,type=indirect" in described and described.count("group_id=") == 4
    net.ofctl("add-flow", "udp,tp_dst=1,actions=group:1")
    net.ofctl("add-flow", "udp,tp_dst=3,actions=group:3")
    net.ofctl("add-flow", "priority=1,udp,actions=group:4")
    # Each bucket has a packet of its own (OpenFlow 1.3.5, 5.6.1).
    mark = net.mark()
    packets = net.pass_through(1, udp(mark, dport=1), mark, [2, 3])
    assert [packet[IP].dst for packet in packets] == ["192.0.2.7", "192.0.2.2"] and all(map(is_right, packets))
    mark = net.mark()
    packets = net.pass_through(1, udp(mark, dport=3), mark, [2, 3])
    assert [packet[IP].dst for packet in packets] == ["192.0.2.2", "192.0.2.8"] and all(map(is_right, packets))
    # A flow of packets always takes the same way; many take both.
    ways = []
    for sport in list(range(40)) + [5, 5]:
        mark = net.mark()
        net.send(1, udp(mark, sport=sport + 5000, dport=99))
        ways.append(until(lambda mark=mark: where(net, mark), "the packet comes out"))
    assert ways[40] == ways[41] == ways[5] and {2, 3} == set(ways), ways
    stats = until(lambda: re.search(r"group_id=4,[^\n]*packet_count=42,[^\n]*", net.ofctl("dump-group-stats", "group_id=4")), "counts")
    buckets = [int(count) for count in re.findall(r"bucket\d:packet_count=(\d+)", stats.group(0))]
    assert buckets == [ways.count(2), ways.count(3)], stats
    # A group that is changed; one that is not there; loops; and what is used.
    net.ofctl("mod-group", "group_id=2,type=indirect,bucket=output:2")
    mark = net.mark()
    net.pass_through(1, udp(mark, dport=3), mark, [2, 2])
    net.refused("OFPGMFC_UNKNOWN_GROUP", "mod-group", "group_id=9,type=all,bucket=output:1")
    net.refused("OFPGMFC_GROUP_EXISTS", "add-group", "group_id=1,type=all,bucket=output:1")
    net.refused("OFPGMFC_LOOP", "mod-group", "group_id=2,type=indirect,bucket=group:3")
    net.ofctl("del-groups")
    assert "group_id" not in net.ofctl("dump-groups") and net.flows() == []


def where(net, mark):
    """At which host a frame has come out, if it has."""
    for host, tap in net.taps.items():
        while (data := tap.frame()) is not None:
            if mark in data:
                return host
    return None


def test_buckets_are_changed_in_15(net):
    net.ofctl("add-group", "group_id=1,type=all,bucket=bucket_id:1,output:2", version=15)
    net.ofctl("insert-buckets", "group_id=1,command_bucket_id=last,bucket=bucket_id:2,output:3", version=15)
    assert net.ofctl("dump-groups", version=15).count("bucket=") == 2
    net.ofctl("add-flow", "actions=group:1", version=15)
    mark = net.mark()
    net.pass_through(1, udp(mark), mark, [2, 3])
    net.ofctl("remove-buckets", "group_id=1,command_bucket_id=1", version=15)
    mark = net.mark()
    net.pass_through(1, udp(mark), mark, [3])


def test_fast_failover(net):
    net.ofctl("add-group", "group_id=1,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3")
    net.ofctl("add-flow", "udp,actions=group:1")
    mark = net.mark()
    net.pass_through(1, udp(mark), mark, [2])
    monitor = net.watch("65534")
    there = net.namespace(2)
    run("ip", "-n", there, "link", "set", "e0", "down")
    try:
        monitor.wait(r"OFPT_PORT_STATUS[^\n]*: MOD: 2\(s2\)[^\n]*\n[^\n]*config[^\n]*\n +state: +LINK_DOWN")
        mark = net.mark()
        net.pass_through(1, udp(mark), mark, [3])
    finally:
        run("ip", "-n", there, "link", "set", "e0", "up")
        run("ip", "-n", there, "addr", "replace", "fd00::2/64", "dev", "e0", "nodad")
    monitor.wait(r"LINK_DOWN(?s:.*)MOD: 2\(s2\)[^\n]*\n[^\n]*config[^\n]*\n +state: +LIVE")
    mark = net.mark()
    net.pass_through(1, udp(mark), mark, [2])


def test_meters(net):
    net.ofctl("add-meter", "meter=1,pktps,burst,stats,band=type=drop,rate=20,burst_size=20")
    assert "meter=1 pktps burst stats bands=\ntype=drop rate=20 burst_size=20" in net.ofctl("dump-meters")
    net.ofctl("add-flow", "udp,actions=meter:1,output:2")
    mark = net.mark()
    begin = time.monotonic()
    net.send(1, udp(mark), count=400)
    counted = r"packet_in_count:400 [^\n]*(?:\n.*)*?0: packet_count:(\d+)"
    dropped = int(until(lambda: re.search(counted, net.ofctl("meter-stats")), net.ofctl("meter-stats")).group(1))
    passed = 0
    while (data := net.taps[2].frame()) is not None:
        passed += mark in data
    seconds = time.monotonic() - begin
    assert passed + dropped == 400 and 15 <= passed <= 25 + 20 * seconds, (passed, dropped, seconds)
    net.ofctl("mod-meter", "meter=1,kbps,band=type=drop,rate=1000000")
    mark = net.mark()
    net.pass_through(1, udp(mark), mark, [2])
    net.refused("OFPMMFC_METER_EXISTS", "add-meter", "meter=1,kbps,band=type=drop,rate=1")
    net.refused("OFPMMFC_UNKNOWN_METER", "mod-meter", "meter=2,kbps,band=type=drop,rate=1")
    # Its flows go with it (OpenFlow 1.3.5, 6.4).
    net.ofctl("del-meter", "meter=1")
    assert net.flows() == [] and "meter=1" not in net.ofctl("dump-meters")


# Bundles, learning, conjunctions


def test_a_bundle_changes_all_or_nothing(net):
    good = "\n".join(f"table={table},udp,tp_dst={table},actions=output:2" for table in range(50))
    net.ofctl("add-flows", "-", input=good, options=("--bundle",), version=14)
    assert len(net.flows()) == 50
    before = net.flows()
    bad = "delete\nadd table=60,actions=output:3\nmodify table=1,actions=drop\nadd table=61,actions=group:77\nadd table=62,actions=drop"
    text = net.ofctl("add-flows", "-", input=bad, options=("--bundle",), version=14, code=1)
    assert "OFPBAC_BAD_OUT_GROUP" in text and "OFPBFC_MSG_FAILED" in text, text
    assert net.flows() == before
    net.ofctl("replace-flows", "-", input="table=7,udp,actions=output:3\ntable=3,udp,tp_dst=3,actions=output:2",
              options=("--bundle",), version=14)
    assert net.flows() == ["table=3, udp,tp_dst=3 actions=output:2", "table=7, udp actions=output:3"]
    # Groups and flows that use them, in one.
    net.ofctl("bundle", "-", version=14, input="group group_id=5,type=all,bucket=output:3\nflow delete\nflow add udp,actions=group:5\n")
    mark = net.mark()
    net.pass_through(1, udp(mark), mark, [3])
    assert net.flows() == ["udp actions=group:5"]


def test_learn(net):
    net.reset("table=0,actions=learn(table=10,idle_timeout=60,priority=5,cookie=0x99,NXM_OF_VLAN_TCI[0..11],"
              "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15]),resubmit(,1)",
              "table=1,actions=resubmit(,10),resubmit(,2)",
              "table=2,priority=2,reg0=0,actions=FLOOD", "table=2,priority=1,actions=output:NXM_NX_REG0[]")
    mark = net.mark()
    net.pass_through(1, Ether(src=A, dst=B) / Raw(mark + bytes(40)), mark, [2, 3])
    learned, = [flow for flow in net.flows("table=10") if "dl_dst=02:aa:" in flow]
    assert learned.startswith("cookie=0x99, table=10, idle_timeout=60, priority=5,vlan_tci=0x0000/0x0fff,dl_dst=02:aa:00:00:00:01 ")
    assert learned.endswith(("load:0x1->NXM_NX_REG0[0..15]", "set_field:0x1/0xffff->reg0")), learned
    mark = net.mark()
    net.pass_through(3, Ether(src=B, dst=A) / Raw(mark + bytes(40)), mark, [1])
    mark = net.mark()
    net.pass_through(1, Ether(src=A, dst=B) / Raw(mark + bytes(40)), mark, [3])
    # Hosts of the net may have said something, too.
    assert sum("dl_dst=02:aa:" in flow for flow in net.flows("table=10")) == 2
    # The station moves: its flow is replaced.
    mark = net.mark()
    net.pass_through(2, Ether(src=A, dst=B) / Raw(mark + bytes(40)), mark, [3])
    mark = net.mark()
    net.pass_through(3, Ether(src=B, dst=A) / Raw(mark + bytes(40)), mark, [2])
    assert sum("dl_dst=02:aa:" in flow for flow in net.flows("table=10")) == 2


def test_conjunctions(net):
    sources, ports = ["192.0.2.1", "192.0.2.4", "192.0.2.9"], [80, 443]
    net.reset(*[f"priority=10,ip,nw_src={source},actions=conjunction(7,1/2)" for source in sources],
              *[f"priority=10,tcp,tp_dst={dport},actions=conjunction(7,2/2)" for dport in ports],
              "priority=10,ip,conj_id=7,actions=output:2", "priority=1,ip,actions=output:3")
    for source in [*sources, "192.0.2.2"]:
        for dport in [*ports, 81]:
            mark = net.mark()
            expected = [2] if source in sources and dport in ports else [3]
            net.pass_through(1, tcp(mark, src=source, dport=dport), mark, expected)


# Packets to and from controllers


@pytest.mark.parametrize("version", VERSIONS)
def test_packet_outs(net, version):
    mark = net.mark()
    hexadecimal = bytes(udp(mark)).hex()
    net.ofctl("packet-out", f"in_port=1,packet={hexadecimal},actions=FLOOD", version=version)
    net.receive(mark, [2, 3])
    net.ofctl("packet-out", f"in_port=controller,packet={hexadecimal},actions=mod_nw_tos:32,output:1", version=version)
    packet, = net.receive(mark, [1])
    assert packet[IP].tos == 32 and is_right(packet)
    net.ofctl("add-flow", "in_port=3,udp,actions=output:1", version=version)
    net.ofctl("packet-out", f"in_port=3,packet={hexadecimal},actions=TABLE", version=version)
    net.receive(mark, [1])


@pytest.mark.parametrize("version", VERSIONS)
def test_packet_ins(net, version):
    monitor = net.watch("100", version=version)
    net.ofctl("add-flow", "cookie=0x5,priority=5,udp,tp_dst=7,actions=set_field:192.0.2.77->ip_dst,controller" if version != 10 else
              "cookie=0x5,priority=5,udp,tp_dst=7,actions=mod_nw_dst:192.0.2.77,controller", version=version)
    mark = net.mark()
    net.pass_through(2, udp(mark, dport=7), mark, [])
    said = monitor.wait(r"PACKET_IN2?[^\n]*in_port=2[^\n]*\n[^\n]*tp_dst=7[^\n]*").group(0)
    assert "(via action)" in said and "cookie=0x5" in said and "total_len=64" in said and "nw_dst=192.0.2.77" in said, said
    # `controller(max_len=40)`: that much of it.
    net.ofctl("add-flow", "priority=6,udp,tp_dst=8,actions=controller(max_len=40)", version=version)
    net.pass_through(2, udp(mark, dport=8), mark, [])
    said = monitor.wait(r"PACKET_IN2?[^\n]*total_len=64[^\n]*data_len=40[^\n]*").group(0)
    assert "in_port=2" in said
    # A miss is told in 1.0; since 1.3 a flow must say so (OpenFlow 1.3.5, 5.4).
    net.ofctl("del-flows", version=version)
    if version != 10:
        net.pass_through(3, udp(mark, dport=8), mark, [])
        assert "no_match" not in monitor.text or "in_port=3" not in monitor.text
        net.ofctl("add-flow", "priority=0,actions=controller", version=version)
    net.pass_through(3, udp(mark, dport=9), mark, [])
    said = monitor.wait(r"PACKET_IN2?[^\n]*in_port=3[^\n]*\n[^\n]*tp_dst=9[^\n]*").group(0)
    assert "(via no_match)" in said, said


@pytest.mark.parametrize("version", VERSIONS)
def test_flow_monitor(net, version):
    net.ofctl("add-flow", "table=1,udp,actions=output:2")
    monitor = net.watch("watch:", version=version)
    monitor.wait(r"event=(ADDED|INITIAL) table=1 cookie=0 udp actions=output:2")
    net.ofctl("add-flow", "table=2,tcp,actions=output:3")
    monitor.wait(r"event=ADDED table=2 cookie=0 tcp actions=output:3")
    net.ofctl("mod-flows", "tcp,table=2,actions=output:2")
    monitor.wait(r"event=MODIFIED table=2 cookie=0 tcp actions=output:2")
    net.ofctl("del-flows", "table=2")
    monitor.wait(r"event=DELETED reason=delete table=2 cookie=0 tcp actions=output:2")


@pytest.mark.parametrize("version", VERSIONS)
def test_ports_are_configured(net, version):
    net.ofctl("add-flow", "actions=FLOOD", version=version)

    def floods(where):
        mark = net.mark()
        net.pass_through(1, udp(mark), mark, where)

    floods([2, 3])
    try:
        for off, on, config in [("down", "up", "PORT_DOWN"), ("no-forward", "forward", "NO_FWD")] + (
                [("no-flood", "flood", "NO_FLOOD")] if version == 10 else []):
            net.ofctl("mod-port", "2", off, version=version)
            shown = net.ofctl("dump-ports-desc", version=version)
            assert re.search(rf" 2\(s2\)[^\n]*\n +config: +{config}\n", shown), shown
            floods([3])
            net.ofctl("mod-port", "s2", on, version=version)
            floods([2, 3])
        net.ofctl("mod-port", "1", "no-receive", version=version)
        floods([])
    finally:
        for state in ["up", "forward", "receive"]:
            for port in ["1", "2"]:
                net.ofctl("mod-port", port, state)
        net.ofctl("mod-port", "2", "flood", version=10)
    floods([2, 3])
    monitor = net.watch("1000", version=version)
    net.ofctl("mod-port", "3", "down", version=version)
    monitor.wait(r"OFPT_PORT_STATUS[^\n]*: MOD: 3\(s3\)[^\n]*\n +config: +PORT_DOWN")
    net.ofctl("mod-port", "3", "up", version=version)
    until(lambda: re.search(r" 3\(s3\)[^\n]*\n +config: +0\n +state: +(LIVE|0)\n", net.ofctl("dump-ports-desc")), "port 3 is up")


# What is refused


@pytest.mark.parametrize("version, error, flow", [
    (13, "OFPBAC_BAD_OUT_GROUP", "actions=group:9"),
    (13, "OFPBAC_BAD_OUT_PORT", "actions=output:0"),
    (13, "OFPBIC_BAD_TABLE_ID", "actions=goto_table:254"),
    (13, "OFPFMFC_BAD_TABLE_ID", "table=254,actions=drop"),
    (13, "OFPMMFC_INVALID_METER", "actions=meter:4"),
    (13, "OFPBMC_BAD_FIELD", "ct_state=+trk,actions=drop"),
    (10, "OFPBAC_BAD_SET_ARGUMENT", "sctp,actions=mod_tp_src:5,output:2"),
    (10, "OFPBAC_BAD_SET_ARGUMENT", "sctp6,actions=mod_tp_dst:5,output:2"),
    (13, "OFPBAC_BAD_TYPE", "actions=sample(probability=1)"),
    (13, "OFPBAC_BAD_TYPE", "ip,actions=ct"),
    (13, "OFPBAC_BAD_TYPE", "ip,actions=ct(commit,zone=1)"),
])
def test_refused_flows(net, version, error, flow):
    net.ofctl("add-flow", "priority=3,actions=output:2")
    net.refused(error, "add-flow", flow, version=version)
    assert net.flows() == ["priority=3 actions=output:2"]


# Controllers


def test_fail_modes():
    for mode, answers in [("secure", 0), ("standalone", 3)]:
        # Nobody listens there, so that the controller is not reached.
        net = Net("--controller", "tcp:127.0.0.1:6653", "--fail-mode", mode, hosts=2)
        try:
            assert net.ping(1, 2) == answers
            assert len(net.flows()) == (mode == "standalone")
        finally:
            net.close()


OSKEN = ROOT / ".venv-osken"


def osken(net, application, *words):
    """Starts an example application of os-ken."""
    assert (OSKEN / "bin/osken-manager").exists(), f"{OSKEN} is missing: scripts/setup"
    file = OSKEN / "examples/os_ken/app" / f"{application}.py"
    return net.begin("s", "env", "PYTHONWARNINGS=ignore", str(OSKEN / "bin/osken-manager"), *words, str(file))


def test_osken_switches_and_comes_back():
    """os-ken's simple_switch_13: dialled, gone, and dialled again."""
    net = Net("--controller", "tcp:127.0.0.1:6653", "--fail-mode", "secure", hosts=2)
    try:
        assert net.ping(1, 2, count=1) == 0 and net.flows() == []
        for _ in range(2):
            controller = osken(net, "simple_switch_13", "--ofp-tcp-listen-port", "6653")
            until(lambda: net.flows() == ["priority=0 actions=CONTROLLER:65535"], "its flow for table misses")
            # The first packets wait for the controller.
            until(lambda: net.ping(1, 2) == 3, "the controller switches")
            assert sum("priority=1," in flow for flow in net.flows()) >= 2
            controller.kill()
            controller.wait(timeout=PATIENCE_S)
            # Secure: the flows go on.
            assert net.ping(1, 2) == 3
            net.ofctl("del-flows")
    finally:
        net.close()


@pytest.mark.parametrize("application", ["simple_switch", "simple_switch_14", "simple_switch_15"])
def test_osken_of_other_versions(application):
    net = Net("--controller", "ptcp:6653:127.0.0.1", "--fail-mode", "secure", hosts=2)
    try:
        osken(net, application, "--ofp-tcp-listen-port", "16653", "--ofp-switch-address-list", "127.0.0.1:6653")
        until(lambda: net.ping(1, 2, count=1) == 1, "the controller switches")
        until(lambda: len(net.flows()) >= 2, "its flows")
        assert net.ping(1, 2) == 3
    finally:
        net.close()


# Hostile clients


def test_hostile_clients_disturb_nobody(net):
    net.ofctl("add-flow", "actions=NORMAL")
    path = net.target.removeprefix("unix:")
    hello = struct.pack("!BBHI", 4, 0, 8, 1)
    generator = __import__("random").Random(1)
    clients = []

    def client(data):
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(5)
        one.connect(path)
        clients.append(one)
        try:
            one.sendall(data)
        except OSError:
            pass
        return one

    try:
        for _ in range(20):
            client(generator.randbytes(5000))
            client(hello + generator.randbytes(5000))
        # A length that never comes, one that is too short, an unknown type, half a header.
        for data in [struct.pack("!BBHI", 4, 14, 65535, 2), struct.pack("!BBHI", 4, 14, 3, 2), struct.pack("!BBHI", 4, 200, 8, 2), b"\x04"]:
            client(hello + data)
        # One that asks for much and reads nothing.
        slow = client(hello)
        slow.setblocking(False)
        request = struct.pack("!BBHIHH4xBxxxIIxxxxQQHHxxxx", 4, 18, 56, 3, 1, 0, 255, 2**32 - 1, 2**32 - 1, 0, 0, 1, 4)
        with pytest.raises(BlockingIOError):
            for _ in range(10_000_000):
                slow.send(request * 100)
        assert net.ping(1, 2) == 3
        assert len(net.flows()) == 1 and "dpid" in net.ofctl("show")
        status = (open(f"/proc/{net.daemon.process.pid}/status").read())
        assert int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) < 2_000_000
    finally:
        for one in clients:
            one.close()
    until(lambda: net.ofctl("dump-flows", code=None).count("actions=") == 1, "the switch answers")


# Other devices


def test_a_p4_device_behind_the_bridge():
    net = Net("--device", "2=tests/py/openflow_device.p4", "--chain", "1:10,2:1", "--chain", "2:1,1:10",
              "--fail-mode", "secure", hosts=2)
    try:
        net.reset("in_port=1,actions=output:10", "in_port=10,actions=output:2")
        mark = net.mark()
        packet, = net.pass_through(1, udp(mark), mark, [2])
        assert packet.src == "02:cc:00:00:00:02" and is_right(packet)
    finally:
        net.close()
