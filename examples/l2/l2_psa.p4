// `l2.p4` for the Portable Switch Architecture: a learning L2 switch with VLANs.
//
// VLAN and port of a frame go to egress as `normal_meta`; the egress parser reads the frame again.

#include <core.p4>
#include <psa.p4>
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
    bit<12>  vid;
    PortId_t port;
    bool     is_new;
}

// What egress must know of a frame.
struct bridged_t {
    bit<12>  vid;
    PortId_t port;
}

struct headers_t {
    ethernet_t ethernet;
    vlan_t     vlan;
}

#include <p4lib/psa.p4>

parser MyIngressParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                       in psa_ingress_parser_input_metadata_t std, in empty_t resubmitted, in empty_t recirculated) {
    state start {
        ParseEthernetVlan.apply(packet, hdr.ethernet, hdr.vlan, meta.vid);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, in psa_ingress_input_metadata_t std,
                  inout psa_ingress_output_metadata_t ostd) {
    PortId_t known_port;

    action drop() {
        ingress_drop(ostd);
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

    action seen(PortId_t port) {
        known_port = port;
    }

    action unknown() {
        known_port = PSA_PORT_RECIRCULATE;
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

    action forward(PortId_t port) {
        send_to_port(ostd, port);
    }

    // A VLAN's group has all of its ports.
    action flood() {
        multicast(ostd, (MulticastGroup_t)(bit<32>)meta.vid);
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
        meta.port = std.ingress_port;
        meta.is_new = known_port != std.ingress_port;
        switching.apply();
    }
}

control MyIngressDeparser(packet_out packet, out empty_t cloned, out empty_t resubmitted, out bridged_t normal,
                          inout headers_t hdr, in metadata_t meta, in psa_ingress_output_metadata_t ostd) {
    @name(".learn_t") Digest<learn_t>() learn;
    apply {
        if (meta.is_new) {
            learn.pack({ meta.vid, hdr.ethernet.srcAddr, meta.port });
        }
        normal = { meta.vid, meta.port };
        packet.emit(hdr);
    }
}

parser MyEgressParser(packet_in packet, out headers_t hdr, inout bridged_t meta,
                      in psa_egress_parser_input_metadata_t std, in bridged_t normal, in empty_t cloned,
                      in empty_t cloned_again) {
    state start {
        meta = normal;
        bit<12> received_vid;
        ParseEthernetVlan.apply(packet, hdr.ethernet, hdr.vlan, received_vid);
        transition accept;
    }
}

control MyEgress(inout headers_t hdr, inout bridged_t meta, in psa_egress_input_metadata_t std,
                 inout psa_egress_output_metadata_t ostd) {
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
        if (std.egress_port == meta.port) {
            egress_drop(ostd);
        } else {
            vlan_egress.apply();
        }
    }
}

control MyEgressDeparser(packet_out packet, out empty_t cloned, out empty_t recirculated, inout headers_t hdr,
                         in bridged_t meta, in psa_egress_output_metadata_t ostd,
                         in psa_egress_deparser_input_metadata_t std) {
    apply {
        packet.emit(hdr);
    }
}

PSA_Switch(IngressPipeline(MyIngressParser(), MyIngress(), MyIngressDeparser()), PacketReplicationEngine(),
           EgressPipeline(MyEgressParser(), MyEgress(), MyEgressDeparser()), BufferingQueueingEngine()) main;
