"""Traffic for SONiC's DASH pipeline: an appliance between the VMs of a cloud and their virtual networks, VXLAN on both sides.

Port 1 is the network, port 2 leads to the peers of the underlay. One ENI (a VM's interface) in virtual network 1, peered with 2.
"""

import ipaddress

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

from script import Script

VIP, VM_HOST, PEER_HOST = "172.16.1.100", "172.16.1.1", "172.16.1.20"
APPLIANCE, GATEWAY = "02:00:00:00:00:aa", "02:00:00:00:00:bb"
VM, PEER, OUTER = "f4:93:9f:ef:c4:7e", "02:00:00:00:00:50", "02:00:00:00:00:cc"
DATA = Raw(b"sluice carries DASH")
OUTBOUND_VNI, VM_VNI, VNET2_VNI = 60, 4321, 9000


def number(address: str) -> str:
    """An address as the 128-bit number that the pipeline's keys hold for both families."""
    return hex(int(ipaddress.ip_address(address)))


def vxlan(src: str, dst: str, vni: int, inner, *, smac: str = OUTER, dmac: str = APPLIANCE):
    """A frame as the underlay brings it."""
    return Ether(src=smac, dst=dmac) / IP(src=src, dst=dst) / UDP(sport=0, dport=4789, chksum=0) / VXLAN(flags=8, vni=vni) / inner


def sent(dst: str, vni: int, inner):
    """A frame as the appliance makes it: its own addresses, identification 1, TTL 64."""
    outer = Ether(src=APPLIANCE, dst=GATEWAY) / IP(src=VIP, dst=dst, id=1, ttl=64)
    return outer / UDP(sport=0, dport=4789, chksum=0) / VXLAN(flags=8, vni=vni) / inner


def eni(s: Script) -> None:
    s.title("The appliance, its address, one ENI with an ACL group for what comes in, and the underlay's routes.")
    groups = {
        f"{direction}_v{family}_stage{stage}_dash_acl_group_id": 5 if (direction, family, stage) == ("inbound", 4, 1) else 0
        for direction in ("inbound", "outbound")
        for family in (4, 6)
        for stage in range(1, 6)
    }
    values = {
        "cps": 1000,
        "pps": 1000,
        "flows": 1000,
        "admin_state": 1,
        "vm_underlay_dip": VM_HOST,
        "vm_vni": VM_VNI,
        "vnet_id": 1,
        "pl_sip": 0,
        "pl_sip_mask": 0,
        "pl_underlay_sip": 0,
        "v4_meter_policy_id": 0,
        "v6_meter_policy_id": 0,
        "dash_tunnel_dscp_mode": 0,
        "dscp": 0,
        **groups,
        "disable_fast_path_icmp_flow_redirection": 0,
    }
    arguments = ", ".join(f"{name}:{value}" for name, value in values.items())
    s.do(
        f"add vip hdr.u0_ipv4.dst_addr:{VIP} accept()",
        f"add appliance 1 meta.appliance_id:0&&&0 set_appliance(neighbor_mac:{GATEWAY}, mac:{APPLIANCE})",
        f"add direction_lookup hdr.u0_vxlan.vni:{OUTBOUND_VNI} set_outbound_direction()",
        f"add eni_ether_address_map meta.eni_addr:{VM} set_eni(eni_id:7)",
        f"add eni meta.eni_id:7 set_eni_attrs({arguments})",
        "add underlay_routing meta.dst_ip_addr:0/0 pkt_act(packet_action:1, next_hop_id:1)",
        f"add underlay_routing meta.dst_ip_addr:{number('172.16.1.16')}/124 pkt_act(packet_action:1, next_hop_id:2)",
    )


