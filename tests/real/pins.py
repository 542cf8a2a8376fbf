"""Traffic for Google's SAI P4 programs (PINS): a middle block, a border router, and the ACL-only WBB switch.

Ports 1 to 4 are the front panel, 510 is the controller. VRF 5 holds every route.
"""

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import ARP, GRE, Dot1Q, Ether
from scapy.packet import Raw

from script import Script

ROUTER = "02:00:00:00:00:ff"
HOST, HOP2, HOP3, COLLECTOR = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03", "02:00:00:00:00:0c"
RIF2, RIF3 = "02:00:00:00:01:02", "02:00:00:00:01:03"
DATA = Raw(b"sluice carries SAI P4")


def packet_out(egress_port: int, submit_to_ingress: int = 0) -> bytes:
    """The controller's header: nine bits of port, one of `submit_to_ingress`, six of padding."""
    return (egress_port << 7 | submit_to_ingress << 6).to_bytes(2, "big")


def next_hops(s: Script) -> None:
    s.title("Admission to L3 by the router's MAC; every IP packet is in VRF 5; next hops 2 and 3 leave by ports 2 and 3.")
    s.do(
        f"add l3_admit_table 1 dst_mac:{ROUTER}&&&0xffffffffffff admit_to_l3()",
        "add acl_pre_ingress_table 1 is_ip:1 set_vrf(vrf_id:5)",
        "add vrf_table vrf_id:5 no_action()",
    )
    for port, smac, dmac in ((2, RIF2, HOP2), (3, RIF3, HOP3)):
        s.do(
            f"add router_interface_table router_interface_id:{port} set_port_and_src_mac(port:{port}, src_mac:{smac})",
            f"add neighbor_table router_interface_id:{port} neighbor_id:fe80::{port} set_dst_mac(dst_mac:{dmac})",
            f"add nexthop_table nexthop_id:{port} set_ip_nexthop(router_interface_id:{port}, neighbor_id:fe80::{port})",
        )


def v4(dst: str, ttl: int = 64, **more):
    return IP(src="10.1.0.1", dst=dst, ttl=ttl, **more) / UDP(sport=1000, dport=2000) / DATA


def v6(dst: str, limit: int = 64):
    return IPv6(src="2001:db8:ff::1", dst=dst, hlim=limit) / TCP(sport=1, dport=80) / DATA


def to_router(packet) -> Ether:
    return Ether(src=HOST, dst=ROUTER) / packet


def routing(s: Script) -> None:
    s.title("IPv4 and IPv6: longest prefix, TTL or hop limit, checksum.")
    s.do(
        "add ipv4_table vrf_id:5 ipv4_dst:10.2.0.0/16 set_nexthop_id(nexthop_id:2)",
        "add ipv4_table vrf_id:5 ipv4_dst:10.2.3.0/24 set_nexthop_id(nexthop_id:3)",
        "add ipv6_table vrf_id:5 ipv6_dst:2001:db8::/32 set_nexthop_id(nexthop_id:3)",
    )
    s.send(1, to_router(v4("10.2.0.9")), {2: Ether(src=RIF2, dst=HOP2) / v4("10.2.0.9", 63)})
    s.send(1, to_router(v4("10.2.3.9")), {3: Ether(src=RIF3, dst=HOP3) / v4("10.2.3.9", 63)})
    s.send(1, to_router(v6("2001:db8:1::9")), {3: Ether(src=RIF3, dst=HOP3) / v6("2001:db8:1::9", 63)})
    ping = IPv6(src="2001:db8:ff::1", dst="2001:db8::1") / ICMPv6EchoRequest(id=1, data=b"abc")
    pinged = IPv6(src="2001:db8:ff::1", dst="2001:db8::1", hlim=63) / ICMPv6EchoRequest(id=1, data=b"abc")
    s.send(1, to_router(ping), {3: Ether(src=RIF3, dst=HOP3) / pinged})

    s.title("Dropped: no route, not for the router, TTL 1, a loopback source, a multicast destination.")
    s.send(1, to_router(v4("11.0.0.1")))
    s.send(1, Ether(src=HOST, dst=HOP2) / v4("10.2.0.9"))
    s.send(1, to_router(v4("10.2.0.9", 1)))
    s.send(1, to_router(IP(src="127.0.0.1", dst="10.2.0.9") / UDP() / DATA))
    s.send(1, to_router(v6("ff02::1")))

    s.title("A weighted group: both members leave by port 2, the flow decides which neighbour gets it.")
    for number in (21, 22):
        s.do(
            f"add neighbor_table router_interface_id:2 neighbor_id:fe80::{number} set_dst_mac(dst_mac:02:00:00:00:00:{number})",
            f"add nexthop_table nexthop_id:{number} set_ip_nexthop(router_interface_id:2, neighbor_id:fe80::{number})",
            f"member wcmp_group_selector {number} set_nexthop_id(nexthop_id:{number})",
        )
    s.do(
        "group wcmp_group_selector 20 21:1 22:3",
        "add wcmp_group_table wcmp_group_id:20 group(20)",
        "add ipv4_table vrf_id:5 ipv4_dst:10.20.0.0/16 set_wcmp_group_id(wcmp_group_id:20)",
    )
    wanted = bytes(Ether(src=RIF2, dst="02:00:00:00:00:20") / v4("10.20.0.1", 63)).hex()
    s.send_any(1, to_router(v4("10.20.0.1")), 2, wanted[:11] + "*" + wanted[12:])


