// An L2/L3 switch with an access list, after figure 7 of "PISCES: A Programmable, Protocol-Independent Software Switch"
// (SIGCOMM 2016).
//
// VLAN ingress: `vlan_ingress` gives a frame its VLAN, by port and tag. MAC learning: a source address that `mac_learning`
// does not know on this port is reported by a digest. IPv4 for one of the router's own addresses (`routable`) is routed:
// `routing` chooses the next hop, `next_hop` says what becomes of the frame; everything else is switched within its VLAN.
// `acl` decides over all of IPv4. VLAN egress: `vlan_egress` says where frames of a VLAN leave with a tag.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/forwarding.p4>
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
    bit<16> next_hop;
    bool    routed;
    bit<16> srcPort;
    bit<16> dstPort;
}

struct headers_t {
    ethernet_t ethernet;
    vlan_t     vlan;
    ipv4_t     ipv4;
    ports_t    ports;
}

#include <p4lib/v1model_ipv4.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            ETHERTYPE_VLAN: vlan;
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }
    state vlan {
        packet.extract(hdr.vlan);
        meta.vid = hdr.vlan.vid;
        transition select(hdr.vlan.etherType) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragOffset, hdr.ipv4.protocol) {
            (5, 0, IP_PROTO_TCP): ports;
            (5, 0, IP_PROTO_UDP): ports;
            default: accept;
        }
    }
    state ports {
        packet.extract(hdr.ports);
        meta.srcPort = hdr.ports.srcPort;
        meta.dstPort = hdr.ports.dstPort;
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

    table vlan_ingress {
        key = {
            std.ingress_port: exact;
            meta.vid: exact;
        }
        actions = { assign_vlan; admit; drop; }
        default_action = drop();
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

    // The router's own addresses.
    table routable {
        key = {
            meta.vid: exact;
            hdr.ethernet.dstAddr: exact;
        }
        actions = { NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    action set_next_hop(bit<16> next_hop) {
        meta.next_hop = next_hop;
    }

    table routing {
        key = { hdr.ipv4.dstAddr: lpm; }
        actions = { set_next_hop; drop; }
        default_action = drop();
        size = 1048576;
    }

    action rewrite(bit<12> vid, bit<9> port, bit<48> srcAddr, bit<48> dstAddr) {
        meta.vid = vid;
        meta.routed = true;
        std.egress_spec = port;
        ipv4_forward(hdr.ethernet, hdr.ipv4, srcAddr, dstAddr);
    }

    table next_hop {
        key = { meta.next_hop: exact; }
        actions = { rewrite; drop; }
        default_action = drop();
        size = 65536;
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

    action permit() { }

    table acl {
        key = {
            hdr.ipv4.srcAddr: ternary;
            hdr.ipv4.dstAddr: ternary;
            hdr.ipv4.protocol: ternary;
            meta.srcPort: ternary @name("srcPort");
            meta.dstPort: ternary @name("dstPort");
        }
        actions = { permit; drop; }
        default_action = permit();
        size = 16384;
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
        if (hdr.ipv4.isValid() && routable.apply().hit) {
            if (hdr.ipv4.ihl != 5 || std.checksum_error == 1 || hdr.ipv4.ttl <= 1) {
                drop();
            }
            routing.apply();
            next_hop.apply();
        } else {
            switching.apply();
        }
        if (hdr.ipv4.isValid()) {
            acl.apply();
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
        // Flooding reaches every port of the group; a switched frame never goes back to where it came from.
        if (!meta.routed && std.egress_port == std.ingress_port) {
            mark_to_drop(std);
        } else {
            vlan_egress.apply();
        }
    }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_ipv4_checksum(meta.routed, hdr.ipv4);
    }
}

V1Switch(MyParser(), VerifyIpv4Checksum(), MyIngress(), MyEgress(), MyComputeChecksum(), EmitHeaders()) main;
