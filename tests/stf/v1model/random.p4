// random(): within its bounds at every width, signed too; lo where hi is less.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<16> low;
    bit<16> high;
}

header result_t {
    bit<8>  outside;        // a bit for each number that is out of its bounds
    bit<16> one;            // random(low, low)
    bit<16> less;           // random(high, low)
    bit<8>  one_bit;        // whether bit<1> and bit<200> gave both values in 64 draws
}

struct headers_t {
    ask_t    ask;
    result_t result;
}

struct meta_t {}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        hdr.result.setValid();
        bit<16> a;
        random(a, hdr.ask.low, hdr.ask.high);
        if (a < hdr.ask.low || a > hdr.ask.high) { hdr.result.outside = hdr.result.outside | 1; }
        int<16> b;
        random(b, (int<16>) hdr.ask.low - 20, (int<16>) hdr.ask.low - 10);
        if (b < (int<16>) hdr.ask.low - 20 || b > (int<16>) hdr.ask.low - 10) {
            hdr.result.outside = hdr.result.outside | 2;
        }
        bit<200> c;
        bit<200> floor = (bit<200>) hdr.ask.low << 180;
        random(c, floor, floor + 1000);
        if (c < floor || c > floor + 1000) { hdr.result.outside = hdr.result.outside | 4; }
        int<130> d;
        random(d, -5, 5);
        if (d < -5 || d > 5) { hdr.result.outside = hdr.result.outside | 8; }
        bit<64> e;
        random(e, 64w0xfffffffffffffff0, 64w0xffffffffffffffff);
        if (e < 64w0xfffffffffffffff0) { hdr.result.outside = hdr.result.outside | 16; }
        random(hdr.result.one, hdr.ask.low, hdr.ask.low);
        random(hdr.result.less, hdr.ask.high, hdr.ask.low);

        bit<64> bits = 0;
        bit<64> tops = 0;
        for (bit<8> i in 8w1 .. 8w64) {
            bit<1> bit_;
            random(bit_, 0, 1);
            bits = bits << 1 | (bit<64>) bit_;
            bit<200> wide;
            random(wide, 200w0, (200w1 << 199) | ((200w1 << 199) - 1));
            tops = tops << 1 | (bit<64>) wide[199:199];
        }
        bool both = bits != 0 && bits != 64w0xffffffffffffffff && tops != 0 && tops != 64w0xffffffffffffffff;
        hdr.result.one_bit = both ? 8w1 : 0;
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {} }

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.result); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
