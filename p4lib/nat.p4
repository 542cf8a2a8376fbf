// Network address translation: addresses of IPv4 and IPv6, and what that changes in the headers behind.
//
// Functions that set addresses return the change for the transport header, whose checksum covers addresses and ports:
//
//     bit<32> change = nat44_set_src(hdr.ipv4, address);
//     nat_transport(hdr.tcp, hdr.udp, change);
//
// With ports: add `nat_set_port(hdr.tcp.srcPort, port)` to the change. The checksum of an ICMP message covers no addresses of
// its IPv4 packet; that of ICMPv6 does (`nat_icmpv6`).

#ifndef P4LIB_NAT_P4
#define P4LIB_NAT_P4

#include <p4lib/checksum.p4>

bit<32> nat44_set_src(inout ipv4_t ipv4, in bit<32> srcAddr) {
    bit<32> change = checksum_change32(ipv4.srcAddr, srcAddr);
    ipv4.srcAddr = srcAddr;
    ipv4.hdrChecksum = checksum_update(ipv4.hdrChecksum, change);
    return change;
}

bit<32> nat44_set_dst(inout ipv4_t ipv4, in bit<32> dstAddr) {
    bit<32> change = checksum_change32(ipv4.dstAddr, dstAddr);
    ipv4.dstAddr = dstAddr;
    ipv4.hdrChecksum = checksum_update(ipv4.hdrChecksum, change);
    return change;
}

bit<32> nat44_set_both(inout ipv4_t ipv4, in bit<32> srcAddr, in bit<32> dstAddr) {
    bit<32> change = checksum_change32(ipv4.srcAddr, srcAddr) + checksum_change32(ipv4.dstAddr, dstAddr);
    ipv4.srcAddr = srcAddr;
    ipv4.dstAddr = dstAddr;
    ipv4.hdrChecksum = checksum_update(ipv4.hdrChecksum, change);
    return change;
}

bit<32> nat66_set_src(inout ipv6_t ipv6, in bit<128> srcAddr) {
    bit<32> change = checksum_change128(ipv6.srcAddr, srcAddr);
    ipv6.srcAddr = srcAddr;
    return change;
}

bit<32> nat66_set_dst(inout ipv6_t ipv6, in bit<128> dstAddr) {
    bit<32> change = checksum_change128(ipv6.dstAddr, dstAddr);
    ipv6.dstAddr = dstAddr;
    return change;
}

// Sets a port, or the identifier of an echo, and returns the change.
bit<32> nat_set_port(inout bit<16> field, in bit<16> port) {
    bit<32> change = checksum_change16(field, port);
    field = port;
    return change;
}

// Adjusts the checksum of the transport header that is valid, if one is.
void nat_transport(inout tcp_t tcp, inout udp_t udp, in bit<32> change) {
    if (tcp.isValid()) {
        tcp.checksum = checksum_update(tcp.checksum, change);
    }
    if (udp.isValid()) {
        udp.checksum = checksum_update_udp(udp.checksum, change);
    }
}

void nat_icmpv6(inout icmpv6_t icmpv6, in bit<32> change) {
    if (icmpv6.isValid()) {
        icmpv6.checksum = checksum_update(icmpv6.checksum, change);
    }
}

#endif
