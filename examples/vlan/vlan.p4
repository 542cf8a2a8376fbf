// VLANs: access ports add and remove the tag, trunk ports keep it (IEEE 802.1Q).
//
// `port_vlan` says what a port does with untagged frames; `admit` which tagged frames a port takes; `forward` where a
// station of a VLAN is; `egress_tag` whether a port sends tagged frames.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dstAddr;
    bit<48> srcAddr;
    bit<16> etherType;
}

header vlan_t {
    bit<3>  pcp;
    bit<1>  dei;
    bit<12> vid;
    bit<16> etherType;
}

struct metadata_t {
    bit<12> vid;
}

struct headers_t {
    ethernet_t ethernet;
    vlan_t     vlan;
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            0x8100: vlan;
            default: accept;
        }
    }
    state vlan {
        packet.extract(hdr.vlan);
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

    action admitted() {
        meta.vid = hdr.vlan.vid;
    }

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
        if (!hdr.vlan.isValid()) {
            hdr.vlan.setValid();
            hdr.vlan.pcp = 0;
            hdr.vlan.dei = 0;
            hdr.vlan.etherType = hdr.ethernet.etherType;
            hdr.ethernet.etherType = 0x8100;
        }
        hdr.vlan.vid = meta.vid;
    }

    action untagged() {
        if (hdr.vlan.isValid()) {
            hdr.ethernet.etherType = hdr.vlan.etherType;
            hdr.vlan.setInvalid();
        }
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

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