def tunnels(s: Script) -> None:
    s.title("IPv4 in GRE over IPv6 on the way out.")
    s.do(
        "add tunnel_table tunnel_id:6 "
        "mark_for_p2p_tunnel_encap(encap_src_ip:2001:db8:a::1, encap_dst_ip:2001:db8:b::1, router_interface_id:3)",
        f"add neighbor_table router_interface_id:3 neighbor_id:2001:db8:b::1 set_dst_mac(dst_mac:{HOP3})",
        "add nexthop_table nexthop_id:60 set_p2p_tunnel_encap_nexthop(tunnel_id:6)",
        "add ipv4_table vrf_id:5 ipv4_dst:10.60.0.0/16 set_nexthop_id(nexthop_id:60)",
    )
    outer = IPv6(src="2001:db8:a::1", dst="2001:db8:b::1", nh=47, hlim=63, tc=0xB8) / GRE(proto=0x0800)
    s.send(
        1,
        to_router(v4("10.60.0.1", tos=0xB8)),
        {3: Ether(src=RIF3, dst=HOP3) / outer / v4("10.60.0.1", 63, tos=0xB8)},
    )
    s.title("IPv4 in IPv6 on the way in: the outer header goes, the inner packet is routed.")
    s.do(
        "add ipv6_tunnel_termination_table 1 dst_ipv6:2001:db8:c::1&&&0xffffffffffffffffffffffffffffffff "
        "src_ipv6:0&&&0 mark_for_tunnel_decap_and_set_vrf(vrf_id:5)"
    )
    arriving = IPv6(src="2001:db8:d::1", dst="2001:db8:c::1", nh=4) / v4("10.2.0.9")
    s.send(1, to_router(arriving), {2: Ether(src=RIF2, dst=HOP2) / v4("10.2.0.9", 63)})


