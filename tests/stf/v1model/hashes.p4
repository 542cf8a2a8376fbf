// hash() with each algorithm over the same data, and what base and max do. Checksums of the same data in Checksum16.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<16> base;
    bit<16> max;
    bit<8>  a;
    bit<4>  b;
    bit<12> c;
    bit<32> d;
    bit<64> e;
}

header results_t {
    bit<32> crc32;
    bit<32> crc32_custom;
    bit<16> crc16;
    bit<16> crc16_custom;
    bit<16> csum16;
    bit<16> xor16;
    bit<64> identity;       // of 8 + 4 + 12 + 32 bits
    bit<64> identity_long;  // of all: the first 64 bits
    bit<16> identity_odd;   // of 12 bits, which zeros behind them make 16
    bit<16> limited;        // crc16 with the packet's base and max
    bit<8>  narrow;         // the same in 8 bits
    bit<16> checksum16;
    bit<8>  random_works;
}

struct headers_t {
    ask_t     ask;
    results_t results;
}

struct meta_t {}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

struct data_t {
    bit<8>  a;
    bit<4>  b;
    bit<12> c;
    bit<32> d;
}

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    Checksum16() sum;
    apply {
        hdr.results.setValid();
        data_t data = { hdr.ask.a, hdr.ask.b, hdr.ask.c, hdr.ask.d };
        const bit<33> all = 1 << 32;
        hash(hdr.results.crc32, HashAlgorithm.crc32, 32w0, data, all);
        hash(hdr.results.crc32_custom, HashAlgorithm.crc32_custom, 32w0, data, all);
        hash(hdr.results.crc16, HashAlgorithm.crc16, 16w0, data, 32w0x10000);
        hash(hdr.results.crc16_custom, HashAlgorithm.crc16_custom, 16w0, data, 32w0x10000);
        hash(hdr.results.csum16, HashAlgorithm.csum16, 16w0, data, 32w0x10000);
        hash(hdr.results.xor16, HashAlgorithm.xor16, 16w0, data, 32w0x10000);
        hash(hdr.results.identity, HashAlgorithm.identity, 64w0, data, 65w1 << 64);
        hash(hdr.results.identity_long, HashAlgorithm.identity, 64w0, { data, hdr.ask.e }, 65w1 << 64);
        hash(hdr.results.identity_odd, HashAlgorithm.identity, 16w0, { hdr.ask.c }, 32w0x10000);
        hash(hdr.results.limited, HashAlgorithm.crc16, hdr.ask.base, data, hdr.ask.max);
        hash(hdr.results.narrow, HashAlgorithm.crc16, hdr.ask.base, data, hdr.ask.max);
        hdr.results.checksum16 = sum.get(data);
        // A random number is below its limit.
        bit<16> r;
        hash(r, HashAlgorithm.random, 16w5, data, 16w3);
        hdr.results.random_works = (r >= 5 && r <= 7) ? 8w1 : 0;
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {} }

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.results); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
