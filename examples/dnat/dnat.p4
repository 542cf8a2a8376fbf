// Static destination NAT, one of the functions measured in section V of "P4rt-OVS" (CNSM 2020).
//
// A packet's destination is replaced by what `dnat` has for it; other packets pass as they are. Checksums of IPv4, TCP and UDP
// are adjusted for the change, none is computed anew.

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

header tcp_t {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<32> seq;
    bit<32> ack;
    bit<4>  dataOffset;
    bit<4>  reserved;
    bit<8>  flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

header udp_t {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<16> length;
    bit<16> checksum;
}

struct metadata_t {
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    tcp_t      tcp;
    udp_t      udp;
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
        packet.extract(hdr.tcp);
        transition accept;
    }
    state udp {
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

    action translate(bit<32> dstAddr) {
        bit<32> change = address_change(hdr.ipv4.dstAddr, dstAddr);
        hdr.ipv4.dstAddr = dstAddr;
        hdr.ipv4.hdrChecksum = adjusted(hdr.ipv4.hdrChecksum, change);
        if (hdr.tcp.isValid()) {
            hdr.tcp.checksum = adjusted(hdr.tcp.checksum, change);
        }
        // 0: the sender has computed none.
        if (hdr.udp.isValid() && hdr.udp.checksum != 0) {
            hdr.udp.checksum = adjusted(hdr.udp.checksum, change);
        }
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
        packet.emit(hdr.tcp);
        packet.emit(hdr.udp);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
