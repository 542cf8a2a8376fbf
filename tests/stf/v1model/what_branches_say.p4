// What a branch says of the values that it was made of: of a masked field not all bits, of a negated one the others, and nothing
// of what was assigned since.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8> a;
    bit<8> b;
}

header answer_t {
    bit<8> bits;
    bit<8> low;
    bit<8> negated;
    bit<8> joined;
    bit<8> both;
    bit<8> way;
}

struct headers_t {
    ask_t    ask;
    answer_t answer;
}

struct meta_t {
    bit<8> way;
}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        transition select(hdr.ask.a) {
            0x10 &&& 0xf0: tens;
            default: accept;
        }
    }
    state tens {
        meta.way = 1;
        transition select(hdr.ask.a) {
            0x10: ten;
            0x15: fifteen;
            default: accept;
        }
    }
    state ten {
        meta.way = 2;
        transition accept;
    }
    state fifteen {
        meta.way = 3;
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        hdr.answer.setValid();
        hdr.answer.bits = 3;
        hdr.answer.low = 3;
        hdr.answer.negated = 3;
        hdr.answer.joined = 3;
        hdr.answer.both = 3;
        if (hdr.ask.a & 2 == 2) {
            if (hdr.ask.a & 16 == 16) {
                hdr.answer.bits = 1;
            } else {
                hdr.answer.bits = 2;
            }
        }
        if (hdr.ask.a & 0xf == 3) {
            if (hdr.ask.a == 3) {
                hdr.answer.low = 1;
            } else {
                hdr.answer.low = 2;
            }
        }
        if (~hdr.ask.a == 0x0f) {
            if (hdr.ask.a == 0xf0) {
                hdr.answer.negated = 1;
            } else {
                hdr.answer.negated = 2;
            }
        }
        bit<8> k = hdr.ask.a;
        bool is = k ++ hdr.ask.b == 0x0304;
        k = k + 2;
        if (is) {
            if (k == 3) {
                hdr.answer.joined = 1;
            } else {
                hdr.answer.joined = 2;
            }
        }
        bit<8> m = hdr.ask.a;
        bool first = m == 3;
        bool second = hdr.ask.b == 4;
        bool all = first && second;
        m = m + 2;
        if (all) {
            if (m == 3) {
                hdr.answer.both = 1;
            } else {
                hdr.answer.both = 2;
            }
        }
        hdr.answer.way = meta.way;
        std.egress_spec = 1;
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {} }
control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }
control Deparse(packet_out pkt, in headers_t hdr) {
    apply {
        pkt.emit(hdr.ask);
        pkt.emit(hdr.answer);
    }
}

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
