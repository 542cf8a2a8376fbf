// A bridge with an access list between ports 1 and 2.
//
// The list matches addresses under a mask (`ternary`), a port range (`range`), the protocol or anything (`optional`); the
// entry with the highest priority decides. TTL is decremented, and the header checksum is adjusted incrementally (RFC
// 1624), without reading the rest of the header.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/checksum.p4>

struct metadata_t {
    bit<16> dstPort;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ports_t    ports;
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
        transition select(hdr.ipv4.fragOffset, hdr.ipv4.protocol) {
            (0, IP_PROTO_TCP): ports;
            (0, IP_PROTO_UDP): ports;
            default: accept;
        }
    }
    state ports {
        packet.extract(hdr.ports);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets) rule_counter;

    action permit() { }

    action deny() {
        mark_to_drop(std);
    }

    action redirect(bit<9> port) {
        std.egress_spec = port;
    }

    table acl {
        key = {
            hdr.ipv4.srcAddr: ternary;
            hdr.ipv4.dstAddr: ternary;
            hdr.ipv4.protocol: optional;
            meta.dstPort: range @name("dstPort");
        }
        actions = { permit; deny; redirect; }
        default_action = deny();
        counters = rule_counter;
        size = 4096;
    }

    action bridge(bit<9> port) {
        std.egress_spec = port;
    }

    table cable {
        key = { std.ingress_port: exact; }
        actions = { bridge; deny; }
        const default_action = deny();
        const entries = {
            1: bridge(2);
            2: bridge(1);
        }
    }

    action decrement_ttl() {
        ipv4_decrement_ttl(hdr.ipv4);
    }

    apply {
        cable.apply();
        if (hdr.ipv4.isValid()) {
            if (hdr.ports.isValid()) {
                meta.dstPort = hdr.ports.dstPort;
            }
            if (hdr.ipv4.ttl <= 1) {
                deny();
            } else {
                switch (acl.apply().action_run) {
                    deny: { exit; }
                    default: { decrement_ttl(); }
                }
            }
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
