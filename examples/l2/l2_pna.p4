// `l2.p4` for the Portable NIC Architecture: a learning L2 switch with VLANs.
//
// PNA has no multicast groups and no egress. A frame is flooded by mirror sessions: `flooding` names, by the port that a frame
// came from and its VLAN, the session with the VLAN's other ports that have tags, and the session with those that have none
// (0 where there are no such ports). Copies leave as the frame is deparsed, so the frame comes in again for the second session.

#include <core.p4>
#include <pna.p4>
#include <p4lib/parsers.p4>
#include <p4lib/vlan.p4>

// What the controller is told about a source address.
struct learn_t {
    bit<12>  vid;
    bit<48>  srcAddr;
    PortId_t port;
}

struct metadata_t {
    // 0: not tagged, or tagged with a priority only.
    bit<12>               vid;
    PortId_t              port;
    bool                  is_new;
    // The mirror session that is still to be served.
    MirrorSessionIdUint_t untagged_ports;
}

struct headers_t {
    ethernet_t ethernet;
    vlan_t     vlan;
}

#include <p4lib/pna.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, in pna_main_parser_input_metadata_t std) {
    state start {
        ParseEthernetVlan.apply(packet, hdr.ethernet, hdr.vlan, meta.vid);
        transition accept;
    }
}

control MyMain(inout headers_t hdr, inout metadata_t meta, in pna_main_input_metadata_t std,
               inout pna_main_output_metadata_t ostd) {
    bool known_here;
    PortId_t out_port;
    bool to_one;

    action drop() {
        drop_packet();
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
            std.input_port: exact @name("std.ingress_port");
            meta.vid: exact;
        }
        actions = { assign_vlan; admit; default_vlan; drop; }
        default_action = default_vlan();
        size = 16384;
    }

    action seen(PortId_t port) {
        known_here = port == std.input_port;
    }

    action unknown() {
        known_here = false;
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

    action tagged() {
        vlan_push(hdr.ethernet, hdr.vlan, meta.vid);
    }

    action untagged() {
        vlan_pop(hdr.ethernet, hdr.vlan);
    }

    action forward(PortId_t port) {
        out_port = port;
        to_one = true;
    }

    action flood() {
        to_one = false;
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

    table vlan_egress {
        key = {
            out_port: exact @name("std.egress_port");
            meta.vid: exact;
        }
        actions = { tagged; untagged; }
        default_action = untagged();
        size = 16384;
    }

    action mirror(MirrorSessionIdUint_t session) {
        if (session != 0) {
            mirror_packet((MirrorSlotId_t)0, (MirrorSessionId_t)session);
        }
    }

    action sessions(MirrorSessionIdUint_t tagged_ports, MirrorSessionIdUint_t untagged_ports) {
        mirror(tagged_ports);
        meta.untagged_ports = untagged_ports;
    }

    table flooding {
        key = {
            std.input_port: exact @name("std.ingress_port");
            meta.vid: exact;
        }
        actions = { sessions; drop; }
        default_action = drop();
        size = 16384;
    }

    apply {
        if (std.pass != (PassNumber_t)0) {
            meta.is_new = false;
            untagged();
            mirror(meta.untagged_ports);
            drop();
        }
        if (std.parser_error != error.NoError) {
            drop();
        }
        vlan_ingress.apply();
        mac_learning.apply();
        meta.port = std.input_port;
        meta.is_new = !known_here;
        switching.apply();
        if (to_one) {
            vlan_egress.apply();
            if (out_port == std.input_port) {
                drop();
            }
            send_to_port(out_port);
        } else {
            tagged();
            flooding.apply();
            if (meta.untagged_ports != 0) {
                recirculate();
            } else {
                drop();
            }
        }
    }
}

control MyDeparser(packet_out packet, in headers_t hdr, in metadata_t meta, in pna_main_output_metadata_t ostd) {
    @name(".learn_t") Digest<learn_t>() learn;
    apply {
        if (meta.is_new) {
            learn.pack({ meta.vid, hdr.ethernet.srcAddr, meta.port });
        }
        packet.emit(hdr);
    }
}

PNA_NIC(MyParser(), EmptyPre(), MyMain(), MyDeparser()) main;
