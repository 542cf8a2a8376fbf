// What a frame's first byte says is its priority; all frames leave by port 2.
#include <core.p4>
#include <v1model.p4>

header first_t { bit<8> priority; }
struct headers_t { first_t first; }
struct meta_t { }

parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.first); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 2;
        s.priority = h.first.priority[2:0];
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.first); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
