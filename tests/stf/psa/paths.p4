// Every packet path, with its metadata. The first byte says what ingress asks for, the second what egress does, and the
// third is a number that ingress or egress puts there: where the packet has been is added to `seen`.
#include <core.p4>
#include <psa.p4>

header Asked {
    // Bits, from the top: clone, drop, resubmit, multicast, recirculate.
    bit<8>  ingress;
    // Bits, from the top: clone, drop.
    bit<8>  egress;
    bit<8>  port;
    bit<8>  class;
}

header Seen {
    bit<8>  ingress_path;
    bit<32> ingress_port;
    bit<8>  passes;
    bit<8>  egress_path;
    bit<32> egress_port;
    bit<16> instance;
    bit<8>  class;
    bit<8>  carried;
    bit<8>  length;
}

struct Headers { Asked asked; Seen seen; }
struct Meta { bit<8> carried; bit<8> length; }
struct Carried { bit<8> number; bit<8> passes; }
struct Nothing {}

bit<8> number(in PSA_PacketPath_t path) {
    if (path == PSA_PacketPath_t.NORMAL) { return 0; }
    if (path == PSA_PacketPath_t.NORMAL_UNICAST) { return 1; }
    if (path == PSA_PacketPath_t.NORMAL_MULTICAST) { return 2; }
    if (path == PSA_PacketPath_t.CLONE_I2E) { return 3; }
    if (path == PSA_PacketPath_t.CLONE_E2E) { return 4; }
    if (path == PSA_PacketPath_t.RESUBMIT) { return 5; }
    return 6;
}

parser IP(packet_in b, out Headers h, inout Meta m, in psa_ingress_parser_input_metadata_t i, in Carried resubmitted,
          in Carried recirculated) {
    state start {
        b.extract(h.asked);
        m.length = (bit<8>) b.length();
        transition select(i.packet_path) {
            PSA_PacketPath_t.RESUBMIT: again;
            PSA_PacketPath_t.RECIRCULATE: back;
            default: accept;
        }
    }
    state again {
        m.carried = resubmitted.number;
        transition accept;
    }
    state back {
        b.extract(h.seen);
        m.carried = recirculated.number;
        transition accept;
    }
}

control I(inout Headers h, inout Meta m, in psa_ingress_input_metadata_t i, inout psa_ingress_output_metadata_t o) {
    apply {
        if (!h.seen.isValid()) {
            h.seen.setValid();
        }
        h.seen.ingress_path = number(i.packet_path);
        h.seen.ingress_port = (bit<32>) i.ingress_port;
        h.seen.passes = h.seen.passes + 1;
        h.seen.carried = m.carried;
        o.class_of_service = (ClassOfService_t) h.asked.class;
        if (i.packet_path == PSA_PacketPath_t.NORMAL) {
            o.clone = (bool) h.asked.ingress[7:7];
            o.clone_session_id = (CloneSessionId_t) 7;
            o.drop = (bool) h.asked.ingress[6:6];
            o.resubmit = (bool) h.asked.ingress[5:5];
            if (h.asked.ingress[4:4] == 1) {
                o.multicast_group = (MulticastGroup_t) 5;
            }
            if (h.asked.ingress[3:3] == 1) {
                o.egress_port = PSA_PORT_RECIRCULATE;
            } else {
                o.egress_port = (PortId_t) (bit<32>) h.asked.port;
            }
        } else {
            send_to_port(o, (PortId_t) (bit<32>) h.asked.port);
        }
    }
}

control ID(packet_out b, out Carried cloned, out Carried resubmitted, out Carried normal, inout Headers h, in Meta m,
           in psa_ingress_output_metadata_t o) {
    apply {
        if (psa_clone_i2e(o)) { cloned = { 0xc1, h.seen.passes }; }
        if (psa_resubmit(o)) { resubmitted = { 0xa1, h.seen.passes }; }
        if (psa_normal(o)) { normal = { 0xd1, h.seen.passes }; }
        b.emit(h);
    }
}

parser EP(packet_in b, out Headers h, inout Meta m, in psa_egress_parser_input_metadata_t i, in Carried normal,
          in Carried cloned, in Carried cloned_again) {
    state start {
        m.length = (bit<8>) b.length();
        b.extract(h.asked);
        transition select(i.packet_path) {
            PSA_PacketPath_t.CLONE_I2E: clone;
            PSA_PacketPath_t.CLONE_E2E: again;
            default: normal_packet;
        }
    }
    state normal_packet {
        b.extract(h.seen);
        m.carried = normal.number + normal.passes;
        transition accept;
    }
    state clone {
        m.carried = cloned.number + cloned.passes;
        transition accept;
    }
    state again {
        b.extract(h.seen);
        m.carried = cloned_again.number + cloned_again.passes;
        transition accept;
    }
}

control E(inout Headers h, inout Meta m, in psa_egress_input_metadata_t i, inout psa_egress_output_metadata_t o) {
    apply {
        if (!h.seen.isValid()) {
            h.seen.setValid();
        }
        h.seen.egress_path = number(i.packet_path);
        h.seen.egress_port = (bit<32>) i.egress_port;
        h.seen.instance = (bit<16>) i.instance;
        h.seen.class = (bit<8>) i.class_of_service;
        h.seen.carried = m.carried;
        h.seen.length = m.length;
        if (i.packet_path != PSA_PacketPath_t.CLONE_E2E) {
            o.clone = (bool) h.asked.egress[7:7];
            o.clone_session_id = (CloneSessionId_t) 8;
        }
        if (h.asked.egress[6:6] == 1 && i.packet_path != PSA_PacketPath_t.CLONE_E2E) {
            egress_drop(o);
        }
    }
}

control ED(packet_out b, out Carried cloned, out Carried recirculated, inout Headers h, in Meta m,
           in psa_egress_output_metadata_t o, in psa_egress_deparser_input_metadata_t i) {
    apply {
        if (psa_clone_e2e(o)) { cloned = { 0xe1, h.seen.passes }; }
        if (psa_recirculate(o, i)) { recirculated = { 0xb1, h.seen.passes }; }
        b.emit(h);
    }
}

PSA_Switch(IngressPipeline(IP(), I(), ID()), PacketReplicationEngine(), EgressPipeline(EP(), E(), ED()),
           BufferingQueueingEngine()) main;
