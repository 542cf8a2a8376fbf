// update_checksum and verify_checksum: with each algorithm that fits, over the payload too, under conditions.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8>  check;          // which checks to make: 1 plain, 2 with payload, 4 crc32 of a varbit
    bit<8>  update;         // which fields to update
    bit<16> data;
    bit<16> plain;
    bit<16> payload;
    bit<32> crc;
    bit<16> xor_;
    bit<8>  length;         // of the option, in bytes
}

header option_t { varbit<64> bytes; }

header result_t { bit<8> failed; }

struct headers_t {
    ask_t    ask;
    option_t option;
    result_t result;
}

struct meta_t {}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        pkt.extract(hdr.option, (bit<32>) hdr.ask.length * 8);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) {
    apply {
        verify_checksum(hdr.ask.check & 1 != 0, { hdr.ask.data, hdr.ask.length, hdr.ask.update }, hdr.ask.plain,
                        HashAlgorithm.csum16);
        verify_checksum_with_payload(hdr.ask.check & 2 != 0, { hdr.ask.data }, hdr.ask.payload, HashAlgorithm.csum16);
        verify_checksum(hdr.ask.check & 4 != 0, { hdr.ask.data, hdr.option.bytes }, hdr.ask.crc, HashAlgorithm.crc32);
    }
}

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        hdr.result.setValid();
        hdr.result.failed = (bit<8>) std.checksum_error;
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {} }

control Compute(inout headers_t hdr, inout meta_t meta) {
    apply {
        update_checksum(hdr.ask.update & 1 != 0, { hdr.ask.data, hdr.ask.length, hdr.ask.update }, hdr.ask.plain,
                        HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.ask.update & 2 != 0, { hdr.ask.data }, hdr.ask.payload, HashAlgorithm.csum16);
        update_checksum(hdr.ask.update & 4 != 0, { hdr.ask.data, hdr.option.bytes }, hdr.ask.crc, HashAlgorithm.crc32);
        update_checksum_with_payload(hdr.ask.update & 8 != 0, { hdr.ask.data }, hdr.ask.xor_, HashAlgorithm.xor16);
    }
}

control Deparse(packet_out pkt, in headers_t hdr) {
    apply {
        pkt.emit(hdr.result);
        pkt.emit(hdr.ask);
        pkt.emit(hdr.option);
    }
}

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
