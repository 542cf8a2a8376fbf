// An IPv4 router in three tables, after figure 4 of "PVPP: A Programmable Vector Packet Processor" (SOSR 2017).
//
// `ipv4_match` chooses next hop and port by the longest prefix, `rewrite_dst` gives the frame the next hop's address,
// `rewrite_src` that of the port. Packets for a next hop or port that nobody has set up, with a wrong checksum, without a hop
// left, and all that is not IPv4 are dropped. See `router` for one that also answers ARP and counts.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/parsers.p4>

struct metadata_t {
    bit<32> next_hop;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

#include <p4lib/v1model_ipv4.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        ParseEthernetIpv4.apply(packet, hdr.ethernet, hdr.ipv4);
        transition accept;
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

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_ipv4_checksum(hdr.ipv4.isValid(), hdr.ipv4);
    }
}

V1Switch(MyParser(), VerifyIpv4Checksum(), MyIngress(), EmptyEgress(), MyComputeChecksum(), EmitHeaders()) main;
