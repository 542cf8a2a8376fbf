// Each call of a custom CRC is a calculation with parameters of its own, by the name that p4c gives it.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8>  table_id;
    bit<72> text;
}

header results_t {
    bit<32> first;      // calc (and calc_1 for the second table)
    bit<32> second;     // calc_0
    bit<32> plain;      // calc_3
    bit<16> third;      // calc_4
    bit<16> checksum;   // calc_5
}

struct headers_t {
    ask_t     ask;
    results_t results;
}

struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ask);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action both() {
        hash(hdr.results.first, HashAlgorithm.crc32_custom, 32w0, { hdr.ask.text }, 33w1 << 32);
        hash(hdr.results.second, HashAlgorithm.crc32_custom, 32w0, { hdr.ask.text }, 33w1 << 32);
    }
    table one {
        actions = { both; }
        default_action = both();
    }
    table two {
        actions = { both; NoAction; }
        default_action = both();
    }
    apply {
        hdr.results.setValid();
        if (hdr.ask.table_id == 1) {
            one.apply();
        } else {
            two.apply();
        }
        hash(hdr.results.plain, HashAlgorithm.crc32, 32w0, { hdr.ask.text }, 33w1 << 32);
        hash(hdr.results.third, HashAlgorithm.crc16_custom, 16w0, { hdr.ask.text }, 32w0x10000);
        standard.egress_spec = 1;
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control C(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.results.isValid(), { hdr.ask.text }, hdr.results.checksum, HashAlgorithm.crc16_custom);
    }
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