def acl(s: Script) -> None:
    s.title("ARP is trapped: the controller gets it through a clone session, nobody else.")
    s.do(
        "mc_mgrp_create 100",
        "mc_node_create 1 510",
        "mc_node_associate 100 0",
        "mirroring_add_mc 255 100",
        "add ingress_clone_table 1 marked_to_copy:1 marked_to_mirror:0 ingress_clone(clone_session:255)",
        "add acl_ingress_table 10 ether_type:0x0806&&&0xffff acl_trap(qos_queue:1)",
    )
    ask = Ether(src=HOST, dst="ff:ff:ff:ff:ff:ff") / ARP(hwsrc=HOST, psrc="10.1.0.1", pdst="10.1.0.254")
    s.send(1, ask, {510: ask})

    s.title("ICMP is copied to the controller and forwarded.")
    s.do("add acl_ingress_table 9 is_ipv4:1 ip_protocol:1&&&0xff acl_copy(qos_queue:2)")

    def ping(ttl: int):
        return IP(src="10.1.0.1", dst="10.2.0.9", ttl=ttl) / ICMP(id=7, seq=1) / DATA

    s.send(1, to_router(ping(64)), {2: Ether(src=RIF2, dst=HOP2) / ping(63), 510: to_router(ping(64))})

    s.title("TCP to port 23 is dropped.")
    s.do("add acl_ingress_table 8 is_ip:1 ip_protocol:6&&&0xff l4_dst_port:23&&&0xffff acl_drop()")
    s.send(1, to_router(IP(src="10.1.0.1", dst="10.2.0.9") / TCP(dport=23)))

    s.title("Packet-out: straight to a port, or submitted to the ingress pipeline.")
    frame = Ether(src=ROUTER, dst=HOST) / ARP(op=2, hwsrc=ROUTER, psrc="10.1.0.254", hwdst=HOST, pdst="10.1.0.1")
    s.send(510, packet_out(1) + bytes(frame), {1: frame})
    s.send(510, packet_out(0, 1) + bytes(to_router(v4("10.2.3.9"))), {3: Ether(src=RIF3, dst=HOP3) / v4("10.2.3.9", 63)})


def vlans(s: Script) -> None:
    s.title("A tagged packet is dropped while vlan checks are on.")
    tagged = Ether(src=HOST, dst=ROUTER) / Dot1Q(vlan=10) / v4("10.2.0.9")
    s.send(1, tagged)
    s.title("With the checks off it is routed, untagged to port 2 and in vlan 44 to port 4.")
    s.do(
        "add disable_vlan_checks_table 1 dummy_match:0&&&0 disable_vlan_checks()",
        f"add router_interface_table router_interface_id:4 set_port_and_src_mac_and_vlan_id(port:4, src_mac:{RIF2}, vlan_id:44)",
        f"add neighbor_table router_interface_id:4 neighbor_id:fe80::4 set_dst_mac(dst_mac:{HOP2})",
        "add nexthop_table nexthop_id:4 set_ip_nexthop(router_interface_id:4, neighbor_id:fe80::4)",
        "add ipv4_table vrf_id:5 ipv4_dst:10.4.0.0/16 set_nexthop_id(nexthop_id:4)",
    )
    s.send(1, tagged, {2: Ether(src=RIF2, dst=HOP2) / v4("10.2.0.9", 63)})
    tagged = Ether(src=HOST, dst=ROUTER) / Dot1Q(vlan=10) / v4("10.4.0.9")
    s.send(1, tagged, {4: Ether(src=RIF2, dst=HOP2) / Dot1Q(vlan=44) / v4("10.4.0.9", 63)})


def multicast(s: Script) -> None:
    s.title("Replication: a copy for each replica, with the source address of its router interface.")
    s.do(
        "add ipv4_multicast_table vrf_id:5 ipv4_dst:10.9.9.9 set_multicast_group_id(multicast_group_id:9)",
        "add ipv4_multicast_table vrf_id:5 ipv4_dst:232.1.2.3 set_multicast_group_id(multicast_group_id:9)",
        "mc_mgrp_create 9",
        "mc_node_create 11 2",
        "mc_node_create 12 3",
        "mc_node_associate 9 1",
        "mc_node_associate 9 2",
        f"add multicast_router_interface_table multicast_replica_port:2 multicast_replica_instance:11 "
        f"set_multicast_src_mac(src_mac:{RIF2})",
        f"add multicast_router_interface_table multicast_replica_port:3 multicast_replica_instance:12 "
        f"set_multicast_src_mac(src_mac:{RIF3})",
    )
    replicas = {port: Ether(src=smac, dst=ROUTER) / v4("10.9.9.9", 63) for port, smac in ((2, RIF2), (3, RIF3))}
    s.send(1, to_router(v4("10.9.9.9")), replicas)
    s.title("This version of the program drops true multicast addresses as martians: `mark_to_drop` clears the group, too.")
    s.send(1, to_router(v4("232.1.2.3")))


