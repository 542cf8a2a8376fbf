"""Traffic for ONF's fabric.p4, a leaf of a data-centre fabric with a mobile user plane (SPGW).

Ports 1 to 4 are the front panel, 255 is the controller. Vlan 10 is bridged; 10.2/16 and UEs are routed; 10.3/16 goes through an
MPLS label.
"""

from scapy.contrib.gtp import GTP_U_Header
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

from script import Script

ROUTER = "00:aa:00:00:00:01"
HOST1, HOST2, HOST3 = "00:00:00:00:00:11", "00:00:00:00:00:22", "00:00:00:00:00:33"
HOP2, HOP3, SPINE, ENB = "00:bb:00:00:00:02", "00:bb:00:00:00:03", "00:bb:00:00:00:99", "00:bb:00:00:00:04"
DATA = Raw(b"sluice carries fabric.p4")
PROGRAM = "fabric_20190420/fabric.p4"

UNTAGGED = "vlan_is_valid:0 vlan_id:0&&&0"


def packet_in(ingress_port: int) -> bytes:
    """The header that the controller sees: nine bits of port, seven of padding."""
    return (ingress_port << 7).to_bytes(2, "big")


def ports(s: Script) -> None:
    s.title("Ports 1 and 2 are untagged members of vlan 10, port 3 is tagged; port 2 also brings MPLS from the spine.")
    for port in (1, 2, 4):
        s.do(f"add ingress_port_vlan 1 ig_port:{port} {UNTAGGED} permit_with_internal_vlan(vlan_id:10)")
    for vlan in (10, 100):
        s.do(f"add ingress_port_vlan 1 ig_port:3 vlan_is_valid:1 vlan_id:{vlan}&&&0xfff permit()")
    for port in (1, 2, 4):
        s.do(f"add egress_vlan vlan_id:10 eg_port:{port} pop_vlan()")


def member(s: Script, number: int, action: str) -> None:
    """A next hop with one member; groups are made by hand."""
    s.do(f"member hashed_selector {number} {action}", f"add hashed next_id:{number} member({number})")


def bridging(s: Script) -> None:
    ports(s)
    s.title("Bridging in vlan 10.")
    for number, (mac, port) in enumerate([(HOST1, 1), (HOST2, 2), (HOST3, 3)], start=1):
        s.do(f"add bridging 10 vlan_id:10 eth_dst:{mac}&&&0xffffffffffff set_next_id_bridging(next_id:{number})")
        member(s, number, f"output_hashed(port_num:{port})")
    six = Ether(src=HOST1, dst=HOST2) / IPv6(src="fc00::1", dst="fc00::2") / UDP(sport=1, dport=2) / DATA
    s.send(1, six, {2: six})
    tagged = Ether(src=HOST3, dst=HOST1) / Dot1Q(vlan=10, prio=5) / IPv6(src="fc00::3", dst="fc00::1") / UDP(dport=9) / DATA
    untagged = Ether(src=HOST3, dst=HOST1) / IPv6(src="fc00::3", dst="fc00::1") / UDP(dport=9) / DATA
    s.send(3, tagged, {1: untagged})
    to3 = Ether(src=HOST1, dst=HOST3) / IPv6(src="fc00::1", dst="fc00::3") / TCP(dport=80) / DATA
    to3_tagged = Ether(src=HOST1, dst=HOST3) / Dot1Q(vlan=10) / IPv6(src="fc00::1", dst="fc00::3") / TCP(dport=80) / DATA
    s.send(1, to3, {3: to3_tagged})

    s.title("A broadcast goes to every member but the sender; the controller is in the group and sees it when the ACL says so.")
    s.do(
        "add bridging 1 vlan_id:10 eth_dst:ff:ff:ff:ff:ff:ff&&&0xffffffffffff set_next_id_bridging(next_id:99)",
        "add multicast next_id:99 set_mcast_group_id(group_id:7)",
        "mc_mgrp_create 7",
        "mc_node_create 0 1 2 3 255",
        "mc_node_associate 7 0",
    )
    ask = Ether(src=HOST1, dst="ff:ff:ff:ff:ff:ff") / ARP(hwsrc=HOST1, psrc="10.0.0.1", pdst="10.0.0.2")
    ask_tagged = Ether(src=HOST1, dst="ff:ff:ff:ff:ff:ff") / Dot1Q(vlan=10) / ARP(hwsrc=HOST1, psrc="10.0.0.1", pdst="10.0.0.2")
    s.send(1, ask, {2: ask, 3: ask_tagged})
    s.do("add acl 10 eth_type:0x0806&&&0xffff clone_to_cpu()")
    s.send(1, ask, {2: ask, 3: ask_tagged, 255: packet_in(1) + bytes(ask)})

    s.title("The ACL punts ARP to the router itself, whatever else would happen, and drops telnet.")
    s.do(f"add acl 20 eth_type:0x0806&&&0xffff eth_src:{ROUTER}&&&0xffffffffffff punt_to_cpu()")
    s.do("add acl 30 ip_proto:6&&&0xff l4_dport:23&&&0xffff drop()")
    reply = Ether(src=HOST1, dst=ROUTER) / ARP(op=2, hwsrc=HOST1, psrc="10.0.0.1", hwdst=ROUTER, pdst="10.0.0.254")
    s.send(1, reply, {255: packet_in(1) + bytes(reply)})
    s.send(1, Ether(src=HOST1, dst=HOST2) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(dport=23))

    s.title("Packet-out from the controller: straight to the port that its header names.")
    out = Ether(src=ROUTER, dst=HOST1) / ARP(op=2, hwsrc=ROUTER, psrc="10.0.0.254", hwdst=HOST1, pdst="10.0.0.1")
    s.send(255, packet_in(1) + bytes(out), {1: out})

    s.title("Cross-connect of a double-tagged service between ports 3 and 4, both tags kept.")
    s.do(
        "add bridging 1 vlan_id:100 eth_dst:0&&&0 set_next_id_bridging(next_id:500)",
        "add xconnect ig_port:3 next_id:500 output_xconnect(port_num:4)",
    )
    qinq = Ether(src=HOST3, dst=HOST2) / Dot1Q(vlan=100) / Dot1Q(vlan=200) / IPv6(src="fc00::3", dst="fc00::2") / UDP() / DATA
    s.send(3, qinq, {4: qinq})


