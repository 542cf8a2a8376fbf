// Saturating sums and differences where one side is the largest or smallest number: a comparison and a choice of the
// same 128 bits.
#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<128> a;
    bit<128> b;
    int<128> c;
}
struct headers_t { h_t h; }
struct meta_t {}

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        transition accept;
    }
}

control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        bit<128> max = 128w0xffffffffffffffffffffffffffffffff;
        bit<128> a = hdr.h.a;
        hdr.h.a = max |+| a;
        hdr.h.b = (max |-| a) |-| hdr.h.b;
        hdr.h.c = (int<128>)(a < hdr.h.b ? a : hdr.h.b) |+| hdr.h.c;
        sm.egress_spec = 1;
    }
}

control Checks(inout headers_t hdr, inout meta_t meta) { apply {} }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply {} }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }

V1Switch(P(), Checks(), I(), E(), Checks(), D()) main;
