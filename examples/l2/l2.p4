// A learning L2 switch.
//
// Known destinations go to their port, unknown ones to multicast group 1 (all ports, the controller's task). A source
// address that is not in `smac`, or has moved to another port, is reported by a digest; the controller then adds it to
// `smac` and `dmac`. A frame is never sent back to the port it came from.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dstAddr;
    bit<48> srcAddr;
    bit<16> etherType;
}

// What the controller is told about a source address.
struct learn_t {
    bit<48> srcAddr;
    bit<9>  port;
}

struct metadata_t {
    bit<9> known_port;
}

struct headers_t {
    ethernet_t ethernet;
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
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

    action forward(bit<9> port) {
        std.egress_spec = port;
    }

    action flood() {
        std.mcast_grp = 1;
    }

    action seen(bit<9> port) {
        meta.known_port = port;
    }

    action unknown() {
        meta.known_port = 0x1ff;
    }

    table smac {
        key = { hdr.ethernet.srcAddr: exact; }
        actions = { seen; unknown; }
        default_action = unknown();
        size = 65536;
    }

    table dmac {
        key = { hdr.ethernet.dstAddr: exact; }
        actions = { forward; flood; drop; }
        default_action = flood();
        size = 65536;
    }

    apply {
        smac.apply();
        if (meta.known_port != std.ingress_port) {
            digest<learn_t>(1, { hdr.ethernet.srcAddr, std.ingress_port });
        }
        dmac.apply();
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        // Flooding reaches every port of the group; drop the copy for the one the frame came from.
        if (std.egress_port == std.ingress_port) {
            mark_to_drop(std);
        }
    }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
