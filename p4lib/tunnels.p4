// Tunnels over IPv4: parsing, pushing and popping the headers of VXLAN, GTP-U and GRE, and pushing those of MPLS.
//
// Each header has a function that makes it valid and fills it; lengths are in bytes and count what the header's own field
// counts:
//
//     ethernet_push(hdr.outer_ethernet, dstMac, srcMac, ETHERTYPE_IPV4);
//     ipv4_push(hdr.outer_ipv4, IP_PROTO_UDP, own, remote, length + 36);
//     udp_push(hdr.outer_udp, srcPort, UDP_PORT_VXLAN, length + 16);
//     vxlan_push(hdr.vxlan, vni);

#ifndef P4LIB_TUNNELS_P4
#define P4LIB_TUNNELS_P4

#include <p4lib/headers.p4>

void ethernet_push(inout ethernet_t ethernet, in bit<48> dstAddr, in bit<48> srcAddr, in bit<16> etherType) {
    ethernet.setValid();
    ethernet.dstAddr = dstAddr;
    ethernet.srcAddr = srcAddr;
    ethernet.etherType = etherType;
}

// A header that forbids fragmentation. Its checksum is the caller's: `update_ipv4_checksum`, or `ipv4_checksum`.
void ipv4_push(inout ipv4_t ipv4, in bit<8> protocol, in bit<32> srcAddr, in bit<32> dstAddr, in bit<16> totalLen) {
    ipv4.setValid();
    ipv4.version = 4;
    ipv4.ihl = 5;
    ipv4.diffserv = 0;
    ipv4.totalLen = totalLen;
    ipv4.identification = 0;
    ipv4.flags = 2;
    ipv4.fragOffset = 0;
    ipv4.ttl = 64;
    ipv4.protocol = protocol;
    ipv4.srcAddr = srcAddr;
    ipv4.dstAddr = dstAddr;
}

// Without a checksum, as tunnels over IPv4 may be (RFC 7348, section 5; RFC 2784; 3GPP TS 29.281).
void udp_push(inout udp_t udp, in bit<16> srcPort, in bit<16> dstPort, in bit<16> length) {
    udp.setValid();
    udp.srcPort = srcPort;
    udp.dstPort = dstPort;
    udp.length = length;
    udp.checksum = 0;
}

void mpls_push(inout mpls_t mpls, in bit<20> label, in bit<3> tc, in bit<1> bos, in bit<8> ttl) {
    mpls.setValid();
    mpls.label = label;
    mpls.tc = tc;
    mpls.bos = bos;
    mpls.ttl = ttl;
}

void vxlan_push(inout vxlan_t vxlan, in bit<24> vni) {
    vxlan.setValid();
    vxlan.flags = 8;
    vxlan.reserved = 0;
    vxlan.vni = vni;
    vxlan.reserved2 = 0;
}

void vxlan_pop(inout ethernet_t ethernet, inout ipv4_t ipv4, inout udp_t udp, inout vxlan_t vxlan) {
    ethernet.setInvalid();
    ipv4.setInvalid();
    udp.setInvalid();
    vxlan.setInvalid();
}

// A G-PDU without options; `length` counts the packet that it carries.
void gtpu_push(inout gtpu_t gtpu, in bit<32> teid, in bit<16> length) {
    gtpu.setValid();
    gtpu.version = 1;
    gtpu.pt = 1;
    gtpu.spare = 0;
    gtpu.ex = 0;
    gtpu.seq = 0;
    gtpu.pn = 0;
    gtpu.messageType = GTPU_G_PDU;
    gtpu.length = length;
    gtpu.teid = teid;
}

// Behind `gtpu_push`: a PDU session container (3GPP TS 38.415), downlink (`pduType` 0) or uplink (1), of a QoS flow. Adds the
// eight bytes to the length.
void gtpu_push_session(inout gtpu_t gtpu, inout gtpu_options_t options, inout gtpu_pdu_session_t session,
                       in bit<4> pduType, in bit<6> qfi) {
    gtpu.ex = 1;
    gtpu.length = gtpu.length + 8;
    options.setValid();
    options.sequence = 0;
    options.npdu = 0;
    options.nextExtension = GTPU_PDU_SESSION;
    session.setValid();
    session.length = 1;
    session.pduType = pduType;
    session.flags = 0;
    session.ppp = 0;
    session.rqi = 0;
    session.qfi = qfi;
    session.nextExtension = 0;
}

