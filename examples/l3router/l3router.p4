// An IPv4 router in three tables, after figure 4 of "PVPP: A Programmable Vector Packet Processor" (SOSR 2017).
//
// `ipv4_match` chooses next hop and port by the longest prefix, `rewrite_dst` gives the frame the next hop's address,
// `rewrite_src` that of the port. Packets for a next hop or port that nobody has set up, with a wrong checksum, without a hop
// left, and all that is not IPv4 are dropped. See `router` for one that also answers ARP and counts.

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

struct metadata_t {
    bit<32> next_hop;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
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
        transition accept;
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.totalLen, hdr.ipv4.identification, hdr.ipv4.flags,
              hdr.ipv4.fragOffset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.srcAddr, hdr.ipv4.dstAddr },
            hdr.ipv4.hdrChecksum, HashAlgorithm.csum16);
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() {
        mark_to_drop(std);
        exit;
    }

    action route(bit<32> next_hop, bit<9> port) {
        meta.next_hop = next_hop;
        std.egress_spec = port;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    table ipv4_match {
        key = { hdr.ipv4.dstAddr: lpm; }
        actions = { route; drop; }
        default_action = drop();
        size = 1048576;
    }

    action set_dst(bit<48> dstAddr) {
        hdr.ethernet.dstAddr = dstAddr;
    }

    table rewrite_dst {
        key = { meta.next_hop: exact; }
        actions = { set_dst; drop; }
        default_action = drop();
        size = 65536;
    }

    action set_src(bit<48> srcAddr) {
        hdr.ethernet.srcAddr = srcAddr;
    }

    table rewrite_src {
        key = { std.egress_spec: exact; }
        actions = { set_src; drop; }
        default_action = drop();
        size = 512;
    }

    apply {
        if (!hdr.ipv4.isValid() || hdr.ipv4.ihl != 5 || std.checksum_error == 1 || hdr.ipv4.ttl <= 1) {
            drop();
        }
        ipv4_match.apply();
        rewrite_dst.apply();
        rewrite_src.apply();
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.totalLen, hdr.ipv4.identification, hdr.ipv4.flags,
              hdr.ipv4.fragOffset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.srcAddr, hdr.ipv4.dstAddr },
            hdr.ipv4.hdrChecksum, HashAlgorithm.csum16);
    }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
