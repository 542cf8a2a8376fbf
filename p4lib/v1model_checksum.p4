// The checksum of IPv4 headers by v1model's externs, for a program's checksum controls.
//
// They leave out options, so `when` has to see to it that there are none.

#ifndef P4LIB_V1MODEL_CHECKSUM_P4
#define P4LIB_V1MODEL_CHECKSUM_P4

#include <v1model.p4>
#include <p4lib/headers.p4>

// Sets standard_metadata.checksum_error if the checksum is wrong.
void verify_ipv4_checksum(in bool when, in ipv4_t ipv4) {
    verify_checksum(when,
        { ipv4.version, ipv4.ihl, ipv4.diffserv, ipv4.totalLen, ipv4.identification, ipv4.flags, ipv4.fragOffset, ipv4.ttl,
          ipv4.protocol, ipv4.srcAddr, ipv4.dstAddr },
        ipv4.hdrChecksum, HashAlgorithm.csum16);
}

void update_ipv4_checksum(in bool when, inout ipv4_t ipv4) {
    update_checksum(when,
        { ipv4.version, ipv4.ihl, ipv4.diffserv, ipv4.totalLen, ipv4.identification, ipv4.flags, ipv4.fragOffset, ipv4.ttl,
          ipv4.protocol, ipv4.srcAddr, ipv4.dstAddr },
        ipv4.hdrChecksum, HashAlgorithm.csum16);
}

#endif
