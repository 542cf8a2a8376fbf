// A layer-4 load balancer: one virtual address, many servers, chosen by the flow's hash.
//
// `virtual_service` maps a virtual address to a group of an action selector; members rewrite the destination. Packets of
// one flow reach one server for as long as the group does not change.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/headers.p4>

// Zero in packets without ports: ICMP, fragments.
struct metadata_t {
    bit<16> srcPort;
    bit<16> dstPort;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ports_t    ports;
}

#include <p4lib/v1model_ipv4.p4>

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
        transition select(hdr.ipv4.fragOffset, hdr.ipv4.protocol) {
            (0, IP_PROTO_TCP): ports;
            (0, IP_PROTO_UDP): ports;
            default: accept;
        }
    }
    state ports {
        packet.extract(hdr.ports);
        meta.srcPort = hdr.ports.srcPort;
        meta.dstPort = hdr.ports.dstPort;
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() {
        mark_to_drop(std);
    }

    action to_server(bit<32> ip, bit<48> mac, bit<9> port) {
        hdr.ipv4.dstAddr = ip;
        hdr.ethernet.dstAddr = mac;
        std.egress_spec = port;
    }

    action_selector(HashAlgorithm.crc16, 32w1024, 32w16) servers;

    table virtual_service {
        key = {
            hdr.ipv4.dstAddr: exact;
            hdr.ipv4.srcAddr: selector;
            hdr.ipv4.protocol: selector;
            meta.srcPort: selector;
            meta.dstPort: selector;
        }
        actions = { to_server; drop; }
        default_action = drop();
        implementation = servers;
        size = 1024;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            virtual_service.apply();
        } else {
            drop();
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), UpdateIpv4Checksum(), EmitHeaders()) main;
