// `l3router.p4` for the Portable Switch Architecture: an IPv4 router in three tables.
//
// The parser verifies the checksum and the ingress deparser makes it anew; egress does nothing.

#include <core.p4>
#include <psa.p4>

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

struct empty_t {
}

struct metadata_t {
    bit<32> next_hop;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

parser MyIngressParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                       in psa_ingress_parser_input_metadata_t std, in empty_t resubmitted, in empty_t recirculated) {
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

control MyIngress(inout headers_t hdr, inout metadata_t meta, in psa_ingress_input_metadata_t std,
                  inout psa_ingress_output_metadata_t ostd) {
    action drop() {
        ingress_drop(ostd);
        exit;
    }

    action route(bit<32> next_hop, PortId_t port) {
        meta.next_hop = next_hop;
        send_to_port(ostd, port);
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
        key = { ostd.egress_port: exact @name("std.egress_spec"); }
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
    }
}

control MyIngressDeparser(packet_out packet, out empty_t cloned, out empty_t resubmitted, out empty_t normal,
                          inout headers_t hdr, in metadata_t meta, in psa_ingress_output_metadata_t ostd) {
    InternetChecksum() sum;
    apply {
        if (hdr.ipv4.isValid()) {
            sum.add({ hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.totalLen, hdr.ipv4.identification,
                      hdr.ipv4.flags, hdr.ipv4.fragOffset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.srcAddr,
                      hdr.ipv4.dstAddr });
            hdr.ipv4.hdrChecksum = sum.get();
        }
        packet.emit(hdr);
    }
}

parser MyEgressParser(packet_in packet, out empty_t hdr, inout empty_t meta, in psa_egress_parser_input_metadata_t std,
                      in empty_t normal, in empty_t cloned, in empty_t cloned_again) {
    state start {
        transition accept;
    }
}

control MyEgress(inout empty_t hdr, inout empty_t meta, in psa_egress_input_metadata_t std,
                 inout psa_egress_output_metadata_t ostd) {
    apply { }
}

control MyEgressDeparser(packet_out packet, out empty_t cloned, out empty_t recirculated, inout empty_t hdr,
                         in empty_t meta, in psa_egress_output_metadata_t ostd,
                         in psa_egress_deparser_input_metadata_t std) {
    apply { }
}

PSA_Switch(IngressPipeline(MyIngressParser(), MyIngress(), MyIngressDeparser()), PacketReplicationEngine(),
           EgressPipeline(MyEgressParser(), MyEgress(), MyEgressDeparser()), BufferingQueueingEngine()) main;
