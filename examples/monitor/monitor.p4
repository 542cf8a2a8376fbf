// Multicast and mirroring.
//
// Frames to a group address are replicated to the ports of a multicast group, each copy with its own VLAN-like tag taken
// from the replica id. Frames of watched stations are cloned to a monitor port, where the clone carries a header that
// says where the frame came from.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/headers.p4>

header monitor_t {
    bit<16> ingressPort;
    bit<16> etherType;
}

struct metadata_t {
    @field_list(1)
    bit<9> from;
}

struct headers_t {
    ethernet_t ethernet;
    monitor_t  monitor;
}

#include <p4lib/v1model.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() {
        mark_to_drop(std);
    }

    action unicast(bit<9> port) {
        std.egress_spec = port;
    }

    action multicast(bit<16> group) {
        std.mcast_grp = group;
    }

    table forward {
        key = { hdr.ethernet.dstAddr: exact; }
        actions = { unicast; multicast; drop; }
        default_action = drop();
        size = 65536;
    }

    action mirror(bit<32> session) {
        meta.from = std.ingress_port;
        clone_preserving_field_list(CloneType.I2E, session, 1);
    }

    table watch {
        key = { hdr.ethernet.srcAddr: exact; }
        actions = { mirror; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    apply {
        watch.apply();
        forward.apply();
    }
}

// standard_metadata.instance_type of an ingress-to-egress clone.
const bit<32> INGRESS_CLONE = 1;

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (std.instance_type == INGRESS_CLONE) {
            hdr.monitor.setValid();
            hdr.monitor.ingressPort = (bit<16>)meta.from;
            hdr.monitor.etherType = hdr.ethernet.etherType;
            hdr.ethernet.etherType = 0x88b5;
        } else if (std.egress_rid != 0) {
            // The last two bytes of the source address name the replica.
            hdr.ethernet.srcAddr[15:0] = std.egress_rid;
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), MyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
