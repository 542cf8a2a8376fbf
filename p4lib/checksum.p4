// Internet checksums (RFC 1071) that follow a change of what they cover, without reading the rest (RFC 1624).
//
// A change is a sum of words: the complements of those before and those after. Changes are added up, and one update takes them
// all:
//
//     bit<32> change = checksum_change32(hdr.ipv4.dstAddr, address) + checksum_change16(hdr.tcp.dstPort, port);
//     hdr.tcp.checksum = checksum_update(hdr.tcp.checksum, change);

#ifndef P4LIB_CHECKSUM_P4
#define P4LIB_CHECKSUM_P4

#include <p4lib/headers.p4>

// The sum of the words of 16 bits.
bit<32> checksum_words32(in bit<32> value) {
    return (bit<32>)value[31:16] + (bit<32>)value[15:0];
}

bit<32> checksum_words128(in bit<128> value) {
    return checksum_words32(value[127:96]) + checksum_words32(value[95:64]) + checksum_words32(value[63:32]) +
        checksum_words32(value[31:0]);
}

bit<32> checksum_change16(in bit<16> before, in bit<16> after) {
    return (bit<32>)(~before) + (bit<32>)after;
}

bit<32> checksum_change32(in bit<32> before, in bit<32> after) {
    return (bit<32>)(~before[31:16]) + (bit<32>)(~before[15:0]) + (bit<32>)after[31:16] + (bit<32>)after[15:0];
}

bit<32> checksum_change128(in bit<128> before, in bit<128> after) {
    return checksum_words128(~before) + checksum_words128(after);
}

// The complement of a sum of words, folded to 16 bits.
bit<16> checksum_of(in bit<32> words) {
    bit<32> sum = words;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return ~sum[15:0];
}

// RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
bit<16> checksum_update(in bit<16> checksum, in bit<32> change) {
    return checksum_of((bit<32>)(~checksum) + change);
}

// UDP's checksum, RFC 768: 0 says that the sender has computed none, so a sum that comes out as 0 is sent as all ones.
bit<16> checksum_update_udp(in bit<16> checksum, in bit<32> change) {
    bit<16> updated = checksum;
    if (checksum != 0) {
        updated = checksum_update(checksum, change);
        updated = updated == 0 ? 0xffff : updated;
    }
    return updated;
}

// The checksum of an IPv4 header without options, computed anew.
bit<16> ipv4_checksum(in ipv4_t ipv4) {
    return checksum_of((bit<32>)(ipv4.version ++ ipv4.ihl ++ ipv4.diffserv) + (bit<32>)ipv4.totalLen +
        (bit<32>)ipv4.identification + (bit<32>)(ipv4.flags ++ ipv4.fragOffset) + (bit<32>)(ipv4.ttl ++ ipv4.protocol) +
        checksum_words32(ipv4.srcAddr) + checksum_words32(ipv4.dstAddr));
}

// Setters that adjust the header's checksum.
void ipv4_decrement_ttl(inout ipv4_t ipv4) {
    bit<16> before = ipv4.ttl ++ 8w0;
    ipv4.ttl = ipv4.ttl - 1;
    ipv4.hdrChecksum = checksum_update(ipv4.hdrChecksum, checksum_change16(before, ipv4.ttl ++ 8w0));
}

void ipv4_set_ttl(inout ipv4_t ipv4, in bit<8> ttl) {
    ipv4.hdrChecksum = checksum_update(ipv4.hdrChecksum, checksum_change16(ipv4.ttl ++ 8w0, ttl ++ 8w0));
    ipv4.ttl = ttl;
}

// The ECN bits stay.
void ipv4_set_dscp(inout ipv4_t ipv4, in bit<6> dscp) {
    bit<32> change = checksum_change16(8w0 ++ (ipv4.diffserv & 0xfc), 8w0 ++ dscp ++ 2w0);
    ipv4.hdrChecksum = checksum_update(ipv4.hdrChecksum, change);
    ipv4.diffserv[7:2] = dscp;
}

#endif
