// Blocks of p4lib/nat.p4 and p4lib/checksum.p4, by port: 1 and 2 translate addresses and ports of IPv4 and IPv6, 3 sets a DSCP
// and a TTL and forwards, 4 sums a header anew.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/forwarding.p4>
#include <p4lib/nat.p4>
#include <p4lib/parsers.p4>

struct metadata_t { }

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ipv6_t     ipv6;
    tcp_t      tcp;
    udp_t      udp;
    icmpv6_t   icmpv6;
}

#include <p4lib/v1model.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }
    state ipv4 {
        ParseIpv4Transport.apply(packet, hdr.ipv4, hdr.tcp, hdr.udp);
        transition accept;
    }
    state ipv6 {
        ParseIpv6Transport.apply(packet, hdr.ipv6, hdr.tcp, hdr.udp);
        transition select(hdr.ipv6.nextHdr) {
            IP_PROTO_ICMPV6: icmpv6;
            default: accept;
        }
    }
    state icmpv6 {
        packet.extract(hdr.icmpv6);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 9;
        bit<32> change = 0;
        if (std.ingress_port == 1) {
            if (hdr.ipv4.isValid()) {
                change = nat44_set_src(hdr.ipv4, 0xcb007105);
            } else {
                change = nat66_set_src(hdr.ipv6, 0x20010db8_00000000_00000000_0000ffee);
            }
            if (hdr.tcp.isValid()) {
                change = change + nat_set_port(hdr.tcp.srcPort, 50000);
            } else if (hdr.udp.isValid()) {
                change = change + nat_set_port(hdr.udp.srcPort, 50000);
            }
            nat_transport(hdr.tcp, hdr.udp, change);
            nat_icmpv6(hdr.icmpv6, change);
        } else if (std.ingress_port == 2) {
            if (hdr.ipv4.isValid()) {
                change = nat44_set_both(hdr.ipv4, 0xcb007105, 0x0a0000fe);
            } else {
                change = nat66_set_dst(hdr.ipv6, 0xfd000000_00000000_00000000_00000001);
            }
            nat_transport(hdr.tcp, hdr.udp, change);
            nat_icmpv6(hdr.icmpv6, change);
        } else if (std.ingress_port == 3) {
            if (hdr.ipv6.isValid()) {
                ipv6_forward(hdr.ethernet, hdr.ipv6, 0x020000000099, 0x020000000098);
            } else {
                ipv4_set_dscp(hdr.ipv4, 46);
                ipv4_set_ttl(hdr.ipv4, 9);
            }
        } else {
            hdr.ipv4.hdrChecksum = ipv4_checksum(hdr.ipv4);
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
