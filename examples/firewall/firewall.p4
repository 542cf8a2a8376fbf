// A stateful firewall: connections may be opened from inside only.
//
// Port 1 is inside, port 2 outside. A TCP segment with SYN from inside marks its flow in a Bloom filter of two registers; a
// segment from outside passes when the flow in the other direction is marked. Both directions of a flow hash alike.

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
    bit<3>  reserved;
    bit<9>  flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

const bit<32> FILTER_BITS = 4096;

struct metadata_t {
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    tcp_t      tcp;
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
        transition select(hdr.ipv4.protocol) {
            6: tcp;
            default: accept;
        }
    }
    state tcp {
        packet.extract(hdr.tcp);
        transition accept;
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<1>>(FILTER_BITS) filter_1;
    register<bit<1>>(FILTER_BITS) filter_2;

    apply {
        std.egress_spec = std.ingress_port == 1 ? 9w2 : 9w1;
        if (hdr.tcp.isValid()) {
            bool inside = std.ingress_port == 1;
            bit<32> local_ip = inside ? hdr.ipv4.srcAddr : hdr.ipv4.dstAddr;
            bit<32> remote_ip = inside ? hdr.ipv4.dstAddr : hdr.ipv4.srcAddr;
            bit<16> local_port = inside ? hdr.tcp.srcPort : hdr.tcp.dstPort;
            bit<16> remote_port = inside ? hdr.tcp.dstPort : hdr.tcp.srcPort;
            bit<32> at_1;
            bit<32> at_2;
            hash(at_1, HashAlgorithm.crc16, 32w0, { local_ip, remote_ip, local_port, remote_port }, FILTER_BITS);
            hash(at_2, HashAlgorithm.crc32, 32w0, { local_ip, remote_ip, local_port, remote_port }, FILTER_BITS);
            if (inside) {
                if (hdr.tcp.flags & 0x002 != 0) {
                    filter_1.write(at_1, 1);
                    filter_2.write(at_2, 1);
                }
            } else {
                bit<1> seen_1;
                bit<1> seen_2;
                filter_1.read(seen_1, at_1);
                filter_2.read(seen_2, at_2);
                if (seen_1 & seen_2 == 0) {
                    mark_to_drop(std);
                }
            }
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
        packet.emit(hdr.tcp);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
