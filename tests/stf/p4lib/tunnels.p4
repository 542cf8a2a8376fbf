// Blocks of p4lib/tunnels.p4, by port: IPv4 from port 1 goes into GRE with a key, from port 2 into GTP-U with a PDU session
// container, from port 3 below an MPLS label, and frames from port 4 into VXLAN. What comes in a tunnel leaves it.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/checksum.p4>
#include <p4lib/tunnels.p4>

struct metadata_t { }

struct headers_t {
    ethernet_t         ethernet;
    mpls_t             mpls;
    ipv4_t             outer_ipv4;
    gre_t              gre;
    gre_key_t          gre_key;
    udp_t              udp;
    gtpu_t             gtpu;
    gtpu_options_t     gtpu_options;
    gtpu_pdu_session_t session;
    vxlan_t            vxlan;
    ipv4_t             ipv4;
    ethernet_t         frame;
}

#include <p4lib/v1model.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        transition select(std.ingress_port) {
            4: vxlan;
            5: gtpu;
            6: gre;
            default: plain;
        }
    }
    state plain {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        transition accept;
    }
    state vxlan {
        ParseVxlanEthernet.apply(packet, hdr.ethernet, hdr.outer_ipv4, hdr.udp, hdr.vxlan, hdr.frame);
        transition accept;
    }
    state gtpu {
        ParseGtpuIpv4.apply(packet, hdr.ethernet, hdr.outer_ipv4, hdr.udp, hdr.gtpu, hdr.gtpu_options, hdr.ipv4);
        transition accept;
    }
    state gre {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.outer_ipv4);
        packet.extract(hdr.gre);
        transition select(hdr.gre.keyPresent) {
            1: key;
            default: inner;
        }
    }
    state key {
        packet.extract(hdr.gre_key);
        transition inner;
    }
    state inner {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 9;
        if (std.parser_error != error.NoError) {
            mark_to_drop(std);
            exit;
        }
        bit<32> own = 0xc0000201;
        bit<32> remote = 0xc0000202;
        bit<16> length = (bit<16>)std.packet_length;
        if (std.ingress_port == 1) {
            gre_push(hdr.gre, ETHERTYPE_IPV4);
            gre_push_key(hdr.gre, hdr.gre_key, 0xabcd);
            ipv4_push(hdr.outer_ipv4, IP_PROTO_GRE, own, remote, hdr.ipv4.totalLen + 28);
        } else if (std.ingress_port == 2) {
            gtpu_push(hdr.gtpu, 0x11223344, hdr.ipv4.totalLen);
            gtpu_push_session(hdr.gtpu, hdr.gtpu_options, hdr.session, 1, 9);
            udp_push(hdr.udp, UDP_PORT_GTPU, UDP_PORT_GTPU, hdr.ipv4.totalLen + 24);
            ipv4_push(hdr.outer_ipv4, IP_PROTO_UDP, own, remote, hdr.ipv4.totalLen + 44);
        } else if (std.ingress_port == 3) {
            mpls_push(hdr.mpls, 1000, 5, 1, hdr.ipv4.ttl);
            hdr.ethernet.etherType = ETHERTYPE_MPLS;
        } else if (std.ingress_port == 4) {
            if (hdr.vxlan.isValid()) {
                vxlan_pop(hdr.ethernet, hdr.outer_ipv4, hdr.udp, hdr.vxlan);
            } else {
                ethernet_push(hdr.ethernet, 0x020000000022, 0x020000000021, ETHERTYPE_IPV4);
                ipv4_push(hdr.outer_ipv4, IP_PROTO_UDP, own, remote, length + 36);
                udp_push(hdr.udp, 50000, UDP_PORT_VXLAN, length + 16);
                vxlan_push(hdr.vxlan, 0x123456);
            }
        } else if (std.ingress_port == 5) {
            gtpu_pop(hdr.outer_ipv4, hdr.udp, hdr.gtpu, hdr.gtpu_options);
        } else {
            gre_pop(hdr.outer_ipv4, hdr.gre, hdr.gre_key);
        }
        if (hdr.outer_ipv4.isValid()) {
            hdr.outer_ipv4.hdrChecksum = ipv4_checksum(hdr.outer_ipv4);
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
