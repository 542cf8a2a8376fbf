// A bridge with an access list between ports 1 and 2.
//
// The list matches addresses under a mask (`ternary`), a port range (`range`), the protocol or anything (`optional`); the
// entry with the highest priority decides. TTL is decremented, and the header checksum is adjusted incrementally (RFC
// 1624), without reading the rest of the header.

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

struct metadata_t {
    bit<16> dstPort;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ports_t    ports;
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
        transition select(hdr.ipv4.fragOffset, hdr.ipv4.protocol) {
            (0, 6): ports;
            (0, 17): ports;
            default: accept;
        }
    }
    state ports {
        packet.extract(hdr.ports);
        transition accept;
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets) rule_counter;

    action permit() {
    }

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

    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m'), where m is the word that holds TTL and protocol.
    action decrement_ttl() {
        bit<16> before = hdr.ipv4.ttl ++ hdr.ipv4.protocol;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        bit<16> after = hdr.ipv4.ttl ++ hdr.ipv4.protocol;
        bit<32> sum = (bit<32>)(~hdr.ipv4.hdrChecksum) + (bit<32>)(~before) + (bit<32>)after;
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        hdr.ipv4.hdrChecksum = ~sum[15:0];
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
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