def routing(s: Script) -> None:
    s.title("IPv4 routing: longest prefix, next hop with its own vlan, TTL and checksum.")
    s.do(
        f"add fwd_classifier 10 ig_port:1 eth_dst:{ROUTER}&&&0xffffffffffff eth_type:0x0800 set_forwarding_type(fwd_type:2)",
        "add routing_v4 ipv4_dst:10.2.0.0/16 set_next_id_routing_v4(next_id:20)",
        "add routing_v4 ipv4_dst:10.2.3.0/24 set_next_id_routing_v4(next_id:21)",
        "add routing_v4 ipv4_dst:10.3.0.0/16 set_next_id_routing_v4(next_id:30)",
        "add routing_v4 ipv4_dst:10.4.0.0/16 set_next_id_routing_v4(next_id:40)",
        "add next_vlan next_id:21 set_vlan(vlan_id:30)",
    )
    member(s, 20, f"routing_hashed(port_num:2, smac:{ROUTER}, dmac:{HOP2})")
    member(s, 21, f"routing_hashed(port_num:3, smac:{ROUTER}, dmac:{HOP3})")
    member(s, 30, f"mpls_routing_hashed(port_num:4, smac:{ROUTER}, dmac:{SPINE}, label:1234)")

    def ip(dst: str, ttl: int = 64):
        return IP(src="10.1.0.1", dst=dst, ttl=ttl) / UDP(sport=1000, dport=2000) / DATA

    s.send(1, Ether(src=HOST1, dst=ROUTER) / ip("10.2.0.9"), {2: Ether(src=ROUTER, dst=HOP2) / ip("10.2.0.9", 63)})
    s.send(
        1,
        Ether(src=HOST1, dst=ROUTER) / ip("10.2.3.9"),
        {3: Ether(src=ROUTER, dst=HOP3) / Dot1Q(vlan=30) / ip("10.2.3.9", 63)},
    )
    s.send(1, Ether(src=HOST1, dst=ROUTER) / ip("10.2.0.9", 1))

    s.title("Equal cost: a group of two next hops on port 2; the flow decides which.")
    for number in (41, 42):
        s.do(f"member hashed_selector {number} routing_hashed(port_num:2, smac:{ROUTER}, dmac:00:bb:00:00:00:{number})")
    s.do("group hashed_selector 40 41 42", "add hashed next_id:40 group(40)")
    wanted = bytes(Ether(src=ROUTER, dst="00:bb:00:00:00:40") / ip("10.4.0.1", 63)).hex()
    s.send_any(1, Ether(src=HOST1, dst=ROUTER) / ip("10.4.0.1"), 2, wanted[:11] + "*" + wanted[12:])

    s.title("MPLS: push on the way to the spine, pop on the way back. The label's TTL starts at 64; the packet's own is not touched.")
    s.send(
        1,
        Ether(src=HOST1, dst=ROUTER) / ip("10.3.0.1"),
        {4: Ether(src=ROUTER, dst=SPINE, type=0x8847) / MPLS(label=1234, s=1, ttl=64) / ip("10.3.0.1")},
    )
    s.do(
        f"add fwd_classifier 10 ig_port:2 eth_dst:{ROUTER}&&&0xffffffffffff eth_type:0x8847 set_forwarding_type(fwd_type:1)",
        "add mpls mpls_label:77 pop_mpls_and_next(next_id:50)",
    )
    member(s, 50, f"routing_hashed(port_num:1, smac:{ROUTER}, dmac:{HOST1})")
    s.send(
        2,
        Ether(src=SPINE, dst=ROUTER, type=0x8847) / MPLS(label=77, s=1, ttl=9) / ip("10.1.0.5"),
        {1: Ether(src=ROUTER, dst=HOST1) / ip("10.1.0.5", 63)},
    )


