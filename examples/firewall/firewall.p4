// A stateful firewall: connections may be opened from inside only.
//
// Port 1 is inside, port 2 outside. A TCP segment with SYN from inside marks its flow in a Bloom filter of two registers; a
// segment from outside passes when the flow in the other direction is marked. Both directions of a flow hash alike.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/connection.p4>

const bit<32> FILTER_BITS = 4096;

struct metadata_t { }

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    tcp_t      tcp;
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
        transition select(hdr.ipv4.protocol) {
            IP_PROTO_TCP: tcp;
            default: accept;
        }
    }
    state tcp {
        packet.extract(hdr.tcp);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<1>>(FILTER_BITS) filter_1;
    register<bit<1>>(FILTER_BITS) filter_2;

    apply {
        std.egress_spec = std.ingress_port == 1 ? 9w2 : 9w1;
        if (hdr.tcp.isValid()) {
            bool inside = std.ingress_port == 1;
            connection_t flow = connection_of(hdr.ipv4, hdr.tcp, inside);
            bit<32> at_1;
            bit<32> at_2;
            hash(at_1, HashAlgorithm.crc16, 32w0, flow, FILTER_BITS);
            hash(at_2, HashAlgorithm.crc32, 32w0, flow, FILTER_BITS);
            if (inside) {
                if (hdr.tcp.flags & TCP_SYN != 0) {
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

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
