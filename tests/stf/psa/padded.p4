// An `InternetChecksum` of data that end within a word of 16 bits: zero bits fill it.
#include <core.p4>
#include <psa.p4>

header H { bit<8> a; bit<4> b; bit<4> rest; bit<16> result; }
struct Headers { H h; }
struct Nothing {}

parser IP(packet_in b, out Headers h, inout Nothing m, in psa_ingress_parser_input_metadata_t i, in Nothing r, in Nothing c) {
    state start { b.extract(h.h); transition accept; }
}

control I(inout Headers h, inout Nothing m, in psa_ingress_input_metadata_t i, inout psa_ingress_output_metadata_t o) {
    InternetChecksum() sum;
    apply {
        sum.add(h.h.a);
        sum.add({ h.h.a, h.h.b });
        h.h.result = sum.get();
        send_to_port(o, (PortId_t) 1);
    }
}

control ID(packet_out b, out Nothing c, out Nothing r, out Nothing n, inout Headers h, in Nothing m,
           in psa_ingress_output_metadata_t o) {
    apply { b.emit(h); }
}

parser EP(packet_in b, out Nothing h, inout Nothing m, in psa_egress_parser_input_metadata_t i, in Nothing n, in Nothing c,
          in Nothing e) {
    state start { transition accept; }
}

control E(inout Nothing h, inout Nothing m, in psa_egress_input_metadata_t i, inout psa_egress_output_metadata_t o) {
    apply {}
}

control ED(packet_out b, out Nothing c, out Nothing r, inout Nothing h, in Nothing m, in psa_egress_output_metadata_t o,
           in psa_egress_deparser_input_metadata_t i) {
    apply {}
}

PSA_Switch(IngressPipeline(IP(), I(), ID()), PacketReplicationEngine(), EgressPipeline(EP(), E(), ED()),
           BufferingQueueingEngine()) main;
