// What DPDK's variant of PSA adds: counters and meters are told how long the packet is.
#include <core.p4>
#include <dpdk/psa.p4>

header H { bit<8> a; bit<32> length; bit<8> colour; }
struct Headers { H h; }
struct Nothing {}

parser IP(packet_in b, out Headers h, inout Nothing m, in psa_ingress_parser_input_metadata_t i, in Nothing r, in Nothing c) {
    state start { b.extract(h.h); transition accept; }
}

control I(inout Headers h, inout Nothing m, in psa_ingress_input_metadata_t i, inout psa_ingress_output_metadata_t o) {
    Counter<bit<32>, bit<8>>(4, PSA_CounterType_t.PACKETS_AND_BYTES) both;
    Counter<bit<32>, bit<8>>(4, PSA_CounterType_t.PACKETS) packets;
    DirectCounter<bit<32>>(PSA_CounterType_t.BYTES) matched;
    Meter<bit<8>>(4, PSA_MeterType_t.BYTES) meter;
    DirectMeter(PSA_MeterType_t.BYTES) metered;
    action count() { matched.count(h.h.length); }
    action measure() {
        PSA_MeterColor_t colour = metered.dpdk_execute(h.h.length);
        if (colour == PSA_MeterColor_t.RED) { h.h.colour = h.h.colour + 1; }
    }
    table counted { key = { h.h.a: exact; } actions = { count; NoAction; } default_action = NoAction; psa_direct_counter = matched; }
    table measured { key = { h.h.a: exact; } actions = { measure; NoAction; } default_action = NoAction; psa_direct_meter = metered; }
    apply {
        send_to_port(o, (PortId_t) 1);
        both.count(h.h.a, h.h.length);
        packets.count(h.h.a, h.h.length);
        counted.apply();
        measured.apply();
        if (meter.dpdk_execute(h.h.a, h.h.length) == PSA_MeterColor_t.RED) { h.h.colour = h.h.colour + 2; }
        if (meter.dpdk_execute(3, PSA_MeterColor_t.RED, h.h.length) == PSA_MeterColor_t.RED) { h.h.colour = h.h.colour + 4; }
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