def outbound(s: Script) -> None:
    s.title("Outbound: the VM's packet is unpacked, routed to virtual network 2, mapped to the peer's host, and packed again.")
    s.do(
        f"add routing meta.eni_id:7 meta.is_overlay_ip_v6:0 meta.dst_ip_addr:{number('10.2.0.0')}/112 "
        "route_vnet(dst_vnet_id:2, meter_policy_en:0, meter_class:0)",
        f"add routing meta.eni_id:7 meta.is_overlay_ip_v6:1 meta.dst_ip_addr:2001:db8:2::/48 "
        "route_vnet(dst_vnet_id:2, meter_policy_en:0, meter_class:3)",
        f"add routing meta.eni_id:7 meta.is_overlay_ip_v6:0 meta.dst_ip_addr:{number('10.3.0.0')}/112 "
        "route_direct(meter_policy_en:0, meter_class:0)",
    )
    for six, address in ((0, "10.2.0.50"), (1, "2001:db8:2::50")):
        s.do(
            f"add ca_to_pa meta.dst_vnet_id:2 meta.is_lkup_dst_ip_v6:{six} meta.lkup_dst_ip_addr:{number(address)} "
            f"set_tunnel_mapping(underlay_dip:{PEER_HOST}, overlay_dmac:{PEER}, use_dst_vnet_vni:1, meter_class:0, "
            "meter_class_override:0)"
        )
    s.do(
        f"add vnet meta.vnet_id:2 set_vnet_attrs(vni:{VNET2_VNI})",
        "add meter_bucket meta.eni_id:7 meta.meter_class:3 meter_bucket_action(meter_bucket_index:8)",
    )
    four = IP(src="10.1.0.1", dst="10.2.0.50") / UDP(sport=1000, dport=53) / DATA
    s.send(
        1,
        vxlan(VM_HOST, VIP, OUTBOUND_VNI, Ether(src=VM, dst=GATEWAY) / four),
        {2: sent(PEER_HOST, VNET2_VNI, Ether(src=VM, dst=PEER) / four)},
    )
    six = IPv6(src="2001:db8:1::1", dst="2001:db8:2::50") / TCP(sport=1000, dport=443) / DATA
    frame = vxlan(VM_HOST, VIP, OUTBOUND_VNI, Ether(src=VM, dst=GATEWAY) / six)
    s.send(1, frame, {2: sent(PEER_HOST, VNET2_VNI, Ether(src=VM, dst=PEER) / six)})
    s.do(f"check_counter meter_bucket_outbound(8) bytes == {len(frame)}")

    s.title("A direct route sends the VM's own frame on.")
    inner = Ether(src=VM, dst=GATEWAY) / IP(src="10.1.0.1", dst="10.3.0.1") / UDP(sport=1, dport=2) / DATA
    s.send(1, vxlan(VM_HOST, VIP, OUTBOUND_VNI, inner), {1: inner})

    s.title("Dropped: no route, no mapping, not our address, not our VM, ARP.")

    def bad(dst: str, vip: str = VIP, mac: str = VM):
        return vxlan(VM_HOST, vip, OUTBOUND_VNI, Ether(src=mac, dst=GATEWAY) / IP(src="10.1.0.1", dst=dst) / UDP() / DATA)

    s.send(1, bad("11.0.0.1"))
    s.send(1, bad("10.2.0.51"))
    s.send(1, bad("10.2.0.50", vip="172.16.1.101"))
    s.send(1, bad("10.2.0.50", mac=PEER))
    s.send(1, Ether(src=OUTER, dst="ff:ff:ff:ff:ff:ff") / ARP(pdst=VIP))


def inbound(s: Script) -> None:
    s.title("Inbound: the sending host must be known in virtual network 2; the ACL lets everything in but telnet.")
    s.do(
        f"add inbound_routing 1 meta.eni_id:7 hdr.u0_vxlan.vni:{VNET2_VNI} hdr.u0_ipv4.src_addr:172.16.1.0&&&255.255.255.0 "
        "tunnel_decap_pa_validate(src_vnet_id:2)",
        f"add pa_validation meta.vnet_id:2 hdr.u0_ipv4.src_addr:{PEER_HOST} permit()",
        "add acl_group meta.stage1_dash_acl_group_id:5 set_acl_group_attrs(ip_addr_family:0)",
        "add inbound.acl.stage1 1 meta.stage1_dash_acl_group_id:5 permit()",
        "add inbound.acl.stage1 10 meta.stage1_dash_acl_group_id:5 meta.ip_protocol:6 meta.dst_l4_port:23 deny()",
    )

    def inner(port: int):
        return Ether(src=PEER, dst=VM) / IP(src="10.2.0.50", dst="10.1.0.1") / TCP(sport=1000, dport=port) / DATA

    s.send(1, vxlan(PEER_HOST, VIP, VNET2_VNI, inner(80)), {1: sent(VM_HOST, VM_VNI, inner(80))})
    s.send(1, vxlan(PEER_HOST, VIP, VNET2_VNI, inner(23)))
    s.send(1, vxlan("172.16.1.21", VIP, VNET2_VNI, inner(80)))


def scripts() -> dict[str, Script]:
    s = Script("dash/dash-pipeline-v1model-bmv2.p4", __doc__)
    eni(s)
    outbound(s)
    inbound(s)
    return {"dash": s}
