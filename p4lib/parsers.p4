// Parsers of headers that often come one after the other, for a program's parser to call:
//
//     state start {
//         ParseEthernetVlan.apply(packet, hdr.ethernet, hdr.vlan, meta.vid);
//         transition accept;
//     }
//
// A header that is not there is invalid afterwards; a packet that ends too early is rejected with error.PacketTooShort.

#ifndef P4LIB_PARSERS_P4
#define P4LIB_PARSERS_P4

#include <p4lib/headers.p4>

// Ethernet with one tag or none. `vid` is the tag's VLAN: 0 without a tag, and with one that only has a priority.
parser ParseEthernetVlan(packet_in packet, out ethernet_t ethernet, out vlan_t vlan, out bit<12> vid) {
    state start {
        packet.extract(ethernet);
        vid = 0;
        transition select(ethernet.etherType) {
            ETHERTYPE_VLAN: tagged;
            default: accept;
        }
    }
    state tagged {
        packet.extract(vlan);
        vid = vlan.vid;
        transition accept;
    }
}

// The same, and IPv4 if that follows. Options are payload.
parser ParseEthernetVlanIpv4(packet_in packet, out ethernet_t ethernet, out vlan_t vlan, out ipv4_t ipv4, out bit<12> vid) {
    state start {
        packet.extract(ethernet);
        vid = 0;
        transition select(ethernet.etherType) {
            ETHERTYPE_VLAN: tagged;
            ETHERTYPE_IPV4: network;
            default: accept;
        }
    }
    state tagged {
        packet.extract(vlan);
        vid = vlan.vid;
        transition select(vlan.etherType) {
            ETHERTYPE_IPV4: network;
            default: accept;
        }
    }
    state network {
        packet.extract(ipv4);
        transition accept;
    }
}

// Ethernet without a tag, and IPv4 if that follows. Options are payload.
parser ParseEthernetIpv4(packet_in packet, out ethernet_t ethernet, out ipv4_t ipv4) {
    state start {
        packet.extract(ethernet);
        transition select(ethernet.etherType) {
            ETHERTYPE_IPV4: network;
            default: accept;
        }
    }
    state network {
        packet.extract(ipv4);
        transition accept;
    }
}

// Ethernet without a tag, and ARP or IPv4 if that follows.
parser ParseEthernetArpIpv4(packet_in packet, out ethernet_t ethernet, out arp_t arp, out ipv4_t ipv4) {
    state start {
        packet.extract(ethernet);
        transition select(ethernet.etherType) {
            ETHERTYPE_IPV4: network;
            ETHERTYPE_ARP: resolution;
            default: accept;
        }
    }
    state network {
        packet.extract(ipv4);
        transition accept;
    }
    state resolution {
        packet.extract(arp);
        transition accept;
    }
}

// Ethernet, and IPv4 with one MPLS label or none. What is below a label that is not the last one is payload.
parser ParseEthernetMplsIpv4(packet_in packet, out ethernet_t ethernet, out mpls_t mpls, out ipv4_t ipv4) {
    state start {
        packet.extract(ethernet);
        transition select(ethernet.etherType) {
            ETHERTYPE_MPLS: label;
            ETHERTYPE_IPV4: network;
            default: accept;
        }
    }
    state label {
        packet.extract(mpls);
        transition select(mpls.bos) {
            1: network;
            default: accept;
        }
    }
    state network {
        packet.extract(ipv4);
        transition accept;
    }
}

// IPv4, and TCP unless options are in between or this is a later fragment.
parser ParseIpv4Tcp(packet_in packet, out ipv4_t ipv4, out tcp_t tcp) {
    state start {
        packet.extract(ipv4);
        transition select(ipv4.ihl, ipv4.fragOffset, ipv4.protocol) {
            (5, 0, IP_PROTO_TCP): transport;
            default: accept;
        }
    }
    state transport {
        packet.extract(tcp);
        transition accept;
    }
}

// IPv4, and TCP or UDP unless options are in between or this is a later fragment.
parser ParseIpv4Transport(packet_in packet, out ipv4_t ipv4, out tcp_t tcp, out udp_t udp) {
    state start {
        packet.extract(ipv4);
        transition select(ipv4.ihl, ipv4.fragOffset, ipv4.protocol) {
            (5, 0, IP_PROTO_TCP): tcp_header;
            (5, 0, IP_PROTO_UDP): udp_header;
            default: accept;
        }
    }
    state tcp_header {
        packet.extract(tcp);
        transition accept;
    }
    state udp_header {
        packet.extract(udp);
        transition accept;
    }
}

// IPv6, and TCP or UDP if nothing is in between.
parser ParseIpv6Transport(packet_in packet, out ipv6_t ipv6, out tcp_t tcp, out udp_t udp) {
    state start {
        packet.extract(ipv6);
        transition select(ipv6.nextHdr) {
            IP_PROTO_TCP: tcp_header;
            IP_PROTO_UDP: udp_header;
            default: accept;
        }
    }
    state tcp_header {
        packet.extract(tcp);
        transition accept;
    }
    state udp_header {
        packet.extract(udp);
        transition accept;
    }
}

#endif
