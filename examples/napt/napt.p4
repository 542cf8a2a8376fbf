// Static network address and port translation, one of the functions measured in section V of "P4rt-OVS" (CNSM 2020).
//
// `napt` has new addresses and ports for a flow, which is known by protocol, addresses and ports; packets of other flows are
// dropped. Checksums of IPv4, TCP and UDP are adjusted for the change, none is computed anew.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/nat.p4>

// What is behind them, up to the checksum.
header tcp_rest_t {
    bit<32> seq;
    bit<32> ack;
    bit<16> flags;
    bit<16> window;
    bit<16> checksum;
}

header udp_rest_t {
    bit<16> length;
    bit<16> checksum;
}

struct metadata_t { }

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ports_t    ports;
    tcp_rest_t tcp;
    udp_rest_t udp;
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
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragOffset, hdr.ipv4.protocol) {
            (5, 0, IP_PROTO_TCP): tcp;
            (5, 0, IP_PROTO_UDP): udp;
            default: accept;
        }
    }
    state tcp {
        packet.extract(hdr.ports);
        packet.extract(hdr.tcp);
        transition accept;
    }
    state udp {
        packet.extract(hdr.ports);
        packet.extract(hdr.udp);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() {
        mark_to_drop(std);
    }

    action translate(bit<32> srcAddr, bit<32> dstAddr, bit<16> srcPort, bit<16> dstPort, bit<9> port) {
        bit<32> change = nat44_set_both(hdr.ipv4, srcAddr, dstAddr) + nat_set_port(hdr.ports.srcPort, srcPort) +
            nat_set_port(hdr.ports.dstPort, dstPort);
        if (hdr.tcp.isValid()) {
            hdr.tcp.checksum = checksum_update(hdr.tcp.checksum, change);
        }
        if (hdr.udp.isValid()) {
            hdr.udp.checksum = checksum_update_udp(hdr.udp.checksum, change);
        }
        std.egress_spec = port;
    }

    table napt {
        key = {
            hdr.ipv4.protocol: exact;
            hdr.ipv4.srcAddr: exact;
            hdr.ipv4.dstAddr: exact;
            hdr.ports.srcPort: exact;
            hdr.ports.dstPort: exact;
        }
        actions = { translate; drop; }
        default_action = drop();
        size = 1048576;
    }

    apply {
        if (hdr.ports.isValid()) {
            napt.apply();
        } else {
            drop();
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
