// The clone session that every PSA switch begins with, sessions that cut packets, and copies for the port that recirculates.
#include <core.p4>
#include <psa.p4>

header Asked { bit<16> session; bit<16> length; }
struct Headers { Asked asked; }
struct Nothing {}

parser IP(packet_in b, out Headers h, inout Nothing m, in psa_ingress_parser_input_metadata_t i, in Nothing r, in Nothing c) {
    state start { b.extract(h.asked); transition accept; }
}

control I(inout Headers h, inout Nothing m, in psa_ingress_input_metadata_t i, inout psa_ingress_output_metadata_t o) {
    apply {
        if (i.packet_path == PSA_PacketPath_t.RECIRCULATE) {
            h.asked.session = 0xbeef;
            send_to_port(o, (PortId_t) 2);
        } else {
            o.clone = true;
            o.clone_session_id = (CloneSessionId_t) h.asked.session;
        }
    }
}

control ID(packet_out b, out Nothing c, out Nothing r, out Nothing n, inout Headers h, in Nothing m,
           in psa_ingress_output_metadata_t o) {
    apply { b.emit(h); }
}

parser EP(packet_in b, out Headers h, inout Nothing m, in psa_egress_parser_input_metadata_t i, in Nothing n, in Nothing c,
          in Nothing e) {
    state start { b.extract(h.asked); h.asked.length = (bit<16>) b.length(); transition accept; }
}

control E(inout Headers h, inout Nothing m, in psa_egress_input_metadata_t i, inout psa_egress_output_metadata_t o) {
    apply {}
}

control ED(packet_out b, out Nothing c, out Nothing r, inout Headers h, in Nothing m, in psa_egress_output_metadata_t o,
           in psa_egress_deparser_input_metadata_t i) {
    apply { b.emit(h); }
}

PSA_Switch(IngressPipeline(IP(), I(), ID()), PacketReplicationEngine(), EgressPipeline(EP(), E(), ED()),
           BufferingQueueingEngine()) main;
