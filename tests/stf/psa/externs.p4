// Every extern with state, where the specification has it, and the table properties that name them.
#include <core.p4>
#include <psa.p4>

header H {
    bit<8>  op;
    bit<8>  a;
    bit<16> b;
    bit<32> c;
}
struct Headers { H h; }
struct Meta { bit<8> hit; }
struct Nothing {}
struct Pair { bit<8> low; bit<24> high; }
struct Learned { PortId_t port; bit<16> b; Pair pair; }

parser IP(packet_in b, out Headers h, inout Meta m, in psa_ingress_parser_input_metadata_t i, in Nothing r, in Nothing c) {
    value_set<bit<8>>(4) known;
    state start {
        b.extract(h.h);
        transition select(h.h.a) {
            known: found;
            default: accept;
        }
    }
    state found { m.hit = 1; transition accept; }
}

control I(inout Headers h, inout Meta m, in psa_ingress_input_metadata_t i, inout psa_ingress_output_metadata_t o) {
    Counter<bit<32>, PortId_t>(4, PSA_CounterType_t.PACKETS_AND_BYTES) ports;
    Counter<bit<32>, bit<8>>(4, PSA_CounterType_t.PACKETS) packets;
    DirectCounter<bit<32>>(PSA_CounterType_t.PACKETS_AND_BYTES) matched;
    DirectMeter(PSA_MeterType_t.PACKETS) metered;
    Meter<bit<8>>(2, PSA_MeterType_t.PACKETS) meter;
    Meter<bit<8>>(2, PSA_MeterType_t.PACKETS) second;
    DirectMeter(PSA_MeterType_t.PACKETS) metered_again;
    Register<bit<32>, bit<8>>(4) plain;
    Register<bit<32>, bit<8>>(4, 0x11223344) begun;
    Register<Pair, bit<8>>(4, { 5, 6 }) pairs;
    Hash<bit<16>>(PSA_HashAlgorithm_t.CRC16) crc16;
    Hash<bit<32>>(PSA_HashAlgorithm_t.CRC32) crc32;
    Hash<bit<16>>(PSA_HashAlgorithm_t.ONES_COMPLEMENT16) sum;
    Hash<bit<32>>(PSA_HashAlgorithm_t.IDENTITY) identity;
    Random<bit<8>>(10, 12) random;
    ActionProfile(8) profile;
    ActionSelector(PSA_HashAlgorithm_t.CRC32, 8, 16) selector;
    ActionSelector(PSA_HashAlgorithm_t.CRC32, 8, 16) selector_with_empty_groups;

    action set_b(bit<16> b) { h.h.b = b; }
    action counted(bit<16> b) { h.h.b = b; matched.count(); }
    action twice() { matched.count(); matched.count(); }
    action coloured() {
        PSA_MeterColor_t colour = metered.execute();
        if (colour == PSA_MeterColor_t.GREEN) { h.h.b = 1; }
        if (colour == PSA_MeterColor_t.YELLOW) { h.h.b = 2; }
        if (colour == PSA_MeterColor_t.RED) { h.h.b = 3; }
    }

    table count_some {
        key = { h.h.a: exact; }
        actions = { set_b; counted; twice; NoAction; }
        default_action = NoAction;
        psa_direct_counter = matched;
    }
    table measure {
        key = { h.h.a: exact; }
        actions = { coloured; NoAction; }
        default_action = NoAction;
        psa_direct_meter = metered;
    }
    action coloured_again() {
        PSA_MeterColor_t before = h.h.b == 1 ? PSA_MeterColor_t.YELLOW : PSA_MeterColor_t.GREEN;
        if (metered_again.execute(before) == PSA_MeterColor_t.YELLOW) { h.h.b = 2; }
    }
    table measure_again {
        key = { h.h.a: exact; }
        actions = { coloured_again; NoAction; }
        default_action = NoAction;
        psa_direct_meter = metered_again;
    }
    table members {
        key = { h.h.a: exact; }
        actions = { set_b; NoAction; }
        psa_implementation = profile;
    }
    table choices {
        key = { h.h.a: exact; h.h.c: selector; }
        actions = { set_b; NoAction; }
        psa_implementation = selector;
        psa_idle_timeout = PSA_IdleTimeout_t.NO_TIMEOUT;
    }
    table empty_groups {
        key = { h.h.a: exact; h.h.c: selector; }
        actions = { set_b; NoAction; }
        default_action = set_b(0xdddd);
        psa_empty_group_action = set_b(0xeeee);
        psa_implementation = selector_with_empty_groups;
    }

    apply {
        send_to_port(o, (PortId_t) 1);
        switch (h.h.op) {
            0: { ports.count((PortId_t) (bit<32>) h.h.a); packets.count(h.h.a); }
            1: { count_some.apply(); }
            2: { measure.apply(); }
            3: { members.apply(); }
            4: { choices.apply(); }
            5: {
                PSA_MeterColor_t colour = meter.execute(h.h.a);
                if (colour == PSA_MeterColor_t.YELLOW) { h.h.b = 2; }
                if (colour == PSA_MeterColor_t.RED) { h.h.b = 3; }
            }
            6: { h.h.c = plain.read(h.h.a); plain.write(h.h.a, h.h.c + 1); }
            7: { h.h.c = begun.read(h.h.a); begun.write(h.h.a, 7); }
            8: { Pair p = pairs.read(h.h.a); h.h.c = p.high ++ p.low; p.low = p.low + 1; pairs.write(h.h.a, p); }
            9: { h.h.b = crc16.get_hash({ h.h.a, h.h.c }); }
            10: { h.h.c = crc32.get_hash({ h.h.a, h.h.b }); }
            11: { h.h.b = sum.get_hash({ h.h.c }); }
            12: { h.h.c = identity.get_hash(8w100, { h.h.a }, 8w7); }
            13: { h.h.a = random.read(); if (h.h.a < 10 || h.h.a > 12) { ingress_drop(o); } h.h.a = 0; }
            14: { h.h.b = (bit<16>) m.hit; }
            16: {
                // The second meter makes what the first one says worse, never better.
                PSA_MeterColor_t colour = second.execute(1, meter.execute(0));
                if (colour == PSA_MeterColor_t.YELLOW) { h.h.b = 2; }
                if (colour == PSA_MeterColor_t.RED) { h.h.b = 3; }
            }
            17: { measure_again.apply(); }
            18: { h.h.b = crc16.get_hash({ h.h.b[11:0] }); }
            19: { if (empty_groups.apply().hit) { h.h.a = 0xff; } }
        }
    }
}

