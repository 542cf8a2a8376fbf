// VLANs: access ports add and remove the tag, trunk ports keep it (IEEE 802.1Q).
//
// `port_vlan` says what a port does with untagged frames; `admit` which tagged frames a port takes; `forward` where a
// station of a VLAN is; `egress_tag` whether a port sends tagged frames.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/parsers.p4>
#include <p4lib/vlan.p4>

struct metadata_t {
    // The tag's, until `port_vlan` says that of a frame without one.
    bit<12> vid;
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
    }

    action classify(bit<12> vid) {
        meta.vid = vid;
    }

    // VLAN of untagged frames, by port.
    table port_vlan {
        key = { std.ingress_port: exact; }
        actions = { classify; drop; }
        default_action = drop();
        size = 512;
    }

    action admitted() { }

    // VLANs that a port takes tagged.
    table admit {
        key = {
            std.ingress_port: exact;
            hdr.vlan.vid: exact;
        }
        actions = { admitted; drop; }
        default_action = drop();
        size = 8192;
    }

    action to_port(bit<9> port) {
        std.egress_spec = port;
    }

    table forward {
        key = {
            meta.vid: exact;
            hdr.ethernet.dstAddr: exact;
        }
        actions = { to_port; drop; }
        default_action = drop();
        size = 65536;
    }

    apply {
        bool admitted_here = false;
        if (hdr.vlan.isValid()) {
            admitted_here = admit.apply().hit;
        } else {
            admitted_here = port_vlan.apply().hit;
        }
        if (admitted_here) {
            forward.apply();
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action tagged() {
        vlan_push(hdr.ethernet, hdr.vlan, meta.vid);
    }

    action untagged() {
        vlan_pop(hdr.ethernet, hdr.vlan);
    }

    table egress_tag {
        key = {
            std.egress_port: exact;
            meta.vid: exact;
        }
        actions = { tagged; untagged; }
        default_action = untagged();
        size = 8192;
    }

    apply {
        egress_tag.apply();
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), MyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
