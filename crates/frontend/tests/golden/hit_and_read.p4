// What a table says and what a register holds are not asked for as in other languages.
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
    register<bit<8>>(4) reg;
    table t { key = { hdr.h.x : exact; } actions = { NoAction; } }
    apply {
        if (t.hit()) { sm.egress_spec = 1; }
        if (t.apply().miss()) { sm.egress_spec = 2; }
        if (t.hit) { sm.egress_spec = 3; }
        if (t.miss) { sm.egress_spec = 4; }
        switch (t.action_run) { NoAction: { } }
        if (t.size > 1) { sm.egress_spec = 5; }
        bit<8> value = reg.read(3);
        reg.read(hdr.h.x);
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.h); } }

V1Switch(P(), Checks(), I(), E(), Checks(), D()) main;