void gtpu_pop(inout ipv4_t ipv4, inout udp_t udp, inout gtpu_t gtpu, inout gtpu_options_t options) {
    ipv4.setInvalid();
    udp.setInvalid();
    gtpu.setInvalid();
    options.setInvalid();
}

// Without checksum, key and sequence number.
void gre_push(inout gre_t gre, in bit<16> protocol) {
    gre.setValid();
    gre.checksumPresent = 0;
    gre.reserved = 0;
    gre.keyPresent = 0;
    gre.sequencePresent = 0;
    gre.reserved2 = 0;
    gre.version = 0;
    gre.protocol = protocol;
}

// Behind `gre_push`.
void gre_push_key(inout gre_t gre, inout gre_key_t gre_key, in bit<32> key) {
    gre.keyPresent = 1;
    gre_key.setValid();
    gre_key.key = key;
}

void gre_pop(inout ipv4_t ipv4, inout gre_t gre, inout gre_key_t gre_key) {
    ipv4.setInvalid();
    gre.setInvalid();
    gre_key.setInvalid();
}

// A frame, with VXLAN around it or not: over untagged Ethernet and IPv4 without options and whole, with the I flag, without which
// there is no VNI (RFC 7348, section 5). All else is a frame, so a program calls this for what comes from the underlay.
parser ParseVxlanEthernet(packet_in packet, out ethernet_t outer_ethernet, out ipv4_t outer_ipv4, out udp_t udp,
                          out vxlan_t vxlan, out ethernet_t ethernet) {
    state start {
        transition select(packet.lookahead<bit<112>>()[15:0]) {
            ETHERTYPE_IPV4: maybe_tunnel;
            default: frame;
        }
    }
    state maybe_tunnel {
        // Up to UDP's destination port: version and length of the header, fragmentation, protocol, port.
        bit<304> front = packet.lookahead<bit<304>>();
        transition select(front[191:184], front[141:128], front[119:112], front[15:0]) {
            (0x45, 0, IP_PROTO_UDP, UDP_PORT_VXLAN): has_vni;
            default: frame;
        }
    }
    state has_vni {
        transition select(packet.lookahead<bit<344>>()[3:3]) {
            1: tunnel;
            default: frame;
        }
    }
    state tunnel {
        packet.extract(outer_ethernet);
        packet.extract(outer_ipv4);
        packet.extract(udp);
        packet.extract(vxlan);
        transition frame;
    }
    state frame {
        packet.extract(ethernet);
        transition accept;
    }
}

error {
    GtpExtension
}

// GTP-U with IPv4 in it, over untagged Ethernet and IPv4 without options and whole (3GPP TS 29.281): up to the first header that
// is something else, as GTP' and other versions are. The options are skipped; extension headers are not followed:
// error.GtpExtension.
parser ParseGtpuIpv4(packet_in packet, out ethernet_t ethernet, out ipv4_t outer_ipv4, out udp_t udp, out gtpu_t gtpu,
                     out gtpu_options_t options, out ipv4_t ipv4) {
    state start {
        packet.extract(ethernet);
        transition select(ethernet.etherType) {
            ETHERTYPE_IPV4: outer;
            default: accept;
        }
    }
    state outer {
        packet.extract(outer_ipv4);
        transition select(outer_ipv4.ihl, outer_ipv4.flags[0:0] ++ outer_ipv4.fragOffset, outer_ipv4.protocol) {
            (5, 0, IP_PROTO_UDP): transport;
            default: accept;
        }
    }
    state transport {
        packet.extract(udp);
        transition select(udp.dstPort) {
            UDP_PORT_GTPU: tunnel;
            default: accept;
        }
    }
    state tunnel {
        packet.extract(gtpu);
        transition select(gtpu.version, gtpu.pt, gtpu.messageType, gtpu.ex ++ gtpu.seq ++ gtpu.pn) {
            (1, 1, GTPU_G_PDU, 0): inner;
            (1, 1, GTPU_G_PDU, _): optional_part;
            default: accept;
        }
    }
    state optional_part {
        packet.extract(options);
        // Without the flag the type of the next extension is not evaluated (clause 5.1).
        verify(gtpu.ex == 0 || options.nextExtension == 0, error.GtpExtension);
        transition inner;
    }
    state inner {
        packet.extract(ipv4);
        transition accept;
    }
}

#endif
