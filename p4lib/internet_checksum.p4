// The checksum of IPv4 headers by InternetChecksum, which psa.p4 and pna.p4 have; included behind either.

#ifndef P4LIB_INTERNET_CHECKSUM_P4
#define P4LIB_INTERNET_CHECKSUM_P4

#include <p4lib/headers.p4>

// Adds up a header without options, its checksum left out, so that `sum.get()` is what that should be.
void add_ipv4(InternetChecksum sum, in ipv4_t ipv4) {
    sum.add({ ipv4.version, ipv4.ihl, ipv4.diffserv, ipv4.totalLen, ipv4.identification, ipv4.flags, ipv4.fragOffset,
              ipv4.ttl, ipv4.protocol, ipv4.srcAddr, ipv4.dstAddr });
}

error {
    WrongChecksum
}

// As ParseEthernetIpv4 of p4lib/parsers.p4; an IPv4 header whose checksum is wrong is rejected with error.WrongChecksum.
// Options are not summed, so a program that wants none checks ihl too.
parser ParseEthernetIpv4Verified(packet_in packet, out ethernet_t ethernet, out ipv4_t ipv4) {
    InternetChecksum() sum;
    state start {
        packet.extract(ethernet);
        transition select(ethernet.etherType) {
            ETHERTYPE_IPV4: network;
            default: accept;
        }
    }
    state network {
        packet.extract(ipv4);
        add_ipv4(sum, ipv4);
        verify(sum.get() == ipv4.hdrChecksum, error.WrongChecksum);
        transition accept;
    }
}

#endif
