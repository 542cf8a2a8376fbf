// What a controller sees of a program for PSA: packets in and out, digests, clone sessions, groups, counters, registers.
#include <core.p4>
#include <psa.p4>

@controller_header("packet_out")
header packet_out_t {
    bit<8> what;
}

@controller_header("packet_in")
header packet_in_t {
    PortIdInHeader_t         ingress_port;
    EgressInstanceInHeader_t instance;
    ClassOfServiceInHeader_t class_of_service;
    bit<8>                   path;
}

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type_;
}

struct Headers { packet_out_t packet_out; packet_in_t packet_in; ethernet_t ethernet; }
struct Meta {}
struct Nothing {}
struct Bridged { PortIdInHeader_t ingress_port; }
struct Learned { PortId_t port; bit<48> src; }

parser IP(packet_in b, out Headers h, inout Meta m, in psa_ingress_parser_input_metadata_t i, in Nothing r, in Nothing c) {
    state start {
        transition select(i.ingress_port) {
            PSA_PORT_CPU: from_controller;
            default: ethernet;
        }
    }
    state from_controller { b.extract(h.packet_out); transition ethernet; }
    state ethernet { b.extract(h.ethernet); transition accept; }
}

control I(inout Headers h, inout Meta m, in psa_ingress_input_metadata_t i, inout psa_ingress_output_metadata_t o) {
    DirectCounter<bit<64>>(PSA_CounterType_t.PACKETS_AND_BYTES) seen;
    Counter<bit<64>, PortId_t>(16, PSA_CounterType_t.PACKETS) unused;
    Register<bit<16>, bit<8>>(4, 0xbeef) last;
    action to_controller() { seen.count(); send_to_port(o, PSA_PORT_CPU); }
    action copy(CloneSessionId_t session) { seen.count(); o.clone = true; o.clone_session_id = session; }
    action to_group(MulticastGroup_t group) { seen.count(); multicast(o, group); }
    action forward(PortId_t port) { send_to_port(o, port); }
    table what {
        key = { h.packet_out.what: exact; i.ingress_port: exact; }
        actions = { to_controller; copy; to_group; forward; NoAction; }
        default_action = NoAction;
        psa_direct_counter = seen;
        psa_idle_timeout = PSA_IdleTimeout_t.NOTIFY_CONTROL;
        size = 64;
    }
    apply {
        what.apply();
        last.write(1, h.ethernet.type_);
        h.packet_out.setInvalid();
    }
}

control ID(packet_out b, out Bridged c, out Nothing r, out Bridged n, inout Headers h, in Meta m,
           in psa_ingress_output_metadata_t o) {
    Digest<Learned>() learn;
    apply {
        c.ingress_port = (PortIdInHeader_t) 7;
        n.ingress_port = (PortIdInHeader_t) 8;
        if (h.ethernet.type_ == 0x1234) {
            learn.pack({ o.egress_port, h.ethernet.src });
        }
        b.emit(h);
    }
}

parser EP(packet_in b, out Headers h, inout Meta m, in psa_egress_parser_input_metadata_t i, in Bridged n, in Bridged c,
          in Bridged e) {
    state start {
        h.packet_in.setValid();
        h.packet_in.ingress_port = n.ingress_port;
        transition select(i.packet_path) {
            PSA_PacketPath_t.CLONE_I2E: clone;
            default: accept;
        }
    }
    state clone {
        h.packet_in.ingress_port = c.ingress_port;
        transition accept;
    }
}

control E(inout Headers h, inout Meta m, in psa_egress_input_metadata_t i, inout psa_egress_output_metadata_t o) {
    apply {
        if (i.egress_port == PSA_PORT_CPU) {
            h.packet_in.instance = (EgressInstanceInHeader_t) (EgressInstanceUint_t) i.instance;
            h.packet_in.class_of_service = (ClassOfServiceInHeader_t) (ClassOfServiceUint_t) i.class_of_service;
            if (i.packet_path == PSA_PacketPath_t.NORMAL_UNICAST) { h.packet_in.path = 1; }
            if (i.packet_path == PSA_PacketPath_t.NORMAL_MULTICAST) { h.packet_in.path = 2; }
            if (i.packet_path == PSA_PacketPath_t.CLONE_I2E) { h.packet_in.path = 3; }
        } else {
            h.packet_in.setInvalid();
        }
    }
}

control ED(packet_out b, out Bridged c, out Nothing r, inout Headers h, in Meta m, in psa_egress_output_metadata_t o,
           in psa_egress_deparser_input_metadata_t i) {
    apply { b.emit(h); }
}

PSA_Switch(IngressPipeline(IP(), I(), ID()), PacketReplicationEngine(), EgressPipeline(EP(), E(), ED()),
           BufferingQueueingEngine()) main;
