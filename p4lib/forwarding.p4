// What a router does to a packet that it forwards (RFC 1812, RFC 8200): the next link's addresses, and one hop less. The caller
// has seen to it that one is left.

#ifndef P4LIB_FORWARDING_P4
#define P4LIB_FORWARDING_P4

#include <p4lib/headers.p4>

// The checksum is the caller's: `UpdateIpv4Checksum`, or `ipv4_checksum`.
void ipv4_forward(inout ethernet_t ethernet, inout ipv4_t ipv4, in bit<48> srcAddr, in bit<48> dstAddr) {
    ethernet.srcAddr = srcAddr;
    ethernet.dstAddr = dstAddr;
    ipv4.ttl = ipv4.ttl - 1;
}

void ipv6_forward(inout ethernet_t ethernet, inout ipv6_t ipv6, in bit<48> srcAddr, in bit<48> dstAddr) {
    ethernet.srcAddr = srcAddr;
    ethernet.dstAddr = dstAddr;
    ipv6.hopLimit = ipv6.hopLimit - 1;
}

#endif
