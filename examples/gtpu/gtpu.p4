// GTP-U decapsulation: the user plane of a mobile core towards the Internet (3GPP TS 29.281).
//
// Tunnels end here by TEID; the inner IPv4 packet is forwarded by its destination. The GTP-U header's optional part (sequence
// number, N-PDU number, next extension) is skipped when one of its flags is set; extension headers are not followed. Both IPv4
// headers must have the right checksum (RFC 1812, section 5.2.2).

#include <core.p4>
#include <v1model.p4>
#include <p4lib/forwarding.p4>
#include <p4lib/tunnels.p4>

struct metadata_t { }

struct headers_t {
    ethernet_t     ethernet;
    ipv4_t         outer_ipv4;
    udp_t          udp;
    gtpu_t         gtpu;
    gtpu_options_t gtpu_options;
    ipv4_t         ipv4;
}

#include <p4lib/v1model_ipv4.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        ParseGtpuIpv4.apply(packet, hdr.ethernet, hdr.outer_ipv4, hdr.udp, hdr.gtpu, hdr.gtpu_options, hdr.ipv4);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter(65536, CounterType.packets_and_bytes) usage;

    action drop() {
        mark_to_drop(std);
    }

    action terminate(bit<32> subscriber) {
        usage.count(subscriber);
        gtpu_pop(hdr.outer_ipv4, hdr.udp, hdr.gtpu, hdr.gtpu_options);
    }

    table tunnel {
        key = {
            hdr.outer_ipv4.dstAddr: exact;
            hdr.gtpu.teid: exact;
        }
        actions = { terminate; drop; }
        default_action = drop();
        size = 65536;
    }

    action send(bit<9> port, bit<48> srcAddr, bit<48> dstAddr) {
        std.egress_spec = port;
        ipv4_forward(hdr.ethernet, hdr.ipv4, srcAddr, dstAddr);
    }

    table route {
        key = { hdr.ipv4.dstAddr: lpm; }
        actions = { send; drop; }
        default_action = drop();
        size = 65536;
    }

    apply {
        if (std.parser_error == error.NoError && std.checksum_error == 0 && hdr.ipv4.isValid() && hdr.ipv4.ttl > 1) {
            if (tunnel.apply().hit) {
                route.apply();
            }
        } else {
            drop();
        }
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_ipv4_checksum(hdr.gtpu.isValid(), hdr.outer_ipv4);
        verify_ipv4_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5, hdr.ipv4);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), EmptyEgress(), UpdateIpv4Checksum(), EmitHeaders()) main;
