// Checksums: in one block of operations and over several, with data that are there on some paths only, incrementally, and
// in controls that are applied twice.
#include <core.p4>
#include <psa.p4>

header H {
    bit<8>  op;
    bit<8>  n;
    bit<16> x;
    bit<16> y;
    bit<32> result;
}
header O { bit<16> z; }
struct Headers { H h; O o; }
struct Meta { bit<16> state; bit<32> crc; }
struct Nothing {}

control Add(inout bit<16> sum, in bit<16> x) {
    InternetChecksum() ck;
    apply {
        ck.add(x);
        sum = ck.get();
    }
}

parser IP(packet_in b, out Headers h, inout Meta m, in psa_ingress_parser_input_metadata_t i, in Nothing r, in Nothing c) {
    InternetChecksum() ck;
    Checksum<bit<32>>(PSA_HashAlgorithm_t.CRC32) crc;
    state start {
        b.extract(h.h);
        ck.subtract({ h.h.x });
        crc.update({ h.h.x });
        transition select(h.h.n) {
            1: more;
            default: done;
        }
    }
    state done {
        m.state = ck.get_state();
        crc.update(h.h.y);
        m.crc = crc.get();
        transition accept;
    }
    state more {
        b.extract(h.o);
        ck.subtract(h.o);
        crc.update(h.o);
        transition done;
    }
}

control I(inout Headers h, inout Meta m, in psa_ingress_input_metadata_t i, inout psa_ingress_output_metadata_t o) {
    apply {
        send_to_port(o, (PortId_t) 1);
        if (h.h.op == 3) { h.h.x = h.h.x + 1; }
    }
}

control ID(packet_out b, out Nothing c, out Nothing r, out Nothing n, inout Headers h, in Meta m,
           in psa_ingress_output_metadata_t o) {
    InternetChecksum() ck;
    Checksum<bit<32>>(PSA_HashAlgorithm_t.CRC32) crc;
    Checksum<bit<16>>(PSA_HashAlgorithm_t.ONES_COMPLEMENT16) sum;
    Add() add;
    apply {
        switch (h.h.op) {
            0: {
                ck.add({ h.h.x });
                ck.add({ h.h.y, 16w1 });
                h.h.result[15:0] = ck.get();
            }
            1: {
                ck.add({ h.h.x });
                if (h.o.isValid()) { ck.add(h.o); }
                ck.add({ h.h.y });
                h.h.result[15:0] = ck.get();
                ck.clear();
                h.h.result[31:16] = ck.get();
            }
            2: { h.h.result = m.crc; }
            3: {
                // RFC 1624: the sum of what the packet had, taken from `y`, and of what it has now.
                ck.set_state(m.state);
                ck.subtract(h.h.y);
                ck.add({ h.h.x });
                if (h.o.isValid()) { ck.add(h.o); }
                h.h.y = ck.get();
            }
            4: {
                crc.update(h.h.x);
                if (h.o.isValid()) { crc.update(h.o); }
                h.h.result = crc.get();
                if (h.h.n == 2) { crc.clear(); }
                crc.update({ 4w1, 4w2 });
                h.h.result = h.h.result ^ crc.get();
            }
            5: {
                sum.update({ h.h.op, h.h.n });
                sum.update(h.h.x);
                h.h.result[15:0] = sum.get();
            }
            6: {
                bit<16> first = 0;
                bit<16> second = 0;
                add.apply(first, h.h.x);
                add.apply(second, h.h.y);
                h.h.result = first ++ second;
            }
        }
        b.emit(h);
    }
}

parser EP(packet_in b, out Headers h, inout Meta m, in psa_egress_parser_input_metadata_t i, in Nothing n, in Nothing c,
          in Nothing e) {
    state start { transition accept; }
}

control E(inout Headers h, inout Meta m, in psa_egress_input_metadata_t i, inout psa_egress_output_metadata_t o) {
    apply {}
}

control ED(packet_out b, out Nothing c, out Nothing r, inout Headers h, in Meta m, in psa_egress_output_metadata_t o,
           in psa_egress_deparser_input_metadata_t i) {
    apply {}
}

PSA_Switch(IngressPipeline(IP(), I(), ID()), PacketReplicationEngine(), EgressPipeline(EP(), E(), ED()),
           BufferingQueueingEngine()) main;
