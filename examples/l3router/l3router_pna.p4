// `l3router.p4` for the Portable NIC Architecture: an IPv4 router in three tables.
//
// The parser verifies the checksum. Deparsers cannot change headers, so the main control makes it anew.

#include <core.p4>
#include <pna.p4>

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

error {
    WrongChecksum
}

struct metadata_t {
    bit<32>  next_hop;
    PortId_t port;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, in pna_main_parser_input_metadata_t std) {
    InternetChecksum() sum;
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        sum.add({ hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.totalLen, hdr.ipv4.identification,
                  hdr.ipv4.flags, hdr.ipv4.fragOffset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.srcAddr,
                  hdr.ipv4.dstAddr });
        verify(sum.get() == hdr.ipv4.hdrChecksum, error.WrongChecksum);
        transition accept;
    }
}

control MyPre(in headers_t hdr, inout metadata_t meta, in pna_pre_input_metadata_t std,
              inout pna_pre_output_metadata_t ostd) {
    apply { }
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
        sum.add({ hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.totalLen, hdr.ipv4.identification,
                  hdr.ipv4.flags, hdr.ipv4.fragOffset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.srcAddr,
                  hdr.ipv4.dstAddr });
        hdr.ipv4.hdrChecksum = sum.get();
    }
}

control MyDeparser(packet_out packet, in headers_t hdr, in metadata_t meta, in pna_main_output_metadata_t ostd) {
    apply {
        packet.emit(hdr);
    }
}

PNA_NIC(MyParser(), MyPre(), MyMain(), MyDeparser()) main;
