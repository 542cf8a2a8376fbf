// A union as a whole becomes invalid when one of its members is made invalid, or is assigned an invalid header.
#include <core.p4>
#include <v1model.p4>

header a_t { bit<8> how; }
header b_t { bit<8> how; }
header_union u_t { a_t a; b_t b; }
struct headers_t { a_t first; u_t u; }
struct meta_t {}

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.first);
        pkt.extract(hdr.u.a);
        transition accept;
    }
}

control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        b_t nothing;
        nothing.setInvalid();
        switch (hdr.first.how) {
            1: { hdr.u.b.setInvalid(); }
            2: { hdr.u.b = nothing; }
            3: { hdr.u.b = { how = 9 }; }
            4: { hdr.u.a.setInvalid(); }
            default: {}
        }
        sm.egress_spec = hdr.u.a.isValid() ? 9w1 : hdr.u.b.isValid() ? 9w2 : 9w3;
    }
}

control Checks(inout headers_t hdr, inout meta_t meta) { apply {} }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply {} }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }

V1Switch(P(), Checks(), I(), E(), Checks(), D()) main;
