// What deparsers emit: headers as they are when `emit` is called, on the paths that call it.
#include <core.p4>
#include <psa.p4>

header A { bit<8> x; }
header V { bit<8> n; varbit<32> v; }
struct Headers { A what; A a; A b; A[3] stack; V v; }
struct Meta { bit<8> x; }
struct Nothing {}

parser IP(packet_in p, out Headers h, inout Meta m, in psa_ingress_parser_input_metadata_t i, in Nothing r, in Nothing c) {
    state start {
        p.extract(h.what);
        p.extract(h.a);
        p.extract(h.b);
        p.extract(h.stack.next);
        p.extract(h.stack.next);
        transition select(p.lookahead<bit<8>>()) {
            0 .. 4: variable;
            default: accept;
        }
    }
    state variable {
        p.extract(h.v, ((bit<32>) p.lookahead<bit<8>>()) * 8);
        transition accept;
    }
}

control I(inout Headers h, inout Meta m, in psa_ingress_input_metadata_t i, inout psa_ingress_output_metadata_t o) {
    apply { send_to_port(o, (PortId_t) 1); }
}


control ID(packet_out p, out Nothing c, out Nothing r, out Nothing n, inout Headers h, in Meta m,
           in psa_ingress_output_metadata_t o) {
    apply {
        p.emit(h.what);
        if (h.what.x == 1) {
            // Changed behind the call: the first one is emitted as it was, and the second as it is now.
            p.emit(h.a);
            h.a.x = 0x77;
            p.emit(h.a);
        } else if (h.what.x == 2) {
            p.emit(h.b);
            h.b.setInvalid();
            p.emit(h.b);
            p.emit(h.a);
        } else if (h.what.x == 3) {
            p.emit(h.v);
            h.v.n = 0;
            h.v.setInvalid();
        } else {
            p.emit(h.a);
            p.emit(h.b);
        }
        h.stack.push_front(1);
        h.stack[0].setValid();
        h.stack[0].x = 0x99;
        p.emit(h.stack);
        p.emit(h.v);
        if (h.what.x == 4) { return; }
        p.emit(h.b);
    }
}

parser EP(packet_in p, out Headers h, inout Meta m, in psa_egress_parser_input_metadata_t i, in Nothing n, in Nothing c,
          in Nothing e) {
    state start { p.extract(h.what); transition accept; }
}

control E(inout Headers h, inout Meta m, in psa_egress_input_metadata_t i, inout psa_egress_output_metadata_t o) {
    apply { if (h.what.x == 9) { exit; } h.a.setValid(); h.a.x = 0xee; }
}

control ED(packet_out p, out Nothing c, out Nothing r, inout Headers h, in Meta m, in psa_egress_output_metadata_t o,
           in psa_egress_deparser_input_metadata_t i) {
    apply { p.emit(h.a); p.emit(h.what); }
}

PSA_Switch(IngressPipeline(IP(), I(), ID()), PacketReplicationEngine(), EgressPipeline(EP(), E(), ED()),
           BufferingQueueingEngine()) main;
