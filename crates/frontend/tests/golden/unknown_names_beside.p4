// A missing semicolon in one control; unknown fields, methods and names in others are told, what may be declared in that control or
// in a struct with a mistake is not.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<16> type; }
header broken_t {
    bit<8> a
    bit<8> b c;
}
enum colour_t { RED, GREEN }
struct headers_t { ethernet_t e; broken_t b; }
struct meta_t { bit<8> m; colour_t c; }

parser P(packet_in pkt, out headers_t h, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(h.e);
        pkt.peek(h.b);
        transition accept;
    }
}
control Checks(inout headers_t h, inout meta_t meta) { apply { } }
action lost(inout bit<8> x) {
    x = 1
    shared_name = 2;
}
control I(inout headers_t h, inout meta_t meta, inout standard_metadata_t sm) {
    table t { key = { h.e.dst : exact; } actions = { NoAction; } }
    apply {
        h.e.nosuch = 1;
        sm.egress_sepc = 1;
        meta.m = undeclared_name;
        meta.c = colour_t.BLUE;
        if (t.hit) { meta.m = 1; }
        if (sm.parser_error == error.NoSuchError) { meta.m = 2; }
        truncate(lenght = 3);
        unknown_t value;
        h.b.c = 1;
        meta.m = shared_name;
        meta.m = .shared_name;
    }
}
control E(inout headers_t h, inout meta_t meta, inout standard_metadata_t sm) { apply { h.e.setValidity(); } }
control D(packet_out pkt, in headers_t h) { apply { pkt.emit(h.e); } }

V1Switch(P(), Checks(), I(), E(), Checks(), D()) main;
