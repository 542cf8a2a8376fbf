// Static destination NAT, one of the functions measured in section V of "P4rt-OVS" (CNSM 2020).
//
// A packet's destination is replaced by what `dnat` has for it; other packets pass as they are. Checksums of IPv4, TCP and UDP
// are adjusted for the change, none is computed anew.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/nat.p4>
#include <p4lib/parsers.p4>

struct metadata_t { }

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    tcp_t      tcp;
    udp_t      udp;
}

#include <p4lib/v1model.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        ParseIpv4Transport.apply(packet, hdr.ipv4, hdr.tcp, hdr.udp);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() {
        mark_to_drop(std);
    }

    action translate(bit<32> dstAddr) {
        bit<32> change = nat44_set_dst(hdr.ipv4, dstAddr);
        nat_transport(hdr.tcp, hdr.udp, change);
    }

    table dnat {
        key = { hdr.ipv4.dstAddr: exact; }
        actions = { translate; NoAction; }
        default_action = NoAction();
        size = 1048576;
    }

    action to_port(bit<9> port) {
        std.egress_spec = port;
    }

    // Where a port's frames go.
    table uplink {
        key = { std.ingress_port: exact; }
        actions = { to_port; drop; }
        default_action = drop();
        size = 512;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            dnat.apply();
        }
        uplink.apply();
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
