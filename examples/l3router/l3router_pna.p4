// `l3router.p4` for the Portable NIC Architecture: an IPv4 router in three tables.
//
// The parser verifies the checksum. Deparsers cannot change headers, so the main control makes it anew.

#include <core.p4>
#include <pna.p4>
#include <p4lib/internet_checksum.p4>

struct metadata_t {
    bit<32>  next_hop;
    PortId_t port;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

#include <p4lib/pna.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, in pna_main_parser_input_metadata_t std) {
    state start {
        ParseEthernetIpv4Verified.apply(packet, hdr.ethernet, hdr.ipv4);
        transition accept;
    }
}

control MyMain(inout headers_t hdr, inout metadata_t meta, in pna_main_input_metadata_t std,
               inout pna_main_output_metadata_t ostd) {
    InternetChecksum() sum;

    action drop() {
        drop_packet();
        exit;
    }

    action route(bit<32> next_hop, PortId_t port) {
        meta.next_hop = next_hop;
        meta.port = port;
        send_to_port(port);
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
        key = { meta.port: exact @name("std.egress_spec"); }
        actions = { set_src; drop; }
        default_action = drop();
        size = 512;
    }

    apply {
        if (!hdr.ipv4.isValid() || hdr.ipv4.ihl != 5 || std.parser_error != error.NoError || hdr.ipv4.ttl <= 1) {
            drop();
        }
        ipv4_match.apply();
        rewrite_dst.apply();
        rewrite_src.apply();
        add_ipv4(sum, hdr.ipv4);
        hdr.ipv4.hdrChecksum = sum.get();
    }
}

PNA_NIC(MyParser(), EmptyPre(), MyMain(), EmitHeaders()) main;
