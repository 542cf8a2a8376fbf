// The checksum controls of a program for v1model whose header `hdr.ipv4` is all that has one; and all of p4lib/v1model.p4.
//
// They are of the program's own types, so this is included behind them, as p4lib/v1model.p4 is. Headers with options are let
// be.

#ifndef P4LIB_V1MODEL_IPV4_P4
#define P4LIB_V1MODEL_IPV4_P4

#include <p4lib/v1model.p4>
#include <p4lib/v1model_checksum.p4>

control VerifyIpv4Checksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_ipv4_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5, hdr.ipv4);
    }
}

control UpdateIpv4Checksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_ipv4_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5, hdr.ipv4);
    }
}

#endif
