// A variable and a part of it as two arguments of one call: each parameter is a variable of its own in the call, and they are copied back in
// the order of parameters, so that the last one wins (P4_16, "Calling convention: call by copy in/copy out").
#include <core.p4>
#include <v1model.p4>

header how_t { bit<8> how; bit<8> at; }
header pair_t { bit<8> x; bit<8> y; }
struct plain_t { bit<8> x; bit<8> y; }
struct headers_t { how_t how; pair_t h; pair_t[2] s; }
struct meta_t { plain_t p; }

void part_first(inout bit<8> part, inout pair_t whole) {
    part = part + 1;
    whole.x = whole.x + 2;
    whole.y = part;
}
void whole_first(inout pair_t whole, inout bit<8> part) {
    part = part + 1;
    whole.x = whole.x + 2;
    whole.y = part;
}
void plain_part_first(inout bit<8> part, inout plain_t whole) {
    part = part + 1;
    whole.x = whole.x + 2;
    whole.y = part;
}
void plain_whole_first(inout plain_t whole, inout bit<8> part) {
    part = part + 1;
    whole.x = whole.x + 2;
    whole.y = part;
}
void same(inout bit<8> first, inout bit<8> second) {
    second = first + 2;
    first = 0;
}
void bits_first(inout bit<4> low, inout bit<8> all) {
    low = 1;
    all = 0xa0;
}
void bits_last(inout bit<8> all, inout bit<4> low) {
    low = 1;
    all = 0xa0;
}
void out_first(out bit<8> part, inout pair_t whole) {
    part = 7;
    whole.y = part;
}
void element_first(inout bit<8> part, inout pair_t[2] all) {
    part = 0x55;
    all[0].y = part;
    all[1].y = part + 1;
}
void three(inout bit<8> x, inout pair_t whole, inout bit<8> y) {
    x = 1;
    whole.x = 2;
    whole.y = 3;
    y = 4;
}

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.how);
        pkt.extract(hdr.h);
        pkt.extract(hdr.s[0]);
        pkt.extract(hdr.s[1]);
        meta.p.x = hdr.h.x;
        meta.p.y = hdr.h.y;
        transition accept;
    }
}

control Swap(inout bit<8> part, inout headers_t all) {
    apply {
        part = 0x11;
        all.h.x = 0x22;
        if (all.how.at == 1) { exit; }
        all.h.y = 0x33;
    }
}

control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    Swap() swap;
    action act(inout bit<8> part, inout pair_t whole) {
        part = 5;
        whole.x = 6;
        hdr.h.y = 9;
    }
    apply {
        sm.egress_spec = 1;
        switch (hdr.how.how) {
            1: { part_first(hdr.h.x, hdr.h); }
            2: { whole_first(hdr.h, hdr.h.x); }
            3: { plain_part_first(meta.p.x, meta.p); hdr.h = { meta.p.x, meta.p.y }; }
            4: { plain_whole_first(meta.p, meta.p.x); hdr.h = { meta.p.x, meta.p.y }; }
            5: { same(hdr.h.x, hdr.h.x); }
            6: { bits_first(hdr.h.x[3:0], hdr.h.x); }
            7: { bits_last(hdr.h.x, hdr.h.x[3:0]); }
            8: { out_first(hdr.h.x, hdr.h); }
            9: { element_first(hdr.s[hdr.how.at].x, hdr.s); }
            10: { three(hdr.h.x, hdr.h, hdr.h.y); }
            11: { swap.apply(hdr.h.x, hdr); }
            12: { act(hdr.h.x, hdr.h); }
            default: {}
        }
    }
}

control Checks(inout headers_t hdr, inout meta_t meta) { apply {} }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply {} }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }

V1Switch(P(), Checks(), I(), E(), Checks(), D()) main;
