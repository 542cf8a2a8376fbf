// A member of a union is assigned from another member of it: the value is read before the other one becomes invalid.
#include <core.p4>
#include <v1model.p4>

header a_t { bit<8> f; bit<8> g; }
header b_t { bit<16> w; }
header_union u_t { a_t x; a_t y; b_t z; }
struct headers_t { u_t u; }
struct meta_t {}

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.u.x);
        transition accept;
    }
}

control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        hdr.u.y = hdr.u.x;
        if (hdr.u.y.f == 1) {
            hdr.u.z = (b_t){ w = hdr.u.y.f ++ hdr.u.y.g };
        }
        if (hdr.u.y.f == 2) {
            // Both are valid or invalid together: nothing changes.
            hdr.u.y = hdr.u.y;
        }
        sm.egress_spec = hdr.u.x.isValid() ? 9w7 : hdr.u.z.isValid() ? 9w2 : hdr.u.y.isValid() ? 9w1 : 9w6;
    }
}

control Checks(inout headers_t hdr, inout meta_t meta) { apply {} }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply {} }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.u); } }

V1Switch(P(), Checks(), I(), E(), Checks(), D()) main;
