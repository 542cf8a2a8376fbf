// An MPLS label edge router (RFC 3031), one of the functions measured in section V of "P4rt-OVS" (CNSM 2020).
//
// `ftn` (FEC to next hop label) chooses the label of a packet by the port it comes from and its destination and sends it into
// the MPLS network; `ilm` (incoming label map) takes the label off packets that come out of it. See `mpls` for a router in
// between.

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
    mpls_t     mpls;
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
        packet.extract(hdr.mpls);
        transition select(hdr.mpls.bos) {
            1: ipv4;
            default: accept;
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

    // Uniform model (RFC 3443): one TTL for both networks.
    action push(bit<20> label, bit<3> tc, bit<9> port, bit<48> srcAddr, bit<48> dstAddr) {
        hdr.mpls.setValid();
        hdr.mpls.label = label;
        hdr.mpls.tc = tc;
        hdr.mpls.bos = 1;
        hdr.mpls.ttl = hdr.ipv4.ttl - 1;
        hdr.ethernet.etherType = 0x8847;
        hdr.ethernet.srcAddr = srcAddr;
        hdr.ethernet.dstAddr = dstAddr;
        std.egress_spec = port;
    }

    table ftn {
        key = {
            std.ingress_port: exact;
            hdr.ipv4.dstAddr: lpm;
        }
        actions = { push; drop; }
        default_action = drop();
        size = 1048576;
    }

    // RFC 1624: the first byte of the word with TTL and protocol changes.
    action pop(bit<9> port, bit<48> srcAddr, bit<48> dstAddr) {
        bit<8> ttl = hdr.mpls.ttl - 1;
        bit<32> sum = (bit<32>)(~hdr.ipv4.hdrChecksum) + (bit<32>)(~(hdr.ipv4.ttl ++ 8w0)) + (bit<32>)(ttl ++ 8w0);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        hdr.ipv4.hdrChecksum = ~sum[15:0];
        hdr.ipv4.ttl = ttl;
        hdr.mpls.setInvalid();
        hdr.ethernet.etherType = 0x0800;
        hdr.ethernet.srcAddr = srcAddr;
        hdr.ethernet.dstAddr = dstAddr;
        std.egress_spec = port;
    }

    table ilm {
        key = { hdr.mpls.label: exact; }
        actions = { pop; drop; }
        default_action = drop();
        size = 1048576;
    }

    apply {
        if (hdr.mpls.isValid()) {
            if (hdr.ipv4.isValid() && hdr.mpls.ttl > 1) {
                ilm.apply();
            } else {
                drop();
            }
        } else if (hdr.ipv4.isValid() && hdr.ipv4.ttl > 1) {
            ftn.apply();
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
        packet.emit(hdr.mpls);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
