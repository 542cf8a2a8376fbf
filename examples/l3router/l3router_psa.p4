// `l3router.p4` for the Portable Switch Architecture: an IPv4 router in three tables.
//
// The parser verifies the checksum and the ingress deparser makes it anew; egress does nothing.

#include <core.p4>
#include <psa.p4>
#include <p4lib/internet_checksum.p4>

struct metadata_t {
    bit<32> next_hop;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

#include <p4lib/psa.p4>

parser MyIngressParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                       in psa_ingress_parser_input_metadata_t std, in empty_t resubmitted, in empty_t recirculated) {
    state start {
        ParseEthernetIpv4Verified.apply(packet, hdr.ethernet, hdr.ipv4);
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
            add_ipv4(sum, hdr.ipv4);
            hdr.ipv4.hdrChecksum = sum.get();
        }
        packet.emit(hdr);
    }
}

PSA_Switch(IngressPipeline(MyIngressParser(), MyIngress(), MyIngressDeparser()), PacketReplicationEngine(),
           EgressPipeline(EmptyEgressParser(), EmptyEgress(), EmptyEgressDeparser()), BufferingQueueingEngine()) main;