control ID(packet_out b, out Nothing c, out Nothing r, out Nothing n, inout Headers h, in Meta m,
           in psa_ingress_output_metadata_t o) {
    Digest<Learned>() learn;
    apply {
        if (h.h.op == 15) {
            learn.pack({ o.egress_port, h.h.b, { 9, 10 } });
        }
        b.emit(h);
    }
}

parser EP(packet_in b, out Headers h, inout Meta m, in psa_egress_parser_input_metadata_t i, in Nothing n, in Nothing c,
          in Nothing e) {
    state start { b.extract(h.h); transition accept; }
}

control E(inout Headers h, inout Meta m, in psa_egress_input_metadata_t i, inout psa_egress_output_metadata_t o) {
    Counter<bit<64>, bit<1>>(2, PSA_CounterType_t.BYTES) bytes;
    Register<bit<8>, bit<1>>(2) seen;
    apply {
        bytes.count(1);
        seen.write(0, seen.read(0) + 1);
    }
}

control ED(packet_out b, out Nothing c, out Nothing r, inout Headers h, in Meta m, in psa_egress_output_metadata_t o,
           in psa_egress_deparser_input_metadata_t i) {
    apply { b.emit(h); }
}

PSA_Switch(IngressPipeline(IP(), I(), ID()), PacketReplicationEngine(), EgressPipeline(EP(), E(), ED()),
           BufferingQueueingEngine()) main;
