// Two digests whose data are instances of one generic struct: two objects with two names.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> a; bit<16> b; }
struct pair_t<T> { T value; bit<8> tag; }
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
        digest<pair_t<bit<8>>>(1, (pair_t<bit<8>>){ value = hdr.h.a, tag = 1 });
        digest<pair_t<bit<16>>>(1, (pair_t<bit<16>>){ value = hdr.h.b, tag = 2 });
        sm.egress_spec = 1;
    }
}

control Checks(inout headers_t hdr, inout meta_t meta) { apply {} }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply {} }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }

V1Switch(P(), Checks(), I(), E(), Checks(), D()) main;
