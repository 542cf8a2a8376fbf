// A VXLAN tunnel end point (RFC 7348).
//
// Frames from tenant ports get a VNI by port and, by VNI and destination, a remote end point (`encap`) or a local port
// (`local`); tunnelled frames for this end point lose their outer headers and go to the tenant's port.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dstAddr;
    bit<48> srcAddr;
    bit<16> etherType;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  diffserv;
    bit<16> totalLen;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragOffset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> hdrChecksum;
    bit<32> srcAddr;
    bit<32> dstAddr;
}

header udp_t {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<16> length;
    bit<16> checksum;
}

header vxlan_t {
    bit<8>  flags;
    bit<24> reserved;
    bit<24> vni;
    bit<8>  reserved2;
}

struct metadata_t {
    bit<24> vni;
    bit<32> local_ip;
}

struct headers_t {
    ethernet_t outer_ethernet;
    ipv4_t     outer_ipv4;
    udp_t      outer_udp;
    vxlan_t    vxlan;
    ethernet_t ethernet;
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        transition select(packet.lookahead<bit<112>>()[15:0]) {
            0x0800: maybe_tunnel;
            default: tenant;
        }
    }
    state maybe_tunnel {
        // Ethernet and IPv4 without options, then UDP to port 4789.
        bit<304> front = packet.lookahead<bit<304>>();
        transition select(front[119:112], front[15:0]) {
            (17, 4789): tunnel;
            default: tenant;
        }
    }
    state tunnel {
        packet.extract(hdr.outer_ethernet);
        packet.extract(hdr.outer_ipv4);
        packet.extract(hdr.outer_udp);
        packet.extract(hdr.vxlan);
        transition tenant;
    }
    state tenant {
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

    action decap() {
        meta.vni = hdr.vxlan.vni;
        hdr.outer_ethernet.setInvalid();
        hdr.outer_ipv4.setInvalid();
        hdr.outer_udp.setInvalid();
        hdr.vxlan.setInvalid();
    }

    // The end point's own addresses.
    table own_address {
        key = { hdr.outer_ipv4.dstAddr: exact; }
        actions = { decap; drop; }
        default_action = drop();
        size = 64;
    }

    action tenant(bit<24> vni) {
        meta.vni = vni;
    }

    table tenant_port {
        key = { std.ingress_port: exact; }
        actions = { tenant; drop; }
        default_action = drop();
        size = 512;
    }

    action deliver(bit<9> port) {
        std.egress_spec = port;
    }

    table local {
        key = {
            meta.vni: exact;
            hdr.ethernet.dstAddr: exact;
        }
        actions = { deliver; NoAction; }
        default_action = NoAction();
        size = 65536;
    }

    action tunnel_to(bit<32> remote, bit<32> own, bit<48> dstMac, bit<48> srcMac, bit<9> port) {
        hdr.outer_ethernet.setValid();
        hdr.outer_ethernet.dstAddr = dstMac;
        hdr.outer_ethernet.srcAddr = srcMac;
        hdr.outer_ethernet.etherType = 0x0800;
        hdr.outer_ipv4.setValid();
        hdr.outer_ipv4.version = 4;
        hdr.outer_ipv4.ihl = 5;
        hdr.outer_ipv4.diffserv = 0;
        // The frame, VXLAN (8), UDP (8) and IPv4 (20).
        hdr.outer_ipv4.totalLen = (bit<16>)std.packet_length + 36;
        hdr.outer_ipv4.identification = 0;
        hdr.outer_ipv4.flags = 2;
        hdr.outer_ipv4.fragOffset = 0;
        hdr.outer_ipv4.ttl = 64;
        hdr.outer_ipv4.protocol = 17;
        hdr.outer_ipv4.srcAddr = own;
        hdr.outer_ipv4.dstAddr = remote;
        hdr.outer_udp.setValid();
        // Entropy for ECMP on the way (RFC 7348, section 5).
        hash(hdr.outer_udp.srcPort, HashAlgorithm.crc16, 16w49152,
             { hdr.ethernet.dstAddr, hdr.ethernet.srcAddr, hdr.ethernet.etherType }, 32w16384);
        hdr.outer_udp.dstPort = 4789;
        hdr.outer_udp.length = (bit<16>)std.packet_length + 16;
        hdr.outer_udp.checksum = 0;
        hdr.vxlan.setValid();
        hdr.vxlan.flags = 8;
        hdr.vxlan.reserved = 0;
        hdr.vxlan.vni = meta.vni;
        hdr.vxlan.reserved2 = 0;
        std.egress_spec = port;
    }

    table encap {
        key = {
            meta.vni: exact;
            hdr.ethernet.dstAddr: exact;
        }
        actions = { tunnel_to; drop; }
        default_action = drop();
        size = 65536;
    }

    apply {
        if (hdr.vxlan.isValid()) {
            if (own_address.apply().hit && !local.apply().hit) {
                drop();
            }
        } else if (tenant_port.apply().hit) {
            if (!local.apply().hit) {
                encap.apply();
            }
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.outer_ipv4.isValid(),
            { hdr.outer_ipv4.version, hdr.outer_ipv4.ihl, hdr.outer_ipv4.diffserv, hdr.outer_ipv4.totalLen,
              hdr.outer_ipv4.identification, hdr.outer_ipv4.flags, hdr.outer_ipv4.fragOffset, hdr.outer_ipv4.ttl,
              hdr.outer_ipv4.protocol, hdr.outer_ipv4.srcAddr, hdr.outer_ipv4.dstAddr },
            hdr.outer_ipv4.hdrChecksum, HashAlgorithm.csum16);
    }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
