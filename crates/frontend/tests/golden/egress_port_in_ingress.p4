// Ingress chooses a port with `egress_spec`.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> x; }
struct headers_t { h_t h; }
struct meta_t { }

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        transition accept;
    }
}
control Checks(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    action forward(bit<9> port) { sm.egress_port = port; }
    table t { key = { hdr.h.x : exact; } actions = { forward; } }
    apply {
        sm.egress_port = 2;
        t.apply();
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.h); } }

V1Switch(P(), Checks(), I(), E(), Checks(), D()) main;