def mobile(s: Script) -> None:
    s.title("Uplink of the mobile user plane: GTP-U from a base station is taken off and its inner packet routed.")
    s.do(
        "add s1u_filter_table gtp_ipv4_dst:140.0.0.1 nop()",
    )
    inner = IP(src="16.255.255.1", dst="10.2.0.9") / UDP(sport=5000, dport=53) / DATA
    tunnel = IP(src="119.0.0.10", dst="140.0.0.1") / UDP(sport=2152, dport=2152) / GTP_U_Header(teid=255) / inner
    routed = IP(src="16.255.255.1", dst="10.2.0.9", ttl=63) / UDP(sport=5000, dport=53) / DATA
    s.send(1, Ether(src=HOST1, dst=ROUTER) / tunnel, {2: Ether(src=ROUTER, dst=HOP2) / routed})
    ping = IP(src="16.255.255.1", dst="10.2.0.9") / ICMP(id=3, seq=4) / DATA
    tunnel = IP(src="119.0.0.10", dst="140.0.0.1") / UDP(sport=2152, dport=2152) / GTP_U_Header(teid=255) / ping
    routed = IP(src="16.255.255.1", dst="10.2.0.9", ttl=63) / ICMP(id=3, seq=4) / DATA
    s.send(1, Ether(src=HOST1, dst=ROUTER) / tunnel, {2: Ether(src=ROUTER, dst=HOP2) / routed})

    s.title("Downlink: packets to a user get a tunnel to the base station.")
    s.do(
        "add dl_sess_lookup ipv4_dst:16.255.255.1 set_dl_sess_info(teid:0xff, s1u_enb_addr:119.0.0.10, s1u_sgw_addr:140.0.0.1)",
        "add routing_v4 ipv4_dst:16.255.255.0/24 set_next_id_routing_v4(next_id:60)",
    )
    member(s, 60, f"routing_hashed(port_num:4, smac:{ROUTER}, dmac:{ENB})")
    down = IP(src="10.2.0.9", dst="16.255.255.1") / UDP(sport=53, dport=5000) / DATA
    sent = IP(src="10.2.0.9", dst="16.255.255.1", ttl=63) / UDP(sport=53, dport=5000) / DATA
    wanted = (
        Ether(src=ROUTER, dst=ENB)
        / IP(src="140.0.0.1", dst="119.0.0.10", id=0x1513, ttl=64)
        / UDP(sport=2152, dport=2152, chksum=0)
        / GTP_U_Header(teid=255, S=0, gtp_type=255, length=len(sent))
        / sent
    )
    s.send(1, Ether(src=HOST1, dst=ROUTER) / down, {4: wanted})
    s.title("Both frames of port 3 reached the stage that counts ports.")
    s.do("check_counter ingress_port_counter(3) packets == 2")


def scripts() -> dict[str, Script]:
    s = Script(PROGRAM, __doc__)
    bridging(s)
    routing(s)
    mobile(s)
    six = Script(PROGRAM, "IPv6 routing of fabric.p4, which is off unless WITH_IPV6 is defined.", ("WITH_IPV6",))
    ports(six)
    six.title("Longest prefix, hop limit.")
    six.do(
        f"add fwd_classifier 10 ig_port:1 eth_dst:{ROUTER}&&&0xffffffffffff eth_type:0x86dd set_forwarding_type(fwd_type:4)",
        "add routing_v6 ipv6_dst:2001:db8::/32 set_next_id_routing_v6(next_id:20)",
        "add routing_v6 ipv6_dst:2001:db8:1::/48 set_next_id_routing_v6(next_id:21)",
    )
    member(six, 20, f"routing_hashed(port_num:2, smac:{ROUTER}, dmac:{HOP2})")
    member(six, 21, f"mpls_routing_hashed(port_num:4, smac:{ROUTER}, dmac:{SPINE}, label:99)")

    def packet(dst: str, limit: int):
        return IPv6(src="2001:db8:ff::1", dst=dst, hlim=limit) / TCP(sport=1, dport=80) / DATA

    near, far = "2001:db8:2::5", "2001:db8:1::5"
    six.send(1, Ether(src=HOST1, dst=ROUTER) / packet(near, 64), {2: Ether(src=ROUTER, dst=HOP2) / packet(near, 63)})
    six.send(1, Ether(src=HOST1, dst=ROUTER) / packet(near, 1))
    six.send(
        1,
        Ether(src=HOST1, dst=ROUTER) / packet(far, 64),
        {4: Ether(src=ROUTER, dst=SPINE, type=0x8847) / MPLS(label=99, s=1, ttl=64) / packet(far, 64)},
    )
    return {"fabric": s, "fabric-ipv6": six}