def mirror(s: Script) -> None:
    s.title("A mirrored packet reaches the collector in IPFIX over UDP over IPv6, in vlan 9 (vlan checks are off by now).")
    s.do(
        "mc_mgrp_create 101",
        "mc_node_create 2 4",
        "mc_node_associate 101 3",
        "mirroring_add_mc 300 101",
        "add ingress_clone_table 1 marked_to_copy:0 marked_to_mirror:1 mirror_egress_port:4 ingress_clone(clone_session:300)",
        "add mirror_session_table mirror_session_id:1 mirror_with_vlan_tag_and_ipfix_encapsulation(monitor_port:4, "
        f"monitor_failover_port:3, mirror_encap_src_mac:{ROUTER}, mirror_encap_dst_mac:{COLLECTOR}, mirror_encap_vlan_id:9, "
        "mirror_encap_dst_ip:2001:db8:e::2, mirror_encap_src_ip:2001:db8:e::1, mirror_encap_udp_src_port:1111, "
        "mirror_encap_udp_dst_port:4739)",
        "add acl_ingress_table 20 is_ipv4:1 dst_ip:10.2.0.66&&&0xffffffff acl_mirror(mirror_session_id:1)",
    )
    frame = to_router(v4("10.2.0.66"))
    copy = (
        Ether(src=ROUTER, dst=COLLECTOR)
        / Dot1Q(vlan=9)
        / IPv6(src="2001:db8:e::1", dst="2001:db8:e::2", hlim=16)
        / UDP(sport=1111, dport=4739, chksum=0)
        / Raw(bytes(16 + 28) + bytes(frame))
    )
    s.send(1, frame, {2: Ether(src=RIF2, dst=HOP2) / v4("10.2.0.66", 63), 4: copy})


def redirect(s: Script) -> None:
    s.title("An ACL entry sends what matches to another next hop than the route's.")
    s.do(
        "add acl_ingress_mirror_and_redirect_table 1 is_ipv4:1 dst_ip:10.2.0.77&&&0xffffffff redirect_to_nexthop(nexthop_id:3)"
    )
    s.send(1, to_router(v4("10.2.0.77")), {3: Ether(src=RIF3, dst=HOP3) / v4("10.2.0.77", 63)})


def scripts() -> dict[str, Script]:
    all_scripts = {}
    for name, parts in {
        "middleblock": (next_hops, routing, tunnels, acl, vlans, multicast, mirror, redirect),
        "fabric": (next_hops, routing, tunnels, acl, vlans, multicast, mirror),
    }.items():
        s = all_scripts[f"pins_{name}"] = Script(f"pins/pins_{name}.p4", __doc__)
        for part in parts:
            part(s)

    s = all_scripts["pins_wbb"] = Script(
        "pins/pins_wbb.p4",
        "The WBB program parses nothing: frames pass as they came, to port 0, unless the one ACL copies or traps them.",
    )
    ask = Ether(src=HOST, dst="ff:ff:ff:ff:ff:ff") / ARP(hwsrc=HOST, psrc="10.1.0.1", pdst="10.1.0.254")
    s.do("mirroring_add 255 510")
    s.send(1, ask, {0: ask})
    s.title("No header is ever valid, so an entry for IPv4 matches nothing, and TTL is 0 for every frame.")
    s.do("add acl_wbb_ingress_table 2 is_ipv4:1 ttl:0&&&0xff acl_wbb_ingress_trap()")
    s.send(1, to_router(v4("10.2.0.9", 1)), {0: to_router(v4("10.2.0.9", 1))})
    s.do("add acl_wbb_ingress_table 1 ttl:0&&&0xff acl_wbb_ingress_copy()")
    s.send(1, ask, {0: ask, 510: ask})
    s.do("add acl_wbb_ingress_table 3 is_ipv4:0 is_ipv6:0 acl_wbb_ingress_trap()")
    s.send(1, ask, {510: ask})
    return all_scripts
