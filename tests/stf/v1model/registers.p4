// Registers of every kind of type.

#include <core.p4>
#include <v1model.p4>

enum Colour { red, green, blue }
enum bit<8> Kind { one = 1, seven = 7 }

header ask_t {
    bit<8>   write;         // 1: write the values, 0: read them
    bit<8>   index;
    bit<8>   narrow;        // its low 5 bits
    bit<8>   signed_;
    bit<104> wide;
    bit<8>   flag;
    bit<8>   colour;
    bit<8>   kind;
    bit<8>   first;
    bit<16>  second;
    bit<8>   valid;
}

struct inner_t {
    bool   set;
    bit<9> port;
}

struct pair_t {
    int<5>   first;
    inner_t  inner;
    bit<70>  long;
    Colour   colour;
}

header small_t { bit<8> a; bit<8> b; }

struct headers_t { ask_t ask; }

struct meta_t {}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    register<bit<5>>(4) narrow;
    register<int<8>>(4) of_int;
    register<bit<100>>(4) wide;
    register<bool>(4) flags;
    register<Colour>(4) colours;
    register<Kind>(4) kinds;
    register<pair_t>(4) pairs;
    register<tuple<bit<8>, bit<16>>>(4) tuples;
    register<small_t>(4) smalls;

    action put(bit<32> i) {
        narrow.write(i, (bit<5>) hdr.ask.narrow);
        of_int.write(i, (int<8>) hdr.ask.signed_);
        wide.write(i, (bit<100>) hdr.ask.wide);
        flags.write(i, hdr.ask.flag == 1);
        Colour colour = Colour.red;
        if (hdr.ask.colour == 1) { colour = Colour.green; }
        if (hdr.ask.colour == 2) { colour = Colour.blue; }
        colours.write(i, colour);
        kinds.write(i, (Kind) hdr.ask.kind);
        pair_t pair;
        pair.first = (int<5>) (int<8>) hdr.ask.signed_;
        pair.inner.set = hdr.ask.flag == 1;
        pair.inner.port = (bit<9>) hdr.ask.second;
        pair.long = (bit<70>) hdr.ask.wide;
        pair.colour = colour;
        pairs.write(i, pair);
        tuples.write(i, { hdr.ask.first, hdr.ask.second });
        small_t small;
        small.setInvalid();
        if (hdr.ask.valid == 1) { small = { hdr.ask.first, hdr.ask.kind }; }
        smalls.write(i, small);
    }

    action get(bit<32> i) {
        bit<5> n;
        narrow.read(n, i);
        hdr.ask.narrow = (bit<8>) n;
        int<8> s;
        of_int.read(s, i);
        s = s >> 1;
        hdr.ask.signed_ = (bit<8>) s;
        bit<100> w;
        wide.read(w, i);
        hdr.ask.wide = (bit<104>) w;
        bool f;
        flags.read(f, i);
        hdr.ask.flag = f ? 8w1 : 0;
        Colour colour;
        colours.read(colour, i);
        hdr.ask.colour = colour == Colour.blue ? 8w2 : colour == Colour.green ? 8w1 : 0;
        Kind kind;
        kinds.read(kind, i);
        hdr.ask.kind = (bit<8>) kind;
        tuple<bit<8>, bit<16>> both;
        tuples.read(both, i);
        hdr.ask.first = both[0];
        hdr.ask.second = both[1];
        pair_t pair;
        pairs.read(pair, i);
        // The struct says the same as the others, or the packet leaves elsewhere.
        if (pair.inner.set != f || pair.inner.port != (bit<9>) both[1] || pair.long != (bit<70>) w
            || pair.colour != colour || pair.first >> 1 != (int<5>) s) {
            std.egress_spec = 7;
        }
        small_t small;
        smalls.read(small, i);
        hdr.ask.valid = small.isValid() ? 8w1 : 0;
        if (small.isValid() && small.a != both[0]) { std.egress_spec = 8; }
    }

    apply {
        std.egress_spec = 1;
        if (hdr.ask.write == 1) {
            put((bit<32>) hdr.ask.index);
        } else {
            get((bit<32>) hdr.ask.index);
        }
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {} }

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.ask); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
