// Source routing: the packet carries its path as a stack of ports.
//
// Each hop takes the first element off and sends the packet to the port it names; the element with `bos` set is the last,
// and the payload behind it is IPv4 again.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/headers.p4>

header source_route_t {
    bit<1>  bos;
    bit<15> port;
}

struct metadata_t { }

struct headers_t {
    ethernet_t        ethernet;
    source_route_t[9] source_route;
    ipv4_t            ipv4;
}

#include <p4lib/v1model_ipv4.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            0x1234: source_route;
            default: accept;
        }
    }
    state source_route {
        packet.extract(hdr.source_route.next);
        transition select(hdr.source_route.last.bos) {
            1: ipv4;
            default: source_route;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (hdr.source_route[0].isValid() && std.parser_error == error.NoError) {
            if (hdr.source_route[0].bos == 1) {
                hdr.ethernet.etherType = ETHERTYPE_IPV4;
            }
            std.egress_spec = (bit<9>)hdr.source_route[0].port;
            hdr.source_route.pop_front(1);
            if (hdr.ipv4.isValid()) {
                hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            }
        } else {
            mark_to_drop(std);
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), UpdateIpv4Checksum(), EmitHeaders()) main;
