// Static network address and port translation, one of the functions measured in section V of "P4rt-OVS" (CNSM 2020).
//
// `napt` has new addresses and ports for a flow, which is known by protocol, addresses and ports; packets of other flows are
// dropped. Checksums of IPv4, TCP and UDP are adjusted for the change, none is computed anew.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dstAddr;
    bit<48> srcAddr;
    bit<16> etherType;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  diffserv;
    bit<16> totalLen;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragOffset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> hdrChecksum;
    bit<32> srcAddr;
    bit<32> dstAddr;
}

// The first four bytes of TCP and UDP.
header ports_t {
    bit<16> srcPort;
    bit<16> dstPort;
}

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

struct metadata_t {
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ports_t    ports;
    tcp_rest_t tcp;
    udp_rest_t udp;
}

// A checksum after a change: RFC 1624, equation 3, with the words' complements already added up in `change`.
bit<16> adjusted(in bit<16> checksum, in bit<32> change) {
    bit<32> sum = (bit<32>)(~checksum) + change;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return ~sum[15:0];
}

// What replacing one address by another adds.
bit<32> address_change(in bit<32> before, in bit<32> after) {
    return (bit<32>)(~before[31:16]) + (bit<32>)(~before[15:0]) + (bit<32>)after[31:16] + (bit<32>)after[15:0];
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragOffset, hdr.ipv4.protocol) {
            (5, 0, 6): tcp;
            (5, 0, 17): udp;
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

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() {
        mark_to_drop(std);
    }

    action translate(bit<32> srcAddr, bit<32> dstAddr, bit<16> srcPort, bit<16> dstPort, bit<9> port) {
        bit<32> addresses = address_change(hdr.ipv4.srcAddr, srcAddr) + address_change(hdr.ipv4.dstAddr, dstAddr);
        bit<32> ports = (bit<32>)(~hdr.ports.srcPort) + (bit<32>)(~hdr.ports.dstPort) + (bit<32>)srcPort + (bit<32>)dstPort;
        hdr.ipv4.srcAddr = srcAddr;
        hdr.ipv4.dstAddr = dstAddr;
        hdr.ports.srcPort = srcPort;
        hdr.ports.dstPort = dstPort;
        hdr.ipv4.hdrChecksum = adjusted(hdr.ipv4.hdrChecksum, addresses);
        if (hdr.tcp.isValid()) {
            hdr.tcp.checksum = adjusted(hdr.tcp.checksum, addresses + ports);
        }
        // 0: the sender has computed none.
        if (hdr.udp.isValid() && hdr.udp.checksum != 0) {
            hdr.udp.checksum = adjusted(hdr.udp.checksum, addresses + ports);
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

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ports);
        packet.emit(hdr.tcp);
        packet.emit(hdr.udp);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
