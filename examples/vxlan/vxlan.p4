// A VXLAN tunnel end point (RFC 7348).
//
// Port 9 is the underlay; tunnels end at no other port, or tenants would choose their VNI. Tunnelled frames for this end point
// lose their outer headers and go to the tenant's port. Frames from tenant ports get a VNI by port and, by VNI and destination, a
// remote end point (`encap`) or a local port (`local`), whatever is in them.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/tunnels.p4>
#include <p4lib/v1model_checksum.p4>

const bit<9> UNDERLAY = 9;

struct metadata_t {
    bit<24> vni;
}

struct headers_t {
    ethernet_t outer_ethernet;
    ipv4_t     outer_ipv4;
    udp_t      outer_udp;
    vxlan_t    vxlan;
    ethernet_t ethernet;
}

#include <p4lib/v1model.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        transition select(std.ingress_port) {
            UNDERLAY: tunnel;
            default: frame;
        }
    }
    state frame {
        packet.extract(hdr.ethernet);
        transition accept;
    }
    state tunnel {
        ParseVxlanEthernet.apply(packet, hdr.outer_ethernet, hdr.outer_ipv4, hdr.outer_udp, hdr.vxlan, hdr.ethernet);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() {
        mark_to_drop(std);
    }

    action decap() {
        meta.vni = hdr.vxlan.vni;
        vxlan_pop(hdr.outer_ethernet, hdr.outer_ipv4, hdr.outer_udp, hdr.vxlan);
    }

    // The end point's own addresses.
    table own_address {
        key = { hdr.outer_ipv4.dstAddr: exact; }
        actions = { decap; drop; }
        default_action = drop();
        size = 64;
    }

    action tenant(bit<24> vni) {
        meta.vni = vni;
    }

    table tenant_port {
        key = { std.ingress_port: exact; }
        actions = { tenant; drop; }
        default_action = drop();
        size = 512;
    }

    action deliver(bit<9> port) {
        std.egress_spec = port;
    }

    table local {
        key = {
            meta.vni: exact;
            hdr.ethernet.dstAddr: exact;
        }
        actions = { deliver; NoAction; }
        default_action = NoAction();
        size = 65536;
    }

    action tunnel_to(bit<32> remote, bit<32> own, bit<48> dstMac, bit<48> srcMac, bit<9> port) {
        // Entropy for ECMP on the way (RFC 7348, section 5).
        bit<16> srcPort;
        hash(srcPort, HashAlgorithm.crc16, 16w49152,
             { hdr.ethernet.dstAddr, hdr.ethernet.srcAddr, hdr.ethernet.etherType }, 32w16384);
        // The frame behind VXLAN (8), UDP (8) and IPv4 (20).
        bit<16> length = (bit<16>)std.packet_length;
        ethernet_push(hdr.outer_ethernet, dstMac, srcMac, ETHERTYPE_IPV4);
        ipv4_push(hdr.outer_ipv4, IP_PROTO_UDP, own, remote, length + 36);
        udp_push(hdr.outer_udp, srcPort, UDP_PORT_VXLAN, length + 16);
        vxlan_push(hdr.vxlan, meta.vni);
        std.egress_spec = port;
    }

    table encap {
        key = {
            meta.vni: exact;
            hdr.ethernet.dstAddr: exact;
        }
        actions = { tunnel_to; drop; }
        default_action = drop();
        size = 65536;
    }

    apply {
        if (std.checksum_error != 0) {
            drop();
        } else if (hdr.vxlan.isValid()) {
            if (own_address.apply().hit && !local.apply().hit) {
                drop();
            }
        } else if (tenant_port.apply().hit) {
            if (!local.apply().hit) {
                encap.apply();
            }
        }
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_ipv4_checksum(hdr.vxlan.isValid(), hdr.outer_ipv4);
    }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_ipv4_checksum(hdr.outer_ipv4.isValid(), hdr.outer_ipv4);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), EmptyEgress(), MyComputeChecksum(), EmitHeaders()) main;
