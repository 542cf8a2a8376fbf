// An MPLS label switching router with an edge (RFC 3031, RFC 3032).
//
// `fec` pushes one label or two on IPv4 packets; `label` swaps the top label, pops it, or pops it and pushes another; the
// last pop gives the IPv4 packet back. Up to four labels.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/tunnels.p4>

struct metadata_t { }

struct headers_t {
    ethernet_t ethernet;
    mpls_t[4]  mpls;
    ipv4_t     ipv4;
}

#include <p4lib/v1model_ipv4.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            ETHERTYPE_MPLS: mpls;
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }
    state mpls {
        packet.extract(hdr.mpls.next);
        transition select(hdr.mpls.last.bos) {
            0: mpls;
            1: ipv4;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() {
        mark_to_drop(std);
    }

    action push_one(bit<20> label, bit<9> port) {
        hdr.mpls.push_front(1);
        mpls_push(hdr.mpls[0], label, 0, 1, hdr.ipv4.ttl - 1);
        hdr.ethernet.etherType = ETHERTYPE_MPLS;
        std.egress_spec = port;
    }

    action push_two(bit<20> outer, bit<20> inner, bit<9> port) {
        push_one(inner, port);
        hdr.mpls.push_front(1);
        mpls_push(hdr.mpls[0], outer, 0, 0, hdr.mpls[1].ttl);
    }

    table fec {
        key = { hdr.ipv4.dstAddr: lpm; }
        actions = { push_one; push_two; drop; }
        default_action = drop();
        size = 65536;
    }

    action swap(bit<20> label, bit<9> port) {
        hdr.mpls[0].label = label;
        hdr.mpls[0].ttl = hdr.mpls[0].ttl - 1;
        std.egress_spec = port;
    }

    action pop(bit<9> port) {
        bit<8> ttl = hdr.mpls[0].ttl - 1;
        hdr.mpls.pop_front(1);
        if (hdr.mpls[0].isValid()) {
            hdr.mpls[0].ttl = ttl;
        } else {
            hdr.ethernet.etherType = ETHERTYPE_IPV4;
            hdr.ipv4.ttl = ttl;
        }
        std.egress_spec = port;
    }

    table label {
        key = { hdr.mpls[0].label: exact; }
        actions = { swap; pop; drop; }
        default_action = drop();
        size = 65536;
    }

    apply {
        if (hdr.mpls[0].isValid()) {
            if (hdr.mpls[0].ttl <= 1) {
                drop();
            } else {
                label.apply();
            }
        } else if (hdr.ipv4.isValid() && hdr.ipv4.ttl > 1) {
            fec.apply();
        } else {
            drop();
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), UpdateIpv4Checksum(), EmitHeaders()) main;
