// Exact keys that are constants where the table is applied.

#include <core.p4>
#include <v1model.p4>
header h_t { bit<32> a; bit<64> b; bit<8> seen; }
struct headers_t { h_t h; }
struct meta_t { bit<32> k; bit<64> l; }
parser P(packet_in p, out headers_t hdr, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers_t hdr, inout meta_t m) { apply { } }
control I(inout headers_t hdr, inout meta_t m, inout standard_metadata_t s) {
    action set(bit<8> x) { hdr.h.seen = x; }
    table t { key = { m.k: exact; } actions = { set; NoAction; } size = 1024; }
    table u { key = { m.l: exact; } actions = { set; NoAction; } size = 1024; }
    apply {
        s.egress_spec = 1;
        m.k = 5;
        m.l = 7;
        if (hdr.h.a == 5) { m.k = 9; }
        t.apply();
        m.l = 64w3;
        if (hdr.h.a == 6) { u.apply(); }
        if (hdr.h.b == 4) { m.l = hdr.h.b; u.apply(); }
    }
}
control E(inout headers_t hdr, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t hdr, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t hdr) { apply { p.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
