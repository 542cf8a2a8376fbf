// Ingress and egress both add and remove headers of every kind: the egress parser must find what the ingress deparser has put
// there, wherever in its buffer the frame has gone. The first two bytes say what to do, ingress by the one, egress by the other.
#include <core.p4>
#include <psa.p4>

header Asked { bit<8> ingress; bit<8> egress; bit<8> tags; bit<8> kind; }
header Tag { bit<4> a; bit<12> id; bit<8> count; }
header Long { bit<1024> a; bit<64> b; }
header Options { bit<8> n; varbit<128> data; }

struct Headers { Asked asked; Tag[3] tags; Long long; Options options; }
struct Meta { bit<8> left; }
struct Nothing {}

parser Body(packet_in b, inout Headers h, inout Meta m) {
    state start {
        b.extract(h.asked);
        m.left = h.asked.tags & 3;
        transition select(m.left) {
            0: rest;
            default: tag;
        }
    }
    state tag {
        b.extract(h.tags.next);
        m.left = m.left - 1;
        transition select(m.left) {
            0: rest;
            default: tag;
        }
    }
    state rest {
        transition select(h.asked.kind) {
            1: long;
            2: options;
            default: accept;
        }
    }
    state long { b.extract(h.long); transition accept; }
    state options {
        bit<8> n = b.lookahead<bit<8>>();
        verify(n <= 16, error.HeaderTooShort);
        b.extract(h.options, (bit<32>) n * 8);
        transition accept;
    }
}

control Change(inout Headers h, in bit<8> what) {
    apply {
        if (what[0:0] == 1) {
            h.tags.push_front(1);
            h.tags[0].setValid();
            h.tags[0].id = 0xabc;
            h.tags[0].count = h.tags[1].count + 1;
        }
        if (what[1:1] == 1) {
            h.tags.pop_front(1);
        }
        if (what[2:2] == 1) {
            h.long.setValid();
            h.long.b = h.long.b + 1;
            h.asked.kind = 1;
            h.options.setInvalid();
        }
        if (what[3:3] == 1) {
            h.long.setInvalid();
            h.asked.kind = 0;
        }
        if (what[4:4] == 1 && h.options.isValid()) {
            h.options.setInvalid();
            h.asked.kind = 0;
        }
        if (what[5:5] == 1) {
            h.tags[1].count = 0x5a;
        }
        if (what[6:6] == 1) {
            h.tags[2].setValid();
            h.tags[2].a = h.tags[1].a;
        }
        h.asked.tags = 0;
        if (h.tags[0].isValid()) { h.asked.tags = h.asked.tags + 1; }
        if (h.tags[1].isValid()) { h.asked.tags = h.asked.tags + 1; }
        if (h.tags[2].isValid()) { h.asked.tags = h.asked.tags + 1; }
    }
}

parser IP(packet_in b, out Headers h, inout Meta m, in psa_ingress_parser_input_metadata_t i, in Nothing r, in Nothing c) {
    Body() body;
    state start { body.apply(b, h, m); transition accept; }
}

control I(inout Headers h, inout Meta m, in psa_ingress_input_metadata_t i, inout psa_ingress_output_metadata_t o) {
    Change() change;
    apply {
        if (i.parser_error == error.NoError) {
            send_to_port(o, (PortId_t) 1);
            change.apply(h, h.asked.ingress);
        }
    }
}

control ID(packet_out b, out Nothing c, out Nothing r, out Nothing n, inout Headers h, in Meta m,
           in psa_ingress_output_metadata_t o) {
    apply { b.emit(h); }
}

parser EP(packet_in b, out Headers h, inout Meta m, in psa_egress_parser_input_metadata_t i, in Nothing n, in Nothing c,
          in Nothing e) {
    Body() body;
    state start { body.apply(b, h, m); transition accept; }
}

control E(inout Headers h, inout Meta m, in psa_egress_input_metadata_t i, inout psa_egress_output_metadata_t o) {
    Change() change;
    apply {
        if (i.parser_error != error.NoError) { egress_drop(o); }
        change.apply(h, h.asked.egress);
    }
}

control ED(packet_out b, out Nothing c, out Nothing r, inout Headers h, in Meta m, in psa_egress_output_metadata_t o,
           in psa_egress_deparser_input_metadata_t i) {
    apply { b.emit(h); }
}

PSA_Switch(IngressPipeline(IP(), I(), ID()), PacketReplicationEngine(), EgressPipeline(EP(), E(), ED()),
           BufferingQueueingEngine()) main;
