// For copies.py: what comes in at a port is sent to another, and cloned to a third; or it is flooded.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers { ethernet_t ethernet; }
struct meta_t { }

parser P(packet_in b, out headers hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { b.extract(hdr.ethernet); transition accept; }
}

control V(inout headers hdr, inout meta_t meta) { apply { } }
control C(inout headers hdr, inout meta_t meta) { apply { } }

control I(inout headers hdr, inout meta_t meta, inout standard_metadata_t std) {
    action drop() { mark_to_drop(std); }
    action flood(bit<16> group) { std.mcast_grp = group; }
    action forward_and_mirror(bit<9> port, bit<32> session) {
        std.egress_spec = port;
        clone(CloneType.I2E, session);
    }
    table ports {
        key = { std.ingress_port: exact; }
        actions = { flood; forward_and_mirror; drop; }
        default_action = drop();
        size = 64;
    }
    apply { ports.apply(); }
}

control E(inout headers hdr, inout meta_t meta, inout standard_metadata_t std) { apply { } }
control D(packet_out b, in headers hdr) { apply { b.emit(hdr.ethernet); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
