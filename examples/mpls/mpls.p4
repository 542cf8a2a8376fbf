// An MPLS label switching router with an edge (RFC 3031, RFC 3032).
//
// `fec` pushes one label or two on IPv4 packets; `label` swaps the top label, pops it, or pops it and pushes another; the
// last pop gives the IPv4 packet back. Up to four labels.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dstAddr;
    bit<48> srcAddr;
    bit<16> etherType;
}

header mpls_t {
    bit<20> label;
    bit<3>  tc;
    bit<1>  bos;
    bit<8>  ttl;
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

struct metadata_t {
}

struct headers_t {
    ethernet_t ethernet;
    mpls_t[4]  mpls;
    ipv4_t     ipv4;
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            0x8847: mpls;
            0x0800: ipv4;
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

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() {
        mark_to_drop(std);
    }

    action push_one(bit<20> label, bit<9> port) {
        hdr.mpls.push_front(1);
        hdr.mpls[0].setValid();
        hdr.mpls[0].label = label;
        hdr.mpls[0].tc = 0;
        hdr.mpls[0].bos = 1;
        hdr.mpls[0].ttl = hdr.ipv4.ttl - 1;
        hdr.ethernet.etherType = 0x8847;
        std.egress_spec = port;
    }

    action push_two(bit<20> outer, bit<20> inner, bit<9> port) {
        push_one(inner, port);
        hdr.mpls.push_front(1);
        hdr.mpls[0].setValid();
        hdr.mpls[0].label = outer;
        hdr.mpls[0].tc = 0;
        hdr.mpls[0].bos = 0;
        hdr.mpls[0].ttl = hdr.mpls[1].ttl;
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
            hdr.ethernet.etherType = 0x0800;
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

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.totalLen, hdr.ipv4.identification, hdr.ipv4.flags,
              hdr.ipv4.fragOffset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.srcAddr, hdr.ipv4.dstAddr },
            hdr.ipv4.hdrChecksum, HashAlgorithm.csum16);
    }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.mpls);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
