// A learning L2 switch with VLANs: `l2l3` without routing, after figure 7 of "PISCES: A Programmable, Protocol-Independent
// Software Switch" (SIGCOMM 2016).
//
// VLAN ingress: `vlan_ingress` gives a frame its VLAN, by port and tag; frames without a tag are VLAN 1's where it says
// nothing. Known destinations go to their port, unknown ones to the VLAN's multicast group (all of its ports, the
// controller's task). A source address that is not in `mac_learning`, or has moved to another port, is reported by a digest;
// the controller then adds it to `mac_learning` and `switching`. A frame is never sent back to the port it came from. VLAN
// egress: `vlan_egress` says where frames of a VLAN leave with a tag.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/parsers.p4>
#include <p4lib/vlan.p4>

// What the controller is told about a source address.
struct learn_t {
    bit<12> vid;
    bit<48> srcAddr;
    bit<9>  port;
}

struct metadata_t {
    // 0: not tagged, or tagged with a priority only.
    bit<12> vid;
    bit<9>  known_port;
}

struct headers_t {
    ethernet_t ethernet;
    vlan_t     vlan;
}

#include <p4lib/v1model.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        ParseEthernetVlan.apply(packet, hdr.ethernet, hdr.vlan, meta.vid);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() {
        mark_to_drop(std);
        exit;
    }

    // The VLAN of frames that come without one.
    action assign_vlan(bit<12> vid) {
        meta.vid = vid;
    }

    // The port takes frames of this VLAN.
    action admit() { }

    action default_vlan() {
        if (meta.vid != 0) {
            drop();
        }
        meta.vid = 1;
    }

    table vlan_ingress {
        key = {
            std.ingress_port: exact;
            meta.vid: exact;
        }
        actions = { assign_vlan; admit; default_vlan; drop; }
        default_action = default_vlan();
        size = 16384;
    }

    action seen(bit<9> port) {
        meta.known_port = port;
    }

    action unknown() {
        meta.known_port = 0x1ff;
    }

    table mac_learning {
        key = {
            meta.vid: exact;
            hdr.ethernet.srcAddr: exact;
        }
        actions = { seen; unknown; }
        default_action = unknown();
        size = 1048576;
    }

    action forward(bit<9> port) {
        std.egress_spec = port;
    }

    // A VLAN's group has all of its ports.
    action flood() {
        std.mcast_grp = (bit<16>)meta.vid;
    }

    table switching {
        key = {
            meta.vid: exact;
            hdr.ethernet.dstAddr: exact;
        }
        actions = { forward; flood; drop; }
        default_action = flood();
        size = 1048576;
    }

    apply {
        if (std.parser_error != error.NoError) {
            drop();
        }
        vlan_ingress.apply();
        mac_learning.apply();
        if (meta.known_port != std.ingress_port) {
            digest<learn_t>(1, { meta.vid, hdr.ethernet.srcAddr, std.ingress_port });
        }
        switching.apply();
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action tagged() {
        vlan_push(hdr.ethernet, hdr.vlan, meta.vid);
    }

    action untagged() {
        vlan_pop(hdr.ethernet, hdr.vlan);
    }

    table vlan_egress {
        key = {
            std.egress_port: exact;
            meta.vid: exact;
        }
        actions = { tagged; untagged; }
        default_action = untagged();
        size = 16384;
    }

    apply {
        // Flooding reaches every port of the group; drop the copy for the one the frame came from.
        if (std.egress_port == std.ingress_port) {
            mark_to_drop(std);
        } else {
            vlan_egress.apply();
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), MyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
