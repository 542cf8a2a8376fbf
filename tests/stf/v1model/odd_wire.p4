// A varbit that begins in the middle of a byte, and a deparser that emits in a loop.
#include <core.p4>
#include <v1model.p4>

header odd_t {
    bit<4> first;
    bit<8> bytes;
    varbit<80> middle;
    bit<12> last;
}

header tag_t {
    bit<8> value;
}

struct headers_t {
    odd_t odd;
    tag_t tag;
}

struct meta_t {
}

parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start {
        bit<16> ahead = p.lookahead<bit<16>>();
        p.extract(h.odd, (bit<32>)ahead[11:4] * 8);
        p.extract(h.tag);
        transition accept;
    }
}

control V(inout headers_t h, inout meta_t m) {
    apply { }
}

control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply {
        h.odd.first = h.odd.first + 1;
        h.odd.last = h.odd.last ^ 0xfff;
        s.egress_spec = 2;
    }
}

control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply { }
}

control C(inout headers_t h, inout meta_t m) {
    apply { }
}

control D(packet_out p, in headers_t h) {
    apply {
        p.emit(h.odd);
        for (bit<8> i = 0; i < h.tag.value; i = i + 1) {
            p.emit(h.tag);
        }
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
