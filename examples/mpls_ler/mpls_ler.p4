// An MPLS label edge router (RFC 3031), one of the functions measured in section V of "P4rt-OVS" (CNSM 2020).
//
// `ftn` (FEC to next hop label) chooses the label of a packet by the port it comes from and its destination and sends it into
// the MPLS network; `ilm` (incoming label map) takes the label off packets that come out of it. See `mpls` for a router in
// between.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/checksum.p4>
#include <p4lib/parsers.p4>
#include <p4lib/tunnels.p4>

struct metadata_t { }

struct headers_t {
    ethernet_t ethernet;
    mpls_t     mpls;
    ipv4_t     ipv4;
}

#include <p4lib/v1model.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        ParseEthernetMplsIpv4.apply(packet, hdr.ethernet, hdr.mpls, hdr.ipv4);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() {
        mark_to_drop(std);
    }

    // Uniform model (RFC 3443): one TTL for both networks.
    action push(bit<20> label, bit<3> tc, bit<9> port, bit<48> srcAddr, bit<48> dstAddr) {
        mpls_push(hdr.mpls, label, tc, 1, hdr.ipv4.ttl - 1);
        hdr.ethernet.etherType = ETHERTYPE_MPLS;
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

    action pop(bit<9> port, bit<48> srcAddr, bit<48> dstAddr) {
        ipv4_set_ttl(hdr.ipv4, hdr.mpls.ttl - 1);
        hdr.mpls.setInvalid();
        hdr.ethernet.etherType = ETHERTYPE_IPV4;
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

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
